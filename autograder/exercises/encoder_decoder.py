"""Module 07: the transformer of 2017, and how to write with it."""

import torch

from autograder.exercise import Exercise, Module, case, mistake
from autograder.exercises.attention import SCORE_MISTAKES, WEIGHT_MISTAKES
from autograder.sandbox.probes.encoder_decoder import Scripted
from solutions import encoder_decoder
from solutions.attention import causal_mask, padding_mask

SINGLE = torch.float32
LIBRARY = [
    "scaled_dot_product_attention", "MultiheadAttention", "multi_head_attention_forward", "Transformer", "TransformerEncoder",
    "TransformerDecoder", "TransformerEncoderLayer", "TransformerDecoderLayer",
]  # fmt: skip


def linear(draw, name, out, width):
    return {f"{name}.weight": draw.normal(out, width, scale=width**-0.5), f"{name}.bias": draw.normal(out)}


def attention_weights(draw, D, prefix=""):
    return {key: value for name in ("W_Q", "W_K", "W_V", "W_O") for key, value in linear(draw, prefix + name, D, D).items()}


def norm_weights(draw, D, name):
    return {f"{name}.weight": draw.normal(D, scale=0.3) + 1.0, f"{name}.bias": draw.normal(D, scale=0.3)}


def block_weights(draw, D, F, decoder=False, prefix=""):
    weights = attention_weights(draw, D, f"{prefix}attention.") | norm_weights(draw, D, f"{prefix}norm_1")
    if decoder:
        weights |= attention_weights(draw, D, f"{prefix}cross_attention.") | norm_weights(draw, D, f"{prefix}norm_3")
    weights |= linear(draw, f"{prefix}feed_forward.W_1", F, D) | linear(draw, f"{prefix}feed_forward.W_2", D, F)
    return weights | norm_weights(draw, D, f"{prefix}norm_2")


def in_single(inputs):
    """The same inputs, with float32 for float64."""
    return {
        name: in_single(value) if isinstance(value, dict) else value.to(SINGLE) if getattr(value, "dtype", None) is torch.float64 else value
        for name, value in inputs.items()
    }


def lengths(*numbers, width):
    return padding_mask(torch.tensor(numbers), width)


def cross_inputs(draw, B, T, S, H, D):
    build = {"d_model": D, "n_heads": H}
    return {"build": build, "weights": attention_weights(draw, D), "x": draw.normal(B, T, D), "memory": draw.normal(B, S, D)}


def cross_attention_cases(draw):
    yield case("one token asks", **cross_inputs(draw, 1, 1, 3, 2, 4), options={"gradient": False})
    yield case("a batch", **cross_inputs(draw, 2, 3, 5, 3, 6))
    yield case("more queries than keys", **cross_inputs(draw, 3, 5, 2, 2, 4))
    yield case("as many queries as keys", **cross_inputs(draw, 1, 4, 4, 2, 6))
    yield case("float32", **in_single(cross_inputs(draw, 2, 3, 4, 1, 5)), options={"gradient": False})
    yield case("one mask for the batch", part="mask", **cross_inputs(draw, 2, 3, 4, 2, 6), mask=draw.mask(3, 4))
    yield case("padding of the source", part="mask", **cross_inputs(draw, 3, 2, 4, 2, 6), mask=lengths(4, 2, 1, width=4))
    yield case("as many sequences as heads", part="mask", **cross_inputs(draw, 2, 3, 5, 2, 4), mask=lengths(2, 5, width=5))


CROSS_MISTAKES = [
    mistake(
        "all_from_decoder", "self.W_K(memory)", "self.W_K(x)",
        "Keys and values are made from x, so the decoder talks to itself: whatever the source says makes no difference. They are made from the "
        "memory; only the queries come from x.",
        also=[("self.W_V(memory)", "self.W_V(x)")], at="CrossAttention",
    ),
    mistake(
        "all_from_encoder", "self.W_Q(x)", "self.W_Q(memory)",
        "Your queries are made from the memory: that is the encoder attending to itself, and the output has a row for each token of the source. The "
        "decoder asks: queries come from x, and there is one output for each token of x.",
        at="CrossAttention",
    ),
    mistake(
        "sides_swapped", "self.W_Q(x)", "self.W_Q(memory)",
        "The two sides are swapped: your encoder asks and your decoder answers. The queries come from the decoder (x), keys and values from the "
        "encoder (memory).",
        also=[("self.W_K(memory)", "self.W_K(x)"), ("self.W_V(memory)", "self.W_V(x)")], at="CrossAttention",
    ),
    mistake(
        "values_from_decoder", "self.W_V(memory)", "self.W_V(x)",
        "The values are made from x: the weights say where in the source to look, and then you fetch something of the target from there. Keys and "
        "values both come from the memory.",
        at="CrossAttention",
    ),
    mistake(
        "keys_from_decoder", "self.W_K(memory)", "self.W_K(x)",
        "The keys are made from x: the queries are matched against the target itself, and only the values come from the source. Keys and values "
        "both come from the memory.",
        at="CrossAttention",
    ),
]  # fmt: skip


CrossAttention = Exercise(
    reference=encoder_decoder.CrossAttention,
    purpose="The one wire between the two halves: the decoder asks, the source answers.",
    minutes=20,
    difficulty=2,
    cases=cross_attention_cases,
    parts={"values": 3, "mask": 2, "gradient": 1},
    probe="build_load_call",
    options={"returns": ["output", "weights"]},
    mistakes=[
        *CROSS_MISTAKES,
        mistake("causal", "mask = None if mask is None else mask.unsqueeze(-3)",
                "mask = (q @ k.mT == q @ k.mT).tril(k.shape[-2] - q.shape[-2]) & (True if mask is None else mask.unsqueeze(-3))",
                "Your cross-attention is causal. The source is all there before the first word is written, so every token of the target may see all "
                "of it; \"the future\" means nothing between two different sequences."),
        mistake("causal_from_the_top", "mask = None if mask is None else mask.unsqueeze(-3)",
                "mask = (q @ k.mT == q @ k.mT).tril() & (True if mask is None else mask.unsqueeze(-3))",
                "Your cross-attention is causal: token t of the target sees the source up to its own token t. It may see all of the source, which was "
                "there before the first word was written."),
        mistake("mask_not_passed_on", "q, k, v, mask)", "q, k, v)", "The mask does not reach your attention, so that the source's padding is read as text."),
        mistake("mask_inverted", "mask.unsqueeze(-3)", "~mask.unsqueeze(-3)",
                "The mask is read the wrong way round: you hide what may be seen. True means *may attend*. (nn.MultiheadAttention has it the other way.)"),
        mistake("mask_without_heads", "mask.unsqueeze(-3)", "mask",
                "The mask has no axis for the heads: a mask of shape (B, 1, S) is lined up with scores of shape (B, H, T, S) so that its B meets your H. "
                "An error if you are lucky, silently wrong if B = H. `mask.unsqueeze(-3)` makes it (B, 1, 1, S)."),
        *(each for each in WEIGHT_MISTAKES if each.id == "mask_after_softmax"),
        *(each for each in SCORE_MISTAKES if each.id in ("no_scale", "scaled_by_d_k")),
        mistake("scaled_by_d_model", "scaled_dot_product_attention(q,", "scaled_dot_product_attention(q * self.n_heads**-0.5,",
                "You scale by √d_model. Each head's queries are only d_k = d_model / n_heads wide: √d_k."),
        mistake("one_head", "self.n_heads = n_heads", "self.n_heads = 1",
                "There is only one head, as wide as the model. Split queries, keys and values into n_heads heads: `split_heads`."),
        mistake("heads_not_turned_back", "merge_heads(heads)", "heads.reshape(x.shape)",
                "The heads are put together without being turned back first: (B, H, T, K) has to become (B, T, H, K) before it is flattened to (B, T, D). "
                "As it is, the numbers of one token end up in others. `merge_heads` does both."),
        mistake("no_output_projection", "self.W_O(merge_heads(heads)), weights", "merge_heads(heads), weights",
                "W_O is not used: the concatenated heads still have to be mixed by it."),
        mistake("keys_for_values", "self.W_V(memory)", "self.W_K(memory)", "The values are made with W_K; they have a matrix of their own, W_V."),
        mistake("keys_and_values_swapped", "self.W_K(memory)", "self.W_V(memory)", "W_K and W_V are swapped: the keys are made with W_K, the values with W_V.",
                also=[("v = split_heads(self.W_V(memory)", "v = split_heads(self.W_K(memory)")]),
        mistake("values_not_projected", "self.W_V(memory)", "memory", "The values are the memory itself. They are made from it with W_V, which decides what is passed on."),
        mistake("memory_detached", "        q = split_heads", "        memory = memory.detach()\n        q = split_heads",
                "The memory is detached from the graph (detach, .data, no_grad), so that no gradient reaches the encoder: it would never learn."),
        mistake("weights_averaged", "self.W_O(merge_heads(heads)), weights", "self.W_O(merge_heads(heads)), weights.mean(1)",
                "You return the weights averaged over the heads, as nn.MultiheadAttention does. Here each head's are wanted: (B, H, T, S)."),
        mistake("output_alone", "return self.W_O(merge_heads(heads)), weights", "return self.W_O(merge_heads(heads))",
                "You return the output alone. Return the weights too: they are the alignment picture of this lesson."),
        mistake("without_bias", "self.W_Q = nn.Linear(d_model, d_model)", "self.W_Q = nn.Linear(d_model, d_model, bias=False)",
                "Your projections have no bias. Here they have one, as MultiHeadAttention has: nn.Linear(d_model, d_model).",
                also=[(f"self.{name} = nn.Linear(d_model, d_model)", f"self.{name} = nn.Linear(d_model, d_model, bias=False)") for name in ("W_K", "W_V", "W_O")]),
    ],
    hints=[
        "Who asks, and who answers? Which of the three matrices are applied to x, which to the memory?",
        "It is your MultiHeadAttention with another sequence for keys and values. Queries: (B, H, T, K); keys and values: (B, H, S, K); so what "
        "shape do the weights have? The mask needs an axis for the heads.",
        "`k = split_heads(self.W_K(memory), self.n_heads)`, likewise v; `q` from x; `scaled_dot_product_attention(q, k, v, mask.unsqueeze(-3))`; "
        "then `merge_heads` and W_O.",
    ],
    forbidden=LIBRARY,
)  # fmt: skip


