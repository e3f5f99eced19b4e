"""What a fit returns: released numbers, and nothing that could not be published with them.

A `Results` is built from an `Estimate`, its `Plan` and the records of the mechanisms that ran. It
was never given rows, so it has none to leak: what would need them raises `PrivateQuantityError`.
"""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError
from dpstats.families import GAUSSIAN
from dpstats.privacy import Neighbors
from dpstats.results.inference import (
    WaldTable,
    as_statsmodels,
    contrast,
    gaussian_norm,
    interval,
    parse_constraints,
    wald_table,
    wald_test,
)
from dpstats.results.prediction import Prediction
from dpstats.results.privacy_report import NOT_PRIVATE, LedgerView, PrivacyReport
from dpstats.results.private_names import ModelNames, refuse
from dpstats.results.user_units import UserUnits
from dpstats.stored import is_version, json_of, read, reading, shown, values
from dpstats.text import plain
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
SPLIT = (
    "Those that take the selected columns as given would be too sure of them. With "
    'inference="split", where the method has it, half of the rows choose the columns and the '
    "others test them; a new fit is a new charge."
)
FORMAT = "dpstats.results"
VERSION = 1
_VERSIONS = [*range(1, VERSION + 1)]
_NOTES = {"format": str, "version": int, "dpstats": str, "privacy_status": str}


