"""What is known of least squares on rows that miss covariates."""

from __future__ import annotations

from dpstats.estimators.bounds import GRAM_SEEN, SMALL_DELTA, rates
from dpstats.estimators.central.published.dp_em_theory import MISSING_LOWER
from dpstats.estimators.sources import DONG, ROBINS, ZHANG_EM
from dpstats.theory import Assumption, Citation, Theory

__all__ = ["GAPS"]

_OWN = Citation(
    "dpstats-gaps",
    "The dpstats developers",
    "Noisy Newton steps from augmented scores of completed rows",
    2026,
    "dpstats",
    "proofs in the docstrings of Completed and dpstats.queries.augmented",
)
_UPPER = ZHANG_EM.at("Theorem A.5")

GAPS = Theory(
    estimand="the least-squares coefficients of the population, had no covariate been missing",
    guarantee=(
        "(epsilon, delta)-DP for every data set: noisy comparisons, counts (1), histograms "
        "(sqrt(2)), Gram matrices (sqrt(2) R^2 under replace-one, R^2 under add-remove), signs of "
        "what was observed (sqrt(2) d, d), scores of length C (2 C, C) and their squares (sqrt(2) "
        "C^2, C^2) of rows that are completed one by one; all noise is Gaussian and composes "
        "exactly."
    ),
    assumptions=(
        Assumption("Covariates are missing completely at random: gaps depend on no value"),
        Assumption("No few rows carry the answer: long scores add up to little"),
        GRAM_SEEN,
        SMALL_DELTA,
    ),
    upper=rates("sqrt(d/n)", "d sqrt(log(1/delta))/(n eps)", _UPPER, conjectured=True),
    lower=MISSING_LOWER,
    citations=(_OWN, ZHANG_EM, ROBINS, DONG),
    corrections=(
        "The printed second moment given what was observed is not the posterior one, and makes the "
        "sensitivity of the printed gradient grow with the coefficients (Algorithms 6 and 8): rows "
        "are completed by second moments of covariates instead, and clipped afterwards.",
        "All rows are used in every step instead of disjoint batches, and the start, the variances "
        "of covariates and errors, and the shares of gaps are found privately instead of given.",
    ),
)
