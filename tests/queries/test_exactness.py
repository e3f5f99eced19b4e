"""Sums have the same bits in any order and blocking, and equal the plain formula."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpstats.errors import PlanError
from dpstats.families import BINOMIAL, GAUSSIAN, POISSON
from dpstats.queries import (
    Block,
    Geometry,
    Gram,
    PairScales,
    Score,
    ScoreCurvature,
    ScoreOuter,
    ScoreSlope,
    WhitenedScore,
)
from dpstats.queries.blocks import SAFETY, X_BITS, bound_grid, exact_product
from tests.queries.cases import (
    BETA,
    CASES,
    GAUSSIAN_LOG,
    PLAIN,
    POISSON_IDENTITY,
    SKEWED,
    WHITEN,
    Case,
    D,
    answer,
    block,
)

N = 3000


def data():
    rng = np.random.default_rng(5)
    return rng.uniform(-1, 1, (N, D)), rng.uniform(-1, 1, N), rng.uniform(size=N) > 0.05


@pytest.mark.parametrize("case", [c for c in CASES if not isinstance(c.query, PairScales)], ids=str)
def test_totals_have_the_same_bits_in_any_order_and_blocking(case: Case) -> None:
    x, y, keep = data()
    rng = np.random.default_rng(6)
    whole = case.query.total(case.block(x, y, keep))
    order = rng.permutation(N)
    cuts = np.sort(rng.choice(np.arange(1, N), 7, replace=False))
    parts = sum(case.query.total(case.block(x[i], y[i], keep[i])) for i in np.split(order, cuts))
    assert np.array_equal(whole, parts)


def test_plain_float_sums_do_change_with_order() -> None:
    """Power: without the grid the bits differ."""
    x, y, _ = data()
    assert not np.array_equal(x.T @ y, x[::-1].T @ y[::-1])


def test_score_equals_the_formula() -> None:
    x, y, keep = data()
    query = Score(SKEWED, BETA, 0.3)
    z = x @ WHITEN.T
    w = keep * np.minimum(1, SKEWED.radius / np.linalg.norm(z, axis=1))
    psi = w * np.clip(y - x @ BETA, -0.3, 0.3)
    found = answer(query, block(x, y, query, keep))
    assert found == pytest.approx((w[:, None] * z).T @ psi, abs=N * 1e-5)


@pytest.mark.parametrize("geometry", [PLAIN, SKEWED])
def test_gram_equals_the_formula(geometry) -> None:
    x, y, keep = data()
    query = Gram(geometry, BETA, 0.5)
    z = x if geometry.whiten is None else x @ geometry.whiten.T
    active = keep & (np.abs(y - x @ BETA) < 0.5)
    w = active * np.minimum(1, geometry.radius / np.linalg.norm(z, axis=1))
    expected = (z * w[:, None]).T @ (z * w[:, None])
    found = query.decode(answer(query, block(x, y, query, keep)))
    assert found == pytest.approx(expected, abs=N * 2e-5)


@pytest.mark.parametrize("family", [GAUSSIAN, POISSON], ids=str)
def test_the_slope_of_a_score_is_the_trace_of_its_curvature(family) -> None:
    x, y, keep = data()
    y, whiten = np.abs(y), np.eye(D)[::-1].copy()
    curvature = ScoreCurvature(whiten, BETA, 0.7, 0.9, family)
    slope = ScoreSlope(whiten, BETA, 0.7, 0.9, family)
    matrix = curvature.decode(answer(curvature, block(x, y, curvature, keep)))
    (found,) = answer(slope, block(x, y, slope, keep))
    assert found == pytest.approx(np.trace(matrix), abs=N * 1e-4)
    assert np.trace(matrix) < 0.9 * np.sum(x[keep] ** 2)  # some are shortened, or beyond the clip


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("family", [BINOMIAL, POISSON, GAUSSIAN_LOG, POISSON_IDENTITY], ids=str)
def test_family_queries_equal_the_formulas_of_statsmodels(family) -> None:
    """Bread and score of statsmodels' GLM, with an offset; clips and caps beyond reach."""
    import statsmodels.api as sm

    x, y, keep = data()
    x, y = np.abs(x), (np.abs(y) if family.name != "binomial" else (y > 0).astype(float))
    beta, offset = np.abs(BETA) / 2, 0.2 + 0.3 * x[:, 0]
    laws = {"binomial": sm.families.Binomial, "poisson": sm.families.Poisson}
    law = laws.get(family.name, sm.families.Gaussian)
    link = getattr(sm.families.links, family.link.capitalize())()
    model = sm.GLM(y[keep], x[keep], family=law(link), offset=offset[keep])
    far = Geometry(4.0)
    score, gram = Score(far, beta, 50.0, family), Gram(far, beta, 50.0, family, cap=60.0)
    rows = replace(block(x, y, score, keep), offset=offset)
    found = answer(score, rows)
    assert found == pytest.approx(model.score(beta, scale=1.0), abs=N * 2e-4)
    fisher = -model.hessian(beta, scale=1.0, observed=False)
    assert gram.decode(answer(gram, rows)) == pytest.approx(fisher, rel=1e-3, abs=N * 2e-4)
    if family.canonical:  # the curvature is minus the derivative of the score
        h = 1e-3
        ahead = answer(replace(score, beta=beta + h * np.eye(D)[0]), rows)
        behind = answer(replace(score, beta=beta - h * np.eye(D)[0]), rows)
        assert (behind - ahead) / (2 * h) == pytest.approx(fisher[0], rel=1e-2)


