"""Module 06: blanks, an encoder that fills them in, and what it is good for afterwards."""

import torch

from autograder.exercise import Exercise, Module, case, mistake
from autograder.exercises.block import block_weights
from solutions import attention, bert

SINGLE = torch.float32
SPECIAL = [0, 1, 2, 3]


def texts(draw, B, T, V, special=SPECIAL):
    """Tokens that begin with 1, end with 2, and have some padding (0): all of them special, but for what stands in between."""
    tokens = draw.integers(len(special), V, B, T)
    if special:
        tokens[:, 0], tokens[:, -1], tokens[::3, -T // 4 :] = 1, 2, 0
    return tokens


def mask_tokens_cases(draw):
    yield case(
        "nothing to be chosen", tokens=texts(draw, 3, 7, 9), mask_token=3, vocab_size=9, special=SPECIAL, p=0.0, options={"exact": True}
    )
    yield case("all chosen", tokens=texts(draw, 160, 120, 12), mask_token=3, vocab_size=12, special=SPECIAL, p=1.0)
    yield case("half of them chosen", tokens=texts(draw, 100, 160, 11), mask_token=3, vocab_size=11, special=SPECIAL, p=0.5)
    yield case("as it is called by default", tokens=texts(draw, 100, 200, 8, special=[]), mask_token=5, vocab_size=8)
    yield case(
        "special tokens alone",
        part="special",
        tokens=draw.integers(0, 4, 5, 6),
        mask_token=3,
        vocab_size=9,
        special=SPECIAL,
        p=0.9,
        options={"exact": True},
    )
    few = draw.integers(0, 8, 10, 11)  # so that what is wrong with the fates of ordinary tokens never shows here
    yield case("other special tokens", part="special", tokens=few, mask_token=0, vocab_size=8, special=[6, 0], p=0.9)


mask_tokens = Exercise(
    reference=bert.mask_tokens,
    purpose="Make an exam out of any text, with its answers: no one has to label anything.",
    minutes=30,
    difficulty=3,
    cases=mask_tokens_cases,
    parts={"values": 3, "special": 1},
    probe="bert:masking",
    mistakes=[
        mistake("special_tokens_masked", "chosen = ordinary & ", "chosen = ",
                "Special tokens are chosen too. Nobody should have to guess [PAD], [CLS] or [SEP]: keep those of `special` out (torch.isin) before anything "
                "is chosen."),
        mistake("labels_of_every_token", "tokens.masked_fill(~chosen, -100)", "tokens.clone()",
                "Every token has a label, so the loss will be taken on every token. Six in seven of them can simply be copied from the input: the loss "
                "looks wonderful, and says nothing about the blanks. Tokens that were not chosen get -100."),
        mistake("labels_inverted", "~chosen, -100", "chosen, -100",
                "Your labels are the wrong way round: -100 stands where a token was chosen, and the answer where there is nothing to guess."),
        mistake("labels_hold_the_blank", "tokens.masked_fill(~chosen, -100)", "torch.where(chosen, mask_token, -100)",
                "Your labels say mask_token where a token was chosen. A label is the answer: the token that stood there *before*."),
        mistake("minus_1_for_minus_100", "~chosen, -100)", "~chosen, -1)",
                "Where nothing is to be predicted your labels say -1, and the agreement is -100 (what torch's cross_entropy skips on its own): a loss that "
                "skips -100 would take -1 for a token."),
        mistake("zero_for_minus_100", "~chosen, -100)", "~chosen, 0)",
                "Where nothing is to be predicted your labels say 0, and 0 is a token of the vocabulary. The agreement is -100, which no token is."),
        mistake("one_number_reused", "(torch.rand(tokens.shape, device=tokens.device) < p)",
                "((first := torch.rand(tokens.shape, device=tokens.device)) < p)",
                "You use one random number twice: to choose a token (below p), and then to decide what becomes of it (below 0.8?). A number that is below "
                "0.15 is always below 0.8, so every chosen token becomes a blank. Draw a second number, or scale: 0.8·p, 0.9·p.",
                also=[("kind = torch.rand(tokens.shape, device=tokens.device)", "kind = first")]),
        mistake("always_a_blank", "(kind < 0.8)", "(kind <= 1)",
                "Every chosen token becomes a blank: 100/0/0, not 80/10/10. In use there are no blanks, so the model must learn that any token may be "
                "wrong: 10% become another token, 10% stay.",
                also=[("(kind >= 0.9)", "(kind > 1)")]),
        mistake("ten_percent_of_the_rest", "(kind >= 0.9)", "(kind >= 0.98)",
                "80% become blanks, but only 2% a random token: you take 10% of the 20% that are left. Half of what is left is 10% of all chosen."),
        mistake("none_stays", "(kind >= 0.9)", "(kind >= 0.8)",
                "80% become blanks and all the others a random token: 80/20/0. Half of the others stay as they are."),
        mistake("none_is_replaced", "(kind >= 0.9)", "(kind > 1)",
                "80% become blanks and all the others stay: 80/0/20. Half of the others become a random token."),
        mistake("replaced_after_all", "(kind >= 0.9)", "(torch.rand(tokens.shape, device=tokens.device) < 0.1)",
                "A random token takes the place of some of the blanks: you draw 10% of *all* chosen ones a second time, blanks among them. The three fates "
                "exclude each other: one number from 0 to 1, cut at 0.8 and at 0.9."),
        mistake("one_random_token_for_all", "torch.randint(vocab_size, tokens.shape,", "torch.randint(vocab_size, (1,),",
                "One random token is drawn, and stands in every place. Draw one for each: torch.randint(vocab_size, tokens.shape)."),
        mistake("last_word_never_drawn", "torch.randint(vocab_size,", "torch.randint(vocab_size - 1,",
                "The last token of the vocabulary never comes up as a random token: the upper end of torch.randint is already excluded."),
        mistake("random_token_is_ordinary", "torch.randint(vocab_size, tokens.shape,", "torch.randint(len(special), vocab_size, tokens.shape,",
                "Your random tokens leave some of the vocabulary out. Here they are drawn from all of it, special ones included, as in BERT's own code."),
        mistake("same_places_in_every_sequence", "(torch.rand(tokens.shape, device", "(torch.rand(tokens.shape[-1:], device",
                "The same places are chosen in every sequence: one draw serves the whole batch. Each token has a draw of its own: "
                "torch.rand(tokens.shape)."),
        mistake("one_fate_for_all", "kind = torch.rand(tokens.shape,", "kind = torch.rand(tokens.shape[-1:],",
                "What becomes of a token is drawn once for the whole batch. Each chosen token has a fate of its own."),
        mistake("same_every_time", "    ordinary =", "    torch.manual_seed(0)\n    ordinary =",
                "Two calls choose the same tokens: you set the seed inside. Then the model sees the same blanks in every epoch (and everybody else's random "
                "numbers repeat, too). Leave the seed to the caller."),
        mistake("p_ignored", " < p)", " < 0.15)", "Always 15% of the tokens are chosen, whatever p says."),
        mistake("p_the_wrong_way_round", " < p)", " > p)", "A token is chosen with probability 1 - p. torch.rand is below p with probability p."),
        mistake("changed_in_place", "inputs = tokens.masked_fill(", "inputs = tokens.masked_fill_(",
                "You write the blanks into the caller's own tokens, who needs them again in the next epoch (and for the labels). Work on a copy."),
        mistake("returned_in_the_wrong_order", "return inputs, labels", "return labels, inputs",
                "You return the labels first. The inputs come first: `return inputs, labels`."),
    ],
    hints=[
        "Two questions about each token, and two independent answers: is it chosen at all? If so, which of three things becomes of it?",
        "`torch.rand(tokens.shape) < p`, and not special (torch.isin): chosen. A second torch.rand, cut at 0.8 and 0.9, decides. Labels: "
        "`tokens.masked_fill(~chosen, -100)`.",
        "`kind = torch.rand(tokens.shape)`; `inputs = tokens.masked_fill(chosen & (kind < 0.8), mask_token)`; and where `chosen & (kind >= 0.9)`, "
        "torch.where takes from `torch.randint(vocab_size, tokens.shape)`.",
    ],
    forbidden=["DataCollatorForLanguageModeling"],
)  # fmt: skip


def some_labels(draw, B, T, V):
    """Labels of which about half are -100, token 0 and another one among the rest."""
    labels = draw.integers(0, V, B, T).masked_fill(draw.mask(B, T), -100)
    labels[0, :2], labels[-1, -1] = torch.tensor([0, -100]), V - 1
    return labels


def masked_lm_loss_cases(draw):
    yield case("every token chosen", logits=draw.normal(2, 3, 5), labels=draw.integers(0, 5, 2, 3).index_fill(1, torch.tensor([1]), 0))
    yield case("half of them", part="-100", logits=draw.normal(3, 5, 4), labels=some_labels(draw, 3, 5, 4))
    yield case("one alone", part="-100", logits=draw.normal(2, 4, 3), labels=torch.tensor([[-100] * 4, [-100, 2, -100, -100]]))
    yield case("a large vocabulary", part="-100", logits=draw.normal(2, 3, 130), labels=some_labels(draw, 2, 3, 130))
    yield case("nothing chosen", part="-100", logits=draw.normal(2, 3, 4), labels=torch.full((2, 3), -100))
    yield case("one label a sequence", logits=draw.normal(4, 3), labels=torch.tensor([2, 0, 1, 2]))
    yield case(
        "large numbers", part="stability", logits=draw.normal(2, 3, 4) * 10 + 1000.0, labels=torch.tensor([[0, -100, 3], [-100, 1, 2]])
    )
    yield case("float32", logits=draw.normal(2, 3, 4, dtype=SINGLE), labels=torch.tensor([[0, 3, 1], [2, 1, 0]]))


masked_lm_loss = Exercise(
    reference=bert.masked_lm_loss,
    purpose="Mark the exam: only the blanks count.",
    minutes=15,
    difficulty=2,
    cases=masked_lm_loss_cases,
    parts={"values": 1, "-100": 2, "stability": 1, "gradient": 1},
    mistakes=[
        mistake("loss_on_every_token", "labels != -100", "labels == labels",
                "The loss is taken on every token, those with the label -100 included (as if the answer were token 0, whatever stands there). Nothing is to be "
                "predicted at those. Only where labels != -100.",
                also=[("labels[chosen]  #", "labels[chosen].clamp(min=0)  #")]),
        mistake("ignores_minus_1", "labels != -100", "labels != -1",
                "The label that means *nothing to predict* is -100; you don't skip it (do you skip -1?), and so it is looked up as if it were a token."),
        mistake("counted_from_the_end", "labels != -100", "labels == labels",
                "You look up the label -100 as if it were a token. With fewer than 100 words that is an error; with more it is the hundredth *from the end*, and "
                "nobody notices. Take out the positions whose label is -100 first.",
                also=[("scores.gather(-1, targets[:, None]).squeeze(-1)", "scores[list(range(len(scores))), targets.flatten()]"),
                      ("logits[chosen], labels[chosen]", "logits.flatten(0, -2), labels")]),
        mistake("token_0_ignored", "labels != -100", "labels > 0",
                "You leave out the label 0 as well. 0 is a token; only -100 means that there is nothing to predict."),
        mistake("divided_by_all", "chosen.sum().clamp(min=1)", "chosen.numel()",
                "You divide by the number of all tokens. It is the mean over the *chosen* ones: otherwise the loss, and the step that is taken, depend on how "
                "many happened to be chosen."),
        mistake("sum_for_mean", " / chosen.sum().clamp(min=1)", "", "You return the sum over the chosen tokens. It is their mean."),
        mistake("mean_of_means", "return (scores.logsumexp(-1) - right).sum() / chosen.sum().clamp(min=1)",
                "loss = logits.new_zeros(labels.shape).masked_scatter(chosen, scores.logsumexp(-1) - right)\n"
                "    return (loss.sum(-1) / chosen.sum(-1).clamp(min=1)).mean()",
                "You average within each sequence first, and then over the sequences: a token counts less where more were chosen. It is one mean over all "
                "chosen tokens of the batch."),
        mistake("nan_where_nothing_is_chosen", ".clamp(min=1)", "",
                "Where nothing was chosen you return 0 / 0 = NaN, and one such batch ruins all weights. The loss is 0 there: `.clamp(min=1)` on the number of "
                "chosen tokens."),
        mistake("no_max_subtracted", "scores.logsumexp(-1)", "scores.exp().sum(-1).log()",
                "The exponential of a large logit overflows: exp(1000) is inf. Use torch.logsumexp, or subtract the largest logit first."),
        mistake("sign", "(scores.logsumexp(-1) - right)", "(right - scores.logsumexp(-1))",
                "The sign is wrong: this is the mean log-probability, and training would make it *smaller*. The loss is its negative."),
        mistake("probability_for_logarithm", "(scores.logsumexp(-1) - right)", "(1 - (right - scores.logsumexp(-1)).exp())",
                "You average 1 - p. Cross-entropy is -log p: a token that was thought impossible costs without limit."),
        mistake("gradient_cut", "scores, targets = logits[chosen]", "scores, targets = logits.detach()[chosen]",
                "The number is right, but no gradient reaches the logits: they are cut out of the graph (detach, .data, .item())."),
    ],
    hints=[
        "A text of 20 tokens, 3 of them chosen. How many cross-entropies do you need, and by what do you divide their sum?",
        "`chosen = labels != -100`, and then `logits[chosen]`, of shape (M, V), with `labels[chosen]`, of shape (M): now it is an ordinary cross-entropy.",
        "-log p(right) = logsumexp(scores) - scores[right]. `scores.gather(-1, targets[:, None])` picks the right ones. Mind the batch in which nothing was chosen.",
    ],
    forbidden=["cross_entropy", "nll_loss", "CrossEntropyLoss", "NLLLoss", "cross_entropy_loss"],
)  # fmt: skip


def embedding_weights(draw, V, S, D, dtype=torch.float64, N=2):
    weights = {f"{name}.weight": draw.normal(n, D, dtype=dtype) for name, n in
               (("token_embedding", V), ("position_embedding", S), ("segment_embedding", N))}  # fmt: skip
    return weights | {"norm.weight": draw.normal(D, scale=0.5, dtype=dtype) + 1, "norm.bias": draw.normal(D, dtype=dtype)}


def embedding_inputs(draw, B, T, V, S, D, dtype=torch.float64, **settings):
    weights = embedding_weights(draw, V, S, D, dtype, settings.get("n_segments", 2))
    return {"build": {"vocab_size": V, "max_length": S, "d_model": D, **settings}, "weights": weights, "tokens": draw.integers(0, V, B, T)}


def bert_embeddings_cases(draw):
    yield case("one sentence each", **embedding_inputs(draw, 2, 3, V=7, S=6, D=5))
    yield case("as long as it may be", **embedding_inputs(draw, 3, 4, V=6, S=4, D=5))
    yield case("as many sequences as tokens", **embedding_inputs(draw, 4, 4, V=6, S=7, D=3))
    yield case("one token", **embedding_inputs(draw, 3, 1, V=5, S=4, D=6))
    yield case("float32", **embedding_inputs(draw, 2, 3, V=5, S=4, D=6, dtype=SINGLE), options={"gradient": False})
    yield case(
        "two sentences each",
        part="segments",
        **embedding_inputs(draw, 2, 5, V=7, S=6, D=4),
        segments=torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, 0, 0]]),
    )
    yield case(
        "three segments",
        part="segments",
        **embedding_inputs(draw, 2, 3, V=5, S=6, D=4, n_segments=3),
        segments=torch.tensor([[0, 1, 2], [2, 2, 0]]),
    )
    yield case("dropout", part="dropout", **embedding_inputs(draw, 1, 3, V=5, S=4, D=6, n_segments=2, dropout=0.4))


