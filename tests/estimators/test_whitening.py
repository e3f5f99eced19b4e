"""Whitened coordinates are round at any condition number, and say what the noise hides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dpstats as dp
from dpstats.design import DeclaredDesign
from dpstats.estimators.central.newton.whitening import Metric, _kept, contrasts, whiten
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


LEVELS = [f"g{k}" for k in range(12)]
FACTOR = dp.Schema(
    x=dp.Numeric(-6, 6, scale=1),
    g=dp.Categorical(LEVELS),
    h=dp.Categorical(["a", "b", "c"]),
    s=dp.Boolean(),
    y=dp.Numeric(-20, 20, scale=2),
)


def test_contrasts_show_every_level_alike() -> None:
    """The first one too, of which columns of 0 and 1 show a K-th; and rows are no longer."""
    made = dp.ols("y ~ x + g + h + s", schema=FACTOR, n=1000).design
    rows = np.array(
        [
            [1, 0, *(g == k for k in range(1, 12)), h == 1, h == 2, 0]
            for g in range(12)
            for h in range(3)
        ],
        dtype=float,
    )
    t = contrasts(made)
    assert t is not None
    seen = rows @ t
    assert np.linalg.matrix_rank(t) == len(made.names)
    np.testing.assert_allclose((seen[:, 2:13] ** 2).sum(axis=1), 1 - 1 / 12)
    np.testing.assert_allclose((seen[:, 13:15] ** 2).sum(axis=1), 1 - 1 / 3)
    np.testing.assert_array_equal(seen[:, [0, 1, -1]], rows[:, [0, 1, -1]])
    factor = np.r_[0, 2:13]
    least = [np.linalg.eigvalsh(r[:, factor].T @ r[:, factor] / len(r))[0] for r in (rows, seen)]
    assert least[1] == pytest.approx(1 / 12)
    assert least[0] < 1.1 / 12**2


@pytest.mark.parametrize("formula", ["y ~ x + s", "y ~ 0 + x + g", "y ~ x + C(g, contr.sum)"])
def test_what_is_no_factor_in_columns_of_0_and_1_is_left_as_it_is(formula: str) -> None:
    made = dp.ols(formula, schema=FACTOR, n=1000).design
    assert contrasts(made) is None


@pytest.mark.full
def test_groups_that_a_column_goes_with_leave_its_slope() -> None:
    """40 groups of 500 rows: errors are three times as large in columns of 0 and 1."""
    levels = [f"g{k}" for k in range(40)]
    schema = dp.Schema(FACTOR.replaced({"g": dp.Categorical(levels)}))
    errors = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        g = rng.integers(0, 40, 20_000)
        effect = rng.normal(size=40)[g]
        x = rng.normal(size=g.size) + effect
        y = 0.5 * x + effect + rng.normal(size=g.size)
        table = {"y": y, "x": x, "g": np.array(levels)[g]}
        fit = dp.ols("y ~ x + g", table, schema).fit(dp.Central(1, DELTA), noise=SeededNoise(seed))
        errors.append(fit.params["x"] - 0.5)
    assert np.sqrt(np.mean(np.square(errors))) < 0.02
