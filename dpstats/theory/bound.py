"""How far an estimate may be off: bounds on its errors, and what is proved of its method."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from dpstats.errors import OptionError
from dpstats.text import grid, pre, wrap
from dpstats.theory.citations import Citation

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ALONE", "RATES", "SMALLER", "BoundTerm", "Condition", "ErrorBound"]

ALONE, SMALLER = ", target alone", ", the smaller of both"  # which rate, beside its side


@dataclass(frozen=True, slots=True)
class BoundTerm:
    """One number of an error bound.

    Attributes
    ----------
    tier : str
        ``"bound"`` (on the error of one parameter, with probability 95 %) or ``"rate"`` (a
        theorem's rate with its constants set to 1, no bound on this estimate).
    side : str
        ``"upper"`` or ``"lower"``.
    term : str
        ``"statistical"``, ``"privacy"``, ``"heterogeneity"`` or ``"total"``.
    quantity : str
        Name of the parameter, or ``"upper rate"``, ``"lower rate"``; of several sites also those
        of the ``"target alone"``, and ``"the smaller of both"``.
    value : float
        A bound is in the user's units, a rate a norm in standardised units.
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
        """``"holds"``, ``"FAILS"`` or ``"unknown"``."""
        return {True: "holds", False: "FAILS", None: "unknown"}[self.holds]


@dataclass(frozen=True, repr=False)
class ErrorBound:
    """How far the estimates may be off: bounds on their errors, and what is proved of the method.

    A *bound* holds with probability 95 %, for each parameter by itself. That on the distance to the
    non-private answer on the same rows (`nonprivate`) is the law of the noise and an allowance for
    what clips leave out; that on the distance to the population value (`population`) is half of the
    interval. A *rate* says how the error moves with n, d and epsilon.

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
    subject : str
        What is estimated, ``{}`` standing for the name of a parameter.
    rows : str
        Those that the non-private answer is of.
    given : str
        What the bound on the distance to it needs, where it does not hold for all rows: estimates
        that weigh rows, or clip responses, are near the non-private ones where the model holds.
    """

    terms: tuple[BoundTerm, ...]
    assumptions: tuple[Condition, ...] = ()
    theorem: str = ""
    estimand: str = ""
    citations: tuple[Citation, ...] = ()
    corrections: tuple[str, ...] = ()
    subject: str = ""
    rows: str = ""
    given: str = ""

    @property
    def nonprivate(self) -> pd.Series:
        """95 % bound on each distance to the non-private answer on the same rows, shape (k,)."""
        return self._bounds("privacy")

    @property
    def population(self) -> pd.Series:
        """95 % bound on each distance to the population value, shape (k,)."""
        return self._bounds("total")

    def _bounds(self, term: str) -> pd.Series:
        import pandas as pd

        found = {t.quantity: t.value for t in self.terms if (t.tier, t.term) == ("bound", term)}
        return pd.Series(found, dtype=float)

    def sentence(self, name: str | None = None) -> str:
        """The bound on the distance to the non-private answer, to be quoted.

        Parameters
        ----------
        name : str, optional
            A parameter; all but the intercept unless given.

        Raises
        ------
        OptionError
            If the model has no such parameter, or its error has no bound.
        """
        bounds = self.nonprivate
        if name is None:
            others = bounds.drop("Intercept", errors="ignore")
            bounds = others if len(others) else bounds
        elif name in bounds.index:
            bounds = bounds[[name]]
        if not len(bounds) or name not in (None, *bounds.index):
            raise OptionError(
                f"sentence({'' if name is None else repr(name)}): there is a bound for "
                f"{', '.join(map(repr, self.nonprivate.index)) or 'no parameter'}."
            )
        (first, value), *others = bounds.items()
        each = " each" if others else ""
        subject = self.subject.replace("{}", str(first))
        start = f"{self.given[:1].upper()}{self.given[1:]}, with" if self.given else "With"
        text = (
            f"{start} probability 95 %{each} the private {subject} is within {value:.3g} of the "
            f"one computed without privacy on {self.rows}"
        )
        more = (f", that of {other} within {value:.3g}" for other, value in others)
        return text + "".join(more) + "."

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
        """Header and rows of the bounds, one row a parameter."""
        nonprivate = self.nonprivate  # of a file that was edited, perhaps of fewer parameters
        both = zip(nonprivate.items(), self.population.reindex(nonprivate.index), strict=True)
        rows: list[tuple[str, ...]] = [(str(n), f"{a:.4g}", f"{b:.4g}") for (n, a), b in both]
        return ("95 % bound on the distance to", "non-private fit", "population"), rows

    def formulas(self) -> list[str]:
        """The rates in words, each with who proves it."""
        lines = []
        rates = [t for t in self.terms if t.tier == "rate"]
        for name in dict.fromkeys(t.quantity for t in rates):
            found = [t for t in rates if t.quantity == name]
            single, shown = [t for t in found if t.term != "total"], name.capitalize()
            if name.endswith(SMALLER):
                lines.append(f"{shown}: {found[-1].value:.2g}, of {found[-1].formula}.")
            elif len({t.source for t in single}) > 1:
                lines += [f"{shown}, {t.term}: {t.formula}. {t.source}" for t in single]
            else:
                terms, whole = " + ".join(t.term for t in single), found[-1]
                lines.append(f"{shown} ({terms}): {whole.formula}. {whole.source}")
        far = {t.value for t in rates if t.term == "heterogeneity" and t.formula == "h"}
        return lines + [f"Here h = {h:.2g}." for h in sorted(far)]

    def _repr_html_(self) -> str:
        return pre(repr(self))

    def __repr__(self) -> str:
        header, rows = self.table()
        table = grid(header, rows, numbers=(1, 2)) if rows else []
        name = f"Error bound. Estimand: {self.estimand}." if self.estimand else "Error bound."
        conditions = [f"  [{c.verdict}] {c.statement}" for c in self.assumptions]
        return "\n".join(
            [
                *wrap([name]),
                *([table[1], *table, table[1]] if table else []),
                *wrap([RATES, *self.formulas()]),
                *(["Conditions of the theorem:"] if conditions else []),
                *wrap(conditions, indent="    "),
            ]
        )


RATES = (
    "A rate is no bound: its constants are set to 1, and it is that of an l2 norm in standardised "
    "units (columns, and the response of a linear model, divided by their public scales)."
)
