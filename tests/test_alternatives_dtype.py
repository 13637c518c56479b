"""The right answers in other styles: right in float32 too, finite with their gradients, and in a process of their own."""

import ast
import dataclasses
import importlib
import inspect

import numpy as np
import pytest
import torch
from conftest import notebook_text

from autograder import exercises, judge, selftest
from autograder.answers import NotebookAnswer, Workers
from autograder.check import check
from autograder.sandbox import loader
from autograder.sandbox.probes import GRADIENT

MODULES = exercises.NAMES
SEEDS = (0, 3, 2**40)
IN_FLOAT64 = "attention_loops"  # written in Python's own numbers: its loops may give back float64 whatever came in
FLOAT64_ALONE = ("stability", "dropout")  # numbers that float32 does not resolve, and counts of what float64 is rounded to

ALL = [
    pytest.param(exercises.module(module).exercise(name), answer, id=f"{module}-{answer.__name__}")
    for module in MODULES
    for name, _, answer in selftest.alternatives(exercises.module(module))
]


def in_single(value):
    """A tree of inputs with every float64 tensor and array in float32."""
    if isinstance(value, dict):
        return {key: in_single(each) for key, each in value.items()}
    if isinstance(value, list):
        return [in_single(each) for each in value]
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype == torch.float64 else value
    if isinstance(value, np.ndarray):
        return value.astype(np.float32) if value.dtype == np.float64 else value
    return value


def as_single(observation):
    """The observation with its float64 results rounded to float32."""
    values = {
        name: dataclasses.replace(value, dtype="float32", array=value.array.astype(np.float32)) if value.dtype == "float64" else value
        for name, value in observation.values.items()
    }
    return dataclasses.replace(observation, values=values)


@pytest.mark.parametrize(("exercise", "answer"), ALL)
def test_right_in_float32(exercise, answer):
    for seed in SEEDS:
        kept = [case for case in exercise.draw(seed) if case.part not in FLOAT64_ALONE]
        cases = [dataclasses.replace(case, inputs=in_single(dict(case.inputs))) for case in kept]
        observed, expected = list(exercise.observe(answer, cases)), list(exercise.observe(exercise.reference, cases))
        if exercise.name == IN_FLOAT64:
            observed = list(map(as_single, observed))
        assert judge.differences(cases, observed, expected, exercise.parts) == []


@pytest.mark.parametrize("exercise", [each for name in MODULES for each in exercises.module(name).exercises], ids=lambda each: each.name)
def test_no_right_number_is_nan_and_every_gradient_is_finite(exercise):
    """The judge takes NaN for NaN: should the reference have one, no comparison would tell."""
    for observation in exercise.expected(1):
        for name, value in observation.values.items():
            if value.array is not None:
                assert np.isfinite(value.array).all() if name.startswith(GRADIENT) else not np.isnan(value.array).any(), name


@pytest.mark.parametrize("name", MODULES)
def test_right_in_a_process_of_their_own(name):
    module = exercises.module(name)
    styles = importlib.import_module(f"autograder.alternatives.{name}")
    tree = ast.parse(inspect.getsource(styles))
    for position, node in enumerate(tree.body):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("solutions."):  # a learner has these from earlier modules
            earlier = node.module.removeprefix("solutions.")
            loads = [f"{each.asname or each.name} = parts.load({earlier!r}, {each.name!r})" for each in node.names]
            tree.body[position] = ast.parse("\n".join(loads))
    for node in tree.body:  # without `@styles(…)`, which is not theirs
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            node.decorator_list = [each for each in node.decorator_list if not ast.unparse(each).startswith("styles(")]
    text = notebook_text(*map(ast.unparse, tree.body))
    notebook = loader.parse(text)
    with Workers(notebook, []) as workers:
        for exercise, style, answer in styles.ALTERNATIVES:
            verdict = check(module.exercise(exercise), NotebookAnswer(workers, notebook, answer.__name__), 7)
            assert verdict.status == "passed", f"{exercise}, {style}: {verdict.message}"
