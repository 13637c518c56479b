"""Module 03: from waves that are added to the tokens to rotations of queries and keys, and to biases on the scores."""

import torch

from autograder.exercise import Exercise, Module, case, mistake
from solutions import attention, positions

SINGLE, HALF = torch.float32, torch.float16

EXPONENT_I = (
    "Your exponents are i / D, and they are 2i / D: the pairs share out the *whole* range, from frequency 1 down to nearly 1 / 10000. With "
    "i / D it ends at 1 / 100, and positions a few hundred apart look alike again. `torch.arange(0, width, 2) / width` are the right ones."
)
SPREAD_TO_THE_END = (
    "Your last frequency is exactly 1 / 10000 (the exponents end at 1). In the paper they are 2i / D, which ends just before: at D = 4 they "
    "are 0 and 1/2, not 0 and 1. The authors' own code did it as you do, but the formula is what all others use."
)
ALONG_THE_BATCH = (
    "The position is counted along the *batch*: every token of a sequence gets the same vector, and each sequence another one. Positions "
    "run along the second axis from the end: it is x.shape[-2] (of tokens: the last axis) that says how many there are."
)
CONCATENATED = (
    "You put the positions *beside* the tokens, so the width doubles. Here they are added: the model has room enough to keep the two apart, "
    "and every later layer stays D wide."
)


def sinusoidal_encoding_cases(draw):
    yield case("five positions", T=5, d_model=8)
    yield case("more positions than columns", T=9, d_model=6)
    yield case("square", T=4, d_model=4)
    yield case("one position", T=1, d_model=6)
    yield case("one pair", T=3, d_model=2)
    yield case("an odd width", part="odd width", T=3, d_model=5)
    yield case("one column", part="odd width", T=4, d_model=1)


sinusoidal_encoding = Exercise(
    reference=positions.sinusoidal_encoding,
    purpose="Give every position a vector of its own, without learning one, for any length.",
    minutes=15,
    difficulty=2,
    cases=sinusoidal_encoding_cases,
    parts={"values": 2, "odd width": 1},
    mistakes=[
        mistake("exponent_i", "-torch.arange(0, d_model, 2) / d_model", "-torch.arange((d_model + 1) // 2) / d_model", EXPONENT_I),
        mistake("halves_for_interleaved", "encoding[:, 0::2]", "encoding[:, : (d_model + 1) // 2]",
                "All sines come first in your encoding, then all cosines. Here they take turns: column 2i is the sine of frequency i, column "
                "2i + 1 its cosine. (Either works for a model that learns with it. It does not for one that has learnt with the other.)",
                also=[("encoding[:, 1::2]", "encoding[:, (d_model + 1) // 2 :]")]),
        mistake("sine_and_cosine_swapped", "= angles.sin()", "= angles.cos()",
                "Sines and cosines are swapped: the even columns are sines, so position 0 reads 0, 1, 0, 1, …",
                also=[("= angles.cos()[", "= angles.sin()[")]),
        mistake("sines_only", "angles.cos()[", "angles.sin()[",
                "There are only sines. Without the cosine beside it, a sine can't tell the two sides of its crest apart, and no linear map turns "
                "position t into t + 1: for that it takes both."),
        mistake("counted_from_one", "torch.arange(T)[", "torch.arange(1, T + 1)[",
                "Your positions start at 1; here they start at 0, so the first row is 0, 1, 0, 1, …"),
        mistake("cosine_of_another_frequency", "angles.cos()[:, : d_model // 2]",
                "(torch.arange(T)[:, None] * 10000.0 ** (-torch.arange(1, d_model, 2) / d_model)).cos()",
                "Each column has a frequency of its own. A sine and its cosine (columns 2i and 2i + 1) share one: both have the exponent 2i / D."),
        mistake("exponent_positive", "(-torch.arange(", "(torch.arange(",
                "Your frequencies grow, from 1 to nearly 10000; they should fall, from 1 to nearly 1 / 10000. The sign of the exponent: "
                "10000^(-2i / D), or divide by 10000^(2i / D)."),
        mistake("spread_to_the_end", "/ d_model)  #", "/ max(d_model - 2, 1))  #", SPREAD_TO_THE_END),
        mistake("odd_width_raises", "[:, : d_model // 2]", "",
                "An odd width goes wrong: it has one sine more than cosines, so the last cosine has no column to go to. Leave it out."),
        mistake("odd_column_left_empty", "torch.empty(T, d_model)", "torch.zeros(T, d_model)",
                "With an odd width your last column stays 0. It is a sine like the other even columns; only its cosine is missing.",
                also=[("encoding[:, 0::2] = angles.sin()", "encoding[:, 0 : d_model // 2 * 2 : 2] = angles.sin()[:, : d_model // 2]")]),
        mistake("transposed", "return encoding", "return encoding.T",
                "Your encoding has the shape (D, T): a row should be a position, a column a wave."),
    ],
    hints=[
        "Which numbers does each row hold for T = 2, D = 4? Write them down: two frequencies, 1 and 1/100, a sine and a cosine of each.",
        "All angles at once: a column of positions (T, 1) times a row of frequencies (D/2) is (T, D/2). Where do their sines go, where their "
        "cosines? With D odd there is one cosine fewer.",
        "`angles = torch.arange(T)[:, None] * 10000.0 ** (-torch.arange(0, d_model, 2) / d_model)`, then fill `encoding[:, 0::2]` and "
        "`encoding[:, 1::2]` of a `torch.empty(T, d_model)`.",
    ],
)  # fmt: skip


