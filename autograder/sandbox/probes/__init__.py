"""How to drive an answer, and what to look at: `probe(target, inputs, **options) -> {name: value}`.

The probes of this file serve nearly every exercise; what one module alone needs is in the file of its name.

`inputs` is an ordered dict: the arguments, in the order of the signature, so that a learner may name parameters as
they like. A name that starts with `*` holds a list of arguments. The names "build" (the arguments of a constructor)
and "weights" (tensors by their documented names) are for modules.

What a probe returns under its own names, beside the documented results:
    changed inputs        the names of the inputs that the call changed
    gradient of NAME      the gradient of a fixed weighted sum of the results
    gradient error        why there is none
    returned              what came back, where it is not what the exercise documents
    structure             what is wrong with the weights of a module
    earlier outputs …     which of them a later token changes, where an exercise is causal
    distribution of NAME  counts of what came out of many random draws, category by category
"""

import copy
import functools
import importlib

import numpy as np
import torch
from torch import nn

CHANGED, GRADIENT, GRADIENT_ERROR, RETURNED, STRUCTURE, DISTRIBUTION = (
    "changed inputs", "gradient of ", "gradient error", "returned", "structure", "distribution of ",
)  # fmt: skip
TRAINING = " in training mode"
LEAKS = "earlier outputs that a later token changes"


def call(target, inputs, returns=("output",), gradient=True):
    """Call a function: its results, whether it changed its inputs, and the gradients of its floating-point tensors."""
    seen = call_once(target, inputs, returns)
    if gradient and RETURNED not in seen:
        seen |= gradients(lambda given: target(*positional(given)), inputs, returns)
    return seen


def build_load_call(target, inputs, returns=("output",), gradient=True, leak=False):
    """Build a module, load the given weights by name, and call it in eval and in train mode; `leak` asks which outputs see the future."""
    arguments = {name: value for name, value in inputs.items() if name not in ("build", "weights")}
    module = target(*inputs["build"].values())
    if not isinstance(module, nn.Module):
        return {RETURNED: module}
    module.to(next(iter(inputs["weights"].values())).dtype)
    problem, parameters = load(module, inputs["weights"])
    if problem:
        return {STRUCTURE: problem}
    module.train()
    seen = {name + TRAINING: value for name, value in call_once(module, arguments, returns).items() if name in returns}
    module.eval()
    seen = call_once(module, arguments, returns) | seen
    if gradient and RETURNED not in seen:
        seen |= gradients(lambda given: module(*positional(given)), arguments, returns, parameters)
    if leak and RETURNED not in seen:
        seen[LEAKS] = leaks(module, arguments, returns, seen[returns[0]])
    return seen


def leaks(module, arguments, returns, output):
    """Change one token of x (B, T, D) at a time: which outputs before it change? (One sequence of a batch for each token.)

    output: the first of what is returned, as it was for these arguments
    """
    x = arguments["x"]
    if not isinstance(output, torch.Tensor) or output.shape != x.shape:
        return "unknown"
    T = x.shape[1]
    given = {name: value[:1].repeat(T, 1, 1) if hasattr(value, "dim") and value.dim() == 3 else value for name, value in arguments.items()}
    step = torch.linspace(-1, 2, x.shape[-1], dtype=x.dtype)  # not the same for all features: a LayerNorm would take that away
    changed = given["x"] + torch.eye(T, dtype=x.dtype)[:, :, None] * step  # sequence s has another token s
    with torch.no_grad():
        before, after = (named(module(*positional({**given, "x": each})), returns)[returns[0]] for each in (given["x"], changed))
    differs = ~((after - before).abs().amax(-1) <= 1e-9)  # (T changed tokens, T outputs)
    found = [f"output {t} (by token {s})" for s in range(T) for t in range(s) if differs[s, t]]
    return ", ".join(found[:3]) + f" and {len(found) - 3} more" * (len(found) > 3) or "none"


def find(name):
    """The probe of that name: `call`, or `gpt:train_step` for one that only the module gpt needs."""
    module, _, function = name.rpartition(":")
    return getattr(importlib.import_module(f"{__name__}.{module}") if module else importlib.import_module(__name__), function)


def call_once(target, inputs, returns):
    """The results of one call, by name, and which inputs it changed."""
    given = copied(inputs)
    seen = named(target(*positional(given)), returns)
    seen[CHANGED] = [name for name in inputs if not _same(given[name], inputs[name])]
    return seen


