"""Bounds that methods of several sites share: of the target alone, and lower ones."""

from __future__ import annotations

from dpstats.estimators.sources import LI_FEDERATED
from dpstats.theory import Assumption, Rate

__all__ = [
    "ALIKE",
    "LINEAR_LOWER",
    "MEAN_LOWER",
    "MEAN_UPPER",
    "TARGET_LINEAR_LOWER",
    "TARGET_MEAN_LOWER",
]

_FIRST = LI_FEDERATED.at("Theorem 1, (II)")
_SECOND, _FIFTH = LI_FEDERATED.at("Theorem 2"), LI_FEDERATED.at("Theorem 5, (22)")
ALIKE = Assumption(
    "n is of the rows of the target and of the K - 1 sources within h of it, n0 of the target's"
)

_OF_A_MEAN = (
    Assumption("Lower bound, of sites of equal size", "delta <= eps/sqrt(K)"),
    Assumption("Lower bound, of one round; conjectured of several"),
)
MEAN_UPPER = (
    Rate("heterogeneity", "h", _FIRST),
    Rate("statistical", "sqrt(log(1/eta)/n), eta = 0.05", _FIRST),
    Rate("privacy", "log(1/eta) sqrt(K log(n/eta))/(n eps), eta = 0.05", _FIRST),
)
MEAN_LOWER = (
    Rate("heterogeneity", "h", _SECOND, given=_OF_A_MEAN),
    Rate("statistical", "1/sqrt(n)", _SECOND, given=_OF_A_MEAN),
    Rate("privacy", "sqrt(K)/(n eps)", _SECOND, given=_OF_A_MEAN),
)
TARGET_MEAN_LOWER = (
    Rate("statistical", "1/sqrt(n0)", _SECOND, given=_OF_A_MEAN),
    Rate("privacy", "1/(n0 eps)", _SECOND, given=_OF_A_MEAN),
)

# (19), and (21) beside it.
_OF_THE_TARGET = (
    Assumption("Lower bound (19)", "eps < 1"),
    Assumption("Lower bound (19)", "delta < 1/n0^2"),
    Assumption("Lower bound (19)", "n0 >~ d log(1/delta)"),
    Assumption("Lower bound (19)", "h <= sqrt(d)"),
)
_OF_SITES = (
    *_OF_THE_TARGET,
    Assumption("Lower bound (21), of T = log(n0) rounds", "log(n0) >~ n0 eps"),
    Assumption("Lower bound (21)", "n0 eps >~ sqrt(d/K)"),
    Assumption("Lower bound (21)", "delta <= 1/(n0 K)^3"),
)
LINEAR_LOWER = (
    Rate("heterogeneity", "h", _FIFTH, given=_OF_SITES),
    Rate("statistical", "sqrt(d/n)", _FIFTH, given=_OF_SITES),
    Rate("privacy", "d sqrt(K)/(n eps sqrt(log(1/(K delta))))", _FIFTH, given=_OF_SITES),
)
TARGET_LINEAR_LOWER = (
    Rate("statistical", "sqrt(d/n0)", _FIFTH, given=_OF_THE_TARGET),
    Rate("privacy", "d/(n0 eps)", _FIFTH, given=_OF_THE_TARGET),
)
