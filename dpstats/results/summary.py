"""The printed regression table, in statsmodels' layout, and several of them side by side.

One list of blocks (title, header, rows) is made from a result; statsmodels' table classes print
them as text, HTML, LaTeX and CSV, and `markdown` as Markdown.
"""

from __future__ import annotations

import csv
import io
import textwrap
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from dpstats.errors import OptionError
from dpstats.results.privacy_report import NOT_PRIVATE
from dpstats.text import csv_text, html_text, latex_text, markdown_text, plain, printable
from dpstats.theory import UNITS, Citation

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.results.regression import Results

__all__ = ["Block", "blocks", "compare", "markdown", "notes", "several", "summarize"]

WIDTH = 96

SOFTWARE = Citation(
    key="dpstats",
    authors="The dpstats developers",
    title="dpstats: differentially private statistics with formulas",
    year=2026,
    venue="Python package",
)


@dataclass(frozen=True, slots=True)
class Block:
    """One table of a summary.

    Attributes
    ----------
    header : tuple of str
        Column headings; empty for none.
    rows : tuple of tuple of str
        Cells, the first of each row being its label.
    left : frozenset of int
        Columns of text, aligned to the left; numbers go to the right.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: frozenset[int] = frozenset({0})

    def plain(self) -> Block:
        """With no character that a terminal would obey, so that widths are what is seen."""
        rows = tuple(tuple(map(plain, row)) for row in self.rows)
        return Block(tuple(map(plain, self.header)), rows, self.left)


def _number(value: float, digits: int) -> str:
    """Fixed digits in statsmodels' manner; powers of ten where they would hide the number."""
    small = value != 0 and abs(value) < 10.0 ** (1 - digits)
    return f"{value:.{digits}g}" if small or abs(value) >= 1e5 else f"{value:.{digits}f}"


def _coefficients(fit: Results, alpha: float) -> Block:
    coef = [(str(name), _number(value, 4)) for name, value in fit.params[fit.bse.index].items()]
    if not fit.has_inference:
        width = max((len(value) for _, value in coef), default=4)  # nothing may be selected
        rows = tuple((name, value.rjust(width)) for name, value in coef)
        return Block(("", "coef".rjust(width)), rows, frozenset({0, 1}))
    bounds = fit.conf_int(alpha)
    columns = [
        *([_number(value, 3) for value in column] for column in (fit.bse, fit.tvalues)),
        [f"{p:.3f}" for p in fit.pvalues],
        *([_number(value, 3) for value in bounds[side]] for side in bounds),
        [f"{share:.1%}" for share in fit.privacy_share],
    ]
    rows = tuple((*row, *rest) for row, *rest in zip(coef, *columns, strict=True))
    ends = (f"[{alpha / 2:g}", f"{1 - alpha / 2:g}]")
    return Block(("", "coef", "std err", "z", "P>|z|", *ends, "priv. share"), rows)


def _left_out(fit: Results) -> int:
    return len(fit.design.names) - len(fit.bse)


def _sparse(fit: Results) -> bool:
    return fit.estimate.support is not None


def _counted(number: int) -> str:
    return f"{number:,} column{' was' if number == 1 else 's were'}"


def _head(fit: Results) -> Block:
    now = time.localtime()
    plan, count = fit.plan, "public" if fit.nobs_public else "noisy"
    candidates = len(fit.selected) + _left_out(fit)
    left = [
        ("Dep. Variable:", fit.model.endog_names),
        ("Model:", _model(fit)[0]),
        *(_law(fit) if plan.model == "glm" else []),
        ("Method:", plan.method),
        ("Trust model:", fit.privacy.trust),
        ("Covariance Type:", fit.cov_type if fit.has_inference else "none"),
        *([("Inference:", fit.inference)] if fit.inference else []),
        ("Date:", time.strftime("%a, %d %b %Y %H:%M", now)),
    ]
    noisy = f"{fit.nobs_contributing:.0f}"
    right = [
        (f"No. Observations ({count}):", f"{fit.nobs:.0f}"),
        *([("Contributing (noisy count):", noisy)] if fit.privacy.trust == "central" else []),
        *([("Selected:", f"{len(fit.selected)} of {candidates:,}")] if _sparse(fit) else []),
        ("Df Residuals:", f"{fit.df_resid:.0f}"),
        ("Df Model:", f"{fit.df_model:.0f}"),
        ("Epsilon:", f"{plan.privacy.epsilon:g}"),
        ("Delta:", f"{plan.privacy.delta:g}"),
    ]
    pairs = zip_longest(left, right, fillvalue=("", ""))
    return Block((), tuple((*a, "  " + b[0], b[1]) for a, b in pairs), frozenset({0, 2}))


