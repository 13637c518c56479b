"""One submission, from its files to its record and its graded notebook."""

import functools
import json
import os
import time

from autograder import exercises, grading, isolation, report, submission
from autograder.engine import GRADED, INFRASTRUCTURE_ERROR, NOT_GRADABLE, versions
from autograder.page import KEY, Prepared, fill, stamped
from autograder.program import InfrastructureError
from autograder.repair import NotGradable
from autograder.verdict import COULD_NOT_CHECK, CanNotCheck


def grade(job, core):
    """(the record of one submission, as JSON takes it; its graded notebook, as text, or None). No submission makes it raise.

    job: an engine.Job
    core: number of the one on which it is to stay
    """
    start, page, found = time.perf_counter(), None, record(job)
    try:
        page = _graded(job, core, found)
    except Exception as error:
        found |= {"ending": INFRASTRUCTURE_ERROR, "message": _sentence(error)}
    found["seconds"] = round(time.perf_counter() - start, 3)
    return found, page


def _graded(job, core, found):
    """Fill in the record; returns the graded notebook, where that is wanted and there is one. Raises CanNotCheck."""
    nursery = isolation.nursery(job.tier)
    nursery.peak_memory = 0
    result = prepare(job.path, job.module, exercises.learners_path(job.module), job.seed, job.tier, core=core)
    if result.error:
        raise CanNotCheck(result.error)
    known = result.notebook["metadata"][KEY]
    if result.not_gradable:
        found |= {"ending": NOT_GRADABLE, "message": result.not_gradable, "for_the_learner": known["refused"]}
    else:
        found |= report.module_json(exercises.module(job.module), result.verdicts.values())
        found |= {"repairs": known["repairs"], "peak_memory": nursery.peak_memory}
    return json.dumps(fill(result.notebook, result.verdicts), ensure_ascii=False) if job.page else None


def _sentence(error):
    """What is said of an exception: a fault of this program must not cost the others their grades."""
    expected = isinstance(error, (CanNotCheck, InfrastructureError))
    return str(error) if expected else f"The grader itself failed, please report it: {error!r}"


def prepare(path, name, released, seed, tier, known="", core=0):
    """The Prepared submission. No submission makes it raise.

    path: of the folder or file
    name: of the module
    released: path of the notebook that was given out
    known: the digest (see page.stamped) of what was graded before, and is not to be graded again
    core: number of the one on which it is to stay
    """
    result = Prepared()
    try:
        module, master = exercises.module(name), _given(released, name)
        try:
            repaired = submission.repaired(path, module, master)
        except NotGradable as error:
            result.notebook, result.not_gradable = stamped(master, refused=error.learner), str(error)
        else:
            result.notebook = stamped(repaired.notebook, repairs=list(repaired.repairs))
            if result.notebook["metadata"][KEY]["submitted"] != known:
                with isolation.one_core(core):
                    result.verdicts = verdicts(result.notebook, module, seed, isolation.nursery(tier))
        result.notebook["metadata"][KEY] |= {"seed": seed, "isolation": tier}
    except Exception as error:
        result.error = _sentence(error)
    return result


def ready(name, released, wanted):
    """The tier of isolation here, for a module whose notebook was given out. Raises CanNotCheck, with a sentence."""
    _given(released, name)
    return isolation.for_others(wanted)


def _given(released, name):
    """The notebook that was given out, read once as long as its file stays the same. Raises CanNotCheck."""
    return _read_given(str(released), os.path.exists(released) and os.stat(released).st_mtime_ns, name)


@functools.lru_cache(maxsize=8)
def _read_given(path, modified, name):
    return submission.given_out(path, exercises.module(name))


def record(job, **fields):
    """The record of a submission of which nothing is known yet."""
    module = exercises.module(job.module)
    made_by = {"seed": job.seed, "isolation": job.tier, "versions": versions(), "digest": job.digest, "seconds": 0.0, "peak_memory": 0}
    result = {"ending": GRADED, "message": "", "repairs": [], "module": module.name, "score": 0, "points": module.points, "exercises": []}
    return {"who": job.who, **result, **made_by, **fields}


def verdicts(notebook, module, seed, nursery):
    """{grade_id of a check cell: Verdict} of a notebook. Raises CanNotCheck, and InfrastructureError where an answer could not be run."""
    _, found = grading.check_notebook(notebook, seed=seed, nursery=nursery, module=module)
    for verdict in found:
        if verdict.status == COULD_NOT_CHECK:
            raise InfrastructureError(f"{verdict.name} could not be run: {verdict.what}")
    return {f"check-{verdict.name}": verdict for verdict in found}
