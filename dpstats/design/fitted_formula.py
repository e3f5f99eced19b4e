"""A formula fitted on public rows: any term is allowed, and new rows get the same columns.

Only `PublicDesign` uses it: nothing here may see a private value. Formulaic evaluates the terms as
they stand, Python functions and variables included. What a stateful term learned from the rows
(levels, centres, knots) is kept, and nothing else: no rows, no functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpstats.design.captured import check_captured
from dpstats.design.evaluating import (
    RightSide,
    applied,
    decoded,
    frame_of,
    is_formulaics,
    kept_variables,
    materialized,
)
from dpstats.design.syntax import check_stored
from dpstats.errors import FormulaError
from dpstats.stored import plain_json, read, reading, record
from dpstats.stored import values as read_values

__all__ = ["FittedFormula", "may_read", "stands_for_all"]

Float = NDArray[np.float64]
Mask = NDArray[np.bool_]

_PROBE = 1_000  # rows on which terms are evaluated again, to see whether they mix rows
_SAME = 1e-8
_DOT = re.compile(r"(?<![\w.)])\.(?![\w(])")  # the term that stands for all other columns
_QUOTED = re.compile(r"[\\'\"`{}]|\s")
_MIXES = (
    "one of its terms depends on all rows at once (such as x.mean() or rank), so that it means "
    "something else on new rows. center(x), scale(x), poly, bs and C remember what they learned; "
    "or compute the column before the fit"
)


def stands_for_all(text: str) -> bool:
    """Whether a term of a formula is ``.``: all columns but those that the response reads."""
    return _DOT.search(text) is not None


def may_read(texts: Iterable[str | None], names: Iterable[str]) -> list[str]:
    """Columns that terms may read: those whose names are in them, or all where one is ``.``.

    A name that a formula has to quote in another form than its own is taken to be there.
    """
    text = " ".join(filter(None, texts))
    every = stands_for_all(text)
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
        side = RightSide.of(text, allowed)
        used = side.reads
        reads = tuple(name for name in allowed if name in used)
        listed = tuple(allowed) if stands_for_all(text) else ()
        frame = frame_of(table, reads)
        known = {
            name: value
            for name, value in (context or {}).items()
            if name in used and name not in reads and not is_formulaics(name, value)
        }
        check_captured(known, text, len(frame))
        side.check(known)
        matrix, spec = _evaluate(side, frame, known)
        names = side.names(spec)
        variables, obstacle = kept_variables(known)
        try:
            state = side.learned(spec)
        except TypeError:
            state, obstacle = None, obstacle or "what one of its terms learned cannot be kept"
        if not obstacle and _mixes(side, spec, frame, known, matrix):
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
        frame = frame_of(table, self.reads)
        with reading(f"What formula {self.text!r} learned", FormulaError):
            side = RightSide.of(self.text, list(self.dot or self.reads))
            side.check(self.variables)
            spec = side.spec(self.state)
            return applied(side, spec, frame, dict(self.variables), len(self.names))

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
                decoded(part)
        variables = read(dict, given["variables"], "formula, variables")
        for name, value in variables.items():
            plain_json(value, f"formula, variable {name}")
        return record(cls, fields, "formula", state=state, variables=variables, stored=True)


def _evaluate(side: RightSide, frame: pd.DataFrame, known: Mapping[str, Any]) -> tuple[Float, Any]:
    """Values of all rows, NaN where one is missing, and formulaic's specification.

    Terms see all rows, so that a lag skips none. A term that one missing value makes missing
    everywhere (scale) is evaluated on the complete rows instead.
    """
    complete = ~frame.isna().to_numpy().any(axis=1)
    parts = [np.arange(len(frame)), np.flatnonzero(complete)]
    for rows in parts[: 1 if complete.all() else 2]:
        made, kept = materialized(side, frame.iloc[rows].reset_index(drop=True), known)
        if len(kept) or rows is parts[-1]:
            break
    matrix = np.full((len(frame), made.shape[1]), np.nan)
    matrix[rows[kept]] = made
    return matrix, made.model_spec


def _mixes(
    side: RightSide, spec: Any, frame: pd.DataFrame, known: Mapping[str, Any], matrix: Float
) -> bool:
    """Whether some rows alone, with the state of all rows, get other values than among all."""
    rows = max(1, min(len(frame) // 2, _PROBE))
    probe = frame.iloc[:rows].reset_index(drop=True)
    try:
        again = side.spec(side.learned(spec))
        alone = applied(side, again, probe, known, matrix.shape[1])
    except FormulaError:
        return True
    both = np.isfinite(alone) & np.isfinite(matrix[:rows])
    return not np.allclose(alone[both], matrix[:rows][both], rtol=_SAME, atol=_SAME)
