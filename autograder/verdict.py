"""What is said of an answer, and why nothing can be said of a notebook. Imports nothing: what only passes verdicts on starts at once."""

import dataclasses

PASSED, FAILED, NOT_ATTEMPTED, COULD_NOT_CHECK = "passed", "failed", "not_attempted", "could_not_check"


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What is said of one answer. `what` is what the numbers say, `why` an interpretation, `look` one line to run."""

    name: str
    status: str
    points: int
    parts: dict  # {part: (points earned, points)}
    what: str = ""
    why: tuple = ()
    look: str = ""
    case: str = ""  # the name of the one of which `what` tells
    mistakes: tuple = ()
    notes: tuple = ()

    @property
    def score(self):
        return sum(earned for earned, _ in self.parts.values())

    @property
    def message(self):
        """All of it, as plain text."""
        lines = [self.what, *(f"Why: {why}" for why in self.why), f"Try: {self.look}" if self.look else "", *self.notes]
        return "\n".join(line for line in lines if line)


class CanNotCheck(Exception):
    """A notebook, or a class, can't be checked at all; the message is a sentence for the one who asked."""
