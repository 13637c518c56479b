"""Writing results into nbgrader's gradebook and its folder `autograded`, as `nbgrader autograde` would have: one process, one writer."""

import os
import warnings
from pathlib import Path

from nbgrader.api import Gradebook, MissingEntry
from sqlalchemy.exc import SAWarning

from autograder.engine import GRADED
from autograder.grading import CanNotCheck


class Book:
    """The gradebook of a course folder, for one module; a context manager. Manual grades and comments stay. Raises CanNotCheck."""

    def __init__(self, course, module):
        self._course, self._module = Path(course), module
        path = self._course / "gradebook.db"
        advice = f"Run this there first: nbgrader generate_assignment {module.folder} --create"
        if not path.exists():
            raise CanNotCheck(f"There is no gradebook in {course}. {advice}")
        self._gradebook = Gradebook(f"sqlite:///{path.resolve()}")
        try:
            self._gradebook.find_assignment(module.folder)
        except MissingEntry:
            self._gradebook.close()
            raise CanNotCheck(f"The gradebook in {course} has no assignment {module.folder}. {advice}") from None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._gradebook.close()

    def lacks(self, who):
        """Whether there is no graded notebook of theirs."""
        return not self._path(who).exists()

    def write(self, record, page, timestamp):
        """Write one submission.

        record: of the engine; without a score, a person is asked to grade it
        page: the graded notebook
        timestamp: when it was handed in, as nbgrader noted it; "" where it didn't
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SAWarning)  # nbgrader's own way of adding a submission
            self._write_scores(record, timestamp)
        path = self._path(record["who"])
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(".new")
        aside.write_text(page, encoding="utf-8")
        os.replace(aside, path)

    def _write_scores(self, record, timestamp):
        who = record["who"]
        self._gradebook.update_or_create_student(who)
        self._gradebook.update_or_create_submission(self._module.folder, who, **({"timestamp": timestamp} if timestamp else {}))
        scores = {f"check-{each['name']}": each["score"] / each["points"] for each in record["exercises"]}
        for grade in self._gradebook.find_submission_notebook(self._module.slug, self._module.folder, who).grades:
            share = scores.get(grade.name) if record["ending"] == GRADED else None
            grade.auto_score = None if share is None else share * grade.max_score
            grade.needs_manual_grade = share is None or grade.manual_score is not None  # as nbgrader does: so that they look again
        self._gradebook.db.commit()

    def _path(self, who):
        return self._course / "autograded" / who / self._module.folder / f"{self._module.slug}.ipynb"
