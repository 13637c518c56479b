"""Module 04: norms, the feed-forward network, dropout, and the block that a transformer is a stack of."""

import torch

from autograder.exercise import Exercise, Module, case, mistake
from solutions import attention, block

SINGLE = torch.float32

KEEPDIM = "Keep the axis (`keepdim=True`), so that each token meets its own statistic again."


def norm_inputs(draw, *shape, names=("weight", "bias"), x=None, dtype=torch.float64, **settings):
    weights = {name: draw.normal(shape[-1], dtype=dtype) + (name == "weight") for name in names}
    return {"build": {"d_model": shape[-1], **settings}, "weights": weights, "x": draw.normal(*shape, dtype=dtype) if x is None else x}


def layer_norm_cases(draw):
    yield case("a batch", **norm_inputs(draw, 2, 3, 5))
    yield case("one vector", **norm_inputs(draw, 6))
    yield case("as it is built", build={"d_model": 4}, weights={}, x=draw.normal(3, 4))
    yield case("as many tokens as numbers in one", part="axis", **norm_inputs(draw, 4, 4))
    yield case("one token a sequence", part="axis", **norm_inputs(draw, 3, 1, 4))
    yield case("four axes", part="axis", **norm_inputs(draw, 2, 3, 4, 5))
    yield case("transposed in memory", part="axis", **norm_inputs(draw, 2, 3, 5, x=draw.normal(2, 5, 3).mT))
    yield case("inputs of a thousandth", part="eps", **norm_inputs(draw, 2, 3, 5, x=draw.normal(2, 3, 5, scale=1e-3)))
    yield case("another eps", part="eps", **norm_inputs(draw, 2, 3, 5, eps=0.25))
    yield case(
        "a token of equal numbers", part="eps", **norm_inputs(draw, 2, 4, x=torch.tensor([[3.0] * 4, [1.0, 2.0, 3.0, 4.0]]).double())
    )
    far = (draw.normal(2, 3, 8) * 64).round() / 8 + 4096  # eighths: float32 holds them exactly
    yield case(
        "float32, far from 0", part="stability", **norm_inputs(draw, 2, 3, 8, dtype=SINGLE, x=far.to(SINGLE)), options={"gradient": False}
    )


LayerNorm = Exercise(
    reference=block.LayerNorm,
    purpose="Bring each token to the same scale, however large the numbers have grown.",
    minutes=20,
    difficulty=2,
    cases=layer_norm_cases,
    parts={"values": 2, "axis": 1, "eps": 1, "stability": 1, "gradient": 1},
    probe="block:module",
    mistakes=[
        mistake("unbiased_variance", "centred.square().mean(-1, keepdim=True)", "centred.square().sum(-1, keepdim=True) / (x.shape[-1] - 1)",
                "Your variance is divided by D - 1 (torch's `var` and `std` do so unless told otherwise), and LayerNorm divides by D: [3, 1, 1, 1] "
                "becomes [1.73, -0.58, -0.58, -0.58], not [1.5, -0.5, -0.5, -0.5]. Use `unbiased=False`, or a mean of squares."),
        mistake("eps_outside_root", "(variance + self.eps).sqrt()", "(variance.sqrt() + self.eps)",
                "eps is added to the standard deviation, and it belongs to the variance, inside the root: √(variance + eps). On inputs of a "
                "thousandth the outputs are about 1 in your version, and should be about 0.3: there eps is larger than the variance."),
        mistake("no_root", "(variance + self.eps).sqrt()", "(variance + self.eps)",
                "You divide by the variance; it is its square root, the standard deviation, that has the scale of x."),
        mistake("squared_for_root", "(variance + self.eps).sqrt()", "(variance + self.eps) ** 2",
                "You square the variance, and should take its root: `** 0.5`, not `** 2`."),
        mistake("multiplied", "centred / (variance", "centred * (variance",
                "You multiply by the standard deviation: large tokens become larger still. Divide by it."),
        mistake("over_the_sequence", "centred = x - x.mean(-1, keepdim=True)", "centred = x - x.mean(max(-2, -x.dim()), keepdim=True)",
                "The mean and variance are taken over the sequence (dim=-2), so that each token's values depend on the other tokens, in a decoder on "
                "future ones: a leak that makes the loss look *better*. LayerNorm looks at one token at a time: dim=-1.",
                also=[("centred.square().mean(-1, keepdim=True)", "centred.square().mean(max(-2, -x.dim()), keepdim=True)")]),
        mistake("over_the_batch", "centred = x - x.mean(-1, keepdim=True)", "centred = x - x.mean(0, keepdim=True)",
                "The mean and variance are taken over the batch (dim=0): that is BatchNorm. LayerNorm takes them over the last axis, for each token "
                "on its own.",
                also=[("centred.square().mean(-1, keepdim=True)", "centred.square().mean(0, keepdim=True)")]),
        mistake("over_everything", "centred = x - x.mean(-1, keepdim=True)", "centred = x - x.mean()",
                "There is one mean and one variance for the whole tensor. Each token has its own: `mean(-1, keepdim=True)`.",
                also=[("centred.square().mean(-1, keepdim=True)", "centred.square().mean()")]),
        mistake("keepdim_missing", "x.mean(-1, keepdim=True)", "x.mean(-1)",
                "The mean has lost its axis, so it is lined up with the wrong one: an error for most shapes, silently wrong where there are as many "
                "tokens as numbers in one. " + KEEPDIM),
        mistake("not_centred", "x - x.mean(-1, keepdim=True)", "x",
                "The mean is not subtracted: this is an RMSNorm. LayerNorm first shifts each token to mean 0."),
        mistake("variance_of_the_uncentred", "centred.square()", "x.square()",
                "You take the mean of the squares of x itself. The variance is the mean square *around the mean*: subtract it first."),
        mistake("mean_absolute_deviation", "centred.square().mean(-1, keepdim=True)", "centred.abs().mean(-1, keepdim=True).square()",
                "You divide by the mean of the absolute values. The standard deviation is the root of the mean of the squares."),
        mistake("difference_of_large_numbers", "centred.square().mean(-1, keepdim=True)",
                "(x.square().mean(-1, keepdim=True) - x.mean(-1, keepdim=True).square())",
                "You compute the variance as E[x²] - E[x]². On paper it is the same; in float32 it is the difference of two large, nearly equal "
                "numbers when the mean is large, and few digits are left. Subtract the mean first, then square."),
        mistake("no_gain", " * self.weight", "", "The gain is missing: multiply each of the D numbers by its own `weight`."),
        mistake("no_bias", " + self.bias", "", "The bias is missing: add `bias` at the end."),
        mistake("bias_before_gain", "centred / (variance + self.eps).sqrt() * self.weight + self.bias",
                "(centred / (variance + self.eps).sqrt() + self.bias) * self.weight",
                "You add the bias before you multiply by the gain. Gain first, bias last: x̂ · weight + bias."),
        mistake("gain_starts_at_0", "torch.ones(d_model)", "torch.zeros(d_model)",
                "The gains are 0 at the start, so that every output is 0 and nothing reaches the layers behind. They start at 1, the biases at 0."),
        mistake("bias_starts_at_1", "torch.zeros(d_model)", "torch.ones(d_model)", "The biases are 1 at the start. They start at 0, the gains at 1."),
        mistake("no_eps", "variance + self.eps", "variance",
                "eps is missing: a token of equal numbers has a variance of 0, and 0 / 0 is NaN."),
        mistake("eps_ignored", "self.eps = eps", "self.eps = 1e-5",
                "eps is always 1e-5, whatever the constructor is given. BERT uses 1e-12: keep the argument."),
        mistake("statistics_detached", "variance + self.eps", "variance.detach() + self.eps",
                "The outputs are right, the gradients are not: the variance is cut out of the graph (detach, .data, no_grad). It depends on x too."),
        mistake("changed_in_place", "x - x.mean(-1, keepdim=True)", "x.sub_(x.mean(-1, keepdim=True))",
                "You subtract the mean inside the caller's own tensor (`x -= …`), who still needs it: it is the residual. Write `x = x - …`."),
    ],
    hints=[
        "Take [3, 1, 1, 1] and do it by hand: the mean, what is left, the mean of its squares, the root. Which axis holds the numbers of one token?",
        "In `__init__`: two nn.Parameter, `weight` of ones and `bias` of zeros. In `forward`: subtract the mean over the last axis, divide by "
        "√(variance + eps), times weight, plus bias.",
        "`centred = x - x.mean(-1, keepdim=True)`, and `variance = centred.square().mean(-1, keepdim=True)`.",
    ],
    forbidden=["LayerNorm", "layer_norm", "native_layer_norm", "GroupNorm", "group_norm", "batch_norm", "instance_norm", "RMSNorm", "rms_norm"],
)  # fmt: skip


