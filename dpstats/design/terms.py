"""Terms of a formula as row-wise functions with public bounds.

A term is Python text. It is parsed, never run: a fixed table of operations gives each node of the
syntax tree a function of the row and an interval that holds its values for every row that the
schema allows. What the table does not list is refused with what to write instead. Nothing that
looks at more than one row is in the table, so no term can learn from private rows.
"""

from __future__ import annotations

import ast
import copy
import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import FormulaError
from dpstats.schema import Categorical, Numeric, Schema

__all__ = ["Expression", "Terms", "check_row_local"]

Float = NDArray[np.float64]
Rows = Mapping[str, Float]

_GRID = 1001  # public points on which poly, bs and cr fix their knots and coefficients
_CHEBYSHEV = 128  # points per polynomial piece on which extremes are searched


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
    guess : tuple of float, optional
        Public (centre, scale) of its values.
    spans_intercept : bool
        Whether its values add up to one, so that beside an intercept the first is left out.
    """

    columns: frozenset[str]
    bounds: Float
    evaluate: Callable[[Rows], Float]
    wide: bool = False
    guess: tuple[float, float] | None = None
    spans_intercept: bool = False

    @property
    def interval(self) -> tuple[float, float]:
        """Bounds of an expression with one value per row."""
        return float(self.bounds[0, 0]), float(self.bounds[0, 1])

    @property
    def center(self) -> float:
        """Public guess of a typical value: the declared one, else the midpoint of the bounds."""
        lower, upper = self.interval
        return lower / 2 + upper / 2 if self.guess is None else self.guess[0]

    @property
    def scale(self) -> float:
        """Public guess of the spread: the declared one, else half the width of the bounds."""
        lower, upper = self.interval
        return (upper - lower) / 2 if self.guess is None else self.guess[1]


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


# ---------------------------------------------------------------------------------------------
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


def _divide(a: Expression, b: Expression) -> Expression:
    unbounded = _contains_zero(b.interval)
    return _combine(np.divide, _hull(np.nan) if unbounded else _ends(np.divide, a, b), a, b)


def _even(rule: Callable[..., Any]) -> Callable[[Expression], Expression]:
    def build(a: Expression) -> Expression:
        ends = _ends(rule, a)
        return _combine(rule, _hull(*ends[0], 0.0) if _contains_zero(a.interval) else ends, a)

    return build


def _power(base: Expression, exponent: Expression) -> Expression:
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


def _within(lower: float, upper: float, rule: Callable[..., Any]) -> Callable[..., Expression]:
    return lambda *parts: _combine(rule, np.array([[lower, upper]]), *parts)


def _where(condition: Expression, a: Expression, b: Expression) -> Expression:
    def rule(c: Float, x: Float, y: Float) -> Float:
        return np.where(c != 0, x, y)

    return _combine(rule, _hull(*a.interval, *b.interval), condition, a, b)


_OPERATORS: dict[type[ast.AST], Callable[..., Expression]] = {
    ast.Add: _monotone(np.add),
    ast.Sub: _monotone(np.subtract),
    ast.Mult: _monotone(np.multiply),
    ast.Div: _divide,
    ast.Pow: _power,
    ast.USub: _monotone(np.negative),
    ast.UAdd: _monotone(np.positive),
}
_COMPARISONS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
}
_INCREASING = (
    "exp",
    "exp2",
    "expm1",
    "log",
    "log1p",
    "log2",
    "log10",
    "sqrt",
    "cbrt",
    "tanh",
    "sinh",
    "arctan",
    "arcsinh",
    "floor",
    "ceil",
    "sign",
)
_UNARY: dict[str, Callable[..., Expression]] = {
    **{f"np.{name}": _monotone(getattr(np, name)) for name in _INCREASING},
    **{name: _monotone(getattr(np, name)) for name in ("exp", "exp2", "log", "log2", "log10")},
    **{f"np.{name}": _even(getattr(np, name)) for name in ("abs", "absolute", "fabs", "square")},
    **{f"np.{name}": _within(-1.0, 1.0, getattr(np, name)) for name in ("sin", "cos")},
    "I": lambda a: a,
}
_BINARY: dict[str, Callable[..., Expression]] = {
    "np.minimum": _monotone(np.minimum),
    "np.maximum": _monotone(np.maximum),
    "np.power": _power,
}
_TERNARY: dict[str, Callable[..., Expression]] = {
    "np.clip": _monotone(np.clip),
    "np.where": _where,
}
_ARITY = {1: _UNARY, 2: _BINARY, 3: _TERNARY}
_SMOOTH = ("poly", "bs", "cr", "cs", "cc")
_CENTERED = ("center", "scale", "standardize")
_CONTRASTS = frozenset(
    ["Treatment", "Sum", "Helmert", "Poly", "Diff"]
    + [f"contr.{name}" for name in ("treatment", "sum", "helmert", "poly", "diff", "SAS")]
)
_ALLOWED = frozenset([*_UNARY, *_BINARY, *_TERNARY, *_SMOOTH, *_CENTERED, "C", "Q"])
_FROM_ROWS = {
    "mean": "center({x}), which subtracts the schema's centre",
    "median": "center({x}), which subtracts the schema's centre",
    "std": "scale({x}), which uses the schema's centre and scale",
    "var": "scale({x}), which uses the schema's centre and scale",
    "max": "the declared upper bound as a number",
    "min": "the declared lower bound as a number",
}
_OWN_COLUMN = "a column computed before the fit and declared in the schema"


# ---------------------------------------------------------------------------------------------
# From text to expressions


def _parse(text: str) -> ast.expr:
    """Syntax tree of a term; names in backticks become Q('name')."""
    plain = re.sub(r"`([^`]*)`", lambda quoted: f"Q({quoted[1]!r})", text)
    return ast.parse(plain.strip(), mode="eval").body


def _dotted(node: ast.expr) -> str:
    """``np.log`` for the syntax tree of ``np.log``; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return ""


