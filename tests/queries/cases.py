"""Blocks and query cases shared by the tests of queries, mechanisms and holders."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpstats.queries import (
    Block,
    Count,
    Geometry,
    Gradient,
    Gram,
    MinEigenvalue,
    NormQuantile,
    PairScales,
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
    TailSums,
    UnitMoments,
)
from dpstats.queries.base import X_BITS, Y_BITS, bound_grid

D = 3
WHITEN = np.array([[2.0, 0.3, 0.0], [0.1, 0.7, -0.2], [0.0, 0.5, 5.0]])
PLAIN = Geometry(1.1)
SKEWED = Geometry(1.3, WHITEN)
BETA = np.array([0.4, -0.25, 0.7])
GRID = 2.0 ** np.arange(-6.0, 2.0)
SEARCHED = 2.0 ** np.arange(-6.0, 3.0)


@dataclass(frozen=True)
class Case:
    """A query, the norm of its sensitivity, and how much of it random search should attain."""

    query: Query
    norm: float
    attained: float

    label: str = ""

    def __str__(self) -> str:
        return self.label


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
]

CASES = [replace(c, label=f"{i}-{type(c.query).__name__}") for i, c in enumerate(_CASES)]


def block(
    x: Any, y: Any, query: Query, keep: Any = None, starts: Any = None, bound: float = 1.0
) -> Block:
    """Rows on the public grid with the query's row weights, as a curator prepares them."""
    x = np.atleast_2d(np.asarray(x, dtype=np.float64))
    step, y_step = bound_grid(bound, X_BITS), bound_grid(bound, Y_BITS)
    keep = np.ones(x.shape[0]) if keep is None else np.asarray(keep, dtype=np.float64)
    x = np.rint(np.clip(x, -bound, bound) / step) * step * keep[:, None]
    y = np.rint(np.clip(y, -bound, bound) / y_step) * y_step * keep
    bare = Block(x, y, keep, keep, np.full(x.shape[1], bound), np.full(x.shape[1], step), starts)
    weight = keep if query.geometry is None else query.geometry.weights(bare)
    weight = weight.astype(np.float32).astype(np.float64)
    return Block(x, y, keep, weight, bare.bound, bare.grid, starts)


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
