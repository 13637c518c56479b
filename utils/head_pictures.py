"""The pictures of lesson 02, so that its cells show the computation and not the drawing."""

import numpy as np
from matplotlib.patches import Rectangle

from utils import pictures, plots

TOKENS = (plots.QUERIES, plots.KEYS, plots.VALUES)


def cut(x, split, viewed):
    """Tokens of which each number says its token in the tens, cut into heads rightly, and by a view alone. x: (T, D); others: (H, T, K)"""
    _, axes = plots.figure(890, 250, columns=5, width_ratios=[x.shape[1], *[split.shape[-1]] * 4])
    titles = ["3 tokens of 4 numbers", "split: head 0", "split: head 1", "a view: head 0", "a view: head 1"]
    for ax, matrix, title in zip(axes, [x, *split, *viewed], titles, strict=True):
        for (i, j), number in np.ndenumerate(matrix.numpy()):
            colour = TOKENS[number // 10 - 1]
            ax.add_patch(Rectangle((j, i), 0.94, 0.94, facecolor=colour))
            ax.text(j + 0.47, i + 0.47, number, ha="center", va="center", color="black" if colour == plots.KEYS else "white")
        ax.set(xlim=(-0.1, matrix.shape[1] + 0.1), ylim=(3.1, -0.4), aspect="equal")
        ax.set_title(title, fontsize=10, fontweight="normal", loc="center", color=plots.WRONG if "view" in title else "black")
        ax.axis("off")
    plots.headline(axes[0].figure, "In a head, a row is one token (one colour). Cut wrongly, rows mix up the tokens")


def errors(curves, best):
    """The error of fetching two messages, by step, a line a seed. curves: {number of heads: [curve for each seed]}"""
    _, ax = plots.figure(720, 360)
    for heads, colour in zip(curves, [plots.WRONG, plots.RIGHT], strict=True):
        for number, curve in enumerate(curves[heads]):
            smooth = np.convolve(curve, np.ones(10) / 10, "valid")
            ax.plot(smooth, color=colour, alpha=0.8, linewidth=1.5, label=None if number else f"{heads} head{'s' * (heads > 1)}")
    plots.limit(ax, best, "the best that an average with fixed weights can do")
    ax.set(xlabel="training step", ylabel="error (1 = knows nothing)", ylim=(0, 1.1), title="One head can't fetch two messages; eight can")
    ax.legend(loc="upper right")


def heads(weights, colours):
    """Where each head looks. weights: (H, S) of one question, cards in the order of colours"""
    _, ax = plots.figure(560, 400)
    plots.attention_map(weights, range(len(weights)), colours, ax=ax, title="Six of eight heads have found a card to look at", highest=1)
    ax.set(xlabel="cards: what is looked at", ylabel="heads")


def removed(whole, without):
    """The errors on both messages once a head is removed. whole: (2); without: (H, 2)"""
    _, ax = plots.figure(760, 340)
    for i, (name, colour) in enumerate((("red message", plots.WRONG), ("blue message", plots.QUERIES))):
        values = [whole[i], *without[:, i]]
        ax.bar(np.arange(len(values)) + 0.4 * i - 0.2, values, 0.4, color=colour, label=name)
    ax.set_xticks(range(len(without) + 1), ["none", *map(str, range(len(without)))])
    plots.limit(ax, 1, "knows nothing")
    ax.set(xlabel="head removed", ylabel="error", ylim=(0, 1.15), title="Removing a head costs the message that it fetched, or nothing")
    ax.legend(loc="upper center", ncols=2, bbox_to_anchor=(0.5, 0.84))


def induction(steps, losses, scores, guess):
    """Losses on repeated symbols and the scores of heads, by step.

    losses, scores: {name: curve}; guess: the loss of guessing
    """
    _, (top, bottom) = plots.figure(760, 520, rows=2, sharex=True)
    for (name, curve), colour in zip(losses.items(), [plots.RIGHT, plots.MASKED], strict=True):
        top.plot(steps, curve, color=colour)
        top.annotate(name, (steps[-1], curve[-1]), xytext=(0, 6), textcoords="offset points", ha="right", color=colour)
    plots.limit(top, guess, f"guessing: log 52 = {guess:.2f}")
    top.set(ylabel="loss on repeated symbols", ylim=(0, 4.5), title="The loss falls off a cliff …")
    for (name, curve), colour, offset in zip(scores.items(), [plots.VALUES, plots.KEYS], [-20, 6], strict=True):
        bottom.plot(steps, curve, color=colour)
        where = len(steps) * 6 // 10
        bottom.annotate(name, (steps[where], curve[where]), xytext=(0, offset), textcoords="offset points", color=colour)
    bottom.set(xlabel="training step", ylabel="share of the weight", ylim=(0, 1.2), title="… when two heads find each other")


def two_maps(maps, tokens):
    """Two attention maps side by side. maps: {title: (T, T)}"""
    _, axes = plots.figure(890, 450, columns=2)
    for ax, (title, weights) in zip(axes, maps.items(), strict=True):
        plots.attention_map(weights, tokens, tokens, ax=ax, title=title, highest=1, colorbar=False)
        ax.tick_params(labelsize=8)
    axes[1].set_ylabel("")


def leaks(moved):
    """The leaks of heads that are cut rightly and wrongly. moved: {title: (n, n) boolean, row t, column s}"""
    pictures.leaks(moved, "Heads cut wrongly: a right mask hides the wrong things (red: an input of the future)", height=300)


def honest(pairs, best):
    """Losses on fresh texts, with all of the text and with the prefix alone. pairs: {name: (loss, prefix loss)}"""
    _, ax = plots.figure(720, 350)
    for i, (pair, colour) in enumerate(zip(pairs.values(), [plots.RIGHT, plots.WRONG, plots.MASKED], strict=True)):
        for x, loss, shade, label in zip((i - 0.2, i + 0.2), pair, (0.45, 1), ("all", "prefix"), strict=True):
            bar = ax.bar(x, loss, 0.38, color=colour, alpha=shade)
            ax.bar_label(bar, [f"{loss:.2f}"], padding=2, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8})
            ax.text(x, -0.12, label, ha="center", va="top", fontsize=9)
    plots.limit(ax, best, f"the best possible: {best:.2f}")
    ax.set_xticks(range(len(pairs)), [f"\n{name}" for name in pairs])
    ax.tick_params(length=0)
    ax.set(xlim=(-0.6, 3.5), ylim=(0, 8.3), ylabel="loss on fresh texts", title="The one that looks best has been told the answers")


def sharing(cache, errors):
    """What sharing keys and values saves, and what it costs. cache: {G: KiB a token}; errors: {G: error on the cards}"""
    _, (left, right) = plots.figure(890, 330, columns=2)
    for ax, values, form in ((left, cache, "{:.0f}"), (right, errors, "{:.2f}")):
        bars = ax.bar([str(groups) for groups in values], list(values.values()), color=plots.KEYS, width=0.6)
        ax.bar_label(bars, [form.format(value) for value in values.values()])
        ax.set_xlabel("heads of keys and values")
    left.set(ylabel="KiB for each token", ylim=(0, 560), title="Llama 3 8B keeps a quarter, with 8 for 32")
    plots.limit(right, 1, "knows nothing")
    right.set(ylabel="error (1 = knows nothing)", ylim=(0, 1.15), title="The cards: two will do, one is too narrow")
