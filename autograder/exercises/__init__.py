"""The modules of the course, one file each: how their exercises are driven, their cases, their known mistakes, their hints."""

import functools
import importlib

NAMES = ("start", "attention")


@functools.cache
def module(name):
    """The Module of that name. Raises ValueError, with a sentence, where there is none."""
    if name not in NAMES:
        raise ValueError(f"There is no module named {name!r}. The modules are: {', '.join(NAMES)}.")
    return importlib.import_module(f"autograder.exercises.{name}").MODULE


def modules():
    """All modules, in their order."""
    return [module(name) for name in NAMES]
