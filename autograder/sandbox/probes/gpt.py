"""What the module `gpt` alone needs: a GPT as it starts and what it leaks, one step of training, sampling, caches, lists of tokens.

Models that an answer is given are made here, with the same weights each time, and they note how they are called. What
is drawn at random is seen as counts over many draws.
"""

import copy
import itertools
import types

import torch
from torch import nn
from torch.nn import functional as F

from . import CHANGED, DISTRIBUTION, RETURNED, STRUCTURE, TRAINING, call_once, gradients, load, positional

BINS = torch.tensor([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0])  # in standard deviations: eight categories
DRAWS = 3000  # how many rows are drawn at once


# a GPT


def model(target, inputs, gradient=True, only=""):
    """Build a GPT from a configuration, load the given weights, call it. Without weights: how it starts.

    only: "leaks" = nothing but which outputs a later token changes; "dropout" = what dropout leaves
    """
    config = types.SimpleNamespace(**{"dropout": 0.0, "gelu": "none", **inputs["build"]})
    built = target(config)
    if not isinstance(built, nn.Module):
        return {RETURNED: built}
    if not inputs["weights"]:
        return _start(built, config.n_layers)
    built.to(next(iter(inputs["weights"].values())).dtype)
    problem, parameters = _load(built, inputs["weights"])
    if problem:
        return {STRUCTURE: problem}
    if only == "dropout":
        return _dropout(built, inputs)
    if only == "leaks":
        return _leaks(built.eval(), inputs["tokens"], config.vocab_size)
    arguments = {"tokens": inputs["tokens"]}
    trained = call_once(built.train(), arguments, ("logits",)).get("logits")
    seen = call_once(built.eval(), arguments, ("logits",)) | {"logits" + TRAINING: trained}
    if gradient and RETURNED not in seen:
        seen |= gradients(lambda given: built(*positional(given)), arguments, ("logits",), parameters)
    return seen


def _load(built, weights):
    """`load`, where a parameter may have several names; an output with weights of its own is told before anything else."""
    names = {}
    for name, parameter in built.named_parameters(remove_duplicate=False):
        if id(parameter) not in names or name in weights:
            names[id(parameter)] = (name, parameter)
    found = dict(names.values())
    shape = weights["token_embedding.weight"].shape
    others = [parameter for name, parameter in found.items() if name not in weights and sorted(parameter.shape) == sorted(shape)]
    if others and "token_embedding.weight" in found:
        return "there is a second weight as large as the token embedding's, and the output is to use the embedding's own", {}
    return load(types.SimpleNamespace(named_parameters=lambda: found.items()), weights)


def _start(built, n_layers):
    """How large the weights of a new model are: counts by size, in units of what they should be."""
    groups = {"token_embedding": [], "position_embedding": [], "W_O and W_2": [], "the other matrices": []}
    biases, gains = 0, 0
    for name, parameter in built.named_parameters():
        parameter = parameter.detach()
        if parameter.dim() == 1:
            biases += int((parameter != 0).sum()) if name.endswith("bias") else 0
            gains += int((parameter != 1).sum()) if name.endswith("weight") else 0
            continue
        residual = name.endswith(("W_O.weight", "W_2.weight"))
        group = next((group for group in groups if name.startswith(group)), "W_O and W_2" if residual else "the other matrices")
        groups[group].append(parameter.flatten() / (0.02 / (2 * n_layers) ** 0.5 if residual else 0.02))
    sizes = {DISTRIBUTION + "weights in " + group: _by_size(parts) for group, parts in groups.items() if parts}
    return sizes | {"number of biases that are not 0": biases, "number of gains that are not 1": gains}


def _by_size(parts):
    return torch.bucketize(torch.cat(parts).nan_to_num(), BINS).bincount(minlength=len(BINS) + 1)


