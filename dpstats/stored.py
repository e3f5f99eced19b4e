"""Records read from files, each value checked by type, size and range before anything uses it.

A file may come from anybody. JSON is read strictly (no key twice, no NaN, no deep nesting), and a
record is read by the annotations of its own class: unknown and missing fields are refused, and what
passes has the type that the rest of the package relies on.
"""

from __future__ import annotations

import contextlib
import json
import math
import types
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from enum import Enum
from functools import cache
from typing import Any, TypeVar

import numpy as np

from dpstats.errors import DPStatsError, OptionError, given

__all__ = [
    "LARGEST",
    "alternatives",
    "is_version",
    "json_of",
    "plain_json",
    "read",
    "reading",
    "record",
    "shown",
    "values",
]

LARGEST = 2**53  # whole numbers up to here are floating-point numbers, too
_DEEPEST = 40  # levels of lists and objects in a file
_SHOWN = 60  # characters of a wrong value in an error
_NONFINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}

T = TypeVar("T")


def json_of(text: str | bytes) -> Any:
    """Strict JSON.

    Raises
    ------
    ValueError
        If the text is no JSON, has a key twice, a number that is none (NaN), or lists within
        lists too deep to be a record.
    """
    try:
        value = json.loads(
            text, object_pairs_hook=_unique, parse_float=_finite, parse_constant=_finite
        )
    except RecursionError:
        raise ValueError("its lists are nested too deep") from None
    except TypeError:
        raise ValueError(f"a {type(text).__name__} is no text") from None
    level = [value]
    for _ in range(_DEEPEST):
        level = [item for parent in level for item in _items(parent)]
    if level:
        raise ValueError("its lists are nested too deep")
    return value


def is_version(value: Any, *known: int) -> bool:
    """Whether a version is one of those that are known: no 1.0, and no true."""
    return type(value) is int and value in known


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return (v for v in value.values() if isinstance(v, (dict, list)))
    return (v for v in value if isinstance(v, (dict, list))) if isinstance(value, list) else ()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"{shown(twice)} is declared twice in the file; keep one declaration")
    return made


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{shown(text)} is no finite number")
    return number


@contextlib.contextmanager
def reading(what: str, error: type[DPStatsError] = OptionError) -> Iterator[None]:
    """Whatever goes wrong while a file is read is the file's fault, and an error of dpstats.

    The second lock: values were checked by `read`; this catches what their combination breaks. The
    file itself is opened before, so that one that is missing stays an `OSError`.
    """
    try:
        yield
    except DPStatsError:
        raise
    except Exception as cause:
        reason = shown(str(cause)) if str(cause) else type(cause).__name__
        raise error(f"{what} cannot be read, its parts do not fit together: {reason}.") from None


def record(kind: type[T], data: Any, where: str, **given: Any) -> T:
    """The dataclass `kind` from a JSON object, by its annotations.

    Parameters
    ----------
    kind : type
        A dataclass; what has a default may be absent.
    data : object
        JSON.
    where : str
        Name of the object, for errors.
    **given : object
        Fields that were read already; they may not be in `data`.

    Raises
    ------
    OptionError
        If a field is unknown, missing or of another type.
    """
    wanted, needed = _fields(kind)  # type: ignore[arg-type]
    if given:
        wanted = {name: hint for name, hint in wanted.items() if name not in given}
    return kind(**given, **values(wanted, data, where, needed - given.keys()))


def alternatives(annotation: Any) -> tuple[Any, ...]:
    """The types that an annotation allows, unions and aliases opened.

    An alias is a ``type X = ...``, or numpy's ``NDArray`` on the Pythons where it became one.
    """
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    alias = annotation if origin is None else origin
    if hasattr(alias, "__value__"):
        return alternatives(alias.__value__[parts] if parts else alias.__value__)
    if origin in (typing.Union, types.UnionType):
        return tuple(kind for part in parts for kind in alternatives(part))
    return (annotation,)


@cache
def _fields(kind: type[Any]) -> tuple[dict[str, Any], frozenset[str]]:
    """Annotations of the fields of a dataclass, and the names of those without a default."""
    hints, own = typing.get_type_hints(kind), [f for f in fields(kind) if f.init]
    needed = {f.name for f in own if f.default is MISSING and f.default_factory is MISSING}
    return {f.name: hints[f.name] for f in own}, frozenset(needed)


def values(
    wanted: Mapping[str, Any], data: Any, where: str, needed: Iterable[str] | None = None
) -> dict[str, Any]:
    """Fields of a JSON object, each by its annotation; all are `needed` unless some are named.

    Raises
    ------
    OptionError
        As `record`.
    """
    if not isinstance(data, Mapping):
        raise _wrong(where, "an object", data)
    missing = sorted(set(wanted if needed is None else needed) - set(data))
    if missing:
        raise OptionError(f"{where}: {missing} are missing.")
    unknown = sorted(set(map(str, data)) - set(wanted))
    if unknown:
        raise OptionError(f"{where}: {shown(unknown)} are not known to this version.")
    return {name: read(wanted[name], value, f"{where}, {name}") for name, value in data.items()}


