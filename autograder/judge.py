"""Is it right? Observations of an answer against observations of the reference: pure, and the same wherever they were made."""

import dataclasses
import enum

import numpy as np

from autograder.sandbox.probes import CHANGED, DISTRIBUTION, GRADIENT, GRADIENT_ERROR, LEAKS, RETURNED, STRUCTURE, TRAINING

# How far two right answers can lie apart, by the dtype of the result: relative to the element, and to the largest element.
TOLERANCES = {"float64": (1e-9, 1e-11), "float32": (1e-4, 1e-5), "float16": (2e-2, 2e-3), "bfloat16": (1e-1, 2e-2)}
DEVIATIONS = 7  # standard errors; two right answers lie further apart once in 4e11 categories
SHOWN = 12  # arrays of at most so many elements are shown whole


class Kind(enum.IntEnum):
    """What is wrong, in the order in which it is told."""

    RAISED = 0
    TYPE = 1
    CHANGED = 2
    SHAPE = 3
    DTYPE = 4
    FINITE = 5
    VALUES = 6
    GRADIENT = 7


@dataclasses.dataclass(frozen=True)
class Difference:
    """One way in which an observation of the answer is not that of the reference."""

    kind: Kind
    part: str
    case: object
    say: object  # a text, or a function that makes it: of most differences nobody asks

    @property
    def text(self):
        """What is different, as a sentence."""
        return self.say() if callable(self.say) else self.say


def differences(cases, observed, expected, parts):
    """Every Difference, the first kind first; the order of the cases decides among equals."""
    found = []
    for case, mine, right in zip(cases, observed, expected, strict=True):
        graded = "gradient" in parts and any(name.startswith(GRADIENT) for name in right.values)
        for kind, name, text in compare(mine, right):
            lost = {"gradient"} if graded and name.startswith(GRADIENT) else {case.part}
            if graded and kind in (Kind.RAISED, Kind.TYPE):  # where nothing usable came back, no gradient did
                lost.add("gradient")
            found += [Difference(kind, part, case, text) for part in sorted(lost)]
    return sorted(found, key=lambda difference: difference.kind)


def same(observed, expected):
    """Whether two observations agree; where both have a gradient that is not finite, those gradients do."""
    return not any(True for _ in compare(observed, expected, between_mistakes=True))


def compare(observed, expected, between_mistakes=False):
    """Yields (kind, name of the value, text or a function that makes it) for each disagreement."""
    if observed.failure or expected.failure:
        yield from _failures(observed, expected)
        return
    for name in (STRUCTURE, RETURNED):
        if (name in observed.values or name in expected.values) and not (between_mistakes and _texts_agree(observed, expected, name)):
            yield Kind.TYPE, name, _unusable(name, observed, expected)
            return
    for name, right in expected.values.items():
        mine = observed.values.get(name)
        if name == CHANGED:
            if mine is None or mine.text != right.text:
                yield (
                    Kind.CHANGED,
                    name,
                    f"The call changed its input ({mine.text if mine else ''}); it should leave its inputs as they are.",
                )
        elif name.startswith(GRADIENT):
            yield from _gradient(name, observed, expected, between_mistakes)
        elif name.startswith(DISTRIBUTION):
            yield from _distribution(name, mine, right)
        elif name != GRADIENT_ERROR:
            if mine is None:
                yield Kind.TYPE, name, f"There is no {name}."
            else:
                yield from _value(name, mine, right)
    if GRADIENT_ERROR in expected.values and GRADIENT_ERROR not in observed.values:
        yield Kind.GRADIENT, GRADIENT, "It has gradients."


def _failures(observed, expected):
    mine, right = observed.failure, expected.failure
    if mine and right:
        if mine.type != right.type:
            yield Kind.RAISED, "", f"It raised {mine.type}: {mine.message} Expected: {right.type}."
    elif mine:
        where = f" in {mine.cell}, line {mine.line}: `{mine.source}`" if mine.source else ""
        ended = not mine.source and mine.type in ("Timeout", "Crash", "ProtocolError", "OutOfMemory")
        yield Kind.RAISED, "", mine.message if ended else f"It raised {mine.type}: {mine.message}{where}"
    else:
        yield Kind.RAISED, "", f"It returned without an error; expected: {right.type}."


