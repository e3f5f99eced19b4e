"""A noisy curvature, and what a model expects of it, as one."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.numerics.entrywise import average, carried, symmetric_pattern

__all__ = ["FLOOR", "Asked", "drawn_to", "joined", "shape_doubt", "shown_doubt"]

Array = NDArray[np.float64]

FLOOR = 0.7  # ratio: least eigenvalues of a noisy matrix to the operator norm of its noise
_DOUBT = 0.45  # ratio: error of the shape that a model expects of a matrix, at most


def shape_doubt(level: float, d: int) -> float:
    """Variance of each entry, at most, of an expected shape (d, d) with this mean eigenvalue.

    Its operator norm is `_DOUBT` of the level: that of a symmetric matrix of independent entries
    of variance v is about twice the root of d v, and half of that is allowed to each sign.
    """
    return (_DOUBT * level) ** 2 / (2 * d)


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


class Asked(NamedTuple):
    """A curvature as released `at` some coefficients, of rows shortened at `radius`."""

    at: Array
    value: Array
    noise: float
    radius: float


def joined(earlier: Asked, later: Asked, known: Array) -> tuple[Array, Array]:
    """The curvature where the later one was asked, and its entry variances, given both.

    Where means grow as exponentials do, a row's curvature changes by about as large a part as its
    predictor changes. By that much, in root mean square, the earlier one is doubted along each
    eigenvector of what is `known` of it.
    """
    d = len(known)
    values, basis = np.linalg.eigh(known)
    values, moved = np.maximum(values, 0.0), basis.T @ (later.at - earlier.at)
    part = float(values @ moved**2) * d / max(float(values.sum()), 1e-300)
    own, doubt = symmetric_pattern(d), part * np.outer(values, values)
    # Noise is the same in all orthonormal coordinates.
    first, last = (basis.T @ asked.value @ basis for asked in (earlier, later))
    value, variances = average(last, later.noise**2 * own, first, earlier.noise**2 * own + doubt)
    return basis @ value @ basis.T, carried(variances, basis.T)
