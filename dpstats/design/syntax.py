"""What a term may be made of: the tables of names, and how its text becomes a syntax tree."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Collection, Mapping
from typing import NoReturn

from dpstats.design.expansion import check_term
from dpstats.design.operations import COMPARISONS, FUNCTIONS, OPERATORS
from dpstats.design.smooth import BASES
from dpstats.design.written import Written
from dpstats.errors import FormulaError
from dpstats.stored import LARGEST

__all__ = [
    "ALLOWED",
    "CENTERED",
    "CONTRASTS",
    "check_stored",
    "dotted",
    "parse_term",
]

CENTERED = ("center", "scale", "standardize")
CONTRASTS = frozenset(
    ["Treatment", "Sum", "Helmert", "Poly", "Diff"]
    + [f"contr.{name}" for name in ("treatment", "sum", "helmert", "poly", "diff", "SAS")]
)
ALLOWED = frozenset([*itertools.chain(*FUNCTIONS.values()), *BASES, *CENTERED, "C", "Q"])


def parse_term(text: str) -> ast.expr:
    """Syntax tree of a term; quoted names become Q('name').

    Raises
    ------
    SyntaxError
        If the text is no expression.
    FormulaError
        If it is longer or nests deeper than a term may.
    """
    written = Written.of(text, term=True)
    return written.tree(written.text)


def dotted(node: ast.expr) -> str:
    """``np.log`` for the syntax tree of ``np.log``; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return ""


# A formula from a file -------------------------------------------------------------------------


def check_stored(text: str, columns: Collection[str], variables: Mapping[str, object]) -> None:
    """Refuse a formula of a file unless it calls nothing but the operations of the tables.

    Columns were public when it was fitted, so it has no bounds that `Terms` could derive; the
    operations are the same. Whatever passes is arithmetic, calls of functions in `ALLOWED` by their
    names, and constants: it reaches no attribute, no other function and no other name.

    Parameters
    ----------
    text : str
        Right side of a formula.
    columns : collection of str
        Columns of the table that it may read.
    variables : mapping
        Numbers, texts and lists of them that it may name.

    Raises
    ------
    FormulaError
        Naming the term.
    """
    written = Written.of(text)
    for term, name in written.factors(written.text):
        stored = _StoredTerm(written.visible(term), columns, variables)
        if not name:
            check_term(written, term, variables)
            stored.check(written, term)
        elif written.column(term) not in {*columns, *variables}:
            stored.refuse(repr(written.column(term)))


class _StoredTerm:
    """One term of a file."""

    def __init__(
        self, text: str, columns: Collection[str], variables: Mapping[str, object]
    ) -> None:
        self._text, self._columns, self._variables = text, columns, variables

    def refuse(self, what: str) -> NoReturn:
        raise FormulaError(
            f"Term {self._text!r} cannot predict new rows: a formula that was read from a file may "
            f"use the operations that are allowed on private rows, and {what} is none of them. "
            "Fit the model in this session to predict with it, or compute the column before the "
            "fit."
        )

    def check(self, written: Written, text: str) -> None:
        try:
            self._reads_column(written.tree(text))
        except (SyntaxError, RecursionError):
            raise FormulaError(f"Term {self._text!r} cannot be parsed.") from None

    def _reads_column(self, node: ast.expr) -> bool:
        """Check a node; whether its value is one of every row. Numbers are at most `LARGEST`."""
        match node:
            case ast.Constant(value=int() | float() as value) if abs(value) <= LARGEST:
                return False
            case ast.Name(id=name) if name in self._columns:
                return True
            case ast.Name(id=name) if isinstance(self._variables.get(name), (int, float)):
                return False
            case ast.UnaryOp(op=op, operand=operand) if type(op) in OPERATORS:
                return self._reads_column(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                found = self._any(left, right)
                if isinstance(op, ast.Pow) and not found:  # 9 ** 9 ** 9 would never end
                    self.refuse(f"a power of constants, {ast.unparse(node)!r},")
                return found
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARISONS:
                return self._any(*(side for side in (left, right) if not _is_text(side)))
            case ast.Call():
                return self._call(node)
        self.refuse(repr(ast.unparse(node)))

    def _any(self, *nodes: ast.expr) -> bool:
        return any([self._reads_column(node) for node in nodes])  # a list: every one is checked

    def _call(self, node: ast.Call) -> bool:
        name, options = dotted(node.func), [*node.args[1:], *(k.value for k in node.keywords)]
        named = all(k.arg is not None and not k.arg.startswith("_") for k in node.keywords)
        if name == "Q" and len(node.args) == 1 and not options and _is_text(node.args[0]):
            if node.args[0].value in self._columns:  # type: ignore[attr-defined]
                return True
        elif name == "C" and node.args and named:
            return self._reads_column(node.args[0]) and all(map(self._contrast, options))
        elif (name in BASES or name in CENTERED) and node.args and named:
            return self._reads_column(node.args[0]) and all(map(self._option, options))
        elif name in FUNCTIONS.get(len(node.args), {}) and not node.keywords:
            return self._any(*node.args)
        self.refuse(repr(ast.unparse(node)))

    def _contrast(self, node: ast.expr) -> bool:
        if dotted(node.func if isinstance(node, ast.Call) else node) not in CONTRASTS:
            return self._option(node)
        if isinstance(node, ast.Call):
            return all(map(self._option, [*node.args, *(k.value for k in node.keywords)]))
        return True

    def _option(self, node: ast.expr) -> bool:
        """A constant, a list of constants, or a variable that is kept."""
        if isinstance(node, ast.Name) and node.id in self._variables:
            return True
        try:
            ast.literal_eval(node)
        except (ValueError, TypeError):
            self.refuse(repr(ast.unparse(node)))
        return True


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
