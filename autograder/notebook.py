"""What a learner calls in a notebook: check an answer, take a hint, look at what has been built."""

import json
import sys
from pathlib import Path

from autograder import exercises, report
from autograder.answers import KernelAnswer
from autograder.check import carried_forward, check
from autograder.exercises import PUBLIC_SEED
from autograder.sandbox import probes
from autograder.verdict import COULD_NOT_CHECK, FAILED, NOT_ATTEMPTED, PASSED, Verdict


def open_module(name):
    """The three tools of a module's notebook: `check, hint, progress = open_module("attention")`."""
    module = exercises.module(name)
    session = _Session(module)
    return Check(session), session.hint, session.progress


class Check:
    """`check(f)` says whether f is right; `check.rerun(f, "case")` runs one case again, for looking into it."""

    def __init__(self, session):
        self._session = session

    def __call__(self, target, seed=PUBLIC_SEED):
        """Check a function or class of this module; returns the verdict, which shows itself."""
        return self._session.check(target, seed)

    def rerun(self, target, case, seed=PUBLIC_SEED):
        """Run one case again, with everything that it prints and its whole traceback; returns the results by name."""
        exercise, sentence = self._session.find(target)
        if exercise is None:
            return unknown(target, sentence)
        cases = exercise.draw(seed)
        found = [each for each in cases if each.name == case]
        if not found:
            names = ", ".join(f'"{each.name}"' for each in cases)
            print(f"There is no case {case!r}. The cases are: {names}.")
            return None
        options = exercise.options_of(found[0]) | ({"gradient": False} if exercise.probe in ("call", "build_load_call") else {})
        seen = probes.find(exercise.probe)(target, found[0].inputs, **options)
        return {name: value for name, value in seen.items() if name != probes.CHANGED}


class Shown:
    """A verdict that shows itself: a card in a notebook, lines in a terminal, and the score, which nbgrader reads."""

    def __init__(self, verdict):
        self.verdict = verdict

    def __repr__(self):
        return report.text(self.verdict)

    def _repr_mimebundle_(self, include=None, exclude=None):
        if not _in_kernel():
            return {"text/plain": repr(self)}
        return {"text/plain": str(self.verdict.score), **report.shown(self.verdict)}  # nbgrader takes text/plain as the points


def unknown(target, sentence):
    """What is shown where something is no exercise: the sentence that says so."""
    return Shown(Verdict(str(getattr(target, "__name__", type(target).__name__)), COULD_NOT_CHECK, 0, {}, sentence))


class ShownHtml:
    """HTML in a notebook, plain text in a terminal."""

    def __init__(self, html, text):
        self._html, self._text = html, text

    def __repr__(self):
        return self._text

    def _repr_html_(self):
        return self._html


class _Session:
    """One notebook's kernel: its module, how many hints it has given, what has passed."""

    def __init__(self, module):
        self._module = module
        self._hints = {}
        self._statuses = {}

    def find(self, target):
        """(the exercise that a function or class answers, or None; a sentence where it is None)."""
        names = [getattr(target, "__name__", ""), *(name for name, value in list(_user_names().items()) if value is target)]
        for name in names:
            exercise = self._module.exercise(name)
            if exercise and callable(target):
                return exercise, ""
        own = ", ".join(exercise.name for exercise in self._module.exercises)
        kind = type(target).__name__
        if self._module.exercise(kind):
            return None, f"Give me the class itself, not an object of it: check({kind})."
        what = f"`{names[0]}`" if names[0] else f"This {kind}"
        example = f"check({self._module.exercises[0].name})"
        return None, f"{what} is no exercise of this module. Its exercises are: {own}. Give me the function itself, as in {example}."

    def check(self, target, seed):
        exercise, sentence = self.find(target)
        if exercise is None:
            return unknown(target, sentence)
        answer = KernelAnswer(target)
        verdict = carried_forward(check(exercise, answer, seed), exercise, answer, seed, self._module.exercises)
        self._statuses[exercise.name] = verdict.status
        return Shown(verdict)

    def hint(self, target):
        """The next hint for an exercise: each call goes one step further."""
        exercise, sentence = self.find(target)
        if exercise is None:
            return unknown(target, sentence)
        number = self._hints[exercise.name] = min(self._hints.get(exercise.name, 0) + 1, len(exercise.hints))
        hint = exercise.hints[number - 1]
        return ShownHtml(
            report.hint_card(exercise.name, number, len(exercise.hints), hint), f"Hint {number} of {len(exercise.hints)}: {hint}"
        )

    def progress(self):
        """What has been built so far: of this notebook what this session has checked, of the others what they have saved."""
        rows = []
        for module in exercises.modules():
            statuses = _saved(Path.cwd().parent / module.folder / f"{module.slug}.ipynb")
            if module is self._module:
                statuses |= self._statuses
            bricks = [(exercise.name, statuses.get(exercise.name, NOT_ATTEMPTED)) for exercise in module.exercises]
            rows.append((f"{module.number:02d} {module.title}", bricks))
        return ShownHtml(report.wall(rows), report.wall_text(rows))


def _saved(path):
    """{exercise: status} of the checks whose output a notebook holds; nothing where it can't be read."""
    statuses = {}
    try:
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            for output in cell.get("outputs", []):
                verdict = output.get("data", {}).get(report.MIME)
                if verdict:
                    statuses[verdict["name"]] = verdict["status"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    return {name: status for name, status in statuses.items() if status in (PASSED, FAILED)}


def _user_names():
    return vars(sys.modules["__main__"])


def _in_kernel():
    return "ipykernel" in sys.modules and hasattr(sys.modules["IPython"].get_ipython(), "kernel")
