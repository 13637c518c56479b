"""The judge is pure: made-up observations go in. What is told first, what counts as equal, and what does not."""

import math

import numpy as np
import pytest
import torch

from autograder import exercises, judge
from autograder.exercise import Case
from autograder.judge import Kind
from autograder.sandbox import probes
from autograder.sandbox.observe import Failure, Observation, Value, observe
from solutions import attention

RIGHT = np.array([[0.5, -2.0, 3.0], [4.0, 0.0, 1e-6]])
SCORES = exercises.module("attention").exercise("attention_scores")


def value(thing):
    """The Value of a numpy array, as of a tensor; anything else is already a Value."""
    return Value("Tensor", str(thing.dtype), "cpu", thing) if isinstance(thing, np.ndarray) else thing


def seen(output=RIGHT, failure=None, **others):
    names = {"changed": probes.CHANGED, "gradient": probes.GRADIENT + "x", "drawn": probes.DISTRIBUTION + "draws"}
    values = {names.get(name, name): value(thing) for name, thing in {"output": output, **others}.items()}
    return Observation({} if failure else values, failure)


def kinds(observed, expected):
    return [kind for kind, _, _ in judge.compare(observed, expected)]


def text(observed, expected):
    ((kind, name, say),) = judge.compare(observed, expected)
    return judge.Difference(kind, name, None, say).text


def changed(array, place, by):
    """A copy in which one element is larger by a factor of 1 + by."""
    copy = array.copy()
    copy[place] *= 1 + by
    return copy


# The order


UNCHANGED, CHANGED = Value("list", text="[]"), Value("list", text="['x']")
WRONG = {  # one observation for each kind of fault, all of them against the same right one
    Kind.RAISED: seen(failure=Failure("ValueError", "no")),
    Kind.TYPE: seen(Value("NoneType", text="None"), changed=UNCHANGED, gradient=RIGHT),
    Kind.CHANGED: seen(changed=CHANGED, gradient=RIGHT),
    Kind.SHAPE: seen(RIGHT.T, changed=UNCHANGED, gradient=RIGHT),
    Kind.DTYPE: seen(RIGHT.astype(np.float32), changed=UNCHANGED, gradient=RIGHT),
    Kind.FINITE: seen(RIGHT * [[1, 1, math.inf], [1, 1, 1]], changed=UNCHANGED, gradient=RIGHT),
    Kind.VALUES: seen(RIGHT + 1, changed=UNCHANGED, gradient=RIGHT),
    Kind.GRADIENT: seen(changed=UNCHANGED, gradient=RIGHT + 1),
}
EXPECTED = seen(changed=UNCHANGED, gradient=RIGHT)


def test_the_order_is_that_of_the_course():
    order = ["RAISED", "TYPE", "CHANGED", "SHAPE", "DTYPE", "FINITE", "VALUES", "GRADIENT"]
    assert [kind.name for kind in sorted(Kind)] == order


@pytest.mark.parametrize("kind", Kind)
def test_each_fault_is_of_its_own_kind_alone(kind):
    assert set(WRONG) == set(Kind)
    assert kinds(WRONG[kind], EXPECTED) == [kind]


def test_of_all_faults_the_first_kind_is_told_first_and_cases_keep_their_order():
    observed = [*reversed(WRONG.values()), *WRONG.values()]
    cases = [Case(f"case {number}", f"part {number}", {}, {}) for number in range(len(observed))]
    found = judge.differences(cases, observed, [EXPECTED] * len(observed), {"values": 1})
    assert [difference.kind for difference in found] == sorted([*Kind, *Kind])
    numbers = [cases.index(difference.case) for difference in found]
    assert all(first < second for first, second in zip(numbers[::2], numbers[1::2], strict=True))


