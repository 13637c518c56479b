"""Grading a class: what is recorded, what is graded again, and that neither stops nor workers change it."""

import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import test_nbgrader
from conftest import ROOT, answered
from nbgrader.api import Gradebook
from test_nbgrader import nbgrader
from tqdm import tqdm

from autograder import engine, exercises, gradebook, grading, isolation
from autograder.program import InfrastructureError

MODULE = exercises.module("start")
RIGHT = answered("start")
WRONG = answered("start", softmax="import numpy as np\ndef softmax(x, dim=-1):\n    e = np.exp(x)\n    return e / e.sum(-1, keepdims=True)")
ENDLESS = answered("start", softmax="def softmax(x, dim=-1):\n    import os\n    os._exit(0)")
CLASS = {"ada": RIGHT, "bob": WRONG, "cyd": ENDLESS, "dan": "", "eve": RIGHT, "fay": '{"cells": ['}
NOTHING = {"seconds", "peak_memory"}  # of a record, what differs from run to run
quiet = functools.partial(tqdm, disable=True)
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="isolation needs Linux")


@pytest.fixture
def submitted(tmp_path):
    """A folder of submissions, as nbgrader has it."""
    for who, text in CLASS.items():
        hand_in(tmp_path / "submitted", who, text)
    return tmp_path / "submitted"


def hand_in(folder, who, text):
    path = folder / who / MODULE.folder / f"{MODULE.slug}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def same(records):
    """The records without what differs from run to run."""
    return [{key: value for key, value in record.items() if key not in NOTHING} for record in records]


def lines(out):
    return [json.loads(line) for line in out.read_text().splitlines()]


@pytest.fixture
def graded(monkeypatch):
    """Who was really graded, in order."""
    found, one = [], engine.grade_one
    monkeypatch.setattr(engine, "grade_one", lambda job, core: found.append(job.who) or one(job, core))
    return found


def test_each_submission_has_a_line_with_all_that_led_to_it(submitted, tmp_path):
    out = tmp_path / "results.jsonl"
    records = engine.grade(submitted, MODULE.name, out, seed=5)
    assert records == lines(out) and [record["who"] for record in records] == list(CLASS)
    endings = {record["who"]: (record["ending"], record["score"]) for record in records}
    assert endings == {
        "ada": ("graded", 3), "bob": ("graded", 1), "cyd": ("graded", 0), "dan": ("not_gradable", 0), "eve": ("graded", 3),
        "fay": ("not_gradable", 0),
    }  # fmt: skip
    ada, bob, cyd, dan = records[:4]
    assert ada["seed"] == 5 and ada["isolation"] == isolation.strongest() and ada["points"] == 3
    assert set(ada["versions"]) == {"attention-by-hand", "torch", "numpy", "python"}
    assert 0 < ada["seconds"] < 60 and 20 * 2**20 < ada["peak_memory"] < 3 * 2**30
    assert bob["exercises"][0]["mistakes"] and "ended without an answer" in cyd["exercises"][0]["message"]
    assert "empty" in dan["message"] and "empty" in dan["for_the_learner"] and dan["exercises"] == []


def test_the_answers_are_those_of_check(submitted, tmp_path):
    records = engine.grade(submitted, MODULE.name, tmp_path / "results.jsonl", seed=5)
    for record in records:
        if record["ending"] == engine.GRADED:
            _, verdicts = grading.check_notebook(CLASS[record["who"]], seed=5)
            assert [(each["name"], each["score"], each["mistakes"]) for each in record["exercises"]] == [
                (verdict.name, verdict.score, list(verdict.mistakes)) for verdict in verdicts
            ]


def test_only_what_has_changed_is_graded_again(submitted, tmp_path, graded):
    out = tmp_path / "results.jsonl"
    first = engine.grade(submitted, MODULE.name, out)
    assert graded == list(CLASS)
    again = engine.grade(submitted, MODULE.name, out)
    assert graded == list(CLASS) and again == first  # the seed, too, is that of the first time
    hand_in(submitted, "bob", RIGHT)
    shutil.rmtree(submitted / "eve")
    hand_in(submitted, "gil", WRONG)
    third = {record["who"]: record["score"] for record in engine.grade(submitted, MODULE.name, out)}
    assert graded == [*CLASS, "bob", "gil"] and third == {"ada": 3, "bob": 3, "cyd": 0, "dan": 0, "fay": 0, "gil": 1}
    engine.grade(submitted, MODULE.name, out, seed=77)
    assert len(graded) == len(CLASS) + 2 + 6 and {record["seed"] for record in lines(out)} == {77}


