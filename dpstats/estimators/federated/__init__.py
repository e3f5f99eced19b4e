"""Methods for sites that keep their rows; the first of a model is its default."""

from dpstats.estimators.entries import MethodEntry
from dpstats.estimators.federated.averaged import AveragedSparse
from dpstats.estimators.federated.ftl_high_dim import FTLHighDim
from dpstats.estimators.federated.ftl_low_dim import FTLLowDim
from dpstats.estimators.federated.ftl_mean import FTLMean
from dpstats.estimators.federated.one_shot import OneShot
from dpstats.estimators.federated.printed import PrintedMethod
from dpstats.estimators.federated.rounds import Rounds, RoundsMethod
from dpstats.estimators.federated.two_rounds import TwoRounds
from dpstats.protocol import Estimator

__all__ = [
    "FEDERATED",
    "IN_ROUNDS",
    "AveragedSparse",
    "FTLHighDim",
    "FTLLowDim",
    "FTLMean",
    "OneShot",
    "PrintedMethod",
    "Rounds",
    "RoundsMethod",
    "TwoRounds",
]

_METHODS: tuple[Estimator, ...] = (
    *map(OneShot, ("ols", "logit", "glm", "mean")),
    *map(Rounds, ("ols", "logit", "glm")),
    FTLLowDim(),
    FTLMean(),
    *map(AveragedSparse, ("ols", "logit")),
    *map(TwoRounds, ("ols", "logit")),
    FTLHighDim(),
)
FEDERATED = tuple(MethodEntry.of(method) for method in _METHODS)
IN_ROUNDS = frozenset(method.name for method in _METHODS if isinstance(method, RoundsMethod))
