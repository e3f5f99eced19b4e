"""Public covariates that are read in batches: the fit of the table in memory, bit for bit."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dpstats as dp
from dpstats import tall
from dpstats.design import public_values
from dpstats.errors import DataError, FormulaError, OptionError
from dpstats.holders import Labels
from dpstats.protocol import progress
from dpstats.tables import streams
from tests.api.test_streams import Producer, Relation, mapped
from tests.contracts.reach import in_frames
from tests.grids import grid

N = 2_600
SCHEMA = dp.Schema(
    y=dp.Numeric(-9, 9, center=0, scale=2), b=dp.Categorical([0, 1]), c=dp.Numeric(0, 12)
)
ALONE, CURATOR = dp.LabelOnly(2.0), dp.LabelOnly(2.0, 1e-6, curator=True)
WIDE = "x + np.log(k) + C(g) + x:z + w + C(k)"  # w is a combination of others
PLAIN = "x + z + C(g)"


def frame() -> pd.DataFrame:
    """Numbers, levels that the first rows lack, values that are missing or infinite."""
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=N), rng.uniform(-1, 1, N)
    g = np.where(np.arange(N) < 900, "a", rng.choice(list("abc"), N)).astype(object)
    k = rng.integers(1, 4, N)
    eta = 0.4 * x - 0.3 * z + 0.5 * (g == "b")
    y, b = eta + rng.normal(size=N), (rng.uniform(size=N) < 0.5 + 0.1 * eta).astype(float)
    c = rng.poisson(np.exp(eta)).astype(float)
    g[::70], y[::90] = None, np.nan
    df = pd.DataFrame({"x": x, "z": z, "g": g, "k": k, "y": y, "b": b, "c": c})
    df["w"] = 2 * df["x"] - df["z"]
    df.loc[::50, "x"], df.loc[7, "z"] = np.nan, np.inf
    return df


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made, df = tmp_path_factory.mktemp("rows"), frame()
    for i, part in enumerate((df[:900], df[900:910], df[910:])):
        part.to_parquet(made / f"{i}.parquet", index=False, row_group_size=400)
    return made


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Tables are larger than memory, and than a block; which were read in batches."""
    monkeypatch.setattr(streams, "RESIDENT_VALUES", 10)
    monkeypatch.setattr(tall, "ROWS", 300)
    seen: list[str] = []
    evaluate = public_values._by_blocks

    def counted(texts: Any, *rest: Any) -> Any:
        made = evaluate(texts, *rest)
        seen.append(texts["formula"])
        return made

    monkeypatch.setattr(public_values, "_by_blocks", counted)
    return seen


def fitted(model: Any, privacy: Any, **options: Any) -> list[bytes]:
    fit = model.fit(privacy, noise=dp.SeededNoise(3), **options)
    estimate = fit.estimate
    noise = np.array([m.scale for m in fit.privacy.mechanisms])
    return [np.asarray(v).tobytes() for v in (estimate.params, estimate.cov, noise)]


def ols(data: Any, formula: str = PLAIN, n: int | None = None) -> Any:
    return dp.ols(f"y ~ {formula}", data, SCHEMA, n=n)


def poisson(data: Any, formula: str, **known: Any) -> Any:
    return dp.glm(f"c ~ {formula}", data, SCHEMA, family="poisson", **known)


FITS: dict[str, tuple[Callable[[Any], Any], Any, dict[str, Any]]] = {
    "ols": (lambda data: ols(data, WIDE), ALONE, {}),
    "curator": (lambda data: ols(data, WIDE), CURATOR, {}),
    "pure curator": (lambda data: ols(data), dp.LabelOnly(2.0, curator=True), {}),
    "logit": (lambda data: dp.logit(f"b ~ {WIDE}", data, SCHEMA), ALONE, {}),
    "logit, curator": (lambda data: dp.logit(f"b ~ {PLAIN}", data, SCHEMA), CURATOR, {}),
    "poisson": (lambda data: poisson(data, WIDE, offset="z"), ALONE, {}),
    "poisson, curator": (lambda data: poisson(data, PLAIN, exposure="k"), CURATOR, {}),
    "lasso": (lambda data: ols(data, WIDE), ALONE, {"sparsity": 3}),
    "lasso, split": (lambda data: ols(data, WIDE), ALONE, {"sparsity": 3, "inference": "split"}),
    "thresholds": (
        lambda data: ols(data, WIDE),
        ALONE,
        {"sparsity": 3, "method": "thresholded-ols"},
    ),
    "iht": (
        lambda data: ols(data, WIDE),
        dp.LabelOnly(2.0, 1e-6),
        {"sparsity": 3, "method": "label-ldp-iht"},
    ),
    "pursuit": (lambda data: ols(data, WIDE), CURATOR, {"sparsity": 3}),
    "pursuit, split": (
        lambda data: ols(data, WIDE),
        CURATOR,
        {"sparsity": 3, "inference": "split"},
    ),
}
FEW = ("ols", "curator", "logit", "poisson, curator", "lasso, split", "pursuit, split")