def encoder_block_inputs(draw, B, S, H, D, F, norm=None):
    build = {"d_model": D, "n_heads": H, "d_ff": F} | ({"norm": norm} if norm else {})
    return {"build": build, "weights": block_weights(draw, D, F), "x": draw.normal(B, S, D)}


def constant_weights(draw, D, F, decoder=False):
    """Weights with which the sub-layers add 1, 2 and 4 (without cross-attention 1 and 4), whatever they read."""
    added = {"attention.W_O.bias": 1.0, "cross_attention.W_O.bias": 2.0, "feed_forward.W_2.bias": 4.0}
    weights = block_weights(draw, D, F, decoder)
    return {
        name: torch.full_like(value, added.get(name, 1.0 if name.startswith("norm") and "weight" in name else 0.0))
        for name, value in weights.items()
    }


def dropout_inputs(draw, norm, decoder=False, D=8, F=5):
    build = {"d_model": D, "n_heads": 2, "d_ff": F, "norm": norm, "dropout": 0.25}
    inputs = {"build": build, "weights": constant_weights(draw, D, F, decoder), "x": torch.zeros(40, 20, D, dtype=torch.float64)}
    return inputs | ({"memory": draw.normal(40, 3, D)} if decoder else {})


def encoder_block_cases(draw):
    yield case("one token", **encoder_block_inputs(draw, 1, 1, 2, 4, 3), options={"gradient": False})
    yield case("a batch", **encoder_block_inputs(draw, 2, 5, 3, 6, 7))
    wide = encoder_block_inputs(draw, 1, 3, 2, 4, 16)
    yield case("d_ff not given", **wide | {"build": {"d_model": 4, "n_heads": 2}})
    yield case("float32", **in_single(encoder_block_inputs(draw, 3, 4, 1, 6, 5)), options={"gradient": False})
    yield case("padding", part="mask", **encoder_block_inputs(draw, 3, 4, 2, 6, 5), mask=lengths(4, 1, 3, width=4))
    yield case("pre-norm", part="pre-norm", **encoder_block_inputs(draw, 2, 3, 2, 6, 5, norm="pre"))
    yield case("pre-norm, padding", part="pre-norm", **encoder_block_inputs(draw, 2, 5, 3, 6, 4, norm="pre"), mask=lengths(5, 2, width=5))
    yield case("dropout", part="dropout", **dropout_inputs(draw, "post"), options={"dropout": "post"})
    yield case("pre-norm, dropout", part="dropout", **dropout_inputs(draw, "pre"), options={"dropout": "pre"})


RESIDUAL = "What goes into it is not added to what comes out of it. Without that residual the signal, and the gradient, must pass through every layer."
NORM_BEFORE_ADDING = (
    "You normalise what the sub-layer gives and then add it: x + norm(sublayer(x)). Post-norm normalises the *sum*: norm(x + sublayer(x))."
)
FROM_NORMED = (
    "In pre-norm you add to the normalised x. The residual stream itself is never normalised: x + sublayer(norm(x)), where the first x is the "
    "one that came in."
)
DROPPED_STREAM = "Dropout acts on the sum x + sublayer(x), so that the residual stream itself is dropped. It acts on what the sub-layer gives, before it is added."
GELU = "The feed-forward layer uses GELU. In 2017 it was ReLU: FeedForward(d_model, d_ff, activation=torch.relu)."
D_FF_IGNORED = "d_ff does not reach the feed-forward layer, which is always 4 · d_model wide."
DEFAULT_PRE = 'Without `norm`, your block is pre-norm. The default is the order of 2017: norm="post".'
ALWAYS_POST = (
    '`norm="pre"` changes nothing: your block is always post-norm. In pre-norm, the norm comes before the sub-layer: x + sublayer(norm(x)).'
)
ALWAYS_PRE = "Your block is pre-norm: x + sublayer(norm(x)). The transformer of 2017 is post-norm: norm(x + sublayer(x)), and that is the default here."


