"""An answer in a process of its own, in which the reference and the mistakes can't be imported."""

import os
import signal
import socket
import subprocess
import sys
import sysconfig
import time

from autograder.sandbox import wire
from autograder.sandbox.observe import Failure, Observation

SECONDS_TO_START = 60
SECONDS_TO_LOAD = 20
SECONDS_TO_PROBE = 10
SECONDS_TO_OBSERVE = 60  # all probes of a definition together
SECONDS_TO_END = 2

SANDBOX = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sandbox")
PACKAGES = sorted({sysconfig.get_paths()[kind] for kind in ("purelib", "platlib")})
INTERPRETER = os.path.realpath(sys.executable)
ENVIRONMENT = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    "CUDA_VISIBLE_DEVICES": "", "HOME": "/tmp", "TMPDIR": "/tmp",
}  # fmt: skip
_BOOT = """
import importlib.util, sys
sys.path += {packages!r}
spec = importlib.util.spec_from_file_location("sandbox", {init!r})
sys.modules["sandbox"] = package = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
import {module}
{module}.serve{arguments!r}
"""


def command(module, *arguments, sandbox=SANDBOX):
    """The command that calls `serve` of a module of the sandbox. sandbox: where that folder lies for the command"""
    boot = _BOOT.format(packages=PACKAGES, init=os.path.join(sandbox, "__init__.py"), module=module, arguments=arguments)
    # -I -S: no environment, no working folder and no .pth files, so of this project only `sandbox` can be found
    return [INTERPRETER, "-I", "-S", "-c", boot]


class Ended(Exception):
    """The process is gone; `failure` says why: it took too long, it died, or it broke the protocol."""

    def __init__(self, failure):
        super().__init__(failure.message)
        self.failure = failure


class InfrastructureError(Exception):
    """The process could not be started, or was lost: the machine's fault, not the answer's."""


class Process:
    """A process that serves as `sandbox.worker` does at the other end of a socket; a context manager.

    Every method raises Ended when the process does not answer, and InfrastructureError when it was lost.
    """

    memory = 0  # bytes at its peak, where that is known: of a child of a warm parent, once it has ended

    def __init__(self, frames):
        self._frames, self._until = frames, 0.0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def wait(self, seconds):
        """The exit status (minus the signal that ended it), or None if it still runs after so many seconds."""
        raise NotImplementedError

    def end(self):
        """Kill it."""
        raise NotImplementedError

    def open(self, text):
        """Give it the notebook."""
        self._ask({"notebook": text}, SECONDS_TO_LOAD)

    def define(self, name, given):
        """Run the definitions on which `name` depends; returns whether it is there, and the last Failure or None.

        given: sources of functions that take the place of the notebook's own
        """
        reply = self._ask({"define": name, "given": given}, SECONDS_TO_LOAD)
        self._until = time.monotonic() + SECONDS_TO_OBSERVE
        try:
            if not isinstance(reply, dict) or type(reply.get("defined")) is not bool:
                raise wire.ProtocolError("it does not say whether the name is defined")
            return reply["defined"], Failure.from_fields(reply.get("failure"))
        except wire.ProtocolError as error:
            raise self._broken(error) from error

    def observe(self, probe, inputs, options):
        """The Observation of one probe of the name that was defined last."""
        if time.monotonic() > self._until:
            self.end()
            raise Ended(Failure("Timeout", f"Its cases together take longer than {SECONDS_TO_OBSERVE} seconds."))
        reply = self._ask({"probe": probe, "inputs": inputs, "options": options}, SECONDS_TO_PROBE)
        try:
            return Observation.from_fields(reply)
        except wire.ProtocolError as error:
            raise self._broken(error) from error

    def _ask(self, request, seconds):
        stream = _Stream(self._frames, time.monotonic() + seconds)
        try:
            stream.write(wire.pack(request))
            reply = wire.read(stream)
        except TimeoutError as error:
            self.end()
            raise Ended(Failure("Timeout", f"It did not finish within {seconds} seconds. Is there a loop that never ends?")) from error
        except OSError:
            reply = None
        except wire.ProtocolError as error:
            raise self._broken(error) from error
        if reply is None:
            status = self.wait(SECONDS_TO_END)
            self.end()
            raise Ended(_ending(status))
        return reply

    def _broken(self, error):
        self.end()
        return Ended(Failure("ProtocolError", f"The process that ran it sent something that is no observation: {error}."))


class OwnProcess(Process):
    """Started for itself, and not isolated: for checking a notebook of one's own."""

    def __init__(self):
        frames, theirs = socket.socketpair()
        with theirs:
            self._child = subprocess.Popen(
                command("sandbox.worker"), stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=ENVIRONMENT, start_new_session=True
            )
        super().__init__(frames)

    def open(self, text):
        """Give it the notebook. Raises InfrastructureError where there is no answer: none of the notebook has run yet."""
        try:
            self._ask({"notebook": text}, SECONDS_TO_START)
        except Ended as error:
            raise InfrastructureError(f"The process of its own did not start: {error} {self._log[-2000:]}") from error

    def wait(self, seconds):
        """See Process."""
        try:
            return self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def end(self):
        """See Process."""
        if self._frames.fileno() < 0:
            return
        self._child.kill()
        self._log = self._child.communicate()[1].decode(errors="replace")
        self._frames.close()


def _ending(status):
    if status is None:
        return Failure("Crash", "The process that ran it hung up without an answer.")
    if status == -signal.SIGXCPU:
        return Failure("Timeout", "It used more processor time than a whole notebook may.")
    if status == -signal.SIGKILL:
        return Failure("OutOfMemory", "The system ended the process that ran it, most likely because it took too much memory.")
    return Failure("Crash", f"The process that ran it ended without an answer (exit status {status}).")


class _Stream:
    """`read(n)` and `write(data)` of a socket, up to a deadline. Both raise TimeoutError."""

    def __init__(self, connection, deadline):
        self._connection, self._deadline = connection, deadline

    def read(self, size):
        chunks = []
        while size:
            self._set_time_left()
            chunk = self._connection.recv(min(size, 2**20))
            if not chunk:
                break
            chunks.append(chunk)
            size -= len(chunk)
        return b"".join(chunks)

    def write(self, data):
        self._set_time_left()
        self._connection.sendall(data)

    def _set_time_left(self):
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
