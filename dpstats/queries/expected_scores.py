"""Scores of a linear model expected given what was observed of a row: rows with gaps in EM."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import PlanError
from dpstats.privacy import Neighbors
from dpstats.queries.base import AtMostOne, EachRow, Kind, Norm
from dpstats.queries.blocks import (
    V_BITS,
    Array,
    Block,
    Incomplete,
    Ints,
    bound_grid,
    dense,
    exact_product,
    exact_sum,
    truncate,
)

__all__ = ["ExpectedScores", "PeeledExpectedScores", "ShownRows"]

_SMALL, _FAR = 2.0**-30, 2.0**30  # of truncations and sigma: their products overflow nowhere
_FARTHEST = 2.0**31  # a prior beyond that many contributions would round the scores beside it


@dataclass(frozen=True, eq=False)
class _ExpectedScore(EachRow):
    """Sums ``v_j = prior_j + sum_i E[x_j (y - x'b) | what row i shows]``, truncated.

    Covariates are independent standard normal numbers, some of them missing at random, and ``y =
    x'b + sigma e``. With r the residual of the observed part, u the set of missing covariates and
    ``den = sigma^2 + |b_u|^2``, the gradient of the expected log-likelihood of a row is

        x_j e                                    where j was observed, e = r sigma^2 / den
        (b_j sigma^2 / den) (r^2 / den - 1)      where it is missing,

    and the query takes x_j held to [-T, T] and e to [-C, C], and r^2 / den up to T^2. Rows without
    a response, or without any covariate, add nothing.

    *Why.* Given x_o and y, x_u is normal with mean ``b_u r / den`` and covariance ``I - b_u b_u' /
    den``. So ``y - x'b`` has the mean ``r - |b_u|^2 r / den = e``, and ``E x_u (y - x_u'b_u - ...)
    = (b_u r / den) e - (I - b_u b_u' / den) b_u``, whose last product is ``b_u sigma^2 / den``.

    Guarantee: for every b, not only near the truth. Since ``|b_u|^2 >= b_j^2``, ``|b_j| sigma^2 /
    den <= |b_j| sigma^2 / (sigma^2 + b_j^2) <= sigma / 2``. An observed coordinate is at most T C
    in size. A missing one is a number in [0, sigma / 2] times one in [-1, max(T^2 - 1, 0)], and a
    sign that is public (b_j's): it lies between two numbers of opposite sign that are (sigma / 2)
    max(1, T^2) apart, and is at most m = (sigma / 2) max(1, T^2 - 1) in size. So replacing a row
    moves each sum by at most ``max(2 T C, T C + m, (sigma / 2) max(1, T^2))``, and adding or
    removing one by at most ``max(T C, m)``; each of the m rows of a unit counts once. Numbers are
    truncated towards zero, which keeps them between bounds of opposite sign. (With the second
    moment as printed by Zhang and Zhang the coordinate holds -b_j, which no truncation bounds.)

    Parameters
    ----------
    beta : ndarray of shape (d,)
        b; public coefficients, in internal coordinates.
    sigma : float
        Public standard deviation of the errors, in internal units.
    reach : float
        T, of covariates and of ``r / sqrt(den)``.
    clip : float
        C.
    prior : ndarray of shape (d,), optional
        Public numbers added to the sums; beyond 2^31 contributions they are taken to be there.
    """

    beta: Array
    sigma: float
    reach: float
    clip: float
    prior: Array | None = None

    def __post_init__(self) -> None:
        for name in ("sigma", "reach", "clip"):
            value = getattr(self, name)
            if not (math.isfinite(value) and _SMALL <= value <= _FAR):
                raise PlanError(f"{name}={value!r}: a number between 2^-30 and 2^30 is needed.")
        numbers = [self.beta, *([] if self.prior is None else [self.prior])]
        if not all(v.shape == self.beta.shape and np.isfinite(v).all() for v in numbers):
            raise PlanError("Coefficients and a prior: one finite number for each column.")

    def parameters(self) -> Mapping[str, Any]:
        """The coefficients that are not zero, sigma and the truncations; all public."""
        support = np.flatnonzero(self.beta)
        return {
            "columns": int(self.beta.size),
            "support": [int(j) for j in support],
            "beta": [float(b) for b in self.beta[support]],
            "sigma": self.sigma,
            "reach": self.reach,
            "clip": self.clip,
            "prior": self.prior is not None,
        }

    @property
    def _unseen(self) -> float:
        """Size of a missing coordinate, at most."""
        return self.sigma / 2 * max(1.0, self.reach**2 - 1)

    @property
    def _grids(self) -> tuple[float, float]:
        """Of e, and of missing coordinates."""
        return bound_grid(self.clip, V_BITS), bound_grid(self._unseen, V_BITS)

    @property
    def _squares(self) -> Array:
        """Squares of the coefficients, rounded up to a grid on which sums of them are exact.

        Up, and not to the nearest: beside a coefficient that is 2^25 times as large a square of
        ``b_j`` may round to nothing, and ``|b_j| sigma^2 / den`` would pass ``sigma / 2``.
        """
        squares = self.beta**2
        step = bound_grid(max(float(squares.sum()), _SMALL**2), 51)
        raised: Array = np.ceil(squares / step) * step
        return raised

    def total(self, block: Block) -> Ints:
        """Sums over what was observed and over what is missing, in steps, shape (2, d)."""
        whole, at, missing = _filled(block)
        r = whole.y - exact_product(whole, self.beta)
        variance = np.full(r.size, float(self.sigma) ** 2)
        variance[at] += missing @ self._squares  # exact: the same bits in any blocking
        ratio = self.sigma**2 / variance
        e = whole.keep * np.clip(r * ratio, -self.clip, self.clip)
        fine, coarse = self._grids
        limit = (np.floor(self.reach / block.grid) * block.grid).astype(np.float32)
        held = replace(whole, x=np.clip(whole.x, -limit, limit), memory={})
        seen = exact_sum(held.sums(truncate(e, fine)) / block.grid)
        height = np.minimum(r[at] ** 2 / variance[at], self.reach**2) - 1
        unseen = ((ratio[at] * height)[:, None] * self.beta) * missing
        return np.stack([seen, exact_sum(truncate(unseen, coarse).sum(axis=0))])

    def finish(self, total: Ints, grid: Array) -> Array:
        """The sums."""
        fine, coarse = self._grids
        sums: Array = total[0] * grid * fine + total[1] * np.float64(coarse)
        if self.prior is None:
            return sums
        farthest = _FARTHEST * max(self.reach * self.clip, self._unseen)
        return sums + np.clip(self.prior, -farthest, farthest)

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """L-infinity, of each sum: see above."""
        seen = self.reach * self.clip
        if neighbors is not Neighbors.REPLACE_ONE:
            return max_rows * max(seen, self._unseen)
        across = self.sigma / 2 * max(1.0, self.reach**2)
        return max_rows * max(2 * seen, seen + self._unseen, across)


def _live(block: Block) -> tuple[NDArray[np.bool_], Incomplete] | None:
    """Which incomplete rows show a response and some covariate, and these rows; None without."""
    rows = None if block.incomplete is None else block.incomplete()
    if rows is None or not rows.rows.size:
        return None
    return ~rows.missing[:, -1] & ~rows.missing[:, :-1].all(axis=1), rows


@dataclass(frozen=True)
class ShownRows(AtMostOne, EachRow):
    """Number of rows that show their response and some covariate; a row counts 0 or 1."""

    name: ClassVar[str] = "rows that show something"
    norm: ClassVar[Norm] = "l1"

    def parameters(self) -> Mapping[str, Any]:
        """None."""
        return {}

    def total(self, block: Block) -> Ints:
        """One count."""
        found = _live(block)
        more = 0 if found is None else int(found[0].sum())
        return exact_sum(np.array([block.keep.sum() + more]))


def _filled(block: Block) -> tuple[Block, NDArray[np.intp], NDArray[np.bool_]]:
    """Dense rows with 0 where a covariate is missing; which have gaps, and where these are."""
    x, y, keep = np.array(dense(block.x)), block.y.copy(), block.keep.copy()
    at, missing = np.zeros(0, dtype=np.intp), np.zeros((0, x.shape[1]), dtype=np.bool_)
    found = _live(block)
    if found is not None:
        live, rows = found
        at, missing = rows.rows[live], rows.missing[live, :-1]
        x[at] = np.where(missing, 0.0, rows.x[live])
        y[at], keep[at] = rows.y[live], 1.0
    whole = replace(block, x=x, y=y, keep=keep, weight=keep, memory={}, incomplete=None)
    return whole, at, missing


@dataclass(frozen=True, eq=False)
class ExpectedScores(_ExpectedScore):
    """All expected scores, each with noise: sqrt(d) times the sensitivity of one in L2 norm."""

    name: ClassVar[str] = "expected scores of rows with gaps"
    norm: ClassVar[Norm] = "l2"

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """L2: sqrt(d) times that of one sum."""
        return math.sqrt(self.beta.size) * super().sensitivity(neighbors, max_rows)


@dataclass(frozen=True, eq=False)
class PeeledExpectedScores(_ExpectedScore):
    """Expected scores from which the largest in size are peeled one by one, each with its value.

    The answer has two rows: the positions of the chosen columns and their noisy scores.
    """

    name: ClassVar[str] = "peeled expected scores of rows with gaps"
    kind: ClassVar[Kind] = "peel"
    norm: ClassVar[Norm] = "linf"