BertEmbeddings = Exercise(
    reference=bert.BertEmbeddings,
    purpose="Tell the encoder three things of each token: what it is, where it stands, and which sentence it belongs to.",
    minutes=20,
    difficulty=2,
    cases=bert_embeddings_cases,
    parts={"values": 2, "segments": 1, "dropout": 1, "gradient": 1},
    probe="bert:embeddings",
    mistakes=[
        mistake("no_positions", " + self.position_embedding(positions)", "",
                "The positions are missing: to attention without them, a sentence is a bag of words."),
        mistake("no_segments", " + self.segment_embedding(segments)", "",
                "The segments are missing. Even a single sentence gets one: row 0 of segment_embedding is added to every token."),
        mistake("no_segment_by_default", "    segments = torch.zeros_like(tokens) if segments is None else segments",
                "    given = segments is not None\n        segments = segments if given else torch.zeros_like(tokens)",
                "Without `segments` you add no segment at all. None means that all tokens belong to the first sentence: they get row 0, which is not 0.",
                also=[("self.segment_embedding(segments)\n", "self.segment_embedding(segments) * given\n")]),
        mistake("segments_ignored", "torch.zeros_like(tokens) if segments is None else segments", "torch.zeros_like(tokens)",
                "All tokens get segment 0, whatever `segments` says."),
        mistake("second_segment_by_default", "torch.zeros_like(tokens) if", "torch.ones_like(tokens) if",
                "Without `segments` all tokens belong to the first sentence, which is number 0, not 1."),
        mistake("positions_along_the_batch", "positions = torch.arange(tokens.shape[1], device=tokens.device)",
                "positions = torch.arange(tokens.shape[0], device=tokens.device)[:, None]",
                "You count the positions along the batch: all tokens of the first sentence stand at 0, all of the second at 1. They run along the tokens, "
                "tokens.shape[1]."),
        mistake("positions_from_1", "self.position_embedding(positions)", "self.position_embedding(positions + 1)",
                "Your positions are counted from 1, so that row 0 is never used and a sequence of full length has no last row. The first token stands at 0."),
        mistake("positions_from_the_end", "self.position_embedding(positions)", "self.position_embedding(positions.flip(0))",
                "Your positions run backwards. The first token stands at 0."),
        mistake("scaled_by_root_d", "self.token_embedding(tokens) +", "self.token_embedding(tokens) * self.token_embedding.embedding_dim**0.5 +",
                "You multiply the tokens' vectors by √D, as the transformer of 2017 does. BERT adds the three as they are: a norm follows anyway."),
        mistake("no_norm", "self.norm(x)", "x + 0 * self.norm(x)", "The sum is not normalised: LayerNorm comes after it."),
        mistake("only_the_tokens_normalised", "x = self.token_embedding(tokens)", "x = self.norm(self.token_embedding(tokens))",
                "You normalise the tokens' vectors and then add the others. First the sum of all three, then the norm.",
                also=[("dropout(self.norm(x), ", "dropout(x, ")]),
        mistake("eps", "eps=1e-12", "eps=1e-5",
                "The norm's eps is 1e-5, and BERT's is 1e-12. It makes little difference here, and a visible one on the weights of a real checkpoint."),
        mistake("no_dropout", "dropout(self.norm(x), self.dropout, self.training)", "self.norm(x)",
                "Nothing is ever dropped. In training, each number that comes out is dropped with probability `dropout`."),
        mistake("dropout_in_eval", "self.dropout, self.training)", "self.dropout)",
                "Dropout is active in eval mode too: a trained model would answer differently each time. Give it `self.training`."),
        mistake("dropout_before_the_norm", "dropout(self.norm(x), self.dropout, self.training)", "self.norm(dropout(x, self.dropout, self.training))",
                "You drop numbers before the norm, which then moves and rescales what is left. Dropout is the last thing, after the norm."),
    ],
    hints=[
        "Which three tables are there, how many rows has each, and with which integers do you look into it?",
        "In `__init__`: three nn.Embedding of width D, and LayerNorm(D, eps=1e-12). In `forward`: three look-ups, their sum, the norm, dropout. The positions "
        "are torch.arange(T).",
        "`x = self.token_embedding(tokens) + self.position_embedding(torch.arange(T, device=tokens.device)) + self.segment_embedding(segments)`; where "
        "segments is None, torch.zeros_like(tokens).",
    ],
)  # fmt: skip


