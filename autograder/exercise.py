"""What an exercise is: one declaration drives its cell, its points, its checks, its diagnosis and its hints."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch

from autograder import mutants
from autograder.exercises import NAMES, PUBLIC_SEED, folder, slug
from autograder.sandbox import observe, probes


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """One call of the answer: named inputs, in the order of the signature, and the part whose points depend on it."""

    name: str
    part: str
    inputs: Mapping[str, object]
    options: Mapping[str, object]
    raises: str = ""  # the name of the exception that the right answer raises


def case(name, *, part="values", options=None, raises="", **inputs):
    """A Case; a trailing `_` in an input's name stands for a leading `*` (a list of arguments)."""
    named = {f"*{key[:-1]}" if key.endswith("_") else key: value for key, value in inputs.items()}
    return Case(name, part, named, options or {}, raises)


@dataclasses.dataclass(frozen=True, eq=False)
class Mistake:
    """The reference with one thing wrong, and what a good teacher would say about it."""

    id: str
    patches: tuple[tuple[str, str], ...]  # pieces of the source of `at`, and what stands there instead
    why: str
    at: str = ""  # the reference itself, or a function of `solutions` that it calls


def mistake(id, old, new, why, *, at="", also=()):
    """A Mistake of one patch, or of several that make sense only together (`also`: more pairs of old and new)."""
    return Mistake(id, ((old, new), *also), why, at)


@dataclasses.dataclass(frozen=True)
class Exercise:
    """reference: a function or class of `solutions`
    purpose: one sentence, what it is for
    cases: yields Cases, from a Draw
    parts: points by part; the observations named "gradient of …" belong to the part "gradient" where there is one
    forbidden: names of library functions that the answer may not call, because it is to be what they are
    probe, options: see `sandbox.probes`
    """

    reference: Callable
    purpose: str
    minutes: int
    difficulty: int
    cases: Callable[["Draw"], Iterator[Case]]
    parts: Mapping[str, int]
    mistakes: Sequence[Mistake]
    hints: Sequence[str]
    forbidden: Sequence[str] = ()
    probe: str = "call"
    options: Mapping[str, object] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        for mistake in self.mistakes:
            mutants.patched(self.reference, [mistake])  # raises where the patch no longer fits
        parts = {case.part for case in self.draw(PUBLIC_SEED)} | ({"gradient"} & set(self.parts))
        if parts != set(self.parts):
            raise ValueError(f"{self.name}: its cases have the parts {sorted(parts)}, its points {sorted(self.parts)}")

    @property
    def name(self):
        return self.reference.__name__

    @property
    def points(self):
        return sum(self.parts.values())

    @property
    def is_class(self):
        return inspect.isclass(self.reference)

    @functools.lru_cache(maxsize=64)  # noqa: B019 (exercises live as long as the process)
    def draw(self, seed):
        """The cases, with numbers from that seed; they are shared, and to be left as they are."""
        return tuple(self.cases(Draw(seed)))

    def observe(self, target, cases):
        """Lazily, what the probe sees of any implementation in this process, case by case."""
        for case in cases:
            with observe.standard_state():
                seen = self.observe_in(target, case)
            yield seen  # in the state of whoever asks

    def observe_in(self, target, case, gradients=True):
        """What the probe sees of one case in the state that is there.

        gradients: False to leave them out, where the probe `has_gradients`
        """
        options = self.options_of(case) | ({} if gradients else {"gradient": False})
        return observe.observe_in(self.probe, target, probes.copied(case.inputs), options)

    def options_of(self, case):
        """The options of the probe in a case."""
        return {**self.options, **case.options}

    @functools.cached_property
    def has_gradients(self):
        """Whether its probe computes gradients, unless it is told not to."""
        return "gradient" in inspect.signature(probes.find(self.probe)).parameters

    @functools.lru_cache(maxsize=64)  # noqa: B019
    def expected(self, seed):
        """The reference's observations of the cases of that seed. Raises RuntimeError where it is not what the case says."""
        cases = self.draw(seed)
        observed = list(self.observe(self.reference, cases))
        for case, observation in zip(cases, observed, strict=True):
            raised = observation.failure.type if observation.failure else ""
            if raised != case.raises or {probes.RETURNED, probes.STRUCTURE, probes.GRADIENT_ERROR} & set(observation.values):
                raise RuntimeError(f"the reference of {self.name} fails in the case {case.name!r}: {observation}")
        return observed

    def __hash__(self):
        return id(self)


@dataclasses.dataclass(frozen=True)
class Module:
    """A module of the course; its name is what code calls it."""

    name: str
    title: str
    hours: int
    difficulty: int
    needs: str
    exercises: Sequence[Exercise]

    @property
    def number(self):
        return NAMES.index(self.name)

    @property
    def slug(self):
        return slug(self.name)

    @property
    def folder(self):
        return folder(self.name)

    @property
    def points(self):
        return sum(exercise.points for exercise in self.exercises)

    def exercise(self, name):
        """The exercise of that name, or None."""
        return next((exercise for exercise in self.exercises if exercise.name == name), None)


class Draw:
    """Random inputs from a seed: the same numbers on every machine."""

    def __init__(self, seed):
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def normal(self, *shape, scale=1.0, dtype=torch.float64):
        """A tensor of independent normal numbers."""
        return torch.from_numpy(self._generator.normal(0.0, scale, shape)).to(dtype)

    def integers(self, low, high, *shape):
        """An int64 tensor of numbers from low to high - 1."""
        return torch.from_numpy(self._generator.integers(low, high, shape))

    def mask(self, *shape):
        """A boolean tensor, about half True, with a True and a False in every row (width 2 or more)."""
        mask = torch.from_numpy(self._generator.random(shape) < 0.5)
        mask[..., 0] = True
        mask[..., 1] = False
        return mask[..., torch.from_numpy(self._generator.permutation(shape[-1]))]
