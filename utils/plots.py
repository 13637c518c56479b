"""How the course draws: one palette, figures of one look, maps of attention weights and of masks.

The colours are Okabe and Ito's, which colour-blind readers tell apart too; the same thing has the same colour in every
lesson, in diagrams too. Figures have a white ground of their own, so that they read in a dark theme as in a light one.
Importing this file gives every figure that look.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap, ListedColormap
from matplotlib.patches import Patch

QUERIES, KEYS, VALUES = "#0072B2", "#E69F00", "#009E73"  # blue, orange, green
RESIDUAL, MASKED, VISIBLE = "#CC79A7", "#999999", "#F0E442"  # purple, grey, yellow
RIGHT, WRONG, REFERENCE = QUERIES, "#D55E00", "#000000"  # blue and vermilion where right and wrong are compared; black for limits

DPI, WIDEST = 100, 900  # pixels per inch; pixels
WEIGHTS = LinearSegmentedColormap.from_list("weights", ["#FFFFFF", "#A8D4EE", QUERIES, "#002B45"])  # white is 0
MASKS = ListedColormap([MASKED, VISIBLE])
TICKS = 48  # more tokens than this along an axis, and only some get a label
DIGITS = 6  # maps of at most this many rows and columns have their numbers written in

plt.rcParams.update({
    "figure.facecolor": "white", "axes.facecolor": "white", "savefig.facecolor": "white", "figure.dpi": DPI, "savefig.dpi": DPI,
    "savefig.pad_inches": 0.05,
    "text.color": "black", "axes.labelcolor": "black", "xtick.color": "black", "ytick.color": "black", "axes.edgecolor": "black",
    "axes.prop_cycle": plt.cycler(color=[QUERIES, KEYS, VALUES, RESIDUAL, WRONG, "#56B4E9", MASKED]),
    "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 11, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.grid": False, "lines.linewidth": 2, "legend.frameon": False, "font.size": 10,
})  # fmt: skip


def figure(width=720, height=360, rows=1, columns=1, **options):
    """A figure of that many pixels, and its axes: `fig, ax = figure(720, 360)`.

    rows, columns: of axes, as plt.subplots takes them; options go there too (sharey=True, …)
    returns: the figure, and one axes or an array of them
    """
    if width > WIDEST:
        raise ValueError(f"a figure is at most {WIDEST} pixels wide; got {width}")
    return plt.subplots(rows, columns, figsize=(width / DPI, height / DPI), dpi=DPI, layout="constrained", **options)


def headline(fig, text):
    """The claim of a figure that has several axes."""
    fig.suptitle(text, x=0.01, ha="left", fontweight="bold", fontsize=11)


def attention_map(weights, queries=None, keys=None, ax=None, title=None, highest=None, colorbar=True):
    """Draw weights as a map: a row a query, a column a key, the colour from 0 to the largest weight.

    weights: (T, S) tensor or array
    queries, keys: T and S tokens, for the axes; None = their positions
    highest: the weight that has the darkest colour, to compare several maps; None = the largest of these
    returns: the axes
    """
    weights = _array(weights)
    T, S = weights.shape
    ax = _square_axes(T, S, colorbar) if ax is None else ax
    image = ax.imshow(weights, cmap=WEIGHTS, vmin=0, vmax=highest or max(float(np.nanmax(weights)), 1e-9), aspect="equal")
    if max(T, S) <= DIGITS:
        for t, s in np.ndindex(T, S):
            ax.text(s, t, f"{weights[t, s]:.2f}", ha="center", va="center", color="white" if image.norm(weights[t, s]) > 0.5 else "black")
    _tokens(ax, T, S, queries, keys, title)
    if colorbar:
        ax.figure.colorbar(image, ax=ax, shrink=0.8, label="weight")
    return ax


def mask_map(mask, queries=None, keys=None, ax=None, title=None, legend=True):
    """Draw a mask as what may be seen: a row a query, a column a key, yellow where the query may attend to the key.

    mask: (T, S) boolean tensor or array, True = may attend
    queries, keys: T and S tokens, for the axes; None = their positions
    returns: the axes
    """
    mask = _array(mask).astype(bool)
    T, S = mask.shape
    ax = _square_axes(T, S, legend) if ax is None else ax
    ax.imshow(mask, cmap=MASKS, vmin=0, vmax=1, aspect="equal")
    if max(T, S) <= TICKS:
        ax.set_xticks(np.arange(S + 1) - 0.5, minor=True)
        ax.set_yticks(np.arange(T + 1) - 0.5, minor=True)
        ax.grid(which="minor", color="white", linewidth=1)
        ax.tick_params(which="minor", length=0)
    _tokens(ax, T, S, queries, keys, title)
    if legend:
        patches = [Patch(color=VISIBLE, label="may attend"), Patch(color=MASKED, label="hidden")]
        ax.legend(handles=patches, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return ax


def limit(ax, value, text="", axis="y", color=REFERENCE):
    """Draw a limit or a known value as a dashed line with its name on it: at y = value, or with axis="x" at x = value."""
    line, place = (ax.axhline, (0.99, value)) if axis == "y" else (ax.axvline, (value, 0.98))
    line(value, color=color, linestyle="--", linewidth=1.2, zorder=1)
    transform = ax.get_yaxis_transform() if axis == "y" else ax.get_xaxis_transform()
    offset, vertical = ((0, 3), "bottom") if axis == "y" else ((-3, 0), "top")
    look = {"ha": "right", "va": vertical, "color": color, "fontsize": 9}
    ax.annotate(text, place, xycoords=transform, xytext=offset, textcoords="offset points", **look)


def _array(values):
    """A numpy array of a tensor or of anything like an array."""
    return np.asarray(values.detach().float().cpu() if hasattr(values, "detach") else values)


def _square_axes(T, S, beside):
    """Axes for T rows and S columns of square cells, with room for the tokens and for what stands beside."""
    cell = min(40, 560 / max(T, S))
    return figure(min(WIDEST, int(cell * S + 150 + 130 * beside)), int(cell * T + 130))[1]


def _tokens(ax, T, S, queries, keys, title):
    """The tokens along both axes, what the axes are, and the title."""
    for axis, count, names in ((ax.yaxis, T, queries), (ax.xaxis, S, keys)):
        step = -(-count // TICKS)
        axis.set_ticks(range(0, count, step), [str(name) for name in (range(count) if names is None else names)][::step])
    words = keys is not None and any(len(str(key)) > 2 for key in keys)
    ax.tick_params(axis="x", rotation=45 if words else 0)
    if words:
        plt.setp(ax.get_xticklabels(), ha="right", rotation_mode="anchor")
    ax.tick_params(length=0)
    ax.spines[:].set(visible=True, color="#BBBBBB")
    ax.set_xlabel("keys: what is looked at")
    ax.set_ylabel("queries: who looks")
    if title:
        ax.set_title(title)
