"""Scores of every column: their values, the reach that bounds them, and what they cost."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from dpstats.errors import PlanError
from dpstats.families import BINOMIAL, POISSON
from dpstats.privacy import Neighbors
from dpstats.queries import CoordinateScores, PeeledScores, Score
from dpstats.queries.blocks import exact_product
from tests.queries.cases import BETA, PLAIN, D, answer, block

REPLACE, ADD = Neighbors.REPLACE_ONE, Neighbors.ADD_REMOVE
PRIOR = np.array([1.0, -2.0, 0.5])
N = 500


def data(d=D, n=N):
    rng = np.random.default_rng(21)
    return rng.uniform(-1, 1, (n, d)), rng.uniform(-1, 1, n), rng.uniform(size=n) > 0.1


def test_utilities_equal_the_formula():
    x, y, keep = data()
    sums = PRIOR + (x * keep[:, None]).T @ np.clip(y - x @ BETA, -0.3, 0.3)
    for signed, expected in ((False, np.abs(sums)), (True, np.r_[sums, -sums])):
        query = CoordinateScores(BETA, 0.3, 1.0, PRIOR, signed)
        assert answer(query, block(x, y, query, keep)) == pytest.approx(expected, abs=N * 1e-5)
    peeled = PeeledScores(BETA, 0.3, 1.0, PRIOR)
    assert answer(peeled, block(x, y, peeled, keep)) == pytest.approx(sums, abs=N * 1e-5)


def test_utilities_of_a_family_equal_the_formula():
    from scipy.special import expit

    x, y, keep = data()
    y = (y > 0).astype(float)
    query = PeeledScores(BETA, 0.6, 1.0, family=BINOMIAL)
    expected = (x * keep[:, None]).T @ np.clip(y - expit(x @ BETA), -0.6, 0.6)
    assert answer(query, block(x, y, query, keep)) == pytest.approx(expected, abs=N * 1e-5)


LIFTED = [0.1, 0.55, 0.9, 0.99999]  # bounds between grid points that round up


@pytest.mark.parametrize("bound", [*LIFTED, 0.3, 1 / 3, 1.0])
def test_rounding_to_the_grid_does_not_pass_the_reach(bound):
    """A bound between grid points is rounded up by at most 2^-17 of it, and given back."""
    query = PeeledScores(np.zeros(D), 0.5, reach=bound)
    rows = block(np.full((1, D), bound), [1.0], query, bound=bound)
    assert bool(rows.x[0, 0] > bound) is (bound in LIFTED)
    moved = 2 * answer(query, rows).max()  # the mirrored row moves the sums as far back
    claimed = query.sensitivity(REPLACE, 1)
    assert (1 - 2.0**-16) * claimed < moved <= claimed


@pytest.mark.parametrize("sparse", [False, True])
def test_values_beyond_the_reach_are_clipped_in_the_sums(sparse):
    x, y, keep = data()
    bounds = np.array([0.5, 0.9, 1.0])
    query = PeeledScores(BETA, 0.3, reach=0.4)
    rows = block(x, y, query, keep, bound=bounds, sparse=sparse)
    x = np.clip(x, -bounds, bounds)
    clipped = np.clip(x, -0.4, 0.4) * keep[:, None]
    expected = clipped.T @ np.clip(y - x @ BETA, -0.3, 0.3)
    assert answer(query, rows) == pytest.approx(expected, abs=N * 1e-5)
    one = [block(np.ones((1, D)), [s], query, bound=bounds, sparse=sparse) for s in (1.0, -1.0)]
    query = PeeledScores(np.zeros(D), 0.3, reach=0.4)
    moved = answer(query, one[0]) - answer(query, one[1])
    claimed = query.sensitivity(REPLACE, 1)
    assert ((1 - 2.0**-13) * claimed < moved).all()
    assert (moved <= claimed).all()


@pytest.mark.parametrize("sparse", [False, True])
def test_columns_may_have_reaches_of_their_own(sparse):
    x, y, keep = data()
    bounds, reaches = np.array([0.5, 0.9, 1.0]), np.array([0.1, 2.0, 0.7])
    query = CoordinateScores(BETA, 0.3, reach=0.4, reaches=reaches)
    rows = block(x, y, query, keep, bound=bounds, sparse=sparse)
    x = np.clip(x, -bounds, bounds)
    clipped = np.clip(x, -reaches, reaches) * (0.4 / reaches) * keep[:, None]
    expected = np.abs(clipped.T @ np.clip(y - x @ BETA, -0.3, 0.3))
    assert answer(query, rows) == pytest.approx(expected, abs=N * 1e-5)
    one = [block(np.ones((1, D)), [s], query, sparse=sparse) for s in (1.0, -1.0)]
    query = CoordinateScores(np.zeros(D), 0.3, reach=0.4, signed=True, reaches=reaches)
    moved = np.abs(answer(query, one[0]) - answer(query, one[1]))
    claimed = query.sensitivity(REPLACE, 1)
    assert (moved <= claimed).all()
    assert moved.max() > (1 - 2.0**-13) * claimed


@pytest.mark.parametrize("signed", [False, True])
def test_excluded_columns_are_no_candidates(signed):
    x, y, _ = data()
    every = CoordinateScores(BETA, 0.3, 1.0, PRIOR, signed)
    some = CoordinateScores(BETA, 0.3, 1.0, PRIOR, signed, exclude=(1,))
    rows = block(x, y, every)
    left = np.array([0, 2, 3, 5] if signed else [0, 2])
    assert np.array_equal(answer(some, rows), answer(every, rows)[left])
    assert some.decode(np.arange(left.size, dtype=float)).tolist() == left.tolist()


@pytest.mark.parametrize(
    "wrong",
    [
        {"clip": 0.0},
        {"clip": np.inf},
        {"reach": -1.0},
        {"reaches": np.zeros(D)},
        {"reaches": np.ones(2)},
        {"prior": np.zeros(2)},
        {"prior": np.array([0, np.nan, 0])},
    ],
)
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises(PlanError):
        CoordinateScores(**{"beta": BETA, "clip": 0.5, "reach": 1.0, "prior": None, **wrong})


def test_a_huge_prior_does_not_drown_the_sensitivity():
    """Where float64 would round the scores away or noise could not be added, it is cut."""
    x = np.ones((1, D))
    query = PeeledScores(np.zeros(D), 0.5, 1.0, np.array([1e300, -1e12, 1e6]))
    up, down = (answer(query, block(x, [y], query)) for y in (1.0, -1.0))
    claimed = query.sensitivity(REPLACE, 1)
    assert up - down == pytest.approx(np.full(D, claimed), rel=2.0**-20)
    assert np.abs(up).max() < 2.0**32 * claimed


def test_the_report_lists_the_support_and_not_thousands_of_zeros():
    beta = np.zeros(5000)
    beta[[7, 4000]] = 0.5, -0.25
    described = CoordinateScores(beta, 0.5, 1.0, family=POISSON).parameters()
    assert described["support"] == [7, 4000]
    assert described["beta"] == [0.5, -0.25]
    assert described["family"] == "poisson (log)"


def wide(sparse: bool, n: int = 256, d: int = 4000):
    rng = np.random.default_rng(22)
    x = rng.uniform(-1, 1, (n, d)) * (rng.uniform(size=(n, d)) < (0.02 if sparse else 1.0))
    beta = np.zeros(d)
    beta[::400] = rng.normal(size=10)
    query = CoordinateScores(beta, 0.5, 1.0, family=BINOMIAL)
    return query, block(x, rng.uniform(-1, 1, n), query, sparse=sparse)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_pass_over_wide_rows_copies_them_once_at_most(sparse):
    """From float32 to float64, in which sums are exact; sparse rows stay sparse."""
    query, rows = wide(sparse)
    values = rows.x.nnz if sparse else rows.x.size
    tracemalloc.start()
    query.total(rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * values + 20 * 8 * query.beta.size  # and a few vectors


def test_a_product_with_few_coefficients_has_the_bits_of_the_whole_product():
    query, rows = wide(False)
    whole = query.beta + 0.0
    whole[1::2] = 2.0**-60  # below the step that coefficients are rounded to: all columns are zero
    assert np.array_equal(exact_product(rows, query.beta), exact_product(rows, whole))


def test_scores_of_columns_agree_with_the_score():
    x, y, _ = data()
    query, score = PeeledScores(BETA, 0.3, 1.0), Score(PLAIN, BETA, 0.3)
    rows = block(x / 2, y, score)  # inside the ball: every weight is 1
    assert rows.weight.min() == pytest.approx(1.0)
    assert answer(query, rows) == pytest.approx(answer(score, rows), abs=1e-9)
