"""Released descriptions of columns: distribution functions, quantiles, and tables of counts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError
from dpstats.protocol.criticals import (
    USUAL,
    critical,
    of_variance,
    presumed_of_tails,
    stated_error,
)
from dpstats.protocol.estimate import ParameterTable

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = [
    "CountsEstimate",
    "CrosstabEstimate",
    "DescribeEstimate",
    "Distribution",
    "HistogramEstimate",
    "ProportionEstimate",
    "QuantileEstimate",
    "bin_names",
    "described_names",
    "quantile_names",
]

Array = NDArray[np.float64]
_NORMAL = 1.959963984540054
_FINEST = 30  # binary digits of a range that are printed of a value in it


@dataclass(frozen=True, eq=False)
class Distribution:
    """The released distribution function of a column, as counts of rows on public edges.

    Attributes
    ----------
    edges : ndarray of shape (c + 1,)
        In the user's units, of the cells (e_0, e_1], ...; no value lies beyond the ends.
    below : ndarray of shape (c,)
        Released numbers of values at or below each edge but the first; they do not decrease.
    variance, shared : ndarray of shape (c,)
        Of the noise in them before they were made so, and its covariance with that in the last.
    effect : float
        Sampling variance of a count over that of independent rows; at most the rows of a unit.
    """

    edges: Array
    below: Array
    variance: Array
    shared: Array
    effect: float = 1.0

    def __post_init__(self) -> None:  # it may come from a file
        sizes = {self.edges.size - 1, self.below.size, self.variance.size, self.shared.size}
        rising = np.all(np.diff(self.edges) > 0) and np.all(np.diff(self.below) >= 0)
        if len(sizes) != 1 or self.below.size < 1 or not (rising and self.below[-1] > 0):
            raise OptionError("distribution: edges that increase are needed, and counts at each.")

    @property
    def rows(self) -> float:
        """Released number of values."""
        return float(self.below[-1])

    def quantile(self, q: float) -> float:
        """The value with a share q of the others below it, linear within a cell."""
        at = min(int(np.searchsorted(self.below, q * self.rows)), self.below.size - 1)
        before = float(self.below[at - 1]) if at else 0.0
        inside = float(self.below[at]) - before
        part = (q * self.rows - before) / inside if inside > 0 else 0.5
        return float(self.edges[at] + part * (self.edges[at + 1] - self.edges[at]))

    def ranks(self) -> Array:
        """Of each cell, the share of rows below it less that of those above, shape (c,)."""
        before = np.append(0.0, self.below[:-1])
        middle: Array = (before + self.below) / self.rows - 1
        return middle

    def printed(self, values: Array) -> Array:
        """Values, or ends of intervals, to 2^-30 of the range: a mass at 0 is at 0."""
        unit = 2.0 ** (math.floor(math.log2(self.edges[-1] - self.edges[0])) - _FINEST)
        rounded: Array = np.round(values / unit) * unit
        return rounded

    def spread(self, q: float) -> tuple[Array, float]:
        """Variance of the noise in ``below - q rows`` at each edge, and that of its sampling."""
        noise = self.variance - 2 * q * self.shared + q**2 * self.shared[-1]
        return np.maximum(noise, 0.0), self.effect * q * (1 - q) * self.rows

    def interval(self, q: float, alpha: float) -> tuple[float, float]:
        """All values that a test of level alpha does not refuse as the q-quantile.

        Whole cells: a quantile at a value that many rows have is in it, too.
        """
        noise, sampling = self.spread(q)
        gap, reach = self.below - q * self.rows, critical(alpha) * np.sqrt(noise + sampling)
        high = gap >= -reach  # enough rows at or below its upper edge
        low = np.append(True, gap[:-1] <= reach[:-1])  # not too many at or below its lower edge
        kept = np.flatnonzero(high & low)
        if not kept.size:  # the function jumps over both
            at = min(int(np.searchsorted(gap, 0.0)), gap.size - 1)
            kept = np.array([at])
        return float(self.edges[kept[0]]), float(self.edges[kept[-1] + 1])


def quantile_names(levels: tuple[float, ...]) -> tuple[str, ...]:
    """Quantiles by name, as pandas' ``describe`` writes them: ``25%``."""
    return tuple(f"{100 * q:.6g}%" for q in levels)


