"""Carry-over: what a module takes from earlier ones is the learner's own work where it passes, else the reference."""

from pathlib import Path

from autograder import exercises
from autograder.answers import KernelAnswer
from autograder.check import check
from autograder.exercises import PUBLIC_SEED
from autograder.sandbox import loader, observe
from autograder.verdict import PASSED


def load(module, *names):
    """The functions or classes of an earlier module, in the order of their names; prints whose each one is.

    The learner's own are read from that module's notebook, beside the folder of this one; nothing else in it is run.
    Returns one value for one name, else a tuple. Raises ValueError for a module or a name that does not exist.
    """
    if not names:
        raise ValueError(f"Say which parts of {module} you want: parts.load({module!r}, …).")
    declared = exercises.module(module)
    references = {name: exercises.part(module, name) for name in names}
    notebook = _notebook(declared)
    yours = {name: own for name in names if (own := _own(name, declared, notebook)) is not None}
    others = [name for name in names if name not in yours]
    whose = {"yours": list(yours), "the reference's": others}
    print(f"from {declared.folder}: " + "; ".join(f"{who}: {', '.join(these)}" for who, these in whose.items() if these))
    found = tuple(yours.get(name, references[name]) for name in names)
    return found if len(found) > 1 else found[0]


def _notebook(declared):
    path = Path.cwd().parent / declared.folder / f"{declared.slug}.ipynb"
    try:
        return loader.parse(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, loader.UnreadableNotebook):
        return None


def _own(name, declared, notebook):
    """The learner's own answer where it passes its check, else None."""
    exercise = declared.exercise(name)
    if notebook is None or exercise is None:
        return None
    earlier = {bound: exercises.part(*source) for bound, source in notebook.carried.items()}
    with observe.standard_state():
        namespace, _ = notebook.load(name, earlier)
    target = namespace.get(name)
    passed = callable(target) and check(exercise, KernelAnswer(target), PUBLIC_SEED).status == PASSED
    return target if passed else None
