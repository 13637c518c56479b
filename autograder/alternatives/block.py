"""Right answers of module 04 in other styles: torch's own pieces where allowed, rsqrt and powers, other structures and private names."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from autograder.alternatives import Styles
from solutions.block import FeedForward as GivenFeedForward
from solutions.block import LayerNorm as GivenLayerNorm
from solutions.block import gelu as given_gelu
from solutions.multi_head import MultiHeadAttention

styles = Styles()


@styles("LayerNorm", "var with unbiased=False, rsqrt")
class NormByVar(nn.Module):
    def __init__(self, dim, epsilon=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.e = epsilon

    def forward(self, tokens):
        mu = tokens.mean(dim=-1, keepdim=True)
        var = tokens.var(dim=-1, keepdim=True, unbiased=False)
        return (tokens - mu) * torch.rsqrt(var + self.e) * self.weight + self.bias


@styles("LayerNorm", "var_mean, addcmul")
class NormByVarMean(nn.Module):
    def __init__(self, d, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.register_parameter("weight", nn.Parameter(torch.full((d,), 1.0)))
        self.register_parameter("bias", nn.Parameter(torch.full((d,), 0.0)))

    def forward(self, x):
        var, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
        return torch.addcmul(self.bias, (x - mean) / torch.sqrt(var + self.eps), self.weight)


@styles("LayerNorm", "einsum over a flattened batch, std squared again")
class NormFlat(nn.Module):
    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.d_model, self.eps = d_model, eps
        self.weight, self.bias = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model))

    def forward(self, x):
        rows = x.reshape(-1, self.d_model)
        rows = rows - rows.sum(1)[:, None] / self.d_model
        var = torch.einsum("nd,nd->n", rows, rows) / self.d_model
        rows = rows / ((var + self.eps) ** 0.5)[:, None]
        return (rows * self.weight + self.bias).view(*x.shape)


@styles("RMSNorm", "rsqrt of pow(2)")
class RootMeanSquare(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        return self._norm(x) * self.weight


@styles("RMSNorm", "by the length of the vector")
class RootByLength(nn.Module):
    def __init__(self, d, epsilon=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))
        self.epsilon = epsilon

    def forward(self, h):
        squares = (h * h).sum(dim=-1, keepdim=True) / h.size(-1)
        return self.weight * (h / (squares + self.epsilon) ** 0.5)


@styles("RMSNorm", "einsum")
class RootByEinsum(nn.Module):
    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x):
        scale = (torch.einsum("...d,...d->...", x, x) / x.shape[-1] + self.eps).rsqrt()
        return torch.einsum("...d,...,d->...d", x, scale, self.weight)


@styles("gelu", "distribution function, powers written out")
def gelu_by_ndtr(x, approximate="none"):
    if approximate == "none":
        return x * torch.special.ndtr(x)
    inner = (2 / torch.pi) ** 0.5 * (x + 0.044715 * torch.pow(x, 3))
    return x / 2 * (1 + inner.tanh())


@styles("gelu", "erfc, and the tanh as a sigmoid")
def gelu_by_erfc(z, approximate="none"):
    if approximate == "tanh":
        return z * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (z + 0.044715 * z * z * z))
    return z * torch.erfc(-z * math.sqrt(0.5)) / 2


@styles("gelu", "a Normal of torch.distributions")
def gelu_by_normal(x, approximate="none"):
    if approximate == "none":
        return x * torch.distributions.Normal(0.0, 1.0, validate_args=False).cdf(x)
    return 0.5 * x * (1.0 + torch.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))


@styles("FeedForward", "F.gelu, explicit None")
class FeedForwardByF(nn.Module):
    def __init__(self, d_model, d_ff=None, activation=None):
        super().__init__()
        if d_ff is None:
            d_ff = 4 * d_model
        self.W_1, self.W_2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.act = F.gelu if activation is None else activation

    def forward(self, x):
        hidden = self.W_1(x)
        hidden = self.act(hidden)
        return self.W_2(hidden)


@styles("FeedForward", "a sequence beside the names")
class FeedForwardSequential(nn.Module):
    def __init__(self, width, inner=None, activation=None):
        super().__init__()
        inner = inner or width * 4
        self.W_1 = nn.Linear(width, inner)
        self.W_2 = nn.Linear(inner, width)
        self.steps = [self.W_1, activation or nn.GELU(), self.W_2]

    def forward(self, x):
        for step in self.steps:
            x = step(x)
        return x


@styles("FeedForward", "matrix products")
class FeedForwardByMatmul(GivenFeedForward):
    def forward(self, x):
        hidden = self.activation(x @ self.W_1.weight.T + self.W_1.bias)
        return hidden @ self.W_2.weight.T + self.W_2.bias


@styles("SwiGLU", "F.silu")
class SwigluByF(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.W_gate = nn.Linear(dim, hidden, bias=False)
        self.W_up = nn.Linear(dim, hidden, bias=False)
        self.W_down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        return self.W_down(F.silu(self.W_gate(x)) * self.W_up(x))


@styles("SwiGLU", "parameters, einsum")
class SwigluByEinsum(nn.Module):
    def __init__(self, D, width):
        super().__init__()
        self.W_gate = nn.Parameter(torch.randn(width, D))
        self.W_up = nn.Parameter(torch.randn(width, D))
        self.W_down = nn.Parameter(torch.randn(D, width))

    def forward(self, x):
        gate, up = torch.einsum("...d,fd->...f", x, self.W_gate), torch.einsum("...d,fd->...f", x, self.W_up)
        return torch.einsum("...f,df->...d", gate / (1 + torch.exp(-gate)) * up, self.W_down)


@styles("SwiGLU", "parameters the other way round")
class SwigluTransposed(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.W_gate = nn.Parameter(torch.zeros(d_model, d_ff))
        self.W_up = nn.Parameter(torch.zeros(d_model, d_ff))
        self.W_down = nn.Parameter(torch.zeros(d_ff, d_model))
        self.silu = nn.SiLU()

    def forward(self, x):
        return (self.silu(x @ self.W_gate) * (x @ self.W_up)) @ self.W_down


@styles("dropout", "bernoulli, where")
def dropout_by_bernoulli(x, p, training=True):
    if training:
        kept = torch.bernoulli(torch.full_like(x, 1 - p)).bool()
        return torch.where(kept, x / (1 - p), 0.0)
    return x


@styles("dropout", "masked_fill on a copy")
def dropout_by_fill(t, prob, training=True):
    if not training or prob == 0:
        return t
    return t.masked_fill(torch.rand(t.shape) < prob, 0) * (1 / (1 - prob))


@styles("dropout", "numpy's generator")
def dropout_by_numpy(x, p, training=True):
    if not training:
        return x.clone()
    keep = torch.from_numpy(np.random.random(tuple(x.shape)) >= p)
    return x * keep.to(x.dtype) / (1 - p)


class Residual(nn.Module):
    """The Annotated Transformer's sub-layer connection."""

    def __init__(self, norm, pre, p):
        super().__init__()
        self.norm, self.pre, self.drop = norm, pre, nn.Dropout(p)

    def forward(self, x, sublayer):
        if self.pre:
            return x + self.drop(sublayer(self.norm(x)))
        return self.norm(x + self.drop(sublayer(x)))


