"""DP-GD: reaches the Huber estimate without noise, beats its benchmark, and covers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import least_squares

from dpstats.accounting import delta_of
from dpstats.design import DeclaredDesign
from dpstats.errors import OptionError
from dpstats.estimators.central.published.dp_gd import DPGD, asks_of, guessed_clips, loss_of
from dpstats.estimators.central.published.recursion import after_steps
from dpstats.estimators.central.sandwich import shrink
from dpstats.holders import Curator
from dpstats.mechanisms.noise import SeededNoise
from dpstats.privacy import Central
from dpstats.schema import Numeric, Schema
from tests.estimators.ols_cases import (
    DELTA,
    Y_BOUND,
    design,
    fit,
    ran_as_planned,
    rows,
    simulate,
)


def test_a_large_epsilon_gives_the_huber_estimate_at_the_released_clip() -> None:
    x, y, _ = rows(np.random.default_rng(1), 4000, 4)
    shape = design(4)
    plan = DPGD().plan(shape, Central(1e7, DELTA), 4000, radius=10.0, steps=60)
    params, _, (estimate, _) = fit(DPGD(), x, y, plan, 0, shape)
    clip = estimate.released["clip"] * Y_BOUND
    huber = least_squares(lambda b: y - x @ b, np.zeros(4), loss="huber", f_scale=clip).x
    assert params == pytest.approx(huber, abs=2e-4)


def test_a_large_epsilon_and_exact_data_give_least_squares() -> None:
    x, y, beta = rows(np.random.default_rng(2), 4000, 4, sd=0.0)
    shape = design(4)
    plan = DPGD().plan(shape, Central(1e7, DELTA), 4000, radius=10.0, steps=60)
    assert fit(DPGD(), x, y, plan, 0, shape)[0] == pytest.approx(beta, abs=1e-3)


@pytest.mark.full
@pytest.mark.parametrize(
    ("d", "n", "epsilon", "bar"),
    [  # 'DP-GD T=10' of the benchmark table, better column, +20 %
        (5, 10_000, 1.0, 0.015),
        (2, 1_000, 1.0, 0.04),
        (5, 1_000, 1.0, 0.10),
        (20, 10_000, 1.0, 0.035),
    ],
)
def test_error_is_at_or_below_the_benchmark(d: int, n: int, epsilon: float, bar: float) -> None:
    assert np.median(simulate(DPGD(), d, n, epsilon, 30, seed=3).errors) < 1.2 * bar


@pytest.mark.full
def test_predicted_se_is_what_is_measured() -> None:
    # Response with the spread that the plan guesses: a quarter of its half-range, twice.
    cell = simulate(DPGD(), 5, 5_000, 1.0, 40, seed=4, sd=0.875, norm=0.875 * math.sqrt(3))
    assert 1 / 1.5 < cell.prediction < 1.5
    assert float(np.mean(cell.se)) == pytest.approx(cell.rmse, rel=0.25)


def test_what_ran_is_what_was_planned_and_paid() -> None:
    x, y, _ = rows(np.random.default_rng(5), 2000, 3)
    shape = design(3)
    plan = DPGD().plan(shape, Central(0.7, DELTA), 2000)
    _, _, (estimate, holder) = fit(DPGD(), x, y, plan, 0, shape)
    assert ran_as_planned(holder, plan)
    assert delta_of(plan.events, 0.7) <= DELTA
    assert np.all(np.diag(estimate.cov_privacy) <= np.diag(estimate.cov))


def test_step_budgets_make_the_last_noise_that_of_one_release() -> None:
    asks = [a for a in asks_of(loss_of("ols"), 30, 0.75) if a.slot.startswith("step-")]
    budgets = np.array([a.weight for a in asks]) / sum(a.weight for a in asks)
    pull = np.array([0.25])
    left, variance = after_steps(pull, pull[0] / np.sqrt(budgets))
    assert variance[0] == pytest.approx((1 - left[0]) ** 2)  # one release of budget 1: variance 1
    uniform = after_steps(pull, np.full(30, pull[0] * math.sqrt(30)))[1]
    assert uniform[0] > 3 * variance[0]


def test_a_plan_expects_a_new_clip_where_the_fit_releases_one() -> None:
    x, y, _ = rows(np.random.default_rng(5), 20_000, 3)
    shape, loss = design(3), loss_of("ols")
    plan = DPGD().plan(shape, Central(1.0, DELTA), 20_000, steps=14)
    expected = guessed_clips(plan, loss.guess(shape), loss)
    _, _, (_, holder) = fit(DPGD(), x, y, plan, 0, shape)
    asked = [r for r in holder.transcript if r.slot.startswith("step-")]
    released = [float(r.parameters["clip"]) for r in asked]
    assert len(expected) == len(released) == 14
    assert np.array_equal(np.diff(expected) != 0, np.diff(released) != 0)


def test_noise_recursion_matches_simulation() -> None:
    rng = np.random.default_rng(6)
    scales = [3.0, 2.0, 1.0]
    error = np.zeros(200_000)
    for s in scales:
        error = (1 - 0.4) * error + s * rng.normal(size=error.size)
    assert after_steps(np.array([0.4]), scales)[1][0] == pytest.approx(error.var(), rel=0.02)


@pytest.mark.parametrize("scale", [0.01, 0.3])
def test_shrinking_a_noisy_gram_brings_it_closer(scale: float) -> None:
    rng = np.random.default_rng(7)
    true = np.eye(8) / 3
    before, after = [], []
    for _ in range(50):
        draw = rng.normal(size=(8, 8)) * scale
        noisy = true + (draw + draw.T) / 2
        before.append(np.linalg.norm(noisy - true))
        after.append(np.linalg.norm(shrink(noisy, scale) - true))
    assert np.mean(after) < 0.7 * np.mean(before)


def test_steps_do_not_overshoot_strongly_correlated_columns() -> None:
    rng = np.random.default_rng(8)
    x, _, beta = rows(rng, 20_000, 5)
    x = 0.95 * x[:, :1] + 0.05 * x  # condition number above 1000
    y = x @ beta + 0.5 * rng.normal(size=len(x))
    shape = design(5)
    plan = DPGD().plan(shape, Central(1.0, DELTA), len(x))
    params, cov, _ = fit(DPGD(), x, y, plan, 0, shape)
    common = np.full(5, 1 / math.sqrt(5))
    assert params @ common == pytest.approx(beta @ common, abs=0.1)
    assert np.linalg.norm(params) < 5
    assert np.all(np.linalg.eigvalsh(cov) > 0)


def test_several_rows_per_person_hide_the_number_of_rows() -> None:
    rng = np.random.default_rng(9)
    x, y, beta = rows(rng, 20_000, 1)
    schema = Schema(y=Numeric(-Y_BOUND, Y_BOUND), x=Numeric(-1, 1), unit="person", max_rows=2)
    table = {"y": y, "x": x[:, 0], "person": np.repeat(np.arange(10_000), 2)}
    shape = DeclaredDesign.from_formula("y ~ x", schema)
    plan = DPGD().plan(shape, Central(2.0, DELTA, rows=15_000), 15_000)
    holder = Curator(shape.source(table), shape, plan, SeededNoise(1))
    estimate = DPGD().fit(holder, shape, plan)
    params, _ = shape.standardization.to_user(estimate.params, estimate.cov)
    assert estimate.nobs == pytest.approx(20_000, abs=500)
    assert params == pytest.approx([0.0, beta[0]], abs=0.1)


def test_the_plan_warns_where_n_is_too_small_and_names_the_n_that_would_do() -> None:
    shape = design(20)
    small = DPGD().plan(shape, Central(0.5, DELTA), 1000)
    assert any("About n=" in w for w in small.warnings)
    assert not DPGD().plan(shape, Central(1.0, DELTA), 100_000).warnings
    short = DPGD().plan(shape, Central(1.0, DELTA), 100_000, steps=3)
    assert any("3 steps do not reach" in w for w in short.warnings)


@pytest.mark.parametrize(
    ("options", "delta", "match"),
    [
        ({"steps": 2}, DELTA, "steps=2"),
        ({"steps": 10.5}, DELTA, "steps"),
        ({"radius": 0}, DELTA, "radius"),
        ({"clip": 3}, DELTA, "no option 'clip'"),
        ({}, 0.0, "delta > 0"),
    ],
)
def test_bad_options_are_refused_in_the_plan(options, delta, match) -> None:
    with pytest.raises(OptionError, match=match):
        DPGD().plan(design(2), Central(1.0, delta), 1000, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("d", "n", "epsilon"), [(5, 1_000, 1.0), (5, 10_000, 1.0), (20, 10_000, 0.5), (5, 20_000, 5.0)]
)
def test_intervals_cover(d: int, n: int, epsilon: float) -> None:
    # 200 fits x d coefficients: a true 95 % strays beyond 3 points with probability < 1e-3.
    assert simulate(DPGD(), d, n, epsilon, 200, seed=10).coverage == pytest.approx(0.95, abs=0.03)
