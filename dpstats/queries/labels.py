"""What a holder of private responses beside public covariates may be asked.

The rows of the design are public, so that a question may name any public row of numbers for each
response: nothing but the responses is hidden. Responses are in the design's internal units, and
held to a public interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import PlanError

if TYPE_CHECKING:
    from dpstats.channels import Channel

__all__ = [
    "ColumnScores",
    "HeldSums",
    "Interval",
    "LabelQuery",
    "LabelSums",
    "RandomizedLabels",
    "SquaredResiduals",
    "WeightedResiduals",
    "Whitened",
]

Array = NDArray[np.float64]
Positions = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Interval:
    """Where responses are held, in internal units: others are moved to the nearer end.

    A missing response is taken to be in the middle.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.high - self.low) and self.low < self.high):
            raise PlanError(f"Interval({self.low!r}, {self.high!r}): low < high are needed.")

    @property
    def middle(self) -> float:
        """Centre."""
        return self.low / 2 + self.high / 2

    @property
    def half(self) -> float:
        """Half of the width."""
        return self.high / 2 - self.low / 2

    def parameters(self) -> dict[str, Any]:
        """Public description for the privacy report."""
        return {"interval": [self.low, self.high]}


class LabelQuery(Protocol):
    """A question to a holder of responses."""

    @property
    def name(self) -> str:
        """Name in the privacy report."""
        ...

    @property
    def interval(self) -> Interval:
        """Where responses are held."""
        ...

    def parameters(self) -> Mapping[str, Any]:
        """Public parameters, JSON-able."""
        ...


@dataclass(frozen=True)
class RandomizedLabels:
    """Every response, randomised once on its own device; the answer is (n,), unbiased.

    Guarantee: that of the channel, for each response; different responses meet independent noise.
    """

    interval: Interval
    channel: Channel
    name: str = "randomised responses"

    def parameters(self) -> Mapping[str, Any]:
        """Interval and channel."""
        return {**self.interval.parameters(), "channel": self.channel.name}


@dataclass(frozen=True, eq=False)
class LabelSums:
    """``rows' y`` for public rows (n, k) and centred responses; the answer is (k,).

    Guarantee: replacing one response by another moves the answer by at most the width of the
    interval times the largest norm of a row.
    """

    interval: Interval
    rows: Array
    name: str = "sums of responses"

    def parameters(self) -> Mapping[str, Any]:
        """Interval and the largest norm of a row."""
        return {**self.interval.parameters(), "row norm": _longest(self.rows)}


@dataclass(frozen=True, eq=False)
class HeldSums:
    """``sum row (held(y) - middle)``, each response held to a public interval of its own.

    The interval of a response is where public facts and earlier answers expect it; the answer is
    (k,), for public rows (n, k) and the ends and middles of those intervals.

    Guarantee: rows and intervals are public and stay, so that replacing one response by another
    moves the answer by at most the largest ``(high - low) ||row||``.
    """

    interval: Interval
    rows: Array
    low: Array
    high: Array
    name: str = "sums of held responses"

    def __post_init__(self) -> None:
        if not bool(np.all((self.low < self.high) & np.isfinite(self.high - self.low))):
            raise PlanError("HeldSums: low < high are needed, for every response.")

    @property
    def middle(self) -> Array:
        """Centres, (n,)."""
        return self.low / 2 + self.high / 2

    @property
    def half(self) -> Array:
        """Halves of the widths, (n,)."""
        return self.high / 2 - self.low / 2

    def parameters(self) -> Mapping[str, Any]:
        """Interval, and the largest norm of a row times the width of its interval."""
        longest = _longest(self.rows * (2 * self.half)[:, None])
        return {**self.interval.parameters(), "width times row norm": longest}


