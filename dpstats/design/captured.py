"""Python variables that a formula over public covariates may name, and those it may not.

Who writes the formula says that its variables are public. An array with a number for every row may
be the private response by mistake, and what it holds may not be looked at: a refusal that depended
on it would be a release. So the rule is about shapes alone, which are public.
"""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dpstats.errors import FormulaError

__all__ = ["captured", "check_captured"]

_DEEPEST = 4  # objects within objects that are looked at
_MOST = 1_000  # entries of a list, of a mapping, or attributes


def captured(formula: str, namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Of a caller's variables, those that the text of a formula may name."""
    words = set(re.findall(r"[A-Za-z_]\w*", formula))
    return {name: namespace[name] for name in words if name in namespace}


def check_captured(known: Mapping[str, Any], text: str, n: int) -> None:
    """Refuse variables that hold a table, or as many values as there are rows.

    Looked at are arrays, series, lists and tables, what lists, mappings and objects hold, and what
    functions close over, have as defaults or find among the globals that they name. Types and
    lengths decide, never values.

    Parameters
    ----------
    known : mapping
        Variables that the formula names.
    text : str
        The formula.
    n : int
        Rows of the table.

    Raises
    ------
    FormulaError
        Naming the variable, and what to do instead.
    """
    words = frozenset(re.findall(r"[A-Za-z_]\w*", text))
    for name, value in known.items():
        found = _rows_in(value, n, words, set(), _DEEPEST)
        if found:
            raise FormulaError(
                f"Formula {text!r} uses the Python variable {name!r}, which holds {found}. With "
                "public covariates every value per row has to be a column of the table: a variable "
                "may be the private response under another name. If it is public, put it into the "
                "table under a name of its own and name that column."
            )


def _rows_in(value: Any, n: int, words: frozenset[str], seen: set[int], depth: int) -> str:
    """What there is as long as the table in words; empty if nothing is."""
    if id(value) in seen or isinstance(value, (str, bytes, int, float, complex, type(None))):
        return ""
    seen.add(id(value))
    if _is_table(value):
        return "a table"
    length = max([0, *_lengths(value)])
    if n and length >= n:
        return f"{length:,} values, and the table has {n:,} rows"
    if depth == 0:
        return ""
    parts = (_rows_in(part, n, words, seen, depth - 1) for part in _parts(value, words))
    return next(filter(None, parts), "")


def _is_table(value: Any) -> bool:
    """Whether it is a data frame of some library, by the look of its type."""
    kind = type(value)
    return any(hasattr(kind, name) for name in ("columns", "column_names")) and any(
        hasattr(kind, name) for name in ("shape", "num_rows", "collect", "__dataframe__")
    )


def _lengths(value: Any) -> Iterator[int]:
    shape = getattr(value, "shape", None) if not isinstance(value, type) else None
    if isinstance(shape, tuple):
        yield from (size for size in shape if isinstance(size, int))
    elif hasattr(type(value), "__len__") and not isinstance(value, types.ModuleType):
        try:
            yield len(value)
        except Exception:  # an object that only looks as if it had a length
            return


def _parts(value: Any, words: frozenset[str]) -> Iterator[Any]:
    """What an object holds, as far as that can be seen without running any of its code."""
    if isinstance(value, Mapping):
        yield from list(value.values())[:_MOST]
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from list(value)[:_MOST]
    elif isinstance(value, np.ndarray):
        yield from list(value.flat)[:_MOST] if value.dtype == object else ()
    elif isinstance(value, types.ModuleType):  # what the formula may name of it
        yield from (item for name, item in vars(value).items() if name in words)
    elif isinstance(value, types.FunctionType):
        yield from _of_function(value)
    elif isinstance(value, types.MethodType):
        yield from (value.__self__, value.__func__)
    elif isinstance(value, functools.partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, (types.BuiltinMethodType, types.MethodWrapperType)):  # of an array
        yield value.__self__
    else:
        yield from list(getattr(value, "__dict__", {}).values())[:_MOST]


def _of_function(function: types.FunctionType) -> Iterator[Any]:
    yield from (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not filled yet
            continue
    known = function.__globals__
    for name in function.__code__.co_names:
        if name in known and not isinstance(known[name], types.ModuleType):
            yield known[name]
