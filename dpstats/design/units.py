"""Between the user's units and internal ones, and how long an internal row can get."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpstats.design.blocks import TermColumns, starts
from dpstats.design.public import CASES

__all__ = [
    "Endog",
    "Offset",
    "Standardization",
    "internal",
    "near",
    "norm_bound_of",
    "rescaled",
    "standardize",
]

Float = NDArray[np.float64]

FAR = 1000.0  # scales from the centre, declared or found, at which values are cut


@dataclass(frozen=True, slots=True)
class Endog:
    """The response: its name, public bounds, and public guesses of its centre and spread."""

    name: str
    lower: float
    upper: float
    center: float
    scale: float

    @property
    def unscaled(self) -> bool:
        """Whether no scale was declared that is smaller than half the range."""
        return self.scale >= (self.upper / 2 - self.lower / 2) * (1 - 1e-9)

    def near(self) -> Endog:
        """With bounds that are cut at `FAR` scales from the centre."""
        guess, ends = np.array([[self.center, self.scale]]), np.array([[self.lower, self.upper]])
        lower, upper = near(guess, ends)[0].tolist()
        return replace(self, lower=lower, upper=upper)

    @property
    def guess(self) -> float | None:
        """The centre, if it or a scale was declared."""
        middle, width = self.lower / 2 + self.upper / 2, self.upper - self.lower
        known = not self.unscaled or abs(self.center - middle) > 1e-9 * width
        return self.center if known else None


@dataclass(frozen=True, slots=True)
class Offset:
    """A known term of the linear predictor: its name and public bounds, in the user's units."""

    name: str
    lower: float
    upper: float


@dataclass(frozen=True)
class Standardization:
    """Public change of units: ``x~ = (x - x_center) / x_scale``, the response likewise.

    Attributes
    ----------
    x_center, x_scale : ndarray of shape (d,)
        0 and 1 for the intercept.
    y_center, y_scale : float
        Of the response; 0 and 1 without one.
    intercept : int or None
        Position of the intercept.
    """

    x_center: Float
    x_scale: Float
    y_center: float
    y_scale: float
    intercept: int | None

    def transform(self) -> tuple[Float, Float]:
        """``(J, offset)``, with params in user units ``J @ internal + offset``.

        Returns
        -------
        J : ndarray of shape (d, d)
        offset : ndarray of shape (d,)
        """
        jacobian = np.diag(self.y_scale / self.x_scale)
        offset = np.zeros(len(self.x_scale))
        if self.intercept is not None:
            jacobian[self.intercept] -= self.y_scale * self.x_center / self.x_scale
            offset[self.intercept] = self.y_center
        return jacobian, offset

    def to_user(self, params: Float, cov: Float) -> tuple[Float, Float]:
        """Coefficients of shape (d,) and their covariance (d, d), in the user's units.

        The same as with the matrix of `transform`, in O(d^2): coefficients are multiplied by
        ``y_scale / x_scale``; the intercept then gives up what the centres of the other columns
        take, ``x_center @ coefficients``.
        """
        scale = self.y_scale / self.x_scale
        user, user_cov = scale * params, np.outer(scale, scale) * cov
        if self.intercept is not None:
            user[self.intercept] += self.y_center - self.x_center @ user
            _move(user_cov, self.intercept, -self.x_center)
        return user, user_cov

    def to_internal(self, params: Float, cov: Float) -> tuple[Float, Float]:
        """Inverse of `to_user`."""
        user, user_cov = params.copy(), cov.copy()
        if self.intercept is not None:
            user[self.intercept] += self.x_center @ params - self.y_center
            _move(user_cov, self.intercept, self.x_center)
        scale = self.x_scale / self.y_scale
        return scale * user, np.outer(scale, scale) * user_cov


def _move(cov: Float, at: int, by: Float) -> None:
    """Covariance, in place, after ``by @ coefficients`` is added to the one at `at`.

    Where the terms of its variance cancel, what is left is no less than their rounding.
    """
    terms = (
        np.abs(cov[at, at])
        + 2 * np.abs(by) @ np.abs(cov[at])
        + np.abs(by) @ np.abs(cov) @ np.abs(by)
    )
    row = cov[at] + by @ cov
    cov[at] = cov[:, at] = row
    cov[at, at] = max(row[at] + row @ by, np.finfo(float).eps * terms)


