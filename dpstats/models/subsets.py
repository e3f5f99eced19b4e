"""How many rows of a subset are planned for: a public guess, for their number is private."""

from __future__ import annotations

from typing import Any

from dpstats.design import Design
from dpstats.errors import OptionError, given, is_number
from dpstats.privacy import Central, Local, Privacy

__all__ = ["rows_inside"]


def rows_inside(n: int, design: Design, privacy: Privacy, options: dict[str, Any]) -> int:
    """Rows of the subset to plan for, of `n`; the public guess of their share leaves `options`.

    Raises
    ------
    OptionError
        If it is no share, or there is no subset.
    """
    share = options.pop("subset_share", None)
    if share is None:  # every device sends a message, and public rows are counted
        return n if isinstance(privacy, Local) else design.expected_rows(n)
    if not isinstance(privacy, Central):
        raise OptionError(
            f"subset_share= is a guess for the plan of one curator, Central(epsilon, delta), not "
            f"under {privacy.trust!r} trust: leave it out."
        )
    if design.subset is None:
        raise OptionError("subset_share= guesses how many rows are in a subset: give subset=, too.")
    if not (is_number(share) and 0 < share <= 1):
        raise OptionError(
            f"subset_share={given(share)}: a public guess of the share of rows in the subset is "
            "needed, above 0 and at most 1, such as subset_share=0.3."
        )
    return design.expected_rows(n, float(share))
