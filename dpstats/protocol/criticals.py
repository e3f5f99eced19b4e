"""Critical values of intervals, and intervals of numbers that are known but for an allowance."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["USUAL", "allowing", "critical", "of_variance", "stated_error"]

Array = NDArray[np.float64]

USUAL = 0.05  # wording: level of the interval that a standard error is read of
_HALVINGS = 50  # numerical: of where the critical value is sought


def critical(alpha: float) -> float:
    """Two-sided critical value of the normal law."""
    from scipy.special import ndtri

    return float(-ndtri(alpha / 2))


def allowing(values: ArrayLike, se: ArrayLike, beyond: ArrayLike, alpha: float) -> Array:
    """Intervals of numbers that lie up to `beyond` above of what is estimated, shape (k, 2).

    Those of Imbens and Manski (2004): (value - c se, value + beyond + c se), where Phi(c + beyond /
    se) - Phi(-c) = 1 - alpha. Each number from value to value + beyond is covered alike; c is
    the two-sided critical value where nothing is allowed for, the one-sided one where much is.
    """
    from scipy.special import ndtr

    values, se, beyond = (np.asarray(a, dtype=np.float64) for a in (values, se, beyond))
    low, high = np.full(se.shape, critical(min(2 * alpha, 1.0))), np.full(se.shape, critical(alpha))
    apart = np.divide(beyond, se, out=np.zeros(se.shape), where=se > 0)
    for _ in range(_HALVINGS if np.any(apart) else 0):
        middle = (low + high) / 2
        enough = ndtr(middle + apart) - ndtr(-middle) >= 1 - alpha
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.stack([values - high * se, values + beyond + high * se], axis=-1)


def of_variance(root: ArrayLike, se: ArrayLike, beyond: ArrayLike, alpha: float) -> Array:
    """Intervals of variances whose roots are estimated, with their errors and allowances.

    They are made of the variances, of which noise is normal, and do not reach below 0.
    """
    root, se, beyond = (np.asarray(a, dtype=np.float64) for a in (root, se, beyond))
    found = allowing(root**2, 2 * root * se, beyond * (2 * root + beyond), alpha)
    return np.maximum(found, 0.0)


def stated_error(value: ArrayLike, ends: Array) -> Array:
    """Standard errors that are stated of 95 % intervals: their longer side over 1.96."""
    longer: Array = np.abs(ends - np.asarray(value)[..., None]).max(axis=-1)
    return longer / critical(USUAL)
