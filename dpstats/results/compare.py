"""Several results side by side, as statsmodels' ``summary_col`` prints them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from dpstats.errors import OptionError, given, need_flag, need_names, need_text
from dpstats.outputs import HTML, LATEX
from dpstats.privacy import NOT_PRIVATE
from dpstats.results.page import TextTable, html_table, latex_table, save_text
from dpstats.results.ratios import exponentials, ratio_of, several
from dpstats.results.released import Released
from dpstats.text import html_text, latex_text, plain, printable

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["compare", "results_list"]

_INFO: dict[str, tuple[Callable[[Any], str], Callable[[Any], str]]] = {
    # label: (for a private result, for a statsmodels result)
    "Trust model": (lambda fit: fit.privacy.trust, lambda fit: "none"),
    "Epsilon": (lambda fit: f"{fit.plan.privacy.epsilon:g}", lambda fit: "none"),
    "Delta": (lambda fit: f"{fit.plan.privacy.delta:g}", lambda fit: "none"),
    "Method": (lambda fit: fit.plan.method, lambda fit: type(fit.model).__name__),
    "Privacy": (
        lambda fit: "NOT private" if fit.reproducible else "private",
        lambda fit: "NOT private",
    ),
    "No. Observations": (lambda fit: f"{fit.nobs:.0f}", lambda fit: f"{fit.nobs:.0f}"),
}


class _SummaryColumn:
    """A result as ``summary_col`` reads it: the parameters in the model, or their exponentials."""

    def __init__(self, fit: Any, exp: bool) -> None:
        import pandas as pd

        self.fit, self.params, self.model = fit, fit.params, fit.model
        if isinstance(fit, Released):
            names = fit.table.inner_names
            self.params = pd.Series(fit.table.inner_values, index=names)
            self.model = SimpleNamespace(exog_names=names, endog_names=fit.response)
        self.bse, ends = fit.bse, pd.DataFrame(fit.conf_int()).set_axis(self.params.index)
        if exp:
            self.params, self.bse, ends = exponentials(self.params, self.bse, ends)
        self.conf_int = lambda alpha=0.05: ends  # summary_col unpacks it, and prints none of it

    def __getattr__(self, name: str) -> Any:
        return getattr(self.fit, name)


def _describe(label: str, fit: Any) -> str:
    private, public = _INFO[label]
    fit = fit.fit if isinstance(fit, _SummaryColumn) else fit
    return private(fit) if isinstance(fit, Released) else public(fit)


def results_list(fits: Any, names: Sequence[str] | None, asked: str) -> list[Any]:
    """Results as a list: one or more, of ours or of statsmodels, with a name for each or none.

    Raises
    ------
    OptionError
        Naming `asked`, the function that was called.
    """
    listed: list[Any] = list(fits) if isinstance(fits, Iterable) else [fits]
    if not listed:
        raise OptionError(f"{asked}([]): give at least one result.")
    for fit in listed:
        if not hasattr(fit, "params"):
            raise OptionError(
                f"{asked}: {type(fit).__name__} is no result. Give what model.fit(...) returned, "
                "here or in statsmodels."
            )
    if names is not None and len(need_names(names=names)) != len(listed):
        raise OptionError(
            f"{len(names)} names for {len(listed)} results: give one name per result."
        )
    return listed


def _flattened(fits: tuple[Any, ...], names: Any) -> tuple[list[Any], Any]:
    """Results that were given one by one or in lists, and their names, which may follow a list."""
    last = fits[-1] if len(fits) > 1 else ()
    if isinstance(last, (list, tuple)) and last and all(isinstance(each, str) for each in last):
        fits, names = fits[:-1], last if names is None else names
    groups = ([each] if not isinstance(each, Iterable) else each for each in fits)
    return results_list([fit for group in groups for fit in group], names, "compare"), names


class _Format(str):
    """A format of numbers, ``"%.4f"``, that writes small ones as powers of ten: 2.0e-06."""

    def __mod__(self, value: Any) -> str:
        number = isinstance(value, (int, float)) and math.isfinite(value)
        small = number and value != 0 and abs(value) < _SMALL
        return f"{value:.1e}" if small and "f" in self else str.__mod__(self, value)


def _is_format(text: Any) -> bool:
    """Whether it writes one number."""
    try:
        return isinstance(text, str) and bool(text % 1.0)
    except (TypeError, ValueError, OverflowError):
        return False


_SMALL = 1e-3  # below it four decimals leave one digit at most


def _terms(fits: Sequence[Any], keep: Any, drop: Any) -> list[str] | None:
    """Coefficients of all fits that are shown, in their order; None for all of them.

    Raises
    ------
    OptionError
        If a pattern is no regular expression or matches nothing, or none is left.
    """
    if keep is None and drop is None:
        return None
    every = list(dict.fromkeys(str(name) for fit in fits for name in fit.params.index))

    def matched(patterns: Any, asked: str) -> set[str]:
        found: set[str] = set()
        listed = [patterns] if isinstance(patterns, str) else need_names(**{asked: patterns})
        for pattern in listed:
            try:
                whole = {n for n in every if n == pattern or n.startswith(f"{pattern}[")}
                hits = whole | {n for n in every if re.search(pattern, n)}
            except (re.error, TypeError):
                hits = set()
            if not hits:
                raise OptionError(
                    f"compare({asked}={given(pattern)}): the name of a coefficient or factor, or a "
                    f"regular expression that one matches, is needed; there are {', '.join(every)}."
                )
            found |= hits
        return found

    kept = set(every) if keep is None else matched(keep, "keep")
    kept -= set() if drop is None else matched(drop, "drop")
    if not kept:
        raise OptionError("compare(keep=, drop=): no coefficient is left.")
    return [name for name in every if name in kept]


def compare(
    *fits: Any,
    names: Sequence[str] | None = None,
    exp: bool = False,
    stars: bool = False,
    float_format: str = "%.4f",
    keep: Any = None,
    drop: Any = None,
    title: str = "",
) -> Any:
    """Several results in one table, as statsmodels' ``summary_col`` prints it.

    Parameters
    ----------
    *fits : Results or statsmodels results
        One by one, ``compare(a, b)``, or in a list, ``compare([a, b])``. Genuine statsmodels
        results, if any, are shown as not private.
    names : sequence of str, optional
        Column headings, which may also follow a list of results; the methods by default.
    exp : bool, default False
        Odds, rate or hazard ratios in place of coefficients, with standard errors by the delta
        method; all fits need a logit, log or cloglog link.
    stars : bool, default False
        Mark coefficients with p < 0.1, 0.05, 0.01.
    float_format : str, default "%.4f"
        Of coefficients and standard errors; below 0.001 powers of ten are written in place of
        decimals, as in 2.0e-06.
    keep, drop : str or list of str, optional
        Coefficients that are shown, or not: names, those of factors, ``"C(g)"``, or regular
        expressions that they match.
    title : str, default ""
        Above the table, and the caption in LaTeX.

    Returns
    -------
    statsmodels.iolib.summary2.Summary
        With ``as_text``, ``as_html``, and ``as_latex(label="tab:fits")``: one ``table`` with
        caption, label, a booktabs tabular and notes; ``to_html("fits.html")`` and
        ``to_latex("fits.tex", label="tab:fits")`` write them, or without a path return them. Every
        name is escaped.

    Raises
    ------
    OptionError
        If there is nothing to show, a pattern matches no coefficient, or `exp` is asked of one
        that is no logarithm of a ratio.

    Examples
    --------
    >>> import dpstats as dp
    >>> schema = dp.Schema(x=dp.Numeric(0, 1), y=dp.Numeric(0, 1))
    >>> model = dp.ols("y ~ x", {"x": [0.1, 0.9] * 99, "y": [0.2, 0.8] * 99}, schema)
    >>> fits = [model.fit(dp.Central(epsilon, 1e-7)) for epsilon in (1.0, 4.0)]
    >>> print(dp.compare(fits, names=["epsilon 1", "epsilon 4"]))  # doctest: +ELLIPSIS
    <BLANKLINE>
    ...
    """
    from statsmodels.iolib.summary2 import summary_col

    listed, names = _flattened(fits, names)
    need_flag(stars=stars, exp=exp)
    ratios = [ratio_of(fit, "compare(exp=True)") for fit in listed] if exp else []
    need_text(title=title)
    if not _is_format(float_format):
        raise OptionError(f"float_format={given(float_format)}: such as '%.4f' is needed.")
    info = {label: partial(_describe, label) for label in _INFO}
    labels = list(names) if names is not None else [_describe("Method", fit) for fit in listed]
    ours = [exp or isinstance(fit, Released) for fit in listed]
    columns = [_SummaryColumn(f, exp) if own else f for f, own in zip(listed, ours, strict=True)]
    shown = _terms(columns, keep, drop)
    table = summary_col(
        columns,
        model_names=labels,
        stars=stars,
        info_dict=info,
        include_r2=False,
        float_format=_Format(float_format),
        regressor_order=shown or (),
        drop_omitted=shown is not None,
    )
    table.tables[0] = table.tables[0].replace("(nan)", "")
    for text in _notes(listed, labels, ratios):
        table.add_text(text)
    return _escaped(table, title)


def _notes(fits: Sequence[Any], labels: Sequence[str], ratios: Sequence[str]) -> Iterable[str]:
    """What is said below the table; `ratios` are empty where coefficients are shown."""
    yield "Those of private fits cover sampling error and privacy noise."
    for ratio in dict.fromkeys(ratios):
        who = ", ".join(name for name, its in zip(labels, ratios, strict=True) if its == ratio)
        yield f"{who}: {several(ratio)}, exponentials of coefficients."
    if ratios:
        yield "Standard errors of ratios are by the delta method; tests are of a ratio of 1."
    kinds = [fit.table.inference if isinstance(fit, Released) else "" for fit in fits]
    for kind in filter(None, dict.fromkeys(kinds)):
        who = ", ".join(name for name, its in zip(labels, kinds, strict=True) if its == kind)
        none, _, why = kind.partition(": ")
        said = f"no standard errors: {why}" if none == "none" else f"inference {kind}"
        yield f"{who}: {said}."
    if any(isinstance(fit, Released) and fit.reproducible for fit in fits):
        yield f"{NOT_PRIVATE}: the noise came from a seed."
    for name, fit in zip(labels, fits, strict=True):
        if isinstance(fit, Released) and fit.warnings:
            yield f"{name} warns: {' '.join(fit.warnings)}"


def _escaped(table: Any, title: str) -> Any:
    """A comparison by statsmodels, which escapes names in part or not at all, with all escaped."""
    from statsmodels.iolib.summary2 import Summary

    made = Summary()
    made.settings = table.settings
    made.tables = [printable(frame) for frame in table.tables]
    made.extra_txt = [plain(text) for text in table.extra_txt]
    if title:
        made.title = plain(title)

    def as_html() -> str:
        frames = "\n".join(html_table(_framed(frame)) for frame in made.tables)
        head = [html_text(title)] if title else []
        return "<br/>\n".join([*head, frames, *map(html_text, made.extra_txt)])

    def as_latex(label: str = "") -> str:
        head = [r"\begin{table}", r"\centering", rf"\caption{{{latex_text(title)}}}"]
        mark = [rf"\label{{{_label_text(label)}}}"] if label else []
        frames = [latex_table(_framed(frame)) for frame in made.tables]
        notes = [rf"\par\smallskip\footnotesize {latex_text(text)}" for text in made.extra_txt]
        return "\n".join([*head, *mark, *frames, *notes, r"\end{table}"])

    made.as_html, made.as_latex = as_html, as_latex
    made.to_html = lambda path=None: save_text(as_html(), path, HTML)
    made.to_latex = lambda path=None, label="": save_text(as_latex(label), path, LATEX)
    return made


def _label_text(label: str) -> str:
    """A label of LaTeX: of letters, digits and the marks that labels are made of."""
    return "".join(c for c in label if c.isalnum() or c in ":-.+/")


def _framed(frame: pd.DataFrame) -> TextTable:
    rows = zip(frame.index, *(frame[name] for name in frame), strict=True)
    return TextTable(("", *map(str, frame.columns)), tuple(tuple(map(str, row)) for row in rows))
