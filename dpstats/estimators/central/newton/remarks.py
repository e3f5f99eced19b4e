"""What the released numbers say about a fit, above its coefficients."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dpstats.estimators.central.newton.conclusion import Conclusion
from dpstats.estimators.guesses import enough
from dpstats.protocol import Plan

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["far_out", "not_identified", "off_model", "presumed"]

_FAR_OUT, _LEANING = 0.52, 2.0  # length per log of what is beyond; lean of long scores, in sds
_USUAL = 1.15  # length that normal rows may seem to have, over what they have


def presumed(found: Conclusion, design: Design) -> tuple[int, ...]:
    """Columns whose variance was mostly presumed, in the user's units."""
    zero, units = np.zeros(len(design.names)), design.standardization
    whole, part = (np.diag(units.to_user(zero, v)[1]) for v in (found.cov, found.presumed))
    return tuple(int(j) for j in np.flatnonzero(2 * part > whole))


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


def off_model(leaning: float, leverage: float) -> tuple[str, ...]:
    """Where a clip may have changed the answer."""
    remarks = []
    if leverage > 1:
        remarks.append(
            "Some rows lie far out in their columns: a few of them may carry the answer, which no "
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
