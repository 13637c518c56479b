"""Broken notebooks: each is graded where the answers can still be found, and says what was repaired; else a sentence says why not.

Not here: what a grader survives only where answers are isolated from the machine, such as a fork bomb.
"""

import copy
import functools
import inspect
import json
import os
import time
import zipfile

import nbformat
import pytest

from autograder import exercises, grading, repair, submission
from autograder.sandbox import loader

MODULE = exercises.module("attention")
NAMES = [exercise.name for exercise in MODULE.exercises]
MASTER = nbformat.read(exercises.learners_path(MODULE.name), 4)
SOURCES = {exercise.name: inspect.getsource(exercise.reference).rstrip() for exercise in MODULE.exercises}
SOFTMAX, LOOPS, LAYER = SOURCES["softmax"], SOURCES["attention_loops"], SOURCES["SelfAttention"]


def honest(module=MODULE):
    """The learner's notebook with right answers in it, as a tree of JSON."""
    notebook = json.loads(exercises.learners_path(module.name).read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        cell["source"] = "".join(cell["source"])
        if exercise := module.exercise(grade_id(cell)):
            cell["source"] = inspect.getsource(exercise.reference).rstrip()
    return notebook


def grade_id(cell):
    return cell["metadata"].get("nbgrader", {}).get("grade_id", "")


def at(notebook, id):
    """The position of the cell with that id."""
    return [grade_id(cell) for cell in notebook["cells"]].index(id)


def stub(name):
    return next(cell.source for cell in MASTER.cells if cell.id == name)


def code(source):
    """A cell that a learner added."""
    return {"cell_type": "code", "id": "added", "metadata": {}, "source": source, "outputs": [], "execution_count": None}


def encoded(notebook):
    return notebook if isinstance(notebook, bytes) else json.dumps(notebook, indent=1).encode()


def scores(notebook):
    """{exercise: score} of a repaired notebook; what is equal in all that an answer depends on is graded once."""
    text = json.dumps(notebook)
    parsed = loader.parse(text)
    key = tuple((name, parsed.source(name), *(name in source for source in parsed.broken)) for name in NAMES)
    return _scores(key, text) if key not in _known else _known[key]


_known = {}


def _scores(key, text):
    module, verdicts = grading.check_notebook(text, seed=987654321)
    assert module is MODULE
    _known[key] = {verdict.name: verdict.score for verdict in verdicts}
    return _known[key]


def check_form(notebook):
    """What nbgrader relies on: the cells given out, once each, with the master's marks and locked texts, and no output."""
    nbformat.validate(notebook)
    marked = {grade_id(cell): cell for cell in notebook.cells if grade_id(cell)}
    assert len(marked) == sum(bool(grade_id(cell)) for cell in notebook.cells)
    for cell in MASTER.cells:
        if id := grade_id(cell):
            if id in marked:
                assert marked[id].metadata == cell.metadata and marked[id].cell_type == cell.cell_type
                assert marked[id].source == cell.source or cell.metadata.nbgrader.solution
            else:
                assert cell.metadata.nbgrader.solution, f"{id} is lost"
    assert not any(cell.get("outputs") for cell in notebook.cells)


# ---- cells: (what the editor or the learner did, exercises that lose their points, words of the repairs that are named)

CELLS = {}


def case(*words, lost=()):
    def keep(function):
        CELLS[function.__name__] = (function, words, lost)
        return function

    return keep


@case()
def nothing(notebook):
    pass


@case("more than once", "softmax")
def copied(notebook):
    notebook["cells"].insert(at(notebook, "softmax"), copy.deepcopy(notebook["cells"][at(notebook, "softmax")]))


@case("more than once", "softmax")
def copied_and_the_copy_is_the_empty_one(notebook):
    empty = copy.deepcopy(notebook["cells"][at(notebook, "softmax")]) | {"source": stub("softmax")}
    notebook["cells"].insert(at(notebook, "softmax") + 1, empty)


@case("more than once", "check-softmax")
def check_copied(notebook):
    notebook["cells"].insert(0, copy.deepcopy(notebook["cells"][at(notebook, "check-softmax")]))


@case("there more than once")
def copied_whole_notebook_below_itself(notebook):
    notebook["cells"] += copy.deepcopy(notebook["cells"])


def split(notebook, id, line, both_marked=True):
    position = at(notebook, id)
    lines = notebook["cells"][position]["source"].split("\n")
    second = copy.deepcopy(notebook["cells"][position]) if both_marked else code("")
    notebook["cells"][position]["source"], second["source"] = "\n".join(lines[:line]), "\n".join(lines[line:])
    notebook["cells"].insert(position + 1, second)


@case("split in two", "attention_loops")
def split_in_the_middle(notebook):
    split(notebook, "attention_loops", len(LOOPS.split("\n")) - 4)


@case("split in two", "attention_loops")
def split_after_the_first_line(notebook):
    split(notebook, "attention_loops", 1)


@case("split in two", "SelfAttention")
def split_between_methods(notebook):
    split(notebook, "SelfAttention", LAYER.split("\n").index("    def forward(self, x, mask=None):"), both_marked=False)


@case("split in two", "SelfAttention")
def split_in_three(notebook):
    split(notebook, "SelfAttention", LAYER.split("\n").index("    def forward(self, x, mask=None):"))
    split(notebook, "SelfAttention", 3)


@case("more than once")
def split_below_a_helper(notebook):
    position = at(notebook, "softmax")
    notebook["cells"][position]["source"] = f"def helper(x):\n    return x\n\n{SOFTMAX}"
    split(notebook, "softmax", 3)


@case("deleted", "check-softmax")
def merged_with_its_check(notebook):
    position = at(notebook, "softmax")
    notebook["cells"][position]["source"] += "\n\n" + notebook["cells"].pop(position + 1)["source"]


@case("locked cell was deleted", "check-softmax", "changed", "softmax")
def merged_into_its_check(notebook):
    position = at(notebook, "softmax")
    answer = notebook["cells"].pop(position)["source"]
    notebook["cells"][position]["source"] = answer + "\n\n" + notebook["cells"][position]["source"]


@case("one cell with other exercises", "causal_mask, padding_mask")
def merged_with_the_next_exercise(notebook):
    second = notebook["cells"].pop(at(notebook, "padding_mask"))
    notebook["cells"][at(notebook, "causal_mask")]["source"] += "\n\n" + second["source"]


@case("Deleted", "padding_mask", lost=["padding_mask"])
def deleted(notebook):
    notebook["cells"].pop(at(notebook, "padding_mask"))


@case("Deleted", "SelfAttention", "check-SelfAttention", lost=["SelfAttention"])
def deleted_with_its_check(notebook):
    del notebook["cells"][at(notebook, "SelfAttention") : at(notebook, "check-SelfAttention") + 1]


@case("deleted", "check-attention_loops")
def check_deleted(notebook):
    notebook["cells"].pop(at(notebook, "check-attention_loops"))


@case("locked cell was deleted", *(f"check-{name}" for name in NAMES))
def all_checks_deleted(notebook):
    notebook["cells"] = [cell for cell in notebook["cells"] if not grade_id(cell).startswith("check-")]


@case("another place", "softmax")
def moved_to_the_end(notebook):
    notebook["cells"].append(notebook["cells"].pop(at(notebook, "softmax")))


@case("another place", "SelfAttention", "imports of", "nn")
def moved_above_the_imports(notebook):
    notebook["cells"].insert(0, notebook["cells"].pop(at(notebook, "SelfAttention")))


@case()
def check_moved_away(notebook):
    notebook["cells"].insert(0, notebook["cells"].pop(at(notebook, "check-softmax")))


@case("another place")
def turned_upside_down(notebook):
    notebook["cells"] = notebook["cells"][:3] + notebook["cells"][:2:-1]


def retyped(notebook, kind, *ids):
    for id in ids:
        cell = notebook["cells"][at(notebook, id)]
        cell.pop("outputs"), cell.pop("execution_count")
        cell["cell_type"] = kind


@case("no code cell", "softmax")
def turned_to_markdown(notebook):
    retyped(notebook, "markdown", "softmax")


@case("no code cell", "causal_mask, SelfAttention")
def turned_to_raw(notebook):
    retyped(notebook, "raw", "SelfAttention", "causal_mask")


@case("no code cell", "softmax")
def turned_to_markdown_and_lost_its_marks(notebook):
    retyped(notebook, "markdown", "softmax")
    notebook["cells"][at(notebook, "softmax")] |= {"metadata": {}, "id": "new"}


@case("locked cell was changed", "check-softmax")
def check_turned_to_markdown(notebook):
    retyped(notebook, "markdown", "check-softmax")


@case()
def old_version_kept_as_markdown(notebook):
    old = {"cell_type": "markdown", "id": "old", "metadata": {}, "source": "def softmax(x, dim=-1):\n    return x"}
    notebook["cells"].insert(at(notebook, "softmax") + 1, old)


@case("metadata was lost", *NAMES)
def marks_lost(notebook):
    for cell in notebook["cells"]:
        cell["metadata"] = {}


@case("metadata was lost", *NAMES)
def marks_and_ids_lost(notebook):
    for number, cell in enumerate(notebook["cells"]):
        cell["metadata"], cell["id"] = {}, f"x{number}"


@case("metadata was changed", "softmax")
def id_edited(notebook):
    notebook["cells"][at(notebook, "softmax")]["metadata"]["nbgrader"]["grade_id"] = "my_softmax"


@case("metadata was changed", "softmax, check-softmax")
def all_ids_edited(notebook):
    for number, cell in enumerate(notebook["cells"]):
        cell["id"] = f"x{number}"
        if grade_id(cell):
            cell["metadata"]["nbgrader"]["grade_id"] += "_2"


@case("locked cell was changed", "check-softmax", "check-causal_mask")
def ids_exchanged(notebook):
    one, other = at(notebook, "check-softmax"), at(notebook, "check-causal_mask")
    notebook["cells"][one]["metadata"], notebook["cells"][other]["metadata"] = (
        notebook["cells"][other]["metadata"], notebook["cells"][one]["metadata"],
    )  # fmt: skip


@case("metadata was changed", "check-softmax")
def not_to_be_graded(notebook):
    notebook["cells"][at(notebook, "check-softmax")]["metadata"]["nbgrader"]["grade"] = False


@case("metadata was changed", "check-softmax")
def points_raised(notebook):
    notebook["cells"][at(notebook, "check-softmax")]["metadata"]["nbgrader"]["points"] = 400


@case("metadata was changed", "softmax")
def answer_locked(notebook):
    notebook["cells"][at(notebook, "softmax")]["metadata"]["nbgrader"] |= {"locked": True, "solution": False}


@case("metadata was lost", "check-softmax", "metadata was changed", "softmax")
def marks_are_nonsense(notebook):
    one, other = at(notebook, "check-softmax"), at(notebook, "softmax")
    notebook["cells"][one]["metadata"] = ["nbgrader"]
    notebook["cells"][other]["metadata"]["nbgrader"]["grade_id"] = {"a": []}


@case("locked cell was changed", "check-softmax")
def check_replaced(notebook):
    notebook["cells"][at(notebook, "check-softmax")]["source"] = "assert True"


@case("locked cell was changed", "check-softmax")
def check_commented_out(notebook):
    notebook["cells"][at(notebook, "check-softmax")]["source"] = "# check(softmax)"


@case("written in", "check-softmax")
def check_replaced_by_a_check_of_ones_own(notebook):
    notebook["cells"][at(notebook, "check-softmax")]["source"] = "def check(f):\n    return 4\ncheck(softmax)"


@case("one cell with other exercises", *NAMES)
def whole_notebook_in_one_cell(notebook):
    notebook["cells"] = [code("\n\n".join(cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"))]


@case("deleted", "check-softmax")
def whole_notebook_in_one_cell_with_magics(notebook):
    texts = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    notebook["cells"] = [code("%matplotlib inline\n!pip install torch\n" + "\n\n".join(texts))]


@case("one cell with other exercises", "softmax")
def whole_notebook_in_one_cell_above_the_empty_one(notebook):
    texts = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    notebook["cells"] = [code("\n\n".join(texts)), *(dict(cell) for cell in json.loads(nbformat.writes(MASTER))["cells"])]


@case("empty one was left out", "causal_mask")
def answered_below_the_empty_one(notebook):
    position = at(notebook, "causal_mask")
    notebook["cells"].insert(position + 1, code(notebook["cells"][position]["source"]))
    notebook["cells"][position]["source"] = stub("causal_mask")


@case("empty one was left out", "causal_mask")
def answered_above_the_empty_one(notebook):
    position = at(notebook, "causal_mask")
    notebook["cells"].insert(position, code(notebook["cells"][position]["source"]))
    notebook["cells"][position + 1]["source"] = stub("causal_mask")


@case("empty one was left out", "causal_mask")
def answered_above_the_empty_one_which_holds_other_things(notebook):
    position = at(notebook, "causal_mask")
    notebook["cells"].insert(position, code(notebook["cells"][position]["source"]))
    notebook["cells"][position + 1]["source"] = "note = 1\n" + stub("causal_mask") + "\nother = 2"


@case(lost=["softmax", "masked_softmax", "scaled_dot_product_attention", "SelfAttention"])
def defined_twice_the_second_one_wrong(notebook):
    notebook["cells"].insert(at(notebook, "check-softmax") + 1, code("def softmax(x, dim=-1):\n    return x + x.sum()"))


@case("top", "open_module('attention')")
def opening_deleted(notebook):
    notebook["cells"] = [cell for cell in notebook["cells"] if "open_module(" not in cell["source"] or cell["cell_type"] != "code"]


@case("top", "open_module('attention')")
def opens_another_module(notebook):
    for cell in notebook["cells"]:
        cell["source"] = cell["source"].replace('open_module("attention")', 'open_module("start")')


@case("top", "math", "torch")
def imports_deleted(notebook):
    notebook["cells"] = [cell for cell in notebook["cells"] if not cell["source"].startswith("import math")]


@case("top", "math", "torch")
def imports_moved_to_the_end(notebook):
    position = [cell["source"].startswith("import math") for cell in notebook["cells"]].index(True)
    notebook["cells"].append(notebook["cells"].pop(position))


@case()
def only_the_answers_are_left(notebook):
    notebook["cells"] = [
        cell for cell in notebook["cells"] if cell["cell_type"] == "code" and (grade_id(cell) or "import " in cell["source"])
    ]


@case(lost=NAMES)
def untouched(notebook):
    notebook["cells"] = json.loads(nbformat.writes(MASTER))["cells"]


@case(lost=["padding_mask"])
def a_syntax_error_costs_its_exercise(notebook):
    notebook["cells"][at(notebook, "padding_mask")]["source"] += "\n    return ("


@case()
def saved_while_running(notebook):
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["execution_count"] = None
            cell["metadata"]["execution"] = {"iopub.execute_input": "2026-01-01T00:00:00Z"}
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": ["half a li"]}]


@case("60 MB of outputs")
def large_outputs(notebook):
    output = {"output_type": "stream", "name": "stdout", "text": "x" * 30_000_000}
    for id in ("softmax", "check-softmax"):
        notebook["cells"][at(notebook, id)]["outputs"] = [output]


@case()
def widget_state(notebook):
    notebook["metadata"]["widgets"] = {"application/vnd.jupyter.widget-state+json": {"state": {"a": 1}, "version_major": 2}}


@case("no text")
def lone_surrogate(notebook):
    notebook["cells"][at(notebook, "softmax")]["source"] += "  # \ud83d"


@case("Null bytes")
def null_bytes(notebook):
    notebook["cells"][at(notebook, "softmax")]["source"] += "  # \0"
    return json.dumps(notebook).encode() + b"\0" * 512


@case("Windows line ends")
def windows_line_ends(notebook):
    for cell in notebook["cells"]:
        cell["source"] = cell["source"].replace("\n", "\r\n")


@case()
def outputs_that_claim_full_points(notebook):
    result = {"output_type": "execute_result", "data": {"text/plain": "4"}, "metadata": {}, "execution_count": 1}
    notebook["cells"][at(notebook, "check-softmax")]["outputs"] = [result]


@case()
def outputs_that_are_nonsense(notebook):
    notebook["cells"][5]["outputs"] = {"a": 1}
    notebook["cells"][at(notebook, "softmax")]["outputs"] = [None, 3, "x"]
    notebook["cells"] += [None, "cell", 7, {"cell_type": "video", "source": None}]


@case("cell of more than")
def a_cell_of_a_million_characters(notebook):
    notebook["cells"].append(code("x = 1\n" * 200_000))


# ---- files: what happened to the bytes


@case("UTF-16")
def utf_16(notebook):
    return json.dumps(notebook, ensure_ascii=False).encode("utf-16")


@case("UTF-16")
def utf_16_without_mark(notebook):
    return json.dumps(notebook).encode("utf-16-le")


@case("byte-order mark")
def byte_order_mark(notebook):
    return b"\xef\xbb\xbf" + json.dumps(notebook).encode()


@case("Windows-1252")
def windows_1252(notebook):
    notebook["cells"][at(notebook, "softmax")]["source"] += "  # naïve"
    return json.dumps(notebook, ensure_ascii=False).encode("cp1252", errors="replace")


@case("nbformat 3")
def nbformat_3(notebook):
    return nbformat.writes(nbformat.convert(nbformat.from_dict(notebook), 3), version=3).encode()


@case()
def nbformat_of_the_future(notebook):
    notebook |= {"nbformat": 7, "nbformat_minor": 99}


@case("went on after the end")
def written_over_a_longer_file(notebook):
    return encoded(notebook) + b' "tail": 1}]}'


@case("cut short")
def cut_short_below_the_last_answer(notebook):
    data = encoded(notebook)
    return data[: data.rindex(b'"check-SelfAttention"') + 200]


@case("merge conflict", "upper")
def conflict_in_the_outputs(notebook):
    notebook["metadata"]["count"] = 12345
    return conflict(encoded(notebook), b'"count": 12345', b'"count": 12345', b'"count": 6789')


@case("merge conflict", "upper", lost=["combine_masks"])
def conflict_in_an_answer(notebook):
    cell = notebook["cells"][at(notebook, "combine_masks")]
    cell["source"] = "def combine_masks(*masks):\n    return None"
    right = json.dumps(SOURCES["combine_masks"]).encode()
    line = b'"source": ' + json.dumps(cell["source"]).encode()
    return conflict(encoded(notebook), line, line, b'"source": ' + right)


def conflict(data, line, ours, theirs):
    assert data.count(line) == 1
    start = data.rindex(b"\n", 0, data.index(line)) + 1
    end = data.index(b"\n", start)
    rest = data[data.index(line) + len(line) : end]
    lines = [b"<<<<<<< HEAD", ours + rest, b"=======", theirs + rest, b">>>>>>> 1a2b3c4 (second try)"]
    return data[:start] + b"\n".join(lines) + data[end:]


@case()
def keys_twice_and_control_characters(notebook):
    return encoded(notebook).replace(b'"nbformat": 4', b'"nbformat": 3,\n "nbformat": 4').replace(b"The queries", b"The\tqueries", 1)


@pytest.mark.parametrize("name", CELLS)
def test_a_broken_notebook_is_repaired_and_graded(name):
    function, words, lost = CELLS[name]
    notebook = honest()
    changed = function(notebook)
    result = repair.repair(encoded(changed if isinstance(changed, bytes) else notebook), MODULE, MASTER)
    check_form(nbformat.from_dict(result.notebook))
    named = " ".join(result.repairs)
    assert all(word in named for word in words) and bool(words) == bool(result.repairs), named
    assert scores(result.notebook) == {exercise.name: exercise.points * (exercise.name not in lost) for exercise in MODULE.exercises}
    assert result.answered == (lost is not NAMES)


@functools.cache
def _data():
    return encoded(honest())


def _cut_at(words):
    return _data()[: _data().index(words) + 100]


HOPELESS = {  # bytes, words of the sentence for the instructor, words of the one for the learner
    "empty": (b"", "empty file", "arrived is empty"),
    "blank": (b" \n\t\r\n", "empty file", "arrived is empty"),
    "zeros": (b"\0" * 4096, "empty file", "arrived is empty"),
    "null": (b"null", "no list of cells", "Was another file saved under its name?"),
    "a number": (b"1e400", "no list of cells", "no cells"),
    "a list": (b"[]", "no list of cells", "no cells"),
    "cells are no list": (b'{"cells": {"a": 1}}', "no list of cells", "no cells"),
    "no cells": (b'{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}', "none of its exercises", "holds no exercise"),
    "a page of HTML": (b"<!doctype html><p>Sign in</p>", "exercises are lost: softmax", "Open it in Jupyter"),
    "cut short in an answer": (_cut_at(b"def masked_softmax"), "lost: masked_softmax, scaled_dot", "masked_softmax"),
    "cut short at once": (_data()[:40], "lost: softmax", "can't be found in it"),
    "damaged in the middle": (_data().replace(b"def causal_mask", b'def" causal_mask'), "lost: causal_mask", "cut short or damaged"),
    "nested too deeply": (b'{"cells": ' + b"[" * 200_000, "nested too deeply", "last good copy"),
    "a number without end": (b'{"cells": [' + b"9" * 10_000 + b"]}", "exercises are lost", "Open it"),
    "a conflict of nothing": (b"<<<<<<< HEAD\n{\n=======\n[\n>>>>>>> x\n", "neither version", "merge conflict"),
    "another module's": (encoded(honest(exercises.module("start"))), "module start, not of attention", "Hand in attention.ipynb"),
    "somebody else's": (encoded({"cells": [code("print(1)")]}), "none of its exercises", "holds no exercise of 01-attention"),
    "a million characters": (encoded({"cells": [code("x = 1\n" * 16_000)] * 5}), "480000 characters of code", "Delete the cells"),
    "a million cells": (b'{"cells": [' + b"{}," * 5000 + b"{}]}", "5001 cells", "Delete those"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOPELESS)
def test_what_can_not_be_graded_gets_a_sentence_for_each_side(name):
    data, instructor, learner = HOPELESS[name]
    with pytest.raises(repair.NotGradable) as found:
        repair.repair(data, MODULE, MASTER)
    assert instructor in str(found.value) and learner in found.value.learner


def test_a_notebook_of_this_module_is_not_taken_for_an_earlier_one():
    start = exercises.module("start")
    master = nbformat.read(exercises.learners_path(start.name), 4)
    with pytest.raises(repair.NotGradable, match="module attention, not of start"):
        repair.repair(_data(), start, master)
    assert repair.repair(encoded(honest(start)), start, master).repairs == ()


@pytest.mark.slow
@pytest.mark.parametrize("module", exercises.modules(), ids=lambda module: module.name)
def test_what_was_given_out_is_not_repaired_and_earns_nothing_and_with_every_answer_everything(module):
    """Also where an example of the lesson has an exercise's name, as in the module start."""
    master = submission.given_out(exercises.learners_path(module.name), module)
    for data, share in ((exercises.learners_path(module.name).read_bytes(), 0), (encoded(honest(module)), 1)):
        repaired = repair.repair(data, module, master)
        assert repaired.repairs == () and repaired.answered == bool(share)
        _, verdicts = grading.check_notebook(json.dumps(repaired.notebook), seed=77, module=module)
        assert {verdict.name: verdict.score for verdict in verdicts} == {each.name: each.points * share for each in module.exercises}


# ---- running: what a cell does, or the code of an answer


HARMLESS = {  # what a learner left in a cell: nothing that an answer depends on, so nothing is lost
    "magics": "%matplotlib inline\n%load_ext autoreload\n%autoreload 2",
    "shell": "!pip install --quiet torch\n!nvidia-smi",
    "a cell of bash": "%%bash\nrm -rf /tmp/nothing; exit 1",
    "a cell of HTML": "%%html\n<script>alert(1)</script>",
    "help": "?torch.softmax\ntorch.exp??",
    "await": "import asyncio\nawait asyncio.sleep(1000)",
    "input": "n = int(input('How many? '))",
    "display": "display(torch.ones(3))\nfrom IPython.display import HTML\nHTML('<b>x</b>')",
    "a plot that blocks": "import matplotlib.pyplot as plt\nplt.plot([1])\nplt.show(block=True)",
    "colab": "from google.colab import drive\ndrive.mount('/content/drive')",
    "a path of one's own": "data = open('C:/Users/me/Desktop/data.csv').read()\nimport os\nos.chdir('/home/me')",
    "cuda": "weights = torch.ones(3).cuda()\nmodel = nn.Linear(2, 2).to('cuda')",
    "an endless loop": "while True:\n    pass",
    "exit": "exit()\nquit()\nimport sys\nsys.exit(0)",
    "a million lines": "for i in range(10**6):\n    print(i)",
    "threads and seeds": "torch.set_num_threads(7)\ntorch.manual_seed(3)\nnp.random.seed(3)",
    "state": "torch.set_default_dtype(torch.float64)\ntorch.set_grad_enabled(False)\nnp.seterr(all='raise')",
    "warnings as errors": "import warnings\nwarnings.simplefilter('error')",
    "a default device": "torch.set_default_device('meta')",
    "memory": "everything = torch.ones(10**14)",
    "an unfinished thought": "def idea(x",
}
BESIDE = {  # the same in the cell of an answer: the text around softmax
    "timed": "%%time\n{}",
    "installed": "!pip install einops\n{}",
    "shown": "{}\ndisplay(softmax(torch.ones(3)))\nsoftmax?",
    "asked": "{}\nprint(softmax(torch.tensor(float(input()))))",
    "awaited": "import asyncio\n{}\nawait asyncio.sleep(1000)",
    "mounted": "from google.colab import drive\ndrive.mount('/content')\n{}",
    "left": "{}\nexit()",
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_no_answer_depends_on_costs_nothing(name):
    notebook = honest()
    notebook["cells"].insert(at(notebook, "attention_scores"), code(HARMLESS[name]))
    result = repair.repair(encoded(notebook), MODULE, MASTER)
    assert not result.repairs and sum(scores(result.notebook).values()) == MODULE.points


@pytest.mark.parametrize("name", BESIDE)
def test_what_stands_beside_an_answer_costs_nothing(name):
    notebook = honest()
    notebook["cells"][at(notebook, "softmax")]["source"] = BESIDE[name].format(SOFTMAX)
    result = repair.repair(encoded(notebook), MODULE, MASTER)
    assert not result.repairs and sum(scores(result.notebook).values()) == MODULE.points


def verdicts(**bodies):
    """{exercise: Verdict} of the honest notebook with lines put before the first statement of some answers; "cell": a cell above."""
    notebook = honest()
    notebook["cells"].insert(3, code(bodies.pop("cell", "")))
    for name, line in bodies.items():
        cell = notebook["cells"][at(notebook, name)]
        head, _, rest = cell["source"].rpartition('"""\n')
        cell["source"] = f'{head}"""\n{" " * (8 if name == "SelfAttention" else 4)}{line}\n{rest}'
    result = repair.repair(encoded(notebook), MODULE, MASTER)
    return {verdict.name: verdict for verdict in grading.check_notebook(json.dumps(result.notebook), seed=987654321)[1]}


@pytest.mark.slow
def test_what_ends_an_answer_costs_that_exercise_alone():
    words = {
        "attention_loops": ("return attention_loops(q, k, v, mask)", "RecursionError"),
        "causal_mask": ("exit()", "causal_mask"),
        "padding_mask": ("import os; os._exit(0)", "ended without an answer"),
        "combine_masks": ("torch.ones(10**14)", "OutOfMemory"),
        "SelfAttention": ("import os; os.kill(os.getpid(), 9)", "ended the process that ran it"),
    }
    found = verdicts(**{name: line for name, (line, _) in words.items()})
    assert {name for name, verdict in found.items() if verdict.status == "failed"} == set(words)
    assert all(words[name][1] in found[name].message and found[name].score == 0 for name in words)
    assert all(found[name].score == found[name].points for name in set(NAMES) - set(words))


def test_what_an_answer_asks_for_costs_that_exercise_alone():
    words = {"causal_mask": ("input('T?')", "EOFError"), "padding_mask": ("lengths = lengths.to('cuda:9')", "CUDA")}
    found = verdicts(**{name: line for name, (line, _) in words.items()})
    assert {name for name, verdict in found.items() if verdict.status == "failed"} == set(words)
    assert all(words[name][1].lower() in found[name].message.lower() for name in words)


def test_noise_and_state_cost_nothing():
    found = verdicts(
        cell="old = torch.Tensor.exp\ntorch.Tensor.exp = lambda self: (print('exp', self.shape), old(self))[1]\nimport warnings",
        softmax="print('x\\n' * 10**6)",
        attention_scores="import sys; sys.stderr.write('careful\\n'); import warnings; warnings.warn('careful')",
        attention_loops="np.seterr(all='ignore')",
        causal_mask="torch.set_default_dtype(torch.float64); torch.manual_seed(0); torch.set_num_threads(2)",
        padding_mask="torch.set_grad_enabled(False)",
        combine_masks="warnings.simplefilter('error')",
        SelfAttention="torch.use_deterministic_algorithms(True)",
    )
    assert {name: verdict.message for name, verdict in found.items() if verdict.score != verdict.points} == {}
    assert "they are not shown" in found["softmax"].message


@pytest.mark.slow
def test_what_never_ends_costs_that_exercise_alone():
    found = verdicts(causal_mask="while True: pass", padding_mask="import time; time.sleep(1000)", SelfAttention="self.forward(x, mask)")
    late = {name for name, verdict in found.items() if "did not finish within" in verdict.message}
    assert late == {"causal_mask", "padding_mask"}
    assert {name for name, verdict in found.items() if verdict.score != verdict.points} == {*late, "SelfAttention"}


def test_a_long_chain_of_names_is_read_in_good_time():
    """The one who grades reads what was handed in before any limit holds: 20,000 statements, each resting on the one before."""
    lines = [f"a{i}=a{i - 1}" for i in range(20_000)]
    chain = ["\n".join(lines[start : start + 5_000]) for start in range(0, len(lines), 5_000)]
    notebook = honest()
    notebook["cells"] += [code(piece) for piece in chain] + [code(f"def softmax(x, dim=-1):\n    return a{len(lines) - 1}")]
    start = time.perf_counter()
    result = repair.repair(encoded(notebook), MODULE, MASTER)
    assert len(loader.parse(json.dumps(result.notebook)).slice("softmax")) > len(lines)
    assert time.perf_counter() - start < 60  # seconds; where each looks through all others, it is minutes


# ---- files of a submission


@pytest.fixture
def put(tmp_path):
    """Writes files into a submission, each a day newer than the one before; returns what it is repaired to."""

    def put(**files):
        for day, (name, data) in enumerate(files.items()):
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            os.utime(path, (1e9 + 86400 * day,) * 2)
        return submission.repaired(tmp_path, MODULE, MASTER)

    return put


def zipped(folder, **files):
    path = folder / "made.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    data = path.read_bytes()
    path.unlink()
    return data


@pytest.mark.parametrize(
    "name", ["attention (1).ipynb", "attention-Copy1.ipynb", "Attention.IPYNB", "alice/hw1/attention.ipynb", "a.ipynb.txt"]
)
def test_a_renamed_or_nested_notebook_is_found(put, name):
    assert put(**{name: _data()}).repairs == (f"The notebook was handed in as {name}.",)


@pytest.mark.parametrize("wrap", [1, 2])
def test_a_notebook_in_a_zip_is_found(put, tmp_path, wrap):
    data, name = zipped(tmp_path, **{"work/attention.ipynb": _data(), "__MACOSX/._attention.ipynb": b"x"}), "all.zip/work/attention.ipynb"
    if wrap == 2:
        data, name = zipped(tmp_path, **{"all.zip": data}), f"outer.zip/{name}"
    assert put(**{name.split("/")[0]: data}).repairs == (f"The notebook was handed in as {name}.",)


def test_names_that_are_no_text_or_steer_a_terminal_are_told_in_print(put, tmp_path):
    path = os.path.join(os.fsencode(tmp_path), b"\xff\x1b[31m\nred.ipynb")
    with open(path, "wb") as file:
        file.write(_data())
    assert put().repairs == ("The notebook was handed in as ��[31m red.ipynb.",)


def test_of_several_the_expected_name_then_the_newest(put):
    other = encoded(honest(exercises.module("start")))
    assert put(**{"attention.ipynb": _data(), "attention (1).ipynb": _data(), "start.ipynb": other}).repairs == (
        "There were other notebooks, which were not graded: start.ipynb, attention (1).ipynb.",
    )


def test_of_several_others_the_newest(put):
    assert put(**{"b.ipynb": b"", "a1.ipynb": _data(), "a0.ipynb": _data()}).repairs[0] == "The notebook was handed in as a0.ipynb."


def test_the_one_that_is_answered_goes_before_the_untouched_one(put):
    untouched = exercises.learners_path(MODULE.name).read_bytes()
    assert put(**{"attention.ipynb": untouched, "attention-Copy1.ipynb": _data()}).repairs[0].endswith("attention-Copy1.ipynb.")


def test_a_broken_one_does_not_hide_a_good_one(put):
    assert put(**{"attention.ipynb": b"{", "old/attention.ipynb": _data()}).answered


@pytest.mark.parametrize(
    "files, words",
    [
        ({}, "it is empty"),
        ({"report.pdf": b"%PDF"}, "only report.pdf"),
        ({".ipynb_checkpoints/attention.ipynb": b"{}"}, "it is empty"),
        ({"attention.ipynb": b""}, "attention.ipynb: The notebook is an empty file"),
        ({"all.zip": b"PK\x03\x04 no zip"}, "all.zip can't be unpacked"),
    ],
)
def test_no_notebook(put, files, words):
    with pytest.raises(repair.NotGradable, match=words) as found:
        put(**files)
    assert found.value.learner


def test_links_pipes_and_files_shared_with_others_are_not_read(put, tmp_path):
    secret = tmp_path.parent / f"{tmp_path.name}-secret.ipynb"
    secret.write_bytes(_data())
    (tmp_path / "attention.ipynb").symlink_to(secret)
    (tmp_path / "folder").symlink_to(secret.parent)
    os.mkfifo(tmp_path / "pipe.ipynb")
    os.link(secret, tmp_path / "hard.ipynb")
    with pytest.raises(repair.NotGradable) as found:
        put()
    for words in ("attention.ipynb is a link", "folder is a link", "pipe.ipynb is no ordinary file", "hard.ipynb is a hard link"):
        assert words in str(found.value)
    assert put(**{"mine.ipynb": _data()}).repairs[1].startswith("Not looked at: attention.ipynb is a link")


def test_zips_that_lead_out_or_never_end(put, tmp_path):
    data = _data()
    for _ in range(4):
        data = zipped(tmp_path, **{"inner.zip": data, "../../out.ipynb": _data(), "/etc/x.ipynb": _data()})
    with pytest.raises(repair.NotGradable) as found:
        put(**{"bomb.zip": data})
    assert "bomb.zip/../../out.ipynb is a link or leads out" in str(found.value) and "lies in more than 2 zips" in str(found.value)
    assert not (tmp_path.parent / "out.ipynb").exists()


def test_a_zip_bomb_is_not_unpacked(put, tmp_path, monkeypatch):
    monkeypatch.setattr(repair, "MAX_BYTES", 1_000_000)
    with pytest.raises(repair.NotGradable, match=r"bomb.zip/attention.ipynb is too large \(more than 1 MB in all\)"):
        put(**{"bomb.zip": zipped(tmp_path, **{"attention.ipynb": b" " * 50_000_000})})


def test_a_link_in_a_zip_is_not_followed(put, tmp_path):
    entry = zipfile.ZipInfo("attention.ipynb")
    entry.external_attr = 0o120777 << 16
    with pytest.raises(repair.NotGradable, match=r"attention\.ipynb is a link"):
        put(**{"all.zip": zipped_entry(tmp_path, entry, "/etc/passwd")})


def zipped_entry(folder, entry, data):
    with zipfile.ZipFile(folder / "one.zip", "w") as archive:
        archive.writestr(entry, data)
    made = (folder / "one.zip").read_bytes()
    (folder / "one.zip").unlink()
    return made


def test_the_file_that_was_handed_in_is_left_as_it_was(put, tmp_path):
    put(**{"attention.ipynb": b"\xef\xbb\xbf" + _data()})
    assert (tmp_path / "attention.ipynb").read_bytes() == b"\xef\xbb\xbf" + _data()
