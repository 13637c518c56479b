"""Pictures that lesson 04 alone needs, so that its cells show the computation and not the drawing."""

import numpy as np

from utils import plots

ATTENTION, FEED_FORWARD = plots.QUERIES, plots.VALUES
SMOOTHED = 10  # steps over which a loss is averaged before it is drawn


def alike(curves):
    """How much alike the tokens are after each layer. curves: {name: list of mean cosines}"""
    _, ax = plots.figure(720, 340)
    for (name, values), colour in zip(curves.items(), [plots.WRONG, plots.RESIDUAL], strict=True):
        ax.plot(values, "o-", color=colour, label=name)
    plots.limit(ax, 1, "all tokens are the same")
    ax.set(xlabel="layers of attention", ylabel="mean cosine between two tokens", ylim=(-0.08, 1.12), xticks=range(0, len(values), 2))
    ax.set_title("Averages of averages: after two layers all tokens are the same")
    ax.legend(loc="center right")


def scales(inputs, outputs, eps):
    """The size of what a norm gives, against that of what it gets. outputs: {name: sizes}"""
    _, ax = plots.figure(720, 340)
    for (name, values), colour in zip(outputs.items(), [plots.RIGHT, plots.WRONG], strict=True):
        ax.plot(inputs, values, color=colour, label=name)
    plots.limit(ax, eps**0.5, "√eps", axis="x")
    ax.set(xscale="log", xlabel="standard deviation of what comes in", ylabel="standard deviation of what comes out", ylim=(0, 1.15))
    ax.set_title("Whatever its size, a token leaves with size 1; far below √eps it is left alone")
    ax.legend(loc="lower right")


def bends(x, curves, difference):
    """Activations, and how far the two versions of one are apart. curves: {name: values}"""
    _, (left, right) = plots.figure(880, 330, columns=2)
    for (name, values), colour in zip(curves.items(), [plots.MASKED, plots.VALUES], strict=True):
        left.plot(x, values, color=colour, label=name)
    left.set(xlabel="x", ylabel="activation of x", title="GELU is a ReLU without a corner")
    left.legend()
    right.plot(x, 1e4 * difference, color=plots.WRONG)
    right.axhline(0, color=plots.REFERENCE, linewidth=0.8)
    right.set(xlabel="x", ylabel="tanh version − exact, in 10⁻⁴", title="The two versions differ by up to 5 in 10 000")


def fits(x, target, curves):
    """What networks have made of a function of one number. curves: {name: values}"""
    _, ax = plots.figure(720, 320)
    ax.plot(x, target, color=plots.MASKED, linewidth=6, alpha=0.5, label="what they should learn")
    for (name, values), colour in zip(curves.items(), [plots.VALUES, plots.WRONG], strict=True):
        ax.plot(x, values, color=colour, label=name)
    ax.set(xlabel="x", ylabel="output", title="Without a bend in between, two layers are one straight line")
    ax.legend(loc="upper left", ncols=3)
    ax.set_ylim(-1.3, 1.8)


def losses(curves, title, floor, guess):
    """Training losses, smoothed, between the best possible one and that of guessing. curves: {name: one loss a step}"""
    _, ax = plots.figure(880, 340)
    for (name, values), colour in zip(curves.items(), [plots.RIGHT, plots.WRONG, plots.KEYS, plots.MASKED], strict=False):
        smooth = np.convolve(values, np.ones(SMOOTHED) / SMOOTHED, mode="valid")
        ax.plot(np.arange(len(smooth)) + SMOOTHED, smooth, color=colour, label=f"{name}: {np.mean(values[-20:]):.2f}")
    plots.limit(ax, guess, f"guessing: {guess:.2f}")
    _best(ax, floor)
    ax.set(xlabel="training step", ylabel="loss", ylim=(0, 2.6), title=title)
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1), title="loss at the end", alignment="left")


def gradients(depths, typical, profiles):
    """Gradient norms of a block: typical of stacks of several depths, and block by block in the deepest. {norm: values} each."""
    _, (left, right) = plots.figure(890, 340, columns=2)
    for norm, colour in (("post", plots.WRONG), ("pre", plots.RIGHT)):
        left.plot(depths, typical[norm], "o-", color=colour, label=f"{norm}-norm")
        right.plot(range(1, len(profiles[norm]) + 1), profiles[norm], color=colour)
    left.set(xscale="log", xlabel="blocks in the stack", ylabel="gradient norm of a block", ylim=(0, None))
    left.set_title("Post-norm: larger gradients in deeper stacks")
    left.set_xticks(depths, depths)
    left.minorticks_off()
    left.legend(loc="upper left")
    right.set(xlabel=f"which block (of {len(profiles['pre'])})", ylabel="its gradient norm", ylim=(0, None))
    right.set_title("… and the largest in the last blocks")