EncoderBlock = Exercise(
    reference=encoder_decoder.EncoderBlock,
    purpose="Read: every token of the source gathers what it needs from all the others.",
    minutes=20,
    difficulty=2,
    cases=encoder_block_cases,
    parts={"values": 2, "mask": 1, "pre-norm": 1, "dropout": 1, "gradient": 1},
    probe="encoder_decoder:block",
    mistakes=[
        mistake("always_post", 'if self.norm == "pre":', "if False:", ALWAYS_POST),
        mistake("always_pre", 'if self.norm == "pre":', "if True:", ALWAYS_PRE),
        mistake("default_pre", 'norm="post", dropout', 'norm="pre", dropout', DEFAULT_PRE),
        mistake("no_residual_attention", "x = x + self.drop(", "x = self.drop(", "The attention has no residual. " + RESIDUAL,
                also=[("self.norm_1(x + self.drop(", "self.norm_1(self.drop(")]),
        mistake("no_residual_feed_forward", "return x + self.drop(", "return self.drop(", "The feed-forward layer has no residual. " + RESIDUAL,
                also=[("self.norm_2(x + self.drop(", "self.norm_2(self.drop(")]),
        mistake("norm_before_adding", "self.norm_1(x + self.drop(self.attention(x, mask=mask)[0]))", "x + self.norm_1(self.drop(self.attention(x, mask=mask)[0]))",
                NORM_BEFORE_ADDING, also=[("self.norm_2(x + self.drop(self.feed_forward(x)))", "x + self.norm_2(self.drop(self.feed_forward(x)))")]),
        mistake("residual_from_normed", "            x = x + self.drop(self.attention(self.norm_1(x)", "            x = self.norm_1(x)\n            x = x + self.drop(self.attention(x", FROM_NORMED,
                also=[("            return x + self.drop(self.feed_forward(self.norm_2(x)))", "            x = self.norm_2(x)\n            return x + self.drop(self.feed_forward(x))")]),
        mistake("shared_norm", "self.feed_forward(self.norm_2(x))", "self.feed_forward(self.norm_1(x))",
                "Both sub-layers share one norm, norm_1. Each has gains of its own: norm_1 for the attention, norm_2 for the feed-forward layer.",
                also=[("self.norm_2(x + self", "self.norm_1(x + self")]),
        mistake("norms_swapped", "self.attention(self.norm_1(x)", "self.attention(self.norm_2(x)", "norm_1 and norm_2 are swapped: norm_1 belongs to the attention, norm_2 to the feed-forward layer.",
                also=[("self.feed_forward(self.norm_2(x))", "self.feed_forward(self.norm_1(x))"), ("x = self.norm_1(x + self", "x = self.norm_2(x + self"), ("return self.norm_2(x + self", "return self.norm_1(x + self")]),
        mistake("no_norm_2", "self.norm_2(x + self.drop(self.feed_forward(x)))", "x + self.drop(self.feed_forward(x))", "norm_2 is missing: post-norm normalises after *each* sub-layer, the feed-forward layer's sum too.",
                also=[("self.feed_forward(self.norm_2(x))", "self.feed_forward(x)")]),
        mistake("mask_not_passed_on", "self.norm_1(x), mask=mask", "self.norm_1(x)", "The mask does not reach the attention, so that tokens read the padding.",
                also=[("self.attention(x, mask=mask)", "self.attention(x)")]),
        mistake("causal", "self.norm_1(x), mask=mask", "self.norm_1(x), mask=torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril() & (True if mask is None else mask)",
                "Your encoder is causal: a token of the source does not see those after it. The source is all there, so the encoder may look both ways; only the decoder's self-attention is causal.",
                also=[("self.attention(x, mask=mask)", "self.attention(x, mask=torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril() & (True if mask is None else mask))")]),
        mistake("gelu", ", activation=torch.relu", "", GELU),
        mistake("d_ff_ignored", "FeedForward(d_model, d_ff,", "FeedForward(d_model, None,", D_FF_IGNORED),
        mistake("one_head", "MultiHeadAttention(d_model, n_heads)", "MultiHeadAttention(d_model, 1)", "n_heads does not reach the attention: your block has a single head."),
        mistake("no_feed_forward", "return self.norm_2(x + self.drop(self.feed_forward(x)))", "return x", "There is no feed-forward layer: after the attention comes a second sub-layer, which works on each token alone.",
                also=[("return x + self.drop(self.feed_forward(self.norm_2(x)))", "return x")]),
        mistake("side_by_side", "        x = self.norm_1(x + self.drop(self.attention(x, mask=mask)[0]))\n        return self.norm_2(x + self.drop(self.feed_forward(x)))",
                "        y = self.norm_1(x + self.drop(self.attention(x, mask=mask)[0]))\n        return self.norm_2(y + self.drop(self.feed_forward(x)))",
                "The feed-forward layer reads the x that came into the block. It reads what the attention has made of it.",
                also=[("            x = x + self.drop(self.attention(self.norm_1(x), mask=mask)[0])\n            return x + self.drop(self.feed_forward(self.norm_2(x)))",
                       "            y = x + self.drop(self.attention(self.norm_1(x), mask=mask)[0])\n            return y + self.drop(self.feed_forward(self.norm_2(x)))")]),
        mistake("no_dropout", "nn.Dropout(dropout)", "nn.Dropout(0.0)", "There is no dropout: in training, some of what each sub-layer gives is to be dropped before it is added."),
        mistake("no_dropout_attention", "x + self.drop(self.attention(self.norm_1(x), mask=mask)[0])", "x + self.attention(self.norm_1(x), mask=mask)[0]",
                "What the attention gives is not dropped in training, only what the feed-forward layer gives. Both are.",
                also=[("x + self.drop(self.attention(x, mask=mask)[0])", "x + self.attention(x, mask=mask)[0]")]),
        mistake("no_dropout_feed_forward", "x + self.drop(self.feed_forward(self.norm_2(x)))", "x + self.feed_forward(self.norm_2(x))",
                "What the feed-forward layer gives is not dropped in training, only what the attention gives. Both are.",
                also=[("x + self.drop(self.feed_forward(x))", "x + self.feed_forward(x)")]),
        mistake("stream_dropped", "x = x + self.drop(self.attention(self.norm_1(x), mask=mask)[0])", "x = self.drop(x + self.attention(self.norm_1(x), mask=mask)[0])", DROPPED_STREAM,
                also=[("return x + self.drop(self.feed_forward(self.norm_2(x)))", "return self.drop(x + self.feed_forward(self.norm_2(x)))")]),
        mistake("kept_for_dropped", "nn.Dropout(dropout)", "nn.Dropout(1 - dropout)", "`dropout` is the probability of being dropped; you take it for the probability of being kept."),
        mistake("dropout_in_eval", "self.drop = nn.Dropout(dropout)", "self.drop = lambda x: nn.functional.dropout(x, dropout)", "Dropout is active in eval mode as well. It acts in training only: nn.Dropout sees to that by itself, F.dropout needs `training=self.training`."),
    ],
    hints=[
        "Two sub-layers. In what order do these three come in 2017: the sub-layer, adding x, the norm? And in pre-norm?",
        "Post-norm: `x = norm(x + dropout(sublayer(x)))`, once for the attention and once for the feed-forward layer, each with its own norm. "
        "MultiHeadAttention returns two things; you need the first.",
        "`x = self.norm_1(x + self.drop(self.attention(x, mask=mask)[0]))`, then the same with `self.feed_forward` and `self.norm_2`. Pre-norm: "
        "`x = x + self.drop(self.attention(self.norm_1(x), mask=mask)[0])`.",
    ],
    forbidden=LIBRARY,
)  # fmt: skip


def decoder_block_inputs(draw, B, T, S, H, D, F, norm=None):
    build = {"d_model": D, "n_heads": H, "d_ff": F} | ({"norm": norm} if norm else {})
    return {"build": build, "weights": block_weights(draw, D, F, decoder=True), "x": draw.normal(B, T, D), "memory": draw.normal(B, S, D)}


def decoder_block_cases(draw):
    yield case("one token", **decoder_block_inputs(draw, 1, 1, 2, 2, 4, 3), options={"gradient": False})
    yield case("no masks", **decoder_block_inputs(draw, 2, 3, 5, 3, 6, 7))
    wide = decoder_block_inputs(draw, 1, 2, 3, 2, 4, 16)
    yield case("d_ff not given", **wide | {"build": {"d_model": 4, "n_heads": 2}})
    yield case("float32", **in_single(decoder_block_inputs(draw, 3, 2, 4, 1, 6, 5)), options={"gradient": False})
    yield case("padding of the source", part="masks", **decoder_block_inputs(draw, 3, 2, 4, 2, 6, 5), source_mask=lengths(4, 1, 3, width=4))
    yield case(
        "both masks",
        part="masks",
        **decoder_block_inputs(draw, 2, 3, 5, 3, 6, 4),
        source_mask=lengths(5, 2, width=5),
        target_mask=causal_mask(3),
    )
    yield case("both masks, source and target alike in length", part="masks", **decoder_block_inputs(draw, 2, 4, 4, 3, 6, 5),
               source_mask=lengths(3, 2, width=4), target_mask=causal_mask(4))  # fmt: skip
    yield case("causal alone", part="masks", **decoder_block_inputs(draw, 1, 4, 4, 2, 4, 5), source_mask=None, target_mask=causal_mask(4),
               options={"leak": True})  # fmt: skip
    yield case("pre-norm", part="pre-norm", **decoder_block_inputs(draw, 2, 4, 3, 2, 6, 5, norm="pre"))
    yield case("pre-norm, both masks", part="pre-norm", **decoder_block_inputs(draw, 2, 4, 4, 3, 6, 5, norm="pre"),
               source_mask=lengths(4, 2, width=4), target_mask=causal_mask(4))  # fmt: skip
    yield case("dropout", part="dropout", **dropout_inputs(draw, "post", decoder=True), options={"dropout": "post"})
    yield case("pre-norm, dropout", part="dropout", **dropout_inputs(draw, "pre", decoder=True), options={"dropout": "pre"})


PRE = {
    "attention": "x = x + self.drop(self.attention(self.norm_1(x), mask=target_mask)[0])",
    "cross": "x = x + self.drop(self.cross_attention(self.norm_2(x), memory, source_mask)[0])",
    "feed_forward": "return x + self.drop(self.feed_forward(self.norm_3(x)))",
}
POST = {
    "attention": "x = self.norm_1(x + self.drop(self.attention(x, mask=target_mask)[0]))",
    "cross": "x = self.norm_2(x + self.drop(self.cross_attention(x, memory, source_mask)[0]))",
    "feed_forward": "return self.norm_3(x + self.drop(self.feed_forward(x)))",
}


def in_both(name, id, old, new, why):
    """A mistake in one sub-layer of the decoder, in both orders of the norms: `old` is replaced in the line of each."""
    patches = [(lines[name], lines[name].replace(old, new)) for lines in (PRE, POST)]
    return mistake(id, *patches[0], why, also=patches[1:])


def everywhere(id, change, why, orders=(PRE, POST)):
    """A mistake in all three sub-layers of the decoder: `change` makes a wrong line of a right one."""
    patches = [(line, change(line)) for lines in orders for line in lines.values()]
    return mistake(id, *patches[0], why, also=patches[1:])


