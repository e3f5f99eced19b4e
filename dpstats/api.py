"""The front door: formulas and tables in, released results out.

A `Model` ties a public `Design` to a private table. ``plan`` reads no row; ``fit`` goes straight
down: plan, charge the ledger, open a holder, let the estimator ask, hand back what was released.
"""

from __future__ import annotations

import math
import operator
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstats import estimators
from dpstats.accounting import Ledger
from dpstats.coercion import as_column, kind_of, to_float
from dpstats.design import Design, Source
from dpstats.errors import DataError, FeasibilityWarning, OptionError, SchemaError, TrustError
from dpstats.estimators.base import Ask, schedule
from dpstats.families import BINOMIAL, GAUSSIAN, Family
from dpstats.families import family as family_of
from dpstats.holders import Curator
from dpstats.mechanisms.noise import Noise, SafeNoise
from dpstats.privacy import Central, Neighbors, Privacy
from dpstats.protocol import Estimate, Estimator, Plan, Release
from dpstats.queries import ResponseInterval
from dpstats.results import Results
from dpstats.schema import Numeric, Schema

__all__ = ["GLM", "OLS", "Logit", "Model", "glm", "logit", "mean", "ols", "private_range"]

Sparsity = int | Sequence[int] | None

_KINDS = {GAUSSIAN: "ols", BINOMIAL: "logit"}  # every other family is "glm"


class Model:
    """A model: its public design, and a reference to the private table it may be fitted on.

    Made by `ols`, `mean` and their kin. The table stays the caller's; nothing is read from it until
    `fit` has charged a ledger.

    Parameters
    ----------
    kind : str
        Model name in the registry, such as ``"ols"``.
    design : Design
        Public design.
    data : table, optional
        pandas, polars, pyarrow table, dict of arrays, or (endog, exog) and a mapping of known
        terms; needed by `fit`.
    n : int, optional
        Public number of rows, where no table is given.
    """

    def __init__(self, kind: str, design: Design, data: Any = None, n: int | None = None) -> None:
        self.kind = kind
        self.design = design
        self._data = data
        self._n = n

    def __repr__(self) -> str:
        return f"<dpstats {self.kind} model: {self._label}>"

    @property
    def _label(self) -> str:
        """The formula, or what stands for it: public text for the ledger."""
        response = "" if self.design.endog is None else f"{self.design.endog.name} "
        return self.design.formula or f"{response}on {len(self.design.names)} columns"

    def plan(
        self,
        privacy: Privacy,
        *,
        method: str | None = None,
        sparsity: Sparsity = None,
        **options: Any,
    ) -> Plan:
        """What a fit would cost and how well it should do. No row is read, nothing is charged.

        Parameters
        ----------
        privacy : Central
            Trust model and guarantee.
        method : str, optional
            A name from `dpstats.methods`; the default method otherwise.
        sparsity : int or several ints, optional
            Columns that may have a coefficient, from 1 to d: asks for a method that selects them.
            Of several the fit chooses privately, and pays for it. Without it a wide design (see
            Notes) is fitted by such a method where there is one, which then chooses the number.
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
        return self._planned(privacy, method, sparsity, options)[1]

    def fit(
        self,
        privacy: Privacy,
        ledger: Ledger | None = None,
        *,
        method: str | None = None,
        sparsity: Sparsity = None,
        noise: Noise | None = None,
        progress: bool | None = None,
        **options: Any,
    ) -> Results:
        """Charge the ledger, then fit.

        Parameters
        ----------
        privacy : Central
            Trust model and guarantee.
        ledger : Ledger, optional
            Where the cost is charged before any row is read; never refunded. Without one, an
            in-memory ledger of exactly this fit is used, and the summary says that it does not
            outlive the process.
        method : str, optional
            A name from `dpstats.methods`.
        sparsity : int or several ints, optional
            Columns that may have a coefficient; see `plan`.
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
        estimator, plan = self._planned(privacy, method, sparsity, options)
        source = self.design.source(self._data)
        noise = SafeNoise() if noise is None else noise
        for message in plan.warnings:
            warnings.warn(message, FeasibilityWarning, stacklevel=2)
        ledger = Ledger.memory(*_ceiling(plan)) if ledger is None else ledger
        unit = None if self.design.schema is None else self.design.schema.unit
        ledger.charge(plan, label=self._label, unit=unit)
        try:
            estimate, releases = _ask(estimator, source, self.design, plan, noise, progress)
        except BaseException as error:
            raise _without_frames(error) from None
        finally:
            del source  # this frame is part of the traceback
        return Results.from_estimate(
            estimate,
            design=self.design,
            plan=plan,
            theory=estimator.theory[privacy.trust],
            releases=releases,
            ledger=ledger.state(),
            reproducible=noise.reproducible,
        )

    def _planned(
        self, privacy: Privacy, method: str | None, sparsity: Sparsity, options: dict[str, Any]
    ) -> tuple[Estimator, Plan]:
        """The method asked for, or the default for a design of this shape, and its plan."""
        columns = len(self.design.names)
        if sparsity is not None:
            options = {**options, "sparsity": _checked_sparsity(sparsity, columns)}
        select = True if sparsity is not None else None
        estimator = estimators.find(self.kind, privacy, method, select)
        n = self._rows(privacy)
        if method is None and not estimator.sparse and _wide(columns, n):
            estimator = self._selecting(privacy) or estimator
        return estimator, estimator.plan(self.design, privacy, n, **options)

    def _selecting(self, privacy: Privacy) -> Estimator | None:
        """The default method that selects columns, if there is one."""
        try:
            return estimators.find(self.kind, privacy, sparse=True)
        except (OptionError, TrustError):
            return None

    def _rows(self, privacy: Privacy) -> int:
        """Public row count, or the public guess where the number of rows is private."""
        if not isinstance(privacy, Central):
            raise TrustError(f"No method answers {self.kind!r} under {privacy.trust!r} yet.")
        schema = self.design.schema  # None for arrays: their unit is one row
        several = schema is not None and schema.unit is not None
        private = privacy.neighbors is Neighbors.ADD_REMOVE or several
        if private:
            if privacy.rows is None:
                raise OptionError(
                    "The number of rows is private under add-remove neighbours or with several "
                    "rows per unit. Give a public guess for planning: Central(..., rows=20_000)."
                )
            n = privacy.rows
        elif self._n is not None:
            n = self._n
        elif self._data is not None:
            n = len(self.design.source(self._data))
        else:
            raise OptionError("No table and no row count: give data=... or n=...")
        if n < 1:
            raise DataError("The table is empty: at least one row is needed.")
        privacy.check_delta(n)
        return n


