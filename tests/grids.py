"""Grids of cases: the sharpest ones run by default, all others behind the marker ``full``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

__all__ = ["grid"]


def grid(
    cases: Iterable[Any],
    sharpest: int | Callable[[Any], bool],
    rare: Callable[[Any], bool] = lambda case: False,
) -> list[Any]:
    """Parameters of which so many of the first ones, or those that are `sharpest`, run by default.

    A case that is a tuple stands for several arguments. Those that are `rare` are `slow`, too.
    """

    def kept(i: int, case: Any) -> bool:
        return sharpest(case) if callable(sharpest) else i < sharpest

    def marks(case: Any) -> list[Any]:
        return [pytest.mark.full, *([pytest.mark.slow] if rare(case) else [])]

    return [
        case
        if kept(i, case)
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=marks(case))
        for i, case in enumerate(cases)
    ]
