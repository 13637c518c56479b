"""Module 01: from a softmax to self-attention."""

import torch

from autograder.exercise import Exercise, Module, case, mistake
from solutions import attention

HALF, SINGLE = torch.float16, torch.float32


def softmax_cases(draw):
    yield case("last axis", x=draw.normal(3, 5))
    yield case("one axis", x=draw.normal(4), dim=0)
    yield case("one number", x=draw.normal(2, 1))
    yield case("columns", part="axis", x=draw.normal(3, 5), dim=0)
    yield case("square, columns", part="axis", x=draw.normal(4, 4), dim=0)
    yield case("four axes, the second", part="axis", x=draw.normal(2, 3, 4, 5), dim=1)
    yield case("counted from the end", part="axis", x=draw.normal(2, 3, 5), dim=-2)
    yield case("transposed in memory", part="axis", x=draw.normal(5, 3).T, dim=1)
    yield case("large numbers", part="stability", x=draw.normal(2, 5) + 1000.0)
    yield case("very negative numbers", part="stability", x=draw.normal(2, 5) - 1000.0)
    yield case("rows far apart", part="stability", x=draw.normal(3, 5) + torch.tensor([[0.0], [900.0], [-900.0]]))
    yield case("one number far above", part="stability", x=draw.normal(2, 3) + torch.tensor([0.0, 3000.0, 0.0]))
    yield case("float32", part="stability", x=draw.normal(2, 5, dtype=SINGLE) + 100.0)


softmax = Exercise(
    reference=attention.softmax,
    purpose="Turn scores into weights: positive, summing to 1, larger where the score is larger.",
    minutes=10,
    difficulty=1,
    cases=softmax_cases,
    parts={"values": 1, "axis": 1, "stability": 1, "gradient": 1},
    mistakes=[
        mistake(
            "no_max_subtracted", "(x - x.amax(dim, keepdim=True)).exp()", "x.exp()",
            "The exponential of a large score overflows: in float32 already exp(89) is inf, and inf / inf is NaN. Subtract the largest "
            "score along `dim` first: softmax(x) = softmax(x - c) for every c, because the factor exp(-c) cancels.",
        ),
        mistake(
            "global_max", "x.amax(dim, keepdim=True)", "x.max()",
            "You subtract the largest number of the whole tensor. A row that lies far below it becomes exp(-900) = 0 everywhere, and "
            "0 / 0 is NaN. Each row needs its own maximum: `x.amax(dim, keepdim=True)`.",
        ),
        mistake(
            "mean_subtracted", "x.amax(dim, keepdim=True)", "x.mean(dim, keepdim=True)",
            "You subtract the mean. That leaves numbers above it positive, and one far above it still overflows. Only the maximum makes "
            "every exponent zero or less.",
        ),
        mistake(
            "axis_ignored", "def softmax(x, dim=-1):\n", "def softmax(x, dim=-1):\n    dim = -1\n",
            "Your weights sum to 1 along the last axis, whatever `dim` says. Pass `dim` to both the maximum and the sum.",
        ),
        mistake(
            "summed_over_everything", "e.sum(dim, keepdim=True)", "e.sum()",
            "You divide by the sum over the whole tensor, so that all weights together sum to 1. Each slice along `dim` is to sum to 1 "
            "on its own: `sum(dim, keepdim=True)`.",
        ),
        mistake(
            "keepdim_missing", "e.sum(dim, keepdim=True)", "e.sum(dim)",
            "The sum has lost the axis `dim`, so it is lined up with the wrong axis in the division: an error for most shapes, silently "
            "wrong numbers for square ones. `keepdim=True` keeps the axis, with size 1.",
        ),
        mistake(
            "not_normalised", "e / e.sum(dim, keepdim=True)", "e",
            "These are the exponentials, not yet the weights: divide them by their sum along `dim`.",
        ),
        mistake(
            "log_returned", "e / e.sum(dim, keepdim=True)", "(e / e.sum(dim, keepdim=True)).log()",
            "These are the logarithms of the weights (a log-softmax): leave out the last logarithm.",
        ),
        mistake(
            "changed_in_place", "x - x.amax(dim, keepdim=True)", "x.sub_(x.amax(dim, keepdim=True))",
            "You subtract the maximum inside the caller's own tensor (`x -= …`), who still needs it, and autograd forbids it on a leaf. "
            "Write `x = x - …`, which makes a new tensor.",
        ),
    ],
    hints=[
        "Which function turns any number into a positive one, and keeps their order? What do you divide by so that they sum to 1?",
        "Subtract the maximum along `dim`, take the exponential, divide by the sum along `dim`. Both reductions keep their axis.",
        "`e = (x - x.amax(dim, keepdim=True)).exp()`. Now divide `e` by its own sum along `dim`.",
    ],
    forbidden=["softmax", "log_softmax", "softmin", "logsumexp", "Softmax", "_softmax"],
)  # fmt: skip


