"""Terms of a formula as row-wise functions with public bounds.

A term is Python text. It is parsed, never run: each node of its syntax tree is looked up in a fixed
table of row-wise operations (`operations`), and what the table does not list is refused with what
to write instead.
"""

from __future__ import annotations

import ast
import difflib
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import numpy as np

from dpstats.design.contrasts import mistake_in
from dpstats.design.expansion import check_sizes
from dpstats.design.operations import (
    COMPARISONS,
    FUNCTIONS,
    OPERATORS,
    Expression,
    clipped,
    comparison,
    power_of,
    shifted,
)
from dpstats.design.smooth import BASES, smooth
from dpstats.design.syntax import ALLOWED, CENTERED, dotted, parse_term
from dpstats.errors import FormulaError
from dpstats.schema import Categorical, Numeric, Schema
from dpstats.text import look_alike

__all__ = ["Terms"]

_USAGE = {
    "poly": "poly(x, degree), with a whole number from 1 on",
    "bs": "bs(x, df=6), with a whole number from 3 on, or bs(x, knots=[...])",
    "cr": "cr(x, df=4), with a whole number from 3 on, or cr(x, knots=[...])",
    "cs": "cs(x, df=4), with a whole number from 3 on, or cs(x, knots=[...])",
    "cc": "cc(x, df=4), with a whole number from 2 on, or cc(x, knots=[...])",
}
_RANGE_OPTIONS = {"lower_bound", "upper_bound", "extrapolation", "constraints"}
_FROM_ROWS = {
    "mean": "center({x}), which subtracts the schema's centre",
    "median": "center({x}), which subtracts the schema's centre",
    "std": "scale({x}), which uses the schema's centre and scale",
    "var": "scale({x}), which uses the schema's centre and scale",
    "max": "the declared upper bound as a number",
    "min": "the declared lower bound as a number",
}
_OTHER_ROWS = ("lag", "lead", "rank", "ntile", "shift")  # of other packages
_NAMES, _ALIKE = sorted(ALLOWED), 0.75
_FARTHEST = 1e100  # numerical: of bounds, whose squares overflow nowhere
_OWN_COLUMN = "a column computed before the fit and declared in the schema"


