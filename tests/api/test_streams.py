"""Tables that are read in batches have the numbers of the same table in memory, or on disk."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import dpstats as dp
from dpstats.cli import main
from dpstats.errors import DataError, DPStatsError, OptionError
from dpstats.holders import Curator, labels
from dpstats.holders import mapped as mapped_rows
from dpstats.protocol import progress
from dpstats.tables import streams
from dpstats.tables.formats import paths_of
from tests.grids import grid

N = 2_500
PRIVACY = dp.Central(1.0, 1e-6)
FORMULA = "y ~ x + C(g)"
SCHEMA = dp.Schema(
    y=dp.Numeric(-20, 20, center=0, scale=3),
    x=dp.Numeric(-5, 5, center=0, scale=1),
    z=dp.Numeric(-100, 100),
    k=dp.Numeric(0, 9, center=2, scale=2),
    g=dp.Categorical(["a", "b", "c"]),
    b=dp.Boolean(),
)


def frame() -> pd.DataFrame:
    """Numbers of several types, levels, values that are missing, unlisted and out of bounds."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=N)
    g = rng.choice(list("abcd"), N).astype(object)
    x[::50], g[::70], x[7] = np.nan, None, 1e9
    y = 1 + 2 * np.nan_to_num(x) % 5 + rng.normal(size=N)
    k, b = rng.poisson(2, N), y > 2
    return pd.DataFrame({"g": g, "z": x.astype("f4"), "y": y, "x": x, "k": k, "b": b})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The frame in three Parquet files, of which one names its columns in another order."""
    made, df = tmp_path_factory.mktemp("rows"), frame()
    for i, part in enumerate((df[:900], df[900:1000][df.columns[::-1]], df[1000:])):
        pq.write_table(
            pa.Table.from_pandas(part, preserve_index=False),
            made / f"{i}.parquet",
            row_group_size=400,
        )
    return made


@pytest.fixture(params=["memory", "disk"])
def kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the rows of a fit are kept."""
    if request.param == "disk":
        on_disk(monkeypatch)
    return str(request.param)


def on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "RESIDENT_VALUES", 10)


def fitted(model: Any, privacy: Any = PRIVACY, **options: Any) -> list[float]:
    fit = model.fit(privacy, noise=dp.SeededNoise(3), **options)
    return [*fit.params.tolist(), *np.ravel(fit.privacy.epsilon)]


def sums(data: Any, n: int | None = None, privacy: Any = PRIVACY, **options: Any) -> list[float]:
    """A fit of few questions."""
    return fitted(ols(data, n), privacy, method="adassp", **options)


def ols(data: Any, n: int | None = None) -> Any:
    return dp.ols(FORMULA, data=data, schema=SCHEMA, n=n)


class Producer:
    """Rows of another package: an Arrow stream that says nothing else."""

    def __init__(self, table: Any) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


class Relation(Producer):
    """One of a connection that serves one query at a time, as DuckDB's."""

    def __init__(self, table: Any) -> None:
        super().__init__(table)
        self.running: list[int] = []

    def __len__(self) -> int:
        assert not self.running
        return len(self.table)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        assert not self.running
        reader = pa.RecordBatchReader.from_batches(self.table.schema, Query(self))
        return reader.__arrow_c_stream__(requested_schema)


class Query:
    """Batches of a relation, until it is let go."""

    def __init__(self, relation: Relation) -> None:
        self.batches, self.running = iter(relation.table.to_batches()), relation.running
        self.running.append(1)

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        return next(self.batches)

    def __del__(self) -> None:
        self.running.pop()


SOURCES: dict[str, tuple[Callable[[Path], Any], int | None]] = {
    "pattern": (lambda folder: str(folder / "*.parquet"), None),
    "folder": (lambda folder: folder, None),
    "list": (lambda folder: sorted(folder.iterdir()), None),
    "dataset": (lambda folder: ds.dataset(folder, schema=ds.dataset(folder).schema), None),
    "lazy frame": (lambda folder: pl.LazyFrame(pl.from_pandas(frame())), None),
    "reader": (lambda folder: pa.Table.from_pandas(frame()).to_reader(300), N),
    "stream": (lambda folder: Producer(pa.Table.from_pandas(frame())), N),
}