@dataclass(frozen=True, eq=False)
class ColumnScores:
    """The columns with the largest ``|sum_i a_ij clip(y_i - fitted_i, -clip, clip)|``.

    Entries of column j are ``a_ij = clip((x_ij - center_j) / scale_j, -1, 1)``, so that rows are
    neither copied nor made dense. The answer is the positions of as many columns as the planned
    selection chooses.

    Guarantee: rows are public and stay, so that replacing one response moves every sum, and its
    size, by at most 2 clip times the largest entry, which is at most 1.

    Parameters
    ----------
    rows : ndarray or CSR array of shape (n, d)
        Public rows.
    fitted : ndarray of shape (n,)
        Public.
    clip : float
    center, scale : ndarray of shape (d,)
        Public, of each column.
    columns : ndarray of int of shape (k,)
        Columns that may be chosen.
    """

    interval: Interval
    rows: Any
    fitted: Array
    clip: float
    center: Array
    scale: Array
    columns: Positions
    name: str = "choice of columns by scores"

    def parameters(self) -> Mapping[str, Any]:
        """Interval, clip and the number of columns to choose from."""
        return {**self.interval.parameters(), "clip": self.clip, "candidates": len(self.columns)}


@dataclass(frozen=True, eq=False)
class SquaredResiduals:
    """Sum of ``min(|y - fitted|, clip)^2`` for public fitted values (n,); the answer is (1,).

    Guarantee: every term is in [0, clip^2], so that one response moves the sum by at most clip^2.
    """

    interval: Interval
    fitted: Array
    clip: float
    name: str = "squared residuals"

    def parameters(self) -> Mapping[str, Any]:
        """Interval and clip."""
        return {**self.interval.parameters(), "clip": self.clip}


@dataclass(frozen=True, eq=False)
class WeightedResiduals:
    """Sum of ``min(|y - fitted|, clip)^2 row row'`` for public rows (n, k); the answer is (k, k).

    The clip is one for all rows, or one for each, (n,).

    Guarantee: the row of a response and its clip are public and stay, so that one response moves
    the sum by a matrix between 0 and ``clip^2 row row'``.
    """

    interval: Interval
    rows: Array
    fitted: Array
    clip: float | Array
    name: str = "outer products of scores"

    def parameters(self) -> Mapping[str, Any]:
        """Interval, largest clip and the largest norm of a row."""
        clip = float(np.max(self.clip))
        return {**self.interval.parameters(), "clip": clip, "row norm": _longest(self.rows)}


@dataclass(frozen=True, eq=False)
class Whitened:
    """Public rows in coordinates in which their weighted second moments are 1.

    With leverages ``h = x' (X'X)^-1 x`` and weights ``w = min(1, radius / sqrt(h))``, rows are
    ``b = root w^2 x``, where ``root = (X' W^2 X)^(-1/2)``. Then ``root (sum b y)`` is the weighted
    least-squares fit, and noise on ``sum b y`` has the shape of its sampling error.

    Parameters
    ----------
    x : ndarray of shape (n, d)
        Public rows.
    radius : float
        Rows with larger square roots of leverages are weighted down; in (0, 1].
    """

    x: Array
    radius: float

    @cached_property
    def _weights(self) -> Array:
        size = np.linalg.norm(self.x @ _inverse_root(self.x.T @ self.x), axis=1)
        weights: Array = np.minimum(1.0, self.radius / np.maximum(size, 1e-300)) ** 2
        return weights

    @cached_property
    def root(self) -> Array:
        """(d, d), symmetric."""
        return _inverse_root((self.x * self._weights[:, None]).T @ self.x)

    @cached_property
    def rows(self) -> Array:
        """(n, d)."""
        made: Array = (self.x * self._weights[:, None]) @ self.root
        return made

    @property
    def longest(self) -> float:
        """Largest norm of a row."""
        return _longest(self.rows)


def _longest(rows: Array) -> float:
    return float(np.sqrt(np.einsum("ij,ij->i", rows, rows).max(initial=0.0)))


def _inverse_root(matrix: Array) -> Array:
    values, vectors = np.linalg.eigh(matrix)
    root: Array = (vectors / np.sqrt(np.maximum(values, values[-1] * 1e-14))) @ vectors.T
    return root
