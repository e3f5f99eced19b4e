"""One number plus Laplace noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting.events import Laplace
from dpstats.channels.base import Array, Domain, Payloads, check_channel
from dpstats.channels.grid import GRID, LARGEST, fits, integers, step_for

__all__ = ["LaplaceNoise"]

_REACH = 64.0  # scales beyond which messages are cut off; e^-64 is never seen


@dataclass(frozen=True, slots=True)
class LaplaceNoise:
    """A number v in [-1, 1] plus discrete Laplace noise of scale 2/epsilon.

    v is rounded to whole steps of 2^-30, exact noise in whole steps is added, and the sum is
    rounded to 16 bits for the message.

    Guarantee: pure epsilon-DP. Rounded values differ by at most 2^31 steps and the noise has scale
    at least 2^31/epsilon steps; rounding the sum is post-processing.

    Variance 8/epsilon^2: never the smallest, here for comparison and because everybody knows it.
    """

    dim: int
    epsilon: float
    name: ClassVar[str] = "laplace"
    domain: ClassVar[Domain] = "linf"
    delta: ClassVar[float] = 0.0
    payload_bytes: ClassVar[int] = 2

    def __post_init__(self) -> None:
        check_channel(self.name, self.dim, self.epsilon, scalar=True)

    @property
    def event(self) -> Laplace:
        """Noise multiplier 1/epsilon, a little up so that its epsilon is never above."""
        return Laplace((1 + 1e-13) / self.epsilon)

    @property
    def scale(self) -> float:
        """Scale of the noise; the sensitivity is 2."""
        return 2 * self.event.noise_multiplier

    @property
    def step(self) -> float:
        """What one unit of the message stands for."""
        return step_for(1 + _REACH * self.scale)

    def decode(self, payloads: Payloads) -> Array:
        """Whole steps, (m, 1)."""
        return np.multiply(self.step, integers(payloads), dtype=np.float64)

    def accepts(self, payloads: Payloads) -> NDArray[np.bool_]:
        """All 16-bit integers but one."""
        return fits(payloads)

    def variance(self, square_norm: float = 1.0) -> float:
        """8/epsilon^2, and that of rounding."""
        return 2 * self.scale**2 + self.step**2 / 12

    def log_density(self, payloads: Payloads, value: Array) -> Array:
        """Log probability of the 16-bit cell, from the exact law in steps of `GRID`."""
        message = integers(payloads)[:, 0].astype(np.float64)
        ratio, centre = self.step / GRID, np.rint(float(value[0]) / GRID)
        low = (message - 0.5) * ratio - centre
        high = (message + 0.5) * ratio - 1 - centre
        low[message == -LARGEST], high[message == LARGEST] = -_FAR, _FAR
        return _log_mass(low, high, self.scale / GRID)


_FAR = 2.0**80


def _log_mass(low: Array, high: Array, scale: float) -> Array:
    """Log P(low <= X <= high) of the discrete Laplace law, P(x) proportional to e^(-|x|/scale)."""
    low, high = np.where(high < 0, -high, low), np.where(high < 0, -low, high)
    half = -np.log1p(np.exp(-1 / scale))  # log P(X >= 0)
    aside = half - np.maximum(low, 0) / scale + np.log(-np.expm1(-(high - low + 1) / scale))
    below, above = np.minimum(low - 1, -1), np.maximum(high + 1, 1)  # ends of both tails
    across = np.log(-np.expm1(half + below / scale) - np.exp(half - above / scale))
    log: Array = np.where(low > 0, aside, across)
    return log
