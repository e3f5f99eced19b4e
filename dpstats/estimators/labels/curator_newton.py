"""Least squares on public covariates, from scores whose lengths a curator of responses clips."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.bounds import LINEAR_LOWER, NEWTON, SMALL_DELTA
from dpstats.estimators.guesses import round_up
from dpstats.estimators.labels.base import (
    LabelMethod,
    covariates_of,
    inverse_gram,
    label_plan,
)
from dpstats.estimators.labels.public_scores import (
    ALIGNED,
    COUNTS,
    PublicScores,
    chosen_clip,
    far_share,
)
from dpstats.estimators.labels.scale import ASTRAY, PURPOSES, counted, found_scale, with_scale
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
    expect_labels,
    responses,
    slopes,
)
from dpstats.estimators.sources import CAI, LI_MATRIX
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
_LAST = (0.28, 0.72)  # share: of what is left, for each of the last two scores
_HELD = 3.0  # sds: half of the interval that responses of the first fit are held to
_FARTHEST_LEAN = 3.0  # ratio: what is beyond the clip to what is seen of it, at most
_LEANING = 2.0  # wording: length of what was extrapolated, in sds of noise
_READABLE = 0.02  # wording: noise of a cell of lengths to the rows, at most
_CARRIED = 0.1  # wording: share of squared lengths in rows that counts may hide, that is said
_PURPOSES = {
    ASTRAY: "responses that are outside of what is declared, or missing",
    **PURPOSES,
    "pilot": "whitened sums of responses, for a first rough fit",
    "lengths": "histogram of the lengths of scores, for the clip",
    **{f"beyond {k + 1}": "scores longer than the clip, to correct it" for k in range(COUNTS)},
    **{f"inner score {k + 1}": "scores, clipped at half the length" for k in range(2)},
    **{f"outer score {k + 1}": "what half the length leaves out of them" for k in range(2)},
    "meat": "outer product of the scores, for standard errors",
}

_MATRIX = LI_MATRIX.at("linear answers from noisy linear measurements")

_THEORY = Theory(
    estimand=(
        "the least-squares coefficients of these rows, which are those of the best linear "
        "predictor of the population"
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
    """Least squares by scores about a rough fit, clipped by their lengths.

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
    leans.

    *Limits.* Where a handful of rows carries the answer no clip is honest and narrow: a remark says
    so.
    """

    model: str = "ols"
    name: ClassVar[str] = "label-curator-newton"
    curator: ClassVar[bool] = True
    theory: ClassVar[Mapping[str, Theory]] = {"label-only": _THEORY}
    options: ClassVar[Mapping[str, str]] = {"clip": CHANNEL_OPTIONS["clip"]}
    otherwise: ClassVar[str] = "label-curator"

    def _label_plan(self, design: Design, privacy: LabelOnly, n: int, options: Options) -> Plan:
        """Mechanisms, cost and expected error from public facts only."""
        inverse_gram(covariates_of(design))  # refuses as many columns as rows
        shares = _shares(design, privacy, options)
        planned = events(shares, privacy, privacy.epsilon)
        mechanisms = tuple(Mechanism(s, e, _PURPOSES[s]) for s, e in planned.items())
        how = responses(design, privacy, options)
        plan = label_plan(self, design, privacy, how, mechanisms, {})
        found = PublicScores.of(design, plan)
        at, used = slopes(design), found.unit(plan)

        def parts(unit: float) -> tuple[Array, Array]:
            """Expected covariances by noise and what clips leave out, and by sampling."""
            square = found.root @ found.root
            return found.expected_square(unit) * square, how.residual_variance * square

        def errors(epsilon: float) -> float:
            other = events(shares, privacy, epsilon)["inner score 2"].noise_multiplier
            unit = used * float(other) / float(planned["inner score 2"].noise_multiplier)
            return math.sqrt(float(np.diag(sum(parts(unit)))[at].sum()))

        plan = expect_labels(plan, design, *parts(used), how, errors)
        return replace(plan, warnings=(*plan.warnings, *_unreadable(plan, found)))

    def fit(self, holder: LabelHolder, design: Design, plan: Plan) -> CoefficientEstimate:
        """Ask for a rough fit and the clip, for scores, and for what standard errors need."""
        moved, warned = counted(holder, design)
        known, found, unsure = found_scale(holder, design)
        scores = PublicScores.of(known, plan)
        estimate = _estimate(holder, scores, plan)
        released = {**estimate.released, **found, **moved}
        return replace(estimate, released=released, remarks=(*unsure, *warned, *estimate.remarks))


def _shares(design: Design, privacy: LabelOnly, options: Options) -> dict[str, float]:
    """Of all questions; nothing is asked about the scale where a clip is given."""
    before = {"pilot": _PILOT, "lengths": _LENGTHS}
    before |= {f"beyond {k + 1}": _BEYOND for k in range(COUNTS)}
    left, inner = 1 - sum(before.values()) - _MEAT, _inner(len(design.names))
    scores = {
        f"{part} score {k + 1}": left * share * of_it
        for k, share in enumerate(_LAST)
        for part, of_it in (("inner", inner), ("outer", 1 - inner))
    }
    aside = {**before, **scores, "meat": _MEAT}
    return with_scale(aside, design, privacy, options.get("clip") is None, tails=False)


def _inner(d: int) -> float:
    """Share of a score's budget for its inner part: the least noise on both together."""
    return 1 / (1 + math.sqrt(omitted(d)))


