"""A family and its link as one frozen record; the functions behind it are rows of one table."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError, given, is_number, need_text

__all__ = [
    "BINOMIAL",
    "CLASSICAL",
    "GAUSSIAN",
    "MULTINOMIAL",
    "POISSON",
    "RELEASED",
    "SUPPORTED",
    "Family",
    "family",
]

Array = NDArray[np.float64]
Function = Callable[[Array], Array]
OfResponse = Callable[[Array, Array], Array]  # of the response and the linear predictor

# Linear predictors beyond this are taken to be at it: exp(30) = 1e13, far from overflow.
_LARGEST = 30.0
_SMALLEST_MEAN = 2.0**-10  # of a Poisson response under the identity link
_LARGEST_CLOGLOG = 5.0  # numerical: exp(-exp(5)) = 4e-65; a failure there has the score -148
RELEASED, _START = "released", 1.0  # of a dispersion: that it is released; where that starts
_ALPHAS = (1e-6, 1e6)  # numerical: dispersions of a negative binomial law that may be given


class _Row(NamedTuple):
    mean: Function
    slope: Function
    variance: Function
    lowest: float = -_LARGEST  # range of the linear predictor
    highest: float = _LARGEST
    domain: tuple[float, float] = (-math.inf, math.inf)
    canonical: bool = True
    largest_curvature: float = math.inf
    factor: Function | None = None  # slope / variance, where that loses digits
    information: OfResponse | None = None  # minus the derivative of the residual, where >= 0


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


# Probit. l = y log Phi(eta) + (1 - y) log Phi(-eta); both logarithms are concave.


def _normal_cdf(eta: Array) -> Array:
    from scipy.special import ndtr

    return np.asarray(ndtr(eta), dtype=np.float64)


def _normal_density(eta: Array) -> Array:
    density: Array = np.exp(-(eta**2) / 2) / math.sqrt(2 * math.pi)
    return density


def _mills(eta: Array) -> Array:
    """``phi(eta) / Phi(eta)``, the score of a success."""
    from scipy.special import log_ndtr

    ratio: Array = np.exp(-(eta**2) / 2 - log_ndtr(eta)) / math.sqrt(2 * math.pi)
    return ratio


def _probit_factor(eta: Array) -> Array:
    from scipy.special import log_ndtr

    return np.asarray(_mills(eta) / np.exp(log_ndtr(-eta)), dtype=np.float64)


def _probit_information(y: Array, eta: Array) -> Array:
    success, failure = _mills(eta), _mills(-eta)
    found: Array = y * success * (success + eta) + (1 - y) * failure * (failure - eta)
    return found


# Complementary log-log, e = exp(eta). l = y log(1 - exp(-e)) - (1 - y) e, concave likewise.


def _hazard_mean(eta: Array) -> Array:
    mean: Array = -np.expm1(-np.exp(eta))
    return mean


def _hazard_slope(eta: Array) -> Array:
    slope: Array = np.exp(eta - np.exp(eta))
    return slope


def _hazard_factor(eta: Array) -> Array:
    factor: Array = np.exp(eta) / _hazard_mean(eta)
    return factor


def _hazard_information(y: Array, eta: Array) -> Array:
    e = np.exp(eta)
    success = e * np.exp(-e) / _hazard_mean(eta)
    found: Array = y * success * (e - 1 + success) + (1 - y) * e
    return found


# Gamma, log link: r = y / mu - 1.


def _square(mu: Array) -> Array:
    variance: Array = mu**2
    return variance


def _inverse_exp(eta: Array) -> Array:
    factor: Array = np.exp(-eta)
    return factor


def _gamma_information(y: Array, eta: Array) -> Array:
    found: Array = y * np.exp(-eta)
    return found


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
    ("binomial", "probit"): _Row(
        _normal_cdf,
        _normal_density,
        _bernoulli,
        domain=(0.0, 1.0),
        canonical=False,
        factor=_probit_factor,
        information=_probit_information,
    ),
    ("binomial", "cloglog"): _Row(
        _hazard_mean,
        _hazard_slope,
        _bernoulli,
        highest=_LARGEST_CLOGLOG,
        domain=(0.0, 1.0),
        canonical=False,
        factor=_hazard_factor,
        information=_hazard_information,
    ),
    ("gamma", "log"): _Row(
        np.exp,
        np.exp,
        _square,
        domain=(0.0, math.inf),
        canonical=False,
        factor=_inverse_exp,
        information=_gamma_information,
    ),
    ("negativebinomial", "log"): _Row(
        np.exp, np.exp, _identity, domain=(0.0, math.inf), canonical=False
    ),
    # Of the number of a level; mean and slope are of one level against the others.
    ("multinomial", "logit"): _Row(
        _logistic, _logistic_slope, _bernoulli, domain=(0.0, math.inf), largest_curvature=0.25
    ),
}
_OF_LEVELS = "multinomial"  # has several linear predictors: a model of its own


@functools.cache
def _row_of(name: str, link: str, alpha: float) -> _Row:
    """The row of a family; of a negative binomial one, with its dispersion in it."""
    row = _ROWS[name, link]
    if name != "negativebinomial":
        return row

    def variance(mu: Array) -> Array:
        found: Array = mu * (1 + alpha * mu)
        return found

    def factor(eta: Array) -> Array:
        found: Array = 1 / (1 + alpha * np.exp(eta))
        return found

    def information(y: Array, eta: Array) -> Array:
        mu = np.exp(eta)
        found: Array = mu * (1 + alpha * y) / (1 + alpha * mu) ** 2
        return found

    return row._replace(variance=variance, factor=factor, information=information)


@dataclass(frozen=True)
class Family:
    """Law of a response given its linear predictor eta, through its mean and variance.

    All methods work elementwise and give each element the same bits wherever it stands in an
    array, so sums of truncated functions of them do not depend on the order of rows. The linear
    predictor is taken to be at the nearest end of a public range where it lies beyond it, so that
    nothing overflows; slopes there are those at the end.

    Parameters
    ----------
    name : {"gaussian", "binomial", "poisson", "gamma", "negativebinomial", "multinomial"}
        Distribution.
    link : {"identity", "log", "logit", "probit", "cloglog"}
        Link: eta as a function of the mean.
    alpha : float, default 0
        Public dispersion of a negative binomial law, whose variance is ``mu + alpha mu^2``; 0 for
        every other family.
    released : bool, default False
        Whether a fit is to release the dispersion: `alpha` is then where it starts.

    Raises
    ------
    OptionError
        If the pair is not supported, or alpha is none that the family takes.
    """

    name: str
    link: str
    alpha: float = field(default=0.0, kw_only=True)
    released: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if (self.name, self.link) not in _ROWS:
            raise OptionError(f"family {self} is not in this release. {_choices()}")
        low, high = _ALPHAS
        if self.name != "negativebinomial":
            if self.alpha != 0 or self.released:
                raise OptionError(
                    f"alpha={self.alpha!r}: a family {self.name!r} has no such dispersion; it is "
                    "that of family='negativebinomial'."
                )
        elif not low <= self.alpha <= high:
            raise OptionError(
                f"alpha={self.alpha!r}: a negative binomial law has a variance of mu + alpha mu^2. "
                f"Give alpha, a public number from {low:g} to {high:g}; or family='poisson', whose "
                "intervals hold for overdispersed counts, too."
            )

    def __str__(self) -> str:
        """Name and link, and the dispersion where there is one."""
        given = f", alpha={self.alpha:g}" if self.alpha else ""
        given = ", alpha released" if self.released else given
        return f"{self.name} ({self.link}{given})"

    @property
    def domain(self) -> tuple[float, float]:
        """Lowest and highest response; may be infinite."""
        return self._row.domain

    @property
    def canonical(self) -> bool:
        """Whether the link is the canonical one, so that `factor` is 1; never of another loss."""
        return type(self) is Family and self._row.canonical

    @property
    def observed(self) -> bool:
        """Whether `information` depends on the response."""
        return self._row.information is not None

    @property
    def largest_curvature(self) -> float:
        """Largest value of `curvature`; infinite where there is no useful bound."""
        return self._row.largest_curvature

    def mean(self, eta: Array) -> Array:
        """Mean of the response."""
        return self._row.mean(self._in_domain(eta))

    def slope(self, eta: Array) -> Array:
        """Derivative of the mean."""
        return self._row.slope(self._in_domain(eta))

    def variance(self, mu: Array) -> Array:
        """Variance of the response at mean `mu`, up to the dispersion."""
        return self._row.variance(np.ascontiguousarray(mu, dtype=np.float64))

    def factor(self, eta: Array) -> Array:
        """``slope / variance``: turns ``y - mean`` into the derivative of the log-likelihood."""
        if self.canonical:
            return np.ones_like(eta, dtype=np.float64)
        if self._row.factor is not None:
            return self._row.factor(self._in_domain(eta))
        ratio: Array = self.slope(eta) / self.variance(self.mean(eta))
        return ratio

    def curvature(self, eta: Array) -> Array:
        """``slope * factor``: the Fisher information on eta of one row."""
        expected: Array = self.slope(eta) * self.factor(eta)
        return expected

    def information(self, y: Array, eta: Array) -> Array:
        """Minus the derivative of `residual` in eta, where that is never negative.

        It is `curvature` under a canonical link, and its mean is `curvature` under any. The normal
        law with a log link and the Poisson law with the identity answer `curvature` itself.
        """
        row = self._row
        if row.information is None:
            return self.curvature(eta)
        responses = np.ascontiguousarray(y, dtype=np.float64)
        found: Array = np.maximum(row.information(responses, self._in_domain(eta)), 0.0)
        return found

    def residual(self, y: Array, eta: Array) -> Array:
        """``factor * (y - mean)``: derivative of the log-likelihood in eta, up to dispersion."""
        distance: Array = y - self.mean(eta)
        return distance if self.canonical else self.factor(eta) * distance

    @property
    def _row(self) -> _Row:
        return _row_of(self.name, self.link, self.alpha)

    def _in_domain(self, eta: Array) -> Array:
        # Contiguous: numpy may compute strided arrays by other instructions, with other bits.
        row, values = self._row, np.ascontiguousarray(eta, dtype=np.float64)
        return values if math.isinf(row.highest) else np.clip(values, row.lowest, row.highest)


GAUSSIAN = Family("gaussian", "identity")
BINOMIAL = Family("binomial", "logit")
POISSON = Family("poisson", "log")
# (name, link) of every family, and of those that every method for generalised linear models fits.
MULTINOMIAL = Family(_OF_LEVELS, "logit")
SUPPORTED = frozenset(_ROWS) - {(MULTINOMIAL.name, MULTINOMIAL.link)}
CLASSICAL = frozenset(
    {
        ("gaussian", "identity"),
        ("gaussian", "log"),
        ("binomial", "logit"),
        ("poisson", "log"),
        ("poisson", "identity"),
    }
)

_ALIASES = {
    "bernoulli": "binomial",
    "logistic": "binomial",
    "normal": "gaussian",
    "negative_binomial": "negativebinomial",
    "nb2": "negativebinomial",
}
_CLASS_LINKS = {"gamma": "inversepower"}  # of statsmodels' classes, where it is not ours


def family(spec: Any, link: str | None = None, alpha: float | str | None = None) -> Family:
    """The family that a user names.

    Parameters
    ----------
    spec : str, Family or statsmodels family
        ``"gaussian"``, ``"binomial"`` (also ``"logistic"``, ``"bernoulli"``), ``"poisson"``,
        ``"gamma"``, ``"negativebinomial"``; or a statsmodels family such as
        ``sm.families.Poisson()``, with its link.
    link : str, optional
        ``"identity"``, ``"log"``, ``"logit"``, ``"probit"`` or ``"cloglog"``; by default the
        family's canonical link, of ``"gamma"`` and ``"negativebinomial"`` the logarithm.
    alpha : float or "released", optional
        Public dispersion of ``"negativebinomial"``, or that the fit releases it; of a statsmodels
        family its own.

    Raises
    ------
    OptionError
        If the family, or the family with that link or alpha, is not supported.
    """
    if isinstance(spec, Family):
        name, own = spec.name, spec.link
        alpha = RELEASED if spec.released else spec.alpha or alpha
    elif isinstance(spec, str):
        name, own = spec.lower(), None
    elif isinstance(spec, type):  # statsmodels is recognised by names, and never imported
        name, own = spec.__name__.lower(), None
        link = link or _CLASS_LINKS.get(name)
    else:
        name, own = type(spec).__name__.lower(), type(getattr(spec, "link", None)).__name__.lower()
        if name == "negativebinomial" and alpha is None:
            alpha = float(spec.alpha)
    name = _ALIASES.get(name, name)
    if link is not None:
        need_text(link=link)
    links = [row_link for row_name, row_link in _ROWS if row_name == name]
    wanted = (link or own or (links[0] if links else "")).lower()
    if own is not None and wanted != own:
        raise OptionError(f"link={link!r} contradicts the family's own link {own!r}; give one.")
    if wanted not in links:
        asked = f"family={name!r}" + (f" with link={wanted!r}" if wanted else "")
        raise OptionError(f"{asked} is not in this release. {_choices()}")
    if name == "negativebinomial" and alpha is None:
        raise OptionError(
            f"family={name!r} needs its dispersion: alpha='released' has the fit release it, as "
            "dp.negativebinomial does; alpha=0.5 says a public number. Intervals hold whatever it "
            "is, and are shortest where it is right; family='poisson' needs none, and its "
            "intervals hold for such counts, too."
        )
    if isinstance(alpha, str) and alpha == RELEASED:
        return Family(name, wanted, alpha=_START, released=True)
    if alpha is not None and not is_number(alpha):
        raise OptionError(f"alpha={given(alpha)}: a public number, or {RELEASED!r}, is needed.")
    return Family(name, wanted, alpha=0.0 if alpha is None else float(alpha))


def _choices() -> str:
    pairs = ", ".join(f"{name} ({link})" for name, link in _ROWS if name != _OF_LEVELS)
    return f"There are: {pairs}."
