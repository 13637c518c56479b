"""The modules of the course, one file each: how their exercises are driven, their cases, their known mistakes, their hints."""

import functools
import importlib

NAMES = ("start", "attention", "multi_head", "positions", "block", "gpt", "bert", "encoder_decoder")


@functools.cache
def module(name):
    """The Module of that name. Raises ValueError, with a sentence, where there is none."""
    if name not in NAMES:
        raise ValueError(f"There is no module named {name!r}. The modules are: {', '.join(NAMES)}.")
    return importlib.import_module(f"autograder.exercises.{name}").MODULE


def modules():
    """All modules, in their order."""
    return [module(name) for name in NAMES]


def in_folder(folder):
    """The Module whose notebooks are in the folder of that name. Raises ValueError, with a sentence, where there is none."""
    found = {each.folder: each for each in modules()}
    if folder not in found:
        raise ValueError(f"The course has no assignment {folder!r}. Its assignments are: {', '.join(found)}.")
    return found[folder]


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
