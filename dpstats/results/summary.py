"""The printed table of a fit, one screen: head, warnings, parameters, privacy, error bound, notes.

What all models share is read from the released record and its parameter table; a results class
gives the lines that only its model has.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby, zip_longest
from typing import Any

from dpstats.privacy import NOT_PRIVATE, SIMULATED
from dpstats.protocol.estimate import ParameterTable
from dpstats.results.inference import bounds_of, tests_of
from dpstats.results.page import Page, TextTable
from dpstats.results.ratios import exponentials, ratio_of, several
from dpstats.results.released import Released
from dpstats.text import reword, with_digits
from dpstats.theory import RATES

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
    of_columns : bool
        Whether parameters that are not in the model are columns that were not selected.
    """

    law: Pairs = ()
    sizes: Pairs = ()
    errors: tuple[str, ...] = ()
    meaning: tuple[str, ...] = ()
    of_columns: bool = True


def page(
    fit: Released,
    own: Particulars,
    alpha: float,
    full: bool,
    title: str | None = None,
    exp: bool = False,
) -> Page:
    """Head, warnings, parameters, privacy, error bound; `full`: whatever else is known, too.

    With `exp` exponentials of coefficients stand in place of these, where they are ratios.
    """
    table, ratio = fit.table, ratio_of(fit, "exp=True") if exp else ""
    left_out = len(table.names) - len(table.inner) if own.of_columns else 0
    counted = f"{left_out:,} column{' was' if left_out == 1 else 's were'} not selected"
    simulated = [SIMULATED] * (SIMULATED in fit.estimate.remarks)
    warnings = [f"Warning: {reword(text)}" for text in (*fit.warnings, *simulated)]
    tables = [
        _head(fit, own),
        _facts([("Subset", fit.design.subset)] if fit.design.subset else []),
        TextTable((), tuple((line,) for line in warnings)),
        _parameters(fit, alpha, ratio),
        TextTable((), ((counted,),) if left_out else ()),
        _facts(fit.privacy.lines()),
        _facts(_error_bound(fit, full, ratio)),
        *(_details(fit) if full else ()),
    ]
    mark = f" [{NOT_PRIVATE}]" if fit.reproducible else ""
    head = f"Differentially Private {_model(fit)[1]} Results" if title is None else title
    return Page.of(f"{head}{mark}", tables, _notes(fit, own, full, ratio))


_MODELS = {  # as statsmodels calls them in the head and in the title; of others, their name
    "ols": ("OLS", "OLS"),
    "logit": ("Logit", "Logit Regression"),
    "glm": ("GLM", "Generalized Linear Model Regression"),
    "mnlogit": ("MNLogit", "Multinomial Logit Regression"),
    "quantreg": ("QuantReg", "Quantile Regression"),
    "mixture_ols": ("Mixture of OLS", "Mixture of Regressions"),
    "symmetric_mixture_ols": ("Symmetric mixture of OLS", "Symmetric Mixture of Regressions"),
    "describe": ("Description", "Descriptive Statistics"),
    "check": ("Check", "Data Check"),
    "corr": ("Correlation", "Correlation"),
    "crosstab": ("Crosstab", "Contingency Table"),
    "ttest": ("t-test", "Two-Sample Test"),
    "evaluate logit": ("Evaluation of Logit", "Evaluation"),
    "evaluate ols": ("Evaluation of OLS", "Evaluation"),
}


def _model(fit: Released) -> tuple[str, str]:
    name = fit.plan.model
    words = name.replace("_", " ")
    return _MODELS.get(name, (words.capitalize(), words.title()))


def _head(fit: Released, own: Particulars) -> TextTable:
    plan, table, now = fit.plan, fit.table, time.localtime()
    count = "public" if fit.nobs_public else "noisy"
    count = "guess" if count == "noisy" and fit.design.subset and fit.nobs == plan.n else count
    noisy = ("Contributing (noisy):", f"{_at_most_all(fit):.0f}")
    left = [
        *([("Dep. Variable:", fit.response)] if fit.design.endog is not None else []),
        ("Model:", _model(fit)[0]),
        *own.law,
        ("Method:", plan.method),
        ("Date:", time.strftime("%a, %d %b %Y", now)),
        ("Time:", time.strftime("%H:%M:%S", now)),
        ("Covariance Type:", fit.cov_type),
        *([("Inference:", table.inference)] if table.inference else []),
    ]
    right = [
        (f"No. Observations ({count}):", f"{fit.nobs:.0f}"),
        *([noisy] if plan.privacy.trust == "central" else []),
        *own.sizes,
        ("Epsilon:", f"{plan.privacy.epsilon:g}"),
        ("Delta:", f"{plan.privacy.delta:g}"),
    ]
    pairs = zip_longest(left, right, fillvalue=("", ""))
    return TextTable((), tuple((*a, *b) for a, b in pairs), frozenset({0, 1, 2}))


def _at_most_all(fit: Released) -> float:
    """The noisy count of rows, as far as there may be any."""
    return min(max(fit.nobs_contributing, 0.0), fit.nobs if fit.nobs_public else math.inf)


