"""From a lesson and the reference to the notebooks: lesson.md -> worked notebook (executed) -> learner's notebook.

jupytext reads the Markdown, nbgrader's generate_assignment takes the answers out. What is built is the same to the byte
each time, but for the outputs of the worked notebook.
"""

import copy
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

from autograder import cells
from autograder.exercises import ROOT, learners_path, worked_path

KERNEL = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
SECONDS_TO_EXECUTE = 600  # a cell
EXERCISE = re.compile(r"^<!-- exercise: (\w+) -->$", re.MULTILINE)


def build(module, execute=False):
    """Write both notebooks of a module; the worked one is executed where its cells have changed, or always."""
    notebook = worked(module)
    before = worked_path(module.name)
    if not execute and before.exists() and without_outputs(old := nbformat.read(before, 4)) == notebook and has_outputs(old):
        notebook = old
    else:
        run(notebook, before.parent)
    nbformat.write(notebook, before)
    learners = learners_path(module.name)
    learners.parent.mkdir(parents=True, exist_ok=True)
    learners.write_text(release(module, notebook), encoding="utf-8")


def worked(module):
    """The worked notebook, not yet executed. Raises ValueError where the lesson and the exercises don't agree."""
    lesson = (ROOT / "solutions" / module.folder / "lesson.md").read_text(encoding="utf-8")
    asked = EXERCISE.findall(lesson)
    if asked != [exercise.name for exercise in module.exercises]:
        raise ValueError(f"the lesson of {module.name} asks for {asked}, and {module.name} has {[each.name for each in module.exercises]}")
    for name in ("points", "hours", "difficulty", "needs", "title"):
        lesson = lesson.replace("{{%s}}" % name, dots(module.difficulty) if name == "difficulty" else str(getattr(module, name)))
    notebook = nbformat.v4.new_notebook(metadata=copy.deepcopy(KERNEL))
    for cell in jupytext.reads(lesson, fmt="md").cells:
        notebook.cells += _expanded(cell, module)
    used = set()
    for cell in notebook.cells:
        cell.id = _id(cell, used)
    nbformat.validate(notebook)
    return notebook


def dots(difficulty):
    """A difficulty from 1 to 5 as a picture."""
    return "●" * difficulty + "○" * (5 - difficulty)


def run(notebook, folder):
    """Execute a notebook in place; the output of progress bars is left out."""
    environment = dict(os.environ, PYTHONHASHSEED="0", MPLBACKEND="module://matplotlib_inline.backend_inline")
    here = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=SECONDS_TO_EXECUTE, kernel_name="python3", resources=here).execute(env=environment)
    notebook.metadata = copy.deepcopy(KERNEL)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if not _is_progress(output)]


def without_outputs(notebook):
    """A copy of a notebook as it was before it was executed."""
    stripped = copy.deepcopy(notebook)
    for cell in stripped.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return stripped


def has_outputs(notebook):
    """Whether it has been executed to its end."""
    return all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip())


def release(module, notebook):
    """The text of the learner's notebook, as nbgrader makes it from the worked one."""
    with tempfile.TemporaryDirectory() as course:
        source = Path(course) / "solutions" / module.folder
        source.mkdir(parents=True)
        nbformat.write(without_outputs(notebook), source / f"{module.slug}.ipynb")
        shutil.copy(ROOT / "nbgrader_config.py", course)
        done = nbgrader(course, "generate_assignment", module.folder, "--create")
        if done.returncode:
            raise ValueError(f"nbgrader could not make the learner's notebook of {module.name}:\n{done.stderr}")
        return (Path(course) / "notebooks" / module.folder / f"{module.slug}.ipynb").read_text(encoding="utf-8")


def nbgrader(course, *words):
    """The subprocess.CompletedProcess of a command of nbgrader in a course folder, with what it printed as text."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])  # a new gradebook runs alembic from there
    command = [sys.executable, "-m", "nbgrader", *words]
    return subprocess.run(command, cwd=course, env=dict(os.environ, PATH=path), capture_output=True, text=True)


def _expanded(cell, module):
    """A cell of the lesson, or the cells that stand for the exercises that it names."""
    if cell.cell_type != "markdown":
        return [nbformat.v4.new_code_cell(cell.source, metadata={})]
    pieces = EXERCISE.split(cell.source)
    found = []
    for i, piece in enumerate(pieces):
        if i % 2:
            found += _exercise_cells(module.exercise(piece), module)
        elif piece.strip():
            found.append(nbformat.v4.new_markdown_cell(piece.strip()))
    return found


def _exercise_cells(exercise, module):
    number = module.exercises.index(exercise) + 1
    parts = ", ".join(f"{part} {points}" for part, points in exercise.parts.items())
    heading = (
        f"### Exercise {number}: `{exercise.name}`\n\n{exercise.purpose}\n\n"
        f"{dots(exercise.difficulty)} · about {exercise.minutes} minutes · {exercise.points} points ({parts})\n\n"
        f"Stuck? Run `hint({exercise.name})` in a new cell, as often as you like: each run goes one step further."
    )
    hidden = f"### BEGIN HIDDEN TESTS\nimport secrets\ncheck({exercise.name}, seed=secrets.randbits(32))\n### END HIDDEN TESTS"
    return [
        nbformat.v4.new_markdown_cell(heading),
        nbformat.v4.new_code_cell(cells.solution(exercise.reference), metadata=_nbgrader(exercise.name, solution=True)),
        nbformat.v4.new_code_cell(
            f"check({exercise.name})\n{hidden}", metadata=_nbgrader(f"check-{exercise.name}", points=exercise.points)
        ),
    ]


def _nbgrader(grade_id, solution=False, points=None):
    metadata = {
        "grade": not solution,
        "grade_id": grade_id,
        "locked": not solution,
        "schema_version": 3,
        "solution": solution,
        "task": False,
    }
    return {"nbgrader": metadata | ({} if points is None else {"points": points})}


def _id(cell, used):
    """An id that stays the same as long as the cell does."""
    is_exercise = "nbgrader" in cell.metadata
    base = cell.metadata.nbgrader.grade_id if is_exercise else hashlib.sha256(cell.source.encode()).hexdigest()[:8]
    number = sum(id.split(".")[0] == base for id in used)
    used.add(f"{base}.{number}")
    return base if not number else f"{base}-{number}"


def _is_progress(output):
    return output.get("name") == "stderr" or "application/vnd.jupyter.widget-view+json" in output.get("data", {})
