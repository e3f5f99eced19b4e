"""Clips from a private scale of residuals: PrivateVariance (Karwa & Vadhan 2018; Li et al. 2024).

Residuals are paired at random; half the spread of a pair's difference is a scale of its own, so
that a histogram of pairs over octaves finds the scale of all residuals without knowing where they
are centred.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError, given, is_whole
from dpstats.estimators.guesses import Guess, round_up, rows_known
from dpstats.privacy import Privacy
from dpstats.protocol import Plan
from dpstats.queries import PairScales

if TYPE_CHECKING:
    from dpstats.design import Design
    from dpstats.estimators.wide import SparseGuess

__all__ = [
    "FAILURE",
    "TYPICAL",
    "adapted_clip",
    "batches",
    "covariate_clip",
    "eigenvalues",
    "few_pairs",
    "log_factor",
    "need_pairs",
    "pair_scales",
    "threshold",
]

Array = NDArray[np.float64]

FAILURE = 0.05  # printed: probability eta of the papers' high-probability statements
TYPICAL = 4.0  # sds: that PrivateVariance returns, about (between 0.7 and 8)
_MODE = 0.35  # printed: share of Gaussian pairs lies in the fullest cell
_MARGIN = 2.0  # ratio: eigenvalues of the second moments may be off their guess by this factor
_BATCHES = (2, 500)  # numerical: fewest and most batches
_OCTAVES = 20  # numerical: scales of the histogram, from the largest possible difference downwards


def covariate_clip(facts: SparseGuess, n: int) -> float:
    """The papers' truncation of covariates, and the public bound if that is smaller."""
    sds = 2 * math.sqrt(facts.top * math.log(n * facts.moments.size / FAILURE))
    return min(facts.reach, sds * math.sqrt(float(np.max(facts.moments))))


def need_pairs(method: str, design: Design, privacy: Privacy, instead: str) -> None:
    """Refuse settings in which a row has no public position.

    Raises
    ------
    OptionError
        If neighbours are add-remove, or a unit may have several rows.
    """
    if rows_known(design, privacy):
        return
    several = design.schema is not None and design.schema.unit is not None
    got = "several rows per unit" if several else "add-remove neighbours"
    got = got if design.subset is None else "a subset"
    raise OptionError(
        f"method={method!r} pairs rows and cuts them into batches of public size, "
        f"which needs replace-one neighbours, one row per unit and all rows; this is {got}. Use "
        f"method={instead!r}, which answers them all."
    )


def eigenvalues(facts: Guess) -> tuple[float, float]:
    """Range of the eigenvalues of the second moments, the guess widened by a margin."""
    values = np.linalg.eigvalsh(facts.gram)
    return max(float(values[0]), 1e-3) / _MARGIN, float(values[-1]) * _MARGIN


def batches(asked: object, contraction: float, n: int) -> int:
    """Disjoint batches of n rows: as many as are asked for, or as the contraction needs.

    Raises
    ------
    OptionError
        If the number asked for leaves batches of fewer than 4 rows.
    """
    low, high = _BATCHES
    if asked is not None:
        if not (is_whole(asked, low, high) and 4 * asked <= n):
            raise OptionError(
                f"steps={given(asked)}: an integer from {low} to {high} is needed, with batches of "
                f"at least 4 rows (n={n:,})."
            )
        return asked
    wanted = math.ceil(0.5 * math.log(max(n, 3)) / -math.log(contraction))
    return int(np.clip(wanted, low, min(high, max(n // 4, low))))


def pair_scales(beta: Array, bound: float) -> PairScales:
    """Histogram of pair differences at `beta`, in octaves below twice the public residual range."""
    high = math.ceil(math.log2(4 * bound))
    return PairScales(beta, low=high - _OCTAVES, high=high)


def threshold(scale: float, cells: int, steps: int) -> float:
    """Count that no empty cell of any batch reaches with probability 1 - eta (Laplace tails)."""
    return 1 + scale * math.log(cells * steps / FAILURE)


def few_pairs(plan: Plan, pairs: PairScales, instead: str) -> tuple[str, ...]:
    """A warning where the pairs of a batch, by their law, pass no threshold; none elsewhere."""
    steps, n = int(plan.options["steps"]), plan.n
    least = threshold(plan.noise(pairs, "pairs").scale, pairs.high - pairs.low + 1, steps)
    if _MODE * n / (2 * steps) > least:
        return ()
    return (
        f"n={n:,} leaves {n // (2 * steps):,} pairs of rows in each of {steps} batches: too few "
        f"for PrivateVariance at epsilon={plan.privacy.epsilon:g}, so clips stay at the public "
        f"bound of the response. About n={round_up(2 * steps * least / _MODE):,} rows suffice; "
        f"method={instead!r} needs far fewer.",
    )


def log_factor(n: int) -> float:
    """``sqrt(log(n / eta))``, from the public n."""
    return math.sqrt(math.log(n / FAILURE))


def adapted_clip(
    counts: Array, pairs: PairScales, scale: float, steps: int, factor: float, bound: float
) -> float:
    """Clip from the noisy histogram, the public bound if no cell passes the threshold.

    Parameters
    ----------
    counts : ndarray of shape (cells,)
        Released counts of `pairs`.
    scale : float
        Scale of their Laplace noise.
    steps : int
        Batches asked in one fit.
    factor : float
        Clip over the released scale.
    bound : float
        Public bound of the response; the clip is never larger.
    """
    best = int(np.argmax(counts))
    if counts[best] < threshold(scale, counts.size, steps):
        return bound
    upper_end = math.ldexp(1.0, pairs.low + best)
    return min(factor * 2 * upper_end, bound)
