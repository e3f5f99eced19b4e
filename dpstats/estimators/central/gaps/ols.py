"""Least squares where covariates are missing: rows are completed, and all answers are fitted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError, given
from dpstats.estimators.base import Request, floor_eigenvalues, need_delta, need_positive
from dpstats.estimators.central.counted import CountingMethod, counted_plan
from dpstats.estimators.central.gaps import expected
from dpstats.estimators.central.gaps.augmented import augmented_requests, maximize_augmented
from dpstats.estimators.central.gaps.conclusion import completed_estimate
from dpstats.estimators.central.gaps.law import Parts
from dpstats.estimators.central.gaps.moments import Moments, moment_requests, row_weights
from dpstats.estimators.central.gaps.theory import GAPS
from dpstats.estimators.central.scales.search import in_found_scales, with_scales, without_scales
from dpstats.estimators.guesses import response_bound
from dpstats.estimators.numerics.released import AnsweredQuery, even_points, fit_released
from dpstats.privacy import Privacy
from dpstats.protocol import CoefficientEstimate, Holder, Options, Plan
from dpstats.queries import (
    Completed,
    Geometry,
    Query,
    ResidualMoment,
    ResidualQuantile,
    Score,
)
from dpstats.theory import Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["CompletedOLS"]

Array = NDArray[np.float64]

_GRAM = 0.33  # budget: second moments of what was observed
_SPREAD = 0.015  # budget: a spread of the residuals, before each step
_SQUARES = 0.03  # budget: squares of residuals after the last step
_STEPS = 3  # number: Newton steps
_GROWTH = 2.5  # ratio: of the budget of a step to that of the one before
_RADIUS = 1.25  # sds: root mean square of whitened columns, beyond which a row is shortened
_QUANTILE, _TO_SD = 0.75, 1.15  # share: of residuals within their spread; its normal value
_SPREADS = np.geomspace(2.0**-13, 1.0, 65)  # numerical: among which it is sought, in the bound
_FIRST_CLIP, _CLIP = 3.0, 2.0  # sds: clip on residuals, in the first step and in later ones
_SQUARED = 3.0  # sds: the same of those that are squared
_KEPT = 0.93  # ratio: curvature of clipped scores to that without clips
_LEAST = 0.02  # numerical: least of second moments of completed rows
_LEAST_SPREAD = 0.2  # ratio: variance of errors to that of residuals of completed rows, at least
_MADE = 2**11  # numerical: made-up rows that second moments of completed rows are averaged over


@dataclass(frozen=True)
class CompletedOLS(CountingMethod[CoefficientEstimate]):
    """Least squares of rows that miss covariates completely at random.

    1. Second moments S of the covariates, from a noisy Gram matrix of rows with 0 in their gaps
       over noisy shares of rows in which two covariates were observed.
    2. A row is completed: what it misses is predicted from what it has, by S (`Completed`).
    3. Three Newton steps from clipped scores of completed rows, whitened by their second moments;
       then the sum of squared residuals.
    4. All answers of 1 and 3 fitted by generalised least squares to normal rows with gaps, which
       costs nothing (`dpstats.estimators.numerics.released`).

    Notes
    -----
    *Guarantee.* Gaussian noise on noisy comparisons, a Gram matrix and scores of completed rows
    (`Completed`, of `Search`, `Gram`, `Score` and `ResidualMoment`), and on signs of what was
    observed (`ObservedPairs`), each with the sensitivity that its query computes, at
    the cost in the plan. A completed row is a function of the row and of
    earlier answers; later questions depend on the data only through earlier answers (Dong, Roth &
    Su 2022, Corollary 3.3).

    *Why completing is right.* Let x* be the best linear predictor of x from what was observed. If
    values are missing completely at random, ``x - x*`` is uncorrelated with x*, so that
    ``E x* (y - x*'b) = E x* (x - x*)'b + E x* (y - x'b) = 0`` at the least-squares coefficients b,
    whatever the laws of x and y are. Filling gaps with a mean leaves the first term.

    *Covariance.* That of the fit of all answers: sampling, noise, gaps and the error of S
    together, if rows are normal and gaps independent of each other. Intervals are given where that
    is asserted (``normal=True``) and a test of it, from released numbers, does not refuse; where it
    does the last Newton step is given. The test sees clipped rows, and cannot see what long ones
    would add: on California housing it refused nothing and coefficients were 15 standard errors
    from least squares.
    """

    name: ClassVar[str] = "em"
    model: ClassVar[str] = "ols"
    theory: ClassVar[Mapping[str, Theory]] = {"central": GAPS}
    options: ClassVar[Mapping[str, str]] = {
        "complete": "public guess of the share of rows that miss no value; for the plan alone",
        "normal": "whether covariates and errors are normal, as is publicly known; default False",
    }

    @property
    def effect_of_gaps(self) -> str:
        """They were completed."""
        return "and were completed from the other columns of their rows"

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        need_delta(self.name, privacy)
        normal = options.get("normal", False)
        if not isinstance(normal, bool):
            raise OptionError(f"normal={given(normal)}: True or False is needed.")
        expected.check_completable(design, normal)
        asks = _requests() if normal else augmented_requests(design, privacy, n)
        asks = with_scales(asks, design, privacy, n)
        plan = counted_plan(self, design, privacy, n, asks, {"normal": normal})
        share = need_positive("complete", options.get("complete"), 1.0, most=1.0)
        if normal:
            plan = expected.expect_completed(plan, design, share, _RADIUS, _CLIP)
        else:
            plan = expected.expect_augmented(plan, design, share)
        return without_scales(plan, design)

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> CoefficientEstimate:
        """Ask for moments, step, and fit all of it."""
        estimate = _estimate if plan.options["normal"] else maximize_augmented
        return in_found_scales(estimate, holder, design)


def _requests() -> list[Request]:
    growing = _GROWTH ** np.arange(_STEPS)
    asks = moment_requests(_GRAM)
    left = 1 - sum(ask.weight for ask in asks) - _STEPS * _SPREAD - _SQUARES
    for t, part in enumerate(growing / growing.sum(), 1):
        asks.append(Request(f"spread {t}", _SPREAD, "spread of the residuals, for the clip"))
        asks.append(Request(f"score {t}", float(left * part), "score of completed rows"))
    asks.append(Request("squares", _SQUARES, "squares of residuals of completed rows"))
    return asks


def _estimate(holder: Holder[Query], design: Design) -> CoefficientEstimate:
    moments = Moments.of(holder, design)
    law = moments.law(moments.precision)
    made = Parts.of(law.rows(even_points(law.uniforms, _MADE)))
    curvature = floor_eigenvalues(made.completed.T @ made.completed / _MADE, _LEAST)
    metric = Geometry(
        _RADIUS * math.sqrt(len(curvature)), np.linalg.inv(np.linalg.cholesky(curvature))
    )
    beta, spread, scores = _steps(holder, design, law.precision, metric, moments.rows)
    explained = float(beta @ (law.moments - curvature) @ beta)
    variance = max(spread**2 - max(explained, 0.0), _LEAST_SPREAD * spread**2)
    start = replace(law, coef=beta, sigma=math.sqrt(variance))
    finish = fit_released(start, [*moments.asked, *scores], moments.rows)
    unseen = () if moments.unseen is None else tuple(design.names[j] for j in moments.unseen)
    return completed_estimate(start, finish, moments.rows, holder.plan, unseen)


def _steps(
    holder: Holder[Query], design: Design, precision: Array, metric: Geometry, rows: float
) -> tuple[Array, float, list[AnsweredQuery]]:
    """Coefficients after Newton steps, the last spread of residuals, and what was answered."""
    assert metric.whiten is not None
    beta, spread, asked = np.zeros(len(precision)), 1.0, []
    for t in range(_STEPS):
        spreads = ResidualQuantile(response_bound(design) * _SPREADS, _QUANTILE, beta)
        (value,), _ = holder.ask(Completed(spreads, precision), f"spread {t + 1}")
        spread = float(value) / _TO_SD
        query = Score(metric, beta, (_CLIP if t else _FIRST_CLIP) * spread)
        total, noise = holder.ask(Completed(query, precision), f"score {t + 1}")
        asked.append(_asked_score(query, total, noise.sd))
        beta = beta + metric.whiten.T @ total / (rows * _KEPT)
    last = ResidualMoment(metric, beta, _SQUARED * spread)
    (squares,), noise = holder.ask(Completed(last, precision), "squares")
    asked.append(_asked_squares(last, squares, noise.sd))
    return beta, spread, asked


def _asked_score(query: Score, answer: Array, sd: float) -> AnsweredQuery:
    """A score as a question to made-up rows."""

    def contributions(made: Array) -> Array:
        z, weights, residual = _clipped(query, made)
        shortened: Array = z * (residual * weights**2)[:, None]
        return shortened

    return AnsweredQuery(contributions, answer, sd)


def _asked_squares(query: ResidualMoment, answer: float, sd: float) -> AnsweredQuery:
    """Squares of residuals as a question to made-up rows."""

    def contributions(made: Array) -> Array:
        _, weights, residual = _clipped(query, made)
        squares: Array = ((residual * weights) ** 2)[:, None]
        return squares

    return AnsweredQuery(contributions, np.array([answer]), sd)


def _clipped(query: Score | ResidualMoment, made: Array) -> tuple[Array, Array, Array]:
    """Whitened completed rows, their weights, and their clipped residuals."""
    parts, whiten = Parts.of(made), query.geometry.whiten
    assert whiten is not None
    z = parts.completed @ whiten.T
    residual = np.clip(parts.y - parts.completed @ query.beta, -query.clip, query.clip)
    return z, row_weights(z, query.geometry), residual
