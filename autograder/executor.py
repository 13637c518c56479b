"""The step of `nbgrader autograde` that gives the scores, in the place of the one that executes the notebook in a kernel."""

import hashlib
import json
import secrets

import nbformat
from nbformat import v4
from nbgrader import utils
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets import Unicode

from autograder import exercises, grading, isolation, report
from autograder.check import COULD_NOT_CHECK
from autograder.converter import KEY
from autograder.grading import CanNotCheck
from autograder.process import InfrastructureError


class Grade(NbGraderPreprocessor):
    """Leaves in each check cell one result: the score, which nbgrader reads, and the card, which the feedback shows."""

    isolation = Unicode("", help="The tier of isolation; the strongest that works here, unless one is named.").tag(config=True)

    def preprocess(self, nb, resources):
        """Grade a notebook in place. Raises InfrastructureError or CanNotCheck where there is no score to give."""
        record, found = nb.metadata.setdefault(KEY, {}), None
        if "refused" not in record:
            seed, nursery = resources["nbgrader"].get("seed", secrets.randbits(62)), isolation.nursery(isolation.for_others(self.isolation))
            record |= {"seed": seed, "isolation": nursery.tier}
            found = verdicts(nb, exercises.in_folder(resources["nbgrader"]["assignment"]), seed, nursery)
        return fill(nb, found), resources


def stamped(notebook, **record):
    """A notebook (a tree) as a NotebookNode with what is known of it under KEY: `record`, and a digest of what was submitted."""
    content = json.dumps([notebook, record], sort_keys=True)
    nb = nbformat.from_dict(notebook)
    nb.metadata[KEY] = {**record, "submitted": hashlib.sha256(content.encode()).hexdigest()}
    return nb


def fill(nb, found):
    """Leave in each check cell of a notebook the result, and at its top how it was graded (what its metadata has under KEY); returns it.

    found: {grade_id of a check cell: Verdict}; None where nothing could be graded
    Raises CanNotCheck for a cell that gives points and is no check of the course.
    """
    for cell in nb.cells:
        if utils.is_grade(cell) and not utils.is_solution(cell):  # what is both, people grade
            if found is None:
                score, shown = 0, {}
            elif verdict := found.get(cell.metadata.nbgrader.grade_id):
                score = verdict.score * cell.metadata.nbgrader.points / verdict.points  # the gradebook may weigh them otherwise
                shown = report.shown(verdict)
            else:
                raise CanNotCheck(f"The course has no check for the cell {cell.metadata.nbgrader.grade_id}; let people grade it instead.")
            cell.execution_count = None
            cell.outputs = [v4.new_output("execute_result", {"text/plain": f"{score:g}", **shown}, execution_count=None)]
    nb.cells.insert(0, v4.new_markdown_cell(report.record_card(nb.metadata[KEY]), id="how-it-was-graded"))
    return nb


def verdicts(nb, module, seed, nursery):
    """{grade_id of a check cell: Verdict} of a notebook. Raises CanNotCheck, and InfrastructureError where an answer could not be run."""
    _, found = grading.check_text(json.dumps(nb), seed=seed, nursery=nursery, module=module)
    for verdict in found:
        if verdict.status == COULD_NOT_CHECK:
            raise InfrastructureError(f"{verdict.name} could not be run: {verdict.what}")
    return {f"check-{verdict.name}": verdict for verdict in found}