def test_a_run_that_was_stopped_goes_on_where_it_was(submitted, tmp_path, graded):
    whole, out = tmp_path / "whole.jsonl", tmp_path / "results.jsonl"
    engine.grade(submitted, MODULE.name, whole, seed=5)
    del graded[:]
    done = whole.read_bytes().splitlines(keepends=True)
    out.write_bytes(b"".join(done[:2]) + done[2][:40])  # killed in the middle of the third line
    engine.grade(submitted, MODULE.name, out)
    assert graded == list(CLASS)[2:] and same(lines(out)) == same(lines(whole))


def test_a_fault_of_the_machine_is_no_score_and_is_graded_again(submitted, tmp_path, monkeypatch):
    out = tmp_path / "results.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr(isolation.Nursery, "child", lambda self, late: (_ for _ in ()).throw(InfrastructureError("no memory")))
        records = {record["who"]: record for record in engine.grade(submitted, MODULE.name, out, seed=5)}
    assert records["ada"]["ending"] == engine.INFRASTRUCTURE_ERROR and "no memory" in records["ada"]["message"]
    assert {record["score"] for record in records.values()} == {0}
    assert {record["who"]: record["score"] for record in engine.grade(submitted, MODULE.name, out)}["ada"] == 3


def test_a_fault_of_the_grader_costs_one_notebook(submitted, tmp_path, monkeypatch):
    check = grading.check_notebook
    monkeypatch.setattr(grading, "check_notebook", lambda notebook, **given: 1 / 0 if "exit" in str(notebook) else check(notebook, **given))
    records = {record["who"]: record for record in engine.grade(submitted, MODULE.name, tmp_path / "results.jsonl", seed=5)}
    assert records["cyd"]["ending"] == engine.INFRASTRUCTURE_ERROR and "ZeroDivisionError" in records["cyd"]["message"]
    assert records["eve"]["score"] == 3


def test_a_folder_of_notebooks_and_what_is_no_submission(tmp_path):
    folder = tmp_path / "flat"
    hand_in(folder, "ada", RIGHT)
    (folder / "bob.ipynb").write_text(WRONG)
    (folder / "ada.ipynb").write_text(WRONG)
    (folder / "notes.txt").write_text("not a submission")
    (folder / "link").symlink_to(folder / "ada")
    (folder / "cyd" / "07-encoder-decoder").mkdir(parents=True)  # handed in another module alone
    assert list(engine.submissions(folder, MODULE.name)) == ["ada", "ada.ipynb", "bob"]
    with pytest.raises(grading.CanNotCheck, match="holds no submission of 00-start"):
        engine.submissions(folder / "cyd" / "07-encoder-decoder", MODULE.name)
    with pytest.raises(grading.CanNotCheck, match="can't be read"):
        engine.submissions(tmp_path / "nowhere", MODULE.name)


@pytest.fixture
def course(tmp_path):
    """A course folder whose gradebook knows the assignment."""
    folder = tmp_path / "course"
    (folder / "solutions" / MODULE.folder).mkdir(parents=True)
    shutil.copy(ROOT / "nbgrader_config.py", folder)
    shutil.copy(exercises.worked_path(MODULE.name), folder / "solutions" / MODULE.folder)
    nbgrader(folder, "generate_assignment", MODULE.folder, "--create")
    return folder


@pytest.mark.slow
def test_the_gradebook_gets_the_same_and_keeps_what_people_gave(submitted, tmp_path, course):
    def write(seed):
        book = functools.partial(gradebook.Book, course, MODULE.name)
        return engine.grade(submitted, MODULE.name, tmp_path / "results.jsonl", seed=seed, book=book)

    def grade(who):
        with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as found:
            (each,) = found.find_submission(MODULE.folder, who).notebooks[0].grades
            return each.auto_score, each.score, each.needs_manual_grade

    write(5)
    assert {who: grade(who) for who in CLASS} == {
        "ada": (3, 3, False), "bob": (1, 1, False), "cyd": (0, 0, False), "dan": (None, 0, True), "eve": (3, 3, False),
        "fay": (None, 0, True),
    }  # fmt: skip
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as found:
        found.find_grade("check-softmax", MODULE.slug, MODULE.folder, "bob").manual_score = 2
        found.db.commit()
    write(6)
    assert grade("bob") == (1, 2, True)
    nbgrader(course, "generate_feedback", MODULE.folder)
    assert "empty" in (course / "feedback" / "dan" / MODULE.folder / f"{MODULE.slug}.html").read_text()
    shutil.copytree(submitted, course / "submitted")
    before = {path: path.stat().st_mtime_ns for path in (course / "autograded").rglob("*.ipynb")}
    nbgrader(course, "autograde", MODULE.folder, status=1)  # takes what the engine wrote for its own
    after = {path.parts[-3] for path, at in before.items() if path.stat().st_mtime_ns != at}
    assert after == {"dan", "fay"}


