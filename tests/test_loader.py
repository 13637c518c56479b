"""A notebook as a set of definitions: what a name needs comes along, wherever it stands; demos and training don't run."""

import json

import pytest
from conftest import notebook_text

from autograder import grading
from autograder.answers import NotebookAnswer
from autograder.sandbox import loader
from autograder.sandbox.observe import failure

STOP = "raise SystemExit('a demo was run')"


def load(name, *cells, given=()):
    """What a notebook's name is once its slice has run, without any error."""
    namespace, errors = run(name, notebook_text(*cells), given)
    assert errors == []
    return namespace[name]


def run(name, text, given=()):
    """What `loader.run` returns for the slice of a name."""
    notebook = loader.parse(text)
    loader.quote_from(notebook.texts)
    return loader.run(notebook.program(name), given)


def source(name, *cells):
    return loader.parse(notebook_text(*cells)).source(name)


# What comes along


def test_helpers_and_constants_come_along_from_any_cell():
    cells = ["import math as m", "SCALE = m.sqrt(4)", STOP, "def f(x):\n    return helper(x)", "def helper(x):\n    return x / SCALE", STOP]
    assert load("f", *cells)(6) == 3


@pytest.mark.parametrize(
    "change",
    [
        "TABLE['b'] = 2", "TABLE |= {'b': 2}", "TABLE.update(b=2)", "for i in range(3):\n    TABLE['b'] = i", "TABLE['b']: int = 2",
        "with open('/dev/null'):\n    TABLE['b'] = 2", "if True:\n    TABLE.setdefault('b', 2)", "TABLE.update(a=2, b=1)",
    ],
)  # fmt: skip
def test_statements_that_change_what_is_needed_come_along(change):
    assert load("f", "TABLE = {'a': 1}", "def f():\n    return TABLE['a'] + TABLE['b']", change)() == 3


def test_what_is_deleted_is_gone():
    assert load("f", "TABLE = {'a': 1, 'b': 2}", "def f():\n    return list(TABLE)", "del TABLE['a']")() == ["b"]


def test_a_method_put_on_a_class_later_comes_along():
    cells = ["class A:\n    pass", "def double(self, x):\n    return 2 * x", "A.double = double", "A.name = 'a'"]
    assert load("A", *cells)().double(2) == 4
    assert load("A", *cells).name == "a"


def test_what_decorators_defaults_annotations_and_bases_need_comes_along():
    cells = [
        "import functools", "def twice(f):\n    @functools.wraps(f)\n    def g(*a):\n        return 2 * f(*a)\n    return g", "ONE = 1",
        "class Base:\n    def base(self):\n        return deep()", "def deep():\n    return 7", "Number = int",
        "@twice\ndef f(x: Number = ONE) -> Number:\n    return x", "class A(Base):\n    inner = [i for i in range(LIMIT)]", "LIMIT = 3",
    ]  # fmt: skip
    assert load("f", *cells)() == 2
    moved = [*cells[:-2], cells[-1], cells[-2]]
    assert load("A", *moved)().base() == 7 and load("A", *moved).inner == [0, 1, 2]


def test_a_class_that_gives_its_own_name_to_a_function_gets_the_function():
    cells = ["def softmax(x):\n    return x + 1", "class A:\n    softmax = staticmethod(softmax)"]
    assert load("A", *cells).softmax(1) == 2


def test_a_local_name_is_not_a_dependency():
    """By name alone, `loss` and `model` of the training loop would come along."""
    cells = ["model = loss = 1", f"for model in range(9):\n    loss = 0\n    {STOP}", "def f(loss):\n    model = loss\n    return model"]
    assert load("f", *cells)(5) == 5
    assert "SystemExit" not in source("f", *cells)


def test_a_global_that_another_function_sets_comes_along():
    cells = ["def remember(x):\n    global memory\n    memory = x", "remember(3)", "def f():\n    return memory", "memory = 4"]
    assert load("f", *cells)() == 4


