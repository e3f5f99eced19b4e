"""The front door: formulas and tables in, models out; `Model` plans and fits them."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting import Ledger
from dpstats.checks import check_paid, guessed_rows
from dpstats.design import DeclaredDesign, Design, PublicDesign, captured
from dpstats.errors import DataError, OptionError, SchemaError
from dpstats.estimators.base import Request, schedule
from dpstats.families import BINOMIAL, GAUSSIAN, Family
from dpstats.families import family as family_of
from dpstats.holders import Curator
from dpstats.holders.sealed import without_frames
from dpstats.mechanisms.noise import Noise, SafeNoise
from dpstats.model import Model
from dpstats.privacy import Central, Neighbors
from dpstats.protocol import Plan
from dpstats.queries import ResponseInterval
from dpstats.schema import Numeric, Schema
from dpstats.tables.coercion import as_column, as_matrix, kind_of, to_float

__all__ = ["GLM", "OLS", "Logit", "Model", "glm", "logit", "mean", "ols", "private_range"]

_KINDS = {GAUSSIAN: "ols", BINOMIAL: "logit"}  # every other family is "glm"


@dataclass(frozen=True)
class _Formula:
    """Design of a formula over a table."""

    text: str
    schema: Schema
    family: Family = GAUSSIAN
    offset: str | None = None
    exposure: str | None = None
    context: Mapping[str, Any] = field(default_factory=dict)

    def private(self) -> Design:
        return DeclaredDesign.from_formula(
            self.text,
            self.schema,
            family=self.family,
            offset=self.offset,
            exposure=self.exposure,
        )

    def public(self, data: Any) -> PublicDesign:
        return PublicDesign.of_table(
            self.text,
            self.schema,
            data,
            family=self.family,
            offset=self.offset,
            exposure=self.exposure,
            context=self.context,
        )


@dataclass(frozen=True)
class _Arrays:
    """Design of a matrix and what is known about its columns."""

    columns: int
    bounds: Mapping[str, Any]
    names: Sequence[str] | None
    family: Family
    sparse: bool

    @property
    def text(self) -> str:
        return f"y on {self.columns} columns"

    def private(self) -> Design:
        return DeclaredDesign.from_arrays(
            self.columns,
            self.bounds["exog"],
            self.bounds["endog"],
            names=self.names,
            family=self.family,
            offset_bounds=self.bounds.get("offset"),
            exposure_bounds=self.bounds.get("exposure"),
            sparse=self.sparse,
        )

    def public(self, data: Any) -> PublicDesign:
        _, exog, known = data
        return PublicDesign.of_arrays(
            exog, self.bounds["endog"], self.names, family=self.family, **known
        )


def ols(
    formula: str, data: Any = None, schema: Schema | None = None, *, n: int | None = None
) -> Model:
    """Linear regression by formula.

    Parameters
    ----------
    formula : str
        ``"y ~ x1 + C(g)"``; every column must be declared in `schema`.
    data : table, optional
        pandas, polars or pyarrow table, or dict of arrays. Needed by `Model.fit`.
    schema : Schema
        Public declaration of the columns.
    n : int, optional
        Public number of rows, for planning without a table.

    Returns
    -------
    Model

    Raises
    ------
    FormulaError
        If a term may not be used on private rows.
    SchemaError
        If a column is not declared.
    """
    recipe = _Formula(formula, _required(schema), context=_variables(formula))
    return Model("ols", recipe, data, n)


def logit(
    formula: str,
    data: Any = None,
    schema: Schema | None = None,
    *,
    offset: str | None = None,
    n: int | None = None,
) -> Model:
    """Logistic regression by formula.

    Parameters
    ----------
    formula : str
        As in `ols`. The response is declared ``Categorical`` with two levels (the second one is the
        event; levels 0 and 1 mean themselves), ``Boolean()``, or ``Numeric(0, 1)``.
    data, schema, n
        As in `ols`.
    offset : str, optional
        As in `glm`.

    Returns
    -------
    Model

    Raises
    ------
    FormulaError, SchemaError
        As `glm`.
    """
    context = _variables(formula, offset)
    recipe = _Formula(formula, _required(schema), BINOMIAL, offset, context=context)
    return Model("logit", recipe, data, n)


def glm(
    formula: str,
    data: Any = None,
    schema: Schema | None = None,
    *,
    family: Any = "gaussian",
    link: str | None = None,
    offset: str | None = None,
    exposure: str | None = None,
    n: int | None = None,
) -> Model:
    """Generalised linear model by formula.

    Parameters
    ----------
    formula, data, schema, n
        As in `ols`. A Poisson response is declared ``Numeric(0, upper)``, a binomial one as in
        `logit`; values outside the declaration are moved into it.
    family : str or statsmodels family, default "gaussian"
        ``"gaussian"``, ``"binomial"`` or ``"poisson"``, or such as ``sm.families.Poisson()``.
    link : str, optional
        ``"identity"``, ``"log"`` or ``"logit"``; the canonical one by default.
    offset : str, optional
        Declared column, or a term such as ``"np.log(years)"``, that is added to the linear
        predictor with coefficient 1.
    exposure : str, optional
        Declared column or term, with a lower bound above 0, whose logarithm is added likewise.

    Returns
    -------
    Model

    Raises
    ------
    FormulaError
        If a term may not be used on private rows.
    SchemaError
        If a column is not declared, the response may leave the family's domain, or the exposure
        may be 0.
    OptionError
        If the family or its link is not supported.
    """
    law = family_of(family, link)
    context = _variables(formula, offset, exposure)
    recipe = _Formula(formula, _required(schema), law, offset, exposure, context)
    return Model(_KINDS.get(law, "glm"), recipe, data, n)


def _variables(*texts: str | None) -> dict[str, Any]:
    """Variables and functions of whoever called the front door that a formula may name.

    Only a formula over public covariates can use them.
    """
    frame = sys._getframe(2)
    return captured(" ".join(filter(None, texts)), {**frame.f_globals, **frame.f_locals})


def mean(
    formula: str, data: Any = None, schema: Schema | None = None, *, n: int | None = None
) -> Model:
    """Mean of one column, ``mean("y")`` or ``mean("y ~ 1")``.

    Parameters and errors are those of `ols`.
    """
    text = formula if "~" in formula else f"{formula} ~ 1"
    model = Model("mean", _Formula(text, _required(schema)), data, n)
    if not (model.design.has_intercept and len(model.design.names) == 1):
        raise OptionError(
            f'mean({formula!r}): write mean("y") or mean("y ~ 1"); ols takes covariates.'
        )
    return model


def OLS(  # noqa: N802 - as in statsmodels
    endog: Any,
    exog: Any,
    bounds: Mapping[str, Any],
    names: Sequence[str] | None = None,
) -> Model:
    """Linear regression on arrays, as in statsmodels: no intercept is added.

    Parameters
    ----------
    endog : array of shape (n,)
        Response.
    exog : array, DataFrame or scipy.sparse matrix of shape (n, d)
        Design; include a column of ones with bounds (1, 1) for an intercept. The bounds of every
        other column of a sparse matrix contain 0.
    bounds : mapping
        ``{"endog": (lower, upper), "exog": (lower, upper) or a list of d pairs}``; public.
    names : sequence of str, optional
        Column names; a DataFrame's own, or ``x1, x2, ...``.

    Returns
    -------
    Model
    """
    return _array_model(endog, exog, bounds, names, GAUSSIAN, {})


def Logit(  # noqa: N802 - as in statsmodels
    endog: Any,
    exog: Any,
    bounds: Mapping[str, Any],
    names: Sequence[str] | None = None,
    *,
    offset: Any = None,
) -> Model:
    """Logistic regression on arrays, as in statsmodels: no intercept is added.

    Parameters
    ----------
    endog : array of shape (n,)
        Response: 0, 1, or a share between them.
    exog, bounds, names
        As in `OLS`; ``bounds["endog"]`` is (0, 1) where it is not given.
    offset : array of shape (n,), optional
        As in `GLM`.

    Returns
    -------
    Model
    """
    return GLM(endog, exog, bounds, names, family=BINOMIAL, offset=offset)


def GLM(  # noqa: N802 - as in statsmodels
    endog: Any,
    exog: Any,
    bounds: Mapping[str, Any],
    names: Sequence[str] | None = None,
    *,
    family: Any = "gaussian",
    link: str | None = None,
    offset: Any = None,
    exposure: Any = None,
) -> Model:
    """Generalised linear model on arrays, as in statsmodels: no intercept is added.

    Parameters
    ----------
    endog, exog, names
        As in `OLS`.
    bounds : mapping
        As in `OLS`, with public bounds of ``"offset"`` and ``"exposure"`` where they are given.
    family, link
        As in `glm`.
    offset : array of shape (n,), optional
        Added to the linear predictor with coefficient 1.
    exposure : array of shape (n,), optional
        Its logarithm is added likewise; its lower bound is above 0.

    Returns
    -------
    Model
    """
    known = {"offset": offset, "exposure": exposure}
    given = {name: values for name, values in known.items() if values is not None}
    return _array_model(endog, exog, bounds, names, family_of(family, link), given)


def _array_model(
    endog: Any,
    exog: Any,
    bounds: Mapping[str, Any],
    names: Sequence[str] | None,
    law: Family,
    known: Mapping[str, Any],
) -> Model:
    """A model of arrays whose bounds are given for each of them."""
    if law == BINOMIAL and isinstance(bounds, Mapping):
        bounds = {"endog": law.domain, **bounds}
    wanted = ("endog", "exog", *known)
    if not isinstance(bounds, Mapping) or set(bounds) != set(wanted):
        got = sorted(bounds) if isinstance(bounds, Mapping) else type(bounds).__name__
        raise OptionError(
            f"bounds has keys {got}: {', '.join(map(repr, wanted))} are needed, as in "
            "bounds={'endog': (lower, upper), 'exog': (lower, upper) or one pair per column}."
        )
    exog = as_matrix(exog)
    shape = np.shape(exog)
    length = (len(endog),) if isinstance(endog, (list, tuple)) else np.shape(endog)
    if len(shape) != 2 or length not in {(shape[0],), (shape[0], 1)}:
        raise DataError(f"endog has shape {length} and exog {shape}: (n,) and (n, d) are needed.")
    if names is None and hasattr(exog, "columns"):
        names = [str(c) for c in exog.columns]
    recipe = _Arrays(shape[1], bounds, names, law, hasattr(exog, "tocsr"))
    model = Model(_KINDS.get(law, "glm"), recipe, (endog, exog, known))
    model.design  # noqa: B018 - wrong bounds are refused here and now
    return model


def private_range(
    column: str,
    data: Any,
    privacy: Central,
    ledger: Ledger | None = None,
    *,
    unit: str | None = None,
    max_rows: int | None = None,
    noise: Noise | None = None,
) -> Numeric:
    """Buy bounds for a column whose range nobody knows, at the price of `privacy`.

    The ends are chosen among 0 and +-2^k, k = -20 ... 60: as few rows as possible outside, and no
    doubling of the range that would add fewer than about 6 / epsilon rows (6 m / epsilon where a
    unit has up to m). The result is public and may go into a `Schema`.

    Parameters
    ----------
    column : str
        Column to bound.
    data : table
        Private rows.
    privacy : Central
        What to spend; delta may be 0. Where the number of rows is private (`unit`, add-remove
        neighbours) it holds a public guess: ``Central(..., rows=20_000)``.
    ledger : Ledger, optional
        Where the cost is charged before any row is read.
    unit, max_rows : str, int, optional
        As in `Schema`: the column that names the person (or other unit) whose rows are protected
        together, and how many of them may contribute. Without them the unit is one row.
    noise : SeededNoise, optional
        For simulation; a range bought with it is NOT private.

    Returns
    -------
    Numeric
        Declaration with the bounds found.

    Notes
    -----
    Guarantee: rows are mapped one by one through asinh(2^20 y), a fixed public function; the range
    is one exponential mechanism on `ResponseInterval` utilities, whose sensitivity is the number of
    rows of one unit, 1 without `unit` (McSherry & Talwar 2007, Theorem 6), at the cost `privacy`
    allows. Rows without a value or a unit are left out.
    """
    if not isinstance(privacy, Central):
        raise OptionError("A range is bought under dp.Central(...), and under nothing else.")
    powers = 2.0 ** np.arange(-20, 61)
    ends = np.r_[-powers[::-1], 0.0, powers]
    grid = np.arcsinh(2.0**20 * ends)
    mapped = "value" if unit != "value" else "mapped"
    ends_declared = {mapped: Numeric(float(grid[0]), float(grid[-1]))}
    design = DeclaredDesign.from_formula(
        f"{mapped} ~ 1", Schema(ends_declared, unit=unit, max_rows=max_rows)
    )
    check_paid(ledger, noise)
    values = _numeric_column(data, column)
    units = {} if unit is None else {unit: _column(data, unit)}
    n = _public_rows(privacy, len(values), unit)
    privacy.check_delta(n)
    asks = [Request("range", 1.0, f"range of {column}", kind="selection")]
    mechanisms, cost = schedule(asks, privacy)
    plan = Plan(
        "range", "exponential", privacy, n, (column,), mechanisms, cost, max_rows=max_rows or 1
    )
    noise = SafeNoise() if noise is None else noise
    ledger = Ledger.memory(privacy.epsilon, privacy.delta) if ledger is None else ledger
    standard = design.standardization
    first, last = np.triu_indices(grid.size, k=1)
    doublings = (grid[last] - grid[first]) / math.log(2)
    query = ResponseInterval(
        (grid - standard.y_center) / standard.y_scale,
        first,
        last,
        6.0 * (max_rows or 1) / privacy.epsilon * doublings,
    )
    design.source({mapped: values, **units})  # lengths and types
    ledger.charge(plan, column, unit, reproducible=noise.reproducible)
    try:
        found = _choose({mapped: values, **units}, mapped, query, design, plan, noise)
    except BaseException as error:
        raise without_frames(error) from None
    finally:
        del values, units  # this frame is part of the traceback
    candidates = np.column_stack([query.edges[first], query.edges[last]])
    chosen = np.argmin(np.abs(candidates - found).sum(axis=1))
    return Numeric(float(ends[first[chosen]]), float(ends[last[chosen]]))


def _choose(
    table: dict[str, Any],
    column: str,
    query: ResponseInterval,
    design: Design,
    plan: Plan,
    noise: Noise,
) -> NDArray[np.float64]:
    """The noisy choice of an interval for asinh(2^20 values)."""
    with np.errstate(all="ignore"):  # a warning about a value would be a release
        scaled = np.arcsinh(2.0**20 * to_float(table[column]))
    source = design.source(table | {column: scaled})
    return Curator(source, design, plan, noise).ask(query, "range").value


def _public_rows(privacy: Central, rows: int, unit: str | None) -> int:
    """The row count, or the public guess that is needed where it is private."""
    if privacy.neighbors is not Neighbors.ADD_REMOVE and unit is None:
        if rows == 0:
            raise DataError("The table has no rows: at least one is needed.")
        return rows
    return guessed_rows(privacy)


def _numeric_column(data: Any, column: str) -> Any:
    """One column as an array, by name and type; no value is looked at."""
    values = _column(data, column)
    kind = kind_of(values)
    if kind not in ("number", "boolean", "object"):
        raise DataError(f"Column {column!r} has type {kind}: a numeric column is needed.")
    return values


def _column(data: Any, column: str) -> Any:
    try:
        return as_column(data[column], column)
    except DataError:
        raise
    except Exception:
        raise DataError(f"The table has no column {column!r}.") from None


def _required(schema: Schema | None) -> Schema:
    if not isinstance(schema, Schema):
        raise SchemaError(
            "schema=... is needed: what may be known about the columns before a row is read. "
            "Schema.template(df) writes a skeleton from names and types."
        )
    return schema
