"""`python -m autograder check` as its users call it: verdicts, exit statuses, JSON, and one clear sentence for bad input."""

import json
import subprocess
import sys

import pytest
from conftest import ROOT, answered, notebook_text

WRONG_AXIS = "def softmax(x, dim=-1):\n    e = (x - x.amax(-1, keepdim=True)).exp()\n    return e / e.sum(-1, keepdim=True)"


def run(*arguments):
    done = subprocess.run([sys.executable, "-m", "autograder", "check", *map(str, arguments)], capture_output=True, text=True, cwd=ROOT)
    assert "Traceback" not in done.stdout + done.stderr
    return done


def test_all_right_exits_0(write):
    done = run(write(answered("start")))
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "00-start: 3 of 3 points")


def test_a_wrong_answer_exits_1_and_is_named(write):
    done = run(write(answered("attention", softmax=WRONG_AXIS)), "--exercise", "softmax", "--json")
    assert done.returncode == 1
    result = json.loads(done.stdout)
    assert set(result) == {"module", "score", "points", "exercises"}
    assert (result["module"], result["score"], result["points"]) == ("attention", 2, 4)
    (softmax,) = result["exercises"]
    assert set(softmax) == {"name", "status", "score", "points", "mistakes", "message"}
    assert (softmax["status"], softmax["mistakes"]) == ("failed", ["axis_ignored"])
    assert "whatever `dim` says" in softmax["message"] and "15 of 15 elements" in softmax["message"]


def test_what_is_not_there_is_not_attempted_and_exits_1(write):
    done = run(write(answered("start", softmax="def softmax(x, dim):\n    # YOUR CODE HERE\n    raise NotImplementedError()")), "--json")
    assert (done.returncode, json.loads(done.stdout)["exercises"][0]["status"]) == (1, "not_attempted")
    done = run(write(answered("start", softmax=None)), "--json")
    assert (done.returncode, json.loads(done.stdout)["exercises"][0]["status"]) == (1, "not_attempted")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        (answered("start")[:300], "not complete JSON"),
        ("null", "not a notebook"),
        (notebook_text("x = 1"), "belongs to no module"),
        (answered("start").replace('open_module(\\"start\\")', 'open_module(\\"stop\\")'), "no module named 'stop'"),
    ],
)
def test_a_notebook_that_can_not_be_checked_exits_2_with_a_sentence(write, text, words):
    done = run(write(text), "--json")
    assert done.returncode == 2 and words in done.stderr and done.stdout == ""


def test_a_missing_file_a_folder_and_another_modules_exercise_exit_2(tmp_path, write):
    assert "There is no file" in run(tmp_path / "none.ipynb").stderr
    assert "is a folder" in run(tmp_path).stderr
    done = run(write(answered("start")), "--exercise", "causal_mask")
    assert done.returncode == 2 and "has no exercise 'causal_mask'" in done.stderr


def test_a_byte_order_mark_is_passed_over_and_utf_16_is_a_sentence(tmp_path):
    path = tmp_path / "bom.ipynb"
    path.write_bytes(b"\xef\xbb\xbf" + answered("start").replace("\n", "\r\n").encode())
    assert run(path).returncode == 0
    path.write_bytes(answered("start").encode("utf-16"))
    assert (run(path).returncode, "not UTF-8" in run(path).stderr) == (2, True)
