"""Whitened coordinates are round at any condition number, and say what the noise hides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpstats.design import DeclaredDesign
from dpstats.estimators.central.newton.whitening import Metric, _kept, whiten
from dpstats.estimators.numerics.entrywise import symmetric_pattern
from dpstats.holders import Curator
from dpstats.mechanisms.noise import SeededNoise
from dpstats.privacy import Central
from tests.estimators.newton_cases import robust_plan
from tests.estimators.ols_cases import DELTA, design

D, N = 4, 5_000


def columns(rng: Any, condition: float, n: int = N) -> Any:
    """Rotated uniform columns within [-1, 1] whose second moments have this condition number."""
    turn = np.linalg.qr(rng.normal(size=(D, D)))[0]
    scales = np.geomspace(1, condition**-0.5, D)
    x = rng.uniform(-1, 1, (n, D)) * scales @ turn.T
    return x / np.abs(x).max()


def metric(x: Any, epsilon: float, seed: int = 0, indicators: Any = None) -> Metric:
    n, d = x.shape
    shape = design(d)
    plan = robust_plan(shape, Central(epsilon, DELTA), n)
    holder = Curator(shape.source((np.zeros(n), x)), shape, plan, SeededNoise(seed))
    return whiten(
        holder, float(n), np.zeros(d) if indicators is None else indicators, shape.norm_bound
    )


def moments(x: Any, w: Any) -> Any:
    """Second moments of whitened rows that are weighted to norm sqrt(d)."""
    z = x @ w
    z *= np.minimum(1, np.sqrt(x.shape[1]) / np.linalg.norm(z, axis=1))[:, None]
    return z.T @ z / len(z)


@pytest.mark.parametrize("condition", [1.0, 100.0, 1e4])
def test_without_noise_rows_become_round_at_any_condition_number(condition: float) -> None:
    x = columns(np.random.default_rng(1), condition)
    found = metric(x, 1e8)
    assert np.linalg.cond(found.w.T @ x.T @ x @ found.w) < 1.6
    assert found.curvature == pytest.approx(moments(x, found.w), abs=0.12)
    assert found.inverse @ found.curvature == pytest.approx(np.eye(D), abs=1e-8)


@pytest.mark.parametrize("condition", [1.0, 100.0])
def test_noise_that_resolves_the_matrix_leaves_rows_round(condition: float) -> None:
    rng = np.random.default_rng(2)
    conditions = []
    for seed in range(10):
        x = columns(rng, condition)
        found = metric(x, 2.0, seed)
        conditions.append(np.linalg.cond(found.w.T @ x.T @ x @ found.w))
    assert np.median(conditions) < 3


def test_the_error_of_the_curvature_is_as_large_as_stated() -> None:
    # Off the diagonal: the level differs, since rows are weighted in other coordinates here. 360
    # squares; the ratio is 0.67 (carried variances are upper bounds on average), se 0.06.
    rng = np.random.default_rng(3)
    ratios = []
    for seed in range(60):
        x = columns(rng, 10.0)
        found = metric(x, 0.5, seed)
        squared = (found.curvature - moments(x, found.w)) ** 2
        ratios.append((squared * N**2 / found.variances)[~np.eye(D, dtype=bool)])
    assert 0.4 < float(np.mean(ratios)) < 1.2


def test_rows_of_a_rare_level_are_not_far_out() -> None:
    rng = np.random.default_rng(5)
    rare = np.zeros(N)
    rare[:20] = 1
    x = np.column_stack([rng.uniform(-1, 1, (N, 3)), rare])
    plain = metric(x, 1e8)
    ridged = metric(x, 1e8, indicators=np.array([0.0, 0.0, 0.0, 1.0]))
    lengths = [np.linalg.norm(x[:20] @ m.w, axis=1).mean() for m in (plain, ridged)]
    assert lengths[1] < 6 < lengths[0]  # sqrt(d) = 2


def test_nothing_to_see_is_still_a_coordinate_system() -> None:
    shape = DeclaredDesign.from_arrays(3, {"exog": (-1.0, 1.0), "endog": (-1.0, 1.0)})
    plan = robust_plan(shape, Central(0.1, DELTA), 50)
    for x in (np.zeros((50, 3)), np.full((50, 3), np.nan)):
        holder = Curator(shape.source((np.zeros(50), x)), shape, plan, SeededNoise(1))
        found = whiten(holder, 5.0, np.zeros(3), 3**0.5)
        assert np.isfinite(found.w).all()
        assert np.linalg.eigvalsh(found.curvature).min() > 0


def test_units_that_are_off_are_kept_where_noise_hides_correlations() -> None:
    """Shares kept are those of least squared error; one share for all errs twice as much."""
    rng, d, scale = np.random.default_rng(5), 20, 0.08
    truth = np.diag(np.exp(rng.normal(0, 0.35, d)))
    variances = scale**2 * symmetric_pattern(d)
    errors = []
    for _ in range(50):
        noise = np.triu(rng.normal(size=(d, d))) * np.sqrt(variances)
        seen = truth + noise + np.triu(noise, 1).T
        excess = seen - np.trace(seen) / d * np.eye(d)
        keep = _kept(excess, variances)
        assert keep[0, 0] > 0.9
        assert keep[0, 1] < 0.3
        alike = 1 - variances.sum() / (excess**2).sum()
        errors.append([np.sum((seen - (1 - k) * excess - truth) ** 2) for k in (keep, alike)])
    mine, other = np.mean(errors, axis=0)
    assert mine < 0.4 * other
    assert np.all(_kept(np.zeros((1, 1)), variances[:1, :1]) == 1.0)
