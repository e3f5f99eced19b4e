"""Made-up gaps: rows that miss columns, and pairs of them, in the shares that were released."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.numerics.released import even_points

__all__ = ["made_up_gaps"]

Array = NDArray[np.float64]

_ALWAYS = 1 - 1e-3  # share: of rows, from which on a column is taken never to be missing
_ANGLES = 513  # numerical: places of an integral over correlations
_LEAST = 1e-6  # numerical: eigenvalues of correlations, at least


def made_up_gaps(both: Array, m: int) -> NDArray[np.bool_]:
    """Where m made-up rows miss columns, of shape (m, d): where a normal number is large.

    Of two columns a row has both as often as `both` says, as far as there are correlations of
    normal numbers that go with all pairs.

    Parameters
    ----------
    both : ndarray of shape (d, d)
        Shares of rows that have two columns, and along the diagonal each one.
    """
    from scipy.special import ndtri

    shares = np.diag(both)
    gaps = np.zeros((m, len(both)), dtype=np.bool_)
    (some,) = np.nonzero(shares < _ALWAYS)
    if not some.size:
        return gaps
    bounds = ndtri(shares[some])
    correlation = _correlation(bounds, both[np.ix_(some, some)])
    values, vectors = np.linalg.eigh(correlation)
    root = vectors * np.sqrt(np.maximum(values, _LEAST))
    root /= np.linalg.norm(root, axis=1)[:, None]
    normal = ndtri(np.clip(even_points(some.size, m), 1e-12, 1 - 1e-12))
    gaps[:, some] = normal @ root.T > bounds
    return gaps


def _correlation(bounds: Array, both: Array) -> Array:
    """Correlations of normal numbers of which two are within their bounds in shares `both`.

    By ``dP/dr = phi_2(h, k; r)``: with r = sin t the share is that at r = 0 plus the integral of
    ``exp(-(h^2 + k^2 - 2 h k sin t) / (2 cos^2 t)) / (2 pi)`` over t (Drezner & Wesolowsky 1990).
    """
    from scipy.special import ndtr

    i, j = np.triu_indices(bounds.size, 1)
    h, k = bounds[i], bounds[j]
    angles = np.linspace(-np.pi / 2, np.pi / 2, _ANGLES)[1:-1, None]
    density = np.exp(-(h**2 + k**2 - 2 * h * k * np.sin(angles)) / (2 * np.cos(angles) ** 2))
    steps = np.diff(angles, axis=0) * (density[1:] + density[:-1]) / 2
    shares = np.vstack([np.zeros(h.size), np.cumsum(steps, axis=0)]) / (2 * np.pi)
    shares += ndtr(h) * ndtr(k) - shares[len(angles) // 2]  # of independent numbers, at angle 0
    found = np.eye(bounds.size)
    for pair, (a, b) in enumerate(zip(i, j, strict=True)):
        angle = np.interp(both[a, b], shares[:, pair], angles[:, 0])
        found[a, b] = found[b, a] = np.sin(angle)
    return found
