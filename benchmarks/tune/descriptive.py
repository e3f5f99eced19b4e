"""Settings for the constants of methods that describe columns and compare them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

import dpstats as dp
from benchmarks.common import Array
from benchmarks.tune.settings import Fit
from dpstats.models.descriptive import describe_model

__all__ = ["LOCAL", "SETTINGS", "Comparison", "Description"]

_LEVELS = (0.25, 0.5, 0.75)
_APART = 0.4  # sds between two groups; latent correlation of two columns
_WIDE = 1000  # times the width of the data that ranges are declared with


def _fit(found: Any, target: Array) -> Fit:
    """Squared error of what was found, and whether its intervals hold what they are of."""
    ends = found.conf_int().to_numpy()
    off = found.params.to_numpy() - target
    covered = ((ends[:, 0] <= target) & (target <= ends[:, 1])).astype(float)
    return Fit(float(off @ off), covered, np.diff(ends).ravel() / 2)


@dataclass(frozen=True)
class Description:
    """Quartiles, a histogram, moments, or descriptions of columns, all of one law.

    Attributes
    ----------
    model : {"quantile", "histogram", "variance", "describe"}
    n, d : int
        Rows and columns.
    epsilon : float
    law : {"normal", "log-normal", "uniform", "t"}
        The last with 5 degrees of freedom.
    trust : {"central", "local", "rounds"}
        Whether a curator is asked, or devices, once or in rounds.
    delta : float
        Of a curator; without one noise is Laplace noise.
    """

    model: str
    n: int
    d: int = 1
    epsilon: float = 1.0
    law: str = "normal"
    trust: str = "central"
    delta: float = 1e-6

    def __str__(self) -> str:
        asked = "" if self.trust == "central" else f" {self.trust}"
        pure = "" if self.delta else ", delta=0"
        return (
            f"{self.model}{asked}, {self.law}, n={self.n}, d={self.d}, eps={self.epsilon:g}{pure}"
        )

    def run(self, repetitions: int, seed: int) -> Iterator[Fit]:
        """Fits with the constants as they are now; the same draws whenever called."""
        truth = self._truth()
        for r in range(repetitions):
            rows = self._law.rvs((self.n, self.d), random_state=np.random.default_rng([seed, r]))
            names = [f"y{j}" for j in range(self.d)]
            wide = 1 if self.trust == "local" else _WIDE  # which devices asked once cannot bear
            low = 0.0 if self.law == "log-normal" else -4.0 * wide
            schema = dp.Schema({name: dp.Numeric(low, 6.0 * wide) for name in names})
            table = dict(zip(names, rows.T, strict=True))
            privacy: Any = dp.Central(self.epsilon, self.delta, large_delta=True)
            if self.trust != "central":
                privacy = dp.Local(self.epsilon, interactive=self.trust == "rounds")
            if self.model == "describe":
                made = describe_model(table, schema)
            else:
                made = getattr(dp, self.model)("y0", table, schema)
            found = made.fit(privacy, noise=dp.SeededNoise(seed + r))
            target = np.diff(self._law.cdf(found.edges)) if self.model == "histogram" else truth
            yield _fit(found, target)

    @property
    def _law(self) -> Any:
        laws = {"log-normal": stats.lognorm(1), "uniform": stats.uniform(-1, 2), "t": stats.t(5)}
        return laws.get(self.law, stats.norm())

    def _truth(self) -> Array:
        quartiles, mean, sd = self._law.ppf(_LEVELS), self._law.mean(), self._law.std()
        each = {"quantile": quartiles, "variance": [mean, sd**2, sd]}
        one = each.get(self.model, np.array([mean, sd, *quartiles]))
        return np.tile(one, self.d)


@dataclass(frozen=True)
class Comparison:
    """Two columns, or two groups of one, whose ranks are those of normal ones.

    Attributes
    ----------
    method : {"spearman", "pearson", "welch", "rank"}
    n : int
    law : {"normal", "log-normal"}
    """

    method: str
    n: int
    law: str = "normal"

    def __str__(self) -> str:
        return f"{self.method}, {self.law}, n={self.n}"

    def run(self, repetitions: int, seed: int) -> Iterator[Fit]:
        """Fits with the constants as they are now; the same draws whenever called."""
        for r in range(repetitions):
            rng = np.random.default_rng([seed, r])
            groups = self.method in ("welch", "rank")
            second = rng.random(self.n) < 0.3
            y = rng.standard_normal(self.n) + _APART * second * groups
            z = _APART * y + np.sqrt(1 - _APART**2) * rng.standard_normal(self.n)
            if self.law == "log-normal":
                y, z = np.exp(y), np.exp(z)
            wide = dp.Numeric(0 if self.law == "log-normal" else -4 * _WIDE, 6 * _WIDE)
            schema = dp.Schema(y=wide, z=wide, g=dp.Boolean())
            table = {"y": y, "z": z, "g": second}
            made = (
                dp.ttest("y ~ g", table, schema) if groups else dp.corr(["y", "z"], table, schema)
            )
            privacy, noise = dp.Central(1.0, 1e-6, large_delta=True), dp.SeededNoise(seed + r)
            yield _fit(made.fit(privacy, noise=noise, method=self.method), self._truth())

    def _truth(self) -> Array:
        normal = self.law == "normal"
        if self.method == "spearman":
            return np.array([6 / np.pi * np.arcsin(_APART / 2)])
        if self.method == "pearson":
            return np.array([_APART if normal else np.expm1(_APART) / np.expm1(1)])
        if self.method == "rank":
            return stats.norm.cdf([_APART / np.sqrt(2)])
        first, other = (0.0, _APART) if normal else np.exp([0.5, 0.5 + _APART])
        return np.array([other - first, first, other])


SETTINGS = (
    *(
        Description(model, n, d, law=law)
        for model, n, d in (
            ("quantile", 500, 1),
            ("quantile", 5000, 1),
            ("histogram", 2000, 1),
            ("describe", 4000, 3),
        )
        for law in ("normal", "log-normal")
    ),
    *(Description("variance", 4000, law=law) for law in ("normal", "uniform", "t")),
    *(Description("variance", n) for n in (300,)),
    *(Description(model, 2000, delta=0) for model in ("quantile", "histogram")),
    *(
        Comparison(method, 4000, law)
        for method in ("spearman", "pearson", "welch", "rank")
        for law in ("normal", "log-normal")
    ),
)
LOCAL = tuple(
    Description(model, 20_000, epsilon=2.0, law=law, trust=trust)
    for model, trust in (
        ("quantile", "local"),
        ("quantile", "rounds"),
        ("histogram", "local"),
        ("histogram", "rounds"),
    )
    for law in ("normal", "log-normal")
)
