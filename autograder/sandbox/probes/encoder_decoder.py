"""What the module `encoder_decoder` alone needs: dropout in blocks, who depends on whom in a model, and a scripted model to decode from."""

import copy

import torch
from torch import nn

from . import CHANGED, DISTRIBUTION, RETURNED, STRUCTURE, build_load_call, call_once, gradients, load, positional

NOISE = 1e-9  # what rounding can do in float64; what depends on a token moves by far more


def block(target, inputs, returns=("output",), gradient=True, dropout=False, leak=False):
    """build_load_call; or, with `dropout`, what a block's sub-layers add to x = 0 in training, and whether dropout acts at all.

    For that, the weights are given so that the sub-layers add 1, 2, 4, whatever they read: 0 and the bias of the last layer.
    """
    if not dropout:
        return build_load_call(target, inputs, returns, gradient, leak)
    arguments = {name: value for name, value in inputs.items() if name not in ("build", "weights")}
    module = target(*inputs["build"].values())
    if not isinstance(module, nn.Module):
        return {RETURNED: module}
    problem, _ = load(module.to(inputs["x"].dtype), inputs["weights"])
    if problem:
        return {STRUCTURE: problem}
    seen = call_once(module.eval(), arguments, returns)
    output = call_once(module.train(), arguments, returns).get("output")
    again = call_once(module, arguments, returns).get("output")
    if not isinstance(output, torch.Tensor) or output.shape != inputs["x"].shape:
        return {RETURNED: output}
    seen["output, called twice in training mode,"] = "twice the same" if torch.equal(output, again) else "not twice the same"
    if dropout == "pre":  # post-norm mixes all that was added
        seen[DISTRIBUTION + "what the sub-layers add in training"] = _counts(output.detach() * (1 - inputs["build"]["dropout"]))
    return seen


def _counts(added):
    """How often 0, 1, … 7 was added, and how often (in the last place) something else."""
    whole = added.round().clamp(0, 7)
    category = torch.where((added - whole).abs() < 1e-6, whole, 8.0).long()
    return torch.bincount(category.flatten(), minlength=9)


def model(target, inputs, stacks=True, dependences=False, gradient=True, fresh=False):
    """Build an EncoderDecoder, load the weights, and look at its logits and memory; with `fresh`, look at it as it is built.

    stacks: look at `encode` and `decode` too; dependences: and at which logits depend on which tokens
    """
    module = target(*inputs["build"].values())
    if not isinstance(module, nn.Module):
        return {RETURNED: module}
    if fresh:
        return _fresh(module, inputs)
    problem, parameters = load(module.double(), inputs["weights"])
    if problem:
        return {STRUCTURE: problem}
    given = {name: value for name, value in inputs.items() if name not in ("build", "weights")}
    seen = call_once(module.train(), given, ("logits",))  # no dropout was asked for
    if stacks and RETURNED not in seen:
        seen = _stacks(module.eval(), given) | seen
    if dependences and RETURNED not in seen:
        seen |= _dependences(module, given, seen["logits"])
    if gradient and RETURNED not in seen:
        seen |= gradients(lambda inputs: module(*positional(inputs)), given, ("logits",), parameters)
    return seen


def _stacks(module, given):
    """What `encode` and `decode` return, each called on its own."""
    memory = call_once(module.encode, {name: value for name, value in given.items() if name != "target"}, ("memory",))
    if not isinstance(memory.get("memory"), torch.Tensor):
        return {RETURNED: memory.get(RETURNED, memory.get("memory"))}
    mask = {name: value for name, value in given.items() if name == "source_mask"}
    arguments = {"target": given["target"], "memory": memory["memory"].detach(), **mask}
    decoded = call_once(module.decode, arguments, ("logits of decode",))
    return memory | decoded | {"inputs that encode or decode changed": [*memory[CHANGED], *decoded[CHANGED]]}


def _dependences(module, given, logits):
    """Which logits move when one token is replaced by another: position t of the target, or any, for each sequence of the batch."""
    seen = {}
    for name, vocabulary in (("source", module.source_embedding), ("target", module.target_embedding)):
        moved = []
        for position in range(given[name].shape[1]):
            other = given[name].clone()
            other[:, position] = (other[:, position] + 1) % vocabulary.num_embeddings
            difference = (module(*positional({**given, name: other})) - logits).detach().abs().amax(-1)  # (B, T)
            moved.append(difference.nan_to_num(1.0) > NOISE)
        seen[name] = torch.stack(moved, dim=-1)  # (B, T, S)
    return {
        "table of which logits [b, t] depend on which token [s] of the target": seen["target"],
        "table of which sequences [b] depend on which token [s] of their source": seen["source"].any(1),
    }


