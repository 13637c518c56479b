"""An answer in a process of its own, in which the reference and the mistakes can't be imported."""

import os
import select
import subprocess
import sys
import sysconfig
import time

from autograder.sandbox import wire
from autograder.sandbox.observe import Failure, Observation

SECONDS_TO_START = 60
SECONDS_TO_LOAD = 20
SECONDS_TO_PROBE = 10

# -I -S: no environment, no working folder and no .pth files, so of this project only `sandbox` can be found
_BOOT = """
import importlib.util, sys
sys.path += {packages!r}
spec = importlib.util.spec_from_file_location("sandbox", {init!r})
sys.modules["sandbox"] = package = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
import sandbox.worker
sandbox.worker.serve()
"""


class Ended(Exception):
    """The process is gone; `failure` says why: it took too long, it died, or it broke the protocol."""

    def __init__(self, failure):
        super().__init__(failure.message)
        self.failure = failure


class InfrastructureError(Exception):
    """The process could not be started: the machine's fault, not the answer's."""


class Process:
    """One worker process; a context manager. Every method raises Ended when the process does not answer."""

    def __init__(self):
        folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sandbox")
        paths = sysconfig.get_paths()
        packages = sorted({paths["purelib"], paths["platlib"]})
        boot = _BOOT.format(packages=packages, init=os.path.join(folder, "__init__.py"))
        environment = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
        environment["HOME"] = environment["TMPDIR"] = "/tmp"
        self._child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", boot],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, start_new_session=True,
        )  # fmt: skip

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._child.kill()
        self._child.communicate()

    def open(self, text):
        """Give it the notebook."""
        try:
            self._ask({"notebook": text}, SECONDS_TO_START)
        except Ended as error:
            _, log = self._child.communicate()
            raise InfrastructureError(f"the worker process did not start: {error} {log.decode(errors='replace')[-2000:]}") from error

    def define(self, name, given):
        """Run the definitions on which `name` depends; returns whether it is there, and the last Failure or None.

        given: sources of functions that take the place of the notebook's own
        """
        reply = self._ask({"define": name, "given": given}, SECONDS_TO_LOAD)
        try:
            if not isinstance(reply, dict) or type(reply.get("defined")) is not bool:
                raise wire.ProtocolError("it does not say whether the name is defined")
            return reply["defined"], Failure.from_fields(reply.get("failure"))
        except wire.ProtocolError as error:
            raise self._broken(error) from error

    def observe(self, probe, inputs, options):
        """The Observation of one probe of the name that was defined last."""
        reply = self._ask({"probe": probe, "inputs": inputs, "options": options}, SECONDS_TO_PROBE)
        try:
            return Observation.from_fields(reply)
        except wire.ProtocolError as error:
            raise self._broken(error) from error

    def _ask(self, request, seconds):
        stream = _Reader(self._child.stdout, time.monotonic() + seconds)
        try:
            self._child.stdin.write(wire.pack(request))
            self._child.stdin.flush()
            reply = wire.read(stream)
        except TimeoutError as error:
            self._child.kill()
            raise Ended(Failure("Timeout", f"It did not finish within {seconds} seconds. Is there a loop that never ends?")) from error
        except OSError:
            reply = None
        except wire.ProtocolError as error:
            raise self._broken(error) from error
        if reply is None:
            raise Ended(Failure("Crash", f"The process that ran it ended without an answer (exit status {self._child.wait()})."))
        return reply

    def _broken(self, error):
        self._child.kill()
        return Ended(Failure("ProtocolError", f"The process that ran it sent something that is no observation: {error}."))


class _Reader:
    """`read(n)` of a pipe, up to a deadline."""

    def __init__(self, pipe, deadline):
        self._descriptor, self._deadline = pipe.fileno(), deadline

    def read(self, size):
        chunks = []
        while size:
            ready, _, _ = select.select([self._descriptor], [], [], max(0, self._deadline - time.monotonic()))
            if not ready:
                raise TimeoutError
            chunk = os.read(self._descriptor, min(size, 2**20))
            if not chunk:
                break
            chunks.append(chunk)
            size -= len(chunk)
        return b"".join(chunks)
