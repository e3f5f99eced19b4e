"""A family and its link as one frozen record; the functions behind it are rows of one table."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError

__all__ = ["BINOMIAL", "GAUSSIAN", "POISSON", "Family", "family"]

Array = NDArray[np.float64]
Function = Callable[[Array], Array]

# Linear predictors beyond this are taken to be at it: exp(30) = 1e13, far from overflow.
_LARGEST = 30.0
_SMALLEST_MEAN = 2.0**-10  # of a Poisson response under the identity link


class _Row(NamedTuple):
    mean: Function
    slope: Function
    variance: Function
    lowest: float = -_LARGEST  # range of the linear predictor
    highest: float = _LARGEST
    domain: tuple[float, float] = (-math.inf, math.inf)
    canonical: bool = True
    largest_curvature: float = math.inf


def _identity(values: Array) -> Array:
    return values


def _one(values: Array) -> Array:
    return np.ones_like(values)


def _logistic(eta: Array) -> Array:
    probability: Array = 1.0 / (1.0 + np.exp(-eta))
    return probability


def _logistic_slope(eta: Array) -> Array:
    return _bernoulli(_logistic(-np.abs(eta)))  # 1 - mu keeps its digits where mu <= 1/2


def _bernoulli(mu: Array) -> Array:
    variance: Array = mu * (1.0 - mu)
    return variance


# The first link of a family is its default.
_ROWS: dict[tuple[str, str], _Row] = {
    ("gaussian", "identity"): _Row(
        _identity, _one, _one, lowest=-math.inf, highest=math.inf, largest_curvature=1.0
    ),
    ("gaussian", "log"): _Row(np.exp, np.exp, _one, canonical=False),
    ("binomial", "logit"): _Row(
        _logistic, _logistic_slope, _bernoulli, domain=(0.0, 1.0), largest_curvature=0.25
    ),
    ("poisson", "log"): _Row(np.exp, np.exp, _identity, domain=(0.0, math.inf)),
    ("poisson", "identity"): _Row(
        _identity,
        _one,
        _identity,
        lowest=_SMALLEST_MEAN,
        highest=math.exp(_LARGEST),
        domain=(0.0, math.inf),
        canonical=False,
    ),
}


@dataclass(frozen=True)
class Family:
    """Law of a response given its linear predictor eta, through its mean and variance.

    All methods work elementwise and give each element the same bits wherever it stands in an
    array, so sums of truncated functions of them do not depend on the order of rows. The linear
    predictor is taken to be at the nearest end of a public range where it lies beyond it, so that
    nothing overflows; slopes there are those at the end.

    Parameters
    ----------
    name : {"gaussian", "binomial", "poisson"}
        Distribution.
    link : {"identity", "log", "logit"}
        Link: eta as a function of the mean.

    Raises
    ------
    OptionError
        If the pair is not supported.
    """

    name: str
    link: str

    def __post_init__(self) -> None:
        if (self.name, self.link) not in _ROWS:
            raise OptionError(f"family {self}: not supported. {_choices()}")

    def __str__(self) -> str:
        """Name and link."""
        return f"{self.name} ({self.link})"

    @property
    def domain(self) -> tuple[float, float]:
        """Lowest and highest response; may be infinite."""
        return self._row.domain

    @property
    def canonical(self) -> bool:
        """Whether the link is the canonical one, so that `factor` is 1."""
        return self._row.canonical

    @property
    def largest_curvature(self) -> float:
        """Largest value of `curvature`; infinite where there is no useful bound."""
        return self._row.largest_curvature

    def mean(self, eta: Array) -> Array:
        """Mean of the response."""
        return self._row.mean(self._within(eta))

    def slope(self, eta: Array) -> Array:
        """Derivative of the mean."""
        return self._row.slope(self._within(eta))

    def variance(self, mu: Array) -> Array:
        """Variance of the response at mean `mu`, up to the dispersion."""
        return self._row.variance(np.ascontiguousarray(mu, dtype=np.float64))

    def factor(self, eta: Array) -> Array:
        """``slope / variance``: turns ``y - mean`` into the derivative of the log-likelihood."""
        if self.canonical:
            return np.ones_like(eta, dtype=np.float64)
        ratio: Array = self.slope(eta) / self.variance(self.mean(eta))
        return ratio

    def curvature(self, eta: Array) -> Array:
        """``slope * factor``: the Fisher information on eta of one row."""
        information: Array = self.slope(eta) * self.factor(eta)
        return information

    def residual(self, y: Array, eta: Array) -> Array:
        """``factor * (y - mean)``: derivative of the log-likelihood in eta, up to dispersion."""
        distance: Array = y - self.mean(eta)
        return distance if self.canonical else self.factor(eta) * distance

    @property
    def _row(self) -> _Row:
        return _ROWS[self.name, self.link]

    def _within(self, eta: Array) -> Array:
        # Contiguous: numpy may compute strided arrays by other instructions, with other bits.
        row, values = self._row, np.ascontiguousarray(eta, dtype=np.float64)
        return values if math.isinf(row.highest) else np.clip(values, row.lowest, row.highest)


GAUSSIAN = Family("gaussian", "identity")
BINOMIAL = Family("binomial", "logit")
POISSON = Family("poisson", "log")

_ALIASES = {"bernoulli": "binomial", "logistic": "binomial", "normal": "gaussian"}


def family(spec: Any, link: str | None = None) -> Family:
    """The family that a user names.

    Parameters
    ----------
    spec : str, Family or statsmodels family
        ``"gaussian"``, ``"binomial"`` (also ``"logistic"``, ``"bernoulli"``), ``"poisson"``; or a
        statsmodels family such as ``sm.families.Poisson()``, with its link.
    link : str, optional
        ``"identity"``, ``"log"`` or ``"logit"``; the family's canonical link by default.

    Raises
    ------
    OptionError
        If the family, or the family with that link, is not supported.
    """
    if isinstance(spec, Family):
        name, own = spec.name, spec.link
    elif isinstance(spec, str):
        name, own = spec.lower(), None
    elif isinstance(spec, type):  # statsmodels is recognised by names, and never imported
        name, own = spec.__name__.lower(), None
    else:
        name, own = type(spec).__name__.lower(), type(getattr(spec, "link", None)).__name__.lower()
    name = _ALIASES.get(name, name)
    links = [row_link for row_name, row_link in _ROWS if row_name == name]
    wanted = (link or own or (links[0] if links else "")).lower()
    if own is not None and wanted != own:
        raise OptionError(f"link={link!r} contradicts the family's own link {own!r}; give one.")
    if wanted not in links:
        asked = f"family={name!r}" + (f" with link={wanted!r}" if wanted else "")
        raise OptionError(f"{asked}: not supported. {_choices()}")
    return Family(name, wanted)


def _choices() -> str:
    pairs = ", ".join(f"{name} ({link})" for name, link in _ROWS)
    return f"There are: {pairs}."
