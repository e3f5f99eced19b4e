"""What is proved about a method: estimand, assumptions, rates, lower bound, citation.

Rates and conditions are formulas as a reader would print them, and are evaluated from that very
text, so that tables, plots, planners and tests read the same numbers. Constants that a theorem does
not state are 1 and every report says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from dpstats.theory.arithmetic import PrintedFormula, sum_of_formulas
from dpstats.theory.bound import ALONE, RATES, SMALLER, BoundTerm, Condition, ErrorBound
from dpstats.theory.citations import Citation

__all__ = [
    "RATES",
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
    "reevaluated",
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
    m : int, optional
        Public rows beside the private ones.
    p : float, optional
        Half the order of the moments that the response has.
    K : int, optional
        Sites of a federation that the estimate is made of, the target among them; `n` is then of
        all their rows.
    n0 : float, optional
        Rows of the target.
    h : float, optional
        How far from the target's the parameters of these sites may be, in standardised units.
    """

    n: float
    d: int
    epsilon: float
    delta: float
    s: int | None = None
    m: int | None = None
    p: float | None = None
    K: int | None = None
    n0: float | None = None
    h: float | None = None

    @property
    def symbols(self) -> dict[str, float]:
        """Value of every symbol a formula may use; nan where it is not known."""
        known = {**{f.name: getattr(self, f.name) for f in fields(self)}, "eps": self.epsilon}
        del known["epsilon"]
        return {k: math.nan if v is None else float(v) for k, v in known.items()}


_SYMBOLS = frozenset(Setting(1, 1, 1.0, 0.5).symbols)


def _read(text: str) -> PrintedFormula:
    """The formula of a text that uses no other names than a setting's.

    Raises
    ------
    ValueError
        If it uses another that it does not define: constants are defined, ``C s/n, C = 1``.
    """
    formula = PrintedFormula.of(text)
    if unknown := sorted(formula.free - _SYMBOLS):
        raise ValueError(f"{text!r} does not say what {', '.join(unknown)} is.")
    return formula


@dataclass(frozen=True, slots=True)
class Assumption:
    """A condition of a theorem, in words, as a formula (`dpstats.theory.arithmetic`), or both.

    One of `resolution` says that the noise hides nothing, which a plan or a fit may find untrue
    whatever a formula without constants has to say.
    """

    words: str = ""
    formula: str = ""
    resolution: bool = False

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
        least = value > 0 or (value == 0 and self.term == "heterogeneity")
        return value if least and value < math.inf else math.nan

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
    alone : mapping of str to tuple of Rate
        Of several sites, for ``"upper"`` and ``"lower"``: the terms of the target by itself. The
        bound is then the smaller of their sum and that of all sites, up to a constant.
    """

    estimand: str
    guarantee: str
    assumptions: tuple[Assumption, ...]
    upper: tuple[Rate, ...]
    lower: tuple[Rate, ...]
    citations: tuple[Citation, ...]
    corrections: tuple[str, ...] = field(default=())
    variants: Mapping[tuple[str, ...], Theory] = field(default_factory=dict)
    alone: Mapping[str, tuple[Rate, ...]] = field(default_factory=dict)

    @property
    def conditions(self) -> tuple[Assumption, ...]:
        """All conditions: of the theory, and of single terms."""
        own = (rate for side in self.alone.values() for rate in side)
        single = (a for rate in (*self.upper, *self.lower, *own) for a in rate.given)
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


def rate_terms(theory: Theory, setting: Setting) -> tuple[BoundTerm, ...]:
    """The rate tier of `theory` at `setting`: each term, and the totals of both sides.

    Where a bound is the smaller of that of all sites and that of the target alone, the terms and
    the total of each, and at the end the smaller total.
    """
    terms = []
    for side, rates in (("upper", theory.upper), ("lower", theory.lower)):
        terms += _summed(side, f"{side} rate", rates, setting)
        terms += _summed(side, f"{side} rate{ALONE}", theory.alone.get(side, ()), setting)
    return (*terms, *_smaller(terms))


def _smaller(terms: Sequence[BoundTerm]) -> Iterator[BoundTerm]:
    """The smaller of two totals of a side, where there are two."""
    for side in ("upper", "lower"):
        both = [t for t in terms if (t.tier, t.side, t.term) == ("rate", side, "total")]
        if len(both) == 2:
            least = min(both, key=lambda t: math.inf if math.isnan(t.value) else t.value)
            yield replace(least, quantity=f"{side} rate{SMALLER}")


def _summed(side: str, name: str, rates: Sequence[Rate], setting: Setting) -> list[BoundTerm]:
    """The terms of one sum, and the sum."""
    values = [rate.value(setting) for rate in rates]
    terms = [
        BoundTerm("rate", side, rate.term, name, value, rate.formula, rate.credit)
        for rate, value in zip(rates, values, strict=True)
    ]
    if not rates:
        return terms
    formula = sum_of_formulas(rate.formula for rate in rates)
    credits = " ".join(dict.fromkeys(rate.credit for rate in rates))
    return [*terms, BoundTerm("rate", side, "total", name, sum(values), formula, credits)]


def error_bound(theory: Theory, setting: Setting, hidden: bool = False) -> ErrorBound:
    """What the theory proves at `setting`; `hidden`: noise was seen to hide what it should not."""
    return ErrorBound(
        terms=rate_terms(theory, setting),
        assumptions=tuple(
            Condition(a.statement, False if hidden and a.resolution else a.holds(setting))
            for a in theory.conditions
        ),
        theorem=next((r.credit for r in theory.upper if r.term == "privacy"), ""),
        estimand=theory.estimand,
        citations=theory.citations,
        corrections=theory.corrections,
    )


def reevaluated(bound: ErrorBound, setting: Setting) -> ErrorBound:
    """The same theorems at another setting, by their formulas as they are printed in `bound`.

    A bound may come from a file: what cannot be read there is not known.
    """
    terms = []
    for t in bound.terms:
        if t.tier != "rate":
            terms.append(t)
        elif not t.quantity.endswith(SMALLER):
            formula = _readable(t.formula)
            value = math.nan if formula is None else formula.value(setting.symbols)
            terms.append(replace(t, value=value if 0 <= value < math.inf else math.nan))
    conditions = [_judged(c, setting) for c in bound.assumptions]
    return replace(bound, terms=(*terms, *_smaller(terms)), assumptions=tuple(conditions))


def _judged(condition: Condition, setting: Setting) -> Condition:
    """A condition at another setting; one without a formula stays as it is."""
    formula = _readable(condition.statement.rpartition(": ")[2])
    if condition.holds is None or formula is None:
        return condition
    return replace(condition, holds=formula.holds(setting.symbols))


def _readable(text: str) -> PrintedFormula | None:
    try:
        return _read(text)
    except ValueError:
        return None
