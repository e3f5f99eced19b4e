"""Methods for a curator who holds the rows, defaults first."""

from __future__ import annotations

from dpstats.estimators.central.descriptive.corr import RankCorrelation
from dpstats.estimators.central.descriptive.counts import BinShares, LevelShares
from dpstats.estimators.central.descriptive.crosstab import PairShares
from dpstats.estimators.central.descriptive.describe import ColumnDescriptions
from dpstats.estimators.central.descriptive.groups import GroupMeans, RankTest, WelchTest
from dpstats.estimators.central.descriptive.quantile import InvertedDistribution
from dpstats.estimators.central.descriptive.variance import WindowVariance
from dpstats.estimators.central.evaluation.classes import ClassEvaluation
from dpstats.estimators.central.evaluation.errors import ErrorEvaluation
from dpstats.estimators.central.gaps.ols import CompletedOLS
from dpstats.estimators.central.mean import ClippedMean
from dpstats.estimators.central.mixtures.gaussian import GaussianMixture
from dpstats.estimators.central.mixtures.regression import RegressionMixtureEM
from dpstats.estimators.central.mixtures.symmetric import SymmetricMixture, SymmetricRegressions
from dpstats.estimators.central.mixtures.symmetric_sparse import SparseSymmetricMixture
from dpstats.estimators.central.mixtures.symmetric_sparse_lines import SparseSymmetricRegressions
from dpstats.estimators.central.newton.newton import Newton
from dpstats.estimators.central.newton.quantile import QuantileNewton
from dpstats.estimators.central.published.adaptive_clipping_gd import AdaptiveClippingGD
from dpstats.estimators.central.published.adaptive_clipping_iht import AdaptiveClippingIHT
from dpstats.estimators.central.published.adassp import AdaSSP
from dpstats.estimators.central.published.dp_em import DPEM, SparseDPEM
from dpstats.estimators.central.published.dp_em_models import (
    MissingCovariates,
    SymmetricLines,
    SymmetricRows,
)
from dpstats.estimators.central.published.dp_gd import DPGD
from dpstats.estimators.central.published.dp_ight import DPIGHT
from dpstats.estimators.central.published.dp_iht import DPIHT
from dpstats.estimators.central.published.frank_wolfe import FrankWolfe
from dpstats.estimators.central.published.karwa_vadhan import KarwaVadhan
from dpstats.estimators.central.published.noisy_ht import NoisyHT
from dpstats.estimators.central.published.peel_iht import PeelIHT
from dpstats.estimators.central.published.two_stage import TwoStage
from dpstats.estimators.central.range import ExponentialRange
from dpstats.estimators.central.scales.ranges import ColumnScales
from dpstats.estimators.central.sparse.omp import OMP
from dpstats.protocol import Estimator

__all__ = ["CENTRAL"]

CENTRAL: tuple[Estimator, ...] = (
    Newton(),
    DPGD(),
    AdaSSP(),
    AdaptiveClippingGD(),
    CompletedOLS(),
    Newton("logit"),
    Newton("glm"),
    DPGD("logit"),
    QuantileNewton(),
    ClippedMean(),
    KarwaVadhan(),
    ExponentialRange(),
    ColumnScales(),
    GaussianMixture(),
    RegressionMixtureEM(),
    SymmetricMixture(),
    SymmetricRegressions(),
    *(DPEM(em) for em in (SymmetricRows(), SymmetricLines(), MissingCovariates())),
    LevelShares(),
    InvertedDistribution(),
    BinShares(),
    ColumnDescriptions(),
    GroupMeans(),
    PairShares(),
    RankCorrelation(),
    WindowVariance(),
    WelchTest(),
    RankTest(),
    ClassEvaluation(),
    ErrorEvaluation(),
    OMP("ols"),
    OMP("logit"),
    PeelIHT("ols"),
    PeelIHT("logit"),
    NoisyHT("ols"),
    TwoStage("ols"),
    TwoStage("logit"),
    NoisyHT("logit"),
    *(method(model) for method in (FrankWolfe, DPIGHT, DPIHT) for model in ("ols", "logit")),
    AdaptiveClippingIHT(),
    SparseSymmetricMixture(),
    SparseSymmetricRegressions(),
    *(SparseDPEM(em) for em in (SymmetricRows(), SymmetricLines(), MissingCovariates())),
)
