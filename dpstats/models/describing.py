"""The front door to what is looked at first: a mean, and columns described at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from dpstats.accounting import Ledger
from dpstats.design.written import sides
from dpstats.errors import OptionError, need_names, need_text
from dpstats.mechanisms.noise import Noise
from dpstats.models.model import Model
from dpstats.models.recipes import (
    Formula,
    check_widths,
    of_numbers,
    required,
    table_of,
    term,
    unquoted,
)
from dpstats.models.unbuilt import known_arguments
from dpstats.privacy import Central
from dpstats.results.descriptive import DescribeResults
from dpstats.schema import Numeric, Schema
from dpstats.tables import column_names
from dpstats.tables.engines import Dask
from dpstats.tables.streams import stream_of

__all__ = ["describe", "describe_model", "mean"]


@known_arguments
def describe(
    data: Any,
    schema: Schema,
    privacy: Central,
    ledger: Ledger | None = None,
    *,
    columns: Sequence[str] | None = None,
    subset: str | None = None,
    noise: Noise | None = None,
) -> DescribeResults:
    """Number, missing values, mean, standard deviation and quartiles of columns, in one fit.

    Parameters
    ----------
    data : table
        Private rows.
    schema : Schema
        Public declaration of the columns; ranges may be far too wide.
    privacy : Central
        What to spend, on all columns together; delta is above 0.
    ledger : Ledger, optional
        Where the cost is charged before any row is read.
    columns : sequence of str, optional
        Columns to describe, all declared ``Numeric``; by default all that are, and are there.
    subset : str, optional
        Rows that are meant; see `ols`.
    noise : SeededNoise, optional
        For simulation; the result is then NOT private.

    Returns
    -------
    DescribeResults
        ``frame()`` is a DataFrame with one row a column; ``intervals()``, ``summary()``, ``save()``
        and the rest are as for every fit.

    Raises
    ------
    DPStatsError
        As `Model.fit`, before anything is charged.

    Warns
    -----
    FeasibilityWarning
        If noise blurs the distributions of so many columns; says how many rows suffice.

    Notes
    -----
    Guarantee: Gaussian noise on counts and on clipped sums of all columns at once; see
    `dpstats.estimators.central.descriptive.describe.ColumnDescriptions`.

    Examples
    --------
    >>> import dpstats as dp
    >>> from dpstats.datasets import randhie
    >>> found = dp.describe(*randhie.load(), dp.Central(1.0, 1e-6), columns=["mdvis", "disea"])
    >>> found.frame().columns.tolist()
    ['count', 'missing', 'mean', 'std', '25%', '50%', '75%']
    """
    model = describe_model(data, schema, columns, subset=subset)
    return cast("DescribeResults", model.fit(privacy, ledger, noise=noise))


def describe_model(
    data: Any,
    schema: Schema | None,
    columns: Sequence[str] | None = None,
    n: int | None = None,
    subset: str | None = None,
) -> Model:
    """The model that `describe` fits."""
    if columns is None:
        declarations = required(schema)
        there = None if data is None else set(column_names(stream_of(data, declarations)))
        columns = [
            name
            for name, declared in declarations.items()
            if isinstance(declared, Numeric) and (there is None or name in there)
        ]
    if not need_names(columns=columns):
        raise OptionError("No column to describe: the table has none that is declared Numeric.")
    return Model("describe", of_numbers(columns, data, schema), data, n, subset=subset)


def mean(
    formula: str,
    data: Any = None,
    schema: Schema | None = None,
    *,
    missing: str = "complete",
    subset: str | None = None,
    n: int | None = None,
    sites: str | None = None,
    engine: Dask | None = None,
) -> Model:
    """Mean of one column, ``mean("y")`` or ``mean("y ~ 1")``.

    Parameters and errors are those of `ols`.
    """
    need_text(formula=formula)
    name = formula if formula in required(schema) else formula.strip()
    alone = name in required(schema)  # a column of any name, such as one that holds a space
    column = name if name.isidentifier() or not alone else term(name)
    text = formula if sides(formula)[0] and not alone else f"{column} ~ 1"
    recipe = Formula(text, required(schema))
    check_widths([name if alone else unquoted(sides(text)[0], recipe.schema)], recipe.schema)
    model = Model("mean", recipe, table_of(data, sites, engine), n, missing=missing, subset=subset)
    if not (model.design.has_intercept and len(model.design.names) == 1):
        raise OptionError(
            f'mean({formula!r}): write mean("y") or mean("y ~ 1"); ols takes covariates.'
        )
    return model
