"""Formgrader as an instructor meets it, in JupyterLab in a real browser: the class is graded, read, and one score is put right by hand.

One of the class hands in HTML that tries to run in every place that takes text; nothing of it may run with the instructor's rights.
"""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import browser
import pytest
from browser import shoot
from playwright.sync_api import expect
from test_nbgrader import hand_in, new_course, submission

from autograder import exercises

pytestmark = browser.MARKS
MODULE = exercises.module("start")
SENTENCE = "Your weights sum to 1 along the last axis, whatever dim says. Pass dim to both the max and the sum."
RIGHT = "def softmax(x, dim):\n    e = np.exp(x - x.max(axis=dim, keepdims=True))\n    return e / e.sum(axis=dim, keepdims=True)\n"
WRONG = RIGHT.replace("axis=dim", "axis=-1")
SCORES = {"hostile": "0 / 3", "right": "3 / 3", "wrong": "2 / 3"}  # what formgrader's lists show
SETTINGS = "open('{}', 'w').close()"  # an nbgrader_config.py among what was handed in


class Canary(BaseHTTPRequestHandler):
    """Notes each path that was asked for; /control is a page with the hostile text in it as it is."""

    def do_GET(self):
        self.server.asked.append(self.path)
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Access-Control-Allow-Origin", "*")
        self.end_headers()
        self.wfile.write(self.server.control.encode() if self.path == "/control" else b"")

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def canary():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Canary)
    server.asked, server.address = [], f"http://127.0.0.1:{server.server_port}"
    server.control = f"<!doctype html><body>{markdown(server.address)}</body>"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


def script(where, address):
    """JavaScript that leaves traces of having run."""
    return f"(window.owned??=[]).push('{where}');document.title='owned';fetch('{address}/{where}')"


def tags(where, address):
    """HTML that runs as soon as it is shown, or is clicked, or passes for a part of formgrader."""
    run = script(where, address)
    return (
        f'<script>{run}</script><img src="x" onerror="{run}"><svg onload="{run}"></svg><a href="javascript:{run}">my plot</a>'
        f'<iframe srcdoc="<script>{run.replace("window", "parent")}</script>"></iframe><img src="{address}/{where}-picture">'
        '<input class="score" id="check-softmax">'
        '<b style="position:fixed;top:0;color:red" class="navbar-fixed-top" id="notebook">Grade: 3 of 3</b>'
    )


def markdown(address):
    """Markdown with such HTML in it, a picture whose file got lost, and one that would load an nbgrader_config.py of the learner's."""
    return (
        f"# My notes {tags('heading', address)}\n\nThis {tags('line', address)} is it.\n\n<div>{tags('block', address)}</div>\n\n"
        f"It is $a{tags('formula', address)}$ then.\n\n[my plot](<javascript:{script('link', address)}>)\n\n"
        f"![a picture](attachment:lost.png) ![](/formgrader?path=submitted/hostile/{MODULE.folder})\n\n"
        f"```mermaid\n{tags('mermaid', address)}\n```\n\n| a |\n|---|\n| {tags('table', address)} |\n"
    )


def hostile(address):
    """A notebook with that HTML in Markdown, in code, in outputs, in what is printed and raised, and in metadata."""
    answer = (
        f"def softmax(x, dim):\n    {tags('docstring', address)!r}\n    print({tags('printed', address)!r})\n"
        f"    raise ValueError({tags('raised', address)!r})\n"
    )
    notebook = json.loads(submission({"softmax": answer}, MODULE))
    html = tags("output", address)
    data = {"text/html": html, "image/svg+xml": html, "text/latex": html, "application/javascript": script("javascript", address)}
    outputs = [{"output_type": "display_data", "data": {kind: text}, "metadata": {}} for kind, text in data.items()]
    outputs += [
        {"output_type": "stream", "name": "stdout", "text": html},
        {"output_type": "error", "ename": html, "evalue": html, "traceback": [html]},
    ]
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = outputs
    notebook["cells"][2:2] = [
        {"cell_type": "markdown", "id": "notes", "metadata": {"tags": [html]}, "source": markdown(address)},
        {"cell_type": "raw", "id": "raw", "metadata": {"raw_mimetype": "text/html"}, "source": html},
        {"cell_type": "code", "id": "code", "metadata": {}, "execution_count": 1, "source": f"%%html\n{html}", "outputs": outputs},
    ]
    notebook["metadata"] |= {"title": html, "language_info": {"name": "python", "pygments_lexer": html}}
    return json.dumps(notebook).encode()


