"""One self-contained HTML page about a fit, to send to somebody who was not there."""

from __future__ import annotations

import io
from typing import Any

from dpstats.outputs import HTML, FilePath, write_page
from dpstats.privacy import NOT_PRIVATE
from dpstats.results import plot
from dpstats.results.descriptive import HistogramResults
from dpstats.results.federated import FederatedResults, SummedResults
from dpstats.results.mixture import MixtureResults
from dpstats.results.page import TextTable, html_table
from dpstats.results.regression_mixture import RegressionMixtureResults
from dpstats.results.released import Released
from dpstats.text import html_text, plain, pre

__all__ = ["html_report", "write_report"]

_STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #ffffff; --line: #e5e5e5;
        --shade: #f6f6f6; --alert: #fdf0e7; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --paper: #16181d; --line: #3a3d44; --shade: #22252b; --alert: #3b2a1c; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; overflow-wrap: anywhere; } h2 { font-size: 1.15rem; margin-top: 2rem; }
section { overflow-x: auto; }
table { border-collapse: collapse; margin: 0.7rem 0; font-variant-numeric: tabular-nums; }
caption { font-weight: 600; text-align: left; padding-bottom: 0.3rem; }
th, td { padding: 0.15rem 0.7rem 0.15rem 0; text-align: left; vertical-align: top; }
tr { border-bottom: 1px solid var(--line); }
pre { background: var(--shade); padding: 0.8rem; overflow-x: auto; font-size: 0.85rem; }
svg { max-width: 100%; height: auto; background: #ffffff; }
.warning { background: var(--alert); border-left: 4px solid #d55e00; padding: 0.5rem 0.8rem; }
"""
_TOLD = 12  # numbers that the text of a plot reads out


def _svg(fit: Released) -> str:
    """The plot as inline SVG, without a window and without date or random ids."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    count = len(fit.bse)
    with mpl.rc_context({"svg.hashsalt": "dpstats", "svg.fonttype": "none"}):
        figure = Figure(figsize=(9, 1.4 + 0.38 * count), layout="constrained")
        ax = figure.subplots()
        if isinstance(fit, HistogramResults):
            figure.set_size_inches(9, 4)
            plot.histogram(fit, ax=ax)
        elif isinstance(fit, (MixtureResults, RegressionMixtureResults)) and _drawable(fit):
            figure.set_size_inches(9, 5)
            plot.mixture(fit, ax=ax)
        else:
            plot.coefficients(fit, ax=ax)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    told = html_text(f"{ax.get_title(loc='left')}, {_told(fit)}").replace("\n", " ")
    return text[text.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{told}"', 1)


def _drawable(fit: MixtureResults | RegressionMixtureResults) -> bool:
    """Whether there is a column to draw components along."""
    return set(fit.estimate.columns) != {"Intercept"}


def _told(fit: Released) -> str:
    """What the plot shows, in words: for those who cannot see it."""
    bounds, values = fit.conf_int(), fit.params.to_numpy().ravel()
    if len(values) > len(bounds):  # columns that were not selected have no interval
        values = fit.table.inner_values
    told = [
        f"{plain(' '.join(map(str, name)) if isinstance(name, tuple) else str(name))} {value:.3g}"
        + (f" (95 % interval {low:.3g} to {high:.3g})" if low == low else "")
        for name, value, (low, high) in zip(bounds.index, values, bounds.to_numpy(), strict=True)
    ]
    rest = len(told) - _TOLD
    return "; ".join(told[:_TOLD]) + (f"; and {rest} more, in the table above" if rest > 0 else "")


def _sources(fit: FederatedResults | SummedResults) -> str:
    """What each site gave, as a table."""
    frame = fit.sources.reset_index()
    rows = (tuple(map(_cell, row)) for row in frame.itertuples(index=False))
    return html_table(TextTable(tuple(frame.columns), tuple(rows)))


def _cell(value: Any) -> str:
    import pandas as pd

    if isinstance(value, str):
        return value
    return "" if pd.isna(value) else f"{value:.3g}" if isinstance(value, float) else f"{value:,}"


def html_report(fit: Released) -> str:
    """The page: plan, summary with its privacy and error-bound blocks, plot, sites, citation.

    Parameters
    ----------
    fit : Results
        Released numbers; the page holds nothing else.

    Returns
    -------
    str
        One HTML document without external references.
    """
    title = f"{fit._fitted[0].upper()}{fit._fitted[1:]}: {fit.plan.method}, {fit.privacy.trust}"
    banner = (
        f'<p class="warning"><strong>{NOT_PRIVATE}.</strong> The noise came from a seed: this page '
        "is for simulation and tests only.</p>"
        if fit.reproducible
        else ""
    )
    sections = [
        ("What was released", fit.to_html(full=True)),
        ("Coefficients" if fit.table.of_coefficients else "Estimates", _svg(fit)),
        *(
            [("What each site gave", _sources(fit))]
            if isinstance(fit, (FederatedResults, SummedResults))
            else []
        ),
        ("What was planned, before any row was read", pre(str(fit.plan))),
        ("Error bound", pre(repr(fit.error_bound))),
        ("Proof of privacy", f"<p>{html_text(fit.privacy.guarantee)}</p>"),
        (
            "How to cite",
            pre(fit.cite()) + pre(fit.cite("bibtex")),
        ),
    ]
    body = "\n".join(
        f"<h2>{html_text(head)}</h2>\n<section>{content}</section>" for head, content in sections
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html_text(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body><h1>{html_text(title)}</h1>\n{banner}\n{body}\n</body></html>\n"
    )


def write_report(fit: Released, path: FilePath) -> None:
    """Write `html_report` to `path`; a report that is there is replaced, and nothing else is.

    Raises
    ------
    OptionError
        If the path names no file that can be made, or something that is there and no report.
    """
    write_page(path, HTML, html_report(fit))