def test_the_faults_of_one_case_are_all_counted_against_its_part_and_gradients_against_theirs():
    case = Case("a case", "mask", {}, {})
    observed = seen(RIGHT + 1, changed=CHANGED, gradient=RIGHT + 1)
    for parts, of_the_gradient in (({"mask": 1, "gradient": 1}, "gradient"), ({"mask": 1}, "mask")):
        found = judge.differences([case], [observed], [EXPECTED], parts)
        assert [(difference.kind, difference.part) for difference in found] == [
            (Kind.CHANGED, "mask"), (Kind.VALUES, "mask"), (Kind.GRADIENT, of_the_gradient),
        ]  # fmt: skip


@pytest.mark.parametrize("kind", [Kind.RAISED, Kind.TYPE])
def test_where_nothing_usable_came_back_no_gradient_did_either(kind):
    case = Case("a case", "values", {}, {})
    found = judge.differences([case], [WRONG[kind]], [EXPECTED], {"values": 1, "gradient": 1})
    assert {difference.part for difference in found} == {"values", "gradient"}
    found = judge.differences([case], [WRONG[kind]], [seen(changed=UNCHANGED)], {"values": 1, "gradient": 1})
    assert {difference.part for difference in found} == {"values"}  # the case asks for no gradient


def test_cases_without_an_observation_are_an_error_and_not_a_pass():
    with pytest.raises(ValueError, match="shorter"):
        judge.differences([Case("a", "b", {}, {})] * 2, [EXPECTED], [EXPECTED] * 2, {})


# Types, shapes, dtypes, of real answers


def of_scores(answer):
    """[(kind, text)] of an answer to attention_scores, in its first case."""
    cases = SCORES.draw(0)[:1]
    observed, expected = list(SCORES.observe(answer, cases)), SCORES.expected(0)[:1]
    return [(difference.kind, difference.text) for difference in judge.differences(cases, observed, expected, SCORES.parts)]


right = attention.attention_scores
ANSWERS = {
    "nothing": (lambda q, k: None, Kind.TYPE, "None"),
    "a tuple": (lambda q, k: (right(q, k),), Kind.TYPE, "tuple"),
    "a pair": (lambda q, k: (right(q, k), q), Kind.TYPE, "tuple"),
    "a list": (lambda q, k: right(q, k).tolist(), Kind.TYPE, "list"),
    "a dict": (lambda q, k: {"scores": right(q, k)}, Kind.TYPE, "dict"),
    "an array": (lambda q, k: right(q, k).detach().numpy(), Kind.TYPE, "ndarray"),
    "a number": (lambda q, k: 0.5, Kind.TYPE, "float"),
    "a module": (lambda q, k: torch, Kind.TYPE, "module"),
    "NaN": (lambda q, k: right(q, k) * math.nan, Kind.FINITE, "NaN"),
    "infinity": (lambda q, k: right(q, k) * math.inf, Kind.FINITE, "infinite"),
    "single": (lambda q, k: right(q, k).float(), Kind.DTYPE, "float32"),
    "integers": (lambda q, k: right(q, k).long(), Kind.DTYPE, "int64"),
    "complex": (lambda q, k: right(q, k) + 0j, Kind.VALUES, "complex128"),
    "one axis more": (lambda q, k: right(q, k)[None], Kind.SHAPE, "(1, 3, 5)"),
    "transposed": (lambda q, k: right(q, k).mT, Kind.SHAPE, "(5, 3)"),
    "one row, which broadcasts": (lambda q, k: right(q, k)[:1], Kind.SHAPE, "(1, 5)"),
    "one number, which broadcasts": (lambda q, k: right(q, k).sum(), Kind.SHAPE, "()"),
    "empty": (lambda q, k: right(q, k)[:0], Kind.SHAPE, "(0, 5)"),
    "its input changed": (lambda q, k: right(q.detach().mul_(2) / 2, k), Kind.CHANGED, "q"),
    "an error": (lambda q, k: q @ k, Kind.RAISED, "RuntimeError"),
}


@pytest.mark.parametrize("what", ANSWERS)
def test_what_an_answer_returns_is_told_as_what_it_is(what):
    answer, kind, word = ANSWERS[what]
    found = of_scores(answer)
    assert found[0][0] is kind and word in found[0][1]


