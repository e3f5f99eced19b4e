"""Sparse regression from devices asked in rounds: each leaves fewer columns in play."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.channels import CoordinateSampling
from dpstats.estimators.bounds import INTERACTIVE_LOWER, LINEAR, SPARSE_SAMPLING
from dpstats.estimators.local.base import PooledRounds
from dpstats.estimators.local.choice import fixed, sizes_asked, sparse_estimate, stepwise
from dpstats.estimators.local.pool import (
    AnsweredQuestion,
    GramEstimate,
    clip_bias,
    coordinate_variance,
    estimate,
    gram_of,
    pool_rounds,
)
from dpstats.estimators.local.requests import (
    GATE,
    OPTIONS,
    RecordGuess,
    channel_for,
    device_question,
    need,
    noise_of,
    record_guess,
    senders,
    share_inside,
    vector_channel,
)
from dpstats.estimators.local.rounds import (
    CORRECTIONS,
    expected_in_rounds,
    learned_radius,
    spread_of,
)
from dpstats.estimators.local.theory import IN_ROUNDS, PRIVUNIT
from dpstats.estimators.sources import ZHU
from dpstats.privacy import Local, Privacy
from dpstats.protocol import CoefficientEstimate, DeviceQuestion, Messages, Options, Plan
from dpstats.queries import MomentMessage
from dpstats.theory import Assumption, Rate, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["LocalScreening"]

Array = NDArray[np.float64]
Index = NDArray[np.intp]

# Users, share of messages for second moments, clip in spreads, and columns that are left after it
# as multiples of the sparsity, round by round.
_USERS = (0.6, 0.2, 0.1, 0.1)  # share: of the users, in each round
# share: of the square norm of a message for second moments, in each round
_MOMENTS = (0.0, 0.08, 0.08, 0.0)
_CLIPS = (0.8, 0.8, 0.6, 0.4)  # sds: clip of residuals, in each round
_LEFT = (2.4, 1.6, 1.2, 1.0)  # ratio: columns left after each round, to those asked for
_SPARSITY = 5  # number: columns to look for, if no number is asked for

_THRESHOLDED = ZHU.at("Theorem 7, for hard thresholding, without its logarithms")

_THEORY = Theory(
    estimand=(
        "coefficients of a model in which at most s columns matter; where more do, those of the "
        "best fit on the columns that were selected"
    ),
    guarantee=IN_ROUNDS,
    assumptions=(
        LINEAR,
        Assumption("At most s columns matter, each visible in the covariance with the response"),
        Assumption("Columns are isotropic"),
        Assumption("Noise lets them be found", "n > d s log(d)/eps^2"),
    ),
    upper=(
        SPARSE_SAMPLING,
        Rate("privacy", "s sqrt(d)/(eps sqrt(n))", _THRESHOLDED, conjectured=True),
    ),
    lower=INTERACTIVE_LOWER,
    citations=(ZHU.at("Algorithms 2 and 4, Theorems 6 and 7"), PRIVUNIT),
    corrections=(
        *CORRECTIONS,
        "After each round only columns that are still in play are asked for: the noise of a score "
        "falls with their number.",
    ),
)


@dataclass(frozen=True)
class LocalScreening(PooledRounds):
    """Sparse least squares by successive elimination of columns; four rounds of devices.

    Every round asks for the clipped score at the current coefficients of the columns that are
    still in play, and leaves fewer of them: 2.4, 1.6, 1.2 and 1 times the sparsity. The second
    and third round ask for second moments too. The first round, which sees all columns, takes 60
    percent of the users; later ones need few, since noise falls with the columns asked for and
    with the clip of the residuals. All rounds are pooled for the columns that are left.

    Notes
    -----
    *Guarantee.* One epsilon-DP message of each device; a device answers in one round.

    *Channel.* PrivUnit, or sampled coordinates where columns fill their bounds (pass the norm of
    such rows as ``radius``): whichever has less noise.

    *Inference.* Conditional on the columns selected.
    """

    name: ClassVar[str] = "local-screening"
    sparse: ClassVar[bool] = True
    theory: ClassVar[Mapping[str, Theory]] = {"local": _THEORY}
    options: ClassVar[Mapping[str, str]] = {
        "sparsity": "number of columns to select, beside the intercept; by default those of the "
        f"{_SPARSITY} best that stand out of the noise",
        "channel": OPTIONS["channel"],
        "radius": OPTIONS["radius"],
    }

    def _local_plan(self, design: Design, privacy: Local, n: int, options: Options) -> Plan:
        facts = record_guess(design, options)
        public = {
            "channel": vector_channel(options, privacy),
            "radius": facts.radius,
            **{k: v for k, v in options.items() if k == "sparsity"},
        }
        message = _screening_message(design, facts, public, privacy)
        event = channel_for(message, str(public["channel"]), privacy).event
        plan = self._charged(design, privacy, n, event, public, _USERS)
        size = _most(public)
        last = MomentMessage(size, facts.radius_of(size), _CLIPS[-1] * facts.spread, 0.0, gate=GATE)
        users = senders(plan)
        score = noise_of(device_question(last, plan), users * _USERS[-1])[1]
        score /= share_inside(_CLIPS[-1])
        kept = min(size, len(plan.names))
        plan = expected_in_rounds(plan, design, facts, 0.0, score, kept)
        first = noise_of(device_question(message, plan), users * _USERS[0])[1]
        first /= share_inside(message.clip / facts.spread)
        return _with_screening(plan, facts, first, size)

    def finish(
        self, design: Design, plan: Plan, answers: Sequence[Messages], public: Array | None
    ) -> CoefficientEstimate:
        """Pool all rounds for the columns that are left."""
        made = self._answered(design, plan, answers)
        made, gram_estimate = _framed(made, design, plan)
        return sparse_estimate(made, gram_estimate.restricted(made[-1].message.asked), design, plan)

    def _next(
        self, design: Design, plan: Plan, made: list[AnsweredQuestion]
    ) -> tuple[DeviceQuestion, float]:
        facts, name = record_guess(design, plan.options), str(plan.options["channel"])
        turn, width = len(made), len(design.names)
        spreads = (facts.clip if turn == 0 else None) or _CLIPS[turn]
        if turn == 0:
            message = _screening_message(design, facts, plan.options, plan.privacy)
        else:
            rounds, gram_estimate = _framed(made, design, plan)
            columns, theta = _survivors(rounds, gram_estimate, design, plan)
            message = MomentMessage(
                width,
                learned_radius(rounds, columns, facts),
                spreads * spread_of(made[0], facts),
                _MOMENTS[turn] * (1 - GATE),
                theta=theta,
                columns=tuple(int(j) for j in columns),
                gate=GATE,
            )
            message = _boxed(message, design, name, plan.privacy)
        return device_question(message, plan), clip_bias(spreads)


def _screening_message(
    design: Design, facts: RecordGuess, options: Options, privacy: Privacy
) -> MomentMessage:
    clip = (facts.clip or _CLIPS[0]) * facts.spread
    message = MomentMessage(len(design.names), facts.radius, clip, 0.0, gate=GATE)
    return _boxed(message, design, str(options["channel"]), privacy)


def _boxed(message: MomentMessage, design: Design, name: str, privacy: Privacy) -> MomentMessage:
    """The message over the box of the columns' bounds, where its noise is smaller there."""
    if message.share or name != "privunit":
        return message
    bound = np.abs(np.asarray(design.internal_bounds, dtype=np.float64)).max(axis=1)
    box = replace(message, bound=bound)
    noise = coordinate_variance(channel_for(message, name, privacy)) / (1 - message.gate)
    sampled = coordinate_variance(CoordinateSampling(box.dim, privacy.epsilon))
    sampled *= float(np.mean(bound[message.asked] ** 2))
    return box if sampled < noise * message.radius**2 else message


