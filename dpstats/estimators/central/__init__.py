"""Methods for a curator who holds the rows, defaults first."""

from __future__ import annotations

from dpstats.estimators.entries import MethodEntry

__all__ = ["CENTRAL"]

CENTRAL: tuple[MethodEntry, ...] = (
    MethodEntry("ols", "newton", "central.newton.newton:Newton"),
    MethodEntry("ols", "dp-gd", "central.published.dp_gd:DPGD"),
    MethodEntry("ols", "adassp", "central.published.adassp:AdaSSP"),
    MethodEntry(
        "ols", "adaptive-clipping-gd", "central.published.adaptive_clipping_gd:AdaptiveClippingGD"
    ),
    MethodEntry("ols", "em", "central.gaps.ols:AugmentedOLS"),
    MethodEntry("logit", "newton", "central.newton.newton:Newton"),
    MethodEntry("glm", "newton", "central.newton.newton:Newton"),
    MethodEntry("logit", "dp-gd", "central.published.dp_gd:DPGD"),
    MethodEntry("quantreg", "newton", "central.newton.quantile:QuantileNewton"),
    MethodEntry("mnlogit", "newton", "central.newton.multinomial:MultinomialNewton"),
    MethodEntry("mean", "clipped", "central.descriptive.mean:ClippedMean"),
    MethodEntry("mean", "karwa-vadhan", "central.published.karwa_vadhan:KarwaVadhan"),
    MethodEntry("range", "exponential", "central.range:ExponentialRange"),
    MethodEntry("scales", "cells", "central.scales.ranges:ColumnScales"),
    MethodEntry("gaussian_mixture", "em", "central.mixtures.gaussian:GaussianMixture"),
    MethodEntry("mixture_ols", "em", "central.mixtures.regression:RegressionMixtureEM"),
    MethodEntry("symmetric_mixture", "em", "central.mixtures.symmetric:SymmetricMixture"),
    MethodEntry("symmetric_mixture_ols", "em", "central.mixtures.symmetric:SymmetricRegressions"),
    MethodEntry("symmetric_mixture", "dp-em", "central.published.dp_em_models:ROWS"),
    MethodEntry("symmetric_mixture_ols", "dp-em", "central.published.dp_em_models:LINES"),
    MethodEntry("ols", "dp-em", "central.published.dp_em_models:GAPS"),
    MethodEntry("proportion", "counts", "central.descriptive.counts:LevelShares"),
    MethodEntry("quantile", "inverted", "central.descriptive.quantile:InvertedDistribution"),
    MethodEntry("histogram", "counts", "central.descriptive.counts:BinShares"),
    MethodEntry("describe", "windows", "central.descriptive.describe:ColumnDescriptions"),
    MethodEntry("group means", "windows", "central.descriptive.groups:GroupMeans"),
    MethodEntry("check", "counts", "central.descriptive.data_check:DeclaredShares"),
    MethodEntry("crosstab", "counts", "central.descriptive.crosstab:PairShares"),
    MethodEntry("corr", "spearman", "central.descriptive.corr:RankCorrelation"),
    MethodEntry("corr", "pearson", "central.descriptive.corr:WindowCorrelation"),
    MethodEntry("variance", "windows", "central.descriptive.variance:WindowVariance"),
    MethodEntry("ttest", "welch", "central.descriptive.groups:WelchTest"),
    MethodEntry("ttest", "rank", "central.descriptive.groups:RankTest"),
    MethodEntry("evaluate logit", "ranks and tables", "central.evaluation.classes:ClassEvaluation"),
    MethodEntry("evaluate ols", "windows", "central.evaluation.errors:ErrorEvaluation"),
    MethodEntry("ols", "omp", "central.sparse.omp:OMP", sparse=True),
    MethodEntry("logit", "omp", "central.sparse.omp:OMP", sparse=True),
    MethodEntry("ols", "peel-iht", "central.published.peel_iht:PeelIHT", sparse=True),
    MethodEntry("logit", "peel-iht", "central.published.peel_iht:PeelIHT", sparse=True),
    MethodEntry("ols", "noisy-ht", "central.published.noisy_ht:NoisyHT", sparse=True),
    MethodEntry("ols", "two-stage", "central.published.two_stage:TwoStage", sparse=True),
    MethodEntry("logit", "two-stage", "central.published.two_stage:TwoStage", sparse=True),
    MethodEntry("logit", "noisy-ht", "central.published.noisy_ht:NoisyHT", sparse=True),
    MethodEntry("ols", "frank-wolfe", "central.published.frank_wolfe:FrankWolfe", sparse=True),
    MethodEntry("logit", "frank-wolfe", "central.published.frank_wolfe:FrankWolfe", sparse=True),
    MethodEntry("ols", "dp-ight", "central.published.dp_ight:DPIGHT", sparse=True),
    MethodEntry("logit", "dp-ight", "central.published.dp_ight:DPIGHT", sparse=True),
    MethodEntry("ols", "dp-iht", "central.published.dp_iht:DPIHT", sparse=True),
    MethodEntry("logit", "dp-iht", "central.published.dp_iht:DPIHT", sparse=True),
    MethodEntry(
        "ols",
        "adaptive-clipping-iht",
        "central.published.adaptive_clipping_iht:AdaptiveClippingIHT",
        sparse=True,
    ),
    MethodEntry(
        "symmetric_mixture",
        "screened-em",
        "central.mixtures.symmetric_sparse:SparseSymmetricMixture",
        sparse=True,
    ),
    MethodEntry(
        "symmetric_mixture_ols",
        "screened-em",
        "central.mixtures.symmetric_sparse_lines:SparseSymmetricRegressions",
        sparse=True,
    ),
    MethodEntry(
        "symmetric_mixture", "dp-em-ht", "central.published.dp_em_models:SPARSE_ROWS", sparse=True
    ),
    MethodEntry(
        "symmetric_mixture_ols",
        "dp-em-ht",
        "central.published.dp_em_models:SPARSE_LINES",
        sparse=True,
    ),
    MethodEntry("ols", "dp-em-ht", "central.published.dp_em_models:SPARSE_GAPS", sparse=True),
)
