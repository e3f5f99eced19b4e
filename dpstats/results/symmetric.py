"""Private symmetric mixtures: two components around b and -b, and what they say of new rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import need_whole
from dpstats.families.mixtures import NormalMixture, RegressionMixture
from dpstats.families.signs import mean_sign
from dpstats.protocol.symmetric import SymmetricLinesEstimate, SymmetricMixtureEstimate
from dpstats.results.mixture import ComponentsResults, component_numbers
from dpstats.results.regression_mixture import RegressionComponentsResults
from dpstats.results.summary import Particulars

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.design import Design
    from dpstats.protocol import Plan

__all__ = ["SymmetricMixtureResults", "SymmetricRegressionResults"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class _SymmetricResults(ComponentsResults):
    """What both have: b, sigma, and the columns selected."""

    estimate: SymmetricMixtureEstimate

    @staticmethod
    def _sparsity(estimate: Any, design: Design, plan: Plan) -> int:
        return len(estimate.support)

    @property
    def beta(self) -> pd.Series:
        """b, of shape (d,); that of the two whose largest entry is positive."""
        import pandas as pd

        return pd.Series(self.estimate.beta.copy(), list(self.estimate.columns), name="beta")

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise, of both components; public where it was given."""
        return self.estimate.sigma

    @property
    def weights(self) -> pd.Series:
        """One half for each component: a part of the model."""
        import pandas as pd

        return pd.Series([0.5, 0.5], component_numbers(2), name="weight")

    @property
    def selected(self) -> list[str]:
        """Columns in which b may differ from zero: all of them unless the fit is sparse."""
        return [self.estimate.columns[j] for j in self.estimate.support]

    @property
    def path(self) -> pd.DataFrame:
        """Every iterate that was released on the way, one row a step; empty where none was."""
        import pandas as pd

        made = pd.DataFrame.from_dict(self.estimate.released.get("path", {}), orient="index")
        made.index = pd.RangeIndex(1, len(made) + 1, name="step")
        return made.reindex(columns=list(self.estimate.columns)).fillna(0.0)

    def _signed(self) -> pd.DataFrame:
        """b and -b, one row a component."""
        import pandas as pd

        rows = np.stack([self.estimate.beta, -self.estimate.beta])
        return pd.DataFrame(rows, component_numbers(2), list(self.estimate.columns))

    def _particulars(self) -> Particulars:
        known = " (given)" if self.estimate.public_sigma else ""
        return Particulars(
            law=(("Sigma:", f"{self.sigma:.4g}{known}"),),
            sizes=self._sizes("b and -b"),
            errors=(self.no_inference,),
        )


@dataclass(frozen=True, eq=False, repr=False)
class SymmetricMixtureResults(_SymmetricResults):
    """Two normal laws around b (component 1) and -b (component 2), equally likely."""

    estimates = SymmetricMixtureEstimate

    @cached_property
    def mixture(self) -> NormalMixture:
        """The mixture as arrays, in the user's units."""
        b = self.estimate.beta
        covariances = np.broadcast_to(self.sigma**2 * np.eye(b.size), (2, b.size, b.size))
        return NormalMixture(np.full(2, 0.5), np.stack([b, -b]), covariances)

    @property
    def means(self) -> pd.DataFrame:
        """Means, one row a component, of shape (2, d)."""
        return self._signed()

    @property
    def covariances(self) -> dict[int, pd.DataFrame]:
        """Covariance of each component, sigma^2 I, of shape (d, d)."""
        import pandas as pd

        names = list(self.estimate.columns)
        pairs = zip(component_numbers(2), self.mixture.covariances, strict=True)
        return {j: pd.DataFrame(c.copy(), names, names) for j, c in pairs}

    def _odds(self, rows: Array) -> Array:
        """Half of the log odds of component 1."""
        odds: Array = rows @ self.estimate.beta / self.sigma**2
        return odds

    def predict_proba(self, table: Any) -> pd.DataFrame:
        """Probability of each component for new rows, of shape (m, 2); nan where one is missing.

        Parameters
        ----------
        table : table
            New rows: pandas, polars or pyarrow, or a dict of arrays.
        """
        import pandas as pd

        sign = mean_sign(self._odds(self.design.exog(table, clip=False)))
        shares = np.column_stack([(1 + sign) / 2, (1 - sign) / 2])
        return pd.DataFrame(shares, getattr(table, "index", None), component_numbers(2))

    def predict(self, table: Any) -> pd.Series:
        """The likelier component of new rows, 1 or 2; 0 where a value is missing."""
        import pandas as pd

        odds = self._odds(self.design.exog(table, clip=False))
        chosen = np.where(np.isnan(odds), 0, np.where(odds >= 0, 1, 2))
        return pd.Series(chosen, index=getattr(table, "index", None), name="component")

    def score_samples(self, table: Any) -> pd.Series:
        """Log density of the mixture at new rows, shape (m,)."""
        import pandas as pd

        rows, e = self.design.exog(table, clip=False), self.estimate
        odds, d = self._odds(rows), len(e.columns)
        squares = (np.sum(rows**2, axis=1) + e.beta @ e.beta) / (2 * e.sigma**2)
        constant = d * math.log(e.sigma) + 0.5 * d * math.log(2 * math.pi) + math.log(2)
        logs = np.logaddexp(odds, -odds) - squares - constant
        return pd.Series(logs, index=getattr(table, "index", None), name="log density")

    def sample(self, n: int, seed: int) -> pd.DataFrame:
        """Rows drawn from the released mixture, which cost nothing and are nobody's.

        Parameters
        ----------
        n : int
            How many.
        seed : int
            Of their randomness.
        """
        import pandas as pd
        from scipy.special import ndtri
        from scipy.stats import uniform

        need_whole(1, 2**31, n=n)
        need_whole(0, 2**32 - 1, seed=seed)
        e = self.estimate
        numbers = uniform.rvs(size=(n, len(e.columns) + 1), random_state=seed)
        signs = np.where(numbers[:, :1] < 0.5, -1.0, 1.0)
        noise = ndtri(np.clip(numbers[:, 1:], 1e-16, 1 - 1e-16))
        rows = signs * e.beta + e.sigma * noise
        return pd.DataFrame(rows, columns=list(e.columns))


@dataclass(frozen=True, eq=False, repr=False)
class SymmetricRegressionResults(_SymmetricResults, RegressionComponentsResults):
    """Two regressions with coefficients b (component 1) and -b (component 2), equally likely."""

    estimate: SymmetricLinesEstimate
    estimates = SymmetricLinesEstimate

    @cached_property
    def mixture(self) -> RegressionMixture:
        """The mixture as arrays, in the user's units."""
        b = self.estimate.beta
        return RegressionMixture(np.full(2, 0.5), np.stack([b, -b]), self.sigma)

    @property
    def components(self) -> pd.DataFrame:
        """Coefficients, one row a component, of shape (2, d)."""
        return self._signed()
