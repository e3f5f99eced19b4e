"""Directions whose curvature noise hides: what the score still says of coefficients along them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Hidden", "Settled"]

Array = NDArray[np.float64]

_POINTS = 128  # of the grid of curvatures
_LEVELS, _PART = 0.95, 0.3  # of a direction's length: what indicators make up, and each of them


@dataclass(frozen=True, eq=False)
class Settled:
    """Coefficients after what is known of hidden directions was put in.

    Attributes
    ----------
    b : ndarray of shape (d,)
        Coefficients, in the coordinates of the step.
    shift : ndarray of shape (d,)
        What is to be added to ``w @ b``: levels of a factor that the noise hides change in their
        own coefficients alone.
    unknown : ndarray of shape (d, d)
        What is to be added to the covariance of ``w @ b``.
    """

    b: Array
    shift: Array
    unknown: Array


@dataclass(frozen=True, eq=False)
class Hidden:
    """Orthonormal directions u that noise hides, and what is known of the curvature along them.

    The score says ``z = c (b - at) + N(0, noise)`` of the coefficient b along u, with a curvature
    c > 0 that is itself known as ``N(seen, doubt^2)`` only; a Newton step with ``used`` in its
    place is ``z / used``. The posterior of b integrates c out under b ~ N(0, prior): where nothing
    is seen of c the prior is all that is known of b, and the clearer c is the more the step is
    believed.

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

    def settle(
        self,
        b: Array,
        cov: Array,
        score: tuple[Array, Array, Array],
        w: Array,
        priors: tuple[float, float],
        indicators: Array,
    ) -> Settled:
        """Put the posterior means in; variances grow to the posterior ones.

        Parameters
        ----------
        b, cov : ndarray of shape (d,), (d, d)
            The estimate and its covariance.
        score : tuple of ndarray of shape (d,), (d,), (d, d)
            Where the score was asked, the step from there, and the covariance of the score.
        w : ndarray of shape (d, d)
            The change of coordinates: ``w @ b`` are the design's coefficients.
        priors : tuple of float
            Variance of what an effect adds to the score's linear predictor, over the curvature
            along it; and of the coefficient of a level, in the design's coordinates.
        indicators : ndarray of shape (d,)
            1 for columns that take 0 and 1 only, else 0.
        """
        u, (fitted, level) = self.directions, priors
        effects, rare = self._effects(w, indicators)
        prior = fitted / self.used
        most = np.sqrt(prior)
        at, step, noise = score
        mean, variance = self.posterior(
            at @ u,
            step @ u,
            self._along(noise),
            np.where(rare, level / np.linalg.norm(effects, axis=0) ** 2, prior),
        )
        before = b @ u
        moved = mean - np.clip(before, -most, most)
        extra = np.maximum(0.0, variance - self._along(cov))
        return Settled(
            b=b + u @ (mean - before),
            shift=(effects - w @ u) @ moved,
            unknown=(effects * extra) @ effects.T,
        )

    def posterior(self, at: Array, step: Array, noise: Array, prior: Array) -> tuple[Array, Array]:
        """Mean and variance of the coefficients along the directions; every array has shape (r,).

        `at` and `step` are where the score was asked and the step from there, `noise` the variance
        of the score, `prior` that of the coefficients.
        """
        share = np.linspace(0.0, 1.0, _POINTS + 1)[1:, None]
        curvature = share * (np.maximum(self.seen, 0.0) + 4 * self.doubt)
        # z + c at = c b + N(0, noise): its law for each curvature c, and that of b given both.
        known = self.used * step + curvature * at
        variance = curvature**2 * prior + noise
        log = (curvature - self.seen) ** 2 / self.doubt**2 + known**2 / variance + np.log(variance)
        weight = np.exp((log.min(axis=0) - log) / 2)
        weight /= weight.sum(axis=0)
        means = curvature * prior * known / variance
        mean = (weight * means).sum(axis=0)
        spread = (weight * (prior * noise / variance + (means - mean) ** 2)).sum(axis=0)
        return mean, spread

    def _along(self, cov: Array) -> Array:
        variances: Array = np.einsum("ir,ij,jr->r", self.directions, cov, self.directions)
        return variances

    def _effects(self, w: Array, indicators: Array) -> tuple[Array, NDArray[np.bool_]]:
        """What each direction changes of coefficients ``w @ b``, (d, r), and which are of levels.

        A direction made up of indicators of levels almost alone is that of rare levels, and of no
        other column: the rest of it is noise.
        """
        effects = w @ self.directions
        size = np.linalg.norm(effects, axis=0)
        own = effects * indicators[:, None]
        rare = np.linalg.norm(own, axis=0) >= _LEVELS * size
        return np.where(rare, np.where(np.abs(own) >= _PART * size, own, 0.0), effects), rare
