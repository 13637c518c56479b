"""Module 02 beside torch's own multi-head attention, and what its exercises promise."""

import pytest
import torch
from torch import nn

from solutions.attention import causal_mask, combine_masks, padding_mask
from solutions.multi_head import GroupedQueryAttention, MultiHeadAttention, load_torch_mha, merge_heads, repeat_kv, split_heads

B, T, S, D, H = 3, 5, 7, 12, 4


@pytest.fixture(params=[True, False], ids=["bias", "no bias"])
def pair(request):
    """torch's layer and ours with the same weights, in float64."""
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(D, H, bias=request.param, batch_first=True).double()
    for parameter in theirs.parameters():  # torch starts its biases at 0
        nn.init.normal_(parameter, std=0.5)
    mine = MultiHeadAttention(D, H, bias=request.param).double()
    load_torch_mha(mine, theirs)
    return mine, theirs


def masks():
    padding = padding_mask(torch.tensor([7, 2, 4]), S)
    return {"none": None, "causal": causal_mask(T, S), "padding": padding, "both": combine_masks(causal_mask(T, S), padding)}


@pytest.mark.parametrize("mask", masks().values(), ids=masks())
def test_outputs_weights_and_gradients_are_those_of_torch(pair, mask):
    mine, theirs = pair
    x, context = (torch.randn(B, n, D, dtype=torch.float64, requires_grad=True) for n in (T, S))
    hidden = None if mask is None else ~mask.expand(B, T, S).repeat_interleave(H, dim=0)  # torch: True = hidden, (B·H, T, S)
    results = mine(x, context, mask), theirs(x, context, context, attn_mask=hidden, average_attn_weights=False)
    gradients = [torch.autograd.grad(output.square().sum(), [x, context]) for output, _ in results]
    for own, right in zip([*results[0], *gradients[0]], [*results[1], *gradients[1]], strict=True):
        torch.testing.assert_close(own, right, rtol=0, atol=1e-10)


def test_self_attention_is_attention_to_oneself(pair):
    mine, theirs = pair
    x = torch.randn(B, T, D, dtype=torch.float64)
    for own, right in zip(mine(x), theirs(x, x, x, average_attn_weights=False), strict=True):
        torch.testing.assert_close(own, right, rtol=0, atol=1e-10)


def test_grouped_attention_with_as_many_groups_as_heads_is_multi_head_attention():
    torch.manual_seed(0)
    multi, grouped = MultiHeadAttention(D, H, bias=False).double(), GroupedQueryAttention(D, H, H).double()
    grouped.load_state_dict(multi.state_dict())
    x = torch.randn(B, T, D, dtype=torch.float64)
    for own, right in zip(grouped(x, causal_mask(T)), multi(x, mask=causal_mask(T)), strict=True):
        torch.testing.assert_close(own, right, rtol=0, atol=1e-12)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_grouped_attention_is_that_of_torch(groups):
    torch.manual_seed(0)
    grouped = GroupedQueryAttention(D, H, groups).double()
    x = torch.randn(B, T, D, dtype=torch.float64)
    q, k, v = split_heads(grouped.W_Q(x), H), split_heads(grouped.W_K(x), groups), split_heads(grouped.W_V(x), groups)
    right = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    torch.testing.assert_close(grouped(x, causal_mask(T))[0], grouped.W_O(merge_heads(right)), rtol=0, atol=1e-12)


def test_merging_undoes_splitting_and_repeating_once_does_nothing():
    x = torch.randn(B, T, D)
    assert torch.equal(merge_heads(split_heads(x, H)), x)
    assert torch.equal(repeat_kv(split_heads(x, H), 1), split_heads(x, H))
