"""The multinomial logit of largest likelihood: Newton steps for all levels at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.central.newton.budget import resolved
from dpstats.estimators.central.newton.climb import Climb, whitened
from dpstats.estimators.central.newton.conclusion import Conclusion, presumed_effect
from dpstats.estimators.central.newton.curvature import drawn_to
from dpstats.estimators.central.newton.levels_rows import LevelRows
from dpstats.estimators.central.newton.likelihood import (
    LEAST_LENGTH,
    LONG,
    largest_sd,
    lengths_between,
    longest_step,
    prior_sd,
)
from dpstats.estimators.central.newton.questions import Bread
from dpstats.estimators.central.newton.remarks import far_out, not_identified, off_model
from dpstats.estimators.central.newton.whitening import FAR_ROW, REACHED
from dpstats.estimators.central.sandwich import noisy_count
from dpstats.estimators.numerics.entrywise import symmetric_pattern
from dpstats.protocol import Holder, foresee
from dpstats.protocol.levels import LevelsEstimate
from dpstats.queries import (
    LevelCount,
    LevelCurvature,
    LevelLengths,
    LevelScore,
    LevelSquares,
    NormQuantile,
    Query,
    ResponseHistogram,
)

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["Levels", "maximize_levels", "root_of"]

Array = NDArray[np.float64]

_SHOWN, _FEW = 2.0, 10.0  # ses: noises of a count that a level has at least, and that are few rows


@dataclass(frozen=True)
class Levels:
    """Names of the levels of a response, the base first."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, design: Design) -> Levels:
        """Those declared."""
        assert design.schema is not None
        assert design.endog is not None
        return cls(tuple(map(str, design.schema[design.endog.name].levels)))  # type: ignore[union-attr]

    @property
    def q(self) -> int:
        """Number of levels but the base."""
        return len(self.names) - 1


def root_of(shares: Array) -> Array:
    """The inverse root A of the covariance of levels with these shares, the base's first.

    The covariance ``S = diag(p) - pp'`` of the indicators of the others has the inverse
    ``diag(1 / p) + 11' / p_0``; in units of A a row of level y is ``sqrt(1 / p_y - 1)`` long.
    """
    inverse = np.diag(1 / shares[1:]) + 1 / shares[0]
    values, basis = np.linalg.eigh(inverse)
    root: Array = (basis * np.sqrt(values)) @ basis.T
    return root


def _kron(of_levels: Array, of_columns: Array) -> Array:
    """The Kronecker product: one level after another."""
    return np.asarray(np.kron(of_levels, of_columns), dtype=np.float64)


def maximize_levels(holder: Holder[Query], design: Design) -> LevelsEstimate:
    """Count levels, whiten, step, choose the clip, step twice, and conclude."""
    levels = Levels.of(design)
    n = noisy_count(holder, len(design.names) + levels.q)
    query = ResponseHistogram(np.arange(levels.q, dtype=np.float64) + 0.5, norm="l2")
    counts, noise = holder.ask(query, "levels")
    least = max(_SHOWN * noise.sd, 1.0)
    shares = np.maximum(counts, least)
    shares = shares / shares.sum()
    found, root = whitened(holder, design, n), root_of(shares)
    climb = _LevelsClimb(
        holder=holder,
        design=design,
        found=found,
        asks=_LevelQuestions(found.metric.w, root),
        n=n,
        rows=LevelRows(found.centre, found.cov, root),
        shares=shares,
    )
    few = [
        f"Level {name!r} has about {max(count, 0.0):,.0f} rows, which noise of {noise.sd:,.0f} "
        "nearly hides: its coefficients may be far off. Merge it with another one."
        for name, count in zip(levels.names, counts, strict=True)
        if count < _FEW * noise.sd
    ]
    return climb.reported(*climb.fit(), levels, few)


@dataclass(frozen=True, eq=False)
class _LevelQuestions:
    """Questions about all levels at once; see `Questions`."""

    rows: Array  # change of coordinates of rows, (d, d)
    root: Array

    @property
    def w(self) -> Array:
        """Coefficients of one level after another, of the columns, from whitened ones."""
        return _kron(self.root.T, self.rows)

    def at(self, b: Array) -> tuple[Array, Array, Array]:
        """What every question begins with: coordinates, coefficients and A."""
        beta = self.rows @ b.reshape(len(self.root), -1).T @ self.root
        return self.rows.T, beta, self.root

    def score(self, b: Array, clip: float, inner: float) -> Query:
        """`LevelScore`."""
        return LevelScore(*self.at(b), clip, inner)

    def histogram(self, b: Array, edges: Array) -> Query:
        """`LevelLengths`."""
        return LevelLengths(*self.at(b), edges)

    def count(self, b: Array, bound: float) -> Query:
        """`LevelCount`."""
        return LevelCount(*self.at(b), bound)

    def curvature(self, b: Array, clip: float, radius: float) -> Query:
        """`LevelCurvature`."""
        return LevelCurvature(*self.at(b), clip, radius)

    def squares(self, b: Array, clip: float, rows: int, each: bool) -> Query:
        """`LevelSquares`."""
        return LevelSquares(*self.at(b), clip, rows)


