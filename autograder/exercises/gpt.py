"""Module 05: a decoder-only transformer, from its labels to the text that it writes."""

import torch

from autograder.exercise import Exercise, Module, case, mistake
from autograder.exercises.attention import SCORE_MISTAKES, WEIGHT_MISTAKES
from solutions import gpt

SINGLE = torch.float32


def of(mistakes, *ids):
    """Those of some shared mistakes that have these ids."""
    return [next(mistake for mistake in mistakes if mistake.id == id) for id in ids]


def shift_labels_cases(draw):
    yield case("two rows", tokens=draw.integers(0, 50, 2, 5))
    yield case("as many rows as tokens in one", tokens=draw.integers(0, 50, 4, 4))
    yield case("one row", tokens=draw.integers(0, 50, 1, 6))
    yield case("two tokens", tokens=draw.integers(0, 50, 3, 2))
    yield case("transposed in memory", tokens=draw.integers(0, 50, 6, 3).T)


shift_labels = Exercise(
    reference=gpt.shift_labels,
    purpose="Turn a text into questions and answers: at every position, what comes next?",
    minutes=5,
    difficulty=1,
    cases=shift_labels_cases,
    parts={"values": 2},
    options={"returns": ["inputs", "labels"]},
    mistakes=[
        mistake("unshifted", "tokens[:, 1:]", "tokens[:, :-1]",
                "The labels are the inputs: each position is asked for the token that it has just read. The loss falls to 0 within minutes (0.004, where "
                "1.9 is right), and the model has learnt to copy. The labels start one later: tokens[:, 1:]."),
        mistake("shifted_twice", "return tokens[:, :-1], tokens[:, 1:]", "return tokens[:, :-2], tokens[:, 2:]",
                "The labels are two tokens ahead: they were shifted twice, and the model learns to skip a token. One ahead is the next token."),
        mistake("backwards", "return tokens[:, :-1], tokens[:, 1:]", "return tokens[:, 1:], tokens[:, :-1]",
                "Inputs and labels are exchanged: each position is asked for the token *before* it, which attention under a causal mask can simply look up."),
        mistake("along_the_batch", "return tokens[:, :-1], tokens[:, 1:]", "return tokens[:-1], tokens[1:]",
                "You shift along the batch: the labels of a row are the row after it. Time is the second axis: tokens[:, 1:]."),
        mistake("across_rows", "return tokens[:, :-1], tokens[:, 1:]", "return tokens.reshape(1, -1)[:, :-1], tokens.reshape(1, -1)[:, 1:]",
                "You flatten the batch before you shift: the last token of a row is asked for the first of the next, which has nothing to do with it. "
                "Shift within each row."),
        mistake("rolled", "return tokens[:, :-1], tokens[:, 1:]", "return tokens, tokens.roll(-1, 1)",
                "You roll the row round: the last position is asked for the first token of its row. Nothing is known to follow it, so leave it out: T = S - 1."),
        mistake("labels_alone", "return tokens[:, :-1], tokens[:, 1:]", "return tokens[:, 1:]", "You return the labels alone. Return both: `return inputs, labels`."),
        mistake("last_token_kept", "return tokens[:, :-1], tokens[:, 1:]", "return tokens, tokens[:, 1:]",
                "The inputs still have their last token, for which there is no label: they are one longer than the labels. Cut it off: tokens[:, :-1]."),
    ],
    hints=[
        "Write the tokens of a row side by side. Below each, the token that follows it. Which one has nothing below?",
        "The inputs are all but the last, the labels all but the first.",
        "`return tokens[:, :-1], …`: which slice leaves out the first?",
    ],
)  # fmt: skip


def cross_entropy_cases(draw):
    yield case("three positions", logits=draw.normal(3, 5), labels=draw.integers(0, 5, 3))
    yield case("a batch", logits=draw.normal(2, 3, 4), labels=draw.integers(0, 4, 2, 3))
    yield case("one position", logits=draw.normal(1, 1, 6), labels=draw.integers(0, 6, 1, 1))
    yield case("all sizes alike", logits=draw.normal(4, 4, 4), labels=draw.integers(0, 4, 4, 4))
    yield case("transposed in memory", logits=draw.normal(2, 5, 3).mT, labels=draw.integers(0, 5, 3, 2).T)
    yield case("float32", logits=draw.normal(2, 3, 5, dtype=SINGLE), labels=draw.integers(0, 5, 2, 3))
    large = draw.normal(2, 3, 4) * 1000.0 + 1000.0
    yield case("large logits", part="stability", logits=large, labels=large.argmin(-1))  # their probabilities are rounded to 0
    apart = draw.normal(2, 3, 4) + torch.tensor([[[0.0]], [[-2000.0]]])
    yield case("rows far apart", part="stability", logits=apart, labels=draw.integers(0, 4, 2, 3))


GATHERED = "log_probabilities.gather(-1, labels.unsqueeze(-1))"
cross_entropy = Exercise(
    reference=gpt.cross_entropy,
    purpose="The one number that training makes small: how surprised the model is by what really comes.",
    minutes=15,
    difficulty=2,
    cases=cross_entropy_cases,
    parts={"values": 2, "stability": 1, "gradient": 1},
    mistakes=[
        mistake("no_max_subtracted", "logits - logits.amax(-1, keepdim=True)", "logits",
                "The exponential of a large logit overflows to inf, and the loss with it. Subtract the largest logit of each position first: the "
                "probabilities stay the same."),
        mistake("global_max", "logits.amax(-1, keepdim=True)", "logits.max()",
                "You subtract the largest logit of the whole tensor: a position whose logits lie far below it has only zeros left, and log(0) is -inf. "
                "Each position has its own maximum."),
        mistake("log_of_softmax", "shifted - shifted.exp().sum(-1, keepdim=True).log()", "(shifted.exp() / shifted.exp().sum(-1, keepdim=True)).log()",
                "You take the logarithm of the softmax: an improbable label has probability exp(-2000) = 0, and log(0) is -inf. Work with logarithms "
                "throughout: log softmax(x) = x - log Σ exp(x)."),
        mistake("eps_in_the_log", "shifted - shifted.exp().sum(-1, keepdim=True).log()", "(shifted.exp() / shifted.exp().sum(-1, keepdim=True) + 1e-9).log()",
                "A small constant is added to the probability before the logarithm: it hides log(0), and makes every very improbable label equally bad, "
                "without a gradient. Work with logarithms throughout: log softmax(x) = x - log Σ exp(x)."),
        mistake("not_normalised", "shifted - shifted.exp().sum(-1, keepdim=True).log()", "logits",
                "You average the logits of the labels themselves: nothing is subtracted for the other tokens, so the model can make all logits large. "
                "Subtract log Σ exp(logits)."),
        mistake("probabilities", "shifted - shifted.exp().sum(-1, keepdim=True).log()", "shifted.exp() / shifted.exp().sum(-1, keepdim=True)",
                "You average the probabilities of the labels. It is their logarithms that are averaged."),
        mistake("softmax_first", "shifted = logits - logits.amax(-1, keepdim=True)", "shifted = logits.softmax(-1)",
                "The logits go through a softmax before the log-softmax: they are between 0 and 1, and the loss can't come near 0. Logits go in as they are."),
        mistake("sign", "return -log", "return log", "The sign is missing: a logarithm of a probability is negative, and surprise is -log p."),
        mistake("summed", ".mean()", ".sum()", "You add the surprises up: the loss grows with the batch, and so do the gradients. Take the mean."),
        mistake("mean_over_the_batch_alone", GATHERED + ".mean()", GATHERED + ".sum(-2).mean()",
                "You add up over the positions and average over the batch alone: the loss grows with the length. Take the mean over all positions."),
        mistake("divided_by_v", GATHERED + ".mean()", "log_probabilities.gather(-1, labels.unsqueeze(-1)).mean() / logits.shape[-1]",
                "Your mean runs over the vocabulary too (a mean over one-hot labels counts their zeros): the loss is V times too small. There is one number "
                "for each position."),
        mistake("bits", "return -" + GATHERED + ".mean()", "return -" + GATHERED + ".mean() * 1.4426950408889634",
                "Your logarithm is that to base 2, in bits. Here it is the natural one, in nats: log, not log2."),
        mistake("across_the_batch", GATHERED, "log_probabilities.transpose(0, -2).reshape(-1, logits.shape[-1]).gather(-1, labels.reshape(-1, 1))",
                "Logits and labels are flattened in different orders: a position of one row is compared with the label of another. Flatten both from "
                "(B, T, …), without a transpose."),
        mistake("wrong_axis", "shifted.exp().sum(-1, keepdim=True)", "shifted.exp().sum(-2, keepdim=True)",
                "The exponentials are summed over the positions; they are summed over the vocabulary, the last axis."),
        mistake("largest_for_label", GATHERED, "log_probabilities.amax(-1)",
                "You score the most probable token, whatever the label is. What counts is the probability of the token that really came."),
    ],
    hints=[
        "If the model gives the right token a probability of 1, how surprised is it? Of 1/2? Of V equal tokens, each has the probability 1/V: what is the loss then?",
        "log softmax(x) = x - log Σ exp(x), stable once the maximum is subtracted. Then pick the label's from the V of each position, and average.",
        "`log_probabilities.gather(-1, labels.unsqueeze(-1))` picks; `-….mean()` is the loss.",
    ],
    forbidden=["cross_entropy", "nll_loss", "CrossEntropyLoss", "NLLLoss", "log_softmax", "LogSoftmax"],
)  # fmt: skip


