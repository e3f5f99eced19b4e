"""One of several cells by a random subset of them that is likelier to hold it than not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting.events import Pure
from dpstats.channels.base import WORD, Array, Domain, Payloads, check_channel, outside_words
from dpstats.errors import OptionError

__all__ = ["MOST_CELLS", "Subset"]

MOST_CELLS = 2**10


@dataclass(frozen=True, slots=True)
class Subset:
    """A cell out of k, for values that are shares of the cells: not negative, of sum 1.

    A cell c is drawn with the odds of the value (of a device that is in one cell it is that one).
    Sent is a set of w cells: with probability p a uniform one that holds c, otherwise a uniform one
    that does not. It holds another cell with probability q = (w - p)/(k - 1), so that

        z_j = (1[j in the set] - q) / (p - q)

    is unbiased for the value, and z always adds up to 1. w, about k / (1 + e^epsilon), has the
    smallest variance; for w = 1 this is randomised response, as it is from e^epsilon = k on.

    Guarantee: pure epsilon-DP. There are C(k-1, w-1) sets with c and C(k-1, w) without it, so that
    a given set is (k - w) p / (w (1 - p)) times as likely under a cell that it holds as under one
    that it does not; p is the largest whole number of 2^-64 at which this is at most e^epsilon.
    A value only chooses the odds of c.

    Variance (w (1-q)^2 + (k-w) q^2) / (p-q)^2 - |v|^2, of which Ye and Barg show that no channel
    has less to first order.

    References
    ----------
    Ye & Barg (2018), Optimal schemes for discrete distribution estimation under locally
    differential privacy.
    """

    dim: int
    epsilon: float
    name: ClassVar[str] = "subset"
    domain: ClassVar[Domain] = "simplex"
    delta: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        check_channel(self.name, self.dim, self.epsilon)
        if not 2 <= self.dim <= MOST_CELLS:
            raise OptionError(
                f"Channel {self.name!r} for {self.dim} cells: from 2 to {MOST_CELLS:,} are allowed."
            )

    @property
    def size(self) -> int:
        """w, how many cells are sent."""
        return _best(self.dim, self.epsilon)

    @property
    def outside(self) -> int:
        """Probability that the set does not hold the cell, in units of 2^-64."""
        return outside_words(self.epsilon, self.size, self.dim - self.size)

    @property
    def odds(self) -> tuple[float, float]:
        """p and q, with which the set holds the cell, and any other cell."""
        return _odds(self.dim, self.size, self.outside)

    @property
    def payload_bytes(self) -> int:
        """One bit for each cell."""
        return -(-self.dim // 8)

    @property
    def event(self) -> Pure:
        """Pure(epsilon)."""
        return Pure(self.epsilon)

    def _sets(self, payloads: Payloads) -> NDArray[np.bool_]:
        bits = np.unpackbits(np.ascontiguousarray(payloads), axis=1, bitorder="little")
        return bits.astype(np.bool_)

    def decode(self, payloads: Payloads) -> Array:
        """(1 - q)/(p - q) for cells of the set, -q/(p - q) for others; (m, dim)."""
        return self.decoded(self._sets(payloads)[:, : self.dim])

    def decoded(self, sets: NDArray[np.bool_]) -> Array:
        """The same of sets as masks (m, dim)."""
        p, q = self.odds
        return np.where(sets, (1 - q) / (p - q), -q / (p - q))

    def accepts(self, payloads: Payloads) -> NDArray[np.bool_]:
        """Sets of w of the cells."""
        sets = self._sets(payloads)
        beyond = sets[:, self.dim :].any(axis=1)
        accepted: NDArray[np.bool_] = (sets.sum(axis=1) == self.size) & ~beyond
        return accepted

    def variance(self, square_norm: float = 1.0) -> float:
        """Over all cells; the square norm is 1 of a device that is in one cell."""
        return max(_second(self.dim, self.size, *self.odds) - square_norm, 0.0)

    def noise(self, shares: Array) -> Array:
        """Covariance (dim, dim) of decoded messages about the cells of devices.

        Parameters
        ----------
        shares : ndarray of shape (dim,)
            How many of the devices are in each cell, as shares: the mean of their covariances.
        """
        (p, q), k, w = self.odds, self.dim, self.size
        one = q + (p - q) * shares  # that a set holds j
        with_one = p * (w - 1) / (k - 1)  # i and j, if the device is in one of them
        pairs = max((k - 1) * (k - 2), 1)
        with_none = (w - 1) * (p * (w - 2) + (1 - p) * w) / pairs
        own = shares[:, None] + shares
        both = own * with_one + (1 - own) * with_none
        np.fill_diagonal(both, one)
        second = (both - q * (one[:, None] + one) + q**2) / (p - q) ** 2
        law: Array = second - np.diag(shares)
        return law

    def log_density(self, payloads: Payloads, value: Array) -> Array:
        """Log probability of each set, a mixture over the cells of the value."""
        held = self._sets(payloads)[:, : self.dim] @ value
        p, k, w = self.odds[0], self.dim, self.size
        near = p / math.comb(k - 1, w - 1)
        far = self.outside / WORD / math.comb(k - 1, w)
        log: Array = np.log(held * near + (1 - held) * far)
        return log


def _odds(cells: int, size: int, outside: int) -> tuple[float, float]:
    p = (WORD - outside) / WORD
    # size - p in whole words: where p is 1 but for some of them, q is not 0
    return p, ((size - 1) * WORD + outside) / WORD / (cells - 1)


def _second(cells: int, size: int, p: float, q: float) -> float:
    """Mean square norm of decoded messages."""
    return (size * (1 - q) ** 2 + (cells - size) * q**2) / (p - q) ** 2


@lru_cache(maxsize=256)
def _best(cells: int, epsilon: float) -> int:
    """Number of cells in a set with the smallest variance: next to k / (1 + e^epsilon)."""
    at = cells / (1 + math.exp(min(epsilon, 700.0)))
    sizes = {max(1, min(size, cells // 2)) for size in (math.floor(at), math.ceil(at))}

    def second(size: int) -> float:
        return _second(cells, size, *_odds(cells, size, outside_words(epsilon, size, cells - size)))

    return min(sorted(sizes), key=second)
