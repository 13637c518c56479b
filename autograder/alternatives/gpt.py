"""Right answers for module 05 in other styles. Shapes as in solutions/gpt.py."""

import collections
import functools
import itertools
import math
import re

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from autograder.alternatives import Styles
from solutions.attention import causal_mask
from solutions.block import LayerNorm, TransformerBlock, gelu, scaled_init

styles = Styles()


# shift_labels


@styles("shift_labels", "narrow, a list")
def labels_by_narrow(tokens):
    T = tokens.shape[1] - 1
    return [tokens.narrow(1, 0, T), tokens.narrow(1, 1, T)]


@styles("shift_labels", "unbound and stacked, a dict")
def labels_by_stack(tokens):
    columns = tokens.unbind(1)
    return {"inputs": torch.stack(columns[:-1], 1), "labels": torch.stack(columns[1:], 1)}


@styles("shift_labels", "rolled, the last column cut off; other parameter names")
def labels_by_roll(batch, ahead=1):
    return batch[..., :-ahead].contiguous(), batch.roll(-ahead, -1)[..., :-ahead]


@styles("shift_labels", "a window of two, unfolded")
def labels_by_unfold(tokens):
    windows = tokens.unfold(1, 2, 1)  # (B, T, 2)
    return windows.unbind(-1)


# cross_entropy


@styles("cross_entropy", "logsumexp, flattened, indexed by arange")
def entropy_by_logsumexp(logits, labels):
    logits, labels = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
    return (logits.logsumexp(-1) - logits[torch.arange(len(labels)), labels]).mean()


@styles("cross_entropy", "one-hot labels and einsum")
def entropy_by_one_hot(predicted, target):
    shifted = predicted - predicted.amax(-1, keepdim=True).detach()
    chosen = torch.einsum("...v,...v->...", shifted, F.one_hot(target, predicted.shape[-1]).to(predicted.dtype))
    return torch.mean(torch.log(torch.exp(shifted).sum(-1)) - chosen)


@styles("cross_entropy", "margins: the logarithm of the sum of exp(logit - the label's), by logaddexp")
def entropy_by_margins(logits, labels):
    margins = logits - torch.take_along_dim(logits, labels[..., None], -1)
    return functools.reduce(torch.logaddexp, margins.unbind(-1)).sum() / labels.numel()


@styles("cross_entropy", "one position at a time")
def entropy_by_loops(logits, labels):
    total = 0.0
    for row, label in zip(logits.reshape(-1, logits.shape[-1]), labels.flatten().tolist()):
        total = total + row.max() + (row - row.max()).exp().sum().log() - row[label]
    return total / labels.numel()


# GPT


@styles("GPT", "a Linear that shares the embedding's weight, F.gelu")
class GPTWithHead(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.token_embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.position_embedding = nn.Embedding(config.context, config.d_model)
        self.drop = nn.Dropout(config.dropout)
        bend = nn.GELU(approximate=config.gelu)
        self.blocks = nn.ModuleList([])
        for _ in range(config.n_layers):
            self.blocks.append(TransformerBlock(config.d_model, config.n_heads, 4 * config.d_model, "pre", config.dropout, bend))
        self.final_norm = nn.LayerNorm(config.d_model)
        self.head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.head.weight = self.token_embedding.weight
        self.apply(self._initialise)
        for name, parameter in self.named_parameters():
            if name.endswith(("W_O.weight", "W_2.weight")):
                nn.init.normal_(parameter, 0.0, 0.02 / math.sqrt(2 * config.n_layers))

    def _initialise(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, idx):
        T = idx.size(1)
        if not 0 < T < self.config.context + 1:
            raise ValueError("too long")
        x = self.drop(self.token_embedding(idx) + self.position_embedding(torch.arange(T, device=idx.device)).unsqueeze(0))
        for block in self.blocks:
            x = block(x, mask=causal_mask(T))
        return self.head(self.final_norm(x))


@styles("GPT", "a mask in a buffer, positions by slicing, F.linear, functools.reduce")
class GPTWithBuffer(nn.Module):
    def __init__(self, config):
        super().__init__()
        c = self.settings = config
        self.token_embedding, self.position_embedding = nn.Embedding(c.vocab_size, c.d_model), nn.Embedding(c.context, c.d_model)
        activation = lambda x: gelu(x, c.gelu)  # noqa: E731
        layers = [TransformerBlock(c.d_model, c.n_heads, dropout=c.dropout, activation=activation) for _ in range(c.n_layers)]
        self.blocks, self.final_norm = nn.Sequential(*layers), LayerNorm(c.d_model)
        self.register_buffer("mask", torch.ones(c.context, c.context, dtype=torch.bool).tril(), persistent=False)
        scaled_init(self, c.n_layers)

    def forward(self, tokens):
        T = tokens.shape[-1]
        if len(self.mask) < T:
            raise ValueError(f"at most {len(self.mask)} tokens")
        start = F.dropout(
            F.embedding(tokens, self.token_embedding.weight) + self.position_embedding.weight[:T], self.settings.dropout, self.training
        )
        end = functools.reduce(lambda x, block: block(x, self.mask[:T, :T]), self.blocks, start)
        return F.linear(self.final_norm(end), self.token_embedding.weight)


class Positions(nn.Module):
    def __init__(self, length, d_model):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(length, d_model))

    def forward(self, x):
        if x.shape[1] > len(self.weight):
            raise ValueError("the sequence is too long")
        return x + self.weight[: x.shape[1]]