SCORE_MISTAKES = [
    mistake(
        "no_scale", " / math.sqrt(q.shape[-1])", "",
        "The scores are not scaled: divide by the square root of the width of the queries, √d_k. A dot product of d_k terms has a "
        "standard deviation of √d_k, and scores that large saturate the softmax: at d_k = 64 the entropy of the weights falls from "
        "3.7 to 0.6.",
        at="attention_scores",
    ),
    mistake(
        "scaled_by_d_k", "math.sqrt(q.shape[-1])", "q.shape[-1]",
        "You divide by d_k, and it is its square root: the spread of the dot products grows with √d_k. Divided by d_k, the scores "
        "shrink to nothing as the width grows, and the weights become uniform.",
        at="attention_scores",
    ),
    mistake(
        "scale_multiplied", " / math.sqrt", " * math.sqrt",
        "You multiply by √d_k where you should divide: the scores become d_k times too large, and the softmax picks a single key.",
        at="attention_scores",
    ),
    mistake(
        "scale_from_sequence", "math.sqrt(q.shape[-1])", "math.sqrt(q.shape[-2])",
        "The scale is taken from the number of queries, not from their width: `q.shape[-1]` is d_k, `q.shape[-2]` is T. It shows only "
        "when the two differ.",
        at="attention_scores",
    ),
    mistake(
        "scale_from_keys", "math.sqrt(q.shape[-1])", "math.sqrt(k.shape[-2])",
        "The scale is taken from the number of keys, not from their width: `k.shape[-1]` is d_k, `k.shape[-2]` is S. It shows only when "
        "the two differ.",
        at="attention_scores",
    ),
    mistake(
        "transposed_all_axes", "k.transpose(-2, -1)", "k.permute(*reversed(range(k.dim())))",
        "`.T` reverses *all* axes: right for a matrix, wrong once there is a batch. Swap the last two only: `k.transpose(-2, -1)`, or "
        "`k.mT`.",
        at="attention_scores",
    ),
]  # fmt: skip

SWAPPED = (
    "Queries and keys are swapped: row t of the scores must belong to query t, so it is q @ kᵀ, of shape (T, S). What you return is "
    "its transpose, and the softmax would run over the queries."
)


def attention_scores_cases(draw):
    yield case("one sequence", q=draw.normal(3, 4), k=draw.normal(5, 4))
    yield case("as many queries as keys", q=draw.normal(5, 2), k=draw.normal(5, 2))
    yield case("one query", q=draw.normal(1, 6), k=draw.normal(3, 6))
    yield case("a batch", part="batch", q=draw.normal(2, 3, 7), k=draw.normal(2, 5, 7))
    yield case("a batch of heads", part="batch", q=draw.normal(2, 3, 4, 6), k=draw.normal(2, 3, 5, 6))
    yield case("one set of keys for a batch", part="batch", q=draw.normal(2, 3, 4), k=draw.normal(5, 4))
    yield case("transposed in memory", part="batch", q=draw.normal(2, 7, 3).mT, k=draw.normal(2, 7, 5).mT)
    yield case("float32", part="batch", q=draw.normal(2, 3, 4, dtype=SINGLE), k=draw.normal(2, 5, 4, dtype=SINGLE))


attention_scores = Exercise(
    reference=attention.attention_scores,
    purpose="Say how well each query matches each key, on a scale that does not depend on their width.",
    minutes=10,
    difficulty=1,
    cases=attention_scores_cases,
    parts={"values": 2, "batch": 1, "gradient": 1},
    mistakes=[
        *SCORE_MISTAKES,
        mistake("swapped", "q @ k.transpose(-2, -1)", "k @ q.transpose(-2, -1)", SWAPPED),
        mistake(
            "weights_returned", "q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])",
            "(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(-1)",
            "What you return is already the softmax of the scores. Return the scores themselves: a mask has to come in between.",
        ),
    ],
    hints=[
        "Row t, column s is one dot product: query t with key s. Which product of matrices holds all of them?",
        "`q @ …` needs the keys as columns: swap the last two axes of k, and leave the others alone. What is the width of a query?",
        "`q @ k.transpose(-2, -1)`, divided by `math.sqrt(q.shape[-1])`.",
    ],
    forbidden=["scaled_dot_product_attention", "MultiheadAttention", "multi_head_attention_forward"],
)  # fmt: skip


def arrays(draw, T, S, K, V):
    return {"q": draw.normal(T, K).numpy(), "k": draw.normal(S, K).numpy(), "v": draw.normal(S, V).numpy()}