@pytest.mark.parametrize(
    "cut",
    [lambda q, k: right(q.detach(), k), lambda q, k: right(q.data, k), lambda q, k: torch.tensor(right(q, k).tolist(), dtype=q.dtype)],
    ids=["detach", "data", "tolist"],
)
def test_a_gradient_that_does_not_arrive_is_told(cut):
    found = of_scores(cut)
    assert {kind for kind, _ in found} == {Kind.GRADIENT} and "No gradient reaches q" in found[0][1]


def test_a_gradient_that_is_wrong_though_the_values_are_right_is_told():
    found = of_scores(lambda q, k: right(q, k) + (q - q.detach()).sum())
    assert [kind for kind, _ in found] == [Kind.GRADIENT] and "gradient of q differs" in found[0][1]


def test_no_gradient_is_as_good_as_one_of_zeros_and_no_better():
    nothing = Value("NoneType", text="None")
    zeros = np.zeros(3)
    assert kinds(seen(gradient=nothing), seen(gradient=zeros)) == []
    assert kinds(seen(gradient=zeros), seen(gradient=nothing)) == []
    assert kinds(seen(gradient=nothing), seen(gradient=np.array([0.0, 1e-9, 0.0]))) == [Kind.GRADIENT]
    assert kinds(seen(gradient=np.array([0.0, 1e-9, 0.0])), seen(gradient=nothing)) == [Kind.GRADIENT]
    assert kinds(seen(), seen(gradient=zeros)) == [Kind.GRADIENT]


def test_a_gradient_that_cancels_to_nothing_may_keep_the_rounding_of_what_it_was_computed_from():
    def both(small, large):
        values = {probes.GRADIENT + name: value(np.array(each, np.float32)) for name, each in (("b", small), ("x", large))}
        return Observation({"output": value(RIGHT), **values})

    right = both([0.0, 0.0], [800.0, 3.0])  # softmax's own symmetry makes the gradient of a key's bias 0
    assert kinds(both([4e-3, -1e-3], [800.0, 3.0]), right) == []
    assert kinds(both([2e-2, 0.0], [800.0, 3.0]), right) == [Kind.GRADIENT]


def test_a_missing_result_is_told_and_one_more_is_allowed():
    assert kinds(seen(), seen(weights=RIGHT)) == [Kind.TYPE]
    assert kinds(seen(weights=RIGHT), seen()) == []


def test_an_error_that_is_right_must_be_of_its_type():
    error = seen(failure=Failure("ValueError", "too long"))
    assert kinds(seen(failure=Failure("ValueError", "another text")), error) == []
    assert kinds(seen(failure=Failure("TypeError", "too long")), error) == [Kind.RAISED]
    assert kinds(seen(), error) == [Kind.RAISED]


def test_another_device_is_told():
    there = Value("Tensor", "float64", "cuda", RIGHT)
    assert kinds(seen(there), seen()) == [Kind.DTYPE] and "cuda" in text(seen(there), seen())


# Equal numbers


def test_rounding_is_accepted_and_an_error_of_1e_8_is_not():
    for by in (1e-13, -1e-13, 1e-10):
        assert kinds(seen(RIGHT * (1 + by)), seen()) == []
    for by in (1e-8, -1e-8, 1e-3):
        assert kinds(seen(RIGHT * (1 + by)), seen()) == [Kind.VALUES]
    for place in ((0, 0), (0, 1), (0, 2), (1, 0)):
        assert kinds(seen(changed(RIGHT, place, 1e-8)), seen()) == [Kind.VALUES]


def test_an_element_much_smaller_than_the_others_may_be_off_by_their_rounding_and_no_more():
    for error, found in ((1e-15, []), (1e-9, [Kind.VALUES])):
        mine = RIGHT.copy()
        mine[1, 1] += error  # where the right number is 0
        assert kinds(seen(mine), seen()) == found


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_tolerance_is_that_of_the_dtype(dtype):
    array = RIGHT.astype(np.float32)
    relative, _ = judge.TOLERANCES[dtype]
    for by, found in ((relative / 10, []), (relative * 10, [Kind.VALUES])):
        mine, theirs = Value("Tensor", dtype, "cpu", changed(array, (1, 0), by)), Value("Tensor", dtype, "cpu", array)
        assert kinds(seen(mine), seen(theirs)) == found


