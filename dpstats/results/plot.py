"""Plots of released numbers: coefficients, the ledger, the price of privacy.

Each function draws on ``ax`` (a new figure by default) and returns it. matplotlib is imported when
a plot is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError
from dpstats.privacy import NOT_PRIVATE, Central, Privacy
from dpstats.results.canvas import COLORS, GREY, MARKERS, axes, finished
from dpstats.results.compare import several
from dpstats.results.descriptive import HistogramResults
from dpstats.results.federated import FederatedResults
from dpstats.results.inference import normal_quantile
from dpstats.results.mixture_plot import mixture
from dpstats.results.released import Released
from dpstats.text import figure_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["coefficients", "error_vs_epsilon", "histogram", "ledger", "mixture", "sources"]


def _label(fit: Any, name: str | None) -> str:
    """Legend entry; whoever names a result cannot hide that its noise was seeded."""
    if not isinstance(fit, Released):
        return figure_text(name or f"{type(fit.model).__name__} (not private)")
    p = fit.plan
    text = figure_text(name or f"{p.method}, {fit.privacy.trust}")
    text += "" if name else f", $\\varepsilon$ = {p.privacy.epsilon:g}"
    text += "" if fit.has_inference else " (no valid interval)"
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


def _halves(fit: Any, names: Sequence[str], z: float) -> list[NDArray[np.float64]]:
    """Half-lengths of the whiskers of `names`: sampling error alone, then all error."""
    total = fit.bse[names].to_numpy()
    share = fit.privacy_share[names].to_numpy() if isinstance(fit, Released) else 0.0
    return [z * total * np.sqrt(1 - share), z * total]


_PER = {"unit": "unit of the regressor", "scale": "public scale of the regressor"}


def coefficients(
    fits: Any,
    names: Sequence[str] | None = None,
    alpha: float = 0.05,
    *,
    per: str = "unit",
    intercept: bool = False,
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
    ax : matplotlib Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import dpstats as dp
    >>> schema = dp.Schema(x=dp.Numeric(0, 1), y=dp.Numeric(0, 1))
    >>> model = dp.ols("y ~ x", {"x": [0.1, 0.9] * 99, "y": [0.2, 0.8] * 99}, schema)
    >>> ax = dp.plot.coefficients(model.fit(dp.Central(1.0, 1e-7)))
    """
    fits = several(fits, names, "plot.coefficients")
    if per not in _PER:
        raise OptionError(f"per={per!r}: allowed are {', '.join(map(repr, _PER))}.")
    labels = list(map(_label, fits, names if names is not None else [None] * len(fits)))
    terms = list(dict.fromkeys(str(name) for fit in fits for name in fit.bse.index))
    if not intercept and len(terms) > 1:
        terms = [t for t in terms if t not in ("Intercept", "const")]
    units = _units(fits, per, terms)
    z, row = normal_quantile(alpha), {term: -i for i, term in enumerate(terms)}
    longest = max(len(term) for term in terms)
    ax = axes(ax, 7.0 + 0.07 * longest, 1.4 + len(terms) * (0.22 + 0.16 * len(fits)))
    ax.axvline(0, color=GREY, lw=0.8, zorder=0)
    for k, (fit, label) in enumerate(zip(fits, labels, strict=True)):
        shown = [t for t in terms if t in fit.bse.index]
        unit = units[shown].to_numpy()
        x, offset = unit * fit.params[shown].to_numpy(), 0.22 * ((len(fits) - 1) / 2 - k)
        y = np.array([row[t] for t in shown]) + offset
        color = COLORS[k % len(COLORS)]
        sampling, total = (unit * half for half in _halves(fit, shown, z))
        ends = x - total, x + total
        if isinstance(fit, Released):  # intervals that may not be normal
            bounds = fit.conf_int(alpha).set_axis(fit.table.inner_names)
            ends = tuple(unit * bounds.loc[shown].to_numpy().T)
        ax.hlines(y, *ends, color=color, lw=1.2)
        ax.hlines(y, x - sampling, x + sampling, color=color, lw=4.0, alpha=0.45)
        ax.plot(
            x, y, MARKERS[k % len(MARKERS)], color=color, ms=5, mec="white", mew=0.6, label=label
        )
    ax.set_yticks(list(row.values()), list(map(figure_text, terms)))
    ax.set_ylim(-len(terms) + 0.4, 0.6)
    if any(fit.bse.notna().any() for fit in fits):
        level = f"{1 - alpha:.0%} interval"
        ax.plot([], [], color=GREY, lw=4.0, alpha=0.45, label=f"{level}, sampling error")
        ax.plot([], [], color=GREY, lw=1.2, label=f"{level}, with privacy noise")
    ax.set_xlabel(_quantity(fits, per))
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    tainted = any(isinstance(fit, Released) and fit.reproducible for fit in fits)
    return finished(ax, f"{ax.get_xlabel().partition(' (')[0].capitalize()}s", tainted)


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
    return finished(ax, f"Histogram of {name}, {1 - alpha:.0%} intervals", fit.reproducible)