def near(known: Float, bounds: Float) -> Float:
    """Bounds of shape (d, 2) cut at `FAR` scales from the centre; not where these are NaN."""
    center, scale = known.T
    with np.errstate(over="ignore"):
        ends = np.stack([center - FAR * scale, center + FAR * scale], axis=1)
    ends[:, 0], ends[:, 1] = np.fmax(bounds[:, 0], ends[:, 0]), np.fmin(bounds[:, 1], ends[:, 1])
    return ends


def rescaled(
    plain: Standardization, found: Float, fixed: NDArray[np.bool_], moves: bool
) -> Standardization:
    """The change of units with found centres and scales, (d + 1, 2) with the response; or NaN.

    Of columns that are `fixed`, and not centred, the scale is the distance from 0. The response
    keeps its own units unless it `moves`.
    """
    center, scale = found[:-1].T
    known = np.isfinite(scale)
    y_center, y_scale = plain.y_center, plain.y_scale
    if moves and np.isfinite(found[-1, 1]):
        y_center, y_scale = map(float, found[-1])
        if plain.intercept is None:
            y_center, y_scale = 0.0, math.hypot(y_center, y_scale)
    return Standardization(
        x_center=np.where(known & ~fixed, center, plain.x_center),
        x_scale=np.where(known, np.where(fixed, np.hypot(center, scale), scale), plain.x_scale),
        y_center=y_center,
        y_scale=y_scale,
        intercept=plain.intercept,
    )


def internal(bounds: Float, center: Float, scale: Float) -> Float:
    """Bounds of shape (d, 2) in internal units, computed as rows are."""
    return (bounds - center[:, None]) / scale[:, None]


def standardize(
    blocks: Sequence[TermColumns],
    bounds: Float,
    response: Endog | None,
    centred: bool = True,
    moves: bool = True,
) -> Standardization:
    """Declared centres and scales, else midpoint and half-width.

    Without an intercept nothing is centred, since that would change the model, and scales count
    where the centre is 0; dummies and their products stay as they are, so that
    the zeros of a row remain zeros, and so do all columns unless `centred`. The response has its
    own units unless it `moves`.
    """
    center, scale = np.zeros(len(bounds)), np.abs(bounds).max(axis=1)
    first = starts(blocks)
    found = [j for j, block in zip(first, blocks, strict=True) if not block.factors]
    for j, block in zip(first, blocks, strict=True):
        here = slice(j, j + len(block.names))
        if not (centred and block.factors) or block.dummy:
            continue
        if not found:
            if block.guesses is not None:
                middle, spread = block.guesses.T
                scale[here] = np.where(middle == 0, spread, scale[here])
            continue
        lower, upper = bounds[here].T
        center[here], scale[here] = lower / 2 + upper / 2, upper / 2 - lower / 2
        if block.guesses is not None:
            center[here], scale[here] = block.guesses.T
    y_center, y_scale = 0.0, 1.0
    if response is not None and moves:
        y_center = response.center if found else 0.0
        y_scale = response.scale
        if not found and response.center != 0:
            y_scale = max(abs(response.lower), abs(response.upper))
    return Standardization(center, scale, y_center, y_scale, found[0] if found else None)


def norm_bound_of(
    blocks: Sequence[TermColumns], bounds: Float, standardization: Standardization
) -> float:
    """Largest norm of an internal row: over combinations of levels within each term."""
    center, scale = standardization.x_center, standardization.x_scale
    reach = np.square(np.abs(internal(bounds, center, scale)).max(axis=1))
    total = float(reach.sum())
    for j, block in zip(starts(blocks), blocks, strict=True):
        here = slice(j, j + len(block.names))
        count = math.prod(len(f.coding) for f in block.factors if f.coding is not None)
        if any(f.coding is not None for f in block.factors) and count <= CASES:
            largest = max(
                float(
                    np.square(np.abs(internal(case, center[here], scale[here])).max(axis=1)).sum()
                )
                for case in block.cases
            )
            total += largest - float(reach[here].sum())
    return math.sqrt(total)
