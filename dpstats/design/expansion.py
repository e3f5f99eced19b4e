"""How large a formula gets, found before formulaic writes it out while it parses it."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from dpstats.design.written import MOST_OPERATIONS, Written, parsed_term
from dpstats.errors import FormulaError
from dpstats.stored import LARGEST

__all__ = ["MOST_TERMS", "check_expansion", "check_sizes", "check_term", "most_terms"]

MOST_TERMS = 1_000_000  # once written out: some ten seconds
MOST_PRODUCTS = 1_000_000  # that a power makes, before equal ones are dropped: two seconds or so
HIGHEST_POWER = 10  # of a sum of terms
MOST_FACTORS = 8  # of one term: its contrasts are 2^8 products, whose cost grows with their square
MOST_DF = 100  # columns of a spline or polynomial: building one takes a second
MOST_DEGREE = 60  # of their pieces: the bounds of higher ones are not proved (`smooth`)

# Of splines and polynomials: what says how large they are, in the order of their arguments.
_SIZES = {"poly": ("degree",), "bs": ("df", "knots", "degree")}
_SIZES |= dict.fromkeys(("cr", "cs", "cc"), ("df", "knots"))


class _Operand(NamedTuple):
    """Of what an operator joins: terms, factors of its largest and of all, and what a power is."""

    terms: int
    degree: int
    factors: int
    power: float = math.inf


class Expansion(NamedTuple):
    """Of a formula that is written out: see `expansion`."""

    terms: int
    degree: int
    power: float
    products: float


_BINDS = {"~": 0, "+": 1, "-": 1, "*": 2, "/": 2, "in": 2, ":": 3, "**": 4, "^": 4}


def expansion(written: Written, text: str, columns: int = 1) -> Expansion:
    """What a part of a formula does not exceed when it is written out; it is not, here.

    ``.`` stands for so many columns. Of a and b terms there are at most a + b in their sum,
    (a + 1)(b + 1) - 1 in ``*``, a b in ``:``, and sum_{j <= k} C(a, j) in a power of k, for which
    all a^k products are made first. A spline or polynomial counts as the terms that its columns
    are, signs as nothing.

    Raises
    ------
    FormulaError
        If it cannot be cut into tokens, they make no formula, or a basis is too large.
    """
    tokens = written.tokens(text)
    try:
        return _written_out(_in_order(written, tokens, columns))
    except FormulaError:
        raise
    except (IndexError, KeyError, ValueError):
        raise FormulaError(
            f"Formula {written.shown!r} cannot be parsed: an operator or a bracket lacks what "
            "belongs to it."
        ) from None


def _in_order(written: Written, tokens: Iterable[Any], columns: int) -> Iterator[_Operand | str]:
    """Operands, and operators after them (the shunting-yard algorithm)."""
    waiting, operand = list[str](), True
    for token in tokens:
        kind, text = token.kind.name, token.token
        if kind == "CONTEXT" and text in "([":
            waiting.append("(")
        elif kind == "CONTEXT":
            while waiting[-1] != "(":
                yield waiting.pop()
            waiting.pop()
        elif kind != "OPERATOR" or text == ".":
            count = columns if text == "." and kind == "OPERATOR" else 1
            if kind == "PYTHON":
                count = check_term(written, text)
            number = int(text) if text.isdecimal() and len(text) < 6 else math.inf
            yield _Operand(count, min(count, 1), count, number)
        for symbol in _symbols(text) if kind == "OPERATOR" and text != "." else ():
            if operand and symbol in "+-":
                continue
            if symbol == "|":
                raise FormulaError(
                    f"Formula {written.shown!r} has several parts; one left and one right side "
                    "are needed."
                )
            if operand:  # as in "~ x"
                yield _Operand(0, 0, 0)
            while waiting and waiting[-1] != "(" and _BINDS[waiting[-1]] >= _BINDS[symbol]:
                yield waiting.pop()
            waiting.append(symbol)
            operand = True
        operand = (kind == "OPERATOR" and text != ".") or (kind == "CONTEXT" and text in "([")
    yield from reversed(waiting)


def _symbols(text: str) -> Iterable[str]:
    for symbol in (found := [text] if text in _BINDS else list(text)):
        if symbol not in {*_BINDS, "|"}:
            raise FormulaError(
                f"{symbol!r} (U+{ord(symbol[0]):04X}) is no operator of formulas; a name that "
                "holds it is written in backticks, `like this`."
            )
    return found


def _written_out(parts: Iterable[_Operand | str]) -> Expansion:
    sizes, products, highest = list[_Operand](), 0.0, 0.0
    for part in parts:
        if isinstance(part, _Operand):
            sizes.append(part)
            continue
        right, left = sizes.pop(), sizes.pop()
        degree, factors = left.degree + right.degree, left.factors + right.factors
        if part in ("**", "^"):
            deep = int(min(right.power, _DEEP))
            terms = sum(math.comb(left.terms, j) for j in range(1, min(deep, left.terms) + 1))
            products += right.power * min(left.terms**deep, LARGEST)
            highest = max(highest, right.power)
            degree, factors = min(left.degree * deep, left.factors), left.factors
        elif part == "*":
            terms = (left.terms + 1) * (right.terms + 1) - 1
        elif part in ("/", "in"):
            terms = (left.terms + 1) * (right.terms + 1) - 1
            degree = factors
        elif part == ":":
            terms = left.terms * right.terms
        else:
            terms, degree = left.terms + right.terms, max(left.degree, right.degree)
        sizes.append(_Operand(min(terms, LARGEST), degree, factors))
    (whole,) = sizes
    return Expansion(whole.terms, whole.degree, highest, products)


_DEEP = 64  # factors of a term: beyond it there are more terms than anybody reads


def most_terms(formula: str, columns: int = 1) -> int:
    """A number of terms that a formula does not exceed; `LARGEST` if it cannot be written out.

    Raises
    ------
    FormulaError
        As `expansion`.
    """
    written = Written.of(formula)
    found = expansion(written, written.text, columns)
    return found.terms if found.products <= MOST_PRODUCTS else LARGEST


def check_expansion(written: Written, text: str, columns: int) -> None:
    """Refuse what cannot be written out, before formulaic writes it out.

    Raises
    ------
    FormulaError
        With the limit, and what was asked for.
    """
    if not text.strip():
        return
    found = expansion(written, text, columns)
    for asked, most, what in (
        (found.power, HIGHEST_POWER, "a sum of terms to the power of {}"),
        (found.degree, MOST_FACTORS, "a term of {} factors"),
        (found.products, MOST_PRODUCTS, "powers that are {} products"),
        (found.terms, MOST_TERMS, "{} terms"),
    ):
        if asked > most:
            given = f"{asked:,.0f}" if asked < LARGEST else f"more than {LARGEST:,.0f}"
            shown = what.format(given) if math.isfinite(asked) else "a power that is no number"
            raise FormulaError(f"The formula has {shown}; at most {most:,} can be written out.")


def check_term(written: Written, text: str, variables: Mapping[str, Any] | None = None) -> int:
    """Columns of a term by what it says of them: of a spline or polynomial many, otherwise 1.

    Raises
    ------
    FormulaError
        If it nests too deeply, or a basis has more columns or a higher degree than allowed.
    """
    try:
        tree, most = parsed_term(text), 0
    except SyntaxError:
        raise FormulaError(
            f"Term {written.visible(text)!r} cannot be parsed; a term has at most "
            f"{MOST_OPERATIONS} operations within each other."
        ) from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            most += check_sizes(node, written.visible(text), variables)
    return max(most, 1)


def check_sizes(call: ast.Call, text: str, variables: Mapping[str, Any] | None = None) -> int:
    """No fewer columns than a spline or polynomial makes; 0 of any other call.

    Raises
    ------
    FormulaError
        If it has more columns or a higher degree than allowed, of the term `text`.
    """
    most = 0
    for option, value in _asked(call, variables or {}):
        size = len(value) if isinstance(value, (list, tuple)) else value
        limit = MOST_DEGREE if option == "degree" else MOST_DF
        if isinstance(size, (int, float)) and not size <= limit:
            given = f"{option}={size:,}" if size is value else f"{size:,} {option}"
            raise FormulaError(
                f"Term {text!r} asks for {given}; at most {limit} are allowed: more bends than "
                "rows could tell apart."
            )
        most += int(size) + 4 if isinstance(size, (int, float)) else 0
    return most


def _asked(node: ast.Call, variables: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What a call of a basis says of its size."""
    options = _SIZES.get(node.func.id, ()) if isinstance(node.func, ast.Name) else ()
    given = dict(zip(options, node.args[1:], strict=False))
    given |= {k.arg: k.value for k in node.keywords if k.arg in options}
    for option, value in given.items():
        if isinstance(value, ast.Name):
            yield option, variables.get(value.id)
            continue
        try:
            yield option, ast.literal_eval(value)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            continue  # refused where it is read
