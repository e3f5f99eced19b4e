"""Moments of a clipped response, by row and by unit: what they are, and how far they can move."""

import numpy as np
import pytest

from dpstats.errors import PlanError
from dpstats.privacy import Neighbors
from dpstats.queries import ResponseInterval, ResponseMoments, UnitMoments
from tests.queries.cases import answer, block

REPLACE, ADD = Neighbors.REPLACE_ONE, Neighbors.ADD_REMOVE
LOWER, UPPER = -0.4, 0.9
HALF = (UPPER - LOWER) / 2


def rows(y, keep=None, starts=None):
    y = np.asarray(y, dtype=np.float64)
    return block(np.ones((y.size, 1)), y, ResponseMoments(LOWER, UPPER), keep, starts)


def test_moments_of_rows_equal_numpy():
    y = np.random.default_rng(1).uniform(-1, 1, 500)
    keep = np.arange(500) % 7 > 0
    query = ResponseMoments(LOWER, UPPER)
    c = np.clip(y[keep], LOWER, UPPER) - query.centre
    released = query.decode(answer(query, rows(y, keep)))
    assert released == pytest.approx([c.sum(), (c**2).sum(), keep.sum()], abs=1e-3)


def test_moments_of_units_equal_numpy():
    rng = np.random.default_rng(2)
    y, starts = rng.uniform(-1, 1, 12), np.array([0, 3, 4, 8, 10])
    query = UnitMoments(LOWER, UPPER, rows=4)
    c = np.clip(y, LOWER, UPPER) - query.centre
    t = np.array([part.sum() for part in np.split(c, starts[1:])])
    size = np.array([part.size for part in np.split(c, starts[1:])])
    released = query.decode(answer(query, rows(y, starts=starts)))
    expected = [t.sum(), (t**2).sum(), size.sum(), (size**2).sum()]
    assert released == pytest.approx(expected, abs=1e-4)


def test_squares_and_count_do_not_add_to_the_sensitivity_of_the_sum():
    """All pairs of values on a fine grid, and a missing row: the sum moves farthest."""
    query = ResponseMoments(LOWER, UPPER)
    single = [answer(query, rows([v])) for v in np.linspace(-1, 1, 201)]
    points = np.array([*single, np.zeros(3)])
    worst = np.abs(points[:, None] - points[None]).sum(axis=2).max()
    assert worst <= query.sensitivity(REPLACE, 1)
    assert worst == pytest.approx(2 * HALF, rel=1e-5)
    assert np.abs(points).sum(axis=1).max() <= query.sensitivity(ADD, 1)


@pytest.mark.parametrize("m", [2, 3, 5])
def test_a_unit_stays_within_its_sensitivity(m):
    """Corners and random interiors of every size, against each other and an absent unit."""
    rng = np.random.default_rng(m)
    query = UnitMoments(LOWER, UPPER, rows=m)
    units = [np.full(k, v) for k in range(1, m + 1) for v in (-1.0, 1.0)]
    units += [rng.choice([-1.0, 1.0, 0.25, rng.uniform(-1, 1)], k) for k in range(1, m + 1)] * 5
    points = [answer(query, rows(u, starts=np.array([0]))) for u in units]
    points = np.array([*points, np.zeros(4)])
    worst = np.abs(points[:, None] - points[None]).sum(axis=2).max()
    assert 0.85 * query.sensitivity(REPLACE, m) < worst <= query.sensitivity(REPLACE, m)


def test_a_unit_larger_than_planned_is_refused():
    with pytest.raises(PlanError, match="more than the 2 planned"):
        UnitMoments(LOWER, UPPER, rows=2).sensitivity(REPLACE, 3)


def test_interval_utilities_count_the_rows_outside():
    query = ResponseInterval(
        np.array([-1.0, -0.5, 0.0, 0.5, 1.0]),
        first=np.array([0, 1, 0]),
        last=np.array([2, 3, 4]),
        penalty=np.array([0.0, 0.0, 2.5]),
    )
    y = [-1.0, -0.7, -0.2, 0.3, 0.3, 1.0]
    assert answer(query, rows(y)) == pytest.approx([-3, -3, -2.5])
    assert query.decode(np.array([1.0])) == pytest.approx([-0.5, 0.5])


def test_edges_that_do_not_increase_are_refused():
    with pytest.raises(PlanError, match="increase"):
        ResponseInterval(np.array([0.0, 0.0]), np.array([0]), np.array([1]), np.zeros(1))
