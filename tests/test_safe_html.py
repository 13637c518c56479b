"""What is left of a learner's HTML and Markdown on an instructor's page; in a browser: test_formgrader."""

import pytest

from autograder import report, safe_html
from autograder.verdict import FAILED, Verdict

PICTURE = '<img src="data:image/png;base64,iVBORw0KGgo=">'


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ("<script>f()</script>", "&lt;script&gt;f()&lt;/script&gt;"),
        ('<b onclick="f()" id="notebook">b</b>', "<b>b</b>"),
        ('<a href="java\nscript:f()">a</a> <a href=" javascript:f()">a</a>', "<a>a</a> <a>a</a>"),
        ('<a href="/formgrader?path=x">a</a> <a href="//x.org">a</a>', "<a>a</a> <a>a</a>"),  # within Jupyter; by the page's own protocol
        ('<a href="https://x.org/?a=1">a</a>', '<a href="https://x.org/?a=1">a</a>'),
        ('<img src="/formgrader?path=x"><img src="https://x.org/x.png">', "<img><img>"),
        (PICTURE, PICTURE),
        ('<img src="data:text/html;base64,AAAA">', "<img>"),
        ('<p class="navbar-fixed-top" style="position:fixed;color:red">p</p>', '<p style="color:red;">p</p>'),
        ('<p style="margin-top:-900px">p</p><p style="margin:0 calc(0px - 9px)">p</p>', "<p>p</p><p>p</p>"),
        ('<p style="background:url(https://x.org)">p</p>', "<p>p</p>"),
        ("a<br>b &amp; c < d", "a<br>b &amp; c &lt; d"),
    ],
)
def test_only_what_neither_runs_nor_loads_nor_deceives_is_left(given, left):
    assert safe_html.clean(given) == left


def test_cards_keep_their_looks():
    verdict = Verdict("softmax", FAILED, 3, {"values": (1, 1), "axis": (0, 2)}, what="Called `f`.", why=("So.",), look="g()")
    for card in (report.card(verdict), report.record_card({"seed": 1, "isolation": "namespaces", "repairs": ["One."]})):
        assert safe_html.clean(card).replace(";", "") == card.replace(";", "")  # it ends each style with one


def test_markdown_is_cleaned_after_it_became_html_and_a_lost_picture_is_its_description():
    shown = safe_html.markdown(
        "# H\n\n[a](<javascript:f()>) $x<b>y$ ![lost <b>](attachment:x.png) ![](/formgrader?path=x)\n\n```python\ndef f(): 0\n```"
    )
    assert "<h1>H</h1>" in shown and "<a>a</a> $x&lt;b&gt;y$" in shown and "javascript" not in shown
    assert "[lost" in shown and "[picture]" in shown and "<img" not in shown and "path=" not in shown
    assert '<span class="k">def</span>' in shown
