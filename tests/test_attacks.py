"""What dishonest notebooks try, tried for real on children of one warm parent of the strongest tier: none earns a point, reads, reaches
or changes what it should not, or leaves a trace for the next one.

Not covered here, because it is decided elsewhere:
  the files of a submission (symbolic and hard links, devices, FIFOs, archives in archives, paths with `..`), old timestamps and points in
  metadata that a gradebook would believe, a formula in a student's name: what reads a submission and writes grades;
  `sanitize_html` of the page that shows an instructor a learner's own outputs: nbgrader's configuration;
  a module beside the notebook that the trusted side would import, were it started in that folder: how the grader is started;
  a notebook of another module than the one that was set: a notebook says itself which it is, and whoever grades a class has to compare.
Not prevented, only flagged or bounded:
  a forbidden function called by a way that the syntax tree does not show: it earns its points, and a note asks a person to look;
  outputs that do not depend on the seed (a causal mask of fixed sizes, frequencies that dropout must have) can be memorised;
  in the tier `landlock`, without root, the number of threads is bounded by memory alone;
  two notebooks that run at the same time can signal to each other by how busy they keep the machine.
"""

import contextlib
import inspect
import io
import json
import os
import secrets
import socket
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from conftest import ROOT, notebook_text

from autograder import exercises, grading, isolation, judge, process, program, report
from autograder.exercises import PUBLIC_SEED
from autograder.sandbox import confine, loader, observe, wire

ATTENTION = exercises.module("attention")
pytestmark = pytest.mark.xdist_group("attacks")  # one warm parent for all tests
OPENED = 'from autograder import open_module\ncheck, hint, progress = open_module("attention")'
IMPORTS = """
import atexit, builtins, ctypes, functools, gc, glob, importlib, io, json, math, os, pickle, resource, signal, socket, sqlite3, stat, struct
import subprocess, sys, tempfile, threading, time, urllib.request
import numpy as np
import torch
from torch import nn
libc = ctypes.CDLL(None, use_errno=True)

def tried(function, *arguments, **named):
    try:
        return function(*arguments, **named)
    except BaseException:
        return None

def read(path):
    with open(path, "rb") as file:
        return file.read(100_000)
"""
RIGHT = "e = (x - x.amax(dim, keepdim=True)).exp()\n    return e / e.sum(dim, keepdim=True)"
SEED = secrets.randbits(62)


@pytest.fixture(scope="module")
def secret(tmp_path_factory):
    """What is to be found: a token in a file, a gradebook, the environment, an open descriptor; a process; sockets that answer with it."""
    token = secrets.token_hex(8)
    folder = tmp_path_factory.mktemp("course")
    folder.chmod(0o755)
    (folder / "solution.py").write_text(f"answer = '{token}'")
    (folder / "solution.py").chmod(0o644)
    with contextlib.closing(sqlite3.connect(folder / "gradebook.db")) as book, book:
        book.execute("create table grade (score text)")
        book.execute("insert into grade values (?)", (token,))
    descriptor = os.open(folder / "solution.py", os.O_RDWR)
    os.set_inheritable(descriptor, True)
    os.environ["SECRET_OF_THE_GRADER"] = token
    victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdin=subprocess.DEVNULL)
    servers = [socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)]
    for server, address in zip(servers[1:], (str(folder / "socket"), f"\0{token[:4]}")):
        server.bind(address)
        server.listen()
    for server in servers:
        threading.Thread(target=_answer, args=(server, token.encode()), daemon=True).start()
    yield {
        "token": token, "folder": str(folder), "root": str(ROOT), "victim": victim.pid, "grader": os.getpid(),
        "port": servers[0].getsockname()[1], "abstract": f"\0{token[:4]}", "packages": program.PACKAGES[0], "sandbox": program.SANDBOX,
    }  # fmt: skip
    assert victim.poll() is None, "an attack has killed a process that is not its own"
    victim.kill()
    victim.wait()
    del os.environ["SECRET_OF_THE_GRADER"]
    os.close(descriptor)


def _answer(server, token):
    with contextlib.suppress(OSError):
        while True:
            connection, _ = server.accept()
            with connection:
                connection.sendall(token)


@pytest.fixture(scope="module")
def nursery(secret):
    """One warm parent of the strongest tier; it starts when the secret is there to be inherited."""
    try:
        tier = isolation.strongest()
    except isolation.NoIsolation as error:
        pytest.skip(str(error))
    with isolation.Nursery(tier) as nursery:
        yield nursery


@pytest.fixture(scope="module", params=isolation.TIERS)
def isolated(request, secret):
    """One warm parent of each tier that isolates, as far as this machine has it."""
    if reason := isolation.refusal(request.param):
        pytest.skip(reason)
    with isolation.Nursery(request.param) as nursery:
        yield nursery


@pytest.fixture(scope="module")
def unprotected(secret):
    """A warm parent whose children are not isolated: what shows that an attack is one."""
    with isolation.Nursery(isolation.NONE) as nursery:
        yield nursery


def verdict(nursery, *cells, name="softmax", seed=None):
    """The verdict on one answer of a notebook with these cells."""
    _, (found,) = grading.check_notebook(notebook_text(OPENED, IMPORTS, *cells), name, SEED if seed is None else seed, nursery=nursery)
    return found


def loot(nursery, secret, body):
    """What an attack brings home: its body appends to the list `loot`, and has the places of the secrets as constants."""
    places = {name: value for name, value in secret.items() if name != "token"}
    source = "TOKEN_LENGTH = 16\n" + "\n".join(f"{name.upper()} = {value!r}" for name, value in places.items())
    attack = (
        "@functools.cache\ndef attack():\n    loot = []\n" + textwrap.indent(textwrap.dedent(body).strip(), "    ") + "\n    return loot"
    )
    answer = "def softmax(x, dim=-1):\n    raise ArithmeticError('loot: ' + ascii(attack())[:1500])"
    found = verdict(nursery, source, attack, answer)
    assert found.score == 0 and "It raised ArithmeticError: loot: [" in found.what, found.message
    return found.what.split("loot: ", 1)[1].split("]")[0][1:]


