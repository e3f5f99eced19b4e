"""A vector by a few of its coordinates, chosen at random, each randomised by itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting.events import Pure
from dpstats.channels.base import SMALLEST_EPSILON, Array, Domain, Payloads, check_channel
from dpstats.channels.binary import Binary
from dpstats.channels.piecewise import CELLS, TYPICAL_SQUARE, Piecewise

__all__ = ["CoordinateSampling"]

Scalar: TypeAlias = Binary | Piecewise
_MOST = 64  # coordinates in a message


@dataclass(frozen=True, slots=True)
class CoordinateSampling:
    """k of d coordinates, each by a scalar channel at epsilon/k, for vectors of the box [-1, 1]^d.

    k coordinates are drawn uniformly without replacement; each is sent with its index by `Binary`
    or `Piecewise`, and decoded to d/k times its own estimate, the others to 0. k, about
    epsilon/4, and the scalar channel are those with the smallest variance.

    Guarantee: pure epsilon-DP. Which coordinates are sent does not depend on the value, and given
    them the message is k independent messages of epsilon/k each.

    Variance (d/k) sum_j E s_j^2 - |v|^2, where s_j is the estimate of coordinate j alone. Smaller
    than that of `PrivUnit` at small epsilon where values fill the box.

    References
    ----------
    Duchi, Jordan & Wainwright (2018), section 4.2.3. Wang et al. (2019), Algorithm 4.
    """

    dim: int
    epsilon: float
    name: ClassVar[str] = "coordinate"
    domain: ClassVar[Domain] = "linf"
    delta: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        check_channel(self.name, self.dim, self.epsilon)

    @property
    def sampled(self) -> int:
        """k, how many coordinates are sent."""
        return _best(self.dim, self.epsilon)[0]

    @property
    def scalar(self) -> Scalar:
        """The channel of each of them."""
        return _best(self.dim, self.epsilon)[1]

    @property
    def index(self) -> np.dtype[np.unsignedinteger]:
        """Type of an index in a message."""
        return np.dtype("<u2" if self.dim <= 2**16 else "<u4")

    @property
    def payload_bytes(self) -> int:
        """k indices in ascending order, then k messages of the scalar channel."""
        return self.sampled * (self.index.itemsize + self.scalar.payload_bytes)

    @property
    def event(self) -> Pure:
        """Pure(epsilon)."""
        return Pure(self.epsilon)

    def split(self, payloads: Payloads) -> tuple[NDArray[np.int64], Payloads]:
        """Indices (m, k) of messages, and the messages (m k, ...) of the scalar channel."""
        border = self.sampled * self.index.itemsize
        indices = np.ascontiguousarray(payloads[:, :border]).view(self.index).astype(np.int64)
        return indices, payloads[:, border:].reshape(-1, self.scalar.payload_bytes)

    def decode(self, payloads: Payloads) -> Array:
        """d/k times the estimates at their indices, 0 elsewhere, (m, dim)."""
        indices, inner = self.split(payloads)
        decoded = np.zeros((len(payloads), self.dim))
        estimates = self.scalar.decode(inner).reshape(indices.shape)
        np.put_along_axis(decoded, indices, self.dim / self.sampled * estimates, axis=1)
        return decoded

    def accepts(self, payloads: Payloads) -> NDArray[np.bool_]:
        """Ascending indices of coordinates, and messages of the scalar channel."""
        indices, inner = self.split(payloads)
        ascending = (np.diff(indices, axis=1) > 0).all(axis=1)
        known = self.scalar.accepts(inner).reshape(indices.shape).all(axis=1)
        accepted: NDArray[np.bool_] = ascending & (indices[:, -1] < self.dim) & known
        return accepted

    def variance(self, square_norm: float = 1.0) -> float:
        """Over all coordinates, for any value with this square norm.

        Exact for a binary scalar channel. That of a piecewise one depends on where a value lies
        between cells, for which the most is counted: below one part in 10^6 at epsilon <= 8.
        """
        return _variance(self.dim, self.sampled, self.scalar, square_norm)

    def log_density(self, payloads: Payloads, value: Array) -> Array:
        """Log of 1 / (d choose k) and of the k scalar messages."""
        indices, inner = self.split(payloads)
        flat, scalars = indices.ravel(), np.zeros(indices.size)
        for j in np.unique(flat):
            at = flat == j
            scalars[at] = self.scalar.log_density(inner[at], value[j : j + 1])
        subsets = math.log(math.comb(self.dim, self.sampled))
        log: Array = scalars.reshape(indices.shape).sum(axis=1) - subsets
        return log


def _variance(dim: int, sampled: int, scalar: Scalar, square_norm: float) -> float:
    if isinstance(scalar, Binary):
        second = dim * scalar.size**2
    else:
        law = scalar.law
        grid = dim / (CELLS - law.width) ** 2
        second = dim * law.constant + law.slope * (square_norm + grid)
    return dim / sampled * second - square_norm


@lru_cache(maxsize=256)
def _best(dim: int, epsilon: float) -> tuple[int, Scalar]:
    """Number of coordinates and scalar channel with the smallest variance at typical values."""
    candidates: list[tuple[int, Scalar]] = []
    for sampled in range(1, min(dim, _MOST) + 1):
        # k times this is at most epsilon, in spite of rounding.
        each = epsilon if sampled == 1 else math.nextafter(epsilon / sampled, 0.0)
        if each < SMALLEST_EPSILON:
            break
        candidates += [(sampled, Binary(1, each)), (sampled, Piecewise(1, each))]
    return min(candidates, key=lambda c: _variance(dim, c[0], c[1], TYPICAL_SQUARE * dim))
