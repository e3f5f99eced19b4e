"""A noisy curvature, and what a model expects of it, as one."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.numerics.entrywise import average, symmetric_pattern

__all__ = ["DOUBT", "FLOOR", "drawn_to", "shape_doubt", "shown_doubt"]

Array = NDArray[np.float64]

FLOOR = 0.7  # ratio: least eigenvalues of a noisy matrix to the operator norm of its noise
DOUBT = 0.45  # ratio: error of the shape that a model expects of a matrix, at most


def shape_doubt(level: float, d: int) -> float:
    """Variance of each entry, at most, of an expected shape (d, d) with this mean eigenvalue.

    Its operator norm is `DOUBT` of the level: that of a symmetric matrix of independent entries
    of variance v is about twice the root of d v, and half of that is allowed to each sign.
    """
    return (DOUBT * level) ** 2 / (2 * d)


def shown_doubt(gap: Array, own: Array) -> float:
    """Square of a discrepancy beyond noise of variances `own`; at least what noise can hide."""
    hidden = math.sqrt(2 * float((own**2).sum()))
    return max(float((gap**2).sum()) - float(own.sum()), hidden)


def drawn_to(
    value: Array, noise: float, model: Array, moments: Array, pattern: Array | None = None
) -> tuple[Array, Array, float]:
    """A released curvature averaged with the shape of the model's.

    Parameters
    ----------
    value : ndarray of shape (d, d)
        Curvature with noise of scale `noise` on its isometric coordinates.
    model : ndarray of shape (d, d)
        What a model expects, up to a factor.
    moments : ndarray of shape (d, d)
        Entry variances, per squared row, of the moments behind the model.
    pattern : ndarray of shape (d, d), optional
        Entry variances of noise of scale 1; by default those of a symmetric matrix.

    Returns
    -------
    matrix, variances : ndarray of shape (d, d)
        The average, and its entry variances.
    level : float
        Its mean eigenvalue, as released.
    """
    d = len(value)
    own = noise**2 * (symmetric_pattern(d) if pattern is None else pattern)
    level = max(float(np.trace(value)) / d, noise / d**1.5)
    expected = level * d / float(np.trace(model)) * model
    doubt = min(shape_doubt(level, d), shown_doubt(value - expected, own) / d**2)
    prior = doubt + noise**2 / d * np.eye(d) + level**2 * moments
    matrix, variances = average(value, own, expected, prior)
    return matrix, variances, level
