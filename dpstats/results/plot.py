"""Plots of released numbers: coefficients, effects, histograms, what was spent and what it gives.

Each function draws on ``ax`` (a new figure by default) and returns it. matplotlib is imported when
a plot is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError, among, given, need_flag
from dpstats.privacy import NOT_PRIVATE
from dpstats.results.budget_plot import error_vs_epsilon, ledger
from dpstats.results.canvas import COLORS, GREY, MARKERS, axes, finished
from dpstats.results.compare import results_list
from dpstats.results.counts import HistogramResults
from dpstats.results.effect_plot import effect
from dpstats.results.federated import FederatedResults
from dpstats.results.inference import normal_quantile
from dpstats.results.mixture_plot import mixture
from dpstats.results.ratios import ratio_of, several
from dpstats.results.released import Released
from dpstats.text import figure_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = [
    "coefficients",
    "effect",
    "error_vs_epsilon",
    "forest",
    "histogram",
    "ledger",
    "mixture",
    "sources",
]

_INTERCEPTS = ("Intercept", "const")


def _label(fit: Any, name: str | None) -> str:
    """Legend entry; a name hides neither that noise was seeded nor that the fit warns."""
    if not isinstance(fit, Released):
        return figure_text(name or f"{type(fit.model).__name__} (not private)")
    p = fit.plan
    text = figure_text(name or f"{p.method}, {fit.privacy.trust}")
    text += "" if name else f", $\\varepsilon$ = {p.privacy.epsilon:g}"
    text += "" if fit.has_inference else " (no valid interval)"
    text += " (warns)" if fit.warnings else ""
    return f"{text} [{NOT_PRIVATE}]" if fit.reproducible else text


_SCALE = {"log": "log mean of ", "logit": "log odds of "}


def _quantity(fits: Sequence[Any], per: str) -> str:
    """What is drawn: of coefficients, changes of the response through the link."""
    ours = [fit for fit in fits if isinstance(fit, Released)]
    if not all(fit.table.of_coefficients for fit in ours):
        return "estimate"
    scale = _SCALE.get(ours[0].design.family.link if ours else "", "")
    first = fits[0]  # statsmodels has another name for it
    response = figure_text(str(getattr(first, "response", first.model.endog_names)))
    return f"coefficient ({scale}{response} per {_PER[per]})"


def _units(fits: Sequence[Any], per: str, terms: Sequence[str]) -> pd.Series:
    """How many units of each regressor a coefficient is drawn for."""
    import pandas as pd

    units = pd.Series(1.0, index=list(terms))
    designs = [fit.design for fit in fits if isinstance(fit, Released)] if per == "scale" else []
    for design in designs:
        units.update(pd.Series(design.standardization.x_scale, index=list(design.names)))
    return units


def _drawn(
    fit: Any, names: Sequence[str], unit: NDArray[np.float64], alpha: float
) -> tuple[NDArray[np.float64], ...]:
    """Values, and ends of the whiskers of sampling error alone and of all error.

    Shapes (k,), (2, k) and (2, k).
    """
    value, total = unit * fit.params[names].to_numpy(), fit.bse[names].to_numpy()
    share = fit.privacy_share[names].to_numpy() if isinstance(fit, Released) else 0.0
    half = normal_quantile(alpha) * unit * total
    ends = np.stack([value - half, value + half])
    if isinstance(fit, Released):  # intervals that may not be normal
        ends = unit * fit.conf_int(alpha).set_axis(fit.table.inner_names).loc[names].to_numpy().T
    sampling = np.sqrt(1 - share) * half
    return value, np.stack([value - sampling, value + sampling]), ends


def _whiskers(ax: Axes, y: Any, drawn: Sequence[NDArray[np.float64]], k: int, label: str) -> None:
    """Dots with two nested whiskers, in colour and marker k."""
    x, sampling, total = drawn
    color, marker = COLORS[k % len(COLORS)], MARKERS[k % len(MARKERS)]
    ax.hlines(y, *total, color=color, lw=1.2)
    ax.hlines(y, *sampling, color=color, lw=4.0, alpha=0.45)
    ax.plot(x, y, marker, color=color, ms=5, mec="white", mew=0.6, label=label)


def _explain_whiskers(ax: Axes, alpha: float) -> None:
    level = f"{1 - float(alpha):.0%} interval"
    ax.plot([], [], color=GREY, lw=4.0, alpha=0.45, label=f"{level}, sampling error")
    ax.plot([], [], color=GREY, lw=1.2, label=f"{level}, with privacy noise")


def _ratio_axis(ax: Axes, fits: Sequence[Any], asked: str) -> tuple[str, str]:
    """A logarithmic axis; what its ratios are, and the title."""
    ratios = {ratio_of(fit, f"{asked}(exp=True)") for fit in fits}
    ax.set_xscale("log")
    ratio = ratios.pop() if len(ratios) == 1 else "ratio"
    return ratio, several(ratio).capitalize()


def _tick_ratios(ax: Axes) -> None:
    """Round numbers on a logarithmic axis, however short or long it is."""
    from matplotlib.ticker import LogLocator, MaxNLocator, StrMethodFormatter

    lower, upper = ax.get_xlim()
    subs = (1.0, 2.0, 5.0) if upper < 1000 * lower else (1.0,)
    short, ticks = MaxNLocator(6), LogLocator(subs=subs, numticks=8)
    ax.xaxis.set_major_locator(short if upper < 5 * lower else ticks)
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)


_PER = {"unit": "unit of the regressor", "scale": "public scale of the regressor"}


def coefficients(
    fits: Any,
    names: Sequence[str] | None = None,
    alpha: float = 0.05,
    *,
    per: str = "unit",
    intercept: bool = False,
    exp: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Dots with two nested whiskers: sampling error alone (thick), with privacy noise (thin).

    Parameters
    ----------
    fits : Results, or sequence of Results and statsmodels results
        Coefficients of one name share a row; of a sparse fit, those of the selected columns are
        drawn, without whiskers where no interval is valid.
    names : sequence of str, optional
        Legend entries; method, trust model and epsilon by default.
    alpha : float, default 0.05
        Whiskers are intervals of level 1 - alpha.
    per : {"unit", "scale"}
        Change of the regressor that a coefficient is drawn for: one unit, or its public scale
        (half its declared range, unless the schema says otherwise), which makes regressors of
        different units comparable.
    intercept : bool, default False
        Whether to draw the intercept, whose scale is often another.
    exp : bool, default False
        Whether to draw exponentials on a logarithmic axis: odds ratios of a logistic regression,
        ratios of means of a log link.
    ax : matplotlib Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    OptionError
        If `per` is neither, or `exp` is asked of another link.

    Examples
    --------
    >>> import dpstats as dp
    >>> schema = dp.Schema(x=dp.Numeric(0, 1), y=dp.Numeric(0, 1))
    >>> model = dp.ols("y ~ x", {"x": [0.1, 0.9] * 99, "y": [0.2, 0.8] * 99}, schema)
    >>> ax = dp.plot.coefficients(model.fit(dp.Central(1.0, 1e-7)))
    """
    fits = results_list(fits, names, "plot.coefficients")
    need_flag(intercept=intercept, exp=exp)
    if not among(per, _PER):
        raise OptionError(f"per={given(per)}: allowed are {', '.join(map(repr, _PER))}.")
    labels = list(map(_label, fits, names if names is not None else [None] * len(fits)))
    terms = list(dict.fromkeys(str(name) for fit in fits for name in fit.bse.index))
    if not intercept and len(terms) > 1:
        terms = [t for t in terms if t not in _INTERCEPTS]
    units, row = _units(fits, per, terms), {term: -i for i, term in enumerate(terms)}
    longest = max(len(term) for term in terms)
    ax = axes(ax, 7.0 + 0.07 * longest, 1.4 + len(terms) * (0.22 + 0.16 * len(fits)))
    ratio, title = _ratio_axis(ax, fits, "plot.coefficients") if exp else ("", "")
    quantity = f"{ratio} per {_PER[per]}" if exp else _quantity(fits, per)
    ax.axvline(1 if exp else 0, color=GREY, lw=0.8, zorder=0)
    for k, (fit, label) in enumerate(zip(fits, labels, strict=True)):
        shown = [t for t in terms if t in fit.bse.index]
        y = np.array([row[t] for t in shown]) + 0.22 * ((len(fits) - 1) / 2 - k)
        drawn = _drawn(fit, shown, units[shown].to_numpy(), alpha)
        _whiskers(ax, y, [np.exp(part) for part in drawn] if exp else drawn, k, label)
    ax.set_yticks(list(row.values()), list(map(figure_text, terms)))
    ax.set_ylim(-len(terms) + 0.4, 0.6)
    if any(fit.bse.notna().any() for fit in fits):
        _explain_whiskers(ax, alpha)
    if exp:
        _tick_ratios(ax)
    ax.set_xlabel(quantity)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    tainted = any(isinstance(fit, Released) and fit.reproducible for fit in fits)
    return finished(ax, title or f"{quantity.partition(' (')[0].capitalize()}s", tainted)


