"""What is stated alike of several published sparse methods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dpstats.estimators.bounds import (
    LOGISTIC,
    SPARSE_GLM_LOWER,
    SPARSE_GLM_UPPER,
    SPARSE_LOWER,
    SPARSE_UPPER,
    SUB_GAUSSIAN,
    SUB_GAUSSIAN_NOISE,
)
from dpstats.estimators.sources import SCORE_ATTACK
from dpstats.theory import Assumption, Citation, Theory

__all__ = ["ALL_GAUSSIAN", "BY_LOSS", "ESTIMAND", "IN_A_BALL", "by_thresholding"]

ESTIMAND = (
    "the sparse coefficients of the model: of the linear predictor where errors are symmetric "
    "(residuals are clipped at their upper quartile), of the log-odds for a logit"
)
_BESIDE = (
    "count, quantiles, second moments of the first columns (sqrt(2) R^2; R^2) and the two numbers "
    "of the rescaling are Gaussian"
)
BY_LOSS = f"{_BESIDE} mechanisms, and all are composed by their privacy loss."
ALL_GAUSSIAN = f"{_BESIDE} too, and all compose exactly as one Gaussian mechanism."
IN_A_BALL = "Iterates stay in a public ball, and the last one is rescaled by two released numbers."
_WHOLE_BATCHES = (
    "All rows are used in every step, with budgets that grow, instead of disjoint batches."
)
_CLIPPED = "Residuals are clipped at a released quantile instead of a rate with unknown constants."


def by_thresholding(
    step: str,
    conditions: tuple[Assumption, ...],
    citations: tuple[Citation, ...],
    correction: str,
) -> Mapping[str, Theory]:
    """For each model, that of a method whose error is that of thresholding by noisy choices.

    Parameters
    ----------
    step : str
        What a step releases, and with which sensitivity.
    conditions : tuple of Assumption
        Beside those on rows and errors.
    correction : str
        What is corrected beside that which all of these methods correct.
    """
    linear = Theory(
        estimand=ESTIMAND,
        guarantee=f"(epsilon, delta)-DP for every data set: each step {step}; {BY_LOSS}",
        assumptions=(SUB_GAUSSIAN, SUB_GAUSSIAN_NOISE, *conditions),
        upper=SPARSE_UPPER,
        lower=SPARSE_LOWER,
        citations=citations,
        corrections=(correction, _WHOLE_BATCHES, _CLIPPED, IN_A_BALL),
    )
    logistic = replace(
        linear,
        assumptions=(SUB_GAUSSIAN, LOGISTIC, *conditions),
        upper=SPARSE_GLM_UPPER,
        lower=SPARSE_GLM_LOWER,
        citations=(*citations, SCORE_ATTACK),
    )
    return {"ols": linear, "logit": logistic}
