"""The default private multinomial logit: all levels by the same noisy Newton steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError
from dpstats.estimators.base import need_delta
from dpstats.estimators.bounds import GRAM_SEEN, NEWTON, NEWTON_UPPER, SMALL_DELTA
from dpstats.estimators.central.counted import CountingMethod, counted_plan
from dpstats.estimators.central.newton.budget import all_noise, last_noise, peels, requests
from dpstats.estimators.central.newton.expectation import least_variance, predicted
from dpstats.estimators.central.newton.levels import Levels, maximize_levels
from dpstats.estimators.central.newton.typical import Case
from dpstats.estimators.central.scales.search import in_found_scales, with_scales, without_scales
from dpstats.estimators.guesses import enough
from dpstats.estimators.sources import BEGG, DONG
from dpstats.families import BINOMIAL, MULTINOMIAL
from dpstats.privacy import Privacy
from dpstats.protocol import Holder, Options, Plan
from dpstats.protocol.levels import LevelsEstimate, level_names
from dpstats.queries import Query
from dpstats.theory import Assumption, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["MultinomialNewton"]

Array = NDArray[np.float64]

_THEORY = Theory(
    estimand=(
        "the coefficients of largest likelihood of these rows, log odds of each level against the "
        "first, which are those of the multinomial logit that is nearest to the population"
    ),
    guarantee=(
        "(epsilon, delta)-DP for every data set: every answer is a Gaussian mechanism on a sum "
        "whose sensitivity its query enforces by clipping (counts 1; histograms sqrt(2); Gram "
        "matrices and curvatures sqrt(2) R^2 under replace-one, R^2 under add-remove; scores of "
        "all levels together, of length C, 2 C, C; their squares sqrt(2) C^2, C^2), composed "
        "exactly as one Gaussian mechanism."
    ),
    assumptions=(
        Assumption("Linear predictors vary by no more than a few units"),
        Assumption("No level is rare: each has many times as many rows as there are coefficients"),
        GRAM_SEEN,
        SMALL_DELTA,
    ),
    upper=NEWTON_UPPER,
    lower=(),
    citations=(NEWTON, BEGG, DONG.at("Corollary 3.3")),
)
_MOST = 400  # numerical: coefficients, whose covariance is a matrix of their square
_RARE = 40.0  # noises: rows of the rarest level that are clear
_NODES, _CHANCES = np.polynomial.hermite_e.hermegauss(17)  # numerical: normal linear predictors


@dataclass(frozen=True)
class MultinomialNewton(CountingMethod[LevelsEstimate]):
    """Multinomial logit by noisy Newton steps in whitened coordinates, all levels at once.

    With K levels and u = e_y - pi without the base, the score of a row is the matrix ``u z'``. Its
    length is ``||u|| ||z||``, and is clipped as one number: replacing a row moves the whole score
    by twice the clip, however many levels there are. K - 1 logits of pairs of levels would split
    the budget, and each would see the rows of two levels only.

    1. Release the number of rows and those of each level. The inverse root A of the covariance of
       u at these shares makes the information of all levels the unit matrix where slopes are 0: a
       row of level y has ``||A u||^2 = 1 / p_y - 1``.
    2. Whiten rows by two noisy Gram matrices (`whiten`).
    3. The steps of the default logit (`Newton`), for the (K - 1) d coefficients together: two early
       scores ``A u z'`` from the released shares; a histogram of their lengths and three counts,
       which choose the clip; two last scores with what is left of the budget.
    4. Release the bread D, sum of ``(A S A') x (z z')``, S = diag(pi) - pi pi', averaged with what
       a model of normal rows expects of it, and the meat M, the squares of scores.

    Notes
    -----
    *Guarantee.* Every question is a Gaussian mechanism whose sensitivity its query computes and
    enforces: `Count`, `ResponseHistogram`, `Search` (of `NormQuantile`), `Gram`, `LevelScore`,
    `LevelLengths`, `LevelCount`, `LevelCurvature`, `LevelSquares`. Later questions depend on the
    data only through earlier answers, so the whole fit has the cost of one Gaussian mechanism
    (Dong, Roth & Su 2022, Corollary 3.3), which the plan states; the rest is post-processing.

    *Covariance.* ``D^-1 [M n/(n-d) + (s^2 + a E^2) I + L] D^-1`` as for the logit: it makes no
    assumption on the law of levels. The part that is not sampling bounds the distance to the fit of
    the same rows without privacy.

    *Levels.* They are declared, the base first. A level whose rows the noise nearly hides is said.
    """

    name: ClassVar[str] = "newton"
    model: ClassVar[str] = "mnlogit"
    sandwich: ClassVar[bool] = True
    families: ClassVar[frozenset[tuple[str, str]]] = frozenset(
        {(MULTINOMIAL.name, MULTINOMIAL.link)}
    )
    theory: ClassVar[Mapping[str, Theory]] = {"central": _THEORY}
    options: ClassVar[Mapping[str, str]] = {}

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        need_delta(self.name, privacy)
        levels = Levels.of(design)
        names = level_names(levels.names, design.names)
        if len(names) > _MOST:
            raise OptionError(
                f"{levels.q + 1} levels and {len(design.names)} columns make {len(names)} "
                f"coefficients; at most {_MOST} are fitted. Merge levels, or leave out columns."
            )
        asks = with_scales(requests(design, privacy, n, peels(design)), design, privacy, n)
        plan = counted_plan(self, design, privacy, n, asks, {})
        plan = _spread(predicted(plan, design, _variances), design, levels)
        plan = replace(plan, parameters=names, warnings=(*_rare(plan, design), *plan.warnings))
        return without_scales(plan, design)

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> LevelsEstimate:
        """Whiten, step, and ask for what standard errors need."""
        return in_found_scales(maximize_levels, holder, design)


def _shares(design: Design, rarest: float | None = None) -> Array:
    """Shares of levels as they are declared; else equal, or with one that is rare."""
    declared, levels = design.schema, Levels.of(design)
    assert declared is not None
    assert design.endog is not None
    known = declared[design.endog.name].shares  # type: ignore[union-attr]
    if known is not None:
        shares = np.maximum(np.asarray(known, dtype=np.float64), 1e-6)
        return np.asarray(shares / shares.sum(), dtype=np.float64)
    shares = np.full(levels.q + 1, 1.0)
    if rarest is not None and rarest < 1 / shares.size:
        shares[1:] = (1 - rarest) / levels.q
        shares[0] = rarest
    return np.asarray(shares / shares.sum(), dtype=np.float64)


def _factors(shares: Array) -> Array:
    """Variance of the coefficients of each level in units of whitened ones: 1 / p_y + 1 / p_0."""
    factors: Array = 1 / shares[1:] + 1 / shares[0]
    return factors


def _variances(plan: Plan, design: Design, case: Case) -> tuple[float, float]:
    """Of a whitened row's coefficients times n, of the noise and of sampling; mean over levels."""
    shares = _shares(design, float(BINOMIAL.mean(np.array([case.mean]))[0]))
    lengths = np.sqrt(1 / shares - 1)[:, None] * case.lengths
    chances = np.repeat(shares / case.lengths.size, case.lengths.size)
    peeled, d = peels(design), (shares.size - 1) * len(design.names)
    noise = last_noise(plan, design, peeled), all_noise(plan, design, peeled)
    private = least_variance(lengths.ravel(), plan.n * chances, noise, d)
    slopes = BINOMIAL.slope(case.spread * _NODES) @ _CHANCES / _CHANCES.sum()
    slope = float(slopes / BINOMIAL.slope(np.zeros(1))[0])
    unit = float(np.mean(_factors(shares)))
    return unit * private / plan.n / slope**2, unit / slope


def _spread(plan: Plan, design: Design, levels: Levels) -> Plan:
    """The plan with an expected error of each coefficient of each level."""
    relative = _factors(_shares(design))
    relative = np.sqrt(relative / relative.mean())
    ends = np.asarray(plan.predicted_range)
    return replace(
        plan,
        predicted_se=tuple(float(r * se) for r in relative for se in plan.predicted_se),
        predicted_range=tuple(
            (float(r * low), float(r * high)) for r in relative for low, high in ends
        ),
        predicted_units=plan.predicted_units * levels.q,
    )


def _rare(plan: Plan, design: Design) -> tuple[str, ...]:
    """A warning where noise nearly hides how many rows a level has, as far as it is declared."""
    shares = _shares(design)
    noise = math.sqrt(2.0) * plan.noise_multiplier("levels")
    factor = _RARE * noise / (plan.n * float(shares.min()))
    if factor <= 1:
        return ()
    name = Levels.of(design).names[int(shares.argmin())]
    return (
        f"Level {name!r} is rare at n={plan.n:,} and epsilon={plan.privacy.epsilon:g}: its "
        f"coefficients may be far off. {enough(plan, factor)} Or merge it with another level.",
    )
