"""Adaptive clipping on batches: the corrections hold, the clips adapt, the plan warns."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpstats.accounting import delta_of
from dpstats.accounting.events import Laplace
from dpstats.design import DeclaredDesign
from dpstats.errors import OptionError
from dpstats.estimators.central.published.adaptive_clipping_gd import AdaptiveClippingGD, _law
from dpstats.estimators.private_variance import (
    adapted_clip,
    log_factor,
    pair_scales,
)
from dpstats.holders import Curator
from dpstats.mechanisms.noise import SeededNoise
from dpstats.privacy import Central
from dpstats.protocol import Mechanism, Plan
from dpstats.schema import Numeric, Schema
from tests.estimators.ols_cases import DELTA, design, fit, ran_as_planned, rows, simulate

METHOD = AdaptiveClippingGD()


def test_a_large_epsilon_and_exact_data_give_least_squares() -> None:
    x, y, beta = rows(np.random.default_rng(1), 20_000, 3, sd=0.0)
    shape = design(3)
    plan = METHOD.plan(shape, Central(1e6, DELTA), 20_000)
    assert fit(METHOD, x, y, plan, 0, shape)[0] == pytest.approx(beta, abs=1e-3)


def test_a_large_epsilon_is_within_sampling_error_of_least_squares() -> None:
    x, y, _ = rows(np.random.default_rng(2), 50_000, 3)
    shape = design(3)
    plan = METHOD.plan(shape, Central(1e6, DELTA), 50_000)
    params, cov, _ = fit(METHOD, x, y, plan, 0, shape)
    ols = np.linalg.lstsq(x, y, rcond=None)[0]
    assert np.all(np.abs(params - ols) < 4 * np.sqrt(np.diag(cov)))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_pairs_of_either_sign_are_counted(sign: float) -> None:
    n = 2000
    y = np.tile([0.0, sign * 0.5], n // 2)
    shape = design(1, y_bound=1.0)
    event = Laplace(1e-6)
    plan = Plan(
        "ols", "t", Central(1.0, DELTA), n, ("x",), (Mechanism("p", event, ""),), (1, DELTA)
    )
    holder = Curator(shape.source((y, np.zeros((n, 1)))), shape, plan, SeededNoise(0))
    counts = holder.ask(pair_scales(np.zeros(1), 1.0), "p").value
    assert counts.sum() == pytest.approx(n / 2, abs=0.1)
    # As printed, positive differences only, one of the two signs would lose every pair.


def test_the_clip_covers_residuals_and_falls_back_without_a_full_cell() -> None:
    factor = log_factor(100_000)
    pairs = pair_scales(np.zeros(2), 1.0)
    sd = 0.01
    draws = np.abs(np.random.default_rng(3).normal(0, math.sqrt(2) * sd, 5000))
    cells = np.clip(np.ceil(np.log2(draws)).astype(int) - pairs.low, 0, pairs.high - pairs.low)
    counts = np.bincount(cells, minlength=pairs.high - pairs.low + 1).astype(float)
    clip = adapted_clip(counts, pairs, 1.0, 10, factor, bound=1.0)
    assert sd / math.sqrt(2) <= clip / factor <= 8 * sd  # (44) of the paper
    assert adapted_clip(np.zeros_like(counts), pairs, 1.0, 10, factor, bound=1.0) == 1.0
    assert adapted_clip(counts, pairs, 1e6, 10, factor, bound=1.0) == 1.0


def test_clips_shrink_where_the_declared_range_is_wide() -> None:
    shape = design(2, y_bound=50.0)
    x, y, beta = rows(np.random.default_rng(4), 200_000, 2)
    plan = METHOD.plan(shape, Central(2.0, DELTA), 200_000)
    params, _, (estimate, _) = fit(METHOD, x, y, plan, 1, shape)
    clips = estimate.released["clips"]
    assert estimate.released["batches at the public bound"] == 0
    assert clips[-1] < clips[0] < 1.0
    assert params == pytest.approx(beta, abs=0.1)


def test_batches_are_disjoint_and_all_of_them_cost_one_mechanism() -> None:
    x, y, _ = rows(np.random.default_rng(5), 3000, 2)
    shape = design(2)
    plan = METHOD.plan(shape, Central(1.0, DELTA), 3000, steps=6)
    _, _, (estimate, holder) = fit(METHOD, x, y, plan, 0, shape)
    assert ran_as_planned(holder, plan)
    assert [m.parts for m in plan.mechanisms if m.slot in ("pairs", "step")] == [6, 6]
    assert delta_of(plan.events, 1.0) <= DELTA  # six batches, each event once
    assert np.all(np.diag(estimate.cov_privacy) <= np.diag(estimate.cov))


@pytest.mark.full
def test_more_accurate_than_the_printed_algorithm() -> None:
    # The benchmark's run of the printed algorithm: .25 at d = 5, n = 1e5, epsilon = 1.
    assert np.median(simulate(METHOD, 5, 100_000, 1.0, 4, seed=6).errors) < 0.1


@pytest.mark.full
def test_predicted_se_is_what_is_measured() -> None:
    cell = simulate(METHOD, 3, 40_000, 2.0, 20, seed=7, sd=0.875, norm=0.875 * math.sqrt(3))
    assert 1 / 1.5 < cell.prediction < 1.5
    assert float(np.mean(cell.se)) == pytest.approx(cell.rmse, rel=0.3)


def test_sampling_recursion_matches_simulation() -> None:
    rng = np.random.default_rng(8)
    meat = np.array([[1.0, 0.5], [0.5, 2.0]])
    keep = np.array([0.3, 0.8])
    root = np.linalg.cholesky(meat)
    error = np.zeros((100_000, 2))
    for _ in range(4):
        error = keep * error + 0.7 * rng.normal(size=error.shape) @ root.T
    noise, sampling = _law(keep, 0.7, [1.0] * 4, meat)
    assert sampling == pytest.approx(np.cov(error.T), rel=0.03)
    assert noise == pytest.approx(np.diag(_law(keep, 0.7, [0.0] * 4, np.eye(2))[1]))


def test_the_plan_warns_where_private_variance_fails_and_names_the_n() -> None:
    small = METHOD.plan(design(5), Central(1.0, DELTA), 1000)
    assert any("PrivateVariance" in w and "About n=" in w for w in small.warnings)
    assert any("clips do not shrink" in w for w in small.warnings)
    assert not METHOD.plan(design(5), Central(1.0, DELTA), 1_000_000).warnings


@pytest.mark.parametrize(
    ("options", "privacy", "match"),
    [
        ({"steps": 1}, Central(1.0, DELTA), "steps=1"),
        ({"steps": 400}, Central(1.0, DELTA), "steps=400"),
        ({"step_size": -1.0}, Central(1.0, DELTA), "step_size"),
        ({"radius": 2.0}, Central(1.0, DELTA), "no option 'radius'"),
        ({}, Central(1.0), "delta > 0"),
        ({}, Central(1.0, DELTA, neighbors="add-remove", rows=1000), "replace-one"),
    ],
)
def test_what_cannot_work_is_refused_in_the_plan(options, privacy, match) -> None:
    with pytest.raises(OptionError, match=match):
        METHOD.plan(design(2), privacy, 1000, **options)


def test_several_rows_per_unit_are_refused_in_the_plan() -> None:
    schema = Schema(y=Numeric(-1, 1), x=Numeric(-1, 1), unit="person", max_rows=3)
    shape = DeclaredDesign.from_formula("y ~ x", schema)
    with pytest.raises(OptionError, match="several rows per unit"):
        METHOD.plan(shape, Central(1.0, DELTA, rows=1000), 1000)


@pytest.mark.slow
@pytest.mark.parametrize(("d", "n", "epsilon"), [(3, 20_000, 1.0), (3, 50_000, 5.0)])
def test_intervals_cover(d: int, n: int, epsilon: float) -> None:
    # 200 fits x d coefficients: a true 95 % strays beyond 3.5 points with probability < 1e-3.
    assert simulate(METHOD, d, n, epsilon, 200, seed=9).coverage == pytest.approx(0.95, abs=0.035)
