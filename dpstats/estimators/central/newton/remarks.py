"""What the released numbers say about a fit, above its coefficients."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from dpstats.estimators.central.newton.conclusion import Conclusion
from dpstats.estimators.guesses import enough
from dpstats.protocol import CoefficientEstimate, Plan

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = [
    "blur_warnings",
    "covering",
    "far_from_typical",
    "far_out",
    "nearly_equal",
    "nearly_none",
    "not_at_rest",
    "not_identified",
    "off_model",
    "overdispersed",
    "reported",
]

# wording: length per log of what is beyond; lean of long scores, in sds of noise and sampling
_FAR_OUT, _LEANING = 0.52, 1.5
_AT_REST = 0.5  # wording: change of linear predictors on the last step, below which it was the last
_REMARKABLE = 0.3  # wording: dispersion of counts
_MANY_FAR = 0.01  # wording: share of scores far from typical
_USUAL = 1.15  # wording: length that normal rows may seem to have, over what they have


def _presumed(found: Conclusion, design: Design) -> tuple[int, ...]:
    """Columns whose variance was mostly presumed, in the user's units."""
    zero, units = np.zeros(len(design.names)), design.standardization
    whole, part = (np.diag(units.to_user(zero, v)[1]) for v in (found.cov, found.presumed))
    return tuple(int(j) for j in np.flatnonzero(2 * part > whole))


def reported(
    found: Conclusion,
    design: Design,
    plan: Plan,
    n: float,
    released: Mapping[str, object],
    remarks: Iterable[str],
) -> CoefficientEstimate:
    """The estimate, with what was released beside it and what that says of the fit."""
    hidden = _presumed(found, design)
    return CoefficientEstimate(
        params=found.params,
        cov=found.cov,
        cov_privacy=found.cov_privacy,
        cov_sampling=found.cov_sampling,
        nobs=n,
        released=released,
        remarks=(*not_identified(hidden, found.short, plan), *remarks),
        not_identified=hidden,
        faint=found.faint,
    )


def not_identified(columns: tuple[int, ...], short: float, plan: Plan) -> tuple[str, ...]:
    """Which columns noise hides, what their intervals are, and what suffices."""
    if not columns:
        return ()
    names = ", ".join(plan.parameters[j] for j in columns)
    return (
        f"Not identified at n={plan.n:,} and epsilon={plan.privacy.epsilon:g}: {names}. Noise "
        "hides how much these columns vary apart from the others. Their intervals are what was "
        f"presumed of them before, not findings. {enough(plan, short)} If they hardly vary, more "
        "is needed.",
    )


def covering(noisy: float) -> str:
    """For which designs intervals cover, by the noise on the second moments."""
    reach = 100 if noisy <= 0.6 else 10 if noisy <= 1.7 else 3
    return (
        f"Intervals cover up to condition number {reach} of X'X in standardised units; directions "
        "that the noise hides are reported with wide intervals."
    )


def blur_warnings(
    plan: Plan, few: float, wide: float, sharp: float = 0.0, what: str = "the second moments"
) -> tuple[str, ...]:
    """What noise on the second moments will do to the answer, where one of three ratios exceeds 1.

    They are by how much n or epsilon is too small to see anything, for intervals as short as they
    could be, and for directions in which columns vary little.
    """
    at = f"n={plan.n:,} and epsilon={plan.privacy.epsilon:g} with {len(plan.names)} columns"
    if few > 1:
        return (
            f"Too few rows at {at}: noise hides {what}, and coefficients are shrunk towards zero. "
            f"{enough(plan, max(few, wide, sharp))}",
        )
    if wide > 1:
        return (
            f"Intervals will be wide and cover more than they claim at {at}: noise blurs the "
            f"second moments. {enough(plan, max(wide, sharp))}",
        )
    if sharp > 1:
        return (
            f"At {at}, noise on the second moments may hide directions in which the columns vary "
            "little, such as a difference of nearly collinear columns or the levels of a factor: "
            "there, standard errors are several times those expected below, and intervals cover "
            f"more than they claim. {enough(plan, sharp)}",
        )
    return ()


