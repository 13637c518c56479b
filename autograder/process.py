"""An answer in a process of its own, in which the reference and the mistakes can't be imported."""

import select
import signal
import socket
import subprocess
import time

from autograder.program import ENVIRONMENT, SECONDS_TO_START, InfrastructureError, command
from autograder.sandbox import wire
from autograder.sandbox.observe import Failure, Observation

SECONDS_TO_LOAD = 20
SECONDS_TO_PROBE = 10
SECONDS_TO_OBSERVE = 60  # all probes of a definition together
SECONDS_TO_END = 2
_CHUNK = 2**18  # bytes read at a time


def probe(name, inputs, options):
    """The frame that asks for a probe of that name."""
    return wire.pack({"probe": name, "inputs": inputs, "options": options})


class Ended(Exception):
    """The process is gone; `failure` says why: it took too long, it died, or it broke the protocol."""

    def __init__(self, failure):
        super().__init__(failure.message)
        self.failure = failure


class Process:
    """A process that serves as `sandbox.worker` does at the other end of a socket; a context manager.

    Every method raises Ended when the process does not answer, and InfrastructureError when it was lost.
    """

    def __init__(self, frames):
        self._frames, self._stream = frames, _Stream(frames)

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

    def open(self, texts):
        """Tell it the text of each cell, whose lines its errors quote."""
        self._ask({"texts": texts}, SECONDS_TO_LOAD)

    def observe(self, name, program, probes, given=()):
        """Yields the Observation of each of several probes of what a program (see `loader.run`) defines under that name.

        probes: frames, as `probe` makes them
        given: {name: source} of functions that take the place of the notebook's own

        All is sent at once: to wake the other process for each, and this one again, takes as long as many an answer.
        """
        self._stream.send(b"".join([wire.pack({"define": name, "program": program, "given": dict(given)}), *probes]))
        self._reply(SECONDS_TO_LOAD)
        until = time.monotonic() + SECONDS_TO_OBSERVE
        for _ in probes:
            if time.monotonic() > until:
                self.end()
                raise Ended(Failure("Timeout", f"Its cases together take longer than {SECONDS_TO_OBSERVE} seconds."))
            reply = self._reply(SECONDS_TO_PROBE)
            try:
                observation = Observation.from_fields(reply)
            except wire.ProtocolError as error:
                raise self._broken(error) from error
            yield observation

    def _ask(self, request, seconds):
        self._stream.send(wire.pack(request))
        return self._reply(seconds)

    def _reply(self, seconds):
        self._stream.deadline = time.monotonic() + seconds
        try:
            reply = wire.read(self._stream)
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

    def open(self, texts):
        """See Process. Raises InfrastructureError where there is no answer: none of the notebook has run yet."""
        try:
            self._ask({"texts": texts}, SECONDS_TO_START)
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
    """`read(n)` of a socket, up to a deadline (raises TimeoutError); what is to be sent goes out meanwhile, as the other side takes it."""

    def __init__(self, connection):
        self._connection, self._outgoing, self.deadline = connection, memoryview(b""), 0.0
        self._incoming = b""  # what has come, and was not asked for yet
        connection.setblocking(False)

    def send(self, data):
        """Have it sent during the reads that follow: a process that stops reading holds nobody up."""
        self._outgoing = memoryview(self._outgoing.tobytes() + data)

    def read(self, size):
        chunks, left = [], size
        while left > len(self._incoming):
            chunks.append(self._incoming)
            left -= len(self._incoming)
            self._incoming = self._received()
            if not self._incoming:
                left = 0  # it has ended
        chunks.append(self._incoming[:left])
        self._incoming = self._incoming[left:]
        return b"".join(chunks)

    def _received(self):
        """What comes next; nothing where it has ended."""
        while (seconds := self.deadline - time.monotonic()) > 0:
            if self._outgoing:
                self._send_some()
            try:
                return self._connection.recv(_CHUNK)
            except BlockingIOError:
                writing = [self._connection] if self._outgoing else []
                select.select([self._connection], writing, [], seconds)
            except ConnectionResetError:  # it ended, and had not read all
                return b""
        raise TimeoutError

    def _send_some(self):
        try:
            self._outgoing = self._outgoing[self._connection.send(self._outgoing) :]
        except BlockingIOError:
            pass
        except OSError:  # it has ended; what it said before can still be read
            self._outgoing = memoryview(b"")
