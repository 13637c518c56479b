"""The warm parent: imports what answers need once, then forks a child for each notebook. It never sees a notebook or a reference.

It serves on a socket, its standard input. A request is the names in LATE that the notebook uses, as JSON, and comes with two sockets:
`frames`, on which the child will serve as `worker` does, and `report`, on which it is told, as JSON:
    {"started": true}, with a pidfd      the child is there, and can be killed by it
    {"confined": true}                   it has given up what its tier takes away, and answers from now on
    {"error": text}                      it never came to that
    {"status": …, "memory": …, "cpu": …} it has ended: exit status (or minus the signal), bytes at its peak, seconds
"""

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import random
import resource
import select
import signal
import socket
import time

import numpy.ma  # noqa: F401 (numpy imports it when it is asked for)
import torch
from torch import nn

from . import confine, loader, observe, probes, worker
from .confine import LANDLOCK, NAMESPACES, NONE

LATE = {  # for what torch imports late a third of a second and more, and what more memory to fork: only where a notebook has the word
    "optim": lambda: torch.optim.SGD([nn.Parameter(torch.zeros(1))]),
}
_NOBODY = 65534
_SECONDS_TO_CLEAR_UP = 5


def serve(tier, readable):
    """Fork a child for each request, until the socket closes; then wait for the children.

    readable: for the tier `landlock`, the paths below which a child may read
    """
    _Parent(tier, readable).serve(socket.socket(fileno=os.dup(0)))


class _Parent:
    """The parent, and the children that it has."""

    def __init__(self, tier, readable):
        self.tier, self.readable = tier, readable
        self.poll = select.poll()
        self.children = {}  # {pidfd: (pid, the socket of its reports)}
        self.listeners = {}  # {the number of that socket: pidfd}
        self.late = set()  # those of LATE that are there
        if tier == NAMESPACES and os.getuid() == 0:
            confine.drop_user(_NOBODY)
        elif tier == NONE:
            confine.adopt_orphans()
        confine.die_with_parent()
        torch.set_num_threads(1)
        _warm_up()
        confine.system_call_filter(1)  # which a child is in a process table of its own
        self.settle()

    def settle(self):
        """Before the next fork: nothing that is there now is to be looked at again."""
        self.address_space = confine.address_space()
        gc.collect()
        gc.freeze()  # a collection in a child would otherwise write to every page that it shares with this process

    def serve(self, control):
        """See the module's `serve`."""
        self.poll.register(control, select.POLLIN)
        while control or self.children:
            descriptor, _ = self.poll.poll()[0]  # one at a time: of the others, what follows from it may close and reuse the numbers
            if descriptor in self.children:
                self.see_off(descriptor)
            elif descriptor in self.listeners:
                self.abandon(descriptor)
            else:
                request, sockets, _, _ = socket.recv_fds(control, 1024, 2)
                if request:
                    self.fork(json.loads(request), *sockets)
                else:
                    self.poll.unregister(control)
                    control = None

    def fork(self, late, frames, report):
        """Fork a child."""
        report = socket.socket(fileno=report)
        try:
            if missing := set(late) - self.late:
                for name in missing:
                    LATE[name]()
                self.late |= missing
                self.settle()
            threads = len(os.listdir("/proc/self/task"))
            if threads != 1:  # in a child, a lock that another thread held would be held for ever
                raise RuntimeError(f"the warm parent has {threads} threads")
            user = os.getuid(), os.getgid()
            pid = confine.fork_into_namespaces() if self.tier == NAMESPACES else os.fork()
            if pid == 0:
                _child(self.tier, self.readable, self.address_space, user, frames, report)
            pidfd = os.pidfd_open(pid)
        except (OSError, RuntimeError) as error:
            _tell(report, error=f"{type(error).__name__}: {error}")
            report.close()
            return
        finally:
            os.close(frames)
        with contextlib.suppress(OSError):  # nobody listens any more
            socket.send_fds(report, [b'{"started": true}'], [pidfd])
        self.children[pidfd] = pid, report
        self.listeners[report.fileno()] = pidfd
        self.poll.register(pidfd, select.POLLIN)
        self.poll.register(report, 0)

    def abandon(self, report):
        """Kill a child of which nobody wants to hear any more: who asked for it has ended, and can't."""
        self.poll.unregister(report)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.listeners.pop(report), signal.SIGKILL)

    def see_off(self, pidfd):
        """Report the end of a child."""
        self.poll.unregister(pidfd)
        pid, report = self.children.pop(pidfd)
        if self.listeners.pop(report.fileno(), None):
            self.poll.unregister(report)
        _, status, usage = os.wait4(pid, 0)
        if self.tier == NONE:
            self.clear_up()
        _tell(report, status=os.waitstatus_to_exitcode(status), memory=usage.ru_maxrss * 1024, cpu=usage.ru_utime + usage.ru_stime)
        report.close()
        os.close(pidfd)

    def clear_up(self):
        """End what answers left running, where no namespace ends it."""
        deadline = time.monotonic() + _SECONDS_TO_CLEAR_UP
        while time.monotonic() < deadline:
            with open(f"/proc/self/task/{os.getpid()}/children") as file:
                left = {int(each) for each in file.read().split()} - {pid for pid, _ in self.children.values()}
            if not left:
                return
            for each in left:
                os.kill(each, signal.SIGKILL)
            for each in left:
                os.waitpid(each, 0)


