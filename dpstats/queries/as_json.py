"""Questions as JSON: a name, a version and public numbers, never code.

This is what another process is sent: it rebuilds the question from its own installed code, whose
clip and sensitivity then hold there, and refuses a name, a version or a number that it does not
know.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any, TypeAlias, get_type_hints

import numpy as np

from dpstats.channels import Channel, channel
from dpstats.errors import PlanError
from dpstats.families.bounded import BoundedFamily
from dpstats.families.check import Check
from dpstats.families.damped import DampedFamily
from dpstats.families.dispersion import Dispersion
from dpstats.families.signs import SignedFamily
from dpstats.queries.base import Query
from dpstats.queries.labels import LabelQuery
from dpstats.queries.selected import Selected
from dpstats.stored import alternatives, is_version, read, reading, record, shown
from dpstats.tall import LazyRows, blocks

__all__ = ["QUERIES", "query_from_dict", "query_to_dict"]

VERSION = 1
_LONGEST = 2**24  # rows that a holder of responses takes, and columns
AnyQuery: TypeAlias = Query | LabelQuery

# What may be asked: every record that these modules export and that has a sensitivity.
_MODULES = [
    "augmented",
    "candidates",
    "cells",
    "column_scores",
    "completed",
    "coordinates",
    "expected_scores",
    "far_directions",
    "label_cells",
    "label_held",
    "labels",
    "levels",
    "linear",
    "mixtures",
    "predicted",
    "prefixes",
    "quantiles",
    "regression_mixtures",
    "row_norms",
    "scalar",
    "scores",
    "selected",
    "signed",
    "tables",
    "tails",
]
QUERIES: Mapping[str, type[Any]] = {
    name: kind
    for module in map(import_module, (f"dpstats.queries.{name}" for name in _MODULES))
    for name in module.__all__
    if isinstance(kind := getattr(module, name), type)
    and is_dataclass(kind)
    and hasattr(kind, "sensitivity")
}


def query_to_dict(query: AnyQuery) -> dict[str, Any]:
    """The question as a JSON object, ``{"question": name, "version": 1, parameters...}``."""
    name = type(query).__name__
    if QUERIES.get(name) is not type(query):
        raise PlanError(f"{name} is no question that can be written down; there are {_known()}.")
    return {"question": name, "version": VERSION, **_fields_of(query)}


def query_from_dict(data: Any) -> Any:
    """Inverse of `query_to_dict`.

    Raises
    ------
    OptionError, PlanError
        If the name or the version is not known, or a parameter is missing, unknown, of another
        type, or outside of what the question allows.
    """
    given = dict(read(dict, data, "question"))
    name, version = given.pop("question", None), given.pop("version", None)
    if not isinstance(name, str) or name not in QUERIES or not is_version(version, VERSION):
        raise PlanError(
            f"A question {shown(name)} of version {shown(version)} is not known here; version "
            f"{VERSION} of {_known()} are."
        )
    kind, where = QUERIES[name], f"question {name}"
    with reading(where, PlanError):
        ready = {key: _special(kind, key, given.pop(key)) for key in _specials(given)}
        return record(kind, given, where, **ready)


def _known() -> str:
    return ", ".join(QUERIES)


def _fields_of(value: Any) -> dict[str, Any]:
    return _each({f.name: getattr(value, f.name) for f in fields(value) if f.init})


def _each(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _written(part) for name, part in parts.items()}


def _written(value: Any) -> Any:
    """A parameter as JSON."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        number = float(value)
        return number if math.isfinite(number) else {"nonfinite": repr(number)}
    if isinstance(value, (list, tuple)):
        return [_written(item) for item in value]
    if isinstance(value, LazyRows):
        value = np.concatenate([value[part] for part in blocks(len(value))])
    if isinstance(value, np.ndarray):
        ready = value.dtype.kind in "biu" or (value.dtype.kind == "f" and np.isfinite(value).all())
        return value.tolist() if ready else _written(value.tolist())
    if hasattr(value, "tocoo"):
        stored = value.tocoo()
        places = {"rows": stored.row, "columns": stored.col, "values": stored.data}
        return {"sparse": {"shape": _written(stored.shape), **_each(places)}}
    if type(value).__name__ in QUERIES:
        return query_to_dict(value)
    if hasattr(value, "decode") and hasattr(value, "event"):
        return {"channel": {"name": value.name, **_fields_of(value)}}
    if isinstance(value, tuple(_LOSSES.values())):
        name = next(name for name, kind in _LOSSES.items() if type(value) is kind)
        return {name: _fields_of(value)}
    if is_dataclass(value):
        return _fields_of(value)
    raise PlanError(f"A {type(value).__name__} is no parameter of a question.")


_LOSSES: Mapping[str, type[Any]] = {
    "bounded": BoundedFamily,
    "check": Check,
    "damped": DampedFamily,
    "dispersion": Dispersion,
    "signed": SignedFamily,
}
_SPECIAL = ("question", "sparse", "channel", *_LOSSES)


def _specials(given: Mapping[str, Any]) -> list[str]:
    """Parameters that are no plain numbers: a question, a sparse matrix, a channel, a loss."""
    return [
        key
        for key, value in given.items()
        if isinstance(value, dict) and any(name in value for name in _SPECIAL)
    ]


def _special(kind: type[Any], key: str, value: dict[str, Any]) -> Any:
    if "question" in value:
        made: Any = query_from_dict(value)
    elif "channel" in value:
        parts = read(dict, value["channel"], "channel")
        wanted = {"name": str, "dim": int, "epsilon": float, "delta": float}
        made = channel(**{name: read(wanted[name], part, name) for name, part in parts.items()})
    elif name := next((name for name in _LOSSES if name in value), ""):
        made = record(_LOSSES[name], value[name], f"{name} family")
    else:
        made = _matrix(read(dict, value["sparse"], "matrix"))
    hint = get_type_hints(kind).get(key)
    if not any(_fits(made, each) for each in alternatives(hint)):
        raise PlanError(f"{key} of {kind.__name__} may not be a {type(made).__name__}.")
    return made


def _matrix(parts: dict[str, Any]) -> Any:
    """A sparse matrix from its stored entries, whose places are checked one by one."""
    from scipy.sparse import coo_array

    shape = read(tuple[int, int], parts["shape"], "shape")
    if not all(0 <= length <= _LONGEST for length in shape):
        raise PlanError(f"A sparse matrix of shape {shape}: each side is at most {_LONGEST:,}.")
    whole, numbers = np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, np.dtype[np.float64]]
    places = tuple(read(whole, parts[name], name) for name in ("rows", "columns"))
    return coo_array((read(numbers, parts["values"], "values"), places), shape=shape).tocsr()


def _fits(made: Any, hint: Any) -> bool:
    """Whether a rebuilt parameter is of an annotated type."""
    if hint is Query:
        return hasattr(made, "geometry") and not isinstance(made, Selected)
    if hint is Channel:
        return hasattr(made, "event")
    return isinstance(hint, type) and isinstance(made, hint)
