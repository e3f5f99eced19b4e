"""A formula bound to a schema: which columns a fit has, and how large they can get.

Everything in a `Design` is public. Formulaic parses the formula and decides names, contrasts and
rank reduction on rows made from the schema; the terms are then evaluated row by row
(`dpstats.expressions`), so nothing about the private rows can enter the shape of the design.
"""

from __future__ import annotations

import itertools
import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpstats.coercion import check_kind
from dpstats.errors import DataError, FormulaError, SchemaError
from dpstats.expressions import Expression, Terms, check_row_local
from dpstats.rows import Layout, RawBlock, Source, endog_of, matrix_of
from dpstats.schema import Boolean, Categorical, Declaration, Numeric, Schema
from dpstats.tables import named_columns

__all__ = ["Design", "Endog", "RawBlock", "Source", "Standardization"]

Float = NDArray[np.float64]
Rows = Mapping[str, Any]

_VERSION = 1
_COLLINEAR = 1e-9  # relative length below which a column counts as a combination of earlier ones
_CASES = 20_000  # combinations of levels that are enumerated for the norm bound
_TESTED_COLUMNS = 2_000  # beyond it, columns are not compared with each other
_TEST_ROWS = 12
_NUMBERS = ("number", "boolean")


@dataclass(frozen=True, slots=True)
class Endog:
    """The response: its name, public bounds, and public guesses of its centre and spread."""

    name: str
    lower: float
    upper: float
    center: float
    scale: float


