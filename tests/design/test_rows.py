"""Rows of every kind of table reach the design unchanged, and wrong tables are named."""

import gc
import pickle
import types
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp

from dpstats.design import DeclaredDesign, TableSource
from dpstats.errors import DataError
from dpstats.schema import Numeric, Schema
from tests.design.cases import SCHEMA, inside, wild

N = 50
FORMULA = "y ~ x*g + np.log1p(p) + h + b + `a b` + C(z)"
DESIGN = DeclaredDesign.from_formula(FORMULA, SCHEMA)


def tables(frame: pd.DataFrame) -> dict:
    return {
        "pandas": frame,
        "index": frame.set_index(pd.Index(np.zeros(len(frame)))),
        "shuffled columns": frame[sorted(frame.columns, reverse=True)],
        "pyarrow dtypes": frame.convert_dtypes(dtype_backend="pyarrow"),
        "nullable dtypes": frame.convert_dtypes(),
        "categories": frame.astype({"g": "category", "z": "category", "h": "category"}),
        "objects": frame.astype({"g": object, "z": object, "x": object}),
        "polars": pl.from_pandas(frame),
        "polars categories": pl.from_pandas(frame).with_columns(pl.col("g").cast(pl.Categorical)),
        "pyarrow": pa.Table.from_pandas(frame),
        "pyarrow chunks": pa.concat_tables(
            [pa.Table.from_pandas(frame.iloc[:7]), pa.Table.from_pandas(frame.iloc[7:])]
        ),
        "dict of arrays": {name: frame[name].to_numpy() for name in frame},
        "dict of lists": {name: frame[name].tolist() for name in frame},
    }


INSIDE = inside(N)
HOLES = INSIDE.mask(np.random.default_rng(5).uniform(size=INSIDE.shape) < 0.1).astype(
    {"g": "str", "z": "str"}
)


@pytest.mark.parametrize("kind", tables(INSIDE))
@pytest.mark.parametrize("frame", [INSIDE, HOLES], ids=["full", "holes"])
def test_every_kind_of_table_gives_the_same_rows(kind, frame):
    expected = DESIGN.source(frame).block(0, N)
    got = DESIGN.source(tables(frame)[kind]).block(0, N)
    np.testing.assert_array_equal(got.x, expected.x)
    np.testing.assert_array_equal(got.y, expected.y)
    np.testing.assert_array_equal(got.keep, expected.keep)


def test_a_row_with_a_missing_value_is_mapped_and_not_kept():
    block = DESIGN.source(HOLES).block(0, N)
    used = HOLES[[c for c in DESIGN.columns]]
    np.testing.assert_array_equal(block.keep, used.notna().all(axis=1).to_numpy())
    assert np.isfinite(block.x).all()
    assert np.isfinite(block.y).all()


def test_missing_numbers_are_mapped_to_the_declared_centre():
    design = DeclaredDesign.from_formula("y ~ p", SCHEMA)
    block = design.source({"y": [1.0, np.nan, 3.0], "p": [np.nan, 99.0, -np.inf]}).raw(0, 3)
    np.testing.assert_array_equal(block.x[:, 1], [2, 5, 1])
    np.testing.assert_array_equal(block.y, [1, 25, 3])
    assert block.keep.tolist() == [False, False, True]


def test_wild_rows_raise_nothing_and_warn_of_nothing():
    block = DESIGN.source(wild(N)).block(0, N)  # warnings are errors in this suite
    assert np.isfinite(block.x).all()


def test_blocks_end_with_the_table():
    source = DESIGN.source(INSIDE)
    assert isinstance(source, TableSource)
    assert len(source) == N
    assert source.block(40, 99).x.shape == (10, len(DESIGN.names))
    assert source.block(N, 2 * N).x.shape == (0, len(DESIGN.names))
    assert source.block(0, N).unit is None


