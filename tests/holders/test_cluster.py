"""Rows on a cluster: the same bits as in memory, whichever worker is lost; errors without rows."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from threadpoolctl import threadpool_limits

import dpstats as dp
from dpstats.errors import DataError, DPStatsError, OptionError
from dpstats.holders import cluster as module
from dpstats.holders import workers
from dpstats.mechanisms.noise import SeededNoise
from dpstats.tables import partitions
from dpstats.tables.partitions import FilePartitions


class Lazy:
    """A package that takes seconds to import: only where a test needs it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, what: str) -> Any:
        return getattr(pytest.importorskip(self._name), what)


dd, distributed = Lazy("dask.dataframe"), Lazy("distributed")

N = 3_000
CANARY = 77123.25
SCHEMA = dp.Schema(
    x=dp.Numeric(-500, 500),
    z=dp.Numeric(0, 9, center=4, scale=2),
    g=dp.Categorical(["a", "b"]),
    b=dp.Boolean(),
    y=dp.Numeric(-90, 90),
)
CENTRAL = dp.Central(2.0, 1e-6)


def table(n: int = N) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    made = pd.DataFrame(
        {
            "x": rng.normal(0, 2, n),
            "z": rng.normal(4, 2, n),
            "g": rng.choice(["a", "b", "c"], n),
            "b": rng.random(n) < 0.4,
        }
    )
    made["y"] = 1 + made.x - made.z + 3 * made.b + rng.normal(0, 1, n)
    made.loc[::11, "z"] = np.nan
    made.loc[3, "x"] = CANARY
    return made


def spread(data: pd.DataFrame) -> Any:
    """Partitions of other lengths, one of them without rows."""
    cuts = [0, 10, 10, 1200, 1201, len(data)]
    parts = [data.iloc[a:b] for a, b in itertools.pairwise(cuts)]
    return dd.from_map(lambda k: parts[k], range(len(parts)), meta=data.iloc[:0])


MODELS: dict[str, Any] = {
    "scales are found": (lambda d: dp.ols("y ~ x + z + C(g)", d, SCHEMA), {}),
    "parts of the rows": (
        lambda d: dp.ols("y ~ x + z + b", d, SCHEMA),
        {"method": "dp-iht", "sparsity": 1},
    ),
    "halves, columns": (
        lambda d: dp.ols("y ~ x + z + b + C(g)", d, SCHEMA),
        {"sparsity": 2, "inference": "split"},
    ),
    "incomplete rows": (lambda d: dp.ols("y ~ x + z", d, SCHEMA, missing="em"), {}),
    "weights": (lambda d: dp.ols("y ~ x", d, SCHEMA, weights="z"), {}),
    "logit": (lambda d: dp.logit("b ~ x + z", d, SCHEMA), {}),
    "describe": (lambda d: dp.histogram("x", d, SCHEMA), {}),
    "mixture": (lambda d: dp.gaussian_mixture("~ x + z", d, SCHEMA, components=2), {}),
}


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with (
        threadpool_limits(1),  # workers in this process: estimators round alike beside them
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as made,
        distributed.Client(made) as client,
    ):
        yield client


def released(fit: Any) -> Any:
    return fit.privacy.to_dict(), fit.to_dict()["estimate"]


@pytest.mark.full
@pytest.mark.parametrize("name", MODELS)
def test_bits_are_those_of_the_rows_in_memory(client: Any, name: str) -> None:
    model, options = MODELS[name]
    data, noise = table(), SeededNoise(5)
    here = model(data).fit(CENTRAL, noise=noise, **options)
    there = model(spread(data)).fit(CENTRAL, noise=noise, **options)
    assert repr(here.to_dict()) == repr(there.to_dict())


@pytest.mark.full
def test_without_a_cluster_partitions_are_read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "connected", lambda: None)
    model, _ = MODELS["logit"]
    data, noise = table(400), SeededNoise(5)
    frame = dd.from_pandas(data, npartitions=3)
    here, there = (model(d).fit(CENTRAL, noise=noise) for d in (data, frame))
    assert repr(here.to_dict()) == repr(there.to_dict())


