"""Clipped residuals: efficiency of a clip under normal errors, with privacy noise in the account.

A score sum x clip(r, c sigma) released with noise has, in whitened coordinates and units of
sigma^2 / n, the variance

    v(c) = (E psi_c(Z)^2 + k c^2) / P(|Z| < c)^2,     psi_c(z) = clip(z, -c, c),

for standard normal Z, where k is the noise variance at c = 1 over n. A small k asks for no clip, a
large one for a clip near the median (Huber 1964; Avella-Medina, Bradshaw & Loh 2023 for private
scores).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "MEAT_CLIP",
    "NORMAL_QUANTILE",
    "clipped_square",
    "efficient_clip",
    "score_variance",
    "unclipped",
]

Array = NDArray[np.float64]

MEAT_CLIP = 4.0  # sds: clip of residuals in the meat
_SLACK = 0.03  # ratio: variance given up for a larger clip, with less bias for skewed errors
_LARGEST = 30.0  # numerical: largest clip
_SMALLEST = 0.5  # numerical: smallest clip
_GRID = np.geomspace(_SMALLEST, _LARGEST, 600)  # numerical: clips that are tried

# printed: |Z| is below this with the probability named.
NORMAL_QUANTILE = {0.7: 1.0364333894937898}


def unclipped(c: float | Array) -> Array:
    """``P(|Z| < c)``: share of normal residuals that a clip at c leaves alone."""
    from scipy.special import ndtr

    share: Array = 2 * ndtr(c) - 1
    return share


def clipped_square(c: float | Array) -> Array:
    """``E clip(Z, -c, c)^2``."""
    inside = unclipped(c)
    density = np.exp(-np.square(c) / 2) / math.sqrt(2 * math.pi)
    square: Array = inside - 2 * c * density + np.square(c) * (1 - inside)
    return square


def score_variance(c: float | Array, k: float) -> Array:
    """``v(c)``; see the module."""
    variance: Array = (clipped_square(c) + k * np.square(c)) / unclipped(c) ** 2
    return variance


def efficient_clip(k: float) -> float:
    """The largest clip, in residual standard deviations, whose v is within 3 % of the least."""
    variance = score_variance(_GRID, k)
    good_enough = (1 + _SLACK) * float(variance.min())
    return float(_GRID[variance <= good_enough][-1])