@dataclass(frozen=True, eq=False)
class QuantileEstimate:
    """Quantiles of a column.

    Attributes
    ----------
    levels : tuple of float
        Between 0 and 1.
    distribution : Distribution
        What they are read of.
    nobs, released, remarks
        As for every `Estimate`; `nobs` is the released number of values.
    """

    levels: tuple[float, ...]
    distribution: Distribution
    nobs: float
    released: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:  # it may come from a file
        if not self.levels or not all(0 < q < 1 for q in self.levels):
            raise OptionError("estimate: levels between 0 and 1 are needed.")

    def bounds(self, alpha: float) -> Array:
        """Intervals of level 1 - alpha, shape (q, 2)."""
        found = np.array([self.distribution.interval(q, alpha) for q in self.levels])
        return self.distribution.printed(found)

    def table(self, design: Design) -> ParameterTable:
        """The quantiles; a standard error is the longer side of a 95 % interval over 1.96."""
        values = self.distribution.printed(
            np.array([self.distribution.quantile(q) for q in self.levels])
        )
        sides = np.abs(self.bounds(USUAL) - values[:, None]).max(axis=1)
        shares = []
        for q in self.levels:
            noise, sampling = self.distribution.spread(q)
            at = int(np.searchsorted(self.distribution.below, q * self.distribution.rows))
            of_noise = float(noise[min(at, noise.size - 1)])
            shares.append(sampling / (sampling + of_noise))
        cov = np.diag((sides / _NORMAL) ** 2)
        sampling = cov * np.array(shares)
        return ParameterTable(
            names=quantile_names(self.levels),
            groups=("quantiles",) * values.size,
            values=values,
            inner=np.arange(values.size),
            cov=cov,
            cov_privacy=cov - sampling,
            cov_sampling=sampling,
            testable=np.zeros(values.size, dtype=np.bool_),
            bounds=self.bounds,
        )


