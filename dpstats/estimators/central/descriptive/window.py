"""Windows that moments are taken in: wide enough for the tails, narrow enough for the noise."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators import columns
from dpstats.protocol import Distribution

__all__ = ["Window", "expected_allowances", "seen_tail", "window_of"]

Array = NDArray[np.float64]

_SEEN = 3.0  # ratio: values in a tail to the noise in their count, from which it is believed
# ratio: distance of a tail that is doubted to that of a larger one; ratio: their rows
_FAR, _SURER = 8.0, 4 / 3
_MOST = 0.125  # share: of the values in the tail that is read of the distribution, at most
_RATIO = 1.25  # ratio: of distances between quantiles whose tails are half as large; normal below 1
_OCTAVES = 10  # numerical: times that a tail may be halved beyond what is seen
_WIDEST = 25.0  # ratio: of a window's reach from the median to the interquartile range
_FURTHEST = 40.0  # numerical: standard deviations of a normal column that no window reaches
_FINE = 8000  # numerical: cells of its distribution function
_EVEN = 0.2  # share: of the allowances for two tails that does not cancel


class Window(NamedTuple):
    """A window, and what holding values to it may move moments by.

    Attributes
    ----------
    lower, upper : float
        In the user's units.
    mean : float
        Allowance for the mean, as a standard deviation.
    square : float
        The same for the mean of squares about the middle of the window.
    """

    lower: float
    upper: float
    mean: float
    square: float


def window_of(found: Distribution, noise: float, agreed: bool = False) -> Window:
    """The window whose allowance and noise together are least.

    Beyond the tail that can be seen in the released distribution function, distances between
    quantiles of tails p, p/2, p/4, ... are taken to grow by `_RATIO` each, as those of a
    log-normal column with a shape of 1 do at p = 5 %. What lies outside a window would have moved
    the mean by the sum of these distances times the tails; two tails cancel, but for a part.

    Parameters
    ----------
    found : Distribution
        Released.
    noise : float
        Standard deviation of the noise in a sum of z in [-1, 1], in rows.
    agreed : bool, default False
        Whether two answers agree on it: what they show far beyond all others is no noise.
    """
    sides = [_tail(found, upper, agreed) for upper in (False, True)]
    best: tuple[float, Window] | None = None
    for lower, below, below2 in zip(*sides[0], strict=True):
        for upper, above, above2 in zip(*sides[1], strict=True):
            if not lower < upper:
                continue
            bias = abs(above - below) + _EVEN * (above + below)
            cost = bias**2 + ((upper - lower) / 2 * noise / found.rows) ** 2
            if best is None or cost < best[0]:
                reach = (upper - lower) / 2
                square = below2 + above2 + 2 * reach * (above + below)
                best = cost, Window(float(lower), float(upper), float(bias), float(square))
    if best is None:
        return Window(float(found.edges[0]), float(found.edges[-1]), 0.0, 0.0)
    return best[1]


def seen_tail(found: Distribution) -> float:
    """Share of the rows in the least tail that the noise lets be seen."""
    noise = math.sqrt(float(found.variance.max()))
    return min(max(_SEEN * noise / found.rows, 1.0 / found.rows), _MOST)


def expected_allowances(n: float, rank: float, noise: float) -> tuple[float, float]:
    """What a normal column is to be allowed in a range that is far too wide, in its sd.

    Parameters
    ----------
    n : float
        Rows.
    rank, noise : float
        Standard deviations of the noise in a count of the distribution function, and in a sum of z
        in [-1, 1], in rows.

    Returns
    -------
    mean, std : float
        As standard deviations.
    """
    from scipy.special import ndtr

    edges = np.linspace(-_FURTHEST, _FURTHEST, _FINE + 1)
    variance = np.full(_FINE, rank**2)
    found = Distribution(edges, n * ndtr(edges[1:]), variance, np.zeros(_FINE))
    window = window_of(found, noise, agreed=True)
    return window.mean, window.square / 2


def _outer(found: Distribution, share: float, upper: bool) -> float:
    """The value that a share of the rows is beyond; of a cell with as many rows its outer end.

    They may all be there.
    """
    q = 1 - share if upper else share
    at = min(int(np.searchsorted(found.below, q * found.rows)), found.below.size - 1)
    inside = found.below[at] - (found.below[at - 1] if at else 0.0)
    if inside < share * found.rows:
        return found.quantile(q)
    return float(found.edges[at + 1] if upper else found.edges[at])


def _tail(found: Distribution, upper: bool, agreed: bool) -> tuple[Array, Array, Array]:
    """Candidates for an end, and first and second moments of what lies beyond each, about it."""
    share = seen_tail(found)
    sign, end = (1.0, float(found.edges[-1])) if upper else (-1.0, float(found.edges[0]))

    def at(p: float) -> float:
        return found.quantile(1 - p if upper else p)

    last, median = _outer(found, share, upper), found.quantile(0.5)
    apart = abs(found.quantile(0.75) - found.quantile(0.25))
    # What one answer shows far beyond all others may be noise, and is believed of more rows only.
    sure = at(_SURER * share)
    spread = apart > columns.DEEPEST * (found.edges[-1] - found.edges[0])
    if spread and not agreed and abs(last - median) > _FAR * abs(sure - median):
        last, share = sure, _SURER * share
    step = abs(last - at(4 * share)) / (1 + 1 / _RATIO)
    steps = step * _RATIO ** np.arange(1, _OCTAVES + 1)
    ends = last + sign * np.append(0.0, np.cumsum(steps))
    # Where most rows have one value, its quartiles say nothing of how far others are.
    middle = max(apart, abs(last - median) / 2)
    widest = median + sign * _WIDEST * middle
    furthest = min(widest, end) if upper else max(widest, end)
    held = np.clip(ends, min(median, furthest), max(median, furthest))
    # A half of the tail beyond an end lies between it and the next, evenly; and so on.
    tails = share * 0.5 ** np.arange(_OCTAVES + 1)
    gaps = np.append(np.abs(np.diff(held)), 0.0)
    first, second = np.zeros(_OCTAVES + 1), np.zeros(_OCTAVES + 1)
    for j in range(_OCTAVES - 1, -1, -1):
        near, far = tails[j] / 2, tails[j + 1]
        first[j] = near * gaps[j] / 2 + far * gaps[j] + first[j + 1]
        second[j] = near * gaps[j] ** 2 / 3 + far * gaps[j] ** 2 + 2 * gaps[j] * first[j + 1]
        second[j] += second[j + 1]
    return held, first, second
