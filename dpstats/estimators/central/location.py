"""What the private means share: public facts about a response, and the last, noisy release."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dpstats.errors import OptionError
from dpstats.estimators.base import Request
from dpstats.estimators.guesses import max_rows, round_up, rows_known
from dpstats.privacy import Privacy
from dpstats.protocol import CoefficientEstimate, Holder, Plan
from dpstats.queries import Query, ResponseMoments, UnitMoments

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = [
    "MOMENTS",
    "MOST_CELLS",
    "Clip",
    "ResponseGuess",
    "moments_request",
    "predict",
    "relative_noise",
    "release_mean",
    "response_guess",
    "two_stage",
]

MOMENTS = "moments"
MOST_CELLS = 2**14  # numerical: cells of the declared range
_MISSING = 4.0  # ratio: noise scales below a public n at which a noisy count is believed
_SYMMETRIC = 0.2  # share: of the allowance for clipping that a mean in the middle of it needs


@dataclass(frozen=True, slots=True)
class ResponseGuess:
    """Public facts and guesses about a response, in internal units.

    Attributes
    ----------
    lower, upper : float
        Declared bounds.
    sd : float
        Guess of the standard deviation: 1 where the schema declares a scale, an eighth of the
        range otherwise.
    declared : bool
        Whether the schema declares a scale below half the range.
    natural : bool
        Whether the bounds are 0 and 1 in the user's units: those of a proportion or a 0/1
        outcome, which are not too wide.
    rows : int
        Rows that one unit of privacy may contribute.
    private_count : bool
        Whether the number of rows is private.
    """

    lower: float
    upper: float
    sd: float
    declared: bool
    natural: bool
    rows: int
    private_count: bool

    @property
    def width(self) -> float:
        """Width of the declared range."""
        return self.upper - self.lower

    @property
    def assumption(self) -> str:
        """The guess of the standard deviation in words."""
        if self.declared:
            return "The standard deviation is the scale that the schema declares."
        return (
            "The standard deviation is an eighth of the declared range; declare "
            "Numeric(..., scale=...) if a better guess is public."
        )


@dataclass(frozen=True, slots=True)
class Clip:
    """The interval to which the response is held, in internal units; released.

    ``bias`` is what clipping may move the mean of a one-sided response by, as a standard deviation,
    and enters the covariance; less of it for a mean in the middle of the interval, where the
    effects of both ends cancel.
    """

    lower: float
    upper: float
    bias: float = 0.0


def response_guess(design: Design, privacy: Privacy) -> ResponseGuess:
    """Public facts about the response of `design`.

    Raises
    ------
    OptionError
        If the design is no mean: one column that is 1, and a response.
    """
    endog = design.endog
    if endog is None or not design.has_intercept or len(design.names) != 1:
        raise OptionError('A mean needs a response and an intercept alone: dp.mean("y").')
    lower, upper = design.internal_endog_bounds
    rows = max_rows(design)
    # Without a declared scale the internal unit is half the range.
    declared = upper - lower > 2 * (1 + 1e-9)
    return ResponseGuess(
        lower=float(lower),
        upper=float(upper),
        sd=1.0 if declared else float(upper - lower) / 8,
        declared=declared,
        natural=not declared and (endog.lower, endog.upper) == (0.0, 1.0),
        rows=rows,
        private_count=not rows_known(design, privacy),
    )


def two_stage(first: Request, share: float, privacy: Privacy) -> tuple[Request, Request]:
    """Two questions: `first` with that share of epsilon, and the moments with the rest.

    Shares are turned into weights: epsilons where delta is 0, zero-concentrated costs otherwise.
    """
    cost = {"selection": 1 / 8, "laplace": 1 / 2}
    weights = (share, 1 - share)
    if privacy.delta > 0:
        weights = (cost[first.kind] * share**2, cost["laplace"] * (1 - share) ** 2)
    return replace(first, weight=weights[0]), moments_request(weights[1])


def moments_request(weight: float = 1.0) -> Request:
    """The last question."""
    return Request(
        MOMENTS, weight, "clipped sum of the response, its squares, and the rows", kind="laplace"
    )


def _query(clip: Clip, rows: int) -> ResponseMoments | UnitMoments:
    if rows == 1:
        return ResponseMoments(clip.lower, clip.upper)
    return UnitMoments(clip.lower, clip.upper, rows)


def relative_noise(plan: Plan, rows: int) -> float:
    """Standard deviation of the noise on a clipped sum, over half the width of its interval."""
    return math.sqrt(2) * plan.noise(_query(Clip(-1.0, 1.0), rows), MOMENTS).scale


def release_mean(
    holder: Holder[Query], design: Design, plan: Plan, clip: Clip
) -> CoefficientEstimate:
    """Ask for the moments of the response held to `clip`; mean and variance from the answer.

    Notes
    -----
    With c = clip(y) - centre, noisy S, Q of sum c and sum c^2 and a row count N, the mean is
    centre + S/N, its sampling variance (Q - S^2/N) / N^2; with several rows per unit S^2/N becomes
    (S/N)^2 sum N_u^2 and Q the squares of unit totals, the cluster-robust form if the number of
    rows of a unit is unrelated to their values. The noise has variance (s_S^2 + (S/N)^2 s_N^2) /
    N^2, the second term only where N is a noisy count. Where n is public, the noisy count replaces
    it if it lies more than 4 of its noise scales below: rows were missing.
    """
    facts = response_guess(design, plan.privacy)
    query = _query(clip, facts.rows)
    half, rows = query.half, facts.rows
    scale = plan.noise(query, MOMENTS).scale
    total, squares, count, *spread = (float(v) for v in holder.ask(query, MOMENTS).value)

    count_scale = scale * 2 / half
    known = not facts.private_count and count >= plan.n - _MISSING * count_scale
    n = float(plan.n) if known else max(count, count_scale, 1.0)
    if not facts.private_count:
        n = min(n, float(plan.n))
    offset = float(np.clip(total / n, -half, half))
    noise = 2 * scale**2 * (1 + (0.0 if known else (2 * offset / half) ** 2)) / n**2

    units = float(np.clip(spread[0], n, rows * n)) if spread else n
    doubt = math.sqrt(2) * scale * 2 * rows * half  # of the noisy squares
    least = min(doubt / 4, half**2 * units / 10)
    bias = clip.bias * (_SYMMETRIC + (1 - _SYMMETRIC) * abs(offset) / half)
    variance = float(np.clip(squares - offset**2 * units, least, half**2 * units)) / n**2

    return CoefficientEstimate(
        params=np.array([query.centre + offset]),
        cov=np.array([[variance + noise + bias**2]]),
        cov_privacy=np.array([[noise]]),
        cov_sampling=np.array([[variance]]),
        of_these_rows=True,
        nobs=n,
        released={
            "clip lower": clip.lower,
            "clip upper": clip.upper,
            "standard deviation": math.sqrt(variance * n),
            "allowance for clipping": bias,
        },
    )


def predict(plan: Plan, design: Design, facts: ResponseGuess, clip: Clip) -> Plan:
    """The plan with its expected standard error at a guessed `clip` around the mean."""
    n = plan.n
    noise = relative_noise(plan, facts.rows) * (clip.upper - clip.lower) / 2 / n
    sampling = facts.sd**2 / n + (_SYMMETRIC * clip.bias) ** 2
    se = math.sqrt(noise**2 + sampling)
    assumptions = [facts.assumption]
    if facts.rows > 1:
        assumptions.append(
            "For the prediction, rows of one unit are as independent as those of different units; "
            "released standard errors are cluster-robust, for units whose number of rows is "
            "unrelated to their values."
        )
    if not facts.private_count:
        unseen = _MISSING * relative_noise(plan, facts.rows) * math.sqrt(2)
        assumptions.append(
            f"Fewer than about {math.ceil(unseen):,} rows with a missing value go unnoticed and "
            "are read as the middle of the clipping interval."
        )
    return replace(
        plan,
        predicted_se=(se * design.standardization.y_scale,),
        privacy_share=noise**2 / se**2,
        assumptions=(*assumptions, *plan.assumptions),
        warnings=(*_too_noisy(plan, noise / facts.sd), *plan.warnings),
    )


def _too_noisy(plan: Plan, ratio: float) -> tuple[str, ...]:
    if ratio <= 1:
        return ()
    return (
        f"n={plan.n:,} is small for epsilon={plan.privacy.epsilon:g}: the privacy noise expected "
        f"is {ratio:.2g} times the standard deviation of one row. About "
        f"n={round_up(2 * ratio * plan.n):,} rows would bring it to half of one.",
    )
