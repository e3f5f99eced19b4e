"""What a fit predicts along one column, the others held where they are said to be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError, among, given
from dpstats.results.canvas import COLORS, axes, finished
from dpstats.results.regression import RegressionResults
from dpstats.schema import Numeric
from dpstats.text import figure_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dpstats.schema import Declaration, Schema

__all__ = ["effect"]

_POINTS = 101  # of a numeric column


def effect(
    fit: Any,
    column: str,
    at: Mapping[str, Any] | None = None,
    values: Sequence[Any] | None = None,
    alpha: float = 0.05,
    *,
    which: str = "mean",
    ax: Axes | None = None,
) -> Axes:
    """Predicted mean along one column, with intervals; the other columns stay where they are.

    Nothing is bought: predictions are made of released coefficients, at rows made up here.

    Parameters
    ----------
    fit : Results
        A regression fitted by formula.
    column : str
        The column that varies.
    at : mapping of str to value, optional
        Where other columns stay; by default numbers at their declared centre (else the middle of
        their range), factors at their first level.
    values : sequence, optional
        Values of the column; by default its declared range, or all its levels.
    alpha : float, default 0.05
        Intervals are of level 1 - alpha for the mean at each value, privacy noise included.
    which : {"mean", "linear"}
        The mean of the response, or the linear predictor.
    ax : matplotlib Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    OptionError
        If the fit is no regression by formula with intervals, it has no such column, or `at` is no
        mapping.

    Examples
    --------
    >>> import dpstats as dp
    >>> schema = dp.Schema(x=dp.Numeric(0, 1), y=dp.Numeric(0, 1))
    >>> model = dp.ols("y ~ x", {"x": [0.1, 0.9] * 99, "y": [0.2, 0.8] * 99}, schema)
    >>> ax = dp.plot.effect(model.fit(dp.Central(1.0, 1e-7)), "x")
    """
    if at is not None and not isinstance(at, Mapping):
        raise OptionError(
            f"plot.effect: at= is a {type(at).__name__}; a mapping of columns to one value each is "
            "needed, such as at={'age': 40}."
        )
    rows, declared = _rows(fit, column, dict(at or {}), values)
    along = rows[column]
    found = fit.get_prediction(rows, which=which)
    mean, (lower, upper) = found.predicted, found.conf_int(alpha).T
    ax = axes(ax, 7.0, 3.8)
    if isinstance(declared, Numeric):
        ax.plot(along, mean, color=COLORS[0])
        ax.fill_between(along, lower, upper, color=COLORS[0], alpha=0.2, linewidth=0)
    else:
        place = np.arange(len(along))
        ax.vlines(place, lower, upper, color=COLORS[0], lw=1.2)
        ax.plot(place, mean, "o", color=COLORS[0])
        ax.set_xticks(place, [figure_text(str(value)) for value in along])
        ax.set_xlim(-0.5, len(along) - 0.5)
    ax.set_xlabel(figure_text(column))
    what = "mean of" if which == "mean" else "linear predictor of"
    ax.set_ylabel(f"{what} {figure_text(fit.response)}")
    held = ", ".join(f"{n} = {_shown(v[0])}" for n, v in rows.items() if n != column)
    title = f"Prediction, {1 - float(alpha):.0%} intervals{' (the fit warns)' * bool(fit.warnings)}"
    title += f"\nat {figure_text(held)}" if held else ""
    return finished(ax, title, fit.reproducible)


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, (float, np.floating)) else str(value)


def _rows(
    fit: Any, column: str, at: dict[str, Any], values: Sequence[Any] | None
) -> tuple[dict[str, NDArray[Any]], Declaration]:
    """Made-up rows, and how the column is declared."""
    columns = fit.design.predictors if isinstance(fit, RegressionResults) else ()
    schema: Schema | None = fit.design.schema if columns else None
    if schema is None or not fit.has_inference:
        raise OptionError(
            "plot.effect: a regression by formula is needed, of declared columns and with "
            "intervals; fit.get_prediction(rows) predicts at public rows of yours."
        )
    unknown = [name for name in (column, *at) if not among(name, columns)]
    if unknown:
        raise OptionError(
            f"plot.effect: {given(unknown[0])} is no column of the model; there are "
            f"{', '.join(map(repr, columns))}."
        )
    along = _values(schema[column]) if values is None else np.asarray(values)
    scalars = all(isinstance(value, (str, bool, int, float)) for value in along.ravel().tolist())
    if along.ndim != 1 or not len(along) or not scalars:
        raise OptionError(f"plot.effect: values={given(values)}: a list of values of {column!r}.")
    fixed = {n: at[n] if n in at else _usual(schema[n]) for n in columns if n != column}
    rows = {n: np.full(len(along), v, dtype=np.asarray(v).dtype) for n, v in fixed.items()}
    return {**rows, column: along}, schema[column]


def _values(declared: Declaration) -> NDArray[Any]:
    if isinstance(declared, Numeric):
        return np.linspace(declared.lower, declared.upper, _POINTS)
    return np.array(declared.levels, dtype=object)


def _usual(declared: Declaration) -> Any:
    return declared.center_guess if isinstance(declared, Numeric) else declared.levels[0]
