"""Regression from devices asked in rounds: residuals shrink, and so does the noise on them."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.channels import CoordinateSampling
from dpstats.estimators.base import check_options
from dpstats.estimators.bounds import (
    INTERACTIVE_LOWER,
    LINEAR,
    LOCAL_LOWER,
    MOMENTS_SEEN,
    SAMPLING,
    SMALL_EPS,
    SPARSE_SAMPLING,
)
from dpstats.estimators.local.asks import (
    GATE,
    OPTIONS,
    Facts,
    channel_for,
    facts_of,
    local,
    need,
    noise_of,
    vector_channel,
)
from dpstats.estimators.local.base import Rounds, local_plan, round_sizes
from dpstats.estimators.local.moments import fixed, sizes_asked, sparse_estimate, warned
from dpstats.estimators.local.pool import (
    ENOUGH,
    Answered,
    Fit,
    Frame,
    as_estimate,
    clip_bias,
    coordinate_variance,
    estimate,
    frame_of,
    pooled,
    stepwise,
)
from dpstats.estimators.local.theory import GUARANTEE, ONCE, ROUNDS
from dpstats.estimators.sources import ASI, CAI, JIANG, ZHU
from dpstats.privacy import Local, Privacy
from dpstats.protocol import Estimate, Messages, Plan, Question
from dpstats.queries import MomentMessage
from dpstats.theory import Assumption, Rate, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["LocalRounds", "LocalScreening"]

Array = NDArray[np.float64]
Index = NDArray[np.intp]

# Dense: users, share of messages for second moments, and clip in spreads, round by round.
_USERS, _MOMENTS, _CLIPS = (0.5, 0.5), (0.5, 0.1), (1.0, 0.9)
# Sparse: the same, and columns that are left after each round, as multiples of the sparsity.
_SCREEN_USERS, _SCREEN_MOMENTS = (0.6, 0.2, 0.1, 0.1), (0.0, 0.08, 0.08, 0.0)
_SCREEN_CLIPS, _LEFT = (0.8, 0.8, 0.6, 0.4), (2.4, 1.6, 1.2, 1.0)
_SPARSITY = 5  # columns to look for, if no number is asked for
_SMALLEST, _LARGEST = 0.3, 2.0  # of the guessed radius, for one that was learned
_BENT = 0.15  # relative difference of the curvatures that two rounds see in a skewed column
_NO_FIT = "Noise is counted for residuals as spread as the response; smaller ones need less."
_LEAST_SPREAD = 0.2  # of that of the response, for a residual's

_CORRECTIONS = (
    "Residuals are clipped, and the clip is the sensitivity: |x'theta| may be as large as "
    "sqrt(k') r for a k'-sparse theta of norm 1, not 1 (Zhu et al. correct Wang & Xu).",
    "Two to four rounds instead of log(n), with users where they matter most, and all rounds are "
    "used in the end, weighted by their precision.",
    "After each round only columns that are still in play are asked for: the noise of a score "
    "falls with their number.",
)

_LOWER = ZHU.at("Theorem 6, the lower bound, at s = d")
_THRESHOLDED = ZHU.at("Theorem 7, for hard thresholding, without its logarithms")

_DENSE = Theory(
    estimand=(
        "regression coefficients where the mean is linear and residuals are symmetric; otherwise "
        "those of a clipped regression"
    ),
    guarantee=GUARANTEE + ROUNDS + " " + ONCE,
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
        ASI.at("PrivUnit"),
        JIANG.at("Theorem 1"),
        CAI.at("Theorem 4.1"),
    ),
    corrections=_CORRECTIONS[:2],
)

_SPARSE = Theory(
    estimand=(
        "coefficients of a model in which at most s columns matter; where more do, those of the "
        "best fit on the columns that were selected"
    ),
    guarantee=GUARANTEE + ROUNDS + " " + ONCE,
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
    citations=(ZHU.at("Algorithms 2 and 4, Theorems 6 and 7"), ASI.at("PrivUnit")),
    corrections=_CORRECTIONS,
)


class _InRounds(Rounds):
    """Questions that follow from the messages received so far."""

    name: ClassVar[str]
    model: ClassVar[str] = "ols"
    sparse: ClassVar[bool]
    theory: ClassVar[Mapping[str, Theory]]
    options: ClassVar[Mapping[str, str]]

    @staticmethod
    def serves(privacy: Privacy) -> bool:
        """Whether it is the default under this guarantee: devices may be asked in rounds."""
        return isinstance(privacy, Local) and privacy.interactive

    def question(
        self, design: Design, plan: Plan, answers: Sequence[Messages], public: Array | None
    ) -> Question | None:
        """What the next round is asked; None after the last."""
        if len(answers) == len(plan.options["shares"]):
            return None
        return self._asked(design, plan, answers)[1]

    def _asked(
        self, design: Design, plan: Plan, answers: Sequence[Messages]
    ) -> tuple[list[Answered], Question]:
        """Rounds that were answered, and the next question."""
        made: list[Answered] = []
        for answer in answers:
            made.append(self._answer(design, plan, made, answer))
        return made, self._next(design, plan, made)[0]

    def _answered(self, design: Design, plan: Plan, answers: Sequence[Messages]) -> list[Answered]:
        made, _ = self._asked(design, plan, answers[:-1])
        return [*made, self._answer(design, plan, made, answers[-1])]

    def _answer(
        self, design: Design, plan: Plan, made: list[Answered], answer: Messages
    ) -> Answered:
        question, spreads = self._next(design, plan, made)
        return Answered(question, answer, clip_bias(spreads))

    @abstractmethod
    def _next(self, design: Design, plan: Plan, made: list[Answered]) -> tuple[Question, float]:
        """The question after these rounds, and its clip in spreads of the residual."""


@dataclass(frozen=True)
class LocalRounds(_InRounds):
    """Least squares from two rounds of devices; the default where devices may be asked in rounds.

    1. Half of the users send second moments and the clipped score at zero, as in `LocalMoments`.
    2. The others send the clipped score at the coefficients that follow, with a clip and a radius
       that follow from the first round, and some more of the second moments.

    Both rounds together give ``A params``, weighted by their precision; see `local.pool`. Errors of
    A, which dominate when devices are asked once, meet the difference to the first estimate only.

    Notes
    -----
    *Guarantee.* One epsilon-DP message of each device; a device answers in one round.

    *Covariance.* From influence functions of the messages of both rounds, as in `LocalMoments`, and
    15 % of the way from the first estimate to the last: the second round weights and clips rows
    otherwise than the moments that its score is divided by.
    """

    name: ClassVar[str] = "local-rounds"
    sparse: ClassVar[bool] = False
    theory: ClassVar[Mapping[str, Theory]] = {"local": _DENSE}
    options: ClassVar[Mapping[str, str]] = {k: OPTIONS[k] for k in ("channel", "radius", "clip")}

    def plan(self, design: Design, privacy: Privacy, n: int, **options: Any) -> Plan:
        """Rounds, cost and expected error from public facts only.

        Parameters
        ----------
        design : Design
            Public design.
        privacy : Local
            The guarantee of one message, with ``interactive=True``.
        n : int
            Number of users, all rounds together.
        **options
            ``channel``, ``radius``, ``clip`` (of the first round).

        Raises
        ------
        OptionError
            If an option is unknown or out of range, or there are fewer users than rounds.
        TrustError
            If rounds are not allowed.
        """
        check_options(self.name, self.options, options)
        guarantee = local(self.name, privacy, interactive=True)
        facts = facts_of(design, options)
        public = {
            "channel": vector_channel(options, guarantee),
            "radius": facts.radius,
            "clip": facts.clip or _CLIPS[0],
        }
        first = _first_message(design, facts, public)
        sent = channel_for(first, str(public["channel"]), guarantee)
        plan = local_plan(self, design, guarantee, n, sent.event, shares=_USERS, options=public)
        moment, _ = noise_of(first, sent, n * _USERS[0])
        last = replace(first, share=_MOMENTS[1] * (1 - GATE), clip=_CLIPS[1] * facts.spread)
        score = noise_of(last, channel_for(last, str(public["channel"]), guarantee), n * _USERS[1])[
            1
        ]
        return _expected(plan, design, facts, moment, score / _inside(_CLIPS[1]), len(plan.names))

    def finish(
        self, design: Design, plan: Plan, answers: Sequence[Messages], public: Array | None
    ) -> Estimate:
        """Pool both rounds and solve."""
        made = self._answered(design, plan, answers)
        frame, fit = _dense_fit(made, design, plan)
        return as_estimate(made, frame, replace(fit, cov=fit.cov + _bent(made, fit)))

    def _next(self, design: Design, plan: Plan, made: list[Answered]) -> tuple[Question, float]:
        assert isinstance(plan.privacy, Local)
        facts = facts_of(design, plan.options)
        message, spreads = _first_message(design, facts, plan.options), float(plan.options["clip"])
        if made:
            frame, fit = _dense_fit(made, design, plan)
            kept, residual = _towards_zero(fit, frame, _spread(made[0], facts))
            spreads = _CLIPS[1]
            message = replace(
                message,
                radius=_learned_radius(made, frame.columns, facts),
                clip=spreads * residual,
                share=_MOMENTS[1] * (1 - GATE),
                theta=kept * fit.params,
            )
        channel = channel_for(message, str(plan.options["channel"]), plan.privacy)
        return Question(message, channel), spreads


@dataclass(frozen=True)
class LocalScreening(_InRounds):
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
    theory: ClassVar[Mapping[str, Theory]] = {"local": _SPARSE}
    options: ClassVar[Mapping[str, str]] = {
        "sparsity": "number of columns to select, beside the intercept; by default those of the "
        f"{_SPARSITY} best that stand out of the noise",
        "channel": OPTIONS["channel"],
        "radius": OPTIONS["radius"],
    }

    def plan(self, design: Design, privacy: Privacy, n: int, **options: Any) -> Plan:
        """Rounds, cost and expected error from public facts only.

        Parameters
        ----------
        design : Design
            Public design.
        privacy : Local
            The guarantee of one message, with ``interactive=True``.
        n : int
            Number of users, all rounds together.
        **options
            ``sparsity``, ``channel``, ``radius``.

        Raises
        ------
        OptionError
            If an option is unknown or out of range, or there are fewer users than rounds.
        TrustError
            If rounds are not allowed.
        """
        check_options(self.name, self.options, options)
        guarantee = local(self.name, privacy, interactive=True)
        round_sizes(n, _SCREEN_USERS)
        facts = facts_of(design, options)
        public = {
            "channel": vector_channel(options, guarantee),
            "radius": facts.radius,
            **({"sparsity": options["sparsity"]} if "sparsity" in options else {}),
        }
        message = _screening_message(design, facts, public, guarantee)
        sent = channel_for(message, str(public["channel"]), guarantee)
        plan = local_plan(
            self, design, guarantee, n, sent.event, shares=_SCREEN_USERS, options=public
        )
        size = _most(public)
        last = MomentMessage(
            size, facts.radius_of(size), _SCREEN_CLIPS[-1] * facts.spread, 0.0, gate=GATE
        )
        score = noise_of(
            last, channel_for(last, str(public["channel"]), guarantee), n * _SCREEN_USERS[-1]
        )[1]
        plan = _expected(
            plan, design, facts, 0.0, score / _inside(_SCREEN_CLIPS[-1]), min(size, len(plan.names))
        )
        first = noise_of(message, sent, n * _SCREEN_USERS[0])[1]
        first /= _inside(message.clip / facts.spread)
        return _with_screening(plan, facts, first, size)

    def finish(
        self, design: Design, plan: Plan, answers: Sequence[Messages], public: Array | None
    ) -> Estimate:
        """Pool all rounds for the columns that are left."""
        made = self._answered(design, plan, answers)
        made, frame = _framed(made, design, plan)
        last = made[-1].message.asked
        at = np.searchsorted(frame.columns, last)
        within = np.ix_(at, at)
        left = Frame(
            last,
            frame.gram[within],
            frame.safe[within],
            frame.hidden[within],
            frame.sd,
            frame.part,
            frame.counted,
        )
        return sparse_estimate(made, left, design, plan)

    def _next(self, design: Design, plan: Plan, made: list[Answered]) -> tuple[Question, float]:
        assert isinstance(plan.privacy, Local)
        facts, name = facts_of(design, plan.options), str(plan.options["channel"])
        turn, width = len(made), len(design.names)
        spreads = (facts.clip if turn == 0 else None) or _SCREEN_CLIPS[turn]
        if turn == 0:
            message = _screening_message(design, facts, plan.options, plan.privacy)
        else:
            rounds, frame = _framed(made, design, plan)
            columns, theta = _survivors(rounds, frame, design, plan)
            message = MomentMessage(
                width,
                _learned_radius(rounds, columns, facts),
                spreads * _spread(made[0], facts),
                _SCREEN_MOMENTS[turn] * (1 - GATE),
                theta=theta,
                columns=tuple(int(j) for j in columns),
                gate=GATE,
            )
            message = _boxed(message, design, name, plan.privacy)
        return Question(message, channel_for(message, name, plan.privacy)), spreads


def _first_message(design: Design, facts: Facts, options: Mapping[str, Any]) -> MomentMessage:
    share = _MOMENTS[0] * (1 - GATE)
    clip = float(options["clip"]) * facts.spread
    return MomentMessage(len(design.names), facts.radius, clip, share, gate=GATE)


def _screening_message(
    design: Design, facts: Facts, options: Mapping[str, Any], privacy: Local
) -> MomentMessage:
    clip = (facts.clip or _SCREEN_CLIPS[0]) * facts.spread
    message = MomentMessage(len(design.names), facts.radius, clip, 0.0, gate=GATE)
    return _boxed(message, design, str(options["channel"]), privacy)


def _boxed(message: MomentMessage, design: Design, name: str, privacy: Local) -> MomentMessage:
    """The message over the box of the columns' bounds, where its noise is smaller there."""
    if message.share or name != "privunit":
        return message
    bound = np.abs(np.asarray(design.internal_bounds, dtype=np.float64)).max(axis=1)
    box = replace(message, bound=bound)
    noise = coordinate_variance(channel_for(message, name, privacy)) / (1 - message.gate)
    sampled = coordinate_variance(CoordinateSampling(box.dim, privacy.epsilon))
    sampled *= float(np.mean(bound[message.asked] ** 2))
    return box if sampled < noise * message.radius**2 else message


