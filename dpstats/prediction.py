"""Predicted means for new rows, and how sure one may be of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats import inference
from dpstats.errors import PrivateQuantityError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Prediction"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Prediction:
    """Predicted means for new rows, with standard errors from `Results.cov_params`.

    Attributes
    ----------
    predicted_mean, var_pred_mean : ndarray of shape (m,)
        Point prediction and the variance of its error.
    var_resid : float, optional
        Released residual variance, in squared units of the response; None where the method
        releases none, and then no interval for a new observation can be given.
    row_labels : sequence, optional
        Index of the new rows.
    """

    predicted_mean: Array
    var_pred_mean: Array
    var_resid: float | None = None
    row_labels: Any = None

    @property
    def se_mean(self) -> Array:
        """Standard error of the predicted mean, shape (m,)."""
        se: Array = np.sqrt(self.var_pred_mean)
        return se

    @property
    def se_obs(self) -> Array:
        """Standard error of a new observation, shape (m,).

        Raises
        ------
        PrivateQuantityError
            Where the method released no residual scale.
        """
        if self.var_resid is None:
            raise PrivateQuantityError(
                "No interval for a new observation: this method released no residual scale, and "
                "the exact one is private. The interval of the mean, `conf_int()`, is available."
            )
        se: Array = np.sqrt(self.var_pred_mean + self.var_resid)
        return se

    def conf_int(self, alpha: float = 0.05, obs: bool = False) -> Array:
        """Interval of level 1 - alpha for the mean, or for a new observation; shape (m, 2)."""
        se = self.se_obs if obs else self.se_mean
        return inference.interval(self.predicted_mean, se, alpha)

    def summary_frame(self, alpha: float = 0.05) -> pd.DataFrame:
        """Columns mean, mean_se, mean_ci_lower, mean_ci_upper, and obs_ci_* where available."""
        import pandas as pd

        columns = {
            "mean": self.predicted_mean,
            "mean_se": self.se_mean,
            **dict(zip(("mean_ci_lower", "mean_ci_upper"), self.conf_int(alpha).T, strict=True)),
        }
        if self.var_resid is not None:
            bounds = self.conf_int(alpha, obs=True).T
            columns |= dict(zip(("obs_ci_lower", "obs_ci_upper"), bounds, strict=True))
        return pd.DataFrame(columns, index=self.row_labels)
