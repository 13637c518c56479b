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
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading

from autograder import process
from autograder.process import PACKAGES, SANDBOX, SECONDS_TO_END, InfrastructureError, Process, command
from autograder.sandbox import confine
from autograder.sandbox.confine import LANDLOCK, NAMESPACES, NONE
from autograder.verdict import CanNotCheck

TIERS = (NAMESPACES, LANDLOCK)  # that keep files, network and other processes out of reach
CHILDREN_OF_A_PARENT = 500
_INSIDE = "/sandbox"  # where the folder of that name lies in the tier namespaces
_PROJECT = os.path.dirname(os.path.dirname(SANDBOX))


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
    """A warm parent and its children; a context manager. The parent starts with the first child, and is renewed every so often.

    Its children can run side by side. The thread that makes the first one must outlive them all: when it ends, they do.
    """

    def __init__(self, tier):
        self.tier = tier
        self._lock = threading.Lock()
        self._parents = []  # the last one is in use; those before it wait for the last of their children
        self._left = 0  # children that it may still have
        self._ending = []  # children that were killed, and have not yet reported their end
        self._peak_memory = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._see_off()
        for parent in self._parents:
            parent.end()
        self._parents = []

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

    def child(self, late=()):
        """A Child, isolated and ready for a notebook. Raises InfrastructureError; the next call then starts a new parent.

        late: names in `sandbox.nursery.LATE` that the notebook uses
        """
        with self._lock:
            if self._left == 0:
                self._renew()
            self._left -= 1
            parent = self._parents[-1]
        self._see_off()
        try:
            return Child(self, *parent.fork(late))
        except (OSError, InfrastructureError) as error:
            with self._lock:
                if parent is self._parents[-1]:
                    self._left = 0
            raise InfrastructureError(f"No process could be started ({self.tier}): {error}. {parent.log()}".strip()) from error

    def _renew(self):
        if self._parents:
            self._parents[-1].hang_up()
        self._parents = [parent for parent in self._parents if parent.lives()]
        self._parents.append(_Parent(self.tier))
        self._left = CHILDREN_OF_A_PARENT


class Child(Process):
    """A Process that a warm parent forked."""

    def __init__(self, nursery, frames, report):
        super().__init__(frames)
        self._nursery = nursery
        self._report, self._pidfd, self._status, self._memory = report, None, None, 0
        try:
            confined = False
            while self._pidfd is None or not confined:
                confined = "confined" in self._reported(process.SECONDS_TO_START) or confined
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


class _Parent:
    """A warm parent: the program `sandbox.nursery`, and the socket on which it is asked for children."""

    def __init__(self, tier):
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(process.SECONDS_TO_START)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (it is open for as long as the parent is)
        with theirs:
            self._process = subprocess.Popen(
                _command(tier),
                stdin=theirs,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                env=process.ENVIRONMENT,
                cwd="/",
                start_new_session=True,
            )

    def fork(self, late):
        """Ask for a child; returns the sockets of its frames and of its reports."""
        frames, theirs = socket.socketpair()
        report, reported = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, reported:
            socket.send_fds(self._control, [json.dumps(list(late)).encode()], [theirs.fileno(), reported.fileno()])
        return frames, report

    def hang_up(self):
        """Ask for no more children; it ends when the last one has."""
        self._control.close()

    def lives(self):
        """Whether it, or one of its children, still runs."""
        return self._process.poll() is None

    def end(self):
        """Kill it, and with it its children."""
        self._control.close()
        self._process.kill()
        self._process.wait()
        self._errors.close()

    def log(self):
        """The end of what it wrote about errors of its own."""
        self._errors.seek(0)
        return self._errors.read()[-2000:].decode(errors="replace")


def _command(tier):
    if tier != NAMESPACES:
        return command("sandbox.nursery", tier, [*_readable(), SANDBOX])
    program = shutil.which("bwrap")
    if program is None:
        raise InfrastructureError("bubblewrap is not installed")
    # root needs no user namespace for this, and changes to a user that owns nothing before it imports anything
    user = (
        ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if os.getuid() == 0 else ["--unshare-user", "--uid", "1000", "--gid", "1000"]
    )
    packages = {path: f"/packages/{number}" for number, path in enumerate(PACKAGES)}  # not where they are: that may be below /tmp
    binds = [(path, _moved(path, packages)) for path in _readable() if not path.endswith("/")] + [(SANDBOX, _INSIDE)]
    folders = sorted({folder for _, path in binds for folder in _above(path)} | {"/dev"})
    words = [
        program, "--unshare-pid", "--unshare-ipc", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try", "--cap-drop", "ALL", *user,
        "--new-session", "--die-with-parent",
        *(word for folder in folders for word in ("--perms", "0755", "--dir", folder)),
        *(word for source, path in binds for word in ("--ro-bind", source, path)),
        *(word for device in ("/dev/null", "/dev/urandom") for word in ("--dev-bind", device, device)),
        "--perms", "1777", "--size", str(confine.SCRATCH), "--tmpfs", "/tmp", "--proc", "/proc", "--remount-ro", "/", "--chdir", "/", "--",
    ]  # fmt: skip
    return [*words, *command("sandbox.nursery", tier, [], sandbox=_INSIDE, packages=list(packages.values()))]


def _moved(path, folders):
    """The path, where it lies below one of these folders, below its new name."""
    for old, new in folders.items():
        if path == old or path.startswith(old + "/"):
            return new + path[len(old) :]
    return path


def _readable():
    """The paths of the interpreter and of its packages, without this project where it is installed among them.

    A folder that ends in "/" is to be listed, and not read as a whole.
    """
    folders = [*(os.path.join(prefix, name) for prefix in (sys.base_prefix, "/usr", "/") for name in ("lib", "lib64")), *PACKAGES]
    paths = [*folders, process.INTERPRETER, "/etc/ld.so.cache", "/sys/devices/system/cpu"]
    hidden = {os.path.join(_PROJECT, name) for name in ("autograder", "solutions", "utils")} if _PROJECT in PACKAGES else {_PROJECT}
    return [each for path in dict.fromkeys(paths) if os.path.exists(path) for each in _without(path, hidden)]


def _without(path, hidden):
    """The paths that hold what lies below a path, but for the hidden ones."""
    if path in hidden:
        return []
    if not any(each.startswith(path + "/") for each in hidden):
        return [path]
    inside = sorted(os.path.join(path, name) for name in os.listdir(path))
    return [path + "/", *(each for entry in inside for each in _without(entry, hidden))]


def _above(path):
    """The folders above a path, the outermost first."""
    parent = os.path.dirname(path)
    return [] if parent == "/" else [*_above(parent), parent]
