"""Shares of the values of columns that are missing, or outside of what is declared."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpstats.estimators.base import Method, Request, make_plan, need_delta
from dpstats.estimators.bounds import rates
from dpstats.estimators.guesses import max_rows, round_up, rows_known
from dpstats.estimators.sources import DONG
from dpstats.privacy import Privacy
from dpstats.protocol import CheckEstimate, Holder, Options, Plan
from dpstats.protocol.criticals import USUAL, critical
from dpstats.protocol.data_check import checked_names, share_noise
from dpstats.queries import DeclaredCounts, Query
from dpstats.theory import Assumption, Citation, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["DeclaredShares"]

_SLOT = "declared"
_ROUGH = 0.05  # wording: error of a share, above which the plan warns

OWN = Citation(
    "dpstats-check",
    "The dpstats developers",
    "Counts of values that are missing or outside of what is declared",
    2026,
    "dpstats",
    "proof in the docstring of DeclaredCounts",
)

THEORY = Theory(
    estimand="of each column, shares of values that are missing, and outside of what is declared",
    guarantee=(
        "(epsilon, delta)-DP for every data set: Gaussian noise on three counts of each of d "
        "columns; a value is in one of them (sensitivity sqrt(2 d), sqrt(d) under add-remove)."
    ),
    assumptions=(Assumption("Rows are independent (of one unit they may be alike)"),),
    upper=rates("1/sqrt(n)", "sqrt(d log(1/delta))/(n eps)", OWN),
    lower=(),
    citations=(OWN, DONG),
)


@dataclass(frozen=True)
class DeclaredShares(Method):
    """Shares of missing values and of those outside of what is declared, of all columns at once.

    Three counts of each column (as declared, missing, outside) add up to the number of rows. Given
    it, noise has 2/3 of its variance; where it is private, the average over columns estimates it.

    Notes
    -----
    *Guarantee.* Gaussian noise on `DeclaredCounts` (sensitivity sqrt(2 d)).
    """

    name: ClassVar[str] = "counts"
    model: ClassVar[str] = "check"
    theory: ClassVar[Mapping[str, Theory]] = {"central": THEORY}
    options: ClassVar[Mapping[str, str]] = {}

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        need_delta(self.name, privacy)
        purpose = "values as declared, missing and outside, of each column"
        plan = make_plan(self, design, privacy, n, [Request(_SLOT, 1.0, purpose)], options)
        k, noise = len(design.inputs), plan.noise(_query(design), _SLOT)
        error = share_noise(noise.sd, float(n), k, rows_known(design, privacy), 0.0)
        return replace(
            plan,
            parameters=checked_names(design.inputs),
            predicted_se=(error,) * (2 * k),
            privacy_share=1.0,
            warnings=(*plan.warnings, *_rough(plan, error)),
        )

    def fit(self, holder: Holder[Query], design: Design, plan: Plan) -> CheckEstimate:
        """Ask for the counts."""
        k = len(design.inputs)
        answer, noise = holder.ask(_query(design), _SLOT)
        counts = answer[: 3 * k].reshape(k, 3)
        sums = counts.sum(axis=1, keepdims=True)
        known = rows_known(design, plan.privacy)
        rows = float(plan.n) if known else max(float(np.mean(sums)), 1.0)
        return CheckEstimate(
            inputs=design.inputs,
            counts=counts - (sums - rows) / 3,
            noise_sd=noise.sd,
            known=known,
            units=float(answer[-1]) if _of_units(design) else math.nan,
            effect=float(max_rows(design)),
            nobs=rows,
        )


def _of_units(design: Design) -> bool:
    return design.schema is not None and design.schema.unit is not None


def _query(design: Design) -> DeclaredCounts:
    return DeclaredCounts(len(design.inputs), _of_units(design))


def _rough(plan: Plan, error: float) -> tuple[str, ...]:
    """A warning where shares are hardly known."""
    reach = critical(USUAL) * error
    if reach <= _ROUGH:
        return ()
    return (
        f"n={plan.n:,} is small for epsilon={plan.privacy.epsilon:g}: shares are known to within "
        f"{min(reach, 1.0):.0%}. About n={round_up(plan.n * reach / _ROUGH):,} rows, or fewer "
        "columns, suffice.",
    )
