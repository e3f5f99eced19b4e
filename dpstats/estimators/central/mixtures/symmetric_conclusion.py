"""What a fitted symmetric mixture is in the user's units, how sure it is, and what must be said."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.central.mixtures.components import UNSURE
from dpstats.estimators.central.mixtures.conclusion import goodness
from dpstats.estimators.central.mixtures.symmetric_law import SymmetricLaw
from dpstats.estimators.numerics.released import Finish
from dpstats.protocol import SymmetricMixtureEstimate

__all__ = ["concluded_symmetric", "largest_positive"]

Array = NDArray[np.float64]
Symmetric = TypeVar("Symmetric", bound=SymmetricMixtureEstimate)

_CLEAR = 3.0  # wording: standard errors that b is longer than what noise makes of b = 0
_WORDS = (
    "noise is not normal, of another size in some direction, or signs are not equally likely",
    "two components b and -b",
)
_UNASSERTED = (
    "none: whether covariates are independent standard normal numbers is not seen by the released "
    "numbers alone; normal=True asserts that it is publicly known"
)


def largest_positive(beta: Array) -> float:
    """The sign under which the largest entry is positive."""
    return 1.0 if beta[int(np.argmax(np.abs(beta)))] >= 0 else -1.0


def concluded_symmetric(
    kind: type[Symmetric],
    finish: Finish[SymmetricLaw],
    units: Array,
    unit: float,
    names: Sequence[str],
    normal: bool = True,
) -> Symmetric:
    """The estimate after the finish, in the user's units.

    Parameters
    ----------
    kind : type
        Of the record.
    finish : Finish
    units : ndarray of shape (d,)
        What an internal unit of each entry of b is in the user's.
    unit : float
        The same of sigma.
    names : sequence of str
    normal : bool
        Whether the law of covariates is asserted.
    """
    law = finish.law
    released, remarks, inference = goodness(finish, _WORDS)
    hidden = _hidden(law.beta / law.sigma, finish.cov)
    if hidden:
        remarks = (*remarks, hidden)
        inference = inference or "none: noise hides b, and its errors have no normal law"
    if not normal:
        inference = inference or _UNASSERTED
    slopes = law.jacobian() * np.append(units, [unit] * (law.size - law.d))
    parts = np.array([finish.cov, finish.cov_privacy, finish.cov_sampling])
    sign = np.append(np.full(law.d, largest_positive(law.beta)), [1.0] * (law.size - law.d))
    cov, cov_privacy, cov_sampling = np.outer(slopes * sign, slopes * sign) * parts
    return kind(
        columns=tuple(names),
        beta=sign[: law.d] * law.beta * units,
        sigma=law.sigma * unit,
        public_sigma=law.known,
        support=tuple(range(law.d)),
        cov=cov,
        cov_privacy=cov_privacy,
        cov_sampling=cov_sampling,
        nobs=finish.rows,
        released=released,
        remarks=remarks,
        inference=inference,
    )


def _hidden(center: Array, whole: Array) -> str:
    """What to say where noise hides b, in units of sigma, or sigma; empty where it does not.

    Second moments are ``bb'`` and ``t W``, W a symmetric matrix of errors with variance 1, 2 on the
    diagonal. Of b = 0 the largest eigenvalue, about ``2 t sqrt(d)``, is taken for ``|b|^2``, whose
    standard error ``sqrt(2) t`` makes one of ``t / (sqrt(2) |b|)`` for ``|b|``: one population
    looks like two that are ``2 sqrt(2 d)`` standard errors from the middle, whatever t is.
    """
    d, ses = center.size, np.sqrt(np.diag(whole))
    cov = whole[:d, :d]
    worst = max(float(np.sqrt(np.linalg.eigvalsh(cov)[-1])), *ses[d:], 0.0)
    size = float(np.linalg.norm(center))
    along = math.sqrt(max(float(center @ cov @ center), 0.0)) / max(size, 1e-12)
    if worst <= UNSURE and size >= (2 * math.sqrt(2 * center.size) + _CLEAR) * along:
        return ""
    return (
        "Noise hides b: it is known to no better than a quarter of a standard deviation in some "
        "direction, or sigma of itself, or b not to be longer than what errors alone make of b = "
        "0. More rows, a larger epsilon or fewer columns would show it."
    )
