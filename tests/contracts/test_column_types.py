"""Every type of a column in every table gives one answer or one refusal, and no cell decides which.

What a column means follows from its type and its declaration: the fit of the same values as plain
numpy arrays, or a refusal before the charge that names the column.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import dpstats as dp
from dpstats.errors import DPStatsError
from dpstats.mechanisms.noise import SeededNoise
from tests.grids import grid

N = 240
AT = 5  # the row of the odd cell
BAD = b"CANARY\xff"
Column = Any
Table = Any

pytestmark = pytest.mark.filterwarnings("ignore::dpstats.errors.DPStatsWarning")

RNG = np.random.default_rng(0)
X = RNG.integers(0, 40, N) / 4  # exact in every type of number
B = RNG.integers(0, 2, N)
K = RNG.integers(1, 3, N)
G = np.where(RNG.random(N) < 0.5, "a", "b").astype(object)
Y = np.clip(X / 4 + B + RNG.normal(0, 0.5, N), -8, 8)
U = np.array([f"p{i // 2}" for i in range(N)], dtype=object)
SCHEMA = dp.Schema(
    y=dp.Numeric(-8, 8),
    x=dp.Numeric(0, 10),
    b=dp.Boolean(),
    g=dp.Categorical(["a", "b"]),
    k=dp.Categorical([1, 2]),
)
OF_UNITS = dp.Schema(dict(SCHEMA), unit="u", max_rows=2)
PLAIN: Mapping[str, Column] = {"y": Y, "x": X, "b": B == 1, "g": G, "k": K, "u": U}
FORMULA = "y ~ x + b + C(g) + C(k)"


def objects(values: Any) -> Column:
    return np.fromiter(values, dtype=object, count=N)


def odd(values: Any, cell: Any = None) -> list[Any]:
    """The values, one of which is another."""
    return [*values[:AT], cell, *values[AT + 1 :]]


# Columns: what a column is, by the name of its type. None says that it is refused.
MISSING: Mapping[str, Column] = {
    "x": np.where(np.arange(N) == AT, np.nan, X),
    "b": objects(odd((B == 1).tolist())),
    "g": objects(odd(G)),
    "k": np.where(np.arange(N) == AT, np.nan, K),
    "u": objects(odd(U)),
}


def raw(values: Any) -> pa.Array:
    return pa.array([v.encode() if isinstance(v, str) else v for v in values], pa.binary())


def text_of(kind: Any, values: Any) -> pa.Array:
    """Text of a type of Arrow's, of which nobody checks that it is UTF-8."""
    as_bytes = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}
    return raw(values).cast(as_bytes.get(kind, pa.binary_view())).view(kind)


def dictionary(values: Any, kind: Any = None) -> pa.Array:
    found = raw(values).dictionary_encode()
    return pa.DictionaryArray.from_arrays(found.indices, found.dictionary.view(kind or pa.string()))