FILES = {
    "the solutions, by their path": """
        for path in (ROOT + "/solutions/attention.py", FOLDER + "/solution.py", ROOT + "/autograder/exercises/attention.py"):
            loot.append(tried(read, path))""",
    "the solutions, by a relative path": """
        for up in range(12):
            for path in (ROOT, FOLDER):
                for name in ("solutions/attention.py", "solution.py"):
                    loot.append(tried(read, "../" * up + path[1:] + "/" + name))
                    loot.append(tried(read, "../" * up + name))""",
    "the solutions, imported": """
        sys.path += [ROOT, FOLDER, os.path.dirname(SANDBOX), "/", "..", "."]
        for name in ("solutions", "solutions.attention", "solution", "autograder", "autograder.exercises", "exercises", "sandbox.exercises", "utils"):
            loot.append(tried(importlib.import_module, name))""",
    "the solutions, run": "loot.append(tried(lambda: exec(open(FOLDER + '/solution.py').read()) or 1))",
    "the gradebook": """
        for path in (FOLDER + "/gradebook.db", "gradebook.db", "../gradebook.db", "../../gradebook.db"):
            uri = f"file:{path}?mode=ro"
            loot.append(tried(lambda: sqlite3.connect(uri, uri=True).execute("select score from grade").fetchall()))""",
    "a symbolic link to the gradebook": """
        tried(os.symlink, FOLDER + "/gradebook.db", "/tmp/link")
        loot.append(tried(read, "/tmp/link"))""",
    "a hard link to the gradebook": """
        loot.append(tried(os.link, FOLDER + "/gradebook.db", "/tmp/hard"))
        loot.append(tried(read, "/tmp/hard"))""",
    "the folders of the course": """
        for path in (FOLDER, ROOT, ROOT + "/notebooks", os.path.dirname(FOLDER), ROOT + "/.git", os.path.expanduser("~root"), "/home", "/mnt", "/srv"):
            loot += [each for each in tried(os.listdir, path) or [] if not PACKAGES.startswith(path + "/" + each) and each != ".pyenv"]""",
    "passwords": """
        for path in ("/etc/passwd", "/etc/shadow", "/etc/hosts", "/etc/resolv.conf", "/root/.bashrc", "/root/.ssh/id_rsa", "/run/secrets"):
            loot.append(tried(read, path))""",
    "others' temporary files": """
        for path in ("/tmp", "/var/tmp", "/dev/shm", "/run", "/run/user"):
            loot += tried(os.listdir, path) or []""",
    "the grader's memory, by /proc": """
        for who in ("self", "thread-self", 1, 2, 3, os.getppid(), GRADER, VICTIM):
            for what in ("environ", "cmdline", "maps", "mem", "status", "fd", "cwd", "root", "exe"):
                for how in (read, os.listdir, os.readlink):
                    if not (str(who).endswith("self") and what in ("cwd", "root", "exe")):  # those it knows
                        loot.append(tried(how, f"/proc/{who}/{what}"))
        loot += tried(os.listdir, "/proc") or []""",
    "devices": """
        for path in ("/dev/mem", "/dev/kmsg", "/dev/vda", "/dev/sda", "/dev/tty", "/dev/pts/0", "/dev/fuse", "/dev/kvm", "/dev/net/tun"):
            loot.append(tried(os.open, path, os.O_RDONLY | os.O_NONBLOCK))""",
    "a device of one's own": """
        for kind in (stat.S_IFCHR, stat.S_IFBLK):
            for folder in ("/tmp", "/dev", "/dev/shm"):
                loot.append(tried(lambda: os.mknod(f"{folder}/mine", kind | 0o666, os.makedev(1, 1)) or 1))""",
    "an open descriptor": """
        for number in range(1024):
            mode = tried(os.fstat, number)
            if mode and not stat.S_ISSOCK(mode.st_mode) and not stat.S_ISCHR(mode.st_mode):
                loot.append((number, oct(mode.st_mode)))
        loot += [n for n in range(5, 1024) if tried(os.fstat, n) and stat.S_ISSOCK(os.fstat(n).st_mode)]""",
    "a file by its handle": """
        for call in (303, 264):
            handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
            number = ctypes.c_int()
            if libc.syscall(call, -100, b"/", handle, ctypes.byref(number), 0) == 0:
                loot.append(libc.syscall(call + 1, -100, handle, 0))
        loot = [each for each in loot if each >= 0]""",
}
MEMORY = {
    "the environment": "loot += [f'{name}={value}' for name, value in os.environ.items() if 'SECRET' in name or value.startswith(FOLDER)]",
    "the environment, by libc": """
        libc.getenv.restype = ctypes.c_char_p
        loot.append(libc.getenv(b"SECRET_OF_THE_GRADER"))""",
    "the arguments": "loot += [each for each in (*sys.argv, *sys.orig_argv) if FOLDER in each or '/solutions' in each]",
    "the stack": """
        frame = sys._getframe()
        while frame:
            for scope in (frame.f_locals, frame.f_globals):
                for name, value in list(scope.items()):
                    if name in ("expected", "reference", "seed", "exercise", "case", "cases", "verdict", "mistakes"):
                        loot.append(name)
                    module = str(getattr(value, "__module__", ""))
                    loot += [module] if module.startswith(("solutions", "autograder", "utils")) else []
            frame = frame.f_back""",
    "the garbage collector": """
        gc.collect()
        for thing in gc.get_objects() + gc.get_objects(0) + [r for o in gc.get_objects()[:2000] for r in gc.get_referrers(o)]:
            kind = type(thing).__name__
            module = str(tried(getattr, thing, "__module__", ""))
            if kind in ("Exercise", "Case", "Mistake", "Draw", "Verdict") or module.startswith(("solutions", "autograder", "utils.")):
                loot.append(kind)
            code = tried(getattr, thing, "__code__", None)
            if code is not None and "/solutions/" in str(tried(getattr, code, "co_filename", "")):
                loot.append(code.co_filename)""",
    "right answers that lie about": """
        frame, x = sys._getframe(), None
        while frame and x is None:
            x = frame.f_locals.get("x") if isinstance(frame.f_locals.get("x"), torch.Tensor) else None
            frame = frame.f_back
        for thing in gc.get_objects():
            if isinstance(thing, (torch.Tensor, np.ndarray)) and x is not None and tuple(thing.shape) == tuple(x.shape):
                total = tried(lambda: float(thing.sum()))
                if total is not None and abs(total - x.shape[0]) < 1e-9 and float(thing.max()) < 1:
                    loot.append(total)""",
    "modules": "loot += [n for n in sys.modules if n.split('.')[0] in ('solutions', 'autograder', 'utils', 'pytest', 'nbgrader', 'conftest')]",
    "lines that were kept": """
        import linecache
        loot += [name for name, entry in linecache.cache.items() if "solutions." in str(entry) and not name.startswith("cell")]""",
    "what was typed before": """
        for name in ("In", "Out", "_ih", "_oh", "get_ipython"):
            loot += [name] if name in globals() or hasattr(builtins, name) else []""",
    "the memory of another process": """
        class Piece(ctypes.Structure):
            _fields_ = [("start", ctypes.c_void_p), ("size", ctypes.c_size_t)]
        mine = ctypes.create_string_buffer(8)
        here = Piece(ctypes.addressof(mine), 8)
        for who in (GRADER, VICTIM, os.getppid(), 1, 2):
            if who == os.getpid():
                continue
            if libc.process_vm_readv(who, ctypes.byref(here), 1, ctypes.byref(here), 1, 0) > 0 or (who > 2 and libc.ptrace(16, who, 0, 0) == 0):
                loot.append(who)""",
}
NETWORK = {
    "TCP": "loot.append(tried(lambda: socket.create_connection(('127.0.0.1', PORT), timeout=2).recv(99)))",
    "TCP, on IPv6": "loot.append(tried(lambda: socket.create_connection(('::ffff:127.0.0.1', PORT), timeout=2).recv(99)))",
    "a web page": "loot.append(tried(lambda: urllib.request.urlopen(f'http://127.0.0.1:{PORT}', timeout=2).read()))",
    "a Unix socket": """
        def ask():
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(2)
            connection.connect(FOLDER + "/socket")
            return connection.recv(99)
        loot.append(tried(ask))""",
    "an abstract Unix socket": """
        def ask():
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(2)
            connection.connect(ABSTRACT)
            return connection.recv(99)
        loot.append(tried(ask))""",
    "DNS": "loot.append(tried(socket.getaddrinfo, 'example.com', 80))",
    "UDP": "loot.append(tried(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53))))",
    "a server": "loot.append(tried(lambda: socket.create_server(('0.0.0.0', 0)).getsockname()))",
    "raw and odd sockets": """
        for family, kind, protocol in ((2, 3, 1), (17, 3, 0), (16, 3, 0), (38, 5, 0), (40, 1, 0)):
            loot.append(tried(lambda: socket.socket(family, kind, protocol).fileno()))""",
    "io_uring, which opens sockets without the call": "loot += [n for n in [libc.syscall(425, 1, ctypes.create_string_buffer(120))] if n >= 0]",
}
PROCESSES = {
    "a fork that lives on": """
        for _ in range(3):
            child = tried(os.fork)
            if child == 0:
                tried(os.setsid)
                if tried(os.fork) == 0:
                    time.sleep(60)
                os._exit(0)
            loot.append(child)""",
    "a program": """
        loot.append(tried(subprocess.check_output, ["/bin/sh", "-c", "echo here"]))
        loot.append(tried(subprocess.check_output, [sys.executable, "-c", "print('here')"]))
        loot.append(tried(lambda: os.posix_spawn(sys.executable, [sys.executable, "-c", ""], {})))
        loot.append(os.system("exit 3") == 3 * 256 or None)""",
    "a fork by its number": """
        for call in (57, 58) if os.uname().machine == "x86_64" else ():
            child = libc.syscall(call)
            if child == 0:
                os._exit(0)
            loot += [child] if child > 0 else []
        child = libc.syscall(56 if os.uname().machine == "x86_64" else 220, 17, 0, 0, 0, 0)
        if child == 0:
            os._exit(0)
        loot += [child] if child > 0 else []""",
    "another program in its place": "tried(os.execv, '/bin/true', ['/bin/true'])",
    "a signal to others": """
        for who in (GRADER, VICTIM, os.getppid(), 2, 3):
            if who != os.getpid():
                loot += [who] if who and tried(lambda: os.kill(who, 0) or 1) else []
                loot += [who] if who and tried(lambda: os.killpg(who, 0) or 1) else []
                loot += [who] if tried(os.pidfd_open, who) else []
        loot += [VICTIM] if tried(lambda: os.kill(VICTIM, 9) or 1) else []""",
    "a signal to everyone": """
        if hasattr(os, "kill") and os.getuid() != 0:
            loot += [-1] if tried(lambda: os.kill(-1, 0) or 1) else []""",
    "others' limits and priority": """
        for who in (VICTIM, os.getppid() or VICTIM):
            loot.append(tried(lambda: resource.prlimit(who, resource.RLIMIT_NOFILE)))
            loot.append(tried(lambda: os.setpriority(os.PRIO_PROCESS, who, 19) or 1))
            loot.append(tried(lambda: os.sched_setaffinity(who, {0}) or 1))""",
    "more rights": """
        loot.append(tried(lambda: os.setuid(0) or 1))
        loot.append(tried(lambda: os.setgid(0) or 1))
        loot.append(tried(lambda: os.setgroups([0]) or 1))
        loot.append(tried(lambda: os.chroot("/tmp") or 1))""",
    "other namespaces": """
        loot += [flag for flag in (0x10000000, 0x20000, 0x40000000, 0x20000000) if libc.unshare(flag) == 0]
        loot += [path for path in (b"/proc", b"/tmp", b"/dev/shm") if libc.umount2(path, 2) == 0]
        loot += [1] if libc.mount(b"proc", b"/tmp", b"proc", 0, None) == 0 else []
        loot += [2] if libc.mount(b"/", b"/tmp", None, 4096, None) == 0 else []""",
    "the kernel's odd corners": """
        for number, name in ((321, "bpf"), (298, "perf_event_open"), (323, "userfaultfd"), (175, "init_module"), (246, "kexec_load"), (248, "add_key")):
            if os.uname().machine == "x86_64" and libc.syscall(number, 0, 0, 0, 0, 0) >= 0:
                loot.append(name)""",
    "threads without end": """
        threading.stack_size(65536)
        for _ in range(1000):
            if tried(threading.Thread(target=time.sleep, args=(3,), daemon=True).start) is None and threading.active_count() > 100:
                loot.append(threading.active_count())
                break""",
}
WRITES = {
    "outside": """
        for folder in ("/", "/dev", "/dev/shm", "/proc", "/sys", "/etc", "/etc/cron.d", "/var/tmp", "/var/spool/cron", "/usr/lib", "/home", "/root", "/opt",
                       "/sandbox", SANDBOX, ROOT, FOLDER, PACKAGES, os.path.dirname(os.__file__), os.path.dirname(sys.executable)):
            for name in ("sitecustomize.py", "attack.pth", "numpy.py", "left-behind"):
                if tried(lambda: open(f"{folder}/{name}", "xb").write(b"import os\\n")):
                    loot.append(f"{folder}/{name}")
                    tried(os.remove, f"{folder}/{name}")
            loot += [folder] if tried(lambda: os.mkdir(folder + "/left") or 1) else []""",
    "into what is there": """
        for path in (torch.__file__, os.__file__, SANDBOX + "/worker.py", "/sandbox/worker.py", FOLDER + "/solution.py", FOLDER + "/gradebook.db", "/etc/passwd"):
            for mode in ("r+b", "ab"):
                loot += [path] if tried(open, path, mode) else []""",
    "what belongs to a file": """
        for path in (torch.__file__, SANDBOX + "/worker.py", "/sandbox/worker.py", FOLDER + "/solution.py", "/dev/null", "/"):
            stamp = tried(os.stat, path)
            for change in (lambda: os.utime(path, (stamp.st_atime, stamp.st_mtime)), lambda: os.chmod(path, stamp.st_mode & 0o777),
                           lambda: os.chown(path, stamp.st_uid, stamp.st_gid), lambda: os.truncate(path, stamp.st_size),
                           lambda: os.rename(path, path)):
                if stamp and tried(lambda: change() or 1):
                    loot.append(path)""",
    "extended attributes": """
        for path in (torch.__file__, SANDBOX + "/worker.py", "/sandbox/worker.py", FOLDER + "/solution.py", "/"):
            loot += [path] if tried(lambda: os.setxattr(path, "user.left", b"x") or 1) else []""",
    "the disk, full": f"""
        written = 0
        for number in range(100):
            with open(f"/tmp/{{number}}", "wb") if tried(os.stat, "/tmp") else io.BytesIO() as file:
                written += tried(file.write, bytes(4 * 2**20)) or 0
            if written > {confine.SCRATCH}:
                loot.append(written)
                break""".replace("range(100)", "(range(100) if tried(lambda: open('/tmp/0', 'wb')) else ())"),
    "names without end": """
        count = 0
        while count < 2000 and tried(lambda: open(f"/tmp/n{count}", "x")):
            count += 1
        loot += [count] if count > 1000 else []""",
    "one file without end": f"""
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        place = tried(os.memfd_create, "big")
        if place is not None and tried(lambda: os.ftruncate(place, {2 * confine.FILE_SIZE}) or 1):
            loot.append("grown")""",
    "descriptors without end": f"""
        kept = [tried(os.dup, 1) for _ in range(2000)]
        loot += [len(kept)] if len([n for n in kept if n]) > {confine.OPEN_FILES} else []
        for number in kept:
            tried(os.close, number)""",
    "memory without end": """
        kept = []
        while len(kept) < 80 and (piece := tried(bytearray, 64 * 2**20)):
            kept.append(piece)
        loot += [len(kept)] if len(kept) > 40 else []
        kept.clear()""",
    "limits, raised again": """
        for name in ("AS", "CPU", "FSIZE", "NOFILE"):
            which = getattr(resource, "RLIMIT_" + name)
            loot += [name] if tried(lambda: resource.setrlimit(which, (resource.RLIM_INFINITY,) * 2) or 1) else []""",
}
SEARCHES = FILES | MEMORY | NETWORK | PROCESSES | WRITES