def rms_norm_cases(draw):
    gain = ("weight",)
    yield case("a batch", **norm_inputs(draw, 2, 3, 5, names=gain))
    yield case("one vector", **norm_inputs(draw, 6, names=gain))
    yield case("as it is built", build={"d_model": 4}, weights={}, x=draw.normal(3, 4))
    yield case("float32", **norm_inputs(draw, 2, 3, 5, names=gain, dtype=SINGLE))
    yield case("as many tokens as numbers in one", part="axis", **norm_inputs(draw, 4, 4, names=gain))
    yield case("one token a sequence", part="axis", **norm_inputs(draw, 3, 1, 4, names=gain))
    yield case("four axes", part="axis", **norm_inputs(draw, 2, 3, 4, 5, names=gain))
    yield case("inputs of a thousandth", part="eps", **norm_inputs(draw, 2, 3, 5, names=gain, x=draw.normal(2, 3, 5, scale=1e-3)))
    yield case("another eps", part="eps", **norm_inputs(draw, 2, 3, 5, names=gain, eps=0.25))
    yield case(
        "a token of zeros", part="eps", **norm_inputs(draw, 2, 4, names=gain, x=torch.tensor([[0.0] * 4, [1.0, 2.0, 3.0, 4.0]]).double())
    )


RMSNorm = Exercise(
    reference=block.RMSNorm,
    purpose="Half of LayerNorm, which turns out to be enough: Llama and most models since use it.",
    minutes=10,
    difficulty=1,
    cases=rms_norm_cases,
    parts={"values": 2, "axis": 1, "eps": 1, "gradient": 1},
    probe="block:module",
    mistakes=[
        mistake("mean_subtracted", "return x / (", "return (x - x.mean(-1, keepdim=True)) / (",
                "You subtract the mean, as LayerNorm does. RMSNorm only rescales: x / √(mean(x²) + eps) · weight."),
        mistake("layer_norm", "mean_square = x.square()", "x = x - x.mean(-1, keepdim=True)\n        mean_square = x.square()",
                "This is a LayerNorm: the mean is subtracted, and the squares are taken around it. RMSNorm leaves the mean alone in both places."),
        mistake("variance_for_mean_square", "x.square().mean(-1, keepdim=True)", "x.var(-1, keepdim=True, unbiased=False)",
                "You divide by the standard deviation. RMSNorm divides by the root of the mean of x², without subtracting the mean anywhere."),
        mistake("divided_by_d_minus_1", "x.square().mean(-1, keepdim=True)", "x.square().sum(-1, keepdim=True) / (x.shape[-1] - 1)",
                "The sum of the squares is divided by D - 1. It is a plain mean, divided by D."),
        mistake("sum_for_mean", "x.square().mean(-1, keepdim=True)", "x.square().sum(-1, keepdim=True)",
                "You divide by the length of the vector (the root of the *sum* of squares), which leaves numbers of about 1/√D. It is the root of their *mean*."),
        mistake("mean_absolute", "x.square().mean(-1, keepdim=True)", "x.abs().mean(-1, keepdim=True).square()",
                "You divide by the mean of the absolute values. It is the root of the mean of the squares."),
        mistake("eps_outside_root", "(mean_square + self.eps).sqrt()", "(mean_square.sqrt() + self.eps)",
                "eps is added to the root; it belongs inside: √(mean(x²) + eps)."),
        mistake("no_root", "(mean_square + self.eps).sqrt()", "(mean_square + self.eps)", "You divide by the mean square; divide by its root."),
        mistake("squared_for_root", "(mean_square + self.eps).sqrt()", "(mean_square + self.eps) ** 2",
                "You square the mean square, and should take its root: `** 0.5`, not `** 2`."),
        mistake("multiplied", "x / (mean_square", "x * (mean_square", "You multiply by the root mean square. Divide by it."),
        mistake("over_the_sequence", "x.square().mean(-1, keepdim=True)", "x.square().mean(max(-2, -x.dim()), keepdim=True)",
                "The mean square is taken over the sequence (dim=-2), so that each token depends on the others, in a decoder on future ones. It is "
                "taken over the numbers of one token: dim=-1."),
        mistake("over_everything", "x.square().mean(-1, keepdim=True)", "x.square().mean()",
                "There is one mean square for the whole tensor. Each token has its own: `mean(-1, keepdim=True)`."),
        mistake("keepdim_missing", "x.square().mean(-1, keepdim=True)", "x.square().mean(-1)",
                "The mean square has lost its axis, so it is lined up with the wrong one. " + KEEPDIM),
        mistake("no_gain", " * self.weight", "", "The gain is missing: multiply each of the D numbers by its own `weight`."),
        mistake("gain_starts_at_0", "torch.ones(d_model)", "torch.zeros(d_model)",
                "The gains are 0 at the start, so that every output is 0. They start at 1. (Gemma stores weight - 1 and adds the 1; here it is weight itself.)"),
        mistake("no_eps", "mean_square + self.eps", "mean_square", "eps is missing: a token of zeros gives 0 / 0, which is NaN."),
        mistake("eps_ignored", "self.eps = eps", "self.eps = 1e-6", "eps is always 1e-6, whatever the constructor is given. SmolLM2 uses 1e-5: keep the argument."),
        mistake("statistics_detached", "mean_square + self.eps", "mean_square.detach() + self.eps",
                "The outputs are right, the gradients are not: the mean square is cut out of the graph (detach, .data, no_grad). It depends on x too."),
        mistake("with_bias", "torch.ones(d_model))", "torch.ones(d_model))\n        self.bias = nn.Parameter(torch.zeros(d_model))",
                "Your RMSNorm has a bias. It has a gain alone.", also=[(" * self.weight", " * self.weight + self.bias")]),
        mistake("changed_in_place", "return x / (", "return x.div_((", also=[(".sqrt() * self.weight", ".sqrt()) * self.weight")],
                why="You divide inside the caller's own tensor (`x /= …`), who still needs it: it is the residual. Write `x = x / …`."),
    ],
    hints=[
        "R, M, S, from the back: square, mean, root. Over which axis? What do you divide by it?",
        "It is your LayerNorm without the subtraction and without the bias: one parameter, `weight`, and x over the root of (mean of squares + eps).",
        "`mean_square = x.square().mean(-1, keepdim=True)`; then x over the root of (mean_square + eps), times weight.",
    ],
    forbidden=["RMSNorm", "rms_norm", "LayerNorm", "layer_norm", "normalize"],
)  # fmt: skip


