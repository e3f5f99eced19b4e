"""Plots of what was spent, and of what a budget would give: the ledger, and planned errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError, among, given, is_number, need_model, need_names
from dpstats.privacy import Central, Privacy
from dpstats.results.canvas import COLORS, GREY, MARKERS, axes, finished
from dpstats.text import figure_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dpstats.protocol import Plan

__all__ = ["error_vs_epsilon", "ledger"]

_ALIKE = 1.02  # ratio of standard errors up to which two curves would lie on each other


def ledger(ledger: Any, *, over: str = "entries", ax: Axes | None = None) -> Axes:
    """Epsilon spent by a ledger, by tight composition, against its ceiling.

    Parameters
    ----------
    ledger : Ledger
        Its entries are public.
    over : {"entries", "time"}
        A bar for each entry, or a line over the time of the charges (UTC).
    ax : matplotlib Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    OptionError
        If `over` is neither.

    Examples
    --------
    >>> import dpstats as dp
    >>> ax = dp.plot.ledger(dp.Ledger.memory(epsilon=3.0, delta=1e-6))
    """
    if not hasattr(ledger, "ceiling"):
        raise OptionError(f"plot.ledger: {given(ledger)} is no Ledger.")
    if not among(over, ("entries", "time")):
        raise OptionError(f"plot.ledger: over={given(over)}: allowed are 'entries' and 'time'.")
    ceiling, delta = ledger.ceiling
    frame = ledger.to_frame()
    after = frame["spent"].to_numpy(dtype=float)
    ax = axes(ax, 7.0, 3.4)
    if over == "time" and after.size:
        _over_time(ax, frame["time"], after)
    else:
        _over_entries(ax, after)
    ax.axhline(ceiling, color=COLORS[1], lw=1.5, ls="--", label=f"ceiling {ceiling:g}")
    ax.set_ylim(0, 1.08 * ceiling)
    ax.set_ylabel(f"$\\varepsilon$ spent in all (at $\\delta$ = {delta:g})")
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    spent = after[-1] if after.size else 0.0
    return finished(ax, f"Privacy spent: {spent:.3g} of {ceiling:g}", False)


def _over_entries(ax: Axes, after: NDArray[np.float64]) -> None:
    """A bar for each entry, on what was spent before."""
    from matplotlib.ticker import MaxNLocator

    before = np.append(0.0, after)[:-1]
    at = np.arange(1, len(after) + 1)
    ax.bar(at, before, width=0.7, color=COLORS[0], alpha=0.25, label="spent before")
    ax.bar(at, after - before, width=0.7, bottom=before, color=COLORS[0], label="this entry adds")
    ax.set_xlim(0.3, max(len(after), 5) + 0.7)
    if len(after) <= 20:
        ax.set_xticks(at)
    else:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("ledger entry")


def _over_time(ax: Axes, times: Any, after: NDArray[np.float64]) -> None:
    """What had been spent at each time; the line goes on from the last charge."""
    import pandas as pd
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    at = pd.to_datetime(times, utc=True).dt.tz_localize(None).to_numpy()
    span = max(at[-1] - at[0], np.timedelta64(3600, "s"))
    x = [at[0] - span // 20, *at, at[-1] + span // 10]
    y = [0.0, *after, after[-1]]
    ax.step(x, y, where="post", color=COLORS[0], label="spent")
    ax.fill_between(x, y, step="post", color=COLORS[0], alpha=0.25, linewidth=0)
    ax.plot(at, after, MARKERS[0], color=COLORS[0], ms=4, label="a charge")
    locator = AutoDateLocator(minticks=2, maxticks=5)  # type: ignore[no-untyped-call]
    ax.xaxis.set_major_locator(locator)
    short = ConciseDateFormatter(locator, show_offset=False)  # type: ignore[no-untyped-call]
    ax.xaxis.set_major_formatter(short)
    ax.set_xlabel(f"time (UTC), from {str(at[0])[:10]}")


def error_vs_epsilon(
    model: Any,
    epsilons: Sequence[float],
    *,
    privacy: Privacy | None = None,
    terms: Sequence[str] | None = None,
    ax: Axes | None = None,
    **options: Any,
) -> Axes:
    """Planned standard error against epsilon, and the part of it that is sampling error.

    No row is read: every point is a plan. Where public facts leave it open, the area is the range
    that is expected and the line its middle. The dotted line is what the standard error would be
    without privacy noise, at the lower end: where the area comes down to it, more budget buys
    nothing. Coefficients whose curves would lie on each other share one.

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
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    privacy = Central(1.0, 1e-7) if privacy is None else privacy
    grid, plans = _planned(model, epsilons, privacy, options)
    names = list(plans[0].parameters)
    unknown = sorted(set([] if terms is None else need_names(terms=terms)) - set(names))
    if unknown:
        raise OptionError(
            f"terms={given(unknown)} are not in the model: it has {', '.join(names)}."
        )
    slopes = [n for n in names if n != "Intercept"] or names
    shown = list(terms) if terms is not None else slopes[: len(COLORS)]
    se = np.array([plan.predicted_se for plan in plans], dtype=float)
    if np.isnan(se).all():  # or there are none
        raise OptionError(
            f"{plans[0].method!r} predicts no standard errors from public facts: nothing to draw."
        )
    units = plans[0].predicted_units or ("",) * len(names)
    ends = np.array([p.predicted_range or [(s, s) for s in p.predicted_se] for p in plans])
    floor = ends[:, :, 0] * np.sqrt(1 - np.array([[plan.privacy_share] for plan in plans]))
    ax = axes(ax, 7.0, 4.2)
    labels = {n: figure_text(f"{n}, {u}" if u else n) for n, u in zip(names, units, strict=True)}
    groups = _alike(se[:, [names.index(name) for name in shown]])
    for k, group in enumerate(groups):
        j, color = names.index(shown[group[0]]), COLORS[k % len(COLORS)]
        style, label = MARKERS[k % len(MARKERS)] + "-", "\n".join(labels[shown[g]] for g in group)
        ax.plot(grid, se[:, j], style, color=color, ms=5, label=label)
        ax.fill_between(grid, ends[:, j, 0], ends[:, j, 1], color=color, alpha=0.12, lw=0)
        ax.plot(grid, floor[:, j], ":", color=color, lw=1.2)
    ax.plot([], [], ":", color=GREY, label="without privacy noise:\nsampling error alone")
    if (ends[..., 1] > ends[..., 0]).any():
        ax.fill_between([], [], color=GREY, alpha=0.25, lw=0, label="least to most expected")
    ax.set(xscale="log", yscale="log")
    ax.set_xticks(grid, [f"{e:g}" for e in grid])
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.minorticks_off()
    ax.set_xlabel(f"$\\varepsilon$ (at $\\delta$ = {privacy.delta:g}, n = {plans[0].n:,})")
    ax.set_ylabel("planned standard error, in the coefficient's units")
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return finished(ax, "Planned standard error by epsilon", False)


