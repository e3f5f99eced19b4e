"""Where a mixture starts: normal laws fitted to a noisy histogram in few directions.

All of it is post-processing of noisy counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.base import floor_eigenvalues
from dpstats.estimators.central.mixtures.local import LocalMixture, floored
from dpstats.families.mixtures import NormalMixture

__all__ = ["Histogram", "apart"]

Array = NDArray[np.float64]

_KERNEL = np.array([0.25, 0.5, 0.25])  # numerical: neighbours that a cell is averaged with
_CLEAR = 3.0  # sds: of averaged noise, above which a cell is a point of a component
_RESTARTS = 64  # numerical: sets of first centres
_MUCH = 2**16  # numerical: cells times parameters, from which there are half as many
_ROUGH = 4  # numerical: steps of the EM algorithm from each of them
# numerical: steps of least squares, and the share of the mixtures that then take more
_ROUNDS = ((4, 0.3), (6, 0.3), (20, 0.3))
_SAME = 0.5  # numerical: cells, within which means of two mixtures are the same
_RIVAL = 12.0  # numerical: distance beyond the nearest mixture's, up to which others are kept
_SETTLED = 0.01  # numerical: gain of a step, below which it is the last
_LEAST_DAMPING = 1e-6  # numerical: added to the information in a step, at least
_LONGEST = 0.7  # numerical: largest change of a parameter in a step
_MEANS = 6  # numerical: steps of the k-means algorithm before
_LEAST_WEIGHT = 0.01  # share: of a component of the start
_LEAST_SD = 0.35  # ratio: least standard deviation of a component to the width of a cell
_SMOOTHED, _WITHIN = (
    0.5,
    1 / 12,
)  # printed: variance that averaging, and cells, add in squared cells


class Histogram:
    """Noisy counts of rows in the cells of q directions, and mixtures fitted to them.

    Parameters
    ----------
    counts : ndarray with q axes of m cells
        Noisy.
    noise : float
        Standard deviation of the noise of each.
    edges : ndarray of shape (m + 1,)
        Along each axis.
    """

    def __init__(self, counts: Array, noise: float, edges: Array) -> None:
        from scipy.ndimage import convolve1d

        self._q, self._width = counts.ndim, float(edges[1] - edges[0])
        middle = (edges[1:] + edges[:-1]) / 2
        self._middles = np.stack(np.meshgrid(*[middle] * self._q, indexing="ij"), axis=-1)
        self._middles = self._middles.reshape(-1, self._q)
        self._counts, self._sd = counts.ravel(), noise
        smooth = counts
        for axis in range(self._q):
            smooth = convolve1d(smooth, _KERNEL, axis=axis, mode="constant")
        self._smooth = smooth.ravel()
        self._clear = _CLEAR * noise * float(np.linalg.norm(_KERNEL)) ** self._q

    def chosen(self, numbers: Sequence[int]) -> list[NormalMixture]:
        """Mixtures of one of the numbers of components, by their penalised distances, best first.

        The penalty for each parameter is that of Schwarz for as many observations as there are
        cells.
        """
        each, cells = 1 + self._q + self._q * (self._q + 1) // 2, math.log(self._counts.size)
        found = [(self.fitted(k), k * each - 1) for k in numbers]
        best, _ = min(found, key=lambda pair: pair[0][0][1] + pair[1] * cells)
        return [mixture for mixture, lack in best if lack < best[0][1] + _RIVAL]

    def fitted(self, k: int) -> list[tuple[NormalMixture, float]]:
        """The mixtures of k normal laws that are nearest to the counts, and their distances.

        No two are alike, and the nearest comes first.

        It is sought from many sets of centres among the cells that stand out of the noise, and
        then by least squares over all cells: noise alone makes no component.
        """
        at, weights = self._points(k)
        rows = float(weights.sum())
        first = [_centred(at, weights, u) for u in self._first(k)]
        # From the same means the same is found.
        starts = {tuple(sorted(map(tuple, mixture.means))): mixture for mixture in first}
        rough = [_refined(at, weights, mixture, _ROUGH) for mixture in starts.values()]
        near, wanted = [self._changed(mixture, -_SMOOTHED) for mixture in rough], len(first)
        for rounds, kept in _ROUNDS:
            wanted = math.ceil(kept * wanted)
            found = [self._nearest(mixture, rows, rounds) for mixture in near]
            found = self._unlike(sorted(found, key=lambda pair: pair[1]))[:wanted]
            near = [mixture for mixture, _ in found]
        return [(self._changed(mixture, -_WITHIN), lack) for mixture, lack in found]

    def _unlike(
        self, found: list[tuple[NormalMixture, float]]
    ) -> list[tuple[NormalMixture, float]]:
        """Of mixtures that are the same but for the order of components, the first."""
        kept: list[tuple[NormalMixture, float]] = []
        for mixture, lack in found:
            if not any(apart(mixture, other) < _SAME * self._width for other, _ in kept):
                kept.append((mixture, lack))
        return kept

    def _first(self, k: int) -> Array:
        """Numbers that first centres are chosen by, evenly spread, shape (restarts, k)."""
        from scipy.stats import qmc

        parameters = k * (1 + self._q + self._q * (self._q + 1) // 2)
        restarts = _RESTARTS if parameters * self._counts.size < _MUCH else _RESTARTS // 2
        numbers: Array = qmc.Sobol(k, scramble=False).random(restarts) + 0.5 / restarts
        return numbers

    def _changed(self, mixture: NormalMixture, squares: float) -> NormalMixture:
        """With so many squared cells more variance in each direction."""
        added, least = squares * self._width**2, (_LEAST_SD * self._width) ** 2
        covariances = floored(mixture.covariances + added * np.eye(self._q), least)
        return replace(mixture, covariances=covariances)

    def _nearest(
        self, mixture: NormalMixture, rows: float, rounds: int
    ) -> tuple[NormalMixture, float]:
        """The mixture near by with the least chi-squared distance from all counts, and that.

        Steps of Gauss and Newton; one that does not come nearer is taken back and damped.
        """
        local = LocalMixture(mixture, "full", 0, np.ones(self._q))
        middles = np.insert(self._middles, 0, 1.0, axis=1)
        expected, lack = self._lack(local.mixture, rows)
        damping = 1.0
        for _ in range(rounds):
            slopes = expected[:, None] * np.insert(local.scores(middles), 0, 1.0, axis=1)
            weighted = slopes / (self._sd**2 + expected)[:, None]
            information = slopes.T @ weighted + damping * np.eye(slopes.shape[1])
            gap = weighted.T @ (self._counts - expected)
            wanted = np.linalg.solve(information, gap).astype(np.float64)
            step: Array = wanted * min(1.0, _LONGEST / max(float(np.abs(wanted).max()), 1e-9))
            there, more = local.moved(step[1:]), rows * math.exp(step[0])
            there = replace(there, mixture=_lifted(self._changed(there.mixture, 0.0)))
            seen, found = self._lack(there.mixture, more)
            if lack - _SETTLED < found < lack:
                return there.mixture, found
            if found < lack:
                local, rows, expected, lack = there, more, seen, found
                damping = max(damping / 3, _LEAST_DAMPING)
            else:
                damping *= 10
        return local.mixture, lack

    def _lack(self, mixture: NormalMixture, rows: float) -> tuple[Array, float]:
        """Counts that a mixture of so many rows expects, and the chi-squared distance from them."""
        density: Array = np.exp(mixture.log_density(self._middles))
        expected = rows * self._width**self._q * density
        # The logarithm keeps a law from claiming cells that it has no rows in.
        variance = self._sd**2 + expected
        distance = np.sum((self._counts - expected) ** 2 / variance + np.log(variance))
        return expected, float(distance)

    def _points(self, k: int) -> tuple[Array, Array]:
        """Cells that stand out, at least a few for each component, and their counts."""
        clear = self._smooth > self._clear
        few = min(4 * k, self._smooth.size)
        if clear.sum() < few:
            clear = self._smooth >= np.sort(self._smooth)[-few]
        return self._middles[clear], np.maximum(self._smooth[clear], 0.1)


def apart(one: NormalMixture, other: NormalMixture) -> float:
    """The largest distance of two means, of components that are paired by them."""
    from scipy.optimize import linear_sum_assignment

    distances = np.linalg.norm(one.means[:, None] - other.means, axis=2)
    return float(distances[linear_sum_assignment(distances**2)].max())


def _lifted(mixture: NormalMixture) -> NormalMixture:
    """With weights of at least a little."""
    weights = np.maximum(mixture.weights, _LEAST_WEIGHT)
    return replace(mixture, weights=weights / weights.sum())


def _centred(at: Array, weights: Array, uniforms: Array) -> NormalMixture:
    """Centres that are far apart (k-means++), moved to the middles of what is nearest to them."""
    k, q = uniforms.size, at.shape[1]
    chance, centres = weights, np.empty((0, q))
    for u in uniforms:
        chosen = int(np.searchsorted(np.cumsum(chance), u * chance.sum()))
        centres = np.vstack([centres, at[min(chosen, len(at) - 1)]])
        nearest = ((at[:, None] - centres) ** 2).sum(axis=2).min(axis=1)
        chance = weights * nearest + 1e-12
    for _ in range(_MEANS):
        member = ((at[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
        sizes = np.bincount(member, weights, k)
        sums = np.column_stack([np.bincount(member, weights * x, k) for x in at.T])
        centres = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1e-12)[:, None], centres)
    total = np.atleast_2d(np.cov(at.T, aweights=weights, bias=True)) if len(at) > 1 else np.eye(q)
    total = floor_eigenvalues(total, 1e-3)
    shares = np.maximum(sizes / sizes.sum(), 2 * _LEAST_WEIGHT)
    return NormalMixture(shares / shares.sum(), centres, np.array([total / k ** (2 / q) / 2] * k))


def _refined(at: Array, weights: Array, mixture: NormalMixture, rounds: int) -> NormalMixture:
    """The EM algorithm on weighted points."""
    total = weights.sum()
    least = 0.02 * float(np.trace(mixture.covariances[0])) / at.shape[1]
    for _ in range(rounds):
        shares = mixture.responsibilities(at) * weights[:, None]
        sizes = shares.sum(axis=0) + 1e-9
        means = shares.T @ at / sizes[:, None]
        apart = at[:, None] - means
        spread = np.einsum("mk,mki,mkj->kij", shares, apart, apart) / sizes[:, None, None]
        part = np.maximum(sizes / total, _LEAST_WEIGHT)
        mixture = NormalMixture(part / part.sum(), means, floored(spread, least))
    return mixture