def gelu_cases(draw):
    yield case("seven numbers", x=torch.tensor([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0]).double())
    yield case("a batch", x=draw.normal(2, 3, 5))
    yield case("float32", x=draw.normal(3, 5, dtype=SINGLE))
    yield case("exact, by name", x=draw.normal(4, 3), approximate="none")
    yield case("far from 0", part="far from 0", x=torch.tensor([-40.0, -9.0, 9.0, 40.0]).double())
    yield case("far from 0, tanh", part="far from 0", x=torch.tensor([-40.0, -9.0, 9.0, 40.0]).double(), approximate="tanh")
    yield case("tanh", part="tanh", x=torch.tensor([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0]).double(), approximate="tanh")
    yield case("a batch, tanh", part="tanh", x=draw.normal(2, 5), approximate="tanh")
    yield case("float32, tanh", part="tanh", x=draw.normal(2, 5, dtype=SINGLE), approximate="tanh")


gelu = Exercise(
    reference=block.gelu,
    purpose="The bend between two linear layers, without which they would be one linear layer.",
    minutes=10,
    difficulty=1,
    cases=gelu_cases,
    parts={"values": 1, "far from 0": 1, "tanh": 1, "gradient": 1},
    mistakes=[
        mistake("tanh_for_exact", 'approximate == "tanh"', "True",
                "You return the tanh approximation also where the exact GELU is asked for. They differ by up to 5e-4: enough to tell a checkpoint that "
                "was trained with the other one. The exact one is x/2 · (1 + erf(x/√2))."),
        mistake("exact_for_tanh", 'approximate == "tanh"', "False",
                'You return the exact GELU also with approximate="tanh". GPT-2 was trained with the approximation, and they differ by up to 5e-4.'),
        mistake("the_other_way_round", 'approximate == "tanh"', 'approximate != "tanh"',
                'The two versions are exchanged: approximate="tanh" is the one with tanh, "none" the exact one with erf.'),
        mistake("relu", "return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))", "return x.clamp(min=0)",
                "This is a ReLU. GELU is smooth: x times the probability that a standard normal number is below x."),
        mistake("silu", "return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))", "return x * torch.sigmoid(x)",
                "This is SiLU (swish), x · sigmoid(x). GELU has the normal distribution function in place of the sigmoid: x/2 · (1 + erf(x/√2))."),
        mistake("sigmoid_approximation", "return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))", "return x * torch.sigmoid(1.702 * x)",
                "x · sigmoid(1.702 x) is an approximation that is off by up to 0.02. The exact one is x/2 · (1 + erf(x/√2))."),
        mistake("no_root_of_2", "x / math.sqrt(2)", "x",
                "The √2 inside erf is missing. erf belongs to a normal distribution of variance 1/2: Φ(x) = (1 + erf(x/√2)) / 2."),
        mistake("twice_as_large", "return 0.5 * x * (1 + torch.erf", "return x * (1 + torch.erf",
                "The half is missing: 1 + erf runs from 0 to 2, and a probability from 0 to 1."),
        mistake("probability_alone", "return 0.5 * x * (1 + torch.erf", "return 0.5 * (1 + torch.erf",
                "This is the probability Φ(x) alone. GELU multiplies it by x."),
        mistake("no_one_added", "(1 + torch.erf(x / math.sqrt(2)))", "torch.erf(x / math.sqrt(2))",
                "The 1 is missing: erf runs from -1 to 1, so (1 + erf) / 2 is the probability, from 0 to 1."),
        mistake("tanh_no_root", "math.sqrt(2 / math.pi)", "(2 / math.pi)", "In the approximation it is √(2/π), 0.798; you have 2/π, 0.637."),
        mistake("tanh_square", "x**3", "x**2", "In the approximation it is x *cubed*: an odd power, or negative numbers would bend the wrong way."),
        mistake("tanh_no_cube", " + 0.044715 * x**3", "", "The cubic term of the approximation is missing: x + 0.044715 x³."),
        mistake("tanh_cube_outside", "math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)", "math.sqrt(2 / math.pi) * x + 0.044715 * x**3",
                "In the approximation √(2/π) multiplies both terms: √(2/π) · (x + 0.044715 x³)."),
        mistake("tanh_other_constant", "0.044715 * x", "0.0044715 * x", "The constant of the approximation is 0.044715; yours is a tenth of it."),
        mistake("changed_in_place", "return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))", "return (1 + torch.erf(x / math.sqrt(2))) * x.mul_(0.5)",
                "You change the caller's tensor (an operation that ends in `_`, `*=`, or an assignment to x[…]). Make a new one."),
    ],
    hints=[
        "Φ(x) is the probability that a standard normal number is smaller than x. What is it far to the left, at 0, far to the right?",
        "Φ(x) = (1 + erf(x / √2)) / 2, with `torch.erf`. The other version is written out in the docstring.",
        "`return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))`, and before it an `if approximate == \"tanh\"`.",
    ],
    forbidden=["gelu", "GELU", "QuickGELU"],
)  # fmt: skip