def _texts_agree(observed, expected, name):
    mine, right = observed.values.get(name), expected.values.get(name)
    return mine is not None and right is not None and (mine.kind, mine.text) == (right.kind, right.text)


def _unusable(name, observed, expected):
    if name == STRUCTURE:
        return (
            f"The weights can't be loaded: {observed.values[name].text.strip(chr(39))}." if name in observed.values else "Its weights load."
        )
    about_it = (CHANGED, GRADIENT_ERROR, LEAKS)
    wanted = [value for value in expected.values if value not in about_it and not value.startswith((GRADIENT, DISTRIBUTION))]
    wanted = [value for value in wanted if not value.endswith(TRAINING)]
    expectation = f"({', '.join(wanted)})" if len(wanted) > 1 else " ".join(wanted) or "something else"
    if name not in observed.values:
        return f"It returned something usable; expected {expectation}."
    mine = observed.values[name]
    if mine.kind == "NoneType":
        return f"It returned None; expected {expectation}. Is there a `return` at its end?"
    if mine.kind == "tuple" and len(wanted) == 1:
        return f"It returned a tuple; expected the {expectation} alone. Is there a comma after the value that you return?"
    return f"It returned {_a(mine.kind)}; expected {expectation}."


def _gradient(name, observed, expected, between_mistakes):
    source, mine, right = name.removeprefix(GRADIENT), observed.values.get(name), expected.values[name]
    if mine is None:
        error = observed.values.get(GRADIENT_ERROR)
        yield Kind.GRADIENT, name, f"There is no gradient with respect to {source}" + (f": {error.text.strip(chr(39))}" if error else ".")
    elif mine.kind != right.kind:
        if right.array is not None and not right.array.any() and mine.kind == "NoneType":
            return  # no gradient where the right one is 0 everywhere
        if mine.array is not None and not mine.array.any() and right.kind == "NoneType":
            return
        yield Kind.GRADIENT, name, f"No gradient reaches {source}: somewhere on the way the graph is cut (detach, .data, numpy, .item())."
    elif right.array is not None:
        if between_mistakes and mine.array is not None and not np.isfinite(mine.array).all() and not np.isfinite(right.array).all():
            return
        if not any(_value(name, mine, right)):
            return  # without a search for the steepest, which could only forgive more
        gradients = [value.array for name, value in expected.values.items() if name.startswith(GRADIENT) and value.array is not None]
        steepest = max(np.abs(gradient[np.isfinite(gradient)]).max(initial=0.0) for gradient in gradients)
        for _, _, text in _value(name, mine, right, steepest):
            yield Kind.GRADIENT, name, text


def _distribution(name, mine, right):
    """Counts of independent draws, category by category: do they come from the same distribution?"""
    usable = mine is not None and mine.array is not None and mine.array.shape == right.array.shape
    if usable and np.array_equal(mine.array, right.array):
        return
    if usable:  # as float64, because a sum of huge integers would wrap around
        mine, right = mine.array.astype(np.float64), right.array.astype(np.float64)
        with np.errstate(over="ignore"):
            n, m = mine.sum(), right.sum()
    # far fewer draws than the reference's would prove nothing
    if not usable or not np.isfinite(n) or (mine < 0).any() or n * 2 <= m or m == 0:
        yield Kind.TYPE, name, f"There is no usable {name}."
        return
    p, q, pooled = mine / n, right / m, (mine + right) / (n + m)
    error = np.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
    wrong = ~(np.abs(p - q) <= DEVIATIONS * error + 1 / n + 1 / m)
    if wrong.any():
        place = tuple(_place(np.where(wrong, np.abs(p - q), -1)))
        mine_here, right_here = f"{p[place]:.2%} of {int(n)} draws", f"{q[place]:.2%} of the reference's"
        text = f"The {name} is not the right one: category {list(place)} came up in {mine_here}, and in {right_here}."
        yield Kind.VALUES, name, text


