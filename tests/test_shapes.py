"""The shapes that a docstring promises are those that the cases have, so that a docstring can't rot."""

import inspect
import re

import pytest

from autograder import exercises
from autograder.sandbox.probes import CHANGED, GRADIENT

SHAPE = re.compile(r"\(((?:\.\.\.|[A-Z0-9])(?:, ?[A-Z0-9])*,?|\.\.\.|)\)")
CALLED = [exercise for module in exercises.modules() for exercise in module.exercises if exercise.probe == "call"]


def bind(shape, documented, sizes):
    """Take the sizes of a shape for the letters of "..., T, K"; returns whether they fit with what the letters already are."""
    names = [name.strip() for name in documented.split(",") if name.strip()]
    if names[:1] == ["..."]:
        names = names[1:]
        shape = shape[len(shape) - len(names) :] if names else ()
    return len(names) == len(shape) and all(sizes.setdefault(name, size) == size for name, size in zip(names, shape) if not name.isdigit())


def documented(text, name):
    """The first shape after "name:" in a docstring, or None."""
    line = re.search(rf"^{re.escape(name)}: (.*)$", text, re.MULTILINE)
    found = line and SHAPE.match(line.group(1))
    return found.group(1) if found else None


@pytest.mark.parametrize("exercise", CALLED, ids=lambda exercise: exercise.name)
def test_the_documented_shapes_are_those_of_every_case(exercise):
    text = inspect.getdoc(exercise.reference)
    returned = re.search(r"^returns: (.*?)(?=\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    for case, observation in zip(exercise.draw(0), exercise.expected(0)):
        sizes = {name: value for name, value in case.inputs.items() if isinstance(value, int) and len(name) == 1}
        for name, value in case.inputs.items():
            shape = documented(text, name)
            if shape is not None and hasattr(value, "shape") and name != "mask":  # a mask may broadcast
                assert bind(tuple(value.shape), shape, sizes), f"{name} in {case.name!r}"
        results = [value for name, value in observation.values.items() if name != CHANGED and not name.startswith(GRADIENT)]
        shapes = SHAPE.findall(returned.group(1)) if returned else []
        for value, shape in zip(results, shapes):
            if value.array is not None:
                assert bind(value.array.shape, shape, sizes), f"what {case.name!r} returns"


def test_a_docstring_that_is_wrong_would_be_noticed():
    sizes = {}
    assert bind((2, 3, 4), "..., T, K", sizes) and sizes == {"T": 3, "K": 4}
    assert not bind((5, 4), "..., S, T", sizes)
    assert not bind((3,), "T, K", {})
    assert documented("q: (..., T, K) queries", "q") == "..., T, K"