def attention_loops_cases(draw):
    yield case("three queries, five keys", **arrays(draw, 3, 5, 4, 2))
    yield case("all sizes alike", **arrays(draw, 3, 3, 3, 3))
    yield case("one query", **arrays(draw, 1, 4, 2, 3))
    yield case("values wider than keys", **arrays(draw, 4, 3, 2, 5))
    large = arrays(draw, 3, 5, 4, 2)
    apart = abs(large["k"]) + 5.0 * torch.arange(5).double()[:, None].numpy()  # so that never two scores are nearly the same
    yield case("large scores", part="stability", q=abs(large["q"]) * 10_000.0, k=apart, v=large["v"])
    yield case("a mask", part="mask", **arrays(draw, 3, 5, 4, 2), mask=draw.mask(3, 5).numpy())
    yield case("a causal mask", part="mask", **arrays(draw, 4, 4, 3, 2), mask=attention.causal_mask(4).numpy())
    nothing = draw.mask(3, 4).numpy()
    nothing[1] = False
    yield case("a query that may see nothing", part="mask", **arrays(draw, 3, 4, 2, 5), mask=nothing)


attention_loops = Exercise(
    reference=attention.attention_loops,
    purpose="The whole of attention with nothing hidden in a matrix product. You will keep it, to test the fast one.",
    minutes=25,
    difficulty=2,
    cases=attention_loops_cases,
    parts={"values": 2, "stability": 1, "mask": 2},
    options={"returns": ["output", "weights"]},
    mistakes=[
        mistake("no_scale", " / math.sqrt(q.shape[-1])", "", SCORE_MISTAKES[0].why),
        mistake("scaled_by_d_k", "math.sqrt(q.shape[-1])", "q.shape[-1]", SCORE_MISTAKES[1].why),
        mistake("scale_from_sequence", "math.sqrt(q.shape[-1])", "math.sqrt(T)", SCORE_MISTAKES[3].why),
        mistake("no_max_subtracted", "math.exp(scores[s] - largest)", "np.exp(scores[s])",
                "The exponential of a large score overflows to inf, and inf / inf is NaN. Subtract the row's largest score from all of "
                "its scores first: the weights stay the same."),
        mistake("d_v_taken_for_d_k", "np.zeros((T, v.shape[-1]), v.dtype)", "np.zeros((T, q.shape[-1]), v.dtype)",
                "The output is as wide as the queries, and it should be as wide as the values: an average of values has a value's width, "
                "which need not be d_k."),
        mistake("keys_averaged", "weights[t, s] * v[s]", "weights[t, s] * k[s]",
                "You average the keys. They only decide the weights; what is averaged is the values."),
        mistake("scores_for_weights", "weights[t, s] * v[s]", "scores[s] * v[s]",
                "You add up the values with the *scores* in place of the weights. Use what comes out of the softmax, which sums to 1."),
        mistake("not_averaged", "output[t] += weights[t, s] * v[s]", "output[t] = weights[t, s] * v[s]",
                "Each key overwrites what the key before it wrote, and only the last one is left. Add them up: `+=`."),
        mistake("mask_ignored", "mask is None or mask[t, s]", "True",
                "The mask makes no difference to what you return. Skip each key s for which mask[t, s] is False."),
        mistake("mask_inverted", "mask[t, s]", "not mask[t, s]",
                "The mask is read the wrong way round: True means *may attend*. (nn.MultiheadAttention has it the other way.)"),
        mistake("mask_after_softmax", "if mask is None or mask[t, s]]", "]",
                "You hide keys after the softmax: the hidden ones have already taken their share, so the rows no longer sum to 1. "
                "Leave them out before the exponentials are added up.",
                also=[("weights[t, s] = exponentials[s] / sum(exponentials.values())",
                       "weights[t, s] = exponentials[s] / sum(exponentials.values()) * (mask is None or mask[t, s])")]),
        mistake("mask_filled_with_zero", "if mask is None or mask[t, s]]", "]",
                "Hidden keys get a score of 0, and 0 is an ordinary score: exp(0) = 1, so they still take part. Leave them out, or give "
                "them a score of -inf.",
                also=[("/ math.sqrt(q.shape[-1]) for s", "/ math.sqrt(q.shape[-1]) * (mask is None or mask[t, s]) for s")]),
        mistake("mask_transposed", "mask[t, s]", "mask.T[t % S, s % T]",
                "The mask is read with its axes swapped: its rows are queries, its columns keys, so it is mask[t, s]."),
        mistake("empty_row_uniform", "        if not allowed:\n            continue", "        if not allowed:\n            allowed = range(S)",
                "A query that may see no key gets weights all the same (an average over everything, or over what it must not see). Its "
                "weights and its output are to be 0."),
        mistake("empty_row_nan", "            continue", "            output[t], weights[t] = np.nan, np.nan",
                "A query that may see no key gives NaN: its sum of exponentials is 0, and 0 / 0 is not a number. Leave its weights and "
                "its output at 0."),
    ],
    hints=[
        "For one query: which numbers do you need from each key before you can divide? What do you do with a key that is hidden?",
        "For each t: collect the scores of the visible keys; subtract the largest; exponentiate; divide by their sum; add up weight × "
        "value. No visible key: `continue`.",
        "Start with `output = np.zeros((len(q), v.shape[-1]))` and `weights = np.zeros((len(q), len(k)))`, then `for t in "
        "range(len(q)):` and a list of the s that mask[t, s] allows.",
    ],
    forbidden=["scaled_dot_product_attention", "MultiheadAttention", "softmax"],
)  # fmt: skip


