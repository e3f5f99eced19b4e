"""Blocks and query cases shared by the tests of queries, mechanisms and holders."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpstats.families import BINOMIAL, GAUSSIAN, POISSON, Family
from dpstats.families.bounded import BoundedFamily
from dpstats.families.check import Check
from dpstats.families.dispersion import Dispersion
from dpstats.families.signs import SignedFamily
from dpstats.queries import (
    AstrayCounts,
    AugmentedCount,
    AugmentedCurvature,
    AugmentedLengths,
    AugmentedScore,
    AugmentedSquares,
    Axis,
    Block,
    ColumnCells,
    ColumnMoments,
    ColumnPrefixes,
    Completed,
    CoordinateScores,
    CoordinateSums,
    Count,
    DeclaredCounts,
    ExpectedScores,
    FarDirections,
    Geometry,
    Gradient,
    Gram,
    GroupSums,
    LengthQuantile,
    LevelCount,
    LevelCurvature,
    LevelLengths,
    LevelScore,
    LevelSquares,
    LongEntries,
    MinEigenvalue,
    MixtureMoments,
    MixtureScores,
    NormCount,
    NormHistogram,
    NormQuantile,
    ObservedPairs,
    PairScales,
    PeeledExpectedScores,
    PeeledScores,
    Predicted,
    ProjectedCells,
    Query,
    ResidualCells,
    ResidualCount,
    ResidualMoment,
    ResidualQuantile,
    ResidualSums,
    ResponseHistogram,
    ResponseInterval,
    ResponseMoments,
    ResponseQuantile,
    Score,
    ScoreCurvature,
    ScoredColumn,
    ScoreOuter,
    ScoreProducts,
    ScoreSlope,
    ScoreSquares,
    Selected,
    ShownRows,
    SignedRows,
    TableCounts,
    UnitMoments,
    WhitenedScore,
)
from dpstats.queries.blocks import X_BITS, Y_BITS, Incomplete, bound_grid

D = 3
WHITEN = np.array([[2.0, 0.3, 0.0], [0.1, 0.7, -0.2], [0.0, 0.5, 5.0]])
PLAIN = Geometry(1.1)
SKEWED = Geometry(1.3, WHITEN)
BETA = np.array([0.4, -0.25, 0.7])
GRID = 2.0 ** np.arange(-6.0, 2.0)
SEARCHED = 2.0 ** np.arange(-6.0, 3.0)
PAIR = Geometry(1.2, WHITEN[:2, 1:])  # of two columns
APART = np.vstack([5 * WHITEN[:2], -4 * WHITEN[1:]])  # residuals to two components
LINES = np.array([[0.4, -0.25, 0.7], [-0.5, 0.6, 0.1]])  # coefficients of two components
PRECISION = np.array([[1.5, -0.9, 0.2], [-0.9, 2.0, 0.4], [0.2, 0.4, 0.8]])
SECOND = np.linalg.inv(PRECISION)[np.triu_indices(D)]
AUGMENTED = (WHITEN, BETA, PRECISION, SECOND, np.arange(-9.0, 9.0).reshape(D, -1) / 30)
PART = Geometry(1.2, WHITEN[:2])  # two directions of three columns
TWO = Axis(np.array([0, 2]), np.array([1.0, 2.0]), np.array([-9.0, 0.0, 1.0, 9.0]))
IN_CELLS = ScoredColumn(1, np.array([-1.0, -0.2, 0.5, 1.0]), np.array([-1.7, 0.1, 1.7]))
RANKED = ScoredColumn(1, np.array([-1.0, -0.2, 0.5, 1.0]), np.array([-1.7, 0.1, 0.6, 1.7]))
PROBIT, CLOGLOG = Family("binomial", "probit"), Family("binomial", "cloglog")
BOUNDED = {
    "gaussian": BoundedFamily("gaussian", "identity", spread=0.5),
    "binomial": BoundedFamily("binomial", "logit"),
    "poisson": BoundedFamily("poisson", "log", spread=0.4),
    "gamma": BoundedFamily("gamma", "log", spread=0.5),
}
GAMMA, COUNTS = Family("gamma", "log"), Family("negativebinomial", "log", alpha=0.7)
ALL = np.arange(D)
OF_MEAN = Axis(np.array([0]), np.ones(1), np.array([-9.0, 0.0, 0.4, 9.0]))
OF_RESPONSE = Axis(np.array([3]), np.ones(1), np.array([-1.0, 0.1, 1.0]))
SIGNS = SignedFamily("symmetric mixture", "rows", 3.0)
SIGNED_LINES = SignedFamily("symmetric mixture", "lines", 3.0, 0.5)
# Coefficients of two levels, and what their residuals are multiplied by.
THREE = np.stack([BETA, -0.5 * BETA[::-1]], axis=1)
ROOT = np.array([[2.0, 0.5], [0.5, 3.0]])
CHECK = Check("quantile", "identity", level=0.9, bandwidth=0.5)
GAUSSIAN_LOG, POISSON_IDENTITY = Family("gaussian", "log"), Family("poisson", "identity")


# Questions that read each value by itself, of incomplete rows too.
BY_VALUE = (
    AstrayCounts,
    DeclaredCounts,
    AugmentedCount,
    AugmentedCurvature,
    AugmentedLengths,
    AugmentedScore,
    AugmentedSquares,
    ColumnCells,
    ColumnMoments,
    ColumnPrefixes,
    Completed,
    ExpectedScores,
    GroupSums,
    ObservedPairs,
    Predicted,
    PeeledExpectedScores,
    ScoreProducts,
    ShownRows,
    TableCounts,
)
# Those whose cells follow from what was released before.
CELLS = (ColumnCells, ColumnPrefixes)


@dataclass(frozen=True)
class Case:
    """A query, the norm of its sensitivity, and how much of it random search should attain.

    With `offset` rows have one, some of it extreme; with `weighted` roots of weights likewise.
    """

    query: Query
    norm: float
    attained: float
    offset: bool = False
    weighted: bool = False
    label: str = ""

    def __str__(self) -> str:
        return self.label

    def block(self, x: Any, y: Any, keep: Any = None, starts: Any = None, **kind: Any) -> Block:
        """Rows as this query meets them."""
        rows = block(x, y, self.query, keep, starts, **kind)
        rows = replace(rows, offset=row_offset(rows)) if self.offset else rows
        if not self.weighted:
            return rows
        wide = {name: getattr(rows, name) * STRETCH for name in ("x", "bound", "grid")}
        rows = replace(rows, **wide, root=row_root(rows), stretch=STRETCH, memory={})
        return rows.weighted(self.query.geometry)


STRETCH = 32.0  # more than any root


def row_offset(rows: Block) -> Any:
    """An offset that goes with a row wherever it stands; beyond any family's range where y = 1."""
    return np.where(rows.y == 1.0, -1e6, np.where(rows.y == 0.0, 40.0, rows.y / 3)) * rows.keep


