"""HTML and Markdown of learners as they may stand in pages of formgrader and of the feedback, which have the instructor's rights.

nbgrader's own templates show Markdown cells as they are, with scripts in them, whatever nbconvert's `sanitize_html` says; and nbconvert's
own filter would take the colours and lines of a verdict away. So both filters are replaced by these (`nbgrader_config.py`).
"""

import html
import re

import bleach
from bleach.css_sanitizer import CSSSanitizer
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

_TAGS = [
    "a", "abbr", "b", "blockquote", "br", "code", "dd", "del", "details", "div", "dl", "dt", "em", "h1", "h2", "h3", "h4", "h5",
    "h6", "hr", "i", "img", "kbd", "li", "ol", "p", "pre", "s", "small", "span", "strong", "sub", "summary", "sup", "table",
    "tbody", "td", "th", "thead", "tr", "ul",
]  # fmt: skip
_STYLES = [
    "border", "border-left", "border-radius", "border-collapse", "color", "display", "font-size", "font-weight", "line-height",
    "margin", "margin-top", "max-width", "overflow-wrap", "padding", "padding-right", "text-align", "white-space",
]  # fmt: skip
_VALUES = {  # attributes, and what may stand in them
    "alt": r".*",
    "title": r".*",
    "class": r"highlight|[a-z]{1,2}[0-9]?|record|verdict \w+",  # Pygments', and those of cards; none of the page around
    "href": r"(https?://|mailto:|#).*",  # none within Jupyter, where a GET can load settings, and so run code
    "src": r"data:image/(png|jpeg|gif|svg\+xml);base64,.*",  # as above, and nobody is told who looks
    "style": r"(?!.*-\s*[\d.])[^(\\]*",  # nothing pulled over the page by a negative margin, nothing loaded
}


def clean(content):
    """HTML without what runs, loads, or passes for a part of the page around it."""
    return bleach.clean(
        str(content),
        tags=_TAGS,
        attributes=lambda tag, name, value: name in _VALUES and bool(re.fullmatch(_VALUES[name], value, re.DOTALL)),
        protocols=["http", "https", "mailto", "data"],
        css_sanitizer=CSSSanitizer(allowed_css_properties=_STYLES),
    )


def markdown(source):
    """Markdown as HTML that is clean; a picture that isn't in the text itself is its description."""
    return clean(MarkdownWithMath(renderer=_Renderer(escape=False, exclude_anchor_links=True)).render(source))


class _Renderer(IPythonRenderer):
    def image(self, text, url, title=None):
        return super().image(text, url, title) if url.startswith("data:") else f"[{html.escape(text or 'picture')}]"
