"""Intervals of coefficients along directions whose curvature noise may hide: shorter on one side.

The farther a coefficient lies from where its score was asked, the more an error of the curvature
matters. What score and curvature do not contradict reaches far on that side, and little on the
other: whether there is an effect at all a score tells whatever the curvature is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError
from dpstats.protocol.criticals import critical

__all__ = ["FaintDirections", "fieller"]

Array = NDArray[np.float64]

_SURE = 3.0  # ses: of a curvature, from which on it may have been seen too small as well
_FARTHEST, _HALVINGS = 1e3, 60  # number: largest z of a test; steps of a bisection, to the last bit


def fieller(
    score: Array, seen: Array, doubt: Array, noise: Array, z: Array | float
) -> tuple[Array, Array]:
    """Ends of the set of all t that a score and a slope do not contradict; each array alike.

    With score ~ N(c t, noise) and seen ~ N(c, doubt^2), ``score - seen t`` is normal with variance
    ``noise + t^2 doubt^2`` whatever c is, so that the t at which it is within z of its standard
    deviations are a confidence set, of 95 % for z = 1.96 (Fieller 1954, "Some problems in interval
    estimation"; Anderson & Rubin 1949). It is an interval where ``seen > z doubt``.

    Elsewhere the slope may be none, and no end is known but one: as c is not negative, a score that
    is z standard deviations off 0 says on which side t is. The set leaves out a piece about 0 then,
    and all beyond it on the other side. *Proof* that it holds t as often: say t > 0. A score that
    exceeds what t explains by z has chance 1 - Phi(z), and so has, at most, one below
    -z sqrt(noise), whose mean c t is not negative.
    """
    product, sign = score * seen, np.sign(score)
    a, off = seen**2 - (z * doubt) ** 2, score**2 - z**2 * noise
    told, one_sided = (seen > 0) & (a > 0), (off > 0) & (a <= 0)
    root = z * np.sqrt(np.maximum(noise * a + (score * doubt) ** 2, 0.0))
    below, above = (
        np.where(told, end / np.where(told, a, 1.0), 0.0)
        for end in (product - root, product + root)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        near = off / (product + sign * root)  # the end next to 0, whatever the sign of a
    low = np.where(one_sided & (sign > 0), near, -np.inf)
    high = np.where(one_sided & (sign < 0), near, np.inf)
    return np.where(told, below, low), np.where(told, above, high)


@dataclass(frozen=True, eq=False)
class FaintDirections:
    """What is known of coefficients along r directions apart, with curvatures c that are faint.

    Attributes
    ----------
    effects : ndarray of shape (d, r)
        What a unit along each direction changes of d coefficients.
    score, noise, seen, doubt : ndarray of shape (r,)
        A score ~ N(c t, noise) of how far t the coefficient lies from where it was asked, and the
        curvature ~ N(c, doubt^2) as it was seen.
    ahead : ndarray of shape (r,)
        t as reported.
    most : ndarray of shape (r,)
        Standard deviation that was presumed of t: no interval reaches farther.
    variance : ndarray of shape (r,)
        What the covariance of all coefficients counts of each.
    """

    effects: Array
    score: Array
    noise: Array
    seen: Array
    doubt: Array
    ahead: Array
    most: Array
    variance: Array

    def __post_init__(self) -> None:  # it may come from a file
        spreads = (self.noise, self.doubt, self.most, self.variance)
        shapes = {a.shape for a in (self.score, self.seen, self.ahead, *spreads)}
        sound = self.effects.ndim == 2 and shapes == {self.effects.shape[1:]}
        if not (sound and min(a.min(initial=0.0) for a in spreads) >= 0):
            raise OptionError("estimate, faint: a score and a curvature of each direction.")

    def changed(self, units: Callable[[Array], Array]) -> FaintDirections:
        """Of coefficients in other units, of which `units` is a function, linear or affine."""
        none = units(np.zeros(len(self.effects)))
        effects = [units(along) - none for along in self.effects.T]
        return replace(self, effects=np.stack(effects, axis=1))

    def _reaches(self, cov: Array, z: Array) -> tuple[Array, Array]:
        """How far intervals of z (d,) reach below and above d coefficients, each (d,).

        A coefficient is an effect e of the direction that it depends on most, and an independent
        normal part of variance v: to take t for a coefficient less the latter, over e, makes the
        noise of ``score - seen t`` larger by ``seen^2 v / e^2``, and the rest is Fieller's. Where
        the variance is mostly v, intervals are normal. So are they on the side away from where the
        score was asked among curvatures that are seldom reported but where they were seen too
        large: Fieller's sets would end too soon there.
        """
        parts, whole = np.square(self.effects) * self.variance, np.diag(cov)
        each, at = np.arange(whole.size), parts.argmax(axis=1)
        mostly, v = 2 * parts[each, at] > whole, np.maximum(whole - parts[each, at], 0.0)
        e, seen, ahead = (
            np.where(mostly, self.effects[each, at], 1.0),
            self.seen[at],
            self.ahead[at],
        )
        noise = self.noise[at] + seen**2 * v / e**2
        low, high = fieller(self.score[at], seen, self.doubt[at], noise, z)
        normal, sure = z * np.sqrt(whole), seen >= _SURE * self.doubt[at]
        farthest = z * np.sqrt((e * self.most[at]) ** 2 + v)

        def reach(side: Array, falling: NDArray[np.bool_]) -> Array:
            found = np.clip(np.abs(e) * side, 0.0, farthest)
            return np.where(mostly & (sure | falling), found, normal)

        back, on = reach(ahead - low, ahead > 0), reach(high - ahead, ahead <= 0)
        return np.where(e > 0, back, on), np.where(e > 0, on, back)

    def bounds(self, values: Array, cov: Array, alpha: float) -> Array:
        """Intervals of level 1 - alpha of the coefficients, shape (d, 2)."""
        low, high = self._reaches(cov, np.full(values.size, critical(alpha)))
        return np.column_stack([values - low, values + high])

    def deviates(self, values: Array, cov: Array) -> Array:
        """The z at which intervals end at 0, of the sign of the coefficients; shape (d,)."""
        inside, outside = np.zeros(values.size), np.full(values.size, _FARTHEST)
        for _ in range(_HALVINGS):
            middle = (inside + outside) / 2
            low, high = self._reaches(cov, middle)
            short = np.where(values > 0, low, high) < np.abs(values)
            inside, outside = np.where(short, middle, inside), np.where(short, outside, middle)
        return inside * np.sign(values)
