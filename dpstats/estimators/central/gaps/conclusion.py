"""Coefficients after the fit of all answers, how sure they are, and what must be said of them."""

from __future__ import annotations

import numpy as np

from dpstats.estimators.central.gaps.law import GappyRows
from dpstats.estimators.numerics.released import Finish
from dpstats.protocol import CoefficientEstimate, Plan

__all__ = ["completed_estimate"]

_UNLIKELY = 0.005  # wording: share of tables of normal rows that are taken for none
_HIDDEN = 0.5  # wording: standard error of a second moment, in variances, that hides the columns

_CONTRADICTED = "none: released numbers contradict normal rows with independent gaps"
_ALIKE = "none: rows of a person are not independent of each other"
_UNKNOWN = "none: they hold for normal rows alone, which normal=True would assert"
_RESTLESS = "none: the fit of the released numbers did not come to rest"
_TOO_NOISY = "none: noise hides the second moments by which rows are completed"


def completed_estimate(
    start: GappyRows,
    finish: Finish[GappyRows],
    rows: float,
    plan: Plan,
    unseen: tuple[str, ...] = (),
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
    unseen : tuple of str
        Two covariates that hardly any row has both of, where there are such: fitted second moments
        have small errors all the same, since the model takes gaps to be independent.
    """
    law, d = finish.law, start.coef.size
    jacobian = law.sigma * law.root
    cov = jacobian @ finish.cov[:d, :d] @ jacobian.T
    cov_privacy = jacobian @ finish.cov_privacy[:d, :d] @ jacobian.T
    p, test = _goodness(finish)
    inference, remark = _said(finish, p, plan, unseen)
    held = start if inference in (_CONTRADICTED, _RESTLESS) else law
    return CoefficientEstimate(
        params=held.coef,
        cov=cov,
        cov_privacy=cov_privacy,
        nobs=rows,
        released={"residual sd": held.sigma, "goodness of fit": test},
        remarks=(remark,) if remark else (),
        inference=inference,
        robust=False,
    )


def _said(
    finish: Finish[GappyRows], p: float, plan: Plan, unseen: tuple[str, ...]
) -> tuple[str, str]:
    """Why there is no interval, in short and as a remark; both empty where there is one."""
    law = finish.law
    seconds = np.diag(finish.cov)[law.coef.size + 1 + law.p : -law.p]
    if unseen:
        return _TOO_NOISY, (
            f"Hardly any row has both {' and '.join(map(repr, unseen))}, as far as noise lets see: "
            "how they vary together, by which rows are completed, is not known. Coefficients may "
            "be far off, and no interval is given. Leave one of the two out."
        )
    if np.sqrt(seconds.max(initial=0.0)) > _HIDDEN:
        return _TOO_NOISY, (
            "Noise hides the second moments of the columns, by which rows are completed: no "
            "interval is given. A larger epsilon or more rows help, or missing='complete'."
        )
    if p < _UNLIKELY:
        return _CONTRADICTED, (
            f"The released numbers contradict normal covariates and errors with independent gaps "
            f"(p = {p:.2g}): coefficients are those of the last step, which needs neither, and no "
            "interval is given."
        )
    if not finish.at_rest:
        return _RESTLESS, (
            "The fit of the released numbers did not come to rest: coefficients are those of the "
            "last step, and no interval is given. A larger epsilon or more rows would help."
        )
    if plan.max_rows > 1:
        return _ALIKE, (
            "Rows of a person may be alike, which no interval here allows for: none is given."
        )
    if not plan.options["normal"]:
        return _UNKNOWN, (
            "Long rows and large errors were clipped: where rows are not normal the coefficients "
            "are those of the bulk of them, which may be far from least squares, and released "
            "numbers cannot tell. No interval is given. missing='complete' answers for all "
            "complete rows; normal=True asserts normal covariates and errors."
        )
    return "", ""


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