@pytest.fixture(scope="module")
def resident() -> list[float]:
    """The fit of the table in memory."""
    return fitted(ols(frame()))


def test_a_small_table_is_read_into_memory(
    folder: Path, tmp_path: Path, resident: list[float]
) -> None:
    assert fitted(ols(folder), scratch=tmp_path) == resident


@pytest.mark.parametrize("source", grid(SOURCES, lambda source: source not in ("list", "folder")))
def test_the_fit_on_disk_is_that_of_the_table_in_memory(
    source: str, folder: Path, resident: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    make, n = SOURCES[source]
    on_disk(monkeypatch)
    assert fitted(ols(make(folder), n)) == resident


def test_the_fit_of_csv_files_is_that_of_their_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk(monkeypatch)
    df = frame()
    df[:800].to_csv(tmp_path / "a.csv", index=False)
    df[800:].to_csv(tmp_path / "b.csv.gz", index=False)
    whole = pd.concat([pd.read_csv(tmp_path / name) for name in ("a.csv", "b.csv.gz")])
    assert sums(str(tmp_path / "*.csv*")) == sums(whole)


MODELS: dict[str, tuple[Callable[[Any], Any], Any, dict[str, Any]]] = {
    "scales": (lambda data: dp.ols("y ~ x + z", data, SCHEMA), PRIVACY, {}),
    "logit": (lambda data: dp.logit("b ~ x", data, SCHEMA), PRIVACY, {}),
    "poisson": (lambda data: dp.glm("k ~ x", data, SCHEMA, family="poisson"), PRIVACY, {}),
    "offset": (
        lambda data: dp.glm("k ~ x", data, SCHEMA, family="poisson", offset="z"),
        PRIVACY,
        {},
    ),
    "omp": (lambda data: dp.ols("y ~ x + k + C(g)", data, SCHEMA), PRIVACY, {"sparsity": 2}),
    "pairs": (
        lambda data: dp.ols("y ~ x + k", data, SCHEMA),
        PRIVACY,
        {"method": "adaptive-clipping-gd"},
    ),
    "mean": (lambda data: dp.mean("y", data, SCHEMA), PRIVACY, {}),
    "group means": (lambda data: dp.mean("y", data, SCHEMA, by="g"), PRIVACY, {}),
    "labels": (lambda data: dp.ols(FORMULA, data, SCHEMA), dp.LabelOnly(1.0), {}),
    "devices": (lambda data: dp.mean("y", data, SCHEMA), dp.Local(2.0), {}),
}


@pytest.mark.parametrize("model", grid(MODELS, lambda model: model not in ("pairs", "offset")))
def test_every_model_has_the_numbers_of_the_table_in_memory(
    model: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, privacy, options = MODELS[model]
    on_disk(monkeypatch)
    assert fitted(make(folder), privacy, **options) == fitted(make(frame()), privacy, **options)


def test_descriptions_and_ranges_have_the_numbers_of_the_table_in_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk(monkeypatch)
    for look in (dp.describe, dp.private_ranges):
        both = [look(data, SCHEMA, PRIVACY, noise=dp.SeededNoise(1)) for data in (folder, frame())]
        assert both[0].params.tolist() == both[1].params.tolist()


def test_units_are_kept_together_in_memory_and_refused_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    df = frame().assign(person=np.arange(N) // 2)
    df.to_parquet(tmp_path / "rows.parquet")
    schema = dp.Schema(dict(SCHEMA), unit="person", max_rows=2)
    privacy = dp.Central(1.0, 1e-6, rows=N)
    one, other = (dp.ols(FORMULA, data, schema) for data in (tmp_path / "rows.parquet", df))
    cheap = {"method": "adassp"}
    assert fitted(one, privacy, **cheap) == fitted(other, privacy, **cheap)
    on_disk(monkeypatch)
    ledger = dp.Ledger.memory(1.0, 1e-6)
    with pytest.raises(DataError, match=r"one row a unit .* without unit="):
        one.fit(privacy, ledger)
    assert not ledger.entries


@pytest.mark.slow
def test_ten_million_rows_of_units_are_refused_and_fitted_as_one_row_each(tmp_path: Path) -> None:
    """The refusal says what to do, and that works: polars groups what does not fit in memory."""
    persons, columns = 5_000_000, list("uvw")
    rng = np.random.default_rng(0)
    first, second = ({c: rng.random(persons, "f4") for c in "uvwy"} for _ in range(2))
    for k, rows in enumerate((first, second)):
        pq.write_table(pa.table({**rows, "person": np.arange(persons)}), tmp_path / f"{k}.parquet")
    known = {c: dp.Numeric(0, 1) for c in "uvwy"}
    formula, privacy = "y ~ u + v + w", dp.Central(1.0, 1e-8)
    ledger = dp.Ledger.memory(1.0, 1e-8)
    of_units = dp.Schema(known, unit="person", max_rows=2)
    whole = dp.ols(formula, tmp_path, of_units)
    with pytest.raises(DataError, match=r"10,000,000 rows of units .* GROUP BY.* without unit="):
        whole.fit(dp.Central(1.0, 1e-8, rows=2 * persons), ledger)
    assert not ledger.entries

    grouped = pl.scan_parquet(tmp_path / "*.parquet").group_by("person").agg(pl.all().max())
    resident = {c: np.maximum(first[c], second[c]) for c in first}
    fits = [
        dp.ols(formula, table, dp.Schema(known)).fit(
            privacy, method="adassp", noise=dp.SeededNoise(1), scratch=tmp_path
        )
        for table in (grouped.select([*columns, "y"]), resident)
    ]
    assert fits[0].params.tolist() == fits[1].params.tolist()


def test_a_private_number_of_rows_is_neither_shown_nor_on_disk(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    privacy = dp.Central(1.0, 1e-6, neighbors="add-remove", rows=1_000)
    monkeypatch.setattr(progress, "_is_watched", lambda: True)
    bars: list[int] = []
    monkeypatch.setattr(progress.Progress, "reading", lambda _, rows: bars.append(rows))
    assert sums(folder, None, privacy, progress=True) == sums(frame(), None, privacy)
    assert not bars
    sums(folder, progress=True)
    assert bars == [N]
    on_disk(monkeypatch)
    ledger = dp.Ledger.memory(1.0, 1e-6)
    with pytest.raises(DataError, match=r"1,000 rows .* has to be public"):
        ols(folder).fit(privacy, ledger)
    assert not ledger.entries


# -- rows that are on disk -------------------------------------------------------------------------


def test_scratch_has_no_name_while_a_fit_runs_and_is_closed_after_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk(monkeypatch)
    found: list[tuple[list[str], bool]] = []
    ask = Curator.ask

    def looking(self: Any, *args: Any) -> Any:
        found.append((os.listdir(tmp_path), mapped(tmp_path)))
        return ask(self, *args)

    monkeypatch.setattr(Curator, "ask", looking)
    sums(folder, scratch=tmp_path)
    assert found == [([], True)] * len(found) != []
    assert not mapped(tmp_path)


def mapped(folder: Path) -> bool:
    """Whether a file of a folder is in use, with a name or without."""
    return str(folder) in Path("/proc/self/maps").read_text()


def test_scratch_is_closed_when_a_fit_fails(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk(monkeypatch)
    monkeypatch.setenv("DPSTATS_SCRATCH", str(tmp_path))
    seen: list[bool] = []

    def failing(self: Any, *_: Any) -> Any:
        seen.append(mapped(tmp_path))
        raise RuntimeError("no")

    monkeypatch.setattr(Curator, "ask", failing)
    with pytest.raises(RuntimeError):
        ols(folder).fit(PRIVACY)
    assert seen == [True]
    assert not mapped(tmp_path)


# -- the number of rows is public ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("announced", "kept"),
    [(N - 700, "disk"), (N + 300, "disk"), (N + 300, "memory")],
    indirect=["kept"],
)
def test_a_stream_that_delivers_other_rows_than_announced_is_cut_or_filled(
    announced: int, kept: str
) -> None:
    df = frame().reindex(range(announced))  # rows beyond are missing
    table = pa.Table.from_pandas(frame())
    assert sums(Producer(table), announced) == sums(df)


@pytest.mark.parametrize("announced", [N - 700, N + 300])
def test_and_where_covariates_are_public(announced: int) -> None:
    df, private = frame().reindex(range(announced)), dp.LabelOnly(2.0)
    streamed = ols(Producer(pa.Table.from_pandas(frame())), announced).fit(
        private, noise=dp.SeededNoise(1)
    )
    resident = ols(df).fit(private, noise=dp.SeededNoise(1))
    assert repr(streamed.to_dict()) == repr(resident.to_dict())


def test_a_stream_of_unknown_length_needs_n() -> None:
    model = ols(Producer(pa.Table.from_pandas(frame())))
    with pytest.raises(OptionError, match="give n="):
        model.plan(PRIVACY)


def test_a_reader_is_read_once() -> None:
    reader = pa.Table.from_pandas(frame()).to_reader()
    model = dp.mean("y", reader, SCHEMA, n=N)
    dp.quantile("y", reader, SCHEMA, n=N).plan(PRIVACY)  # looks at its types alone
    model.plan(PRIVACY)
    assert fitted(model) == fitted(dp.mean("y", frame(), SCHEMA))
    ledger = dp.Ledger.memory(1.0, 1e-6)
    with pytest.raises(DataError, match="can be read once"):
        model.fit(PRIVACY, ledger)
    with pytest.raises(DataError, match="can be read once"):
        dp.mean("y", reader, SCHEMA, n=N)
    assert not ledger.entries


def test_a_connection_is_free_between_readings() -> None:
    relation = Relation(pa.Table.from_pandas(frame()))
    model = ols(relation)
    assert not relation.running
    assert sums(frame()) == fitted(model, method="adassp") == fitted(model, method="adassp")
    assert not relation.running


def test_a_duckdb_relation_is_fitted_as_the_table_in_memory(
    folder: Path, kept: str, resident: list[float]
) -> None:
    """A query by name, of files, and one that filters."""
    duckdb = pytest.importorskip("duckdb")
    ordered = f"FROM '{folder}/*.parquet' ORDER BY filename, file_row_number"
    assert fitted(ols(duckdb.sql(f"SELECT x, g, y {ordered}"))) == resident
    some = duckdb.sql(f"SELECT * FROM (SELECT * {ordered}) WHERE z IS NOT NULL")
    df = frame()
    assert sums(some) == sums(df[df.z.notna()])


def test_a_query_that_fails_says_nothing_of_rows() -> None:
    numbers = pl.LazyFrame({"y": ["1", "SECRET"], "x": [1.0, 2.0], "g": ["a", "b"]})
    model = ols(numbers.filter(pl.col("y").cast(pl.Float64) > 0))
    with pytest.raises(DataError, match="could not be counted") as refused:
        model.plan(PRIVACY)
    assert "SECRET" not in str(refused.value)
    assert refused.value.__context__ is None


def test_a_file_of_another_length_than_n_is_refused(folder: Path) -> None:
    with pytest.raises(OptionError, match=r"n=10 and a table of 2,500 rows"):
        ols(folder, 10).plan(PRIVACY)


# -- bad input -------------------------------------------------------------------------------------


def files(folder: Path, **tables: dict[str, Any] | pd.DataFrame) -> Path:
    for name, columns in tables.items():
        pd.DataFrame(columns).to_parquet(folder / f"{name}.parquet")
    return folder


def twice(folder: Path) -> Path:
    """A file with two columns of one name."""
    columns = [pa.array(values) for values in (ROW["x"], *ROW.values())]
    pq.write_table(pa.Table.from_arrays(columns, ["x", *ROW]), folder / "a.parquet")
    return folder / "a.parquet"


def below(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


ROW = {"y": [1.0], "x": [1.0], "g": ["a"]}
WRONG: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no file": (lambda folder: folder / "none.parquet", r"none\.parquet: no such file"),
    "no files": (lambda folder: [], "empty list: no files to read"),
    "no match": (lambda folder: folder / "*.parquet", "no files match"),
    "empty folder": (lambda folder: folder, "no files in it end in"),
    "only folders": (
        lambda folder: files(below(folder, "g=a"), a=ROW).parent,
        r"no files in it end in .*\*\*.*partitioning=\"hive\"",
    ),
    "a URL": (lambda folder: "s3://survey/*.parquet", r"s3://survey/\*\.parquet: a URL is no path"),
    "other kind": (lambda folder: folder / "rows.xlsx", r"allowed are files ending in \.csv"),
    "no table": (lambda folder: 3, "int is no table"),
    "no rows": (lambda folder: files(folder, a=pd.DataFrame(ROW)[:0]), "no rows"),
    "column missing in one": (
        lambda folder: files(folder, a=ROW, b={"y": [1.0], "x": [1.0]}),
        r"b\.parquet has no column 'g', and a\.parquet has",
    ),
    "column missing in the first": (
        lambda folder: files(folder, a={"y": [1.0], "x": [1.0]}, b=ROW),
        r"a\.parquet has no column 'g', and b\.parquet has",
    ),
    "column missing in all": (
        lambda folder: files(folder, a={"y": [1.0], "x": [1.0]}),
        "The table has no column 'g'",
    ),
    "types differ": (
        lambda folder: files(folder, a=ROW, b=ROW | {"x": ["SECRET"]}),
        r"Column 'x' has type double in a\.parquet and (large_)?string in b\.parquet",
    ),
    "column twice": (twice, r"a\.parquet: column names appear twice: \['x'\]"),
    "column twice in a Dataset": (
        lambda folder: ds.dataset(pq.ParquetFile(twice(folder)).read()),
        "names appear twice",
    ),
    "column twice in a stream": (
        lambda folder: Relation(pq.ParquetFile(twice(folder)).read()),
        "names appear twice",
    ),
    "column twice in memory": (
        lambda folder: pq.ParquetFile(twice(folder)).read(),
        "names appear twice",
    ),
    "response of text": (lambda folder: files(folder, a=ROW | {"y": ["SECRET"]}), "'y' has type"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_cannot_be_read_is_refused_before_the_charge(wrong: str, tmp_path: Path) -> None:
    make, message = WRONG[wrong]
    ledger = dp.Ledger.memory(1.0, 1e-6)
    with pytest.raises(DPStatsError, match=message) as refused:
        ols(make(tmp_path)).fit(PRIVACY, ledger)
    assert "SECRET" not in str(refused.value)
    assert not ledger.entries


def test_a_file_that_is_no_parquet_and_a_folder_of_both_kinds_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").write_text("SECRET")
    with pytest.raises(DataError, match=r"rows\.parquet could not be read as Parquet"):
        ols(tmp_path)
    (tmp_path / "rows.csv").write_text("y,x,g\n1,1,a\n")
    with pytest.raises(DataError, match="some files are Parquet and some are CSV"):
        ols(tmp_path)


def pair(folder: Path, one: Any, other: Any) -> Path:
    """Two files whose column x has its own type in each."""
    for name, x in (("a", one), ("b", other)):
        rows = len(x)
        others = {"y": np.ones(rows), "g": ["a"] * rows, "free": pa.array([{"a": 1}] * rows)}
        pq.write_table(pa.table({"x": x, **others}), folder / f"{name}.parquet")
    return folder


CASTS: dict[str, tuple[Any, Any]] = {
    "a number too large": (pa.array([1.0]), pa.array([2**60 + 1])),
    "a fraction": (pa.array([1]), pa.array([2.5])),
    "too wide": (pa.array([1], pa.int8()), pa.array([300])),
    "not a number": (pa.array([1.0]), pa.array(["SECRET"])),
    "a number of no type": (pa.nulls(1), pa.array([1.0])),
}


@pytest.mark.parametrize("how", ["files", "filtered", "union"])
@pytest.mark.parametrize("cast", CASTS)
def test_a_dataset_whose_casts_might_fail_on_a_value_is_refused(
    cast: str, how: str, tmp_path: Path
) -> None:
    """Files of one kind of type are read one by one, as they are, whatever the values."""
    folder, ledger = pair(tmp_path, *CASTS[cast]), dp.Ledger.memory(1.0, 1e-6)
    data = ds.dataset(folder)
    with pytest.raises(pa.ArrowException):
        data.to_table()
    if how == "filtered":
        data = data.filter(ds.field("y") > 0)
    elif how == "union":
        data = ds.dataset([data, data])
    with pytest.raises(
        DataError, match=r"'x' has type \S+ in b\.parquet and \S+ in the Data"
    ) as no:
        ols(data).fit(PRIVACY, ledger)
    assert "SECRET" not in str(no.value)
    assert not ledger.entries


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array([1.0, 2.0]), pa.array([3.0], pa.float32())),
        (pa.array([1, 2]), pa.array([3], pa.uint8())),
        (pa.array([1.0, 2.0]), pa.nulls(1)),
    ],
    ids=["narrower", "unsigned", "all missing"],
)
def test_casts_of_a_dataset_that_cannot_fail_are_left_to_it(
    one: Any, other: Any, tmp_path: Path
) -> None:
    data = ds.dataset(pair(tmp_path, one, other))
    assert sums(data) == sums(data.to_table().drop_columns("free").to_pandas())


def test_a_column_of_lists_is_refused_where_covariates_are_public() -> None:
    lists = Producer(pa.table(ROW | {"x": [[1.0]]}))
    with pytest.raises(DPStatsError, match="'x' has type list"):
        ols(lists, 1).fit(dp.LabelOnly(1.0))


def test_too_many_responses_are_refused_before_the_charge(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labels, "MAX_ROWS", 2_000)
    monkeypatch.setattr(streams.Stream, "read", None)  # nor is a row read
    ledger = dp.Ledger.memory(1.0, 0.0)
    with pytest.raises(DataError, match=r"at most 2,000 rows, and the table has 2,500"):
        ols(folder).fit(dp.LabelOnly(1.0), ledger)
    assert not ledger.entries


def test_two_stars_are_any_number_of_folders(tmp_path: Path) -> None:
    files(tmp_path, a=ROW)
    lower = files(below(below(tmp_path, "q"), "r"), b=ROW)
    found = paths_of(tmp_path / "**" / "*.parquet")
    assert found == [tmp_path / "a.parquet", lower / "b.parquet"]


def test_hidden_files_of_a_folder_are_not_rows(tmp_path: Path) -> None:
    files(tmp_path, a=ROW)
    (tmp_path / "._a.parquet").write_text("left by another system")
    (tmp_path / "_rows.csv").write_text("left by another program")
    assert paths_of(tmp_path) == [tmp_path / "a.parquet"]


def test_a_disk_too_small_and_a_wrong_folder_are_refused_before_the_charge(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk(monkeypatch)
    ledger = dp.Ledger.memory(1.0, 1e-6)
    with pytest.raises(OptionError, match="no folder that can be written to"):
        ols(folder).fit(PRIVACY, ledger, scratch=tmp_path / "none")
    full = type("Usage", (), {"free": 10})
    monkeypatch.setattr("shutil.disk_usage", lambda _: full)
    with pytest.raises(DataError, match=r"need \S+ GiB there, and 9\.31e-09 GiB are free"):
        ols(folder).fit(PRIVACY, ledger, scratch=tmp_path)
    assert not ledger.entries


def test_room_is_made_sure_of_for_all_that_is_kept_of_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights and an offset among it; no scale is to be found, so that nothing is made twice."""
    on_disk(monkeypatch)
    seen: list[int] = []
    made: list[int] = []
    monkeypatch.setattr(streams, "check_space", lambda _, size: seen.append(size))
    for module in (streams, mapped_rows):
        plain = module.arrays
        monkeypatch.setattr(
            module,
            "arrays",
            lambda at, wanted, *rest, plain=plain: (
                made.append(streams.bytes_of(wanted)) or plain(at, wanted, *rest)
            ),
        )
    rows = pd.concat([frame()] * 16)
    rows.to_parquet(tmp_path / "rows.parquet")
    known = dict(family="poisson", weights="b", offset="z")
    dp.glm("k ~ x", tmp_path, SCHEMA, **known).fit(PRIVACY, scratch=tmp_path)
    assert len(seen) == 1
    assert len(made) == 3
    pages = 12 * 4096  # each array begins on one
    assert abs(seen[0] - sum(made)) <= pages < 4 * len(rows)


@pytest.mark.parametrize("privacy", [PRIVACY, dp.LabelOnly(1.0)], ids=lambda p: p.trust)
def test_a_source_that_fails_says_nothing_of_rows(privacy: Any) -> None:
    def broken() -> Any:
        yield pa.RecordBatch.from_pandas(frame()[:100])
        raise ValueError("SECRET")

    schema = pa.Schema.from_pandas(frame())
    model = ols(pa.RecordBatchReader.from_batches(schema, broken()), N)
    with pytest.raises(DataError, match="could not be read to the end") as refused:
        model.fit(privacy)
    assert ("a charge stands" in str(refused.value)) == (privacy is PRIVACY)
    assert "SECRET" not in "".join([str(refused.value), *getattr(refused.value, "__notes__", [])])
    assert refused.value.__context__ is None


# -- what is said ----------------------------------------------------------------------------------


def test_bars_show_rows_that_were_read_and_statistics_that_were_released(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_is_watched", lambda: True)
    sums(folder, progress=True)
    said = capsys.readouterr().err
    assert "read: 100%" in said
    assert "released: 100%" in said
    sums(folder)  # of less than two seconds
    monkeypatch.setattr(progress, "_DELAY", 0.0)
    sums(folder, progress=False)
    assert capsys.readouterr().err == ""
    sums(folder)
    assert "released: 100%" in capsys.readouterr().err


def test_a_bar_comes_once_a_fit_has_taken_its_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_is_watched", lambda: True)
    report = progress.Progress(3, delay=0.2)
    report("one")
    assert capsys.readouterr().err == ""
    time.sleep(0.3)
    report("two")
    assert "two" in capsys.readouterr().err


def test_a_bar_stays_while_released_numbers_are_fitted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the last statistic was released before a bar was due."""
    monkeypatch.setattr(progress, "_is_watched", lambda: True)
    report = progress.Progress(1, delay=0.2)
    progress.computed()  # nothing runs
    with progress.watched(report):
        report("one")
        progress.computed()
        assert capsys.readouterr().err == ""
        time.sleep(0.3)
        progress.computed()
        assert "fitting what was released" in capsys.readouterr().err
    capsys.readouterr()
    progress.computed()
    assert capsys.readouterr().err == ""


def test_a_mixture_shows_that_its_released_numbers_are_fitted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_is_watched", lambda: True)
    rows = np.random.default_rng(1).normal(size=(3_000, 2))
    table, declared = (
        pd.DataFrame(rows, columns=["a", "b"]),
        dp.Schema(a=dp.Numeric(-5, 5), b=dp.Numeric(-5, 5)),
    )
    dp.gaussian_mixture("~ a + b", table, declared, components=1).fit(PRIVACY, progress=True)
    assert "fitting what was released" in capsys.readouterr().err


def test_without_a_terminal_progress_is_a_line_a_statistic(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sums(folder, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"[1/{len(lines)}] released ")


def test_the_command_line_fits_several_files(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    SCHEMA.save(tmp_path / "schema.json")
    rest = ["--schema", str(tmp_path / "schema.json"), "--epsilon", "1", "--delta", "1e-6"]
    paths = [str(path) for path in sorted(folder.iterdir())]
    assert main(["fit", FORMULA, *paths, *rest, "--scratch", str(tmp_path)]) == 0
    assert "2,500" in capsys.readouterr().out
    assert main(["fit", FORMULA, str(folder / "none*.parquet"), *rest]) == 2
    assert "no files match" in capsys.readouterr().err


READ: dict[str, tuple[str, list[str]]] = {
    "named": ("y ~ x + C(g)", ["g", "y", "x"]),
    "transformed": ("y ~ np.log(x + 10):b", ["g", "y", "x", "b"]),
    "all": ("y ~ .", ["g", "z", "y", "x", "k", "b"]),
}


@pytest.mark.parametrize("written", READ)
def test_public_covariates_are_read_where_the_formula_may_read_them(
    written: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name inside another word is read in vain, and none that is needed is left out."""
    formula, names = READ[written]
    seen: list[list[str]] = []
    read = streams.Stream.read

    def reading(self: Any, names: Any, *failing: str) -> Any:
        seen.append(list(names))
        return read(self, names, *failing)

    monkeypatch.setattr(streams.Stream, "read", reading)
    privacy = dp.LabelOnly(2.0)
    one, other = (dp.ols(formula, data, SCHEMA) for data in (folder, frame()))
    assert fitted(one, privacy) == fitted(other, privacy)
    assert [set(columns) for columns in seen] == [set(names)]