def written(folder: Path, data: pd.DataFrame) -> Path:
    """Three files, of several groups of rows each."""
    pytest.importorskip("pyarrow")
    for k, part in enumerate(np.array_split(np.arange(len(data)), 3)):
        data.iloc[part].to_parquet(folder / f"{k}.parquet", row_group_size=300)
    return folder


@pytest.mark.full
def test_workers_read_the_files_themselves(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "_PIECE", 650)
    monkeypatch.setattr(FilePartitions, "read", lambda *_: 1 / 0)  # as the client would
    data, noise = table(), SeededNoise(5)
    folder = written(tmp_path, data)
    here = dp.ols("y ~ x + z + C(g)", data, SCHEMA).fit(CENTRAL, noise=noise)
    for engine in (dp.Dask(client), dp.Dask(client.cluster), dp.Dask(client.scheduler.address)):
        model = dp.ols("y ~ x + z + C(g)", f"{folder}/*.parquet", SCHEMA, engine=engine)
        assert model._data.batches.parts(["x"])[1] == [600, 400] * 3
        there = model.fit(CENTRAL, noise=noise)
        assert repr(here.to_dict()) == repr(there.to_dict())
        if engine.client is not client:
            engine.client.close()
            with pytest.raises(DataError, match="not reached any longer"):
                dp.mean("y", folder, SCHEMA, engine=engine)
    described = dp.describe(dp.Dask(client).read(folder), SCHEMA, CENTRAL, noise=noise)
    assert repr(described.to_dict()) == repr(
        dp.describe(data, SCHEMA, CENTRAL, noise=noise).to_dict()
    )


@pytest.mark.full
def test_urls_are_read_by_dask(client: Any, tmp_path: Path) -> None:
    data, engine = table(), dp.Dask(client)
    names = sorted(written(tmp_path, data).iterdir())
    here = dp.mean("y", data, SCHEMA).fit(CENTRAL, noise=SeededNoise(5))
    for urls in (f"file://{tmp_path}/*.parquet", [f"file://{name}" for name in names]):
        there = dp.mean("y", urls, SCHEMA, engine=engine).fit(CENTRAL, noise=SeededNoise(5))
        assert repr(here.to_dict()) == repr(there.to_dict())
    with pytest.raises(DataError, match=r"file://.*/none/\*\.parquet: no files match"):
        dp.mean("y", f"file://{tmp_path}/none/*.parquet", SCHEMA, engine=engine)


