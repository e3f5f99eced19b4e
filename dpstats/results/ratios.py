"""Exponentials of coefficients that are logarithms of ratios: their names, errors and intervals."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpstats.errors import OptionError
from dpstats.families import Family
from dpstats.results.released import Released

__all__ = ["exponentials", "ratio_name", "ratio_of", "several"]

_BY_LINK = {"logit": "odds ratio", "log": "ratio of means", "cloglog": "hazard ratio"}
_RATES = ("poisson", "negativebinomial")  # families whose means are rates
_DISCRETE = {"Logit": "odds ratio", "Poisson": "rate ratio", "PHReg": "hazard ratio"}
_ABLE = (
    "dp.logit and dp.mnlogit have odds ratios, dp.glm with a log link ratios of rates or means, "
    "with a cloglog link hazard ratios"
)


def ratio_name(family: Family) -> str:
    """What an exponential of a coefficient is, such as "odds ratio"; empty where it is nothing."""
    return _named(family.name, family.link)


def _named(family: str, link: str) -> str:
    return "rate ratio" if link == "log" and family in _RATES else _BY_LINK.get(link, "")


def several(ratio: str) -> str:
    """The plural: "odds ratios", "ratios of means"."""
    return ratio.replace("ratio", "ratios")


def ratio_of(fit: Any, asked: str) -> str:
    """What exponentials of the coefficients of a fit are, of ours or of statsmodels'.

    Raises
    ------
    OptionError
        Naming what was `asked`, if its coefficients are no logarithms of ratios.
    """
    if isinstance(fit, Released):
        ratio, what = fit._ratio, f"{fit.plan.model!r}, whose link is {fit.design.family.link!r},"
    else:
        model = fit.model
        what, law = type(model).__name__, getattr(model, "family", None)
        names = (type(law).__name__, type(getattr(law, "link", None)).__name__)
        ratio = _DISCRETE.get(what) or _named(*(name.lower() for name in names))
    if not ratio:
        raise OptionError(
            f"{asked}: coefficients of {what} are no logarithms of ratios, so their exponentials "
            f"mean nothing. {_ABLE}; otherwise leave it out."
        )
    return ratio


def exponentials(values: Any, errors: Any, ends: Any) -> tuple[Any, Any, Any]:
    """exp(b), its standard error by the delta method, and exp of the ends of its interval."""
    with np.errstate(over="ignore", invalid="ignore"):  # noise may leave e**1000
        found = np.exp(values)
        return found, found * errors, np.exp(ends)
