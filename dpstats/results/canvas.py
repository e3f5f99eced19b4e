"""What all plots share: colours, markers, axes and titles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpstats.privacy import NOT_PRIVATE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["COLORS", "GREY", "MARKERS", "axes", "finished"]

# Okabe & Ito (2008): distinguishable under every common colour blindness, and in print.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GREY = "#6b6b6b"


def axes(ax: Axes | None, width: float, height: float) -> Axes:
    """The axes that were given, or new ones of a size in inches."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(width, height), layout="constrained")[1]


def finished(ax: Axes, title: str, tainted: bool) -> Axes:
    """The axes with a title, which says where noise was seeded."""
    ax.spines[["top", "right"]].set_visible(False)
    color = COLORS[1] if tainted else "black"
    ax.set_title(f"{title}\n{NOT_PRIVATE}" if tainted else title, loc="left", color=color)
    return ax