def test_a_star_import_comes_along_because_anyone_may_need_it():
    assert load("f", "from math import *", "def f():\n    return floor(2.5)")() == 2
    namespace, errors = run("f", notebook_text("from nowhere_at_all import *", "def f():\n    return 1"))
    assert namespace["f"]() == 1 and [type(error) for error in errors] == [ModuleNotFoundError]


def test_recursion_and_mutual_recursion_end():
    cells = ["def even(n):\n    return n == 0 or odd(n - 1)", "def odd(n):\n    return n > 0 and even(n - 1)"]
    assert load("even", *cells)(10) is True


# What doesn't


@pytest.mark.parametrize(
    "demo",
    [
        "f(torch.ones(3))", "print(f(1))", "result = f(1)\nprint(result)", "torch.manual_seed(0); STOP", "plt.plot([f(1)])", "check(f)",
        "for step in range(10**12):\n    loss = f(step)\n    torch.nn.utils.clip_grad_norm_(parameters, 1.0)\n    optimizer.step()",
        "with torch.no_grad():\n    torch.save(f(1), 'x')", "while True:\n    torch.cuda.synchronize()", "assert f(1) == 2", "input()",
        "if __name__ == '__main__':\n    torch.set_num_threads(1)\n    STOP", "try:\n    np.random.seed(0)\nfinally:\n    STOP",
        "model = f(1)\nmodel.train()\nmodel.weight = 3", "[np.random.seed(i) for i in range(10**12)]", "del result",
    ],
)  # fmt: skip
def test_demos_and_training_loops_are_not_run(demo):
    imports = ["import torch", "import numpy as np", "from matplotlib import pyplot as plt"]
    definition = "def f(x):\n    return torch.as_tensor(x), np, plt"
    demo = demo.replace("STOP", STOP)
    assert source("f", *imports, demo, definition, demo) == "\n\n".join([*imports, definition])


def test_a_statement_that_fails_is_passed_over():
    cells = ["from google.colab import drive", "x = drive.mount('/content')", "def f():\n    return x", "x = 1"]
    namespace, errors = run("f", notebook_text(*cells))
    assert namespace["f"]() == 1
    assert [type(error).__name__ for error in errors] == ["ModuleNotFoundError", "NameError"]


def test_an_exit_in_a_cell_that_is_needed_does_not_end_the_process():
    namespace, errors = run("f", notebook_text("x = exit()", "def f():\n    return x", "x = 2"))
    assert namespace["f"]() == 2 and isinstance(errors[0], SystemExit)


# Which definition counts


def test_of_two_definitions_the_last_one_counts():
    cells = ["def f():\n    return g() + 1", "def g():\n    return 1", "def f():\n    return g() + 2", "def g():\n    return 10"]
    assert load("f", *cells)() == 12


def test_a_definition_that_wraps_the_one_before_it_has_both():
    assert load("f", "def f(x):\n    return x + 1", "old = f", "def f(x):\n    return 10 * old(x)")(1) == 20


def test_what_is_given_takes_the_place_of_the_notebooks_own_even_for_what_runs_at_once():
    cells = ["def helper():\n    return 1", "AT_ONCE = helper()", "def f():\n    return helper(), AT_ONCE", "def helper():\n    return 2"]
    assert load("f", *cells)() == (2, 1)
    assert load("f", *cells, given={"helper": lambda: 5})() == (5, 5)


def test_two_notebooks_share_nothing():
    first, second = load("f", "x = []", "def f():\n    x.append(1)\n    return x"), load("f", "x = []", "def f():\n    return x")
    first()
    assert second() == []


# Magics


