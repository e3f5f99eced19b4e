"""What is known of mixtures of normal laws."""

from __future__ import annotations

from dpstats.estimators.bounds import rates
from dpstats.estimators.central.published.dp_em_theory import LINES_LOWER, ROWS_LOWER
from dpstats.estimators.sources import DONG, INDIRECT, ZHANG_EM
from dpstats.theory import Assumption, Citation, Theory

__all__ = ["GAUSSIAN_MIXTURE", "REGRESSION_MIXTURE"]

_OWN = Citation(
    "dpstats-mixture",
    "The dpstats developers",
    "Normal mixtures from a noisy histogram, steps of EM and all released answers",
    2026,
    "dpstats",
    "proof in the docstring of MixtureMoments",
)

GAUSSIAN_MIXTURE = Theory(
    estimand=(
        "weights, means and covariances of the mixture of k normal laws that rows follow; of other "
        "rows, those at which the moments that were asked are as a mixture has them"
    ),
    guarantee=(
        "(epsilon, delta)-DP for every data set: noisy comparisons, a Gram matrix, a histogram and "
        "moments around k components, whose sensitivity is that of one (full and tied covariances: "
        "1.5 sqrt(2) R^2 under replace-one, 1.5 R^2 under add-remove; diagonal and spherical ones: "
        "2 B and sqrt(2) B with B = 1.22 R); all noise is Gaussian and composes exactly."
    ),
    assumptions=(
        Assumption("Rows (units) are independent and follow a mixture of k normal laws, k fixed"),
        Assumption("Means are apart by more than about two standard deviations"),
        Assumption("Noise does not hide components in the histogram", resolution=True),
    ),
    upper=rates(
        "sqrt(d/n)",
        "d sqrt(log(1/delta))/(n eps)",
        ZHANG_EM.at("Theorem 5.5"),
        conjectured=True,
        given=(Assumption("Covariances are known; full ones cost a factor sqrt(d) more"),),
    ),
    lower=ROWS_LOWER,
    citations=(_OWN, ZHANG_EM, INDIRECT, DONG),
    corrections=(
        "The posterior weight of the printed algorithm lacks a factor 2 in the exponent, so that "
        "its fixed point is no parameter of the model: exact responsibilities are used.",
        "All rows are used in every step, with budgets that grow, instead of disjoint batches, and "
        "the start is found privately instead of being given.",
    ),
)

_OWN_LINES = Citation(
    "dpstats-regression-mixture",
    "The dpstats developers",
    "Mixtures of regressions from a noisy histogram of residuals, steps of EM and their answers",
    2026,
    "dpstats",
    "proof in the docstring of MixtureScores",
)

REGRESSION_MIXTURE = Theory(
    estimand=(
        "weights, coefficients and error variance of the mixture of k regressions that rows "
        "follow; of other rows, those at which the scores that were asked are as a mixture has them"
    ),
    guarantee=(
        "(epsilon, delta)-DP for every data set: a count, noisy comparisons, Gram matrices, cells "
        "of columns and of residuals, scores and their squares, and scores around k components, "
        "whose sensitivity sqrt(6) R C is the same for any k; all noise is Gaussian and composes "
        "exactly."
    ),
    assumptions=(
        Assumption(
            "Rows (units) are independent; given its columns, a response follows one of k "
            "regressions, chosen whatever the columns are"
        ),
        Assumption(
            "Errors are normal, of one variance; lines are apart by more than about two "
            "standard deviations for most rows"
        ),
        Assumption("Covariates are about as normal numbers changed column by column"),
        Assumption("Noise does not hide components in the histogram", resolution=True),
    ),
    upper=rates(
        "sqrt(d/n)", "d sqrt(log(1/delta))/(n eps)", ZHANG_EM.at("Theorem A.3"), conjectured=True
    ),
    lower=LINES_LOWER,
    citations=(_OWN_LINES, ZHANG_EM, INDIRECT, DONG),
    corrections=(
        "The posterior weight of the printed algorithm lacks a factor 2 in the exponent, and its "
        "gradient has 2 w for 2 w - 1, so that its fixed point is no parameter of the model: exact "
        "responsibilities are used.",
        "All rows are used in every step, with budgets that grow, instead of disjoint batches, and "
        "the start is found privately instead of being given.",
    ),
)
