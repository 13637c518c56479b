"""Right answers for module 03 in other styles. Shapes as in solutions/positions.py."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from autograder.alternatives import Styles

styles = Styles()


# sinusoidal_encoding


@styles("sinusoidal_encoding", "loops over positions and columns")
def sinusoids_by_loops(T, d_model):
    rows = []
    for t in range(T):
        angles = [t / 10000 ** (2 * (j // 2) / d_model) for j in range(d_model)]
        rows.append([math.cos(angle) if j % 2 else math.sin(angle) for j, angle in enumerate(angles)])
    return torch.tensor(rows)


@styles("sinusoidal_encoding", "exp of a logarithm, as the Annotated Transformer does it")
def sinusoids_by_exponential(T, d_model):
    pe = torch.zeros(T, d_model)
    position = torch.arange(0, T).unsqueeze(1)
    div_term = torch.exp(torch.arange(0, d_model, 2) * -(math.log(10000.0) / d_model))
    pe[:, 0::2] = torch.sin(position * div_term)
    pe[:, 1::2] = torch.cos(position * div_term[: d_model // 2])
    return pe


@styles("sinusoidal_encoding", "a cosine is a sine a quarter of a turn ahead; other parameter names")
def sinusoids_by_phase(n_positions, width):
    columns = torch.arange(width)
    angles = torch.arange(n_positions).unsqueeze(-1) * 1e4 ** (-(columns - columns % 2) / width)
    return torch.sin(angles + columns % 2 * math.pi / 2)


@styles("sinusoidal_encoding", "one pair too many, stacked and cut")
def sinusoids_by_stack(T, d_model):
    frequencies = torch.logspace(0, -4 * (d_model + d_model % 2) / d_model, (d_model + 1) // 2 + 1)[:-1]
    angles = torch.outer(torch.arange(T, dtype=torch.float32), frequencies)
    return torch.stack((angles.sin(), angles.cos()), dim=2).reshape(T, -1)[:, :d_model]


@styles("sinusoidal_encoding", "numpy in float64, a complex exponential")
def sinusoids_by_numpy(T, d_model):
    waves = np.exp(1j * np.outer(np.arange(T), np.power(10000.0, -np.arange(0, d_model, 2) / d_model)))
    return torch.from_numpy(np.stack([waves.imag, waves.real], -1).reshape(T, -1)[:, :d_model].astype(np.float32))


# embed


@styles("embed", "F.embedding, ** 0.5")
def embed_by_functional(tokens, table):
    return F.embedding(tokens, table) * table.shape[1] ** 0.5 + sinusoids_by_phase(tokens.shape[1], table.shape[1])


@styles("embed", "the whole table scaled first")
def embed_from_scaled_table(ids, weight):
    scaled = weight * math.sqrt(weight.size(-1))
    return scaled[ids] + sinusoids_by_phase(ids.size(-1), weight.size(-1)).unsqueeze(0)


@styles("embed", "one-hot rows times the table")
def embed_by_one_hot(tokens, table):
    V, D = table.shape
    return F.one_hot(tokens, V).to(table.dtype) @ table * D**0.5 + sinusoids_by_phase(tokens.shape[-1], D)[None]


@styles("embed", "one position at a time")
def embed_by_positions(tokens, table):
    encoding = sinusoids_by_phase(tokens.shape[1], table.shape[1])
    return torch.stack([math.sqrt(table.shape[1]) * table[tokens[:, t]] + row for t, row in enumerate(encoding)], dim=1)


# LearnedPositions


@styles("LearnedPositions", "nn.Embedding, looked up by arange")
class PositionsByEmbedding(nn.Module):
    def __init__(self, max_length, d_model):
        super().__init__()
        self.max_length = max_length
        self.weight = nn.Embedding(max_length, d_model)

    def forward(self, x):
        if x.size(-2) > self.max_length:
            raise ValueError("too long")
        return x + self.weight(torch.arange(x.size(-2), device=x.device))


@styles("LearnedPositions", "a parameter of zeros, narrowed, added to a clone; an own exception")
class PositionsByNarrow(nn.Module):
    def __init__(self, n_positions, width):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(n_positions, width))

    def forward(self, tokens):
        length = tokens.shape[-2]
        if length not in range(len(self.weight) + 1):
            raise ValueError(f"{length} > {len(self.weight)}")
        out = tokens.clone()
        out += self.weight.narrow(0, 0, length).expand_as(tokens)
        return out


@styles("LearnedPositions", "a selection matrix, kept transposed")
class PositionsBySelection(nn.Module):
    def __init__(self, max_length, d_model):
        super().__init__()
        self.max_length = max_length
        self.weight = nn.Parameter(torch.randn(max_length, d_model))

    def forward(self, x):
        T = x.shape[-2]
        if self.max_length < T:
            raise ValueError(f"at most {self.max_length}")
        return torch.eye(T, self.max_length, dtype=x.dtype) @ self.weight + x


# rope_angles


@styles("rope_angles", "inverse frequencies, as in Llama's code")
def angles_by_inverse_frequencies(positions, d_k, base=10000.0):
    if d_k % 2 != 0:
        raise ValueError("d_k must be even")
    inv_freq = 1.0 / (base ** (torch.arange(0, d_k, 2, dtype=torch.float64) / d_k))
    return positions.double().unsqueeze(-1) * inv_freq


@styles("rope_angles", "exp and log, einsum")
def angles_by_exponential(positions, d_k, base=10000.0):
    half, odd = divmod(d_k, 2)
    if odd:
        raise ValueError(f"{d_k} is odd")
    frequencies = torch.exp(torch.arange(half).double() * (-math.log(base) / half))
    return torch.einsum("...t,i->...ti", positions.to(torch.float64), frequencies)


@styles("rope_angles", "plain Python numbers, pair by pair")
def angles_by_loops(positions, d_k, base=10000.0):
    if d_k & 1:
        raise ValueError("odd")
    return torch.stack([positions.double() / base ** (2 * i / d_k) for i in range(d_k // 2)], dim=-1)


@styles("rope_angles", "numpy")
def angles_by_numpy(positions, d_k, base=10000.0):
    if d_k % 2:
        raise ValueError(d_k)
    return torch.from_numpy(np.multiply.outer(positions.numpy().astype(float), base ** (-2.0 * np.arange(d_k // 2) / d_k)))


# apply_rope


def frequencies(K, base):
    return base ** (-torch.arange(0, K, 2, dtype=torch.float64) / K)


@styles("apply_rope", "complex numbers, as in Llama's code")
def rope_by_complex_numbers(x, positions, base=10000.0, style="interleaved"):
    K = x.shape[-1]
    wide = x.double()
    pairs = wide.unflatten(-1, (2, K // 2)).mT if style == "halves" else wide.unflatten(-1, (K // 2, 2))
    angles = positions[..., None] * frequencies(K, base)
    turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * torch.polar(torch.ones_like(angles), angles))
    return (turned.mT if style == "halves" else turned).flatten(-2).to(x.dtype)


@styles("apply_rope", "rotate_half, as in transformers; interleaved by a permutation before and after")
def rope_by_rotate_half(x, positions, base=10000.0, style="interleaved"):
    K = x.shape[-1]
    order = torch.arange(K) if style == "halves" else torch.cat([torch.arange(0, K, 2), torch.arange(1, K, 2)])
    sorted_x = x[..., order]  # first dimensions of all pairs, then second ones
    angles = torch.cat([positions.unsqueeze(-1) * frequencies(K, base)] * 2, dim=-1)
    rotated = torch.cat([-sorted_x[..., K // 2 :], sorted_x[..., : K // 2]], dim=-1)
    result = sorted_x * angles.cos().to(x.dtype) + rotated * angles.sin().to(x.dtype)
    return result[..., order.argsort()]


@styles("apply_rope", "a 2×2 rotation matrix for each pair, einsum")
def rope_by_matrices(x, positions, base=10000.0, style="interleaved"):
    K = x.shape[-1]
    angles = positions[..., None] * frequencies(K, base)
    cos, sin = angles.cos(), angles.sin()
    matrices = torch.stack([torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)], -2).to(x.dtype)  # (..., T, K/2, 2, 2)
    if style == "halves":
        return torch.einsum("...ioj,...ji->...oi", matrices, x.unflatten(-1, (2, K // 2))).flatten(-2)
    return torch.einsum("...ioj,...ij->...io", matrices, x.unflatten(-1, (K // 2, 2))).flatten(-2)


@styles("apply_rope", "slices written into an own buffer; other parameter names")
def rope_into_buffer(vectors, where, theta=10000.0, kind="interleaved"):
    K = vectors.shape[-1]
    first, second = (slice(0, K // 2), slice(K // 2, K)) if kind == "halves" else (slice(0, K, 2), slice(1, K, 2))
    angles = where[..., None] * frequencies(K, theta)
    cos, sin = torch.cos(angles).type_as(vectors), torch.sin(angles).type_as(vectors)
    out = torch.empty_like(vectors)
    out[..., first] = vectors[..., first] * cos - vectors[..., second] * sin
    out[..., second] = vectors[..., second] * cos + vectors[..., first] * sin
    return out


@styles("apply_rope", "one pair at a time, in at least single precision")
def rope_by_pairs(x, positions, base=10000.0, style="interleaved"):
    K, columns = x.shape[-1], {}
    wide = x if x.dtype == torch.float64 else x.float()
    for i in range(K // 2):
        j, k = (i, i + K // 2) if style == "halves" else (2 * i, 2 * i + 1)
        angle = positions / base ** (2 * i / K) if x.dtype != torch.float64 else positions.double() / base ** (2 * i / K)
        columns[j] = wide[..., j] * angle.cos() - wide[..., k] * angle.sin()
        columns[k] = wide[..., j] * angle.sin() + wide[..., k] * angle.cos()
    return torch.stack([columns[j] for j in range(K)], -1).to(x.dtype)


# permute_qk


@styles("permute_qk", "view, transpose, reshape, as in the converter of transformers")
def permute_by_view(weight, n_heads):
    rows, columns = weight.shape
    return weight.reshape(n_heads, rows // n_heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)


@styles("permute_qk", "a list of row numbers")
def permute_by_index(weight, n_heads):
    K = len(weight) // n_heads
    rows = [head * K + 2 * i + which for head in range(n_heads) for which in (0, 1) for i in range(K // 2)]
    return weight[rows]


@styles("permute_qk", "each head's even rows, then its odd rows")
def permute_by_strides(w, heads):
    return torch.cat([torch.cat([head[0::2], head[1::2]]) for head in w.chunk(heads)])


@styles("permute_qk", "a permutation matrix")
def permute_by_matrix(weight, n_heads):
    K = len(weight) // n_heads
    one_head = torch.zeros(K, K, dtype=weight.dtype)
    for i in range(K // 2):
        one_head[i, 2 * i] = one_head[i + K // 2, 2 * i + 1] = 1
    return torch.block_diag(*[one_head] * n_heads) @ weight


# RotaryAttention


def attend(q, k, v, mask=None):
    """Outputs and weights; the scores of hidden keys are the lowest there are."""
    scores = q @ k.mT * q.shape[-1] ** -0.5
    scores = scores if mask is None else torch.where(mask, scores, torch.finfo(scores.dtype).min)
    weights = scores.softmax(-1)
    return weights @ v, weights


@styles("RotaryAttention", "a loop over heads, parameters in place of nn.Linear")
class RotaryByLoop(nn.Module):
    def __init__(self, d_model, n_heads, base=10000.0):
        super().__init__()
        self.heads, self.theta = n_heads, base
        for name in ("W_Q", "W_K", "W_V", "W_O"):
            self.register_parameter(name, nn.Parameter(torch.randn(d_model, d_model) / d_model**0.5))

    def forward(self, x, positions=None, mask=None):
        T, D = x.shape[-2:]
        where = torch.arange(T) if positions is None else positions
        outputs, weights = [], []
        for rows in torch.arange(D).chunk(self.heads):
            q, k, v = x @ self.W_Q[rows].T, x @ self.W_K[rows].T, x @ self.W_V[rows].T
            q, k = rope_into_buffer(q, where, self.theta), rope_into_buffer(k, where, self.theta)
            output, weight = attend(q, k, v, mask)
            outputs.append(output)
            weights.append(weight)
        return torch.cat(outputs, -1) @ self.W_O.T, torch.stack(weights, 1)


@styles("RotaryAttention", "halves in permuted rows")
class RotaryInHalves(nn.Module):
    def __init__(self, d_model, n_heads, base=10000.0):
        super().__init__()
        self.n_heads, self.base = n_heads, base
        self.W_Q, self.W_K, self.W_V, self.W_O = (nn.Linear(d_model, d_model, False) for _ in range(4))

    def forward(self, x, positions=None, mask=None):
        positions = torch.arange(x.shape[1]) if positions is None else positions
        mask = mask if mask is None or mask.dim() == 2 else mask[:, None]
        projected = (x @ permute_by_strides(W.weight, self.n_heads).T for W in (self.W_Q, self.W_K))
        q, k = (rope_into_buffer(self.split(each), positions, self.base, "halves") for each in projected)
        output, weights = attend(q, k, self.split(self.W_V(x)), mask)
        return self.W_O(output.transpose(1, 2).reshape(x.shape)), weights

    def split(self, x):
        return x.view(*x.shape[:2], self.n_heads, -1).transpose(1, 2)


@styles("RotaryAttention", "einsum throughout, queries and keys turned together, a dict")
class RotaryByEinsum(nn.Module):
    def __init__(self, d_model, n_heads, base=10000.0):
        super().__init__()
        self.shape, self.base = (n_heads, d_model // n_heads), base
        self.W_Q = nn.Linear(d_model, d_model, bias=False)
        self.W_K = nn.Linear(d_model, d_model, bias=False)
        self.W_V = nn.Linear(d_model, d_model, bias=False)
        self.W_O = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x, positions=None, mask=None):
        B, T, _ = x.shape
        positions = torch.arange(T, device=x.device) if positions is None else positions
        qk = torch.stack([self.W_Q(x), self.W_K(x)]).unflatten(-1, self.shape)  # (2, B, T, H, K)
        q, k = rope_into_buffer(qk, positions[:, None], self.base)
        scores = torch.einsum("bthk,bshk->bhts", q, k) * self.shape[1] ** -0.5
        if mask is not None:
            scores = scores.masked_fill(~mask.expand(B, T, T)[:, None], float("-inf"))
        weights = torch.softmax(scores, dim=-1)
        output = torch.einsum("bhts,bshk->bthk", weights, self.W_V(x).unflatten(-1, self.shape))
        return {"output": self.W_O(output.flatten(-2)), "weights": weights}


# alibi_bias


@styles("alibi_bias", "loops")
def alibi_by_loops(n_heads, T):
    slopes = [2 ** (-8 * h / n_heads) for h in range(1, n_heads + 1)]
    return torch.tensor([[[-slope * abs(t - s) for s in range(T)] for t in range(T)] for slope in slopes])


@styles("alibi_bias", "powers of the first slope, einsum; other parameter names")
def alibi_by_powers(heads, length):
    slopes = (2 ** (-8 / heads)) ** torch.arange(1, heads + 1, dtype=torch.float32)
    places = torch.arange(length, dtype=torch.float32)
    return torch.einsum("h,ts->hts", slopes, -torch.cdist(places[:, None], places[:, None], p=1))


@styles("alibi_bias", "the smaller of both signs")
def alibi_by_minimum(n_heads, T):
    slopes = torch.logspace(-8 / n_heads, -8, n_heads, base=2).view(-1, 1, 1)
    offsets = torch.arange(T)[None, :] - torch.arange(T)[:, None]
    return slopes * torch.minimum(offsets, -offsets)


@styles("alibi_bias", "triangles added up")
def alibi_by_triangles(n_heads, T):
    distances = torch.ones(T, T).tril(-1).cumsum(0).tril()
    distances = distances + distances.T
    return -distances * torch.exp2(-8.0 * (torch.arange(n_heads) + 1) / n_heads)[:, None, None]


# relative_position_bucket


@styles("relative_position_bucket", "as in transformers")
def bucket_as_in_transformers(relative_position, bidirectional=True, num_buckets=32, max_distance=128):
    relative_buckets = 0
    if bidirectional:
        num_buckets //= 2
        relative_buckets += (relative_position > 0).to(torch.long) * num_buckets
        relative_position = torch.abs(relative_position)
    else:
        relative_position = -torch.min(relative_position, torch.zeros_like(relative_position))
    max_exact = num_buckets // 2
    large = torch.log(relative_position.float() / max_exact) / math.log(max_distance / max_exact) * (num_buckets - max_exact)
    large = torch.min(max_exact + large.to(torch.long), torch.full_like(relative_position, num_buckets - 1))
    return relative_buckets + torch.where(relative_position < max_exact, relative_position, large)


@styles("relative_position_bucket", "one distance at a time, in Python numbers")
def bucket_by_loop(relative_position, bidirectional=True, n_buckets=32, max_distance=128):
    def one(offset):
        n = n_buckets // 2 if bidirectional else n_buckets
        distance = abs(offset) if bidirectional else max(0, -offset)
        exact, upper = n // 2, n if bidirectional and offset > 0 else 0
        if distance < exact:
            return upper + distance
        return upper + min(n - 1, exact + int(math.log(distance / exact, max_distance / exact) * (n - exact)))

    return torch.tensor([one(offset) for offset in relative_position.flatten().tolist()]).view(relative_position.shape)


@styles("relative_position_bucket", "where the buckets begin, and torch.bucketize")
def bucket_by_bucketize(offsets, two_sided=True, buckets=32, furthest=128):
    n = buckets // 2 if two_sided else buckets
    exact = n // 2
    begin = [*range(1, exact + 1), *(exact * (furthest / exact) ** (i / (n - exact)) for i in range(1, n - exact))]
    distance = offsets.abs() if two_sided else torch.relu(-offsets)
    bucket = torch.bucketize(distance.double(), torch.tensor(begin, dtype=torch.float64), right=True)
    return torch.where(offsets > 0, bucket + n, bucket) if two_sided else bucket


@styles("relative_position_bucket", "numpy, log2, minimum")
def bucket_by_numpy(relative_position, bidirectional=True, n_buckets=32, max_distance=128):
    offset = relative_position.numpy()
    n = n_buckets >> bidirectional
    distance = np.abs(offset) if bidirectional else np.maximum(-offset, 0)
    exact = n // 2
    growth = np.log2(np.maximum(distance, exact) / exact) / np.log2(max_distance / exact)
    far = np.minimum(exact + np.floor(growth * (n - exact)).astype(np.int64), n - 1)
    return torch.from_numpy(np.where(distance < exact, distance, far) + (offset > 0) * n * bidirectional)


ALTERNATIVES = styles.found
