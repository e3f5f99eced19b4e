"""Iterative hard thresholding on devices, as published, with its bounds corrected."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError, is_whole
from dpstats.estimators.base import need_integer, need_positive
from dpstats.estimators.bounds import INTERACTIVE_LOWER, LINEAR, SPARSE_SAMPLING
from dpstats.estimators.local.base import DeviceRounds, without_law
from dpstats.estimators.local.choice import fixed, largest_coefficients
from dpstats.estimators.local.requests import (
    CHANNELS,
    channel_for,
    device_question,
    need,
    noise_of,
    record_guess,
    senders,
    vector_channel,
)
from dpstats.estimators.local.theory import IN_ROUNDS
from dpstats.estimators.sources import WANG_XU, ZHU
from dpstats.privacy import Local
from dpstats.protocol import CoefficientEstimate, DeviceQuestion, Messages, Options, Plan
from dpstats.queries import MomentMessage
from dpstats.theory import Assumption, Rate, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["LDPIHT"]

Array = NDArray[np.float64]

_KEPT = 8  # printed: columns kept per column asked for, as printed
_MOST_ROUNDS = 1000  # numerical: rounds that may be asked for

_PROOF = ZHU.at("proof of Theorem 7")

_THEORY = Theory(
    estimand="coefficients of a model in which at most s columns matter",
    guarantee=IN_ROUNDS,
    assumptions=(
        LINEAR,
        Assumption("Columns are isotropic and sub-Gaussian; coefficients lie in the unit ball"),
        Assumption(
            "Theorem 4 of Wang & Xu, with the factor s that its sensitivity lacks",
            "n/log(n) >~ d s^2 log(d)/eps^2",
        ),
    ),
    upper=(
        SPARSE_SAMPLING,
        Rate("privacy", "s log(n) sqrt(T d log(d)/n)/eps, T = log(n)", _PROOF),
    ),
    lower=INTERACTIVE_LOWER,
    citations=(
        WANG_XU.at("Algorithm 1, Theorem 4"),
        ZHU.at("Algorithms 2 and 4, Theorems 6 and 7"),
    ),
    corrections=(
        "|<x, theta>| is bounded by sqrt(k') tau_1 ||theta||, not by 1: a message is "
        "sqrt(d) tau_1 (sqrt(k') tau_1 ||theta|| + tau_2) long, as Zhu et al. found, and the rate "
        "of Wang & Xu's Theorem 4 gains a factor sqrt(s). Residuals are held to the bound, so that "
        "it is true of every record.",
        "The constant of the randomiser is exact, where O(r sqrt(d)) is printed.",
        "Rows longer than sqrt(d) tau_1 are weighted down as a whole.",
        "The step is the inverse of the largest guessed second moment, where O(1) is printed.",
        "Truncation is applied to the iterate that the step made (the printed index is one off).",
        "The intercept is never truncated.",
    ),
)


@dataclass(frozen=True)
class LDPIHT(DeviceRounds):
    """LDP iterative hard thresholding (Wang & Xu 2019, Algorithm 1; Zhu et al., 2 and 4).

    Users are divided into T rounds. In round t each sends its randomised gradient
    ``x clip(x'theta - y)`` at the public theta; then, with their average g,

        theta <- the point of a ball nearest to H_k'(theta - step g),

    H_k' keeping the k' largest coefficients. ``ball=1`` is Algorithm 2 of Zhu et al. (and Wang &
    Xu's), ``ball=2`` their Algorithm 4, for columns that are not isotropic.

    Notes
    -----
    *Guarantee.* A message lies in the unit ball after division by the radius sqrt(d) tau_1 times
    the clip sqrt(k') tau_1 ball + tau_2 of residuals, and the channel projects it there in any
    case; the hemisphere randomiser (Duchi, Jordan & Wainwright 2018) then makes it pure
    epsilon-DP. Every user is asked in one round.

    *Where it stands.* It keeps the printed constants: with k' = 8 s columns and log(n) rounds it
    needs more than a million users for 50 columns at epsilon 1, where `local-screening` needs
    40,000.
    """

    name: ClassVar[str] = "ldp-iht"
    sparse: ClassVar[bool] = True
    theory: ClassVar[Mapping[str, Theory]] = {"local": _THEORY}
    options: ClassVar[Mapping[str, str]] = {
        "sparsity": "number s of columns that matter, beside the intercept; needed",
        "rounds": "number T of rounds; the rounded-up log(n) by default",
        "kept": "columns k' kept by truncation; 8 s by default, at most all",
        "ball": "norm of coefficients in standardised units; 1 by default, 2 for Algorithm 4",
        "step_size": "step as a multiple > 0 of the inverse largest guessed second moment",
        "channel": f"one of {CHANNELS}; 'hemisphere' as printed by default",
    }

    def _local_plan(self, design: Design, privacy: Local, n: int, options: Options) -> Plan:
        d, facts = len(design.names), record_guess(design, {})
        s = options.get("sparsity")
        if not is_whole(s):
            raise OptionError(f"method={self.name!r} needs one number: sparsity=5, for example.")
        kept = need_integer("kept", options.get("kept"), min(_KEPT * s, d), 1, d)
        planned = math.ceil(math.log(n))
        rounds = need_integer("rounds", options.get("rounds"), planned, 1, _MOST_ROUNDS)
        ball = need_positive("ball", options.get("ball"), 1.0)
        reach = float(np.abs(np.asarray(design.internal_bounds)).max())
        spread = facts.spread
        width = min(facts.guess.bound, spread * math.sqrt(math.log(max(n, 3))))
        channel = vector_channel({"channel": "hemisphere", **options}, privacy)
        public = {
            "sparsity": s,
            "kept": kept,
            "ball": ball,
            "step_size": need_positive("step_size", options.get("step_size"), 1.0),
            "radius": math.sqrt(d) * reach,
            "clip": math.sqrt(kept) * reach * ball + width,
            "channel": channel,
        }
        message = _message(design, public, np.zeros(d))
        question = DeviceQuestion(message, channel_for(message, channel, privacy))
        shares = (1.0 / rounds,) * rounds
        plan = self._charged(design, privacy, n, question.channel.event, public, shares)
        noise = noise_of(question, senders(plan) / rounds)[1] / float(facts.squares / d)
        ratio = noise * math.sqrt(kept) / min(ball, math.sqrt(facts.guess.coefficient2))
        text = (
            f"With the printed constants the noise of the last round is {ratio:.2g} times the size "
            "of the coefficients; the default method needs far fewer users."
        )
        return replace(plan, warnings=(need(plan, 2 * ratio, text),) if ratio > 0.5 else ())

    def _question(self, design: Design, plan: Plan, answers: Sequence[Messages]) -> DeviceQuestion:
        """The gradient at what earlier rounds led to."""
        return device_question(
            _message(design, plan.options, self._after(design, plan, answers)), plan
        )

    def _after(self, design: Design, plan: Plan, answers: Sequence[Messages]) -> Array:
        """Coefficients after the rounds answered."""
        facts, o = record_guess(design, {}), plan.options
        theta = np.zeros(len(design.names))
        rate = float(o["step_size"]) / float(np.linalg.eigvalsh(facts.guess.gram)[-1])
        for answer in answers:
            message = _message(design, o, theta)
            theta = theta + rate * message.split(answer.mean)[1]
            theta = largest_coefficients(theta, np.abs(theta), int(o["kept"]), fixed(design))
            theta = theta * min(1.0, float(o["ball"]) / max(float(np.linalg.norm(theta)), 1e-300))
        return theta

    def finish(
        self, design: Design, plan: Plan, answers: Sequence[Messages], public: Array | None
    ) -> CoefficientEstimate:
        """The last iterate; the paper gives no standard errors."""
        theta = self._after(design, plan, answers)
        why = "the method keeps columns by their noisy size, and proves no law"
        return without_law(theta, float(sum(answer.count for answer in answers)), why, {})


def _message(design: Design, options: Options, theta: Array) -> MomentMessage:
    return MomentMessage(
        len(design.names), float(options["radius"]), float(options["clip"]), 0.0, theta
    )
