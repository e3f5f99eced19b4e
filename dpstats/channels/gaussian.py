"""A vector plus Gaussian noise, exactly calibrated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting.calibration import Share, calibrate
from dpstats.accounting.events import Gaussian
from dpstats.channels.base import Array, Domain, Payloads, check_channel
from dpstats.channels.grid import fits, integers, step_for
from dpstats.errors import OptionError

__all__ = ["GaussianNoise"]

_REACH = 16.0  # standard deviations beyond which messages are cut off
# Rounding to the grid of 2^-30 can push two values of d <= 2^20 coordinates apart by
# sqrt(d) 2^-30 <= 2^-20; they are at most 2 apart, up to a few ulp of the projection.
_ROUNDING = 1 + 2.0**-20


@dataclass(frozen=True, slots=True)
class GaussianNoise:
    """A vector of the unit ball plus discrete Gaussian noise.

    The projected vector is rounded to whole steps of 2^-30, exact discrete noise is added, and each
    coordinate is rounded to 16 bits for the message.

    Guarantee: (epsilon, delta)-DP with delta > 0. Two values of the ball are at most 2 apart, and
    the scale of the noise is 2 (1 + 2^-20) times the exact multiplier of Balle & Wang, which the
    accountant finds with what the grid costs; rounding the sums is post-processing.

    Variance d sigma^2, whatever the value.

    References
    ----------
    Balle & Wang (2018), Improving the Gaussian mechanism for differential privacy, Theorem 8.
    Canonne, Kamath & Steinke (2020), The discrete Gaussian for differential privacy.
    """

    dim: int
    epsilon: float
    delta: float
    name: ClassVar[str] = "gaussian"
    domain: ClassVar[Domain] = "l2"

    def __post_init__(self) -> None:
        check_channel(self.name, self.dim, self.epsilon)
        if not 0 < self.delta < 1:
            raise OptionError(
                f"Channel 'gaussian' with delta={self.delta!r}: Gaussian noise needs delta in "
                '(0, 1), such as 1e-6. For delta = 0 ask for "privunit" or "coordinate".'
            )

    @property
    def payload_bytes(self) -> int:
        """Two for each coordinate."""
        return 2 * self.dim

    @property
    def event(self) -> Gaussian:
        """Least noise for the guarantee."""
        return _least_noise(self.epsilon, self.delta)

    @property
    def sigma(self) -> float:
        """Standard deviation of each coordinate's noise."""
        return 2 * _ROUNDING * self.event.noise_multiplier

    @property
    def step(self) -> float:
        """What one unit of the message stands for."""
        return step_for(1 + _REACH * self.sigma)

    def decode(self, payloads: Payloads) -> Array:
        """Whole steps, (m, dim)."""
        return np.multiply(self.step, integers(payloads), dtype=np.float64)

    def accepts(self, payloads: Payloads) -> NDArray[np.bool_]:
        """All 16-bit integers but one."""
        return fits(payloads)

    def variance(self, square_norm: float = 1.0) -> float:
        """d sigma^2, and that of rounding."""
        return self.dim * (self.sigma**2 + self.step**2 / 12)

    def log_density(self, payloads: Payloads, value: Array) -> Array:
        """Log probability, with the density in the middle of each cell."""
        deviations = (self.decode(payloads) - value) / self.sigma
        cell = math.log(self.step / self.sigma) - 0.5 * math.log(2 * math.pi)
        log: Array = self.dim * cell - 0.5 * (deviations**2).sum(axis=1)
        return log


@lru_cache(maxsize=256)
def _least_noise(epsilon: float, delta: float) -> Gaussian:
    event = calibrate({"message": Share(Gaussian.kind, 1.0)}, epsilon, delta)["message"]
    assert isinstance(event, Gaussian)
    return event
