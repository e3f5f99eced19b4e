"""Cells and lines that nobody would write who meant well, and how a command line reads them."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from dpstats.models import door
from tests.contracts.spies import Recorder, Released, releases


class Raising:
    """Every look at it raises, and it says that it equals everything."""

    def _raise(self, *_: Any) -> Any:
        raise RuntimeError("CANARY")

    __float__ = __int__ = __index__ = __str__ = __hash__ = __len__ = _raise
    __bool__ = __iter__ = __getattr__ = __array__ = _raise

    def __eq__(self, other: object) -> bool:
        return True

    def __repr__(self) -> str:  # for reports of failures
        return "Raising()"


class Chameleon(str):
    """A text that equals every other, and raises where it is read."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash("a")

    def __float__(self) -> float:
        raise MemoryError

    def __str__(self) -> str:
        raise RecursionError


class Whole(int):
    """A number that raises where it is read."""

    def __float__(self) -> float:
        raise ZeroDivisionError

    __index__ = __int__ = __str__ = __hash__ = __float__  # type: ignore[assignment]


class Broken(Fraction):
    """A fraction without a numerator."""

    @property
    def numerator(self) -> int:
        raise LookupError("CANARY")


class Unreadable(Mapping):
    """A record that raises where it is read."""

    def __getitem__(self, name: object) -> Any:
        raise OSError("CANARY")

    def __iter__(self) -> Iterator[Any]:
        raise OSError("CANARY")

    def __len__(self) -> int:
        raise OSError("CANARY")


HOSTILE: dict[str, Any] = {
    "400 digits": 10**400,
    "-400 digits": -(10**400),
    "5,000 digits": 10**5000,
    "5,000 digits as text": "9" * 5000,
    "signaling NaN": Decimal("sNaN"),
    "quiet NaN": Decimal("NaN"),
    "vast decimal": Decimal("1E+999999999"),
    "vast fraction": Fraction(10**400, 3),
    "complex": 1j,
    "bytes": b"\xff",
    "date": datetime.date(2020, 1, 1),
    "NaT": pd.NaT,
    "NA": pd.NA,
    "duration": np.timedelta64(5, "ns"),
    "instant": np.datetime64("NaT"),
    "long double": np.longdouble("1e4000"),
    "half": np.float16("inf"),
    "complex64": np.complex64(1),
    "array": np.array([1.0]),
    "list": [1, [2, [3]]],
    "unhashable": {"a": {1}},
    "raising": Raising(),
    "equal to all": Chameleon("a"),
    "raising number": Whole(3),
    "broken fraction": Broken(1, 3),
    "lone surrogate": "\ud800",
    "nul": "1\x002",
    "type": int,
    "uuid": uuid.UUID(int=7),
    "true": True,
    "text": "b",
}

CELLS = st.one_of(
    st.sampled_from(list(HOSTILE)).map(HOSTILE.__getitem__),
    st.integers(),
    st.integers(min_value=10**300),
    st.floats(),
    st.decimals(),
    st.fractions(),
    st.booleans(),
    st.complex_numbers(),
    st.binary(max_size=4),
    st.text(max_size=5),
    st.text("0123456789eE+-._ naif", max_size=8),
    st.dates(),
    st.lists(st.integers(), max_size=3),
    st.builds(Chameleon, st.text(max_size=3)),
    st.none(),
)


def objects(cells: Any) -> np.ndarray:
    """Cells as an object column, which nothing looks into."""
    return np.fromiter(cells, dtype=object, count=len(cells))


def as_bytes(values: Any) -> pa.Array:
    """Texts, bytes and None as bytes."""
    return pa.array([v.encode() if isinstance(v, str) else v for v in values], pa.binary())


def text_of(kind: Any, values: Any) -> pa.Array:
    """Text of a type of Arrow's, of which nobody checks that it is UTF-8."""
    of_bytes = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}
    return as_bytes(values).cast(of_bytes.get(kind, pa.binary_view())).view(kind)


# Lines that are no record of four fields, or a record of odd ones.
LINES: dict[str, bytes] = {
    "too few fields": b"1,0.5",
    "too many fields": b"1,0.5,3,a,9",
    "many too many": b"1" + b"," * 5000,
    "empty": b"",
    "blank": b"  ",
    "commas": b",,,",
    "open quote": b'1,0.5,3,"a',
    "open quote first": b'"1,0.5,3,a',
    "quote after a quote": b'1,0.5,3,"a"b',
    "quoted comma": b'1,0.5,3,"a,b"',
    "bad UTF-8": b"1,0.5,3,\xff",
    "half a character": "1,0.5,3,ä".encode()[:-1],
    "nul": b"1,0.5\x00,3,a",
    "carriage return": b"1,0.5\r1,0.5,3,a",
    "quoted carriage return": b'1,0.5,3,"a\r1,1,1,a"',
    "carriage returns": b"1,0.5,3,a\r\r\r",
    "line separator": "1,0.5,3,a\u2028".encode(),
    "next line": "1,0.5,3,a\x85\x1c\x0b".encode(),
    "byte order mark": b"\xef\xbb\xbf1,0.5,3,a",
    "header again": b"y,x1,x2,g",
    "comment": b"# 1,0.5,3,a",
    "long field": b"1,0.5,3," + b"a" * 200_000,
    "long quoted field": b'1,0.5,3,"' + b"a" * 200_000 + b'"',
    "digits": b"1," + b"9" * 5000 + b",3,a",
    "words": b"one,half,three,z",
    "infinite": b"inf,-inf,1e999,a",
    "missing": b"NA,nan,null,None",
    "underscores": b"1_0,0_1,3,a",
    "largest": b"8,1,10,b",
    "smallest": b"-8,-1,0,c",
}


class Replaying(Recorder):
    """A curator that is asked what another one was asked, and whose fit hears what that heard."""

    script: Any = ()

    def ask(self, query: Any, slot: str, part: int = 0) -> Any:
        asked, answer = self.script[len(self.asked)]
        super().ask(asked.query, asked.slot, asked.part)
        return answer


class Hearing(Recorder):
    """A curator that notes questions and what it answers."""

    heard: Any = None

    def ask(self, query: Any, slot: str, part: int = 0) -> Any:
        answer = super().ask(query, slot, part)
        type(self).heard.append((self.asked[-1], answer))
        return answer


@contextmanager
def first_fit() -> Iterator[tuple[list[Any], list[Released]]]:
    """Questions and answers of a fit, and exact totals."""
    script: list[Any] = []
    holder = type("Hearing", (Hearing,), {"heard": script})
    with pytest.MonkeyPatch.context() as patch, releases() as released:
        patch.setattr(door, "Curator", holder)
        yield script, released


@contextmanager
def same_questions(script: list[Any]) -> Iterator[list[Released]]:
    """Exact totals of the same questions on the rows of another fit."""
    holder = type("Replaying", (Replaying,), {"script": script})
    with pytest.MonkeyPatch.context() as patch, releases() as released:
        patch.setattr(door, "Curator", holder)
        yield released
