"""Which columns a sparse fit on devices keeps, and its coefficients on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.local.conclusion import NARROW, released, remarks_on
from dpstats.estimators.local.pool import (
    AnsweredQuestion,
    Fit,
    GramEstimate,
    estimate,
    pool_rounds,
)
from dpstats.protocol import CoefficientEstimate, Options, Plan

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["fixed", "largest_coefficients", "sizes_asked", "sparse_estimate", "stepwise"]

Array = NDArray[np.float64]
Index = NDArray[np.intp]

_CHOSEN = 0.5  # share: of the noise of second moments that counts in columns it may have chosen
_LEVEL = 0.1  # share: chance that a fit which chooses its size takes any column in vain


def sizes_asked(options: Options) -> list[int]:
    """Numbers of columns asked for, ascending; none where noise decides."""
    asked = options.get("sparsity")
    several = asked if isinstance(asked, (tuple, list)) else () if asked is None else (asked,)
    return sorted(map(int, several))


def fixed(design: Design) -> tuple[int, ...]:
    """Position of the intercept, which is always in."""
    at = design.standardization.intercept
    return () if at is None else (at,)


def sparse_estimate(
    rounds: Sequence[AnsweredQuestion],
    frame: GramEstimate,
    design: Design,
    plan: Plan,
    rows: int = 0,
) -> CoefficientEstimate:
    """Choose columns of the frame, and fit those."""
    width, always = len(design.names), fixed(design)
    sizes = sizes_asked(plan.options)
    now = np.zeros(width)
    for _ in range(2 if len(rounds) > 1 else 1):  # precision of rounds depends on coefficients
        vector = pool_rounds(rounds, frame, frame.columns, now)[0]
        if len(sizes) == 1:
            chosen = stepwise(frame, frame.columns, vector, sizes[0], always)
        else:
            chosen = _standing_out(rounds, frame, vector, always, width, rows)
            found = chosen.size - len(always)
            size = next((s for s in sizes if s >= found), max(sizes, default=found))
            chosen = stepwise(frame, frame.columns, vector, size, always)
        fit = estimate(rounds, frame, chosen, width, rows=rows, least=_CHOSEN)
        now = np.zeros(width)
        now[fit.columns] = fit.params
    params = np.zeros(width)
    params[fit.columns] = fit.params
    if len(rounds) == 1:  # later rounds see what the first took by chance
        free = np.setdiff1d(fit.columns, always)
        params[free] *= _towards_zero(fit, free)
    narrow, unknown = np.isin(fit.columns, frame.narrow).any(), np.full_like(fit.cov, np.nan)
    return CoefficientEstimate(
        params=params,
        cov=unknown if narrow else fit.cov,
        cov_privacy=unknown if narrow else fit.cov_privacy,
        nobs=float(sum(made.answer.count for made in rounds)),
        released=released(rounds, frame),
        remarks=remarks_on(rounds, frame.restricted(fit.columns), design.names),
        support=tuple(int(j) for j in fit.columns),
        inference=NARROW if narrow else "conditional on the columns selected",
    )


def _towards_zero(fit: Fit, free: NDArray[np.intp]) -> float:
    """What James & Stein leave of the k coefficients `free`: 1 - (k - 2)/k tr(V)/|b|^2."""
    at = np.isin(fit.columns, free)
    size, noise = float(np.sum(fit.params[at] ** 2)), float(np.trace(fit.cov[np.ix_(at, at)]))
    k = int(at.sum())
    return max(0.0, 1 - (k - 2) / k * noise / size) if k > 2 and size else 1.0


def _standing_out(
    rounds: Sequence[AnsweredQuestion],
    frame: GramEstimate,
    vector: Array,
    always: Sequence[int],
    width: int,
    rows: int,
) -> NDArray[np.intp]:
    """Columns added one by one while the last has a coefficient that noise alone does not give."""
    from scipy.special import ndtri

    least = -float(ndtri(_LEVEL / (2 * width)))
    chosen = stepwise(frame, frame.columns, vector, 1, always)
    for size in range(1, frame.columns.size - len(always) + 1):
        candidate = stepwise(frame, frame.columns, vector, size, always)
        fit = estimate(rounds, frame, candidate, width, rows=rows)
        clear = np.abs(fit.params) / np.sqrt(np.diag(fit.cov))
        free = ~np.isin(candidate, always)
        if clear[free].min(initial=math.inf) < least:
            break
        chosen = candidate
    return chosen


def stepwise(
    frame: GramEstimate, columns: Index, vector: Array, size: int, always: Sequence[int] = ()
) -> Index:
    """The `size` of `columns` that explain most of ``A theta``: forward steps, then exchanges.

    What a set S explains is ``v_S' A_SS^-1 v_S``. Columns in `always` are taken beside them.
    """
    at = np.searchsorted(frame.columns, columns)
    gram = frame.safe[np.ix_(at, at)]
    chosen = [int(np.searchsorted(columns, j)) for j in always]
    fixed = len(chosen)
    while len(chosen) < min(size + fixed, columns.size):
        chosen.append(_best_addition(gram, vector, chosen)[0])
    explained = _explained(gram, vector, chosen)
    for _ in range(2 * len(chosen)):
        better = False
        for place in range(fixed, len(chosen)):
            rest = chosen[:place] + chosen[place + 1 :]
            candidate, value = _best_addition(gram, vector, rest)
            if value > explained * (1 + 1e-9):
                chosen, explained, better = [*rest, candidate], value, True
        if not better:
            break
    return np.sort(columns[np.array(chosen, dtype=np.intp)])


def _explained(gram: Array, vector: Array, chosen: list[int]) -> float:
    part = vector[chosen]
    return float(part @ np.linalg.solve(gram[np.ix_(chosen, chosen)], part))


def _best_addition(gram: Array, vector: Array, chosen: list[int]) -> tuple[int, float]:
    """The column that explains most beside those chosen, and what all explain: one regression.

    Adding j to S explains (v_j - A_jS A_SS^-1 v_S)^2 / (A_jj - A_jS A_SS^-1 A_Sj) more.
    """
    if chosen:
        solved = np.linalg.solve(gram[np.ix_(chosen, chosen)], gram[chosen])
        rest = vector - vector[chosen] @ solved
        left = np.diag(gram) - np.einsum("ij,ij->j", gram[chosen], solved)
        base = _explained(gram, vector, chosen)
    else:
        rest, left, base = vector, np.diag(gram), 0.0
    gain = rest**2 / np.maximum(left, 1e-12)
    gain[chosen] = -1.0
    best = int(np.argmax(gain))
    return best, base + float(gain[best])


def largest_coefficients(coef: Array, size: Array, kept: int, always: Sequence[int]) -> Array:
    """The `kept` coefficients of largest `size`, and those of columns always in; zero elsewhere."""
    order = size.copy()
    order[list(always)] = math.inf
    left = np.argsort(-order, kind="stable")[: kept + len(always)]
    made = np.zeros_like(coef)
    made[left] = coef[left]
    return made
