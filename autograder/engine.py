"""Grading a class: every submission in a folder, each recorded as a line of JSON as soon as it is graded.

Neither how many processes or machines share the work, nor how often it was stopped and started again, changes what comes out.
"""

import dataclasses
import functools
import importlib.metadata
import json
import os
import platform
import secrets
import sys
import tempfile
import time
from pathlib import Path

from nbformat import v4
from tqdm import tqdm

from autograder import build, converter, executor, exercises, grading, isolation, report, submission
from autograder.process import InfrastructureError
from autograder.repair import NotGradable

GRADED, NOT_GRADABLE, INFRASTRUCTURE_ERROR = "graded", "not_gradable", "infrastructure_error"
IN_FLIGHT = 3  # submissions that each worker has been given at a time, so that it never waits for the next


@dataclasses.dataclass(frozen=True)
class Job:
    """One submission to be graded: a plain value, which can go to another machine that has the same files."""

    who: str
    path: str
    module: str
    seed: int
    tier: str
    digest: str  # of what was submitted
    page: bool  # whether the graded notebook is wanted too


def grade(folder, module, out, *, seed=None, jobs=1, scheduler="", tier="", book=None, progress=tqdm):
    """Grade all submissions in a folder; returns their records, by who.

    folder: holds a folder or a file for each submission, named after who handed it in: nbgrader's `submitted`, for one
    out: path of the results, a line of JSON a submission; what it holds already, and has not changed since, is not graded again
    seed: of the numbers in the cases; None = that of `out`, else a secret one
    jobs: processes on this machine
    scheduler: address of a Dask scheduler, whose workers take their place; they must see the same files
    tier: of isolation; "" = the strongest that works here
    book: a gradebook.Book, into which each submission is written before its line is
    Raises CanNotCheck or NoIsolation, with a sentence.
    """
    out, tier = Path(out), isolation.for_others(tier)
    recorded = _recorded(out)
    if seed is None:
        seed = next((record["seed"] for record in recorded.values()), secrets.randbits(62))
    found = submissions(folder, module)
    todo = [
        Job(who, str(path.resolve()), module.name, seed, tier, submission.digest(path), book is not None) for who, path in found.items()
    ]
    done = {job.who: recorded[job.who] for job in todo if _is_result(recorded.get(job.who), job) and not (book and book.lacks(job.who))}
    with open(out, "ab") as file, progress(total=len(todo), initial=len(done), unit=" submissions") as bar:
        if out.stat().st_size and not _ends_a_line(out):
            file.write(b"\n")  # it was stopped in the middle of one
        for record, page in _graded([job for job in todo if job.who not in done], jobs, scheduler):
            if page is not None:
                book.write(record, page, converter.timestamp(found[record["who"]]))
            file.write(json.dumps(record).encode() + b"\n")
            file.flush()
            done[record["who"]] = record
            bar.update()
    records = [done[job.who] for job in todo]
    _replace(out, records)
    return records


def submissions(folder, module):
    """{who: Path of the folder or file} of a folder of submissions, by name. Raises CanNotCheck."""
    try:
        entries = sorted(Path(folder).iterdir())
    except OSError as error:
        raise grading.CanNotCheck(f"{folder} can't be read ({error.strerror}): name the folder that holds the submissions.") from None
    found, folders = {}, {other.folder for other in exercises.modules()}
    for entry in entries:
        if entry.name.startswith(".") or entry.is_symlink():
            continue
        if entry.is_dir():
            inner = entry / module.folder
            if inner.is_dir() or not folders & set(os.listdir(entry)):  # else it holds other modules alone
                found[entry.name] = inner if inner.is_dir() else entry
        elif entry.suffix in (".ipynb", ".zip"):
            found[entry.name if entry.stem in found else entry.stem] = entry
    if not found:
        raise grading.CanNotCheck(f"{folder} holds no submission of {module.folder}: it should hold a folder for each learner.")
    return found


def grade_one(job):
    """(the record of one submission, as JSON takes it; the text of its graded notebook, or None). No submission makes it raise."""
    start, page, record = time.perf_counter(), None, _record(job)
    try:
        with isolation.one_core(_number()):
            page = _grade(job, record)
    except (grading.CanNotCheck, InfrastructureError) as error:
        record |= {"ending": INFRASTRUCTURE_ERROR, "message": str(error)}
    except Exception as error:  # a fault of this program must not cost the others their grades
        record |= {"ending": INFRASTRUCTURE_ERROR, "message": f"The grader itself failed, please report it: {error!r}"}
    record["seconds"] = round(time.perf_counter() - start, 3)
    return record, page


