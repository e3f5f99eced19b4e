"""A private multinomial logit: coefficients of each level, and what they say of new rows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import ExtrapolationWarning, OptionError, need_flag
from dpstats.protocol.levels import LevelsEstimate
from dpstats.results.effects import Chances, MarginalEffects, in_coefficients, marginal_effects
from dpstats.results.inference import interval
from dpstats.results.prediction import what_is_astray
from dpstats.results.summary import Particulars
from dpstats.results.terms import TermResults
from dpstats.text import plain

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["LevelsPrediction", "LevelsResults"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LevelsPrediction:
    """Predicted probabilities of K levels for m new rows.

    Attributes
    ----------
    levels : tuple of str
    predicted, se_mean : ndarray of shape (m, K)
        Probabilities, and standard errors by the delta method.
    row_labels : sequence, optional
        Index of the new rows.
    """

    levels: tuple[str, ...]
    predicted: Array
    se_mean: Array
    row_labels: Any = None

    def conf_int(self, alpha: float = 0.05) -> Array:
        """Intervals of level 1 - alpha, shape (m, K, 2), made for log odds: they stay in (0, 1)."""
        p = self.predicted
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = interval(
                np.log(p / (1 - p)).ravel(), (self.se_mean / (p * (1 - p))).ravel(), alpha
            )
        inside: Array = 1 / (1 + np.exp(-ends.reshape(*p.shape, 2)))
        return inside

    def summary_frame(self, alpha: float = 0.05) -> pd.DataFrame:
        """Columns mean, mean_se, mean_ci_lower and mean_ci_upper; one row a new row and level."""
        import pandas as pd

        labels = range(len(self.predicted)) if self.row_labels is None else self.row_labels
        low, high = np.moveaxis(self.conf_int(alpha), -1, 0)
        columns = {
            "mean": self.predicted,
            "mean_se": self.se_mean,
            "mean_ci_lower": low,
            "mean_ci_upper": high,
        }
        index = pd.MultiIndex.from_product([labels, self.levels])
        return pd.DataFrame({name: each.ravel() for name, each in columns.items()}, index)


@dataclass(frozen=True, eq=False, repr=False)
class LevelsResults(TermResults):
    """A private multinomial logit of q + 1 levels on d columns.

    `params`, `bse` and the rest are of all coefficients in one row, named by column and level,
    ``"age [car]"``; they are log odds of the level against the base, the first one declared.
    """

    estimate: LevelsEstimate
    estimates = LevelsEstimate

    def _check(self) -> None:
        super()._check()
        if self.levels != self._declared():
            raise OptionError("The result contradicts itself: estimate and design differ.")

    def _declared(self) -> tuple[str, ...]:
        endog, schema = self.design.endog, self.design.schema
        found = None if endog is None or schema is None else schema.get(endog.name)
        return tuple(map(str, getattr(found, "levels", ())))

    @property
    def levels(self) -> tuple[str, ...]:
        """Levels of the response, the base first."""
        return self.estimate.levels

    @property
    def cov_type(self) -> str:
        """What covariances hold: HC1, or by the unit of privacy, and the noise."""
        clustered = self.plan.max_rows > 1
        return f"{'cluster' if clustered else 'HC1'} + privacy"

    @property
    def coefficients(self) -> pd.DataFrame:
        """Coefficients, one row a column of the design, one column a level but the base."""
        import pandas as pd

        names, others = list(self.design.names), list(self.levels[1:])
        return pd.DataFrame(self._matrix, names, others)

    @property
    def _matrix(self) -> Array:
        """Coefficients of shape (d, q)."""
        return self.table.values.reshape(len(self.levels) - 1, -1).T.copy()

    def get_prediction(self, exog: Any, *, clip: bool = True) -> LevelsPrediction:
        """Probability of each level for new rows, with standard errors.

        Parameters
        ----------
        exog : table
            New rows: pandas, polars or pyarrow, or a dict of arrays; the response is not needed. A
            row with a missing value, or of no declared level, is predicted NaN.
        clip : bool, default True
            Whether values outside of the declared range are moved to its ends, as for the fit.

        Warns
        -----
        ExtrapolationWarning
            Of values outside of the declared range, and of no declared level, by column.
        """
        need_flag(clip=clip)
        X = self.design.exog(exog, clip=clip)
        for message in what_is_astray(self.design, exog, {}, clip):
            warnings.warn(plain(message), ExtrapolationWarning, stacklevel=2)
        predicted, slope, _ = Chances(self.levels).derivatives(X @ self._matrix)
        J = in_coefficients(slope, X)
        return LevelsPrediction(
            levels=self.levels,
            predicted=predicted,
            se_mean=np.sqrt(np.einsum("mkp,pr,mkr->mk", J, self.table.cov, J)),
            row_labels=getattr(exog, "index", None),
        )

    def predict(self, exog: Any, *, clip: bool = True) -> pd.DataFrame:
        """Probability of each level for new rows, shape (m, q + 1); see `get_prediction`."""
        import pandas as pd

        found = self.get_prediction(exog, clip=clip)
        return pd.DataFrame(found.predicted, found.row_labels, list(self.levels))

    def get_margeff(
        self,
        at: str = "overall",
        method: str = "dydx",
        *,
        new: Any = None,
        dummy: bool = False,
        count: bool = False,
    ) -> MarginalEffects:
        """Marginal effects on the probability of each level, at rows that are given.

        Parameters, results and errors are those of `RegressionResults.get_margeff`. Effects are
        named ``age [car]``, by covariate and level of the response; those of one covariate add up
        to 0.

        Raises
        ------
        PrivateQuantityError
            Without `new`: averages over the private rows were never released.
        OptionError, DataError
            If an argument is none of those allowed, or new rows miss a value.
        """
        law = Chances(self.levels)
        found = marginal_effects(self, law, new, at, method, dummy=dummy, count=count)
        for message in what_is_astray(self.design, new, {}, True):
            warnings.warn(plain(message), ExtrapolationWarning, stacklevel=2)
        return found

    def _particulars(self) -> Particulars:
        base = self.levels[0]
        shares = self.released.get("shares")
        parts = shares.items() if isinstance(shares, dict) else ()
        text = ", ".join(f"{k} {v:.3f}" for k, v in parts if isinstance(v, float))
        return Particulars(
            sizes=(("Levels:", str(len(self.levels))), ("Base:", base)),
            errors=(self.no_inference,),
            meaning=(
                f"A coefficient is what one unit of its column adds to the log odds of its level "
                f"against {base!r}. Tests name it by both, {self.table.names[0]!r}.",
                *((f"Noisy shares of levels: {text}.",) if text else ()),
            ),
        )
