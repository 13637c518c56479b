"""Made-up classes for the other benchmarks: right answers in several styles, known mistakes, nothing written, as in a real class."""

import ast
import importlib
import inspect
import json
import random
import time

import torch

from autograder import cells, exercises
from autograder.sandbox import loader, observe


def write_class(folder, module, n, demos=False, seed=0):
    """Write n submissions of a module as nbgrader's `submitted` has them; without `demos`, all but text, checks and imports is left out."""
    for number, text in enumerate(texts(module, n, demos, seed)):
        path = folder / f"learner-{number:05d}" / module.folder / f"{module.slug}.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")


def texts(module, n, demos=False, seed=0):
    """The JSON of n notebooks: of each exercise seven in ten learners are right, two have made a known mistake, one has written nothing."""
    draw, given_out = random.Random(seed), exercises.learners_path(module.name).read_text(encoding="utf-8")
    answers = {exercise.name: _answers(module, exercise) for exercise in module.exercises}
    for _ in range(n):
        notebook, kept = json.loads(given_out), []
        for cell in notebook["cells"]:
            grade_id = cell["metadata"].get("nbgrader", {}).get("grade_id", "")
            if grade_id in answers:
                (kind,) = draw.choices(("right", "wrong", "nothing"), (7, 2, 1))
                cell["source"] = draw.choice(answers[grade_id][kind])
            source = "".join(cell["source"])
            if demos or grade_id or cell["cell_type"] == "markdown" or "open_module(" in source or source.startswith(("import ", "from ")):
                kept.append(cell)
        yield json.dumps({**notebook, "cells": kept})


def alone(module, texts):
    """Seconds for each of these notebooks' own definitions and probes, one after the other in this process, and nothing else."""
    torch.set_num_threads(1)
    drawn = [(exercise, exercise.draw(1)) for exercise in module.exercises]
    notebooks = [loader.parse(text) for text in texts]
    start = time.perf_counter()
    for notebook in notebooks:
        for exercise, cases in drawn:
            target = loader.run(notebook.program(exercise.name))[0].get(exercise.name)
            for case in cases:
                observe.observe(exercise.probe, target, case.inputs, exercise.options_of(case))
    return (time.perf_counter() - start) / len(notebooks)


def _answers(module, exercise):
    """{kind: sources of answers of that kind}."""
    reference = cells.solution(exercise.reference)
    wrong = []
    for mistake in exercise.mistakes:
        source = reference
        for old, new in mistake.patches:
            source = source.replace(old, new)
        wrong += [] if mistake.at else [source]
    styles = importlib.import_module(f"autograder.alternatives.{module.name}").ALTERNATIVES
    others = [_renamed(answer, name) for name, _, answer in styles if name == exercise.name and inspect.isfunction(answer)]
    return {"right": [reference, *filter(None, others)], "wrong": wrong, "nothing": [cells.stub(exercise.reference)]}


def _renamed(answer, name):
    """The source of an answer under that name, where it stands on nothing else of its file; else nothing."""
    (node,) = ast.parse(inspect.getsource(answer)).body
    used = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    own = {key for key, value in vars(inspect.getmodule(answer)).items() if getattr(value, "__module__", "") == answer.__module__}
    if used & own - {node.name}:
        return ""
    node.decorator_list, node.name = [], name
    return ast.unparse(node)
