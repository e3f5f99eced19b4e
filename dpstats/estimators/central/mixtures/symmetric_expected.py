"""What a fit of a symmetric mixture is expected to find, from public facts alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dpstats.errors import OptionError
from dpstats.estimators.base import need_positive
from dpstats.estimators.central.mixtures.components import HIDDEN
from dpstats.estimators.guesses import enough
from dpstats.families.signs import SignedFamily
from dpstats.protocol import Options, Plan
from dpstats.queries import CoordinateScores, Geometry, Gram, LongEntries, Score, SignedRows

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["SIGNAL", "lines", "public_signal", "rows", "sparse_lines", "sparse_rows"]

_RATIO = 2.0  # wording: |b| to sigma that is thought of, unless more is publicly known
_OVERLAP = 2.0  # wording: ratio of variances at that distance, to those far apart
_HIDDEN = 0.5  # wording: noise of second moments to the eigenvalue of b, from which plans warn
_CHOSEN = 0.8  # wording: noise of a choice, times log(d/s), to what it looks for, at most
_PRODUCTS = 0.106  # wording: share of long products that a correlation adds, over its square
SIGNAL = {"signal": "length of b over sigma that is publicly thought of; 2 by default"}
_ASSUMED = (
    "b is twice as long as sigma; errors are in units of sigma and range from components that are "
    "far apart to those that overlap.",
)


def public_signal(options: Options) -> dict[str, float]:
    """The length of b over sigma that a plan is to think of, if it was given."""
    given = options.get("signal")
    return {} if given is None else {"signal": need_positive("signal", given, _RATIO)}


def _planned(plan: Plan, d: int, noise: float, factor: float, unknown_sigma: bool) -> Plan:
    """Errors from the noise of the last question, over sigma, and the rows."""
    private = noise / (factor * plan.n)
    se = math.sqrt(1 / plan.n + private**2)
    ranges = [(se, math.sqrt(_OVERLAP) * se)] * d
    names = plan.names
    if unknown_sigma:
        names = (*names, "sigma")
        ranges.append((se / math.sqrt(2 * d), se))
    return replace(
        plan,
        parameters=tuple(names),
        predicted_se=(math.nan,) * len(names),
        predicted_range=tuple(ranges),
        predicted_units=("sigma",) * len(names),
        privacy_share=private**2 / se**2,
        predicted_error=se * math.sqrt(d) / _RATIO,
        assumptions=(*plan.assumptions, *_ASSUMED),
    )


def _hidden(plan: Plan, ratio: float, least: float) -> Plan:
    """The plan with a warning where `ratio` is above 1.

    Raises
    ------
    OptionError
        If noise leaves an error of b of more than half of sigma, `least`, wherever b is: then a fit
        gives no interval.
    """
    if least > HIDDEN:
        raise OptionError(
            f"n={plan.n:,} and epsilon={plan.privacy.epsilon:g}: noise hides b whatever the rows "
            f"are, it would be known to {least:.2g} sigma in each direction at best. "
            f"{enough(plan, max(ratio, least / HIDDEN))}"
        )
    if ratio <= 1:
        return plan
    statement = (
        f"At n={plan.n:,} and epsilon={plan.privacy.epsilon:g} noise may hide the direction of b, "
        f"if b is {_RATIO:g} sigma long. {enough(plan, ratio)}"
    )
    return replace(plan, warnings=(*plan.warnings, statement))


def rows(plan: Plan, d: int, radius: float, unknown_sigma: bool) -> Plan:
    """That of mixtures of rows."""
    query = SignedRows(np.zeros(d), 1.0, radius)
    plan = _planned(plan, d, plan.noise(query, "step 2").sd, 1.0, unknown_sigma)
    ball = Geometry(math.sqrt(d + _RATIO**2) * 1.1)
    blur = plan.noise(Gram(ball), "gram").sd * math.sqrt(2 * d) / plan.n
    # Across b second moments move by sqrt(2) |b|, and are shortened to |b|^2 + d.
    unit = plan.noise(Gram(Geometry(1.0)), "gram").sd * math.sqrt(2 * d)
    steps = [plan.noise(query, f"step {t}").sd for t in (1, 2)]
    return _hidden(plan, blur / (_HIDDEN * _RATIO**2), _least(plan.n, [unit, *steps]))


def lines(plan: Plan, design: Design, radius: float, clip: float, unknown_sigma: bool) -> Plan:
    """That of mixtures of regressions."""
    d = len(design.names)
    query = Score(Geometry(radius), np.zeros(d), clip)
    kept = 0.7 if clip < 2 else 0.9
    plan = _planned(plan, d, plan.noise(query, "step 2").sd, kept, unknown_sigma)
    spread = _RATIO**2 + 1
    ball = Geometry(math.sqrt(d * spread) * 1.1)
    blur = plan.noise(Gram(ball), "gram").sd * math.sqrt(2 * d) / plan.n
    # Across b squares of products move by 2 sqrt(2) |b|, and are shortened to (|b|^2 + 1) d.
    unit = plan.noise(Gram(Geometry(1.0)), "gram").sd * d / math.sqrt(2)
    steps = [plan.noise(query, f"step {t}").sd for t in (1, 2)]
    return _hidden(plan, blur / (_HIDDEN * 2 * _RATIO**2), _least(plan.n, [unit, *steps]))


def _least(n: int, noises: Sequence[float]) -> float:
    """Error of b that answers leave whose mean moves by n with it."""
    return 1 / (n * math.hypot(*(1 / noise for noise in noises)))


def sparse_rows(plan: Plan, d: int, s: int, k: int, thresholds: tuple[float, float]) -> Plan:
    """That of sparse mixtures of rows: whether choices see the columns, and values after that.

    `k` columns are screened; `thresholds` are those of long entries and of signed sums, in sigma.

    Raises
    ------
    OptionError
        If noise hides which columns matter.
    """
    from scipy.stats import norm

    long, short = thresholds
    each = _signal(plan) / math.sqrt(s)
    gap = norm.sf(long - each) + norm.sf(long + each) - 2 * norm.sf(long)
    first = plan.noise(LongEntries(long), "screen").scale / (plan.n * gap)
    signs = SignedFamily("symmetric mixture", "rows")
    scores = CoordinateScores(np.zeros(1), 1.0, short, family=signs)
    at = np.linspace(-8.0, 8.0, 1601)
    moved = float(np.sum(np.clip(each + at, -short, short) * norm.pdf(at))) * (at[1] - at[0])
    second = plan.noise(scores, "choice").scale / (plan.n * moved)
    query = SignedRows(np.zeros(s), 1.0, math.sqrt(s))
    return _selecting(plan, (d, s), ((first, k), (second, s)), plan.noise(query, "step 2").sd)


def sparse_lines(plan: Plan, d: int, s: int, k: int, thresholds: tuple[float, float]) -> Plan:
    """That of sparse mixtures of regressions; `thresholds` are those of residuals and covariates.

    Raises
    ------
    OptionError
        If noise hides which columns matter.
    """
    clip, reach = thresholds
    signal = _signal(plan)
    gap = _PRODUCTS * signal**2 / (s * (signal**2 + 1))
    first = plan.noise(LongEntries(1.0, products=True), "screen").scale / (plan.n * gap)
    scores = CoordinateScores(
        np.zeros(1), clip, reach, family=SignedFamily("symmetric mixture", "lines")
    )
    second = plan.noise(scores, "choice").scale / (plan.n * signal / math.sqrt(s))
    query = Score(Geometry(math.sqrt(s) + 0.5), np.zeros(s), clip)
    return _selecting(plan, (d, s), ((first, k), (second, s)), plan.noise(query, "step 2").sd)


def _signal(plan: Plan) -> float:
    return float(plan.options.get("signal", _RATIO))


def _clear(d: int, s: int, chosen: int) -> float:
    """What tells a column from others over the scale of noise, where `HIDDEN` of a choice is noise.

    Columns that matter have values g, the d - s others 0, all with Gumbel noise of scale 1, and the
    m largest are chosen. Above t are ``(d - s)(1 - exp(-exp(-t)))`` of the others, as expected, and
    ``s(1 - exp(-exp(g - t)))`` of those that matter. With the former f m and the latter (1 - f) m,

        g = log(-log(1 - (1 - f) m / s)) - log(-log(1 - f m / (d - s))).

    That is the least g for a share of less than f, if sampling adds no error to the values.
    """
    wrong = HIDDEN * chosen
    if HIDDEN >= 1 or wrong >= d - s:
        return 0.0
    right = math.log(-math.log1p(-(chosen - wrong) / s))
    return right - math.log(-math.log1p(-wrong / (d - s)))


def _selecting(
    plan: Plan, size: tuple[int, int], choices: tuple[tuple[float, int], ...], noise: float
) -> Plan:
    """The plan with its error, or the warning that choices are hidden by noise.

    Parameters
    ----------
    size : int, int
        Columns, and those of them that matter.
    choices : several (float, int)
        The scale of a choice's noise over what tells a column that matters from another, and how
        many are chosen.
    noise : float
        Of the values that are asked for last.

    Raises
    ------
    OptionError
        If so much of a choice is noise as `HIDDEN` says.
    """
    (d, s), signal = size, _signal(plan)
    private = noise / plan.n
    se = math.sqrt(_OVERLAP / plan.n + private**2)
    hidden = max(blur for blur, _ in choices) * math.log(max(d / s, math.e)) / _CHOSEN
    what = (
        f"at n={plan.n:,} and epsilon={plan.privacy.epsilon:g} noise hides which {s} of {d:,} "
        f"columns matter, if b is {signal:g} sigma long"
    )
    lost = max(blur * _clear(d, s, chosen) for blur, chosen in choices)
    if lost >= 1:
        raise OptionError(
            f"Out of reach: {what}: of one of two choices half or more would be noise. "
            f"{enough(plan, max(hidden, lost))} If b is publicly known to be longer, say so by "
            f"signal=, its length over sigma (default {_RATIO:g})."
        )
    error = se * math.sqrt(s) / signal
    assumed = (
        f"b is {signal:g} sigma long, and its {s} entries are of one size. If they are found, b is "
        f"expected within {se * math.sqrt(s):.2g} sigma.",
    )
    free = () if "sigma" in plan.options else ("sigma",)
    plan = replace(
        plan,
        parameters=(*plan.names, *free),
        privacy_share=private**2 / se**2,
        predicted_error=min(math.hypot(error, max(hidden - 1, 0.0)), 1.0),
        assumptions=(*plan.assumptions, *assumed),
    )
    if hidden <= 1:
        return plan
    statement = f"Hardly within reach: {what}. {enough(plan, hidden)}"
    return replace(plan, warnings=(*plan.warnings, statement))