def _alike(curves: NDArray[np.float64]) -> list[list[int]]:
    """Columns by curve: those that nowhere differ by more than a line is thick."""
    groups: list[list[int]] = []
    for j, curve in enumerate(np.log(curves).T):
        for group in groups:
            if np.all(np.abs(curve - np.log(curves[:, group[0]])) <= np.log(_ALIKE)):
                group.append(j)
                break
        else:
            groups.append([j])
    return groups


def _planned(
    model: Any, epsilons: Any, privacy: Any, options: Mapping[str, Any]
) -> tuple[list[float], list[Plan]]:
    """Epsilons in ascending order, and the plan at each."""
    if not isinstance(privacy, Privacy):
        raise OptionError(f"privacy={given(privacy)}: Central(...), Local(...) or LabelOnly(...).")
    need_model(model, "error_vs_epsilon")
    listed = isinstance(epsilons, (Sequence, np.ndarray)) and not isinstance(epsilons, (str, bytes))
    if not (listed and len(epsilons) and all(map(is_number, epsilons))):
        raise OptionError(
            "error_vs_epsilon: give at least one epsilon, such as error_vs_epsilon(model, "
            "[0.5, 1, 2]); the rest of the guarantee is privacy=."
        )
    grid = sorted(float(e) for e in epsilons)
    return grid, [model.plan(replace(privacy, epsilon=e), **options) for e in grid]
