"""What is released of a symmetric mixture, and the table of its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError
from dpstats.protocol.estimate import ParameterTable

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["SymmetricLinesEstimate", "SymmetricMixtureEstimate"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SymmetricMixtureEstimate:
    """Two normal laws around b and -b, equally likely, with the covariance sigma^2 I.

    The law is the same for b and -b; the one whose largest entry is positive is released.

    Attributes
    ----------
    columns : tuple of str
        Names of the d columns.
    beta : ndarray of shape (d,)
        b in the user's units; zero off the support.
    sigma : float
        In the user's units.
    public_sigma : bool
        Whether sigma was given, and not estimated.
    support : tuple of int
        Columns that were selected, ascending; all d where none were.
    cov, cov_privacy, cov_sampling : ndarray of shape (k, k)
        Covariance of the entries of b on the support, and last of sigma where it was estimated; the
        part of it that is privacy noise, and that of the maximum likelihood estimate.
    nobs, released, remarks
        As for every `Estimate`; `nobs` is the released count of rows that contribute.
    inference : str
        As in `ParameterTable`.
    """

    columns: tuple[str, ...]
    beta: Array
    sigma: float
    public_sigma: bool
    support: tuple[int, ...]
    cov: Array
    cov_privacy: Array
    cov_sampling: Array
    nobs: float
    released: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    inference: str = ""
    group: ClassVar[str] = "means"
    tested: ClassVar[bool] = False

    def __post_init__(self) -> None:  # it may come from a file
        d, k = len(self.columns), len(self.support) + (not self.public_sigma)
        shapes = [c.shape for c in (self.cov, self.cov_privacy, self.cov_sampling)]
        places = list(self.support)
        sound = (
            d > 0
            and self.beta.shape == (d,)
            and shapes == [(k, k)] * 3
            and places == sorted(set(places))
            and all(0 <= j < d for j in places)
        )
        if not sound:
            raise OptionError("estimate: its columns, its support and its parts do not fit.")
        if not (np.isfinite(self.beta).all() and 0 < self.sigma < np.inf):
            raise OptionError("estimate: all numbers are finite, and sigma is above 0.")
        if np.delete(self.beta, places).any():
            raise OptionError("estimate: an entry off the support is not zero.")

    def table(self, design: Design) -> ParameterTable:
        """The entries of b, and sigma where it was estimated."""
        d, free = len(self.columns), not self.public_sigma
        valid = not self.inference.startswith("none")
        inner = np.array([*self.support, *([d] * free)], dtype=np.intp)
        return ParameterTable(
            names=(*self.columns, *(["sigma"] * free)),
            groups=(*[self.group] * d, *(["errors"] * free)),
            values=np.append(self.beta, [self.sigma] * free),
            inner=inner,
            cov=self.cov if valid else np.full_like(self.cov, np.nan),
            cov_privacy=self.cov_privacy,
            cov_sampling=self.cov_sampling,
            testable=(inner < d) & valid & self.tested,
            inference=self.inference,
            of_these_rows=True,
        )


@dataclass(frozen=True, eq=False)
class SymmetricLinesEstimate(SymmetricMixtureEstimate):
    """Two regressions with coefficients b and -b, equally likely, and errors of one variance."""

    group: ClassVar[str] = "slopes"
    tested: ClassVar[bool] = True