def embed_inputs(draw, B, T, V, D):
    return {"tokens": draw.integers(0, V, B, T), "table": draw.normal(V, D, dtype=SINGLE)}


def embed_cases(draw):
    yield case("one sequence", **embed_inputs(draw, 1, 4, 7, 6))
    yield case("the same token everywhere", tokens=torch.full((1, 3), 2), table=draw.normal(5, 4, dtype=SINGLE))
    yield case("one token", **embed_inputs(draw, 1, 1, 3, 4))
    yield case("a batch", part="batch", **embed_inputs(draw, 2, 5, 8, 6))
    yield case("as many sequences as positions", part="batch", **embed_inputs(draw, 3, 3, 4, 10))


embed = Exercise(
    reference=positions.embed,
    purpose="What the first layer of the 2017 transformer sees: which token, and where, in one vector.",
    minutes=5,
    difficulty=1,
    cases=embed_cases,
    parts={"values": 1, "batch": 1, "gradient": 1},
    mistakes=[
        mistake("not_scaled", "table[tokens] * math.sqrt(D)", "table[tokens]",
                "The embeddings are not scaled, so the positions drown them: a row of the table has length 1, a row of the encoding √(D / 2), "
                "which is 16 at D = 512. Multiply the embeddings by √D (section 3.4 of the paper)."),
        mistake("divided", "* math.sqrt(D)", "/ math.sqrt(D)", "You divide by √D where you should multiply: the embeddings get smaller still, beside the positions."),
        mistake("scaled_by_d_model", "math.sqrt(D)", "D", "You multiply by D; it is its square root, √D."),
        mistake("scaled_by_vocabulary", "math.sqrt(D)", "math.sqrt(len(table))",
                "You multiply by the root of the size of the *vocabulary*. It is the width of an embedding, table.shape[-1], that counts."),
        mistake("positions_scaled_too", "table[tokens] * math.sqrt(D) + positions", "(table[tokens] + positions) * math.sqrt(D)",
                "You scale the sum, so that the positions grow along, and nothing is gained. Scale the embeddings, *then* add the positions."),
        mistake("no_positions", " + positions", "", "The positions are missing: add the sinusoidal encoding, a row for each position."),
        mistake("concatenated", "table[tokens] * math.sqrt(D) + positions", "torch.cat([table[tokens] * math.sqrt(D), positions.expand(*tokens.shape, D)], dim=-1)",
                CONCATENATED),
        mistake("along_the_batch", "tokens.shape[-1], table", "tokens.shape[0], table", ALONG_THE_BATCH, also=[("+ positions", "+ positions[:, None]")]),
        mistake("position_of_the_token", " + positions", " + sinusoidal_encoding(len(table), D)[tokens]",
                "You look the encoding up by the *token*, so that each token has one vector wherever it stands. It is looked up by the position: "
                "row t of the encoding for the t-th token."),
    ],
    hints=[
        "`table[tokens]` has which shape? And the encoding? Do the two broadcast?",
        "Look the rows up, multiply them by the root of their width, add `sinusoidal_encoding(T, D)`.",
        "`table[tokens] * math.sqrt(table.shape[-1]) + sinusoidal_encoding(…, …)`.",
    ],
)  # fmt: skip


def learned_inputs(draw, max_length, D, *batch, T, dtype=torch.float64):
    build = {"max_length": max_length, "d_model": D}
    return {"build": build, "weights": {"weight": draw.normal(max_length, D, dtype=dtype)}, "x": draw.normal(*batch, T, D, dtype=dtype)}


def learned_positions_cases(draw):
    yield case("a batch", **learned_inputs(draw, 6, 5, 2, T=4))
    yield case("as many sequences as positions", **learned_inputs(draw, 5, 4, 3, T=3))
    yield case("no batch", **learned_inputs(draw, 7, 3, T=5))
    yield case("one token", **learned_inputs(draw, 4, 2, 3, T=1))
    yield case("float32", **learned_inputs(draw, 4, 6, 2, T=3, dtype=SINGLE))
    yield case("as long as can be", part="length", **learned_inputs(draw, 5, 3, 2, T=5))
    yield case("too long by one", part="length", raises="ValueError", **learned_inputs(draw, 4, 3, 2, T=5))
    yield case("one position, three tokens", part="length", raises="ValueError", **learned_inputs(draw, 1, 4, 2, T=3))