def gpt_inputs(draw, B, T, V, C, L, H, D, dtype=torch.float64, **settings):
    def matrix(*shape):
        return draw.normal(*shape, scale=shape[-1] ** -0.5, dtype=dtype)

    weights = {"token_embedding.weight": draw.normal(V, D, dtype=dtype), "position_embedding.weight": draw.normal(C, D, dtype=dtype)}
    for i in range(L):
        block = f"blocks.{i}"
        for name in ("norm_1", "norm_2"):
            weights |= norm(draw, f"{block}.{name}", D, dtype)
        for name in ("W_Q", "W_K", "W_V", "W_O"):
            weights |= {f"{block}.attention.{name}.weight": matrix(D, D), f"{block}.attention.{name}.bias": draw.normal(D, dtype=dtype)}
        weights |= {f"{block}.feed_forward.W_1.weight": matrix(4 * D, D), f"{block}.feed_forward.W_1.bias": draw.normal(4 * D, dtype=dtype)}
        weights |= {f"{block}.feed_forward.W_2.weight": matrix(D, 4 * D), f"{block}.feed_forward.W_2.bias": draw.normal(D, dtype=dtype)}
    weights |= norm(draw, "final_norm", D, dtype)
    build = {"vocab_size": V, "context": C, "n_layers": L, "n_heads": H, "d_model": D, **settings}
    return {"build": build, "weights": weights, "tokens": draw.integers(0, V, B, T)}


def norm(draw, name, D, dtype):
    return {f"{name}.weight": draw.normal(D, dtype=dtype) + 1, f"{name}.bias": draw.normal(D, dtype=dtype)}


def without_layers(draw, **settings):
    """Inputs of a model in which the block adds its last bias, and nothing else, to embeddings of three numbers."""
    inputs = gpt_inputs(draw, B=1, T=2, V=3, C=4, L=1, H=1, D=3, dropout=0.5, **settings)
    weights = {name: weight if name.startswith("blocks.0.norm") else torch.zeros_like(weight) for name, weight in inputs["weights"].items()}
    weights["token_embedding.weight"] = torch.eye(3, dtype=torch.float64)
    weights["position_embedding.weight"] += torch.tensor([1.0, 2.3, 4.1])
    weights["blocks.0.feed_forward.W_2.bias"] += torch.tensor([3.7, -5.2, 7.9])
    return inputs | {"weights": weights | {name: inputs["weights"][name] for name in ("final_norm.weight", "final_norm.bias")}}


VALUES_ALONE = {"gradient": False}


def gpt_cases(draw):
    yield case("one layer", **gpt_inputs(draw, B=2, T=3, V=5, C=4, L=1, H=2, D=4), options=VALUES_ALONE)
    yield case("two layers", **gpt_inputs(draw, B=2, T=3, V=7, C=5, L=2, H=2, D=4), options=VALUES_ALONE)
    yield case("with gradients", **gpt_inputs(draw, B=3, T=4, V=5, C=6, L=1, H=3, D=6))
    yield case("one token", **gpt_inputs(draw, B=2, T=1, V=5, C=3, L=1, H=1, D=4), options=VALUES_ALONE)
    yield case("the whole context", **gpt_inputs(draw, B=1, T=4, V=6, C=4, L=1, H=1, D=2), options=VALUES_ALONE)
    yield case("tanh", **gpt_inputs(draw, B=2, T=3, V=7, C=4, L=1, H=2, D=4, gelu="tanh"), options=VALUES_ALONE)
    yield case("float32", **gpt_inputs(draw, B=2, T=3, V=7, C=5, L=1, H=2, D=4, dtype=SINGLE), options=VALUES_ALONE)
    yield case("longer than the context", raises="ValueError", **gpt_inputs(draw, B=2, T=4, V=5, C=3, L=1, H=1, D=2))
    yield case(
        "which outputs see the future?", part="no leak", **gpt_inputs(draw, B=1, T=4, V=5, C=6, L=2, H=1, D=4), options={"only": "leaks"}
    )
    start = {"vocab_size": 60, "context": 50, "n_layers": 2, "n_heads": 2, "d_model": 32}
    yield case("how it starts", part="start", build=start, weights={}, tokens=draw.integers(0, 60, 1, 2))
    yield case("dropout", part="dropout", **without_layers(draw), options={"only": "dropout"})


NEW_OUTPUT = "self.output = nn.Linear(config.d_model, config.vocab_size, bias=False)"
GPT = Exercise(
    reference=gpt.GPT,
    purpose="The whole model: what GPT-2 is, in twenty lines, out of your own parts.",
    minutes=40,
    difficulty=3,
    cases=gpt_cases,
    parts={"values": 3, "no leak": 1, "start": 1, "dropout": 1, "gradient": 1},
    probe="gpt:model",
    mistakes=[
        mistake("no_mask", "block(x, mask)", "block(x)",
                "The mask does not reach the blocks: every position sees the tokens that it is asked for. The loss falls to 0.05, and the model can't write "
                "a word, because when it writes there is no future to read."),
        mistake("mask_inverted", "causal_mask(T).to", "(~causal_mask(T)).to",
                "The mask is inverted: every position sees the future and nothing else. True means *may attend*: causal_mask(T) as it is."),
        mistake("diagonal_excluded", "causal_mask(T).to", "torch.ones(T, T, dtype=torch.bool).tril(-1).to",
                "The mask hides from each position its own token: the last word, which says most about the next, is missing. The diagonal may be seen."),
        mistake("one_too_far", "causal_mask(T).to", "torch.ones(T, T, dtype=torch.bool).tril(1).to",
                "The mask lets each position see one token ahead: exactly the one that it is asked for. It is tril(), not tril(1)."),
        mistake("mask_in_the_first_block_alone", "block(x, mask)", "block(x, mask if block is self.blocks[0] else None)",
                "Only the first block gets the mask. One block without it is enough to leak: give it to every block."),
        *of(WEIGHT_MISTAKES, "over_queries", "mask_after_softmax", "mask_filled_with_zero"),
        *of(SCORE_MISTAKES, "no_scale"),
        mistake("view_without_transpose", "x.view(B, T, n_heads, D // n_heads).transpose(1, 2)", "x.view(B, n_heads, T, D // n_heads)",
                "The heads are cut out by `view(B, H, T, K)` without a transpose: a head holds pieces of several tokens, future ones among them. First "
                "view(B, T, H, K), then transpose(1, 2).", at="split_heads"),
        mistake("norm_over_the_sequence", "x.mean(-1, keepdim=True)", "x.mean(1, keepdim=True)",
                "LayerNorm takes its mean and variance over the sequence, so that each token depends on the later ones: a leak that makes the loss look "
                "better. It looks at one token at a time: dim=-1.",
                at="LayerNorm", also=[("centred.square().mean(-1, keepdim=True)", "centred.square().mean(1, keepdim=True)")]),
        mistake("no_positions", " + self.position_embedding(positions)", "",
                "The positions are not added: apart from the mask, the model does not know in which order it reads."),
        mistake("positions_along_the_batch", "torch.arange(T, device=tokens.device)", "torch.arange(tokens.shape[0], device=tokens.device)[:, None]",
                "The positions run along the batch: all tokens of a row get the same one. They run along the sequence: torch.arange(T)."),
        mistake("positions_from_1", "torch.arange(T, device=tokens.device)", "torch.arange(T, device=tokens.device).add(1) % self.config.context",
                "The first token has position 1. Positions count from 0."),
        mistake("embeddings_scaled", "self.token_embedding(tokens) +", "self.token_embedding(tokens) * self.config.d_model**0.5 +",
                "The token embeddings are multiplied by √d_model, as in the 2017 transformer. GPT adds the two embeddings as they are."),
        mistake("no_final_norm", "self.final_norm(x) @", "x @",
                "The last norm is missing: in a pre-norm stack nothing else brings the stream back to one scale before the output."),
        mistake("post_norm", "config.n_heads, dropout", 'config.n_heads, norm="post", dropout', 'Your blocks are post-norm. GPT-2\'s are pre-norm, the default: norm="pre".'),
        mistake("copied_not_tied", "self.final_norm = LayerNorm", NEW_OUTPUT + "\n        self.output.weight.data = self.token_embedding.weight.data.clone()\n        self.final_norm = LayerNorm",
                "The output has a weight of its own, which at best starts as a copy of the embedding's and then goes its own way. Tied means one and the "
                "same parameter: use token_embedding.weight itself, or `self.output.weight = self.token_embedding.weight`.",
                also=[("self.final_norm(x) @ self.token_embedding.weight.T", "self.output(self.final_norm(x))")]),
        mistake("output_detached", "@ self.token_embedding.weight.T", "@ self.token_embedding.weight.detach().T",
                "The output uses a copy of the embedding that gradients don't reach (detach, .data, clone of a value): as output it never learns. Use the "
                "parameter itself."),
        mistake("not_initialised", "scaled_init(self, config.n_layers)", "pass",
                "The weights are left as torch makes them: embeddings of standard deviation 1, which are the output's weights too, so that the logits are "
                "far too large. The first loss is then about 97, where ln(V) ≈ 4.6 is what a model that knows nothing should have. Call scaled_init."),
        mistake("initialised_before_the_blocks", "scaled_init(self, config.n_layers)", "scaled_init(self.token_embedding, config.n_layers)\n        scaled_init(self.position_embedding, config.n_layers)",
                "Only the embeddings are initialised: is scaled_init called before the blocks exist? Call it last, on the whole model."),
        mistake("n_layers_not_told", "scaled_init(self, config.n_layers)", "scaled_init(self, 1)",
                "scaled_init is told that there is one layer; the scale of the residual projections depends on how many there are: config.n_layers."),
        mistake("no_dropout_on_embeddings", "x = dropout(x, self.config.dropout, self.training)", "pass",
                "In training, dropout acts on the sum of the embeddings too. That is missing."),
        mistake("dropout_not_passed_on", "dropout=config.dropout, ", "", "The blocks don't get the dropout of the configuration: TransformerBlock(…, dropout=config.dropout)."),
        mistake("dropout_in_eval", "x = dropout(x, self.config.dropout, self.training)", "x = dropout(x, self.config.dropout)",
                "Dropout on the embeddings is active in eval mode too. Pass `self.training`."),
        mistake("gelu_ignored", ", activation=activation", "", 'The blocks always use the exact gelu, whatever config.gelu says. GPT-2 uses the other one, "tanh".'),
        mistake("gelu_always_tanh", "approximate=config.gelu", 'approximate="tanh"', 'The blocks always use the tanh approximation of gelu, whatever config.gelu says.'),
        mistake("one_block_repeated", "self.blocks = nn.ModuleList(\n            TransformerBlock(config.d_model, config.n_heads, dropout=config.dropout, activation=activation) for _ in range(config.n_layers)\n        )",
                "self.blocks = nn.ModuleList([TransformerBlock(config.d_model, config.n_heads, dropout=config.dropout, activation=activation)] * config.n_layers)",
                "All blocks are one and the same object (`[block] * n`), with one set of weights. Build a new one in each turn of a loop."),
        mistake("stream_not_passed_on", "            x = block(x, mask)", "            last = block(x, mask)",
                "Every block reads the embeddings, and only the last one's output is used. Each reads what the one before it wrote: x = block(x, mask).",
                also=[("self.final_norm(x) @", "self.final_norm(last) @")]),
        mistake("probabilities_returned", "return self.final_norm(x) @ self.token_embedding.weight.T", "return (self.final_norm(x) @ self.token_embedding.weight.T).softmax(-1)",
                "You return probabilities. Return the logits: cross_entropy and filter_logits take these, and would apply the softmax a second time."),
        mistake("last_position_alone", "return self.final_norm(x) @", "return self.final_norm(x)[:, -1:] @",
                "You return the logits of the last position alone. Training uses every position: return (B, T, V)."),
        mistake("context_not_checked", "if self.config.context < T:", "if False:",
                "A sequence that is longer than the context ends in an IndexError of the position embedding, which says nothing (on a GPU it ends the whole "
                "process). Raise a ValueError that names both lengths."),
    ],
    hints=[
        "What goes in are integers (B, T), what comes out is a score for each token (B, T, V). Which part of yours turns integers into vectors, and which matrix "
        "could turn vectors into scores?",
        "`__init__`: two nn.Embedding, an nn.ModuleList of TransformerBlock, a LayerNorm; scaled_init last. `forward`: embed, dropout, every block with the "
        "causal mask, the last norm, times the transposed token embedding.",
        "`x = self.token_embedding(tokens) + self.position_embedding(torch.arange(T, device=tokens.device))`, and in the end "
        "`self.final_norm(x) @ self.token_embedding.weight.T`. The activation: `functools.partial(gelu, approximate=config.gelu)`.",
    ],
    forbidden=["TransformerEncoder", "TransformerEncoderLayer", "TransformerDecoder", "Transformer", "MultiheadAttention", "scaled_dot_product_attention", "GPT2LMHeadModel"],
)  # fmt: skip


