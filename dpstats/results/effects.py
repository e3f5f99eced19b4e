"""Marginal effects at given rows: how means of the response change with each covariate.

Arithmetic on released coefficients, their covariance, and rows that the caller gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.design import held_columns
from dpstats.errors import DataError, OptionError, PrivateQuantityError, among, given, need_flag
from dpstats.families import Family
from dpstats.results.inference import interval, wald_table
from dpstats.schema import Numeric, Schema
from dpstats.text import grid

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Chances", "MarginalEffects", "OneMean", "in_coefficients", "marginal_effects"]

Array = NDArray[np.float64]

_STEP = 1e-5  # numerical: share of a range over which a derivative is taken
# Of rows, at which effects may be taken.
_MIDDLES: dict[str, Callable[..., Any]] = {"mean": np.mean, "median": np.median}
_AT = ("overall", *_MIDDLES, "all")
_METHODS = {"dydx": "dy/dx", "eyex": "d(lny)/d(lnx)", "dyex": "dy/d(lnx)", "eydx": "d(lny)/dx"}


@dataclass(frozen=True, eq=False)
class MarginalEffects:
    """Marginal effects with delta-method standard errors, in the manner of statsmodels.

    Attributes
    ----------
    names : tuple of str
        The k covariates; of one with levels, each level against the first. Of a multinomial logit
        a covariate has an effect on the probability of each level of the response, ``age [car]``.
    margeff : ndarray of shape (k,), or (m, k) with ``at="all"``
        The effects.
    margeff_cov : ndarray of shape (k, k) or (m, k, k)
        Covariance that follows from `cov_params` of the fit: sampling and privacy noise of the
        coefficients. The rows at which effects are taken are given, and add nothing.
    at, method : str
        As they were asked for.
    mark : str
        Empty but for reproducible noise, and where the fit warns.
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


@dataclass(frozen=True)
class OneMean:
    """The mean of a response, of one linear predictor; `known` is an offset of new rows."""

    family: Family
    known: Callable[[Any, int], Array | float]
    outcomes: tuple[str, ...] = ()

    def derivatives(self, eta: Array) -> tuple[Array, Array, Array]:
        """Mean (m, 1) of predictors (m, 1), its slope (m, 1, 1) and its bend (m, 1, 1, 1)."""
        h = _STEP * np.maximum(1.0, np.abs(eta))
        bend = (self.family.slope(eta + h) - self.family.slope(eta - h)) / (2 * h)
        return self.family.mean(eta), self.family.slope(eta)[..., None], bend[..., None, None]


@dataclass(frozen=True)
class Chances:
    """The probability of each of K levels, of the q = K - 1 log odds against the first."""

    outcomes: tuple[str, ...]

    def known(self, table: Any, m: int) -> float:
        """There is no offset."""
        return 0.0

    def derivatives(self, eta: Array) -> tuple[Array, Array, Array]:
        """Probabilities (m, K), derivatives in the predictors (m, K, q), second ones (m, K, q, q).

        d p_j / d eta_l = p_j (1[j = l] - p_l), whose derivative in eta_h is
        p_j (1[j = h] - p_h) (1[j = l] - p_l) - p_j p_l (1[l = h] - p_h).
        """
        whole = np.column_stack([np.zeros(len(eta)), eta])
        odds = np.exp(whole - whole.max(axis=1, keepdims=True))
        p = odds / odds.sum(axis=1, keepdims=True)
        off = np.eye(p.shape[1])[None] - p[:, None, :]  # 1[j = l] - p_l
        slope = p[:, :, None] * off
        bend = slope[:, :, :, None] * off[:, :, None, :] - p[:, :, None, None] * slope[:, None]
        return p, slope[:, :, 1:], bend[:, :, 1:, 1:]


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
    law: OneMean | Chances,
    new: Any,
    at: str,
    method: str,
    *,
    dummy: bool,
    count: bool,
) -> MarginalEffects:
    """See `dpstats.results.regression.RegressionResults.get_margeff`; `law`: of which means."""
    if not (among(at, _AT) and among(method, _METHODS)):
        raise OptionError(
            f"at={given(at)}, method={given(method)}: at is one of {', '.join(map(repr, _AT))}; "
            f"method of {', '.join(map(repr, _METHODS))}. Effects at zero, or elsewhere, are "
            "those of a row, new={'x': [0]}."
        )
    need_flag(dummy=dummy, count=count)
    if not fit.has_inference:
        raise OptionError(fit.no_inference)
    if new is None:
        raise PrivateQuantityError(
            f"get_margeff(at={at!r}) without new=... is not available: over the private rows it is "
            "an exact function of them. Give rows that are public, new=...: a census, a published "
            "table, or made-up rows of interest."
        )
    rows = _EffectRows(fit, law, new, at)
    moves = list(rows.directions(dummy, count))
    if not moves:
        raise OptionError("get_margeff: no covariate is in the model.")
    found = [_effect(rows, move, method) for move in moves]
    margeff = np.concatenate([np.atleast_2d(effect) for effect, _ in found], axis=1)
    J = np.concatenate([gradient for _, gradient in found], axis=1)
    if at == "overall":
        margeff, J = margeff.mean(axis=0), J.mean(axis=0)
    elif at != "all":
        margeff, J = margeff[0], J[0]
    return MarginalEffects(
        names=tuple(
            f"{move.name} [{level}]" if level else move.name
            for move in moves
            for level in rows.law.outcomes or ("",)
        ),
        margeff=margeff,
        margeff_cov=J @ fit.table.cov @ np.swapaxes(J, -1, -2),
        at=at,
        method=method,
        mark=fit._mark,
    )