LearnedPositions = Exercise(
    reference=positions.LearnedPositions,
    purpose="Let the model find out for itself what a position should look like, as GPT-2 and BERT do.",
    minutes=10,
    difficulty=1,
    cases=learned_positions_cases,
    parts={"values": 2, "length": 1, "gradient": 1},
    probe="build_load_call",
    mistakes=[
        mistake("concatenated", "x + self.weight[:T]", "torch.cat([x, self.weight[:T].expand(x.shape)], dim=-1)", CONCATENATED),
        mistake("along_the_batch", "self.weight[:T]", "self.weight[: len(x)].unsqueeze(-2)", ALONG_THE_BATCH),
        mistake("first_row_for_all", "self.weight[:T]", "self.weight[0]",
                "Every token gets the vector of position 0. Token t gets row t: the first T rows of the weight."),
        mistake("last_rows", "self.weight[:T]", "self.weight[-T:]",
                "You take the *last* T rows. A sequence starts at position 0, so it is the first T rows, `weight[:T]`."),
        mistake("tokens_lost", "x + self.weight[:T]", "self.weight[:T].expand(x.shape)", "You return the positions alone: add them to x."),
        mistake("multiplied", "x + self", "x * self", "You multiply the tokens by the positions; they are added."),
        mistake("not_a_parameter", "nn.Parameter(torch.empty(max_length, d_model).normal_(std=0.02))", "torch.empty(max_length, d_model).normal_(std=0.02)",
                "The weight is a plain tensor: no optimiser would find it, no checkpoint would hold it, `.to(device)` would leave it behind. "
                "Wrap it: `nn.Parameter(…)`."),
        mistake("not_refused", "if max_length < T:", "if False:",
                "A sequence longer than max_length is not refused with a ValueError. With one position it even passes in silence, because one row "
                "broadcasts to any length. Check, and say both numbers."),
        mistake("refused_too_early", "max_length < T", "max_length <= T",
                "A sequence of exactly max_length is refused: it has the positions 0 … max_length - 1, and all of them exist."),
        mistake("cropped", "            raise ValueError(f\"there are {max_length} positions; got a sequence of length {T}\")",
                "            x = x[..., :max_length, :]",
                "Where the sequence is too long, you cut it short in silence. Whoever called you would never know: raise a ValueError."),
        mistake("wrapped_around", "if max_length < T:", "if False:",
                "Where the sequence is too long, your positions start again at 0, so two tokens get the same one in silence. Raise a ValueError.",
                also=[("self.weight[:T]", "self.weight[torch.arange(T) % max_length]")]),
    ],
    hints=[
        "How many rows does the weight have, and how many of them does a sequence of length T need?",
        "In `__init__`: an `nn.Parameter` of shape (max_length, d_model). In `forward`: a ValueError where there are too few rows, else add the "
        "first T. Does (T, D) broadcast over a batch?",
        "`return x + self.weight[: x.shape[-2]]`, after the check.",
    ],
)  # fmt: skip


ANGLE_MISTAKES = [
    mistake("exponent_i", "torch.arange(0, d_k, 2, dtype", "torch.arange(d_k // 2, dtype", EXPONENT_I.replace("D", "K"), at="rope_angles"),
    mistake("base_ignored", "base**-exponents", "10000.0**-exponents",
            "`base` makes no difference to what you return. Models for long texts use another one (Llama 3: 500 000), so pass it on.",
            at="rope_angles"),
    mistake("exponent_positive", "base**-exponents", "base**exponents",
            "Your frequencies grow from pair to pair; they should fall, from 1 to nearly 1 / base. The exponent is negative: base^(-2i / K).",
            at="rope_angles"),
    mistake("offset_ignored", "positions[..., None]", "torch.arange(positions.shape[-1]).expand(positions.shape)[..., None]",
            "You count 0, 1, 2, … yourself and ignore the positions that are given. With a cache of earlier keys the next token stands at position "
            "57, not 0, and has to be turned by that.",
            at="rope_angles"),
    mistake("spread_to_the_end", "/ d_k  #", "/ max(d_k - 2, 1)  #", SPREAD_TO_THE_END.replace("D", "K"), at="rope_angles"),
    mistake("counted_from_one", "positions[..., None]", "(positions + 1)[..., None]",
            "You turn position 0 already by one step. Position t is turned by t · frequency, so position 0 not at all.", at="rope_angles"),
]  # fmt: skip


def rope_angles_cases(draw):
    yield case("five positions", positions=torch.arange(5), d_k=8)
    yield case("one position", positions=torch.tensor([3]), d_k=6)
    yield case("one pair", positions=torch.arange(3), d_k=2)
    yield case("as many positions as pairs", positions=torch.tensor([2, 0, 5]), d_k=6)
    yield case("positions with gaps", part="positions", positions=draw.integers(1, 50, 4), d_k=6)
    yield case("far away", part="positions", positions=torch.tensor([100_003]), d_k=10)
    yield case("positions of a batch", part="positions", positions=draw.integers(0, 50, 2, 3), d_k=4)
    yield case("base 100", part="base", positions=torch.arange(1, 4), d_k=6, base=100.0)
    yield case("base 500 000", part="base", positions=torch.arange(4), d_k=10, base=500_000.0)
    yield case("an odd width", part="odd width", raises="ValueError", positions=torch.arange(3), d_k=5)


