"""Noisy gradient descent on a quadratic: its step size, and what comes of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["REACH", "after_steps", "along", "step_size", "within"]

Array = NDArray[np.float64]

REACH = 1.2  # step size times the largest eigenvalue; below 2, with room for noise on it


def step_size(values: Array, noise: float, contraction: float) -> float:
    """Step size from the increasing eigenvalues of the mean Gram matrix and the noise on it.

    Stable: rate lambda < 2 for the largest true eigenvalue unless noise of operator norm about
    noise sqrt(2 d) hides more than half of it.
    """
    top = float(values[-1]) + noise * math.sqrt(len(values) / 2)
    return min((1 - contraction) / float(values[0]), REACH / top)


def within(beta: Array, gram: Array, reach: float) -> Array:
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


def along(vectors: Array, values: Array) -> Array:
    """Symmetric matrix with these eigenvectors and eigenvalues."""
    matrix: Array = (vectors * values) @ vectors.T
    return matrix