def _is_term(name: str) -> bool:
    """Whether a name of the schema declares a term, such as ``np.log(x)``, and not a column."""
    if "(" not in name:
        return False
    try:
        tree = _parse(name)
    except SyntaxError:
        return False
    return isinstance(tree, ast.Call) and _dotted(tree.func) in _ALLOWED


@dataclass(frozen=True)
class Terms:
    """The terms that a schema allows.

    Parameters
    ----------
    schema : Schema
        Columns, and declared bounds of terms such as ``"np.log(x)"``.
    """

    schema: Schema

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Declared names that are columns: no terms, not the unit."""
        return tuple(n for n in self.schema if n != self.schema.unit and not _is_term(n))

    @cached_property
    def declared(self) -> dict[str, Numeric]:
        """Declared bounds of terms, by normalised text."""
        terms = {ast.unparse(_parse(n)): self.schema[n] for n in self.schema if _is_term(n)}
        for text, declaration in terms.items():
            if not isinstance(declaration, Numeric):
                raise FormulaError(f"Term {text!r} is declared as {declaration!r}; use Numeric.")
        return terms  # type: ignore[return-value]

    def column(self, name: str, text: str = "") -> Expression:
        """A declared numeric or boolean column.

        Raises
        ------
        FormulaError
            If the column is not declared, or is categorical.
        """
        if name not in self.schema:
            self._undeclared(name, text or name)
        declaration = self.schema[name]
        if isinstance(declaration, Categorical):
            raise FormulaError(
                f"Term {text or name!r} uses the categorical column {name!r} as a number. Declare "
                f"it as Numeric(lower, upper), or use it as a factor: C({name})."
            )
        limits, guess = (0.0, 1.0), None
        if isinstance(declaration, Numeric):
            limits = (declaration.lower, declaration.upper)
            guess = (declaration.center_guess, declaration.scale_guess)
        return Expression(
            frozenset([name]),
            np.array([limits]),
            lambda rows: np.asarray(rows[name], dtype=np.float64),
            guess=guess,
        )

    def expression(self, text: str) -> Expression:
        """The row-wise function that a numeric term means.

        Raises
        ------
        FormulaError
            If the term mixes rows, captures a Python variable, reads an undeclared column or uses
            an operation that is not allowed; or if its bounds cannot be derived from the schema.
        """
        try:
            tree = _parse(text)
        except SyntaxError:
            raise FormulaError(f"Term {text!r} cannot be parsed.") from None
        found = self._build(tree, text)
        if not found.columns:
            raise FormulaError(f"Term {text!r} is constant; write 1 for the intercept, or drop it.")
        if not np.isfinite(found.bounds).all():
            raise FormulaError(self._unbounded(text))
        return found

    def categorical(self, text: str) -> str | None:
        """Column of a ``C(column, contrasts)`` term; None if `text` is no such term.

        Raises
        ------
        FormulaError
            If the column is not declared with levels, or the contrasts are not known ones.
        """
        try:
            tree = _parse(text)
        except SyntaxError:
            return None
        if not (isinstance(tree, ast.Call) and _dotted(tree.func) == "C"):
            return None
        name = self._name(tree.args[0]) if tree.args else None
        if name is None:
            self._refuse(text, "C() needs a column", "C(g) with a column declared Categorical")
        if name not in self.schema:
            self._undeclared(name, text)
        if isinstance(self.schema[name], Numeric):
            self._refuse(
                text,
                f"column {name!r} is declared Numeric, so its levels are not known",
                f"{name}=Categorical([...]) in the schema",
            )
        extra = [*tree.args[1:], *(k.value for k in tree.keywords if k.arg == "contrasts")]
        unknown = [k.arg for k in tree.keywords if k.arg != "contrasts"]
        if len(extra) > 1 or unknown:
            self._refuse(
                text,
                f"options {unknown} of C() are not allowed; levels and their order "
                "come from the schema",
                "C(g) or C(g, Treatment('level'))",
            )
        for contrast in extra:
            self._check_contrast(contrast, text)
        return name

    def _check_contrast(self, node: ast.expr, text: str) -> None:
        called = isinstance(node, ast.Call)
        if _dotted(node.func if called else node) not in _CONTRASTS:  # type: ignore[attr-defined]
            self._refuse(
                text,
                f"contrasts {ast.unparse(node)!r} are not known",
                "Treatment('level'), Sum, Helmert, Poly or Diff",
            )
        if called:
            for argument in (*node.args, *(k.value for k in node.keywords)):  # type: ignore[attr-defined]
                self._literal(argument, text)

    def _build(self, node: ast.expr, text: str) -> Expression:
        build = _BUILDERS.get(type(node), Terms._refused_syntax)
        found = build(self, node, text)
        declared = self.declared.get(ast.unparse(node)) if self.declared else None
        return found if declared is None else _clipped(found, declared)

    def _constant(self, node: ast.Constant, text: str) -> Expression:
        if not isinstance(node.value, (int, float)):
            self._refuse(text, f"the constant {node.value!r} is no number", "a number")
        value = float(node.value)
        constant = np.array(value)
        return Expression(frozenset(), np.array([[value, value]]), lambda rows: constant)

    def _lookup(self, node: ast.Name, text: str) -> Expression:
        return self.column(node.id, text)

    def _operation(self, node: ast.BinOp | ast.UnaryOp, text: str) -> Expression:
        operation = _OPERATORS.get(type(node.op))
        if operation is None:
            self._refuse(
                text,
                f"an operator of {ast.unparse(node)!r} is not allowed",
                "only + - * / ** and comparisons",
            )
        operands = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.operand]
        parts = [self._single(operand, text) for operand in operands]
        self._check_power(operation, parts, text)
        return operation(*parts)

    def _check_power(self, operation: Any, parts: list[Expression], text: str) -> None:
        if (
            operation is _power
            and parts[1].columns
            and (parts[0].columns or parts[0].interval[0] <= 0)
        ):
            self._refuse(
                text,
                "a column may not be the exponent of a column",
                "a number as the exponent, as in I(x ** 2)",
            )

    def _comparison(self, node: ast.Compare, text: str) -> Expression:
        if len(node.ops) != 1 or type(node.ops[0]) not in _COMPARISONS:
            self._refuse(
                text,
                f"the comparison {ast.unparse(node)!r} is not allowed",
                "one of < <= > >= == != between numbers",
            )
        compare = _COMPARISONS[type(node.ops[0])]
        parts = [self._single(side, text) for side in (node.left, node.comparators[0])]
        return _within(0.0, 1.0, lambda a, b: compare(a, b).astype(np.float64))(*parts)

    def _call(self, node: ast.Call, text: str) -> Expression:
        name = _dotted(node.func)
        if name == "Q":
            return self.column(self._literal(node.args[0], text), text)
        if name == "C":
            self._refuse(text, "C() may not be used inside another term", "C(g) as a term")
        if name in _SMOOTH:
            return self._smooth(name, node, text)
        if name in _CENTERED:
            return self._centered(name, node, text)
        rule = _ARITY.get(len(node.args), {}).get(name)
        if rule is None or node.keywords:
            self._refused_call(name, node, text)
        parts = [self._single(argument, text) for argument in node.args]
        self._check_power(rule, parts, text)
        return rule(*parts)

    def _single(self, node: ast.expr, text: str) -> Expression:
        found = self._build(node, text)
        if found.wide:
            self._refuse(
                text, f"{ast.unparse(node)!r} has several columns", "it as a term of its own"
            )
        return found

    def _centered(self, name: str, node: ast.Call, text: str) -> Expression:
        """``center``, ``scale`` and ``standardize``, with the schema's centre and scale."""
        if not node.args:
            self._refuse(text, f"{name}() needs a column", f"{name}(x)")
        part = self._single(node.args[0], text)
        literals = [self._literal(argument, text) for argument in node.args[1:]]
        options = dict(zip(("center", "scale"), literals, strict=False))
        options |= {
            str(k.arg).replace("rescale", "scale"): self._literal(k.value, text)
            for k in node.keywords
        }
        center, spread = options.get("center", True), options.get("scale", name != "center")
        shift = part.center if center is True else float(center)
        factor = part.scale if spread is True else float(spread) or 1.0
        if not np.isfinite(shift) or not (np.isfinite(factor) and factor > 0):
            raise FormulaError(self._unbounded(text))

        moved = _monotone(lambda x: (x - shift) / factor)(part)
        if part.guess is None:
            return moved
        return replace(moved, guess=((part.guess[0] - shift) / factor, part.guess[1] / factor))

    def _smooth(self, name: str, node: ast.Call, text: str) -> Expression:
        """A polynomial or spline basis, fixed on a public grid over the range of its argument."""
        from formulaic.transforms import TRANSFORMS

        transform = TRANSFORMS[name]
        if not node.args:
            self._refuse(text, f"{name}() needs a column", f"{name}(x, ...)")
        part = self._single(node.args[0], text)
        lower, upper = part.interval
        if not (np.isfinite([lower, upper]).all() and lower < upper):
            raise FormulaError(self._unbounded(text))
        args = [self._literal(argument, text) for argument in node.args[1:]]
        options = {str(k.arg): self._literal(k.value, text) for k in node.keywords}
        taken = {"lower_bound", "upper_bound", "extrapolation", "constraints"} & set(options)
        if taken:
            self._refuse(
                text,
                f"{sorted(taken)} may not be given: the range of {name} is the "
                "declared range of its column",
                f"{name}(x, df=...) or {name}(x, knots=[...])",
            )
        state: dict[str, Any] = {}

        def apply(x: Float) -> Any:
            return transform(x, *args, **options, _state=copy.deepcopy(state) if state else state)

        try:
            fixed = apply(np.linspace(lower, upper, _GRID))
        except Exception as error:
            raise FormulaError(f"Term {text!r}: {error}") from None

        def evaluate(rows: Rows) -> Float:
            x = part.evaluate(rows)
            values = _as_matrix(apply(np.clip(x, lower, upper)))
            values[np.isnan(x)] = np.nan
            return values

        pieces = np.unique([lower, *np.clip(state.get("knots", []), lower, upper), upper])
        degree = args[0] if name == "poly" and args else options.get("degree", 3)
        bounds = _extremes(lambda x: _as_matrix(apply(x)), pieces, int(degree))
        spans = bool(
            getattr(fixed, "__formulaic_metadata__", None)
            and fixed.__formulaic_metadata__.spans_intercept
        )
        return Expression(part.columns, bounds, evaluate, wide=True, spans_intercept=spans)

    def _literal(self, node: ast.expr, text: str) -> Any:
        try:
            return ast.literal_eval(node)
        except ValueError:
            self._refuse(
                text,
                f"{ast.unparse(node)!r} is no constant; Python variables are not captured",
                "its value into the formula",
            )

    def _name(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Call) and _dotted(node.func) == "Q" and len(node.args) == 1:
            return str(ast.literal_eval(node.args[0]))
        return None

    # Refusals: each says what to write instead.

    def _refuse(self, text: str, why: str, instead: str) -> NoReturn:
        raise FormulaError(f"Term {text!r}: {why}. Write {instead}.")

    def _undeclared(self, name: str, text: str) -> NoReturn:
        raise FormulaError(
            f"Term {text!r} uses {name!r}, which the schema does not declare. If it is a column, add "
            f"{name!r} to the schema; if it is a Python variable, write its value into the formula."
        )

    def _refused_syntax(self, node: ast.expr, text: str) -> NoReturn:
        if isinstance(node, ast.Subscript):
            self._refuse(text, f"indexing, {ast.unparse(node)!r}, picks rows", _OWN_COLUMN)
        self._refuse(
            text,
            f"{ast.unparse(node)!r} is not allowed in a term",
            f"arithmetic of columns and numbers, or {_OWN_COLUMN}",
        )

    def _refused_call(self, name: str, node: ast.Call, text: str) -> NoReturn:
        root, _, method = name.rpartition(".")
        shown = ast.unparse(node)
        if f"np.{name}" in _ALLOWED:
            self._refuse(text, f"{name}() is not known by that name", f"np.{name}(...)")
        if name in _ALLOWED:
            self._refuse(
                text,
                f"{shown!r} has the wrong number or kind of arguments",
                f"{name}() with plain positional arguments",
            )
        method = method or (node.func.attr if isinstance(node.func, ast.Attribute) else name)
        argument = (
            root if root not in ("", "np") else ast.unparse(node.args[0]) if node.args else "x"
        )
        instead = _FROM_ROWS.get(method, _OWN_COLUMN).format(x=argument)
        if isinstance(node.func, ast.Attribute):
            self._refuse(text, f"{shown!r} may look at other rows than its own", instead)
        self._refuse(text, f"the function {name}() is not a known row-wise one", instead)

    def _unbounded(self, text: str) -> str:
        advice = f"declare the term's own bounds, Schema({{..., {text!r}: Numeric(lower, upper)}})"
        if "log" in text:
            advice = f"use np.log1p, declare a lower bound above 0, or {advice}"
        if "/" in text:
            advice = f"declare bounds that keep the denominator away from 0, or {advice}"
        return f"Term {text!r} has no finite bounds over the declared ranges: {advice}."


