"""Rules that combine the sites' estimates for a target: ``combine="blend"`` and its kin.

A rule reads released numbers alone, so it costs no privacy, and each site may be the target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from dpstats.combining.homes import (
    LEVELS,
    Home,
    agreeing,
    homes_of,
    one_by_one,
    pool_estimates,
    posterior,
)

__all__ = ["PRINTED", "RULES", "CombinedEstimate", "combined", "distances"]

Array = NDArray[np.float64]

_EQUAL = 0.5  # probability: that the target has its home's own coefficients
_TAIL = 1.3  # exponent: of the prior density of the heterogeneity, > 1: it gives up pulling
_NEAR = 0.1  # ratio: heterogeneity below which that density is flat
_LEVEL = 0.05  # probability: of rejecting sources that agree
_HARMONIC = 3  # parameters: from which shrinkage can be better everywhere (Stein 1956)


@dataclass(frozen=True, eq=False)
class CombinedEstimate:
    """What a rule makes of K + 1 estimates for the target, which is the first.

    Attributes
    ----------
    value, cov : ndarray of shape (d,), (d, d)
        Estimate, and its mean square about the truth.
    assumed : ndarray of shape (d, d)
        The covariance where the target is one more site like those it is near.
    weights : ndarray of shape (K + 1,)
        How much of the estimate is each site's, in [0, 1].
    clusters : ndarray of int, shape (K + 1,)
        Sources of a number agree with each other; 0 for the target.
    prior : pair of ndarray of shape (d,), optional
        Mean and variance of each coefficient by all but its own estimate, of which intervals are
        made; normal ones of `cov` without.
    """

    value: Array
    cov: Array
    assumed: Array
    weights: Array
    clusters: NDArray[np.intp]
    prior: tuple[Array, Array] | None = None


def distances(theta: Array, cov: Array) -> Array:
    """Squared distances from the target, chi-squared with d degrees of freedom; shape (K + 1,)."""
    off = theta - theta[0]
    apart: Array = np.einsum("ki,ki->k", off, np.linalg.solve(cov + cov[0], off[..., None])[..., 0])
    return apart


def _heavy(equal: float, tail: float) -> Array:
    """Of the heterogeneity: `equal` at 0, the rest with a density that falls like a power."""
    density: Array = np.gradient(LEVELS) / (_NEAR + LEVELS) ** tail
    density[0] = 0.0
    density *= (1 - equal) / density.sum()
    density[0] = equal
    return density


def _flat() -> Array:
    """Density 1 of the heterogeneity: Stein's harmonic prior ||theta - mean||^(2 - d), d >= 3."""
    density: Array = np.gradient(LEVELS)
    density[0] = 0.0
    return density


def _shares(theta: Array, cov: Array, homes: list[Home], chances: Array, moved: float) -> Array:
    """The target's share, and those of sources by the precision they have in their homes."""
    precision = np.trace(np.linalg.solve(cov, np.broadcast_to(cov[0], cov.shape)), axis1=1, axis2=2)
    shares = np.zeros(len(theta))
    for home, chance in zip(homes, chances, strict=True):
        members = np.array(sorted(home.members)) + 1
        shares[members] += chance * precision[members] / precision[members].sum()
    return np.concatenate([[1 - moved], moved * shares[1:]])


def _numbered(count: int, found: list[Home]) -> NDArray[np.intp]:
    numbers = np.zeros(count, dtype=np.intp)
    for number, home in enumerate(found, start=1):
        numbers[np.array(sorted(home.members)) + 1] = number
    return numbers


def _clusters(theta: Array, cov: Array) -> tuple[list[Home], list[Home]]:
    """All homes, and those of sources that agree."""
    homes = homes_of(theta[1:], cov[1:], cov[0], _heavy(_EQUAL, _TAIL))
    return homes, agreeing(homes, theta[1:], cov[1:], _LEVEL)


def _moved(cov: Array, after: Array) -> float:
    """The share of an estimate that is not the target's own, by what its variance fell to."""
    d = len(cov)
    return float(np.clip(1 - np.trace(np.linalg.solve(cov, after)) / d, 0.0, 1.0))