DecoderBlock = Exercise(
    reference=encoder_decoder.DecoderBlock,
    purpose="Write: look at what is written, look at the source, think.",
    minutes=30,
    difficulty=3,
    cases=decoder_block_cases,
    parts={"values": 3, "masks": 3, "pre-norm": 1, "dropout": 1, "gradient": 1},
    probe="encoder_decoder:block",
    mistakes=[
        in_both("cross", "cross_attention_to_itself", "memory, source_mask", "x, None",
                "Keys and values of the cross-attention come from the decoder: give it the memory, or the source makes no difference."),
        in_both("cross", "no_cross_attention", "self.cross_attention(", "0.0 * self.cross_attention(",
                "What the cross-attention gives is not added: the source makes no difference to what you return."),
        in_both("cross", "masks_swapped", "source_mask", "target_mask",
                "The masks are swapped: source_mask goes to the cross-attention, whose keys are the source, and target_mask to the self-attention, whose keys "
                "are the target. When both sequences are equally long, nothing crashes."),
        in_both("cross", "cross_without_mask", ", source_mask", "", "source_mask does not reach the cross-attention: the decoder reads the source's padding."),
        in_both("attention", "self_without_mask", ", mask=target_mask", "",
                "target_mask does not reach the self-attention: every position sees those after it. In training the decoder then copies the answer."),
        mistake("cross_causal", PRE["cross"], PRE["cross"].replace("source_mask", "target_mask if source_mask is None else source_mask & target_mask"),
                "The cross-attention is given the causal mask too. It belongs to the self-attention alone: all of the source may be seen from the first "
                "token on.",
                also=[(POST["cross"], POST["cross"].replace("source_mask", "target_mask if source_mask is None else source_mask & target_mask"))]),
        in_both("attention", "padding_from_source", "mask=target_mask", "mask=target_mask if source_mask is None else source_mask if target_mask is None else source_mask & target_mask",
                "The target's self-attention is given the source's padding too: it hides tokens of the target where the *source* has ended. Each mask belongs "
                "to its own keys."),
        mistake("cross_first", f"            {PRE['attention']}\n            {PRE['cross']}", f"            {PRE['cross']}\n            {PRE['attention']}",
                "The cross-attention comes before the self-attention. First the target's tokens look at each other, then at the source.",
                also=[(f"        {POST['attention']}\n        {POST['cross']}", f"        {POST['cross']}\n        {POST['attention']}")]),
        mistake("cross_reads_the_input", PRE["attention"], "y = x\n            " + PRE["attention"],
                "The queries of the cross-attention are made from the x that came into the block, and not from what the self-attention made of it.",
                also=[(PRE["cross"], PRE["cross"].replace("self.norm_2(x)", "self.norm_2(y)")), ("        " + POST["attention"], "        y = x\n        " + POST["attention"]),
                      (POST["cross"], POST["cross"].replace("cross_attention(x", "cross_attention(y"))]),
        mistake("memory_normalised", "self.norm_2(x), memory, source_mask", "self.norm_2(x), self.norm_2(memory), source_mask",
                "In pre-norm you normalise the memory with norm_2 as well. The encoder has normalised it already; norm_2 is for the queries."),
        in_both("attention", "no_residual_attention", "x + self", "self", "The self-attention has no residual. " + RESIDUAL),
        in_both("cross", "no_residual_cross", "x + self", "self", "The cross-attention has no residual. " + RESIDUAL),
        in_both("feed_forward", "no_residual_feed_forward", "x + self", "self", "The feed-forward layer has no residual. " + RESIDUAL),
        mistake("always_post", 'if self.norm == "pre":', "if False:", ALWAYS_POST),
        mistake("always_pre", 'if self.norm == "pre":', "if True:", ALWAYS_PRE),
        mistake("default_pre", 'norm="post", dropout', 'norm="pre", dropout', DEFAULT_PRE),
        everywhere("norm_before_adding", lambda line: line.replace("self.norm_", "x + self.norm_").replace("(x + self.drop", "(self.drop"), NORM_BEFORE_ADDING, [POST]),
        everywhere("residual_from_normed", lambda line: line.replace("x + self.drop", f"{line[line.index('self.norm_'):][:11]}(x) + self.drop"), FROM_NORMED, [PRE]),
        everywhere("shared_norm", lambda line: line.replace("norm_2", "norm_1").replace("norm_3", "norm_1"),
                   "All sub-layers share one norm, norm_1. Each has gains of its own: norm_1, norm_2, norm_3."),
        everywhere("norms_in_another_order", lambda line: line.replace("norm_2", "norm_").replace("norm_3", "norm_2").replace("norm_(", "norm_3("),
                   "norm_2 and norm_3 are swapped: norm_2 belongs to the cross-attention, norm_3 to the feed-forward layer."),
        mistake("gelu", ", activation=torch.relu", "", GELU),
        mistake("d_ff_ignored", "FeedForward(d_model, d_ff,", "FeedForward(d_model, None,", D_FF_IGNORED),
        mistake("one_head", "CrossAttention(d_model, n_heads)", "CrossAttention(d_model, 1)", "n_heads does not reach the cross-attention: it has a single head."),
        mistake("memory_detached", '        if self.norm == "pre":', '        memory = memory.detach()\n        if self.norm == "pre":',
                "The memory is detached from the graph (detach, .data, no_grad), so that no gradient reaches the encoder: it would never learn."),
        mistake("no_dropout", "nn.Dropout(dropout)", "nn.Dropout(0.0)", "There is no dropout: in training, some of what each sub-layer gives is to be dropped before it is added."),
        in_both("cross", "no_dropout_cross", "self.drop(", "(", "What the cross-attention gives is not dropped in training; it is, as what the other two give."),
        everywhere("stream_dropped", lambda line: line.replace("x + self.drop(", "self.drop(x + "), DROPPED_STREAM),
    ],
    hints=[
        "Three sub-layers. Which of them read the memory? Which mask goes with which keys?",
        "As in the encoder's block, with one sub-layer more in the middle: self-attention with target_mask, cross-attention with the memory and "
        "source_mask, feed-forward. Each has its norm: norm_1, norm_2, norm_3.",
        "`x = self.norm_2(x + self.drop(self.cross_attention(x, memory, source_mask)[0]))` in the middle. In pre-norm only x is normalised before "
        "the sub-layer, never the memory.",
    ],
    forbidden=LIBRARY,
)  # fmt: skip


def model_inputs(draw, B, T, S, H, D, n_layers, vocabularies=(7, 5), F=3, norm=None):
    build = {"n_source": vocabularies[0], "n_target": vocabularies[1], "d_model": D, "n_heads": H, "n_layers": n_layers, "d_ff": F}
    weights = {
        f"{side}_embedding.weight": draw.normal(n, D, scale=D**-0.5) for side, n in zip(("source", "target"), vocabularies, strict=True)
    }
    for i in range(n_layers):
        weights |= block_weights(draw, D, F, prefix=f"encoder.{i}.") | block_weights(draw, D, F, decoder=True, prefix=f"decoder.{i}.")
    weights |= norm_weights(draw, D, "encoder_norm") | norm_weights(draw, D, "decoder_norm") | linear(draw, "output", vocabularies[1], D)
    tokens = {"source": draw.integers(0, vocabularies[0], B, S), "target": draw.integers(0, vocabularies[1], B, T)}
    return {"build": build | ({"norm": norm} if norm else {}), "weights": weights, **tokens}


def model_cases(draw):
    yield case("one token", **model_inputs(draw, 1, 1, 2, 1, 4, 1), options={"stacks": False, "gradient": False})
    yield case("a batch", **model_inputs(draw, 2, 3, 5, 2, 4, 2))
    yield case(
        "more tokens to write than to read", **model_inputs(draw, 3, 5, 2, 3, 6, 1, vocabularies=(4, 8)), options={"gradient": False}
    )
    yield case("pre-norm", **model_inputs(draw, 2, 4, 3, 2, 4, 1, norm="pre"), options={"gradient": False})
    yield case("padding of the source", part="masks", **model_inputs(draw, 3, 2, 4, 2, 4, 1), source_mask=lengths(4, 1, 3, width=4))
    yield case("who depends on whom", part="masks", **model_inputs(draw, 2, 4, 4, 3, 6, 1), source_mask=lengths(3, 2, width=4),
               options={"dependences": True, "gradient": False})  # fmt: skip
    fresh = {"n_source": 50, "n_target": 40, "d_model": 64, "n_heads": 2, "n_layers": 1, "d_ff": 8, "norm": "post", "dropout": 0.5}
    tokens = {"source": draw.integers(0, 50, 1, 3), "target": draw.integers(0, 40, 1, 2)}
    yield case("as it is built, with dropout", part="start and dropout", build=fresh, weights={}, **tokens, options={"fresh": True})


