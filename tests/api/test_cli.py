"""The command line fits, plans and shows ledgers on files, and prints errors without tracebacks."""

from __future__ import annotations

import contextlib
import errno
import io
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

import dpstats as dp
from dpstats.cli import main
from dpstats.datasets import randhie
from dpstats.tables.files import read_table

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
    assert "differential privacy of one row" in printed
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
    table = read_table(tmp_path / "t.csv", schema)
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
    out = ["--quiet", "--out", str(files / "fit.json")]
    command = [*arguments(files, "fit", str(files / "data.csv")), *out, "--ledger", ledger]
    assert main([*command, "--ledger-epsilon", "1.5", "--ledger-delta", "1e-6"]) == 0
    assert main(command) == 0
    assert capsys.readouterr().out == ""
    assert main(["ledger", "show", ledger]) == 0
    assert "2 charges so far" in capsys.readouterr().out
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
        (lambda a: [*a, "--out", "fit.txt"], ".json, .html, .md, .tex, .csv"),
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


@pytest.fixture(scope="module")
def demo() -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(["demo", "--seed", "3"]) == 0
    return printed.getvalue()


def test_the_demo_runs(demo: str) -> None:
    assert "NOT private" in demo
    assert "1 charge so far" in demo
    for method in ("newton", "label-curator", "label-ols", "local-rounds", "one-shot"):
        assert method in demo
    assert max(map(len, demo.splitlines())) <= 80


def test_the_demo_shows_least_squares_beside_the_private_table_and_marks_it(demo: str) -> None:
    formula = "mdvis ~ lncoins + disea + physlm + hlthg + hlthf + hlthp"
    plain = smf.ols(formula, randhie.load()[0]).fit(cov_type="HC1")
    _, _, beside = demo.partition("NOT private: least squares on the same rows")
    row = next(line.split() for line in beside.splitlines() if line.startswith("disea "))
    _, ols, _, se, private, ratio = row
    assert (ols, se) == (f"{plain.params['disea']:.3f}", f"{plain.bse['disea']:.3f}")
    assert float(ratio) == pytest.approx(float(private) / plain.bse["disea"], rel=0.1)
    assert float(ratio) > 1


@pytest.mark.full
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


def test_the_command_line_names_families_links_and_weights(
    files: Path, monkeypatch, capsys
) -> None:
    asked = {}

    def model(formula, data=None, schema=None, **options):
        asked.update(options)
        raise dp.errors.DataError("enough")

    monkeypatch.setattr(dp, "glm", model)
    plan = [*arguments(files, "plan"), "--n", "100"]
    assert main([*plan, "--family", "negativebinomial", "--alpha", "0.5", "--weights", "x"]) == 2
    assert (asked["family"], asked["link"], asked["alpha"]) == ("negativebinomial", None, 0.5)
    assert (asked["weights"], asked["weight_type"]) == ("x", None)
    assert main([*plan, "--model", "probit", "--weight-type", "frequency"]) == 2
    assert (asked["family"], asked["link"]) == ("binomial", "probit")
    assert asked["weight_type"] == "frequency"
    capsys.readouterr()
    for wrong in (["--link", "probit"], ["--model", "ols", "--family", "gamma"]):
        assert main([*plan, *wrong]) == 2
        assert "--family" in capsys.readouterr().err


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


# -- an answer that was paid for -----------------------------------------------------------------


def paid(files: Path, *rest: str) -> list[str]:
    """A fit that is charged to a ledger, and whose answers are looked for in `files`."""
    ledger = ["--ledger", str(files / "a.ledger"), "--ledger-epsilon", "9"]
    return [
        *arguments(files, "fit", str(files / "data.csv"), *rest),
        *ledger,
        "--ledger-delta=1e-5",
    ]


def broken(error: BaseException):
    def fail(*args, **kwargs):
        raise error

    return fail


BROKEN = [ValueError("no such glyph \x1b"), MemoryError(), RecursionError(), KeyboardInterrupt()]


