"""Least squares and counts on public covariates, from scores that a curator of responses clips."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError
from dpstats.estimators.bounds import LINEAR_LOWER, NEWTON, SMALL_DELTA
from dpstats.estimators.guesses import round_up
from dpstats.estimators.labels.base import (
    LabelMethod,
    covariates_of,
    inverse_gram,
    label_plan,
    no_solution,
)
from dpstats.estimators.labels.glm import typical_mean
from dpstats.estimators.labels.public_scores import (
    ALIGNED,
    COUNTS,
    ChosenClip,
    PublicScores,
    chosen_clip,
    far_share,
)
from dpstats.estimators.labels.rough import LEVEL, PILOT, rough_fit, round_facts
from dpstats.estimators.labels.scale import PURPOSES, counted, found_scale, with_scale
from dpstats.estimators.labels.sums import (
    Leverages,
    deviation,
    events,
    label_norm,
    mixed,
)
from dpstats.estimators.numerics.parts import (
    SplitScore,
    omitted,
    pool_scores,
    told_apart,
    whole,
)
from dpstats.estimators.numerics.tail_law import allowed
from dpstats.estimators.responses import (
    CHANNEL_OPTIONS,
    Responses,
    expect_labels,
    responses,
    slopes,
)
from dpstats.estimators.sources import CAI, LI_MATRIX
from dpstats.families import GAUSSIAN, POISSON
from dpstats.privacy import LabelOnly
from dpstats.protocol import (
    CoefficientEstimate,
    LabelHolder,
    Mechanism,
    Options,
    Plan,
)
from dpstats.queries.label_held import HeldSums, OuterSums
from dpstats.queries.labels import Interval, LabelSums, WeightedResiduals
from dpstats.tall import LazyRows, constant, cross
from dpstats.theory import Assumption, Rate, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["LabelNewton"]

Array = NDArray[np.float64]

# budget: a first fit; lengths of scores; scores beyond a clip, three times; squares of scores
_PILOT, _LENGTHS, _BEYOND, _MEAT = 0.10, 0.03, 0.013, 0.05
_LEVEL = 0.04  # budget: the mean of counts, before a first fit
_LAST = (0.28, 0.72)  # share: of what is left, for each of the last two scores
_HELD = 3.0  # sds: half of the interval that responses of the first fit are held to
_FARTHEST_LEAN = 3.0  # ratio: what is beyond the clip to what is seen of it, at most
_LEANING = 2.0  # wording: length of what was extrapolated, in sds of noise
# wording: noise of a cell of lengths to the rows, at most, by link
_READABLE = {"identity": 0.02, "log": 0.01}
_CARRIED = 0.4  # wording: share of what tells a coefficient, in rows that counts may hide
_PURPOSES = {
    **PURPOSES,
    LEVEL: "mean of the responses, for the first intervals",
    PILOT: "whitened sums of responses, for a first rough fit",
    "lengths": "histogram of the lengths of scores, for the clip",
    **{f"beyond {k + 1}": "scores longer than the clip, to correct it" for k in range(COUNTS)},
    **{f"inner score {k + 1}": "scores, clipped at half the length" for k in range(2)},
    **{f"outer score {k + 1}": "what half the length leaves out of them" for k in range(2)},
    "meat": "outer product of the scores, for standard errors",
}

_MATRIX = LI_MATRIX.at("linear answers from noisy linear measurements")

_THEORY = Theory(
    estimand=(
        "coefficients of least squares (of counts: of the largest Poisson likelihood) of these "
        "rows, which are those of the best predictor of that kind of the population"
    ),
    guarantee=(
        "Label differential privacy for every data set and any public covariates: one response may "
        "be replaced by another. A histogram (sensitivity sqrt(2); L1: 2) and counts (1) of "
        "residuals by the lengths of scores; whitened sums of responses, each held to a public "
        "interval of its own, whose sensitivity is the largest width times the norm of the row; "
        "squares of scores clipped at C (C^2). Composed by their privacy losses."
    ),
    assumptions=(
        Assumption("No few rows carry the answer: scores longer than the clip add up to little"),
        Assumption("Responses lie in the declared range"),
        SMALL_DELTA,
    ),
    upper=(
        Rate("statistical", "sqrt(d/n)", _MATRIX),
        Rate("privacy", "d sqrt(log(1/delta))/(n eps)", _MATRIX, conjectured=True),
    ),
    lower=LINEAR_LOWER[:1],
    citations=(NEWTON, _MATRIX, CAI.at("Theorem 4.1")),
)


@dataclass(frozen=True)
class LabelNewton(LabelMethod):
    """Least squares, and counts, by scores about a rough fit, clipped by their lengths.

    With public rows X, ``root = (X'X)^(-1/2)`` and ``b_i = root x_i``, so that ``sum b b' = I``,
    the coefficients are ``params + root sum b_i r_i`` for the residuals r about any params: one
    step is exact, and the only private part of it is a sum of scores ``b_i r_i``. What is clipped
    is their length, so that rows far out are held to short residuals and others to none.

    1. A rough fit from responses that are held to three of their scales, rows far out weighted
       down, drawn to the centre as far as noise explains it.
    2. A histogram of the lengths ``|b_i r_i|``, and three counts of those longer than the clip C
       that is best so far: a posterior of how many scores are longer than any c (`TailLaw`), and of
       ``E(C) = sum (|s_i| - C)_+``, the most that a clip moves the sum. C is the minimum of
       ``(noise C)^2 + rho^2 E(C)^2 / d``.
    3. Two sums of scores about the rough fit and about the next, each in two parts: clipped at C/2,
       and what C/2 leaves out up to C, which residuals that are symmetric make nothing, and which
       is drawn there as far as its noise explains (`whole`).
    4. Squares of scores, for the sandwich.

    *Counts* (with a log link). The rough fit is that of `label-curator-glm`: the mean of all
    responses, then whitened sums of responses that are held near it. ``root`` is that of the
    inverse of ``sum mu x x'`` there. A score about any params tells whitened sums of responses, as
    those that params expect plus itself: in these, scores at two places are linear whatever the
    link. They are averaged there, and the coefficients are those that expect just these sums, the
    solution of a convex problem; where noise leaves none, a remark says so.

    This is the default of `Central` (`newton`) where the moments of rows are known: nothing is
    spent on them, and no curvature is in doubt.

    Notes
    -----
    *Guarantee.* Rows, fitted values, lengths and intervals are public or follow from earlier
    answers. Replacing a response moves one score, held to length C/2 (or to what is between C/2 and
    C): by C at most; two counts by one each; and the sum of squares by a matrix between 0 and ``C^2
    u u'``. The holder computes all sensitivities from the whole numbers that it adds. Adaptive
    composition.

    *Covariance.* ``root [M n/(n-d) + (s^2 + rho^2 E(C)^2 / d) I + B B'] root``: M the squares of
    clipped scores, s^2 the known variance of noise, rho = 3/4 the length of the mean direction of
    long scores, and B what is extrapolated of what clips leave out, from where the outer part
    leans. Of counts B is no shorter than that lean, or than what as many scores as are counted
    beyond C add, and in the place of the outer ``root`` is ``(sum mu x x')^-1 root^-1``.

    *Limits.* Where a handful of rows carries the answer no clip is honest and narrow: a remark says
    so.
    """

    model: str = "ols"
    name: ClassVar[str] = "label-curator-newton"
    curator: ClassVar[bool] = True
    theory: ClassVar[Mapping[str, Theory]] = {"label-only": _THEORY}
    options: ClassVar[Mapping[str, str]] = {"clip": CHANNEL_OPTIONS["clip"]}

    @property
    def otherwise(self) -> str:  # type: ignore[override]  # which one hangs on the model
        """The default where this plan warns, or where the family is another."""
        return "label-curator" if self.model == "ols" else "label-curator-glm"

    def _label_plan(self, design: Design, privacy: LabelOnly, n: int, options: Options) -> Plan:
        """Mechanisms, cost and expected error from public facts only."""
        inverse_gram(covariates_of(design))  # refuses as many columns as rows
        shares = _shares(design, privacy, options)
        if design.family not in (GAUSSIAN, POISSON):
            raise OptionError(
                f"method={self.name!r} is for least squares and for counts with a log link: leave "
                "the method out."
            )
        planned = events(shares, privacy, privacy.epsilon)
        mechanisms = tuple(Mechanism(s, e, _PURPOSES[s]) for s, e in planned.items())
        how = responses(design, privacy, options)
        plan = label_plan(self, design, privacy, how, mechanisms, {})
        found, at = _expected_scores(design, plan, how), slopes(design)
        used, variance = found.unit(plan), found.sd**2

        def parts(unit: float) -> tuple[Array, Array]:
            """Expected covariances by noise and what clips leave out, and by sampling."""
            square = found.root @ found.root
            return found.expected_square(unit) * square, variance * square

        def errors(epsilon: float) -> float:
            other = events(shares, privacy, epsilon)["inner score 2"].noise_multiplier
            unit = used * float(other) / float(planned["inner score 2"].noise_multiplier)
            return math.sqrt(float(np.diag(sum(parts(unit)))[at].sum()))

        if design.family != GAUSSIAN:
            how = replace(how, sd=math.sqrt(2.0))  # of log means
        plan = expect_labels(plan, design, *parts(used), how, errors)
        return replace(plan, warnings=(*plan.warnings, *_unreadable(plan, found, self.otherwise)))

    def fit(self, holder: LabelHolder, design: Design, plan: Plan) -> CoefficientEstimate:
        """Ask for a rough fit and the clip, for scores, and for what standard errors need."""
        moved, warned = counted(holder, design)
        known, found, unsure = found_scale(holder, design)
        estimate = _estimate(holder, *_started(holder, known, plan), Responses.of(plan, known))
        released = {**estimate.released, **found, **moved}
        return replace(estimate, released=released, remarks=(*unsure, *warned, *estimate.remarks))


def _shares(design: Design, privacy: LabelOnly, options: Options) -> dict[str, float]:
    """Of all questions; none is about the scale where a clip is given, or of counts."""
    before = {} if design.family == GAUSSIAN else {LEVEL: _LEVEL}
    before |= {PILOT: _PILOT, "lengths": _LENGTHS}
    before |= {f"beyond {k + 1}": _BEYOND for k in range(COUNTS)}
    left, inner = 1 - sum(before.values()) - _MEAT, _inner(len(design.names))
    scores = {
        f"{part} score {k + 1}": left * share * of_it
        for k, share in enumerate(_LAST)
        for part, of_it in (("inner", inner), ("outer", 1 - inner))
    }
    aside = {**before, **scores, "meat": _MEAT}
    find = design.family == GAUSSIAN and options.get("clip") is None
    return with_scale(aside, design, privacy, find, tails=False)


def _inner(d: int) -> float:
    """Share of a score's budget for its inner part: the least noise on both together."""
    return 1 / (1 + math.sqrt(omitted(d)))


def _unreadable(plan: Plan, scores: PublicScores, otherwise: str) -> tuple[str, ...]:
    """Where noise hides how many scores are how long."""
    hidden = plan.noise(scores.by_length(np.arange(2.0)), "lengths").sd / (
        _READABLE[scores.link.link] * plan.n
    )
    if hidden <= 1:
        return ()
    return (
        f"Noise hides how long scores are at n={plan.n:,} and epsilon={plan.privacy.epsilon:g}: "
        f"method={otherwise!r} errs less. About n={round_up(hidden * plan.n):,} rows, or epsilon="
        f"{hidden * plan.privacy.epsilon:.2g} at this n, suffice.",
    )


def _expected_scores(design: Design, plan: Plan, how: Responses) -> PublicScores:
    """Scores as far as public facts tell."""
    if design.family == GAUSSIAN:
        return PublicScores.linear(design, plan)
    rounds = round_facts(plan, design, how)
    return PublicScores.of_counts(rounds, rounds.start(typical_mean(rounds.law, how)))


def _started(holder: LabelHolder, design: Design, plan: Plan) -> tuple[PublicScores, Array]:
    """Scores about a rough fit, and its coefficients."""
    if design.family == GAUSSIAN:
        scores = PublicScores.linear(design, plan)
        return scores, _linear_fit(holder, scores, Responses.of(plan, design))
    rounds = round_facts(plan, design, Responses.of(plan, design))
    params, _ = rough_fit(holder, rounds)
    return PublicScores.of_counts(rounds, params), params


def _linear_fit(holder: LabelHolder, scores: PublicScores, how: Responses) -> Array:
    """Coefficients from responses held near their centre."""
    plan, x = holder.plan, scores.x
    half = _HELD * how.sd
    low, high = (
        max(scores.interval.low, how.center - half),
        min(scores.interval.high, how.center + half),
    )
    interval, one = Interval(low, high), constant(len(x), 1.0)
    multiplier = plan.noise_multiplier(PILOT) * deviation(scores.pure)

    def noise(moved: float) -> float:
        return moved * 2 * interval.half * multiplier / scores.sd

    made = Leverages(x, one, one, one, noise, scores.pure).best(np.arange(x.shape[1]))
    query = LabelSums(interval, made.rows, label_norm(scores.pure))
    u, law = holder.ask(query, PILOT)
    known = scores.known
    away = LazyRows((len(x),), lambda part: interval.middle - known[part])
    center = LazyRows((len(x),), lambda part: how.center - known[part])
    back = np.linalg.solve(scores.root, made.back)
    b = back @ (u + cross(made.rows, away))
    start = cross(scores.rows, center)
    explained = law.sd**2 * float(np.square(back).sum())
    squared = max(float(np.square(b - start).sum()), 1e-300)
    found: Array = start + max(0.0, 1 - explained / squared) * (b - start)
    return scores.root @ found


def _score(
    holder: LabelHolder, scores: PublicScores, params: Array, clip: float, k: int
) -> SplitScore:
    """One of the last two scores, at `params`, which are told by the sums that they expect."""
    fitted, rows, norm = scores.fitted(params), scores.rows, label_norm(scores.pure)
    wide, inner = scores.ends(fitted, clip), scores.ends(fitted, clip / 2)
    held = HeldSums(scores.interval, rows, *inner, norm)
    outer = OuterSums(scores.interval, rows, wide, inner, norm)
    near, far = holder.ask(held, f"inner score {k + 1}"), holder.ask(outer, f"outer score {k + 1}")
    middle = held.middle
    away = LazyRows((len(rows),), lambda part: middle[part] - fitted[part])
    return SplitScore(
        scores.sums(params),
        near.value + cross(rows, away),
        near.noise.sd,
        far.value + cross(rows, outer.middle),
        far.noise.sd,
    )


def _estimate(
    holder: LabelHolder, scores: PublicScores, params: Array, how: Responses
) -> CoefficientEstimate:
    n, d = scores.x.shape
    clip = chosen_clip(holder, scores, params)
    first = _score(holder, scores, params, clip.at, 0)
    moved = whole(first, True)
    nearer, found = scores.solved(first.at + told_apart(moved) * moved.total, params)
    second = _score(holder, scores, nearer if found else params, clip.at, 1)
    both = pool_scores(first, second, np.eye(d))
    score = whole(both, True)
    ratio = min(_FARTHEST_LEAN, clip.excess / max(clip.nearer - clip.excess, 1e-300))
    beyond = ratio * score.lean
    params, found = scores.solved(both.at + score.total + beyond, params)
    meat = _meat(holder, scores, params, clip.at)
    leaning = float(np.linalg.norm(beyond)) / math.sqrt(score.variance)
    released = {
        **how.options(),
        "clip": clip.at,
        "scores beyond the clip": min(clip.number, n),
        "lean of long scores": leaning,
        "residual sd": math.sqrt(float(np.trace(meat)) / d),
    }
    if not found:
        return no_solution(params, n, "noisy sums", released)
    back, carried = scores.back(params), far_share(scores, params, holder.plan)
    error = _error_of(scores, clip, ratio, score.lean)
    unknown = allowed(clip.excess, d, ALIGNED) * np.eye(d) + np.outer(error, error)
    noise = back @ (score.variance * np.eye(d)) @ back.T
    sampling = back @ meat @ back.T
    return CoefficientEstimate(
        params=params,
        cov=sampling + noise + back @ unknown @ back.T,
        cov_privacy=noise,
        cov_sampling=sampling,
        of_these_rows=True,
        nobs=float(n),
        released=released,
        remarks=_remarks(leaning, carried),
    )


def _error_of(scores: PublicScores, clip: ChosenClip, ratio: float, lean: Array) -> Array:
    """How far what is extrapolated of what a clip leaves out may be off, along the lean.

    Of counts whose means grow faster than the model's the longest scores all lean one way, and
    are far longer than the others say: with a tail like c^-2, the heaviest that scores have whose
    sum has a standard error, as much is beyond the clip as between half of it and it.
    """
    if scores.link.link == "identity":
        return ratio * lean
    heavy = clip.at * clip.number / max(float(np.linalg.norm(lean)), 1e-300)
    return max(ratio, min(1.0, heavy)) * lean


def _meat(holder: LabelHolder, scores: PublicScores, params: Array, clip: float) -> Array:
    """Squares of clipped scores, averaged with equal variances of residuals."""
    n, d = scores.x.shape
    lengths = scores.lengths
    most = scores.interval.high - scores.interval.low
    clips = LazyRows((n,), lambda p: np.minimum(clip / np.maximum(lengths[p], 1e-300), most))
    query = WeightedResiduals(
        scores.interval, scores.rows, scores.fitted(params), clips, label_norm(scores.pure)
    )
    meat, law = holder.ask(query, "meat")
    variance = max(float(np.trace(meat)), law.sd * math.sqrt(d)) / d
    return mixed(meat, variance * np.eye(d), law.sd, n)


def _remarks(leaning: float, carried: float) -> tuple[str, ...]:
    """Where a clip may have changed the answer."""
    remarks = []
    if carried > _CARRIED:
        remarks.append(
            f"A few rows lie far out: {carried:.0%} of what tells some coefficients is that of as "
            "few rows as the noise can hide. If their responses are far from what the others say, "
            "these coefficients may be off by more than their intervals say. Transform such a "
            "column, or leave out a rare level."
        )
    if leaning > _LEANING:
        remarks.append(
            "The longest scores lean one way: those that the clip cuts off matter, and what they "
            "add was extrapolated. The mean may bend, or residuals be skewed; intervals allow for "
            "it, and depend on it."
        )
    return tuple(remarks)
