"""What is released of a mixture, and the table of its parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError
from dpstats.protocol.estimate import ParameterTable

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = [
    "MixtureEstimate",
    "RegressionMixtureEstimate",
    "component_names",
    "mixture_names",
    "regression_names",
]

Array = NDArray[np.float64]


def component_names(columns: Sequence[str]) -> tuple[str, ...]:
    """Names of the parameters of a component."""
    return (
        "weight",
        *(f"mean of {name}" for name in columns),
        *(f"sd of {name}" for name in columns),
    )


def mixture_names(k: int, columns: Sequence[str]) -> tuple[str, ...]:
    """Names of the parameters of k components."""
    each = component_names(columns)
    return tuple(f"{name} [{j}]" for j in range(1, k + 1) for name in each)


def regression_names(k: int, columns: Sequence[str]) -> tuple[str, ...]:
    """Names of the parameters of k regressions."""
    each = ("weight", *columns)
    return (*(f"{name} [{j}]" for j in range(1, k + 1) for name in each), "sigma")


def _sound_weights(weights: Array) -> bool:
    return bool((weights > 0).all() and abs(weights.sum() - 1) < 1e-6)


@dataclass(frozen=True, eq=False)
class MixtureEstimate:
    """A mixture of k normal laws in d columns, in the user's units, the heaviest first.

    Attributes
    ----------
    columns : tuple of str
        Their d names.
    weights : ndarray of shape (k,)
        They sum to 1.
    means : ndarray of shape (k, d)
    covariances : tuple of k ndarrays of shape (d, d)
    cov, cov_privacy, cov_sampling : ndarray of shape (k (1 + 2 d), k (1 + 2 d))
        Covariance of each component's weight, means and standard deviations, the part of it that is
        privacy noise, and that of the maximum likelihood estimate from the rows themselves.
    nobs, released, remarks
        As for every `Estimate`; `nobs` is the released count of rows that contribute.
    inference : str
        As in `ParameterTable`.
    asked : int
        Components that there might have been at most; 0 for k.
    """

    columns: tuple[str, ...]
    weights: Array
    means: Array
    covariances: tuple[Array, ...]
    cov: Array
    cov_privacy: Array
    cov_sampling: Array
    nobs: float
    released: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    inference: str = ""
    asked: int = 0

    def __post_init__(self) -> None:  # it may come from a file
        k, d = len(self.weights), len(self.columns)
        square = (k * (1 + 2 * d),) * 2
        sound = (
            k > 0
            and d > 0
            and self.weights.shape == (k,)
            and self.means.shape == (k, d)
            and len(self.covariances) == k
            and all(c.shape == (d, d) for c in self.covariances)
            and all(c.shape == square for c in (self.cov, self.cov_privacy, self.cov_sampling))
            and (self.asked == 0 or self.asked >= k)
        )
        if not sound:
            raise OptionError("estimate: its components and its parts do not fit together.")
        numbers = (self.weights, self.means, *self.covariances)
        if not all(np.isfinite(p).all() for p in numbers) or not _sound_weights(self.weights):
            raise OptionError("estimate: weights are above 0 and sum to 1, all numbers are finite.")
        if min(np.linalg.eigvalsh(c).min() for c in self.covariances) <= 0:
            raise OptionError("estimate: covariances are positive definite.")

    def table(self, design: Design) -> ParameterTable:
        """Weights, means and standard deviations of the components."""
        k = len(self.weights)
        most = self.asked or k
        sds = np.array([np.sqrt(np.diag(c)) for c in self.covariances])
        names = mixture_names(most, self.columns)
        each = len(names) // most
        values = np.zeros(len(names))
        values[: k * each] = np.column_stack([self.weights, self.means, sds]).ravel()
        valid = not self.inference.startswith("none")
        return ParameterTable(
            names=names,
            groups=tuple(f"component {j}" for j in range(1, most + 1) for _ in range(each)),
            values=values,
            inner=np.arange(k * each),
            cov=self.cov if valid else np.full_like(self.cov, np.nan),
            cov_privacy=self.cov_privacy,
            cov_sampling=self.cov_sampling,
            testable=np.zeros(k * each, dtype=np.bool_),
            inference=self.inference,
            of_these_rows=True,
        )


@dataclass(frozen=True, eq=False)
class RegressionMixtureEstimate:
    """A mixture of k regressions on d columns, in the user's units, the heaviest first.

    Attributes
    ----------
    columns : tuple of str
        Their d names, the intercept's among them.
    weights : ndarray of shape (k,)
        They sum to 1.
    coef : ndarray of shape (k, d)
    sigma : float
        Standard deviation of the errors, of all components.
    cov, cov_privacy, cov_sampling : ndarray of shape (k (1 + d) + 1, k (1 + d) + 1)
        Covariance of each component's weight and coefficients, and last of sigma; the part of it
        that is privacy noise, and that of the maximum likelihood estimate from the rows themselves.
    nobs, released, remarks
        As for every `Estimate`; `nobs` is the released count of rows that contribute.
    inference : str
        As in `ParameterTable`.
    asked : int
        Components that there might have been at most; 0 for k.
    """

    columns: tuple[str, ...]
    weights: Array
    coef: Array
    sigma: float
    cov: Array
    cov_privacy: Array
    cov_sampling: Array
    nobs: float
    released: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    inference: str = ""
    asked: int = 0

    def __post_init__(self) -> None:  # it may come from a file
        k, d = len(self.weights), len(self.columns)
        square = (k * (1 + d) + 1,) * 2
        shapes = [c.shape for c in (self.cov, self.cov_privacy, self.cov_sampling)]
        sound = k > 0 and d > 0 and self.weights.shape == (k,) and self.coef.shape == (k, d)
        sound = sound and (self.asked == 0 or self.asked >= k)
        if not sound or shapes != [square] * 3:
            raise OptionError("estimate: its components and its parts do not fit together.")
        finite = np.isfinite(self.weights).all() and np.isfinite(self.coef).all()
        if not (finite and 0 < self.sigma < np.inf and _sound_weights(self.weights)):
            raise OptionError(
                "estimate: weights are above 0 and sum to 1, all numbers are finite, and sigma is "
                "above 0."
            )

    def table(self, design: Design) -> ParameterTable:
        """Weights and coefficients of the components, and the errors' standard deviation."""
        (k, d), most = self.coef.shape, self.asked or len(self.coef)
        names = regression_names(most, self.columns)
        inner = np.append(np.arange(k * (1 + d)), len(names) - 1)
        values = np.zeros(len(names))
        values[inner] = np.append(np.column_stack([self.weights, self.coef]), self.sigma)
        valid = not self.inference.startswith("none")
        weight = inner % (1 + d) == 0
        weight[-1] = True  # and sigma: above 0, like them
        return ParameterTable(
            names=names,
            groups=(
                *(f"component {j}" for j in range(1, most + 1) for _ in range(1 + d)),
                "errors",
            ),
            values=values,
            inner=inner,
            cov=self.cov if valid else np.full_like(self.cov, np.nan),
            cov_privacy=self.cov_privacy,
            cov_sampling=self.cov_sampling,
            testable=~weight & valid,
            inference=self.inference,
            of_these_rows=True,
        )