rope_angles = Exercise(
    reference=positions.rope_angles,
    purpose="A clock with K/2 hands for every position: the first one quick, the last one slow.",
    minutes=10,
    difficulty=2,
    cases=rope_angles_cases,
    parts={"values": 1, "positions": 1, "base": 1, "odd width": 1},
    mistakes=[
        *ANGLE_MISTAKES,
        mistake("float32", "2, dtype=torch.float64", "2, dtype=torch.float32",
                "Your angles are float32, which has 7 digits: at position 100 000 the angle is off by thousandths of a radian (in half precision "
                "neighbouring positions fall together from 2048 on). Start from float64: `torch.arange(…, dtype=torch.float64)`."),
        mistake("one_for_each_dimension", "positions[..., None] * base**-exponents", "(positions[..., None] * base**-exponents).repeat_interleave(2, -1)",
                "You return an angle for each *dimension*, (T, K). Two dimensions share one: return each pair's angle once, (T, K/2)."),
        mistake("one_for_each_dimension_in_halves", "positions[..., None] * base**-exponents", "torch.cat([positions[..., None] * base**-exponents] * 2, -1)",
                "You return an angle for each *dimension*, (T, K). Two dimensions share one: return each pair's angle once, (T, K/2)."),
        mistake("transposed", "return positions[..., None] * base**-exponents", "return (positions[..., None] * base**-exponents).mT",
                "Your angles have the shape (K/2, T): the positions come first, (T, K/2)."),
        mistake("odd_width_not_refused", "if d_k % 2:", "if False:",
                "An odd width is not refused. RoPE turns *pairs* of dimensions: raise a ValueError where one is left over."),
    ],
    hints=[
        "It is the table of angles of the sinusoidal encoding, before the sine. What is different? (Which positions, which base, which dtype?)",
        "A column of positions times a row of frequencies; where the positions have a batch axis, only the last axis becomes a column: "
        "`positions[..., None]`.",
        "`positions[..., None] * base ** (-torch.arange(0, d_k, 2, dtype=torch.float64) / d_k)`, and a ValueError before it.",
    ],
)  # fmt: skip


def apply_rope_cases(draw):
    yield case("interleaved", part="interleaved", x=draw.normal(5, 6), positions=torch.arange(5))
    yield case("interleaved, a batch of heads", part="interleaved", x=draw.normal(2, 3, 4, 8), positions=torch.arange(4))
    yield case("interleaved, as many heads as positions", part="interleaved", x=draw.normal(2, 3, 3, 4), positions=torch.arange(3))
    yield case("one position", part="interleaved", x=draw.normal(2, 1, 6), positions=torch.tensor([7]))
    yield case("half precision", part="interleaved", x=draw.normal(2, 4, dtype=HALF), positions=torch.tensor([3, 11]))
    yield case("halves", part="halves", x=draw.normal(5, 6), positions=torch.arange(5), base=10000.0, style="halves")
    yield case(
        "halves, a batch of heads", part="halves", x=draw.normal(2, 3, 4, 8), positions=torch.arange(4), base=10000.0, style="halves"
    )
    yield case("after a cache", part="positions", x=draw.normal(2, 3, 4), positions=torch.tensor([57, 58, 59]))
    yield case("positions of a batch", part="positions", x=draw.normal(2, 3, 4, 6), positions=draw.integers(0, 30, 2, 1, 4))
    yield case("base 100", part="positions", x=draw.normal(4, 6), positions=torch.arange(4), base=100.0)
    yield case("transposed in memory", part="positions", x=draw.normal(6, 4).T, positions=torch.arange(4), base=50.0, style="halves")


def turned_as(first, second):
    """A patch of apply_rope's return: other pairs of dimensions together, in one of the styles."""
    return f"return {first} if halves else {second}"


CAT, STACK = "torch.cat(turned, dim=-1)", "torch.stack(turned, dim=-1).flatten(-2)"
ROTATE_HALF = "x * cos.repeat_interleave(2, -1) + torch.cat((-x.chunk(2, -1)[1], x.chunk(2, -1)[0]), -1) * sin.repeat_interleave(2, -1)"
ROTATE_NEIGHBOURS = "x * torch.cat((cos, cos), -1) + torch.stack((-x[..., 1::2], x[..., 0::2]), -1).flatten(-2) * torch.cat((sin, sin), -1)"

