"""The check function of quantile regression: its derivative, and what stands for the second."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError
from dpstats.families.exponential import Family

__all__ = ["Check"]

Array = NDArray[np.float64]

_WIDEST = 2.0**60  # numerical: of bandwidths and their inverses, whose products overflow nowhere


@dataclass(frozen=True)
class Check(Family):
    """The derivative of the check function, ``rho(y - eta) = (y - eta) (tau - 1{y < eta})``.

    The mean of rho is least where eta is the tau-quantile of the response (Koenker & Bassett 1978,
    "Regression quantiles").

    Parameters
    ----------
    name : {"quantile"}
    link : {"identity"}
    level : float
        tau, public, in (0, 1).
    bandwidth : float
        Half-width of the kernel behind `information`, public, in internal units.
    """

    level: float = 0.5
    bandwidth: float = 1.0

    def __post_init__(self) -> None:
        known = (self.name, self.link) == ("quantile", "identity")
        if not (known and 0 < self.level < 1 and 1 / _WIDEST <= self.bandwidth <= _WIDEST):
            raise OptionError(
                f"family {self.name!r} ({self.link!r}) with level={self.level!r}, bandwidth="
                f"{self.bandwidth!r}: 'quantile' ('identity') with a level in (0, 1) and a "
                "bandwidth from 2^-60 to 2^60 is needed."
            )

    def __str__(self) -> str:
        """The level, and the bandwidth."""
        return f"{self.name} {self.level:.4g}, bandwidth {self.bandwidth:.4g}"

    @property
    def domain(self) -> tuple[float, float]:
        """Any response."""
        return -math.inf, math.inf

    @property
    def largest_curvature(self) -> float:
        """That of every row within the bandwidth."""
        return 0.5 / self.bandwidth

    @property
    def largest(self) -> float:
        """Largest size of `residual`: max(tau, 1 - tau)."""
        return max(self.level, 1 - self.level)

    def residual(self, y: Array, eta: Array) -> Array:
        """``tau - 1{y < eta}``; ``tau - 1/2`` where they are the same."""
        jump: Array = self.level - 0.5 + 0.5 * np.sign(y - eta)
        return jump

    def information(self, y: Array, eta: Array) -> Array:
        """``1 / (2 bandwidth)`` where the response is within the bandwidth of eta; else 0.

        Its mean is about the density of the response at eta: minus the derivative of the mean
        residual, which a derivative of the residual itself would miss.
        """
        return np.where(np.abs(y - eta) <= self.bandwidth, self.largest_curvature, 0.0)

    def mean(self, eta: Array) -> Array:
        """None: a quantile says nothing of the mean."""
        raise OptionError(f"{self}: it has a quantile, and no mean that eta moves.")
