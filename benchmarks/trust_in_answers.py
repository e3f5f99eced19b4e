"""Do 95 % intervals hold the non-private estimate, on real data and under careless schemas?

    uv run python -m benchmarks.trust_in_answers --data FOLDER [--diffprivlib PYTHON]

FOLDER has `california_housing.csv.gz` (Pace & Barry 1997) and `covtype_sample.csv.gz` (10,000 rows
of forest cover, Blackard 1998); without it the other tables are fitted. Each setting is fitted at
four epsilons by the default method, and linear ones by AdaSSP, by sums with noise in declared units
(`benchmarks.noisy_sums`) and by diffprivlib, in an interpreter that has it (see
`benchmarks.accuracy`; it gives no standard errors).

holds: share of 95 % intervals that hold the non-private estimate, averaged over coefficients.
least: the same for the coefficient that is held least often.
error, SE: root mean square distance to the non-private estimate and median standard error, both in
heteroskedasticity-robust standard errors of the non-private fit, whose own are 0 and 1.
warned: share of fits that warn above the coefficients. silent: holds, in those that did not.
told: share of fits that hold a coefficient or warn, for the one of which that share is least.
hidden: share of coefficients called not identified.

Writes `benchmarks/results/trust_in_answers.csv`, where other settings' rows stay, draws
`docs/figures/trust_in_answers.png`, and writes the tables of docs/benchmarks.md, of README.md and
of docs/index.md from it.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import dpstats as dp
from benchmarks.accuracy import Peer, diffprivlib
from benchmarks.common import Array, progress
from benchmarks.noisy_sums import NoisySums
from benchmarks.trust_page import EPSILONS, TABLE, write
from benchmarks.trust_settings import Setting, settings
from dpstats.design.units import Standardization
from dpstats.errors import FeasibilityWarning
from dpstats.holders import Curator

DELTA = 1e-7
METHODS = ("default", "adassp", "noisy sums", "diffprivlib")


class Found(NamedTuple):
    """Coefficients (d,), standard errors (d,; nan for none), and what the fit said of them.

    That is whether it warned, and how many it called not identified. `ends` are those of 95 %
    intervals (d, 2), where these are not 1.96 standard errors about the coefficients.
    """

    params: Array
    bse: Array
    ends: Array | None = None
    warned: bool = False
    hidden: int = 0


Fitter = Callable[[float, int], Found]


def fitter(setting: Setting, method: str, endog: Array, peer: str | None) -> Fitter:
    """A fit at an epsilon, with a seed."""
    if method == "noisy sums":
        return _noisy_sums(setting)
    if method == "diffprivlib":
        assert peer is not None
        return _diffprivlib(setting, endog, diffprivlib(peer, "linear"))
    model, options = setting.model(), {} if method == "default" else {"method": method}

    def fit(epsilon: float, seed: int) -> Found:
        found = model.fit(dp.Central(epsilon, DELTA), noise=dp.SeededNoise(seed), **options)
        warned = bool(found.plan.warnings or found.estimate.remarks)
        hidden = len(found.table.not_identified)
        ends = found.conf_int().to_numpy()
        return Found(np.asarray(found.params), np.asarray(found.bse), ends, warned, hidden)

    return fit


def holds(found: Found, truth: Array) -> Array:
    """Whether each interval holds its number (d,): 1 or 0, nan where there is none."""
    half = 1.959964 * found.bse[:, None] * [-1, 1]
    low, high = (found.params[:, None] + half if found.ends is None else found.ends).T
    held: Array = np.where(np.isnan(found.bse), math.nan, (low <= truth) & (truth <= high))
    return held


def _noisy_sums(setting: Setting) -> Fitter:
    """Sums with noise, from the package's own curator; there is nothing that would warn."""
    design, n = setting.model().design, len(setting.data)

    def fit(epsilon: float, seed: int) -> Found:
        plan = NoisySums().plan(design, dp.Central(epsilon, DELTA), n)
        holder = Curator(design.source(setting.data), design, plan, dp.SeededNoise(seed))
        made = NoisySums().fit(holder, design, plan)
        params, cov = design.standardization.to_user(made.params, np.asarray(made.cov))
        return Found(params, np.sqrt(np.maximum(np.diag(cov), 0.0)))

    return fit


