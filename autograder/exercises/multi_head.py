"""Module 02: several attentions side by side, in one layer."""

import torch

from autograder.exercise import Exercise, Module, case, mistake
from autograder.exercises.attention import SCORE_MISTAKES, SWAPPED, WEIGHT_MISTAKES, empty_row
from solutions import attention, multi_head

SINGLE = torch.float32
BUILT_IN = ["scaled_dot_product_attention", "MultiheadAttention", "multi_head_attention_forward", "softmax", "Softmax"]

VIEW_WITHOUT_TRANSPOSE = (
    "You cut the memory into (B, H, T, K) without a transpose. The shape is right, the content is not: a head's row no longer belongs to one "
    "token, but mixes neighbouring tokens. Cut the *width* first, (B, T, H, K), then swap axes 1 and 2."
)
MERGED_WITHOUT_TRANSPOSE = (
    "You join the heads without a transpose: a `reshape` of (B, H, T, K) reads on through all tokens of the first head, so that an output "
    "is made of several tokens, also later ones (a leak, in a decoder). Swap axes 1 and 2 back first: (B, T, H, K), then reshape."
)


def split_heads_cases(draw):
    yield case("three heads", x=draw.normal(2, 5, 12), n_heads=3)
    yield case("one head", x=draw.normal(2, 3, 4), n_heads=1)
    yield case("as many heads as numbers", x=draw.normal(2, 4, 3), n_heads=3)
    yield case("one token", x=draw.normal(3, 1, 8), n_heads=2)
    yield case("as many heads as tokens", part="sizes that agree", x=draw.normal(3, 4, 8), n_heads=4)
    yield case("as many heads as numbers in one", part="sizes that agree", x=draw.normal(2, 5, 9), n_heads=3)
    yield case("as many sequences as heads", part="sizes that agree", x=draw.normal(2, 3, 8), n_heads=2)
    yield case("transposed in memory", part="sizes that agree", x=draw.normal(2, 6, 5).mT, n_heads=2)
    yield case("float32", x=draw.normal(2, 3, 8, dtype=SINGLE), n_heads=2)


split_heads = Exercise(
    reference=multi_head.split_heads,
    purpose="Give every head a share of each token, so that all heads can attend at once.",
    minutes=15,
    difficulty=2,
    cases=split_heads_cases,
    parts={"values": 2, "sizes that agree": 1, "gradient": 1},
    mistakes=[
        mistake("view_without_transpose", "x.view(B, T, n_heads, D // n_heads).transpose(1, 2)", "x.reshape(B, n_heads, T, D // n_heads)",
                VIEW_WITHOUT_TRANSPOSE),
        mistake("no_transpose", ".transpose(1, 2)", "",
                "Your heads are the third axis, (B, T, H, K). They come before the tokens, (B, H, T, K), so that the last two axes of each head are a "
                "matrix of tokens: swap axes 1 and 2."),
        mistake("dealt_out_in_turn", "x.view(B, T, n_heads, D // n_heads).transpose(1, 2)", "x.unflatten(-1, (-1, n_heads)).permute(0, 3, 1, 2)",
                "You deal the numbers out in turn: head 0 gets components 0, H, 2H, … Each head gets K *neighbouring* ones: the width is cut into "
                "(H, K), in this order."),
        mistake("head_and_width_exchanged", "x.view(B, T, n_heads, D // n_heads)", "x.view(B, T, D // n_heads, n_heads)",
                "n_heads is taken for the width of a head: you make K heads that are H wide. The width is cut into (H, K): n_heads first."),
        mistake("width_before_tokens", ".transpose(1, 2)", ".permute(0, 2, 3, 1)",
                "Each of your heads is transposed: (B, H, K, T). Tokens are rows, so the width K comes last: (B, H, T, K)."),
        mistake("heads_first", ".transpose(1, 2)", ".permute(2, 0, 1, 3)",
                "The heads come before the batch, (H, B, T, K). They stand behind it: (B, H, T, K)."),
        mistake("heads_in_the_batch", ".transpose(1, 2)", ".transpose(1, 2).flatten(0, 1)",
                "The heads have been put into the batch axis, (B·H, T, K). Keep them as an axis of their own: (B, H, T, K)."),
        mistake("gradient_cut", "x.view", "x.detach().view",
                "The numbers are right, but no gradient reaches x: it is cut out of the graph (detach, .data, numpy)."),
    ],
    hints=[
        "One token of 4 numbers and 2 heads: which numbers go to which head? Now two tokens: in which order do the 8 numbers lie in memory?",
        "Cut the last axis in two, D = H·K, and nothing else: (B, T, H, K). Then which two axes have to change places?",
        "`x.view(B, T, n_heads, D // n_heads)`, then `.transpose(…, …)`.",
    ],
)  # fmt: skip


def merge_heads_cases(draw):
    yield case("three heads", x=draw.normal(2, 3, 5, 4))
    yield case("one head", x=draw.normal(2, 1, 3, 4))
    yield case("heads of one number", x=draw.normal(2, 3, 4, 1))
    yield case("one token", x=draw.normal(3, 2, 1, 4))
    yield case("as many heads as tokens", part="sizes that agree", x=draw.normal(3, 4, 4, 2))
    yield case("as many heads as numbers in one", part="sizes that agree", x=draw.normal(2, 3, 5, 3))
    yield case("as it comes from split_heads", part="sizes that agree", x=draw.normal(2, 5, 3, 4).transpose(1, 2))
    yield case("float32", x=draw.normal(2, 3, 4, 2, dtype=SINGLE))


