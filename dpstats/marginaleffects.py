"""Private fits for the package marginaleffects: predictions, comparisons and slopes.

The package has to be installed; nothing else of dpstats needs it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpstats.errors import OptionError
from dpstats.results.regression import RegressionResults
from dpstats.schema import Boolean, Categorical, Numeric
from dpstats.tables import named_columns

try:
    import polars as pl
    from marginaleffects.classes import ModelAbstract, ModelVault
except ImportError as missing:
    raise ImportError(
        "dpstats.marginaleffects needs the package marginaleffects: install it. Without it, "
        "fit.get_margeff and fit.get_prediction have effects and predictions with standard errors."
    ) from missing

__all__ = ["adapted"]


def adapted(fit: RegressionResults, rows: Any) -> ModelAbstract:
    """A fit as marginaleffects takes models: ``avg_slopes(adapted(fit, rows), variables="age")``.

    Parameters
    ----------
    fit : Results
        A regression by formula whose coefficients have standard errors; these count the noise.
    rows : table
        Where effects are taken, with the columns of the right side: rows that may be public. What
        marginaleffects averages over them is exact; averages over private rows are no release.

    Notes
    -----
    marginaleffects differentiates by differences of differences; with its default step standard
    errors of slopes were wrong by up to a third, with ``eps=0.1`` they are right to five digits.

    Returns
    -------
    marginaleffects.classes.ModelAbstract

    Raises
    ------
    OptionError
        If the fit is another one.
    DataError
        If `rows` lacks a column.
    """
    design = fit.design if isinstance(fit, RegressionResults) else None
    if design is None or design.schema is None or not design.predictors or not fit.has_inference:
        raise OptionError(
            "marginaleffects: a regression by formula is needed, of declared columns and with "
            "standard errors."
        )
    return _ReleasedModel(fit, rows)


class _ReleasedModel(ModelAbstract):  # type: ignore[misc]
    """What marginaleffects asks of a model, answered by released numbers."""

    def __init__(self, fit: RegressionResults, rows: Any) -> None:
        schema, names = fit.design.schema, fit.design.predictors
        assert schema is not None
        columns = {}
        for name, column in named_columns(rows, names).items():
            declared, values = schema[name], pl.Series(name, list(column[:]))
            if isinstance(declared, Categorical):
                levels = [str(level) for level in declared.levels]
                values = values.cast(pl.String).cast(pl.Enum(levels))
            columns[name] = values
        vault = ModelVault(
            coef=fit.table.inner_values.copy(),
            coefnames=np.array(fit.table.inner_names),
            formula=lambda data: (None, self.get_exog(data)),
            modeldata=pl.DataFrame(columns),
            vcov=fit.table.cov.copy(),
            package="dpstats",
            variable_names=[fit.response, *names],
        )
        super().__init__(fit, vault)

    def validation(self) -> None:
        """What kind each column is, from the schema; values are not looked at."""
        kinds = {Categorical: "character", Boolean: "boolean", Numeric: "numeric"}
        design = self.model.design
        self.vault.variables_type = {n: kinds[type(design.schema[n])] for n in design.predictors}
        self.coef, self.formula = self.vault.coef, self.vault.formula
        self.modeldata, self.response_name = self.vault.modeldata, self.model.response

    def get_exog(self, newdata: pl.DataFrame) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Design of some rows; a known term is its last column."""
        design, table = self.model.design, self.model.table
        rows = {name: np.asarray(newdata[name].to_list()) for name in design.predictors}
        columns: np.ndarray[Any, np.dtype[np.float64]] = design.exog(rows, table.inner)
        return columns if design.offset is None else np.c_[columns, design.known_term(rows)]

    def get_predict(self, params: Any, newdata: Any) -> pl.DataFrame:
        """Means of rows of `get_exog` for some coefficients."""
        x, k = np.asarray(newdata, dtype=np.float64), len(self.vault.coef)
        mean = self.model.design.family.mean(x[:, :k] @ np.asarray(params) + x[:, k:].sum(axis=1))
        return pl.DataFrame({"rowid": pl.Series(range(len(x)), dtype=pl.Int32), "estimate": mean})

    def get_df(self) -> float:
        """Standard normal quantiles, as in every table here."""
        return float("inf")