def _number():
    """Of this process among those of a local cluster; elsewhere any."""
    if "distributed" not in sys.modules:
        return os.getpid()
    import distributed

    try:
        return int(distributed.get_worker().name)
    except ValueError:  # no worker, or one of another cluster, with a name
        return os.getpid()


def _grade(job, record):
    """Fill in the record; returns the text of the graded notebook, where that is wanted. Raises CanNotCheck and InfrastructureError."""
    module, verdicts = exercises.module(job.module), None
    try:
        repaired = submission.repaired(job.path, module, master(module.name))
        notebook = executor.stamped(repaired.notebook, repairs=list(repaired.repairs))
        record["repairs"] = list(repaired.repairs)
        nursery = isolation.nursery(job.tier)
        nursery.peak_memory = 0
        verdicts = executor.verdicts(notebook, module, job.seed, nursery)
        record |= report.module_json(module, verdicts.values()) | {"peak_memory": nursery.peak_memory}
    except NotGradable as error:
        record |= {"ending": NOT_GRADABLE, "message": str(error), "for_the_learner": error.learner}
        notebook = executor.stamped(master(module.name), refused=error.learner)
    notebook.metadata[executor.KEY] |= {"seed": job.seed, "isolation": job.tier}
    return v4.writes(executor.fill(notebook, verdicts)) if job.page else None


@functools.cache
def versions():
    """What a result depends on, beside the submission and the seed."""
    packages = {name: importlib.metadata.version(name) for name in ("attention-by-hand", "torch", "numpy")}
    return packages | {"python": platform.python_version()}


@functools.cache
def master(name):
    """The notebook of a module that was given out."""
    module = exercises.module(name)
    return submission.given_out(build.learners_path(module), module)


def _record(job, **fields):
    module = exercises.module(job.module)
    made_by = {"seed": job.seed, "isolation": job.tier, "versions": versions(), "digest": job.digest, "seconds": 0.0, "peak_memory": 0}
    result = {"ending": GRADED, "message": "", "repairs": [], "module": module.name, "score": 0, "points": module.points, "exercises": []}
    return {"who": job.who, **result, **made_by, **fields}


def _graded(jobs, processes, scheduler):
    """What `grade_one` returns for each of these jobs, as soon as it is there."""
    if not scheduler and min(processes, len(jobs)) <= 1:
        yield from map(grade_one, jobs)
        return
    import distributed  # takes a second, and a serial run does without

    here = {} if scheduler else {"n_workers": min(processes, len(jobs)), "threads_per_worker": 1, "dashboard_address": None}
    with distributed.Client(scheduler or None, **here) as client:
        waiting, running, at_work = iter(jobs), distributed.as_completed(), {}

        def start(count):
            for _, job in zip(range(count), waiting):
                future = client.submit(grade_one, job, pure=False)
                at_work[future] = job
                running.add(future)

        client.wait_for_workers(1)
        start(IN_FLIGHT * len(client.scheduler_info(n_workers=-1)["workers"]))
        for future in running:
            job = at_work.pop(future)
            error = future.exception()  # a worker may be lost, and is replaced; that it is lost again and again is the machine's fault
            lost = _record(job, ending=INFRASTRUCTURE_ERROR, message=f"It was lost on its way: {error}")
            yield (lost, None) if error else future.result()
            start(1)


def _is_result(record, job):
    """Whether a record is the result of that job, and not of an earlier submission, another seed or another version of the grader."""
    if record is None or record["ending"] == INFRASTRUCTURE_ERROR:
        return False
    wanted = _record(job)
    return all(record.get(key) == wanted[key] for key in ("digest", "module", "seed", "isolation", "versions"))


def _recorded(out):
    """{who: the last record} of a results file; a line that was cut short is none."""
    records = {}
    if out.exists():
        for line in out.read_bytes().splitlines():
            try:
                record = json.loads(line)
                records[record["who"]] = {**record, "seed": int(record["seed"]), "ending": str(record["ending"])}
            except (ValueError, TypeError, KeyError):
                continue
    return records


def _ends_a_line(path):
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() == b"\n"


def _replace(out, records):
    """Write all records anew, in their order, so that a run that was stopped on its way ends like any other."""
    with tempfile.NamedTemporaryFile("wb", dir=out.parent, prefix=f".{out.name}.", delete=False) as file:
        file.writelines(json.dumps(record).encode() + b"\n" for record in records)
    os.replace(file.name, out)
