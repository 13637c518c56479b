"""Right answers for module 02 in other styles. Shapes as in solutions/multi_head.py."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from autograder.alternatives import Styles

styles = Styles()


# split_heads


@styles("split_heads", "unflatten and movedim")
def split_by_unflatten(x, n_heads):
    return x.unflatten(-1, (n_heads, -1)).movedim(-2, -3)


@styles("split_heads", "chunks, stacked")
def split_by_chunks(x, n_heads):
    return torch.stack(x.chunk(n_heads, dim=-1), dim=1)


@styles("split_heads", "slices into an own buffer")
def split_by_slices(tokens, heads):
    batch, length, width = tokens.size()
    d_k = width // heads
    out = tokens.new_empty(batch, heads, length, d_k)
    for h in range(heads):
        out[:, h] = tokens[..., h * d_k : (h + 1) * d_k]
    return out


@styles("split_heads", "reshape, permute, contiguous")
def split_by_permute(x, n_heads):
    return x.reshape(*x.shape[:-1], n_heads, x.shape[-1] // n_heads).permute(0, 2, 1, 3).contiguous()


@styles("split_heads", "einsum over a matrix that selects")
def split_by_selection(x, n_heads):
    D = x.shape[-1]
    select = torch.eye(D, dtype=x.dtype, device=x.device).view(D, n_heads, D // n_heads)  # (D, H, K)
    return torch.einsum("btd,dhk->bhtk", x, select)


# merge_heads


@styles("merge_heads", "movedim and flatten")
def merge_by_flatten(x):
    return x.movedim(1, 2).flatten(2)


@styles("merge_heads", "heads concatenated")
def merge_by_cat(x):
    return torch.cat(x.unbind(1), dim=-1)


@styles("merge_heads", "contiguous, then view")
def merge_by_view(heads):
    return heads.permute(0, 2, 1, 3).contiguous().view(heads.size(0), heads.size(2), -1)


@styles("merge_heads", "one head at a time into an own buffer")
def merge_by_loop(x):
    (B, H, T, K) = x.shape
    out = x.new_zeros(B, T, H * K)
    for h in range(H):
        out[..., h * K : (h + 1) * K] += x[:, h]
    return out


# MultiHeadAttention


class Layers(nn.Module):
    """The four layers by their names, and nothing else."""

    def __init__(self, d_model, n_heads, bias=True, dropout=0.0):
        super().__init__()
        if d_model % n_heads != 0:
            raise ValueError("sizes")
        self.h, self.d_k, self.p = n_heads, d_model // n_heads, dropout
        self.W_Q, self.W_K, self.W_V, self.W_O = (nn.Linear(d_model, d_model, bias) for _ in range(4))


@styles("MultiHeadAttention", "einsum with the heads in the weights, finfo.min, zeros by torch.where, F.dropout")
class MultiHeadByEinsum(Layers):
    def forward(self, x, context=None, mask=None):
        context = x if context is None else context
        q, k, v = (self._heads(layer, of) for layer, of in ((self.W_Q, x), (self.W_K, context), (self.W_V, context)))
        scores = torch.einsum("bthk,bshk->bhts", q, k) * self.d_k**-0.5
        if mask is not None:
            mask = mask.expand(len(x), x.shape[1], context.shape[1]).unsqueeze(1)
            scores = torch.where(mask, scores, torch.finfo(scores.dtype).min)
        e = (scores - scores.amax(-1, keepdim=True)).exp()
        weights = e / e.sum(-1, keepdim=True)
        if mask is not None:
            weights = torch.where(mask.any(-1, keepdim=True), weights, torch.zeros_like(weights))
        weights = F.dropout(weights, self.p, training=self.training)
        out = torch.einsum("bhts,bshk->bthk", weights, v)
        W_O = self.W_O.weight.view(-1, self.h, self.d_k)  # (D, H, K)
        out = torch.einsum("bthk,dhk->btd", out, W_O)
        return (out if self.W_O.bias is None else out + self.W_O.bias), weights

    def _heads(self, layer, x):
        W = layer.weight.view(self.h, self.d_k, -1)  # (H, K, D)
        heads = torch.einsum("bsd,hkd->bshk", x, W)
        return heads if layer.bias is None else heads + layer.bias.view(self.h, self.d_k)


@styles("MultiHeadAttention", "one head at a time, outputs added up through slices of W_O")
class MultiHeadByHead(Layers):
    def forward(self, x, context=None, mask=None):
        if context is None:
            context = x
        all_weights, output = [], 0.0
        for h in range(self.h):
            rows = slice(h * self.d_k, (h + 1) * self.d_k)
            q, k, v = (self._part(layer, rows, of) for layer, of in ((self.W_Q, x), (self.W_K, context), (self.W_V, context)))
            weights = self._weights(q @ k.mT / math.sqrt(self.d_k), mask)
            all_weights.append(weights)
            output = output + weights @ v @ self.W_O.weight[:, rows].mT
        if self.W_O.bias is not None:
            output = output + self.W_O.bias
        return output, torch.stack(all_weights, 1)

    def _part(self, layer, rows, x):
        return F.linear(x, layer.weight[rows], None if layer.bias is None else layer.bias[rows])

    def _weights(self, scores, mask):
        if mask is not None:
            scores = scores.masked_fill(mask.logical_not(), -math.inf)
        largest = scores.amax(-1, keepdim=True).detach().clamp(min=torch.finfo(scores.dtype).min)
        e = (scores - largest).exp()
        total = e.sum(-1, keepdim=True)
        weights = e / torch.where(total == 0, torch.ones_like(total), total)
        if self.training and self.p:
            weights = weights * torch.bernoulli(torch.full_like(weights, 1 - self.p)) / (1 - self.p)
        return weights


@styles("MultiHeadAttention", "heads folded into the batch, bmm, nn.Dropout, extra arguments")
class MultiHeadByBatch(Layers):
    def __init__(self, d_model, n_heads, bias=True, dropout=0.0, causal=False):
        super().__init__(d_model, n_heads, bias, dropout)
        self.drop, self.causal = nn.Dropout(dropout), causal

    def forward(self, x, context=None, mask=None, need_weights=True):
        context = context if context is not None else x
        B, T, D = x.shape
        S = context.shape[1]
        q, k, v = (self._fold(layer(of)) for layer, of in ((self.W_Q, x), (self.W_K, context), (self.W_V, context)))  # (B·H, ·, K)
        scores = (q / math.sqrt(q.shape[-1])).bmm(k.mT)
        if mask is not None:
            allowed = mask.broadcast_to(B, T, S).repeat_interleave(self.h, 0)
            scores = scores.masked_fill(~allowed, float("-inf"))
        weights = self.drop(self._softmax(scores))
        heads = weights.bmm(v).view(B, self.h, T, self.d_k).transpose(1, 2).reshape(B, T, D)
        return self.W_O(heads), weights.view(B, self.h, T, S)

    def _fold(self, x):
        return x.view(len(x), -1, self.h, self.d_k).transpose(1, 2).flatten(0, 1)

    @staticmethod
    def _softmax(scores):
        e = (scores - scores.amax(-1, keepdim=True).nan_to_num(neginf=0.0)).exp()
        total = e.sum(-1, keepdim=True)
        return e / total.where(total > 0, 1.0)


@styles("MultiHeadAttention", "keys and values in one product, a dictionary of the results, dropout by a mask of one's own")
class MultiHeadFused(Layers):
    def forward(self, x, context=None, mask=None):
        context = x if context is None else context
        fused = F.linear(context, torch.cat([self.W_K.weight, self.W_V.weight]), self._biases())
        k, v = (part.unflatten(-1, (self.h, -1)).transpose(-3, -2) for part in fused.chunk(2, -1))
        q = self.W_Q(x).unflatten(-1, (self.h, -1)).transpose(-3, -2)
        scores = q.matmul(k.transpose(-1, -2)) * torch.rsqrt(torch.tensor(self.d_k, dtype=q.dtype))
        hidden = None if mask is None else ~(mask if mask.dim() == 2 else mask[:, None])
        if hidden is not None:
            scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        weights = torch.exp(scores - torch.logsumexp(scores, -1, keepdim=True))
        if hidden is not None:
            weights = weights.masked_fill(hidden.all(-1, keepdim=True), 0.0)
        if self.training:
            weights = weights * (torch.rand_like(weights) >= self.p) / (1 - self.p)
        return {"output": self.W_O((weights @ v).transpose(-3, -2).flatten(-2)), "weights": weights}

    def _biases(self):
        return None if self.W_K.bias is None else torch.cat([self.W_K.bias, self.W_V.bias])


# load_torch_mha


@styles("load_torch_mha", "slices and .data.copy_")
def load_by_slices(mine, theirs):
    D = theirs.embed_dim
    for i, layer in enumerate([mine.W_Q, mine.W_K, mine.W_V]):
        layer.weight.data.copy_(theirs.in_proj_weight[i * D : (i + 1) * D].data)
        if layer.bias is not None:
            layer.bias.data.copy_(theirs.in_proj_bias[i * D : (i + 1) * D].data)
    mine.W_O.load_state_dict(theirs.out_proj.state_dict())


@styles("load_torch_mha", "load_state_dict by name, returns mine")
def load_by_state(mine, theirs):
    state = {f"W_O.{name}": value for name, value in theirs.out_proj.state_dict().items()}
    for kind in ("weight", "bias"):
        fused = getattr(theirs, f"in_proj_{kind}")
        if fused is not None:
            state |= {f"W_{letter}.{kind}": part for letter, part in zip("QKV", fused.detach().split(theirs.embed_dim))}
    mine.load_state_dict(state)
    return mine


@styles("load_torch_mha", "new parameters of clones")
def load_new_parameters(mine, theirs):
    own = theirs.state_dict()
    weights = [*own["in_proj_weight"].view(3, theirs.embed_dim, -1), own["out_proj.weight"]]
    biases = [*own["in_proj_bias"].view(3, -1), own["out_proj.bias"]] if "in_proj_bias" in own else [None] * 4
    for name, weight, bias in zip(("W_Q", "W_K", "W_V", "W_O"), weights, biases, strict=True):
        layer = getattr(mine, name)
        layer.weight = nn.Parameter(weight.clone())
        layer.bias = bias if bias is None else nn.Parameter(bias.clone())


# repeat_kv


@styles("repeat_kv", "a new axis, expanded, joined")
def repeat_by_expand(x, n_repeats):
    B, G, S, K = x.shape
    return x[:, :, None].expand(B, G, n_repeats, S, K).reshape(B, G * n_repeats, S, K)


@styles("repeat_kv", "indexed by the group of each query head")
def repeat_by_index(kv, times):
    group = torch.arange(kv.shape[1] * times, device=kv.device) // times
    return kv[:, group]


@styles("repeat_kv", "one head at a time, stacked")
def repeat_by_list(x, n_repeats):
    return torch.stack([head for head in x.unbind(1) for _ in range(n_repeats)], dim=1)


@styles("repeat_kv", "a product with a matrix of groups")
def repeat_by_product(x, n_repeats):
    groups = torch.kron(torch.eye(x.shape[1], dtype=x.dtype), torch.ones(n_repeats, 1, dtype=x.dtype))  # (G·n, G)
    return torch.einsum("hg,bgsk->bhsk", groups, x)


# GroupedQueryAttention


class GroupedLayers(nn.Module):
    """The four layers by their names, and nothing else."""

    def __init__(self, d_model, n_heads, n_kv_heads):
        super().__init__()
        self.d_k, remainder = divmod(d_model, n_heads)
        self.n, other = divmod(n_heads, n_kv_heads)
        if remainder or other:
            raise ValueError(f"{d_model} {n_heads} {n_kv_heads}")
        self.h, self.g = n_heads, n_kv_heads
        self.W_Q, self.W_O = nn.Linear(d_model, d_model, bias=False), nn.Linear(d_model, d_model, bias=False)
        self.W_K, self.W_V = (nn.Linear(d_model, n_kv_heads * self.d_k, bias=False) for _ in range(2))

    @staticmethod
    def weights_of(scores, mask):
        """Safe weights; the mask has every axis of the scores."""
        if mask is not None:
            scores = scores.masked_fill(~mask, -math.inf)
        e = (scores - scores.amax(-1, keepdim=True).nan_to_num(neginf=0.0)).exp()
        total = e.sum(-1, keepdim=True)
        return e / total.where(total > 0, 1.0)


@styles("GroupedQueryAttention", "nothing repeated: queries in groups, einsum")
class GroupedByEinsum(GroupedLayers):
    def forward(self, x, mask=None):
        B, T, D = x.shape
        q = self.W_Q(x).view(B, T, self.g, self.n, self.d_k)
        k, v = (layer(x).view(B, T, self.g, self.d_k) for layer in (self.W_K, self.W_V))
        scores = torch.einsum("btgnk,bsgk->bgnts", q, k) / self.d_k**0.5
        weights = self.weights_of(scores, None if mask is None else mask.expand(B, T, T)[:, None, None])
        output = torch.einsum("bgnts,bsgk->btgnk", weights, v).reshape(B, T, D)
        return self.W_O(output), weights.flatten(1, 2)


@styles("GroupedQueryAttention", "one query head at a time")
class GroupedByHead(GroupedLayers):
    def forward(self, x, mask=None):
        q, k, v = self.W_Q(x).split(self.d_k, -1), self.W_K(x).split(self.d_k, -1), self.W_V(x).split(self.d_k, -1)
        weights = [self.weights_of(q[h] @ k[h // self.n].mT * self.d_k**-0.5, mask) for h in range(self.h)]
        return self.W_O(torch.cat([weights[h] @ v[h // self.n] for h in range(self.h)], -1)), torch.stack(weights, 1)


@styles("GroupedQueryAttention", "broadcast over an axis of the group")
class GroupedByBroadcast(GroupedLayers):
    def forward(self, x, mask=None, context=None):
        context = x if context is None else context
        q = self.W_Q(x).unflatten(-1, (self.g, self.n, self.d_k)).permute(0, 2, 3, 1, 4)  # (B, G, n, T, K)
        k, v = (layer(context).unflatten(-1, (self.g, 1, self.d_k)).permute(0, 2, 3, 1, 4) for layer in (self.W_K, self.W_V))
        scores = q @ k.mT / math.sqrt(self.d_k)
        weights = self.weights_of(scores, mask if mask is None else mask.unsqueeze(-3).unsqueeze(-3))
        output = (weights @ v).permute(0, 3, 1, 2, 4).flatten(2)
        return self.W_O(output), weights.flatten(1, 2)


ALTERNATIVES = styles.found
