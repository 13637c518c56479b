"""What leaves for other systems: Canvas's and Moodle's CSV, Gradescope's results.json, JUnit's XML; and nbgrader's Validator agrees."""

import csv
import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest
from conftest import ROOT, answered, notebook_text
from nbgrader.api import Gradebook
from nbgrader.validator import Validator
from test_nbgrader import nbgrader

from autograder import __main__ as command
from autograder import cells, exercises, exports, grading, report
from autograder.check import without_points
from autograder.verdict import COULD_NOT_CHECK

MODULE = exercises.module("start")
HTML = "<script>alert(1)</script>\x1b[31m"
RAISES = f"def softmax(x, dim):\n    raise ValueError({HTML!r})"
LEARNERS = {  # id: (first name, last name, e-mail, number in the LMS)
    "ada": ("Ada", "Lovelace", "ada@example.org", "1001"),
    "bob": ("Bob", 'Ross, "Jr."', "bob@example.org", "1002"),
    "dan": ("Dániel", "Őry 数", None, None),
    "eve": ("=1+1", "\t=HYPERLINK(\"http://evil\")", "+eve@example.org", "@1"),
    "fay": ("x;\"=1+1", "Points Possible", "-;=1", ""),
    "-gil": (None, None, None, None),
    "hal": (None, "Late", "hal@example.org", None),
}  # fmt: skip
GRADED = {  # id: {assignment: (automatic points, a person's, late penalty, whether a person has yet to grade)}
    "ada": {"00-start": (3, None, 0, False), "01-attention": (2, 3.5, 0, False)},
    "bob": {"00-start": (0, None, 0, False), "01-attention": (2, 3.5, 0, True)},
    "dan": {"00-start": (None, None, 0, True)},
    "eve": {"01-attention": (4, None, 0.7, False)},
    "-gil": {"00-start": (1, None, 0, False)},
    "hal": {"00-start": (1, None, 2, False)},
}


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A course folder with a gradebook of two assignments, of 3 and of 4.5 points."""
    folder = tmp_path_factory.mktemp("course")
    nbgrader(folder, "db", "student", "list")  # makes the gradebook
    with Gradebook(f"sqlite:///{folder / 'gradebook.db'}") as gradebook:
        for name, points in {"00-start": 3, "01-attention": 4.5}.items():
            gradebook.add_assignment(name)
            gradebook.add_notebook("notebook", name)
            gradebook.add_grade_cell("check", "notebook", name, max_score=points, cell_type="code")
        for who, (first, last, email, number) in LEARNERS.items():
            gradebook.add_student(who, first_name=first, last_name=last, email=email, lms_user_id=number)
            for name, (auto, manual, penalty, waits) in GRADED.get(who, {}).items():
                gradebook.add_submission(name, who)
                notebook = gradebook.find_submission_notebook("notebook", name, who)
                notebook.late_submission_penalty = penalty
                (grade,) = notebook.grades
                grade.auto_score, grade.manual_score, grade.needs_manual_grade = auto, manual, waits
        gradebook.db.commit()
    return folder


def export(course, exporter, *options, status=0):
    return nbgrader(course, "export", f"--exporter=autograder.exports.{exporter}", *options, status=status)


def rows(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


@pytest.fixture(scope="module")
def canvas(course):
    """(the rows of canvas.csv, what was said on stderr)."""
    log = export(course, "Canvas")
    return rows(course / "canvas.csv"), log


@pytest.fixture(scope="module")
def moodle(course):
    """The rows of moodle.csv."""
    export(course, "Moodle")
    return rows(course / "moodle.csv")


def test_canvas_has_its_columns_the_points_and_a_row_a_learner(canvas):
    head, points, *learners = canvas[0]
    assert head == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "00-start", "01-attention"]
    assert points == ["Points Possible", "", "", "", "", "3", "4.5"]
    assert {row[3]: row for row in learners} == {
        "ada": ["Lovelace, Ada", "1001", "", "ada", "", "3", "3.5"],
        "bob": ['Ross, "Jr.", Bob', "1002", "", "bob", "", "0", ""],
        "dan": ["Őry 数, Dániel", "", "", "dan", "", "", ""],
        "eve": ['\'=HYPERLINK("http://evil"), =1+1', "'@1", "", "eve", "", "", "3.3"],
        "fay": ['Points possible, x,"=1+1', "", "", "fay", "", "", ""],
        "'-gil": ["'-gil", "", "", "'-gil", "", "1", ""],
        "hal": ["Late", "", "", "hal", "", "0", ""],
    }


def test_moodle_has_names_addresses_and_the_same_scores(moodle):
    head, *learners = moodle
    assert head == ["Username", "ID number", "First name", "Last name", "Email address", "00-start", "01-attention"]
    assert {row[0]: row[1:] for row in learners} == {
        "ada": ["1001", "Ada", "Lovelace", "ada@example.org", "3", "3.5"],
        "bob": ["1002", "Bob", 'Ross, "Jr."', "bob@example.org", "0", ""],
        "dan": ["", "Dániel", "Őry 数", "", "", ""],
        "eve": ["'@1", "'=1+1", '\'=HYPERLINK("http://evil")', "'+eve@example.org", "", "3.3"],
        "fay": ["", 'x,"=1+1', "Points Possible", "'-,=1", "", ""],
        "'-gil": ["", "", "", "", "1", ""],
        "hal": ["", "", "Late", "hal@example.org", "0", ""],
    }


def test_who_waits_for_a_person_and_whose_id_had_to_change_is_named(canvas):
    waiting = [line.partition("a person has yet to grade it: ")[2] for line in canvas[1].splitlines() if "yet to grade" in line]
    assert waiting == ["00-start of dan.", "01-attention of bob."]
    assert next(line for line in canvas[1].splitlines() if "by hand" in line).endswith(": '-gil.")


@pytest.mark.parametrize("kind", ["canvas", "moodle"])
def test_no_cell_is_a_formula_whatever_separates_cells(kind, request, course):
    request.getfixturevalue(kind)
    text = (course / f"{kind}.csv").read_text(encoding="utf-8")
    for delimiter in ",;\t":
        found = [cell for row in csv.reader(text.splitlines(), delimiter=delimiter) for cell in row]
        assert [cell for cell in found if cell.startswith(tuple("=+-@\t\r＝＋－＠"))] == []


@pytest.mark.parametrize("value", ["=1", "+1", "-1", "@a", "\t=1", "\r\n=1", " =1", "＝1", "＠a"])
def test_what_a_spreadsheet_would_run_is_made_text(value):
    assert exports._cell(value).startswith("'") or exports._cell(value).startswith("�")


def test_export_takes_names_and_refuses_unknown_ones(course, tmp_path):
    path = tmp_path / "one.csv"
    export(course, "Moodle", "--assignment", "['00-start']", "--student", "['ada','bob']", "--to", str(path))
    assert [(row[0], row[5:]) for row in rows(path)[1:]] == [("ada", ["3"]), ("bob", ["0"])]
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as gradebook:
        for settings, words in [
            ({"student": ["ada", "zoe"]}, "The gradebook has no student named zoe."),
            ({"assignment": ["7"]}, "The gradebook has no assignment named 7."),
            ({"to": str(tmp_path / "nowhere" / "x.csv")}, "can't be written: No such file or directory"),
        ]:
            with pytest.raises(SystemExit, match=words):
                exports.Canvas(**settings).export(gradebook)
    assert "no assignment yet" in export(tmp_path, "Canvas", status=1)


def gradescope(capsys, path, *options):
    """(exit status, results.json, stderr) of a notebook."""
    status = command.main(["check", str(path), "--format", "gradescope", *options])
    printed = capsys.readouterr()
    return status, json.loads(printed.out) if printed.out else None, printed.err


OF_ALL = {
    "output_format": "text",
    "test_output_format": "text",
    "test_name_format": "text",
    "visibility": "visible",
    "stdout_visibility": "hidden",
}


def test_gradescope_gets_a_test_an_exercise(write, capsys):
    assert gradescope(capsys, write(answered("start"))) == (
        0,
        {
            "score": 3, "output": "00-start: 3 of 3 points", **OF_ALL,
            "tests": [{"name": "softmax", "score": 3, "max_score": 3, "status": "passed", "output": "Right, in all 7 cases.",
                       "output_format": "text", "visibility": "visible"}],
        },
        "",
    )  # fmt: skip


def test_gradescope_gets_a_learners_text_as_text(write, capsys):
    status, results, _ = gradescope(capsys, write(answered("start", softmax=RAISES)))
    (test,) = results["tests"]
    assert (status, results["score"], test["score"], test["status"]) == (1, 0, 0, "failed")
    assert "<script>" in test["output"] and test["output_format"] == "text" and "\x1b" not in test["output"]


def test_gradescope_gets_a_sentence_on_a_broken_notebook(write, capsys):
    status, results, error = gradescope(capsys, write(answered("start")[:300]))
    assert (status, results["score"], results["tests"]) == (2, 0, []) and {key: results[key] for key in OF_ALL} == OF_ALL
    assert "not complete JSON" in results["output"] and results["output"] == error.strip()


def test_gradescope_gets_no_score_for_a_fault_of_the_machine(write, capsys, monkeypatch):
    lost = without_points(MODULE.exercises[0], COULD_NOT_CHECK, "no memory")
    monkeypatch.setattr(grading, "check_notebook", lambda *_: (MODULE, [lost]))
    status, results, error = gradescope(capsys, write(answered("start")))
    assert (status, results) == (2, None) and "no memory" in error


@pytest.fixture(scope="module")
def junit(tmp_path_factory):
    """({(notebook, test): (text of the failure or None, properties)}, what pytest printed, its exit status)."""
    folder = tmp_path_factory.mktemp("junit")
    notebooks = {
        "right": answered("start"),
        "wrong": answered("start", softmax=RAISES),
        "cut": answered("start")[:300],
        "alien": notebook_text("1"),
    }
    for name, text in notebooks.items():
        (folder / f"{name}.ipynb").write_text(text)
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "autograder.junit",
        "--rootdir",
        str(folder),
        str(folder),
        "--junitxml",
        str(folder / "r.xml"),
    ]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    found = {}
    for case in ElementTree.parse(folder / "r.xml").iter("testcase"):
        failure, properties = case.find("failure"), {each.get("name"): each.get("value") for each in case.iter("property")}
        found[case.get("classname"), case.get("name")] = (None if failure is None else failure.text, properties)
    return found, done.stdout + done.stderr, done.returncode


def test_junit_has_a_test_an_exercise_and_one_that_fails_for_a_broken_notebook(junit):
    found, printed, status = junit
    assert status == 1 and set(found) == {
        ("right.ipynb", "softmax"),
        ("wrong.ipynb", "softmax"),
        ("cut.ipynb", "notebook"),
        ("alien.ipynb", "notebook"),
    }
    assert found["right.ipynb", "softmax"] == (None, {"score": "3", "points": "3"})
    failure, properties = found["wrong.ipynb", "softmax"]
    assert properties == {"score": "0", "points": "3"} and failure.startswith("✗ softmax: 0/3 points") and "<script>" in failure
    assert "not complete JSON" in found["cut.ipynb", "notebook"][0] and "belongs to no module" in found["alien.ipynb", "notebook"][0]
    assert "Traceback" not in printed and "junit.py" not in printed


def handed_in(answer):
    """The learner's notebook with this answer in it, demos and all."""
    notebook = json.loads(exercises.learners_path(MODULE.name).read_text(encoding="utf-8"))
    (cell,) = [cell for cell in notebook["cells"] if cell["metadata"].get("nbgrader", {}).get("grade_id") == "softmax"]
    cell["source"] = answer
    return json.dumps(notebook)


@pytest.mark.slow
def test_validate_shows_what_grading_will(write):
    right = cells.solution(MODULE.exercises[0].reference)
    for answer, score in [(right, 3), (right.replace("return e", "return 1.5 * e"), 0)]:
        path = write(handed_in(answer))
        (verdict,) = grading.check_notebook(path.read_text())[1]
        assert verdict.score == score, report.text(verdict)
        failed = Validator().validate(str(path)).get("failed", [])
        assert [cell["source"] for cell in failed] == ([] if score == 3 else ["check(softmax)"])