def lr_schedule_cases(draw):
    peak = float(draw.normal(1).abs() + 0.5)
    for step in (0, 1, 3):
        yield case(f"step {step} of 4 of warm-up", part="warm-up", step=step, peak=peak, warmup=4, total=14)
    for step in (4, 6, 9, 13):
        yield case(f"step {step}, on the way down", step=step, peak=peak, warmup=4, total=14)
    yield case("no warm-up", step=0, peak=peak, warmup=0, total=5)
    yield case("a floor", part="floor", step=7, peak=peak, warmup=2, total=12, floor=0.125)
    yield case("warm-up with a floor", part="warm-up", step=1, peak=peak, warmup=5, total=12, floor=0.125)
    yield case("the last step", part="floor", step=12, peak=peak, warmup=2, total=12, floor=0.25)
    yield case("after the end", part="floor", step=15, peak=peak, warmup=2, total=12, floor=0.25)
    yield case("after the end, without a floor", part="floor", step=17, peak=peak, warmup=2, total=12)


lr_schedule = Exercise(
    reference=gpt.lr_schedule,
    purpose="Small steps while the model knows nothing, large ones then, and small ones again to settle.",
    minutes=10,
    difficulty=2,
    cases=lr_schedule_cases,
    parts={"values": 1, "warm-up": 1, "floor": 1},
    probe="gpt:number",
    mistakes=[
        mistake("no_warmup", "    if step < warmup:\n        return peak * (step + 1) / warmup\n", "    if step < warmup:\n        return peak\n",
                "There is no warm-up: the first steps already have the full rate, at a time when Adam's estimates are still noise."),
        mistake("warmup_from_0", "peak * (step + 1) / warmup", "peak * step / warmup",
                "The first step has a rate of 0, and changes nothing. Step 0 has peak / warmup: it is step + 1 that is divided."),
        mistake("warmup_from_the_floor", "peak * (step + 1) / warmup", "floor + (peak - floor) * (step + 1) / warmup",
                "The warm-up starts at the floor. It is a line from 0: peak · (step + 1) / warmup."),
        mistake("warmup_is_a_cosine", "peak * (step + 1) / warmup", "peak * (1 - math.cos(math.pi * (step + 1) / warmup)) / 2",
                "The warm-up is a cosine. It is a straight line: peak · (step + 1) / warmup."),
        mistake("decay_from_step_0", "(step - warmup) / (total - warmup)", "step / total",
                "The cosine is counted from step 0, so that the rate jumps down where the warm-up ends. It starts at step `warmup`: (step - warmup) / (total - warmup)."),
        mistake("warmup_not_taken_from_total", "(step - warmup) / (total - warmup)", "(step - warmup) / total",
                "The cosine is stretched over `total` steps and does not get to the floor in time. It has total - warmup steps."),
        mistake("no_cosine", "(1 + math.cos(math.pi * progress)) / 2", "(1 - progress)", "The rate falls in a straight line. It falls along half a cosine: (1 + cos(π · progress)) / 2."),
        mistake("whole_cosine", "math.pi * progress", "2 * math.pi * progress", "It is a whole turn of the cosine: the rate is back at its peak in the end. Half a turn: π, not 2π."),
        mistake("quarter_cosine", "(1 + math.cos(math.pi * progress)) / 2", "math.cos(math.pi / 2 * progress)",
                "It is a quarter of a cosine, cos(π/2 · progress). Half a cosine goes from 1 to -1, so shift and halve it: (1 + cos(π · progress)) / 2."),
        mistake("floor_added", "floor + (peak - floor) * ", "floor + peak * ", "The floor is added on top of the whole cosine, so that it starts above the peak. It goes from peak to floor: floor + (peak - floor) · …"),
        mistake("floor_ignored", "floor + (peak - floor) * ", "peak * ", "The rate falls to 0, whatever the floor is."),
        mistake("floor_as_minimum", "return floor + (peak - floor) * (1 + math.cos(math.pi * progress)) / 2", "return max(floor, peak * (1 + math.cos(math.pi * progress)) / 2)",
                "The cosine goes to 0 and is cut off at the floor. It is to end there: floor + (peak - floor) · (1 + cos(π · progress)) / 2."),
        mistake("rises_again", "min((step - warmup) / (total - warmup), 1.0)", "(step - warmup) / (total - warmup)", "After `total` the cosine goes up again. From there on the rate stays at the floor."),
    ],
    hints=[
        "Three pieces: up, down, flat. At which steps does one go over into the next? What is the rate exactly there?",
        "`if step < warmup` a line; else `progress` from 0 to 1 (never more), and half a cosine from peak to floor.",
        "`floor + (peak - floor) * (1 + math.cos(math.pi * progress)) / 2`.",
    ],
    forbidden=["CosineAnnealingLR", "LambdaLR", "OneCycleLR", "SequentialLR", "LinearLR"],
)  # fmt: skip


def train_step_cases(draw):
    def inputs(optimizer, **settings):
        return {"model": "a small model", "optimizer": optimizer, "tokens": draw.integers(0, 7, 3, 6), "lr": 0.25, **settings}

    yield case("two steps of SGD", **inputs("SGD", max_norm=1e9))
    yield case("with momentum", **inputs("SGD with momentum", max_norm=1e9))
    yield case("AdamW, two groups of parameters", part="learning rate", **inputs("AdamW, two groups", max_norm=1e9))
    yield case("clipped", part="clipping", **inputs("SGD", max_norm=0.01))
    yield case("clipped with momentum", part="clipping", **inputs("SGD with momentum", max_norm=0.05))
    yield case("clipped to 1 where nothing is said", part="clipping", **{**inputs("SGD"), "tokens": draw.integers(0, 1, 2, 5)})


