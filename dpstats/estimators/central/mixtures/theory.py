"""What is known of mixtures of normal laws."""

from __future__ import annotations

from dpstats.estimators.bounds import rates
from dpstats.estimators.sources import DONG, INDIRECT, ZHANG_EM
from dpstats.theory import Assumption, Citation, Theory

__all__ = ["GAUSSIAN_MIXTURE"]

_OWN = Citation(
    "dpstats-mixture",
    "The dpstats developers",
    "Normal mixtures from a noisy histogram, steps of EM and all released answers",
    2026,
    "dpstats",
    "proof in the docstring of MixtureMoments",
)
_LOWER = ZHANG_EM.at("Proposition 5.6")

GAUSSIAN_MIXTURE = Theory(
    estimand=(
        "weights, means and covariances of the mixture of k normal laws that rows follow; of other "
        "rows, those at which the moments that were asked are as a mixture has them"
    ),
    guarantee=(
        "(epsilon, delta)-DP for every data set: noisy comparisons, a Gram matrix, a histogram and "
        "moments around k components, whose sensitivity sqrt(2) (R^2 + R^2/4) is that of one; all "
        "noise is Gaussian and composes exactly."
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
    lower=rates(
        "sqrt(d/n)",
        "d sqrt(log(1/delta))/(n eps)",
        _LOWER,
        given=(
            Assumption("For the lower bound", "eps < 1"),
            Assumption("For the lower bound, with some w > 0: delta is below n^(-1-w)"),
            Assumption("For the lower bound", "d >~ log(1/delta)"),
        ),
    ),
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
_LOWER_LINES = ZHANG_EM.at("Theorem A.4")
_IN_LOWER = (
    Assumption("For the lower bound", "eps < 1"),
    Assumption("For the lower bound, with some w > 0: delta is below n^(-1-w)"),
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
    lower=rates("sqrt(d/n)", "d/(n eps)", _LOWER_LINES, given=_IN_LOWER),
    citations=(_OWN_LINES, ZHANG_EM, INDIRECT, DONG),
    corrections=(
        "The posterior weight of the printed algorithm lacks a factor 2 in the exponent, and its "
        "gradient has 2 w for 2 w - 1, so that its fixed point is no parameter of the model: exact "
        "responsibilities are used.",
        "All rows are used in every step, with budgets that grow, instead of disjoint batches, and "
        "the start is found privately instead of being given.",
    ),
)
