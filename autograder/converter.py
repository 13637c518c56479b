"""`nbgrader autograde`, on the command line and by formgrader's button, with this course's grader in the place of a kernel.

A submission is repaired first, into a folder of its own, so that all later steps of nbgrader meet a sound notebook and no link.
What can't be graded gets no score but a page that says why, and is named when the rest of the class is done.
"""

import glob
import json
import os
import re
import secrets
import shutil
import tempfile
from pathlib import Path

import nbformat
from nbconvert.exporters import HTMLExporter
from nbgrader import utils
from nbgrader.api import Gradebook
from nbgrader.apps import api, autogradeapp
from nbgrader.converters import Autograde
from nbgrader.converters.base import NbGraderException
from nbgrader.server_extensions.formgrader import base as formgrader

KEY = "attention_by_hand"  # in the metadata of what is in autograded/: what was graded, and how


def install(config):
    """Have nbgrader grade with this; nbgrader has no setting for that, so what it calls is replaced: on the command line, in formgrader."""
    api.Autograde = autogradeapp.Autograde = CourseAutograde
    api.capture_log = _capture_log
    formgrader.BaseHandler.exporter = property(_exporter)
    own = "nbgrader.preprocessors."  # of its steps those that a repaired notebook needs: its metadata are those that were given out
    config.Autograde.sanitize_preprocessors = [f"{own}OverwriteCells"]
    config.Autograde.autograde_preprocessors = ["autograder.executor.Grade", f"{own}SaveAutoGrades", f"{own}AssignLatePenalties"]


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
    """nbgrader's Autograde, for submissions as they really arrive."""

    def start(self):
        """Grade what is new or has changed. Raises NbGraderException where some could not be graded, after all others were."""
        self._seed = secrets.randbits(32)
        self._not_graded = {}  # {student: sentence}
        from autograder import isolation

        with tempfile.TemporaryDirectory() as self._repaired, isolation.one_core(os.getpid()):
            super().start()

    def init_notebooks(self):
        """Take every folder that was handed in, whatever is in it."""
        # not before they are needed: most of nbgrader's commands never grade
        from autograder import executor, exercises, grading, isolation, submission

        assignment = self.coursedir.assignment_id
        released = self.coursedir.format_path(self.coursedir.release_directory, ".", assignment)
        try:
            self._module = exercises.in_folder(assignment)
            isolation.for_others(executor.Grade(parent=self).isolation)
            self._master = submission.given_out(os.path.join(released, f"{self._module.slug}.ipynb"), self._module)
        except (isolation.NoIsolation, grading.CanNotCheck, ValueError) as error:
            raise self._refused(str(error)) from None
        submitted = self.coursedir.submitted_directory
        pattern = self.coursedir.format_path(submitted, "(?P<student>[^/]+)", re.escape(assignment), escape=True)
        found = glob.glob(self.coursedir.format_path(submitted, self.coursedir.student_id, assignment))
        self._folders = {re.fullmatch(pattern, path)["student"]: path for path in sorted(found)}
        if not self._folders:
            raise self._refused(f"There is no submission of {assignment} in {os.path.join(self.coursedir.root, submitted)}.")
        for student, path in self._folders.items():
            if os.path.islink(path) or not os.path.isdir(path):
                self._not_graded[student] = f"{path} is no folder of its own."
                continue
            folder = self.coursedir.format_path(self._repaired, student, assignment)
            self.assignments[folder] = [os.path.join(folder, f"{self._module.slug}.ipynb")]

    def convert_notebooks(self):
        """Grade them all, one after the other, then name those that could not be graded."""
        submitted = self.coursedir.submitted_directory
        self.coursedir.submitted_directory = self._repaired
        try:
            super().convert_notebooks()
        finally:
            self.coursedir.submitted_directory = submitted
            for student, sentence in self._not_graded.items():
                self.log.error("Not graded: %s. %s", student, sentence)
        if self._not_graded:
            raise NbGraderException(f"Not graded: {', '.join(self._not_graded)}.")

    def init_destination(self, assignment_id, student_id):
        """Repair a submission; returns whether it is to be graded: it is new, or has changed, or all are to be graded again."""
        folder = Path(self.coursedir.format_path(self._repaired, student_id, assignment_id))
        folder.mkdir(parents=True)
        notebook = self._repair(student_id)
        nbformat.write(notebook, folder / f"{self._module.slug}.ipynb")
        if handed_in := timestamp(self._folders[student_id]):
            (folder / "timestamp.txt").write_text(handed_in)
        before = _record(Path(self._format_dest(assignment_id, student_id)) / f"{self._module.slug}.ipynb")
        changed = before.get("submitted") != notebook.metadata[KEY]["submitted"] or "refused" in before
        force, self.force = self.force, self.force or changed
        try:
            return super().init_destination(assignment_id, student_id)
        finally:
            self.force = force

    def _repair(self, student_id):
        """The notebook to be graded; where there is none, an empty one that says why."""
        from autograder import executor, repair, submission

        try:
            repaired = submission.repaired(self._folders[student_id], self._module, self._master)
            return executor.stamped(repaired.notebook, repairs=list(repaired.repairs))
        except repair.NotGradable as error:
            self._not_graded[student_id] = str(error)
            return executor.stamped(self._master, refused=error.learner)

    def init_single_notebook_resources(self, notebook_filename):
        """nbgrader's, and the seed of this run."""
        resources = super().init_single_notebook_resources(notebook_filename)
        resources["nbgrader"]["seed"] = self._seed
        return resources

    def convert_single_notebook(self, notebook_filename):
        """Grade one; where that is not possible, leave no score that could be taken for a grade."""
        from autograder.grading import CanNotCheck
        from autograder.process import InfrastructureError

        resources = self.init_single_notebook_resources(notebook_filename)["nbgrader"]
        student, assignment = resources["student"], resources["assignment"]
        try:
            super().convert_single_notebook(notebook_filename)
        except (CanNotCheck, InfrastructureError) as error:
            self._not_graded[student] = str(error)
            shutil.rmtree(self._format_dest(assignment, student), ignore_errors=True)
        else:
            if student in self._not_graded:
                self._leave_to_a_person(resources)

    def _leave_to_a_person(self, resources):
        with Gradebook(self.coursedir.db_url, self.coursedir.course_id) as gradebook:
            notebook = gradebook.find_submission_notebook(resources["notebook"], resources["assignment"], resources["student"])
            for grade in notebook.grades:
                grade.auto_score, grade.needs_manual_grade = None, True
            gradebook.db.commit()

    def _refused(self, sentence):
        self.log.error(sentence)
        return NbGraderException(sentence)


def _record(path):
    """What is noted in a notebook that was graded; empty where there is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))["metadata"][KEY]
    except (OSError, ValueError, KeyError):
        return {}


def timestamp(folder):
    """What nbgrader noted as the time of a submission, if it is a time; "" where there is none."""
    try:
        with open(os.open(os.path.join(folder, "timestamp.txt"), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), encoding="utf-8") as file:
            text = file.read(100).strip()
        return text if utils.parse_utc(text) else ""
    except (OSError, ValueError, OverflowError):
        return ""