def _title(fit: Results) -> str:
    mark = f" [{NOT_PRIVATE}]" if fit.reproducible else ""
    return plain(f"Differentially Private {_model(fit)[1]} Results{mark}")


_MODELS = {  # as statsmodels calls them in the head and in the title
    "logit": ("Logit", "Logit Regression"),
    "glm": ("GLM", "Generalized Linear Model Regression"),
}


def _model(fit: Results) -> tuple[str, str]:
    name = fit.plan.model
    return _MODELS.get(name, (name.upper(), name.upper()))


def _law(fit: Results) -> list[tuple[str, str]]:
    family = fit.design.family
    return [
        ("Model Family:", family.name.capitalize()),
        ("Link Function:", family.link.capitalize()),
    ]


_COEFFICIENTS = {
    "logit": "Coefficients are logarithms of odds ratios; exp_conf_int() gives the ratios.",
    "log": "Coefficients are logarithms of ratios of the mean; exp_conf_int() gives the ratios.",
}


def blocks(fit: Results, alpha: float = 0.05) -> list[Block]:
    """Head, coefficients, privacy facts, mechanisms, error bound and its conditions."""
    mechanisms_header, mechanisms = fit.privacy.table()
    (_, *bound_header), bounds = fit.error_bound.table()
    facts = tuple((f"{label}:", text) for label, text in fit.privacy.facts())
    conditions = tuple((c.statement, c.verdict) for c in fit.error_bound.assumptions)
    left_out = ((f"{_counted(_left_out(fit))} not selected",),) if _sparse(fit) else ()
    found = [
        _head(fit),
        _coefficients(fit, alpha),
        Block((), left_out),
        Block(("Privacy", ""), facts, frozenset({0, 1})),
        Block(mechanisms_header, tuple(mechanisms), frozenset({0, 1, 3})),
        Block(("Error bound", *bound_header), tuple(bounds), frozenset({0, 1})),
        Block(("Conditions of the theorem", "here"), conditions),
    ]
    return [block.plain() for block in found if block.rows]


def _about_errors(fit: Results) -> list[str]:
    """What the standard errors hold, and for what."""
    if not fit.has_inference:
        return [fit.no_inference]
    conditional = (
        f"Inference: {fit.inference}. Standard errors, tests and intervals are those of a "
        "regression on the selected columns, as if these had been named beforehand; they do not "
        "say whether a column that was left out matters."
    )
    return [
        "Standard errors, tests and intervals cover sampling error and privacy noise; 'priv. "
        "share' is the part of each variance that privacy adds. The reference is normal.",
        conditional if fit.inference else "",
    ]


def _short(value: Any) -> str:
    """A released value with four digits; of a long list its ends."""
    if isinstance(value, (list, tuple)):
        ends = [*value[:4], "...", value[-1]] if len(value) > 6 else value
        return f"({', '.join(map(_short, ends))})"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _modelled(fit: Results) -> str:
    """Which level of a binomial response the probability is of, where that is not 1."""
    schema, name = fit.design.schema, fit.model.endog_names
    if fit.design.family.name != "binomial" or schema is None or name not in schema:
        return ""
    levels = getattr(schema[name], "levels", (0, 1))
    if set(levels) == {0, 1}:
        return ""
    return f"The probability that is modelled is that of {name} = {levels[1]!r}."


