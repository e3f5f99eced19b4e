"""A model: a public design and a private table, planned and fitted under a trust model.

``plan`` reads no private row; ``fit`` takes what it prepares to the door (`dpstats.models.door`).
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from dpstats import estimators, federated
from dpstats.accounting import Ledger
from dpstats.design import Design, PublicDesign
from dpstats.errors import (
    DataError,
    FormulaError,
    OptionError,
    SchemaError,
    TrustError,
    UnavailableError,
    frameless,
    need_flag,
)
from dpstats.federated import Question, Site, Sites
from dpstats.mechanisms.noise import Noise
from dpstats.models import door
from dpstats.models.checks import (
    check_names,
    check_paid,
    check_privacy,
    checked_count,
    checked_sparsity,
    number_of_rows,
    public_covariates,
)
from dpstats.models.missing import check_missing, completing, taken_share, with_gaps
from dpstats.models.public_side import PublicSide
from dpstats.models.recipes import Recipe, of_subset
from dpstats.models.subsets import rows_inside
from dpstats.models.unbuilt import refuse_foreign
from dpstats.privacy import Federated, LabelOnly, Local, Privacy
from dpstats.protocol import Estimator, Options, Plan
from dpstats.results import Released as Results
from dpstats.results.warned import warned_of
from dpstats.tables.streams import Reading, Scratch, Stream, stream_of
from dpstats.text import plain

if TYPE_CHECKING:
    from dpstats.models.devices import Collector, Randomizer
    from dpstats.protocol import LocalMethod

__all__ = ["Model", "Sparsity"]

Sparsity = int | Sequence[int] | None

_FEW, _MANY = 50, 1000  # columns up to which all are fitted, and beyond which some are selected
_USEFUL = 0.1  # ratio: error to fitted values, at which a fit of all columns is as good as any


class Model:
    """A model: its public design, and a reference to the private table it may be fitted on.

    Made by `ols`, `mean` and their kin. The table stays the caller's; nothing private is read from
    it until `fit` has charged a ledger.

    Parameters
    ----------
    kind : str
        Model name in the registry, such as ``"ols"``.
    recipe : Recipe
        How to make the design; with public covariates it is another one.
    data : table, optional
        pandas, polars, pyarrow table, dict of arrays, or (endog, exog) and a mapping of known
        terms; needed by `fit`.
    n : int, optional
        Public number of rows, where no table is given.
    options : mapping, optional
        What the model itself says of options of its methods, such as a number of components.
    missing : {"complete", "em"}
        What becomes of rows that miss a value.
    selecting : callable, optional
        Makes the model that is fitted in place of this one where columns are to be selected.
    subset : str, optional
        Rows that are meant: an expression of declared columns.
    """

    def __init__(
        self,
        kind: str,
        recipe: Recipe,
        data: Any = None,
        n: int | None = None,
        options: Options | None = None,
        missing: str = "complete",
        selecting: Callable[[], Model] | None = None,
        subset: str | None = None,
    ) -> None:
        self.kind = kind
        self._selecting = selecting
        self._missing = check_missing(kind, missing)
        self._options = dict(options or {})
        self._recipe = recipe = of_subset(recipe, subset)
        self._data = stream_of(data, getattr(recipe, "schema", None), n)
        self._n = checked_count(n)
        self._expected: int | None = None  # of a model that is to plan with only
        self._public_side = PublicSide(recipe, self._data)
        try:
            self.design  # noqa: B018 - a wrong formula is refused here and now
        except (FormulaError, SchemaError):
            if data is None or recipe.mistaken(self._data):  # nor meant for public covariates
                raise

    @cached_property
    def design(self) -> Design:
        """The public design where all columns are private.

        Raises
        ------
        FormulaError, SchemaError
            If a term may not be used on private rows, or a column is not declared.
        """
        return self._recipe.private()

    def expecting(self, n: int) -> Model:
        """The model with n rows (users) in place of those it has: to plan with, not to fit.

        Public covariates are repeated until there are n rows.
        """
        made = copy.copy(self)
        made.__dict__.pop("_repeated_design", None)
        made._expected = made._n = n
        return made

    def within(self, subset: str) -> Model:
        """The model of the rows of a subset, in place of those that it is of."""
        made = copy.copy(self)
        made.__dict__.pop("design", None)
        made.__dict__.pop("_repeated_design", None)
        made._recipe = of_subset(self._recipe, subset)
        made._public_side = PublicSide(made._recipe, made._data)
        selecting = self._selecting
        made._selecting = selecting and (lambda: selecting().within(subset))
        return made

    @cached_property
    def _repeated_design(self) -> PublicDesign:
        """The design with public covariates, of as many rows as are expected."""
        if self._expected is None:
            raise UnavailableError("The model has the rows of its table.")
        return self._public_side.design().repeated(self._expected)

    def _design(self, privacy: Privacy, scratch: Scratch = None) -> Design:
        check_privacy(privacy)
        if not isinstance(privacy, LabelOnly):
            design: Design = self.design
        else:
            expects = self._expected is not None
            design = self._repeated_design if expects else self._public_side.design(scratch)
        check_names([*design.names, *([design.endog.name] if design.endog is not None else [])])
        return design

    def __repr__(self) -> str:
        return plain(f"<dpstats {self.kind} model: {self._recipe.text}>")

    def plan(
        self,
        privacy: Privacy = None,  # type: ignore[assignment]  # refused, with what to write
        *,
        method: str | None = None,
        sparsity: Sparsity = None,
        public: Any = None,
        **options: Any,
    ) -> Plan:
        """What a fit would cost and how well it should do. No row is read, nothing is charged.

        Parameters
        ----------
        privacy : Central, Local, LabelOnly or Federated
            Trust model and guarantee.
        method : str, optional
            A name from `dpstats.methods`; the default method otherwise.
        sparsity : int or several ints, optional
            Columns that may have a coefficient, from 1 to d: asks for a method that selects them.
            Of several the fit chooses privately, and pays for it. Without it the plan decides
            whether columns are selected, and the method how many (see Notes).
        public : table, optional
            Under `Local`: rows of covariates that everybody may see, of the same population.
        **options
            Options of the method.

        Raises
        ------
        TrustError
            If no method answers this model under this trust model.
        OptionError
            If an option, delta or the row count is not allowed.

        Notes
        -----
        With more than 50 columns the default is what its own plan expects less error of: a fit of
        all columns, or one that selects them. All are kept where that is expected to cost a tenth
        of what fitted values vary by, or less; of more than 1,000 some are selected.
        """
        if isinstance(privacy, Federated):
            return federated.plan_over(*self._sites(privacy, method, sparsity, public, options))
        return self._prepared(privacy, method, sparsity, public, options).plan

    def fit(
        self,
        privacy: Privacy = None,  # type: ignore[assignment]
        ledger: Ledger | Mapping[str, Ledger] | None = None,
        *,
        method: str | None = None,
        sparsity: Sparsity = None,
        public: Any = None,
        noise: Noise | None = None,
        progress: bool | None = None,
        scratch: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> Results:
        """Charge the ledger, then fit.

        Parameters
        ----------
        privacy : Central, Local, LabelOnly or Federated
            Trust model and guarantee. Under `Local` every row is simulated as a device of its own;
            `randomizer` and `collector` are the parts that run apart.
        ledger : Ledger, optional
            Where the cost is charged before any row is read; never refunded. Without one, an
            in-memory ledger of exactly this fit is used, and the summary says that it does not
            outlive the process. Under `Federated` a mapping of sites to ledgers.
        method, sparsity, public
            As for `plan`.
        noise : SeededNoise, optional
            Reproducible noise for simulation; the results are then marked NOT private.
        progress : bool, optional
            Show on standard error how many rows were read and which statistics released: bars on a
            terminal or in a notebook, by default of fits of more than 2 seconds; elsewhere lines.
        scratch : path, optional
            Folder for the rows of a table that is read in batches and does not fit into memory; the
            environment variable ``DPSTATS_SCRATCH`` names it otherwise. Its file has no name and is
            gone when the fit ends.
        **options
            Options of the method; `cov_type` may name what is reported: ``"HC1"``, ``"cluster"``.

        Returns
        -------
        Results
            Released numbers only.

        Raises
        ------
        BudgetError
            If the ledger cannot pay; nothing was charged and no row was read.
        DPStatsError
            On bad input, before anything is charged.

        Warns
        -----
        FeasibilityWarning, EstimationWarning
            What the plan says, before the charge; and what answers tell, which carries the results.
        """
        if self._data is None:
            raise DataError("No table: give data=... when making the model, then fit.")
        if self._expected is not None:
            raise DataError("A model that expects rows is to plan with, not to fit.")
        check_privacy(privacy)
        if progress is not None:
            need_flag(progress=progress)
        if isinstance(privacy, Federated):
            check_paid(None, noise)
            asked = self._sites(privacy, method, sparsity, public, options, ledger, noise)
            return warned_of(federated.fit(*asked, progress), stacklevel=3)
        check_paid(ledger, noise)
        assert ledger is None or isinstance(ledger, Ledger)
        self._public_side.progress = progress
        # Not by a name: the frame of a local variable is part of a traceback.
        try:
            return door.fit(
                self._prepared(privacy, method, sparsity, public, options, scratch),
                self._recipe.text,
                ledger,
                noise,
                progress,
                scratch,
            )
        finally:
            self._public_side.let_go()

    def randomizer(
        self,
        privacy: Local,
        *,
        method: str | None = None,
        sparsity: Sparsity = None,
        public: Any = None,
        noise: Noise | None = None,
        **options: Any,
    ) -> Randomizer:
        """What ships to a device: one record in, one message of bytes out.

        Parameters
        ----------
        privacy : Local
            The guarantee of one message.
        method, sparsity, public, **options
            As for `plan`. The model needs a table or ``n=``, the number of users expected.
        noise : SeededNoise, optional
            For simulation; its messages are marked, and results made of them are NOT private.

        Returns
        -------
        Randomizer
            Of the first round; `Collector.randomizer` makes those of later ones.
        """
        collector = self.collector(
            privacy, method=method, sparsity=sparsity, public=public, **options
        )
        return collector.randomizer(noise=noise)

    def collector(
        self,
        privacy: Local,
        *,
        method: str | None = None,
        sparsity: Sparsity = None,
        public: Any = None,
        **options: Any,
    ) -> Collector:
        """What runs on the server: messages in, in any order and number, and a fit out.

        Parameters
        ----------
        privacy, method, sparsity, public, **options
            As for `randomizer`.

        Returns
        -------
        Collector
        """
        from dpstats.models.devices import Collector

        check_privacy(privacy)
        if not isinstance(privacy, Local):
            raise TrustError(
                f"Devices send messages under Local(...), not under {privacy.trust!r} trust."
            )
        ready = self._prepared(privacy, method, sparsity, public, options)
        return Collector(ready.design, ready.plan, public=ready.public)

    def _sites(
        self,
        privacy: Federated,
        method: str | None,
        sparsity: Sparsity,
        public: Any,
        options: dict[str, Any],
        ledger: Any = None,
        noise: Noise | None = None,
    ) -> tuple[Question, list[Site]]:
        """What is asked of sites, and these, in this process."""
        refuse_foreign(options)
        method = completing(self._missing, privacy, method, options)
        estimators.find(self.kind, privacy)  # it says so if sites are not asked for this
        if not isinstance(self._data, Sites):
            raise TrustError(
                "Federated(...) is of several sites: give data={'north': ..., 'south': ...}, or "
                "data=... and sites='the column that names them'."
            )
        if public is not None:
            raise OptionError("Federated(...): public= is not answered by sites.")
        options = options if sparsity is None else {**options, "sparsity": sparsity}
        question = federated.question_for(
            self.kind, self._design(privacy), privacy, method, options
        )
        schema = self.design.schema
        assert schema is not None
        sites = self._data.at(schema, ledger, noise)
        if method is None and "combine" not in options:
            question = federated.by_public_facts(question, sites)
        return question, sites

    @frameless
    def _prepared(
        self,
        privacy: Privacy,
        method: str | None,
        sparsity: Sparsity,
        public: Any,
        options: dict[str, Any],
        scratch: Scratch = None,
    ) -> door.PreparedFit:
        """Everything that is known before the ledger is charged; each of it is made once."""
        refuse_foreign(options)
        if sparsity is not None and self._selecting is not None:
            other = self._selecting()
            other._expected = self._expected
            return other._prepared(privacy, method, sparsity, public, options, scratch)
        check_privacy(privacy)
        if isinstance(self._data, Sites):
            raise TrustError(
                f"The rows are at sites, and {privacy.trust!r} trust is of one table: ask for "
                f"Federated(..., target={next(iter(self._data), '')!r})."
            )
        design, options = self._design(privacy, scratch), {**self._options, **options}
        if sparsity is not None:
            options = {**options, "sparsity": checked_sparsity(sparsity, design)}
        reads = self._data is not None and self._expected is None
        batches = isinstance(self._data, Stream)
        reading = Reading(self._data) if batches and not isinstance(privacy, LabelOnly) else None
        source = design.source(self._data if reading is None else reading) if reads else None
        n = number_of_rows(privacy, design, source, self._n, batches)
        n = rows_inside(n, design, privacy, options)
        rows = None if public is None else public_covariates(design, privacy, public)
        if rows is not None:
            options = {**options, "public_rows": len(rows)}
        method = completing(self._missing, privacy, method, options)
        share = taken_share(options, privacy)
        estimator, plan = self._chosen(design, privacy, n, method, options)
        plan = with_gaps(plan, estimator, design, options, share)
        asks_devices = cast("LocalMethod", estimator)
        moments = None if rows is None else asks_devices.public_moments(design, plan, rows)
        return door.PreparedFit(design, source, estimator, plan, moments, reading)

    def _chosen(
        self, design: Design, privacy: Privacy, n: int, method: str | None, options: dict[str, Any]
    ) -> tuple[Estimator, Plan]:
        """The method asked for, or the default that plans the smaller error; and its plan."""
        columns, select = len(design.names), True if "sparsity" in options else None
        usual = estimators.find(self.kind, privacy, method, select)
        usual = usual if method else estimators.unwarned(usual, design, privacy, n, options)
        keeps = method is not None or getattr(self._recipe, "keeps_all", False)
        if keeps or usual.sparse or columns <= _FEW:
            return usual, usual.plan(design, privacy, n, **options)
        try:
            other = estimators.find(self.kind, privacy, sparse=True)
            selecting = other.plan(design, privacy, n, **options)
        except (OptionError, TrustError):  # there is none, or not with these options
            return usual, usual.plan(design, privacy, n, **options)
        if columns > _MANY:
            return other, selecting
        with suppress(OptionError):  # where there are fewer rows than columns
            plan = usual.plan(design, privacy, n, **options)
            if min(plan.predicted_error, 1.0) < max(min(selecting.predicted_error, 1.0), _USEFUL):
                return usual, plan
        return other, selecting
