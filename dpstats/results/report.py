"""One self-contained HTML page about a fit, to send to somebody who was not there."""

from __future__ import annotations

import io
from pathlib import Path

from dpstats.privacy import NOT_PRIVATE
from dpstats.results import plot
from dpstats.results.released import Released
from dpstats.text import html_text, pre

__all__ = ["html_report", "write_report"]

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; max-width: 62rem; margin: 2rem auto;
       padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; margin: 0.7rem 0; font-variant-numeric: tabular-nums; }
caption { font-weight: 600; text-align: left; padding-bottom: 0.3rem; }
th, td { padding: 0.15rem 0.7rem 0.15rem 0; text-align: left; vertical-align: top; }
tr { border-bottom: 1px solid #e5e5e5; }
pre { background: #f6f6f6; padding: 0.8rem; overflow-x: auto; font-size: 0.85rem; }
svg { max-width: 100%; height: auto; }
.warning { background: #fdf0e7; border-left: 4px solid #d55e00; padding: 0.5rem 0.8rem; }
"""


def _svg(fit: Released) -> str:
    """The coefficient plot as inline SVG, without a window and without date or random ids."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    count = len(fit.bse)
    with mpl.rc_context({"svg.hashsalt": "dpstats", "svg.fonttype": "none"}):
        figure = Figure(figsize=(9, 1.4 + 0.38 * count), layout="constrained")
        plot.coefficients(fit, ax=figure.subplots())
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def html_report(fit: Released) -> str:
    """The page: plan, summary with its privacy and error-bound blocks, plot, citation.

    Parameters
    ----------
    fit : Results
        Released numbers; the page holds nothing else.

    Returns
    -------
    str
        One HTML document without external references.
    """
    title = f"{fit.model.formula or fit.plan.model}: {fit.plan.method}, {fit.privacy.trust}"
    banner = (
        f'<p class="warning"><strong>{NOT_PRIVATE}.</strong> The noise came from a seed: this page '
        "is for simulation and tests only.</p>"
        if fit.reproducible
        else ""
    )
    sections = [
        ("What was released", fit.to_html(full=True)),
        ("Coefficients" if fit.table.of_coefficients else "Estimates", _svg(fit)),
        ("What was planned, before any row was read", pre(str(fit.plan))),
        ("Error bound", pre(repr(fit.error_bound))),
        ("Proof of privacy", f"<p>{html_text(fit.privacy.guarantee)}</p>"),
        (
            "How to cite",
            pre(fit.cite()) + pre(fit.cite("bibtex")),
        ),
    ]
    body = "\n".join(f"<h2>{html_text(head)}</h2>\n{content}" for head, content in sections)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{html_text(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body><h1>{html_text(title)}</h1>\n{banner}\n{body}\n</body></html>\n"
    )


def write_report(fit: Released, path: str | Path) -> None:
    """Write `html_report` to `path`."""
    Path(path).write_text(html_report(fit), encoding="utf-8")