def _number(value: float, digits: int, error: float = 0.0) -> str:
    """Fixed digits in statsmodels' manner; powers of ten where they would hide the number.

    One that its error hides, too, has fixed digits.
    """
    size, least = abs(value), 10.0 ** (1 - digits)
    if (size < least and value != 0 and not error >= least) or size >= 1e8:
        return f"{value:.{digits}g}"
    return f"{value:.{digits if size < 1e4 else 1 if size < 1e5 else 0}f}"


def _parameters(fit: Released, alpha: float, ratio: str) -> TextTable:
    """One line for each parameter in the model, below a line for each of several groups."""
    table = fit.table
    what = ratio or ("coef" if table.of_coefficients else "estimate")
    wald, bounds, inner = tests_of(table), bounds_of(table, alpha), table.inner_values
    errors = wald.se
    if ratio:
        inner, errors, bounds = exponentials(inner, errors, bounds)
    values = [_number(value, 4, error) for value, error in zip(inner, errors, strict=True)]
    if not table.has_inference:
        width = max(map(len, values), default=4)  # nothing may be selected
        rows = _grouped(table, [(value.rjust(width),) for value in values])
        return TextTable(("", what.rjust(width)), rows, frozenset({0, 1}))
    lost = [("not", "identified") if at in table.not_identified else ("", "") for at in table.inner]
    tests = [
        (_number(z, 3), f"{p:.3f}") if able else words
        for z, p, able, words in zip(wald.z, wald.p, table.testable, lost, strict=True)
    ]
    tested = bool(table.testable.any()) or bool(table.not_identified)
    columns = [
        values,
        [_number(se, 3) for se in errors],
        *([list(words) for words in zip(*tests, strict=True)] if tested else []),
        *([_number(value, 3) for value in side] for side in bounds.T),
        ["" if math.isnan(share) else f"{share:.1%}" for share in table.privacy_share],
    ]
    ends = (f"[{alpha / 2:g}", f"{1 - alpha / 2:g}]")
    header = ["", what, "std err", *(["z", "P>|z|"] if tested else []), *ends, "priv. share"]
    bound = fit.error_bound.nonprivate
    if len(bound) and not ratio:  # it bounds the distance between coefficients
        each = bound.reindex(table.inner_names)
        columns.append(["" if math.isnan(value) else _number(value, 3) for value in each])
        header.append("priv. +/-")
    return TextTable(tuple(header), _grouped(table, list(zip(*columns, strict=True))))


