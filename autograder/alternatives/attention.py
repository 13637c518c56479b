"""Right answers for module 01 in other styles. Shapes as in solutions/attention.py."""

import dataclasses
import functools
import itertools
import math
import operator
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from autograder.alternatives import Styles

styles = Styles()


# softmax


@styles("softmax", "max().values, torch.div, torch.sum")
def softmax_by_functions(x, dim=-1):
    e = torch.exp(x - torch.max(x, dim, keepdim=True).values)
    return torch.div(e, torch.sum(e, dim, keepdim=True))


@styles("softmax", "detached maximum, times the reciprocal of the sum")
def softmax_by_reciprocal(x, dim=-1):
    e = torch.exp(x - x.detach().amax(dim, keepdim=True))
    return e * e.sum(dim, keepdim=True).reciprocal()


@styles("softmax", "exponential of the logarithm of the weights")
def softmax_by_logarithm(x, dim=-1):
    shifted = x - x.amax(dim).unsqueeze(dim)
    return (shifted - shifted.exp().sum(dim).log().unsqueeze(dim)).exp()


@styles("softmax", "logaddexp folded over the slices")
def softmax_by_logaddexp(x, dim=-1):
    shifted = x - x.amax(dim, keepdim=True).detach()
    return torch.exp(shifted - functools.reduce(torch.logaddexp, shifted.unbind(dim)).unsqueeze(dim))


@styles("softmax", "axis moved to the end, einsum for the sum, other parameter names, a keyword with a default")
def softmax_by_einsum(logits, axis=-1, *, temperature=1.0):
    rows = (logits / temperature).movedim(axis, -1)
    e = (rows - rows.max(-1)[0][..., None]).exp()
    return torch.einsum("...i,...->...i", e, 1 / torch.einsum("...i->...", e)).movedim(-1, axis)


@styles("softmax", "one slice at a time, stacked")
def softmax_by_slices(x, dim=-1):
    slices = x.unbind(dim)
    largest = functools.reduce(torch.maximum, slices)
    exponentials = [(each - largest).exp() for each in slices]
    return torch.stack([each / sum(exponentials) for each in exponentials], dim)


@styles("softmax", "in place on an own buffer")
def softmax_in_place(x, dim=-1):
    own = x.clone()
    own -= own.amax(dim, keepdim=True).detach()
    own.exp_()
    return own / own.sum(dim, keepdim=True)


class SoftmaxByHand(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim):
        e = (x - x.amax(dim, keepdim=True)).exp_()
        weights = e.div_(e.sum(dim, keepdim=True))
        ctx.dim = dim
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx, gradient):
        (weights,) = ctx.saved_tensors
        return weights * (gradient - (weights * gradient).sum(ctx.dim, keepdim=True)), None


@styles("softmax", "an autograd.Function with its gradient written by hand")
def softmax_with_own_gradient(x, dim=-1):
    return SoftmaxByHand.apply(x, dim)


# attention_scores


@styles("attention_scores", "einsum")
def scores_by_einsum(q, k):
    return torch.einsum("...tk,...sk->...ts", q, k) / q.shape[-1] ** 0.5


@styles("attention_scores", "q scaled before the product, .mT")
def scores_of_scaled_queries(query, key):
    return (query * query.size(-1) ** -0.5) @ key.mT


@styles("attention_scores", "both scaled by the fourth root")
def scores_by_fourth_root(q, k):
    root = q.shape[-1] ** 0.25
    return torch.matmul(q / root, (k / root).transpose(-1, -2))


@styles("attention_scores", "broadcast product, summed; rsqrt")
def scores_by_broadcasting(q, k):
    products = q[..., :, None, :] * k[..., None, :, :]  # (..., T, S, K)
    return products.sum(-1) * torch.rsqrt(torch.tensor(q.shape[-1], dtype=q.dtype, device=q.device))


