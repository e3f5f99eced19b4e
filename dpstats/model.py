"""A model: a public design and a private table, planned and fitted under a trust model.

``plan`` reads no private row; ``fit`` goes straight down: plan, charge the ledger, open the holder
of the trust model, let the estimator ask, hand back what was released.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from dpstats import estimators
from dpstats.accounting import Ledger
from dpstats.checks import (
    check_names,
    check_paid,
    check_privacy,
    checked_sparsity,
    guessed_rows,
    row_count,
)
from dpstats.design import Design, PublicDesign, Source
from dpstats.errors import DataError, FeasibilityWarning, OptionError, TrustError
from dpstats.holders import Clients, Curator, Labels
from dpstats.holders.sealed import without_frames
from dpstats.mechanisms.noise import Noise, SafeNoise
from dpstats.privacy import Central, Federated, LabelOnly, Local, Neighbors, Privacy
from dpstats.protocol import Estimator, Plan
from dpstats.protocol.progress import reporter
from dpstats.results import Released as Results
from dpstats.text import plain

if TYPE_CHECKING:
    from dpstats.devices import Collector, Randomizer
    from dpstats.protocol import LocalMethod

__all__ = ["Model", "Recipe", "Sparsity"]

Array = NDArray[np.float64]
Sparsity = int | Sequence[int] | None


SIMULATED = (
    "Every device was simulated in this process, which held all rows. The law of the result is "
    "that of real devices (model.randomizer, model.collector), with which no one holds them."
)


class Recipe(Protocol):
    """How to make the design of a model from what may be known."""

    @property
    def text(self) -> str:
        """The formula, or what stands for it: public text for the ledger."""
        ...

    def private(self) -> Design:
        """The design where all columns are private: from the schema alone."""
        ...

    def public(self, data: Any) -> PublicDesign:
        """The design where covariates are public: from the schema and the covariates."""
        ...


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
    """

    def __init__(self, kind: str, recipe: Recipe, data: Any = None, n: int | None = None) -> None:
        self.kind = kind
        self._recipe = recipe
        self._data = data
        self._n = row_count(n)
        self._expected: int | None = None  # of a model that is to plan with only
        if data is None:  # with a table the formula may be meant for public covariates
            self.design  # noqa: B018 - a wrong formula is refused here and now

    @cached_property
    def design(self) -> Design:
        """The public design where all columns are private.

        Raises
        ------
        FormulaError, SchemaError
            If a term may not be used on private rows, or a column is not declared.
        """
        return self._recipe.private()

    @cached_property
    def _public_design(self) -> PublicDesign:
        """The design where covariates are public: any formula may be used on them."""
        if self._data is None:
            raise DataError(
                "No table: with public covariates the design is made from them; give data=..."
            )
        return self._recipe.public(self._data)

    def expecting(self, n: int) -> Model:
        """The model with n rows (users) in place of those it has: to plan with, not to fit.

        Public covariates are repeated until there are n rows.
        """
        made = copy.copy(self)
        made.__dict__.pop("_repeated_design", None)
        made._expected = made._n = n
        return made

    @cached_property
    def _repeated_design(self) -> PublicDesign:
        """The design with public covariates, of as many rows as are expected."""
        assert self._expected is not None
        return self._public_design.repeated(self._expected)

    def _design(self, privacy: Privacy) -> Design:
        check_privacy(privacy)
        if not isinstance(privacy, LabelOnly):
            design: Design = self.design
        else:
            design = self._public_design if self._expected is None else self._repeated_design
        check_names([*design.names, *([design.endog.name] if design.endog is not None else [])])
        return design

    def __repr__(self) -> str:
        return plain(f"<dpstats {self.kind} model: {self._recipe.text}>")

    def plan(
        self,
        privacy: Privacy,
        *,
        method: str | None = None,
        sparsity: Sparsity = None,
        public: Any = None,
        **options: Any,
    ) -> Plan:
        """What a fit would cost and how well it should do. No row is read, nothing is charged.

        Parameters
        ----------
        privacy : Central, Local or LabelOnly
            Trust model and guarantee.
        method : str, optional
            A name from `dpstats.methods`; the default method otherwise.
        sparsity : int or several ints, optional
            Columns that may have a coefficient, from 1 to d: asks for a method that selects them.
            Of several the fit chooses privately, and pays for it. Without it a wide design (see
            Notes) is fitted by such a method where there is one, which then chooses the number.
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
        A design is wide with more than 500 columns, or with more than 50 and fewer than ten rows a
        column.
        """
        return self._prepared(privacy, method, sparsity, public, options).plan

    def fit(
        self,
        privacy: Privacy,
        ledger: Ledger | None = None,
        *,
        method: str | None = None,
        sparsity: Sparsity = None,
        public: Any = None,
        noise: Noise | None = None,
        progress: bool | None = None,
        **options: Any,
    ) -> Results:
        """Charge the ledger, then fit.

        Parameters
        ----------
        privacy : Central, Local or LabelOnly
            Trust model and guarantee. Under `Local` every row is simulated as a device of its own;
            `randomizer` and `collector` are the parts that run apart.
        ledger : Ledger, optional
            Where the cost is charged before any row is read; never refunded. Without one, an
            in-memory ledger of exactly this fit is used, and the summary says that it does not
            outlive the process.
        method : str, optional
            A name from `dpstats.methods`.
        sparsity : int or several ints, optional
            Columns that may have a coefficient; see `plan`.
        public : table, optional
            Public covariates; see `plan`.
        noise : SeededNoise, optional
            Reproducible noise for simulation; the results are then marked NOT private.
        progress : bool, optional
            Print one line per released statistic to standard error; by default only for large
            tables on a terminal.
        **options
            Options of the method.

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
        """
        if self._data is None:
            raise DataError("No table: give data=... when making the model, then fit.")
        if self._expected is not None:
            raise DataError("A model that expects rows is to plan with, not to fit.")
        check_paid(ledger, noise)
        ready = self._prepared(privacy, method, sparsity, public, options)
        design, source, estimator, plan, moments = ready
        del ready
        assert source is not None
        noise = SafeNoise() if noise is None else noise
        for message in plan.warnings:
            warnings.warn(plain(message), FeasibilityWarning, stacklevel=2)
        ledger = Ledger.memory(privacy.epsilon, privacy.delta) if ledger is None else ledger
        unit = None if design.schema is None else design.schema.unit
        ledger.charge(plan, self._recipe.text, unit, reproducible=noise.reproducible)
        holder: Curator | Clients | Labels | None = None
        try:
            holder = _open(source, design, plan, noise, reporter(plan, progress), moments)
            estimate, releases = estimator.fit(holder, design, plan), holder.transcript
            if isinstance(privacy, Local):
                estimate = replace(estimate, remarks=(*estimate.remarks, SIMULATED))
        except BaseException as error:
            raise without_frames(error) from None
        finally:
            del source
            holder = None  # this frame is part of the traceback
        return Results.from_estimate(
            estimate,
            design=design.without_rows(),
            plan=plan,
            theory=estimator.theory[privacy.trust].under(plan.options),
            releases=releases,
            ledger=ledger.state(),
            reproducible=noise.reproducible,
        )

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
        from dpstats.devices import Collector

        if not isinstance(privacy, Local):
            raise TrustError(
                f"Devices send messages under Local(...), not under {privacy.trust!r} trust."
            )
        ready = self._prepared(privacy, method, sparsity, public, options)
        return Collector(ready.design, ready.plan, public=ready.moments)

    def _prepared(
        self,
        privacy: Privacy,
        method: str | None,
        sparsity: Sparsity,
        public: Any,
        options: dict[str, Any],
    ) -> _Prepared:
        """Everything that is known before the ledger is charged; each of it is made once."""
        design = self._design(privacy)
        if sparsity is not None:
            options = {**options, "sparsity": checked_sparsity(sparsity, design)}
        reads = self._data is not None and self._expected is None
        source = design.source(self._data) if reads else None
        n = self._rows(privacy, design, source)
        rows = None if public is None else _public_rows(design, privacy, public)
        if rows is not None:
            options = {**options, "public_rows": len(rows)}
        estimator = self._estimator(privacy, method, sparsity, len(design.names), n)
        plan = estimator.plan(design, privacy, n, **options)
        asks_devices = cast("LocalMethod", estimator)
        moments = None if rows is None else asks_devices.public_moments(design, plan, rows)
        return _Prepared(design, source, estimator, plan, moments)

    def _estimator(
        self, privacy: Privacy, method: str | None, sparsity: Sparsity, columns: int, n: int
    ) -> Estimator:
        """The method asked for, or the default for a design of this shape."""
        select = True if sparsity is not None else None
        estimator = estimators.find(self.kind, privacy, method, select)
        if method is None and not estimator.sparse and _wide(columns, n):
            with suppress(OptionError, TrustError):  # where there is one that selects columns
                return estimators.find(self.kind, privacy, sparse=True)
        return estimator

    def _rows(self, privacy: Privacy, design: Design, source: Source | None) -> int:
        """Public row count, or the public guess where the number of rows is private."""
        several = design.schema is not None and design.schema.unit is not None
        if several and not isinstance(privacy, Central):
            raise TrustError(
                f"Under {privacy.trust!r} trust the unit of privacy is one record: declare the "
                "schema without unit=..., and let every person send one record."
            )
        if several or privacy.neighbors is Neighbors.ADD_REMOVE:
            n = guessed_rows(privacy)
        else:
            n = self._counted(source)
        if n < 1:
            raise DataError("The table has no rows: at least one is needed.")
        if not isinstance(privacy, Federated):
            privacy.check_delta(n)
        return n

    def _counted(self, source: Source | None) -> int:
        if source is None:
            if self._n is None:
                raise OptionError("No table and no row count: give data=... or n=...")
            return self._n
        if self._n not in (None, len(source)):
            raise OptionError(
                f"n={self._n:,} and a table of {len(source):,} rows: n= is for planning without a "
                "table; leave it out."
            )
        return len(source)