def copied(value):
    """A copy of inputs, as copy.deepcopy makes it, in a tenth of the time."""
    if type(value) is torch.Tensor:
        return value.detach().clone()
    if isinstance(value, dict):
        return {name: copied(each) for name, each in value.items()}
    if isinstance(value, list):
        return [copied(each) for each in value]
    return copy.deepcopy(value)


def positional(inputs):
    """The arguments in their order; a list under a name with a `*` is spread out."""
    arguments = []
    for name, value in inputs.items():
        arguments += value if name.startswith("*") else [value]
    return arguments


def named(result, returns):
    """The results by their documented names: one value, a tuple in that order, or fields of those names."""
    if len(returns) == 1 and not isinstance(result, (tuple, list, dict)):
        return {returns[0]: result}
    if all(hasattr(result, name) for name in returns):  # a named tuple, or an object with attributes
        return {name: getattr(result, name) for name in returns}
    if isinstance(result, dict) and set(returns) <= set(result):
        return {name: result[name] for name in returns}
    if len(returns) > 1 and isinstance(result, (tuple, list)) and len(result) == len(returns):
        return dict(zip(returns, result))
    return {RETURNED: result}


def _same(a, b):
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, torch.Tensor):
        return a.shape == b.shape and a.dtype == b.dtype and (torch.equal(a, b) or bool(torch.all((a == b) | ((a != a) & (b != b)))))
    if isinstance(a, np.ndarray):
        return a.shape == b.shape and a.dtype == b.dtype and bool(np.all((a == b) | ((a != a) & (b != b))))
    return a == b


def gradients(function, inputs, returns, parameters=None):
    """Gradients of a fixed weighted sum of the results with respect to the floating-point inputs, and to parameters.

    function: takes the dict of inputs
    parameters: {name: (parameter, transposed)}, as `load` returns them
    """
    given = {name: _leaf(value) for name, value in inputs.items()}
    leaves = {name: value for name, value in given.items() if isinstance(value, torch.Tensor) and value.requires_grad}
    weights = {name: parameter for name, (parameter, _) in (parameters or {}).items()}
    if not leaves and not weights:
        return {}
    try:
        results = named(function(given), returns)
        total = sum(weighted_sum(value) for value in results.values() if isinstance(value, torch.Tensor) and value.is_floating_point())
        names = [*leaves, *weights]
        wanted = [*leaves.values(), *weights.values()]
        connected = isinstance(total, torch.Tensor) and total.requires_grad
        found = torch.autograd.grad(total, wanted, allow_unused=True) if connected else [None] * len(wanted)
    except Exception as error:
        return {GRADIENT_ERROR: f"{type(error).__name__}: {error}"}
    turned = {name for name, (_, transposed) in (parameters or {}).items() if transposed}
    return {GRADIENT + name: gradient.T if gradient is not None and name in turned else gradient for name, gradient in zip(names, found)}


def _leaf(value):
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.detach().clone().requires_grad_()
    return copied(value)


def weighted_sum(output):
    """A sum in which every element has a weight of its own, so that a gradient in the wrong place shows."""
    weights = torch.from_numpy(_weights(output.numel())).to(output.dtype)
    return (output.reshape(-1) * weights).sum()


@functools.lru_cache(maxsize=256)
def _weights(count):
    """Kept as an array: a tensor would carry the mode in which it was made, such as torch.inference_mode, into later gradients."""
    return np.cos(np.arange(count) * 0.7 + 0.3)


def load(module, weights):
    """Copy the weights into the module by name; returns what is wrong (or ""), and {name: (parameter, transposed)}.

    `W_Q` may be an nn.Linear or an nn.Parameter; an nn.Parameter may lie either way round.
    """
    own = dict(module.named_parameters())
    found, problems = {}, []
    for name, given in weights.items():
        key = name if name in own else f"{name}.weight"
        if key not in own:
            problems.append(f"it has no weight named {name}")
            continue
        parameter = own.pop(key)
        transposed = key == name and parameter.shape != given.shape and parameter.shape == given.T.shape
        if not transposed and parameter.shape != given.shape:
            problems.append(f"{name} must have the shape {tuple(given.shape)}, yours has {tuple(parameter.shape)}")
            continue
        with torch.no_grad():
            parameter.copy_(given.T if transposed else given)
        found[name] = (parameter, transposed)
    if own:
        problems.append(f"it also has {', '.join(own)}, which should not be there")
    return "; ".join(problems), found