def _wide(columns: int, n: int) -> bool:
    """Whether a fit of all columns is hopeless where one of a few may not be.

    The noise of a dense fit grows with its columns: beyond 500, or with fewer than ten rows a
    column, it exceeds any coefficient worth reporting, at every epsilon in use. Up to 50 columns a
    table of all of them is what a reader expects.
    """
    return columns > 500 or (columns > 50 and 10 * columns >= n)


def _checked_sparsity(asked: Any, columns: int) -> int | tuple[int, ...]:
    """A number of columns, or several to choose from.

    Raises
    ------
    OptionError
        If one of them is no whole number from 1 to `columns`.
    """
    several = isinstance(asked, (tuple, list, range)) and len(asked) > 0
    numbers = tuple(_whole(number) for number in (asked if several else (asked,)))
    if not all(1 <= number <= columns for number in numbers):
        raise OptionError(
            f"sparsity={asked!r}: a whole number from 1 to {columns}, the columns of the design, "
            "is needed, or several to choose from, as in sparsity=(5, 10, 20)."
        )
    return numbers if several else numbers[0]


def _whole(number: Any) -> int:
    """A whole number; 0, which no option allows, for anything else."""
    try:
        return 0 if isinstance(number, (bool, np.bool_)) else operator.index(number)
    except TypeError:
        return 0


def _ask(
    estimator: Estimator,
    source: Source,
    design: Design,
    plan: Plan,
    noise: Noise,
    progress: bool | None,
) -> tuple[Estimate, tuple[Release, ...]]:
    """Open a holder on the rows and let the estimator ask; the holder goes when this returns."""
    holder = Curator(source, design, plan, noise, on_answer=_reporter(plan, progress))
    estimate = estimator.fit(holder, design, plan)
    return estimate, holder.transcript


