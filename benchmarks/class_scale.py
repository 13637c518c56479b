"""A large class through a cluster whose workers and coordinator are killed on the way; and what a second core gains.

Run: python benchmarks/class_scale.py [--class 10000]
"""

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from classes import write_class
from tqdm import tqdm

from autograder import build, exercises

MODULE = exercises.module("start")
DIFFER = ("seconds", "peak_memory")  # of a record, what differs from run to run


def main():
    """Grade the class serially, then on two workers with three kills, then on two in peace; compare the results and the rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--class", dest="size", type=int, default=10_000, metavar="N")
    size = parser.parse_args().size
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for few in (100, 1_000):
            write_class(folder / f"of {few}" / "submitted", MODULE, few)
            timed(folder / f"of {few}", 2)
            peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss  # KiB, of the largest process so far
            print(f"peak memory of a process with {few} submissions: {peak / 1024:.0f} MiB")
        write_class(folder / "submitted", MODULE, size)
        rates = {jobs: size / timed(folder, jobs) for jobs in (1, 2)}
        print(f"one process {rates[1]:.1f} a second, two {rates[2]:.1f}: {rates[2] / rates[1]:.2f} times")
        graded = stopped(folder, size)
        print(f"two workers and the coordinator killed: {graded} graded before the end, none of them twice")
        serial, parallel, killed = (results(folder / f"{name}.jsonl") for name in ("1", "2", "killed"))
        assert len(serial) == size and serial == parallel == killed
        print(f"{size} results, the same each time")


def timed(folder, jobs):
    """Seconds for the whole class."""
    start = time.perf_counter()
    subprocess.run(command(folder, jobs, str(jobs)), cwd=build.ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def stopped(folder, size):
    """Kill a worker after two and four tenths of the class, the coordinator after six, and go on; returns how many were graded before."""
    out, run = folder / "killed.jsonl", command(folder, 2, "killed")
    process = subprocess.Popen(run, cwd=build.ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    with tqdm(total=size, desc="killed", leave=False) as bar:
        for tenths, victim in ((2, "worker"), (4, "worker"), (6, "coordinator")):
            while lines(out) < size * tenths / 10:
                bar.update(lines(out) - bar.n)
                time.sleep(0.2)
            os.kill(process.pid if victim == "coordinator" else worker_of(process.pid), signal.SIGKILL)
    process.wait()
    graded = [json.loads(line)["who"] for line in out.read_bytes().splitlines() if line.endswith(b"}")]
    assert len(graded) == len(set(graded)) < size
    subprocess.run(run, cwd=build.ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return len(graded)


def command(folder, jobs, name):
    """The command that grades the class."""
    words = ["grade", folder / "submitted", "--module", MODULE.name, "--jobs", jobs, "--seed", 7, "--out", folder / f"{name}.jsonl"]
    return [sys.executable, "-m", "autograder", *map(str, words)]


def worker_of(coordinator):
    """The process id of a worker."""
    return int(subprocess.check_output(["pgrep", "-P", str(coordinator), "-f", "spawn_main"]).split()[0])


def lines(out):
    """How many results there are."""
    return out.read_bytes().count(b"\n") if out.exists() else 0


def results(out):
    """The results without what differs from run to run."""
    return [{key: value for key, value in json.loads(line).items() if key not in DIFFER} for line in out.read_bytes().splitlines()]


if __name__ == "__main__":
    main()