def _spread(made: Answered, facts: Facts) -> float:
    """Spread of the response, from the share of responses inside the first clip."""
    from scipy.special import ndtri

    inside = min(made.inside[0], 0.98)
    found = made.message.clip / float(ndtri((1 + inside) / 2))
    return float(np.clip(found, facts.spread / 4, facts.spread * 4))


def _learned_radius(made: Sequence[Answered], columns: Index, facts: Facts) -> float:
    """Typical norm of rows: the released trace where there is one, else the guess."""
    guessed = facts.radius_of(columns.size)
    for round_ in reversed(made):
        asked = round_.message.asked
        if round_.message.share and np.isin(columns, asked).all():
            at = np.searchsorted(asked, columns)
            trace = float(np.diag(round_.message.split(round_.answer.mean)[0])[at].sum())
            typical = math.sqrt(max(trace / round_.inside[1], 0.0))
            return float(np.clip(typical, _SMALLEST * guessed, _LARGEST * guessed))
    return guessed


def _dense_fit(made: Sequence[Answered], design: Design, plan: Plan) -> tuple[Frame, Fit]:
    columns = np.arange(len(design.names))
    target = facts_of(design, plan.options).guess.gram
    frame = frame_of(made, columns, target, fewest=ENOUGH)
    return frame, estimate(made, frame, columns, columns.size, safe=True)


