"""A direction that noise hides is said to be hidden, and spoils no coefficient but its own."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from numpy.typing import NDArray

import dpstats as dp
from dpstats import SeededNoise
from dpstats.errors import OptionError
from dpstats.estimators.central.newton.conclusion import Solution, conclude
from dpstats.estimators.central.newton.identification import (
    CLEAR,
    NOTHING,
    Faint,
    KnownDirections,
    likely_factor,
)
from dpstats.protocol.faint import fieller

DELTA = 1e-6
Array = NDArray[np.float64]


@pytest.mark.parametrize("seen", [2.5, 4.0, 30.0])
@pytest.mark.parametrize("score", [-3.0, 0.0, 8.0])
def test_the_set_of_fieller_is_that_of_a_test_at_every_point(seen: float, score: float) -> None:
    t = np.linspace(-60, 60, 2_000_001)
    kept = t[np.abs(score - seen * t) <= 1.959964 * np.sqrt(4.0 + t**2)]
    low, high = fieller(*(np.array([v]) for v in (score, seen, 1.0, 4.0)), NOTHING)
    assert low[0] == pytest.approx(kept[0], abs=1e-3)
    assert high[0] == pytest.approx(kept[-1], abs=1e-3)


@pytest.mark.parametrize("curvature", [0.0, 1.5, 4.0, 20.0])
def test_the_set_of_fieller_covers_whatever_the_curvature_is(curvature: float) -> None:
    rng, reps = np.random.default_rng(1), 100_000
    score = curvature * 0.7 + 0.5 * rng.normal(size=reps)
    seen = curvature + rng.normal(size=reps)
    low, high = fieller(score, seen, np.ones(reps), np.full(reps, 0.25), NOTHING)
    # What is not an interval holds it more often: never less than 95 %.
    covered = float(np.mean((low <= 0.7) & (high >= 0.7)))
    assert covered > 0.95 - 4 * np.sqrt(0.95 * 0.05 / reps)
    assert covered < (0.953 if curvature > 10 else 1.0)


@pytest.mark.parametrize("seen", [-1.5, 0.0, 1.9, 1.959964])
def test_a_score_off_none_says_on_which_side_a_coefficient_is(seen: float) -> None:
    """The near end is that of the test at every point, also where the slope may be none."""
    t = np.linspace(0, 60, 600_001)
    kept = t[np.abs(8.0 - seen * t) <= 1.959964 * np.sqrt(4.0 + t**2)]
    for sign in (1.0, -1.0):
        low, high = fieller(*(np.array([v]) for v in (sign * 8.0, seen, 1.0, 4.0)), NOTHING)
        near, far = (low, high) if sign > 0 else (-high, -low)
        assert np.isposinf(far[0])
        assert near[0] == pytest.approx(kept[0] if kept.size else np.inf, abs=1e-3)


def test_a_slope_that_may_be_none_says_nothing() -> None:
    for seen in (-5.0, 0.0, 1.95):
        low, high = fieller(*(np.array([v]) for v in (1.0, seen, 1.0, 1.0)), NOTHING)
        assert np.isneginf(low[0])
        assert np.isposinf(high[0])


@pytest.mark.parametrize("factor", [0.05, 0.4])
def test_the_likely_room_is_that_of_the_effects(factor: float) -> None:
    rng = np.random.default_rng(2)
    variances = rng.uniform(0.1, 2.0, 4_000)
    effects = rng.normal(size=4_000) * np.sqrt(3 * factor + variances)
    found = likely_factor(effects, variances, np.full(4_000, 3.0))
    assert found == pytest.approx(factor, rel=0.35)  # of a grid of steps of 1.33


def test_the_doubt_of_a_direction_is_that_of_noise_drawn() -> None:
    rng, d = np.random.default_rng(3), 4
    variances = rng.uniform(0.5, 2.0, (d, d))
    variances = (variances + variances.T) / 2
    values, basis = np.linalg.eigh(np.diag([1.0, 2.0, 900.0, 1000.0]) + 0.5)
    faint = Faint.in_noise(5.0, values, basis, variances)
    drawn = rng.normal(size=(20_000, d, d)) * np.sqrt(variances)
    drawn = np.triu(drawn) + np.swapaxes(np.triu(drawn, 1), 1, 2)
    along = np.einsum("ir,nij,jr->nr", faint.directions, drawn, faint.directions)
    np.testing.assert_allclose(along.std(axis=0), faint.doubt, rtol=0.03)


def test_what_noise_mixes_into_a_direction_touches_nothing() -> None:
    values = np.array([0.1, 50.0, 50.0])
    turned = np.array([[1.0, -0.02, 0.0], [0.02, 1.0, 0.0], [0.0, 0.0, 1.0]])
    basis = np.linalg.qr(turned)[0]
    faint = Faint.in_noise(5.0, values, basis, np.full((3, 3), 1.0))
    effects = faint.effects(np.eye(3), np.array([True]))
    np.testing.assert_allclose(np.abs(effects[:, 0]), [1.0, 0.0, 0.0], atol=1e-3)
    # What is known of one that is not hidden is passed on to all that it changes.
    np.testing.assert_allclose(
        faint.effects(np.eye(3), np.array([False])), faint.directions, atol=1e-12
    )
    clear = Faint.in_noise(5.0, values, basis, np.full((3, 3), 0.01))
    effects = clear.effects(np.eye(3), np.array([True]))
    np.testing.assert_allclose(np.abs(effects[1, 0]), 0.02, rtol=0.01)


def solution(bread: Array, step: Array, variance: float = 1e-4, spread: float = 100.0) -> Solution:
    d = step.size
    return Solution(
        at=np.zeros(d),
        step=step,
        bread=bread,
        variances=np.full((d, d), variance),
        meat=np.eye(d) * 9.0,
        noise=4.0,
        allowed=np.zeros((d, d)),
        level=float(np.trace(bread)) / d,
        spread=spread,
        start=np.zeros(d),
    )


def test_errors_along_a_faint_direction_are_as_large_as_they_are_said_to_be() -> None:
    """Scores near none, curvatures of 2.5 to 4 noises: squares of errors add up to variances.

    Those that Fieller's set alone would have are half of them.
    """
    rng, n, noise, room = np.random.default_rng(4), 400_000, 0.09, 4.0
    c = rng.uniform(0.0, 12.0, n)
    t = rng.normal(size=n) * np.sqrt(room / np.maximum(c, 1.0))
    score, seen = c * t + np.sqrt(noise) * rng.normal(size=n), c + rng.normal(size=n)
    kept = (seen > 2.5) & (seen < 4.0) & (np.abs(score) < 0.5)
    seen, score, one = seen[kept], score[kept], np.ones(int(kept.sum()))
    own = (noise + (score / seen) ** 2) / seen**2
    known = KnownDirections(
        0 * one, score / seen, score, noise * one, own, room / seen, 100 * room / seen
    )
    drawn, variance, _ = Faint(np.eye(1), seen, one, np.zeros((1, 1))).settled(known)
    low, high = fieller(score, seen, one, known.noise, NOTHING)
    short = (np.maximum(high - drawn, drawn - low) / NOTHING) ** 2
    squares = float(np.mean((drawn - t[kept]) ** 2))
    assert 0.85 < squares / variance.mean() < 1.15
    assert squares / short.mean() > 1.6


def test_faint_directions_that_noise_mixes_touch_what_they_span() -> None:
    """Two as faint as each other: only their plane is known, and it touches both columns."""
    values, turn = (
        np.array([0.1, 0.12, 100.0]),
        np.array([[0.8, -0.6, 0], [0.6, 0.8, 0], [0, 0, 1]]),
    )
    faint = Faint.in_noise(5.0, values, turn, np.full((3, 3), 0.01))
    effects = faint.effects(np.eye(3), np.array([True, True]))
    assert np.abs(effects[:2]).min() > 0.5
    assert not effects[2].any()


def test_a_surface_of_second_order_is_not_thought_to_be_known() -> None:
    """Uncentred squares and products are collinear: z was up to 175, with errors a tenth of
    the non-private ones.
    """
    rng, n = np.random.default_rng(1), 10_000
    a = rng.uniform(32, 42, n)
    b = rng.uniform(-124, -114, n) - (a - 37) * 0.8
    y = 12 + 0.05 * (a - 37) ** 2 - 0.03 * (b + 119) * (a - 37) + 0.3 * rng.normal(size=n)
    frame = pd.DataFrame({"a": a, "b": b, "y": y})
    schema = dp.Schema(a=dp.Numeric(32, 42), b=dp.Numeric(-128, -110), y=dp.Numeric(5, 20))
    formula = "y ~ a * b + I(a**2) + I(b**2)"
    theirs = smf.ols(formula, frame).fit(cov_type="HC1")
    for seed in range(4):
        fit = dp.ols(formula, frame, schema).fit(dp.Central(1.0, 1e-7), noise=SeededNoise(seed))
        off = (fit.params - theirs.params) / fit.bse
        assert off.abs().max() < 3
        assert "Not identified" in " ".join(fit.estimate.remarks)


def test_what_is_seen_clearly_is_a_newton_step_with_its_sandwich() -> None:
    bread = np.array([[40.0, 10.0], [10.0, 30.0]])
    step, w = np.array([0.5, -2.0]), np.array([[2.0, 0.0], [1.0, 1.0]])
    found = conclude(solution(bread, step), w, np.full(2, np.inf))
    inverse = np.linalg.inv(bread)
    np.testing.assert_allclose(found.params, w @ step, rtol=1e-4)
    np.testing.assert_allclose(found.cov_sampling, 9 * w @ inverse @ inverse @ w.T, rtol=1e-9)
    np.testing.assert_allclose(found.cov_privacy, 4 * w @ inverse @ inverse @ w.T, rtol=1e-9)
    np.testing.assert_allclose(found.cov, found.cov_sampling + found.cov_privacy, rtol=1e-3)
    assert found.short == 0
    assert not found.presumed.any()


def test_a_hidden_level_has_the_variance_presumed_and_leaves_the_others_alone() -> None:
    bread = np.diag([0.5, 40.0])
    made = solution(bread, np.array([0.0, -2.0]), variance=1.0, spread=1.0)
    effect = np.array([0.7, np.inf])
    found = conclude(made, np.eye(2), effect)
    assert found.cov[0, 0] == pytest.approx(0.49)
    assert found.presumed[0, 0] == pytest.approx(0.49, rel=0.05)
    assert found.cov[1, 1] < 0.02
    assert found.short == pytest.approx(CLEAR)


def ages(seed: int, n: int = 20_000) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    age = np.clip(17 + rng.gamma(2.2, 10, n), 17, 90)
    sex = rng.random(n) < 0.5
    y = 2 + 0.06 * (age - 17) - 0.0008 * (age - 17) ** 2 + 0.4 * sex + 0.5 * rng.normal(size=n)
    return {"age": age, "sex": sex, "y": y}


@pytest.mark.full
def test_a_column_that_is_nearly_empty_ruins_no_other() -> None:
    # Nobody is above 90 of 120: the last column of the basis is next to nothing.
    schema = dp.Schema(age=dp.Numeric(0, 120), sex=dp.Boolean(), y=dp.Numeric(-2, 10))
    bse, error = [], []
    for seed in range(12):
        model = dp.ols("y ~ bs(age, df=5) + sex", ages(seed), schema)
        fit = model.fit(dp.Central(1.0, DELTA), noise=SeededNoise(seed))
        name = next(v for v in fit.params.index if v.startswith("sex"))
        bse.append(fit.bse[name])
        error.append(fit.params[name] - 0.4)
        # One that is just seen is known to less than what would be presumed of it, and says so.
        assert "Not identified" in str(fit.summary()) or fit.bse.max() > 5
        assert np.isfinite(fit.pvalues[name])
    # The error without privacy is 0.007; standard errors once were 0.05 to 2.6.
    assert np.median(bse) < 0.04
    assert np.max(bse) < 0.2
    assert np.mean(np.abs(error) < 1.96 * np.array(bse)) > 0.9


def rare(seed: int, n: int, share: float) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x, z = rng.normal(size=n), rng.random(n) < share
    return {"x": x, "z": z, "y": 0.5 + 0.6 * x + z + rng.normal(size=n)}


RARE = dp.Schema(x=dp.Numeric(-6, 6, center=0, scale=1), z=dp.Boolean(), y=dp.Numeric(-8, 8))


@pytest.mark.full
def test_the_interval_of_a_rare_dummy_is_about_as_long_as_its_error() -> None:
    """And it ends before 0 in half of the fits, where a symmetric one did in a quarter."""
    half, error, held, found = [], [], [], []
    for seed in range(80):
        model = dp.ols("y ~ x + z", rare(seed, 5_000, 0.02), RARE)
        fit = model.fit(dp.Central(1.0, DELTA), noise=SeededNoise(seed))
        at = next(j for j, v in enumerate(fit.params.index) if v.startswith("z"))
        low, high = fit.conf_int().iloc[at]
        if at not in fit.table.not_identified:
            half.append((high - low) / 2)
        error.append(fit.params.iloc[at] - 1.0)
        held.append(low <= 1.0 <= high)
        found.append(fit.pvalues.iloc[at] < 0.05)
        assert found[-1] == (low > 0 or high < 0)
    # They once were 4.7 times the error, and 2.3 times while they were symmetric.
    assert np.median(half) < 1.8 * NOTHING * float(np.sqrt(np.mean(np.square(error))))
    assert np.mean(held) > 0.9
    assert np.mean(found) > 0.4


def test_what_is_not_identified_is_marked_and_not_tested() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = dp.ols("y ~ x + z", rare(0, 5_000, 0.001), RARE)
        fit = model.fit(dp.Central(0.5, DELTA), noise=SeededNoise(1))
    at = next(j for j, v in enumerate(fit.params.index) if v.startswith("z"))
    assert at in fit.table.not_identified
    assert np.isnan(fit.pvalues.iloc[at])
    assert np.isfinite(fit.pvalues["x"])
    text = str(fit.summary())
    assert text.index("Not identified") < text.index("coef")
    assert "identified" in next(line for line in text.splitlines() if line.startswith("z"))
    with pytest.raises(OptionError, match="No hypothesis about"):
        fit.t_test(np.eye(len(fit.params))[at])
    assert type(fit).from_dict(fit.to_dict()).table.not_identified == fit.table.not_identified


@pytest.mark.full
@pytest.mark.parametrize("kind", ["ols", "logit"])
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


def factor(seed: int, n: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x, g = rng.uniform(-1, 1, n), rng.choice(list("abc"), n)
    y = 1 + 0.5 * x + 0.8 * (g == "b") - 0.4 * (g == "c") + 0.5 * rng.normal(size=n)
    return {"y": y, "x": x, "g": g}


FACTOR = dp.Schema(y=dp.Numeric(-4, 4), x=dp.Numeric(-1, 1), g=dp.Categorical(["a", "b", "c"]))


@pytest.mark.full
def test_standard_errors_of_a_factor_are_not_those_of_nothing_known() -> None:
    # Two thirds of these fits have a hidden direction; the median standard error once was 13 times
    # the error, and said to be of sampling.
    truth = pd.Series({"Intercept": 1.0, "g[T.b]": 0.8, "g[T.c]": -0.4, "x": 0.5})
    errors, bse, share = [], [], []
    for seed in range(60):
        model = dp.ols("y ~ x + g", factor(seed, 1_000), FACTOR)
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


@pytest.mark.full
def test_hidden_coefficients_stay_where_ranges_say_that_they_may_be() -> None:
    """Two hundred rows: noise made up intercepts 40 times the range, and intervals 1,000 times."""
    rng = np.random.default_rng(3)
    x = rng.normal(50, 12, 200)
    y = np.clip(0.4 * x + rng.normal(0, 5, 200), 0, 100)
    data = pd.DataFrame({"y": y, "x": np.clip(x, 0, 100)})
    plain = smf.ols("y ~ x", data).fit().params
    model = dp.ols("y ~ x", data, dp.Schema(y=dp.Numeric(0, 100), x=dp.Numeric(0, 100)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fits = [model.fit(dp.Central(0.5, DELTA), noise=SeededNoise(k)) for k in range(60)]
    off = np.array([fit.params - plain for fit in fits])
    # Nothing is found: the slope is at most some ten times what ranges of both would give.
    assert np.mean([len(fit.table.not_identified) == 2 for fit in fits]) > 0.6
    assert np.abs(off[:, 1]).max() < 20
    assert np.sqrt(np.mean(off[:, 1] ** 2)) < 4
    held = np.abs(off) <= NOTHING * np.array([fit.bse for fit in fits])
    assert held.mean() > 0.93
    assert max(fit.bse["x"] for fit in fits) < 15