@dataclass(frozen=True)
class Standardization:
    """Public change of units: ``x~ = (x - x_center) / x_scale``, the response likewise.

    Attributes
    ----------
    x_center, x_scale : ndarray of shape (d,)
        0 and 1 for the intercept.
    y_center, y_scale : float
        Of the response; 0 and 1 without one.
    intercept : int or None
        Position of the intercept.
    """

    x_center: Float
    x_scale: Float
    y_center: float
    y_scale: float
    intercept: int | None

    def transform(self) -> tuple[Float, Float]:
        """``(J, offset)``, with params in user units ``J @ internal + offset``.

        Returns
        -------
        J : ndarray of shape (d, d)
        offset : ndarray of shape (d,)
        """
        jacobian = np.diag(self.y_scale / self.x_scale)
        offset = np.zeros(len(self.x_scale))
        if self.intercept is not None:
            jacobian[self.intercept] -= self.y_scale * self.x_center / self.x_scale
            offset[self.intercept] = self.y_center
        return jacobian, offset

    def to_user(self, params: Float, cov: Float) -> tuple[Float, Float]:
        """Coefficients of shape (d,) and their covariance (d, d), in the user's units."""
        jacobian, offset = self.transform()
        return jacobian @ params + offset, jacobian @ cov @ jacobian.T


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
    names: tuple[str, ...]
    bounds: Float
    has_intercept: bool
    internal_bounds: Float
    norm_bound: float
    standardization: Standardization
    columns: tuple[str, ...]
    notes: tuple[str, ...]
    _layout: Layout = field(repr=False)
    _recipe: Mapping[str, Any] = field(repr=False)

    # -- making one ----------------------------------------------------------------------------

    @classmethod
    def from_formula(cls, formula: str, schema: Schema, response: bool = True) -> Design:
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

        Raises
        ------
        FormulaError
            If the formula cannot be parsed, or a term may not be used; says what to write instead.
        SchemaError
            If a template was not filled.
        """
        if not isinstance(schema, Schema):
            raise SchemaError(
                f"schema is a {type(schema).__name__}; declare the columns with dp.Schema(...)."
            )
        schema.check_filled()
        terms = Terms(schema)
        endog, blocks = _plain_formula(formula, terms) or _general_formula(formula, terms)
        _check_sides(formula, endog, blocks, response)
        recipe = {"formula": formula, "schema": schema.to_dict(), "response": response}
        return _assemble(blocks, endog, schema, recipe)

    @classmethod
    def from_arrays(
        cls,
        k: int,
        bounds: Any,
        endog_bounds: tuple[float, float] | None,
        names: Sequence[str] | None = None,
        endog_name: str = "y",
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

        Raises
        ------
        SchemaError
            If bounds are missing, infinite, reversed, or not one pair for each column.
        """
        pairs = _pairs(bounds, k)
        blocks = _array_blocks(pairs, names)
        endog = None
        if endog_bounds is not None:
            endog = _endog_of_column(endog_name, Numeric(*_pairs(endog_bounds, 1)[0]))
        recipe = {
            "k": k,
            "bounds": pairs.tolist(),
            "endog_bounds": None if endog_bounds is None else [float(b) for b in endog_bounds],
            "names": None if names is None else [str(name) for name in names],
            "endog_name": endog_name,
        }
        return _assemble(blocks, endog, None, recipe)

    def to_dict(self) -> dict[str, Any]:
        """The design as a JSON object: what it is made from, and its names."""
        return {"version": _VERSION, "names": list(self.names), **self._recipe}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Design:
        """Inverse of `to_dict`.

        Raises
        ------
        SchemaError
            If the version is not known, or the same formula now means other columns.
        """
        recipe = dict(data)
        version, names = recipe.pop("version", None), tuple(recipe.pop("names", ()))
        if version != _VERSION:
            raise SchemaError(f"Design version {version!r} is not known; this release reads 1.")
        if "formula" in recipe:
            made = cls.from_formula(
                recipe["formula"], Schema.from_dict(recipe["schema"]), recipe["response"]
            )
        else:
            made = cls.from_arrays(**recipe)
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

    # -- reading rows --------------------------------------------------------------------------

    def source(self, table: Any) -> Source:
        """Private rows of a table, to be read block by block.

        Parameters
        ----------
        table : pandas or polars DataFrame, pyarrow.Table, mapping of names to 1-d values
            For a design from arrays the pair ``(endog, exog)`` instead. Rows are matched by
            position; an index is ignored.

        Raises
        ------
        DataError
            On names, types and shapes, never on values: a response that is no number by type, an
            object column that mixes types, a duplicated name, an empty table.
        """
        if self.schema is None:
            endog, exog = table if isinstance(table, tuple) else (None, table)
            return self._array_source(exog, endog)
        columns = named_columns(table, self.columns)
        self._check_types(columns)
        unit = columns[self.schema.unit] if self.schema.unit is not None else None
        rows = len(next(iter(columns.values()))) if columns else len(table)
        return self._checked(Source(self._layout, columns, rows, unit=unit))

    def exog(self, table: Any) -> Float:
        """Rows of the design in the user's units, of shape (m, d); the response is not needed.

        Values are mapped into the declared domain as for a fit. A row in which a column is missing
        is NaN.
        """
        layout = replace(self._layout, endog=None, endog_declarations={})
        if self.schema is None:
            source = Source(layout, {}, *_shape(matrix_of(table, self._recipe["k"])))
        else:
            columns = named_columns(table, layout.columns)
            self._check_types(columns)
            rows = len(next(iter(columns.values()))) if columns else len(table)
            source = Source(layout, columns, rows)
        block = source.raw(0, len(source))
        block.x[~block.keep] = np.nan
        return block.x

    def _array_source(self, exog: Any, endog: Any) -> Source:
        rows, matrix = _shape(matrix_of(exog, self._recipe["k"]))
        columns: dict[str, Any] = {}
        if self.endog is not None:
            columns[self.endog.name] = endog_of(endog)
            if len(columns[self.endog.name]) != rows:
                raise DataError(f"endog has another number of rows than exog, which has {rows}.")
        return self._checked(Source(self._layout, columns, rows, matrix))

    def _check_types(self, columns: Mapping[str, Any]) -> None:
        schema = self.schema
        for name, column in columns.items():
            if schema is None or name not in schema:
                continue
            response = self.endog is not None and name == self.endog.name
            strict = response and isinstance(schema[name], Numeric)
            check_kind(column, name, _NUMBERS if strict else schema[name].accepts)

    @staticmethod
    def _checked(source: Source) -> Source:
        if len(source) == 0:
            raise DataError("The table has no rows.")
        return source


# ---------------------------------------------------------------------------------------------
# Terms as blocks of columns


@dataclass(frozen=True)
class _Factor:
    """One factor of a term: an expression, or the coding of a categorical column.

    Attributes
    ----------
    expression : Expression
        Its values per row.
    coding : ndarray of shape (levels, k), optional
        Values for each level.
    dummy : bool
        Whether it is categorical or boolean.
    lookup : hashable, optional
        The numeric table column that it is as it stands.
    """

    expression: Expression
    coding: Float | None = None
    dummy: bool = False
    lookup: Any = None

    def evaluate(self, rows: Rows) -> Float:
        """Values of shape (m, k)."""
        values = self.expression.evaluate(rows)
        return values[:, None] if values.ndim == 1 else values

    @property
    def cases(self) -> Sequence[Float]:
        """Bounds of shape (k, 2) for each level, or for the whole range."""
        if self.coding is None:
            return [self.expression.bounds]
        return [np.stack([row, row], axis=1) for row in self.coding]


