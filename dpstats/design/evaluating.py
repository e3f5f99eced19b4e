"""What formulaic does with the right side of a formula: terms, columns of rows, learned state.

Nothing here may see a private value.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Mapping
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpstats.design.formulas import parsed
from dpstats.design.syntax import reason
from dpstats.errors import DataError, FormulaError
from dpstats.tables import named_columns, row_count
from dpstats.tables.coercion import kind_of, to_float

__all__ = [
    "applied",
    "column_names_of",
    "decoded",
    "encoded",
    "frame_of",
    "is_formulaics",
    "kept_variables",
    "materialized",
    "spec_of",
    "terms_of",
    "variables_of",
]

Float = NDArray[np.float64]

_NO_VALUES = "cSV"  # kinds of numpy's types: complex numbers, bytes, and what is no value of a row
_LARGEST = 1_000  # entries of a captured variable that is kept


def variables_of(terms: Any) -> set[str]:
    """Names that terms may read: columns, variables and functions."""
    found = {str(v) for v in getattr(terms, "required_variables", ())}
    for factor in (f for term in terms for f in term.factors):
        if factor.eval_method.value == "lookup":
            found.add(factor.expr)
        elif factor.eval_method.value == "python":
            plain = re.sub(r"`([^`]*)`", lambda quoted: f"Q({quoted[1]!r})", factor.expr)
            try:
                nodes = list(ast.walk(ast.parse(plain.strip(), mode="eval")))
            except (SyntaxError, ValueError):
                continue
            found |= {n.id for n in nodes if isinstance(n, ast.Name)}
            found |= {
                n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)
            }
    return found


def terms_of(text: str, columns: list[str]) -> Any:
    """Terms of a right side over columns of these names."""
    left, right = parsed(text, text, columns)
    if left is not None:
        raise FormulaError(f"The right side {text!r} has a '~' of its own.")
    return right


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
    text: str, spec: Any, frame: pd.DataFrame, known: Mapping[str, Any]
) -> tuple[Any, NDArray[np.intp]]:
    """Formulaic's matrix, and which rows it kept."""
    from formulaic.materializers import PandasMaterializer

    dropped: set[int] = set()
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            made = PandasMaterializer(frame, context=known).get_model_matrix(
                spec, drop_rows=dropped, output="numpy", na_action="drop"
            )
    except Exception as error:
        said = reason(error, frame.columns)
        raise FormulaError(f"Formula {text!r} cannot be evaluated: {said}") from None
    return made, np.setdiff1d(np.arange(len(frame)), list(dropped)).astype(np.intp)


def spec_of(terms: Any, state: Mapping[str, Any]) -> Any:
    """A specification with learned state; formulaic makes the same columns from it."""
    from formulaic import ModelSpec
    from formulaic.parser.types import Factor

    encoders = {
        text: (Factor.Kind(kind), {} if levels is None else {"categories": levels})
        for text, (kind, levels) in decoded(state["encoders"]).items()
    }
    return ModelSpec.from_spec(
        terms,
        transform_state=decoded(state["transforms"]),
        encoder_state=encoders,
        na_action="ignore",
        output="numpy",
    )


def column_names_of(
    text: str, spec: Any, frame: pd.DataFrame, known: Mapping[str, Any]
) -> tuple[str, ...]:
    """Names of the columns that a specification makes."""
    made = _made(text, spec, frame, known)[0]
    return tuple(str(name) for name in made.model_spec.column_names)


def applied(
    text: str, spec: Any, frame: pd.DataFrame, known: Mapping[str, Any], width: int
) -> Float:
    """Columns of rows by what was learned; NaN where a value is missing or a level not known."""
    matrix, maker = _made(text, spec, frame, known)
    made = np.array(matrix, dtype=np.float64)
    if made.shape != (len(frame), width):
        raise FormulaError(f"Formula {text!r} makes other columns of these rows than of the fit's.")
    for expression, (_, learned) in spec.encoder_state.items():
        if "categories" in learned and expression in maker.factor_cache:
            found = maker.factor_cache[expression].values
            found = pd.Series(getattr(found, "__wrapped__", found))
            made[~found.isin(learned["categories"]).to_numpy()] = np.nan
    return made


def _made(text: str, spec: Any, frame: pd.DataFrame, known: Mapping[str, Any]) -> tuple[Any, Any]:
    """Formulaic's matrix by a specification, and what made it."""
    from formulaic.materializers import PandasMaterializer

    maker = PandasMaterializer(frame, context=known)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # an unseen level is found by whoever asks
            return maker.get_model_matrix(spec), maker
    except Exception as error:
        said = reason(error, frame.columns)
        raise FormulaError(f"Formula {text!r} cannot be evaluated here: {said}") from None


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
