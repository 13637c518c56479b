"""The transformer of 2017 against torch's own, with the same random weights, in float64; and the dates that its lesson is about."""

import datetime

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from solutions.attention import causal_mask, padding_mask
from solutions.encoder_decoder import (
    DecoderBlock,
    EncoderBlock,
    EncoderDecoder,
    beam_search,
    greedy_decode,
    label_smoothing_loss,
    shift_right,
)
from solutions.positions import embed
from utils import dates

B, T, S, D, H, FF = 2, 5, 7, 12, 3, 20
NORMS = pytest.mark.parametrize("norm", ["post", "pre"])


def copy_attention(mine, theirs):
    weights, biases = theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3)
    for projection, weight, bias in zip((mine.W_Q, mine.W_K, mine.W_V), weights, biases, strict=True):
        projection.weight.data, projection.bias.data = weight.data, bias.data
    mine.W_O.load_state_dict(theirs.out_proj.state_dict())


def copy_block(mine, theirs):
    """The weights of one of torch's layers into an EncoderBlock or a DecoderBlock."""
    copy_attention(mine.attention, theirs.self_attn)
    if isinstance(mine, DecoderBlock):
        copy_attention(mine.cross_attention, theirs.multihead_attn)
        mine.norm_3.load_state_dict(theirs.norm3.state_dict())
    mine.norm_1.load_state_dict(theirs.norm1.state_dict())
    mine.norm_2.load_state_dict(theirs.norm2.state_dict())
    mine.feed_forward.W_1.load_state_dict(theirs.linear1.state_dict())
    mine.feed_forward.W_2.load_state_dict(theirs.linear2.state_dict())


def scrambled(module):
    """The module with weights in which nothing is 0 or 1, in float64 and eval mode."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, mean=0.2 if parameter.dim() == 1 else 0.0, std=0.4)
    return module.double().eval()


def tokens(*shape):
    return torch.randn(*shape, dtype=torch.float64)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@NORMS
def test_encoder_block_is_torchs(norm):
    theirs = scrambled(nn.TransformerEncoderLayer(D, H, FF, norm_first=norm == "pre", batch_first=True))
    mine = EncoderBlock(D, H, FF, norm).double().eval()
    copy_block(mine, theirs)
    x, mask = tokens(B, S, D), padding_mask(torch.tensor([S, 4]), S)
    expected = theirs(x, src_key_padding_mask=~mask[:, 0])
    torch.testing.assert_close(mine(x, mask)[mask[:, 0]], expected[mask[:, 0]], rtol=0, atol=1e-10)


@NORMS
def test_decoder_block_is_torchs(norm):
    theirs = scrambled(nn.TransformerDecoderLayer(D, H, FF, norm_first=norm == "pre", batch_first=True))
    mine = DecoderBlock(D, H, FF, norm).double().eval()
    copy_block(mine, theirs)
    x, memory, mask = tokens(B, T, D), tokens(B, S, D), padding_mask(torch.tensor([3, S]), S)
    expected = theirs(x, memory, tgt_mask=~causal_mask(T), memory_key_padding_mask=~mask[:, 0])  # torch's True = hidden
    torch.testing.assert_close(mine(x, memory, mask, causal_mask(T)), expected, rtol=0, atol=1e-10)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@NORMS
def test_the_whole_is_torchs(norm):
    theirs = scrambled(nn.Transformer(D, H, 2, 3, FF, norm_first=norm == "pre", batch_first=True))
    mine = EncoderDecoder(11, 9, D, H, 3, FF, norm).double().eval()
    mine.encoder = mine.encoder[:2]
    for stack, layers in ((mine.encoder, theirs.encoder.layers), (mine.decoder, theirs.decoder.layers)):
        for block, layer in zip(stack, layers, strict=True):
            copy_block(block, layer)
    mine.encoder_norm.load_state_dict(theirs.encoder.norm.state_dict())
    mine.decoder_norm.load_state_dict(theirs.decoder.norm.state_dict())
    source, target, mask = torch.randint(11, (B, S)), torch.randint(9, (B, T)), padding_mask(torch.tensor([S, 4]), S)
    hidden = theirs(
        embed(source, mine.source_embedding.weight), embed(target, mine.target_embedding.weight), tgt_mask=~causal_mask(T),
        src_key_padding_mask=~mask[:, 0], memory_key_padding_mask=~mask[:, 0],
    )  # fmt: skip
    torch.testing.assert_close(mine(source, target, mask), mine.output(hidden), rtol=0, atol=1e-10)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.6])
def test_label_smoothing_is_torchs(smoothing):
    logits, target = tokens(B, T, 6), torch.randint(6, (B, T))
    expected = F.cross_entropy(logits.transpose(1, 2), target, ignore_index=3, label_smoothing=smoothing)
    torch.testing.assert_close(label_smoothing_loss(logits, target, smoothing, pad=3), expected, rtol=0, atol=1e-12)


def test_a_sequence_is_decoded_alike_alone_and_in_a_padded_batch():
    model = scrambled(EncoderDecoder(11, 9, D, H, 2))
    lengths = torch.tensor([7, 3, 5])
    source = torch.randint(11, (3, S))
    together = greedy_decode(model, source, 1, 2, 10, padding_mask(lengths, S))
    for row, length, written in zip(source, lengths, together, strict=True):
        alone = greedy_decode(model, row[None, :length], 1, 2, 10)[0]
        assert written.tolist() == alone.tolist() + [0] * (len(written) - len(alone))


def test_one_beam_is_greedy_and_many_beams_are_never_worse():
    model = scrambled(EncoderDecoder(11, 6, D, H, 1))
    for _ in range(5):
        source = torch.randint(11, (1, S))
        greedy, score = beam_search(model, source, 1, 2, 6, n_beams=1, alpha=0.0)
        assert greedy.tolist() == greedy_decode(model, source, 1, 2, 6)[0].tolist()
        target = greedy[None]
        log_p = model(source, shift_right(target, 1)).log_softmax(-1).gather(-1, target[..., None]).sum()
        torch.testing.assert_close(score, log_p)
        everything, best = beam_search(model, source, 1, 2, 6, n_beams=6**5, alpha=0.0)
        assert best >= score, everything


def test_no_written_date_means_two_days():
    seen = {}
    for ordinal in range(datetime.date(2023, 1, 1).toordinal(), datetime.date(2024, 1, 1).toordinal()):
        day = datetime.date.fromordinal(ordinal)
        for locale in dates.LOCALES:
            for style in dates.STYLES:
                assert seen.setdefault(dates.written(day, locale, style), day) == day


def test_unseen_dates_are_never_seen():
    seen, unseen = ({iso for _, iso in dates.pairs(2000, 0, unseen=unseen)} for unseen in (False, True))
    assert not seen & unseen


def test_characters_come_back():
    characters = dates.Characters("abc")
    encoded, lengths = characters.encode(["ab", "cab", ""], end=True)
    assert lengths.tolist() == [3, 4, 1] and encoded.shape == (3, 4)
    assert characters.decode(encoded) == ["ab", "cab", ""]
