"""Columns described at once: missing values, mean, standard deviation and quartiles of each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.base import Request, need_delta
from dpstats.estimators.central.counted import CountingMethod, counted_plan
from dpstats.estimators.central.descriptive import passes
from dpstats.estimators.central.descriptive.quantile import OWN as DISTRIBUTIONS
from dpstats.estimators.central.descriptive.window import (
    Window,
    expected_allowances,
    hidden_rows,
    missed,
    unseen,
    window_of,
)
from dpstats.estimators.columns import QUARTILES
from dpstats.estimators.guesses import max_rows, rows_known
from dpstats.estimators.sources import DONG, FICHTENBERGER
from dpstats.privacy import Privacy
from dpstats.protocol import DescribeEstimate, Distribution, Holder, Options, Plan
from dpstats.protocol.criticals import USUAL, of_variance, stated_error
from dpstats.protocol.descriptive import described_names
from dpstats.queries import ColumnMoments, Query
from dpstats.theory import Assumption, Citation, Rate, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["THEORY", "ColumnDescriptions", "HeldMoments", "moments", "root_error"]

Array = NDArray[np.float64]

_SLOTS = ("distribution 1", "distribution 2", "moments")
_SHARES = (0.15, 0.35, 0.5)  # budget: two passes over the distribution, and the moments
_DIGITS = 6  # numerical: decimal places of a number of rows
_LEAST = 0.25  # numerical: least variance to the noise in it

OWN = Citation(
    "dpstats-describe",
    "The dpstats developers",
    "Moments of columns in windows from released distribution functions",
    2026,
    "dpstats",
    "proof in the docstring of ColumnMoments",
)

THEORY = Theory(
    estimand=(
        "number, mean, standard deviation and quartiles of the values of each column that are not "
        "missing, held to the declared range"
    ),
    guarantee=(
        "(epsilon, delta)-DP for every data set: Gaussian noise on roots of summation applied to "
        "counts of values in cells, twice, and on clipped sums of powers of all columns."
    ),
    assumptions=(
        Assumption("Rows are independent (of one unit they may be alike)"),
        Assumption("Tails of columns are not much heavier than log-normal with a shape of 1"),
        Assumption("For standard deviations: nor than generalised Pareto with a shape of .36"),
    ),
    upper=(
        Rate("statistical", "1/sqrt(n)", OWN),
        Rate("privacy", "sqrt(d log(1/delta))/(n eps)", OWN, conjectured=True),
    ),
    lower=(),
    citations=(OWN, DISTRIBUTIONS, FICHTENBERGER, DONG),
)


@dataclass(frozen=True)
class ColumnDescriptions(CountingMethod[DescribeEstimate]):
    """Number, mean, standard deviation and quartiles of several columns, under one budget.

    1. Distribution functions of all columns over their declared ranges.
    2. The same in cells that are close where quartiles are; missing values are a last cell.
    3. Sums of z, z^2 and z^4 of each column held to a window, which earlier answers put where noise
       and the effect of holding values to it together are least (`window.window_of`).

    The effect of the window enters the standard errors of means, as if values beyond what is seen
    had tails like a log-normal law. Holding values to it makes standard deviations smaller, never
    larger, and their intervals reach further up by what tails as heavy as the column's seem to be
    would add (`window.missed`): all standard deviations from that in the window to the largest
    allowed for are covered alike, as by Imbens and Manski (2004).

    Notes
    -----
    *Guarantee.* Gaussian noise on `ColumnPrefixes`, twice, and on `ColumnMoments` (sensitivity
    2 sqrt(d)), whose cells and windows depend on the data only through what was released before.
    """

    name: ClassVar[str] = "windows"
    model: ClassVar[str] = "describe"
    theory: ClassVar[Mapping[str, Theory]] = {"central": THEORY}
    options: ClassVar[Mapping[str, str]] = {}

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        need_delta(self.name, privacy)
        purposes = ("distribution functions", "distribution functions", "moments in windows")
        asks = [Request(*ask) for ask in zip(_SLOTS, _SHARES, purposes, strict=True)]
        plan = counted_plan(self, design, privacy, n, asks, options)
        plan = replace(plan, parameters=described_names(design.names))
        return _expected(plan, design)

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> DescribeEstimate:
        """Ask for distribution functions, twice, and for moments."""
        places = np.arange(len(design.names))
        found = passes.ask_distributions(
            holder, design, _SLOTS[:2], places, lambda first: passes.finer_edges(first, QUARTILES)
        )
        windows = [window_of(each, _moment_noise(plan, design), agreed=True) for each in found]
        query = ColumnMoments(
            places, np.array([w.lower for w in windows]), np.array([w.upper for w in windows])
        )
        answer, known = holder.ask(query, _SLOTS[2]), rows_known(design, plan.privacy)
        made = [
            moments(sums, each, window, answer.noise.sd)
            for sums, each, window in zip(answer.value.T, found, windows, strict=True)
        ]
        return DescribeEstimate(
            columns=design.names,
            distributions=tuple(found),
            moments=np.array([each.values for each in made]),
            variances=np.array([each.total for each in made]),
            of_noise=np.array([each.noise for each in made]),
            windows=np.array([(w.lower, w.upper) for w in windows]),
            missing=np.array(
                [round(plan.n - each.rows, _DIGITS) if known else math.nan for each in found]
            ),
            nobs=float(plan.n)
            if rows_known(design, plan.privacy)
            else max(each.rows for each in found),
            released={
                "rows hidden at an end": {
                    name: hidden_rows(each, w.lower, w.upper)
                    for name, each, w in zip(design.names, found, windows, strict=True)
                }
            },
            remarks=tuple(
                remark
                for name, each, w in zip(design.names, found, windows, strict=True)
                for remark in unseen(name, each, w.lower, w.upper)
            ),
            beyond=np.array([each.beyond for each in made]),
        )


class HeldMoments(NamedTuple):
    """Mean and standard deviation of a column, in the user's units.

    Attributes
    ----------
    values : ndarray of shape (2,)
    total, noise : ndarray of shape (2,)
        Variances of their errors, and the part that is noise of known law. That of the mean holds
        what is allowed for values outside of the window.
    beyond : float
        What values outside of the window may add to the standard deviation.
    """

    values: Array
    total: Array
    noise: Array
    beyond: float


def moments(sums: Array, found: Distribution, window: Window, sd: float) -> HeldMoments:
    """Mean and standard deviation of a column, of values held to a window.

    Parameters
    ----------
    sums : ndarray of shape (3,)
        Noisy sums of z, z^2, z^4; `sd` is the noise of the first, 1.4 and 0.8 times that of the
        others.
    found : Distribution
        Released, of the column.
    window : Window
        That it led to.
    """
    n, count_noise = found.rows, float(found.variance[-1])
    centre, half = (window.lower + window.upper) / 2, (window.upper - window.lower) / 2
    s1, s2 = sd / n, sd / 1.4 / n
    m1 = float(np.clip(sums[0] / n, -1.0, 1.0))
    spread = float(np.clip(sums[1] / n - m1**2, _LEAST * s2, 1.0))
    fourth = max(float(sums[2]) / n, (spread + m1**2) ** 2)
    mean_noise = s1**2 + count_noise * (m1 / n) ** 2
    mean_sampling = found.effect * spread / n
    # Of q/n - (m/n)^2 the slope in n is (m1^2 - spread) / n.
    square_noise = s2**2 + 4 * m1**2 * s1**2 + count_noise * ((m1**2 - spread) / n) ** 2
    wobble = _square_variance(found, window, (m1, spread, fourth))
    square_sampling = found.effect * max(wobble, spread**2) / n
    slope = half / (2 * math.sqrt(spread))
    values = np.array([centre + half * m1, half * math.sqrt(spread)])
    noise = np.array([half**2 * mean_noise, slope**2 * square_noise])
    sampling = np.array([half**2 * mean_sampling, slope**2 * square_sampling])
    added = missed(found, window, values[0], values[1] ** 2)
    return HeldMoments(
        values=values,
        total=noise + sampling + np.array([window.mean**2, 0.0]),
        noise=noise,
        beyond=math.hypot(values[1], math.sqrt(added)) - float(values[1]),
    )


def _square_variance(
    found: Distribution, window: Window, powers: tuple[float, float, float]
) -> float:
    """Variance of (z - m)^2, of the mean m, the variance and the fourth power of z in a window.

    It is E z^4 - v^2 - 6 m^2 v - m^4 - 4 m E(z - m)^3. The last is read of the distribution
    function, as large as its noise and its cells leave open. At most, z^2 and z are correlated.
    """
    m, v, fourth = powers
    most = (math.sqrt(max(fourth - (v + m**2) ** 2, 0.0)) + 2 * abs(m) * math.sqrt(v)) ** 2
    centre, half = (window.lower + window.upper) / 2, (window.upper - window.lower) / 2
    cubes = ((np.clip(found.edges, window.lower, window.upper) - centre) / half - m) ** 3
    shares = np.diff(found.below, prepend=0.0) / found.rows
    third = float(shares @ (cubes[1:] + cubes[:-1])) / 2
    doubt = float(shares @ np.diff(cubes)) / 2 + math.sqrt(float(found.variance.max())) / found.rows
    read = fourth - v**2 - 6 * m**2 * v - m**4 - 4 * m * third + 4 * abs(m) * doubt
    return min(read, most)


def root_error(se: float, added: float) -> float:
    """Standard error that is stated of a standard deviation of 1, with an allowance."""
    ends = np.sqrt(of_variance(1.0, se, math.sqrt(1 + added) - 1, USUAL))
    return float(stated_error(1.0, ends))


def _moment_noise(plan: Plan, design: Design) -> float:
    """Standard deviation of the noise in a sum of z, in rows."""
    k = len(design.names)
    return plan.noise(ColumnMoments(np.arange(k), -np.ones(k), np.ones(k)), _SLOTS[2]).sd


def _expected(plan: Plan, design: Design) -> Plan:
    """The plan with errors of normal columns, and a warning where noise blurs distributions."""
    from scipy.special import ndtri
    from scipy.stats import norm

    k, n = len(design.names), float(plan.n)
    effect = float(max_rows(design))
    rank = passes.expected_noise(plan, _SLOTS[1], k, 512)
    sums = _moment_noise(plan, design)
    reach = 3.0  # half the width of a window, in standard deviations of a normal column
    q = np.array(QUARTILES)
    variances = [effect + (reach * sums) ** 2 / n, effect / 2 + (reach**2 * sums / 2.8) ** 2 / n]
    variances += list((effect * q * (1 - q) + rank**2 / n) / norm.pdf(ndtri(q)) ** 2)
    errors = np.sqrt(np.array(variances) / n)
    of_mean, added = expected_allowances(n, rank, sums)
    most = np.hypot(errors, [of_mean, 0.0, 0.0, 0.0, 0.0])
    most[1] = root_error(float(errors[1]), added)
    units = [
        "" if place not in design.unscaled else f"sd({name})"
        for place, name in enumerate(design.names)
    ]
    scales = [
        1.0 if unit else float(design.standardization.x_scale[place])
        for place, unit in enumerate(units)
    ]
    se, more = (
        tuple(float(scale * error) for scale in scales for error in each) for each in (errors, most)
    )
    plan = replace(
        plan,
        predicted_se=se,
        predicted_range=tuple(zip(se, more, strict=True)),
        predicted_units=tuple(unit for unit in units for _ in errors),
        privacy_share=float((reach * sums) ** 2 / n / variances[0]),
        assumptions=(*plan.assumptions, *passes.NORMAL),
    )
    return passes.warn_of_blur(plan, _SLOTS[:2], k)
