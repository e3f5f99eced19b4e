"""Correlations of columns: of ranks by released distribution functions, or of values in windows."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.base import Request, need_delta
from dpstats.estimators.central.counted import CountingMethod, counted_plan
from dpstats.estimators.central.descriptive import passes
from dpstats.estimators.central.descriptive.quantile import OWN as DISTRIBUTIONS
from dpstats.estimators.central.descriptive.window import mean_window, unseen
from dpstats.estimators.columns import QUARTILES
from dpstats.estimators.guesses import max_rows, round_up
from dpstats.estimators.sources import BONETT, DONG, FICHTENBERGER
from dpstats.privacy import Privacy
from dpstats.protocol import CorrelationEstimate, Distribution, Holder, Options, Plan
from dpstats.protocol.comparing import pair_names
from dpstats.queries import Query, ScoredColumn, ScoreProducts
from dpstats.theory import Assumption, Citation, Rate, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["RankCorrelation", "WindowCorrelation"]

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


_WINDOWS = replace(
    _THEORY,
    estimand="Pearson's correlation of each pair of columns, of values held to released windows",
    guarantee=(
        "(epsilon, delta)-DP for every data set: Gaussian noise on roots of summation applied to "
        "counts of values in cells, and on products of values in windows (sensitivity "
        "2.5 sqrt(d))."
    ),
    assumptions=(
        *_THEORY.assumptions,
        Assumption("Columns depend on each other linearly, the rest being independent of them"),
    ),
)


class _Products(CountingMethod[CorrelationEstimate]):
    """Correlations by one question for sums and products of scores of all columns."""

    model: ClassVar[str] = "corr"
    options: ClassVar[Mapping[str, str]] = {}
    theory: ClassVar[Mapping[str, Theory]]
    reach: ClassVar[float]  # number: the largest score
    presumed: ClassVar[float]  # number: variance of scores, for the plan
    presumes: ClassVar[str]

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
        d, names = len(design.names), pair_names(design.names)
        noise = _noise(plan, d, self._radius(d)) / (self.presumed * n)
        error = math.sqrt(plan.max_rows / n + noise**2)
        warnings = plan.warnings
        if noise > _NOISY:
            warnings = (
                *warnings,
                f"n={n:,} is small for epsilon={privacy.epsilon:g} and {d} columns: "
                f"the noise in a correlation is {noise:.2g}. About "
                f"n={round_up(noise * n / (_NOISY / 2)):,} rows, or fewer columns, suffice.",
            )
        return replace(
            plan,
            parameters=names,
            predicted_se=(error,) * len(names),
            privacy_share=noise**2 / error**2,
            assumptions=(*plan.assumptions, f"For the prediction {self.presumes}."),
            warnings=warnings,
        )

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> CorrelationEstimate:
        """Ask for distribution functions, and for the products of scores."""
        places, radius = np.arange(len(design.names)), self._radius(len(design.names))
        found = passes.ask_distributions(holder, design, _PASSES, places, self._finer)
        noise = holder.plan.noise(_products(len(design.names), radius), _PRODUCTS).sd
        scored = tuple(
            self._scored(int(place), each, noise) for place, each in zip(places, found, strict=True)
        )
        answer, law = holder.ask(ScoreProducts(scored, radius), _PRODUCTS)
        made = _correlated(design, answer, law.sd / radius, self._wobble(scored, found))
        return self._said(made, scored, found)

    def _radius(self, d: int) -> float:
        """Length that no row of scores exceeds, but by rounding."""
        return self.reach * math.sqrt(d)

    @abstractmethod
    def _finer(self, first: Distribution) -> Array:
        """Edges of the second pass."""

    @abstractmethod
    def _scored(self, place: int, found: Distribution, noise: float) -> ScoredColumn:
        """The score of a column; `noise` is that in a sum of scores."""

    @abstractmethod
    def _wobble(self, scored: Sequence[ScoredColumn], found: Sequence[Distribution]) -> Array:
        """By pairs (d, d): how many times its square Fisher's variance grows by."""

    def _said(
        self,
        made: CorrelationEstimate,
        scored: Sequence[ScoredColumn],
        found: Sequence[Distribution],
    ) -> CorrelationEstimate:
        """The estimate with what else was released."""
        return made


@dataclass(frozen=True)
class RankCorrelation(_Products):
    """Spearman's correlations: products of released ranks, which no far value can move.

    The score of a value is sqrt(3) (F(y) + F(y-) - 1) of the released distribution function of its
    column, by cells in which half of the rows count as below: ties get their middle rank. So no row
    is longer than sqrt(3 d), and none is shortened. Rows that miss a value of any column are left
    out. Sampling variances of Fisher's transform are those of Bonett and Wright.

    Notes
    -----
    *Guarantee.* Gaussian noise on `ColumnPrefixes` and on `ScoreProducts` (sensitivity 2.5 r),
    whose scores depend on the data only through what was released before.
    """

    name: ClassVar[str] = "spearman"
    theory: ClassVar[Mapping[str, Theory]] = {"central": _THEORY}
    reach: ClassVar[float] = math.sqrt(3)
    presumed: ClassVar[float] = 1.0
    presumes: ClassVar[str] = "columns are independent"

    def _finer(self, first: Distribution) -> Array:
        """As many rows in each cell."""
        return passes.rank_edges(first)

    def _scored(self, place: int, found: Distribution, noise: float) -> ScoredColumn:
        """Released ranks, of mean 0 and variance 1."""
        return ScoredColumn(place, found.edges, math.sqrt(3) * found.ranks())

    def _wobble(self, scored: Sequence[ScoredColumn], found: Sequence[Distribution]) -> Array:
        """One half for all."""
        return np.full((len(scored), len(scored)), 0.5)


