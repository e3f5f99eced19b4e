"""Responses that are mostly 0: rare counts, amounts, and answers that a linear model explains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf

import dpstats as dp
from dpstats.estimators.central.newton import likelihood
from tests.grids import grid

N = 20_000
SCHEMA = dp.Schema(a=dp.Numeric(-1, 1), b=dp.Numeric(-1, 1), y=dp.Numeric(0, 1))


def rows(kind: str, share: float, seed: int) -> pd.DataFrame:
    """Two columns, and a response of which about this share is not 0 and hangs on the first."""
    rng = np.random.default_rng([seed, 26])
    a, b = rng.uniform(-1, 1, (2, N))
    if kind == "count":
        return pd.DataFrame({"a": a, "b": b, "y": rng.poisson(share * np.exp(0.8 * a)) * 1.0})
    event = rng.uniform(size=N) < share * (1 + 0.5 * a)
    amounts = np.minimum(rng.lognormal(1, 0.6, N), 30) if kind == "amount" else 1.0
    return pd.DataFrame({"a": a, "b": b, "y": event * amounts})


def off(kind: str, share: float, fits: int, **options: Any) -> tuple[np.ndarray, float, int]:
    """Distances to statsmodels in its standard errors, share of intervals that hold, warnings."""
    away, held, warned = [], [], 0
    top = {"count": 20, "amount": 30, "answer": 1}[kind]
    schema = dp.Schema({**SCHEMA, "y": dp.Numeric(0, top)})
    for seed in range(fits):
        df = rows(kind, share, seed)
        privacy, noise = dp.Central(1.0, 1e-6), dp.SeededNoise(seed)
        if kind == "count":
            plain = smf.glm("y ~ a + b", df, family=sm.families.Poisson()).fit(cov_type="HC0")
            model = dp.poisson("y ~ a + b", df, schema)
        else:
            plain = smf.ols("y ~ a + b", df).fit(cov_type="HC1")
            model = dp.ols("y ~ a + b", df, schema)
        fit = model.fit(privacy, noise=noise, **options)
        low, high = fit.conf_int().to_numpy().T
        params = plain.params.to_numpy()
        away.append((fit.params.to_numpy() - params) / plain.bse.to_numpy())
        held.append((low <= params) & (params <= high))
        warned += bool(fit.estimate.remarks)
    return np.array(away), float(np.mean(held)), warned


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "share", "rms"),
    grid(
        [("answer", 0.05, 2.0), ("count", 0.1, 1.5), ("count", 0.05, 1.8), ("amount", 0.12, 1.8)], 2
    ),
)
def test_events_are_not_lost_where_most_rows_have_none(
    kind: str, share: float, rms: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the clip of most scores they were: errors of 10 to 30, of answers without a word."""
    away, held, warned = off(kind, share, 6)
    assert np.sqrt(np.mean(away**2)) < rms
    assert held >= 0.94
    assert warned <= 2

    monkeypatch.setattr(likelihood, "LONG", 0.0)  # no clip for the sake of an event
    without, _, _ = off(kind, share, 6)
    assert np.sqrt(np.mean(without**2)) > 3 * rms


@pytest.mark.parametrize("kind", ["answer", "count"])
def test_events_of_weighted_rows_are_not_lost(kind: str) -> None:
    """Errors were 15 (a 0/1, without a word) and 51 where early clips were those of most rows."""
    top = 20 if kind == "count" else 1
    weight = {"w": dp.Numeric(0, 5)}
    schema = dp.Schema({**SCHEMA, "y": dp.Numeric(0, top), **weight})
    away = []
    for seed in range(3):
        df = rows(kind, 0.1 if kind == "count" else 0.05, seed)
        df["w"] = np.random.default_rng(seed).choice([0.2, 1.0, 2.0], N)
        if kind == "count":
            law = sm.families.Poisson()
            plain = smf.glm("y ~ a + b", df, family=law, var_weights=df["w"]).fit(cov_type="HC0")
            model = dp.glm("y ~ a + b", df, schema, family="poisson", weights="w")
        else:
            plain = smf.wls("y ~ a + b", df, weights=df["w"]).fit(cov_type="HC1")
            model = dp.ols("y ~ a + b", df, schema, weights="w")
        fit = model.fit(dp.Central(1.0, 1e-6), noise=dp.SeededNoise(seed))
        away.append((fit.params.to_numpy() - plain.params.to_numpy()) / plain.bse.to_numpy())
    assert np.sqrt(np.mean(np.square(away))) < 3


@pytest.mark.full
def test_rare_counts_of_a_bounded_regression() -> None:
    away, held, _ = off("count", 0.1, 4, target="robust")
    assert np.sqrt(np.mean(away**2)) < 2
    assert held > 0.9


