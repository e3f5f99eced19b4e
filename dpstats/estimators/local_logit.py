"""Logistic regression from devices asked in rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError
from dpstats.estimators.base import check_options
from dpstats.estimators.local import Rounds, local_plan
from dpstats.estimators.local_asks import (
    OPTIONS,
    channel_for,
    facts_of,
    local,
    need,
    noise_of,
    vector_channel,
)
from dpstats.estimators.local_gram import invertible, shrunk
from dpstats.estimators.local_pool import coordinate_variance
from dpstats.estimators.local_theory import (
    ASI,
    GUARANTEE,
    LOCAL_LOWER,
    ROUNDS,
    ZHU_INTERACTIVE,
)
from dpstats.privacy import Local, Privacy
from dpstats.protocol import Estimate, Messages, Plan, Question
from dpstats.queries import MomentMessage
from dpstats.theory import Assumption, Rate, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["LocalLogit"]

Array = NDArray[np.float64]

_FIRST = 0.4  # of the users in the first round
_ROUNDS, _MOST_ROUNDS = 3, 10
_LARGEST = 4.0  # sd of linear predictors that a question is asked at
_TYPICAL = 1.0  # sd of linear predictors that a plan expects

_THEORY = Theory(
    estimand="coefficients of the logistic model; rows are weighted by min(1, R/||x||)^2",
    guarantee=GUARANTEE + ROUNDS,
    assumptions=(
        Assumption("The logit of the mean is linear in the columns"),
        Assumption("Linear predictors have a standard deviation below 4"),
        Assumption(
            "Noise does not hide the second moments: n > d^3/eps^2 in standardised units",
            lambda s: s.n * s.epsilon**2 > s.d**3,
        ),
    ),
    upper=(
        Rate("statistical", {"d": 0.5, "n": -0.5}, "sqrt(d/n)"),
        Rate("privacy", {"d": 1.0, "n": -0.5, "eps": -1.0}, "d/(eps sqrt(n)), eps <= 1"),
    ),
    lower=LOCAL_LOWER,
    citations=(ZHU_INTERACTIVE, ASI),
    corrections=(
        "The source treats linear regression; here rounds are Newton steps of the logistic score.",
    ),
)


@dataclass(frozen=True, eq=False)
class _Step:
    """One Newton step: where it began, where it led, and the law of its errors."""

    start: Array
    end: Array
    inverse: Array
    cov: Array
    noise: Array


class LocalLogit(Rounds):
    """Logistic regression by rounds of Newton steps, each on users of its own.

    The first round sends ``w^2 x x'`` and ``w^2 x (y - 1/2)``. For elliptical columns the average
    of the latter is ``c A params`` with ``c = E p'(x'params)`` (Stein), which gives a start. Every
    later round sends the score ``w^2 x (y - p(x'theta))`` at a public theta, and

        theta <- theta + H^-1 score,   H = c_0 A + c_2 A theta theta' A,

    c_0 and c_2 being means of the first and third derivative of p over normal predictors. The last
    steps are averaged by their precision. The score has mean 0 at the parameters whatever the law
    of the columns, so that H only decides how fast errors of the start vanish.

    Notes
    -----
    *Guarantee.* One epsilon-DP message of each device, by PrivUnit over the unit ball: the
    residual lies in [-1, 1] and a weighted row within the radius. Every device is asked in one
    round.

    *Covariance.* ``H^-1 S H^-1``, S being the covariance of average messages, which holds sampling
    and privacy noise; and that of A, times the distance that the steps covered.
    """

    name: ClassVar[str] = "local-logit"
    model: ClassVar[str] = "logit"
    sparse: ClassVar[bool] = False
    theory: ClassVar[Mapping[str, Theory]] = {"local": _THEORY}
    options: ClassVar[Mapping[str, str]] = {
        "rounds": f"number of rounds, 2 to {_MOST_ROUNDS}; {_ROUNDS} by default",
        "channel": OPTIONS["channel"],
        "radius": OPTIONS["radius"],
    }

    @staticmethod
    def serves(privacy: Privacy) -> bool:
        """Whether devices may be asked in rounds."""
        return isinstance(privacy, Local) and privacy.interactive

    def plan(self, design: Design, privacy: Privacy, n: int, **options: Any) -> Plan:
        """Rounds, message, channel and expected error from public facts only.

        Parameters
        ----------
        design : Design
            Public design of a logistic model.
        privacy : Local
            The guarantee of one message, with ``interactive=True``.
        n : int
            Number of users.
        **options
            ``rounds``, ``channel``, ``radius``.

        Raises
        ------
        OptionError
            If an option is unknown or out of range, or there are fewer users than rounds.
        TrustError
            If rounds are not allowed.
        """
        check_options(self.name, self.options, options)
        guarantee = local(self.name, privacy, interactive=True)
        if design.offset is not None:
            raise OptionError(f"method={self.name!r} takes no offset: leave it out of the model.")
        rounds = options.get("rounds", _ROUNDS)
        if isinstance(rounds, bool) or not isinstance(rounds, int) or not 2 <= rounds <= 10:
            raise OptionError(f"rounds={rounds!r}: a whole number from 2 to {_MOST_ROUNDS}.")
        name, facts = vector_channel(options, guarantee), facts_of(design, _radius(options))
        public = {"channel": name, "radius": facts.radius}
        d, gram = len(design.names), facts.guess.gram
        shares = (_FIRST, *((1 - _FIRST) / (rounds - 1) for _ in range(rounds - 1)))
        first = _message(d, public, None)
        event = channel_for(first, name, guarantee).event
        plan = local_plan(self, design, guarantee, n, event, shares=shares, options=public)

        later = _message(d, public, np.zeros(d))
        users = n * (1 - _FIRST)
        score = noise_of(later, channel_for(later, name, guarantee), users)[1]
        inverse = np.linalg.inv(_mean_derivatives(_TYPICAL)[0] * gram)
        privacy_cov = score**2 * inverse @ inverse
        cov = privacy_cov + inverse / users
        standard, zero = design.standardization, np.zeros(d)
        noisy, total = (np.diag(standard.to_user(zero, c)[1]) for c in (privacy_cov, cov))
        return replace(
            plan,
            predicted_se=tuple(float(v) for v in np.sqrt(total)),
            privacy_share=float(noisy.sum() / total.sum()),
            assumptions=(
                facts.guess.assumptions[0],
                f"Linear predictors have a standard deviation of about {_TYPICAL:g}.",
            ),
            warnings=_warnings(
                plan,
                math.sqrt(float(np.trace(cov @ gram))) / _TYPICAL,
                2
                * math.sqrt(d)
                * noise_of(first, channel_for(first, name, guarantee), n * _FIRST)[0]
                / float(np.linalg.eigvalsh(gram)[0]),
            ),
        )

    def question(
        self, design: Design, plan: Plan, answers: Sequence[Messages], public: Array | None
    ) -> Question | None:
        """Second moments first, then the score at what was learned so far."""
        if len(answers) == len(plan.options["shares"]):
            return None
        theta = None if not answers else _path(design, plan, answers)[0]
        return _question(design, plan, theta)

    def finish(
        self, design: Design, plan: Plan, answers: Sequence[Messages], public: Array | None
    ) -> Estimate:
        """Average of the steps, by their precision."""
        _, steps, hidden, moments = _path(design, plan, answers)
        precision = np.array([1 / float(np.trace(step.cov)) for step in steps])
        weights = precision / precision.sum()
        params = np.asarray(weights @ np.array([step.end for step in steps]))
        cov, noise = _covariance(steps, weights, params, moments, answers[0])
        raised = float(np.trace(hidden))
        remarks = (
            "Noise hides some directions of the columns: coefficients are drawn towards the start "
            "along them.",
        )
        return Estimate(
            params=params,
            cov=cov + float(params @ params) / params.size * hidden,
            cov_privacy=noise,
            nobs=float(sum(answer.count for answer in answers)),
            released={"weights of rounds": [0.0, *map(float, weights)]},
            remarks=remarks if raised > 0.05 else (),
        )


def _radius(options: Mapping[str, Any]) -> dict[str, Any]:
    return {"radius": options["radius"]} if "radius" in options else {}


def _message(width: int, options: Mapping[str, Any], theta: Array | None) -> MomentMessage:
    """The first message without `theta`, a later one with it."""
    first = theta is None
    clip, share = (0.5, 0.5) if first else (1.0, 0.0)
    return MomentMessage(width, float(options["radius"]), clip, share, theta=theta, logistic=True)


def _question(design: Design, plan: Plan, theta: Array | None) -> Question:
    assert isinstance(plan.privacy, Local)
    message = _message(len(design.names), plan.options, theta)
    return Question(message, channel_for(message, str(plan.options["channel"]), plan.privacy))


def _path(
    design: Design, plan: Plan, answers: Sequence[Messages]
) -> tuple[Array, list[_Step], Array, Question]:
    """Where the next question is asked; the steps so far; what noise hides; the first question."""
    first = _question(design, plan, None)
    gram, score = first.message.split(answers[0].mean)
    variance = coordinate_variance(first.channel) / answers[0].count
    noise = first.message.variances(variance)
    target = facts_of(design, {}).guess.gram
    improved, part = shrunk(gram, noise[0], target)
    sd = math.sqrt(float(noise[0][0, -1])) if len(gram) > 1 else 0.0
    moments, hidden = invertible(improved, sd, part)
    theta = _start(moments, score, float(noise[1].mean()))
    steps: list[_Step] = []
    for answer in answers[1:]:
        asked = _question(design, plan, theta)
        inverse: Array = np.asarray(np.linalg.inv(_hessian(moments, theta)))
        rows: Array = inverse @ asked.message.influence(np.zeros_like(theta))
        cov: Array = rows @ answer.covariance @ rows.T
        spread = coordinate_variance(asked.channel) / answer.count
        end: Array = theta + inverse @ asked.message.split(answer.mean)[1]
        steps.append(_Step(theta, end, inverse, cov, spread * rows @ rows.T))
        weights = np.array([1 / float(np.trace(step.cov)) for step in steps])
        mixed: Array = np.asarray(weights @ np.array([step.end for step in steps]) / weights.sum())
        theta = mixed * np.float64(min(1.0, _LARGEST / max(_size(moments, mixed), 1e-300)))
    return theta, steps, hidden, first


def _covariance(
    steps: Sequence[_Step], weights: Array, params: Array, first: Question, answer: Messages
) -> tuple[Array, Array]:
    """Of the errors of the average step, and of its privacy noise."""
    cov = sum(w**2 * step.cov for w, step in zip(weights, steps, strict=True))
    noise = sum(w**2 * step.noise for w, step in zip(weights, steps, strict=True))
    # Errors of A turn a step of length h into one of (I + A^-1 dA) h, to first order.
    row = np.zeros((params.size, first.message.dim))
    for w, step in zip(weights, steps, strict=True):
        curvature = _mean_derivatives(1.0)[0]
        moved = first.message.influence(params - step.start)
        moved[:, first.message.moments :] = 0.0
        row += w * curvature * step.inverse @ moved
    variance = coordinate_variance(first.channel) / answer.count
    return (
        np.asarray(cov + row @ answer.covariance @ row.T),
        np.asarray(noise + variance * row @ row.T),
    )


def _start(moments: Array, score: Array, noise: float) -> Array:
    """Coefficients for which E x (p(x'b) - 1/2) = c(b) A b is the score, columns being normal.

    The score is first drawn towards zero by the share of its length that noise explains.
    """
    from scipy.optimize import brentq

    direction = np.linalg.solve(moments, score)
    length2 = float(score @ direction)
    expected = noise * float(np.trace(np.linalg.inv(moments)))
    kept = max(0.0, 1 - expected / max(length2, 1e-300))
    length = math.sqrt(max(length2, 0.0)) * kept
    if length == 0:
        return np.zeros_like(score)

    def excess(size: float) -> float:
        return size * _mean_derivatives(size)[0] - length

    size = _LARGEST if excess(_LARGEST) <= 0 else float(brentq(excess, 0.0, _LARGEST))
    start: Array = direction * np.float64(kept / _mean_derivatives(size)[0])
    return start


def _hessian(moments: Array, theta: Array) -> Array:
    """E p'(x'theta) x x' for normal columns with these second moments."""
    first, third = _mean_derivatives(_size(moments, theta))
    along = moments @ theta
    hessian: Array = first * moments + third * np.outer(along, along)
    return hessian


def _size(moments: Array, theta: Array) -> float:
    return math.sqrt(max(float(theta @ moments @ theta), 0.0))


def _mean_derivatives(size: float) -> tuple[float, float]:
    """Means of the first and the third derivative of the logistic function at N(0, size^2)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    p = 1 / (1 + np.exp(-size * nodes))
    first = p * (1 - p)
    third = first * (1 - 6 * first)
    total = float(weights.sum())
    return float(weights @ first) / total, float(weights @ third) / total


def _warnings(plan: Plan, error: float, blur: float) -> tuple[str, ...]:
    at = f"At n={plan.n:,} and epsilon={plan.privacy.epsilon:g} with {len(plan.names)} columns"
    if error > 0.5:
        text = f"{at} the expected error is {error:.2g} times the size of the coefficients."
        return (need(plan, 2 * error, text),)
    if blur > 1:
        text = f"{at} noise hides how the columns are correlated."
        return (need(plan, blur, text),)
    return ()
