"""Windows that moments are taken in: wide enough for the tails, narrow enough for the noise."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators import columns
from dpstats.estimators.guesses import round_up
from dpstats.protocol import Distribution
from dpstats.text import with_digits

__all__ = [
    "Tail",
    "Window",
    "expected_allowances",
    "hidden_rows",
    "mean_window",
    "missed",
    "seen_tail",
    "unseen",
    "window_of",
]

Array = NDArray[np.float64]

_PLACED = 1.2  # ratio: half of the rows to the noise in a count, at least, to say where they are
_SEEN = 3.0  # ratio: values in a tail to the noise in their count, from which it is believed
_FAR, _SURER = 8.0, 4 / 3  # ratio: distance of a doubted tail to a larger one's; ratio: their rows
_MOST = 0.125  # share: of the values in the tail that is read of the distribution, at most
_RATIO = 1.25  # ratio: of distances between quantiles whose tails are half as large; normal below 1
_OCTAVES = 10  # numerical: times that a tail may be halved beyond what is seen
_WIDEST = 25.0  # ratio: of a window's reach from the median to the interquartile range
_FURTHEST = 40.0  # numerical: standard deviations of a normal column that no window reaches
_FINE = 8000  # numerical: cells of its distribution function
_EVEN = 0.2  # share: of the allowances for two tails that does not cancel
_CLEAR = 2.0  # ratio: rows beyond the commonest value to those that are seen, for tails to be read
_ALONE = 2.0  # wording: ratio of the rows outside of one cell to those of a tail that is seen
_LIGHTEST = -0.5  # ratio: shape of a generalised Pareto tail that ends, at least
_HEAVIEST = 0.36  # ratio: shape of such a tail, at most; that of t with k degrees of freedom is 1/k
_DOUBT = 0.45  # share: level of a test that refuses from three quarters of a standard error on
_LEAST = 2.0  # number: of octaves that the scale of a tail is read of, at least
_EXPONENTIAL = 1e-6  # numerical: for a shape of 0
_NORMAL_IQR = 1.349  # ratio: interquartile range of a normal column to its standard deviation


class Tail(NamedTuple):
    """What is seen of a tail in a released distribution function.

    Attributes
    ----------
    start : float
        A value in the user's units.
    share : float
        Of the rows, that are beyond it.
    gap, octaves : float
        Distance from there inwards to where the tail is 2^octaves times as large.
    end : float
        Of the declared range: nothing is beyond.
    """

    start: float
    share: float
    gap: float
    octaves: float
    end: float


class Window(NamedTuple):
    """A window, and what holding values to it may move the mean by.

    Attributes
    ----------
    lower, upper : float
        In the user's units.
    mean : float
        Allowance for the mean, as a standard deviation.
    tails : tuple of Tail
        The lower and the upper one that it was chosen by; none where nothing is outside.
    """

    lower: float
    upper: float
    mean: float = 0.0
    tails: tuple[Tail, ...] = ()


def window_of(found: Distribution, noise: float, agreed: bool = False) -> Window:
    """The window whose allowance and noise together are least.

    Beyond the tail that can be seen in the released distribution function, distances between
    quantiles of tails p, p/2, p/4, ... are taken to grow by `_RATIO` each, as those of a
    log-normal column with a shape of 1 do at p = 5 %. What lies outside a window would have moved
    the mean by the sum of these distances times the tails; two tails cancel, but for a part.

    Where noise hides on which side of a value half of the rows are, each window that could be read
    is one of noise: it is the declared range, and moments have the errors that it gives them.

    Parameters
    ----------
    found : Distribution
        Released.
    noise : float
        Standard deviation of the noise in a sum of z in [-1, 1], in rows.
    agreed : bool, default False
        Whether two answers agree on it: what they show far beyond all others is no noise.
    """
    if found.rows / 2 < _PLACED * math.sqrt(float(found.variance.max())):
        return Window(float(found.edges[0]), float(found.edges[-1]))
    tails = _seen(found, False, agreed), _seen(found, True, agreed)
    sides = [_candidates(found, tail) for tail in tails]
    best: tuple[float, Window] | None = None
    for lower, below in zip(*sides[0], strict=True):
        for upper, above in zip(*sides[1], strict=True):
            if not lower < upper:
                continue
            bias = abs(above - below) + _EVEN * (above + below)
            cost = bias**2 + ((upper - lower) / 2 * noise / found.rows) ** 2
            if best is None or cost < best[0]:
                best = cost, Window(float(lower), float(upper), float(bias), tails)
    if best is None:
        return Window(float(found.edges[0]), float(found.edges[-1]))
    return best[1]


def mean_window(found: Distribution, noise: float, agreed: bool = False) -> Window:
    """The window of a mean.

    Where too few rows have another value than the others for a tail to be seen, it is the declared
    range: few events may carry the mean, and nothing would say that a window cuts them off.
    """
    low, high, tail = float(found.edges[0]), float(found.edges[-1]), _CLEAR * seen_tail(found)
    if found.quantile(1 - tail) - found.quantile(tail) <= columns.DEEPEST * (high - low):
        return Window(low, high)
    return window_of(found, noise, agreed)


def missed(found: Distribution, window: Window, mean: float, variance: float) -> float:
    """What values outside of a window may add to the variance, as far as is known of tails.

    These are generalised Pareto beyond what is seen of them. Their shape is log(variance / s^2),
    with s the standard deviation of a normal column whose interquartile range is as small as
    noise may have hidden: about 0 for a normal column, .4 for t(3) and 1 for a log-normal one, but
    at most `_HEAVIEST`. (Through the noise, quantiles in a tail say less of its shape.)

    Parameters
    ----------
    found : Distribution
        Released.
    window : Window
        That it led to.
    mean, variance : float
        Released, of values held to it.
    """
    inner = found.interval(0.75, _DOUBT)[0] - found.interval(0.25, _DOUBT)[1]
    shape = _HEAVIEST
    if inner > 0 and variance > 0:
        ratio = math.sqrt(variance) * _NORMAL_IQR / inner
        shape = min(max(2 * math.log(ratio), _LIGHTEST), _HEAVIEST)
    added = 0.0
    for tail, end in zip(window.tails, (window.lower, window.upper), strict=False):
        first, second = _excess(tail, end, shape)
        further, far = _excess(tail, tail.end, shape)  # held to the end of the range
        first, second = first - further, second - far - 2 * abs(tail.end - end) * further
        added += max(second + 2 * abs(end - mean) * first, 0.0)
    return added


def _excess(tail: Tail, end: float, shape: float) -> tuple[float, float]:
    """Mean of what a generalised Pareto tail has beyond an end, and of its square, in all rows."""
    shape = shape or _EXPONENTIAL
    scale = tail.gap * shape / (1 - 2 ** (-shape * tail.octaves))
    grown = 1 + shape * abs(end - tail.start) / scale if scale > 0 else 0.0
    if grown <= 0:
        return 0.0, 0.0
    first = tail.share * grown ** (-1 / shape) * grown * scale / (1 - shape)
    return first, 2 * first * grown * scale / (1 - 2 * shape)


def seen_tail(found: Distribution) -> float:
    """Share of the rows in the least tail that the noise lets be seen."""
    noise = math.sqrt(float(found.variance.max()))
    return min(max(_SEEN * noise / found.rows, 1.0 / found.rows), _MOST)


def hidden_rows(found: Distribution, lower: float, upper: float) -> int:
    """Rows at either end of which noise hides how far out they are; 0 if a window holds all."""
    if lower <= float(found.edges[0]) and upper >= float(found.edges[-1]):
        return 0
    return round_up(seen_tail(found) * found.rows)


def unseen(name: str, found: Distribution, lower: float, upper: float) -> tuple[str, ...]:
    """A remark where all rows whose place is seen are in one cell, and a window cuts off others.

    Nothing is known of how far these are, and no interval allows for them.
    """
    tail, ends = _ALONE * seen_tail(found), (float(found.edges[0]), float(found.edges[-1]))
    first, last = (int(np.searchsorted(found.below, q * found.rows)) for q in (tail, 1 - tail))
    if first != last or (lower <= ends[0] and upper >= ends[1]):
        return ()
    rows, cell = round_up(2 * tail * found.rows), (found.edges[first], found.edges[first + 1])
    return (
        f"{name}: all but at most about {rows:,} rows lie in [{with_digits(cell[0], 4)}, "
        f"{with_digits(cell[1], 4)}]; noise hides where these are, and values outside of the "
        f"window [{with_digits(lower, 4)}, {with_digits(upper, 4)}] are moved to its ends, which "
        "no interval allows for. More rows or a narrower declared range show more.",
    )


def expected_allowances(n: float, rank: float, noise: float) -> tuple[float, float]:
    """What a normal column is to be allowed in a range that is far too wide.

    Parameters
    ----------
    n : float
        Rows.
    rank, noise : float
        Standard deviations of the noise in a count of the distribution function, and in a sum of z
        in [-1, 1], in rows.

    Returns
    -------
    mean, variance : float
        Of the mean in standard deviations of the column, as one; of its variance what is missed.
    """
    from scipy.special import ndtr

    edges = np.linspace(-_FURTHEST, _FURTHEST, _FINE + 1)
    variance = np.full(_FINE, rank**2)
    found = Distribution(edges, n * ndtr(edges[1:]), variance, np.zeros(_FINE))
    window = window_of(found, noise, agreed=True)
    held = np.clip(edges[1:], window.lower, window.upper)
    return window.mean, missed(found, window, 0.0, float(np.diff(ndtr(edges)) @ held**2))


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


def _seen(found: Distribution, upper: bool, agreed: bool) -> Tail:
    """The lower or the upper tail, as far as the noise lets it be seen."""
    share = seen_tail(found)

    def at(p: float) -> float:
        return found.quantile(1 - p if upper else p)

    start, median = _outer(found, share, upper), found.quantile(0.5)
    # What one answer shows far beyond all others may be noise, and is believed of more rows only.
    sure = at(_SURER * share)
    apart = abs(found.quantile(0.75) - found.quantile(0.25))
    spread = apart > columns.DEEPEST * (found.edges[-1] - found.edges[0])
    if spread and not agreed and abs(start - median) > _FAR * abs(sure - median):
        start, share = sure, _SURER * share
    octaves = max(math.log2(0.5 / share) / 2, _LEAST)  # half of the way to the median
    gap, end = abs(start - at(share * 2**octaves)), found.edges[-1 if upper else 0]
    return Tail(float(start), share, float(gap), octaves, float(end))


def _candidates(found: Distribution, tail: Tail) -> tuple[Array, Array]:
    """Candidates for an end, and the mean of what lies beyond each, about it."""
    upper, share = tail.end == found.edges[-1], tail.share
    step = abs(tail.start - found.quantile(1 - 4 * share if upper else 4 * share))
    steps = step / (1 + 1 / _RATIO) * _RATIO ** np.arange(1, _OCTAVES + 1)
    ends = tail.start + (1 if upper else -1) * np.append(0.0, np.cumsum(steps))
    median, apart = found.quantile(0.5), abs(found.quantile(0.75) - found.quantile(0.25))
    # Where most rows have one value, its quartiles say nothing of how far others are.
    middle = max(apart, abs(tail.start - median) / 2)
    widest = median + (1 if upper else -1) * _WIDEST * middle
    furthest = min(widest, tail.end) if upper else max(widest, tail.end)
    held = np.clip(ends, min(median, furthest), max(median, furthest))
    # A half of the tail beyond an end lies between it and the next, evenly; and so on.
    tails = share * 0.5 ** np.arange(_OCTAVES + 1)
    gaps = np.append(np.abs(np.diff(held)), 0.0)
    first = np.zeros(_OCTAVES + 1)
    for j in range(_OCTAVES - 1, -1, -1):
        first[j] = tails[j] / 2 * gaps[j] / 2 + tails[j + 1] * gaps[j] + first[j + 1]
    return held, first
