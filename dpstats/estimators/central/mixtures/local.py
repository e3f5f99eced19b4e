"""A normal mixture in local coordinates: scores of rows, small moves, and what users read of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dpstats.families.mixtures import NormalMixture
from dpstats.queries.mixtures import CovarianceKind, MixtureMoments

__all__ = ["LocalMixture", "floored", "shaped"]

Array = NDArray[np.float64]

_LEAST, _MOST = 0.3, 3.0  # numerical: ratio of a covariance to that before one step


def shaped(covariances: Array, shape: CovarianceKind, weights: Array) -> Array:
    """Covariances (k, d, d) of a shape, nearest to some that need not have it."""
    d = covariances.shape[-1]
    if shape == "tied":
        pooled = np.tensordot(weights / weights.sum(), covariances, axes=1)
        return np.broadcast_to(pooled, covariances.shape).copy()
    diagonals = np.diagonal(covariances, axis1=1, axis2=2)
    if shape == "spherical":
        diagonals = np.repeat(diagonals.mean(axis=1, keepdims=True), d, axis=1)
    return covariances if shape == "full" else diagonals[:, :, None] * np.eye(d)


@dataclass(frozen=True, eq=False)
class LocalMixture:
    """A mixture, and coordinates around it: log odds of weights, then means, then covariances.

    With the root L of a covariance S, a step e moves the mean by L e and a step E (symmetric, of
    the shape of the covariances) moves S to L (I + E) L'. So all coordinates have the unit of one
    standard deviation. Of tied covariances there is one E.

    Attributes
    ----------
    mixture : NormalMixture
    shape : {"full", "tied", "diagonal", "spherical"}
    intercept : int
        Position of the constant in rows that queries read.
    units : ndarray of shape (d,)
        What one unit of their other columns is in the mixture.
    """

    mixture: NormalMixture
    shape: CovarianceKind
    intercept: int
    units: Array

    @property
    def size(self) -> int:
        """Number of free parameters."""
        blocks = 1 if self.shape == "tied" else self.mixture.k
        return self.mixture.k - 1 + self.mixture.means.size + blocks * len(self.directions)

    @property
    def uniforms(self) -> int:
        """One number for the component, and one for each dimension."""
        return self.mixture.d + 1

    @cached_property
    def directions(self) -> Array:
        """A basis E of the changes of one covariance, shape (b, d, d)."""
        d = self.mixture.d
        if self.shape == "spherical":
            return np.eye(d)[None]
        if self.shape == "diagonal":
            return np.eye(d)[:, :, None] * np.eye(d)
        i, j = np.triu_indices(d)
        basis = np.zeros((i.size, d, d))
        basis[np.arange(i.size), i, j] = basis[np.arange(i.size), j, i] = 1.0
        return basis

    def of_shape(self, shape: CovarianceKind) -> Self:
        """The nearest mixture of another shape."""
        covariances = shaped(self.mixture.covariances, shape, self.mixture.weights)
        return replace(self, mixture=replace(self.mixture, covariances=covariances), shape=shape)

    def rows(self, uniforms: Array) -> Array:
        """Rows with the constant, shape (m, d + 1)."""
        made = self.mixture.rows_of(uniforms) / self.units
        return np.insert(made, self.intercept, 1.0, axis=1)

    def scores(self, rows: Array) -> Array:
        """Derivatives of the log density of rows in every coordinate, shape (m, p)."""
        mixture, values = self.mixture, np.delete(rows, self.intercept, axis=1) * self.units
        shares, z = mixture.shares_and_residuals(values)
        if self.shape == "spherical":
            second = ((z**2).sum(axis=2, keepdims=True) - mixture.d) / 2
        elif self.shape == "diagonal":
            second = (z**2 - 1) / 2
        else:
            i, j = np.triu_indices(mixture.d)
            second = (z[..., i] * z[..., j] - (i == j)) * np.where(i == j, 0.5, 1.0)
        second = shares[..., None] * second
        if self.shape == "tied":
            second = second.sum(axis=1, keepdims=True)
        firsts = shares[..., None] * z
        m = len(rows)
        return np.hstack(
            [shares[:, 1:] - mixture.weights[1:], firsts.reshape(m, -1), second.reshape(m, -1)]
        )

    def departures(self, rows: Array) -> Array:
        """Derivatives of the log density where each component gets longer tails, shape (m, k).

        Such as those of a normal law whose covariance is itself random, to second order.
        """
        values, d = np.delete(rows, self.intercept, axis=1) * self.units, self.mixture.d
        shares, z = self.mixture.shares_and_residuals(values)
        squares = np.einsum("mkd,mkd->mk", z, z)
        bent: Array = shares * (squares**2 - 2 * (d + 2) * squares + d * (d + 2)) / 8
        return bent

    def _split(self, step: Array) -> tuple[Array, Array, Array]:
        """Log odds (k,), steps of means (k, d) and of covariances (k, b)."""
        k, d = self.mixture.k, self.mixture.d
        odds, means, rest = np.split(step, [k - 1, k - 1 + k * d])
        each = rest.reshape(-1, len(self.directions))
        return np.r_[0.0, odds], means.reshape(k, d), np.broadcast_to(each, (k, each.shape[1]))

    def moved(self, step: Array) -> Self:
        """The mixture a step away, held to positive definite covariances."""
        odds, means, changes = self._split(step)
        mixture = self.mixture
        weights = mixture.weights * np.exp(odds)
        inner = np.eye(mixture.d) + np.einsum("kb,bij->kij", changes, self.directions)
        covariances = mixture.roots @ _held(inner) @ np.swapaxes(mixture.roots, 1, 2)
        there = NormalMixture(
            weights / weights.sum(),
            mixture.means + np.einsum("kij,kj->ki", mixture.roots, means),
            covariances,
        )
        return replace(self, mixture=there)

    def jacobian(self) -> Array:
        """Derivatives of weights, means and standard deviations (k, 1 + 2 d) in the coordinates.

        Returns
        -------
        ndarray of shape (k, 1 + 2 d, p)
        """
        mixture = self.mixture
        k, d = mixture.k, mixture.d
        made = np.zeros((k, 1 + 2 * d, self.size))
        sds = np.sqrt(np.diagonal(mixture.covariances, axis1=1, axis2=2))
        for p, unit in enumerate(np.eye(self.size)):
            odds, means, changes = self._split(unit)
            made[:, 0, p] = mixture.weights * (odds - mixture.weights @ odds)
            made[:, 1 : 1 + d, p] = np.einsum("kij,kj->ki", mixture.roots, means)
            inner = np.einsum("kb,bij->kij", changes, self.directions)
            moved = mixture.roots @ inner @ np.swapaxes(mixture.roots, 1, 2)
            made[:, 1 + d :, p] = np.diagonal(moved, axis1=1, axis2=2) / (2 * sds)
        return made

    def question(self, radius: float) -> MixtureMoments:
        """The question of a step of the EM algorithm from here."""
        inverses, means = self.mixture.inverses, self.mixture.means
        constant = -np.einsum("kij,kj->ki", inverses, means)
        whiten = np.insert(inverses * self.units, self.intercept, constant, axis=2)
        width = whiten.shape[-1]
        return MixtureMoments(
            self.mixture.log_scales, whiten.reshape(-1, width), radius, self.shape
        )


def _held(inner: Array) -> Array:
    """Eigenvalues of changes (k, d, d) within limits."""
    values, vectors = np.linalg.eigh(inner)
    held: Array = (vectors * np.clip(values, _LEAST, _MOST)[:, None]) @ np.swapaxes(vectors, 1, 2)
    return held


def floored(matrices: Array, least: float) -> Array:
    """Symmetric matrices (k, d, d) with eigenvalues raised to at least `least` > 0."""
    values, vectors = np.linalg.eigh((matrices + np.swapaxes(matrices, 1, 2)) / 2)
    made: Array = (vectors * np.maximum(values, least)[:, None]) @ np.swapaxes(vectors, 1, 2)
    return made
