"""What is proved about a method: estimand, assumptions, rates as data, lower bound, citation.

Rates are products of powers of named symbols, so that tables, plots, planners and tests read the
same numbers. Constants that a theorem does not state are 1 and every report says so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from html import escape
from typing import TYPE_CHECKING

from dpstats.text import grid, wrap

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Assumption",
    "BoundTerm",
    "Citation",
    "Condition",
    "ErrorBound",
    "Rate",
    "Setting",
    "Theory",
    "error_bound",
    "rate_terms",
]


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
    source : str, optional
        Key of the citation that proves it; the method's own when empty.
    """

    term: str
    exponents: Mapping[str, float]
    formula: str
    source: str = ""

    def value(self, setting: Setting) -> float:
        """The term at `setting`."""
        symbols = setting.symbols
        return math.prod(float(symbols[name] ** power) for name, power in self.exponents.items())


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
            "author": " and ".join(re.split(r"(?<=\.),\s+|\s+and\s+", self.authors)),
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


@dataclass(frozen=True, slots=True)
class BoundTerm:
    """One number of an error bound.

    Attributes
    ----------
    tier : str
        ``"exact"`` (known law, given the release), ``"plug-in"`` (estimated, under assumptions) or
        ``"rate"`` (a theorem's rate with its constants set to 1).
    side : str
        ``"upper"``, ``"lower"``, or ``"equal"`` where the number is no bound but the value itself.
    term : str
        ``"statistical"``, ``"privacy"``, ``"heterogeneity"`` or ``"total"``.
    quantity : str
        What is measured: ``"E||error||"``, ``"95% radius"``, ``"sd(age)"``, ...
    value : float
        Norms are in standardised units, ``sd(...)`` in the user's units.
    formula : str
        How the number was computed.
    source : str
        Where the formula comes from.
    """

    tier: str
    side: str
    term: str
    quantity: str
    value: float
    formula: str
    source: str


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of the theorem, judged at the public facts; None where they cannot tell."""

    statement: str
    holds: bool | None

    @property
    def verdict(self) -> str:
        """``"holds"``, ``"FAILS HERE"`` or ``"unknown"``."""
        return {True: "holds", False: "FAILS HERE", None: "unknown"}[self.holds]


_TIERS = {
    "exact": "1 exact, given release",
    "plug-in": "2 plug-in estimate",
    "rate": "3 rate, constants = 1",
}
_TERMS = ("statistical", "privacy", "heterogeneity", "total")


@dataclass(frozen=True, repr=False)
class ErrorBound:
    """How far the estimate may be from its estimand, in three labelled tiers.

    The *exact* tier is the known law of the last noise given the earlier releases: no unknown
    constant, no assumption about the data. The *plug-in* tier adds the estimated sampling error
    and needs the assumptions. The *rate* tier evaluates the theorem with every constant set to 1:
    it says how the error moves with n, d and epsilon, and is not a bound on this estimate.

    Attributes
    ----------
    terms : tuple of BoundTerm
        All numbers.
    assumptions : tuple of Condition
        Conditions of the theorem and whether they hold here.
    theorem : str
        Source of the upper rate.
    estimand : str
        The population quantity that the error is measured from.
    citations : tuple of Citation
        Sources; the first is the method's own.
    corrections : tuple of str
        Where the method departs from its printed form.
    """

    terms: tuple[BoundTerm, ...]
    assumptions: tuple[Condition, ...] = ()
    theorem: str = ""
    estimand: str = ""
    citations: tuple[Citation, ...] = ()
    corrections: tuple[str, ...] = ()

    def value(self, tier: str, side: str, term: str, quantity: str | None = None) -> float:
        """One number, nan where the bound has none."""
        for t in self.terms:
            if (t.tier, t.side, t.term) == (tier, side, term) and quantity in (None, t.quantity):
                return t.value
        return math.nan

    @property
    def ratio(self) -> float:
        """Upper rate over lower rate; nan without a lower bound."""
        return self.value("rate", "upper", "total") / self.value("rate", "lower", "total")

    def failing(self) -> tuple[str, ...]:
        """Conditions of the theorem that do not hold here."""
        return tuple(c.statement for c in self.assumptions if c.holds is False)

    def to_frame(self) -> pd.DataFrame:
        """Every term as a row: tier, side, term, quantity, value, formula, source."""
        import pandas as pd

        columns = [f.name for f in fields(BoundTerm)]
        return pd.DataFrame([[getattr(t, c) for c in columns] for t in self.terms], columns=columns)

    def assumptions_frame(self) -> pd.DataFrame:
        """The theorem's conditions: statement, holds (True, False or None)."""
        import pandas as pd

        rows = [[c.statement, c.holds] for c in self.assumptions]
        return pd.DataFrame(rows, columns=["assumption", "holds"], dtype=object)

    def table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Header and rows of the norms, terms side by side: what the summary prints."""
        shown = [t for t in self.terms if not t.quantity.startswith("sd(")]
        used = [name for name in _TERMS if any(t.term == name for t in shown)]
        keys = dict.fromkeys((t.tier, t.quantity, t.side) for t in shown)
        rows: list[tuple[str, ...]] = []
        for tier, quantity, side in keys:
            cells = {
                t.term: t.value
                for t in shown
                if (t.tier, t.quantity, t.side) == (tier, quantity, side)
            }
            numbers = (f"{cells[name]:.4g}" if name in cells else "" for name in used)
            rows.append((_TIERS.get(tier, tier), quantity, *numbers))
        return ("tier", "norm of the error", *used), rows

    def formulas(self) -> list[str]:
        """The rates in words, with the ratio of upper to lower and the theorem."""
        lines = []
        for side in ("upper", "lower"):
            parts = [
                f"{t.formula} ({t.term})"
                for t in self.terms
                if (t.tier, t.side) == ("rate", side) and t.term != "total"
            ]
            if parts:
                source = next(t.source for t in self.terms if (t.tier, t.side) == ("rate", side))
                lines.append(f"{side.capitalize()} rate: {' + '.join(parts)}. {source}")
        if not math.isnan(self.ratio):
            lines.append(f"Upper over lower rate: {self.ratio:.3g} (both with constants 1).")
        return lines

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"

    def __repr__(self) -> str:
        header, rows = self.table()
        table = grid(header, rows, numbers=range(2, len(header)))
        conditions = [f"  [{c.verdict}] {c.statement}" for c in self.assumptions]
        name = f"Error bound. Estimand: {self.estimand}." if self.estimand else "Error bound."
        return "\n".join(
            [
                *wrap([name]),
                table[1],
                *table,
                table[1],
                *wrap([UNITS, *self.formulas()]),
                *(["Conditions of the theorem:"] if conditions else []),
                *wrap(conditions, indent="    "),
            ]
        )


UNITS = (
    "Norms are l2, in standardised units (columns, and the response of a linear model, divided by "
    "their public scales); sd(...) in to_frame() are in your units. A rate is not a bound: its "
    "constants are set to 1."
)


def rate_terms(theory: Theory, setting: Setting) -> tuple[BoundTerm, ...]:
    """The rate tier of `theory` at `setting`: each term, and the totals of both sides."""
    sources = {c.key: c.text() for c in theory.citations}
    own = theory.citations[0].text() if theory.citations else ""
    terms = []
    for side, rates in (("upper", theory.upper), ("lower", theory.lower)):
        if not rates:
            continue
        for rate in rates:
            source = sources.get(rate.source, rate.source or own)
            terms.append(
                BoundTerm(
                    "rate",
                    side,
                    rate.term,
                    f"{side} rate",
                    rate.value(setting),
                    rate.formula,
                    source,
                )
            )
        formula = " + ".join(r.formula for r in rates)
        total = sum(r.value(setting) for r in rates)
        source = terms[-1].source
        terms.append(BoundTerm("rate", side, "total", f"{side} rate", total, formula, source))
    return tuple(terms)


def error_bound(
    theory: Theory, setting: Setting, measured: tuple[BoundTerm, ...] = ()
) -> ErrorBound:
    """Join the measured tiers (none before a fit) to the theorem's rate at `setting`."""
    return ErrorBound(
        terms=(*measured, *rate_terms(theory, setting)),
        assumptions=tuple(Condition(a.statement, a.holds(setting)) for a in theory.assumptions),
        theorem=theory.citations[0].text() if theory.citations else "",
        estimand=theory.estimand,
        citations=theory.citations,
        corrections=theory.corrections,
    )
