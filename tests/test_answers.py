"""The same answer in this process and in one of its own: the same verdict; and what a verdict says of odd answers."""

import linecache
import math
import re

import numpy as np
import pytest
import torch
from conftest import answered, notebook_text
from torch import nn

from autograder import exercises, grading, mutants, process
from autograder.answers import KernelAnswer, Workers
from autograder.check import carried_forward, check
from autograder.sandbox import loader

ATTENTION = exercises.module("attention")
SOFTMAX = "def softmax(x, dim=-1):\n    {}"
SCORES = "def attention_scores(q, k):\n    return q @ k.mT / math.sqrt(q.shape[-1])"
ATTEND = (
    "def scaled_dot_product_attention(q, k, v, mask=None):\n"
    "    weights = masked_softmax(attention_scores(q, k), mask)\n    return weights @ v, weights"
)
CELLS = "import math\nimport numpy as np\nimport torch\nfrom torch import nn"


def in_kernel(name, *sources):
    """The verdict on a name, run in this process."""
    namespace = {"__name__": "__main__", "math": math, "np": np, "torch": torch, "nn": nn}
    for number, source in enumerate(sources):
        cell = f"<cell {number} of {name}>"
        linecache.cache[cell] = (len(source), None, source.splitlines(keepends=True), cell)
        exec(compile(source, cell, "exec"), namespace)
    exercise, answer = ATTENTION.exercise(name), KernelAnswer(namespace[name])
    return carried_forward(check(exercise, answer, 0), exercise, answer, 0, ATTENTION.exercises)


def in_process(name, *sources):
    """The verdict on a name, run from a notebook in a process of its own."""
    opened = 'from autograder import open_module\ncheck, hint, progress = open_module("attention")'
    _, (verdict,) = grading.check_notebook(notebook_text(opened, CELLS, *sources), name)
    return verdict


ODD = {  # body of softmax -> what the message must say
    "right": ("e = (x - x.amax(dim, keepdim=True)).exp()\n    return e / e.sum(dim, keepdim=True)", "Right, in all"),
    "None": ("e = x.exp()", "is None; expected a Tensor. Is there a `return`"),
    "a tuple": ("return x,", "returned a tuple; expected the output alone"),
    "a numpy array": ("return x.detach().numpy()", "is an ndarray; expected a Tensor"),
    "NaN": ("return x * float('nan')", "elements that are NaN"),
    "a number": ("return 0.5", "is a float; expected a Tensor"),
    "an error": ("return x.sofmax(dim)", "AttributeError: 'Tensor' object has no attribute 'sofmax'"),
    "too few arguments": ("", "TypeError"),
    "float32": ("e = (x.float() - x.float().amax(dim, keepdim=True)).exp()\n    return (e / e.sum(dim, keepdim=True)).to(x.dtype)",
                "something computed in float32"),
    "changes its input": ("x -= x.detach().amax(dim, keepdim=True)\n    return x.exp() / x.exp().sum(dim, keepdim=True)",
                          "changed its input (['x'])"),
    "no gradient": ("e = (x - x.amax(dim, keepdim=True)).exp().detach()\n    return e / e.sum(dim, keepdim=True)", "No gradient reaches x"),
    "forbidden": ("return torch.softmax(x, dim)", "calls softmax, which this exercise asks you to write"),
    "exit": ("import sys\n    sys.exit()", "It raised SystemExit"),
    "recursion": ("return softmax(x, dim)", "RecursionError"),
    "prints": ("print('hello')\n    e = (x - x.amax(dim, keepdim=True)).exp()\n    return e / e.sum(dim, keepdim=True)", "It printed"),
}  # fmt: skip


@pytest.mark.parametrize("odd", ODD)
def test_the_same_verdict_in_the_kernel_and_in_a_process(odd):
    body, words = ODD[odd]
    source = "def softmax():\n    return 1" if odd == "too few arguments" else SOFTMAX.format(body)
    mine, theirs = in_kernel("softmax", source), in_process("softmax", source)
    assert words in mine.message
    assert (mine.status, mine.score, mine.parts, mine.mistakes, mine.why, mine.look) == (
        theirs.status, theirs.score, theirs.parts, theirs.mistakes, theirs.why, theirs.look,
    )  # fmt: skip
    assert [_without_place(line) for line in mine.what.split("\n")[:2]] == [_without_place(line) for line in theirs.what.split("\n")[:2]]


def _without_place(line):
    return re.sub(r" in (<|cell).*", "", line)