apply_rope = Exercise(
    reference=positions.apply_rope,
    purpose="Turn queries and keys by their positions, so that a score knows how far apart the two are, and nothing else.",
    minutes=25,
    difficulty=3,
    cases=apply_rope_cases,
    parts={"interleaved": 2, "halves": 2, "positions": 1, "gradient": 1},
    mistakes=[
        *ANGLE_MISTAKES,
        mistake("halves_for_interleaved", 'halves = style == "halves"', "halves = True",
                "You always pair dimension i with i + K/2 (halves). All lengths are right and every score between two such vectors makes sense, "
                "which is why nobody notices, until weights come along that were trained with the other pairing: interleaved is 2i with 2i + 1."),
        mistake("interleaved_for_halves", 'halves = style == "halves"', "halves = False",
                'You always pair neighbours, 2i with 2i + 1. With style="halves" pair i is made of the dimensions i and i + K/2.'),
        mistake("styles_swapped", 'style == "halves"', 'style != "halves"',
                "The two pairings are swapped: interleaved pairs neighbours (2i, 2i + 1), halves pairs i with i + K/2."),
        mistake("mixed_pairings", turned_as(CAT, STACK), turned_as(CAT, f"({ROTATE_HALF})"),
                "Your interleaved style mixes the two pairings: the angles are laid out for neighbours (0, 0, 1, 1, …), while the partner of a "
                "dimension is taken from the other half. A pair is then turned by two different angles, and the length of the vector changes."),
        mistake("mixed_pairings_in_halves", turned_as(CAT, STACK), turned_as(f"({ROTATE_NEIGHBOURS})", STACK),
                "Your halves style mixes the two pairings: the angles are laid out for halves (0, 1, …, 0, 1, …), while the partner of a dimension is "
                "its neighbour. A pair is then turned by two different angles, and the length of the vector changes."),
        mistake("not_put_back", turned_as(CAT, STACK), turned_as(CAT, CAT),
                "You take the pairs from neighbouring places and put them back as two halves, so the dimensions of the result are in another order. "
                "Each goes back to the place it came from: `torch.stack(…, dim=-1).flatten(-2)`."),
        mistake("clockwise", "a * cos - b * sin, a * sin + b * cos", "a * cos + b * sin, b * cos - a * sin",
                "You turn the other way round. A pair (a, b) becomes (a cos - b sin, a sin + b cos): (1, 0) at angle θ is (cos θ, sin θ)."),
        mistake("sign_flipped", "a * cos - b * sin", "a * cos + b * sin",
                "One sign is wrong: with a plus in both places it is not a rotation, and the length of the vector changes. "
                "The first of a pair is a cos - b sin."),
        mistake("mirrored", "a * sin + b * cos", "a * sin - b * cos",
                "The second of a pair has a wrong sign. (a cos - b sin, a sin - b cos) is no rotation: at position 0, where nothing should be "
                "turned, it already changes b into -b."),
        mistake("sine_and_cosine_swapped", "cos, sin = angles", "sin, cos = angles",
                "Sine and cosine are swapped. At position 0 the angle is 0, its cosine 1, and nothing may change."),
        mistake("along_another_axis", "base)  #", "base).unsqueeze(-2)  #",
                "The position is counted along the wrong axis (the heads, or the batch). Positions run along the second axis from the end, in the "
                "layout (…, T, K), so angles of shape (T, K/2) broadcast as they are."),
        mistake("changed_in_place", turned_as(CAT, STACK), f"return x.copy_({CAT} if halves else {STACK})",
                "You write the result into the caller's own tensor, who still needs it, and autograd forbids it on a leaf. Make a new tensor."),
        mistake("one_angle_for_all_pairs", "base)  #", "base)[..., :1]  #",
                "All your pairs turn at the same speed, that of the first. Then a score repeats after 6.28 positions. Pair i has the angle i."),
    ],
    hints=[
        "One pair, one position: (a, b) turned by the angle θ is (a cos θ - b sin θ, a sin θ + b cos θ). Which slices of x are all the a, and which "
        "all the b, in either style?",
        "Interleaved: a is `x[..., 0::2]`, b is `x[..., 1::2]`. Halves: `x.chunk(2, dim=-1)`. The cosines and sines have the shape (…, T, K/2), as a "
        "and b have, and the dtype of x.",
        "Put the two results back where they came from: `torch.stack([…, …], dim=-1).flatten(-2)` interleaves, `torch.cat([…, …], dim=-1)` does not.",
    ],
)  # fmt: skip


def permute_qk_cases(draw):
    yield case("two heads", weight=draw.normal(12, 12), n_heads=2)
    yield case("one head", weight=draw.normal(8, 8), n_heads=1)
    yield case("heads of one pair", weight=draw.normal(6, 6), n_heads=3)
    yield case("four heads", weight=draw.normal(24, 24, dtype=SINGLE), n_heads=4)
    yield case("fewer key heads: not square", part="shape", weight=draw.normal(12, 20), n_heads=2)
    yield case("transposed in memory", part="shape", weight=draw.normal(10, 16).T, n_heads=2)


permute_qk = Exercise(
    reference=positions.permute_qk,
    purpose="Load a model that was trained with one pairing into code that uses the other.",
    minutes=15,
    difficulty=3,
    cases=permute_qk_cases,
    parts={"values": 2, "shape": 1, "gradient": 1},
    mistakes=[
        mistake("from_halves_to_interleaved", "(n_heads, -1, 2)", "(n_heads, 2, -1)",
                "You go the other way, from halves to interleaved: rows i and i + K/2 move together. Here rows 2i and 2i + 1 move apart, "
                "to i and i + K/2."),
        mistake("heads_ignored", "(n_heads, -1, 2)", "(1, -1, 2)",
                "You sort the rows of the whole matrix, across the heads. Each head has its own K rows, and its pairs stay in it."),
        mistake("columns", "weight.unflatten(0, (n_heads, -1, 2))", "weight.T.unflatten(0, (n_heads, -1, 2))",
                "You reorder the columns. A weight is (out, in): what it makes, the query's dimensions, are its *rows*.",
                also=[("pairs.transpose(1, 2).flatten(0, 2)", "pairs.transpose(1, 2).flatten(0, 2).T")]),
        mistake("nothing_moved", "pairs.transpose(1, 2)", "pairs",
                "The rows come back in the order in which they were. `view` or `reshape` alone moves nothing, it only counts the same rows another "
                "way: swap the axis of the pairs with the axis of the two in a pair, by `transpose`, before you flatten."),
        mistake("heads_moved", "pairs.transpose(1, 2)", "pairs.transpose(0, 2)",
                "You swap the heads with the two of a pair, so rows leave their head. The axes to swap are the pairs' and the two's."),
    ],
    hints=[
        "Write down the new order of the rows 0 … 5 of one head with K = 6. Which two axes does one swap to get it?",
        "Give the rows three axes: head, pair, which of the two. In halves the order is: head, which of the two, pair.",
        "`weight.view(n_heads, K // 2, 2, D)`, then `.transpose(1, 2)`, then back to (H · K, D) with `reshape`.",
    ],
)  # fmt: skip


