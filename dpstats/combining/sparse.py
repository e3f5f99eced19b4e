"""Sparse estimates of several sites: the target's, drawn to those near it, and cut."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["SparseAverage", "alike", "averaged"]

Array = NDArray[np.float64]

_LEVEL = 0.05  # probability: of setting aside any site that is alike
_NEAR = 0.25  # share: of sites that are alike, at least, that a site's scale is taken from


class SparseAverage(NamedTuple):
    """What sparse estimates (K + 1, d) say of the first of them.

    Attributes
    ----------
    value : ndarray of shape (d,)
        The target's, drawn to the average of the sources that are kept; its largest s entries.
    support : tuple of int
        Columns of these entries, ascending.
    kept : ndarray of bool, shape (K + 1,)
        Which sites are in the average.
    share : float
        Of the sources in the value, in [0, 1].
    distances : ndarray of shape (K + 1,)
        Squared distance of each from the target, about chi-squared with s degrees of freedom where
        it is like it.
    voted : tuple of int
        Columns of the largest s entries of the average of all that are kept, the target like any
        other; ascending.
    apart : float
        How far the sites that are kept are apart: the median of their squared distances over what
        the expected errors of both make of these, of all pairs or of the target with the others,
        whichever is more. Above 1 they differ by more than their errors; 0 of one site.
    """

    value: Array
    support: tuple[int, ...]
    kept: NDArray[np.bool_]
    share: float
    distances: Array
    voted: tuple[int, ...]
    apart: float


def alike(slopes: Array, rows: Array, s: int) -> tuple[NDArray[np.bool_], Array]:
    """Which of several sparse estimates are like the first, and how far each is from it.

    Sparse fits release no covariance, so that what two sites that are alike differ by is taken from
    the sites: the median over sites of the lower quartile of squared distances to the others, each
    over the sum of their errors. Where most sites are alike that is the lower quartile of a
    chi-squared law of s degrees of freedom in the same unit, and a site is not alike beyond the
    quantile 1 - .05 / K of this law. Of fewer than three sites all are taken to be, and no distance
    is known.

    Parameters
    ----------
    slopes : ndarray of shape (K + 1, d)
        Estimates in units in which all columns are alike; the target's first.
    rows : ndarray of shape (K + 1,)
        Of each site. The error of a site is taken to be in inverse proportion to its rows.
    s : int
        Entries that are not 0.
    """
    from scipy.stats import chi2

    count = len(slopes)
    if count < 3:
        return np.ones(count, dtype=np.bool_), np.full(count, np.nan)
    unit = (1 / rows[:, None] ** 2 + 1 / rows[None, :] ** 2) * np.mean(rows**2) / 2
    squared = ((slopes[:, None] - slopes[None, :]) ** 2).sum(axis=2) / unit
    others = squared[~np.eye(count, dtype=np.bool_)].reshape(count, count - 1)
    quartile = float(np.median(np.quantile(others, _NEAR, axis=1)))
    distances: Array = squared[0] * chi2.ppf(_NEAR, s) / max(quartile, 1e-300)
    return distances <= chi2.ppf(1 - _LEVEL / (count - 1), s), distances


def averaged(
    theta: Array, rows: Array, error: float, s: int, always: int | None = None
) -> SparseAverage:
    """The target's estimate, drawn to the mean of the sources near it, and cut to s entries.

    A source that is not `alike` is set aside.

    The target moves to the mean m of the sources that are left, weighed by rows, by the share
    ``min(w, e^2 / ||theta_0 - m||^2)``, with e^2 the squared error that is expected of the target's
    own fit, and w the sources' share of the rows. That is the positive-part rule of James and
    Stein: near m it pools, and far from it the target is left alone.

    Averaging before the cut keeps a column that a few sites missed, and divides the noise of one
    that only one site chose by their number.

    Parameters
    ----------
    theta : ndarray of shape (K + 1, d)
        Estimates in units in which all columns are alike; the target's first.
    rows : ndarray of shape (K + 1,)
        Of each site. The error of a site is taken to be in inverse proportion to its rows.
    error : float
        Expected error of the target's own slopes, over their length.
    s : int
        Entries to keep.
    always : int, optional
        A column that is in anyway, and is not counted: the intercept.
    """
    count, d = theta.shape
    slopes = np.delete(theta, always, axis=1) if always is not None else theta
    kept, distances = alike(slopes, rows, s)
    value, share, sources = theta[0], 0.0, rows * kept * (np.arange(count) > 0)
    if sources.any():
        mean = sources @ theta / sources.sum()
        own, others = slopes[0], sources @ slopes / sources.sum()
        pooled = float(sources.sum() / (sources.sum() + rows[0]))
        length = float(np.linalg.norm(pooled * others + (1 - pooled) * own))
        apart = max(float(np.linalg.norm(own - others)), 1e-300)
        share = min(pooled, (error * length / apart) ** 2)
        value = value + share * (mean - value)
    support, together = _largest(value, s, always), (rows * kept) @ theta
    cut = np.zeros(d)
    cut[list(support)] = value[list(support)]
    apart = _apart(slopes[kept], rows[kept], error * rows[0])
    return SparseAverage(cut, support, kept, share, distances, _largest(together, s, always), apart)


def _apart(slopes: Array, rows: Array, error: float) -> float:
    """See `SparseAverage`; `error` is that of one row, over the length of the slopes."""
    if len(slopes) < 2:
        return 0.0
    length = float(np.linalg.norm(rows @ slopes / rows.sum()))
    expected = (error * length) ** 2 * (1 / rows[:, None] ** 2 + 1 / rows[None, :] ** 2)
    squared = ((slopes[:, None] - slopes[None, :]) ** 2).sum(axis=2)
    ratio = squared / np.maximum(expected, 1e-300)
    pairs = ratio[np.triu_indices(len(slopes), 1)]
    return float(max(np.median(pairs), np.median(ratio[0, 1:])))


def _largest(value: Array, s: int, always: int | None) -> tuple[int, ...]:
    """Places of the largest s entries that are not 0, and the one that is in anyway."""
    sizes = np.abs(value)
    if always is not None:
        sizes[always] = 0.0
    chosen = {int(j) for j in np.argsort(-sizes, kind="stable")[:s] if sizes[j] > 0}
    return tuple(sorted(chosen | ({always} if always is not None else set())))
