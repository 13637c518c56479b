"""INSTRUCTORS.md: each of its commands, in order, in a course folder that is made as the page says; and what each leaves behind."""

import csv
import json
import os
import re
import signal
import socket
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from conftest import ROOT
from nbgrader.api import Gradebook

from autograder import cells, exercises

MODULE = exercises.module("start")
PAGE = (ROOT / "INSTRUCTORS.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
RIGHT = cells.solution(MODULE.exercises[0].reference)
RAISES = "def softmax(x, dim):\n    return x.no_such_thing"
WRONG = RIGHT.replace("(axis=dim, keepdims=True)", "(axis=-1, keepdims=True)")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="isolation needs Linux")]


def hand_in(course):
    """A right notebook, a partly right one under another name, one that was cut short, and one that raises."""
    notebook = json.loads((course / "notebooks/00-start/start.ipynb").read_text(encoding="utf-8"))
    (cell,) = [cell for cell in notebook["cells"] if cell["metadata"].get("nbgrader", {}).get("grade_id") == "softmax"]
    for who, name, answer in [
        ("ada", "start.ipynb", RIGHT), ("bob", "start (1).ipynb", WRONG), ("cyd", "start.ipynb", RIGHT), ("eve", "start.ipynb", RAISES)
    ]:  # fmt: skip
        cell["source"] = answer
        path = course / "submitted" / who / "00-start" / name
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(notebook)[: 900 if who == "cyd" else None], encoding="utf-8")


def grades(course):
    """{learner: (score, whether a person has yet to grade)} of the gradebook."""
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as gradebook:
        return {each.student_id: (each.score, each.needs_manual_grade) for each in gradebook.assignment_submissions("00-start")}


def records(course, name="results.jsonl"):
    """{learner: the record} of a results file."""
    return {record["who"]: record for record in map(json.loads, (course / name).read_text().splitlines())}


def column(course, name, key):
    """{learner: score} of an exported file."""
    with (course / name).open(encoding="utf-8", newline="") as file:
        return {row[key]: row["00-start"] for row in csv.DictReader(file)}


GRADES = {"ada": (3, False), "bob": (2, False), "cyd": (0, True), "eve": (0, False)}


def see_course(course, _):
    assert (course / "solutions/00-start/start.ipynb").exists() and (course / "nbgrader_config.py").exists()


def see_learners(course, _):
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as gradebook:
        found = {each.id: (each.last_name, each.lms_user_id) for each in gradebook.students}
    assert found == {"ada": ("Lovelace", "1001"), "bob": ("Ross, Jr.", "1002"), "cyd": ("Charisse", "1003"), "dan": ("Őry", "1004")}


def see_assignment(course, _):
    assert "### BEGIN SOLUTION" not in (course / "notebooks/00-start/start.ipynb").read_text(encoding="utf-8")
    hand_in(course)


def see_autograded(course, printed):
    assert grades(course) == GRADES and "Not graded: cyd." in printed


def see_graded(course, printed):
    found = {who: (record["ending"], record["score"]) for who, record in records(course).items()}
    assert found == {"ada": ("graded", 3), "bob": ("graded", 2), "cyd": ("not_gradable", 0), "eve": ("graded", 0)}
    assert grades(course) == GRADES and "Not graded: cyd." in printed and "4/4" in printed  # the progress bar


def see_cluster(course, _):
    found = records(course, "cluster.jsonl")
    assert {who: record["score"] for who, record in found.items()} == {"ada": 3, "bob": 2, "cyd": 0, "eve": 0}
    assert {record["seed"] for record in found.values()} == {7}


def see_feedback(course, _):
    pages = {who: (course / f"feedback/{who}/00-start/start.html").read_text(encoding="utf-8") for who in GRADES}
    assert f"seed {records(course)['bob']['seed']}" in pages["bob"] and "handed in as start (1).ipynb" in pages["bob"]
    assert "whatever <code>dim</code> says" in pages["bob"]
    assert "Your file arrived cut short or damaged" in pages["cyd"]
    assert [field for field in records(course)["cyd"] if f"`{field}`" not in PAGE] == ["module"]


def see_override(course, _):
    assert grades(course) == {**GRADES, "bob": (2.5, False)}


def see_forced(course, _):
    assert grades(course) == {**GRADES, "bob": (2.5, True)}