def read(kind: Any, value: Any, where: str) -> Any:
    """A JSON value as the type that an annotation names; lists become tuples.

    Under `dict` and ``dict[str, Any]`` an object is copied as it is, to be read further.

    Whole numbers are at most `LARGEST` in absolute value; numbers are finite, or written as
    ``{"nonfinite": "nan"}``.

    Raises
    ------
    OptionError
        If it is of another type, or outside.
    """
    kind, *others = alternatives(kind)
    if others:
        return _either((kind, *others), value, where)
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return plain_json(value, where)
    if origin is np.ndarray:
        return _array(value, where, _whole if _is_whole(parts) else _number)
    if origin is typing.Literal:
        if value not in parts or type(value) is not str:
            raise _wrong(where, f"one of {sorted(parts)}", value)
        return value
    if origin is tuple:
        return _tuple(parts, value, where)
    if kind == dict[str, Any]:
        kind = dict
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            raise _wrong(where, "an object", value)
        return {key: read(parts[1], item, f"{where}, {shown(key)}") for key, item in value.items()}
    if kind is float:
        return _number(value, where)
    if kind is int:
        return _whole(value, where)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _member(kind, value, where)
    if hasattr(kind, "__dataclass_fields__"):
        return record(kind, value, where)
    if kind is None:
        kind = type(None)
    if not isinstance(value, kind):
        raise _wrong(where, _NAMES.get(kind, kind.__name__), value)
    return dict(value) if kind is dict else value


def plain_json(value: Any, where: str = "value") -> Any:
    """Any JSON: lists as tuples, ``{"nonfinite": ...}`` as the number that JSON lacks."""
    if isinstance(value, dict):
        if value.keys() == {"nonfinite"}:
            return _number(value, where)
        return {key: plain_json(item, where) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(plain_json(item, where) for item in value)
    if value is None or isinstance(value, (bool, str)):
        return value
    return _number(value, where)


_NAMES = {str: "a text", bool: "true or false", type(None): "null", dict: "an object"}


def _either(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    rest = [kind for kind in kinds if kind is not type(None)]
    if bool in rest and isinstance(value, bool):
        return value
    for kind in rest[:-1]:
        with contextlib.suppress(OptionError):
            return read(kind, value, where)
    return read(rest[-1], value, where)


def _number(value: Any, where: str) -> float:
    if isinstance(value, dict) and value.keys() == {"nonfinite"}:
        name = value["nonfinite"]
        if isinstance(name, str) and name in _NONFINITE:
            return _NONFINITE[name]
    if type(value) is int and abs(value) <= LARGEST:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise _wrong(where, "a number", value)


def _whole(value: Any, where: str) -> int:
    if type(value) is int and abs(value) <= LARGEST:
        return value
    raise _wrong(where, "a whole number", value)


def _member(kind: type[Enum], value: Any, where: str) -> Enum:
    allowed = {member.value: member for member in kind}
    if not isinstance(value, str) or value not in allowed:
        raise _wrong(where, f"one of {sorted(allowed)}", value)
    return allowed[value]


def _tuple(parts: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise _wrong(where, "a list", value)
    if len(parts) == 2 and parts[1] is Ellipsis:
        return tuple(read(parts[0], item, where) for item in value)
    if len(value) != len(parts):
        raise _wrong(where, f"a list of {len(parts)}", value)
    return tuple(read(part, item, where) for part, item in zip(parts, value, strict=True))


def _is_whole(parts: tuple[Any, ...]) -> bool:
    """Whether an array's annotation names whole numbers."""
    (kind,) = typing.get_args(parts[1]) or (np.float64,)
    return isinstance(kind, type) and issubclass(kind, np.integer)


def _array(value: Any, where: str, each: Callable[[Any, str], float]) -> Any:
    """A vector or a matrix of numbers."""
    dtype = np.int64 if each is _whole else np.float64
    if not isinstance(value, (list, tuple)):
        raise _wrong(where, "a list of numbers", value)
    if not (value and isinstance(value[0], (list, tuple))):
        return np.array([each(item, where) for item in value], dtype=dtype)
    width = len(value[0])
    if not all(isinstance(row, (list, tuple)) and len(row) == width for row in value):
        raise _wrong(where, "a matrix, lists of one length", value)
    rows = [[each(item, where) for item in row] for row in value]
    return np.array(rows, dtype=dtype).reshape(len(value), width)


def _wrong(where: str, wanted: str, value: Any) -> OptionError:
    return OptionError(f"{where}: {wanted} is needed, and {shown(value)} is there.")


def shown(value: Any) -> str:
    """A value of the file in few characters; it may be as long as the file."""
    if isinstance(value, str):
        text = repr(value[: _SHOWN + 1])
    elif isinstance(value, (list, tuple, dict)):
        text = f"a {type(value).__name__} of {len(value)}"
        if isinstance(value, list) and len(value) <= 5 and all(type(v) is str for v in value):
            text = str([v[:_SHOWN] for v in value])
    elif isinstance(value, int) and not isinstance(value, bool) and abs(value) > LARGEST:
        text = f"a whole number beyond {LARGEST}"
    else:
        text = given(value)
    return text if len(text) <= 5 * _SHOWN else text[:_SHOWN] + "..."