@pytest.mark.parametrize(
    "cell",
    [
        "%matplotlib inline\ndef f():\n    return 1", "!pip install torch\ndef f():\n    return 1", "def f():\n    return 1\n%timeit f()",
        "%%time\ndef f():\n    return 1", "%%timeit -n 1\ndef f():\n    return 1",
        "\n\n  %%capture out --no-stderr\ndef f():\n    return 1",
        "%%time\n%%capture\ndef f():\n    return 1", "files = !ls\ndef f():\n    return 1", "f?\ndef f():\n    return 1\nf??\n?f",
        "    def f():\n        return 1", "%%time\r\n!ls\r\ndef f():\r\n    return 1\r\n",
        "for i in range(3):\n    !echo {i}\ndef f():\n    return 1",
        "%load_ext autoreload\n%autoreload 2\ndef f():\n    return 1", "def f():\n    return 1;", ">>> def f():\n...     return 1",
    ],
)  # fmt: skip
def test_magics_shell_lines_and_help_are_passed_over(cell):
    assert load("f", cell)() == 1


@pytest.mark.parametrize("magic", ["%%bash", "%%html", "%%writefile f.py", "%%javascript", "%%latex", "%%script false"])
def test_a_cell_in_another_language_is_passed_over(magic):
    notebook = loader.parse(notebook_text(f"{magic}\nfor f in *; do echo $f; done", "def f():\n    return 1"))
    assert loader.run(notebook.program("f"))[0]["f"]() == 1 and not notebook.broken and len(notebook.statements) == 1


# Cells that can't be read


@pytest.mark.parametrize(
    "cell",
    [
        "def g(:\n    pass", "x = (1,", "<<<<<<< HEAD\nx = 1\n=======", "x = 'abc", "def g():\nreturn 1", "x = 1\x00", "nonlocal x",
        "x = " + "-" * 100_000 + "1", "x = " + "+".join(["1"] * 20_000), "x = " + "(" * 5_000 + ")" * 5_000, "x = '\ud800'", "print 'x'",
    ],
    ids=lambda cell: ascii(cell[:12]),
)  # fmt: skip
def test_a_cell_that_is_no_python_is_recorded_and_hurts_no_other(cell):
    notebook = loader.parse(notebook_text("ONE = 1", cell, "def f():\n    return ONE"))
    assert loader.run(notebook.program("f"))[0]["f"]() == 1
    assert list(notebook.broken) == ["cell 2"] and isinstance(notebook.broken["cell 2"], SyntaxError)
    assert notebook.broken["cell 2"].lineno


def test_a_definition_in_a_broken_cell_is_found_as_such():
    text = notebook_text('open_module("attention")', "def causal_mask(T, S=None):\n    return (T")
    _, (verdict,) = grading.check_notebook(text, "causal_mask")
    assert verdict.status == "failed" and "cell 2" in verdict.what and "line 2" in verdict.what


def test_a_long_sum_is_read_where_the_parser_can():
    assert load("f", "x = " + " + ".join(["1"] * 500), "def f():\n    return x")() == 500


@pytest.mark.parametrize("cell", ["x = await g()", "async with g() as x:\n    pass", "x = [i async for i in g()]", "return 3", "yield 1"])
def test_await_and_return_at_the_top_level_hurt_no_other_cell(cell):
    notebook = loader.parse(notebook_text("x = 0", cell, "def f():\n    return x"))
    namespace, errors = loader.run(notebook.program("f"))
    assert namespace["f"]() == 0
    assert all(isinstance(error, SyntaxError) for error in errors)


def test_an_fstring_that_python_can_not_write_back_is_read():
    """ast.unparse of Python 3.11 fails on a character in it that it would have to escape."""
    assert load("f", "SEPARATOR = '-'", "def f():\n    return f\"{'\xa0'.join('ab')}{SEPARATOR}\"")() == "a\xa0b-"


def test_annotations_from_the_future_hold_for_the_cells_below():
    assert load("f", "from __future__ import annotations", "def f(x: Undefined) -> Unknown | None:\n    return x")(1) == 1
    with pytest.raises(KeyError):
        namespace, _ = run("f", notebook_text("def f(x: Undefined):\n    return x"))
        namespace["f"]


