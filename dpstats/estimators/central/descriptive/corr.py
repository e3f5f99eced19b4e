"""Spearman's correlations of columns, of ranks by released distribution functions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.base import Request, need_delta
from dpstats.estimators.central.counted import Counted, counted_plan
from dpstats.estimators.central.descriptive import passes
from dpstats.estimators.central.descriptive.quantile import OWN as DISTRIBUTIONS
from dpstats.estimators.guesses import max_rows, round_up
from dpstats.estimators.sources import BONETT, DONG, FICHTENBERGER
from dpstats.privacy import Privacy
from dpstats.protocol import CorrelationEstimate, Distribution, Holder, Options, Plan
from dpstats.protocol.comparing import pair_names
from dpstats.queries import Query, Scored, ScoreProducts
from dpstats.theory import Assumption, Citation, Rate, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["RankCorrelation"]

Array = NDArray[np.float64]

_PASSES, _PRODUCTS = ("distributions", "ranks"), "products"
_SHARES = (0.15, 0.25)  # budget: two passes over the distribution functions
_CLOSEST = 0.999  # numerical: largest correlation
_NOISY = 0.25  # wording: noise in a correlation of independent columns, above which the plan warns

_OWN = Citation(
    "dpstats-correlation",
    "The dpstats developers",
    "Products of released ranks, in one question",
    2026,
    "dpstats",
    "proof in the docstring of ScoreProducts",
)


_THEORY = Theory(
    estimand="Spearman's correlation of each pair of columns",
    guarantee=(
        "(epsilon, delta)-DP for every data set: Gaussian noise on roots of summation applied to "
        "counts of values in cells, and on products of ranks (sensitivity 2.5 sqrt(3 d))."
    ),
    assumptions=(Assumption("Rows are independent (of one unit they may be alike)"),),
    upper=(
        Rate("statistical", "1/sqrt(n)", _OWN),
        Rate("privacy", "d sqrt(log(1/delta))/(n eps)", _OWN, conjectured=True),
    ),
    lower=(),
    citations=(_OWN, DISTRIBUTIONS, FICHTENBERGER, BONETT, DONG),
)


@dataclass(frozen=True)
class RankCorrelation(Counted[CorrelationEstimate]):
    """Spearman's correlations: products of released ranks, which no far value can move.

    The score of a value is sqrt(3) (F(y) + F(y-) - 1) of the released distribution function of its
    column, by cells in which half of the rows count as below: ties get their middle rank. So no row
    is longer than sqrt(3 d), and none is shortened. Rows that miss a value of any column are left
    out.

    Notes
    -----
    *Guarantee.* Gaussian noise on `ColumnPrefixes` and on `ScoreProducts` (sensitivity 2.5 r),
    whose scores depend on the data only through what was released before.
    """

    name: ClassVar[str] = "spearman"
    model: ClassVar[str] = "corr"
    theory: ClassVar[Mapping[str, Theory]] = {"central": _THEORY}
    options: ClassVar[Mapping[str, str]] = {}

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        need_delta(self.name, privacy)
        asks = [
            *(
                Request(slot, share, "distribution functions of the columns")
                for slot, share in zip(_PASSES, _SHARES, strict=True)
            ),
            Request(_PRODUCTS, 1 - sum(_SHARES), "products of scores"),
        ]
        plan = counted_plan(self, design, privacy, n, asks, options)
        noise = _noise(plan, len(design.names)) / n
        names = pair_names(design.names)
        sampling = plan.max_rows / n
        error = math.sqrt(sampling + noise**2)
        warnings = plan.warnings
        if noise > _NOISY:
            columns = len(design.names)
            warnings = (
                *warnings,
                f"n={n:,} is small for epsilon={privacy.epsilon:g} and {columns} columns: "
                f"the noise in a correlation is {noise:.2g}. About "
                f"n={round_up(noise * n / (_NOISY / 2)):,} rows, or fewer columns, suffice.",
            )
        return replace(
            plan,
            parameters=names,
            predicted_se=(error,) * len(names),
            privacy_share=noise**2 / error**2,
            assumptions=(*plan.assumptions, "For the prediction columns are independent."),
            warnings=warnings,
        )

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> CorrelationEstimate:
        """Ask for distribution functions, and for the products of scores."""
        places = np.arange(len(design.names))
        found = passes.ask_distributions(holder, design, _PASSES, places)
        scored = tuple(_scored(int(place), each) for place, each in zip(places, found, strict=True))
        radius = _radius(len(scored))
        answer, noise = holder.ask(ScoreProducts(scored, radius), _PRODUCTS)
        return _correlated(design, answer, noise.sd / radius)


def _radius(d: int) -> float:
    """Length that no row of scores exceeds, but by rounding."""
    return math.sqrt(3 * d)


def _noise(plan: Plan, d: int) -> float:
    """Standard deviation of the noise in a sum of products off the diagonal, in rows."""
    columns, radius = tuple(Scored.window(j, -1.0, 1.0) for j in range(d)), _radius(d)
    return radius * plan.noise(ScoreProducts(columns, radius), _PRODUCTS).sd / 2


def _scored(place: int, found: Distribution) -> Scored:
    """Released ranks, of mean 0 and variance 1."""
    return Scored(place, found.edges, math.sqrt(3) * found.ranks())


def _correlated(design: Design, answer: Array, unit: float) -> CorrelationEstimate:
    """Correlations of noisy sums of scores and products, the noise being `unit` times weights.

    Sampling variances of Fisher's transform are those of Bonett and Wright. With scores over r,
    products have noise unit / sqrt(2) on the diagonal and unit / 2 off it.
    """
    d, effect = len(design.names), float(max_rows(design))
    n = max(float(answer[0]), 4.0)
    mean = answer[1 : d + 1] / n
    matrix = np.zeros((d, d))
    matrix[np.triu_indices(d)] = answer[d + 1 :] / n
    matrix -= np.outer(mean, mean)
    tau = unit / 2 / n
    variance = np.maximum(np.diag(matrix), math.sqrt(2) * tau)
    rows, columns = np.triu_indices(d, 1)
    scale = variance[rows] * variance[columns]
    r = np.clip(matrix[rows, columns] / np.sqrt(scale), -_CLOSEST, _CLOSEST)
    noise = tau**2 * (1 + r**2) / scale / (1 - r**2) ** 2
    of_rows = effect * (1 + r**2 / 2) / max(n - 3, 1.0)
    return CorrelationEstimate(design.names, r, of_rows, noise, n)
