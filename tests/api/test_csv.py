"""CSV files as analysts have them, in Python, in a shell and at a site: numbers are the table's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpstats as dp
from dpstats.cli import main
from dpstats.errors import DataError, OptionError
from dpstats.federated import Site

N = 600
PRIVACY, NOISE = dp.Central(2.0, 1e-6), dp.SeededNoise(2)
SCHEMA = dp.Schema(
    y=dp.Numeric(-9, 9, scale=2.0), x=dp.Numeric(-5, 5, scale=1.0), g=dp.Categorical(["a", "b"])
)
EUROPEAN = {"separator": ";", "decimal": ","}
SHELL = ["--separator", ";", "--decimal", ","]


@pytest.fixture
def df() -> pd.DataFrame:
    """Rows with notes that hold separators, quotes, and lines that look like rows."""
    rng = np.random.default_rng(0)
    x, g = rng.normal(size=N), rng.choice(["a", "b"], N)
    note = np.where(np.arange(N) % 3 == 0, 'said: "no; 1,5"\n9;9;a;b\n\n', "")
    return pd.DataFrame({"note": note, "y": x + rng.normal(size=N), "x": x, "g": g})


@pytest.fixture
def european(df: pd.DataFrame, tmp_path: Path) -> Path:
    SCHEMA.save(tmp_path / "schema.json")
    df.to_csv(tmp_path / "data.csv", sep=";", decimal=",", index=False)
    return tmp_path / "data.csv"


MODELS: dict[str, Callable[[Any], Any]] = {
    "ols": lambda data: dp.ols("y ~ x + g", data, SCHEMA).fit(PRIVACY, noise=NOISE),
    "mean": lambda data: dp.mean("y", data, SCHEMA).fit(PRIVACY, noise=NOISE),
    "describe": lambda data: dp.describe(data, SCHEMA, PRIVACY, noise=NOISE),
    "label-only": lambda data: dp.ols("y ~ x + g", data, SCHEMA).fit(
        dp.LabelOnly(2.0, 1e-6, curator=True), noise=NOISE
    ),
    "local": lambda data: dp.ols("y ~ x", data, SCHEMA).fit(dp.Local(4.0, 1e-6), noise=NOISE),
    "ranges": lambda data: dp.private_ranges(
        data, dp.Schema(y=dp.Numeric(-9, 9)), PRIVACY, noise=NOISE
    ),
    "federated": lambda data: dp.ols("y ~ x", {"a": data, "b": data}, SCHEMA).fit(
        dp.Federated(2.0, 1e-6, target="a"), noise=NOISE, combine="blend"
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_numbers_of_a_file_are_those_of_its_table(
    df: pd.DataFrame, european: Path, name: str
) -> None:
    found = MODELS[name](dp.CSV(european, **EUROPEAN))
    expected = MODELS[name](df)
    np.testing.assert_array_equal(np.asarray(found.params), np.asarray(expected.params))


def test_the_number_of_rows_is_that_of_records_in_the_plan_and_in_the_fit(european: Path) -> None:
    model = dp.ols("y ~ x", dp.CSV(str(european), **EUROPEAN), SCHEMA)
    assert model.plan(PRIVACY).n == N
    assert model.fit(PRIVACY, noise=NOISE).nobs == N
    lines = dp.ols("y ~ x", dp.CSV(european, **EUROPEAN, records="lines"), SCHEMA)
    assert lines.plan(PRIVACY).n == N + 3 * N // 3


def test_files_may_be_listed_and_their_suffixes_in_capitals(
    df: pd.DataFrame, tmp_path: Path
) -> None:
    df[:200].to_csv(tmp_path / "A.CSV", index=False)
    df[200:].to_csv(tmp_path / "b.tsv", index=False, sep="\t")
    df.to_parquet(tmp_path / "ALL.Parquet")
    expected = MODELS["ols"](df).params
    for data in (
        [tmp_path / "A.CSV", tmp_path / "b.tsv"],
        dp.CSV([tmp_path / "A.CSV", tmp_path / "b.tsv"], records="quoted"),
        tmp_path / "ALL.Parquet",
    ):
        pd.testing.assert_series_equal(MODELS["ols"](data).params, expected)
    (tmp_path / "ALL.Parquet").unlink()
    pd.testing.assert_series_equal(MODELS["ols"](tmp_path).params, expected)


def test_a_parquet_file_has_no_separator(df: pd.DataFrame, tmp_path: Path) -> None:
    df.to_parquet(tmp_path / "t.parquet")
    how = dp.CSV(tmp_path / "t.parquet", separator=";")
    with pytest.raises(DataError, match=r"t\.parquet: separator"):
        dp.ols("y ~ x", how, SCHEMA)
    site = Site("a", how, SCHEMA)
    with pytest.raises(DataError, match=r"t\.parquet: separator"):
        dp.ols("y ~ x", {"a": how, "b": how}, SCHEMA)
    assert repr(site) == "<site 'a'>"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"separator": ":"}, "separator=':': allowed are"),
        ({"separator": ";;"}, "separator=';;': allowed are"),
        ({"decimal": ";"}, "decimal=';': allowed are"),
        ({"records": "rfc"}, "records='rfc': allowed are 'quoted', 'lines'"),
    ],
)
def test_an_option_of_reading_is_one_of_those_allowed(options: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        dp.CSV("t.csv", **options)


def test_a_table_is_no_file(df: pd.DataFrame) -> None:
    with pytest.raises(DataError, match=r"CSV\(DataFrame\): give the path"):
        dp.CSV(df)


# -- in a shell ------------------------------------------------------------------------------------


def fit(data: Path, *options: str) -> list[str]:
    schema = str(data.parent / "schema.json")
    command = ["fit", "y ~ x", str(data), "--schema", schema, "--epsilon", "8", "--delta", "1e-6"]
    return [*command, *options]


def test_a_shell_has_the_options_of_reading(european: Path, df: pd.DataFrame, capsys: Any) -> None:
    out = european.parent / "fit.json"
    assert main(fit(european, *SHELL, "--quiet", "--out", str(out))) == 0
    found = dp.load(out)
    assert found.nobs == N
    assert found.params["x"] == pytest.approx(1, abs=0.3)
    assert main(["schema", "template", str(european), *SHELL, "--categorical", "g"]) == 0
    made = json.loads(capsys.readouterr().out)["columns"]
    assert set(made) == {"note", "y", "x", "g"}
    assert main(fit(european, *SHELL, "--records", "lines", "--quiet", "--out", str(out))) == 0
    assert dp.load(out).nobs == 2 * N


@pytest.mark.parametrize(("given", "written"), [("tab", "\t"), ("\\t", "\t"), ("|", "|")])
def test_a_tab_has_a_name_in_a_shell(
    df: pd.DataFrame, tmp_path: Path, given: str, written: str, capsys: Any
) -> None:
    df.to_csv(tmp_path / "t.csv", sep=written, index=False)
    assert main(["schema", "template", str(tmp_path / "t.csv"), "--separator", given]) == 0
    assert set(json.loads(capsys.readouterr().out)["columns"]) == {"note", "y", "x", "g"}


@pytest.mark.parametrize("separator", [";", "\t", "|"])
@pytest.mark.parametrize("command", ["template", "fit"])
def test_a_first_line_with_another_separator_is_refused_by_the_name_of_the_option(
    df: pd.DataFrame, tmp_path: Path, separator: str, command: str, capsys: Any
) -> None:
    SCHEMA.save(tmp_path / "schema.json")
    path = tmp_path / "t.csv"
    df.to_csv(path, sep=separator, index=False)
    asked = ["schema", "template", str(path)] if command == "template" else fit(path)
    assert main(asked) == 2
    said = capsys.readouterr()
    option = {";": "';'", "\t": "'\\t'", "|": "'|'"}[separator]
    assert f"give --separator {option}." in said.err
    assert "dp." not in said.err
    assert said.out == ""


def test_a_site_reads_its_file_as_declared(european: Path, capsys: Any, tmp_path: Path) -> None:
    schema, ledger = str(european.parent / "schema.json"), str(tmp_path / "site.ledger")
    privacy = ["--epsilon", "8", "--delta", "1e-6", "--schema", schema, "--target", "north"]
    assert main(["federated", "ask", "y ~ x", *privacy]) == 0
    (tmp_path / "question.json").write_text(capsys.readouterr().out)
    limits = ["--max-epsilon", "9", "--max-delta", "1e-5"]
    ceiling = ["--ledger", ledger, "--ledger-epsilon", "99", "--ledger-delta", "1e-3"]
    site = ["site", "answer", str(tmp_path / "question.json"), "--name", "north"]
    data = ["--data", str(european), "--schema", schema, *ceiling, *limits]
    assert main([*site, *data, *SHELL]) == 0
    assert '"answered"' in capsys.readouterr().out
