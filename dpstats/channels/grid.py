"""Messages of additive noise: whole numbers of 16 bits, on a grid that is coarse beside the noise.

Values are whole steps of `GRID`, exact discrete noise is added in these steps, and the sum is
rounded to the coarser grid of the message, which is post-processing. With noise of scale s the
coarse step is between 2^-9 and 2^-11 of s (less for small s), so rounding adds less than one part
in 10^6 to the variance, and to the mean nothing that could be measured.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpstats.channels.base import Payloads

__all__ = ["GRID", "LARGEST", "coarse", "fits", "integers", "step_for"]

GRID = 2.0**-30
LARGEST = 2**15 - 1  # of a message; -2^15 is never sent


def step_for(reach: float) -> float:
    """Smallest power of two, and of `GRID`, with `reach` within `LARGEST` steps."""
    return max(math.ldexp(1.0, math.ceil(math.log2(reach / LARGEST))), GRID)


def coarse(steps: NDArray[np.int64], step: float) -> NDArray[np.int16]:
    """Message nearest to whole steps of `GRID`; cell j is ``[j - 1/2, j + 1/2)`` of `step`."""
    ratio = round(step / GRID)
    cells = np.clip((steps + ratio // 2) // ratio, -LARGEST, LARGEST)
    return cells.astype("<i2")


def integers(payloads: Payloads) -> NDArray[np.int64]:
    """The integers of messages, (m, coordinates)."""
    return np.ascontiguousarray(payloads).view("<i2").astype(np.int64)


def fits(payloads: Payloads) -> NDArray[np.bool_]:
    """Messages without the integer that is never sent."""
    lowest: NDArray[np.int64] = integers(payloads).min(axis=1)
    return lowest >= -LARGEST