def blend(theta: Array, cov: Array) -> CombinedEstimate:
    """The posterior mean under a heavy-tailed prior about every pool of sources.

    Pools whose sources agree are taken to have equal coefficients; the covariance of the others
    holds what their members differ by.

    Its mean square is that of the distance to it under a second prior, Stein's harmonic one about
    every home, of `minimax`: no source is just like the target there and all heterogeneities are as
    likely, so that it is not too small where sources agree with each other and not with the target.
    Of one or two parameters the distance to a home says little: it is the target's own covariance
    there, and how far the estimate is off. Intervals, of each coefficient, are of `prior`.
    """
    homes, found = _clusters(theta, cov)
    agreed = {home.members for home in found}
    tree = [*found, *(home for home in homes if home.members not in agreed)]
    made = posterior(theta[0], cov[0], tree, _heavy(_EQUAL, _TAIL))
    if theta.shape[1] < _HARMONIC:
        centre, around = theta[0], cov[0]
    else:
        centre, around, _ = posterior(theta[0], cov[0], tree, _flat())
    off = made.mean - centre
    moved = _moved(cov[0], made.cov)
    return CombinedEstimate(
        value=made.mean,
        cov=around + np.outer(off, off),
        assumed=made.cov,
        weights=_shares(theta, cov, tree, made.homes, moved),
        clusters=_numbered(len(theta), found),
        prior=_one_by_one(theta, cov, tree),
    )


def _one_by_one(theta: Array, cov: Array, homes: list[Home]) -> tuple[Array, Array]:
    return one_by_one(theta[0], cov[0], homes, _heavy(_EQUAL, _TAIL))


def minimax(theta: Array, cov: Array) -> CombinedEstimate:
    """The posterior mean under harmonic priors about all pools of sources.

    In three parameters or more its mean squared error, in the metric of the target's covariance, is
    never larger than that of the target alone (Stein 1981; George 1986: multiple shrinkage by a
    mixture of superharmonic priors keeps this).
    """
    homes, found = _clusters(theta, cov)
    if theta.shape[1] < _HARMONIC:
        return CombinedEstimate(
            theta[0], cov[0], cov[0], np.eye(len(theta))[0], _numbered(len(theta), found)
        )
    mean, around, chances = posterior(theta[0], cov[0], homes, _flat())
    shares = _shares(theta, cov, homes, chances, _moved(cov[0], around))
    clusters, prior = _numbered(len(theta), found), _one_by_one(theta, cov, homes)
    return CombinedEstimate(mean, around, around, shares, clusters, prior)


def select(theta: Array, cov: Array) -> CombinedEstimate:
    """Pool the sources that do not differ from the target by a chi-squared test at 5 % / K.

    The test costs nothing and its level is exact, in place of the threshold of Li et al. (2024),
    whose constant is not given. After it the covariance is that of a pool chosen by the data.
    """
    return _pool(theta, cov, _near(theta, cov))


def by_rows(theta: Array, cov: Array, rows: Array) -> CombinedEstimate:
    """The mean of the sources that `select` keeps, each weighed by its rows (Li et al. 2024).

    Equation (10); weights are best only where sampling is most of the error at every site.
    """
    keep = _near(theta, cov)
    shares = keep * rows / (keep * rows).sum()
    total = np.einsum("k,kij->ij", shares**2, cov)
    clusters = _numbered(len(theta), _clusters(theta, cov)[1])
    return CombinedEstimate(shares @ theta, total, total, shares, clusters)


def _near(theta: Array, cov: Array) -> NDArray[np.bool_]:
    """Whether each is not told from the target, by a chi-squared test at 5 % / K."""
    from scipy.stats import chi2

    count, d = theta.shape
    near: NDArray[np.bool_] = distances(theta, cov) <= chi2.ppf(1 - _LEVEL / (count - 1), d)
    return near


def pool(theta: Array, cov: Array) -> CombinedEstimate:
    """All sites as if they had the same parameters."""
    return _pool(theta, cov, np.ones(len(theta), dtype=np.bool_))


def _pool(theta: Array, cov: Array, keep: NDArray[np.bool_]) -> CombinedEstimate:
    mean, total = pool_estimates(theta[keep], cov[keep])
    precision = np.trace(total @ np.linalg.inv(cov), axis1=1, axis2=2) * keep
    clusters = _numbered(len(theta), _clusters(theta, cov)[1])
    return CombinedEstimate(mean, total, total, precision / precision.sum(), clusters)


# The first is the default.
RULES: Mapping[str, Callable[[Array, Array], CombinedEstimate]] = MappingProxyType(
    {"blend": blend, "minimax": minimax, "select": select, "pool": pool}
)


# Of printed methods, which weigh sites by their rows.
PRINTED: Mapping[str, Callable[[Array, Array, Array], CombinedEstimate]] = MappingProxyType(
    {"ftl-mean": by_rows}
)


def combined(rule: str, theta: Array, cov: Array, rows: Array | None = None) -> CombinedEstimate:
    """What a rule makes of estimates (K + 1, d) for the first of them; alone it stays as it is.

    A printed rule also needs the rows (K + 1,) of the sites.
    """
    if len(theta) == 1:
        return CombinedEstimate(theta[0], cov[0], cov[0], np.ones(1), np.zeros(1, dtype=np.intp))
    if rule in PRINTED:
        assert rows is not None
        return PRINTED[rule](theta, cov, rows)
    return RULES[rule](theta, cov)
