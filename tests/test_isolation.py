"""Isolation: which tier this machine has, a warm parent and its children, and how each ending is told."""

import multiprocessing
import os
import pickle
import select
import time
from pathlib import Path

import pytest
import torch
from conftest import answered, notebook_text

from autograder import exercises, grading, isolation, process, program
from autograder.answers import Workers
from autograder.process import Ended
from autograder.program import InfrastructureError
from autograder.sandbox import confine, loader

TWICE = "def f(x):\n    return x * 2"
X = {"x": torch.arange(3.0)}


@pytest.fixture(scope="module", params=[*isolation.TIERS, isolation.NONE])
def nursery(request):
    """A warm parent of each tier that works here."""
    if reason := isolation.refusal(request.param):
        pytest.skip(reason)
    with isolation.Nursery(request.param) as nursery:
        yield nursery


@pytest.fixture(scope="module")
def strongest():
    """The strongest tier that works here."""
    try:
        return isolation.strongest()
    except isolation.NoIsolation as error:
        pytest.skip(str(error))


def opened(nursery, *sources):
    """A child in which `f` of a notebook with these cells is defined."""
    notebook = loader.parse(notebook_text("import os, signal, sys, time\nimport torch", *sources))
    child = nursery.child()
    child.open(notebook.texts)
    child.program = notebook.program("f")
    return child


def seen(child, **options):
    (observation,) = child.observe("f", child.program, [process.probe("call", X, options)])
    return observation


def test_the_strongest_tier_is_the_first_that_works(strongest):
    assert strongest == next(tier for tier in isolation.TIERS if not isolation.refusal(tier))


def test_others_notebooks_are_never_run_without_isolation_unless_asked_for(monkeypatch):
    monkeypatch.setattr(isolation, "refusal", lambda tier: "" if tier == "none" else "not here")
    with pytest.raises(isolation.NoIsolation, match=r"install bubblewrap .*namespaces: not here; landlock: not here"):
        isolation.for_others()
    with pytest.raises(isolation.NoIsolation, match="'landlock' does not work on this machine: not here"):
        isolation.for_others("landlock")
    with pytest.raises(isolation.NoIsolation, match=r"no isolation 'nonsense'\. Choose one of: namespaces, landlock, none"):
        isolation.for_others("nonsense")
    assert isolation.for_others("none") == "none"


