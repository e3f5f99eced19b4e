"""Terms as blocks of columns: products of factors, with bounds for every row the schema allows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstats.design.operations import Expression
from dpstats.errors import FormulaError

__all__ = [
    "Factor",
    "TermColumns",
    "check_representable",
    "coded_factor",
    "guessed",
    "intercept",
    "plain_columns",
    "starts",
]

Float = NDArray[np.float64]
Rows = Mapping[str, Any]


@dataclass(frozen=True)
class Factor:
    """One factor of a term: an expression, or the coding of a categorical column.

    Attributes
    ----------
    expression : Expression
        Its values per row.
    coding : ndarray of shape (levels, k), optional
        Values for each level.
    dummy : bool
        Whether it is categorical or boolean.
    lookups : tuple
        The numeric table columns that it is as they stand, if so; one for each of its k values.
    """

    expression: Expression
    coding: Float | None = None
    dummy: bool = False
    lookups: tuple[Any, ...] = ()

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
class TermColumns:
    """Columns of a term: row-wise products of the columns of its factors, the first one fastest.

    Without factors it is the intercept.
    """

    factors: tuple[Factor, ...]
    names: tuple[str, ...]
    multiplier: float = 1.0
    kept: tuple[int, ...] | None = None  # products that remain, where some were dropped
    term: str = ""  # of the formula; without one each column is its own

    @property
    def lookups(self) -> tuple[Any, ...]:
        """The numeric table columns that its columns are as they stand; empty if they are not."""
        if len(self.factors) != 1 or self.multiplier != 1:
            return ()
        found = self.factors[0].lookups
        return found if self.kept is None or not found else tuple(found[i] for i in self.kept)

    @property
    def guesses(self) -> Float | None:
        """Public centre and scale of each column, shape (k, 2), where they are declared."""
        single = len(self.factors) == 1 and self.multiplier == 1
        found = self.factors[0].expression.guesses if single else None
        return None if found is None else self._kept_rows(found)

    @property
    def unscaled(self) -> NDArray[np.bool_]:
        """Which columns have no declared scale and are no codes, shape (k,).

        A basis has the scale of its range, which is part of what it means.
        """
        numeric = any(not factor.dummy for factor in self.factors)
        without = np.full(len(self.names), numeric and not self.bases)
        if without.any() and self.guesses is not None:
            lower, upper = self.bounds.T
            without &= self.guesses[:, 1] >= (upper / 2 - lower / 2) * (1 - 1e-9)
        return without

    @property
    def bases(self) -> frozenset[str]:
        """Table columns that its splines and polynomials read."""
        found = (f for f in self.factors if f.expression.wide and not (f.dummy or f.lookups))
        return frozenset().union(*(factor.expression.columns for factor in found))

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
        if self.lookups:  # a product with the interval [1, 1] is the same, to the bit
            return self._kept_rows(self.factors[0].expression.bounds)
        factors = (factor.expression.bounds for factor in self.factors)
        return self._kept_rows(reduce(_interval_times, factors, np.full((1, 2), self.multiplier)))

    def _kept_rows(self, bounds: Float) -> Float:
        return bounds if self.kept is None else bounds[list(self.kept)]

    def keep(self, chosen: Sequence[int]) -> TermColumns:
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
    with np.errstate(all="ignore"):  # an overflow is refused where the design is put together
        ends = (b[:, None, :, None] * a[None, :, None, :]).reshape(len(a) * len(b), 4)
    return np.stack([ends.min(axis=1), ends.max(axis=1)], axis=1)


def coded_factor(name: str, coding: Float) -> Factor:
    """A categorical column with one row of `coding`, shape (levels, k), for each level."""
    bounds = np.stack([coding.min(axis=0), coding.max(axis=0)], axis=1)
    expression = Expression(frozenset([name]), bounds, lambda rows: coding[rows[name]], wide=True)
    return Factor(expression, coding=coding, dummy=True)


def plain_columns(
    names: Sequence[str], lookups: Sequence[Any], bounds: Float, guesses: Float | None = None
) -> TermColumns:
    """Numeric table columns as they stand, with bounds and guesses of shape (k, 2) each."""

    def evaluate(rows: Rows) -> Float:
        return np.column_stack([np.asarray(rows[n], dtype=np.float64) for n in lookups])

    columns = frozenset(name for name in lookups if isinstance(name, str))
    expression = Expression(columns, bounds, evaluate, wide=True, guesses=guesses)
    return TermColumns((Factor(expression, lookups=tuple(lookups)),), tuple(names))


def intercept() -> TermColumns:
    """The column of ones."""
    return TermColumns((), ("Intercept",))


def starts(blocks: Sequence[TermColumns]) -> list[int]:
    """Position of the first column of each block."""
    return [0, *itertools.accumulate(len(block.names) for block in blocks)][:-1]


def guessed(blocks: Sequence[TermColumns]) -> NDArray[np.float64]:
    """Public centre and scale of each column, of shape (d, 2); NaN where there is none."""
    parts = (np.full((len(b.names), 2), np.nan) if b.guesses is None else b.guesses for b in blocks)
    return np.concatenate([*parts])


def check_representable(blocks: Sequence[TermColumns]) -> None:
    """Refuse bounds whose width is no finite number.

    Raises
    ------
    FormulaError
        If there are such bounds.
    """
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
