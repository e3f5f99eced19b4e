"""The front door: formulas and tables in, models out; `Model` plans and fits them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpstats.design import DeclaredDesign, Design, PublicDesign, captured
from dpstats.errors import DataError, OptionError, SchemaError, TrustError
from dpstats.families import BINOMIAL, GAUSSIAN, Family
from dpstats.families import family as family_of
from dpstats.federated import Sites
from dpstats.models.model import Model
from dpstats.schema import Categorical, Numeric, Schema
from dpstats.tables import named_columns
from dpstats.tables.coercion import as_matrix, check_kind
from dpstats.tables.streams import stream_of

__all__ = ["GLM", "OLS", "Formula", "Logit", "Model", "glm", "logit", "mean", "ols"]

_KINDS = {GAUSSIAN: "ols", BINOMIAL: "logit"}  # every other family is "glm"


@dataclass(frozen=True)
class Formula:
    """How to make the design of a formula over a table; see `dpstats.models.model.Recipe`."""

    formula: str
    schema: Schema
    family: Family = GAUSSIAN
    offset: str | None = None
    exposure: str | None = None
    context: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""  # what the ledger says in place of the formula
    one_sided: bool = False  # without a response

    @property
    def text(self) -> str:
        """What the ledger says."""
        return self.label or self.formula

    def private(self) -> Design:
        """The design where all columns are private."""
        return DeclaredDesign.from_formula(
            self.formula,
            self.schema,
            response=not self.one_sided,
            family=self.family,
            offset=self.offset,
            exposure=self.exposure,
        )

    def public(self, data: Any) -> PublicDesign:
        """The design where covariates are public."""
        if self.one_sided:
            raise TrustError("All columns are private here: ask for Central(epsilon, delta).")
        return PublicDesign.of_table(
            self.formula,
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
            self.columns, self.bounds, self.names, family=self.family, sparse=self.sparse
        )

    def public(self, data: Any) -> PublicDesign:
        _, exog, known = data
        return PublicDesign.of_arrays(
            exog, self.bounds["endog"], self.names, family=self.family, **known
        )


def ols(
    formula: str,
    data: Any = None,
    schema: Schema | None = None,
    *,
    missing: str = "complete",
    n: int | None = None,
    sites: str | None = None,
) -> Model:
    """Linear regression by formula.

    Parameters
    ----------
    formula : str
        ``"y ~ x1 + C(g)"``; every column must be declared in `schema`.
    data : table, optional
        pandas, polars or pyarrow table, or dict of arrays. Needed by `Model.fit`. What is larger
        than memory: paths of CSV or Parquet files, a pattern or a folder, a pyarrow Dataset, a
        polars LazyFrame, anything with ``__arrow_c_stream__``. Of several sites a mapping of their
        names to tables, or to paths of CSV or Parquet files.
    schema : Schema
        Public declaration of the columns.
    missing : {"complete", "em"}
        What becomes of rows that miss a value. ``"complete"``: they contribute nothing, and how
        many do is a noisy count; ``plan(privacy, complete=0.8)`` says what that costs. ``"em"``: a
        covariate that is missing completely at random is completed from those that were observed,
        under released moments; numeric, additive terms, under `Central`.
    n : int, optional
        Public number of rows, for planning without a table, or of a stream that does not say it.
    sites : str, optional
        Column of `data` that names the site of each row, for `Federated`; names are public.

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
    recipe = Formula(formula, required(schema), context=_variables(formula))
    return Model("ols", recipe, Sites.of(data, sites), n, missing=missing)


def logit(
    formula: str,
    data: Any = None,
    schema: Schema | None = None,
    *,
    offset: str | None = None,
    missing: str = "complete",
    n: int | None = None,
    sites: str | None = None,
) -> Model:
    """Logistic regression by formula.

    Parameters
    ----------
    formula : str
        As in `ols`. The response is declared ``Categorical`` with two levels (the second one is the
        event; levels 0 and 1 mean themselves), ``Boolean()``, or ``Numeric(0, 1)``.
    data, schema, n, sites
        As in `ols`.
    offset : str, optional
        As in `glm`.
    missing : {"complete"}
        Rows that miss a value contribute nothing; see `ols`.

    Returns
    -------
    Model

    Raises
    ------
    FormulaError, SchemaError
        As `glm`.
    OptionError
        If ``missing="em"``: rows are completed for linear models alone.
    """
    context = _variables(formula, offset)
    recipe = Formula(formula, required(schema), BINOMIAL, offset, context=context)
    return Model("logit", recipe, Sites.of(data, sites), n, missing=missing)


