"""Commands beside ``fit`` and ``plan``, other trust models, and what answers are written to."""

from __future__ import annotations

import json
import warnings
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpstats as dp
from dpstats.cli import main
from dpstats.errors import SchemaError
from dpstats.models.data_check import check_model
from dpstats.models.descriptive import describe_model

BUDGET = ["--epsilon", "1", "--delta", "1e-6"]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    rng, n = np.random.default_rng(0), 3000
    df = pd.DataFrame({"x": rng.uniform(0, 10, n), "g": rng.choice(list("ab"), n)})
    df["y"] = 0.3 * df.x + (df.g == "b") + rng.normal(size=n)
    df.to_csv(tmp_path / "data.csv", index=False)
    df.to_parquet(tmp_path / "data.parquet")
    schema = dp.Schema(x=dp.Numeric(0, 10), g=dp.Categorical(["a", "b"]), y=dp.Numeric(-50, 50))
    schema.save(tmp_path / "schema.json")
    return tmp_path


def run(files: Path, *command: str, budget: Any = BUDGET) -> int:
    """A command on the table, with numbers in ``out.json``."""
    name, *rest = command
    data, schema = str(files / "data.csv"), str(files / "schema.json")
    first, rest = ([rest[0]], rest[1:]) if name != "describe" else ([], rest)
    out = ["--out", str(files / "out.json"), "--quiet"]
    return main([name, *first, data, "--schema", schema, *budget, *rest, *out])


