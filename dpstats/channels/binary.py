"""One number by one bit: randomised response on a randomly rounded sign."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting.events import Pure
from dpstats.channels.base import WORD, Array, Domain, Payloads, check_channel, outside_words

__all__ = ["Binary"]


@dataclass(frozen=True, slots=True)
class Binary:
    """Duchi's randomiser of a number v in [-1, 1].

    v is rounded to a sign, +1 with probability (1 + v)/2; the sign is sent, flipped with
    probability 1/(1 + e^epsilon). Decoded as +-B with B = (e^epsilon + 1)/(e^epsilon - 1).

    Guarantee: pure epsilon-DP. The flip is randomised response on two signs, and v only chooses the
    odds of the sign that goes into it; the flip's probability is a whole number of 2^-64, rounded
    up. Variance B^2 - v^2, the smallest possible worst case.

    References
    ----------
    Duchi, Jordan & Wainwright (2018), Minimax optimal procedures for locally private estimation.
    """

    dim: int
    epsilon: float
    name: ClassVar[str] = "binary"
    domain: ClassVar[Domain] = "linf"
    delta: ClassVar[float] = 0.0
    payload_bytes: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_channel(self.name, self.dim, self.epsilon, scalar=True)

    @property
    def flip_words(self) -> int:
        """Probability of a flip in units of 2^-64."""
        return outside_words(self.epsilon, 1, 1)

    @property
    def size(self) -> float:
        """B, what a sign is decoded to."""
        return WORD / (WORD - 2 * self.flip_words)

    @property
    def event(self) -> Pure:
        """Pure(epsilon)."""
        return Pure(self.epsilon)

    def decode(self, payloads: Payloads) -> Array:
        """+-B, (m, 1)."""
        return np.where(payloads == 1, self.size, -self.size)

    def accepts(self, payloads: Payloads) -> NDArray[np.bool_]:
        """The bytes 0 and 1."""
        accepted: NDArray[np.bool_] = payloads[:, 0] <= 1
        return accepted

    def variance(self, square_norm: float = 1.0) -> float:
        """B^2 - v^2."""
        return self.size**2 - square_norm

    def log_density(self, payloads: Payloads, value: Array) -> Array:
        """Log of 1/2 + sign v / (2B)."""
        sign = np.where(payloads[:, 0] == 1, 1.0, -1.0)
        log: Array = np.log(0.5 + 0.5 * sign * float(value[0]) / self.size)
        return log