@dataclass(frozen=True)
class _Block:
    """Columns of a term: row-wise products of the columns of its factors, the first one fastest.

    Without factors it is the intercept.
    """

    factors: tuple[_Factor, ...]
    names: tuple[str, ...]
    multiplier: float = 1.0
    kept: tuple[int, ...] | None = None  # products that remain, where some were dropped

    @property
    def lookup(self) -> Any:
        """The numeric table column that the block is as it stands."""
        return self.factors[0].lookup if len(self.factors) == 1 and self.multiplier == 1 else None

    @property
    def guess(self) -> tuple[float, float] | None:
        """Public centre and scale, where the block is one numeric column with declared ones."""
        single = len(self.factors) == 1 and self.multiplier == 1
        return self.factors[0].expression.guess if single else None

    @property
    def dummy(self) -> bool:
        """Whether a factor is categorical or boolean."""
        return any(factor.dummy for factor in self.factors)

    @property
    def columns(self) -> frozenset[str]:
        """Table columns it reads."""
        return frozenset().union(*(factor.expression.columns for factor in self.factors))

    def evaluate(self, rows: Rows) -> Float:
        """Values of shape (m, k)."""
        values = reduce(_times, (f.evaluate(rows) for f in self.factors))
        values = values if self.kept is None else values[:, self.kept]
        return values if self.multiplier == 1 else values * self.multiplier

    @property
    def cases(self) -> Iterator[Float]:
        """Bounds of shape (k, 2) for each combination of levels."""
        start = np.full((1, 2), self.multiplier)
        for case in itertools.product(*(factor.cases for factor in self.factors)):
            yield self._kept_rows(reduce(_interval_times, case, start))

    @property
    def bounds(self) -> Float:
        """Bounds of shape (k, 2)."""
        whole = (_hull(factor.cases) for factor in self.factors)
        return self._kept_rows(reduce(_interval_times, whole, np.full((1, 2), self.multiplier)))

    def _kept_rows(self, bounds: Float) -> Float:
        return bounds if self.kept is None else bounds[list(self.kept)]

    def keep(self, chosen: Sequence[int]) -> _Block:
        """The block with only some of its columns."""
        before = range(len(self.names)) if self.kept is None else self.kept
        return replace(
            self,
            names=tuple(self.names[i] for i in chosen),
            kept=tuple(before[i] for i in chosen),
        )


def _times(a: Float, b: Float) -> Float:
    return (b[:, :, None] * a[:, None, :]).reshape(len(a), -1)


def _interval_times(a: Float, b: Float) -> Float:
    ends = (b[:, None, :, None] * a[None, :, None, :]).reshape(len(a) * len(b), 4)
    return np.stack([ends.min(axis=1), ends.max(axis=1)], axis=1)


def _hull(cases: Iterable[Float]) -> Float:
    stack = np.stack(list(cases))
    return np.stack([stack[:, :, 0].min(axis=0), stack[:, :, 1].max(axis=0)], axis=1)


def _numeric_factor(text: str, terms: Terms, lookup: bool) -> _Factor:
    if lookup:
        is_number = isinstance(terms.schema[text], Numeric)
        return _Factor(terms.column(text), dummy=not is_number, lookup=text if is_number else None)
    expression = terms.expression(text)
    check_row_local(expression, _public_rows(expression.columns, terms.schema, _TEST_ROWS), text)
    return _Factor(expression)


def _coded_factor(name: str, coding: Float) -> _Factor:
    bounds = np.stack([coding.min(axis=0), coding.max(axis=0)], axis=1)
    expression = Expression(frozenset([name]), bounds, lambda rows: coding[rows[name]], wide=True)
    return _Factor(expression, coding=coding, dummy=True)


def _intercept() -> _Block:
    return _Block((), ("Intercept",))


def _public_rows(columns: Iterable[str], schema: Schema, m: int, seed: int = 0) -> dict[str, Any]:
    """Rows inside the declared domain, made up: both ends of each range, and points within."""
    rng = np.random.default_rng(seed)
    rows: dict[str, Any] = {}
    for name in sorted(columns):
        declaration = schema[name]
        if isinstance(declaration, Numeric):
            lower, upper = declaration.lower, declaration.upper
            rows[name] = lower + (upper - lower) * rng.uniform(size=m)
            rows[name][:2] = (lower, upper)
        else:
            rows[name] = rng.integers(len(declaration.levels), size=m)
    return rows


