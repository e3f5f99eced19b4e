"""What methods that select columns share: what inference holds for, designs of some columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = [
    "CONDITIONAL",
    "half_of",
    "restricted",
]


INFERENCE = "none: selected on the same rows"
CONDITIONAL = "conditional on selection"


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
    return replace(
        design,
        names=tuple(design.names[j] for j in columns),
        bounds=design.bounds[chosen],
        internal_bounds=bounds,
        standardization=part,
        norm_bound=min(longest, float(design.norm_bound)),
    )
