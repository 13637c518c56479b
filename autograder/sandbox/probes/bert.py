"""What the module `bert` alone needs: blanks drawn at random, how an encoder starts, who sees whom in it, steps of fine-tuning.

Models that an answer is given are made here, with the same weights each time. What is drawn at random is seen as exact
properties and as counts over many draws.

Shapes: B batch, T tokens of a sequence, D model width, V vocabulary, C classes.
"""

import copy
import itertools

import torch
from torch import nn
from torch.nn import functional as F

from . import CHANGED, DISTRIBUTION, RETURNED, STRUCTURE, build_load_call, call_once, load, positional

BINS = torch.tensor([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0])  # in standard deviations: eight categories
DRAWS = 3000  # how many times one sequence goes through a model with dropout
NOT_CHOSEN, BLANK, OTHER, KEPT = range(4)  # what can become of a token


# blanks


def masking(target, inputs, exact=False):
    """The inputs and labels that are made of tokens; unless they are `exact`, what holds of all draws, and counts."""
    seen = call_once(target, inputs, ("inputs", "labels"))
    tokens, results = inputs["tokens"], [seen.get("inputs"), seen.get("labels")]
    if exact or any(not isinstance(result, torch.Tensor) or result.shape != tokens.shape for result in results):
        return seen
    seen["inputs"], seen["labels"] = (torch.zeros_like(result) for result in results)  # only shape and dtype can be compared
    read, labels = (result.long() for result in results)
    special = torch.zeros_like(tokens, dtype=torch.bool)
    for token in inputs.get("special", ()):
        special |= tokens == token
    chosen = labels != -100
    seen |= {
        "number of labels that are neither the token nor -100": int((chosen & (labels != tokens)).sum()),
        "number of tokens changed where the label is -100": int((~chosen & (read != tokens)).sum()),
        "number of special tokens with a label": int((chosen & special).sum()),
        "number of special tokens changed": int((special & (read != tokens)).sum()),
    }
    again = target(*positional(copy.deepcopy(inputs)))[1] if not special.all() else labels
    counts = _counts(inputs, read, chosen, special) | _pairs_of_calls(chosen, again, special)
    return seen | {name: count for name, count in counts.items() if count.any()}  # where nothing was counted there is no distribution


def _counts(inputs, read, chosen, special):
    tokens = inputs["tokens"]
    fate = torch.full_like(tokens, NOT_CHOSEN)
    fate[chosen] = OTHER
    fate[chosen & (read == tokens)] = KEPT
    fate[chosen & (read == inputs["mask_token"])] = BLANK
    changed = read[chosen & (read != tokens)].clamp(0, inputs["vocab_size"])
    return {
        DISTRIBUTION + "tokens: not chosen, a blank, another token, the same": fate[~special].bincount(minlength=4),
        DISTRIBUTION + "tokens that stand in the place of a chosen one": changed.bincount(minlength=inputs["vocab_size"] + 1),
        DISTRIBUTION + "what becomes of two neighbours": _pairs(fate, special, 1),
        DISTRIBUTION + "what becomes of tokens in the same place of two sequences": _pairs(fate, special, 0),
    }


def _pairs(fate, special, axis):
    """How many disjoint pairs along an axis had which two fates: 16 categories."""
    half = fate.shape[axis] // 2
    first, second = fate.narrow(axis, 0, half), fate.narrow(axis, half, half)
    ordinary = ~(special.narrow(axis, 0, half) | special.narrow(axis, half, half))
    return (4 * first + second)[ordinary].bincount(minlength=16)


def _pairs_of_calls(chosen, labels, special):
    both = 2 * chosen.long() + (labels != -100).long() if labels.shape == chosen.shape else chosen.long()
    return {DISTRIBUTION + "one token in two calls: chosen or not": both[~special].bincount(minlength=4)}


# embeddings and the encoder