merge_heads = Exercise(
    reference=multi_head.merge_heads,
    purpose="Bring together what the heads have found, token by token.",
    minutes=10,
    difficulty=2,
    cases=merge_heads_cases,
    parts={"values": 2, "sizes that agree": 1, "gradient": 1},
    mistakes=[
        mistake("no_transpose", "x.transpose(1, 2).reshape", "x.reshape", MERGED_WITHOUT_TRANSPOSE),
        mistake("heads_averaged", "x.transpose(1, 2).reshape(B, T, H * K)", "x.mean(1)",
                "You average the heads. They are put side by side, (B, T, H·K): an average would lose which head has found what, and only K numbers "
                "would be left of each token."),
        mistake("heads_summed", "x.transpose(1, 2).reshape(B, T, H * K)", "x.sum(1)",
                "You add the heads up. They are put side by side, (B, T, H·K): what is added up can't be told apart any more."),
        mistake("dealt_out_in_turn", "x.transpose(1, 2)", "x.permute(0, 2, 3, 1)",
                "The heads are interleaved: one number of each head in turn. They are put side by side, all K numbers of head 0, then those of head 1: "
                "(B, T, H, K) before the reshape, with K last."),
        mistake("heads_one_below_another", "x.transpose(1, 2).reshape(B, T, H * K)", "x.reshape(B, H * T, K)",
                "You put the heads one *below* another, as more tokens: (B, H·T, K). They go side by side, as more numbers of the same token: (B, T, H·K)."),
        mistake("heads_in_reverse", "x.transpose(1, 2)", "x.flip(1).transpose(1, 2)",
                "The heads come out in reverse order. Head 0 comes first, as split_heads took it."),
        mistake("not_merged", ".reshape(B, T, H * K)", "",
                "You swap the axes back, but the heads are still an axis of their own, (B, T, H, K). Make the last two into one: (B, T, H·K)."),
        mistake("gradient_cut", "x.transpose", "x.detach().transpose",
                "The numbers are right, but no gradient reaches x: it is cut out of the graph (detach, .data, numpy)."),
    ],
    hints=[
        "What has split_heads done, in which order? What undoes the last of its steps?",
        "Swap axes 1 and 2 back: (B, T, H, K). Now the numbers of one token lie side by side, and the last two axes can become one.",
        "`x.transpose(1, 2)`, then `.reshape(B, T, H * K)` (`view` refuses: after a transpose the numbers are no longer in order in memory).",
    ],
)  # fmt: skip


def layers(draw, D, sizes=None, bias=True, dtype=torch.float64):
    """The weights by name, of a size at which the softmax is neither flat nor saturated; sizes: how many rows each has."""
    weights = {}
    for name, rows in (sizes or dict.fromkeys(("W_Q", "W_K", "W_V", "W_O"), D)).items():
        weights[f"{name}.weight"] = draw.normal(rows, D, scale=1.5 * D**-0.5, dtype=dtype)
        if bias:
            weights[f"{name}.bias"] = draw.normal(rows, dtype=dtype)
    return weights


def inputs(draw, B, T, D, H, S=None, dtype=torch.float64, **settings):
    """What builds and calls a MultiHeadAttention; with S, the context has so many tokens."""
    build = {"d_model": D, "n_heads": H, **settings}
    weights = layers(draw, D, bias=settings.get("bias", True), dtype=dtype)
    context = {} if S is None else {"context": draw.normal(B, S, D, dtype=dtype)}
    return {"build": build, "weights": weights, "x": draw.normal(B, T, D, dtype=dtype), **context}


def multi_head_attention_cases(draw):
    yield case("self-attention", **inputs(draw, 2, 5, 12, 3), options={"gradient": False})
    yield case("another size", **inputs(draw, 3, 4, 10, 5))
    yield case("one head", **inputs(draw, 2, 3, 4, 1))
    yield case("one token", **inputs(draw, 3, 1, 8, 2))
    yield case("without biases", **inputs(draw, 2, 3, 8, 4, bias=False))
    yield case("float32", **inputs(draw, 2, 3, 8, 2, dtype=SINGLE))
    yield case("a context", part="context", **inputs(draw, 2, 3, 12, 4, S=5))
    yield case("a context as long as x", part="context", **inputs(draw, 2, 4, 6, 3, S=4))
    yield case("one query", part="context", **inputs(draw, 2, 1, 6, 3, S=4))
    yield case("a context and a mask", part="context", **inputs(draw, 2, 3, 8, 4, S=5), mask=draw.mask(3, 5))
    causal, padding = attention.causal_mask(5), attention.padding_mask(torch.tensor([4, 2, 3]), 4)
    yield case("a causal mask", part="mask", **inputs(draw, 2, 5, 12, 3), context=None, mask=causal, options={"leak": True})
    yield case("a mask, as many heads as queries", part="mask", **inputs(draw, 2, 3, 6, 3), context=None, mask=draw.mask(3, 3))
    yield case("padding, as many heads as sequences", part="mask", **inputs(draw, 3, 4, 6, 3), context=None, mask=padding)
    yield case("a mask for each sequence, as many as heads", part="mask", **inputs(draw, 2, 4, 6, 2), context=None, mask=draw.mask(2, 4, 4))
    yield case("a query that may see nothing", part="mask", **inputs(draw, 2, 3, 8, 2), context=None, mask=empty_row(draw, 3, 3))
    yield case("7 numbers in 2 heads", part="divisibility", raises="ValueError", **inputs(draw, 2, 3, 7, 2))
    yield case("dropout", part="dropout", **inputs(draw, 1, 3, 6, 2, bias=True, dropout=0.25))


EMPTY_ROW_UNIFORM = mistake(
    "empty_row_uniform", "-math.inf", "-1e30",
    "A query that may see no key attends to all of them equally: with one large negative number in every place, the row is a softmax of "
    "equal scores. Set its weights to 0.",
    at="masked_softmax", also=[("weights.masked_fill(~mask.any(-1, keepdim=True), 0.0)", "weights")],
)  # fmt: skip