def feed_forward_weights(draw, D, F, prefix="", dtype=torch.float64):
    return {
        f"{prefix}W_1.weight": draw.normal(F, D, dtype=dtype), f"{prefix}W_1.bias": draw.normal(F, dtype=dtype),
        f"{prefix}W_2.weight": draw.normal(D, F, dtype=dtype), f"{prefix}W_2.bias": draw.normal(D, dtype=dtype),
    }  # fmt: skip


def feed_forward_inputs(draw, *shape, F, dtype=torch.float64, **settings):
    build = {"d_model": shape[-1], **settings}
    return {"build": build, "weights": feed_forward_weights(draw, shape[-1], F, dtype=dtype), "x": draw.normal(*shape, dtype=dtype)}


def feed_forward_cases(draw):
    yield case("a batch", **feed_forward_inputs(draw, 2, 5, 3, F=4, d_ff=4))
    yield case("one token", **feed_forward_inputs(draw, 1, 1, 4, F=6, d_ff=6))
    yield case("four axes", **feed_forward_inputs(draw, 2, 3, 4, 5, F=7, d_ff=7))
    yield case("float32", **feed_forward_inputs(draw, 2, 3, 4, F=5, d_ff=5, dtype=SINGLE))
    yield case("the usual width", part="settings", **feed_forward_inputs(draw, 2, 5, 3, F=12))
    yield case("relu", part="settings", **feed_forward_inputs(draw, 2, 5, 3, F=4, d_ff=4, activation="relu"))


FeedForward = Exercise(
    reference=block.FeedForward,
    purpose="Where each token, once it has listened to the others, is thought about: two thirds of a transformer's weights.",
    minutes=15,
    difficulty=1,
    cases=feed_forward_cases,
    parts={"values": 2, "settings": 1, "gradient": 1},
    probe="block:module",
    mistakes=[
        mistake("no_activation", "self.activation(self.W_1(x))", "self.W_1(x)",
                "There is no activation between the two layers, and two linear layers in a row are one linear layer. Put it after W_1."),
        mistake("activation_last", "self.W_2(self.activation(self.W_1(x)))", "self.activation(self.W_2(self.W_1(x)))",
                "The activation comes after W_2: the two linear layers still act as one, and the output can hardly be negative. It belongs between them."),
        mistake("activation_twice", "self.W_2(self.activation(self.W_1(x)))", "self.activation(self.W_2(self.activation(self.W_1(x))))",
                "The output of W_2 goes through the activation too. What is added to the residual stream must be free to be negative: leave it out."),
        mistake("activation_first", "self.W_1(x)", "self.W_1(self.activation(x))", "x goes through the activation before W_1 as well. It belongs between the two layers only."),
        mistake("activation_ignored", "activation or gelu", "gelu", "The activation is always gelu, whatever the constructor is given. Keep the argument."),
        mistake("relu_for_gelu", "activation or gelu", "activation or torch.relu",
                "Without an argument you use ReLU, as the 2017 transformer did. Here the default is your gelu."),
        mistake("tanh_for_exact", "activation or gelu", 'activation or (lambda z: gelu(z, "tanh"))',
                "Without an argument you use the tanh approximation. Here the default is the exact gelu."),
        mistake("d_ff_ignored", "nn.Linear(d_model, d_ff or 4 * d_model)", "nn.Linear(d_model, 4 * d_model)",
                "The width in between is always 4 D, whatever the constructor is given. Use d_ff where it is not None.",
                also=[("nn.Linear(d_ff or 4 * d_model, d_model)", "nn.Linear(4 * d_model, d_model)")]),
        mistake("not_wider", "nn.Linear(d_model, d_ff or 4 * d_model)", "nn.Linear(d_model, d_ff or d_model)",
                "Without d_ff your layer in between is as wide as a token. The default is four times as wide: 4 * d_model.",
                also=[("nn.Linear(d_ff or 4 * d_model, d_model)", "nn.Linear(d_ff or d_model, d_model)")]),
        mistake("without_bias", "nn.Linear(d_model, d_ff or 4 * d_model)", "nn.Linear(d_model, d_ff or 4 * d_model, bias=False)",
                "Your two layers have no bias. Here they have: nn.Linear's default.",
                also=[("nn.Linear(d_ff or 4 * d_model, d_model)", "nn.Linear(d_ff or 4 * d_model, d_model, bias=False)")]),
        mistake("residual_inside", "return self.W_2", "return x + self.W_2",
                "You add x already here. The residual belongs to the block, which would then add it a second time."),
    ],
    hints=[
        "Which shapes: (…, D) to (…, F) and back. What has to stand between two linear layers so that they are more than one?",
        "`self.W_1 = nn.Linear(d_model, F)` and `self.W_2 = nn.Linear(F, d_model)`, where F is d_ff, or 4 * d_model where it is None.",
        "`return self.W_2(self.activation(self.W_1(x)))`.",
    ],
    forbidden=["TransformerEncoderLayer"],
)  # fmt: skip


def swiglu_inputs(draw, *shape, F, dtype=torch.float64):
    D = shape[-1]
    weights = {"W_gate": draw.normal(F, D, dtype=dtype), "W_up": draw.normal(F, D, dtype=dtype), "W_down": draw.normal(D, F, dtype=dtype)}
    return {"build": {"d_model": D, "d_ff": F}, "weights": weights, "x": draw.normal(*shape, dtype=dtype)}


def swiglu_cases(draw):
    yield case("a batch", **swiglu_inputs(draw, 2, 5, 3, F=4))
    yield case("one token", **swiglu_inputs(draw, 1, 1, 4, F=6))
    yield case("float32", **swiglu_inputs(draw, 2, 3, 4, F=5, dtype=SINGLE))