def _without_frames(error: BaseException) -> BaseException:
    """The error without its frames, whose variables hold rows; where it happened stays, as text."""
    where = "".join(traceback.format_tb(error.__traceback__))
    error.add_note(f"Frames are withheld because they hold rows. It happened at\n{where}")
    error.__context__ = None
    return error.with_traceback(None)


def _ceiling(plan: Plan) -> tuple[float, float]:
    return plan.privacy.epsilon, plan.privacy.delta


def _reporter(plan: Plan, progress: bool | None) -> Callable[[str], None] | None:
    """Progress on standard error; it depends on public facts only."""
    if progress is None:
        progress = sys.stderr.isatty() and plan.n * len(plan.names) > 20_000_000
    if not progress:
        return None
    total = sum(m.parts for m in plan.mechanisms)
    done = 0

    def report(slot: str) -> None:
        nonlocal done
        done += 1
        print(f"[{done}/{total}] released {slot}", file=sys.stderr, flush=True)

    return report


def ols(
    formula: str, data: Any = None, schema: Schema | None = None, *, n: int | None = None
) -> Model:
    """Linear regression by formula.

    Parameters
    ----------
    formula : str
        ``"y ~ x1 + C(g)"``; every column must be declared in `schema`.
    data : table, optional
        pandas, polars or pyarrow table, or dict of arrays. Needed by `Model.fit`.
    schema : Schema
        Public declaration of the columns.
    n : int, optional
        Public number of rows, for planning without a table.

    Returns
    -------
    Model

    Raises
    ------
    FormulaError
        If a term may not be used on private rows.
    SchemaError
        If a column is not declared.
    """
    return Model("ols", Design.from_formula(formula, _required(schema)), data, n)


def logit(
    formula: str,
    data: Any = None,
    schema: Schema | None = None,
    *,
    offset: str | None = None,
    n: int | None = None,
) -> Model:
    """Logistic regression by formula.

    Parameters
    ----------
    formula : str
        As in `ols`. The response is declared ``Categorical`` with two levels (the second one is the
        event; levels 0 and 1 mean themselves), ``Boolean()``, or ``Numeric(0, 1)``.
    data, schema, n
        As in `ols`.
    offset : str, optional
        As in `glm`.

    Returns
    -------
    Model

    Raises
    ------
    FormulaError, SchemaError
        As `glm`.
    """
    return glm(formula, data, schema, family=BINOMIAL, offset=offset, n=n)


def glm(
    formula: str,
    data: Any = None,
    schema: Schema | None = None,
    *,
    family: Any = "gaussian",
    link: str | None = None,
    offset: str | None = None,
    exposure: str | None = None,
    n: int | None = None,
) -> Model:
    """Generalised linear model by formula.

    Parameters
    ----------
    formula, data, schema, n
        As in `ols`. A Poisson response is declared ``Numeric(0, upper)``, a binomial one as in
        `logit`; values outside the declaration are moved into it.
    family : str or statsmodels family, default "gaussian"
        ``"gaussian"``, ``"binomial"`` or ``"poisson"``, or such as ``sm.families.Poisson()``.
    link : str, optional
        ``"identity"``, ``"log"`` or ``"logit"``; the canonical one by default.
    offset : str, optional
        Declared column, or a term such as ``"np.log(years)"``, that is added to the linear
        predictor with coefficient 1.
    exposure : str, optional
        Declared column or term, with a lower bound above 0, whose logarithm is added likewise.

    Returns
    -------
    Model

    Raises
    ------
    FormulaError
        If a term may not be used on private rows.
    SchemaError
        If a column is not declared, the response may leave the family's domain, or the exposure
        may be 0.
    OptionError
        If the family or its link is not supported.
    """
    law = family_of(family, link)
    design = Design.from_formula(
        formula, _required(schema), family=law, offset=offset, exposure=exposure
    )
    return Model(_KINDS.get(law, "glm"), design, data, n)


def mean(
    formula: str, data: Any = None, schema: Schema | None = None, *, n: int | None = None
) -> Model:
    """Mean of one column, ``mean("y")`` or ``mean("y ~ 1")``.

    Parameters and errors are those of `ols`.
    """
    text = formula if "~" in formula else f"{formula} ~ 1"
    design = Design.from_formula(text, _required(schema))
    if not (design.has_intercept and len(design.names) == 1):
        raise OptionError(
            f'mean({formula!r}): write mean("y") or mean("y ~ 1"); ols takes covariates.'
        )
    return Model("mean", design, data, n)


