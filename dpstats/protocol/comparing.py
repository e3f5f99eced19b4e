"""Released comparisons: means of groups, differences of two, correlations of columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
    "CorrelationEstimate",
    "DifferenceEstimate",
    "GroupMeansEstimate",
    "VarianceEstimate",
    "pair_names",
]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class GroupMeansEstimate:
    """Means of a column in G groups, of noisy counts and sums of scores in [-1, 1].

    Attributes
    ----------
    groups : tuple of str
    counts, sums, spreads : ndarray of shape (G,)
        Noisy numbers of rows and sums of scores, and the variance of a score.
    count_sd, sum_sd : float
        Standard deviations of the noise in a count and in a sum.
    centre, half : float
        A score z stands for centre + half z.
    allowance : float
        For values beyond the window, as a standard deviation in the user's units.
    effect : float
        Sampling variance of a sum over that of independent rows; at most the rows of a unit.
    nobs, released, remarks
        As for every `Estimate`.
    """

    groups: tuple[str, ...]
    counts: Array
    sums: Array
    spreads: Array
    count_sd: float
    sum_sd: float
    centre: float
    half: float
    allowance: float
    effect: float
    nobs: float
    released: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:  # it may come from a file
        shapes = {a.shape for a in (self.counts, self.sums, self.spreads)}
        if shapes != {(len(self.groups),)} or not (self.half > 0 < self.effect):
            raise OptionError("estimate: a count, a sum and a variance of each group are needed.")

    @property
    def hidden(self) -> tuple[int, ...]:
        """Groups of fewer rows than three standard deviations of the noise in their number."""
        return tuple(map(int, np.flatnonzero(self.counts < 3 * self.count_sd)))

    @property
    def rows(self) -> Array:
        """Rows of each group that means are made with, shape (G,)."""
        return np.maximum(self.counts, np.maximum(self.count_sd, 1.0))

    @property
    def means(self) -> Array:
        """Mean score of each group, shape (G,); 0 where the group is hidden."""
        found = np.clip(self.sums / self.rows, -1.0, 1.0)
        found[list(self.hidden)] = 0.0
        return found

    @property
    def variances(self) -> tuple[Array, Array]:
        """Sampling and noise variances of the mean scores, each of shape (G,)."""
        noise = (self.sum_sd**2 + (self.count_sd * self.means) ** 2) / self.rows**2
        return self.effect * self.spreads / self.rows, noise

    def bounds(self, alpha: float) -> Array:
        """Fieller's intervals with the noise in them, in the user's units, shape (G, 2).

        All m with (S - m N)^2 <= z^2 (f N v + s_S^2 + m^2 s_N^2), S and N being the noisy sum and
        count, v the variance of a score; all of the window where noise hides the group.
        """
        z2, n = critical(alpha) ** 2, self.counts
        a = n**2 - z2 * self.count_sd**2
        b = -2 * self.sums * n
        c = self.sums**2 - z2 * (self.effect * self.rows * self.spreads + self.sum_sd**2)
        with np.errstate(invalid="ignore", divide="ignore"):
            root = np.sqrt(np.maximum(b * b - 4 * a * c, 0.0))
            ends = np.stack([(-b - root) / (2 * a), (-b + root) / (2 * a)], axis=1)
        lost = (a <= 0) | np.isin(np.arange(n.size), self.hidden)
        ends[lost] = [-1.0, 1.0]
        reach = np.sqrt(z2) * self.allowance
        held: Array = np.clip(ends, -1.0, 1.0) * self.half + self.centre
        return held + np.where(lost[:, None], 0.0, [-reach, reach])

    def table(self, design: Design) -> ParameterTable:
        """The means in the user's units."""
        sampling, noise = (self.half**2 * part for part in self.variances)
        total = sampling + noise + self.allowance**2
        total[list(self.hidden)] = self.half**2
        k = len(self.groups)
        return ParameterTable(
            names=self.groups,
            groups=("means",) * k,
            values=self.centre + self.half * self.means,
            inner=np.arange(k),
            cov=np.diag(total),
            cov_privacy=np.diag(np.minimum(noise, total)),
            cov_sampling=np.diag(np.minimum(sampling, total)),
            testable=~np.isin(np.arange(k), self.hidden),
            not_identified=self.hidden,
            bounds=self.bounds,
        )


