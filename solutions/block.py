"""The transformer block: norms, the feed-forward network, dropout, and the residual stream that they hang on.

Pre-norm is GPT-2's order (Radford et al. 2019), post-norm that of Vaswani et al. 2017, sections 3.1 and 3.3.

Shapes: B batch, T positions, D model width, F feed-forward width; `...` is any number of leading axes.
Masks are boolean and True means *may attend*.
"""

import math

import torch
from torch import nn

from solutions.multi_head import MultiHeadAttention


class LayerNorm(nn.Module):
    """Shift and scale each token to mean 0 and variance 1, then by a learnt gain and bias (Ba et al. 2016).

    The variance is the mean of the squares (divided by D, not by D - 1), and eps is added to it, inside the root.

    weight: (D) gains, all 1 at the start
    bias: (D) biases, all 0 at the start
    """

    def __init__(self, d_model, eps=1e-5):
        """d_model: width D of a token; eps: what keeps a token of equal numbers from a division by 0."""
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))

    def forward(self, x):
        """Normalise each token on its own, over its D numbers.

        x: (..., D) tokens
        returns: (..., D)
        """
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.square().mean(-1, keepdim=True)  # (..., 1): one for each token
        return centred / (variance + self.eps).sqrt() * self.weight + self.bias


class RMSNorm(nn.Module):
    """Scale each token to a root mean square of 1, then by a learnt gain: no mean, no bias (Zhang and Sennrich 2019).

    eps is added to the mean of the squares, inside the root.

    weight: (D) gains, all 1 at the start
    """

    def __init__(self, d_model, eps=1e-6):
        """d_model: width D of a token; eps: what keeps a token of zeros from a division by 0."""
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x):
        """Rescale each token on its own, over its D numbers.

        x: (..., D) tokens
        returns: (..., D)
        """
        mean_square = x.square().mean(-1, keepdim=True)  # (..., 1): one for each token
        return x / (mean_square + self.eps).sqrt() * self.weight


def gelu(x, approximate="none"):
    """x Φ(x): a number times the probability that a standard normal number is smaller (Hendrycks and Gimpel 2016).

    x: (...) floating-point tensor
    approximate: "none" = exact, by erf (BERT); "tanh" = x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³))) (GPT-2)
    returns: (...) tensor of the dtype of x

    >>> gelu(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.1587,  0.0000,  0.8413])
    """
    if approximate == "tanh":
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))  # Φ(x) = (1 + erf(x / √2)) / 2


class FeedForward(nn.Module):
    """Two linear layers with an activation in between: each token is processed on its own, in a wider space.

    W_1: (F, D) weight and (F) bias, an nn.Linear in torch's (out, in) layout
    W_2: (D, F) weight and (D) bias, an nn.Linear
    """

    def __init__(self, d_model, d_ff=None, activation=None):
        """d_model: width D of a token; d_ff: width F in between, None = 4 D; activation: a function, None = gelu."""
        super().__init__()
        self.activation = activation or gelu
        self.W_1 = nn.Linear(d_model, d_ff or 4 * d_model)
        self.W_2 = nn.Linear(d_ff or 4 * d_model, d_model)

    def forward(self, x):
        """Widen, bend, narrow.

        x: (..., D) tokens
        returns: (..., D)
        """
        return self.W_2(self.activation(self.W_1(x)))  # (..., D) -> (..., F) -> (..., D)


class SwiGLU(nn.Module):
    """A gated feed-forward network: W_down(silu(W_gate x) ⊙ W_up x), where silu(z) = z · sigmoid(z) (Shazeer 2020).

    W_gate, W_up: (F, D) weights, without bias; the gate is the one that goes through silu
    W_down: (D, F) weight, without bias
    """

    def __init__(self, d_model, d_ff):
        """d_model: width D of a token; d_ff: width F in between."""
        super().__init__()
        self.W_gate = nn.Linear(d_model, d_ff, bias=False)
        self.W_up = nn.Linear(d_model, d_ff, bias=False)
        self.W_down = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x):
        """Let one half of what is computed decide how much of the other half passes.

        x: (..., D) tokens
        returns: (..., D)
        """
        gate = self.W_gate(x)  # (..., F)
        return self.W_down(gate * torch.sigmoid(gate) * self.W_up(x))


