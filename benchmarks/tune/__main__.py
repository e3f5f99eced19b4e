"""Error and coverage with other values of the constants of a family.

    uv run python -m benchmarks.tune labels --output benchmarks/tune/results/labels.csv
    uv run python -m benchmarks.tune labels --constant labels/sums._MISFIT --reps 400
    uv run python -m benchmarks.tune mixtures --unmeasured --settings 2 --reps 40

Every number among the constants is halved and doubled (of shares the odds), one at a time, with the
same draws. Where the first fits are the same, bit for bit, the others are taken to be, and the
setting has no line; a number that changes no setting has one line that says so. A number is *flat*
if in no setting the error moves by 2 % or more, or coverage of 95 % intervals by 1 point or more,
Monte Carlo errors included.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd

from benchmarks.common import progress
from benchmarks.tune.constants import RESULTS, Constant, changed, constants
from benchmarks.tune.descriptive import LOCAL
from benchmarks.tune.descriptive import SETTINGS as DESCRIPTIVE
from benchmarks.tune.settings import SETTINGS as REGRESSIONS
from benchmarks.tune.settings import Fit
from benchmarks.tune.tables import EVALUATIONS, GAPS, LINKS, MIXTURES, SURVEY
from dpstats.errors import DPStatsError

__all__ = ["COVERAGE", "ERROR", "compared", "flat", "tried"]


class AnySetting(Protocol):
    """What constants are tried in: a law of rows and a fit, with a name."""

    def run(self, repetitions: int, seed: int) -> Iterator[Fit]:
        """Fits with the constants as they are now; the same draws whenever called."""


SETTINGS: dict[str, Sequence[AnySetting]] = {
    **REGRESSIONS,
    "local": (*REGRESSIONS["local"], *LOCAL),
    "newton": (*REGRESSIONS["newton"], *SURVEY, *LINKS),
    "descriptive": DESCRIPTIVE,
    "evaluation": EVALUATIONS,
    "gaps": GAPS,
    "mixtures": MIXTURES,
}
ERROR, COVERAGE = 0.02, 0.01  # what is worth a constant
SAME = "none"  # variant of a number that was tried and changed no fit
PILOT = 4  # fits that say whether a setting meets a constant
EARLY = 16  # fits after which a clear effect needs no more
OFF = {  # values at which a number does nothing
    "labels/sums._MISFIT": 0.0,
    "labels/curator_sparse._GROWTH": 1.0,
    "labels/curator_sparse._MORE_STEPS": 0,
    "labels/curator_sparse._SPARE": 0.0,
    "labels/pursuit._CLEAR": 0.0,
    "central/sparse/omp._GRAM_GROWTH": 1.0,
    "central/sparse/omp._SCORE_GROWTH": 1.0,
    "central/sparse/omp._MORE_STEPS": 0,
    "central/sparse/omp._CLEAR_MOMENTS": 0.0,
    "central/sparse/pursuit_laws._UNSURE": 1e9,
    "central/descriptive/mean._WIDEN": 1.0,
    "central/descriptive/mean._SPENDABLE": 0.0,
    "central/descriptive/mean._TAIL": 0.0,
    "central/location._SYMMETRIC": 1.0,
    "central/location._MISSING": 0.0,
    "local/logit._BENT": 0.0,
    "local/rounds._BENT": 0.0,
    "local/pool._MISMATCH": 0.0,
    "local/pool._BIAS": 0.0,
    "local/choice._CHOSEN": 0.0,
    "numerics/huber._SLACK": 0.0,
    "numerics/second_moments._EVIDENCE": 0.0,
    "central/published/sparse._GROWTH": 1.0,
    "labels/rounds._DISTRUST": 1.0,
    "labels/rounds._DOUBT": 0.0,
}


def compared(base: Sequence[Fit], other: Sequence[Fit]) -> dict[str, float]:
    """Ratio of root mean squared errors, less 1, and difference of coverage; standard errors."""
    old, new = (np.array([f.error for f in fits]) for fits in (base, other))
    ratio = math.sqrt(new.mean() / old.mean())
    influence = (new / new.mean() - old / old.mean()) * ratio / 2
    covers = [np.array([_share(f) for f in fits]) for fits in (base, other)]
    difference = covers[1] - covers[0]
    difference = difference[np.isfinite(difference)]
    many = len(difference) > 1
    return {
        "error": ratio - 1,
        "error_se": float(influence.std(ddof=1) / math.sqrt(len(old))),
        "coverage": float(difference.mean()) if many else math.nan,
        "coverage_se": float(difference.std(ddof=1) / math.sqrt(len(difference)))
        if many
        else math.nan,
    }


def _share(fit: Fit) -> float:
    known = fit.covered[np.isfinite(fit.covered)]
    return float(known.mean()) if known.size else math.nan


def flat(rows: pd.DataFrame) -> bool:
    """Whether no line of a constant is worth it."""
    error = rows["error"].abs() + rows["error_se"]
    coverage = (rows["coverage"].abs() + rows["coverage_se"]).fillna(0.0)
    return bool((error < ERROR).all() and (coverage < COVERAGE).all())


def tried(
    chosen: Sequence[Constant], settings: Sequence[AnySetting], reps: int, seed: int, quiet: bool
) -> pd.DataFrame:
    """A line for each number, other value of it, and setting that it changes."""
    cells = [(c, s) for s in settings for c in chosen]
    bases: dict[AnySetting, tuple[list[Fit], set[str]]] = {}
    lines: list[dict[str, object]] = []
    unchanged = {part: value for c in chosen for part, (value, _) in c.parts().items()}
    for constant, setting in progress(cells, len(cells), quiet):
        if setting not in bases:
            bases[setting] = list(setting.run(reps, seed)), _files_run(setting, seed)
        base, files = bases[setting]
        if not any(m.__file__ in files for m in constant.holding):
            continue
        for part, name, value, other, whole in _variants(constant):
            with changed(constant, whole):
                found = _fits(setting, base, reps, seed)
            if found is None:
                continue
            line = {"constant": part, "variant": name, "value": value, "tried": other}
            fails = {"error": math.inf, "error_se": 0.0, "coverage": -1.0, "coverage_se": 0.0}
            line |= {"setting": str(setting), "reps": len(found)}
            lines.append(line | (compared(base[: len(found)], found) if found else fails))
            unchanged.pop(part, None)
    for part, value in unchanged.items():
        line = {"constant": part, "variant": SAME, "value": value, "setting": "all", "reps": PILOT}
        lines.append(line | {"error": 0.0, "error_se": 0.0})
    columns = ["constant", "variant", "value", "tried", "setting", "reps"]
    columns += ["error", "error_se", "coverage", "coverage_se"]
    return pd.DataFrame(lines, columns=columns)


def _files_run(setting: AnySetting, seed: int) -> set[str]:
    """The files whose functions one fit calls."""
    files: set[str] = set()
    sys.setprofile(lambda frame, event, argument: files.add(frame.f_code.co_filename))
    try:
        list(setting.run(1, seed))
    finally:
        sys.setprofile(None)
    return files


def _variants(constant: Constant) -> Iterator[tuple[str, str, float, float, object]]:
    for part, (value, whole) in constant.parts().items():
        others = constant.others(value)
        if part in OFF:
            others["off"] = OFF[part]
        for name, other in others.items():
            if other != value:
                yield part, name, value, other, whole(other)


def _fits(setting: AnySetting, base: Sequence[Fit], reps: int, seed: int) -> list[Fit] | None:
    """Fits with a changed constant; None if it changes nothing, empty if it cannot be."""
    found: list[Fit] = []
    try:
        for fit in setting.run(reps, seed):
            found.append(fit)
            if len(found) == PILOT and all(map(_same, found, base)):
                return None
            if len(found) == EARLY and _clear(compared(base[:EARLY], found)):
                break
    except (DPStatsError, ValueError, ArithmeticError, AssertionError, LookupError):
        return []
    return found


def _same(a: Fit, b: Fit) -> bool:
    return a.error == b.error and np.array_equal(a.widths, b.widths, equal_nan=True)


def _clear(found: dict[str, float]) -> bool:
    """Whether a number is worth it beyond doubt."""
    return abs(found["error"]) > 2 * ERROR + 3 * found["error_se"]


def summary(rows: pd.DataFrame, chosen: Sequence[Constant]) -> pd.DataFrame:
    """What each number does at most."""
    lines = []
    for part in [p for c in chosen for p in c.parts()]:
        own = rows[rows["constant"] == part]
        line: dict[str, object] = {"constant": part, "settings": own["setting"].nunique()}
        if len(own):
            at = own["error"].abs().idxmax()
            line |= {
                "error": f"{100 * own.loc[at, 'error']:+.1f} ({100 * own.loc[at, 'error_se']:.1f})",
                "variant": own.loc[at, "variant"],
            }
            if own["coverage"].notna().any():
                at = own["coverage"].abs().idxmax()
                line["coverage"] = (
                    f"{100 * own.loc[at, 'coverage']:+.1f} ({100 * own.loc[at, 'coverage_se']:.1f})"
                )
        lines.append(line | {"flat": flat(own)})
    return pd.DataFrame(lines)


def main() -> None:
    """Try the constants of one family."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tune", description=__doc__)
    parser.add_argument("family", choices=list(SETTINGS))
    parser.add_argument("--constant", help="one of them: file.NAME")
    parser.add_argument("--unmeasured", action="store_true", help="those not on record; add them")
    parser.add_argument("--settings", help="some of them: their numbers from 0, commas between")
    parser.add_argument("--reps", type=int, default=100, help="fits in a setting, at most")
    parser.add_argument("--seed", type=int, default=20_000)
    parser.add_argument("--output", type=Path, help="CSV of all lines")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    chosen = [
        c for c in constants(options.family) if c.tuned and options.constant in (None, str(c))
    ]
    record = RESULTS / f"{options.family}.csv"
    if options.unmeasured:
        known = set(pd.read_csv(record)["constant"])
        chosen = [c for c in chosen if not known.issuperset(c.parts())]
    if not chosen:
        parser.error(f"no such constant of {options.family}, called {options.constant}")
    settings = SETTINGS[options.family]
    if options.settings:
        settings = [settings[int(k)] for k in options.settings.split(",")]
    rows = tried(chosen, settings, options.reps, options.seed, options.quiet)
    if options.unmeasured:
        old = pd.read_csv(record)
        rows_on_record = pd.concat([old[~old["constant"].isin(rows["constant"])], rows])
        rows_on_record.to_csv(record, index=False, float_format="%.4g")
    if options.output:
        rows.to_csv(options.output, index=False, float_format="%.4g")
    print(summary(rows, chosen).to_string(index=False))


if __name__ == "__main__":
    main()
