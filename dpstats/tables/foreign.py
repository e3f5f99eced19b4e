"""Declarations that a schema of another package already makes: of pandera, or of pyarrow.

Their classes are recognised by what they have, and never imported.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from dpstats.errors import SchemaError
from dpstats.tables.declarations import Blank, Boolean, Categorical, Declaration, Numeric

__all__ = ["declared_elsewhere"]

_LOWER = ("min_value", "lower", "min")
_UPPER = ("max_value", "upper", "max")


def declared_elsewhere(schema: Any) -> dict[str, Declaration | Blank] | None:
    """Columns of a schema of pandera or pyarrow; None if it is neither.

    Parameters
    ----------
    schema : pandera DataFrameSchema or DataFrameModel, or pyarrow Schema
        Of pandera bounds (``Check.in_range``, ``ge``, ``le``, ``gt``, ``lt``) and lists of levels
        (``Check.isin``, categories of a type) are taken. Of pyarrow those that the metadata of a
        field declare, each a JSON text: ``lower`` and ``upper`` (or ``min`` and ``max``),
        ``center``, ``scale``, ``levels``, ``other``.

    Returns
    -------
    dict, or None
        What is not bounded is a blank; dates and lists are left out, as no declaration fits them.

    Raises
    ------
    SchemaError
        If a bound is no number, or bounds contradict each other.
    """
    if isinstance(schema, type) and hasattr(schema, "to_schema"):
        schema = schema.to_schema()
    columns = getattr(schema, "columns", None)
    if isinstance(columns, Mapping) and all(hasattr(c, "checks") for c in columns.values()):
        found = {str(name): _of_pandera(column) for name, column in columns.items()}
    elif type(schema).__module__.startswith("pyarrow") and type(schema).__name__ == "Schema":
        found = {field.name: _of_pyarrow(field) for field in schema}
    else:
        return None
    made = {name: _declared(name, *facts) for name, facts in found.items()}
    return {name: declaration for name, declaration in made.items() if declaration is not None}


def _of_pandera(column: Any) -> tuple[str, dict[str, Any]]:
    """The name of a type, and what its checks say."""
    facts: dict[str, Any] = {}
    for check in column.checks:
        statistics = check.statistics or {}
        for name, value in statistics.items():
            if name in ("min_value", "max_value"):  # of several the tightest
                tightest = max if name == "min_value" else min
                facts[name] = tightest(facts.get(name, value), value)
            elif name == "allowed_values":
                facts["levels"] = list(value)
    categories = getattr(column.dtype, "categories", None)
    if categories is not None and "levels" not in facts:
        facts["levels"] = list(categories)
    return str(column.dtype), facts


def _of_pyarrow(field: Any) -> tuple[str, dict[str, Any]]:
    """The name of a type, and what its metadata say."""
    facts: dict[str, Any] = {}
    for key, value in (field.metadata or {}).items():
        name = key.decode("utf-8", "replace")
        if name in (*_LOWER, *_UPPER, "center", "scale", "levels", "other"):
            try:
                facts[name] = json.loads(value)
            except ValueError:
                raise SchemaError(
                    f"Column {field.name!r}: its {name} in the metadata is no JSON."
                ) from None
    return str(field.type), facts


def _declared(name: str, kind: str, facts: Mapping[str, Any]) -> Declaration | Blank | None:
    """The declaration of a column, or a blank, or None where no declaration fits its type."""
    if "levels" in facts:
        if not isinstance(facts["levels"], list):
            raise SchemaError(f"Column {name!r}: its levels are no list.")
        return _named(name, Categorical, facts["levels"], facts.get("other"))
    if kind.startswith("bool"):
        return Boolean()
    if kind.lower().startswith(("int", "uint", "float", "double", "half", "decimal")):
        lower, upper = next(_given(facts, _LOWER), None), next(_given(facts, _UPPER), None)
        if lower is None or upper is None:
            return Blank("numeric")
        return _named(name, Numeric, lower, upper, facts.get("center"), facts.get("scale"))
    words = ("str", "object", "category", "large_string", "utf8", "dictionary")
    return Blank("categorical") if kind.lower().startswith(words) else None


def _given(facts: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[Any]:
    return (facts[name] for name in names if name in facts)


def _named(name: str, kind: type[Any], *values: Any) -> Declaration:
    try:
        made: Declaration = kind(*values)
    except SchemaError as error:
        raise SchemaError(f"Column {name!r}: {error}") from None
    return made
