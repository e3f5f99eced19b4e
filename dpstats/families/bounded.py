"""Scores whose length is bounded, with mean zero given the columns all the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError
from dpstats.families.exponential import Family

__all__ = ["BoundedFamily"]

Array = NDArray[np.float64]

_STEPS = 8  # numerical: of Newton's method for a centre; 4 to 7 end at rounding
_AT_REST = 1e-9  # numerical: standard deviations, below which a step is the last
_UNBOUND = 1e4  # numerical: standard deviations, at which a clip is none
_FEW = 1e-3  # numerical: share of responses within a clip, at least, by which a step is taken


class _Moments(NamedTuple):
    """``E (y - mu)^j`` of the responses of at most some value, j = 0, 1, 2."""

    share: Array
    first: Array
    second: Array


PartialMoments = Callable[[Array, float, Array], _Moments]  # of mean, spread and value


def _normal(mu: Array, spread: float, t: Array) -> _Moments:
    from scipy.special import ndtr

    g = (t - mu) / spread
    share, density = ndtr(g), np.exp(-(g**2) / 2) / math.sqrt(2 * math.pi)
    return _Moments(share, -spread * density, spread**2 * (share - g * density))


def _counts(mu: Array, spread: float, t: Array) -> _Moments:
    """Of a negative binomial law of variance ``mu + spread mu^2``, of a Poisson one at spread 0."""
    from scipy.special import betainc, betaln, gammaln, pdtr, xlogy

    k = np.floor(t)
    at = np.maximum(k, 0.0)
    if spread == 0:
        share, log = pdtr(at, mu), xlogy(at, mu) - mu - gammaln(at + 1)
    else:
        size, odds = 1 / spread, spread * mu
        share = betainc(size, at + 1, 1 / (1 + odds))
        log = xlogy(at, odds) - (size + at) * np.log1p(odds) - betaln(size, at + 1)
        log += math.log(spread)
    none = k < 0
    return _up_to(
        mu, mu + spread * mu**2, k, np.where(none, 0.0, share), np.where(none, 0.0, np.exp(log))
    )


def _gamma(mu: Array, spread: float, t: Array) -> _Moments:
    """Of variance ``spread mu^2``."""
    from scipy.special import gammainc, gammaln, xlogy

    shape = 1 / spread
    x = np.maximum(t, 0.0) / (spread * mu)
    next_term = np.exp(xlogy(shape, x) - x - gammaln(shape + 1))
    return _up_to(mu, spread * mu**2, t, gammainc(shape, x), next_term)


def _up_to(mu: Array, variance: Array, t: Array, share: Array, q: Array) -> _Moments:
    """The moments of a Poisson, negative binomial or gamma law from its chance of at most t.

    There E[y; y <= t] is mu times a chance of the law with a size larger by 1, which is `share`
    less q: of counts the chance of t, ``1 + spread t`` times, of gamma responses ``x^a e^-x / a!``
    at ``x = a t / mu`` with a the shape. The same once more for the second moment.
    """
    return _Moments(share, -mu * q, variance * (share - q) + mu * q * (mu - t))


_LAWS: dict[str, PartialMoments] = {
    "gaussian": _normal,
    "poisson": _counts,
    "negativebinomial": _counts,
    "gamma": _gamma,
}


@dataclass(frozen=True)
class BoundedFamily(Family):
    """A family with a score that keeps its mean of zero where a clip bounds its length.

    A clip of skewed residuals has a mean that is not zero, and moves the root of a sum of scores.
    Residuals are moved first, ``psi = clip(r - c, -k, k)``, with c such that ``E psi = 0`` given
    the columns under the model. So the root is that of the likelihood where the model is right,
    whatever columns are like, and of all scores with that property and this bound the sum has the
    least variance (Kuensch, Stefanski and Carroll 1989, "Conditionally unbiased bounded-influence
    estimation in general regression models", section 2). A normal residual needs no centre: psi is
    that of Krasker and Welsch (1982). For a yes or no, psi is the residual times
    ``min(1, k / the larger residual)``, an identity.

    Parameters
    ----------
    name, link : str
        As in `Family`.
    spread : float
        Public. Standard deviation of a normal response; of counts the alpha of their variance
        ``mu + alpha mu^2``; of gamma responses variance over squared mean. Not of a yes or no.
    """

    spread: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        needed = self.name in ("gaussian", "gamma")
        known = self.name == "binomial" or self.name in _LAWS
        if not known or not 0 <= self.spread < math.inf or (needed and self.spread == 0):
            raise OptionError(f"{self} with spread={self.spread}: no such bounded score.")

    def __str__(self) -> str:
        """Name, link and spread."""
        return f"{super().__str__()}, bounded, spread {self.spread:.4g}"

    @property
    def canonical(self) -> bool:
        """Whether the link is the canonical one, so that `factor` is 1."""
        return self._row.canonical

    @property
    def observed(self) -> bool:
        """False: `information` is what is expected."""
        return False

    def information(self, y: Array, eta: Array) -> Array:
        """`curvature`."""
        return self.curvature(eta)

    def centre(self, eta: Array, limit: Array) -> Array:
        """What is taken off a residual that is clipped at `limit`, so that its mean is zero."""
        if self.name == "gaussian":
            return np.zeros_like(limit)
        if self.name == "binomial":
            mu, k = self._clip_of_response(eta, limit)
            rarer, other = np.minimum(mu, 1 - mu), np.maximum(mu, 1 - mu)
            moved = np.where(mu < 0.5, -1.0, 1.0) * rarer * np.maximum(1 - k / other, 0.0)
            return np.asarray(self.factor(eta) * moved, dtype=np.float64)
        mu, k = self._clip_of_response(eta, limit)
        # What is no number would escape the clip.
        centre: Array = np.nan_to_num(self.factor(eta) * self._root(mu, k))
        return centre

    def kept(self, y: Array, eta: Array, limit: Array) -> Array:
        """Share of a row's information that its clip leaves; of a normal response 0 or 1."""
        if self.name == "gaussian":
            return np.asarray(np.abs(self.residual(y, eta)) <= limit, dtype=np.float64)
        return self.moments(eta, limit)[1]

    def moments(self, eta: Array, limit: Array) -> tuple[Array, Array]:
        """``E psi^2``, and the share of the information that a clip at `limit` leaves.

        The latter is ``E psi (y - mu) / Var y``: derivatives of means of fixed functions in the
        mean of the law are these covariances, over the variance.
        """
        mu, k = self._clip_of_response(eta, limit)
        factor = self.factor(eta)
        if self.name == "binomial":
            left = np.minimum(1.0, k / np.maximum(mu, 1 - mu))
            return left**2 * self.score_variance(eta), left
        square, covariance = self._about(mu, self._root(mu, k), k)
        kept = np.nan_to_num(covariance / self._variance(mu), nan=1.0)
        return factor**2 * square, np.clip(kept, 0.0, 1.0)

    def clipped_square(self, eta: Array, limit: Array) -> Array:
        """``E clip(r, -k, k)^2``, without a centre."""
        mu, k = self._clip_of_response(eta, limit)
        return np.asarray(self.factor(eta) ** 2 * self._about(mu, np.zeros_like(k), k)[0])

    def bias(self, eta: Array, limit: Array) -> Array:
        """``E clip(r, -k, k)``, as far as it hangs on the law: what the centre is for."""
        if self.name == "binomial":  # known whatever the law is
            return np.zeros_like(limit)
        return self.clipped_mean(eta, limit)

    def clipped_mean(self, eta: Array, limit: Array) -> Array:
        """``E clip(r, -k, k)``, without a centre."""
        if self.name == "gaussian":
            return np.zeros_like(limit)
        mu, k = self._clip_of_response(eta, limit)
        if self.name == "binomial":
            mean = mu * np.minimum(1 - mu, k) - (1 - mu) * np.minimum(mu, k)
        else:
            mean = self._mean(mu, np.zeros_like(k), k)[0]
        return np.asarray(self.factor(eta) * mean, dtype=np.float64)

    def score_variance(self, eta: Array) -> Array:
        """``Var r``, without a clip."""
        variance: Array = self.factor(eta) ** 2 * self._variance(self.mean(eta))
        return variance

    def within(self, eta: Array, length: Array) -> Array:
        """Chance of a residual of at most this size."""
        mu, k = self._clip_of_response(eta, length)
        if self.name == "binomial":
            return mu * (1 - mu <= k) + (1 - mu) * (mu <= k)
        low = np.nextafter(mu - k, -math.inf)
        chance: Array = self._below(mu, mu + k).share - self._below(mu, low).share
        return chance

    def _clip_of_response(self, eta: Array, limit: Array) -> tuple[Array, Array]:
        """Mean of the response, and the limit in its units, held to where it binds no more."""
        mu = self.mean(eta)
        sd = np.sqrt(self._variance(mu))
        # Of whole numbers the next one is 1 away, however rare it is.
        whole = self.name not in ("gaussian", "gamma")
        unbound = _UNBOUND * (np.maximum(sd, 1.0) if whole else sd)
        return mu, np.asarray(np.minimum(limit / self.factor(eta), unbound), dtype=np.float64)

    def _about(self, mu: Array, c: Array, k: Array) -> tuple[Array, Array]:
        """``E psi^2`` and ``E psi (y - mu)`` of ``psi = clip(y - mu - c, -k, k)``."""
        low, high = (self._below(mu, mu + c + s * k) for s in (-1, 1))
        share, first, second = (b - a for a, b in zip(low, high, strict=True))
        square = second - 2 * c * first + c**2 * share + k**2 * (1 - share)
        covariance = second - c * first - k * (high.first + low.first)
        return np.maximum(square, 0.0), covariance

    def _below(self, mu: Array, t: Array) -> _Moments:
        return _LAWS[self.name](mu, self.spread, t)

    def _variance(self, mu: Array) -> Array:
        if self.name == "gaussian":
            return np.full_like(mu, self.spread**2)
        if self.name == "binomial":
            return mu * (1 - mu)
        variance: Array = self.spread * mu**2 + (0.0 if self.name == "gamma" else mu)
        return variance

    def _mean(self, mu: Array, c: Array, k: Array) -> tuple[Array, Array]:
        """``E clip(y - mu - c, -k, k)``, and the share of responses that the clip leaves alone."""
        below, above = self._below(mu, mu + c - k), self._below(mu, mu + c + k)
        share = above.share - below.share
        ends = k * (1 - above.share - below.share)
        return above.first - below.first - c * share + ends, share

    def _root(self, mu: Array, k: Array) -> Array:
        """The c of which ``E clip(y - mu - c, -k, k)`` is none: Newton's method, held to a bracket.

        That falls in c, from k to -k. As a median is within a standard deviation of the mean, so is
        the root, and no response is below 0.
        """
        if self.name == "gaussian":
            return np.zeros_like(k)
        shape = k.shape
        mu, k = np.broadcast_to(mu, shape).ravel(), k.ravel()
        sd = np.sqrt(self._variance(mu))
        low, high, c = -np.minimum(mu, sd), sd.copy(), np.zeros_like(k)
        at = np.arange(k.size)  # of those that have not come to rest
        for _ in range(_STEPS):
            before = c[at]
            mean, share = self._mean(mu[at], before, k[at])
            low[at] = np.where(mean > 0, before, low[at])
            high[at] = np.where(mean < 0, before, high[at])
            tried = before + mean / np.maximum(share, _FEW)
            inside = (tried >= low[at]) & (tried <= high[at])
            c[at] = np.where(inside, tried, (low[at] + high[at]) / 2)
            at = at[np.abs(c[at] - before) > _AT_REST * sd[at]]
        return c.reshape(shape)
