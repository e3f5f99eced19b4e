"""Values of every type are mapped into the declared domain, row by row, without a word."""

import datetime
import decimal
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstats.errors import DataError
from dpstats.schema import Boolean, Categorical, Numeric, Schema
from dpstats.tables.coercion import as_column, to_codes

NAN, INF = float("nan"), float("inf")
NUMBER = Numeric(0, 10, center=4)

# values, what they become, which are missing
NUMBERS = {
    "float": (np.array([1.5, -3, 99, NAN, INF, -INF, -0.0]), [1.5, 0, 10, 4, 10, 0, 0], [3]),
    "float32": (np.array([1.5, NAN], dtype=np.float32), [1.5, 4], [1]),
    "int": (np.array([-3, 5, 99]), [0, 5, 10], []),
    "uint64": (np.array([2**64 - 1], dtype=np.uint64), [10], []),
    "bool": (np.array([True, False]), [1, 0], []),
    "list": ([1, None, 3], [1, 4, 3], [1]),
    "series": (pd.Series([1.0, NAN], index=[7, 7]), [1, 4], [1]),
    "nullable": (pd.Series([1, None], dtype="Int64"), [1, 4], [1]),
    "nullable bool": (pd.Series([True, None], dtype="boolean"), [1, 4], [1]),
    "arrow int": (pd.Series([1, None], dtype="int64[pyarrow]"), [1, 4], [1]),
    "arrow decimal": (
        pd.Series([decimal.Decimal("1.5"), None], dtype=pd.ArrowDtype(pa.decimal128(5, 2))),
        [1.5, 4],
        [1],
    ),
    "text": (pd.Series(["1.5", "x", None, "inf", "nan", " 2 "]), [1.5, 4, 4, 10, 4, 2], [1, 2, 4]),
    "numpy text": (np.array(["3", "x"]), [3, 4], [1]),
    "categorical": (pd.Series(pd.Categorical([5, 99, None, 5])), [5, 10, 4, 5], [2]),
    "categorical text": (pd.Series(["2", "x", None], dtype="category"), [2, 4, 4], [1, 2]),
    "object": (np.array([1, 2.5, None], dtype=object), [1, 2.5, 4], [2]),
    "mixed": (np.array([1, "2", True, "x", [3]], dtype=object), [1, 2, 1, 4, 4], [3, 4]),
    "dates": (np.array([datetime.date(2020, 1, 1), 3], dtype=object), [4, 3], [0]),
    "lists": ([[1], [2, 3], 5], [4, 4, 5], [0, 1]),
    "huge": (np.array([10**400, -(10**400)], dtype=object), [10, 0], []),
    "decimals": (np.array([decimal.Decimal("1.5"), None], dtype=object), [1.5, 4], [1]),
    "nothing": (np.array([None, None], dtype=object), [4, 4], [0, 1]),
    "masked": (np.ma.array([1.0, 2.0], mask=[False, True]), [1, 4], [1]),
    "polars": (pl.Series([1, None, 99]), [1, 4, 10], [1]),
    "polars text": (pl.Series(["1", "x", None]), [1, 4, 4], [1, 2]),
    "polars decimal": (pl.Series([decimal.Decimal("1.5"), None]), [1.5, 4], [1]),
    "pyarrow": (pa.chunked_array([[1.5], [None]]), [1.5, 4], [1]),
    "empty": (np.array([]), [], []),
}

LEVELS = Categorical([1, "b", 2.5])
CODES = {
    "int": (np.array([1, 2, 0]), [0, 0, 0], [1, 2]),
    "float": (np.array([1.0, 2.5, NAN, INF]), [0, 2, 0, 0], [2, 3]),
    "float32": (np.array([2.5], dtype=np.float32), [2], []),
    "bool": (np.array([True, False]), [0, 0], [1]),
    "text": (pd.Series(["1", "b", "2.5", "B", None]), [0, 1, 2, 0, 0], [3, 4]),
    "category": (pd.Series(["b", "1", None], dtype="category"), [1, 0, 0], [2]),
    "nullable": (pd.Series([1, None], dtype="Int64"), [0, 0], [1]),
    "polars": (pl.Series(["b", None, "z"]), [1, 0, 0], [1, 2]),
    "polars category": (pl.Series(["b", None], dtype=pl.Categorical), [1, 0], [1]),
    "arrow dictionary": (
        pa.chunked_array([pa.array(["b", None]).dictionary_encode()]),
        [1, 0],
        [1],
    ),
}