SwiGLU = Exercise(
    reference=block.SwiGLU,
    purpose="The feed-forward network of Llama and most models since: one half decides how much of the other passes.",
    minutes=10,
    difficulty=2,
    cases=swiglu_cases,
    parts={"values": 2, "gradient": 1},
    probe="build_load_call",
    mistakes=[
        mistake("gate_and_up_swapped", "gate = self.W_gate(x)", "gate = self.W_up(x)",
                "Gate and up are swapped: the silu belongs on what W_gate makes. A model trained from scratch would not notice, a loaded one is garbage.",
                also=[("* self.W_up(x)", "* self.W_gate(x)")]),
        mistake("no_silu", "gate * torch.sigmoid(gate) * self", "gate * self", "The gate does not go through silu: this is a bilinear layer. silu(z) = z · sigmoid(z)."),
        mistake("sigmoid_alone", "gate * torch.sigmoid(gate) * self", "torch.sigmoid(gate) * self",
                "The gate goes through a sigmoid: this is the older GLU. The Swi in SwiGLU is silu(z) = z · sigmoid(z)."),
        mistake("relu_gate", "gate * torch.sigmoid(gate) * self", "gate.clamp(min=0) * self", "The gate goes through a ReLU: this is ReGLU. SwiGLU has silu(z) = z · sigmoid(z)."),
        mistake("gelu_gate", "gate * torch.sigmoid(gate) * self", "nn.functional.gelu(gate) * self",
                "The gate goes through a GELU: this is GEGLU. SwiGLU has silu(z) = z · sigmoid(z)."),
        mistake("silu_on_both", "gate * torch.sigmoid(gate) * self.W_up(x)", "nn.functional.silu(gate) * nn.functional.silu(self.W_up(x))",
                "Both halves go through silu. Only the gate does; what W_up makes is multiplied as it is."),
        mistake("silu_of_the_product", "gate * torch.sigmoid(gate) * self.W_up(x)", "nn.functional.silu(gate * self.W_up(x))",
                "You multiply first and then take the silu. It acts on the gate alone, before the product."),
        mistake("added", "gate * torch.sigmoid(gate) * self.W_up(x)", "gate * torch.sigmoid(gate) + self.W_up(x)",
                "The two halves are added. A gate multiplies: silu(W_gate x) ⊙ W_up x."),
        mistake("up_left_out", "gate * torch.sigmoid(gate) * self.W_up(x)", "gate * torch.sigmoid(gate)",
                "W_up is not used: this is an ordinary feed-forward network with silu. Multiply by what W_up makes of x."),
        mistake("with_bias", "self.W_gate = nn.Linear(d_model, d_ff, bias=False)", "self.W_gate = nn.Linear(d_model, d_ff)",
                "Your layers have a bias. Here they have none: nn.Linear(…, bias=False).",
                also=[("self.W_up = nn.Linear(d_model, d_ff, bias=False)", "self.W_up = nn.Linear(d_model, d_ff)"),
                      ("self.W_down = nn.Linear(d_ff, d_model, bias=False)", "self.W_down = nn.Linear(d_ff, d_model)")]),
    ],
    hints=[
        "Two projections of the same x, equally wide. One of them goes through silu. How do they meet?",
        "They are multiplied, number by number: silu(W_gate x) opens or closes each of the d_ff numbers of W_up x. Then W_down brings them back.",
        "`gate = self.W_gate(x)`; silu(gate) is `gate * torch.sigmoid(gate)`. Multiply by W_up x, then W_down.",
    ],
    forbidden=["SwiGLU", "glu", "GLU"],
)  # fmt: skip


def far_from_zero(draw, *shape, dtype=torch.float64):
    x = draw.normal(*shape, dtype=dtype)
    return x + x.sign()  # no number is near 0: each can be told from a dropped one


def dropout_cases(draw):
    yield case("half of a matrix", x=far_from_zero(draw, 6, 10), p=0.5)
    yield case("a quarter of a batch", x=far_from_zero(draw, 4, 3, 6), p=0.25, training=True)
    yield case("four fifths of a vector", x=far_from_zero(draw, 40), p=0.8)
    yield case("float32", x=far_from_zero(draw, 4, 6, dtype=SINGLE), p=0.5, training=True)
    yield case("nothing to drop", part="off", x=far_from_zero(draw, 4, 6), p=0.0, training=True)
    yield case("in eval mode", part="off", x=far_from_zero(draw, 4, 3, 6), p=0.25, training=False)


dropout = Exercise(
    reference=block.dropout,
    purpose="Make a network that can't rely on any one number, in training; and leave it alone afterwards.",
    minutes=15,
    difficulty=2,
    cases=dropout_cases,
    parts={"values": 2, "off": 1, "gradient": 1},
    probe="block:dropout",
    mistakes=[
        mistake("not_rescaled", " / (1 - p)", "",
                "What is kept is not made larger: with p = 0.5 everything is on average half as large in training as afterwards, and the next layer "
                "meets numbers that it was not trained on. Divide by 1 - p."),
        mistake("divided_by_p", " / (1 - p)", " / p", "You divide by p, the probability of being *dropped*. A share of 1 - p is kept, so divide by 1 - p."),
        mistake("multiplied", " / (1 - p)", " * (1 - p)", "You multiply by 1 - p in training: that makes the mean smaller still. Divide by it."),
        mistake("kept_with_p", ">= p", "< p",
                "You keep with probability p what should be dropped with probability p: the comparison is the wrong way round. (It can't be seen at p = 0.5.)"),
        mistake("p_is_kept", ">= p", "< p", "You take p for the probability of being *kept*, as the first paper did. Here, as in torch, p is the probability of being dropped.",
                also=[(" / (1 - p)", " / p")]),
        mistake("active_in_eval", "if not training or p == 0", "if p == 0", "It drops in eval mode too: there x has to come back as it is."),
        mistake("never_active", "if not training or p == 0", "if True", "Nothing is ever dropped. With training=True, each number is set to 0 with probability p."),
        mistake("training_inverted", "if not training or p == 0", "if training or p == 0", "It drops in eval mode and not in training: `training` is read the wrong way round."),
        mistake("scaled_in_eval", "        return x\n", "        return x * (1 - p)\n",
                "You scale by 1 - p in eval mode, as the first paper did. Here it is done in training, by dividing what is kept (\"inverted dropout\"): then "
                "eval mode costs nothing.",
                also=[(" / (1 - p)", "")]),
        mistake("scaled_in_both", "        return x\n", "        return x * (1 - p)\n",
                "You scale in training *and* in eval mode. Dividing in training is enough: in eval mode x comes back as it is."),
        mistake("whole_tokens", "torch.rand_like(x)", "torch.rand_like(x[..., :1])",
                "One draw decides for a whole token. Each number has a draw of its own: a random tensor of the shape of x."),
        mistake("same_for_the_batch", "torch.rand_like(x)", "torch.rand_like(x[:1])",
                "The same numbers are dropped in every sequence of the batch. Draw a random tensor of the whole shape of x."),
        mistake("all_or_nothing", "torch.rand_like(x)", "torch.rand((), dtype=x.dtype)",
                "One draw decides for the whole tensor. Each number has a draw of its own: a random tensor of the shape of x."),
        mistake("same_in_every_call", "    keep = ", "    torch.manual_seed(0)\n    keep = ",
                "Every call drops the same numbers: you set the seed inside. Then some parts of the network are never trained (and everything else that "
                "is random in the program repeats as well)."),
        mistake("gradient_cut", "x * keep", "x.detach() * keep", "The numbers are right, but no gradient reaches x: it is cut out of the graph (detach, .data, numpy)."),
        mistake("changed_in_place", "return x * keep", "x.mul_(keep)\n    return x",
                "You write into the caller's own tensor, who still needs it. Make a new one: `x * keep`."),
    ],
    hints=[
        "A coin for each number. How do you get as many random numbers as x has, and which comparison is true with probability 1 - p?",
        "`keep = torch.rand_like(x) >= p` is True with probability 1 - p. Multiply; then what makes the mean what it was?",
        "In training: `x * keep / (1 - p)`. Else: `x`.",
    ],
    forbidden=["dropout", "Dropout", "dropout_", "alpha_dropout", "feature_dropout", "native_dropout", "AlphaDropout"],
)  # fmt: skip


