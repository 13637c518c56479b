"""What a verdict looks like: as JSON, as a card in a notebook, as lines in a terminal, as Gradescope wants it."""

import html
import re

from autograder.verdict import COULD_NOT_CHECK, FAILED, NOT_ATTEMPTED, PASSED

MIME = "application/vnd.attention-by-hand+json"  # the JSON of a verdict, beside its card
_LOOKS = {PASSED: ("✓", "#009E73"), FAILED: ("✗", "#D55E00"), NOT_ATTEMPTED: ("○", "#888888"), COULD_NOT_CHECK: ("?", "#888888")}


def as_json(verdict):
    """The JSON of one exercise: name, status, score, points, mistakes, message (see README, "In scripts")."""
    return {
        "name": verdict.name,
        "status": verdict.status,
        "score": verdict.score,
        "points": verdict.points,
        "mistakes": list(verdict.mistakes),
        "message": verdict.message,
    }


def shown(verdict):
    """A verdict as an output of a notebook, beside the score as text: {MIME type: content}."""
    return {"text/html": card(verdict), MIME: as_json(verdict)}


def module_json(module, verdicts):
    """The JSON of a notebook: module, score, points, exercises."""
    return {
        "module": module.name,
        "score": sum(verdict.score for verdict in verdicts),
        "points": sum(verdict.points for verdict in verdicts),
        "exercises": [as_json(verdict) for verdict in verdicts],
    }


def gradescope(module, verdicts):
    """A notebook's results.json for Gradescope (gradescope-autograders.readthedocs.io/en/latest/specs): all of it text, none of it HTML."""
    result = module_json(module, verdicts)
    tests = [
        {
            "name": verdict.name,
            "score": verdict.score,
            "max_score": verdict.points,
            "status": "passed" if verdict.status == PASSED else "failed",
            "output": printable(verdict.message),
            "output_format": "text",
            "visibility": "visible",
        }
        for verdict in verdicts
    ]
    return _results(result["score"], f"{module.folder}: {result['score']} of {result['points']} points", tests)


def gradescope_refused(sentence):
    """The same for a notebook that can't be checked; the sentence says why."""
    return _results(0, sentence, [])


def _results(score, output, tests):
    formats = {"output_format": "text", "test_output_format": "text", "test_name_format": "text"}
    return {"score": score, "output": printable(output), **formats, "visibility": "visible", "stdout_visibility": "hidden", "tests": tests}


def text(verdict):
    """A verdict as lines of plain text."""
    lines = [f"{_LOOKS[verdict.status][0]} {verdict.name}: {verdict.score}/{verdict.points} points{_parts_text(verdict)}"]
    return "\n".join([*lines, *("    " + line for line in printable(verdict.message).splitlines())])


