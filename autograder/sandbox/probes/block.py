"""What the module `block` alone needs: modules as they are built, and what can't be compared number by number.

Random answers are seen as exact properties (by what is each number multiplied?) and as counts over many draws.
"""

import copy

import torch
from torch import nn

from . import DISTRIBUTION, GRADIENT, GRADIENT_ERROR, RETURNED, STRUCTURE, build_load_call, call_once, load, named, positional

ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh}
BINS = torch.tensor([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0])  # in standard deviations: eight categories
COPIES = 100  # of an input, stacked, so that enough numbers are drawn
REPEATS = 4000  # how many times one pair of tokens goes through a block with dropout
SHIFT, CATEGORIES = 4, 32  # of what dropout left of a block's two sub-layers


def module(target, inputs, returns=("output",), gradient=True, leak=False):
    """`build_load_call`; without any "weights", a call of the module as it is built. An activation is given by its name."""
    inputs = _with_activation(inputs)
    if inputs["weights"]:
        return build_load_call(target, inputs, returns, gradient, leak)
    built = target(*inputs["build"].values())
    if not isinstance(built, nn.Module):
        return {RETURNED: built}
    arguments = {name: value for name, value in inputs.items() if name not in ("build", "weights")}
    return call_once(built.to(arguments["x"].dtype).eval(), arguments, returns)


def _with_activation(inputs):
    name = inputs["build"].get("activation")
    return inputs if name is None else {**inputs, "build": {**inputs["build"], "activation": ACTIVATIONS[name]}}


def block(target, inputs, returns=("output",), gradient=True, leak=False):
    """`module`; where the block has dropout, the distribution of what dropout leaves (see `block_weights` of the exercises)."""
    if not inputs["build"].get("dropout"):
        return module(target, inputs, returns, gradient, leak)
    built = target(*inputs["build"].values())
    if not isinstance(built, nn.Module):
        return {RETURNED: built}
    problem, _ = load(built.to(inputs["x"].dtype), inputs["weights"])
    if problem:
        return {STRUCTURE: problem}
    x = inputs["x"].expand(REPEATS, -1, -1).contiguous()
    with torch.no_grad():
        first, second = built.eval()(x), built(x)
        trained = built.train()(x)
    for result in (first, trained):
        if not isinstance(result, torch.Tensor) or result.shape != x.shape:
            return {RETURNED: result}
    written = (trained - x)[..., 0].round().nan_to_num(0, 0, 0).long() + SHIFT
    return {
        "output in eval mode, called again,": "the same" if torch.equal(first, second) else "another one",
        DISTRIBUTION + "what dropout leaves of the sub-layers": written.flatten().clamp(0, CATEGORIES - 1).bincount(minlength=CATEGORIES),
    }


def dropout(target, inputs):
    """By what each number is multiplied, exactly; and how often it is dropped, alone and together with others."""
    x = inputs["x"]
    seen = call_once(target, inputs, ("output",))
    output = seen.get("output")
    if not isinstance(output, torch.Tensor):
        return {RETURNED: seen.get(RETURNED, output)}
    if output.shape != x.shape or output.dtype != x.dtype:
        return seen
    seen["output"] = torch.zeros_like(output)  # its numbers are random: only shape and dtype can be compared
    many = {**inputs, "x": x.repeat(COPIES, *[1] * (x.dim() - 1))}
    outputs = torch.stack([target(*positional(copy.deepcopy(many))) for _ in range(2)]).detach()  # (calls, ...)
    seen["set of factors that x is multiplied by"] = _distinct(outputs / many["x"])
    dropped = (outputs == 0).long()
    seen[DISTRIBUTION + "numbers kept and dropped"] = dropped.flatten().bincount(minlength=2)
    seen[DISTRIBUTION + "pairs of neighbours in a token"] = _pairs(dropped, -1)
    seen[DISTRIBUTION + "pairs along the first axis"] = _pairs(dropped, 1)
    seen[DISTRIBUTION + "pairs of one number in two calls"] = _pairs(dropped, 0)
    return seen | _factor_of_gradient(target, inputs)


def _distinct(factors):
    return factors.double().mul(1e5).round().div(1e5).abs().unique()[:4]


def _pairs(dropped, axis):
    """How many disjoint pairs of neighbours along an axis are: both kept, second dropped, first dropped, both dropped."""
    half = dropped.shape[axis] // 2
    first, second = dropped.narrow(axis, 0, half), dropped.narrow(axis, half, half)
    return (2 * first + second).flatten().bincount(minlength=4)


