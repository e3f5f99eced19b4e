"""Where the next response is expected, from public rows and what was answered before.

Under a curator a response moves a sum by no more than the width of the interval that it is held to.
A first rough fit says where each response will be; the second then holds it to a narrow interval
there. Everything here is computed from public rows and noisy answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.labels.base import meaningful
from dpstats.estimators.labels.sums import BalancedRows, Leverages, deviation
from dpstats.families import BINOMIAL, GAUSSIAN, POISSON, Family
from dpstats.queries.labels import Interval
from dpstats.tall import LazyRows, Tall, constant, cross, farthest, gram, mean, read_blocks, vector

__all__ = ["Equations", "ExpectedResponses", "ResponseVariance", "RoundFacts", "unclipped_square"]

Array = NDArray[np.float64]
_Part = Callable[[slice], Array]  # of one number for each row, those of some rows

_LINKS = {"identity": GAUSSIAN, "log": POISSON, "logit": BINOMIAL}
_STEPS = 60  # numerical: steps of Fisher scoring
_HALVINGS = 30  # numerical: of a step
_CLOSE = 1e-9  # numerical: a step is the last when it changes no linear predictor by more
_FIRST = 1.0  # sds: that the first round leaves above such a mean
_SIZE = 0.5  # sds: guessed for a log mean, by a column with standard deviation 1
_DOUBT = 1.0  # ses: of the first fit that the second leaves on both sides
_DEVIATIONS = np.geomspace(1.4, 16.0, 12)  # numerical: half-widths that are tried, in sds
_DISTRUST = 2.0  # ratio: weight of the squared bias by holding responses, before it is made good
_NARROWEST = 1e-3  # numerical: width of an interval, over the widest one
_LARGEST_SIZE = 10.0  # numerical: of the size in mu + size mu^2
_SPREADS = np.geomspace(0.1, 100.0, 400)  # numerical: standard deviations that are tried, in clips
_RARE = 1e-6  # numerical: a mean that is never 0


@dataclass(frozen=True)
class ResponseVariance:
    """Variance of a response about its mean, and what it loses when it is held to an interval.

    Attributes
    ----------
    law : Family
    size : float
        Counts have variance ``mu + size mu^2`` (negative binomial; 0: Poisson), and the tails of a
        gamma law; other numbers have variance `size`, and the tails of a logistic law.
    """

    law: Family
    size: float

    @property
    def counts(self) -> bool:
        """Whether responses are counts."""
        return self.law.name == "poisson"

    def variance(self, mu: Array) -> Array:
        """Variance at mean `mu`."""
        if not self.counts:
            return np.full_like(mu, self.size)
        mu = np.maximum(mu, _RARE)
        spread: Array = mu + self.size * mu**2
        return spread

    def lost(self, mu: Array, low: Array, high: Array, within: Interval) -> Array:
        """Mean of a response less its mean when it is held to [low, high] inside `within`."""
        from scipy.special import gammainc, gammaincc

        above = high < within.high
        below = low > within.low
        if self.counts:
            mu = np.maximum(mu, _RARE)
            scale = self.variance(mu) / mu
            shape = mu / scale
            top, bottom = np.maximum(high, 0) / scale, np.maximum(low, 0) / scale
            over = mu * gammaincc(shape + 1, top) - high * gammaincc(shape, top)
            under = low * gammainc(shape, bottom) - mu * gammainc(shape + 1, bottom)
        else:
            sd = math.sqrt(self.size)
            over, under = sd * _logistic((high - mu) / sd), sd * _logistic((mu - low) / sd)
        loss: Array = np.where(above, over, 0.0) - np.where(below, under, 0.0)
        return loss

    def measured(self, squares: float, weights: Tall, mu: Tall, known: float) -> ResponseVariance:
        """The spread for which weighted squares are what was measured.

        Parameters
        ----------
        squares : float
            Noisy sum of ``weights (y - mu)^2``.
        known : float
            What errors of mu contribute, and other variance that is no spread.
        """
        n = len(mu)
        if self.counts:
            extra = squares - known - n * mean(n, lambda p: weights[p] * mu[p])
            curved = n * mean(n, lambda p: weights[p] * mu[p] ** 2)
            size = min(max(extra / curved, 0.0), _LARGEST_SIZE)
        else:
            size = max(squares - known, 0.1 * squares) / (n * mean(n, lambda p: weights[p]))
        return ResponseVariance(self.law, size)


@dataclass(frozen=True, eq=False)
class Equations:
    """``sum a_i x_i mu(x_i'b + known_i) = total``, for the mean of a link.

    They are the score of the link's own family (logit: binomial, log: Poisson, identity: normal),
    weighted, and unbiased for every law with that mean: the gradient of a convex function, whose
    only private part is `total`.
    """

    x: Tall
    known: Tall
    link: Family
    weights: Tall
    total: Array
    interval: Interval

    def eta(self, params: Array) -> LazyRows:
        """Linear predictors."""
        return LazyRows((len(self.x),), lambda part: self.x[part] @ params + self.known[part])

    def bread(self, params: Array) -> Array:
        """Derivative of the left side, (d, d)."""
        eta = self.eta(params)
        return gram(
            self.x,
            LazyRows((len(self.x),), lambda part: self.weights[part] * self.link.slope(eta[part])),
        )

    def solve(self, params: Array) -> tuple[Array, bool]:
        """Newton's method; a step is halved until the slope along it is half undone at most.

        The function is convex, so that its slope along a step only grows: a step is too long where
        that turned round. False where there is no finite solution.
        """
        gap = self._gap(params)
        for _ in range(_STEPS):
            step = np.linalg.pinv(self.bread(params), hermitian=True) @ gap
            size = float(gap @ step)
            for _ in range(_HALVINGS):
                tried = params + step
                if meaningful(self.link, self.eta(tried), self.interval):
                    new = self._gap(tried)
                    if float(new @ step) >= -0.5 * size:
                        break
                step, size = step / 2, size / 2
            else:
                return params, False
            params, gap = tried, new
            if farthest(self.x, step) < _CLOSE:
                return params, True
        return params, False

    def _gap(self, params: Array) -> Array:
        eta = self.eta(params)
        mean = LazyRows((len(self.x),), lambda part: self.weights[part] * self.link.mean(eta[part]))
        left: Array = self.total - cross(self.x, mean)
        return left


@dataclass(frozen=True, eq=False)
class ExpectedResponses:
    """Means of responses, with the ends between which they are by what is known; arrays (n,)."""

    mean: Array
    least: Array
    most: Array

    def ends(self, spread: ResponseVariance, k: float) -> tuple[_Part, _Part]:
        """So many standard deviations below the least and above the most."""
        return (
            lambda part: self.least[part] - k * np.sqrt(spread.variance(self.least[part])),
            lambda part: self.most[part] + k * np.sqrt(spread.variance(self.most[part])),
        )


@dataclass(frozen=True, eq=False)
class RoundFacts:
    """Public facts that rounds of questions about numeric responses are made from.

    Attributes
    ----------
    x : Tall, of shape (n, d)
    known : Tall, of shape (n,)
    law : Family
    interval : Interval
        Of all responses.
    sd : float
        Guessed standard deviation of a response.
    multipliers : mapping
        Noise over sensitivity, by slot.
    pure : bool
        Whether noise is Laplace.
    at : index
        Coefficients whose variances count.
    """

    x: Tall
    known: Tall
    law: Family
    interval: Interval
    sd: float
    multipliers: Mapping[str, float]
    pure: bool
    at: NDArray[np.intp]

    @cached_property
    def link(self) -> Family:
        """The family whose score is solved."""
        return _LINKS[self.law.link]

    @cached_property
    def guess(self) -> ResponseVariance:
        """Of responses, before anything was asked."""
        return ResponseVariance(self.law, 0.0 if self.law.name == "poisson" else self.sd**2)

    def noise(self, slot: str, sensitivity: float) -> float:
        """Standard deviation of the noise."""
        return sensitivity * self.multipliers[slot] * deviation(self.pure)

    @cached_property
    def _n(self) -> tuple[int]:
        return (len(self.x),)

    @cached_property
    def _flat(self) -> Array:
        """Coefficients for which linear predictors are about 1, whatever the columns."""
        ones = cross(self.x, constant(len(self.x), 1.0))
        return np.asarray(np.linalg.pinv(gram(self.x), hermitian=True) @ ones, dtype=np.float64)

    def start(self, level: float) -> Array:
        """Coefficients for which responses are about `level`, whatever their columns."""
        n = len(self.x)
        if self.law.link == "identity":
            return (level - mean(n, lambda part: self.known[part])) * self._flat
        if level <= 0:
            return np.zeros_like(self._flat)
        return math.log(level / mean(n, lambda part: np.exp(self.known[part]))) * self._flat

    def means(self, params: Array) -> LazyRows:
        """Means of responses by coefficients."""
        x, known = self.x, self.known
        return LazyRows(self._n, lambda part: self.link.mean(x[part] @ params + known[part]))

    def first(self, level: float, error: float) -> tuple[Tall, Tall, BalancedRows]:
        """Intervals and rows of the first round, where the mean is `level` up to `error`."""
        mu = self.means(self.start(level))

        def high(part: slice) -> Array:
            if not self.guess.counts:
                return mu[part] + error + 2 * self.sd
            grown = mu[part] * (1 + error / level) if self.law.link == "log" else mu[part] + error
            return np.asarray(grown + _FIRST * np.sqrt(self.guess.variance(grown)))

        def low(part: slice) -> Array:
            if self.guess.counts:
                return np.full(part.stop - part.start, self.interval.low)
            return mu[part] - error - 2 * self.sd

        return self._made("pilot", mu, self.guess, low, high)

    def posterior(self, made: BalancedRows, sums: Array, level: float) -> tuple[Array, Array]:
        """Coefficients and covariance: noisy whitened sums beside a guess of their size.

        Sampling errors of whitened sums have covariance 1, so that sums weigh ``1/(1 + scale^2)``.
        The guess keeps the fit finite whatever the noise; it has no part in the final fit.
        """
        start = self.start(level)
        precision, params = np.diag(1 / self._sizes() ** 2), start
        weight = 1 / (1 + made.scale**2)

        def loss(b: Array) -> tuple[float, Array]:
            gap = sums - cross(made.rows, self.means(b))
            away = b - start
            return float(weight * gap @ gap + away @ precision @ away), gap

        def slopes(b: Array) -> LazyRows:
            x, known = self.x, self.known
            return LazyRows(
                self._n,
                lambda part: made.weights[part] * self.link.slope(x[part] @ b + known[part]),
            )

        value, gap = loss(params)
        for _ in range(_STEPS):
            derivative = made.root @ gram(self.x, slopes(params))
            inverse = np.asarray(
                np.linalg.inv(weight * derivative.T @ derivative + precision), np.float64
            )
            step = inverse @ (weight * derivative.T @ gap - precision @ (params - start))
            for _ in range(_HALVINGS):
                new, tried = loss(params + step)
                if new <= value:
                    break
                step = step / 2
            else:
                break
            params, value, gap = params + step, new, tried
            if farthest(self.x, step) < 1e-6:
                break
        return params, inverse

    def expected(self, params: Array, cov: Array) -> ExpectedResponses:
        """Where means are, and may be, by a fit."""
        low, high, n = self.interval.low, self.interval.high, len(self.x)

        def moved(doubts: float) -> Array:
            def at(part: slice) -> Array:
                rows = self.x[part]
                room = _DOUBT * np.sqrt(np.einsum("ij,ij->i", rows @ cov, rows))
                eta = rows @ params + self.known[part] + doubts * room
                return np.clip(self.link.mean(eta), low, high)

            return vector(n, at)

        return ExpectedResponses(moved(0.0), moved(-1.0), moved(1.0))

    def second(
        self, found: ExpectedResponses, spread: ResponseVariance
    ) -> tuple[Tall, Tall, BalancedRows]:
        """Intervals and rows of the round that the coefficients are taken from.

        Widths, in standard deviations, have the smallest expected squared error: wide intervals
        need noise, and narrow ones lose tails, which a law makes good only as far as it holds.
        """
        best, least, size = None, math.inf, None
        for k in _DEVIATIONS:
            low, high, made = self._made("sums", found.mean, spread, *found.ends(spread, k))
            lost, weighed = self._cost(found, spread, low, high, made)
            bias = np.linalg.pinv(gram(self.x, weighed), hermitian=True) @ cross(self.x, lost)
            size = np.diag(made.sampling) if size is None else size
            risk = float(np.sum((np.diag(made.total) + _DISTRUST * bias**2) / size))
            if risk >= least:
                break
            best, least = (low, high, made), risk
        assert best is not None
        return best

    def _cost(
        self,
        found: ExpectedResponses,
        spread: ResponseVariance,
        low: Tall,
        high: Tall,
        made: BalancedRows,
    ) -> tuple[LazyRows, LazyRows]:
        """What intervals take of means in weighted equations, and the weights of slopes."""
        return (
            LazyRows(
                self._n,
                lambda p: (
                    made.weights[p] * spread.lost(found.mean[p], low[p], high[p], self.interval)
                ),
            ),
            LazyRows(self._n, lambda p: made.weights[p] * self._slope(found.mean[p])),
        )

    def clip_bounds(self, fitted: Array, clips: Array) -> Array:
        """Clips of residuals, none beyond the largest residual that a response can leave."""
        i = self.interval
        largest = np.maximum(i.high - fitted, fitted - i.low)
        inside: Array = np.clip(clips, _NARROWEST * i.half, largest)
        return inside

    def _made(
        self, slot: str, mu: Tall, spread: ResponseVariance, low: _Part, high: _Part
    ) -> tuple[Tall, Tall, BalancedRows]:
        """Intervals inside that of all responses, and the rows for them."""
        least = 2 * self.interval.half * _NARROWEST

        def lower(part: slice) -> Array:
            return np.clip(low(part), self.interval.low, self.interval.high - least)

        def upper(part: slice) -> Array:
            return np.clip(high(part), lower(part) + least, self.interval.high)

        made = Leverages(
            self.x,
            LazyRows(self._n, lambda part: self._slope(mu[part])),
            LazyRows(self._n, lambda part: spread.variance(mu[part])),
            LazyRows(self._n, lambda part: upper(part) - lower(part)),
            lambda sensitivity: self.noise(slot, sensitivity),
            self.pure,
        )
        return LazyRows(self._n, lower), LazyRows(self._n, upper), made.best(self.at)

    def _slope(self, mu: Array) -> Array:
        return np.maximum(mu, _RARE) if self.law.link == "log" else np.ones_like(mu)

    def _sizes(self) -> Array:
        """Guessed standard deviations of coefficients, about those of `start`."""
        n = len(self.x)
        middle = cross(self.x, constant(n, 1.0)) / n
        squares = [np.square(rows - middle).sum(axis=0) for _, rows in read_blocks(self.x)]
        varies, middle = np.sqrt(np.sum(squares, axis=0) / n), np.abs(middle)
        constants = varies <= 1e-9 * np.maximum(middle, 1e-300)
        size = _SIZE if self.law.link == "log" else self.sd
        sizes: Array = size / np.where(constants, np.maximum(middle, 1e-300), varies)
        return sizes


def unclipped_square(clipped: float) -> float:
    """The variance of a normal number whose mean square, clipped at 1, is this; a number > 0.

    With Z normal, ``E min(s^2 Z^2, 1)`` grows from s^2 where s is small to 1: numbers that are
    mostly beyond the clip say little of how far.
    """
    from scipy.special import ndtr

    k = 1 / _SPREADS  # of the clip, in standard deviations
    density = np.exp(-(k**2) / 2) / math.sqrt(2 * math.pi)
    squares = _SPREADS**2 * (2 * ndtr(k) - 1 - 2 * k * density) + 2 * ndtr(-k)
    log = np.interp(math.log(clipped), np.log(squares), np.log(_SPREADS))
    return clipped if clipped < squares[0] else math.exp(2 * float(log))


def _logistic(k: Array) -> Array:
    """``E(Z - k)+`` for a logistic law with standard deviation 1."""
    rate = math.pi / math.sqrt(3)
    tail: Array = np.logaddexp(0.0, -rate * k) / rate
    return tail
