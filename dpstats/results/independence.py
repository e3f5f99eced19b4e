"""A test of independence of two crossed columns that knows the noise in the counts."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.protocol.descriptive import CrosstabEstimate

__all__ = ["Independence", "independence"]

Array = NDArray[np.float64]

_STEPS = 8  # of Gauss and Newton
_LEAST = 0.5  # ratio of the least margin to the noise of a count
_HIDDEN = 1.0  # ratio: a margin to the noise in it, below which it takes no degree of freedom


class Independence(NamedTuple):
    """What `scipy.stats.chi2_contingency` calls these.

    Attributes
    ----------
    statistic, pvalue : float
    dof : int
    expected_freq : ndarray of shape (r, c)
        Counts of the independent table that is nearest.
    """

    statistic: float
    pvalue: float
    dof: int
    expected_freq: Array


def independence(made: CrosstabEstimate) -> Independence:
    """Least chi-squared distance of noisy counts from an independent table.

    min over p of (x - N p)' V^+ (x - N p), V = f N (diag p - p p') + s^2 I + s_N^2 p p' where
    counts may differ (their sum N is given), by Gauss and Newton steps over the margins; referred
    to chi-squared with (r - 1)(c - 1) degrees of freedom. f is the sampling variance over that of
    independent rows, s the noise of a count, s_N that of N.

    A margin that its noise exceeds cannot make up for noise, being no less than 0, and takes no
    degree of freedom: at the true p the distance has r c - 1 of them, and each margin that is
    fitted takes one. So few rows make the test refuse too seldom, not too often.
    """
    from scipy.stats import chi2

    shape = len(made.rows_of), len(made.columns_of)
    k, n = made.counts.size, made.rows
    observed = made.counts.reshape(shape)
    least = max(_LEAST * made.noise_sd, 0.5) / n
    row, column = (_margin(observed.sum(axis=axis) / n, least) for axis in (1, 0))
    basis = np.linalg.qr(np.column_stack([np.ones(k), np.eye(k)[:, 1:]]))[0][:, 1:]
    seen = basis.T @ made.counts
    sum_noise = made.noise_sd**2 * (k - made.kappa * k**2)
    statistic = 0.0
    for step in range(_STEPS + 1):
        p = np.outer(row, column).ravel()
        spread = made.effect * n * np.diag(p) + (sum_noise - made.effect * n) * np.outer(p, p)
        inverse = np.linalg.inv(basis.T @ spread @ basis + made.noise_sd**2 * np.eye(k - 1))
        gap = seen - n * (basis.T @ p)
        statistic = float(gap @ inverse @ gap)
        if step == _STEPS:
            break
        moved = np.column_stack(
            [np.kron(direction, column) for direction in _directions(row.size).T]
            + [np.kron(row, direction) for direction in _directions(column.size).T]
        )
        slope = n * (basis.T @ moved)
        change = np.linalg.lstsq(slope.T @ inverse @ slope, slope.T @ inverse @ gap, rcond=None)[0]
        row = _margin(row + _directions(row.size) @ change[: row.size - 1], least)
        column = _margin(column + _directions(column.size) @ change[row.size - 1 :], least)
    dof = (shape[0] - 1) * (shape[1] - 1)
    for margin, cells in ((row, column.size), (column, row.size)):
        hidden = int(np.count_nonzero(n * margin < _HIDDEN * made.noise_sd * math.sqrt(cells)))
        dof += min(hidden, margin.size - 1)
    return Independence(statistic, float(chi2.sf(statistic, dof)), dof, n * np.outer(row, column))


def _margin(shares: Array, least: float) -> Array:
    held = np.maximum(shares, least)
    total: Array = held / held.sum()
    return total


def _directions(size: int) -> Array:
    """Changes of shares that add up to 0, shape (size, size - 1)."""
    return np.vstack([-np.ones(size - 1), np.eye(size - 1)])
