"""A pytest plugin by which each exercise of a notebook is a test, for GitHub Classroom and whatever else reads JUnit's XML.

    python -m pytest -p autograder.junit start.ipynb --junitxml=results.xml     # all exercises
    python -m pytest -p autograder.junit start.ipynb::softmax                   # one

A test passes where all points are earned; its properties `score` and `points` tell of part of them.
"""

import pytest

from autograder import grading, report
from autograder.verdict import PASSED


def pytest_collect_file(file_path, parent):
    """Take every notebook that pytest comes upon."""
    return Notebook.from_parent(parent, path=file_path) if file_path.suffix == ".ipynb" else None


class NotPassed(Exception):
    """The message is for the learner."""


class Notebook(pytest.File):
    """A notebook: a test for each exercise of its module, or where it can't be checked, one that fails and says why."""

    def collect(self):
        try:
            text = grading.read(self.path)
            _, module = grading.open_notebook(text)
        except grading.CanNotCheck as error:
            return [Exercise.from_parent(self, name="notebook", text=None, refusal=str(error))]
        return [Exercise.from_parent(self, name=exercise.name, text=text) for exercise in module.exercises]


class Exercise(pytest.Item):
    """One exercise, checked in a process of its own."""

    def __init__(self, *, text, refusal="", **kwargs):
        super().__init__(**kwargs)
        self._text, self._refusal = text, refusal

    def runtest(self):
        if self._refusal:
            raise NotPassed(self._refusal)
        _, (verdict,) = grading.check_notebook(self._text, self.name)
        self.user_properties += [("score", verdict.score), ("points", verdict.points)]
        if verdict.status != PASSED:
            raise NotPassed(report.text(verdict))

    def repr_failure(self, excinfo):
        return report.printable(str(excinfo.value)) if excinfo.errisinstance(NotPassed) else super().repr_failure(excinfo)

    def reportinfo(self):
        return self.path, None, self.name