def _effect(rows: _EffectRows, move: _Direction, method: str) -> tuple[Array, Array]:
    """Effects (m, K) on K means, and their gradients in the q k coefficients, (m, K, q k)."""
    law = rows.law
    if move.discrete:
        if method[2:] == "ex":
            raise OptionError(
                f"method={method!r}: {move.name!r} moves from one place to another and has no "
                "logarithm; method='dydx' or 'eydx' takes it."
            )
        ends = []
        for X in (move.before, move.after):
            mean, slope, _ = law.derivatives(rows.eta(X))
            if method[0] == "e":
                mean, slope = np.log(mean), slope / mean[:, :, None]
            ends.append((mean, in_coefficients(slope, X)))
        effect, gradient = (after - before for before, after in zip(*ends, strict=True))
        return effect / move.width[:, None], gradient / move.width[:, None, None]
    direction = (move.after - move.before) / move.width[:, None]
    along = direction @ rows.beta
    mean, slope, bend = law.derivatives(rows.eta(rows.X))
    effect = np.einsum("mkl,ml->mk", slope, along)
    gradient = in_coefficients(np.einsum("mklh,ml->mkh", bend, along), rows.X)
    gradient += in_coefficients(slope, direction)
    if method[0] == "e":
        turned = in_coefficients(slope * (effect / mean**2)[:, :, None], rows.X)
        effect, gradient = effect / mean, gradient / mean[:, :, None] - turned
    if method[2:] == "ex":
        effect, gradient = effect * move.values[:, None], gradient * move.values[:, None, None]
    return effect, gradient


def in_coefficients(slope: Array, X: Array) -> Array:
    """A gradient in linear predictors (m, K, q), in their coefficients (m, K, q k)."""
    return (slope[..., None] * X[:, None, None, :]).reshape(*slope.shape[:2], -1)


class _EffectRows:
    """Rows of the design at which effects are taken, and how they move with each covariate."""

    def __init__(self, fit: Any, law: OneMean | Chances, new: Any, at: str) -> None:
        self.fit, self.law, self.at = fit, law, at
        q = max(len(law.outcomes) - 1, 1)
        self.beta: Array = fit.table.inner_values.reshape(q, -1).T
        self.inner = fit.table.inner[: len(self.beta)]
        schema, covariates = fit.design.schema, fit.design.inputs[1:]
        self.table: dict[str, Any] | None = None
        if schema is not None and set(covariates) <= set(schema):
            self.table = self._columns(held_columns(new, covariates, schema), schema)
        source = new if self.table is None else self.table
        X = fit.design.exog(source, self.inner, self.table is None)
        eta = law.known(source, len(X)) + np.zeros(len(X))
        if not (np.isfinite(X).all() and np.isfinite(eta).all()):
            raise DataError(
                "get_margeff: new rows miss a value, or have one of no declared level; leave these "
                "rows out."
            )
        self.X, self.known = self._averaged(X), self._averaged(eta)

    def _columns(self, columns: dict[str, Any], schema: Schema) -> dict[str, Any]:
        """Columns of the new rows; numbers in their middle where effects are taken there."""
        if (middle := self._middle) is None:
            return columns
        numbers = [name for name in columns if isinstance(schema[name], Numeric)]
        return columns | {n: np.full(columns[n].size, middle(columns[n])) for n in numbers}

    @property
    def _middle(self) -> Callable[..., Any] | None:
        return _MIDDLES.get(self.at)

    def _averaged(self, values: Array) -> Array:
        """Values of rows, or in their middle where effects are taken there."""
        middle = self._middle
        return values if middle is None else np.asarray(middle(values, axis=0, keepdims=True))

    def eta(self, X: Array) -> Array:
        """Linear predictors of rows of the design, shape (m, q)."""
        eta: Array = X @ self.beta + self.known[:, None]
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
        ends = None if self._middle else _steps(values, dummy, count)
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
            ends = None if self._middle else _steps(values, dummy, count)
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
