"""Directions that noise hides: what is reported of a coefficient nothing is known about."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["draw_in", "rare_levels"]

Array = NDArray[np.float64]


def rare_levels(effects: Array, indicators: Array) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Indicator columns that hidden directions belong to, and which directions are left.

    `effects` (d, r) holds the coefficients that each hidden direction changes. A direction belongs
    to indicators if they make up nine tenths of it.
    """
    own = effects * indicators[:, None]
    size = np.linalg.norm(effects, axis=0)
    belongs = np.linalg.norm(own, axis=0) >= 0.9 * size
    columns = (np.abs(own) >= 0.3 * size) & belongs
    return np.flatnonzero(columns.any(axis=1)), ~belongs


def draw_in(value: Array, cov: Array, directions: Array, prior: Array) -> tuple[Array, Array]:
    """Directions that noise hides, drawn to their posterior means under N(0, prior).

    Each stays within one prior standard deviation, and the prior variance is added to its own.
    """
    full = cov.copy()
    for u, variance in zip(directions.T, prior, strict=True):
        at = float(u @ value)
        drawn = at * variance / (variance + float(u @ cov @ u))
        value = value + u * (np.clip(drawn, -math.sqrt(variance), math.sqrt(variance)) - at)
        full += variance * np.outer(u, u)
    return value, full
