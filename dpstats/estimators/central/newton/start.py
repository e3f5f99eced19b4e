"""Where a generalised linear model starts: the linear predictor that no column explains."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.central.newton.normal_rows import NOWHERE, NormalPredictor
from dpstats.estimators.central.newton.whitening import FAR_ROW
from dpstats.families import BINOMIAL, GAUSSIAN, POISSON, Family
from dpstats.families.damped import DampedFamily
from dpstats.protocol import Holder
from dpstats.queries import Geometry, Gram, Query, ResponseQuantile, Score

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["Start"]

Array = NDArray[np.float64]

_REST = -30.0  # numerical: linear predictor at which a mean is nothing


@dataclass(frozen=True, eq=False)
class Start:
    """The linear predictor of a response that no column explains, and the law of offsets.

    Of weighted rows n is the released sum of weights, each held to 1: averages are by these.
    """

    holder: Holder[Query]
    design: Design
    n: float
    weighted: bool = False

    def __call__(self) -> tuple[float, NormalPredictor]:
        """Constant to start from, 0 without an intercept, and the law of offsets."""
        weights = self.design.weights
        if weights is not None and not self.weighted and self.design.has_intercept:
            (total,), (_, noise) = self.holder.ask(Gram(self.geometry), "weights")
            return replace(self, n=max(float(total[0]), noise), weighted=True)()
        offset = self.public_offset()
        if self.design.standardization.intercept is None:
            return 0.0, offset
        family = self.design.family
        if family.name == "binomial":
            return self.log_odds(offset), offset
        mean, error = self.mean_response()
        if family.link == "identity":
            return max(mean, error), offset
        if self.design.offset is not None:
            # The mean of exp(offset) is a curvature: that of counts at coefficients 0.
            largest = math.exp(self.design.offset.upper)
            query = Gram(self.geometry, self.nothing, None, POISSON, largest)
            ((total,),), (_, noise) = self.holder.ask(query, "exposure")
            exposure = max(float(total), noise) / self.n  # of weights held to 1, as the mean is
            offset = NormalPredictor(math.log(exposure) - offset.sd**2 / 2, offset.sd)
            mean, error = mean / exposure, error / exposure
        return math.log(max(mean, error)), offset

    @property
    def nothing(self) -> Array:
        """Coefficients 0."""
        return np.zeros(len(self.design.names))

    @property
    def geometry(self) -> Geometry:
        """The constant column alone."""
        constant = np.arange(self.nothing.size) == self.design.standardization.intercept
        return Geometry(1.0, constant[None, :].astype(np.float64))

    def public_offset(self) -> NormalPredictor:
        """Offsets as spread as a uniform law on their declared range."""
        known = self.design.offset
        if known is None:
            return NOWHERE
        return NormalPredictor(
            (known.lower + known.upper) / 2, (known.upper - known.lower) / math.sqrt(12)
        )

    def log_odds(self, offset: NormalPredictor) -> float:
        """The constant at which the released mean is expected."""
        # Without an offset the residual is +-1/2.
        clip = 0.5 if self.design.offset is None else 1.0
        excess, error = self.mean(self.nothing, clip, BINOMIAL)
        base = float(offset.average(BINOMIAL.mean(offset.eta)))
        share = float(np.clip(base + excess, error, 1 - error))
        low, high = _REST, -_REST
        for _ in range(50):
            middle = (low + high) / 2
            eta = middle + offset.eta
            more = float(offset.average(self.design.family.mean(eta))) > share
            low, high = (low, middle) if more else (middle, high)
        return low

    def mean_response(self) -> tuple[float, float]:
        """Noisy mean of the response (under an identity link less the offset), and its noise."""
        family = self.design.family
        low, high = self.design.internal_endog_bounds
        top = max(abs(low), abs(high))
        grid = top * np.geomspace(2.0**-16, 1.0, 33)
        (found,), _ = self.holder.ask(ResponseQuantile(grid, 0.9), "level")
        least = 1.0 if family.name in ("poisson", "negativebinomial") else 0.0
        clip = min(top, FAR_ROW * max(float(found), least))
        plain, unit, beta = self.plain(top)
        mean, error = self.mean(beta, clip * unit, plain)
        return mean / unit, error / unit

    def plain(self, top: float) -> tuple[Family, float, Array]:
        """A family, a unit and coefficients whose residual is the response, in that unit."""
        family, rest = self.design.family, self.nothing
        if family.link == "identity":
            return DampedFamily(family.name, family.link, 2 * top), 1 / (2 * top), rest
        rest[self.design.standardization.intercept] = _REST
        if family.name != GAUSSIAN.name:
            return POISSON, 1.0, rest
        unit = math.exp(_REST)
        return DampedFamily(family.name, family.link, unit), unit, rest

    def mean(self, beta: Array, clip: float, family: Family) -> tuple[float, float]:
        """Noisy mean of a clipped residual, and the size of its noise; below half of the clip."""
        (total,), (_, noise) = self.holder.ask(Score(self.geometry, beta, clip, family), "mean")
        return float(total) / self.n, min(noise / self.n, 0.49 * clip)