def _diffprivlib(setting: Setting, endog: Array, peer: Peer) -> Fitter:
    """diffprivlib's linear regression on columns brought from their declared ranges to [-1, 1]."""
    design = setting.model().design
    assert design.endog is not None
    low, high = np.asarray(design.bounds, dtype=np.float64).T
    at, top = design.standardization.intercept, (design.endog.upper - design.endog.lower) / 2
    center, half = (low + high) / 2, (high - low) / 2
    if at is not None:
        center[at], half[at] = 0.0, 1.0
    units = Standardization(center, half, design.endog.lower + top, top / 3.5, at)
    x = np.clip((np.asarray(design.exog(setting.data)) - center) / half, -1, 1)
    y = np.clip((endog - units.y_center) / units.y_scale, -3.5, 3.5)

    def fit(epsilon: float, seed: int) -> Found:
        params, none = peer(x, y, epsilon, seed), np.full(len(half), math.nan)
        return Found(units.to_user(params, np.eye(len(half)))[0], none)

    return fit


def rows(
    setting: Setting, method: str, seeds: int, peer: str | None = None
) -> list[dict[str, Any]]:
    """One row of the table an epsilon."""
    plain = setting.nonprivate()
    fit = fitter(setting, method, plain.model.endog, peer)
    truth, scale = (_aligned(v, setting.model().design.names) for v in (plain.params, plain.bse))
    made = []
    for epsilon in EPSILONS:
        fits = [fit(epsilon, seed) for seed in range(seeds)]
        off = np.array([f.params - truth for f in fits])
        bse, warned = np.array([f.bse for f in fits]), np.array([f.warned for f in fits])
        held = np.array([holds(f, truth) for f in fits])
        silent, told = held[~warned], np.where(warned[:, None], 1.0, held)
        made.append(
            {
                "half": setting.half,
                "setting": setting.name,
                "family": setting.family,
                "careless": setting.careless,
                "n": len(setting.data),
                "fit": method,
                "epsilon": epsilon,
                "seeds": seeds,
                "holds": held.mean(),
                "least": held.mean(axis=0).min(),
                "error": math.sqrt(np.mean((off / scale) ** 2)),
                "SE": np.median(bse / scale),
                "warned": warned.mean(),
                "hidden": np.mean([f.hidden for f in fits]) / len(truth),
                "silent": silent.mean() if silent.size else math.nan,
                "told": told.mean(axis=0).min(),
            }
        )
    return made


def _aligned(values: pd.Series, names: Sequence[str]) -> Array:
    """Values under statsmodels' names in our order."""
    renamed = {k.replace("[T.", "["): v for k, v in values.items()}
    return np.array([renamed[name.replace("[T.", "[")] for name in names])


def store(new: pd.DataFrame, path: Path) -> pd.DataFrame:
    """The table with these rows in place of older ones of the same fits, and written."""
    key = ["half", "setting", "family", "fit", "epsilon"]
    table = pd.concat([pd.read_csv(path), new]) if path.exists() else new
    table = table.drop_duplicates(key, keep="last")
    table.to_csv(path, index=False, float_format="%.4g")
    return table


def _cell(job: tuple[Setting, str, int, str | None]) -> list[dict[str, Any]]:
    warnings.simplefilter("ignore")
    return rows(*job)


def methods(setting: Setting, peer: str | None) -> tuple[str, ...]:
    """What is compared: the rivals are linear."""
    return METHODS[:1] if setting.family != "ols" else METHODS[: 3 + (peer is not None)]


def main(argv: Sequence[str] | None = None) -> None:
    """Run what is asked for, store it, and write figure and pages from all that is stored."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of the tables that no package ships")
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--only", help="settings whose name begins so, with commas between")
    parser.add_argument("--fit", choices=METHODS, help="one method")
    parser.add_argument("--diffprivlib", help="interpreter that can import diffprivlib")
    parser.add_argument("--output", type=Path, default=TABLE, help="CSV file")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--no-pages", action="store_true", help="leave figure and pages alone")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    a = parser.parse_args(argv)
    warnings.simplefilter("ignore", FeasibilityWarning)
    only = tuple(a.only.split(",")) if a.only else ("",)
    jobs = [
        (s, m, a.seeds, a.diffprivlib)
        for s in settings(a.data)
        if s.name.startswith(only)
        for m in methods(s, a.diffprivlib)
        if a.fit in (None, m)
    ]
    with ProcessPoolExecutor(a.jobs) as pool:
        made = map(_cell, jobs) if a.jobs == 1 else pool.map(_cell, jobs)
        for found in progress(made, len(jobs), a.quiet):
            table = store(pd.DataFrame(found), a.output)
    if not a.no_pages:
        write(table)


if __name__ == "__main__":
    main()