@styles("attention_scores", "one query at a time")
def scores_by_query(q, k):
    rows = [(k * q[..., t : t + 1, :]).sum(-1) for t in range(q.shape[-2])]
    return torch.stack(rows, -2) / math.sqrt(q.shape[-1])


@styles("attention_scores", "one dot product at a time, into an own buffer")
def scores_by_loops(q, k):
    batch = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2])
    scores = q.new_zeros(*batch, q.shape[-2], k.shape[-2])
    for t, s in itertools.product(range(q.shape[-2]), range(k.shape[-2])):
        scores[..., t, s] = torch.linalg.vecdot(q[..., t, :], k[..., s, :]) / math.sqrt(k.shape[-1])
    return scores


@styles("attention_scores", "torch.baddbmm with alpha, leading axes flattened")
def scores_by_baddbmm(q, k):
    (T, K), S = q.shape[-2:], k.shape[-2]
    batch = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2])
    flat_q, flat_k = q.expand(*batch, T, K).reshape(-1, T, K), k.expand(*batch, S, K).reshape(-1, S, K)
    empty = torch.empty(len(flat_q), T, S, dtype=q.dtype, device=q.device)
    return torch.baddbmm(empty, flat_q, flat_k.mT, beta=0, alpha=K**-0.5).view(*batch, T, S)


@styles("attention_scores", "k @ qᵀ turned round, divided in place")
def scores_turned_round(q, k, scale=None):
    scores = (k @ q.swapaxes(-1, -2)).swapaxes(-1, -2)
    scores /= scale or math.sqrt(q.shape[-1])
    return scores


# attention_loops


class Attended(NamedTuple):
    output: object
    weights: object


@styles("attention_loops", "plain Python numbers and lists")
def loops_of_lists(q, k, v, mask=None):
    output, weights = [], []
    for t, query in enumerate(q.tolist()):
        scores = [sum(a * b for a, b in zip(query, key, strict=True)) / len(query) ** 0.5 for key in k.tolist()]
        visible = [mask is None or bool(mask[t][s]) for s in range(len(k))]
        largest = max(itertools.compress(scores, visible), default=0.0)
        row = [math.exp(score - largest) if seen else 0.0 for score, seen in zip(scores, visible, strict=True)]
        total = sum(row) or 1.0
        weights.append([e / total for e in row])
        output.append([sum(w * x for w, x in zip(weights[-1], column, strict=True)) for column in v.T.tolist()])
    return np.array(output), np.array(weights)


@styles("attention_loops", "one query at a time, its visible keys by index")
def loops_by_visible_keys(q, k, v, mask=None):
    output, weights = np.zeros((len(q), v.shape[1])), np.zeros((len(q), len(k)))
    for t in range(len(q)):
        seen = np.arange(len(k)) if mask is None else np.flatnonzero(mask[t])
        if len(seen):
            scores = k[seen] @ q[t] * q.shape[1] ** -0.5
            e = np.exp(scores - scores.max())
            weights[t, seen] = e / e.sum()
            output[t] = weights[t, seen] @ v[seen]
    return output, weights


@styles("attention_loops", "running maximum and sum, rescaled (an online softmax); a NamedTuple")
def loops_online(q, k, v, mask=None):
    output, weights = np.zeros((len(q), v.shape[-1])), np.zeros((len(q), len(k)))
    for t in range(len(q)):
        largest, total = -np.inf, 0.0
        for s in range(len(k)):
            if mask is not None and not mask[t, s]:
                continue
            score = np.dot(q[t], k[s]) / np.sqrt(q.shape[-1])
            before, largest = largest, max(largest, score)
            shrink, weight = np.exp(before - largest), np.exp(score - largest)
            total, output[t] = total * shrink + weight, output[t] * shrink + weight * v[s]
            weights[t] *= shrink
            weights[t, s] = weight
        if total > 0:
            output[t] /= total
            weights[t] /= total
    return Attended(output, weights)