def notes(fit: Results) -> list[str]:
    """Numbered explanations below the tables."""
    estimand, known = fit.error_bound.estimand, fit.design.offset
    extra = ", ".join(f"{name} {_short(value)}" for name, value in fit.released.items())
    departures = len(fit.error_bound.corrections)
    paragraphs = [
        f"{NOT_PRIVATE}. The noise came from a seed: such a fit is for simulation and tests only."
        if fit.reproducible
        else "",
        *_about_errors(fit),
        _modelled(fit),
        _COEFFICIENTS.get(fit.design.family.link, ""),
        f"Known term of the linear predictor, with coefficient 1: {known.name}." if known else "",
        f"Estimand: {estimand}." if estimand else "",
        "The privacy guarantee holds for every data set; the error bound needs its conditions.",
        f"Also released, in standardised units: {extra}." if extra else "",
        UNITS,
        *fit.error_bound.formulas(),
        *(f"Warning: {text}" for text in (*fit.plan.warnings, *fit.estimate.remarks)),
        f"Departs from the printed method in {departures} point{'s' * (departures > 1)}: see "
        "error_bound.corrections."
        if departures
        else "",
        *(f"Design: {text}" for text in fit.design.notes),
    ]
    return [f"[{i}] {plain(text)}" for i, text in enumerate(filter(None, paragraphs), start=1)]


# ---- text, HTML, LaTeX and CSV through statsmodels ----------------------------------------------


def summarize(fit: Results, alpha: float = 0.05) -> Any:
    """`Results.summary` as a ``statsmodels.iolib.summary.Summary``."""
    from statsmodels.iolib.summary import Summary

    parts, title, remarks = blocks(fit, alpha), _title(fit), notes(fit)

    class ResultSummary(Summary):  # type: ignore[misc]
        """Text of one width; LaTeX, HTML and CSV with every cell escaped."""

        def as_text(self) -> str:
            return _text(title, parts, remarks)

        def as_latex(self) -> str:
            tables = [_tabular(part) for part in parts]
            return "\n\n".join([latex_text(title), *tables, *map(latex_text, ["Notes:", *remarks])])

        def as_html(self) -> str:
            tables = [table.as_html() for table in self.tables]
            text = "<br/>".join(html_text(line) for line in ["Notes:", *remarks])
            return "\n".join([*tables, f"<p>{text}</p>"])

        def as_csv(self) -> str:
            out = io.StringIO()
            rows = [row for part in parts for row in (part.header, *part.rows) if row]
            lines = [(title,), *rows, *((line,) for line in remarks)]
            csv.writer(out).writerows([csv_text(cell.strip()) for cell in row] for row in lines)
            return out.getvalue()

    summary = ResultSummary()
    summary.tables = [_table(part) for part in parts]
    summary.tables[0].title = title
    summary.add_extra_txt(["Notes:", *remarks])
    return summary


def _table(block: Block, widths: Sequence[int] | None = None) -> Any:
    """A statsmodels table of `block`, with columns of at least `widths` characters as text."""
    from statsmodels.iolib.table import SimpleTable

    columns = range(len(block.rows[0]))
    align = "".join("l" if j in block.left else "r" for j in columns)
    header = list(block.header)
    if widths and header:  # statsmodels aligns all headings alike
        header = [
            h.ljust(w) if a == "l" else h for h, w, a in zip(header, widths, align, strict=True)
        ]

    def cell(tag: str) -> Callable[[str], str]:
        return lambda text: f"<{tag}>{html_text(text.strip())}</{tag}>"

    return SimpleTable(
        [list(row) for row in block.rows],
        headers=header or None,
        data_aligns=align,
        header_align="r",
        txt_fmt={"colwidths": list(widths) if widths else None, "table_dec_below": None},
        html_fmt={"data_fmts": [cell("th"), *[cell("td") for _ in columns[1:]]]},
    )


def _tabular(block: Block) -> str:
    """The block as a LaTeX tabular (booktabs); long text columns are wrapped."""
    widths = _natural(block)
    kinds = ["l" if j in block.left else "r" for j in range(len(widths))]
    columns = "".join(
        r"p{0.6\linewidth}" if k == "l" and w > 60 else k
        for k, w in zip(kinds, widths, strict=True)
    )
    lines = [" & ".join(latex_text(cell.strip()) for cell in row) + r" \\" for row in block.rows]
    heads = " & ".join(rf"\textbf{{{latex_text(cell)}}}" for cell in block.header)
    top = [heads + r" \\", r"\midrule"] if block.header else []
    begin, end = rf"\begin{{tabular}}{{{columns}}}", r"\end{tabular}"
    return "\n".join([begin, r"\toprule", *top, *lines, r"\bottomrule", end])


