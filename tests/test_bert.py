"""Module 06 against transformers: shared random weights in, the same numbers out."""

import pytest
import torch

from solutions.attention import padding_mask
from solutions.bert import BERT, MaskedLMHead, masked_lm_loss
from utils import sentences

SIZES = {"vocab_size": 31, "max_position_embeddings": 12, "num_hidden_layers": 3, "num_attention_heads": 3, "hidden_size": 12}
PLACES = {
    "attention.self.query": "attention.W_Q", "attention.self.key": "attention.W_K", "attention.self.value": "attention.W_V",
    "attention.output.dense": "attention.W_O", "attention.output.LayerNorm": "norm_1", "intermediate.dense": "feed_forward.W_1",
    "output.dense": "feed_forward.W_2", "output.LayerNorm": "norm_2",
}  # fmt: skip
EMBEDDINGS = {"word_embeddings": "token_embedding", "position_embeddings": "position_embedding",
              "token_type_embeddings": "segment_embedding", "LayerNorm": "norm"}  # fmt: skip


def theirs(kind):
    """A model of transformers with random weights, norms and biases too, in float64; the test is skipped where there is no transformers."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install -e .[dev]")
    config = transformers.BertConfig(**SIZES, intermediate_size=20, hidden_act="gelu", attn_implementation="eager")
    model = getattr(transformers, kind)(config).double().eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.5)
    return model


def encoder_with(weights):
    """Ours, with the weights of a BertModel's state_dict."""
    mine = BERT(vocab_size=31, max_length=12, n_layers=3, n_heads=3, d_model=12, d_ff=20).double().eval()
    named = {}
    for part in ("weight", "bias"):
        for old, new in EMBEDDINGS.items():
            if f"embeddings.{old}.{part}" in weights:
                named[f"embeddings.{new}.{part}"] = weights[f"embeddings.{old}.{part}"]
        for i in range(3):
            named |= {f"blocks.{i}.{new}.{part}": weights[f"encoder.layer.{i}.{old}.{part}"] for old, new in PLACES.items()}
    mine.load_state_dict(named)
    return mine


def texts():
    torch.manual_seed(1)
    tokens, segments = torch.randint(31, (4, 9)), torch.randint(2, (4, 9))
    return tokens, segments, padding_mask(torch.tensor([9, 1, 4, 7]), 9)


@torch.no_grad()
def test_the_encoder_computes_what_transformers_bert_model_does():
    model, (tokens, segments, mask) = theirs("BertModel"), texts()
    right = model(tokens, attention_mask=mask[:, 0].long(), token_type_ids=segments).last_hidden_state
    mine = encoder_with(model.state_dict())(tokens, mask, segments)
    real = mask[:, 0]
    assert (mine - right)[real].abs().max() < 1e-10


@torch.no_grad()
def test_encoder_and_head_compute_the_logits_and_the_loss_of_transformers():
    model, (tokens, segments, mask) = theirs("BertForMaskedLM"), texts()
    labels = tokens.masked_fill(torch.rand(tokens.shape) < 0.7, -100).masked_fill(~mask[:, 0], -100)
    right = model(tokens, attention_mask=mask[:, 0].long(), token_type_ids=segments, labels=labels)
    weights = model.state_dict()
    encoder = encoder_with({name.removeprefix("bert."): weight for name, weight in weights.items()})
    head = MaskedLMHead(12, 31).double()
    transform = "cls.predictions.transform."
    head.load_state_dict({
        "W.weight": weights[transform + "dense.weight"], "W.bias": weights[transform + "dense.bias"],
        "norm.weight": weights[transform + "LayerNorm.weight"], "norm.bias": weights[transform + "LayerNorm.bias"],
        "bias": weights["cls.predictions.bias"],
    })  # fmt: skip
    logits = head(encoder(tokens, mask, segments), encoder.embeddings.token_embedding.weight)
    assert (logits - right.logits)[mask[:, 0]].abs().max() < 1e-10
    assert (masked_lm_loss(logits, labels) - right.loss).abs() < 1e-10


def test_what_is_held_out_is_never_learnt_from():
    known, new = (set(sentences.sample(3000, held_out=held_out)) for held_out in (False, True))
    assert not known & new and len(known) > 2 * len(new) > 500


def test_one_who_knows_the_language_fills_in_what_can_be_known():
    tokens, _ = sentences.encode([sentences.it_is_the_place("dog", "river"), "the wolf howled because the road was dusty"])
    assert sentences.words(tokens[1].tolist())[1:3] == ["the", "wolf"]
    blanks = torch.zeros_like(tokens, dtype=torch.bool)
    blanks[0, 7] = blanks[1, 2] = True  # a place that is too deep, an animal that howls
    assert torch.equal(sentences.best_guesses(tokens, blanks), tokens)
    from_the_left = sentences.best_guesses(tokens, blanks, left_only=True)
    assert not torch.equal(from_the_left, tokens) and torch.equal(from_the_left[~blanks], tokens[~blanks])
