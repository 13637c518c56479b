"""What tests share: notebooks made of the reference, and the folder of the project."""

import inspect
import json
import os
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before torch: what tests compute is small

import pytest

from autograder import exercises

ROOT = Path(__file__).resolve().parent.parent


def notebook_text(*sources):
    """The JSON of a notebook with these code cells."""
    empty = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    cells = [{**empty, "id": f"c{number}", "source": source} for number, source in enumerate(sources)]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def answered(module, **changes):
    """A notebook that answers every exercise of a module with its reference, but for the changed ones (None: left out)."""
    declared = exercises.module(module)
    sources = [
        f'from autograder import open_module\ncheck, hint, progress = open_module("{module}")',
        "import math\nimport numpy as np\nimport torch\nfrom torch import nn",
    ]
    for exercise in declared.exercises:
        source = changes.get(exercise.name, inspect.getsource(exercise.reference))
        sources += [source, f"check({exercise.name})"] if source else []
    return notebook_text(*sources)


@pytest.fixture
def write(tmp_path):
    """Writes a text into a notebook file; returns its path."""

    def write(text, name="notebook.ipynb"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write
