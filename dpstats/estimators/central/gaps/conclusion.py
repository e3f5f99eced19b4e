"""Coefficients after the fit of all answers, how sure they are, and what must be said of them."""

from __future__ import annotations

import numpy as np

from dpstats.estimators.central.gaps.law import GappyRows
from dpstats.estimators.numerics.released import Finish
from dpstats.protocol import CoefficientEstimate, Plan

__all__ = ["concluded"]

_UNLIKELY = 0.005  # wording: share of tables of normal rows that are taken for none
_HIDDEN = 0.5  # wording: standard error of a second moment, in variances, that hides the columns

_CONTRADICTED = "none: released numbers contradict normal rows with independent gaps"
_ALIKE = "none: rows of a person are not independent of each other"
_UNKNOWN = "none: they hold for normal rows alone, which normal=True would assert"
_TOO_NOISY = "none: noise hides the second moments by which rows are completed"


def concluded(
    start: GappyRows, finish: Finish[GappyRows], rows: float, plan: Plan
) -> CoefficientEstimate:
    """The estimate of the finish; of the last step where the model does not hold.

    Parameters
    ----------
    start : GappyRows
        At the last Newton step.
    finish : Finish
        All answers fitted from there.
    rows : float
        Noisy count of those that contribute.
    plan : Plan
        Which says whether rows are normal, as far as is publicly known.
    """
    law, d = finish.law, start.coef.size
    jacobian = law.sigma * law.root
    cov = jacobian @ finish.cov[:d, :d] @ jacobian.T
    cov_privacy = jacobian @ finish.cov_privacy[:d, :d] @ jacobian.T
    p, test = _goodness(finish)
    params, sigma, inference = law.coef, law.sigma, ""
    remarks: tuple[str, ...] = ()
    seconds = np.diag(finish.cov)[d + 1 + law.p : -law.p]
    if np.sqrt(seconds.max(initial=0.0)) > _HIDDEN:
        inference = _TOO_NOISY
        remarks = (
            "Noise hides the second moments of the columns, by which rows are completed: no "
            "interval is given. A larger epsilon or more rows help, or missing='complete'.",
        )
    elif p < _UNLIKELY:
        params, sigma, inference = start.coef, start.sigma, _CONTRADICTED
        remarks = (
            f"The released numbers contradict normal covariates and errors with independent gaps "
            f"(p = {p:.2g}): coefficients are those of the last step, which needs neither, and no "
            "interval is given.",
        )
    if plan.max_rows > 1 and not inference:
        inference = _ALIKE
        remarks = (
            "Rows of a person may be alike, which no interval here allows for: none is given.",
        )
    if not (inference or plan.options["normal"]):
        inference = _UNKNOWN
        remarks = (
            "Long rows and large errors were clipped: where rows are not normal the coefficients "
            "are those of the bulk of them, which may be far from least squares, and released "
            "numbers cannot tell. No interval is given. missing='complete' answers for all "
            "complete rows; normal=True asserts normal covariates and errors.",
        )
    return CoefficientEstimate(
        params=params,
        cov=cov,
        cov_privacy=cov_privacy,
        nobs=rows,
        released={"residual sd": sigma, "goodness of fit": test},
        remarks=remarks,
        inference=inference,
        robust=False,
    )


def _goodness(finish: Finish[GappyRows]) -> tuple[float, dict[str, float]]:
    """The test of the model, in two parts, and its p-value."""
    from scipy.stats import chi2

    whole = float(chi2.sf(finish.statistic, finish.df))
    towards = float(chi2.sf(finish.directed, finish.directed_df)) if finish.directed_df else 1.0
    p = min(1.0, 2 * min(whole, towards))  # of the two tests together (Bonferroni)
    return p, {
        "statistic": finish.statistic,
        "df": float(finish.df),
        "directed statistic": finish.directed,
        "directed df": float(finish.directed_df),
        "p": p,
    }