# ---------------------------------------------------------------------------------------------
# From formula text to the response and blocks

_Response = tuple[Endog, Callable[[Rows], Float], Mapping[str, Declaration]]


def _check_sides(formula: str, endog: Any, blocks: Sequence[_Block], response: bool) -> None:
    if response and endog is None:
        raise FormulaError(f"Formula {formula!r} has no response; write 'y ~ x'.")
    if not response and endog is not None:
        raise FormulaError(f"Formula {formula!r} has a response; this model takes '~ x'.")
    if not blocks:
        raise FormulaError(f"Formula {formula!r} has no columns; write 'y ~ 1' for the mean alone.")
    read = set(endog[2]) if endog else set()
    both = sorted(read.intersection(*[frozenset().union(*(block.columns for block in blocks))]))
    if both:
        raise FormulaError(
            f"Column {both[0]!r} is on both sides of {formula!r}; keep it on the left side only."
        )


def _plain_formula(formula: str, terms: Terms) -> tuple[_Response | None, list[_Block]] | None:
    """Read ``y ~ a + b + .`` directly: quick for thousands of columns. None for other formulas."""
    if not isinstance(formula, str):
        raise FormulaError(f"The formula is a {type(formula).__name__}; text such as 'y ~ x' is needed.")
    left, tilde, right = formula.partition("~")
    left = left.strip()
    if not tilde or "~" in right or not re.fullmatch(r"[\w.\s+\-]*", right):
        return None
    if left and left not in terms.columns:
        return None
    right, removed = re.subn(r"-\s*1(?!\w)", "", right)
    tokens = [token.strip() for token in right.split("+")]
    tokens = [token for token in tokens if token] if removed else tokens
    names = set(terms.columns)
    if not all(token in names or token in (".", "0", "1") for token in tokens):
        return None
    if (removed or "0" in tokens) and "1" in tokens:
        return None
    listed: dict[str, None] = {}
    for token in tokens:
        listed.update(dict.fromkeys(n for n in terms.columns if n != left) if token == "." else
                      {token: None} if token in names else {})
    intercept = not removed and "0" not in tokens
    endog = _endog(left, terms, lookup=True) if left else None
    return endog, list(_main_effects(listed, terms, intercept))


def _main_effects(names: Iterable[str], terms: Terms, intercept: bool) -> Iterator[_Block]:
    """Blocks of a sum of columns: treatment contrasts where an intercept or factor came before."""
    if intercept:
        yield _intercept()
    spanned = intercept
    for name in names:
        declaration = terms.schema[name]
        if not isinstance(declaration, Categorical):
            yield _Block((_numeric_factor(name, terms, lookup=True),), (name,))
            continue
        coding = np.eye(len(declaration.levels))[:, 1 if spanned else 0 :]
        levels = declaration.levels[1 if spanned else 0 :]
        shown = "{}[T.{}]" if spanned else "{}[{}]"
        columns = tuple(shown.format(name, level) for level in levels)
        yield _Block((_coded_factor(name, coding),), columns)
        spanned = True


def _endog(text: str, terms: Terms, lookup: bool) -> _Response:
    declaration = terms.schema[text] if lookup and text in terms.schema else None
    if declaration is not None:
        return _endog_of_column(text, declaration)
    expression = terms.column(text) if lookup else terms.expression(text)
    if expression.wide:
        raise FormulaError(f"The response {text!r} has several columns; one number per row is needed.")
    lower, upper = expression.interval
    endog = Endog(text, lower, upper, expression.center, expression.scale)
    return endog, expression.evaluate, {n: terms.schema[n] for n in sorted(expression.columns)}


def _endog_of_column(name: str, declaration: Declaration) -> _Response:
    if isinstance(declaration, Numeric):
        endog = Endog(name, declaration.lower, declaration.upper, declaration.center_guess,
                      declaration.scale_guess)
        return endog, lambda rows: rows[name], {name: declaration}
    values = declaration.values if isinstance(declaration, Categorical) else np.array([0.0, 1.0])
    if values is None:
        raise FormulaError(
            f"The response {name!r} is categorical with text levels; declare it Numeric(lower, upper), "
            "Boolean(), or Categorical([0, 1])."
        )
    lower, upper = float(values.min()), float(values.max())
    endog = Endog(name, lower, upper, (lower + upper) / 2, (upper - lower) / 2)
    return endog, lambda rows: values[rows[name]], {name: declaration}