@pytest.fixture(scope="module")
def course(tmp_path_factory, canary):
    """A course folder with a class of four in it, not yet graded."""
    folder = tmp_path_factory.mktemp("course")
    new_course(folder, MODULE)
    right, wrong = (submission({"softmax": answer}, MODULE).encode() for answer in (RIGHT, WRONG))
    hand_in(folder, "right", right, "start.ipynb", MODULE)
    hand_in(folder, "wrong", wrong, "start.ipynb", MODULE)
    hand_in(folder, "broken", right[: len(right) // 3], "<img src=x onerror=window.owned=1>.ipynb", MODULE)
    hand_in(folder, "hostile", hostile(canary.address), "<img src=x onerror=window.owned=1>.ipynb", MODULE)
    hand_in(folder, "hostile", SETTINGS.format(folder / "settings were loaded").encode(), "nbgrader_config.py", MODULE)
    return folder


@pytest.fixture(scope="module")
def page(course):
    """A page with JupyterLab in it, with formgrader open in that."""
    with browser.jupyter_lab(course, course) as address, browser.new_page() as page:
        page.goto(address("lab"))
        page.get_by_role("menuitem", name="Nbgrader").click()
        page.get_by_role("menuitem", name="Formgrader", exact=True).click()
        yield page


@pytest.fixture(scope="module")
def formgrader(page):
    """Formgrader's own frame within JupyterLab."""
    frame = page.locator("#formgrader-iframe iframe").element_handle().content_frame()
    frame.wait_for_url("**/formgrader/**")
    return frame


def go(formgrader, path):
    """Go to one of formgrader's pages, whatever is in its frame."""
    formgrader.goto(f"{formgrader.url.partition('/formgrader')[0]}/formgrader/{path}")


def open_submissions(formgrader):
    """Go to the list of what was handed in."""
    go(formgrader, "manage_assignments")
    formgrader.locator("td.num-submissions a").click()
    expect(formgrader.locator("td.student-id")).to_have_count(4)


def row(formgrader, student):
    """Of the list of what was handed in, a student's row."""
    return formgrader.locator("#main-table tr").filter(has=formgrader.locator("td.student-id", has_text=re.compile(f"^{student}$")))


def press(formgrader, student, button):
    """Press one of the buttons of a student's row, and put what formgrader says away; returns that."""
    row(formgrader, student).locator(f"td.{button} a").click()
    said = formgrader.locator(".modal.in")
    said.get_by_role("button", name="OK").wait_for()
    text = said.inner_text()
    said.get_by_role("button", name="OK").click()
    expect(formgrader.locator(".modal-backdrop")).to_have_count(0)
    row(formgrader, student).wait_for()
    return text


@pytest.fixture(scope="module")
def graded(formgrader, page):
    """{student: what formgrader said when its button was pressed}"""
    open_submissions(formgrader)
    shoot(page, "formgrader-1-handed-in")
    said = {student: press(formgrader, student, "autograde") for student in ("right", "wrong", "broken", "hostile")}
    shoot(page, "formgrader-2-graded")
    return said


def open_submission(formgrader, student):
    """Go to the page of a student, by the list of all of them."""
    go(formgrader, "gradebook")
    for name in (MODULE.folder, MODULE.slug):
        formgrader.get_by_role("link", name=name, exact=True).click()
    expect(formgrader.locator("td.name")).to_have_count(4)
    formgrader.get_by_role("button", name="Show All Names").click()
    formgrader.get_by_role("link", name=student, exact=True).click()
    has_loaded(formgrader)


def has_loaded(formgrader):
    """Wait until the page of a student has its scores and comments."""
    formgrader.wait_for_function("() => window.formgrader?.grades?.loaded && window.formgrader.comments?.loaded")


@pytest.fixture(scope="module")
def feedback(graded, formgrader, page, course):
    """Opens a student's feedback, made by formgrader's button, as a page of its own."""
    open_submissions(formgrader)
    for student in (*SCORES, "broken"):
        assert "Successfully generated feedback" in press(formgrader, student, "generate-feedback")
    tab = page.context.new_page()

    def opened(student):
        tab.goto((course / "feedback" / student / MODULE.folder / f"{MODULE.slug}.html").as_uri())
        return tab

    return opened


def test_the_button_grades_with_the_courses_executor(graded, course):
    for student in SCORES:
        assert "Successfully autograded" in graded[student]
        path = course / "autograded" / student / MODULE.folder / f"{MODULE.slug}.ipynb"
        record = json.loads(path.read_text(encoding="utf-8"))["metadata"]["attention_by_hand"]
        assert isinstance(record["seed"], int) and record["isolation"] in ("namespaces", "landlock")


def test_what_can_not_be_graded_is_said_in_a_sentence(graded, formgrader, page):
    assert "There was an error autograding" in graded["broken"] and "Traceback" not in graded["broken"]
    assert "Not graded: broken. <img src=x onerror=window.owned=1>.ipynb: The file is no complete JSON" in graded["broken"]
    assert formgrader.evaluate("window.owned") is None
    open_submission(formgrader, "broken")
    expect(formgrader.locator(".record")).to_contain_text("Not graded. Your file arrived cut short or damaged")
    shoot(page, "formgrader-3-broken")


def test_the_lists_show_the_scores(graded, formgrader, page):
    open_submissions(formgrader)
    for student, score in SCORES.items():
        expect(row(formgrader, student).locator("td.score")).to_have_text(score)
        expect(row(formgrader, student).locator("td.status")).to_have_text("graded")
    expect(row(formgrader, "broken").locator("td.status")).to_have_text("needs manual grading")
    shoot(page, "formgrader-2-graded")


def read_card(verdict):
    """What a card says, once it is known to look like one: the colour of a failed check, and a line for each fact."""
    verdict.scroll_into_view_if_needed()
    assert verdict.evaluate("card => getComputedStyle(card).borderLeft") == "4px solid rgb(213, 94, 0)"
    return verdict.inner_text().splitlines()


def test_the_page_of_a_student_names_the_mistake_and_has_the_score(graded, formgrader, page):
    open_submission(formgrader, "wrong")
    lines = read_card(formgrader.locator(".verdict"))
    shoot(page, "formgrader-3-wrong")
    assert lines[0] == "✗ softmax failed, 2 of 3 points" and "✗ axis 0/1" in lines[1] and "✓ stability 1/1" in lines[1]
    assert f"Why \xa0{SENTENCE}" in lines
    expect(formgrader.locator("input.score")).to_have_attribute("placeholder", "2")
    expect(formgrader.locator(".record")).to_contain_text("Graded with seed")


def test_a_score_given_by_hand_stays_when_it_is_graded_again(graded, formgrader, page, course):
    open_submission(formgrader, "right")
    score = formgrader.locator("input#check-softmax")
    score.fill("1.5")
    with page.expect_response(lambda response: "/api/grade/" in response.url and response.request.method == "PUT") as saved:
        score.press("Tab")
    assert saved.value.ok
    formgrader.evaluate("window.before = true; location.reload()")
    formgrader.wait_for_function("() => !window.before")
    has_loaded(formgrader)
    expect(score).to_have_value("1.5")
    score.scroll_into_view_if_needed()
    shoot(page, "formgrader-4-by-hand")
    open_submissions(formgrader)
    expect(row(formgrader, "right").locator("td.score")).to_have_text("1.5 / 3")
    assert "Successfully autograded" in press(formgrader, "right", "autograde")
    expect(row(formgrader, "right").locator("td.score")).to_have_text("1.5 / 3")
    expect(row(formgrader, "right").locator("td.status")).to_have_text("needs manual grading")  # so that a person looks again
    open_submission(formgrader, "right")
    expect(score).to_have_value("1.5")
    expect(score).to_have_attribute("placeholder", "3")


def traces(frame, canary):
    """What scripts and pictures of a page have left behind, once all that it started has ended."""
    frame.wait_for_load_state()
    frame.evaluate("Promise.all([...document.images].map(image => image.decode().catch(() => 0)))")
    frame.evaluate("address => fetch(address)", f"{canary.address}/sync")
    asked = [path for path in canary.asked if path != "/sync"]
    canary.asked.clear()
    return frame.evaluate("window.owned") or [], frame.title(), asked


def click_plots(frame):
    """Click everything that calls itself a plot."""
    for link in frame.get_by_text("my plot", exact=True).all():
        link.click()


def test_the_canary_sings_where_nothing_is_cleaned(page, canary):
    tab = page.context.new_page()
    tab.goto(f"{canary.address}/control")
    click_plots(tab)
    owned, title, asked = traces(tab, canary)
    tab.close()
    assert {"heading", "line", "block", "table"} <= set(owned) and title == "owned"
    assert {"/block", "/block-picture"} <= set(asked)


def test_nothing_of_a_learners_runs_in_formgrader(graded, formgrader, page, canary, course):
    canary.asked.clear()
    open_submission(formgrader, "hostile")
    click_plots(formgrader)
    assert traces(formgrader, canary) == ([], MODULE.slug, [])
    assert page.evaluate("window.owned") is None and not (course / "settings were loaded").exists()
    expect(formgrader.locator("input#check-softmax, b[id], b[class], b[style*=fixed]")).to_have_count(1)  # formgrader's own
    assert "It raised ValueError: <script>(window.owned" in "\n".join(read_card(formgrader.locator(".verdict")))
    shoot(page, "formgrader-5-hostile-card")
    formgrader.get_by_text("My notes").scroll_into_view_if_needed()
    shoot(page, "formgrader-5-hostile")


def test_nothing_of_a_learners_runs_in_the_feedback(feedback, canary):
    canary.asked.clear()
    tab = feedback("hostile")
    click_plots(tab)
    assert traces(tab, canary) == ([], MODULE.slug, [])
    shoot(tab, "feedback-2-hostile")


def test_the_feedback_names_the_mistake_and_has_the_score(feedback):
    tab = feedback("wrong")
    expect(tab.locator("h4")).to_have_text("start (Score: 2.0 / 3.0)")
    shoot(tab, "feedback-1-top")
    assert any(SENTENCE in line for line in read_card(tab.locator(".verdict")))
    shoot(tab, "feedback-1-wrong")
    expect(feedback("broken").locator(".record")).to_contain_text("Your file arrived cut short")
