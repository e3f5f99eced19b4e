"""What may be known about a table before a row of it is read.

A `Schema` declares, for every column that a model may use, the values it can take. Declarations
are public: they come from a codebook, a questionnaire or common knowledge, never from the rows.
They fix every bound, level, centre and knot of a design. A declaration that does not fit the data
costs accuracy, never privacy, because values are mapped into it one row at a time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import SchemaError
from dpstats.stored import LARGEST, is_version, json_of, shown
from dpstats.tables.coercion import (
    as_column,
    check_kind,
    is_object,
    kind_of,
    level_keys,
    number,
    to_codes,
    to_float,
)

__all__ = ["Boolean", "Categorical", "Numeric", "Schema"]

Float = NDArray[np.float64]
Mask = NDArray[np.bool_]
Level = str | int | float | bool

_FORMAT = "dpstats-schema"
_VERSION = 1
_REPR_LIMIT = 40


def _finite(what: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, (str, bool)) or not math.isfinite(number):
        raise SchemaError(f"{what}={shown(value)}: a finite number is needed.")
    return number


def _show(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


@dataclass(frozen=True)
class Numeric:
    """A number between two public bounds.

    Parameters
    ----------
    lower, upper : float
        Finite, ``lower < upper``. Values outside, and infinities, are moved to the nearer bound.
    center, scale : float, optional
        Public guesses of a typical value and spread, in the units of the column; ``center`` within
        the bounds, ``scale`` > 0. They cost accuracy if wrong, never privacy.
    """

    lower: float
    upper: float
    center: float | None = None
    scale: float | None = None
    accepts: ClassVar[tuple[str, ...]] = ("number", "boolean", "text")

    def __post_init__(self) -> None:
        for name in ("lower", "upper", "center", "scale"):
            value = getattr(self, name)
            if value is not None or name in ("lower", "upper"):
                object.__setattr__(self, name, _finite(f"Numeric {name}", value))
        if self.lower >= self.upper:
            raise SchemaError(
                f"{self!r}: lower must be below upper; write Numeric(lower, upper) with the "
                "smallest and largest possible value, from public knowledge."
            )
        if not (math.isfinite(self.upper - self.lower) and (self.upper - self.lower) / 2 > 0):
            raise SchemaError(f"{self!r}: the width of the range cannot be represented.")
        if self.center is not None and not self.lower <= self.center <= self.upper:
            raise SchemaError(
                f"{self!r}: center must lie in [{_show(self.lower)}, {_show(self.upper)}]."
            )
        if self.scale is not None and self.scale <= 0:
            raise SchemaError(f"{self!r}: scale must be > 0.")

    def __repr__(self) -> str:
        guesses = [
            f", {name}={_show(value)}"
            for name, value in (("center", self.center), ("scale", self.scale))
            if value is not None
        ]
        return f"Numeric({_show(self.lower)}, {_show(self.upper)}{''.join(guesses)})"

    @property
    def center_guess(self) -> float:
        """``center``, or the midpoint of the bounds."""
        return self.lower / 2 + self.upper / 2 if self.center is None else self.center

    @property
    def scale_guess(self) -> float:
        """``scale``, or half the width of the bounds."""
        return (self.upper - self.lower) / 2 if self.scale is None else self.scale

    def coerce(self, values: Any, name: str = "values") -> tuple[Float, Mask]:
        """Values inside the bounds, and where they were missing; see `Schema.coerce`."""
        column = as_column(values, name)
        check_kind(column, name, self.accepts)
        return self.clean(column)

    def clean(self, column: Any) -> tuple[Float, Mask]:
        """`coerce` for a column whose type was checked before."""
        x = to_float(column)
        missing = np.isnan(x)
        x = np.clip(x, self.lower, self.upper)
        x[missing] = self.center_guess
        return x, missing

    def to_dict(self) -> dict[str, Any]:
        """JSON object of the declaration."""
        out: dict[str, Any] = {"type": "numeric", "lower": self.lower, "upper": self.upper}
        guesses = {"center": self.center, "scale": self.scale}
        return out | {k: v for k, v in guesses.items() if v is not None}


@dataclass(frozen=True)
class Categorical:
    """One of a public list of levels.

    Parameters
    ----------
    levels : sequence of str, int, float or bool
        At least two, distinct; the first is the reference level of the default contrasts. Levels
        are matched by value: 1, 1.0, True and "1" are one level; other text must match exactly.
    other : str, int, float or bool, optional
        The level that unseen values are mapped to; added at the end if `levels` does not list it.
        Without it, unseen values are missing.
    """

    levels: tuple[Level, ...]
    other: Level | None = None
    accepts: ClassVar[tuple[str, ...]] = ("number", "boolean", "text")
    _codes: dict[str, int] = field(init=False, repr=False, compare=False, hash=False)

    def __init__(self, levels: Sequence[Level], other: Level | None = None) -> None:
        if isinstance(levels, str) or not hasattr(levels, "__iter__"):
            raise SchemaError(f"Categorical({levels!r}): a list of levels is needed.")
        listed = [_level(value) for value in levels]
        if not listed:
            raise SchemaError(
                "Categorical([]): list the levels that are possible, from public knowledge."
            )
        codes: dict[str, int] = {}
        for code, value in enumerate(listed):
            if level_keys(value)[0] in codes:
                raise SchemaError(
                    f"Categorical({listed!r}): the level {value!r} is listed twice "
                    "(numbers and text match by value: 1, 1.0, True and '1' are one level)."
                )
            codes[level_keys(value)[0]] = code
        if other is not None and level_keys(_level(other))[0] not in codes:
            codes[level_keys(other)[0]] = len(listed)
            listed.append(_level(other))
        if len(listed) < 2:
            raise SchemaError(f"Categorical({listed!r}): a column with one level cannot vary.")
        for code, value in enumerate(listed):
            for alias in level_keys(value):
                codes.setdefault(alias, code)
        object.__setattr__(self, "levels", tuple(listed))
        object.__setattr__(self, "other", None if other is None else _level(other))
        object.__setattr__(self, "_codes", codes)

    def __repr__(self) -> str:
        other = "" if self.other is None else f", other={self.other!r}"
        return f"Categorical({list(self.levels)!r}{other})"

    @property
    def values(self) -> Float | None:
        """Levels as numbers of shape (L,), or None where one of them is text."""
        if any(isinstance(level, str) for level in self.levels):
            return None
        return np.array([float(level) for level in self.levels])

    def coerce(self, values: Any, name: str = "values") -> tuple[NDArray[np.intp], Mask]:
        """Level codes in [0, L), and where they were missing; see `Schema.coerce`."""
        column = as_column(values, name)
        check_kind(column, name, self.accepts)
        return self.clean(column)

    def clean(self, column: Any) -> tuple[NDArray[np.intp], Mask]:
        """`coerce` for a column whose type was checked before."""
        unseen = -1 if self.other is None else self._codes[level_keys(self.other)[0]]
        codes = to_codes(column, self._codes, unseen)
        missing = codes < 0
        codes[missing] = 0
        return codes, missing

    def to_dict(self) -> dict[str, Any]:
        """JSON object of the declaration."""
        out: dict[str, Any] = {"type": "categorical", "levels": list(self.levels)}
        return out if self.other is None else out | {"other": self.other}


def _level(value: Any) -> Level:
    """A level as a JSON scalar."""
    scalar = value.item() if isinstance(value, np.generic) else value
    finite = isinstance(scalar, str) or math.isfinite(number(scalar))
    if not isinstance(scalar, (str, int, float, bool)) or not finite:
        raise SchemaError(f"Level {shown(value)}: a level is a text, a finite number or a boolean.")
    return scalar


@dataclass(frozen=True)
class Boolean:
    """True or false; in a formula 1 or 0.

    Numbers 1 and 0 and the texts "true", "false", "1", "0" in any case are understood; anything
    else is missing.
    """

    accepts: ClassVar[tuple[str, ...]] = ("number", "boolean", "text")
    levels: ClassVar[tuple[bool, bool]] = (False, True)
    _codes: ClassVar[dict[str, int]] = {
        "0": 0,
        "1": 1,
        **{
            text: code
            for code, word in enumerate(("false", "true"))
            for text in (word, word.title(), word.upper())
        },
    }

    def coerce(self, values: Any, name: str = "values") -> tuple[NDArray[np.intp], Mask]:
        """0 or 1, and where it was missing; see `Schema.coerce`."""
        column = as_column(values, name)
        check_kind(column, name, self.accepts)
        return self.clean(column)

    def clean(self, column: Any) -> tuple[NDArray[np.intp], Mask]:
        """`coerce` for a column whose type was checked before."""
        codes = to_codes(column, self._codes, -1)
        missing = codes < 0
        codes[missing] = 0
        return codes, missing

    def to_dict(self) -> dict[str, Any]:
        """JSON object of the declaration."""
        return {"type": "boolean"}


@dataclass(frozen=True)
class _Blank:
    """A declaration of a template that a person has still to fill."""

    kind: str

    def to_dict(self) -> dict[str, Any]:
        if self.kind == "numeric":
            return {"type": self.kind, "lower": None, "upper": None}
        return {"type": self.kind, "levels": []}

    def __repr__(self) -> str:
        return {"numeric": "Numeric(?, ?)", "categorical": "Categorical([?])"}[self.kind]

    @property
    def remedy(self) -> str:
        return {"numeric": "lower and upper", "categorical": "levels"}[self.kind]


Declaration = Numeric | Categorical | Boolean


class UndeclaredError(SchemaError, KeyError):
    """A column was asked for that the schema does not declare."""

    __str__ = Exception.__str__


class Schema(Mapping[str, Declaration]):
    """Public declarations of the columns of a table.

    ``Schema(age=Numeric(0, 70), plan=Categorical(["a", "b"]))``, or ``Schema({...})`` for names
    that are no identifiers. A name may also be a term of a formula, ``"np.log(x)"``: its bounds are
    then the declared ones instead of derived ones.

    Parameters
    ----------
    *columns : mapping of str to Numeric, Categorical or Boolean
        Declarations by name.
    unit : str, optional
        Column that names the person (or other unit) whose rows are protected together. Without it
        the unit of privacy is one row.
    max_rows : int, optional
        Rows of one unit that may contribute, >= 1; of more, so many are drawn at random. Needed
        with `unit`.
    **named : Numeric, Categorical or Boolean
        More declarations.

    Raises
    ------
    SchemaError
        If a declaration is missing, twice given or no declaration.
    """

    def __init__(
        self,
        *columns: Mapping[str, Declaration],
        unit: str | None = None,
        max_rows: int | None = None,
        **named: Declaration,
    ) -> None:
        declared: dict[str, Any] = {}
        for group in (*columns, named):
            if not isinstance(group, Mapping):
                raise SchemaError(
                    f"Schema({type(group).__name__}): pass declarations by name, "
                    "Schema(age=Numeric(0, 70)), or one dict of them."
                )
            for name, declaration in group.items():
                _check_declaration(name, declaration, declared)
                declared[name] = declaration
        if not declared:
            raise SchemaError("Schema(): declare at least one column, such as age=Numeric(0, 70).")
        _check_unit(unit, max_rows)
        self._columns = declared
        self._unit = unit
        self._max_rows = None if max_rows is None else int(max_rows)

    @property
    def unit(self) -> str | None:
        """Column that names the unit of privacy; None where the unit is one row."""
        return self._unit

    @property
    def max_rows(self) -> int | None:
        """Rows of one unit that may contribute; None where the unit is one row."""
        return self._max_rows

    def __getitem__(self, name: str) -> Declaration:
        if name not in self._columns:
            raise UndeclaredError(
                f"Column {name!r} is not declared. Add it to the schema, {name!r}: Numeric(lower, "
                "upper) or Categorical([...]), from public knowledge; declared are: "
                f"{_listing(self._columns)}."
            )
        declaration = self._columns[name]
        if isinstance(declaration, _Blank):
            raise SchemaError(
                f"Column {name!r} of the template is not filled: give it {declaration.remedy}, "
                "from public knowledge and not computed from the data."
            )
        return declaration  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(json.dumps(self.to_dict(), sort_keys=True))

    def __repr__(self) -> str:
        shown = list(self._columns.items())[:_REPR_LIMIT]
        plain = all(name.isidentifier() for name in self._columns)
        form, indent, ends = ("{}={!r}", "    ", ("Schema(", ")"))
        if not plain:
            form, indent, ends = ("{!r}: {!r}", "    ", ("Schema({", "}"))
        lines = [indent + form.format(*item) + "," for item in shown]
        if len(self) > _REPR_LIMIT:
            lines.append(f"{indent}# ... and {len(self) - _REPR_LIMIT} more")
        unit = "" if self.unit is None else f"unit={self.unit!r}, max_rows={self.max_rows}"
        if plain:
            lines += [f"    {unit}," if unit else ""]
            return "\n".join([ends[0], *filter(None, lines), ends[1]])
        return "\n".join([ends[0], *lines, ends[1] + (f", {unit})" if unit else ")")])

    def check_filled(self) -> None:
        """Refuse a template that still has blanks.

        Raises
        ------
        SchemaError
            Naming every column that is to be filled.
        """
        blanks = [f"{n!r} ({d.remedy})" for n, d in self._columns.items() if isinstance(d, _Blank)]
        if blanks:
            raise SchemaError(
                f"The template is not filled: {', '.join(blanks)}. Edit the saved JSON, from "
                "public knowledge and not computed from the data, or remove unused columns."
            )

    def coerce(self, name: str, values: Any) -> tuple[NDArray[Any], Mask]:
        """Map values of column `name` into its declared domain, one row at a time.

        Parameters
        ----------
        name : str
            A declared column.
        values : 1-d values
            pandas (any dtype), numpy, polars or pyarrow.

        Returns
        -------
        clean : ndarray of shape (n,)
            Numeric: float64 within the bounds; out-of-range and infinite values at the nearer
            bound; missing ones (NaN, null, text that is no number) at the centre. Categorical:
            codes in [0, L); unseen values at `other`, else missing; missing ones at the first
            level. Boolean: 0 or 1.
        missing : ndarray of bool of shape (n,)
            Where the row had no usable value.

        Raises
        ------
        DataError
            On the type of the column only, never on a value.
        """
        return self[name].coerce(values, name)

    def to_dict(self) -> dict[str, Any]:
        """The schema as a JSON object."""
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "unit": self.unit,
            "max_rows": self.max_rows,
            "columns": {name: d.to_dict() for name, d in self._columns.items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Schema:
        """Inverse of `to_dict`.

        Raises
        ------
        SchemaError
            If `data` is no schema of a version that is known, or a declaration is wrong.
        """
        if not isinstance(data, Mapping) or data.get("format") != _FORMAT:
            raise SchemaError(
                f"This is no schema: a JSON object with format {_FORMAT!r} is needed."
            )
        if not is_version(data.get("version"), _VERSION):
            raise SchemaError(
                f"Schema version {shown(data.get('version'))} is not known; this release reads "
                f"{_VERSION}."
            )
        unknown = set(data) - {"format", "version", "unit", "max_rows", "columns"}
        columns = data.get("columns")
        if unknown or not isinstance(columns, Mapping):
            raise SchemaError(
                f"A schema has unit, max_rows and columns; got {shown(sorted(map(str, data)))}."
            )
        declared = {name: _declaration_from_dict(name, entry) for name, entry in columns.items()}
        return cls(declared, unit=data.get("unit"), max_rows=data.get("max_rows"))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the schema to a JSON file, to be kept beside the data and reviewed like code."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Schema:
        """Read a schema from a JSON file.

        Raises
        ------
        SchemaError
            If the file is no schema, or declares a column twice.
        """
        try:
            data = json_of(Path(path).read_bytes())
        except ValueError as error:
            raise SchemaError(f"{path} is no JSON file: {error}.") from None
        return cls.from_dict(data)

    @classmethod
    def template(cls, table: Any) -> Schema:
        """Make a skeleton from column names and types alone, for a person to fill.

        No value of the table is looked at, nor the categories of a categorical column, which are
        values too. Columns of other types (dates, lists) are left out: no declaration fits them.
        Save it, edit the JSON, load it; using it before it is filled raises.
        """
        from dpstats.tables import named_columns, without_rows

        empty = named_columns(without_rows(table))
        columns = {name: _blank(column) for name, column in empty.items()}
        return cls({name: blank for name, blank in columns.items() if blank is not None})


def _blank(column: Any) -> Any:
    categorical = hasattr(column.dtype, "categories")
    opaque = is_object(column) or categorical
    kind = "text" if opaque else kind_of(column)
    return {
        "number": _Blank("numeric"),
        "text": _Blank("categorical"),
        "boolean": Boolean(),
    }.get(kind)


def _check_declaration(name: Any, declaration: Any, declared: Mapping[str, Any]) -> None:
    if not isinstance(name, str) or not name:
        raise SchemaError(f"Column name {name!r}: names are non-empty text.")
    if name in declared:
        raise SchemaError(f"Column {name!r} is declared twice; keep one declaration.")
    if not isinstance(declaration, (Numeric, Categorical, Boolean, _Blank)):
        raise SchemaError(
            f"Column {name!r} is declared as {declaration!r}; write Numeric(lower, upper), "
            "Categorical([...]) or Boolean()."
        )


def _check_unit(unit: Any, max_rows: Any) -> None:
    if (unit is None) != (max_rows is None):
        raise SchemaError(
            f"unit={shown(unit)}, max_rows={shown(max_rows)}: give both, the column that "
            "names the unit and how many of its rows may contribute, or neither."
        )
    if unit is not None and (not isinstance(unit, str) or not unit):
        raise SchemaError(f"unit={shown(unit)}: the name of a column is needed.")
    whole = isinstance(max_rows, (int, np.integer)) and not isinstance(max_rows, bool)
    if max_rows is not None and not (whole and 1 <= max_rows <= LARGEST):
        raise SchemaError(f"max_rows={shown(max_rows)}: a whole number >= 1 is needed.")


def _declaration_from_dict(name: str, entry: Any) -> Any:
    kind = entry.get("type") if isinstance(entry, Mapping) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise SchemaError(f"Column {name!r}: type must be one of {sorted(_KINDS)}.")
    fields = {key: value for key, value in entry.items() if key != "type"}
    if not isinstance(fields.get("levels", []), (list, tuple)):
        raise SchemaError(f"Column {name!r}: levels={shown(fields['levels'])}, not a list.")
    if fields == {"lower": None, "upper": None} or fields == {"levels": []}:
        return _Blank(kind)
    try:
        return _KINDS[kind](**fields)
    except TypeError:
        raise SchemaError(
            f"Column {name!r}: the fields {shown(sorted(fields))} do not fit type {kind!r}."
        ) from None
    except SchemaError as error:
        raise SchemaError(f"Column {name!r}: {error}") from None


_KINDS: dict[str, Any] = {"numeric": Numeric, "categorical": Categorical, "boolean": Boolean}


def _listing(names: Mapping[str, Any], limit: int = 12) -> str:
    shown = [repr(name) for name in list(names)[:limit]]
    return ", ".join(shown) + (f" and {len(names) - limit} more" if len(names) > limit else "")