def _leaks(built, tokens, vocabulary):
    """[(s, t)]: changing the token at s changes the output at t, before it."""
    with torch.no_grad():
        before = built(tokens)
        if not isinstance(before, torch.Tensor) or before.shape[:2] != tokens.shape:
            return {RETURNED: before}
        found = []
        for s in range(1, tokens.shape[1]):
            other = tokens.clone()
            other[:, s] = (other[:, s] + 1) % vocabulary
            changed = ((built(other) - before).abs().nan_to_num(1.0) > 1e-9 * before.abs().max()).any(-1).any(0)
            found += [(s, t) for t in range(s) if changed[t]]
    return {"list of (later token, earlier output that it changes)": found}


def _dropout(built, inputs):
    """Which of the numbers that go into the stream dropout leaves: the embedding's three, and the three that the block adds.

    The weights are such that nothing else gets into the stream: the block's layers are 0, but for the last bias.
    """
    weights, p = inputs["weights"], inputs["build"]["dropout"]
    tokens = inputs["tokens"].expand(DRAWS, -1).contiguous()
    with torch.no_grad():
        first, second, trained = built.eval()(tokens), built(tokens), built.train()(tokens)
    if not isinstance(trained, torch.Tensor) or trained.shape != (*tokens.shape, weights["token_embedding.weight"].shape[0]):
        return {RETURNED: trained}
    embedded = weights["token_embedding.weight"][tokens[0, 0]] + weights["position_embedding.weight"][0]
    added = weights["blocks.0.feed_forward.W_2.bias"]
    factors = torch.tensor([*itertools.product((0.0, 1 / (1 - p)), repeat=3), (1.0, 1.0, 1.0)], dtype=added.dtype)  # the last: no dropout
    streams = ((factors * embedded)[:, None] + factors * added).flatten(0, 1)  # (81, 3)
    logits = F.layer_norm(streams, (3,), weights["final_norm.weight"], weights["final_norm.bias"]) @ weights["token_embedding.weight"].T
    alike = (trained[:, :1] - logits).abs().amax(-1) < 1e-7  # (DRAWS, 81)
    category = torch.where(alike.any(-1), alike.int().argmax(-1), len(logits))
    return {
        "logits in eval mode": first,
        "logits in eval mode, called again,": second,
        DISTRIBUTION + "what dropout leaves in the stream": category.bincount(minlength=len(logits) + 1),
    }


# one step of training


class _Reader(nn.Module):
    """A model without attention, which notes what it reads and in which mode."""

    def __init__(self, V=7, D=3):
        super().__init__()
        self.embedding, self.output = nn.Embedding(V, D), nn.Linear(D, V)
        _same_weights(self)
        self.calls = []

    def forward(self, tokens):
        self.calls.append((tokens.detach().clone(), "training" if self.training else "eval", torch.is_grad_enabled()))
        return self.output(torch.tanh(self.embedding(tokens)))


OPTIMIZERS = {
    "SGD": lambda model: torch.optim.SGD(model.parameters(), lr=7.0),
    "SGD with momentum": lambda model: torch.optim.SGD(model.parameters(), lr=7.0, momentum=0.9),
    "AdamW, two groups": lambda model: torch.optim.AdamW(
        [{"params": model.embedding.parameters(), "weight_decay": 0.5}, {"params": model.output.parameters()}], lr=7.0, weight_decay=0.0
    ),
}


