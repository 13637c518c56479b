"""Seven silent bugs, to be planted into a GPT: each runs, trains, and shows a loss curve that looks better than the right one.

Shapes: B batch, T positions, H heads, K width of one head, D model width.
"""

import math

import torch
from torch import nn

BUGS = {
    "no scale": "scores not divided by √d_k",
    "view without transpose": "view(B, H, T, K), and no transpose(1, 2)",
    "mask after the softmax": "softmax(scores) * mask",
    "softmax over the queries": "softmax(scores, dim=-2)",
    "norm over the sequence": "LayerNorm over dim=-2",
    "no mask": "block(x), without the causal mask",
    "labels unshifted": "labels = inputs",
}


class Attention(nn.Module):
    """Multi-head attention, with one of the bugs in it; it takes the layers of a right one."""

    def __init__(self, right, n_heads, bug):
        super().__init__()
        self.W_Q, self.W_K, self.W_V, self.W_O = right.W_Q, right.W_K, right.W_V, right.W_O
        self.n_heads, self.bug = n_heads, bug

    def forward(self, x, context=None, mask=None):
        """x: (B, T, D) tokens; returns the outputs (B, T, D) and the weights (B, H, T, T)."""
        q, k, v = (self._split(layer(x)) for layer in (self.W_Q, self.W_K, self.W_V))
        scores = q @ k.mT / (1.0 if self.bug == "no scale" else math.sqrt(q.shape[-1]))
        if self.bug == "mask after the softmax":
            weights = scores.softmax(-1) * mask
        else:
            hidden = scores if self.bug == "no mask" else scores.masked_fill(~mask, -math.inf)
            weights = hidden.softmax(-2 if self.bug == "softmax over the queries" else -1)
        output = weights @ v  # (B, H, T, K)
        return self.W_O(output.transpose(1, 2).flatten(2)), weights

    def _split(self, x):
        B, T, D = x.shape
        if self.bug == "view without transpose":
            return x.view(B, self.n_heads, T, D // self.n_heads)
        return x.view(B, T, self.n_heads, D // self.n_heads).transpose(1, 2)


class SequenceNorm(nn.Module):
    """LayerNorm, but over the positions: each token's numbers depend on the tokens that come later."""

    def __init__(self, right):
        super().__init__()
        self.weight, self.bias = right.weight, right.bias

    def forward(self, x):
        """x: (B, T, D) tokens; returns (B, T, D)."""
        centred = x - x.mean(-2, keepdim=True)
        return centred / (centred.square().mean(-2, keepdim=True) + 1e-5).sqrt() * self.weight + self.bias


def plant(model, bug):
    """Put that bug into every block of a GPT, in place; "labels unshifted" is no bug of the model, and changes nothing."""
    for block in model.blocks:
        if bug == "norm over the sequence":
            block.norm_1, block.norm_2 = SequenceNorm(block.norm_1), SequenceNorm(block.norm_2)
        elif bug in BUGS:
            block.attention = Attention(block.attention, model.config.n_heads, bug)
    return model


@torch.no_grad()
def prefix_loss(model, tokens):
    """The loss when each token is predicted from the true tokens before it and nothing else: the mean of -log p, over all positions.

    tokens: (B, S) integers
    """
    model.eval()
    losses = []
    for t in range(1, tokens.shape[1]):
        last = model(tokens[:, :t])[:, -1]  # the model has never seen what comes after
        losses.append(nn.functional.cross_entropy(last, tokens[:, t]))
    return torch.stack(losses).mean().item()