@pytest.mark.full
@pytest.mark.parametrize("where", ["cluster", "here"])
@pytest.mark.parametrize("columns", ["x", "x + z + b"])
def test_dask_may_read_several_files_as_one_partition(
    where: str, columns: str, client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does where few columns are asked for, and not where all are, as when rows are counted."""
    data, noise = table().assign(note="nobody asks for this column"), SeededNoise(5)
    for k, part in enumerate(np.array_split(np.arange(N), [1_000, 1_001, 2_000])):
        data.iloc[part].to_parquet(tmp_path / f"{k}.parquet")
    frame = dd.read_parquet(str(tmp_path))
    assert len(frame[["y", "x", "z", "b"]].to_delayed()) < frame.npartitions == 4
    if where == "here":
        monkeypatch.setattr(partitions, "connected", lambda: None)
    here, there = (
        dp.ols(f"y ~ {columns}", d, SCHEMA).fit(CENTRAL, method="adassp", noise=noise)
        for d in (data, frame)
    )
    assert repr(here.to_dict()) == repr(there.to_dict())


class Lost:
    """A client whose scheduler was killed: it does not know what it knew."""

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        raise KeyError("workers")


def test_a_lost_scheduler_is_waited_for_and_told_with_the_charge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    monkeypatch.setattr(module, "PAUSE", 0.001)
    spread = module.Spread.__new__(module.Spread)
    spread._client, spread._homes = Lost(), []
    with pytest.raises(DataError, match=r"the scheduler is gone\..*charge stands"):
        spread._elsewhere([module._WorkerActor("a", None, [0])])


@pytest.mark.full
def test_files_that_workers_do_not_find_are_refused_before_the_charge(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, engine = written(tmp_path, table()), dp.Dask(client)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(partitions, "_first_lacking", lambda paths: paths[1])
        with pytest.raises(DataError, match=r"1\.parquet: the file is here, and a worker"):
            asked(engine.read(folder))
    placed = engine.read(folder)
    model = dp.ols("y ~ x + z", placed, SCHEMA)
    (folder / "2.parquet").unlink()
    ledger = dp.Ledger.memory(100.0, 1e-3)
    with pytest.raises(DataError, match="no longer there"):
        model.fit(CENTRAL, ledger)
    assert not ledger.entries


@pytest.mark.full
def test_a_file_that_changes_meanwhile_is_told_by_the_name_of_the_error(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, ledger = written(tmp_path, table()), dp.Ledger.memory(100.0, 1e-3)
    model = dp.ols("y ~ x + z", folder, SCHEMA, engine=dp.Dask(client))
    (folder / "2.parquet").write_text(str(CANARY))
    with pytest.raises(DataError, match=r"\((ArrowInvalid|DataError)\).*charge stands"):
        model.fit(CENTRAL, ledger)
    assert len(ledger.entries) == 1
    assert str(CANARY) not in str(client.get_worker_logs())


def test_what_is_no_cluster_is_refused(tmp_path: Path) -> None:
    data = table(9)
    with pytest.raises(OptionError, match=r"Dask\(int\): the address of a scheduler"):
        dp.Dask(8786)
    with pytest.raises(OptionError, match=r"engine is a str; give a cluster"):
        dp.logit("b ~ x", data, SCHEMA, engine="scheduler:8786")  # type: ignore[arg-type]
    engine = dp.Dask("scheduler:8786")
    assert "77123" not in repr(engine.read(data))
    with pytest.raises(OptionError, match="sites= and engine="):
        dp.ols("y ~ x", "rows.parquet", SCHEMA, sites="g", engine=engine)
    with pytest.raises(DataError, match="a DataFrame is in this process"):
        dp.ols("y ~ x", data, SCHEMA, engine=engine)
    (tmp_path / "rows.csv").write_text("x,y\n1,2\n")
    with pytest.raises(DataError, match=r"rows\.csv is no Parquet file"):
        dp.mixture_ols("y ~ x", tmp_path, SCHEMA, engine=engine)
    with pytest.raises(DataError, match="a dict is in this process"):
        dp.mnlogit("g ~ x", {"x": [1.0], "g": ["a"]}, SCHEMA, engine=engine)
    with pytest.raises(DataError, match="no such file"):
        dp.mean("y", tmp_path / "rows.parquet", SCHEMA, engine=engine)


# -- before the charge -------------------------------------------------------------------------


def asked(data: Any, schema: dp.Schema = SCHEMA, **how: Any) -> None:
    privacy = how.pop("privacy", CENTRAL)
    ledger = dp.Ledger.memory(100.0, 1e-3)
    try:
        dp.ols("y ~ x + z", data, schema).fit(privacy, ledger, **how)
    finally:
        assert not ledger.entries


@pytest.mark.full
def test_what_a_cluster_cannot_hold_is_refused_before_the_charge(client: Any) -> None:
    frame = spread(table(2_000))
    units = dp.Schema(dict(SCHEMA), unit="person", max_rows=2)
    with pytest.raises(DataError, match="each row is a unit of its own"):
        asked(frame.assign(person=1), units, privacy=dp.Central(1.0, 1e-6, rows=2_000))
    with pytest.raises(DataError, match="their number is public"):
        asked(frame, privacy=dp.Central(1.0, 1e-6, neighbors="add-remove", rows=2_000))
    with pytest.raises(OptionError, match="compares pairs of rows"):
        asked(frame, method="adaptive-clipping-gd")


@pytest.mark.full
def test_workers_without_this_version_are_refused_before_the_charge(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = spread(table(2_000))
    monkeypatch.setattr(workers, "_version", lambda: "0.0.1")
    with pytest.raises(DataError, match=r"\(version 0\.0\.1\): install dpstats"):
        asked(frame)
    monkeypatch.setattr(workers, "_version", lambda: 1 / 0)
    with pytest.raises(DataError, match=r"\(ZeroDivisionError\): install dpstats"):
        asked(frame)
    monkeypatch.setattr(workers, "workers_of", lambda client: [])
    with pytest.raises(DataError, match="has no workers"):
        asked(frame)


# -- after it ----------------------------------------------------------------------------------


def failing(frame: pd.DataFrame, partition_info: Any = None) -> pd.DataFrame:
    """A step of the user's own graph that fails on rows, and says so with their values."""
    if getattr(module, "failing_now", False) and partition_info is not None and len(frame) > 1_500:
        raise ValueError(f"no place for {frame.x.max()}")
    return frame


@pytest.mark.full
def test_a_partition_that_fails_is_named_and_the_charge_stands(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = spread(table()).map_partitions(failing, meta=table().iloc[:0])
    ledger, opened = dp.Ledger.memory(100.0, 1e-3), module.Spread.open

    def later(self: Any, design: Any) -> None:
        monkeypatch.setattr(module, "failing_now", True, raising=False)
        opened(self, design)

    monkeypatch.setattr(module.Spread, "open", later)
    with pytest.raises(DataError, match=r"\(ValueError\).*charge stands") as error:
        dp.ols("y ~ x + z", frame, SCHEMA).fit(CENTRAL, ledger)
    assert len(ledger.entries) == 1
    assert str(CANARY) not in repr(error.getrepr(chain=True, showlocals=True))


@pytest.mark.full
def test_what_fails_on_a_worker_says_its_name_alone(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Any, query: Any, cut: Any) -> Any:
        raise RuntimeError(f"rows such as {self._source.block(0, 9).x}, {CANARY}")

    monkeypatch.setattr(module.ResidentRows, "total", broken)
    with pytest.raises(DataError, match=r"could not do its part \(RuntimeError\)") as error:
        dp.ols("y ~ x + z", spread(table()), SCHEMA).fit(CENTRAL)
    assert str(CANARY) not in repr(error.getrepr(chain=True, showlocals=True))
    assert str(CANARY) not in str(client.get_worker_logs())


@pytest.mark.full
def test_a_partition_that_finds_no_actor_is_not_logged(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.Actor, "add", lambda self, *rows: [][0])
    with pytest.raises(DataError, match=r"could not be read \(IndexError\)"):
        dp.ols("y ~ x + z", spread(table()), SCHEMA).fit(CENTRAL)
    assert str(CANARY) not in str(client.get_worker_logs())


@pytest.mark.full
def test_a_source_that_delivers_other_rows_than_it_announced_is_cut_or_filled(client: Any) -> None:
    data, noise = table(2_000), SeededNoise(2)
    data["x"] = np.where(data.x == CANARY, 0.0, data.x)
    model = MODELS["logit"][0]
    frame = dd.from_pandas(data, npartitions=2)
    gone = data.astype({"g": object, "b": object})
    gone.iloc[1_990:] = None
    announced = partitions.Partitions(frame.partitions[:])
    announced.count()  # before rows come and go
    announced._data = dd.concat([frame.partitions[0], frame.partitions[1].loc[:1_989]])
    from dpstats.tables.streams import Stream

    cut = model(Stream(announced, SCHEMA, None)).fit(CENTRAL, noise=noise)
    whole = model(gone).fit(CENTRAL, noise=noise)
    assert repr(cut.to_dict()) == repr(whole.to_dict())
    announced._data = dd.concat([frame, frame.partitions[1]])  # rows beyond are not read
    assert repr(model(Stream(announced, SCHEMA, None)).fit(CENTRAL, noise=noise).to_dict()) == repr(
        model(data).fit(CENTRAL, noise=noise).to_dict()
    )


# -- with real processes -----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("question", [1, 9])
def test_a_worker_killed_in_a_fit_changes_no_bit_and_costs_nothing(
    question: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data, noise, ledger = table(), SeededNoise(5), dp.Ledger.memory(100.0, 1e-3)
    moved, elsewhere = [], module.Spread._elsewhere
    monkeypatch.setattr(
        module.Spread, "_elsewhere", lambda self, lost: moved.append(lost) or elsewhere(self, lost)
    )
    # What was handed over is let go at some time, later where a machine is busy: here, never.
    fed, feeding = [], module.Spread._feeding
    monkeypatch.setattr(module.Spread, "_feeding", lambda *a: fed.append(feeding(*a)) or fed[-1])
    here = dp.ols("y ~ x + z", data, SCHEMA).fit(CENTRAL, noise=noise)
    answered, totals = [0], module.Spread.totals
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as made,
        distributed.Client(made) as client,
    ):

        def killing(self: Any, *query: Any) -> Any:
            answered[0] += 1
            if answered[0] == question:
                pids = client.run(os.getpid)
                os.kill(pids[self._homes[0].worker], signal.SIGKILL)
            return totals(self, *query)

        monkeypatch.setattr(module.Spread, "totals", killing)
        engine = dp.Dask(made.scheduler_address) if question > 1 else None
        rows = spread(data) if engine is None else written(tmp_path, data)
        model = dp.ols("y ~ x + z", rows, SCHEMA, engine=engine)
        there = model.fit(CENTRAL, ledger, noise=noise)
        logs = str(client.get_worker_logs()) + str(client.get_scheduler_logs())
    assert answered[0] > question
    assert len(moved) == 1
    assert len(ledger.entries) == 1
    np.testing.assert_array_equal(here.params, there.params)
    np.testing.assert_array_equal(here.cov_params(), there.cov_params())
    assert str(CANARY) not in logs


@pytest.mark.slow
def test_without_a_worker_left_the_fit_ends_and_the_charge_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 2.0)
    ledger, totals = dp.Ledger.memory(100.0, 1e-3), module.Spread.totals
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as made,
        distributed.Client(made),
    ):

        def gone(self: Any, *query: Any) -> Any:
            made.scale(0)
            return totals(self, *query)

        monkeypatch.setattr(module.Spread, "totals", gone)
        with pytest.raises(DPStatsError, match=r"No worker came back.*charge stands"):
            dp.ols("y ~ x + z", spread(table()), SCHEMA).fit(CENTRAL, ledger)
    assert len(ledger.entries) == 1


