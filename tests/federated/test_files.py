"""The files carrier: a question in a file, answers in files, and one command for each party."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpstats as dp
from dpstats.cli import main
from tests.federated.cases import FORMULA, SCHEMA, sites

SITES = ("home", "north", "far")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    SCHEMA.save(tmp_path / "schema.json")
    for name, rows in sites().items():
        pd.DataFrame(rows).to_parquet(tmp_path / f"{name}.parquet")
        dp.Ledger.open(tmp_path / f"{name}.ledger", 2.0, 1e-5)
    return tmp_path


def run(capsys: Any, *arguments: Any) -> tuple[int, str, str]:
    status = main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    return status, out, err


def ask(capsys: Any, folder: Path, *more: Any) -> Path:
    schema, question = folder / "schema.json", folder / "q.json"
    asked = ("federated", "ask", FORMULA, "--schema", schema, "--target", "home")
    status, out, err = run(capsys, *asked, "--epsilon", 1, "--delta", 1e-6, *more)
    assert (status, err) == (0, "")
    question.write_text(out)
    return question


def answer(capsys: Any, folder: Path, name: str, *more: Any) -> Path:
    files = ("--data", folder / f"{name}.parquet", "--ledger", folder / f"{name}.ledger")
    limits = ("--schema", folder / "schema.json", "--max-epsilon", 1, "--max-delta", 1e-6)
    command = ("site", "answer", folder / "q.json", "--name", name)
    status, out, err = run(capsys, *command, *files, *limits, *more)
    assert (status, err) == (0, "")
    path = folder / f"a-{name}.json"
    path.write_text(out)
    return path


def test_a_fit_goes_through_files_and_is_charged_once(capsys: Any, folder: Path) -> None:
    ask(capsys, folder)
    answers = [answer(capsys, folder, name) for name in SITES]
    again = answer(capsys, folder, "north").read_text()
    assert again == answers[1].read_text()
    for name in SITES:
        assert len(dp.Ledger.open(folder / f"{name}.ledger").entries) == 1
    status, out, err = run(capsys, "federated", "combine", *answers, "--out", folder / "fit.json")
    assert (status, err) == (0, "")
    assert "3 of 3" in out
    fit = dp.load(folder / "fit.json")
    assert list(fit.sources.index) == list(SITES)
    assert np.isfinite(fit.bse).all()
    assert not fit.reproducible


def test_an_answer_holds_released_numbers_only(capsys: Any, folder: Path) -> None:
    ask(capsys, folder)
    text = answer(capsys, folder, "home").read_text()
    rows = sites()["home"]
    values = {repr(float(v)) for column in rows.values() for v in column[:200]}
    assert not any(value in text for value in values if len(value) > 8)  # those within bounds
    assert str(folder) not in text


def test_a_refusal_is_an_answer_too(capsys: Any, folder: Path) -> None:
    ask(capsys, folder)
    refused = answer(capsys, folder, "north", "--allow", "logit")
    assert json.loads(refused.read_text())["reason"] == "model 'ols' is not allowed here"
    ask(capsys, folder, "--method", "adassp")
    by_name = answer(capsys, folder, "north", "--methods", "newton,dp-gd")
    assert json.loads(by_name.read_text())["reason"] == "method 'adassp' is not allowed here"
    ask(capsys, folder)
    refused = answer(capsys, folder, "north", "--allow", "logit")
    combined = run(capsys, "federated", "combine", answer(capsys, folder, "home"), refused)
    assert combined[0] == 0
    assert "Without an answer: north (refused)" in " ".join(combined[1].split())


def test_a_robust_fit_goes_through_files(capsys: Any, folder: Path) -> None:
    ask(capsys, folder, "--robust")
    answers = [answer(capsys, folder, name) for name in SITES]
    run(capsys, "federated", "combine", *answers, "--out", folder / "fit.json", "--quiet")
    plans = [json.loads(path.read_text())["result"]["plan"] for path in answers]
    assert [plan["options"]["target"] for plan in plans] == ["robust"] * 3
    assert dp.load(folder / "fit.json").sources["status"].eq("answered").all()


def test_what_cannot_be_combined_is_said(capsys: Any, folder: Path) -> None:
    ask(capsys, folder)
    home, north = (answer(capsys, folder, name) for name in ("home", "north"))
    assert "A site answered twice" in run(capsys, "federated", "combine", home, home)[2]
    assert "'home' did not reply" in run(capsys, "federated", "combine", north)[2]
    ask(capsys, folder, "--combine", "pool")
    other = answer(capsys, folder, "far")
    assert "not all to one question" in run(capsys, "federated", "combine", home, other)[2]
    assert "no such file" in run(capsys, "federated", "combine", folder / "none.json")[2]


def test_a_report_that_fails_loses_no_combined_numbers(
    capsys: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(fit: Any) -> str:
        raise ValueError("no such glyph")

    monkeypatch.setattr("dpstats.results.report.html_report", broken)
    ask(capsys, folder)
    answers = [answer(capsys, folder, name) for name in ("home", "north")]
    kept = answers[0].read_bytes()
    combine = ("federated", "combine", *answers, "--quiet")
    assert "--quiet without --out" in run(capsys, *combine)[2]
    for out in (answers[0], folder / "home.parquet", folder):
        assert "--out" in run(capsys, *combine, "--out", out)[2]
    assert answers[0].read_bytes() == kept
    status, _, err = run(capsys, *combine, "--out", folder / "fit.html")
    assert status == 2
    assert str(folder / "fit.json") in err
    assert dp.load(folder / "fit.json").sources["status"].eq("answered").all()


def test_a_sparse_fit_goes_through_files(capsys: Any, folder: Path) -> None:
    ask(capsys, folder, "--sparsity", 1)
    answers = [answer(capsys, folder, name) for name in ("home", "north")]
    status, out, err = run(capsys, "federated", "combine", *answers, "--out", folder / "fit.json")
    assert (status, err) == (0, "")
    assert "2 of 2" in out
    assert len(dp.load(folder / "fit.json").selected) == 1


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--method", "rounds"), "one question after the other, and this command writes one"),
        (("--sparsity", "1,2"), "one number of columns"),
        (("--sparsity", "9"), "from 1 to 2, the columns"),
        (("--rows", "home=0"), "a public guess for each site"),
    ],
)
def test_what_files_cannot_carry_is_not_asked(
    capsys: Any, folder: Path, more: Any, words: str
) -> None:
    asked = ("federated", "ask", FORMULA, "--schema", folder / "schema.json", "--target", "home")
    status, out, err = run(capsys, *asked, "--epsilon", 1, "--delta", 1e-6, *more)
    assert (status != 0, out) == (True, "")
    assert words in " ".join(err.split())


def test_several_rows_a_person_go_through_files(capsys: Any, folder: Path) -> None:
    several = dp.Schema({name: SCHEMA[name] for name in SCHEMA}, unit="person", max_rows=2)
    several.save(folder / "schema.json")
    for name, rows in sites().items():
        person = np.arange(len(rows["y"])) // 2
        pd.DataFrame({**rows, "person": person}).to_parquet(folder / f"{name}.parquet")
    ask(capsys, folder, "--rows", "home=2000", "--rows", "north=6000")
    answers = [answer(capsys, folder, name) for name in ("home", "north")]
    status, out, err = run(capsys, "federated", "combine", *answers)
    assert (status, err) == (0, "")
    assert "one value of 'person', with at most 2 rows" in " ".join(out.split())
