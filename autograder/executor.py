"""One submission, from its files to its record and its graded notebook."""

import dataclasses
import functools
import json
import os
import time

from autograder import exercises, grading, isolation, report, submission
from autograder.engine import GRADED, INFRASTRUCTURE_ERROR, NOT_GRADABLE, versions
from autograder.page import KEY, fill, stamped
from autograder.process import InfrastructureError
from autograder.repair import NotGradable
from autograder.verdict import COULD_NOT_CHECK, CanNotCheck


def grade(job, core):
    """(the record of one submission, as JSON takes it; its graded notebook, as text, or None). No submission makes it raise.

    job: an engine.Job
    core: number of the one on which it is to stay
    """
    start, page, found = time.perf_counter(), None, record(job)
    module, nursery = exercises.module(job.module), isolation.nursery(job.tier)
    nursery.peak_memory = 0
    result = prepare(job.path, job.module, exercises.learners_path(job.module), job.seed, job.tier, core=core)
    if result.error:
        found |= {"ending": INFRASTRUCTURE_ERROR, "message": result.error}
    elif result.not_gradable:
        known = result.notebook["metadata"][KEY]
        found |= {"ending": NOT_GRADABLE, "message": result.not_gradable, "for_the_learner": known["refused"]}
    else:
        found["repairs"] = result.notebook["metadata"][KEY]["repairs"]
        found |= report.module_json(module, result.verdicts.values()) | {"peak_memory": nursery.peak_memory}
    if job.page and not result.error:
        page = json.dumps(fill(result.notebook, result.verdicts), ensure_ascii=False, indent=1, sort_keys=True) + "\n"
    found["seconds"] = round(time.perf_counter() - start, 3)
    return found, page


@dataclasses.dataclass
class Prepared:
    """A submission, repaired and graded; or why it could not be."""

    notebook: dict | None = (
        None  # repaired, or where it can't be graded the one that was given out; and what is known of it, see `page.stamped`
    )
    verdicts: dict | None = None  # {grade_id of a check cell: Verdict}
    not_gradable: str = ""  # why no notebook could be made of it, a sentence
    error: str = ""  # of this machine or program, a sentence


def prepare(path, name, released, seed, tier, known="", core=0):
    """The Prepared submission. No submission makes it raise.

    path: of the folder or file
    name: of the module
    released: path of the notebook that was given out
    known: the digest (see `page.stamped`) of what was graded before, and is not to be graded again
    core: number of the one on which it is to stay
    """
    result = Prepared()
    try:
        module, master = exercises.module(name), _given(str(released), os.stat(released).st_mtime_ns, name)
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
    except (CanNotCheck, InfrastructureError) as error:
        result.error = str(error)
    except Exception as error:  # a fault of this program must not cost the others their grades
        result.error = f"The grader itself failed, please report it: {error!r}"
    return result


def ready(name, released, wanted):
    """The tier of isolation here, for a module whose notebook was given out. Raises CanNotCheck, with a sentence."""
    submission.given_out(released, exercises.module(name))
    return isolation.for_others(wanted)


@functools.lru_cache(maxsize=8)
def _given(path, modified, name):
    return submission.given_out(path, exercises.module(name))


def record(job, **fields):
    """The record of a submission of which nothing is known yet."""
    module = exercises.module(job.module)
    made_by = {"seed": job.seed, "isolation": job.tier, "versions": versions(), "digest": job.digest, "seconds": 0.0, "peak_memory": 0}
    result = {"ending": GRADED, "message": "", "repairs": [], "module": module.name, "score": 0, "points": module.points, "exercises": []}
    return {"who": job.who, **result, **made_by, **fields}


def verdicts(notebook, module, seed, nursery):
    """{grade_id of a check cell: Verdict} of a notebook. Raises CanNotCheck, and InfrastructureError where an answer could not be run."""
    _, found = grading.check_text(json.dumps(notebook), seed=seed, nursery=nursery, module=module)
    for verdict in found:
        if verdict.status == COULD_NOT_CHECK:
            raise InfrastructureError(f"{verdict.name} could not be run: {verdict.what}")
    return {f"check-{verdict.name}": verdict for verdict in found}
