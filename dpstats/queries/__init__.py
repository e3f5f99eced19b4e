"""The questions that may be asked of a holder; each carries its own clip and its own sensitivity.

Nothing here draws noise or keeps rows: a query is a frozen record of public parameters whose
``total`` maps a block of rows to exact integers and whose ``sensitivity`` is a proved bound.
"""

from dpstats.queries.base import Contribution, Query
from dpstats.queries.blocks import Block, Geometry
from dpstats.queries.candidates import CandidateLosses
from dpstats.queries.coordinates import CoordinateScores, PeeledScores
from dpstats.queries.linear import Gradient, Gram, ResidualCount, ResidualMoment, Score, ScoreOuter
from dpstats.queries.messages import MomentMessage
from dpstats.queries.quantiles import NormQuantile, ResidualQuantile, ResponseQuantile, Search
from dpstats.queries.scalar import (
    Count,
    PairScales,
    ResponseHistogram,
    ResponseInterval,
    ResponseMoments,
    UnitMoments,
)
from dpstats.queries.selected import Selected
from dpstats.queries.tails import MinEigenvalue, TailSums

__all__ = [
    "Block",
    "CandidateLosses",
    "Contribution",
    "CoordinateScores",
    "Count",
    "Geometry",
    "Gradient",
    "Gram",
    "MinEigenvalue",
    "MomentMessage",
    "NormQuantile",
    "PairScales",
    "PeeledScores",
    "Query",
    "ResidualCount",
    "ResidualMoment",
    "ResidualQuantile",
    "ResponseHistogram",
    "ResponseInterval",
    "ResponseMoments",
    "ResponseQuantile",
    "Score",
    "ScoreOuter",
    "Search",
    "Selected",
    "TailSums",
    "UnitMoments",
]