FLAGS = {
    "bool": (np.array([True, False]), [1, 0], []),
    "numbers": (np.array([1.0, 0.0, 2.0, NAN]), [1, 0, 0, 0], [2, 3]),
    "text": (pd.Series(["true", "FALSE", "1", "no", None]), [1, 0, 1, 0, 0], [3, 4]),
    "nullable": (pd.Series([True, None], dtype="boolean"), [1, 0], [1]),
    "object": (np.array([True, None], dtype=object), [1, 0], [1]),
}

TABLE = [
    pytest.param(declaration, *case, id=f"{type(declaration).__name__}-{name}")
    for declaration, cases in ((NUMBER, NUMBERS), (LEVELS, CODES), (Boolean(), FLAGS))
    for name, case in cases.items()
]


@pytest.mark.parametrize(("declaration", "values", "expected", "missing"), TABLE)
def test_values_are_mapped_into_the_domain(declaration, values, expected, missing):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clean, lost = Schema(x=declaration).coerce("x", values)
    np.testing.assert_array_equal(clean, np.array(expected, dtype=clean.dtype))
    assert np.flatnonzero(lost).tolist() == missing
    assert lost.dtype == bool


def test_unseen_levels_go_to_the_declared_other():
    declared = Categorical(["a", "b"], other="z")
    clean, lost = declared.coerce(["a", "q", None, "z"])
    assert clean.tolist() == [0, 2, 0, 2]
    assert lost.tolist() == [False, False, True, False]


def test_true_matches_the_level_named_true():
    assert Categorical(["False", "True"]).coerce(np.array([True, False]))[0].tolist() == [1, 0]
    assert Categorical([False, True]).coerce(["True", "False"])[0].tolist() == [1, 0]


REFUSED = {
    "dates": pd.Series(pd.to_datetime(["2020-01-01"])),
    "durations": np.array([1], dtype="timedelta64[s]"),
    "complex": np.array([1j]),
    "bytes": np.array([b"1"]),
    "polars lists": pl.Series([[1], [2, 3]]),
    "arrow times": pa.chunked_array([pa.array([1], pa.time32("s"))]),
    "categories of dates": pd.Series(pd.to_datetime(["2020-01-01"])).astype("category"),
    "periods": pd.Series(pd.period_range("2020", periods=1, freq="Y")),
    "matrix": np.zeros((2, 2)),
    "scalar": 3.0,
}


@pytest.mark.parametrize("declaration", [NUMBER, LEVELS, Boolean()], ids=lambda d: type(d).__name__)
@pytest.mark.parametrize("values", REFUSED.values(), ids=REFUSED.keys())
def test_types_without_a_rule_are_refused_by_name(values, declaration):
    with pytest.raises(DataError, match="'income'"):
        declaration.coerce(values, "income")


def test_a_type_is_refused_whatever_the_values_are():
    for values in ([], [datetime.date(2020, 1, 1)]):
        with pytest.raises(DataError, match="type datetime64"):
            NUMBER.coerce(pd.Series(values, dtype="date32[pyarrow]"), "x")
        NUMBER.coerce(pd.Series(values, dtype=object), "x")


@pytest.mark.parametrize(
    "make",
    [list, pl.Series, lambda v: pa.chunked_array([pa.array(v)])],
    ids=["list", "polars", "pyarrow"],
)
def test_a_null_does_not_round_the_whole_numbers_beside_it(make):
    ids = [2**60 + i for i in range(6)]
    column = as_column(make([*ids, None]), "id")
    assert [str(v) for v in column[:6]] == [str(i) for i in ids]
    levels = {str(i): code for code, i in enumerate(ids)}
    assert to_codes(column, levels, 9).tolist() == [0, 1, 2, 3, 4, 5, -1]


SCALARS = st.one_of(
    st.none(), st.floats(allow_nan=True, allow_infinity=True), st.integers(), st.text(max_size=4)
)


@settings(max_examples=50, deadline=None)
@given(st.lists(SCALARS, min_size=1, max_size=12), st.sampled_from([NUMBER, LEVELS, Boolean()]))
def test_any_value_is_mapped_alone(values, declaration):
    column = np.empty(len(values), dtype=object)
    column[:] = values
    whole, lost = declaration.coerce(column)
    alone = [declaration.coerce(column[i : i + 1]) for i in range(len(values))]
    np.testing.assert_array_equal(whole, np.concatenate([clean for clean, _ in alone]))
    np.testing.assert_array_equal(lost, np.concatenate([flag for _, flag in alone]))
    top = 10 if declaration is NUMBER else len(declaration.levels) - 1
    assert ((whole >= 0) & (whole <= top)).all()