@styles("attention_loops", "whole matrices, -inf and a repaired row; a dict")
def loops_of_matrices(q, k, v, mask=None):
    mask = np.ones((len(q), len(k)), bool) if mask is None else mask
    scores = np.where(mask, np.inner(q, k) / np.sqrt(q.shape[-1]), -np.inf)
    largest = scores.max(1, keepdims=True)
    e = np.exp(scores - np.where(np.isfinite(largest), largest, 0.0))
    weights = e / np.where(mask.any(1), e.sum(1), 1.0)[:, None]
    return {"output": weights @ v, "weights": weights}


@styles("attention_loops", "einsum, finfo.min, then times the mask; a list of two")
def loops_by_einsum(queries, keys, values, mask=None):
    allowed = np.full((len(queries), len(keys)), True) if mask is None else mask
    scores = np.einsum("tk,sk->ts", queries, keys) / math.sqrt(queries.shape[1])
    scores = np.where(allowed, scores, np.finfo(scores.dtype).min)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    weights = e / e.sum(-1, keepdims=True) * allowed
    return [np.einsum("ts,sv->tv", weights, values), weights]


@styles("attention_loops", "masked arrays of numpy")
def loops_of_masked_arrays(q, k, v, mask=None):
    scores = np.ma.masked_array(q @ k.T / math.sqrt(q.shape[-1]), np.zeros((len(q), len(k)), bool) if mask is None else ~mask)
    e = np.ma.exp(scores - scores.max(1, keepdims=True))
    weights = (e / e.sum(1, keepdims=True)).filled(0.0)
    return weights @ v, weights


# causal_mask


@styles("causal_mask", "comparison of indices")
def causal_by_comparison(T, S=None):
    S = T if S is None else S
    return torch.arange(S)[None, :] <= torch.arange(S - T, S)[:, None]


@styles("causal_mask", "not triu, other parameter names, a keyword with a default")
def causal_by_triu(n_queries, n_keys=None, device=None):
    if n_keys is None:
        n_keys = n_queries
    return ~torch.triu(torch.ones(n_queries, n_keys, dtype=torch.bool, device=device), diagonal=n_keys - n_queries + 1)


@styles("causal_mask", "loops into an own buffer")
def causal_by_loops(T, S=None):
    S = T if S is None else S
    mask = torch.zeros(T, S, dtype=torch.bool)
    for t in range(T):
        mask[t, : max(0, t + S - T + 1)] = True
    return mask


@styles("causal_mask", "numpy inside")
def causal_by_numpy(T, S=None):
    S = T if S is None else S
    return torch.from_numpy(np.tri(T, S, S - T, dtype=bool))


@styles("causal_mask", "a nested list")
def causal_of_lists(T, S=None):
    S = T if S is None else S
    return torch.tensor([[s - (S - T) <= t for s in range(S)] for t in range(T)])


@styles("causal_mask", "the bottom right corner of a square one")
def causal_by_corner(T, S=None):
    S = S if S is not None else T
    n = max(T, S)
    return torch.tril(torch.ones(n, n)).bool()[n - T :, n - S :]


@styles("causal_mask", "what is to the right of the diagonal, by triu_indices, set to False; remembered by functools.cache")
@functools.cache
def causal_by_indices(T, S=None):
    S = T if S is None else S
    mask = torch.full((T, S), True)
    rows, columns = torch.triu_indices(T, S, offset=S - T + 1)
    mask[rows, columns] = False
    return mask


# padding_mask


@styles("padding_mask", "views in place of None, torch.lt")
def padding_by_views(lengths, S):
    return torch.lt(torch.arange(S).view(1, 1, S), lengths.view(-1, 1, 1))


@styles("padding_mask", "loops into an own buffer, other parameter names")
def padding_by_loops(n_tokens, width):
    mask = torch.zeros(len(n_tokens), 1, width, dtype=torch.bool)
    for row, n in zip(mask, n_tokens.tolist(), strict=True):
        row[:, :n] = True
    return mask


