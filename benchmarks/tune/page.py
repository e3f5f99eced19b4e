"""docs/constants.md, from the constants themselves and from what was measured.

uv run python -m benchmarks.tune.page
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from benchmarks.tune.__main__ import SAME
from benchmarks.tune.constants import FAMILIES, FIXED, RESULTS, UNITS, Constant, constants

__all__ = ["PAGE", "text"]

PAGE = Path(__file__).parents[2] / "docs" / "constants.md"

_TOP = """# Constants

<!-- Written by `python -m benchmarks.tune.page`; do not edit. -->

Numbers in `dpstats/estimators` that no theorem gives; those of quantile
regressions are not among them.
What each is worth: the number is halved and doubled (of a share the odds), or set to what does
nothing (off), in settings of its family with the same draws. *Error* is the largest change of the
root mean squared error in any setting, *coverage* the largest of 95 % intervals, in points; Monte
Carlo errors in brackets. A number that moves neither by 2 % or 1 point goes, or is shared with
another; some that do not move the settings stay for what these do not have, such as hostile rows.
An error of 0 says that no fit changed, "?" that none is on record: that it was not measured, or
before such a number had a line. The tables were taken a slice
at a time, each before the removals that it led to. Budgets written in lists of questions, not as
constants, are not here.

"""


def text() -> str:
    """The page."""
    lines = [_TOP, "| Unit | |", "|---|---|"]
    lines += [f"| {unit} | {meaning} |" for unit, meaning in UNITS.items() if unit not in FIXED]
    for family in FAMILIES:
        lines += _section(family)
    return "\n".join(lines) + "\n"


def _section(family: str) -> Iterator[str]:
    found = constants(family)
    measured = pd.read_csv(RESULTS / f"{family}.csv")
    yield f"\n## {family.capitalize()}\n\n`uv run python -m benchmarks.tune {family}`\n"
    yield "| Constant | Value | Unit | Meaning | Error, % | Coverage |\n|---|---|---|---|---|---|"
    for constant in found:
        if constant.tuned:
            yield from _lines(constant, measured)
    for unit, meaning in FIXED.items():
        fixed = ", ".join(f"`{c}`" for c in found if c.unit == unit)
        if fixed:
            yield f"\n*{unit.capitalize()}* ({meaning}): {fixed}."


def _lines(constant: Constant, measured: pd.DataFrame) -> Iterator[str]:
    for part, (value, _) in constant.parts().items():
        own = measured[measured["constant"] == part]
        effects = [_largest(own, "error") or "?", _largest(own, "coverage") or "-"]
        words = (f"`{part}`", f"{value:.3g}", constant.unit, constant.meaning, *effects)
        yield "| " + " | ".join(words) + " |"


def _largest(own: pd.DataFrame, what: str) -> str:
    known = own[own[what].notna()]
    if known.empty:
        return ""
    row = known.loc[known[what].abs().idxmax()]
    if row["variant"] == SAME:
        return "0"
    if abs(row[what]) > 1e6 or row["reps"] == 0:
        return f"{row['variant']}: fails" if what == "error" else ""
    return f"{row['variant']}: {100 * row[what]:+.1f} ({100 * row[f'{what}_se']:.1f})"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