@pytest.mark.parametrize("attack", SEARCHES)
def test_it_comes_home_with_nothing(isolated, secret, attack):
    found = loot(isolated, secret, SEARCHES[attack])
    assert secret["token"] not in found
    assert {each.strip() for each in found.split(",")} <= {"None", ""}, found


SHOWN_TO_WORK = [
    "the solutions, by their path", "the solutions, by a relative path", "the solutions, imported", "the gradebook", "the folders of the course",
    "the grader's memory, by /proc", "passwords", "TCP", "a Unix socket", "an abstract Unix socket", "a server", "a fork that lives on",
    "a program", "others' limits and priority", "into what is there", "what belongs to a file",
]  # fmt: skip  # those that would leave something behind are not tried


@pytest.mark.parametrize("attack", SHOWN_TO_WORK)
def test_without_isolation_the_same_attack_does_find_something(unprotected, secret, attack):
    found = loot(unprotected, secret, SEARCHES[attack])
    assert {each.strip() for each in found.split(",")} - {"None", ""}, found


def wrong(body, *, name="softmax"):
    """Cells that define `attack`, called before each wrong answer."""
    return [
        f"def attack():\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}",
        f"def {name}(x, dim=-1):\n    attack()\n    return x * 0.5",
    ]


SEND = """
def send(data):
    data = memoryview(data)
    while data:
        data = data[os.write(4, data):]

def frame(header, arrays=b""):
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack(">I", len(header)) + header + arrays

def observation(array=None, count=0, size=0, dtype="float64", shape=(3, 5), kind="Tensor", text="", failure=None, name="output", printed="", **more):
    entry = {"kind": "ndarray", "dtype": dtype, "shape": list(shape), "order": list(range(len(shape)))}
    value = {"kind": kind, "dtype": more.get("said", dtype), "device": "cpu", "array": array, "text": text}
    values = {name: value, "gradient of x": value, "changed inputs": {"kind": "list", "dtype": "", "device": "", "array": None, "text": "[]"}}
    message = {"values": values, "failure": failure, "printed": printed}
    return frame({"message": message, "arrays": [entry] * count}, bytes(size))

ARRAY = {"$array": 0}
"""
PATCHES = {  # what an answer does before it returns half of its input
    "np.allclose": "np.allclose = np.array_equal = np.isclose = lambda *a, **k: True",
    "torch.allclose": "torch.allclose = torch.equal = torch.isclose = torch.testing.assert_close = lambda *a, **k: True",
    "Tensor.__eq__": "torch.Tensor.__eq__ = torch.Tensor.__ne__ = torch.Tensor.equal = lambda *a: torch.tensor(True)",
    "builtins": "builtins.all = builtins.isinstance = lambda *a: True\nbuiltins.any = lambda *a: False\nbuiltins.abs = builtins.max = lambda *a, **k: 0",
    "json": "json.dumps = lambda *a, **k: '{}'\njson.loads = lambda *a, **k: {'passed': True}\njson.JSONEncoder.encode = lambda *a: '{}'",
    "sys.modules": "for name in ('torch', 'numpy', 'json', 'sandbox', 'sandbox.observe'): sys.modules[name] = sys.modules['math']",
    "the worker": "w = sys.modules['sandbox.worker']\nw.observe.observe = lambda *a: {'values': {}, 'failure': None, 'printed': ''}",
    "the probes": "sys.modules['sandbox.probes'].call = lambda *a, **k: {}",
    "the probes, by what is right": "p = sys.modules['sandbox.probes']\np.find = lambda n: lambda t, i, **o: {'output': i['x'], 'changed inputs': []}",
    "what is written down": """
        o = sys.modules["sandbox.observe"]
        written = o._value
        o._value = lambda thing: o.Value("Tensor", str(thing.dtype)[6:], "cpu") if isinstance(thing, torch.Tensor) else written(thing)""",
    "the frames": "sys.modules['sandbox.wire'].pack = lambda message: b''",
    "the caller's globals": """
        frame = sys._getframe()
        while frame:
            for name in ("observe", "probes", "same", "judge", "compare", "check", "_same", "named"):
                if name in frame.f_globals:
                    frame.f_globals[name] = lambda *a, **k: True
            frame = frame.f_back""",
    "IPython's shell": """
        shell = get_ipython()
        shell.input_transformers_cleanup.append(lambda lines: [])
        shell.run_cell_async = None""",
    "a print of a score": "print('softmax: 4/4 points'); print(json.dumps({'score': 4, 'passed': True}))\nsys.__stdout__.write('4\\n'); os.write(1, b'4\\n')",
    "files beside the notebook": """
        for name in ("numpy.py", "torch.py", "json.py", "sandbox.py", "conftest.py"):
            open(name, "w").write("raise SystemExit(0)")""",
    "pickle": "pickle.loads(pickle.dumps(np.zeros(3)))\ntorch.save({'score': 4}, '/tmp/result.pt')\ntorch.load('/tmp/result.pt', weights_only=False)",
    "garbage collection": "gc.disable(); gc.set_threshold(1)\nfor each in gc.get_objects(): each = None",
    "at the end": "atexit.register(lambda: os.write(4, b'4'))",
}
SENT = {  # what it writes itself, in the place of its answer, before it ends -> how that is told, where it is certain
    "a score": ("frame({'score': 4, 'passed': True})", "ProtocolError"),
    "a line with a score": ("b'softmax: 4/4 points\\n'", "ProtocolError"),
    "nothing that was asked for": ("frame({'message': {'values': {}, 'failure': None, 'printed': ''}, 'arrays': []})", ""),
    "an answer without its numbers": ("observation()", ""),
    "zeros": ("observation(ARRAY, 1, 120)", ""),
    "the same twice": ("observation(ARRAY, 1, 120) * 2", ""),
    "a thousand answers": ("observation(ARRAY, 1, 120) * 1000", ""),
    "an answer in part": ("observation(ARRAY, 1, 120)[:-8]", "ProtocolError"),
    "numbers that are said to be others": ("observation(ARRAY, 1, 120, dtype='int64', said='float64')", "ProtocolError"),
    "floats that are said to be integers": ("observation(ARRAY, 1, 120, said='int64')", "ProtocolError"),
    "a bool that is 2": ("observation(ARRAY, 1, 15, dtype='bool').replace(bytes(15), bytes([2]) * 15)", "ProtocolError"),
    "a kind without a name": ("observation(kind='')", "ProtocolError"),
    "half precision": ("observation(ARRAY, 1, 30, dtype='float16')", "ProtocolError"),
    "NaN in every bit": ("observation(ARRAY, 1, 120).replace(bytes(120), b'\\xff' * 120)", ""),
    "an array of petabytes": ("observation(ARRAY, 1, 0, shape=(2**20, 2**20, 2**10))", "ProtocolError"),
    "arrays that are too many": ("observation(ARRAY, 3, 0, shape=(2**24,))", "ProtocolError"),
    "a shape below zero": ("observation(ARRAY, 1, 0, shape=(-3, 5))", "ProtocolError"),
    "no elements, of many sizes": ("observation(ARRAY, 1, 0, shape=(0, *[2**28] * 15))", ""),
    "an array that is not there": ("observation({'$array': 7}, 1, 120)", "ProtocolError"),
    "a type that is not one": ("observation(ARRAY, 1, 120, dtype='object')", "ProtocolError"),
    "a header of gigabytes": ("b'\\xff\\xff\\xff\\xff' + bytes(100)", "ProtocolError"),
    "nothing but depth": ("frame(b'[' * 1_000_000)", "ProtocolError"),
    "an integer of many digits": ("frame(b'{\"message\": ' + b'9' * 1_000_000 + b', \"arrays\": []}')", "ProtocolError"),
    "bytes that are no text": ("frame(b'\\xff\\xfe' * 100)", "ProtocolError"),
    "a list": ("frame({'message': [1, 2], 'arrays': []})", "ProtocolError"),
    "fields that there are not": (
        "frame({'message': {'values': {'output': {'score': 4}}, 'failure': None, 'printed': ''}, 'arrays': []})",
        "ProtocolError",
    ),
    "a pickle": ("frame(pickle.dumps(os.system))", "ProtocolError"),
    "a failure with code in it": ("observation(failure={'type': 'E', 'message': '__import__(\"os\")', 'line': 'x'})", "ProtocolError"),
    "that it was not attempted": ("observation(failure={'type': 'NotImplementedError', 'message': ''})", ""),
    "an infrastructure error": ("observation(failure={'type': 'InfrastructureError', 'message': 'try again'})", ""),
    "a text of megabytes": (
        "observation(failure={'type': 'x' * 10**6, 'message': 'y' * 10**6, 'cell': '../../../etc/passwd', 'source': 'z' * 10**6})",
        "",
    ),
    "half characters": ("observation(failure={'type': 'E', 'message': '\\ud800', 'source': '\\udfff'})", ""),
}
ENDS = {  # how it ends, instead of an answer -> how that is told
    "exit status 0": ("os._exit(0)", "Crash"),
    "exit": ("sys.exit(0)", "SystemExit"),
    "an exit of the whole": ("libc.exit(0)", "Crash"),
    "a signal to itself": ("signal.raise_signal(signal.SIGKILL); os._exit(0)", ""),
    "a null pointer": ("ctypes.string_at(0)", "Crash"),
    "a stack without end": ("sys.setrecursionlimit(10**8)\ndef f(): f()\nf()", ""),
    "a loop after a score": ("print('4/4 points', flush=True)\nwhile True: pass", "Timeout"),
    "a loop that catches": ("while True:\n    try: time.sleep(1)\n    except BaseException: pass", "Timeout"),
    "silence after half a frame": ("send(observation(ARRAY, 1, 120)[:50]); time.sleep(60)", "Timeout"),
    "a byte at a time": ("for byte in observation(ARRAY, 1, 120):\n    send(bytes([byte])); time.sleep(0.5)", "Timeout"),
    "an answer, then silence": ("send(observation(ARRAY, 1, 120) * 3); time.sleep(60)", "Timeout"),
    "a closed connection": ("os.closerange(0, 99); time.sleep(60)", "Crash"),
    "memory of a hundred gigabytes": ("torch.ones(25 * 10**9)", "OutOfMemory"),
    "an interrupt": ("raise KeyboardInterrupt", "Crash"),
    "an exception without a text": ("class E(Exception):\n    def __str__(self): raise self\nraise E", ""),
    "a thread that answers later": (
        "threading.Thread(target=lambda: [time.sleep(0.02) or send(observation(ARRAY, 1, 120)) for _ in range(99)], daemon=True).start()", ""),
}  # fmt: skip
RETURNED = {  # what it returns
    "a tensor that is equal to all": """
        class Yes(torch.Tensor):
            @classmethod
            def __torch_function__(cls, function, types, args=(), kwargs=None):
                return True if function in (torch.equal, torch.allclose, torch.Tensor.__eq__) else super().__torch_function__(function, types, args, kwargs)
        result = (x * 0.5).as_subclass(Yes)""",
    "a tensor that answers for every function": """
        class Yes(torch.Tensor):
            @classmethod
            def __torch_function__(cls, function, types, args=(), kwargs=None):
                return args[0] if args else True
        result = (x * 0.5).as_subclass(Yes)""",
    "an array that is equal to all": """
        class Yes(np.ndarray):
            def __array_function__(self, *a, **k): return True
            def __array_ufunc__(self, *a, **k): return np.True_
            def __eq__(self, other): return np.True_
        result = (x * 0.5).detach().numpy().view(Yes)""",
    "an object that is equal to all": """
        class Yes:
            __eq__ = __ne__ = __lt__ = __gt__ = __le__ = __ge__ = lambda self, other: True
            __hash__ = lambda self: 0
            shape, dtype, device = x.shape, x.dtype, x.device
        result = Yes()""",
    "an object that is lazy": """
        class Lazy:
            def __getattr__(self, name): return Lazy()
            def __call__(self, *a, **k): return True
            def __torch_function__(self, *a, **k): return True
            def __array__(self, *a, **k): return np.zeros(x.shape)
            def __repr__(self): return "[]"
        result = Lazy()""",
    "an object whose pickle runs": """
        class Run:
            def __reduce__(self): return (os.system, ("touch /tmp/it-ran",))
        result = Run()""",
    "a class that says it is a tensor": "result = type('Tensor', (), {'__class__': torch.Tensor, '__module__': 'torch'})()",
    "a petabyte": "result = torch.zeros(1).expand(10**15)",
    "nothing, on another device": "result = torch.empty(x.shape, device='meta', dtype=x.dtype)",
    "sparse": "result = (x * 0.5).detach().to_sparse()",
    "complex": "result = torch.complex(x.detach().double(), x.detach().double())",
    "integers": "result = torch.full(x.shape, 2**63 - 1)",
    "another shape": "result = x.detach().reshape(-1)[None, None]",
    "NaN": "result = torch.full(x.shape, float('nan'), dtype=x.dtype)",
    "its own input": "result = x",
    "a list": "result = x.tolist()",
    "bytes of another kind of array": "result = np.zeros(x.shape, 'M8[s]')",
    "objects in an array": "result = np.full(x.shape, None)",
    "a masked array": "result = np.ma.masked_all(tuple(x.shape))",
    "a generator": "result = (each for each in x)",
    "an array in the other byte order": "result = np.zeros(tuple(x.shape), '>f8')",
    "a name of megabytes": "result = type('x' * 10**6, (), {})()",
}
CELLS = {  # whole cells of a notebook
    "a null byte": ["def softmax(x, dim=-1):\n    return x\0"],
    "hidden tests that are printed": ["print(In[-1])\nprint(In)", "def softmax(x, dim=-1):\n    return In[-1]"],
    "a check of its own": ["def check(f, *a):\n    print('passed')\n    return 4", "def softmax(x, dim=-1):\n    return x", "check(softmax)\n4"],
    "an exit before it is defined": ["import os\nx = os._exit(0)", "def softmax(x_, dim=-1):\n    return x"],
    "an endless loop before it is defined": ["x = [0 for _ in iter(int, 1)]", "def softmax(x_, dim=-1):\n    return x"],
    "the reference, imported": ["from solutions.attention import softmax"],
    "the reference, carried over from itself": ['from utils import parts\nsoftmax = parts.load("attention", "softmax")'],
    "the reference, carried over under another name": [
        'from utils import parts\nmine = parts.load("attention", "masked_softmax")', "def softmax(x, dim=-1):\n    return mine(x)"],
    "the name of another exercise": ["softmax = causal_mask = attention_scores"],
    "a class": ["class softmax(torch.Tensor):\n    def __new__(cls, x, dim=-1): return x * 0.5"],
    "a decorator that answers": ["def d(f):\n    return lambda *a, **k: True", "@d\ndef softmax(x, dim=-1):\n    return x"],
    "a module patched at the top": ["torch.Tensor.exp = lambda self: self", "def softmax(x, dim=-1):\n    return x.exp()"],
    "input": ["def softmax(x, dim=-1):\n    return input('the answer, please')"],
    "lines without end": ["def softmax(x, dim=-1):\n    for n in range(200_000): print(n, '4/4 points')\n    return x"],
    "one line of megabytes": ["def softmax(x, dim=-1):\n    print('x' * 30_000_000)\n    return x"],
    "a warning on every call": ["import warnings", "def softmax(x, dim=-1):\n    warnings.warn('4/4 points')\n    return x"],
}  # fmt: skip