def test_the_version_is_printed(capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.split() == ["dpstats", dp.__version__]


def test_a_mean_and_means_of_groups(files: Path) -> None:
    df = pd.read_csv(files / "data.csv")
    assert run(files, "mean", "y") == 0
    assert dp.load(files / "out.json").params.iloc[0] == pytest.approx(df.y.mean(), abs=0.3)
    assert run(files, "mean", "y", "--by", "g") == 0
    found = dp.load(files / "out.json").params
    np.testing.assert_allclose(found, df.groupby("g").y.mean(), atol=0.5)


def test_a_quantile_is_fitted_and_asked_for_by_quantile_regression_alone(
    files: Path, capsys: Any
) -> None:
    df = pd.read_csv(files / "data.csv")
    assert run(files, "fit", "y ~ x | g", "--model", "quantreg", "--q", "0.75") == 0
    found = dp.load(files / "out.json")
    assert (found.plan.model, found.plan.options["q"]) == ("quantreg", 0.75)
    assert found.params["x"] == pytest.approx(0.3, abs=4 * found.bse["x"])
    assert ((df.y < found.predict(df)).mean()) == pytest.approx(0.75, abs=0.1)
    assert run(files, "fit", "y ~ x", "--q", "0.75") == 2
    assert "--q 0.75 needs --model quantreg" in capsys.readouterr().err
    assert run(files, "fit", "y ~ x", "--model", "quantreg", "--weights", "x") == 2
    assert "--weights: --model quantreg takes none" in capsys.readouterr().err


def test_columns_are_described(files: Path) -> None:
    assert run(files, "describe") == 0
    assert set(dp.load(files / "out.json").frame().index) == {"x", "y"}
    assert run(files, "describe", "--columns", "x") == 0
    found = dp.load(files / "out.json").frame()
    assert found.loc["x", "mean"] == pytest.approx(5, abs=0.5)


@pytest.mark.parametrize(
    ("trust", "privacy"),
    [
        ("central", dp.Central(1.0, 1e-6)),
        ("label-curator", dp.LabelOnly(1.0, 1e-6, curator=True)),
        ("label-only", dp.LabelOnly(1.0, 1e-6)),
        ("local", dp.Local(1.0, 1e-6)),
    ],
)
def test_each_trust_model_is_asked_by_its_name(files: Path, trust: str, privacy: Any) -> None:
    assert run(files, "fit", "y ~ x", "--trust", trust) == 0
    assert dp.load(files / "out.json").plan.privacy == privacy


def test_a_private_number_of_rows(files: Path, capsys: Any) -> None:
    asked = ["--neighbors", "add-remove", "--rows", "3000"]
    assert run(files, "mean", "y", *asked) == 0
    promised = dp.load(files / "out.json").plan.privacy
    assert (promised.neighbors, promised.rows) == ("add-remove", 3000)
    assert run(files, "mean", "y", "--trust", "local", *asked) == 2
    assert "leave out --neighbors" in capsys.readouterr().err


def test_errors_and_warnings_speak_of_options(files: Path, capsys: Any) -> None:
    assert run(files, "fit", "y ~ x", budget=["--epsilon", "1"]) == 2
    said = capsys.readouterr().err
    assert "for example --epsilon 1 --delta 1e-7" in said
    assert "Central(" not in said
    assert run(files, "fit", "y ~ x", "--method", "local-rounds", "--trust", "local") == 2
    assert "--trust local-rounds --epsilon 1" in capsys.readouterr().err
    assert run(files, "fit", "y ~ x", "--sparsity", "9") == 2
    assert "as in --sparsity 5,10,20" in capsys.readouterr().err
    assert run(files, "describe", "--trust", "local", budget=["--epsilon", "1"]) == 2
    said = capsys.readouterr().err
    assert "(central)" in said
    assert "methods()" not in said
    lost = ["fit", "y ~ x", str(files / "data.parquet"), "--schema", "lost.json", *BUDGET]
    assert main(lost) == 2
    assert "`dpstats schema template` starts one" in capsys.readouterr().err
    assert run(files, "fit", "y ~ x", "--trust", "local-rounds", budget=["--epsilon", "2"]) == 0
    assert dp.load(files / "out.json").plan.privacy.interactive
    capsys.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert run(files, "fit", "y ~ x", budget=["--epsilon", ".02", "--delta", "1e-6"]) == 0
    said = capsys.readouterr().err
    assert said.startswith("dpstats: FeasibilityWarning: ")
    assert "arguments.py" not in said


@pytest.mark.parametrize(
    ("suffix", "holds"), [(".md", "| x |"), (".tex", r"\begin{tabular}"), (".csv", "term,estimate")]
)
def test_a_table_is_written_with_its_numbers_beside_it(
    files: Path, suffix: str, holds: str
) -> None:
    out = files / f"fit{suffix}"
    schema, data = str(files / "schema.json"), str(files / "data.parquet")
    command = ["fit", "y ~ x", data, "--schema", schema, *BUDGET, "--quiet", "--out", str(out)]
    assert main(command) == 0
    assert holds in out.read_text(encoding="utf-8")
    assert dp.load(files / "fit.json").params.index.tolist() == ["Intercept", "x"]


def test_the_table_of_a_fit_has_its_numbers(files: Path) -> None:
    assert run(files, "fit", "y ~ x") == 0
    fit = dp.load(files / "out.json")
    tidy, bounds = fit.tidy(0.1), fit.conf_int(0.1)
    assert tidy.index.name == "term"
    pd.testing.assert_series_equal(tidy["estimate"], fit.params, check_names=False)
    pd.testing.assert_series_equal(tidy["std.error"], fit.bse, check_names=False)
    pd.testing.assert_series_equal(tidy["p.value"], fit.pvalues, check_names=False)
    np.testing.assert_array_equal(tidy[["conf.low", "conf.high"]], bounds)
    glance = fit.glance().iloc[0]
    assert (glance["nobs"], glance["epsilon"], glance["method"]) == (3000, 1.0, "newton")
    assert glance["noise"] == ""


def test_reproducible_noise_is_marked_at_a_glance(files: Path) -> None:
    df, schema = pd.read_csv(files / "data.csv"), dp.Schema.load(files / "schema.json")
    fit = dp.mean("y", df, schema).fit(dp.Central(1.0), noise=dp.SeededNoise(1))
    assert fit.glance()["noise"].item() == "reproducible: NOT private"


@pytest.mark.parametrize("name", ["data.csv", "data.parquet"])
def test_a_template_holds_names_and_no_value(files: Path, name: str, capsys: Any) -> None:
    assert main(["schema", "template", str(files / name), "--categorical", "g"]) == 0
    made = json.loads(capsys.readouterr().out)["columns"]
    blank = {"type": "numeric", "lower": None, "upper": None}
    assert made == {"x": blank, "y": blank, "g": {"type": "categorical", "levels": []}}
    filled = files / "filled.json"
    filled.write_text(json.dumps({"format": "dpstats-schema", "version": 1, "columns": made}))
    with pytest.raises(SchemaError, match="lower and upper"):
        dp.mean("y", schema=dp.Schema.load(filled), n=10)


@pytest.mark.parametrize("line", ["1.5,canary", ",canary", "canary,canary"])
def test_a_first_line_that_is_a_record_is_not_shown(tmp_path: Path, line: str, capsys: Any) -> None:
    (tmp_path / "t.csv").write_text(f"{line}\n2,b\n")
    assert main(["schema", "template", str(tmp_path / "t.csv")]) == 2
    said = capsys.readouterr()
    assert "names of the columns" in said.err
    assert "canary" not in said.err + said.out


def test_a_template_of_columns_that_are_not_there(files: Path, capsys: Any) -> None:
    assert main(["schema", "template", str(files / "data.csv"), "--boolean", "k"]) == 2
    assert "no column 'k'" in capsys.readouterr().err


# -- what Python has -------------------------------------------------------------------------------

STATISTICS: dict[str, tuple[list[str], Any]] = {
    "variance": (["y"], lambda df, s: dp.variance("y", df, s)),
    "quantile": (["y", "--q", "0.1,0.9"], lambda df, s: dp.quantile("y", df, s, q=[0.1, 0.9])),
    "proportion": (["g"], lambda df, s: dp.proportion("g", df, s)),
    "histogram": (["y", "--bins", "0,2"], lambda df, s: dp.histogram("y", df, s, bins=[0, 2])),
    "crosstab": (["g", "h"], lambda df, s: dp.crosstab("g", "h", df, s)),
    "ttest": (["y ~ g"], lambda df, s: dp.ttest("y ~ g", df, s)),
    "corr": (["x,y"], lambda df, s: dp.corr(["x", "y"], df, s)),
    "describe": (["--columns", "x,y"], lambda df, s: describe_model(df, s, ["x", "y"])),
    "check": (["--columns", "x,g"], lambda df, s: check_model(df, s, ["x", "g"])),
    "proportion --by": (["g", "--by", "h"], lambda df, s: dp.proportion("g", df, s, by="h")),
    "ttest --by": (["y", "--by", "g"], lambda df, s: dp.ttest("y", df, s, by="g")),
}


@pytest.mark.parametrize("command", STATISTICS)
def test_a_command_plans_and_fits_what_its_function_does(tmp_path: Path, command: str) -> None:
    asked, make = STATISTICS[command]
    df, schema = two_factors(tmp_path)
    first = list(takewhile(lambda word: word[0] != "-", asked))
    more = asked[len(first) :]
    files = [str(tmp_path / "data.csv"), "--schema", str(tmp_path / "schema.json")]
    out = ["--out", str(tmp_path / "out.json"), "--quiet"]
    assert main([command.split()[0], *first, *files, *BUDGET, *more, *out]) == 0
    found, fit = dp.load(tmp_path / "out.json"), make(df, schema).fit(dp.Central(1.0, 1e-6))
    assert found.plan.parameters == fit.plan.parameters
    assert (found.plan.cost, found.plan.mechanisms) == (fit.plan.cost, fit.plan.mechanisms)
    assert type(found) is type(fit)


def two_factors(folder: Path) -> tuple[pd.DataFrame, dp.Schema]:
    rng, n = np.random.default_rng(0), 2000
    df = pd.DataFrame({"x": rng.uniform(0, 10, n), "g": rng.choice(list("ab"), n)})
    df = df.assign(y=0.3 * df.x + rng.normal(size=n), h=rng.choice(list("uv"), n))
    df["z"] = (df.y > 1.5).astype(int)
    df.to_csv(folder / "data.csv", index=False)
    levels = {name: dp.Categorical(list(each)) for name, each in {"g": "ab", "h": "uv"}.items()}
    numbers = {"x": dp.Numeric(0, 10), "y": dp.Numeric(-50, 50), "z": dp.Numeric(0, 1)}
    schema = dp.Schema(**levels, **numbers)
    schema.save(folder / "schema.json")
    return df, schema


def test_saved_fits_are_shown_and_compared_in_full_and_as_ratios(
    tmp_path: Path, capsys: Any
) -> None:
    df, schema = two_factors(tmp_path)
    fits = [dp.logit(f, df, schema).fit(dp.Central(1.0, 1e-6)) for f in ("z ~ x", "z ~ g")]
    paths = [str(tmp_path / f"{name}.json") for name in ("one", "two")]
    for fit, path in zip(fits, paths, strict=True):
        fit.save(path)
    ratio = str(np.exp(fits[0].params["x"]))[:4]
    for command in (["show", paths[0], "--exp"], ["compare", *paths, "--exp"]):
        assert main(command) == 0
        said = capsys.readouterr().out
        assert ratio in said
        assert "odds ratio" in said
    assert main(["show", paths[0], "--full", "--error-bound"]) == 0
    said = capsys.readouterr().out
    assert "Conditions of the theorem" in said
    assert main(["compare", *paths]) == 0
    assert capsys.readouterr().out.split()[1:3] == ["one", "two"]
    dp.mean("y", df, schema).fit(dp.Central(1.0)).save(tmp_path / "mean.json")
    assert main(["show", str(tmp_path / "mean.json"), "--exp"]) == 2
    assert main(["show", str(tmp_path / "none.json")]) == 2
    assert "no such file" in capsys.readouterr().err


def test_options_of_a_method_are_passed_on(files: Path, capsys: Any) -> None:
    assert run(files, "mean", "y", "--option", "clip=declared") == 0
    assert dp.load(files / "out.json").plan.options["clip"] == "declared"
    assert run(files, "fit", "y ~ x", "--option", "target=mle") == 0
    assert run(files, "mean", "y", "--option", "nonsense=1") == 2
    assert "nonsense" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run(files, "mean", "y", "--option", "clip")


def test_a_large_delta_must_be_meant_in_a_shell_too(files: Path, capsys: Any) -> None:
    large = ["--epsilon", "1", "--delta", "0.01"]
    assert run(files, "mean", "y", budget=large) == 2
    assert "--large-delta" in capsys.readouterr().err
    assert run(files, "mean", "y", "--large-delta", budget=large) == 0