def causal_mask_cases(draw):
    yield case("four positions", T=4)
    yield case("one position", T=1)
    yield case("as many keys as queries", T=3, S=3)
    yield case("a cache: more keys than queries", part="alignment", T=2, S=5)
    yield case("one query and a cache", part="alignment", T=1, S=4)
    yield case("fewer keys than queries", part="alignment", T=5, S=3)


causal_mask = Exercise(
    reference=attention.causal_mask,
    purpose="Keep every position from seeing the future, so that a model can learn to predict it.",
    minutes=10,
    difficulty=2,
    cases=causal_mask_cases,
    parts={"values": 1, "alignment": 1},
    mistakes=[
        mistake("inverted", "torch.ones(T, S, dtype=torch.bool).tril(S - T)", "~torch.ones(T, S, dtype=torch.bool).tril(S - T)",
                "Your mask is True where it should be False: in this course True means *may attend*. (nn.MultiheadAttention has it the "
                "other way.)"),
        mistake("diagonal_excluded", "tril(S - T)", "tril(S - T - 1)",
                "A position can't see itself in your mask. It may: only what comes *after* it is the future. (And the first position would "
                "see nothing at all.)"),
        mistake("one_step_ahead", "tril(S - T)", "tril(S - T + 1)",
                "Each position sees one key of the future. That is enough for a model to copy the next token instead of predicting it: the "
                "loss falls to 0, and it has learnt nothing."),
        mistake("top_left", "tril(S - T)", "tril()",
                "With T ≠ S your mask starts in the top left corner, and it should end in the bottom right one: the last query stands at the "
                "last key. Query t sees the keys s ≤ t + (S - T)."),
        mistake("looks_ahead", "tril(S - T)", "triu(S - T)",
                "Your mask lets each position see itself and the *future*, and hides the past: it is the transpose of the right one."),
        mistake("not_boolean", "dtype=torch.bool", "dtype=torch.float32",
                "The mask holds numbers; make it boolean (`dtype=torch.bool`), so that nobody adds it to the scores by accident."),
        mistake("keys_ignored", "S = T if S is None else S", "S = T",
                "Your mask is always square. S, when it is given, is the number of keys: the mask has the shape (T, S)."),
    ],
    hints=[
        "Write the mask for T = S = 3 on paper: who may see whom? Now T = 1, S = 4: the one query is the newest position.",
        "Query t stands at position t + (S - T). It sees key s if s is not after that.",
        "`torch.ones(T, S, dtype=torch.bool).tril(…)`: which diagonal? Or compare `torch.arange(S)` with a column of positions.",
    ],
)  # fmt: skip


def padding_mask_cases(draw):
    yield case("three sequences", lengths=torch.tensor([2, 5, 1]), S=5)
    yield case("one sequence", lengths=torch.tensor([3]), S=4)
    yield case("as many sequences as keys", part="shape", lengths=torch.tensor([4, 1, 3, 2]), S=4)
    yield case("nobody fills the width", part="shape", lengths=torch.tensor([2, 3]), S=6)
    yield case("an empty sequence", lengths=torch.tensor([0, 2]), S=3)
    yield case("random lengths", lengths=draw.integers(0, 8, 6), S=7)


padding_mask = Exercise(
    reference=attention.padding_mask,
    purpose="Put sequences of different lengths into one batch, without anyone attending to the filling.",
    minutes=10,
    difficulty=2,
    cases=padding_mask_cases,
    parts={"values": 1, "shape": 1},
    mistakes=[
        mistake("inverted", " < lengths", " >= lengths",
                "Your mask is True on the padding. In this course True means *may attend*, so it is True on the real tokens."),
        mistake("off_by_one", " < lengths", " <= lengths",
                "One padding token too many is visible: a sequence of length 2 has the positions 0 and 1, so it is position < length."),
        mistake("queries_masked", "torch.arange(S, device=lengths.device) < lengths[:, None, None]",
                "(torch.arange(S, device=lengths.device) < lengths[:, None])[:, :, None]",
                "Your mask has the shape (B, S, 1): it hides whole *queries*. It is the keys that nobody may look at, so the axis of size 1 "
                "stands where the queries are: (B, 1, S)."),
        mistake("axis_missing", "lengths[:, None, None]", "lengths[:, None]",
                "Your mask has the shape (B, S). Next to scores of shape (B, T, S) it would be lined up with the *queries*: an error if you are "
                "lucky, and silently wrong if B = T. Give it an axis for the queries: (B, 1, S)."),
        mistake("padding_on_the_left", "torch.arange(S, device=lengths.device) < lengths", "torch.arange(S, device=lengths.device) >= S - lengths",
                "Your mask takes the padding to come first. Here the real tokens come first and the padding behind them."),
        mistake("width_from_lengths", "torch.arange(S,", "torch.arange(max(lengths),",
                "The mask is as wide as the longest sequence. It has to be S wide, as the keys are, even when no sequence fills them."),
    ],
    hints=[
        "A sequence of length 3: at which positions does it have real tokens? Which comparison says that for every position at once?",
        "Compare the positions 0 … S-1 with the lengths. For broadcasting, the lengths need two more axes: (B, 1, 1) against (S).",
        "`torch.arange(S)` and `lengths[:, None, None]`, with a `<` between them.",
    ],
)  # fmt: skip