@dataclass(frozen=True, eq=False)
class CountsEstimate:
    """Counts of rows in the cells of a table, with noise of one standard deviation in each.

    Attributes
    ----------
    cells : tuple of str
        Names of the K cells.
    counts : ndarray of shape (K,)
        Noisy and unbiased; given the public number of rows, if there is one.
    missing : float
        The same of rows that miss a value; nan where they were not counted.
    noise_sd : float
        Standard deviation of the noise in one count, before the number of rows was used.
    known_rows : int
        Public number of rows that all counts and `missing` add up to; 0 where it is private.
    effect : float
        Sampling variance of a count over that of independent rows; at most the rows of a unit.
    nobs, released, remarks
        As for every `Estimate`; `nobs` is the released number of rows with all values.
    noise : ndarray of shape (K, K), optional
        Covariance of the noise in the counts, where it is not that of `noise_sd` in each of them,
        and in `missing`.
    laplace : bool
        Whether the noise has tails of Laplace's law.
    """

    cells: tuple[str, ...]
    counts: Array
    missing: float
    noise_sd: float
    known_rows: int
    effect: float
    nobs: float
    released: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    noise: Array | None = None
    laplace: bool = False

    def __post_init__(self) -> None:  # it may come from a file
        sound = self.counts.shape == (len(self.cells),) and len(self.cells) > 0
        sound = sound and (self.noise is None or self.noise.shape == self.counts.shape * 2)
        if not (sound and np.isfinite(self.counts).all() and self.noise_sd >= 0 < self.effect):
            raise OptionError("estimate: a count of each cell is needed.")

    @property
    def rows(self) -> float:
        """Rows that have all values, at least one."""
        return max(float(self.counts.sum()), 1.0)

    @property
    def consistent(self) -> Array:
        """The counts that are nearest among those that are not negative and add up, shape (K,)."""
        if not self.known_rows:
            return on_simplex(self.counts, self.rows)
        whole = np.append(self.counts, self.missing)
        return on_simplex(whole, float(self.known_rows))[:-1]

    @property
    def shares(self) -> Array:
        """Share of each cell, shape (K,); they add up to 1."""
        counts = self.consistent
        total = counts.sum()
        return np.asarray(counts / total if total > 0 else np.full(counts.size, 1 / counts.size))

    @property
    def kappa(self) -> float:
        """What knowing the number of rows takes off the noise of a sum of counts, in each count."""
        return 1 / (self.counts.size + 1) if self.known_rows else 0.0

    @property
    def covariance(self) -> Array:
        """Of the noise in the counts, shape (K, K)."""
        if self.noise is not None:
            return self.noise
        law: Array = self.noise_sd**2 * (np.eye(self.counts.size) - self.kappa)
        return law

    def bounds(self, alpha: float) -> Array:
        """Wilson's intervals of the shares with the noise in them, shape (K, 2).

        All p with (c - p N)^2 <= z^2 (f N p (1 - p) + v(p)), c being the noisy count, N their sum,
        f the `effect`, and v(p) the variance of the noise in c - p N. Of Laplace noise v(p) has the
        square of the critical value of its own law, so that intervals hold where it dominates.
        """
        z2, k, n = critical(alpha) ** 2, self.counts.size, self.rows
        own = math.log(alpha) ** 2 / 2 if self.laplace else z2  # (log(1/alpha) scale)^2, in sd^2
        noise, sampling = own * self.covariance, z2 * self.effect * n
        a = n**2 + sampling - noise.sum()
        b = -2 * self.counts * n - sampling + 2 * noise.sum(axis=1)
        c = self.counts**2 - np.diag(noise)
        if a <= 0:  # noise hides how many rows there are
            return np.tile([0.0, 1.0], (k, 1))
        root = np.sqrt(np.maximum(b * b - 4 * a * c, 0.0))
        low, high = (-b - root) / (2 * a), (-b + root) / (2 * a)
        ends = np.column_stack([np.minimum(low, self.shares), np.maximum(high, self.shares)])
        held: Array = np.clip(ends, 0.0, 1.0)
        return held

    def table(self, design: Design) -> ParameterTable:
        """The shares of all cells."""
        p, n, k = self.shares, self.rows, self.counts.size
        contrast = np.eye(k) - p[:, None]
        privacy = contrast @ self.covariance @ contrast.T / n**2
        spread = np.clip(p, self.noise_sd / n, None)
        sampling = self.effect / n * (np.diag(spread) - np.outer(p, p))
        return ParameterTable(
            names=self.cells,
            groups=("shares",) * k,
            values=p,
            inner=np.arange(k),
            cov=privacy + sampling,
            cov_privacy=privacy,
            cov_sampling=sampling,
            testable=np.zeros(k, dtype=np.bool_),
            bounds=self.bounds,
        )


class ProportionEstimate(CountsEstimate):
    """Shares of the levels of a column."""


@dataclass(frozen=True, eq=False)
class HistogramEstimate(CountsEstimate):
    """Shares of the bins of a column.

    Attributes
    ----------
    edges : ndarray of shape (K + 1,)
        Of the bins, in the user's units.
    """

    edges: Array = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.edges.shape != (len(self.cells) + 1,) or np.any(np.diff(self.edges) <= 0):
            raise OptionError("estimate: edges that increase are needed, one more than bins.")

    def table(self, design: Design) -> ParameterTable:
        """The shares of all bins, which are named by their ends."""
        return replace(super().table(design), names=bin_names(self.edges))


def bin_names(edges: Array | Sequence[float]) -> tuple[str, ...]:
    """Bins by their ends: the first one holds both of them."""
    signs = ("[", *"(" * (len(edges) - 2))
    return tuple(f"{s}{a:.6g}, {b:.6g}]" for s, (a, b) in zip(signs, pairwise(edges), strict=True))


def on_simplex(values: Array, total: float) -> Array:
    """The nearest vector that is not negative and adds up to `total` > 0."""
    ordered = np.sort(values)[::-1]
    excess = (np.cumsum(ordered) - total) / np.arange(1, ordered.size + 1)
    last = np.flatnonzero(ordered > excess)[-1]
    nearest: Array = np.maximum(values - excess[last], 0.0)
    return nearest * (total / nearest.sum()) if nearest.sum() > 0 else nearest


_QUARTILES = (0.25, 0.5, 0.75)
_STATISTICS = ("mean", "std", *quantile_names(_QUARTILES))


