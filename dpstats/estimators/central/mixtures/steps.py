"""What noisy moments around the components of a normal mixture say of it: a step of EM."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.base import floor_eigenvalues
from dpstats.estimators.central.mixtures.local import shaped
from dpstats.families.mixtures import NormalMixture
from dpstats.queries.mixtures import MixtureMoments

__all__ = ["left_by_clip", "stepped"]

Array = NDArray[np.float64]

_LEAST_WEIGHT = 0.02  # numerical: least share of a component
_CLEAR = 2.0  # sds: of its noise, that a component counts as at least
_LOST = 3.0  # sds: of its noise, below which a count says nothing of where the component is
_KEPT = 0.7  # ratio: of its covariance that a lost component keeps
_FARTHEST = 2.5  # numerical: standard deviations that a mean moves at most
_INNER = (0.15, 5.0)  # numerical: eigenvalues of a covariance to that of the step before
_FLOOR = 0.02  # numerical: least variance in any direction, to the mean of the total


def stepped(
    mixture: NormalMixture, query: MixtureMoments, answer: Array, noise: float, total: Array
) -> NormalMixture:
    """The mixture after one step of the EM algorithm, whatever the noise was.

    Parameters
    ----------
    mixture : NormalMixture
        Before.
    query, answer, noise : MixtureMoments, ndarray, float
        What was asked around it, the noisy answer and its standard deviation.
    total : ndarray of shape (d, d)
        Covariance of all rows.
    """
    counts, sums, seconds = query.moments(answer)
    sd = noise / (query.constant**2 if query.blocks else query.constant)
    rows = max(float(counts.sum()), 1.0)
    sizes = np.maximum(counts, max(_LEAST_WEIGHT * rows, _CLEAR * sd))
    if query.shape == "tied":  # the average over components, around their own means
        seconds = seconds * query.k * (sizes / rows)[:, None, None]
    second, first = left_by_clip(query.d, query.radius)
    means, covariances = mixture.means.copy(), mixture.covariances.copy()
    mean_variance = float(np.trace(total)) / query.d
    for j, root in enumerate(mixture.roots):
        if counts[j] < max(_LEAST_WEIGHT / 2 * rows, _LOST * sd):
            covariances[j] = _KEPT * covariances[j] + (1 - _KEPT) * total
            continue
        moved = sums[j] / sizes[j]
        moved *= min(1.0, _FARTHEST / max(float(np.linalg.norm(moved)), 1e-9))
        if query.blocks:
            inner = (seconds[j] / sizes[j] - np.outer(moved, moved)) / second
        else:
            inner = seconds[j] / sizes[j] - np.diag(moved**2)
        values, vectors = np.linalg.eigh((inner + inner.T) / 2)
        inner = (vectors * np.clip(values, *_INNER)) @ vectors.T
        means[j] += root @ moved / first
        covariances[j] = floor_eigenvalues(root @ inner @ root.T, _FLOOR * mean_variance)
    return NormalMixture(sizes / sizes.sum(), means, shaped(covariances, query.shape, sizes))


@lru_cache(maxsize=64)
def left_by_clip(d: int, radius: float) -> tuple[float, float]:
    """Of standard normal u shortened to c: g and b with ``E c c' = g I`` and ``E u c' = b I``."""
    from scipy.stats import chi, chi2

    inside = float(chi2.cdf(radius**2, d + 2))
    second = inside + radius**2 * float(chi2.sf(radius**2, d)) / d
    beyond = chi.expect(lambda x: x, args=(d,), lb=radius)
    return second, inside + radius * float(beyond) / d