@pytest.mark.slow
def test_workers_with_little_memory_are_not_restarted(tmp_path: Path) -> None:
    """A partition of 600,000 rows takes 100 MB; read as a whole it took workers beyond 700 MB."""
    privacy = dp.Central(2.0, 1e-8)
    names, n, rng = [f"x{j}" for j in range(20)], 600_000, np.random.default_rng(0)
    for k in range(2):
        x = pa.table({name: rng.normal(size=n) for name in [*names, "y"]})
        pa.parquet.write_table(x, tmp_path / f"{k}.parquet", row_group_size=n)
    schema = dp.Schema({name: dp.Numeric(-6, 6, center=0, scale=1) for name in [*names, "y"]})
    few = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(memory_limit="500MB", **few) as made,
        distributed.Client(made) as client,
    ):
        before = client.run(os.getpid)
        model = dp.ols(
            "y ~ " + " + ".join(names), f"{tmp_path}/*.parquet", schema, engine=dp.Dask(client)
        )
        there = model.fit(privacy, noise=SeededNoise(5))
        assert client.run(os.getpid) == before
    here = dp.ols("y ~ " + " + ".join(names), f"{tmp_path}/*.parquet", schema)
    np.testing.assert_array_equal(here.fit(privacy, noise=SeededNoise(5)).params, there.params)