def test_outer_products_are_clustered_by_unit() -> None:
    x, y, _ = data()
    query = ScoreOuter(PLAIN, BETA, 0.4, max_rows=3)
    starts = np.arange(0, N, 3)
    w = np.minimum(1, PLAIN.radius / np.linalg.norm(x, axis=1))
    s = x * (w**2 * np.clip(y - x @ BETA, -0.4, 0.4))[:, None]
    sums = np.add.reduceat(s, starts, axis=0)
    found = query.decode(answer(query, block(x, y, query, starts=starts)))
    assert found == pytest.approx(sums.T @ sums, abs=N * 5e-5)


@pytest.mark.parametrize("size", [1e-3, 40.0])
def test_exact_product_has_no_rounding_error(size) -> None:
    from fractions import Fraction

    x, y, _ = data()
    query = Score(PLAIN, BETA, 0.3)
    rows = block(x[:50], y[:50], query)
    coef = np.random.default_rng(8).normal(size=D) * size
    found = exact_product(rows, coef)
    assert found == pytest.approx(rows.x @ coef, rel=1e-7, abs=1e-7)
    reverse = exact_product(block(x[:50][::-1], y[:50][::-1], query), coef)[::-1]
    assert np.array_equal(found, reverse)
    exact = [Fraction(float(v)).denominator for v in found]
    assert max(exact) <= 2**60  # products stay on one dyadic grid


@pytest.mark.parametrize("stretch", [1.0, 1e3, 1e6])
@pytest.mark.parametrize("least", [1.0, 2.0**-10, 2.0**-20])
def test_a_whitened_score_keeps_the_bound_that_its_rows_were_clipped_to(stretch, least):
    d, rng = 6, np.random.default_rng(5)
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    whiten = np.r_[stretch, np.ones(d - 1)][:, None] * turn.T
    bound = np.r_[np.ones(d - 1), least]
    grid = np.array([bound_grid(b, X_BITS) for b in bound])
    rows = rng.normal(size=(100, d))
    rows -= np.outer(rows @ turn[:, 0], turn[:, 0])  # where the stretched direction cancels
    rows = np.clip(rows / np.abs(rows).max(axis=1, keepdims=True), -bound, bound)
    for x in np.rint(rows / grid) * grid:
        one = Block(x[None], np.ones(1), np.ones(1), np.ones(1), bound, grid)
        longest = Geometry(1.0, whiten).norms(one)[0] / SAFETY * (1 + 1e-12)
        score = Score(Geometry(longest, whiten), np.zeros(d), 1.0)
        assert score.geometry.weights(one)[0] == 1.0
        moved = np.linalg.norm(score.finish(score.total(one), grid))
        assert (1 - 1e-5) * longest < moved <= longest


@pytest.mark.parametrize("radius", [0.0, -1.0, 1e-30, 1e30, np.inf, np.nan])
def test_a_radius_that_float32_cannot_hold_well_is_refused(radius: float) -> None:
    with pytest.raises(PlanError, match="radius"):
        Geometry(radius, WHITEN)


def test_a_whitening_matrix_that_overflows_is_refused() -> None:
    x, y, _ = data()
    with pytest.raises(PlanError, match="beyond"):
        Geometry(1.0, 1e30 * WHITEN).rows(block(x, y, Gram(PLAIN)))


@pytest.mark.parametrize("usual", [1.0, 2.0**-6])
def test_sums_of_light_rows_are_not_pulled_towards_zero(usual: float) -> None:
    """One answer in 25, weights far below the largest; power: by truncation 1 % were lost."""
    rng = np.random.default_rng(9)
    x, y, root = np.ones((N, 1)), (rng.uniform(size=N) < 0.04) * 1.0, rng.uniform(0.5, 1, N) * usual
    query = WhitenedScore(np.eye(1) / usual, np.log([0.03 / 0.97]), usual, 0.0, BINOMIAL)
    rows = replace(block(x, y, query), root=root)
    lost = answer(query, rows)[0] * usual - (root**2 * (y - 0.03)).sum()
    terms = (root**2 * np.abs(y - 0.03)).sum()
    assert abs(lost) < 3e-4 * terms
    steps = np.trunc(root**2 * (y - 0.03) / query._grid()) * query._grid()
    truncated = steps.sum() - (root**2 * (y - 0.03)).sum()
    assert (abs(truncated) > 3e-3 * terms) == (usual < 1)
