"""Checking one answer of an exercise: observe, judge, and where it is wrong, say which mistake it is."""

import dataclasses
import functools
import itertools

from autograder import judge, mutants, rules
from autograder.exercises import PUBLIC_SEED
from autograder.sandbox.observe import set_standard_state, standard_state
from autograder.verdict import FAILED, NOT_ATTEMPTED, PASSED, Verdict


def check(exercise, answer, seed):
    """The Verdict on an answer.

    answer: a KernelAnswer or a NotebookAnswer
    seed: of the cases' numbers
    """
    nothing = without_points(exercise, NOT_ATTEMPTED, "Nothing is written here yet.")
    if not answer.written:
        return nothing
    cases, trees = exercise.draw(seed), answer.trees()
    observed = answer.observe(exercise, cases)
    if not trees and all(each.failure and each.failure.type == "NotImplementedError" for each in observed):
        return nothing  # made by exec, so that there is no text to be seen
    expected = exercise.expected(seed)
    notes = _notes(observed, rules.indirect(trees) if exercise.forbidden else ())
    found = judge.differences(cases, observed, expected, exercise.parts)
    used = rules.broken(trees, exercise.forbidden)
    raised = bool(found) and found[0].kind is judge.Kind.RAISED  # told before a broken rule; the points are lost to either
    if used:
        rule = f"It calls {' and '.join(used)}, which this exercise asks you to write."
        if not raised:
            return without_points(exercise, FAILED, rule, notes)
        notes = (rule, *notes)
    if not found:
        return Verdict(exercise.name, PASSED, exercise.points, _parts(exercise, ()), f"Right, in all {len(cases)} cases.", notes=notes)
    first = found[0]
    named = diagnose(exercise, cases, observed, seed, {difference.case for difference in found})
    why, ids = tuple(mistake.why for mistake in named), tuple(mistake.id for mistake in named)
    seed_text = "" if seed == PUBLIC_SEED else f", seed={seed}"
    return Verdict(
        exercise.name, FAILED, exercise.points, _parts(exercise, exercise.parts if used else {difference.part for difference in found}),
        f"Called {quote(exercise, first.case)}  [{first.case.name}]\n{first.text}{_more(found, len(cases))}", why,
        f'check.rerun({exercise.name}, "{first.case.name}"{seed_text})', first.case.name, ids, notes,
    )  # fmt: skip


def carried_forward(verdict, exercise, answer, seed, earlier):
    """The Verdict; where the answer is right once the learner's earlier functions are the reference's, it says that the fault is there.

    earlier: exercises that the answer may rely on
    """
    named = [mistake for mistake in exercise.mistakes if mistake.id in verdict.mistakes]
    its_own = named and not any(mistake.at for mistake in named)  # with that mistake alone it would be as wrong: no other is needed
    if its_own or not verdict.case:  # it is right, or no case was to blame
        return verdict
    relied_on = [other for other in earlier if other.name in answer.calls and other.name != exercise.name]
    cases, expected = exercise.draw(seed), exercise.expected(seed)
    first = [case.name for case in cases].index(verdict.case)
    for given in [[other] for other in relied_on] + ([relied_on] if len(relied_on) > 1 else []):
        for some in (
            slice(first, first + 1),
            slice(None),
        ):  # where the one that told of the fault is still wrong, the others need not be run
            if judge.differences(cases[some], answer.observe(exercise, cases[some], given), expected[some], exercise.parts):
                break
        else:
            names = " and ".join(other.name for other in given)
            why = f"With the reference's {names} in the place of yours, this passes: the fault is in {names}, not here."
            return dataclasses.replace(verdict, why=(*verdict.why, why))
    return verdict


def without_points(exercise, status, what, notes=()):
    """The Verdict on an answer that is not there, that breaks a rule, or that could not be run."""
    return Verdict(exercise.name, status, exercise.points, _parts(exercise, exercise.parts), what, notes=notes)