def honest(pairs, floor):
    """The loss in training beside the loss from true prefixes. pairs: {model: (loss, prefix loss)}"""
    _, ax = plots.figure(640, 330)
    for i, (label, colour) in enumerate((("as in training", plots.MASKED), ("from the beginning alone", plots.WRONG))):
        values = [pair[i] for pair in pairs.values()]
        bars = ax.bar(np.arange(len(pairs)) + 0.38 * (i - 0.5), values, 0.36, color=colour, label=label)
        ax.bar_label(bars, [f"{value:.2f}" for value in values], padding=2)
    ax.set_xlim(-1.1, len(pairs) - 0.5)
    _best(ax, floor)
    ax.set_xticks(range(len(pairs)), pairs)
    ax.set(ylabel="loss", title="Below the best possible: it has read the answers")
    ax.legend(loc="upper left")


def overfitting(curves, floor):
    """Losses on new text while training on little text. curves: {name: [(step, loss on new text), …]}"""
    _, ax = plots.figure(720, 340)
    for (name, points), colour in zip(curves.items(), [plots.WRONG, plots.RIGHT], strict=True):
        ax.plot(*zip(*points, strict=True), "o-", color=colour, label=name)
    plots.limit(ax, floor, f"best possible: {floor:.2f}")
    ax.set(xlabel="training step", ylabel="loss on new text", ylim=(0, 2.9))
    ax.set_title("Trained on 300 texts: without dropout it learns them by heart")
    ax.legend(loc="upper right", ncols=2)


def growth(depths, sizes):
    """How large the stream is at the end of stacks of several depths. sizes: {initialisation: values}"""
    _, ax = plots.figure(720, 350)
    for (name, values), colour in zip(sizes.items(), [plots.WRONG, plots.RIGHT], strict=True):
        ax.plot(depths, values, "o-", color=colour, label=name)
    first = next(iter(sizes.values()))[0]
    ax.plot(depths, [first * depth**0.5 for depth in depths], color=plots.REFERENCE, linestyle="--", linewidth=1.2)
    ax.annotate("√depth", (depths[-1], first * depths[-1] ** 0.5), xytext=(0, -16), textcoords="offset points", ha="right")
    ax.set(xscale="log", yscale="log", xlabel="blocks in the stack", ylabel="standard deviation at its end")
    ax.set_xticks(depths, depths)
    ax.minorticks_off()
    ax.set_title("Scaled, the stream ends as it would after one block, however deep")
    ax.legend(loc="upper left")


def stream(names, written, sizes, read, floor):
    """What each sub-layer writes into the stream, how large that is by then, and the loss of what could be read there."""
    _, (top, bottom) = plots.figure(820, 520, rows=2, sharex=True)
    places = np.arange(len(names))
    colours = [ATTENTION if name.startswith("attention") else FEED_FORWARD for name in names[1:]]
    top.bar(places[1:], written, 0.6, color=colours)
    top.plot(places, sizes, "o-", color=plots.RESIDUAL, label="the stream itself")
    top.set(ylabel="mean length of a token", title="The feed-forward networks write most of what is in the stream")
    handles = top.get_legend_handles_labels()[0]
    for colour, label in ((ATTENTION, "attention writes"), (FEED_FORWARD, "feed-forward writes")):
        handles.append(top.bar([0], [0], color=colour, label=label))
    top.legend(handles=handles, loc="upper left")
    bottom.plot(places, read, "o-", color=plots.RESIDUAL)
    _best(bottom, floor)
    for place, value in zip(places, read, strict=True):
        bottom.annotate(f"{value:.2f}", (place, value), xytext=(0, 7), textcoords="offset points", ha="center", fontsize=9)
    bottom.set(ylabel="loss, if read here", ylim=(0, 3), title="… and the answer becomes readable step by step")
    bottom.set_xticks(places, names, rotation=20, ha="right")


def without(names, found, whole, floor):
    """The loss when one sub-layer writes nothing. found: one loss a sub-layer; whole: with all of them"""
    _, ax = plots.figure(760, 330)
    colours = [ATTENTION if name.startswith("attention") else FEED_FORWARD for name in names]
    bars = ax.bar(range(len(names)), found, 0.6, color=colours)
    ax.bar_label(bars, [f"{value:.2f}" for value in found], padding=2)
    plots.limit(ax, whole, f"nothing removed: {whole:.2f}")
    ax.set_xlim(-0.6, len(names) + 1.6)
    ax.set_xticks(range(len(names)), names, rotation=20, ha="right")
    ax.set(ylabel="loss without it", title="One attention does all the looking; every feed-forward network counts")


def _best(ax, floor):
    """The best possible loss, with its name below the line on the left, where no curve is."""
    plots.limit(ax, floor)
    place = {"xy": (0.01, floor), "xycoords": ax.get_yaxis_transform(), "xytext": (0, -12), "textcoords": "offset points"}
    ax.annotate(f"best possible: {floor:.2f}", fontsize=9, **place)
