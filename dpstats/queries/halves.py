"""Which rows are in which half of a table: public, and fixed by their number alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["half", "scattered"]

Positions = NDArray[np.intp]

_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio: its multiples are evenly scattered


def scattered(n: int) -> Positions:
    """A fixed order of n rows in which neighbours of the table are far apart."""
    keys = np.arange(n, dtype=np.uint64) * np.uint64(_GOLDEN)
    return np.argsort(keys, kind="stable")


def half(n: int, branch: int) -> Positions:
    """Positions, ascending, of the rows in the first or second half of n (1, 2), or all (0).

    Halves are dealt out by a fixed scrambling of positions, so that a sorted table does not make
    unlike ones.
    """
    if branch == 0:
        return np.arange(n)
    order = scattered(n)
    return np.sort(order[: n // 2] if branch == 1 else order[n // 2 :])