@styles("padding_mask", "a nested list")
def padding_of_lists(lengths, S):
    return torch.tensor([[[s < n for s in range(S)]] for n in lengths])


@styles("padding_mask", "numpy inside")
def padding_by_numpy(lengths, S):
    return torch.from_numpy(np.less.outer(np.arange(S), lengths.numpy()).T[:, np.newaxis])


@styles("padding_mask", "rows looked up in a triangle")
def padding_by_lookup(lengths, S):
    return torch.ones(S + 1, S, dtype=torch.bool).tril(-1)[lengths].unsqueeze(1)


@styles("padding_mask", "where the ends have been passed, by cumsum; negated")
def padding_by_cumsum(lengths, S):
    ends = F.one_hot(lengths, S + 1)[:, :S]
    return ~ends.cumsum(-1).bool().unsqueeze(-2)


@styles("padding_mask", "each row padded, then stacked")
def padding_by_pad(lengths, S):
    return torch.stack([F.pad(torch.ones(1, int(n), dtype=torch.bool), (0, S - int(n))) for n in lengths])


# combine_masks


@styles("combine_masks", "functools.reduce, operator.and_")
def combined_by_reduce(*masks):
    given = [mask for mask in masks if mask is not None]
    return functools.reduce(operator.and_, given) if given else None


@styles("combine_masks", "stacked after broadcast_tensors, all")
def combined_by_all(*masks):
    given = [mask for mask in masks if mask is not None]
    return torch.stack(torch.broadcast_tensors(*given)).all(0) if given else None


@styles("combine_masks", "no mask hides it (De Morgan), in place on an own buffer")
def combined_by_hiding(*masks):
    given = [mask for mask in masks if mask is not None]
    if not given:
        return None
    hidden = torch.zeros(torch.broadcast_shapes(*(mask.shape for mask in given)), dtype=torch.bool)
    for mask in given:
        hidden |= ~mask
    return ~hidden


@styles("combine_masks", "recursion, logical_and")
def combined_by_recursion(*masks):
    if not masks:
        return None
    first, rest = masks[0], combined_by_recursion(*masks[1:])
    if first is None or rest is None:
        return rest if first is None else first
    return torch.logical_and(first, rest)


@styles("combine_masks", "torch.where, starting from True")
def combined_by_where(*masks):
    combined = torch.tensor(True)
    for mask in filter(lambda mask: mask is not None, masks):
        combined = torch.where(mask, combined, False)
    return None if all(mask is None for mask in masks) else combined


@styles("combine_masks", "votes counted")
def combined_by_counting(*masks):
    given = [mask.int() for mask in masks if mask is not None]
    return sum(given) == len(given) if given else None


# masked_softmax


@styles("masked_softmax", "finfo.min, then times the mask")
def masked_by_finfo(scores, mask=None):
    if mask is None:
        return softmax_by_functions(scores)
    return softmax_by_functions(scores.masked_fill(~mask, torch.finfo(scores.dtype).min)) * mask


@styles("masked_softmax", "torch.where twice")
def masked_by_where(scores, mask=None):
    if mask is None:
        return softmax_by_reciprocal(scores)
    weights = softmax_by_reciprocal(torch.where(mask, scores, -torch.inf))
    return torch.where(mask.any(-1, keepdim=True), weights, 0.0)


@styles("masked_softmax", "assignments into an own buffer, numpy for the mask")
def masked_by_assignment(x, visible=None):
    if visible is None:
        visible = torch.ones_like(x, dtype=torch.bool)
    hidden = np.broadcast_to(np.logical_not(visible.numpy()), x.shape)
    own = x.clone()
    own[torch.from_numpy(hidden.copy())] = -math.inf
    weights = softmax_in_place(own)
    weights[torch.from_numpy(hidden.all(-1))] = 0
    return weights


