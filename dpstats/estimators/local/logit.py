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
from dpstats.estimators.guesses import with_errors
from dpstats.estimators.local.base import PooledRounds
from dpstats.estimators.local.conclusion import as_estimate
from dpstats.estimators.local.pool import (
    ENOUGH,
    AnsweredQuestion,
    Fit,
    GramEstimate,
    estimate,
    gram_of,
    signal,
)
from dpstats.estimators.local.requests import (
    OPTIONS,
    RecordGuess,
    channel_for,
    device_question,
    need,
    noise_of,
    record_guess,
    senders,
    vector_channel,
)
from dpstats.estimators.local.theory import IN_ROUNDS, PRIVUNIT, SHRUNK
from dpstats.estimators.numerics.normal import NODES, WEIGHTS
from dpstats.estimators.numerics.released import even_points
from dpstats.estimators.numerics.second_moments import two_values
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
_STEP = 1e-6  # numerical: differences of linear predictors, below which they are equal
_DOUBT = 0.25  # ratio: error of a slope, as rounds are pooled
_BENT = 0.5  # ratio: the same over the step, as standard errors count it: of skewed columns
_MOST_SPREAD = 4.0  # numerical: root mean square of linear predictors, at most
_FLATTEST = 0.01  # numerical: slope of scores in second moments, at least
_ROWS = 2**12  # numerical: made-up rows
_PASSES = 12  # numerical: of secant slopes

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

    1. 40 percent of the users send second moments A and the score at zero, ``w^2 x (y - 1/2)``.
    2. In each later round others send the score ``w^2 x (y - p)/(2 max(p, 1 - p))`` at the
       coefficients so far, and a Newton step follows. The division halves the noise: residuals
       stay in [-1/2, 1/2], and the score still has mean 0 at the truth.

    The slope of a score between where it was asked and the estimate is an average over rows that
    are made up with the released second moments: normal ones, but for columns that lie at their
    bounds. It is right for these (Brillinger 1982, of normal rows); where columns are skewed it is
    off by up to 40 %, the step is too short or too long, the next one makes up for it, and standard
    errors count what is left. All rounds are pooled by their precision, as in `LocalRounds`.

    Notes
    -----
    *Guarantee.* One epsilon-DP message of each device; a device answers in one round.

    *Covariance.* From influence functions of the messages of all rounds.
    """

    subsets: ClassVar[bool] = True
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
        facts, name = record_guess(design, options), vector_channel(options, privacy)
        shares = (_FIRST, *((1 - _FIRST) / (rounds - 1) for _ in range(rounds - 1)))
        first, later = (_message(len(design.names), facts, turn) for turn in (0, 1))
        event = channel_for(first, name, privacy).event
        public = {"channel": name, "radius": facts.radius}
        plan = self._charged(design, privacy, n, event, public, shares)
        moment = noise_of(device_question(first, plan), senders(plan) * _FIRST)[0]
        score = noise_of(device_question(later, plan), senders(plan) * (1 - _FIRST))[1]
        return _expected(plan, design, facts, moment, score)

    def finish(
        self, design: Design, plan: Plan, answers: Sequence[Messages], public: Array | None
    ) -> CoefficientEstimate:
        """Pool all rounds and solve."""
        made = self._answered(design, plan, answers)
        rounds, gram_estimate, fit = _fit(made, design, plan)
        fit = replace(fit, cov=fit.cov + _away(rounds, fit))
        return as_estimate(rounds, gram_estimate, fit, design.names)

    def _next(
        self, design: Design, plan: Plan, made: list[AnsweredQuestion]
    ) -> tuple[DeviceQuestion, float]:
        message = _message(len(design.names), record_guess(design, plan.options), len(made))
        if not made:
            return device_question(message, plan), _DOUBT
        _, gram_estimate, fit = _fit(made, design, plan)
        return device_question(replace(message, theta=_reined(fit, gram_estimate)), plan), _DOUBT


@dataclass(frozen=True, eq=False)
class _TurnedRound(AnsweredQuestion):
    """A round whose score at theta_t is multiplied into ``A (theta - theta_t)``.

    On average the score is ``S (theta - theta_t)`` with the secant slope S between both, and an
    error of it moves theta by the inverse of the tangent slope at theta.

    Attributes
    ----------
    secant, tangent : ndarray of shape (k, k)
        A over the secant slope, and over the tangent slope.
    """

    secant: Array = field(default_factory=lambda: np.eye(0))
    tangent: Array = field(default_factory=lambda: np.eye(0))

    def score(self, columns: Index) -> Array:
        """Of all columns, as ``A (theta - theta_t)``."""
        return np.asarray(self.secant @ super().score(columns))

    def score_variance(self, columns: Index) -> Array:
        """Noise variance of `score`, (k,)."""
        return np.asarray(self.tangent**2 @ super().score_variance(columns))

    def influence(self, columns: Index, weight: float, step: Array) -> Array:
        """As for any round, its score multiplied."""
        made = super().influence(columns, weight, step)
        scores = slice(self.message.moments, self.message.moments + columns.size)
        made[:, scores] = self.tangent @ made[:, scores]
        return made


def _turned(
    made: AnsweredQuestion, rows: Array, weight: float, gram: Array, theta: Array
) -> _TurnedRound:
    """A round in the units of the first, where the coefficients are about `theta`.

    Slopes are averages over made-up rows (m, k) of this weight.
    """
    from scipy.special import expit

    eta, before = rows @ theta, rows @ made.theta(theta.size)
    p, asked_at = expit(eta), expit(before)
    largest = 2 * np.maximum(asked_at, 1 - asked_at)
    far = np.abs(eta - before) > _STEP
    tangent = p * (1 - p)
    secant = np.where(far, (p - asked_at) / np.where(far, eta - before, 1.0), tangent)
    root = np.linalg.cholesky(gram)
    round_rows = np.linalg.solve(root, rows.T)  # of the second moments 1

    def over(slopes: Array) -> Array:
        inner = weight * (round_rows * (slopes / largest)) @ round_rows.T / len(rows)
        values, vectors = np.linalg.eigh(inner)
        turned = root @ (vectors / np.maximum(values, _FLATTEST)) @ vectors.T
        return np.asarray(np.linalg.solve(root.T, turned.T).T)

    secants, tangents = over(secant), over(tangent)
    return _TurnedRound(made.question, made.answer, made.doubt, secant=secants, tangent=tangents)


def _made_up(gram: Array, design: Design) -> tuple[Array, float]:
    """Rows (m, k) with these second moments, and the weight that each has.

    They are normal, but for columns that lie at their bounds. Without an intercept nothing is known
    of their mean, which is taken to be 0, or of weights.
    """
    from scipy.special import ndtri

    place = design.standardization.intercept
    uniforms = even_points(len(gram), _ROWS)
    if place is None:
        return ndtri(uniforms) @ np.linalg.cholesky(gram).T, 1.0
    others = np.arange(len(gram)) != place
    weight = float(gram[place, place])
    means = gram[place, others] / weight
    cov = gram[np.ix_(others, others)] / weight - np.outer(means, means)
    sds, normal = np.sqrt(np.diag(cov)), ndtri(uniforms[:, others]) @ np.linalg.cholesky(cov).T
    low, high = two_values(np.asarray(design.internal_bounds)[others], means, sds).T
    with np.errstate(invalid="ignore"):  # columns that have no two values
        there = ndtri((high - means) / (high - low)) < normal / sds
    values = np.where(np.isfinite(low), np.where(there, high, low), means + normal)
    return np.insert(values, place, 1.0, axis=1), weight


def _message(width: int, facts: RecordGuess, turn: int) -> MomentMessage:
    return MomentMessage(width, facts.radius, _HALF, 0.0 if turn else _MOMENTS, logistic=True)


def _fit(
    made: Sequence[AnsweredQuestion], design: Design, plan: Plan
) -> tuple[list[_TurnedRound], GramEstimate, Fit]:
    """All rounds in the units of the first, its second moments, and the coefficients."""
    columns = np.arange(len(design.names))
    target = record_guess(design, plan.options).guess.gram
    gram_estimate = gram_of(made[:1], columns, target, fewest=ENOUGH)
    gram = gram_estimate.safe
    rows, weight = _made_up(gram, design)
    theta = np.zeros(columns.size)
    for _ in range(_PASSES):
        rounds = [_turned(round_, rows, weight, gram, theta) for round_ in made]
        fit = estimate(rounds, gram_estimate, columns, columns.size, safe=True)
        theta = _held(fit.params, gram / weight)
    return rounds, gram_estimate, fit


def _held(theta: Array, moments: Array) -> Array:
    """Coefficients whose linear predictors are not wild."""
    size = math.sqrt(float(theta @ moments @ theta))
    return theta * min(1.0, _MOST_SPREAD / max(size, _MOST_SPREAD))


def _away(rounds: Sequence[AnsweredQuestion], fit: Fit) -> Array:
    """Variance of what the law of made-up rows gets wrong of the slopes, (k, k)."""
    away = fit.params.copy()
    for weight, made in zip(fit.weights, rounds, strict=True):
        away -= weight * made.theta(away.size)
    return _BENT**2 * np.outer(away, away)


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
    users = senders(plan) * (1 - _FIRST)
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
        with_errors(plan, design, privacy, sampling),
        assumptions=(facts.guess.assumptions[0], "Linear predictors have a spread of about 1."),
        warnings=warnings,
    )