def bert_inputs(draw, B, T, V, S, D, H, L, F, dtype=torch.float64, **settings):
    weights = {f"embeddings.{name}": value for name, value in embedding_weights(draw, V, S, D, dtype).items()}
    for i in range(L):
        weights |= {f"blocks.{i}.{name}": value for name, value in block_weights(draw, D, F, dtype).items()}
    build = {"vocab_size": V, "max_length": S, "n_layers": L, "n_heads": H, "d_model": D, "d_ff": F, **settings}
    return {"build": build, "weights": weights, "tokens": draw.integers(0, V, B, T)}


def dropout_inputs(draw):
    """One block that adds the bias of W_2, and nothing else, to what comes out of the embeddings."""
    inputs = bert_inputs(draw, 1, 1, V=4, S=2, D=3, H=1, L=1, F=2, dropout=0.3)
    for name, weight in inputs["weights"].items():
        if name.startswith(("blocks.0.attention", "blocks.0.feed_forward")) and not name.endswith("W_2.bias"):
            inputs["weights"][name] = torch.zeros_like(weight)
    return inputs


def bert_cases(draw):
    plain = {"gradient": False}
    yield case("two blocks", **bert_inputs(draw, 2, 3, V=5, S=7, D=4, H=2, L=2, F=6))
    yield case("three sequences with padding", part="mask", **bert_inputs(draw, 3, 4, V=6, S=5, D=6, H=3, L=2, F=5),
               mask=attention.padding_mask(torch.tensor([4, 2, 3]), 4), options=plain)  # fmt: skip
    yield case("who sees whom", part="mask", **bert_inputs(draw, 2, 4, V=6, S=5, D=4, H=1, L=1, F=3), options={"only": "sight"})
    yield case("who sees whom, the last two being padding", part="mask", **bert_inputs(draw, 2, 5, V=6, S=5, D=4, H=2, L=2, F=3),
               mask=attention.padding_mask(torch.tensor([3, 3]), 5), options={"only": "sight"})  # fmt: skip
    yield case("two sentences, and a mask", part="values", **bert_inputs(draw, 2, 4, V=5, S=6, D=4, H=2, L=1, F=3),
               mask=attention.padding_mask(torch.tensor([3, 4]), 4), segments=torch.tensor([[0, 1, 1, 0], [0, 0, 1, 1]]), options=plain)  # fmt: skip
    yield case("one token, float32", **bert_inputs(draw, 3, 1, V=5, S=4, D=4, H=2, L=1, F=6, dtype=SINGLE), options=plain)
    yield case(
        "as it starts", part="start", build={"vocab_size": 30, "max_length": 20, "n_layers": 2, "n_heads": 2, "d_model": 32}, weights={}
    )
    yield case("dropout", part="dropout", **dropout_inputs(draw), options={"only": "dropout"})