EncoderDecoder = Exercise(
    reference=encoder_decoder.EncoderDecoder,
    purpose="The whole model of \"Attention Is All You Need\", out of parts that are all yours.",
    minutes=45,
    difficulty=4,
    cases=model_cases,
    parts={"values": 4, "masks": 3, "start and dropout": 1, "gradient": 1},
    probe="encoder_decoder:model",
    mistakes=[
        mistake("decoder_sees_future", "causal_mask(target.shape[1]).to(target.device)", "None",
                "The decoder's self-attention has no causal mask: the logits at t depend on the target *after* t. In training it copies the answer "
                "instead of predicting it, the loss falls to nothing, and it can't write a word."),
        mistake("one_step_ahead", "causal_mask(target.shape[1])", "causal_mask(target.shape[1], target.shape[1] + 1)[:, :-1]",
                "Your causal mask lets each position see one token after it, which (as the target is shifted right) is the answer."),
        mistake("shifted_inside", "return self.decode(target, self", "return self.decode(target.roll(1, 1), self",
                "You shift the target inside the model, too. What `decode` and `forward` are given has been shifted already: the caller does that once, with "
                "shift_right."),
        mistake("encoder_without_mask", "x = block(x, source_mask)", "x = block(x)", "source_mask does not reach the encoder: its tokens read the padding, and the memory depends on how long the longest sequence of the batch happens to be."),
        mistake("decoder_without_mask", "x = block(x, memory, source_mask, target_mask)", "x = block(x, memory, None, target_mask)",
                "source_mask does not reach the decoder: its cross-attention reads the source's padding."),
        mistake("forward_without_mask", "self.encode(source, source_mask), source_mask)", "self.encode(source, source_mask))",
                "`forward` passes source_mask to the encoder only. The cross-attention needs it too: `decode(target, memory, source_mask)`."),
        mistake("masks_swapped", "x = block(x, memory, source_mask, target_mask)", "x = block(x, memory, target_mask, source_mask)",
                "The decoder's blocks get their masks in the wrong order: source_mask first, then target_mask. When both sequences are equally long, nothing "
                "crashes."),
        mistake("padding_from_source", "x = block(x, memory, source_mask, target_mask)", "x = block(x, memory, source_mask, target_mask if source_mask is None else target_mask & source_mask)",
                "The target's padding is taken from the source: source_mask hides tokens of the target, in the decoder's self-attention. It belongs to the "
                "cross-attention alone."),
        mistake("cross_causal", "x = block(x, memory, source_mask, target_mask)", "x = block(x, memory, causal_mask(*x.shape[1:2], memory.shape[1]) & (True if source_mask is None else source_mask), target_mask)",
                "The cross-attention is causal: token t sees only a part of the source. All of the source may be seen from the first token on."),
        mistake("encoder_causal", "x = block(x, source_mask)", "x = block(x, causal_mask(*x.shape[1:2]) & (True if source_mask is None else source_mask))",
                "The encoder is causal. The source is all there: its tokens may look both ways."),
        mistake("no_root", " * math.sqrt(D)", "", "The embeddings are not multiplied by √D: with a standard deviation of 1/√D they drown in the positions, which are about 1.", at="embed"),
        mistake("no_positions", " + positions", "", "No positions are added: without them neither stack knows the order of its tokens.", at="embed"),
        mistake("source_without_positions", "x = self.drop(embed(source, self.source_embedding.weight))", "x = self.drop(self.source_embedding(source) * self.source_embedding.embedding_dim**0.5)",
                "Positions are added to the target only. The encoder needs them as much: attention does not see order."),
        mistake("target_without_positions", "x = self.drop(embed(target, self.target_embedding.weight))", "x = self.drop(self.target_embedding(target) * self.target_embedding.embedding_dim**0.5)",
                "Positions are added to the source only. The decoder needs them as well."),
        mistake("encoder_norm_unused", "return self.encoder_norm(x)", "return x", "encoder_norm is not used: the memory is what it gives, after the last block."),
        mistake("decoder_norm_unused", "self.output(self.decoder_norm(x))", "self.output(x)", "decoder_norm is not used: it comes after the last block, before `output`."),
        mistake("probabilities", "return self.output(self.decoder_norm(x))", "return self.output(self.decoder_norm(x)).softmax(-1)",
                "You return probabilities. Return the logits: the loss takes the softmax itself, and would take it twice."),
        mistake("no_output", "return self.output(self.decoder_norm(x))", "return self.decoder_norm(x)", "You return the decoder's tokens, D wide. `output` turns them into V logits."),
        mistake("one_block_many_times", "nn.ModuleList(EncoderBlock(d_model, n_heads, d_ff, norm, dropout) for _ in range(n_layers))",
                "nn.ModuleList([EncoderBlock(d_model, n_heads, d_ff, norm, dropout)] * n_layers)",
                "All layers are one and the same block ([block] * n copies the reference, not the block). Build a new one for each layer.",
                also=[("nn.ModuleList(DecoderBlock(d_model, n_heads, d_ff, norm, dropout) for _ in range(n_layers))",
                       "nn.ModuleList([DecoderBlock(d_model, n_heads, d_ff, norm, dropout)] * n_layers)")]),
        mistake("norm_ignored", "EncoderBlock(d_model, n_heads, d_ff, norm, dropout)", 'EncoderBlock(d_model, n_heads, d_ff, "post", dropout)',
                "`norm` does not reach the blocks: they are always post-norm.", also=[("DecoderBlock(d_model, n_heads, d_ff, norm, dropout)", 'DecoderBlock(d_model, n_heads, d_ff, "post", dropout)')]),
        mistake("drawn_too_large", "std=d_model**-0.5", "std=1.0",
                "The embeddings start with a standard deviation of 1 (nn.Embedding's own). `embed` multiplies them by √D, so the positions, which are about 1, "
                "drown in them. Draw them with a standard deviation of 1/√D."),
        mistake("no_dropout", "self.drop = nn.Dropout(dropout)", "self.drop = nn.Dropout(0.0)", "Dropout does not act on what enters the stacks, embedding + position; it does, in training."),
        mistake("no_dropout_in_blocks", "EncoderBlock(d_model, n_heads, d_ff, norm, dropout)", "EncoderBlock(d_model, n_heads, d_ff, norm)", "`dropout` does not reach the blocks.",
                also=[("DecoderBlock(d_model, n_heads, d_ff, norm, dropout)", "DecoderBlock(d_model, n_heads, d_ff, norm)")]),
        mistake("memory_detached", "return self.encoder_norm(x)", "return self.encoder_norm(x).detach()", "The memory is detached from the graph (detach, .data, no_grad): no gradient reaches the encoder, and it never learns."),
    ],
    hints=[
        "Follow one token of the target upwards: embedding, position, n_layers blocks, a norm, `output`. Where does the memory come in? Which three "
        "places need a mask, and which of the two masks is it?",
        "`encode`: embed the source, go through the blocks with source_mask, norm. `decode`: embed the target, make the causal mask here (T is known "
        "here, and it moves to the target's device), go through the blocks with memory, source_mask and target_mask, norm, output. `forward` is one line.",
        "`x = self.drop(embed(target, self.target_embedding.weight))`; `for block in self.decoder: x = block(x, memory, source_mask, target_mask)`; "
        "`return self.output(self.decoder_norm(x))`. Draw the embeddings with nn.init.normal_(weight, std=d_model**-0.5).",
    ],
    forbidden=LIBRARY,
)  # fmt: skip


def shift_right_cases(draw):
    yield case("a batch", target=draw.integers(3, 9, 2, 5), start=1)
    yield case("one token", target=draw.integers(3, 9, 3, 1), start=2)
    yield case("padding at the end", target=torch.tensor([[7, 5, 2, 0], [4, 2, 0, 0]]), start=1)
    yield case("another start token", target=draw.integers(0, 4, 4, 3), start=9)


shift_right = Exercise(
    reference=encoder_decoder.shift_right,
    purpose="Let the decoder learn all positions at once: at each, it is given what stands before, and asked for what comes.",
    minutes=5,
    difficulty=1,
    cases=shift_right_cases,
    parts={"values": 2},
    mistakes=[
        mistake("no_start", "torch.cat([first, target[:, :-1]], dim=1)", "target",
                "The target is not shifted: at each position the decoder is given the very token that it is asked for. It learns to copy its input, the loss falls "
                "to 0, and alone it writes nonsense."),
        mistake("start_put_in_front", "target[:, :-1]", "target", "The start token is put in front, but the last token is still there: T + 1 tokens. Leave the last one out."),
        mistake("first_replaced", "target[:, :-1]", "target[:, 1:]", "You replace the first token by the start token, and nothing has moved. All tokens move one place to the right."),
        mistake("rolled", "first = torch.full_like(target[:, :1], start)", "first = target[:, -1:]",
                "The last token comes round to the front (torch.roll). The start token stands there."),
        mistake("shifted_left", "torch.cat([first, target[:, :-1]], dim=1)", "torch.cat([target[:, 1:], first], dim=1)",
                "You shift to the left: at each position the decoder is given the token *after* the one that it is asked for."),
        mistake("last_dropped", "torch.cat([first, target[:, :-1]], dim=1)", "target[:, :-1]", "The start token is missing: without it, nothing stands before the first token, and the first token could not be learnt."),
        mistake("shifted_twice", "target[:, :-1]], dim=1)", "first, target[:, :-2]], dim=1)[:, : target.shape[1]]", "It is shifted by two places: the decoder would learn to skip a token."),
        mistake("start_ignored", "target[:, :1], start)", "target[:, :1], 1)", "The first token is always 1. It is `start`."),
        mistake("changed_in_place", "return torch.cat([first, target[:, :-1]], dim=1)", "target[:, 1:] = target[:, :-1].clone()\n    target[:, :1] = first\n    return target",
                "You shift the caller's own tensor, which is still needed as the labels: now the decoder is asked for what it is given. Make a new tensor."),
        mistake("along_the_batch", "first = torch.full_like(target[:, :1], start)  # (B, 1)\n    return torch.cat([first, target[:, :-1]], dim=1)",
                "first = torch.full_like(target[:1], start)\n    return torch.cat([first, target[:-1]], dim=0)",
                "You shift along the batch: each sequence gets its neighbour's tokens. Shift along the last axis, the positions."),
    ],
    hints=[
        "The target is `c a t ■`. What does the decoder get when it is asked for c? When it is asked for t?",
        "A column of `start`, then all tokens but the last: still T in all.",
        "`torch.full_like(target[:, :1], start)` is the column; `torch.cat([…, target[:, :-1]], dim=1)`.",
    ],
)  # fmt: skip


