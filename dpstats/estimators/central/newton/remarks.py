"""What the released numbers say about a fit, above its coefficients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpstats.estimators.central.newton.conclusion import Conclusion
from dpstats.estimators.guesses import enough
from dpstats.protocol import Plan

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["not_identified", "off_model", "presumed"]

_FAR_OUT, _LEANING = 0.52, 2.0  # leverage and lean of long scores that are remarked on


def presumed(found: Conclusion, design: Design) -> tuple[int, ...]:
    """Columns whose variance was mostly presumed, in the user's units."""
    zero, units = np.zeros(len(design.names)), design.standardization
    whole, part = (np.diag(units.to_user(zero, v)[1]) for v in (found.cov, found.presumed))
    return tuple(int(j) for j in np.flatnonzero(2 * part > whole))


def not_identified(columns: tuple[int, ...], short: float, plan: Plan) -> tuple[str, ...]:
    """Which columns noise hides, what their intervals are, and what would do."""
    if not columns:
        return ()
    names = ", ".join(plan.names[j] for j in columns)
    return (
        f"Not identified at n={plan.n:,} and epsilon={plan.privacy.epsilon:g}: {names}. Noise "
        "hides how much these columns vary apart from the others. Their intervals are what was "
        f"presumed of them before, not findings. {enough(plan, short)} If they hardly vary, more "
        "is needed.",
    )


def off_model(leaning: float, leverage: float) -> tuple[str, ...]:
    """Where a clip may have changed the answer."""
    remarks = []
    if leverage > _FAR_OUT:
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