def train_step(target, inputs, steps=2):
    """Two steps of a small model, which comes in eval mode and with old gradients: what each step makes of its weights."""
    reader = _Reader()
    optimizer = OPTIMIZERS[inputs["optimizer"]](reader)
    for parameter in reader.parameters():
        parameter.grad = torch.ones_like(parameter)
    reader.eval()
    arguments = {name: value for name, value in inputs.items() if name not in ("model", "optimizer")}
    seen, at_step = {}, []
    optimizer.register_step_pre_hook(
        lambda *_: at_step.append(
            "gradients" if any(parameter.grad is not None and parameter.grad.any() for parameter in reader.parameters()) else "none"
        )
    )
    for step in range(1, steps + 1):
        given = copy.deepcopy(arguments)
        given["tokens"] = arguments["tokens"].roll(step - 1, 0)
        loss = target(reader, optimizer, *given.values())
        if not isinstance(loss, (float, torch.Tensor)):
            return {RETURNED: loss}
        seen |= {
            f"loss of step {step}": torch.tensor(float(loss), dtype=torch.float64),
            f"type of the loss of step {step}": "float" if isinstance(loss, float) else "Tensor",
            f"learning rate of step {step}": torch.tensor([group["lr"] for group in optimizer.param_groups]),
        }
        seen |= {f"{name} after step {step}": parameter.detach().clone() for name, parameter in reader.named_parameters()}
    seen["gradients at the optimizer's steps"] = at_step
    seen["mode in which the model was called"] = sorted({mode for _, mode, _ in reader.calls})
    seen["shape of what the model read"] = [tuple(tokens.shape) for tokens, _, _ in reader.calls]
    seen[CHANGED] = []
    return seen


def number(target, inputs, name="rate"):
    """The one number that a function returns, to be compared as a number."""
    result = target(*positional(inputs))
    if isinstance(result, torch.Tensor) and result.numel() == 1:
        result = float(result)
    if isinstance(result, bool) or not isinstance(result, (int, float)):
        return {RETURNED: result}
    return {name: torch.tensor(float(result), dtype=torch.float64)}


# sampling


class _Sums(nn.Module):
    """Its logits at t depend on all tokens up to t and on their places; it notes how it is called."""

    def __init__(self, V=5, context=6):
        super().__init__()
        self.config = types.SimpleNamespace(vocab_size=V, context=context, n_layers=1, n_heads=1, d_model=V, dropout=0.0, gelu="none")
        self.table = nn.Parameter(torch.empty(V, V))
        _same_weights(self)
        self.widths, self.modes, self.graphs = [], set(), set()

    def forward(self, tokens):
        if tokens.shape[1] > self.config.context:
            raise ValueError(f"{tokens.shape[1]} tokens don't fit into a context of {self.config.context}")
        self.widths.append(tokens.shape[1])
        self.modes.add("training" if self.training else "eval")
        self.graphs.add("recorded" if torch.is_grad_enabled() else "not recorded")
        weighted = tokens * torch.arange(1, tokens.shape[1] + 1)
        return 2 * self.table[weighted.cumsum(1) % self.config.vocab_size]


def sample(target, inputs, training=True):
    """Sampling from a small model: what it drew, or, where it draws at random, how often it drew what; and how it called the model."""
    sums = _Sums().train(training)
    seen = _drawn(target, sums, inputs)
    seen["mode of the model afterwards"] = "training" if sums.training else "eval"
    if not inputs["n_new"]:
        return seen  # nothing has to be called
    return seen | {
        "widths of what the model read": sums.widths,
        "mode in which the model was called": sorted(sums.modes),
        "graph of the calls": sorted(sums.graphs),
    }


def sample_cached(target, inputs, training=True):
    """The same with a small GPT, in which each position is to be computed once."""
    tiny = _Tiny().train(training)
    modes, graphs, widths = set(), set(), []

    def note(module, given):
        modes.add("training" if module.training else "eval")
        graphs.add("recorded" if torch.is_grad_enabled() else "not recorded")

    for module in tiny.modules():
        module.register_forward_pre_hook(note)
    tiny.blocks[0].norm_1.register_forward_pre_hook(lambda module, given: widths.append(given[0].shape[1]))
    seen = _drawn(target, tiny, inputs)
    positions = inputs["tokens"].shape[1] + inputs["n_new"]
    seen["mode of the model afterwards"] = "training" if tiny.training else "eval"
    if not inputs["n_new"]:
        return seen  # nothing has to be called
    return seen | {
        "number of times that a position is computed": "once" if sum(widths) <= positions else f"{sum(widths)} positions for {positions}",
        "mode in which the model was called": sorted(modes),
        "graph of the calls": sorted(graphs),
    }