def OLS(  # noqa: N802 - as in statsmodels
    endog: Any,
    exog: Any,
    bounds: Mapping[str, Any],
    names: Sequence[str] | None = None,
) -> Model:
    """Linear regression on arrays, as in statsmodels: no intercept is added.

    Parameters
    ----------
    endog : array of shape (n,)
        Response.
    exog : array, DataFrame or scipy.sparse matrix of shape (n, d)
        Design; include a column of ones with bounds (1, 1) for an intercept. The bounds of every
        other column of a sparse matrix contain 0.
    bounds : mapping
        ``{"endog": (lower, upper), "exog": (lower, upper) or a list of d pairs}``; public.
    names : sequence of str, optional
        Column names; a DataFrame's own, or ``x1, x2, ...``.

    Returns
    -------
    Model
    """
    return _array_model(endog, exog, bounds, names, GAUSSIAN, {})


def Logit(  # noqa: N802 - as in statsmodels
    endog: Any,
    exog: Any,
    bounds: Mapping[str, Any],
    names: Sequence[str] | None = None,
    *,
    offset: Any = None,
) -> Model:
    """Logistic regression on arrays, as in statsmodels: no intercept is added.

    Parameters
    ----------
    endog : array of shape (n,)
        Response: 0, 1, or a share between them.
    exog, bounds, names
        As in `OLS`; ``bounds["endog"]`` is (0, 1) where it is not given.
    offset : array of shape (n,), optional
        As in `GLM`.

    Returns
    -------
    Model
    """
    return GLM(endog, exog, bounds, names, family=BINOMIAL, offset=offset)


def GLM(  # noqa: N802 - as in statsmodels
    endog: Any,
    exog: Any,
    bounds: Mapping[str, Any],
    names: Sequence[str] | None = None,
    *,
    family: Any = "gaussian",
    link: str | None = None,
    offset: Any = None,
    exposure: Any = None,
) -> Model:
    """Generalised linear model on arrays, as in statsmodels: no intercept is added.

    Parameters
    ----------
    endog, exog, names
        As in `OLS`.
    bounds : mapping
        As in `OLS`, with public bounds of ``"offset"`` and ``"exposure"`` where they are given.
    family, link
        As in `glm`.
    offset : array of shape (n,), optional
        Added to the linear predictor with coefficient 1.
    exposure : array of shape (n,), optional
        Its logarithm is added likewise; its lower bound is above 0.

    Returns
    -------
    Model
    """
    known = {"offset": offset, "exposure": exposure}
    given = {name: values for name, values in known.items() if values is not None}
    return _array_model(endog, exog, bounds, names, family_of(family, link), given)


def _array_model(
    endog: Any,
    exog: Any,
    bounds: Mapping[str, Any],
    names: Sequence[str] | None,
    law: Family,
    known: Mapping[str, Any],
) -> Model:
    """A model of arrays whose bounds are given for each of them."""
    if law == BINOMIAL and isinstance(bounds, Mapping):
        bounds = {"endog": law.domain, **bounds}
    wanted = ("endog", "exog", *known)
    if not isinstance(bounds, Mapping) or set(bounds) != set(wanted):
        got = sorted(bounds) if isinstance(bounds, Mapping) else type(bounds).__name__
        raise OptionError(
            f"bounds has keys {got}: {', '.join(map(repr, wanted))} are needed, as in "
            "bounds={'endog': (lower, upper), 'exog': (lower, upper) or one pair per column}."
        )
    shape = np.shape(exog)
    if len(shape) != 2 or np.shape(endog) not in {(shape[0],), (shape[0], 1)}:
        raise DataError(
            f"endog has shape {np.shape(endog)} and exog {shape}: (n,) and (n, d) are needed."
        )
    if names is None and hasattr(exog, "columns"):
        names = [str(c) for c in exog.columns]
    design = Design.from_arrays(
        shape[1],
        bounds["exog"],
        bounds["endog"],
        names=names,
        family=law,
        offset_bounds=bounds.get("offset"),
        exposure_bounds=bounds.get("exposure"),
        sparse=hasattr(exog, "tocsr"),
    )
    return Model(_KINDS.get(law, "glm"), design, (endog, exog, known))


