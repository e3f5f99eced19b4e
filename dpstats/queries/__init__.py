"""The questions that may be asked of a holder; each carries its own clip and its own sensitivity.

Nothing here draws noise or keeps rows: a query is a frozen record of public parameters whose
``total`` maps a block of rows to exact integers and whose ``sensitivity`` is a proved bound.
"""

from dpstats.queries.astray_messages import AstrayMessage
from dpstats.queries.augmented import (
    AugmentedCount,
    AugmentedCurvature,
    AugmentedLengths,
    AugmentedScore,
    AugmentedSquares,
)
from dpstats.queries.base import Contribution, Query
from dpstats.queries.blocks import Block, Geometry
from dpstats.queries.candidates import CandidateLosses
from dpstats.queries.cell_messages import CellMessage
from dpstats.queries.cells import AstrayCounts, ColumnCells, DeclaredCounts
from dpstats.queries.completed import Completed, ObservedPairs
from dpstats.queries.coordinates import CoordinateScores, CoordinateSums, PeeledScores
from dpstats.queries.expected_scores import ExpectedScores, PeeledExpectedScores, ShownRows
from dpstats.queries.far_directions import FarDirections
from dpstats.queries.levels import (
    LevelCount,
    LevelCurvature,
    LevelLengths,
    LevelScore,
    LevelSquares,
)
from dpstats.queries.linear import Gradient, Gram, ResidualCount, ResidualMoment, Score, ScoreOuter
from dpstats.queries.messages import MomentMessage
from dpstats.queries.mixtures import MixtureMoments, ProjectedCells
from dpstats.queries.predicted import Predicted
from dpstats.queries.prefixes import ColumnPrefixes
from dpstats.queries.quantiles import (
    LengthQuantile,
    NormQuantile,
    ResidualQuantile,
    ResponseQuantile,
    Search,
)
from dpstats.queries.regression_mixtures import MixtureScores, ResidualCells
from dpstats.queries.row_norms import (
    NormCount,
    NormHistogram,
    ScoreCurvature,
    ScoreSlope,
    ScoreSquares,
    WhitenedScore,
)
from dpstats.queries.scalar import (
    Count,
    PairScales,
    ResponseHistogram,
    ResponseInterval,
    ResponseMoments,
    UnitMoments,
)
from dpstats.queries.scores import GroupSums, ScoredColumn, ScoreProducts
from dpstats.queries.selected import Selected
from dpstats.queries.signed import LongEntries, SignedRows
from dpstats.queries.tables import Axis, ColumnMoments, TableCounts
from dpstats.queries.tails import MinEigenvalue, ResidualSums

__all__ = [
    "AstrayCounts",
    "AstrayMessage",
    "AugmentedCount",
    "AugmentedCurvature",
    "AugmentedLengths",
    "AugmentedScore",
    "AugmentedSquares",
    "Axis",
    "Block",
    "CandidateLosses",
    "CellMessage",
    "ColumnCells",
    "ColumnMoments",
    "ColumnPrefixes",
    "Completed",
    "Contribution",
    "CoordinateScores",
    "CoordinateSums",
    "Count",
    "DeclaredCounts",
    "ExpectedScores",
    "FarDirections",
    "Geometry",
    "Gradient",
    "Gram",
    "GroupSums",
    "LengthQuantile",
    "LevelCount",
    "LevelCurvature",
    "LevelLengths",
    "LevelScore",
    "LevelSquares",
    "LongEntries",
    "MinEigenvalue",
    "MixtureMoments",
    "MixtureScores",
    "MomentMessage",
    "NormCount",
    "NormHistogram",
    "NormQuantile",
    "ObservedPairs",
    "PairScales",
    "PeeledExpectedScores",
    "PeeledScores",
    "Predicted",
    "ProjectedCells",
    "Query",
    "ResidualCells",
    "ResidualCount",
    "ResidualMoment",
    "ResidualQuantile",
    "ResidualSums",
    "ResponseHistogram",
    "ResponseInterval",
    "ResponseMoments",
    "ResponseQuantile",
    "Score",
    "ScoreCurvature",
    "ScoreOuter",
    "ScoreProducts",
    "ScoreSlope",
    "ScoreSquares",
    "ScoredColumn",
    "Search",
    "Selected",
    "ShownRows",
    "SignedRows",
    "TableCounts",
    "UnitMoments",
    "WhitenedScore",
]