class _Prepared(NamedTuple):
    """A fit up to its charge."""

    design: Design
    source: Source | None
    estimator: Estimator
    plan: Plan
    moments: Array | None


def _public_rows(design: Design, privacy: Privacy, public: Any) -> Array:
    """Public covariates (m, d) in internal coordinates, without rows that miss a value."""
    if not isinstance(privacy, Local):
        raise OptionError(
            "public=...: public covariates help where devices randomise their records, under "
            "Local(...). Under LabelOnly(...) all covariates are public already."
        )
    standard = design.standardization
    rows = (design.exog(public) - standard.x_center) / standard.x_scale
    kept: Array = rows[~np.isnan(rows).any(axis=1)]
    if not len(kept):
        raise DataError("public=...: no row without a missing value; leave it out.")
    return kept


def _wide(columns: int, n: int) -> bool:
    """Whether a fit of all columns is hopeless where one of a few may not be.

    The noise of a dense fit grows with its columns: beyond 500, or with fewer than ten rows a
    column, it exceeds any coefficient worth reporting, at every epsilon in use. Up to 50 columns a
    table of all of them is what a reader expects.
    """
    return columns > 500 or (columns > 50 and 10 * columns >= n)


def _open(
    source: Source,
    design: Design,
    plan: Plan,
    noise: Noise,
    report: Callable[[str], None] | None,
    public: Array | None,
) -> Curator | Clients | Labels:
    """The holder of the plan's trust model, on the rows."""
    match plan.privacy:
        case Local():
            return Clients(source, design, plan, noise, public, report)
        case LabelOnly():
            return Labels(source, design, plan, noise, report)
    return Curator(source, design, plan, noise, report)
