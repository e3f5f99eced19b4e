"""Sparse methods of the papers: their algorithms without noise, their budgets, their limits."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest

from dpstats.accounting import Peeling, calibrate, delta_of, epsilon_of
from dpstats.accounting.calibration import Share
from dpstats.design import DeclaredDesign
from dpstats.errors import OptionError
from dpstats.estimators import wide
from dpstats.estimators.central.published import sparse
from dpstats.estimators.central.published.adaptive_clipping_iht import AdaptiveClippingIHT
from dpstats.estimators.central.published.dp_ight import DPIGHT
from dpstats.estimators.central.published.dp_iht import DPIHT
from dpstats.estimators.central.published.frank_wolfe import FrankWolfe
from dpstats.estimators.central.published.noisy_ht import NoisyHT
from dpstats.estimators.central.published.peel_iht import PeelIHT
from dpstats.estimators.central.published.two_stage import TwoStage
from dpstats.holders import Curator
from dpstats.mechanisms.noise import SeededNoise
from dpstats.privacy import Central
from dpstats.schema import Numeric, Schema
from tests.estimators.sparse_cases import design, fit, rows
from tests.grids import grid

METHODS = [
    *(method(model) for method in (NoisyHT, PeelIHT, DPIGHT, DPIHT, FrankWolfe, TwoStage)
      for model in ("ols", "logit")),
    AdaptiveClippingIHT(),
]  # fmt: skip
LARGE = Central(1e7, 1e-6)

each = pytest.mark.parametrize("method", METHODS, ids=lambda m: f"{m.model}-{m.name}")


# -- witnesses: the algorithms in plain numpy --------------------------------------------------


def residual(x: Any, y: Any, beta: Any, model: str) -> Any:
    return y - (x @ beta if model == "ols" else 1 / (1 + np.exp(-x @ beta)))


def largest(beta: Any, s: int) -> Any:
    kept = np.argsort(-np.abs(beta))[:s]
    out = np.zeros_like(beta)
    out[kept] = beta[kept]
    return out


def thresholding(x: Any, y: Any, s: int, steps: int, model: str, radius: float = math.inf) -> Any:
    """IHT with residuals clipped at their upper quartile and rows weighted at `radius`."""
    beta, moment = np.zeros(x.shape[1]), 1 / 3  # of a uniform column
    curvature = moment if model == "ols" else moment / 4
    weight = np.minimum(1, radius / np.linalg.norm(x, axis=1)) ** 2
    for t in range(steps):
        r = residual(x, y, beta, model)
        clip, active = (np.quantile(np.abs(r), 0.75), 0.75) if model == "ols" else (1.0, 1.0)
        score = x.T @ (weight * np.clip(r, -clip, clip)) / len(y)
        beta = largest(beta + score / (curvature * active), s)
        if t == 0 and steps >= 3:
            chosen = x[:, beta != 0]
            top = np.linalg.eigvalsh(chosen.T @ chosen / len(y))[-1] / moment
            curvature *= max(1.0, top)
    return beta


def rescaling(x: Any, y: Any, beta: Any, model: str) -> float:
    """The factor of the last step by its definition, up to clipping and chance."""
    f = x @ beta
    if model == "ols":
        return float(f @ y / (f @ f))
    low, high = 0.0, 2.0
    for _ in range(60):
        middle = (low + high) / 2
        uphill = f @ (y - 1 / (1 + np.exp(-middle * f))) > 0
        low, high = (middle, high) if uphill else (low, middle)
    return low


# -- without noise -----------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["ols", "logit"])
@pytest.mark.parametrize("method", [NoisyHT, PeelIHT, DPIGHT])
def test_with_a_large_epsilon_thresholding_is_the_published_iteration(method, model) -> None:
    x, y, _ = rows(6000, 30, 3, model=model)
    found = fit(method(model), x, y, LARGE, sparsity=3, steps=5)
    radius = found.plan.options.get("radius", math.inf)
    witness = thresholding(x, y / 8.0 if model == "ols" else y, 3, 5, model, radius)
    unscaled = found.estimate.params / found.estimate.released["last factor"]
    assert found.estimate.support == tuple(np.flatnonzero(witness))
    assert unscaled == pytest.approx(witness, abs=0.02 * np.abs(witness).max())


def test_dp_iht_minimises_the_penalised_risk() -> None:
    x, y, _ = rows(8000, 12, 3, model="logit")
    lam = 0.05
    found = fit(DPIHT("logit"), x, y, LARGE, sparsity=12, steps=200, lam=lam, radius=100.0)
    beta = found.estimate.params
    gradient = x.T @ residual(x, y, beta, "logit") / len(y) - lam * beta
    assert np.abs(gradient).max() < 1e-4
    without = fit(DPIHT("logit"), x, y, LARGE, sparsity=12, steps=200, radius=100.0)
    assert np.linalg.norm(beta) < np.linalg.norm(without.estimate.params)


def test_frank_wolfe_walks_to_the_steepest_vertices() -> None:
    x, y, _ = rows(5000, 20, 2)
    steps, radius = 8, 1.5
    found = fit(FrankWolfe("ols"), x, y, LARGE, sparsity=20, steps=steps, radius=radius)
    response, beta = y / 8.0, np.zeros(20)
    clips = iter(found.estimate.released["clips"])
    for t in range(steps):
        if t in (0, 2, 5):
            clip = next(clips)
        score = x.T @ np.clip(response - x @ beta, -clip, clip)
        j = int(np.argmax(np.abs(score)))
        vertex = np.zeros(20)
        vertex[j] = np.sign(score[j]) * radius / math.sqrt(1 / 3)
        beta += 2 / (t + 2) * (vertex - beta)
    unscaled = found.estimate.params / found.estimate.released["last factor"]
    assert unscaled == pytest.approx(beta, abs=1e-4)
    assert np.sum(np.abs(unscaled)) <= radius / math.sqrt(1 / 3) + 1e-9


@pytest.mark.parametrize("model", ["ols", "logit"])
def test_two_stages_choose_by_correlation_and_fit_what_was_chosen(model) -> None:
    x, y, beta = rows(8000, 40, 3, model=model)
    found = fit(TwoStage(model), x, y, LARGE, sparsity=3)
    correlation = np.abs(x.T @ (y - y.mean()))
    assert set(found.estimate.support) == set(np.argsort(-correlation)[:3])
    assert set(found.estimate.support) == set(np.flatnonzero(beta))
    error = np.linalg.norm(found.params - beta) / np.linalg.norm(beta)
    assert error < (0.02 if model == "ols" else 0.1)


def test_batches_are_peeled_one_after_the_other() -> None:
    x, _, beta = rows(40_000, 30, 3)
    found = fit(AdaptiveClippingIHT(), x, x @ beta, LARGE, sparsity=3, steps=10)
    assert np.linalg.norm(found.params - beta) < 0.01 * np.linalg.norm(beta)
    steps = [r for r in found.holder.transcript if r.slot == "step"]
    assert [r.part for r in steps] == list(range(10))
    clips = found.estimate.released["clips"]
    assert clips[-1] < clips[0]
    # One row moves a sum over its batch by 2 R R_t: nothing is divided by n.
    for r, clip in zip(steps, clips, strict=True):
        assert r.sensitivity == pytest.approx(2 * clip * r.parameters["reach"])


@each
def test_the_last_factor_is_that_of_least_squares_or_likelihood(method) -> None:
    x, y, _ = rows(8000, 25, 3, model=method.model)
    found = fit(method, x, y, LARGE, sparsity=3)
    factor = found.estimate.released["last factor"]
    before = found.estimate.params / factor
    response = y / 8.0 if method.model == "ols" else y
    expected = rescaling(x, response, before, method.model)
    assert factor == pytest.approx(expected, rel=0.04 if method.model == "ols" else 0.12)


def test_clips_of_peeling_never_grow_and_a_step_values_only_what_it_chose() -> None:
    x, y, _ = rows(3000, 30, 3)
    for seed in range(3):
        found = fit(PeelIHT("ols"), x, y, Central(0.5, 1e-6), seed, sparsity=3, steps=6)
        clips = found.estimate.released["clips"]
        assert clips == sorted(clips, reverse=True)
        for r, clip in zip(
            (r for r in found.holder.transcript if r.slot.startswith("step")), clips, strict=True
        ):
            assert r.sensitivity <= 2 * clip * 1.15 * (1 + 1e-9)  # three columns of moment 1/3
            assert 3 <= len(r.parameters["columns"]) <= 6


def test_choosing_at_once_is_better_than_peeling_one_by_one() -> None:
    def error(method: Any, seed: int) -> float:
        x, y, beta = rows(2000, 300, 8, seed=seed)
        found = fit(method, x, y, Central(2.0, 1e-3), seed, sparsity=8, steps=3)
        return float(np.linalg.norm(found.params - beta) / np.linalg.norm(beta))

    ours, printed = (
        np.mean([error(method("ols"), seed) for seed in range(4)]) for method in (PeelIHT, NoisyHT)
    )
    assert ours < 0.6 * printed


# -- budgets -----------------------------------------------------------------------------------


@each
@pytest.mark.parametrize(("epsilon", "delta"), [(0.2, 1e-8), (2.0, 1e-6), (30.0, 1e-3)])
def test_the_budget_adds_up_and_all_of_it_is_asked(method, epsilon, delta) -> None:
    x, y, _ = rows(500, 20, 2, model=method.model)
    found = fit(method, x, y, Central(epsilon, delta), sparsity=2)
    assert delta_of(found.plan.events, epsilon) <= delta
    assert epsilon_of(found.plan.events, delta) > 0.98 * epsilon
    planned = {(m.slot, part) for m in found.plan.mechanisms for part in range(m.parts)}
    assert {(r.slot, r.part) for r in found.holder.transcript} == planned


@pytest.mark.parametrize("steps", [1, 2, 7, 50])
def test_shares_of_equal_steps_add_up_and_grow(steps) -> None:
    for model in ("ols", "logit"):
        facts = wide.sparse_guess(design(9, model), 3)
        asks = sparse.step_asks(facts, steps, "step")
        assert sum(a.weight for a in asks) == pytest.approx(1)
        weights = [a.weight for a in asks if a.slot.startswith("step-")]
        assert weights == sorted(weights)
        assert sparse.last_share(facts, steps) == weights[-1]


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-2), (1.0, 1e-6), (8.0, 1e-5)])
def test_peeling_needs_less_noise_than_printed(epsilon, delta) -> None:
    printed = 2 * math.sqrt(3 * 10 * math.log(1 / delta)) / epsilon
    needed = calibrate({"p": Share("peeling", 1.0, 10)}, epsilon, delta)["p"]
    assert isinstance(needed, Peeling)
    assert 1.2 * needed.noise_multiplier < printed < 2.2 * needed.noise_multiplier


# -- what comes back ---------------------------------------------------------------------------


@each
def test_a_fit_is_zero_off_its_support_and_claims_no_intervals(method) -> None:
    x, y, _ = rows(2000, 15, 2, model=method.model)
    estimate = fit(method, x, y, Central(2.0, 1e-5), sparsity=2).estimate
    support = np.asarray(estimate.support)
    assert set(np.flatnonzero(estimate.params)) <= set(support)
    assert 1 <= support.size <= 2
    assert estimate.cov.shape == (support.size, support.size)
    assert np.isnan(estimate.cov).all()
    assert estimate.inference.startswith("none")


@each
def test_the_intercept_is_always_in_and_not_counted(method) -> None:
    x, y, beta = rows(20_000, 10, 2, model=method.model)
    x = np.column_stack([np.ones(len(y)), x])
    if method.model == "ols":
        y = np.clip(y + 3.0, -8, 8)
    ends = (-8.0, 8.0) if method.model == "ols" else (0.0, 1.0)
    shape = DeclaredDesign.from_arrays(
        11,
        {"exog": [(1, 1)] + [(-1, 1)] * 10, "endog": ends},
        family=design(2, method.model).family,
    )
    plan = method.plan(shape, LARGE, len(y), sparsity=2)
    estimate = method.fit(Curator(shape.source((y, x)), shape, plan, SeededNoise(1)), shape, plan)
    assert set(np.flatnonzero(beta) + 1) <= set(estimate.support)
    if method.model == "ols":
        assert 0 in estimate.support
        assert estimate.params[0] * 8 == pytest.approx(3.0, abs=0.3)


@each
@pytest.mark.parametrize("epsilon", grid([0.1, 1.0, 5.0], 1))
def test_too_little_budget_costs_no_more_than_saying_nothing(method, epsilon) -> None:
    """Three hundred rows, a hundred columns: near zero coefficients, never far beyond them."""
    errors = []
    for seed in range(3):
        x, y, beta = rows(300, 100, 5, seed=seed, model=method.model)
        found = fit(method, x, y, Central(epsilon, 1e-6), seed, sparsity=5)
        errors.append(np.linalg.norm(found.params - beta) / np.linalg.norm(beta))
        assert bool(found.estimate.remarks) == (not found.params.any())
    assert np.mean(errors) < 1.1


@each
def test_correlated_columns_and_wrong_bounds_do_not_make_it_diverge(method) -> None:
    rng = np.random.default_rng(3)
    common = rng.uniform(-1, 1, (3000, 1))
    x = 0.8 * common + 0.2 * rng.uniform(-1, 1, (3000, 60))
    beta = np.zeros(60)
    beta[:4] = 2.0
    eta = x @ beta
    y = np.clip(eta, -8, 8) if method.model == "ols" else (rng.uniform(size=3000) < 0.5 + eta / 20)
    for epsilon in (0.5, 1e3):
        found = fit(method, 0.1 * x, y * 1.0, Central(epsilon, 1e-6), sparsity=4)
        assert np.std(0.1 * x @ found.params - eta) < 1.15 * np.std(eta)


# -- options -----------------------------------------------------------------------------------


@each
@pytest.mark.parametrize("sparsity", [None, 0, 21, -1, 2.5, True, (2, 3), "3"])
def test_a_bad_sparsity_is_refused_with_the_range(method, sparsity) -> None:
    with pytest.raises(OptionError, match="from 1 to 20"):
        method.plan(design(20, method.model), Central(1.0, 1e-6), 1000, sparsity=sparsity)
    with pytest.raises(OptionError, match="give sparsity"):
        method.plan(design(20, method.model), Central(1.0, 1e-6), 1000)


@each
def test_bad_options_are_refused(method) -> None:
    bad = [("unheard_of", 1), *((name, -1) for name in method.options), ("steps", 10**6)]
    for name, value in bad:
        options = {"sparsity": 2, name: value}
        if name == "steps" and name not in method.options:
            continue
        with pytest.raises(OptionError, match=name):
            method.plan(design(20, method.model), Central(1.0, 1e-6), 1000, **options)
    with pytest.raises(OptionError, match="needs delta > 0"):
        method.plan(design(20, method.model), Central(1.0, 0.0), 1000, sparsity=2)


def test_batches_need_positions() -> None:
    shape = design(5)
    with pytest.raises(OptionError, match="noisy-ht"):
        AdaptiveClippingIHT().plan(
            shape, Central(1.0, 1e-6, neighbors="add-remove", rows=100), 100, sparsity=2
        )
    schema = Schema({"y": Numeric(-1, 1), "x": Numeric(-1, 1)}, unit="who", max_rows=2)
    shape = DeclaredDesign.from_formula("y ~ x", schema)
    with pytest.raises(OptionError, match="several rows per unit"):
        AdaptiveClippingIHT().plan(shape, Central(1.0, 1e-6), 100, sparsity=1)


@pytest.mark.full
@each
def test_the_plan_warns_where_noise_will_choose(method) -> None:
    def warnings(n: int, epsilon: float) -> str:
        shape = design(2000, method.model)
        return " ".join(method.plan(shape, Central(epsilon, 1e-6), n, sparsity=10).warnings)

    assert "epsilon=" in warnings(1000, 0.5)
    assert "rows" in warnings(1000, 0.5)
    assert not warnings(20_000_000, 5.0)


@each
def test_plans_of_wide_designs_are_quick_and_small(method) -> None:
    shape = design(5000, method.model)
    method.plan(shape, Central(1.0, 1e-6), 5000, sparsity=10)
    start = time.process_time()
    method.plan(shape, Central(1.01, 1e-6), 5000, sparsity=10)
    assert time.process_time() - start < 1.0
