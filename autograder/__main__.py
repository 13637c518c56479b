"""`python -m autograder`: check a notebook, grade a class, prove the grader, build the notebooks."""

import argparse
import json
import os
import sys

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # checks are many small products: a second thread only waits

from tqdm import tqdm

from autograder import exercises, report
from autograder.verdict import COULD_NOT_CHECK, PASSED, CanNotCheck

# each command imports what it needs: torch and nbgrader take seconds


def main(arguments=None):
    """Run one command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m autograder", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _check_parser(commands.add_parser("check", help="check a notebook: exit status 0 all passed, 1 not all, 2 could not be checked"))
    _grade_parser(commands.add_parser("grade", help="grade a class: exit status 0 all graded, 1 some could not be, 2 none"))
    _selftest_parser(commands.add_parser("selftest", help="prove the grader on everything that is known to be right or wrong"))
    _build_parser(commands.add_parser("build", help="build the worked and the learner's notebooks from the lessons"))
    options = parser.parse_args(arguments)
    try:
        return options.run(options)
    except (CanNotCheck, ValueError) as error:
        print(error, file=sys.stderr)
        return 2


def _check_parser(parser):
    parser.add_argument("notebook", metavar="NOTEBOOK")
    parser.add_argument("--exercise", default="", metavar="NAME", help="only this exercise")
    parser.add_argument("--format", choices=("text", "json", "gradescope"), default="text", help="gradescope: as its results.json")
    parser.add_argument("--json", action="store_const", const="json", dest="format", help="the same as --format json")
    parser.add_argument("--seed", type=int, default=exercises.PUBLIC_SEED, help="of the numbers in the cases")
    parser.set_defaults(run=_check)


def _check(options):
    from autograder import grading

    try:
        text = grading.read(options.notebook)
        module, verdicts = grading.check_notebook(text, options.exercise, options.seed, _bar)
    except CanNotCheck as error:
        if options.format == "gradescope":
            print(json.dumps(report.gradescope_refused(str(error)), indent=2))  # it would else tell the learner nothing
        raise
    statuses = {verdict.status for verdict in verdicts}
    result = report.module_json(module, verdicts)
    if options.format == "json":
        print(json.dumps(result, indent=2))
    elif options.format == "text":
        print("\n".join(report.text(verdict) for verdict in verdicts))
        print(f"{module.folder}: {result['score']} of {result['points']} points")
    elif COULD_NOT_CHECK in statuses:  # no results, no score: Gradescope then says that the grader failed
        print("\n".join(report.text(verdict) for verdict in verdicts if verdict.status == COULD_NOT_CHECK), file=sys.stderr)
    else:
        print(json.dumps(report.gradescope(module, verdicts), indent=2))
    return 2 if COULD_NOT_CHECK in statuses else 0 if statuses == {PASSED} else 1


def _bar(todo):
    return tqdm(todo, unit=" exercises", leave=False, disable=None)


def _grade_parser(parser):
    parser.add_argument("folder", metavar="FOLDER", help="holds a folder or a notebook for each learner, named after them")
    parser.add_argument("--module", required=True, metavar="NAME")
    parser.add_argument("--jobs", type=int, metavar="N", help="processes on this machine; one for each core, unless you say")
    parser.add_argument("--scheduler", default="", metavar="ADDRESS", help="of a Dask scheduler whose workers grade, tcp://…")
    parser.add_argument("--seed", type=int, help="of the numbers in the cases; a secret one where none is given")
    parser.add_argument(
        "--out", default="results.jsonl", metavar="FILE", help="a line of JSON a submission; what is there is not graded again"
    )
    parser.add_argument("--isolation", default="", metavar="TIER", help="the strongest that works here, unless one is named; none = none")
    parser.add_argument(
        "--gradebook", default="", metavar="FOLDER", help="a course folder of nbgrader's, whose gradebook gets the scores too"
    )
    parser.set_defaults(run=_grade)


def _grade(options):
    from autograder import engine

    def book():
        # jsonschema would build a grammar of web addresses, which takes a second and no notebook needs
        sys.modules.setdefault("rfc3987_syntax", None)
        from autograder import gradebook

        return gradebook.Book(options.gradebook, options.module)

    exercises.require(options.module)
    jobs = engine.cores() if options.jobs is None else options.jobs
    settings = {"seed": options.seed, "jobs": jobs, "scheduler": options.scheduler, "tier": options.isolation}
    records = engine.grade(options.folder, options.module, options.out, book=book if options.gradebook else None, **settings)
    left = [record for record in records if record["ending"] != engine.GRADED]
    for record in left:
        print(report.printable(f"Not graded: {record['who']}. {record['message']}"))
    scores = sorted(record["score"] for record in records if record["ending"] == engine.GRADED)
    if scores:
        spread = f"{scores[0]} to {scores[-1]} of {records[0]['points']} points, the median {scores[len(scores) // 2]}"
        print(f"{len(scores)} graded: {spread}. Each has a line in {options.out}.")
    return 0 if not left else 1 if scores else 2


def _selftest_parser(parser):
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="all of them where none is named")
    parser.set_defaults(run=_selftest)


def _selftest(options):
    from autograder import selftest

    counts = selftest.selftest(_modules(options))
    print("\n".join([*counts.faults, counts.line()]))
    return 1 if counts.faults else 0


def _build_parser(parser):
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="all of them where none is named")
    parser.add_argument("--execute", action="store_true", help="execute every worked notebook, not only those whose cells have changed")
    parser.set_defaults(run=_build)


def _build(options):
    from autograder import build

    for module in tqdm(_modules(options), unit=" modules"):
        build.build(module, options.execute)
    return 0


def _modules(options):
    return [exercises.module(name) for name in options.modules] or exercises.modules()


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # to take torch and nbgrader apart would take as long as grading several notebooks
