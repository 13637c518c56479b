"""Attention: each query takes a weighted average of the values (Vaswani et al. 2017, section 3.2.1).

Shapes: B batch, T queries, S keys, D model width, K width of a query and of a key, V width of a value;
`...` is any number of leading axes. Masks are boolean and True means *may attend*.
"""

import math

import numpy as np
import torch
from torch import nn


def softmax(x, dim=-1):
    """Positive weights along `dim` that sum to 1, and that stay finite however large x is.

    x: (...) floating-point tensor
    dim: the axis along which the weights sum to 1, counted from either end
    returns: (...) tensor of the shape and dtype of x

    >>> softmax(torch.tensor([[0.0, math.log(3.0)], [1000.0, 1000.0]]))
    tensor([[0.2500, 0.7500],
            [0.5000, 0.5000]])
    """
    e = (x - x.amax(dim, keepdim=True)).exp()  # softmax(x) = softmax(x - c): the largest exponent is 0
    return e / e.sum(dim, keepdim=True)


def attention_scores(q, k):
    """How well each query matches each key: their dot product, divided by the root of their width.

    q: (..., T, K) queries
    k: (..., S, K) keys
    returns: (..., T, S) scores; row t belongs to query t

    >>> attention_scores(torch.tensor([[2.0, 0.0, 0.0, 0.0]]), torch.tensor([[3.0, 1.0, 1.0, 1.0], [0.0, 5.0, 0.0, 0.0]]))
    tensor([[3., 0.]])
    """
    return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (..., T, S)


def attention_loops(q, k, v, mask=None):
    """Scaled dot-product attention, one query and one key at a time: slow, and easy to believe.

    A query that may attend to no key gets weights and an output of zeros.

    q: (T, K) numpy array of queries
    k: (S, K) array of keys
    v: (S, V) array of values
    mask: (T, S) boolean array, True = may attend; None = every query may attend to every key
    returns: the outputs (T, V) and the weights (T, S)

    >>> output, weights = attention_loops(np.eye(2), np.zeros((3, 2)), np.array([[3.0], [6.0], [0.0]]))
    >>> output
    array([[3.],
           [3.]])
    """
    T, S = len(q), len(k)
    output, weights = np.zeros((T, v.shape[-1]), v.dtype), np.zeros((T, S), v.dtype)
    for t in range(T):
        allowed = [s for s in range(S) if mask is None or mask[t, s]]
        if not allowed:
            continue  # nothing to average: the row stays 0
        scores = {s: sum(q[t] * k[s]) / math.sqrt(q.shape[-1]) for s in allowed}
        largest = max(scores.values())
        exponentials = {s: math.exp(scores[s] - largest) for s in allowed}
        for s in allowed:
            weights[t, s] = exponentials[s] / sum(exponentials.values())
            output[t] += weights[t, s] * v[s]
    return output, weights


def causal_mask(T, S=None):
    """Which of S keys each of T queries may see, when nobody sees the future.

    The last query stands at the last key (bottom-right alignment), so with T < S the queries are
    the last T positions of the sequence, as when a cache holds the earlier keys.

    T: number of queries
    S: number of keys; None = as many as queries
    returns: (T, S) boolean tensor, True = may attend

    >>> causal_mask(2, 4).int()
    tensor([[1, 1, 1, 0],
            [1, 1, 1, 1]], dtype=torch.int32)
    """
    S = T if S is None else S
    return torch.ones(T, S, dtype=torch.bool).tril(S - T)  # query t sees key s when s <= t + (S - T)


def padding_mask(lengths, S):
    """Which of S keys are real tokens, when sequences of different lengths share a batch.

    lengths: (B,) integers, how many real tokens each sequence starts with
    S: number of keys, padding included
    returns: (B, 1, S) boolean tensor, True = may attend; the axis of size 1 is for the queries

    >>> padding_mask(torch.tensor([1, 3]), 3).int()
    tensor([[[1, 0, 0]],
    <BLANKLINE>
            [[1, 1, 1]]], dtype=torch.int32)
    """
    return torch.arange(S, device=lengths.device) < lengths[:, None, None]  # (S) < (B, 1, 1) -> (B, 1, S)


def combine_masks(*masks):
    """One mask out of many: a key may be attended to where *every* mask allows it.

    masks: boolean tensors whose shapes broadcast together, True = may attend; None = allows everything
    returns: boolean tensor of the broadcast shape; None when every mask is None

    >>> combine_masks(torch.tensor([True, True, False]), None, torch.tensor([[True], [False]])).int()
    tensor([[1, 1, 0],
            [0, 0, 0]], dtype=torch.int32)
    """
    combined = None
    for mask in masks:
        if mask is not None:
            combined = mask if combined is None else combined & mask
    return combined


def masked_softmax(scores, mask=None):
    """Weights over the keys that a query may attend to; a query that may attend to none gets zeros.

    scores: (..., T, S) floating-point tensor
    mask: boolean tensor that broadcasts to (..., T, S), True = may attend; None = no mask
    returns: (..., T, S) tensor of the dtype of scores; each row sums to 1, or to 0 where all is masked

    >>> masked_softmax(torch.zeros(2, 3), torch.tensor([[True, True, False], [False, False, False]]))
    tensor([[0.5000, 0.5000, 0.0000],
            [0.0000, 0.0000, 0.0000]])
    """
    if mask is None:
        return softmax(scores, dim=-1)
    weights = softmax(scores.masked_fill(~mask, -math.inf), dim=-1)  # exp(-inf) = 0: a hidden key weighs nothing
    return weights.masked_fill(~mask.any(-1, keepdim=True), 0.0)  # all hidden: 0/0 = NaN, and we want 0


def scaled_dot_product_attention(q, k, v, mask=None):
    """Attention(Q, K, V) = softmax(QKᵀ / √K) V, for any number of leading axes at once.

    q: (..., T, K) queries
    k: (..., S, K) keys
    v: (..., S, V) values
    mask: boolean tensor that broadcasts to (..., T, S), True = may attend; None = no mask
    returns: the outputs (..., T, V) and the weights (..., T, S)

    >>> output, weights = scaled_dot_product_attention(torch.eye(2), torch.zeros(3, 2), torch.tensor([[3.0], [6.0], [0.0]]))
    >>> output
    tensor([[3.],
            [3.]])
    """
    weights = masked_softmax(attention_scores(q, k), mask)  # (..., T, S)
    return weights @ v, weights  # (..., T, V)


class SelfAttention(nn.Module):
    """Attention of a sequence to itself: queries, keys and values are all made from the same tokens.

    W_Q, W_K, W_V: (K, D) weights, in torch's (out, in) layout, without bias: q = x W_Qᵀ
    """

    def __init__(self, d_model, d_k):
        """d_model: width D of a token; d_k: width K of its query, its key and its value."""
        super().__init__()
        self.W_Q = nn.Linear(d_model, d_k, bias=False)
        self.W_K = nn.Linear(d_model, d_k, bias=False)
        self.W_V = nn.Linear(d_model, d_k, bias=False)

    def forward(self, x, mask=None):
        """Let every token of x look at the tokens of x.

        x: (B, T, D) tokens
        mask: boolean tensor that broadcasts to (B, T, T), True = may attend; None = no mask
        returns: the outputs (B, T, K) and the weights (B, T, T)
        """
        return scaled_dot_product_attention(self.W_Q(x), self.W_K(x), self.W_V(x), mask)