def glm(
    formula: str,
    data: Any = None,
    schema: Schema | None = None,
    *,
    family: Any = "gaussian",
    link: str | None = None,
    offset: str | None = None,
    exposure: str | None = None,
    missing: str = "complete",
    n: int | None = None,
    sites: str | None = None,
) -> Model:
    """Generalised linear model by formula.

    Parameters
    ----------
    formula, data, schema, n, sites
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
    missing : {"complete", "em"}
        As in `ols`; ``"em"`` for the gaussian family with the identity link alone.

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
    recipe = Formula(formula, required(schema), law, offset, exposure, context)
    return Model(_KINDS.get(law, "glm"), recipe, Sites.of(data, sites), n, missing=missing)


def _variables(*texts: str | None) -> dict[str, Any]:
    """Variables and functions of whoever called the front door that a formula may name.

    Only a formula over public covariates can use them.
    """
    frame = sys._getframe(2)
    return captured(" ".join(filter(None, texts)), {**frame.f_globals, **frame.f_locals})


def mean(
    formula: str,
    data: Any = None,
    schema: Schema | None = None,
    *,
    missing: str = "complete",
    n: int | None = None,
    sites: str | None = None,
) -> Model:
    """Mean of one column, ``mean("y")`` or ``mean("y ~ 1")``.

    Parameters and errors are those of `ols`.
    """
    text = formula if "~" in formula else f"{formula} ~ 1"
    recipe = Formula(text, required(schema))
    model = Model("mean", recipe, Sites.of(data, sites), n, missing=missing)
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


def required(schema: Schema | None) -> Schema:
    """The schema, or an error that says what one is."""
    if not isinstance(schema, Schema):
        raise SchemaError(
            "schema=... is needed: what may be known about the columns before a row is read. "
            "Schema.template(df) writes a skeleton from names and types."
        )
    return schema


def of_columns(
    columns: Sequence[str], data: Any, schema: Schema | None, *kinds: type[Any]
) -> Formula:
    """The design of some columns of a table, all of them private, each declared as one of `kinds`.

    Raises
    ------
    OptionError, SchemaError, DataError
        If one is no column, is named twice, is not declared, is declared otherwise, or is numeric
        and of another type in the table.
    """
    declared = required(schema)
    for name in columns:
        if not isinstance(name, str):
            raise OptionError(f"A column is named by a text, not by a {type(name).__name__}.")
        if name not in declared:
            known = ", ".join(map(repr, declared))
            raise SchemaError(f"Column {name!r} is not declared; the schema has {known}.")
        if not isinstance(declared[name], kinds):
            wanted = " or ".join(kind.__name__ for kind in kinds)
            raise SchemaError(
                f"Column {name!r} is declared {type(declared[name]).__name__}; {wanted} is needed."
            )
    if len(set(columns)) != len(columns):
        raise OptionError(f"Columns {list(columns)!r}: each is named once.")
    numbers = [name for name in columns if isinstance(declared[name], Numeric)]
    check_numbers(data, numbers, declared)
    formula = " + ".join(["0", *(level_term(name, declared) for name in columns)])
    return Formula(formula, declared, one_sided=True, label=", ".join(columns))


def level_term(name: str, declared: Schema) -> str:
    """A column as a term: a factor of its levels, or a number."""
    factor = isinstance(declared[name], Categorical)
    return f"C({quoted(name)})" if factor else term(name)


def check_numbers(data: Any, columns: Sequence[str], schema: Schema) -> None:
    """Refuse a table that holds something else than numbers in these columns, if there is one."""
    if data is not None:
        for name, column in named_columns(stream_of(data, schema), columns).items():
            check_kind(column, name, ("number", "boolean"))


def quoted(column: str) -> str:
    """A column of any name, such as one that holds a bracket, in a formula."""
    text = (c if c.isalnum() or not c.isascii() else f"\\x{ord(c):02x}" for c in column)
    return f"Q('{''.join(text)}')"


def term(column: str) -> str:
    """A column as a term of a right side, where formulaic reads quotes inside of quotes."""
    return quoted(column) if set("`~") & set(column) else f"`{column}`"
