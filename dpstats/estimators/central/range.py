"""A range for a column whose range nobody knows: a private choice among powers of two."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpstats.estimators.base import Method, Request, make_plan
from dpstats.estimators.bounds import rates
from dpstats.estimators.sources import MCSHERRY
from dpstats.privacy import Privacy
from dpstats.protocol import Holder, Options, Plan, RangeEstimate
from dpstats.queries import Query, ResponseInterval
from dpstats.theory import Assumption, Citation, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["ENDS", "MAPPED", "ExponentialRange"]

_POWERS = 2.0 ** np.arange(-20, 61)  # numerical: sizes of the ends of a range
ENDS = np.r_[-_POWERS[::-1], 0.0, _POWERS]  # that a range may have
MAPPED = "np.arcsinh(1048576 * {}) ~ 1"  # the design: cells between ends are of like width
_WORTH = 6.0  # untried: rows times epsilon that one doubling of the width must be worth

_OWN = Citation(
    "dpstats-range",
    "The dpstats developers",
    "A range by one choice among powers of two",
    2026,
    "dpstats",
    "proof in the docstring of ExponentialRange",
)

_THEORY = Theory(
    estimand=(
        "pair of ends with the fewest rows outside, where each doubling of the width between them "
        "counts as a public number of rows"
    ),
    guarantee=(
        "epsilon-DP for every data set: one exponential mechanism on row counts, whose sensitivity "
        "is the number of rows of a unit; delta is not needed."
    ),
    assumptions=(
        Assumption("Rows (units) are independent; the error is the share of rows outside"),
        Assumption("All but few rows are between 2^-20 and 2^60 in size, or 0"),
    ),
    upper=rates("1/sqrt(n)", "1/(n eps)", _OWN),
    lower=(),
    citations=(_OWN, MCSHERRY.at("Theorem 6")),
)


@dataclass(frozen=True)
class ExponentialRange(Method):
    """Range of a column, chosen privately among 0 and +-2^k, k = -20 ... 60.

    Rows are mapped one by one through asinh(2^20 y), a fixed public function, by the design. A pair
    of ends is worth minus the rows outside, minus 6 m / epsilon rows for each doubling of the width
    after the mapping (a unit has up to m rows); one pair is chosen.

    Notes
    -----
    *Guarantee.* One exponential mechanism on `ResponseInterval` utilities, whose sensitivity is the
    number of rows of one unit (McSherry & Talwar 2007, Theorem 6), at the cost in the plan.

    *Rate.* Of K pairs, each that is worth (2 m / epsilon) log(K / eta) rows less than the best has
    at most eta / K of its chance, so one of them is chosen with probability eta at most. K and the
    doublings of any width are constants: at most O(1 / epsilon) more rows are outside than for the
    best pair. The share of the rows outside is within O(1 / sqrt(n)) of its probability, for all
    pairs at once.
    """

    name: ClassVar[str] = "exponential"
    model: ClassVar[str] = "range"
    theory: ClassVar[Mapping[str, Theory]] = {"central": _THEORY}
    options: ClassVar[Mapping[str, str]] = {}

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        asks = [Request("range", 1.0, "range that few rows are outside", kind="selection")]
        plan = make_plan(self, design, privacy, n, asks, options)
        return replace(plan, parameters=("lower", "upper"))

    def fit(self, holder: Holder[Query], design: Design, plan: Plan) -> RangeEstimate:
        """Ask for one of all pairs of ends."""
        edges = np.arcsinh(2.0**20 * ENDS)
        first, last = np.triu_indices(edges.size, k=1)
        doublings = (edges[last] - edges[first]) / math.log(2)
        penalty = _WORTH * plan.max_rows / plan.privacy.epsilon * doublings
        units = design.standardization
        inner = (edges - units.y_center) / units.y_scale
        chosen, _ = holder.ask(ResponseInterval(inner, first, last, penalty), "range")
        return RangeEstimate(ENDS[np.searchsorted(inner, chosen)], float(plan.n))