def _natural(block: Block) -> list[int]:
    rows = [block.header, *block.rows] if block.header else list(block.rows)
    return [max(len(row[j]) for row in rows) for j in range(len(block.rows[0]))]


def _fitted(block: Block, width: int) -> Any:
    """The table of `block` exactly `width` characters wide, its longest text columns wrapped."""
    widths = _natural(block)
    spare = width - sum(widths) - len(widths) + 1
    if spare < 0:
        for _ in range(-spare):
            widths[max(block.left, key=lambda j: widths[j])] -= 1
        rows = [line for row in block.rows for line in _wrapped(row, widths)]
        block = Block(block.header, tuple(rows), block.left)
    else:
        numbers = [j for j in range(len(widths)) if j not in block.left] or [len(widths) - 1]
        for i, j in enumerate(numbers):
            widths[j] += spare // len(numbers) + (i < spare % len(numbers))
    return _table(block, widths)


def _wrapped(row: tuple[str, ...], widths: Sequence[int]) -> list[tuple[str, ...]]:
    """The row as several, with no cell wider than its column."""
    cells = [textwrap.wrap(cell, w) or [""] for cell, w in zip(row, widths, strict=True)]
    return list(zip_longest(*cells, fillvalue=""))


def _text(title: str, parts: Sequence[Block], remarks: Iterable[str]) -> str:
    # Only names of coefficients may be longer than the page; they are never cut.
    width = max(WIDTH, *(sum(_natural(part)) + len(_natural(part)) - 1 for part in parts[:2]))
    tables = [str(_fitted(part, width)) for part in parts]
    wrapped = [line for r in remarks for line in textwrap.wrap(r, width, subsequent_indent="    ")]
    page = "\n".join([title.center(width), *tables, "=" * width, "", "Notes:", *wrapped])
    return "\n".join(line.rstrip() for line in page.split("\n"))


# ---- Markdown -----------------------------------------------------------------------------------


def markdown(fit: Results, alpha: float = 0.05) -> str:
    """The summary as GitHub-flavoured Markdown."""
    tables = [_pipe(block) for block in blocks(fit, alpha)]
    lines = [text.partition(" ")[2] for text in notes(fit)]
    numbered = "\n".join(f"{i}. {markdown_text(line)}" for i, line in enumerate(lines, start=1))
    return "\n\n".join([f"### {markdown_text(_title(fit))}", *tables, "**Notes**", numbered]) + "\n"


def _pipe(block: Block) -> str:
    columns = range(len(block.rows[0]))
    rule = ["---" if j in block.left else "---:" for j in columns]
    header = block.header or [""] * len(columns)
    lines = [map(markdown_text, header), rule, *(map(markdown_text, row) for row in block.rows)]
    return "\n".join("| " + " | ".join(cell.strip() for cell in line) + " |" for line in lines)


# ---- several results side by side ---------------------------------------------------------------

_INFO: dict[str, tuple[Callable[[Any], str], Callable[[Any], str]]] = {
    # label: (for a private result, for a statsmodels result)
    "Trust model": (lambda fit: fit.privacy.trust, lambda fit: "none"),
    "Epsilon": (lambda fit: f"{fit.plan.privacy.epsilon:g}", lambda fit: "none"),
    "Delta": (lambda fit: f"{fit.plan.privacy.delta:g}", lambda fit: "none"),
    "Method": (lambda fit: fit.plan.method, lambda fit: type(fit.model).__name__),
    "Privacy": (
        lambda fit: NOT_PRIVATE if fit.reproducible else "private",
        lambda fit: "NOT private",
    ),
    "No. Observations": (lambda fit: f"{fit.nobs:.0f}", lambda fit: f"{fit.nobs:.0f}"),
}


class _Column:
    """A private result as ``summary_col`` reads it: of a sparse fit, the selected columns."""

    def __init__(self, fit: Results) -> None:
        self._fit = fit
        self.params = fit.params[fit.bse.index]
        self.model = SimpleNamespace(
            exog_names=list(fit.bse.index), endog_names=fit.model.endog_names
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fit, name)


