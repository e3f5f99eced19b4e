"""What is said of directions that noise hides is what the released numbers leave open."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpstats as dp
from dpstats import SeededNoise
from dpstats.estimators.central.newton.robust.hidden import Hidden, drawn_in
from tests.grids import grid

DELTA = 1e-6


def one(seen: float, used: float, doubt: float) -> Hidden:
    return Hidden(np.eye(1), np.array([seen]), np.array([used]), doubt)


def posterior(hidden: Hidden, *values: float) -> tuple[float, float]:
    mean, variance = hidden.posterior(*(np.array([v]) for v in values))
    return float(mean[0]), float(variance[0])


@pytest.mark.parametrize("seen", [-50.0, 30.0, 120.0])
@pytest.mark.parametrize("step", [0.0, 0.4, -3.0])
def test_the_posterior_is_that_of_brute_force(seen: float, step: float) -> None:
    at, used, doubt, noise, prior = 0.3, 100.0, 60.0, 80.0, 0.5
    mean, variance = posterior(one(seen, used, doubt), at, step, noise, prior)
    c = np.linspace(1e-3, max(seen, 0) + 4 * doubt, 1_500)[:, None]
    b = np.linspace(-6 * prior**0.5, 6 * prior**0.5, 1_501)
    log = ((c - seen) / doubt) ** 2 + (used * step - c * (b - at)) ** 2 / noise + b**2 / prior
    log0 = (seen / doubt) ** 2 + (used * step) ** 2 / noise + b**2 / prior  # no curvature at all
    weight = np.exp((log0.min() - log) / 2)
    weight *= 2 * (c[1, 0] - c[0, 0]) / (7.5 * doubt)
    weight = np.vstack([np.exp((log0.min() - log0) / 2), weight])
    weight /= weight.sum()
    expected = float((weight * b).sum())
    assert mean == pytest.approx(expected, abs=2e-3)
    assert variance == pytest.approx(float((weight * (b - expected) ** 2).sum()), rel=0.01)


def test_a_curvature_that_is_known_gives_the_conjugate_posterior() -> None:
    mean, variance = posterior(one(100.0, 100.0, 0.05), 0.2, 0.5, 400.0, 2.0)
    precision = 100.0**2 / 400 + 1 / 2
    assert mean == pytest.approx(100 * (100 * 0.5 + 100 * 0.2) / 400 / precision, rel=1e-3)
    assert variance == pytest.approx(1 / precision, rel=1e-3)


def test_where_the_score_says_nothing_the_prior_is_all() -> None:
    mean, variance = posterior(one(50.0, 50.0, 20.0), 0.0, 0.1, 1e12, 3.0)
    assert abs(mean) < 1e-3
    assert variance == pytest.approx(3.0, rel=1e-3)


@pytest.mark.parametrize("doubt", [10.0, 40.0])
def test_what_is_reported_covers_in_its_own_model(doubt: float) -> None:
    rng = np.random.default_rng(1)
    reps, at, noise, prior = 20_000, 0.1, 30.0, 0.4
    c = np.where(rng.random(reps) < 1 / 3, 0.0, rng.uniform(0, 7.5 * doubt, reps))
    b = rng.normal(0, prior**0.5, reps)
    seen = rng.normal(c, doubt)
    score = c * (b - at) + rng.normal(0, noise**0.5, reps)
    used = np.maximum(seen, doubt)
    hidden = Hidden(np.ones((1, reps)), seen, used, doubt)
    full = np.full(reps, 1.0)
    mean, variance = hidden.posterior(at * full, score / used, noise * full, prior * full)
    z = ((b - mean) / np.sqrt(variance))[seen < 3.5 * doubt]
    assert float(np.mean(z**2)) == pytest.approx(1, abs=0.1)  # a quarter with twice the variance
    assert np.mean(np.abs(z) < 1.96) > 0.93
    assert np.mean(np.abs(z) < 1.96 / 2) < 0.85


def test_a_draw_keeps_within_the_prior_and_the_variance_counts_how_far_it_went() -> None:
    hidden = one(10.0, 60.0, 50.0)
    score = (np.zeros(1), np.array([4.0]), np.array([[200.0]]))
    prior = np.array([0.25])
    b, added = hidden.settle(np.array([4.0]), np.array([[0.05]]), score, prior)
    assert b[0] == pytest.approx(0.5)
    mean, variance = posterior(hidden, 0.0, 4.0, 200.0, 0.25)
    assert added[0] == pytest.approx(variance + (mean - 0.5) ** 2 - 0.05)


def test_a_direction_of_levels_is_theirs_alone() -> None:
    directions = np.array([[0.05, 0.8], [0.99, 0.0], [0.1, 0.6]])
    hidden = Hidden(directions, np.ones(2), np.ones(2), 1.0)
    effects, rare = hidden.effects(np.eye(3), np.array([0.0, 1.0, 1.0]))
    np.testing.assert_array_equal(rare, [True, False])
    np.testing.assert_array_equal(effects, [[0.0, 0.8], [0.99, 0.0], [0.0, 0.6]])


def test_a_direction_shared_by_many_levels_has_effects() -> None:
    level = np.ones((40, 1)) / np.sqrt(40)
    effects, rare = Hidden(level, np.ones(1), np.ones(1), 1.0).effects(np.eye(40), np.ones(40))
    assert not rare[0]
    np.testing.assert_array_equal(effects, level)


@pytest.mark.parametrize("kind", grid(["ols", "logit"], 1))
def test_many_levels_have_numbers(kind: str) -> None:
    schema = dp.Schema(g=dp.Categorical(list(range(40))), y=dp.Numeric(-5, 5), z=dp.Boolean())
    for seed in range(6):
        rng = np.random.default_rng(seed)
        data = {
            "g": rng.choice(40, 4_000),
            "y": rng.normal(size=4_000),
            "z": rng.random(4_000) < 0.5,
        }
        model = (
            dp.ols("y ~ C(g)", data, schema)
            if kind == "ols"
            else dp.logit("z ~ C(g)", data, schema)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            fit = model.fit(dp.Central(1.0, DELTA), noise=SeededNoise(seed))
        assert np.isfinite(fit.params).all()
        assert np.isfinite(fit.bse).all()


@pytest.mark.full
def test_a_column_that_hardly_varies_is_not_thought_to_be_known() -> None:
    # Its step is nothing, and so is its curvature: one over the other says nothing of it.
    wide = dp.Numeric(0, 100, scale=49)  # declared, so that none is found
    schema = dp.Schema(y=dp.Numeric(-8, 8, scale=7.9), x=wide, z=wide)
    hits, share = [], []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        x, z = rng.normal(5, 0.2, 5_000), rng.normal(50, 10, 5_000)
        y = 2.5 * (x - 5) + 0.05 * (z - 50) + rng.normal(size=5_000)
        model = dp.ols("y ~ x + z", {"y": y, "x": x, "z": z}, schema)
        fit = model.fit(dp.Central(1.0, DELTA), noise=SeededNoise(seed))
        low, high = fit.conf_int().loc["x"]
        hits.append(low < 2.5 < high)
        share.append(fit.privacy_share["x"])
    assert np.mean(hits) > 0.9
    assert np.median(share) > 0.9


def test_levels_are_drawn_in_and_others_stay() -> None:
    beta = drawn_in(np.array([5.0, 5.0, 1.0]), np.diag([1.0, 1.0, 3.0]), np.array([1, 2]), 1.0)
    np.testing.assert_allclose(beta, [5.0, 1.0, 0.25])


def table(seed: int, n: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x, g = rng.uniform(-1, 1, n), rng.choice(list("abc"), n)
    y = 1 + 0.5 * x + 0.8 * (g == "b") - 0.4 * (g == "c") + 0.5 * rng.normal(size=n)
    return {"y": y, "x": x, "g": g}


SCHEMA = dp.Schema(y=dp.Numeric(-4, 4), x=dp.Numeric(-1, 1), g=dp.Categorical(["a", "b", "c"]))


@pytest.mark.full
def test_standard_errors_of_a_factor_are_not_those_of_nothing_known() -> None:
    # Two thirds of these fits have a hidden direction; the median standard error once was 13 times
    # the error, and said to be of sampling.
    truth = pd.Series({"Intercept": 1.0, "g[T.b]": 0.8, "g[T.c]": -0.4, "x": 0.5})
    errors, bse, share = [], [], []
    for seed in range(60):
        model = dp.ols("y ~ x + g", table(seed, 1_000), SCHEMA)
        fit = model.fit(dp.Central(0.5, DELTA), noise=SeededNoise(seed))
        errors.append(fit.params - truth[fit.params.index])
        bse.append(fit.bse)
        share.append(fit.privacy_share)
        rest = np.diag(fit.cov_params()) - np.diag(fit.cov_privacy()) - np.diag(fit.cov_sampling())
        assert np.all(rest > -1e-12)
    error, se = pd.DataFrame(errors), pd.DataFrame(bse)
    levels = ["g[T.b]", "g[T.c]"]
    assert (np.abs(error) < 1.96 * se).to_numpy().mean() > 0.93
    assert np.all(se[levels].median() < 5 * (error[levels] ** 2).mean() ** 0.5)
    wide = (se[levels] > 0.5).to_numpy()
    assert wide.mean() > 0.1
    said = pd.DataFrame(share)[levels].to_numpy()[wide]
    assert said.min() > 0.8
    assert np.median(said) > 0.95
    assert any("noise" in w and "factor" in w for w in model.plan(dp.Central(0.5, DELTA)).warnings)
    assert not model.plan(dp.Central(2.0, DELTA)).warnings