def combine_masks_cases(draw):
    # so large that each of them hides something that the others don't, whatever is drawn
    yield case("two masks", masks_=[draw.mask(7, 11), draw.mask(7, 11)])
    yield case("three masks", masks_=[draw.mask(9, 31), draw.mask(9, 31), draw.mask(9, 31)])
    yield case("one mask", masks_=[draw.mask(2, 3)])
    yield case(
        "causal and padding", part="broadcasting", masks_=[attention.causal_mask(4), attention.padding_mask(torch.tensor([2, 4, 1]), 4)]
    )
    yield case(
        "padding and causal", part="broadcasting", masks_=[attention.padding_mask(torch.tensor([2, 3]), 5), attention.causal_mask(3, 5)]
    )
    yield case("one of them is None", part="None", masks_=[None, draw.mask(3, 4), None])
    yield case("None at the end", part="None", masks_=[draw.mask(7, 11), draw.mask(2, 7, 11), None])
    yield case("all are None", part="None", masks_=[None, None])


combine_masks = Exercise(
    reference=attention.combine_masks,
    purpose="One mask for all reasons to hide a key: it is in the future, it is padding, it is out of the window.",
    minutes=5,
    difficulty=1,
    cases=combine_masks_cases,
    parts={"values": 1, "broadcasting": 1, "None": 1},
    mistakes=[
        mistake("or_for_and", "combined & mask", "combined | mask",
                "You allow a key when *any* mask allows it. Each mask has its own reason to hide: a key must be allowed by *every* one, so it is "
                "`&`, not `|`."),
        mistake("changed_in_place", "combined & mask", "combined.__iand__(mask)",
                "You write into the first mask (`&=`), which belongs to the caller: the same causal mask will be used again in the next layer. "
                "`combined & mask` makes a new one (and it broadcasts)."),
        mistake("last_one_wins", "combined & mask", "mask", "Only the last mask is left: combine it with those before it, by `&`."),
        mistake("none_not_handled", "if mask is not None", "if True",
                "A mask may be None, which means that it allows everything: skip it."),
        mistake("first_two_only", "for mask in masks", "for mask in masks[:2]", "There may be more than two masks: go through all of them."),
    ],
    hints=[
        "When two masks disagree about a key, who should win?",
        "Start with None. For each mask that is not None: take it as it is if it is the first, else combine it with what you have.",
        "`combined = mask if combined is None else combined & mask`, in a loop over masks, skipping None.",
    ],
)  # fmt: skip


WEIGHT_MISTAKES = [
    mistake(
        "over_queries", "return softmax(scores, dim=-1)", "return softmax(scores, dim=-2)",
        "The softmax runs over the queries: each *column* of your weights sums to 1, and it should be each row. A query spreads its attention "
        "over the keys, which are the last axis: dim=-1.",
        at="masked_softmax",
        also=[("-math.inf), dim=-1)", "-math.inf), dim=-2)")],
    ),
    mistake(
        "mask_ignored", "if mask is None:", "if True:",
        "The mask makes no difference to what you return: hidden keys keep their weight.",
        at="masked_softmax",
    ),
    mistake(
        "mask_after_softmax", "softmax(scores.masked_fill(~mask, -math.inf), dim=-1)", "softmax(scores, dim=-1) * mask",
        "You mask after the softmax: hidden keys have already taken their share, so the rows no longer sum to 1, and how much is missing tells "
        "about the future. Hide the *scores* (with -inf) before the softmax.",
        at="masked_softmax",
    ),
    mistake(
        "mask_filled_with_zero", "masked_fill(~mask, -math.inf)", "masked_fill(~mask, 0.0)",
        "Hidden scores are set to 0, and 0 is an ordinary score: exp(0) = 1, so hidden keys still get a large share (40% of the weight, with a "
        "causal mask on random scores). It takes -inf, for which the exponential is 0.",
        at="masked_softmax",
    ),
    mistake(
        "mask_inverted", "masked_fill(~mask, -math.inf)", "masked_fill(mask, -math.inf)",
        "The mask is read the wrong way round: you hide what may be seen. True means *may attend*, so it is the False ones that get -inf: "
        "`masked_fill(~mask, …)`.",
        at="masked_softmax",
    ),
    mistake(
        "empty_row_nan", "weights.masked_fill(~mask.any(-1, keepdim=True), 0.0)", "weights",
        "A query that may see no key gives NaN: all its scores are -inf, so its exponentials sum to 0, and 0 / 0 is not a number. One such row "
        "spreads through the whole model. Set its weights to 0.",
        at="masked_softmax",
    ),
    mistake(
        "empty_row_uniform", "-math.inf", "torch.finfo(scores.dtype).min",
        "A query that may see no key attends to all of them equally: with one large negative number in every place, the row is a softmax of "
        "equal scores. Set its weights to 0.",
        at="masked_softmax",
        also=[("weights.masked_fill(~mask.any(-1, keepdim=True), 0.0)", "weights")],
    ),
]  # fmt: skip


