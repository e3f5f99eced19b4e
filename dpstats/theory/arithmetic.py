"""Numbers of printed formulas, so that what is printed and what is computed are one thing.

The grammar::

    formula     = sum [("<" | "<=" | ">" | ">=" | ">~") sum] {"," name "=" sum}
    sum         = product {("+" | "-") product}
    product     = power {power} ["/" power]
    power       = atom ["^" atom]
    atom        = number | name | function "(" sum {"," sum} ")" | "(" sum ")"

A product is written side by side and a quotient has one factor below the line, so that no reader
has to guess what is divided: ``d/(n eps)``. What follows a comma defines names: ``K s/n, K =
sqrt(d)``. Logarithms are natural, ``>~`` is ``>=`` with the constant 1.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache

__all__ = ["PrintedFormula", "sum_of_formulas"]

Symbols = Mapping[str, float]
Value = Callable[[Symbols], float]

_TOKEN = re.compile(r"\s*(\d+(?:\.\d+)?|[A-Za-z]\w*|>~|>=|<=|[-+/^(),=<>])")
_FUNCTIONS: dict[str, Callable[..., float]] = {
    "sqrt": math.sqrt,
    "log": math.log,
    "max": max,
}
_RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    ">~": operator.ge,
}


@dataclass(frozen=True, eq=False)
class PrintedFormula:
    """A formula that was read.

    Attributes
    ----------
    body : str
        The text without its definitions.
    definitions : mapping of str to str
        Names that the text defines, as written.
    free : frozenset of str
        Names that it leaves to the reader.
    """

    body: str
    definitions: Mapping[str, str]
    free: frozenset[str]
    _sides: tuple[Value, ...]
    _relation: Callable[[float, float], bool] | None
    _defined: Mapping[str, Value]

    @staticmethod
    @cache
    def of(text: str) -> PrintedFormula:
        """Read a formula.

        Raises
        ------
        ValueError
            If it cannot be read, or could be read in two ways.
        """
        return _Reader(text).formula()

    def value(self, symbols: Symbols) -> float:
        """The number; nan where the formula has no meaning, like a logarithm of zero."""
        return self._values(symbols)[0]

    def holds(self, symbols: Symbols) -> bool | None:
        """Whether the relation holds; None where a side is not known."""
        assert self._relation is not None, f"{self.body!r} states no relation"
        left, right = self._values(symbols)
        return None if math.isnan(left) or math.isnan(right) else self._relation(left, right)

    def _values(self, symbols: Symbols) -> list[float]:
        try:
            known = dict(symbols)
            for name, value in self._defined.items():
                known[name] = value(known)
            return [float(side(known)) for side in self._sides]
        except (ValueError, OverflowError, TypeError):  # TypeError: a root of a number below zero
            return [math.nan] * len(self._sides)


def sum_of_formulas(texts: Iterable[str]) -> str:
    """The sum of formulas as one formula, each name defined once."""
    found = [PrintedFormula.of(text) for text in texts]
    defined = {f"{k} = {v}": None for f in found for k, v in f.definitions.items()}
    return ", ".join([" + ".join(f.body for f in found), *defined])


def _divided(top: float, bottom: float) -> float:
    if bottom == 0:
        return math.inf if top > 0 else math.nan
    return top / bottom


class _Reader:
    """Recursive descent, one method a line of the grammar; each returns what computes it."""

    def __init__(self, text: str) -> None:
        self.text, self.tokens, end = text, list[tuple[str, int]](), 0
        while end < len(text.rstrip()):
            if (found := _TOKEN.match(text, end)) is None:
                raise ValueError(f"{text!r} cannot be read from {text[end:]!r} on.")
            end = found.end()
            self.tokens.append((found[1], end))
        self.at, self.free = 0, set[str]()

    @property
    def next(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def take(self, *expected: str) -> str:
        token = self.next
        if not token or (expected and token not in expected):
            raise ValueError(f"{self.text!r}: {' or '.join(expected) or 'more'} is expected.")
        self.at += 1
        return token

    def end(self) -> int:
        return self.tokens[self.at - 1][1]

    def formula(self) -> PrintedFormula:
        sides, relation = [self.sum()], None
        if self.next in _RELATIONS:
            relation = _RELATIONS[self.take()]
            sides.append(self.sum())
        body = self.text[: self.end()].strip()
        written: dict[str, str] = {}
        defined: dict[str, Value] = {}
        while self.next:
            self.take(",")
            name, start = self.take(), self.tokens[self.at][1] if self.next else 0
            self.take("=")
            defined[name] = self.sum()
            written[name] = self.text[start : self.end()].strip()
        free = frozenset(self.free - set(defined))
        return PrintedFormula(body, written, free, tuple(sides), relation, defined)

    def sum(self) -> Value:
        terms = [(1.0, self.product())]
        while self.next in ("+", "-"):
            sign = 1.0 if self.take() == "+" else -1.0
            terms.append((sign, self.product()))
        return lambda s: sum(sign * term(s) for sign, term in terms)

    def product(self) -> Value:
        factors = [self.power()]
        while self.starts_atom():
            factors.append(self.power())
        if self.next != "/":
            return lambda s: math.prod(factor(s) for factor in factors)
        self.take()
        below = self.power()
        if self.starts_atom() or self.next == "/":
            raise ValueError(f"{self.text!r}: put what is divided by into parentheses.")
        return lambda s: _divided(math.prod(factor(s) for factor in factors), below(s))

    def starts_atom(self) -> bool:
        return self.next == "(" or self.next[:1].isalnum()

    def power(self) -> Value:
        base = self.atom()
        if self.next != "^":
            return base
        self.take()
        exponent = self.atom()
        return lambda s: float(base(s) ** exponent(s))

    def atom(self) -> Value:
        token = self.take()
        if token in _FUNCTIONS:
            called, inner = _FUNCTIONS[token], self.arguments()
            return lambda s: called(*(value(s) for value in inner))
        if token == "(":
            inside = self.sum()
            self.take(")")
            return inside
        if token[0].isdigit():
            number = float(token)
            return lambda s: number
        if not token[0].isalpha():
            raise ValueError(f"{self.text!r}: {token!r} is not expected there.")
        self.free.add(token)
        return lambda s: s[token]

    def arguments(self) -> list[Value]:
        self.take("(")
        found = [self.sum()]
        while self.take(",", ")") == ",":
            found.append(self.sum())
        return found
