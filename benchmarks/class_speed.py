"""How fast a class is graded: stock nbgrader, nbgrader with this executor, and the engine, side by side on one class.

Run: python benchmarks/class_speed.py [--class 100] [--stock 100] [--demos 3]
All three write a gradebook, and the scores in it must be equal. Stock nbgrader is slow: with demos it grades the first few alone.
The speed of a machine changes by the minute, so they take turns.
"""

import argparse
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from classes import alone, write_class
from nbgrader.api import Gradebook

from autograder import build, exercises

MODULE = exercises.module("attention")
STOCK = "stock nbgrader"
ROOT = exercises.ROOT


def main():
    """Grade one class without demos three ways, then the first few with them; then the floor and where the time goes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--class", dest="size", type=int, default=100, metavar="N")
    parser.add_argument("--stock", type=int, default=100, metavar="N")
    parser.add_argument("--demos", type=int, default=3, metavar="N")
    options = parser.parse_args()
    for name, stock, demos in (("demos left out", options.stock, False), ("demos as they are", options.demos, True)):
        if stock:
            with tempfile.TemporaryDirectory() as folder:
                compare(name, Path(folder), options.size, stock, demos)
    floor()


def compare(name, folder, size, stock, demos):
    """One class, three ways: a line each. Stock nbgrader grades it in two halves, the others whole, before, between and after them."""
    ours = (("nbgrader, this executor", nbgrader), ("the engine", engine))
    whole = [(way, action, range(size)) for way, action in ours]
    turns = [*whole]
    for half in (range(stock // 2), range(stock // 2, stock)):
        turns += [(STOCK, stock_nbgrader, half), *whole] if half else []
    seconds, scores = {}, {}
    for turn, (way, action, some) in enumerate(turns):
        course = folder / str(turn)
        new_course(course)
        write_class(course / "submitted", MODULE, max(size, stock), demos)
        for number, path in enumerate(sorted((course / "submitted").iterdir())):
            if number not in some:
                shutil.rmtree(path)
        start = time.perf_counter()
        action(course)
        seconds.setdefault(way, []).append(time.perf_counter() - start)
        print(f"{name}: {way:24} {len(some):4} notebooks in {seconds[way][-1]:6.1f} s", flush=True)
        for who, found in read_scores(course).items():
            assert scores.setdefault(who, found) == found, (way, who, found, scores[who])
        shutil.rmtree(course)
    rate = 60 * stock / sum(seconds[STOCK])
    print(f"{name}: {STOCK:24} {rate:7.1f} a minute")
    for way, _ in ours:
        times = [60 * size / each / rate for each in seconds[way]]
        print(f"{name}: {way:24} {statistics.median(times) * rate:7.1f} a minute, {statistics.median(times):6.1f} times stock", end=" ")
        print(f"({', '.join(f'{each:.1f}' for each in times)})")
    assert len(scores) == max(size, stock)
    print(f"{name}: equal scores for {stock} notebooks, exercise by exercise", flush=True)


def new_course(folder):
    """A course folder whose gradebook knows the assignment."""
    (folder / "solutions" / MODULE.folder).mkdir(parents=True)
    shutil.copy(ROOT / "nbgrader_config.py", folder)
    shutil.copy(exercises.worked_path(MODULE.name), folder / "solutions" / MODULE.folder)
    build.nbgrader(folder, "generate_assignment", MODULE.folder, "--create").check_returncode()


def stock_nbgrader(course):
    """`nbgrader autograde` with its own executor: a kernel a notebook."""
    config = course / "nbgrader_config.py"
    config.write_text("".join(line for line in config.read_text().splitlines(keepends=True) if not line.startswith("converter.install")))
    nbgrader(course)


def nbgrader(course):
    """`nbgrader autograde` as the course sets it up."""
    build.nbgrader(course, "autograde", MODULE.folder).check_returncode()


def engine(course):
    """`python -m autograder grade`, into the same gradebook."""
    run(course, "submitted", "--gradebook", ".")


def run(folder, *words):
    """Run `python -m autograder grade` in a folder. Raises CalledProcessError."""
    command = [sys.executable, "-m", "autograder", "grade", "--module", MODULE.name, *words]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def read_scores(course):
    """{who: {check cell: score}} of a gradebook."""
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as gradebook:
        submissions = gradebook.assignment_submissions(MODULE.folder)
        return {each.student.id: {grade.name: grade.auto_score for grade in each.notebooks[0].grades} for each in submissions}


def floor(size=30):
    """The time of the learners' own definitions and probes alone, in one process; and that of the engine, in one process too."""
    with tempfile.TemporaryDirectory() as folder:
        submitted = Path(folder) / "submitted"
        write_class(submitted, MODULE, size)
        notebooks = [path.read_text() for path in submitted.rglob("*.ipynb")]
        each = statistics.median(alone(MODULE, notebooks) for _ in range(3))
        command = [str(submitted), "--jobs", "1", "--seed", "1", "--out", f"{folder}/out"]
        start = time.perf_counter()
        run(ROOT, *command)
        first = time.perf_counter() - start
        shutil.rmtree(submitted)  # once more with a single notebook: the time to start is not the notebooks'
        write_class(submitted, MODULE, 1, seed=1)
        start = time.perf_counter()
        run(ROOT, *command)
        graded = (first - (time.perf_counter() - start)) / (size - 1)
    print(f"floor: {1000 * each:.0f} ms a notebook for its own definitions and probes alone")
    print(f"the engine on one core: {1000 * graded:.0f} ms, {graded / each:.1f} times the floor")


if __name__ == "__main__":
    main()
    print(f"peak memory of a process: {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024:.0f} MiB")
