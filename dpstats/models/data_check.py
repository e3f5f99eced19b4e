"""The front door to a check of a table against its schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from dpstats.accounting import Ledger
from dpstats.errors import OptionError, need_names
from dpstats.mechanisms.noise import Noise
from dpstats.models.model import Model
from dpstats.models.recipes import of_columns, required
from dpstats.models.unbuilt import known_arguments
from dpstats.privacy import Central
from dpstats.results.data_check import CheckResults
from dpstats.schema import Boolean, Categorical, Numeric, Schema
from dpstats.tables import column_names
from dpstats.tables.streams import stream_of

__all__ = ["check", "check_model"]


@known_arguments
def check(
    data: Any,
    schema: Schema,
    privacy: Central,
    ledger: Ledger | None = None,
    *,
    columns: Sequence[str] | None = None,
    subset: str | None = None,
    noise: Noise | None = None,
) -> CheckResults:
    """Shares of each column that are missing, or outside of what the schema declares.

    For a small part of a budget, before the real fits: whether ranges and levels are those of the
    data is private, so nothing else may say it.

    Parameters
    ----------
    data : table
        Private rows.
    schema : Schema
        Public declaration of the columns.
    privacy : Central
        What to spend, on all columns together; delta is above 0.
    ledger : Ledger, optional
        Where the cost is charged before any row is read.
    columns : sequence of str, optional
        Columns to check; by default all that are declared, and are there.
    subset : str, optional
        Rows that are meant; see `ols`.
    noise : SeededNoise, optional
        For simulation; the result is then NOT private.

    Returns
    -------
    CheckResults
        ``frame()`` is a DataFrame with one row a column: declared, missing, outside, margin.
        ``units`` is the noisy number of units, where the schema declares one.

    Raises
    ------
    DPStatsError
        As `Model.fit`, before anything is charged.

    Warns
    -----
    FeasibilityWarning
        If noise hides shares of so many columns; says how many rows suffice.

    Notes
    -----
    Guarantee: Gaussian noise on three counts of each column at once (as declared, missing,
    outside); see `dpstats.queries.cells.DeclaredCounts`. Rows whose unit is missing are not
    counted, as in every fit.

    Examples
    --------
    >>> import dpstats as dp
    >>> from dpstats.datasets import randhie
    >>> found = dp.check(*randhie.load(), dp.Central(0.05, 1e-7), columns=["mdvis", "disea"])
    >>> found.frame().columns.tolist()
    ['declared', 'missing', 'outside', 'margin']
    """
    model = check_model(data, schema, columns, subset=subset)
    return cast("CheckResults", model.fit(privacy, ledger, noise=noise))


def check_model(
    data: Any,
    schema: Schema | None,
    columns: Sequence[str] | None = None,
    n: int | None = None,
    subset: str | None = None,
) -> Model:
    """The model that `check` fits."""
    declared = required(schema)
    if columns is None:
        there = None if data is None else set(column_names(stream_of(data, declared)))
        columns = [name for name in declared if there is None or name in there]
    if not need_names(columns=columns):
        raise OptionError("No column to check: the table has none that is declared.")
    recipe = of_columns(columns, data, schema, Numeric, Categorical, Boolean)
    return Model("check", recipe, data, n, subset=subset)
