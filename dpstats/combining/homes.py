"""Estimates of several sites, homes that the target may come from, and the posterior over these.

Everything here is a function of released numbers: estimates theta_k of K + 1 sites and their
covariances C_k. Site 0 is the target.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Home",
    "agreeing",
    "heterogeneity",
    "homes_of",
    "one_by_one",
    "pool_estimates",
    "posterior",
]

Array = NDArray[np.float64]

_STEPS = 24  # number: of heterogeneities other than 0 that the posterior sums over
_LEAST, _MOST = 0.02, 2000.0  # ratio: of them, as variances over the target's own
_UNSURE = 1e-12  # probability: below which a home adds nothing
_LARGEST = 1e4  # ratio: heterogeneity beyond which sites have nothing in common
LEVELS = np.r_[0.0, np.geomspace(_LEAST, _MOST, _STEPS)]


class Home(NamedTuple):
    """A pool of sources that the target's coefficients may be near: N(mean, cov + lambda C_0).

    `weight` is in proportion to the probability that it is the target's, before that is looked at.
    """

    mean: Array
    cov: Array
    members: frozenset[int]
    weight: float = 1.0


def pool_estimates(theta: Array, cov: Array) -> tuple[Array, Array]:
    """Generalised least squares: the mean weighted by precisions, and its covariance.

    `theta` is (m, d), `cov` (m, d, d).
    """
    precision = np.linalg.inv(cov)
    total = np.linalg.inv(precision.sum(axis=0))
    return total @ np.einsum("kij,kj->i", precision, theta), total


def _spread(theta: Array, cov: Array) -> float:
    """Cochran's Q: squared distances from the pooled mean, each in its own covariance."""
    off = theta - pool_estimates(theta, cov)[0]
    return float(np.einsum("ki,ki->", off, np.linalg.solve(cov, off[..., None])[..., 0]))


def heterogeneity(theta: Array, cov: Array, metric: Array) -> float:
    """tau^2 >= 0 at which Q of sites with covariances ``C_k + tau^2 metric`` is its expectation.

    Paule & Mandel (1982), in a common metric. Q falls in tau^2, so that there is one root at most.
    """
    from scipy.optimize import brentq

    freedom: int = (len(theta) - 1) * theta.shape[1]

    def excess(tau2: float) -> float:
        return _spread(theta, cov + tau2 * metric) - freedom

    if freedom == 0 or excess(0.0) <= 0:
        return 0.0
    high = 1.0
    while high < _LARGEST and excess(high) > 0:
        high *= 10.0
    if high >= _LARGEST:
        return high
    root: float = brentq(excess, 0.0, high, rtol=1e-6)
    return root


def homes_of(theta: Array, cov: Array, metric: Array, prior: Array) -> list[Home]:
    """Sources alone, and the pools that they make, the closest two first: 2 K - 1 homes.

    Closeness is the chi-squared distance of means under their covariances. The covariance of a
    pool holds what its members differ by. The target is not looked at.

    A pool of k sources is k times as likely a home, where it is one: it is a part of the next
    larger pool instead if its mean and that of the other part differ by no heterogeneity, of which
    the `prior` is that of the target's own distance to a home (`posterior`).
    """
    found = [Home(theta[k], cov[k], frozenset([k])) for k in range(len(theta))]
    live, distance, parts = list(range(len(theta))), {}, []

    def apart(i: int, j: int) -> float:
        if (i, j) not in distance:
            off = found[i].mean - found[j].mean
            distance[i, j] = float(off @ np.linalg.solve(found[i].cov + found[j].cov, off))
        return distance[i, j]

    while len(live) > 1:
        pairs = ((i, j) for at, i in enumerate(live) for j in live[at + 1 :])
        i, j = min(pairs, key=lambda pair: apart(*pair))
        members = found[i].members | found[j].members
        these = sorted(members)
        tau2 = heterogeneity(theta[these], cov[these], metric)
        found.append(Home(*pool_estimates(theta[these], cov[these] + tau2 * metric), members))
        parts.append((i, j))
        live = [k for k in live if k not in (i, j)] + [len(found) - 1]
    alone = np.ones(len(found))
    for whole, (i, j) in reversed(list(enumerate(parts, start=len(theta)))):
        alone[[i, j]] = alone[whole] * (1 - _one(found[i], found[j], metric, prior))
    weights = [float(p) * len(home.members) for p, home in zip(alone, found, strict=True)]
    return [home._replace(weight=w) for home, w in zip(found, weights, strict=True)]


def _one(left: Home, right: Home, metric: Array, prior: Array) -> float:
    """The probability that means of two pools differ by no heterogeneity, the first of `LEVELS`."""
    between = Home(right.mean, left.cov + right.cov, right.members)
    ((_, values, z),) = _rotated(left.mean, metric, [between])
    with np.errstate(divide="ignore"):
        log = np.log(prior) - 0.5 * _misfit(z, np.maximum(values, _UNSURE) + LEVELS[:, None])
    chances = np.exp(log - log.max())
    return float(chances[0] / chances.sum())


