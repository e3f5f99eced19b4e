"""A vector by a direction that prefers the vector's side: PrivUnit, named by a seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting.events import Pure
from dpstats.channels.base import Array, Domain, Payloads, check_channel
from dpstats.channels.sphere import SEED_BYTES, Cap, cap_at, directions, widest_mean

__all__ = ["PrivUnit"]


@dataclass(frozen=True, slots=True)
class PrivUnit:
    """PrivUnit with the best cap, for vectors of the unit ball; a message is a seed.

    v in R^d is lifted to w = (v, +-sqrt(1 - |v|^2)) on the sphere of R^(d+1), with a fair sign. A
    seed is sent whose direction u lies in the cap {<u, w> >= t} with probability q; see `sphere`.
    E u = M w, so u/M without its last coordinate is unbiased for v. t is where M is largest.

    Guarantee: pure epsilon-DP, as for every w a seed inside its cap is at most e^epsilon times as
    likely as one outside; the lift only mixes two w.

    Variance (1 - E u_(d+1)^2) / M^2 - |v|^2, where E u_(d+1)^2 = s (1 - |v|^2) + (1 - s) |v|^2 / d
    with s = E u_1^2.

    References
    ----------
    Bhowmick et al. (2018), Protection against reconstruction. Asi, Feldman & Talwar (2022), Optimal
    algorithms for mean estimation under local differential privacy: no other unbiased epsilon-DP
    channel for the sphere has a smaller variance.
    """

    dim: int
    epsilon: float
    name: ClassVar[str] = "privunit"
    domain: ClassVar[Domain] = "l2"
    delta: ClassVar[float] = 0.0
    payload_bytes: ClassVar[int] = SEED_BYTES

    def __post_init__(self) -> None:
        check_channel(self.name, self.dim, self.epsilon)

    @property
    def cap(self) -> Cap:
        """The cap on the sphere of R^(d+1)."""
        coordinates = self.dim + 1
        return cap_at(coordinates, self.epsilon, widest_mean(coordinates, self.epsilon))

    @property
    def event(self) -> Pure:
        """Pure(epsilon)."""
        return Pure(self.epsilon)

    def chance(self, values: Array) -> Array:
        """Probability (m,) that values (m, d) are lifted up: 1/2."""
        return np.full(len(values), 0.5)

    def poles(self, values: Array, up: NDArray[np.bool_]) -> Array:
        """Values (m, d) lifted to w (m, d + 1), up or down."""
        height = np.sqrt(np.maximum(1 - np.einsum("ij,ij->i", values, values), 0.0))
        lifted = np.empty((len(values), self.dim + 1))
        lifted[:, :-1] = values
        lifted[:, -1] = np.where(up, height, -height)
        return lifted

    def decode(self, payloads: Payloads) -> Array:
        """u/M without the last coordinate, (m, dim)."""
        cap = self.cap
        decoded: Array = directions(payloads, cap.coordinates)[:, :-1] / cap.mean
        return decoded

    def accepts(self, payloads: Payloads) -> NDArray[np.bool_]:
        """Every 16 bytes are a seed."""
        return np.ones(len(payloads), dtype=np.bool_)

    def variance(self, square_norm: float = 1.0) -> float:
        """Exact, for every value of this norm."""
        cap = self.cap
        last = cap.square * (1 - square_norm) + (1 - cap.square) * square_norm / self.dim
        return (1 - last) / cap.mean**2 - square_norm

    def log_density(self, payloads: Payloads, value: Array) -> Array:
        """Log of the mean over both lifts."""
        cap, named = self.cap, directions(payloads, self.cap.coordinates)
        up, down = self.poles(np.stack([value, value]), np.array([True, False]))
        logs = [cap.log_density(named @ w >= cap.threshold) for w in (up, down)]
        log: Array = np.logaddexp(*logs) - np.log(2.0)
        return log