def diagnose(exercise, cases, observed, seed, wrong):
    """The one mistake, or the pair, whose observations equal these on all cases; else nothing.

    wrong: the cases in which the answer is wrong; in these most mistakes differ from it, and then no other case is run
    """
    known = _mutants(exercise, seed)
    order = sorted(range(len(cases)), key=lambda number: cases[number] not in wrong)
    with standard_state():  # once for all of them: to put it back takes as long as to observe a case
        for count in (1, 2):
            for mistakes in itertools.combinations(exercise.mistakes, count):
                if mistakes not in known:
                    known[mistakes] = _Mutant(exercise, mistakes, cases)
                if known[mistakes].target and all(known[mistakes].does(number, observed[number]) for number in order):
                    return mistakes
    return ()


@functools.lru_cache(maxsize=64)
def _mutants(exercise, seed):
    """{mistakes: the _Mutant with these in it}."""
    return {}


class _Mutant:
    """The reference with mistakes in it, and what is seen of it, as far as anyone has looked. target: None where they can't be combined"""

    def __init__(self, exercise, mistakes, cases):
        self.target = mutants.patched(exercise.reference, mistakes)
        self._exercise, self._cases, self._known = exercise, cases, {}

    def does(self, number, observed):
        """Whether that is seen of it in a case; sets the standard state (see `sandbox.observe`), which whoever asks puts back."""
        # gradients take most of the time, and most mistakes differ in what they return
        if self._exercise.has_gradients and not judge.same(observed, self._observation(number, False)):
            return False
        return judge.same(observed, self._observation(number, True))

    def _observation(self, number, gradients):
        if (number, gradients) not in self._known:
            set_standard_state()
            self._known[number, gradients] = self._exercise.observe_in(self.target, self._cases[number], gradients)
        return self._known[number, gradients]


def quote(exercise, case):
    """The call of a case, as code: small values whole, tensors by dtype and shape."""
    inputs = dict(case.inputs)
    call = exercise.name
    if "build" in inputs:
        call += f"({', '.join(f'{name}={_brief(value)}' for name, value in inputs.pop('build').items())})"
        inputs.pop("weights", None)
    arguments = (", ".join(map(_brief, value)) if name.startswith("*") else f"{name}={_brief(value)}" for name, value in inputs.items())
    return f"{call}({', '.join(arguments)})"


def _parts(exercise, lost):
    return {part: (0 if part in lost else points, points) for part, points in exercise.parts.items()}


def _more(found, total):
    others = list(dict.fromkeys(difference.case.name for difference in found if difference.case is not found[0].case))
    if len(others) == total - 1:
        return "\nAll other cases are wrong too." if others else ""
    return f"\nAlso wrong: {'; '.join(others[:3])}{f'; and {len(others) - 3} more' if len(others) > 3 else ''}." if others else ""


def _notes(observed, indirect):
    printed = sum(observation.printed.count("\n") for observation in observed)
    notes = [f"It printed {printed} lines while it was checked; they are not shown."] if printed else []
    if indirect:
        notes.append(
            f"For a person to look at: it uses {', '.join(indirect)}, where a call that this exercise asks you to write could hide."
        )
    return tuple(notes)


def _brief(value):
    if isinstance(value, list):
        return f"[{', '.join(map(_brief, value))}]"
    if hasattr(value, "shape"):
        kind = "array" if type(value).__module__ == "numpy" else "tensor"
        dtype = str(value.dtype).removeprefix("torch.")
        if value.size == 0 if kind == "array" else value.numel() == 0:
            return f"<{dtype} {kind} {tuple(value.shape)}>"
        if value.ndim <= 1 and (value.size if kind == "array" else value.numel()) <= 5:
            return f"{kind}({[round(x, 4) if isinstance(x, float) else x for x in value.tolist()]})"
        return f"<{dtype} {kind} {tuple(value.shape)}>"
    return repr(value)
