"""Least squares on public covariates and responses that were randomised once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.bounds import LABEL_LOWER, LINEAR, SMALL_EPS, rates
from dpstats.estimators.counters import error_of_count
from dpstats.estimators.labels.base import (
    RANDOMIZED_ONCE,
    LabelMethod,
    astray_of,
    at_least,
    covariates_of,
    inverse_gram,
    jackknifed,
    label_plan,
    randomized,
    send_responses,
    told_by_devices,
)
from dpstats.estimators.labels.found import found_interval, in_spreads
from dpstats.estimators.responses import (
    CHANNEL_OPTIONS,
    Responses,
    expect_labels,
    linear_shrinkage,
    marks_channel,
    responses,
    slopes,
)
from dpstats.estimators.sources import DUCHI, WANG_PIECEWISE
from dpstats.privacy import LabelOnly
from dpstats.protocol import CoefficientEstimate, LabelHolder, Options, Plan
from dpstats.tall import Tall, cross, gram, mean, outer, times
from dpstats.theory import Assumption, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["LabelOLS", "least_squares"]

Array = NDArray[np.float64]

_FIXED = DUCHI.at("fixed-design regression")

_THEORY = Theory(
    estimand=(
        "least-squares coefficients of the response, held to an interval, planned or found, on the "
        "public rows: the regression coefficients where the linear model holds and the interval "
        "contains the responses"
    ),
    guarantee=RANDOMIZED_ONCE,
    assumptions=(
        LINEAR,
        Assumption(
            "Responses lie in the declared range, or have the declared centre and scale; with "
            "clip='found' none of those that noise hides are far beyond the others"
        ),
        Assumption(formula="n > d"),
    ),
    upper=rates("sqrt(d/n)", "B sqrt(d/n)/eps, B = 1", _FIXED, given=(SMALL_EPS,)),
    lower=LABEL_LOWER,
    citations=(WANG_PIECEWISE.at("Algorithm 2 (piecewise mechanism)"), _FIXED),
)


@dataclass(frozen=True)
class LabelOLS(LabelMethod):
    """Randomise every response once, then ordinary least squares with HC3 standard errors.

    Decoded responses z are unbiased for the responses: z = y + e with independent e of mean 0. So
    the least-squares fit of z on the public rows X is unbiased for that of y, and its covariance

        V = (X'X)^-1 X' diag((r_i / (1 - h_i))^2) X (X'X)^-1,   r = z - X params,

    counts sampling error and privacy noise alike: inference is that of least squares (HC3,
    MacKinnon & White 1985). No constant is unknown, and standard errors cost no budget.

    Notes
    -----
    *Guarantee.* One message of each device, epsilon-DP (Gaussian noise: (epsilon, delta)-DP) for
    any two responses; its sensitivity is the width of the interval. There is nothing to compose.

    *Channel.* That with the smallest variance at the mean square that public facts suggest: one bit
    (Duchi et al.) at small epsilon, the piecewise mechanism above.

    *Clip.* The declared range. Where the schema declares a smaller scale, the narrowest interval
    of so many scales around the centre that biases a slope by less than a quarter of its standard
    error; it grows with n and epsilon. With ``clip="found"`` a tenth of the devices or fewer tell
    where their response lies, in place of it, and the interval follows (`FoundInterval`); what it
    may clip off is allowed for in V, as long as no response that noise hides is far beyond.
    """

    model: str = "ols"
    name: ClassVar[str] = "label-ols"
    theory: ClassVar[Mapping[str, Theory]] = {"label-only": _THEORY}
    options: ClassVar[Mapping[str, str]] = {
        **CHANNEL_OPTIONS,
        "clip": f"{CHANNEL_OPTIONS['clip']}; or 'found': a tenth of the devices tell where "
        "responses lie, for ranges far too wide",
    }

    def _label_plan(self, design: Design, privacy: LabelOnly, n: int, options: Options) -> Plan:
        """Channel, interval, cost and expected error from public facts only."""
        inverse = inverse_gram(covariates_of(design))
        most = float(np.diag(inverse)[slopes(design)].min())

        def se(how: Responses) -> float:
            return math.sqrt(most * (how.residual_variance + how.noise()))

        how = responses(design, privacy, options, linear_shrinkage(se), find=True)
        inverse = inverse / how.sent
        plan = label_plan(self, design, privacy, how, randomized(how, privacy), {})
        width = float(np.diag(inverse)[slopes(design)].sum())

        def errors(epsilon: float) -> float:
            return math.sqrt(width * (how.residual_variance + how.at(epsilon).noise()))

        plan = expect_labels(
            plan, design, how.noise() * inverse, how.residual_variance * inverse, how, errors
        )
        if how.cells == 1:
            return plan
        told = error_of_count(marks_channel(privacy, how.cells)) / how.counters
        return in_spreads(plan, design, how, math.sqrt(told))

    def fit(self, holder: LabelHolder, design: Design, plan: Plan) -> CoefficientEstimate:
        """Ask for the randomised responses, and solve."""
        shares, error = told_by_devices(holder, design, plan)
        found = found_interval(Responses.of(plan, design), design, shares, error)
        z, rows, how = send_responses(holder, design, plan, how=found.how)
        x = rows.columns(np.arange(len(plan.names)))
        params, cov, privacy, variance = least_squares(x, z, how)
        clipped = np.diag(found.allowance(x, inverse_gram(rows)))
        cov, privacy = cov + clipped, privacy + clipped
        released = how.options()
        if variance > 0:
            released["residual sd"] = math.sqrt(variance)
        astray, remarks = astray_of(design, shares, error)
        released |= astray
        remarks = (*remarks, *found.said(design, error))
        return CoefficientEstimate(params, cov, privacy, float(plan.n), released, remarks)


def least_squares(x: Tall, z: Tall, how: Responses) -> tuple[Array, Array, Array, float]:
    """Least squares of randomised responses.

    Returns
    -------
    params : ndarray of shape (d,)
    cov, cov_privacy : ndarray of shape (d, d)
        HC3 covariance, and the part that the channel's variance explains. The residual of a row
        that alone tells a coefficient is zero whatever its response is: it counts as the others do.
    variance : float
        Residual variance without the channel's; may be negative, by chance.
    """
    n, d = x.shape
    inverse = np.asarray(np.linalg.pinv(gram(x), hermitian=True), dtype=np.float64)
    params: Array = inverse @ cross(x, z)
    fitted = times(x, params)
    noise = how.noise(how.mean_square(z, fitted))
    squares = n * mean(n, lambda part: np.square(z[part] - fitted[part]))
    usual = math.sqrt(max(squares / max(n - d, 1), noise))

    def scaled(part: slice, rows: Array) -> Array:
        leverage = np.einsum("ij,ij->i", rows @ inverse, rows)
        return jackknifed(z[part] - rows @ params, leverage, usual)

    # Whatever the responses are, the channel adds as much as where it adds least.
    known = min(how.noise(0.0), how.noise(1.0)) * inverse
    cov = at_least(inverse @ outer(x, scaled) @ inverse, known)
    privacy = noise * inverse
    room = float(np.min(np.diag(cov) / np.maximum(np.diag(privacy), 1e-300)))
    variance = squares / max(n - d, 1) - noise
    return params, cov, np.asarray(min(1.0, room) * privacy, dtype=np.float64), variance