_BUILDERS: dict[type[ast.AST], Callable[..., Expression]] = {
    ast.Constant: Terms._constant,
    ast.Name: Terms._lookup,
    ast.BinOp: Terms._operation,
    ast.UnaryOp: Terms._operation,
    ast.Compare: Terms._comparison,
    ast.Call: Terms._call,
}


def _clipped(found: Expression, declared: Numeric) -> Expression:
    """An expression held to declared bounds."""
    bounds = np.array([[declared.lower, declared.upper]] * len(found.bounds))

    def evaluate(rows: Rows) -> Float:
        return np.clip(found.evaluate(rows), declared.lower, declared.upper)

    guess = None if found.wide else (declared.center_guess, declared.scale_guess)
    return replace(found, bounds=bounds, evaluate=evaluate, guess=guess)


def _as_matrix(values: Any) -> Float:
    """Values of a formulaic transform as an array of shape (m, k)."""
    values = getattr(values, "__wrapped__", values)
    if isinstance(values, Mapping):
        return np.column_stack(list(values.values())).astype(np.float64)
    return np.array(values, dtype=np.float64)


def _extremes(basis: Callable[[Float], Float], pieces: Float, degree: int) -> Float:
    """Bounds of piecewise polynomials of one variable, shape (k, 2).

    On N + 1 Chebyshev points a polynomial of degree k < N/2 reaches at least cos(pi k / 2N) of its
    largest absolute value (Ehlich & Zeller 1964), so the range seen on them, widened by that
    factor about its middle, holds the range everywhere.
    """
    angles = np.cos(np.linspace(np.pi, 0, _CHEBYSHEV + 1))
    margin = 1 / np.cos(np.pi * min(degree, _CHEBYSHEV // 2) / (2 * _CHEBYSHEV))
    lower, upper = [], []
    for a, b in itertools.pairwise(pieces):
        seen = basis(np.clip((a + b) / 2 + (b - a) / 2 * angles, pieces[0], pieces[-1]))
        middle = (seen.max(axis=0) + seen.min(axis=0)) / 2
        reach = (seen.max(axis=0) - seen.min(axis=0)) / 2 * margin
        lower.append(middle - reach)
        upper.append(middle + reach)
    return np.stack([np.min(lower, axis=0), np.max(upper, axis=0)], axis=1)