def only(mistakes, *ids):
    return [mistake for mistake in mistakes if mistake.id in ids]


def everywhere(old, new):
    """The patches that change a layer in its four places: `W_?` in the texts is its name."""
    patches = [(old.replace("W_?", name), new.replace("W_?", name)) for name in ("W_Q", "W_K", "W_V", "W_O")]
    return {"old": patches[0][0], "new": patches[0][1], "also": patches[1:]}


HEAD_MISTAKES = [
    mistake("view_without_transpose", "x.view(B, T, n_heads, D // n_heads).transpose(1, 2)", "x.reshape(B, n_heads, T, D // n_heads)",
            VIEW_WITHOUT_TRANSPOSE, at="split_heads"),
    mistake("merged_without_transpose", "x.transpose(1, 2).reshape", "x.reshape", MERGED_WITHOUT_TRANSPOSE, at="merge_heads"),
    mistake("dealt_out_in_turn", "x.view(B, T, n_heads, D // n_heads).transpose(1, 2)", "x.unflatten(-1, (-1, n_heads)).permute(0, 3, 1, 2)",
            "The numbers of a token are dealt out to the heads in turn. Each head gets K neighbouring ones: cut the width into (H, K), in this order.",
            at="split_heads"),
]  # fmt: skip

OUTPUT_ALONE = "You return the output alone. Return the weights too, which are what one looks at: `return output, weights`."
WEIGHTS_FIRST = "You return the weights first. The output comes first: `return output, weights`."
WEIGHTS_AVERAGED = (
    "The weights that you return are averaged over the heads, (B, T, S), as nn.MultiheadAttention does unless told otherwise. Return those of "
    "every head, (B, H, T, S): what they do differently is what one wants to see."
)
NO_OUTPUT_PROJECTION = (
    "The output projection is missing: the heads are put side by side and left there. W_O is what lets a feature of the output be made from "
    "what several heads have found."
)
SCALED_BY_D_MODEL = (
    "You scale by √d_model. A head's dot product has only K = d_model / H terms, so it is √K: the width of *one head's* queries, `q.shape[-1]` "
    "after the split."
)
SCALED_BY_HEADS = "You scale by √n_heads. It is the root of a head's width, K = d_model / n_heads, that its dot products grow with."
MASK_LINED_UP_WITH_HEADS = (
    "Your mask has no axis for the heads. Beside scores of (B, H, T, S), the B of a mask of (B, T, S) is lined up with the *heads*: an error "
    "for most sizes, and silently wrong when B = H, where head h then uses the mask of sequence h. `mask.unsqueeze(-3)` puts a 1 where the heads are."
)
MASK_LINED_UP_WITH_QUERIES = (
    "`mask.unsqueeze(1)` counts from the left: right for (B, T, S), but it makes (T, 1, S) of a mask (T, S), and T is then lined up with the heads: "
    "silently wrong when T = H. Counted from the right, `mask.unsqueeze(-3)`, it is right for both."
)

