"""Which rows a model is fitted on: an expression of declared columns, evaluated row by row.

It is parsed and never run, under the guard of formulas: numbers are what `Terms` makes of them, and
all else is listed here. A row outside contributes nothing, like an incomplete one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from dpstats.design.operations import COMPARISONS, Expression
from dpstats.design.public import typical_table
from dpstats.design.syntax import dotted
from dpstats.design.terms import Terms
from dpstats.errors import FormulaError, given
from dpstats.schema import Boolean, Categorical, Declaration

__all__ = ["RowSubset", "read_subset"]

Mask = NDArray[np.bool_]
Rows = Mapping[str, Any]
Rule = Callable[[Rows], Mask]

_LONGEST, _NODES, _DEEPEST = 2_000, 500, 40  # characters, parts and nesting of an expression
_TYPICAL = 4096  # made-up rows that a share is guessed of
_TOKENS = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]+`|&&?|\|\|?|~""")
_WORDS = {"&": " and ", "&&": " and ", "|": " or ", "||": " or ", "~": " not "}
_EXAMPLE = "subset=\"urban & age >= 18 & region in ['north', 'east']\""


class RowSubset(NamedTuple):
    """Rows that a model is of: the text, its rule, and the declared columns that it reads.

    The rule takes coerced columns, none of whose values is missing.
    """

    text: str
    evaluate: Rule
    declarations: Mapping[str, Declaration]

    def guessed_share(self) -> float:
        """Share of the rows that is inside, as the schema guesses columns one by one; public."""
        made = typical_table(self.declarations, self.declarations, _TYPICAL)  # type: ignore[arg-type]
        rows = {name: d.coerce(made[name], name)[0] for name, d in self.declarations.items()}
        return float(np.clip(self.evaluate(rows).mean(), 1 / _TYPICAL, 1.0))


def read_subset(text: object, terms: Terms) -> RowSubset:
    """The rows that an expression means, such as ``"urban & age >= 18"``.

    ``&``, ``|`` and ``~`` bind as ``and``, ``or`` and ``not`` do, as in pandas' ``query``. A number
    is compared with numbers, after it was held to its declared range; a factor with its levels.

    Raises
    ------
    FormulaError
        If it is no such expression, reads a column that is not declared, or names a level that is
        not; says what to write instead.
    """
    if not isinstance(text, str):
        raise FormulaError(f"subset={given(text)}: a text is needed, such as {_EXAMPLE}.")
    shown = text.replace("\t", "").replace("\u00a0", "")  # names of columns may hold them
    if not text.strip() or len(text) > _LONGEST or not shown.isprintable():
        raise FormulaError(
            f"subset={given(text)}: an expression of 1 to {_LONGEST:,} printable characters is "
            f"needed, such as {_EXAMPLE}."
        )
    reader = _SubsetReader(terms, text.strip())
    rule = reader.rule(reader.tree())
    if not reader.columns:
        reader.refuse("it reads no column", _EXAMPLE)
    declared = {name: terms.schema[name] for name in sorted(reader.columns)}
    return RowSubset(text.strip(), rule, declared)


