"""Variance of one column, in a window from its released distribution function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpstats.estimators.base import Request, need_delta
from dpstats.estimators.central.counted import CountingMethod, counted_plan
from dpstats.estimators.central.descriptive import passes
from dpstats.estimators.central.descriptive.describe import THEORY, moments, root_error
from dpstats.estimators.central.descriptive.window import (
    expected_allowances,
    hidden_rows,
    unseen,
    window_of,
)
from dpstats.estimators.guesses import max_rows
from dpstats.privacy import Privacy
from dpstats.protocol import Holder, Options, Plan, VarianceEstimate
from dpstats.queries import ColumnMoments, Query
from dpstats.theory import Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["WindowVariance"]

_FIRST, _MOMENTS = "distribution", "moments"
_SHARE = 0.4  # budget: the distribution function
_REACH = 3.0  # wording: half the width of a window that the plan presumes, in standard deviations


@dataclass(frozen=True)
class WindowVariance(CountingMethod[VarianceEstimate]):
    """Mean, variance and standard deviation of a column held to a window.

    One distribution function, and sums of z, z^2 and z^4 in the window that it says; as in
    `ColumnDescriptions`, with all of the budget.

    Notes
    -----
    *Guarantee.* Gaussian noise on `ColumnPrefixes` and on `ColumnMoments` (sensitivity 2 per row),
    whose window depends on the data only through what was released before.
    """

    name: ClassVar[str] = "windows"
    model: ClassVar[str] = "variance"
    theory: ClassVar[Mapping[str, Theory]] = {
        "central": replace(THEORY, estimand="mean and variance, of values held to the range")
    }
    options: ClassVar[Mapping[str, str]] = {}

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        need_delta(self.name, privacy)
        asks = [
            Request(_FIRST, _SHARE, "distribution function of the column"),
            Request(_MOMENTS, 1 - _SHARE, "sums of powers in a window"),
        ]
        plan = counted_plan(self, design, privacy, n, asks, options)
        noise, effect = _noise(plan) / n, max_rows(design) / n
        rank = passes.expected_noise(plan, _FIRST, 1, 512)
        known = 0 not in design.unscaled
        scale = float(design.standardization.x_scale[0]) if known else 1.0
        mean = scale * np.sqrt(effect + (_REACH * noise) ** 2)
        root = scale * np.sqrt(effect / 2 + (_REACH**2 * noise / 2.8) ** 2)
        errors = tuple(map(float, (mean, 2 * scale * root, root)))
        of_mean, added = expected_allowances(n, rank, _noise(plan))
        more = np.hypot(mean, scale * of_mean), scale * root_error(root / scale, added)
        most = tuple(map(float, (more[0], 2 * scale * more[1], more[1])))
        unit = "" if known else f"sd({design.names[0]})"
        plan = replace(
            plan,
            parameters=("mean", "variance", "std"),
            predicted_se=errors,
            predicted_range=tuple(zip(errors, most, strict=True)),
            predicted_units=(unit, f"{unit}^2" if unit else "", unit),
            privacy_share=float((scale * _REACH * noise / mean) ** 2),
            assumptions=(*plan.assumptions, *passes.NORMAL),
        )
        return passes.warn_of_blur(plan, [_FIRST], 1)

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> VarianceEstimate:
        """Ask for the distribution function, and for moments in a window."""
        place = np.zeros(1, dtype=np.int64)
        (found,) = passes.ask_distributions(holder, design, [_FIRST], place)
        window = window_of(found, _noise(plan))
        ends = np.array([window.lower]), np.array([window.upper])
        answer = holder.ask(ColumnMoments(place, *ends), _MOMENTS)
        values, total, noise, beyond = moments(answer.value[:, 0], found, window, answer.noise.sd)
        slope = (2 * values[1]) ** 2
        return VarianceEstimate(
            values=np.array([values[0], values[1] ** 2, values[1]]),
            total=np.array([total[0], slope * total[1], total[1]]),
            noise=np.array([noise[0], slope * noise[1], noise[1]]),
            nobs=found.rows,
            released={
                "window lower": window.lower,
                "window upper": window.upper,
                "rows hidden at an end": hidden_rows(found, window.lower, window.upper),
            },
            remarks=unseen(design.names[0], found, window.lower, window.upper),
            beyond=beyond,
        )


def _noise(plan: Plan) -> float:
    """Standard deviation of the noise in a sum of z, in rows."""
    return plan.noise(ColumnMoments(np.zeros(1, np.int64), -np.ones(1), np.ones(1)), _MOMENTS).sd