def _general_formula(formula: str, terms: Terms) -> tuple[_Response | None, list[_Block]]:
    """Let formulaic parse the formula, and decide structure and names on public rows."""
    left, right = _parsed(formula, terms)
    endog = None
    if left is not None:
        sides = [factor for term in left for factor in term.factors]
        if len(sides) != 1:
            raise FormulaError(
                f"The left side of {formula!r} has {len(sides)} terms; one numeric response is "
                "needed. For arithmetic of columns write I(a + b)."
            )
        endog = _endog(sides[0].expr, terms, sides[0].eval_method.value == "lookup")
    lookups = {f.expr: f.eval_method.value == "lookup" for t in right for f in t.factors
               if f.eval_method.value != "literal"}
    factors = {text: _checked_factor(text, terms, lookup) for text, lookup in lookups.items()}
    return endog, _structured(formula, right, factors, terms)


def _parsed(formula: str, terms: Terms) -> tuple[Any, Any]:
    """Terms of the left side, None if there is none, and of the right side."""
    from formulaic import Formula

    left_text = formula.partition("~")[0] if "~" in formula else ""
    words = set(re.findall(r"\w+", left_text)) | {left_text.strip().strip("`")}
    available = [name for name in terms.columns if name not in words]
    try:
        parsed = Formula.from_spec(formula, context={"__formulaic_variables_available__": available})
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FormulaError(f"Formula {formula!r} cannot be parsed: {reason}") from None
    left, right = getattr(parsed, "lhs", None), getattr(parsed, "rhs", parsed)
    if any(not hasattr(term, "factors") for side in (left or (), right) for term in side):
        raise FormulaError(f"Formula {formula!r} has several parts; one left and one right side "
                           "are needed.")
    return left, right


def _checked_factor(text: str, terms: Terms, lookup: bool) -> str | _Factor:
    """The name of the categorical column that a factor codes, or a numeric factor."""
    if lookup:
        if text not in terms.schema:
            terms.column(text)
        return text if isinstance(terms.schema[text], Categorical) else _numeric_factor(text, terms, True)
    return terms.categorical(text) or _numeric_factor(text, terms, lookup=False)


def _structured(
    formula: str, right: Any, factors: Mapping[str, str | _Factor], terms: Terms
) -> list[_Block]:
    """Blocks in formulaic's order, with its names and contrasts."""
    spec = _model_spec(formula, right, factors, terms)
    blocks = []
    for encoded in spec.structure:
        names = iter(encoded.columns)
        for scoped in encoded.scoped_terms:
            parts = tuple(
                _scoped_factor(s.factor.expr, s.reduced, factors, spec) for s in scoped.factors
            )
            width = math.prod(len(part.expression.bounds) for part in parts)
            block = _Block(parts, tuple(itertools.islice(names, width)), float(scoped.scale))
            if len(block.names) != width:
                raise FormulaError(f"Two columns of {encoded.term} in {formula!r} have one name.")
            if width:
                blocks.append(block)
    return blocks


def _model_spec(
    formula: str, right: Any, factors: Mapping[str, str | _Factor], terms: Terms
) -> Any:
    """Formulaic's specification, made on public rows only."""
    from formulaic.materializers import PandasMaterializer

    columns: set[str] = set()
    for found in factors.values():
        columns |= {found} if isinstance(found, str) else found.expression.columns
    frame = _public_frame(columns, terms.schema)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            made = PandasMaterializer(frame, context={}).get_model_matrix(
                right, output="numpy", na_action="ignore"
            )
    except Exception as error:
        raise FormulaError(f"Formula {formula!r} cannot be used: {error}") from None
    return made.model_spec


def _public_frame(columns: Iterable[str], schema: Schema) -> pd.DataFrame:
    """A data frame of made-up rows in the declared domain, with all levels declared."""
    made: dict[str, Any] = {"": np.zeros(_PUBLIC_FRAME_ROWS)}
    for name in sorted(columns):
        declaration = schema[name]
        if isinstance(declaration, Numeric):
            made[name] = np.linspace(declaration.lower, declaration.upper, _PUBLIC_FRAME_ROWS)
        elif isinstance(declaration, Boolean):
            made[name] = np.arange(_PUBLIC_FRAME_ROWS) % 2 == 1
        else:
            levels = list(declaration.levels)
            codes = np.arange(_PUBLIC_FRAME_ROWS) % len(levels)
            made[name] = pd.Categorical.from_codes(codes, pd.Index(levels, dtype=object))
    return pd.DataFrame(made)


