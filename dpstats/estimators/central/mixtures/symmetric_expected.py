"""What a fit of a symmetric mixture is expected to find, from public facts alone."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dpstats.estimators.guesses import enough
from dpstats.families.signs import Signed
from dpstats.protocol import Plan
from dpstats.queries import CoordinateScores, Geometry, Gram, LongEntries, Score, SignedRows

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["lines", "rows", "sparse_lines", "sparse_rows"]

_RATIO = 2.0  # wording: |b| to sigma that is thought of
_OVERLAP = 2.0  # wording: ratio of variances at that distance, to those far apart
_HIDDEN = 0.5  # wording: noise of second moments to the eigenvalue of b, from which plans warn
_CHOSEN = 0.8  # wording: noise of a choice, times log(d/s), to what it looks for, at most
_PRODUCTS = 0.106  # wording: share of long products that a correlation adds, over its square
_ASSUMED = (
    "b is twice as long as sigma; errors are in units of sigma and range from components that are "
    "far apart to those that overlap.",
)


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


def _hidden(plan: Plan, ratio: float) -> Plan:
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
    return _hidden(plan, blur / (_HIDDEN * _RATIO**2))


def lines(plan: Plan, design: Design, radius: float, clip: float, unknown_sigma: bool) -> Plan:
    """That of mixtures of regressions."""
    d = len(design.names)
    query = Score(Geometry(radius), np.zeros(d), clip)
    kept = 0.7 if clip < 2 else 0.9
    plan = _planned(plan, d, plan.noise(query, "step 2").sd, kept, unknown_sigma)
    spread = _RATIO**2 + 1
    ball = Geometry(math.sqrt(d * spread) * 1.1)
    blur = plan.noise(Gram(ball), "gram").sd * math.sqrt(2 * d) / plan.n
    return _hidden(plan, blur / (_HIDDEN * 2 * _RATIO**2))


def sparse_rows(plan: Plan, d: int, s: int, k: int, thresholds: tuple[float, float]) -> Plan:
    """That of sparse mixtures of rows: whether choices see the columns, and values after that.

    `k` columns are screened; `thresholds` are those of long entries and of signed sums, in sigma.
    """
    from scipy.stats import norm

    long, short = thresholds
    each = _RATIO / math.sqrt(s)
    gap = norm.sf(long - each) + norm.sf(long + each) - 2 * norm.sf(long)
    first = plan.noise(LongEntries(long), "screen").scale / (plan.n * gap)
    signs = Signed("symmetric mixture", "rows")
    scores = CoordinateScores(np.zeros(1), 1.0, short, family=signs)
    at = np.linspace(-8.0, 8.0, 1601)
    signal = float(np.sum(np.clip(each + at, -short, short) * norm.pdf(at))) * (at[1] - at[0])
    second = plan.noise(scores, "choice").scale / (plan.n * signal)
    query = SignedRows(np.zeros(s), 1.0, math.sqrt(s))
    return _selecting(plan, d, s, max(first, second), plan.noise(query, "step 2").sd)


def sparse_lines(plan: Plan, d: int, s: int, clip: float, reach: float) -> Plan:
    """That of sparse mixtures of regressions."""
    total = math.hypot(_RATIO, 1.0)
    each = _RATIO / (math.sqrt(s) * total)
    gap = _PRODUCTS * each**2
    first = plan.noise(LongEntries(1.0, products=True), "screen").scale / (plan.n * gap)
    scores = CoordinateScores(np.zeros(1), clip, reach, family=Signed("symmetric mixture", "lines"))
    second = plan.noise(scores, "choice").scale / (plan.n * _RATIO / math.sqrt(s))
    query = Score(Geometry(math.sqrt(s) + 0.5), np.zeros(s), clip)
    return _selecting(plan, d, s, max(first, second), plan.noise(query, "step 2").sd)


def _selecting(plan: Plan, d: int, s: int, blur: float, noise: float) -> Plan:
    """The plan with its error, or the warning that choices are hidden by noise.

    `blur` is the scale of a choice's noise over what tells a column that matters from another.
    """
    private = noise / plan.n
    se = math.sqrt(_OVERLAP / plan.n + private**2)
    hidden = blur * math.log(max(d / s, math.e)) / _CHOSEN
    error = se * math.sqrt(s) / _RATIO
    assumed = (
        f"b is {_RATIO:g} sigma long, and its {s} entries are of one size. If they are found, b is "
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
    statement = (
        f"Out of reach: at n={plan.n:,} and epsilon={plan.privacy.epsilon:g} noise hides which {s} "
        f"of {d:,} columns matter, if b is {_RATIO:g} sigma long. {enough(plan, hidden)}"
    )
    return replace(plan, warnings=(*plan.warnings, statement))
