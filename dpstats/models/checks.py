"""What a user asks for, checked before any budget is spent."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting import Ledger
from dpstats.design import Design, Source
from dpstats.errors import DataError, OptionError, TrustError, given
from dpstats.privacy import Central, Federated, LabelOnly, Local, Neighbors, Privacy

__all__ = [
    "check_names",
    "check_paid",
    "check_privacy",
    "checked_count",
    "checked_sparsity",
    "guessed_rows",
    "planned_rows",
    "public_covariates",
]

Array = NDArray[np.float64]


def checked_count(n: Any) -> int | None:
    """A public number of rows, or None.

    Raises
    ------
    OptionError
        If it is no whole number, at least 1.
    """
    if n is not None and _whole(n) < 1:
        raise OptionError(f"n{_given(n)}: a whole number of rows, at least 1, is needed.")
    return None if n is None else _whole(n)


def _given(value: Any) -> str:
    """An option as it was given, or its type alone where it may be a table."""
    text = given(value)
    return f" is a {type(value).__name__}" if text.startswith("<") else f"={text}"


def check_privacy(privacy: Any) -> None:
    """Refuse what is no guarantee; its type alone is named, for it may be a table.

    Raises
    ------
    OptionError
        If it is something else.
    """
    if not isinstance(privacy, (Central, Local, LabelOnly, Federated)):
        what = "none was given" if privacy is None else f"this is a {type(privacy).__name__}"
        raise OptionError(
            f"privacy: a guarantee is needed, and {what}. Say who holds the rows and what may be "
            "spent, such as dp.Central(epsilon=1.0, delta=1e-7)."
        )


def check_names(names: Sequence[str]) -> None:
    """Refuse names that no file, table or page can hold: the answer could not be written down.

    Raises
    ------
    OptionError
        If one of them holds half of a surrogate pair.
    """
    try:
        "".join(names).encode()
    except UnicodeEncodeError:
        wrong = next(name for name in names if any("\ud800" <= c <= "\udfff" for c in name))
    else:
        return
    raise OptionError(f"The name {wrong!r} holds half of a surrogate pair: rename it.")


def check_paid(ledger: Any, noise: Any) -> None:
    """Refuse what is no ledger or noise, before anything is charged; see `check_privacy`.

    Raises
    ------
    OptionError
        If one of them is something else.
    """
    if not (ledger is None or isinstance(ledger, Ledger)):
        raise OptionError(
            f"ledger is a {type(ledger).__name__}; open one, dp.Ledger.open('data.ledger')."
        )
    if not (noise is None or (hasattr(noise, "start") and hasattr(noise, "reproducible"))):
        raise OptionError(
            f"noise is a {type(noise).__name__}; leave it out, or give dp.SeededNoise(seed) for a "
            "simulation."
        )


def checked_sparsity(asked: Any, design: Design) -> int | tuple[int, ...]:
    """A number of columns, or several to choose from.

    Raises
    ------
    OptionError
        If one of them is no whole number from 1 to that of the columns beside the intercept.
    """
    free = len(design.names) - bool(design.has_intercept)
    if free == 0:
        raise OptionError("There is no column to select: the design has an intercept only.")
    several = isinstance(asked, (tuple, list, range)) and len(asked) > 0
    numbers = tuple(_whole(number) for number in (asked if several else (asked,)))
    if not all(1 <= number <= free for number in numbers):
        beside = " beside the intercept, which is always in," if design.has_intercept else ""
        raise OptionError(
            f"sparsity{_given(asked)}: a whole number from 1 to {free:,}, the columns of the design"
            f"{beside or ','} is needed, or several to choose from, as in sparsity=(5, 10, 20)."
        )
    return numbers if several else numbers[0]


def _whole(number: Any) -> int:
    """A whole number; 0, which no option allows, for anything else."""
    try:
        return 0 if isinstance(number, (bool, np.bool_)) else operator.index(number)
    except TypeError:
        return 0


def planned_rows(design: Design, privacy: Privacy, source: Source | None, n: int | None) -> int:
    """Public number of rows, or the public guess where that is private; `n` is what was given.

    Raises
    ------
    TrustError
        If a unit may have several rows where nobody could hold it to them.
    OptionError, DataError
        If there is none, two numbers contradict each other, or delta is too large for it.
    """
    several = design.schema is not None and design.schema.unit is not None
    if several and not isinstance(privacy, Central):
        raise TrustError(
            f"Under {privacy.trust!r} trust the unit of privacy is one record: declare the "
            "schema without unit=..., and let every person send one record."
        )
    if several or privacy.neighbors is Neighbors.ADD_REMOVE:
        rows = guessed_rows(privacy)
    elif source is None:
        if n is None:
            raise OptionError("No table and no row count: give data=... or n=...")
        rows = n
    elif n not in (None, len(source)):
        raise OptionError(
            f"n={n:,} and a table of {len(source):,} rows: n= is for planning without a "
            "table; leave it out."
        )
    else:
        rows = len(source)
    if rows < 1:
        raise DataError("The table has no rows: at least one is needed.")
    if not isinstance(privacy, Federated):
        privacy.check_delta(rows)
    return rows


def guessed_rows(privacy: Privacy) -> int:
    """The public guess of a number of rows that is private.

    Raises
    ------
    OptionError
        If there is none.
    """
    rows = getattr(privacy, "rows", None)
    if rows is None:
        raise OptionError(
            "The number of rows is private under add-remove neighbours or with several rows per "
            "unit. Give a public guess for planning: Central(..., rows=20_000)."
        )
    return int(rows)


def public_covariates(design: Design, privacy: Privacy, public: Any) -> NDArray[np.float64]:
    """Public covariates (m, d) in internal coordinates, without rows that miss a value.

    Raises
    ------
    OptionError, DataError
        If they are of no use there, or every one of them misses a value.
    """
    if not isinstance(privacy, Local):
        raise OptionError(
            "public=...: public covariates help where devices randomise their records, under "
            "Local(...). Under LabelOnly(...) all covariates are public already."
        )
    standard = design.standardization
    rows = (design.exog(public) - standard.x_center) / standard.x_scale
    kept: Array = rows[~np.isnan(rows).any(axis=1)]
    if not len(kept):
        raise DataError("public=...: no row without a missing value; leave it out.")
    return kept
