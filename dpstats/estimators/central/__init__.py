"""Methods for a curator who holds the rows, defaults first."""

from __future__ import annotations

from dpstats.estimators.listed import Listed

__all__ = ["CENTRAL"]

CENTRAL: tuple[Listed, ...] = (
    Listed("ols", "newton", "central.newton.newton:Newton"),
    Listed("ols", "dp-gd", "central.published.dp_gd:DPGD"),
    Listed("ols", "adassp", "central.published.adassp:AdaSSP"),
    Listed(
        "ols", "adaptive-clipping-gd", "central.published.adaptive_clipping_gd:AdaptiveClippingGD"
    ),
    Listed("ols", "em", "central.gaps.ols:CompletedOLS"),
    Listed("logit", "newton", "central.newton.newton:Newton"),
    Listed("glm", "newton", "central.newton.newton:Newton"),
    Listed("logit", "dp-gd", "central.published.dp_gd:DPGD"),
    Listed("quantreg", "newton", "central.newton.quantile:QuantileNewton"),
    Listed("mnlogit", "newton", "central.newton.multinomial:MultinomialNewton"),
    Listed("mean", "clipped", "central.mean:ClippedMean"),
    Listed("mean", "karwa-vadhan", "central.published.karwa_vadhan:KarwaVadhan"),
    Listed("range", "exponential", "central.range:ExponentialRange"),
    Listed("scales", "cells", "central.scales.ranges:ColumnScales"),
    Listed("gaussian_mixture", "em", "central.mixtures.gaussian:GaussianMixture"),
    Listed("mixture_ols", "em", "central.mixtures.regression:RegressionMixtureEM"),
    Listed("symmetric_mixture", "em", "central.mixtures.symmetric:SymmetricMixture"),
    Listed("symmetric_mixture_ols", "em", "central.mixtures.symmetric:SymmetricRegressions"),
    Listed("symmetric_mixture", "dp-em", "central.published.dp_em_models:ROWS"),
    Listed("symmetric_mixture_ols", "dp-em", "central.published.dp_em_models:LINES"),
    Listed("ols", "dp-em", "central.published.dp_em_models:GAPS"),
    Listed("proportion", "counts", "central.descriptive.counts:LevelShares"),
    Listed("quantile", "inverted", "central.descriptive.quantile:InvertedDistribution"),
    Listed("histogram", "counts", "central.descriptive.counts:BinShares"),
    Listed("describe", "windows", "central.descriptive.describe:ColumnDescriptions"),
    Listed("group means", "windows", "central.descriptive.groups:GroupMeans"),
    Listed("crosstab", "counts", "central.descriptive.crosstab:PairShares"),
    Listed("corr", "spearman", "central.descriptive.corr:RankCorrelation"),
    Listed("corr", "pearson", "central.descriptive.corr:WindowCorrelation"),
    Listed("variance", "windows", "central.descriptive.variance:WindowVariance"),
    Listed("ttest", "welch", "central.descriptive.groups:WelchTest"),
    Listed("ttest", "rank", "central.descriptive.groups:RankTest"),
    Listed("evaluate logit", "ranks and tables", "central.evaluation.classes:ClassEvaluation"),
    Listed("evaluate ols", "windows", "central.evaluation.errors:ErrorEvaluation"),
    Listed("ols", "omp", "central.sparse.omp:OMP", sparse=True),
    Listed("logit", "omp", "central.sparse.omp:OMP", sparse=True),
    Listed("ols", "peel-iht", "central.published.peel_iht:PeelIHT", sparse=True),
    Listed("logit", "peel-iht", "central.published.peel_iht:PeelIHT", sparse=True),
    Listed("ols", "noisy-ht", "central.published.noisy_ht:NoisyHT", sparse=True),
    Listed("ols", "two-stage", "central.published.two_stage:TwoStage", sparse=True),
    Listed("logit", "two-stage", "central.published.two_stage:TwoStage", sparse=True),
    Listed("logit", "noisy-ht", "central.published.noisy_ht:NoisyHT", sparse=True),
    Listed("ols", "frank-wolfe", "central.published.frank_wolfe:FrankWolfe", sparse=True),
    Listed("logit", "frank-wolfe", "central.published.frank_wolfe:FrankWolfe", sparse=True),
    Listed("ols", "dp-ight", "central.published.dp_ight:DPIGHT", sparse=True),
    Listed("logit", "dp-ight", "central.published.dp_ight:DPIGHT", sparse=True),
    Listed("ols", "dp-iht", "central.published.dp_iht:DPIHT", sparse=True),
    Listed("logit", "dp-iht", "central.published.dp_iht:DPIHT", sparse=True),
    Listed(
        "ols",
        "adaptive-clipping-iht",
        "central.published.adaptive_clipping_iht:AdaptiveClippingIHT",
        sparse=True,
    ),
    Listed(
        "symmetric_mixture",
        "screened-em",
        "central.mixtures.symmetric_sparse:SparseSymmetricMixture",
        sparse=True,
    ),
    Listed(
        "symmetric_mixture_ols",
        "screened-em",
        "central.mixtures.symmetric_sparse_lines:SparseSymmetricRegressions",
        sparse=True,
    ),
    Listed(
        "symmetric_mixture", "dp-em-ht", "central.published.dp_em_models:SPARSE_ROWS", sparse=True
    ),
    Listed(
        "symmetric_mixture_ols",
        "dp-em-ht",
        "central.published.dp_em_models:SPARSE_LINES",
        sparse=True,
    ),
    Listed("ols", "dp-em-ht", "central.published.dp_em_models:SPARSE_GAPS", sparse=True),
)
