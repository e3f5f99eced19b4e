"""The questions of a fit of largest likelihood, their shares, and what their noise permits."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting import gdp_mu
from dpstats.estimators.base import Request
from dpstats.estimators.central.newton import far_rows
from dpstats.estimators.guesses import max_rows
from dpstats.estimators.numerics.parts import omitted
from dpstats.families import GAUSSIAN
from dpstats.privacy import Privacy
from dpstats.protocol import Plan
from dpstats.queries import Geometry, Gram, Search, WhitenedScore

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = [
    "BEYOND",
    "CLEAR",
    "COUNT",
    "DISPERSION",
    "EARLIER",
    "EARLY",
    "EXPECTED",
    "FAR",
    "LAST_BREAD",
    "MATRIX",
    "MIDDLE",
    "MIDDLE_STEP",
    "NUMBER",
    "VECTOR",
    "WHITENED_REACH",
    "all_noise",
    "asked_twice",
    "at_clip",
    "beginning",
    "between_0_and_1",
    "blur",
    "breads",
    "curvature",
    "early",
    "ending",
    "last_noise",
    "left_to_scores",
    "looks_far",
    "peels",
    "requests",
    "resolved",
    "short_scores",
    "whitening",
]

NUMBER = 0.01  # budget: each question for one number: a count, a sum of weights, a search
VECTOR = 0.03  # budget: each score, histogram or sum of squares on the way to the last scores
MATRIX = 0.08  # budget: each Gram matrix, at most; the curvature up to as much as both
# ratio: noise on second moments at which they take all of their share; the part they take at least
CLEAR, _LEAST_PART = 0.3, 0.4
_CLEAR_RARE = 0.05  # ratio: the same, where a column may be nearly always 0
WHITENED_REACH = 0.95  # share: of rows that the second Gram matrix should count in full
EARLIER = 0.5  # ratio: of the shares of two scores at the clip, one after the other

# numerical: by which a spline's basis may exceed [0, 1]; what all that are cubic rise to
_SLACK, _LEAST_TOP = 0.1, 0.5

FAR, EXPECTED, LAST_BREAD = "far rows", "expected", "last bread"  # slots
DISPERSION = ("first dispersion", "dispersion")  # slots
EARLY, BEYOND = ("early score 1", "early score 2"), ("beyond 1", "beyond 2", "beyond 3")  # slots
MIDDLE = "middle score"  # slot
MIDDLE_STEP = Request(MIDDLE, 0.0, "score of a Newton step at the first clip")
COUNT = Request("count", NUMBER, "number of rows that contribute")


def blur(design: Design, privacy: Privacy, n: float) -> float:
    """Operator norm of the noise on the whitened Gram matrix, per row, with all of its share."""
    d, mu = len(design.names), gdp_mu(privacy.epsilon, privacy.delta)
    one = Gram(Geometry(math.sqrt(d))).sensitivity(privacy.neighbors, max_rows(design))
    return one * math.sqrt(d + 1) / (mu * math.sqrt(MATRIX) * n)


def between_0_and_1(design: Design) -> NDArray[np.bool_]:
    """Columns, other than the intercept, that are shares of 1: dummies, a spline's basis; public.

    Some of them may be nearly always 0. Columns of polynomials have as narrow bounds about 0, in
    other units.
    """
    low, high = np.asarray(design.bounds, dtype=np.float64).T
    within = (low > -_SLACK) & (high > _LEAST_TOP) & (high < 1 + _SLACK)
    narrow: NDArray[np.bool_] = within & (low < high)
    return narrow


def requests(design: Design, privacy: Privacy, n: float, peeled: bool) -> list[Request]:
    """Every question of a fit, and its share of the budget; `peeled` as of `peels`."""
    aside = [
        *beginning(design, privacy, n),
        *early(design),
        Request("lengths", VECTOR, "histogram of the lengths of scores, for the clip"),
        *([Request(FAR, NUMBER, "rows far out in their columns")] * looks_far(design)),
        *(
            Request(slot, NUMBER, "scores longer than about the clip, to correct it")
            for slot in BEYOND
        ),
        MIDDLE_STEP,
        *curvature(design, privacy, n),
        *ending(design),
    ]
    aside, later = left_to_scores(aside, EARLIER)
    inner = 1 / (1 + math.sqrt(_left(design, peeled)))  # the least noise on both together
    last = [
        Request(f"{part} score {k + 1}", share * of_it, _PURPOSES[part])
        for k, share in enumerate(later)
        for part, of_it in zip(_PARTS, (inner, 1 - inner), strict=True)
    ]
    return aside + last


def _parts_of_matrices(design: Design, privacy: Privacy, n: float) -> tuple[float, float]:
    """Of what each takes at most, of Gram matrices and of the curvature."""
    rare = bool(between_0_and_1(design).any())
    noisy = blur(design, privacy, n) / (_CLEAR_RARE if rare else CLEAR)
    part = min(1.0, max(_LEAST_PART, noisy))
    # Of a rare level the curvature is what noise hides; elsewhere it is as the model expects.
    return part, part if rare else _LEAST_PART


def beginning(design: Design, privacy: Privacy, n: float) -> list[Request]:
    """The number of rows, what steps start from, and coordinates."""
    part, _ = _parts_of_matrices(design, privacy, n)
    start, far = _start(design), _drawn_in(design, privacy, n)
    return [COUNT, *start, *whitening(part), *far]


def early(design: Design) -> list[Request]:
    """Early steps, each with its clip."""
    searched = not short_scores(design)
    return [
        request
        for k, slot in enumerate(EARLY, 1)
        for request in (
            *([Request(f"length {k}", NUMBER, "length of most scores")] * searched),
            Request(slot, VECTOR, "score of an early Newton step"),
        )
    ]


def curvature(design: Design, privacy: Privacy, n: float) -> list[Request]:
    """The curvature for the last step, and what it is shortened at."""
    _, part = _parts_of_matrices(design, privacy, n)
    return [
        Request("steepest", NUMBER, "a radius that nearly all rows are within"),
        *([Request(EXPECTED, NUMBER, "the same, whatever responses are")] * design.family.observed),
        *breads(design, 2 * part * MATRIX),
    ]


def ending(design: Design) -> list[Request]:
    """What standard errors need, and a dispersion that is released."""
    return [
        Request("meat", VECTOR, "squares of scores, for standard errors"),
        *(
            Request(slot, VECTOR, "score of the dispersion alpha")
            for slot in DISPERSION
            if design.family.released
        ),
    ]


def left_to_scores(aside: list[Request], earlier: float) -> tuple[list[Request], list[float]]:
    """Requests with the share of the middle score, and the shares of both last ones.

    They take what is left, each `earlier` of what the next one has.
    """
    left = 1.0 - sum(r.weight for r in aside)
    growth = earlier ** np.arange(2.0, -1.0, -1.0)
    middle, *later = (float(share) for share in left * growth / growth.sum())
    return [replace(r, weight=middle) if r.slot == MIDDLE else r for r in aside], later


def asked_twice(design: Design) -> bool:
    """Whether the curvature is asked before the middle score, and again where the last one is.

    That of counts grows as their mean does, by 2.7 where a predictor grows by 1, so that a model of
    normal rows does not know it at another place.
    """
    return design.family.name == "poisson"


def breads(design: Design, share: float) -> list[Request]:
    """The curvature; with half of its share on the way where it is asked again."""
    last = Request("bread", share, "curvature, for the last step")
    if not asked_twice(design):
        return [last]
    return [
        Request("bread", share / 2, "curvature, for steps on the way"),
        replace(last, slot=LAST_BREAD),
    ]


def _drawn_in(design: Design, privacy: Privacy, n: float) -> list[Request]:
    """Where rows lie far out; those of several levels are not drawn in."""
    if design.family.name == "multinomial":
        return []
    return far_rows.far_questions(design, privacy, n, 1 - WHITENED_REACH, NUMBER)


def _start(design: Design) -> list[Request]:
    """What steps start from: of a regression with an intercept, or of levels."""
    family = design.family
    if family.name == "multinomial":
        return [Request("levels", VECTOR, "rows of each level, to start from")]
    if not design.has_intercept:
        return []
    if family == GAUSSIAN:
        return [Request("median", NUMBER, "median of the response, to start from")]
    asked = [Request("mean", NUMBER, "mean response, to start from")]
    if family.name != "binomial":
        asked.insert(0, Request("level", NUMBER, "size of the response, to clip it at"))
    if design.weights is not None:
        asked.append(Request("weights", NUMBER, "sum of the weights, to start from"))
    if family.link == "log" and design.offset is not None:
        asked.append(Request("exposure", NUMBER, "mean of exp(offset), to start from"))
    return asked


def whitening(moments: float = 1.0) -> list[Request]:
    """The questions of `whiten`, with a part of what both Gram matrices take at most."""
    return [
        Request("norm", NUMBER, "a radius that most rows are within"),
        Request("gram", moments * MATRIX, "second moments of the columns"),
        Request("reach", NUMBER, "a radius that most whitened rows are within"),
        Request("whitened gram", moments * MATRIX, "second moments in whitened coordinates"),
    ]


_PARTS = ("inner", "outer")
_PURPOSES = {
    "inner": "score of a Newton step, clipped at half the length",
    "outer": "what half the length leaves out of it",
}


def short_scores(design: Design) -> bool:
    """Whether scores are about as long as rows: those of one yes or no are.

    (Under the complementary log-log link that of a failure grows like exp(eta), which is seldom
    more than a few.) Those of a share of many trials are shorter by far.
    """
    return design.family.name in ("binomial", "multinomial") and design.weights is None


def looks_far(design: Design) -> bool:
    """Whether rows far out are counted by themselves, as curvatures may not show them.

    A yes or no that is all but certain has next to no curvature, however far out its row is, but a
    score as long as the row where the answer is the other one. (Of several levels the radius of the
    curvature is that of rows.)
    """
    return short_scores(design) and design.family.name == "binomial"


def peels(design: Design) -> bool:
    """Whether a model says what the outer half of long scores adds up to, which noise hides.

    Of symmetric residuals that is nothing, of counts what is expected of normal rows. It is drawn
    towards that. (That of a yes or no hangs more on rows than on responses.)
    """
    counts = design.family.name == "poisson" and design.weights is None
    return bool(design.family == GAUSSIAN) or counts


def _left(design: Design, peeled: bool) -> float:
    """Share of the variance of its noise that an outer part is expected to keep."""
    return omitted(len(design.names)) if peeled else 1.0


def last_noise(plan: Plan, design: Design, peeled: bool) -> float:
    """Standard deviation of the noise of both last scores together, at clip 1; public.

    Of outer parts that may be replaced by nothing, what that leaves of their variance.
    """
    half = at_clip(design, 0.5)
    variances = [
        sum(
            left * plan.noise(half, f"{part} score {k + 1}").sd ** 2
            for part, left in zip(_PARTS, (1.0, _left(design, peeled)), strict=True)
        )
        for k in range(2)
    ]
    return 1 / math.sqrt(sum(1 / v for v in variances))


def all_noise(plan: Plan, design: Design, peeled: bool) -> float:
    """The same of these and the middle score: of where a fit ends, as far as its clips agree."""
    middle = plan.noise(at_clip(design, 1.0), MIDDLE).sd
    return 1 / math.hypot(1 / last_noise(plan, design, peeled), 1 / middle)


def at_clip(design: Design, clip: float) -> WhitenedScore:
    """A score of so many columns, wherever it is asked."""
    d = len(design.names)
    return WhitenedScore(np.eye(d), np.zeros(d), clip)


def resolved(share: float, plan: Plan, query: Search, slot: str) -> float:
    """The share of rows asked for, or the next to it that the noise can tell from all of them."""
    return min(share, max(0.5, 1 - 2 * plan.noise(query, slot).sd / plan.n))
