"""The interval of responses that nobody holds, from where a few devices say that theirs lie."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dpstats.estimators.responses import Responses
from dpstats.protocol.descriptive import on_simplex
from dpstats.queries.labels import Interval
from dpstats.tall import Tall, blocks

if TYPE_CHECKING:
    from dpstats.design import Design
    from dpstats.protocol import Plan

__all__ = ["FoundInterval", "found_interval", "in_spreads", "inner_edges"]

Array = NDArray[np.float64]

_DEEPEST = 2.0**-12  # numerical: part of the range, below which cells have one width
_CLEAR = 3.0  # ratio: of the share that may be farther out, untold, to the error of one cell's
_DOUBT = 2.0  # ratio: of what that share may be off by to the error of one cell's
_ALIGNED = 2.5  # ratio: of a normal column where it is largest to its standard deviation
_TYPICAL = 1 / 16  # numerical: mean square of a response in half-widths of such an interval
_CELL = 2.0  # numerical: ratio of the edges of a cell
_UNITS = (
    "A few devices tell where {name!r} lies, and the interval that it is held to, with the noise, "
    "follows. Errors are in units of sd({name}): at the lower end it is a third of half the "
    "declared range, at the upper end responses are normal and far within that range."
)
_PRESUMED = (
    "Responses were held to the interval from {low:.4g} to {high:.4g}, about where devices tell "
    "that most lie. Noise hides {hidden:.1%} of them and less: if so many are far beyond it, as "
    "where most are 0 and few are large, coefficients are off by more than intervals say."
)


@dataclass(frozen=True)
class FoundInterval:
    """Where responses are held, by what devices tell of where they lie.

    About the median m of noisy shares, r is how far a cell is off beyond which shares add up to no
    more than three errors of one: what noise lets be told. tau is what may be there: the shares,
    and twice their error. What may be farther yet is presumed to be no more than a variance allows,
    without which least squares has no standard errors: at most ``T(t) = K / t^2`` of them beyond t,
    with K = tau r^2. So clipping at C takes at most ``L = K / C`` off their mean, and off a
    coefficient A L times what a response of one moves it by on average, where A is 2.5 for normal
    columns whose largest rows have the clipped responses. Noise leaves an error of ``nu C /
    sqrt(n)`` in the same units, with nu that of the channel. The sum of squares of both is least,
    and they are alike, at

        C = (A K sqrt(n) / nu)^(1/2).

    Shares of a few per cent are hidden by noise, and may be anywhere in the declared range: where
    most responses are 0 and few are large, what is presumed does not hold, and no message shows it.

    Attributes
    ----------
    how : Responses
        With the interval [m - C, m + C], as far as it is within the declared range.
    loss : float
        L, in internal units; 0 where the interval is the range.
    beyond : float
        T(C).
    """

    how: Responses
    loss: float = 0.0
    beyond: float = 0.0

    def allowance(self, x: Tall, inverse: Array) -> Array:
        """Squares (d,) of what the clip may take off coefficients.

        The rows of responses that were clipped are not known, and are taken to be those public ones
        that move a coefficient most.
        """
        if self.loss == 0:
            return np.zeros(len(inverse))
        n = x.shape[0]
        most = max(1, math.ceil(min(self.beyond, 1.0) * n))
        largest = np.zeros((0, len(inverse)))
        for part in blocks(n):
            moved = np.abs(x[part] @ inverse) * n
            largest = np.concatenate([largest, moved])
            if len(largest) > most:
                largest = np.partition(largest, len(largest) - most, axis=0)[-most:]
        squares: Array = (self.loss * largest.mean(axis=0)) ** 2
        return squares

    def said(self, design: Design, error: float) -> tuple[str, ...]:
        """What is presumed of responses that noise hides, where the interval is not the range."""
        if self.loss == 0:
            return ()
        units, interval = design.standardization, self.how.interval
        low, high = (end * units.y_scale + units.y_center for end in (interval.low, interval.high))
        return (_PRESUMED.format(low=low, high=high, hidden=(_CLEAR + _DOUBT) * error),)


def inner_edges(design: Design, cells: int) -> tuple[float, ...]:
    """Edges between so many cells of the range of the response, in internal units.

    They lie in equal ratios about the number of the range that is nearest to 0 in the user's units.
    """
    low, high = design.internal_endog_bounds
    units, unit = design.standardization, (high - low) * _DEEPEST
    centre = min(max(-units.y_center / units.y_scale, low), high)
    first, last = (math.asinh((end - centre) / unit) for end in (low, high))
    edges = centre + unit * np.sinh(np.linspace(first, last, cells + 1))
    return tuple(edges[1:-1].tolist())


def found_interval(how: Responses, design: Design, shares: Array, error: float) -> FoundInterval:
    """Where responses are held, by noisy shares (cells + 2,) of known error of where they lie."""
    if how.cells == 1:
        return FoundInterval(how)
    low, high = how.interval.low, how.interval.high
    ends = np.array([low, *inner_edges(design, how.cells), high])
    inside = on_simplex(shares, 1.0)[: how.cells]
    if not inside.sum() > 0:
        return FoundInterval(how)
    parts = inside / inside.sum()
    middle = float(np.interp(0.5, np.append(0.0, np.cumsum(parts)), ends))
    away = np.maximum(np.abs(ends[:-1] - middle), np.abs(ends[1:] - middle))
    order = np.argsort(away)
    beyond = np.maximum(1.0 - np.cumsum(parts[order]), 0.0)
    at = int(np.argmax(beyond <= _CLEAR * error))
    reach = float(away[order][at])
    tail = reach**2 * (float(beyond[at]) + _DOUBT * error)
    half = max(reach, math.sqrt(_ALIGNED * tail / _noise(how)))
    made, loss = Interval(max(low, middle - half), min(high, middle + half)), tail / half
    if math.hypot(made.half, _ALIGNED * loss / _noise(how)) >= how.interval.half:
        return FoundInterval(how)  # the error would be no smaller
    sent = replace(how, interval=made, sd=made.half * math.sqrt(_TYPICAL), center=made.middle)
    return FoundInterval(sent, loss, tail / half**2)


def in_spreads(plan: Plan, design: Design, how: Responses, error: float) -> Plan:
    """The plan with its errors in units of the standard deviation of a response, as a range.

    At the lower end responses fill their declared range, as was guessed; at the upper end they are
    normal, and so far within it that the interval is the one to be found, to the next cell.
    """
    assert design.endog is not None
    filled, q = how.interval.half / how.sd, -float(ndtri(_CLEAR * error / 2))
    tail = _CLEAR * error / 2 + _DOUBT * error
    farther = max(1.0, math.sqrt(_ALIGNED * tail / _noise(how)))
    wide = max(1.0, math.sqrt(2) * _CELL * q * farther / filled)
    unit, share = how.sd * design.standardization.y_scale, plan.privacy_share
    low = np.array(plan.predicted_se) / unit
    high = low * math.sqrt(1 + share * (wide**2 - 1))
    return replace(
        plan,
        predicted_se=tuple(np.sqrt(low * high).tolist()),
        predicted_range=tuple(zip(low.tolist(), high.tolist(), strict=True)),
        predicted_units=(f"sd({design.endog.name})",) * low.size,
        assumptions=(*plan.assumptions, _UNITS.format(name=design.endog.name)),
    )


def _noise(how: Responses) -> float:
    """nu / sqrt(n): what noise leaves of an error of a mean, over the half-width."""
    assert how.channel is not None
    senders = how.counters / (1 - how.sent) * how.sent
    return math.sqrt(how.channel.variance(_TYPICAL) / senders)
