"""On a GPU the reference computes what it computes on the CPU, and stays where its inputs are. Skipped where there is none."""

import numpy as np
import pytest
import torch

from autograder import exercises
from autograder.sandbox import probes
from autograder.sandbox.observe import observe

DEVICE = "cuda"
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
CALLED = [each for module in exercises.modules() for each in module.exercises if each.probe in ("call", "build_load_call")]


def moved(value):
    """A tree of inputs with its tensors on the GPU."""
    if isinstance(value, dict):
        return {key: moved(each) for key, each in value.items()}
    if isinstance(value, list):
        return [moved(each) for each in value]
    return value.to(DEVICE) if isinstance(value, torch.Tensor) else value


def build_on(target):
    """The class, built where its weights are: the probe makes it on the CPU."""
    return lambda *given: target(*given).to(DEVICE)


@pytest.mark.parametrize("exercise", CALLED, ids=lambda exercise: exercise.name)
def test_the_reference_gives_the_same_there_and_stays_there(exercise):
    target = build_on(exercise.reference) if exercise.probe == "build_load_call" else exercise.reference
    for case, here in zip(exercise.draw(3), exercise.expected(3)):
        there = observe(exercise.probe, target, moved(dict(case.inputs)), exercise.options_of(case))
        assert (there.failure and there.failure.type) == (here.failure and here.failure.type), case.name
        for name, right in here.values.items():
            if right.array is not None and right.kind == "Tensor":
                mine = there.values[name]
                given = any(isinstance(value, torch.Tensor) and value.dim() for value in case.inputs.values())
                assert mine.device == DEVICE or not given or name.startswith(probes.DISTRIBUTION), (case.name, name)
                np.testing.assert_allclose(mine.array, right.array, rtol=1e-3 if right.dtype != "float64" else 1e-8, atol=1e-6)
