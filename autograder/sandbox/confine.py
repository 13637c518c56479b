"""How a process of Linux takes rights away from itself: namespaces, Landlock, a filter of system calls, limits. No way back.

Every function raises OSError where the kernel refuses, so that nothing untrusted runs with less than was asked for.
"""

import ctypes
import functools
import os
import platform
import resource
import signal
import struct

NAMESPACES, LANDLOCK, NONE = TIERS = ("namespaces", "landlock", "none")  # of isolation, the strongest first; see `isolation`
MEMORY = 2 * 2**30  # bytes of address space, beyond what the warm parent has
SECONDS_OF_CPU = 900  # a notebook; what bounds one exercise is the clock of the trusted side
FILE_SIZE = 64 * 2**20
SCRATCH = 64 * 2**20  # bytes of /tmp
OPEN_FILES = 128
THREADS = 64  # and processes

_libc = ctypes.CDLL(None, use_errno=True)
_holding = ctypes.PyDLL(None, use_errno=True)  # keeps the interpreter's lock, as os.fork does
_python = ctypes.pythonapi
_SET_DEATH_SIGNAL, _SET_DUMPABLE, _SET_KEEPCAPS, _SET_SECCOMP, _SET_CHILD_SUBREAPER, _SET_NO_NEW_PRIVS = 1, 4, 8, 22, 36, 38
_NEW_NAMESPACES = 0x00020000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000  # mount, ipc, user, pid, net
_NOSUID, _NODEV, _NOEXEC, _READ_ONLY = 2, 4, 8, 1
_CAP_DAC_READ_SEARCH = 2
_JOIN_SESSION_KEYRING = 1


def drop_user(uid, keep_reading=False):
    """Become that user and group, which own nothing; needs root. keep_reading: files that only root may read stay readable."""
    with open("/proc/self/status") as file:
        owned = int(next(line for line in file if line.startswith("CapPrm")).split()[1], 16)
    _prctl(_SET_KEEPCAPS, int(keep_reading))
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    drop_capabilities(owned & 1 << _CAP_DAC_READ_SEARCH if keep_reading else 0)


def drop_capabilities(keep=0):
    """Give up every capability but those in the mask."""
    header = struct.pack("=Ii", 0x20080522, 0)  # version 3, this process
    _check(_libc.capset(header, struct.pack("=6I", keep, keep, 0, 0, 0, 0)))
    _prctl(_SET_NO_NEW_PRIVS, 1)


def fork_into_namespaces():
    """As os.fork, but the child is process 1 of a new table, without a network or shared memory; see `settle_in_namespaces`.

    To call unshare and fork again would copy the page tables of all that is imported twice.
    """
    _python.PyOS_BeforeFork()
    pid = _holding.syscall(ctypes.c_long(_CLONE[_column()]), ctypes.c_ulong(_NEW_NAMESPACES | signal.SIGCHLD), None, None, None, None)
    if pid == 0:
        _python.PyOS_AfterFork_Child()
    else:
        _python.PyOS_AfterFork_Parent()
    return _check(pid)


def settle_in_namespaces(uid, gid):
    """In the child: its user (the parent's, and nobody else), an empty /proc, and a fresh /tmp, which is where it stays."""
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        _write(f"/proc/self/{name}", text)
    _mount_tmpfs("/tmp", f"size={SCRATCH},nr_inodes=1000,mode=1777")
    _mount_tmpfs("/proc", "size=4k,nr_inodes=1", _READ_ONLY)
    os.chdir("/tmp")


def _mount_tmpfs(path, options, flags=0):
    _check(_libc.mount(b"tmpfs", path.encode(), b"tmpfs", ctypes.c_ulong(_NOSUID | _NODEV | _NOEXEC | flags), options.encode()))


def die_with_parent():
    """Be killed when the thread that started this process ends."""
    _prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)


def be_first_to_go():
    """Where the machine runs out of memory, this process is to be ended before any other."""
    _prctl(_SET_DUMPABLE, 1)  # after a change of user, its files in /proc belong to root otherwise
    _write("/proc/self/oom_score_adj", "1000")


def _write(path, text):
    with open(path, "w") as file:
        file.write(text)


def adopt_orphans():
    """What children of this process leave behind becomes its own child."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def address_space():
    """Bytes of address space of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def limit(base, threads):
    """Limits of memory (beyond `base` bytes), time, files and, where asked for, threads and processes of this process."""
    limits = {
        resource.RLIMIT_AS: base + MEMORY,
        resource.RLIMIT_CPU: SECONDS_OF_CPU,
        resource.RLIMIT_FSIZE: FILE_SIZE,
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_CORE: 0,
    }
    for which, most in limits.items() | ({(resource.RLIMIT_NPROC, THREADS)} if threads else set()):
        resource.setrlimit(which, (most, most))


def landlock(readable):
    """Only what lies below these paths can be read, beside /dev/null and /dev/urandom; nothing can be written.

    readable: paths; a folder that ends in "/" can be listed, but what lies in it can't be read
    """
    version = _syscall(_LANDLOCK_CREATE_RULESET, None, 0, 1)
    files = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)) - 1
    network = 3 if version >= 4 else 0  # bind and connect, TCP
    scoped = 3 if version >= 6 else 0  # abstract sockets and signals
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = _syscall(_LANDLOCK_CREATE_RULESET, struct.pack("=QQQ", files, network, scoped)[:size], size, 0)
    allowed = {path: _READ_DIR if path.endswith("/") else _READ_FILE | _READ_DIR for path in readable}
    for path, rights in (allowed | {"/dev/null": _READ_FILE | _WRITE_FILE, "/dev/urandom": _READ_FILE}).items():
        if not os.path.isdir(path):
            rights &= ~_READ_DIR
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        _syscall(_LANDLOCK_ADD_RULE, ruleset, 1, struct.pack("=Qi", rights, place), 0)
        os.close(place)
    _prctl(_SET_NO_NEW_PRIVS, 1)
    _syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