def private_range(
    column: str,
    data: Any,
    privacy: Central,
    ledger: Ledger | None = None,
    *,
    noise: Noise | None = None,
) -> Numeric:
    """Buy bounds for a column whose range nobody knows, at the price of `privacy`.

    The ends are chosen among 0 and +-2^k, k = -20 ... 60: as few rows as possible outside, and no
    doubling of the range that would add fewer than about 6 / epsilon rows. The result is public and
    may go into a `Schema`.

    Parameters
    ----------
    column : str
        Column to bound.
    data : table
        Private rows.
    privacy : Central
        What to spend; delta may be 0.
    ledger : Ledger, optional
        Where the cost is charged before any row is read.
    noise : SeededNoise, optional
        For simulation; a range bought with it is NOT private.

    Returns
    -------
    Numeric
        Declaration with the bounds found.

    Notes
    -----
    Guarantee: rows are mapped one by one through asinh(2^20 y), a fixed public function; the range
    is one exponential mechanism on `ResponseInterval` utilities, whose sensitivity is 1 (McSherry &
    Talwar 2007, Theorem 6), at the cost `privacy` allows.
    """
    powers = 2.0 ** np.arange(-20, 61)
    ends = np.r_[-powers[::-1], 0.0, powers]
    grid = np.arcsinh(2.0**20 * ends)
    design = Design.from_arrays(1, (1.0, 1.0), (float(grid[0]), float(grid[-1])))
    values = _numeric_column(data, column)
    if values.size == 0:
        raise DataError("The table is empty: at least one row is needed.")
    n = _public_rows(privacy, values.size)
    privacy.check_delta(n)
    asks = [Ask("range", 1.0, f"range of {column}", kind="selection")]
    mechanisms, cost = schedule(asks, privacy)
    plan = Plan("range", "exponential", privacy, n, (column,), mechanisms, cost)
    noise = SafeNoise() if noise is None else noise
    ledger = Ledger.memory(*_ceiling(plan)) if ledger is None else ledger
    standard = design.standardization
    first, last = np.triu_indices(grid.size, k=1)
    doublings = (grid[last] - grid[first]) / math.log(2)
    query = ResponseInterval(
        (grid - standard.y_center) / standard.y_scale,
        first,
        last,
        6.0 / privacy.epsilon * doublings,
    )
    ledger.charge(plan, label=column)
    try:
        found = _choose(values, query, design, plan, noise)
    except BaseException as error:
        raise _without_frames(error) from None
    finally:
        del values  # this frame is part of the traceback
    candidates = np.column_stack([query.edges[first], query.edges[last]])
    chosen = np.argmin(np.abs(candidates - found).sum(axis=1))
    return Numeric(float(ends[first[chosen]]), float(ends[last[chosen]]))


def _choose(
    values: Any, query: ResponseInterval, design: Design, plan: Plan, noise: Noise
) -> NDArray[np.float64]:
    """The noisy choice of an interval for asinh(2^20 values)."""
    with np.errstate(all="ignore"):  # a warning about a value would be a release
        scaled = np.arcsinh(2.0**20 * to_float(values))
    source = design.source((scaled, np.ones((scaled.size, 1))))
    return Curator(source, design, plan, noise).ask(query, "range")


def _public_rows(privacy: Central, rows: int) -> int:
    """The row count, or the public guess that add-remove neighbours need in its place."""
    if privacy.neighbors is not Neighbors.ADD_REMOVE:
        return rows
    if privacy.rows is None:
        raise OptionError(
            "The number of rows is private under add-remove neighbours. Give a public guess: "
            "Central(..., rows=20_000)."
        )
    return privacy.rows


def _numeric_column(data: Any, column: str) -> Any:
    """One column as an array, by name and type; no value is looked at."""
    try:
        values = as_column(data[column], column)
    except DataError:
        raise
    except Exception:
        raise DataError(f"The table has no column {column!r}.") from None
    kind = kind_of(values)
    if kind not in ("number", "boolean"):
        raise DataError(f"Column {column!r} has type {kind}: a numeric column is needed.")
    return values


def _required(schema: Schema | None) -> Schema:
    if not isinstance(schema, Schema):
        raise SchemaError(
            "schema=... is needed: what may be known about the columns before a row is read. "
            "Schema.template(df) writes a skeleton from names and types."
        )
    return schema
