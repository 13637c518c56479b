"""What is committed is what the build gives, to the byte; and what the learner gets holds no answer."""

import json
import re

import nbformat
import pytest

from autograder import build, exercises, grading

MODULES = exercises.modules()


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_the_worked_notebook_is_what_the_lesson_gives(module):
    committed = nbformat.read(exercises.worked_path(module.name), 4)
    assert build.without_outputs(committed) == build.worked(module), f"stale: run python -m autograder build {module.name}"
    assert build.has_outputs(committed)
    errors = [output.evalue for cell in committed.cells for output in cell.get("outputs", []) if output.output_type == "error"]
    assert not errors


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_every_check_of_the_worked_notebook_passed(module):
    committed = nbformat.read(exercises.worked_path(module.name), 4)
    for exercise in module.exercises:
        (cell,) = [cell for cell in committed.cells if cell.metadata.get("nbgrader", {}).get("grade_id") == f"check-{exercise.name}"]
        assert cell.outputs[-1].data["text/plain"] == str(exercise.points), exercise.name


@pytest.mark.slow
@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_the_worked_notebook_earns_every_point_and_the_learners_none(module):
    for path, right in ((exercises.worked_path(module.name), True), (exercises.learners_path(module.name), False)):
        _, verdicts = grading.check_notebook(path.read_text(encoding="utf-8"), seed=2**40)
        assert {verdict.name: verdict.score for verdict in verdicts} == {
            exercise.name: exercise.points * right for exercise in module.exercises
        }, [verdict.message for verdict in verdicts if verdict.status != "passed"]


@pytest.mark.slow
@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_the_learners_notebook_is_what_nbgrader_makes_of_it(module):
    committed = exercises.learners_path(module.name).read_text(encoding="utf-8")
    assert committed == build.release(module, build.worked(module)), f"stale: run python -m autograder build {module.name}"


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_the_learners_notebook_holds_no_answer_and_no_output(module):
    notebook = json.loads(exercises.learners_path(module.name).read_text(encoding="utf-8"))
    cells = {cell["metadata"].get("nbgrader", {}).get("grade_id", cell["id"]): cell for cell in notebook["cells"]}
    for exercise in module.exercises:
        source = "".join(cells[exercise.name]["source"])
        assert "raise NotImplementedError()" in source and '"""' in source
        assert "".join(cells[f"check-{exercise.name}"]["source"]).strip() == f"check({exercise.name})"
    assert not any(cell.get("outputs") for cell in notebook["cells"])
    assert not re.search(r"BEGIN SOLUTION|HIDDEN TESTS", json.dumps(notebook))
