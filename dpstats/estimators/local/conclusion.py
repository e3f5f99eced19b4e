"""What pooled rounds hand back: coefficients, and standard errors where noise leaves any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.local.pool import CLEAR, AnsweredQuestion, Fit, GramEstimate
from dpstats.protocol import CoefficientEstimate

__all__ = ["NARROW", "as_estimate", "reaching", "released", "remarks_on"]

Array = NDArray[np.float64]

_RAISED = 0.05  # wording: directions made up, from which on a remark says so
_BLURRED = 0.1  # wording: part of a direction made up, from which on intervals are too short
_QUANTILE = 1.959964  # printed: of a normal number, two-sided 95 %

_HIDDEN = (
    "Noise hides some directions of the columns: coefficients are drawn towards zero along them. "
    "More users help, a larger epsilon, or a declared centre and scale of every column: columns "
    "that vary little on the declared scale are hidden first."
)
_CLIPPED = (
    "Most responses were beyond their clip: they are far from the declared centre, in declared "
    "scales. Coefficients rest on few of them. Declare both anew, or pass a larger clip."
)


NARROW = "none: noise hides how much some columns vary"
DEPENDENT = "none: noise hides how much some columns vary apart from the others"
_NARROW = (
    "Noise hides how much some columns vary, which is far less than their declared ranges or "
    "scales say: {names}. Coefficients are biased towards zero, the intercept with them. Declare "
    "these columns anew; more users or a larger epsilon help too."
)

_DEPENDENT = (
    "Noise hides how much {names} vary apart from the other columns, the intercept among them: "
    "coefficients may be far off, and no interval is given. A column far from the middle of its "
    "declared range is nearly a constant there: declare its centre and scale."
)


def released(rounds: Sequence[AnsweredQuestion], gram_estimate: GramEstimate) -> dict[str, object]:
    """Numbers worth reporting."""
    return {
        "clips": [made.message.clip for made in rounds],
        "inside": [made.inside[0] for made in rounds],
        "noise of second moments": gram_estimate.sd,
        "noise left after shrinking": gram_estimate.left,
    }


def reaching(fit: Fit, gram_estimate: GramEstimate, rounds: Sequence[AnsweredQuestion]) -> Fit:
    """The fit with standard errors that reach all that the noise on second moments leaves open.

    A coefficient moves by t = theta - sum_t w_t theta_t, a score over the column's own second
    moment, which has relative noise r. Fieller's set (1954) about it is no longer symmetric: it
    ends ``t (1/k - 1) + 1.96 sqrt((v - t^2 r^2) k + t^2 r^2) / k`` away, with v the variance to
    first order and ``k = 1 - 1.96^2 r^2``. A 1.96th part of this is the standard error.
    """
    moved = fit.params.copy()
    for weight, made in zip(fit.weights, rounds, strict=True):
        moved -= weight * made.theta(moved.size)
    r = np.minimum(gram_estimate.blur, 1 / CLEAR)
    k, variance, own = 1 - (_QUANTILE * r) ** 2, np.diag(fit.cov), (moved * r) ** 2
    reach = np.abs(moved) * (1 / k - 1) / _QUANTILE
    reach += np.sqrt(np.maximum(variance - own, 0.0) * k + own) / k
    factor = np.maximum(reach / np.sqrt(np.maximum(variance, 1e-300)), 1.0)
    return replace(fit, cov=fit.cov * np.outer(factor, factor))


def as_estimate(
    rounds: Sequence[AnsweredQuestion], gram_estimate: GramEstimate, fit: Fit, names: Sequence[str]
) -> CoefficientEstimate:
    """What is handed back of a fit of all columns, which have these names.

    Without standard errors where a direction of the columns is hidden, or most responses were
    clipped: both bias coefficients by more than noise does.
    """
    why, fit = "", reaching(fit, gram_estimate, rounds)
    if gram_estimate.narrow.size:
        why = NARROW
    elif gram_estimate.dependent.size:
        why = DEPENDENT
    elif float(np.linalg.eigvalsh(gram_estimate.hidden)[-1]) > _BLURRED:
        why = "none: noise hides how the columns vary"
    elif rounds[-1].clipped_away:
        why = "none: most responses were clipped"
    unknown = np.full_like(fit.cov, np.nan)
    return CoefficientEstimate(
        params=fit.params,
        cov=unknown if why else fit.cov,
        cov_privacy=unknown if why else fit.cov_privacy,
        nobs=float(sum(made.answer.count for made in rounds)),
        released=released(rounds, gram_estimate)
        | ({"weights of rounds": fit.weights.tolist()} if len(rounds) > 1 else {}),
        remarks=remarks_on(rounds, gram_estimate, names),
        inference=why,
    )


def remarks_on(
    rounds: Sequence[AnsweredQuestion], gram_estimate: GramEstimate, names: Sequence[str]
) -> tuple[str, ...]:
    """What the messages say about the declarations."""
    said: list[str] = []
    for columns, remark in (
        (gram_estimate.narrow, _NARROW),
        (gram_estimate.dependent, _DEPENDENT),
    ):
        if len(columns):
            said.append(remark.format(names=", ".join(names[j] for j in columns)))
    if float(np.trace(gram_estimate.hidden)) > _RAISED:
        said.append(_HIDDEN)
    if rounds[-1].clipped_away:
        said.append(_CLIPPED)
    return tuple(said)