def agreeing(homes: list[Home], theta: Array, cov: Array, level: float) -> list[Home]:
    """The largest homes whose members agree by Cochran's test at `level`, pooled as equal."""
    from scipy.stats import chi2

    kept: list[Home] = []
    for home in sorted(homes, key=lambda h: -len(h.members)):
        if any(home.members <= larger.members for larger in kept):
            continue
        these = sorted(home.members)
        bound = chi2.ppf(1 - level, max(1, (len(these) - 1) * theta.shape[1]))
        if len(these) == 1 or _spread(theta[these], cov[these]) <= bound:
            kept.append(Home(*pool_estimates(theta[these], cov[these]), home.members, home.weight))
    return kept


class Posterior(NamedTuple):
    """Of the target's parameters: mean, covariance, and the probability of each home."""

    mean: Array
    cov: Array
    homes: Array


def posterior(own: Array, cov: Array, homes: list[Home], prior: Array) -> Posterior:
    """Of theta_0 given ``own ~ N(theta_0, C_0)`` and its home.

    Parameters
    ----------
    own, cov : ndarray of shape (d,), (d, d)
        The target's own estimate and covariance C_0.
    homes : list of Home
        theta_0 is N(mean_m, cov_m + lambda C_0) of home m.
    prior : ndarray of shape (L,)
        Prior weights of the heterogeneities lambda in `LEVELS`, in proportion.

    Notes
    -----
    In coordinates in which C_0 is the identity and cov_m diagonal (w), z = own - mean_m is
    N(0, 1 + w + lambda) and the posterior of theta_0 given m and lambda has mean
    ``own - z / (1 + w + lambda)`` and variance ``(w + lambda) / (1 + w + lambda)``, coordinate by
    coordinate. What follows is the mixture of these normal laws: its mean and its covariance.
    """
    root = np.linalg.cholesky(cov)
    log, steps, inner = [], [], []
    with np.errstate(divide="ignore"):
        beliefs = np.log(prior)
    for home, (basis, values, z) in zip(homes, _rotated(own, cov, homes), strict=True):
        spread = values + LEVELS[:, None]
        log.append(beliefs + _log(home.weight) - 0.5 * _misfit(z, 1 + spread))
        steps.append(-(z / (1 + spread)) @ basis.T)
        inner.append((basis, spread / (1 + spread)))
    chance = np.exp(np.array(log) - np.max(log))
    chance /= chance.sum()
    moves = np.array(steps)
    step = np.einsum("ml,mli->i", chance, moves)
    total = np.einsum("ml,mli,mlj->ij", chance, moves - step, moves - step)
    for each, (basis, variances) in zip(chance, inner, strict=True):
        if each.sum() > _UNSURE:
            total += (basis * (each @ variances)) @ basis.T
    return Posterior(own + root @ step, root @ total @ root.T, chance.sum(axis=1))


def _log(weight: float) -> float:
    """Its logarithm: a weight may be 0 in floating point."""
    return math.log(max(weight, 1e-300))


def _misfit(z: Array, variances: Array) -> Array:
    """-2 log density of z ~ N(0, variances), but for a constant; shape (L,)."""
    fit: Array = (np.log(variances) + z**2 / variances).sum(axis=1)
    return fit


def _rotated(own: Array, cov: Array, homes: list[Home]) -> Iterator[tuple[Array, Array, Array]]:
    """Of each home the axes in which its covariance is diagonal, that diagonal, and z.

    In units in which the target's covariance, `cov`, is the identity.
    """
    root = np.linalg.cholesky(cov)
    for home in homes:
        shared = np.linalg.solve(root, np.linalg.solve(root, home.cov).T)
        values, basis = np.linalg.eigh((shared + shared.T) / 2)
        yield basis, np.maximum(values, 0.0), basis.T @ np.linalg.solve(root, own - home.mean)


def one_by_one(own: Array, cov: Array, homes: list[Home], prior: Array) -> tuple[Array, Array]:
    """What is expected of each coefficient without its own estimate: mean and variance, (d,) each.

    Arguments are those of `posterior`.

    Notes
    -----
    Of normal X = own with covariance C the part X - c X_j, c = C_j / C_jj, is independent of X_j.
    Given that part, X lies on a line of direction c: where X ~ N(m, S), S = V + (1 + lambda) C, its
    place is normal too, t = -c'S^-1 (X - m) / q from where it is, with precision q = c'S^-1 c, and
    theta_j has what is left of 1/q after C_jj. The density of the part itself, by which homes and
    lambda are weighed, is that of X over that of the place. The sources do not look at X, so that
    nothing here depends on X_j.
    """
    scale = np.diag(cov)
    lines = np.linalg.solve(np.linalg.cholesky(cov), cov / scale)
    log, places, spreads = [], [], []
    with np.errstate(divide="ignore"):
        beliefs = np.log(prior)
    for home, (basis, values, z) in zip(homes, _rotated(own, cov, homes), strict=True):
        wide, along = 1 + values + LEVELS[:, None], basis.T @ lines
        q = (1 / wide) @ along**2
        t = -((z / wide) @ along) / q
        chance = beliefs + _log(home.weight) - 0.5 * _misfit(z, wide)
        log.append(chance[:, None] + 0.5 * (q * t**2 - np.log(q)))
        places.append(own + t)
        spreads.append(np.maximum(1 / q - scale, _UNSURE * scale))
    chances = np.exp(np.array(log) - np.max(log, axis=(0, 1)))
    chances /= chances.sum(axis=(0, 1))
    mean = (chances * places).sum(axis=(0, 1))
    return mean, (chances * (np.array(spreads) + (places - mean) ** 2)).sum(axis=(0, 1))
