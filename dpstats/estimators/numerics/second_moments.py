"""A noisy matrix of second moments, made as good as its known noise lets it be."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["invertible", "posterior_means", "shrunk", "two_values"]

Array = NDArray[np.float64]

_EVIDENCE = 2.0  # ses: excess over noise, below which there is none
_GRID = 256  # numerical: support points of the prior
_FINEST = 0.25  # numerical: their largest spacing, in noise sds
_PASSES = 60  # numerical: of the algorithm for its weights
_FLOOR = 1e-3  # numerical: least eigenvalue, over the mean
_NOISE_FLOOR = 0.3  # numerical: noise that is left at least, to that before
_GUESS = 0.3  # ratio: doubt about the public guess, over the guess
_LEAST_SCALE = 0.2  # numerical: of second moments to the public guess, at least
_AT_BOUNDS = 0.95  # share: of the largest variance, from which a column has two values
_LEAST_NOISES = 2.0  # numerical: the same in noise sds, where that is less


def shrunk(
    gram: Array, variances: Array, target: Array, fewest: int = 2
) -> tuple[Array, float, float]:
    """Second moments with their noise reduced by empirical Bayes.

    The off-diagonal entries of ``gram - target`` are many numbers with one known noise variance.
    If they are no more spread than noise, they are noise, and the target stands. Otherwise each
    is replaced by its posterior mean under the prior that makes all of them most likely (the
    nonparametric maximum likelihood estimate): nearly as good as if the distribution of the true
    entries were known (Jiang & Zhang 2009). Diagonal entries move towards those of the target,
    times one factor for all, by the rule of James & Stein.

    Parameters
    ----------
    gram : ndarray of shape (k, k)
        Released, symmetric.
    variances : ndarray of shape (k, k)
        Known noise variances; alike off the diagonal.
    target : ndarray of shape (k, k)
        Public guess, with a positive diagonal.
    fewest : int, default 2
        Numbers off the diagonal, below which they stay as they are where they are not noise: fewer
        do not tell how much of theirs a posterior leaves.

    Returns
    -------
    gram : ndarray of shape (k, k)
    part : float
        Root mean square of the posterior standard deviations off the diagonal, over that of the
        noise: 0 where nothing is left of it, 1 where nothing could be done.
    counted : float
        The part that standard errors must count: no less than what is not seen in so few numbers.
    """
    made, expected = gram.copy(), np.diag(target)
    diagonal, noise = np.diag(gram), float(np.mean(np.diag(variances)))
    # 1. One factor for all of the target: noisy, but the public guess is not far off.
    size = float(expected @ expected)
    known, wanted = size / noise if noise else math.inf, 1 / _GUESS**2
    found = float(diagonal @ expected) / size
    scale = (known * found + wanted) / (known + wanted) if math.isfinite(known) else found
    target = target * np.float64(max(scale, _LEAST_SCALE))
    # 2. Diagonal entries towards it.
    apart = diagonal - np.diag(target)
    spread = float(np.mean(apart**2))
    clear = spread > noise * (1 + _EVIDENCE * math.sqrt(2 / diagonal.size))
    kept = 1 - noise / spread if clear else 0.0
    least = np.minimum(_LEAST_SCALE * np.diag(target), _LEAST_NOISES * math.sqrt(noise))
    held = np.maximum(np.diag(target) + kept * apart, least)
    made[np.diag_indices_from(made)] = held
    # 3. The others.
    i, j = np.triu_indices_from(gram, k=1)
    sd = math.sqrt(float(np.mean(variances[i, j]))) if i.size > 1 else 0.0
    if sd == 0:  # a single number is not many
        return made, 1.0, 1.0
    values = (gram - target)[i, j]
    excess = (float(np.mean(values**2)) / sd**2 - 1) * math.sqrt(i.size / 2)
    shift = abs(float(values.mean())) / sd * math.sqrt(i.size)
    if max(excess, shift) < _EVIDENCE:
        means, part = np.zeros(i.size), 0.0
    elif i.size < fewest:
        means, part = values, 1.0
    else:
        means, part = posterior_means(values, sd)
    made[i, j] = made[j, i] = target[i, j] + means
    # Their mean square is known to sqrt(2/m) of that of the noise.
    unseen = (1 + (0.0 if part else max(excess, 0.0))) * math.sqrt(2 / i.size)
    return made, part, min(1.0, max(part, math.sqrt(unseen)))


def posterior_means(values: Array, sd: float) -> tuple[Array, float]:
    """Posterior means (m,) of normal observations, and the rms posterior sd over `sd`.

    The prior is the nonparametric maximum likelihood estimate on a grid. Where the grid would be
    too coarse for the noise, values are returned as they are.
    """
    low, high = float(values.min()), float(values.max())
    grid = np.linspace(low, high, _GRID)
    if grid[1] - grid[0] > _FINEST * sd:
        return values, 1.0
    likelihood = np.exp(-0.5 * ((values[:, None] - grid) / sd) ** 2)
    prior = np.full(_GRID, 1 / _GRID)
    for _ in range(_PASSES):
        weights = likelihood * prior
        weights /= weights.sum(axis=1, keepdims=True)
        prior = weights.mean(axis=0)
    means: Array = weights @ grid
    spread = float(np.mean(weights @ grid**2 - means**2))
    return means, math.sqrt(max(spread, 0.0)) / sd


def invertible(gram: Array, sd: float, part: float) -> tuple[Array, Array]:
    """The matrix with its eigenvalues raised above what noise of sd `sd`, shrunk to `part`, leaves.

    The operator norm of a symmetric k x k matrix of noise is about 2 sqrt(k) times its sd.

    Returns
    -------
    repaired : ndarray of shape (k, k)
    hidden : ndarray of shape (k, k)
        Sum of the outer products of the directions that were raised, weighted by the square of
        the share of the new eigenvalue that is made up: what is not known about coefficients, in
        units of their prior variance.
    """
    k = len(gram)
    values, vectors = np.linalg.eigh((gram + gram.T) / 2)
    least = _FLOOR * max(float(np.trace(gram)) / k, 1e-12)
    floor = max(2 * math.sqrt(k) * sd * max(part, _NOISE_FLOOR / 2), least)
    raised = np.maximum(values, floor)
    made_up = 1 - np.maximum(values, 0.0) / raised
    return (vectors * raised) @ vectors.T, (vectors * made_up**2) @ vectors.T


def two_values(bounds: Array, means: Array, sds: Array) -> Array:
    """Bounds (p, 2) of the columns that lie at them, such as dummies; missing for others.

    Of all laws between two bounds, those at the bounds alone have the variance
    ``(mean - low) (high - mean)``, and no other has as much (Bhatia and Davis 2000).
    """
    low, high = bounds.T
    most = (means - low) * (high - means)
    apart = (most > 0) & (sds**2 > _AT_BOUNDS * most)
    return np.where(apart[:, None], bounds, np.nan)
