"""Settings for the constants of methods that describe columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import dpstats as dp
from benchmarks.common import Array
from benchmarks.tune.settings import Fit
from dpstats.models.descriptive import describe_model

__all__ = ["LOCAL", "SETTINGS", "Description"]

_LEVELS = (0.25, 0.5, 0.75)
_WIDE = 1000  # times the width of the data that ranges are declared with


@dataclass(frozen=True)
class Description:
    """Quartiles, a histogram, or descriptions of columns, all of one law.

    Attributes
    ----------
    model : {"quantile", "histogram", "describe"}
    n, d : int
        Rows and columns.
    epsilon : float
    law : {"normal", "log-normal"}
    trust : {"central", "local", "rounds"}
        Whether a curator is asked, or devices, once or in rounds.
    """

    model: str
    n: int
    d: int = 1
    epsilon: float = 1.0
    law: str = "normal"
    trust: str = "central"

    def __str__(self) -> str:
        asked = "" if self.trust == "central" else f" {self.trust}"
        return f"{self.model}{asked}, {self.law}, n={self.n}, d={self.d}, eps={self.epsilon:g}"

    def run(self, repetitions: int, seed: int) -> Iterator[Fit]:
        """Fits with the constants as they are now; the same draws whenever called."""
        truth = self._truth()
        for r in range(repetitions):
            rows = self._draw(np.random.default_rng([seed, r]))
            names = [f"y{j}" for j in range(self.d)]
            wide = 1 if self.trust == "local" else _WIDE  # which devices asked once cannot bear
            low = 0.0 if self.law == "log-normal" else -4.0 * wide
            schema = dp.Schema({name: dp.Numeric(low, 6.0 * wide) for name in names})
            table = dict(zip(names, rows.T, strict=True))
            privacy: Any = dp.Central(self.epsilon, 1e-6, large_delta=True)
            if self.trust != "central":
                privacy = dp.Local(self.epsilon, interactive=self.trust == "rounds")
            if self.model == "describe":
                made = describe_model(table, schema)
            else:
                made = (dp.quantile if self.model == "quantile" else dp.histogram)(
                    "y0", table, schema
                )
            found = made.fit(privacy, noise=dp.SeededNoise(seed + r))
            ends = found.conf_int().to_numpy()
            target = self._shares(found.edges) if self.model == "histogram" else truth
            off = found.params.to_numpy() - target
            covered = ((ends[:, 0] <= target) & (target <= ends[:, 1])).astype(float)
            yield Fit(float(off @ off), covered, np.diff(ends).ravel() / 2)

    def _draw(self, rng: np.random.Generator) -> Array:
        rows = rng.standard_normal((self.n, self.d))
        return np.exp(rows) if self.law == "log-normal" else rows

    def _truth(self) -> Array:
        from scipy.special import ndtri

        quartiles = ndtri(_LEVELS)
        moments = np.array([0.0, 1.0])
        if self.law == "log-normal":
            quartiles, moments = np.exp(quartiles), np.exp(0.5) * np.array([1.0, np.e - 1])
            moments[1] = np.sqrt(np.e * (np.e - 1))
        one = quartiles if self.model == "quantile" else np.concatenate([moments, quartiles])
        return np.tile(one, self.d)

    def _shares(self, edges: Array) -> Array:
        from scipy.special import ndtr

        at = np.log(np.maximum(edges, 1e-300)) if self.law == "log-normal" else edges
        return np.diff(ndtr(at))


SETTINGS = tuple(
    Description(model, n, d, law=law)
    for model, n, d in (
        ("quantile", 500, 1),
        ("quantile", 5000, 1),
        ("histogram", 2000, 1),
        ("describe", 4000, 3),
    )
    for law in ("normal", "log-normal")
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
