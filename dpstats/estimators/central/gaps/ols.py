"""Least squares where covariates are missing: rows are completed, and all answers are fitted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError, given
from dpstats.estimators.base import Request, floor_eigenvalues, need_delta, need_positive
from dpstats.estimators.central.counted import CountingMethod, counted_plan
from dpstats.estimators.central.gaps import expected
from dpstats.estimators.central.gaps.conclusion import completed_estimate
from dpstats.estimators.central.gaps.law import GappyRows, Parts
from dpstats.estimators.central.gaps.theory import GAPS
from dpstats.estimators.central.scales.search import in_found_scales, with_scales, without_scales
from dpstats.estimators.guesses import response_bound
from dpstats.estimators.numerics.released import AnsweredQuery, even_points, fit_released
from dpstats.privacy import Privacy
from dpstats.protocol import CoefficientEstimate, Holder, Options, Plan
from dpstats.queries import (
    Completed,
    Geometry,
    Gram,
    NormQuantile,
    ObservedPairs,
    Query,
    ResidualMoment,
    ResidualQuantile,
    Score,
)
from dpstats.queries.linear import packed
from dpstats.theory import Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["CompletedOLS"]

Array = NDArray[np.float64]

_LENGTH, _GRAM, _PAIRS = 0.01, 0.33, 0.04  # budget: a length, second moments, what was observed
_SPREAD = 0.015  # budget: a spread of the residuals, before each step
_SQUARES = 0.03  # budget: squares of residuals after the last step
_STEPS = 3  # number: Newton steps
_GROWTH = 2.5  # ratio: of the budget of a step to that of the one before
_REACHED = 0.8  # share: of rows within the length
_LENGTHS = np.geomspace(2.0**-16, 1.0, 65)  # numerical: among which it is sought
_RADIUS = 1.25  # sds: root mean square of whitened columns, beyond which a row is shortened
_QUANTILE, _TO_SD = 0.75, 1.15  # share: of residuals within their spread; its normal value
_SPREADS = np.geomspace(2.0**-13, 1.0, 65)  # numerical: among which it is sought, in the bound
_FIRST_CLIP, _CLIP = 3.0, 2.0  # sds: clip on residuals, in the first step and in later ones
_SQUARED = 3.0  # sds: the same of those that are squared
_KEPT = 0.93  # ratio: curvature of clipped scores to that without clips
_LEAST_SEEN = 0.02  # share: of rows in which two covariates were observed, at least
_DOUBT = 2.0  # wording: noises above which two covariates are taken to be observed together
_LEAST, _BLURRED = 0.02, 0.7  # numerical: least of second moments; and their noise, times this
_MOST = 1e5  # numerical: largest second moment, in squared scales
_LEAST_SPREAD = 0.2  # ratio: variance of errors to that of residuals of completed rows, at least
_MADE = 2**11  # numerical: made-up rows that second moments of completed rows are averaged over


@dataclass(frozen=True, eq=False)
class _Moments:
    """Second moments of rows with gaps, from noisy answers; the constant stands first.

    Attributes
    ----------
    rows : float
        How many contribute.
    shares : ndarray of shape (p,)
        Of them in which each covariate was observed.
    second : ndarray of shape (d, d)
        Second moments of a row.
    asked : tuple of AnsweredQuery
        What was answered.
    unseen : tuple of int, or None
        Two covariates that hardly any row has both of, where there are such.
    """

    rows: float
    shares: Array
    second: Array
    asked: tuple[AnsweredQuery, ...]
    unseen: tuple[int, int] | None

    @classmethod
    def of(cls, holder: Holder[Query], design: Design) -> _Moments:
        """Ask for a length, for the Gram matrix of rows with 0 in their gaps, and for the gaps."""
        d = len(design.names)
        longest = float(np.linalg.norm(np.abs(design.internal_bounds).max(axis=1)))
        nothing = np.eye(d)
        lengths = NormQuantile(longest * _LENGTHS, _REACHED)
        (radius,), _ = holder.ask(Completed(lengths, nothing), "length")
        ball = Geometry(float(radius))
        gram, blur = holder.ask(Completed(Gram(ball), nothing), "gram")
        pairs, jitter = holder.ask(ObservedPairs(d), "observed")
        rows = max(float(np.trace(pairs)) / d, jitter.sd)
        signs = pairs / rows
        seen = (1 + signs[0] + signs[0][:, None] + signs) / 4
        unseen = _rarest_pair(seen, jitter.sd / rows)
        both = np.clip(seen, _LEAST_SEEN, 1.0)
        shares = np.clip((1 + signs[0, 1:]) / 2, _LEAST_SEEN, 1.0)
        np.fill_diagonal(both, np.r_[1.0, shares])
        moments = gram / (rows * both)
        moments /= max(float(moments[0, 0]), 0.5)  # of rows that were shortened the constant is too
        moments[0, 0] = 1.0
        noise = _BLURRED * blur.sd * math.sqrt(d) / (rows * float(np.median(both)))
        second = _held(moments, max(_LEAST, noise))

        def zeros(made: Array) -> Array:
            x = Parts.of(made).zeros
            return _outer(x * _weights(x, ball)[:, None])

        def gaps(made: Array) -> Array:
            return _outer(np.insert(2 * Parts.of(made).observed - 1, 0, 1.0, axis=1))

        asked = (
            AnsweredQuery(zeros, packed(gram), blur.sd),
            AnsweredQuery(gaps, packed(pairs), jitter.sd),
        )
        return cls(rows, shares, second, asked, unseen)

    def law(self, precision: Array) -> GappyRows:
        """Rows with these moments, whose response is as yet unknown."""
        mean = self.second[0, 1:] / self.second[0, 0]
        cov = self.second[1:, 1:] - np.outer(mean, mean)
        start = np.zeros(len(self.second))
        shares = np.minimum(self.shares, 1 - 1e-3)
        return GappyRows(start, 1.0, mean, floor_eigenvalues(cov, _LEAST), shares, precision)


@dataclass(frozen=True)
class CompletedOLS(CountingMethod[CoefficientEstimate]):
    """Least squares of rows that miss covariates completely at random.

    1. Second moments S of the covariates, from a noisy Gram matrix of rows with 0 in their gaps
       over noisy shares of rows in which two covariates were observed.
    2. A row is completed: what it misses is predicted from what it has, by S (`Completed`).
    3. Three Newton steps from clipped scores of completed rows, whitened by their second moments;
       then the sum of squared residuals.
    4. All answers of 1 and 3 fitted by generalised least squares to normal rows with gaps, which
       costs nothing (`dpstats.estimators.numerics.released`).

    Notes
    -----
    *Guarantee.* Gaussian noise on noisy comparisons, a Gram matrix and scores of completed rows
    (`Completed`, of `Search`, `Gram`, `Score` and `ResidualMoment`), and on signs of what was
    observed (`ObservedPairs`), each with the sensitivity that its query computes, at
    the cost in the plan. A completed row is a function of the row and of
    earlier answers; later questions depend on the data only through earlier answers (Dong, Roth &
    Su 2022, Corollary 3.3).

    *Why completing is right.* Let x* be the best linear predictor of x from what was observed. If
    values are missing completely at random, ``x - x*`` is uncorrelated with x*, so that
    ``E x* (y - x*'b) = E x* (x - x*)'b + E x* (y - x'b) = 0`` at the least-squares coefficients b,
    whatever the laws of x and y are. Filling gaps with a mean leaves the first term.

    *Covariance.* That of the fit of all answers: sampling, noise, gaps and the error of S
    together, if rows are normal and gaps independent of each other. Intervals are given where that
    is asserted (``normal=True``) and a test of it, from released numbers, does not refuse; where it
    does the last Newton step is given. The test sees clipped rows, and cannot see what long ones
    would add: on California housing it refused nothing and coefficients were 15 standard errors
    from least squares.
    """

    name: ClassVar[str] = "em"
    model: ClassVar[str] = "ols"
    theory: ClassVar[Mapping[str, Theory]] = {"central": GAPS}
    options: ClassVar[Mapping[str, str]] = {
        "complete": "public guess of the share of rows that miss no value; for the plan alone",
        "normal": "whether covariates and errors are normal, as is publicly known; default False",
    }

    @property
    def effect_of_gaps(self) -> str:
        """They were completed."""
        return "and were completed from the other columns of their rows"

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        need_delta(self.name, privacy)
        expected.check_completable(design)
        growing = _GROWTH ** np.arange(_STEPS)
        left = 1 - _LENGTH - _GRAM - _PAIRS - _STEPS * _SPREAD - _SQUARES
        asks = [
            Request("length", _LENGTH, "a length that few rows exceed"),
            Request("gram", _GRAM, "second moments of what was observed"),
            Request("observed", _PAIRS, "rows in which covariates were observed, and pairs"),
        ]
        for t, part in enumerate(growing / growing.sum(), 1):
            asks.append(Request(f"spread {t}", _SPREAD, "spread of the residuals, for the clip"))
            asks.append(Request(f"score {t}", float(left * part), "score of completed rows"))
        asks.append(Request("squares", _SQUARES, "squares of residuals of completed rows"))
        asks = with_scales(asks, design, privacy, n)
        normal = options.get("normal", False)
        if not isinstance(normal, bool):
            raise OptionError(f"normal={given(normal)}: True or False is needed.")
        plan = counted_plan(self, design, privacy, n, asks, {"normal": normal})
        share = need_positive("complete", options.get("complete"), 1.0, most=1.0)
        return without_scales(
            expected.expect_completed(plan, design, share, _RADIUS, _CLIP), design
        )

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> CoefficientEstimate:
        """Ask for moments, step, and fit all of it."""
        return in_found_scales(_estimate, holder, design)


def _estimate(holder: Holder[Query], design: Design) -> CoefficientEstimate:
    moments = _Moments.of(holder, design)
    precision = np.linalg.inv(moments.second)
    law = moments.law((precision + precision.T) / 2)
    made = Parts.of(law.rows(even_points(law.uniforms, _MADE)))
    curvature = floor_eigenvalues(made.completed.T @ made.completed / _MADE, _LEAST)
    metric = Geometry(
        _RADIUS * math.sqrt(len(curvature)), np.linalg.inv(np.linalg.cholesky(curvature))
    )
    beta, spread, scores = _steps(holder, design, law.precision, metric, moments.rows)
    explained = float(beta @ (law.moments - curvature) @ beta)
    variance = max(spread**2 - max(explained, 0.0), _LEAST_SPREAD * spread**2)
    start = replace(law, coef=beta, sigma=math.sqrt(variance))
    finish = fit_released(start, [*moments.asked, *scores], moments.rows)
    unseen = () if moments.unseen is None else tuple(design.names[j] for j in moments.unseen)
    return completed_estimate(start, finish, moments.rows, holder.plan, unseen)


def _steps(
    holder: Holder[Query], design: Design, precision: Array, metric: Geometry, rows: float
) -> tuple[Array, float, list[AnsweredQuery]]:
    """Coefficients after Newton steps, the last spread of residuals, and what was answered."""
    assert metric.whiten is not None
    beta, spread, asked = np.zeros(len(precision)), 1.0, []
    for t in range(_STEPS):
        spreads = ResidualQuantile(response_bound(design) * _SPREADS, _QUANTILE, beta)
        (value,), _ = holder.ask(Completed(spreads, precision), f"spread {t + 1}")
        spread = float(value) / _TO_SD
        query = Score(metric, beta, (_CLIP if t else _FIRST_CLIP) * spread)
        total, noise = holder.ask(Completed(query, precision), f"score {t + 1}")
        asked.append(_asked_score(query, total, noise.sd))
        beta = beta + metric.whiten.T @ total / (rows * _KEPT)
    last = ResidualMoment(metric, beta, _SQUARED * spread)
    (squares,), noise = holder.ask(Completed(last, precision), "squares")
    asked.append(_asked_squares(last, squares, noise.sd))
    return beta, spread, asked


def _asked_score(query: Score, answer: Array, sd: float) -> AnsweredQuery:
    """A score as a question to made-up rows."""

    def contributions(made: Array) -> Array:
        z, weights, residual = _clipped(query, made)
        shortened: Array = z * (residual * weights**2)[:, None]
        return shortened

    return AnsweredQuery(contributions, answer, sd)


def _asked_squares(query: ResidualMoment, answer: float, sd: float) -> AnsweredQuery:
    """Squares of residuals as a question to made-up rows."""

    def contributions(made: Array) -> Array:
        _, weights, residual = _clipped(query, made)
        squares: Array = ((residual * weights) ** 2)[:, None]
        return squares

    return AnsweredQuery(contributions, np.array([answer]), sd)


def _clipped(query: Score | ResidualMoment, made: Array) -> tuple[Array, Array, Array]:
    """Whitened completed rows, their weights, and their clipped residuals."""
    parts, whiten = Parts.of(made), query.geometry.whiten
    assert whiten is not None
    z = parts.completed @ whiten.T
    residual = np.clip(parts.y - parts.completed @ query.beta, -query.clip, query.clip)
    return z, _weights(z, query.geometry), residual


def _norms(x: Array) -> Array:
    norms: Array = np.sqrt(np.einsum("ij,ij->i", x, x))
    return norms


def _weights(x: Array, ball: Geometry) -> Array:
    weights: Array = np.minimum(1.0, ball.radius / _norms(x))
    return weights


def _rarest_pair(seen: Array, sd: float) -> tuple[int, int] | None:
    """Two covariates, each observed, that no more rows have both of than noise may make.

    A share of rows is a quarter of 1 and three signs, each with the noise `sd`.
    """
    least = max(_LEAST_SEEN, _DOUBT * math.sqrt(3) / 4 * sd)
    observed = np.flatnonzero(seen[0] > least)[1:]  # without the constant
    pairs = [(i, j) for i in observed for j in observed if i < j and seen[i, j] <= least]
    return min(pairs, key=lambda pair: float(seen[pair]), default=None)


def _held(moments: Array, least: float) -> Array:
    """Second moments with eigenvalues within limits, whatever the noise on them was."""
    values, vectors = np.linalg.eigh((moments + moments.T) / 2)
    held: Array = (vectors * np.clip(values, min(least, _MOST), _MOST)) @ vectors.T
    return held


def _outer(x: Array) -> Array:
    """Packed outer product of each row with itself, shape (m, d (d + 1) / 2)."""
    i, j = np.triu_indices(x.shape[1])
    products: Array = x[:, i] * x[:, j] * np.where(i == j, 1.0, math.sqrt(2.0))
    return products
