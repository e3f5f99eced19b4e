"""Directions whose curvature noise hides: what the score still says of coefficients along them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.central.newton.conclusion import Conclusion
from dpstats.estimators.central.newton.identification import CLEAR, NOTHING

__all__ = ["Hidden", "drawn_in"]

Array = NDArray[np.float64]

_POINTS = 128  # of the grid of curvatures
_NOTHING = 1 / 3  # chance that a direction not identified has no curvature at all
_RANGE = 7.5  # largest curvature of a direction not identified, in standard deviations of noise
_LEVELS, _PART = 0.95, 0.3  # of a direction's length: what indicators make up, and each of them


@dataclass(frozen=True, eq=False)
class Hidden:
    """Orthonormal directions u that noise hides, and what is known of the curvature along them.

    The score says ``z = c (b - at) + N(0, noise)`` of the coefficient b along u, with a curvature
    c >= 0 that is itself known as ``N(seen, doubt^2)`` only; a Newton step with ``used`` in its
    place is ``z / used``. The posterior of b integrates c out under b ~ N(0, prior), where c is
    nothing with chance 1/3, as in directions in which the columns hardly vary, or else may be
    anything up to 7.5 `doubt`. Where nothing is seen of c the prior is all that is known of b, and
    the clearer c is the more the step is believed.

    Attributes
    ----------
    directions : ndarray of shape (d, r)
        The directions, in the coordinates of the step.
    seen, used : ndarray of shape (r,)
        Curvature along them as released, and as the step used it.
    doubt : float
        Standard deviation of `seen`.
    """

    directions: Array
    seen: Array
    used: Array
    doubt: float

    def effects(self, w: Array, indicators: Array) -> tuple[Array, NDArray[np.bool_]]:
        """What each direction changes of coefficients ``w @ b``, (d, r), and which are of levels.

        A direction made up of `indicators` (1 for columns that take 0 and 1 only) almost alone is
        that of rare levels, and of no other column: the rest of it is noise.
        """
        effects = w @ self.directions
        size = np.linalg.norm(effects, axis=0)
        own = effects * indicators[:, None]
        large = np.where(np.abs(own) >= _PART * size, own, 0.0)
        rare = (np.linalg.norm(own, axis=0) >= _LEVELS * size) & large.any(axis=0)
        return np.where(rare, large, effects), rare

    def settle(
        self, b: Array, cov: Array, score: tuple[Array, Array, Array], prior: Array
    ) -> tuple[Array, Array]:
        """Coefficients drawn towards no effect, and variances to add along the directions.

        A draw towards zero, by the prior's weight and within its standard deviation, is safer than
        the posterior mean, which goes further where the curvature may be small. What is added makes
        the variance along a direction the posterior mean square about the coefficient reported.

        Parameters
        ----------
        b, cov : ndarray of shape (d,), (d, d)
            The estimate and its covariance.
        score : tuple of ndarray of shape (d,), (d,), (d, d)
            Where the score was asked, the step from there, and the covariance of the score.
        prior : ndarray of shape (r,)
            Variance of the coefficients along the directions.
        """
        at, step, noise = score
        mean, variance = self.posterior(
            at @ self.directions, step @ self.directions, self._along(noise), prior
        )
        now, own = b @ self.directions, self._along(cov)
        most = np.sqrt(prior)
        drawn = np.clip(now * prior / (prior + own), -most, most)
        added = np.maximum(0.0, variance + (mean - drawn) ** 2 - own)
        return b + self.directions @ (drawn - now), added

    def concluded(
        self,
        beta: Array,
        covs: tuple[Array, Array, Array],
        effects: Array,
        along: Array,
        own: Array,
    ) -> Conclusion:
        """Coefficients and their covariance, with what is presumed of directions not identified.

        These are the directions whose curvature may be nothing, by 1.96 standard deviations of its
        noise: there the score bounds no coefficient (Fieller 1954), and all that is known is the
        prior.

        Parameters
        ----------
        beta : ndarray of shape (d,)
        covs : three ndarrays of shape (d, d)
            Its covariance without what is added along the directions, and the parts of that which
            are due to noise and to sampling.
        effects, along : ndarray of shape (d, r), (r,)
            What the directions change of coefficients, and the variances added along them.
        own : ndarray of shape (d, d)
            The covariance along them before, in their coordinates.
        """
        cov, cov_privacy, cov_sampling = covs
        hidden = self.seen < NOTHING * self.doubt
        ratio = self.doubt / np.maximum(self.seen, self.doubt)
        return Conclusion(
            params=beta,
            cov=cov + (effects * along) @ effects.T,
            cov_privacy=cov_privacy,
            cov_sampling=cov_sampling,
            presumed=(effects * ((along + self._along(own)) * hidden)) @ effects.T,
            short=CLEAR * float(np.max(ratio[hidden], initial=0.0)),
        )

    def posterior(self, at: Array, step: Array, noise: Array, prior: Array) -> tuple[Array, Array]:
        """Mean and variance of the coefficients along the directions; every array has shape (r,).

        `at` and `step` are where the score was asked and the step from there, `noise` the variance
        of the score, `prior` that of the coefficients.
        """
        low = np.maximum(self.seen - 4 * self.doubt, 0.0)
        high = np.maximum(self.seen, 0.0) + 4 * self.doubt
        middles = (np.arange(_POINTS)[:, None] + 0.5) / _POINTS
        curvature = np.vstack([np.zeros_like(at), low + middles * (high - low)])
        mass = np.full(curvature.shape, (high - low) / _POINTS / (_RANGE * self.doubt))
        mass[0] = _NOTHING / (1 - _NOTHING)
        # z + c at = c b + N(0, noise): its law for each curvature c, and that of b given both.
        known = self.used * step + curvature * at
        variance = curvature**2 * prior + noise
        log = (curvature - self.seen) ** 2 / self.doubt**2 + known**2 / variance + np.log(variance)
        weight = mass * np.exp((log.min(axis=0) - log) / 2)
        weight /= weight.sum(axis=0)
        means = curvature * prior * known / variance
        mean = (weight * means).sum(axis=0)
        spread = (weight * (prior * noise / variance + (means - mean) ** 2)).sum(axis=0)
        return mean, spread

    def _along(self, cov: Array) -> Array:
        variances: Array = np.einsum("ir,ij,jr->r", self.directions, cov, self.directions)
        return variances


def drawn_in(beta: Array, cov: Array, levels: NDArray[np.intp], sd: float) -> Array:
    """Coefficients with those of hidden `levels` drawn towards zero under N(0, sd^2)."""
    moved = beta.copy()
    moved[levels] *= sd**2 / (sd**2 + np.diag(cov)[levels])
    moved[levels] = np.clip(moved[levels], -sd, sd)
    return moved
