"""Logistic regression from a few rounds of devices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError
from dpstats.estimators.base import need_integer
from dpstats.estimators.bounds import LOCAL_GLM_LOWER, MOMENTS_SEEN, SAMPLING, SMALL_EPS
from dpstats.estimators.guesses import predicted
from dpstats.estimators.local.base import PooledRounds
from dpstats.estimators.local.conclusion import as_estimate
from dpstats.estimators.local.pool import (
    ENOUGH,
    Answered,
    Fit,
    GramEstimate,
    estimate,
    gram_of,
    signal,
)
from dpstats.estimators.local.requests import (
    OPTIONS,
    RecordGuess,
    asked,
    channel_for,
    facts_of,
    need,
    noise_of,
    vector_channel,
)
from dpstats.estimators.local.theory import IN_ROUNDS, PRIVUNIT, SHRUNK
from dpstats.estimators.numerics.normal import NODES, WEIGHTS
from dpstats.estimators.sources import BRILLINGER, CAI, SCORE_ATTACK, ZHU
from dpstats.privacy import Local
from dpstats.protocol import CoefficientEstimate, DeviceQuestion, Messages, Options, Plan
from dpstats.queries import MomentMessage
from dpstats.theory import Assumption, Rate, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["LocalLogit"]

Array = NDArray[np.float64]
Index = NDArray[np.intp]

_FIRST = 0.4  # share: of the users, in the first round
_MOMENTS = 0.5  # share: of the square norm of their messages, for second moments
_ROUNDS = 3  # number: rounds, where none is asked for
_MOST_ROUNDS = 10  # numerical: rounds that may be asked for
_HALF = 0.5  # printed: largest residual
_STEP = 1e-3  # numerical: of derivatives
_DOUBT = 0.2  # ratio: bias of the long step from zero, over the step
_MOST_SPREAD = 3.0  # numerical: largest spread of linear predictors
_LEAST_SPREAD = 0.05  # numerical: spread of linear predictors

_ELSEWHERE = ZHU.at("Theorem 6, the lower bound for linear models, at s = d")

_THEORY = Theory(
    estimand=(
        "coefficients of the logistic model; where it does not hold, those at which the mean of "
        "w^2 x (y - p)/max(p, 1 - p) is zero, w = min(1, R/||x||)"
    ),
    guarantee=IN_ROUNDS,
    assumptions=(
        Assumption("The logit of the response's mean is linear in the columns"),
        MOMENTS_SEEN,
    ),
    upper=(
        SAMPLING,
        Rate("privacy", "d/(eps sqrt(n))", _ELSEWHERE, conjectured=True, given=(SMALL_EPS,)),
    ),
    lower=LOCAL_GLM_LOWER,
    citations=(
        BRILLINGER.at("section 2"),
        ZHU.at("Theorem 6"),
        PRIVUNIT,
        SHRUNK,
        SCORE_ATTACK,
        CAI.at("Theorem 4.1"),
    ),
)


@dataclass(frozen=True)
class LocalLogit(PooledRounds):
    """Logistic regression from a few rounds of devices.

    1. 40 percent of the users send second moments and ``w^2 x (y - 1/2)``. For normal rows its
       mean is a known multiple of ``A params`` (Brillinger 1982).
    2. In each later round others send the score ``w^2 x (y - p)/(2 max(p, 1 - p))`` at the
       coefficients so far, and a Newton step follows. The division halves the noise: residuals
       stay in [-1/2, 1/2], and the score still has mean 0 at the truth. Its slope follows from
       the second moments as for normal rows; where rows are not, the step is a little too short
       or too long, and the next one makes up for it.

    All rounds are pooled by their precision, as in `LocalRounds`.

    Notes
    -----
    *Guarantee.* One epsilon-DP message of each device; a device answers in one round.

    *Covariance.* From influence functions of the messages of all rounds.
    """

    name: ClassVar[str] = "local-logit"
    model: ClassVar[str] = "logit"
    theory: ClassVar[Mapping[str, Theory]] = {"local": _THEORY}
    options: ClassVar[Mapping[str, str]] = {
        "rounds": f"number of rounds, 2 to {_MOST_ROUNDS}; {_ROUNDS} by default",
        "channel": OPTIONS["channel"],
        "radius": OPTIONS["radius"],
    }

    def _local_plan(self, design: Design, privacy: Local, n: int, options: Options) -> Plan:
        if design.offset is not None:
            raise OptionError(f"method={self.name!r} takes no offset: leave it out of the model.")
        rounds = need_integer("rounds", options.get("rounds"), _ROUNDS, 2, _MOST_ROUNDS)
        facts, name = facts_of(design, options), vector_channel(options, privacy)
        shares = (_FIRST, *((1 - _FIRST) / (rounds - 1) for _ in range(rounds - 1)))
        first, later = (_message(len(design.names), facts, turn) for turn in (0, 1))
        event = channel_for(first, name, privacy).event
        public = {"channel": name, "radius": facts.radius}
        plan = self._charged(design, privacy, n, event, public, shares)
        moment = noise_of(asked(first, plan), n * _FIRST)[0]
        score = noise_of(asked(later, plan), n * (1 - _FIRST))[1]
        return _expected(plan, design, facts, moment, score)

    def finish(
        self, design: Design, plan: Plan, answers: Sequence[Messages], public: Array | None
    ) -> CoefficientEstimate:
        """Pool all rounds and solve."""
        made = self._answered(design, plan, answers)
        rounds, gram_estimate, fit = _fit(made, design, plan)
        return as_estimate(rounds, gram_estimate, fit, design.names)

    def _next(
        self, design: Design, plan: Plan, made: list[Answered]
    ) -> tuple[DeviceQuestion, float]:
        message = _message(len(design.names), facts_of(design, plan.options), len(made))
        if not made:
            return asked(message, plan), _DOUBT
        _, gram_estimate, fit = _fit(made, design, plan)
        return asked(replace(message, theta=_reined(fit, gram_estimate)), plan), 0.0


@dataclass(frozen=True, eq=False)
class _AtZero(Answered):
    """The first round, whose score is multiplied by a function f of the spread of predictors.

    The spread v solves ``(slope(v) v)^2 = s'A^-1 s``, which moves with the score s and with A; by
    ``along * A theta (theta'ds - slope theta'dA theta / 2)`` in the vector ``f(v) s``, with
    ``along = f'(v) slope / (v d(slope v)/dv)``.
    """

    slope: float = 0.25
    along: float = 0.0
    coefficients: Array = field(default_factory=lambda: np.zeros(0))
    image: Array = field(default_factory=lambda: np.zeros(0))

    def influence(self, columns: Index, weight: float, step: Array) -> Array:
        """As for any round, and what the spread adds."""
        made = super().influence(columns, weight, step)
        moved = self.coefficients @ self.message.influence(self.slope / 2 * self.coefficients)
        made += weight * self.along * np.outer(self.image[columns], moved)
        return made


@dataclass(frozen=True, eq=False)
class _Turned(Answered):
    """A later round, whose score is multiplied by a matrix: into ``A (theta - theta_t)``."""

    matrix: Array = field(default_factory=lambda: np.eye(0))

    def score(self, columns: Index) -> Array:
        """Of all columns, in the units of the first round."""
        return np.asarray(self.matrix @ super().score(columns))

    def score_variance(self, columns: Index) -> Array:
        """Noise variance of `score`, (k,)."""
        return np.asarray(self.matrix**2 @ super().score_variance(columns))

    def influence(self, columns: Index, weight: float, step: Array) -> Array:
        """Of the score; it has no second moments."""
        return np.asarray(self.matrix @ super().influence(columns, weight, step))


def _turned(made: Answered, gram_estimate: GramEstimate) -> _Turned:
    """The score at theta_t, times four, over its slope."""
    theta = made.theta(gram_estimate.columns.size)
    turned = gram_estimate.safe @ theta
    size2 = max(float(theta @ turned), _LEAST_SPREAD**2)
    level, along = _weights(math.sqrt(size2))
    slope = level * gram_estimate.safe + (along - level) / size2 * np.outer(turned, turned)
    matrix = np.asarray(4 * gram_estimate.safe @ np.linalg.inv(slope))
    return _Turned(made.question, made.answer, made.doubt, matrix=matrix)


def _at_zero(made: Answered, gram_estimate: GramEstimate) -> _AtZero:
    """The first round with its score over the slope at the spread that it shows."""
    spread = _predictor_spread(made, gram_estimate)
    ends = [spread - _STEP, spread + _STEP]
    slope, (below, above) = _slope(spread), (_slope(v) for v in ends)
    steeper = (1 / above - 1 / below) / (2 * _STEP)
    reached = (above * ends[1] - below * ends[0]) / (2 * _STEP)
    along = steeper * slope / (spread * reached)
    image = made.score(gram_estimate.columns) / slope
    coefficients = np.asarray(np.linalg.solve(gram_estimate.safe, image), dtype=np.float64)
    jitter = float(
        np.mean(made.score_variance(gram_estimate.columns)) * (coefficients @ coefficients)
    )
    return _AtZero(
        made.question,
        made.answer,
        doubt=math.hypot(made.doubt, along * math.sqrt(jitter)),
        scale=1 / slope,
        slope=slope,
        along=along,
        coefficients=coefficients,
        image=image,
    )


def _message(width: int, facts: RecordGuess, turn: int) -> MomentMessage:
    return MomentMessage(width, facts.radius, _HALF, 0.0 if turn else _MOMENTS, logistic=True)


def _fit(
    made: Sequence[Answered], design: Design, plan: Plan
) -> tuple[list[Answered], GramEstimate, Fit]:
    """All rounds in the units of the first, its second moments, and the coefficients."""
    columns = np.arange(len(design.names))
    target = facts_of(design, plan.options).guess.gram
    gram_estimate = gram_of(made[:1], columns, target, fewest=ENOUGH)
    rounds = [_at_zero(made[0], gram_estimate), *(_turned(m, gram_estimate) for m in made[1:])]
    return rounds, gram_estimate, estimate(rounds, gram_estimate, columns, columns.size, safe=True)


def _predictor_spread(made: Answered, gram_estimate: GramEstimate) -> float:
    """Standard deviation of linear predictors, from the score at zero.

    For normal rows ``s' A^-1 s`` is ``(slope(v) v)^2`` at spread v, beside what noise adds.
    """
    columns = gram_estimate.columns
    score = made.score(columns)
    inverse = np.linalg.inv(gram_estimate.safe)
    found = float(score @ inverse @ score)
    found -= float(np.trace(inverse)) * float(made.score_variance(columns).mean())
    spreads = np.linspace(_LEAST_SPREAD, _MOST_SPREAD, 200)
    reached = np.array([_slope(v) * v for v in spreads])
    at = int(np.searchsorted(reached, math.sqrt(max(found, 0.0))))
    return float(spreads[min(at, spreads.size - 1)])


def _slope(spread: float) -> float:
    """E p(1 - p) at linear predictors N(0, spread^2): E x (y - 1/2) = slope A params."""
    p = 1 / (1 + np.exp(-spread * NODES))
    return float(WEIGHTS @ (p * (1 - p)))


def _weights(spread: float) -> tuple[float, float]:
    """E h and E (eta/spread)^2 h of h = 2 min(p, 1 - p): across the coefficients and along them."""
    h = 2 / (1 + np.exp(np.abs(spread * NODES)))
    return float(WEIGHTS @ h), float(WEIGHTS @ (NODES**2 * h))


def _reined(fit: Fit, gram_estimate: GramEstimate) -> Array:
    """Coefficients for the next question: drawn to zero as far as they are noise, and not wild."""
    fitted, left = signal(fit, gram_estimate)
    factor = left / fitted if fitted > 0 else 0.0
    reached = factor * math.sqrt(max(fitted, 0.0))
    theta: Array = fit.params * (factor * min(1.0, _MOST_SPREAD / max(reached, _MOST_SPREAD)))
    return theta


def _expected(plan: Plan, design: Design, facts: RecordGuess, moment: float, score: float) -> Plan:
    """The plan with its expected standard errors, and a warning where they are too large."""
    d = len(plan.names)
    gram = facts.guess.gram
    inverse = np.linalg.inv(_weights(1.0)[0] * gram)
    size = d / float(np.trace(gram))
    users = plan.n * (1 - _FIRST)
    privacy = inverse @ inverse * (16 * score**2 + moment**2 * size * 0.1)
    sampling: Array = np.asarray(np.linalg.inv(_slope(1.0) * gram) / users)
    error = math.sqrt(float(np.trace((privacy + sampling) @ gram)))
    blur = facts.blur(moment)
    warnings: tuple[str, ...] = ()
    at = f"At n={plan.n:,} and epsilon={plan.privacy.epsilon:g} with {d} columns"
    if error > 0.5:
        text = f"{at} the expected error is {error:.2g} times the size of the coefficients."
        warnings = (need(plan, 2 * error, text),)
    elif blur > 1:
        text = (
            f"{at} noise hides the curvature of the likelihood: strong effects are drawn towards "
            "zero, and their intervals may miss them."
        )
        warnings = (need(plan, 2 * blur, text),)
    return replace(
        predicted(plan, design, privacy, sampling),
        assumptions=(facts.guess.assumptions[0], "Linear predictors have a spread of about 1."),
        warnings=warnings,
    )