MultiHeadAttention = Exercise(
    reference=multi_head.MultiHeadAttention,
    purpose="Look for several things at once: this is the attention of every transformer.",
    minutes=40,
    difficulty=3,
    cases=multi_head_attention_cases,
    parts={"values": 3, "context": 2, "mask": 2, "dropout": 1, "divisibility": 1, "gradient": 1},
    probe="multi_head:attention",
    options={"returns": ["output", "weights"]},
    mistakes=[
        *HEAD_MISTAKES,
        mistake("no_output_projection", "self.W_O(merge_heads(weights @ v))", "merge_heads(weights @ v)", NO_OUTPUT_PROJECTION),
        mistake("heads_averaged", "self.W_O = nn.Linear(d_model, d_model, bias=bias)", "self.W_O = nn.Linear(d_model // n_heads, d_model, bias=bias)",
                "Your output projection takes K numbers, as if the heads were averaged or added up. They are put side by side, so it takes all "
                "H·K = d_model: nn.Linear(d_model, d_model).",
                also=[("self.W_O(merge_heads(weights @ v))", "self.W_O((weights @ v).mean(1))")]),
        mistake("one_weight_for_all_heads", "self.W_Q = nn.Linear(d_model, d_model, bias=bias)", "self.W_Q = nn.Linear(d_model, d_model // n_heads, bias=bias)",
                "Your projections are K rows high: one for all heads, which then all look for the same thing. Each head has K rows of its own, "
                "H·K = d_model in all: nn.Linear(d_model, d_model).",
                also=[(f"self.{name} = nn.Linear(d_model, d_model, bias=bias)", f"self.{name} = nn.Linear(d_model, d_model // n_heads, bias=bias)")
                      for name in ("W_K", "W_V")]
                + [(f"self.{name}({x})", f"self.{name}({x}).repeat(1, 1, self.n_heads)") for name, x in (("W_Q", "x"), ("W_K", "context"), ("W_V", "context"))]),
        *only(SCORE_MISTAKES, "no_scale", "scaled_by_d_k", "scale_from_sequence"),
        mistake("scaled_by_d_model", "attention_scores(q, k)", "attention_scores(q, k) / self.n_heads**0.5", SCALED_BY_D_MODEL),
        mistake("scaled_by_heads", "attention_scores(q, k)", "attention_scores(q, k) * (q.shape[-1] / self.n_heads) ** 0.5", SCALED_BY_HEADS),
        mistake("w_for_w_transposed", "self.W_Q(x)", "nn.functional.linear(x, self.W_Q.weight.T, self.W_Q.bias)",
                "You multiply by W where it should be Wᵀ. torch keeps weights as (out, in): x Wᵀ + b, which is what calling the nn.Linear does. The matrices "
                "are square, so that no shape gives it away.",
                also=[("self.W_K(context)", "nn.functional.linear(context, self.W_K.weight.T, self.W_K.bias)"),
                      ("self.W_V(context)", "nn.functional.linear(context, self.W_V.weight.T, self.W_V.bias)"),
                      ("self.W_O(merge_heads(weights @ v))", "nn.functional.linear(merge_heads(weights @ v), self.W_O.weight.T, self.W_O.bias)")]),
        mistake("keys_for_values", "self.W_V(context)", "self.W_K(context)", "The values are made with W_K; they have a matrix of their own, W_V."),
        mistake("values_not_projected", "self.W_V(context)", "context",
                "The values are pieces of the tokens themselves. They are made with W_V, which decides what a token passes on."),
        mistake("context_ignored", "context = x if context is None else context", "context = x",
                "The context makes no difference: keys and values are made from x. They are made from the context, when there is one."),
        mistake("queries_from_the_context", "self.W_Q(x)", "self.W_Q(context)",
                "The queries are made from the context. x is what asks: queries from x, keys and values from the context."),
        mistake("x_and_context_exchanged", "context = x if context is None else context", "x, context = (x, x) if context is None else (context, x)",
                "x and context are exchanged: x asks (queries), the context answers (keys and values)."),
        mistake("values_from_x", "self.W_V(context)", "self.W_V(x)",
                "The values are made from x. What a query fetches is in the context: both keys and values are made from it. (With T ≠ S the shapes give it away.)"),
        mistake("keys_from_x", "self.W_K(context)", "self.W_K(x)",
                "The keys are made from x. It is the context that is looked at: both keys and values are made from it. (With T ≠ S the shapes give it away.)"),
        mistake("swapped", "attention_scores(q, k)", "attention_scores(k, q)", SWAPPED),
        mistake("weights_transposed", "weights @ v", "weights.transpose(-2, -1) @ v",
                "You multiply the values by the *transposed* weights: query t would be given what others wanted from it. It is weights @ v."),
        *only(WEIGHT_MISTAKES, "over_queries", "mask_after_softmax", "mask_filled_with_zero", "mask_inverted", "empty_row_nan"),
        EMPTY_ROW_UNIFORM,
        mistake("over_heads", "return softmax(scores, dim=-1)", "return softmax(scores, dim=1)",
                "The softmax runs over the heads (dim=1): the weights of one query "
                "and one key sum to 1 over the heads. Count from the end: dim=-1 are the keys.",
                at="masked_softmax", also=[("-math.inf), dim=-1)", "-math.inf), dim=1)")]),
        mistake("mask_not_passed_on", "mask.unsqueeze(-3)", "None", "The mask makes no difference to what you return: pass it on to your masked_softmax."),
        mistake("mask_inverted_everywhere", "mask.unsqueeze(-3)", "~mask.unsqueeze(-3)", WEIGHT_MISTAKES[4].why),
        mistake("mask_lined_up_with_heads", "mask.unsqueeze(-3)", "mask", MASK_LINED_UP_WITH_HEADS),
        mistake("mask_lined_up_with_queries", "mask.unsqueeze(-3)", "mask.unsqueeze(1)", MASK_LINED_UP_WITH_QUERIES),
        mistake("two_softmaxes", "self.dropout(masked_softmax(attention_scores(q, k), mask))", "self.dropout(masked_softmax(masked_softmax(attention_scores(q, k), mask)))",
                "The softmax is taken twice: masked_softmax has already given you weights. The second one makes them nearly uniform, and brings hidden keys back."),
        mistake("residual_added", "return self.W_O(", "return x + self.W_O(",
                "You add x to the output. That residual belongs to the block around this layer (module 04); here the output is W_O's alone."),
        mistake("output_alone", "return self.W_O(merge_heads(weights @ v)), weights", "return self.W_O(merge_heads(weights @ v))", OUTPUT_ALONE),
        mistake("returned_in_the_wrong_order", "return self.W_O(merge_heads(weights @ v)), weights", "return weights, self.W_O(merge_heads(weights @ v))",
                WEIGHTS_FIRST),
        mistake("weights_averaged", "(weights @ v)), weights", "(weights @ v)), weights.mean(1)", WEIGHTS_AVERAGED),
        mistake("scores_returned", "(weights @ v)), weights", "(weights @ v)), attention_scores(q, k)",
                "The second thing you return is the scores, and it should be the weights: what comes out of the softmax."),
        mistake("bias_ignored", **everywhere("self.W_? = nn.Linear(d_model, d_model, bias=bias)", "self.W_? = nn.Linear(d_model, d_model)"),
                why="There are biases although bias=False was asked for: give `bias=bias` to all four nn.Linear."),
        mistake("not_divisible_accepted", "if d_model % n_heads:", "if False:",
                "7 numbers can't be cut into 2 equal heads, and your constructor builds it all the same: d_model // n_heads rounds down. Raise a ValueError "
                "there, where the sizes are chosen, not later, where the shapes don't fit."),
        mistake("another_error", "raise ValueError(", "raise AssertionError(",
                "You notice that d_model can't be divided by n_heads, by an `assert`. `python -O` leaves those out: raise a ValueError, which is what it is."),
        mistake("no_dropout", "nn.Dropout(dropout)", "nn.Identity()",
                "Nothing is ever dropped. In training, each weight is dropped with probability `dropout`: nn.Dropout on the weights, after the softmax."),
        mistake("dropout_in_eval", "self.dropout(masked_softmax(attention_scores(q, k), mask))",
                "nn.functional.dropout(masked_softmax(attention_scores(q, k), mask), self.dropout.p)",
                "Dropout is active in eval mode too: a trained model would answer differently each time. Use an nn.Dropout, or give F.dropout "
                "`training=self.training` (on its own it takes training to be True)."),
        mistake("dropout_on_scores", "self.dropout(masked_softmax(attention_scores(q, k), mask))", "masked_softmax(self.dropout(attention_scores(q, k)), mask)",
                "You drop scores, before the softmax: a dropped score is 0, and exp(0) = 1 is an ordinary share. It is the weights that are dropped, "
                "after the softmax."),
        mistake("dropout_on_output", "self.dropout(masked_softmax(attention_scores(q, k), mask))", "masked_softmax(attention_scores(q, k), mask)",
                "You drop numbers of the output. (The block around this layer will do that.) Here it is the weights: drop them after the softmax, before "
                "they meet the values.",
                also=[("return self.W_O(merge_heads(weights @ v)), weights", "return self.dropout(self.W_O(merge_heads(weights @ v))), weights")]),
        mistake("dropout_not_rescaled", "self.dropout(masked_softmax(attention_scores(q, k), mask))",
                "self.dropout(masked_softmax(attention_scores(q, k), mask)) * (1 - self.dropout.p * self.training)",
                "What is kept is not made larger: the sum of the weights is smaller in training than afterwards. Divide by 1 - dropout (nn.Dropout does)."),
        mistake("weights_before_dropout", "(weights @ v)), weights", "(weights @ v)), masked_softmax(attention_scores(q, k), mask)",
                "The weights that you return are those before dropout. Return those that the output was made with, as nn.MultiheadAttention does."),
    ],
    hints=[
        "Follow one token: which four matrices does it meet? Where are the heads cut apart, and where do they come together again? What is the shape "
        "of everything in between?",
        "In `__init__`: raise the error, then four nn.Linear(d_model, d_model, bias=bias) and an nn.Dropout. In `forward`: queries from x, keys and values "
        "from the context, split all three; weights; weights @ v; merge; W_O.",
        "`q = split_heads(self.W_Q(x), self.n_heads)`, and k, v from the context. The mask needs an axis for the heads: `mask.unsqueeze(-3)`. "
        "`weights = self.dropout(masked_softmax(attention_scores(q, k), mask))`.",
    ],
    forbidden=BUILT_IN,
)  # fmt: skip


