"""Directions named by seeds, and the law of a direction that prefers one cap of the sphere.

A message about a direction w is a seed s of 16 bytes. Everybody can compute the direction u(s)
that it names: SHAKE-256 of the seed gives uniform words, the normal quantile makes them normal, and
they are divided by their norm. A device tosses a coin B and sends the first of many seeds for
which <u(s), w> >= t agrees with B. Over seeds u(s) is uniform on the sphere, so that the cap
{<u, w> >= t} has the same share c of them for every w, and the density ratio of any seed between
two senders is at most (q/c) / ((1 - q)/(1 - c)) with q = P(B).

A message is private in floating point as it is on paper: it is a string of bits that every sender
may send. Only the share c of a given cap depends on the hash and on rounding. With SHAKE-256 as a
random function the share of 2^128 directions is off by a factor 1 +- 2^-45 in any of the caps,
for c >= 2^-14 and up to 2^20 coordinates (by their number of half-spaces); rounding moves the
border of a cap by few ulp. q is calibrated at epsilon - 1e-9, which absorbs a thousand times as
much. Seeds are drawn until both sides of the cap were hit, so that the time a message takes depends
on neither B nor w: B is as private as w, since with it a message gives its side away.

References
----------
Feldman & Talwar (2021), Lossless compression of efficient private local randomizers.
"""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.channels.base import WORD, Array, Payloads, outside_words

__all__ = ["SEED_BYTES", "Cap", "cap_at", "directions", "widest_mean"]

SEED_BYTES = 16
_SLACK = 1e-9  # of epsilon, for the share of a cap; see above
_SMALLEST_SHARE = 2.0**-14  # so that a device needs 2^14 seeds on average at most


class Cap(NamedTuple):
    """Law of u_1 = <u, w>, uniform in the cap with probability q and outside it otherwise.

    Attributes
    ----------
    coordinates : int
        P >= 2; the sphere is that of R^P.
    threshold, share : float
        t, and c = P(u_1 >= t) for uniform u.
    outside : int
        1 - q in units of 2^-64.
    mean, square : float
        E u_1 = M and E u_1^2. By symmetry E u = M w.
    """

    coordinates: int
    threshold: float
    share: float
    outside: int
    mean: float
    square: float

    @property
    def inside_probability(self) -> float:
        """Probability q of the cap."""
        return (WORD - self.outside) / WORD

    def log_density(self, inside: NDArray[np.bool_]) -> Array:
        """Log probability of one seed inside the cap, or outside it."""
        near = math.log(self.inside_probability / self.share)
        far = math.log(self.outside / WORD / (1 - self.share))
        return np.where(inside, near, far) - 8 * SEED_BYTES * math.log(2)


@lru_cache(maxsize=256)
def cap_at(coordinates: int, epsilon: float, threshold: float) -> Cap:
    """The cap {u_1 >= threshold} with the largest q that is epsilon-DP."""
    a = (coordinates - 1) / 2
    share, lift = _share(a, threshold), _lift(a, threshold)
    outside = outside_words(epsilon - _SLACK, share, 1 - share)
    near, far = (WORD - outside) / WORD / share, outside / WORD / (1 - share)
    # E[u^2; u >= t] = (t (P - 1) E[u; u >= t] + c) / P, by parts; E u^2 = 1/P over the sphere.
    square = (threshold * (coordinates - 1) * lift + share) / coordinates
    return Cap(
        coordinates,
        threshold,
        share,
        outside,
        mean=(near - far) * lift,
        square=near * square + far * (1 / coordinates - square),
    )


@lru_cache(maxsize=256)
def widest_mean(coordinates: int, epsilon: float) -> float:
    """Threshold t with the largest mean M, of caps that do not take too many seeds to hit.

    With k = e^epsilon - 1 and D(t) = E[u_1; u_1 >= t] the mean is M(t) = k D / (1 + k c), and as
    dD = t dc, M' has the sign of M - t: M increases as long as it is above t, and the largest M is
    where M(t) = t.
    """
    from scipy.optimize import brentq
    from scipy.special import betaincinv

    a = (coordinates - 1) / 2
    inverse = 1 / math.expm1(min(epsilon, 700.0))
    highest = 1 - 2 * float(betaincinv(a, a, _SMALLEST_SHARE))

    def excess(t: float) -> float:
        return _lift(a, t) / (inverse + _share(a, t)) - t

    if excess(highest) >= 0:
        return highest
    return float(brentq(excess, 0.0, highest, xtol=1e-15))


def _share(a: float, t: float) -> float:
    """P(u_1 >= t): (1 - u_1)/2 is Beta(a, a) with a = (P - 1)/2."""
    from scipy.special import betainc

    return float(betainc(a, a, (1 - t) / 2))


def _lift(a: float, t: float) -> float:
    """E[u_1; u_1 >= t] = Gamma(a + 1/2) (1 - t^2)^a / (2 a sqrt(pi) Gamma(a))."""
    from scipy.special import poch

    return float(poch(a, 0.5)) * math.exp(a * math.log1p(-t * t)) / (2 * a * math.sqrt(math.pi))


def directions(seeds: Payloads, coordinates: int) -> Array:
    """Directions (m, coordinates) that seeds (m, 16) name."""
    from scipy.special import ndtri

    size = 8 * coordinates
    stream = b"".join(hashlib.shake_256(seed.tobytes()).digest(size) for seed in seeds)
    words = np.frombuffer(stream, dtype="<u8").reshape(len(seeds), coordinates)
    normal: Array = ndtri(uniform(words))
    normal /= np.sqrt(np.einsum("ij,ij->i", normal, normal))[:, None]
    return normal


def uniform(words: NDArray[np.uint64]) -> Array:
    """Uniform numbers inside (0, 1), symmetric about 1/2: middles of 2^52 cells, all exact."""
    return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
