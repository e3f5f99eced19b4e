"""The last step: coefficients and their covariance from a noisy score, bread and meat."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.central.newton.budget import between_0_and_1
from dpstats.estimators.central.newton.curvature import FLOOR
from dpstats.estimators.central.newton.identification import (
    CLEAR,
    NOTHING,
    Faint,
    KnownDirections,
    likely_factor,
)
from dpstats.estimators.numerics.entrywise import operator_norm
from dpstats.protocol.faint import FaintDirections

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = [
    "EFFECT",
    "Conclusion",
    "Solution",
    "clear_of_noise",
    "conclude",
    "presumed_effect",
    "response_spread",
]

Array = NDArray[np.float64]

# ratio: of half a range to the scale of its column, at most, where noise would hide that
_AS_WIDE = 10.0
# sds: of the response, presumed of the effect of a column between 0 and 1 and of how predictors
# vary along another direction that noise hides; of predictors, that they vary by at most
EFFECT = 3.0


class Solution(NamedTuple):
    """A step from `at` by `step`, and what it rests on."""

    at: Array
    step: Array
    bread: Array
    variances: Array
    meat: Array
    noise: float
    allowed: Array
    level: float
    spread: float
    start: Array

    def turned(self, basis: Array) -> Solution:
        """In the coordinates of an orthonormal basis, which those of `variances` are already."""
        return self._replace(
            at=basis.T @ self.at,
            step=basis.T @ self.step,
            bread=basis.T @ self.bread @ basis,
            meat=basis.T @ self.meat @ basis,
            allowed=basis.T @ self.allowed @ basis,
            start=basis.T @ self.start,
        )


class Conclusion(NamedTuple):
    """Coefficients and their covariance, with its parts, in internal coordinates.

    `presumed` is the part of the covariance that was presumed where noise hides a direction, and
    `short` by how much n or epsilon are too small to see the faintest of these; 0 without any.
    `unbounded` are levels of whose coefficients noise hides where they end. Along directions that
    are `faint` and not hidden intervals are not symmetric.
    """

    params: Array
    cov: Array
    cov_privacy: Array
    cov_sampling: Array
    presumed: Array
    short: float
    unbounded: tuple[str, ...] = ()
    faint: FaintDirections | None = None

    def moved(self, params: Array) -> Conclusion:
        """With other coefficients; intervals about others than these are symmetric."""
        same = np.array_equal(params, self.params)
        return self._replace(params=params, faint=self.faint if same else None)


def clear_of_noise(solution: Solution) -> float:
    """By how much a step changes predictors (root mean square), less what its noise explains.

    0 where that may be all of it.
    """
    squared = float(solution.step @ solution.step)
    noise = solution.noise * float(np.square(np.linalg.pinv(solution.bread)).sum())
    return math.sqrt(squared - noise) if squared > NOTHING**2 * noise else 0.0


def response_spread(design: Design, found: float) -> float:
    """Standard deviation of the response, as noise found it, between what is public of it.

    No values between two ends vary by more than half of their distance.
    """
    most = max(abs(end) for end in design.internal_endog_bounds)
    least = most / _AS_WIDE if len(design.names) in design.unscaled else 0.0
    return min(most, max(least, found))


def presumed_effect(design: Design, spread: float) -> Array:
    """Standard deviation presumed of coefficients (d,), in internal units; inf where nothing is.

    Of columns between 0 and 1, and of those whose scales nobody knows: their ranges are taken to be
    about as wide as they are, so that half a range is `_AS_WIDE` of their scales at most. As far
    from the columns' means, the predictor at the centre of the ranges may be.
    """
    unit = EFFECT * spread * design.standardization.x_scale
    effect: Array = np.where(between_0_and_1(design), unit, np.inf)
    at, wide = design.standardization.intercept, [j for j in design.unscaled if j < effect.size]
    places = [*wide, *([at] if wide and at is not None else [])]
    effect[places] = np.minimum(effect[places], _AS_WIDE * spread)
    return effect


def conclude(solution: Solution, w: Array, effect: Array) -> Conclusion:
    """The posterior of coefficients ``w @ b`` where noise is small, and what it leaves elsewhere.

    Along a direction whose curvature is faint it is Fieller's interval about a coefficient drawn
    to the start, as far as a prior would; no wider than what is presumed of it. `effect`, of shape
    (d,), is the standard deviation presumed of the coefficients, inf where nothing is.
    """
    at, step, bread, variances, _, _, _, level, spread, start = solution
    d = step.size
    values, basis = np.linalg.eigh(bread)
    floor = min(FLOOR * operator_norm(variances), level / 2)
    floored = np.maximum(values, floor)
    inverse = (basis / floored) @ basis.T
    step = inverse @ (bread @ step)  # of a canonical link with its bend
    score, cov_privacy, cov_sampling = _variances(solution, inverse, step)
    final, off = inverse @ score @ inverse, at + step - start

    # Fitted values vary as much as the response does at most, in all directions together.
    tau2 = spread**2 / d
    own = np.einsum("ir,ij,jr->r", basis, final, basis)
    tau2 *= likely_factor(off @ basis, own, tau2 * level / floored)
    faint = Faint.in_noise(CLEAR, values, basis, variances)
    used = np.maximum(faint.seen, floor)
    relative = w @ faint.directions / effect[:, None]
    presumed = 1 / ((relative**2).sum(axis=0) + used / ((EFFECT * spread) ** 2 * level))
    known = KnownDirections(
        at=(at - start) @ faint.directions,
        step=step @ faint.directions,
        score=used * (step @ faint.directions),
        noise=faint.along(_variances(solution, inverse, faint.rest @ step)[0]),
        own=faint.along(final),
        room=np.minimum(tau2 * level / used, presumed),
        presumed=presumed,
    )
    drawn, variance, hidden = faint.settled(known)
    off, final = off - faint.directions @ (faint.directions.T @ off), faint.without(final)
    # By how far the posterior mean lies off counts as one standard deviation more.
    # Least squares: where tau2 underflows nothing is left along the faint directions, nor off them.
    moved = final @ np.linalg.lstsq(final + tau2 * np.eye(d), off, rcond=None)[0]
    effects, told = faint.effects(w, hidden), np.minimum(1.0, variance / known.own)

    def carried(part: Array, along: Array) -> Array:
        return w @ faint.without(part) @ w.T + (effects * along) @ effects.T

    hiding = (effects * (variance * hidden)) @ effects.T
    cov, presumed = _widened(carried(final + np.outer(moved, moved), variance), hiding, effect)
    return Conclusion(
        params=w @ (start + off - moved + faint.directions @ drawn),
        cov=cov,
        cov_privacy=carried(cov_privacy, faint.along(cov_privacy) * told),
        cov_sampling=carried(cov_sampling, faint.along(cov_sampling) * told),
        presumed=presumed,
        short=CLEAR * faint.noisiest(hidden),
        faint=faint.open_ends(known, drawn, variance, effects, hidden),
    )


def _variances(solution: Solution, inverse: Array, step: Array) -> tuple[Array, Array, Array]:
    """Of the score, and the parts of a step's covariance that are due to noise and sampling."""
    noise, meat = solution.noise * np.eye(step.size), solution.meat
    cov_privacy, cov_sampling = inverse @ noise @ inverse, inverse @ meat @ inverse
    known = meat + noise + solution.allowed
    squared = step**2 + np.diag(inverse @ known @ inverse)  # of the way from where it was asked
    return known + np.diag(solution.variances @ squared), cov_privacy, cov_sampling


def _widened(cov: Array, presumed: Array, effect: Array) -> tuple[Array, Array]:
    """Covariance, and the presumed part of it, of coefficients that are mostly presumed.

    Nothing is known of these, but what is presumed of each alone.
    """
    mostly = (2 * np.diag(presumed) > np.diag(cov)) & np.isfinite(effect)
    wider = np.diag(np.where(mostly, np.maximum(effect**2 - np.diag(cov), 0.0), 0.0))
    return cov + wider, presumed + wider
