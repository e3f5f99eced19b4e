"""What leaves a fit of any model: released numbers, their privacy, theory and file.

A result is built from an estimate, its plan and the records of the mechanisms that ran. It was
never given rows, so it has none to leak: what would need them raises `PrivateQuantityError`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from dpstats import version
from dpstats.design import Design, design_from_dict
from dpstats.errors import OptionError, among, given, need_path
from dpstats.outputs import FilePath, json_kind, write_output
from dpstats.privacy import NOT_PRIVATE, SIMULATED, Neighbors
from dpstats.results import archive
from dpstats.results.margins import with_error_bounds
from dpstats.results.privacy_report import PrivacyReport
from dpstats.results.private_names import ModelNames, refuse
from dpstats.stored import is_version, json_of, reading, record, shown, values
from dpstats.text import plain
from dpstats.theory import Citation, ErrorBound, Setting, Theory, error_bound

if TYPE_CHECKING:
    from dpstats.protocol import Plan
    from dpstats.protocol.estimate import Estimate, ParameterTable

__all__ = ["KINDS", "RESULTS_FILE", "Released", "load"]

FORMAT = "dpstats.results"
RESULTS_FILE = json_kind("results that dpstats saved", FORMAT)
VERSION = 2
_VERSIONS = [*range(1, VERSION + 1)]
_NOTES = {"format": str, "version": int, "dpstats": str, "privacy_status": str, "kind": str}
_PARTS = ("design", "plan", "estimate", "privacy", "error_bound")

# What a file may be, one line each in `dpstats.results`; nothing else is read.
KINDS: dict[str, type[Released]] = {}

_FEW = 12  # bounds that a paragraph names one by one
_TABLED = " 95 % bounds on the distances to the estimates without privacy are in the table."
_HIDDEN = ("noise hides", "noise may hide", "noise blurs", "may hide directions", "noise on x'x")

SOFTWARE = Citation(
    key="dpstats",
    authors="The dpstats developers",
    title="dpstats: differentially private statistics with formulas",
    year=2026,
    venue="Python package",
)


@dataclass(frozen=True, eq=False, repr=False)
class Released:
    """What a fit returns: what was planned, released and charged, and what is proved of it.

    Make one with ``model.fit(...)`` or `load`. Each kind of estimate has a class of its own, which
    is named in `KINDS`.

    Attributes
    ----------
    design : Design
        Formula, schema and scaling: public facts.
    plan : Plan
        What was planned and charged.
    estimate : Estimate
        The released estimate, in the units of its record.
    privacy : PrivacyReport
        Trust model, neighbours, every mechanism with its sensitivity and noise, total cost.
    error_bound : ErrorBound
        Bounds on the error of each parameter, rates and conditions of the theorem, sources.

    Examples
    --------
    >>> import dpstats as dp
    >>> schema = dp.Schema(y=dp.Numeric(0, 1))
    >>> fit = dp.mean("y", {"y": [0.2, 0.8] * 99}, schema).fit(dp.Central(1.0))
    >>> fit.privacy.epsilon, fit.params.index.tolist()
    (1.0, ['y'])
    """

    design: Design
    plan: Plan
    estimate: Estimate
    privacy: PrivacyReport
    error_bound: ErrorBound

    estimates: ClassVar[type[Any]]  # records that a class of results is made of

    @classmethod
    def from_estimate(
        cls,
        estimate: Estimate,
        *,
        design: Design,
        plan: Plan,
        theory: Theory,
        privacy: PrivacyReport,
    ) -> Released:
        """Results of a fit that was carried out, of the class that is made of such estimates.

        The design holds public facts only; `theory` is that of the method under the plan's trust
        model, `privacy` the report on all mechanisms that ran.
        """
        kind = next(kind for kind in KINDS.values() if isinstance(estimate, kind.estimates))
        setting = kind._setting(estimate, design, plan)
        warned = " ".join((*plan.warnings, *estimate.remarks)).lower()
        hidden = any(word in warned for word in _HIDDEN)
        bound = error_bound(theory, setting, hidden)
        return kind(design, plan, estimate, privacy, bound)._bounded()

    # What a kind of estimate may say of itself ----------------------------------------------------

    @classmethod
    def _setting(cls, estimate: Any, design: Design, plan: Plan) -> Setting:
        """The public facts that rates are evaluated at."""
        return Setting(
            n=float(estimate.nobs),
            d=len(design.names),
            epsilon=plan.privacy.epsilon,
            delta=plan.privacy.delta,
            s=cls._sparsity(estimate, design, plan),
            m=plan.options.get("public_rows"),
            p=plan.options.get("moment"),
        )

    @staticmethod
    def _sparsity(estimate: Any, design: Design, plan: Plan) -> int | None:
        """Number of columns in the model, where a rate depends on it."""
        return None

    def _bounded(self) -> Self:
        """With the bounds on the errors of its parameters."""
        count = f"{self.nobs:,.0f} " if self.nobs_public else ""
        rows = f"the same {count}rows"
        bound = with_error_bounds(self.error_bound, self.table, self.plan, self._subject, rows)
        return replace(self, error_bound=replace(bound, warned=self.warnings))

    @property
    def _subject(self) -> str:
        """What a parameter is, ``{}`` standing for its name."""
        if self.table.of_coefficients and self.plan.names != ("Intercept",):
            return "coefficient of {}"
        alone = len(self.plan.parameters) == 1
        return f"{self.plan.model} of {self.response}" if alone else "estimate of {}"

    @staticmethod
    def _written(estimate: Any) -> dict[str, Any]:
        """The estimate as a JSON object; inverse of `_reread`."""
        return archive.written(estimate)

    @classmethod
    def _reread(cls, data: dict[str, Any], design: Design) -> Any:
        return record(cls.estimates, data, "estimate")

    def _check(self) -> None:
        """Refuse a file whose parts contradict each other.

        Raises
        ------
        OptionError
        """
        if self._planned != self.plan.parameters:
            raise OptionError("The result contradicts itself: plan and estimate differ.")

    @property
    def _planned(self) -> tuple[str, ...]:
        """Names of the parameters as they were before anything was released."""
        return self.table.names

    # Facts ----------------------------------------------------------------------------------------

    @cached_property
    def table(self) -> ParameterTable:
        """The parameters in the user's units: all that is reported of them is read from it."""
        return self.estimate.table(self.design)

    @property
    def nobs(self) -> float:
        """Number of rows: public where `nobs_public`, else a noisy count of contributing rows."""
        return float(self.plan.n) if self.nobs_public else self.nobs_contributing

    @property
    def nobs_contributing(self) -> float:
        """Noisy count of rows that contribute: nothing missing, within their unit's limit."""
        return float(self.estimate.nobs)

    @property
    def nobs_public(self) -> bool:
        """Whether `nobs` is the public number of rows rather than a released noisy count."""
        counted = self.design.counts_rows or self.plan.privacy.trust == "local"  # of messages
        return self.plan.neighbors is Neighbors.REPLACE_ONE and counted

    @property
    def cov_type(self) -> str:
        """What covariances of the parameters hold, and what they are made without assuming."""
        return "sampling + privacy" if self.table.has_inference else "none"

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is said above the parameters of the answer, by the plan and by what was released."""
        found = (*self.plan.warnings, *self.estimate.remarks)
        return tuple(text for text in found if text != SIMULATED)

    @property
    def released(self) -> Mapping[str, Any]:
        """Other numbers that were released or are public, such as clips and scales."""
        return dict(self.estimate.released)

    @property
    def model(self) -> ModelNames:
        """Names of the parameters and the response, for statsmodels' tools; no data.

        That of the response says where noise was seeded: other packages show nothing else of ours.
        """
        mark = " (NOT private)" if self.reproducible else ""
        names = self.plan.parameters if self.plan.model == "mean" else self.design.names
        return ModelNames(f"{self.response}{mark}", list(names), self.design.formula)

    @property
    def response(self) -> str:
        """Name of the response; ``"y"`` where there is none."""
        return "y" if self.design.endog is None else self.design.endog.name

    @property
    def reproducible(self) -> bool:
        """True when the noise was seeded: the result is then NOT private."""
        return self.privacy.reproducible

    @property
    def _ratio(self) -> str:
        """What exponentials of its coefficients are, such as "odds ratio"; empty for nothing."""
        return ""

    @property
    def _law(self) -> str:
        """What `describe` adds to the name of the model."""
        return ""

    @property
    def _status(self) -> str:
        return NOT_PRIVATE if self.reproducible else "private"

    def cite(self, style: str = "text") -> str:
        """How to cite the method, its theory and this software.

        Parameters
        ----------
        style : {"text", "bibtex"}
        """
        styles = {"text": lambda c: c.text(), "bibtex": lambda c: c.bibtex()}
        if not among(style, styles):
            raise OptionError(f"style={given(style)}: allowed are {', '.join(map(repr, styles))}.")
        separator = "\n" if style == "text" else "\n\n"
        return separator.join(styles[style](c) for c in (*self.error_bound.citations, SOFTWARE))

    def describe(self) -> str:
        """A paragraph for the methods section: data protection, accuracy, software, citation."""
        promise, bound, plan = self.privacy, self.error_bound, self.plan
        mark = f"{NOT_PRIVATE}; for simulation and tests only. " if self.reproducible else ""
        total = ""
        if promise.ledger is not None and promise.ledger.persistent:
            total = f" All analyses charged to one ledger with them: {promise.ledger.line()}."
        errors = f" Covariance: {self.cov_type}." if self.table.has_inference else ""
        few = 0 < len(bound.quoted) <= _FEW
        tabled = _TABLED * (len(bound.nonprivate) > _FEW) + bound.warnings
        accuracy = f" {bound.sentence()}" if few else tabled
        source = f", after {bound.citations[0].text()}" if bound.citations else "."
        kind = f"{plan.model}{self._law}"
        rows = f" of the rows with {self.design.subset}" if self.design.subset else ""
        return plain(
            f"{mark}Estimates are ({promise.epsilon:g}, {promise.delta:g})-differentially private "
            f"for {promise.unit} ({promise.trust}; {promise.neighbors}).{total} "
            f"The {self._fitted} ({kind}){rows} was fitted with dpstats {version.VERSION} by its "
            f"method {plan.method}{source}{errors}{accuracy}"
        )

    @property
    def _fitted(self) -> str:
        """What was fitted."""
        return f"model {self.model.formula or 'of arrays'}"

    def __repr__(self) -> str:
        mark = f", {NOT_PRIVATE}" if self.reproducible else ""
        p, table = self.plan, self.table
        part, whole = len(table.inner), len(table.names)
        count = str(whole) if part == whole else f"{part} of {whole}"
        what = "coefficient" if table.of_coefficients else "parameter"
        what += "s" * (whole != 1)
        return plain(
            f"<Results: {p.model} by {p.method}, {self.privacy.trust}, epsilon="
            f"{p.privacy.epsilon:g}, delta={p.privacy.delta:g}, n={self.nobs:.0f}, "
            f"{count} {what}{mark}; see .summary()>"
        )

    def __getattr__(self, name: str) -> Any:
        made = getattr(type(self), name, None)
        if isinstance(made, property) and made.fget is not None:  # refuses, in its own words
            return made.fget(self)
        raise refuse(self, name)

    # Storage --------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Everything that may be written down, as a JSON object."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "dpstats": version.VERSION,
            "privacy_status": self._status,
            "kind": next(name for name, kind in KINDS.items() if kind is type(self)),
            "design": self.design.to_dict(),
            "plan": archive.plan_to_dict(self.plan),
            "estimate": self._written(self.estimate),
            "privacy": archive.encode(self.privacy.to_dict()),
            "error_bound": archive.encode(asdict(self.error_bound)),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Released:
        """Inverse of `to_dict`: a result of the class that `data` names.

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
        if data["version"] == 1:  # all results were regressions
            data = {"kind": "regression", **data}
        if lacking := {"kind", *_PARTS} - data.keys():
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
    def from_json(cls, text: str | bytes) -> Released:
        """Inverse of `to_json`; as `from_dict`, whoever wrote the text."""
        try:
            data = json_of(text)
        except ValueError as error:
            raise OptionError(
                f"This is no result that dpstats wrote, or not the whole of one: {error}."
            ) from None
        return cls.from_dict(data)

    def save(self, path: FilePath) -> None:
        """Write the released numbers as JSON, field by field from a whitelist; never rows.

        Saved results that are there are replaced in one step, once the new ones are on disk, and
        keep their mode. Nothing else is replaced.

        Raises
        ------
        OptionError
            If the path names no file that can be made, or something that is there and no results.
        """
        write_output(path, RESULTS_FILE, self.to_json().encode() + b"\n")

    @classmethod
    def load(cls, path: str | Path) -> Released:
        """Read what `save` wrote; as `from_dict`, whoever wrote the file."""
        return cls.from_json(need_path(path=path).read_bytes())

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        # Pickling, copying and sending to a process go through the same whitelist as `save`.
        return Released.from_json, (self.to_json(),)

    def __eq__(self, other: object) -> bool:
        return self.to_dict() == other.to_dict() if isinstance(other, Released) else NotImplemented

    __hash__ = None  # type: ignore[assignment]


