"""Where a mixture of regressions starts: lines fitted to a noisy histogram of residuals.

All of it is post-processing of noisy counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Cells", "Lines"]

Array = NDArray[np.float64]

_RESTARTS = 64  # numerical: sets of lines that are tried
# numerical: steps of least squares, and the share of the sets that then take more
_ROUNDS = ((6, 0.3), (10, 0.25), (25, 0.2))
_STEEPEST = 1.2  # ratio: of first intercepts and slopes to the unit of residuals, at most
_SDS = (0.15, 0.8)  # ratio: of first standard deviations to it
_LEAST_SD = 0.05  # ratio: of a standard deviation to it
_LEAST_WEIGHT = 0.03  # share: of a component of the start
_LONGEST = 0.7  # numerical: largest change of a parameter in a step
_NORMAL_DOUBT = 0.5  # ratio: error of the rows along a direction that a normal law expects
_FARTHEST = 4.0  # ratio: of an intercept or a slope to the unit


class Lines(NamedTuple):
    """k lines in some features of a row: weights, coefficients (k, e) and an error's sd."""

    weights: Array
    coef: Array
    sigma: float


class _Values(NamedTuple):
    """Parameters of m sets of lines: log odds (m, k), coefficients (m, k, e) and log sds (m,)."""

    odds: Array
    coef: Array
    log_sd: Array

    def of(self, chosen: NDArray[np.intp]) -> _Values:
        return _Values(self.odds[chosen], self.coef[chosen], self.log_sd[chosen])

    def replaced(self, others: _Values, where: NDArray[np.bool_]) -> _Values:
        """With other sets of lines where they are chosen, (m,)."""
        return _Values(
            np.where(where[:, None], others.odds, self.odds),
            np.where(where[:, None, None], others.coef, self.coef),
            np.where(where, others.log_sd, self.log_sd),
        )

    def moved(self, step: Array) -> _Values:
        """A step away, held to what components may be."""
        m, k, _ = self.coef.shape
        odds = self.odds + np.hstack([np.zeros((m, 1)), step[:, : k - 1]])
        odds -= odds.max(axis=1, keepdims=True)
        coef = self.coef + step[:, k - 1 : -1].reshape(self.coef.shape)
        coef = np.clip(coef, -_FARTHEST, _FARTHEST)
        log_sd = np.clip(self.log_sd + step[:, -1], math.log(_LEAST_SD), math.log(_FARTHEST))
        return _Values(np.maximum(odds, math.log(_LEAST_WEIGHT)), coef, log_sd)

    @property
    def weights(self) -> Array:
        shares = np.exp(self.odds)
        made: Array = shares / shares.sum(axis=1, keepdims=True)
        return made