def loss_inputs(draw, B, T, V, pad=0, padded=(), scale=1.0, shift=0.0, dtype=torch.float64):
    target = (pad + draw.integers(1, V, B, T)) % V  # anything but pad
    for row, length in enumerate(padded):
        target[row, length:] = pad
    logits = draw.normal(B, T, V, scale=scale, dtype=dtype) + shift
    logits[0, 0, pad] = logits[0, 0].max() + scale  # it would write `pad` where the target is something else
    return {"logits": logits, "target": target}


def label_smoothing_loss_cases(draw):
    yield case("no padding", **loss_inputs(draw, 2, 3, 5))
    yield case("one token", **loss_inputs(draw, 1, 1, 4), smoothing=0.3)
    yield case("no smoothing", **loss_inputs(draw, 3, 2, 6), smoothing=0.0)
    yield case("much smoothing", **loss_inputs(draw, 2, 4, 3), smoothing=0.7)
    yield case("padding", part="padding", **loss_inputs(draw, 3, 4, 5, padded=(4, 1, 2)))
    yield case("padding, another token for it", part="padding", **loss_inputs(draw, 2, 5, 7, pad=3, padded=(2, 4)), smoothing=0.2, pad=3)
    yield case("all logits large", part="stability", **loss_inputs(draw, 2, 3, 4, padded=(3, 2), shift=1000.0))
    yield case("all logits far below zero, and far apart", part="stability", **loss_inputs(draw, 2, 3, 4, scale=2000.0, shift=-20_000.0))
    yield case(
        "float32", part="stability", **loss_inputs(draw, 2, 3, 4, scale=100.0, shift=50.0, dtype=SINGLE), options={"gradient": False}
    )


SMOOTHED = "- smoothing * log_p.mean(-1)"

label_smoothing_loss = Exercise(
    reference=encoder_decoder.label_smoothing_loss,
    purpose="Ask the model to be right, and not to be certain.",
    minutes=25,
    difficulty=3,
    cases=label_smoothing_loss_cases,
    parts={"values": 2, "padding": 2, "stability": 1, "gradient": 1},
    options={"returns": ["loss"]},
    mistakes=[
        mistake("loss_on_padding", "loss[target != pad].mean()", "loss.mean()",
                "The loss counts padding: the model is taught to write `pad`, which is easy, and the more padding a batch has the better the loss looks. Average "
                "over the tokens with target != pad."),
        mistake("divided_by_all", "loss[target != pad].mean()", "(loss * (target != pad)).mean()",
                "Padding adds nothing to your sum, but you divide by the number of *all* tokens. Divide by the number of real ones, or a batch with much padding "
                "counts for little."),
        mistake("mean_of_means", "loss[target != pad].mean()", "((loss * (target != pad)).sum(-1) / (target != pad).sum(-1)).mean()",
                "You average over each sequence first, then over the batch: a token of a short sequence weighs more. Average over all real tokens at once."),
        mistake("summed", "loss[target != pad].mean()", "loss[target != pad].sum()", "You return the sum; the mean over the real tokens is wanted, so that it does not depend on the batch's size."),
        mistake("pad_ignored", "target != pad", "target != 0", "Padding is always taken to be token 0. It is `pad`."),
        mistake("padding_predicted", "target != pad", "logits.argmax(-1) != pad", "You leave out the places where the model *writes* padding. Leave out those where the target is padding."),
        mistake("not_smoothed", "-(1 - smoothing) * right " + SMOOTHED, "-right", "`smoothing` makes no difference: this is the plain cross-entropy."),
        mistake("added_on_top", "-(1 - smoothing) * right", "-right", "The right token still has the whole probability 1, and the smoothing comes on top: the target sums to 1 + smoothing. It gets 1 - smoothing."),
        mistake("others_only", SMOOTHED, "- smoothing * (log_p.sum(-1) - right) / (log_p.shape[-1] - 1)",
                "You spread the smoothing over the V - 1 wrong tokens. By the convention here (and in torch) all V get their share, the right one too."),
        mistake("others_without_padding", SMOOTHED, "- smoothing * (log_p.sum(-1) - right - log_p[..., pad]) / (log_p.shape[-1] - 2)",
                "You spread the smoothing over the wrong tokens without `pad`, V - 2 of them (as in the Annotated Transformer). By the convention here (and in torch) all V "
                "get their share."),
        mistake("not_divided_by_V", SMOOTHED, "- smoothing * log_p.sum(-1)", "Each token of the vocabulary gets `smoothing`; together they get it, so it is smoothing / V for each: the mean."),
        mistake("swapped", "-(1 - smoothing) * right " + SMOOTHED, "-smoothing * right - (1 - smoothing) * log_p.mean(-1)", "`smoothing` and 1 - smoothing are swapped: the right token gets 1 - smoothing."),
        mistake("sign", "loss = -(1 - smoothing) * right " + SMOOTHED, "loss = (1 - smoothing) * right + smoothing * log_p.mean(-1)", "The sign is wrong: this grows as the model gets better. The loss is *minus* the log-probability."),
        mistake("not_normalised", "logits - logits.logsumexp(-1, keepdim=True)", "logits",
                "You take the logits for log-probabilities. They become that when the logarithm of the sum of their exponentials is taken away."),
        mistake("probabilities", "logits - logits.logsumexp(-1, keepdim=True)", "logits.softmax(-1)", "You use the probabilities; the cross-entropy takes their logarithms."),
        mistake("log_of_softmax", "logits - logits.logsumexp(-1, keepdim=True)", "logits.softmax(-1).log()",
                "log(softmax(x)): a small probability is rounded to 0, and log(0) is -inf; here every token's log-probability counts, so that happens soon. Subtract the logsumexp "
                "from the logits instead."),
        mistake("overflow", "logits.logsumexp(-1, keepdim=True)", "logits.exp().sum(-1, keepdim=True).log()", "The exponential of a large logit overflows. Subtract the largest logit first, or use torch.logsumexp, which does."),
        mistake("over_positions", "logits.logsumexp(-1, keepdim=True)", "logits.logsumexp(-2, keepdim=True)", "You normalise over the positions. The probabilities of the V tokens sum to 1, at each position: the last axis."),
        mistake("shifted_again", "    log_p = logits", "    logits, target = logits[:, :-1], target[:, 1:]\n    log_p = logits",
                "You compare the logits at t with the target at t + 1. They have been shifted already, by shift_right: logits[:, t] predict target[:, t]."),
    ],
    hints=[
        "Cross-entropy is minus the sum of target probability × log-probability. With smoothing ε, what is the target probability of the right token, and what is that of any other?",
        "It splits into two terms: (1 - ε) times the usual one, and ε times the mean over the vocabulary of -log p. Then average over the places where target != pad.",
        "`log_p = logits - logits.logsumexp(-1, keepdim=True)`; the right one's: `log_p.gather(-1, target.unsqueeze(-1)).squeeze(-1)`; at the end `loss[target != pad].mean()`.",
    ],
    forbidden=["cross_entropy", "CrossEntropyLoss", "nll_loss", "NLLLoss", "kl_div", "KLDivLoss", "cross_entropy_loss"],
)  # fmt: skip


def noam_schedule_cases(draw):
    yield case("the first steps", step=torch.arange(1, 6), d_model=64, warmup=100)
    yield case("around the top", step=torch.tensor([80, 99, 100, 101, 150]), d_model=64, warmup=100)
    yield case("long after", step=torch.tensor([1000, 10_000]), d_model=48, warmup=100)
    yield case("another width", step=torch.tensor([3, 30, 300]), d_model=12, warmup=20)
    yield case("the paper's", step=torch.tensor([1, 4000, 100_000]), d_model=512)


