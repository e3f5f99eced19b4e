"""What a term may be made of: the tables of names, and how its text becomes a syntax tree."""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import NoReturn

from dpstats.design.operations import COMPARISONS, FUNCTIONS, OPERATORS
from dpstats.design.smooth import BASES
from dpstats.errors import FormulaError
from dpstats.stored import LARGEST

__all__ = [
    "ALLOWED",
    "CENTERED",
    "CONTRASTS",
    "check_stored",
    "dotted",
    "most_terms",
    "parse_term",
    "reason",
    "written_factors",
]

CENTERED = ("center", "scale", "standardize")
CONTRASTS = frozenset(
    ["Treatment", "Sum", "Helmert", "Poly", "Diff"]
    + [f"contr.{name}" for name in ("treatment", "sum", "helmert", "poly", "diff", "SAS")]
)
ALLOWED = frozenset([*itertools.chain(*FUNCTIONS.values()), *BASES, *CENTERED, "C", "Q"])
_QUOTED = "__quoted_{}__"


def parse_term(text: str) -> ast.expr:
    """Syntax tree of a term; names in backticks become Q('name').

    Formulaic finds the backticks: the tree is that of the text which it would evaluate, so that no
    other reading of quotes can hide from the tables what formulaic then runs.

    Raises
    ------
    SyntaxError
        If the text is no expression.
    """
    quoted: dict[str, str] = {}
    try:
        if "`" in text:
            from formulaic.utils.code import sanitize_variable_names

            text = sanitize_variable_names(text, {}, quoted, template=_QUOTED)
        tree = ast.parse(text.strip(), mode="eval").body
    except (ValueError, IndexError, RecursionError, MemoryError):  # a null byte, ``, a deep nest
        raise SyntaxError from None
    named = {alias: name for alias, name in quoted.items() if alias != name}
    return _QuotedNames(named).visit(tree) if named else tree


class _QuotedNames(ast.NodeTransformer):
    """Puts Q('name') in the place of the aliases that stand for names in backticks."""

    def __init__(self, quoted: Mapping[str, str]) -> None:
        self._quoted = quoted

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self._quoted:
            return node
        return ast.Call(ast.Name("Q", ast.Load()), [ast.Constant(self._quoted[node.id])], [])


def dotted(node: ast.expr) -> str:
    """``np.log`` for the syntax tree of ``np.log``; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return ""


def written_factors(formula: str) -> Iterator[tuple[str, bool]]:
    """Every factor of a formula as formulaic will see it, and whether it is a name.

    The text is cut into tokens and nothing else: formulaic's parser looks up what a term calls by
    evaluating it, so terms that must not run are to be found before it gets the formula.

    Raises
    ------
    FormulaError
        If the formula cannot be cut into tokens.
    """
    from formulaic.parser.algos.sanitize_tokens import sanitize_tokens
    from formulaic.parser.algos.tokenize import tokenize

    try:
        tokens = list(sanitize_tokens(tokenize(formula)))
    except Exception as error:
        raise FormulaError(f"Formula {formula!r} cannot be parsed: {reason(error)}") from None
    for token in tokens:
        if token.kind is not None and token.kind.name in ("NAME", "PYTHON"):
            yield token.token, token.kind.name == "NAME"


_BINDS = {"~": 0, "|": 0, "+": 1, "-": 1, "*": 2, "/": 2, "%in%": 2, ":": 3, "**": 4, "^": 4}


def most_terms(formula: str, columns: int = 1) -> int:
    """A number of terms that a formula does not exceed when it is written out; it is not, here.

    ``.`` stands for so many columns. Of a and b terms there are at most a + b in their sum,
    (a + 1)(b + 1) - 1 in ``*``, a b in ``:``, and sum_{j <= k} C(a, j) in a power of k. But all a^k
    products are made before equal ones are dropped: where these are too many, or k is no number, it
    is `LARGEST`.

    Raises
    ------
    FormulaError
        If the formula cannot be cut into tokens, or they make no formula.
    """
    from formulaic.parser.algos.sanitize_tokens import sanitize_tokens
    from formulaic.parser.algos.tokenize import tokenize

    try:
        tokens = [(t.kind.name, t.token) for t in sanitize_tokens(tokenize(formula)) if t.kind]
        sizes, waiting, operand = list[tuple[int, float]](), list[str](), True
        products = 0.0
        for kind, text in tokens:
            if kind == "CONTEXT" and text in "([{":
                waiting.append("(")
                operand = True
            elif kind == "CONTEXT":
                while waiting[-1] != "(":
                    products += _written_out(sizes, waiting.pop())
                waiting.pop()
            elif text == ".":
                sizes.append((columns, math.inf))
                operand = False
            elif kind == "OPERATOR":
                if operand:  # a sign: of nothing before it
                    sizes.append((0, math.inf))
                while waiting and waiting[-1] != "(" and _BINDS[waiting[-1]] >= _BINDS[text]:
                    products += _written_out(sizes, waiting.pop())
                waiting.append(text)
                operand = True
            else:
                sizes.append((1, int(text) if text.isdigit() and len(text) < 6 else math.inf))
                operand = False
        while waiting:
            products += _written_out(sizes, waiting.pop())
        ((size, _),) = sizes
    except Exception as error:
        raise FormulaError(f"Formula {formula!r} cannot be parsed: {reason(error)}") from None
    return size if products <= _PRODUCTS else LARGEST


def _written_out(sizes: list[tuple[int, float]], operator: str) -> float:
    """Put the size of what an operator makes in the place of its operands' sizes and numbers.

    Returns how many factors are multiplied for a power, as `formulaic` does it.
    """
    (right, power), (left, _) = sizes.pop(), sizes.pop()
    products = 0.0
    if operator in ("**", "^"):
        deep = int(min(power, _DEEP))
        size = sum(math.comb(left, j) for j in range(1, min(deep, left) + 1))
        products = power * min(left**deep, LARGEST)
    elif operator in ("*", "/"):
        size = (left + 1) * (right + 1) - 1
    elif operator in (":", "%in%"):
        size = left * right
    else:
        size = left + right
    sizes.append((min(size, LARGEST), math.inf))
    return products


_DEEP = 64  # factors of a term: beyond it there are more terms than anybody reads
_PRODUCTS = 1e6  # of powers, factor by factor: two seconds or so


def reason(error: Exception, columns: Collection[Hashable] = ()) -> str:
    """The first line of an error, or its name; or which columns hide a function of formulas."""
    said = str(error).splitlines()[0] if str(error) else type(error).__name__
    if "is not callable" in said or "has no attribute" in said:
        hiding = [name for name in columns if isinstance(name, str) and name in ALLOWED | {"np"}]
        if hiding:
            names = ", ".join(map(repr, hiding))
            return f"column {names} has the name of a function that formulas call; rename it."
    return said


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
    for term, name in written_factors(text):
        stored = _StoredTerm(term, columns, variables)
        if not name:
            stored.check()
        elif term not in {*columns, *variables}:
            stored.refuse(repr(term))


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

    def check(self) -> None:
        try:
            self._reads_column(parse_term(self._text))
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
