"""What nobody knows of columns, bought from a ledger: a range, or centres and scales."""

from __future__ import annotations

from typing import Any, cast

from dpstats.accounting import Ledger
from dpstats.errors import OptionError, need_text
from dpstats.estimators.central.range import ENDS, MAPPED
from dpstats.mechanisms.noise import Noise
from dpstats.models.model import Model
from dpstats.models.recipes import Formula, of_columns, quoted, required
from dpstats.models.unbuilt import known_arguments
from dpstats.privacy import Central
from dpstats.results.ranges import ScalesResults
from dpstats.schema import Numeric, Schema
from dpstats.tables import column_names
from dpstats.tables.streams import stream_of
from dpstats.text import outward

__all__ = ["private_range", "private_ranges"]


@known_arguments
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
    unit has up to m). They are rounded outward to two digits, 1048576 to 1100000. The result is
    public and may go into a `Schema`.

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

    Raises
    ------
    DPStatsError
        As `Model.fit`, before anything is charged.

    Notes
    -----
    Guarantee: one exponential mechanism on row counts, whose sensitivity is the number of rows of
    one unit; see `dpstats.estimators.central.range.ExponentialRange`. Rows without a value or a
    unit are left out.

    Examples
    --------
    >>> import dpstats as dp
    >>> found = dp.private_range("y", {"y": [20.0, 30.0] * 999}, dp.Central(2.0))
    >>> bool(found.lower <= 20 and found.upper >= 30)  # as a rule Numeric(16, 32)
    True
    """
    need_text(column=column)
    model = range_model(column, data, unit, max_rows)
    lower, upper = model.fit(privacy, ledger, noise=noise).params.tolist()
    return Numeric(*outward(lower, upper, digits=2))


def range_model(column: str, data: Any, unit: str | None, max_rows: int | None) -> Model:
    """The model that `private_range` fits."""
    declared = {column: Numeric(float(ENDS[0]), float(ENDS[-1]))}
    schema = Schema(declared, unit=unit, max_rows=max_rows)
    return Model("range", Formula(MAPPED.format(quoted(column)), schema, label=column), data)


@known_arguments
def private_ranges(
    data: Any,
    schema: Schema,
    privacy: Central,
    ledger: Ledger | None = None,
    *,
    subset: str | None = None,
    noise: Noise | None = None,
) -> ScalesResults:
    """Buy centre and scale of all numeric columns that declare none, once for all later fits.

    Default fits find the scales of the columns that they use themselves, and pay each time. With
    the schema that this returns they ask for nothing, and neither do methods that find no scales.

    Parameters
    ----------
    data : table
        Private rows.
    schema : Schema
        Public declaration of the columns. Those that are ``Numeric`` without ``scale=``, and in the
        table, are looked for; a range may be far too wide.
    privacy : Central
        What to spend; delta is above 0. Where the number of rows is private (a unit, add-remove
        neighbours) it holds a public guess: ``Central(..., rows=20_000)``.
    ledger : Ledger, optional
        Where the cost is charged before any row is read.
    subset : str, optional
        Rows that are meant; see `ols`.
    noise : SeededNoise, optional
        For simulation; scales bought with it are NOT private.

    Returns
    -------
    ScalesResults
        ``schema`` declares what was found; `params`, `summary`, `save` and the rest are as for
        every fit. The summary says which scales could not be found, and of which columns more than
        a twentieth of the values were outside of the declared range, or missing.

    Raises
    ------
    DPStatsError
        As `Model.fit`, before anything is charged.

    Warns
    -----
    FeasibilityWarning
        If noise may hide the columns; says how many rows suffice.

    Notes
    -----
    Guarantee: Gaussian noise on three histograms, each of all columns at once, and on counts of
    values outside of what is declared; see `dpstats.estimators.central.scales.ranges.ColumnScales`.

    Examples
    --------
    >>> import dpstats as dp, numpy as np
    >>> x = np.random.default_rng(0).normal(50.0, 5.0, 20_000)
    >>> schema = dp.Schema(x=dp.Numeric(-1e6, 1e6), y=dp.Numeric(-1e6, 1e6))
    >>> df, ledger = {"x": x, "y": 2 * x}, dp.Ledger.memory(2.0, 1e-6)
    >>> bought = dp.private_ranges(df, schema, dp.Central(0.5, 1e-7), ledger)
    >>> bool(1 < bought.schema["x"].scale < 25)
    True
    >>> fit = dp.ols("y ~ x", df, bought.schema).fit(dp.Central(1.0, 1e-7), ledger)
    """
    model = ranges_model(data, required(schema), subset)
    return cast("ScalesResults", model.fit(privacy, ledger, noise=noise))


def ranges_model(data: Any, schema: Schema, subset: str | None = None) -> Model:
    """The model that `private_ranges` fits."""
    there = set(column_names(stream_of(data, schema)))
    columns = [
        name
        for name, declared in schema.items()
        if isinstance(declared, Numeric) and declared.scale is None and name in there
    ]
    if not columns:
        raise OptionError(
            "No column to look for: those of the table that are declared Numeric have a scale=."
        )
    return Model("scales", of_columns(columns, data, schema, Numeric), data, subset=subset)