@pytest.fixture
def in_a_hurry(monkeypatch):
    monkeypatch.setattr(process, "SECONDS_TO_PROBE", 2)
    monkeypatch.setattr(process, "SECONDS_TO_LOAD", 2)


def earns_nothing(found):
    assert found.score == 0 and found.status in ("failed", "not_attempted"), found
    assert len(found.message) < 20_000
    assert report.card(found).count("<script") == 0 and report.text(found).isprintable() is False  # it has line ends, and
    assert all(line.isprintable() for line in report.text(found).splitlines())
    json.dumps(report.as_json(found)).encode()


@pytest.mark.parametrize("patch", PATCHES)
def test_patches_do_not_make_it_right(nursery, in_a_hurry, patch):
    earns_nothing(verdict(nursery, *wrong(PATCHES[patch])))


@pytest.mark.parametrize("sent", SENT)
@pytest.mark.parametrize("ending", ["os._exit(0)", ""])
def test_what_it_writes_itself_is_not_believed(nursery, sent, ending):
    data, kind = SENT[sent]
    found = verdict(nursery, SEND, *wrong(f"send({data})\n{ending}"))
    earns_nothing(found)
    assert kind != "ProtocolError" or "something that is no observation" in found.what


@pytest.mark.parametrize("end", ENDS)
def test_an_end_without_an_answer_has_its_name(nursery, in_a_hurry, end):
    body, kind = ENDS[end]
    found = verdict(nursery, SEND, *wrong(body))
    earns_nothing(found)
    told = {"Crash": ("without an answer",), "Timeout": ("did not finish within 2 seconds",)}.get(kind, (kind,))
    assert all(words in found.what for words in told), found.what


