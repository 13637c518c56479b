"""Exporters for `nbgrader export`: the gradebook's scores as the CSV files that learning management systems import.

    nbgrader export --exporter=autograder.exports.Canvas [--to FILE] [--assignment [NAMES]] [--student [IDS]]
    nbgrader export --exporter=autograder.exports.Moodle

A cell holds what the gradebook has: automatic and manual points, less the late penalty. It is empty where nothing was handed in, and where
a person has yet to grade; the latter are named in the log, on stderr.
"""

import csv

from nbgrader.plugins import ExportPlugin

from autograder import report

_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # spreadsheets take what begins so for a formula; tabs and line ends are taken out


class _CsvExport(ExportPlugin):
    """One row a learner, one column an assignment. Ends the program with a sentence where there is nothing to write, or nowhere."""

    file, head = "", ()

    def first_rows(self, assignments):
        """Rows between the head and the learners."""
        return []

    def learner(self, student):
        """The cells of a learner that stand before the scores."""
        raise NotImplementedError

    def export(self, gradebook):
        """Write the file."""
        assignments = _chosen("assignment", {each.name: each for each in gradebook.assignments}, self.assignment)
        students = _chosen("student", {each.id: each for each in gradebook.students}, self.student)
        scores = {each.name: {} for each in assignments}
        for name, column in scores.items():
            for submission in gradebook.assignment_submissions(name):
                if submission.needs_manual_grade:
                    if submission.student in students:
                        self.log.warning("Left empty, as a person has yet to grade it: %s of %s.", name, _cell(submission.student_id))
                else:
                    column[submission.student_id] = _number(max(0.0, submission.score - submission.late_submission_penalty))
        rows = [[*self.head, *scores], *self.first_rows(assignments)]
        for student in students:
            if _cell(student.id) != student.id:
                self.log.warning("Look for this learner's scores by hand, the id can't stand in a spreadsheet: %s.", _cell(student.id))
            rows.append([*self.learner(student), *(column.get(student.id, "") for column in scores.values())])
        path = self.to or self.file
        try:
            with open(path, "w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows([_cell(cell) for cell in row] for row in rows)
        except OSError as error:
            raise SystemExit(f"{path} can't be written: {error.strerror}.") from None
        self.log.info("%d learners, %d assignments: %s", len(students), len(assignments), path)


class Canvas(_CsvExport):
    """What Canvas imports under Grades, Import: canvas.csv, unless `--to` names another.

    Columns "Student" to "Section" in this order, then the assignments, and a row "Points Possible". Canvas finds a learner by "ID" (its own
    number: nbgrader's `lms_user_id`), else by "SIS Login ID" (nbgrader's id), else by the name; and an assignment by its name, which it
    offers to create where it has none. Its importer: github.com/instructure/canvas-lms, lib/gradebook_importer.rb; its guide:
    community.canvaslms.com, "How do I import grades in the Gradebook?".
    """

    file, head = "canvas.csv", ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")

    def first_rows(self, assignments):
        return [["Points Possible", "", "", "", "", *(_number(each.max_score) for each in assignments)]]

    def learner(self, student):
        name = ", ".join(part for part in (student.last_name, student.first_name) if part) or student.id
        name = name.replace("Points Possible", "Points possible")  # Canvas takes any such row for the one of the points
        return [name, student.lms_user_id, "", student.id, ""]


class Moodle(_CsvExport):
    """What Moodle imports under Grades, Import, CSV file: moodle.csv, unless `--to` names another.

    The columns are named as in Moodle's own export; on the page that follows, map "Username" to "username" (nbgrader's id), or "ID number"
    (nbgrader's `lms_user_id`) or "Email address" to their like, and each assignment to a grade item with as many points. A learner whom
    Moodle does not find stops its import. An empty cell is no grade, but older Moodles took it for 0 in a *new* grade item: make the item
    first. The format: docs.moodle.org, "Grade import"; its importer: github.com/moodle/moodle, grade/import/csv/classes/load_data.php.
    """

    file, head = "moodle.csv", ("Username", "ID number", "First name", "Last name", "Email address")

    def learner(self, student):
        return [student.id, student.lms_user_id, student.first_name, student.last_name, student.email]


def _chosen(kind, found, names):
    """Those that were asked for by name; all where none was."""
    names = [str(name) for name in names]
    if missing := [name for name in names if name not in found]:
        raise SystemExit(f"The gradebook has no {kind} named {', '.join(missing)}.")
    if not found:
        raise SystemExit(f"The gradebook has no {kind} yet, so there is nothing to export. Is this the folder of the course?")
    return [each for name, each in found.items() if not names or name in names]


def _number(score):
    return f"{score:.10g}"


def _cell(value):
    """A text (or None) as a cell that no spreadsheet takes for a formula: owasp.org, "CSV Injection"."""
    text = " ".join(report.printable(value or "").replace(";", ",").split())  # in much of Europe, Excel begins a new cell at a semicolon
    return f"'{text}" if text.startswith(_FORMULA) else text