def printable(message):
    """A message that may quote a learner, without the control characters that would steer a terminal."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", "�", message)


def card(verdict):
    """A verdict as HTML that reads in a light and in a dark theme; everything that is quoted is escaped."""
    mark, colour = _LOOKS[verdict.status]
    blocks = [
        f'<div style="font-weight:bold"><span style="color:{colour}">{mark}</span> {_code(verdict.name)} '
        f"{verdict.status.replace('_', ' ')}, {verdict.score} of {verdict.points} points</div>"
    ]
    if verdict.status == FAILED:
        blocks.append(f"<div>{' &nbsp; '.join(_part(part, *points) for part, points in verdict.parts.items())}</div>")
    blocks += [_paragraph("What", verdict.what)] if verdict.status == FAILED else [_paragraph("", verdict.what)]
    blocks += [_paragraph("Why", why, colour) for why in verdict.why]
    blocks += [_paragraph("Try", f"`{verdict.look}`")] if verdict.look else []
    blocks += [_paragraph("Note", note) for note in verdict.notes]
    return (
        f'<div class="verdict {verdict.status}" style="border-left:4px solid {colour};padding:4px 12px;margin:4px 0;max-width:860px;'
        f'line-height:1.45;overflow-wrap:anywhere">{"".join(blocks)}</div>'
    )


def record_card(record):
    """How a notebook was graded, as HTML: its "seed" and "isolation", or why it was "refused"; and its "repairs", a list of sentences."""
    how = f"Graded with seed {record.get('seed')}; isolation: {record.get('isolation')}."
    lines = [f"Not graded. {record['refused']}" if "refused" in record else how, *record.get("repairs", ())]
    items = "".join(f"<li>{html.escape(' '.join(printable(line).split()))}</li>" for line in lines)
    return (
        '<div class="record" style="border-left:4px solid #888888;padding:4px 12px;margin:4px 0;max-width:860px;overflow-wrap:anywhere">'
        f'<ul style="margin:0;padding:0 0 0 18px">{items}</ul></div>'
    )


def hint_card(name, number, total, hint):
    """One hint as HTML."""
    left = f"{total - number} more: run it again." if number < total else "That was the last one."
    return (
        '<div class="hint" style="border-left:4px solid #0072B2;padding:4px 12px;margin:4px 0;max-width:860px;line-height:1.45">'
        f"<b>Hint {number} of {total}</b> for {_code(name)}. {_inline(hint)} <i>{left}</i></div>"
    )


def wall(rows):
    """What has been built so far, as HTML: a row of bricks a module, the first at the bottom. rows: [(title, [(name, status)])]"""
    lines = []
    for title, bricks in reversed(rows):
        label = f'<td style="text-align:right;padding-right:10px;white-space:nowrap">{html.escape(title)}</td>'
        lines.append(f'<tr>{label}<td style="text-align:left">{"".join(_brick(name, status) for name, status in bricks)}</td></tr>')
    done = sum(status == PASSED for _, bricks in rows for _, status in bricks)
    total = sum(len(bricks) for _, bricks in rows)
    return (
        f'<div class="wall" style="max-width:880px"><b>{done} of {total} parts are yours.</b>'
        f'<table style="border-collapse:collapse;margin:6px 0">{"".join(lines)}</table></div>'
    )


def wall_text(rows):
    """The same as plain text."""
    return "\n".join(f"{title}: " + " ".join(f"{_LOOKS[status][0]} {name}" for name, status in bricks) for title, bricks in rows)


def _brick(name, status):
    mark, colour = _LOOKS[status]
    look = f"background:{colour};color:white" if status in (PASSED, FAILED) else "color:inherit"
    return (
        f'<span class="brick {status}" style="display:inline-block;border:1px solid {colour};border-radius:3px;padding:1px 6px;margin:2px;'
        f'font-size:85%;{look}">{mark} {html.escape(name)}</span>'
    )


def _parts_text(verdict):
    if verdict.status != FAILED:
        return ""
    return " (" + ", ".join(f"{part} {earned}/{points}" for part, (earned, points) in verdict.parts.items()) + ")"


def _part(part, earned, points):
    mark, colour = _LOOKS[PASSED if earned == points else FAILED]
    return f'<span style="white-space:nowrap"><span style="color:{colour}">{mark}</span> {html.escape(part)} {earned}/{points}</span>'


def _paragraph(label, content, colour="inherit"):
    shown = "".join(f"<div>{_inline(line)}</div>" for line in printable(content).splitlines())  # nbconvert would not let a <br> pass
    name = f'<b style="color:{colour}">{label}</b> &nbsp;' if label else ""
    return f'<div style="margin-top:4px">{shown.replace("<div>", "<div>" + name, 1)}</div>'


def _inline(content):
    pieces = content.split("`")
    if len(pieces) % 2 == 0:  # a backquote without its partner
        return html.escape(content)
    return "".join(_code(piece) if i % 2 else html.escape(piece) for i, piece in enumerate(pieces))


def _code(content):
    return f"<code>{html.escape(content)}</code>"