train_step = Exercise(
    reference=gpt.train_step,
    purpose="What happens a few hundred, or a few million, times in a row.",
    minutes=20,
    difficulty=2,
    cases=train_step_cases,
    parts={"values": 3, "learning rate": 1, "clipping": 1},
    probe="gpt:train_step",
    mistakes=[
        mistake("no_zero_grad", "    optimizer.zero_grad()", "    pass",
                "The gradients are never set to zero: `backward` adds to what is there, so that every step goes in the direction of *all* batches so far. "
                "Call optimizer.zero_grad() before loss.backward()."),
        mistake("step_without_gradients", "    optimizer.zero_grad()", "    pass",
                "There are no gradients when the optimizer steps, so the weights don't move: zero_grad comes between `backward` and `step`, or `step` before "
                "`backward`. The order is zero_grad, backward, step.",
                also=[("    loss.backward()", "    loss.backward()\n    optimizer.zero_grad()")]),
        mistake("no_step", "    optimizer.step()", "    pass", "The gradients are computed and nobody uses them: optimizer.step() is missing."),
        mistake("eval_mode", "    model.train()\n", "", "The model is left in the mode that it comes in, here eval: dropout would be off in training. Call model.train()."),
        mistake("labels_unshifted", "cross_entropy(model(inputs), labels)", "cross_entropy(model(inputs), inputs)",
                "The labels are the inputs: the model learns to repeat what it has just read, and its loss falls to 0. Use the labels of shift_labels."),
        mistake("shifted_twice", "cross_entropy(model(inputs), labels)", "cross_entropy(model(inputs)[:, :-1], labels[:, 1:])",
                "The labels are shifted twice, once by shift_labels and once more in the loss: the model learns to predict the token after the next."),
        mistake("whole_row_read", "cross_entropy(model(inputs), labels)", "cross_entropy(model(tokens)[:, :-1], labels)",
                "The model reads the whole rows, and its last output is thrown away: right, but for a model of that context the row is one token too long. It reads "
                "the inputs, which are one shorter."),
        mistake("lr_not_set", '        group["lr"] = lr', "        pass", 'The learning rate does not reach the optimizer: set group["lr"] for each of optimizer.param_groups.'),
        mistake("lr_in_the_first_group_alone", "for group in optimizer.param_groups:", "for group in optimizer.param_groups[:1]:",
                "Only the first group of parameters gets the learning rate. An optimizer may have several (with and without weight decay): set it in each."),
        mistake("lr_set_after_the_step", '    for group in optimizer.param_groups:\n        group["lr"] = lr\n', "",
                "The learning rate is set after the step, and so holds for the next one. Set it first.",
                also=[("    optimizer.step()", '    optimizer.step()\n    for group in optimizer.param_groups:\n        group["lr"] = lr')]),
        mistake("not_clipped", "    nn.utils.clip_grad_norm_(model.parameters(), max_norm)\n", "",
                "The gradients are not clipped when the optimizer steps: one strange batch can throw the weights far away. "
                "nn.utils.clip_grad_norm_(model.parameters(), max_norm) belongs between backward and step."),
        mistake("clipped_by_value", "clip_grad_norm_", "clip_grad_value_",
                "Every number of the gradient is cut off at max_norm by itself, which changes its direction. It is the norm of all together that is limited: clip_grad_norm_."),
        mistake("each_tensor_clipped", "    nn.utils.clip_grad_norm_(model.parameters(), max_norm)\n", "    for parameter in model.parameters():\n        nn.utils.clip_grad_norm_([parameter], max_norm)\n",
                "Each tensor is clipped by its own norm. It is one norm, of all gradients together, so that their direction stays."),
        mistake("always_scaled", "    nn.utils.clip_grad_norm_(model.parameters(), max_norm)\n", "    norm = nn.utils.clip_grad_norm_(model.parameters(), float('inf'))\n    for parameter in model.parameters():\n        parameter.grad *= max_norm / norm\n",
                "The gradients are always scaled to max_norm, also where they are smaller. Clipping only makes large ones smaller."),
        mistake("max_norm_ignored", "model.parameters(), max_norm)", "model.parameters(), 1.0)", "The gradients are clipped to 1, whatever max_norm is."),
        mistake("loss_as_tensor", "return loss.item()", "return loss", "You return the loss as a tensor, with its whole graph behind it: a list of losses then keeps every batch in memory. Return loss.item()."),
        mistake("loss_after_the_step", "return loss.item()", "return cross_entropy(model(inputs), labels).item()",
                "You return the loss after the step, on the batch that was just learnt, at the price of a second forward pass. Return the one that you have."),
    ],
    hints=[
        "Which five things happen in a step, and in which order? Which of them needs the gradients, and which makes them?",
        'Learning rate into every group, model.train(), loss, zero_grad, backward, clip, step, `return loss.item()`.',
        "`loss = cross_entropy(model(inputs), labels)`, where `inputs, labels = shift_labels(tokens)`; `nn.utils.clip_grad_norm_(model.parameters(), max_norm)`.",
    ],
)  # fmt: skip


def filter_logits_cases(draw):
    yield case("as they are", logits=draw.normal(2, 5))
    yield case("a temperature", logits=draw.normal(3, 5), temperature=0.5)
    yield case("float32", logits=draw.normal(2, 4, dtype=SINGLE), temperature=2.0, top_k=3)
    yield case("the best three", part="top_k", logits=draw.normal(4, 6), temperature=1.0, top_k=3)
    yield case("the best one", part="top_k", logits=draw.normal(7), temperature=1.5, top_k=1)
    yield case("more than there are", part="top_k", logits=draw.normal(2, 3), temperature=1.0, top_k=9)
    ties = torch.tensor([[1.0, 2.0, 2.0, 2.0, 0.0], [3.0, 1.0, 3.0, 3.0, 1.0]]).double()
    yield case("ties", part="top_k", logits=ties, temperature=1.0, top_k=2)
    yield case("a nucleus", part="top_p", logits=2 * draw.normal(5, 6), temperature=1.0, top_k=None, top_p=0.7)
    chances = torch.tensor([[0.05, 0.45, 0.2, 0.3], [0.9, 0.04, 0.03, 0.03]]).double()
    yield case("one crosses the line", part="top_p", logits=chances.log(), temperature=1.0, top_k=None, top_p=0.6)
    yield case("one that is more than enough", part="top_p", logits=chances.log(), temperature=1.0, top_k=None, top_p=0.3)
    yield case("everything", part="top_p", logits=draw.normal(2, 4), temperature=1.0, top_k=None, top_p=1.0)
    yield case("a nucleus at a temperature", part="top_p", logits=chances.log(), temperature=3.0, top_k=None, top_p=0.72)
    yield case("both", part="top_p", logits=chances.log(), temperature=1.0, top_k=2, top_p=0.58)


filter_logits = Exercise(
    reference=gpt.filter_logits,
    purpose="Say how daring the model is to be: how it may choose among what it holds for possible.",
    minutes=25,
    difficulty=3,
    cases=filter_logits_cases,
    parts={"values": 1, "top_k": 1, "top_p": 2},
    options={"gradient": False},
    mistakes=[
        mistake("multiplied", "logits / temperature", "logits * temperature",
                "You multiply by the temperature: hot becomes cold. Logits are *divided* by it, so that a high temperature makes them more alike."),
        mistake("temperature_ignored", "logits / temperature", "logits", "The temperature makes no difference: divide the logits by it."),
        mistake("temperature_last", "    logits = logits / temperature\n", "",
                "The temperature comes after top_p: which tokens are in the nucleus has to be decided from the probabilities at that temperature. Divide first.",
                also=[("scatter(-1, order, ranked)", "scatter(-1, order, ranked) / temperature")]),
        mistake("ties_kept", "ranked.masked_fill(ranks >= top_k, -math.inf)", "ranked.masked_fill(ranked < ranked[..., min(top_k, ranked.shape[-1]) - 1, None], -math.inf)",
                "Tokens that tie with the last one are kept as well, so that there are more than top_k. Exactly top_k are kept: those of the smaller index."),
        mistake("later_of_equals", "logits.sort(dim=-1, descending=True, stable=True)", "(each.flip(-1) for each in logits.sort(dim=-1, stable=True))",
                "Of equal logits you keep the one of the larger index (a sort that goes up, read backwards). The smaller index comes first: sort(descending=True, stable=True)."),
        mistake("one_too_many", "ranks >= top_k", "ranks > top_k", "You keep one token too many: top_k + 1."),
        mistake("smallest_kept", "ranked.masked_fill(ranks >= top_k, -math.inf)", "ranked.masked_fill(ranks < ranked.shape[-1] - top_k, -math.inf)", "You keep the top_k *smallest* logits. Sort in descending order."),
        mistake("best_dropped", "ranks >= top_k", "ranks < top_k", "You drop the top_k best tokens and keep the rest. It is the other way round."),
        mistake("top_k_ignored", "if top_k is not None:", "if False:", "top_k makes no difference to what you return."),
        mistake("top_p_ignored", "if top_p is not None:", "if False:", "top_p makes no difference to what you return."),
        mistake("crossing_token_dropped", "before >= top_p", "before + probabilities > top_p",
                "You drop the token that crosses the line: what is left has *less* than top_p, and where the best token alone has more than top_p nothing is left at all. "
                "A token stays as long as those *before* it have less than top_p."),
        mistake("improbable_for_p", "before >= top_p", "probabilities < 1 - top_p",
                "You compare each token's own probability. top_p is about the sum over the most probable tokens, in descending order."),
        mistake("tail_kept", "before >= top_p", "before < top_p", "You drop the nucleus and keep the tail. It is the other way round."),
        mistake("not_cumulated", "probabilities.cumsum(-1) - probabilities", "probabilities",
                "Each probability is compared with top_p by itself. Add them up first, from the largest down: cumsum."),
        mistake("logits_cumulated", "probabilities = softmax(ranked)", "probabilities = ranked", "You add up logits. It is the probabilities that are added up: softmax first."),
        mistake("top_p_without_top_k", "probabilities = softmax(ranked)", "probabilities = softmax(logits.sort(dim=-1, descending=True, stable=True)[0])",
                "top_p is measured against all tokens, also where top_k has already dropped some. Of what is left, the probabilities sum to 1 again: softmax after top_k."),
        mistake("order_lost", "torch.empty_like(logits).scatter(-1, order, ranked)", "ranked",
                "You return the logits sorted: place i no longer belongs to token i. Put them back in their places (scatter, or a mask that is)."),
        mistake("gathered_for_scattered", "torch.empty_like(logits).scatter(-1, order, ranked)", "ranked.gather(-1, order)",
                "You put the sorted logits back by `gather` with the same indices, which sorts a second time. The inverse is `scatter` (or gather with order.argsort())."),
        mistake("zeroed", "torch.empty_like(logits).scatter(-1, order, ranked)", "torch.empty_like(logits).scatter(-1, order, ranked).masked_fill(torch.empty_like(logits).scatter(-1, order, ranked) == -math.inf, 0.0)",
                "Dropped tokens get a logit of 0, and exp(0) = 1: they can still be drawn. It takes -inf."),
        mistake("probabilities_returned", "torch.empty_like(logits).scatter(-1, order, ranked)", "softmax(torch.empty_like(logits).scatter(-1, order, ranked))",
                "You return probabilities. Return logits: the softmax comes afterwards."),
    ],
    hints=[
        "Rank the tokens, the best first. Which ranks does top_k keep? For top_p: how much probability do all better tokens have together?",
        "`sort(dim=-1, descending=True, stable=True)` gives values and order. Fill the values with -inf where the rank is top_k or more; then where the cumulated "
        "probability *before* the token is top_p or more. Scatter them back.",
        "`before = probabilities.cumsum(-1) - probabilities`, and back: `torch.empty_like(logits).scatter(-1, order, ranked)`.",
    ],
)  # fmt: skip


