"""Blocks and query cases shared by the tests of queries, mechanisms and holders."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpstats.families import BINOMIAL, GAUSSIAN, POISSON, Family
from dpstats.queries import (
    Block,
    CoordinateScores,
    Count,
    Geometry,
    Gradient,
    Gram,
    MinEigenvalue,
    NormQuantile,
    PairScales,
    PeeledScores,
    Query,
    ResidualCount,
    ResidualMoment,
    ResidualQuantile,
    ResponseHistogram,
    ResponseInterval,
    ResponseMoments,
    ResponseQuantile,
    Score,
    ScoreOuter,
    Search,
    Selected,
    TailSums,
    UnitMoments,
)
from dpstats.queries.blocks import X_BITS, Y_BITS, bound_grid

D = 3
WHITEN = np.array([[2.0, 0.3, 0.0], [0.1, 0.7, -0.2], [0.0, 0.5, 5.0]])
PLAIN = Geometry(1.1)
SKEWED = Geometry(1.3, WHITEN)
BETA = np.array([0.4, -0.25, 0.7])
GRID = 2.0 ** np.arange(-6.0, 2.0)
SEARCHED = 2.0 ** np.arange(-6.0, 3.0)
PAIR = Geometry(1.2, WHITEN[:2, 1:])  # of two columns
PART = Geometry(1.2, WHITEN[:2])  # two directions of three columns
GAUSSIAN_LOG, POISSON_IDENTITY = Family("gaussian", "log"), Family("poisson", "identity")


@dataclass(frozen=True)
class Case:
    """A query, the norm of its sensitivity, and how much of it random search should attain.

    With `offset` rows have one, some of it extreme.
    """

    query: Query
    norm: float
    attained: float
    offset: bool = False
    label: str = ""

    def __str__(self) -> str:
        return self.label

    def block(self, x: Any, y: Any, keep: Any = None, starts: Any = None, **kind: Any) -> Block:
        """Rows as this query meets them."""
        rows = block(x, y, self.query, keep, starts, **kind)
        return replace(rows, offset=row_offset(rows)) if self.offset else rows


def row_offset(rows: Block) -> Any:
    """An offset that goes with a row wherever it stands; beyond any family's range where y = 1."""
    return np.where(rows.y == 1.0, -1e6, np.where(rows.y == 0.0, 40.0, rows.y / 3)) * rows.keep


_CASES = [
    Case(Count(), 2, 1.0),
    Case(Score(PLAIN, BETA, 0.3), 2, 0.95),
    Case(Score(SKEWED, BETA, 0.3), 2, 0.95),
    Case(Gradient(BETA, 0.6), 2, 0.95),
    Case(Gram(PLAIN), 2, 0.95),
    Case(Gram(SKEWED), 2, 0.95),
    Case(Gram(SKEWED, BETA, 0.5), 2, 0.9),
    Case(ScoreOuter(PLAIN, BETA, 0.4), 2, 0.9),
    Case(ScoreOuter(SKEWED, BETA, 0.4), 2, 0.9),
    Case(ResidualCount(PLAIN, BETA, 0.2), 2, 1.0),
    Case(ResidualMoment(PLAIN, BETA, 0.4), 2, 0.95),
    Case(MinEigenvalue(PLAIN), 2, 0.4),
    Case(ResponseMoments(-0.4, 0.9), 1, 0.95),
    Case(UnitMoments(-0.4, 0.9, rows=3), 1, 0.25),
    Case(
        ResponseInterval(
            np.linspace(-1.0, 1.0, 9),
            np.array([0, 2, 3, 0]),
            np.array([3, 4, 8, 8]),
            np.array([0.0, 1.0, 2.0, 3.0]),
        ),
        np.inf,
        1.0,
    ),
    Case(ResponseHistogram(GRID), 1, 1.0),
    Case(ResponseHistogram(GRID, norm="l2"), 2, 0.99),
    Case(PairScales(BETA, -6, 2), 1, 1.0),
    Case(ResponseQuantile(GRID, 0.3), np.inf, 0.99),
    Case(NormQuantile(GRID, 0.5, WHITEN), np.inf, 0.99),
    Case(ResidualQuantile(GRID, 0.9, BETA), np.inf, 0.99),
    Case(Search(ResidualQuantile(SEARCHED, 0.7, BETA)), np.inf, 0.99),
    Case(Search(NormQuantile(SEARCHED, 0.6, WHITEN)), np.inf, 0.99),
    Case(TailSums(BETA, np.array([0.2, 0.4, 0.8])), 2, 0.95),
    # families and offsets
    Case(Score(PLAIN, BETA, 0.3), 2, 0.95, offset=True),
    Case(Score(PLAIN, BETA, 0.3, BINOMIAL), 2, 0.95),
    Case(Score(SKEWED, BETA, 0.3, POISSON), 2, 0.95, offset=True),
    Case(Score(PLAIN, 1e4 * BETA, 0.3, GAUSSIAN_LOG), 2, 0.5),
    Case(Score(PART, BETA, 0.3, POISSON_IDENTITY), 2, 0.95),
    Case(Gradient(BETA, 0.4, BINOMIAL), 2, 0.95),
    Case(Gram(SKEWED, BETA, None, BINOMIAL, cap=0.25), 2, 0.9),
    Case(Gram(PLAIN, BETA, 0.9, POISSON, cap=0.5), 2, 0.6),
    Case(Gram(PLAIN, BETA, None, POISSON_IDENTITY, cap=3.0), 2, 0.9, offset=True),
    Case(ScoreOuter(SKEWED, BETA, 0.4, family=BINOMIAL), 2, 0.9),
    Case(ResidualCount(PLAIN, BETA, 0.6, BINOMIAL), 2, 1.0),
    Case(ResidualMoment(PLAIN, BETA, 0.4, POISSON), 2, 0.95),
    Case(TailSums(BETA, np.array([0.2, 0.3, 0.5]), BINOMIAL), 2, 0.95),
    Case(ResidualQuantile(GRID, 0.9, BETA, BINOMIAL), np.inf, 0.99),
    Case(Search(ResidualQuantile(SEARCHED, 0.7, BETA, POISSON)), np.inf, 0.99, offset=True),
    # chosen columns
    Case(Selected(Score(PAIR, BETA[:2], 0.3), (2, 0)), 2, 0.95),
    Case(Selected(Score(PAIR, BETA[:2], 0.3, BINOMIAL), (1, 2)), 2, 0.95, offset=True),
    Case(Selected(Gram(PLAIN, BETA[1:], None, BINOMIAL), (0, 2)), 2, 0.95),
    Case(Selected(Search(ResidualQuantile(SEARCHED, 0.7, BETA[:1])), (1,)), np.inf, 0.99),
    # scores of every column
    Case(CoordinateScores(np.zeros(D), 0.3, 1.0, np.array([3.0, 0.0, -9.0])), np.inf, 0.99),
    Case(CoordinateScores(BETA, 0.3, 1.5, signed=True), np.inf, 0.6),
    Case(CoordinateScores(BETA, 0.3, 1.0, signed=True, family=BINOMIAL), np.inf, 0.99),
    Case(PeeledScores(BETA * [0, 1, 0], 0.3, 1.0, np.ones(D)), np.inf, 0.99),
    Case(PeeledScores(BETA, 0.3, 1.0, family=POISSON), np.inf, 0.99, offset=True),
]