BERT = Exercise(
    reference=bert.BERT,
    purpose="An encoder: what comes out of each token has seen the whole text, on both sides.",
    minutes=25,
    difficulty=3,
    cases=bert_cases,
    parts={"values": 2, "mask": 2, "start": 1, "dropout": 1, "gradient": 1},
    probe="bert:encoder",
    mistakes=[
        mistake("causal_mask_left_on", "        for block in", "        causal = torch.ones(len(x[0]), len(x[0]), dtype=torch.bool).tril()\n"
                "        mask = causal if mask is None else mask & causal\n        for block in",
                "The causal mask is still on: no token sees what comes after it. That is a GPT that fills in blanks with half of the text hidden. An encoder "
                "hides nothing but padding."),
        mistake("mask_not_passed_on", "block(x, mask)", "block(x)",
                "The mask does not reach the blocks: every token attends to the padding, and a sentence means something else in another batch."),
        mistake("mask_for_the_first_block_only", "x = block(x, mask)", "x, mask = block(x, mask), None",
                "Only the first block gets the mask. Every block attends anew, so every block needs it."),
        mistake("mask_inverted", "block(x, mask)", "block(x, None if mask is None else ~mask)",
                "The mask is turned round on its way: the blocks take True as *may attend*, as you do. (transformers' and torch's own masks differ on it.)"),
        mistake("queries_masked", "block(x, mask)", "block(x, None if mask is None else mask.mT)",
                "Your mask hides padding *queries*: (B, T, 1). It is as keys that padding must not be looked at: (B, 1, T), as padding_mask gives it."),
        mistake("pre_norm", 'd_ff, norm="post"', 'd_ff, norm="pre"',
                "Your blocks normalise first (pre-norm, as in GPT-2). BERT is of 2018: it adds, and then normalises, norm=\"post\". With pre-norm there would have to "
                "be a last norm behind the stack as well."),
        mistake("tanh_gelu", "eps=1e-12)", 'eps=1e-12, activation=lambda x: gelu(x, "tanh"))',
                "You use the tanh approximation of gelu, which is GPT-2's. BERT takes the exact one; they differ by up to 5e-4."),
        mistake("eps", ", eps=1e-12)", ")", "The blocks' norms have the eps of 1e-5. BERT's is 1e-12, there as in the embeddings: pass it on."),
        mistake("segments_not_passed_on", "self.embeddings(tokens, segments)", "self.embeddings(tokens)",
                "The segments do not reach the embeddings: all tokens count as the first sentence's."),
        mistake("one_block_again_and_again", "block(x, mask)", "self.blocks[0](x, mask)",
                "The first block is called again and again. Each has weights of its own: call them in turn."),
        mistake("start_not_drawn", "nn.init.normal_(parameter, std=0.02)", "pass",
                "The weights start as torch makes them: embeddings of standard deviation 1, which is 50 times too large for an output that is tied to them. Draw every "
                "matrix with 0.02."),
        mistake("start_of_embeddings_not_drawn", "elif parameter.dim() > 1:", 'elif parameter.dim() > 1 and "embedding." not in name:',
                "The embeddings start with a standard deviation of 1, torch's own choice for nn.Embedding. They too are drawn with 0.02."),
        mistake("biases_not_0", "nn.init.zeros_(parameter)", "pass", "The biases don't start at 0: nn.Linear draws them. Set them to 0."),
        mistake("gains_drawn", "elif parameter.dim() > 1:", "else:",
                "The gains of the norms are drawn around 0, too. They start at 1; only matrices (dim 2) are drawn."),
        mistake("no_dropout_of_the_embeddings", "d_model, dropout=dropout)", "d_model)", "The embeddings don't get `dropout`: pass it on."),
        mistake("no_dropout_in_the_blocks", 'norm="post", dropout=dropout', 'norm="post"', "The blocks don't get `dropout`: pass it on."),
    ],
    hints=[
        "You have both parts: what do the embeddings need, and what does each block need? What has to be *left out*, compared with GPT?",
        "In `__init__`: BertEmbeddings, an nn.ModuleList of TransformerBlock(d_model, n_heads, d_ff, norm=\"post\", dropout=dropout, eps=1e-12), then a loop over "
        "self.named_parameters() for the start. In `forward`: embed, then each block with the mask.",
        "`for block in self.blocks: x = block(x, mask)`. For the start: nn.init.zeros_ where the name ends in \"bias\", nn.init.normal_(…, std=0.02) where "
        "parameter.dim() > 1.",
    ],
    forbidden=["TransformerEncoder", "TransformerEncoderLayer", "MultiheadAttention", "BertModel", "transformers"],
)  # fmt: skip