WRONG_TABLES = {
    "missing column": (INSIDE.drop(columns="p"), "no column 'p'"),
    "two of a name": (pd.concat([INSIDE, INSIDE[["p"]]], axis=1), r"twice: \['p'\]"),
    "lazy": (pl.from_pandas(INSIDE).lazy(), "collect"),
    "no table": (3, "no table"),
    "array": (np.zeros((3, 8)), "no table"),
    "lengths": ({**{n: INSIDE[n] for n in INSIDE}, "p": [1.0]}, "different lengths"),
    "matrix as column": ({**{n: INSIDE[n] for n in INSIDE}, "p": np.zeros((N, 2))}, "'p' has 2"),
    "text response": (INSIDE.assign(y="1"), "'y' has type text"),
    "polars text response": (pl.from_pandas(INSIDE.assign(y="1")), "'y' has type text"),
    "lists": (pl.from_pandas(INSIDE).with_columns(x=pl.lit([1])), r"'x' has type .*List\(Int64\)"),
    "date response": (INSIDE.assign(y=pd.Timestamp("2020-01-01")), "'y' has type datetime"),
    "date covariate": (INSIDE.assign(x=pd.Timestamp("2020-01-01")), "'x' has type datetime"),
}


@pytest.mark.parametrize(("table", "words"), WRONG_TABLES.values(), ids=WRONG_TABLES.keys())
def test_a_wrong_table_is_refused_by_name_and_type(table, words):
    with pytest.raises(DataError, match=words):
        DESIGN.source(table)


def test_a_transformed_response_must_be_a_number_too():
    with pytest.raises(DataError, match="'y' has type text"):
        DeclaredDesign.from_formula("np.log1p(y) ~ x", SCHEMA).source(INSIDE.assign(y="1"))


