"""What is proved about a method: estimand, assumptions, rates as data, lower bound, citation.

Rates are products of powers of named symbols, so that tables, plots, planners and tests read the
same numbers. Constants that a theorem does not state are 1 and every report says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

__all__ = ["Assumption", "Citation", "Rate", "Setting", "Theory"]


@dataclass(frozen=True, slots=True)
class Setting:
    """The public facts at which a rate is evaluated.

    Attributes
    ----------
    n : float
        Rows (public, or a public guess).
    d : int
        Columns of the design.
    epsilon, delta : float
        The guarantee asked for.
    s : int, optional
        Sparsity, for sparse methods.
    """

    n: float
    d: int
    epsilon: float
    delta: float
    s: int | None = None

    @property
    def symbols(self) -> dict[str, float]:
        """Value of every symbol a `Rate` may use."""
        tiny = max(self.delta, 1e-300)
        return {
            "n": self.n,
            "d": float(self.d),
            "s": float(self.s if self.s is not None else self.d),
            "eps": self.epsilon,
            "log_n": math.log(max(self.n, math.e)),
            "log_d": math.log(max(self.d, math.e)),
            "log_1_delta": math.log(1 / tiny),
        }


@dataclass(frozen=True, slots=True)
class Rate:
    """One term of a bound, ``product of symbol ** exponent`` with the constant set to 1.

    Attributes
    ----------
    term : str
        ``"statistical"``, ``"privacy"`` or ``"heterogeneity"``.
    exponents : mapping of str to float
        Keys are those of `Setting.symbols`.
    formula : str
        The same term as a reader would print it.
    """

    term: str
    exponents: Mapping[str, float]
    formula: str

    def value(self, setting: Setting) -> float:
        """The term at `setting`."""
        symbols = setting.symbols
        return math.prod(symbols[name] ** power for name, power in self.exponents.items())


@dataclass(frozen=True, slots=True)
class Assumption:
    """A condition of a theorem; ``holds(setting)`` is None where public facts cannot tell."""

    statement: str
    check: Callable[[Setting], bool] | None = None

    def holds(self, setting: Setting) -> bool | None:
        """Whether the condition holds at `setting`, None if that cannot be known."""
        return None if self.check is None else self.check(setting)


@dataclass(frozen=True, slots=True)
class Citation:
    """A source, with the theorem or algorithm that is used."""

    key: str
    authors: str
    title: str
    year: int
    venue: str
    locator: str = ""

    def text(self) -> str:
        """One line for a table or a docstring."""
        where = f", {self.locator}" if self.locator else ""
        return f"{self.authors} ({self.year}). {self.title}. {self.venue}{where}."

    def bibtex(self) -> str:
        """A BibTeX entry."""
        fields = {
            "author": self.authors,
            "title": "{" + self.title + "}",
            "year": str(self.year),
            "howpublished": self.venue,
            "note": self.locator,
        }
        body = "".join(f"  {k} = {{{v}}},\n" for k, v in fields.items() if v)
        return f"@misc{{{self.key},\n{body}}}"


@dataclass(frozen=True)
class Theory:
    """What is known about a method under one trust model.

    Attributes
    ----------
    estimand : str
        The population quantity that the point estimate converges to.
    guarantee : str
        The privacy theorem in one sentence.
    assumptions : tuple of Assumption
        For the error bound, never for the privacy guarantee, which holds for every data set.
    upper, lower : tuple of Rate
        Terms of the upper bound, and of the minimax lower bound.
    citations : tuple of Citation
        Sources; the first is the method's own.
    corrections : tuple of str
        Where the shipped method departs from the printed one, and why.
    """

    estimand: str
    guarantee: str
    assumptions: tuple[Assumption, ...]
    upper: tuple[Rate, ...]
    lower: tuple[Rate, ...]
    citations: tuple[Citation, ...]
    corrections: tuple[str, ...] = field(default=())
