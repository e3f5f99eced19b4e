"""A mixture of regressions in local coordinates: scores of rows, small moves, and its question."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dpstats.families.mixtures import RegressionMixture
from dpstats.queries import Geometry, MixtureScores

__all__ = ["RegressionLaw"]

Array = NDArray[np.float64]

_MOST_CHANGE = 0.5  # numerical: of the logarithm of sigma in one step


@dataclass(frozen=True, eq=False)
class RegressionLaw:
    """A mixture of regressions on rows with some moments, and coordinates around it.

    Coordinates are log odds of weights, then coefficients in units of sigma on the whitened columns
    ``z = whiten @ x``, then the logarithm of sigma. The mixture's own coefficients are on z.

    Attributes
    ----------
    mixture : RegressionMixture
    whiten : ndarray of shape (d, d)
        From the columns that queries read.
    mean, root : ndarray of shape (d,) and (d, d)
        Of z: made-up rows are normal with this mean and the covariance ``root @ root.T``.
    """

    mixture: RegressionMixture
    whiten: Array
    mean: Array
    root: Array

    @property
    def d(self) -> int:
        """Number of columns."""
        return int(self.mean.size)

    @property
    def size(self) -> int:
        """Number of free parameters."""
        return self.mixture.k - 1 + self.mixture.coef.size + 1

    @property
    def uniforms(self) -> int:
        """One number for the component, one for each column, and one for the error."""
        return self.d + 2

    def rows(self, uniforms: Array) -> Array:
        """Whitened rows and their responses, shape (m, d + 1)."""
        from scipy.special import ndtri

        mixture = self.mixture
        chosen = np.searchsorted(np.cumsum(mixture.weights)[:-1], uniforms[:, 0])
        normal = ndtri(uniforms[:, 1:])
        z = self.mean + normal[:, :-1] @ self.root.T
        means = np.einsum("md,md->m", z, mixture.coef[chosen])
        return np.column_stack([z, means + mixture.sigma * normal[:, -1]])

    def scores(self, rows: Array) -> Array:
        """Derivatives of the log density of responses in every coordinate, shape (m, p)."""
        mixture, z = self.mixture, rows[:, :-1]
        shares, u = mixture.responsibilities(rows), mixture.residuals(rows)
        slopes = (shares * u)[:, :, None] * z[:, None]
        spread = (shares * (u**2 - 1)).sum(axis=1, keepdims=True)
        firsts = shares[:, 1:] - mixture.weights[1:]
        return np.hstack([firsts, slopes.reshape(len(rows), -1), spread])

    def departures(self, rows: Array) -> Array:
        """Derivatives where the law may be wrong, shape (m, 2 k).

        Each component with a variance of its own, and with longer tails.
        """
        shares, u = self.mixture.responsibilities(rows), self.mixture.residuals(rows)
        return np.hstack([shares * (u**2 - 1), shares * (u**4 - 6 * u**2 + 3)])

    def moved(self, step: Array) -> Self:
        """The law a step away."""
        k, mixture = self.mixture.k, self.mixture
        odds = np.r_[0.0, step[: k - 1]]
        weights = mixture.weights * np.exp(odds)
        coef = mixture.coef + mixture.sigma * step[k - 1 : -1].reshape(k, -1)
        change = float(np.clip(step[-1], -_MOST_CHANGE, _MOST_CHANGE))
        there = RegressionMixture(weights / weights.sum(), coef, mixture.sigma * np.exp(change))
        return replace(self, mixture=there)

    def jacobian(self) -> Array:
        """Derivatives of weights and coefficients (k (1 + d)) and of sigma in the coordinates.

        Coefficients are on whitened columns.

        Returns
        -------
        ndarray of shape (k (1 + d) + 1, p)
        """
        mixture, k, d = self.mixture, self.mixture.k, self.d
        made = np.zeros((k, 1 + d, self.size))
        odds = np.diag(mixture.weights) - np.outer(mixture.weights, mixture.weights)
        made[:, 0, : k - 1] = odds[:, 1:]
        for j in range(k):
            at = k - 1 + j * d
            made[j, 1:, at : at + d] = mixture.sigma * np.eye(d)
        last = mixture.sigma * (np.arange(self.size) == self.size - 1)
        return np.vstack([made.reshape(-1, self.size), last])

    def question(self, radius: float, clip: float) -> MixtureScores:
        """The question of a step of the EM algorithm from here, to rows of the design."""
        mixture = self.mixture
        return MixtureScores(
            Geometry(radius, self.whiten),
            np.log(mixture.weights),
            mixture.coef @ self.whiten,
            mixture.sigma,
            clip,
        )

    def of_whitened(self, query: MixtureScores) -> MixtureScores:
        """The same question to rows that are whitened, such as this law's."""
        return replace(query, geometry=Geometry(query.geometry.radius), coef=self.mixture.coef)