def load_torch_mha_cases(draw):
    def theirs(D, H, bias=True):
        weights = {"in_proj_weight": draw.normal(3 * D, D), "out_proj_weight": draw.normal(D, D)}
        biases = {"in_proj_bias": draw.normal(3 * D), "out_proj_bias": draw.normal(D)} if bias else {}
        return {"d_model": D, "n_heads": H, **weights, **biases}

    yield case("two heads", **theirs(6, 2))
    yield case("one head", **theirs(4, 1))
    yield case("three heads", **theirs(9, 3))
    yield case("without biases", part="no biases", **theirs(6, 3, bias=False))


load_torch_mha = Exercise(
    reference=multi_head.load_torch_mha,
    purpose="Put trained weights into your own layer, and prove that it computes the same as torch's.",
    minutes=20,
    difficulty=3,
    cases=load_torch_mha_cases,
    parts={"values": 3, "no biases": 1},
    probe="multi_head:copied",
    mistakes=[
        *(
            mistake(f"order_{order.lower()}", "layers = mine.W_Q, mine.W_K, mine.W_V", f"layers = {', '.join(f'mine.W_{letter}' for letter in order)}",
                    f"The fused weight is taken apart in the order {', '.join(order)}. It holds the rows of Q first, then those of K, then those of V.")
            for order in ("KQV", "VKQ", "QVK", "KVQ", "VQK")
        ),
        mistake("cut_head_by_head", "zip(layers, theirs.in_proj_weight.chunk(3), strict=True)",
                "zip(layers, theirs.in_proj_weight.view(theirs.num_heads, 3, -1, theirs.embed_dim).transpose(0, 1).flatten(1, 2), strict=True)",
                "You take the fused weight to hold q, k, v of head 0, then of head 1, and so on (other models are stored like that). Here it is all of Q, "
                "then all of K, then all of V: three blocks of D rows.",
                also=[("zip(layers, theirs.in_proj_bias.chunk(3), strict=True)",
                       "zip(layers, theirs.in_proj_bias.view(theirs.num_heads, 3, -1).transpose(0, 1).flatten(1), strict=True)")]),
        mistake("dealt_out_in_turn", "theirs.in_proj_weight.chunk(3)", "[theirs.in_proj_weight[i::3] for i in range(3)]",
                "You take every third row for Q. The rows lie in three blocks: the first D are Q, the next D are K, the last D are V.",
                also=[("theirs.in_proj_bias.chunk(3)", "[theirs.in_proj_bias[i::3] for i in range(3)]")]),
        mistake("all_transposed", "layer.weight.copy_(weight)", "layer.weight.copy_(weight.T)",
                "You transpose the weights. Both sides keep them as (out, in), so they are copied as they are.",
                also=[("theirs.out_proj.weight)", "theirs.out_proj.weight.T)")]),
        mistake("in_transposed", "layer.weight.copy_(weight)", "layer.weight.copy_(weight.T)",
                "You transpose Q, K and V. Both sides keep weights as (out, in), so they are copied as they are."),
        mistake("out_transposed", "theirs.out_proj.weight)", "theirs.out_proj.weight.T)",
                "You transpose W_O. Both sides keep weights as (out, in), so it is copied as it is."),
        mistake("no_output_projection", "mine.W_O.weight.copy_(theirs.out_proj.weight)", "pass",
                "W_O keeps its own random weight: it is theirs.out_proj.weight."),
        mistake("no_biases", "if theirs.in_proj_bias is not None:", "if False:", "The biases stay what they were: copy in_proj_bias and out_proj.bias too."),
        mistake("no_output_bias", "mine.W_O.bias.copy_(theirs.out_proj.bias)", "pass", "W_O's bias stays what it was: it is theirs.out_proj.bias."),
        mistake("no_in_biases", "layer.bias.copy_(bias)", "pass", "The biases of W_Q, W_K and W_V stay what they were: they are the three thirds of in_proj_bias."),
        mistake("same_bias_for_all", "layer.bias.copy_(bias)", "layer.bias.copy_(theirs.in_proj_bias[: len(bias)])",
                "W_Q, W_K and W_V all get the first third of in_proj_bias. Each has a third of its own."),
        mistake("biases_required", "if theirs.in_proj_bias is not None:", "if True:",
                "theirs may have no biases: then in_proj_bias is None, and there is nothing to copy."),
        mistake("shared", "layer.weight.copy_(weight)", "layer.weight.data = weight",
                "Your layer now *shares* memory with theirs: whoever trains one changes the other. Copy the numbers: `mine.W_Q.weight.copy_(…)` under "
                "torch.no_grad(), or clone what you take.",
                also=[("mine.W_O.weight.copy_(theirs.out_proj.weight)", "mine.W_O.weight.data = theirs.out_proj.weight"),
                      ("layer.bias.copy_(bias)", "layer.bias.data = bias"),
                      ("mine.W_O.bias.copy_(theirs.out_proj.bias)", "mine.W_O.bias.data = theirs.out_proj.bias")]),
        mistake("out_shared", "mine.W_O.weight.copy_(theirs.out_proj.weight)", "mine.W_O.weight = theirs.out_proj.weight",
                "Your W_O now *is* theirs: whoever trains one changes the other. Copy the numbers instead.",
                also=[("mine.W_O.bias.copy_(theirs.out_proj.bias)", "mine.W_O.bias = theirs.out_proj.bias")]),
        mistake("the_wrong_way_round", "mine.W_O.weight.copy_(theirs.out_proj.weight)", "theirs.out_proj.weight.copy_(mine.W_O.weight)",
                "You copy from mine to theirs. `a.copy_(b)` writes b into a: mine is on the left.",
                also=[("layer.weight.copy_(weight)", "weight.copy_(layer.weight)"), ("layer.bias.copy_(bias)", "bias.copy_(layer.bias)"),
                      ("mine.W_O.bias.copy_(theirs.out_proj.bias)", "theirs.out_proj.bias.copy_(mine.W_O.bias)")]),
        mistake("frozen", "layer.weight.copy_(weight)", "layer.weight = torch.nn.Parameter(weight.clone(), requires_grad=False)",
                "Your weights can no longer be trained: they have lost requires_grad. Copy into the parameters that are there.",
                also=[("mine.W_O.weight.copy_(theirs.out_proj.weight)", "mine.W_O.weight = torch.nn.Parameter(theirs.out_proj.weight.clone(), requires_grad=False)"),
                      ("layer.bias.copy_(bias)", "layer.bias = torch.nn.Parameter(bias.clone(), requires_grad=False)"),
                      ("mine.W_O.bias.copy_(theirs.out_proj.bias)", "mine.W_O.bias = torch.nn.Parameter(theirs.out_proj.bias.clone(), requires_grad=False)")]),
    ],
    hints=[
        "`print({name: tuple(p.shape) for name, p in theirs.named_parameters()})`, and the same for mine. Which of theirs is three of mine?",
        "`theirs.in_proj_weight.chunk(3)` gives three tensors of D rows each: Q, K, V. `parameter.copy_(other)` writes into a parameter; autograd allows it "
        "only under `with torch.no_grad():`.",
        "`with torch.no_grad():` `mine.W_Q.weight.copy_(theirs.in_proj_weight[:D])`, the next D rows to W_K, the last D to W_V; W_O from theirs.out_proj. "
        "The same with biases, if theirs.in_proj_bias is not None.",
    ],
)  # fmt: skip