def block_weights(draw, D, F, dtype=torch.float64):
    attention_weights = {}
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        attention_weights |= {
            f"attention.{name}.weight": draw.normal(D, D, scale=0.7, dtype=dtype),
            f"attention.{name}.bias": draw.normal(D, dtype=dtype),
        }
    norms = {}
    for name in ("norm_1", "norm_2"):
        norms |= {f"{name}.weight": draw.normal(D, scale=0.5, dtype=dtype) + 1, f"{name}.bias": draw.normal(D, dtype=dtype)}
    return attention_weights | norms | feed_forward_weights(draw, D, F, "feed_forward.", dtype)


def block_inputs(draw, B, T, D, H, F, scale=1.0, dtype=torch.float64, **settings):
    build = {"d_model": D, "n_heads": H, **settings}
    return {"build": build, "weights": block_weights(draw, D, F, dtype), "x": draw.normal(B, T, D, scale=scale, dtype=dtype)}


def dropout_inputs(norm):
    """A block whose attention writes the sum of its two weights, each 1/2, and whose feed-forward network writes 10.

    With p = 1/2 each sub-layer writes twice as much or nothing, and each weight of the attention is doubled or dropped.
    """
    weights = {name: torch.zeros_like(weight) for name, weight in block_weights(_Zeros(), 2, 3).items()}
    weights |= {"norm_1.weight": torch.ones(2).double(), "norm_2.weight": torch.ones(2).double()}
    weights |= {"attention.W_V.bias": torch.ones(2).double(), "attention.W_O.weight": torch.eye(2).double()}
    weights |= {"feed_forward.W_2.bias": torch.full((2,), 10.0).double()}
    build = {"d_model": 2, "n_heads": 1, "d_ff": 3, "norm": norm, "dropout": 0.5}
    return {"build": build, "weights": weights, "x": torch.tensor([[[2.0, 1.0], [2.0, 1.0]]]).double()}


class _Zeros:
    def normal(self, *shape, scale=1.0, dtype=torch.float64):
        return torch.zeros(*shape, dtype=dtype)


def transformer_block_cases(draw):
    yield case("pre-norm, one token", part="pre-norm", **block_inputs(draw, 2, 1, 6, 3, 4, d_ff=4, norm="pre"), options={"gradient": False})
    yield case("pre-norm", part="pre-norm", **block_inputs(draw, 3, 5, 8, 2, 7, d_ff=7))
    yield case(
        "pre-norm, float32",
        part="pre-norm",
        **block_inputs(draw, 2, 3, 4, 2, 5, d_ff=5, norm="pre", dtype=SINGLE),
        options={"gradient": False},
    )
    yield case("post-norm", part="post-norm", **block_inputs(draw, 3, 5, 8, 2, 7, d_ff=7, norm="post"))
    yield case("post-norm, one token", part="post-norm", **block_inputs(draw, 2, 1, 6, 3, 4, d_ff=4, norm="post"))
    causal = attention.causal_mask(5)
    yield case("pre-norm, causal mask", part="mask", **block_inputs(draw, 2, 5, 4, 2, 3, d_ff=3), mask=causal, options={"leak": True})
    yield case("post-norm, padding", part="mask", **block_inputs(draw, 2, 5, 4, 2, 3, d_ff=3, norm="post"),
               mask=attention.padding_mask(torch.tensor([5, 2]), 5))  # fmt: skip
    yield case("the usual width", part="settings", **block_inputs(draw, 2, 3, 4, 2, 16))
    yield case("relu", part="settings", **block_inputs(draw, 2, 3, 4, 2, 5, d_ff=5, norm="post", dropout=0.0, activation="relu"))
    yield case(
        "another eps", part="settings", **block_inputs(draw, 2, 3, 4, 2, 5, d_ff=5, norm="pre", dropout=0.0, activation="relu", eps=0.25)
    )
    yield case("neither pre nor post", part="settings", raises="ValueError", **block_inputs(draw, 1, 2, 4, 2, 5, d_ff=5, norm="both"))
    yield case("pre-norm, dropout", part="dropout", **dropout_inputs("pre"))
    yield case("post-norm, dropout", part="dropout", **dropout_inputs("post"))