def head_inputs(draw, B, T, D, V, dtype=torch.float64):
    weights = {"W.weight": draw.normal(D, D, dtype=dtype), "W.bias": draw.normal(D, dtype=dtype),
               "norm.weight": draw.normal(D, scale=0.5, dtype=dtype) + 1, "norm.bias": draw.normal(D, dtype=dtype),
               "bias": draw.normal(V, dtype=dtype)}  # fmt: skip
    x, embedding = draw.normal(B, T, D, dtype=dtype), draw.normal(V, D, dtype=dtype)
    return {"build": {"d_model": D, "vocab_size": V}, "weights": weights, "x": x, "embedding": embedding}


def masked_lm_head_cases(draw):
    yield case("a batch", **head_inputs(draw, 2, 3, 4, 6))
    yield case("as many words as numbers in one", **head_inputs(draw, 2, 3, 5, 5))
    yield case("one token", **head_inputs(draw, 3, 1, 4, 7))
    yield case("float32", **head_inputs(draw, 2, 3, 4, 5, dtype=SINGLE))


MaskedLMHead = Exercise(
    reference=bert.MaskedLMHead,
    purpose="Ask each place: which word stands here?",
    minutes=15,
    difficulty=2,
    cases=masked_lm_head_cases,
    parts={"values": 2, "gradient": 1},
    probe="build_load_call",
    options={"returns": ["logits"]},
    mistakes=[
        mistake("no_gelu", "gelu(self.W(x))", "self.W(x)", "The activation is missing between W and the norm: norm(gelu(W x))."),
        mistake("tanh_gelu", "gelu(self.W(x))", 'gelu(self.W(x), "tanh")',
                "You use the tanh approximation of gelu, which is GPT-2's. BERT takes the exact one; they differ by up to 5e-4."),
        mistake("relu", "gelu(self.W(x))", "torch.relu(self.W(x))", "You use ReLU. BERT uses gelu here as everywhere."),
        mistake("no_norm", "self.norm(gelu(self.W(x)))", "(gelu(self.W(x)) + 0 * self.norm(x))", "The norm is missing: norm(gelu(W x))."),
        mistake("norm_first", "self.norm(gelu(self.W(x)))", "gelu(self.W(self.norm(x)))", "You normalise first. Here the norm comes last: norm(gelu(W x))."),
        mistake("norm_before_gelu", "self.norm(gelu(self.W(x)))", "gelu(self.norm(self.W(x)))", "You normalise before the activation: it is norm(gelu(W x))."),
        mistake("eps", "eps=1e-12", "eps=1e-5", "The norm's eps is 1e-5, and BERT's is 1e-12."),
        mistake("no_bias", " + self.bias", " + 0 * self.bias", "The bias is missing: each word has a number of its own, for how frequent it is."),
        mistake("embedding_not_transposed", "@ embedding.T", "@ (embedding if embedding.shape[0] == embedding.shape[1] else embedding.T)",
                "You multiply by the embedding as it is. Its rows are words, and each word's score is a dot product with its row: x @ embedding.T. (With V ≠ D the shapes "
                "give it away.)"),
        mistake("embedding_cut_off", "embedding.T", "embedding.detach().T",
                "No gradient reaches the embedding from here. It is tied, not copied: it learns from both ends."),
        mistake("residual_added", "return self.norm(gelu(self.W(x)))", "return self.norm(x + gelu(self.W(x)))", "You add x before the norm. There is no residual here: norm(gelu(W x))."),
        mistake("probabilities", "return self.norm(gelu(self.W(x))) @ embedding.T + self.bias", "return (self.norm(gelu(self.W(x))) @ embedding.T + self.bias).softmax(-1)",
                "You return probabilities. The loss takes the softmax itself: return the scores (logits)."),
    ],
    hints=[
        "x knows about the text, and the rows of `embedding` are words. How does one compare a vector with every row of a matrix?",
        "In `__init__`: nn.Linear(D, D), LayerNorm(D, eps=1e-12), and an nn.Parameter of V zeros. In `forward`: W, gelu, norm, then the product.",
        "`self.norm(gelu(self.W(x))) @ embedding.T`, plus the bias.",
    ],
)  # fmt: skip