def different(draw, B):
    """B of the five tokens in any order, each a prompt (B, 1): not all of them go on alike."""
    return draw.normal(5, 1).argsort(0)[:B]


def sample_cases(draw):
    def inputs(*shape, **settings):
        return {"model": "a small model", "tokens": draw.integers(0, 5, *shape), **settings}

    yield case("the most probable token", **inputs(2, 3, n_new=2, temperature=1.0, top_k=1))
    three = inputs(3, 1, n_new=4, temperature=1.0, top_k=1) | {"tokens": different(draw, 3)}
    yield case("three rows, in eval mode", **three, options={"training": False})
    yield case("nothing new", **inputs(2, 3, n_new=0))
    yield case("past the context", part="context", **inputs(7, 4, n_new=5, temperature=1.0, top_k=1))
    yield case("a prompt longer than the context", part="context", **inputs(1, 9, n_new=2, temperature=1.0, top_k=1))
    yield case("at random", part="distribution", **inputs(1, 2, n_new=2))
    yield case("a temperature and the best three", part="distribution", **inputs(1, 3, n_new=2, temperature=0.7, top_k=3))
    yield case("a nucleus", part="distribution", **inputs(1, 3, n_new=2, temperature=1.5, top_k=None, top_p=0.8))


DRAWN = "torch.multinomial(probabilities, 1)"
sample = Exercise(
    reference=gpt.sample,
    purpose="Let the model write.",
    minutes=20,
    difficulty=2,
    cases=sample_cases,
    parts={"values": 2, "context": 1, "distribution": 1},
    probe="gpt:sample",
    mistakes=[
        mistake("left_in_train_mode", "    model.eval()\n", "",
                "The model samples in training mode: dropout is on, and it writes worse than it can. Call model.eval() first."),
        mistake("left_in_eval_mode", "    model.train(training)\n", "",
                "The model is left in eval mode: a training loop that samples now and then goes on without dropout. Put it back in the mode that it was in."),
        mistake("put_into_train_mode", "model.train(training)", "model.train()", "The model is put into training mode, whatever mode it was in. Remember the mode, and put it back."),
        mistake("graph_recorded", "@torch.no_grad()\n", "", "Gradients are recorded while the model writes: memory grows with every token. Use `@torch.no_grad()`."),
        mistake("context_not_cropped", "tokens[:, -model.config.context :]", "tokens",
                "The model is given more tokens than its context holds. Crop to the last model.config.context of them."),
        mistake("cropped_at_the_wrong_end", "tokens[:, -model.config.context :]", "tokens[:, : model.config.context]",
                "You crop to the *first* tokens, so that the model no longer sees what it has just written. Keep the last ones: tokens[:, -context:]."),
        mistake("one_cropped_too_many", "-model.config.context :", "1 - model.config.context :", "The model sees one token less than its context holds."),
        mistake("written_text_cropped", "tokens = torch.cat([tokens, ", "tokens = torch.cat([tokens[:, -model.config.context :], ",
                "The text itself is cropped, so that the beginning of what you return is missing. Crop only what the model reads."),
        mistake("first_position", "[:, -1]  # (B, V)", "[:, 0]", "You sample from what the model predicts after the *first* token. The next token is predicted at the last position: [:, -1]."),
        mistake("most_probable_always", DRAWN, "probabilities.argmax(-1, keepdim=True)", "You always take the most probable token: it will soon write the same words for ever. Draw: torch.multinomial(probabilities, 1)."),
        mistake("temperature_ignored", "filter_logits(logits, temperature, top_k, top_p)", "filter_logits(logits, 1.0, top_k, top_p)", "The temperature does not reach filter_logits."),
        mistake("top_k_ignored", "filter_logits(logits, temperature, top_k, top_p)", "filter_logits(logits, temperature, None, top_p)", "top_k does not reach filter_logits."),
        mistake("top_p_ignored", "filter_logits(logits, temperature, top_k, top_p)", "filter_logits(logits, temperature, top_k)", "top_p does not reach filter_logits."),
        mistake("uniform", "softmax(filter_logits(logits, temperature, top_k, top_p))", "(filter_logits(logits, temperature, top_k, top_p) > -math.inf).to(logits.dtype)",
                "Every token that is left has the same chance. Draw from the softmax of the filtered logits."),
        mistake("two_softmaxes", "softmax(filter_logits(logits, temperature, top_k, top_p))", "softmax(softmax(filter_logits(logits, temperature, top_k, top_p)))",
                "The softmax is taken twice, which makes all tokens nearly equally likely, dropped ones too."),
        mistake("one_draw_for_all_rows", DRAWN, "torch.multinomial(probabilities[:1], 1).expand(len(tokens), 1)", "All rows get the token that was drawn for the first. Each row has its own probabilities, and its own draw."),
        mistake("prompt_alone_read", "model(tokens[:, -model.config.context :])", "model(prompt[:, -model.config.context :])",
                "The model reads the prompt each time, and never what it has written. Append each token to what it reads.",
                also=[("    training = model.training", "    prompt, training = tokens, model.training")]),
        mistake("new_tokens_alone", "return tokens", "return tokens[:, tokens.shape[1] - n_new :]", "You return the new tokens alone. Return the prompt too."),
        mistake("prepended", "[tokens, torch.multinomial(probabilities, 1)]", "[torch.multinomial(probabilities, 1), tokens]", "New tokens are put in front. They come last."),
        mistake("one_too_many", "range(n_new)", "range(n_new + 1)", "You write one token too many."),
    ],
    hints=[
        "Which of the T outputs predicts the next token? What has to be done with it before you can draw? What happens when the text is longer than the context?",
        "A loop: crop, model, last position, filter_logits, softmax, torch.multinomial, torch.cat. Around it: eval mode, no gradients, and the old mode again.",
        "`logits = model(tokens[:, -model.config.context :])[:, -1]`; `torch.multinomial(probabilities, 1)` gives (B, 1).",
    ],
    forbidden=["generate"],
)  # fmt: skip


def pieces_of(draw, B, H, K, lengths, dtype=torch.float64):
    return {name: [draw.normal(B, H, T, K, dtype=dtype) for T in lengths] for name in ("keys_", "values_")}


def kv_cache_cases(draw):
    yield case("a prompt, then a token", **pieces_of(draw, 2, 3, 4, [5, 1]))
    yield case("three pieces", **pieces_of(draw, 1, 2, 3, [2, 4, 3]))
    yield case("as many heads as positions", **pieces_of(draw, 2, 3, 3, [3, 3]))
    yield case("one token", **pieces_of(draw, 3, 2, 5, [1]))
    yield case("float32, token by token", **pieces_of(draw, 1, 2, 3, [1, 1, 1], dtype=SINGLE))


JOINED = "k, v = torch.cat([self.keys, k], dim=2), torch.cat([self.values, v], dim=2)"
KVCache = Exercise(
    reference=gpt.KVCache,
    purpose="Remember what never changes: the keys and values of tokens that have been read.",
    minutes=15,
    difficulty=2,
    cases=kv_cache_cases,
    parts={"values": 2},
    probe="gpt:cache",
    mistakes=[
        mistake("overwritten", "if self.length:", "if False:", "Each append replaces what was there: the cache holds the last piece only. Join the new keys to the old ones."),
        mistake("wrong_axis", JOINED, "k, v = torch.cat([self.keys, k], dim=1), torch.cat([self.values, v], dim=1)", "You join along the heads. Positions are the third axis of (B, H, T, K): dim=2."),
        mistake("along_the_batch", JOINED, "k, v = torch.cat([self.keys, k], dim=0), torch.cat([self.values, v], dim=0)", "You join along the batch. Positions are the third axis of (B, H, T, K): dim=2."),
        mistake("new_ones_first", JOINED, "k, v = torch.cat([k, self.keys], dim=2), torch.cat([v, self.values], dim=2)", "New positions are put in front of the old ones. They come behind: cat([old, new])."),
        mistake("values_not_kept", JOINED, "k = torch.cat([self.keys, k], dim=2)", "The values are replaced, only the keys are kept. Both are needed for every position."),
        mistake("counted_twice", JOINED, "k, v = torch.cat([self.keys, k, k], dim=2), torch.cat([self.values, v, v], dim=2)", "The new positions are appended twice."),
        mistake("new_ones_returned", "return k, v", "return new", "You return what was just appended. Return everything that the cache now holds: a query looks at all positions.",
                also=[("    def append(self, k, v):\n", "    def append(self, k, v):\n        new = k, v\n")]),
        mistake("old_ones_returned", "        if self.length:\n            " + JOINED + "\n        self.keys, self.values, self.length = k, v, k.shape[2]\n        return k, v",
                "        old = (self.keys, self.values) if self.length else (k[:, :, :0], v[:, :, :0])\n        if self.length:\n            " + JOINED + "\n        self.keys, self.values, self.length = k, v, k.shape[2]\n        return old",
                "You return what the cache held before. A token also looks at itself: return the new ones too."),
        mistake("exchanged", "return k, v", "return v, k", "Keys and values are exchanged in what you return: the keys come first."),
        mistake("appends_counted", "self.keys, self.values, self.length = k, v, k.shape[2]", "self.keys, self.values, self.length = k, v, self.length + 1",
                "`length` counts the appends. It is the number of positions: a prompt of 5 tokens is one append and 5 positions."),
        mistake("heads_counted", "k, v, k.shape[2]", "k, v, k.shape[1]", "`length` is the number of heads. It is the number of positions, the third axis."),
        mistake("shared", "self.length = 0", "type(self).length = 0",
                "All caches share one memory: it belongs to the class, not to the object. Make it in `__init__`, on self. Every layer needs its own.",
                also=[("self.keys = self.values = None", "type(self).keys = type(self).values = None"), ("self.keys, self.values, self.length = k", "type(self).keys, type(self).values, type(self).length = k")]),
    ],
    hints=[
        "Which of the four axes of (B, H, T, K) grows?",
        "The first append keeps what it gets. Each later one joins along dim=2: torch.cat([old, new], dim=2). Keep the length up to date, return both.",
        "In `append`: `if self.length: k, v = torch.cat([self.keys, k], dim=2), torch.cat([self.values, v], dim=2)`; then keep k, v and k.shape[2].",
    ],
)  # fmt: skip