@styles("TransformerBlock", "torch's norm and dropout")
class BlockOfTorch(nn.Module):
    def __init__(self, d_model, n_heads, d_ff=None, norm="pre", dropout=0.0, activation=None, eps=1e-5):
        super().__init__()
        if norm != "pre" and norm != "post":
            raise ValueError("pre or post?")
        self.pre = norm == "pre"
        self.norm_1, self.norm_2 = nn.LayerNorm(d_model, eps=eps), nn.LayerNorm(d_model, eps=eps)
        self.attention = MultiHeadAttention(d_model, n_heads, dropout=dropout)
        self.feed_forward = GivenFeedForward(d_model, d_ff, activation)
        self.drop = nn.Dropout(dropout)

    def forward(self, x, mask=None):
        normed = self.norm_1(x) if self.pre else x
        attended, _ = self.attention(normed, mask=mask)
        x = x + self.drop(attended)
        x = x if self.pre else self.norm_1(x)
        normed = self.norm_2(x) if self.pre else x
        x = x + self.drop(self.feed_forward(normed))
        return x if self.pre else self.norm_2(x)


@styles("TransformerBlock", "sub-layer connections, kept out of the parameters' names")
class BlockOfConnections(nn.Module):
    def __init__(self, d, heads, d_ff=None, norm="pre", p=0.0, act=None, eps=1e-5):
        super().__init__()
        if norm not in {"pre", "post"}:
            raise ValueError(norm)
        self.attention = MultiHeadAttention(d, heads, True, p)
        self.feed_forward = GivenFeedForward(d, d_ff, act or given_gelu)
        self.norm_1, self.norm_2 = GivenLayerNorm(d, eps), GivenLayerNorm(d, eps)
        self.connections = [lambda: Residual(self.norm_1, norm == "pre", p), lambda: Residual(self.norm_2, norm == "pre", p)]

    def forward(self, x, mask=None):
        first, second = (make().train(self.training) for make in self.connections)
        return second(first(x, lambda z: self.attention(z, None, mask)[0]), self.feed_forward)


