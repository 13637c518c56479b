"""Stock nbgrader on a class of ten: generate, autograde, feedback, export, with the scores that the grader itself gives."""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT
from nbgrader.api import Gradebook

from autograder import build, cells, exercises, grading

MODULE = exercises.module("attention")
pytestmark = pytest.mark.xdist_group("nbgrader")  # one course for all tests
RAISES = "raise RuntimeError('lost')"
EINSUM = "def attention_scores(a, b):\n    return torch.einsum('...tk,...sk->...ts', a, b) * a.shape[-1] ** -0.5"


def answers(*names, **changed):
    """The learner's cells: references for the named exercises, texts for the changed ones, stubs for the rest."""
    return {
        exercise.name: changed.get(exercise.name)
        or (cells.solution(exercise.reference) if exercise.name in names or "all" in names else cells.stub(exercise.reference))
        for exercise in MODULE.exercises
    }


def patched(name, old, new):
    """The reference's cell with something else in one place."""
    source = cells.solution(MODULE.exercise(name).reference)
    assert source.count(old) == 1
    return {name: source.replace(old, new)}


CLASS = {
    "right-1": answers("all"),
    "right-2": answers("all", attention_scores=EINSUM),
    "right-3": answers("all", **patched("causal_mask", "torch.ones(T, S, dtype=torch.bool).tril(S - T)",
                                        "torch.arange(S) <= torch.arange(T)[:, None] + S - T")),
    "wrong-1": answers("all", **patched("softmax", "(x - x.amax(dim, keepdim=True))", "x")),
    "wrong-2": answers("all", **patched("attention_scores", " / math.sqrt(q.shape[-1])", "")),
    "wrong-3": answers("all", **patched("causal_mask", "tril(S - T)", "tril(S - T + 1)")),
    "partly-1": answers("softmax", "attention_scores", "causal_mask"),
    "partly-2": answers("softmax", "padding_mask", combine_masks="def combine_masks(*masks):\n    return masks[0] & masks[1]"),
    "empty": answers(),
    "raising": answers("all", **patched("softmax", "    ### END SOLUTION", "    " + RAISES)),
}  # fmt: skip


def submission(answered):
    """The learner's notebook with these answers in it; its demos are left out, so that the test is quick."""
    notebook = json.loads(build.learners_path(MODULE).read_text(encoding="utf-8"))
    kept = []
    for cell in notebook["cells"]:
        grade_id = cell["metadata"].get("nbgrader", {}).get("grade_id", "")
        if grade_id in answered:
            cell["source"] = answered[grade_id]
        is_setup = "open_module(" in "".join(cell["source"]) or "".join(cell["source"]).startswith("import ")
        if grade_id or cell["cell_type"] == "markdown" or is_setup:
            kept.append(cell)
    return json.dumps({**notebook, "cells": kept})


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A course folder after generate_assignment, with ten submissions in it, graded."""
    folder = tmp_path_factory.mktemp("course")
    shutil.copy(ROOT / "nbgrader_config.py", folder)
    (folder / "solutions" / MODULE.folder).mkdir(parents=True)
    shutil.copy(build.worked_path(MODULE), folder / "solutions" / MODULE.folder)
    nbgrader(folder, "generate_assignment", MODULE.folder, "--create")
    for student, answered in CLASS.items():
        path = folder / "submitted" / student / MODULE.folder / f"{MODULE.slug}.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text(submission(answered), encoding="utf-8")
    nbgrader(folder, "autograde", MODULE.folder, "--create")
    return folder


def nbgrader(folder, *command):
    """Run a command of nbgrader in a course folder."""
    environment = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    command = [sys.executable, "-m", "nbgrader", *command]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_release_is_the_committed_notebook(course):
    released = course / "notebooks" / MODULE.folder / f"{MODULE.slug}.ipynb"
    assert json.loads(released.read_text())["cells"] == json.loads(build.learners_path(MODULE).read_text())["cells"]
    assert "HIDDEN TESTS" not in released.read_text() and "SOLUTION" not in released.read_text()


@pytest.mark.slow
def test_the_gradebook_has_the_scores_that_the_grader_gives(course):
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as gradebook:
        for student, answered in CLASS.items():
            _, verdicts = grading.check_text(submission(answered), seed=12345)
            expected = {verdict.name: verdict.score for verdict in verdicts}
            grades = gradebook.find_submission(MODULE.folder, student).notebooks[0].grades
            assert {grade.name.removeprefix("check-"): grade.auto_score for grade in grades} == expected, student
            assert sum(grade.max_score for grade in grades) == MODULE.points
        scores = {student: gradebook.find_submission(MODULE.folder, student).score for student in CLASS}
    assert scores["right-1"] == scores["right-2"] == MODULE.points > scores["wrong-1"] > scores["partly-1"] > scores["empty"] == 0


@pytest.mark.slow
def test_feedback_names_the_mistake_and_export_has_the_class(course):
    nbgrader(course, "generate_feedback", MODULE.folder)
    feedback = (course / "feedback" / "wrong-2" / MODULE.folder / f"{MODULE.slug}.html").read_text()
    assert "The scores are not scaled" in feedback and "seed=" in feedback  # the hidden seed is noted, so a grade can be reproduced
    nbgrader(course, "export")
    rows = list(csv.DictReader((course / "grades.csv").open()))
    assert {row["student_id"]: float(row["score"]) for row in rows}["right-2"] == MODULE.points and len(rows) == len(CLASS)