def test_an_error_names_the_learners_cell_and_line():
    f = load("f", "%%time\nimport math", "%matplotlib inline\n\ndef f(x):\n    y = math.sqrt(x)\n    return y.nothing")
    with pytest.raises(AttributeError) as caught:
        f(4)
    shown = failure(caught.value)
    assert (shown.cell, shown.line, shown.source) == ("cell 2", 5, "return y.nothing")


def test_cells_keep_their_number_when_others_are_prose():
    document = json.loads(notebook_text("x = 1", "def f(:\n    pass"))
    document["cells"].insert(1, {"cell_type": "markdown", "metadata": {}, "source": "def f(): prose"})
    assert list(loader.parse(json.dumps(document)).broken) == ["cell 3"]


# Carry-over


def test_what_is_carried_over_is_noted_and_not_run():
    carry = 'softmax, causal_mask = parts.load("attention", "softmax", "causal_mask")'
    notebook = loader.parse(notebook_text("from utils import parts", carry, "def f(x):\n    return softmax(x)"))
    assert notebook.carried == {"softmax": ("attention", "softmax"), "causal_mask": ("attention", "causal_mask")}
    assert "parts" not in notebook.source("f")
    assert NotebookAnswer(None, notebook, "f").calls == {"softmax"}


# Files


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"), (" \r\n\t", "empty"),
        (notebook_text("x = 1")[:-1], "not complete JSON"), (notebook_text("x = 1")[:40], "not complete JSON"),
        ("<<<<<<< HEAD\n" + notebook_text("x = 1"), "not complete JSON"), ("\x00" * 100, "not complete JSON"), ("[" * 100_000, "JSON"),
        ("null", "not a notebook"), ("[]", "not a notebook"), ("3", "not a notebook"), ('"text"', "not a notebook"),
        ("{}", "not a notebook"),
        ('{"cells": null}', "not a notebook"), ('{"cells": {}}', "not a notebook"), ('{"worksheets": [{"cells": []}]}', "not a notebook"),
    ],
    ids=lambda value: ascii(value[:14]),
)  # fmt: skip
def test_what_holds_no_notebook_is_a_sentence(text, words):
    with pytest.raises(loader.UnreadableNotebook, match=words) as caught:
        loader.parse(text)
    assert str(caught.value)[0].isupper() and len(str(caught.value)) < 400


def test_odd_cells_are_passed_over():
    code, raw = {"cell_type": "code"}, {"cell_type": "raw", "source": STOP}
    odd = [None, 3, "x", [], {}, code, raw, {"source": STOP}, {**code, "source": None}, {**code, "source": [1]}, {**code, "source": {}}]
    right = {**code, "source": ["def f():\n", "    return ", "1"]}
    notebook = loader.parse(json.dumps({"cells": [*odd, right]}))
    assert loader.run(notebook.program("f"))[0]["f"]() == 1 and not notebook.broken


def test_windows_line_ends_and_indented_json_are_read():
    pretty = json.dumps(json.loads(notebook_text("x = 2\r\ny = 3\r\n", "def f():\r\n    return x * y")), indent=1)
    assert run("f", pretty.replace("\n", "\r\n"))[0]["f"]() == 6


def test_a_byte_order_mark_is_passed_over(tmp_path):
    path = tmp_path / "notebook.ipynb"
    path.write_bytes(b"\xef\xbb\xbf" + notebook_text("def f():\n    return 1").encode())
    assert run("f", grading.read(path))[0]["f"]() == 1


def test_the_whole_notebook_in_one_cell_is_read():
    pasted = ["import math", "def helper(x):\n    return math.floor(x)", STOP, "%time", "def f(x):\n    return helper(x)", "f(1)", STOP]
    assert load("f", "\n".join(pasted))(2.5) == 2


def test_statements_on_one_line_are_told_apart():
    assert load("f", f"import math; x = math.floor(2.5); {STOP}", "def f():\n    return x")() == 2