def see_regraded(course, _):
    assert {record["seed"] for record in records(course).values()} == {8} and grades(course) == {**GRADES, "bob": (2.5, True)}


def see_canvas(course, printed):
    expected = {"": "3", "ada": "3", "bob": "", "cyd": "", "dan": "", "eve": "0"}  # the first: the row of the points
    assert column(course, "canvas.csv", "SIS Login ID") == expected
    assert all(f"00-start of {who}." in printed for who in ("bob", "cyd"))


def see_moodle(course, _):
    assert column(course, "moodle.csv", "Username") == {"ada": "3", "bob": "", "cyd": "", "dan": "", "eve": "0"}


def see_stock(course, _):
    with (course / "grades.csv").open(encoding="utf-8") as file:
        assert next(row["score"] for row in csv.DictReader(file) if row["student_id"] == "ada") == "3.0"


def see_gradescope(course, _):
    results = json.loads((course / "results.json").read_text())
    assert (results["score"], [test["status"] for test in results["tests"]]) == (3, ["passed"])


def see_junit(course, _):
    (case,) = ElementTree.parse(course / "results.xml").iter("testcase")
    assert case.get("name") == "softmax" and case.find("failure") is None


def see_checked(_, printed):
    assert "00-start: 3 of 3 points" in printed


def see_valid(_, printed):
    assert "Success! Your notebook passes all the tests." in printed


EXPECTED = [  # of each command of the page: its first words, its exit status, what it leaves behind
    ("cp -r", 0, see_course),
    ("nbgrader db student import", 0, see_learners),
    ("nbgrader generate_assignment", 0, see_assignment),
    ("nbgrader autograde", 1, see_autograded),
    ("python -m autograder grade", 1, see_graded),
    ("dask scheduler", 1, see_cluster),
    ("nbgrader generate_feedback", 0, see_feedback),
    ("from nbgrader.api", 0, see_override),
    ("nbgrader autograde 00-start --create --force", 1, see_forced),
    ("python -m autograder grade", 1, see_regraded),
    ("nbgrader export --exporter=autograder.exports.Canvas", 0, see_canvas),
    ("nbgrader export --exporter=autograder.exports.Moodle", 0, see_moodle),
    ("nbgrader export --to", 0, see_stock),
    ("python -m autograder check", 0, see_gradescope),
    ("python -m pytest", 0, see_junit),
    ("python -m autograder check", 0, see_checked),
    ("nbgrader validate", 0, see_valid),
]


def commands():
    """What the page has one run, in order: a line each, Python and what works in the background as a whole."""
    found = []
    for language, text in BLOCKS:
        whole = language == "python" or "&\n" in text
        found += [(language, text)] if whole else [(language, line) for line in text.splitlines() if language == "sh"]
    return found


def run(course, language, command):
    """(exit status, what was printed) of a command in the course folder; what it left in the background is ended."""
    paths = {"PATH": [str(Path(sys.executable).parent), os.environ["PATH"]], "PYTHONPATH": [str(ROOT), os.environ.get("PYTHONPATH", "")]}
    environment = {**os.environ, "PROJECT": str(ROOT), **{name: os.pathsep.join(filter(None, value)) for name, value in paths.items()}}
    program = [sys.executable, "-c"] if language == "python" else ["bash", "-c"]
    with open(course / "printed.txt", "wb+") as printed:
        process = subprocess.Popen([*program, command], cwd=course, env=environment, stdout=printed, stderr=printed, start_new_session=True)
        try:
            status = process.wait(timeout=240)
        finally:
            os.killpg(process.pid, signal.SIGTERM) if "&\n" in command else process.kill()
        printed.seek(0)
        return status, printed.read().decode()


def test_each_command_of_the_page_does_what_it_says(tmp_path):
    (learners,) = [text for language, text in BLOCKS if language == "csv"]
    (tmp_path / "students.csv").write_text(learners, encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = commands()
    assert [command[: len(first)] for (_, command), (first, _, _) in zip(found, EXPECTED, strict=True)] == [
        first for first, _, _ in EXPECTED
    ]
    for (language, command), (_, expected, see) in zip(found, EXPECTED):
        status, printed = run(tmp_path, language, command.replace("8786", str(port)))
        assert status == expected and "Traceback" not in printed, f"{command}\n{printed}"
        see(tmp_path, printed)
