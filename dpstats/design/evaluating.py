"""What formulaic does with the right side of a formula: terms, columns of rows, learned state.

Nothing here may see a private value.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpstats.design.contrasts import contrast_classes
from dpstats.design.expansion import check_term
from dpstats.design.formulas import parsed_right
from dpstats.design.written import Written, reason
from dpstats.errors import DataError, FormulaError
from dpstats.tables import named_columns, row_count
from dpstats.tables.coercion import kind_of, to_float

__all__ = [
    "RightSide",
    "applied",
    "column_names_of",
    "decoded",
    "encoded",
    "frame_of",
    "is_formulaics",
    "kept_variables",
    "materialized",
]

Float = NDArray[np.float64]

_NO_VALUES = "cSV"  # kinds of numpy's types: complex numbers, bytes, and what is no value of a row
_FEW_LEVELS = 50  # levels that a factor may have in any number of rows
_LARGEST = 1_000  # entries of a captured variable that is kept


@dataclass(frozen=True)
class RightSide:
    """The right side of a formula over public columns.

    Attributes
    ----------
    written : Written
        Its text.
    terms : formulaic.Formula
        What it means.
    """

    written: Written
    terms: Any

    @classmethod
    def of(cls, text: str, columns: list[str]) -> RightSide:
        """Terms over columns of these names.

        Raises
        ------
        FormulaError
            If it cannot be parsed, or is larger than a formula may be.
        """
        written = Written.of(text, columns)
        return cls(written, parsed_right(written, written.text, columns))

    @property
    def reads(self) -> set[str]:
        """Names that terms may read: columns, variables and functions."""
        return {name for factor in self._factors for name in _names_in(self.written, factor)}

    def check(self, variables: Mapping[str, Any]) -> None:
        """Refuse splines and polynomials that variables make larger than a formula may be."""
        for factor in self._factors:
            if factor.eval_method.value == "python":
                check_term(self.written, factor.expr, variables)

    def check_levels(self, frame: pd.DataFrame) -> None:
        """Refuse a factor with a level for most rows, of which each would be a column.

        Raises
        ------
        FormulaError
            Naming the column; its rows are public.
        """
        for factor in dict.fromkeys(self._factors):
            coded = factor.expr.startswith("C(")
            looked_up, read = factor.eval_method.value == "lookup", _names_in(self.written, factor)
            for name in read.intersection(frame.columns) if coded or looked_up else ():
                column = frame[name]
                text_like = column.dtype == object or isinstance(column.dtype, pd.StringDtype)
                levels = column.nunique() if coded or text_like else 0
                if levels > max(_FEW_LEVELS, len(column) / 2):
                    raise FormulaError(
                        f"{self.written.visible(factor.expr)!r} in {self.written.shown!r} is a "
                        f"factor with {levels:,} levels in {len(column):,} rows. If {name!r} holds "
                        "numbers that are stored as text, convert it first; if it names single "
                        "rows, leave it out."
                    )

    @property
    def _factors(self) -> list[Any]:
        return [factor for term in self.terms for factor in term.factors]

    def frame(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Columns as terms read them."""
        return self.written.frame(frame, [factor.expr for factor in self._factors])

    def context(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """Variables, and what stands for texts of the formula."""
        return {**contrast_classes(), **known, **self.written.texts}

    def learned(self, spec: Any) -> dict[str, Any]:
        """What a specification learned, as JSON; raises TypeError where it cannot be written."""
        encoders = {
            self.key(text): (kind.value, learned.get("categories"))
            for text, (kind, learned) in spec.encoder_state.items()
        }
        transforms = {self.written.visible(k): v for k, v in spec.transform_state.items()}
        return {"transforms": encoded(transforms), "encoders": encoded(encoders)}

    def key(self, text: str) -> str:
        """A factor as no other is written: that ``1`` is a column, say."""
        quoted = self.written.is_quoted(text)
        return f"`{self.written.column(text)}`" if quoted else self.written.visible(text)

    def spec(self, state: Mapping[str, Any]) -> Any:
        """A specification with learned state; formulaic makes the same columns from it."""
        from formulaic import ModelSpec
        from formulaic.parser.types import Factor

        exprs = {factor.expr for factor in self._factors}
        own = {self.written.visible(text): text for text in exprs}
        own |= {self.key(text): text for text in exprs}
        encoders = {}
        for text, (kind, levels) in decoded(state["encoders"]).items():
            learned = {} if levels is None else {"categories": levels}
            encoders[own.get(text, text)] = (Factor.Kind(kind), learned)
        transforms = decoded(state["transforms"])
        return ModelSpec.from_spec(
            self.terms,
            transform_state={self.written.hidden(text): v for text, v in transforms.items()},
            encoder_state=encoders,
            na_action="ignore",
            output="numpy",
        )

    def names(self, spec: Any) -> tuple[str, ...]:
        """Names of the columns that a specification makes."""
        return tuple(self.written.visible(str(name)) for name in spec.column_names)


def _names_in(written: Written, factor: Any) -> set[str]:
    """Names that a factor may read: columns, variables and functions."""
    found = set[str]()
    if factor.eval_method.value == "lookup":
        found.add(factor.expr)
    elif factor.eval_method.value == "python":
        try:
            nodes = list(ast.walk(written.tree(factor.expr)))
        except SyntaxError:
            return found
        found |= {n.id for n in nodes if isinstance(n, ast.Name)}
        texts = (n.value for n in nodes if isinstance(n, ast.Constant))
        found |= {text for text in texts if isinstance(text, str)}
    return {written.column(name) for name in found}


def frame_of(table: Any, names: tuple[str, ...]) -> pd.DataFrame:
    """Columns of a public table as formulaic knows them."""
    if not names:
        return pd.DataFrame(index=pd.RangeIndex(row_count(table)))
    columns = named_columns(table, names)
    return pd.DataFrame({name: _column(name, column[:]) for name, column in columns.items()})


def _column(name: str, values: Any) -> Any:
    """A public column as formulaic knows it; categories as they are.

    Extension numbers become floats, on which every transform works, and extension texts objects.
    Lists and objects come without a type; as these covariates are public, it is learned from the
    values: if all of them are numbers of any kind, or true or false, they are numbers.
    """
    if isinstance(values.dtype, np.dtype):
        if values.dtype.kind in _NO_VALUES:
            raise DataError(
                f"Column {name!r} has type {kind_of(values)}; a formula reads numbers, text, true "
                "or false, and dates. Convert it first."
            )
        if values.dtype.kind == "f":
            return values if values.dtype.itemsize in (4, 8) else values.astype(np.float64)
        if values.dtype.kind != "O":
            return values
        series = pd.Series(list(values))
        numeric = series.dtype == object and all(map(_is_number, series[~series.isna()]))
        return to_float(values) if numeric else series
    if pd.api.types.is_numeric_dtype(values):
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    if isinstance(values.dtype, pd.StringDtype):
        return values.to_numpy(dtype=object, na_value=np.nan)
    return values


def _is_number(value: Any) -> bool:
    return isinstance(value, (Real, Decimal, np.bool_))


def materialized(
    side: RightSide, frame: pd.DataFrame, known: Mapping[str, Any]
) -> tuple[Any, NDArray[np.intp]]:
    """Formulaic's matrix, and which rows it kept."""
    from formulaic.materializers import PandasMaterializer

    dropped: set[int] = set()
    seen = side.frame(frame)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            made = PandasMaterializer(seen, context=side.context(known)).get_model_matrix(
                side.terms, drop_rows=dropped, output="numpy", na_action="drop"
            )
    except Exception as error:
        raise _failed(side, "cannot be evaluated", reason(error, seen.columns)) from None
    return made, np.setdiff1d(np.arange(len(frame)), list(dropped)).astype(np.intp)


def _failed(side: RightSide, what: str, said: str) -> FormulaError:
    written = side.written
    return FormulaError(f"Formula {written.shown!r} {what}: {written.visible(said)}")


def column_names_of(
    side: RightSide, spec: Any, frame: pd.DataFrame, known: Mapping[str, Any]
) -> tuple[str, ...]:
    """Names of the columns that a specification makes of some rows."""
    return side.names(_made(side, spec, frame, known)[0].model_spec)


def applied(
    side: RightSide, spec: Any, frame: pd.DataFrame, known: Mapping[str, Any], width: int
) -> Float:
    """Columns of rows by what was learned; NaN where a value is missing or a level not known."""
    matrix, maker = _made(side, spec, frame, known)
    made = np.array(matrix, dtype=np.float64)
    if made.shape != (len(frame), width):
        raise FormulaError(
            f"Formula {side.written.shown!r} makes other columns of these rows than of the fit's."
        )
    for expression, (_, learned) in spec.encoder_state.items():
        if "categories" in learned and expression in maker.factor_cache:
            found = maker.factor_cache[expression].values
            found = pd.Series(getattr(found, "__wrapped__", found))
            made[~found.isin(learned["categories"]).to_numpy()] = np.nan
    return made


def _made(
    side: RightSide, spec: Any, frame: pd.DataFrame, known: Mapping[str, Any]
) -> tuple[Any, Any]:
    """Formulaic's matrix by a specification, and what made it."""
    from formulaic.materializers import PandasMaterializer

    seen = side.frame(frame)
    maker = PandasMaterializer(seen, context=side.context(known))
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # an unseen level is found by whoever asks
            return maker.get_model_matrix(spec), maker
    except Exception as error:
        raise _failed(side, "cannot be evaluated here", reason(error, seen.columns)) from None


def is_formulaics(name: str, value: Any) -> bool:
    """Whether formulaic has this function itself, or would call it: a number C is not C(x)."""
    from formulaic.transforms import TRANSFORMS

    return name in TRANSFORMS and (TRANSFORMS[name] is value or not callable(value))


def kept_variables(known: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Captured variables that a result may hold, and what of them it may not."""
    kept: dict[str, Any] = {}
    for name, value in known.items():
        plain = value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
        if not _is_plain(plain):
            return {}, (
                f"it uses the Python object {name!r}, which a result does not hold. Compute the "
                "column before the fit"
            )
        kept[name] = plain
    return kept, ""


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return len(value) <= _LARGEST and all(_is_plain(v) for v in value)
    return value is None or isinstance(value, (bool, int, float, str))


def encoded(value: Any) -> Any:
    """JSON of nested mappings, lists, arrays and scalars; keys may be numbers."""
    if isinstance(value, Mapping):
        return {"mapping": [[encoded(k), encoded(v)] for k, v in value.items()]}
    if isinstance(value, np.ndarray):
        return {"array": encoded(value.tolist())}
    if isinstance(value, (list, tuple)):
        return [encoded(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else {"number": repr(value)}
    raise TypeError(f"A {type(value).__name__} cannot be written down.")


def decoded(value: Any) -> Any:
    """Inverse of `_encoded`, with tuples as lists."""
    if isinstance(value, list):
        return [decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "mapping" in value:
        return {decoded(k): decoded(v) for k, v in value["mapping"]}
    return np.array(decoded(value["array"])) if "array" in value else float(value["number"])
