"""What is proved about a method: estimand, assumptions, rates, lower bound, citation.

Rates and conditions are formulas as a reader would print them, and are evaluated from that very
text, so that tables, plots, planners and tests read the same numbers. Constants that a theorem does
not state are 1 and every report says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from dpstats.text import grid, pre, wrap
from dpstats.theory.arithmetic import Formula, joined
from dpstats.theory.citations import Citation

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

NOT_APPLICABLE = "not applicable"


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
    m : int, optional
        Public rows beside the private ones.
    p : float, optional
        Half the order of the moments that the response has.
    """

    n: float
    d: int
    epsilon: float
    delta: float
    s: int | None = None
    m: int | None = None
    p: float | None = None

    @property
    def symbols(self) -> dict[str, float]:
        """Value of every symbol a formula may use; nan where it is not known."""
        known = {**{f.name: getattr(self, f.name) for f in fields(self)}, "eps": self.epsilon}
        del known["epsilon"]
        return {k: math.nan if v is None else float(v) for k, v in known.items()}


_SYMBOLS = frozenset(Setting(1, 1, 1.0, 0.5).symbols)


def _read(text: str) -> Formula:
    """The formula of a text that uses no other names than a setting's.

    Raises
    ------
    ValueError
        If it uses another that it does not define: constants are defined, ``C s/n, C = 1``.
    """
    formula = Formula.of(text)
    if unknown := sorted(formula.free - _SYMBOLS):
        raise ValueError(f"{text!r} does not say what {', '.join(unknown)} is.")
    return formula


@dataclass(frozen=True, slots=True)
class Assumption:
    """A condition of a theorem, in words, as a formula (`dpstats.theory.arithmetic`), or both."""

    words: str = ""
    formula: str = ""

    def __post_init__(self) -> None:
        if self.formula:
            _read(self.formula)

    @property
    def statement(self) -> str:
        """What is assumed, as printed."""
        return ": ".join(filter(None, (self.words, self.formula)))

    def holds(self, setting: Setting) -> bool | None:
        """Whether the formula holds at `setting`, None if that cannot be known."""
        return _read(self.formula).holds(setting.symbols) if self.formula else None


@dataclass(frozen=True, slots=True)
class Rate:
    """One term of a bound.

    Attributes
    ----------
    term : str
        ``"statistical"``, ``"privacy"`` or ``"heterogeneity"``.
    formula : str
        The term as its source prints it (`dpstats.theory.arithmetic`), in the symbols of `Setting`.
    source : Citation
        Who proves it, and where.
    conjectured : bool
        Whether the source proves it of another method, so that only the order is expected here.
    given : tuple of Assumption
        Conditions of this term beside those of the theory.
    """

    term: str
    formula: str
    source: Citation
    conjectured: bool = False
    given: tuple[Assumption, ...] = ()

    def __post_init__(self) -> None:
        _read(self.formula)

    def value(self, setting: Setting) -> float:
        """The term at `setting`; nan where it says nothing there (``log(1/delta)`` at 0)."""
        value = _read(self.formula).value(setting.symbols)
        return value if 0 < value < math.inf else math.nan

    @property
    def credit(self) -> str:
        """The source in words."""
        return ("Order conjectured from " if self.conjectured else "") + self.source.text()


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
    variants : mapping of tuple of str to Theory
        What is known instead where options are given: ``("moment",)`` for any value of it,
        ``("channel=gaussian",)`` for this one.
    """

    estimand: str
    guarantee: str
    assumptions: tuple[Assumption, ...]
    upper: tuple[Rate, ...]
    lower: tuple[Rate, ...]
    citations: tuple[Citation, ...]
    corrections: tuple[str, ...] = field(default=())
    variants: Mapping[tuple[str, ...], Theory] = field(default_factory=dict)

    @property
    def conditions(self) -> tuple[Assumption, ...]:
        """All conditions: of the theory, and of single terms."""
        single = (a for rate in (*self.upper, *self.lower) for a in rate.given)
        return tuple(dict.fromkeys((*self.assumptions, *single)))

    def under(self, options: Mapping[str, Any]) -> Theory:
        """What is known under these options: the variant that names the most of them."""
        given = {name for name, value in options.items() if value is not None}
        given |= {f"{name}={options[name]}" for name in given}
        able = [names for names in self.variants if given.issuperset(names)]
        return self.variants[max(able, key=len)] if able else self

    def rows(self) -> list[tuple[str, Theory]]:
        """The theory and its variants, each with the options that it needs, as printed."""
        named = [(" and ".join(_asked(n) for n in k), v) for k, v in self.variants.items()]
        return [("", self), *named]


def _asked(option: str) -> str:
    """An option as a user writes it."""
    if option == "public_rows":
        return "public="
    return option if "=" in option else f"{option}="


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
        Source of the private term of the upper rate.
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
            numbers = (_shown(tier, cells[name]) if name in cells else "" for name in used)
            rows.append((_TIERS.get(tier, tier), quantity, *numbers))
        return ("tier", "norm of the error", *used), rows

    def formulas(self) -> list[str]:
        """The rates in words, each with who proves it."""
        lines = []
        for side in ("upper", "lower"):
            found = [t for t in self.terms if (t.tier, t.side) == ("rate", side)]
            single = [t for t in found if t.term != "total"]
            if len({t.source for t in single}) > 1:
                lines += [
                    f"{side.capitalize()} rate, {t.term}: {t.formula}. {t.source}" for t in single
                ]
            elif found:
                terms = " + ".join(t.term for t in single)
                whole = found[-1]
                lines.append(f"{side.capitalize()} rate ({terms}): {whole.formula}. {whole.source}")
        return lines

    def _repr_html_(self) -> str:
        return pre(repr(self))

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


def _shown(tier: str, value: float) -> str:
    """A number of the table; a rate that says nothing at the setting has none."""
    return NOT_APPLICABLE if tier == "rate" and math.isnan(value) else f"{value:.4g}"


def rate_terms(theory: Theory, setting: Setting) -> tuple[BoundTerm, ...]:
    """The rate tier of `theory` at `setting`: each term, and the totals of both sides."""
    terms = []
    for side, rates in (("upper", theory.upper), ("lower", theory.lower)):
        name = f"{side} rate"
        values = [rate.value(setting) for rate in rates]
        terms += [
            BoundTerm("rate", side, rate.term, name, value, rate.formula, rate.credit)
            for rate, value in zip(rates, values, strict=True)
        ]
        if rates:
            formula = joined(rate.formula for rate in rates)
            credits = " ".join(dict.fromkeys(rate.credit for rate in rates))
            terms.append(BoundTerm("rate", side, "total", name, sum(values), formula, credits))
    return tuple(terms)


def error_bound(
    theory: Theory, setting: Setting, measured: tuple[BoundTerm, ...] = ()
) -> ErrorBound:
    """Join the measured tiers (none before a fit) to the theorem's rate at `setting`."""
    return ErrorBound(
        terms=(*measured, *rate_terms(theory, setting)),
        assumptions=tuple(Condition(a.statement, a.holds(setting)) for a in theory.conditions),
        theorem=next((r.credit for r in theory.upper if r.term == "privacy"), ""),
        estimand=theory.estimand,
        citations=theory.citations,
        corrections=theory.corrections,
    )
