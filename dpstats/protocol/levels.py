"""What is released of a response of several levels, and the table of its coefficients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError
from dpstats.protocol.estimate import ParameterTable

if TYPE_CHECKING:
    from dpstats.design import Design, Standardization

__all__ = ["LevelsEstimate", "level_names"]

Array = NDArray[np.float64]


def level_names(levels: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    """Names of the coefficients of each level but the first, one level after another."""
    return tuple(f"{name} [{level}]" for level in levels[1:] for name in columns)


@dataclass(frozen=True, eq=False)
class LevelsEstimate:
    """Coefficients of each level but the base, in the design's internal coordinates.

    Attributes
    ----------
    levels : tuple of str
        The q + 1 levels of the response, the base first.
    params : ndarray of shape (q d,)
        Coefficients of the d columns, one level after another.
    cov, cov_privacy, cov_sampling : ndarray of shape (q d, q d)
        Covariance of `params` around the population parameter, the part of it due to privacy noise,
        and that due to sampling.
    nobs, released, remarks
        As for every `Estimate`; `nobs` is the released count of rows that contribute.
    not_identified : tuple of int
        Positions of coefficients that noise hides: their variances are what is presumed of them.
    """

    levels: tuple[str, ...]
    params: Array
    cov: Array
    cov_privacy: Array
    cov_sampling: Array
    nobs: float
    released: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    not_identified: tuple[int, ...] = ()

    def __post_init__(self) -> None:  # it may come from a file
        q, size = len(self.levels) - 1, self.params.size
        square = (size, size)
        parts = (self.cov, self.cov_privacy, self.cov_sampling)
        sound = (
            q > 0
            and size > 0
            and size % q == 0
            and self.params.shape == (size,)
            and all(part.shape == square for part in parts)
            and len(set(self.levels)) == q + 1
            and all(0 <= j < size for j in self.not_identified)
        )
        if not sound:
            raise OptionError("estimate: its levels and its parts do not fit together.")

    @property
    def _q(self) -> int:
        return len(self.levels) - 1

    def converted(self, old: Standardization, new: Standardization) -> Self:
        """The same estimate in other internal units of all columns."""
        change: Array = np.linalg.inv(new.transform()[0]) @ old.transform()[0]
        params, (cov, cov_privacy, cov_sampling) = self._changed(change)
        return replace(
            self, params=params, cov=cov, cov_privacy=cov_privacy, cov_sampling=cov_sampling
        )

    def _changed(self, change: Array) -> tuple[Array, list[Array]]:
        """Coefficients and covariances after a change of coordinates (d, d) in each level."""
        d = len(change)
        if self.params.size != self._q * d:
            raise OptionError("The result contradicts itself: estimate and design differ.")
        whole = np.kron(np.eye(self._q), change)
        parts = (self.cov, self.cov_privacy, self.cov_sampling)
        return whole @ self.params, [whole @ part @ whole.T for part in parts]

    def table(self, design: Design) -> ParameterTable:
        """Coefficients in the user's units, grouped by level."""
        d = len(design.names)
        values, (cov, cov_privacy, cov_sampling) = self._changed(
            design.standardization.transform()[0]
        )
        testable = np.ones(values.size, dtype=np.bool_)
        testable[list(self.not_identified)] = False
        base = self.levels[0]
        return ParameterTable(
            names=level_names(self.levels, design.names),
            groups=tuple(f"{level} against {base}" for level in self.levels[1:] for _ in range(d)),
            values=values,
            inner=np.arange(values.size),
            cov=cov,
            cov_privacy=cov_privacy,
            cov_sampling=cov_sampling,
            testable=testable,
            of_these_rows=True,
            not_identified=self.not_identified,
        )
