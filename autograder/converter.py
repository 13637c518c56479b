"""`nbgrader autograde`, on the command line and by formgrader's button, with this course's grader in the place of a kernel.

A submission is repaired first, into a folder of its own, so that all later steps of nbgrader meet a sound notebook and no link.
What can't be graded gets no score but a page that says why, and is named when the rest of the class is done.
"""

import functools
import glob
import json
import multiprocessing
import os
import re
import secrets
import shutil
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import nbformat
from nbconvert.exporters import HTMLExporter
from nbgrader import utils
from nbgrader.apps import api, autogradeapp
from nbgrader.converters import Autograde, autograde
from nbgrader.converters.base import NbGraderException
from nbgrader.server_extensions.formgrader import base as formgrader

from autograder import engine, exercises, preprocessor, program
from autograder.gradebook import one_transaction, timestamp
from autograder.page import KEY
from autograder.verdict import CanNotCheck

AHEAD = 3  # submissions that are being graded ahead of nbgrader's own steps, for each core


def install(config):
    """Have nbgrader grade with this; nbgrader has no setting for that, so what it calls is replaced: on the command line, in formgrader."""
    api.Autograde = autogradeapp.Autograde = CourseAutograde
    api.capture_log = _capture_log
    formgrader.BaseHandler.exporter = property(_exporter)
    own = "nbgrader.preprocessors."  # of its steps those that a repaired notebook needs: its metadata are those that were given out
    config.Autograde.sanitize_preprocessors = [f"{own}OverwriteCells"]
    config.Autograde.autograde_preprocessors = ["autograder.preprocessor.Grade", f"{own}SaveAutoGrades", f"{own}AssignLatePenalties"]


def _exporter(handler):
    """Shows a submission by the settings of the course that is open; nbgrader would keep to those with which the server was started."""
    return HTMLExporter(config=handler.settings["nbgrader_formgrader"].config)


def _capture_log(app):
    """nbgrader's, for formgrader's buttons, without a traceback below a log that already says in a sentence what was wrong."""
    result = utils.capture_log(app)
    if f"\n{NbGraderException.__module__}.{NbGraderException.__name__}: " in result.get("error", ""):
        del result["error"]
    return result


class CourseAutograde(Autograde):
    """nbgrader's Autograde, for submissions as they really arrive; processes of its own grade ahead of nbgrader's steps."""

    def start(self):
        """Grade what is new or has changed. Raises NbGraderException where some could not be graded, after all others were."""
        self._seed = secrets.randbits(62)
        self._not_graded = {}  # {student: sentence}
        self._at_work = {}  # {student: what is known of them before, and the _Call that grades them}
        with tempfile.TemporaryDirectory() as self._repaired:
            super().start()

    def init_notebooks(self):
        """Take every folder that was handed in, whatever is in it."""
        assignment = self.coursedir.assignment_id
        submitted = self.coursedir.submitted_directory
        pattern = self.coursedir.format_path(submitted, "(?P<student>[^/]+)", re.escape(assignment), escape=True)
        found = glob.glob(self.coursedir.format_path(submitted, self.coursedir.student_id, assignment))
        self._folders = {re.fullmatch(pattern, path)["student"]: path for path in sorted(found)}
        self._processes = min(len(self._folders), engine.cores()) or 1
        released = self.coursedir.format_path(self.coursedir.release_directory, ".", assignment)
        try:
            self._name = exercises.in_folder(assignment)
            self._file = f"{exercises.slug(self._name)}.ipynb"
            self._released = os.path.abspath(os.path.join(released, self._file))
            self._tier = self._call(engine.ready, self._name, self._released, preprocessor.Grade(parent=self).isolation).result()
        except (CanNotCheck, ValueError) as error:
            raise self._refused(str(error)) from None
        if not self._folders:
            raise self._refused(f"There is no submission of {assignment} in {os.path.join(self.coursedir.root, submitted)}.")
        for student, path in self._folders.items():
            if os.path.islink(path) or not os.path.isdir(path):
                self._not_graded[student] = f"{path} is no folder of its own."
                continue
            folder = self.coursedir.format_path(self._repaired, student, assignment)
            self.assignments[folder] = [os.path.join(folder, self._file)]
        taken = [student for student in self._folders if student not in self._not_graded]
        # in the order in which nbgrader takes them
        self._waiting = iter(sorted(taken, key=lambda student: self.coursedir.format_path(self._repaired, student, assignment)))

    def convert_notebooks(self):
        """Grade them all, then name those that could not be graded."""
        submitted = self.coursedir.submitted_directory
        self.coursedir.submitted_directory = self._repaired
        try:
            with one_transaction(self.coursedir.db_url, self.coursedir.course_id) as self._session:
                super().convert_notebooks()
        finally:
            for _, call in self._at_work.values():
                call.cancel()
            self.coursedir.submitted_directory = submitted
            for student, sentence in self._not_graded.items():
                self.log.error("Not graded: %s. %s", student, sentence)
        if self._not_graded:
            raise NbGraderException(f"Not graded: {', '.join(self._not_graded)}.")

    def init_destination(self, assignment_id, student_id):
        """Repair a submission; returns whether it is to be graded: it is new, or has changed, or all are to be graded again."""
        self._session.rollback()  # what an earlier one left that failed on its way
        before, call = self._next(student_id)
        try:
            self._student, self._prepared = student_id, _prepared(call)  # of the one whose turn it is
        except CanNotCheck as error:
            self._lose(student_id, str(error))
            return False
        prepared = self._prepared
        if prepared.not_gradable:
            self._not_graded[student_id] = prepared.not_gradable
        folder = Path(self.coursedir.format_path(self._repaired, student_id, assignment_id))
        folder.mkdir(parents=True)
        nbformat.write(nbformat.from_dict(prepared.notebook), folder / self._file)
        if handed_in := timestamp(self._folders[student_id]):
            (folder / "timestamp.txt").write_text(handed_in)
        changed = before.get("submitted") != prepared.notebook["metadata"][KEY]["submitted"] or "refused" in before
        force, self.force = self.force, self.force or changed
        try:
            return super().init_destination(assignment_id, student_id)
        finally:
            self.force = force

    def _next(self, student_id):
        """(what is known of the graded notebook of a student, the _Call that grades their submission), with those after it under way."""
        for _, student in zip(range(AHEAD * self._processes + 1 - len(self._at_work)), self._waiting):
            path = Path(self._format_dest(self.coursedir.assignment_id, student)) / self._file
            known = _record(path)
            again = self.force or not path.exists() or "refused" in known
            self._at_work[student] = known, self._grade(student, "" if again else known.get("submitted", ""))
        return self._at_work.pop(student_id)

    def _grade(self, student, known):
        path = os.path.abspath(self._folders[student])
        return self._call(engine.prepare, path, self._name, self._released, self._seed, self._tier, known)

    def _call(self, *call):
        return _Call(self._processes, *call)

    def init_single_notebook_resources(self, notebook_filename):
        """nbgrader's, and the verdicts. Raises CanNotCheck."""
        resources = super().init_single_notebook_resources(notebook_filename)
        if self._prepared.verdicts is None and not self._prepared.not_gradable:  # nothing has changed but the time of handing in
            self._prepared = _prepared(self._grade(self._student, ""))
        resources["nbgrader"]["verdicts"] = self._prepared.verdicts
        return resources

    def convert_single_notebook(self, notebook_filename):
        """Grade one; where that is not possible, leave no score that could be taken for a grade."""
        student = self._student
        try:
            super().convert_single_notebook(notebook_filename)
        except CanNotCheck as error:
            self._lose(student, str(error))
            self._session.rollback()
        else:
            if student in self._not_graded:
                self._leave_to_a_person(student)
            self._session.commit()

    def _lose(self, student, sentence):
        self._not_graded[student] = sentence
        shutil.rmtree(self._format_dest(self.coursedir.assignment_id, student), ignore_errors=True)

    def _leave_to_a_person(self, student):
        found = autograde.Gradebook().find_submission_notebook(exercises.slug(self._name), self.coursedir.assignment_id, student)
        for grade in found.grades:
            grade.auto_score, grade.needs_manual_grade = None, True

    def _refused(self, sentence):
        self.log.error(sentence)
        return NbGraderException(sentence)