@dataclass(frozen=True, eq=False, repr=False)
class Results:
    """A private regression table: estimates, their uncertainty, their privacy, their theory.

    Standard errors, tests and intervals use `cov_params`, which holds sampling error *and* privacy
    noise; `privacy_share` says how much of each variance privacy adds. Reference distributions are
    normal. Make one with ``model.fit(...)`` or `load`.

    A sparse fit keeps all d columns in `params`, zero where not `selected`; whatever has to do with
    uncertainty has the k columns of the model only: those selected and the intercept. Where no
    interval is valid (`has_inference`), it is nan and tests are refused.

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
        marked: int = 0,
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
        marked : int, default 0
            Messages that their senders marked as drawn from a seed.
        """
        privacy = PrivacyReport.of(
            plan,
            releases,
            guarantee=theory.guarantee,
            unit=None if design.schema is None else design.schema.unit,
            max_rows=None if design.schema is None else design.schema.max_rows,
            ledger=ledger,
            reproducible=reproducible,
            marked=marked,
        )
        setting = Setting(
            n=float(estimate.nobs),
            d=len(design.names),
            epsilon=plan.privacy.epsilon,
            delta=plan.privacy.delta,
            s=_sparsity(estimate, design, plan),
            m=plan.options.get("public_rows"),
            p=plan.options.get("moment"),
        )
        bound = error_bound(theory, setting, _measured(estimate, design))
        return cls(design, plan, estimate, privacy, bound)

    # ---- estimates and tests -----------------------------------------------------------------

    @cached_property
    def _user(self) -> UserUnits:
        found = UserUnits.of(self.estimate, self.design)
        # A covariance that ignores the selection would be one of a model nobody named beforehand.
        return found if self.has_inference else replace(found, cov=np.full_like(found.cov, np.nan))

    @cached_property
    def _wald(self) -> WaldTable:
        return wald_table(self._inner, self._user.cov)

    @property
    def _inner(self) -> Array:
        """Coefficients of the k columns in the model."""
        return self._user.params[self._user.columns]

    @cached_property
    def _names(self) -> list[str]:
        """Names of the k columns in the model."""
        return [self.design.names[j] for j in self._user.columns]

    @property
    def _response(self) -> str:
        return self.design.endog.name if self.design.endog is not None else "y"

    def _series(self, values: Array) -> pd.Series:
        import pandas as pd

        return pd.Series(values, index=self._names)

    def _square(self, values: Array) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame(values, index=self._names, columns=self._names)

    @property
    def params(self) -> pd.Series:
        """Estimates in the user's units, indexed by column name, shape (d,)."""
        import pandas as pd

        return pd.Series(self._user.params.copy(), index=list(self.design.names))

    @property
    def selected(self) -> list[str]:
        """Columns in the model, without the intercept: all of them unless the fit is sparse."""
        intercept = self.design.standardization.intercept
        return [self.design.names[j] for j in self._user.columns if j != intercept]

    @property
    def inference(self) -> str:
        """What standard errors, tests and intervals hold for; empty: the model as it stands."""
        return self.estimate.inference

    @property
    def has_inference(self) -> bool:
        """Whether standard errors, tests and intervals are valid, and so are given."""
        return not self.inference.startswith("none")

    @property
    def no_inference(self) -> str:
        """Why there are no standard errors, and what to do; empty where there are."""
        if self.has_inference:
            return ""
        reason = self.inference.partition(": ")[2] or "the method has none"
        text = f"No standard errors, tests or intervals are valid here: {reason}."
        return text if self.estimate.support is None else f"{text} {SPLIT}"

    @property
    def bse(self) -> pd.Series:
        """Standard errors: sampling and privacy noise together, shape (k,)."""
        return self._series(self._wald.se.copy())

    @property
    def tvalues(self) -> pd.Series:
        """``params / bse``; referred to the normal distribution, shape (k,)."""
        return self._series(self._wald.z.copy())

    @property
    def pvalues(self) -> pd.Series:
        """Two-sided p-values of ``coefficient = 0``, shape (k,)."""
        return self._series(self._wald.p.copy())

    def conf_int(self, alpha: float = 0.05) -> pd.DataFrame:
        """Intervals of level 1 - alpha: columns 0 (lower) and 1 (upper), shape (k, 2)."""
        import pandas as pd

        return pd.DataFrame(interval(self._inner, self._wald.se, alpha), index=self._names)

    def cov_params(self) -> pd.DataFrame:
        """Covariance of the estimates around the population parameter, shape (k, k)."""
        return self._square(self._user.cov.copy())

    def cov_privacy(self) -> pd.DataFrame:
        """The part of `cov_params` that is privacy noise of known law, shape (k, k)."""
        return self._square(self._user.cov_privacy.copy())

    def cov_sampling(self) -> pd.DataFrame:
        """The part of `cov_params` due to sampling, shape (k, k).

        Where noise hides directions of the design, `cov_params` holds more than this and
        `cov_privacy`: what is not known of them.
        """
        return self._square(self._user.cov_sampling.copy())

    @property
    def privacy_share(self) -> pd.Series:
        """Share of each coefficient's variance that is there because of privacy, shape (k,).

        In [0, 1]: all but the part due to sampling. It is the noise itself, and what the noise kept
        the fit from finding out.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            share = 1 - np.diag(self._user.cov_sampling) / np.diag(self._user.cov)
        return self._series(np.clip(share, 0.0, 1.0))  # estimated parts may exceed the whole

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
        """Columns in the model without the intercept."""
        return float(len(self._names) - self.design.has_intercept)

    @property
    def df_resid(self) -> float:
        """Rows less the columns in the model; only `f_test` uses it.

        Rows are `nobs`, or where only some of them estimate, the noisy count of those.
        """
        rows = self.nobs_contributing if self.inference.startswith("conditional") else self.nobs
        return rows - len(self._names)

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

    def _hypotheses(self, spec: Any) -> tuple[Array, Array, Array, Array]:
        """Estimates, their covariance, R and q of a test."""
        if not self.has_inference:
            raise OptionError(self.no_inference)
        left_out = set(self.design.names).difference(self._names)
        return self._inner, self._user.cov, *parse_constraints(spec, self._names, left_out)

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
            If a hypothesis cannot be read or names a column that was not selected, or if no
            test is valid after the selection (`has_inference`).
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
        return as_statsmodels(
            wald_test(*self._hypotheses(r_matrix)), self.df_resid, use_f, self._mark
        )

    def f_test(self, r_matrix: Any) -> Any:
        """`wald_test` by the F distribution."""
        return self.wald_test(r_matrix, use_f=True)

    def exp_conf_int(self, alpha: float = 0.05) -> pd.DataFrame:
        """Odds ratios of a logit link, ratios of means or rates of a log link, with intervals.

        Returns
        -------
        DataFrame
            Columns ``exp(coef)``, ``lower`` and ``upper``, shape (k, 3): exponentials of `params`
            and of `conf_int`. That of the intercept is the odds, or mean, where all columns are 0.

        Raises
        ------
        OptionError
            If the link is the identity: an exponential of a difference means nothing.
        """
        if self.design.family.link not in ("log", "logit"):
            raise OptionError(
                f"exp_conf_int: the link is {self.design.family.link!r}, so coefficients are no "
                "logarithms of ratios; use params and conf_int()."
            )
        table = np.exp(self.conf_int(alpha).set_axis(["lower", "upper"], axis=1))
        table.insert(0, "exp(coef)", np.exp(self._inner))
        return table

    # ---- predictions -------------------------------------------------------------------------

    def get_prediction(
        self, exog: Any, *, which: str = "mean", offset: Any = None, exposure: Any = None
    ) -> Prediction:
        """Predicted means for new rows, with standard errors.

        Parameters
        ----------
        exog : table
            New rows with the columns of the formula's right-hand side, and those of its offset and
            exposure: pandas, polars, pyarrow or a dict of arrays. Values are mapped into the
            declared domain, as they were for the fit; a row with a missing value is predicted NaN.
        which : {"mean", "linear"}
            The mean of the response, or the linear predictor.
        offset, exposure : float or array of shape (m,), optional
            Known terms of the new rows, for a model of arrays that has them.

        Returns
        -------
        Prediction
            Its `summary_frame` has statsmodels' columns. Those of a new observation (``obs_ci_*``)
            are there only for linear models whose method released a residual scale.

        Raises
        ------
        OptionError
            If `which` is neither, or a known term is given to a model that takes none.
        """
        design = self.design
        X = design.exog(exog, self._user.columns)
        return Prediction(
            linpred=X @ self._inner + self._known_term(exog, len(X), offset, exposure),
            var_linpred=np.einsum("mk,kl,ml->m", X, self._user.cov, X),
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
        return float(scale * self.design.standardization.y_scale) ** 2

    def _known_term(self, table: Any, m: int, offset: Any, exposure: Any) -> Array | float:
        """Offset and logarithm of the exposure of new rows, as the model has them."""
        design = self.design
        given = {"offset": offset, "exposure": exposure}
        given = {name: value for name, value in given.items() if value is not None}
        if given and (design.offset is None or design.schema is not None):
            why = "it has none" if design.offset is None else "it reads them from the new rows"
            raise OptionError(f"The model takes no {' and '.join(given)} for predictions: {why}.")
        if design.offset is None:
            return 0.0
        if design.schema is not None:
            return design.known_term(table)
        return design.known_term({k: np.broadcast_to(v, (m,)) for k, v in given.items()})

    def predict(
        self, exog: Any, *, which: str = "mean", offset: Any = None, exposure: Any = None
    ) -> pd.Series:
        """Predicted means for new rows (see `get_prediction`), indexed as they are."""
        import pandas as pd

        found = self.get_prediction(exog, which=which, offset=offset, exposure=exposure)
        return pd.Series(found.predicted, index=found.row_labels)

    # ---- reports -----------------------------------------------------------------------------

    @property
    def _mark(self) -> str:
        return f"[{NOT_PRIVATE}]" if self.reproducible else ""

    @property
    def _status(self) -> str:
        return NOT_PRIVATE if self.reproducible else "private"

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
        from dpstats.results.summary import summarize

        return summarize(self, alpha)

    def to_markdown(self, alpha: float = 0.05) -> str:
        """The summary as GitHub-flavoured Markdown."""
        from dpstats.results.summary import markdown

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
        from dpstats.results.summary import SOFTWARE

        styles = {"text": lambda c: c.text(), "bibtex": lambda c: c.bibtex()}
        if style not in styles:
            raise OptionError(f"style={style!r}: allowed are {', '.join(map(repr, styles))}.")
        separator = "\n" if style == "text" else "\n\n"
        return separator.join(styles[style](c) for c in (*self.error_bound.citations, SOFTWARE))

    def __repr__(self) -> str:
        mark = f", {NOT_PRIVATE}" if self.reproducible else ""
        p, count = self.plan, _count(len(self._names), len(self.design.names))
        return plain(
            f"<Results: {p.model} by {p.method}, {self.privacy.trust}, epsilon="
            f"{p.privacy.epsilon:g}, delta={p.privacy.delta:g}, n={self.nobs:.0f}, "
            f"{count} coefficients{mark}; see .summary()>"
        )

    def _repr_html_(self) -> str:
        return self.to_html()

    # ---- storage -----------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Everything that may be written down, as a JSON object."""
        from dpstats import __version__
        from dpstats.results import archive

        return {
            "format": FORMAT,
            "version": VERSION,
            "dpstats": __version__,
            "privacy_status": self._status,
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
        DPStatsError
            If `data` is of another format or a later version, or its parts are not what they are
            named, or contradict each other. Nothing in it is run: see `design_from_dict`.
        """
        if not isinstance(data, Mapping):
            raise OptionError(f"This is no result that dpstats wrote: a {type(data).__name__}.")
        if data.get("format") != FORMAT or not is_version(data.get("version"), *_VERSIONS):
            raise OptionError(
                f"This is no result that dpstats can read: format {shown(data.get('format'))}, "
                f"version {shown(data.get('version'))}; {FORMAT!r} up to version {VERSION} is "
                "known. A newer dpstats may read it."
            )
        if lacking := {f.name for f in fields(cls)} - data.keys():
            raise OptionError(f"This is not the whole of a result: {sorted(lacking)} are missing.")
        with reading("The result"):
            return _read(data)

    def to_json(self) -> str:
        """`to_dict` as text."""
        # One line per field: an indented file of 50,000 columns takes ten times as long.
        fields = (
            f"{json.dumps(key)}: {json.dumps(value, allow_nan=False)}"
            for key, value in self.to_dict().items()
        )
        return "{\n" + ",\n".join(fields) + "\n}"

    @classmethod
    def from_json(cls, text: str | bytes) -> Results:
        """Inverse of `to_json`; as `from_dict`, whoever wrote the text."""
        try:
            data = json_of(text)
        except ValueError as error:
            raise OptionError(
                f"This is no result that dpstats wrote, or not the whole of one: {error}."
            ) from None
        return cls.from_dict(data)

    def save(self, path: str | Path) -> None:
        """Write the released numbers as JSON, field by field from a whitelist; never rows.

        A file that is there is replaced in one step, once the new one is whole and on disk.
        """
        path, text = Path(path).resolve(), self.to_json() + "\n"
        draft = path.with_name(f".{os.getpid()}-{threading.get_ident()}.new")
        try:
            with draft.open("x", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | Path) -> Results:
        """Read what `save` wrote; as `from_dict`, whoever wrote the file."""
        return cls.from_json(Path(path).read_bytes())

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
        b = self._series(self._inner)
        columns = {"b": b, "se": self.bse, "t": self.tvalues, "p": self.pvalues}
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
            "noise": self._status,
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


def _read(data: Mapping[str, Any]) -> Results:
    """The result that a JSON object describes; its parts agree with each other."""
    from dpstats.design import design_from_dict
    from dpstats.results import archive

    parts = {f.name: dict for f in fields(Results)}
    values(_NOTES | parts, data, "result", needed=parts)
    design = design_from_dict(data["design"])
    found = Results(
        design=design,
        plan=archive.plan_from_dict(data["plan"]),
        estimate=archive.estimate_from_dict(data["estimate"], len(design.names)),
        privacy=PrivacyReport.from_dict(data["privacy"]),
        error_bound=archive.bound_from_dict(data["error_bound"]),
    )
    plan, report = found.plan, found.privacy
    asked = (plan.privacy.trust, plan.privacy.epsilon, plan.privacy.delta, plan.cost)
    if (report.trust, report.epsilon, report.delta, report.cost) != asked:
        raise OptionError("The result contradicts itself: it states two guarantees.")
    if plan.names != design.names:
        raise OptionError("The result contradicts itself: plan and design have other columns.")
    if data.get("privacy_status", found._status) != found._status:
        raise OptionError("The result contradicts itself: it is marked private, and it is not.")
    for name in _RESIDUAL_SD:
        if name in found.estimate.released:
            read(float, found.estimate.released[name], f"estimate, released, {name}")
    return found


def _count(part: int, whole: int) -> str:
    return str(whole) if part == whole else f"{part} of {whole}"


def _sparsity(estimate: Estimate, design: Design, plan: Plan) -> int | None:
    """The planned number of columns, else the selected one, at least 1; None for a dense fit.

    A bound for no column at all would be zero, and no theorem says that.
    """
    if estimate.support is None:
        return None
    asked = plan.options.get("sparsity")
    selected = len(set(estimate.support) - {design.standardization.intercept})
    return max(asked if isinstance(asked, int) else selected, 1)


def _measured(estimate: Estimate, design: Design) -> tuple[BoundTerm, ...]:
    """The exact and the plug-in tier of the error bound, as far as the estimate has them."""
    cov, noise = estimate.cov, estimate.cov_privacy
    known = "known law of the noise, given the earlier releases"
    model = "released estimate of the covariance; needs the assumptions"
    where = "" if estimate.support is None else " on the selected columns"
    law, user = gaussian_norm(noise), UserUnits.of(estimate, design)
    names = [design.names[j] for j in user.columns]
    each = [
        BoundTerm(
            "exact", "equal", "privacy", f"sd({name})", float(sd), "sqrt(V_priv[j, j])", known
        )
        for name, sd in zip(names, np.sqrt(np.diag(user.cov_privacy)), strict=True)
    ]
    norms = [
        ("equal", "E||error||", law.mean, "E||e||, e ~ N(0, V_priv)"),
        ("upper", "95% radius", law.radius, "95% quantile of ||e||, e ~ N(0, V_priv)"),
    ]
    sampling = estimate.sampling
    parts = [("statistical", sampling, "V_samp"), ("privacy", cov - sampling, "V - V_samp")]
    terms = (
        *each,
        *(
            BoundTerm("exact", side, "privacy", q + where, v, formula, known)
            for side, q, v, formula in norms
        ),
        *(
            BoundTerm(
                "plug-in",
                "equal",
                term,
                "root mean square" + where,
                float(np.sqrt(np.maximum(np.trace(matrix), 0.0))),
                f"sqrt(trace({symbol}))",
                model,
            )
            for term, matrix, symbol in [*parts, ("total", cov, "V")]
        ),
    )
    return tuple(term for term in terms if not math.isnan(term.value))


def load(path: str | Path) -> Results:
    """Read a result that `Results.save` wrote."""
    return Results.load(path)