def ledger(ledger: Any, *, ax: Axes | None = None) -> Axes:
    """Epsilon spent after each entry of a ledger, by tight composition, against its ceiling.

    Parameters
    ----------
    ledger : Ledger
        Its entries are public.
    ax : matplotlib Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import dpstats as dp
    >>> ax = dp.plot.ledger(dp.Ledger.memory(epsilon=3.0, delta=1e-6))
    """
    from matplotlib.ticker import MaxNLocator

    ceiling, delta = ledger.ceiling
    after = ledger.to_frame()["spent"].to_numpy(dtype=float)
    before = np.append(0.0, after)[:-1]
    at = np.arange(1, len(after) + 1)
    ax = axes(ax, 7.0, 3.4)
    ax.bar(at, before, width=0.7, color=COLORS[0], alpha=0.25, label="spent before")
    ax.bar(at, after - before, width=0.7, bottom=before, color=COLORS[0], label="this entry adds")
    ax.axhline(ceiling, color=COLORS[1], lw=1.5, ls="--", label=f"ceiling {ceiling:g}")
    ax.set_ylim(0, 1.08 * ceiling)
    ax.set_xlim(0.3, max(len(after), 5) + 0.7)
    if len(after) <= 20:
        ax.set_xticks(at)
    else:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("ledger entry")
    ax.set_ylabel(f"$\\varepsilon$ spent in all (at $\\delta$ = {delta:g})")
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    spent = after[-1] if after.size else 0.0
    return finished(ax, f"Privacy spent: {spent:.3g} of {ceiling:g}", False)


def sources(fit: Any, term: str, *, alpha: float = 0.05, ax: Axes | None = None) -> Axes:
    """What every site of a federation says of one coefficient, and what is made of it.

    Parameters
    ----------
    fit : Results
        Of a fit under `Federated`.
    term : str
        A coefficient.
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
    >>> ax = dp.plot.sources(fit, "Intercept")
    """
    if not isinstance(fit, FederatedResults):
        raise OptionError("plot.sources: a fit under Federated(...) is needed.")
    if term not in fit.table.names:
        raise OptionError(f"plot.sources: {term!r} is none of {', '.join(fit.table.names)}.")
    found = fit.sources[fit.sources["status"] == "answered"]
    ax = axes(ax, 7, 1.2 + 0.35 * len(found))
    lines = [fit.site(name, alpha).loc[term].tolist() for name in found.index]
    combined = [fit.params[term], *fit.conf_int(alpha).loc[term]]
    for at, ((value, _, low, high), cluster) in enumerate(
        zip(lines, found["cluster"], strict=True)
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
    ax.set_xlabel(f"{figure_text(term)}, {1 - alpha:.0%} intervals; weights in brackets")
    return finished(ax, "Sites, by cluster, and what is made of them", fit.reproducible)


def error_vs_epsilon(
    model: Any,
    epsilons: Sequence[float],
    *,
    privacy: Privacy | None = None,
    terms: Sequence[str] | None = None,
    ax: Axes | None = None,
    **options: Any,
) -> Axes:
    """Planned standard error against epsilon, above its floor of sampling error alone.

    No row is read: every point is a plan.

    Parameters
    ----------
    model : Model
        Planned once for every epsilon.
    epsilons : sequence of float
        Each > 0.
    privacy : Privacy, optional
        Guarantee whose epsilon is replaced; ``Central(1, 1e-7)`` by default.
    terms : sequence of str, optional
        Coefficients to draw; by default all but the intercept, at most seven.
    ax : matplotlib Axes, optional
        Where to draw.
    **options
        Passed to ``model.plan``.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import dpstats as dp
    >>> schema = dp.Schema(x=dp.Numeric(0, 1), y=dp.Numeric(0, 1))
    >>> model = dp.ols("y ~ x", {"x": [0.1, 0.9] * 99, "y": [0.2, 0.8] * 99}, schema)
    >>> ax = dp.plot.error_vs_epsilon(model, [0.5, 1.0, 2.0], privacy=dp.Central(1.0, 1e-7))
    """
    from matplotlib.ticker import LogLocator

    privacy = Central(1.0, 1e-7) if privacy is None else privacy
    grid = sorted(float(e) for e in epsilons)
    if not grid:
        raise OptionError("error_vs_epsilon(model, []): give at least one epsilon.")
    plans = [model.plan(replace(privacy, epsilon=e), **options) for e in grid]
    names = list(plans[0].parameters)
    unknown = sorted(set(terms or ()) - set(names))
    if unknown:
        raise OptionError(f"terms={unknown!r} are not in the model: it has {', '.join(names)}.")
    slopes = [n for n in names if n != "Intercept"] or names
    shown = list(terms) if terms is not None else slopes[: len(COLORS)]
    se = np.array([plan.predicted_se for plan in plans], dtype=float)
    if np.isnan(se).all():  # or there are none
        raise OptionError(
            f"{plans[0].method!r} predicts no standard errors from public facts: nothing to draw."
        )
    units = plans[0].predicted_units or ("",) * len(names)
    floor = se * np.sqrt(1 - np.array([[plan.privacy_share] for plan in plans]))
    ax = axes(ax, 7.0, 4.2)
    for k, name in enumerate(shown):
        j, color = names.index(name), COLORS[k % len(COLORS)]
        ax.plot(
            grid,
            se[:, j],
            MARKERS[k % len(MARKERS)] + "-",
            color=color,
            ms=5,
            label=figure_text(f"{name}, {units[j]}" if units[j] else name),
        )
        ax.plot(grid, floor[:, j], ":", color=color, lw=1.2)
    ax.plot([], [], ":", color=GREY, label="sampling error alone")
    ax.set(xscale="log", yscale="log")
    ax.set_xticks(grid, [f"{e:g}" for e in grid])
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.minorticks_off()
    ax.set_xlabel(f"$\\varepsilon$ (at $\\delta$ = {privacy.delta:g}, n = {plans[0].n:,})")
    ax.set_ylabel("planned standard error, in the coefficient's units")
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return finished(ax, "Planned standard error by epsilon", False)