TransformerBlock = Exercise(
    reference=block.TransformerBlock,
    purpose="The part that is stacked: 12 of them are GPT-2 or BERT, 96 of them GPT-3.",
    minutes=30,
    difficulty=3,
    cases=transformer_block_cases,
    parts={"pre-norm": 2, "post-norm": 2, "mask": 1, "settings": 1, "dropout": 1, "gradient": 1},
    probe="block:block",
    mistakes=[
        mistake("post_for_pre", 'if self.norm == "pre":', "if False:",
                "With norm=\"pre\" you normalise after the addition, as for \"post\". Pre-norm normalises what *enters* a sub-layer, and leaves the stream "
                "itself alone: x + attention(norm_1(x))."),
        mistake("pre_for_post", 'if self.norm == "pre":', "if True:",
                "With norm=\"post\" you normalise what enters a sub-layer, as for \"pre\". Post-norm normalises the sum: norm_1(x + attention(x))."),
        mistake("pre_and_post_exchanged", 'if self.norm == "pre":', 'if self.norm == "post":',
                "Pre and post are exchanged: pre-norm normalises what enters a sub-layer, post-norm what comes out of the addition."),
        mistake("residual_from_the_normed", "x = x + dropout", "x = self.norm_1(x) + dropout",
                "You add to the *normed* x: something like `x = self.norm_1(x)` has replaced the stream. Then a stack of blocks has no straight path from "
                "its end to its beginning. Keep x, and give the norm's output to the sub-layer only: x + attention(norm_1(x)).",
                also=[("return x + dropout", "return self.norm_2(x) + dropout")]),
        mistake("no_residual_around_attention", "x = x + dropout", "x = dropout",
                "The residual around the attention is missing: x + attention(…). What a token was is lost, but for what attention copies.",
                also=[("self.norm_1(x + dropout", "self.norm_1(dropout")]),
        mistake("no_residual_around_feed_forward", "return x + dropout", "return dropout",
                "The residual around the feed-forward network is missing: x + feed_forward(…). What the attention has found is lost, but for what "
                "the network copies.",
                also=[("self.norm_2(x + dropout", "self.norm_2(dropout")]),
        mistake("feed_forward_from_the_input", "x = x + dropout", "before, x = x, x + dropout",
                "The feed-forward network reads the x that came into the block, beside the attention and not after it (GPT-J does that). Here it reads "
                "what the attention has written.",
                also=[("self.feed_forward(self.norm_2(x))", "self.feed_forward(self.norm_2(before))")]),
        mistake("normed_before_it_is_added", "x = self.norm_1(x + dropout", "x = x + self.norm_1(dropout",
                "In post-norm you normalise what the sub-layer gives, and add it to an x that is never normalised. Post-norm normalises the *sum*: "
                "norm_1(x + attention(x)).",
                also=[("return self.norm_2(x + dropout", "return x + self.norm_2(dropout")]),
        mistake("one_norm_used_twice", "self.feed_forward(self.norm_2(x))", "self.feed_forward(self.norm_1(x))",
                "Both sub-layers use norm_1. Each has a norm of its own, with its own gains: norm_2 belongs to the feed-forward network.",
                also=[("return self.norm_2(x", "return self.norm_1(x")]),
        mistake("one_norm_shared", "self.norm_2 = LayerNorm(d_model, eps)", "self.norm_2 = self.norm_1",
                "norm_1 and norm_2 are one and the same LayerNorm, with the same gains. Build two."),
        mistake("norms_exchanged", "self.attention(self.norm_1(x)", "self.attention(self.norm_2(x)",
                "The norms are exchanged: norm_1 belongs to the attention, norm_2 to the feed-forward network.",
                also=[("self.feed_forward(self.norm_2(x)", "self.feed_forward(self.norm_1(x)"), ("x = self.norm_1(x +", "x = self.norm_2(x +"),
                      ("return self.norm_2(x +", "return self.norm_1(x +")]),
        mistake("no_final_norm", "return self.norm_2(x", "return (x",
                "In post-norm the last thing that happens is a norm: norm_2(x + feed_forward(x)). You return the sum as it is."),
        mistake("no_norm_in_the_middle", "x = self.norm_1(x +", "x = (x +",
                "In post-norm each of the two sums is normalised, also the one after the attention: norm_1(x + attention(x))."),
        mistake("no_norm_before_attention", "self.attention(self.norm_1(x)", "self.attention(x",
                "In pre-norm the attention reads norm_1(x); you give it x itself."),
        mistake("no_norm_before_feed_forward", "self.feed_forward(self.norm_2(x))", "self.feed_forward(x)",
                "In pre-norm the feed-forward network reads norm_2(x); you give it x itself."),
        mistake("mask_not_passed_on", "self.norm_1(x), mask=mask", "self.norm_1(x)", "The mask does not reach the attention: pass it on, as mask=mask.",
                also=[("self.attention(x, mask=mask)", "self.attention(x)")]),
        mistake("mask_taken_for_context", "self.norm_1(x), mask=mask", "self.norm_1(x), mask",
                "You give the mask to the attention in second place, where it takes another sequence to look at (context). Name it: mask=mask.",
                also=[("self.attention(x, mask=mask)", "self.attention(x, mask)")]),
        mistake("d_ff_ignored", "FeedForward(d_model, d_ff, activation)", "FeedForward(d_model, None, activation)",
                "d_ff does not reach the feed-forward network: it is always 4 D wide."),
        mistake("activation_ignored", "FeedForward(d_model, d_ff, activation)", "FeedForward(d_model, d_ff)",
                "The activation does not reach the feed-forward network: it is always gelu."),
        mistake("eps_ignored", "self.norm_1 = LayerNorm(d_model, eps)", "self.norm_1 = LayerNorm(d_model)",
                "eps does not reach the norms: it is always 1e-5.", also=[("self.norm_2 = LayerNorm(d_model, eps)", "self.norm_2 = LayerNorm(d_model)")]),
        mistake("any_norm_accepted", 'if norm not in ("pre", "post"):', "if False:",
                "A norm that is neither \"pre\" nor \"post\" is taken without a complaint, so that a slip of the pen gives another model. Raise a ValueError."),
        mistake("no_dropout", "self.norm, self.dropout = norm, dropout", "self.norm, self.dropout = norm, 0.0",
                "What the sub-layers give is added without dropout. In training it goes through `dropout(…, self.dropout, self.training)` before it is added."),
        mistake("no_dropout_on_weights", "MultiHeadAttention(d_model, n_heads, dropout=dropout)", "MultiHeadAttention(d_model, n_heads)",
                "The attention's weights are not dropped: pass the probability on, MultiHeadAttention(…, dropout=dropout)."),
        mistake("dropout_in_eval", "if not training or p == 0", "if p == 0",
                "Dropout is active in eval mode: give it `self.training`, which `eval()` sets to False.", at="dropout"),
    ],
    hints=[
        "Draw it: which arrows reach a plus? Through what does each pass on its way? In post-norm, where does the norm stand?",
        "Build norm_1, attention, norm_2, feed_forward. Attention returns two things, and you need the first. Pre-norm: x + attention(norm_1(x)), "
        "then the same again with norm_2 and feed_forward, from the new x.",
        "`x = x + dropout(self.attention(self.norm_1(x), mask=mask)[0], self.dropout, self.training)`; post-norm: "
        "`x = self.norm_1(x + dropout(self.attention(x, mask=mask)[0], self.dropout, self.training))`.",
    ],
    forbidden=["TransformerEncoderLayer", "TransformerDecoderLayer", "TransformerEncoder", "MultiheadAttention", "multi_head_attention_forward"],
)  # fmt: skip


def scaled_init_cases(draw):
    yield case("six layers", n_layers=6)
    yield case("two layers", n_layers=2)
    yield case("48 layers", part="depth", n_layers=48)


