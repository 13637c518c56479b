"""Module 04 against what others compute: torch's own norms and encoder layer, Llama's feed-forward network, GPT-2's initialisation."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from autograder.sandbox import probes
from solutions import block
from solutions.attention import causal_mask
from solutions.multi_head import load_torch_mha

CLOSE = {"rtol": 0, "atol": 1e-10}


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def gradients(output, *inputs):
    """The gradients of a weighted sum of the output."""
    return torch.autograd.grad((output * draw(*output.shape, seed=9)).sum(), inputs)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize(("mine", "theirs"), [(block.LayerNorm(7), nn.LayerNorm(7)), (block.RMSNorm(7), nn.RMSNorm(7, eps=1e-6))])
def test_norms_are_those_of_torch(mine, theirs, scale):
    mine, theirs = mine.double(), theirs.double()
    with torch.no_grad():
        for seed, parameter in enumerate(theirs.parameters()):
            parameter.copy_(draw(7, seed=seed))
    mine.load_state_dict(theirs.state_dict())
    x = (draw(2, 3, 5, 7) * scale).requires_grad_()
    torch.testing.assert_close(mine(x), theirs(x), **CLOSE)
    for found, right in zip(gradients(mine(x), x, *mine.parameters()), gradients(theirs(x), x, *theirs.parameters())):
        torch.testing.assert_close(found, right, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_is_that_of_torch(approximate):
    x = torch.linspace(-12, 12, 4001, dtype=torch.float64)
    torch.testing.assert_close(block.gelu(x, approximate), F.gelu(x, approximate=approximate), **CLOSE)


def test_the_two_gelus_differ_as_the_lesson_says():
    x = torch.linspace(-6, 6, 100_001, dtype=torch.float64)
    assert (block.gelu(x) - block.gelu(x, "tanh")).abs().max().item() == pytest.approx(4.7e-4, abs=0.1e-4)


def torch_layer(mine, activation, norm):
    """An nn.TransformerEncoderLayer, its weights copied into `mine`."""
    D, F = mine.feed_forward.W_1.weight.shape[::-1]
    theirs = nn.TransformerEncoderLayer(D, mine.attention.n_heads, F, 0.0, activation, batch_first=True, norm_first=norm == "pre").double()
    with torch.no_grad():
        for seed, parameter in enumerate(theirs.parameters()):
            parameter.copy_(draw(*parameter.shape, seed=seed) * 0.5)
    load_torch_mha(mine.attention, theirs.self_attn)
    pairs = {"norm_1": "norm1", "norm_2": "norm2", "feed_forward.W_1": "linear1", "feed_forward.W_2": "linear2"}
    for own, other in pairs.items():
        mine.get_submodule(own).load_state_dict(theirs.get_submodule(other).state_dict())
    return theirs


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize(("activation", "function"), [("gelu", None), ("relu", torch.relu)])
@pytest.mark.parametrize("mask", [None, causal_mask(5)], ids=["all", "causal"])
def test_the_block_is_torchs_encoder_layer(norm, activation, function, mask):
    mine = block.TransformerBlock(12, 3, 20, norm=norm, activation=function).double()
    theirs = torch_layer(mine, activation, norm)
    x = draw(2, 5, 12, seed=50).requires_grad_()
    right = theirs(x, src_mask=None if mask is None else ~mask)  # there, True means *may not*
    torch.testing.assert_close(mine(x, mask), right, **CLOSE)
    torch.testing.assert_close(gradients(mine(x, mask), x)[0], gradients(right, x)[0], rtol=1e-9, atol=1e-10)


def test_swiglu_is_llamas():
    llama = pytest.importorskip("transformers.models.llama.modeling_llama", reason="transformers is not installed")
    from transformers import LlamaConfig

    theirs = llama.LlamaMLP(LlamaConfig(hidden_size=6, intermediate_size=10, num_attention_heads=2)).double()
    mine = block.SwiGLU(6, 10).double()
    for own, other in (("W_gate", "gate_proj"), ("W_up", "up_proj"), ("W_down", "down_proj")):
        mine.get_submodule(own).load_state_dict(theirs.get_submodule(other).state_dict())
    torch.testing.assert_close(mine(draw(2, 3, 6)), theirs(draw(2, 3, 6)), **CLOSE)


def test_the_initialisation_is_gpt_2s():
    gpt2 = pytest.importorskip("transformers.models.gpt2.modeling_gpt2", reason="transformers is not installed")
    from transformers import GPT2Config

    torch.manual_seed(0)
    theirs = gpt2.GPT2Model(GPT2Config(vocab_size=50, n_positions=20, n_embd=96, n_layer=3, n_head=4))
    blocks = nn.ModuleList(block.TransformerBlock(96, 4) for _ in range(3))
    block.scaled_init(blocks, 3)
    for own, other in (("attention.W_O", "attn.c_proj"), ("feed_forward.W_1", "mlp.c_fc"), ("feed_forward.W_2", "mlp.c_proj")):
        mine, right = blocks[1].get_submodule(own), theirs.h[1].get_submodule(other)
        assert mine.weight.std().item() == pytest.approx(right.weight.std().item(), rel=0.03)
        assert not mine.bias.any() and not right.bias.any()
    assert blocks[0].attention.W_O.weight.std().item() == pytest.approx(0.02 / math.sqrt(6), rel=0.03)


def test_dropout_keeps_the_mean_and_is_silent_in_eval_mode():
    torch.manual_seed(0)
    assert block.dropout(torch.ones(200_000), 0.3).mean().item() == pytest.approx(1.0, abs=0.01)
    layer, x = block.TransformerBlock(8, 2, dropout=0.5), draw(2, 3, 8, dtype=torch.float32)
    assert not torch.equal(layer(x), layer(x))
    assert torch.equal(layer.eval()(x), layer(x))


@pytest.mark.parametrize("d", [8, 64, 768])
def test_a_block_has_12_d_squared_parameters_and_13_d_more(d):
    with torch.device("meta"):
        assert block.count_parameters(block.TransformerBlock(d, 8)) == 12 * d**2 + 13 * d


def test_a_typing_error_in_norm_is_no_other_model():
    with pytest.raises(ValueError, match="'Post'"):
        block.TransformerBlock(8, 2, norm="Post")


@pytest.mark.parametrize(
    ("mask", "found"), [(causal_mask(3), "none"), (None, "output 0 (by token 1), output 0 (by token 2), output 1 (by token 2)")]
)
def test_the_leak_probe_tells_which_outputs_see_the_future(mask, found):
    x, arguments = draw(2, 3, 8), {"x": draw(2, 3, 8), "mask": mask}
    torch.manual_seed(0)
    mine = block.TransformerBlock(8, 2).double().eval()
    assert probes.leaks(mine, arguments, ("output",), mine(x, mask)) == found