CASES = [replace(c, label=f"{i}-{type(c.query).__name__}") for i, c in enumerate(_CASES)]


def sharpest(case: Case) -> bool:
    """Whether it is the last plain case of its query: whitened, clipped, of chosen columns."""
    same = [c for c in CASES if type(c.query) is type(case.query)]
    plain = [c for c in same if getattr(c.query, "family", GAUSSIAN) == GAUSSIAN and not c.offset]
    return case is (plain or same)[-1]


def block(
    x: Any,
    y: Any,
    query: Query,
    keep: Any = None,
    starts: Any = None,
    bound: Any = 1.0,
    sparse: bool = False,
) -> Block:
    """Rows on the public grid with the query's row weights, as a curator prepares them."""
    from scipy.sparse import csr_array

    x = np.atleast_2d(np.asarray(x, dtype=np.float64))
    bounds = np.broadcast_to(np.asarray(bound, dtype=np.float64), x.shape[1:])
    steps, y_step = np.array([bound_grid(b, X_BITS) for b in bounds]), bound_grid(1.0, Y_BITS)
    keep = np.ones(x.shape[0]) if keep is None else np.asarray(keep, dtype=np.float64)
    x = np.rint(np.clip(x, -bounds, bounds) / steps) * steps * keep[:, None]
    x = x.astype(np.float32)  # exact
    y = np.rint(np.clip(y, -1.0, 1.0) / y_step) * y_step * keep
    if query.columns is not None:
        chosen = list(query.columns)
        x, bounds, steps = np.take(x, chosen, axis=1), bounds[chosen], steps[chosen]
    bare = Block(csr_array(x) if sparse else x, y, keep, keep, bounds, steps, starts)
    rows = bare.weighted(query.geometry)
    return replace(rows, weight=rows.weight.astype(np.float32).astype(np.float64))


def answer(query: Query, rows: Block) -> Any:
    """The exact answer of one block."""
    return query.finish(query.total(rows), rows.grid)


def extreme_rows(rng: np.random.Generator, m: int) -> tuple[Any, Any, Any]:
    """Rows at corners, on axes, at zero, inside; some incomplete."""
    kind = rng.integers(0, 5, m)
    x = np.where(
        (kind == 0)[:, None],
        rng.choice([-1.0, 1.0], (m, D)),
        np.where(
            (kind == 1)[:, None], np.eye(D)[rng.integers(0, D, m)], rng.uniform(-1, 1, (m, D))
        ),
    )
    x[kind == 2] *= 1e-4
    y = rng.choice([-1.0, 1.0, 0.0, 0.5, rng.uniform(-1, 1)], m)
    return x, y, rng.uniform(size=m) > 0.1