def _bent(made: Sequence[Answered], fit: Fit) -> Array:
    """Variance of the errors that other weights and clips in the last round leave, (k, k)."""
    step = fit.params - made[-1].theta(fit.columns.size)
    return np.diag((_BENT * fit.weights[-1] * step) ** 2)


def _towards_zero(fit: Fit, frame: Frame, spread: float) -> tuple[float, float]:
    """Factor in [0, 1] for coefficients so noisy, and the spread of residuals that it leaves.

    Of ``q = b'A b`` the part ``e = tr(A V)`` is noise; the factor is 1 - e/q (James & Stein).
    """
    fitted = float(fit.params @ frame.safe @ fit.params)
    signal = max(fitted - float(np.sum(frame.safe * fit.cov)), 0.0)
    factor = signal / fitted if fitted > 0 else 0.0
    left = max(spread**2 - factor * signal, (_LEAST_SPREAD * spread) ** 2)
    return factor, math.sqrt(left)


def _framed(made: Sequence[Answered], design: Design, plan: Plan) -> tuple[list[Answered], Frame]:
    """Rounds in one scale, and second moments of the columns asked for in the second round."""
    facts = facts_of(design, plan.options)
    moments = [m for m in made if m.message.share]
    columns = moments[0].message.asked if moments else np.arange(len(design.names))
    frame = frame_of(made, columns, _target(design, facts))
    weight = float(np.clip(np.mean([m.inside[1] for m in moments]), 0.2, 1)) if moments else 1.0
    return [replace(m, scale=weight if m.message.bound is not None else 1.0) for m in made], frame