@styles("masked_softmax", "nan_to_num")
def masked_by_nan_to_num(scores, mask=None):
    if mask is not None:
        scores = scores.masked_fill(mask.logical_not(), float("-inf"))
    return softmax_by_slices(scores).nan_to_num(0.0)


@styles("masked_softmax", "one inlined softmax, the sum of an empty row replaced by 1")
def masked_by_safe_sum(scores, mask=None, dim=-1):
    visible = scores if mask is None else torch.where(mask, scores, -math.inf)
    largest = visible.detach().amax(dim, keepdim=True)
    e = torch.exp(visible - largest.masked_fill(largest.isinf(), 0.0))
    total = e.sum(dim, keepdim=True)
    return e / total.masked_fill(total == 0, 1.0)


@styles("masked_softmax", "a bias added, empty rows opened before and closed after")
def masked_by_bias(scores, mask=None):
    if mask is None:
        return softmax_by_einsum(scores)
    sees = mask.any(-1, keepdim=True)
    bias = (mask | ~sees).to(scores.dtype).log()  # log 1 = 0, log 0 = -inf
    return softmax_by_einsum(scores + bias) * sees


@styles("masked_softmax", "one row at a time, its visible scores alone")
def masked_by_rows(scores, mask=None):
    mask = torch.tensor(True) if mask is None else mask
    rows, masks = scores.reshape(-1, scores.shape[-1]), mask.expand_as(scores).reshape(-1, scores.shape[-1])
    weights = torch.zeros_like(rows)
    for i, visible in enumerate(masks):
        if visible.any():
            weights[i, visible] = softmax_by_functions(rows[i, visible], 0)
    return weights.view(scores.shape)


@styles("masked_softmax", "an autograd.Function after finfo.min, mul_ on an own buffer")
def masked_with_own_gradient(scores, mask=None):
    mask = scores.new_ones(1, dtype=torch.bool) if mask is None else mask
    least = torch.finfo(scores.dtype).min
    return SoftmaxByHand.apply(torch.where(mask, scores, least), -1).clone().mul_(mask)


# scaled_dot_product_attention


class Explained(NamedTuple):
    output: torch.Tensor
    weights: torch.Tensor
    scores: torch.Tensor


@dataclasses.dataclass
class Answer:
    weights: torch.Tensor
    output: torch.Tensor


@styles("scaled_dot_product_attention", "einsum")
def attention_by_einsum(q, k, v, mask=None):
    weights = masked_by_finfo(torch.einsum("...ik,...jk->...ij", q, k) / q.shape[-1] ** 0.5, mask)
    return torch.einsum("...ij,...jv->...iv", weights, v), weights


@styles("scaled_dot_product_attention", "q scaled first, .mT; a NamedTuple with one more field")
def attention_with_scores(query, key, value, mask=None):
    scores = query * query.shape[-1] ** -0.5 @ key.mT
    weights = masked_by_where(scores, mask)
    return Explained(weights @ value, weights, scores)


@styles("scaled_dot_product_attention", "torch.baddbmm, the mask as its bias; a dict")
def attention_by_baddbmm(q, k, v, mask=None):
    *batch, T, K = q.shape
    S = k.shape[-2]
    mask = torch.ones(T, S, dtype=torch.bool) if mask is None else mask
    sees = mask.any(-1, keepdim=True)
    bias = torch.zeros(*batch, T, S, dtype=q.dtype).masked_fill(~mask & sees, -math.inf)
    scores = torch.baddbmm(bias.flatten(0, -3) if batch else bias[None], q.reshape(-1, T, K), k.reshape(-1, S, K).mT, alpha=K**-0.5)
    weights = softmax_by_logarithm(scores).view(*batch, T, S) * sees
    return {"weights": weights, "output": weights @ v}


