"""What an estimator hands back, and the table of parameters that is read of it.

An `Estimate` is one of a small closed set of records, each with a class of results of its own in
`dpstats.results`. All of them make a `ParameterTable`, and whatever is reported, tested, compared
or drawn of parameters is read from that table alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError
from dpstats.protocol.faint import FaintDirections

if TYPE_CHECKING:
    from dpstats.design import Design, Standardization

__all__ = [
    "COEFFICIENTS",
    "WEIGHTED_DOWN",
    "CoefficientEstimate",
    "Estimate",
    "InternalEstimate",
    "ParameterTable",
    "RangeEstimate",
    "ScalesEstimate",
    "scale_names",
]

Array = NDArray[np.float64]

_OF_RESPONSE = frozenset({"clip", "residual sd"})  # released in units of the response
WEIGHTED_DOWN = "leverage weighted down"  # released share, where rows far out count less
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
    of_these_rows : bool
        Whether `values` differ from the non-private answer on the same rows by no more than the
        part of `cov` that is not sampling.
    not_identified : tuple of int
        Positions of parameters that noise hides; their intervals are what is presumed of them.
    bounds : callable, optional
        Intervals of level 1 - alpha, of shape (k, 2), as a function of alpha; normal ones without.
    deviates : ndarray of shape (k,), optional
        z of ``parameter = 0``, of the test that `bounds` invert; `values` over standard errors
        without.
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
    of_these_rows: bool = False
    not_identified: tuple[int, ...] = ()
    bounds: Callable[[float], Array] | None = None
    deviates: Array | None = None

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


class InternalEstimate(Estimate, Protocol):
    """An estimate in the internal units of a design."""

    def converted(self, old: Standardization, new: Standardization) -> Self:
        """The same estimate in other internal units of all columns."""


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
    robust : bool
        Whether `cov` holds whatever the variances of responses are, rather than those of a model.
    of_these_rows : bool
        Whether, but for noise and what clips leave out, `params` is the non-private fit to the same
        rows, so that all of `cov` but sampling bounds the distance to it.
    not_identified : tuple of int
        Columns whose coefficients noise hides: their variances are what is presumed of them.
    faint : FaintDirections, optional
        Directions along which intervals are not symmetric, their effects in the order of `cov`.
        None: all are normal.
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
    robust: bool = True
    of_these_rows: bool = False
    not_identified: tuple[int, ...] = ()
    faint: FaintDirections | None = None

    def as_sparse(self, columns: Sequence[int], d: int, inference: str) -> Self:
        """The same as a sparse one of d columns, of which these were fitted."""
        params, support = np.zeros(d), tuple(int(j) for j in columns)
        params[list(support)] = self.params
        hidden = tuple(support[j] for j in self.not_identified)
        return replace(
            self, params=params, support=support, inference=inference, not_identified=hidden
        )

    def converted(self, old: Standardization, new: Standardization) -> Self:
        """The same estimate in other internal units of all columns."""
        none, d = np.zeros_like(self.params), self.params.size
        nothing = np.zeros((d, d))
        support = np.arange(d) if self.support is None else np.array(self.support, int)
        inside = np.ix_(support, support)

        def cov(matrix: Array) -> Array:
            whole = nothing.copy()
            whole[inside] = matrix
            changed: Array = new.to_internal(none, old.to_user(none, whole)[1])[1][inside]
            return changed

        def params(of: Array) -> Array:
            return new.to_internal(*old.to_user(of, nothing))[0]

        def effect(of: Array) -> Array:
            whole = none.copy()
            whole[support] = of
            changed: Array = params(whole)[support]
            return changed

        unit = old.y_scale / new.y_scale
        in_units = {key: unit * self.released[key] for key in _OF_RESPONSE & self.released.keys()}
        return replace(
            self,
            released={**self.released, **in_units},
            params=params(self.params),
            cov=cov(self.cov),
            cov_privacy=cov(self.cov_privacy),
            cov_sampling=None if self.cov_sampling is None else cov(self.cov_sampling),
            faint=None if self.faint is None else self.faint.changed(effect),
        )

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
        at = np.searchsorted(inner, support)
        place = np.ix_(at, at)
        values, found = np.zeros(d), []
        for matrix in (self.cov, self.cov_privacy, self.sampling):
            placed = np.zeros((inner.size, inner.size))
            placed[place] = matrix
            values[inner], changed = units.to_user(self.params[inner], placed)
            found.append(changed)
        valid = not self.inference.startswith("none")
        cov, cov_privacy, cov_sampling = found
        testable = ~np.isin(inner, self.not_identified) & valid
        bounds = deviates = None
        if self.faint is not None and valid:

            def effect(of: Array) -> Array:
                whole = np.zeros(inner.size)
                whole[at] = of
                return units.to_user(whole, placed)[0]

            faint, inside = self.faint.changed(effect), values[inner]
            bounds = partial(faint.bounds, inside, cov)
            deviates = np.where(testable, faint.deviates(inside, cov), np.nan)
        return ParameterTable(
            names=design.names,
            groups=(COEFFICIENTS,) * d,
            values=values,
            inner=inner,
            # One that ignores the selection would be that of a model nobody named beforehand.
            cov=cov if valid else np.full_like(cov, np.nan),
            cov_privacy=cov_privacy,
            cov_sampling=cov_sampling,
            testable=testable,
            inference=self.inference,
            of_these_rows=self.of_these_rows,
            not_identified=self.not_identified,
            bounds=bounds,
            deviates=deviates,
        )


@dataclass(frozen=True)
class RangeEstimate:
    """Ends of a range, which were chosen and not estimated.

    Attributes
    ----------
    params : ndarray of shape (2,)
        Lower and upper end, in the user's units.
    nobs, released, remarks
        As for every `Estimate`; `nobs` is the plan's.
    """

    params: Array
    nobs: float
    released: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:  # it may come from a file
        if self.params.shape != (2,) or not self.params[0] < self.params[1]:
            raise OptionError("estimate: a lower and an upper end are needed.")

    def table(self, design: Design) -> ParameterTable:
        """The two ends; they have no law of errors."""
        why = "none: the ends were chosen among powers of two, and are no estimates"
        return _without_errors(("lower", "upper"), self.params, why)


def scale_names(columns: Sequence[str]) -> tuple[str, ...]:
    """Names of the centres and scales of columns, as parameters."""
    return tuple(f"{what} of {name}" for name in columns for what in ("center", "scale"))


@dataclass(frozen=True)
class ScalesEstimate:
    """Centres and scales of columns, to be declared.

    Attributes
    ----------
    columns : tuple of str
        The k columns of the table.
    pairs : ndarray of shape (k, 2)
        Centre and scale of each, in the user's units; nan where the scale was not found.
    nobs, released, remarks
        As for every `Estimate`; `nobs` is the plan's.
    """

    columns: tuple[str, ...]
    pairs: Array
    nobs: float
    released: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:  # it may come from a file
        if self.pairs.shape != (len(self.columns), 2) or np.isinf(self.pairs).any():
            raise OptionError("estimate: a centre and a scale of each column are needed.")
        if (self.pairs[:, 1] <= 0).any():
            raise OptionError("estimate: a scale is above 0.")

    def table(self, design: Design) -> ParameterTable:
        """Centres and scales; they have no law of errors."""
        why = "none: centres and scales are for declaring, and depend on cells that were chosen"
        return _without_errors(scale_names(self.columns), self.pairs.ravel(), why)


def _without_errors(names: tuple[str, ...], values: Array, inference: str) -> ParameterTable:
    """A table of parameters that have no intervals."""
    unknown = np.full((len(names), len(names)), np.nan)
    return ParameterTable(
        names=names,
        groups=("parameters",) * len(names),
        values=values,
        inner=np.arange(len(names)),
        cov=unknown,
        cov_privacy=unknown,
        cov_sampling=unknown,
        testable=np.zeros(len(names), dtype=np.bool_),
        inference=inference,
    )
