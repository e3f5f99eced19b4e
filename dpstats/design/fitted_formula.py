"""A formula fitted on public rows: any term is allowed, and new rows get the same columns.

Only `PublicDesign` uses it: nothing here may see a private value. Formulaic evaluates the terms as
they stand, Python functions and variables included. What a stateful term learned from the rows
(levels, centres, knots) is kept, and nothing else: no rows, no functions.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpstats.design.captured import check_captured
from dpstats.design.formulas import parsed
from dpstats.design.syntax import check_stored, reason
from dpstats.errors import FormulaError
from dpstats.stored import plain, read, reading, record
from dpstats.stored import values as read_values
from dpstats.tables import named_columns, row_count

__all__ = ["FittedFormula", "may_read", "variables_of"]

Float = NDArray[np.float64]
Mask = NDArray[np.bool_]

_LARGEST = 1_000  # entries of a captured variable that is kept
_PROBE = 1_000  # rows on which terms are evaluated again, to see whether they mix rows
_SAME = 1e-8
_DOT = re.compile(r"(?<![\w.)])\.(?![\w(])")  # the term that stands for all other columns
_QUOTED = re.compile(r"[\\'\"`{}]|\s")
_MIXES = (
    "one of its terms depends on all rows at once (such as x.mean() or rank), so that it means "
    "something else on new rows. center(x), scale(x), poly, bs and C remember what they learned; "
    "or compute the column before the fit"
)


def may_read(texts: Iterable[str | None], names: Iterable[str]) -> list[str]:
    """Columns that terms may read: those whose names are in them, or all where one is ``.``.

    A name that a formula has to quote in another form than its own is taken to be there.
    """
    text = " ".join(filter(None, texts))
    every = _DOT.search(text) is not None
    return [name for name in names if every or name in text or _QUOTED.search(name)]


@dataclass(frozen=True)
class FittedFormula:
    """The right side of a formula with what it learned from public rows.

    Attributes
    ----------
    text : str
        The right side, as written.
    dot : tuple of str
        Columns that ``.`` stands for.
    reads : tuple of str
        Columns of the table that are read.
    names : tuple of str
        Columns that it makes.
    state : mapping or None
        What stateful terms learned, as JSON; None where it cannot be written down.
    variables : mapping
        Captured Python variables, as JSON.
    obstacle : str
        Why new rows cannot be evaluated; empty where they can.
    stored : bool
        Whether it was read from a file. Its terms are then evaluated only if they are made of the
        operations that are allowed on private rows (`check_stored`): Python that a user wrote into
        a formula is run, and Python that a file brought is not.
    """

    text: str
    dot: tuple[str, ...]
    reads: tuple[str, ...]
    names: tuple[str, ...]
    state: Mapping[str, Any] | None
    variables: Mapping[str, Any] = field(default_factory=dict)
    obstacle: str = ""
    stored: bool = field(default=False, compare=False)

    @classmethod
    def fit(
        cls, text: str, table: Any, dot: Iterable[str], context: Mapping[str, Any] | None = None
    ) -> tuple[FittedFormula, Float]:
        """Evaluate on all rows of a public table.

        Parameters
        ----------
        text : str
            Right side of a formula.
        table : table
            Public rows.
        dot : iterable of str
            Columns that may be read, and that ``.`` stands for.
        context : mapping, optional
            Python variables and functions that the formula may name; see `check_captured`.

        Returns
        -------
        FittedFormula
        matrix : ndarray of shape (n, k)
            NaN in rows in which something was missing.

        Raises
        ------
        FormulaError
            If a term cannot be evaluated, with formulaic's reason, as the rows are public; if a
            variable holds a table, or as many values as there are rows.
        """
        allowed = list(dot)
        terms = _terms(text, allowed)
        used = variables_of(terms)
        reads = tuple(name for name in allowed if name in used)
        listed = tuple(allowed) if _DOT.search(text) else ()
        frame = _frame(table, reads)
        known = {
            name: value
            for name, value in (context or {}).items()
            if name in used and name not in reads and not _is_formulaics(name, value)
        }
        check_captured(known, text, len(frame))
        matrix, spec = _evaluate(text, terms, frame, known)
        names = tuple(str(name) for name in spec.column_names)
        variables, obstacle = _kept(known)
        try:
            state = _state(spec)
        except TypeError:
            state, obstacle = None, obstacle or "what one of its terms learned cannot be kept"
        if not obstacle and _mixes(spec, frame, known, matrix):
            obstacle = _MIXES
        state = None if obstacle else state
        return cls(text, listed, reads, names, state, variables, obstacle), matrix

    def apply(self, table: Any) -> Float:
        """Columns of new rows of shape (m, k), with the learned state; NaN where one is missing.

        A level that was not there when the formula was fitted is missing.

        Raises
        ------
        FormulaError
            If the formula cannot be evaluated on new rows, or was read from a file and is made of
            anything but listed operations.
        """
        if self.state is None:
            raise FormulaError(f"Formula {self.text!r} cannot predict new rows: {self.obstacle}.")
        if self.stored:
            check_stored(self.text, {*self.reads, *self.dot}, self.variables)
        frame = _frame(table, self.reads)
        with reading(f"What formula {self.text!r} learned", FormulaError):
            spec = _spec(_terms(self.text, list(self.dot or self.reads)), self.state)
            return _applied(self.text, spec, frame, dict(self.variables), len(self.names))

    def to_dict(self) -> dict[str, Any]:
        """JSON object."""
        return {
            "text": self.text,
            "dot": list(self.dot),
            "reads": list(self.reads),
            "names": list(self.names),
            "state": self.state,
            "variables": dict(self.variables),
            "obstacle": self.obstacle,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FittedFormula:
        """Inverse of `to_dict`; the formula is then `stored`.

        Raises
        ------
        OptionError
            If a field is missing, unknown or of another type.
        """
        fields = read(dict, data, "formula")
        given = {name: fields.pop(name, None) for name in ("state", "variables")}
        state = read(dict | None, given["state"], "formula, state")
        if state is not None:
            state = read_values({"transforms": dict, "encoders": dict}, state, "formula, state")
            for part in state.values():
                _decoded(part)
        variables = read(dict, given["variables"], "formula, variables")
        for name, value in variables.items():
            plain(value, f"formula, variable {name}")
        return record(cls, fields, "formula", state=state, variables=variables, stored=True)


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


def _terms(text: str, columns: list[str]) -> Any:
    left, right = parsed(text, text, columns)
    if left is not None:
        raise FormulaError(f"The right side {text!r} has a '~' of its own.")
    return right


def _frame(table: Any, names: tuple[str, ...]) -> pd.DataFrame:
    if not names:
        return pd.DataFrame(index=pd.RangeIndex(row_count(table)))
    return pd.DataFrame({name: _column(c) for name, c in named_columns(table, names).items()})


def _column(values: Any) -> Any:
    """A public column as formulaic knows it; categories as they are.

    Extension numbers become floats, on which every transform works, and extension texts objects.
    Lists come without a type; as these covariates are public, it is learned from the values.
    """
    if isinstance(values.dtype, np.dtype):
        return pd.Series(list(values)) if values.dtype.kind == "O" else values
    if pd.api.types.is_numeric_dtype(values):
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    if isinstance(values.dtype, pd.StringDtype):
        return values.to_numpy(dtype=object, na_value=np.nan)
    return values


def _evaluate(
    text: str, terms: Any, frame: pd.DataFrame, known: Mapping[str, Any]
) -> tuple[Float, Any]:
    """Values of all rows, NaN where one is missing, and formulaic's specification.

    Terms see all rows, so that a lag skips none. A term that one missing value makes missing
    everywhere (scale) is evaluated on the complete rows instead.
    """
    complete = ~frame.isna().to_numpy().any(axis=1)
    parts = [np.arange(len(frame)), np.flatnonzero(complete)]
    for rows in parts[: 1 if complete.all() else 2]:
        made, kept = _materialized(text, terms, frame.iloc[rows].reset_index(drop=True), known)
        if len(kept) or rows is parts[-1]:
            break
    matrix = np.full((len(frame), made.shape[1]), np.nan)
    matrix[rows[kept]] = made
    return matrix, made.model_spec


def _materialized(
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
        raise FormulaError(f"Formula {text!r} cannot be evaluated: {reason(error)}") from None
    return made, np.setdiff1d(np.arange(len(frame)), list(dropped)).astype(np.intp)


def _spec(terms: Any, state: Mapping[str, Any]) -> Any:
    """A specification with learned state; formulaic makes the same columns from it."""
    from formulaic import ModelSpec
    from formulaic.parser.types import Factor

    encoders = {
        text: (Factor.Kind(kind), {} if levels is None else {"categories": levels})
        for text, (kind, levels) in _decoded(state["encoders"]).items()
    }
    return ModelSpec.from_spec(
        terms,
        transform_state=_decoded(state["transforms"]),
        encoder_state=encoders,
        na_action="ignore",
        output="numpy",
    )


def _applied(
    text: str, spec: Any, frame: pd.DataFrame, known: Mapping[str, Any], width: int
) -> Float:
    from formulaic.materializers import PandasMaterializer

    maker = PandasMaterializer(frame, context=known)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # an unseen level is found below
            made = np.array(maker.get_model_matrix(spec), dtype=np.float64)
    except Exception as error:
        raise FormulaError(f"Formula {text!r} cannot be evaluated here: {reason(error)}") from None
    if made.shape != (len(frame), width):
        raise FormulaError(f"Formula {text!r} makes other columns of these rows than of the fit's.")
    for expression, (_, learned) in spec.encoder_state.items():
        if "categories" in learned and expression in maker.factor_cache:
            found = maker.factor_cache[expression].values
            found = pd.Series(getattr(found, "__wrapped__", found))
            made[~found.isin(learned["categories"]).to_numpy()] = np.nan
    return made


def _mixes(spec: Any, frame: pd.DataFrame, known: Mapping[str, Any], matrix: Float) -> bool:
    """Whether some rows alone, with the state of all rows, get other values than among all."""
    rows = max(1, min(len(frame) // 2, _PROBE))
    probe = frame.iloc[:rows].reset_index(drop=True)
    try:
        alone = _applied("", _spec(spec.formula, _state(spec)), probe, known, matrix.shape[1])
    except FormulaError:
        return True
    both = np.isfinite(alone) & np.isfinite(matrix[:rows])
    return not np.allclose(alone[both], matrix[:rows][both], rtol=_SAME, atol=_SAME)


def _is_formulaics(name: str, value: Any) -> bool:
    """Whether formulaic has this function itself, or would call it: a number C is not C(x)."""
    from formulaic.transforms import TRANSFORMS

    return name in TRANSFORMS and (TRANSFORMS[name] is value or not callable(value))


def _kept(known: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
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


def _state(spec: Any) -> dict[str, Any]:
    """What a specification learned, as JSON; raises TypeError where it cannot be written."""
    encoders = {
        text: (kind.value, learned.get("categories"))
        for text, (kind, learned) in spec.encoder_state.items()
    }
    return {"transforms": _encoded(spec.transform_state), "encoders": _encoded(encoders)}


def _encoded(value: Any) -> Any:
    """JSON of nested mappings, lists, arrays and scalars; keys may be numbers."""
    if isinstance(value, Mapping):
        return {"mapping": [[_encoded(k), _encoded(v)] for k, v in value.items()]}
    if isinstance(value, np.ndarray):
        return {"array": _encoded(value.tolist())}
    if isinstance(value, (list, tuple)):
        return [_encoded(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else {"number": repr(value)}
    raise TypeError(f"A {type(value).__name__} cannot be written down.")


def _decoded(value: Any) -> Any:
    """Inverse of `_encoded`, with tuples as lists."""
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "mapping" in value:
        return {_decoded(k): _decoded(v) for k, v in value["mapping"]}
    return np.array(_decoded(value["array"])) if "array" in value else float(value["number"])
