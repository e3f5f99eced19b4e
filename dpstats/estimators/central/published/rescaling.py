"""The last rescaling of a sparse fit: slopes times the factor that explains the response best."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.base import Request
from dpstats.estimators.wide import SparseGuess
from dpstats.families import GAUSSIAN
from dpstats.protocol import Holder
from dpstats.queries import Geometry, Gram, Query, Score, Selected

__all__ = ["rescale_slopes", "rescaling"]

Array = NDArray[np.float64]

_RESCALING = (0.03, 0.02)  # budget: fitted values times responses, and squares of fitted values
_PRECISE = 0.2  # ratio: standard deviation of the factor below which it is drawn towards 1
_NORMAL_UPPER = 1.1503493803760079  # printed: upper quartile of the absolute standard normal
_REACH = 3.0  # sds: clip of fitted values and responses in the rescaling


def rescaling() -> tuple[Request, ...]:
    """What `rescale_slopes` asks."""
    along, size = _RESCALING
    return (
        Request("along", along, "response along the fitted values, to rescale them"),
        Request("size", size, "squared fitted values, to rescale them"),
    )


def rescale_slopes(
    holder: Holder[Query], facts: SparseGuess, beta: Array, n: float, clips: Sequence[float]
) -> tuple[Array, float]:
    """Slopes times the factor by which fitted values explain the response best, in [0, 2].

    With f the fitted values without intercept, r the residual at the intercept alone and weights
    w = min(1, 3 c / |f|), the sums A of w^2 f clip(r, -3c, 3c) and B of w^2 f^2 are released; A / B
    is the least-squares factor. Privacy noise that made f long is uncorrelated with r, so that the
    factor is small where f is mostly noise: the squared prediction error is about that of zero
    slopes then, and smaller elsewhere. Chance correlations of the selected columns are taken off A
    (`_chance`), and A and B count as far as they stand out of their noise. For a logit A / B is the
    first Newton step from 0, which is solved for the factor under normal linear predictors.

    Parameters
    ----------
    beta : ndarray of shape (d,)
        Public coefficients.
    n : float
        Released number of rows.
    clips : sequence of float
        Released upper quartiles of the residuals, at zero coefficients first, at the last ones
        last; 1 for a logit.

    Returns
    -------
    tuple of ndarray of shape (d,) and float
        Coefficients with rescaled slopes, and the factor.
    """
    slopes = beta.copy()
    slopes[list(facts.always)] = 0.0
    gaussian = facts.family == GAUSSIAN
    fitted = _NORMAL_UPPER * math.sqrt(float(facts.moments @ slopes**2))
    c = min(clips[0], math.hypot(clips[-1], fitted))
    columns = tuple(int(j) for j in np.flatnonzero(beta)) or (0,)
    chosen = list(columns)
    geometry = Geometry(_REACH * c, slopes[chosen][None, :])
    query = Score(geometry, (beta - slopes)[chosen], _REACH * c if gaussian else 1.0, facts.family)
    (along,), (_, error) = holder.ask(Selected(query, columns), "along")
    size, (_, noise) = holder.ask(Selected(Gram(geometry), columns), "size")
    squared = max(float(size[0, 0]), noise)
    variance = (clips[-1] / _NORMAL_UPPER) ** 2 if gaussian else 0.25
    sure = max(0.0, 1 - (error / along) ** 2) * max(0.0, 1 - (noise / (n * c**2)) ** 2)
    explained = sure * (along - _chance(facts, slopes, n, variance))
    ratio = explained / (squared * facts.curvature)
    if not gaussian:
        at = float(np.sum(beta - slopes))
        ratio = _logit_factor(ratio, math.sqrt(squared / n), at)
    # Where the factor is precise and close to 1, its noise would only add to the error.
    away, blur = ratio - 1, error / (squared * facts.curvature)
    if blur < _PRECISE and away != 0:
        ratio = 1 + away * max(0.0, 1 - (2 * blur / away) ** 2)
    factor = float(np.clip(ratio, 0.0, 2.0))
    return beta + (factor - 1) * slopes, factor


def _chance(facts: SparseGuess, beta: Array, n: float, variance: float) -> float:
    """What the response's noise contributes to its sum along fitted values that it chose.

    A coefficient fitted to noise of this variance contributes variance/curvature. One that is the
    largest of d/s by chance contributes 1 + 2 log(d/s) times as much; those whose square is up to
    half as large again are taken to be so.
    """
    log = math.log(beta.size / max(facts.sparsity, 1))
    squared = n * facts.moments * beta**2 * facts.curvature**2 / variance
    lucky = (squared > 0) & (squared < 3 * log)
    freedom = np.count_nonzero(squared) + 2 * log * np.count_nonzero(lucky)
    return variance / facts.curvature * freedom


def _logit_factor(ratio: float, deviation: float, at: float) -> float:
    """c with ``4 E[f (mean(at + c f) - mean(at))] = ratio E[f^2]``, f ~ N(0, deviation^2); or 2."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(31)
    weights = weights / weights.sum()
    low, high = 0.0, 2.0
    for _ in range(50):
        c = (low + high) / 2
        mean = 1 / (1 + np.exp(-at - c * deviation * nodes))
        reached = 4 * float(weights @ (nodes * mean)) / deviation
        low, high = (c, high) if reached < ratio else (low, c)
    return low