def _value(name, mine, right, scale=0.0):
    """scale: of what it was computed from, where that is larger: a gradient that cancels to 0 keeps the rounding of its terms"""
    if mine.kind != right.kind:
        hint = " Is there a `return` at its end?" if mine.kind == "NoneType" else ""
        yield Kind.TYPE, name, f"The {name} is {_a(mine.kind)}; expected {_a(right.kind)}.{hint}"
    elif right.array is None or mine.array is None:
        if (mine.dtype, mine.text) != (right.dtype, right.text) or mine.array is not right.array:  # no numbers are no right numbers
            yield Kind.VALUES, name, f"The {name} is {mine.text or mine.dtype}; expected {right.text or right.dtype}."
    elif mine.array.shape != right.array.shape:
        yield Kind.SHAPE, name, f"The {name} has the shape {mine.array.shape}; expected {right.array.shape}."
    elif (mine.dtype, mine.device) != (right.dtype, right.device):
        is_dtype = mine.dtype != right.dtype
        yield (
            Kind.DTYPE,
            name,
            f"The {name} is {mine.dtype if is_dtype else 'on ' + mine.device}; expected {right.dtype if is_dtype else right.device}.",
        )
    else:
        yield from _numbers(name, mine.array, right.array, right.dtype, scale)


def _numbers(name, mine, right, dtype, scale):
    if np.array_equal(mine, right):
        return
    if mine.dtype.kind != "f":
        wrong = mine != right
        if wrong.any():
            yield Kind.VALUES, name, f"The {name} differs in {_count(wrong)} elements{_worst(mine, right, wrong)}.{_whole(mine, right)}"
        return
    relative, absolute = TOLERANCES[dtype]
    with np.errstate(all="ignore"):
        error, size = np.abs(mine.astype(np.float64) - right.astype(np.float64)), np.abs(right)
        finite = np.isfinite(right)
        if not (finite & np.isfinite(mine)).all():
            equal = (mine == right) | (np.isnan(mine) & np.isnan(right))
            lost = ~np.isfinite(mine) & ~equal
            if lost.any():
                yield Kind.FINITE, name, lambda: _not_finite(name, mine, right, lost)
                return
            error = np.where(equal, 0.0, np.where(finite, error, np.inf))  # a number where none belongs is infinitely far off
            size = np.where(finite, size, 0.0)
        # not below 1e-3: a gradient that vanishes is 0 for one right answer and 1e-17 for another
        scale = size.max(initial=max(scale, 1e-3))
        wrong = error > relative * size + absolute * scale
    if wrong.any():
        small = dtype == "float64" and error.max() <= 1e-5 * scale
        yield Kind.VALUES, name, lambda: _differs(name, mine, right, wrong, error, small)


def _not_finite(name, mine, right, lost):
    what = "NaN" if np.isnan(mine[lost]).any() else "infinite"
    return f"The {name} has {_count(lost)} elements that are {what}, first at {_place(lost)}.{_whole(mine, right)}"


def _differs(name, mine, right, wrong, error, small):
    text = f"The {name} differs in {_count(wrong)} elements{_worst(mine, right, np.where(wrong, error, -1))}.{_whole(mine, right)}"
    if small:
        text += f" The largest difference, {error.max():.1e}, is small: is something computed in float32, or a constant slightly off?"
    return text


def _count(wrong):
    return f"{int(wrong.sum())} of {wrong.size}"


def _place(wrong):
    return [int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape)]


def _worst(mine, right, badness):
    place = tuple(_place(badness))
    index = str(list(place)) if place else "the only one"
    return f"; the worst, {index}, is {_number(mine[place])} and should be {_number(right[place])}"


def _number(x):
    return str(bool(x)) if x.dtype == bool else f"{x:.6g}"


def _whole(mine, right):
    if mine.size > SHOWN or mine.ndim == 0:
        return ""
    return f" Yours: {_show(mine)}; expected: {_show(right)}."


def _show(array):
    return np.array2string(array, precision=4, separator=", ", suppress_small=True).replace("\n", "")


def _a(kind):
    return "None" if kind == "NoneType" else f"{'an' if kind[0].lower() in 'aeiou' or kind == 'ndarray' else 'a'} {kind}"
