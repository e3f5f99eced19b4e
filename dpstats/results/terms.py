"""Results of a formula, whose terms are tested together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpstats.errors import OptionError, need_flag
from dpstats.results import inference
from dpstats.results.parameters import ParameterResults
from dpstats.results.ratios import exponentials, ratio_name, ratio_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TermResults"]


@dataclass(frozen=True, eq=False, repr=False)
class TermResults(ParameterResults):
    """Coefficients of the terms of a formula, or of each of them for several levels."""

    @property
    def _ratio(self) -> str:
        return ratio_name(self.design.family)

    def exp_conf_int(self, alpha: float = 0.05) -> pd.DataFrame:
        """Odds ratios of a logit link, ratios of means of a log link, hazard ratios of a cloglog.

        Returns
        -------
        DataFrame
            Columns ``exp(coef)``, ``lower`` and ``upper``, shape (k, 3): exponentials of `params`
            and of `conf_int`. That of the intercept is the odds, or mean, where all columns are 0;
            of several levels they are odds against the base.

        Raises
        ------
        OptionError
            If the link is another: an exponential of a coefficient then means nothing.
        """
        ratio_of(self, "exp_conf_int()")
        table = self.conf_int(alpha).set_axis(["lower", "upper"], axis=1)
        values, _, ends = exponentials(self.table.inner_values, self.bse.to_numpy(), table)
        ends.insert(0, "exp(coef)", values)
        return ends

    def wald_test_terms(self, skip_single: bool = False) -> Any:
        """Test each term of the formula: all coefficients of a factor or spline together.

        Post-processing of released numbers: tests cost no privacy. Each is a Wald test with the
        covariance of the fit, which counts noise, as `wald_test` makes it, by the chi-squared
        distribution; given all other terms (type III).

        Parameters
        ----------
        skip_single : bool, default False
            Whether terms of one coefficient are left out: the summary tests them.

        Returns
        -------
        statsmodels.stats.contrast.WaldTestResults
            ``summary_frame()`` has columns ``chi2``, ``P>chi2`` and ``df constraint``; nan where a
            coefficient of the term is not identified.

        Raises
        ------
        OptionError
            If no test is valid (`has_inference`).
        """
        need_flag(skip_single=skip_single)
        found = self._term_tests()
        kept = [row for row in found if not (skip_single and row[2] == 1)]
        return inference.terms_as_statsmodels(kept, self._mark)

    def anova(self) -> pd.DataFrame:
        """Type III table of the terms but the intercept: ``df``, ``chi2`` and ``PR(>chi2)``.

        The tests of `wald_test_terms`, in the shape of statsmodels' ``anova_lm``. There are no sums
        of squares: they would have to be bought.

        Raises
        ------
        OptionError
            If no test is valid (`has_inference`).
        """
        import pandas as pd

        intercept = self.design.standardization.intercept
        none = None if intercept is None else self.design.terms[intercept]
        rows = {
            term: (df, statistic, p)
            for term, statistic, df, p in self._term_tests()
            if term != none
        }
        columns = ["df", "chi2", "PR(>chi2)"]
        return pd.DataFrame.from_dict(rows, orient="index", columns=columns)

    def _term_tests(self) -> list[tuple[str, float, int, float]]:
        if not self.has_inference:
            raise OptionError(self.no_inference)
        terms = self.design.terms  # of a response of several levels, once for each of them
        return inference.wald_terms(self.table, [terms[j % len(terms)] for j in self.table.inner])