def _drawn(target, given_model, inputs):
    """The tokens of a call that can give one result only (top_k=1), else the counts of what many rows drew."""
    inputs = {name: value for name, value in inputs.items() if name != "model"}
    prompt, V = inputs["tokens"], given_model.config.vocab_size
    if inputs.get("top_k") == 1 or not inputs["n_new"]:
        return call_once(lambda *arguments: target(given_model, *arguments), inputs, ("tokens",))
    rows = prompt.expand(DRAWS, -1).contiguous()
    drawn = target(given_model, *({**inputs, "tokens": rows}.values()))
    if not isinstance(drawn, torch.Tensor) or drawn.dim() != 2 or drawn.is_floating_point():
        return {RETURNED: drawn}
    new = drawn[:, -inputs["n_new"] :]
    category = (new * V ** torch.arange(new.shape[1])).sum(1)
    return {
        "shape": tuple(drawn.shape),
        "prompt": "as it was" if drawn.shape[1] > prompt.shape[1] and torch.equal(drawn[:, : prompt.shape[1]], rows) else "changed",
        DISTRIBUTION + "what is drawn": category.clamp(0, V ** new.shape[1] - 1).bincount(minlength=V ** new.shape[1]),
    }


# caches


class _Attention(nn.Module):
    def __init__(self, D, H):
        super().__init__()
        self.n_heads = H
        self.W_Q, self.W_K, self.W_V, self.W_O = (nn.Linear(D, D) for _ in range(4))

    def forward(self, x, context=None, mask=None):
        q, k, v = (layer(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for layer in (self.W_Q, self.W_K, self.W_V))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        weights = (scores if mask is None else scores.masked_fill(~mask, -torch.inf)).softmax(-1)
        return self.W_O((weights @ v).transpose(1, 2).flatten(2)), weights


class _Block(nn.Module):
    def __init__(self, D, H, F):
        super().__init__()
        self.norm_1, self.attention, self.norm_2 = nn.LayerNorm(D), _Attention(D, H), nn.LayerNorm(D)
        self.feed_forward = nn.Sequential(nn.Linear(D, F), nn.Tanh(), nn.Linear(F, D))

    def forward(self, x, mask=None):
        x = x + self.attention(self.norm_1(x), mask=mask)[0]
        return x + self.feed_forward(self.norm_2(x))


class _Tiny(nn.Module):
    """A GPT with the documented names."""

    def __init__(self, V=5, context=8, L=2, H=2, D=6):
        super().__init__()
        self.config = types.SimpleNamespace(vocab_size=V, context=context, n_layers=L, n_heads=H, d_model=D, dropout=0.0, gelu="none")
        self.token_embedding, self.position_embedding = nn.Embedding(V, D), nn.Embedding(context, D)
        self.blocks = nn.ModuleList(_Block(D, H, 7) for _ in range(L))
        self.final_norm = nn.LayerNorm(D)
        _same_weights(self)

    def forward(self, tokens):
        T = tokens.shape[1]
        x = self.token_embedding(tokens) + self.position_embedding.weight[:T]
        for block in self.blocks:
            x = block(x, torch.ones(T, T, dtype=torch.bool).tril())
        return self.final_norm(x) @ self.token_embedding.weight.T


class _Cache:
    """A KVCache as it is documented, for answers that are to work with any."""

    def __init__(self):
        self.length, self.keys, self.values = 0, None, None

    def append(self, k, v):
        self.keys = k if self.keys is None else torch.cat([self.keys, k], 2)
        self.values = v if self.values is None else torch.cat([self.values, v], 2)
        self.length = self.keys.shape[2]
        return self.keys, self.values


def cache(target, inputs):
    """A sequence of appends: what each returns, how long the cache then is, and whether another cache, or an earlier result, changed."""
    one, other = target(), target()
    for each in (one, other):
        if not hasattr(each, "append") or not hasattr(each, "length"):
            return {RETURNED: each}
    seen, earlier = {"length at the start": one.length}, []
    pieces = list(zip(inputs["*keys"], inputs["*values"]))
    changed = []
    for i, (k, v) in enumerate(pieces, 1):
        given = k.clone(), v.clone()
        result = one.append(*given)
        if not isinstance(result, (tuple, list)) or len(result) != 2 or not all(isinstance(each, torch.Tensor) for each in result):
            return {RETURNED: result}
        seen |= {f"keys after append {i}": result[0].clone(), f"values after append {i}": result[1].clone()}
        seen[f"length after append {i}"] = int(one.length)
        changed += [] if torch.equal(given[0], k) and torch.equal(given[1], v) else ["k, v"]
        earlier.append((*result, result[0].clone(), result[1].clone()))
    changed += ["an earlier result"] if any(not torch.equal(k, k0) or not torch.equal(v, v0) for k, v, k0, v0 in earlier) else []
    seen["length of another cache"] = other.length
    seen[CHANGED] = changed
    return seen


def cached_attention(target, inputs, pieces):
    """Attention of a sequence that comes in pieces, of these lengths, with one cache."""
    x, n_heads = inputs["x"], inputs["n_heads"]
    layer = _Attention(x.shape[-1], n_heads)
    _same_weights(layer)
    layer.to(x.dtype)
    kept, outputs = _Cache(), []
    for piece in x.split(pieces, dim=1):
        output = target(layer, piece.clone(), kept, n_heads)
        if not isinstance(output, torch.Tensor) or output.dim() != 3:
            return {RETURNED: output}
        outputs.append(output)
    return {"output": torch.cat(outputs, 1), "length of the cache": kept.length}


def decode_step(target, inputs, pieces):
    """The logits of a sequence that comes in pieces, of these lengths, with one cache for each block."""
    tiny = _Tiny(context=inputs["context"]).eval()
    caches, outputs = [_Cache() for _ in tiny.blocks], []
    for piece in inputs["tokens"].split(pieces, dim=1):
        output = target(tiny, piece.clone(), caches)
        if not isinstance(output, torch.Tensor) or output.dim() != 3:
            return {RETURNED: output}
        outputs.append(output)
    return {"logits": torch.cat(outputs, 1), "lengths of the caches": [kept.length for kept in caches]}


def _same_weights(module):
    """The same numbers each time, as float64, whatever has been drawn before."""
    generator = torch.Generator().manual_seed(3)
    module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * parameter.shape[-1] ** -0.5)


