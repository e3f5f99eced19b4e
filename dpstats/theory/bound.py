"""How far an estimate may be off: bounds on its errors, and what is proved of its method."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from dpstats.errors import OptionError, among, given
from dpstats.text import grid, pre, wrap
from dpstats.theory.citations import Citation

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ALONE", "RATES", "SMALLER", "BoundTerm", "Condition", "ErrorBound"]

ALONE, SMALLER = ", target alone", ", the smaller of both"  # which rate, beside its side
_TO = ("rows", "population")


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
    population_of : str
        Whose the population value is, where rows of several populations were asked.
    supposed : str
        What the bound on the distance to it takes for granted of these populations.
    warned : tuple of str
        What the fit warns of: where it matters there is no bound, and `sentence` says so.
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
    population_of: str = ""
    supposed: str = ""
    warned: tuple[str, ...] = ()

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

    def sentence(self, name: str | None = None, *, to: str | None = None) -> str:
        """The bounds on errors of one kind, to be quoted, and what the fit warns of.

        Parameters
        ----------
        name : str, optional
            A parameter; all but the intercept unless given.
        to : {"rows", "population"}, optional
            Whether errors are distances to the answer without privacy on the same rows, as they are
            by default where these have bounds, or to the population value: that of the `estimand`.

        Raises
        ------
        OptionError
            If the model has no such parameter, its error has no bound, or `to` is neither.
        """
        if to is not None and not among(to, _TO):
            raise OptionError(f"to={given(to)}: allowed are {', '.join(map(repr, _TO))}.")
        of_rows = to == "rows" or (to is None and len(self.nonprivate) > 0)
        bounds = self.nonprivate if of_rows else self.population
        if not (name is None or among(name, list(bounds.index))) or not len(bounds):
            raise OptionError(
                f"sentence({'' if name is None else given(name)}): there is a bound for "
                f"{', '.join(map(repr, bounds.index)) or 'no parameter'}."
            )
        others = bounds.drop("Intercept", errors="ignore") if name is None else bounds[[name]]
        (first, value), *more = (others if len(others) else bounds).items()
        asked = self.needed(self.given if of_rows else self.supposed)
        whose = f" of {self.population_of}" if self.population_of else ""
        text = (
            f"{asked[:1].upper()}{asked[1:]}{', with' if asked else 'With'} probability 95 %"
            f"{' each' if more else ''} the private {self.subject.replace('{}', str(first))} is "
            f"within {value:.3g} of "
            + (
                f"the one computed without privacy on {self.rows}"
                if of_rows
                else f"its value in the population{whose}"
            )
        )
        each = "".join(f", that of {n} within {v:.3g}" for n, v in more)
        return f"{text}{each}.{self.warnings}"

    def needed(self, given: str) -> str:
        """What a bound needs: `given`, and that nothing is wrong of what the fit warns of."""
        if not self.warned:
            return given
        return f"{given} and no warning matters" if given else "if no warning matters"

    @property
    def warnings(self) -> str:
        """What the fit warns of, as it follows a sentence."""
        return "".join(f" Warning: {text}" for text in self.warned)

    @property
    def quoted(self) -> pd.Series:
        """What `sentence` quotes: bounds to the non-private answer; without any, to the population.

        Shape (k,).
        """
        nonprivate = self.nonprivate
        return nonprivate if len(nonprivate) else self.population

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

    def table(self) -> tuple[tuple[str, ...], Sequence[tuple[str, ...]]]:
        """Header and rows of the bounds, one row a parameter."""
        nonprivate, name = self.nonprivate, "95 % bound on the distance to"
        if not len(nonprivate):
            single = [(str(n), f"{b:.4g}") for n, b in self.population.items()]
            return (name, "population"), single
        # Of a file that was edited, perhaps of fewer parameters.
        both = zip(nonprivate.items(), self.population.reindex(nonprivate.index), strict=True)
        return (name, "non-private fit", "population"), [
            (str(n), f"{a:.4g}", f"{b:.4g}") for (n, a), b in both
        ]

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
        table = grid(header, rows, numbers=range(1, len(header))) if rows else []
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
