"""Isolation for notebooks that nobody vouches for: a warm parent whose children can neither read, write nor reach anything.

Tiers, the strongest first:
    namespaces  bubblewrap starts the warm parent on a read-only minimum of files; each child has a network, a process table,
                a /tmp and shared memory of its own, and these are empty
    landlock    where there are no user namespaces: each child restricts itself; it can read the interpreter and its packages, and
                write nothing at all
    none        only limits; never for others' notebooks unless someone asks for it by name
In the first two, a filter of system calls also refuses new processes, sockets, and signals to others.
"""

import contextlib
import functools
import json
import os
import signal
import socket
import threading

from autograder.process import SECONDS_TO_END, Process
from autograder.program import SECONDS_TO_START, InfrastructureError, OwnParent
from autograder.sandbox import confine
from autograder.sandbox.confine import LANDLOCK, NAMESPACES, NONE
from autograder.verdict import CanNotCheck

TIERS = (NAMESPACES, LANDLOCK)  # that keep files, network and other processes out of reach


class NoIsolation(CanNotCheck):
    """This machine isolates nothing, or not by the tier that was asked for; the message says what to do."""


@functools.cache
def refusal(tier):
    """Why a tier does not work on this machine, as a text; "" where it does. It is tried once."""
    try:
        with nursery(tier).child() as child:
            child.open({})
        return ""
    except InfrastructureError as error:
        return str(error)


def strongest():
    """The strongest tier that works here. Raises NoIsolation."""
    for tier in TIERS:
        if not refusal(tier):
            return tier
    reasons = "; ".join(f"{tier}: {refusal(tier)}" for tier in TIERS)
    raise NoIsolation(
        "Nothing on this machine keeps an answer away from your files and network: install bubblewrap (`apt install bubblewrap`) and "
        f"allow user namespaces, or use a Linux of 5.13 or later with Landlock. ({reasons})"
    )


def for_others(wanted=""):
    """The tier for notebooks that nobody vouches for: the strongest, or the one wanted by name. Raises NoIsolation."""
    if not wanted:
        return strongest()
    if wanted not in (*TIERS, NONE):
        raise NoIsolation(f"There is no isolation {wanted!r}. Choose one of: {', '.join((*TIERS, NONE))}.")
    if reason := refusal(wanted):
        raise NoIsolation(f"The isolation {wanted!r} does not work on this machine: {reason}")
    return wanted


@functools.cache
def nursery(tier):
    """This process's Nursery of a tier, kept as long as the process lives."""
    return Nursery(tier)


@contextlib.contextmanager
def one_core(number):
    """For a time, this thread and what it starts stay on one core, chosen by a number.

    Grader and child take turns, and to wake another core for each question takes as long as many an answer.
    """
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {allowed[number % len(allowed)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


class Nursery:
    """A warm parent and its children; a context manager. The parent starts with the first child; one that fails is replaced.

    Its children can run side by side. The thread that makes the first one must outlive them all: when it ends, they do.
    """

    def __init__(self, tier):
        self.tier = tier
        self._lock = threading.Lock()
        self._parents = []  # the last one is in use; those before it wait for the last of their children
        self._serves = False  # whether there is a last one, and it has not failed
        self._ending = []  # children that were killed, and have not yet reported their end
        self._peak_memory = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._see_off()
        for parent in self._parents:
            parent.end()
        self._parents, self._serves = [], False

    @property
    def peak_memory(self):
        """Bytes, of those of its children that have ended; whoever wants it for some of them sets it to 0 before."""
        self._see_off()
        return self._peak_memory

    @peak_memory.setter
    def peak_memory(self, value):
        self._see_off()
        self._peak_memory = value

    def _see_off(self):
        while self._ending:
            self._peak_memory = max(self._peak_memory, self._ending.pop().memory)

    def adopt(self, parent):
        """Use a warm parent that another process has started, as long as it serves."""
        with self._lock:
            self._parents.append(parent)
            self._serves = True

    def child(self, late=()):
        """A Child, isolated and ready for a notebook. Raises InfrastructureError; the next call then starts a new parent.

        late: names in `sandbox.nursery.LATE` that the notebook uses
        """
        with self._lock:
            if not self._serves:
                self._replace()
            parent = self._parents[-1]
        self._see_off()
        try:
            return Child(self, *parent.fork(late))
        except (OSError, InfrastructureError) as error:
            with self._lock:
                if parent is self._parents[-1]:
                    self._serves = False
            if not isinstance(parent, OwnParent):  # whoever started it may have ended it
                return self.child(late)
            raise InfrastructureError(f"No process could be started ({self.tier}): {error}. {parent.log()}".strip()) from error

    def _replace(self):
        if self._parents:
            self._parents[-1].hang_up()
        self._parents = [parent for parent in self._parents if parent.lives()]
        self._parents.append(OwnParent(self.tier))
        self._serves = True


class Child(Process):
    """A Process that a warm parent forked."""

    def __init__(self, nursery, frames, report):
        super().__init__(frames)
        self._nursery = nursery
        self._report, self._pidfd, self._status, self._memory = report, None, None, 0
        try:
            confined = False
            while self._pidfd is None or not confined:
                confined = "confined" in self._reported(SECONDS_TO_START) or confined
        except (OSError, InfrastructureError):
            self.end()
            raise

    def wait(self, seconds):
        """See Process."""
        if self._status is None:
            try:
                ended = self._reported(seconds)
            except TimeoutError:
                return None
            self._memory = ended["memory"]
            out_of_time = ended["status"] == -signal.SIGKILL and ended["cpu"] >= confine.SECONDS_OF_CPU
            self._status = -signal.SIGXCPU if out_of_time else ended["status"]
        return self._status

    def end(self):
        """Kill it, and with it all that it started. Nobody waits for its last report before the next child is wanted."""
        if self._frames.fileno() < 0:
            return
        self._frames.close()
        if self._pidfd is None:
            self._report.close()
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        self._nursery._ending.append(self)

    @property
    def memory(self):
        """Its peak in bytes, once it has been ended; waits for its last report."""
        if self._pidfd is not None:
            with contextlib.suppress(InfrastructureError):
                self.wait(SECONDS_TO_END)
            os.close(self._pidfd)
            self._report.close()
            self._pidfd = None
        return self._memory

    def _reported(self, seconds):
        """The next report (see `sandbox.nursery`)."""
        self._report.settimeout(seconds)
        data, descriptors, _, _ = socket.recv_fds(self._report, 2**16, 1)
        if descriptors:
            (self._pidfd,) = descriptors
        report = json.loads(data) if data else {"error": "it was lost"}
        if "error" in report:
            raise InfrastructureError(report["error"])
        return report