def _is_term(name: str) -> bool:
    """Whether a name of the schema declares a term, such as ``np.log(x)``, and not a column."""
    if "(" not in name:
        return False
    try:
        tree = parse_term(name)
    except SyntaxError:
        return False
    return isinstance(tree, ast.Call) and dotted(tree.func) in ALLOWED


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
    def known(self) -> frozenset[str]:
        """The same names, to look one up."""
        return frozenset(self.columns)

    @cached_property
    def declared(self) -> dict[str, Numeric]:
        """Declared bounds of terms, by normalised text."""
        terms = {ast.unparse(parse_term(n)): self.schema[n] for n in self.schema if _is_term(n)}
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
            written = name if name.isidentifier() else f"Q({name!r})"
            raise FormulaError(
                f"Term {text or name!r} uses the categorical column {name!r} as a number. Declare "
                f"it as Numeric(lower, upper), or use it as a factor: C({written})."
            )
        limits, guesses = (0.0, 1.0), None
        if isinstance(declaration, Numeric):
            limits = (declaration.lower, declaration.upper)
            guesses = np.array([[declaration.center_guess, declaration.scale_guess]])
        return Expression(
            frozenset([name]),
            np.array([limits]),
            lambda rows: np.asarray(rows[name], dtype=np.float64),
            guesses=guesses,
        )

    def expression(self, text: str, tree: ast.expr | None = None) -> Expression:
        """The row-wise function that a numeric term means, whose tree may be known.

        Raises
        ------
        FormulaError
            If the term mixes rows, captures a Python variable, reads an undeclared column or uses
            an operation that is not allowed; or if its bounds cannot be derived from the schema.
        """
        try:
            found = self._build(parse_term(text) if tree is None else tree, text)
        except (SyntaxError, OverflowError, RecursionError, MemoryError):
            raise FormulaError(f"Term {text!r} cannot be parsed.") from None
        if not found.columns:
            raise FormulaError(f"Term {text!r} is constant; write 1 for the intercept, or drop it.")
        if not np.isfinite(found.bounds).all():
            raise FormulaError(self._unbounded(text))
        reached = float(np.abs(found.bounds).max())
        if reached > _FARTHEST and text not in self.schema:
            raise FormulaError(
                f"Term {text!r} may reach {reached:.1e} over the declared ranges, which no noisy "
                "sum can hold: declare narrower ones, or the term's own bounds, "
                f"Schema({{..., {text!r}: Numeric(lower, upper)}})."
            )
        return found

    def number(self, node: ast.expr, text: str) -> Expression:
        """One number a row, as a node of the syntax tree of `text` means it; see `expression`."""
        found = self._single(node, text)
        if not np.isfinite(found.bounds).all():
            raise FormulaError(self._unbounded(text))
        return found

    def categorical(self, text: str, tree: ast.expr) -> str | None:
        """Column of a ``C(column, contrasts)`` term; None if `text` is no such term.

        Raises
        ------
        FormulaError
            If the column is not declared with levels, or the contrasts are not known ones.
        """
        if not (isinstance(tree, ast.Call) and dotted(tree.func) == "C"):
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
        levels = self.schema[name].levels  # type: ignore[union-attr]
        if wrong := next(filter(None, (mistake_in(each, levels) for each in extra)), None):
            self._refuse(text, *wrong)
        return name

    def _build(self, node: ast.expr, text: str) -> Expression:
        build = _BUILDERS.get(type(node), Terms._refused_syntax)
        found = build(self, node, text)
        if not found.columns and not np.isfinite(found.bounds).all():
            self._refuse(text, f"{ast.unparse(node)!r} is no finite number", "a finite number")
        declared = self.declared.get(ast.unparse(node)) if self.declared else None
        return found if declared is None else clipped(found, declared)

    def _constant(self, node: ast.Constant, text: str) -> Expression:
        if not isinstance(node.value, (int, float)):
            self._refuse(text, f"the constant {node.value!r} is no number", "a number")
        value = float(node.value)
        constant = np.array(value)
        return Expression(frozenset(), np.array([[value, value]]), lambda rows: constant)

    def _lookup(self, node: ast.Name, text: str) -> Expression:
        return self.column(node.id, text)

    def _operation(self, node: ast.BinOp | ast.UnaryOp, text: str) -> Expression:
        operation = OPERATORS.get(type(node.op))
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
            operation is power_of
            and parts[1].columns
            and (parts[0].columns or parts[0].interval[0] <= 0)
        ):
            self._refuse(
                text,
                "a column may not be the exponent of a column",
                "a number as the exponent, as in I(x ** 2)",
            )

    def _comparison(self, node: ast.Compare, text: str) -> Expression:
        if len(node.ops) != 1 or type(node.ops[0]) not in COMPARISONS:
            self._refuse(
                text,
                f"the comparison {ast.unparse(node)!r} is not allowed",
                "one of < <= > >= == != between numbers",
            )
        sides = [self._single(side, text) for side in (node.left, node.comparators[0])]
        return comparison(COMPARISONS[type(node.ops[0])], *sides)

    def _call(self, node: ast.Call, text: str) -> Expression:
        name = dotted(node.func)
        if name == "Q":
            return self._quoted(node, text)
        if name == "C":
            self._refuse(text, "C() may not be used inside another term", "C(g) as a term")
        if name in BASES:
            return self._smooth(name, node, text)
        if name in CENTERED:
            return self._centered(name, node, text)
        rule = FUNCTIONS.get(len(node.args), {}).get(name)
        if rule is None or node.keywords:
            self._refused_call(name, node, text)
        parts = [self._single(argument, text) for argument in node.args]
        self._check_power(rule, parts, text)
        return rule(*parts)

    def _quoted(self, node: ast.Call, text: str) -> Expression:
        name = self._name(node)
        if name is None:
            self._refuse(text, "Q() needs the name of a column", "Q('name')")
        return self.column(name, text)

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
        if not all(isinstance(option, (bool, int, float)) for option in (center, spread)):
            self._refuse(text, "center and scale are True, False or a number", f"{name}(x)")
        shift = part.center if center is True else float(center)
        factor = part.scale if spread is True else float(spread) or 1.0
        if not np.isfinite([shift, factor]).all() or factor < 0:
            raise FormulaError(self._unbounded(text))
        return shifted(part, shift, factor)

    def _smooth(self, name: str, node: ast.Call, text: str) -> Expression:
        """A polynomial or spline basis, fixed on a public grid over the range of its argument."""
        if not node.args:
            self._refuse(text, f"{name}() needs a column", f"{name}(x, ...)")
        check_sizes(node, text)
        part = self._single(node.args[0], text)
        if not (np.isfinite(part.bounds).all() and part.interval[0] < part.interval[1]):
            raise FormulaError(self._unbounded(text))
        args = [self._literal(argument, text) for argument in node.args[1:]]
        options = {str(k.arg): self._literal(k.value, text) for k in node.keywords}
        if _RANGE_OPTIONS & set(options) or len(args) > (2 if name == "poly" else 1):
            self._refuse(
                text,
                f"{name} covers the declared range of its column, and takes options by name",
                f"{name}(x, df=...) or {name}(x, knots=[...])",
            )
        try:
            made = smooth(name, part, args, options)
        except Exception as error:  # formulaic's words about public arguments
            said = str(error).rstrip(".")
            raise FormulaError(f"Term {text!r}: {said}. Write {_USAGE[name]}.") from None
        if not len(made.bounds):
            self._refuse(text, f"{name} makes no column of it", _USAGE[name])
        return made

    def _literal(self, node: ast.expr, text: str) -> Any:
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError):  # TypeError: {[]: 0}
            self._refuse(
                text,
                f"{ast.unparse(node)!r} is no constant; Python variables are not captured",
                "its value into the formula",
            )

    def _name(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Call) and dotted(node.func) == "Q" and len(node.args) == 1:
            quoted = getattr(node.args[0], "value", None)
            return quoted if isinstance(quoted, str) else None
        return None

    # Refusals: each says what to write instead.

    def _refuse(self, text: str, why: str, instead: str) -> NoReturn:
        raise FormulaError(f"Term {text!r}: {why}. Write {instead}.")

    def _undeclared(self, name: str, text: str) -> NoReturn:
        raise FormulaError(
            f"Term {text!r} uses {name!r}, which the schema does not declare.{self._meant(name)} "
            f"If it is a column, add {name!r} to the schema; if it is a Python variable, write its "
            "value into the formula."
        )

    def _meant(self, name: str) -> str:
        alike = look_alike(name, self.schema)
        read = any(unicodedata.normalize("NFKC", other) == name for other in self.schema)
        why = " Within a call Python reads such a letter as another one: write it in backticks."
        return f" {alike}{why * read}" if alike else ""

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
        if f"np.{name}" in ALLOWED:
            self._refuse(text, f"{name}() is not known by that name", f"np.{name}(...)")
        if name in ALLOWED:
            self._refuse(
                text,
                f"{shown!r} has the wrong number or kind of arguments",
                f"{name}() with plain positional arguments",
            )
        if name == "i":  # pyfixest's
            self._refuse(text, "there is no function i() for terms", "C(g), or C(g):x for slopes")
        real = hasattr(np, method) or method in _OTHER_ROWS
        if name and root in ("", "np", "numpy") and not real:  # a slip of the pen
            written = (name, f"np.{method}")
            if close := [
                c for w in written for c in difflib.get_close_matches(w, _NAMES, 1, _ALIKE)
            ]:
                self._refuse(
                    text, f"there is no function {name}() for terms", f"{close[0]}(...), if meant"
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
