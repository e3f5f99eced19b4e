"""Fixed effects behind a bar are indicators of declared levels; what is none is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

import dpstats as dp
from dpstats.errors import FormulaError, SchemaError
from dpstats.models.effects import with_effects

LEVELS = [f"g{k}" for k in range(8)]
SCHEMA = dp.Schema(
    {
        "y": dp.Numeric(-20, 20, scale=2),
        "x": dp.Numeric(-6, 6, scale=1),
        "g": dp.Categorical(LEVELS),
        "h": dp.Boolean(),
        "a|b": dp.Categorical(["u", "v"]),
    }
)


def rows(n: int, seed: int = 0) -> pd.DataFrame:
    """Groups that x goes with, so that the slope without them would be 1.5."""
    rng = np.random.default_rng(seed)
    g, h = rng.integers(0, len(LEVELS), n), rng.random(n) < 0.5
    effect = rng.normal(size=len(LEVELS))[g]
    x = rng.normal(size=n) + effect
    y = 0.5 * x + 2 * effect + h + rng.normal(size=n)
    other = rng.choice(["u", "v"], n)
    return pd.DataFrame({"y": y, "x": x, "g": np.array(LEVELS)[g], "h": h, "a|b": other})


@pytest.mark.parametrize(
    ("formula", "written"),
    [
        ("y ~ x | g", "y ~ x + C(g)"),
        ("y ~ x|g+h", "y ~ x + C(g) + C(h)"),
        ("y ~ x | 0", "y ~ x"),
        ("y ~ 1 | g", "y ~ 1 + C(g)"),
        ("y ~ x", "y ~ x"),
        ("y ~ x + `a|b`", "y ~ x + `a|b`"),
        ("y ~ x | `a|b`", "y ~ x + C(Q('a|b'))"),
    ],
)
def test_what_stands_behind_a_bar_is_written_out(formula: str, written: str) -> None:
    assert with_effects(formula, SCHEMA) == written
    ours, theirs = (dp.ols(f, schema=SCHEMA, n=5000).design.names for f in (formula, written))
    assert ours == theirs


@pytest.mark.parametrize("kind", ["ols", "logit", "poisson", "probit", "quantreg"])
def test_every_regression_takes_them(kind: str) -> None:
    table = {"ols": SCHEMA["y"], "quantreg": SCHEMA["y"], "poisson": dp.Numeric(0, 20)}
    schema = dp.Schema(SCHEMA.replaced({"y": table.get(kind, dp.Boolean())}))
    model = getattr(dp, kind)("y ~ x | g", schema=schema, n=20_000)
    assert len(model.design.names) == 2 + len(LEVELS) - 1
    assert model.plan(dp.Central(1, 1e-6)).method == "newton"


def test_the_slope_is_that_within_groups() -> None:
    """Without groups it would be about 1.5, twenty standard errors off."""
    table = rows(20_000)
    fit = dp.ols("y ~ x | g + h", table, SCHEMA).fit(dp.Central(1, 1e-6), noise=dp.SeededNoise(1))
    within = table[["y", "x"]] - table.groupby(["g"])[["y", "x"]].transform("mean")
    theirs = smf.ols("y ~ x + C(g) + C(h)", table).fit()
    assert theirs.params["x"] == pytest.approx(smf.ols("y ~ x", within).fit().params["x"], abs=0.01)
    assert abs(fit.params["x"] - theirs.params["x"]) < 3 * fit.bse["x"]
    assert fit.bse["x"] < 3 * theirs.bse["x"]
    assert abs(smf.ols("y ~ x", table).fit().params["x"] - fit.params["x"]) > 20 * fit.bse["x"]
    assert "C(g)" not in str(dp.compare([fit], drop="C(g)"))
    assert "C(g)[T.g1]" in str(dp.compare([fit]))
    tests = fit.wald_test_terms(skip_single=True).summary_frame()
    assert tests.loc["C(g)", "P>chi2"] < 1e-6


def test_covariates_that_are_public_have_groups_too() -> None:
    model = dp.ols("y ~ x | g", rows(2000), SCHEMA)
    assert len(model.plan(dp.LabelOnly(1.0)).names) == 2 + len(LEVELS) - 1


def test_many_groups_are_not_selected_among() -> None:
    """Of more than 50 columns a default may select some, which leaves out asked-for groups."""
    schema = dp.Schema(SCHEMA.replaced({"g": dp.Categorical([f"g{k}" for k in range(120)])}))
    behind, before = (
        dp.ols(f, schema=schema, n=6000).plan(dp.Central(1, 1e-6))
        for f in ("y ~ x | g", "y ~ x + C(g)")
    )
    assert (behind.method, before.method) == ("newton", "omp")


@pytest.mark.parametrize(
    ("formula", "error", "words"),
    [
        ("y ~ x | k", SchemaError, "groups 'k' are not declared.*Categorical"),
        ("y ~ h | x", SchemaError, "'x' is declared Numeric.*Categorical"),
        ("y ~ x | g | h", FormulaError, "instrumental variables are not in this release"),
        ("y ~ x | g:h", FormulaError, "before the bar"),
        ("y ~ x | g ^ h", FormulaError, "before the bar"),
        ("y ~ x | g +", FormulaError, "before the bar"),
        ("y ~ x | 1", FormulaError, "before the bar"),
        ("y ~ x |", FormulaError, "before the bar"),
    ],
)
def test_what_is_no_group_is_refused_when_the_model_is_made(
    formula: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        dp.ols(formula, schema=SCHEMA, n=1000)


@pytest.mark.parametrize(
    "groups",
    [pytest.param(10, marks=pytest.mark.full), pytest.param(40, marks=pytest.mark.slow)],
)
def test_intervals_of_slopes_cover(groups: int) -> None:
    """Of 100 at 95 % fewer than 88 have probability .004; halved they would hold 67."""
    schema = dp.Schema(SCHEMA.replaced({"g": dp.Categorical([f"g{k}" for k in range(groups)])}))
    hits = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        g = rng.integers(0, groups, 20_000)
        effect = rng.normal(size=groups)[g]
        x = rng.normal(size=g.size) + effect
        table = {"y": 0.5 * x + effect + rng.normal(size=g.size), "x": x, "g": [f"g{k}" for k in g]}
        model = dp.ols("y ~ x | g", table, schema)
        low, high = model.fit(dp.Central(1, 1e-6), noise=dp.SeededNoise(seed)).conf_int().loc["x"]
        hits.append(low < 0.5 < high)
    assert np.mean(hits) >= 0.88
