"""A private regression table: what results of coefficients add to those of any parameters."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import ExtrapolationWarning, OptionError, among, given, need_flag
from dpstats.families import GAUSSIAN
from dpstats.protocol.estimate import WEIGHTED_DOWN, CoefficientEstimate
from dpstats.results import coefficients, dispersion
from dpstats.results.effects import MarginalEffects, OneMean, marginal_effects
from dpstats.results.prediction import Prediction, what_is_astray
from dpstats.results.summary import Particulars
from dpstats.results.terms import TermResults
from dpstats.stored import read
from dpstats.text import plain

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.design import Design
    from dpstats.protocol.estimate import ParameterTable

__all__ = ["RegressionResults"]

Array = NDArray[np.float64]

# Names under which a method may release the residual standard deviation, in standardised units.
_RESIDUAL_SD = ("residual sd", "scale")
SPLIT = (
    "Those that take the selected columns as given would be too sure of them. With "
    'inference="split", where the method has it, half of the rows choose the columns and the '
    "others test them; a new fit is a new charge."
)
_CONDITIONAL = (
    "Inference: {}. Standard errors, tests and intervals are those of a regression on the selected "
    "columns, as if these had been named beforehand; they do not say whether a column that was "
    "left out matters."
)
_LITTLE = 0.005  # wording: share of the leverage that weights take, below which nothing is said
_SHOWN = {"negativebinomial": "NegativeBinomial", "cloglog": "CLogLog"}  # as in statsmodels


@dataclass(frozen=True, eq=False, repr=False)
class RegressionResults(TermResults):
    """A private regression table: estimates, their uncertainty, their privacy, their theory.

    A sparse fit keeps all d columns in `params`, zero where not `selected`; whatever has to do with
    uncertainty has the k columns of the model only: those selected and the intercept.
    """

    estimate: CoefficientEstimate

    estimates = CoefficientEstimate
    _sparsity = staticmethod(coefficients.sparsity)
    _written = staticmethod(coefficients.to_dict)

    @classmethod
    def _reread(cls, data: dict[str, Any], design: Design) -> CoefficientEstimate:
        return coefficients.from_dict(data, len(design.names))

    def _check(self) -> None:
        of_column = self.plan.model == "mean" and self.plan.parameters == (self.response,)
        if self.plan.parameters != self.design.names and not of_column:
            raise OptionError("The result contradicts itself: plan and design have other columns.")
        for name in _RESIDUAL_SD:
            if name in self.estimate.released:
                read(float, self.estimate.released[name], f"estimate, released, {name}")
        dispersion.check_dispersion(self.design.family, self.estimate.released)

    @cached_property
    def table(self) -> ParameterTable:
        """The coefficients in the user's units; a mean has the name of its column."""
        return replace(super().table, names=self.plan.parameters)

    @property
    def selected(self) -> list[str]:
        """Columns in the model, without the intercept: all of them unless the fit is sparse."""
        intercept = self.design.standardization.intercept
        return [self.design.names[j] for j in self.table.inner if j != intercept]

    @property
    def no_inference(self) -> str:
        """Why there are no standard errors, and what to do; empty where there are."""
        text = super().no_inference
        return f"{text} {SPLIT}" if text and self.estimate.support is not None else text

    @property
    def cov_type(self) -> str:
        """What the covariance holds: HC1, by the unit of privacy, or nonrobust; and the noise."""
        if not self.has_inference:
            return "none"
        if self.design.names == ("Intercept",):
            return super().cov_type
        kind = "HC1" if self.plan.method == "newton" else "robust"  # others have no n / (n - d)
        kind = kind if self.plan.max_rows == 1 else "cluster"
        return f"{kind if self.estimate.robust else 'nonrobust'} + privacy"

    @property
    def df_model(self) -> float:
        """Columns in the model without the intercept."""
        return float(len(self.table.inner) - self.design.has_intercept)

    @property
    def alpha(self) -> float:
        """Dispersion of a negative binomial law: as released, or as given.

        Raises
        ------
        UnavailableError
            If the family is another.
        """
        return dispersion.alpha(self.design.family, self.estimate.released)

    def alpha_conf_int(self, alpha: float = 0.05) -> tuple[float, float]:
        """Interval of level 1 - alpha of a released dispersion; its lower end is 0 at the least.

        It holds for negative binomial counts, about the dispersion of the population.

        Raises
        ------
        OptionError
            If no dispersion was released, or a unit may have several rows.
        """
        return dispersion.interval_of(self.design.family, self.estimate.released, alpha)

    # Predictions ----------------------------------------------------------------------------------

    def get_prediction(
        self,
        exog: Any,
        *,
        which: str = "mean",
        offset: Any = None,
        exposure: Any = None,
        clip: bool = True,
    ) -> Prediction:
        """Predicted means for new rows, with standard errors.

        Parameters
        ----------
        exog : table
            New rows with the columns of the formula's right-hand side, and those of its offset and
            exposure: pandas, polars, pyarrow or a dict of arrays. A row with a missing value, or of
            no declared level, is predicted NaN.
        which : {"mean", "linear"}
            The mean of the response, or the linear predictor.
        offset, exposure : float or array of shape (m,), optional
            Known terms of the new rows, for a model of arrays that has them.
        clip : bool, default True
            Whether values outside of the declared range are moved to its ends, as they were for the
            fit. Otherwise the model is extrapolated; splines, polynomials, and terms whose range is
            declared under their own name keep their value at its ends. Public covariates (under
            label privacy) have no declared range, and nothing of them is moved.

        Returns
        -------
        Prediction
            Its `summary_frame` has statsmodels' columns. Those of a new observation (``obs_ci_*``)
            are there only for linear models whose method released a residual scale.

        Raises
        ------
        OptionError
            If `which` is neither, or a known term is given to a model that takes none.

        Warns
        -----
        ExtrapolationWarning
            Of values outside of the declared range, and of no declared level: how many, by column.
            New rows are yours, so these counts are exact; of private rows they are as private as
            the predictions.
        """
        return self._predicted(exog, which, {"offset": offset, "exposure": exposure}, clip)

    def _predicted(self, exog: Any, which: str, known: Mapping[str, Any], clip: bool) -> Prediction:
        design, table = self.design, self.table
        if not among(which, ("mean", "linear")):
            raise OptionError(f"which={given(which)}: allowed are 'mean' and 'linear'.")
        need_flag(clip=clip)
        X = design.exog(exog, table.inner, clip)
        linpred = X @ table.inner_values + self._known_term(exog, len(X), known, clip)
        for message in what_is_astray(design, exog, known, clip):
            warnings.warn(plain(message), ExtrapolationWarning, stacklevel=3)
        return Prediction(
            linpred=linpred,
            var_linpred=np.einsum("mk,kl,ml->m", X, table.cov, X),
            family=design.family,
            which=which,
            var_resid=self._residual_variance if which == "mean" else None,
            row_labels=getattr(exog, "index", None),
        )

    @property
    def _residual_variance(self) -> float | None:
        """Released residual variance of a linear model, in squared units of the response."""
        released = self.estimate.released
        scale = next((released[key] for key in _RESIDUAL_SD if key in released), None)
        if scale is None or self.design.family != GAUSSIAN:
            return None
        sd = float(scale * self.design.standardization.y_scale)
        return sd * sd  # a power of a number from a file may overflow, which Python raises

    def _known_term(
        self, table: Any, m: int, known: Mapping[str, Any], clip: bool
    ) -> Array | float:
        """Offset and logarithm of the exposure of new rows, as the model has them."""
        design = self.design
        given = {name: value for name, value in known.items() if value is not None}
        if given and (design.offset is None or design.schema is not None):
            why = "it has none" if design.offset is None else "it reads them from the new rows"
            raise OptionError(f"The model takes no {' and '.join(given)} for predictions: {why}.")
        if design.offset is None:
            return 0.0
        if design.schema is not None:
            return design.known_term(table, clip)
        return design.known_term({k: np.broadcast_to(v, (m,)) for k, v in given.items()}, clip)

    def predict(
        self,
        exog: Any,
        *,
        which: str = "mean",
        offset: Any = None,
        exposure: Any = None,
        clip: bool = True,
    ) -> pd.Series:
        """Predicted means for new rows, indexed as they are; see `get_prediction`, also on `clip`.

        Warns
        -----
        ExtrapolationWarning
            Of values outside of what is declared, by column and number.
        """
        import pandas as pd

        found = self._predicted(exog, which, {"offset": offset, "exposure": exposure}, clip)
        return pd.Series(found.predicted, index=found.row_labels)

    def get_margeff(
        self,
        at: str = "overall",
        method: str = "dydx",
        *,
        new: Any = None,
        dummy: bool = False,
        count: bool = False,
        offset: Any = None,
        exposure: Any = None,
    ) -> MarginalEffects:
        """Marginal effects at rows that are given, with delta-method standard errors.

        Parameters
        ----------
        at : {"overall", "mean", "median", "all"}
            The average of the effects at all rows of `new`; the effect at their mean, or at the
            median of each column; or that at each.
        method : {"dydx", "eyex", "dyex", "eydx"}
            Change of the mean, or of its logarithm (``ey``), with a covariate, or with its
            logarithm (``ex``).
        new : table
            Public rows with the columns of the formula's right-hand side, or of the matrix.
        dummy, count : bool, default False
            Whether columns of 0 and 1 and levels, and columns of other whole numbers, take a step
            (from 0 to 1; from one less to one more, halved) in place of a derivative.
        offset, exposure : float or array of shape (m,), optional
            As in `get_prediction`.

        Returns
        -------
        MarginalEffects
            ``margeff``, ``margeff_se``, ``conf_int()``, ``pvalues``, ``summary_frame()``.

        Raises
        ------
        PrivateQuantityError
            Without `new`: averages over the private rows were never released. One over them costs
            budget; an average over public rows that are like them is free.
        OptionError
            If an argument is none of these, or the fit has no valid standard errors.
        DataError
            If new rows miss a value.

        Notes
        -----
        Of a declared formula the effect is that of a *column of the table* through all terms that
        it is in: of ``x + I(x**2)`` there is one. Each level is compared with the first. Of a
        matrix, and of public covariates, each column of the design is taken by itself, as
        statsmodels does everywhere.

        Guarantee: made of released numbers and the given rows; nothing is spent.
        """
        known = {"offset": offset, "exposure": exposure}
        law = OneMean(self.design.family, lambda rows, m: self._known_term(rows, m, known, True))
        found = marginal_effects(self, law, new, at, method, dummy=dummy, count=count)
        for message in what_is_astray(self.design, new, known, True):
            warnings.warn(plain(message), ExtrapolationWarning, stacklevel=2)
        return found

    # Reports --------------------------------------------------------------------------------------

    def _particulars(self) -> Particulars:
        family, known = self.design.family, self.design.offset
        law = (
            ("Model Family:", _SHOWN.get(family.name, family.name.capitalize())),
            ("Link Function:", _SHOWN.get(family.link, family.link.capitalize())),
            *(
                [("Alpha:", dispersion.text_of(family, self.estimate.released))]
                if family.alpha
                else []
            ),
        )
        candidates = len(self.selected) + len(self.table.names) - len(self.table.inner)
        selected = ("Selected:", f"{len(self.selected)} of {candidates:,}")
        conditional = self.has_inference and self.inference
        laws = {"glm": law, "quantreg": (("Quantile:", f"{self.plan.options.get('q', 0.5):g}"),)}
        return Particulars(
            law=laws.get(self.plan.model, ()),
            sizes=(
                *([selected] if self.estimate.support is not None else []),
                *self._weights,
                ("Df Residuals:", f"{self.df_resid:.0f}"),
                ("Df Model:", f"{self.df_model:.0f}"),
            ),
            errors=(_CONDITIONAL.format(self.inference) if conditional else self.no_inference,),
            meaning=(
                self._modelled,
                self._weighted_down,
                f"Known term of the linear predictor, with coefficient 1: {known.name}."
                if known
                else "",
            ),
        )

    @property
    def _law(self) -> str:
        """Family, link and weights, where the name of the model does not say them."""
        law, weights = self.design.family, self.design.weights
        named = f", {law.name} family, {law.link} link" if self.plan.model == "glm" else ""
        named += f", quantile {self.plan.options['q']:g}" if self.plan.model == "quantreg" else ""
        named += f", alpha = {dispersion.text_of(law, self.estimate.released)}" if law.alpha else ""
        if weights is None:
            return named
        kind = "trials" if weights.trials else f"{weights.kind} weights"
        return f"{named}, {kind} {weights.name}"

    @property
    def _weights(self) -> list[tuple[str, str]]:
        """What rows are weighted by."""
        weights = self.design.weights
        if weights is None:
            return []
        kind = "trials" if weights.trials else weights.kind
        return [("Weights:", f"{weights.name} ({kind})")]

    @property
    def _weighted_down(self) -> str:
        """That rows far out count less, which asks another question where the mean is wrong."""
        lost = self.released.get(WEIGHTED_DOWN, 0.0)
        if lost < _LITTLE:
            return ""
        return (
            f"Rows that lie far out count less: weights take {lost:.0%} of the leverage. Where the "
            "mean is not as the model says, statsmodels' fit of all rows alike is another."
        )

    @property
    def _modelled(self) -> str:
        """Which level of a binomial response the probability is of, where that is not 1."""
        schema, name = self.design.schema, self.response
        if self.design.family.name != "binomial" or schema is None or name not in schema:
            return ""
        levels = getattr(schema[name], "levels", (0, 1))
        if set(levels) == {0, 1}:
            return ""
        return f"The probability that is modelled is that of {name} = {levels[1]!r}."