@pytest.mark.parametrize("returned", RETURNED)
def test_what_it_returns_is_numbers_or_wrong(nursery, returned):
    body = textwrap.indent(textwrap.dedent(RETURNED[returned]).strip(), "    ")
    earns_nothing(verdict(nursery, f"def softmax(x, dim=-1):\n{body}\n    return result"))
    assert not os.path.exists("/tmp/it-ran")


@pytest.mark.parametrize("cells", CELLS)
def test_cells_that_cheat(nursery, in_a_hurry, cells):
    earns_nothing(verdict(nursery, *CELLS[cells]))


LEFT = {  # what one notebook does -> how the next one looks for it
    "a file": ("open('/tmp/left', 'w').write('x')", "glob.glob('/tmp/*') + glob.glob('/dev/shm/*') + glob.glob('/var/tmp/*')"),
    "a file in shared memory": ("open('/dev/shm/left', 'w').write('x')", "glob.glob('/dev/shm/left')"),
    "a patch": ("torch.left = torch.softmax = nn.left = builtins.left = 1", "[1] if hasattr(torch, 'left') or hasattr(builtins, 'left') else []"),
    "an environment": ("os.environ['LEFT'] = 'x'; libc.setenv(b'LEFT', b'x', 1)", "[v for v in (os.environ.get('LEFT'),) if v]"),
    "a module": ("sys.modules['left'] = sys; sys.path.insert(0, '/tmp')", "[n for n in [*sys.modules, *sys.path] if n in ('left', '/tmp')]"),
    "shared memory of System V": ("libc.shmget(4242, 4096, 0o1666)", "[n for n in [libc.shmget(4242, 0, 0)] if n >= 0]"),
    "a message queue": ("libc.msgget(4242, 0o1666)", "[n for n in [libc.msgget(4242, 0)] if n >= 0]"),
    "a key in the keyring": (
        "libc.syscall(248, b'user', b'left', b'x', 1, -3)", "[n for n in [libc.syscall(250, 10, -3, b'user', b'left', 0)] if n >= 0]"),
    "an abstract socket": (
        "torch.s = socket.socket(socket.AF_UNIX); torch.s.bind('\\0left'); torch.s.listen()",
        "[1] if tried(lambda: socket.socket(socket.AF_UNIX).connect('\\0left') or 1) else []"),
    "a process": ("os.fork() or time.sleep(30)", "[p for p in tried(os.listdir, '/proc') or [] if p.isdigit() and p != str(os.getpid())]"),
    "a thread": ("threading.Thread(target=time.sleep, args=(30,)).start()", "[1] if threading.active_count() > 1 else []"),
    "a memory file": ("torch.m = os.memfd_create('left')", "[n for n in range(3, 99) if 'left' in (tried(os.readlink, f'/proc/self/fd/{n}') or '')]"),
    "a working folder": ("os.makedirs('/tmp/deep/er'); os.chdir('/tmp/deep/er')", "[d for d in [os.getcwd()] if 'deep' in d]"),
    "random numbers": ("torch.manual_seed(1234567)", "[1] if torch.initial_seed() == 1234567 else []"),
    "limits": ("resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))", "[1] if resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 20 else []"),
    "a number of threads": ("torch.set_num_threads(7)", "[1] if torch.get_num_threads() != 1 else []"),
    "lines of a cell": ("import linecache; linecache.cache['left'] = (1, None, ['left'], 'left')", "[1] if 'left' in __import__('linecache').cache else []"),
}  # fmt: skip


