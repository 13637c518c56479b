"""Checking a notebook file: which module it is of, and the verdict on each of its exercises."""

import ast
import contextlib
from pathlib import Path

from autograder import exercises
from autograder.answers import NotebookAnswer, Workers
from autograder.check import carried_forward, check, without_points
from autograder.exercises import PUBLIC_SEED
from autograder.program import InfrastructureError
from autograder.sandbox import loader
from autograder.verdict import COULD_NOT_CHECK, FAILED, NOT_ATTEMPTED, PASSED, CanNotCheck


def read(path):
    """The text of a notebook file. Raises CanNotCheck."""
    path = Path(path)
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise CanNotCheck(f"There is no file {path}.") from None
    except IsADirectoryError:
        raise CanNotCheck(f"{path} is a folder; name the notebook in it, which ends in .ipynb.") from None
    except OSError as error:
        raise CanNotCheck(f"{path} can't be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise CanNotCheck(f"{path} is not UTF-8 text, as every notebook is: was it saved by another program?") from None


def open_notebook(notebook, module=None):
    """(the Notebook, its Module) of a file's text, or of the tree that this holds. Raises CanNotCheck.

    module: by its call of open_module where none is given
    """
    try:
        notebook = loader.parse(notebook)
    except loader.UnreadableNotebook as error:
        raise CanNotCheck(str(error)) from None
    if module is not None:
        return _standing_on_earlier(notebook, module)
    for statement in notebook.statements:
        for node in ast.walk(statement.node):
            match node:
                case ast.Call(func=ast.Name(id="open_module"), args=[ast.Constant(value=str(name))]):
                    try:
                        return _standing_on_earlier(notebook, exercises.module(name))
                    except ValueError as error:
                        raise CanNotCheck(f"{error} (This notebook calls open_module({name!r}).)") from None
    raise CanNotCheck(
        "This notebook belongs to no module of the course: none of its cells calls open_module. "
        "If it is one of the course's, its first code cell was lost; copy it from a fresh notebook."
    )


def _standing_on_earlier(notebook, module):
    """(the Notebook, the Module); by `parts.load` a notebook is given what earlier modules have, and not the answers of its own."""
    earlier = exercises.NAMES[: exercises.NAMES.index(module.name)]
    notebook.carried = {bound: (source, name) for bound, (source, name) in notebook.carried.items() if source in earlier}
    return notebook, module


def check_notebook(notebook, only="", seed=PUBLIC_SEED, progress=lambda exercises: exercises, nursery=None, module=None):
    """(the Module, the Verdicts) of a notebook; each answer runs in a process of its own. Raises CanNotCheck.

    notebook: the text of its file, or the tree that this holds
    nursery: an isolation.Nursery, for a notebook that nobody vouches for
    module: the Module that was assigned, whatever the notebook says that it is
    """
    notebook, module = open_notebook(notebook, module)
    if only and not module.exercise(only):
        own = ", ".join(exercise.name for exercise in module.exercises)
        raise CanNotCheck(f"The module {module.name} has no exercise {only!r}. Its exercises are: {own}.")
    wanted = [exercise for exercise in module.exercises if only in ("", exercise.name)]
    with Workers(notebook, [exercise.name for exercise in wanted], nursery) as workers:
        answers = {exercise: NotebookAnswer(workers, notebook, exercise.name) for exercise in wanted}
        verdicts = {exercise: _check(exercise, answers[exercise], notebook, workers, seed) for exercise in progress(wanted)}
        # references are lent only now: what an answer keeps of them can't answer anything that gives points
        right = {exercise for exercise, verdict in verdicts.items() if verdict.status == PASSED}  # no fault can be in these
        earlier = [other for other in module.exercises if other not in right]
        for exercise, verdict in verdicts.items():
            with contextlib.suppress(InfrastructureError):  # the verdict stands without that word too
                verdicts[exercise] = carried_forward(verdict, exercise, answers[exercise], seed, earlier)
    return module, list(verdicts.values())


def _check(exercise, answer, notebook, workers, seed):
    if not answer.exists:
        return _missing(exercise, notebook)
    for _ in range(2):
        try:
            return check(exercise, answer, seed)
        except InfrastructureError as error:  # the machine's fault, never a score
            workers.discard()
            problem = str(error)
    return without_points(exercise, COULD_NOT_CHECK, problem)


def _missing(exercise, notebook):
    for cell, error in notebook.broken.items():
        if exercise.name in notebook.sources[cell]:
            line = (error.text or "").strip()
            what = f"Python can't read {cell}, line {error.lineno}: {error.msg}" + (f" in `{line}`." if line else ".")
            return without_points(exercise, FAILED, what)
    return without_points(exercise, NOT_ATTEMPTED, f"Nothing in the notebook defines {exercise.name}.")