def rotary_inputs(draw, B, T, H, K, dtype=torch.float64, base=10000.0):
    D = H * K
    weights = {name: draw.normal(D, D, scale=D**-0.5, dtype=dtype) for name in ("W_Q", "W_K", "W_V", "W_O")}
    return {"build": {"d_model": D, "n_heads": H, "base": base}, "weights": weights, "x": draw.normal(B, T, D, dtype=dtype)}


def rotary_attention_cases(draw):
    yield case("a batch", **rotary_inputs(draw, 2, 5, 3, 4))
    yield case("one token", **rotary_inputs(draw, 3, 1, 2, 4))
    yield case("float32", **rotary_inputs(draw, 1, 4, 2, 6, dtype=SINGLE))
    yield case("positions with gaps", part="positions", **rotary_inputs(draw, 2, 4, 3, 2), positions=torch.tensor([3, 4, 9, 20]))
    yield case("base 20", part="positions", **rotary_inputs(draw, 2, 5, 2, 4, base=20.0))
    yield case(
        "a causal mask",
        part="mask",
        **rotary_inputs(draw, 2, 5, 3, 4),
        positions=None,
        mask=attention.causal_mask(5),
        options={"leak": True},
    )
    padding = attention.padding_mask(torch.tensor([4, 2, 3]), 4)
    yield case("padding, as many heads as sequences", part="mask", **rotary_inputs(draw, 3, 4, 3, 2), positions=None, mask=padding)


ROTATED = "q, k = apply_rope(q, positions, self.base), apply_rope(k, positions, self.base)"

RotaryAttention = Exercise(
    reference=positions.RotaryAttention,
    purpose="Everything together: an attention layer that knows its positions, as in Llama.",
    minutes=20,
    difficulty=3,
    cases=rotary_attention_cases,
    parts={"values": 2, "positions": 1, "mask": 1, "gradient": 1},
    probe="build_load_call",
    options={"returns": ["output", "weights"]},
    mistakes=[
        mistake("rope_on_values", ROTATED, ROTATED + "\n        v = apply_rope(v, positions, self.base)",
                "You turn the values too. The positions are to decide *where to look*; what is passed on should not depend on where it came from. "
                "Only queries and keys are turned."),
        mistake("rope_before_split", "(split_heads(W(x), self.n_heads) for W in (self.W_Q, self.W_K, self.W_V))",
                "(split_heads(each, self.n_heads) for each in (apply_rope(self.W_Q(x), positions, self.base), "
                "apply_rope(self.W_K(x), positions, self.base), self.W_V(x)))",
                "You turn before the heads are split. The frequencies are then spread over all D dimensions, so that the first head gets the quick "
                "ones and the last the slow ones only. Split first: every head has all frequencies of its own.",
                also=[(ROTATED, "pass")]),
        mistake("sign_flipped_on_keys", "apply_rope(k, positions, self.base)", "apply_rope(k, -positions, self.base)",
                "Queries and keys are turned in opposite directions, so a score depends on m + n in place of m - n: on where the two are, and not on "
                "how far apart. Turn both the same way."),
        mistake("keys_not_turned", ROTATED, "q = apply_rope(q, positions, self.base)",
                "Only the queries are turned, so a score depends on where the query stands and not on where the key does. Turn both."),
        mistake("queries_not_turned", ROTATED, "k = apply_rope(k, positions, self.base)",
                "Only the keys are turned, so a score depends on where the key stands and not on where the query does. Turn both."),
        mistake("not_turned", ROTATED, "pass",
                "Nothing is turned: this is plain attention, which knows no order. Apply RoPE to the queries and the keys."),
        mistake("mixed_pairings", "apply_rope(k, positions, self.base)", 'apply_rope(k, positions, self.base, "halves")',
                "Queries and keys are turned in different pairings: their dot product then adds up products of dimensions that were turned by "
                "different angles. Use the interleaved one for both."),
        mistake("halves_for_interleaved", ROTATED, 'q, k = apply_rope(q, positions, self.base, "halves"), apply_rope(k, positions, self.base, "halves")',
                "You turn in halves, both queries and keys. It would train just as well, but weights that were trained with the interleaved pairing, "
                "which is asked for here, would not work in it (without `permute_qk`)."),
        mistake("offset_ignored", "if positions is None:", "if True:",
                "The positions that are given make no difference. A constant added to all of them may not matter, but gaps between them do: pass "
                "them on, and count yourself only where they are None."),
        mistake("base_ignored", "self.n_heads, self.base = n_heads, base", "self.n_heads, self.base = n_heads, 10000.0",
                "`base` makes no difference: keep it in `__init__`, and pass it on to apply_rope."),
        mistake("mask_not_passed_on", "v, mask if mask is None else mask.unsqueeze(-3))", "v)", "The mask does not reach your attention: pass it on."),
        mistake("mask_without_heads", "mask if mask is None else mask.unsqueeze(-3)", "mask",
                "The mask has no axis for the heads, so its batch axis is lined up with them: an error if you are lucky, and silently wrong if B = H. "
                "Give it one: `mask.unsqueeze(-3)`."),
        mistake("no_output_projection", "self.W_O(merge_heads(heads))", "merge_heads(heads)",
                "The heads are put side by side, but not mixed: W_O is missing at the end."),
        mistake("output_alone", "return self.W_O(merge_heads(heads)), weights", "return self.W_O(merge_heads(heads))",
                "You return the output alone. Return the weights too: `return output, weights`."),
        mistake("with_bias", "self.W_Q = nn.Linear(d_model, d_model, bias=False)", "self.W_Q = nn.Linear(d_model, d_model)",
                "Your projections have a bias. Here they have none: nn.Linear(…, bias=False).",
                also=[(f"self.{name} = nn.Linear(d_model, d_model, bias=False)", f"self.{name} = nn.Linear(d_model, d_model)")
                      for name in ("W_K", "W_V", "W_O")]),
    ],
    hints=[
        "It is multi-head attention with one line more. Where does it go, and to which of q, k and v?",
        "Project, split into heads, turn q and k, attend (the mask gets an axis for the heads), merge the heads, W_O.",
        "`q, k = apply_rope(q, positions, self.base), apply_rope(k, positions, self.base)` after `split_heads`, and before "
        "`scaled_dot_product_attention(q, k, v, mask)`.",
    ],
    forbidden=["scaled_dot_product_attention", "MultiheadAttention", "multi_head_attention_forward"],
)  # fmt: skip


