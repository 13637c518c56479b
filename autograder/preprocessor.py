"""The step of `nbgrader autograde` that gives the scores, in the place of the one that executes the notebook in a kernel."""

import nbformat
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets import Unicode

from autograder import page
from autograder.verdict import CanNotCheck


class Grade(NbGraderPreprocessor):
    """Leaves in each check cell one result: the score, which nbgrader reads, and the card, which the feedback shows."""

    isolation = Unicode("", help="The tier of isolation; the strongest that works here, unless one is named.").tag(config=True)

    def preprocess(self, nb, resources):
        """Fill in what is under "verdicts" of nbgrader's resources (see page.fill). Raises CanNotCheck."""
        verdicts = resources["nbgrader"]["verdicts"]
        if verdicts is None and "refused" not in nb.metadata[page.KEY]:
            raise CanNotCheck("There are no verdicts on it.")  # and no score that nobody gave
        return nbformat.from_dict(page.fill(nb, verdicts)), resources
