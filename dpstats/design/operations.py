"""Row-wise operations on columns, each with an interval that holds its values for every row.

Nothing that looks at more than one row is in the tables at the end, so no term of a formula can
learn from private rows.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import FormulaError
from dpstats.schema import Numeric
from dpstats.text import outward

__all__ = [
    "COMPARISONS",
    "FUNCTIONS",
    "OPERATORS",
    "Expression",
    "check_row_local",
    "clipped",
    "comparison",
    "power_of",
    "shifted",
]

Float = NDArray[np.float64]
Rows = Mapping[str, Float]


@dataclass(frozen=True)
class Expression:
    """A function of one row, with bounds that hold for every row the schema allows.

    Attributes
    ----------
    columns : frozenset of str
        Table columns it reads.
    bounds : ndarray of shape (k, 2)
        Lower and upper bound of each of its k values; infinite where none can be derived.
    evaluate : callable
        Columns by name, each of shape (m,), to (m,) or, if `wide`, (m, k).
    wide : bool
        Whether it gives several values per row (splines, polynomials).
    guesses : ndarray of shape (k, 2), optional
        Public centre and scale of each of its values.
    spans_intercept : bool
        Whether its values add up to one, so that beside an intercept the first is left out.
    """

    columns: frozenset[str]
    bounds: Float
    evaluate: Callable[[Rows], Float]
    wide: bool = False
    guesses: Float | None = None
    spans_intercept: bool = False

    @property
    def interval(self) -> tuple[float, float]:
        """Bounds of an expression with one value per row."""
        return float(self.bounds[0, 0]), float(self.bounds[0, 1])

    @property
    def center(self) -> float:
        """Public guess of a typical value: the declared one, else the midpoint of the bounds."""
        lower, upper = self.interval
        return lower / 2 + upper / 2 if self.guesses is None else float(self.guesses[0, 0])

    @property
    def scale(self) -> float:
        """Public guess of the spread: the declared one, else half the width of the bounds."""
        lower, upper = self.interval
        return (upper - lower) / 2 if self.guesses is None else float(self.guesses[0, 1])


def check_row_local(expression: Expression, rows: Rows, text: str) -> None:
    """Compare all public rows at once with one at a time and with another order.

    The table of operations holds row-wise ones only; this is the second lock on the same door.

    Raises
    ------
    FormulaError
        If a row's value depends on other rows.
    """
    whole = expression.evaluate(rows)
    m = len(whole)
    single = [expression.evaluate({n: v[i : i + 1] for n, v in rows.items()})[0] for i in range(m)]
    turned = expression.evaluate({n: v[::-1].copy() for n, v in rows.items()})[::-1]
    if not all(
        np.array_equal(whole, other, equal_nan=True) for other in (np.array(single), turned)
    ):
        raise FormulaError(
            f"Term {text!r} mixes rows: its value for one row depends on the others. Compute the "
            "column row by row before the fit and declare it in the schema."
        )


def clipped(found: Expression, declared: Numeric) -> Expression:
    """An expression held to declared bounds."""
    bounds = np.array([[declared.lower, declared.upper]] * len(found.bounds))

    def evaluate(rows: Rows) -> Float:
        return np.clip(found.evaluate(rows), declared.lower, declared.upper)

    guesses = None if found.wide else np.array([[declared.center_guess, declared.scale_guess]])
    return replace(found, bounds=bounds, evaluate=evaluate, guesses=guesses)


def shifted(part: Expression, center: float, scale: float) -> Expression:
    """``(part - center) / scale`` with public numbers."""
    moved = _monotone(lambda x: (x - center) / scale)(part)
    if part.guesses is None:
        return moved
    return replace(moved, guesses=(part.guesses - [center, 0.0]) / scale)


def comparison(rule: Callable[..., Any], a: Expression, b: Expression) -> Expression:
    """1 where a comparison holds, else 0."""
    return _on_interval(0.0, 1.0, lambda x, y: rule(x, y).astype(np.float64))(a, b)


# Interval arithmetic. Floating-point rounding is monotone, so the ends computed in floating point
# bound the values computed in floating point.


def _hull(*values: Float | float) -> Float:
    """Smallest interval around candidate extremes; the whole line where one is undefined."""
    ends = np.array(values, dtype=np.float64)
    if np.isnan(ends).any():
        return np.array([[-np.inf, np.inf]])
    return np.array([[ends.min(), ends.max()]])


def _contains_zero(interval: tuple[float, float]) -> bool:
    return interval[0] <= 0 <= interval[1]


def _combine(rule: Callable[..., Float], bounds: Float, *parts: Expression) -> Expression:
    """An expression that applies `rule` to the values of `parts`."""

    def evaluate(rows: Rows) -> Float:
        with np.errstate(all="ignore"):
            return rule(*(part.evaluate(rows) for part in parts))

    columns = frozenset().union(*(part.columns for part in parts))
    return Expression(columns, bounds, evaluate)


def _ends(rule: Callable[..., Any], *parts: Expression) -> Float:
    """Extremes of a rule that is monotone in each argument, over the corners of its box."""
    with np.errstate(all="ignore"):
        corners = np.array(np.meshgrid(*(part.interval for part in parts))).reshape(len(parts), -1)
        return _hull(*rule(*corners))


def _monotone(rule: Callable[..., Any]) -> Callable[..., Expression]:
    return lambda *parts: _combine(rule, _ends(rule, *parts), *parts)


def _steep(rule: Callable[..., Any]) -> Callable[[Expression], Expression]:
    """A rule whose values are long numbers that differ between machines: bounds are round."""

    def build(a: Expression) -> Expression:
        lower, upper = _ends(rule, a)[0]
        return _combine(rule, np.array([outward(lower, upper, digits=3)]), a)

    return build


def _divide(a: Expression, b: Expression) -> Expression:
    unbounded = _contains_zero(b.interval)
    return _combine(np.divide, _hull(np.nan) if unbounded else _ends(np.divide, a, b), a, b)


def _even(rule: Callable[..., Any]) -> Callable[[Expression], Expression]:
    def build(a: Expression) -> Expression:
        ends = _ends(rule, a)
        return _combine(rule, _hull(*ends[0], 0.0) if _contains_zero(a.interval) else ends, a)

    return build


def power_of(base: Expression, exponent: Expression) -> Expression:
    """``base ** exponent``, one of which is a number."""
    if not base.columns and base.interval[0] > 0:
        return _monotone(np.power)(base, exponent)
    k = exponent.interval[0]
    if k == 0:
        return _combine(np.power, _hull(1.0), base, exponent)
    if k < 0 and _contains_zero(base.interval):
        return _combine(np.power, _hull(np.nan), base, exponent)
    ends = _ends(np.power, base, exponent)
    turns = k > 0 and k % 2 == 0 and _contains_zero(base.interval)
    return _combine(np.power, _hull(*ends[0], 0.0) if turns else ends, base, exponent)


def _on_interval(lower: float, upper: float, rule: Callable[..., Any]) -> Callable[..., Expression]:
    return lambda *parts: _combine(rule, np.array([[lower, upper]]), *parts)


def _where(condition: Expression, a: Expression, b: Expression) -> Expression:
    def rule(c: Float, x: Float, y: Float) -> Float:
        return np.where(c != 0, x, y)

    return _combine(rule, _hull(*a.interval, *b.interval), condition, a, b)


OPERATORS: dict[type[ast.AST], Callable[..., Expression]] = {
    ast.Add: _monotone(np.add),
    ast.Sub: _monotone(np.subtract),
    ast.Mult: _monotone(np.multiply),
    ast.Div: _divide,
    ast.Pow: power_of,
    ast.USub: _monotone(np.negative),
    ast.UAdd: _monotone(np.positive),
}
COMPARISONS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
}
_STEEP = ("exp", "exp2", "expm1", "sinh")
_INCREASING = (
    "log",
    "log1p",
    "log2",
    "log10",
    "sqrt",
    "cbrt",
    "tanh",
    "arctan",
    "arcsinh",
    "floor",
    "ceil",
    "sign",
)
_UNARY: dict[str, Callable[..., Expression]] = {
    **{f"np.{name}": _monotone(getattr(np, name)) for name in _INCREASING},
    **{f"np.{name}": _steep(getattr(np, name)) for name in _STEEP},
    **{name: _steep(getattr(np, name)) for name in ("exp", "exp2")},
    **{name: _monotone(getattr(np, name)) for name in ("log", "log2", "log10")},
    **{f"np.{name}": _even(getattr(np, name)) for name in ("abs", "absolute", "fabs", "square")},
    **{f"np.{name}": _on_interval(-1.0, 1.0, getattr(np, name)) for name in ("sin", "cos")},
    "I": lambda a: a,
}
_BINARY: dict[str, Callable[..., Expression]] = {
    "np.minimum": _monotone(np.minimum),
    "np.maximum": _monotone(np.maximum),
    "np.power": power_of,
}
_TERNARY: dict[str, Callable[..., Expression]] = {
    "np.clip": _monotone(np.clip),
    "np.where": _where,
}
FUNCTIONS = {1: _UNARY, 2: _BINARY, 3: _TERNARY}