def test_a_file_is_read_in_batches_and_pages_are_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n, path = 12 << 16, str(tmp_path / "x.parquet")
    rows = pa.table({"x": np.arange(n * 1.0), "z": np.ones(n)})
    pa.parquet.write_table(rows, path, row_group_size=1 << 17)
    del rows
    let_go, held = partitions.let_go, []
    monkeypatch.setattr(partitions, "let_go", lambda: held.append(let_go()))
    before = pa.total_allocated_bytes()
    piece = partitions.FilePiece(path, range(6), ["x"])
    assert list(piece.columns) == ["x"]
    read = piece.read(["x"])
    first = next(read)["x"]
    assert len(first) == 1 << 16
    assert pa.total_allocated_bytes() - before < 8 * n
    np.testing.assert_array_equal([*first, *(v for b in read for v in b["x"])], np.arange(n))
    assert len(held) == 12


def test_a_partition_is_in_memory_until_it_was_read() -> None:
    before = pa.total_allocated_bytes()
    frame = pa.table({"x": pa.nulls(1 << 20, pa.float64())})
    once = partitions.FramePiece(frame)
    del frame
    assert sum(len(each["x"]) for each in once.read(["x"])) == 1 << 20
    assert pa.total_allocated_bytes() - before < 1 << 20
    kept = table()
    assert partitions._types(kept).dtypes.equals(kept.dtypes)
