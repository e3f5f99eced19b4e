"""Critical values of intervals, and intervals of numbers that are known but for an allowance."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["allowing", "critical", "stated_error"]

Array = NDArray[np.float64]

_USUAL = 0.05  # wording: level of the interval that a standard error is read of
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


def stated_error(se: ArrayLike, beyond: ArrayLike) -> Array:
    """Standard errors that are stated: the longer side of a 95 % interval over 1.96."""
    longer: Array = allowing(0.0 * np.asarray(se), se, beyond, _USUAL)[..., 1]
    return longer / critical(_USUAL)
