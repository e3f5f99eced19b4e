"""Plots of mixtures: ellipses and densities of clusters, lines of regressions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.errors import OptionError, given, need_names
from dpstats.results.canvas import COLORS, MARKERS, axes, finished
from dpstats.results.mixture import MixtureResults
from dpstats.results.regression_mixture import RegressionMixtureResults
from dpstats.results.symmetric import SymmetricMixtureResults, SymmetricRegressionResults
from dpstats.text import figure_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["mixture"]

_Rows = MixtureResults | SymmetricMixtureResults
_Lines = RegressionMixtureResults | SymmetricRegressionResults
_LEVELS = (0.5, 0.95)  # share of a component within its ellipses


def mixture(fit: Any, columns: Sequence[str] | None = None, *, ax: Axes | None = None) -> Axes:
    """Components of a mixture: ellipses in two columns, or densities along one; or lines.

    Parameters
    ----------
    fit : Results
        Of `gaussian_mixture` or `mixture_ols`.
    columns : sequence of one or two str, optional
        The first two by default, or the only one. Of a mixture of regressions one column of its
        design, the first by default. Of a sparse fit the first that were selected.
    ax : matplotlib Axes, optional
        Where to draw.

    Returns
    -------
    Axes
        Half and 95 % of each component are within its two ellipses; in one column, the density of
        the mixture above those of its components times their weights. Of a mixture of regressions,
        each component's line within 95 % of its errors, other columns being at their public or
        released centres.

    Raises
    ------
    OptionError
        If the fit is of no mixture, or has no such columns.

    Examples
    --------
    >>> import dpstats as dp
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> rows = {"x": rng.normal(np.where(rng.random(2_000) < 0.3, 2.0, -1.0), 0.5)}
    >>> model = dp.gaussian_mixture("~ x", rows, dp.Schema(x=dp.Numeric(-9, 9)))
    >>> ax = dp.plot.mixture(model.fit(dp.Central(1.0, 1e-6)))
    """
    if isinstance(fit, _Lines):
        return _lines(fit, columns, ax)
    if not isinstance(fit, _Rows):
        raise OptionError("plot.mixture: a fit of gaussian_mixture or mixture_ols is needed.")
    every = fit.estimate.columns
    chosen = list(_ahead(fit, every)[:2] if columns is None else need_names(columns=columns))
    if not 1 <= len(set(chosen)) == len(chosen) <= 2 or not set(chosen) <= set(every):
        raise OptionError(f"columns={given(chosen)}: one or two of {', '.join(every)} are needed.")
    at = [every.index(name) for name in chosen]
    ax = axes(ax, 6.0, 4.6 if len(at) == 2 else 3.6)
    (_ellipses if len(at) == 2 else _densities)(fit, at, ax)
    ax.set_xlabel(figure_text(chosen[0]))
    ax.set_ylabel(figure_text(chosen[1]) if len(at) == 2 else "density")
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return finished(
        ax, f"Mixture of {fit.mixture.k} normal law{'s' * (fit.mixture.k > 1)}", fit.reproducible
    )


def _ahead(fit: _Rows | _Lines, every: Sequence[str]) -> list[str]:
    """Columns, those that a sparse fit selected first."""
    selected = getattr(fit, "selected", every)
    return sorted(every, key=lambda name: name not in selected)


def _part(fit: _Rows | _Lines, j: int) -> tuple[str, str]:
    """Colour and legend entry of a component."""
    return COLORS[j % len(COLORS)], f"component {j + 1} ({fit.mixture.weights[j]:.0%})"


def _ellipses(fit: _Rows, at: Sequence[int], ax: Axes) -> None:
    turn = np.linspace(0, 2 * np.pi, 181)
    circle = np.stack([np.cos(turn), np.sin(turn)])
    for j in range(fit.mixture.k):
        color, label = _part(fit, j)
        root = np.linalg.cholesky(fit.mixture.covariances[j][np.ix_(at, at)])
        mean = fit.mixture.means[j, at]
        ax.plot(*mean, MARKERS[j % len(MARKERS)], color=color, label=label)
        for level in _LEVELS:
            ring = mean[:, None] + np.sqrt(-2 * np.log1p(-level)) * root @ circle
            ax.plot(*ring, color=color, lw=1.4)


def _densities(fit: _Rows, at: Sequence[int], ax: Axes) -> None:
    place, mixture = at[0], fit.mixture
    means, sds = mixture.means[:, place], np.sqrt(mixture.covariances[:, place, place])
    grid = np.linspace(float((means - 4 * sds).min()), float((means + 4 * sds).max()), 401)
    z = (grid - means[:, None]) / sds[:, None]
    parts = mixture.weights[:, None] * np.exp(-(z**2) / 2) / (sds[:, None] * np.sqrt(2 * np.pi))
    ax.plot(grid, parts.sum(axis=0), color=COLORS[-1], lw=2, label="mixture")
    for j, part in enumerate(parts):
        color, label = _part(fit, j)
        ax.plot(grid, part, color=color, lw=1.4, label=label)
    ax.set_ylim(bottom=0)


_SPAN = 2.0  # scales on either side of the centre of a column that lines are drawn for


def _lines(fit: _Lines, columns: Sequence[str] | None, ax: Axes | None) -> Axes:
    design, found = fit.design, fit.estimate.released.get("scales", {})
    standard = design.standardization
    every = [name for j, name in enumerate(design.names) if j != standard.intercept]
    chosen = _ahead(fit, every)[:1] if columns is None else need_names(columns=columns)
    if len(chosen) != 1 or chosen[0] not in every:
        known = ", ".join(every) or "none: the model has no column"
        raise OptionError(
            f"columns={given(columns)}: one column of the design is needed, of {known}."
        )
    at = design.names.index(chosen[0])
    declared = zip(design.names, standard.x_center, standard.x_scale, strict=True)
    places = {name: found.get(name, {"center": c, "scale": s}) for name, c, s in declared}
    center = np.array([places[name]["center"] for name in design.names])
    if standard.intercept is not None:
        center[standard.intercept] = 1.0
    reach = _SPAN * places[chosen[0]]["scale"]
    ends = np.clip([center[at] - reach, center[at] + reach], *design.bounds[at])
    rows = np.tile(center, (2, 1))
    rows[:, at] = ends
    ax = axes(ax, 6.0, 4.6)
    half = 1.96 * fit.sigma
    for j, means in enumerate((rows @ fit.mixture.coef.T).T):
        color, label = _part(fit, j)
        ax.plot(ends, means, color=color, label=label)
        ax.fill_between(ends, means - half, means + half, color=color, alpha=0.15, lw=0)
    ax.set_xlabel(figure_text(chosen[0]))
    ax.set_ylabel(figure_text(str(fit.response)))
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return finished(
        ax, f"Mixture of {fit.mixture.k} regression{'s' * (fit.mixture.k > 1)}", fit.reproducible
    )
