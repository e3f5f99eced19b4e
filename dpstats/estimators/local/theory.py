"""What messages of devices that randomise their records promise."""

from __future__ import annotations

from dpstats.estimators.sources import ASI, JIANG

__all__ = ["AT_ONCE", "IN_ROUNDS", "PRIVUNIT", "SHRUNK"]

_GUARANTEE = (
    "Every message is epsilon-DP against everybody, the server included, under replacement of the "
    "whole record: the record is mapped into a unit ball and randomised once on its device by a "
    "channel whose density ratio over that ball is at most exp(epsilon) ((epsilon, delta)-DP where "
    "Gaussian noise is asked for). "
)
_ONCE = "All else is post-processing of the messages."
_ROUNDS = (
    "Each device answers in one round only, so that rounds compose in parallel; questions of later "
    "rounds are functions of earlier messages."
)
AT_ONCE = _GUARANTEE + _ONCE
IN_ROUNDS = f"{_GUARANTEE}{_ROUNDS} {_ONCE}"

PRIVUNIT, SHRUNK = ASI.at("PrivUnit"), JIANG.at("Theorem 1")  # the channel, the second moments
