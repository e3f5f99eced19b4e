"""Tests and intervals of single coefficients that are exact, and short where others know something.

An estimate x ~ N(theta, s^2) comes with a prior N(m, v) that does not depend on x: of other sites,
and of the other coefficients. Among tests of theta of level alpha the one that is expected to
reject most often under that prior rejects where the density of x at theta over that under the prior
is least (Neyman and Pearson). Both are normal, so it accepts an interval of x, about
theta + (theta - m) s^2 / v; with t = (x - theta) / s and b = (theta - m) s / v its p-value is

    p(theta) = 1 - |Phi(t) - Phi(2 b - t)|.

That is uniform at the true theta, whatever the prior is: a wrong prior makes the interval
{theta: p(theta) >= alpha} longer, never wrong (Pratt 1961; Yu and Hoff 2018). p is 1 at the
posterior mean and falls on both sides of it, as t falls and 2 b - t rises in theta.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["bounds", "deviates"]

Array = NDArray[np.float64]

_HALVINGS = 60  # number: of steps of a bisection, to the last bit


def _ends(theta: Array, x: Array, se: Array, mean: Array, var: Array) -> tuple[Array, Array]:
    """t and 2 b - t, the smaller first: p is Phi(first) + Phi(-second)."""
    t = (x - theta) / se
    other = 2 * (theta - mean) * se / var - t
    return np.minimum(t, other), np.maximum(t, other)


def _centre(x: Array, se: Array, mean: Array, var: Array) -> Array:
    """Where p is 1: the posterior mean."""
    centre: Array = (x * var + mean * se**2) / (var + se**2)
    return centre


def bounds(x: Array, se: Array, mean: Array, var: Array, alpha: float) -> Array:
    """Intervals of level 1 - alpha of each theta, shape (d, 2)."""
    from scipy.special import ndtr, ndtri

    centre, reach = _centre(x, se, mean, var), -ndtri(alpha / 2) * se
    # Beyond x, the prior's mean and `reach` p is at most 2 Phi(t) <= alpha.
    far = np.minimum(x, mean) - reach, np.maximum(x, mean) + reach
    found = []
    for outside in far:
        inside = centre
        for _ in range(_HALVINGS):
            middle = (inside + outside) / 2
            low, high = _ends(middle, x, se, mean, var)
            within = ndtr(low) + ndtr(-high) >= alpha
            inside, outside = np.where(within, middle, inside), np.where(within, outside, middle)
        found.append(inside)
    return np.column_stack(found)


def deviates(x: Array, se: Array, mean: Array, var: Array) -> Array:
    """z of ``theta = 0`` with p = 2 Phi(-|z|), of the sign of the posterior mean, shape (d,)."""
    from scipy.special import log_ndtr, ndtri_exp

    low, high = _ends(np.zeros_like(x), x, se, mean, var)
    log = np.logaddexp(log_ndtr(low), log_ndtr(-high))
    signs = np.sign(_centre(x, se, mean, var))
    z: Array = -ndtri_exp(np.minimum(log, 0.0) - np.log(2)) * signs
    return z
