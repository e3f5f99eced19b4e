"""A private mixture of regressions: its components, and what they say of new rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.design import DeclaredDesign
from dpstats.design.written import sides
from dpstats.errors import need_whole
from dpstats.families.mixtures import RegressionMixture
from dpstats.protocol.mixtures import RegressionMixtureEstimate
from dpstats.results.inference import interval
from dpstats.results.mixture import ComponentsResults, component_numbers, components_found
from dpstats.results.parameters import places_among
from dpstats.results.summary import Particulars

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.design import Design

__all__ = ["RegressionComponentsResults", "RegressionMixtureResults", "response_of"]

Array = NDArray[np.float64]


def response_of(design: Design) -> DeclaredDesign:
    """The left side of a design's formula as the one column of another."""
    assert design.formula is not None
    assert design.schema is not None
    left, _ = sides(design.formula)
    return DeclaredDesign.from_formula(f"0 + {left}", design.schema, response=False)


class RegressionComponentsResults(ComponentsResults, ABC):
    """What results of mixtures of regressions share: what they say of new rows."""

    @property
    @abstractmethod
    def mixture(self) -> RegressionMixture:
        """The mixture as arrays, in the user's units."""

    def predict_components(self, table: Any) -> pd.DataFrame:
        """Mean response of new rows in each component, of shape (m, k); nan where one is missing.

        Parameters
        ----------
        table : table
            New rows: pandas, polars or pyarrow, or a dict of arrays; the response is not needed.
        """
        import pandas as pd

        means = self.design.exog(table, clip=False) @ self.mixture.coef.T
        return pd.DataFrame(means, getattr(table, "index", None), component_numbers(self.mixture.k))

    def predict(self, table: Any) -> pd.Series:
        """Mean response of new rows over all components; nan where a value is missing."""
        return (self.predict_components(table) @ self.mixture.weights).rename("mean")

    def predict_proba(self, table: Any) -> pd.DataFrame:
        """Probability of each component for new rows whose response is known, of shape (m, k).

        Parameters
        ----------
        table : table
            As for `predict_components`, with the response. Where a value is missing probabilities
            are nan.
        """
        import pandas as pd

        with np.errstate(invalid="ignore"):  # of values that are missing
            shares = self.mixture.responsibilities(self._rows(table))
        return pd.DataFrame(
            shares, getattr(table, "index", None), component_numbers(self.mixture.k)
        )

    def score_samples(self, table: Any) -> pd.Series:
        """Log density of the response of new rows given their columns, of shape (m,).

        Parameters
        ----------
        table : table
            As for `predict_proba`. Where a value is missing it is nan.
        """
        import pandas as pd

        with np.errstate(invalid="ignore"):  # of values that are missing
            logs = self.mixture.log_density(self._rows(table))
        return pd.Series(logs, getattr(table, "index", None), name="log density")

    def sample(self, table: Any, seed: int) -> pd.Series:
        """Responses of new rows, drawn from the released mixture; they cost nothing.

        Parameters
        ----------
        table : table
            As for `predict_components`; the law of columns is no part of the model.
        seed : int
            Of the randomness.

        Returns
        -------
        Series of shape (m,)
            As the formula writes the response; values may lie outside of the declared range.
        """
        import pandas as pd
        from scipy.stats import norm, uniform

        need_whole(0, 2**32 - 1, seed=seed)
        means, weights = self.predict_components(table), self.mixture.weights
        chosen, noise = uniform.rvs(size=(2, len(means)), random_state=seed)
        component = np.searchsorted(np.cumsum(weights)[:-1], chosen)
        drawn = means.to_numpy()[np.arange(len(means)), component]
        drawn = drawn + self.mixture.sigma * norm.ppf(np.clip(noise, 1e-16, 1 - 1e-16))
        return pd.Series(drawn, means.index, name=self._response.names[0])

    def _rows(self, table: Any) -> Array:
        """New rows, and their responses last."""
        return np.column_stack([d.exog(table, clip=False) for d in (self.design, self._response)])

    @cached_property
    def _response(self) -> DeclaredDesign:
        return response_of(self.design)


@dataclass(frozen=True, eq=False, repr=False)
class RegressionMixtureResults(RegressionComponentsResults):
    """A private mixture of k regressions on d columns, the heaviest component first.

    `params`, `bse` and the rest are of all weights and coefficients in one row, and of ``sigma``.
    Coefficients are tested by the normal law; weights and sigma are not.
    """

    estimate: RegressionMixtureEstimate
    estimates = RegressionMixtureEstimate

    @cached_property
    def mixture(self) -> RegressionMixture:
        """The mixture as arrays, in the user's units."""
        return RegressionMixture(self.estimate.weights, self.estimate.coef, self.estimate.sigma)

    @property
    def weights(self) -> pd.Series:
        """Share of each component, of shape (k,)."""
        import pandas as pd

        return pd.Series(
            self.estimate.weights.copy(), component_numbers(self.mixture.k), name="weight"
        )

    @property
    def components(self) -> pd.DataFrame:
        """Coefficients, one row a component, of shape (k, d)."""
        import pandas as pd

        index = component_numbers(self.mixture.k)
        return pd.DataFrame(self.estimate.coef.copy(), index, list(self.estimate.columns))

    @property
    def sigma(self) -> float:
        """Standard deviation of the errors of every component."""
        return self.estimate.sigma

    def conf_int(
        self, alpha: float = 0.05, cols: Sequence[int | str] | None = None
    ) -> pd.DataFrame:
        """Intervals of level 1 - alpha, by component and parameter: columns 0 and 1.

        Sigma is a parameter of the component ``"all"``.
        """
        import pandas as pd

        names = ("weight", *self.estimate.columns)
        pairs = [(j, name) for j in component_numbers(self.mixture.k) for name in names]
        index = pd.MultiIndex.from_tuples(
            [*pairs, ("all", "sigma")], names=["component", "parameter"]
        )
        bounds = interval(self.table.inner_values, self._wald.se, alpha)
        found = pd.DataFrame(bounds, index=index)
        return found if cols is None else found.iloc[places_among(cols, self.table.inner_names)]

    # Reports --------------------------------------------------------------------------------------

    def _particulars(self) -> Particulars:
        return Particulars(
            sizes=self._sizes(components_found(self.estimate)),
            errors=(self.no_inference,),
            of_columns=False,
        )
