"""Marginal effects at given rows: how the mean of the response changes with each covariate.

Arithmetic on released coefficients, their covariance, and rows that the caller gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.design import held_columns
from dpstats.errors import DataError, OptionError, PrivateQuantityError
from dpstats.privacy import NOT_PRIVATE
from dpstats.results.inference import interval, wald_table
from dpstats.schema import Numeric, Schema
from dpstats.text import grid

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MarginalEffects", "marginal_effects"]

Array = NDArray[np.float64]

_STEP = 1e-5  # numerical: share of a range over which a derivative is taken
_AT = ("overall", "mean", "all")
_METHODS = {"dydx": "dy/dx", "eyex": "d(lny)/d(lnx)", "dyex": "dy/d(lnx)", "eydx": "d(lny)/dx"}


@dataclass(frozen=True, eq=False)
class MarginalEffects:
    """Marginal effects with delta-method standard errors, in the manner of statsmodels.

    Attributes
    ----------
    names : tuple of str
        The k covariates; of one with levels, each level against the first.
    margeff : ndarray of shape (k,), or (m, k) with ``at="all"``
        The effects.
    margeff_cov : ndarray of shape (k, k) or (m, k, k)
        Covariance that follows from `cov_params` of the fit: sampling and privacy noise of the
        coefficients. The rows at which effects are taken are given, and add nothing.
    at, method : str
        As they were asked for.
    mark : str
        Empty but for reproducible noise.
    """

    names: tuple[str, ...]
    margeff: Array
    margeff_cov: Array
    at: str
    method: str
    mark: str = ""

    @property
    def margeff_se(self) -> Array:
        """Standard errors, in the shape of `margeff`."""
        variances = np.diagonal(self.margeff_cov, axis1=-2, axis2=-1)
        se: Array = np.sqrt(np.maximum(variances, 0.0))
        return se

    @property
    def tvalues(self) -> Array:
        """``margeff / margeff_se``, referred to the normal law."""
        with np.errstate(divide="ignore", invalid="ignore"):
            z: Array = self.margeff / self.margeff_se
        return z

    @property
    def pvalues(self) -> Array:
        """Two-sided p-values of no effect."""
        return wald_table(self.tvalues.ravel(), np.eye(self.tvalues.size)).p.reshape(
            self.margeff.shape
        )

    def conf_int(self, alpha: float = 0.05) -> Array:
        """Intervals of level 1 - alpha, shape (k, 2) or (m, k, 2)."""
        ends = interval(self.margeff.ravel(), self.margeff_se.ravel(), alpha)
        return ends.reshape(*self.margeff.shape, 2)

    def summary_frame(self, alpha: float = 0.05) -> pd.DataFrame:
        """One row a covariate: effect, standard error, z, p-value and interval.

        Raises
        ------
        OptionError
            With ``at="all"``, of which `margeff` is a table already.
        """
        import pandas as pd

        if self.margeff.ndim > 1:
            raise OptionError('at="all": margeff and margeff_se have a row each; there is no page.')
        low, high = self.conf_int(alpha).T
        columns = {
            _METHODS[self.method]: self.margeff,
            "Std. Err.": self.margeff_se,
            "z": self.tvalues,
            "Pr(>|z|)": self.pvalues,
            "Conf. Int. Low": low,
            "Conf. Int. Hi.": high,
        }
        return pd.DataFrame(columns, index=list(self.names))

    def summary(self, alpha: float = 0.05) -> str:
        """`summary_frame` as a page of text."""
        frame = self.summary_frame(alpha)
        rows = [(name, *(f"{v:.4g}" for v in line)) for name, *line in frame.itertuples()]
        head = f"Marginal effects at {self.at!r}, {_METHODS[self.method]}"
        table = grid(("", *frame.columns), rows, range(1, 7))
        return "\n".join([f"{head} {self.mark}".rstrip(), *table])

    def __repr__(self) -> str:
        return (
            self.summary() if self.margeff.ndim == 1 else f"<effects at {len(self.margeff)} rows>"
        )


class _Direction(NamedTuple):
    """How rows move with a covariate: a derivative, or from one place to another."""

    name: str
    before: Array  # (m, k) rows of the design
    after: Array
    width: Array  # (m,) what the covariate moves by
    discrete: bool
    values: Array  # (m,) of the covariate


def marginal_effects(
    fit: Any,
    new: Any,
    at: str,
    method: str,
    known: Mapping[str, Any],
    *,
    dummy: bool,
    count: bool,
) -> MarginalEffects:
    """See `dpstats.results.regression.RegressionResults.get_margeff`."""
    if at not in _AT or method not in _METHODS:
        raise OptionError(
            f"at={at!r}, method={method!r}: at is one of {', '.join(map(repr, _AT))}; method of "
            f"{', '.join(map(repr, _METHODS))}."
        )
    if not fit.has_inference:
        raise OptionError(fit.no_inference)
    if new is None:
        raise PrivateQuantityError(
            f"get_margeff(at={at!r}) without new=... is not available: over the private rows it is "
            "an exact function of them. Give rows that are public, new=...: a census, a published "
            "table, or made-up rows of interest."
        )
    rows = _Rows(fit, new, at, known)
    moves = list(rows.directions(dummy, count))
    if not moves:
        raise OptionError("get_margeff: no covariate is in the model.")
    values, slopes = [], []
    for move in moves:
        effect, gradient = _effect(rows, move, method)
        values.append(effect)
        slopes.append(gradient)
    margeff, J = np.stack(values, axis=-1), np.stack(slopes, axis=-2)
    if at == "overall":
        margeff, J = margeff.mean(axis=0), J.mean(axis=0)
    elif at != "all":
        margeff, J = margeff[0], J[0]
    return MarginalEffects(
        names=tuple(move.name for move in moves),
        margeff=margeff,
        margeff_cov=J @ fit.table.cov @ np.swapaxes(J, -1, -2),
        at=at,
        method=method,
        mark=f"[{NOT_PRIVATE}]" if fit.reproducible else "",
    )


def _effect(rows: _Rows, move: _Direction, method: str) -> tuple[Array, Array]:
    """Effects (m,) and their gradients in the coefficients (m, k)."""
    family = rows.fit.design.family
    if move.discrete:
        if method[2:] == "ex":
            raise OptionError(
                f"method={method!r}: {move.name!r} moves from one place to another and has no "
                "logarithm; method='dydx' or 'eydx' takes it."
            )
        ends = (rows.eta(X) for X in (move.before, move.after))
        mean, slope = zip(*((family.mean(eta), family.slope(eta)) for eta in ends), strict=True)
        if method[0] == "e":
            slope = tuple(each / value for each, value in zip(slope, mean, strict=True))
            mean = tuple(map(np.log, mean))
        effect = (mean[1] - mean[0]) / move.width
        risen = slope[1][:, None] * move.after - slope[0][:, None] * move.before
        return effect, risen / move.width[:, None]
    direction = (move.after - move.before) / move.width[:, None]
    eta, along = rows.eta(rows.X), direction @ rows.beta
    mean, slope = family.mean(eta), family.slope(eta)
    effect = slope * along
    gradient = (_bend(family, eta) * along)[:, None] * rows.X + slope[:, None] * direction
    if method[0] == "e":
        gradient = gradient / mean[:, None] - (effect * slope / mean**2)[:, None] * rows.X
        effect = effect / mean
    if method[2:] == "ex":
        effect, gradient = effect * move.values, gradient * move.values[:, None]
    return effect, gradient


def _bend(family: Any, eta: Array) -> Array:
    """Second derivative of the mean in the linear predictor."""
    h = _STEP * np.maximum(1.0, np.abs(eta))
    bend: Array = (family.slope(eta + h) - family.slope(eta - h)) / (2 * h)
    return bend


class _Rows:
    """Rows of the design at which effects are taken, and how they move with each covariate."""

    def __init__(self, fit: Any, new: Any, at: str, known: Mapping[str, Any]) -> None:
        self.fit, self.at = fit, at
        self.beta, self.inner = fit.table.inner_values, fit.table.inner
        schema, covariates = fit.design.schema, fit.design.inputs[1:]
        self.table: dict[str, Any] | None = None
        if schema is not None and set(covariates) <= set(schema):
            self.table = self._columns(held_columns(new, covariates, schema), schema)
        source = new if self.table is None else self.table
        X = fit.design.exog(source, self.inner, self.table is None)
        eta = fit._known_term(source, len(X), known, True) + np.zeros(len(X))
        if not (np.isfinite(X).all() and np.isfinite(eta).all()):
            raise DataError(
                "get_margeff: new rows miss a value, or have one of no declared level; leave these "
                "rows out."
            )
        self.X, self.known = self._averaged(X), self._averaged(eta)

    def _columns(self, columns: dict[str, Any], schema: Schema) -> dict[str, Any]:
        """Columns of the new rows; numbers at their mean where effects are taken there."""
        numbers = [name for name in columns if self._mean and isinstance(schema[name], Numeric)]
        return columns | {n: np.full(columns[n].size, columns[n].mean()) for n in numbers}

    @property
    def _mean(self) -> bool:
        return self.at == "mean"

    def _averaged(self, values: Array) -> Array:
        """Values of rows, or of their mean where effects are taken there."""
        return np.asarray(values.mean(axis=0, keepdims=True) if self._mean else values)

    def eta(self, X: Array) -> Array:
        """Linear predictors of rows of the design."""
        eta: Array = X @ self.beta + self.known
        return eta

    def directions(self, dummy: bool, count: bool) -> Iterator[_Direction]:
        """Of each covariate in the model."""
        if self.table is None:
            yield from self._of_columns(dummy, count)
            return
        schema = self.fit.design.schema
        assert schema is not None
        for name in self.table:
            column = schema[name]
            moves = (
                iter([self._of_number(name, column, dummy, count)])
                if isinstance(column, Numeric)
                else self._of_levels(name, column.levels, dummy)
            )
            yield from (move for move in moves if np.any(move.before != move.after))

    def _moved(self, name: str, values: Any) -> Array:
        """Rows of the design where one column has other values."""
        assert self.table is not None
        return self._averaged(self.fit.design.exog({**self.table, name: values}, self.inner, False))

    def _of_number(self, name: str, column: Numeric, dummy: bool, count: bool) -> _Direction:
        """A derivative inside of the declared range; a step where whole values are to take one."""
        assert self.table is not None
        values = self.table[name]
        ends = None if self._mean else _steps(values, dummy, count)
        discrete = ends is not None
        if ends is None:
            h = _STEP * (column.upper - column.lower)
            ends = np.maximum(values - h, column.lower), np.minimum(values + h, column.upper)
        before, after = (self._moved(name, end) for end in ends)
        width, at = self._averaged(ends[1] - ends[0]), self._averaged(values)
        return _Direction(name, before, after, width, discrete, at)

    def _of_levels(self, name: str, levels: Sequence[Any], dummy: bool) -> Iterator[_Direction]:
        """Each level against the first, all else being as it is."""
        assert self.table is not None
        m = len(self.table[name])
        first, *others = (self._moved(name, np.full(m, level, dtype=object)) for level in levels)
        one = np.ones(len(first))
        for level, other in zip(levels[1:], others, strict=True):
            label = name if isinstance(level, bool) else f"{name}[T.{level}]"
            yield _Direction(label, first, other, one, dummy, one)

    def _of_columns(self, dummy: bool, count: bool) -> Iterator[_Direction]:
        """Columns of a matrix, or of public covariates, one by one."""
        design = self.fit.design
        for k, j in enumerate(self.inner):
            if j == design.standardization.intercept:
                continue
            before, after, values = self.X.copy(), self.X.copy(), self.X[:, k]
            ends = None if self._mean else _steps(values, dummy, count)
            before[:, k], after[:, k] = (values, values + 1.0) if ends is None else ends
            width = after[:, k] - before[:, k]
            yield _Direction(design.names[j], before, after, width, ends is not None, values)


def _steps(values: Array, dummy: bool, count: bool) -> tuple[Array, Array] | None:
    """Where a column of whole values moves from and to, if it is to: 0 and 1, or one less and more.

    As in statsmodels, values of which none is above 1 are those of a dummy.
    """
    if not np.all((values == np.round(values)) & (values >= 0)):
        return None
    if np.all(values <= 1):
        return (np.zeros_like(values), np.ones_like(values)) if dummy else None
    return (values - 1, values + 1) if count else None