def embeddings(target, inputs, returns=("output",), gradient=True):
    """`build_load_call`; where there is dropout, by what it multiplies the output."""
    p = inputs["build"].get("dropout")
    if not p:
        return build_load_call(target, inputs, returns, gradient)
    built, problem = _built(target, inputs)
    if problem:
        return problem
    tokens = inputs["tokens"].expand(DRAWS, -1).contiguous()
    with torch.no_grad():
        right, trained = built.eval()(tokens), built.train()(tokens)
    if not isinstance(trained, torch.Tensor) or trained.shape != right.shape:
        return {RETURNED: trained}
    factor = trained / right
    category = torch.full_like(factor, 3, dtype=torch.long)
    for i, value in enumerate((0.0, 1 / (1 - p), 1.0)):
        category[(factor - value).abs() < 1e-6] = i
    return {
        "output in eval mode": right[:1],
        DISTRIBUTION + f"numbers of the output in training: 0, multiplied by {1 / (1 - p):g}, as they were, anything else":
            category.flatten().bincount(minlength=4),
    }  # fmt: skip


def encoder(target, inputs, returns=("output",), gradient=True, only=""):
    """`build_load_call`. Without weights: how the encoder starts.

    only: "sight" = nothing but which outputs do not notice that a token has changed; "dropout" = what dropout leaves
    """
    if not inputs["weights"]:
        built = target(*inputs["build"].values())
        return _start(built) if isinstance(built, nn.Module) else {RETURNED: built}
    if not only:
        return build_load_call(target, inputs, returns, gradient)
    built, problem = _built(target, inputs)
    return problem or (_sight if only == "sight" else _dropout)(built, inputs)


def _built(target, inputs):
    """A module with the given weights, and what went wrong (or nothing)."""
    built = target(*inputs["build"].values())
    if not isinstance(built, nn.Module):
        return built, {RETURNED: built}
    problem, _ = load(built.to(next(iter(inputs["weights"].values())).dtype), inputs["weights"])
    return built, {STRUCTURE: problem} if problem else {}


def _start(built):
    """How large the weights of a new encoder are: counts by size, in units of 0.02."""
    groups = {"the embeddings": [], "the blocks": []}
    biases, gains = 0, 0
    for name, parameter in built.named_parameters():
        parameter = parameter.detach()
        if parameter.dim() > 1:
            groups["the embeddings" if name.startswith("embeddings") else "the blocks"].append(parameter.flatten() / 0.02)
        elif name.endswith("bias"):
            biases += int((parameter != 0).sum())
        else:
            gains += int((parameter != 1).sum())
    sizes = {
        DISTRIBUTION + "weights in " + group: torch.bucketize(torch.cat(parts).nan_to_num(), BINS).bincount(minlength=len(BINS) + 1)
        for group, parts in groups.items() if parts
    }  # fmt: skip
    return sizes | {"number of biases that are not 0": biases, "number of gains that are not 1": gains}


def _sight(built, inputs):
    """[(s, t)]: another token at s makes no difference to the output at t."""
    arguments = {name: value for name, value in inputs.items() if name not in ("build", "weights", "tokens")}
    tokens = inputs["tokens"]  # (B, T)
    built.eval()
    with torch.no_grad():
        before = built(tokens, *arguments.values())
        if not isinstance(before, torch.Tensor) or before.shape[:2] != tokens.shape:
            return {RETURNED: before}
        blind = []
        for s in range(tokens.shape[1]):
            other = tokens.clone()
            other[:, s] = (other[:, s] + 1) % inputs["build"]["vocab_size"]
            moved = (built(other, *arguments.values()) - before).abs().nan_to_num(1.0).amax((0, 2)) > 1e-9  # (T)
            blind += [(s, t) for t in range(len(moved)) if not moved[t]]
    return {"list of (token, output that does not notice when that token changes)": blind}


