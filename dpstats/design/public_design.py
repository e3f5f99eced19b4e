"""A design whose covariates are public: any formula, fitted on the rows as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstats.design.arrays import column_of, matrix_of, width_of
from dpstats.design.evaluating import RightSide
from dpstats.design.facts import Design
from dpstats.design.fitted_formula import FittedFormula
from dpstats.design.formulas import read_private_response, read_response
from dpstats.design.layout import Layout, Source
from dpstats.design.public_columns import PublicColumns, PublicRows, floats, usable
from dpstats.design.public_subset import RowsOf, SomeRows, of_rows
from dpstats.design.public_values import PublicValues, as_declared, known_names, total_of
from dpstats.design.recipes import TERMS, VERSION, check_facts, public_facts
from dpstats.design.responses import Response, response_of_column
from dpstats.design.rows import KeptEntries, TableSource
from dpstats.design.terms import Terms
from dpstats.design.units import Offset, Standardization, internal
from dpstats.design.written import Written, sides
from dpstats.errors import DataError, FormulaError, SchemaError, scrubbed
from dpstats.families import GAUSSIAN, Family
from dpstats.schema import Numeric, Schema
from dpstats.tables import column_names, named_columns, row_count
from dpstats.tables.coercion import to_float

__all__ = ["PublicDesign"]

Float = NDArray[np.float64]
Rows = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class PublicDesign(Design):
    """Columns of a model whose covariates are public; only the response is private.

    Make one with `of_table` or `of_arrays`. Bounds, centres and scales are those of the public
    columns themselves. The response is declared and read as in any `Design`.

    Attributes
    ----------
    covariates : Covariates or None
        The public rows; None in results (`without_rows`), and after loading.
    """

    covariates: PublicRows | None = None
    _fitted: FittedFormula | None = field(default=None, repr=False)
    _offset: FittedFormula | None = field(default=None, repr=False)
    _exposure: FittedFormula | None = field(default=None, repr=False)
    _taken: Rows | None = field(default=None, repr=False)

    # -- making one ----------------------------------------------------------------------------

    @classmethod
    def of_table(
        cls,
        formula: str,
        schema: Schema,
        data: Any,
        family: Family = GAUSSIAN,
        offset: str | None = None,
        exposure: str | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> PublicDesign:
        """Fit the right side of a formula on a public table.

        Parameters
        ----------
        formula : str
            Any formula that formulaic evaluates: ``x - x.mean()``, ``x.rank()``, ``lag``, ``poly``,
            ``bs``, Python functions and variables. ``.`` stands for every column that the response
            does not read.
        schema : Schema
            Declaration of the response; covariates need none.
        data : table
            Public covariates, and the response, which is not read; or only kept, where both are
            read in batches (see `PublicValues`). Of some of its rows, `RowsOf` them.
        family : Family, default GAUSSIAN
            Law and link of the response.
        offset, exposure : str, optional
            Public column or term that is added to the linear predictor with coefficient 1, itself
            or by its logarithm.
        context : mapping, optional
            Python variables and functions that the formula may name; they are taken as public.

        Raises
        ------
        FormulaError
            If the formula cannot be evaluated, or the response is on its right side, or in the
            subset.
        SchemaError
            If the response is not declared, may leave the family's domain, or the schema declares
            several rows per unit.
        TrustError
            If the response is a share of trials.
        """
        _check_schema(schema)
        left, right = _sides(formula)
        endog = read_private_response(Written.of(formula), left, Terms(schema), family)
        data, subset = data if isinstance(data, RowsOf) else (data, None)
        private = set(endog.declarations)
        public = [n for n in column_names(data) if n not in private and n != schema.unit]
        texts = {"formula": right, "offset": offset, "exposure": exposure}
        read = {
            name
            for text in filter(None, texts.values())
            for name in _public_reads(formula, text, public, private)
        }
        data = as_declared(data, [n for n in public if n in read], schema)
        given = {"formula": right} | {
            name: _alone(name, text)
            for name, text in texts.items()
            if name != "formula" and text is not None
        }
        some = None if subset is None else of_rows(subset, schema, data, public, private)
        found = PublicValues.of(given, some.columns if some else data, public, private, context)
        terms = {("exog" if name == "formula" else name): f for name, f in found.fitted.items()}
        recipe = {
            "formula": formula,
            "schema": _of_response(schema, private).to_dict(),
            **{name: term.to_dict() for name, term in terms.items()},
        }
        used = usable(found.matrix, list(terms["exog"].names), found.offset, found.own)
        made = _assemble(used, endog, family, schema, recipe, terms)
        rows = replace(made.rows, folder=found.folder, table=found.table)
        return replace(made, covariates=rows)._of_rows(some)

    def _of_rows(self, some: SomeRows | None) -> PublicDesign:
        """The design made of some rows, in the table that they are of."""
        if some is None:
            return self
        recipe = {**self._recipe, "subset": some.text}
        rows = some.placed(self.rows)
        return replace(self, subset=some.text, covariates=rows, _recipe=recipe)

    @classmethod
    def of_arrays(
        cls,
        exog: Any,
        endog_bounds: tuple[float, float],
        names: Sequence[str] | None = None,
        endog_name: str = "y",
        family: Family = GAUSSIAN,
        offset: Any = None,
        exposure: Any = None,
    ) -> PublicDesign:
        """Take a public design matrix as it is. No intercept is added.

        Parameters
        ----------
        exog : ndarray, DataFrame or scipy.sparse matrix of shape (n, k)
            Public. The first column of ones is the intercept. The columns of a sparse matrix are
            scaled but not centred.
        endog_bounds : (lower, upper)
            Public bounds of the response.
        names : sequence of str, optional
            By default ``const`` for the intercept, and ``x1``, ``x2``, ....
        endog_name : str, default "y"
            Name of the response.
        family : Family, default GAUSSIAN
            Law and link of the response.
        offset, exposure : array of shape (n,), optional
            Public known terms.

        Raises
        ------
        SchemaError
            If the bounds of the response are no two finite numbers, the lower first, or it may
            leave the family's domain.
        DataError
            If the matrix is not two-dimensional and numeric.
        """
        lower, upper = endog_bounds
        endog = response_of_column(endog_name, Numeric(float(lower), float(upper)), family)
        matrix = floats(matrix_of(exog, width_of(exog)))
        given = {"offset": offset, "exposure": exposure}
        known = {
            name: to_float(column_of(values, name, matrix.shape[0]))
            for name, values in given.items()
            if values is not None
        }
        recipe = {
            "k": int(matrix.shape[1]),
            "endog_bounds": [float(lower), float(upper)],
            "endog_name": endog_name,
            "known": sorted(known),
        }
        labels = None if names is None else [str(name) for name in names]
        used = usable(matrix, labels, total_of(known) if known else None)
        return _assemble(used, endog, family, None, recipe, {})

    def to_dict(self) -> dict[str, Any]:
        """The design as a JSON object: public facts, and what its terms learned; no rows."""
        return {"version": VERSION, **self._recipe}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PublicDesign:
        """Inverse of `to_dict`; the rows are not part of it.

        Nothing that the recipe names is evaluated here. What it would have `exog` evaluate is held
        to the operations that are allowed on private rows.

        Raises
        ------
        SchemaError
            If the version is not known.
        OptionError, FormulaError
            If a fact is missing, unknown, of another type, or does not fit the others.
        """
        facts = public_facts(data)
        recipe = {name: value for name, value in data.items() if name != "version"}
        law = facts["family"]
        if "formula" not in facts:
            declared = Numeric(*facts["endog_bounds"])
            endog = response_of_column(facts["endog_name"], declared, law)
            check_facts(facts, facts["k"])
            return _made(recipe, endog, law, None, {}, None)
        schema = Schema.from_dict(facts["schema"])
        _, right = _sides(facts["formula"])
        endog = read_response(Written.of(facts["formula"]), Terms(schema), law)
        terms = {name: FittedFormula.from_dict(facts[name]) for name in TERMS if name in facts}
        known = [term for name, term in terms.items() if name != "exog"]
        if terms["exog"].text != right or any(len(term.names) != 1 for term in known):
            raise FormulaError(f"The terms of {facts['formula']!r} are those of another formula.")
        check_facts(facts, len(terms["exog"].names))
        return _made(recipe, endog, law, schema, terms, None)

    def without_rows(self) -> PublicDesign:
        """The same public facts without the rows: what results hold."""
        return replace(self, covariates=None)

    def repeated(self, n: int) -> PublicDesign:
        """The same public facts with the rows again and again, until there are n: for plans."""
        return replace(self, covariates=self.rows.repeated(n))

    # -- reading rows --------------------------------------------------------------------------

    @property
    def rows(self) -> PublicRows:
        """The public rows.

        Raises
        ------
        DataError
            If the design came without them.
        """
        if self.covariates is None:
            raise DataError("The design of a result has no rows; make the model again to fit it.")
        return self.covariates

    @scrubbed
    def source(self, table: Any) -> Source:
        """Private responses of a table, for the rows that are in use; a design of no columns.

        Parameters
        ----------
        table : as for `of_table`, or the pair (endog, exog) for a design from arrays

        Raises
        ------
        DataError
            On names, types and shapes, never on values.
        """
        kept, table = self.rows.kept, table if self.rows.table is None else self.rows.table
        if self.schema is None:
            endog, exog, *_ = table
            name = self._recipe["endog_name"]
            columns, n = {name: column_of(endog, "endog", np.shape(exog)[0])}, np.shape(exog)[0]
        else:
            columns, n = named_columns(table, self._layout.columns), row_count(table)
            self._layout.check_kinds(columns, self.schema)
        if len(kept) and kept[-1] >= n:
            raise DataError("The table has fewer rows than the model was made with; make it again.")
        used = {name: KeptEntries(column, kept) for name, column in columns.items()}
        return TableSource(self._layout, used, len(kept))

    def exog(self, table: Any, columns: Any = None, clip: bool = True) -> Float:
        """Rows of the design in the user's units, of shape (m, d); NaN where a value is missing.

        Stateful terms keep what they learned: levels, centres, knots. Nothing is clipped.

        Raises
        ------
        FormulaError
            If a term means something else on new rows, or what it learned could not be kept.
        """
        wanted = np.arange(len(self.names)) if columns is None else np.asarray(columns)
        taken = np.arange(len(self.names)) if self._taken is None else self._taken
        if self._fitted is not None:
            made = self._fitted.apply(table)[:, taken[wanted]]
        else:
            part = floats(matrix_of(table, self._recipe["k"]))[:, taken[wanted]]
            made = part.toarray() if hasattr(part, "toarray") else np.array(part)
        made[~np.isfinite(made).all(axis=1)] = np.nan
        return made

    def known_term(self, table: Any, clip: bool = True) -> Float:
        """Values of the offset of shape (m,), for predictions; NaN where one is missing."""
        if self.offset is None:
            raise FormulaError("The design has no offset.")
        known = {}
        for name, fitted in (("offset", self._offset), ("exposure", self._exposure)):
            if fitted is not None:
                known[name] = fitted.apply(table)[:, 0]
            elif self.schema is None and name in self._recipe["known"]:
                known[name] = to_float(named_columns(table, [name])[name])
        return total_of(known)


def _check_schema(schema: Any) -> None:
    if not isinstance(schema, Schema):
        raise SchemaError(
            "schema=... is needed: with public covariates it declares the response alone, as in "
            "dp.Schema(y=dp.Numeric(0, 100))."
        )
    if schema.unit is not None and schema.max_rows != 1:
        raise SchemaError(
            f"The schema declares up to {schema.max_rows} rows of one {schema.unit!r}, and "
            "label-only methods protect one response each. Leave the unit out: then every single "
            "response is protected."
        )


def _sides(formula: Any) -> tuple[str, str]:
    if not isinstance(formula, str):
        raise FormulaError(f"Formula {formula!r}: write 'y ~ x'.")
    left, right = sides(formula)
    if not left or not right:
        raise FormulaError(f"Formula {formula!r}: write 'y ~ x', or 'y ~ 1' for the mean alone.")
    return left, right


def _public_reads(formula: str, text: str, public: Sequence[str], private: set[str]) -> set[str]:
    """Names in a text; the response is private, also where a Python variable has its name."""
    names = RightSide.of(text, list(public)).reads
    both = sorted(names & private)
    if both:
        raise FormulaError(
            f"Column {both[0]!r} is on both sides of {formula!r}: it is the private response, so "
            "no covariate may be made of it."
        )
    return names


def _of_response(schema: Schema, private: set[str]) -> Schema:
    """The declarations that the response needs: its columns, and declared terms."""
    return Schema({name: schema[name] for name in schema if name in private or "(" in name})


def _alone(name: str, text: Any) -> str:
    """A known term as the right side of a formula."""
    if not isinstance(text, str):
        raise FormulaError(f"{name} is a {type(text).__name__}; name a column or a term.")
    return f"0 + {{{text}}}"


def _assemble(
    used: PublicColumns,
    endog: Response,
    law: Family,
    schema: Schema | None,
    recipe: dict[str, Any],
    terms: Mapping[str, FittedFormula],
) -> PublicDesign:
    """The design of the columns of a public matrix that can be used."""
    y_center, y_scale, e, at = 0.0, 1.0, endog.endog, used.intercept
    if law == GAUSSIAN:
        y_center = e.center if at is not None else 0.0
        y_scale = e.scale if at is not None else max(abs(e.lower), abs(e.upper))
    offset = used.offset
    recipe = {
        "public": True,
        "family": {"spec": law.name, "link": law.link},
        **recipe,
        "design_names": used.names,
        "taken": None if used.taken is None else used.taken.tolist(),
        "bounds": used.bounds.tolist(),
        "center": used.center.tolist(),
        "scale": used.scale.tolist(),
        "y_units": [y_center, y_scale],
        "intercept": at,
        "notes": used.notes,
        "offset_bounds": None if offset is None else [float(offset.min()), float(offset.max())],
    }
    rows = PublicRows(used.x, None if offset is None else offset / y_scale, used.kept)
    return _made(recipe, endog, law, schema, terms, rows)


def _made(
    recipe: Mapping[str, Any],
    endog: Response,
    law: Family,
    schema: Schema | None,
    fitted: Mapping[str, FittedFormula],
    rows: PublicRows | None,
) -> PublicDesign:
    """The design of a recipe and its fitted terms, and of its rows if they are there."""
    center, scale = np.array(recipe["center"]), np.array(recipe["scale"])
    bounds = np.array(recipe["bounds"], dtype=np.float64).reshape(-1, 2)
    y_center, y_scale = recipe["y_units"]
    standardization = Standardization(center, scale, y_center, y_scale, recipe["intercept"])
    inner = internal(bounds, center, scale)
    known = known_names(recipe)
    ends = recipe["offset_bounds"]
    return PublicDesign(
        formula=recipe.get("formula"),
        schema=schema,
        endog=endog.endog,
        family=law,
        offset=None if ends is None else Offset(" + ".join(known), *ends),
        names=tuple(recipe["design_names"]),
        subset=recipe.get("subset"),
        bounds=bounds,
        has_intercept=recipe["intercept"] is not None,
        internal_bounds=inner,
        norm_bound=float(np.linalg.norm(np.abs(inner).max(axis=1))),
        standardization=standardization,
        columns=tuple(endog.declarations) if schema is not None else (),
        notes=tuple(recipe["notes"]),
        bases=frozenset(),
        _layout=Layout(
            endog=endog.evaluate,
            endog_declarations=endog.declarations,
            bounds=np.array([[endog.endog.lower, endog.endog.upper], [0.0, 0.0], [0.0, 0.0]]),
            fill=np.array([endog.endog.center, 0.0, 0.0]),
            center=np.array([y_center, 0.0, 0.0]),
            scale=np.array([y_scale, 1.0, 1.0]),
        ),
        _recipe=recipe,
        covariates=rows,
        _fitted=fitted.get("exog"),
        _offset=fitted.get("offset"),
        _exposure=fitted.get("exposure"),
        _taken=None if recipe["taken"] is None else np.array(recipe["taken"], dtype=np.intp),
    )