def far_out(length: float, reached: float, missed: float, d: int) -> float:
    """A high quantile of the lengths of whitened rows over the longest that is usual.

    Lengths with an exponential tail grow as the logarithm of what is beyond them. Where noise keeps
    the quantile low, normal rows may seem to have such a tail: their squared length is that of
    d - 1 normal numbers and a constant, and the quantile may be one further out by 1.64 standard
    deviations of its noise.

    Parameters
    ----------
    length : float
        The quantile, in units of a typical length.
    reached : float
        The share of rows that it was to reach.
    missed : float
        Standard deviation of the noise in that share.
    d : int
        Number of columns.
    """
    from scipy.special import chdtri

    beyond = 1 - reached
    seen = beyond * max(0.1, 1 - 1.64 * missed / beyond)
    normal = math.sqrt((1 + float(chdtri(max(d - 1, 1), seen))) / d)
    return length / max(_FAR_OUT * -math.log(beyond), _USUAL * normal)


def not_at_rest(step: float) -> tuple[str, ...]:
    """Where the last step was so long that the next one would not be small."""
    if step <= _AT_REST:
        return ()
    return (
        f"The steps did not come to rest: the last one changed linear predictors by {step:.1g} on "
        "average, as where they nearly separate the responses. Coefficients may be too small by "
        "more than their intervals say.",
    )


def far_from_typical(share: float) -> tuple[str, ...]:
    """Where many scores are six times as long as they would be of a response that spreads as most.

    The share is what noise does not explain.
    """
    if share <= _MANY_FAR:
        return ()
    return (
        f"About {share:.1%} of the scores are six times as long as a typical one or longer: the "
        "response is mostly constant or extremely heavy-tailed. Scores of bounded length may not "
        "describe its mean; consider a transformation, or target='mle'.",
    )


def nearly_equal(known: bool) -> tuple[str, ...]:
    """Where most responses differ by far less than they were declared to; nothing if it is known.

    A scale that was found is that of all of them, so that most have one value.
    """
    if known:
        return ()
    return (
        "Most responses are nearly equal next to the scale that was declared of them. Either most "
        "have one value, or the scale is too large, and coefficients are far noisier than need be: "
        "declare a smaller scale=, or none.",
    )


def nearly_none(levels: tuple[str, ...]) -> tuple[str, ...]:
    """Levels of whose rows hardly any may have a response of one kind."""
    if not levels:
        return ()
    return (
        f"Noise nearly hides whether any row has the rarer response where {', '.join(levels)}: the "
        "coefficient there may have no bound. Coefficients of these terms, and the intercept, may "
        "be too small by more than their intervals say. Merge such a level with another one.",
    )


def overdispersed(dispersion: float) -> tuple[str, ...]:
    """Where clipped counts are taken for negative binomial."""
    if dispersion < _REMARKABLE:
        return ()
    return (
        "Counts vary more than Poisson ones do: their variance is about "
        f"mu + {dispersion:.2g} mu^2. Standard errors allow for it, but residuals are centred as "
        "those of negative binomial counts: where they are not, the intercept may be off.",
    )


def off_model(leaning: float, leverage: float, columns: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Where a clip may have changed the answer; rows may be known to lie far out in `columns`."""
    remarks = []
    if leverage > 1:
        where = ", ".join(columns) or "their columns"
        remarks.append(
            f"Some rows lie far out in {where}: a few of them may carry the answer, which no "
            "noisy sum can hold. The coefficients may be off by more than their intervals say. "
            "Transform such a column, or narrow its declared range."
        )
    if leaning > _LEANING:
        remarks.append(
            "The longest scores lean one way: those that the clip cuts off matter, and what they "
            "add was extrapolated. The mean may bend, or residuals be skewed; intervals allow for "
            "it, and depend on it."
        )
    return tuple(remarks)
