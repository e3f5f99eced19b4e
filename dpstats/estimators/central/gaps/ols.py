"""Least squares where covariates are missing: rows are completed, and their scores augmented."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.base import Request, need_delta, need_positive
from dpstats.estimators.central.counted import CountingMethod, counted_plan
from dpstats.estimators.central.gaps.expected import check_completable, expect_completed
from dpstats.estimators.central.gaps.moments import SecondMoments, moment_requests
from dpstats.estimators.central.gaps.questions import AugmentedQuestions, CompletingHolder
from dpstats.estimators.central.gaps.theory import GAPS
from dpstats.estimators.central.newton.budget import COUNT, requests
from dpstats.estimators.central.newton.climb import whitened
from dpstats.estimators.central.newton.likelihood import PredictorClimb
from dpstats.estimators.central.newton.normal_rows import NormalRows
from dpstats.estimators.central.scales.search import in_found_scales, with_scales, without_scales
from dpstats.estimators.guesses import response_grid
from dpstats.privacy import Privacy
from dpstats.protocol import CoefficientEstimate, Holder, Options, Plan
from dpstats.queries import Query, ResponseQuantile
from dpstats.theory import Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["AugmentedOLS"]

Array = NDArray[np.float64]

_GRAM = 0.1  # budget: second moments of what was observed
_CLEAR = 2.0  # wording: noises above which it is known how rows vary along a direction
_UNKNOWN = "none: how columns vary together is not known, by which rows are completed"


@dataclass(frozen=True)
class AugmentedOLS(CountingMethod[CoefficientEstimate]):
    """Least squares of rows that miss covariates completely at random.

    1. Second moments S of the columns, from a noisy Gram matrix of rows with 0 in their gaps over
       noisy shares of rows in which two columns were observed.
    2. A row is completed: what it misses is predicted from what it has, by S (`Completed`).
    3. Completed rows are whitened as in the default fit of whole rows (`Newton`). What that
       released of them tells of S, too, by which they are completed from then on
       (`SecondMoments.refined`).
    4. Two early steps, a clip from released lengths of scores, two last steps, bread and meat, as
       there. The score is the augmented one (`dpstats.queries.augmented`).

    Notes
    -----
    *Guarantee.* Gaussian noise on noisy comparisons, Gram matrices of completed rows (`Completed`,
    of `Search` and `Gram`), signs of what was observed (`ObservedPairs`), and on sums, squares,
    curvatures, lengths and counts of augmented scores (`AugmentedScore`, `AugmentedSquares`,
    `AugmentedCurvature`, `AugmentedLengths`, `AugmentedCount`), each with the sensitivity that its
    query computes, at the cost in the plan. A completed row and its score are functions of the row
    and of earlier answers; later questions depend on the data only through earlier answers (Dong,
    Roth & Su 2022, Corollary 3.3).

    *Why completing is right.* Let x* be the best linear predictor of x from what was observed. If
    values are missing completely at random, ``x - x*`` is uncorrelated with x*, so that
    ``E x* (y - x*'b) = E x* (x - x*)'b + E x* (y - x'b) = 0`` at the least-squares coefficients b,
    whatever the laws of x and y are: columns may be dummies, powers or products. Filling gaps with
    a mean leaves the first term.

    *Why scores are augmented.* That holds for the true second moments. With S in their place the
    first term is ``C b``, which is linear in the error of S; sampling and noise of S, and rows that
    were shortened, would each move coefficients by as much as their own errors. The augmented score
    subtracts what every row itself says of ``C b``. Its mean is 0 to first order in the errors of S
    and of the shares (a Neyman-orthogonal score; Robins, Rotnitzky & Zhao 1994), so that S may be
    rough, and its squares are those of the whole error of a coefficient: noise aside, the sandwich
    of Newton's fit is the covariance, with no law of rows and no model of gaps beyond their being
    completely at random.

    *What a bound counts.* Distances to the fit without privacy are to that of the same rows without
    gaps, and count what gaps cost: they are half the interval.
    """

    name: ClassVar[str] = "em"
    model: ClassVar[str] = "ols"
    sandwich: ClassVar[bool] = True
    theory: ClassVar[Mapping[str, Theory]] = {"central": GAPS}
    options: ClassVar[Mapping[str, str]] = {
        "complete": "public guess of the share of rows that miss no value; for the plan alone",
    }

    @property
    def effect_of_gaps(self) -> str:
        """They were completed."""
        return "and were completed from the other columns of their rows"

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        need_delta(self.name, privacy)
        check_completable(design)
        share = need_positive("complete", options.get("complete"), 1.0, most=1.0)
        asks = with_scales(_requests(design, privacy, n), design, privacy, n)
        plan = counted_plan(self, design, privacy, n, asks, {})
        return without_scales(expect_completed(plan, design, share), design)

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> CoefficientEstimate:
        """Ask for moments, whiten completed rows, and step."""
        return in_found_scales(_estimate, holder, design)


class _AugmentedClimb(PredictorClimb):
    """Newton steps from augmented scores, whose products of columns have one long tail."""

    peeled = False


def _requests(design: Design, privacy: Privacy, n: float) -> list[Request]:
    """Those for second moments, and those of a fit of whole rows with what is left."""
    first = moment_requests(_GRAM)
    left = 1 - sum(ask.weight for ask in first)
    rest = [ask for ask in requests(design, privacy, n, peeled=False) if ask.slot != COUNT.slot]
    return [*first, *(replace(ask, weight=left * ask.weight) for ask in rest)]


def _estimate(holder: Holder[Query], design: Design) -> CoefficientEstimate:
    moments = SecondMoments.of(holder, design)
    rows = CompletingHolder(holder, moments.precision)
    (level,), _ = rows.ask(ResponseQuantile(response_grid(design), 0.5), "median")
    found = whitened(rows, design, moments.rows)
    moments = moments.refined(design, found.metric)
    rows = CompletingHolder(holder, moments.precision)
    asks = AugmentedQuestions(found.metric.w, moments)
    expected = NormalRows(design.family, found.centre, found.cov)
    climb = _AugmentedClimb(rows, design, found, asks, moments.rows, expected, float(level))
    # The fit without privacy that a reader has in mind is that of a table without gaps, from which
    # estimates are off by what gaps cost, too.
    estimate = replace(climb.reported(*climb.fit()), of_these_rows=False)
    inference, remark = _doubts(moments, design)
    if not inference:
        return estimate
    return replace(estimate, remarks=(*estimate.remarks, remark), inference=inference)


def _doubts(moments: SecondMoments, design: Design) -> tuple[str, str]:
    """Why no interval holds, in short and as a remark; empty where one does."""
    if moments.unseen is not None:
        one, other = (repr(design.names[j]) for j in moments.unseen)
        what, which = (one, one) if one == other else (f"both {one} and {other}", "one of the two")
        return _UNKNOWN, (
            f"Hardly any row has {what}, as far as noise lets see: how columns vary together, by "
            "which rows are completed, is not known. Coefficients may be far off, and no interval "
            f"is given. Leave {which} out."
        )
    if moments.clear >= _CLEAR:
        return "", ""
    return _UNKNOWN, (
        "Noise hides how columns vary together, by which rows are completed: some are nearly "
        "alike, or their ranges far too wide. Coefficients may be far off, and no interval is "
        "given. Declare center= and scale=, leave a column out, or use missing='complete'."
    )
