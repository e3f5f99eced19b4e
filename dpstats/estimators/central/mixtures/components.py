"""How many components a mixture has, or may have: what users ask for."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpstats.errors import OptionError, given, is_whole
from dpstats.estimators.guesses import enough
from dpstats.protocol import Plan

__all__ = ["HIDDEN", "UNSURE", "kept_components", "possible_components", "refuse_unseen"]

HIDDEN = 0.5  # wording: standard error of a mean in standard deviations that hides a component
UNSURE = 0.25  # wording: the same, or of a weight to it, above which errors have no normal law


def possible_components(asked: object, most: int) -> tuple[int, ...]:
    """The numbers of components that may be, ascending.

    Raises
    ------
    OptionError
        If they are not whole numbers from 1 to `most`.
    """
    if isinstance(asked, np.ndarray):
        asked = asked.tolist()
    every = tuple(asked) if isinstance(asked, Sequence) and not isinstance(asked, str) else (asked,)
    numbers = [int(k) for k in every if is_whole(k, 1, most)]
    if not numbers or len(numbers) < len(every):
        raise OptionError(
            f"components={given(asked)}: a whole number from 1 to {most} is needed, or several of "
            f"them, such as range(1, {min(most, 5) + 1})."
        )
    return tuple(sorted(set(numbers)))


def kept_components(numbers: tuple[int, ...]) -> int | tuple[int, ...]:
    """The same as a plan has it: one number, or several."""
    return numbers if len(numbers) > 1 else numbers[0]


def refuse_unseen(
    plan: Plan, k: int, error: tuple[float, str], cells: tuple[float, int], factor: float
) -> None:
    """Refuse k components of which the lightest is hidden by noise whatever the rows are.

    It has at most n / k rows. Public facts say two things of it in the best of all tables:

    - Noise leaves an error of its mean. From answers whose mean moves by A with a parameter, and
      whose noise has the variance v, no unbiased estimate has a variance below ``v / |A|^2``. Where
      that is more than `HIDDEN` standard deviations nothing is known of it.
    - It has a cell of the histogram to itself at most. Noise alone makes the highest of C empty
      cells ``blur sqrt(2 log C)`` high; what is lower looks like one of them.

    Whether components are seen beyond that depends on where they are, which no plan knows: there it
    can only warn.

    Parameters
    ----------
    plan : Plan
    k : int
        The least number of components that was asked for.
    error : float, str
        The first of these in standard deviations, and of what.
    cells : float, int
        Noise of a cell, and their number.
    factor : float
        Times the rows, so many suffice for components that are less favourable.

    Raises
    ------
    OptionError
        If the lightest component is hidden.
    """
    least, what = error
    blur, number = cells
    rows = plan.n / k
    highest = blur * math.sqrt(2 * math.log(max(number, 2)))
    short = max(least / HIDDEN, highest / rows)
    if short <= 1:
        return
    why = (
        f"{what} would be known to {least:.2g} standard deviations at best"
        if least / HIDDEN > highest / rows
        else f"noise alone makes cells of {highest:,.0f} rows"
    )
    raise OptionError(
        f"components={k} at n={plan.n:,} and epsilon={plan.privacy.epsilon:g}: noise hides a "
        f"component whatever the rows are. The lightest has at most {rows:,.0f} rows, and {why}. "
        f"{enough(plan, max(factor, short))} Or ask for fewer components."
    )