class _Call:
    """A call of a function in one of several processes; where these were lost with one of them, once more."""

    def __init__(self, processes, *call):
        self._processes, self._call = processes, call
        self._submit()

    def _submit(self):
        self._pool = _pool(self._processes)
        try:
            self._future = self._pool.submit(*self._call)
        except BrokenProcessPool:  # while nobody asked anything of it
            self._renew()
            self._future = self._pool.submit(*self._call)

    def _renew(self):
        if _pool(self._processes) is self._pool:  # and no other call has done it
            _pool.cache_clear()
        self._pool = _pool(self._processes)

    def result(self):
        """What it returns, and raises; CanNotCheck where it is lost again."""
        try:
            return self._future.result()
        except BrokenProcessPool:
            self._renew()
            self._submit()
        try:
            return self._future.result()
        except BrokenProcessPool:
            raise CanNotCheck("The processes that grade were lost twice over it. Is there enough memory?") from None

    def cancel(self):
        """It is not wanted any more."""
        self._future.cancel()


def _prepared(call):
    """The Prepared submission that a _Call returns. Raises CanNotCheck where there is only an error."""
    prepared = call.result()
    if prepared.error:
        raise CanNotCheck(prepared.error)
    return prepared


@functools.cache
def _pool(processes):
    """So many processes that grade, kept for the next time: formgrader's button grades one submission after the other.

    nbgrader's own process, which may be Jupyter's server, imports no torch, and is not forked.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["autograder.zygote"])
    pool = ProcessPoolExecutor(processes, context, initializer=engine.start_worker, initargs=(_parent(),))
    main, hidden = sys.modules["__main__"], {}
    try:
        for name in ("__file__", "__spec__"):  # they would import the program that was started: all of nbgrader
            hidden[name] = getattr(main, name, None)
            setattr(main, name, None)
        for _ in range(processes):
            pool.submit(os.getpid)  # starts one
    finally:
        for name, value in hidden.items():
            setattr(main, name, value)
    return pool


@functools.cache
def _parent():
    """The warm parent that they share."""
    return program.likely_parent("")


def _record(path):
    """What is noted in a notebook that was graded; empty where there is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))["metadata"][KEY]
    except (OSError, ValueError, KeyError):
        return {}
