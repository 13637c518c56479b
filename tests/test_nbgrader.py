"""nbgrader on a class of ten, graded in its own kernel and by the course's executor: the scores that the grader itself gives."""

import csv
import json
import shutil

import pytest
from conftest import ROOT
from nbgrader.api import Gradebook

from autograder import build, cells, exercises, grading

MODULE = exercises.module("attention")
pytestmark = pytest.mark.xdist_group("nbgrader")  # a course for all tests
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


def submission(answered, module=MODULE):
    """The learner's notebook with these answers in it; its demos are left out, so that the test is quick."""
    notebook = json.loads(exercises.learners_path(module.name).read_text(encoding="utf-8"))
    kept = []
    for cell in notebook["cells"]:
        grade_id = cell["metadata"].get("nbgrader", {}).get("grade_id", "")
        if grade_id in answered:
            cell["source"] = answered[grade_id]
        is_setup = "open_module(" in "".join(cell["source"]) or "".join(cell["source"]).startswith("import ")
        if grade_id or cell["cell_type"] == "markdown" or is_setup:
            kept.append(cell)
    return json.dumps({**notebook, "cells": kept})


@pytest.fixture(scope="module", params=["nbgrader's kernel", "the course's executor"])
def course(request, tmp_path_factory):
    """A course folder with ten submissions in it, graded."""
    folder = tmp_path_factory.mktemp("course")
    new_course(folder)
    if request.param == "nbgrader's kernel":
        config = folder / "nbgrader_config.py"
        lines = config.read_text().splitlines(keepends=True)
        config.write_text("".join(line for line in lines if not line.startswith("converter.install")))
    for student, answered in CLASS.items():
        hand_in(folder, student, submission(answered).encode())
    nbgrader(folder, "autograde", MODULE.folder, "--create")
    return folder


def new_course(folder, module=MODULE):
    """Make a folder a course, after generate_assignment."""
    shutil.copy(ROOT / "nbgrader_config.py", folder)
    (folder / "solutions" / module.folder).mkdir(parents=True)
    shutil.copy(exercises.worked_path(module.name), folder / "solutions" / module.folder)
    nbgrader(folder, "generate_assignment", module.folder, "--create")


def hand_in(folder, student, data, name=f"{MODULE.slug}.ipynb", module=MODULE):
    """Put a file into a student's submission."""
    path = folder / "submitted" / student / module.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def nbgrader(folder, *command, status=0):
    """Run a command of nbgrader in a course folder; returns its log."""
    done = build.nbgrader(folder, *command)
    assert done.returncode == status, done.stderr
    return done.stderr


@pytest.mark.slow
def test_the_release_is_the_committed_notebook(course):
    released = course / "notebooks" / MODULE.folder / f"{MODULE.slug}.ipynb"
    assert json.loads(released.read_text())["cells"] == json.loads(exercises.learners_path(MODULE.name).read_text())["cells"]
    assert "HIDDEN TESTS" not in released.read_text() and "SOLUTION" not in released.read_text()


@pytest.mark.slow
def test_the_gradebook_has_the_scores_that_the_grader_gives(course):
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as gradebook:
        for student, answered in CLASS.items():
            _, verdicts = grading.check_notebook(submission(answered), seed=12345)
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