class Blocks(nn.ModuleList):
    def forward(self, x, mask):
        for layer in self:
            x = layer(x, mask)
        return x


@styles("GPT", "positions and blocks as modules of their own, einsum for the output")
class GPTOfModules(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.token_embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.position_embedding = Positions(config.context, config.d_model)
        self.blocks = Blocks(
            TransformerBlock(
                config.d_model, config.n_heads, dropout=config.dropout, activation=functools.partial(F.gelu, approximate=config.gelu)
            )
            for _ in range(config.n_layers)
        )
        self.final_norm = nn.LayerNorm(config.d_model, eps=1e-5)
        self.embedding_dropout = nn.Dropout(config.dropout)
        scaled_init(self, config.n_layers)

    def forward(self, tokens):
        x = self.embedding_dropout(self.position_embedding(self.token_embedding(tokens)))
        x = self.final_norm(self.blocks(x, causal_mask(tokens.shape[1])))
        return torch.einsum("btd,vd->btv", x, self.token_embedding.weight)


# lr_schedule


@styles("lr_schedule", "the half-angle: cos² of a quarter turn; other parameter names")
def schedule_by_half_angle(it, max_lr, warmup_iters, max_iters, min_lr=0.0):
    if it < warmup_iters:
        return max_lr / warmup_iters * (1 + it)
    if it >= max_iters:
        return min_lr
    return min_lr + (max_lr - min_lr) * math.cos(math.pi / 2 * (it - warmup_iters) / (max_iters - warmup_iters)) ** 2


@styles("lr_schedule", "numpy: interpolation and clipping")
def schedule_by_numpy(step, peak, warmup, total, floor=0.0):
    if step < warmup:
        return np.interp(step + 1, [0, warmup], [0.0, peak])
    progress = np.clip((step - warmup) / (total - warmup), 0, 1)
    return np.float64(floor + 0.5 * (peak - floor) * (1 + np.cos(np.pi * progress)))


@styles("lr_schedule", "a tensor")
def schedule_by_torch(step, peak, warmup, total, floor=0.0):
    angle = torch.tensor(math.pi * (min(step, total) - warmup) / (total - warmup), dtype=torch.float64)
    return (
        torch.tensor(peak * (step + 1) / warmup, dtype=torch.float64) if step < warmup else floor + (peak - floor) / 2 * (1 + angle.cos())
    )


# train_step


@styles("train_step", "F.cross_entropy on flattened logits, gradients set to None first")
def step_by_functional(model, optimizer, tokens, lr, max_norm=1.0):
    model.zero_grad(set_to_none=True)
    for group in optimizer.param_groups:
        group.update(lr=lr)
    logits = model.train()(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(list(model.parameters()), max_norm, foreach=False)
    optimizer.step()
    return float(loss)


@styles("train_step", "torch.autograd.grad, clipped by hand")
def step_by_autograd(model, optimizer, tokens, lr, max_norm=1.0):
    model.train()
    loss = entropy_by_logsumexp(model(tokens[:, :-1]), tokens[:, 1:])
    parameters = list(model.parameters())
    gradients = torch.autograd.grad(loss, parameters)
    norm = torch.sqrt(sum(gradient.square().sum() for gradient in gradients))
    for parameter, gradient in zip(parameters, gradients):
        parameter.grad = gradient * min(1.0, max_norm / (float(norm) + 1e-6))
    for index in range(len(optimizer.param_groups)):
        optimizer.param_groups[index]["lr"] = lr
    optimizer.step()
    return loss.detach().item()


@styles("train_step", "zeros in place of None, gradients also cleared at the end")
def step_with_zeros(model, optimizer, batch, lr, max_norm=1.0):
    optimizer.zero_grad(set_to_none=False)
    model.train(True)
    loss = entropy_by_one_hot(model(batch[:, :-1].contiguous()), batch[:, 1:].contiguous())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm=max_norm)
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


# filter_logits


@styles("filter_logits", "a mask of what is kept, put back by argsort of argsort")
def filtered_by_ranks(logits, temperature=1.0, top_k=None, top_p=None):
    logits = logits / temperature
    order = torch.argsort(logits, dim=-1, descending=True, stable=True)
    ranks = order.argsort(-1)
    if top_k is not None:
        logits = torch.where(ranks < top_k, logits, -torch.inf)
    if top_p is not None:
        chances = logits.softmax(-1).gather(-1, order)
        kept = F.pad(chances.cumsum(-1)[..., :-1], (1, 0)) < top_p
        logits = logits.masked_fill(~kept.gather(-1, ranks), -torch.inf)
    return logits


@styles("filter_logits", "one row at a time, with Python's sorted")
def filtered_by_loops(logits, temperature=1.0, top_k=None, top_p=None):
    rows = (logits / temperature).reshape(-1, logits.shape[-1]).clone()
    for row in rows:
        order = sorted(range(len(row)), key=lambda i: (-row[i].item(), i))
        kept = order[: top_k or len(order)]
        if top_p is not None:
            chances = row[kept].softmax(0).tolist()
            sums = [0.0, *itertools.accumulate(chances)]
            kept = [i for i, before in zip(kept, sums) if before < top_p]
        row[[i for i in range(len(row)) if i not in kept]] = -math.inf
    return rows.view_as(logits)


@styles("filter_logits", "pairwise comparison: how much is ranked higher")
def filtered_by_comparison(logits, temperature=1.0, top_k=None, top_p=None):
    scaled = logits * (1 / temperature)
    index = torch.arange(scaled.shape[-1])
    above = (scaled[..., None, :] > scaled[..., :, None]) | ((scaled[..., None, :] == scaled[..., :, None]) & (index < index[:, None]))
    if top_k is not None:
        scaled = scaled.masked_fill(above.sum(-1) >= top_k, float("-inf"))
    if top_p is not None:
        before = (above * scaled.softmax(-1)[..., None, :]).sum(-1)
        scaled = scaled.masked_fill(before >= top_p, float("-inf"))
    return scaled


# sample


def next_tokens(logits, *settings):
    return torch.distributions.Categorical(logits=filtered_by_ranks(logits, *settings)).sample()[:, None]


@styles("sample", "Categorical, inference_mode, a try and a finally")
def sample_with_finally(model, tokens, n_new, temperature=1.0, top_k=None, top_p=None):
    was_training = model.training
    try:
        model.eval()
        with torch.inference_mode():
            for _ in range(n_new):
                seen = tokens if tokens.shape[1] <= model.config.context else tokens[:, -model.config.context :]
                tokens = torch.cat((tokens, next_tokens(model(seen)[:, -1, :], temperature, top_k, top_p)), 1)
        return tokens.clone()
    finally:
        model.train(was_training)


@styles("sample", "into an own buffer, by the Gumbel-max trick")
def sample_by_gumbel(model, prompt, n_new, temperature=1.0, top_k=None, top_p=None):
    mode, T = model.training, prompt.shape[1]
    model.train(False)
    text = torch.cat([prompt, prompt.new_zeros(len(prompt), n_new)], 1)
    with torch.no_grad():
        for t in range(T, T + n_new):
            logits = filtered_by_comparison(model(text[:, max(0, t - model.config.context) : t])[:, -1], temperature, top_k, top_p)
            text[:, t] = (logits - torch.log(-torch.log(torch.rand_like(logits)))).argmax(-1)
    model.train(mode)
    return text


@styles("sample", "by recursion, by the inverse of the cumulated probabilities")
def sample_by_recursion(model, tokens, n_new, temperature=1.0, top_k=None, top_p=None):
    if n_new == 0:
        return tokens
    mode = model.training
    with torch.no_grad():
        logits = model.eval()(tokens[:, -model.config.context :]).select(1, -1)
    model.train(mode)
    sums = filtered_by_ranks(logits, temperature, top_k, top_p).softmax(-1).cumsum(-1)
    drawn = torch.searchsorted(sums, torch.rand(len(sums), 1, dtype=sums.dtype) * sums[:, -1:], right=True)
    return sample_by_recursion(model, torch.cat([tokens, drawn], 1), n_new - 1, temperature, top_k, top_p)


# KVCache


@styles("KVCache", "lists of pieces")
class CacheOfPieces:
    def __init__(self):
        self.pieces = []

    @property
    def length(self):
        return sum(k.shape[2] for k, _ in self.pieces)

    def append(self, k, v):
        self.pieces.append((k, v))
        return tuple(torch.cat(each, 2) for each in zip(*self.pieces))


@styles("KVCache", "a buffer that doubles")
class CacheThatDoubles:
    def __init__(self, room=4):
        self.length, self.room, self.buffer = 0, room, None

    def append(self, k, v):
        end = self.length + k.shape[2]
        if self.buffer is None or end > self.buffer.shape[3]:
            self.room = max(self.room, 2 * end)
            larger = k.new_empty(2, *k.shape[:2], self.room, k.shape[3])
            if self.buffer is not None:
                larger[:, :, :, : self.length] = self.buffer[:, :, :, : self.length]
            self.buffer = larger
        self.buffer[:, :, :, self.length : end] = torch.stack([k, v])
        self.length = end
        keys, values = self.buffer[:, :, :, :end]
        return keys, values


@styles("KVCache", "starts from an empty tensor, a list of two")
class CacheFromEmpty:
    def __init__(self):
        self.both, self.length = None, 0

    def append(self, keys, values):
        new = torch.stack([keys, values])
        self.both = new if self.both is None else torch.concatenate([self.both, new], dim=-2)
        self.length += keys.size(-2)
        return [self.both[0], self.both[1]]


# cached_attention


@styles("cached_attention", "einsum, a comparison of positions for the mask")
def cached_by_einsum(attention, x, cache, n_heads):
    B, T, D = x.shape
    start = cache.length
    q, k, v = (layer(x).view(B, T, n_heads, -1).transpose(1, 2) for layer in (attention.W_Q, attention.W_K, attention.W_V))
    k, v = cache.append(k, v)
    scores = torch.einsum("bhtk,bhsk->bhts", q, k) / math.sqrt(D // n_heads)
    visible = torch.arange(k.shape[2]) <= torch.arange(start, start + T)[:, None]
    weights = scores.masked_fill(~visible, -math.inf).softmax(-1)
    return attention.W_O(torch.einsum("bhts,bhsk->bthk", weights, v).reshape(B, T, D))


@styles("cached_attention", "one new token at a time, without a mask")
def cached_by_tokens(attention, x, cache, n_heads):
    outputs = []
    for token in x.split(1, dim=1):
        q, k, v = (layer(token).unflatten(-1, (n_heads, -1)).movedim(1, 2) for layer in (attention.W_Q, attention.W_K, attention.W_V))
        k, v = cache.append(k, v)
        weights = torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1)
        outputs.append(attention.W_O((weights @ v).movedim(1, 2).flatten(2)))
    return torch.cat(outputs, 1)


@styles("cached_attention", "one head at a time, no mask for a single token")
def cached_by_heads(attn, new, kv, heads):
    T = new.shape[1]
    keys, values = kv.append(torch.stack(attn.W_K(new).chunk(heads, -1), 1), torch.stack(attn.W_V(new).chunk(heads, -1), 1))
    mask = None if T == 1 else ~torch.triu(torch.ones(T, keys.shape[2], dtype=torch.bool), keys.shape[2] - T + 1)
    found = []
    for head, q in enumerate(attn.W_Q(new).chunk(heads, -1)):
        scores = (q / q.shape[-1] ** 0.5) @ keys[:, head].transpose(1, 2)
        scores = scores if mask is None else torch.where(mask, scores, -torch.inf)
        found.append(scores.softmax(2) @ values[:, head])
    return attn.W_O(torch.cat(found, -1))


# decode_step


@styles("decode_step", "positions by slicing the table, F.linear")
def decode_by_slices(model, tokens, caches):
    start = caches[0].length
    end = start + tokens.shape[1]
    if end > model.config.context:
        raise ValueError("the context is full")
    x = model.token_embedding(tokens) + model.position_embedding.weight[start:end]
    for i, block in enumerate(model.blocks):
        x = x + cached_by_einsum(block.attention, block.norm_1(x), caches[i], model.config.n_heads)
        x = x + block.feed_forward(block.norm_2(x))
    return F.linear(model.final_norm(x), model.token_embedding.weight)


@styles("decode_step", "one token at a time")
def decode_by_tokens(model, tokens, caches):
    if caches[-1].length + tokens.size(1) > model.config.context:
        raise ValueError("too long")
    found = []
    for token in tokens.T:
        x = model.token_embedding(token) + model.position_embedding(torch.tensor(caches[0].length))
        x = x[:, None]
        for block, cache in zip(model.blocks, caches, strict=True):
            x += cached_by_tokens(block.attention, block.norm_1(x), cache, model.config.n_heads)
            x += block.feed_forward(block.norm_2(x))
        found.append(model.final_norm(x) @ model.token_embedding.weight.mT)
    return torch.cat(found, dim=1)


@styles("decode_step", "in place of the stream, positions by cumsum, einsum")
def decode_by_einsum(gpt, new, kv):
    offset = kv[0].length
    positions = torch.ones_like(new).cumsum(1) + (offset - 1)
    if int(positions.max()) >= gpt.config.context:
        raise ValueError(f"position {int(positions.max())} is beyond the context")
    stream = gpt.token_embedding(new).add(gpt.position_embedding(positions))
    for layer, memory in zip(gpt.blocks, kv):
        stream = stream.add(cached_by_heads(layer.attention, layer.norm_1(stream), memory, gpt.config.n_heads))
        stream = stream.add(layer.feed_forward(layer.norm_2(stream)))
    return torch.einsum("btd,vd->btv", gpt.final_norm(stream), gpt.token_embedding.weight)


# sample_cached


@styles("sample_cached", "the prompt before the loop, Categorical")
def cached_prompt_first(model, tokens, n_new, temperature=1.0, top_k=None, top_p=None):
    if tokens.shape[1] + n_new > model.config.context:
        raise ValueError("too long")
    mode = model.training
    model.eval()
    with torch.no_grad():
        caches = [CacheOfPieces() for _ in model.blocks]
        logits = decode_by_slices(model, tokens, caches)
        for i in range(n_new):
            tokens = torch.hstack([tokens, next_tokens(logits[:, -1], temperature, top_k, top_p)])
            if i + 1 < n_new:
                logits = decode_by_slices(model, tokens[:, -1:], caches)
    model.train(mode)
    return tokens


@styles("sample_cached", "what the caches have not seen; the last token too goes through the model; inference_mode")
def cached_by_length(model, tokens, n_new, temperature=1.0, top_k=None, top_p=None):
    if model.config.context < tokens.shape[1] + n_new:
        raise ValueError("too long")
    was = model.training
    caches = [CacheThatDoubles() for _ in range(len(model.blocks))]
    with torch.inference_mode():
        model.eval()
        for _ in range(n_new):
            logits = decode_by_einsum(model, tokens[:, caches[0].length :], caches)[:, -1]
            tokens = torch.cat([tokens, next_tokens(logits, temperature, top_k, top_p)], -1)
        if n_new:
            decode_by_einsum(model, tokens[:, -1:], caches)
    model.train(was)
    return tokens.clone()


@styles("sample_cached", "token by token, the prompt too, into an own buffer")
def cached_token_by_token(model, prompt, n_new, temperature=1.0, top_k=None, top_p=None):
    T = prompt.shape[1]
    if T + n_new > model.config.context:
        raise ValueError(f"{T + n_new} is too long")
    mode, text = model.training, F.pad(prompt, (0, n_new))
    model.train(False)
    caches = [CacheFromEmpty() for _ in model.blocks]
    with torch.no_grad():
        for t in range(T + n_new - 1):
            logits = decode_by_tokens(model, text[:, t : t + 1], caches)[:, 0]
            if t + 1 >= T:
                chances = filtered_by_comparison(logits, temperature, top_k, top_p).softmax(-1)
                text[:, t + 1] = torch.multinomial(chances, 1).squeeze(1)
    model.train(mode)
    return text


# merge_pair


@styles("merge_pair", "an index that jumps")
def merged_by_index(ids, pair, new):
    merged, i = [], 0
    while i < len(ids):
        if i + 1 < len(ids) and ids[i] == pair[0] and ids[i + 1] == pair[1]:
            merged.append(new)
            i += 2
        else:
            merged.append(ids[i])
            i += 1
    return merged


@styles("merge_pair", "a regular expression over characters")
def merged_by_expression(tokens, pair, new):
    text = "".join(map(chr, tokens))
    return [ord(c) for c in re.sub(re.escape(chr(pair[0]) + chr(pair[1])), lambda _: chr(new), text)]


@styles("merge_pair", "an iterator and a token held back")
def merged_by_iterator(tokens, pair, new):
    first, second = pair
    merged, held = [], None
    for token in iter(tokens):
        if held == first and token == second:
            merged, held = [*merged, new], None
        else:
            merged, held = merged + ([] if held is None else [held]), token
    return merged + ([] if held is None else [held])


# train_bpe


@styles("train_bpe", "a dict counted by hand, a for loop; pairs as lists")
def bpe_by_dict(text, n_merges):
    ids, merges = [*text.encode()], []
    for number in range(n_merges):
        counts = {}
        for i in range(1, len(ids)):
            pair = ids[i - 1], ids[i]
            counts[pair] = counts.get(pair, 0) + 1
        if not counts or max(counts.values()) == 1:
            return merges
        best = next(pair for pair in counts if counts[pair] == max(counts.values()))
        ids = merged_by_index(ids, best, 256 + number)
        merges.append(list(best))
    return merges


@styles("train_bpe", "most_common")
def bpe_by_most_common(text, n_merges, first_new=256):
    tokens, merges = list(bytes(text, "utf-8")), []
    while len(merges) < n_merges:
        common = collections.Counter(itertools.pairwise(tokens)).most_common(1)
        if not common or common[0][1] < 2:
            break
        merges.append(common[0][0])
        tokens = merged_by_iterator(tokens, merges[-1], first_new + len(merges) - 1)
    return merges


@styles("train_bpe", "numpy: unique codes of pairs, their first places")
def bpe_by_numpy(text, n_merges):
    tokens, merges = np.frombuffer(text.encode(), np.uint8).astype(np.int64), []
    for new in range(256, 256 + n_merges):
        codes, places, counts = np.unique(tokens[:-1] * 10**6 + tokens[1:], return_index=True, return_counts=True)
        if not len(counts) or counts.max() < 2:
            break
        best = codes[counts == counts.max()][places[counts == counts.max()].argmin()]
        merges.append((best // 10**6, best % 10**6))
        tokens = np.array(merged_by_index(tokens.tolist(), merges[-1], new))
    return merges


# encode


@styles("encode", "the lowest rank that is there, again and again")
def encoded_by_rank(text, merges):
    rank = {tuple(pair): i for i, pair in enumerate(merges)}
    tokens = list(text.encode())
    while len(tokens) > 1:
        best = min(itertools.pairwise(tokens), key=lambda pair: rank.get(pair, math.inf))
        if best not in rank:
            break
        tokens = merged_by_index(tokens, best, 256 + rank[best])
    return tokens


@styles("encode", "functools.reduce")
def encoded_by_reduce(text, merges):
    start = list(text.encode("utf-8"))
    return functools.reduce(lambda tokens, numbered: merged_by_iterator(tokens, numbered[1], numbered[0]), enumerate(merges, 256), start)


@styles("encode", "replace on a string of private characters")
def encoded_by_replace(text, merges):
    line = "".join(map(chr, bytearray(text, "utf-8")))
    for new, (a, b) in enumerate(merges, start=256):
        line = line.replace(chr(a) + chr(b), chr(new))
    return list(map(ord, line))


# decode


@styles("decode", "a recursive function for the bytes of a token")
def decoded_by_recursion(tokens, merges):
    def spelled(token):
        return bytes([token]) if token < 256 else spelled(merges[token - 256][0]) + spelled(merges[token - 256][1])

    return b"".join(map(spelled, tokens)).decode(errors="replace")


@styles("decode", "a dict of tokens, a bytearray")
def decoded_by_dict(ids, merges):
    vocabulary = {i: bytes((i,)) for i in range(256)}
    for i, pair in enumerate(merges, 256):
        vocabulary[i] = b"".join(vocabulary[each] for each in pair)
    out = bytearray()
    for token in ids:
        out += vocabulary[token]
    return str(bytes(out), "utf-8", "replace")


@styles("decode", "merges undone from the last to the first")
def decoded_by_undoing(tokens, merges):
    tokens = list(tokens)
    for new in range(255 + len(merges), 255, -1):
        tokens = [part for token in tokens for part in (merges[new - 256] if token == new else (token,))]
    return bytes(tokens).decode("utf-8", "replace")


ALTERNATIVES = styles.found