def empty_row(draw, *shape):
    mask = draw.mask(*shape)
    mask[..., 1, :] = False
    return mask


def masked_softmax_cases(draw):
    yield case("no mask", scores=draw.normal(3, 5))
    yield case("a batch, no mask", scores=draw.normal(2, 3, 4))
    yield case("a mask", part="mask", scores=draw.normal(3, 5), mask=draw.mask(3, 5))
    yield case("a batch, one mask", part="mask", scores=draw.normal(2, 4, 5), mask=draw.mask(4, 5))
    yield case("heads, padding", part="mask", scores=draw.normal(2, 3, 4, 5), mask=draw.mask(2, 1, 1, 5))
    yield case("everything visible", part="mask", scores=draw.normal(3, 4), mask=torch.ones(3, 4, dtype=torch.bool))
    yield case("a row that may see nothing", part="empty rows", scores=draw.normal(3, 5), mask=empty_row(draw, 3, 5))
    yield case("a whole sequence of padding", part="empty rows", scores=draw.normal(2, 3, 4),
               mask=attention.padding_mask(torch.tensor([0, 2]), 4))  # fmt: skip
    far_below = draw.normal(3, 5) - 30_000.0
    yield case("all scores far below zero", part="stability", scores=far_below, mask=draw.mask(3, 5))
    yield case("large scores", part="stability", scores=draw.normal(3, 5) * 1000.0, mask=draw.mask(3, 5))
    yield case("float16", part="stability", scores=draw.normal(3, 5, dtype=HALF), mask=draw.mask(3, 5), options={"gradient": False})
    yield case("float32", part="stability", scores=draw.normal(3, 5, dtype=SINGLE), mask=draw.mask(3, 5))


masked_softmax = Exercise(
    reference=attention.masked_softmax,
    purpose="Weights over what may be seen, and no NaN where nothing may.",
    minutes=20,
    difficulty=3,
    cases=masked_softmax_cases,
    parts={"values": 1, "mask": 2, "empty rows": 1, "stability": 1, "gradient": 1},
    mistakes=[
        *WEIGHT_MISTAKES,
        mistake("mask_inverted_everywhere", "    weights = softmax", "    mask = ~mask\n    weights = softmax", WEIGHT_MISTAKES[4].why),
        mistake("times_minus_inf", "scores.masked_fill(~mask, -math.inf)", "scores + ~mask * -math.inf",
                "You multiply the mask by -inf and add it: where the mask is 0, that is 0 · -inf = NaN. Choose between the two instead: "
                "`scores.masked_fill(~mask, -math.inf)`, or torch.where."),
        mistake("too_large_for_half", "-math.inf", "-1e9",
                "-1e9 does not fit into half precision, whose largest number is 65504. Use -inf, or torch.finfo(scores.dtype).min."),
        mistake("constant_beaten", "-math.inf", "-1e4",
                "Hidden scores get a constant that is not small enough: when the visible scores are smaller still, the hidden keys win. "
                "Nothing beats -inf."),
        mistake("scores_changed", "scores.masked_fill(", "scores.masked_fill_(",
                "You write -inf into the caller's scores (`masked_fill_`, or an assignment to scores[…]). Without the underscore it makes a "
                "new tensor."),
        mistake("mask_required", "    if mask is None:\n", "    if False:\n",
                "`mask=None` means that everything may be seen: then it is the plain softmax."),
        mistake("two_softmaxes", "    weights = softmax", "    weights = softmax(scores.masked_fill(~mask, -math.inf))\n    weights = softmax",
                "The softmax is taken twice: the second one sees weights between 0 and 1 and makes them nearly uniform. Once is enough.",
                also=[("softmax(scores.masked_fill(~mask, -math.inf), dim=-1)  #", "softmax(weights, dim=-1)  #")]),
    ],
    hints=[
        "Which score makes a key weigh exactly nothing after the exponential? And if all keys of a row have that score: 0 divided by what?",
        "Fill the hidden scores with -inf, take your softmax over the last axis, then repair the rows in which nothing was visible.",
        "`softmax(scores.masked_fill(~mask, -math.inf))`; then `mask.any(-1, keepdim=True)` tells which rows have anything to see.",
    ],
    forbidden=["softmax", "log_softmax", "softmin", "Softmax", "_softmax", "_masked_softmax"],
)  # fmt: skip


