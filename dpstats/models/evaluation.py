"""The front door to evaluations: how well a fit predicts rows, bought from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpstats.accounting import Ledger
from dpstats.design import DeclaredDesign, Design, PublicDesign
from dpstats.errors import OptionError, TrustError
from dpstats.families import BINOMIAL, GAUSSIAN
from dpstats.mechanisms.noise import Noise
from dpstats.models.model import Model
from dpstats.models.unbuilt import known_arguments
from dpstats.privacy import Central
from dpstats.results.evaluation import ClassificationResults, PredictionErrorResults
from dpstats.results.regression import RegressionResults
from dpstats.schema import Schema

__all__ = ["evaluate", "evaluation_model"]


@dataclass(frozen=True)
class _EvaluationRecipe:
    """The design of a fit, over other rows; see `dpstats.models.recipes.Recipe`."""

    design: Design
    schema: Schema | None
    text: str

    def mistaken(self, data: Any) -> bool:
        return True

    def private(self) -> Design:
        return self.design

    def public(self, data: Any) -> PublicDesign:
        raise TrustError("Rows of an evaluation are private in all columns: ask for Central.")


@known_arguments
def evaluate(
    fit: RegressionResults,
    data: Any,
    schema: Schema | None = None,
    privacy: Central | None = None,
    ledger: Ledger | None = None,
    *,
    subset: str | None = None,
    noise: Noise | None = None,
    **options: Any,
) -> ClassificationResults | PredictionErrorResults:
    """How well a fit predicts private rows: one release with intervals.

    Parameters
    ----------
    fit : Results
        Of `ols`, or of `logit`, under any trust model with declared columns.
    data : table, or (endog, exog) of a model of arrays
        Private rows with the columns of the fit; better others than those that it was made from.
    schema : Schema, optional
        Public declaration of their columns; that of the fit by default.
    privacy : Central
        What to spend; delta is above 0.
    ledger : Ledger, optional
        Where the cost is charged before any row is read.
    subset : str, optional
        Rows that are meant, as in `ols`; those of the fit's own subset by default.
    noise : SeededNoise, optional
        For simulation; the result is then NOT private.
    **options
        Of a logistic fit: ``threshold`` (0.5), the probability above which a row is predicted to be
        an event, and ``bins`` (10), a number or edges of bins for calibration.

    Returns
    -------
    ClassificationResults or PredictionErrorResults
        Of a logistic fit accuracy, sensitivity, specificity, precision, area under the curve, Brier
        score and calibration; of a linear one mean square of errors, R-squared and mean error.
        ``frame()`` is a table; ``conf_int()``, ``summary()`` and ``save()`` are as for every fit.

    Raises
    ------
    DPStatsError
        Before anything is charged: as `Model.fit`; if the fit is of another family, has an offset,
        or public or sparse columns.

    Warns
    -----
    FeasibilityWarning
        If noise hides a class.

    Notes
    -----
    Guarantee: coefficients of a fit are public; Gaussian noise on counts and clipped sums of what
    they make of each row (`dpstats.queries.Predicted`). On the rows of the fit an evaluation is as
    private, and charged to the same ledger, but too favourable.

    Examples
    --------
    >>> import dpstats as dp
    >>> from dpstats.datasets import randhie
    >>> df, schema = randhie.load()
    >>> fit = dp.logit("idp ~ lncoins + hlthg", df[:10_000], schema).fit(dp.Central(1.0, 1e-6))
    >>> found = dp.evaluate(fit, df[10_000:], privacy=dp.Central(1.0, 1e-6))
    >>> bool(0 < found.frame().loc["accuracy", "lower"] < 1)
    True
    >>> found.confusion_matrix().shape
    (2, 2)
    """
    if privacy is None:
        raise OptionError("privacy=...: what to spend, such as dp.Central(1.0, 1e-6), is needed.")
    model = evaluation_model(fit, data, schema, subset=subset)
    found: Any = model.fit(privacy, ledger, noise=noise, **options)
    return found  # type: ignore[no-any-return]


def evaluation_model(
    fit: RegressionResults,
    data: Any,
    schema: Schema | None = None,
    n: int | None = None,
    subset: str | None = None,
) -> Model:
    """The model that `evaluate` fits; ``plan(privacy)`` says what it costs.

    Raises
    ------
    OptionError
        If `fit` cannot be evaluated.
    """
    if not isinstance(fit, RegressionResults):
        raise OptionError(f"A {type(fit).__name__} is no fit of coefficients: dp.ols, dp.logit.")
    if fit.plan.model == "quantreg":
        raise OptionError(
            "A fit of a quantile is not evaluated in this release: R-squared and errors are of "
            "means. dp.ols has them."
        )
    design = _design(fit, schema)
    design = design.within(design.subset if subset is None else subset)
    kinds = {BINOMIAL: "evaluate logit", GAUSSIAN: "evaluate ols"}
    if design.family not in kinds:
        raise OptionError(
            f"A fit of family {design.family} is not evaluated in this release; dp.ols and "
            "dp.logit are."
        )
    if design.offset is not None or not design.by_value:
        why = "an offset" if design.offset is not None else "sparse or public columns"
        raise OptionError(f"A fit with {why} is not evaluated in this release.")
    table = fit.table
    options = {
        "places": [int(j) for j in table.inner],
        "coefficients": [float(v) for v in table.inner_values],
    }
    recipe = _EvaluationRecipe(design, design.schema, f"evaluate {fit.model.formula or 'arrays'}")
    if design.schema is None and isinstance(data, tuple) and len(data) == 2:
        data = (*data, {})
    return Model(kinds[design.family], recipe, data, n, options)


def _design(fit: RegressionResults, schema: Schema | None) -> Design:
    """The design of the fit, over columns that a schema declares."""
    design = fit.design
    if not isinstance(design, DeclaredDesign):
        raise OptionError(
            "A fit whose covariates are public has no declared columns: an evaluation of private "
            "rows needs a fit under Central, Local or Federated."
        )
    if schema is None or design.formula is None:
        return design
    again = DeclaredDesign.from_formula(design.formula, schema, family=design.family)
    again = again.within(design.subset)
    if again.names != design.names:
        raise OptionError(
            f"Under this schema the formula has the columns {', '.join(again.names)}; those of the "
            f"fit are {', '.join(design.names)}."
        )
    return again