@pytest.mark.parametrize("error", BROKEN, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize(
    "where", ["dpstats.results.report.html_report", "dpstats.results.summary.page"]
)
def test_an_error_while_rendering_loses_no_answer(files: Path, monkeypatch, capsys, where, error):
    monkeypatch.setattr(where, broken(error))
    command = paid(files, "--out", str(files / "report.html"))
    if isinstance(error, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            main(command)
    else:
        assert main(command) == 2
    told = capsys.readouterr().err
    assert f"{type(error).__name__}" in told
    assert str(files / "report.json") in told
    assert "\x1b" not in told
    assert dp.load(files / "report.json").params.index.tolist()[0] == "Intercept"
    assert len(dp.Ledger.open(files / "a.ledger").entries) == 1


@pytest.mark.parametrize("error", [*BROKEN, BrokenPipeError()], ids=lambda e: type(e).__name__)
def test_a_summary_that_is_not_printed_is_kept(files: Path, monkeypatch, capfd, error):
    monkeypatch.setattr("tempfile.tempdir", str(files))
    monkeypatch.setattr("dpstats.results.summary.page", broken(error))
    if isinstance(error, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            main(paid(files))
    elif isinstance(error, BrokenPipeError):
        monkeypatch.setattr("os.dup2", lambda *args: None)
        assert main(paid(files)) == 0
    else:
        assert main(paid(files)) == 2
    (kept,) = files.glob("dpstats-*.json")
    assert str(kept) in capfd.readouterr().err
    assert dp.load(kept).plan.method == "newton"


def test_a_full_disk_loses_no_answer(files: Path, monkeypatch, capsys):
    """Numbers go to another disk, and where there is none, to standard output."""
    full, save = OSError(errno.ENOSPC, "No space left on device"), dp.Results.save
    (files / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(files / "tmp"))

    def saved(fit, path):
        if Path(path).parent == files:
            raise full
        save(fit, path)

    monkeypatch.setattr(dp.Results, "save", saved)
    assert main(paid(files, "--quiet", "--out", str(files / "fit.json"))) == 2
    (kept,) = (files / "tmp").glob("*.json")
    assert str(kept) in capsys.readouterr().err
    assert dp.load(kept).plan.method == "newton"
    monkeypatch.setattr(dp.Results, "save", broken(full))
    assert main(paid(files, "--quiet", "--out", str(files / "fit2.json"))) == 2
    out, err = capsys.readouterr()
    assert dp.Results.from_json(out).plan.method == "newton"
    assert "standard output" in err


def test_an_earlier_answer_is_not_replaced_by_the_numbers_of_a_report(files: Path) -> None:
    earlier = (files / "report.json", files / "report-2.json")
    for path in earlier:
        path.write_text("earlier")
    assert main(paid(files, "--quiet", "--out", str(files / "report.html"))) == 0
    assert [path.read_text() for path in earlier] == ["earlier"] * 2
    assert dp.load(files / "report-3.json").plan.method == "newton"


def test_a_fit_that_is_refused_leaves_no_file_and_takes_none_away(files: Path, capsys) -> None:
    (files / "old.json").touch()
    for out in ("report.html", "new.json", "old.json"):
        command = paid(files, "--out", str(files / out), "--method", "nonsense")
        assert main(command) == 2
    assert sorted(path.name for path in files.glob("*.json")) == ["old.json", "schema.json"]
    assert "nonsense" in capsys.readouterr().err


@pytest.mark.parametrize("out", ["report.html", "fit.json", "old.json"])
def test_a_file_that_cannot_be_written_is_found_before_the_charge(
    files: Path, monkeypatch, capsys, out: str
) -> None:
    (files / "old.json").touch()
    denied = PermissionError(errno.EACCES, "Permission denied")
    allowed = os.access
    monkeypatch.setattr(Path, "touch", broken(denied))
    monkeypatch.setattr("os.access", lambda at, mode: at.name != "old.json" and allowed(at, mode))
    ledger = dp.Ledger.memory(9.0, 1e-5)
    monkeypatch.setattr(dp.Ledger, "open", lambda *args: ledger)
    assert main(paid(files, "--out", str(files / out))) == 2
    said = "read-only" if out == "old.json" else "Permission denied. Nothing was charged"
    assert said in capsys.readouterr().err
    assert ledger.entries == ()


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
