"""A mixture of regressions in local coordinates: scores of rows, small moves, and its question."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dpstats.families.mixtures import RegressionMixture
from dpstats.queries import Geometry, MixtureScores

__all__ = ["Covariates", "RegressionLaw"]

Array = NDArray[np.float64]

_MOST_CHANGE = 0.5  # numerical: of the logarithm of sigma in one step


@dataclass(frozen=True, eq=False)
class Covariates:
    """Rows of the design that are made up: of a normal law, but for each column's own.

    Rows have the released means and covariance, up to what the change of their columns' laws does
    to correlations. A column of two values has these, and no cells.

    Attributes
    ----------
    whiten : ndarray of shape (d, d)
        From rows x to z.
    mean, root : ndarray of shape (d,) and (d, d)
        Of z: their mean, and a root of their covariance ``root @ root.T``.
    columns : ndarray of int of shape (p,)
        Columns of x of which cells were counted.
    edges : ndarray of shape (c + 1,)
        Of the cells, in standard deviations from the mean.
    shares : ndarray of shape (p, c)
        Of the rows in each.
    values : ndarray of shape (p, 2)
        The two that a column has; missing for others.
    """

    whiten: Array
    mean: Array
    root: Array
    columns: NDArray[np.intp]
    edges: Array
    shares: Array
    values: Array

    def of(self, normal: Array) -> Array:
        """Whitened rows made of standard normal numbers (m, d)."""
        from scipy.special import ndtr

        z = self.mean + normal @ self.root.T
        if not self.columns.size:
            return z
        back = np.linalg.inv(self.whiten)
        x = z @ back.T
        middles, sds = back @ self.mean, np.sqrt(((back @ self.root) ** 2).sum(axis=1))
        middle, width = (self.edges[1:] + self.edges[:-1]) / 2, self.edges[1] - self.edges[0]
        for column, share, (low, high) in zip(self.columns, self.shares, self.values, strict=True):
            below = ndtr((x[:, column] - middles[column]) / sds[column])
            if np.isfinite(low):
                chance = (middles[column] - low) / (high - low)
                x[:, column] = np.where(below < 1 - chance, low, high)
                continue
            mean = float(share @ middle)
            sd = np.sqrt(share @ (middle - mean) ** 2 + width**2 / 12)
            at = np.interp(below, np.append(0.0, np.cumsum(share)), self.edges)
            x[:, column] = middles[column] + sds[column] * (at - mean) / sd
        made: Array = x @ self.whiten.T
        return made


@dataclass(frozen=True, eq=False)
class RegressionLaw:
    """A mixture of regressions on rows with some moments, and coordinates around it.

    Coordinates are log odds of weights, then coefficients in units of sigma on the whitened columns
    ``z = whiten @ x``, then the logarithm of sigma. The mixture's own coefficients are on z.

    Attributes
    ----------
    mixture : RegressionMixture
    covariates : Covariates
        The rows that responses are made up for.
    """

    mixture: RegressionMixture
    covariates: Covariates

    @property
    def whiten(self) -> Array:
        """From the columns that queries read."""
        return self.covariates.whiten

    @property
    def d(self) -> int:
        """Number of columns."""
        return len(self.whiten)

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
        z = self.covariates.of(normal[:, :-1])
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

    def apart(self, one: Array, other: Array) -> Array:
        """Root mean squares, over rows, of differences of predictions, in units of sigma.

        Of coefficients (k, d) and (l, d) on z, shape (k, l).
        """
        steps = (one[:, None] - other) / self.mixture.sigma
        covariates = self.covariates
        along, around = steps @ covariates.mean, steps @ covariates.root
        made: Array = np.sqrt(along**2 + (around**2).sum(axis=2))
        return made

    def exchanged(self, constant: Array, told: float) -> list[Self]:
        """Laws in which two components change places where a column has the second of its values.

        Rows with one value of a dummy are a mixture, and so are those with the other; which of
        their components belong together other columns tell, or weights alone.

        Parameters
        ----------
        constant : ndarray of shape (d,)
            The coefficients c on z with ``c'z = 1``; zeros without an intercept.
        told : float
            Components whose predictions differ by so many sigma given the column, root mean square,
            are told apart by others. The rest is in the order of that.
        """
        covariates, coef = self.covariates, self.mixture.coef
        back = np.linalg.inv(self.whiten)
        middles = back @ covariates.mean
        found: list[tuple[float, Self]] = []
        for column, (low, high) in zip(covariates.columns, covariates.values, strict=True):
            if not np.isfinite(low):
                continue
            there = covariates.mean + self.whiten[:, column] * (high - middles[column])
            turn = (back[column] - low * constant) / (high - low)  # 0 at the first value, then 1
            along = back[column] @ covariates.root
            along = along / np.linalg.norm(along)
            for i, j in combinations(range(len(coef)), 2):
                moved, gap = coef.copy(), coef[j] - coef[i]
                moved[i] += float(gap @ there) * turn
                moved[j] -= float(gap @ there) * turn
                around = gap @ covariates.root
                others = np.linalg.norm(around - (around @ along) * along) / self.mixture.sigma
                law = replace(self, mixture=replace(self.mixture, coef=moved))
                found.append((float(others), law))
        alike = sorted((one for one in found if one[0] < told), key=lambda one: one[0])
        return [law for _, law in alike]

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