def test_every_floating_dtype_that_can_cross_has_a_tolerance():
    assert set(judge.TOLERANCES) == {"float64", "float32", "float16", "bfloat16"}
    for name in judge.TOLERANCES:
        observation = observe("call", lambda x: x * 2, {"x": torch.ones(2, dtype=getattr(torch, name))}, {"gradient": False})
        assert kinds(observation, observation) == []


def test_nan_equals_nan_and_nothing_else():
    nan = np.array([1.0, math.nan])
    assert kinds(seen(nan), seen(nan)) == []
    assert kinds(seen(np.array([1.0, 2.0])), seen(nan)) == [Kind.VALUES]
    assert kinds(seen(nan), seen(np.array([1.0, 2.0]))) == [Kind.FINITE]


def test_infinity_equals_itself_and_nothing_else_however_large():
    """An error of inf is not within a tolerance of inf."""
    right = np.array([1.0, -math.inf])
    assert kinds(seen(right), seen(right)) == []
    for wrong in (-1e9, -1.7e308, 0.0):
        assert kinds(seen(np.array([1.0, wrong])), seen(right)) == [Kind.VALUES]
    for wrong in (math.inf, math.nan):
        assert kinds(seen(np.array([1.0, wrong])), seen(right)) == [Kind.FINITE]
    assert kinds(seen(np.array([2.0, -math.inf])), seen(right)) == [Kind.VALUES]  # nor does it make the others' tolerance wide


def test_integers_and_booleans_are_compared_exactly():
    large = np.array([2**62, 3])
    assert kinds(seen(large), seen(large.copy())) == []
    assert kinds(seen(large + [1, 0]), seen(large)) == [Kind.VALUES]
    mask = np.array([True, False])
    assert kinds(seen(~mask), seen(mask)) == [Kind.VALUES]
    assert kinds(seen(mask.astype(np.uint8)), seen(mask)) == [Kind.DTYPE]


def test_an_array_of_nothing_or_of_one_number_is_compared_too():
    assert kinds(seen(np.zeros((0, 3))), seen(np.zeros((0, 3)))) == []
    assert kinds(seen(np.zeros((0, 3))), seen(np.zeros((0, 4)))) == [Kind.SHAPE]
    assert kinds(seen(np.array(1.0)), seen(np.array(1.0))) == []
    assert "is 1 and should be 2" in text(seen(np.array(1.0)), seen(np.array(2.0)))


def test_what_is_no_array_is_compared_as_text():
    assert kinds(seen(n=Value("int", text="3")), seen(n=Value("int", text="3"))) == []
    assert kinds(seen(n=Value("int", text="4")), seen(n=Value("int", text="3"))) == [Kind.VALUES]
    assert kinds(seen(n=Value("float", text="3")), seen(n=Value("int", text="3"))) == [Kind.TYPE]


def test_the_numbers_say_how_many_where_and_how_wrong():
    words = text(seen(changed(changed(RIGHT, (0, 1), 1.0), (1, 0), 0.1)), seen())
    assert "2 of 6" in words and "[0, 1], is -4 and should be -2" in words


def test_a_dtype_that_is_claimed_does_not_loosen_the_tolerance():
    """The process that ran it may say anything: the tolerance is that of the right answer's dtype."""
    claimed = Value("Tensor", "float64", "cpu", RIGHT.astype(np.float16))
    assert kinds(seen(claimed), seen(RIGHT * (1 + 1e-6))) == [Kind.VALUES]


# Mistakes among themselves


def test_two_wrong_answers_are_the_same_when_all_they_show_is():
    failed = seen(failure=Failure("ValueError", "x", 3, "line"))
    assert judge.same(failed, seen(failure=Failure("ValueError", "y"))) and not judge.same(failed, seen())
    nothing = Observation({probes.RETURNED: Value("NoneType", text="None")})
    assert judge.same(nothing, Observation(dict(nothing.values)))
    assert not judge.same(nothing, Observation({probes.RETURNED: Value("tuple", text="(1,)")}))
    assert not judge.same(nothing, seen()) and not judge.same(seen(), nothing)