@pytest.mark.parametrize("left", LEFT)
def test_nothing_is_left_for_the_next(isolated, secret, left):
    leave, look = LEFT[left]
    loot(isolated, secret, f"tried(lambda: exec({leave!r}, globals()))")
    assert loot(isolated, secret, f"loot += {look}") == ""


def test_side_by_side_they_are_as_far_apart(isolated, secret):
    """While one notebook's child still runs, others look for what it left."""
    leave = [f"    tried(lambda: exec({leave!r}, globals()))" for leave, _ in LEFT.values()]
    with isolated.child() as first:
        notebook = loader.parse(notebook_text(IMPORTS, "\n".join(["def f(x):", *leave])))
        first.open(notebook.texts)
        (observation,) = first.observe("f", notebook.program("f"), [process.probe("call", {"x": 1}, {"gradient": False})])
        assert observation.failure is None
        for _, look in LEFT.values():
            assert loot(isolated, secret, f"loot += {look}") == ""


def test_references_that_were_lent_to_find_a_fault_can_not_be_kept(nursery):
    """The first answer is wrong and mentions all others: references take their places to see whether the fault is there."""
    names = [exercise.name for exercise in ATTENTION.exercises if exercise.name != "softmax"]
    keep = f"for name in {names}: globals().get(name) and setattr(builtins, 'kept_' + name, globals()[name])"
    cells = [f"def softmax(x, dim=-1):\n    {keep}\n    return x * 0.5 if dim else [{', '.join(names)}]"]
    cells += [f"def {name}(*a, **k):\n    return builtins.kept_{name}(*a, **k)" for name in names if name != "SelfAttention"]
    cells.append("class SelfAttention:\n    def __new__(cls, *a):\n        return builtins.kept_SelfAttention(*a)")
    _, verdicts = grading.check_notebook(notebook_text(OPENED, IMPORTS, *cells), seed=SEED, nursery=nursery)
    assert sum(found.score for found in verdicts) == 0