@pytest.mark.parametrize("name", grid(FITS, lambda name: name in FEW))
def test_every_method_has_the_bits_of_the_table_in_memory(
    name: str, folder: Path, small: list[str]
) -> None:
    make, privacy, options = FITS[name]
    assert fitted(make(folder), privacy, **options) == fitted(make(frame()), privacy, **options)
    assert len(small) == (name != "mean")  # which has one column: of the level


SOURCES: dict[str, Callable[[Path], Any]] = {
    "pattern": lambda folder: str(folder / "*.parquet"),
    "lazy frame": lambda folder: pl.LazyFrame(pl.from_pandas(frame())),
    "relation": lambda folder: Relation(pa.Table.from_pandas(frame())),
}


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_that_can_be_read_again_streams(
    source: str, folder: Path, small: list[str]
) -> None:
    assert fitted(ols(SOURCES[source](folder)), CURATOR) == fitted(ols(frame()), CURATOR)
    assert small == [PLAIN]


def test_results_predict_as_those_of_the_table_in_memory(folder: Path) -> None:
    one, other = (
        ols(data, WIDE).fit(CURATOR, noise=dp.SeededNoise(1)) for data in (folder, frame())
    )
    assert one.design.to_dict() == other.design.to_dict()
    new = frame()[:50].dropna()
    np.testing.assert_array_equal(one.predict(new), other.predict(new))


def test_a_plan_for_other_rows_is_that_of_the_table_in_memory(folder: Path) -> None:
    for privacy in (ALONE, CURATOR):
        one, other = (ols(data).expecting(7_001).plan(privacy) for data in (folder, frame()))
        np.testing.assert_allclose(one.predicted_se, other.predicted_se, rtol=1e-12)


# -- formulas that see all rows ------------------------------------------------------------------


@pytest.mark.parametrize(
    "formula", ["x + poly(k, 2)", "center(x)", "I(k - k.mean())", "twice(k)", "bs(k, df=4)"]
)
def test_a_term_that_learns_from_all_rows_is_evaluated_in_memory(
    formula: str, folder: Path, small: list[str]
) -> None:
    def twice(values: Any) -> Any:
        return 2 * values

    one = dp.ols(f"y ~ {formula}", folder, SCHEMA)
    other = dp.ols(f"y ~ {formula}", frame(), SCHEMA)
    assert fitted(one, CURATOR) == fitted(other, CURATOR)
    assert not small
    assert twice(1) == 2


def test_and_refused_beyond_what_is_read_into_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(public_values, "AT_ONCE", 2_000)
    ledger = dp.Ledger.memory(2.0, 1e-6)
    with pytest.raises(DataError, match=r"2,600 rows .* 'poly\(k, 2\)' learns from all .*2,000"):
        ols(folder, "x + poly(k, 2)").fit(CURATOR, ledger)
    assert not ledger.entries
    ols(folder).fit(CURATOR, ledger)


def test_a_column_of_several_kinds_is_read_as_in_memory(tmp_path: Path, small: list[str]) -> None:
    """Whole numbers in one file and others in the next are numbers; texts are none."""
    df = frame().drop(columns="g")
    parts = [df[:1000], df[1000:].astype({"k": float})]
    for i, part in enumerate(parts):
        part.to_parquet(tmp_path / f"{i}.parquet")
    assert fitted(ols(tmp_path, "x + C(k)"), CURATOR) == fitted(
        ols(pd.concat(parts), "x + C(k)"), CURATOR
    )
    assert small == ["x + C(k)"]
    parts[1] = parts[1].assign(k=[f"n{int(k)}" for k in parts[1].k])
    parts[1].to_parquet(tmp_path / "1.parquet")
    ols(tmp_path, "x + C(k)").plan(CURATOR)
    assert small == ["x + C(k)"]  # read into memory


# -- rows ----------------------------------------------------------------------------------------


class Announcing(Producer):
    """A table that says another number of rows than it has."""

    def __init__(self, table: Any, rows: int) -> None:
        super().__init__(table)
        self.rows = rows

    def __len__(self) -> int:
        return self.rows


@pytest.mark.parametrize("rows", [N - 700, N + 300])
def test_a_source_that_delivers_other_rows_than_announced_is_cut_or_filled(
    rows: int, small: list[str]
) -> None:
    told = Announcing(pa.Table.from_pandas(frame()), rows)
    assert fitted(ols(told), CURATOR) == fitted(ols(frame().reindex(range(rows))), CURATOR)
    assert small == [PLAIN]


