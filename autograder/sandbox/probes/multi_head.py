"""What the module `multi_head` alone needs: dropout on weights, and weights copied between modules.

Shapes: B batch, T queries, S keys, H heads, D model width.
"""

import torch
from torch import nn
from torch.nn import functional as F

from . import CHANGED, DISTRIBUTION, GRADIENT, LEAKS, RETURNED, STRUCTURE, call_once, gradients, leaks, load, named, positional

RETURNS = ("output", "weights")
AXES = ("sequences", "heads", "queries", "keys")  # of weights (B, H, T, S)
REPEATS = 1000  # how many times one sequence goes through attention with dropout


def attention(target, inputs, returns=RETURNS, gradient=True, leak=False):
    """Build, load the given weights by name, call in eval mode; `leak` asks which outputs see the future.

    Where there is dropout, also what it does to the weights in training.
    """
    module = target(*inputs["build"].values())
    if not isinstance(module, nn.Module):
        return {RETURNED: module}
    problem, parameters = load(module.to(inputs["x"].dtype).eval(), inputs["weights"])
    if problem:
        return {STRUCTURE: problem}
    arguments = {name: value for name, value in inputs.items() if name not in ("build", "weights")}
    seen = call_once(module, arguments, returns)
    if RETURNED in seen:
        return seen
    if inputs["build"].get("dropout"):
        return seen | _dropout(module, inputs, seen)
    if gradient:
        seen |= _without_noise(gradients(lambda given: module(*positional(given)), arguments, returns, parameters))
    if leak:
        seen[LEAKS] = leaks(module, arguments, returns, seen["output"])
    return seen


def _without_noise(found):
    """The gradient of W_K's bias is 0: it adds the same to all scores of a query. What rounding leaves of it differs by style."""
    gradient = found.get(GRADIENT + "W_K.bias")
    if gradient is not None and gradient.abs().max() < 1e-5:
        found[GRADIENT + "W_K.bias"] = torch.zeros_like(gradient)
    return found


def _dropout(module, inputs, seen):
    """By what the weights are multiplied in training, whether the output is made with them, how often they are dropped together.

    seen: the results in eval mode
    """
    x = inputs["x"]  # (1, T, D)
    result = {"numbers": "unknown", "output": "unknown", "zeros": "unknown"}
    pairs = dict.fromkeys(AXES, torch.tensor([1000 * REPEATS, 0, 0, 0]))  # counts, so that a wrong shape is what is told
    if all(isinstance(seen[name], torch.Tensor) for name in RETURNS) and seen["weights"].dim() == 4:
        with torch.no_grad():
            output, weights = named(module.train()(x.expand(REPEATS, -1, -1).contiguous()), RETURNS).values()
        factors = (weights / seen["weights"]).mul(1e5).round().div(1e5)  # (REPEATS, H, T, S)
        same = torch.allclose(output, _output(weights, x, inputs["weights"]), rtol=0, atol=1e-9)
        zeros = "has some" if (output == 0).any() else "has none"
        result = {"numbers": _few(factors.unique()), "output": "the same" if same else "another one", "zeros": zeros}
        pairs = {what: _pairs((factors == 0).long(), axis) for axis, what in enumerate(AXES)}
    return {
        "numbers that the weights are multiplied by in training mode": result["numbers"],
        "output in training mode, beside the returned weights times the values,": result["output"],
        "output in training mode, searched for numbers that are 0,": result["zeros"],
    } | {f"{DISTRIBUTION}weights of two {what} kept and dropped": counts for what, counts in pairs.items()}


def _output(weights, x, given):
    """What attention with these weights gives, the layers' own weights given by name."""
    B, H, T, S = weights.shape
    values = F.linear(x, given["W_V.weight"], given["W_V.bias"])  # (1, S, D)
    heads = weights @ values.view(1, S, H, -1).transpose(1, 2)  # (B, H, T, K)
    return F.linear(heads.transpose(1, 2).reshape(B, T, -1), given["W_O.weight"], given["W_O.bias"])


def _few(numbers):
    return " or ".join(f"{number:.4g}" for number in numbers.tolist()) if len(numbers) <= 3 else "many"


def _pairs(dropped, axis):
    """How many disjoint pairs along an axis are: both kept, second dropped, first dropped, both dropped."""
    half = dropped.shape[axis] // 2
    first, second = dropped.narrow(axis, 0, half), dropped.narrow(axis, half, half)
    return (2 * first + second).flatten().bincount(minlength=4)


def copied(target, inputs):
    """What my layers hold after theirs were copied into them, whether they are copies, and whether theirs are as they were.

    inputs: d_model, n_heads, and the weights of nn.MultiheadAttention by their names, with "_" for "."
    """
    D, H, given = inputs["d_model"], inputs["n_heads"], {name.replace("out_proj_", "out_proj."): value for name, value in inputs.items()}
    theirs = nn.MultiheadAttention(D, H, bias="in_proj_bias" in given).double()
    theirs.load_state_dict({name: given[name] for name in theirs.state_dict()})
    mine = _Layers(D, H, bias="in_proj_bias" in given).double()
    target(mine, theirs)
    parameters = dict(mine.named_parameters())
    seen = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    seen[CHANGED] = ["theirs"] if any(not torch.equal(value, given[name]) for name, value in theirs.state_dict().items()) else []
    seen["weights that can't be trained any more"] = [name for name, parameter in parameters.items() if not parameter.requires_grad]
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(1)
    seen["weights that change when theirs do"] = [name for name, parameter in parameters.items() if not torch.equal(parameter, seen[name])]
    return seen


class _Layers(nn.Module):
    """The parameters of a MultiHeadAttention, by their documented names: it can't compute."""

    def __init__(self, d_model, n_heads, bias):
        super().__init__()
        self.n_heads = n_heads
        self.W_Q, self.W_K, self.W_V, self.W_O = (nn.Linear(d_model, d_model, bias=bias) for _ in range(4))