def row_root(rows: Block) -> Any:
    """A root of a weight that goes with a row: 30 or 1e-5 at the ends of the response, or none."""
    root = np.where(rows.y == 1.0, 30.0, np.where(rows.y == -1.0, 1e-5, np.abs(rows.y) * 2))
    return root.astype(np.float32).astype(np.float64) * rows.keep


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
    Case(ResidualSums(BETA, 0.4), 2, 0.95),
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
    Case(ResponseQuantile(SEARCHED, 0.3), np.inf, 0.99),
    Case(NormQuantile(SEARCHED, 0.5, WHITEN), np.inf, 0.99),
    Case(ResidualQuantile(SEARCHED, 0.9, BETA), np.inf, 0.99),
    Case(ResidualQuantile(SEARCHED, 0.7, BETA), np.inf, 0.99),
    Case(NormQuantile(SEARCHED, 0.6, WHITEN), np.inf, 0.99),
    Case(FarDirections(WHITEN, 0.8), 2, 0.95),
    Case(Completed(Gram(SKEWED), PRECISION), 2, 0.95),
    Case(Completed(Gram(PLAIN), np.eye(D)), 2, 0.95),
    Case(Completed(ResidualQuantile(SEARCHED, 0.7, BETA), PRECISION), np.inf, 0.99),
    Case(ObservedPairs(D), 2, 0.6),
    Case(AugmentedScore(*AUGMENTED, 0.3), 2, 0.95),
    Case(AugmentedScore(*AUGMENTED, 0.6, 0.2), 2, 0.9, offset=True),
    Case(AugmentedSquares(*AUGMENTED, 0.4), 2, 0.9),
    Case(AugmentedCurvature(*AUGMENTED, 9.0, 1.3), 2, 0.9),
    Case(AugmentedLengths(*AUGMENTED, GRID), 2, 0.99),
    Case(AugmentedCount(*AUGMENTED, 0.5), 2, 1.0),
    Case(AstrayCounts((1,) * (D + 1)), 2, 0.99),
    Case(AstrayCounts((1, D)), 2, 0.99),
    Case(DeclaredCounts(D + 1), 2, 0.99),
    Case(DeclaredCounts(D + 1, units=True), 2, 0.99),
    Case(AstrayCounts((1, D), norm="l1"), 1, 0.99),
    Case(ColumnCells((GRID, np.array([-1.0, 0.0, 1.0])), np.array([1, D])), 2, 0.99),
    Case(ProjectedCells(WHITEN[:2], np.array([-1.0, 0.0, 0.5, 2.0])), 2, 0.99),
    *(
        Case(MixtureMoments(np.array([0.3, -0.2]), APART, 0.4, shape), 2, attained)
        for shape, attained in (
            ("full", 0.95),
            ("tied", 0.9),
            ("diagonal", 0.7),
            ("spherical", 0.7),
        )
    ),
    Case(ResidualCells(BETA, GRID, WHITEN[:2], np.array([-1.0, 0.0, 2.0])), 2, 0.99),
    Case(ResidualCells(BETA, GRID, WHITEN[:0], np.array([-1.0, 1.0])), 2, 0.99),
    Case(MixtureScores(PLAIN, np.array([0.3, -0.2]), LINES, 0.05, 1.5), 2, 0.9),
    Case(MixtureScores(SKEWED, np.array([-0.1]), LINES[:1], 0.3, 1.2), 2, 0.8),
    Case(MixtureScores(SKEWED, np.array([0.3, -0.2]), LINES, 0.05, 1.5), 2, 0.9),
    Case(ColumnPrefixes((GRID, np.array([-1.0, 0.0, 1.0])), np.array([1, D])), 2, 0.9),
    Case(ColumnPrefixes((np.linspace(-1, 1, 40),), np.array([D]), missing=False), 2, 0.9),
    Case(ColumnMoments(np.array([0, D]), np.array([-0.5, -1.0]), np.array([0.2, 0.9])), 2, 0.95),
    Case(TableCounts((Axis(np.array([D]), np.ones(1), GRID), TWO)), 2, 0.99),
    Case(TableCounts((TWO,), missing=False), 2, 0.99),
    Case(TableCounts((TWO,), norm="l1"), 1, 0.99),
    Case(Predicted(TableCounts((OF_MEAN, OF_RESPONSE)), ALL, BETA), 2, 0.99),
    Case(
        Predicted(GroupSums(ScoredColumn.window(2, 0.0, 1.0), OF_MEAN), ALL, BETA, BINOMIAL), 2, 0.9
    ),
    Case(Predicted(ColumnMoments(ALL[:2], -np.ones(2), np.ones(2)), ALL, BETA), 2, 0.9),
    Case(Predicted(ColumnPrefixes((GRID,), ALL[1:2]), ALL[:2], BETA[:2]), 2, 0.9),
    Case(GroupSums(ScoredColumn.window(D, -0.4, 0.7), TWO), 2, 0.95),
    Case(ScoreProducts((IN_CELLS, ScoredColumn.window(D, -0.5, 0.9)), 1.2), 2, 0.9),
    Case(ScoreProducts((RANKED, ScoredColumn.window(D, -0.5, 0.9)), 1.2), 2, 0.9),
    Case(WhitenedScore(np.eye(D), BETA, 0.3), 2, 0.95),
    Case(WhitenedScore(WHITEN, BETA, 0.3), 2, 0.95),
    Case(WhitenedScore(WHITEN, BETA, 0.6, inner=0.3), 2, 0.95),
    Case(ScoreSquares(WHITEN, BETA, 0.4), 2, 0.9),
    Case(ScoreCurvature(WHITEN, BETA, 2.0, 1.3), 2, 0.9),
    Case(ScoreSlope(WHITEN, BETA, 2.0, 1.3), 2, 0.95),
    Case(LengthQuantile(SEARCHED, 0.8, WHITEN, BETA), np.inf, 0.99),
    Case(LengthQuantile(SEARCHED, 0.8, WHITEN, BETA, "score", BINOMIAL), np.inf, 0.99),
    Case(LengthQuantile(SEARCHED, 0.4, WHITEN, BETA, "curvature", POISSON), np.inf, 0.99),
    Case(NormHistogram(WHITEN, BETA, GRID, scored=False), 2, 0.99),
    Case(NormHistogram(WHITEN, BETA, GRID), 2, 0.99),
    Case(NormCount(WHITEN, BETA, 0.5), 2, 1.0),
    # families and offsets
    Case(WhitenedScore(WHITEN, BETA, 0.3, family=BINOMIAL), 2, 0.95),
    Case(WhitenedScore(PART.whiten, BETA, 0.4, 0.1, POISSON), 2, 0.95, offset=True),
    Case(WhitenedScore(WHITEN, 1e4 * BETA, 0.3, family=GAUSSIAN_LOG), 2, 0.5),
    Case(ScoreSquares(WHITEN, BETA, 0.4, family=BINOMIAL), 2, 0.9),
    Case(ScoreCurvature(WHITEN, BETA, 3.0, 0.5, BINOMIAL), 2, 0.9),
    Case(ScoreSlope(WHITEN, BETA, 3.0, 0.5, POISSON), 2, 0.9, offset=True),
    Case(ScoreCurvature(WHITEN, BETA, 3.0, 1.0, POISSON_IDENTITY), 2, 0.6, offset=True),
    Case(NormHistogram(WHITEN, BETA, GRID, family=POISSON), 2, 0.99, offset=True),
    Case(NormCount(WHITEN, BETA, 0.5, family=BINOMIAL), 2, 1.0),
    Case(NormCount(WHITEN, BETA, 0.5, False), 2, 1.0),
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
    Case(ResidualSums(BETA, 0.2, BINOMIAL), 2, 0.95),
    Case(ResidualSums(BETA, 0.05, Dispersion.at(0.5)), 2, 0.9),
    Case(ResidualSums(BETA, 0.05, Dispersion.at(0.5)), 2, 0.9, offset=True),
    Case(ResidualQuantile(SEARCHED, 0.9, BETA, BINOMIAL), np.inf, 0.99),
    Case(ResidualQuantile(SEARCHED, 0.7, BETA, POISSON), np.inf, 0.99, offset=True),
    # scores of bounded length with mean zero
    Case(WhitenedScore(WHITEN, BETA, 0.3, family=BOUNDED["binomial"]), 2, 0.9),
    Case(WhitenedScore(WHITEN, BETA, 0.3, family=BOUNDED["poisson"]), 2, 0.9, offset=True),
    Case(WhitenedScore(WHITEN, BETA, 0.3, family=BOUNDED["gamma"]), 2, 0.9),
    Case(ScoreCurvature(WHITEN, BETA, 0.3, 0.4, BOUNDED["gaussian"]), 2, 0.6),
    Case(ScoreCurvature(WHITEN, BETA, 0.3, 0.4, BOUNDED["binomial"]), 2, 0.6),
    Case(ScoreCurvature(WHITEN, BETA, 0.3, 0.4, BOUNDED["poisson"]), 2, 0.4, offset=True),
    Case(ScoreSquares(WHITEN, BETA, 0.4, family=BOUNDED["poisson"]), 2, 0.9),
    # families of the default method alone, and weighted rows
    Case(WhitenedScore(WHITEN, BETA, 0.3, family=PROBIT), 2, 0.95),
    Case(WhitenedScore(WHITEN, BETA, 0.6, 0.2, CLOGLOG), 2, 0.9, offset=True),
    Case(ScoreCurvature(WHITEN, BETA, 3.0, 0.5, PROBIT), 2, 0.6),
    Case(ScoreCurvature(WHITEN, BETA, 9.0, 0.5, CLOGLOG), 2, 0.6),
    Case(ScoreCurvature(WHITEN, BETA, 3.0, 0.5, GAMMA), 2, 0.6, offset=True),
    Case(ScoreCurvature(WHITEN, BETA, 3.0, 0.5, COUNTS), 2, 0.6),
    Case(ScoreSquares(WHITEN, BETA, 0.4, family=GAMMA), 2, 0.9, offset=True),
    Case(LengthQuantile(SEARCHED, 0.4, WHITEN, BETA, "curvature", COUNTS), np.inf, 0.99),
    Case(LengthQuantile(SEARCHED, 0.4, WHITEN, BETA, "expected", CLOGLOG), np.inf, 0.99),
    Case(WhitenedScore(WHITEN, BETA, 0.3), 2, 0.95, weighted=True),
    Case(WhitenedScore(WHITEN, BETA, 0.4, 0.1, BINOMIAL), 2, 0.9, offset=True, weighted=True),
    Case(ScoreSquares(WHITEN, BETA, 0.4), 2, 0.9, weighted=True),
    Case(ScoreSquares(WHITEN, BETA, 0.4, each=True), 2, 0.9, weighted=True),
    Case(ScoreSquares(WHITEN, BETA, 0.4, 1, POISSON, each=True), 2, 0.9, weighted=True),
    Case(ScoreCurvature(WHITEN, BETA, 3.0, 0.5, BINOMIAL), 2, 0.6, weighted=True),
    Case(NormHistogram(WHITEN, BETA, GRID, family=PROBIT), 2, 0.99, weighted=True),
    Case(Score(PLAIN, BETA, 0.3, BINOMIAL), 2, 0.95, weighted=True),
    # chosen columns
    Case(Selected(Score(PAIR, BETA[:2], 0.3), (2, 0)), 2, 0.95),
    Case(Selected(Score(PAIR, BETA[:2], 0.3, BINOMIAL), (1, 2)), 2, 0.95, offset=True),
    Case(Selected(Gram(PLAIN, BETA[1:], None, BINOMIAL), (0, 2)), 2, 0.95),
    Case(Selected(ResidualQuantile(SEARCHED, 0.7, BETA[:1]), (1,)), np.inf, 0.99),
    # scores of every column
    Case(CoordinateScores(np.zeros(D), 0.3, 1.0, np.array([3.0, 0.0, -9.0])), np.inf, 0.99),
    Case(CoordinateScores(BETA, 0.3, 1.5, signed=True), np.inf, 0.6),
    Case(CoordinateScores(BETA, 0.3, 1.0, signed=True, family=BINOMIAL), np.inf, 0.99),
    Case(PeeledScores(BETA * [0, 1, 0], 0.3, 1.0, np.ones(D)), np.inf, 0.99),
    Case(PeeledScores(BETA, 0.3, 1.0, family=POISSON), np.inf, 0.99, offset=True),
    Case(CoordinateSums(BETA, 0.3, 1.0, np.ones(D)), 2, 0.95),
    # quantile regression
    Case(WhitenedScore(WHITEN, BETA, 0.6, 0.0, CHECK), 2, 0.9),
    Case(ScoreCurvature(WHITEN, BETA, 1e6, 1.2, CHECK), 2, 0.8),
    Case(ScoreSquares(WHITEN, BETA, 0.6, 1, CHECK), 2, 0.8),
    # a response of three levels
    Case(LevelScore(WHITEN, THREE, ROOT, 0.6), 2, 0.9),
    Case(LevelScore(WHITEN, 9 * THREE, ROOT, 0.6, 0.2), 2, 0.9),
    Case(LevelSquares(WHITEN, THREE, ROOT, 0.6), 2, 0.9),
    Case(LevelCurvature(WHITEN, THREE, ROOT, 9.0, 0.8), 2, 0.8),
    Case(LevelCurvature(WHITEN, 9 * THREE, ROOT, 2.0, 0.4), 2, 0.6),
    Case(LevelLengths(WHITEN, THREE, ROOT, GRID), 2, 0.99),
    Case(LevelCount(WHITEN, THREE, ROOT, 0.5), 2, 1.0),
    # symmetric mixtures, and rows with gaps
    Case(CoordinateScores(BETA, 0.6, 1.0, family=SIGNS), np.inf, 0.9),
    Case(PeeledScores(9 * BETA, 1.0, 0.4, family=SIGNS), np.inf, 0.99),
    Case(CoordinateSums(9 * BETA, 0.3, 0.4, family=SIGNED_LINES), 2, 0.8),
    Case(Score(SKEWED, 9 * BETA, 0.2, SIGNED_LINES), 2, 0.7),
    Case(SignedRows(np.array([0.8, -0.5, 1.1]), 0.3, 0.9), 2, 0.9),
    Case(LongEntries(0.4), np.inf, 1.0),
    Case(LongEntries(0.2, products=True), np.inf, 1.0),
    Case(ShownRows(), 1, 1.0),
    Case(ExpectedScores(3 * BETA, 0.2, 0.5, 0.4), 2, 0.7),
    Case(ExpectedScores(BETA, 1.5, 1.2, 0.1), 2, 0.4),
    Case(PeeledExpectedScores(3 * BETA, 0.2, 0.5, 0.4, np.ones(D)), np.inf, 0.9),
]