def forest(
    fits: Any,
    term: str,
    names: Sequence[str] | None = None,
    alpha: float = 0.05,
    *,
    exp: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """One coefficient of several models, a row each: a forest plot.

    Parameters
    ----------
    fits : sequence of Results and statsmodels results
        Those without the term are refused.
    term : str
        The coefficient.
    names : sequence of str, optional
        Names of the rows; method, trust model and epsilon by default.
    alpha : float, default 0.05
        Whiskers are intervals of level 1 - alpha, as in `coefficients`.
    exp : bool, default False
        Whether to draw ratios on a logarithmic axis, as in `coefficients`.
    ax : matplotlib Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    OptionError
        If a model has no such term.

    Examples
    --------
    >>> import dpstats as dp
    >>> schema = dp.Schema(x=dp.Numeric(0, 1), y=dp.Numeric(0, 1))
    >>> model = dp.ols("y ~ x", {"x": [0.1, 0.9] * 99, "y": [0.2, 0.8] * 99}, schema)
    >>> fits = [model.fit(dp.Central(epsilon, 1e-7)) for epsilon in (0.5, 1.0, 2.0)]
    >>> ax = dp.plot.forest(fits, "x", ["epsilon .5", "epsilon 1", "epsilon 2"])
    """
    fits = results_list(fits, names, "plot.forest")
    need_flag(exp=exp)
    labels = list(map(_label, fits, names if names is not None else [None] * len(fits)))
    for fit, label in zip(fits, labels, strict=True):
        if not among(term, fit.bse.index):
            raise OptionError(f"plot.forest: {label} has no term {given(term)}.")
    ax = axes(ax, 7.0 + 0.07 * max(map(len, labels)), 1.4 + 0.38 * len(fits))
    ratio, _ = _ratio_axis(ax, fits, "plot.forest") if exp else ("", "")
    quantity = f"{ratio} per {_PER['unit']}" if exp else _quantity(fits, "unit")
    ax.axvline(1 if exp else 0, color=GREY, lw=0.8, zorder=0)
    for k, fit in enumerate(fits):
        drawn = _drawn(fit, [term], np.ones(1), alpha)
        _whiskers(ax, [-k], [np.exp(part) for part in drawn] if exp else drawn, 0, "")
    ax.set_yticks([-k for k in range(len(fits))], labels)
    ax.set_ylim(-len(fits) + 0.4, 0.6)
    _explain_whiskers(ax, alpha)
    if exp:
        _tick_ratios(ax)
    ax.set_xlabel(quantity)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    tainted = any(isinstance(fit, Released) and fit.reproducible for fit in fits)
    return finished(ax, f"{figure_text(term)}, by model", tainted)


def histogram(fit: Any, alpha: float = 0.05, *, ax: Axes | None = None) -> Axes:
    """Density of each bin, with intervals of level 1 - alpha.

    A first or last bin that is more than three times as wide as the others is not drawn; the label
    of the axis says how much lies beyond.

    Parameters
    ----------
    fit : HistogramResults
        Of `dpstats.histogram`.
    alpha : float, default 0.05
        Level of the intervals.
    ax : matplotlib Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import dpstats as dp
    >>> schema = dp.Schema(y=dp.Numeric(0, 1))
    >>> fit = dp.histogram("y", {"y": [0.2, 0.8] * 99}, schema).fit(dp.Central(1.0, 1e-7))
    >>> ax = dp.plot.histogram(fit)
    """
    if not isinstance(fit, HistogramResults):
        raise OptionError("plot.histogram draws what dp.histogram(...).fit(...) returns.")
    table, edges = fit.frame(alpha), fit.edges
    width = np.diff(edges)
    drawn = np.ones(width.size, dtype=np.bool_)
    drawn[[0, -1]] = width[[0, -1]] <= 3 * np.median(width)
    ax = axes(ax, 7.0, 3.4)
    shares, lower, upper = (table[name].to_numpy() / width for name in ("share", "lower", "upper"))
    middle = (edges[:-1] + edges[1:])[drawn] / 2
    ax.bar(middle, shares[drawn], width[drawn], color=COLORS[0], alpha=0.45, edgecolor="white")
    ax.vlines(middle, lower[drawn], upper[drawn], color=COLORS[0], lw=1.2)
    beyond = float(table["share"].to_numpy()[~drawn].sum())
    rest = "" if drawn.all() else f" ({beyond:.1%} of the values are beyond)"
    name = figure_text(fit.design.inputs[0])
    ax.set_xlabel(f"{name}{rest}")
    ax.set_ylabel("density")
    return finished(ax, f"Histogram of {name}, {1 - float(alpha):.0%} intervals", fit.reproducible)


def sources(
    fit: Any, term: str | None = None, *, alpha: float = 0.05, ax: Axes | None = None
) -> Axes:
    """What every site of a federation says of one coefficient, and what is made of it.

    Parameters
    ----------
    fit : Results
        Of a fit under `Federated`.
    term : str, optional
        A coefficient; the first beside the intercept by default.
    alpha : float, default 0.05
        Intervals are of level 1 - alpha.
    ax : Axes, optional

    Returns
    -------
    Axes
        One line a site, in the order of `fit.sources`: its own interval, in the colour of its
        cluster, and its weight. Below them the combined one.

    Raises
    ------
    OptionError
        If the fit is of no sites, or has no such coefficient.

    Examples
    --------
    >>> import dpstats as dp
    >>> schema = dp.Schema(y=dp.Numeric(0, 1))
    >>> sites = {name: {"y": [0.2, 0.8] * 99} for name in ("north", "south", "east")}
    >>> fit = dp.mean("y", sites, schema).fit(dp.Federated(1.0, 1e-6, target="north"))
    >>> ax = dp.plot.sources(fit)
    """
    if not isinstance(fit, FederatedResults):
        raise OptionError(
            "plot.sources: a fit under Federated(...) is needed, of whole fits as combine='blend' "
            "asks for; sums have no table of a site."
        )
    if term is None:
        known = fit.table.names
        term = next((name for name in known if name not in _INTERCEPTS), known[0])
    if not among(term, fit.table.names):
        raise OptionError(f"plot.sources: {given(term)} is none of {', '.join(fit.table.names)}.")
    found = fit.sources[fit.sources["status"] == "answered"]
    ax = axes(ax, 7, 1.2 + 0.35 * len(found))
    lines = [fit.site(name, alpha).loc[term].tolist() for name in found.index]
    combined = [fit.params[term], *fit.conf_int(alpha).loc[term]]
    for at, ((value, _, low, high), cluster) in enumerate(
        zip(lines, found["cluster"].fillna(0), strict=True)
    ):
        color = COLORS[(int(cluster) - 1) % (len(COLORS) - 1)] if cluster else COLORS[-1]
        ax.plot([low, high], [at, at], color=color)
        ax.plot(value, at, MARKERS[0], color=color)
    ax.plot(combined[1:], [len(lines)] * 2, color=COLORS[-1], linewidth=3)
    ax.plot(combined[0], len(lines), MARKERS[3], color=COLORS[-1])
    ax.axvspan(*combined[1:], color=GREY, alpha=0.12, linewidth=0)
    names = [
        f"{figure_text(name)} ({weight:.0%})"
        for name, weight in zip(found.index, found["weight"], strict=True)
    ]
    ax.set_yticks(range(len(lines) + 1), [*names, f"for {figure_text(fit.estimate.target)}"])
    ax.invert_yaxis()
    ax.set_xlabel(f"{figure_text(term)}, {1 - float(alpha):.0%} intervals; weights in brackets")
    return finished(ax, "Sites, by cluster, and what is made of them", fit.reproducible)
