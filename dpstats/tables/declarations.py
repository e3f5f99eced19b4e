"""What a column may hold, as it is declared: a number, one of some levels, true or false."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import SchemaError, is_number
from dpstats.stored import shown
from dpstats.tables.coercion import (
    as_column,
    check_kind,
    level_keys,
    number,
    to_codes,
    to_float,
)

__all__ = ["Blank", "Boolean", "Categorical", "Declaration", "Numeric"]

_COLUMNS = ("Series", "DataFrame", "ChunkedArray", "Table")  # types of tables and their columns

Float = NDArray[np.float64]
Mask = NDArray[np.bool_]
Level = str | int | float | bool

_READ = ("number", "boolean", "text")  # types of columns whose cells are read
_ROUNDED = 0.02  # by which guessed shares may miss 1


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
        A fit refuses a column whose type is text.
    center, scale : float, optional
        Public guesses of mean and standard deviation, in the units of the column; ``center`` within
        the bounds, ``scale`` > 0. They cost accuracy if wrong, never privacy.

    Examples
    --------
    >>> import dpstats as dp
    >>> dp.Numeric(0, 30_000, center=9_000, scale=6_000)
    Numeric(0, 30000, center=9000, scale=6000)
    """

    lower: float
    upper: float
    center: float | None = None
    scale: float | None = None
    kinds: ClassVar[tuple[str, ...]] = ("number", "boolean")

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
        check_kind(column, name, _READ)
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
        A fit refuses a column of numbers in which no level is one, and one of text in which no
        level is text; a column of objects has no type.
    other : str, int, float or bool, optional
        The level that unseen values are mapped to; added at the end if `levels` does not list it.
        Without it, unseen values are missing.
    shares : sequence of float, optional
        Public guesses of the share of rows at each level, > 0, one for each level with `other` last
        if it was added; together 1, up to rounding. Planned standard errors use them; a wrong guess
        makes these wrong, and nothing else.

    Examples
    --------
    >>> import dpstats as dp
    >>> dp.Categorical(["free", "25", "50", "95"], other="other").levels
    ('free', '25', '50', '95', 'other')
    """

    levels: tuple[Level, ...]
    other: Level | None = None
    shares: tuple[float, ...] | None = None
    _codes: dict[str, int] = field(init=False, repr=False, compare=False, hash=False)

    def __init__(
        self,
        levels: Sequence[Level],
        other: Level | None = None,
        shares: Sequence[float] | None = None,
    ) -> None:
        if isinstance(levels, str) or not hasattr(levels, "__iter__"):
            raise SchemaError(f"Categorical({shown(levels)}): a list of levels is needed.")
        if type(levels).__name__ in _COLUMNS:  # what is wrong in one is a fact about rows
            raise SchemaError(
                f"Categorical({shown(levels)}): this is a column of rows; list the levels that are "
                "possible, from public knowledge."
            )
        listed = [_level(value) for value in levels]
        if not listed:
            raise SchemaError(
                "Categorical([]): list the levels that are possible, from public knowledge."
            )
        codes: dict[str, int] = {}
        for code, value in enumerate(listed):
            if level_keys(value)[0] in codes:
                raise SchemaError(
                    f"Categorical({shown(levels)}): the level in place {code + 1} is listed twice "
                    "(numbers and text match by value: 1, 1.0, True and '1' are one level)."
                )
            codes[level_keys(value)[0]] = code
        if other is not None and level_keys(_level(other))[0] not in codes:
            codes[level_keys(other)[0]] = len(listed)
            listed.append(_level(other))
        if len(listed) < 2:
            raise SchemaError(f"Categorical({shown(levels)}): a column with one level cannot vary.")
        for code, value in enumerate(listed):
            for alias in level_keys(value):
                codes.setdefault(alias, code)
        object.__setattr__(self, "levels", tuple(listed))
        object.__setattr__(self, "other", None if other is None else _level(other))
        object.__setattr__(self, "shares", None if shares is None else _shares(shares, listed))
        object.__setattr__(self, "_codes", codes)

    def __repr__(self) -> str:
        other = "" if self.other is None else f", other={self.other!r}"
        shares = "" if self.shares is None else f", shares={list(self.shares)!r}"
        return f"Categorical({list(self.levels)!r}{other}{shares})"

    @property
    def kinds(self) -> tuple[str, ...]:
        """Types of a column in which at least one level may stand, beside the one for all others.

        Text where a level is text; numbers where a level is one, or writes one as its key does.
        """
        levels = [level for level in self.levels if level != self.other]
        keys = {key for level in levels for key in level_keys(level)}
        found = {
            "text": any(isinstance(level, str) for level in levels),
            "number": any(key in level_keys(_written(key)) for key in keys),
            "boolean": not keys.isdisjoint(("0", "1", "False", "True")),
        }
        return tuple(kind for kind, may in found.items() if may)

    @property
    def values(self) -> Float | None:
        """Levels as numbers of shape (L,), or None where one of them is text."""
        if any(isinstance(level, str) for level in self.levels):
            return None
        return np.array([float(level) for level in self.levels])

    def code_of(self, value: Any) -> int | None:
        """Place of a level among `levels`, matched as cells are; None if it is none of them."""
        return next((self._codes[key] for key in level_keys(value) if key in self._codes), None)

    def coerce(self, values: Any, name: str = "values") -> tuple[NDArray[np.intp], Mask]:
        """Level codes in [0, L), and where they were missing; see `Schema.coerce`."""
        column = as_column(values, name)
        check_kind(column, name, _READ)
        return self.clean(column)

    def clean(self, column: Any) -> tuple[NDArray[np.intp], Mask]:
        """`coerce` for a column whose type was checked before."""
        unseen = -1 if self.other is None else self._codes[level_keys(self.other)[0]]
        codes = to_codes(column, self._codes, unseen)
        missing = codes < 0
        codes[missing] = 0
        return codes, missing

    def places(self, column: Any) -> NDArray[np.intp]:
        """Place of each value among the levels: L where it is none of them, -1 where missing."""
        return to_codes(column, self._codes, len(self.levels))

    def to_dict(self) -> dict[str, Any]:
        """JSON object of the declaration."""
        out: dict[str, Any] = {"type": "categorical", "levels": list(self.levels)}
        shares = None if self.shares is None else list(self.shares)
        guesses = {"other": self.other, "shares": shares}
        return out | {k: v for k, v in guesses.items() if v is not None}


def _written(key: str) -> int | float:
    """The number that a key writes, whole where it can be; nan if it writes none."""
    try:
        return int(key)
    except ValueError:
        return number(key)


def _level(value: Any) -> Level:
    """A level as a JSON scalar."""
    scalar = value.item() if isinstance(value, np.generic) else value
    finite = isinstance(scalar, str) or math.isfinite(number(scalar))
    if not isinstance(scalar, (str, int, float, bool)) or not finite:
        raise SchemaError(f"Level {shown(value)}: a level is a text, a finite number or a boolean.")
    return scalar


def _shares(shares: Any, levels: Sequence[Level]) -> tuple[float, ...]:
    """Guessed shares of levels, each above 0."""
    if isinstance(shares, (str, Mapping)) or not hasattr(shares, "__iter__"):
        raise SchemaError(f"Categorical shares={shown(shares)}: a list of numbers is needed.")
    listed = list(shares)
    if not all(map(is_number, listed)):
        raise SchemaError(f"Categorical shares={shown(listed)}: a list of numbers is needed.")
    found = tuple(map(float, listed))
    if len(found) != len(levels):
        raise SchemaError(
            f"Categorical shares={shown(list(found))}: one for each of the {len(levels)} levels "
            "is needed."
        )
    if min(found) <= 0 or abs(sum(found) - 1) > _ROUNDED:
        raise SchemaError(
            f"Categorical shares={shown(list(found))}: each is > 0, together they are 1."
        )
    return found


@dataclass(frozen=True)
class Boolean:
    """True or false; in a formula 1 or 0.

    Numbers 1 and 0 and the texts "true", "false", "1", "0" in any case are understood; anything
    else is missing. A fit refuses a column whose type is text: convert it, or declare `Categorical`
    levels. Cells of a CSV file and of objects are read one by one.

    Parameters
    ----------
    share : float, optional
        Public guess of the share of rows that are true, between 0 and 1. Planned standard errors
        use it; a wrong guess makes these wrong, and nothing else.

    Examples
    --------
    >>> import dpstats as dp
    >>> dp.Boolean(share=0.02).levels
    (False, True)
    """

    share: float | None = None
    kinds: ClassVar[tuple[str, ...]] = ("number", "boolean")
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

    def __post_init__(self) -> None:
        if self.share is None:
            return
        object.__setattr__(self, "share", _finite("Boolean share", self.share))
        if not 0 < self.share < 1:
            raise SchemaError(f"{self!r}: share must be above 0 and below 1.")

    def __repr__(self) -> str:
        return "Boolean()" if self.share is None else f"Boolean(share={self.share!r})"

    @property
    def shares(self) -> tuple[float, float] | None:
        """Guessed shares of false and true."""
        return None if self.share is None else (1 - self.share, self.share)

    def coerce(self, values: Any, name: str = "values") -> tuple[NDArray[np.intp], Mask]:
        """0 or 1, and where it was missing; see `Schema.coerce`."""
        column = as_column(values, name)
        check_kind(column, name, _READ)
        return self.clean(column)

    def clean(self, column: Any) -> tuple[NDArray[np.intp], Mask]:
        """`coerce` for a column whose type was checked before."""
        codes = to_codes(column, self._codes, -1)
        missing = codes < 0
        codes[missing] = 0
        return codes, missing

    def places(self, column: Any) -> NDArray[np.intp]:
        """0 or 1, 2 where a value is neither true nor false, -1 where it is missing."""
        return to_codes(column, self._codes, len(self.levels))

    def to_dict(self) -> dict[str, Any]:
        """JSON object of the declaration."""
        return {"type": "boolean"} | ({} if self.share is None else {"share": self.share})


@dataclass(frozen=True)
class Blank:
    """A declaration of a template that a person has still to fill."""

    kind: str

    def to_dict(self) -> dict[str, Any]:
        """JSON object of the declaration, to be filled."""
        if self.kind == "numeric":
            return {"type": self.kind, "lower": None, "upper": None}
        return {"type": self.kind, "levels": []}

    def __repr__(self) -> str:
        return {"numeric": "Numeric(?, ?)", "categorical": "Categorical([?])"}[self.kind]

    @property
    def remedy(self) -> str:
        """What is to be filled."""
        return {"numeric": "lower and upper", "categorical": "levels"}[self.kind]


Declaration = Numeric | Categorical | Boolean