def dropout(x, p, training=True):
    """Set each number to 0 with probability p, and divide the others by 1 - p so that the mean stays (Srivastava et al. 2014).

    x: (...) floating-point tensor
    p: probability of being dropped, 0 ≤ p < 1
    training: False = x comes back as it is
    returns: (...) tensor of the dtype of x

    >>> dropout(torch.tensor([1.0, 2.0, 3.0]), 0.5, training=False)
    tensor([1., 2., 3.])
    """
    if not training or p == 0:
        return x
    keep = torch.rand_like(x) >= p  # a draw of its own for each number
    return x * keep / (1 - p)


class TransformerBlock(nn.Module):
    """Attention between the tokens, then a feed-forward network in each, both added to what came in.

    norm="pre":  x = x + attention(norm_1(x)), then x + feed_forward(norm_2(x))
    norm="post": x = norm_1(x + attention(x)), then norm_2(x + feed_forward(x))

    In training, dropout acts on the attention weights and on what each sub-layer gives, before it is added.

    norm_1, norm_2: LayerNorm
    attention: MultiHeadAttention, with bias
    feed_forward: FeedForward
    """

    def __init__(self, d_model, n_heads, d_ff=None, norm="pre", dropout=0.0, activation=None, eps=1e-5):
        """d_model, n_heads: as in MultiHeadAttention; d_ff, activation: as in FeedForward; eps: of both norms.

        Raises ValueError where norm is neither "pre" nor "post".
        """
        super().__init__()
        if norm not in ("pre", "post"):
            raise ValueError(f'norm is "pre" or "post"; got {norm!r}')
        self.norm, self.dropout = norm, dropout
        self.norm_1 = LayerNorm(d_model, eps)
        self.attention = MultiHeadAttention(d_model, n_heads, dropout=dropout)
        self.norm_2 = LayerNorm(d_model, eps)
        self.feed_forward = FeedForward(d_model, d_ff, activation)

    def forward(self, x, mask=None):
        """One step along the residual stream.

        x: (B, T, D) tokens
        mask: boolean tensor that broadcasts to (B, T, T), True = may attend; None = no mask
        returns: (B, T, D)
        """
        if self.norm == "pre":
            x = x + dropout(self.attention(self.norm_1(x), mask=mask)[0], self.dropout, self.training)
            return x + dropout(self.feed_forward(self.norm_2(x)), self.dropout, self.training)
        x = self.norm_1(x + dropout(self.attention(x, mask=mask)[0], self.dropout, self.training))
        return self.norm_2(x + dropout(self.feed_forward(x), self.dropout, self.training))


def scaled_init(module, n_layers):
    """GPT-2's initialisation, in place: small weights, and smaller ones where they write into the residual stream.

    Every weight matrix (embeddings too) is drawn from a normal distribution of mean 0 and standard deviation 0.02; those
    named W_O.weight and W_2.weight, at any depth, of standard deviation 0.02 / √(2 n_layers). Every bias is 0. The gains
    of the norms stay 1.

    module: an nn.Module, a whole model or a part of one
    n_layers: how many blocks the whole model has; each of them writes into the stream twice
    returns: None; it is the module that changes
    """
    for name, parameter in module.named_parameters():
        residual = name.endswith(("W_O.weight", "W_2.weight"))
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * n_layers) if residual else 0.02)


def count_parameters(module):
    """How many numbers a module has to learn: all its parameters, those of its parts too, shared ones once, buffers never.

    module: an nn.Module
    returns: an int

    >>> count_parameters(nn.Linear(3, 2))
    8
    """
    return sum(parameter.numel() for parameter in module.parameters())
