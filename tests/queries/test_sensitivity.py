"""Every query obeys the sensitivity it states, and comes close to it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpstats.errors import PlanError
from dpstats.mechanisms.release import ROUNDING
from dpstats.privacy import Neighbors
from dpstats.queries import (
    AugmentedSquares,
    Geometry,
    Gradient,
    Gram,
    LevelSquares,
    PairScales,
    ResponseMoments,
    Score,
    ScoreOuter,
    ScoreSquares,
)
from dpstats.queries.row_norms import Squares
from tests.grids import grid
from tests.queries.cases import (
    AUGMENTED,
    BETA,
    CASES,
    ROOT,
    THREE,
    WHITEN,
    Case,
    answer,
    block,
    extreme_rows,
    sharpest,
)

REPLACE, ADD = Neighbors.REPLACE_ONE, Neighbors.ADD_REMOVE
TRIES = 160


def distance(case: Case, a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(np.atleast_1d(a - b), case.norm))


def neighbours(rng: np.random.Generator, m: int):
    """A table and the same table with one row replaced, the worst of them near corners."""
    x, y, keep = extreme_rows(rng, m)
    x2, y2, keep2 = x.copy(), y.copy(), keep.copy()
    i = rng.integers(m)
    nx, ny, nk = extreme_rows(rng, 1)
    x2[i], y2[i], keep2[i] = nx[0], ny[0], nk[0]
    if rng.uniform() < 0.5:  # the same row with its response mirrored: opposite scores
        x2[i], y2[i] = x[i], -y[i]
    return (x, y, keep), (x2, y2, keep2)


@pytest.mark.parametrize("case", grid(CASES, sharpest), ids=str)
def test_replacing_a_row_moves_the_answer_by_at_most_its_sensitivity(case: Case) -> None:
    rng = np.random.default_rng(11)
    claimed = case.query.sensitivity(REPLACE, 1)
    worst = 0.0
    for trial in range(TRIES):
        a, b = neighbours(rng, 2 if trial % 2 else 6)
        moved = distance(case, *(answer(case.query, case.block(x, y, k)) for x, y, k in (a, b)))
        assert moved <= claimed * (1 + 1e-9)
        worst = max(worst, moved)
    assert worst >= case.attained * claimed * 0.7  # the search is able to find large moves


@pytest.mark.parametrize("case", grid(CASES, sharpest), ids=str)
def test_it_is_obeyed_on_rows_of_any_design(case: Case) -> None:
    """Whoever asks a site for a step chooses the query, and chose the design before."""
    rng = np.random.default_rng(13)
    claimed = case.query.sensitivity(REPLACE, 1)
    for trial in range(TRIES // 4):
        of = replace(case, weighted=trial % 2 == 0, offset=trial % 3 > 0)
        a, b = neighbours(rng, 6)
        moved = distance(case, *(answer(case.query, of.block(x, y, k)) for x, y, k in (a, b)))
        assert moved <= claimed * (1 + 1e-9)


@pytest.mark.parametrize(
    "case", grid([c for c in CASES if not isinstance(c.query, PairScales)], sharpest), ids=str
)
def test_adding_a_row_moves_the_answer_by_at_most_its_sensitivity(case: Case) -> None:
    rng = np.random.default_rng(12)
    claimed = case.query.sensitivity(ADD, 1)
    for _ in range(TRIES):
        x, y, keep = extreme_rows(rng, 5)
        full = answer(case.query, case.block(x, y, keep))
        fewer = answer(case.query, case.block(x[1:], y[1:], keep[1:]))
        assert distance(case, full, fewer) <= claimed * (1 + 1e-9)


@pytest.mark.parametrize("neighbors", [REPLACE, ADD], ids=lambda n: n.value)
@pytest.mark.parametrize(
    "case",
    grid(
        [c for c in CASES if not isinstance(c.query, PairScales | ScoreOuter | Squares)],
        sharpest,
    ),
    ids=str,
)
def test_a_unit_of_several_rows_stays_within_its_sensitivity(
    case: Case, neighbors: Neighbors
) -> None:
    rng, m = np.random.default_rng(13), 3
    claimed = case.query.sensitivity(neighbors, m)
    for _ in range(TRIES // 2):
        x, y, keep = extreme_rows(rng, 4 + m)
        x2, y2, keep2 = extreme_rows(rng, rng.integers(0 if neighbors is ADD else 1, m + 1))
        if neighbors is ADD:
            x2, y2, keep2 = x2[:0], y2[:0], keep2[:0]
        one = answer(case.query, case.block(x, y, keep))
        other = answer(
            case.query,
            case.block(np.r_[x[:4], x2], np.r_[y[:4], y2], np.r_[keep[:4], keep2].astype(bool)),
        )
        assert distance(case, one, other) <= claimed * (1 + 1e-9)


@pytest.mark.parametrize("kind", [ScoreOuter, ScoreSquares, LevelSquares, AugmentedSquares])
def test_cluster_outer_products_stay_within_their_sensitivity(kind: Any) -> None:
    rng, m = np.random.default_rng(14), 3
    first = Geometry(1.3, WHITEN) if kind is ScoreOuter else WHITEN
    if kind is LevelSquares:
        query = LevelSquares(WHITEN, THREE, ROOT, 0.4, max_rows=m)
    elif kind is AugmentedSquares:
        query = AugmentedSquares(*AUGMENTED, 0.4, max_rows=m)
    else:
        query = kind(first, BETA, 0.4, max_rows=m)
    claimed = query.sensitivity(REPLACE, m)
    worst = 0.0
    for _ in range(TRIES):
        x, y, _ = extreme_rows(rng, 2 * m)
        x2, y2 = x.copy(), y.copy()
        x2[m:], y2[m:] = extreme_rows(rng, m)[:2]
        if rng.uniform() < 0.5:
            x[m:], y[m:] = x[m], y[m]
            x2[m:], y2[m:] = x2[m], y2[m]
        starts = np.array([0, m])
        moved = np.linalg.norm(
            answer(query, block(x, y, query, starts=starts))
            - answer(query, block(x2, y2, query, starts=starts))
        )
        assert moved <= claimed * (1 + 1e-9)
        worst = max(worst, float(moved))
    assert worst > 0.5 * claimed


def test_gram_sensitivity_is_attained_by_orthogonal_rows() -> None:
    query = Gram(Geometry(0.8))
    e1, e2 = np.eye(3)[:1], np.eye(3)[1:2]
    moved = answer(query, block(e1, [0.0], query)) - answer(query, block(e2, [0.0], query))
    assert np.linalg.norm(moved) == pytest.approx(math.sqrt(2) * 0.8**2, rel=1e-5)
    assert query.sensitivity(REPLACE, 1) == pytest.approx(math.sqrt(2) * 0.8**2)


def test_dropping_the_clip_breaks_the_claimed_sensitivity() -> None:
    """Power of the search: with a claim at half the clip it fails."""
    query, low = Score(Geometry(1.1), BETA, 0.3), Score(Geometry(1.1), BETA, 0.15)
    x = np.array([[0.635, 0.635, -0.635]])  # inside the ball, both residuals beyond the clip
    moved = answer(query, block(x, [1.0], query)) - answer(query, block(x, [-1.0], query))
    assert np.linalg.norm(moved) > 1.9 * low.sensitivity(REPLACE, 1)


def test_pairs_refuse_neighbours_they_cannot_serve() -> None:
    with pytest.raises(PlanError, match="replace-one"):
        PairScales(BETA, -6, 2).sensitivity(ADD, 1)


@pytest.mark.parametrize(("lower", "upper"), [(1.0, 1.0), (2.0, -1.0)])
def test_an_empty_interval_is_refused(lower: float, upper: float) -> None:
    with pytest.raises(PlanError, match="lower must be below upper"):
        ResponseMoments(lower, upper)


def test_a_gradient_exceeds_its_clip_by_what_its_docstring_says_and_noise_covers_it():
    clip, far = 0.05, 0.0
    rng = np.random.default_rng(5)
    for x in rng.uniform(-0.15, 0.15, (2_000, 3)):  # the shorter, the finer the grid
        made = answer(Gradient(np.zeros(3), clip), block(x, [1.0], Gradient(np.zeros(3), clip)))
        far = max(far, math.sqrt(math.fsum(v * v for v in made.tolist())) / clip - 1)
    assert 2.0**-27 < far <= 2.0**-24  # power: a bound of clip itself would fail
    assert far < (ROUNDING - 1) / 2