def test_the_wrong_number_of_arguments_quotes_the_call():
    verdict = in_kernel("padding_mask", "def padding_mask(lengths):\n    return lengths")
    assert "Called padding_mask(lengths=tensor([2, 5, 1]), S=5)" in verdict.what
    assert "takes 1 positional argument but 2 were given" in verdict.what


@pytest.mark.parametrize("run", [in_kernel, in_process])
def test_an_error_is_carried_forward(run):
    faulty = "def masked_softmax(scores, mask=None):\n    return scores * 0.25"  # no known mistake
    verdict = run("scaled_dot_product_attention", SCORES, faulty, ATTEND)
    assert verdict.status == "failed" and not verdict.mistakes
    assert "the fault is in masked_softmax, not here" in verdict.message


@pytest.mark.parametrize("run", [in_kernel, in_process])
def test_two_mistakes_at_once_are_both_named(run):
    verdict = run("attention_scores", "def attention_scores(q, k):\n    return k @ q.mT")
    assert set(verdict.mistakes) == {"no_scale", "swapped"}


def test_an_unknown_mistake_gets_the_numbers_and_no_guess():
    verdict = in_kernel("attention_scores", SCORES + " * 1.01")
    assert verdict.status == "failed" and verdict.mistakes == () and verdict.why == () and "should be" in verdict.what


def test_the_last_of_two_definitions_counts():
    right = SOFTMAX.format(ODD["right"][0])
    assert in_process("softmax", right, SOFTMAX.format("return x")).status == "failed"
    assert in_process("softmax", SOFTMAX.format("return x"), right).status == "passed"


def test_a_loop_without_end_costs_its_exercise_alone():
    text = answered("attention", causal_mask="def causal_mask(T, S=None):\n    while True:\n        pass")
    _, verdicts = grading.check_notebook(text)
    assert [verdict.name for verdict in verdicts if verdict.status != "passed"] == ["causal_mask"]
    (verdict,) = [verdict for verdict in verdicts if verdict.name == "causal_mask"]
    assert "did not finish within" in verdict.what


def test_a_process_that_ends_without_an_answer_has_failed():
    verdict = in_process("softmax", SOFTMAX.format("import os; os._exit(0)"))
    assert (verdict.status, verdict.score) == ("failed", 0) and "ended without an answer" in verdict.what


def test_the_process_has_neither_the_reference_nor_the_mistakes():
    body = (
        "import importlib\n    found = []\n"
        "    for name in ('solutions', 'autograder', 'utils', 'sandbox.exercises', 'tests'):\n"
        "        try:\n            found.append(importlib.import_module(name))\n        except ImportError:\n            pass\n"
        "    assert not found, found\n    raise ValueError('nothing found')"
    )
    assert "nothing found" in in_process("softmax", SOFTMAX.format(body)).what


def test_the_state_that_a_notebook_leaves_does_not_matter_and_is_put_back():
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    try:
        assert in_kernel("softmax", SOFTMAX.format(ODD["right"][0])).status == "passed"
        assert torch.get_default_dtype() == torch.float64 and not torch.is_grad_enabled()
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_grad_enabled(True)


BODY = "e = (x - x.amax(dim, keepdim=True)).exp()\n{0}return e / e.sum(dim, keepdim=True)"
PARTIAL = f"def s(x, dim=-1, t=1.0):\n    {BODY.format('    ')}"
OBJECT = f"class S(nn.Module):\n    def forward(self, x, dim=-1):\n        {BODY.format('        ')}"
ALIAS = "def softmax(x, dim=-1):\n    return sm(x, dim)"
BASE = (
    "class Base(nn.Module):\n    def __init__(self, d_model, d_k):\n        super().__init__()\n"
    "        self.W_Q, self.W_K, self.W_V = (nn.Linear(d_model, d_k, bias=False) for _ in range(3))\n"
    "    def weights(self, scores, mask):\n        return torch.softmax(scores, -1)"
)
DERIVED = (
    "class SelfAttention(Base):\n    def forward(self, x, mask=None):\n"
    "        w = self.weights(self.W_Q(x) @ self.W_K(x).mT, mask)\n        return w @ self.W_V(x), w"
)
UNUSUAL = {  # what it is -> (its exercise, its sources, its status)
    "a partial": ("softmax", ["import functools", PARTIAL, "softmax = functools.partial(s, t=1.0)"], "passed"),
    "a module's object": ("softmax", [OBJECT, "softmax = S()"], "passed"),
    "forbidden under another name": ("softmax", ["from torch import softmax as sm", ALIAS], "failed"),
    "forbidden by an assignment": ("softmax", ["sm = torch.softmax", ALIAS], "failed"),
    "forbidden in a base": ("SelfAttention", [BASE, DERIVED], "failed"),
}


