"""The warm parent: imports what answers need once, then forks a child for each notebook. It never sees a notebook or a reference.

It serves on a socket, its standard input. Each request comes with two sockets: `frames`, on which the child will serve as `worker`
does, and `report`, on which it is told, as JSON:
    {"started": true}, with a pidfd      the child is there, and can be killed by it
    {"confined": true}                   it has given up what its tier takes away, and answers from now on
    {"error": text}                      it never came to that
    {"status": …, "memory": …, "cpu": …} it has ended: exit status (or minus the signal), bytes at its peak, seconds
A child is two processes: the second runs the answers; the first waits for it, reports, and is out of its reach.
"""

import contextlib
import gc
import json
import os
import random
import resource
import signal
import socket
import time

import numpy as np
import torch
from torch import nn

from . import confine, loader, worker

NAMESPACES, LANDLOCK, NONE = "namespaces", "landlock", "none"
_NOBODY = 65534
_SECONDS_TO_CLEAR_UP = 5


def serve(tier, readable):
    """Fork a child for each request, until the socket closes; then wait for the children.

    readable: for the tier `landlock`, the paths below which a child may read
    """
    control = socket.socket(fileno=os.dup(0))
    if tier == NAMESPACES and os.getuid() == 0:
        confine.drop_user(_NOBODY)
    confine.die_with_parent()
    torch.set_num_threads(1)
    _warm_up()
    base = confine.address_space()
    gc.collect()
    gc.freeze()  # a collection in a child would otherwise write to every page that it shares with this process
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
    while True:
        request, sockets, _, _ = socket.recv_fds(control, 16, 2)
        if not request:
            break
        report = socket.socket(fileno=sockets[1])
        try:
            threads = len(os.listdir("/proc/self/task"))
            if threads != 1:  # in a child, a lock that another thread held would be held for ever
                raise RuntimeError(f"the warm parent has {threads} threads")
            if os.fork() == 0:
                _child(tier, readable, base, sockets[0], report)
        except (OSError, RuntimeError) as error:
            _tell(report, error=f"{type(error).__name__}: {error}")
        os.close(sockets[0])
        report.close()
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def _warm_up():
    """One operation of each kind, so that what libraries load and read late (/proc/cpuinfo among it) is there before the first fork."""
    x = torch.randn(2, 5, 8, requires_grad=True)
    layers = [nn.Linear(8, 8), nn.LayerNorm(8), nn.Dropout(0.5), nn.GELU(), nn.ReLU()]
    y = nn.Sequential(*layers)(x)
    weights = torch.softmax((y @ y.mT).masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(1), float("-inf")), -1)
    scores = torch.einsum("bts,bsd->btd", weights, y) + nn.Embedding(7, 8)(torch.arange(5))
    nn.functional.scaled_dot_product_attention(x, x, x)
    nn.functional.cross_entropy(scores.flatten(0, 1), torch.arange(10) % 8).backward()
    torch.optim.AdamW([x]).step()
    double = x.detach().double()
    torch.linalg.svd(double @ double.mT)
    torch.multinomial(torch.ones(3), 2)
    torch.sort(double.flatten())
    loader.parse(json.dumps({"cells": [{"cell_type": "code", "source": "%matplotlib inline\ndef f(x):\n    return x"}]})).load("f")


def _child(tier, readable, base, frames, report):
    """The first process of a child; never returns."""
    try:
        confine.die_with_parent()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(frames, 0)
        os.dup2(frames, 1)
        os.dup2(report.fileno(), 3, inheritable=False)
        os.closerange(4, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        report.detach()
        report = socket.socket(fileno=3)
        confine.be_first_to_go()
        if tier == NAMESPACES:
            confine.new_namespaces()
        elif tier == NONE:
            confine.adopt_orphans()
        second = os.fork()
        if second == 0:
            _answers(tier, readable, base, report)
        socket.send_fds(report, [b'{"started": true}'], [os.pidfd_open(second)])
        for descriptor in (0, 1):  # so that the other side reads the end when the second process ends
            os.close(descriptor)
        _, status, usage = os.wait4(second, 0)
        code = os.waitstatus_to_exitcode(status)
        if tier == NONE:
            _clear_up()
        _tell(report, status=code, memory=usage.ru_maxrss * 1024, cpu=usage.ru_utime + usage.ru_stime)
    except BaseException as error:
        _tell(report, error=f"{type(error).__name__}: {error}")
    finally:
        os._exit(0)


def _answers(tier, readable, base, report):
    """The second process: gives up its rights, and only then reads what it is sent; never returns."""
    try:
        os.setsid()
        confine.new_keyring()
        confine.limit(base, threads=tier == NAMESPACES or (os.getuid() == 0 and tier == LANDLOCK))
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
        np.random.seed()
        torch.seed()
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


def _clear_up():
    """End what an answer left running, where no namespace ends it."""
    deadline = time.monotonic() + _SECONDS_TO_CLEAR_UP
    while time.monotonic() < deadline:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            left = [int(each) for each in file.read().split()]
        if not left:
            return
        for each in left:
            os.kill(each, signal.SIGKILL)
        for each in left:
            os.waitpid(each, 0)


def _tell(report, **message):
    with contextlib.suppress(OSError):  # nobody listens any more
        report.send(json.dumps(message).encode())