def _framed(
    made: Sequence[AnsweredQuestion], design: Design, plan: Plan
) -> tuple[list[AnsweredQuestion], GramEstimate]:
    """Rounds in one scale, and second moments of the columns asked for in the second round."""
    facts = record_guess(design, plan.options)
    moments = [m for m in made if m.message.share]
    columns = moments[0].message.asked if moments else np.arange(len(design.names))
    gram_estimate = gram_of(made, columns, _target(design, facts))
    weight = float(np.clip(np.mean([m.inside[1] for m in moments]), 0.2, 1)) if moments else 1.0
    return [
        replace(m, scale=weight if m.message.bound is not None else 1.0) for m in made
    ], gram_estimate


def _target(design: Design, facts: RecordGuess) -> Array:
    """Second moments guessed, in the scale of the radius; those of the intercept are known."""
    always = len(fixed(design))
    scale = (facts.radius**2 - always) / (facts.squares - always)
    target = facts.guess.gram * np.float64(scale)
    for at in fixed(design):
        target[at] = target[:, at] = facts.guess.gram[at] * np.sqrt(scale)
        target[at, at] = 1.0
    return target


def _survivors(
    rounds: Sequence[AnsweredQuestion], gram_estimate: GramEstimate, design: Design, plan: Plan
) -> tuple[Index, Array | None]:
    """Columns for the next round, and the coefficients to take residuals at."""
    always, size, width = fixed(design), _most(plan.options), len(design.names)
    last = rounds[-1].message.asked
    room = math.ceil(_LEFT[len(rounds) - 1] * size)
    most = spread_of(rounds[0], record_guess(design, plan.options)) ** 2  # that columns can explain
    if len(rounds) == 1:  # by covariance with the response alone, in standard units
        score = rounds[0].score(last) / np.sqrt(np.diag(gram_estimate.gram))
        score[list(always)] = np.inf
        kept = np.argsort(-np.abs(score), kind="stable")[: room + len(always)]
        return np.sort(last[kept]), None
    now = np.zeros(width)
    for _ in range(2):
        vector = pool_rounds(rounds, gram_estimate, last, now)[0]
        chosen = stepwise(gram_estimate, last, vector, size, always)
        fit = estimate(rounds, gram_estimate, chosen, width)
        now = np.zeros(width)
        now[fit.columns] = fit.params
    explained = float(fit.vector @ fit.params)
    return stepwise(gram_estimate, last, vector, room, always), now * min(
        1.0, most / max(explained, most)
    )


def _most(options: Options) -> int:
    """Largest number of columns looked for."""
    return max(sizes_asked(options), default=_SPARSITY)


def _with_screening(plan: Plan, facts: RecordGuess, noise: float, size: int) -> Plan:
    """The plan with a warning where columns cannot be told from noise in the first round."""
    scale = facts.squares / len(plan.names)
    typical = scale * math.sqrt(facts.guess.sd**2 / (scale * size))
    if noise < 0.6 * typical:
        return plan
    text = (
        f"At n={plan.n:,} and epsilon={plan.privacy.epsilon:g} the first round cannot tell columns "
        f"from noise: noise is {noise / typical:.2g} times the score of each of {size} columns "
        "that matter alike."
    )
    return replace(plan, warnings=(*plan.warnings, need(plan, noise / typical / 0.5, text)))