def repeat_kv_cases(draw):
    yield case("two heads, three times", x=draw.normal(3, 2, 5, 4), n_repeats=3)
    yield case("three heads, twice", x=draw.normal(2, 3, 4, 5), n_repeats=2)
    yield case("once", x=draw.normal(2, 3, 4, 5), n_repeats=1)
    yield case("one head for all", x=draw.normal(2, 1, 3, 5), n_repeats=4)
    yield case("one token", part="layout", x=draw.normal(3, 2, 1, 5), n_repeats=2)
    yield case("as it comes from split_heads", part="layout", x=draw.normal(2, 4, 3, 5).transpose(1, 2), n_repeats=2)
    yield case("float32", part="layout", x=draw.normal(1, 2, 3, 4, dtype=SINGLE), n_repeats=2)


TILED = (
    "The groups are interleaved: heads 0, 1 become 0, 1, 0, 1 (`repeat`, or `cat`). The query heads of one group are neighbours, so it has to be "
    "0, 0, 1, 1: `repeat_interleave` along the heads."
)

repeat_kv = Exercise(
    reference=multi_head.repeat_kv,
    purpose="Let several query heads share the keys and values of one: what Llama does to keep its cache small.",
    minutes=10,
    difficulty=2,
    cases=repeat_kv_cases,
    parts={"values": 2, "layout": 1, "gradient": 1},
    mistakes=[
        mistake("tiled", "x.repeat_interleave(n_repeats, dim=1)", "x.repeat(1, n_repeats, 1, 1)", TILED),
        mistake("along_the_tokens", "dim=1", "dim=2", "You repeat the tokens. It is the heads, axis 1, that are repeated: (B, G, S, K) -> (B, G·n, S, K)."),
        mistake("along_the_width", "dim=1", "dim=3", "You repeat the numbers of each token. It is the heads, axis 1, that are repeated: (B, G, S, K) -> (B, G·n, S, K)."),
        mistake("along_the_batch", "dim=1", "dim=0", "You repeat the sequences. It is the heads, axis 1, that are repeated: (B, G, S, K) -> (B, G·n, S, K)."),
        mistake("one_head_for_all", "x.repeat_interleave", "x[:, :1].expand_as(x).repeat_interleave",
                "All query heads get the first head. Each group of n has a head of its own."),
        mistake("extra_axis", "x.repeat_interleave(n_repeats, dim=1)", "x.unsqueeze(2).expand(-1, -1, n_repeats, -1, -1)",
                "The copies are on an axis of their own, (B, G, n, S, K). Make G and n into one axis: (B, G·n, S, K)."),
        mistake("repeated_once_more", "x.repeat_interleave(n_repeats,", "x.repeat_interleave(n_repeats + 1,",
                "There is one copy too many: n_repeats is how many there are in the end, the first one included."),
        mistake("gradient_cut", "x.repeat_interleave", "x.detach().repeat_interleave",
                "The numbers are right, but no gradient reaches x: it is cut out of the graph (detach, .data, numpy)."),
    ],
    hints=[
        "Six query heads, two heads of keys: write down, for each of the six, which one it uses.",
        "torch has two functions that repeat: on [a, b], one gives a, b, a, b and the other a, a, b, b. Which is it, and along which axis?",
        "`repeat_interleave`, along dim=1; or a new axis by `x[:, :, None]`, `expand`, and a `reshape` that joins G and n.",
    ],
)  # fmt: skip


