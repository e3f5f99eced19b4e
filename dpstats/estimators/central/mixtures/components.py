"""How many components a mixture has, or may have: what users ask for."""

from __future__ import annotations

from collections.abc import Sequence

from dpstats.errors import OptionError

__all__ = ["kept_components", "possible_components"]


def possible_components(asked: object, most: int) -> tuple[int, ...]:
    """The numbers of components that may be, ascending.

    Raises
    ------
    OptionError
        If they are not whole numbers from 1 to `most`.
    """
    every = tuple(asked) if isinstance(asked, Sequence) and not isinstance(asked, str) else (asked,)
    numbers = [k for k in every if isinstance(k, int) and not isinstance(k, bool)]
    if not numbers or numbers != list(every) or min(numbers) < 1 or max(numbers) > most:
        raise OptionError(
            f"components={asked!r}: a whole number from 1 to {most} is needed, or several of them, "
            f"such as range(1, {min(most, 5) + 1})."
        )
    return tuple(sorted(set(numbers)))


def kept_components(numbers: tuple[int, ...]) -> int | tuple[int, ...]:
    """The same as a plan has it: one number, or several."""
    return numbers if len(numbers) > 1 else numbers[0]
