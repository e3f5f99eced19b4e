"""Released shares of the values of columns that are missing, or outside of what is declared."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError
from dpstats.protocol.criticals import critical
from dpstats.protocol.descriptive import on_simplex
from dpstats.protocol.estimate import ParameterTable

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["CheckEstimate", "checked_names", "share_noise"]

Array = NDArray[np.float64]


def checked_names(columns: Sequence[str]) -> tuple[str, ...]:
    """Names of the shares of columns, as parameters."""
    return tuple(f"{what} of {name}" for name in columns for what in ("missing", "outside"))


def share_noise(noise_sd: float, rows: float, inputs: int, known: bool, share: float) -> float:
    """Standard deviation of the noise in a share, of counts with noise of `noise_sd` rows each.

    Three counts of an input add up to the number of rows. Given that number, the noise of one has
    2/3 of its variance. Where it is not known it is estimated from all inputs, with independent
    noise of variance ``3 / inputs``, a third of which enters the count.
    """
    of_rows = 0.0 if known else (1 / 3 - share) ** 2 * 3 / inputs
    return noise_sd * math.sqrt(2 / 3 + of_rows) / rows


@dataclass(frozen=True, eq=False)
class CheckEstimate:
    """Counts of the values of k inputs: as declared, missing, outside of what is declared.

    Attributes
    ----------
    inputs : tuple of str
        Columns of the table.
    counts : ndarray of shape (k, 3)
        Noisy and unbiased; those of an input add up to `nobs`.
    noise_sd : float
        Standard deviation of the noise in one count, before they were made to add up.
    known : bool
        Whether the number of rows is public.
    units : float
        Released number of units of privacy; nan where the unit is a row.
    effect : float
        Sampling variance of a share over that of independent rows; at most the rows of a unit.
    nobs, released, remarks
        As for every `Estimate`; `nobs` is public, or the released number of rows.
    """

    inputs: tuple[str, ...]
    counts: Array
    noise_sd: float
    known: bool
    units: float
    effect: float
    nobs: float
    released: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:  # it may come from a file
        sound = self.inputs and self.counts.shape == (len(self.inputs), 3)
        if not (sound and np.isfinite(self.counts).all() and self.noise_sd >= 0 < self.effect):
            raise OptionError("estimate: three counts of each column are needed.")
        if not self.nobs > 0:
            raise OptionError("estimate: a number of rows is needed.")

    @property
    def shares(self) -> Array:
        """Shares of missing values, and of those outside, shape (k, 2); none is negative."""
        found = [on_simplex(counts, self.nobs) for counts in self.counts]
        return np.array(found)[:, 1:] / self.nobs

    @property
    def errors(self) -> Array:
        """Standard deviations of the noise in them, shape (k, 2)."""
        noise = [
            share_noise(self.noise_sd, self.nobs, len(self.inputs), self.known, float(share))
            for share in self.shares.ravel()
        ]
        return np.array(noise).reshape(-1, 2)

    @property
    def sampling(self) -> Array:
        """Variances of the shares of a sample, shape (k, 2); of one that is 0, as of its noise."""
        spread = np.clip(self.shares, np.minimum(self.errors, 0.5), 1.0)
        found: Array = self.effect * spread * (1 - self.shares) / self.nobs
        return found

    def bounds(self, alpha: float) -> Array:
        """Intervals of level 1 - alpha for the shares, shape (2 k, 2)."""
        raw = self.counts[:, 1:] / self.nobs
        reach = critical(alpha) * np.sqrt(self.errors**2 + self.sampling)
        low, high = np.minimum(raw - reach, self.shares), np.maximum(raw + reach, self.shares)
        ends: Array = np.clip(np.stack([low, high], axis=-1), 0.0, 1.0).reshape(-1, 2)
        return ends

    def table(self, design: Design) -> ParameterTable:
        """The shares, column by column."""
        values, sampling = self.shares.ravel(), np.diag(self.sampling.ravel())
        noise = np.diag(self.errors.ravel() ** 2)
        return ParameterTable(
            names=checked_names(self.inputs),
            groups=tuple(name for name in self.inputs for _ in range(2)),
            values=values,
            inner=np.arange(values.size),
            cov=noise + sampling,
            cov_privacy=noise,
            cov_sampling=sampling,
            testable=np.zeros(values.size, dtype=np.bool_),
            of_these_rows=True,
            bounds=self.bounds,
        )
