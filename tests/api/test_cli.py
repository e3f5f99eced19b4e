"""The command line fits, plans and shows ledgers on files, and prints errors without tracebacks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dpstats as dp
from dpstats.cli import _read, main

FORMULA = "y ~ x + C(g)"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    n = 4000
    df = pd.DataFrame({"x": rng.uniform(0, 10, n), "g": rng.choice(list("ab"), n)})
    df["y"] = 0.3 * df.x + (df.g == "b") + rng.normal(size=n)
    df.to_csv(tmp_path / "data.csv", index=False)
    df.to_parquet(tmp_path / "data.parquet")
    schema = dp.Schema(x=dp.Numeric(0, 10), g=dp.Categorical(["a", "b"]), y=dp.Numeric(-5, 10))
    schema.save(tmp_path / "schema.json")
    return tmp_path


def arguments(files: Path, command: str, *rest: str) -> list[str]:
    schema = str(files / "schema.json")
    return [command, FORMULA, *rest, "--schema", schema, "--epsilon", "1", "--delta", "1e-7"]


@pytest.mark.parametrize("name", ["data.csv", "data.parquet"])
def test_fit_prints_a_table_and_writes_results(files: Path, name: str, capsys) -> None:
    for out in ("fit.json", "report.html"):
        assert main([*arguments(files, "fit", str(files / name)), "--out", str(files / out)]) == 0
    printed = capsys.readouterr().out
    assert "C(g)[T.b]" in printed
    assert "Guarantee" in printed
    assert dp.load(files / "fit.json").params.index.tolist()[0] == "Intercept"
    assert "<html" in (files / "report.html").read_text()


@pytest.mark.parametrize("odd", ["02", "x", ""])
def test_one_cell_of_a_csv_does_not_decide_how_others_are_read(tmp_path: Path, odd: str) -> None:
    schema = dp.Schema(
        zip=dp.Categorical(["01", "02", "other"], other="other"),
        grade=dp.Categorical([1, 2]),
        y=dp.Numeric(0, 5),
        unit="person",
        max_rows=1,
    )
    big = 2**60 + 1
    lines = ["zip,grade,y,person", f"01,1,1,{big}", f"01,2.0,2.5,{big + 1}", f"{odd},{odd},{odd},"]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    table = _read(tmp_path / "t.csv", schema)
    assert schema["zip"].coerce(table["zip"])[0][:2].tolist() == [0, 0]
    assert schema["grade"].coerce(table["grade"])[0][:2].tolist() == [0, 1]
    assert schema["y"].coerce(table["y"])[0][:2].tolist() == [1.0, 2.5]
    assert table["person"].tolist()[:2] == [str(big), str(big + 1)]


def test_a_file_that_is_no_archive_is_refused(files: Path, capsys) -> None:
    (files / "data.csv.gz").write_bytes(b"x,g,y\n1,a,canary\n")
    assert main(arguments(files, "fit", str(files / "data.csv.gz"))) == 2
    error = capsys.readouterr().err
    assert "could not be read as CSV (BadGzipFile)" in error
    assert "canary" not in error


def test_fit_charges_a_ledger_that_show_prints(files: Path, capsys) -> None:
    ledger = str(files / "a.ledger")
    command = [*arguments(files, "fit", str(files / "data.csv")), "--quiet", "--ledger", ledger]
    assert main([*command, "--ledger-epsilon", "1.5", "--ledger-delta", "1e-6"]) == 0
    assert main(command) == 0
    assert capsys.readouterr().out == ""
    assert main(["ledger", "show", ledger]) == 0
    assert "2 entries" in capsys.readouterr().out
    assert main(command) == 2
    assert "BudgetError" in capsys.readouterr().err


def test_plan_reads_no_data(files: Path, capsys) -> None:
    (files / "data.csv").unlink()
    assert main([*arguments(files, "plan"), "--n", "20000"]) == 0
    assert "no row was read" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda a: [*a[:2], "missing.csv", *a[3:]], "no such file"),
        (lambda a: [*a[:2], "data.xlsx", *a[3:]], "ending in"),
        (lambda a: [*a, "--out", "fit.txt"], ".html or .json"),
        (lambda a: [*a, "--ledger", "new.ledger"], "--ledger-epsilon"),
        (lambda a: [*a, "--method", "magic"], "newton"),
    ],
)
def test_errors_name_the_remedy(files: Path, change, says: str, capsys, monkeypatch) -> None:
    monkeypatch.chdir(files)
    assert main(change(arguments(files, "fit", str(files / "data.csv")))) == 2
    error = capsys.readouterr().err
    assert says in error
    assert "Traceback" not in error


def test_show_of_no_ledger_is_an_error(tmp_path: Path, capsys) -> None:
    assert main(["ledger", "show", str(tmp_path / "none.ledger")]) == 2
    assert "no such ledger" in capsys.readouterr().err


def test_the_demo_runs(capsys) -> None:
    assert main(["demo", "--seed", "3"]) == 0
    printed = capsys.readouterr().out
    assert "NOT private" in printed
    assert "1 entry" in printed
    for method in ("newton", "label-curator", "label-ols", "local-rounds"):
        assert method in printed


def test_a_closed_pipe_ends_the_command_quietly(files: Path) -> None:
    import subprocess
    import sys

    command = [sys.executable, "-m", "dpstats", *arguments(files, "plan"), "--n", "20000"]
    shell = " ".join(f"'{part}'" for part in command) + " | head -1"
    done = subprocess.run(shell, shell=True, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr
    assert done.stdout.startswith("Plan")


def test_the_command_line_names_family_sparsity_and_exposure(files: Path, monkeypatch) -> None:
    asked = {}

    def model(formula, data=None, schema=None, **options):
        asked.update(options, formula=formula)
        raise dp.errors.DataError("enough")

    monkeypatch.setattr(dp, "glm", model)
    more = ["--model", "poisson", "--exposure", "x", "--n", "100"]
    assert main([*arguments(files, "plan"), *more]) == 2
    assert asked["family"] == "poisson"
    assert (asked["exposure"], asked["offset"], asked["formula"]) == ("x", None, FORMULA)


def test_the_command_line_checks_a_sparsity(files: Path, capsys) -> None:
    for text in ("4", "1,4"):
        assert main([*arguments(files, "plan"), "--n", "20000", "--sparsity", text]) == 2
        assert "from 1 to 2" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*arguments(files, "plan"), "--n", "20000", "--sparsity", "few"])


@pytest.mark.parametrize("out", ["table.txt", "nowhere/table.html"])
def test_where_to_write_is_checked_before_it_is_paid_for(files: Path, capsys, out: str) -> None:
    ledger = files / "data.ledger"
    dp.Ledger.open(ledger, 5.0, 1e-5)
    command = [*arguments(files, "fit", str(files / "data.csv")), "--ledger", str(ledger)]
    assert main([*command, "--out", str(files / out)]) == 2
    assert "--out" in capsys.readouterr().err
    assert dp.Ledger.open(ledger).entries == ()


def test_files_that_cannot_be_read_are_errors(files: Path, capsys) -> None:
    command = [*arguments(files, "plan"), "--n", "100", "--schema", str(files / "none.json")]
    assert main(command) == 2
    assert "no such schema file" in capsys.readouterr().err
    (files / "broken.parquet").write_bytes(b"PAR1")
    assert main(arguments(files, "fit", str(files / "broken.parquet"))) == 2
    assert "could not be read as Parquet" in capsys.readouterr().err


def test_a_model_of_the_wrong_response_is_an_error(files: Path, capsys) -> None:
    command = [*arguments(files, "fit", str(files / "data.csv")), "--model", "logit"]
    assert main(command) == 2
    assert "Numeric(0, 1)" in capsys.readouterr().err
