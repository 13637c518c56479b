"""The modules of the course, one file each: how their exercises are driven, their cases, their known mistakes, their hints."""

import functools
import importlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PUBLIC_SEED = 0
NAMES = ("start", "attention", "multi_head", "positions", "block", "gpt", "bert", "encoder_decoder")


@functools.cache
def module(name):
    """The Module of that name. Raises ValueError, with a sentence, where there is none."""
    require(name)
    return importlib.import_module(f"autograder.exercises.{name}").MODULE


def slug(name):
    """The module's name as it stands in those of files."""
    return name.replace("_", "-")


def folder(name):
    """The folder of a module's notebooks."""
    return f"{NAMES.index(name):02d}-{slug(name)}"


def worked_path(name):
    """Where the worked notebook of a module is."""
    return ROOT / "solutions" / folder(name) / f"{slug(name)}.ipynb"


def learners_path(name):
    """Where the learner's notebook of a module is."""
    return ROOT / "notebooks" / folder(name) / f"{slug(name)}.ipynb"


def require(name):
    """Raise ValueError, with a sentence, where there is no module of that name."""
    if name not in NAMES:
        raise ValueError(f"There is no module named {name!r}. The modules are: {', '.join(NAMES)}.")


def modules():
    """All modules, in their order."""
    return [module(name) for name in NAMES]


def in_folder(wanted):
    """The name of the module whose notebooks are in the folder of that name. Raises ValueError, with a sentence, where there is none."""
    found = {folder(name): name for name in NAMES}
    if wanted not in found:
        raise ValueError(f"The course has no assignment {wanted!r}. Its assignments are: {', '.join(found)}.")
    return found[wanted]


def part(name, its_name):
    """A function or class that a module of that name gives to later ones: an answer of its exercises, or what they rest on.

    Raises ValueError, with a sentence, where there is none.
    """
    declared = module(name)
    value = getattr(importlib.import_module(f"solutions.{name}"), its_name, None)
    if getattr(value, "__module__", None) != f"solutions.{name}":
        own = ", ".join(exercise.name for exercise in declared.exercises)
        raise ValueError(f"The module {name} has no part named {its_name!r}. Its parts are: {own}.")
    return value
