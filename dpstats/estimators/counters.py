"""Devices that count: where nobody holds the rows, a few say what of theirs is astray.

A device that counts does so in place of its answer, so that it sends one message as all others do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpstats.channels import Subset
from dpstats.protocol import NoiseLaw

__all__ = [
    "ASTRAY",
    "CHANCE",
    "MANY",
    "TO_THE_MIDDLE",
    "counters_of",
    "error_of_count",
    "fewest_finders",
    "finders_of",
    "shares_astray",
]

Array = NDArray[np.float64]

ASTRAY = "astray"
TO_THE_MIDDLE = "and were taken to be in the middle of their interval: leave these rows out"
MANY = 0.05  # wording: share of values astray that is said
CHANCE = 0.003  # wording: chance that noise alone makes a fit say so of any column
_MOST_COUNTERS = 0.03  # share: of devices that count what is outside, in place of their answer
_SEEN = 0.02  # share: error of that count, at which more devices are not asked
_BLIND = 0.3  # share: error of that count, from which none is
_MOST_FINDERS = 0.1  # share: of devices that say where a response lies of which no scale is known
_FOUND = 0.01  # share: error of what is told of a cell, at which more devices are not asked
_COARSE = 0.06  # share: error of what is told of a cell, from which none is
_ROUGH = 0.01  # wording: error of such a share, from which it is said


def counters_of(channel: Subset, n: int) -> int:
    """How many of n devices say what is astray, in place of their answer; 0 if that tells nothing.

    As many as know a small share to within `_SEEN`, and no more than `_MOST_COUNTERS` of all.
    """
    return _as_many(channel, n, _MOST_COUNTERS, _SEEN, _BLIND)


def finders_of(channel: Subset, n: int) -> int:
    """How many of n devices say where in a wide range their response lies; 0 if too few tell it."""
    return _as_many(channel, n, _MOST_FINDERS, _FOUND, _COARSE)


def fewest_finders(channel: Subset) -> int:
    """Rows from which on there are some."""
    return math.ceil(error_of_count(channel) / (_COARSE**2 * _MOST_FINDERS))


def _as_many(channel: Subset, n: int, share: float, seen: float, blind: float) -> int:
    """At most this share of n, with no error below `seen`; none where it is above `blind`."""
    one, most = error_of_count(channel), int(share * n)
    return 0 if one > blind**2 * most else min(most, math.ceil(one / seen**2))


def error_of_count(channel: Subset) -> float:
    """Variance of a share as one device tells it, noise and sampling, where the share is small.

    The first cell is that of records without anything astray.
    """
    shares = np.zeros(channel.dim)
    shares[:2] = 1 - MANY, MANY
    return float(channel.noise(shares)[1, 1]) + MANY * (1 - MANY)


def shares_astray(
    names: Sequence[str], shares: Array, noise: NoiseLaw, effect_of_gaps: str
) -> tuple[dict[str, dict[str, float]], tuple[str, ...]]:
    """What to release of noisy shares outside of what is declared, and missing; and to remark.

    A share is remarked on that noise makes no more of than `MANY`.

    Parameters
    ----------
    names : sequence of str
        The t inputs that were counted.
    shares : ndarray of shape (2, t)
    noise : NoiseLaw
        On each share, that of sampling devices included.
    effect_of_gaps : str
        What becomes of a missing value, in words that follow "were missing, ".
    """
    held = np.clip(shares, 0.0, 1.0)
    clear = max(MANY, noise.upper(CHANCE / held.size))
    near = noise.upper(0.025)
    rough = f" (a share that is known to within {near:.0%})" if near >= _ROUGH else ""
    kinds = {
        "share outside": "outside the declared range, and were moved to its ends: declare a wider "
        "one",
        "share missing": f"missing, {effect_of_gaps}",
    }
    released = {
        kind: {name: float(share) for name, share in zip(names, row, strict=True)}
        for kind, row in zip(kinds, held, strict=True)
    }
    remarks = [
        f"About {share:.0%} of {name!r} were {kinds[kind]}{rough}."
        for kind, row in released.items()
        for name, share in row.items()
        if share > clear
    ]
    return released, tuple(remarks)