def _target(design: Design, facts: Facts) -> Array:
    """Second moments guessed, in the scale of the radius; those of the intercept are known."""
    always = len(fixed(design))
    scale = (facts.radius**2 - always) / (facts.squares - always)
    target = facts.guess.gram * np.float64(scale)
    for at in fixed(design):
        target[at] = target[:, at] = facts.guess.gram[at] * np.sqrt(scale)
        target[at, at] = 1.0
    return target


def _survivors(
    rounds: Sequence[Answered], frame: Frame, design: Design, plan: Plan
) -> tuple[Index, Array | None]:
    """Columns for the next round, and the coefficients to take residuals at."""
    always, size, width = fixed(design), _most(plan.options), len(design.names)
    last = rounds[-1].message.asked
    room = math.ceil(_LEFT[len(rounds) - 1] * size)
    most = _spread(rounds[0], facts_of(design, plan.options)) ** 2  # that columns can explain
    if len(rounds) == 1:  # by covariance with the response alone, in standard units
        score = rounds[0].score(last) / np.sqrt(np.diag(frame.gram))
        score[list(always)] = np.inf
        kept = np.argsort(-np.abs(score), kind="stable")[: room + len(always)]
        return np.sort(last[kept]), None
    now = np.zeros(width)
    for _ in range(2):
        vector = pooled(rounds, frame, last, now)[0]
        chosen = stepwise(frame, last, vector, size, always)
        fit = estimate(rounds, frame, chosen, width)
        now = np.zeros(width)
        now[fit.columns] = fit.params
    explained = float(fit.vector @ fit.params)
    return stepwise(frame, last, vector, room, always), now * min(1.0, most / max(explained, most))


