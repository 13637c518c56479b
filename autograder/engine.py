"""Grading a class: every submission in a folder, each recorded as a line of JSON as soon as it is graded.

Neither how many processes or machines share the work, nor how often it was stopped and started again, changes what comes out.
What imports torch is imported where submissions are graded, and not by the one who hands them out.
"""

import contextlib
import dataclasses
import functools
import importlib.metadata
import json
import multiprocessing
import multiprocessing.forkserver
import os
import platform
import secrets
import signal
import tempfile
from pathlib import Path

from tqdm import tqdm

from autograder import exercises, program, submission
from autograder.sandbox import confine
from autograder.verdict import CanNotCheck

GRADED, NOT_GRADABLE, INFRASTRUCTURE_ERROR = "graded", "not_gradable", "infrastructure_error"
IN_FLIGHT = 3  # tasks that each worker has been given at a time, so that it never waits for the next
SECONDS_OF_A_TASK = 1.0  # of one task of a cluster: so many submissions that handing them out costs little beside grading them


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


def grade(folder, name, out, *, seed=None, jobs=1, scheduler="", tier="", book=None, progress=tqdm):
    """Grade all submissions in a folder; returns their records, by who.

    folder: holds a folder or a file for each submission, named after who handed it in: nbgrader's `submitted`, for one
    name: of the module
    out: path of the results, a line of JSON a submission; what it holds already, and has not changed since, is not graded again
    seed: of the numbers in the cases; None = that of `out`, else a secret one
    jobs: processes on this machine
    scheduler: address of a Dask scheduler, whose workers take their place; they must see the same files
    tier: of isolation; "" = the strongest that works wherever submissions are graded
    book: returns a gradebook.Book, into which each submission is written before its line is; a context manager
    Raises CanNotCheck or NoIsolation, with a sentence.
    """
    out = Path(out)
    recorded = _recorded(out)
    if seed is None:
        seed = next((record["seed"] for record in recorded.values()), secrets.randbits(62))
    found = submissions(folder, name)
    count = min(jobs, len(found))
    pool = _Cluster(count, scheduler, name, tier) if scheduler or count > 1 else _Here(tier)
    with pool as workers, book() if book else contextlib.nullcontext() as book:
        tier = workers.tier()
        todo = [Job(who, str(path.resolve()), name, seed, tier, submission.digest(path), book is not None) for who, path in found.items()]
        kept = (job.who for job in todo if _is_result(recorded.get(job.who), job))
        done = {who: recorded[who] for who in kept if not (book and book.lacks(who))}
        with open(out, "ab") as file, progress(total=len(todo), initial=len(done), unit=" submissions") as bar:
            if out.stat().st_size and not _ends_a_line(out):
                file.write(b"\n")  # it was stopped in the middle of one
            for some in workers.graded([job for job in todo if job.who not in done]):
                if book:
                    book.write([(record, page, found[record["who"]]) for record, page in some if page is not None])
                file.writelines(json.dumps(record).encode() + b"\n" for record, _ in some)
                file.flush()
                done |= {record["who"]: record for record, _ in some}
                bar.update(len(some))
    records = [done[job.who] for job in todo]
    _replace(out, records)
    return records


def submissions(folder, name):
    """{who: Path of the folder or file} of a folder of submissions of a module, by name. Raises CanNotCheck."""
    try:
        entries = sorted(Path(folder).iterdir())
    except OSError as error:
        raise CanNotCheck(f"{folder} can't be read ({error.strerror}): name the folder that holds the submissions.") from None
    found, own, folders = {}, exercises.folder(name), set(map(exercises.folder, exercises.NAMES))
    for entry in entries:
        if entry.name.startswith(".") or entry.is_symlink():
            continue
        if entry.is_dir():
            inner = entry / own
            if inner.is_dir() or not folders & set(os.listdir(entry)):  # else it holds other modules alone
                found[entry.name] = inner if inner.is_dir() else entry
        elif entry.suffix in (".ipynb", ".zip"):
            found[entry.name if entry.stem in found else entry.stem] = entry
    if not found:
        raise CanNotCheck(f"{folder} holds no submission of {own}: it should hold a folder for each learner.")
    return found


def grade_one(job, core):
    """See executor.grade."""
    from autograder import executor

    return executor.grade(job, core)


def prepare(*arguments):
    """See executor.prepare."""
    from autograder import executor

    return executor.prepare(*arguments, core=_number(multiprocessing.current_process().name.rpartition("-")[2]))


def ready(*arguments):
    """See executor.ready."""
    from autograder import executor

    return executor.ready(*arguments)


