"""The dispersion of counts from a noisy, clipped score of a negative binomial law.

The constants are public and enter after the noise: they cost accuracy where they are wrong, never
privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.central.newton.budget import DISPERSION
from dpstats.estimators.central.newton.conclusion import Conclusion
from dpstats.estimators.central.newton.normal_rows import NormalRows
from dpstats.families import Family
from dpstats.families.dispersion import Dispersion
from dpstats.protocol import Holder
from dpstats.queries import Query, ResidualSums

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["Counts", "DispersionEstimate", "asked", "first", "last"]

Array = NDArray[np.float64]

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(17)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_SINGLE, _FINE, _MOST = 64, 1.06, 2.0**40  # cells of counts: up to here of one, then wider; at most
_LARGEST, _LEAST = 20.0, 0.01  # dispersions: found at most; that scores are taken at, at least
_CLIPS = np.geomspace(1.0, 40.0, 28)  # clips tried, in standard deviations of the score
_HEAVIER = 3.0  # ratio: of the dispersion that long counts may have, to that of all
_SQUARE_DOUBT = 0.5  # relative error of the model's mean square of scores
_HALVINGS, _STEP = 30, 1e-3  # numerical: of the search for a root, and of its derivative
_LEAST_SLOPE = 1e-200  # of a mean in the dispersion, where rounding hides its rise


class DispersionEstimate(NamedTuple):
    """A dispersion and its standard error."""

    alpha: float
    se: float


@dataclass(frozen=True)
class Counts:
    """Negative binomial counts, held to `upper`, whose linear predictors are normal."""

    mean: float
    sd: float
    upper: float

    @cached_property
    def eta(self) -> Array:
        """Linear predictors at quadrature nodes; shape (k, 1)."""
        column: Array = (self.mean + self.sd * _NODES)[:, None]
        return column

    @cached_property
    def _last(self) -> Array:
        """The largest count of each cell but the last one."""
        most = min(self.upper, _MOST)
        ratio = max(most / _SINGLE, 1.0)
        steps = max(0, math.ceil(math.log(ratio) / math.log(_FINE)))
        wide = _SINGLE * np.geomspace(1.0, ratio, 2 + steps)
        ends = np.unique(np.floor(np.append(np.arange(_SINGLE), wide)))
        below: Array = ends[ends < most]
        return below

    @cached_property
    def y(self) -> Array:
        """A count of each cell, its middle; the last one is the upper bound."""
        first = np.append(0.0, self._last[:-1] + 1)
        return np.append((first + self._last) / 2, self.upper)

    def chances(self, alpha: float) -> Array:
        """Of each cell, given the predictor; shape (k, cells)."""
        from scipy.special import betainc, pdtr

        mu = np.exp(np.clip(self.eta, -30, 30))
        if alpha > 0:
            below = betainc(1 / alpha, self._last + 1, 1 / (1 + alpha * mu))
        else:
            below = pdtr(self._last, mu)
        ends = np.concatenate([np.zeros_like(mu), below, np.ones_like(mu)], axis=1)
        return np.asarray(np.diff(ends, axis=1))

    def average(self, values: Array, alpha: float) -> float:
        """Mean of a function of predictors and counts, given at all nodes and cells."""
        return float(_WEIGHTS @ np.sum(self.chances(alpha) * values, axis=1))

    def scores(self, family: Dispersion) -> Array:
        """At all nodes and cells."""
        return family.residual(self.y + 0 * self.eta, self.eta + 0 * self.y)

    def blurred(self, alpha: float) -> float:
        """Half the curvature of the mean score in an error of the predictor."""
        scaled = np.exp(np.clip(self.eta, -30, 30)) / (1 + alpha * np.exp(self.eta))
        return float(_WEIGHTS @ scaled[:, 0] ** 2) / 2

    def slope(self, values: Array, alpha: float) -> float:
        """Derivative in the dispersion of the mean of a function, which rises with it.

        Where rounding hides the rise it is tiny, so that errors of roots are huge and not infinite.
        """
        step = _STEP * (1 + alpha)
        low = max(alpha - step, 0.0)
        rise = self.average(values, alpha + step) - self.average(values, low)
        return max(rise / (alpha + step - low), _LEAST_SLOPE)

    def root(self, values: Array, mean: float) -> float:
        """Dispersion at which a function has this mean, which increases with it."""
        if mean <= self.average(values, 0.0):
            return 0.0
        low, high = 0.0, _LARGEST
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.average(values, middle) < mean else (low, middle)
        return (low + high) / 2

    def left_out(self, scores: Array, clip: float, alpha: float) -> float:
        """What a clip may leave out of a mean beyond what the law says, from a heavier one."""
        excess = np.maximum(np.abs(scores) - clip, 0.0)
        return self.average(excess, _HEAVIER * alpha) - self.average(excess, alpha)

    def clip(self, family: Dispersion, noise: float, n: float) -> float:
        """The clip with the least error of the root; `noise` is that of the sum at clip 1."""
        scores, alpha = self.scores(family), family.alpha
        sd = math.sqrt(self.average(scores**2, alpha))
        errors = []
        for clip in sd * _CLIPS:
            held = np.clip(scores, -clip, clip)
            left = self.left_out(scores, clip, alpha)
            square = n * self.average(held**2, alpha) + (noise * clip) ** 2 + (n * left) ** 2
            errors.append(math.sqrt(square) / self.slope(held, alpha))
        return float(sd * _CLIPS[int(np.argmin(errors))])


def first(
    holder: Holder[Query], design: Design, rows: NormalRows, w: Array, b: Array, n: float
) -> Family:
    """The law of counts whose dispersion is the one about early means, at whitened `b`."""
    law = design.family
    found = asked(holder, DISPERSION[0], _counts(design, rows, b), w @ b, law.alpha, n)
    return Family(law.name, law.link, alpha=max(found.alpha, _LEAST))


def last(
    holder: Holder[Query], design: Design, rows: NormalRows, w: Array, found: Conclusion, n: float
) -> dict[str, float]:
    """The dispersion about the means that are reported, and its standard error.

    That of units of several rows is not known: how rows of one go together is not asked.
    """
    back = np.linalg.inv(w)
    b = back @ found.params
    moments = rows.cov + np.outer(rows.centre, rows.centre)
    blur = float(np.sum((back @ found.cov_privacy @ back.T) * moments))
    counts, alpha = _counts(design, rows, b), rows.family.alpha
    alpha, se = asked(holder, DISPERSION[1], counts, found.params, alpha, n, blur)
    return {"alpha": alpha, **({"alpha se": se} if holder.plan.max_rows == 1 else {})}


def _counts(design: Design, rows: NormalRows, b: Array) -> Counts:
    mean, sd = rows.predictor(b)
    return Counts(mean, sd, design.internal_endog_bounds[1])


def asked(
    holder: Holder[Query],
    slot: str,
    counts: Counts,
    beta: Array,
    alpha: float,
    n: float,
    blur: float = 0.0,
) -> DispersionEstimate:
    """The dispersion at which the score taken at `alpha` has the mean that is released.

    Parameters
    ----------
    holder : Holder
    slot : str
        Of the plan.
    counts : Counts
        What is expected of the rows.
    beta : ndarray of shape (d,)
        Public coefficients, in internal coordinates.
    alpha : float
        Public dispersion.
    n : float
        Number of rows.
    blur : float
        Mean square of what noise adds to linear predictors.
    """
    family = Dispersion.at(max(alpha, _LEAST))
    query = ResidualSums(beta, 1.0, family)
    clip = counts.clip(family, holder.plan.noise(query, slot).sd, n)
    query = ResidualSums(beta, clip, family)
    answer = holder.ask(query, slot)
    total, squares = (float(value) for value in answer.value)
    noise = answer.noise.sd
    scores = counts.scores(family)
    held = np.clip(scores, -clip, clip)
    found = counts.root(held, total / n - blur * counts.blurred(family.alpha))
    expected = n * counts.average(held**2, found)
    doubt, known = (_SQUARE_DOUBT * expected) ** 2, (2 * clip * noise) ** 2
    square = max((doubt * squares + known * expected) / (doubt + known), expected / 4)
    # Of a part between none and all of it, were all alike, the mean square is a third.
    doubted = n * counts.left_out(scores, clip, family.alpha)
    se = math.sqrt(square + noise**2 + doubted**2 / 3) / (n * counts.slope(held, found))
    return DispersionEstimate(found, se)