@dataclass(frozen=True, eq=False)
class _LevelsClimb(Climb):
    """Newton steps for the coefficients of all levels but the base, from the released shares.

    In units of A the information of a row is the unit matrix where slopes are 0.
    """

    rows: LevelRows
    shares: Array

    @property
    def root(self) -> Array:
        """A."""
        return self.rows.root

    def constant(self, predictors: Array) -> Array:
        """Coefficients b of these constant predictors (q,); nothing without an intercept."""
        b: Array = np.outer(np.linalg.solve(self.root.T, predictors), self.found.constant).ravel()
        return b

    @property
    def start(self) -> Array:
        """Log odds of the released shares."""
        return self.constant(np.log(self.shares[1:] / self.shares[0]))

    def prior_spread(self, clip: float) -> float:
        """Linear predictors of each level vary as those of a logit do, in units of A."""
        q = len(self.root)
        return prior_sd("logit") * q / math.sqrt(float((self.root**2).sum()))

    def effect(self, spread: float) -> Array:
        """Standard deviation presumed of coefficients of columns between 0 and 1; inf of others."""
        each = presumed_effect(self.design, prior_sd("logit"))
        return np.tile(each, len(self.root))

    @property
    def rarest(self) -> float:
        """Length of the residual of the rarest level where slopes are 0."""
        return math.sqrt(1 / float(self.shares.min()) - 1)

    def early_clip(self, k: int, b: Array, before: float) -> float:
        """All that a typical row may have."""
        return LONG * math.sqrt(self.found.centre.size) * self.rarest

    def bounded(self, to: Array) -> Array:
        """Coefficients drawn back to where predictors vary by a public number at most."""
        eta = self.rows.predictors(to)
        most = largest_sd("logit")
        factor = min(1.0, most / max(float(eta.std(axis=0).max()), 1e-300))
        if not self.found.constant.any():
            return to * factor
        mean, usual = eta.mean(axis=0), np.log(self.shares[1:] / self.shares[0])
        held = np.clip(mean, usual - most, usual + most)
        return self.constant(held) + (to - self.constant(mean)) * factor

    def stepped(self, b: Array, score: Array, noise: float, kept: float, spared: int = 0) -> Array:
        """A step no longer than rows that are not normal can bear, as of a logit."""
        to = super().stepped(b, score, noise, kept, spared)
        changed = (self.rows.predictors(to) - self.rows.predictors(b)).std(axis=0).max()
        most = longest_step("logit", self.rarer(b))
        shorter: Array = b + (to - b) * min(1.0, most / max(float(changed), 1e-300))
        return shorter

    def rarer(self, b: Array) -> float:
        """Share of rows with the rarest level, but at most half."""
        return min(0.5, float(self.shares.min()))

    def edges(self, b: Array, clip: float) -> Array:
        """Lengths between the cells of their histogram: from typical ones to those far out."""
        typical = math.sqrt(b.size)
        longest = max(1.0, self.rarest / math.sqrt(len(self.root)))
        return typical * lengths_between(LEAST_LENGTH, FAR_ROW * longest, 4 * FAR_ROW)

    def bread(self, b: Array, clip: float) -> Bread:
        """Minus the derivative of the score: as released, averaged with what the model expects."""
        d, q = self.found.centre.size, len(self.root)
        plan, metric = self.holder.plan, self.found.metric
        grid = math.sqrt(d) * np.geomspace(0.7, FAR_ROW, 17)
        search = NormQuantile(grid, 0.5, metric.w.T)
        reached = resolved(REACHED, plan, search, "steepest")
        search = NormQuantile(grid, reached, metric.w.T)
        (length,), _ = self.holder.ask(search, "steepest")
        sizes = np.sqrt(np.linalg.norm(self.rows.variances(b), axis=(1, 2))) * self.rows.lengths
        longer = float(length) / float(np.quantile(self.rows.lengths, reached))
        radius = float(np.quantile(sizes, reached)) * max(1.0, longer)
        curvature = self.asks.curvature(b, clip, radius)
        foresee(self.holder, [curvature, *self.parts(b, clip)])
        answer = self.holder.ask(curvature, "bread")

        matrix, variances, level = drawn_to(
            answer.value,
            answer.noise.sd,
            self.rows.curvature(b),
            _kron(np.eye(q), metric.variances / self.n**2),
            _kron(symmetric_pattern(q), symmetric_pattern(d)),
        )
        missed = plan.noise(search, "steepest").sd / self.n
        leverage = far_out(float(length) / math.sqrt(d), reached, missed, d)
        return Bread(matrix, variances, level, leverage, b, radius)

    def reported(
        self, found: Conclusion, said: dict[str, float], levels: Levels, few: Sequence[str]
    ) -> LevelsEstimate:
        """The estimate, with what was released beside it and what that says of the fit."""
        change = _kron(np.eye(levels.q), self.design.standardization.transform()[0])
        whole, part = (
            np.einsum("ij,jk,ik->i", change, matrix, change)
            for matrix in (found.cov, found.presumed)
        )
        hidden = tuple(int(j) for j in np.flatnonzero(2 * part > whole))
        return LevelsEstimate(
            levels=levels.names,
            params=found.params,
            cov=found.cov,
            cov_privacy=found.cov_privacy,
            cov_sampling=found.cov_sampling,
            nobs=self.n,
            released={**said, "shares": dict(zip(levels.names, self.shares.tolist(), strict=True))},
            remarks=(
                *few,
                *not_identified(hidden, found.short, self.holder.plan),
                *off_model(said["lean of long scores"], said["leverage"]),
            ),
            not_identified=hidden,
        )
