"""What answers told of a fit is a Python warning, too: who reads one number sees it."""

from __future__ import annotations

import warnings
from typing import TypeVar

from dpstats.errors import EstimationWarning
from dpstats.privacy import SIMULATED
from dpstats.results.released import Released
from dpstats.text import plain

__all__ = ["warned_of"]

AnyResults = TypeVar("AnyResults", bound=Released)


def warned_of(result: AnyResults, stacklevel: int) -> AnyResults:
    """The result, after a warning of its remarks.

    That devices were simulated puts no answer in doubt.
    """
    told = [text for text in result.estimate.remarks if text != SIMULATED]
    if told:
        warnings.warn(EstimationWarning(plain(" ".join(told)), result), stacklevel=stacklevel)
    return result