CASES = [replace(c, label=f"{i}-{type(c.query).__name__}") for i, c in enumerate(_CASES)]


def sharpest(case: Case) -> bool:
    """Whether it is the last plain case of its query: whitened, clipped, of chosen columns.

    Weighted rows have arithmetic of their own.
    """
    same = [c for c in CASES if _law(c.query) == _law(case.query)]
    usual = [c for c in same if not (c.offset or c.weighted)]
    plain = [c for c in usual if getattr(c.query, "family", GAUSSIAN) == GAUSSIAN]
    return case.weighted or case is (plain or same)[-1]


def _law(query: Query) -> tuple[Any, ...]:
    """Queries of one kind whose sensitivities have one formula."""
    return _ALIKE.get(type(query), type(query)), getattr(query, "blocks", None)


# Of which the L2 sensitivity is sqrt(d) times that of one coordinate.
_ALIKE: dict[type, type] = {CoordinateSums: PeeledScores, ExpectedScores: PeeledExpectedScores}


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
    x = np.rint(np.clip(x, -bounds, bounds) / steps) * steps
    held = x.astype(np.float32), np.rint(np.clip(y, -1.0, 1.0) / y_step) * y_step  # exact
    x, y = held[0] * keep[:, None].astype(np.float32), held[1] * keep
    if query.columns is not None:
        chosen = list(query.columns)
        x, bounds, steps = np.take(x, chosen, axis=1), bounds[chosen], steps[chosen]
    bare = Block(csr_array(x) if sparse else x, y, keep, keep, bounds, steps, starts)
    bare = replace(
        bare,
        observed=functools.partial(_observed, bare),
        astray=functools.partial(_astray, bare),
        incomplete=functools.partial(_incomplete, keep, *held),
    )
    rows = bare.weighted(query.geometry)
    return replace(rows, weight=rows.weight.astype(np.float32).astype(np.float64))


def _observed(rows: Block) -> Any:
    """Values of rows that were on the grid when they were read; none of an incomplete row."""
    values = np.column_stack([rows.x, rows.y]).astype(np.float64)
    values[rows.keep == 0] = np.nan
    return values


def _incomplete(keep: Any, x: Any, y: Any) -> Incomplete:
    """Incomplete rows miss what is below .1: some one value, some all; and a response of 0.5."""
    at = np.flatnonzero(keep == 0)
    missing = np.column_stack([x[at] < 0.1, y[at] == 0.5])
    shown = np.where(missing[:, :-1], np.nan, x[at]).astype(np.float32)
    return Incomplete(at, shown, y[at], missing)


def _astray(rows: Block) -> Any:
    """Values below 0 are outside, those of an incomplete row missing, below -.9 of no level."""
    outside, missing = _observed(rows) < 0, np.repeat(rows.keep[:, None] == 0, D + 1, axis=1)
    outside &= ~missing
    unlisted = missing & (_observed(rows) < -0.9)
    return np.stack([outside, missing, unlisted, ~(outside | missing)], axis=1)


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
