"""Noisy symmetric matrices with known entry variances: combining and carrying them.

A symmetric answer released with noise of one scale s on its isometric coordinates has independent
entries with variance s^2 on the diagonal and s^2/2 off it. Two estimates of one matrix are averaged
entry by entry with weights inverse to their variances, and variances are carried through a change
of coordinates. All is post-processing; a wrong variance costs accuracy, never privacy.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["average", "carried", "operator_norm", "symmetric_pattern"]

Array = NDArray[np.float64]


def symmetric_pattern(d: int) -> Array:
    """1 on the diagonal and 1/2 off it: entry variances of symmetric noise of scale 1."""
    pattern: Array = (np.eye(d) + 1) / 2
    return pattern


def operator_norm(variances: Array) -> float:
    """Size of the eigenvalues of symmetric noise with these entry variances.

    With mean variance v: sqrt(2 d v), between the root mean square sqrt(d v) of the eigenvalues and
    their largest, about 2 sqrt(d v) for large d (the semicircle law). For noise of one scale s this
    is s sqrt(d + 1).
    """
    d = len(variances)
    return math.sqrt(2 * d * float(np.mean(variances)))


def carried(variances: Array, change: Array) -> Array:
    """Entry variances of ``change' E change`` from those of a symmetric E, shape (d, d).

    Exact for i != j up to the covariance of E_kl with itself across the diagonal of the result,
    which is kept for the diagonal only.
    """
    squared = change**2
    off = variances - np.diag(np.diag(variances))
    moved: Array = squared.T @ variances @ squared + np.diag(np.diag(squared.T @ off @ squared))
    return moved


def average(a: Array, var_a: Array, b: Array, var_b: Array) -> tuple[Array, Array]:
    """Entrywise mean of two estimates, weights inverse to their variances; and its variances."""
    precision = 1 / var_a + 1 / var_b
    return (a / var_a + b / var_b) / precision, 1 / precision
