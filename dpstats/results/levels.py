"""A private multinomial logit: coefficients of each level, and what they say of new rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError
from dpstats.protocol.levels import LevelsEstimate
from dpstats.results.parameters import ParameterResults
from dpstats.results.summary import Particulars

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["LevelsResults"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class LevelsResults(ParameterResults):
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

    def predict(self, table: Any) -> pd.DataFrame:
        """Probability of each level for new rows, of shape (m, q + 1); nan where one is missing.

        Parameters
        ----------
        table : table
            New rows: pandas, polars or pyarrow, or a dict of arrays; the response is not needed.
        """
        import pandas as pd

        eta = self.design.exog(table, clip=False) @ self._matrix
        eta = np.column_stack([np.zeros(len(eta)), eta])
        odds = np.exp(eta - eta.max(axis=1, keepdims=True))
        chances = odds / odds.sum(axis=1, keepdims=True)
        return pd.DataFrame(chances, getattr(table, "index", None), list(self.levels))

    def get_margeff(self, *arguments: Any, **options: Any) -> Any:
        """Not in this release: a coefficient of one level changes the chances of all.

        Raises
        ------
        OptionError
        """
        raise OptionError(
            "Marginal effects of several levels are not in this release: predict() on rows before "
            "and after a change gives the effect on each probability."
        )

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
                f"against {base!r}.",
                *((f"Noisy shares of levels: {text}.",) if text else ()),
            ),
        )
