"""What a fit returns: released numbers, and nothing that could not be published with them.

A `Results` is built from an `Estimate`, its `Plan` and the records of the mechanisms that ran. It
was never given rows, so it has none to leak: what would need them raises `PrivateQuantityError`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats import inference
from dpstats.errors import OptionError
from dpstats.prediction import Prediction
from dpstats.privacy import Neighbors
from dpstats.privacy_report import NOT_PRIVATE, LedgerView, PrivacyReport
from dpstats.private_names import ModelNames, refuse
from dpstats.theory import BoundTerm, Setting, Theory, error_bound

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.design import Design
    from dpstats.protocol import Estimate, Plan, Release
    from dpstats.theory import ErrorBound

__all__ = ["Results", "load"]

Array = NDArray[np.float64]

# Names under which a method may release the residual standard deviation, in standardised units.
_RESIDUAL_SD = ("residual sd", "scale")
FORMAT = "dpstats.results"
VERSION = 1


@dataclass(frozen=True, eq=False, repr=False)
class Results:
    """A private regression table: estimates, their uncertainty, their privacy, their theory.

    Standard errors, tests and intervals use `cov_params`, which holds sampling error *and* privacy
    noise; `privacy_share` says how much of each variance the noise is. Reference distributions are
    normal. Make one with ``model.fit(...)`` or `load`.

    Attributes
    ----------
    design : Design
        Formula, schema and scaling: public facts.
    plan : Plan
        What was planned and charged.
    estimate : Estimate
        The released estimate in standardised coordinates.
    privacy : PrivacyReport
        Trust model, neighbours, every mechanism with its sensitivity and noise, total cost.
    error_bound : ErrorBound
        Error in three labelled tiers, conditions of the theorem, sources.
    """

    design: Design
    plan: Plan
    estimate: Estimate
    privacy: PrivacyReport
    error_bound: ErrorBound

    @classmethod
    def from_estimate(
        cls,
        estimate: Estimate,
        *,
        design: Design,
        plan: Plan,
        theory: Theory,
        releases: Iterable[Release],
        ledger: LedgerView | None = None,
        reproducible: bool = False,
    ) -> Results:
        """Results of a fit that was carried out.

        Parameters
        ----------
        estimate : Estimate
            In the design's standardised coordinates.
        design : Design
            Public facts only.
        plan : Plan
            What was charged.
        theory : Theory
            What is proved for the method under the plan's trust model.
        releases : iterable of Release
            Every mechanism that ran.
        ledger : LedgerView, optional
            The ledger's state after the charge.
        reproducible : bool, default False
            Whether the noise was seeded; marks the result as NOT private wherever it is shown.
        """
        privacy = PrivacyReport.of(
            plan,
            releases,
            guarantee=theory.guarantee,
            unit=None if design.schema is None else design.schema.unit,
            max_rows=None if design.schema is None else design.schema.max_rows,
            ledger=ledger,
            reproducible=reproducible,
        )
        setting = Setting(
            n=float(estimate.nobs),
            d=len(design.names),
            epsilon=plan.privacy.epsilon,
            delta=plan.privacy.delta,
            s=plan.options.get("sparsity"),
        )
        bound = error_bound(theory, setting, _measured(estimate, design, theory))
        return cls(design, plan, estimate, privacy, bound)

    # ---- estimates and tests -----------------------------------------------------------------

    @cached_property
    def _user(self) -> tuple[Array, Array, Array]:
        """Params (d,), covariance (d, d) and its privacy part (d, d), in the user's units."""
        e, to_user = self.estimate, self.design.standardization.to_user
        params, cov = to_user(e.params, e.cov)
        return params, cov, to_user(e.params, e.cov_privacy)[1]

    @cached_property
    def _wald(self) -> inference.WaldTable:
        return inference.wald_table(*self._user[:2])

    @property
    def _response(self) -> str:
        return self.design.endog.name if self.design.endog is not None else "y"

    def _series(self, values: Array, name: str | None = None) -> pd.Series:
        import pandas as pd

        return pd.Series(values, index=list(self.design.names), name=name)

    def _square(self, values: Array) -> pd.DataFrame:
        import pandas as pd

        names = list(self.design.names)
        return pd.DataFrame(values, index=names, columns=names)

    @property
    def params(self) -> pd.Series:
        """Estimates in the user's units, indexed by column name, shape (d,)."""
        return self._series(self._user[0].copy())

    @property
    def bse(self) -> pd.Series:
        """Standard errors: sampling and privacy noise together, shape (d,)."""
        return self._series(self._wald.se.copy())

    @property
    def tvalues(self) -> pd.Series:
        """``params / bse``; referred to the normal distribution, shape (d,)."""
        return self._series(self._wald.z.copy())

    @property
    def pvalues(self) -> pd.Series:
        """Two-sided p-values of ``coefficient = 0``, shape (d,)."""
        return self._series(self._wald.p.copy())

    def conf_int(self, alpha: float = 0.05) -> pd.DataFrame:
        """Intervals of level 1 - alpha: columns 0 (lower) and 1 (upper), shape (d, 2)."""
        import pandas as pd

        bounds = inference.interval(self._user[0], self._wald.se, alpha)
        return pd.DataFrame(bounds, index=list(self.design.names))

    def cov_params(self) -> pd.DataFrame:
        """Covariance of `params` around the population parameter, shape (d, d)."""
        return self._square(self._user[1].copy())

    def cov_privacy(self) -> pd.DataFrame:
        """The part of `cov_params` that privacy noise contributes, shape (d, d)."""
        return self._square(self._user[2].copy())

    @property
    def privacy_share(self) -> pd.Series:
        """Share of each coefficient's variance that is privacy noise, in [0, 1], shape (d,)."""
        _, cov, cov_privacy = self._user
        with np.errstate(divide="ignore", invalid="ignore"):
            return self._series(np.diag(cov_privacy) / np.diag(cov))

    @property
    def nobs(self) -> float:
        """Number of rows: public where `nobs_public`, else a noisy count of contributing rows."""
        return float(self.plan.n) if self.nobs_public else float(self.estimate.nobs)

    @property
    def nobs_contributing(self) -> float:
        """Noisy count of rows that contribute: nothing missing, within their unit's limit."""
        return float(self.estimate.nobs)

    @property
    def nobs_public(self) -> bool:
        """Whether `nobs` is the public number of rows rather than a released noisy count."""
        neighbors = getattr(self.plan.privacy, "neighbors", Neighbors.REPLACE_ONE)
        one_row = self.design.schema is None or self.design.schema.unit is None
        return neighbors is Neighbors.REPLACE_ONE and one_row

    @property
    def df_model(self) -> float:
        """Columns of the design without the intercept."""
        return float(len(self.design.names) - self.design.has_intercept)

    @property
    def df_resid(self) -> float:
        """``nobs`` less the columns of the design; no reference distribution uses it."""
        return self.nobs - len(self.design.names)

    @property
    def use_t(self) -> bool:
        """False: tests and intervals use the normal distribution."""
        return False

    @property
    def cov_type(self) -> str:
        """What `cov_params` holds."""
        return "sampling + privacy"

    @property
    def released(self) -> Mapping[str, Any]:
        """Other numbers that were released or are public, such as clips and scales."""
        return dict(self.estimate.released)

    @property
    def model(self) -> ModelNames:
        """Names of the variables, for statsmodels' tools; no data."""
        d = self.design
        return ModelNames(self._response, list(d.names), d.formula)

    def _constraints(self, spec: Any) -> tuple[Array, Array]:
        return inference.parse_constraints(spec, self.design.names)

    def t_test(self, r_matrix: Any) -> Any:
        """Test linear hypotheses one by one.

        Parameters
        ----------
        r_matrix : str, list of str, array of shape (k, d) or pair of arrays (R, q)
            ``"disea = 0"``, ``"hlthg = hlthf, lncoins = -0.1"``, or R of ``R b = q`` (q = 0).

        Returns
        -------
        statsmodels.stats.contrast.ContrastResults
            Effects with standard errors, z statistics, p-values and `conf_int`.
        """
        params, cov, _ = self._user
        test = inference.contrast(params, cov, *self._constraints(r_matrix))
        return inference.as_statsmodels(test, self.df_resid)

    def wald_test(self, r_matrix: Any, *, use_f: bool = False) -> Any:
        """Test linear hypotheses jointly, by the chi-squared (or F) distribution.

        Parameters
        ----------
        r_matrix : str, list of str, array of shape (k, d) or pair of arrays (R, q)
            As for `t_test`.
        use_f : bool, default False
            Refer statistic / k to F(k, `df_resid`) instead of the statistic to chi-squared.

        Returns
        -------
        statsmodels.stats.contrast.ContrastResults
        """
        params, cov, _ = self._user
        test = inference.wald_test(params, cov, *self._constraints(r_matrix))
        return inference.as_statsmodels(test, self.df_resid, use_f)

    def f_test(self, r_matrix: Any) -> Any:
        """`wald_test` by the F distribution."""
        return self.wald_test(r_matrix, use_f=True)

    # ---- predictions -------------------------------------------------------------------------

    def get_prediction(self, exog: Any) -> Prediction:
        """Predicted means for new rows, with standard errors.

        Parameters
        ----------
        exog : table
            New rows with the columns of the formula's right-hand side: pandas, polars, pyarrow or
            a dict of arrays. Values are mapped into the declared domain, as they were for the fit;
            a row with a missing value is predicted NaN.

        Returns
        -------
        Prediction
            Its `summary_frame` has statsmodels' columns. Those of a new observation (``obs_ci_*``)
            are there only where the method released a residual scale.
        """
        X = np.asarray(self.design.exog(exog), dtype=float)
        params, cov, _ = self._user
        released = self.estimate.released
        scale = next((released[key] for key in _RESIDUAL_SD if key in released), None)
        return Prediction(
            predicted_mean=X @ params,
            var_pred_mean=np.einsum("md,de,me->m", X, cov, X),
            var_resid=None if scale is None else (scale * self.design.standardization.y_scale) ** 2,
            row_labels=getattr(exog, "index", None),
        )

    def predict(self, exog: Any) -> pd.Series:
        """Predicted means for new rows (see `get_prediction`), indexed as they are."""
        import pandas as pd

        prediction = self.get_prediction(exog)
        return pd.Series(prediction.predicted_mean, index=prediction.row_labels)

    # ---- reports -----------------------------------------------------------------------------

    @property
    def reproducible(self) -> bool:
        """True when the noise was seeded: the result is then NOT private."""
        return self.privacy.reproducible

    def summary(self, alpha: float = 0.05) -> Any:
        """Coefficient table, privacy block, error-bound block and notes.

        Returns
        -------
        statsmodels.iolib.summary.Summary
            With ``as_text``, ``as_html``, ``as_latex``, ``as_csv``.
        """
        from dpstats.summary import summarize

        return summarize(self, alpha)

    def to_markdown(self, alpha: float = 0.05) -> str:
        """The summary as GitHub-flavoured Markdown."""
        from dpstats.summary import markdown

        return markdown(self, alpha)

    def to_latex(self, alpha: float = 0.05) -> str:
        """The summary as LaTeX tabulars."""
        return str(self.summary(alpha).as_latex())

    def to_html(self, alpha: float = 0.05) -> str:
        """The summary as HTML tables."""
        return str(self.summary(alpha).as_html())

    def cite(self, style: str = "text") -> str:
        """How to cite the method, its theory and this software.

        Parameters
        ----------
        style : {"text", "bibtex"}
        """
        from dpstats.summary import SOFTWARE

        styles = {"text": lambda c: c.text(), "bibtex": lambda c: c.bibtex()}
        if style not in styles:
            raise OptionError(f"style={style!r}: allowed are {', '.join(map(repr, styles))}.")
        separator = "\n" if style == "text" else "\n\n"
        return separator.join(styles[style](c) for c in (*self.error_bound.citations, SOFTWARE))

    def __repr__(self) -> str:
        mark = f", {NOT_PRIVATE}" if self.reproducible else ""
        p = self.plan
        return (
            f"<Results: {p.model} by {p.method}, {self.privacy.trust}, epsilon="
            f"{p.privacy.epsilon:g}, delta={p.privacy.delta:g}, n={self.nobs:.0f}, "
            f"{len(self.design.names)} coefficients{mark}; see .summary()>"
        )

    def _repr_html_(self) -> str:
        return self.to_html()

    # ---- storage -----------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Everything that may be written down, as a JSON object."""
        from dpstats import __version__, archive

        return {
            "format": FORMAT,
            "version": VERSION,
            "dpstats": __version__,
            "privacy_status": NOT_PRIVATE if self.reproducible else "private",
            "design": self.design.to_dict(),
            "plan": archive.plan_to_dict(self.plan),
            "estimate": archive.estimate_to_dict(self.estimate),
            "privacy": archive.encode(self.privacy.to_dict()),
            "error_bound": archive.bound_to_dict(self.error_bound),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Results:
        """Inverse of `to_dict`.

        Raises
        ------
        OptionError
            If `data` is of another format or a later version.
        """
        from dpstats import archive
        from dpstats.design import Design

        if data.get("format") != FORMAT or not 1 <= data.get("version", 0) <= VERSION:
            raise OptionError(
                f"This is no result that dpstats can read: format {data.get('format')!r}, version "
                f"{data.get('version')!r}; {FORMAT!r} up to version {VERSION} is known. "
                "A newer dpstats may read it."
            )
        return cls(
            design=Design.from_dict(data["design"]),
            plan=archive.plan_from_dict(data["plan"]),
            estimate=archive.estimate_from_dict(data["estimate"]),
            privacy=PrivacyReport.from_dict(archive.decode(data["privacy"])),
            error_bound=archive.bound_from_dict(data["error_bound"]),
        )

    def to_json(self) -> str:
        """`to_dict` as text."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Results:
        """Inverse of `to_json`."""
        return cls.from_dict(json.loads(text))

    def save(self, path: str | Path) -> None:
        """Write the released numbers as JSON, field by field from a whitelist; never rows."""
        Path(path).write_text(self.to_json() + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Results:
        """Read what `save` wrote."""
        return cls.from_json(Path(path).read_text(encoding="utf-8"))

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        # Pickling, copying and sending to a process go through the same whitelist as `save`.
        return Results.from_json, (self.to_json(),)

    def __eq__(self, other: object) -> bool:
        return self.to_dict() == other.to_dict() if isinstance(other, Results) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        raise refuse(self, name)

    # ---- maketables' plug-in hooks -----------------------------------------------------------

    @property
    def __maketables_coef_table__(self) -> pd.DataFrame:
        import pandas as pd

        bounds = self.conf_int()
        columns = {"b": self.params, "se": self.bse, "t": self.tvalues, "p": self.pvalues}
        table = pd.DataFrame({**columns, "ci95l": bounds[0], "ci95u": bounds[1]})
        return table.rename_axis("Coefficient")

    def __maketables_stat__(self, key: str) -> int | float | str | None:
        stats: dict[str, int | float | str] = {
            "N": int(self.nobs),
            "se_type": self.cov_type,
            "trust": self.privacy.trust,
            "epsilon": self.plan.privacy.epsilon,
            "delta": self.plan.privacy.delta,
            "method": self.plan.method,
            "noise": NOT_PRIVATE if self.reproducible else "private",
        }
        return stats.get(key)

    @property
    def __maketables_depvar__(self) -> str:
        return self._response

    @property
    def __maketables_fixef_string__(self) -> None:
        return None

    @property
    def __maketables_vcov_info__(self) -> dict[str, Any]:
        return {"vcov_type": self.cov_type, "clustervar": None}

    @property
    def __maketables_default_stat_keys__(self) -> list[str]:
        mark = ["noise"] if self.reproducible else []
        return ["N", "trust", "epsilon", "delta", "method", *mark]


def _measured(estimate: Estimate, design: Design, theory: Theory) -> tuple[BoundTerm, ...]:
    """The exact and the plug-in tier of the error bound."""
    cov, noise = estimate.cov, estimate.cov_privacy
    known = "known law of the noise, given the earlier releases"
    model = "released estimate of the covariance; needs the assumptions"
    law = inference.gaussian_norm(noise)
    sds = np.sqrt(np.diag(design.standardization.to_user(estimate.params, noise)[1]))
    each = [
        BoundTerm(
            "exact", "equal", "privacy", f"sd({name})", float(sd), "sqrt(V_priv[j, j])", known
        )
        for name, sd in zip(design.names, sds, strict=True)
    ]
    norms = [
        ("equal", "E||error||", law.mean, "E||e||, e ~ N(0, V_priv)"),
        ("upper", "95% radius", law.radius, "95% quantile of ||e||, e ~ N(0, V_priv)"),
    ]
    parts = [("statistical", cov - noise, "V - V_priv"), ("privacy", noise, "V_priv")]
    return (
        *each,
        *(
            BoundTerm("exact", side, "privacy", q, v, formula, known)
            for side, q, v, formula in norms
        ),
        *(
            BoundTerm(
                "plug-in",
                "equal",
                term,
                "root mean square",
                float(np.sqrt(max(np.trace(matrix), 0.0))),
                f"sqrt(trace({symbol}))",
                model,
            )
            for term, matrix, symbol in [*parts, ("total", cov, "V")]
        ),
    )


def load(path: str | Path) -> Results:
    """Read a result that `Results.save` wrote."""
    return Results.load(path)
