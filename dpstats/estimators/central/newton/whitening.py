"""Public coordinates in which private rows are about round, from two noisy Gram matrices.

The first Gram matrix is taken in the design's own coordinates. In coordinates whitened by it the
rows have norm about sqrt(d) whatever the conditioning of the design, and noise is small in every
direction; a second Gram matrix there resolves what the first could not. All constants are public
and enter after the noise: they cost accuracy where they are wrong, never privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.base import floor_eigenvalues
from dpstats.estimators.central.newton.curvature import FLOOR, shape_doubt, shown_doubt
from dpstats.estimators.central.newton.far_rows import SLOTS, far_rows
from dpstats.estimators.numerics.entrywise import average, carried, operator_norm, symmetric_pattern
from dpstats.protocol import Holder
from dpstats.queries import Geometry, Gram, NormQuantile, Query

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = [
    "FAR_ROW",
    "MOST",
    "REACHED",
    "Metric",
    "contrasts",
    "coordinates",
    "indicator_ridge",
    "indicators",
    "whiten",
]

Array = NDArray[np.float64]

MOST = 0.6  # share: of rows, or of scores, within a length that tells how long they are
REACHED = 0.995  # share: of rows that are counted in full where few are far out
FAR_ROW = 4.0  # ratio: of what is far to what is typical: of rows, and of responses
_NORM_CELLS = 32  # numerical: cells of its search, over eight octaves below the largest norm
# share: second moment of a direction of which the second whitening makes 1, at least; times 1 / d
# the ridge on 0/1 columns, for rows of rare levels would be far out else
_LEAST_MOMENT = 0.3
_IGNORE = 1e4  # numerical: factor on variances of directions that the first matrix does not resolve


@dataclass(frozen=True, eq=False)
class Metric:
    """Whitened coordinates z = w' x and the curvature of least squares in them.

    Attributes
    ----------
    w : ndarray of shape (d, d)
        Public change of coordinates; coefficients on x are ``w @ b`` for coefficients b on z.
    curvature : ndarray of shape (d, d)
        Second moments of z per row, rows weighted to norm sqrt(d); about the identity.
    inverse : ndarray of shape (d, d)
        Inverse of `curvature`.
    variances : ndarray of shape (d, d)
        Entry variances of n times `curvature`.
    radius : float
        Length of z that rows were shortened to.
    far : float, default 0
        How far out rows lie along a direction that was drawn in (`far_rows`), over what is not far.
    far_row : ndarray of shape (d,)
        Such a row, in the design's own coordinates; None without any.
    """

    w: Array
    curvature: Array
    inverse: Array
    variances: Array
    radius: float
    far: float = 0.0
    far_row: Array | None = None

    @property
    def far_direction(self) -> Array | None:
        """Along which rows lie that were drawn in, of length 1; None without any."""
        if self.far_row is None:
            return None
        along: Array = self.w.T @ self.far_row
        return along / np.linalg.norm(along)

    def moments(self, constant: Array) -> tuple[Array, Array, float]:
        """Mean and covariance of rows, and their weight, where ``constant @ z`` is 1."""
        total = self.curvature @ constant
        weight = float(constant @ total) or 1.0
        centre = total / weight
        return (
            centre,
            floor_eigenvalues(self.curvature / weight - np.outer(centre, centre), 0),
            weight,
        )


def indicators(design: Design) -> Array:
    """1 for columns that take 0 and 1 only and are no intercept; public."""
    low, high = np.asarray(design.internal_bounds, dtype=np.float64).T
    marks: Array = ((low == 0) & (high == 1)).astype(np.float64)
    return marks


def indicator_ridge(marks: Array, start: Array | None) -> Array:
    """Ridge (d, d) on second moments of a row, by which whitened rows of rare levels stay short.

    It is on columns of 0 and 1, of a factor on its `contrasts`.
    """
    ridge = np.diag(_LEAST_MOMENT / marks.size * marks)
    if start is None:
        return ridge
    back = np.linalg.inv(start)
    turned: Array = back.T @ ridge @ back
    return turned


def contrasts(design: Design) -> Array | None:
    """Public coordinates ``t' x`` in which all levels of a factor are alike: t, of shape (d, d).

    None where these are the columns themselves: without an intercept, and of two levels.

    Beside an intercept, K levels are K - 1 columns of 0 and 1. A row of the first one has the
    coordinate 1 along ``(1, -1, ..., -1)``, whose length is sqrt(K): of its n_1 rows a Gram matrix
    in these columns shows n_1 / K, of another level's all. Orthonormal contrasts of the indicators
    of all K levels (Helmert's) show as much of each, and rows are shorter in them.
    """
    marks, terms = indicators(design) > 0, np.array(design.terms)
    found = [np.flatnonzero((terms == term) & marks) for term in dict.fromkeys(terms[marks])]
    factors = [columns for columns in found if columns.size > 1]
    place = design.standardization.intercept
    if place is None or not factors:
        return None
    from scipy.linalg import helmert

    t = np.eye(terms.size)
    for columns in factors:
        first, *others = helmert(columns.size + 1).T  # contrasts of each level
        t[place, columns] = first
        t[np.ix_(columns, columns)] = np.array(others) - first
    return t


def coordinates(
    holder: Holder[Query], design: Design, n: float, reach: tuple[float, float] | None = None
) -> tuple[Metric, Array]:
    """`whiten` for a design, and the whitened coefficients of a constant predictor 1.

    These are 0 without an intercept. Then most rows may be all 0, whose length tells nothing of how
    long others are.
    """
    d, place = len(design.names), design.standardization.intercept
    most = MOST if place is not None or reach is None else reach[0]
    start = contrasts(design)
    metric = whiten(holder, n, indicators(design), design.norm_bound, reach, start, most)
    if place is None:
        return metric, np.zeros(d)
    return metric, np.asarray(np.linalg.solve(metric.w, np.eye(d)[place]), dtype=np.float64)


def whiten(
    holder: Holder[Query],
    n: float,
    indicators: Array,
    longest: float,
    reach: tuple[float, float] | None = None,
    start: Array | None = None,
    most: float = MOST,
) -> Metric:
    """Ask for both Gram matrices (slots ``norm``, ``gram`` and ``whitened gram``).

    Where the plan has the questions of `far_rows`, too, rows far out along one direction are drawn
    in before the second.

    Parameters
    ----------
    holder : Holder
        The holder and its plan.
    n : float
        Released number of rows.
    indicators : ndarray of shape (d,)
        1 for columns that take the values 0 and 1 only (public), else 0.
    longest : float
        Public bound of the norm of a row.
    reach : tuple of float, optional
        Share of rows that the second matrix should not shorten, asked for in slot ``reach``, and
        its largest radius over the typical length sqrt(d). Without it rows are shortened to that.
    start : ndarray of shape (d, d), optional
        Public coordinates ``start' x`` of the first matrix (`contrasts`); by default those of x.
    most : float
        Share of rows that the first matrix should not shorten.
    """
    from scipy.special import chdtri

    typical = math.sqrt(indicators.size)
    ridge = n * indicator_ridge(indicators, start)
    norm = NormQuantile(
        min(longest, FAR_ROW * typical) * np.geomspace(2.0**-8, 1.0, _NORM_CELLS + 1),
        most,
        None if start is None else start.T,
    )
    first = _first(holder, n, ridge, norm, start)
    if reach is None:
        return _second(holder, n, ridge, first, typical)
    reached, farthest = reach
    grid = typical * np.geomspace(1.0, float(np.clip(farthest, 1.05, FAR_ROW)), 17)
    query = NormQuantile(grid, reached, first.w.T)
    told = 1 - 2 * holder.plan.noise(query, "reach").sd / n  # the largest share that noise can tell
    query = NormQuantile(grid, min(reached, max(0.5, told)), first.w.T)
    (radius,), _ = holder.ask(query, "reach")
    if not holder.plan.asks(SLOTS[0]):
        return _second(holder, n, ridge, first, float(radius))
    far = far_rows(holder, first.w, FAR_ROW, n)
    if not far.ratio:
        return _second(holder, n, ridge, first, float(radius))
    row = np.asarray(np.linalg.solve(first.w.T, far.row), dtype=np.float64)
    nearer = min(float(radius), math.sqrt(float(chdtri(indicators.size, 1 - REACHED))))
    metric = _second(holder, n, ridge, first.turned(far.draws), nearer)
    return replace(metric, far=far.ratio, far_row=row)


@dataclass(frozen=True, eq=False)
class _First:
    """The first whitening: z = w' x, the moments it expects, and what the noise left unknown."""

    w: Array  # = start @ basis @ change
    change: Array
    expected: Array
    variances: Array  # of the Gram matrix, in its eigenbasis
    unresolved: NDArray[np.bool_]

    def turned(self, draws: Array) -> _First:
        """In other coordinates, symmetric ones of these."""
        return replace(
            self,
            w=self.w @ draws,
            change=self.change @ draws,
            expected=draws @ self.expected @ draws,
        )


def _first(
    holder: Holder[Query], n: float, ridge: Array, norm: NormQuantile, start: Array | None
) -> _First:
    d, to = len(ridge), None if start is None else start.T
    (radius,), _ = holder.ask(norm, "norm")
    gram, (_, scale) = holder.ask(Gram(Geometry(float(radius), to)), "gram")

    mean = max(float(np.trace(gram)) / d, scale / math.sqrt(d))
    excess = gram - mean * np.eye(d)
    variances = scale**2 * symmetric_pattern(d)
    keep = _kept(excess, variances)
    values, basis = np.linalg.eigh(mean * np.eye(d) + keep * excess)
    variances = carried(keep * variances, basis)
    noise = operator_norm(variances)
    floored = np.maximum(values, max(FLOOR * noise, 1e-9 * mean))

    turned = basis if start is None else start @ basis
    change = math.sqrt(n) * _power(np.diag(floored) + turned.T @ ridge @ turned, -0.5)
    return _First(
        w=turned @ change,
        change=change,
        expected=(change.T * floored) @ change / n,
        variances=variances,
        unresolved=values < noise,
    )


def _kept(excess: Array, variances: Array) -> Array:
    """Share of each entry that is kept, of its distance from a multiple of the identity.

    Linear shrinkage with a known noise level (Ledoit & Wolf 2004), of the diagonal by itself: units
    that are off by a factor are seen long before correlations are.
    """
    d = len(excess)
    keep, diagonal = np.empty_like(excess), np.eye(d, dtype=bool)
    for part, free in ((diagonal, 1 - 1 / d), (~diagonal, 1.0)):  # the mean is of the diagonal
        squared = max(float((excess[part] ** 2).sum()), 1e-300)
        keep[part] = 1 - min(1.0, free * float(variances[part].sum()) / squared)
    return keep


def _second(holder: Holder[Query], n: float, ridge: Array, first: _First, radius: float) -> Metric:
    d = len(ridge)
    pattern = symmetric_pattern(d)
    query = Gram(Geometry(radius, first.w.T))
    gram, (_, scale) = holder.ask(query, "whitened gram")
    own = scale**2 * pattern
    level = max(float(np.trace(gram) / np.trace(first.expected)), scale / math.sqrt(d))
    expected = level * first.expected

    # The curvature: both matrices, the first with the discrepancy that the second shows.
    prior = (level / n) ** 2 * carried(first.variances, first.change)
    prior += shape_doubt(level, d) * pattern
    prior *= min(1.0, shown_doubt(gram - expected, own) / prior.sum())
    moments, left = average(gram, own, expected, prior)

    # The scale of each direction: the second alone where the first resolved nothing.
    blind = np.where(first.unresolved[:, None] | first.unresolved, _IGNORE, 1.0)
    doubt = (level / n) ** 2 * carried(blind * first.variances, first.change) + 1e-12 * level**2
    spread, doubt = average(gram, own, expected, doubt)
    spread += level / n * first.w.T @ ridge @ first.w
    values, basis = np.linalg.eigh(spread)
    least = max(_LEAST_MOMENT * level, min(FLOOR * operator_norm(doubt), level / 2))
    change = basis * np.sqrt(n / np.maximum(values, least))

    variances = carried(left, change)
    noise = operator_norm(variances) / n
    values, basis = np.linalg.eigh(change.T @ moments @ change / n)
    floored = np.maximum(values, min(0.5, FLOOR * noise))
    return Metric(
        w=first.w @ change,
        curvature=(basis * floored) @ basis.T,
        inverse=(basis / floored) @ basis.T,
        variances=variances,
        radius=radius,
    )


def _power(matrix: Array, exponent: float) -> Array:
    """Symmetric power of a positive definite matrix."""
    values, vectors = np.linalg.eigh(matrix)
    power: Array = (vectors * values**exponent) @ vectors.T
    return power
