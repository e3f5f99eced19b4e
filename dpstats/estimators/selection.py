"""What methods that select columns share: what inference holds for, designs of some columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = [
    "BALL",
    "CONDITIONAL",
    "USUAL",
    "error_with",
    "half_of",
    "per_round",
    "restricted",
]


INFERENCE = "none: selected on the same rows"
CONDITIONAL = "conditional on selection"
BALL = 1.2  # ratio: fitted values vary by at most so many sds of the response
_MISSED = (0.5, 1.4)  # ratio: noise of a choice to a score, at which none and all are missed
USUAL = 10  # wording: columns that are taken to matter where no number is given


def per_round(total: int, rounds: int, first: float) -> tuple[int, ...]:
    """Columns chosen in each round: a share `first` of them in the first, the others evenly."""
    rounds = min(rounds, total)
    start = max(1, round(first * total)) if rounds > 1 else total
    later = np.diff(np.linspace(0, total - start, rounds).round().astype(int))
    return (start, *(int(k) for k in later if k > 0))


def error_with(found: float, noise: float) -> float:
    """Error of fitted values over their size: if all columns that matter are found, and if not.

    Parameters
    ----------
    found : float
        The error if all are found.
    noise : float
        Largest noise of a choice over the score of a column that matters.
    """
    low, high = _MISSED
    return math.hypot(found, min(max((noise - low) / (high - low), 0.0), 1.0))


def half_of(n: int) -> int:
    """Rows of a half; a table of one row has an empty one, which is planned as if it were not."""
    return max(n // 2, 1)


def restricted(design: Design, columns: Sequence[int]) -> Design:
    """Public facts of the design with only some of its columns."""
    chosen = np.asarray(columns, dtype=np.intp)
    whole, intercept = design.standardization, design.standardization.intercept
    at = [i for i, j in enumerate(columns) if j == intercept]
    part = replace(
        whole,
        x_center=whole.x_center[chosen],
        x_scale=whole.x_scale[chosen],
        intercept=at[0] if at else None,
    )
    bounds = design.internal_bounds[chosen]
    longest = float(np.linalg.norm(np.abs(bounds).max(axis=1)))
    return design.part(
        names=tuple(design.names[j] for j in columns),
        bounds=design.bounds[chosen],
        internal_bounds=bounds,
        standardization=part,
        norm_bound=min(longest, float(design.norm_bound)),
    )
