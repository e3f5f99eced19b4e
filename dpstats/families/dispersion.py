"""The score of a negative binomial law in its dispersion."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError
from dpstats.families.exponential import Family

__all__ = ["Dispersion"]

Array = NDArray[np.float64]

_ALPHAS = (1e-3, 1e3)  # numerical: below, digits cancel


@dataclass(frozen=True)
class Dispersion(Family):
    """The derivative in alpha of a negative binomial log-likelihood, of mean mu.

    With r = 1 / alpha and the digamma function psi,

        s = r (y - r (psi(y + r) - psi(r))) + r^2 log(1 + alpha mu) - (y + r) mu / (1 + alpha mu)

    (Lawless 1987, "Negative binomial and mixed Poisson regression", section 2). Its mean is zero
    under the law, and so is that of its derivative in mu, ``(mu - y) / (1 + alpha mu)^2``: an error
    of the mean matters only by its square. It grows as y does.

    Parameters
    ----------
    name : {"dispersion"}
    link : {"log"}
    alpha : float
        Public, from 0.001 to 1,000.
    """

    def __post_init__(self) -> None:
        low, high = _ALPHAS
        known = (self.name, self.link) == ("dispersion", "log") and not self.released
        if not (known and low <= self.alpha <= high):
            raise OptionError(
                f"family {self.name!r} ({self.link!r}) with alpha={self.alpha!r}: 'dispersion' "
                f"('log') with alpha from {low:g} to {high:g} is needed."
            )

    @classmethod
    def at(cls, alpha: float) -> Dispersion:
        """The score at `alpha`, or at the nearest that it is computed for."""
        return cls("dispersion", "log", alpha=min(max(alpha, _ALPHAS[0]), _ALPHAS[1]))

    @property
    def domain(self) -> tuple[float, float]:
        """Counts, or rates."""
        return 0.0, math.inf

    @property
    def largest_curvature(self) -> float:
        """None."""
        return math.inf

    def residual(self, y: Array, eta: Array) -> Array:
        """The score of each row."""
        from scipy.special import digamma

        alpha, mu = self.alpha, self.mean(eta)
        counts = np.maximum(np.ascontiguousarray(y, dtype=np.float64), 0.0)
        seen = alpha * counts - (digamma(counts + 1 / alpha) - digamma(1 / alpha))
        scaled = alpha * mu
        known = np.log1p(scaled) - (1 + alpha * counts) * (scaled / (1 + scaled))
        score: Array = (seen + known) / alpha**2
        return score

    def mean(self, eta: Array) -> Array:
        """Mean of the response."""
        return np.asarray(np.exp(np.clip(np.ascontiguousarray(eta, dtype=np.float64), -30, 30)))
