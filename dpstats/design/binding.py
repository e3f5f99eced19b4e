"""A formula, or a matrix, bound to public bounds."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstats.design.blocks import Block, plain_columns
from dpstats.design.collinear import independent
from dpstats.design.formulas import read_formula
from dpstats.design.recipes import VERSION, design_options
from dpstats.design.responses import KnownTerm, Response, read_offset, response_of_column
from dpstats.design.rows import Layout, Source, column_of, matrix_of
from dpstats.design.sparse_rows import SparseSource
from dpstats.design.terms import Terms
from dpstats.design.units import (
    Endog,
    Offset,
    Standardization,
    internal,
    norm_bound_of,
    standardize,
)
from dpstats.errors import DataError, FormulaError, SchemaError
from dpstats.families import GAUSSIAN, Family
from dpstats.schema import Declaration, Numeric, Schema
from dpstats.tables import named_columns, row_count
from dpstats.tables.coercion import check_kind

__all__ = ["Design"]

Float = NDArray[np.float64]

_NUMBERS = ("number", "boolean")
_CELLS = 2**20  # that `Design.exog` makes at a time


@dataclass(frozen=True, eq=False)
class Design:
    """Columns of a model, from public facts only; holds no data.

    Make one with `from_formula` or `from_arrays`.

    Attributes
    ----------
    formula : str or None
        As it was written; None for arrays.
    schema : Schema or None
        Declarations of the table; None for arrays.
    endog : Endog or None
        The response; None for a one-sided formula.
    family : Family
        Law and link of the response. Unless it is Gaussian with the identity link, the response
        keeps its own units (centre 0, scale 1).
    offset : Offset or None
        Known term of the linear predictor, ``offset + log(exposure)``. `Source` hands it out row by
        row; from a Gaussian response with the identity link, and from its bounds, it is taken off
        instead, which is the same model.
    names : tuple of str
        Columns, of length d.
    bounds : ndarray of shape (d, 2)
        Lower and upper bound of each column, in the user's units. Values are held to them.
    has_intercept : bool
        Whether one of the columns is 1.
    internal_bounds : ndarray of shape (d, 2)
        The same bounds after `standardization`.
    norm_bound : float
        Largest Euclidean norm of an internal row, over every row the schema allows: exact for
        one factor (its dummies are never 1 together) and for separate numeric columns, an upper
        bound otherwise.
    standardization : Standardization
        Between internal and user units.
    columns : tuple of str
        Columns of the table that are read, with the response and the unit.
    notes : tuple of str
        What was dropped and why.
    """

    formula: str | None
    schema: Schema | None
    endog: Endog | None
    family: Family
    offset: Offset | None
    names: tuple[str, ...]
    bounds: Float
    has_intercept: bool
    internal_bounds: Float
    norm_bound: float
    standardization: Standardization
    columns: tuple[str, ...]
    notes: tuple[str, ...]
    _layout: Layout = field(repr=False)
    _known: KnownTerm | None = field(repr=False)
    _recipe: Mapping[str, Any] = field(repr=False)

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
    ) -> Design:
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

        Raises
        ------
        FormulaError
            If the formula cannot be parsed, or a term may not be used; says what to write instead.
        SchemaError
            If a template was not filled, the response may leave the family's domain, or the
            exposure may be 0.
        """
        if not isinstance(schema, Schema):
            raise SchemaError(
                f"schema is a {type(schema).__name__}; declare the columns with dp.Schema(...)."
            )
        schema.check_filled()
        terms = Terms(schema)
        endog, blocks = read_formula(formula, terms, response, family)
        known = read_offset(offset, exposure, terms, family) if response else None
        recipe = {"formula": formula, "schema": schema.to_dict(), "response": response}
        recipe |= _not_default(family=family, offset=offset, exposure=exposure)
        return _assemble(blocks, endog, known, schema, family, recipe)

    @classmethod
    def from_arrays(
        cls,
        k: int,
        bounds: Any,
        endog_bounds: tuple[float, float] | None,
        names: Sequence[str] | None = None,
        endog_name: str = "y",
        family: Family = GAUSSIAN,
        offset_bounds: tuple[float, float] | None = None,
        exposure_bounds: tuple[float, float] | None = None,
        sparse: bool = False,
    ) -> Design:
        """Bind a design matrix given as such to bounds. No intercept is added.

        Parameters
        ----------
        k : int
            Columns of the matrix.
        bounds : (lower, upper), or one such pair for each column
            Public bounds. A column with equal bounds is constant; the first one with bounds
            (1, 1) is the intercept.
        endog_bounds : (lower, upper) or None
            Public bounds of the response; None for a model without one.
        names : sequence of str, optional
            By default ``const`` for the intercept, and ``x1``, ``x2``, ....
        endog_name : str, default "y"
            Name of the response.
        family : Family, default GAUSSIAN
            Law and link of the response.
        offset_bounds, exposure_bounds : (lower, upper), optional
            Public bounds of a known term of the linear predictor, and of one whose logarithm is
            taken; `source` then takes their values.
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
        pairs = _pairs(bounds, k, *map(str, names or ()))
        blocks = _array_blocks(pairs, names)
        if sparse:
            _check_zeros(blocks)
        endog, known = None, None
        if endog_bounds is not None:
            declared = Numeric(*_pairs(endog_bounds, 1, endog_name)[0])
            endog = response_of_column(endog_name, declared, family)
            known = _array_offset(endog_name, offset_bounds, exposure_bounds, family)
        recipe = {
            "k": k,
            "bounds": _shortest(pairs),
            "endog_bounds": None if endog_bounds is None else [float(b) for b in endog_bounds],
            "names": None if names is None else [str(name) for name in names],
            "endog_name": endog_name,
        }
        recipe |= _not_default(
            family=family,
            offset_bounds=_listed(offset_bounds),
            exposure_bounds=_listed(exposure_bounds),
            sparse=sparse or None,
        )
        return _assemble(blocks, endog, known, None, family, recipe)

    def to_dict(self) -> dict[str, Any]:
        """The design as a JSON object: what it is made from, and its names."""
        return {"version": VERSION, **self._recipe, "design_names": list(self.names)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Design:
        """Inverse of `to_dict`.

        The formula is held to the rules of one over private rows, whatever the trust model.

        Raises
        ------
        SchemaError
            If the version is not known, or the same formula now means other columns.
        OptionError, FormulaError
            If a fact is missing, unknown or of another type, or a term may not be used.
        """
        if (
            isinstance(data, Mapping) and "public" in data
        ):  # covariates were public: its facts are those of rows, not a schema's
            from dpstats.design.public_design import PublicDesign

            return PublicDesign.from_dict(data)
        options = design_options(data)
        names = options.pop("design_names")
        make = cls.from_formula if "formula" in options else cls.from_arrays
        made = make(**options)
        if made.names != names:
            raise SchemaError(
                "The design was made with other versions of dpstats or formulaic: its columns were "
                f"{list(names)} and are now {list(made.names)}."
            )
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Design.from_dict, (self.to_dict(),)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Design) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.formula, self.names))

    # -- public facts --------------------------------------------------------------------------

    @property
    def internal_endog_bounds(self) -> tuple[float, float]:
        """Bounds of the response after `standardization`.

        Raises
        ------
        FormulaError
            If the design has no response.
        """
        if self.endog is None:
            raise FormulaError("The design has no response.")
        c, s = self.standardization.y_center, self.standardization.y_scale
        return (self.endog.lower - c) / s, (self.endog.upper - c) / s

    def without_rows(self) -> Design:
        """The same public facts without rows: what results hold. This design never has any."""
        return self

    # -- reading rows --------------------------------------------------------------------------

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
        self._check_types(columns)
        unit = columns[self.schema.unit] if self.schema.unit is not None else None
        return Source(self._layout, columns, row_count(table), unit=unit)

    def exog(self, table: Any, columns: Any = None) -> Float:
        """Rows of the design in the user's units, of shape (m, d); the response is not needed.

        Values are mapped into the declared domain as for a fit. A row in which a column is missing
        is NaN.

        Parameters
        ----------
        table : as for `source`
            New rows; for a design from arrays the matrix alone.
        columns : array of int of shape (k,), optional
            Columns of the design that are wanted; then no (m, d) array is made.
        """
        layout = self._layout.covariates()
        if self.schema is None:
            source = self._matrix_source(layout, {}, matrix_of(table, self._recipe["k"]))
        else:
            found = named_columns(table, layout.columns)
            self._check_types(found)
            source = Source(layout, found, row_count(table))
        wanted = np.arange(len(self.names)) if columns is None else np.asarray(columns)
        made = np.empty((len(source), wanted.size))
        step = max(1, _CELLS // (wanted.size + 1 if source.is_sparse else len(self.names)))
        for start in range(0, len(made), step):
            here, block = slice(start, start + step), source.raw(start, start + step)
            part = block.x[:, wanted]
            made[here] = part.toarray() if source.is_sparse else part
            made[here][~block.keep] = np.nan
        return made

    def known_term(self, table: Any) -> Float:
        """Values of the offset of shape (m,), for predictions; NaN where one is missing.

        Parameters
        ----------
        table : as for `source`, or a mapping with ``"offset"`` and ``"exposure"`` for arrays
            The response and the design columns are not needed.
        """
        if self._known is None:
            raise FormulaError("The design has no offset.")
        columns = named_columns(table, self._known.declarations)
        rows: dict[str, Any] = {}
        missing = np.zeros(row_count(table), dtype=np.bool_)
        for name, declaration in self._known.declarations.items():
            rows[name], lost = declaration.coerce(columns[name], name)
            missing |= lost
        values: Float = np.where(missing, np.nan, self._known.evaluate(rows))
        return values

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

    def _matrix_source(self, layout: Layout, columns: Mapping[str, Any], matrix: Any) -> Source:
        if self._recipe.get("sparse") and hasattr(matrix, "tocsr"):
            return SparseSource(layout, columns, matrix)
        return Source(layout, columns, matrix.shape[0], matrix)

    def _check_types(self, columns: Mapping[str, Any]) -> None:
        """Covariates of a wrong type are mapped; a response that is no number is refused."""
        response = self._layout.endog_declarations
        for name in self._layout.columns:
            if name in columns and self.schema is not None:
                declaration = self.schema[name]
                strict = name in response and isinstance(declaration, Numeric)
                check_kind(columns[name], name, _NUMBERS if strict else declaration.accepts)


def _assemble(
    blocks: Sequence[Block],
    endog: Response | None,
    known: KnownTerm | None,
    schema: Schema | None,
    family: Family,
    recipe: Mapping[str, Any],
) -> Design:
    if known is not None and endog is not None and family == GAUSSIAN:
        endog = endog.minus(known)
    _check_representable(blocks)
    blocks, notes = independent(blocks, schema, recipe.get("formula", ""))
    names = tuple(name for block in blocks for name in block.names)
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise FormulaError(
            f"The design has two columns named {twice[0]!r}; rename a column or term."
        )
    if not names:
        raise FormulaError("No column is left: all were zero or combinations of others.")
    bounds = np.concatenate([block.bounds for block in blocks])
    response = None if endog is None else endog.endog
    centred, moves = not recipe.get("sparse", False), family == GAUSSIAN
    standardization = standardize(blocks, bounds, response, centred, moves)
    handed = None if family == GAUSSIAN else known
    layout = _layout(blocks, endog, handed, schema or {}, bounds, standardization)
    unit = () if schema is None or schema.unit is None else (schema.unit,)
    return Design(
        formula=recipe.get("formula"),
        schema=schema,
        endog=response,
        family=family,
        offset=None if known is None else known.offset,
        names=names,
        bounds=bounds,
        has_intercept=standardization.intercept is not None,
        internal_bounds=internal(bounds, standardization.x_center, standardization.x_scale),
        norm_bound=norm_bound_of(blocks, bounds, standardization),
        standardization=standardization,
        columns=() if schema is None else tuple(dict.fromkeys((*layout.columns, *unit))),
        notes=tuple(notes),
        _layout=layout,
        _known=known,
        _recipe=recipe,
    )


def _check_representable(blocks: Sequence[Block]) -> None:
    for block in blocks:
        lower, upper = block.bounds.T
        half = upper / 2 - lower / 2
        wrong = np.flatnonzero(~np.isfinite(half) | ((half == 0) & (lower < upper)))
        if wrong.size:
            j = int(wrong[0])
            raise FormulaError(
                f"Column {block.names[j]!r} has bounds ({lower[j]:g}, {upper[j]:g}), which cannot "
                "be represented; rescale the columns it is made of."
            )


def _layout(
    blocks: Sequence[Block],
    endog: Response | None,
    known: KnownTerm | None,
    schema: Mapping[str, Declaration],
    bounds: Float,
    standardization: Standardization,
) -> Layout:
    """How table columns fill the design, for `Source`."""
    places, lookups = [np.empty(0, dtype=np.intp)], list[Any]()
    computed, start = [], 0
    fill = bounds[:, 0] / 2 + bounds[:, 1] / 2
    declarations: dict[str, Declaration] = {}
    for block in blocks:
        positions = np.arange(start, start + len(block.names))
        if block.guesses is not None:
            fill[positions] = block.guesses[:, 0]
        if block.lookups:
            places.append(positions)
            lookups.extend(block.lookups)
        elif block.factors:
            computed.append((positions, block.evaluate))
            declarations |= {name: schema[name] for name in sorted(block.columns)}
        start += len(block.names)
    response, offset = endog and endog.endog, known and known.offset
    ends = [(e.lower, e.upper) if e is not None else (0.0, 0.0) for e in (response, offset)]
    middle = [response.center if response else 0.0, sum(ends[1]) / 2]
    return Layout(
        width=len(bounds),
        positions=np.concatenate(places),
        lookups=tuple(lookups),
        computed=tuple(computed),
        declarations=declarations,
        endog=endog and endog.evaluate,
        endog_declarations=endog.declarations if endog else {},
        offset=known and known.evaluate,
        offset_declarations=known.declarations if known else {},
        bounds=np.vstack([bounds, ends]),
        fill=np.append(fill, middle),
        center=np.append(standardization.x_center, [standardization.y_center, 0.0]),
        scale=np.append(standardization.x_scale, [standardization.y_scale, 1.0]),
        intercept=standardization.intercept,
    )


def _shortest(pairs: Float) -> list[Any]:
    """Bounds as JSON: one pair where all are equal."""
    same = len(pairs) > 0 and bool((pairs == pairs[0]).all())
    listed: list[Any] = (pairs[0] if same else pairs).tolist()
    return listed


def _not_default(**options: Any) -> dict[str, Any]:
    """What a recipe must say: options that differ from their defaults, as JSON."""
    if options["family"] == GAUSSIAN:
        del options["family"]
    else:
        options["family"] = {"spec": options["family"].name, "link": options["family"].link}
    return {name: value for name, value in options.items() if value is not None}


def _listed(pair: Any) -> list[float] | None:
    return None if pair is None else _pairs(pair, 1)[0].tolist()


def _check_zeros(blocks: Sequence[Block]) -> None:
    for block in blocks:
        lower, upper = block.bounds.T
        wrong = np.flatnonzero((lower > 0) | (upper < 0)) if block.factors else np.empty(0, int)
        if wrong.size:
            j = int(wrong[0])
            raise SchemaError(
                f"Column {block.names[j]!r} of a sparse matrix has bounds ({lower[j]:g}, "
                f"{upper[j]:g}), which do not contain 0, and what is not stored is 0. Widen them, "
                "give a column of ones the bounds (1, 1), or pass a dense array."
            )


def _array_offset(
    endog_name: str, offset_bounds: Any, exposure_bounds: Any, family: Family
) -> KnownTerm | None:
    """The known term that arrays named "offset" and "exposure" make."""
    given = {"offset": offset_bounds, "exposure": exposure_bounds}
    given = {name: pair for name, pair in given.items() if pair is not None}
    if not given:
        return None
    if endog_name in given:
        raise SchemaError(f"endog_name={endog_name!r} names the known term; choose another.")
    schema = Schema({name: Numeric(*_pairs(pair, 1, name)[0]) for name, pair in given.items()})
    names = {name: name if name in given else None for name in ("offset", "exposure")}
    return read_offset(**names, terms=Terms(schema), family=family)


def _pairs(bounds: Any, k: int, *names: str) -> Float:
    """Bounds as an array of shape (k, 2); errors call columns by their names, or numbers from 0."""
    try:
        pairs = np.asarray(bounds, dtype=np.float64)
    except (TypeError, ValueError):
        pairs = np.empty(0)
    if pairs.shape == (2,):
        pairs = np.tile(pairs, (k, 1))
    if pairs.shape != (k, 2):
        raise SchemaError(
            f"bounds={bounds!r}: one pair (lower, upper) for all columns is needed, or {k} pairs."
        )
    wrong = ~(np.isfinite(pairs).all(axis=1) & (pairs[:, 0] <= pairs[:, 1]))
    if wrong.any():
        lower, upper = pairs[wrong][0]
        j = int(np.flatnonzero(wrong)[0])
        raise SchemaError(
            f"bounds ({lower:g}, {upper:g}) of {repr(names[j]) if names else f'column {j}'}: two "
            "finite numbers are needed, the lower first."
        )
    return pairs


def _array_blocks(pairs: Float, names: Sequence[str] | None) -> list[Block]:
    ones = np.flatnonzero((pairs == 1).all(axis=1))
    intercept = int(ones[0]) if len(ones) else None
    if names is None:
        numbers = itertools.count(1)
        names = ["const" if j == intercept else f"x{next(numbers)}" for j in range(len(pairs))]
    if len(names) != len(pairs):
        raise SchemaError(f"{len(names)} names were given for {len(pairs)} columns.")
    shown = [str(name) for name in names]
    if intercept is None:
        return [plain_columns(shown, range(len(pairs)), pairs)]
    before, after = slice(0, intercept), slice(intercept + 1, len(pairs))
    blocks = [
        plain_columns(shown[part], range(len(pairs))[part], pairs[part]) for part in (before, after)
    ]
    blocks.insert(1, Block((), (shown[intercept],)))
    return [block for block in blocks if block.names]
