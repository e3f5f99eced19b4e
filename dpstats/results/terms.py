"""Results of a formula, whose terms are tested together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpstats.errors import OptionError, need_flag
from dpstats.results import inference
from dpstats.results.parameters import ParameterResults

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TermResults"]


@dataclass(frozen=True, eq=False, repr=False)
class TermResults(ParameterResults):
    """Coefficients of the terms of a formula, or of each of them for several levels."""

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
