"""Writing results into nbgrader's gradebook and its folder `autograded`, as `nbgrader autograde` would have: one process, one writer."""

import contextlib
import functools
import os
from pathlib import Path

from nbformat import v4
from nbgrader import utils
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.converters import autograde
from nbgrader.preprocessors import AssignLatePenalties, latesubmissions, overwritecells, saveautogrades
from traitlets.config import Config, ConfigFileNotFound, PyFileConfigLoader

from autograder import exercises
from autograder.engine import GRADED
from autograder.verdict import CanNotCheck


class Book:
    """The gradebook of a course folder, for one module; a context manager. Manual grades and comments stay. Raises CanNotCheck."""

    def __init__(self, course, name):
        self._course, self._slug, self._folder = Path(course), exercises.slug(name), exercises.folder(name)
        path = self._course / "gradebook.db"
        advice = f"Run this there first: nbgrader generate_assignment {self._folder} --create"
        if not path.exists():
            raise CanNotCheck(f"There is no gradebook in {course}. {advice}")
        self._url = f"sqlite:///{path.resolve()}"
        self._gradebook, self._session = _uncommitted(self._url)
        self._session.expire_on_commit = False  # nobody else writes: what was read need not be read again for each submission
        try:
            self._assignment = self._gradebook.find_assignment(self._folder)
        except MissingEntry:
            self._gradebook.close()
            raise CanNotCheck(f"The gradebook in {course} has no assignment {self._folder}. {advice}") from None

        (notebook,) = (each for each in self._assignment.notebooks if each.name == self._slug)
        self._cells = {cell.id: (cell.name, cell.max_score) for cell in notebook.grade_cells}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._gradebook.close()

    def lacks(self, who):
        """Whether there is no graded notebook of theirs."""
        return not self._path(who).exists()

    def write(self, results):
        """Write submissions, in one transaction.

        results: of each, the record, as the engine has it (without a score, a person is asked to grade it); the graded notebook, as text;
            and the path of the folder that was handed in
        """
        with self._session.no_autoflush:  # else each query would first write what is new, a submission at a time
            for record, _, _ in results:
                self._gradebook.update_or_create_student(record["who"])
            self._session.flush()
            late = [record["who"] for record, _, submitted in results if self._write_scores(record, timestamp(submitted))]
        self._session.commit()
        for who in late:
            nbgrader = {"notebook": self._slug, "assignment": self._folder, "student": who, "db_url": self._url}
            self._penalties.preprocess(v4.new_notebook(), {"nbgrader": nbgrader})
        for record, page, _ in results:
            path = self._path(record["who"])
            path.parent.mkdir(parents=True, exist_ok=True)
            aside = path.with_suffix(".new")
            aside.write_text(page, encoding="utf-8")
            os.replace(aside, path)

    def _write_scores(self, record, handed_in):
        """Returns whether it was handed in late."""
        who = record["who"]
        submission = self._gradebook.update_or_create_submission(self._folder, who, **({"timestamp": handed_in} if handed_in else {}))
        shares = {f"check-{each['name']}": each["score"] / each["points"] for each in record["exercises"]}
        (notebook,) = (each for each in submission.notebooks if each.name == self._slug)
        for grade in notebook.grades:
            name, most = self._cells[grade.cell_id]
            share = shares.get(name) if record["ending"] == GRADED else None
            grade.auto_score = None if share is None else share * most
            grade.needs_manual_grade = share is None or grade.manual_score is not None  # as nbgrader does: so that they look again
        notebook.late_submission_penalty = None
        return submission.total_seconds_late > 0

    @functools.cached_property
    def _penalties(self):
        """nbgrader's own step, as the course has set it up."""
        try:
            config = PyFileConfigLoader("nbgrader_config.py", str(self._course)).load_config()
        except ConfigFileNotFound:
            config = Config()
        return AssignLatePenalties(config=config)

    def _path(self, who):
        return self._course / "autograded" / who / self._folder / f"{self._slug}.ipynb"


@contextlib.contextmanager
def one_transaction(url, course):
    """While this lasts, all that nbgrader's autograde does goes through one connection; yields its session, which is to be committed.

    Each of its steps would open the gradebook for itself, and wait for the disk after each cell.
    """
    book, session = _uncommitted(url, course)
    close, book.close = book.close, lambda: None
    steps = (autograde, overwritecells, saveautogrades, latesubmissions)
    for step in steps:
        step.Gradebook = lambda *_: book
    try:
        yield session
    finally:
        for step in steps:
            step.Gradebook = Gradebook
        close()


def _uncommitted(*arguments):
    """A Gradebook that does not commit after each of its steps, and its session, which does."""
    book = Gradebook(*arguments)
    session = book.db()
    book.db.commit = lambda: None  # what is not yet written is, before the next query
    return book, session


def timestamp(folder):
    """What nbgrader noted as the time of a submission, if it is a time; "" where there is none."""
    try:
        with open(os.open(os.path.join(folder, "timestamp.txt"), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), encoding="utf-8") as file:
            text = file.read(100).strip()
        return text if utils.parse_utc(text) else ""
    except (OSError, ValueError, OverflowError):
        return ""