noam_schedule = Exercise(
    reference=encoder_decoder.noam_schedule,
    purpose="Start slowly, while nothing is known yet; then take smaller and smaller steps.",
    minutes=10,
    difficulty=1,
    cases=noam_schedule_cases,
    parts={"values": 2},
    probe="encoder_decoder:schedule",
    mistakes=[
        mistake("max", "* min(step", "* max(step", "You take the larger of the two: the first steps are enormous and it never comes down. Take the smaller one."),
        mistake("no_width", "d_model**-0.5 * ", "", "The width is missing: D^-½ makes the steps of a wider model smaller."),
        mistake("width_upside_down", "d_model**-0.5", "d_model**0.5", "You multiply by √D. A wider model takes *smaller* steps: D^-½."),
        mistake("warmup_exponent", "warmup**-1.5", "warmup**-0.5", "The exponent of warmup is -1½: then the two lines meet at step = warmup."),
        mistake("warmup_linear", "warmup**-1.5", "warmup**-1.0", "The exponent of warmup is -1½, not -1: then the two lines meet at step = warmup."),
        mistake("no_warmup", "min(step**-0.5, step * warmup**-1.5)", "step**-0.5", "There is no warm-up: the first step is the largest. Up in a line first: step · warmup^-1½."),
        mistake("no_decay", "min(step**-0.5, step * warmup**-1.5)", "min(warmup**-0.5, step * warmup**-1.5)", "After the warm-up your learning rate stays where it is. It falls with step^-½."),
        mistake("never_ending", "min(step**-0.5, step * warmup**-1.5)", "step * warmup**-1.5", "It goes on rising for ever. After `warmup` steps it falls with step^-½."),
        mistake("decay_too_fast", "* min(step**-0.5", "* min(warmup**0.5 / step", "It falls with 1 / step; it should fall with the root, step^-½."),
        mistake("counted_from_0", "return d_model", "step = step + 1\n    return d_model", "You count from 0 and add 1. Here the first step is step 1."),
        mistake("one_at_the_top", "d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)", "min((warmup / step) ** 0.5, step / warmup)", "You return a factor whose top is 1. Here it is the learning rate itself, D^-½ · warmup^-½ at its top."),
        mistake("warmup_ignored", "return d_model", "warmup = 4000\n    return d_model", "warmup is always 4000, whatever is given."),
    ],
    hints=[
        "Two curves: one rises in a line, one falls with the root. Where do they cross? Which of them is the smaller one before, and after?",
        "The rising one is step · warmup^-1½, the falling one step^-½; at step = warmup they are equal. The smaller one counts, times D^-½.",
        "`d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)`",
    ],
)  # fmt: skip


def script(draw, states, V, end, ending=0.0):
    """The table of a Scripted model: how likely each token is in each state; `ending` makes `end` likelier."""
    table = draw.normal(states, V, scale=1.5)
    table[:, end] += ending
    return table


def greedy_inputs(draw, B, S, V, start, end, max_length, states=997, ending=1.5):
    """Of so many states hardly any comes twice: with ending=1.5, each sequence ends within 60 tokens, and many don't end at once."""
    return {
        "model": script(draw, states, V, end, ending),
        "source": draw.integers(3, 20, B, S),
        "start": start,
        "end": end,
        "max_length": max_length,
    }


def greedy_decode_cases(draw):
    yield case("one sequence", **greedy_inputs(draw, 1, 4, 6, start=3, end=2, max_length=7))
    yield case("a batch", **greedy_inputs(draw, 12, 4, 8, start=5, end=4, max_length=5, ending=0.5))
    yield case("a large batch", **greedy_inputs(draw, 24, 5, 9, start=4, end=5, max_length=60))
    yield case("nobody ends", **greedy_inputs(draw, 2, 5, 7, start=1, end=2, max_length=6, ending=-20.0))
    yield case("all end at once", **greedy_inputs(draw, 3, 2, 5, start=1, end=2, max_length=6, ending=30.0))
    yield case(
        "padding",
        part="padding",
        **greedy_inputs(draw, 6, 4, 7, start=4, end=2, max_length=60),
        source_mask=lengths(4, 1, 3, 2, 4, 1, width=4),
        pad=6,
    )
    yield case("padding, many", part="padding", **greedy_inputs(draw, 20, 4, 9, start=3, end=1, max_length=60),
               source_mask=padding_mask(draw.integers(1, 5, 20), 4), pad=8)  # fmt: skip


ENCODED_AGAIN = "The source is encoded anew for every token that is written. It does not change while you write: encode it once, before the loop, and keep the memory."

greedy_decode = Exercise(
    reference=encoder_decoder.greedy_decode,
    purpose="Let the model write on its own: its output becomes its input.",
    minutes=25,
    difficulty=3,
    cases=greedy_decode_cases,
    parts={"values": 3, "padding": 2},
    probe="encoder_decoder:greedy",
    mistakes=[
        mistake("encoded_again", "model.decode(target, memory, source_mask)", "model.decode(target, model.encode(source, source_mask), source_mask)", ENCODED_AGAIN),
        mistake("no_start", "torch.full_like(source[:, :1], start)", "source[:, :1]",
                "The target begins with the source's first token. It begins with `start`, which says nothing but \"begin\"."),
        mistake("start_ignored", "source[:, :1], start)", "source[:, :1], 1)", "The target always begins with token 1. It begins with `start`."),
        mistake("first_for_last", "source_mask)[:, -1]", "source_mask)[:, 0]", "You read the logits of the first position. What comes next stands at the last one: [:, -1]."),
        mistake("only_the_last_token", "model.decode(target, ", "model.decode(target[:, -1:], ",
                "The decoder is given the last token alone, and forgets what it has written before. Give it all that is written so far."),
        mistake("finished_extended", ".masked_fill(finished, pad)", "", "A sequence that has written `end` goes on writing. From then on it gets `pad`, until the others are done."),
        mistake("end_for_pad", ".masked_fill(finished, pad)", ".masked_fill(finished, end)", "A finished sequence is filled with `end`. It is filled with `pad`."),
        mistake("pad_ignored", ".masked_fill(finished, pad)", ".masked_fill(finished, 0)", "A finished sequence is filled with 0. It is filled with `pad`."),
        mistake("forgets_who_finished", "finished = finished | (token == end)", "finished = token == end",
                "You forget who has finished: one step after its `end` a sequence writes again. Once finished, always finished: `finished | (token == end)`."),
        mistake("stops_at_the_first", "if finished.all()", "if finished.any()", "You stop as soon as one sequence has ended, and cut off the others. Stop when all have."),
        mistake("never_stops", "if finished.all()", "if False", "You go on to max_length although all sequences have ended. Stop then: the rest is only padding."),
        mistake("stops_before_end", "        target = torch.cat([target, token[:, None]], dim=1)\n        finished = finished | (token == end)",
                "        finished = finished | (token == end)\n        target = torch.cat([target, token[:, None].masked_fill(token[:, None] == end, pad)], dim=1)",
                "`end` is not written. It is part of what the model writes; who prints the text leaves it out."),
        mistake("start_returned", "return target[:, 1:]", "return target", "The start token is still there. It is not part of what is written: target[:, 1:]."),
        mistake("one_too_many", "range(max_length)", "range(max_length + 1)", "One token more than max_length is written."),
        mistake("one_too_few", "range(max_length)", "range(max_length - 1)", "One token fewer than max_length is written. The start token does not count."),
        mistake("least_likely", "argmax", "argmin", "You choose the least likely token."),
        mistake("decoded_without_mask", "model.decode(target, memory, source_mask)", "model.decode(target, memory)", "source_mask does not reach `decode`: the decoder reads the source's padding."),
        mistake("encoded_without_mask", "model.encode(source, source_mask)", "model.encode(source)", "source_mask does not reach `encode`: the encoder reads the padding."),
    ],
    hints=[
        "What does not change from one token to the next, so that it can be computed once? What does the decoder read when nothing is written yet?",
        "Before the loop: the memory, a column of `start`, and who has finished (nobody). In the loop: logits of the last position, argmax, `pad` for those that have finished, "
        "append, update who has finished, stop when all have.",
        "`logits = model.decode(target, memory, source_mask)[:, -1]`; `token = logits.argmax(-1).masked_fill(finished, pad)`; `finished = finished | (token == end)`.",
    ],
)  # fmt: skip


SCORE = "log_p[done] / ((5 + length) / 6) ** alpha"
DONE = "done = (token == end) | (length == max_length)"

