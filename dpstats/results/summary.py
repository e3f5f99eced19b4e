"""The printed table of a fit: head, parameters, privacy, error bound, notes.

What all models share is read from the released record and its parameter table; a results class
gives the lines that only its model has.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from dpstats.privacy import NOT_PRIVATE
from dpstats.protocol.estimate import ParameterTable
from dpstats.results.inference import interval, wald_table
from dpstats.results.page import Page, TextTable
from dpstats.results.released import Released
from dpstats.theory import UNITS

__all__ = ["Particulars", "page"]

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Particulars:
    """What the page says of one model and of no other.

    Attributes
    ----------
    law, sizes : tuple of (label, text)
        Lines of the head: below the model on the left, below the numbers of rows on the right.
    errors, meaning : tuple of str
        Notes: what standard errors hold for, and what the parameters mean.
    """

    law: Pairs = ()
    sizes: Pairs = ()
    errors: tuple[str, ...] = ()
    meaning: tuple[str, ...] = ()


def page(fit: Released, own: Particulars, alpha: float) -> Page:
    """Head, parameters, privacy facts, mechanisms, error bound with its conditions, notes."""
    table = fit.table
    left_out = len(table.names) - len(table.inner)
    counted = f"{left_out:,} column{' was' if left_out == 1 else 's were'} not selected"
    tables = [
        _head(fit, own),
        _parameters(table, alpha),
        TextTable((), ((counted,),) if left_out else ()),
        *_privacy(fit),
    ]
    mark = f" [{NOT_PRIVATE}]" if fit.reproducible else ""
    title = f"Differentially Private {_model(fit)[1]} Results{mark}"
    return Page.of(title, tables, _notes(fit, own))


_MODELS = {  # as statsmodels calls them in the head and in the title
    "logit": ("Logit", "Logit Regression"),
    "glm": ("GLM", "Generalized Linear Model Regression"),
}


def _model(fit: Released) -> tuple[str, str]:
    name = fit.plan.model
    return _MODELS.get(name, (name.upper(), name.upper()))


def _head(fit: Released, own: Particulars) -> TextTable:
    plan, table, trust = fit.plan, fit.table, fit.privacy.trust
    count = "public" if fit.nobs_public else "noisy"
    noisy = ("Contributing (noisy count):", f"{fit.nobs_contributing:.0f}")
    left = [
        ("Dep. Variable:", fit.model.endog_names),
        ("Model:", _model(fit)[0]),
        *own.law,
        ("Method:", plan.method),
        ("Trust model:", trust),
        ("Covariance Type:", fit.cov_type if table.has_inference else "none"),
        *([("Inference:", table.inference)] if table.inference else []),
        ("Date:", time.strftime("%a, %d %b %Y %H:%M", time.localtime())),
    ]
    right = [
        (f"No. Observations ({count}):", f"{fit.nobs:.0f}"),
        *([noisy] if trust == "central" else []),
        *own.sizes,
        ("Epsilon:", f"{plan.privacy.epsilon:g}"),
        ("Delta:", f"{plan.privacy.delta:g}"),
    ]
    pairs = zip_longest(left, right, fillvalue=("", ""))
    return TextTable((), tuple((*a, "  " + b[0], b[1]) for a, b in pairs), frozenset({0, 2}))


def _number(value: float, digits: int) -> str:
    """Fixed digits in statsmodels' manner; powers of ten where they would hide the number."""
    small = value != 0 and abs(value) < 10.0 ** (1 - digits)
    return f"{value:.{digits}g}" if small or abs(value) >= 1e5 else f"{value:.{digits}f}"


def _parameters(table: ParameterTable, alpha: float) -> TextTable:
    """One line for each parameter in the model, below a line for each of several groups."""
    what = "coef" if table.of_coefficients else "estimate"
    values = [_number(value, 4) for value in table.inner_values]
    if not table.has_inference:
        width = max(map(len, values), default=4)  # nothing may be selected
        rows = _grouped(table, [(value.rjust(width),) for value in values])
        return TextTable(("", what.rjust(width)), rows, frozenset({0, 1}))
    wald = wald_table(table.inner_values, table.cov, table.testable)
    bounds = interval(table.inner_values, wald.se, alpha)
    columns = [
        values,
        [_number(se, 3) for se in wald.se],
        [_number(z, 3) if able else "" for z, able in zip(wald.z, table.testable, strict=True)],
        [f"{p:.3f}" if able else "" for p, able in zip(wald.p, table.testable, strict=True)],
        *([_number(value, 3) for value in side] for side in bounds.T),
        [f"{share:.1%}" for share in table.privacy_share],
    ]
    ends = (f"[{alpha / 2:g}", f"{1 - alpha / 2:g}]")
    header = ("", what, "std err", "z", "P>|z|", *ends, "priv. share")
    return TextTable(header, _grouped(table, list(zip(*columns, strict=True))))


def _grouped(table: ParameterTable, lines: list[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """The lines with their labels, those of a group below its name where there are several."""
    several, last, rows = len(set(table.groups)) > 1, "", []
    for at, line in zip(table.inner, lines, strict=True):
        group, name = table.groups[at], table.names[at]
        if several and group != last:
            rows.append((f"{group}:", *[""] * len(line)))
        last = group
        rows.append((f"  {name}" if several else name, *line))
    return tuple(rows)


def _privacy(fit: Released) -> list[TextTable]:
    """Privacy facts, mechanisms, error bound and its conditions."""
    mechanisms_header, mechanisms = fit.privacy.table()
    (_, *bound_header), bounds = fit.error_bound.table()
    facts = tuple((f"{label}:", text) for label, text in fit.privacy.facts())
    conditions = tuple((c.statement, c.verdict) for c in fit.error_bound.assumptions)
    return [
        TextTable(("Privacy", ""), facts, frozenset({0, 1})),
        TextTable(mechanisms_header, tuple(mechanisms), frozenset({0, 1, 3})),
        TextTable(("Error bound", *bound_header), tuple(bounds), frozenset({0, 1})),
        TextTable(("Conditions of the theorem", "here"), conditions),
    ]


def _short(value: Any) -> str:
    """A released value with four digits; of a long list its ends."""
    if isinstance(value, (list, tuple)):
        ends = [*value[:4], "...", value[-1]] if len(value) > 6 else value
        return f"({', '.join(map(_short, ends))})"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _notes(fit: Released, own: Particulars) -> Iterable[str]:
    """Explanations below the tables."""
    estimand, departures = fit.error_bound.estimand, len(fit.error_bound.corrections)
    extra = ", ".join(f"{name} {_short(value)}" for name, value in fit.released.items())
    if fit.reproducible:
        yield (
            f"{NOT_PRIVATE}. The noise came from a seed: such a fit is for simulation and tests "
            "only."
        )
    if fit.table.has_inference:
        yield (
            "Standard errors, tests and intervals cover sampling error and privacy noise; 'priv. "
            "share' is the part of each variance that privacy adds. The reference is normal."
        )
    yield from own.errors
    yield from own.meaning
    yield f"Estimand: {estimand}." if estimand else ""
    yield "The privacy guarantee holds for every data set; the error bound needs its conditions."
    yield f"Also released, in standardised units: {extra}." if extra else ""
    yield UNITS
    yield from fit.error_bound.formulas()
    yield from (f"Warning: {text}" for text in (*fit.plan.warnings, *fit.estimate.remarks))
    if departures:
        yield (
            f"Departs from the printed method in {departures} point{'s' * (departures > 1)}: see "
            "error_bound.corrections."
        )
    yield from (f"Design: {text}" for text in fit.design.notes)
