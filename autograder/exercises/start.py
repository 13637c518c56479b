"""Module 00: how the course works, with one exercise."""

from autograder.exercise import Exercise, Module, case, mistake
from solutions import start


def softmax_cases(draw):
    yield case("one axis", x=draw.normal(5).numpy(), dim=0)
    yield case("rows", part="axis", x=draw.normal(3, 5).numpy(), dim=1)
    yield case("columns", part="axis", x=draw.normal(3, 5).numpy(), dim=0)
    yield case("square, columns", part="axis", x=draw.normal(4, 4).numpy(), dim=0)
    yield case("three axes, the middle one", part="axis", x=draw.normal(2, 3, 5).numpy(), dim=1)
    yield case("large numbers", part="stability", x=draw.normal(2, 5).numpy() + 1000.0, dim=1)
    yield case("rows far apart", part="stability", x=draw.normal(3, 5).numpy() + [[0.0], [900.0], [-900.0]], dim=1)


softmax = Exercise(
    reference=start.softmax,
    purpose="Turn any numbers into weights that add up to 1: the step at the heart of attention.",
    minutes=10,
    difficulty=1,
    cases=softmax_cases,
    parts={"values": 1, "axis": 1, "stability": 1},
    mistakes=[
        mistake(
            "no_max_subtracted", "x - x.max(axis=dim, keepdims=True)", "x",
            "The exponential of a large number overflows: np.exp(1000) is inf, and inf / inf is NaN. Subtract the largest number "
            "along `dim` first; the weights stay the same, because the factor cancels in the fraction.",
        ),
        mistake(
            "global_max", "x.max(axis=dim, keepdims=True)", "x.max()",
            "You subtract the largest number of the whole array. A row whose numbers all lie far below it becomes exp(-900) = 0 "
            "everywhere, and 0 / 0 is NaN. Each row needs its own largest number: max along `dim`.",
        ),
        mistake(
            "axis_ignored", "def softmax(x, dim):\n", "def softmax(x, dim):\n    dim = -1\n",
            "Your weights sum to 1 along the last axis, whatever `dim` says. Pass `dim` to both the max and the sum.",
        ),
        mistake(
            "summed_over_everything", "e.sum(axis=dim, keepdims=True)", "e.sum()",
            "You divide by the sum over the whole array, so that all weights together sum to 1. Each row is to sum to 1 on its own: "
            "sum along `dim`.",
        ),
        mistake(
            "keepdims_missing", "e.sum(axis=dim, keepdims=True)", "e.sum(axis=dim)",
            "The sum has lost the axis `dim`, so numpy lines it up with the wrong axis when it divides: an error for most shapes, and "
            "silently the wrong numbers for square ones. `keepdims=True` keeps the axis, with size 1.",
        ),
        mistake(
            "changed_in_place", "x - x.max(axis=dim, keepdims=True)", "np.subtract(x, x.max(axis=dim, keepdims=True), out=x)",
            "You subtract the maximum inside the caller's own array (`x -= …`), who still needs it. Write `x = x - …`, which makes a "
            "new array.",
        ),
    ],
    hints=[
        "What must happen to each number so that it becomes positive, and larger for larger numbers? And then, so that they sum to 1?",
        "Three lines: subtract the maximum along `dim`; take `np.exp`; divide by the sum along `dim`.",
        "`e = np.exp(x - x.max(axis=dim, keepdims=True))`, and then a division. Why does it need `keepdims=True` again?",
    ],
    forbidden=["softmax", "log_softmax", "logsumexp"],
)  # fmt: skip

MODULE = Module("start", "How this course works", hours=0.25, difficulty=1, needs="Python and arrays", exercises=[softmax])
