"""A vector by a direction of its hemisphere, named by a seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting.events import Pure
from dpstats.channels.base import Array, Domain, Payloads, check_channel
from dpstats.channels.sphere import SEED_BYTES, Cap, cap_at, directions
from dpstats.errors import OptionError

__all__ = ["Hemisphere"]


@dataclass(frozen=True, slots=True)
class Hemisphere:
    """The randomiser of Duchi, Jordan & Wainwright for the unit ball; a message is a seed.

    v is rounded to w = v/|v| with probability (1 + |v|)/2, else to -w; v = 0 to a fair sign of the
    first axis. A seed is sent whose direction u has <u, w> >= 0 with probability
    e^epsilon/(1 + e^epsilon); see `sphere`. It is decoded to B u with

        B = (e^epsilon + 1)/(e^epsilon - 1) sqrt(pi) Gamma((d + 1)/2) / Gamma(d/2),

    the constant that makes it unbiased.

    Guarantee: pure epsilon-DP, the two hemispheres being equally large for every w; |v| only
    chooses the odds of w. Variance B^2 - |v|^2.

    `PrivUnit` is never much worse, and far better above epsilon 1.

    References
    ----------
    Duchi, Jordan & Wainwright (2018), Minimax optimal procedures for locally private estimation.
    Zhu et al. (2024), equation (6), which has the constant up to its order.
    """

    dim: int
    epsilon: float
    name: ClassVar[str] = "hemisphere"
    domain: ClassVar[Domain] = "l2"
    delta: ClassVar[float] = 0.0
    payload_bytes: ClassVar[int] = SEED_BYTES

    def __post_init__(self) -> None:
        check_channel(self.name, self.dim, self.epsilon)
        if self.dim == 1:
            raise OptionError("Channel 'hemisphere' of one number is \"binary\": ask for that.")

    @property
    def cap(self) -> Cap:
        """The hemisphere."""
        return cap_at(self.dim, self.epsilon, 0.0)

    @property
    def size(self) -> float:
        """B, the norm of what is decoded."""
        return 1 / self.cap.mean

    @property
    def event(self) -> Pure:
        """Pure(epsilon)."""
        return Pure(self.epsilon)

    def chance(self, values: Array) -> Array:
        """Probability (m,) that values (m, d) are rounded to their own direction."""
        norm: Array = np.sqrt(np.einsum("ij,ij->i", values, values))
        return np.minimum(0.5 * (1 + norm), 1.0)

    def poles(self, values: Array, up: NDArray[np.bool_]) -> Array:
        """Values (m, d) rounded to w = v/|v|, or to -w where not `up`."""
        norm = np.sqrt(np.einsum("ij,ij->i", values, values))
        rounded = values / np.where(up, 1.0, -1.0)[:, None] / np.where(norm > 0, norm, 1.0)[:, None]
        rounded[norm == 0, 0] = np.where(up[norm == 0], 1.0, -1.0)
        return rounded

    def decode(self, payloads: Payloads) -> Array:
        """B u, (m, dim)."""
        decoded: Array = self.size * directions(payloads, self.dim)
        return decoded

    def accepts(self, payloads: Payloads) -> NDArray[np.bool_]:
        """Every 16 bytes are a seed."""
        return np.ones(len(payloads), dtype=np.bool_)

    def variance(self, square_norm: float = 1.0) -> float:
        """B^2 - |v|^2."""
        return self.size**2 - square_norm

    def log_density(self, payloads: Payloads, value: Array) -> Array:
        """Log of the mixture over w and -w."""
        pole = self.poles(value[None, :], np.array([True]))[0]
        chance = float(self.chance(value[None, :])[0])
        side = directions(payloads, self.dim) @ pole >= 0
        near, far = self.cap.log_density(side), self.cap.log_density(~side)
        log: Array = np.log(chance * np.exp(near - far) + 1 - chance) + far
        return log
