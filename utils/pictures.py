"""Pictures that one lesson alone needs, so that its cells show the computation and not the drawing."""

import numpy as np
from matplotlib.patches import Rectangle

from utils import plots


def broadcasting(a, b):
    """Lesson 00: two arrays with two axes, stretched to a common shape, and their sum."""
    total = a + b
    fig, axes = plots.figure(860, 230, columns=3)
    for ax, array, colour in zip(axes, [a, b, total], [plots.QUERIES, plots.KEYS, plots.VALUES], strict=True):
        for (i, j), number in np.ndenumerate(np.broadcast_to(array, total.shape)):
            own = i < array.shape[0] and j < array.shape[1]
            ax.add_patch(Rectangle((j, i), 0.92, 0.92, facecolor=colour, alpha=0.9 if own else 0.2))
            ax.text(j + 0.46, i + 0.46, number, ha="center", va="center", color="white" if own and colour != plots.KEYS else "black")
        ax.set(xlim=(-0.1, total.shape[1] + 0.1), ylim=(total.shape[0] + 0.1, -0.1), aspect="equal", title=f"shape {array.shape}")
        ax.axis("off")
    for x, sign in ((0.345, "+"), (0.675, "=")):
        fig.text(x, 0.45, sign, fontsize=20, ha="center", va="center")
    plots.headline(fig, "An axis of size 1 is repeated (pale) until it fits")


def arrows(query, keys, names, title):
    """Lesson 01: a query and some keys in two dimensions, with their dot products. query: (2); keys: (S, 2)"""
    _, ax = plots.figure(470, 400)
    (a, b), head = query.tolist(), {"width": 2, "headwidth": 9}
    for name, (x, y) in zip(names, keys.tolist(), strict=True):
        ax.annotate("", (x, y), (0, 0), arrowprops={"color": plots.KEYS, **head})
        label = f"key of {name}\n{a:g}·{_signed(x)} + {b:g}·{_signed(y)} = {a * x + b * y:g}"
        ax.annotate(label, (x, y), xytext=(0, 8 if y > 0 else -32), textcoords="offset points", ha="center")
    ax.annotate("", (a, b), (0, 0), arrowprops={"color": plots.QUERIES, **head})
    ax.annotate(f"query of {names[-1]}", (a, b), xytext=(4, 6), textcoords="offset points", color=plots.QUERIES)
    ax.set(xlim=(-2.2, 3.2), ylim=(-2.1, 3), xticks=range(-2, 4), yticks=range(-2, 4), aspect="equal", title=title)
    ax.set(xlabel="first number: is alive", ylabel="second number: is a place")


def triangle(values, weights, output, names, title):
    """Lesson 01: three values in two dimensions, as large as their weights, and their average. values: (3, 2); weights: (3); output: (2)"""
    _, ax = plots.figure(520, 390)
    ax.fill(*values.T, color=plots.VALUES, alpha=0.15)
    ax.scatter(*values.T, s=1500 * weights + 30, color=plots.VALUES)
    ax.scatter(*output, s=110, color=plots.QUERIES, marker="D", zorder=3)
    for name, value, weight, below in zip(names, values.tolist(), weights.tolist(), [-52, 10, -44], strict=True):
        label = f"value of {name}\nweight {weight:.2f}"
        ax.annotate(label, value, xytext=(0, below), textcoords="offset points", ha="center")
    look = {"textcoords": "offset points", "ha": "right", "color": plots.QUERIES}
    ax.annotate(f"output for {names[-1]}", output.tolist(), xytext=(-10, 6), **look)
    ax.set(xlim=(-1.2, 5.6), ylim=(-1.8, 5.2), aspect="equal", title=title)


def masks_beside(masks, tokens):
    """Lesson 01: masks side by side. masks: {title: (n, n) mask}"""
    _, axes = plots.figure(890, 340, columns=len(masks))
    for ax, (title, mask) in zip(axes, masks.items(), strict=True):
        first = ax is axes[0]
        plots.mask_map(mask, tokens if first else [""] * len(tokens), tokens, ax=ax, title=title, legend=False)
        ax.set_ylabel("queries: who looks" if first else "")


def weights_with_sums(maps, tokens):
    """Lesson 01: maps of weights side by side, with the sum of each row. maps: {title: (n, n) weights}"""
    _, axes = plots.figure(890, 390, columns=len(maps))
    n = len(tokens)
    for ax, (title, weights) in zip(axes, maps.items(), strict=True):
        first = ax is axes[0]
        plots.attention_map(weights, tokens if first else [""] * n, tokens, ax=ax, title=title, highest=1, colorbar=False)
        ax.set_ylabel("queries: who looks" if first else "")
        ax.text(n - 0.3, -1, "sum", va="center", fontsize=9)
        for t, total in enumerate(weights.sum(-1).tolist()):
            ax.text(n - 0.3, t, f"{total:.2f}", va="center", fontsize=9, color="black" if abs(total - 1) < 1e-5 else plots.WRONG)


def leaks(moved, headline="Red is a leak: an output that moves with an input of its future", height=290):
    """Which inputs move which outputs, those of the future framed. moved: {title: (n, n) boolean, row t, column s}"""
    fig, axes = plots.figure(890, height, columns=len(moved), sharey=True)
    for ax, (title, moves) in zip(axes, moved.items(), strict=True):
        plots.mask_map(moves, ax=ax, legend=False)
        ax.set_title(title, fontsize=10, fontweight="normal")
        ax.set(xlabel="input s that was nudged", ylabel="output t" if ax is axes[0] else "")
        for t, s in moves.triu(1).nonzero().tolist():
            ax.add_patch(Rectangle((s - 0.4, t - 0.4), 0.8, 0.8, fill=False, edgecolor=plots.WRONG, linewidth=1.5))
    plots.headline(fig, headline)


def losses(curves, pairs, best):
    """Lesson 01: losses in training, and on fresh texts with all of the text and with the prefix alone.

    curves: {name: losses by step}; pairs: {name: (loss, prefix loss)}; best: the lowest honest loss
    """
    colours = dict(zip(curves, [plots.RIGHT, plots.WRONG, plots.MASKED], strict=True))
    _, (left, right) = plots.figure(890, 370, columns=2)
    for name, curve in curves.items():
        left.plot(np.convolve(curve, np.ones(10) / 10, "valid"), color=colours[name], label=name)
    plots.limit(left, best)
    left.text(len(next(iter(curves.values()))), best - 0.12, f"the best possible: {best:.2f}", ha="right", fontsize=9)
    left.set(xlabel="training step", ylabel="loss (mean of 10 steps)", ylim=(0, 2.3), title="In training, the wrong ones look better")
    left.legend(loc="upper right")
    for i, (name, pair) in enumerate(pairs.items()):
        for x, loss, shade, label in zip((i - 0.2, i + 0.2), pair, (0.45, 1), ("all", "prefix"), strict=True):
            right.bar_label(right.bar(x, loss, 0.38, color=colours[name], alpha=shade), [f"{loss:.2f}"])
            right.text(x, -0.07, label, ha="center", va="top", fontsize=9)
    plots.limit(right, best)
    right.set_xticks(range(len(pairs)), [f"\n{name}" for name in pairs], fontsize=10)
    right.tick_params(length=0)
    right.set(ylabel="loss on fresh texts", title="Given the prefix alone, they are lost")


def _signed(number):
    return f"{number:g}" if number >= 0 else f"({number:g})"