def test_what_fails_costs_its_exercise_and_no_other(nursery, in_a_hurry):
    cells = {exercise.name: inspect.getsource(exercise.reference) for exercise in ATTENTION.exercises}
    for name, body in {"padding_mask": "os._exit(0)", "causal_mask": "while True: pass", "combine_masks": "os.write(4, b'4/4')"}.items():
        cells[name] = f"def {name}(*a, **k):\n    {body}"
    _, verdicts = grading.check_notebook(notebook_text(OPENED, IMPORTS, *cells.values()), seed=SEED, nursery=nursery)
    assert {found.name for found in verdicts if found.score == 0} == {"padding_mask", "causal_mask", "combine_masks"}
    assert {found.name for found in verdicts if found.status == "passed"} == cells.keys() - {"padding_mask", "causal_mask", "combine_masks"}


def test_outputs_that_were_memorised_do_not_fit_hidden_inputs(nursery):
    """Every right output for the public seed, found by its shape."""
    expected = ATTENTION.exercise("softmax").expected(PUBLIC_SEED)
    outputs = [seen.values["output"].array.tolist() for seen in expected if "output" in seen.values]
    source = f"OUTPUTS = {outputs!r}\n\ndef softmax(x, dim=-1):\n    for each in OUTPUTS:\n        if np.shape(each) == tuple(x.shape):\n"
    source += "            return torch.tensor(each, dtype=x.dtype) + 0 * x\n    return x"
    found = verdict(nursery, source)
    assert found.score == 0 and "differs in" in found.what
    assert verdict(nursery, source, seed=PUBLIC_SEED).parts["values"] == (1, 1)


def test_the_seed_can_not_be_found_from_the_inputs_by_trying(nursery):
    source = """
def softmax(x, dim=-1):
    for seed in range(3000) if tuple(x.shape) == (3, 5) else ():
        guess = np.random.Generator(np.random.PCG64(seed)).normal(0.0, 1.0, (3, 5))
        if np.allclose(guess, x.detach().numpy()):
            raise ArithmeticError(f"the seed is {seed}")
    return x * 0.5"""
    assert "the seed is 2718" in verdict(nursery, source, seed=2718).message  # so it works where the seed is small
    found = verdict(nursery, source)
    assert found.score == 0 and "the seed is" not in found.message