def _read(data: Mapping[str, Any]) -> Released:
    """The result that a JSON object describes; its parts agree with each other."""
    parts = dict.fromkeys(_PARTS, dict)
    values(_NOTES | parts, data, "result", needed=("kind", *parts))
    if data["kind"] not in KINDS:
        raise OptionError(
            f"The result is of the kind {shown(data['kind'])}: this version knows {sorted(KINDS)}."
        )
    kind, design = KINDS[data["kind"]], design_from_dict(data["design"])
    found = kind(
        design=design,
        plan=archive.plan_from_dict(data["plan"]),
        estimate=kind._reread(data["estimate"], design),
        privacy=PrivacyReport.from_dict(data["privacy"]),
        error_bound=record(ErrorBound, data["error_bound"], "error_bound"),
    )
    plan, report = found.plan, found.privacy
    asked = (plan.privacy.trust, plan.privacy.epsilon, plan.privacy.delta, plan.cost)
    if (report.trust, report.epsilon, report.delta, report.cost) != asked:
        raise OptionError("The result contradicts itself: it states two guarantees.")
    if plan.names != design.names:
        raise OptionError("The result contradicts itself: plan and design have other columns.")
    if data.get("privacy_status", found._status) != found._status:
        raise OptionError("The result contradicts itself: it is marked private, and it is not.")
    found._check()
    return found._bounded()


def load(path: str | Path) -> Released:
    """Read a result that `Released.save` wrote.

    Examples
    --------
    >>> import dpstats as dp, pathlib, tempfile
    >>> schema = dp.Schema(y=dp.Numeric(0, 1))
    >>> fit = dp.mean("y", {"y": [0.2, 0.8] * 99}, schema).fit(dp.Central(1.0))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fit.save(pathlib.Path(folder, "fit.json"))
    ...     dp.load(pathlib.Path(folder, "fit.json")).params.equals(fit.params)
    True
    """
    return Released.load(path)
