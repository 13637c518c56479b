"""`nbgrader autograde` with the course's executor, on a class in which much is broken; equal scores to nbgrader's own: test_nbgrader."""

import concurrent.futures
import hashlib
import io
import json
import os
import signal
import zipfile

import pytest
from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderApp, api
from test_nbgrader import CLASS, MODULE, answers, hand_in, nbgrader, new_course, patched, submission

from autograder import converter, executor, exercises, grading, isolation
from autograder.check import without_points
from autograder.verdict import COULD_NOT_CHECK, CanNotCheck

pytestmark = pytest.mark.xdist_group("executor")  # one course for all tests
RIGHT = submission(CLASS["right-1"]).encode()
ENDS = "def padding_mask(lengths, S):\n    import os; os._exit(0)"
WRONG = submission(answers("all", padding_mask=ENDS, **patched("causal_mask", "tril(S - T)", "tril(S - T + 1)"))).encode()


def zipped(data):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("my work/attention.ipynb", data)
    return file.getvalue()


def unmarked(data):
    """Without nbgrader's metadata, and with one answer in a Markdown cell."""
    notebook = json.loads(data)
    for cell in notebook["cells"]:
        if cell["metadata"].pop("nbgrader", {}).get("grade_id") == "softmax":
            cell["cell_type"] = "markdown"
    return json.dumps(notebook).encode()


