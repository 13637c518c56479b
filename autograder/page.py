"""The graded notebook: what nbgrader reads and people are shown."""

import dataclasses
import hashlib
import json

from autograder import report
from autograder.verdict import CanNotCheck

KEY = "attention_by_hand"  # in its metadata: what was graded, and how


@dataclasses.dataclass
class Prepared:
    """A submission, repaired and graded; or why it could not be."""

    notebook: dict | None = None  # repaired, or where it can't be graded the one that was given out; and what is known of it, see `stamped`
    verdicts: dict | None = None  # {grade_id of a check cell: Verdict}
    not_gradable: str = ""  # why no notebook could be made of it, a sentence
    error: str = ""  # of this machine or program, a sentence


def stamped(notebook, **known):
    """A notebook (a tree) with what is known of it under KEY: `known`, and a digest of what was submitted."""
    content = json.dumps([notebook, known], sort_keys=True)
    mark = {**known, "submitted": hashlib.sha256(content.encode()).hexdigest()}
    return {**notebook, "metadata": {**notebook["metadata"], KEY: mark}}


def fill(notebook, found):
    """A notebook with the result in each check cell, and at its top how it was graded (what its metadata has under KEY).

    found: {grade_id of a check cell: Verdict}; None where nothing could be graded
    Raises CanNotCheck for a cell that gives points and is no check of the course.
    """
    card = {"id": "how-it-was-graded", "cell_type": "markdown", "metadata": {}, "source": report.record_card(notebook["metadata"][KEY])}
    return {**notebook, "cells": [card, *(_filled(cell, found) for cell in notebook["cells"])]}


def _filled(cell, found):
    marks = cell["metadata"].get("nbgrader", {})
    if not marks.get("grade") or marks.get("solution"):  # what is both, people grade
        return cell
    score, shown = 0, {}
    if found is not None:
        verdict = found.get(marks["grade_id"])
        if verdict is None:
            raise CanNotCheck(f"The course has no check for the cell {marks['grade_id']}; let people grade it instead.")
        score = verdict.score * marks["points"] / verdict.points  # the gradebook may weigh them otherwise
        shown = report.shown(verdict)
    output = {"output_type": "execute_result", "metadata": {}, "data": {"text/plain": f"{score:g}", **shown}, "execution_count": None}
    return {**cell, "execution_count": None, "outputs": [output]}
