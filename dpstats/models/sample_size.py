"""How many rows or users a target standard error needs, from public facts alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dpstats import estimators
from dpstats.errors import OptionError
from dpstats.estimators.guesses import round_up
from dpstats.models.model import Model
from dpstats.privacy import Central, LabelOnly, Neighbors, Privacy
from dpstats.protocol import Plan
from dpstats.theory import Rate, Setting

__all__ = ["sample_size"]

_LEAST = 100  # rows with which the search starts, or ten times the columns
_CELLS = 10**7  # numbers of a design with public covariates that are laid out for a plan
_MOST = 10**13
_CLOSE = 1.01  # the answer is rounded up to two digits anyway


def sample_size(
    model: Model, privacy: Privacy, target_se: float | Mapping[str, float], **options: Any
) -> int:
    """Rows (users) at which every planned standard error is at most its target. No row is read.

    Parameters
    ----------
    model : Model
        With or without a table; a number of rows that it has does not matter, except under
        `LabelOnly`, where more rows like those of its public table are meant.
    privacy : Central, Local or LabelOnly
        The guarantee. Under add-remove neighbours its ``rows`` are replaced by each number tried.
    target_se : float or mapping of str to float
        Largest standard error allowed, > 0, in the units of the coefficient: of every coefficient
        but the intercept, or of those named.
    **options
        ``method``, ``sparsity`` and options of the method, as for ``model.plan``.

    Returns
    -------
    int
        With two significant digits, rounded up.

    Raises
    ------
    OptionError
        If a target is no number > 0, names no coefficient, or cannot be reached by any number of
        rows; if the method plans no standard errors; or if it plans them in units of a standard
        deviation that is not declared.

    Notes
    -----
    Planned errors rest on what is declared, as the plan says. Under `LabelOnly` they rest on the
    public rows, repeated as often as needed; beyond some millions of numbers variances are scaled,
    the sampling part by 1/n and the private part by the rate of the method.

    Examples
    --------
    >>> import dpstats as dp
    >>> schema = dp.Schema(y=dp.Numeric(0, 100, scale=20))
    >>> model = dp.mean("y", schema=schema)
    >>> dp.sample_size(model, dp.Central(1.0, 1e-6), {"Intercept": 1.0})
    450
    """
    columns = len(model._design(privacy).names)
    most = max(_CELLS // columns, 1) if isinstance(privacy, LabelOnly) else _MOST

    def worst(n: int) -> float:
        plan = model.expecting(min(n, most)).plan(_guessing(privacy, n), **options)
        squares = np.square(_planned(plan, target_se))
        if n > most:
            more, share = n / most, plan.privacy_share
            squares *= share * more ** (2 * _exponent(plan)) + (1 - share) / more
        return float(squares.max())

    return _search(worst, columns, target_se)


def _search(worst: Callable[[int], float], columns: int, target: Any) -> int:
    """The smallest n at which the largest squared ratio of error to target is at most 1."""
    low = high = max(_LEAST, 10 * columns)
    while worst(high) > 1:
        low, high = high, 2 * high
        if high > _MOST:
            raise OptionError(
                f"target_se={target!r}: not even {_MOST:.0e} rows suffice. Ask for a larger "
                "target, or declare narrower ranges."
            )
    while high > _CLOSE * low:
        middle = math.ceil(math.sqrt(low * high))
        if middle >= high:
            break
        low, high = (middle, high) if worst(middle) > 1 else (low, middle)
    return round_up(high)


def _planned(plan: Plan, target: float | Mapping[str, float]) -> Any:
    """Planned standard errors over their targets."""
    slopes = [name for name in plan.parameters if name != "Intercept"] or list(plan.parameters)
    named = target if isinstance(target, Mapping) else {name: target for name in slopes}
    planned = dict(zip(plan.parameters, plan.predicted_se, strict=False))
    units = dict(zip(plan.parameters, plan.predicted_units, strict=False))
    if unknown := [name for name in named if name not in plan.parameters]:
        raise OptionError(
            f"target_se names {unknown[0]!r}; the coefficients are {', '.join(plan.parameters)}."
        )
    for name, value in named.items():
        if not (isinstance(value, (int, float)) and math.isfinite(value) and value > 0):
            raise OptionError(f"target_se[{name!r}]={value!r}: a finite number > 0 is needed.")
        if math.isnan(planned.get(name, math.nan)):
            raise OptionError(
                f"method={plan.method!r} plans no standard error of {name!r}: ask for a method "
                "that keeps every column (dpstats.methods())."
            )
        if units.get(name):
            raise OptionError(
                f"target_se[{name!r}]: the error of {name!r} is planned in units of {units[name]}, "
                "which nobody declared. Declare scale= of these columns, from public knowledge."
            )
    return np.array([planned[name] / value for name, value in named.items()])


def _exponent(plan: Plan) -> float:
    """Power of n with which the private part of the method's error falls."""
    method = estimators.find(plan.model, plan.privacy, plan.method)
    rates = method.theory[plan.privacy.trust].under(plan.options).upper
    return next((_slope(r, plan) for r in rates if r.term == "privacy"), -0.5)


def _slope(rate: Rate, plan: Plan) -> float:
    """Slope of the logarithm of a rate in that of n, its own logarithms being nearly constant."""
    far, farther = (
        rate.value(Setting(n, d=3, epsilon=plan.privacy.epsilon, delta=0.5, s=1))
        for n in (1e150, 1e151)
    )  # d, delta and s are factors that n does not touch
    return round(6 * math.log10(farther / far)) / 6  # powers of n are sixths


def _guessing(privacy: Privacy, n: int) -> Privacy:
    """The guarantee with n for its guess of a private number of rows."""
    if isinstance(privacy, Central) and privacy.neighbors is Neighbors.ADD_REMOVE:
        return replace(privacy, rows=n)
    return privacy