def tensors(draw, *batch, T, S, K, V, dtype=torch.float64):
    return {
        "q": draw.normal(*batch, T, K, dtype=dtype),
        "k": draw.normal(*batch, S, K, dtype=dtype),
        "v": draw.normal(*batch, S, V, dtype=dtype),
    }


def scaled_dot_product_attention_cases(draw):
    yield case("one sequence", **tensors(draw, T=3, S=5, K=4, V=2))
    yield case("as many queries as keys", **tensors(draw, T=4, S=4, K=3, V=5))
    yield case("values as wide as keys", **tensors(draw, T=2, S=5, K=3, V=3))
    yield case("one query", **tensors(draw, T=1, S=3, K=5, V=2))
    yield case("a batch", part="batch", **tensors(draw, 2, T=3, S=4, K=5, V=7))
    yield case("a batch of heads", part="batch", **tensors(draw, 2, 3, T=4, S=5, K=6, V=2))
    yield case("float32", part="batch", **tensors(draw, 2, T=3, S=4, K=5, V=2, dtype=SINGLE))
    yield case("a mask", part="mask", **tensors(draw, T=3, S=5, K=4, V=2), mask=draw.mask(3, 5))
    yield case("a causal mask", part="mask", **tensors(draw, 2, T=4, S=4, K=3, V=2), mask=attention.causal_mask(4))
    yield case("padding", part="mask", **tensors(draw, 3, T=4, S=5, K=2, V=6), mask=attention.padding_mask(torch.tensor([5, 2, 3]), 5))
    yield case("a query that may see nothing", part="mask", **tensors(draw, 2, T=3, S=4, K=5, V=6), mask=empty_row(draw, 3, 4))


scaled_dot_product_attention = Exercise(
    reference=attention.scaled_dot_product_attention,
    purpose="All of the last hour in two lines: every transformer there is calls this.",
    minutes=15,
    difficulty=2,
    cases=scaled_dot_product_attention_cases,
    parts={"values": 2, "batch": 1, "mask": 2, "gradient": 1},
    options={"returns": ["output", "weights"]},
    mistakes=[
        *SCORE_MISTAKES,
        *WEIGHT_MISTAKES,
        mistake("swapped", "attention_scores(q, k)", "attention_scores(k, q)", SWAPPED),
        mistake("weights_transposed", "weights @ v, weights", "weights.transpose(-2, -1) @ v, weights",
                "You multiply the values by the *transposed* weights: query t would be given what others wanted from it. Row t of the weights "
                "belongs to query t: weights @ v. (With T ≠ S the shapes give it away.)"),
        mistake("scores_for_weights", "weights @ v, weights", "attention_scores(q, k) @ v, weights",
                "The output is made of the raw scores: it is an average only with the weights, which come out of the softmax."),
        mistake("keys_averaged", "weights @ v, weights", "weights @ k, weights",
                "You average the keys. They only decide the weights; what is averaged is the values."),
        mistake("d_v_taken_for_d_k", "weights @ v, weights", "(weights @ v).reshape(q.shape), weights",
                "The output is given the shape of the queries, and its width should be that of the values, which need not be d_k."),
        mistake("output_alone", "return weights @ v, weights", "return weights @ v",
                "You return the output alone. Return the weights too: `return output, weights`."),
        mistake("returned_in_the_wrong_order", "return weights @ v, weights", "return weights, weights @ v",
                "You return the weights first. The output comes first: `return output, weights`."),
        mistake("scores_returned", "return weights @ v, weights", "return weights @ v, attention_scores(q, k)",
                "The second thing you return is the scores, and it should be the weights: what comes out of the softmax."),
        mistake("two_softmaxes", "return weights @ v, weights", "weights = softmax(weights)\n    return weights @ v, weights",
                "The softmax is taken twice: masked_softmax has already given you weights. The second one makes them nearly uniform, and brings "
                "hidden keys back."),
    ],
    hints=[
        "You have written every step. In which order do they go, and what has which shape?",
        "Scores (T, S), weights (T, S), and then which product has the shape (T, V)?",
        "`weights = masked_softmax(attention_scores(q, k), mask)`; the output is `weights @ v`.",
    ],
    forbidden=["scaled_dot_product_attention", "MultiheadAttention", "multi_head_attention_forward", "softmax", "Softmax"],
)  # fmt: skip