def test_gradients_that_are_both_not_finite_tell_no_mistakes_apart():
    nan, inf = seen(gradient=np.array([math.nan, 1.0])), seen(gradient=np.array([math.inf, 2.0]))
    assert judge.same(nan, inf)
    assert not judge.same(nan, seen(gradient=np.array([1.0, 1.0])))
    assert kinds(nan, seen(gradient=np.array([1.0, 1.0]))) == [Kind.GRADIENT]  # but it is wrong


# Distributions


DRAWS = 100_000


def drawn(*shares, draws=DRAWS, seed=None):
    """Counts of so many draws: exactly those shares, or at random from a seed."""
    counts = np.array(shares) * draws if seed is None else np.random.default_rng(seed).multinomial(draws, shares)
    return seen(drawn=np.asarray(counts).round().astype(np.int64))


@pytest.mark.parametrize("shares", [(0.9, 0.1), (0.8, 0.1, 0.1), (0.999, 0.001, 0.0), (1.0, 0.0), (1 / 16,) * 16])
def test_the_same_distribution_passes_whatever_the_seed(shares):
    for seed in range(300):
        for draws in (1_000, DRAWS):
            assert kinds(drawn(*shares, draws=draws, seed=seed), drawn(*shares, draws=draws, seed=-seed - 1 + 2**32)) == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [((0.95, 0.05), (0.94, 0.06)), ((0.95, 0.05), (0.96, 0.04)), ((0.8, 0.18, 0.02), (0.8, 0.17, 0.03)), ((0.99, 0.01), (1.0, 0.0))],
)
def test_a_share_that_is_off_by_one_in_a_hundred_is_rejected(right, wrong):
    for seed in range(20):
        assert kinds(drawn(*wrong, seed=seed), drawn(*right, seed=seed + 1000)) == [Kind.VALUES]


def test_how_far_a_share_may_be_off_is_known():
    """Around a half the standard error is largest: seven of them are 1.6 in a hundred, at 100,000 draws."""
    assert kinds(drawn(0.5 - 0.015, 0.5 + 0.015), drawn(0.5, 0.5)) == []
    assert kinds(drawn(0.5 - 0.017, 0.5 + 0.017), drawn(0.5, 0.5)) == [Kind.VALUES]


def test_counts_of_nothing_are_equal_to_each_other_and_to_nothing_else():
    nothing, something = np.zeros(3), np.array([0.0, 5.0, 0.0])
    assert kinds(seen(drawn=nothing), seen(drawn=nothing)) == []
    assert kinds(seen(drawn=something), seen(drawn=nothing)) == kinds(seen(drawn=nothing), seen(drawn=something)) == [Kind.TYPE]


def test_a_category_that_never_comes_up_is_rejected():
    assert kinds(drawn(0.9, 0.1, 0.0), drawn(0.9, 0.099, 0.001)) == [Kind.VALUES]
    assert "category [2]" in text(drawn(0.8995, 0.0995, 0.001), drawn(0.9, 0.1, 0.0))


@pytest.mark.parametrize(
    "counts",
    [
        Value("NoneType", text="None"), np.array([0, 0]), np.array([900, 100, 0]), np.array([1, 0]),
        np.array([[900, 100]]), np.array([-900, 1900]), np.array([math.inf, math.inf]), np.array([math.nan, 1000.0]), np.array([400, 45]),
    ],
    ids=["none", "no draws", "more categories", "one draw", "more axes", "negative", "infinite", "NaN", "half the draws"],
)  # fmt: skip
def test_counts_that_prove_nothing_are_not_usable(counts):
    assert kinds(seen(drawn=counts), seen(drawn=np.array([900, 100]))) == [Kind.TYPE]
    assert kinds(seen(), seen(drawn=np.array([900, 100]))) == [Kind.TYPE]
