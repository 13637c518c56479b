"""The project's own promises: one list of dependencies, examples that run, text that names what exists."""

import doctest
import importlib
import inspect
import math
import re
import tomllib

import numpy as np
import pytest
import torch
from conftest import ROOT
from torch import nn

from autograder import exercises


def test_environment_yml_holds_python_pip_and_the_project_and_no_second_list():
    lines = [line.strip() for line in (ROOT / "environment.yml").read_text().splitlines() if line.strip() and not line.startswith("#")]
    assert lines[lines.index("dependencies:") + 1 :] == ["- python=3.11", "- pip", "- pip:", "- -e ."]


def test_every_dependency_has_a_tested_range():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = project["dependencies"] + [name for extra in project["optional-dependencies"].values() for name in extra]
    names = [re.match(r"[\w-]+", entry).group() for entry in listed]
    assert len(names) == len(set(names))
    assert [entry for entry in listed if "<" not in entry and "==" not in entry] == []


@pytest.mark.parametrize("name", exercises.NAMES)
def test_the_examples_in_the_docstrings_give_what_they_say(name):
    module = importlib.import_module(f"solutions.{name}")
    result = doctest.testmod(module, extraglobs={"np": np, "torch": torch, "nn": nn, "math": math})
    assert result.attempted and not result.failed


@pytest.mark.parametrize("name", exercises.NAMES)
def test_every_exercise_tells_shapes_and_points(name):
    for exercise in exercises.module(name).exercises:
        text = inspect.getdoc(exercise.reference) + "".join(
            inspect.getdoc(method) or "" for method in vars(exercise.reference).values() if inspect.isfunction(method)
        )
        assert "returns:" in text or exercise.is_class, exercise.name
        assert len(exercise.hints) >= 3 and 1 <= exercise.difficulty <= 5 and exercise.points > 0, exercise.name


def test_no_import_crosses_the_house():
    allowed = {"solutions": {"solutions"}, "autograder": {"solutions", "autograder"}, "utils": {"utils"}}
    for folder, own in allowed.items():
        for path in (ROOT / folder).rglob("*.py"):
            found = set(re.findall(r"^\s*(?:from|import) (solutions|autograder|utils)\b", path.read_text(), re.MULTILINE))
            if path.name != "parts.py":  # the carry-over checks the learner's earlier work
                assert found <= own, path
    for path in (ROOT / "autograder" / "sandbox").rglob("*.py"):
        assert not re.search(r"^\s*(?:from|import) (solutions|autograder|utils)\b", path.read_text(), re.MULTILINE), path