@dataclass(frozen=True, eq=False)
class DifferenceEstimate:
    """Parameters of a comparison of two groups, the first being tested.

    Attributes
    ----------
    names : tuple of str
        The difference (or probability), and the means of both groups where there are any.
    values : ndarray of shape (p,)
    sampling, noise : ndarray of shape (p,)
        Parts of their variances; `allowed` is the rest.
    allowed : ndarray of shape (p,)
    null : float
        What the first parameter is if the groups are alike.
    nobs, released, remarks
        As for every `Estimate`.
    hidden : tuple of int
        Parameters that noise hides, for it hides a group that they are made of.
    """

    names: tuple[str, ...]
    values: Array
    sampling: Array
    noise: Array
    allowed: Array
    null: float
    nobs: float
    released: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    hidden: tuple[int, ...] = ()

    def __post_init__(self) -> None:  # it may come from a file
        parts = (self.values, self.sampling, self.noise, self.allowed)
        sound = {a.shape for a in parts} == {(len(self.names),)} and len(self.names) > 0
        sound = sound and set(self.hidden) <= set(range(len(self.names)))
        if not (sound and min(a.min() for a in parts[1:]) >= 0):
            raise OptionError("estimate: a value and three variances of each name are needed.")

    def _of_probability(self, alpha: float) -> Array:
        """Normal intervals of level 1 - alpha within [0, 1], shape (p, 2)."""
        reach = critical(alpha) * np.sqrt(self.sampling + self.noise + self.allowed)
        ends = self.values[:, None] + reach[:, None] * [-1, 1]
        held: Array = np.clip(ends, 0.0, 1.0)
        return held

    def table(self, design: Design) -> ParameterTable:
        """The parameters in the user's units."""
        k = len(self.names)
        return ParameterTable(
            names=self.names,
            groups=("parameters",) * k,
            values=self.values,
            inner=np.arange(k),
            cov=np.diag(self.sampling + self.noise + self.allowed),
            cov_privacy=np.diag(self.noise),
            cov_sampling=np.diag(self.sampling),
            # What is printed is a test of 0.
            testable=~np.isin(np.arange(k), self.hidden) & (self.null == 0),
            not_identified=self.hidden,
            bounds=self._of_probability if self.null else None,
        )


def pair_names(columns: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the correlations of columns: ``a, b``, the first column varying slowest."""
    return tuple(f"{a}, {b}" for i, a in enumerate(columns) for b in columns[i + 1 :])


@dataclass(frozen=True, eq=False)
class CorrelationEstimate:
    """Correlations of k columns.

    Attributes
    ----------
    columns : tuple of str
    values : ndarray of shape (p,)
        Of the p = k (k - 1) / 2 pairs, in the order of `pair_names`.
    sampling, noise : ndarray of shape (p,)
        Variances of Fisher's transform of each, due to sampling and to noise.
    nobs, released, remarks
        As for every `Estimate`; `nobs` is the released number of complete rows.
    """

    columns: tuple[str, ...]
    values: Array
    sampling: Array
    noise: Array
    nobs: float
    released: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:  # it may come from a file
        shapes = {a.shape for a in (self.values, self.sampling, self.noise)}
        if shapes != {(len(pair_names(self.columns)),)} or np.abs(self.values).max() >= 1:
            raise OptionError("estimate: a correlation of each pair of columns is needed.")

    def bounds(self, alpha: float) -> Array:
        """Fisher's intervals with the noise in them, shape (p, 2)."""
        z, reach = np.arctanh(self.values), critical(alpha) * np.sqrt(self.sampling + self.noise)
        return np.tanh(np.stack([z - reach, z + reach], axis=1))

    def table(self, design: Design) -> ParameterTable:
        """The correlations; their standard errors are by the delta method."""
        slope = (1 - self.values**2) ** 2
        return ParameterTable(
            names=pair_names(self.columns),
            groups=("correlations",) * self.values.size,
            values=self.values,
            inner=np.arange(self.values.size),
            cov=np.diag(slope * (self.sampling + self.noise)),
            cov_privacy=np.diag(slope * self.noise),
            cov_sampling=np.diag(slope * self.sampling),
            testable=np.ones(self.values.size, dtype=np.bool_),
            bounds=self.bounds,
        )


@dataclass(frozen=True, eq=False)
class VarianceEstimate:
    """Mean, variance and standard deviation of a column.

    Attributes
    ----------
    values : ndarray of shape (3,)
    total, noise : ndarray of shape (3,)
        Variances of their errors, and the part that is noise of known law.
    beyond : float
        What values outside of the window may add to the standard deviation; of files that have
        none it is within `total`.
    nobs, released, remarks
        As for every `Estimate`.
    """

    values: Array
    total: Array
    noise: Array
    nobs: float
    released: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    beyond: float = 0.0

    def __post_init__(self) -> None:  # it may come from a file
        if {a.shape for a in (self.values, self.total, self.noise)} != {(3,)} or self.beyond < 0:
            raise OptionError("estimate: a mean, a variance and a standard deviation are needed.")

    def bounds(self, alpha: float) -> Array:
        """Those of the standard deviation are roots of those of the variance."""
        reach = critical(alpha) * np.sqrt(self.total[0])
        squares = of_variance(self.values[2], np.sqrt(self.total[2]), self.beyond, alpha)
        mean = np.array([self.values[0] - reach, self.values[0] + reach])
        return np.stack([mean, squares, np.sqrt(squares)])

    def table(self, design: Design) -> ParameterTable:
        """All three; a standard error is the longer side of a 95 % interval over 1.96."""
        total = stated_error(self.values, self.bounds(USUAL)) ** 2
        return ParameterTable(
            names=("mean", "variance", "std"),
            groups=("moments",) * 3,
            values=self.values,
            inner=np.arange(3),
            cov=np.diag(total),
            cov_privacy=np.diag(self.noise),
            cov_sampling=np.diag(np.maximum(total - self.noise, 0.0)),
            testable=np.array([True, False, False]),
            inference=presumed_of_tails(self.released),
            bounds=self.bounds,
        )
