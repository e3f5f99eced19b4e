"""How many rows or users an error or a power needs, and the power of a test, before any row."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats import estimators
from dpstats.errors import FeasibilityWarning, OptionError, among, given, is_number, need_model
from dpstats.estimators.guesses import round_up
from dpstats.models.checks import checked_count
from dpstats.models.model import Model
from dpstats.models.unbuilt import known_arguments
from dpstats.privacy import Central, LabelOnly, Neighbors, Privacy
from dpstats.protocol import Plan
from dpstats.results.inference import normal_quantile
from dpstats.theory import Rate, Setting

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["power", "sample_size"]

_LEAST = 100  # rows with which the search starts, or ten times the columns
_CELLS = 10**7  # numbers of a design with public covariates that are laid out for a plan
_MOST = 10**13
_APART = 0.2  # wording: difference of powers at both ends of a range, above which it is said
_TIMES = 4.0  # wording: ratio of planned variances at both ends, above which it is said
_CLOSE = 1.01  # the answer is rounded up to two digits anyway


Effect = float | Mapping[str, float]


@known_arguments
def power(
    model: Model,
    privacy: Privacy,
    effect: Effect,
    *,
    alpha: float = 0.05,
    n: int | None = None,
    planned: str = "middle",
    **options: Any,
) -> pd.Series:
    """Power of the two-sided z tests of parameters, from their planned standard errors.

    Parameters
    ----------
    model : Model
        Such as ``dp.ols("y ~ x", schema=schema)``, ``dp.mean("y", schema=schema)``, or
        ``dp.ttest("y ~ g", schema=schema)``; with or without a table.
    privacy : Central, Local or LabelOnly
        The guarantee that the test is to have.
    effect : float or mapping of str to float
        What a parameter is, less what the hypothesis says it is, in its own units and not 0: of
        every coefficient but the intercept (of the difference, for two groups), or of those named.
    alpha : float, default 0.05
        Level of the test, between 0 and 1.
    n : int, optional
        Public number of rows (users), where it is not that of the model.
    planned : {"middle", "least", "most"}
        Which standard errors of those that are expected, where a plan says a range: of ``"least"``
        columns are uncorrelated and levels equally frequent, of ``"most"`` the others explain 98 %
        of each column and a level has 1 % of the rows; the middle is that of the logarithms.
    **options
        ``method``, ``sparsity`` and options of the method, as for ``model.plan``.

    Returns
    -------
    Series
        Probability of a p-value below alpha, by parameter.

    Raises
    ------
    OptionError
        If an effect or alpha is not allowed, an effect names no parameter, or no standard error of
        it is planned in units that are known.

    Warns
    -----
    FeasibilityWarning
        If the power is far from the same at both ends of the range that is planned: says both.

    Notes
    -----
    ``Phi(|effect| / se - z) + Phi(-|effect| / se - z)``, z being the normal quantile at 1 - alpha/2
    and se the planned standard error, sampling and privacy noise together. It is as good as the
    plan, which rests on what is declared (``plan.assumptions``). No row is read, nothing is
    charged.

    Examples
    --------
    >>> import dpstats as dp
    >>> schema = dp.Schema(y=dp.Numeric(0, 10, scale=2.0), x=dp.Numeric(0, 1, scale=0.3))
    >>> model = dp.ols("y ~ x", schema=schema, n=2_000)
    >>> dp.power(model, dp.Central(1.0, 1e-6), effect=0.6).index.tolist()
    ['x']
    """
    import pandas as pd
    from scipy.special import ndtr

    need_model(model, "power")
    _need_one_error(model, "power")
    z, n = normal_quantile(alpha), checked_count(n)
    plan = (model if n is None else model.expecting(n)).plan(
        privacy if n is None else _guessing(privacy, n), **options
    )
    named = _named(plan, effect, "effect")
    sizes = {name: abs(value) for name, value in named.items()}
    ratios = [1 / _planned(plan, sizes, "effect", which) for which in (planned, "most", "least")]
    found, low, high = (ndtr(r - z) + ndtr(-r - z) for r in ratios)
    if planned == "middle" and (high - low).max() > _APART:
        k = int((high - low).argmax())
        _warn_of_ends(f"The power for {given([*named][k])} is from {low[k]:.2f} to {high[k]:.2f}")
    return pd.Series(found, index=list(named), name="power")


@known_arguments
def sample_size(
    model: Model,
    privacy: Privacy,
    target_se: float | Mapping[str, float] | None = None,
    *,
    effect: Effect | None = None,
    power: float = 0.8,
    alpha: float = 0.05,
    planned: str = "middle",
    **options: Any,
) -> int:
    """Rows (users) at which standard errors, or the power of tests, reach a target. No row is read.

    Parameters
    ----------
    model : Model
        With or without a table; a number of rows that it has does not matter, except under
        `LabelOnly`, where more rows like those of its public table are meant.
    privacy : Central, Local or LabelOnly
        The guarantee. Under add-remove neighbours its ``rows`` are replaced by each number tried.
    target_se : float or mapping of str to float, optional
        Largest standard error allowed, > 0, in the units of the coefficient: of every coefficient
        but the intercept, or of those named.
    effect : float or mapping of str to float, optional
        In place of `target_se`: what is to be found, as for `power`.
    power, alpha : float, default 0.8 and 0.05
        Probability with which the two-sided z test of level alpha is to find each effect.
    planned : {"middle", "least", "most"}
        Which standard errors of those that are expected, where a plan says a range; as for `power`.
    **options
        ``method``, ``sparsity`` and options of the method, as for ``model.plan``.

    Returns
    -------
    int
        With two significant digits, rounded up.

    Raises
    ------
    OptionError
        If not one of `target_se` and `effect` is given; if it is not allowed, names no coefficient,
        or cannot be reached by any number of rows; if the method plans no standard errors, or plans
        them in units of a standard deviation that is not declared.

    Warns
    -----
    FeasibilityWarning
        If far from as many rows are needed at both ends of the range that is planned: says both.

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
    >>> dp.sample_size(model, dp.Central(1.0, 1e-6), {"y": 1.0})
    450
    """
    need_model(model, "sample_size")
    _need_one_error(model, "sample_size")
    if (target_se is None) == (effect is None):
        raise OptionError("Give target_se=..., or effect=... with a power; one of them.")
    columns = len(model._design(privacy).names)
    asked, share = ("target_se", 1.0)
    if effect is not None:
        target_se, asked, share = effect, "effect", 1 / _noncentrality(power, alpha)
    most = max(_CELLS // columns, 1) if isinstance(privacy, LabelOnly) else _MOST

    def worst(n: int, which: str = planned) -> float:
        plan = model.expecting(min(n, most)).plan(_guessing(privacy, n), **options)
        named = _named(plan, target_se, asked)
        if asked == "effect":
            named = {name: abs(value) * share for name, value in named.items()}
        squares = np.square(_planned(plan, named, asked, which))
        if n > most:
            more, part = n / most, plan.privacy_share
            squares *= part * more ** (2 * _exponent(plan)) + (1 - part) / more
        return float(squares.max())

    target = f"{asked}={given(target_se)}"
    found = _search(worst, columns, target)
    if planned == "middle" and worst(found, "most") > _TIMES * worst(found, "least"):
        fewest = _search(lambda n: worst(n, "least"), columns, target)
        _warn_of_ends(f"{found:,} rows are the middle, and {fewest:,} the fewest")
    return found


def _noncentrality(power: float, alpha: float) -> float:
    """The effect over its standard error at which a test has this power."""
    from scipy.optimize import brentq
    from scipy.special import ndtr

    z = normal_quantile(alpha)
    if not (is_number(power) and alpha < power < 1):
        raise OptionError(
            f"power={given(power)}: a number above alpha={float(alpha):g} and below 1 is needed."
        )
    found = brentq(lambda r: ndtr(r - z) + ndtr(-r - z) - power, 0.0, z + 40.0)
    return float(found)


def _search(worst: Callable[[int], float], columns: int, target: str) -> int:
    """The smallest n at which the largest squared ratio of error to target is at most 1."""
    low = high = max(_LEAST, 10 * columns)
    while worst(high) > 1:
        low, high = high, 2 * high
        if high > _MOST:
            raise OptionError(
                f"{target}: not even {_MOST:.0e} rows suffice. Ask for a larger target, or declare "
                "narrower ranges."
            )
    while high > _CLOSE * low:
        middle = math.ceil(math.sqrt(low * high))
        if middle >= high:
            break
        low, high = (middle, high) if worst(middle) > 1 else (low, middle)
    return round_up(high)


def _need_one_error(model: Model, asked: str) -> None:
    """Refuse mixtures: how their components overlap is no public fact.

    Raises
    ------
    OptionError
    """
    if "mixture" in getattr(model, "kind", ""):
        raise OptionError(
            f"{asked}: errors of a mixture depend on where its components are, and are planned "
            "between two ends, in standard deviations of a component. model.plan(privacy) of a "
            "model with n= shows them, and says which n suffices where noise may hide components."
        )


def _named(plan: Plan, target: Any, asked: str) -> dict[str, float]:
    """A target of each parameter that is meant: slopes, the difference of groups, or those named.

    Raises
    ------
    OptionError
        If a name is no parameter, or a number not allowed.
    """
    slopes = [name for name in plan.parameters if name != "Intercept"] or list(plan.parameters)
    if plan.model == "ttest":
        slopes = slopes[:1]
    named = dict(target) if isinstance(target, Mapping) else dict.fromkeys(slopes, target)
    if not named:
        raise OptionError(f"{asked}={given(target)}: a number, or one of each coefficient named.")
    if unknown := [name for name in named if name not in plan.parameters]:
        raise OptionError(
            f"{asked} names {given(unknown[0])}; the coefficients are {', '.join(plan.parameters)}."
        )
    for name, value in named.items():
        number = is_number(value)
        if not (number and (value > 0 or (asked == "effect" and value != 0))):
            least = "other than 0" if asked == "effect" else "> 0"
            raise OptionError(
                f"{asked}[{name!r}]={given(value)}: a finite number {least} is needed."
            )
    return named


def _warn_of_ends(said: str) -> None:
    """Say that a power, or a number of rows, rests on where in a planned range errors are."""
    warnings.warn(
        f"{said}: public facts do not tell how columns go together, nor how frequent a level is "
        "whose share is not declared. planned='least' and 'most' are both ends.",
        FeasibilityWarning,
        stacklevel=3,
    )


def _planned(plan: Plan, named: Mapping[str, float], asked: str, which: str) -> Any:
    """Planned standard errors over their targets; of a range the middle, or an end.

    Raises
    ------
    OptionError
    """
    if not among(which, ("middle", "least", "most")):
        raise OptionError(f"planned={given(which)}: 'middle', 'least' or 'most' is needed.")
    errors = plan.predicted_se
    if plan.predicted_range and which != "middle":
        errors = tuple(ends[which == "most"] for ends in plan.predicted_range)
    planned = dict(zip(plan.parameters, errors, strict=False))
    units = dict(zip(plan.parameters, plan.predicted_units, strict=False))
    for name in named:
        if math.isnan(planned.get(name, math.nan)):
            raise OptionError(
                f"method={plan.method!r} plans no standard error of {name!r}: ask for a method "
                "that keeps every column (dpstats.methods())."
            )
        if units.get(name):
            raise OptionError(
                f"{asked}[{name!r}]: the error of {name!r} is planned in units of {units[name]}, "
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
