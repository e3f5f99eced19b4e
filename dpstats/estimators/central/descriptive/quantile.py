"""Quantiles of a column, of its released distribution function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from dpstats.estimators import columns
from dpstats.estimators.base import Request
from dpstats.estimators.central.counted import CountingMethod, counted_plan
from dpstats.estimators.central.descriptive import passes
from dpstats.estimators.sources import DONG, FICHTENBERGER
from dpstats.privacy import Privacy
from dpstats.protocol import Holder, Options, Plan, QuantileEstimate
from dpstats.protocol.descriptive import quantile_names
from dpstats.queries import Query
from dpstats.theory import Assumption, Citation, Rate, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["OWN", "InvertedDistribution"]

_FIRST = 0.25  # budget: the first pass, which says where the second looks
_SLOTS = ("distribution 1", "distribution 2")

OWN = Citation(
    "dpstats-distribution",
    "The dpstats developers",
    "Distribution functions of columns by a root of summation",
    2026,
    "dpstats",
    "proof in the docstring of ColumnPrefixes",
)

_THEORY = Theory(
    estimand="quantiles of the values that are not missing, held to the declared range",
    guarantee=(
        "(epsilon, delta)-DP for every data set: Gaussian noise on a root of summation, applied to "
        "the counts of values in public cells, and in cells that follow from earlier counts."
    ),
    assumptions=(
        Assumption("Rows are independent (of one unit they may be alike)"),
        Assumption("The density is not 0 at the quantile, or many rows have its value"),
    ),
    upper=(
        Rate("statistical", "1/sqrt(n)", OWN),
        Rate("privacy", "sqrt(log(1/delta))/(n eps)", OWN, conjectured=True),
    ),
    lower=(),
    citations=(OWN, FICHTENBERGER, DONG),
)
_LAPLACE = replace(
    _THEORY,
    guarantee=(
        "epsilon-DP for every data set: Laplace noise on counts of values in public cells, and in "
        "cells that follow from earlier counts (L1 sensitivity 2 per row, 1 under add-remove). "
        "Delta is not needed."
    ),
    upper=(
        Rate("statistical", "1/sqrt(n)", OWN),
        Rate("privacy", "1/(n eps)", OWN, conjectured=True),
    ),
    citations=(OWN,),
)


@dataclass(frozen=True)
class InvertedDistribution(CountingMethod[QuantileEstimate]):
    """Quantiles where the released distribution function passes their levels.

    1. A quarter of the budget: the distribution function over the declared range, in cells half of
       equal width and half of equal ratio, since ranges may be far too wide.
    2. The rest: the same in cells that are close where the first pass says the quantiles are.

    By Laplace noise, as with delta = 0, counts of fewer cells are added up instead.

    An interval is what a test does not refuse: all x with |F(x) - q N| <= z sqrt(q (1 - q) N +
    s(x)^2), where s(x)^2 is the variance of the noise in F(x) - q N. It holds at ties, too, where a
    quantile is a value that many rows have, since cells are in it as a whole.

    Notes
    -----
    *Guarantee.* Gaussian noise on `ColumnPrefixes`, twice, at the sensitivity that it proves; its
    cells depend on the data only through what was released before. Laplace noise, where it is
    asked for, is on `TableCounts`, twice, in the same way.
    """

    name: ClassVar[str] = "inverted"
    model: ClassVar[str] = "quantile"
    theory: ClassVar[Mapping[str, Theory]] = {
        "central": replace(_THEORY, variants={("mechanism=laplace",): _LAPLACE})
    }
    options: ClassVar[Mapping[str, str]] = {
        "q": "levels between 0 and 1 (default the quartiles)",
        "mechanism": passes.MECHANISM,
    }

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        levels = columns.checked_levels(options.get("q", columns.QUARTILES))
        kind = passes.mechanism_of(self.name, options, privacy)
        asks = [
            Request(slot, share, "distribution function of the column", kind)
            for slot, share in zip(_SLOTS, (_FIRST, 1 - _FIRST), strict=True)
        ]
        plan = counted_plan(self, design, privacy, n, asks, {"q": list(levels), "mechanism": kind})
        plan = replace(plan, parameters=quantile_names(levels))
        noise = passes.expected_noise(plan, _SLOTS[1], 1)
        plan = columns.expected_quantiles(plan, design, 0, levels, noise)
        return replace(plan, warnings=columns.too_few(plan, levels, noise))

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> QuantileEstimate:
        """Ask for the distribution function, and again where the quantiles are."""
        levels = tuple(plan.options["q"])
        found = passes.ask_distribution(holder, design, _SLOTS, levels)
        return QuantileEstimate(levels, found, nobs=found.rows)