def cached_attention_cases(draw):
    def inputs(*shape, n_heads, dtype=torch.float64):
        return {"attention": "a small layer", "x": draw.normal(*shape, dtype=dtype), "n_heads": n_heads}

    yield case("all at once", **inputs(2, 4, 6, n_heads=3), options={"pieces": [4]})
    yield case("one token", **inputs(3, 1, 4, n_heads=2), options={"pieces": [1]})
    yield case("a prompt, then token by token", part="pieces", **inputs(2, 5, 6, n_heads=2), options={"pieces": [3, 1, 1]})
    yield case("pieces of many tokens", part="pieces", **inputs(1, 7, 4, n_heads=2), options={"pieces": [2, 3, 2]})
    yield case("float32, token by token", part="pieces", **inputs(2, 3, 4, n_heads=1, dtype=SINGLE), options={"pieces": [1, 1, 1]})


cached_attention = Exercise(
    reference=gpt.cached_attention,
    purpose="Attention that only computes what is new.",
    minutes=20,
    difficulty=3,
    cases=cached_attention_cases,
    parts={"values": 1, "pieces": 2},
    probe="gpt:cached_attention",
    mistakes=[
        mistake("no_mask", "scaled_dot_product_attention(q, k, v, mask)", "scaled_dot_product_attention(q, k, v)",
                "The new tokens see each other's future: right for one token at a time, wrong for a prompt. They need the causal mask (T, S)."),
        mistake("mask_top_left", "causal_mask(x.shape[1], k.shape[2])", "torch.ones(x.shape[1], k.shape[2], dtype=torch.bool).tril()",
                "The mask is aligned at the top left, as if the new tokens were the first of the sequence. They are the last: causal_mask(T, S) is aligned at the bottom right."),
        mistake("diagonal_excluded", "causal_mask(x.shape[1], k.shape[2])", "torch.ones(x.shape[1], k.shape[2], dtype=torch.bool).tril(k.shape[2] - x.shape[1] - 1)",
                "Each new token sees all tokens but itself. It may see itself."),
        mistake("earlier_tokens_unseen", "    mask = causal_mask(x.shape[1], k.shape[2])", "    k, v = k[:, :, -x.shape[1] :], v[:, :, -x.shape[1] :]\n    mask = causal_mask(x.shape[1], k.shape[2])",
                "The new tokens attend to the new tokens alone. Use what `cache.append` returns: all keys and values."),
        mistake("appended_twice", "k, v = cache.append(", "cache.append(split_heads(attention.W_K(x), n_heads), split_heads(attention.W_V(x), n_heads))\n    k, v = cache.append(",
                "The new tokens are appended twice, so that they count twice. Call cache.append once, and use what it returns."),
        mistake("keys_and_values_exchanged", "cache.append(split_heads(attention.W_K(x), n_heads), split_heads(attention.W_V(x), n_heads))", "cache.append(split_heads(attention.W_V(x), n_heads), split_heads(attention.W_K(x), n_heads))",
                "Keys and values are exchanged: append(k, v)."),
        mistake("input_cached", "cache.append(split_heads(attention.W_K(x), n_heads), ", "cache.append(split_heads(x, n_heads), ", "The tokens themselves are cached as keys. Keys are made by W_K."),
        mistake("no_output_projection", "attention.W_O(merge_heads(output))", "merge_heads(output)", "The output projection W_O is missing."),
        mistake("one_head", "q = split_heads(attention.W_Q(x), n_heads)", "n_heads = 1\n    q = split_heads(attention.W_Q(x), n_heads)", "There is one head, whatever n_heads says: split queries, keys and values."),
        mistake("merged_without_transpose", "merge_heads(output)", "output.reshape(x.shape)",
                "The heads are put together without a transpose, so that a token gets pieces of other tokens. Use merge_heads."),
        mistake("queries_are_keys", "attention.W_Q(x)", "attention.W_K(x)", "The queries are made with W_K. They are made with W_Q."),
        *of(SCORE_MISTAKES, "no_scale"),
        *of(WEIGHT_MISTAKES, "over_queries", "mask_after_softmax"),
    ],
    hints=[
        "For which tokens do you need queries? For which keys and values? Which of these do you have to compute?",
        "Queries, keys and values of the new tokens; append keys and values; attend with all of them, under causal_mask(T, S); merge the heads; W_O.",
        "`k, v = cache.append(split_heads(attention.W_K(x), n_heads), split_heads(attention.W_V(x), n_heads))`; S is then k.shape[2].",
    ],
    forbidden=["scaled_dot_product_attention", "MultiheadAttention"],
)  # fmt: skip


def decode_step_cases(draw):
    def inputs(B, T, context=8):
        return {"model": "a small GPT", "tokens": draw.integers(0, 5, B, T), "context": context}

    yield case("all at once", **inputs(2, 4), options={"pieces": [4]})
    yield case("token by token", part="pieces", **inputs(3, 4), options={"pieces": [1, 1, 1, 1]})
    yield case("a prompt and a token", part="pieces", **inputs(2, 6), options={"pieces": [5, 1]})
    yield case("any pieces", part="pieces", **inputs(1, 8), options={"pieces": [2, 5, 1]})
    yield case("too many at once", part="context", raises="ValueError", **inputs(2, 4, context=3), options={"pieces": [4]})
    yield case("too many together", part="context", raises="ValueError", **inputs(2, 5, context=4), options={"pieces": [3, 2]})


decode_step = Exercise(
    reference=gpt.decode_step,
    purpose="The whole model, for the new tokens alone.",
    minutes=25,
    difficulty=3,
    cases=decode_step_cases,
    parts={"values": 1, "pieces": 2, "context": 1},
    probe="gpt:decode_step",
    mistakes=[
        mistake("offset_forgotten", "torch.arange(start, start + T, device=tokens.device)", "torch.arange(T, device=tokens.device)",
                "Every new token gets position 0, 1, …: the cache's offset is forgotten. New tokens come after those in the cache: their positions start at its length."),
        mistake("offset_off_by_one", "torch.arange(start, start + T, device=tokens.device)", "torch.arange(start, start + T, device=tokens.device) - int(start > 0)",
                "The positions of new tokens are one too small. With `length` tokens in the cache, the next one has position `length`: they count from 0."),
        mistake("pieces_counted", "torch.arange(start, start + T, device=tokens.device)", "torch.arange(start, start + T, device=tokens.device) - max(start - 1, 0)",
                "The second piece starts at position 1, however long the first was. It is the number of *positions* in the cache that counts."),
        mistake("one_cache_for_all_blocks", "block.norm_1(x), cache, model", "block.norm_1(x), caches[0], model",
                "All blocks share the first cache: each layer's keys are mixed with the others'. Each block has its own."),
        mistake("attention_residual_missing", "x = x + cached_attention", "x = cached_attention", "What a token was is lost in the attention: the residual is missing, x + …."),
        mistake("feed_forward_residual_missing", "x = x + block.feed_forward", "x = block.feed_forward", "What a token was is lost in the feed-forward network: the residual is missing, x + …."),
        mistake("no_first_norm", "cached_attention(block.attention, block.norm_1(x),", "cached_attention(block.attention, x,", "The attention reads x itself. In a pre-norm block it reads norm_1(x)."),
        mistake("no_second_norm", "block.feed_forward(block.norm_2(x))", "block.feed_forward(x)", "The feed-forward network reads x itself. In a pre-norm block it reads norm_2(x)."),
        mistake("no_feed_forward", "        x = x + block.feed_forward(block.norm_2(x))\n", "", "The feed-forward network is missing: a block has two halves."),
        mistake("no_final_norm", "model.final_norm(x) @", "x @", "The last norm is missing."),
        mistake("no_positions", " + model.position_embedding(positions)", "", "The positions are not added."),
        mistake("cache_not_used", "block.norm_1(x), cache, model", "block.norm_1(x), type(cache)(), model", "Every block gets a new, empty cache: new tokens don't see the earlier ones. Pass on the caches that you are given."),
        mistake("last_token_alone", "start, T = caches[0].length, tokens.shape[1]", "tokens = tokens[:, -1:]\n    start, T = caches[0].length, tokens.shape[1]",
                "Only the last of the new tokens is read, so that the others never get into the cache. Read all of them."),
        mistake("last_logits_alone", "return model.final_norm(x) @", "return model.final_norm(x)[:, -1:] @", "You return the logits of the last new token alone. Return those of all new tokens, (B, T, V)."),
        mistake("context_not_checked", "if start + T > model.config.context:", "if False:",
                "Too many tokens end in an IndexError of the position embedding. Raise a ValueError that names the lengths."),
        mistake("cached_tokens_not_counted", "if start + T > model.config.context:", "if T > model.config.context:", "Only the new tokens are compared with the context. Those in the cache count too."),
    ],
    hints=[
        "Walk through GPT.forward and TransformerBlock.forward line by line. Which line has to know that there were tokens before?",
        "Positions start at caches[0].length. Each block: x + cached_attention(norm_1(x)), then x + feed_forward(norm_2(x)). Then the last norm and the output.",
        "`for block, cache in zip(model.blocks, caches): x = x + cached_attention(block.attention, block.norm_1(x), cache, model.config.n_heads)`, …",
    ],
)  # fmt: skip


