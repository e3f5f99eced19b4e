"""What a fit of a mixture of regressions is expected to find, from public facts alone."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np

from dpstats.estimators.central.mixtures.components import refuse_unseen
from dpstats.estimators.guesses import enough
from dpstats.protocol import Plan
from dpstats.queries import Geometry, MixtureScores, ResidualCells, ScoreSquares

__all__ = ["expect_regressions"]

_SMALL = 0.5  # wording: weight of the smallest component that is thought of, to the average
_OVERLAP = 2.0  # wording: ratio of variances where lines are near, to those where they are not
_LONG = 1.2  # wording: radius of rows to sqrt(d)
_SEEN = 6.0  # wording: ratio of a component's rows to the noise of the cells that it covers
_COVERED = 6.0  # wording: cells of residuals that a component covers, and as many of each direction
_TURNED = 7.0  # wording: ratio of the squares of p columns' scores to the noise that turns them
_COARSE = 0.35  # wording: error of coefficients, in sigmas, from which the plan warns
_ASSUMED = (
    "Errors are in standard deviations of the errors (sigma) and of columns, and range from "
    "components that are alike and far apart to one of half the average weight near another; of an "
    "intercept, where columns are at their centres.",
    "Errors are normal, of one variance, and columns do not tell the component; a test of that "
    "comes with the fit.",
)

_ORIGIN = (
    "The formula has no intercept: lines go through the origin, which the test hardly sees.",
)


def expect_regressions(
    plan: Plan, numbers: tuple[int, ...], clips: tuple[float, ...], kept: int, cells: int
) -> Plan:
    """The plan with its expected errors, and with warnings where they are large.

    Parameters
    ----------
    plan : Plan
    numbers : tuple of int
        Of components, one of which is chosen.
    clips : tuple of float
        Of the steps.
    kept : int
        Steps whose answers are fitted.
    cells : int
        Of the histogram.

    Raises
    ------
    OptionError
        If noise hides a component whatever the rows are.
    """
    d, n = len(plan.names), plan.n
    k, fewest = max(numbers), min(numbers)
    geometry = Geometry(_LONG * math.sqrt(d))
    normal = NormalDist()
    precision = np.zeros(3)  # of a count, of a sum of scores and of one of squares
    for t in range(len(clips) - kept, len(clips)):
        clip = clips[t]
        query = MixtureScores(geometry, np.zeros(k), np.zeros((k, d)), 1.0, clip)
        sd = plan.noise(query, f"step {t + 1}").sd
        inside = 2 * normal.cdf(clip) - 1
        # Of the clipped square, the derivative in the logarithm of sigma.
        second = 2 * (inside - 2 * clip * normal.pdf(clip))
        unit = 2 * query.constant / clip**2
        precision += np.square([query.constant / sd, inside / sd, second * unit / sd])
    noise = 1 / np.sqrt(precision)

    def errors(weight: float, factor: float) -> tuple[list[float], float]:
        rows = weight * n
        sampling = np.array([weight * (1 - weight) / n, 1 / rows, 1 / (2 * n)])
        private = np.array([noise[0] / n, noise[1] / rows, noise[2] * math.sqrt(k) / n])
        found = np.sqrt(factor * (sampling + private**2))
        each = [found[0], *[found[1]] * d] * k
        return [*each, found[2]], float(private[1] ** 2 / (1 / rows + private[1] ** 2))

    low, share = errors(1 / k, 1.0)
    high = np.maximum(errors(1 / k, _OVERLAP)[0], errors(_SMALL / k, _OVERLAP)[0])
    units = ["", *("sigma" if name == "Intercept" else f"sigma/sd({name})" for name in plan.names)]
    plan = replace(
        plan,
        predicted_se=(math.nan,) * len(low),
        predicted_range=tuple(zip(map(float, low), map(float, high), strict=True)),
        predicted_units=(*units * k, "sigma"),
        privacy_share=share,
        assumptions=(*plan.assumptions, *_ASSUMED, *(() if "Intercept" in plan.names else _ORIGIN)),
    )
    coarse = high[1] / _COARSE
    hidden, blur = _hidden(plan, k)
    # The score of shortened rows has a derivative of at most min(1, R^2 / d) in some direction, and
    # its noise grows with R: at best, R is sqrt(d).
    least = noise[1] / _LONG / (n / fewest)
    refuse_unseen(plan, fewest, (least, "its coefficients"), (blur, cells), max(hidden, coarse))
    if max(hidden, coarse) <= 1:
        return plan
    what = "where lines are" if hidden > coarse else "coefficients to a third of sigma"
    statement = (
        f"At n={n:,} and epsilon={plan.privacy.epsilon:g} noise may hide {what}, if one of {k} is "
        f"half as heavy as the average. {enough(plan, max(hidden, coarse))}"
    )
    return replace(plan, warnings=(*plan.warnings, statement))


def _hidden(plan: Plan, k: int) -> tuple[float, float]:
    """Noise on where lines are, to what would hide them; and that of a cell."""
    d = len(plan.names)
    turned = plan.asks("squares")
    q = min(k - 1, d) if turned else 0
    ends = np.array([-1.0, 1.0])
    cells = ResidualCells(np.zeros(d), ends, np.zeros((q, d)), ends)
    covered = _COVERED ** (1 + q)
    blur = plan.noise(cells, "cells").sd
    hidden = _SEEN * blur * math.sqrt(covered) / (_SMALL * plan.n / k)
    if not turned:
        return hidden, blur
    # Scores of length about sqrt(d) have squares of about 1 in each direction.
    query = ScoreSquares(np.eye(d), np.zeros(d), 1.0, plan.max_rows)
    turning = plan.noise(query, "squares").sd * d * math.sqrt(d) / plan.n
    return max(hidden, _TURNED * turning * (k - 1)), blur
