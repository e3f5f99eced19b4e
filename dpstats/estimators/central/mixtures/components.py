"""How many components a mixture has, or may have: what users ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpstats.errors import OptionError

__all__ = ["kept_components", "possible_components"]


def possible_components(asked: Any, most: int) -> tuple[int, ...]:
    """The numbers of components that may be, ascending.

    Raises
    ------
    OptionError
        If they are not whole numbers from 1 to `most`.
    """
    several = isinstance(asked, Sequence) and not isinstance(asked, str)
    numbers = tuple(asked) if several else (asked,)
    whole = all(isinstance(k, int) and not isinstance(k, bool) for k in numbers)
    if not (numbers and whole and all(1 <= k <= most for k in numbers)):
        raise OptionError(
            f"components={asked!r}: a whole number from 1 to {most} is needed, or several of them, "
            f"such as range(1, {min(most, 5) + 1})."
        )
    return tuple(sorted(set(numbers)))


def kept_components(numbers: tuple[int, ...]) -> int | tuple[int, ...]:
    """The same as a plan has it: one number, or several."""
    return numbers if len(numbers) > 1 else numbers[0]
