"""Real tables whose covariates lose values at random: completed rows, and complete rows alone.

    uv run python -m benchmarks.missing_real --data FOLDER [--reps 20] [--share .15]

The linear settings of `benchmarks.trust_in_answers` with more than 5,000 rows. Every column that
covariates read loses a share of its values, each by itself. Fits are compared with statsmodels' on
the table without gaps.

held: share of 95 % intervals that hold its coefficients, averaged over these, and of the one held
least often; error and SE: root mean square distance to it and median standard error, both in its
robust standard errors. warned: share of fits that say more above the coefficients than what was
missing, and of those that give no interval, of which nothing else is counted.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import dpstats as dp
from benchmarks.trust_settings import Setting, settings

DELTA, EPSILONS = 1e-6, (1.0, 4.0)


def holed(setting: Setting, share: float, seed: int) -> pd.DataFrame:
    """The table with gaps in what covariates read."""
    rng, data = np.random.default_rng([seed, 11]), setting.data.copy()
    response, _, covariates = setting.formula.partition("~")
    for name in setting.schema:
        if name in covariates and name != response.strip():
            gone = rng.uniform(size=len(data)) < share
            data[name] = data[name].mask(gone)
    return data


def line(setting: Setting, missing: str, epsilon: float, share: float, reps: int) -> str:
    """One row of the table."""
    whole = setting.nonprivate()
    apart: list[Any] = []
    lengths, warned, without = [], 0, 0
    for seed in range(reps):
        model = dp.ols(
            setting.formula, holed(setting, share, seed), setting.schema, missing=missing
        )
        fit = model.fit(dp.Central(epsilon, DELTA), noise=dp.SeededNoise(seed))
        gaps = ("were missing", "Only about")
        warned += any(not any(g in said for g in gaps) for said in fit.estimate.remarks)
        if fit.estimate.inference:
            without += 1
            continue
        params = whole.params.reindex(fit.params.index)
        apart.append(((fit.params - params) / fit.bse, (fit.params - params) / whole.bse))
        lengths.append((fit.bse / whole.bse.reindex(fit.bse.index)).to_numpy())
    within = np.array([np.abs(z) < 1.96 for z, _ in apart])
    error = np.sqrt(np.mean([np.square(e) for _, e in apart]))
    held = f"{within.mean():.0%} ({within.mean(axis=0).min():.0%})"
    return (
        f"| {setting.name} | {len(setting.data):,} | {missing} | {epsilon:g} | {held} | "
        f"{error:.1f} | {np.median(lengths):.1f} | {warned / reps:.0%} ({without / reps:.0%}) |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of the tables that no package ships")
    parser.add_argument("--reps", type=int, default=20)
    parser.add_argument("--share", type=float, default=0.15)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    for setting in settings(args.data):
        if setting.family != "ols" or setting.careless or len(setting.data) <= 5_000:
            continue
        for epsilon in EPSILONS:
            for missing in ("em", "complete"):
                print(line(setting, missing, epsilon, args.share, args.reps), flush=True)


if __name__ == "__main__":
    main()
