"""Mixtures of normal laws: a noisy histogram, a few steps of EM, and all that was released."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, get_args

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError, given
from dpstats.estimators.base import Request, floor_eigenvalues, need_delta
from dpstats.estimators.central.counted import CountingMethod, counted_plan
from dpstats.estimators.central.mixtures import expected
from dpstats.estimators.central.mixtures.components import kept_components, possible_components
from dpstats.estimators.central.mixtures.conclusion import differs, hidden, mixture_estimate
from dpstats.estimators.central.mixtures.local import LocalMixture, shaped
from dpstats.estimators.central.mixtures.start import Histogram
from dpstats.estimators.central.mixtures.steps import stepped
from dpstats.estimators.central.mixtures.theory import GAUSSIAN_MIXTURE
from dpstats.estimators.central.scales.search import found_units, with_scales, without_scales
from dpstats.estimators.numerics.released import AnsweredQuery, Finish, fit_released, likeliest
from dpstats.families.mixtures import NormalMixture
from dpstats.privacy import Privacy
from dpstats.protocol import Answer, Holder, MixtureEstimate, Options, Plan
from dpstats.protocol.mixtures import mixture_names
from dpstats.queries import Geometry, Gram, NormQuantile, ProjectedCells, Query
from dpstats.queries.mixtures import CovarianceKind
from dpstats.theory import Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["GaussianMixture"]

Array = NDArray[np.float64]

_NORM, _GRAMS = 0.02, (0.03, 0.05)  # budget: a length that few rows exceed, total covariances
_CELLS, _MORE_CELLS = 0.1, 0.2  # budget: the histogram, and one in four directions
_STEPS = 4  # number: steps of the EM algorithm
_GROWTH = 1.3  # ratio: of the budget of a step to that of the one before
_EARLY, _LATE = 0.5, 0.0  # sds: radius beyond sqrt(d) in the first half of the steps, and then
_REACHED = 0.95  # share: of rows within the length
_BEYOND = 1.05  # ratio: of the radius to the length
_CONSTANT = 1.5  # ratio: of the length to the constant beside it
_ROUND = 1.0  # sds: radius beyond sqrt(d) where rows are about round
_FLOOR = 0.7  # ratio: least variance to the operator norm of the noise
_ONE_UNIT = 8.0  # ratio: of the widest to the narrowest of columns that may have one unit
_LENGTHS = np.geomspace(2.0**-16, 1.0, 65)  # numerical: among which it is sought
_AXIS = {1: 64, 2: 20, 3: 10, 4: 6}  # number: cells along each of so many directions
_REACH = 3.2  # sds: of all rows, that cells cover on either side
_MERGED = {1: 4, 2: 4, 3: 2, 4: 2}  # number: cells along each that the finish counts as one
_MANY, _WIDE = 5, 4  # number: components and columns from which four directions are looked at
_MOST_ANSWERS = 420  # numerical: of steps, that the finish takes
_STARTS = 3  # numerical: mixtures that the histogram leaves, at most
_MOST_COMPONENTS = 20  # untried: more components
_SHAPES: tuple[CovarianceKind, ...] = get_args(CovarianceKind)


@dataclass(frozen=True, eq=False)
class _ComponentRows:
    """The holder, where the constant stands, and units that may be compared between columns."""

    holder: Holder[Query]
    design: Design
    shape: CovarianceKind

    @property
    def intercept(self) -> int:
        place = self.design.standardization.intercept
        assert place is not None
        return place

    @cached_property
    def alike(self) -> bool:
        """Whether columns are compared in the units of the table.

        So it is if components are said to be spherical, and where all columns were declared with
        one range and none is many times as wide as another.
        """
        scale = np.delete(self.design.standardization.x_scale, self.intercept)
        bounds = np.delete(self.design.bounds, self.intercept, axis=0)
        one = bool((bounds == bounds[0]).all()) and scale.max() <= _ONE_UNIT * scale.min()
        return one or self.shape == "spherical"

    @property
    def units(self) -> Array:
        """What one of each column is in the coordinates of the mixture."""
        scale = np.delete(self.design.standardization.x_scale, self.intercept)
        if not self.alike:
            return np.ones_like(scale)
        common: Array = scale / np.exp(np.log(scale).mean())
        return common

    def local(self, mixture: NormalMixture) -> LocalMixture:
        """Coordinates around a mixture."""
        return LocalMixture(mixture, self.shape, self.intercept, self.units)

    def spread(self) -> tuple[float, Array, Array]:
        """Count, mean (d,) and covariance (d, d) of all rows, noisy.

        Noise is alike in all coordinates, so that it hides the narrow directions of rows that are
        not round; where the first covariance makes them round, a second one sees all of them.
        """
        whole = np.diag(np.insert(self.units, self.intercept, 1.0))
        others = np.delete(whole, self.intercept, axis=0)
        longest = float(np.linalg.norm(others @ np.abs(self.design.internal_bounds).max(axis=1)))
        lengths = NormQuantile(longest * _LENGTHS, _REACHED, others)
        (length,), _ = self.holder.ask(lengths, "length")
        _, mean, spread = self._moments("gram", others, _BEYOND * float(length))
        root = np.linalg.cholesky(spread)
        centred = others - np.outer(mean, np.arange(len(whole)) == self.intercept)
        radius = math.sqrt(len(mean)) + _ROUND
        rows, left, inner = self._moments("whitened gram", np.linalg.solve(root, centred), radius)
        return rows, mean + root @ left, root @ inner @ root.T

    def _moments(self, slot: str, matrix: Array, radius: float) -> tuple[float, Array, Array]:
        """The same of a public matrix times the rows, which are shortened to a radius."""
        constant = radius / _CONSTANT
        ahead = constant * np.eye(matrix.shape[1])[self.intercept]
        geometry = Geometry(math.hypot(constant, radius), np.vstack([ahead, matrix]))
        gram, noise = self.holder.ask(Gram(geometry), slot)
        rows = max(float(gram[0, 0]), noise.sd) / constant**2
        mean = gram[0, 1:] / (constant * rows)
        least = max(_FLOOR * noise.sd * math.sqrt(2 * len(mean)) / rows, 1e-8)
        return rows, mean, floor_eigenvalues(gram[1:, 1:] / rows - np.outer(mean, mean), least)


@dataclass(frozen=True)
class GaussianMixture(CountingMethod[MixtureEstimate]):
    """A mixture of k normal laws whose weights, means and covariances are unknown.

    1. The 0.95 quantile of the rows' length, and their mean and covariance: once in the units of
       columns, and again where rows are about round.
    2. A histogram in the ``min(k - 1, d, 3)`` directions of largest variance, in the units of the
       table where all columns have one range. Where the components are in it is post-processing.
    3. Steps of the EM algorithm, one question each, whose noise does not depend on k.
    4. All answers of 2 and 3 fitted by generalised least squares, which costs nothing
       (`dpstats.estimators.numerics.released`).

    Notes
    -----
    *Guarantee.* Gaussian noise on noisy comparisons (`Search`), on Gram matrices, on a histogram
    (`ProjectedCells`) and on moments around components (`MixtureMoments`), at the cost in the plan.
    """

    name: ClassVar[str] = "em"
    model: ClassVar[str] = "gaussian_mixture"
    theory: ClassVar[Mapping[str, Theory]] = {"central": GAUSSIAN_MIXTURE}
    options: ClassVar[Mapping[str, str]] = {
        "components": "number of components, or several of which one is chosen",
        "covariance": f"shape of covariances: {', '.join(map(repr, _SHAPES))}",
    }

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        need_delta(self.name, privacy)
        numbers, shape = (
            possible_components(options.get("components", 2), _MOST_COMPONENTS),
            _shape(options.get("covariance", "full")),
        )
        q = _directions(max(numbers), len(_columns(design)))
        cells = _MORE_CELLS if q == _WIDE else _CELLS
        growing = _GROWTH ** np.arange(_STEPS)
        weights = (1 - _NORM - sum(_GRAMS) - cells) * growing / growing.sum()
        asks = [
            Request("length", _NORM, "a length that few rows exceed"),
            Request("gram", _GRAMS[0], "mean and covariance of all rows"),
            Request("whitened gram", _GRAMS[1], "the same in coordinates in which rows are round"),
            Request("cells", cells, f"rows in cells along {q} direction{'s' * (q > 1)}"),
            *(
                Request(f"step {t + 1}", float(weight), "moments of rows around components")
                for t, weight in enumerate(weights)
            ),
        ]
        asks = with_scales(asks, design, privacy, n)
        kept = {"components": kept_components(numbers), "covariance": shape}
        plan = counted_plan(self, design, privacy, n, asks, kept)
        plan = replace(plan, parameters=mixture_names(max(numbers), _columns(design)))
        return expected.expect_mixture(without_scales(plan, design), shape, numbers, _AXIS[q], q)

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> MixtureEstimate:
        """Ask where rows are, then for steps; then fit all of it."""
        scaled, scales, remarks = found_units(holder, design)
        shape = plan.options["covariance"]
        rows = _ComponentRows(holder, scaled, shape)
        numbers = possible_components(plan.options["components"], _MOST_COMPONENTS)
        count, mean, total = rows.spread()
        asked, starts = _started(rows, numbers, mean, total)
        local, *rivals = [rows.local(_shaped(start, shape)) for start in starts]
        answers: list[AnsweredQuery] = []
        for t in range(_STEPS):
            if rivals and 2 * t == _STEPS:
                local = _nearest(_finishes([local, *rivals], asked, answers, count, True), local)
            further = _EARLY if 2 * t < _STEPS else _LATE
            query = local.question(math.sqrt(len(mean)) + further)
            value, noise = holder.ask(query, f"step {t + 1}")
            after = stepped(local.mixture, query, value, noise.sd, total)
            local = rows.local(after)
            answers.append(AnsweredQuery(query.rows, value, noise.sd))
        finishes = _finishes([local, *rivals], asked, answers, count)
        estimate = mixture_estimate(local, finishes, scaled, plan, count)
        released = {**estimate.released, **({"scales": scales} if scales else {})}
        return replace(estimate, released=released, remarks=(*remarks, *estimate.remarks))


def _shape(asked: object) -> CovarianceKind:
    for shape in _SHAPES:
        if isinstance(asked, str) and asked == shape:
            return shape
    allowed = ", ".join(map(repr, _SHAPES))
    raise OptionError(f"covariance={given(asked)}: allowed are {allowed}.")


def _finishes(
    laws: Sequence[LocalMixture],
    cells: AnsweredQuery,
    steps: Sequence[AnsweredQuery],
    rows: float,
    rough: bool = False,
) -> list[Finish[LocalMixture]]:
    """The latest answers fitted from several laws, the likeliest first; none if there are too many.

    In the end one is followed, too, from the likeliest mixture with one covariance for all: it has
    fewer parameters, and where a wide component stands for two the other explanation is near it.
    Where its means are those that were found already, it leads there. Where noise hides components
    there is no interval to guard, and errors need not be exact.
    """
    size = steps[-1].answer.size
    if size > _MOST_ANSWERS:
        return []
    answers = [cells, *steps[-max(_MOST_ANSWERS // size, 1) :]]
    found = sorted((fit_released(law, answers, rows, True) for law in laws), key=_lack)
    best, first = found[0], laws[0]
    if rough or hidden(best):
        return found
    if first.mixture.k > 1 and first.shape != "tied":
        tied = fit_released(first.of_shape("tied"), answers, rows, True).law
        if differs(best.law.mixture, tied.mixture):
            found.append(fit_released(tied.of_shape(first.shape), answers, rows, True))
    return likeliest(found, answers, rows)


def _lack(finish: Finish[LocalMixture]) -> float:
    return finish.lack


def _nearest(found: Sequence[Finish[LocalMixture]], otherwise: LocalMixture) -> LocalMixture:
    return found[0].law if found else otherwise


def _started(
    rows: _ComponentRows, numbers: Sequence[int], mean: Array, total: Array
) -> tuple[AnsweredQuery, list[NormalMixture]]:
    """Cells in the directions of largest variance, and mixtures fitted to them, best first."""
    d = len(mean)
    q = _directions(max(numbers), d)
    unit = np.ones(d) if rows.alike else np.sqrt(np.diag(total))
    values, vectors = np.linalg.eigh(total / np.outer(unit, unit))
    values, vectors = values[::-1][:q], vectors[:, ::-1][:, :q]
    directions = (vectors / np.sqrt(values)).T / unit
    query = ProjectedCells(
        np.insert(directions * rows.units, rows.intercept, -directions @ mean, axis=1),
        np.linspace(-_REACH, _REACH, _AXIS[q] + 1),
    )
    answer = rows.holder.ask(query, "cells")
    found = Histogram(answer.value, answer.noise.sd, query.edges).chosen(numbers)
    back = unit[:, None] * vectors * np.sqrt(values)
    rest = total - back @ back.T

    def whole(part: NormalMixture) -> NormalMixture:
        covariances = np.array(
            [floor_eigenvalues(back @ c @ back.T + rest, 1e-12) for c in part.covariances]
        )
        return NormalMixture(part.weights, mean + part.means @ back.T, covariances)

    return _merged(query, answer), [whole(part) for part in found[:_STARTS]]


def _merged(query: ProjectedCells, answer: Answer) -> AnsweredQuery:
    """Counts in larger cells: fewer numbers for the finish."""
    q = answer.value.ndim
    factor, cells = _MERGED[q], query.cells
    axes = np.stack(np.unravel_index(np.arange(cells**q), (cells,) * q)) // factor
    larger = np.ravel_multi_index(tuple(axes), (cells // factor,) * q)
    size = (cells // factor) ** q

    def contributions(rows: Array) -> Array:
        made = np.zeros((len(rows), size))
        made[np.arange(len(rows)), larger[query.places(rows)]] = 1.0
        return made

    counts: Array = np.bincount(larger, answer.value.ravel(), size).astype(np.float64)
    return AnsweredQuery(contributions, counts, answer.noise.sd * math.sqrt(factor**q))


def _shaped(mixture: NormalMixture, shape: CovarianceKind) -> NormalMixture:
    weights = mixture.weights
    return replace(mixture, covariances=shaped(mixture.covariances, shape, weights))


def _directions(k: int, d: int) -> int:
    """Directions in which k components are looked for."""
    if k >= _MANY and d >= _WIDE:
        return _WIDE
    return min(max(k - 1, 1), d, _WIDE - 1)


def _columns(design: Design) -> tuple[str, ...]:
    place = design.standardization.intercept
    return tuple(name for j, name in enumerate(design.names) if j != place)
