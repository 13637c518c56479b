"""Multi-head attention: several small attentions side by side, each with its own weights (Vaswani et al. 2017, section 3.2.2).

Shapes: B batch, T queries, S keys, D model width, H heads, K width of one head (D = H·K), G heads of keys and values,
n query heads to each of them (H = G·n). Masks are boolean and True means *may attend*.
"""

import torch
from torch import nn

from solutions.attention import attention_scores, masked_softmax, scaled_dot_product_attention


def split_heads(x, n_heads):
    """Cut the vector of every token into n_heads pieces; the heads become an axis of their own, before the tokens.

    Head h gets the components h·K, …, (h + 1)·K - 1 of every token.

    x: (B, T, D) tensor
    n_heads: number of heads H; it divides D
    returns: (B, H, T, K) tensor, K = D / H

    >>> split_heads(torch.tensor([[[1, 2, 3, 4], [5, 6, 7, 8]]]), 2)
    tensor([[[[1, 2],
              [5, 6]],
    <BLANKLINE>
             [[3, 4],
              [7, 8]]]])
    """
    B, T, D = x.shape
    return x.view(B, T, n_heads, D // n_heads).transpose(1, 2)  # (B, T, H, K) -> (B, H, T, K)


def merge_heads(x):
    """Put the pieces of every token side by side again: what split_heads did, undone.

    x: (B, H, T, K) tensor
    returns: (B, T, D) tensor, D = H·K

    >>> merge_heads(torch.tensor([[[[1, 2], [5, 6]], [[3, 4], [7, 8]]]]))
    tensor([[[1, 2, 3, 4],
             [5, 6, 7, 8]]])
    """
    B, H, T, K = x.shape
    return x.transpose(1, 2).reshape(B, T, H * K)  # (B, T, H, K) -> (B, T, D)


class MultiHeadAttention(nn.Module):
    """Attention in H heads at once: each compares D / H features of its own, and an output projection mixes what they found.

    W_Q, W_K, W_V, W_O: nn.Linear(D, D), with a bias each unless bias=False; head h has the rows h·K, …, (h + 1)·K - 1 of
    the first three, and the columns of the same numbers of W_O
    """

    def __init__(self, d_model, n_heads, bias=True, dropout=0.0):
        """d_model: width D of a token; n_heads: number of heads H; dropout: the probability with which a weight is dropped.

        Raises ValueError where n_heads does not divide d_model.
        """
        super().__init__()
        if d_model % n_heads:
            raise ValueError(f"d_model = {d_model} can't be cut into n_heads = {n_heads} equal pieces")
        self.n_heads = n_heads
        self.W_Q = nn.Linear(d_model, d_model, bias=bias)
        self.W_K = nn.Linear(d_model, d_model, bias=bias)
        self.W_V = nn.Linear(d_model, d_model, bias=bias)
        self.W_O = nn.Linear(d_model, d_model, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, context=None, mask=None):
        """Let every token of x look at the tokens of the context, in every head.

        In training, dropout acts on the weights, after the softmax.

        x: (B, T, D) tokens, which ask
        context: (B, S, D) tokens, which give the keys and the values; None = x itself
        mask: boolean tensor that broadcasts to (B, T, S), of two or three axes, True = may attend; None = no mask.
            It is the same for all heads.
        returns: the outputs (B, T, D) and the weights (B, H, T, S) that they were made with
        """
        context = x if context is None else context
        q = split_heads(self.W_Q(x), self.n_heads)  # (B, H, T, K)
        k = split_heads(self.W_K(context), self.n_heads)  # (B, H, S, K)
        v = split_heads(self.W_V(context), self.n_heads)  # (B, H, S, K)
        mask = None if mask is None else mask.unsqueeze(-3)  # (B, 1, T, S): the 1 stands for the heads
        weights = self.dropout(masked_softmax(attention_scores(q, k), mask))  # (B, H, T, S)
        return self.W_O(merge_heads(weights @ v)), weights


def load_torch_mha(mine, theirs):
    """Copy the weights of torch's nn.MultiheadAttention into a MultiHeadAttention of the same size, in place.

    torch keeps three of the weights in one, in_proj_weight (3D, D): the rows of W_Q, then those of W_K, then those of W_V;
    and their biases in in_proj_bias (3D). W_O is its out_proj, an nn.Linear.

    mine: MultiHeadAttention of width D; it gets copies, and shares nothing with theirs
    theirs: nn.MultiheadAttention of width D, which stays as it is; without biases (in_proj_bias is None) where mine has none
    returns: nothing
    """
    layers = mine.W_Q, mine.W_K, mine.W_V
    with torch.no_grad():
        for layer, weight in zip(layers, theirs.in_proj_weight.chunk(3), strict=True):
            layer.weight.copy_(weight)
        mine.W_O.weight.copy_(theirs.out_proj.weight)
        if theirs.in_proj_bias is not None:
            for layer, bias in zip(layers, theirs.in_proj_bias.chunk(3), strict=True):
                layer.bias.copy_(bias)
            mine.W_O.bias.copy_(theirs.out_proj.bias)


def repeat_kv(x, n_repeats):
    """Repeat every head of keys (or of values), so that each of the n query heads of its group finds it at its own place.

    Query heads 0, …, n - 1 share head 0, the next n share head 1: heads 0, 1 become 0, 0, 1, 1.

    x: (B, G, S, K) keys or values
    n_repeats: number n of query heads to each
    returns: (B, G·n, S, K) tensor

    >>> repeat_kv(torch.tensor([[[[1, 2]], [[3, 4]]]]), 2)[0, :, 0]
    tensor([[1, 2],
            [1, 2],
            [3, 4],
            [3, 4]])
    """
    return x.repeat_interleave(n_repeats, dim=1)  # (B, G, S, K) -> (B, G·n, S, K)


class GroupedQueryAttention(nn.Module):
    """Multi-head attention in which several query heads share one head of keys and values (Ainslie et al. 2023). No biases.

    W_Q, W_O: (D, D) weights, in torch's (out, in) layout
    W_K, W_V: (G·K, D) weights
    """

    def __init__(self, d_model, n_heads, n_kv_heads):
        """d_model: width D of a token; n_heads: number H of query heads; n_kv_heads: number G of heads of keys and values.

        Raises ValueError where n_heads does not divide d_model, or n_kv_heads does not divide n_heads.
        """
        super().__init__()
        if d_model % n_heads or n_heads % n_kv_heads:
            raise ValueError(f"{d_model} must be a multiple of n_heads = {n_heads}, and that of n_kv_heads = {n_kv_heads}")
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads
        d_k = d_model // n_heads
        self.W_Q = nn.Linear(d_model, d_model, bias=False)
        self.W_K = nn.Linear(d_model, n_kv_heads * d_k, bias=False)
        self.W_V = nn.Linear(d_model, n_kv_heads * d_k, bias=False)
        self.W_O = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x, mask=None):
        """Let every token of x look at the tokens of x, in every head.

        x: (B, T, D) tokens
        mask: boolean tensor that broadcasts to (B, T, T), of two or three axes, True = may attend; None = no mask
        returns: the outputs (B, T, D) and the weights (B, H, T, T)
        """
        n_repeats = self.n_heads // self.n_kv_heads
        q = split_heads(self.W_Q(x), self.n_heads)  # (B, H, T, K)
        k = repeat_kv(split_heads(self.W_K(x), self.n_kv_heads), n_repeats)  # (B, G, T, K) -> (B, H, T, K)
        v = repeat_kv(split_heads(self.W_V(x), self.n_kv_heads), n_repeats)  # (B, G, T, K) -> (B, H, T, K)
        mask = None if mask is None else mask.unsqueeze(-3)  # (B, 1, T, T)
        output, weights = scaled_dot_product_attention(q, k, v, mask)
        return self.W_O(merge_heads(output)), weights