def _factor_of_gradient(target, inputs):
    """The gradient of a plain sum of the output: it has to be what the numbers were multiplied by."""
    x = inputs["x"].clone().requires_grad_()
    try:
        result = target(*positional({**inputs, "x": x}))
        (found,) = torch.autograd.grad(result.sum(), x, allow_unused=True)
    except Exception as error:
        return {GRADIENT_ERROR: f"{type(error).__name__}: {error}"}
    return {GRADIENT + "x": None if found is None else _distinct(torch.cat([found.flatten(), (result / x).detach().flatten()]))}


def scaled_init(target, inputs):
    """What the initialisation makes of a small model: counts of weights by size, and of biases and gains that are not right."""
    model = _Model()
    target(model, inputs["n_layers"])
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
    matrices = {name: parameter for name, parameter in parameters.items() if parameter.dim() > 1}
    biases = torch.cat([parameter for name, parameter in parameters.items() if name.endswith("bias")])
    gains = torch.cat([parameter for name, parameter in parameters.items() if name.endswith("weight") and parameter.dim() == 1])
    first, second = (matrices[f"blocks.{i}.attention.W_Q.weight"] for i in range(2))
    seen = {
        "number of biases that are not 0": int((biases != 0).sum()),
        "number of gains that are 0": int((gains == 0).sum()),
        "number of gains that are neither 1 nor 0": int(((gains != 1) & (gains != 0)).sum()),
        "pair of W_Q in the first two blocks": "alike" if torch.equal(first, second) else "different",
    }
    small = (2 * inputs["n_layers"]) ** -0.5
    for group, ending, scale in (("W_O", "W_O.weight", small), ("W_2", "W_2.weight", small), ("embeddings", "embedding.weight", 1.0)):
        names = [name for name in matrices if name.endswith(ending)]
        seen[f"{DISTRIBUTION}weights in {group}"] = _by_size([matrices.pop(name) for name in names], scale)
    seen[f"{DISTRIBUTION}weights elsewhere"] = _by_size(matrices.values(), 1.0)
    return seen


def _by_size(weights, scale):
    """How many weights lie between the BINS, in units of the standard deviation that they should have."""
    weights = torch.cat([weight.flatten() for weight in weights]).nan_to_num()
    return torch.bucketize(weights / (0.02 * scale), BINS).bincount(minlength=len(BINS) + 1)


class _Layer(nn.Module):
    """A block's parameters, by their documented names: it can't compute."""

    def __init__(self, D, F):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.attention = nn.ModuleDict({name: nn.Linear(D, D) for name in ("W_Q", "W_K", "W_V", "W_O")})
        self.feed_forward = nn.ModuleDict({"W_1": nn.Linear(D, F), "W_2": nn.Linear(F, D)})


class _Positions(nn.Module):
    """An embedding that is no nn.Embedding."""

    def __init__(self, T, D):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(T, D))


class _Model(nn.Module):
    """A whole model's parameters: two blocks, whatever number it is told."""

    def __init__(self, V=40, T=30, D=64, F=96):
        super().__init__()
        self.token_embedding = nn.Embedding(V, D)
        self.position_embedding = _Positions(T, D)
        self.blocks = nn.ModuleList(_Layer(D, F) for _ in range(2))
        self.final_norm = nn.LayerNorm(D)
        self.output = nn.Linear(D, V)


def count_parameters(target, inputs):
    """The count, for a module that is known by a description."""
    seen = named(target(MODULES[inputs["module"]]()), ("count",))
    count = seen.get("count")
    if isinstance(count, torch.Tensor) and count.numel() == 1 and not count.is_floating_point():
        seen["count"] = int(count)
    return seen


def _tied():
    model = nn.Sequential(nn.Embedding(7, 5), nn.Linear(5, 7))
    model[1].weight = model[0].weight
    return model


def _frozen():
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    model[0].requires_grad_(False)
    return model


MODULES = {
    "Linear(3, 5)": lambda: nn.Linear(3, 5),
    "Linear(5, 3) without bias": lambda: nn.Linear(5, 3, bias=False),
    "ReLU": nn.ReLU,
    "two Linear and a LayerNorm": lambda: nn.Sequential(nn.Linear(3, 5), nn.Sequential(nn.LayerNorm(5), nn.Linear(5, 2))),
    "an embedding tied to the output": _tied,
    "a BatchNorm, which has buffers": lambda: nn.BatchNorm1d(6),
    "two Linear, the first frozen": _frozen,
    "a transformer block": lambda: _Layer(8, 32),
}