@pytest.mark.parametrize("unusual", UNUSUAL)
@pytest.mark.parametrize("run", [in_kernel, in_process])
def test_unusual_answers_are_judged_alike(run, unusual):
    name, sources, status = UNUSUAL[unusual]
    verdict = run(name, *sources)
    assert verdict.status == status
    assert status == "passed" or "which this exercise asks you to write" in verdict.what


@pytest.mark.parametrize("carried", ['math = parts.load("attention", "math")', 'softmax_ = parts.load("nowhere", "softmax")'])
def test_a_part_that_does_not_exist_is_the_answers_own_error(carried):
    name = carried.split(" ")[0]
    verdict = in_process("softmax", carried, f"def softmax(x, dim=-1):\n    return {name}(x)")
    assert verdict.status == "failed"


def test_a_carried_part_is_the_reference_under_the_name_that_it_has_here():
    loaded = 'from utils import parts\nscores, attend = parts.load("attention", "attention_scores", "scaled_dot_product_attention")'
    source = mutants.source(exercises.module("multi_head").exercise("GroupedQueryAttention").reference)
    answer = source.replace("scaled_dot_product_attention", "attend").replace("def attend(", "def unused(")
    text = notebook_text('from autograder import open_module\nopen_module("multi_head")', CELLS, loaded, answer)
    _, (verdict,) = grading.check_notebook(text, "GroupedQueryAttention")
    assert verdict.status == "passed", verdict.message


def test_a_function_of_a_library_without_a_name_hides_no_forbidden_call():
    imported = 'f = eval("lambda x: x", {"__name__": "library"})'  # it is called <lambda>, which is no name that Python reads
    verdict = in_kernel("softmax", imported, "def softmax(x, dim=-1):\n    return f(torch.softmax(x, dim))")
    assert verdict.score == 0 and "It calls softmax" in verdict.what


@pytest.mark.parametrize("module", ["attention", "multi_head"])
def test_a_notebook_is_given_no_answers_of_its_own_module_or_of_a_later_one(module):
    name = {"attention": "softmax", "multi_head": "split_heads"}[module]
    loaded = f'from utils import parts\nmine = parts.load("{module}", "{name}")'
    verdict = in_process("softmax", loaded, "def softmax(x, dim=-1):\n    return mine(x, dim)")
    assert (verdict.status, verdict.score) == ("failed", 0) and "name 'mine' is not defined" in verdict.what


@pytest.mark.parametrize("name", ["masked_softmax", "scaled_dot_product_attention"])
def test_a_uniform_row_is_named(name):
    """Its patch uses torch, which the reference of masked_softmax itself does not."""
    plain = "def softmax(x, dim=-1):\n    e = (x - x.amax(dim, keepdim=True)).exp()\n    return e / e.sum(dim, keepdim=True)"
    uniform = (
        "def masked_softmax(scores, mask=None):\n"
        "    return softmax(scores if mask is None else torch.where(mask, scores, torch.finfo(scores.dtype).min))"
    )
    assert in_kernel(name, plain, SCORES, uniform, ATTEND).mistakes == ("empty_row_uniform",)


@pytest.mark.parametrize("run", [in_kernel, in_process])
def test_a_broken_rule_earns_nothing_even_where_one_case_raises(run):
    verdict = run("softmax", "def softmax(x, dim=-1):\n    assert dim != 1, 'lost'\n    return torch.softmax(x, dim)")
    assert (verdict.status, verdict.score) == ("failed", 0)
    assert "It raised AssertionError: lost" in verdict.what and "which this exercise asks you to write" in verdict.message


def test_an_error_within_a_library_is_told_at_the_learners_own_line():
    notebook = loader.parse(notebook_text("import torch", "def f(x):\n    layer = torch.nn.Linear(3, 4)\n    return layer(x)"))
    with Workers(notebook, ["f"]) as workers:
        (observation,) = workers.get().observe("f", notebook.program("f"), [process.probe("call", {"x": torch.ones(2, 5)}, {})])
    failure = observation.failure
    assert (failure.cell, failure.line, failure.source) == ("cell 2", 3, "return layer(x)")
