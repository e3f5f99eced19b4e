"""AdaSSP: equals least squares without noise, is as accurate as its benchmark, and covers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpstats.accounting import delta_of
from dpstats.errors import OptionError
from dpstats.estimators.central.published.adassp import AdaSSP
from dpstats.estimators.central.sandwich import symmetric_noise_square
from dpstats.privacy import Central
from tests.estimators.ols_cases import DELTA, design, fit, ran_as_planned, rows, simulate


def test_a_large_epsilon_gives_least_squares() -> None:
    x, y, _ = rows(np.random.default_rng(1), 4000, 4)
    shape = design(4)
    plan = AdaSSP().plan(shape, Central(1e7, DELTA), 4000, radius=10.0)  # no row is weighted down
    params, cov, _ = fit(AdaSSP(), x, y, plan, 0, shape)
    ols = np.linalg.lstsq(x, y, rcond=None)[0]
    bread = np.linalg.inv(x.T @ x)
    scores = x * (y - x @ ols)[:, None]
    robust = bread @ (scores.T @ scores) @ bread * 4000 / (4000 - 4)
    assert params == pytest.approx(ols, rel=2e-4)
    assert np.diag(cov) == pytest.approx(np.diag(robust), rel=2e-2)  # statsmodels' HC1


@pytest.mark.parametrize(
    ("d", "n", "epsilon", "bar"),
    [  # best AdaSSP column of the benchmark table, +20 % for its 5 repetitions
        (5, 10_000, 1.0, 0.033),
        (2, 1_000, 1.0, 0.12),
    ],
)
def test_error_is_at_or_below_the_benchmark(d: int, n: int, epsilon: float, bar: float) -> None:
    assert np.median(simulate(AdaSSP(), d, n, epsilon, 30, seed=2).errors) < 1.2 * bar


def test_predicted_se_is_what_is_measured() -> None:
    # Response with the spread that the plan guesses: a quarter of its half-range, twice.
    cell = simulate(AdaSSP(), 5, 5_000, 1.0, 40, seed=3, sd=0.875, norm=0.875 * math.sqrt(3))
    assert 1 / 1.5 < cell.prediction < 1.5
    assert float(np.mean(cell.se)) == pytest.approx(cell.rmse, rel=0.25)


def test_what_ran_is_what_was_planned_and_paid() -> None:
    x, y, _ = rows(np.random.default_rng(4), 2000, 3)
    shape = design(3)
    plan = AdaSSP().plan(shape, Central(0.7, DELTA), 2000)
    _, _, (estimate, holder) = fit(AdaSSP(), x, y, plan, 0, shape)
    assert ran_as_planned(holder, plan)
    assert delta_of(plan.events, 0.7) <= DELTA
    assert np.all(np.diag(estimate.cov_privacy) <= np.diag(estimate.cov))


def test_add_remove_neighbours_hide_the_number_of_rows() -> None:
    x, y, _ = rows(np.random.default_rng(5), 5000, 3)
    shape = design(3)
    privacy = Central(1.0, DELTA, neighbors="add-remove", rows=4000)
    plan = AdaSSP().plan(shape, privacy, 4000)
    params, _, (estimate, holder) = fit(AdaSSP(), x, y, plan, 0, shape)
    sensitivity = {r.slot: r.sensitivity for r in holder.transcript}
    assert sensitivity["gram"] == pytest.approx(plan.options["radius"] ** 2)
    assert estimate.nobs not in (4000, 5000)
    assert estimate.nobs == pytest.approx(5000, abs=300)
    assert np.all(np.isfinite(params))


def test_replace_one_sensitivities_are_the_corrected_ones() -> None:
    x, y, _ = rows(np.random.default_rng(6), 500, 3)
    shape = design(3)
    plan = AdaSSP().plan(shape, Central(1.0, DELTA), 500)
    _, _, (_, holder) = fit(AdaSSP(), x, y, plan, 0, shape)
    radius = plan.options["radius"]
    sensitivity = {r.slot: r.sensitivity for r in holder.transcript}
    assert sensitivity["gram"] == pytest.approx(math.sqrt(2) * radius**2)
    assert sensitivity["cross"] == pytest.approx(2 * radius)  # |y| <= 1 in internal units
    assert sensitivity["eigenvalue"] == pytest.approx(radius**2)


def test_symmetric_noise_square_matches_simulation() -> None:
    rng = np.random.default_rng(7)
    p = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 0.2]])
    draws = rng.normal(size=(100_000, 3, 3))
    noise = (draws + draws.transpose(0, 2, 1)) / 2  # diagonal sd 1, off-diagonal sd 1/sqrt(2)
    mean = np.einsum("kij,jl,klm->im", noise, p, noise) / len(noise)
    assert mean == pytest.approx(symmetric_noise_square(1.0, p), abs=0.04)


def test_the_plan_warns_of_a_ridge_and_names_the_n_that_would_do() -> None:
    shape = design(20)
    plan = AdaSSP().plan(shape, Central(0.5, DELTA), 1000)
    assert any("ridge" in w and "rows" in w for w in plan.warnings)
    assert not AdaSSP().plan(shape, Central(1.0, DELTA), 200_000).warnings


@pytest.mark.parametrize(
    ("options", "delta", "match"),
    [
        ({"radius": -1.0}, DELTA, "radius"),
        ({"radius": "wide"}, DELTA, "radius"),
        ({"step": 3}, DELTA, "no option 'step'"),
        ({}, 0.0, "delta > 0"),
    ],
)
def test_bad_options_are_refused_in_the_plan(options, delta, match) -> None:
    with pytest.raises(OptionError, match=match):
        AdaSSP().plan(design(2), Central(1.0, delta), 1000, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("d", "n", "epsilon"), [(5, 2_000, 1.0), (20, 10_000, 1.0), (5, 20_000, 5.0)]
)
def test_intervals_cover(d: int, n: int, epsilon: float) -> None:
    # 200 fits x d coefficients: a true 95 % strays beyond 3 points with probability < 1e-3.
    assert simulate(AdaSSP(), d, n, epsilon, 200, seed=8).coverage == pytest.approx(0.95, abs=0.03)