@pytest.mark.slow
def test_who_was_late_loses_what_the_course_says(submitted, tmp_path, course):
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as found:
        found.update_or_create_assignment(MODULE.folder, duedate="2026-03-01 12:00:00 UTC")
    with (course / "nbgrader_config.py").open("a") as config:
        config.write('\nc.LateSubmissionPlugin.penalty_method = "zero"\n')
    for who, day in (("ada", "02"), ("eve", "01")):
        (submitted / who / MODULE.folder / "timestamp.txt").write_text(f"2026-03-{day} 11:00:00 UTC")
    engine.grade(submitted, MODULE.name, tmp_path / "results.jsonl", seed=5, book=functools.partial(gradebook.Book, course, MODULE.name))
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as found:
        each = {who: found.find_submission(MODULE.folder, who).notebooks[0] for who in ("ada", "bob", "eve")}
        assert {who: (notebook.score, notebook.late_submission_penalty) for who, notebook in each.items()} == {
            "ada": (3, 3), "bob": (1, None), "eve": (3, None),
        }  # fmt: skip


@pytest.mark.slow
def test_scores_are_those_of_the_answers_and_not_of_the_seed(tmp_path):
    attention = exercises.module("attention")
    for who, answers in test_nbgrader.CLASS.items():
        path = tmp_path / "class" / who / attention.folder / "attention.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text(test_nbgrader.submission(answers), encoding="utf-8")
    found = set()
    for seed in [*range(19), 2**62 - 1]:
        records = engine.grade(tmp_path / "class", attention.name, tmp_path / f"{seed}.jsonl", seed=seed, progress=quiet)
        found.add(tuple((each["who"], *(exercise["score"] for exercise in each["exercises"])) for each in records))
    assert len(found) == 1 and len(found.pop()) == len(test_nbgrader.CLASS)


def test_a_folder_without_a_gradebook_is_refused(tmp_path):
    with pytest.raises(grading.CanNotCheck, match="nbgrader generate_assignment 00-start --create"):
        gradebook.Book(tmp_path, MODULE.name)


def command(*words):
    return [sys.executable, "-m", "autograder", "grade", *map(str, words)]


@pytest.mark.slow
def test_a_cluster_gives_what_a_serial_run_gives_though_workers_and_coordinator_are_killed(tmp_path):
    folder, out = tmp_path / "class", tmp_path / "results.jsonl"
    for number in range(60):
        hand_in(folder, f"learner-{number:02d}", [RIGHT, WRONG, ENDLESS, ""][number % 4])
    serial = engine.grade(folder, MODULE.name, tmp_path / "serial.jsonl", seed=9)
    run = command(folder, "--module", "start", "--jobs", 2, "--seed", 9, "--out", out)
    with subprocess.Popen(run, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True) as coordinator:
        kill(worker_of(coordinator, out, 5))
        kill(worker_of(coordinator, out, 12))
        wait(lambda: count(out) >= 20, coordinator)
        coordinator.kill()
    done = count(out)
    assert 20 <= done < 60
    finished = subprocess.run(run, cwd=ROOT, capture_output=True, text=True)
    assert finished.returncode == 1 and "45 graded" in finished.stdout, finished.stderr
    assert same(lines(out)) == same(serial)


def count(out):
    return out.read_bytes().count(b"\n") if out.exists() else 0


def wait(until, process):
    end = time.monotonic() + 120
    while not until():
        assert time.monotonic() < end and process.poll() is None, process.stderr.read().decode()
        time.sleep(0.05)


def worker_of(coordinator, out, after):
    """The process id of a worker of the cluster, once so many results are there."""
    wait(lambda: count(out) >= after, coordinator)
    (server,) = (pid for pid in children(coordinator.pid) if b"forkserver" in Path(f"/proc/{pid}/cmdline").read_bytes())
    return children(server)[0]


def children(pid):
    return [int(each) for path in Path(f"/proc/{pid}/task").glob("*/children") for each in path.read_text().split()]


def kill(pid):
    os.kill(pid, signal.SIGKILL)