def test_without_bubblewrap_the_first_tier_is_refused_with_its_reason(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with isolation.Nursery("namespaces") as nursery, pytest.raises(InfrastructureError, match="bubblewrap is not installed"):
        nursery.child()


def test_a_project_that_is_installed_among_the_packages_is_left_out(tmp_path):
    for name in ("torch/nn", "solutions", "utils"):
        (tmp_path / "lib" / "packages" / name).mkdir(parents=True)
    hidden = {str(tmp_path / "lib" / "packages" / name) for name in ("solutions", "utils")}
    left = program._without(str(tmp_path / "lib"), hidden)
    assert [path.removeprefix(str(tmp_path)) for path in left] == ["/lib/", "/lib/packages/", "/lib/packages/torch"]
    assert program._without(str(tmp_path / "lib" / "packages" / "torch"), hidden) == [str(tmp_path / "lib" / "packages" / "torch")]


@pytest.fixture(scope="module")
def in_its_own():
    """What a process sees that is started for itself."""
    return seen_by(None)


def seen_by(nursery):
    notebook = loader.parse(notebook_text("import torch", TWICE))
    with Workers(notebook, ["f"], nursery) as workers:
        (observation,) = workers.get().observe("f", notebook.program("f"), [process.probe("call", X, {})])
        return observation


def test_a_child_sees_what_a_process_of_its_own_sees(nursery, in_its_own):
    mine = seen_by(nursery)
    assert nursery.peak_memory > 50 * 2**20
    assert [(name, value.kind, value.dtype, value.text) for name, value in mine.values.items()] == [
        (name, value.kind, value.dtype, value.text) for name, value in in_its_own.values.items()
    ]
    assert mine.values["output"].array.tolist() == in_its_own.values["output"].array.tolist() == [0.0, 2.0, 4.0]


ENDINGS = {
    "os._exit(0)": ("Crash", "exit status 0"),
    "os.kill(os.getpid(), signal.SIGSEGV)\n    import ctypes; ctypes.string_at(0)": ("Crash", "exit status -11"),
    "raise KeyboardInterrupt": ("Crash", "exit status 1"),
    "while True: pass": ("Timeout", "within 1 seconds"),
    "time.sleep(100)": ("Timeout", "within 1 seconds"),
    "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\n    while True: pass": ("Timeout", "within 1 seconds"),
    "os.closerange(0, 100)\n    while True: pass": ("Crash", "hung up"),
    "os.write(3, b'score: 4/4')": ("ProtocolError", "no observation"),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_child_that_ends_is_its_own_verdict_and_the_next_is_clean(nursery, ending, monkeypatch):
    monkeypatch.setattr(process, "SECONDS_TO_PROBE", 1)
    with opened(nursery, f"def f(x):\n    torch.leftover = 1\n    {ending}") as child, pytest.raises(Ended) as caught:
        seen(child)
    kind, words = ENDINGS[ending]
    assert caught.value.failure.type == kind and words in caught.value.failure.message
    monkeypatch.undo()
    with opened(nursery, "def f(x):\n    return x + hasattr(torch, 'leftover')") as child:
        assert seen(child).values["output"].array.tolist() == [0.0, 1.0, 2.0]


def test_memory_is_bounded_and_its_peak_is_known(nursery):
    with opened(nursery, "def f(x):\n    torch.ones(100, 2**20)\n    return torch.ones(10**12)") as child:
        failure = seen(child).failure
    assert failure.type == "OutOfMemory" and failure.source == "return torch.ones(10**12)"
    with opened(nursery, TWICE) as modest:
        seen(modest)
    assert child.memory - modest.memory > 350 * 2**20  # 100 Mi float32
    assert modest.memory < 2**30


def test_time_of_all_probes_together_is_bounded(nursery, monkeypatch):
    monkeypatch.setattr(process, "SECONDS_TO_OBSERVE", 1)
    with (
        opened(nursery, "def f(x):\n    time.sleep(0.3)\n    return x") as child,
        pytest.raises(Ended, match="cases together take longer than 1 seconds"),
    ):
        list(child.observe("f", child.program, [process.probe("call", X, {})] * 10))


def test_the_warm_parent_keeps_to_one_thread_and_reaps_its_children(nursery):
    for _ in range(3):
        with opened(nursery, "def f(x):\n    torch.set_num_threads(2)\n    return torch.ones(999, 999) @ torch.ones(999, 999)") as child:
            assert seen(child).values["output"].array.shape == (999, 999)
    assert nursery.peak_memory  # waits for the last report of those that were ended
    deadline = time.monotonic() + 10
    while len(below := processes_below(nursery._parents[-1]._process.pid)) > 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(below) <= 3  # bubblewrap's two, and the warm parent
    assert all(len(os.listdir(f"/proc/{pid}/task")) == 1 for pid in below)


def processes_below(pid):
    """The process of that id and all that descend from it."""
    found = [pid]
    for each in found:
        found += map(int, Path(f"/proc/{each}/task/{each}/children").read_text().split())
    return found


def test_nothing_is_left_running(nursery):
    fork = "def f(x):\n    try:\n        for _ in range(3):\n            if os.fork() == 0:\n                os.setsid()\n"
    fork += "                os.fork()\n                time.sleep(60)\n    except OSError:\n        pass\n    return x"
    child = opened(nursery, fork)
    assert seen(child).failure is None
    child.end()
    deadline = time.monotonic() + 10
    while len(processes_below(nursery._parents[-1]._process.pid)) > 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(processes_below(nursery._parents[-1]._process.pid)) <= 3


def test_children_side_by_side_know_nothing_of_each_other(nursery):
    source = "def f(x):\n    before = getattr(torch, 'seen', 0)\n    torch.seen = before + 1\n    return x + before"
    with opened(nursery, source) as one, opened(nursery, source) as other:
        seen(one)
        assert seen(other).values["output"].array.tolist() == seen_in_a_new_one(nursery, source)
        one.end()
        assert seen(other).failure is None


def seen_in_a_new_one(nursery, source):
    with opened(nursery, source) as child:
        return seen(child).values["output"].array.tolist()


def test_a_replaced_parent_leaves_the_children_of_the_old_one_alone(strongest):
    with isolation.Nursery(strongest) as nursery:
        with opened(nursery, TWICE) as first:
            nursery._serves = False  # as when it can fork no more
            with opened(nursery, TWICE):
                old = nursery._parents[0]
                assert len(nursery._parents) == 2 and old.lives()
                assert seen(first).failure is None
        deadline = time.monotonic() + 10
        while old.lives() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not old.lives()


def test_a_lost_parent_is_the_machines_fault_and_is_started_again(strongest):
    text = answered("attention")
    with isolation.Nursery(strongest) as fragile:
        fragile.child().end()
        fragile._parents[-1]._process.kill()
        fragile._parents[-1]._process.wait()
        with pytest.raises(InfrastructureError, match=f"No process could be started \\({strongest}\\)"):
            fragile.child()
        fragile._parents[-1]._process.kill()
        _, (verdict,) = grading.check_notebook(text, "softmax", nursery=fragile)
    assert (verdict.status, verdict.score) == ("passed", 4)


def test_a_parent_that_another_process_has_started_serves_until_it_ends(strongest):
    started = program.likely_parent("")
    with multiprocessing.get_context("spawn").Pool(1) as pool, isolation.Nursery(strongest) as own:
        assert pool.apply(_tier_of_a_child, (started,)) == strongest
        assert _tier_of_a_child(pickle.loads(pickle.dumps(started)), own) == strongest
        started.end()
        with opened(own, TWICE) as child:
            assert seen(child).failure is None
        assert isinstance(own._parents[-1], program.OwnParent)


def _tier_of_a_child(parent, nursery=None):
    """The tier of a child that this parent has, once it has answered."""
    nursery = nursery or isolation.nursery(parent.tier)
    nursery.adopt(parent)
    with opened(nursery, TWICE) as child:
        assert seen(child).values["output"].array.tolist() == [0, 2, 4]
        assert nursery._parents == [parent]
    return nursery.tier


def test_no_parent_is_started_for_a_tier_that_can_not_be(monkeypatch):
    assert program.likely_parent("nonsense") is None
    monkeypatch.setenv("PATH", "/nowhere")
    assert program.likely_parent("") is None


def test_a_child_ends_when_whoever_asked_for_it_is_gone(nursery):
    child = opened(nursery, "def f(x):\n    while True:\n        pass")
    child._stream.send(process.probe("call", X, {}))
    child._stream._send_some()
    ended = select.poll()
    ended.register(child._pidfd, select.POLLIN)
    assert not ended.poll(300)
    child._report.close()  # as the system does when a process is killed
    assert ended.poll(10_000)
    os.close(child._pidfd)
    child._frames.close()


class Broken:
    """A nursery that fails so many times before it has a child."""

    def __init__(self, nursery, times):
        self.nursery, self.left = nursery, times

    def child(self, late):
        self.left -= 1
        if self.left >= 0:
            raise InfrastructureError("no process")
        return self.nursery.child(late)


def test_an_infrastructure_error_is_retried_once_and_is_never_a_score(nursery):
    text = answered("attention")
    _, (verdict,) = grading.check_notebook(text, "softmax", nursery=Broken(nursery, 1))
    assert verdict.status == "passed"
    _, (verdict,) = grading.check_notebook(text, "softmax", nursery=Broken(nursery, 2))
    assert (verdict.status, verdict.what) == ("could_not_check", "no process")


def test_all_reference_answers_pass_in_one_child(nursery):
    text = answered("attention")
    grading.check_notebook(text, "softmax", nursery=nursery)
    start = time.monotonic()
    module, verdicts = grading.check_notebook(text, nursery=nursery, seed=2**62 + 1)
    assert sum(verdict.score for verdict in verdicts) == exercises.module("attention").points == module.points
    assert time.monotonic() - start < 20


SHAPES = [((2,), (3, 1), (1, 1, 1)), ((0,), (2, 1)), ((), ()), (3, (2, 1)), ([2], torch.Size([1, 3])), (), (None, (2,))]
NO_SHAPES = [((2, 3), (4,)), ((2, -1), (1,)), ((1.5,),), ("ab", (1,))]


@pytest.mark.parametrize("shapes", SHAPES + NO_SHAPES)
def test_shapes_are_broadcast_as_torch_does_it(strongest, shapes):
    """For which a warm parent has a function of its own: torch's imports sympy."""
    source = f"""
def f(x):
    try:
        return repr(torch.broadcast_shapes{shapes!r})
    except Exception as error:
        return f"{{type(error).__name__}}: {{error}}" """
    namespace = {"torch": torch}
    exec(source, namespace)
    with opened(isolation.nursery(strongest), source) as child:
        assert seen(child).values["output"].text == repr(namespace["f"](None))


def test_to_broadcast_shapes_takes_no_sympy(strongest):
    with opened(
        isolation.nursery(strongest), "def f(x):\n    torch.broadcast_shapes((2, 1), (3,))\n    return 'sympy' in sys.modules"
    ) as child:
        assert seen(child).values["output"].text == "False"


def test_a_child_is_quick(nursery):
    nursery.child().end()
    start = time.monotonic()
    for _ in range(10):
        with nursery.child():
            pass
    assert (time.monotonic() - start) / 10 < 0.5  # 0.02 s on a machine that has nothing else to do; torch alone imports in 1 s


def test_the_limits_are_set(nursery):
    names = ("AS", "CPU", "FSIZE", "NOFILE", "CORE")
    body = "import resource\n    return [resource.getrlimit(getattr(resource, 'RLIMIT_' + name)) for name in %r]" % (names,)
    with opened(nursery, f"def f(x):\n    {body}") as child:
        text = seen(child, gradient=False).values["returned"].text
    limits = dict(zip(names, eval(text)))
    assert limits["CPU"] == (confine.SECONDS_OF_CPU,) * 2 and limits["FSIZE"] == (confine.FILE_SIZE,) * 2
    assert limits["NOFILE"] == (confine.OPEN_FILES,) * 2 and limits["CORE"] == (0, 0)
    assert confine.MEMORY < limits["AS"][0] == limits["AS"][1] < confine.MEMORY + 32 * 2**30
