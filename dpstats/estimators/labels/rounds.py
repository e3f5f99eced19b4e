"""Where the next response is expected, from public rows and what was answered before.

Under a curator a response moves a sum by no more than the width of the interval that it is held to.
A first rough fit says where each response will be; the second then holds it to a narrow interval
there. Everything here is computed from public rows and noisy answers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.labels.base import meaningful
from dpstats.estimators.labels.sums import Balanced, Leverages, deviation
from dpstats.families import BINOMIAL, GAUSSIAN, POISSON, Family
from dpstats.queries.labels import Interval

__all__ = ["Equations", "Expected", "Rounds", "Spread"]

Array = NDArray[np.float64]

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
_RARE = 1e-6  # numerical: a mean that is never 0


@dataclass(frozen=True)
class Spread:
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

    def measured(self, squares: float, weights: Array, mu: Array, known: float) -> Spread:
        """The spread for which weighted squares are what was measured.

        Parameters
        ----------
        squares : float
            Noisy sum of ``weights (y - mu)^2``.
        known : float
            What errors of mu contribute, and other variance that is no spread.
        """
        if self.counts:
            extra = squares - known - float(weights @ mu)
            size = min(max(extra / float(weights @ mu**2), 0.0), _LARGEST_SIZE)
        else:
            size = max(squares - known, 0.1 * squares) / float(weights.sum())
        return Spread(self.law, size)


@dataclass(frozen=True, eq=False)
class Equations:
    """``sum a_i x_i mu(x_i'b + known_i) = total``, for the mean of a link.

    They are the score of the link's own family (logit: binomial, log: Poisson, identity: normal),
    weighted, and unbiased for every law with that mean: the gradient of a convex function, whose
    only private part is `total`.
    """

    x: Array
    known: Array
    link: Family
    weights: Array
    total: Array
    interval: Interval

    def bread(self, params: Array) -> Array:
        """Derivative of the left side, (d, d)."""
        slope = self.link.slope(self.x @ params + self.known)
        derivative: Array = (self.x * (self.weights * slope)[:, None]).T @ self.x
        return derivative

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
                if meaningful(self.link, self.x @ tried + self.known, self.interval):
                    new = self._gap(tried)
                    if float(new @ step) >= -0.5 * size:
                        break
                step, size = step / 2, size / 2
            else:
                return params, False
            params, gap = tried, new
            if float(np.abs(self.x @ step).max(initial=0.0)) < _CLOSE:
                return params, True
        return params, False

    def _gap(self, params: Array) -> Array:
        mean = self.link.mean(self.x @ params + self.known)
        left: Array = self.total - self.x.T @ (self.weights * mean)
        return left


@dataclass(frozen=True, eq=False)
class Expected:
    """Means of responses, with the ends between which they are by what is known; arrays (n,)."""

    mean: Array
    least: Array
    most: Array


@dataclass(frozen=True, eq=False)
class Rounds:
    """Public facts that rounds of questions about numeric responses are made from.

    Attributes
    ----------
    x : ndarray of shape (n, d)
    known : ndarray of shape (n,)
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

    x: Array
    known: Array
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
    def guess(self) -> Spread:
        """Of responses, before anything was asked."""
        return Spread(self.law, 0.0 if self.law.name == "poisson" else self.sd**2)

    def noise(self, slot: str, sensitivity: float) -> float:
        """Standard deviation of the noise."""
        return sensitivity * self.multipliers[slot] * deviation(self.pure)

    def start(self, level: float) -> Array:
        """Coefficients for which responses are about `level`, whatever their columns."""
        target = {
            "log": math.log(level / float(np.mean(np.exp(self.known)))) if level > 0 else 0.0,
            "identity": level - float(np.mean(self.known)),
        }[self.law.link]
        found = np.linalg.lstsq(self.x, np.full(len(self.x), target), rcond=None)[0]
        return np.asarray(found, dtype=np.float64)

    def first(self, level: float, error: float) -> tuple[Array, Array, Balanced]:
        """Intervals and rows of the first round, where the mean is `level` up to `error`."""
        mu = self.link.mean(self.x @ self.start(level) + self.known)
        if self.guess.counts:
            most = mu * (1 + error / level) if self.law.link == "log" else mu + error
            high = most + _FIRST * np.sqrt(self.guess.variance(most))
            low = np.full_like(high, self.interval.low)
        else:
            low, high = mu - error - 2 * self.sd, mu + error + 2 * self.sd
        return self._made("pilot", mu, self.guess, low, high)

    def posterior(self, made: Balanced, sums: Array, level: float) -> tuple[Array, Array]:
        """Coefficients and covariance: noisy whitened sums beside a guess of their size.

        Sampling errors of whitened sums have covariance 1, so that sums weigh ``1/(1 + scale^2)``.
        The guess keeps the fit finite whatever the noise; it has no part in the final fit.
        """
        start = self.start(level)
        precision, params = np.diag(1 / self._sizes() ** 2), start
        weight = 1 / (1 + made.scale**2)

        def loss(b: Array) -> tuple[float, Array]:
            gap = sums - made.rows.T @ self.link.mean(self.x @ b + self.known)
            away = b - start
            return float(weight * gap @ gap + away @ precision @ away), gap

        value, gap = loss(params)
        for _ in range(_STEPS):
            slope = self.link.slope(self.x @ params + self.known)
            derivative = made.rows.T @ (self.x * slope[:, None])
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
            if float(np.abs(self.x @ step).max(initial=0.0)) < 1e-6:
                break
        return params, inverse

    def expected(self, params: Array, cov: Array) -> Expected:
        """Where means are, and may be, by a fit."""
        eta = self.x @ params + self.known
        room = _DOUBT * np.sqrt(np.einsum("ij,ij->i", self.x @ cov, self.x))
        means = (self.link.mean(e) for e in (eta, eta - room, eta + room))
        low, high = self.interval.low, self.interval.high
        return Expected(*(np.clip(mean, low, high) for mean in means))

    def second(self, found: Expected, spread: Spread) -> tuple[Array, Array, Balanced]:
        """Intervals and rows of the round that the coefficients are taken from.

        Widths, in standard deviations, have the smallest expected squared error: wide intervals
        need noise, and narrow ones lose tails, which a law makes good only as far as it holds.
        """
        below, above = (np.sqrt(spread.variance(mu)) for mu in (found.least, found.most))
        slope, best, least, size = self._slope(found.mean), None, math.inf, None
        for k in _DEVIATIONS:
            ends = found.least - k * below, found.most + k * above
            low, high, made = self._made("sums", found.mean, spread, *ends)
            loss = made.weights * spread.lost(found.mean, low, high, self.interval)
            bread = (self.x * (made.weights * slope)[:, None]).T @ self.x
            bias = np.linalg.pinv(bread, hermitian=True) @ (self.x.T @ loss)
            size = np.diag(made.sampling) if size is None else size
            risk = float(np.sum((np.diag(made.total) + _DISTRUST * bias**2) / size))
            if risk >= least:
                break
            best, least = (low, high, made), risk
        assert best is not None
        return best

    def clip_bounds(self, fitted: Array, clips: Array) -> Array:
        """Clips of residuals, none beyond the largest residual that a response can leave."""
        i = self.interval
        largest = np.maximum(i.high - fitted, fitted - i.low)
        inside: Array = np.clip(clips, _NARROWEST * i.half, largest)
        return inside

    def _made(
        self, slot: str, mu: Array, spread: Spread, low: Array, high: Array
    ) -> tuple[Array, Array, Balanced]:
        """Intervals inside that of all responses, and the rows for them."""
        least = 2 * self.interval.half * _NARROWEST
        low = np.clip(low, self.interval.low, self.interval.high - least)
        high = np.clip(high, low + least, self.interval.high)
        made = Leverages(
            self.x,
            self._slope(mu),
            spread.variance(mu),
            high - low,
            lambda sensitivity: self.noise(slot, sensitivity),
            self.pure,
        )
        return low, high, made.best(self.at)

    def _slope(self, mu: Array) -> Array:
        return np.maximum(mu, _RARE) if self.law.link == "log" else np.ones_like(mu)

    def _sizes(self) -> Array:
        """Guessed standard deviations of coefficients, about those of `start`."""
        varies, middle = self.x.std(axis=0), np.abs(self.x.mean(axis=0))
        constant = varies <= 1e-9 * np.maximum(middle, 1e-300)
        size = _SIZE if self.law.link == "log" else self.sd
        sizes: Array = size / np.where(constant, np.maximum(middle, 1e-300), varies)
        return sizes


def _logistic(k: Array) -> Array:
    """``E(Z - k)+`` for a logistic law with standard deviation 1."""
    rate = math.pi / math.sqrt(3)
    tail: Array = np.logaddexp(0.0, -rate * k) / rate
    return tail