@dataclass(frozen=True)
class WindowCorrelation(_Products):
    """Pearson's correlations of values held to windows, which the result names.

    The windows are those that the default means are taken in (`window.mean_window`). Values in them
    are mapped to (-1, 1), so that no row is longer than sqrt(d), and none is shortened. Rows that
    miss a value of any column are left out.

    Notes
    -----
    *Guarantee.* As for `RankCorrelation`, the scores being windows from what was released before.

    *Sampling.* Where y = r x + e of independent x and e, whatever their laws, Fisher's transform
    has the variance (1 + r^2 (k + l) / 4) / n, k and l being the excess kurtoses of x and of e.
    Those of the columns, as released, stand for them, and count where they are above 0.
    """

    name: ClassVar[str] = "pearson"
    theory: ClassVar[Mapping[str, Theory]] = {"central": _WINDOWS}
    reach: ClassVar[float] = 1.0
    presumed: ClassVar[float] = 1 / 9
    presumes: ClassVar[str] = "columns are independent, and windows reach 3 standard deviations"

    def _finer(self, first: Distribution) -> Array:
        """Close where quartiles are, and in equal ratios of the distance from them."""
        return passes.finer_edges(first, QUARTILES)

    def _scored(self, place: int, found: Distribution, noise: float) -> ScoredColumn:
        """Values held to a window."""
        window = mean_window(found, noise, agreed=True)
        return ScoredColumn.window(place, window.lower, window.upper)

    def _wobble(self, scored: Sequence[ScoredColumn], found: Sequence[Distribution]) -> Array:
        """A quarter of the excess kurtoses."""
        excess = np.array([_excess(each, law) for each, law in zip(scored, found, strict=True)])
        wobble: Array = np.add.outer(excess, excess) / 4
        return wobble

    def _said(
        self,
        made: CorrelationEstimate,
        scored: Sequence[ScoredColumn],
        found: Sequence[Distribution],
    ) -> CorrelationEstimate:
        """With the windows."""
        windows = dict(zip(made.columns, (each.knots.tolist() for each in scored), strict=True))
        remarks = tuple(
            remark
            for (name, ends), law in zip(windows.items(), found, strict=True)
            for remark in unseen(name, law, *ends)
        )
        return replace(made, released={"windows": windows}, remarks=(*made.remarks, *remarks))


def _excess(scored: ScoredColumn, found: Distribution) -> float:
    """Excess kurtosis of values held to a window, as released; at least 0."""
    middle = np.clip((found.edges[1:] + found.edges[:-1]) / 2, *scored.knots)
    chances = np.diff(found.below, prepend=0.0) / found.rows
    apart = middle - chances @ middle
    root = math.sqrt(float(chances @ apart**2))
    return max(0.0, float(chances @ (apart / root) ** 4) - 3) if root > 0 else 0.0


def _products(d: int, radius: float) -> ScoreProducts:
    """A question for the products of d columns: its noise does not depend on their scores."""
    return ScoreProducts(tuple(ScoredColumn.window(j, -1.0, 1.0) for j in range(d)), radius)


def _noise(plan: Plan, d: int, radius: float) -> float:
    """Standard deviation of the noise in a sum of products off the diagonal, in rows."""
    return radius * plan.noise(_products(d, radius), _PRODUCTS).sd / 2


def _correlated(design: Design, answer: Array, unit: float, wobble: Array) -> CorrelationEstimate:
    """Correlations of noisy sums of scores and products, the noise being `unit` times weights.

    With scores over r, products have noise unit / sqrt(2) on the diagonal and unit / 2 off it.
    """
    d, effect = len(design.names), float(max_rows(design))
    n = max(float(answer[0]), 4.0)
    mean = answer[1 : d + 1] / n
    matrix = np.zeros((d, d))
    matrix[np.triu_indices(d)] = answer[d + 1 :] / n
    matrix -= np.outer(mean, mean)
    variance = np.maximum(np.diag(matrix), unit / math.sqrt(2) / n)
    rows, columns = np.triu_indices(d, 1)
    v, w, m, o = variance[rows], variance[columns], mean[rows], mean[columns]
    root = np.sqrt(v * w)
    r = np.clip(matrix[rows, columns] / root, -_CLOSEST, _CLOSEST)
    slopes = (  # of r in the products, squares, sums and count, times their noise
        1 / (2 * root),
        r / (2 * math.sqrt(2) * v),
        r / (2 * math.sqrt(2) * w),
        r * m / v - o / root,
        r * o / w - m / root,
        (m * o / root - r * (m**2 / v + o**2 / w) / 2) / ScoreProducts.of_count,
    )
    noise = (unit / n) ** 2 * sum(slope**2 for slope in slopes) / (1 - r**2) ** 2
    of_rows = effect * (1 + wobble[rows, columns] * r**2) / max(n - 3, 1.0)
    return CorrelationEstimate(design.names, r, of_rows, noise, n)
