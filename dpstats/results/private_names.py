"""Names that statsmodels' results have and a private result does not, each with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpstats.errors import PrivateQuantityError

__all__ = ["PRIVATE", "ModelNames", "refuse"]

_SQUARES = '`dp.mean("I((y - 1.2 - 0.3 * x)**2)", data, schema)`'
_ONE_PER_PERSON = (
    "holds one exact number per person. Publishing noisy ones would protect nobody, so none is "
    f"sold; their mean square is, a private mean at the released coefficients: {_SQUARES}"
)
_SCALE = (
    "is an exact function of all residuals. A noisy residual scale is in `released` where the "
    "method buys one with the fit, in standardised units; `get_prediction` then uses it"
)
_FIT = (
    "is an exact function of all residuals. A joint test of the slopes, `wald_test`, costs nothing "
    "more. For a linear model a noisy R-squared and mean square are bought from other rows, "
    "`dp.evaluate(fit, data, privacy=...)`, or as private means: that of the squared "
    f"residuals, whose coefficients are public now, {_SQUARES}, and those of y and I(y**2)"
)
_GRAM = (
    "comes from the exact cross-products of the columns. What was released of them is already in "
    "`cov_params()`"
)
_TABLE = (
    "counts exact responses against exact predictions. `dp.evaluate(fit, data, privacy=...)` "
    "buys a noisy one; `predict` classifies rows that you may look at"
)
_PATH = (
    "would tell how the iterations went on these rows. Their number is fixed before any row is "
    "read: see `plan.options`"
)
_ROWS = "refers to rows, and a result never had any. Keep the schema and the saved result instead"
_CHECKS = (
    "is computed from exact residuals. No noisy version is sold yet; compare robust choices by "
    "fitting again under a fresh budget"
)

_NAMES = {
    _ONE_PER_PERSON: (
        "resid wresid resid_pearson resid_response resid_deviance resid_anscombe "
        "resid_anscombe_scaled resid_anscombe_unscaled resid_working resid_dev "
        "resid_generalized resid_misclassified fittedvalues mu get_influence "
        "get_hat_matrix_diag outlier_test plot_added_variable plot_ceres_residuals "
        "plot_partial_residuals"
    ),
    _SCALE: "scale mse_resid ssr",
    _FIT: (
        "rsquared rsquared_adj prsquared pseudo_rsquared fvalue f_pvalue ess centered_tss "
        "uncentered_tss mse_model mse_total llf llnull aic bic bic_llf deviance null_deviance "
        "null pearson_chi2 llr llr_pvalue llf_scaled bic_deviance info_criteria"
    ),
    _GRAM: (
        "eigenvals condition_number normalized_cov_params cov_HC0 cov_HC1 cov_HC2 cov_HC3 "
        "HC0_se HC1_se HC2_se HC3_se get_robustcov_results"
    ),
    _TABLE: "pred_table",
    _PATH: "converged fit_history mle_retvals mle_settings",
    _ROWS: "data remove_data het_scale weights",
    _CHECKS: (
        "summary2 diagn el_test conf_int_el compare_f_test compare_lm_test compare_lr_test "
        "score_test im_ratio get_distribution"
    ),
}
PRIVATE = {name: reason for reason, names in _NAMES.items() for name in names.split()}


def refuse(owner: object, name: str) -> PrivateQuantityError | AttributeError:
    """The error for an attribute that a result or its model does not have."""
    if name in PRIVATE:
        return PrivateQuantityError(f"`{name}` is not available: it {PRIVATE[name]}.")
    return AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}")


@dataclass(frozen=True)
class ModelNames:
    """Names of the model's variables, as statsmodels' tools look them up; there are no data."""

    endog_names: str
    exog_names: list[str]
    formula: str | None = None

    def __getattr__(self, name: str) -> Any:
        if name in ("data", "endog", "exog", "wendog", "wexog", "weights", "pinv_wexog"):
            raise PrivateQuantityError(f"`model.{name}` is not available: it {_ROWS}.")
        raise refuse(self, name)