SUBMITTED = {  # student: (file, its bytes, score or None, words of the feedback)
    "right": ("attention.ipynb", RIGHT, 36, ["Graded with seed"]),
    "wrong": ("attention.ipynb", WRONG, 32, ["Each position sees one key of the future", "ended without an answer"]),
    "renamed": ("attention (1).ipynb", RIGHT.decode().encode("utf-16"), 36, ["handed in as attention (1).ipynb.", "saved as UTF-16"]),
    "zipped": ("homework.zip", zipped(unmarked(RIGHT)), 36,
               ["homework.zip/my work/attention.ipynb.", "turned back into one: softmax.", "metadata was lost; put back"]),
    "cut": ("attention.ipynb", RIGHT[: len(RIGHT) // 2], None, ["Your file arrived cut short or damaged"]),
    "empty": ("attention.ipynb", b"", None, ["The file that arrived is empty"]),
    "absent": ("report.pdf", b"%PDF", None, ["No notebook arrived"]),
    "linked": ("attention.ipynb", RIGHT, 36, ["folder is a link, not a file; pipe is no ordinary file; timestamp.txt is a link"]),
}  # fmt: skip


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """(a course folder with that class in it, graded once; the log of it)."""
    folder = tmp_path_factory.mktemp("course")
    new_course(folder)
    for student, (name, data, _, _) in SUBMITTED.items():
        hand_in(folder, student, data, name)
    linked = folder / "submitted" / "linked" / MODULE.folder
    (linked / "timestamp.txt").symlink_to(folder / "gradebook.db")
    (linked / "folder").symlink_to(folder)
    os.mkfifo(linked / "pipe")
    before = digests(folder / "submitted")
    log = nbgrader(folder, "autograde", MODULE.folder, "--create", status=1)
    assert digests(folder / "submitted") == before  # what was handed in stays as it was
    nbgrader(folder, "generate_feedback", MODULE.folder)
    return folder, log


def digests(folder):
    return {path: hashlib.sha256(path.read_bytes()).digest() for path in folder.rglob("*") if path.is_file() and not path.is_symlink()}


def grades(folder, student):
    """{exercise: Grade} of a student."""
    with Gradebook(f"sqlite:///{folder / 'gradebook.db'}") as gradebook:
        found = gradebook.find_submission(MODULE.folder, student).notebooks[0].grades
        return {grade.name.removeprefix("check-"): (grade.auto_score, grade.score, grade.needs_manual_grade) for grade in found}


def autograded(folder, student):
    return folder / "autograded" / student / MODULE.folder / f"{MODULE.slug}.ipynb"


@pytest.mark.slow
@pytest.mark.parametrize("student", SUBMITTED)
def test_each_gets_its_score_or_is_left_to_a_person(course, student):
    _, _, score, _ = SUBMITTED[student]
    found = grades(course[0], student)
    assert len(found) == len(MODULE.exercises)
    if score is None:
        assert set(found.values()) == {(None, 0, True)}
    else:
        assert sum(auto for auto, _, _ in found.values()) == score and not any(manual for _, _, manual in found.values())


@pytest.mark.slow
def test_the_log_ends_with_those_that_could_not_be_graded(course):
    lines = course[1].splitlines()
    named = [line.partition("Not graded: ")[2] for line in lines if "Not graded: " in line]
    assert [line.split(".")[0] for line in named] == ["absent", "cut", "empty"]
    assert "There is no notebook in the submission: only report.pdf." in named[0]
    assert "exercises are lost: padding_mask" in named[1] and "is an empty file" in named[2]
    assert "Traceback" not in course[1]


@pytest.mark.slow
@pytest.mark.parametrize("student", SUBMITTED)
def test_the_feedback_names_mistake_and_repair(course, student):
    folder, _ = course
    feedback = folder / "feedback" / student / MODULE.folder
    page = (feedback / f"{MODULE.slug}.html").read_text(encoding="utf-8")
    assert [words for words in SUBMITTED[student][3] if words not in page] == [] and "&lt;div" not in page and "&lt;br" not in page
    files = [path.name for part in ("feedback", "autograded") for path in (folder / part / student).rglob("*") if not path.is_dir()]
    assert sorted(files) == ["attention.html", "attention.ipynb"]  # nothing that lay beside it came along


@pytest.mark.slow
@pytest.mark.parametrize("student", SUBMITTED)
def test_each_check_cell_has_one_number_in_range(course, student):
    notebook = json.loads(autograded(course[0], student).read_text(encoding="utf-8"))
    found = [cell for cell in notebook["cells"] if cell["metadata"].get("nbgrader", {}).get("grade")]
    assert [cell["metadata"]["nbgrader"]["grade_id"] for cell in found] == [f"check-{exercise.name}" for exercise in MODULE.exercises]
    for cell in found:
        (output,) = cell["outputs"]
        assert output["output_type"] == "execute_result"
        assert 0 <= float("".join(output["data"]["text/plain"])) <= cell["metadata"]["nbgrader"]["points"]


@pytest.fixture
def button(course, monkeypatch):
    """What formgrader's button calls: grades one student's submission again, in this process."""
    monkeypatch.chdir(course[0])
    app = NbGraderApp()
    app.initialize([])
    return lambda student: api.NbGraderAPI(app.coursedir, parent=app).autograde(MODULE.folder, student)


@pytest.mark.slow
def test_formgraders_button_grades_what_lies_in_a_zip(course, button):
    autograded(course[0], "zipped").unlink()
    result = button("zipped")
    assert result["success"] and autograded(course[0], "zipped").exists()


@pytest.mark.slow
def test_formgraders_button_says_why_not(button):
    result = button("cut")
    assert not result["success"] and "Not graded: cut. attention.ipynb: The file is no complete JSON" in result["log"]


@pytest.mark.slow
def test_a_fault_of_the_machine_is_no_score(course, button, monkeypatch):
    folder, _ = course
    verdict = without_points(MODULE.exercises[0], COULD_NOT_CHECK, "the worker process did not start")
    monkeypatch.setattr(grading, "check_notebook", lambda text, **_: (MODULE, [verdict]))
    monkeypatch.setattr(converter, "_pool", lambda _: Here())
    result = button("right")
    assert not result["success"] and "Not graded: right. softmax could not be run: the worker process did not start" in result["log"]
    assert not autograded(folder, "right").exists()
    assert sum(auto for auto, _, _ in grades(folder, "right").values()) == MODULE.points  # that of the last time
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    assert button("right")["success"] and autograded(folder, "right").exists()


class Here(concurrent.futures.Executor):
    """Calls in this process."""

    def submit(self, function, *arguments):
        future = concurrent.futures.Future()
        future.set_result(function(*arguments))
        return future


@pytest.mark.slow
def test_a_lost_process_costs_nothing(course, button):
    autograded(course[0], "right").unlink()
    assert button("right")["success"]
    for pid in list(converter._pool(1)._processes):
        os.kill(pid, signal.SIGKILL)
    autograded(course[0], "right").unlink()
    assert button("right")["success"] and autograded(course[0], "right").exists()


@pytest.mark.slow
def test_only_what_has_changed_is_graded_again_and_what_people_gave_stays(course):
    folder, _ = course
    check = ("check-causal_mask", MODULE.slug, MODULE.folder, "wrong")
    with Gradebook(f"sqlite:///{folder / 'gradebook.db'}") as gradebook:
        gradebook.find_grade(*check).manual_score = 1.5
        gradebook.find_grade(*check).needs_manual_grade = False
        gradebook.find_comment("softmax", *check[1:]).manual_comment = "Nicely done."
        gradebook.db.commit()
    before = {student: autograded(folder, student).stat().st_mtime_ns for student in SUBMITTED}
    hand_in(folder, "wrong", RIGHT)
    hand_in(folder, "empty", RIGHT)
    log = nbgrader(folder, "autograde", MODULE.folder, status=1)
    again = {student for student in SUBMITTED if autograded(folder, student).stat().st_mtime_ns != before[student]}
    assert again == {"wrong", "empty", "cut", "absent"}  # the last two could not be graded, and are named each time
    assert "Not graded: absent." in log and "Not graded: cut." in log and "Not graded: empty" not in log
    assert sum(auto for auto, _, _ in grades(folder, "empty").values()) == MODULE.points
    assert grades(folder, "wrong")["causal_mask"][:2] == (2, 1.5)  # graded anew, and what a person gave still counts
    with Gradebook(f"sqlite:///{folder / 'gradebook.db'}") as gradebook:
        assert gradebook.find_comment("softmax", *check[1:]).comment == "Nicely done."
        assert gradebook.find_grade(*check).needs_manual_grade  # so that they look at it again


def test_where_nothing_could_be_run_there_is_no_score(monkeypatch, tmp_path):
    verdict = without_points(MODULE.exercises[0], COULD_NOT_CHECK, "no memory")
    monkeypatch.setattr(grading, "check_notebook", lambda text, **_: (MODULE, [verdict]))
    (tmp_path / "attention.ipynb").write_bytes(RIGHT)
    prepared = executor.prepare(tmp_path, MODULE.name, exercises.learners_path(MODULE.name), 5, isolation.NONE)
    assert prepared.error == "softmax could not be run: no memory" and prepared.verdicts is None


def test_where_no_notebook_was_given_out_it_says_what_to_run(tmp_path):
    prepared = executor.prepare(tmp_path, MODULE.name, tmp_path / "attention.ipynb", 5, isolation.NONE)
    assert prepared.error == f"There is no {tmp_path}/attention.ipynb: run `nbgrader generate_assignment 01-attention` first."


@pytest.mark.slow
def test_what_ends_the_processes_that_grade_twice_is_said_in_a_sentence():
    with pytest.raises(CanNotCheck, match="lost twice over it"):
        converter._Call(1, os._exit, 1).result()