def _ours(fit: Any) -> bool:
    return hasattr(fit, "privacy")


def _describe(label: str, fit: Any) -> str:
    private, public = _INFO[label]
    return private(fit) if _ours(fit) else public(fit)


def several(fits: Any, names: Sequence[str] | None, asked: str) -> list[Any]:
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
    if names is not None and len(names) != len(listed):
        raise OptionError(
            f"{len(names)} names for {len(listed)} results: give one name per result."
        )
    return listed


def compare(fits: Sequence[Any], names: Sequence[str] | None = None, *, stars: bool = False) -> Any:
    """Several results in one table, as statsmodels' ``summary_col`` prints it.

    Parameters
    ----------
    fits : sequence of Results or statsmodels results
        Genuine statsmodels results, if any, are shown as not private.
    names : sequence of str, optional
        Column headings; the methods by default.
    stars : bool, default False
        Mark coefficients with p < 0.1, 0.05, 0.01.

    Returns
    -------
    statsmodels.iolib.summary2.Summary
        With ``as_text``, ``as_html``, ``as_latex``, every name escaped.
    """
    from statsmodels.iolib.summary2 import summary_col

    fits = several(fits, names, "compare")
    info = {label: partial(_describe, label) for label in _INFO}
    labels = list(names) if names is not None else [_describe("Method", fit) for fit in fits]
    columns = [_Column(fit) if _ours(fit) else fit for fit in fits]
    table = summary_col(columns, model_names=labels, stars=stars, info_dict=info, include_r2=False)
    table.tables[0] = table.tables[0].replace("(nan)", "")
    table.add_text("Those of private fits cover sampling error and privacy noise.")
    for label in dict.fromkeys(fit.inference for fit in fits if _ours(fit) and fit.inference):
        named = zip(labels, fits, strict=True)
        who = ", ".join(name for name, fit in named if _ours(fit) and fit.inference == label)
        none, _, why = label.partition(": ")
        said = f"no standard errors: {why}" if none == "none" else f"inference {label}"
        table.add_text(f"{who}: {said}.")
    if any(_ours(fit) and fit.reproducible for fit in fits):
        table.add_text(f"{NOT_PRIVATE}: the noise came from a seed.")
    return _escaped(table)


def _escaped(table: Any) -> Any:
    """A comparison by statsmodels, which escapes names in part or not at all, with all escaped."""
    from statsmodels.iolib.summary2 import Summary

    class Comparison(Summary):  # type: ignore[misc]
        """Text as statsmodels has it; HTML and LaTeX with every cell escaped."""

        def as_html(self) -> str:
            frames = "\n".join(_html_table(_framed(frame)) for frame in self.tables)
            return "<br/>\n".join([frames, *map(html_text, self.extra_txt)])

        def as_latex(self, label: str = "") -> str:
            head = [r"\begin{table}", r"\caption{}", rf"\label{{{label}}}"]
            frames = [_tabular(_framed(frame)) for frame in self.tables]
            notes = " \\newline \n".join(map(latex_text, self.extra_txt))
            return "\n".join([*head, *frames, r"\end{table}", r"\bigskip", notes])

    made = Comparison()
    made.settings = table.settings
    made.tables = [printable(frame) for frame in table.tables]
    made.extra_txt = [plain(text) for text in table.extra_txt]
    return made


def _framed(frame: pd.DataFrame) -> Block:
    rows = zip(frame.index, *(frame[name] for name in frame), strict=True)
    return Block(("", *map(str, frame.columns)), tuple(tuple(map(str, row)) for row in rows))


def _html_table(block: Block) -> str:
    """The block as HTML, in the form that statsmodels gives its tables."""
    head = "".join(f"<th>{html_text(cell)}</th>" for cell in block.header)
    body = (
        f"<th>{html_text(label)}</th>" + "".join(f"<td>{html_text(cell)}</td>" for cell in cells)
        for label, *cells in block.rows
    )
    lines = "\n".join(f"<tr>{line}</tr>" for line in (head, *body))
    return f'<table class="simpletable">\n{lines}\n</table>'
