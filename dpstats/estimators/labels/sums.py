"""What methods share whose curator releases noisy sums of private responses.

Sums are over public rows, so that the largest change by one response is known exactly, and rows
can be weighted to make it small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting import Share, calibrate
from dpstats.accounting.events import Gaussian, Laplace
from dpstats.estimators.base import floor_eigenvalues
from dpstats.privacy import LabelOnly
from dpstats.queries.base import Norm
from dpstats.queries.labels import Interval, LabelSums
from dpstats.tall import LazyRows, Tall, gram, read_blocks, vector

__all__ = [
    "BalancedRows",
    "Leverages",
    "deviation",
    "events",
    "inverse_root",
    "label_norm",
    "mixed",
    "reach",
]

Array = NDArray[np.float64]
Positions = NDArray[np.intp]

# numerical: where leverages may be cut
_QUANTILES = (1.0, 0.999, 0.99, 0.9, 0.75, 0.5)
_MISFIT = 0.01  # ratio: tau^2, square of what the mean misses over the variance of a response


def events(
    shares: Mapping[str, float], privacy: LabelOnly, epsilon: float
) -> dict[str, Laplace | Gaussian]:
    """Mechanisms with these shares of the zero-concentrated cost (of epsilon where delta is 0)."""
    kind: Literal["laplace", "gaussian"] = "laplace" if privacy.delta == 0 else "gaussian"
    split = {slot: Share(kind, weight) for slot, weight in shares.items()}
    found = calibrate(split, epsilon, privacy.delta)
    return {slot: e for slot, e in found.items() if isinstance(e, Laplace | Gaussian)}


def deviation(pure: bool) -> float:
    """Standard deviation of noise with scale 1: Laplace where delta is 0, Gaussian otherwise."""
    return math.sqrt(2.0) if pure else 1.0


def label_norm(pure: bool) -> Norm:
    """The norm of sensitivities: L1 where noise is Laplace."""
    return "l1" if pure else "l2"


def reach(rows: Tall, pure: bool) -> float:
    """How far one response, anywhere in an interval of half-width 1/2, moves the sums of rows."""
    return LabelSums(Interval(-0.5, 0.5), rows, label_norm(pure)).sensitivity()


def mixed(meat: Array, even: Array, spread: float, n: int) -> Array:
    """A noisy meat and what a variance function says of it, each weighted by its precision.

    Parameters
    ----------
    meat, even : ndarray of shape (d, d)
        Noisy sum of outer products of scores, and its model.
    spread : float
        Standard deviation of the noise.
    n : int
        Number of rows.
    """
    d = len(even)
    size = float(np.trace(even)) / d
    trust = size**2 / (size**2 + spread**2)
    both = trust * meat * n / max(n - d, 1) + (1 - trust) * even
    return floor_eigenvalues(both, 0.05 * size)


@dataclass(frozen=True, eq=False)
class BalancedRows:
    """Public rows in the coordinates in which responses are added, and what noise on sums costs.

    Attributes
    ----------
    cut : float
        Largest product of a row's norm and the width of its interval, before weights.
    weights : Tall, of shape (n,)
        In (0, 1]; of rows in the estimating equations.
    root : ndarray of shape (d, d)
        Symmetric; rows that are added are ``weights * x @ root``.
    rows : Tall, of shape (n, d)
    back : ndarray of shape (d, d)
        From an error of the sums to one of the coefficients.
    scale : float
        Standard deviation of the noise on each sum.
    sampling : ndarray of shape (d, d)
        Expected covariance of the coefficients by sampling.
    doubt : ndarray of shape (d,)
        Squares by which weights may move what is estimated; see `Leverages`.
    lost : float
        Share of the leverage of all rows that weights take.
    """

    cut: float
    weights: Tall
    root: Array
    rows: Tall
    back: Array
    scale: float
    sampling: Array
    doubt: Array
    lost: float

    @property
    def noise(self) -> Array:
        """Expected covariance of the coefficients by noise."""
        covariance: Array = self.scale**2 * (self.back @ self.back.T)
        return covariance

    @property
    def largest_leverage(self) -> float:
        """Largest squared norm of a row."""
        return max(float(np.square(rows).sum(axis=1).max()) for _, rows in read_blocks(self.rows))

    @property
    def total(self) -> Array:
        """Expected covariance of the coefficients."""
        return self.sampling + self.noise


@dataclass(frozen=True, eq=False)
class Leverages:
    """How far responses can move estimating equations on public rows, and where to cut that.

    For equations ``sum a x (mu - y) = 0`` with weights a, coordinates are those in which
    the sampling error of ``sum a x y`` has covariance 1: noise then has its shape. One response
    moves the sum by ``width ||a root x||``; weights cut that product at one of its quantiles, where
    this makes the variance smallest. They depend on public facts and earlier answers alone,
    so equations stay unbiased where the mean is right.

    Where it is not, weights ask another question. Say the mean misses a part g_i of each response,
    of mean square tau^2 times its variance. As a weighted fit is ``sum_i a_i y_i`` and the fit of
    all rows ``sum_i o_i y_i``, with public a_i and o_i, they differ by ``sum_i (a_i - o_i) g_i``,
    by Cauchy's inequality at most ``tau (n sum_i (a_i - o_i)^2 v_i)^(1/2)``. Its square is counted
    as a variance where a cut is chosen.

    Parameters
    ----------
    x : Tall, of shape (n, d)
        Public rows.
    slope, variance, width : Tall, of shape (n,)
        Expected derivative of the mean, variance of the response, and width of its interval.
    noise : callable
        From the sensitivity to the standard deviation of the noise.
    pure : bool
        Whether the norm is L1.
    """

    x: Tall
    slope: Tall
    variance: Tall
    width: Tall
    noise: Callable[[float], float]
    pure: bool

    @cached_property
    def _sizes(self) -> Array:
        x, order = self.x, 1 if self.pure else 2
        root = inverse_root(gram(x, self.variance))
        return vector(
            len(x), lambda part: np.linalg.norm(x[part] @ root, order, axis=1) * self.width[part]
        )

    @cached_property
    def _uncut(self) -> Array:
        """What takes sums to coefficients where no row is weighted down."""
        return np.asarray(np.linalg.pinv(gram(self.x, self.slope), hermitian=True), np.float64)

    def cut(self, at: float) -> BalancedRows:
        """Rows cut there."""
        x, (n, d) = self.x, self.x.shape
        sizes, variance, slope = self._sizes, self.variance, self.slope

        def weight(part: slice) -> Array:
            return np.minimum(1.0, at / np.maximum(sizes[part], 1e-300))

        meat = gram(x, LazyRows((n,), lambda part: weight(part) ** 2 * variance[part]))
        root = inverse_root(meat)
        rows = LazyRows((n, d), lambda part: (x[part] * weight(part)[:, None]) @ root)
        moving = LazyRows((n, d), lambda part: rows[part] * self.width[part][:, None])
        scale = self.noise(reach(moving, self.pure))
        bread = np.linalg.pinv(
            gram(x, LazyRows((n,), lambda part: weight(part) * slope[part])), hermitian=True
        )
        back = bread @ np.linalg.pinv(root, hermitian=True)
        doubt, lost = np.zeros(d), 0.0
        for part, block in read_blocks(x):
            weights, uncut = weight(part), block @ self._uncut
            moved = (block * weights[:, None]) @ bread - uncut
            doubt += np.square(moved).T @ variance[part]
            leverage = slope[part] * np.einsum("ij,ij->i", uncut, block)
            lost += float((1 - weights) @ leverage) / d
        doubt *= _MISFIT * n
        sampling = bread @ meat @ bread
        return BalancedRows(
            at, LazyRows((n,), weight), root, rows, back, scale, sampling, doubt, lost
        )

    def best(self, at: Positions | slice) -> BalancedRows:
        """Rows cut where the variances of the coefficients `at` are expected to be smallest."""
        cuts = [max(float(cut), 1e-300) for cut in np.quantile(self._sizes, _QUANTILES)]
        return min(map(self.cut, cuts), key=lambda m: float((np.diag(m.total) + m.doubt)[at].sum()))


def inverse_root(matrix: Array) -> Array:
    """The symmetric square root of the inverse of a covariance."""
    values, vectors = np.linalg.eigh(matrix)
    root: Array = (vectors / np.sqrt(np.maximum(values, values[-1] * 1e-14))) @ vectors.T
    return root