_WRITE_FILE, _READ_FILE, _READ_DIR = 2, 4, 8

# Numbers of system calls: x86_64, aarch64 (0: it has none). What an answer has no use for and could reach others or the kernel with.
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_FORBIDDEN = {
    "fork": (57, 0), "vfork": (58, 0), "execve": (59, 221), "execveat": (322, 281),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "process_madvise": (440, 440),
    "process_mrelease": (448, 448), "kcmp": (312, 272), "tkill": (200, 130), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424), "setpriority": (141, 140), "ioprio_set": (251, 30), "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119), "sched_setattr": (314, 274), "sched_setaffinity": (203, 122),
    "socket": (41, 198), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "shmget": (29, 194), "shmat": (30, 196), "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180),
    "semop": (65, 193), "semtimedop": (220, 192), "msgsnd": (69, 189), "msgrcv": (70, 188),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "truncate": (76, 45), "chmod": (90, 0), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, 0), "fchown": (93, 55), "lchown": (94, 0), "fchownat": (260, 54), "utime": (132, 0), "utimes": (235, 0),
    "futimesat": (261, 0), "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "setxattrat": (463, 463),
    "removexattrat": (466, 466), "file_setattr": (469, 469),
    "unshare": (272, 97), "setns": (308, 268), "chroot": (161, 51), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fspick": (433, 433), "mount_setattr": (442, 442), "open_tree_attr": (467, 467), "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265), "quotactl": (179, 60), "quotactl_fd": (443, 443), "fanotify_init": (300, 262),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "syslog": (103, 116), "acct": (163, 89),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104), "reboot": (169, 142),
    "swapon": (167, 224), "swapoff": (168, 225), "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171),
    "clock_adjtime": (305, 266), "sethostname": (170, 161), "setdomainname": (171, 162), "personality": (135, 92),
}  # fmt: skip
_OF_ITSELF = {
    "kill": (62, 129),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "prlimit64": (302, 261),
}
_CLONE, _CLONE3, _CLONE_THREAD = (56, 220), 435, 0x00010000
_EPERM, _ENOSYS = 1, 38


def filter_system_calls():
    """No new process, no socket, no signal to others, no shared memory, and no change of what belongs to a file but its content."""
    program = system_call_filter(os.getpid())
    code = ctypes.create_string_buffer(program)
    _prctl(_SET_NO_NEW_PRIVS, 1)
    _prctl(_SET_SECCOMP, 2, struct.pack("@HP", len(program) // 8, ctypes.addressof(code)))


@functools.cache
def system_call_filter(pid):
    """The filter's program, for a process of that number; whoever forks may ask for it once, for all its children."""
    column, machine = _MACHINES[platform.machine()]
    load, equal, at_least, any_bit, leave = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, refuse, absent, kill = 0x7FFF0000, 0x00050000 | _EPERM, 0x00050000 | _ENOSYS, 0x80000000
    number, architecture, argument = 0, 4, 16  # offsets in what the filter sees; of the first argument, its lower half
    program = [(load, 0, 0, architecture), (equal, 1, 0, machine), (leave, 0, 0, kill), (load, 0, 0, number)]
    if column == 0:
        program += [(at_least, 0, 1, 0x40000000), (leave, 0, 0, refuse)]  # the same calls by their x32 numbers
    for numbers in _FORBIDDEN.values():
        if numbers[column]:
            program += [(equal, 0, 1, numbers[column]), (leave, 0, 0, refuse)]
    for name, numbers in _OF_ITSELF.items():
        also = 0 if name == "prlimit64" else pid  # 0 is itself for prlimit64, for kill everyone in its group
        own = [(equal, 2, 0, pid), (equal, 1, 0, also), (leave, 0, 0, refuse), (leave, 0, 0, allow)]
        program += [(equal, 0, 5, numbers[column]), (load, 0, 0, argument), *own]
    # a thread is a clone too; by clone3 it can't be told from a process, and libc tries clone where there is no clone3
    program += [(equal, 0, 4, _CLONE[column]), (load, 0, 0, argument), (any_bit, 1, 0, _CLONE_THREAD), (leave, 0, 0, refuse)]
    program += [(leave, 0, 0, allow), (equal, 0, 1, _CLONE3), (leave, 0, 0, absent), (leave, 0, 0, allow)]
    return b"".join(struct.pack("=HBBI", *line) for line in program)


def new_keyring():
    """A session keyring of its own, where the kernel has keyrings: in an inherited one, a key would be left for the next."""
    if platform.machine() in _MACHINES:
        _libc.syscall(_FORBIDDEN["keyctl"][_column()], _JOIN_SESSION_KEYRING, None)


def _column():
    return _MACHINES[platform.machine()][0]


def _prctl(option, *arguments):
    words = [ctypes.c_ulong(each) if isinstance(each, int) else each for each in (*arguments, 0, 0, 0, 0)[:4]]
    _check(_libc.prctl(option, *words))


def _syscall(*arguments):
    return _check(_libc.syscall(*(ctypes.c_long(each) if isinstance(each, int) else each for each in arguments)))


def _check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
