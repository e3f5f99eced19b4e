"""A question on file cannot be worth more than it says: its numbers are refused, or they hold.

Every number of a question on file is replaced by others (0, negative, huge, no number at all),
every list reversed, shortened or doubled. What is still read must obey its own sensitivity.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from dpstats.errors import DPStatsError
from dpstats.holders.labels import held
from dpstats.privacy import Neighbors
from dpstats.queries import (
    CandidateLosses,
    ColumnMoments,
    CoordinateScores,
    Gradient,
    LevelCurvature,
    LevelScore,
    PeeledExpectedScores,
    ResidualSums,
    ResponseInterval,
    Score,
    ScoredColumn,
    ScoreProducts,
    WhitenedScore,
)
from dpstats.queries.as_json import query_from_dict, query_to_dict
from dpstats.queries.column_scores import ColumnScores
from dpstats.queries.label_cells import LabelCells, LongResiduals
from dpstats.queries.label_held import HeldSums, OuterSums
from dpstats.queries.labels import (
    Interval,
    LabelSums,
    SquaredResiduals,
    WeightedResiduals,
)
from tests.grids import grid
from tests.queries.cases import (
    BETA,
    CASES,
    IN_CELLS,
    PLAIN,
    ROOT,
    THREE,
    WHITEN,
    Case,
    answer,
    block,
    sharpest,
)
from tests.queries.test_sensitivity import neighbours

HOSTILE = [0, -1, -0.5, 0.3, 2, 7, 10**6, 1e300, -1e300, 1e-300]
HOSTILE += [1e-305, 5e-324]
HOSTILE += [{"nonfinite": name} for name in ("nan", "inf", "-inf")]
NORMS = {"l1": 1, "l2": 2, "linf": np.inf}
PUBLIC = {"question", "version", "name", "link", "norm"}
Pair = Callable[[np.random.Generator, Any], tuple[Any, Any]]


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Where a question may be falsified, and what with."""
    if isinstance(data, list):
        yield from ((path, other) for other in (data[::-1], data[:-1], data + data, []))
        for i in {0, len(data) - 1} if data else ():
            yield from places(data[i], (*path, i))
    elif isinstance(data, dict) and data.keys() != {"nonfinite"}:
        for name in data.keys() - PUBLIC:
            yield from places(data[name], (*path, name))
    elif isinstance(data, bool):
        yield path, not data
    elif data is not None:
        yield from ((path, other) for other in HOSTILE)


def falsified(query: Any) -> Iterator[tuple[str, Any]]:
    """Questions that were read all the same."""
    data = query_to_dict(query)
    for path, other in places(data):
        forged = copy.deepcopy(data)
        at = forged
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = other
        try:
            made = query_from_dict(forged)
        except DPStatsError:
            continue
        yield f"{path} = {other}", made


def excess(made: Any, answers: Pair, trials: int) -> float:
    """Largest change over the stated sensitivity; 0 where no answer is given."""
    worst, rng = 0.0, np.random.default_rng(1)
    try:
        claimed = made.sensitivity(Neighbors.REPLACE_ONE, 1)
        if not (np.isfinite(claimed) and claimed > 0):
            return 0.0  # there is no noise of such a scale
        for _ in range(trials):
            one, other = (np.ravel(a) for a in answers(rng, made))
            worst = max(worst, float(np.linalg.norm((one - other) / claimed, NORMS[made.norm])))
            if not np.isfinite(one - other).all():
                return np.inf
    except (DPStatsError, ValueError, OverflowError, IndexError):  # nothing is answered
        return 0.0
    return worst


@pytest.mark.parametrize(
    "case",
    grid([c for c in CASES if not c.offset], lambda c: sharpest(c) and not c.weighted),
    ids=str,
)
def test_a_forged_question_obeys_its_sensitivity(case: Case) -> None:
    def pair(rng: np.random.Generator, made: Any) -> tuple[Any, Any]:
        one, other = (block(x, y, made, keep) for x, y, keep in neighbours(rng, 6))
        return answer(made, one), answer(made, other)

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for what, made in falsified(case.query):
            assert excess(made, pair, 5) <= 1 + 1e-9, what


N = 8
X = np.random.default_rng(0).normal(size=(N, 3))
FITTED = X @ [0.5, -0.2, 0.3]
INTERVAL = Interval(-1.0, 3.0)
EXTREME = np.array([-1.0, 3.0, 1.0, 0.3, np.inf, -np.inf, np.nan, 1e308])
ABOUT_LABELS = [
    LabelSums(INTERVAL, X),
    LabelSums(INTERVAL, X, "l1"),
    LabelCells(INTERVAL, np.array([-1.0, 0.0, 2.0, 3.0]), "l1"),
    HeldSums(INTERVAL, X, np.linspace(-1, 1, N), np.linspace(0, 3, N)),
    OuterSums(
        INTERVAL,
        X,
        (np.linspace(-1, 1, N), np.linspace(0, 3, N)),
        (np.linspace(-0.9, 1.1, N), np.linspace(0, 2.8, N)),
    ),
    LongResiduals(INTERVAL, np.linspace(-1, 1, N), np.linspace(0, 3, N), np.array([0.1, 1.0])),
    SquaredResiduals(INTERVAL, FITTED, 0.7),
    WeightedResiduals(INTERVAL, X, FITTED, np.linspace(0.9, 0.2, N), "l1"),
    *(
        ColumnScores(INTERVAL, rows, FITTED, 0.7, np.zeros(3), np.ones(3), np.arange(3))
        for rows in (X, csr_array(X * (np.abs(X) > 0.5)))
    ),
]