class Shuffled(Producer):
    """A query whose rows come in another order each time, as of a GROUP BY."""

    times = 0

    def __len__(self) -> int:
        return len(self.table)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        Shuffled.times += 1
        order = np.random.default_rng(Shuffled.times).permutation(len(self.table))
        return self.table.take(order).__arrow_c_stream__(requested_schema)


def test_a_response_stays_with_its_covariates_whatever_the_order_of_a_query(
    small: list[str],
) -> None:
    data = Shuffled(pa.Table.from_pandas(frame()))
    one, other = (
        ols(each).fit(CURATOR, noise=dp.SeededNoise(3)).params for each in (data, frame())
    )
    np.testing.assert_allclose(one, other, rtol=1e-6)
    assert small == [PLAIN]


def test_rows_and_responses_are_in_a_file_without_a_name_until_the_fit_ends(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[list[str], bool]] = []
    ask = Labels.ask

    def looking(self: Any, *args: Any) -> Any:
        found.append((os.listdir(tmp_path), mapped(tmp_path)))
        files = [a for a in (self._labels, self._marks) if a.base is not None]
        assert len(files) == 2
        return ask(self, *args)

    monkeypatch.setattr(Labels, "ask", looking)
    model = ols(folder)
    for privacy in (ALONE, CURATOR):
        model.fit(privacy, scratch=tmp_path)
        assert not mapped(tmp_path)
    assert found == [([], True)] * len(found) != []


def test_the_file_is_closed_when_a_fit_fails(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def failing(self: Any, *_: Any) -> Any:
        seen.append(mapped(tmp_path))
        raise RuntimeError("no")

    monkeypatch.setattr(Labels, "ask", failing)
    with pytest.raises(RuntimeError):
        ols(folder).fit(CURATOR, scratch=tmp_path)
    assert seen == [True]
    assert not mapped(tmp_path)


def test_a_design_shows_no_response(folder: Path) -> None:
    canary = frame().assign(y=8.123456789)
    reader = pa.Table.from_pandas(canary).to_reader()
    model = ols(reader, n=N)
    model.plan(CURATOR)
    assert "8.12345" not in repr(model._public_side.design())


# -- bad input -----------------------------------------------------------------------------------


def test_what_can_be_known_is_refused_before_the_charge(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = dp.Ledger.memory(2.0, 1e-6)
    with pytest.raises(OptionError, match="no folder that can be written to"):
        ols(folder).fit(CURATOR, ledger, scratch=tmp_path / "none")
    with pytest.raises(FormulaError, match="cannot be evaluated"):
        ols(folder, "x + np.log(g)").fit(CURATOR, ledger)
    with pytest.raises(DataError, match="no column 'nobody'"):
        dp.ols("nobody ~ x", folder, dp.Schema(nobody=dp.Numeric(0, 1))).fit(CURATOR, ledger)
    full = type("Usage", (), {"free": 10})
    monkeypatch.setattr("shutil.disk_usage", lambda _: full)
    with pytest.raises(DataError, match=r"need \S+ GiB there.*Nothing was charged"):
        ols(folder).fit(CURATOR, ledger, scratch=tmp_path)
    assert not ledger.entries


def test_a_source_that_fails_in_the_middle_says_nothing_of_rows() -> None:
    class Failing(Producer):
        def __len__(self) -> int:
            return N

        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            def batches() -> Any:
                yield from self.table[:100].to_batches()
                raise ValueError("SECRET")

            made = pa.RecordBatchReader.from_batches(self.table.schema, batches())
            return made.__arrow_c_stream__(requested_schema)

    ledger = dp.Ledger.memory(2.0, 1e-6)
    with pytest.raises(DataError, match="could not be read to the end") as refused:
        ols(Failing(pa.Table.from_pandas(frame()))).fit(CURATOR, ledger)
    assert "SECRET" not in str(refused.value)
    assert not [a for a in in_frames(refused.value) if isinstance(a, np.ndarray) and a.size >= 100]
    assert not ledger.entries


def test_a_duckdb_relation_streams(folder: Path, small: list[str]) -> None:
    duckdb = pytest.importorskip("duckdb")
    rows = duckdb.sql(f"SELECT * FROM '{folder}/*.parquet' ORDER BY filename, file_row_number")
    assert len(rows) == N
    assert fitted(ols(rows), CURATOR) == fitted(ols(frame()), CURATOR)
    assert small == [PLAIN]


def test_a_bar_shows_rows_that_are_read_before_the_plan(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_is_watched", lambda: True)
    fitted(ols(folder), CURATOR, progress=True)
    said = capsys.readouterr().err
    assert "read: 100%" in said
    assert f"{2 * N:,}".replace(",", "") in said  # both times
    assert "released: 100%" in said
    fitted(ols(folder), CURATOR, progress=False)
    fitted(ols(folder), CURATOR)  # of less than two seconds
    assert capsys.readouterr().err == ""
