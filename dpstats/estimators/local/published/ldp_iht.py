"""Iterative hard thresholding on devices, as published, with its bounds corrected."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError
from dpstats.estimators.base import check_options
from dpstats.estimators.bounds import INTERACTIVE_LOWER, LINEAR, SPARSE_SAMPLING
from dpstats.estimators.local.asks import (
    CHANNELS,
    channel_for,
    facts_of,
    local,
    need,
    noise_of,
    vector_channel,
)
from dpstats.estimators.local.base import Rounds, local_plan
from dpstats.estimators.local.moments import fixed
from dpstats.estimators.local.theory import GUARANTEE, ROUNDS
from dpstats.estimators.sources import WANG_XU, ZHU
from dpstats.privacy import Local, Privacy
from dpstats.protocol import Estimate, Messages, Plan, Question
from dpstats.queries import MomentMessage
from dpstats.theory import Assumption, Rate, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["LDPIHT"]

Array = NDArray[np.float64]

_KEPT = 8  # columns kept per column asked for, as printed
_MOST_ROUNDS = 1000

_PROOF = ZHU.at("proof of Theorem 7")

_THEORY = Theory(
    estimand="coefficients of a model in which at most s columns matter",
    guarantee=GUARANTEE + ROUNDS,
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
class LDPIHT(Rounds):
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
    model: ClassVar[str] = "ols"
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

    @staticmethod
    def serves(privacy: Privacy) -> bool:
        """Whether devices may be asked in rounds."""
        return isinstance(privacy, Local) and privacy.interactive

    def plan(self, design: Design, privacy: Privacy, n: int, **options: Any) -> Plan:
        """Rounds, message, channel and warnings from public facts only.

        Parameters
        ----------
        design : Design
            Public design.
        privacy : Local
            The guarantee of one message, with ``interactive=True``.
        n : int
            Number of users.
        **options
            See ``options``.

        Raises
        ------
        OptionError
            If an option is missing, unknown or out of range, or there are fewer users than rounds.
        """
        check_options(self.name, self.options, options)
        guarantee = local(self.name, privacy, interactive=True)
        d, facts = len(design.names), facts_of(design, {})
        s = options.get("sparsity")
        if not isinstance(s, int):
            raise OptionError(f"method={self.name!r} needs one number: sparsity=5, for example.")
        kept = _whole("kept", options.get("kept", min(_KEPT * s, d)), d)
        rounds = _whole("rounds", options.get("rounds", math.ceil(math.log(n))), _MOST_ROUNDS)
        ball = _positive("ball", options.get("ball", 1.0))
        reach = float(np.abs(np.asarray(design.internal_bounds)).max())
        spread = facts.spread
        width = min(facts.guess.bound, spread * math.sqrt(math.log(max(n, 3))))
        channel = vector_channel({"channel": "hemisphere", **options}, guarantee)
        public = {
            "sparsity": s,
            "kept": kept,
            "ball": ball,
            "step_size": _positive("step_size", options.get("step_size", 1.0)),
            "radius": math.sqrt(d) * reach,
            "clip": math.sqrt(kept) * reach * ball + width,
            "channel": channel,
        }
        message = _message(design, public, np.zeros(d))
        sent = channel_for(message, channel, guarantee)
        shares = (1.0 / rounds,) * rounds
        plan = local_plan(self, design, guarantee, n, sent.event, shares=shares, options=public)
        noise = noise_of(message, sent, n / rounds)[1] / float(facts.squares / d)
        ratio = noise * math.sqrt(kept) / min(ball, math.sqrt(facts.guess.coefficient2))
        text = (
            f"With the printed constants the noise of the last round is {ratio:.2g} times the size "
            "of the coefficients; the default method needs far fewer users."
        )
        return replace(plan, warnings=(need(plan, 2 * ratio, text),) if ratio > 0.5 else ())

    def question(
        self, design: Design, plan: Plan, answers: Sequence[Messages], public: Array | None
    ) -> Question | None:
        """The gradient at what earlier rounds led to."""
        if len(answers) == len(plan.options["shares"]):
            return None
        return _question(design, plan, self._after(design, plan, answers))

    def _after(self, design: Design, plan: Plan, answers: Sequence[Messages]) -> Array:
        """Coefficients after the rounds answered."""
        facts, o = facts_of(design, {}), plan.options
        theta = np.zeros(len(design.names))
        rate = float(o["step_size"]) / float(np.linalg.eigvalsh(facts.guess.gram)[-1])
        for answer in answers:
            message = _message(design, o, theta)
            theta = theta + rate * message.split(answer.mean)[1]
            theta = _truncated(theta, int(o["kept"]), fixed(design))
            theta = theta * min(1.0, float(o["ball"]) / max(float(np.linalg.norm(theta)), 1e-300))
        return theta

    def finish(
        self, design: Design, plan: Plan, answers: Sequence[Messages], public: Array | None
    ) -> Estimate:
        """The last iterate; the paper gives no standard errors."""
        theta = self._after(design, plan, answers)
        support = tuple(int(j) for j in np.flatnonzero(theta))
        nothing = np.full((len(support),) * 2, np.nan)
        return Estimate(
            params=theta,
            cov=nothing,
            cov_privacy=nothing,
            nobs=float(sum(answer.count for answer in answers)),
            support=support,
            inference="none: the method keeps columns by their noisy size, and proves no law",
        )


def _message(design: Design, options: Mapping[str, Any], theta: Array) -> MomentMessage:
    return MomentMessage(
        len(design.names), float(options["radius"]), float(options["clip"]), 0.0, theta
    )


def _question(design: Design, plan: Plan, theta: Array) -> Question:
    assert isinstance(plan.privacy, Local)
    message = _message(design, plan.options, theta)
    return Question(message, channel_for(message, str(plan.options["channel"]), plan.privacy))


def _truncated(theta: Array, kept: int, always: tuple[int, ...]) -> Array:
    """The `kept` largest coefficients beside those that are always kept."""
    size = np.abs(theta)
    size[list(always)] = math.inf
    left = np.argsort(-size, kind="stable")[: kept + len(always)]
    made = np.zeros_like(theta)
    made[left] = theta[left]
    return made


def _whole(name: str, value: Any, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise OptionError(f"{name}={value!r}: a whole number from 1 to {most} is needed.")
    return value


def _positive(name: str, value: Any) -> float:
    if not (isinstance(value, (int, float)) and math.isfinite(value) and value > 0):
        raise OptionError(f"{name}={value!r}: a finite number > 0 is needed.")
    return float(value)