@pytest.mark.parametrize("query", ABOUT_LABELS, ids=lambda q: type(q).__name__)
def test_so_does_a_forged_question_about_responses(query: Any) -> None:
    def pair(rng: np.random.Generator, made: Any) -> tuple[Any, Any]:
        labels = rng.choice(EXTREME, N)
        others = labels.copy()
        others[rng.integers(N)] = rng.choice(EXTREME)
        return made.total(held(labels, made.interval)), made.total(held(others, made.interval))

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for what, made in falsified(query):
            assert excess(made, pair, 8) <= 1 + 1e-9, what


def test_an_entry_that_is_stored_twice_is_clipped_once() -> None:
    twice = csr_array((np.array([0.9, 0.9, 0.2]), np.array([0, 0, 1]), np.array([0, 2, 3])))
    query = ColumnScores(INTERVAL, twice, np.zeros(2), 0.7, np.zeros(2), np.ones(2), np.arange(2))
    moved = query.total(np.array([2.0, 0.0])) - query.total(np.array([-2.0, 0.0]))
    sums = query.total(np.array([2.0, -1.0]))
    assert np.abs(moved).max() <= query.sensitivity()
    assert sums[0] == pytest.approx(0.7)


RESPONSES = ScoredColumn.window(3, -0.5, 0.9)
STEEP = ScoredColumn(1, np.array([-5e-306, 9e-306]), np.array([-1e30, 1e30]))
FOUR, FAR = np.linspace(-1, 1, 5), np.array([0.0, 2.0**54, 2.0**57])
APART = np.array([1.2, -1e9, 2.1])
SMALL, WIDE = 1e-310, ScoredColumn(1, np.array([-1.0, 0.0, 1.0]), np.array([-1e308, 0.0, 1e308]))
WITHOUT_A_GRID = {
    "clip of a score": lambda: Score(PLAIN, BETA, 1e-305),
    "clip of a gradient": lambda: Gradient(BETA, SMALL),
    "clip of a whitened score": lambda: WhitenedScore(WHITEN, BETA, SMALL),
    "clip of sums": lambda: ResidualSums(BETA, 5e-324),
    "clip of coordinates": lambda: CoordinateScores(BETA, 1e-305, 1.0),
    "coefficients next to 0": lambda: Gradient(1e-317 * BETA, 0.6),
    "least coefficients": lambda: WhitenedScore(WHITEN, np.full(3, 5e-324), 0.4),
    "coefficients of levels": lambda: LevelScore(WHITEN, np.full((3, 2), 5e-324), ROOT, 0.6),
    "matrix of levels": lambda: LevelCurvature(WHITEN, THREE, ROOT * [1, -1e200], 2.0, 0.4),
    "radius of products": lambda: ScoreProducts((IN_CELLS, RESPONSES), 5e-324),
    "scores of products": lambda: ScoreProducts((WIDE, RESPONSES), 0.3),
    "knots next to each other": lambda: ScoreProducts((STEEP, RESPONSES), 1.2),
    "penalty of intervals": lambda: ResponseInterval(FOUR, np.arange(3), np.array([2, 3, 4]), FAR),
    "penalty of fits": lambda: CandidateLosses(np.stack([BETA] * 3), 1e-3, FAR),
    "coefficients far apart": lambda: PeeledExpectedScores(APART, 0.2, 0.5, 0.4),
    "window": lambda: ColumnMoments(np.array([1]), np.zeros(1), np.full(1, 5e-324)),
}


@pytest.mark.parametrize("make", WITHOUT_A_GRID.values(), ids=WITHOUT_A_GRID.keys())
def test_numbers_without_a_grid_in_float64_are_refused_or_hold(make: Callable[[], Any]) -> None:
    """What is infinite, or no number, becomes an integer that no clip bounds."""

    def pair(rng: np.random.Generator, made: Any) -> tuple[Any, Any]:
        one, other = (block(x, y, made, keep) for x, y, keep in neighbours(rng, 6))
        return answer(made, one), answer(made, other)

    with np.errstate(all="ignore"):
        try:
            made = make()
        except DPStatsError:
            return
        assert excess(made, pair, 40) <= 1 + 1e-9
