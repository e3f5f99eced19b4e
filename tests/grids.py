"""Grids of cases: the sharpest ones run by default, all others behind the marker ``full``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

__all__ = ["grid"]


def grid(cases: Iterable[Any], sharpest: int | Callable[[Any], bool]) -> list[Any]:
    """Parameters of which so many of the first ones, or those that are `sharpest`, run by default.

    A case that is a tuple stands for several arguments.
    """

    def kept(i: int, case: Any) -> bool:
        return sharpest(case) if callable(sharpest) else i < sharpest

    return [
        case
        if kept(i, case)
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.full)
        for i, case in enumerate(cases)
    ]
