"""A released estimate in the user's units: the columns it reports on, and what it says of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dpstats.design import Design
    from dpstats.protocol import Estimate

__all__ = ["UserUnits"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class UserUnits:
    """An estimate after the change of units, on the columns that are in the fitted model.

    Attributes
    ----------
    columns : ndarray of shape (k,)
        Positions in the design, ascending: all d of them, or for a sparse fit those that were
        selected and the intercept.
    params : ndarray of shape (d,)
        Coefficients; zero off `columns`.
    cov, cov_privacy, cov_sampling : ndarray of shape (k, k)
        Covariance of ``params[columns]``, the part of it that is privacy noise of known law, and
        that due to sampling.
    """

    columns: NDArray[np.intp]
    params: Array
    cov: Array
    cov_privacy: Array
    cov_sampling: Array

    @classmethod
    def of(cls, estimate: Estimate, design: Design) -> UserUnits:
        """Change units; no array is larger than (d,) or (k, k)."""
        d, standard = len(design.names), design.standardization
        support = range(d) if estimate.support is None else estimate.support
        always = () if standard.intercept is None else (standard.intercept,)
        columns = np.array(sorted({*support, *always}), dtype=np.intp)
        inner = replace(
            standard,
            x_center=standard.x_center[columns],
            x_scale=standard.x_scale[columns],
            intercept=int(np.searchsorted(columns, always[0])) if always else None,
        )
        place = np.ix_(*2 * (np.searchsorted(columns, support),))
        params, covariances = np.zeros(d), []
        for matrix in (estimate.cov, estimate.cov_privacy, estimate.sampling):
            placed = np.zeros((columns.size, columns.size))
            placed[place] = matrix
            params[columns], changed = inner.to_user(estimate.params[columns], placed)
            covariances.append(changed)
        return cls(columns, params, *covariances)