class Cells:
    """Noisy counts in cells of residuals and of directions, and lines that are fitted to them.

    Parameters
    ----------
    counts : ndarray with an axis of residuals and q of directions
        Noisy.
    noise : float
        Standard deviation of the noise of each.
    heights, edges : ndarray
        Edges of the cells, in units in which residuals are about 1, and directions standardised.
    constant : bool
        Whether lines have an intercept.
    """

    def __init__(
        self, counts: Array, noise: float, heights: Array, edges: Array, constant: bool
    ) -> None:
        q = counts.ndim - 1
        self._q, self._heights, self._constant = q, heights, constant
        self._counts, self._noise = counts.reshape(len(counts), -1), noise
        self._width = float(edges[1] - edges[0])
        middle = (edges[1:] + edges[:-1]) / 2
        at = np.array(list(product(middle, repeat=q))).reshape(middle.size**q, q)
        ahead = np.ones((len(at), 1)) if constant else np.empty((len(at), 0))
        self.features = np.hstack([ahead, at])
        self._columns = self._rows(at)

    def _rows(self, at: Array) -> Array:
        """Rows in each cell of the directions: as counted, averaged with a normal law's."""
        total = max(float(self._counts.sum()), 1.0)
        expected = np.exp(-0.5 * (at**2).sum(axis=1))
        expected *= total / expected.sum()
        own = len(self._counts) * self._noise**2
        doubt = (_NORMAL_DOUBT * expected) ** 2
        counted = self._counts.sum(axis=0)
        found: Array = np.maximum((doubt * counted + own * expected) / (doubt + own), 0.1)
        found *= total / found.sum()
        return found

    def chosen(self, numbers: Sequence[int]) -> Lines:
        """The lines of one of the numbers of components, by their penalised distances.

        The penalty for each parameter is that of Schwarz for as many observations as there are
        cells.
        """
        if len(numbers) == 1:
            return self.lines(numbers[0])[0]
        each, cells = 1 + self.features.shape[1], math.log(self._counts.size)
        found = [(self.lines(k), k * each) for k in numbers]
        best, _ = min(found, key=lambda pair: pair[0][1] + pair[1] * cells)
        return best[0]

    def lines(self, k: int) -> tuple[Lines, float]:
        """The k lines that are nearest to all cells, from many starts, and their distance."""
        values = _first(k, self.features.shape[1])
        lack = self.lack(self.expected(values, False)[0])
        for rounds, kept in _ROUNDS:
            damping = np.ones(len(lack))
            for _ in range(rounds):
                there = values.moved(self.steps(values, damping))
                found = self.lack(self.expected(there, False)[0])
                better = found < lack
                damping = np.where(better, damping / 3, damping * 10)
                values = values.replaced(there, better)
                lack = np.where(better, found, lack)
            chosen = np.argsort(lack, kind="stable")[: math.ceil(kept * len(lack))]
            values, lack = values.of(chosen), lack[chosen]
        nearest = Lines(values.weights[0], values.coef[0], float(np.exp(values.log_sd[0])))
        return nearest, float(lack[0])

    def expected(self, values: _Values, slopes: bool) -> tuple[Array, Array]:
        """Counts (m, cells) that lines expect, and where wanted their derivatives (m, cells, p)."""
        from scipy.special import ndtr

        coef, sd = values.coef, np.exp(values.log_sd)[:, None, None]
        m, k, e = coef.shape
        first = 1 if self._constant else 0
        within = self._width**2 / 12  # variance of a row's place in its cell
        steep = within * (coef[:, :, first:] ** 2).sum(axis=2, keepdims=True)
        spread = np.sqrt(sd**2 + steep)  # (m, k, 1)
        means = coef @ self.features.T  # (m, k, J)
        z = (self._heights[:, None] - means[:, :, None]) / spread[..., None]  # (m, k, I + 1, J)
        z[:, :, 0], z[:, :, -1] = -np.inf, np.inf
        inside = np.diff(ndtr(z), axis=2)
        weighted = values.weights[:, :, None, None] * self._columns
        parts = weighted * inside  # (m, k, I, J)
        whole = parts.sum(axis=1)
        made = whole.reshape(m, -1)
        if not slopes:
            return made, np.empty(0)
        z[:, :, 0], z[:, :, -1] = 0.0, 0.0
        density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
        density[:, :, 0], density[:, :, -1] = 0.0, 0.0
        over = weighted / spread[..., None]
        by_mean = -np.diff(density, axis=2) * over
        by_spread = -np.diff(z * density, axis=2) * over
        odds = parts[:, 1:] - values.weights[:, 1:, None, None] * whole[:, None]
        lines = by_mean[:, :, None] * self.features.T[:, None]  # (m, k, e, I, J)
        turned = within * coef[:, :, first:, None, None] / spread[..., None, None]
        lines[:, :, first:] += by_spread[:, :, None] * turned
        spreads = (by_spread * (sd**2 / spread)[..., None]).sum(axis=1)
        columns = [
            part.reshape(m, size, -1)
            for part, size in zip((odds, lines, spreads[:, None]), (k - 1, k * e, 1), strict=True)
            if size
        ]
        return made, np.swapaxes(np.concatenate(columns, axis=1), 1, 2)

    def lack(self, expected: Array) -> Array:
        """Chi-squared distances of counts (m, cells) from those that were released, shape (m,)."""
        variance = self._noise**2 + expected
        gap = self._counts.ravel() - expected
        found: Array = np.sum(gap**2 / variance + np.log(variance), axis=1)
        return found

    def steps(self, values: _Values, damping: Array) -> Array:
        """Damped steps of Gauss and Newton towards the counts, shape (m, p)."""
        expected, slopes = self.expected(values, True)
        weighted = slopes / (self._noise**2 + expected)[:, :, None]
        information = np.swapaxes(slopes, 1, 2) @ weighted
        p = information.shape[-1]
        towards = np.einsum("mcp,mc->mp", weighted, self._counts.ravel() - expected)
        damped = information + damping[:, None, None] * np.eye(p)
        wanted = np.linalg.solve(damped, towards[..., None])[..., 0]
        longest = np.abs(wanted).max(axis=1, keepdims=True)
        made: Array = wanted * np.minimum(1.0, _LONGEST / np.maximum(longest, 1e-9))
        return made


def _first(k: int, e: int) -> _Values:
    """Evenly spread sets of lines, whose average is no line."""
    from scipy.stats import qmc

    numbers = qmc.Sobol(k * (e + 1) + 1, scramble=False).random(_RESTARTS) + 0.5 / _RESTARTS
    odds = 2 * numbers[:, :k] - 1
    coef = _STEEPEST * (2 * numbers[:, k:-1].reshape(-1, k, e) - 1)
    values = _Values(odds, coef, np.log(np.interp(numbers[:, -1], [0, 1], _SDS)))
    average = np.einsum("mk,mke->me", values.weights, coef)
    return values._replace(coef=coef - average[:, None])
