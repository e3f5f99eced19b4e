"""How many rows of a subset are planned for: a public guess, for their number is private."""

from __future__ import annotations

from typing import Any

from dpstats.design import Design
from dpstats.errors import OptionError, given, is_number

__all__ = ["rows_inside"]


def rows_inside(n: int, design: Design, options: dict[str, Any]) -> int:
    """Rows of the subset to plan for, of `n`; the public guess of their share leaves `options`.

    Without a guess the share is that of rows made from the schema: declared shares of levels and
    ranges of numbers.

    Raises
    ------
    OptionError
        If it is no share, or there is no subset.
    """
    if "share" not in options:
        return n if design.subset is None else max(round(n * design.guessed_share), 1)
    share = options.pop("share")
    if design.subset is None:
        raise OptionError("share= guesses how many rows are in a subset: give subset=, too.")
    if not (is_number(share) and 0 < share <= 1):
        raise OptionError(
            f"share={given(share)}: a public guess of the share of rows in the subset is needed, "
            "above 0 and at most 1, such as share=0.3."
        )
    return max(round(n * share), 1)