class _SubsetReader:
    """One expression on its way to a rule."""

    def __init__(self, terms: Terms, text: str) -> None:
        self._terms, self._text = terms, text
        self.columns: set[str] = set()

    def refuse(self, why: str, instead: str) -> NoReturn:
        raise FormulaError(f"subset={self._text!r}: {why}. Write {instead}.")

    def tree(self) -> ast.expr:
        """Its syntax tree, of bounded size; names in backticks become Q('name')."""

        def written(found: re.Match[str]) -> str:
            token = found[0]
            return f"Q({token[1:-1]!r})" if token[0] == "`" else _WORDS.get(token, token)

        try:
            tree = ast.parse(_TOKENS.sub(written, self._text).strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self.refuse("it cannot be parsed", _EXAMPLE)
        level, size = [tree], 0  # of one depth at a time: nothing recurs before it is bounded
        for _ in range(_DEEPEST):
            size += len(level)
            level = [child for node in level for child in ast.iter_child_nodes(node)]  # type: ignore[misc]
            if not level or size > _NODES:
                break
        if level:
            self.refuse("it has too many parts, or too many inside of each other", "a shorter one")
        return tree

    def rule(self, node: ast.expr) -> Rule:
        """Whether a row is inside."""
        match node:
            case ast.BoolOp(op=op, values=values):
                parts = [self.rule(value) for value in values]
                whole = np.logical_and if isinstance(op, ast.And) else np.logical_or
                return lambda rows: whole.reduce([part(rows) for part in parts])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self.rule(operand)
                return lambda rows: ~inner(rows)
            case ast.Compare():
                sides = [node.left, *node.comparators]
                links = zip(node.ops, sides, sides[1:], strict=False)
                each = [self._comparison(op, a, b) for op, a, b in links]
                return lambda rows: np.logical_and.reduce([one(rows) for one in each])
        name = self._name(node)
        if name is None:
            self.refuse(f"{ast.unparse(node)!r} is no comparison of columns", _EXAMPLE)
        return self._flag(name)

    def _flag(self, name: str) -> Rule:
        if not isinstance(self._declared(name), Boolean):
            self.refuse(
                f"{name!r} is not declared Boolean, so it is neither true nor false",
                f"a comparison, such as {self._compared(name)}",
            )
        return lambda rows: np.asarray(rows[name]) != 0

    def _comparison(self, op: ast.cmpop, left: ast.expr, right: ast.expr) -> Rule:
        if isinstance(op, (ast.In, ast.NotIn)):
            return self._one_of(left, self._listed(right), isinstance(op, ast.NotIn))
        if type(op) not in COMPARISONS:
            self.refuse(f"a comparison in {self._text!r} is not known", "== != < <= > >= in")
        for column, other in ((left, right), (right, left)):
            name = self._name(column)
            if name is not None and isinstance(self._declared(name), Categorical):
                if not isinstance(op, (ast.Eq, ast.NotEq)):
                    self.refuse(f"levels of {name!r} have no order here", self._compared(name))
                return self._one_of(column, [self._constant(other)], isinstance(op, ast.NotEq))
        a, b = self._measured(left), self._measured(right)
        if not (a.columns or b.columns):
            self.refuse(f"{ast.unparse(left)!r} is compared and reads no column", _EXAMPLE)
        self.columns |= a.columns | b.columns
        compare = COMPARISONS[type(op)]
        return lambda rows: np.asarray(compare(a.evaluate(rows), b.evaluate(rows)), dtype=np.bool_)

    def _measured(self, node: ast.expr) -> Expression:
        try:
            return self._terms.number(node, self._text)
        except OverflowError:
            self.refuse("a number is too large", "a smaller one")

    def _one_of(self, node: ast.expr, values: Sequence[Any], out: bool) -> Rule:
        """Whether a column has one of some values, or none of them."""
        name = self._name(node)
        if name is None:
            self.refuse(f"{ast.unparse(node)!r} is no column", "in and == with a declared column")
        declared = self._declared(name)
        if isinstance(declared, Categorical):
            wanted: list[Any] = [declared.code_of(value) for value in values]
            for value, code in zip(values, wanted, strict=True):
                if code is None:
                    levels = ", ".join(map(repr, declared.levels[:12]))
                    self.refuse(f"{given(value)} is no level of {name!r}", f"one of {levels}")
        else:
            wanted = [self._number(value) for value in values]
        return lambda rows: np.isin(rows[name], wanted, invert=out)

    def _listed(self, node: ast.expr) -> list[Any]:
        if not isinstance(node, (ast.List, ast.Tuple, ast.Set)) or not node.elts:
            self.refuse(f"{ast.unparse(node)!r} is no list of values", "in ['a', 'b']")
        return [self._constant(each) for each in node.elts]

    def _constant(self, node: ast.expr) -> Any:
        """A number or a text that is written out."""
        try:
            value = ast.literal_eval(node)
        except (ValueError, TypeError):
            value = None
        if not isinstance(value, (str, int, float)):
            self.refuse(
                f"{ast.unparse(node)!r} is no constant; Python variables are not captured",
                "its value into the expression",
            )
        return value

    def _number(self, value: Any) -> float:
        if isinstance(value, str):
            self.refuse(f"{given(value)} is no number", "a number, or declare levels")
        try:
            return float(value)
        except OverflowError:
            self.refuse("a number is too large", "a smaller one")

    def _name(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Call) and dotted(node.func) == "Q" and len(node.args) == 1:
            quoted = getattr(node.args[0], "value", None)
            return quoted if isinstance(quoted, str) else None
        return None

    def _declared(self, name: str) -> Declaration:
        if name not in self._terms.schema or name == self._terms.schema.unit:
            self._terms.column(name, self._text)  # refuses what is not declared
            self.refuse(f"{name!r} is no column that may be read", "declared columns")
        self.columns.add(name)
        return self._terms.schema[name]

    def _compared(self, name: str) -> str:
        declared = self._terms.schema[name]
        value = declared.levels[0] if isinstance(declared, Categorical) else 1
        written = name if name.isidentifier() else f"`{name}`"
        return f"{written} == {value!r}"