def grouped_inputs(draw, B, T, D, H, G, dtype=torch.float64):
    weights = layers(draw, D, {"W_Q": D, "W_K": G * (D // H), "W_V": G * (D // H), "W_O": D}, bias=False, dtype=dtype)
    return {"build": {"d_model": D, "n_heads": H, "n_kv_heads": G}, "weights": weights, "x": draw.normal(B, T, D, dtype=dtype)}


def grouped_query_attention_cases(draw):
    yield case("four heads in two groups", **grouped_inputs(draw, 2, 5, 12, 4, 2), options={"gradient": False})
    yield case("six heads in two groups", **grouped_inputs(draw, 2, 3, 12, 6, 2))
    yield case("one token", **grouped_inputs(draw, 3, 1, 8, 4, 2))
    yield case("float32", **grouped_inputs(draw, 2, 3, 8, 4, 2, dtype=SINGLE))
    yield case("a head of keys for each", part="groups", **grouped_inputs(draw, 2, 5, 6, 3, 3))
    yield case("one head of keys for all", part="groups", **grouped_inputs(draw, 2, 4, 9, 3, 1))
    causal = attention.causal_mask(5)
    yield case("a causal mask", part="mask", **grouped_inputs(draw, 2, 5, 8, 4, 2), mask=causal, options={"leak": True})
    yield case("a mask, as many heads as tokens", part="mask", **grouped_inputs(draw, 2, 4, 8, 4, 2), mask=draw.mask(4, 4))
    padding = attention.padding_mask(torch.tensor([5, 2, 3, 1]), 5)
    yield case("padding, as many heads as sequences", part="mask", **grouped_inputs(draw, 4, 5, 8, 4, 2), mask=padding)
    yield case("a query that may see nothing", part="mask", **grouped_inputs(draw, 2, 3, 8, 4, 2), mask=empty_row(draw, 3, 3))
    uneven = {name: torch.zeros(2, 2).double() for name in ("W_Q.weight", "W_K.weight", "W_V.weight", "W_O.weight")}  # never loaded
    yield case("10 numbers in 4 heads", part="divisibility", raises="ValueError",
               build={"d_model": 10, "n_heads": 4, "n_kv_heads": 2}, weights=uneven, x=draw.normal(2, 3, 10))  # fmt: skip
    yield case("6 heads in 4 groups", part="divisibility", raises="ValueError",
               build={"d_model": 12, "n_heads": 6, "n_kv_heads": 4}, weights=uneven, x=draw.normal(2, 3, 12))  # fmt: skip


GroupedQueryAttention = Exercise(
    reference=multi_head.GroupedQueryAttention,
    purpose="The same attention with a fraction of the keys and values: the one in Llama, Mistral and Qwen.",
    minutes=25,
    difficulty=3,
    cases=grouped_query_attention_cases,
    parts={"values": 2, "groups": 1, "mask": 2, "divisibility": 1, "gradient": 1},
    probe="multi_head:attention",
    options={"returns": ["output", "weights"]},
    mistakes=[
        mistake("tiled", "x.repeat_interleave(n_repeats, dim=1)", "x.repeat(1, n_repeats, 1, 1)", TILED, at="repeat_kv"),
        mistake("all_heads_of_keys", "self.W_K = nn.Linear(d_model, n_kv_heads * d_k, bias=False)", "self.W_K = nn.Linear(d_model, d_model, bias=False)",
                "W_K and W_V have rows for all query heads. The point is that there are fewer: n_kv_heads · d_k rows each.",
                also=[("self.W_V = nn.Linear(d_model, n_kv_heads * d_k, bias=False)", "self.W_V = nn.Linear(d_model, d_model, bias=False)"),
                      ("repeat_kv(split_heads(self.W_K(x), self.n_kv_heads), n_repeats)", "split_heads(self.W_K(x), self.n_heads)"),
                      ("repeat_kv(split_heads(self.W_V(x), self.n_kv_heads), n_repeats)", "split_heads(self.W_V(x), self.n_heads)")]),
        mistake("keys_alone_shared", "self.W_V = nn.Linear(d_model, n_kv_heads * d_k, bias=False)", "self.W_V = nn.Linear(d_model, d_model, bias=False)",
                "W_V has rows for all query heads. Keys *and* values are shared: n_kv_heads · d_k rows each.",
                also=[("repeat_kv(split_heads(self.W_V(x), self.n_kv_heads), n_repeats)", "split_heads(self.W_V(x), self.n_heads)")]),
        *HEAD_MISTAKES,
        mistake("no_output_projection", "self.W_O(merge_heads(output))", "merge_heads(output)", NO_OUTPUT_PROJECTION),
        *only(SCORE_MISTAKES, "no_scale", "scaled_by_d_k", "scale_multiplied", "scale_from_sequence"),
        mistake("scaled_by_d_model", "scaled_dot_product_attention(q, k", "scaled_dot_product_attention(q / self.n_heads**0.5, k", SCALED_BY_D_MODEL),
        mistake("scaled_by_heads", "scaled_dot_product_attention(q, k", "scaled_dot_product_attention(q * (q.shape[-1] / self.n_heads) ** 0.5, k", SCALED_BY_HEADS),
        mistake("swapped", "scaled_dot_product_attention(q, k, v", "scaled_dot_product_attention(k, q, v", SWAPPED),
        mistake("keys_for_values", "self.W_V(x)", "self.W_K(x)", "The values are made with W_K; they have a matrix of their own, W_V."),
        *only(WEIGHT_MISTAKES, "over_queries", "mask_after_softmax", "mask_filled_with_zero", "mask_inverted", "empty_row_nan"),
        EMPTY_ROW_UNIFORM,
        mistake("mask_not_passed_on", "mask.unsqueeze(-3)", "None", "The mask makes no difference to what you return: pass it on."),
        mistake("mask_inverted_everywhere", "mask.unsqueeze(-3)", "~mask.unsqueeze(-3)", WEIGHT_MISTAKES[4].why),
        mistake("mask_lined_up_with_heads", "mask.unsqueeze(-3)", "mask", MASK_LINED_UP_WITH_HEADS),
        mistake("mask_lined_up_with_queries", "mask.unsqueeze(-3)", "mask.unsqueeze(1)", MASK_LINED_UP_WITH_QUERIES),
        mistake("output_alone", "return self.W_O(merge_heads(output)), weights", "return self.W_O(merge_heads(output))", OUTPUT_ALONE),
        mistake("returned_in_the_wrong_order", "return self.W_O(merge_heads(output)), weights", "return weights, self.W_O(merge_heads(output))", WEIGHTS_FIRST),
        mistake("weights_averaged", "(output)), weights", "(output)), weights.mean(1)", WEIGHTS_AVERAGED),
        mistake("with_bias", "self.W_Q = nn.Linear(d_model, d_model, bias=False)", "self.W_Q = nn.Linear(d_model, d_model)",
                "Your projections have biases. Here, as in Llama, they have none: nn.Linear(…, bias=False).",
                also=[("self.W_K = nn.Linear(d_model, n_kv_heads * d_k, bias=False)", "self.W_K = nn.Linear(d_model, n_kv_heads * d_k)"),
                      ("self.W_V = nn.Linear(d_model, n_kv_heads * d_k, bias=False)", "self.W_V = nn.Linear(d_model, n_kv_heads * d_k)"),
                      ("self.W_O = nn.Linear(d_model, d_model, bias=False)", "self.W_O = nn.Linear(d_model, d_model)")]),
        mistake("heads_not_divisible_accepted", "if d_model % n_heads or n_heads % n_kv_heads:", "if n_heads % n_kv_heads:",
                "10 numbers can't be cut into 4 equal heads, and your constructor builds it all the same. Raise a ValueError there."),
        mistake("groups_not_divisible_accepted", "if d_model % n_heads or n_heads % n_kv_heads:", "if d_model % n_heads:",
                "6 query heads can't share 4 heads of keys evenly, and your constructor builds it all the same. Raise a ValueError there."),
        mistake("none_checked", "if d_model % n_heads or n_heads % n_kv_heads:", "if False:",
                "Your constructor accepts sizes that can't be divided. Raise a ValueError where n_heads does not divide d_model, and where n_kv_heads does not "
                "divide n_heads."),
        mistake("another_error", "raise ValueError(", "raise AssertionError(",
                "You notice that the sizes can't be divided, by an `assert`. `python -O` leaves those out: raise a ValueError, which is what it is."),
    ],
    hints=[
        "With 4 query heads and 2 heads of keys and values: which of the four weights become smaller, and how many rows do they have?",
        "W_K and W_V have n_kv_heads · d_k rows, where d_k = d_model // n_heads. Split the queries into n_heads, keys and values into n_kv_heads, then repeat "
        "keys and values until there are as many as queries.",
        "`k = repeat_kv(split_heads(self.W_K(x), self.n_kv_heads), self.n_heads // self.n_kv_heads)`, the same for v; then your "
        "scaled_dot_product_attention, merge_heads, W_O.",
    ],
    forbidden=BUILT_IN,
)  # fmt: skip

MODULE = Module(
    "multi_head", "Multi-head attention", hours=3, difficulty=3, needs="module 01: scores, masks, a softmax over the keys",
    exercises=[split_heads, merge_heads, MultiHeadAttention, load_torch_mha, repeat_kv, GroupedQueryAttention],
)  # fmt: skip
