"""Positions: attention ignores order, so order has to be put in: into the tokens, into queries and keys, or into the scores.

Shapes: B batch, T positions, H heads, D model width, K head width, V vocabulary; `...` is any number of leading axes.
Positions count from 0. Masks are boolean and True means *may attend*.
"""

import math

import torch
from torch import nn

from solutions.attention import scaled_dot_product_attention
from solutions.multi_head import merge_heads, split_heads


def sinusoidal_encoding(T, d_model):
    """A vector for each position, of sines and cosines in turn (Vaswani et al. 2017, section 3.5).

    Column 2i is sin(t · w) and column 2i + 1 is cos(t · w), both of the frequency w = 10000^(-2i / D).

    T: number of positions
    d_model: width D; an odd width ends in a sine without its cosine
    returns: (T, D) float32 tensor

    >>> sinusoidal_encoding(2, 4)
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 0.9999]])
    """
    frequencies = 10000.0 ** (-torch.arange(0, d_model, 2) / d_model)  # (D/2): the exponents are -2i / D
    angles = torch.arange(T)[:, None] * frequencies  # (T, D/2)
    encoding = torch.empty(T, d_model)
    encoding[:, 0::2] = angles.sin()
    encoding[:, 1::2] = angles.cos()[:, : d_model // 2]  # with D odd there is one cosine fewer
    return encoding


def embed(tokens, table):
    """What the 2017 transformer starts from: the tokens' embeddings, times √D, plus the sinusoidal encoding.

    tokens: (B, T) integers
    table: (V, D) float32 embeddings, one row for each token of the vocabulary
    returns: (B, T, D) tensor

    >>> embed(torch.tensor([[1, 1]]), torch.tensor([[0.0, 0.0, 0.0, 0.0], [1.0, 2.0, 3.0, 4.0]]))
    tensor([[[2.0000, 5.0000, 6.0000, 9.0000],
             [2.8415, 4.5403, 6.0100, 9.0000]]])
    """
    T, D = tokens.shape[-1], table.shape[-1]
    positions = sinusoidal_encoding(T, D).to(table.device)  # (T, D): the same for every sequence of the batch
    return table[tokens] * math.sqrt(D) + positions  # rows of variance 1/D: times √D, they are as large as the positions


class LearnedPositions(nn.Module):
    """A vector for each position, learned like any other weight (GPT-2, BERT).

    weight: (max_length, D), row t belongs to position t
    """

    def __init__(self, max_length, d_model):
        """max_length: how many positions there are; d_model: width D of a token."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_length, d_model).normal_(std=0.02))

    def forward(self, x):
        """Add to each token the vector of its position.

        x: (..., T, D) tokens
        returns: (..., T, D) tensor; ValueError when T is more than max_length
        """
        T, max_length = x.shape[-2], len(self.weight)
        if max_length < T:
            raise ValueError(f"there are {max_length} positions; got a sequence of length {T}")
        return x + self.weight[:T]


def rope_angles(positions, d_k, base=10000.0):
    """By how much RoPE turns each pair of dimensions at each position: t · base^(-2i / K) (Su et al. 2021).

    positions: (..., T) integers
    d_k: width K of a head; ValueError when it is odd
    base: the slowest pair turns by nearly 1 / base per position
    returns: (..., T, K/2) float64 tensor of radians; the last axis counts the pairs i

    >>> rope_angles(torch.tensor([0, 1, 9]), 4)
    tensor([[0.0000, 0.0000],
            [1.0000, 0.0100],
            [9.0000, 0.0900]], dtype=torch.float64)
    """
    if d_k % 2:
        raise ValueError(f"RoPE turns pairs of dimensions, so their number must be even; got {d_k}")
    exponents = torch.arange(0, d_k, 2, dtype=torch.float64, device=positions.device) / d_k  # (K/2): 2i / K
    return positions[..., None] * base**-exponents  # (..., T, 1) * (K/2)


def apply_rope(x, positions, base=10000.0, style="interleaved"):
    """Turn each pair of dimensions of each query (or key) by the angle of its position.

    A pair (a, b) becomes (a cos - b sin, a sin + b cos), in the places that it came from.

    x: (..., T, K) queries or keys
    positions: (..., T) integers; usually (T,), the same for every sequence and head
    base: as in rope_angles
    style: which dimensions are pair i: "interleaved", 2i and 2i + 1; "halves", i and i + K/2
    returns: (..., T, K) tensor of the dtype of x

    >>> apply_rope(torch.tensor([[1.0, 0.0, 1.0, 0.0]]), torch.tensor([1]))
    tensor([[0.5403, 0.8415, 0.9999, 0.0100]])
    >>> apply_rope(torch.tensor([[1.0, 1.0, 0.0, 0.0]]), torch.tensor([1]), style="halves")
    tensor([[0.5403, 0.9999, 0.8415, 0.0100]])
    """
    angles = rope_angles(positions, x.shape[-1], base)  # (..., T, K/2), in float64: in half precision position 1000 is lost
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    halves = style == "halves"
    a, b = x.chunk(2, dim=-1) if halves else (x[..., 0::2], x[..., 1::2])  # (..., T, K/2) each
    turned = a * cos - b * sin, a * sin + b * cos
    return torch.cat(turned, dim=-1) if halves else torch.stack(turned, dim=-1).flatten(-2)


def permute_qk(weight, n_heads):
    """Reorder the rows of W_Q or W_K, so that RoPE in halves does what interleaved RoPE did with the old ones.

    Within each head, rows 2i and 2i + 1 move to i and i + K/2. Queries and keys are reordered alike, so the scores stay.

    weight: (H · K, D) weight, in torch's (out, in) layout
    n_heads: H
    returns: (H · K, D) tensor

    >>> permute_qk(torch.arange(12.0)[:, None], n_heads=2).int().flatten().tolist()
    [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]
    """
    pairs = weight.unflatten(0, (n_heads, -1, 2))  # (H, K/2, 2, D)
    return pairs.transpose(1, 2).flatten(0, 2)  # (H, 2, K/2, D) -> (H · K, D)


class RotaryAttention(nn.Module):
    """Multi-head self-attention that knows its positions by RoPE, in the interleaved pairing.

    W_Q, W_K, W_V, W_O: (D, D) weights, in torch's (out, in) layout, without bias
    """

    def __init__(self, d_model, n_heads, base=10000.0):
        """d_model: width D; n_heads: H, of width K = D / H each; base: as in rope_angles."""
        super().__init__()
        self.n_heads, self.base = n_heads, base
        self.W_Q = nn.Linear(d_model, d_model, bias=False)
        self.W_K = nn.Linear(d_model, d_model, bias=False)
        self.W_V = nn.Linear(d_model, d_model, bias=False)
        self.W_O = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x, positions=None, mask=None):
        """Let every token of x look at the tokens of x, by what they are and by how far away they are.

        x: (B, T, D) tokens
        positions: (T,) integers; None = 0, 1, …, T - 1
        mask: boolean tensor that broadcasts to (B, T, T), True = may attend; None = no mask
        returns: the output (B, T, D) and the weights (B, H, T, T)
        """
        if positions is None:
            positions = torch.arange(x.shape[-2], device=x.device)
        q, k, v = (split_heads(W(x), self.n_heads) for W in (self.W_Q, self.W_K, self.W_V))  # (B, H, T, K)
        q, k = apply_rope(q, positions, self.base), apply_rope(k, positions, self.base)
        heads, weights = scaled_dot_product_attention(q, k, v, mask if mask is None else mask.unsqueeze(-3))
        return self.W_O(merge_heads(heads)), weights


def alibi_bias(n_heads, T):
    """What ALiBi adds to the scores: minus the distance, times a slope of each head's own (Press et al. 2021).

    The slopes are 2^(-8h / H) for the heads h = 1, …, H: with eight heads 1/2, 1/4, …, 1/256.

    n_heads: H, any number (where it is no power of two, the authors' code interpolates; this is their formula)
    T: number of positions
    returns: (H, T, T) float32 tensor, 0 on the diagonal, the same to both sides; it masks nothing

    >>> alibi_bias(8, 3)[0]
    tensor([[ 0.0000, -0.5000, -1.0000],
            [-0.5000,  0.0000, -0.5000],
            [-1.0000, -0.5000,  0.0000]])
    """
    slopes = 2.0 ** (-8.0 * torch.arange(1, n_heads + 1) / n_heads)  # (H)
    positions = torch.arange(T)
    distances = (positions - positions[:, None]).abs()  # (T, T)
    return slopes[:, None, None] * -distances


def relative_position_bucket(relative_position, bidirectional=True, n_buckets=32, max_distance=128):
    """In which of T5's buckets a distance lies: near ones have one each, far ones share (Raffel et al. 2019).

    Of the n buckets for one direction, the first n/2 hold one distance each. The others grow evenly in the logarithm of the
    distance, up to max_distance; the last holds all that is further. Bidirectional, n is half of n_buckets: the lower half is
    for keys at the query or before it, the upper half for keys after it. Else n is n_buckets, and all keys after the query
    are in bucket 0.

    relative_position: integers of any shape, position of the key minus position of the query
    bidirectional: whether keys after the query are told apart (an encoder) or not (a decoder)
    n_buckets, max_distance: as above
    returns: int64 tensor of that shape, from 0 to n_buckets - 1

    >>> relative_position_bucket(torch.tensor([-1000, -20, -2, 0, 2, 20]))
    tensor([15, 10,  2,  0, 18, 26])
    """
    n = n_buckets // 2 if bidirectional else n_buckets
    distance = relative_position.abs() if bidirectional else (-relative_position).clamp(min=0)
    exact = n // 2
    growth = (distance.clamp(min=1) / exact).log() / math.log(max_distance / exact)  # 0 at exact, 1 at max_distance
    far = (exact + (growth * (n - exact)).long()).clamp(max=n - 1)
    bucket = torch.where(distance < exact, distance, far)
    return bucket + n * (relative_position > 0) if bidirectional else bucket
