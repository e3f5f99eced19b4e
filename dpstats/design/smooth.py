"""Polynomial and spline bases, fixed on a public grid over the declared range of their argument."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstats.design.operations import Expression

__all__ = ["BASES", "smooth"]

Float = NDArray[np.float64]

BASES = ("poly", "bs", "cr", "cs", "cc")
_GRID = 1001  # public points on which knots and coefficients are fixed
_CHEBYSHEV = 128  # points per polynomial piece on which extremes are searched


def smooth(name: str, part: Expression, args: list[Any], options: dict[str, Any]) -> Expression:
    """Formulaic's basis `name` as if its argument were spread evenly over the declared range.

    Raises
    ------
    Exception
        Whatever formulaic raises for options that do not fit; about public values only.
    """
    from formulaic.transforms import TRANSFORMS

    transform = TRANSFORMS[name]
    lower, upper = part.interval
    state: dict[str, Any] = {}
    fixed = transform(np.linspace(lower, upper, _GRID), *args, **options, _state=state)

    def basis(x: Float) -> Float:
        return _as_matrix(transform(x, *args, **options, _state=copy.deepcopy(state)))

    def evaluate(rows: Mapping[str, Float]) -> Float:
        x = part.evaluate(rows)
        values = basis(np.clip(x, lower, upper))
        values[np.isnan(x)] = np.nan
        return values

    pieces = np.unique([lower, *np.clip(state.get("knots", []), lower, upper), upper])
    degree = args[0] if name == "poly" and args else options.get("degree", 3)
    spans = bool(fixed.__formulaic_metadata__.spans_intercept) if name != "poly" else False
    bounds = _extremes(basis, pieces, int(degree))
    return Expression(part.columns, bounds, evaluate, wide=True, spans_intercept=spans)


def _as_matrix(values: Any) -> Float:
    """Values of a formulaic transform as an array of shape (m, k)."""
    values = getattr(values, "__wrapped__", values)
    if isinstance(values, Mapping):
        return np.column_stack(list(values.values())).astype(np.float64)
    return np.array(values, dtype=np.float64)


def _extremes(basis: Callable[[Float], Float], pieces: Float, degree: int) -> Float:
    """Bounds of piecewise polynomials of one variable, shape (k, 2).

    On N + 1 Chebyshev points a polynomial of degree k < N/2 reaches at least cos(pi k / 2N) of its
    largest absolute value (Ehlich & Zeller 1964), so the range seen on them, widened by that
    factor about its middle, holds the range everywhere.
    """
    angles = np.cos(np.linspace(np.pi, 0, _CHEBYSHEV + 1))
    margin = 1 / np.cos(np.pi * min(degree, _CHEBYSHEV // 2) / (2 * _CHEBYSHEV))
    lower, upper = [], []
    for a, b in itertools.pairwise(pieces):
        seen = basis(np.clip((a + b) / 2 + (b - a) / 2 * angles, pieces[0], pieces[-1]))
        middle = (seen.max(axis=0) + seen.min(axis=0)) / 2
        reach = (seen.max(axis=0) - seen.min(axis=0)) / 2 * margin
        lower.append(middle - reach)
        upper.append(middle + reach)
    return np.stack([np.min(lower, axis=0), np.max(upper, axis=0)], axis=1)