def _warm_up():
    """One operation of each kind, so that what libraries load and read late (/proc/cpuinfo among it) is there before the first fork."""
    for module in pkgutil.iter_modules(probes.__path__):
        importlib.import_module(f"{probes.__name__}.{module.name}")
    torch.broadcast_shapes = torch.functional.broadcast_shapes = _broadcast_shapes
    x = torch.randn(2, 5, 8, requires_grad=True)
    layers = [nn.Linear(8, 8), nn.LayerNorm(8), nn.Dropout(0.5), nn.GELU(), nn.ReLU()]
    y = nn.Sequential(*layers)(x)
    weights = torch.softmax((y @ y.mT).masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(1), float("-inf")), -1)
    scores = torch.einsum("bts,bsd->btd", weights, y) + nn.Embedding(7, 8)(torch.arange(5))
    nn.functional.scaled_dot_product_attention(x, x, x)
    nn.functional.cross_entropy(scores.flatten(0, 1), torch.arange(10) % 8).backward()
    double = x.detach().double()
    torch.linalg.svd(double @ double.mT)
    torch.multinomial(torch.ones(3), 2)
    torch.sort(double.flatten())
    observe.observe("call", torch.relu, {"x": double}, {})
    loader.run({"statements": [["", 1, "def f(x):\n    return x"]], "flags": 0})


_own_broadcast_shapes = torch.functional.broadcast_shapes


def _broadcast_shapes(*shapes):
    """As torch's own, which takes half a second to import sympy for it, and then 70 MB with which each child would be forked."""
    try:
        return torch.broadcast_tensors(*(torch.zeros(()).expand(shape) for shape in shapes))[0].shape
    except Exception:
        return _own_broadcast_shapes(*shapes)  # it has the right words for what can't be broadcast


def _child(tier, readable, address_space, user, frames, report):
    """The child: gives up its rights, and only then reads what it is sent; never returns."""
    try:
        os.dup2(frames, 0)
        os.dup2(frames, 1)
        os.dup2(report.fileno(), 3, inheritable=False)
        os.closerange(4, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        report.detach()
        report = socket.socket(fileno=3)
        confine.be_first_to_go()
        if tier == NAMESPACES:
            confine.settle_in_namespaces(*user)
        os.setsid()
        confine.new_keyring()
        confine.limit(address_space, threads=tier == NAMESPACES or (os.getuid() == 0 and tier == LANDLOCK))
        if tier == NAMESPACES:
            confine.drop_capabilities()
        if tier == LANDLOCK:
            if os.getuid() == 0:
                confine.drop_user(_NOBODY, keep_reading=True)
            else:
                confine.drop_capabilities()
            confine.landlock(readable)
        confine.die_with_parent()
        if tier != NONE:
            confine.filter_system_calls()
        random.seed()
        _tell(report, confined=True)
    except BaseException as error:
        _tell(report, error=f"{type(error).__name__}: {error}")
        os._exit(1)
    report.close()
    try:
        worker.serve()
    except BaseException:
        os._exit(1)
    os._exit(0)


def _tell(report, **message):
    with contextlib.suppress(OSError):  # nobody listens any more
        report.send(json.dumps(message).encode())
