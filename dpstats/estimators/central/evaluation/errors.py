"""How far predictions of a linear fit are off: mean square, R-squared and bias."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.base import Request, need_delta
from dpstats.estimators.central.counted import CountingMethod, counted_plan
from dpstats.estimators.central.descriptive import passes
from dpstats.estimators.central.descriptive.describe import OWN as MOMENTS
from dpstats.estimators.central.descriptive.describe import moments, root_error
from dpstats.estimators.central.descriptive.quantile import OWN as DISTRIBUTIONS
from dpstats.estimators.central.descriptive.window import (
    expected_allowances,
    hidden_rows,
    unseen,
    window_of,
)
from dpstats.estimators.central.evaluation.predictions import (
    OPTIONS,
    OWN,
    Predictions,
    checked_coefficients,
)
from dpstats.estimators.sources import DONG, FICHTENBERGER
from dpstats.privacy import Privacy
from dpstats.protocol import Holder, Plan, PredictionErrorEstimate
from dpstats.protocol.evaluation import ERRORS
from dpstats.queries import ColumnMoments, Query
from dpstats.queries.predicted import ERROR, RESPONSE
from dpstats.theory import Assumption, Rate, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["ErrorEvaluation"]

Array = NDArray[np.float64]

_FIRST, _SUMS = "distribution", "moments"
_NAMES = ("errors", "responses")
_SHARE = 0.4  # budget: distribution functions of errors and of the response
_REACH = 3.5  # wording: half the width of a window that the plan presumes, in standard deviations

_THEORY = Theory(
    estimand=(
        "mean square, its root, and mean of the errors of the given coefficients, and R-squared "
        "(1 less the mean square over the variance of the response), in the population of the rows "
        "that miss nothing"
    ),
    guarantee=(
        "(epsilon, delta)-DP for every data set: Gaussian noise on roots of summation applied to "
        "counts of errors and of responses in cells, and on clipped sums of their powers."
    ),
    assumptions=(
        Assumption("Rows are independent (of one unit they may be alike)"),
        Assumption("Squares of errors and of responses are not negatively correlated"),
        Assumption("Tails of both are not much heavier than generalised Pareto, shape .36"),
        Assumption("The fit was not made from these rows; else it flatters itself"),
    ),
    upper=(
        Rate("statistical", "1/sqrt(n)", OWN),
        Rate("privacy", "sqrt(log(1/delta))/(n eps)", OWN, conjectured=True),
    ),
    lower=(),
    citations=(OWN, MOMENTS, DISTRIBUTIONS, FICHTENBERGER, DONG),
)


@dataclass(frozen=True)
class ErrorEvaluation(CountingMethod[PredictionErrorEstimate]):
    """Mean square and mean of prediction errors, and R-squared.

    Distribution functions of the errors and of the response say in which windows both are held;
    sums of z, z^2 and z^4 in these have the sensitivity of the sum of z alone, as in
    `ColumnDescriptions`. Windows reach as far as noise lets tails be seen, and a little beyond;
    what tails as heavy as these seem to be would add outside is allowed for as there. The interval
    of R-squared is Fieller's; the covariance of both squares is not released and taken to be 0,
    which is too long where it is positive.

    Notes
    -----
    *Guarantee.* Gaussian noise on `ColumnPrefixes` and `ColumnMoments` of two columns, asked
    through `Predicted` at public coefficients; windows depend on the data only through what was
    released before.
    """

    name: ClassVar[str] = "windows"
    model: ClassVar[str] = "evaluate ols"
    theory: ClassVar[Mapping[str, Theory]] = {"central": _THEORY}
    options: ClassVar[Mapping[str, str]] = OPTIONS

    def _plan(
        self, design: Design, privacy: Privacy, n: int, options: Mapping[str, object]
    ) -> Plan:
        need_delta(self.name, privacy)
        asks = [
            Request(_FIRST, _SHARE, "distribution functions of errors and of the response"),
            Request(_SUMS, 1 - _SHARE, "sums of their powers in windows"),
        ]
        made = checked_coefficients(design, options)
        plan = counted_plan(self, design, privacy, n, asks, made)
        noise, effect = _noise(plan) / n, plan.max_rows / n
        root = np.sqrt(effect / 2 + (_REACH**2 * noise / 2.8) ** 2)
        mean = np.sqrt(effect + (_REACH * noise) ** 2)
        rank, error = passes.expected_noise(plan, _FIRST, 2, 512), "sd(error)"
        of_mean, added = expected_allowances(n, rank, _noise(plan))
        pairs = ((root, mean), (root_error(float(root), added), np.hypot(mean, of_mean)))
        errors, most = (tuple(map(float, (2 * r, r, np.sqrt(8) * r, m))) for r, m in pairs)
        return replace(
            plan,
            parameters=ERRORS,
            predicted_se=errors,
            predicted_range=tuple(zip(errors, most, strict=True)),
            predicted_units=(f"{error}^2", error, "(1 - R-squared)", error),
            privacy_share=float((_REACH**2 * noise / 2.8 / root) ** 2),
            assumptions=(*plan.assumptions, "For the prediction errors and responses are normal."),
        )

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> PredictionErrorEstimate:
        """Ask for distribution functions, and for moments in the windows that they say."""
        asked, places = Predictions(holder, design, plan), np.array([ERROR, RESPONSE])
        found = passes.ask_distributions(asked, asked.design, [_FIRST], places)
        windows = [window_of(each, _noise(plan)) for each in found]
        ends = np.array([(w.lower, w.upper) for w in windows])
        answer = asked.ask(ColumnMoments(places, *ends.T), _SUMS)
        made = [
            moments(answer.value[:, k], each, windows[k], answer.noise.sd)
            for k, each in enumerate(found)
        ]
        return PredictionErrorEstimate(
            moments=np.array([part.values for part in made]),
            total=np.array([part.total for part in made]),
            noise=np.array([part.noise for part in made]),
            windows=ends,
            nobs=found[0].rows,
            released={
                "rows hidden at an end": {
                    name: hidden_rows(each, *map(float, window))
                    for name, each, window in zip(_NAMES, found, ends, strict=True)
                }
            },
            remarks=tuple(
                remark
                for name, each, (low, high) in zip(_NAMES, found, ends, strict=True)
                for remark in unseen(name, each, float(low), float(high))
            ),
            beyond=np.array([part.beyond for part in made]),
        )


def _noise(plan: Plan) -> float:
    """Standard deviation of the noise in a sum of z, in rows."""
    query = ColumnMoments(np.arange(2), -np.ones(2), np.ones(2))
    return plan.noise(query, _SUMS).sd
