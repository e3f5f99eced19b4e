"""What an estimator hands back, and the table of parameters that is read of it.

An `Estimate` is one of a small closed set of records, each with a class of results of its own in
`dpstats.results`. All of them make a `ParameterTable`, and whatever is reported, tested, compared
or drawn of parameters is read from that table alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["COEFFICIENTS", "CoefficientEstimate", "Estimate", "ParameterTable"]

Array = NDArray[np.float64]

COEFFICIENTS = "coefficients"  # the group of those that multiply columns


@dataclass(frozen=True, eq=False)
class ParameterTable:
    """Parameters in the user's units, and what is known of their errors.

    Attributes
    ----------
    names, groups : tuple of str
        Of d parameters; those of a group, such as `COEFFICIENTS`, stand together.
    values : ndarray of shape (d,)
        Estimates; zero where a parameter is not in the model.
    inner : ndarray of shape (k,)
        Positions, ascending, of the parameters in the model: all, or those that were selected.
    cov, cov_privacy, cov_sampling : ndarray of shape (k, k)
        Covariance of ``values[inner]`` around the population parameter, the part of it that is
        privacy noise of known law, and that due to sampling. `cov` is nan where no interval is
        valid.
    testable : ndarray of bool, shape (k,)
        Whether the hypothesis that a parameter has some value may be tested by the normal law;
        other parameters have an interval at most.
    inference : str
        What intervals hold for, where it is not the model as a whole; it begins with ``"none"``
        where there are no valid ones.
    """

    names: tuple[str, ...]
    groups: tuple[str, ...]
    values: Array
    inner: NDArray[np.intp]
    cov: Array
    cov_privacy: Array
    cov_sampling: Array
    testable: NDArray[np.bool_]
    inference: str = ""

    @property
    def has_inference(self) -> bool:
        """Whether intervals are valid."""
        return not self.inference.startswith("none")

    @property
    def of_coefficients(self) -> bool:
        """Whether all parameters multiply columns of the design."""
        return set(self.groups) <= {COEFFICIENTS}

    @property
    def inner_names(self) -> list[str]:
        """Names of the k parameters in the model."""
        return [self.names[j] for j in self.inner]

    @property
    def inner_values(self) -> Array:
        """Estimates of the k parameters in the model."""
        return self.values[self.inner]

    @property
    def privacy_share(self) -> Array:
        """Share of each variance that is not due to sampling, in [0, 1], shape (k,)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            share = 1 - np.diag(self.cov_sampling) / np.diag(self.cov)
        return np.clip(share, 0.0, 1.0)  # estimated parts may exceed the whole


class Estimate(Protocol):
    """A record of released numbers, and nothing else, that a class of results is made of."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def nobs(self) -> float:
        """Public n, or the released noisy count of rows."""

    @property
    def released(self) -> Mapping[str, Any]:
        """Other released or public numbers worth reporting (clips, scales), JSON-able."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the released numbers say about the fit, one sentence each."""

    def table(self, design: Design) -> ParameterTable:
        """Its parameters in the user's units."""


@dataclass(frozen=True)
class CoefficientEstimate:
    """Coefficients of the design's columns, in its internal (standardised) coordinates.

    Attributes
    ----------
    params : ndarray of shape (d,)
        Point estimate; zero off the support.
    cov : ndarray of shape (d, d), or (s, s) for the support
        Covariance of `params` around the population parameter: sampling and privacy noise. nan
        where no interval is valid.
    cov_privacy : ndarray of the same shape
        The part of `cov` due to privacy noise. The law of the last noise is known, so this part
        is exact given the earlier releases.
    nobs, released, remarks
        As for every `Estimate`.
    support : tuple of int, optional
        Columns that a sparse fit selected, in the order of `cov`; None where every column is in.
    inference : str
        What intervals hold for, where it is not the model as a whole, such as ``"conditional on
        selection"``; it begins with ``"none"`` where there are no valid ones.
    cov_sampling : ndarray of the same shape as `cov`, optional
        The part of `cov` due to sampling, where `cov` has a third: what noise kept the fit from
        finding out, such as a direction that it hides. None where `cov` is sampling and noise.
    """

    params: Array
    cov: Array
    cov_privacy: Array
    nobs: float
    released: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    support: tuple[int, ...] | None = None
    inference: str = ""
    cov_sampling: Array | None = None

    @property
    def sampling(self) -> Array:
        """The part of `cov` due to sampling; the rest is there because of privacy."""
        return self.cov - self.cov_privacy if self.cov_sampling is None else self.cov_sampling

    def table(self, design: Design) -> ParameterTable:
        """Change units; no array is larger than (d,) or (k, k).

        In the model are the columns of the support and the intercept.
        """
        d, standard = len(design.names), design.standardization
        support = range(d) if self.support is None else self.support
        always = () if standard.intercept is None else (standard.intercept,)
        inner = np.array(sorted({*support, *always}), dtype=np.intp)
        units = replace(
            standard,
            x_center=standard.x_center[inner],
            x_scale=standard.x_scale[inner],
            intercept=int(np.searchsorted(inner, always[0])) if always else None,
        )
        place = np.ix_(*2 * (np.searchsorted(inner, support),))
        values, found = np.zeros(d), []
        for matrix in (self.cov, self.cov_privacy, self.sampling):
            placed = np.zeros((inner.size, inner.size))
            placed[place] = matrix
            values[inner], changed = units.to_user(self.params[inner], placed)
            found.append(changed)
        valid = not self.inference.startswith("none")
        cov, cov_privacy, cov_sampling = found
        return ParameterTable(
            names=design.names,
            groups=(COEFFICIENTS,) * d,
            values=values,
            inner=inner,
            # One that ignores the selection would be that of a model nobody named beforehand.
            cov=cov if valid else np.full_like(cov, np.nan),
            cov_privacy=cov_privacy,
            cov_sampling=cov_sampling,
            testable=np.full(inner.size, valid),
            inference=self.inference,
        )