def described_names(columns: Sequence[str]) -> tuple[str, ...]:
    """Names of what is said of columns, as parameters."""
    return tuple(f"{what} of {name}" for name in columns for what in _STATISTICS)


@dataclass(frozen=True, eq=False)
class DescribeEstimate:
    """Mean, standard deviation and quartiles of k columns.

    Attributes
    ----------
    columns : tuple of str
    distributions : tuple of Distribution
        One of each column.
    moments : ndarray of shape (k, 2)
        Mean and standard deviation, in the user's units.
    variances, of_noise : ndarray of shape (k, 2)
        Of their errors, and the part of these that is noise of known law.
    beyond : ndarray of shape (k,)
        What values outside of the windows may add to standard deviations; those of files that
        have none are within `variances`.
    windows : ndarray of shape (k, 2)
        To which values were held for the moments.
    missing : ndarray of shape (k,)
        Released numbers of missing values; nan where they were not counted.
    nobs, released, remarks
        As for every `Estimate`.
    """

    columns: tuple[str, ...]
    distributions: tuple[Distribution, ...]
    moments: Array
    variances: Array
    of_noise: Array
    windows: Array
    missing: Array
    nobs: float
    released: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    beyond: Array | None = None

    def __post_init__(self) -> None:  # it may come from a file
        k = len(self.columns)
        pairs = {a.shape for a in (self.moments, self.variances, self.of_noise, self.windows)}
        single = {self.missing.shape} | ({self.beyond.shape} if self.beyond is not None else set())
        if pairs != {(k, 2)} or single != {(k,)} or len(self.distributions) != k:
            raise OptionError("estimate: two moments and a distribution of each column are needed.")

    @property
    def quantiles(self) -> tuple[QuantileEstimate, ...]:
        """The quartiles of each column."""
        return tuple(QuantileEstimate(_QUARTILES, d, d.rows) for d in self.distributions)

    def _of_moments(self, alpha: float) -> Array:
        """Intervals of means and standard deviations, shape (k, 2, 2)."""
        (mean, root), (error, se) = self.moments.T, np.sqrt(self.variances).T
        beyond = np.zeros(root.size) if self.beyond is None else self.beyond
        reach = critical(alpha) * error
        means = np.stack([mean - reach, mean + reach], axis=-1)
        return np.stack([means, np.sqrt(of_variance(root, se, beyond, alpha))], axis=1)

    def _bounds(self, alpha: float) -> Array:
        inverted = [quartiles.bounds(alpha) for quartiles in self.quantiles]
        return np.concatenate([self._of_moments(alpha), inverted], axis=1).reshape(-1, 2)

    def table(self, design: Design) -> ParameterTable:
        """All of it, one column after the other."""
        tables = [quartiles.table(design) for quartiles in self.quantiles]
        errors = stated_error(self.moments, self._of_moments(USUAL))
        parts = [
            (self.moments, [t.values for t in tables]),
            (errors**2, [np.diag(t.cov) for t in tables]),
            (self.of_noise, [np.diag(t.cov_privacy) for t in tables]),
        ]
        values, total, noise = (np.concatenate(both, axis=1).ravel() for both in parts)
        return ParameterTable(
            names=described_names(self.columns),
            groups=tuple(name for name in self.columns for _ in _STATISTICS),
            values=values,
            inner=np.arange(values.size),
            cov=np.diag(total),
            cov_privacy=np.diag(noise),
            cov_sampling=np.diag(np.maximum(total - noise, 0.0)),
            testable=np.zeros(values.size, dtype=np.bool_),
            inference=presumed_of_tails(self.released),
            bounds=self._bounds,
        )


@dataclass(frozen=True, eq=False)
class CrosstabEstimate(CountsEstimate):
    """Shares of the cells of two crossed columns.

    Attributes
    ----------
    rows_of, columns_of : tuple of str
        Names of the levels; the cells are in the order of rows.
    """

    rows_of: tuple[str, ...] = ()
    columns_of: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.rows_of) * len(self.columns_of) != len(self.cells) or len(self.rows_of) < 2:
            raise OptionError("estimate: a count of each pair of levels is needed.")
