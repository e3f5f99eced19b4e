"""A formula, or a matrix, bound to declared bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstats.design.arrays import (
    array_blocks,
    array_offset,
    check_zeros,
    column_of,
    listed,
    matrix_of,
    pairs_of,
    shortest,
)
from dpstats.design.blocks import TermColumns, check_representable, guessed
from dpstats.design.collinear import independent
from dpstats.design.facts import Design
from dpstats.design.filling import layout_of
from dpstats.design.formulas import read_formula
from dpstats.design.layout import Layout, Source
from dpstats.design.new_rows import Astray, astray, columns_of, unheld, without_range
from dpstats.design.recipes import VERSION, check_same_names, design_options, not_default
from dpstats.design.responses import (
    KnownTerm,
    Response,
    read_offset,
    response_of_column,
    weights_for,
)
from dpstats.design.rows import TableSource
from dpstats.design.sparse_rows import SparseSource
from dpstats.design.terms import Terms
from dpstats.design.units import (
    Endog,
    internal,
    near,
    norm_bound_of,
    rescaled,
    standardize,
)
from dpstats.design.weights import KnownWeights
from dpstats.errors import DataError, FormulaError, SchemaError, scrubbed
from dpstats.families import GAUSSIAN, Family
from dpstats.schema import Numeric, Schema
from dpstats.tables import named_columns, row_count

__all__ = ["DeclaredDesign"]

Float = NDArray[np.float64]

_OF_CHOICES = ("binomial", "multinomial")  # families whose response has no scale to be found
_CELLS = 2**20  # that `Design.exog` makes at a time


@dataclass(frozen=True, eq=False)
class DeclaredDesign(Design):
    """Columns of a model whose bounds are declared; holds no data.

    Make one with `from_formula` or `from_arrays`.
    """

    _known: KnownTerm | None = field(repr=False)
    _unscaled: tuple[int, ...] = field(repr=False)
    _fixed: NDArray[np.bool_] = field(repr=False)  # columns that are never centred
    _whole: bool = field(default=True, repr=False)
    _terms: tuple[str, ...] = field(default=(), repr=False)

    # -- making one ----------------------------------------------------------------------------

    @classmethod
    def from_formula(
        cls,
        formula: str,
        schema: Schema,
        response: bool = True,
        family: Family = GAUSSIAN,
        offset: str | None = None,
        exposure: str | None = None,
        weights: tuple[str | None, str | None] = (None, None),
    ) -> DeclaredDesign:
        """Bind a formula to a schema.

        Parameters
        ----------
        formula : str
            Wilkinson formula as statsmodels takes it. ``.`` stands for every declared column but
            the response and the unit.
        schema : Schema
            Declarations of all columns that the formula uses.
        response : bool, default True
            Whether the formula has a left-hand side.
        family : Family, default GAUSSIAN
            Law and link of the response.
        offset : str, optional
            Declared column or term, ``"np.log(years)"``, added to the linear predictor with
            coefficient 1.
        exposure : str, optional
            Declared column or term, above 0, whose logarithm is added likewise.
        weights : pair of str or None
            Declared column or term, never negative, and what it means; see `read_weights`.

        Raises
        ------
        FormulaError
            If the formula cannot be parsed, or a term may not be used; says what to write instead.
        SchemaError
            If a template was not filled, the response may leave the family's domain, the exposure
            may be 0, or a weight negative.
        OptionError
            If the type of weights is not known.
        """
        if not isinstance(schema, Schema):
            raise SchemaError(
                f"schema is a {type(schema).__name__}; declare the columns with dp.Schema(...)."
            )
        schema.check_filled()
        terms = Terms(schema)
        endog, blocks = read_formula(formula, terms, response, family)
        known = read_offset(offset, exposure, terms, family) if response else None
        weighted = weights_for(*weights, endog, terms)
        recipe = {"formula": formula, "schema": schema.to_dict(), "response": response}
        recipe |= not_default(family=family, offset=offset, exposure=exposure)
        recipe |= not_default(family=GAUSSIAN, weights=weights[0], weight_type=weights[1])
        return _assemble(blocks, endog, known, schema, family, recipe, weighted)

    @classmethod
    def from_arrays(
        cls,
        k: int,
        bounds: Mapping[str, Any],
        names: Sequence[str] | None = None,
        endog_name: str = "y",
        family: Family = GAUSSIAN,
        sparse: bool = False,
    ) -> DeclaredDesign:
        """Bind a design matrix given as such to bounds. No intercept is added.

        Parameters
        ----------
        k : int
            Columns of the matrix.
        bounds : mapping
            Public bounds: of ``"exog"`` one pair (lower, upper), or one for each column. A column
            with equal bounds is constant; the first one with bounds (1, 1) is the intercept. Of
            ``"endog"`` one pair, if there is a response; of ``"offset"`` and ``"exposure"``
            likewise, if there is a known term of the linear predictor, or one whose logarithm is
            taken; `source` then takes their values.
        names : sequence of str, optional
            By default ``const`` for the intercept, and ``x1``, ``x2``, ....
        endog_name : str, default "y"
            Name of the response.
        family : Family, default GAUSSIAN
            Law and link of the response.
        sparse : bool, default False
            Whether the matrix will be a scipy.sparse one. Its rows are then read without making
            them dense, and its columns are scaled but not centred, so that zeros stay zeros.

        Raises
        ------
        SchemaError
            If bounds are missing, infinite, reversed, or not one pair for each column; if those of
            a sparse column do not contain 0; if the response may leave the family's domain, or the
            exposure may be 0.
        """
        pairs = pairs_of(bounds["exog"], k, *map(str, names or ()))
        blocks = array_blocks(pairs, names)
        if sparse:
            check_zeros(blocks)
        endog, known, ends = None, None, bounds.get("endog")
        if ends is not None:
            declared = Numeric(*pairs_of(ends, 1, endog_name)[0])
            endog = response_of_column(endog_name, declared, family)
            known = array_offset(endog_name, bounds, family)
        recipe = {
            "k": k,
            "bounds": shortest(pairs),
            "endog_bounds": listed(ends),
            "names": None if names is None else [str(name) for name in names],
            "endog_name": endog_name,
        }
        recipe |= not_default(
            family=family,
            offset_bounds=listed(bounds.get("offset")),
            exposure_bounds=listed(bounds.get("exposure")),
            sparse=sparse or None,
        )
        return _assemble(blocks, endog, known, None, family, recipe)

    def to_dict(self) -> dict[str, Any]:
        """The design as a JSON object: what it is made from, and its names."""
        return {"version": VERSION, **self._recipe, "design_names": list(self.names)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> DeclaredDesign:
        """Inverse of `to_dict`.

        The formula is held to the rules of one over private rows, whatever the trust model.

        Raises
        ------
        SchemaError
            If the version is not known, or the same formula now means other columns.
        OptionError, FormulaError
            If a fact is missing, unknown or of another type, or a term may not be used.
        """
        options = design_options(data)
        names = options.pop("design_names")
        make = cls.from_formula if "formula" in options else cls.from_arrays
        subset = options.pop("subset", None)
        made = make(**options).within(subset)
        check_same_names(names, made.names)
        return made

    @property
    def by_value(self) -> bool:
        """Whether rows are those of a table, and of all columns of the design."""
        return self._whole and not self._recipe.get("sparse")

    def part(self, **facts: Any) -> DeclaredDesign:
        """The design with other facts of some of its columns; see `Design.part`."""
        known = dict(zip(self.names, self._terms, strict=False))
        terms = tuple(known.get(name, name) for name in facts.get("names", self.names))
        return replace(self, _whole=False, _terms=terms, **facts)

    @property
    def terms(self) -> tuple[str, ...]:
        """The term of the formula that each column belongs to."""
        return self._terms

    @property
    def unscaled(self) -> tuple[int, ...]:
        """Columns without a scale; see `Design.unscaled`."""
        return self._unscaled

    def scaled(
        self, found: Mapping[int, tuple[float, float]], unsure: tuple[int, ...] = ()
    ) -> DeclaredDesign:
        """The same columns in other units; see `Design.scaled`."""
        pairs = np.full((len(self.names) + 1, 2), np.nan)
        for place, pair in found.items():
            pairs[place] = pair
        standardization = rescaled(
            self.standardization, pairs, self._fixed, self.family == GAUSSIAN
        )
        layout = self._layout
        bounds = layout.bounds.copy()
        bounds[: len(pairs)] = near(pairs, bounds[: len(pairs)])
        d, endog = len(self.names), self.endog
        if endog is not None and d in found:
            lower, upper = map(float, bounds[d])
            endog = Endog(endog.name, lower, upper, *found[d])
        reach = internal(bounds[:d], standardization.x_center, standardization.x_scale)
        center, scale = layout.center.copy(), layout.scale.copy()
        center[: d + 1] = *standardization.x_center, standardization.y_center
        scale[: d + 1] = *standardization.x_scale, standardization.y_scale
        return replace(
            self,
            endog=endog,
            bounds=bounds[:d],
            internal_bounds=reach,
            norm_bound=float(np.linalg.norm(np.abs(reach).max(axis=1))) * self.largest_root,
            standardization=standardization,
            _layout=replace(layout, bounds=bounds, center=center, scale=scale),
            _unscaled=unsure,
            found=dict(found),
        )

    def without_rows(self) -> DeclaredDesign:
        """The same public facts without rows: what results hold. This design never has any."""
        return self

    # -- reading rows --------------------------------------------------------------------------

    @scrubbed
    def source(self, table: Any) -> Source:
        """Private rows of a table, to be read block by block.

        Parameters
        ----------
        table : pandas or polars DataFrame, pyarrow.Table, mapping of names to 1-d values
            For a design from arrays the pair ``(endog, exog)`` instead, or with a known term
            ``(endog, exog, {"offset": values, "exposure": values})``. Rows are matched by
            position; an index is ignored.

        Raises
        ------
        DataError
            On names, types and shapes, never on values: a response that is no number by type, a
            duplicated name.
        """
        if self.schema is None:
            endog, exog, *known = table if isinstance(table, tuple) else (None, table)
            return self._array_source(exog, endog, *known)
        columns = named_columns(table, self.columns)
        self._layout.check_kinds(columns, self.schema)
        unit = columns[self.schema.unit] if self.schema.unit is not None else None
        return TableSource(self._layout, columns, row_count(table), unit=unit)

    def exog(self, table: Any, columns: Any = None, clip: bool = True) -> Float:
        """Rows of the design in the user's units, of shape (m, d); see `Design.exog`.

        Values are mapped into the declared domain as for a fit. A row in which a column is missing
        is NaN.
        """
        layout = self._layout.covariates()
        layout = layout if clip else without_range(layout)
        if self.schema is None:
            source = self._matrix_source(layout, {}, matrix_of(table, self._recipe["k"]))
        else:
            found = named_columns(table, layout.columns)
            layout.check_kinds(found, self.schema)
            source = TableSource(layout, found, row_count(table))
        wanted = np.arange(len(self.names)) if columns is None else np.asarray(columns)
        made = np.empty((len(source), wanted.size))
        step = max(1, _CELLS // (wanted.size + 1 if source.is_sparse else len(self.names)))
        for start in range(0, len(made), step):
            here, block = slice(start, start + step), source.raw(start, start + step)
            part = block.x[:, wanted]
            made[here] = part.toarray() if source.is_sparse else part
            made[here][~block.keep] = np.nan
        return made

    def astray(self, table: Any, known: Mapping[str, Any]) -> dict[str, Astray]:
        """What of new rows lies outside of what is declared; see `Design.astray`."""
        layout = self._layout.asked_anew()
        if self.schema is None:
            rows = {**known, **columns_of(matrix_of(table, self._recipe["k"]), layout.lookups)}
        else:
            rows = named_columns(table, layout.columns)
        names = self._called(layout)
        return dict(zip(names, astray(layout, rows, self.schema or {}), strict=True))

    def known_term(self, table: Any, clip: bool = True) -> Float:
        """Values of the offset of shape (m,), for predictions; NaN where one is missing.

        Parameters
        ----------
        table : as for `source`, or a mapping with ``"offset"`` and ``"exposure"`` for arrays
            The response and the design columns are not needed.
        clip : bool, default True
            Whether values are held to the declared range.
        """
        if self._known is None:
            raise FormulaError("The design has no offset.")
        columns = named_columns(table, self._known.declarations)
        declared = self._known.declarations
        declared = declared if clip else unheld(declared)
        rows: dict[str, Any] = {}
        missing = np.zeros(row_count(table), dtype=np.bool_)
        for name, declaration in declared.items():
            rows[name], lost = declaration.coerce(columns[name], name)
            missing |= lost
        values = self._known.held(rows) if clip else self._known.evaluate(rows)
        return np.where(missing, np.nan, values)

    def _array_source(
        self, exog: Any, endog: Any, known: Mapping[str, Any] = MappingProxyType({})
    ) -> Source:
        matrix = matrix_of(exog, self._recipe["k"])
        wanted = set(self._layout.columns) - {self.endog.name if self.endog else ""}
        if set(known) != wanted:
            raise DataError(
                f"The design takes the known terms {sorted(wanted)} beside exog and endog; got "
                f"{sorted(known)}."
            )
        given = {name: (name, values) for name, values in known.items()}
        if self.endog is not None:
            given[self.endog.name] = ("endog", endog)
        columns = {
            name: column_of(values, shown, matrix.shape[0])
            for name, (shown, values) in given.items()
        }
        return self._matrix_source(self._layout, columns, matrix)

    def _matrix_source(
        self, layout: Layout, columns: Mapping[str, Any], matrix: Any
    ) -> TableSource:
        if self._recipe.get("sparse") and hasattr(matrix, "tocsr"):
            return SparseSource(layout, columns, matrix)
        return TableSource(layout, columns, matrix.shape[0], matrix)


def _assemble(
    blocks: Sequence[TermColumns],
    endog: Response | None,
    known: KnownTerm | None,
    schema: Schema | None,
    family: Family,
    recipe: Mapping[str, Any],
    weights: KnownWeights | None = None,
) -> DeclaredDesign:
    if known is not None and endog is not None and family == GAUSSIAN:
        endog = endog.minus(known)
    check_representable(blocks)
    blocks, notes = independent(blocks, schema, recipe.get("formula", ""))
    names = tuple(name for block in blocks for name in block.names)
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise FormulaError(
            f"The design has two columns named {twice[0]!r}; rename a column or term."
        )
    if not names:
        raise FormulaError("No column is left: all were zero or combinations of others.")
    bounds = near(guessed(blocks), np.concatenate([block.bounds for block in blocks]))
    endog = None if endog is None else endog._replace(endog=endog.endog.near())
    response = None if endog is None else endog.endog
    centred, moves = not recipe.get("sparse", False), family == GAUSSIAN
    standardization = standardize(blocks, bounds, response, centred, moves)
    handed = None if family == GAUSSIAN else known
    unscaled = np.flatnonzero(np.concatenate([block.unscaled for block in blocks])).tolist()
    unscaled *= centred  # values by themselves are not read of sparse rows
    if response is not None and family.name not in _OF_CHOICES and response.unscaled:
        unscaled.append(len(names))
    fixed = np.concatenate([np.full(len(block.names), block.dummy) for block in blocks])
    fixed |= standardization.intercept is None or not centred
    layout = layout_of(blocks, endog, handed, schema or {}, bounds, standardization, weights)
    root = 1.0 if weights is None else weights.facts.largest_root
    unit = () if schema is None or schema.unit is None else (schema.unit,)
    return DeclaredDesign(
        formula=recipe.get("formula"),
        schema=schema,
        endog=response,
        family=family,
        offset=None if known is None else known.offset,
        names=names,
        bounds=bounds,
        has_intercept=standardization.intercept is not None,
        internal_bounds=internal(bounds, standardization.x_center, standardization.x_scale),
        norm_bound=norm_bound_of(blocks, bounds, standardization) * root,
        standardization=standardization,
        columns=() if schema is None else tuple(dict.fromkeys((*layout.columns, *unit))),
        notes=tuple(notes),
        _layout=layout,
        _known=known,
        _unscaled=tuple(unscaled),
        _fixed=fixed,
        weights=None if weights is None else weights.facts,
        _terms=tuple(block.term or name for block in blocks for name in block.names),
        bases=frozenset().union(*(block.bases for block in blocks)),
        _recipe=recipe,
    )
