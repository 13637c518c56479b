"""The programs of the sandbox, and the warm parent among them: how they are started, and what of the machine they see.

Imports no torch: the parent, which takes a second to import it, can start before whoever asks it for children has done so.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
from multiprocessing import reduction

from autograder.sandbox import confine
from autograder.sandbox.confine import NAMESPACES, TIERS

SECONDS_TO_START = 60
_INSIDE = "/sandbox"  # where the folder of that name lies in the tier namespaces
SANDBOX = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sandbox")
PACKAGES = sorted({sysconfig.get_paths()[kind] for kind in ("purelib", "platlib")})
_PROJECT = os.path.dirname(os.path.dirname(SANDBOX))
INTERPRETER = os.path.realpath(sys.executable)
ENVIRONMENT = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    "CUDA_VISIBLE_DEVICES": "", "HOME": "/tmp", "TMPDIR": "/tmp",
}  # fmt: skip
_BOOT = """
import gc, importlib.util, sys
gc.disable()  # a tenth of the time that torch takes to import
sys.path += {packages!r}
spec = importlib.util.spec_from_file_location("sandbox", {init!r})
sys.modules["sandbox"] = package = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
import {module}
gc.enable()
{module}.serve{arguments!r}
"""


def command(module, *arguments, sandbox=SANDBOX, packages=PACKAGES):
    """The command that calls `serve` of a module of the sandbox. sandbox, packages: where these folders lie for the command"""
    boot = _BOOT.format(packages=packages, init=os.path.join(sandbox, "__init__.py"), module=module, arguments=arguments)
    # -I -S: no environment, no working folder and no .pth files, so of this project only `sandbox` can be found
    return [INTERPRETER, "-I", "-S", "-c", boot]


class InfrastructureError(Exception):
    """The process could not be started, or was lost: the machine's fault, not the answer's."""


class Parent:
    """A warm parent that another process has started, and the socket on which this one asks it for children too.

    It can be sent to other processes of this machine, as an argument of what they are to do.
    """

    def __init__(self, tier, control):
        self.tier, self._control = tier, control
        control.settimeout(SECONDS_TO_START)

    def __reduce__(self):
        return _received, (self.tier, reduction.DupFd(self._control.fileno()))

    def fork(self, late):
        """Ask for a child; returns the sockets of its frames and of its reports."""
        frames, theirs = socket.socketpair()
        report, reported = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, reported:
            socket.send_fds(self._control, [json.dumps(list(late)).encode()], [theirs.fileno(), reported.fileno()])
        return frames, report

    def hang_up(self):
        """Ask for no more children; it ends when nobody asks any more, and the last one has ended."""
        self._control.close()

    end = hang_up

    def lives(self):
        """Whether it, or one of its children, still runs, and is for this process to end."""
        return False


def _received(tier, control):
    return Parent(tier, socket.socket(fileno=control.detach()))


class OwnParent(Parent):
    """A warm parent of this process: the program `sandbox.nursery`, which starts at once. Raises InfrastructureError."""

    def __init__(self, tier):
        program = _command(tier)
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        super().__init__(tier, control)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (it is open for as long as the parent is)
        with theirs:
            self._process = subprocess.Popen(
                program,
                stdin=theirs,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                env=ENVIRONMENT,
                cwd="/",
                start_new_session=True,
            )

    def lives(self):
        """See Parent."""
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


def likely_parent(wanted):
    """A warm parent of the tier that was asked for, or of the strongest, before anyone knows that it works; None where it can't be.

    It imports torch while those who will share it do the same.
    """
    try:
        return OwnParent(wanted or TIERS[0]) if wanted in ("", *TIERS) else None
    except InfrastructureError:
        return None


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
    paths = [*folders, INTERPRETER, "/etc/ld.so.cache", "/sys/devices/system/cpu"]
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