def pool_cases(draw):
    yield case("no padding", x=draw.normal(2, 3, 5))
    yield case("the first token", part="cls", x=draw.normal(2, 4, 3), mask=None, kind="cls")
    yield case(
        "the first token, with a mask",
        part="cls",
        x=draw.normal(3, 4, 2),
        mask=attention.padding_mask(torch.tensor([4, 1, 2]), 4),
        kind="cls",
    )
    yield case("one token", x=draw.normal(3, 1, 4), mask=torch.ones(3, 1, 1, dtype=torch.bool))
    yield case("with padding", part="mask", x=draw.normal(3, 5, 2), mask=attention.padding_mask(torch.tensor([5, 2, 3]), 5), kind="mean")
    yield case("all sizes alike", part="mask", x=draw.normal(4, 4, 4), mask=attention.padding_mask(torch.tensor([4, 1, 2, 3]), 4))
    yield case("holes", part="mask", x=draw.normal(2, 5, 3), mask=draw.mask(2, 1, 5))
    yield case("an empty sequence", part="mask", x=draw.normal(2, 3, 4), mask=attention.padding_mask(torch.tensor([0, 2]), 3))
    yield case("float32", x=draw.normal(2, 3, 4, dtype=SINGLE), mask=attention.padding_mask(torch.tensor([3, 2]), 3))
    yield case("another kind", part="cls", raises="ValueError", x=draw.normal(2, 3, 4), mask=None, kind="max")


