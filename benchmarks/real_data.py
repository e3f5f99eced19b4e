"""Private against non-private coefficients on real data, in non-private standard errors.

    uv run python -m benchmarks.real_data [--housing california_housing.csv.gz]

RAND health insurance (20,190 rows, ships with statsmodels) and, where the file is given, California
housing (20,640 rows; Pace & Barry 1997). Bounds are declared from general knowledge of the columns,
not from the file. The housing model does not fit: there the default, efficient under a linear mean,
is off least squares' best linear predictor, which ``target="projection"`` is for.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import statsmodels.formula.api as smf

import dpstats as dp
from benchmarks.common import show
from dpstats.datasets import randhie
from dpstats.errors import FeasibilityWarning

EPSILONS = (0.5, 1.0, 2.0, 4.0)
FITS: list[dict[str, Any]] = [{}, {"target": "projection"}, {"method": "adassp"}]
RAND = "mdvis ~ lncoins + disea + physlm + hlthg + hlthf + hlthp"
HOUSING = (
    "np.log(median_house_value) ~ median_income + housing_median_age + np.log(population)"
    " + np.log(households) + C(ocean_proximity)"
)
HOUSING_SCHEMA = dp.Schema(
    median_house_value=dp.Numeric(10_000, 1_000_000, center=200_000, scale=100_000),
    median_income=dp.Numeric(0, 15, center=4, scale=2),
    housing_median_age=dp.Numeric(1, 60),
    population=dp.Numeric(1, 20_000, center=1_400, scale=1_000),
    households=dp.Numeric(1, 10_000, center=500, scale=400),
    ocean_proximity=dp.Categorical(["<1H OCEAN", "INLAND", "ISLAND", "NEAR BAY", "NEAR OCEAN"]),
)


def table(formula: str, df: pd.DataFrame, schema: dp.Schema, reps: int) -> list[dict[str, Any]]:
    """Distance to the non-private fit, per epsilon."""
    plain = smf.ols(formula, df).fit(cov_type="HC1")
    model = dp.ols(formula, data=df, schema=schema)
    rows = []
    for options, epsilon in itertools.product(FITS, EPSILONS):
        distance, length, covered = [], [], []
        for r in range(reps):
            fit = model.fit(dp.Central(epsilon, 1e-7), noise=dp.SeededNoise(r), **options)
            truth = _aligned(plain.params, fit.params.index)
            distance.append((fit.params.to_numpy() - truth) / _aligned(plain.bse, fit.params.index))
            length.append(fit.bse.to_numpy() / _aligned(plain.bse, fit.params.index))
            inside = np.abs(fit.params.to_numpy() - truth) <= 1.96 * fit.bse.to_numpy()
            covered.append(inside.mean())
        z = np.array(distance)
        rows.append(
            {
                "fit": next(iter(options.values()), "default"),
                "eps": epsilon,
                "rms distance / se": f"{np.sqrt((z**2).mean()):.2f}",
                "median |distance| / se": f"{np.median(np.abs(z)):.2f}",
                "worst column": f"{np.sqrt((z**2).mean(axis=0)).max():.2f}",
                "se ratio (median)": f"{np.median(length):.2f}",
                "interval holds the OLS fit": f"{np.mean(covered):.2f}",
            }
        )
    return rows


def _aligned(values: pd.Series, names: pd.Index) -> np.ndarray:
    """Values of statsmodels' patsy or formulaic names in our order."""
    renamed = {str(k).replace("[T.", "[").replace("]", ""): v for k, v in values.items()}
    return np.array([renamed[str(n).replace("[T.", "[").replace("]", "")] for n in names])


def main() -> None:
    """Run both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reps", type=int, default=20)
    parser.add_argument("--housing", type=Path)
    a = parser.parse_args()
    warnings.simplefilter("ignore", FeasibilityWarning)
    note = f"{a.reps} noise seeds per row; delta = 1e-7; standard errors are HC1."
    df, schema = randhie.load()
    show(f"RAND: {RAND}", table(RAND, df, schema, a.reps), note)
    if a.housing is None or not a.housing.exists():
        print("\nCalifornia housing: skipped; give its file with --housing PATH.")
        return
    show(
        f"Housing: {HOUSING}", table(HOUSING, pd.read_csv(a.housing), HOUSING_SCHEMA, a.reps), note
    )


if __name__ == "__main__":
    main()
