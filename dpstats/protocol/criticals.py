"""Critical values of intervals, and intervals of numbers that are known but for an allowance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "USUAL",
    "allowing",
    "critical",
    "critical_beyond",
    "of_variance",
    "presumed_of_tails",
    "rows_hidden",
    "stated_error",
]

Array = NDArray[np.float64]

USUAL = 0.05  # wording: level of the interval that a standard error is read of
_HALVINGS = 50  # numerical: of where the critical value is sought


def critical(alpha: float) -> float:
    """Two-sided critical value of the normal law."""
    from scipy.special import ndtri

    return float(-ndtri(alpha / 2))


def critical_beyond(se: ArrayLike, beyond: ArrayLike, alpha: float) -> Array:
    """Critical values c of Imbens and Manski (2004): Phi(c + beyond / se) - Phi(-c) = 1 - alpha.

    Each number from a value to value + beyond is covered alike by (value - c se, value + beyond +
    c se); c is the two-sided critical value where nothing is allowed for, the one-sided one where
    much is.
    """
    from scipy.special import ndtr

    se, beyond = (np.asarray(a, dtype=np.float64) for a in (se, beyond))
    low, high = np.full(se.shape, critical(min(2 * alpha, 1.0))), np.full(se.shape, critical(alpha))
    apart = np.divide(beyond, se, out=np.zeros(se.shape), where=se > 0)
    for _ in range(_HALVINGS if np.any(apart) else 0):
        middle = (low + high) / 2
        enough = ndtr(middle + apart) - ndtr(-middle) >= 1 - alpha
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high


def allowing(values: ArrayLike, se: ArrayLike, beyond: ArrayLike, alpha: float) -> Array:
    """Intervals of numbers that lie up to `beyond` above of what is estimated, shape (k, 2)."""
    values, se, beyond = (np.asarray(a, dtype=np.float64) for a in (values, se, beyond))
    reach = critical_beyond(se, beyond, alpha) * se
    return np.stack([values - reach, values + beyond + reach], axis=-1)


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


def rows_hidden(released: Mapping[str, Any]) -> int:
    """Rows at an end of a column of which noise hides how far out they are; the most of all."""
    hidden = released.get("rows hidden at an end")  # a file may hold anything there
    counts = list(hidden.values()) if isinstance(hidden, Mapping) else [hidden]
    return max((rows for rows in counts if type(rows) is int), default=0)


def presumed_of_tails(released: Mapping[str, Any]) -> str:
    """What intervals of moments hold for, where some of the rows are hidden."""
    return "if tails go on as they look" if rows_hidden(released) > 0 else ""