def _most(options: Mapping[str, Any]) -> int:
    """Largest number of columns looked for."""
    return max(sizes_asked(options), default=_SPARSITY)


def _inside(spreads: float) -> float:
    from scipy.special import ndtr

    return 2 * float(ndtr(spreads)) - 1


def _expected(
    plan: Plan, design: Design, facts: Facts, moment: float, score: float, kept: int
) -> Plan:
    """The plan with its expected standard errors, and its warnings.

    Noise of second moments meets what the first round leaves: as much as its own noise.
    """
    d, sd = len(plan.names), facts.guess.sd
    gram = facts.guess.gram
    inverse = np.linalg.inv(gram)
    blur = 2 * math.sqrt(d) * moment / float(np.linalg.eigvalsh(gram)[0])
    away = facts.guess.coefficient2 * min(1.0, blur) ** 2
    privacy = inverse @ inverse * (score**2 + moment**2 * away)
    sampling = inverse * (sd**2 / (plan.n * plan.options["shares"][-1]))
    standard, zero = design.standardization, np.zeros(d)
    noisy, total = (np.diag(standard.to_user(zero, c)[1]) for c in (privacy, privacy + sampling))
    error = math.sqrt(float(np.trace(privacy + sampling)) * kept / d / facts.guess.coefficient2)
    return replace(
        plan,
        predicted_se=tuple(float(v) for v in np.sqrt(total)),
        privacy_share=float(noisy.sum() / total.sum()),
        assumptions=(*facts.guess.assumptions, _NO_FIT),
        warnings=warned(plan, error, blur, sparse=False),
    )


def _with_screening(plan: Plan, facts: Facts, noise: float, size: int) -> Plan:
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