def alibi_bias_cases(draw):
    yield case("eight heads", n_heads=8, T=4)
    yield case("one position", n_heads=8, T=1)
    yield case("as many positions as heads", n_heads=8, T=8)
    yield case("four heads", part="heads", n_heads=4, T=5)
    yield case("one head", part="heads", n_heads=1, T=3)
    yield case("three heads", part="heads", n_heads=3, T=4)


alibi_bias = Exercise(
    reference=positions.alibi_bias,
    purpose="The simplest way of all: the further away a key is, the lower its score.",
    minutes=10,
    difficulty=2,
    cases=alibi_bias_cases,
    parts={"values": 2, "heads": 1},
    mistakes=[
        mistake("first_slope_one", "torch.arange(1, n_heads + 1)", "torch.arange(n_heads)",
                "Your first slope is 1; with eight heads it is 1/2. The heads count from 1: 2^(-8 · 1 / H), …, 2^(-8)."),
        mistake("sign", "* -distances", "* distances",
                "Your bias grows with the distance, so that the furthest keys win. It is a penalty: *minus* slope times distance."),
        mistake("future_rewarded", "(positions - positions[:, None]).abs()", "positions[:, None] - positions",
                "For keys after the query your bias is positive: without a causal mask, the far future would win. Take the absolute value of the "
                "distance."),
        mistake("future_free", "(positions - positions[:, None]).abs()", "(positions[:, None] - positions).clamp(min=0)",
                "Keys after the query have a bias of 0 in yours. Under a causal mask nobody would notice, but here the distance counts to both sides."),
        mistake("future_masked", "return slopes[:, None, None] * -distances",
                'return (slopes[:, None, None] * -distances).masked_fill(positions > positions[:, None], float("-inf"))',
                "You hide the future in the bias. Masks stay apart here: this bias is the same to both sides and masks nothing."),
        mistake("slopes_for_eight_heads", "-8.0 * torch.arange(1, n_heads + 1) / n_heads", "-1.0 * torch.arange(1, n_heads + 1)",
                "Your slopes are 1/2, 1/4, 1/8, … whatever the number of heads. That is right for eight; in general they run from 2^(-8/H) to 2^(-8)."),
        mistake("one_slope", "(-8.0 * torch.arange(1, n_heads + 1) / n_heads)", "(-8.0 * torch.ones(n_heads) / n_heads)",
                "All your heads have the same slope. Each has its own, from steep (it looks nearby) to flat (it looks far): 2^(-8h / H)."),
        mistake("heads_reversed", "torch.arange(1, n_heads + 1)", "torch.arange(n_heads, 0, -1)",
                "Your slopes are in reverse order: the first head has the steepest one, 2^(-8 / H)."),
        mistake("heads_last", "return slopes[:, None, None] * -distances", "return slopes * -distances[:, :, None]",
                "The heads are your last axis. The scores have the shape (B, H, T, T), so that the bias broadcasts as (H, T, T)."),
    ],
    hints=[
        "For one head of slope 1/2 and T = 3, write the table down. What is on its diagonal?",
        "A row of slopes, made (H, 1, 1), times a table of distances (T, T). How does one get all |t - s| at once?",
        "`distances = (torch.arange(T) - torch.arange(T)[:, None]).abs()` and `slopes = 2.0 ** (-8.0 * torch.arange(1, n_heads + 1) / n_heads)`.",
    ],
)  # fmt: skip