TEXTS: dict[str, Callable[[Any], pa.Array]] = {
    "string": functools.partial(text_of, pa.string()),
    "large_string": functools.partial(text_of, pa.large_string()),
    "string_view": functools.partial(text_of, pa.string_view()),
    "dictionary": dictionary,
}
TEXT: dict[str, Callable[[], Column]] = {
    **{f"arrow {name}": lambda f=f: f(G) for name, f in TEXTS.items()},
    "numpy U": lambda: G.astype("U"),
    "numpy StringDType": lambda: G.astype(np.dtypes.StringDType()),
    "list": G.tolist,
    "pandas object": lambda: pd.Series(G, dtype=object),
    "pandas string": lambda: pd.Series(G, dtype=pd.StringDtype("python")),
    "pandas string pyarrow": lambda: pd.Series(G, dtype=pd.StringDtype("pyarrow")),
    "pandas category": lambda: pd.Series(G, dtype="category"),
    "polars String": lambda: pl.Series(G.tolist()),
    "polars Categorical": lambda: pl.Series(G.tolist(), dtype=pl.Categorical),
    "polars Enum": lambda: pl.Series(G.tolist(), dtype=pl.Enum(["b", "a"])),
}
LOST_TEXT: dict[str, Callable[[], Column]] = {
    **{f"arrow {name}": lambda f=f: f(odd(G, BAD)) for name, f in TEXTS.items()},
    **{f"arrow {name} null": lambda f=f: f(odd(G)) for name, f in TEXTS.items()},
    "list": lambda: odd(G),
    "polars String": lambda: pl.from_arrow(text_of(pa.large_string(), odd(G, BAD))),
    "pandas category": lambda: pd.Series(odd(G), dtype="category"),
}
NUMBER: dict[str, Callable[[Any], Column]] = {
    **{f"numpy {t}": lambda v, t=t: v.astype(t) for t in ("f2", "f4", "f8", "g")},
    "list": lambda v: v.tolist(),
    "object": lambda v: objects(v.tolist()),
    "Decimals": lambda v: objects(map(Decimal, v.tolist())),
    "Fractions": lambda v: [Fraction(each) for each in v.tolist()],
    "pandas Float64": lambda v: pd.Series(v, dtype="Float64"),
    "pandas category": lambda v: pd.Series(v, dtype="category"),
    "pandas Sparse": lambda v: pd.Series(pd.arrays.SparseArray(v.astype(float))),
    "arrow double": lambda v: pa.array(v, pa.float64()),
    "arrow float": lambda v: pa.array(v, pa.float32()),
    "arrow halffloat": lambda v: pa.array(v.astype(np.float16)),
    "arrow decimal128": lambda v: pa.array([Decimal(str(e)) for e in v], pa.decimal128(8, 2)),
    "arrow decimal256": lambda v: pa.array([Decimal(str(e)) for e in v], pa.decimal256(50, 2)),
    "arrow dictionary": lambda v: pa.array(v).dictionary_encode(),
    "arrow runs": lambda v: pa.compute.run_end_encode(pa.array(v)),
    "polars Float64": lambda v: pl.Series(v),
    "polars Decimal": lambda v: pl.Series([Decimal(str(e)) for e in v]),
}
WHOLE: dict[str, Callable[[Any], Column]] = {
    **{f"numpy {t}": lambda v, t=t: v.astype(t) for t in ("i1", "u8", "i8")},
    "pandas Int64": lambda v: pd.Series(v, dtype="Int64"),
    "arrow int8": lambda v: pa.array(v, pa.int8()),
    "arrow uint64": lambda v: pa.array(v, pa.uint64()),
    "polars Int128": lambda v: pl.Series(v.tolist(), dtype=pl.Int128),
}
FLAG: dict[str, Callable[[], Column]] = {
    "list": (B == 1).tolist,
    "object": lambda: objects((B == 1).tolist()),
    "pandas boolean": lambda: pd.Series(B == 1, dtype="boolean"),
    "arrow bool": lambda: pa.array(B == 1),
    "polars Boolean": lambda: pl.Series(B == 1),
}
LOST: dict[str, dict[str, Callable[[], Column]]] = {
    "x": {
        "list": lambda: odd(X.tolist()),
        "text in objects": lambda: objects(odd([*map(str, X)], "no number")),
        "Decimals": lambda: objects(odd([*map(Decimal, X.tolist())])),
        "pandas Float64": lambda: pd.Series(odd(X.tolist()), dtype="Float64"),
        "arrow double": lambda: pa.array(odd(X.tolist())),
        "arrow decimal": lambda: pa.array(odd([*map(Decimal, X.tolist())]), pa.decimal128(8, 2)),
        "polars Float64": lambda: pl.Series(odd(X.tolist())),
    },
    "b": {
        "list": lambda: odd((B == 1).tolist()),
        "pandas boolean": lambda: pd.Series(odd((B == 1).tolist()), dtype="boolean"),
        "arrow bool": lambda: pa.array(odd((B == 1).tolist())),
        "polars Boolean": lambda: pl.Series(odd((B == 1).tolist())),
    },
    "g": LOST_TEXT,
    "u": {f"arrow {name}": lambda f=f: f(odd(U, BAD)) for name, f in TEXTS.items()}
    | {"list": lambda: odd(U), "polars String": lambda: pl.Series(odd(U))},
    "k": {
        "list": lambda: odd(K.tolist()),
        "pandas Int64": lambda: pd.Series(odd(K.tolist()), dtype="Int64"),
        "arrow int64": lambda: pa.array(odd(K.tolist())),
        "polars Int64": lambda: pl.Series(odd(K.tolist())),
    },
}
SAME: dict[str, dict[str, Callable[[], Column]]] = {
    "x": {name: functools.partial(make, X) for name, make in NUMBER.items()}
    | {"text in objects": lambda: objects(map(str, X))},
    "b": {
        **FLAG,
        **{name: functools.partial(make, B) for name, make in WHOLE.items()},
    },
    "g": TEXT,
    "k": {name: functools.partial(make, K) for name, make in (NUMBER | WHOLE).items()},
    "u": {
        "numpy U": lambda: U.astype("U"),
        "pandas category": lambda: pd.Series(U, dtype="category"),
        "pandas Int64": lambda: pd.Series(np.arange(N) // 2, dtype="Int64"),
        "arrow dictionary": lambda: dictionary(U),
        "arrow decimal128": lambda: pa.array([Decimal(i // 2) for i in range(N)]),
        "polars Categorical": lambda: pl.Series(U.tolist(), dtype=pl.Categorical),
    },
}
WRONG: dict[str, Callable[[], Column]] = {
    "numpy S": lambda: G.astype("S"),
    "numpy complex": lambda: X.astype(complex),
    "arrow binary": lambda: raw(odd(G, BAD)),
    "arrow list": lambda: pa.array([[v] for v in X]),
    "arrow struct": lambda: pa.array([{"v": v} for v in X]),
    "arrow time": lambda: pa.array([7] * N, pa.time32("s")),
    "polars Binary": lambda: pl.Series([v.encode() for v in G]),
    "polars List": lambda: pl.Series([[v] for v in X]),
}
TYPED_TEXT = [name for name in TEXT if name not in ("list", "pandas object")]
REFUSED: dict[str, dict[str, Callable[[], Column]]] = {
    "x": WRONG | {name: TEXT[name] for name in TYPED_TEXT},
    "b": WRONG | {name: TEXT[name] for name in TYPED_TEXT},
    "g": WRONG
    | {name: functools.partial(NUMBER[name], X) for name in ("numpy f8", "arrow decimal128")}
    | {"arrow bool": FLAG["arrow bool"], "pandas Int64": lambda: pd.Series(K, dtype="Int64")},
    "k": WRONG | {name: TEXT[name] for name in TYPED_TEXT},
}


# Tables -------------------------------------------------------------------------------------------


def arrow(columns: Mapping[str, Column]) -> pa.Table:
    return pa.table({k: v.tolist() if v is U or v is G else v for k, v in columns.items()})


def of_pandas_arrow(columns: Mapping[str, Column], folder: Path) -> Table:
    table = arrow(columns)
    chunks = zip(table.column_names, table.columns, strict=True)
    return pd.DataFrame({k: pd.arrays.ArrowExtensionArray(c) for k, c in chunks})


def parquet(columns: Mapping[str, Column], folder: Path) -> Table:
    pq.write_table(arrow(columns), folder / "rows.parquet")
    return folder / "rows.parquet"


def streamed(columns: Mapping[str, Column], folder: Path) -> Table:
    table = arrow(columns)
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(100))


OF_ARROW: dict[str, Callable[[Mapping[str, Column], Path], Table]] = {
    "pyarrow Table": lambda columns, folder: arrow(columns),
    "dict": lambda columns, folder: dict(columns),
    "dict of chunks": lambda columns, folder: dict(
        zip(arrow(columns).column_names, arrow(columns).columns, strict=True)
    ),
    "pandas": of_pandas_arrow,
    "polars": lambda columns, folder: pl.from_arrow(arrow(columns)),
    "lazy": lambda columns, folder: pl.from_arrow(arrow(columns)).lazy(),
    "parquet": parquet,
    "dataset": lambda columns, folder: pa.dataset.dataset(parquet(columns, folder)),
    "stream": streamed,
}
OF_PANDAS: dict[str, Callable[[Mapping[str, Column], Path], Table]] = {
    "dict": lambda columns, folder: dict(columns),
    "pandas": lambda columns, folder: pd.DataFrame(columns),
}
OF_POLARS: dict[str, Callable[[Mapping[str, Column], Path], Table]] = {
    "dict": lambda columns, folder: dict(columns),
    "polars": lambda columns, folder: pl.DataFrame(dict(columns)),
    "lazy": lambda columns, folder: pl.DataFrame(dict(columns)).lazy(),
}
UNKNOWN_TO: dict[str, tuple[str, ...]] = {  # types that a table or a kind of file has not got
    "arrow runs": ("pandas", "polars", "lazy", "parquet", "dataset", "stream"),
    "arrow string_view": ("dataset",),
    "arrow string_view null": ("dataset",),
    "arrow time": ("polars", "lazy"),
    "numpy StringDType": ("pandas",),
    "list": ("pandas",),  # which learns a type from values
    "numpy S": ("pandas",),
    "text in objects": ("pandas",),
    "arrow decimal256": ("polars", "lazy"),
}


def tables_of(name: str) -> Mapping[str, Callable[[Mapping[str, Column], Path], Table]]:
    family = {"arrow": OF_ARROW, "polars": OF_POLARS}.get(name.split()[0], OF_PANDAS)
    return {k: v for k, v in family.items() if k not in UNKNOWN_TO.get(name, ())}


# Entry points -------------------------------------------------------------------------------------


def ols(table: Table, privacy: Any, ledger: Any, schema: dp.Schema = SCHEMA) -> Any:
    n = N if hasattr(table, "read_next_batch") else None
    model = dp.ols(FORMULA, table, schema, n=n)
    return model.fit(privacy, ledger, noise=SeededNoise(1)).params.to_numpy()


def alone(table: Table, ledger: Any, role: str) -> Any:
    """What is released of a column by itself."""
    n = N if hasattr(table, "read_next_batch") else None
    make = dp.quantile if role == "x" else dp.proportion
    found = make(role, table, SCHEMA, n=n).fit(dp.Central(3.0, 1e-6), ledger, noise=SeededNoise(1))
    return found.params.to_numpy()


def at_sites(table: Table, ledger: Any, role: str) -> Any:
    """What a federation answers, whose sites are told from each other by a column."""
    model = dp.ols("y ~ x + b", table, SCHEMA, sites="g")
    privacy = dp.Federated(9.0, 1e-4, target="a")
    ledgers = None if ledger is None else {"a": ledger}
    return model.fit(privacy, ledgers, noise=SeededNoise(1)).params.to_numpy()


ENTRIES: dict[str, Callable[[Table, Any, str], Any]] = {
    "central": lambda table, ledger, _: ols(table, dp.Central(3.0, 1e-6), ledger),
    "label-only": lambda table, ledger, _: ols(table, dp.LabelOnly(3.0), ledger),
    "local": lambda table, ledger, _: ols(table, dp.Local(3.0), ledger),
    "units": lambda table, ledger, _: ols(table, dp.Central(3.0, 1e-6, rows=N), ledger, OF_UNITS),
    "alone": alone,
    "sites": at_sites,
}
NOT_READ = {"sites": ("stream", "lazy", "parquet", "dataset")}


@functools.cache
def expected(entry: str, role: str, lost: bool) -> Any:
    """The answer for plain arrays of numpy."""
    return ENTRIES[entry](dict(PLAIN) | ({role: MISSING[role]} if lost else {}), None, role)


def each(columns: Mapping[str, Mapping[str, Any]]) -> list[Any]:
    """Each entry point, column and table; by default one entry and table for each column."""
    cases, sharpest = [], set()
    for role, made in columns.items():
        entries = {"u": ["units"], "x": [*ENTRIES], "b": [*ENTRIES]}.get(role, [*ENTRIES][:-1])
        for i, name in enumerate(made):
            tables = [*tables_of(name)]
            sharpest.add((entries[i % len(entries)], role, name, tables[i % len(tables)]))
            cases += [
                (entry, role, name, table)
                for table in tables
                for entry in entries
                if table not in NOT_READ.get(entry, ())
            ]
    return grid(cases, sharpest.__contains__)


CASES = ("entry", "role", "name", "table")


@pytest.mark.parametrize(CASES, each(SAME))
def test_every_type_of_the_same_values_gives_the_same_answer(
    entry: str, role: str, name: str, table: str, tmp_path: Path
) -> None:
    columns = dict(PLAIN) | {role: SAME[role][name]()}
    found = ENTRIES[entry](tables_of(name)[table](columns, tmp_path), None, role)
    np.testing.assert_allclose(found, expected(entry, role, False), rtol=1e-9)


@pytest.mark.parametrize(CASES, each(LOST))
def test_an_odd_cell_is_one_missing_value(
    entry: str, role: str, name: str, table: str, tmp_path: Path
) -> None:
    columns = dict(PLAIN) | {role: LOST[role][name]()}
    found = ENTRIES[entry](tables_of(name)[table](columns, tmp_path), None, role)
    np.testing.assert_allclose(found, expected(entry, role, True), rtol=1e-9)


@pytest.mark.parametrize(CASES, each(REFUSED))
def test_a_type_in_which_nothing_declared_can_stand_is_refused_before_the_charge(
    entry: str, role: str, name: str, table: str, tmp_path: Path
) -> None:
    ledger = dp.Ledger.memory(9.0, 1e-4)
    columns = dict(PLAIN) | {role: REFUSED[role][name]()}
    with pytest.raises(DPStatsError, match=f"'{role}' has type|of another type here") as refused:
        ENTRIES[entry](tables_of(name)[table](columns, tmp_path), ledger, role)
    assert "CANARY" not in repr(refused.value)
    assert not ledger.entries
