"""The grader's own test: every exercise's reference, stub, mistakes and alternatives, each judged as it should be."""

import dataclasses
import importlib
import itertools
import math

import numpy as np
import torch
from tqdm import tqdm

from autograder import cells, judge, mutants
from autograder.answers import KernelAnswer
from autograder.check import check
from autograder.exercises import PUBLIC_SEED
from autograder.verdict import NOT_ATTEMPTED, PASSED

REFERENCE_SEEDS = range(50)
OTHER_SEEDS = (PUBLIC_SEED, 1, 2**62)


@dataclasses.dataclass
class Counts:
    """How many were judged as they should be, and a sentence for each that was not."""

    exercises: int = 0
    references: int = 0
    stubs: int = 0
    mistakes: int = 0
    alternatives: int = 0
    faults: list = dataclasses.field(default_factory=list)

    def line(self):
        """One line with all the numbers."""
        return (
            f"{self.exercises} exercises: {self.references} references on {len(REFERENCE_SEEDS)} seeds, {self.stubs} stubs, "
            f"{self.mistakes} mistakes and {self.alternatives} alternatives on {len(OTHER_SEEDS)} seeds; {len(self.faults)} faults"
        )


def alternatives(module):
    """[(exercise name, style, function or class)]: right answers in other styles."""
    return importlib.import_module(f"autograder.alternatives.{module.name}").ALTERNATIVES


def selftest(modules):
    """Judge all that is known to be right or wrong in these modules; returns the Counts."""
    counts = Counts()
    total = sum(len(module.exercises) for module in modules)
    with tqdm(total=total, unit=" exercises") as progress:
        for module in modules:
            others = alternatives(module)
            for exercise in module.exercises:
                progress.set_description(f"{module.name}: {exercise.name}")
                _exercise(exercise, [(style, answer) for name, style, answer in others if name == exercise.name], counts)
                progress.update()
    return counts


def _exercise(exercise, others, counts):
    counts.exercises += 1
    counts.references += _all(exercise, "the reference", exercise.reference, REFERENCE_SEEDS, PASSED, counts)
    counts.stubs += _all(exercise, "the stub", _stub(exercise), OTHER_SEEDS, NOT_ATTEMPTED, counts)
    for style, answer in others:
        counts.alternatives += _all(exercise, f"the alternative {style!r}", answer, OTHER_SEEDS, PASSED, counts)
    counts.mistakes += len(set.intersection(*(_mistakes(exercise, seed, counts) for seed in OTHER_SEEDS)))
    ids = [mistake.id for mistake in exercise.mistakes]
    counts.faults += [f"{exercise.name}: two mistakes are called {id}" for id in sorted({id for id in ids if ids.count(id) > 1})]
    if not exercise.hints:
        counts.faults.append(f"{exercise.name} has no hints")


def _all(exercise, what, answer, seeds, status, counts):
    for seed in seeds:
        verdict = check(exercise, KernelAnswer(answer), seed)
        if verdict.status != status:
            counts.faults.append(f"{exercise.name}: {what} is {verdict.status}, not {status}, with seed {seed}: {verdict.message}")
            return False
    return True


def _mistakes(exercise, seed, counts):
    """The ids of the mistakes that are rejected with this seed, and named as themselves alone."""
    cases, expected = exercise.draw(seed), exercise.expected(seed)
    targets = {mistake.id: mutants.patched(exercise.reference, [mistake]) for mistake in exercise.mistakes}
    seen = {id: list(exercise.observe(target, cases)) for id, target in targets.items()}
    right = set()
    for id, observed in seen.items():
        named = [other for other in seen if all(map(judge.same, observed, seen[other]))]
        fault = ""
        if not judge.differences(cases, observed, expected, exercise.parts):
            fault = "is passed"
        elif all(observation.failure for observation in observed):
            fault = "raises in every case, so any answer that raises would be called it"
        elif any(observation.failure and observation.failure.type == "NameError" for observation in observed):
            fault = "raises a NameError: its patch uses a name that the reference's module does not have"
        elif named != [id]:
            fault = f"is named {' and '.join(named)}"
        elif seed == PUBLIC_SEED and (verdict := check(exercise, KernelAnswer(targets[id]), seed)).mistakes != (id,):
            fault = f"is {verdict.status}, and its verdict names {' and '.join(verdict.mistakes) or 'nothing'}"
        if fault:
            counts.faults.append(f"{exercise.name}: the mistake {id} {fault}, with seed {seed}")
        else:
            right.add(id)
    return right


def _stub(exercise):
    namespace = {"__name__": "stub", "np": np, "torch": torch, "nn": torch.nn, "math": math, "itertools": itertools}
    exec(compile(cells.stub(exercise.reference), f"<stub of {exercise.name}>", "exec"), namespace)
    return namespace[exercise.name]