pool = Exercise(
    reference=bert.pool,
    purpose="Make one vector of a whole text, so that texts can be compared and classified.",
    minutes=15,
    difficulty=2,
    cases=pool_cases,
    parts={"values": 1, "cls": 1, "mask": 2, "gradient": 1},
    mistakes=[
        mistake("mean_over_padding", "if mask is None:", "if True:",
                "The mean runs over the padding as well: what comes out depends on how long the *other* sentences of the batch are. Set the padding to 0, and divide by "
                "the number of real tokens."),
        mistake("divided_by_the_width", "real.sum(1).clamp(min=1)", "x.shape[1]",
                "The padding is left out of the sum, but you divide by T, padding included: short sentences come out too small. Divide by the number of real tokens."),
        mistake("padding_in_the_sum", "x.masked_fill(~real, 0.0).sum(1)", "x.sum(1)",
                "You divide by the number of real tokens, but the sum still holds the padding, whose vectors are not 0. Set them to 0 first."),
        mistake("mask_inverted", "~real, 0.0", "real, 0.0", "You average the padding: True means a *real* token.", also=[("real.sum(1)", "(~real).sum(1)")]),
        mistake("mask_on_the_width", "mask.squeeze(1).unsqueeze(-1)", "mask",
                "The mask is lined up with the width D, not with the tokens: with T = D nothing complains. It is (B, 1, T), and it has to be (B, T, 1) to go with x."),
        mistake("nan_for_an_empty_sequence", ".clamp(min=1)", "", "A sequence without a real token gives 0 / 0 = NaN. It is to give zeros: `.clamp(min=1)` on the count."),
        mistake("sum_for_mean", " / real.sum(1).clamp(min=1)", "", "With a mask you return the sum. Divide by the number of real tokens."),
        mistake("over_the_batch", "x.mean(1)", "x.mean(0)", "Without a mask you average over the batch. Each sequence has a mean of its own, over its tokens: dim 1.",
                also=[("x.masked_fill(~real, 0.0).sum(1) / real.sum(1)", "x.masked_fill(~real, 0.0).sum(0) / real.sum(0)")]),
        mistake("last_token", "x[:, 0]", "x[:, -1]", "kind=\"cls\" is the first token, where [CLS] stands; you take the last one (which is padding, as often as not)."),
        mistake("first_sequence", "x[:, 0]", "x[0]", "x[0] is all of the first sequence. The first token of *every* sequence is x[:, 0]."),
        mistake("kind_ignored", 'if kind == "cls":', "if False:", "You take the mean whatever `kind` says. kind=\"cls\" is the vector of the first token.",
                also=[('kind != "mean"', 'kind not in ("mean", "cls")')]),
        mistake("any_kind_accepted", 'if kind != "mean":', "if False:", "An unknown kind is taken for the mean. A misspelt argument should not go unnoticed: raise a ValueError."),
        mistake("largest_for_mean", "x.mean(1)", "x.amax(1)", "You take the largest number in each place (max pooling). It is the mean.",
                also=[("x.masked_fill(~real, 0.0).sum(1) / real.sum(1).clamp(min=1)", "x.masked_fill(~real, -torch.inf).amax(1)")]),
        mistake("gradient_cut", "    if kind == \"cls\":", "    x = x.detach()\n    if kind == \"cls\":", "The numbers are right, but no gradient reaches x (detach, .data, numpy)."),
    ],
    hints=[
        "Two real tokens and three of padding: what do you add up, and by what do you divide? How would the padding get in?",
        "Give the mask the shape (B, T, 1), so that it goes with x: `mask.squeeze(1).unsqueeze(-1)`, or `mask.mT`. Then masked_fill, sum over dim 1, and a division.",
        "`x.masked_fill(~real, 0.0).sum(1) / real.sum(1).clamp(min=1)`; for \"cls\", `x[:, 0]`.",
    ],
)  # fmt: skip