@styles("TransformerBlock", "two methods, F.dropout")
class BlockOfMethods(nn.Module):
    def __init__(self, d_model, n_heads, d_ff=None, norm="pre", dropout=0.0, activation=None, eps=1e-5):
        super().__init__()
        self.forwards = {"pre": self._pre, "post": self._post}
        if norm not in self.forwards:
            raise ValueError(f"unknown norm {norm}")
        self.kind, self.p = norm, dropout
        self.norm_1 = GivenLayerNorm(d_model, eps)
        self.norm_2 = GivenLayerNorm(d_model, eps)
        self.attention = MultiHeadAttention(d_model, n_heads, dropout=dropout)
        self.feed_forward = GivenFeedForward(d_model, d_ff, activation)

    def _drop(self, z):
        return F.dropout(z, self.p, training=self.training)

    def _pre(self, x, mask):
        x = x + self._drop(self.attention(self.norm_1(x), mask=mask)[0])
        return x + self._drop(self.feed_forward(self.norm_2(x)))

    def _post(self, x, mask):
        x = self.norm_1(x + self._drop(self.attention(x, mask=mask)[0]))
        return self.norm_2(x + self._drop(self.feed_forward(x)))

    def forward(self, x, mask=None):
        return self.forwards[self.kind](x, mask)


@styles("scaled_init", "by the kind of module")
def init_by_modules(model, n_layers):
    for name, child in model.named_modules():
        if isinstance(child, nn.Linear):
            small = name.split(".")[-1] in ("W_O", "W_2")
            nn.init.normal_(child.weight, mean=0.0, std=0.02 * (2 * n_layers) ** -0.5 if small else 0.02)
            if child.bias is not None:
                nn.init.zeros_(child.bias)
        elif isinstance(child, nn.LayerNorm):
            nn.init.ones_(child.weight)
            nn.init.zeros_(child.bias)
        else:
            for _, parameter in child.named_parameters(recurse=False):
                nn.init.normal_(parameter, std=0.02)


@styles("scaled_init", "no_grad and copy_, returns the module")
@torch.no_grad()
def init_by_copy(module, n_layers):
    for name, p in module.named_parameters():
        if name.split(".")[-1] == "bias":
            p.zero_()
        elif p.ndim >= 2:
            p.copy_(torch.randn(p.shape) * 0.02)
            if "W_O" in name or "W_2" in name:
                p /= math.sqrt(2 * n_layers)
    return module


@styles("scaled_init", "through .data, twice over")
def init_by_data(module, n_layers):
    for name, p in module.named_parameters():
        if "bias" in name:
            p.data = torch.zeros_like(p)
        elif len(p.shape) > 1:
            p.data = torch.empty_like(p).normal_(0, 0.02)
    for name, p in module.named_parameters():
        if name.endswith("W_O.weight") or name.endswith("W_2.weight"):
            p.data.normal_(0, 0.02 / (2 * n_layers) ** 0.5)


@styles("count_parameters", "a loop over shapes")
def count_by_loop(model):
    total = 0
    for p in model.parameters():
        total += math.prod(p.shape)
    return total


@styles("count_parameters", "a tensor")
def count_by_tensor(model):
    return sum((torch.tensor(p.shape).prod() for p in model.parameters()), torch.tensor(0))


@styles("count_parameters", "numpy, by identity")
def count_by_numpy(model):
    own = {id(p): p for m in model.modules() for p in m._parameters.values() if p is not None}
    return int(np.sum([p.nelement() for p in own.values()]))


ALTERNATIVES = styles.found
