"""What a learner calls in a notebook: what is shown where it is called with something else, and one hint after another."""

import pytest

from autograder import exercises, open_module


def softmax(x, dim):
    return x


@pytest.fixture
def tools():
    return open_module("start")


@pytest.mark.parametrize("given", [3, print, "softmax", None])
def test_what_is_no_exercise_gets_a_sentence_from_all_three(tools, given, capsys):
    check, hint, _ = tools
    for shown in (check(given), hint(given), check.rerun(given, "rows")):
        assert "is no exercise of this module. Its exercises are: softmax." in repr(shown)
    assert capsys.readouterr().err == ""


def test_a_case_that_does_not_exist_lists_those_that_do(tools, capsys):
    check, _, _ = tools
    assert check.rerun(softmax, "no such case") is None
    assert '"rows far apart"' in capsys.readouterr().out
    assert check.rerun(softmax, "rows")["output"].shape == (3, 5)


def test_each_hint_goes_one_step_further_and_the_last_one_stays(tools):
    _, hint, _ = tools
    hints = exercises.module("start").exercise("softmax").hints
    shown = [repr(hint(softmax)) for _ in range(4)]
    assert shown == [f"Hint {number} of 3: {hints[number - 1]}" for number in (1, 2, 3, 3)]


def test_a_check_shows_lines_in_a_terminal_and_progress_remembers_it(tools):
    check, _, progress = tools
    assert repr(check(softmax)).startswith("✗ softmax: ") and "<div" not in repr(check(softmax))
    assert "✗ softmax" in repr(progress())