SMALL = {"bert": "a small encoder", "head": "a small head", "optimizer": "SGD"}


def finetune_head_cases(draw):
    tokens, labels = draw.integers(0, 7, 3, 5), torch.tensor([2, 0, 1])
    mask = attention.padding_mask(torch.tensor([5, 2, 3]), 5)
    yield case("two steps", **SMALL, tokens=tokens, labels=labels)
    yield case("two steps, with padding", part="mask", **SMALL, tokens=tokens, labels=labels, mask=mask)
    yield case("frozen", part="freeze", **SMALL, tokens=tokens, labels=labels, mask=mask, freeze=True)
    yield case(
        "first frozen, then not",
        part="freeze",
        **SMALL,
        tokens=tokens,
        labels=labels,
        mask=mask,
        freeze=False,
        options={"freezes": [True, False, True]},
    )


finetune_head = Exercise(
    reference=bert.finetune_head,
    purpose="Teach a pre-trained encoder a task of yours, with a handful of examples.",
    minutes=20,
    difficulty=2,
    cases=finetune_head_cases,
    parts={"values": 2, "mask": 1, "freeze": 1},
    probe="bert:finetuning",
    mistakes=[
        mistake("mean_over_padding", "pool(x, mask)", "pool(x)", "The mask does not reach `pool`: the mean runs over the padding too."),
        mistake("mask_not_passed_on", "x = bert(tokens, mask)", "x = bert(tokens)", "The mask does not reach the encoder: its tokens attend to the padding."),
        mistake("first_token", "pool(x, mask)", 'pool(x, mask, "cls")', "The head gets the first token's vector. Here it is the mean under the mask (kind=\"mean\")."),
        mistake("no_zero_grad", "    optimizer.zero_grad()\n", "",
                "The gradients are never set back: backward *adds* to them, so that each step is taken with the sum of all steps before. optimizer.zero_grad()."),
        mistake("zero_grad_too_late", "    optimizer.zero_grad()\n    loss.backward()", "    loss.backward()\n    optimizer.zero_grad()",
                "You throw the gradients away between backward and the step: nothing is learnt. First zero_grad, then backward, then the step."),
        mistake("no_step", "    optimizer.step()\n", "", "The gradients are there, but no step is taken: optimizer.step()."),
        mistake("freeze_ignored", "torch.set_grad_enabled(not freeze)", "torch.set_grad_enabled(True)",
                "With freeze=True the encoder changes all the same. Its output is to be computed without gradients (torch.no_grad), or detached."),
        mistake("always_frozen", "torch.set_grad_enabled(not freeze)", "torch.no_grad()", "The encoder never learns, also with freeze=False: its output is cut out of the graph."),
        mistake("frozen_for_good", "    logits =", "    if freeze:\n        bert.requires_grad_(False)\n    logits =",
                "Once frozen, the encoder stays frozen in later steps with freeze=False: you take requires_grad away and never give it back."),
        mistake("frozen_in_train_mode", "bert.train(not freeze)", "bert.train()",
                "A frozen encoder runs in train mode: its dropout makes noise that it can't learn to live with. It belongs in eval mode."),
        mistake("encoder_in_eval_mode", "bert.train(not freeze)", "bert.eval()", "The encoder learns in eval mode, without its dropout: with freeze=False it belongs in train mode."),
        mistake("head_in_eval_mode", "head.train()", "head.eval()", "The head runs in eval mode, and it always learns: head.train()."),
        mistake("modes_left_alone", "    head.train()\n    bert.train(not freeze)\n", "",
                "You leave the modes as they come. After an evaluation that is eval mode, in which nothing is dropped: set them at the start of each step."),
        mistake("a_tensor_returned", "loss.item()", "loss", "You return a tensor, and with it the whole graph that it was made with; a list of a thousand such losses fills the memory. Return `loss.item()`."),
    ],
    hints=[
        "From tokens to a loss in four lines. Which two of them need the mask? And for which one does it matter whether gradients are kept?",
        "Set the modes; encoder, pool, head, loss (masked_lm_loss does it: one label a sequence); zero_grad, backward, step. For freeze: eval mode, and "
        "`with torch.set_grad_enabled(not freeze):` around the encoder.",
        "`logits = head(pool(bert(tokens, mask), mask))`, `loss = masked_lm_loss(logits, labels)`, and return loss.item().",
    ],
)  # fmt: skip

MODULE = Module(
    "bert", "Encoder-only: BERT", hours=3, difficulty=3, needs="modules 01 and 04, or their references",
    exercises=[mask_tokens, masked_lm_loss, BertEmbeddings, BERT, MaskedLMHead, pool, finetune_head],
)  # fmt: skip