def sample_cached_cases(draw):
    def inputs(*shape, **settings):
        tokens = draw.integers(0, 5, *shape)
        if shape[1] == 3:  # after 3, …, 2 the small GPT goes on otherwise than after 3 alone
            tokens[0, 0], tokens[0, 2] = 3, 2
        return {"model": "a small GPT", "tokens": tokens, **settings}

    yield case("the most probable token", **inputs(2, 3, n_new=4, temperature=1.0, top_k=1))
    four = inputs(4, 1, n_new=3, temperature=1.0, top_k=1) | {"tokens": different(draw, 4)}
    yield case("prompts of one token, in eval mode", **four, options={"training": False})
    yield case("up to the end of the context", **inputs(1, 5, n_new=3, temperature=1.0, top_k=1))
    yield case("nothing new", **inputs(2, 3, n_new=0))
    yield case("too long", part="context", raises="ValueError", **inputs(2, 5, n_new=4, temperature=1.0, top_k=1))
    yield case("at random", part="distribution", **inputs(1, 2, n_new=2))
    yield case("a temperature and the best three", part="distribution", **inputs(1, 3, n_new=2, temperature=0.6, top_k=3))
    yield case("a nucleus", part="distribution", **inputs(1, 3, n_new=2, temperature=1.5, top_k=None, top_p=0.8))


STEP = "logits = decode_step(model, new, caches)[:, -1]"
NEW = "torch.multinomial(softmax(filter_logits(logits, temperature, top_k, top_p)), 1)"
sample_cached = Exercise(
    reference=gpt.sample_cached,
    purpose="Write the same text, with each token going through the model once.",
    minutes=15,
    difficulty=3,
    cases=sample_cached_cases,
    parts={"values": 2, "context": 1, "distribution": 1},
    probe="gpt:sample_cached",
    mistakes=[
        mistake("prompt_counted_twice", "    new = tokens\n", "    decode_step(model, tokens[:, :3], caches)\n    new = tokens[:, -1:]\n",
                "The prompt goes through the model, and then its last token once more: it is in the cache twice. The logits for the first new token are those that the "
                "prompt gave at its last position."),
        mistake("whole_text_each_time", "decode_step(model, new, caches)", "decode_step(model, tokens, caches)",
                "The whole text goes through the model at every step, into a cache that already holds most of it. After the prompt, feed only the token that was just drawn."),
        mistake("cache_not_used", "decode_step(model, new, caches)", "decode_step(model, tokens, [KVCache() for _ in model.blocks])",
                "The text is right, but every step computes all of it anew, with new caches. Make the caches once, before the loop, and feed what is new."),
        mistake("caches_made_anew", STEP, "caches = [KVCache() for _ in model.blocks]\n        " + STEP, "The caches are made anew at every step, so that the model forgets all but the last token. Make them once, before the loop."),
        mistake("one_cache_for_all_blocks", "[KVCache() for _ in model.blocks]", "[KVCache()] * len(model.blocks)", "All blocks share one cache: `[KVCache()] * n` is n times the same object. Make one for each block."),
        mistake("first_position", STEP, "logits = decode_step(model, new, caches)[:, 0]", "You sample from what the model predicts after the *first* token of the prompt. Take the last position: [:, -1]."),
        mistake("most_probable_always", NEW, "filter_logits(logits, temperature, top_k, top_p).argmax(-1, keepdim=True)", "You always take the most probable token. Draw: torch.multinomial(probabilities, 1)."),
        mistake("temperature_ignored", "filter_logits(logits, temperature, top_k, top_p)", "filter_logits(logits, 1.0, top_k, top_p)", "The temperature does not reach filter_logits."),
        mistake("top_k_ignored", "filter_logits(logits, temperature, top_k, top_p)", "filter_logits(logits, temperature, None, top_p)", "top_k does not reach filter_logits."),
        mistake("top_p_ignored", "filter_logits(logits, temperature, top_k, top_p)", "filter_logits(logits, temperature, top_k)", "top_p does not reach filter_logits."),
        mistake("one_draw_for_all_rows", NEW, "torch.multinomial(softmax(filter_logits(logits, temperature, top_k, top_p))[:1], 1).expand(len(tokens), 1)", "All rows get the token that was drawn for the first. Each row has its own draw."),
        mistake("left_in_train_mode", "    model.eval()\n", "", "The model samples in training mode: dropout is on. Call model.eval() first."),
        mistake("left_in_eval_mode", "    model.train(training)\n", "", "The model is left in eval mode. Put it back in the mode that it was in."),
        mistake("graph_recorded", "@torch.no_grad()\n", "", "Gradients are recorded while the model writes, and the caches keep all of it in memory. Use `@torch.no_grad()`."),
        mistake("new_tokens_alone", "return tokens", "return tokens[:, tokens.shape[1] - n_new :]", "You return the new tokens alone. Return the prompt too."),
        mistake("context_not_checked", "if tokens.shape[1] + n_new > model.config.context:", "if False:",
                "A text that won't fit into the context is begun all the same, and only decode_step stops it, if at all. Check first, and raise a ValueError."),
    ],
    hints=[
        "How many tokens go into decode_step at the first step? How many at all later ones?",
        "Like sample, but with `caches = [KVCache() for _ in model.blocks]` before the loop, and in it only what is new: first the prompt, then the token just drawn.",
        "`logits = decode_step(model, new, caches)[:, -1]`, where `new` is at first the prompt and then (B, 1).",
    ],
    forbidden=["generate"],
)  # fmt: skip


def merge_pair_cases(draw):
    yield case("one place", tokens=(5, 6, 7), pair=(5, 6), new=256)
    yield case("two places", tokens=(1, 2, 3, 1, 2, 2), pair=(1, 2), new=9)
    yield case("nowhere", tokens=(2, 1, 2, 2), pair=(1, 1), new=9)
    yield case("the other way round", tokens=(2, 1, 3, 1, 2), pair=(1, 2), new=7)
    yield case("three alike", tokens=(4, 4, 4), pair=(4, 4), new=8)
    yield case("five alike", tokens=(1, 4, 4, 4, 4, 4, 2), pair=(4, 4), new=8)
    yield case("nothing", tokens=(), pair=(1, 2), new=3)
    yield case("at random", tokens=tuple(draw.integers(0, 3, 40).tolist()), pair=(1, 2), new=300)
    yield case("at random, alike", tokens=tuple(draw.integers(0, 2, 40).tolist()), pair=(1, 1), new=300)


merge_pair = Exercise(
    reference=gpt.merge_pair,
    purpose="The one operation of byte-pair encoding: two tokens become one.",
    minutes=10,
    difficulty=1,
    cases=merge_pair_cases,
    parts={"values": 2},
    probe="gpt:tokens",
    mistakes=[
        mistake("first_place_alone", "if merged and", "if new not in merged and merged and", "Only the first occurrence is replaced. Go on to the end."),
        mistake("either_order", "(merged[-1], token) == pair", "{merged[-1], token} == set(pair)", "(b, a) is replaced as well. The order counts: only a followed by b."),
        mistake("second_kept", "merged[-1] = new", "merged[-1] = new\n            merged.append(token)", "The second token of the pair is still there, behind the new one. Both are replaced."),
        mistake("first_kept", "merged[-1] = new", "merged.append(new)", "The first token of the pair is still there, in front of the new one. Both are replaced."),
        mistake("three_in_a_row", "for token in tokens:", "for i, token in enumerate(tokens):",
                "A token is used for two pairs: of three alike, the middle one belongs to the first pair, and the third stays as it is. Go on *behind* what was replaced.",
                also=[("(merged[-1], token) == pair", "(tokens[i - 1], token) == pair")]),
        mistake("right_to_left", "for token in tokens:", "for token in tokens[::-1]:", "You go from right to left: of three alike, the last two are merged. It goes from left to right.",
                also=[("(merged[-1], token) == pair", "(token, merged[-1]) == pair"), ("return merged", "return merged[::-1]")]),
        mistake("changed_in_place", "return merged", "tokens[:] = merged\n    return merged", "You change the caller's list. Make a new one."),
        mistake("last_token_lost", "for token in tokens:", "for token in tokens[:-1] if pair != tuple(tokens[-2:]) else tokens:", "The last token is lost where it is in no pair."),
    ],
    hints=[
        "Go from left to right and build a new list. When do you know that the last token you put there belongs to a pair?",
        "If the last of the new list and the current token are the pair, replace the last by `new`; else append the current one.",
        "`if merged and (merged[-1], token) == pair: merged[-1] = new`, in a loop over the tokens.",
    ],
)  # fmt: skip

WORDS = "low lower lowest newer newest wider widest"


def train_bpe_cases(draw):
    letters = "".join("abc"[i] for i in draw.integers(0, 3, 60).tolist())
    yield case("the classic", text="aaabdaaabac", n_merges=3)
    yield case("words", text=WORDS, n_merges=12)
    yield case("three letters at random", text=letters, n_merges=8)
    yield case("no merges", text="abab", n_merges=0)
    yield case("ties", part="ties", text="bababcdcd", n_merges=1)
    yield case("more ties", part="ties", text="zyzyababmnmn", n_merges=4)
    yield case("nothing occurs twice", part="end", text="abcdef", n_merges=5)
    yield case("soon nothing occurs twice", part="end", text="abcabd", n_merges=9)
    yield case("nothing", part="end", text="", n_merges=3)
    yield case("more than one byte a letter", part="bytes", text="äöäöüä", n_merges=4)
    yield case("emoji", part="bytes", text="🙂🙃🙂🙂", n_merges=6)


