"""How well a logistic fit tells events from others: confusion, ranks, calibration, distances."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError, given, is_number, is_whole
from dpstats.estimators.base import Request, need_delta
from dpstats.estimators.central.counted import CountingMethod, counted_plan
from dpstats.estimators.central.descriptive import passes
from dpstats.estimators.central.descriptive.counts import OWN as TABLES
from dpstats.estimators.central.descriptive.counts import ask_table
from dpstats.estimators.central.descriptive.groups import means_by_group
from dpstats.estimators.central.descriptive.quantile import OWN as DISTRIBUTIONS
from dpstats.estimators.central.descriptive.window import Window
from dpstats.estimators.central.evaluation.predictions import (
    OPTIONS,
    OWN,
    Predictions,
    checked_coefficients,
)
from dpstats.estimators.guesses import round_up
from dpstats.estimators.sources import DONG, FICHTENBERGER, WILSON
from dpstats.privacy import Neighbors, Privacy
from dpstats.protocol import (
    ClassificationEstimate,
    CountsEstimate,
    Distribution,
    GroupMeansEstimate,
    Holder,
    Plan,
)
from dpstats.protocol.evaluation import classification_names
from dpstats.queries import Axis, ColumnPrefixes, GroupSums, Query, ScoredColumn, TableCounts
from dpstats.queries.predicted import MEAN, RESPONSE, SQUARE
from dpstats.queries.prefixes import contrast_noise
from dpstats.theory import Assumption, Rate, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["ClassEvaluation"]

Array = NDArray[np.float64]

_FIRST, _SECOND = "distribution", "ranks"
_SUMS, _TABLE, _BINS, _SQUARES = "ranks by class", "confusion", "calibration", "squared distances"
_SLOTS = (_FIRST, _SECOND, _SUMS, _TABLE, _BINS, _SQUARES)
_SHARES = (0.05, 0.10, 0.22, 0.28, 0.20, 0.15)  # budget: of each of these questions
_PURPOSES = {
    _FIRST: "distribution of predicted probabilities",
    _SECOND: "their ranks",
    _SUMS: "sums of ranks in both classes, for the area under the curve",
    _TABLE: "predicted classes by actual ones",
    _BINS: "events in bins of predicted probabilities",
    _SQUARES: "squared distances of responses from their probabilities",
}
_USUAL_BINS = 10  # wording: bins of equal width, unless others are asked for
_MOST_BINS = 100  # wording: bins that calibration is looked at in, at most
_PRESUMED = 0.8  # wording: area and accuracy that the plan presumes
_FEWEST = 3.0  # wording: noise of a class to its rows, below which the plan warns
_CLASS = Axis(np.array([RESPONSE]), np.ones(1), np.array([-0.5, 0.5, 1.5]))
_EVERYONE = Axis(np.array([RESPONSE]), np.ones(1), np.array([-1.0, 2.0]))

_THEORY = Theory(
    estimand=(
        "accuracy, sensitivity, specificity, precision, area under the curve, Brier score and "
        "calibration of the given coefficients, in the population of the rows that miss nothing"
    ),
    guarantee=(
        "(epsilon, delta)-DP for every data set: Gaussian noise on counts of two tables, on roots "
        "of summation applied to counts of predicted probabilities in cells, and on sums of ranks "
        "and of squared distances by class (sensitivities sqrt(2), 2.5 at most, and 2)."
    ),
    assumptions=(
        Assumption("Rows are independent (of one unit they may be alike)"),
        Assumption("The fit was not made from these rows; else it flatters itself"),
    ),
    upper=(
        Rate("statistical", "1/sqrt(n)", OWN),
        Rate("privacy", "sqrt(log(1/delta))/(n eps)", OWN, conjectured=True),
    ),
    lower=(),
    citations=(OWN, TABLES, DISTRIBUTIONS, FICHTENBERGER, WILSON, DONG),
)


@dataclass(frozen=True)
class ClassEvaluation(CountingMethod[ClassificationEstimate]):
    """Confusion table, area under the curve, calibration and Brier score of a logistic fit.

    1. Two passes over the distribution function of predicted probabilities, for their ranks.
    2. Counts, sums and squares of ranks in both classes: the difference of their means is the area
       less 1/2, ties counting half, as in `RankTest`. Its variance adds DeLong's, from the released
       distributions of both classes, the noise in the sums, and that in the ranks.
    3. Counts of predicted by actual classes, and of bins of predicted probabilities by class; all
       shares have Wilson's intervals with the noise of numerator and denominator in them.
    4. The sum of squared distances of responses from their probabilities, whose mean is the Brier
       score; its interval is Fieller's.

    Notes
    -----
    *Guarantee.* Gaussian noise on `ColumnPrefixes`, `GroupSums` and `TableCounts`, asked through
    `Predicted` at public coefficients. Ranks depend on the data only through what was released.
    """

    name: ClassVar[str] = "ranks and tables"
    model: ClassVar[str] = "evaluate logit"
    theory: ClassVar[Mapping[str, Theory]] = {"central": _THEORY}
    options: ClassVar[Mapping[str, str]] = {
        **OPTIONS,
        "threshold": "predicted probability from which on a row is predicted to be an event (0.5)",
        "bins": "number of bins of predicted probabilities, or their edges (10)",
    }

    def _plan(
        self, design: Design, privacy: Privacy, n: int, options: Mapping[str, object]
    ) -> Plan:
        need_delta(self.name, privacy)
        made = checked_coefficients(design, options)
        edges = checked_edges(options.get("bins", _USUAL_BINS))
        made |= {"threshold": checked_threshold(options.get("threshold", 0.5)), "bins": edges}
        asks = [
            Request(slot, share, _PURPOSES[slot])
            for slot, share in zip(_SLOTS, _SHARES, strict=True)
        ]
        plan = counted_plan(self, design, privacy, n, asks, made)
        return _expected(replace(plan, parameters=classification_names(edges)))

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> ClassificationEstimate:
        """Ask what was planned, of predictions."""
        asked, edges = Predictions(holder, design, plan), np.array(plan.options["bins"])
        columns, threshold = asked.design, float(plan.options["threshold"])
        place = np.array([MEAN])
        (found,) = passes.ask_distributions(asked, columns, [_FIRST, _SECOND], place)
        scored = ScoredColumn(MEAN, found.edges, np.clip(found.ranks(), -1.0, 1.0))
        whole = Window(-1.0, 1.0)
        classes = ("others", "events")
        ranks = means_by_group(asked, columns, scored, whole, (_CLASS, classes), _SUMS)
        halves = Axis(np.array([MEAN]), np.ones(1), np.array([-1.0, threshold, 2.0]))
        cells = tuple(f"predicted {a}, actual {b}" for a in (0, 1) for b in (0, 1))
        table = ask_table(asked, columns, (halves, _CLASS), CountsEstimate, cells, _TABLE)
        binned = Axis(np.array([MEAN]), np.ones(1), edges)
        names = tuple(f"({a:g}, {b:g}], actual {c}" for a, b in pairwise(edges) for c in (0, 1))
        bins = ask_table(asked, columns, (binned, _CLASS), CountsEstimate, names, _BINS)
        distance = ScoredColumn.window(SQUARE, 0.0, 1.0)
        unit = Window(0.0, 1.0)
        squares = means_by_group(asked, columns, distance, unit, (_EVERYONE, ("all",)), _SQUARES)
        return ClassificationEstimate(
            threshold=threshold,
            edges=edges,
            confusion=table,
            calibration=bins,
            ranks=ranks,
            squares=squares,
            auc_variances=_area_variances(found, ranks, bins, edges, asked),
            nobs=table.nobs,
            remarks=ranks.remarks,
        )


def checked_threshold(asked: object) -> float:
    """A probability between 0 and 1.

    Raises
    ------
    OptionError
        If it is none.
    """
    if not (is_number(asked) and 0 < asked < 1):
        raise OptionError(f"threshold={given(asked)}: a probability between 0 and 1 is needed.")
    return float(asked)


def checked_edges(asked: object) -> list[float]:
    """Edges from 0 to 1 of bins.

    Raises
    ------
    OptionError
        If `asked` is no number of bins, and no edges that increase from 0 to 1.
    """
    if is_whole(asked, 1, _MOST_BINS):
        return [j / asked for j in range(asked + 1)]
    if isinstance(asked, Sequence) and not isinstance(asked, str) and len(asked) >= 2:
        edges = [float(e) if is_number(e) else math.nan for e in asked]
        rising = all(a < b for a, b in pairwise(edges)) and len(edges) <= _MOST_BINS + 1
        if rising and (edges[0], edges[-1]) == (0.0, 1.0):
            return edges
    raise OptionError(
        f"bins={given(asked)}: a number from 1 to {_MOST_BINS}, or edges that increase from 0 to "
        "1, are needed."
    )


def _area_variances(
    found: Distribution,
    ranks: GroupMeansEstimate,
    bins: CountsEstimate,
    edges: Array,
    asked: Predictions,
) -> Array:
    """Variances of the area: of sampling, of noise in the sums, and of noise in the ranks.

    What is needed of the distributions of both classes is read of the bins: within one, classes
    are taken to be alike.
    """
    others, events = _by_class(found, bins, edges)
    below = [np.cumsum(p) - p / 2 for p in (others, events)]  # of each class, ties counting half
    spread = [
        float(p @ below[1 - k] ** 2 - (p @ below[1 - k]) ** 2)
        for k, p in enumerate((others, events))
    ]
    sampling = ranks.effect * float((np.array(spread) / ranks.rows).sum())
    sums = float(ranks.variances[1].sum()) / 4
    gap = events - others
    weights = (gap + np.append(gap[1:], 0.0)) / 2
    weights[-1] -= (ranks.means[1] - ranks.means[0]) / 2  # the number of rows is noisy as well
    variances = np.array([sampling, sums, _rank_noise(found, weights, asked)])
    # An area lies in [0, 1]: where noise leaves no row to say it, nothing varies by more.
    return np.where(np.isnan(variances), 1.0, np.maximum(variances, 0.0))


def _by_class(found: Distribution, bins: CountsEstimate, edges: Array) -> tuple[Array, Array]:
    """Shares of both classes in the cells of the distribution function, each of shape (c,)."""
    mass = np.diff(found.below, prepend=0.0)
    middle = (found.edges[:-1] + found.edges[1:]) / 2
    at = np.clip(np.searchsorted(edges, middle, side="left") - 1, 0, edges.size - 2)
    inside = np.bincount(at, mass, minlength=edges.size - 1)
    counts = bins.consistent.reshape(-1, 2)
    made = []
    for k in range(2):
        per = np.divide(counts[:, k], inside, out=np.zeros(inside.size), where=inside > 0)
        shares = per[at] * mass
        whole = shares.sum()
        rest = mass / mass.sum() if mass.sum() > 0 else np.full(mass.size, 1 / mass.size)
        made.append(shares / whole if whole > 0 else rest)
    return made[0], made[1]


def _rank_noise(found: Distribution, weights: Array, asked: Predictions) -> float:
    """Variance of a weighted sum of the released shares of rows below the edges."""
    plan, missing = asked.plan, asked.counts_missing
    query = ColumnPrefixes((found.edges,), np.array([MEAN]), missing=missing)
    sd = plan.noise(query, _SECOND).sd
    variance, shared, last = contrast_noise(np.append(weights, 0.0) if missing else weights)
    if missing and plan.neighbors is Neighbors.REPLACE_ONE:
        variance -= shared**2 / last
    return sd**2 * variance / found.rows**2


def _expected(plan: Plan) -> Plan:
    """The plan with errors that an area and an accuracy of 0.8 have, half of the rows being events.

    Of bins that hold as many rows each.
    """
    n, half = float(plan.n), plan.n / 2
    count = plan.noise(TableCounts((_CLASS,)), _TABLE).sd
    binned = plan.noise(TableCounts((_CLASS,)), _BINS).sd
    ranked = plan.noise(GroupSums(ScoredColumn.window(0, -1, 1), _CLASS), _SUMS).sd
    squared = plan.noise(GroupSums(ScoredColumn.window(0, -1, 1), _EVERYONE), _SQUARES).sd
    bins, p = len(plan.options["bins"]) - 1, _PRESUMED

    def of(rows: float, chance: float, noise: float, cells: int) -> tuple[float, float]:
        own = cells * (chance**2 + (1 - chance) ** 2) / 2
        return plan.max_rows * chance * (1 - chance) / rows, own * (noise / rows) ** 2

    errors = [of(n, p, count, 4), *[of(half, p, count, 2)] * 3, of(n, 0.5, count, 4)]
    area = 2 * plan.max_rows * (1 - p) / (6 * half)
    errors += [(area, (ranked / half) ** 2 / 2), (plan.max_rows * 0.04 / n, (squared / 2 / n) ** 2)]
    errors += [of(n / bins, 0.5, binned, 2)] * bins
    warnings = plan.warnings
    lost = max(count * math.sqrt(2), ranked * math.sqrt(2))
    if half < _FEWEST * lost:
        enough = round_up(4 * _FEWEST * lost)
        warnings = (
            *warnings,
            f"n={plan.n:,} is small for epsilon={plan.privacy.epsilon:g}: noise of {lost:.3g} rows "
            f"hides a class. About n={enough:,} rows suffice.",
        )
    assumed = "For the prediction half of the rows are events, and four of five are told apart."
    sampling, noise = errors[0]
    return replace(
        plan,
        predicted_se=tuple(math.sqrt(a + b) for a, b in errors),
        privacy_share=noise / (sampling + noise),
        assumptions=(*plan.assumptions, assumed),
        warnings=warnings,
    )
