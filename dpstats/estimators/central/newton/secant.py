"""What two scores say of the curvature between the places where they were asked."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.central.newton.identification import CLEAR
from dpstats.estimators.numerics.entrywise import average, carried

__all__ = ["SecantCurvature", "along", "untold"]

Array = NDArray[np.float64]


class SecantCurvature(NamedTuple):
    """A curvature and its entry variances in the orthonormal coordinates of `basis`, (d, d).

    `added`, of shape (d,), is by how much a fall was steeper along the first of these.
    """

    basis: Array
    matrix: Array
    variances: Array
    added: Array

    @property
    def plain(self) -> Array:
        """The curvature in the coordinates that it came in."""
        return self.basis @ self.matrix @ self.basis.T

    def again(self, step: Array) -> Array:
        """Square of what a score would fall more on a step, were it steeper by as much again."""
        more = float(self.basis[:, 0] @ step) * self.basis @ self.added
        return np.outer(more, more)


def untold(matrix: Array, variances: Array) -> SecantCurvature:
    """A curvature of which a fall tells nothing."""
    d = len(matrix)
    return SecantCurvature(np.eye(d), matrix, variances, np.zeros(d))


def along(
    matrix: Array, variances: Array, moved: Array, change: Array, noise: float
) -> SecantCurvature:
    """A curvature given also how much a score fell on the way of a step.

    A score is linear in where it is asked, with slope -D, so that it falls by D s on a step s. In
    orthonormal coordinates whose first axis is s that is the first column of D, |s| times, with
    independent noise. Rows far out are shortened in the released curvature, so that it may be less
    than D by far more than its noise, and a step by it too long. Where the fall is steeper than
    noise explains, the released column is doubted by as much as the two disagree beyond noise, and
    they are averaged by precision. Where it is not, the curvature is left as it is: what a fall
    tells is then less than what was released. So it is where the released fall is less than noise:
    no step that short went too far, and what noise leaves of a score is no curvature.

    Parameters
    ----------
    matrix, variances : ndarray of shape (d, d)
        The released curvature and its entry variances.
    moved, change : ndarray of shape (d,)
        A step, and by how much the score fell on it.
    noise : float
        Variance of each coordinate of `change`.
    """
    d, length = moved.size, float(np.linalg.norm(moved))
    if not length > 0:
        return untold(matrix, variances)
    basis = np.linalg.qr(np.column_stack([moved / length, np.eye(d)]))[0]
    turned, doubts = basis.T @ matrix @ basis, carried(variances, basis)
    seen, own = basis.T @ change / float(basis[:, 0] @ moved), noise / length**2
    gap = seen - turned[0]
    short = turned[0, 0] * length < math.sqrt(noise)
    if short or gap[0] < CLEAR * math.sqrt(doubts[0, 0] + own):
        return untold(matrix, variances)
    beyond = max(0.0, float(gap @ gap) / d - float(doubts[0].mean()) - own)
    column, doubt = average(turned[0], doubts[0] + beyond, seen, np.full(d, own))
    added = column - turned[0]
    doubts[0] = doubts[:, 0] = doubt
    return SecantCurvature(basis, turned + np.outer(added, added) / added[0], doubts, added)