def test_a_declared_scale_that_most_responses_contradict_is_said() -> None:
    """They may be mostly 0, or the scale is too large: only the second is a mistake."""
    df = rows("answer", 0.05, 0)
    rng = np.random.default_rng(5)
    other = df.assign(y=df["a"] + rng.normal(size=N))
    texts = []
    for table, response in (
        (df, dp.Numeric(0, 1, center=0.05, scale=0.2)),
        (other, dp.Numeric(-1e4, 1e4, center=0, scale=100)),
        (other, dp.Numeric(-1e4, 1e4, center=0, scale=2)),
        (df, dp.Numeric(0, 1)),
    ):
        schema = dp.Schema({**SCHEMA, "y": response})
        fit = dp.ols("y ~ a + b", table, schema).fit(dp.Central(1.0, 1e-6), noise=dp.SeededNoise(1))
        texts.append("nearly equal" in str(fit.summary()))
    assert texts == [True, True, False, False]


def test_nothing_is_made_of_a_scale_that_could_not_be_found() -> None:
    """One row in 100 is 1, and the range is 2,000 wide: what noise takes for a scale is 170."""
    df = rows("answer", 0.01, 0)
    schema = dp.Schema({**SCHEMA, "y": dp.Numeric(-1000, 1000)})
    fit = dp.ols("y ~ a + b", df, schema).fit(dp.Central(1.0, 1e-6), noise=dp.SeededNoise(0))
    assert "The scale of 'y' could not be found" in str(fit.summary())
    assert fit.params.abs().max() < 0.1  # 2 and more in units of that scale
    assert fit.bse.max() < 0.1


@pytest.mark.full
def test_answers_explained_by_a_linear_model_where_rows_are_public() -> None:
    """No score is longer than its row times the range: nothing lies beyond a clip at that."""
    schema = dp.Schema({**SCHEMA, "y": dp.Numeric(0, 1)})
    for share in (0.3, 0.12):
        away = []
        for seed in range(4):
            df = rows("answer", share, seed)
            plain = smf.ols("y ~ a + b", df).fit(cov_type="HC1")
            fit = dp.ols("y ~ a + b", df, schema).fit(
                dp.LabelOnly(1.0, 1e-6, curator=True), noise=dp.SeededNoise(seed)
            )
            away.append((fit.params.to_numpy() - plain.params.to_numpy()) / plain.bse.to_numpy())
        assert np.sqrt(np.mean(np.square(away))) < 1  # 5 and 9 with a clip at half of that


def test_a_selection_of_columns_says_that_most_responses_are_equal() -> None:
    """With 100 columns: the intercept was nothing, without a word; it is the share of events."""
    rng, d = np.random.default_rng(3), 100
    x = rng.uniform(-1, 1, (N, d))
    names = [f"x{j}" for j in range(d)]
    schema = dp.Schema(dict.fromkeys(names, dp.Numeric(-1, 1)), y=dp.Numeric(0, 1))
    table = pd.DataFrame(x, columns=names)
    formula = "y ~ " + " + ".join(names)

    def fitted(share: float) -> Any:
        y = (rng.uniform(size=N) < share).astype(float)
        model = dp.ols(formula, table.assign(y=y), schema)
        return model.fit(dp.Central(4.0, 1e-6), method="omp", noise=dp.SeededNoise(1))

    rare, usual = fitted(0.08), fitted(0.5)
    assert "Most responses are nearly equal" in str(rare.summary())
    assert "nearly equal" not in str(usual.summary())
    assert rare.params["Intercept"] == pytest.approx(0.08, abs=0.04)


@pytest.mark.parametrize("kind", ["0/1", "1 to 5"])
def test_a_lasso_on_randomised_answers_undoes_no_clip_that_does_nothing(kind: str) -> None:
    """Half of answers at each end look like those of normal responses far wider than the range.

    Slopes of a 0/1 were forty times too large, of answers from 1 to 5 a fifth too small.
    """
    rng, n, d = np.random.default_rng(4), 10_000, 100
    x = rng.uniform(-1, 1, (n, d))
    names = [f"x{j}" for j in range(d)]
    if kind == "0/1":
        y, ends = (rng.uniform(size=n) < 0.5 + 0.3 * x[:, 0] - 0.15 * x[:, 1]) * 1.0, (0, 1)
    else:
        y, ends = np.round(3 + x[:, 0] - 0.7 * x[:, 1] + 0.8 * rng.normal(size=n)), (1, 5)
    y = np.clip(y, *ends)
    plain = np.linalg.lstsq(np.column_stack([np.ones(n), x[:, :2]]), y, rcond=None)[0]
    schema = dp.Schema(dict.fromkeys(names, dp.Numeric(-1, 1)), y=dp.Numeric(*ends))
    table = pd.DataFrame(x, columns=names).assign(y=y)
    model = dp.ols("y ~ " + " + ".join(names), table, schema)
    fit = model.fit(dp.LabelOnly(2.0, 1e-6), method="label-lasso", noise=dp.SeededNoise(2))
    found = fit.params[["Intercept", "x0", "x1"]].to_numpy()
    np.testing.assert_allclose(found, plain, atol=0.12 * (ends[1] - ends[0]) / 2)
