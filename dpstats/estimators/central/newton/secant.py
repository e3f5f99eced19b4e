"""What two scores say of the curvature between the places where they were asked."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.numerics.entrywise import average, carried

__all__ = ["Told", "along"]

Array = NDArray[np.float64]


class Told(NamedTuple):
    """A curvature and its entry variances in the orthonormal coordinates of `basis`, (d, d)."""

    basis: Array
    matrix: Array
    variances: Array

    @property
    def plain(self) -> Array:
        """The curvature in the coordinates that it came in."""
        return self.basis @ self.matrix @ self.basis.T


def along(matrix: Array, variances: Array, moved: Array, change: Array, noise: float) -> Told:
    """A curvature given also how much a score fell on the way of a step.

    A score is linear in where it is asked, with slope -D, so that it falls by D s on a step s. In
    orthonormal coordinates whose first axis is s that is the first column of D, |s| times, with
    independent noise. It is averaged with the released column by precision. That one may be wrong
    by more than its noise, since rows far out are shortened in it, and is doubted by as much as the
    two disagree beyond noise.

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
        return Told(np.eye(d), matrix, variances)
    basis = np.linalg.qr(np.column_stack([moved / length, np.eye(d)]))[0]
    matrix, variances = basis.T @ matrix @ basis, carried(variances, basis)
    seen, own = basis.T @ change / (length * np.sign(basis[:, 0] @ moved)), noise / length**2
    gap = seen - matrix[0]
    beyond = max(0.0, float(gap @ gap) / d - float(variances[0].mean()) - own)
    column, doubt = average(matrix[0], variances[0] + beyond, seen, np.full(d, own))
    matrix[0], matrix[:, 0], variances[0], variances[:, 0] = column, column, doubt, doubt
    return Told(basis, matrix, variances)