def _unreadable(plan: Plan, scores: PublicScores) -> tuple[str, ...]:
    """Where noise hides how many scores are how long."""
    hidden = plan.noise(scores.by_length(np.arange(2.0)), "lengths").sd / (_READABLE * plan.n)
    if hidden <= 1:
        return ()
    return (
        f"Noise hides how long scores are at n={plan.n:,} and epsilon={plan.privacy.epsilon:g}: "
        f"method='label-curator' errs less. About n={round_up(hidden * plan.n):,} rows, or epsilon="
        f"{hidden * plan.privacy.epsilon:.2g} at this n, suffice.",
    )


def _rough_fit(holder: LabelHolder, scores: PublicScores) -> Array:
    """Coefficients ``root b`` from responses held near their centre."""
    plan, how, x = holder.plan, scores.how, scores.x
    half = _HELD * how.sd
    low, high = (
        max(scores.interval.low, how.center - half),
        min(scores.interval.high, how.center + half),
    )
    interval, one = Interval(low, high), constant(len(x), 1.0)
    multiplier = plan.noise_multiplier("pilot") * deviation(scores.pure)

    def noise(moved: float) -> float:
        return moved * 2 * interval.half * multiplier / scores.sd

    made = Leverages(x, one, one, one, noise, scores.pure).best(np.arange(x.shape[1]))
    query = LabelSums(interval, made.rows, label_norm(scores.pure))
    u, law = holder.ask(query, "pilot")
    known = scores.known
    away = LazyRows((len(x),), lambda part: interval.middle - known[part])
    center = LazyRows((len(x),), lambda part: how.center - known[part])
    back = np.linalg.solve(scores.root, made.back)
    b = back @ (u + cross(made.rows, away))
    start = cross(scores.rows, center)
    explained = law.sd**2 * float(np.square(back).sum())
    squared = max(float(np.square(b - start).sum()), 1e-300)
    found: Array = start + max(0.0, 1 - explained / squared) * (b - start)
    return found


def _score(holder: LabelHolder, scores: PublicScores, b: Array, clip: float, k: int) -> SplitScore:
    """One of the last two scores, at `b`."""
    fitted, rows, norm = scores.fitted(b), scores.rows, label_norm(scores.pure)
    wide, inner = scores.ends(fitted, clip), scores.ends(fitted, clip / 2)
    held = HeldSums(scores.interval, rows, *inner, norm)
    outer = OuterSums(scores.interval, rows, wide, inner, norm)
    near, far = holder.ask(held, f"inner score {k + 1}"), holder.ask(outer, f"outer score {k + 1}")
    middle = held.middle
    away = LazyRows((len(rows),), lambda part: middle[part] - fitted[part])
    return SplitScore(
        b,
        near.value + cross(rows, away),
        near.noise.sd,
        far.value + cross(rows, outer.middle),
        far.noise.sd,
    )


def _estimate(holder: LabelHolder, scores: PublicScores, plan: Plan) -> CoefficientEstimate:
    n, d = scores.x.shape
    b = _rough_fit(holder, scores)
    clip = chosen_clip(holder, scores, b)
    first = _score(holder, scores, b, clip.at, 0)
    moved = whole(first, True)
    second = _score(holder, scores, b + told_apart(moved) * moved.total, clip.at, 1)
    both = pool_scores(first, second, np.eye(d))
    score = whole(both, True)
    ratio = min(_FARTHEST_LEAN, clip.excess / max(clip.nearer - clip.excess, 1e-300))
    beyond = ratio * score.lean
    b = both.at + score.total + beyond
    meat = _meat(holder, scores, b, clip.at)
    root = scores.root
    unknown = allowed(clip.excess, d, ALIGNED) * np.eye(d) + np.outer(beyond, beyond)
    noise = root @ (score.variance * np.eye(d)) @ root
    sampling = root @ meat @ root
    leaning = float(np.linalg.norm(beyond)) / math.sqrt(score.variance)
    return CoefficientEstimate(
        params=root @ b,
        cov=sampling + noise + root @ unknown @ root,
        cov_privacy=noise,
        cov_sampling=sampling,
        of_these_rows=True,
        nobs=float(n),
        released={
            **scores.how.options(),
            "clip": clip.at,
            "scores beyond the clip": min(clip.number, n),
            "lean of long scores": leaning,
            "residual sd": math.sqrt(float(np.trace(meat)) / d),
        },
        remarks=_remarks(leaning, far_share(scores, plan)),
    )


def _meat(holder: LabelHolder, scores: PublicScores, b: Array, clip: float) -> Array:
    """Squares of clipped scores, averaged with equal variances of residuals."""
    n, d = scores.x.shape
    lengths = scores.lengths
    most = scores.interval.high - scores.interval.low
    clips = LazyRows((n,), lambda p: np.minimum(clip / np.maximum(lengths[p], 1e-300), most))
    query = WeightedResiduals(
        scores.interval, scores.rows, scores.fitted(b), clips, label_norm(scores.pure)
    )
    meat, law = holder.ask(query, "meat")
    variance = max(float(np.trace(meat)), law.sd * math.sqrt(d)) / d
    return mixed(meat, variance * np.eye(d), law.sd, n)


def _remarks(leaning: float, carried: float) -> tuple[str, ...]:
    """Where a clip may have changed the answer."""
    remarks = []
    if carried > _CARRIED:
        remarks.append(
            f"A few rows lie far out: {carried:.0%} of the leverage is that of as few rows as the "
            "noise can hide. If their responses are far from what the others say, the coefficients "
            "may be off by more than their intervals say. Transform such a column."
        )
    if leaning > _LEANING:
        remarks.append(
            "The longest scores lean one way: those that the clip cuts off matter, and what they "
            "add was extrapolated. The mean may bend, or residuals be skewed; intervals allow for "
            "it, and depend on it."
        )
    return tuple(remarks)