BEAM_MISTAKES = [
    mistake("no_length_penalty", SCORE, "log_p[done]",
            "There is no length penalty. Every token more makes a log-probability smaller, so that the shortest answer wins. Divide by ((5 + length) / 6)^alpha."),
    mistake("penalty_multiplied", "/ ((5 + length) / 6) ** alpha", "* ((5 + length) / 6) ** alpha",
            "You multiply by the length penalty. Log-probabilities are negative: multiplied, long answers are punished even more. Divide."),
    mistake("plain_length", "((5 + length) / 6) ** alpha", "length**alpha", "You divide by length^alpha. By the convention here (Wu et al. 2016) it is ((5 + length) / 6)^alpha."),
    mistake("length_with_start", "((5 + length) / 6) **", "((6 + length) / 6) **", "The length counts the start token. It counts what was written, `end` included."),
    mistake("length_without_end", "((5 + length) / 6) **", "((4 + length) / 6) **", "The length leaves out `end`. It counts all that was written, `end` included, as the log-probability does."),
    mistake("finished_extended", DONE, "done = torch.full_like(token, length == max_length, dtype=torch.bool)",
            "A beam that has written `end` goes on. It is finished: set it aside with its score, and go on with the others."),
    mistake("first_finished", "if len(beams) == 0:", "if finished:",
            "You take the beam that finishes first. The others may still do better: go on until all have finished, then choose by the score."),
    mistake("worst_returned", "return max(", "return min(", "You return the finished beam with the lowest score. Log-probabilities are negative: the best is the largest."),
    mistake("only_the_last_token", "log_p[:, None] + logits.log_softmax(-1)", "logits.log_softmax(-1)", "Each step ranks by the last token alone. The log-probability of a sequence is the sum over all its tokens."),
    mistake("probabilities_added", "logits.log_softmax(-1)", "logits.softmax(-1)", "You add up probabilities. The probability of a sequence is a product; it is their *logarithms* that add up."),
    mistake("logits_added", "logits.log_softmax(-1)", "logits", "You add up logits. They are not normalised, so they can't be compared between beams: take the log_softmax first."),
    mistake("one_beam", "min(n_beams - len(finished), total.numel())", "1", "Only one beam is kept: this is greedy decoding. Keep the n_beams likeliest."),
    mistake("beam_stays_wide", "min(n_beams - len(finished), total.numel())", "min(n_beams, total.numel())",
            "The beam stays n_beams wide when some have finished. By the convention here a finished one keeps its place: n_beams - len(finished) go on."),
    mistake("parents_mixed_up", "beams[parent]", "beams[torch.arange(len(parent)) % len(beams)]",
            "The new tokens are appended to the wrong beams. The token chosen from row r of the table belongs behind beam r: index // V is the row."),
    mistake("scores_mixed_up", "beams, log_p = beams[~done], log_p[~done]", "beams, log_p = beams[~done], log_p[: len(beams[~done])]",
            "When a beam finishes, the others keep scores that are not theirs: whatever you leave out of the beams you must leave out of the log-probabilities as well."),
    mistake("encoded_again", "logits = model.decode(beams, memory", "memory = model.encode(source)\n        logits = model.decode(beams, memory", ENCODED_AGAIN),
    mistake("first_for_last", "len(beams), -1, -1))[:, -1]", "len(beams), -1, -1))[:, 0]", "You read the logits of the first position. What comes next stands at the last one: [:, -1]."),
    mistake("start_ignored", "source[:, :1], start)", "source[:, :1], 1)", "The beams always begin with token 1. They begin with `start`."),
    mistake("start_returned", "beams[done, 1:]", "beams[done]", "The start token is still there. It is not part of what is written."),
    mistake("end_left_out", "beams[done, 1:]", "beams[done, 1:-1]", "The last token is missing: `end` is part of what is written."),
    mistake("one_too_many", "range(1, max_length + 1)", "range(1, max_length + 2)", "One token more than max_length is written.", also=[("length == max_length", "length == max_length + 1")]),
    mistake("one_too_few", "range(1, max_length + 1)", "range(1, max_length)", "One token fewer than max_length is written. The start token does not count.", also=[("length == max_length", "length == max_length - 1")]),
    mistake("score_not_divided", "return max(finished, key=lambda pair: pair[1])", "tokens, score = max(finished, key=lambda pair: pair[1])\n    return tokens, score * ((5 + len(tokens)) / 6) ** alpha",
            "You return the log-probability of the best. Return its score, after the length penalty."),
    mistake("returned_in_the_wrong_order", "zip(beams[done, 1:], log_p[done] / ((5 + length) / 6) ** alpha, strict=True)", "zip(log_p[done] / ((5 + length) / 6) ** alpha, beams[done, 1:], strict=True)",
            "You return the score first. The tokens come first: `return tokens, score`.", also=[("pair: pair[1]", "pair: pair[0]")]),
]  # fmt: skip


def planned(draw, paths, start, end, max_length, n_beams, alpha, V=7):
    """A scripted model with a plan: after each beginning of a path its next token has that logit, and all others about 0."""
    source, table = draw.integers(3, 20, 1, 4), draw.normal(997, V, scale=0.02)
    numbers = Scripted(torch.arange(997.0)[:, None])  # its logits are the numbers of its states
    for path in paths:
        tokens, logits = zip(*path, strict=True)
        states = numbers(source, torch.tensor([[start, *tokens[:-1]]])).flatten().long()
        table[states, tokens] = torch.tensor(logits) + draw.normal(len(path), scale=0.02)
    table += draw.normal(997, 1)  # what is not normalised shows
    return {"model": table, "source": source, "start": start, "end": end, "max_length": max_length, "n_beams": n_beams, "alpha": alpha}


# Paths for `planned`, with `end` = 4; no two beginnings lead to the same state. A token with the logit 5 is nearly sure.
SHORT = [(0, 3.3), (4, 1.4)]  # the likeliest token first, and an early end: 0.52 · 0.40
BETTER = [(5, 3.0), (2, 4.4), (1, 5.0), (4, 5.0)]  # begins second, and then nothing is likelier: 0.38 · 0.93 · …
WANDERS = [(0, 3.3)]  # the likeliest token first, and then anything
PROMPT = [(5, 3.0), (4, 4.4)]  # begins second, and is at its end at once: 0.38 · 0.93
LONGER = [(5, 3.0), (2, 4.4), (3, 2.0), (0, 5.0), (1, 5.0), (6, 5.0), (4, 5.0)]  # less likely than SHORT, and after a penalty the best
# With these SHORT comes to its end as the second of three, so that the third's score is no longer in the third place.
SPARE = [(1, 1.0)]  # the third at first; without it, that might be `end`
AHEAD = [(5, 3.0), (2, 4.4), (3, 2.2), (6, 1.0), (4, 5.0)]  # leads at first
THIRD = [(5, 3.0), (6, 3.4), (1, 5.0), (3, 5.0), (0, 5.0), (4, 5.0)]  # is the best after a penalty
FOURTH = [(5, 3.0), (2, 4.4), (2, 1.2), *[(5, 5.0), (2, 5.0)] * 3, (4, 5.0)]  # would be better still, had SHORT not kept its place


def beam_search_cases(draw):
    source = {"source": draw.integers(3, 20, 1, 3)}
    yield case("one beam", model=script(draw, 17, 6, 2), **source, start=3, end=2, max_length=8, n_beams=1, alpha=0.6)
    yield case("2 beams, no penalty", **planned(draw, [SHORT, BETTER], start=3, end=4, max_length=9, n_beams=2, alpha=0.0))
    yield case("3 beams, no penalty", **planned(draw, [WANDERS, SPARE, PROMPT], start=5, end=4, max_length=9, n_beams=3, alpha=0.0))
    yield case("more beams than tokens", model=script(draw, 11, 3, 2), **source, start=1, end=2, max_length=3, n_beams=9, alpha=0.0)
    yield case("nobody ends", model=script(draw, 11, 5, 2, -30.0), **source, start=1, end=2, max_length=4, n_beams=3, alpha=0.7)
    each = planned(draw, [SHORT, SPARE, AHEAD, THIRD], start=2, end=4, max_length=9, n_beams=3, alpha=2.0)
    yield case("3 beams, each with a score of its own", **each)
    longer = planned(draw, [SHORT, LONGER], start=3, end=4, max_length=12, n_beams=2, alpha=1.5)
    yield case("2 beams, length penalty", part="length", **longer)
    soon = script(draw, 997, 6, 2, 3.0)
    yield case("3 beams, length penalty", part="length", model=soon, **source, start=1, end=2, max_length=40, n_beams=3, alpha=1.0)
    early = planned(draw, [SHORT, SPARE, AHEAD, THIRD, FOURTH], start=6, end=4, max_length=13, n_beams=3, alpha=2.0)
    yield case("3 beams that finish early", part="length", **early)


beam_search = Exercise(
    reference=encoder_decoder.beam_search,
    purpose="Do not commit to the first word at once: keep a few beginnings, and choose at the end.",
    minutes=45,
    difficulty=4,
    cases=beam_search_cases,
    parts={"values": 3, "length": 2},
    probe="encoder_decoder:beam",
    mistakes=BEAM_MISTAKES,
    hints=[
        "With two beams and three tokens, how many candidates are there after one step? Which number ranks them? Do it on paper.",
        "Keep `beams` (N, t) and `log_p` (N). One step: total = log_p[:, None] + log_softmax of the last logits, (N, V); the best of all N · V by `flatten().topk(…)`; "
        "the row is index // V, the token index % V. Those that wrote `end` move to a list, with log_p / ((5 + length) / 6)^alpha.",
        "`log_p, index = total.flatten().topk(min(n_beams - len(finished), total.numel()))`; `beams = torch.cat([beams[index // V], (index % V)[:, None]], dim=1)`; "
        "`done = (token == end) | (length == max_length)`; keep `beams[~done]`, `log_p[~done]`.",
    ],
)  # fmt: skip

MODULE = Module(
    "encoder_decoder", "Encoder-decoder: the 2017 transformer", hours=4, difficulty=4,
    needs="modules 02 (multi-head attention), 03 (positions) and 04 (the block)",
    exercises=[
        CrossAttention, EncoderBlock, DecoderBlock, EncoderDecoder, shift_right, label_smoothing_loss, noam_schedule, greedy_decode, beam_search,
    ],
)  # fmt: skip
