"""A noisy curvature, and what a model expects of it, as one."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.numerics.entrywise import average, symmetric_pattern

__all__ = ["drawn_to"]

Array = NDArray[np.float64]

# ratio: error of the shape that a model expects, at most and at least
_DOUBT, _LEAST_DOUBT = 0.45, 0.03


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
    largest = _DOUBT * level / math.sqrt(2 * d)
    # As large as the discrepancy shows it to be, by one standard deviation of its noise.
    shown = float(((value - expected) ** 2).sum()) - own.sum()
    shown = (shown + math.sqrt(2 * float((own**2).sum()))) / (largest * d) ** 2
    doubt = float(np.clip(shown, _LEAST_DOUBT, 1.0)) * largest**2
    prior = doubt + noise**2 / d * np.eye(d) + level**2 * moments
    matrix, variances = average(value, own, expected, prior)
    return matrix, variances, level
