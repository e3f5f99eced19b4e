"""Noisy gradient descent on a quadratic: what comes of it, direction by direction."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["after_steps", "not_gone", "project_to_ellipsoid", "symmetric_of"]

Array = NDArray[np.float64]


def project_to_ellipsoid(beta: Array, gram: Array, reach: float) -> Array:
    """`beta` scaled back to ``beta' gram beta <= reach``."""
    size = float(beta @ gram @ beta)
    return beta if size <= reach else beta * math.sqrt(reach / size)


def after_steps(pull: Array, noises: Sequence[float] | Array) -> tuple[Array, Array]:
    """Share of the way not gone and variance of the noise, along each eigenvector.

    `pull` (d,) is the share of the error that a step removes, `noises` (T,) the standard deviation
    of what each step adds.
    """
    keep = 1 - np.clip(pull, 0.0, 1.0)
    variance = np.zeros_like(keep)
    for s in noises:
        variance = keep**2 * variance + s**2
    return keep ** len(noises), variance


def symmetric_of(vectors: Array, values: Array) -> Array:
    """Symmetric matrix with these eigenvectors and eigenvalues."""
    matrix: Array = (vectors * values) @ vectors.T
    return matrix


def not_gone(vectors: Array, values: Array, left: Array, beta: Array, reach: float) -> Array:
    """Square of the part of the way that was not gone, (d, d), as far as `reach` permits it.

    `left` (d,) is the share of the way, along each eigenvector of the curvature, that is left; the
    whole way follows from what was gone, and has ``beta' gram beta <= reach``.
    """
    travelled = (vectors.T @ beta / np.maximum(1 - left, 1e-6)) ** 2
    return symmetric_of(vectors, left**2 * np.minimum(travelled, reach / values))