def self_attention_inputs(draw, B, T, D, K, dtype=torch.float64):
    weights = {name: draw.normal(K, D, dtype=dtype) for name in ("W_Q", "W_K", "W_V")}
    return {"build": {"d_model": D, "d_k": K}, "weights": weights, "x": draw.normal(B, T, D, dtype=dtype)}


def self_attention_cases(draw):
    yield case("a batch", **self_attention_inputs(draw, 2, 3, 5, 4))
    yield case("as many queries as dimensions", **self_attention_inputs(draw, 2, 4, 6, 4))
    yield case("wider than the tokens", **self_attention_inputs(draw, 1, 3, 2, 5))
    yield case("one token", **self_attention_inputs(draw, 3, 1, 4, 2))
    yield case("float32", **self_attention_inputs(draw, 2, 5, 3, 4, dtype=SINGLE))
    yield case("a causal mask", part="mask", **self_attention_inputs(draw, 2, 5, 3, 4), mask=attention.causal_mask(5))
    yield case("padding", part="mask", **self_attention_inputs(draw, 3, 4, 5, 2), mask=attention.padding_mask(torch.tensor([4, 2, 1]), 4))
    yield case("a query that may see nothing", part="mask", **self_attention_inputs(draw, 2, 3, 5, 4), mask=empty_row(draw, 3, 3))


SelfAttention = Exercise(
    reference=attention.SelfAttention,
    purpose="A layer that learns what to look for, what to offer, and what to pass on.",
    minutes=20,
    difficulty=2,
    cases=self_attention_cases,
    parts={"values": 2, "mask": 1, "gradient": 1},
    probe="build_load_call",
    options={"returns": ["output", "weights"]},
    mistakes=[
        *(mistake for mistake in SCORE_MISTAKES if mistake.id in ("no_scale", "scaled_by_d_k", "scale_from_sequence")),
        *(mistake for mistake in WEIGHT_MISTAKES if mistake.id != "mask_ignored"),
        mistake("scaled_by_d_model", "(self.W_Q(x), ", "(self.W_Q(x) * math.sqrt(self.W_Q.out_features / x.shape[-1]), ",
                "You scale by √d_model, the width of the tokens. It is the width of the queries, √d_k, that the dot products grow with."),
        mistake("swapped", "self.W_Q(x), self.W_K(x)", "self.W_K(x), self.W_Q(x)",
                "Queries and keys are swapped: the queries are made with W_Q and come first."),
        mistake("keys_for_values", "self.W_V(x)", "self.W_K(x)", "The values are made with W_K; they have a matrix of their own, W_V."),
        mistake("values_not_projected", "self.W_V(x)", "x",
                "The values are the tokens themselves. They are made with W_V, which decides what a token passes on (and how wide it is)."),
        mistake("mask_not_passed_on", "self.W_V(x), mask)", "self.W_V(x))", "The mask does not reach your attention: pass it on."),
        mistake("with_bias", "self.W_Q = nn.Linear(d_model, d_k, bias=False)", "self.W_Q = nn.Linear(d_model, d_k)",
                "Your projections have a bias. Here they have none: nn.Linear(…, bias=False).",
                also=[("self.W_K = nn.Linear(d_model, d_k, bias=False)", "self.W_K = nn.Linear(d_model, d_k)"),
                      ("self.W_V = nn.Linear(d_model, d_k, bias=False)", "self.W_V = nn.Linear(d_model, d_k)")]),
        mistake("output_alone", "return scaled_dot_product_attention(self.W_Q(x), self.W_K(x), self.W_V(x), mask)",
                "return scaled_dot_product_attention(self.W_Q(x), self.W_K(x), self.W_V(x), mask)[0]",
                "You return the output alone. Return the weights too: they are what one looks at."),
    ],
    hints=[
        "Three matrices, all applied to the same x. What does each of them make?",
        "In `__init__`: `self.W_Q = nn.Linear(d_model, d_k, bias=False)`, and the same for W_K and W_V. In `forward`: apply them, then attend.",
        "`return scaled_dot_product_attention(self.W_Q(x), …, …, mask)`.",
    ],
    forbidden=["scaled_dot_product_attention", "MultiheadAttention", "multi_head_attention_forward", "softmax", "Softmax"],
)  # fmt: skip

MODULE = Module(
    "attention", "Attention", hours=3, difficulty=2, needs="Python, matrix products, a first look at torch; module 00",
    exercises=[
        softmax, attention_scores, attention_loops, causal_mask, padding_mask, combine_masks, masked_softmax,
        scaled_dot_product_attention, SelfAttention,
    ],
)  # fmt: skip