# lists of tokens


def tokens(target, inputs, name="tokens"):
    """A list of tokens, or of pairs of them, that a function makes; sequences arrive as lists, pairs as tuples."""
    given = {key: _lists(key, value) for key, value in inputs.items()}
    kept = copy.deepcopy(given)
    result = target(*given.values())
    if isinstance(result, str) and name == "text":
        return {name: result, CHANGED: [key for key in given if given[key] != kept[key]]}
    width = 2 if name == "merges" else 0
    if not isinstance(result, list) or name == "text" or not all(_is_token(each, width) for each in result):
        return {RETURNED: result}
    rows = [[int(part) for part in each] if width else int(each) for each in result]
    seen = torch.tensor(rows, dtype=torch.int64).reshape(len(rows), width) if width else torch.tensor(rows, dtype=torch.int64)
    return {name: seen, CHANGED: [key for key in given if given[key] != kept[key]]}


def _lists(key, value):
    if key == "merges":
        return [tuple(pair) for pair in value]
    return tuple(value) if key == "pair" else list(value) if isinstance(value, (list, tuple)) else value


def _is_token(value, width):
    if width:
        return isinstance(value, (list, tuple)) and len(value) == width and all(_is_token(each, 0) for each in value)
    return hasattr(value, "__index__") and not isinstance(value, bool)