def test_columns_that_are_not_used_are_not_looked_at():
    frame = INSIDE.assign(junk=np.array([1, "a"] * (N // 2), dtype=object))
    source = DeclaredDesign.from_formula("y ~ x", SCHEMA).source(frame[["y", "x", "junk"]])
    assert len(source) == N


def test_text_covariates_are_read_row_by_row():
    frame = INSIDE.assign(x=INSIDE.x.map(repr).astype(object))
    frame.loc[3, "x"] = "n/a"
    block = DESIGN.source(frame).block(0, N)
    expected = DESIGN.source(INSIDE).block(0, N)
    assert np.flatnonzero(~block.keep).tolist() == [3]
    np.testing.assert_array_equal(np.delete(block.x, 3, 0), np.delete(expected.x, 3, 0))


# -- new rows ------------------------------------------------------------------------------------


def test_exog_needs_no_response_and_is_in_the_users_units():
    made = DESIGN.exog(INSIDE.drop(columns="y"))
    np.testing.assert_array_equal(made, DESIGN.source(INSIDE).raw(0, N).x)
    np.testing.assert_array_equal(made[:, DESIGN.names.index("x")], INSIDE.x)


def test_exog_is_nan_where_a_new_row_is_missing_something():
    design = DeclaredDesign.from_formula("y ~ x + g", SCHEMA)
    made = design.exog({"x": [0.5, None, 9.0], "g": ["b", "b", "c"]})
    np.testing.assert_array_equal(made, [[1, 0.5, 1, 0], [np.nan] * 4, [1, 2, 0, 1]])


def test_the_mean_alone_takes_its_length_from_the_table():
    design = DeclaredDesign.from_formula("y ~ 1", SCHEMA)
    for table in (INSIDE, pl.from_pandas(INSIDE), {"anything": [1, 2, 3]}):
        rows = 3 if isinstance(table, dict) else N
        np.testing.assert_array_equal(design.exog(table), np.ones((rows, 1)))


# -- units ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "codes",
    [
        ["u", "v", None, "u", None],
        [7, 3, None, 7, None],
        pd.Series(pd.Categorical(["u", "v", None, "u", None])),
    ],
    ids=["text", "numbers", "categories"],
)
def test_rows_of_one_unit_share_a_code_and_rows_of_nobody_are_left_out(codes):
    schema = Schema(y=Numeric(0, 1), unit="person", max_rows=2)
    design = DeclaredDesign.from_formula("y ~ 1", schema)
    assert design.columns == ("y", "person")
    source = design.source({"y": np.zeros(5), "person": codes})
    unit = source.block(0, 5).unit
    assert unit[0] == unit[3]
    assert len(set(unit.tolist())) == 4
    assert source.block(0, 5).keep.tolist() == [True, True, False, True, False]
    assert source.block(2, 5).keep.tolist() == [False, True, False]
    np.testing.assert_array_equal(
        np.concatenate([source.block(0, 2).unit, source.block(2, 5).unit]), unit
    )


# -- arrays --------------------------------------------------------------------------------------

X = np.random.default_rng(2).normal(size=(N, 3))
Y = np.random.default_rng(3).normal(size=N)
ARRAYS = DeclaredDesign.from_arrays(3, {"exog": (-1, 1), "endog": (-2, 2)})

PAIRS = {
    "numpy": (Y, X),
    "fortran": (Y, np.asfortranarray(X)),
    "column vector": (Y[:, None], X),
    "pandas": (pd.Series(Y, index=range(5, 5 + N)), pd.DataFrame(X, columns=list("abc"))),
    "frame of endog": (pd.DataFrame(Y), pd.DataFrame(X, columns=list("abc"))),
    "nullable": (pd.Series(Y), pd.DataFrame(X, columns=list("abc")).convert_dtypes()),
    "polars": (pl.Series(Y), pl.DataFrame(X)),
    "csr": (Y, sp.csr_array(X)),
    "csc": (Y, sp.csc_matrix(X)),
    "lists": (Y.tolist(), X.tolist()),
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS.keys())
def test_every_kind_of_array_gives_the_same_rows(pair):
    block = ARRAYS.source(pair).block(0, N)
    np.testing.assert_array_equal(block.x, np.clip(X, -1, 1))
    np.testing.assert_array_equal(block.y, np.clip(Y, -2, 2) / 2)
    assert block.keep.all()
    np.testing.assert_array_equal(ARRAYS.exog(pair[1]), np.clip(X, -1, 1))


def test_holes_of_arrays_are_mapped():
    x = X.copy()
    x[4, 1], x[5, 0] = np.nan, np.inf
    block = ARRAYS.source((Y, x)).block(0, N)
    assert np.flatnonzero(~block.keep).tolist() == [4]
    assert block.x[4, 1] == 0
    assert block.x[5, 0] == 1


WRONG_PAIRS = {
    "columns": ((Y, X[:, :2]), "3 columns were declared"),
    "rows": ((Y[:-1], X), "rows"),
    "text": ((Y, X.astype(str)), "numbers"),
    "complex": ((Y, X.astype(complex)), "numbers"),
    "text endog": ((Y.astype(str), X), "endog"),
    "dimensions": ((Y, X[None]), "shape"),
    "wide endog": ((X, X), "endog"),
    "two of a name": ((Y, pd.DataFrame(X, columns=list("aab"))), "twice"),
}


@pytest.mark.parametrize(("pair", "words"), WRONG_PAIRS.values(), ids=WRONG_PAIRS.keys())
def test_wrong_arrays_are_refused(pair, words):
    with pytest.raises(DataError, match=words):
        ARRAYS.source(pair)


# -- cost ----------------------------------------------------------------------------------------


def _captured(function) -> list:
    cells = getattr(function, "__closure__", None) or ()
    return [cell.cell_contents for cell in cells] + [getattr(function, "__self__", None)]


def test_a_design_holds_no_rows_after_reading_some():
    design = DeclaredDesign.from_formula(FORMULA, SCHEMA)
    before = pickle.dumps(design)
    marked = INSIDE.assign(g="canary-7391", p=3.73911937)
    source = design.source(marked)
    source.block(0, N)
    assert pickle.dumps(design) == before
    seen, queue = set(), [design]
    while queue:  # everything a design refers to
        thing = queue.pop()
        if id(thing) not in seen and not isinstance(thing, (type, types.ModuleType)):
            seen.add(id(thing))
            queue += gc.get_referents(thing) if not callable(thing) else _captured(thing)
            assert getattr(thing, "shape", (0,))[:1] != (N,)
            assert thing is not marked
            assert not (isinstance(thing, str) and "7391" in thing)


def test_a_long_double_beyond_float64_is_read_without_a_warning():
    schema = Schema(y=Numeric(0, 1))
    table = {"y": np.array([0.5, 1.0]) * np.longdouble("1e4000")}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        block = DeclaredDesign.from_formula("y ~ 1", schema).source(table).block(0, 2)
    assert block.y.tolist() == block.y[:1].tolist() * 2


def test_a_null_does_not_merge_the_units_beside_it():
    schema = Schema(y=Numeric(0, 1), unit="person", max_rows=2)
    table = pl.DataFrame({"y": [0.0] * 7, "person": [2**60 + i for i in range(6)] + [None]})
    unit = DeclaredDesign.from_formula("y ~ 1", schema).source(table).block(0, 7).unit
    assert len(set(unit.tolist())) == 7
