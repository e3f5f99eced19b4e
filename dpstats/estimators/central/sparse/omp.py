"""The default sparse method: private orthogonal matching pursuit, for linear and logit models."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpstats.accounting import epsilon_of, gdp_mu
from dpstats.errors import OptionError, PlanError, among, given, is_whole
from dpstats.estimators.base import Request, need_delta, need_positive
from dpstats.estimators.bounds import SMALL_DELTA, SPARSE_GLM_LOWER, SPARSE_LOWER, rates
from dpstats.estimators.central.counted import CountingMethod, counted_plan
from dpstats.estimators.central.newton.newton import Newton
from dpstats.estimators.central.sandwich import COUNT
from dpstats.estimators.central.scales.search import in_found_scales, with_scales, without_scales
from dpstats.estimators.central.sparse.halves import need_halves, on_second_half, second_half
from dpstats.estimators.central.sparse.pursuit import Route, expected_errors, pursue
from dpstats.estimators.central.sparse.pursuit_laws import layout
from dpstats.estimators.guesses import max_rows, sufficient
from dpstats.estimators.selection import CONDITIONAL, INFERENCE, error_with, half_of, per_round
from dpstats.estimators.sources import BREIMAN, CAI, DURFEE, SCORE_ATTACK, TROPP
from dpstats.privacy import Privacy
from dpstats.protocol import Answer, CoefficientEstimate, Estimator, Holder, Options, Plan
from dpstats.queries import Geometry, Gram, Query, Score
from dpstats.theory import Assumption, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["OMP"]

_START = 0.02  # budget: a start for the intercept
_SIZE = 0.04  # budget: how many columns to keep, where several numbers are asked for
_SPREAD = 0.008  # budget: each spread of the residuals; twice in the first round
_NORM = 0.005  # budget: each radius for second moments
_CHOICES = 0.4  # budget: all choices of columns
_GRAMS = 0.12  # budget: all second moments of chosen columns; scores take the rest
_WHITENED = 0.12  # budget: second moments in whitened coordinates, where all columns are in
_GRAM_GROWTH = 1.75  # ratio: of the budgets of second moments from round to round
_SCORE_GROWTH = 1.5  # ratio: of the budgets of scores from step to step
_ROUNDS = {"ols": 5, "logit": 3}  # number: rounds that choose columns
_FIRST_ROUND = {"ols": 0.3, "logit": 0.5}  # share: of the columns that are chosen in the first one
_MORE_STEPS = 2  # number: steps on the chosen columns when all are chosen
_CLEAR_MOMENTS = 0.5  # ratio: noise to second moments of all columns, below which none is chosen
# ratio: variance of noise on a score of all columns to sampling, below which none is chosen
_CLEAR_SCORE = {"ols": 0.2, "logit": 0.1}
_SPARE = 0.25  # ratio: columns chosen beyond those asked for, to those
_THRESHOLD = 1.5  # ses: that a coefficient has to be away from 0
# wording: largest noise over the score of a column that matters, at which half of them are missed,
# nearly all are, and most are found
_WEAK, _HOPELESS, _FINE = 0.75, 1.4, 0.5

_ELSEWHERE = CAI.at("Theorem 4.4, for hard thresholding")

_THEORY = Theory(
    estimand=(
        "coefficients of a model in which at most s columns matter; where more do, those of the "
        "best fit on the columns that were selected"
    ),
    guarantee=(
        "(epsilon, delta)-DP for every data set: choices of k columns are exponential mechanisms "
        "on scores of L-infinity sensitivity 2 u C under replace-one and u C under add-remove "
        "(columns clipped at u, residuals at C); counts, quantiles, Gram matrices (sqrt(2) R^2, "
        "R^2) and scores on the chosen columns (2 R C, R C) are Gaussian mechanisms whose queries "
        "enforce these bounds by clipping. The accountant adds up both kinds together."
    ),
    assumptions=(
        Assumption("At most s columns matter, and none is nearly a combination of others"),
        Assumption("Noise lets them be found", "n eps > 2 s log(d) sqrt(log(1/delta))"),
        SMALL_DELTA,
    ),
    upper=rates(
        "sqrt(s log(d)/n)", "s log(d) sqrt(log(1/delta))/(n eps)", _ELSEWHERE, conjectured=True
    ),
    lower=SPARSE_LOWER,
    citations=(
        TROPP.at("Algorithm 3, without privacy"),
        DURFEE.at("Lemma 4.2"),
        CAI.at("Theorems 4.3 and 4.4"),
        BREIMAN,
    ),
)

_LOGIT = replace(_THEORY, lower=SPARSE_GLM_LOWER, citations=(*_THEORY.citations, SCORE_ATTACK))

_AS_WIDE = (
    "Columns without a declared scale are about as wide as their range: a fit that splits its rows "
    "finds no scales (dp.private_ranges does).",
)


@dataclass(frozen=True)
class OMP(CountingMethod[CoefficientEstimate]):
    """Sparse regression by private orthogonal matching pursuit; the default for wide designs.

    1. Release the number of rows and, with an intercept, a start for it (the median of the
       response, or its mean for a logit).
    2. In each of a few rounds: release the spread of the residuals; choose the next few columns by
       noisy scores, ``|sum_i clip(x_ij, u) psi_i|`` with psi the clipped residual; release the
       second moments of all columns chosen so far; take one Newton step on them, in coordinates
       whitened by these moments, from a noisy clipped score.
    3. Take more steps with growing budgets.
    4. Keep the clearest columns, at most s, and draw coefficients towards zero as far as their
       known standard errors say (post-processing).

    Where public facts say that noise on all columns is small, there is nothing to choose: all are
    in from the first round on, their second moments are released a second time in whitened
    coordinates, and step 4 is the only selection.

    Selection sees residuals of what was fitted before, so that noise shrinks from round to round
    with the residuals' clip, and columns that only echo a chosen one are not chosen.

    Notes
    -----
    *Guarantee.* `CoordinateScores` clips columns and residuals, so that replacing a row moves each
    score by at most 2 u C; choosing the k largest after Gumbel noise has the law of k exponential
    mechanisms, each of bounded range (Durfee & Rogers 2019, Lemma 4.2). All other questions
    (`Count`, `Search`, `Gram`, `Score` on `Selected` columns) are Gaussian mechanisms with
    sensitivities that they enforce. Which columns are asked about depends on earlier answers only.
    The privacy-loss accountant composes bounded-range and Gaussian mechanisms; the plan states the
    result. It does not matter to the guarantee whether any assumption of the model holds.

    *Where noise goes.* A choice pays for u C in every column's score, but only log(d) through the
    largest of d noises; s choices at a budget rho cost noise sqrt(s / rho) u C log d, coefficients
    sqrt(s) C / sqrt(rho) each: together an error of s log(d) sqrt(log(1/delta)) / (n eps), which is
    the lower bound of Cai, Wang & Zhang up to the logarithm of delta. Where noise dominates, u is
    chosen small: the scores are then nearly those of the signs of the columns.

    *Limits.* The support is selected on the rows that coefficients are fitted on: there are no
    valid standard errors unless ``inference="split"``. With highly correlated columns (AR(0.8) and
    above) neighbours of the right columns are chosen at small budgets; see docs/sparse.md.
    """

    model: str
    name: ClassVar[str] = "omp"
    sparse: ClassVar[bool] = True
    options: ClassVar[Mapping[str, str]] = {
        "sparsity": "most columns to select, beside the intercept; several to compare privately; "
        "by default a number planned from n, epsilon and d, of which noise decides how many stay",
        "inference": "'none' (default), or 'split': half of the rows selects columns, the other "
        "estimates on them and gives standard errors, conditional on the selection",
        "lam": "ridge penalty >= 0 per row, in standardised units, intercept excepted; 0 by "
        "default, and with inference='split'",
    }

    @property
    def theory(self) -> Mapping[str, Theory]:
        """What is known under each trust model."""
        return {"central": _LOGIT if self.model == "logit" else _THEORY}

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        need_delta(self.name, privacy)
        asked, inference = options.get("sparsity"), options.get("inference", "none")
        lam = need_positive("lam", options.get("lam"), 0.0, zero=True)
        split = _splits(privacy, design, asked, inference, lam)

        def made(privacy: Privacy, n: int) -> tuple[Plan, Route]:
            rows = half_of(n) if split else n
            sizes = _sizes(design, privacy, rows, asked)
            whole = _cheap(self.model, design, privacy, rows)
            route = _route(self.model, design, sizes, asked is None, split, whole, lam)
            decided = {
                "sparsity": sizes[0] if len(sizes) == 1 else sizes,
                "chosen": asked is None,
                "inference": inference,
                "lam": lam,
            }
            asks = _asks(self.model, design, route)
            asks = asks if split else with_scales(asks, design, privacy, rows)
            return counted_plan(self, design, privacy, rows, asks, decided), route

        def missed(privacy: Privacy, n: int) -> float:
            return _expected(*made(privacy, n), design)[0]

        plan, route = made(privacy, n)
        plan = _predict(plan, design, route)
        if split:
            plan = _with_second_half(plan, design, privacy, n, route.sizes[0])
        # A planned number of columns grows with n and epsilon, and would keep the aim out of reach.
        aim = _WEAK if asked is None else _FINE
        warnings = _warnings(design, missed, aim, privacy, n)
        plan = replace(plan, warnings=(*plan.warnings, *warnings))
        if not split:
            return without_scales(plan, design)
        return replace(plan, assumptions=(*plan.assumptions, *_AS_WIDE[: bool(design.unscaled)]))

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> CoefficientEstimate:
        """Find scales, then choose and fit in rounds.

        Scales that are those of the range, up to their noise, would tell copies of a column apart.
        """
        return in_found_scales(
            lambda h, scaled: self._pursued(h, scaled, plan), holder, design, _WIDE
        )

    def _pursued(self, holder: Holder[Query], design: Design, plan: Plan) -> CoefficientEstimate:
        """Choose and fit in rounds, then fit, then drop what noise explains."""
        sparsity, split = plan.options["sparsity"], plan.options["inference"] == "split"
        sizes = (sparsity,) if isinstance(sparsity, int) else tuple(sparsity)
        whole = _cheap(self.model, design, plan.privacy, half_of(plan.n) if split else plan.n)
        unknown, lam = bool(plan.options["chosen"]), float(plan.options["lam"])
        route = _route(self.model, design, sizes, unknown, split, whole, lam)
        found = pursue(holder, route, layout(design))
        params = np.zeros(len(plan.names))
        if split:
            half = on_second_half(_DENSE[self.model], holder, design, plan, found.columns)
            return half.as_sparse(found.columns, params.size, CONDITIONAL)
        params[list(found.columns)] = found.beta
        nothing = np.full((len(found.columns), len(found.columns)), np.nan)
        return CoefficientEstimate(
            params=params,
            cov=nothing,
            cov_privacy=nothing.copy(),
            nobs=found.n,
            released=found.released,
            support=found.columns,
            inference=INFERENCE,
            remarks=_NEARLY_EQUAL if "most responses are equal" in found.released else (),
        )


def _splits(
    privacy: Privacy, design: Design, sparsity: object, inference: object, lam: float
) -> bool:
    """Whether half of the rows is kept for inference.

    Raises
    ------
    OptionError
        If that is neither asked for nor declined, or not possible.
    """
    if not among(inference, ("none", "split")):
        raise OptionError(f"inference={given(inference)}: allowed are 'none' and 'split'.")
    if inference == "none":
        return False
    need_halves(privacy, design)
    if not is_whole(sparsity):
        raise OptionError(
            f"inference='split' with sparsity={sparsity!r}: the half that estimates is planned "
            "before columns are selected; give one number of columns."
        )
    if lam > 0:
        raise OptionError(
            f"inference='split' with lam={lam:g}: the intervals are for coefficients without a "
            "penalty; leave lam out, or use inference='none'."
        )
    return True


def _with_second_half(plan: Plan, design: Design, privacy: Privacy, n: int, size: int) -> Plan:
    first = tuple(replace(m, branch=1) for m in plan.mechanisms)
    second = second_half(_DENSE[plan.model], design, size, privacy, half_of(n))
    both = replace(plan, n=n, mechanisms=first + second)
    statement = (
        "One half of the rows selects columns, the other estimates on them: intervals are for the "
        "coefficients of the selected model, whichever it is."
    )
    return replace(
        both,
        cost=(epsilon_of(both.events, privacy.delta), privacy.delta),
        assumptions=(*both.assumptions, statement),
    )


def _sizes(
    design: Design, privacy: Privacy, n: int, asked: int | Iterable[int] | None
) -> tuple[int, ...]:
    """Numbers of columns to choose from, ascending."""
    free = len(design.names) - bool(design.has_intercept)
    if free == 0:
        raise OptionError("There is no column to select: the design has an intercept only.")
    if asked is None:
        mu = gdp_mu(privacy.epsilon, privacy.delta)
        affordable = n * mu / (12 * math.log(len(design.names) + 1.0))
        return (int(np.clip(affordable, 1, min(free, 100))),)
    several = (asked,) if isinstance(asked, (int, np.integer)) else tuple(asked)
    if not all(1 <= int(s) <= free for s in several):
        raise OptionError(
            f"sparsity={asked!r}: from 1 to {free:,} columns can be selected (the intercept is "
            "always in and is not counted)."
        )
    return tuple(sorted({int(s) for s in several}))


def _route(
    model: str,
    design: Design,
    sizes: tuple[int, ...],
    unknown: bool,
    split: bool,
    whole: bool,
    lam: float,
) -> Route:
    free = len(design.names) - bool(design.has_intercept)
    total = min(free, sizes[-1] + max(1, round(_SPARE * sizes[-1])))
    chosen = per_round(total, _ROUNDS[model], _FIRST_ROUND[model])
    steps = len(chosen) + _MORE_STEPS
    if whole:
        total, chosen, steps = free, (free,), _ROUNDS[model] + _MORE_STEPS
    threshold = 0.0 if split else _THRESHOLD
    if unknown:
        threshold = max(threshold, math.sqrt(2 * math.log(total + 1.0)))
    return Route(chosen, steps, sizes, threshold, whole, lam)


def _cheap(model: str, design: Design, privacy: Privacy, n: int) -> bool:
    """Whether noise on all columns costs so little that all of them can be kept to the end.

    Public facts decide: the noise on their second moments, over the mean of them, and the noise on
    a score with all the budget, over the sampling variance of unit residuals.
    """
    d, rows = len(design.names), max_rows(design)
    mu = gdp_mu(privacy.epsilon, privacy.delta)
    ball = Geometry(1.0)
    acute = Gram(ball).sensitivity(privacy.neighbors, rows)
    signed = Score(ball, np.zeros(1), 1.0).sensitivity(privacy.neighbors, rows)
    blur = acute * d**1.5 / (mu * math.sqrt(_GRAMS) * n)
    return blur <= _CLEAR_MOMENTS and signed**2 * d / (n * mu**2) <= _CLEAR_SCORE[model]


def _predict(plan: Plan, design: Design, route: Route) -> Plan:
    """The plan with its expected error and its warnings."""
    s, (missed, error) = route.sizes[-1], _expected(plan, route, design)
    names = {"ols": "standard deviations of the residuals", "logit": "logits"}
    assumed = (
        f"The {s} columns that matter are about equally important, and together explain as much as "
        f"{'residuals vary' if plan.model == 'ols' else 'a linear predictor with deviation 1'}.",
        "Columns are as spread as a uniform law on their declared range (standard deviation 1 in "
        "declared scales) and uncorrelated.",
        f"If all of them are found, fitted values are off by about {error:.2g} "
        f"{names[plan.model]} (root mean square).",
    )
    return replace(
        plan,
        predicted_error=error_with(error, missed),
        assumptions=(*plan.assumptions, *assumed),
    )


def _expected(plan: Plan, route: Route, design: Design) -> tuple[float, float]:
    """What will be missed, and the error if nothing is; see `expected_errors`."""
    return expected_errors(_NoHolder(plan), route, layout(design))


def _warnings(
    design: Design, missed: Callable[[Privacy, int], float], aim: float, privacy: Privacy, n: int
) -> tuple[str, ...]:
    """Whether the columns that matter can be found; thresholds from simulation."""
    now = missed(privacy, n)
    if now <= _WEAK:
        return ()
    what = "noise will choose most columns" if now > _HOPELESS else "many columns will be missed"
    remedy = sufficient(lambda privacy, n: missed(privacy, n) / aim, privacy, n)
    free = len(design.names) - bool(design.has_intercept)
    return (
        f"{free:,} columns are many for n={n:,} and epsilon={privacy.epsilon:g}: {what}. {remedy}; "
        "so may fewer candidates, or a smaller sparsity.",
    )


@dataclass(frozen=True)
class _NoHolder:
    """No holder: a plan asks nothing."""

    plan: Plan

    def ask(self, query: Query, slot: str, part: int = 0) -> Answer:
        raise PlanError(f"{slot!r} was asked while planning.")


_NEARLY_EQUAL = (
    "Most responses are nearly equal, or a scale= that was declared of them is far too large. "
    "Residuals are clipped at about the size that all of them "
    "spread by: what far larger ones add is cut off, and effects may come out too small. Whether a "
    "response differs from most is for a logit of a 0/1.",
)
_WIDE = 4.0  # ratio: half of a range to the scale found, from which on it is used
_DENSE: Mapping[str, Estimator] = {
    "ols": Newton(),
    "logit": Newton("logit"),
}  # what estimates on selected columns


def _asks(model: str, design: Design, route: Route) -> list[Request]:
    rounds, steps = range(1, len(route.picks) + 1), range(1, route.steps + 1)
    linear, several = model == "ols", len(route.sizes) > 1
    grams = np.geomspace(1.0, _GRAM_GROWTH ** (len(rounds) - 1), len(rounds))
    scores = np.geomspace(1.0, _SCORE_GROWTH ** (len(steps) - 1), len(steps))
    spent = COUNT.weight + _START * design.has_intercept + _SIZE * several
    spent += _WHITENED if route.whole else _CHOICES
    spent += _GRAMS + _NORM * len(rounds) + _SPREAD * (len(steps) + 1) * linear
    asks = [COUNT]
    if design.has_intercept:
        start = "median of the response" if linear else "mean of the response"
        asks.append(Request("start", _START, f"{start}, to start from"))
    for k in steps:
        if linear:
            weight = _SPREAD * (2 if k == 1 else 1)
            asks.append(Request(f"spread {k}", weight, "spread of the residuals, for the clip"))
        if k <= len(rounds):
            count = route.picks[k - 1]
            columns = f"{count} columns" if count > 1 else "a column"
            purpose = f"choice of {columns} by score"
            choice = Request(f"choice {k}", _CHOICES / len(rounds), purpose, "selection", count)
            asks += [
                *([choice] * (not route.whole)),
                Request(f"norm {k}", _NORM, "a radius that most rows are within"),
                Request(f"gram {k}", float(_GRAMS * grams[k - 1] / grams.sum()), "second moments"),
            ]
        if route.whole and k == 2:
            asks.append(Request("gram 2", _WHITENED, "second moments in whitened coordinates"))
        left = (1 - spent) * float(scores[k - 1] / scores.sum())
        asks.append(Request(f"score {k}", left, "clipped score of a Newton step"))
    if several:
        asks.append(Request("size", _SIZE, "how many columns to keep", "selection"))
    return asks
