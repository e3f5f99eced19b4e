"""The default private quantile regression: noisy Newton steps, whitened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpstats.estimators.base import need_delta, need_level
from dpstats.estimators.bounds import GRAM_SEEN, NEWTON, NEWTON_UPPER, SMALL_DELTA
from dpstats.estimators.central.counted import CountingMethod, counted_plan
from dpstats.estimators.central.newton.expectation import least_variance, predicted
from dpstats.estimators.central.newton.quantile_descent import (
    last_quantile_noise,
    minimize,
    norm_density,
    quantile_requests,
)
from dpstats.estimators.central.newton.typical import Case
from dpstats.estimators.central.scales.search import in_found_scales, with_scales, without_scales
from dpstats.estimators.guesses import enough
from dpstats.estimators.sources import ANGRIST, DONG, KOENKER
from dpstats.privacy import Privacy
from dpstats.protocol import CoefficientEstimate, Holder, Options, Plan
from dpstats.queries import Query
from dpstats.theory import Assumption, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["QuantileNewton"]

_THEORY = Theory(
    estimand=(
        "the coefficients of the linear q-quantile of the response: those of least mean check "
        "loss in the population"
    ),
    guarantee=(
        "(epsilon, delta)-DP for every data set: every answer is a Gaussian mechanism on a sum "
        "whose sensitivity its query enforces by clipping (counts 1; histograms sqrt(2); Gram "
        "matrices and curvatures sqrt(2) R^2 under replace-one, R^2 under add-remove; scores of "
        "length C 2 C, C; their squares sqrt(2) C^2, C^2), composed exactly as one Gaussian "
        "mechanism."
    ),
    assumptions=(
        Assumption("The response has a smooth density about its quantile: few rows have one value"),
        GRAM_SEEN,
        SMALL_DELTA,
    ),
    upper=NEWTON_UPPER,
    lower=(),
    citations=(NEWTON, KOENKER, ANGRIST, DONG.at("Corollary 3.3")),
)
_MEDIAN = 0.5  # wording: the quantile of a regression that names none
_FEW = 5.0  # noises: rows beyond the quantile, at least


@dataclass(frozen=True)
class QuantileNewton(CountingMethod[CoefficientEstimate]):
    """Quantile regression by noisy Newton steps in whitened coordinates.

    The score of a row, ``z (q - 1{y < z'b})``, is no longer than the row: nothing of the response
    is clipped, however long its tails are. It jumps, but its mean does not, and a Newton step needs
    no more than the mean: no smoothing, and none of its bias.

    1. Release the number of rows, and whiten them by two noisy Gram matrices (`whiten`).
    2. Release a histogram of their lengths, and cut rows at the length R that is best for the noise
       and for what it leaves out (`TailLaw`).
    3. Three early steps. Each releases the q-quantile of residuals, which moves the intercept; a
       width that a share of them is within, which is their density f; and a score, for ``b <- b +
       (n f M)^-1 S`` with the whitened second moments M.
    4. Release the density at 0: shares of residuals within h and 2 h, whose bias of second order
       cancels in ``(4 f_h - f_2h) / 3``. Release the squares of rows within 2 h, whose shape and
       level, each averaged with that of equal densities in all rows, make it the bread D.
    5. Two last scores with what is left of the budget, and a Newton step from each; both count for
       the last, since each is linear in where it was asked.
    6. Release squares of scores, averaged with ``q (1 - q) n M``: the meat.

    Notes
    -----
    *Guarantee.* Every question is a Gaussian mechanism whose sensitivity its query computes and
    enforces: `Count`, `Search` (of `NormQuantile`, `ResponseQuantile`, `ResidualQuantile`), `Gram`,
    `NormHistogram`, `ResidualCount`, `WhitenedScore`, `ScoreCurvature`, `ScoreSquares`. Later
    questions depend on the data only through earlier answers, so the whole fit has the cost of one
    Gaussian mechanism (Dong, Roth & Su 2022, Corollary 3.3), which the plan states; the rest is
    post-processing.

    *Covariance.* About the coefficients of the population it is ``D^-1 [M n/(n-d) + (s^2 + a E^2)
    I + L] D^-1``, with M the meat, noise of scale s, E what the cut leaves out, at most, and L for
    the error of D times the last step, as for least squares (`Newton`). It holds whatever the
    variances of responses are, and where the quantile is not linear (Angrist, Chernozhukov &
    Fernandez-Val 2006). The fit of the same rows without privacy is not where the noise alone puts
    it, since a score that jumps is not quite linear; so there is no bound on the distance to it
    beyond the interval.

    *Ties.* Where many responses have one value, such as 0 visits, the quantile has no density and
    no such law of errors, with or without privacy.
    """

    name: ClassVar[str] = "newton"
    model: ClassVar[str] = "quantreg"
    sandwich: ClassVar[bool] = True
    theory: ClassVar[Mapping[str, Theory]] = {"central": _THEORY}
    options: ClassVar[Mapping[str, str]] = {"q": "the quantile, between 0 and 1 (default 0.5)"}

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        need_delta(self.name, privacy)
        level = need_level(options.get("q", _MEDIAN))
        asks = with_scales(quantile_requests(design, level), design, privacy, n)
        plan = counted_plan(self, design, privacy, n, asks, {"q": level})

        def variances(plan: Plan, design: Design, case: Case) -> tuple[float, float]:
            largest, density = max(level, 1 - level), norm_density(level) / case.spread
            lengths = largest * case.lengths
            numbers = np.full(lengths.size, plan.n / lengths.size)
            noise = last_quantile_noise(plan)
            private = least_variance(lengths, numbers, (noise, noise), len(design.names))
            return private / plan.n / density**2, level * (1 - level) / density**2

        plan = predicted(plan, design, variances)
        plan = replace(plan, warnings=(*_too_few(plan, level), *plan.warnings))
        return without_scales(plan, design)

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> CoefficientEstimate:
        """Whiten, step, and ask for what standard errors need."""
        level = float(plan.options["q"])
        return in_found_scales(lambda h, d: minimize(h, d, level), holder, design)


def _too_few(plan: Plan, level: float) -> tuple[str, ...]:
    """A warning where too few rows lie beyond the quantile to be told from none."""
    noise = plan.noise_multiplier("width 1")
    factor = _FEW * noise / (plan.n * min(level, 1 - level))
    if factor <= 1:
        return ()
    return (
        f"Too few rows lie beyond q={level:g} at n={plan.n:,} and epsilon="
        f"{plan.privacy.epsilon:g}: coefficients may be far off. {enough(plan, factor)}",
    )
