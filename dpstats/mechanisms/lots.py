"""Lots: secret random numbers of the rows of a table, which decide what their positions must not.

Which part of the rows, which pair, and which of a person's rows beyond ``max_rows`` a row falls in
may not follow from where it stands: in a table sorted by a private column, one person's change
moves all rows between the old place and the new one. Every row draws a lot instead.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["BLOCK", "GivenKey", "Lots", "LotsWindow", "RandomBits"]

Positions = NDArray[np.intp]
Words = NDArray[np.uint64]

_KEY_BYTES = 32
BLOCK = 2**16  # lots made at a time: 1 MiB
_BIN_BITS = 12  # lots are ranked among those that share so many leading bits


class RandomBits(Protocol):
    """Where keys come from; every `NoiseStream` is one."""

    def bits(self, count: int) -> bytes:
        """`count` uniform random bytes."""
        ...


@dataclass
class GivenKey:
    """A key that was drawn elsewhere, for the same lots in another process; set before it is used.

    Attributes
    ----------
    key : bytes
        As `Lots.key`. Private.
    """

    key: bytes = b""

    def bits(self, count: int) -> bytes:
        """The key."""
        if len(self.key) != count:
            raise ValueError(f"A key has {count} bytes.")
        return self.key


class Lots:
    """One secret random number of 128 bits for each row: SHAKE-256 of a fresh key and its position.

    Nothing of the length of the table is kept: lots are made again whenever they are read, block by
    block, in memory or beside rows on disk.

    Parameters
    ----------
    noise : RandomBits
        Draws the key, when a lot is first needed.
    count : int
        Number of rows n.

    Notes
    -----
    *Parts are disjoint and of exact size.* Ranks of lots are a permutation of 0 ... n - 1 (of two
    equal lots, which any two rows of n draw with probability below n^2 2^-129, the earlier row goes
    first), and `dealt` cuts them at ``n k // parts``. Sizes follow from n and `parts` alone, so
    they say nothing about rows where n is public; where n is private no parts are dealt.

    *One row's change moves one part, whatever the order of rows.* Let what is released depend on
    rows and lots through the *set* of pairs (row, lot): exact sums over parts do, since sums have
    the same bits in any order. Lots are independent and alike (SHAKE-256 with a secret key is
    taken for a random function), so reordering the rows leaves the law of what is released as it
    was. Let B be A with one row replaced, in any order. Put B into the order of A, with the
    replaced row in its old place. Given the lots, which do not depend on rows, ranks are the same
    in both tables: every part holds the same rows in both, but for the part of the replaced row. So
    the mechanisms on the parts compose in parallel given the lots, hence (epsilon, delta) given the
    lots, hence (epsilon, delta) averaged over them.

    *Rows of a unit.* The rows of each unit with the smallest lots are kept: a uniformly random
    choice of them, whatever their order, and whatever the rows of other units are.
    """

    def __init__(self, noise: RandomBits, count: int) -> None:
        self._noise = noise
        self._count = count
        self._edges: dict[int, tuple[int, np.uint64, np.uint64]] = {}

    @cached_property
    def key(self) -> bytes:
        """What all lots follow from; drawn when first needed. Private."""
        return self._noise.bits(_KEY_BYTES)

    def __len__(self) -> int:
        return self._count

    def dealt(self, part: int, parts: int) -> Positions:
        """Rows of one of `parts` disjoint parts, in order of their lots."""
        n = self._count
        return self.ranked(n * part // parts, n * (part + 1) // parts)

    def ranked(self, begin: int, end: int) -> Positions:
        """Rows whose lots have the ranks `begin` to ``end - 1`` among all, in order of their lots.

        Takes a pass over the lots, and memory for these rows and the lots of two bins.
        """
        if begin >= end:
            return np.zeros(0, dtype=np.intp)
        before = self._before
        first, last = (int(np.searchsorted(before, r, side="right")) - 1 for r in (begin, end - 1))
        positions: list[Positions] = []
        lots: list[Words] = []
        for start in range(0, self._count, BLOCK):
            here = self._lots(start)
            bins = self._bins(here)
            among = np.flatnonzero((bins >= first) & (bins <= last))
            positions.append(among + start)
            lots.append(here[among])
        drawn = np.concatenate(lots)
        order = np.lexsort((drawn[:, 1], drawn[:, 0]))  # stable: of equal lots the earlier row
        ranked: Positions = np.concatenate(positions)[order]
        return ranked[begin - int(before[first]) : end - int(before[first])]

    def among(self, start: int, part: int, parts: int) -> Positions:
        """Rows of a part, as `dealt` deals them, in one block of `BLOCK` rows; ascending.

        Takes a pass over all lots once for each part, and memory for a block.
        """
        low, high = (self._count * p // parts for p in (part, part + 1))
        return self.between(start, low, high)

    def between(self, start: int, begin: int, end: int) -> Positions:
        """Rows that `ranked` ranks, in one block of `BLOCK` rows; ascending."""
        here = self._lots(start)
        mine = self._from(here, start, begin) & ~self._from(here, start, end)
        positions: Positions = start + np.flatnonzero(mine)
        return positions

    def _from(self, lots: Words, start: int, rank: int) -> NDArray[np.bool_]:
        """Which rows of the block that begins at `start` have this rank among all, or a later one.

        Of two equal lots the earlier row goes first, as in `ranked`.
        """
        if rank <= 0 or rank >= self._count:
            return np.full(len(lots), rank <= 0)
        if rank not in self._edges:
            at = int(self.ranked(rank, rank + 1)[0])
            self._edges[rank] = (at, *self._lots(at - at % BLOCK)[at % BLOCK])
        at, first, second = self._edges[rank]
        ties = (lots[:, 0] == first) & (lots[:, 1] == second)
        later = np.arange(start, start + len(lots)) >= at
        beyond = (lots[:, 0] > first) | ((lots[:, 0] == first) & (lots[:, 1] > second))
        return np.asarray(beyond | (ties & later))

    @cached_property
    def _before(self) -> NDArray[np.int64]:
        """How many lots are in the bins before each."""
        counts = np.zeros(1 << _BIN_BITS, dtype=np.int64)
        for start in range(0, self._count, BLOCK):
            counts += np.bincount(self._bins(self._lots(start)), minlength=counts.size)
        return np.concatenate([[0], np.cumsum(counts)])

    def _lots(self, start: int) -> Words:
        """Lots of the block of rows that begins at `start`, shape (m, 2): two words each."""
        block = (start // BLOCK).to_bytes(8, "big")
        digest = hashlib.shake_256(self.key + block).digest(16 * min(BLOCK, self._count - start))
        return np.frombuffer(digest, dtype="<u8").reshape(-1, 2)

    @staticmethod
    def _bins(lots: Words) -> NDArray[np.int64]:
        return (lots[:, 0] >> np.uint64(64 - _BIN_BITS)).astype(np.int64)


class LotsWindow(Lots):
    """Lots of consecutive rows of a larger table; positions are those among them.

    Which part a row falls in is decided among all rows: parts of windows that tile a table, put
    together, are those of the table.

    Parameters
    ----------
    whole : Lots
        Of the whole table.
    start, count : int
        The first of the rows, and their number.
    """

    def __init__(self, whole: Lots, start: int, count: int) -> None:
        self._whole, self._start, self._count = whole, start, count
        self._of_part: dict[tuple[int, int], Positions] = {}

    def dealt(self, part: int, parts: int) -> Positions:
        """Rows of these that are in one of `parts` parts of the table; in order of position."""
        if (part, parts) not in self._of_part:
            stop = self._start + self._count
            firsts = range(self._start - self._start % BLOCK, stop, BLOCK)
            found = [self._whole.among(first, part, parts) for first in firsts]
            every = np.concatenate(found) if found else np.zeros(0, dtype=np.intp)
            here = every[(every >= self._start) & (every < stop)] - self._start
            self._of_part[part, parts] = here
        return self._of_part[part, parts]

    def ranked(self, begin: int, end: int) -> Positions:
        """Not of a part of the rows."""
        raise ValueError("Ranks are of a whole table.")

    def among(self, start: int, part: int, parts: int) -> Positions:
        """Rows of a part in one block of `BLOCK` of these rows; ascending."""
        mine = self.dealt(part, parts)
        low, high = np.searchsorted(mine, [start, start + BLOCK])
        return mine[low:high]