def _fresh(module, inputs):
    """As it is built: how large its embeddings are, and where dropout acts in training."""
    seen, source, target = {}, inputs["source"], inputs["target"]
    for name in ("source_embedding", "target_embedding"):
        weight = getattr(module, name).weight
        times_root = float(weight.std()) * weight.shape[1] ** 0.5
        seen[f"standard deviation of {name} at the start"] = "about 1/√D" if 0.5 < times_root < 2 else f"{times_root:.1f}/√D"
    module.train()
    memory, x = module.encode(source).detach(), module.target_embedding(target).detach()
    seen["memory, made twice in training mode,"] = _repeated(module.encode, source)
    seen["result of the encoder's first block, called twice in training mode,"] = _repeated(module.encoder[0], memory)
    seen["result of the decoder's first block, called twice in training mode,"] = _repeated(module.decoder[0], x, memory)
    module.encoder, module.decoder = nn.ModuleList(), nn.ModuleList()  # what is left are the embeddings and the norms
    seen["memory without any block, made twice in training mode,"] = _repeated(module.encode, source)
    seen["logits without any block, made twice in training mode,"] = _repeated(module.decode, target, memory)
    return seen


def _repeated(function, *arguments):
    return "twice the same" if torch.equal(function(*arguments), function(*arguments)) else "not twice the same"


def schedule(target, inputs):
    """The learning rates of many steps, each asked for on its own."""
    rates = [target(step, *list(inputs.values())[1:]) for step in inputs["step"].tolist()]
    if not all(isinstance(rate, (int, float, torch.Tensor)) for rate in rates):
        return {RETURNED: rates[0]}
    return {"learning rates": torch.tensor([float(rate) for rate in rates], dtype=torch.float64)}


class Scripted(nn.Module):
    """In the place of an EncoderDecoder: what it says next depends on all of the source, of the mask and of what is written, by a table.

    It counts how often it reads the source.
    """

    def __init__(self, table):
        super().__init__()
        self.table, self.reads = nn.Parameter(table), 0  # (states, V)

    def encode(self, source, source_mask=None):
        self.reads += 1
        real = torch.ones_like(source) if source_mask is None else source_mask[:, 0].expand_as(source).long()
        whole = (source * real).sum(-1, keepdim=True).expand_as(source)  # every token knows the real ones
        return torch.stack([source, 2 * whole], dim=-1).to(self.table)  # (B, S, 2)

    def decode(self, target, memory, source_mask=None):
        real = torch.ones_like(memory[..., 0]) if source_mask is None else source_mask[:, 0].expand_as(memory[..., 0]).to(memory)
        start = (memory.sum(-1) * real).sum(-1, keepdim=True).long()  # (B, 1)
        state = (start + (3 * target + 1).cumsum(1) + target) % len(self.table)  # (B, T): of what stands up to t, nothing after
        return self.table[state]

    def forward(self, source, target, source_mask=None):
        return self.decode(target, self.encode(source, source_mask), source_mask)


def greedy(target, inputs):
    """What greedy decoding writes, with a scripted model, and how often it read the source."""
    tokens, seen = _decoded(target, inputs)
    return seen | {"tokens": tokens} if isinstance(tokens, torch.Tensor) else {RETURNED: tokens}


def beam(target, inputs):
    """What a beam search writes, with a scripted model, and with which score; a list of tokens and a plain number will do."""
    result, seen = _decoded(target, inputs)
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        return {RETURNED: result}
    tokens, score = result
    if isinstance(tokens, list) and all(isinstance(token, int) for token in tokens):
        tokens = torch.tensor(tokens)
    if isinstance(score, (int, float)) or (isinstance(score, torch.Tensor) and score.numel() == 1):
        score = torch.tensor(float(score), dtype=torch.float32)  # the precision in which it was added up is left open
    return seen | {"tokens": tokens, "score": score}


def _decoded(target, inputs):
    scripted = Scripted(inputs["model"]).eval()
    given = copy.deepcopy({name: value for name, value in inputs.items() if name != "model"})
    result = target(scripted, *positional(given))
    changed = [name for name, value in given.items() if not torch.equal(torch.as_tensor(value), torch.as_tensor(inputs[name]))]
    return result, {CHANGED: changed, "number of times that the source was encoded": scripted.reads}
