"""A result whose parameters are reported, tested and printed, whatever they are parameters of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError, given, is_whole, need_flag, need_text
from dpstats.outputs import HTML, LATEX, MARKDOWN, FilePath
from dpstats.privacy import NOT_PRIVATE
from dpstats.results import summary
from dpstats.results.inference import (
    WaldTable,
    as_statsmodels,
    bounds_of,
    contrast,
    normal_quantile,
    parse_constraints,
    tests_of,
    wald_test,
)
from dpstats.results.page import Page, save_text
from dpstats.results.ratios import exponentials, ratio_of
from dpstats.results.released import Released

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ParameterResults", "places_among"]

Array = NDArray[np.float64]
Target = FilePath | None  # where a text is written


@dataclass(frozen=True, eq=False, repr=False)
class ParameterResults(Released):
    """Estimates, their uncertainty, and tests: all of it is read from `table`.

    Standard errors, tests and intervals use `cov_params`, which holds sampling error *and* privacy
    noise; `privacy_share` says how much of each variance privacy adds. Reference distributions are
    normal. Of d parameters the k in the model have an uncertainty: all, or those selected. Where no
    interval is valid (`has_inference`), it is nan and tests are refused.
    """

    # Estimates and tests --------------------------------------------------------------------------

    @cached_property
    def _wald(self) -> WaldTable:
        return tests_of(self.table)

    def _frame(self, values: Array) -> Any:
        """A Series or a square DataFrame of the k parameters in the model."""
        import pandas as pd

        names, values = self.table.inner_names, values.copy()
        return pd.Series(values, names) if values.ndim == 1 else pd.DataFrame(values, names, names)

    @property
    def params(self) -> pd.Series:
        """Estimates in the user's units, indexed by name, shape (d,)."""
        import pandas as pd

        return pd.Series(self.table.values.copy(), index=list(self.table.names))

    @property
    def inference(self) -> str:
        """What standard errors, tests and intervals hold for; empty: the model as it stands."""
        return self.table.inference

    @property
    def has_inference(self) -> bool:
        """Whether standard errors, tests and intervals are valid, and so are given."""
        return self.table.has_inference

    @property
    def no_inference(self) -> str:
        """Why there are no standard errors, and what to do; empty where there are."""
        if self.has_inference:
            return ""
        reason = self.inference.partition(": ")[2] or "the method has none"
        return f"No standard errors, tests or intervals are valid here: {reason}."

    @property
    def bse(self) -> pd.Series:
        """Standard errors: sampling and privacy noise together, shape (k,)."""
        return self._frame(self._wald.se)

    @property
    def tvalues(self) -> pd.Series:
        """Normal deviates of ``parameter = 0``, shape (k,): ``params / bse``, of most models."""
        return self._frame(self._wald.z)

    @property
    def pvalues(self) -> pd.Series:
        """Two-sided p-values of ``parameter = 0``, nan where that cannot be tested, shape (k,)."""
        return self._frame(self._wald.p)

    def conf_int(
        self, alpha: float = 0.05, cols: Sequence[int | str] | None = None
    ) -> pd.DataFrame:
        """Intervals of level 1 - alpha: columns 0 (lower) and 1 (upper), shape (k, 2).

        Parameters
        ----------
        alpha : float, default 0.05
        cols : sequence of int or str, optional
            Positions among the k parameters, or their names, in the order that is wanted.

        Raises
        ------
        OptionError
            If alpha is no level, or one of `cols` is no parameter in the model.
        """
        import pandas as pd

        found = pd.DataFrame(bounds_of(self.table, alpha), index=self.table.inner_names)
        return found if cols is None else found.iloc[places_among(cols, self.table.inner_names)]

    def cov_params(self) -> pd.DataFrame:
        """Covariance of the estimates around the population parameter, shape (k, k)."""
        return self._frame(self.table.cov)

    def cov_privacy(self) -> pd.DataFrame:
        """The part of `cov_params` that is privacy noise of known law, shape (k, k)."""
        return self._frame(self.table.cov_privacy)

    def cov_sampling(self) -> pd.DataFrame:
        """The part of `cov_params` due to sampling, shape (k, k).

        Where noise hides directions of the design, `cov_params` holds more than this and
        `cov_privacy`: what is not known of them.
        """
        return self._frame(self.table.cov_sampling)

    @property
    def privacy_share(self) -> pd.Series:
        """Share of each parameter's variance that is there because of privacy, shape (k,).

        In [0, 1]: all but the part due to sampling. It is the noise itself, and what the noise kept
        the fit from finding out.
        """
        return self._frame(self.table.privacy_share)

    @property
    def df_resid(self) -> float:
        """Rows less the parameters in the model; only `f_test` uses it.

        Rows are `nobs`, or where only some of them estimate, the noisy count of those.
        """
        rows = self.nobs_contributing if self.inference.startswith("conditional") else self.nobs
        return rows - len(self.table.inner)

    @property
    def use_t(self) -> bool:
        """False: tests and intervals use the normal distribution."""
        return False

    @property
    def _mark(self) -> str:
        marks = [NOT_PRIVATE] * self.reproducible + ["the fit warns"] * bool(self.warnings)
        return " ".join(f"[{mark}]" for mark in marks)

    def _hypotheses(self, spec: Any) -> tuple[Array, Array, Array, Array]:
        """Estimates, their covariance, R and q of a test."""
        table = self.table
        if not table.has_inference:
            raise OptionError(self.no_inference)
        names = table.inner_names
        R, q = parse_constraints(spec, names, set(table.names).difference(names))
        for j in np.flatnonzero(R.any(axis=0) & ~table.testable):
            raise OptionError(
                f"No hypothesis about {names[j]!r} is tested by the normal law; see conf_int()."
            )
        return table.inner_values, table.cov, R, q

    def t_test(self, r_matrix: Any) -> Any:
        """Test linear hypotheses one by one.

        Parameters
        ----------
        r_matrix : str, list of str, array of shape (m, k) or pair of arrays (R, q)
            ``"disea = 0"``, ``"hlthg = hlthf, lncoins = -0.1"``, or R of ``R b = q`` (q = 0), with
            one column for each entry of `bse`.

        Returns
        -------
        statsmodels.stats.contrast.ContrastResults
            Effects with standard errors, z statistics, p-values and `conf_int`.

        Raises
        ------
        OptionError
            If a hypothesis cannot be read, names what was not selected or cannot be tested, or if
            no test is valid at all (`has_inference`).
        """
        return as_statsmodels(contrast(*self._hypotheses(r_matrix)), self.df_resid, mark=self._mark)

    def wald_test(self, r_matrix: Any, *, use_f: bool = False) -> Any:
        """Test linear hypotheses jointly, by the chi-squared (or F) distribution.

        Parameters
        ----------
        r_matrix : str, list of str, array of shape (m, k) or pair of arrays (R, q)
            As for `t_test`, with the same errors.
        use_f : bool, default False
            Refer statistic / m to F(m, `df_resid`) instead of the statistic to chi-squared.

        Returns
        -------
        statsmodels.stats.contrast.ContrastResults
        """
        need_flag(use_f=use_f)
        test = wald_test(*self._hypotheses(r_matrix))
        return as_statsmodels(test, self.df_resid, use_f, self._mark)

    def f_test(self, r_matrix: Any) -> Any:
        """`wald_test` by the F distribution."""
        return self.wald_test(r_matrix, use_f=True)

    # Reports --------------------------------------------------------------------------------------

    def _particulars(self) -> summary.Particulars:
        """What the summary says of this model and of no other."""
        return summary.Particulars(errors=(self.no_inference,))

    def _page(self, alpha: float, full: bool, title: str | None = None, exp: bool = False) -> Page:
        need_flag(full=full, exp=exp)
        normal_quantile(alpha)  # refuses what is no level
        if title is not None:
            need_text(title=title)
        return summary.page(self, self._particulars(), float(alpha), full, title, exp)

    def summary(
        self,
        alpha: float = 0.05,
        *,
        full: bool = False,
        title: str | None = None,
        exp: bool = False,
    ) -> Any:
        """One screen: warnings, parameters, privacy in four lines and the error bound in three.

        Parameters
        ----------
        alpha : float, default 0.05
            Intervals are of level 1 - alpha.
        full : bool, default False
            With every mechanism, what else was released, and the theorem with its conditions.
        title : str, optional
            In place of the title; that noise was seeded is still said.
        exp : bool, default False
            Odds, rate or hazard ratios in place of coefficients: exponentials of these and of the
            ends of their intervals, with standard errors by the delta method.

        Returns
        -------
        statsmodels.iolib.summary.Summary
            With ``as_text``, ``as_html``, ``as_latex``, ``as_csv``.

        Raises
        ------
        OptionError
            If `exp` is asked of coefficients that are no logarithms of ratios.
        """
        return self._page(alpha, full, title, exp).summary()

    def to_markdown(
        self, path: Target = None, alpha: float = 0.05, *, full: bool = False, exp: bool = False
    ) -> str:
        """The summary as GitHub-flavoured Markdown; written to `path`, if one is given.

        Returns
        -------
        str
            The text; the path, where it was written.
        """
        return save_text(self._page(alpha, full, exp=exp).markdown(), path, MARKDOWN)

    def to_latex(
        self, path: Target = None, alpha: float = 0.05, *, full: bool = False, exp: bool = False
    ) -> str:
        """The summary as LaTeX tabulars; arguments and what returns are as for `to_markdown`."""
        return save_text(self._page(alpha, full, exp=exp).latex(), path, LATEX)

    def to_html(
        self, path: Target = None, alpha: float = 0.05, *, full: bool = False, exp: bool = False
    ) -> str:
        """The summary as HTML tables; arguments and what returns are as for `to_markdown`."""
        text = str(self._page(alpha, full, exp=exp).summary().as_html())
        return save_text(text, path, HTML)

    def _repr_html_(self) -> str:
        return self.to_html()

    def tidy(self, alpha: float = 0.05, *, exponentiate: bool = False) -> pd.DataFrame:
        """One row a parameter, for tables and plots of one's own.

        Parameters
        ----------
        alpha : float, default 0.05
            Intervals are of level 1 - alpha.
        exponentiate : bool, default False
            Ratios in place of coefficients, as in `summary` with ``exp=True``; the statistic and
            the p-value stay those of the coefficient.

        Returns
        -------
        DataFrame
            Indexed by ``term``: ``estimate``, ``std.error``, ``statistic``, ``p.value``,
            ``conf.low``, ``conf.high``; what a parameter has not is nan.
        """
        import pandas as pd

        need_flag(exponentiate=exponentiate)
        bounds = self.conf_int(alpha).set_axis(self.table.inner_names)
        within = {
            "std.error": self.bse,
            "statistic": self.tvalues,
            "p.value": self.pvalues,
            "conf.low": bounds[0],
            "conf.high": bounds[1],
        }
        table = self.params.rename("estimate").to_frame().join(pd.DataFrame(within))
        if exponentiate:
            ratio_of(self, "tidy(exponentiate=True)")
            ends = ["conf.low", "conf.high"]
            changed = exponentials(table["estimate"], table["std.error"], table[ends])
            table["estimate"], table["std.error"], table[ends] = changed
        return table.rename_axis("term")

    def glance(self) -> pd.DataFrame:
        """One row about the fit: rows, what it promises and how it was made.

        Returns
        -------
        DataFrame
            ``nobs``, ``df.residual``, ``trust``, ``epsilon``, ``delta``, ``method``, ``cov.type``,
            ``noise``, which is empty but for reproducible noise, with which nothing is private, and
            ``warnings``, how many there are (`Results.warnings`).
        """
        import pandas as pd

        budget = self.plan.privacy
        facts = {
            "nobs": int(self.nobs),
            "df.residual": self.df_resid,
            "trust": self.privacy.trust,
            "epsilon": budget.epsilon,
            "delta": budget.delta,
            "method": self.plan.method,
            "cov.type": self.cov_type,
            "noise": NOT_PRIVATE if self.reproducible else "",
            "warnings": len(self.warnings),
        }
        return pd.DataFrame([facts])

    # maketables' plug-in hooks --------------------------------------------------------------------

    @property
    def __maketables_coef_table__(self) -> pd.DataFrame:
        columns = {"b": self.table.inner_values, "se": self.bse, "t": self.tvalues}
        table = self.conf_int().set_axis(["ci95l", "ci95u"], axis=1)
        table = table.set_axis(self.table.inner_names).assign(**columns, p=self.pvalues)[
            [*columns, "p", "ci95l", "ci95u"]
        ]
        return table.rename_axis("Coefficient")

    def __maketables_stat__(self, key: str) -> int | float | str | None:
        stats: dict[str, int | float | str] = {
            "N": int(self.nobs),
            "se_type": self.cov_type,
            "trust": self.privacy.trust,
            "epsilon": self.plan.privacy.epsilon,
            "delta": self.plan.privacy.delta,
            "method": self.plan.method,
            "noise": self._status,
            "warnings": len(self.warnings),
        }
        return stats.get(key)

    @property
    def __maketables_depvar__(self) -> str:
        return self.model.endog_names

    @property
    def __maketables_fixef_string__(self) -> None:
        return None

    @property
    def __maketables_vcov_info__(self) -> dict[str, Any]:
        return {"vcov_type": self.cov_type, "clustervar": None}

    @property
    def __maketables_default_stat_keys__(self) -> list[str]:
        mark = ["noise"] * self.reproducible + ["warnings"] * bool(self.warnings)
        return ["N", "trust", "epsilon", "delta", "method", *mark]


def places_among(cols: Sequence[int | str], names: Sequence[str]) -> list[int]:
    """Positions of parameters that are asked for by name or position."""
    found = []
    if isinstance(cols, bytes) or not isinstance(cols, Sequence):
        raise OptionError(f"cols={given(cols)}: a list of names or positions is needed.")
    for col in [cols] if isinstance(cols, str) else cols:
        named = isinstance(col, str) and col in names
        if not named and not is_whole(col, -len(names), len(names) - 1):
            raise OptionError(
                f"cols={given(cols)}: positions below {len(names)}, or names, are needed; the "
                f"parameters in the model are {', '.join(names)}."
            )
        found.append(list(names).index(str(col)) if named else int(col))
    return found
