"""Scores whose size one row can move is limited by weights, with the same root."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError
from dpstats.families.exponential import Family

__all__ = ["DampedFamily"]

Array = NDArray[np.float64]
Weight = Callable[[Array, float], Array]  # of the mean and the level


# The largest residual that a response can leave at this mean.
def _range(mu: Array, level: float) -> Array:
    weight: Array = 1.0 / np.maximum(np.maximum(mu, 1.0 - mu), level)
    return weight


def _floor(mu: Array, level: float) -> Array:
    weight: Array = mu / np.maximum(mu, level)
    return weight


def _ceiling(mu: Array, level: float) -> Array:
    weight: Array = 1.0 / np.maximum(1.0, mu / level)
    return weight


_WEIGHTS: dict[tuple[str, str], Weight] = {
    ("binomial", "logit"): _range,
    ("poisson", "identity"): _floor,
    ("gaussian", "log"): _ceiling,
}


@dataclass(frozen=True)
class DampedFamily(Family):
    """A family whose score is weighted by a function of the mean, so that no row counts too much.

    The likelihood score ``factor (y - mu)`` has mean zero given the columns, and so has its product
    with any weight a(mu) > 0: estimating equations keep their root where the mean is right. The
    weight is chosen for what noise costs. It is

    * ``1 / max(mu, 1 - mu, level)`` for a binomial response: with level 1/2 the score of every row
      is at most 1 and that of one with mu = 1/2 is +-1, twice what the likelihood would give it;
    * ``mu / max(mu, level)`` for Poisson counts with an identity link, whose likelihood divides by
      the mean;
    * ``1 / max(1, mu / level)`` for a normal response with a log link.

    Parameters
    ----------
    name, link : str
        As in `Family`; not the normal law with the identity link, whose scores are bounded alike.
    level : float
        Public; where the weight sets in.
    """

    level: float = math.nan

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.name, self.link) not in _WEIGHTS or not 0 < self.level < math.inf:
            raise OptionError(f"{self} with level={self.level}: no such weighted score.")

    def __str__(self) -> str:
        """Name, link and level."""
        return f"{self.name} ({self.link}), damped at {self.level:.4g}"

    @property
    def largest_curvature(self) -> float:
        """For a binomial response ``1 / (4 level)``, attained at mu = 1/2; infinite otherwise."""
        return 0.25 / self.level if self.name == "binomial" else math.inf

    def weight(self, eta: Array) -> Array:
        """The weight of a row, in (0, 2]."""
        return _WEIGHTS[self.name, self.link](self.mean(eta), self.level)

    def factor(self, eta: Array) -> Array:
        """Slope over variance, times the weight."""
        undamped = np.ones_like(eta) if self._row.canonical else super().factor(eta)
        weighted: Array = undamped * self.weight(eta)
        return weighted
