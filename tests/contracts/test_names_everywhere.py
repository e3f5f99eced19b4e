"""Any name works wherever a name is taken: the numbers are those of the same call with a tame name.

The table below has an entry for each public function and argument that takes names; the last test
fails where a function has none.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import dpstats as dp
from dpstats.cli import main
from dpstats.design.written import term
from dpstats.results import plot
from tests.grids import grid

pytestmark = pytest.mark.filterwarnings("ignore::dpstats.errors.DPStatsWarning")

NAMES = ["1", "it's a `b`", "n\u00a0b\t", "np.log(x)", "~|.", "\u00b5", 'say "(hi"', "0", "-1"]
NAMES += ["Q('x')"]
N, PRIVACY = 600, dp.Central(20.0, 1e-5)


def table(x: str) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    g, z = rng.integers(0, 2, N), rng.uniform(1, 2, N)
    return {
        x: z,
        "z": rng.uniform(size=N),
        "y": z + rng.uniform(size=N),
        "g": np.array(["a", "b"])[g],
    }


def bare(x: str) -> str:
    """A name without quotes where a call would not be read as the term that it looks like."""
    return term(x) if "(" in x else x


def of(x: str, **more: Any) -> dp.Schema:
    columns = {x: dp.Numeric(1, 2), "z": dp.Numeric(0, 1), "y": dp.Numeric(1, 3)}
    return dp.Schema({**columns, "g": dp.Categorical(["a", "b"]), **more})


def factor(x: str) -> tuple[dict[str, Any], dp.Schema]:
    """The same rows, with a factor of this name."""
    data = table("x")
    return {**data, x: data["g"]}, of("x", **{x: dp.Categorical(["a", "b"])})


def grouped(make: Callable[[str, dict[str, Any], dp.Schema], Any]) -> Callable[[str], Any]:
    return lambda x: make(x, *factor(x))


def yes(x: str) -> dict[str, Any]:
    return {**table(x), "y": (table(x)["y"] > 2) + 0.0}


UNIT = dp.Numeric(0, 1)
MODELS: dict[str, Callable[[str], Any]] = {
    "ols": lambda x: dp.ols(f"y ~ {term(x)} + z", table(x), of(x)),
    "ols interaction": lambda x: dp.ols(f"y ~ z*np.log({term(x)})", table(x), of(x)),
    "ols less": lambda x: dp.ols(f"y ~ . - {term(x)} - g", table(x), of(x)),
    "ols response": lambda x: dp.ols(f"{term(x)} ~ z", table(x), of(x)),
    "ols weights": lambda x: dp.ols("y ~ z", table(x), of(x), weights=bare(x)),
    "ols quoted weights": lambda x: dp.ols("y ~ z", table(x), of(x), weights=term(x)),
    "ols effects": grouped(lambda x, d, s: dp.ols(f"y ~ z | {term(x)}", d, s)),
    "glm offset": lambda x: dp.glm("y ~ z", table(x), of(x), family="poisson", offset=term(x)),
    "poisson exposure": lambda x: dp.poisson("y ~ z", table(x), of(x), exposure=bare(x)),
    "negativebinomial": lambda x: dp.negativebinomial(f"y ~ {term(x)}", table(x), of(x), alpha=0.5),
    "logit": lambda x: dp.logit(f"y ~ {term(x)}", yes(x), of(x, y=UNIT)),
    "probit": lambda x: dp.probit(f"y ~ {term(x)}", yes(x), of(x, y=UNIT)),
    "mnlogit": lambda x: dp.mnlogit(f"g ~ {term(x)}", table(x), of(x)),
    "quantreg": lambda x: dp.quantreg(f"y ~ {term(x)}", table(x), of(x)),
    "mean": lambda x: dp.mean(x, table(x), of(x)),
    "mean subset": lambda x: dp.mean("y", table(x), of(x), subset=f"{term(x)} > 1.2"),
    "mean of a formula": lambda x: dp.mean(f"{term(x)} ~ 1", table(x), of(x)),
    "mean by": grouped(lambda x, d, s: dp.mean("y", d, s, by=x)),
    "mean by quoted": grouped(lambda x, d, s: dp.mean("y", d, s, by=term(x))),
    "ttest": grouped(lambda x, d, s: dp.ttest(f"y ~ {term(x)}", d, s)),
    "proportion": grouped(lambda x, d, s: dp.proportion(x, d, s)),
    "crosstab": grouped(lambda x, d, s: dp.crosstab(x, "g", d, s)),
    "corr": lambda x: dp.corr([x, "z"], table(x), of(x)),
    "variance": lambda x: dp.variance(x, table(x), of(x)),
    "quantile": lambda x: dp.quantile(x, table(x), of(x)),
    "histogram": lambda x: dp.histogram(x, table(x), of(x)),
    "gaussian_mixture": lambda x: dp.gaussian_mixture([x, "z"], table(x), of(x)),
    "mixture_ols": lambda x: dp.mixture_ols(f"y ~ {term(x)}", table(x), of(x)),
    "unit": lambda x: dp.ols(
        "y ~ z",
        {**table("x"), x: np.arange(N) // 2},
        dp.Schema({"z": UNIT, "y": dp.Numeric(1, 3)}, unit=x, max_rows=2),
    ),
}
CALLS: dict[str, Callable[[str, Any], Any]] = {
    "describe": lambda x, noise: dp.describe(table(x), of(x), PRIVACY, columns=[x], noise=noise),
    "check": lambda x, noise: dp.check(table(x), of(x), PRIVACY, columns=[x], noise=noise),
    "by": lambda x, noise: dp.by(x, dp.mean("y", *factor(x))).fit(PRIVACY, noise=noise),
    "private_range": lambda x, noise: dp.private_range(x, table(x), PRIVACY, noise=noise),
    "private_ranges": lambda x, noise: dp.private_ranges(table(x), of(x), PRIVACY, noise=noise),
}
ELSEWHERE = {"compare", "evaluate"}  # take names to show, or none: `test_hostile_names`


def numbers(fit: Any) -> Any:
    """What was released, without names."""
    estimate = fit.estimate
    values = getattr(estimate, "params", None)
    return np.asarray(fit.params if values is None else values)


def fitted(name: str, x: str) -> Any:
    privacy = dp.Central(20.0, 1e-5, rows=N) if name == "unit" else PRIVACY
    return MODELS[name](x).fit(privacy, noise=dp.SeededNoise(1))


@functools.cache
def tame_numbers(name: str) -> Any:
    return numbers(fitted(name, "tame"))


# Each model with one name by default, of which all take turns.
FIRST = [(name, NAMES[i % len(NAMES)]) for i, name in enumerate(MODELS)]
APART = {("ols less", "it's a `b`")}  # what `.` stands for is not named by Q("...")
REST = [(name, x) for name in MODELS for x in NAMES if (name, x) not in {*FIRST, *APART}]


@pytest.mark.parametrize(("name", "x"), grid([*FIRST, *REST], len(FIRST)))
def test_a_model_is_the_one_with_a_tame_name(name, x):
    np.testing.assert_array_equal(numbers(fitted(name, x)), tame_numbers(name))


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("x", NAMES)
def test_a_call_is_the_one_with_a_tame_name(name, x):
    made, tame = (CALLS[name](n, dp.SeededNoise(1)) for n in (x, "tame"))
    assert repr(made).count("\n") >= repr(tame).count("\n") - 2
    assert type(made) is type(tame)


@pytest.mark.parametrize("x", NAMES)
def test_after_a_fit_a_name_is_the_same_name(x, tmp_path: Path):
    """Hypotheses, predictions, files and plots."""
    fit, tame = (
        dp.ols(f"y ~ {term(n)} + z", table(n), of(n)).fit(PRIVACY, noise=dp.SeededNoise(1))
        for n in (x, "tame")
    )
    if "`" not in x:
        for text in ("{} = 1", "z = 2 * {}", "{} - z"):
            ours, theirs = fit.t_test(text.format(f"`{x}`")), tame.t_test(text.format("tame"))
            np.testing.assert_array_equal(ours.pvalue, theirs.pvalue)
            joint = [f.wald_test(text.format(n)) for f, n in ((fit, f"`{x}`"), (tame, "tame"))]
            assert joint[0].pvalue == joint[1].pvalue
        ours = fit.t_test([f"`{x}` = 1", "z"])
        assert ours.pvalue.shape == (2,)
    label = x if "`" not in x else str(fit.params.index[1])  # Q("..."), which may hold backticks
    assert fit.params[label] == tame.params["tame"]
    assert fit.conf_int(cols=[label]).shape == (1, 2)
    new = {"z": [0.5], "tame": [1.5], x: [1.5]}
    np.testing.assert_array_equal(fit.predict(new), tame.predict(new))
    fit.save(tmp_path / "fit.json")
    again = dp.load(tmp_path / "fit.json")
    np.testing.assert_array_equal(again.predict(new), tame.predict(new))
    assert list(again.params.index) == ["Intercept", label, "z"]
    plot.coefficients(fit, ax=Figure().subplots())
    assert fit.summary().as_text()


@pytest.mark.parametrize("x", NAMES)
def test_the_command_line_takes_any_name(x, tmp_path: Path, capsys):
    schema, data = tmp_path / "schema.json", tmp_path / "rows.csv"
    of(x).save(schema)
    pd.DataFrame(table(x)).to_csv(data, index=False)
    more = ["--schema", str(schema), "--epsilon", "20", "--delta", "1e-5"]
    charged = [*more, "--ledger", str(tmp_path / "a.ledger"), "--ledger-epsilon", "999"]
    charged += ["--ledger-delta", ".01"]
    assert main(["fit", f"y ~ {term(x)} + z", str(data), *charged]) == 0, capsys.readouterr()
    assert main(["fit", "y ~ z", str(data), "--weights", bare(x), *charged]) == 0
    assert main(["mean", f"{term(x)} ~ 1", str(data), *charged]) == 0
    assert main(["plan", f"y ~ . - {term(x)}", "--n", str(N), *more]) == 0
    capsys.readouterr()


def test_every_public_function_that_takes_names_is_here():
    takes = {"formula", "column", "columns", "index", "by", "weights", "offset", "exposure"}
    functions = {
        name
        for name in dp.__all__
        if name.islower()
        and inspect.isfunction(getattr(dp, name))
        and takes & set(inspect.signature(getattr(dp, name)).parameters)
    }
    there = {name.partition(" ")[0] for name in (*MODELS, *CALLS)} | ELSEWHERE
    assert sorted(functions - there) == []
