"""Clips that widen where the tails they cut off lean to one side.

A ladder of clips leads from an efficient one to the public range; the sums of what each rung cuts
off are released (`TailSums`). Where they stand out from their noise, residuals are skewed, and the
clip is widened until the mean beyond it is small against the standard error it stands in.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["believed", "rungs", "wide_enough"]

Array = NDArray[np.float64]

_RUNG = 1.7  # factor between rungs of the ladder of clips
_CLEAR = 2.25  # standard deviations at which a cut-off tail counts as there
_TOLERATED = 0.6  # cut-off mean, in standard errors, that a clip may leave
_TAIL_DECAY = 0.3  # share of a rung's tail expected on the next one, where noise hides it


def rungs(first: float, top: float) -> Array:
    """A ladder from `first` to `top`."""
    steps = max(2, math.ceil(math.log(top / first) / math.log(_RUNG)))
    ladder: Array = np.geomspace(first, top, steps + 1)
    return ladder


def believed(sums: Array, noise: float) -> Array:
    """Cut-off sums with noise set aside: zero unless the first two rungs together stand out.

    They and the rungs after them that stand out on the same side are taken as measured; beyond
    these the tail is continued geometrically.
    """
    lean = float(sums[0] + sums[1])
    if abs(lean) <= _CLEAR * math.sqrt(2) * noise:
        return np.zeros(sums.size)
    clear = np.append(np.sign(lean) * sums[2:] > _CLEAR * noise, False)
    known = 2 + int(np.argmin(clear))
    continued = sums[known - 1] * _TAIL_DECAY ** np.arange(1, sums.size - known + 1)
    return np.concatenate([sums[:known], continued])


def wide_enough(
    ladder: Array, cut: Array, square: float, unit_noise: float, n: float
) -> tuple[float, float]:
    """The smallest clip beyond which the mean is negligible, and the mean square within it.

    Parameters
    ----------
    ladder : ndarray of shape (J + 1,)
        Clips.
    cut : ndarray of shape (J,)
        What they cut off, as `believed`.
    square : float
        Mean square of residuals clipped at ``ladder[0]``.
    unit_noise : float
        Scale of the noise of the score per unit of its clip.
    n : float
        Number of rows.
    """
    beyond = np.append(np.cumsum((np.diff(ladder) * cut)[::-1])[::-1], 0.0) / n
    moment = square + np.append(0.0, np.cumsum(np.abs(cut) * np.diff(ladder**2))) / n
    clips = np.geomspace(ladder[0], ladder[-1], 200)
    variance = np.interp(clips, ladder, moment) + (unit_noise * clips) ** 2 / n
    allowed = _TOLERATED * np.sqrt(variance / n)
    chosen = float(clips[np.abs(np.interp(clips, ladder, beyond)) <= allowed][0])
    return chosen, float(np.interp(chosen, ladder, moment))
