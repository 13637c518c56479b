"""How long a check takes in a notebook: a right answer, and a wrong one that no mistake or pair explains (all are tried).

Run: python benchmarks/check_speed.py
"""

import statistics
import time

import torch

from autograder import exercises
from autograder.answers import KernelAnswer
from autograder.check import check


def seconds(action):
    """The median of seven runs after one to warm up."""
    action()
    times = []
    for _ in range(7):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def unexplained(exercise):
    """An answer that is wrong in a way that nobody has declared: its numbers, one per cent too large."""

    def spoilt(result):
        if isinstance(result, torch.Tensor):
            return result * 1.01 if result.is_floating_point() else ~result
        return type(result)(map(spoilt, result)) if isinstance(result, tuple) else result * 1.01

    if exercise.is_class:
        return type(
            exercise.name, (exercise.reference,), {"forward": lambda self, *given: spoilt(exercise.reference.forward(self, *given))}
        )

    def answer(*given):
        return spoilt(exercise.reference(*given))

    answer.__name__ = exercise.name
    return answer


def main():
    """One line an exercise, then the medians."""
    torch.set_num_threads(1)
    right, wrong, first = [], [], []
    for module in exercises.modules():
        for exercise in module.exercises:
            right.append(seconds(lambda: check(exercise, KernelAnswer(exercise.reference), 0)))  # noqa: B023 (called at once)
            answer = unexplained(exercise)
            start = time.perf_counter()
            check(exercise, KernelAnswer(answer), 0)
            first.append(time.perf_counter() - start)
            wrong.append(seconds(lambda: check(exercise, KernelAnswer(answer), 0)))  # noqa: B023
            print(f"{module.name:10} {exercise.name:30} right {right[-1] * 1e3:6.0f} ms   unexplained {wrong[-1] * 1e3:6.0f} ms")
    medians = f"right {statistics.median(right) * 1e3:.0f} ms; unexplained {statistics.median(wrong) * 1e3:.0f} ms"
    print(f"median: {medians}; longest {max(wrong):.2f} s; the first of a session: up to {max(first):.1f} s")


if __name__ == "__main__":
    main()
