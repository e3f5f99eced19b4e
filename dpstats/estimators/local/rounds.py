"""Regression from devices asked in rounds: residuals shrink, and so does the noise on them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.bounds import (
    LINEAR,
    LOCAL_LOWER,
    MOMENTS_SEEN,
    SAMPLING,
    SMALL_EPS,
)
from dpstats.estimators.local.base import PooledRounds
from dpstats.estimators.local.conclusion import as_estimate
from dpstats.estimators.local.pool import (
    ENOUGH,
    AnsweredQuestion,
    Fit,
    GramEstimate,
    clip_bias,
    estimate,
    gram_of,
    signal,
)
from dpstats.estimators.local.requests import (
    GATE,
    OPTIONS,
    RecordGuess,
    channel_for,
    clear,
    device_question,
    expect_local,
    noise_of,
    record_guess,
    senders,
    share_inside,
    skew_bias,
    vector_channel,
)
from dpstats.estimators.local.theory import IN_ROUNDS, PRIVUNIT, SHRUNK
from dpstats.estimators.sources import CAI, ZHU
from dpstats.privacy import Local
from dpstats.protocol import CoefficientEstimate, DeviceQuestion, Messages, Options, Plan
from dpstats.queries import MomentMessage
from dpstats.theory import Assumption, Rate, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["CORRECTIONS", "LocalRounds", "expected_in_rounds", "learned_radius", "spread_of"]

Array = NDArray[np.float64]
Index = NDArray[np.intp]

_USERS = (0.5, 0.5)  # share: of the users, in each round
_MOMENTS = (0.5, 0.1)  # share: of the square norm of a message for second moments, in each round
_CLIPS = (1.0, 0.9)  # sds: clip of residuals, in each round
_ASKED = "clip asked for"  # wording: option of the plan, that there is one
_FAR = 2.0  # ratio: of a radius that was learned to the guessed one, or the other way round
_BENT = 0.15  # ratio: relative difference of the curvatures that two rounds see in a skewed column
_NO_FIT = "Noise is counted for residuals as spread as the response; smaller ones need less."
_LEAST_SPREAD = 0.2  # numerical: spread of a residual over that of the response, at least
_SKEWED = (
    "Residuals are held to .9 of their standard deviation: coefficients are those of least squares "
    "where residuals are symmetric, and others where they are not, which no message shows. If "
    "they are skewed as an exponential law is, the intercept is off by {ses:.1f} standard errors, "
    "and intervals do not count that. Ask for clip=1, the default, where residuals are known to be "
    "symmetric, and otherwise for a wide clip, such as clip=6, with longer intervals."
)

CORRECTIONS = (
    "Residuals are clipped, and the clip is the sensitivity: |x'theta| may be as large as "
    "sqrt(k') r for a k'-sparse theta of norm 1, not 1 (Zhu et al. correct Wang & Xu).",
    "Two to four rounds instead of log(n), with users where they matter most, and all rounds are "
    "used in the end, weighted by their precision.",
)

_LOWER = ZHU.at("Theorem 6, the lower bound, at s = d")

_DENSE = Theory(
    estimand=(
        "regression coefficients where the mean is linear and residuals are symmetric; otherwise "
        "those of a clipped regression"
    ),
    guarantee=IN_ROUNDS,
    assumptions=(
        LINEAR,
        Assumption("Residuals are symmetric, or the intercept absorbs their skewness"),
        MOMENTS_SEEN,
    ),
    upper=(
        SAMPLING,
        Rate("privacy", "d/(eps sqrt(n))", _LOWER, conjectured=True, given=(SMALL_EPS,)),
    ),
    lower=LOCAL_LOWER,
    citations=(
        ZHU.at("Algorithms 2 and 4, Theorem 6"),
        PRIVUNIT,
        SHRUNK,
        CAI.at("Theorem 4.1"),
    ),
    corrections=CORRECTIONS,
)


@dataclass(frozen=True)
class LocalRounds(PooledRounds):
    """Least squares from two rounds of devices; the default where devices may be asked in rounds.

    1. Half of the users send second moments and the clipped score at zero, as in `LocalMoments`.
    2. The others send the clipped score at the coefficients that follow, with a clip and a radius
       that follow from the first round, and some more of the second moments.

    Both rounds together give ``A params``, weighted by their precision; see `local.pool`. Errors of
    A, which dominate when devices are asked once, meet the difference to the first estimate only.

    Notes
    -----
    *Guarantee.* One epsilon-DP message of each device; a device answers in one round.

    *Clips.* They are narrow, as noise grows with them; residuals that are skewed ask for a wider
    `clip`, by which that of the second round is wider, too: few responses are beyond it, and their
    spread is taken to be the largest that this leaves. A remark says so where an exponential law
    would move the intercept by more than its standard error.

    *Covariance.* From influence functions of the messages of both rounds, as in `LocalMoments`, and
    15 % of the way from the first estimate to the last: the second round weights and clips rows
    otherwise than the moments that its score is divided by.
    """

    subsets: ClassVar[bool] = True
    name: ClassVar[str] = "local-rounds"
    theory: ClassVar[Mapping[str, Theory]] = {"local": _DENSE}
    options: ClassVar[Mapping[str, str]] = {k: OPTIONS[k] for k in ("channel", "radius", "clip")}

    def _local_plan(self, design: Design, privacy: Local, n: int, options: Options) -> Plan:
        facts = record_guess(design, options)
        public = {
            "channel": vector_channel(options, privacy),
            "radius": facts.radius,
            "clip": facts.clip or _CLIPS[0],
            **({} if options.get("clip") is None else {_ASKED: True}),
        }
        first = _first_message(design, facts, public)
        event = channel_for(first, str(public["channel"]), privacy).event
        plan = self._charged(design, privacy, n, event, public, _USERS)
        moment, _ = noise_of(device_question(first, plan), senders(plan) * _USERS[0])
        last = replace(first, share=_MOMENTS[1] * (1 - GATE), clip=_CLIPS[1] * facts.spread)
        score = noise_of(device_question(last, plan), senders(plan) * _USERS[1])[1]
        score /= share_inside(_CLIPS[1])
        return expected_in_rounds(plan, design, facts, moment, score, len(plan.names))

    def finish(
        self, design: Design, plan: Plan, answers: Sequence[Messages], public: Array | None
    ) -> CoefficientEstimate:
        """Pool both rounds and solve."""
        made = self._answered(design, plan, answers)
        gram_estimate, fit = _dense_fit(made, design, plan)
        fit = replace(fit, cov=fit.cov + _bent(made, fit))
        found = as_estimate(made, gram_estimate, fit, design.names)
        said = () if _ASKED in plan.options else _skewed(made[-1], found, design)
        return replace(found, remarks=(*found.remarks, *said))

    def _next(
        self, design: Design, plan: Plan, made: list[AnsweredQuestion]
    ) -> tuple[DeviceQuestion, float]:
        facts = record_guess(design, plan.options)
        message, spreads = _first_message(design, facts, plan.options), float(plan.options["clip"])
        if made:
            gram_estimate, fit = _dense_fit(made, design, plan)
            kept, residual = _towards_zero(fit, gram_estimate, spread_of(made[0], facts))
            spreads = _CLIPS[1]
            message = replace(
                message,
                radius=learned_radius(made, gram_estimate.columns, facts),
                clip=spreads * residual,
                share=_MOMENTS[1] * (1 - GATE),
                theta=kept * fit.params,
            )
        return device_question(message, plan), clip_bias(spreads)


def _first_message(design: Design, facts: RecordGuess, options: Options) -> MomentMessage:
    share = _MOMENTS[0] * (1 - GATE)
    clip = float(options["clip"]) * facts.spread
    return MomentMessage(len(design.names), facts.radius, clip, share, gate=GATE)


def spread_of(made: AnsweredQuestion, facts: RecordGuess) -> float:
    """Spread of the response, from the share of responses inside the first clip."""
    from scipy.special import ndtri

    inside = min(made.inside[0], 0.98)
    found = made.message.clip / float(ndtri((1 + inside) / 2))
    return float(np.clip(found, facts.spread / 4, facts.spread * 4))


def learned_radius(made: Sequence[AnsweredQuestion], columns: Index, facts: RecordGuess) -> float:
    """Typical norm of rows: the released trace where there is one, else the guess."""
    guessed = facts.radius_of(columns.size)
    for round_ in reversed(made):
        asked = round_.message.asked
        if round_.message.share and np.isin(columns, asked).all():
            at = np.searchsorted(asked, columns)
            trace = float(np.diag(round_.message.split(round_.answer.mean)[0])[at].sum())
            typical = math.sqrt(max(trace / round_.inside[1], 0.0))
            return float(np.clip(typical, guessed / _FAR, guessed * _FAR))
    return guessed


def _dense_fit(
    made: Sequence[AnsweredQuestion], design: Design, plan: Plan
) -> tuple[GramEstimate, Fit]:
    columns = np.arange(len(design.names))
    target = record_guess(design, plan.options).guess.gram
    gram_estimate = gram_of(made, columns, target, fewest=ENOUGH)
    return gram_estimate, estimate(made, gram_estimate, columns, columns.size, safe=True)


def _bent(made: Sequence[AnsweredQuestion], fit: Fit) -> Array:
    """Variance of the errors that other weights and clips in the last round leave, (k, k)."""
    step = fit.params - made[-1].theta(fit.columns.size)
    return np.diag((_BENT * fit.weights[-1] * step) ** 2)


def _skewed(made: AnsweredQuestion, found: CoefficientEstimate, design: Design) -> tuple[str, ...]:
    """That the clip nobody asked for matters if residuals are skewed as an exponential law is."""
    place = design.standardization.intercept
    if place is None or found.inference:
        return ()
    off = skew_bias(_CLIPS[1]) * made.message.clip / _CLIPS[1]
    ses = off / math.sqrt(float(found.cov[place, place]))
    return (_SKEWED.format(ses=ses),) if ses > 1 else ()


def _towards_zero(fit: Fit, gram_estimate: GramEstimate, spread: float) -> tuple[float, float]:
    """Factor in [0, 1] for coefficients so noisy, and the spread of residuals that it leaves.

    Of ``q = b'A b`` the part ``e = tr(A V)`` is noise; the factor is 1 - e/q (James & Stein).
    """
    fitted, clean = signal(fit, gram_estimate)
    factor = clean / fitted if fitted > 0 else 0.0
    left = max(spread**2 - factor * clean, (_LEAST_SPREAD * spread) ** 2)
    return factor, math.sqrt(left)


def expected_in_rounds(
    plan: Plan, design: Design, facts: RecordGuess, moment: float, score: float, kept: int
) -> Plan:
    """The plan with its expected standard errors, and its warnings.

    Noise of second moments meets what the first round leaves: as much as its own noise.
    """
    blur = facts.blur(moment)
    away = facts.guess.coefficient2 * min(1.0, blur) ** 2
    noise, users = score**2 + moment**2 * away, senders(plan) * plan.options["shares"][-1]
    plan, error = expect_local(plan, design, facts, noise, users, kept)
    return replace(
        plan,
        assumptions=(*facts.guess.assumptions, _NO_FIT),
        warnings=clear(plan, error, blur, sparse=False),
    )