_PUBLIC_FRAME_ROWS = 64


def _scoped_factor(
    text: str, reduced: bool, factors: Mapping[str, str | _Factor], spec: Any
) -> _Factor:
    found = factors[text]
    if isinstance(found, str):
        state = spec.encoder_state[text][1]["contrasts"]
        coding = state.contrasts.get_coding_matrix(state.levels, reduced_rank=reduced)
        return _coded_factor(found, np.asarray(coding, dtype=np.float64))
    if reduced and found.expression.spans_intercept:
        return _without_first(found)
    return found


def _without_first(factor: _Factor) -> _Factor:
    whole = factor.expression
    rest = Expression(whole.columns, whole.bounds[1:], lambda rows: whole.evaluate(rows)[:, 1:], wide=True)
    return _Factor(rest)


# ---------------------------------------------------------------------------------------------
# Arrays


def _pairs(bounds: Any, k: int) -> Float:
    """Bounds as an array of shape (k, 2)."""
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
        raise SchemaError(
            f"bounds ({lower:g}, {upper:g}) of column {int(np.flatnonzero(wrong)[0])}: two finite "
            "numbers are needed, the lower first."
        )
    return pairs


def _array_blocks(pairs: Float, names: Sequence[str] | None) -> list[_Block]:
    ones = np.flatnonzero((pairs == 1).all(axis=1))
    intercept = int(ones[0]) if len(ones) else None
    if names is None:
        numbers = itertools.count(1)
        names = ["const" if j == intercept else f"x{next(numbers)}" for j in range(len(pairs))]
    if len(names) != len(pairs):
        raise SchemaError(f"{len(names)} names were given for {len(pairs)} columns.")
    blocks = []
    for j, name in enumerate(names):
        expression = Expression(frozenset(), pairs[j : j + 1], _not_computed)
        factors = () if j == intercept else (_Factor(expression, lookup=j),)
        blocks.append(_Block(factors, (str(name),)))
    return blocks


def _not_computed(rows: Rows) -> Float:
    raise NotImplementedError("columns of a matrix are read as they stand")


def _shape(matrix: Any) -> tuple[int, Any]:
    return matrix.shape[0], matrix


# ---------------------------------------------------------------------------------------------
# Constant and collinear columns, from public facts only


def _independent(
    blocks: Sequence[_Block], schema: Schema | None, formula: str
) -> tuple[list[_Block], list[str]]:
    """Blocks without columns that are constant, or combinations of earlier ones, for every row."""
    notes: dict[str, str] = _constants(blocks)
    if schema is not None:
        notes |= _combinations(_dropping(blocks, notes), schema, formula)
    return _dropping(blocks, notes), [f"dropped {name}: {why}" for name, why in notes.items()]


def _dropping(blocks: Sequence[_Block], names: Mapping[str, str]) -> list[_Block]:
    if not names:
        return list(blocks)
    kept = ((b, [i for i, name in enumerate(b.names) if name not in names]) for b in blocks)
    return [b if len(k) == len(b.names) else b.keep(k) for b, k in kept if k]


def _constants(blocks: Sequence[_Block]) -> dict[str, str]:
    """Columns whose bounds are equal: zero ones, and all but the first constant one."""
    notes: dict[str, str] = {}
    spanned = any(not block.factors for block in blocks)
    for block in blocks:
        for name, (lower, upper) in zip(block.names, block.bounds, strict=True):
            if not block.factors or lower < upper:
                continue
            if lower == 0 or spanned:
                notes[name] = f"equal to {lower:g} for every row the schema allows"
            spanned = spanned or lower != 0
    return notes


def _combinations(blocks: Sequence[_Block], schema: Schema, formula: str) -> dict[str, str]:
    """Columns that are linear combinations of earlier ones on made-up rows of the whole domain."""
    tested = _entangled(blocks)
    names = [name for block in tested for name in block.names]
    if not tested or len(names) > _TESTED_COLUMNS:
        return {}
    rows = _varied_rows(tested, schema, formula)
    m = len(next(iter(rows.values())))
    with np.errstate(all="ignore"):
        parts = [np.ones((m, 1)) if not b.factors else b.evaluate(rows) for b in tested]
    matrix = np.nan_to_num(np.concatenate(parts, axis=1))
    if any(not block.factors for block in tested):
        bounds = np.concatenate([block.bounds for block in tested])
        fixed = np.array([not block.factors for block in tested for _ in block.names])
        matrix -= np.where(fixed, 0.0, bounds.mean(axis=1))
    return _dependent(matrix, names)