@styles("scaled_dot_product_attention", "one sequence at a time, by recursion over the leading axes")
def attention_by_recursion(q, k, v, mask=None):
    if q.dim() == 2:
        weights = masked_by_rows(scores_by_query(q, k), mask)
        return weights.mm(v), weights
    masks = [None] * len(q) if mask is None else mask.expand(*q.shape[:-1], k.shape[-2])
    each = [attention_by_recursion(*one) for one in zip(q, k, v, masks, strict=True)]
    return torch.stack([output for output, _ in each]), torch.stack([weights for _, weights in each])


@styles("scaled_dot_product_attention", "one key at a time, with a running sum; a dataclass")
def attention_by_key(q, k, v, mask=None):
    scores = scores_by_fourth_root(q, k)
    mask = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask.expand_as(scores)
    visible = torch.where(mask, scores, torch.finfo(scores.dtype).min)
    largest = visible.detach().amax(-1)
    exponentials, total, output = [], 0.0, 0.0
    for s in range(k.shape[-2]):
        e = torch.exp(visible[..., s] - largest) * mask[..., s]  # (..., T)
        exponentials.append(e)
        total, output = total + e, output + e[..., None] * v[..., s : s + 1, :]
    total = torch.where(total > 0, total, 1.0)[..., None]
    return Answer(torch.stack(exponentials, -1) / total, output / total)


@styles("scaled_dot_product_attention", "a column of ones beside the values, divided at the end")
def attention_by_ones(q, k, v, mask=None):
    scores = torch.matmul(q, k.transpose(-1, -2)).div(math.sqrt(k.size(-1)))
    if mask is not None:
        scores = scores.where(mask | ~mask.any(-1, keepdim=True), scores.new_tensor(-math.inf))
    e = (scores - scores.amax(-1, keepdim=True)).exp()
    e = e if mask is None else e * mask
    summed = e @ torch.cat([v, torch.ones_like(v[..., :1])], -1)  # (..., T, V + 1)
    total = summed[..., -1:]
    total = total.where(total > 0, 1.0)  # by a tiny number instead, and a steep gradient overflows
    return summed[..., :-1] / total, e / total


class Attending:
    """Scores on their way to becoming weights."""

    def __init__(self, q, k):
        self.scores = scores_by_einsum(q, k)
        self.sees = None

    def hide(self, mask):
        self.sees = mask.any(-1, keepdim=True)
        self.scores = self.scores.masked_fill(~mask, -math.inf)
        return self

    @property
    def weights(self):
        weights = softmax_by_functions(self.scores)
        return weights if self.sees is None else weights.masked_fill(self.sees.logical_not(), 0)


@styles("scaled_dot_product_attention", "a helper class, extra keywords with defaults")
def attention_by_class(q, k, v, mask=None, *, dropout=0.0, training=False):
    attending = Attending(q, k)
    weights = attending.weights if mask is None else attending.hide(mask).weights
    return F.dropout(weights, dropout, training) @ v, weights


@styles("scaled_dot_product_attention", "nothing but in-place steps on own buffers, and a list")
def attention_in_place(q, k, v, mask=None):
    scores = (q @ k.mT).mul_(q.shape[-1] ** -0.5)
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool) if mask is None else mask
    scores.masked_fill_(~mask, torch.finfo(scores.dtype).min).sub_(scores.detach().amax(-1, keepdim=True)).exp_()
    weights = (scores / scores.sum(-1, keepdim=True)).mul_(mask)
    return [weights @ v, weights]


# SelfAttention


@styles("SelfAttention", "nn.Parameter in the layout of nn.Linear, F.linear")
class SelfAttentionOfParameters(nn.Module):
    def __init__(self, d_model, d_k):
        super().__init__()
        self.W_Q = nn.Parameter(torch.randn(d_k, d_model) / math.sqrt(d_model))
        self.W_K = nn.Parameter(torch.randn(d_k, d_model) / math.sqrt(d_model))
        self.W_V = nn.Parameter(torch.randn(d_k, d_model) / math.sqrt(d_model))

    def forward(self, x, mask=None):
        return attention_by_einsum(F.linear(x, self.W_Q), F.linear(x, self.W_K), F.linear(x, self.W_V), mask)