def start_worker(parent):
    """What a process that grades for another does first. parent: see program.likely_parent"""
    import torch

    adopt(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who is interrupted ends it
    torch.set_num_threads(1)


def cores():
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def find_tier(wanted, parent=None):
    """See isolation.for_others. parent: see program.likely_parent"""
    from autograder import isolation

    adopt(parent)
    return isolation.for_others(wanted)


def adopt(parent):
    """Have this process use a warm parent that another has started, or None."""
    from autograder import isolation

    if parent:
        isolation.nursery(parent.tier).adopt(parent)


class _Here:
    """Grades in this process; a context manager."""

    def __init__(self, wanted):
        self._wanted = wanted

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def tier(self):
        """The tier of isolation. Raises NoIsolation."""
        return find_tier(self._wanted)

    def graded(self, jobs):
        """What `grade_one` returns for each of these jobs, as soon as it is there: lists of one or several."""
        return ([grade_one(job, os.getpid())] for job in jobs)


class _Cluster:
    """Grades on the workers of a Dask scheduler, by default one of its own; a context manager.

    Workers of its own are forked from a process that has imported, on one thread, all that they need, and share a warm parent; both
    start at once.
    """

    def __init__(self, processes, scheduler, name, wanted):
        self._processes, self._scheduler, self._wanted = processes, scheduler, wanted
        self._client = self._parent = None
        if not scheduler:
            self._parent = program.likely_parent(wanted)
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(["autograder.zygote", "distributed.nanny", f"autograder.exercises.{name}"])
            multiprocessing.forkserver.ensure_running()
        import distributed  # takes half a second, and a serial run does without

        self._distributed = distributed

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._client:
            self._client.close()
        if self._parent:
            self._parent.end()

    def tier(self):
        """See _Here: the weakest of those that are the strongest on each worker."""
        import dask

        here = {} if self._scheduler else {"n_workers": self._processes, "threads_per_worker": 1, "dashboard_address": None}
        settings = {"distributed.worker.multiprocessing-method": "forkserver", "distributed.worker.profile.enabled": False}
        with dask.config.set(settings):
            self._client = self._distributed.Client(self._scheduler or None, **here)
        self._client.wait_for_workers(1)
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        anywhere = {"allow_other_workers": True, "pure": False}
        found = [self._client.submit(find_tier, self._wanted, self._parent, workers=[worker], **anywhere) for worker in workers]
        return max(self._client.gather(found), key=confine.TIERS.index)

    def graded(self, jobs):
        """See _Here."""
        waiting, at_work, size = list(reversed(jobs)), {}, 1
        workers = len(self._client.scheduler_info(n_workers=-1)["workers"])
        running = self._distributed.as_completed(with_results=True, raise_errors=False)

        def start(some=()):
            some = some or [waiting.pop() for _ in range(min(size, len(waiting)))]
            if some:
                future = self._client.submit(_on_a_worker, some, pure=False)
                at_work[future] = some
                running.add(future)

        for _ in range(IN_FLIGHT * workers):
            start()
        for future, result in running:
            some = at_work.pop(future)
            if future.status != "error":
                each = sum(record["seconds"] for record, _ in result) / len(result)
                together = len(waiting) // (2 * workers)  # so that towards the end none has long to do when the others have done
                size = max(1, min(together, int(SECONDS_OF_A_TASK / max(each, 1e-3))))
                yield result
            elif len(some) > 1:  # one of them may have cost the worker its life: not the others too
                for job in some:
                    start([job])
            else:  # a worker may be lost, and is replaced; that it is lost again and again is the machine's fault
                yield [_lost(some[0], result[1])]
            start()


def _on_a_worker(jobs):
    import distributed

    return [grade_one(job, _number(str(distributed.get_worker().name))) for job in jobs]


def _number(name):
    """Of this process: its name, where they are numbered; else any."""
    return int(name) if name.isdecimal() else os.getpid()


def _lost(job, error):
    from autograder import executor

    return executor.record(job, ending=INFRASTRUCTURE_ERROR, message=f"It was lost on its way: {error}"), None


@functools.cache
def versions():
    """What a result depends on, beside the submission and the seed."""
    packages = {name: importlib.metadata.version(name) for name in ("attention-by-hand", "torch", "numpy")}
    return packages | {"python": platform.python_version()}


def _is_result(record, job):
    """Whether a record is the result of that job, and not of an earlier submission, another seed or another version of the grader."""
    if record is None or record["ending"] == INFRASTRUCTURE_ERROR:
        return False
    wanted = {"digest": job.digest, "module": job.module, "seed": job.seed, "isolation": job.tier, "versions": versions()}
    return all(record.get(key) == value for key, value in wanted.items())


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