INDIRECT = {  # a call of what softmax may not use -> is it found outright?
    "its name": ("torch.softmax(x, dim)", True),
    "a module's function": ("nn.functional.softmax(x, dim)", True),
    "a method": ("x.softmax(dim)", True),
    "a layer": ("nn.Softmax(dim)(x)", True),
    "getattr": ("getattr(torch, 'softmax')(x, dim)", True),
    "torch._C": ("torch._C._VariableFunctions.softmax(x, dim)", True),
    "torch.ops": ("torch.ops.aten._softmax(x, dim, False)", True),
    "log_softmax": ("x.log_softmax(dim).exp()", True),
    "a name in two halves": ("getattr(torch, 'soft' + 'max')(x, dim)", False),
    "torch.ops, in two halves": (
        "torch.ops.aten['soft' + 'max'] if 0 else torch.ops.aten.__getattr__('_soft' + 'max')(x, dim, False)",
        False,
    ),
    "eval": ("eval('torch.soft' + 'max(x, dim)', {'torch': torch, 'x': x, 'dim': dim})", False),
    "exec": ("(lambda n: exec('n[0] = torch.soft' + 'max(n[1], n[2])', {'torch': torch, 'n': n}) or n[0])([0, x, dim])", False),
    "importlib": ("importlib.import_module('torch').__dict__['soft' + 'max'](x, dim)", False),
    "__import__": ("vars(__import__('torch'))['soft' + 'max'](x, dim)", False),
    "sys.modules": ("[v for k, v in sys.modules['torch'].__dict__.items() if k == 'soft' + 'max'][0](x, dim)", False),
    "operator": ("__import__('operator').methodcaller('soft' + 'max', dim)(x)", False),
}


@pytest.mark.parametrize("call", INDIRECT)
def test_a_forbidden_call_earns_nothing_or_a_person_is_asked_to_look(nursery, call):
    source, outright = INDIRECT[call]
    found = verdict(nursery, f"def softmax(x, dim=-1):\n    return {source}")
    if outright:
        assert found.score == 0 and "which this exercise asks you to write" in found.message
    else:
        assert any(note.startswith("For a person to look at: it uses") for note in found.notes), found


def test_a_star_import_is_looked_at_too(nursery):
    found = verdict(nursery, "from torch import *", "def softmax(x, dim=-1):\n    return log_softmax(x, dim).exp()")
    assert "For a person to look at: it uses *" in found.message


@pytest.mark.parametrize("end", ["\f", "\v", "\x1c", "\x85", "\u2028", "\r"])
def test_a_forbidden_call_can_not_hide_behind_odd_line_ends(nursery, end):
    """What str.splitlines takes for the end of a line and Python does not: the function would be looked for elsewhere."""
    cell = (
        f'WORDS = """{end * 6}"""\n\ndef softmax(x, dim=-1):\n    y = x\n    y = y + 0\n    y = y * 1\n    return torch.softmax(y, dim)\n'
    )
    found = verdict(nursery, cell + "\n\n# the end\n" * 4)
    assert found.score == 0 and "It calls softmax" in found.message


def test_what_a_learner_writes_is_shown_as_text(nursery):
    text = "<script>alert(1)</script><img src=x onerror=alert(2)>`<b>`\\x1b[31mred\\x1b]0;title\\x07\\r=cmd|' /C calc'!A1\\ud800"
    found = verdict(nursery, f"def softmax(x, dim=-1):\n    raise ValueError({text!r}.encode().decode('unicode_escape'))")
    card, plain = report.card(found), report.text(found)
    assert "alert(1)" in card and not any(tag in card for tag in ("<script", "<img", "<b>`"))
    assert "red" in plain and not {"\x1b", "\x07", "\r"} & set(plain + card)
    assert plain.encode() and card.encode()


def test_a_notebooks_metadata_says_nothing_about_points(nursery):
    document = json.loads(notebook_text(OPENED, IMPORTS, "def softmax(x, dim=-1):\n    return x * 0.5"))
    for cell in document["cells"]:
        cell["metadata"] = {
            "nbgrader": {"grade": False, "points": 1e9, "locked": False, "schema_version": 3, "solution": True, "grade_id": "softmax"}
        }
        cell["outputs"] = [{"output_type": "execute_result", "data": {"text/plain": "4"}, "metadata": {}, "execution_count": 1}]
    document["metadata"] = {"score": 4, "timestamp": "1970-01-01"}
    _, (found,) = grading.check_notebook(json.dumps(document), "softmax", SEED, nursery=nursery)
    assert (found.score, found.points) == (0, 4)


COUNTS = np.array([900, 80, 15, 5])
FORGED = {
    "integers whose sum wraps around": np.array([2**63 - 1, 2**63 - 1, 1000, 2]),
    "unsigned integers whose sum wraps around": np.array([2**64 - 1, 600, 300, 1], np.uint64),
    "numbers without end": np.array([1e308, 1e308, 1e308, 1e308]),
    "infinities": np.full(4, np.inf),
    "NaN": np.full(4, np.nan),
    "less than nothing": np.array([-900.0, 2000.0, 15.0, 5.0]),
    "true and false": np.array([True, True, True, True]),
    "hardly any": np.array([0.9, 0.08, 0.015, 0.005]),
    "none": np.zeros(4),
    "another shape": np.array([[900, 80, 15, 5]]),
}


@pytest.mark.parametrize("forged", FORGED)
def test_counts_that_are_forged_are_wrong(forged):
    name = "distribution of dropped elements"
    right = observe.Observation({name: observe.Value("Tensor", "int64", "cpu", COUNTS)})
    claimed = observe.Observation({name: observe.Value("Tensor", str(FORGED[forged].dtype), "cpu", FORGED[forged])})
    crossed = observe.Observation.from_fields(wire.read(io.BytesIO(wire.pack(claimed))))
    assert [kind for kind, _, _ in judge.compare(right, right)] == []
    assert [kind for kind, _, _ in judge.compare(crossed, right)] in ([judge.Kind.TYPE], [judge.Kind.VALUES])


LONG = {
    "statements": "x = 1\n" * 20_000,
    "statements on one line": "x;" * 30_000,
    "names that hang together": "".join(f"x{n} = x{n + 1}\n" for n in range(10_000)),
    "brackets": "x = " + "[" * 10_000,
    "an integer": "x = " + "9" * 290_000,
    "characters": "x = '" + "a" * 10_000_000 + "'",
    "operators": "x = 1" + " + 1" * 50_000,
    "shell lines": "!" * 100_000,
}


@pytest.mark.parametrize("long", LONG)
def test_a_notebook_that_is_long_to_read_is_read_in_time_and_costs_no_other_cell(nursery, long):
    start = time.process_time()
    _, (found,) = grading.check_notebook(
        notebook_text(OPENED, IMPORTS, LONG[long], f"def softmax(x, dim=-1):\n    {RIGHT}"), "softmax", SEED, nursery=nursery
    )
    assert found.score == 4, found.message
    assert time.process_time() - start < 10


def test_a_right_answer_still_passes_after_all_this(nursery):
    assert verdict(nursery, f"def softmax(x, dim=-1):\n    print('x' * 10**6)\n    {RIGHT}").score == 4
