"""A private mixture of normal laws: its components, and what they say of new rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError, need_whole
from dpstats.families.mixtures import NormalMixture
from dpstats.protocol.mixtures import (
    MixtureEstimate,
    RegressionMixtureEstimate,
    component_names,
)
from dpstats.protocol.symmetric import SymmetricMixtureEstimate
from dpstats.results.inference import interval
from dpstats.results.parameters import ParameterResults, places_among
from dpstats.results.summary import Particulars

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ComponentsResults", "MixtureResults", "component_numbers", "components_found"]

Array = NDArray[np.float64]

_MOST_NAMED = 30  # wording: columns that are named one by one where a mixture is described


def component_numbers(k: int) -> pd.RangeIndex:
    """Components 1 to k."""
    import pandas as pd

    return pd.RangeIndex(1, k + 1, name="component")


def components_found(estimate: MixtureEstimate | RegressionMixtureEstimate) -> str:
    """How many components there are, and of how many where several numbers might have been."""
    k = len(estimate.weights)
    return f"{k} (of at most {estimate.asked})" if estimate.asked > k else str(k)


class ComponentsResults(ParameterResults):
    """What results of mixtures share: a test of the model, and its columns."""

    estimate: MixtureEstimate | RegressionMixtureEstimate | SymmetricMixtureEstimate

    @property
    def _columns(self) -> tuple[str, ...]:
        """Columns of the design that the mixture is of."""
        return tuple(self.design.names)

    def _check(self) -> None:
        super()._check()
        if self.estimate.columns != self._columns:
            raise OptionError("The result contradicts itself: estimate and design differ.")

    @property
    def goodness_of_fit(self) -> pd.Series:
        """Two tests of the model from what was released, and their common p-value.

        Chi-squared statistics with their degrees of freedom: of all numbers beyond those that the
        parameters need, and of the tails (of regressions also the variances) of components. Empty
        where the released numbers are not fitted together.
        """
        import pandas as pd

        return pd.Series(self.estimate.released.get("goodness of fit", {}), dtype=float)

    @property
    def _fitted(self) -> str:
        """What was fitted; a formula without a response by its terms, or by how many there are."""
        formula = self.model.formula or ""
        if "~" in formula:
            return f"model {formula}"
        columns = self._columns
        if len(columns) > _MOST_NAMED:
            return f"model of {len(columns):,} columns, {columns[0]} to {columns[-1]}"
        return f"model ~ {formula.strip().removeprefix('0 + ')}"

    def _sizes(self, components: str) -> tuple[tuple[str, str], ...]:
        """Lines of the summary: the components, and how well they fit."""
        test = self.goodness_of_fit
        p = f"{test['p']:.3g}" if "p" in test else "none"
        return (("Components:", components), ("Goodness of fit, p:", p))


@dataclass(frozen=True, eq=False, repr=False)
class MixtureResults(ComponentsResults):
    """A private mixture of k normal laws in d columns, the heaviest component first.

    `params`, `bse` and the rest are of all weights, means and standard deviations in one row. A
    hypothesis about one of them is not tested by the normal law; `conf_int` has their intervals.
    """

    estimate: MixtureEstimate
    estimates = MixtureEstimate

    @property
    def _columns(self) -> tuple[str, ...]:
        place = self.design.standardization.intercept
        return tuple(name for j, name in enumerate(self.design.names) if j != place)

    @cached_property
    def mixture(self) -> NormalMixture:
        """The mixture as arrays, in the user's units."""
        e = self.estimate
        return NormalMixture(e.weights, e.means, np.array(e.covariances))

    @property
    def _components(self) -> pd.RangeIndex:
        return component_numbers(self.mixture.k)

    @property
    def weights(self) -> pd.Series:
        """Share of each component, of shape (k,)."""
        import pandas as pd

        return pd.Series(self.estimate.weights.copy(), self._components, name="weight")

    @property
    def means(self) -> pd.DataFrame:
        """Means, one row a component, of shape (k, d)."""
        import pandas as pd

        return pd.DataFrame(self.estimate.means, self._components, list(self.estimate.columns))

    @property
    def covariances(self) -> dict[int, pd.DataFrame]:
        """Covariance of each component, of shape (d, d)."""
        import pandas as pd

        names = list(self.estimate.columns)
        pairs = zip(self._components, self.estimate.covariances, strict=True)
        return {j: pd.DataFrame(c.copy(), names, names) for j, c in pairs}

    def conf_int(
        self, alpha: float = 0.05, cols: Sequence[int | str] | None = None
    ) -> pd.DataFrame:
        """Intervals of level 1 - alpha, by component and parameter: columns 0 and 1."""
        import pandas as pd

        bounds = interval(self.table.inner_values, self._wald.se, alpha)
        names = component_names(self.estimate.columns)
        index = pd.MultiIndex.from_product(
            [self._components, names], names=["component", "parameter"]
        )
        found = pd.DataFrame(bounds, index=index)
        return found if cols is None else found.iloc[places_among(cols, self.table.inner_names)]

    # New rows -------------------------------------------------------------------------------------

    def _rows(self, table: Any) -> Array:
        place = self.design.standardization.intercept
        rows: Array = np.delete(self.design.exog(table, clip=False), place or 0, axis=1)
        return rows

    def _series(self, table: Any, values: Array, name: str) -> pd.Series:
        import pandas as pd

        return pd.Series(values, index=getattr(table, "index", None), name=name)

    def _shares(self, table: Any) -> Array:
        with np.errstate(invalid="ignore"):
            return self.mixture.responsibilities(self._rows(table))

    def predict_proba(self, table: Any) -> pd.DataFrame:
        """Probability of each component for new rows, of shape (m, k); nan where one is missing.

        Parameters
        ----------
        table : table
            New rows: pandas, polars or pyarrow, or a dict of arrays.
        """
        import pandas as pd

        shares = self._shares(table)
        return pd.DataFrame(shares, getattr(table, "index", None), self._components)

    def predict(self, table: Any) -> pd.Series:
        """The likeliest component of new rows, 1 to k; 0 where a value is missing."""
        shares = self._shares(table)
        known = ~np.isnan(shares).any(axis=1)
        chosen = np.where(known, np.nan_to_num(shares).argmax(axis=1) + 1, 0)
        return self._series(table, chosen, "component")

    def score_samples(self, table: Any) -> pd.Series:
        """Log density of the mixture at new rows, shape (m,)."""
        with np.errstate(invalid="ignore"):  # of values that are missing
            return self._series(table, self.mixture.log_density(self._rows(table)), "log density")

    def sample(self, n: int, seed: int) -> pd.DataFrame:
        """Rows drawn from the released mixture, which cost nothing and are nobody's.

        Parameters
        ----------
        n : int
            How many.
        seed : int
            Of their randomness.

        Returns
        -------
        DataFrame
            One column for each of the mixture's; values may lie outside of the declared range.
        """
        import pandas as pd
        from scipy.stats import uniform

        need_whole(1, 2**31, n=n)
        need_whole(0, 2**32 - 1, seed=seed)
        numbers = uniform.rvs(size=(n, self.mixture.d + 1), random_state=seed)
        rows = self.mixture.rows_of(np.clip(numbers, 1e-16, 1 - 1e-16))
        return pd.DataFrame(rows, columns=list(self.estimate.columns))

    # Reports --------------------------------------------------------------------------------------

    def _particulars(self) -> Particulars:
        return Particulars(
            law=(("Covariances:", str(self.plan.options.get("covariance"))),),
            sizes=self._sizes(components_found(self.estimate)),
            errors=(self.no_inference,),
            of_columns=False,
        )