scaled_init = Exercise(
    reference=block.scaled_init,
    purpose="Start a deep stack so that its stream has the same scale at the end as at the beginning.",
    minutes=20,
    difficulty=3,
    cases=scaled_init_cases,
    parts={"values": 2, "depth": 1},
    probe="block:scaled_init",
    mistakes=[
        mistake("no_residual_scale", "0.02 / math.sqrt(2 * n_layers) if residual else 0.02", "0.02",
                "W_O and W_2 are as large as all the others. They write into the residual stream, 2 · n_layers times in all, and the sum grows with the "
                "root of that number: divide their standard deviation by √(2 · n_layers)."),
        mistake("root_of_n_layers", "math.sqrt(2 * n_layers)", "math.sqrt(n_layers)",
                "You divide by √n_layers. Each block writes into the stream *twice* (attention and feed-forward): √(2 · n_layers)."),
        mistake("no_root", "math.sqrt(2 * n_layers)", "(2 * n_layers)",
                "You divide by 2 · n_layers. Independent numbers add up by their variances, so that the sum grows with the *root*: √(2 · n_layers)."),
        mistake("multiplied", "0.02 / math.sqrt(2 * n_layers)", "0.02 * math.sqrt(2 * n_layers)",
                "You multiply by √(2 · n_layers) and make the residual projections larger. Divide by it."),
        mistake("everything_scaled", " if residual else 0.02", "", "All weights are divided by √(2 · n_layers). Only those that write into the residual stream are: W_O and W_2."),
        mistake("attention_alone", '("W_O.weight", "W_2.weight")', '("W_O.weight",)', "W_2 is not scaled: the feed-forward network writes into the residual stream too."),
        mistake("feed_forward_alone", '("W_O.weight", "W_2.weight")', '("W_2.weight",)', "W_O is not scaled: the attention writes into the residual stream too."),
        mistake("wrong_feed_forward_layer", '"W_2.weight"', '"W_1.weight"', "You scale W_1. It is W_2 that writes into the residual stream; W_1 only reads."),
        mistake("std_taken_for_variance", "0.02 / math.sqrt(2 * n_layers) if residual else 0.02", "(0.02 / math.sqrt(2 * n_layers) if residual else 0.02) ** 0.5",
                "Your numbers have a *variance* of 0.02. It is the standard deviation that is 0.02."),
        mistake("uniform", "nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * n_layers) if residual else 0.02)",
                "nn.init.uniform_(parameter, *((-0.02 / math.sqrt(2 * n_layers), 0.02 / math.sqrt(2 * n_layers)) if residual else (-0.02, 0.02)))",
                "Your weights are uniform. They are drawn from a normal distribution."),
        mistake("uniform_of_that_deviation", "nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * n_layers) if residual else 0.02)",
                "nn.init.uniform_(parameter, *[side * 3**0.5 * 0.02 / (math.sqrt(2 * n_layers) if residual else 1) for side in (-1, 1)])",
                "Your weights have the right standard deviation but are uniform. They are drawn from a normal distribution."),
        mistake("embeddings_left", "elif parameter.dim() > 1:", 'elif parameter.dim() > 1 and "embedding" not in name:',
                "The embeddings are left as they were, with a standard deviation of 1, fifty times too large. Every weight matrix is drawn anew."),
        mistake("biases_left", "nn.init.zeros_(parameter)", "pass", "The biases are left as torch made them. They are 0."),
        mistake("biases_drawn", "nn.init.zeros_(parameter)", "nn.init.normal_(parameter, std=0.02)", "The biases are drawn at random. They are 0."),
        mistake("gains_drawn", "elif parameter.dim() > 1:", "else:",
                "The gains of the norms are drawn at random too, so that every norm makes its output 50 times too small. They stay 1."),
        mistake("gains_zeroed", 'if name.endswith("bias"):', "if parameter.dim() == 1:", "The gains of the norms are 0, so that nothing passes them. They stay 1."),
        mistake("same_numbers_everywhere", "        residual = ", "        __import__('torch').manual_seed(0)\n        residual = ",
                "All blocks get the same numbers: the seed is set anew for each weight. Set it once, before the model is built."),
        mistake("nothing_changed", "    for name, parameter in module.named_parameters():", "    for name, parameter in [(n, p.clone()) for n, p in module.named_parameters()]:",
                "The module is as it was: you compute new numbers, but they don't get into its parameters. (`parameter = …` only gives the name to something "
                "else.) Change them in place: nn.init.normal_(parameter, std=…), or parameter.copy_(…) under torch.no_grad().",
                also=[("nn.init.zeros_(parameter)", "pass"), ("nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * n_layers) if residual else 0.02)", "pass")]),
    ],
    hints=[
        "Which two layers of a block write into the stream? How many such layers are there in n_layers blocks? How does the spread of a sum of that "
        "many independent numbers grow?",
        "Go through `module.named_parameters()`: a name that ends in bias, a name that ends in W_O.weight or W_2.weight, any other matrix. What has "
        "one axis only is a gain.",
        "`nn.init.zeros_(parameter)`; `nn.init.normal_(parameter, std=0.02)`; and for the two, `std=0.02 / math.sqrt(2 * n_layers)`.",
    ],
)  # fmt: skip


def count_parameters_cases(draw):
    yield case("a linear layer", module="Linear(3, 5)")
    yield case("without bias", module="Linear(5, 3) without bias")
    yield case("nothing to learn", module="ReLU")
    yield case("parts of parts", module="two Linear and a LayerNorm")
    yield case("a transformer block", module="a transformer block")
    yield case("tied", part="shared and frozen", module="an embedding tied to the output")
    yield case("buffers", part="shared and frozen", module="a BatchNorm, which has buffers")
    yield case("frozen", part="shared and frozen", module="two Linear, the first frozen")


count_parameters = Exercise(
    reference=block.count_parameters,
    purpose="Know how large a model is, and check it against a formula in your head: 12 · d² a block.",
    minutes=5,
    difficulty=1,
    cases=count_parameters_cases,
    parts={"values": 1, "shared and frozen": 1},
    probe="block:count_parameters",
    mistakes=[
        mistake("tensors_counted", "parameter.numel()", "1", "You count the tensors. Count the numbers in them: `numel()`."),
        mistake("rows_counted", "parameter.numel()", "len(parameter)", "You count the rows of each parameter. Count all its numbers: `numel()`."),
        mistake("matrices_alone", "module.parameters())", "module.parameters() if parameter.dim() > 1)", "Biases and gains are left out. They are learnt too."),
        mistake("own_alone", "module.parameters()", "module.parameters(recurse=False)", "You count what the module owns itself, and not what its parts own."),
        mistake("frozen_left_out", "module.parameters())", "module.parameters() if parameter.requires_grad)",
                "Parameters that are frozen (requires_grad=False) are left out. Here they count as well: they are part of the model."),
        mistake("shared_twice", "parameter.numel() for parameter in module.parameters()",
                "parameter.numel() for _, parameter in module.named_parameters(remove_duplicate=False)",
                "A parameter that two layers share is counted twice. It is one parameter: `module.parameters()` gives it once."),
        mistake("buffers_counted", "sum(parameter.numel() for parameter in module.parameters())",
                "sum(tensor.numel() for tensor in [*module.parameters(), *module.buffers()])",
                "Buffers are counted (a BatchNorm's running mean, a stored mask). They are not learnt."),
        mistake("state_dict", "module.parameters()", "module.state_dict().values()",
                "`state_dict()` lists what has to be *saved*: buffers too, and a shared parameter under each of its names. `parameters()` lists what is learnt."),
    ],
    hints=[
        "An nn.Module can list its parameters, with those of its parts. What does a tensor call the number of its elements?",
        "Add up `numel()` over `module.parameters()`: the parts' parameters are in it, and a shared one is in it once.",
        "`sum(… for parameter in module.parameters())`.",
    ],
)  # fmt: skip

MODULE = Module(
    "block", "The transformer block", hours=3, difficulty=3, needs="module 02 (multi-head attention); module 03 is not needed",
    exercises=[LayerNorm, RMSNorm, gelu, FeedForward, SwiGLU, dropout, TransformerBlock, scaled_init, count_parameters],
)  # fmt: skip
