"""JupyterLab as a learner sees it, in a real browser: a wrong answer typed, checked and named; put right, checked, passed."""

import re
import shutil

import browser
import pytest
from browser import shoot
from conftest import ROOT
from playwright.sync_api import expect

pytestmark = browser.MARKS
WRONG = "def softmax(x, dim=-1):\n    e = (x - x.amax(-1, keepdim=True)).exp()\n    return e / e.sum(-1, keepdim=True)\n"
RIGHT = WRONG.replace("-1, keep", "dim, keep")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """The address of a JupyterLab whose files are a copy of the learner's notebooks."""
    folder = tmp_path_factory.mktemp("lab")
    shutil.copytree(ROOT / "notebooks", folder / "notebooks")
    with browser.jupyter_lab(folder, folder / "notebooks") as address:
        yield lambda path: address(f"lab/tree/{path}") + "&reset"


@pytest.fixture
def page():
    """A page of a headless browser."""
    with browser.new_page() as page:
        yield page


def cell_with(page, text):
    """The first code cell whose source begins with a text."""
    return page.locator(".jp-CodeCell").filter(has=page.locator(".cm-content", has_text=text)).first


def open_notebook(page, address):
    """Open a notebook, and wait until its kernel answers: a cell that is run before asks which kernel to choose."""
    page.goto(address)
    page.locator(".jp-Notebook .jp-CodeCell").first.wait_for()
    page.locator(".jp-StatusBar-Widget", has_text="Python 3 (ipykernel) | Idle").wait_for(state="attached")


def run(page, cell, source=None):
    """Replace what is in a cell, where a source is given, and run it as a learner does: Shift+Enter; wait until it has run."""
    number = cell.locator(".jp-InputPrompt").first
    before = number.inner_text()
    cell.scroll_into_view_if_needed()
    cell.locator(".cm-content").first.click()
    if source is not None:
        page.keyboard.press("Control+A")
        page.keyboard.insert_text(source)
    page.keyboard.press("Shift+Enter")
    expect(number).to_have_text(re.compile(r"^\[\d+\]:$"))
    expect(number).not_to_have_text(before)


def test_a_wrong_answer_is_named_and_a_right_one_passes(lab, page):
    open_notebook(page, lab("01-attention/attention.ipynb"))
    run(page, cell_with(page, "open_module"))
    run(page, cell_with(page, "import math"))
    run(page, cell_with(page, "def softmax"), WRONG)
    check = cell_with(page, "check(softmax)")
    run(page, check)
    verdict = check.locator(".verdict")
    verdict.wait_for()
    shoot(page, "wrong")
    said = verdict.inner_text()
    assert "softmax failed, 2 of 4 points" in said
    assert "Your weights sum to 1 along the last axis, whatever dim says." in said  # the mistake's own sentence
    assert "15 of 15 elements" in said and "should be" in said  # with the numbers
    run(page, cell_with(page, "def softmax"), RIGHT)
    run(page, check)
    check.locator(".verdict.passed").wait_for()
    shoot(page, "right")
    assert "softmax passed, 4 of 4 points" in check.locator(".verdict").inner_text()


def test_diagrams_and_formulas_are_drawn(lab, page):
    open_notebook(page, lab("01-attention/attention.ipynb"))
    page.locator(".jp-RenderedMermaid svg, .jp-RenderedMermaid img").first.wait_for(state="attached")
    page.locator("mjx-container").first.wait_for(state="attached")
    assert not page.locator(".jp-RenderedMermaid.jp-mod-warning").count()