def _entangled(blocks: Sequence[_Block]) -> list[_Block]:
    """Blocks that may depend on each other: they share table columns, or may span a constant."""
    simple = [len(b.factors) <= 1 and (b.lookup is not None or b.dummy or not b.factors) for b in blocks]
    times = Counter(name for block in blocks for name in block.columns)
    shared = {name for name, count in times.items() if count > 1}
    for block, is_simple in zip(blocks, simple, strict=True):
        shared |= frozenset() if is_simple else block.columns
    if not shared:
        return []
    return [b for b in blocks if b.columns & shared or not b.factors or b.dummy]


def _dependent(matrix: Float, names: Sequence[str]) -> dict[str, str]:
    """Gram-Schmidt from left to right; a column without a new direction is a combination."""
    basis = np.empty((len(matrix), 0))
    kept: list[int] = []
    notes: dict[str, str] = {}
    for j, name in enumerate(names):
        length = np.linalg.norm(matrix[:, j])
        rest = matrix[:, j] / (length or 1.0)
        for _ in range(2):  # a second pass removes what rounding left in the first
            rest = rest - basis @ (basis.T @ rest)
        if length == 0 or np.linalg.norm(rest) > _COLLINEAR:
            basis = np.column_stack([basis, rest / (np.linalg.norm(rest) or 1.0)])
            kept.append(j)
            continue
        share = np.linalg.lstsq(matrix[:, kept], matrix[:, j], rcond=None)[0]
        with_names = [names[i] for i, c in zip(kept, share, strict=True) if abs(c) > 1e-6]
        others = ", ".join(with_names) if len(with_names) <= 3 else "columns before it"
        notes[name] = f"collinear with {others} for every row the schema allows"
    return notes


def _varied_rows(blocks: Sequence[_Block], schema: Schema, formula: str) -> dict[str, Any]:
    """Made-up rows that reach every combination of levels, both ends, and numbers of the formula."""
    width = sum(len(block.names) for block in blocks)
    cases = [(b, [f for f in b.factors if f.coding is not None]) for b in blocks]
    each = max((len(b.names) for b, coded in cases if not coded), default=1) + 3
    plans = []
    for block, coded in cases:
        levels = [len(f.coding) for f in coded if f.coding is not None]
        if coded and math.prod(levels) <= _CASES:
            repeats = len(block.names) // max(math.prod(levels), 1) + each
            plans.append((coded, np.array(list(itertools.product(*map(range, levels))) * repeats)))
    m = 4 * width + 100 + sum(len(plan) for _, plan in plans)
    columns = frozenset().union(*(block.columns for block in blocks))
    rows = _public_rows(columns, schema, m)
    start = 0
    for coded, plan in plans:
        for factor, codes in zip(coded, plan.T, strict=True):
            (name,) = factor.expression.columns
            rows[name][start : start + len(plan)] = codes
        start += len(plan)
    return _near_edges(rows, schema, formula)


def _near_edges(rows: dict[str, Any], schema: Schema, formula: str) -> dict[str, Any]:
    """Move half of the numbers close to an end of their range or to a number in the formula."""
    rng = np.random.default_rng(1)
    written = [float(text) for text in re.findall(r"\d+\.?\d*(?:[eE][-+]?\d+)?", formula)]
    for name, values in rows.items():
        declaration = schema[name]
        if isinstance(declaration, Numeric):
            lower, upper = declaration.lower, declaration.upper
            marks = [lower, upper, *(v for w in written for v in (w, -w) if lower < v < upper)]
            near = rng.choice(marks, size=len(values))
            near += (upper - lower) * rng.choice([-1, 1], len(values)) * 10 ** rng.uniform(-6, -0.5, len(values))
            chosen = rng.uniform(size=len(values)) < 0.5
            rows[name] = np.clip(np.where(chosen, near, values), lower, upper)
    return rows


# ---------------------------------------------------------------------------------------------
# Public facts of the assembled design