def _dropout(built, inputs):
    """Which of six numbers dropout leaves: the three of the embedding, and the three that the block adds.

    The weights are such that nothing else happens: one block, whose layers are 0, but for the last bias.
    """
    weights, p = inputs["weights"], inputs["build"]["dropout"]
    tokens = inputs["tokens"].expand(DRAWS, -1).contiguous()  # (DRAWS, 1)
    with torch.no_grad():
        first, second, trained = built.eval()(tokens), built(tokens), built.train()(tokens)
    if not isinstance(trained, torch.Tensor) or trained.shape != (DRAWS, 1, 3):
        return {RETURNED: trained}
    names = ("token_embedding", "position_embedding", "segment_embedding")
    rows = (tokens[0, 0], 0, 0)
    embedded = _norm(sum(weights[f"embeddings.{name}.weight"][row] for name, row in zip(names, rows)), weights, "embeddings.norm")
    kept = torch.tensor(list(itertools.product((0.0, 1.0), repeat=6)), dtype=embedded.dtype) / (1 - p)  # (64, 6)
    x = _norm(kept[:, :3] * embedded, weights, "blocks.0.norm_1")
    x = _norm(x + kept[:, 3:] * weights["blocks.0.feed_forward.W_2.bias"], weights, "blocks.0.norm_2")  # (64, 3)
    alike = (trained - x).abs().amax(-1) < 1e-7  # (DRAWS, 64)
    category = torch.where(alike.any(-1), alike.int().argmax(-1), len(x))
    return {
        "output in eval mode": first[:1],
        "output in eval mode, called again,": second[:1],
        DISTRIBUTION + "what dropout leaves": category.bincount(minlength=len(x) + 1),
    }


def _norm(x, weights, name):
    return F.layer_norm(x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], eps=1e-12)


# fine-tuning


class _Encoder(nn.Module):
    """Each token's vector, and the mean of those that the mask shows, added twice; in training half as much again."""

    def __init__(self, V=7, D=4):
        super().__init__()
        self.embedding = nn.Embedding(V, D)
        _same_weights(self)

    def forward(self, tokens, mask=None, segments=None):
        x = self.embedding(tokens)  # (B, T, D)
        shown = torch.ones_like(tokens[:, None], dtype=torch.bool) if mask is None else mask  # (B, 1, T)
        context = shown.to(x) @ x / shown.sum(-1, keepdim=True)  # (B, 1, D)
        return (x + 2 * context) * (1.5 if self.training else 1.0)


class _Head(nn.Module):
    """A linear layer; in training its logits are twice as large."""

    def __init__(self, D=4, C=3):
        super().__init__()
        self.output = nn.Linear(D, C)
        _same_weights(self)

    def forward(self, x):
        return self.output(x) * (2.0 if self.training else 1.0)


def _same_weights(module):
    module.double()
    with torch.no_grad():
        for i, parameter in enumerate(module.parameters()):
            parameter.copy_(torch.cos(torch.arange(parameter.numel(), dtype=parameter.dtype) * 1.3 + i).view_as(parameter))


def finetuning(target, inputs, freezes=None):
    """Steps of a small encoder and its head, which come in the wrong mode: what they make of the weights.

    freezes: for each step, the last argument; None = two steps with the one that is given, if any
    """
    encoder, head = _Encoder(), _Head()
    parameters = {f"encoder's {name}": parameter for name, parameter in encoder.named_parameters()}
    parameters |= {f"head's {name}": parameter for name, parameter in head.named_parameters()}
    optimizer = torch.optim.SGD(parameters.values(), lr=0.5)
    given = {name: value for name, value in inputs.items() if name not in ("bert", "head", "optimizer")}
    seen, steps = {}, []
    optimizer.register_step_post_hook(lambda *_: steps.append(1))
    for step, freeze in enumerate(freezes or [given.get("freeze", False)] * 2, 1):
        encoder.train(freeze)
        head.eval()
        arguments = given | ({"freeze": freeze} if "freeze" in given else {})
        result = call_once(lambda *rest: target(encoder, head, optimizer, *rest), arguments, ("loss",))
        loss = result.get("loss")
        if isinstance(loss, bool) or not isinstance(loss, (float, int, torch.Tensor)):
            return {RETURNED: result.get(RETURNED, loss)}
        seen |= {
            f"loss of step {step}": torch.tensor(float(loss), dtype=torch.float64),
            f"type of the loss of step {step}": "float" if isinstance(loss, float) else type(loss).__name__,
        }
        seen |= {f"{name} after step {step}": parameter.detach().clone() for name, parameter in parameters.items()}
        seen[CHANGED] = result[CHANGED]
    return seen | {"number of times that the optimizer took a step": len(steps)}
