"""The front door to descriptions of columns: what is looked at before any model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpstats.design.written import sides
from dpstats.errors import OptionError, given, need_names, need_text
from dpstats.estimators.columns import QUARTILES, checked_bins, checked_levels
from dpstats.models import describing, recipes
from dpstats.models.describing import describe, describe_model
from dpstats.models.model import Model
from dpstats.models.recipes import Formula, level_term, of_columns, of_numbers, required
from dpstats.models.unbuilt import known_arguments
from dpstats.schema import Boolean, Categorical, Schema
from dpstats.tables.engines import Dask, placed

__all__ = [
    "corr",
    "crosstab",
    "describe",
    "describe_model",
    "histogram",
    "mean",
    "proportion",
    "quantile",
    "ttest",
    "variance",
]


@known_arguments
def quantile(
    column: str,
    data: Any = None,
    schema: Schema | None = None,
    q: float | Sequence[float] = QUARTILES,
    *,
    subset: str | None = None,
    n: int | None = None,
) -> Model:
    """Quantiles of a numeric column, with intervals; for `Central` and `Local`.

    Under ``Local(epsilon, interactive=True)`` most devices are asked about cells that are close to
    the quantiles; asked at once, about cells over the whole range, which should not be too wide.

    Parameters
    ----------
    column : str
        Declared ``Numeric``; a range may be far too wide.
    data : table, optional
        pandas, polars or pyarrow table, or dict of arrays. Needed by `Model.fit`.
    schema : Schema
        Public declaration of the columns.
    q : float or sequence of float, default (0.25, 0.5, 0.75)
        Levels between 0 and 1, as in pandas. All are read of the same releases.
    subset : str, optional
        Rows that are meant; see `ols`.
    n : int, optional
        Public number of rows, for planning without a table.

    Returns
    -------
    Model
        Its fit is a `QuantileResults`: ``params``, ``conf_int()``, ``frame()``.

    Raises
    ------
    SchemaError
        If the column is not declared, or not ``Numeric``.
    OptionError
        If a level is not between 0 and 1.

    Examples
    --------
    >>> import dpstats as dp
    >>> schema = dp.Schema(income=dp.Numeric(0, 1_000_000))
    >>> model = dp.quantile("income", schema=schema, q=[0.1, 0.5, 0.9], n=5_000)
    >>> model.plan(dp.Central(1.0, 1e-6)).parameters
    ('10%', '50%', '90%')
    """
    levels = checked_levels(q)
    recipe = of_numbers([column], data, schema)
    return Model("quantile", recipe, data, n, {"q": list(levels)}, subset=subset)


@known_arguments
def mean(
    formula: str,
    data: Any = None,
    schema: Schema | None = None,
    *,
    by: str | None = None,
    missing: str = "complete",
    subset: str | None = None,
    n: int | None = None,
    sites: str | None = None,
    engine: Dask | None = None,
) -> Model:
    """Mean of one column, ``mean("y")`` or ``mean("y ~ 1")``; in each group of another with `by`.

    Parameters
    ----------
    formula, data, schema, missing, subset, n, sites, engine
        As in `ols`; only ``missing="complete"``.
    by : str, optional
        A ``Categorical`` or ``Boolean`` column: means of its groups, for `Central`. The fit is then
        a `GroupMeansResults`.

    Returns
    -------
    Model

    Raises
    ------
    FormulaError, SchemaError, OptionError
        As `ols`, and with `by` as `quantile`.

    Examples
    --------
    >>> import dpstats as dp
    >>> schema = dp.Schema(y=dp.Numeric(0, 100), g=dp.Categorical(["a", "b", "c"]))
    >>> model = dp.mean("y", schema=schema, by="g", n=2_000)
    >>> model.plan(dp.Central(1.0, 1e-6)).parameters
    ('a', 'b', 'c')
    """
    if by is None:
        return describing.mean(
            formula,
            data,
            schema,
            missing=missing,
            subset=subset,
            n=n,
            sites=sites,
            engine=engine,
        )
    if sites is not None:
        raise OptionError("mean(..., by=...): sites= is for the mean of all rows.")
    data = placed(data, engine)
    parts = _grouped(*_two_columns(formula, by, schema, "mean"), data, schema, n)
    return Model("group means", *parts, missing=missing, subset=subset)


def _two_columns(formula: str, by: str, schema: Schema | None, asked: str) -> tuple[str, str]:
    """The column of ``"y"`` or ``"y ~ 1"``, and that of its groups, without backticks."""
    need_text(formula=formula, by=by)
    column, right = sides(formula)
    alone = not column or formula in required(schema)
    if not alone and right not in ("", "1"):
        raise OptionError(f'{asked}({formula!r}, by=...): write {asked}("y", by="g").')
    left = recipes.unquoted(formula if alone else column, schema)
    return left, recipes.unquoted(by, schema)


@known_arguments
def corr(
    columns: Sequence[str],
    data: Any = None,
    schema: Schema | None = None,
    *,
    subset: str | None = None,
    n: int | None = None,
) -> Model:
    """Spearman's correlations of numeric columns, or Pearson's: ``fit(..., method="pearson")``.

    Parameters
    ----------
    columns : sequence of str
        Two or more, declared ``Numeric``. Rows that miss one of them are left out.
    data, schema, subset, n
        As for `quantile`.

    Returns
    -------
    Model
        Its fit is a `CorrelationResults`: ``frame()`` is the matrix. Pearson's are of values held
        to windows that its summary names.

    Raises
    ------
    SchemaError, OptionError
        As `quantile`; if there are fewer than two columns.

    Examples
    --------
    >>> import dpstats as dp
    >>> schema = dp.Schema(x=dp.Numeric(0, 10), y=dp.Numeric(0, 10))
    >>> dp.corr(["x", "y"], schema=schema, n=2_000).plan(dp.Central(1.0, 1e-6)).parameters
    ('x, y',)
    """
    if len(need_names(columns=columns)) < 2:
        raise OptionError(f"columns={given(columns)}: two columns or more are correlated.")
    return Model("corr", of_numbers(columns, data, schema), data, n, subset=subset)


@known_arguments
def crosstab(
    index: str,
    columns: str,
    data: Any = None,
    schema: Schema | None = None,
    *,
    subset: str | None = None,
    n: int | None = None,
) -> Model:
    """Contingency table of two columns of levels, with a test of independence.

    Parameters
    ----------
    index, columns : str
        Declared ``Categorical`` or ``Boolean``: the rows and the columns of the table.
    data, schema, subset, n
        As for `quantile`.

    Returns
    -------
    Model
        Its fit is a `CrosstabResults`: ``counts(margins=True)``, ``chi2_contingency()``,
        ``frame()``.

    Raises
    ------
    SchemaError, OptionError
        As `proportion`.

    Examples
    --------
    >>> import dpstats as dp
    >>> schema = dp.Schema(a=dp.Boolean(), b=dp.Categorical(["u", "v"]))
    >>> dp.crosstab("a", "b", schema=schema, n=2_000).plan(dp.Central(1.0, 1e-6)).parameters
    ('False, u', 'False, v', 'True, u', 'True, v')
    """
    names = [index, columns]
    recipe = of_columns(names, data, schema, Categorical, Boolean)
    return Model("crosstab", recipe, data, n, {"columns": names}, subset=subset)


@known_arguments
def variance(
    column: str,
    data: Any = None,
    schema: Schema | None = None,
    *,
    subset: str | None = None,
    n: int | None = None,
) -> Model:
    """Mean, variance and standard deviation of a numeric column.

    Parameters and errors are those of `quantile`. The fit is a `VarianceResults`.

    Examples
    --------
    >>> import dpstats as dp
    >>> schema = dp.Schema(y=dp.Numeric(0, 1_000))
    >>> dp.variance("y", schema=schema, n=2_000).plan(dp.Central(1.0, 1e-6)).parameters
    ('mean', 'variance', 'std')
    """
    return Model("variance", of_numbers([column], data, schema), data, n, subset=subset)


@known_arguments
def ttest(
    formula: str,
    data: Any = None,
    schema: Schema | None = None,
    *,
    by: str | None = None,
    subset: str | None = None,
    n: int | None = None,
) -> Model:
    """Comparison of two groups: Welch's test, or with ``method="rank"`` a rank test.

    Parameters
    ----------
    formula : str
        ``"y ~ g"``: a ``Numeric`` column, and a ``Categorical`` or ``Boolean`` one of two levels.
    data, schema, subset, n
        As for `quantile`.
    by : str, optional
        The second one, where `formula` is the first: ``ttest("y", by="g")``.

    Returns
    -------
    Model
        Its fit is a `TTestResults`: ``params``, ``conf_int()``, ``statistic``, ``pvalue``.

    Raises
    ------
    SchemaError, OptionError
        As `quantile`; if the formula is not of this form, or there are not two levels.

    Examples
    --------
    >>> import dpstats as dp
    >>> schema = dp.Schema(y=dp.Numeric(0, 100), g=dp.Categorical(["a", "b"]))
    >>> dp.ttest("y ~ g", schema=schema, n=2_000).plan(dp.Central(1.0, 1e-6)).parameters
    ('b - a', 'mean of a', 'mean of b')
    """
    need_text(formula=formula)
    if by is None:
        left, right = sides(formula)
        if not (left and right) or sides(right)[0]:
            raise OptionError(
                f'ttest({formula!r}): write ttest("y ~ g") or ttest("y", by="g"), a column and its '
                "two groups."
            )
        left, right = (recipes.unquoted(side, schema) for side in (left, right))
    else:
        left, right = _two_columns(formula, by, schema, "ttest")
    parts = _grouped(left, right, data, schema, n)
    levels = getattr(required(schema)[right], "levels", ())
    if len(levels) != 2:
        raise OptionError(
            f"{right!r} has {len(levels)} levels: two groups are compared; dp.mean({left!r}, "
            f"by={right!r}) has the means of more."
        )
    return Model("ttest", *parts, subset=subset)


def _grouped(
    column: str, by: str, data: Any, schema: Schema | None, n: int | None
) -> tuple[Formula, Any, int | None, dict[str, list[str]]]:
    """A column and the groups of another: what models of both are made of."""
    numbers = of_numbers([column], data, schema)
    of_columns([by], None, schema, Categorical, Boolean)
    formula = f"{numbers.formula} + {level_term(by, numbers.schema)}"
    recipe = Formula(formula, numbers.schema, one_sided=True, label=f"{column} by {by}")
    return recipe, data, n, {"columns": [column, by]}


@known_arguments
def histogram(
    column: str,
    data: Any = None,
    schema: Schema | None = None,
    bins: int | str | Sequence[float] = "auto",
    *,
    subset: str | None = None,
    n: int | None = None,
) -> Model:
    """Histogram of a numeric column: shares, counts and densities of bins, with intervals.

    For `Central` and `Local`.

    Parameters
    ----------
    column, data, schema, subset, n
        As for `quantile`.
    bins : "auto", "whole", int or sequence of float
        A number of bins of equal width over the declared range, or one edge or more within it, to
        which its ends are added; a bin holds its upper edge, the first one its lower end, too.
        "whole" is a bin for each whole number of the range. By default budget or devices find where
        values are, and bins of a round width cover these; devices asked at once have the range.

    Returns
    -------
    Model
        Its fit is a `HistogramResults`: ``counts``, ``edges``, ``density``, ``frame()``; see
        `dpstats.plot.histogram`.

    Raises
    ------
    SchemaError, OptionError
        As `quantile`; if `bins` is none of these.

    Examples
    --------
    >>> import dpstats as dp
    >>> schema = dp.Schema(age=dp.Numeric(0, 100))
    >>> model = dp.histogram("age", schema=schema, bins=[18, 40, 65], n=5_000)
    >>> model.plan(dp.Central(1.0, 1e-6)).parameters
    ('[0, 18]', '(18, 40]', '(40, 65]', '(65, 100]')
    """
    recipe = of_numbers([column], data, schema)
    model = Model("histogram", recipe, data, n, {"bins": bins}, subset=subset)
    checked_bins(bins, *map(float, model.design.bounds[0]))
    return model


@known_arguments
def proportion(
    column: str,
    data: Any = None,
    schema: Schema | None = None,
    *,
    by: str | None = None,
    subset: str | None = None,
    n: int | None = None,
) -> Model:
    """Shares of the levels of a categorical or Boolean column, with Wilson's intervals.

    For `Central` and, of all rows together, `Local`.

    Parameters
    ----------
    column : str
        Declared ``Categorical`` or ``Boolean``.
    data, schema, subset, n
        As for `quantile`.
    by : str, optional
        Another such column: shares within its groups, for `Central`. All are read of one table, at
        the cost of one. The fit is then a `GroupProportionsResults`.

    Returns
    -------
    Model
        Its fit is a `ProportionResults`: ``params``, ``conf_int()``, ``frame()``.

    Raises
    ------
    SchemaError
        If the column is not declared, or numeric.

    Examples
    --------
    >>> import dpstats as dp
    >>> schema = dp.Schema(plan=dp.Categorical(["free", "paid"]))
    >>> model = dp.proportion("plan", schema=schema, n=2_000)
    >>> model.plan(dp.Central(1.0, 1e-6)).parameters
    ('free', 'paid')
    """
    names = [column] if by is None else [by, column]
    recipe = of_columns(names, data, schema, Categorical, Boolean)
    if by is None:
        return Model("proportion", recipe, data, n, subset=subset)
    return Model("group proportions", recipe, data, n, {"columns": names}, subset=subset)