@styles("SelfAttention", "nn.Parameter the other way round, as the paper writes it: x @ W; a NamedTuple")
class SelfAttentionOfThePaper(nn.Module):
    def __init__(self, d_model, d_k, std=0.02):
        super().__init__()
        for name in ("W_Q", "W_K", "W_V"):
            self.register_parameter(name, nn.Parameter(torch.empty(d_model, d_k)))
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=std)

    def forward(self, x, mask=None):
        return attention_with_scores(x @ self.W_Q, x @ self.W_K, x @ self.W_V, mask)


@styles("SelfAttention", "one product with the three weights side by side; a dict")
class SelfAttentionFused(nn.Module):
    def __init__(self, width, head_width):
        super().__init__()
        self.W_Q, self.W_K, self.W_V = (nn.Linear(width, head_width, bias=False) for _ in range(3))

    def forward(self, tokens, mask=None):
        weight = torch.cat([self.W_Q.weight, self.W_K.weight, self.W_V.weight])
        return attention_by_baddbmm(*(tokens @ weight.T).chunk(3, -1), mask)


class Projection(nn.Module):
    """A matrix and nothing else."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(n_out, n_in)))

    def forward(self, x):
        return torch.einsum("btd,kd->btk", x, self.weight)


@styles("SelfAttention", "a layer of its own for the projections, einsum")
class SelfAttentionOfProjections(nn.Module):
    def __init__(self, d_model, d_k):
        super().__init__()
        self.W_Q, self.W_K, self.W_V = Projection(d_model, d_k), Projection(d_model, d_k), Projection(d_model, d_k)

    def forward(self, x, mask=None):
        q, k, v = self.W_Q(x), self.W_K(x), self.W_V(x)
        return attention_by_key(q, k, v, mask)


@styles("SelfAttention", "a static helper, everything inlined, a buffer and private attributes beside the weights")
class SelfAttentionInlined(nn.Module):
    def __init__(self, d_model, d_k, longest=64):
        super().__init__()
        self._scale = d_k**-0.5
        self.register_buffer("_everything", torch.ones(longest, longest, dtype=torch.bool), persistent=False)
        for name in ("W_Q", "W_K", "W_V"):
            setattr(self, name, nn.Linear(d_model, d_k, bias=False))

    @staticmethod
    def _normalised(scores, mask):
        visible = scores.masked_fill(~mask, -math.inf)
        e = (visible - visible.amax(-1, keepdim=True).nan_to_num(neginf=0.0)).exp()
        total = e.sum(-1, keepdim=True)
        return e / total.where(total > 0, 1.0)

    def forward(self, x, mask=None):
        mask = self._everything[: x.shape[1], : x.shape[1]] if mask is None else mask
        weights = self._normalised((self.W_Q(x) * self._scale).bmm(self.W_K(x).mT), mask)
        return weights.bmm(self.W_V(x)), weights


@styles("SelfAttention", "one sequence at a time, nn.Dropout(0) and an extra argument of forward")
class SelfAttentionBySequence(nn.Module):
    def __init__(self, d_model, d_k, dropout=0.0):
        super().__init__()
        self.W_Q = nn.Linear(d_model, d_k, False)
        self.W_K = nn.Linear(d_model, d_k, False)
        self.W_V = nn.Linear(d_model, d_k, False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, mask=None, context=None):
        context = x if context is None else context
        masks = [None] * len(x) if mask is None else mask.expand(len(x), x.shape[1], context.shape[1])
        outputs, weights = zip(*(self.attend(*each) for each in zip(x, context, masks, strict=True)), strict=True)
        return torch.stack(outputs), torch.stack(weights)

    def attend(self, x, context, mask):
        _, weights = attention_by_recursion(self.W_Q(x), self.W_K(context), self.W_V(context), mask)
        return self.dropout(weights) @ self.W_V(context), weights


ALTERNATIVES = styles.found
