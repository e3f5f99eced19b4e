"""Exact draws from the uniform words of a stream: coins, integers, subsets.

Coins are compared as whole 64-bit words, so a probability is what it is said to be.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpstats.channels.base import WORD, Array
from dpstats.mechanisms.noise import NoiseStream

__all__ = ["below", "cells", "coins", "drawn", "masks", "randomly_rounded", "subsets", "words"]

Words = NDArray[np.uint64]


def words(noise: NoiseStream, count: int) -> Words:
    """Independent uniform 64-bit words."""
    return np.frombuffer(noise.bits(8 * count), dtype="<u8")


def coins(noise: NoiseStream, chance: int, count: int) -> NDArray[np.bool_]:
    """Independent coins, each true with probability ``chance / 2^64``."""
    return words(noise, count) < np.uint64(chance)


def drawn(noise: NoiseStream, share: float, count: int) -> NDArray[np.bool_]:
    """Independent coins, each true with probability `share` below 1."""
    return coins(noise, math.floor(share * WORD), count)


def below(noise: NoiseStream, bound: int, count: int) -> NDArray[np.int64]:
    """Independent uniform integers below `bound`; words of an incomplete last round are redrawn."""
    drawn = np.array(words(noise, count))
    last = np.uint64(WORD - WORD % bound - 1)
    while (again := drawn > last).any():
        drawn[again] = words(noise, int(again.sum()))
    return (drawn % np.uint64(bound)).astype(np.int64)


def randomly_rounded(noise: NoiseStream, values: Array) -> NDArray[np.int64]:
    """Values rounded to a neighbouring integer with the odds that keep their means.

    The odds are good to 2^-53. This only chooses what goes into a private coin.
    """
    uniform = (words(noise, values.size) >> np.uint64(11)) * 2.0**-53
    return np.floor(values + uniform.reshape(values.shape)).astype(np.int64)


def subsets(noise: NoiseStream, bound: int, size: int, count: int) -> NDArray[np.int64]:
    """Uniform subsets (count, size) of the integers below `bound`, ascending.

    The next member is uniform among the integers left, and moved past those taken before it.
    """
    taken = np.empty((count, 0), dtype=np.int64)
    for i in range(size):
        member = below(noise, bound - i, count)
        for other in taken.T:
            member += member >= other
        taken = np.sort(np.column_stack([taken, member]), axis=1)
    return taken


def cells(rows: Array, noise: NoiseStream) -> NDArray[np.intp]:
    """A cell for each row of shares; it only chooses what goes into a private coin."""
    uniform = (words(noise, len(rows)) >> np.uint64(11)) * 2.0**-53
    passed = (np.cumsum(rows, axis=1) <= uniform[:, None]).sum(axis=1)
    held: NDArray[np.intp] = np.minimum(passed, rows.shape[1] - 1)
    return held


def masks(noise: NoiseStream, bound: int, size: int, count: int) -> NDArray[np.bool_]:
    """Uniform subsets of `size` of the integers below `bound`, as masks (count, bound).

    Floyd's algorithm: of 0, ..., j one is drawn, and j in its place if that was taken before.
    """
    taken, every = np.zeros((count, bound), dtype=np.bool_), np.arange(count)
    for j in range(bound - size, bound):
        drawn = below(noise, j + 1, count)
        taken[every, np.where(taken[every, drawn], j, drawn)] = True
    return taken
