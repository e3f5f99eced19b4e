"""What is released of a mixture of normal laws, and the table of its parameters."""

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

__all__ = ["MixtureEstimate", "component_names", "mixture_names"]

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
        if not all(np.isfinite(part).all() for part in numbers) or not (
            (self.weights > 0).all() and abs(self.weights.sum() - 1) < 1e-6
        ):
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
