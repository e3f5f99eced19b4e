"""Shares of some cells of a noisy table among others, with Wilson's intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.protocol.criticals import critical
from dpstats.protocol.descriptive import CountsEstimate, CrosstabEstimate
from dpstats.protocol.estimate import ParameterTable

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["GroupSharesEstimate", "ShareOfCells", "group_share_names"]

Array = NDArray[np.float64]

_SEEN = 3.0  # ratio: rows among which a share is taken to the noise in their number, at least


class ShareOfCells:
    """The share of some cells among these and others, of a table of noisy counts."""

    def __init__(self, table: CountsEstimate, inside: Sequence[int], outside: Sequence[int]):
        self.table, self.cells = table, (len(inside), len(outside))
        self.a = float(table.counts[list(inside)].sum())
        self.rows = self.a + float(table.counts[list(outside)].sum())

    def noise(self, p: float) -> float:
        """Variance of the noise in ``a - p rows``."""
        k, l = self.cells  # noqa: E741
        squares, sums = k * (1 - p) ** 2 + l * p**2, k * (1 - p) - l * p
        return max(self.table.noise_sd**2 * (squares - self.table.kappa * sums**2), 0.0)

    @property
    def hidden(self) -> bool:
        """Whether noise hides how many rows there are to take a share of."""
        k, l = self.cells  # noqa: E741
        spread = k + l - self.table.kappa * (k + l) ** 2  # of the number of rows
        return self.rows <= max(_SEEN * self.table.noise_sd * math.sqrt(max(spread, 0.0)), 1.0)

    @property
    def value(self) -> float:
        """The share; 1/2 where it is hidden."""
        return 0.5 if self.hidden else min(max(self.a / self.rows, 0.0), 1.0)

    @property
    def variances(self) -> tuple[float, float]:
        """Of sampling and of noise."""
        if self.hidden:
            return 0.0, 0.25
        p = min(max(self.value, 1 / (self.rows + 1)), self.rows / (self.rows + 1))
        return self.table.effect * p * (1 - p) / self.rows, self.noise(p) / self.rows**2

    def bounds(self, alpha: float) -> tuple[float, float]:
        """All p with (a - p N)^2 <= z^2 (f N p (1 - p) + v(p)): Wilson's with the noise in it."""
        if self.hidden:
            return 0.0, 1.0
        z2, n, (k, l) = critical(alpha) ** 2, self.rows, self.cells  # noqa: E741
        s2, kappa = z2 * self.table.noise_sd**2, self.table.kappa
        sampling = z2 * self.table.effect * n
        square = n**2 + sampling - s2 * (k + l - kappa * (k + l) ** 2)
        linear = -2 * self.a * n - sampling + s2 * (2 * k - 2 * kappa * k * (k + l))
        constant = self.a**2 - s2 * (k - kappa * k**2)
        if square <= 0:
            return 0.0, 1.0
        root = math.sqrt(max(linear**2 - 4 * square * constant, 0.0))
        low, high = (-linear - root) / (2 * square), (-linear + root) / (2 * square)
        return max(min(low, self.value), 0.0), min(max(high, self.value), 1.0)


def group_share_names(groups: Sequence[str], levels: Sequence[str]) -> tuple[str, ...]:
    """Names of the shares of levels within groups: ``"ill [north]"``."""
    return tuple(f"{level} [{group}]" for group in groups for level in levels)


@dataclass(frozen=True, eq=False)
class GroupSharesEstimate(CrosstabEstimate):
    """Shares of the levels of a column within the groups of another, of a table of both.

    Each is a ratio of two noisy counts. One of a group whose number of rows noise hides is 1/2,
    with the interval from 0 to 1, and not identified. `cov` has no covariances of shares.
    """

    @cached_property
    def _of_groups(self) -> list[ShareOfCells]:
        """The share of each cell among those of its group."""
        k = len(self.columns_of)
        return [
            ShareOfCells(self, (cell,), [c for c in range(at, at + k) if c != cell])
            for at in range(0, len(self.cells), k)
            for cell in range(at, at + k)
        ]

    def bounds(self, alpha: float) -> Array:
        """Wilson's intervals with the noise of numerator and denominator in them, shape (K, 2)."""
        return np.array([share.bounds(alpha) for share in self._of_groups])

    def table(self, design: Design) -> ParameterTable:
        """The shares of the levels, group by group."""
        found = self._of_groups
        sampling, noise = np.array([share.variances for share in found]).T
        return ParameterTable(
            names=group_share_names(self.rows_of, self.columns_of),
            groups=("shares",) * len(found),
            values=np.array([share.value for share in found]),
            inner=np.arange(len(found)),
            cov=np.diag(sampling + noise),
            cov_privacy=np.diag(noise),
            cov_sampling=np.diag(sampling),
            testable=np.zeros(len(found), dtype=np.bool_),
            not_identified=tuple(j for j, share in enumerate(found) if share.hidden),
            bounds=self.bounds,
        )
