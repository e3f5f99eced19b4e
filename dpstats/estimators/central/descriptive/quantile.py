"""Quantiles of a column, of its released distribution function."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpstats.errors import OptionError
from dpstats.estimators.base import Request, need_delta
from dpstats.estimators.central.counted import Counted, counted_plan
from dpstats.estimators.central.descriptive import passes
from dpstats.estimators.guesses import round_up
from dpstats.estimators.sources import DONG, FICHTENBERGER
from dpstats.privacy import Privacy
from dpstats.protocol import Holder, Options, Plan, QuantileEstimate
from dpstats.protocol.descriptive import level_names
from dpstats.queries import Query
from dpstats.theory import Assumption, Citation, Rate, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["OWN", "QUARTILES", "InvertedDistribution", "checked_levels", "expected_errors"]

QUARTILES = (0.25, 0.5, 0.75)  # wording: levels that are asked for by default
_FIRST = 0.25  # budget: the first pass, which says where the second looks
_MOST_LEVELS = 100  # wording: levels that one pass is about, at most
_SLOTS = ("distribution 1", "distribution 2")
_REACH = 1.96  # wording: standard deviations that an interval reaches to either side

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


@dataclass(frozen=True)
class InvertedDistribution(Counted[QuantileEstimate]):
    """Quantiles where the released distribution function passes their levels.

    1. A quarter of the budget: the distribution function over the declared range, in cells half of
       equal width and half of equal ratio, since ranges may be far too wide.
    2. The rest: the same in cells that are close where the first pass says the quantiles are.

    An interval is what a test does not refuse: all x with |F(x) - q N| <= z sqrt(q (1 - q) N +
    s(x)^2), where s(x)^2 is the variance of the noise in F(x) - q N. It holds at ties, too, where a
    quantile is a value that many rows have, since cells are in it as a whole.

    Notes
    -----
    *Guarantee.* Gaussian noise on `ColumnPrefixes`, twice, at the sensitivity that it proves; its
    cells depend on the data only through what was released before.
    """

    name: ClassVar[str] = "inverted"
    model: ClassVar[str] = "quantile"
    theory: ClassVar[Mapping[str, Theory]] = {"central": _THEORY}
    options: ClassVar[Mapping[str, str]] = {"q": "levels between 0 and 1 (default the quartiles)"}

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        need_delta(self.name, privacy)
        levels = checked_levels(options.get("q", QUARTILES))
        asks = [
            Request(slot, share, "distribution function of the column")
            for slot, share in zip(_SLOTS, (_FIRST, 1 - _FIRST), strict=True)
        ]
        plan = counted_plan(self, design, privacy, n, asks, {"q": list(levels)})
        plan = replace(plan, parameters=level_names(levels))
        noise = passes.expected_noise(plan, _SLOTS[1], 1)
        plan = expected_errors(plan, design, 0, levels, noise)
        return replace(plan, warnings=_too_few(plan, levels, noise))

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> QuantileEstimate:
        """Ask for the distribution function, and again where the quantiles are."""
        levels, place = tuple(plan.options["q"]), np.zeros(1, dtype=np.int64)
        (found,) = passes.ask_distributions(
            holder, design, _SLOTS, place, lambda first: passes.finer_edges(first, levels)
        )
        return QuantileEstimate(levels, found, nobs=found.rows)


def checked_levels(q: object) -> tuple[float, ...]:
    """Levels of quantiles: numbers between 0 and 1, each once.

    Raises
    ------
    OptionError
        If they are not.
    """
    given = list(q) if isinstance(q, Sequence | np.ndarray) and not isinstance(q, str) else [q]
    numbers = [
        float(x) if isinstance(x, (int, float)) and not isinstance(x, bool) else math.nan
        for x in given
    ]
    sound = 0 < len(numbers) <= _MOST_LEVELS and len(set(numbers)) == len(numbers)
    if not (sound and all(0 < x < 1 for x in numbers)):
        raise OptionError(
            f"q={q!r}: from 1 to {_MOST_LEVELS} different numbers between 0 and 1 are needed, such "
            "as q=[0.25, 0.5, 0.75]."
        )
    return tuple(numbers)


def expected_errors(
    plan: Plan, design: Design, place: int, levels: Sequence[float], noise: float
) -> Plan:
    """The plan with errors between those of a normal column and one with exponential tails."""
    from scipy.special import ndtri
    from scipy.stats import norm

    q = np.array(levels)
    rank = np.sqrt(plan.max_rows * q * (1 - q) * plan.n + noise**2) / plan.n
    low, high = rank / norm.pdf(ndtri(q)), rank / np.minimum(q, 1 - q)
    known = place not in design.unscaled
    unit = float(design.standardization.x_scale[place]) if known else 1.0
    errors = np.sort(unit * np.stack([low, high], axis=1), axis=1)
    sampling = plan.max_rows * q * (1 - q) * plan.n
    assumption = (
        "Expected errors are those of a normal column, and of one with exponential tails"
        + ("." if known else "; they are in standard deviations of the column.")
        + (" Rows of one unit are taken to be alike." if plan.max_rows > 1 else "")
    )
    return replace(
        plan,
        predicted_se=tuple(np.sqrt(errors[:, 0] * errors[:, 1]).tolist()),
        predicted_range=tuple((float(a), float(b)) for a, b in errors),
        predicted_units=("" if known else f"sd({design.names[place]})",) * q.size,
        privacy_share=float(np.mean(noise**2 / (noise**2 + sampling))),
        assumptions=(*plan.assumptions, assumption),
    )


def _too_few(plan: Plan, levels: Sequence[float], noise: float) -> tuple[str, ...]:
    """A warning where the interval of a quantile reaches an end of the range."""

    def reaches(n: float, q: float) -> bool:
        return _REACH * math.sqrt(plan.max_rows * q * (1 - q) * n + noise**2) > min(q, 1 - q) * n

    lost = [q for q in levels if reaches(plan.n, q)]
    if not lost:
        return ()
    enough = float(plan.n)
    while any(reaches(enough, q) for q in lost):
        enough *= 1.1
    names = ", ".join(level_names(tuple(lost)))
    return (
        f"n={plan.n:,} is small for epsilon={plan.privacy.epsilon:g}: the interval of {names} "
        f"reaches an end of the range. About n={round_up(enough):,} rows suffice.",
    )
