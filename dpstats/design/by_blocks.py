"""A formula on public rows that are read in batches: learned in one reading, evaluated in another.

That works for terms that make each row of itself, and levels: what a term learns of all rows, as
``poly`` and ``x - x.mean()`` do, is not known before the last of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpstats.design.captured import check_captured
from dpstats.design.evaluating import (
    RightSide,
    applied,
    column_names_of,
    encoded,
    frame_of,
    is_formulaics,
    kept_variables,
    materialized,
)
from dpstats.design.fitted_formula import FittedFormula, stands_for_all
from dpstats.design.syntax import check_stored
from dpstats.errors import FormulaError

__all__ = ["AllRowsAtOnceError", "BlockFormula"]

Float = NDArray[np.float64]


class AllRowsAtOnceError(Exception):
    """A formula has to be evaluated on all rows at once; says why."""


class BlockFormula:
    """The right side of a formula, whose values are those of `FittedFormula.fit` in any batches.

    Parameters
    ----------
    text : str
        Right side.
    public : sequence of str
        Columns that may be read, and that ``.`` stands for.
    context : mapping, optional
        Python variables that the formula may name: numbers and texts.
    n : int
        Rows of the table.

    Raises
    ------
    AllRowsAtOnceError
        If one of its terms is no operation that is allowed on private rows, each of which makes a
        row of that row alone.
    """

    def __init__(
        self, text: str, public: Sequence[str], context: Mapping[str, Any] | None, n: int
    ) -> None:
        self._text, self._public = text, list(public)
        self._side = RightSide.of(text, self._public)
        used = self._side.reads
        self.reads = tuple(name for name in self._public if name in used)
        known = {
            name: value
            for name, value in (context or {}).items()
            if name in used and name not in self.reads and not is_formulaics(name, value)
        }
        check_captured(known, text, n)
        self._variables, obstacle = kept_variables(known)
        if obstacle:
            raise AllRowsAtOnceError(f"a Python function or object is in {text!r}")
        try:
            check_stored(text, {*self._public}, self._variables)
        except FormulaError:
            raise AllRowsAtOnceError(
                f"{text!r} has a term that may depend on all rows at once"
            ) from None
        self._types: dict[str, list[Any]] = {name: [] for name in self.reads}
        self._encoders: dict[str, tuple[Any, list[list[Any]]]] = {}
        self._first: pd.DataFrame | None = None

    def learn(self, batch: Mapping[str, Any]) -> None:
        """Look at some rows, the first time that all are read: which levels there are.

        Raises
        ------
        AllRowsAtOnceError
            If a term learns more than levels.
        FormulaError
            If a term cannot be evaluated.
        """
        frame = frame_of(batch, self.reads)
        if not len(frame):
            return
        for name, found in self._types.items():
            kind = frame[name].dtype
            found += [] if kind in found else [kind]
        made, kept = materialized(self._side, frame, self._variables)
        if not len(kept):
            return
        self._first = frame if self._first is None else self._first
        if made.model_spec.transform_state:
            learning = sorted(made.model_spec.transform_state)[0]
            raise AllRowsAtOnceError(f"{learning!r} learns from all rows")
        for expression, (kind, learned) in made.model_spec.encoder_state.items():
            before, levels = self._encoders.setdefault(expression, (kind, []))
            if before != kind:
                raise AllRowsAtOnceError(
                    f"{expression!r} is a number in some rows, a level in others"
                )
            levels.append(list(learned.get("categories") or []))

    def learned(self) -> FittedFormula:
        """The formula with what it learned, after all rows were looked at.

        Raises
        ------
        AllRowsAtOnceError
            If a column has other kinds of values in some batches than in others, or no row is
            complete.
        """
        if self._first is None:
            raise AllRowsAtOnceError("no row is complete")
        self._kinds = {name: _one_kind(name, found) for name, found in self._types.items()}
        encoders = {
            self._side.key(expression): (kind.value, _in_order(lists) if any(lists) else None)
            for expression, (kind, lists) in self._encoders.items()
        }
        try:
            state = {"transforms": encoded({}), "encoders": encoded(encoders)}
        except TypeError:
            raise AllRowsAtOnceError("levels of one of its terms cannot be written down") from None
        self._spec = self._side.spec(state)
        frame = self._first.astype(self._kinds)
        self._names = column_names_of(self._side, self._spec, frame, self._variables)
        dot = tuple(self._public) if stands_for_all(self._text) else ()
        return FittedFormula(self._text, dot, self.reads, self._names, state, self._variables)

    def rows(self, batch: Mapping[str, Any]) -> Float:
        """Columns of some rows, of shape (m, k); NaN where a value is missing."""
        frame = frame_of(batch, self.reads).astype(self._kinds)
        return applied(self._side, self._spec, frame, self._variables, len(self._names))


def _one_kind(name: str, kinds: Sequence[Any]) -> Any:
    """The type of a column of all rows, where numbers of several types are read."""
    if len(kinds) == 1:
        return kinds[0]
    if all(isinstance(kind, np.dtype) and kind.kind in "iuf" for kind in kinds):
        return np.result_type(*kinds)
    raise AllRowsAtOnceError(f"column {name!r} has values of several kinds")


def _in_order(lists: Sequence[list[Any]]) -> list[Any]:
    """Levels of all rows as formulaic orders them."""
    if all(levels == lists[0] for levels in lists):
        return lists[0]
    every = pd.Series(pd.Series([level for levels in lists for level in levels]).unique())
    levels: list[Any] = every.astype("category").cat.categories.tolist()
    return levels