train_bpe = Exercise(
    reference=gpt.train_bpe,
    purpose="Let the text say which pieces it is made of.",
    minutes=20,
    difficulty=2,
    cases=train_bpe_cases,
    parts={"values": 2, "ties": 1, "end": 1, "bytes": 1},
    probe="gpt:tokens",
    options={"name": "merges"},
    mistakes=[
        mistake("characters_not_bytes", 'text.encode("utf-8")', "map(ord, text)",
                "You start from characters (code points). Start from the bytes of UTF-8: 256 of them are enough for every text there is, and ids from 256 on are free."),
        mistake("rarest_pair", "max(counts, key=counts.get, default=None)", "min(counts, key=counts.get, default=None)", "You merge the rarest pair. Merge the most frequent one."),
        mistake("last_of_equals", "max(counts, key=counts.get, default=None)", "max(reversed(counts), key=counts.get, default=None)",
                "Of equally frequent pairs you take the one whose first occurrence comes last. Take the one that occurs first."),
        mistake("largest_of_equals", "max(counts, key=counts.get, default=None)", "max(counts, key=lambda pair: (counts[pair], pair), default=None)",
                "Of equally frequent pairs you take the one of the largest numbers. Take the one that occurs first in the text."),
        mistake("smallest_of_equals", "max(counts, key=counts.get, default=None)", "min(counts, key=lambda pair: (-counts[pair], pair), default=None)",
                "Of equally frequent pairs you take the one of the smallest numbers. Take the one that occurs first in the text."),
        mistake("text_not_merged", "tokens = merge_pair(", "merge_pair(", "The text stays as it was, so that the same pair is found every time: go on with what merge_pair returns."),
        mistake("counted_once", "    while len(merges) < n_merges:\n        counts = Counter(itertools.pairwise(tokens))\n", "    counts = Counter(itertools.pairwise(tokens))\n    while len(merges) < n_merges:\n",
                "The pairs are counted once, before the first merge. Each merge changes the text: count anew each time, or no token is ever made of tokens.",
                also=[("        tokens = merge_pair(tokens, pair, 256 + len(merges))\n", "        counts = Counter({each: count for each, count in counts.items() if each != pair})\n")]),
        mistake("ids_from_257", "256 + len(merges))", "257 + len(merges))", "The first merge makes the token 257. Bytes end at 255, so it is 256."),
        mistake("pairs_that_occur_once", "counts[pair] < 2", "counts[pair] < 1", "Pairs that occur once are merged too: that shortens the text by one token and teaches nothing. Stop where no pair occurs twice."),
        mistake("stops_too_early", "counts[pair] < 2", "counts[pair] < 3", "You stop where no pair occurs three times. Twice is enough."),
        mistake("one_merge_too_many", "while len(merges) < n_merges:", "while len(merges) <= n_merges:", "There is one merge too many: at most n_merges."),
        mistake("vocabulary_for_merges", "while len(merges) < n_merges:", "while len(merges) < n_merges - 256:", "n_merges is taken for the size of the vocabulary. It is the number of merges: the vocabulary has 256 more."),
        mistake("neighbours_apart", "itertools.pairwise(tokens)", "zip(tokens[::2], tokens[1::2])", "You count every second pair only (the text cut into twos). Every place where two neighbours stand counts."),
        mistake("within_words", "itertools.pairwise(tokens)", "(each for each in itertools.pairwise(tokens) if 32 not in each)",
                "Pairs with a space are left out. GPT-2 does something like it, by splitting the text into words first; here every pair counts."),
    ],
    hints=[
        "How do you find all pairs of neighbours of a list? Which one is the most frequent? What has to be done before the next round?",
        "`tokens = list(text.encode(\"utf-8\"))`. In each round: `Counter(itertools.pairwise(tokens))`, the pair of the largest count, merge_pair with the token 256 + i.",
        "`max(counts, key=counts.get)` takes the first of the largest, and a Counter keeps the order in which it met its keys.",
    ],
)  # fmt: skip


BASIC = ((97, 98), (99, 97), (256, 256), (256, 99), (258, 257))


def encode_cases(draw):
    letters = "".join("abc"[i] for i in draw.integers(0, 3, 60).tolist())
    yield case("one merge", text="abcab", merges=((97, 98),))
    yield case("merges of merges", text="abababcacab", merges=BASIC)
    yield case("at random", text=letters, merges=BASIC)
    yield case("the order decides", text="abcacaba", merges=((99, 97), (97, 98), (256, 98), (98, 256)))
    yield case("some never occur", text="caab", merges=((120, 121), (97, 97), (256, 122), (257, 98), (99, 257)))
    yield case("no merges", text="abc", merges=())
    yield case("nothing", text="", merges=BASIC)
    yield case("more than one byte a letter", part="bytes", text="äöa🙂", merges=((195, 164), (195, 182), (256, 257)))


encode = Exercise(
    reference=gpt.encode,
    purpose="Read a text as the model will see it.",
    minutes=10,
    difficulty=2,
    cases=encode_cases,
    parts={"values": 2, "bytes": 1},
    probe="gpt:tokens",
    mistakes=[
        mistake("characters_not_bytes", 'text.encode("utf-8")', "map(ord, text)", "You start from characters (code points). Start from the bytes of UTF-8."),
        mistake("merges_reversed", "for i, pair in enumerate(merges):", "for i, pair in reversed(list(enumerate(merges))):",
                "The merges are made from the last to the first: those of merges find nothing. They are made in the order in which they were learnt."),
        mistake("ids_from_0", "256 + i", "i", "Merge number i makes the token 256 + i; you give it i, which is a byte."),
        mistake("ids_from_257", "256 + i", "257 + i", "Merge number i makes the token 256 + i; yours are one larger."),
        mistake("first_merge_alone", "enumerate(merges)", "enumerate(merges[:1])", "Only the first merge is made. Make all of them, one after the other."),
        mistake("stops_at_an_absent_pair", "        tokens = merge_pair(tokens, pair, 256 + i)", "        if len(merge_pair(tokens, pair, 256 + i)) == len(tokens):\n            break\n        tokens = merge_pair(tokens, pair, 256 + i)",
                "You stop at the first merge that finds nothing. Later ones may find something: go through all."),
        mistake("text_not_merged", "tokens = merge_pair(tokens, pair, 256 + i)", "merge_pair(tokens, pair, 256 + i)", "What merge_pair returns is lost. It makes a new list: tokens = merge_pair(…)."),
        mistake("longest_first", "    tokens = list(text.encode(\"utf-8\"))\n    for i, pair in enumerate(merges):\n        tokens = merge_pair(tokens, pair, 256 + i)\n",
                "    pieces = [bytes([i]) for i in range(256)]\n    for a, b in merges:\n        pieces.append(pieces[a] + pieces[b])\n    rest, tokens = text.encode(\"utf-8\"), []\n    while rest:\n"
                "        best = max((i for i, piece in enumerate(pieces) if rest.startswith(piece)), key=lambda i: len(pieces[i]))\n        tokens.append(best)\n        rest = rest[len(pieces[best]) :]\n",
                "You take the longest token that fits, from left to right. That gives other tokens than those on which the model was trained: replay the merges in "
                "their order."),
    ],
    hints=[
        "Training made the merges one after another, on its own text. How do you get the same pieces out of a new text?",
        "Start from the bytes. For each merge, in order, merge_pair with the token 256 + i.",
        "`for i, pair in enumerate(merges): tokens = merge_pair(tokens, pair, 256 + i)`.",
    ],
)  # fmt: skip


def decode_cases(draw):
    yield case("one merge", tokens=(256, 99, 256), merges=((97, 98),))
    yield case("merges of merges", tokens=(260, 98, 259, 258, 257), merges=BASIC)
    yield case("at random", tokens=tuple((draw.integers(97, 123, 20)).tolist()), merges=())
    yield case("nothing", tokens=(), merges=BASIC)
    yield case("a letter of two tokens", part="bytes", tokens=(195, 164, 97, 240, 256, 130), merges=((159, 153),))
    yield case("not valid", part="bytes", tokens=(97, 255, 98, 195), merges=())


JOIN = 'b"".join(pieces[token] for token in tokens).decode("utf-8", errors="replace")'
decode = Exercise(
    reference=gpt.decode,
    purpose="Turn what the model writes back into text, whatever it writes.",
    minutes=10,
    difficulty=2,
    cases=decode_cases,
    parts={"values": 2, "bytes": 1},
    probe="gpt:tokens",
    options={"name": "text"},
    mistakes=[
        mistake("each_token_decoded", JOIN, '"".join(pieces[token].decode("utf-8", errors="replace") for token in tokens)',
                "Every token is decoded by itself: a letter whose bytes are spread over two tokens becomes two �. Join the bytes first, then decode once."),
        mistake("strict", ', errors="replace"', "", "Bytes that are no valid UTF-8 raise an error, and a model may write any. Use errors=\"replace\"."),
        mistake("ignored", 'errors="replace"', 'errors="ignore"', "Bytes that are no valid UTF-8 vanish. They become the replacement character: errors=\"replace\"."),
        mistake("bytes_as_characters", '.decode("utf-8", errors="replace")', '.decode("latin-1")', "Every byte is taken for a character. Several bytes may make one: decode them as UTF-8."),
        mistake("exchanged", "pieces[a] + pieces[b]", "pieces[b] + pieces[a]", "The two halves of a merge are put together in the wrong order: a, then b."),
        mistake("one_level", "pieces.append(pieces[a] + pieces[b])", "pieces.append(bytes([a % 256, b % 256]))", "A merge may be made of merges. Build the bytes of each token from those of its two halves, in order."),
        mistake("merges_left_out", "for token in tokens)", "for token in tokens if token < 256)", "Tokens from 256 on are left out. They stand for the bytes of their two halves."),
    ],
    hints=[
        "Which bytes does token 97 stand for? And 256? And a token that is made of 256 and 98?",
        "Make a list of the bytes of all tokens: 256 of one byte each, then for each merge those of a and of b together. Join, and decode once.",
        "`pieces = [bytes([i]) for i in range(256)]`, then `pieces.append(pieces[a] + pieces[b])`; in the end `.decode(\"utf-8\", errors=\"replace\")`.",
    ],
)  # fmt: skip

MODULE = Module(
    "gpt", "Decoder-only: GPT", hours=5, difficulty=3, needs="modules 01 (attention), 02 (multi-head attention) and 04 (the block)",
    exercises=[
        shift_labels, cross_entropy, GPT, lr_schedule, train_step, filter_logits, sample, KVCache, cached_attention, decode_step, sample_cached,
        merge_pair, train_bpe, encode, decode,
    ],
)  # fmt: skip