def _assemble(
    blocks: Sequence[_Block], endog: _Response | None, schema: Schema | None, recipe: Mapping[str, Any]
) -> Design:
    blocks, notes = _independent(blocks, schema, recipe.get("formula", ""))
    names = tuple(name for block in blocks for name in block.names)
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise FormulaError(f"The design has two columns named {twice[0]!r}; rename a column or term.")
    if not names:
        raise FormulaError("No column is left: all were zero or combinations of others.")
    bounds = np.concatenate([block.bounds for block in blocks])
    standardization = _standardization(blocks, bounds, endog)
    layout = _layout(blocks, endog, schema or {}, bounds, standardization)
    unit = () if schema is None or schema.unit is None else (schema.unit,)
    return Design(
        formula=recipe.get("formula"),
        schema=schema,
        endog=None if endog is None else endog[0],
        names=names,
        bounds=bounds,
        has_intercept=standardization.intercept is not None,
        internal_bounds=_internal(bounds, standardization.x_center, standardization.x_scale),
        norm_bound=_norm_bound(blocks, standardization),
        standardization=standardization,
        columns=() if schema is None else tuple(dict.fromkeys((*layout.columns, *unit))),
        notes=tuple(notes),
        _layout=layout,
        _recipe=recipe,
    )


def _internal(bounds: Float, center: Float, scale: Float) -> Float:
    return (bounds - center[:, None]) / scale[:, None]


def _standardization(
    blocks: Sequence[_Block], bounds: Float, endog: _Response | None
) -> Standardization:
    """Centres and scales by declaration, else midpoint and half-width; nothing is centred without
    an intercept, and dummies are left as they are."""
    starts = np.cumsum([0, *(len(block.names) for block in blocks)])
    found = [int(starts[i]) for i, block in enumerate(blocks) if not block.factors]
    center = np.zeros(len(bounds))
    scale = np.abs(bounds).max(axis=1)
    if found:
        for start, stop, block in zip(starts[:-1], starts[1:], blocks, strict=True):
            if block.factors and not block.dummy:
                center[start:stop] = bounds[start:stop].mean(axis=1)
                scale[start:stop] = np.diff(bounds[start:stop], axis=1)[:, 0] / 2
                guess = block.guess
                if guess is not None:
                    center[start], scale[start] = guess
    y_center, y_scale = 0.0, 1.0
    if endog is not None:
        response = endog[0]
        y_center = response.center if found else 0.0
        y_scale = response.scale if found else max(abs(response.lower), abs(response.upper))
    return Standardization(center, scale, y_center, y_scale, found[0] if found else None)


def _norm_bound(blocks: Sequence[_Block], standardization: Standardization) -> float:
    """Largest norm of an internal row: over combinations of levels within each term."""
    total, start = 0.0, 0
    for block in blocks:
        stop = start + len(block.names)
        center, scale = standardization.x_center[start:stop], standardization.x_scale[start:stop]
        count = math.prod(1 if f.coding is None else len(f.coding) for f in block.factors)
        cases = block.cases if count <= _CASES else [block.bounds]
        total += max(
            float(np.square(np.abs(_internal(case, center, scale)).max(axis=1)).sum())
            for case in cases
        )
        start = stop
    return math.sqrt(total)


def _layout(
    blocks: Sequence[_Block],
    endog: _Response | None,
    schema: Mapping[str, Declaration],
    bounds: Float,
    standardization: Standardization,
) -> Layout:
    """How table columns fill the design, for `Source`."""
    direct, computed, start = [], [], 0
    fill = bounds.mean(axis=1)
    declarations: dict[str, Declaration] = {}
    for block in blocks:
        positions = np.arange(start, start + len(block.names))
        if block.guess is not None:
            fill[start] = block.guess[0]
        if block.lookup is not None:
            direct.append((start, block.lookup))
        elif block.factors:
            computed.append((positions, block.evaluate))
            declarations |= {name: schema[name] for name in sorted(block.columns)}
        start += len(block.names)
    response = endog[0] if endog else None
    ends = (response.lower, response.upper) if response else (0.0, 0.0)
    return Layout(
        width=len(bounds),
        direct=tuple(direct),
        computed=tuple(computed),
        declarations=declarations,
        endog=endog[1] if endog else None,
        endog_declarations=endog[2] if endog else {},
        bounds=np.vstack([bounds, [ends]]),
        fill=np.append(fill, response.center if response else 0.0),
        center=np.append(standardization.x_center, standardization.y_center),
        scale=np.append(standardization.x_scale, standardization.y_scale),
        intercept=standardization.intercept,
    )