def bucket_cases(draw):
    # Distances at which a far bucket begins exactly are left out: there the last bit of a logarithm decides.
    positions = torch.arange(9)
    yield case("all pairs of nine positions", relative_position=positions - positions[:, None])
    yield case("one distance", relative_position=torch.tensor([-3]))
    yield case("far away", part="far", relative_position=torch.tensor([9, -10, 15, -17, 31, 33, -63, 65, -100, 127, 129, -5000]))
    yield case("twelve buckets", part="far", relative_position=torch.arange(-25, 25), bidirectional=True, n_buckets=12, max_distance=20)
    yield case("one direction", part="one direction", relative_position=torch.tensor([3, 1, 0, -1, -7, 200]), bidirectional=False)
    yield case("one direction, far away", part="one direction",
               relative_position=torch.tensor([-15, -18, -30, -31, -50, -90, -127, -500, 40]), bidirectional=False)  # fmt: skip
    yield case("one direction, ten buckets", part="one direction",
               relative_position=torch.arange(-45, 3), bidirectional=False, n_buckets=10, max_distance=40)  # fmt: skip


relative_position_bucket = Exercise(
    reference=positions.relative_position_bucket,
    purpose="Let the model learn a bias for each distance, with a few numbers for all the distances there are.",
    minutes=25,
    difficulty=4,
    cases=bucket_cases,
    parts={"values": 1, "far": 1, "one direction": 1},
    mistakes=[
        mistake("direction_flipped", "n * (relative_position > 0)", "n * (relative_position < 0)",
                "The two directions are swapped: keys *after* the query (position of the key minus position of the query > 0) are in the upper half "
                "of the buckets."),
        mistake("zero_in_the_upper_half", "(relative_position > 0)", "(relative_position >= 0)",
                "A query's own position is in your upper half. Distance 0 is bucket 0; only keys strictly after the query are in the upper half."),
        mistake("direction_ignored", " + n * (relative_position > 0)", "",
                "Keys before and after the query share your buckets. Bidirectional, those after it are in the upper half: add n to their bucket."),
        mistake("buckets_not_halved", "n_buckets // 2 if bidirectional else n_buckets", "n_buckets",
                "You give each direction all n_buckets. Bidirectional, the two directions share them: n = n_buckets // 2 for each."),
        mistake("bidirectional_ignored", "    n = n_buckets // 2", "    bidirectional = True\n    n = n_buckets // 2",
                "`bidirectional=False` makes no difference to what you return. It gives all n_buckets to the keys before the query."),
        mistake("future_for_past", "(-relative_position).clamp(min=0)", "relative_position.clamp(min=0)",
                "With bidirectional=False you tell apart the keys after the query, and put all those before it into bucket 0. It is the other way round: a "
                "decoder looks back."),
        mistake("future_not_clamped", "(-relative_position).clamp(min=0)", "relative_position.abs()",
                "With bidirectional=False a key after the query is put where one before it would be. It belongs in bucket 0, whatever its distance."),
        mistake("no_logarithm", "exact = n // 2", "exact = n - 1",
                "All your buckets hold one distance, up to the last. Only the first half of them does; the others grow with the logarithm."),
        mistake("exact_not_added", "(exact + (growth * (n - exact)).long())", "(growth * (n - exact)).long()",
                "The far buckets start again at 0 in yours, and share their numbers with the near ones. They come after them: add n // 2."),
        mistake("rounded", "(growth * (n - exact)).long()", "(growth * (n - exact)).round().long()",
                "You round to the nearest bucket. A bucket begins where the logarithm reaches it: cut the fraction off (`.long()`)."),
        mistake("not_clamped", ".clamp(max=n - 1)", "",
                "Beyond max_distance your buckets go on, past the last one (and into those of the other direction). All that is further is in the last: "
                "`.clamp(max=n - 1)`."),
        mistake("linear", ".log() / math.log(max_distance / exact)", ".sub(1) / (max_distance / exact - 1)",
                "The far buckets are all equally wide in yours. They grow with the *logarithm* of the distance: those far away are coarser."),
        mistake("scaled_by_max_distance", "math.log(max_distance / exact)", "math.log(max_distance)",
                "You divide by log(max_distance). The logarithm starts at the first far distance, n/2, so it is log(max_distance / (n/2)): it reaches 1 "
                "at max_distance."),
        mistake("max_distance_ignored", "math.log(max_distance / exact)", "math.log(128 / exact)",
                "`max_distance` makes no difference to what you return: it is where the last bucket ends."),
        mistake("near_missing", "torch.where(distance < exact, distance, far)", "far",
                "Near distances have no buckets of their own in yours: below n/2 the bucket *is* the distance."),
    ],
    hints=[
        "Take 8 buckets for one direction and max_distance 32: distances 0, 1, 2, 3 have one each. At which distances do the other four begin, if "
        "each is twice, or some other fixed factor, as far as the one before?",
        "Three steps: a distance ≥ 0 and a number n of buckets, by direction; the near bucket (the distance) or the far one, by `torch.where`; n added "
        "for keys after the query, if bidirectional.",
        "Far: n/2 + the whole part of log(distance / (n/2)) / log(max_distance / (n/2)) · (n - n/2), at most n - 1. `clamp(min=1)` the distance first, "
        "so that log(0) never happens.",
    ],
    forbidden=["_relative_position_bucket"],
)  # fmt: skip

MODULE = Module(
    "positions", "Positions", hours=3, difficulty=3, needs="modules 01 (attention) and 02 (multi-head attention)",
    exercises=[
        sinusoidal_encoding, embed, LearnedPositions, rope_angles, apply_rope, permute_qk, RotaryAttention, alibi_bias,
        relative_position_bucket,
    ],
)  # fmt: skip
