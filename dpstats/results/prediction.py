"""Predicted means for new rows, and how sure one may be of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError, PrivateQuantityError, among, given
from dpstats.families import GAUSSIAN, Family
from dpstats.results import inference

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.design import Design

__all__ = ["Prediction", "what_is_astray"]

Array = NDArray[np.float64]


# Columns of a summary frame, as statsmodels names them for each `which`.
_COLUMNS = {
    "mean": ("mean", "mean_se", "mean_ci_lower", "mean_ci_upper"),
    "linear": ("predicted", "se", "ci_lower", "ci_upper"),
}


@dataclass(frozen=True)
class Prediction:
    """Predicted means for new rows, or their linear predictors, with standard errors.

    Attributes
    ----------
    linpred, var_linpred : ndarray of shape (m,)
        Linear predictor, and the variance of its error from `Results.cov_params`.
    family : Family
        Its link turns the linear predictor into the mean.
    which : {"mean", "linear"}
        What is predicted.
    var_resid : float, optional
        Released residual variance, in squared units of the response; None where the method
        releases none or the family has another law than a linear model, and then no interval for
        a new observation can be given.
    row_labels : sequence, optional
        Index of the new rows.

    Raises
    ------
    OptionError
        If `which` is neither.
    """

    linpred: Array
    var_linpred: Array
    family: Family = GAUSSIAN
    which: str = "mean"
    var_resid: float | None = None
    row_labels: Any = None

    def __post_init__(self) -> None:
        if not among(self.which, _COLUMNS):
            raise OptionError(f"which={given(self.which)}: allowed are 'mean' and 'linear'.")

    def _scaled(self, linpred: Array) -> Array:
        return linpred if self.which == "linear" else self.family.mean(linpred)

    @property
    def predicted(self) -> Array:
        """Point prediction, shape (m,)."""
        return self._scaled(self.linpred)

    @property
    def predicted_mean(self) -> Array:
        """Another name of `predicted`."""
        return self.predicted

    @property
    def se_mean(self) -> Array:
        """Standard error of the prediction, by the delta method, shape (m,)."""
        slope = 1.0 if self.which == "linear" else self.family.slope(self.linpred)
        se: Array = slope * np.sqrt(self.var_linpred)
        return se

    @property
    def var_pred_mean(self) -> Array:
        """Square of `se_mean`, shape (m,)."""
        return self.se_mean**2

    @property
    def se_obs(self) -> Array:
        """Standard error of a new observation, shape (m,).

        Raises
        ------
        PrivateQuantityError
            Where the method released no residual scale, or the model is not linear.
        """
        if self.var_resid is None:
            raise PrivateQuantityError(
                "No interval for a new observation: this method released no residual scale, and "
                "the exact one is private. The interval of the mean, `conf_int()`, is available; "
                "dp.evaluate buys the residual variance, and dp.quantreg(q=) ends of an interval."
            )
        se: Array = np.sqrt(self.var_pred_mean + self.var_resid)
        return se

    def conf_int(self, alpha: float = 0.05, obs: bool = False) -> Array:
        """Interval of level 1 - alpha for the prediction, or for a new observation; shape (m, 2).

        That of a mean is the interval of the linear predictor through the link, so that it stays
        where means can be.
        """
        if obs:
            return inference.interval(self.predicted, self.se_obs, alpha)
        return self._scaled(inference.interval(self.linpred, np.sqrt(self.var_linpred), alpha))

    def summary_frame(self, alpha: float = 0.05) -> pd.DataFrame:
        """Columns mean, mean_se, mean_ci_lower, mean_ci_upper, and obs_ci_* where available.

        Of linear predictors: predicted, se, ci_lower, ci_upper.
        """
        import pandas as pd

        values = (self.predicted, self.se_mean, *self.conf_int(alpha).T)
        columns = dict(zip(_COLUMNS[self.which], values, strict=True))
        if self.var_resid is not None:
            bounds = self.conf_int(alpha, obs=True).T
            columns |= dict(zip(("obs_ci_lower", "obs_ci_upper"), bounds, strict=True))
        return pd.DataFrame(columns, index=self.row_labels)


def what_is_astray(
    design: Design, table: Any, known: Mapping[str, Any], clip: bool
) -> Iterator[str]:
    """Warnings about values of new rows that lie outside of what is declared, by column.

    With `clip` they are moved to the ends of the range; otherwise they are taken as they are, but
    by splines and polynomials, which keep the value at the end.
    """
    found = design.astray(table, known)
    outside = {n: a.outside for n, a in found.items() if a.outside and (clip or n in design.bases)}
    undeclared = {name: a.undeclared for name, a in found.items() if a.undeclared}
    if outside and clip:
        yield (
            f"Outside of the declared range: {_counted(outside)}. They were moved to its ends, as "
            "for the fit; predict(..., clip=False) extrapolates."
        )
    elif outside:
        yield (
            f"Outside of the declared range: {_counted(outside)}. Splines and polynomials keep "
            "their value at its ends."
        )
    if undeclared:
        yield f"Of no declared level: {_counted(undeclared)}. These rows were predicted nan."


def _counted(values: dict[str, int]) -> str:
    each = [f"{n:,} value{'s' * (n > 1)} of {name!r}" for name, n in values.items()]
    return ", ".join(each)
