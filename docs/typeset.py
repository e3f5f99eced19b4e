"""Formulas of the registry as LaTeX: the grammar of `dpstats.theory.arithmetic`, set in type."""

from __future__ import annotations

import re

__all__ = ["latex"]

_TOKEN = re.compile(r"\s*(\d+(?:\.\d+)?|[A-Za-z]\w*|>~|>=|<=|[-+/^(),=<>])")
_NAMES = {"n0": "n_0", "eps": r"\varepsilon", "delta": r"\delta", "eta": r"\eta", "mu": r"\mu"}
_RELATIONS = {">~": r"\gtrsim", ">=": r"\ge", "<=": r"\le", "<": "<", ">": ">"}


def latex(formula: str) -> str:
    """A printed formula, without dollars."""
    return _Setter(_TOKEN.findall(formula)).formula()


class _Setter:
    """Recursive descent over the tokens; each method returns what it read as LaTeX."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens[::-1]
        self.depth = 0  # of roots and functions, in which quotients stay on the line

    @property
    def next(self) -> str:
        return self.tokens[-1] if self.tokens else ""

    def formula(self) -> str:
        parts = [self.sum()]
        while self.tokens:
            sign = self.tokens.pop()
            parts.append(_RELATIONS.get(sign, {",": r",\; "}.get(sign, sign)))
            parts.append(self.sum())
        return " ".join(parts)

    def sum(self) -> str:
        text = self.product()
        while self.next in ("+", "-"):
            text += f" {self.tokens.pop()} {self.product()}"
        return text

    def product(self) -> str:
        factors = [self.power()]
        while self.next == "(" or self.next[:1].isalnum():
            factors.append(self.power())
        above = r" \, ".join(factors)
        if self.next != "/":
            return above
        self.tokens.pop()
        below = self.power()
        if self.depth:
            return f"{above}/{below}"
        return rf"\frac{{{_bare(above) if len(factors) == 1 else above}}}{{{_bare(below)}}}"

    def power(self) -> str:
        base = self.atom()
        if self.next != "^":
            return base
        self.tokens.pop()
        self.depth += 1
        exponent = _bare(self.atom())
        self.depth -= 1
        if base.startswith(r"\log"):
            return rf"\log^{{{exponent}}}{base[4:]}"
        return f"{base}^{{{exponent}}}"

    def atom(self) -> str:
        token = self.tokens.pop()
        if token == "(":
            inside = self.sum()
            self.tokens.pop()
            return rf"\left({inside}\right)"
        if token in ("sqrt", "log", "max"):
            self.depth += 1
            inside = _bare(self.atom()) if token == "sqrt" else self.arguments()
            self.depth -= 1
            if token == "sqrt":
                return rf"\sqrt{{{inside}}}"
            short = inside.lstrip("\\").isalnum()
            return rf"\{token} {inside}" if short else rf"\{token}\left({inside}\right)"
        return _NAMES.get(token, token)

    def arguments(self) -> str:
        self.tokens.pop()
        inside = [self.sum()]
        while self.tokens.pop() == ",":
            inside.append(self.sum())
        return ", ".join(inside)


def _bare(text: str) -> str:
    """Without the parentheses around all of it."""
    inner = text.removeprefix(r"\left(").removesuffix(r"\right)")
    whole = len(text) - len(inner) == len(r"\left(\right)")
    return inner if whole and _closed(inner) else text


def _closed(text: str) -> bool:
    depth = 0
    for sign in re.findall(r"\\left\(|\\right\)", text):
        depth += 1 if "left" in sign else -1
        if depth < 0:
            return False
    return depth == 0
