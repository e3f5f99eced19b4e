"""Mixtures of regressions: a mean line, a histogram of residuals, steps of EM, and all answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError
from dpstats.estimators.base import Request, need_delta
from dpstats.estimators.central.counted import CountingMethod, counted_plan
from dpstats.estimators.central.mixtures import regression_expected as expected
from dpstats.estimators.central.mixtures.components import kept_components, possible_components
from dpstats.estimators.central.mixtures.conclusion import concluded_regressions
from dpstats.estimators.central.mixtures.lines import Cells
from dpstats.estimators.central.mixtures.regression_law import Covariates, RegressionLaw
from dpstats.estimators.central.mixtures.theory import REGRESSION_MIXTURE
from dpstats.estimators.central.newton.whitening import Metric, whiten
from dpstats.estimators.central.sandwich import noisy_count
from dpstats.estimators.central.scales.search import found_units, with_scales, without_scales
from dpstats.estimators.guesses import response_grid
from dpstats.estimators.numerics.released import AnsweredQuery, Finish, fit_released, likeliest
from dpstats.estimators.numerics.second_moments import two_values
from dpstats.families.mixtures import RegressionMixture
from dpstats.privacy import Privacy
from dpstats.protocol import Holder, Options, Plan, RegressionMixtureEstimate
from dpstats.protocol.mixtures import regression_names
from dpstats.queries import (
    ColumnCells,
    Geometry,
    MixtureScores,
    Query,
    ResidualCells,
    ResidualQuantile,
    ResponseQuantile,
    Score,
    ScoreSquares,
)
from dpstats.theory import Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["RegressionMixtureEM"]

Array = NDArray[np.float64]

_COUNT, _MEDIAN, _NORM, _REACH = 0.004, 0.008, 0.01, 0.008  # budget: numbers to start from
_MOMENTS = (0.04, 0.07)  # budget: second moments of the columns, and of whitened ones
_COLUMNS = 0.03  # budget: cells of each column
_LENGTH, _LINE = 0.006, (0.025, 0.05)  # budget: sizes of residuals, and steps to the mean line
_SQUARES, _CELLS = 0.1, 0.08  # budget: squares of scores, and the histogram
_STEPS = 4  # number: steps of the EM algorithm
_GROWTH = 1.5  # ratio: of the budget of a step to that of the one before
_KEPT = 3  # number: of them that the finish takes
_REACHED, _FARTHEST = 0.95, 2.5  # share: of rows in full; the longest to sqrt(d)
_MIDDLE, _TAIL = 0.75, 0.9  # share: of residuals below the clip of steps, and of cells
_WIDE = 2.2  # ratio: of the clip of the mean line to that quantile
_SLOPE = 0.93  # ratio: of its score's derivative to that of least squares
_SHORT = 0.8  # ratio: of the clip of squares to the quantile times sqrt(p)
_CLIPS = (2.0, 2.0, 1.5, 1.5)  # sds: at which steps clip residuals; two, which tells of tails
_SIZES = 2.0 ** np.linspace(-12.0, 0.0, 65)  # numerical: of residuals, to the largest
_HEIGHTS, _ALONG = 24, {0: 1, 1: 12, 2: 10, 3: 6}  # number: cells of residuals, and of directions
_TOP, _SIDE = 2.0, 3.0  # ratio: of the outer edges to the size of residuals, and sds of rows
_LEAST_SPREAD = 1e-3  # ratio: variance of a whitened column, at least
_BLIND = 8.0  # wording: noises that the second moment of a direction of rows exceeds
_INVOLVED = 0.3  # wording: part of a column in such a direction, to the largest, that is named
_NARROWEST = 1e-12  # numerical: deviation of a column to its mean, for edges that increase
_EACH = 24  # number: cells of each column
_TOLD = 2.0  # sds: between lines given a column, from which no fit pairs them wrongly
_MOST_EXCHANGED = 16  # numerical: other pairs that are followed
_LEAST_WEIGHT = 0.02  # numerical: share of a component in a step
_LONGEST = 2.0  # numerical: sds that predictions move in a step, at most
_TURNED = (0.3, 3.0)  # numerical: ratio of the variance of errors to that before the step
_MOST_COMPONENTS = 5  # untried: more components
_MOST_COLUMNS = 60  # untried: more columns


@dataclass(frozen=True, eq=False)
class _LineRows:
    """The holder, and whitened rows ``z = whiten @ x`` of n units: moments, and the constant."""

    holder: Holder[Query]
    metric: Metric
    constant: Array  # c, with c'z = 1; zeros without an intercept
    n: float

    @property
    def whiten(self) -> Array:
        return self.metric.w.T

    @property
    def mean(self) -> Array:
        """Of z."""
        total = self.metric.curvature @ self.constant
        made: Array = total / (float(self.constant @ total) or 1.0)
        return made

    @property
    def spread(self) -> tuple[Array, Array]:
        """Eigenvalues and eigenvectors of the covariance of z, those along the constant left."""
        total = self.metric.curvature
        weight = float(self.constant @ total @ self.constant) or 1.0
        cov = total / weight - np.outer(self.mean, self.mean)
        varying = np.eye(len(cov))
        if self.constant.any():
            across = np.linalg.svd(self.constant[None])[2][1:]
            varying = across.T
        values, vectors = np.linalg.eigh(varying.T @ cov @ varying)
        return np.maximum(values, _LEAST_SPREAD), varying @ vectors

    @property
    def standardised(self) -> Array:
        """What makes rows z standard: p directions, centred, of shape (p, d)."""
        values, vectors = self.spread
        plain = (vectors / np.sqrt(values)).T
        made: Array = plain - np.outer(plain @ self.mean, self.constant)
        return made

    def blind(self, names: Sequence[str]) -> tuple[str, ...]:
        """Columns whose variation apart from the others noise hides: see `_BLIND`."""
        values, vectors = np.linalg.eigh(self.metric.curvature)
        squares = vectors.T**2
        noise = np.sqrt(np.einsum("ki,ij,kj->k", squares, self.metric.variances, squares)) / self.n
        back = np.linalg.inv(self.whiten)
        sizes = np.sqrt(np.einsum("ij,jk,ik->i", back, self.metric.curvature, back))
        parts = np.abs(self.metric.w @ vectors[:, values < _BLIND * noise]) * sizes[:, None]
        involved = parts > _INVOLVED * parts.max(axis=0)
        return tuple(name for name, any_ in zip(names, involved.any(axis=1), strict=True) if any_)

    def covariates(self, design: Design) -> Covariates:
        """What made-up rows are like: the released moments, and cells of each column."""
        values, vectors = self.spread
        root = (vectors * np.sqrt(values)) @ vectors.T
        columns, edges = _counted(design), np.linspace(-_SIDE, _SIDE, _EACH + 1)
        shares, ends = np.empty((0, _EACH)), np.empty((0, 2))
        if columns.size:
            standard, back = design.standardization, np.linalg.inv(self.whiten)
            means, sds = back @ self.mean, np.sqrt(((back @ root) ** 2).sum(axis=1))
            ends = two_values(design.internal_bounds[columns], means[columns], sds[columns])
            middles = standard.x_center + standard.x_scale * means
            widths = np.maximum(standard.x_scale * sds, _NARROWEST * np.abs(middles))
            query = ColumnCells(tuple(middles[j] + widths[j] * edges for j in columns), columns)
            counts, _ = self.holder.ask(query, "columns")
            shares = np.array([_shares(c) for c in query.split(counts)])
        return Covariates(self.whiten, self.mean, root, columns, edges, shares, ends)

    def size(self, slot: str, b: Array, share: float, most: float) -> float:
        """A quantile of the absolute residuals."""
        query = ResidualQuantile(most * _SIZES, share, b @ self.whiten)
        (found,), _ = self.holder.ask(query, slot)
        return float(found)


@dataclass(frozen=True)
class RegressionMixtureEM(CountingMethod[RegressionMixtureEstimate]):
    """A mixture of k regressions with unknown weights and one unknown variance of errors.

    1. Rows are whitened by two noisy Gram matrices, as in the default fit of one regression.
    2. Two steps of a regression with clipped residuals find the mean of the k lines.
    3. The squares of scores around it are largest in the directions in which lines differ. A
       histogram of residuals along k - 1 of them shows the lines, and fitting these is
       post-processing.
    4. Steps of the EM algorithm, one question each, whose noise does not depend on k.
    5. The answers of the last of them fitted by generalised least squares, which costs nothing
       (`dpstats.estimators.numerics.released`).

    Notes
    -----
    *Guarantee.* Gaussian noise on a count, noisy comparisons (`Search`), Gram matrices, scores and
    their squares, on a histogram (`ResidualCells`) and on scores around all components
    (`MixtureScores`), at the cost in the plan.
    """

    name: ClassVar[str] = "em"
    model: ClassVar[str] = "mixture_ols"
    theory: ClassVar[Mapping[str, Theory]] = {"central": REGRESSION_MIXTURE}
    options: ClassVar[Mapping[str, str]] = {
        "components": "number of components, or several of which one is chosen"
    }

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        need_delta(self.name, privacy)
        numbers = possible_components(options.get("components", 2), _MOST_COMPONENTS)
        k = max(numbers)
        if len(design.names) > _MOST_COLUMNS:
            raise OptionError(
                f"A mixture of regressions on {len(design.names)} columns: at most "
                f"{_MOST_COLUMNS} are fitted. Name those that matter in the formula."
            )
        asks = with_scales(_requests(design, k), design, privacy, n)
        kept = {"components": kept_components(numbers)}
        plan = counted_plan(self, design, privacy, n, asks, kept)
        plan = replace(plan, parameters=regression_names(k, design.names))
        cells = _HEIGHTS * _ALONG[(q := _directions(design, k))] ** q
        return expected.expect_regressions(
            without_scales(plan, design), numbers, _CLIPS, _KEPT, cells
        )

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> RegressionMixtureEstimate:
        """Ask where rows and lines are, then for steps; then fit the answers."""
        scaled, scales, remarks = found_units(holder, design)
        numbers = possible_components(plan.options["components"], _MOST_COMPONENTS)
        rows, level = _whitened(holder, scaled)
        low, high = scaled.internal_endog_bounds
        covariates = rows.covariates(scaled)
        b, size = _mean_line(rows, level, high - low)
        mixture = _started(rows, b, size, numbers, plan.max_rows)
        answers: list[AnsweredQuery] = []
        for t in range(_STEPS):
            law = RegressionLaw(mixture, covariates)
            query = law.question(rows.metric.radius, _CLIPS[t])
            value, noise = holder.ask(query, f"step {t + 1}")
            made_up = law.of_whitened(query)
            answers.append(AnsweredQuery(made_up.rows, value, noise.sd))
            mixture = _stepped(mixture, query, value, rows)
        finishes = _finishes(RegressionLaw(mixture, covariates), answers[-_KEPT:], rows)
        blind = rows.blind(scaled.names)
        estimate = concluded_regressions(finishes, scaled, max(numbers), blind)
        released = {**estimate.released, **({"scales": scales} if scales else {})}
        return replace(estimate, released=released, remarks=(*remarks, *estimate.remarks))


def _requests(design: Design, k: int) -> list[Request]:
    """Every question of a fit, and its share of the budget."""
    turned = _directions(design, k) > 0
    aside = [
        Request("count", _COUNT, "number of rows that contribute"),
        *(
            [Request("median", _MEDIAN, "median of the response, to start from")]
            if design.has_intercept
            else []
        ),
        Request("norm", _NORM, "a radius that most rows are within"),
        Request("gram", _MOMENTS[0], "second moments of the columns"),
        Request("reach", _REACH, "a radius that most whitened rows are within"),
        Request("whitened gram", _MOMENTS[1], "second moments in whitened coordinates"),
        *(
            [Request("columns", _COLUMNS, "cells of each column, which rows are made up like")]
            if _counted(design).size
            else []
        ),
        *(
            request
            for t, share in enumerate(_LINE)
            for request in (
                Request(f"size {t + 1}", _LENGTH, "size of residuals from the mean line"),
                Request(f"line {t + 1}", share, "score of a step to the mean line"),
            )
        ),
        Request("size", _LENGTH, "size of residuals from it"),
        *(
            [Request("squares", _SQUARES, "squares of scores, for where lines differ")]
            if turned
            else []
        ),
        Request("cells", _CELLS, "rows in cells of residuals and directions"),
    ]
    growing = _GROWTH ** np.arange(_STEPS)
    left = (1 - sum(ask.weight for ask in aside)) * growing / growing.sum()
    steps = [
        Request(f"step {t + 1}", float(weight), "scores around all components")
        for t, weight in enumerate(left)
    ]
    return [*aside, *steps]


def _directions(design: Design, k: int) -> int:
    """Directions in which lines are looked for."""
    return min(k - 1, len(design.names) - design.has_intercept, max(_ALONG))


def _counted(design: Design) -> NDArray[np.intp]:
    """Columns of which cells may be counted."""
    place = design.standardization.intercept
    every = range(len(design.names)) if design.by_value else ()
    return np.array([j for j in every if j != place], dtype=np.intp)


def _shares(counts: Array) -> Array:
    """Shares of rows in cells: the nearest to the counts that are not negative, and sum to 1.

    Noise in an empty cell may not count as rows: the same is taken off all cells that are left.
    """
    total = max(float(counts.sum()), 1.0)
    largest = np.sort(counts)[::-1]
    over = (np.cumsum(largest) - total) / np.arange(1, counts.size + 1)
    less = over[largest > over][-1]
    found: Array = np.maximum(counts - less, 1e-9 * total)
    found /= found.sum()
    return found


def _whitened(holder: Holder[Query], design: Design) -> tuple[_LineRows, float]:
    """Whitened rows, and the level of the response that is started from."""
    d, place = len(design.names), design.standardization.intercept
    n, level = noisy_count(holder, d), 0.0
    if place is not None:
        median = ResponseQuantile(response_grid(design), 0.5)
        (level,), _ = holder.ask(median, "median")
    low, high = np.asarray(design.internal_bounds, dtype=np.float64).T
    indicators = ((low == 0) & (high == 1)).astype(np.float64)
    metric = whiten(holder, n, indicators, design.norm_bound, (_REACHED, _FARTHEST))
    constant = np.zeros(d)
    if place is not None:
        constant = np.asarray(np.linalg.solve(metric.w, np.eye(d)[place]), dtype=np.float64)
    return _LineRows(holder, metric, constant, n), float(level)


def _mean_line(rows: _LineRows, level: float, most: float) -> tuple[Array, float]:
    """Coefficients on z of the mean of all lines, and a size of residuals from it."""
    b = level * rows.constant
    radius = rows.metric.radius
    for t in range(len(_LINE)):
        clip = _WIDE * rows.size(f"size {t + 1}", b, _MIDDLE, most)
        query = Score(Geometry(radius, rows.whiten), b @ rows.whiten, clip)
        score, _ = rows.holder.ask(query, f"line {t + 1}")
        b = b + rows.metric.inverse @ score / (rows.n * _SLOPE)
    return b, rows.size("size", b, _TAIL, most)


def _started(
    rows: _LineRows, b: Array, size: float, numbers: Sequence[int], max_rows: int
) -> RegressionMixture:
    """The lines that a histogram of residuals shows, in directions in which lines differ."""
    varying, constant = rows.standardised, bool(rows.constant.any())
    p, beta = len(varying), b @ rows.whiten
    q = min(max(numbers) - 1, p, max(_ALONG))
    chosen = varying[:0]
    if q:
        whole = np.vstack([rows.constant[None], varying]) if constant else varying
        clip = _SHORT * math.sqrt(len(whole)) * size
        query = ScoreSquares(whole @ rows.whiten, beta, clip, max_rows)
        squares, _ = rows.holder.ask(query, "squares")
        # Of normal rows whose residuals vary with (d0 + d'z)^2 it is c I + 2 (d d' + d0 d' + d0' d)
        # with d0 along the constant: its largest eigenvectors vary along d.
        largest = np.linalg.eigh(squares)[1][-p:, ::-1][:, :q]
        chosen = np.linalg.svd(largest.T)[2][:q] @ varying
    cells = ResidualCells(
        beta,
        size * np.linspace(-_TOP, _TOP, _HEIGHTS + 1),
        chosen @ rows.whiten,
        np.linspace(-_SIDE, _SIDE, _ALONG[q] + 1),
    )
    counts, noise = rows.holder.ask(cells, "cells")
    lines = Cells(counts, noise.sd, cells.heights / size, cells.edges, constant).chosen(numbers)
    features = np.vstack([rows.constant[None], chosen]) if constant else chosen
    return RegressionMixture(lines.weights, b + size * lines.coef @ features, size * lines.sigma)


def _finishes(
    law: RegressionLaw, answers: Sequence[AnsweredQuery], rows: _LineRows
) -> list[Finish[RegressionLaw]]:
    """The answers fitted from a law, and where its components change places; the likeliest first.

    Dummies are where a fit may pair the components of one value wrongly with those of the other.
    """
    first = fit_released(law, answers, rows.n, True)
    others = first.law.exchanged(rows.constant, _TOLD)[:_MOST_EXCHANGED]
    found = [first, *(fit_released(other, answers, rows.n, True) for other in others)]
    return likeliest(found, answers, rows.n)


def _stepped(
    mixture: RegressionMixture, query: MixtureScores, answer: Array, rows: _LineRows
) -> RegressionMixture:
    """The mixture after one step of the EM algorithm, whatever the noise was."""
    from scipy.stats import norm

    counts, scores, squares = query.moments(answer)
    sizes = np.maximum(counts, _LEAST_WEIGHT * rows.n)
    clip = query.clip
    inside = 2 * float(norm.cdf(clip)) - 1
    second = inside - 2 * clip * float(norm.pdf(clip)) + 2 * clip**2 * float(norm.sf(clip))
    steps = scores @ rows.metric.inverse / (inside * sizes[:, None])
    lengths = np.sqrt(np.einsum("kd,de,ke->k", steps, rows.metric.curvature, steps))
    steps *= np.minimum(1.0, _LONGEST / np.maximum(lengths, 1e-9))[:, None]
    turned = float(np.clip(squares.sum() / (sizes.sum() * second), *_TURNED))
    return RegressionMixture(
        sizes / sizes.sum(),
        mixture.coef + mixture.sigma * steps,
        mixture.sigma * math.sqrt(turned),
    )
