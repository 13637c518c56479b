"""A large class through a cluster whose workers and coordinator are killed on the way; and what a second core gains.

Run: python benchmarks/class_scale.py [--class 10000]
What is timed may use as many cores as it has processes, and so may this program, which looks at it meanwhile.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from classes import alone, texts, write_class
from tqdm import tqdm

from autograder import exercises

MODULE = exercises.module("start")
PAIRS = 5
DIFFER = ("seconds", "peak_memory")  # of a record, what differs from run to run


def main():
    """Grade the class serially, then on two workers with three kills, then on two in peace; compare the results and the rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--class", dest="size", type=int, default=10_000, metavar="N")
    parser.add_argument("--alone", action="store_true", help="only print how long notebooks' own definitions and probes take")
    options = parser.parse_args()
    if options.alone:
        return print(alone(MODULE, texts(MODULE, 300)))
    size = options.size
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for few in (100, 1_000):
            write_class(folder / f"of {few}" / "submitted", MODULE, few)
            print(f"peak memory with {few} submissions: {timed(folder / f'of {few}', 2)[1] / 2**20:.0f} MiB, all processes together")
        write_class(folder / "submitted", MODULE, size)
        rates, peaks = {}, {}
        for jobs in (1, 2):
            seconds, peaks[jobs] = timed(folder, jobs)
            rates[jobs] = size / seconds
        print(f"one core {rates[1]:.1f} a second, two {rates[2]:.1f}, the start included; {machine():.2f} times is what the machine has")
        print(f"peak memory with {size}: {peaks[1] / 2**20:.0f} and {peaks[2] / 2**20:.0f} MiB")
        gains = sorted(second_core(folder / "of 1000") for _ in range(PAIRS))
        each = ", ".join(f"{gain:.2f}" for gain in gains)
        print(f"a second core, once all has started, {PAIRS} times one after the other: {statistics.median(gains):.2f} times ({each})")
        graded = stopped(folder, size)
        print(f"two workers and the coordinator killed: {graded} graded before the end, none of them twice")
        serial, parallel, killed = (results(folder / f"{name}.jsonl") for name in ("1", "2", "killed"))
        assert len(serial) == size and serial == parallel == killed
        print(f"{size} results, the same each time")


def machine():
    """What a second core gains for the notebooks' own definitions and probes alone, in two processes that know nothing of each other."""
    each = {}
    for count in (1, 2):
        command = [sys.executable, __file__, "--alone"]
        with cores(count):
            side_by_side = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
            each[count] = sum(float(process.communicate()[0]) for process in side_by_side) / count
    return 2 * each[1] / each[2]


def second_core(folder):
    """How much faster two cores are than one, half of it before and half of it after: the speed of a machine changes by the minute."""
    before, both, after = (steady(folder, jobs) for jobs in (1, 2, 1))
    return 2 * both / (before + after)


def steady(folder, jobs):
    """Submissions a second, on so many cores, between the first and the last tenth."""
    out = folder / "steady.jsonl"
    total = len(list((folder / "submitted").iterdir()))
    with cores(jobs):
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        run = subprocess.Popen(command(folder, jobs, "steady"), cwd=exercises.ROOT, start_new_session=True, **quiet)
        seen = []  # (seconds, submissions)
        for tenths in (1, 9):
            while lines(out) < total * tenths / 10:
                time.sleep(0.05)
            seen.append((time.perf_counter(), lines(out)))
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    out.unlink()
    return (seen[1][1] - seen[0][1]) / (seen[1][0] - seen[0][0])


@contextlib.contextmanager
def cores(count):
    """For a time, this process and those that it starts stay on the first so many cores."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def timed(folder, jobs):
    """(seconds for the whole class, on so many cores, bytes of memory of all processes together at their peak)."""
    with cores(jobs):
        start, peak = time.perf_counter(), 0
        run = subprocess.Popen(command(folder, jobs, str(jobs)), cwd=exercises.ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with tqdm(desc=f"{jobs} at a time", leave=False) as bar:
            while run.poll() is None:
                with contextlib.suppress(psutil.Error):
                    peak = max(peak, memory(psutil.Process(run.pid)))
                bar.update(lines(folder / f"{jobs}.jsonl") - bar.n)
                time.sleep(0.5)
        assert run.returncode == 0
        return time.perf_counter() - start, peak


def memory(process):
    """Bytes of a process and all below it, what they share counted once."""
    total = 0
    for each in [process, *process.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            total += each.memory_full_info().pss
    return total


def stopped(folder, size):
    """Kill a worker after two and four tenths of the class, the coordinator after six, and go on; returns how many were graded before."""
    out, run = folder / "killed.jsonl", command(folder, 2, "killed")
    process = subprocess.Popen(run, cwd=exercises.ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    with tqdm(total=size, desc="killed", leave=False) as bar:
        for tenths, victim in ((2, "worker"), (4, "worker"), (6, "coordinator")):
            while lines(out) < size * tenths / 10:
                bar.update(lines(out) - bar.n)
                time.sleep(0.2)
            os.kill(process.pid if victim == "coordinator" else worker_of(process.pid), signal.SIGKILL)
    process.wait()
    graded = [json.loads(line)["who"] for line in out.read_bytes().splitlines() if line.endswith(b"}")]
    assert len(graded) == len(set(graded)) < size
    subprocess.run(run, cwd=exercises.ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return len(graded)


def command(folder, jobs, name):
    """The command that grades the class."""
    words = ["grade", folder / "submitted", "--module", MODULE.name, "--jobs", jobs, "--seed", 7, "--out", folder / f"{name}.jsonl"]
    return [sys.executable, "-m", "autograder", *map(str, words)]


def worker_of(coordinator):
    """The process id of a worker."""
    (server,) = (child for child in psutil.Process(coordinator).children() if "forkserver" in " ".join(child.cmdline()))
    return server.children()[0].pid


def lines(out):
    """How many results there are."""
    return out.read_bytes().count(b"\n") if out.exists() else 0


def results(out):
    """The results without what differs from run to run."""
    return [{key: value for key, value in json.loads(line).items() if key not in DIFFER} for line in out.read_bytes().splitlines()]


if __name__ == "__main__":
    main()