def _grouped(table: ParameterTable, lines: list[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """The lines with their labels, those of a group below its name where there are several.

    What all names of a group end with, ``of age`` or ``[car]``, is said by its name.
    """
    groups = [table.groups[at] for at in table.inner]
    if len(set(groups)) <= 1:
        names = [table.names[at] for at in table.inner]
        return tuple((name, *line) for name, line in zip(names, lines, strict=True))
    rows: list[tuple[str, ...]] = []
    entries = zip(groups, table.inner, lines, strict=True)
    for group, members in groupby(entries, key=lambda entry: entry[0]):
        kept = list(members)
        names = _shortened([table.names[at] for _, at, _ in kept])
        rows.append((f"{group}:", *[""] * len(kept[0][2])))
        rows += [(f"  {name}", *line) for name, (*_, line) in zip(names, kept, strict=True)]
    return tuple(rows)


def _shortened(names: list[str]) -> list[str]:
    """Names without the last ``of age`` or ``[car]``, where all of them have the same."""
    parts = [re.fullmatch(r"(.+?)( of .+| \[[^\[\]]*\])", name) for name in names]
    tails = {part and part[2] for part in parts}
    if len(tails) != 1 or None in tails:
        return names
    return [part[1] for part in parts if part]


def _facts(lines: Iterable[tuple[str, str]]) -> TextTable:
    rows = tuple((f"{label}:" if label else "", reword(text)) for label, text in lines)
    return TextTable((), rows, frozenset({0, 1}))


def _error_bound(fit: Released, full: bool, ratio: str) -> Pairs:
    """How far the estimates may be off, and where to read what is proved."""
    bound = fit.error_bound
    where = "below" if full else "fit.error_bound"
    needed = [c for c in bound.assumptions if not c.statement.startswith("Lower bound")]
    failing = sum(c.holds is False for c in needed)  # conditions of a lower bound promise nothing
    judged = f" ({failing} of {len(needed)} conditions FAIL{'S' * (failing == 1)})"
    theorem = f"Theorem{judged * (failing > 0)}: {where}."
    if not len(bound.population):
        return (("Error bound", f"none in numbers. {theorem}"),)
    supposed = bound.needed(bound.supposed)
    if_so = f", {supposed}" if supposed else ""
    far = "the farther end of" if ratio or fit.table.deviates is not None else "half"
    if ratio or not len(bound.nonprivate):
        text = f"To the population value{if_so}, with probability 95 %: {far} the 95 % interval."
        return (("Error bound", f"{text} {theorem}"),)
    given = bound.needed(bound.given)
    if_so = f", {bound.supposed}" if bound.supposed else ""
    text = (
        f'"priv. +/-": {given}{", " * bool(given)}95 % bound on the distance to the fit without '
        f"privacy on {bound.rows}; to the population value{if_so}, {far} the 95 % interval. "
        f"{theorem}"
    )
    return (("Error bound", text),)


def _details(fit: Released) -> list[TextTable]:
    """Privacy facts, mechanisms, and conditions of the theorem."""
    header, mechanisms = fit.privacy.table()
    conditions = tuple((c.verdict, c.statement) for c in fit.error_bound.assumptions)
    return [
        _facts(fit.privacy.facts()),
        TextTable(header, tuple(mechanisms), frozenset({0, 1, 3})),
        TextTable(("here", "Condition of the theorem"), conditions, frozenset({0, 1})),
    ]


def _by_column(released: Mapping[str, Any]) -> Iterable[str]:
    """What was released of each column, in the user's units; a file may hold anything there."""
    scales = {n: v for n, v in _mapping(released, "scales").items() if isinstance(v, Mapping)}
    pairs = [(name, _numbers(v, "center", "scale")) for name, v in scales.items()]
    each = [(name, *(with_digits(v, 3) for v in pair)) for name, pair in pairs if len(pair) == 2]
    found = ", ".join(f"{name} {centre} ({scale})" for name, centre, scale in each)
    if found:
        yield f"Centres (and scales) that were found: {found}."
    for key, what in (
        ("share outside", "outside of what is declared"),
        ("share missing", "missing"),
    ):
        shares = _mapping(released, key)
        parts = [f"{n} {share:.1%}" for n in shares for share in _numbers(shares, n)]
        if parts:
            yield f"Noisy shares of values {what}: {', '.join(parts)}."


def _mapping(released: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = released.get(key)
    return value if isinstance(value, Mapping) else {}


def _numbers(values: Mapping[str, Any], *keys: str) -> list[float]:
    return [values[k] for k in keys if isinstance(values.get(k), (int, float))]


def _short(value: Any) -> str:
    """A released value with four digits; of a long list its ends."""
    if isinstance(value, (list, tuple)):
        ends = [*value[:4], "...", value[-1]] if len(value) > 6 else value
        return f"({', '.join(map(_short, ends))})"
    return with_digits(value, 4) if isinstance(value, float) else str(value)


_ON_DEVICES = ("local", "label-only")
_UNCOUNTED = (
    "Nobody counted what lies outside of what is declared: devices move it to the ends. Too narrow "
    "a range changes the answer without a word."
)


_RATIOS = "Coefficients are logarithms of {}; summary(exp=True) gives the ratios."
_EXPONENTIALS = (
    "{}: exp(coef), between exponentials of the ends of the intervals of coef; std err is by the "
    "delta method; z and P>|z| test coef = 0, a ratio of 1. Of the intercept it is what the model "
    "predicts where all columns are 0."
)


def _notes(fit: Released, own: Particulars, full: bool, ratio: str) -> Iterable[str]:
    """Explanations below the tables."""
    if fit.reproducible:
        yield (
            f"{NOT_PRIVATE}. The noise came from a seed: such a fit is for simulation and tests "
            "only."
        )
    if fit.table.not_identified:
        yield (
            "Not identified: noise hides it at this epsilon. Its interval is what was assumed a "
            "priori, no finding."
        )
    yield from own.errors
    yield from own.meaning
    if ratio:
        yield _EXPONENTIALS.format(several(ratio).capitalize())
    elif fit._ratio:
        yield _RATIOS.format(several(fit._ratio))
    yield from (f"Design: {text}" for text in fit.design.notes)
    on_devices = fit.plan.privacy.trust in _ON_DEVICES and fit.design.endog is not None
    if on_devices and "share outside" not in fit.released:
        yield _UNCOUNTED
    bound = fit.error_bound
    estimand = f"Estimand: {bound.estimand}." if bound.estimand else ""
    if not full:
        if len(bound.nonprivate) and bound.given:
            yield estimand
        yield "Mechanisms: fit.privacy; whatever else is known: summary(full=True)."
        return
    single = {k: v for k, v in fit.released.items() if not isinstance(v, Mapping)}
    extra = ", ".join(f"{name} {_short(value)}" for name, value in single.items())
    if fit.table.has_inference:
        yield (
            "Standard errors, tests and intervals cover sampling error and privacy noise; 'priv. "
            "share' is the part of each variance that privacy adds. The reference is normal."
        )
    yield estimand
    yield "The privacy guarantee holds for every data set; the error bound needs its conditions."
    yield f"Also released, in standardised units: {extra}." if extra else ""
    yield from _by_column(fit.released)
    yield RATES
    yield from bound.formulas()
    if departures := len(bound.corrections):
        yield (
            f"Departs from the printed method in {departures} point{'s' * (departures > 1)}: see "
            "error_bound.corrections."
        )
