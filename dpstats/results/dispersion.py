"""The dispersion of counts: what a fit released of it, or was given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpstats.errors import OptionError, UnavailableError
from dpstats.families import Family
from dpstats.results.inference import normal_quantile
from dpstats.stored import read

__all__ = ["alpha", "check_dispersion", "interval_of", "text_of"]

_ALPHA, _SE = "alpha", "alpha se"  # under which it and its standard error are released


def alpha(family: Family, released: Mapping[str, Any]) -> float:
    """The dispersion; refused where the family has none."""
    if not family.alpha:
        raise UnavailableError(
            f"alpha: a model of family {family.name!r} has no such dispersion; that of counts is "
            "what dp.negativebinomial releases."
        )
    return float(released[_ALPHA]) if family.released else family.alpha


def interval_of(family: Family, released: Mapping[str, Any], level: float) -> tuple[float, float]:
    """Interval of level 1 - `level`, of no negative number; refused where there is none."""
    if not family.released:
        raise OptionError("alpha_conf_int: the fit released no dispersion.")
    if _SE not in released:
        raise OptionError(
            "alpha_conf_int: units may have several rows, and how the counts of one go together "
            "was not asked; alpha is an estimate without an interval."
        )
    middle, reach = alpha(family, released), normal_quantile(level) * float(released[_SE])
    return max(0.0, middle - reach), middle + reach


def text_of(family: Family, released: Mapping[str, Any]) -> str:
    """The dispersion, with its 95 % interval where there is one."""
    text = f"{alpha(family, released):.4g}"
    if not family.released or _SE not in released:
        return text
    low, high = interval_of(family, released, 0.05)
    return f"{text} ({low:.3g}, {high:.3g})"


def check_dispersion(family: Family, released: Mapping[str, Any]) -> None:
    """What a file says of a dispersion is a number of its range."""
    if not family.released:
        return
    for name in (_ALPHA, _SE):
        if name == _ALPHA or name in released:
            value = read(float, released.get(name), f"estimate, released, {name}")
            if value < 0:
                raise OptionError(f"estimate, released, {name}: a number from 0 on is needed.")
