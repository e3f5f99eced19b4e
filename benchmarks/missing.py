"""Regression on rows that miss covariates: completed, beside complete rows alone; and coverage.

``uv run python -m benchmarks.missing [--reps 12] [--first 5000] [--only 5] [--law skewed]``
prints rows.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np

import dpstats as dp

CELLS = ((5, 10_000), (5, 20_000), (10, 10_000), (10, 20_000), (20, 20_000))
LAWS = ("normal", "uniform", "skewed", "heavy", "two values")
NORMAL = "em, normal=True"
RATE, AR, SD = 0.2, 0.5, 0.5
PRIVACY = dp.Central(1.0, 1e-6)


def made(n, p, seed, law="normal"):
    """Covariates, gaps, responses, coefficients and the second moments of (1, x)."""
    rng = np.random.default_rng([p, 7, seed])
    cov = AR ** np.abs(np.subtract.outer(np.arange(p), np.arange(p)))
    z = {
        "normal": lambda: rng.standard_normal((n, p)),
        "uniform": lambda: rng.uniform(-(3**0.5), 3**0.5, (n, p)),
        "skewed": lambda: rng.exponential(size=(n, p)) - 1,
        "heavy": lambda: rng.standard_t(5, size=(n, p)) * 0.6**0.5,
        "two values": lambda: rng.choice([-1.0, 1.0], (n, p)),
    }[law]()
    x = z @ np.linalg.cholesky(cov).T
    b = rng.normal(size=p)
    b /= np.sqrt(b @ cov @ b)
    y = 0.3 + x @ b + SD * rng.standard_normal(n)
    rates = np.linspace(0.25 * RATE, 1.75 * RATE, p)
    rng.shuffle(rates)
    moments = np.eye(p + 1)
    moments[1:, 1:] = cov
    return x, rng.random((n, p)) < rates, y, np.r_[0.3, b], moments


def fitted(x, gaps, y, seed, missing):
    p = x.shape[1]
    names = [f"x{j}" for j in range(p)]
    data = {name: np.where(gaps[:, j], np.nan, x[:, j]) for j, name in enumerate(names)}
    wide = 4 if np.abs(x).max() < 6 else 12
    schema = dp.Schema(
        {name: dp.Numeric(-wide, wide, scale=1) for name in names}
        | {"y": dp.Numeric(-2 * wide, 2 * wide, scale=1)}
    )
    way, asserted = ("em", {"normal": True}) if missing == NORMAL else (missing, {})
    model = dp.ols("y ~ " + " + ".join(names), data | {"y": y}, schema, missing=way)
    return model.fit(PRIVACY, noise=dp.SeededNoise(seed), **asserted)


def row(p, n, reps, missing, law, first):
    """One line: error of predictions, fits with intervals, and their coverage."""
    errors, covered, shown, start = [], [], 0, time.time()
    for seed in range(first, first + reps):
        x, gaps, y, truth, moments = made(n, p, seed, law)
        fit = fitted(x, gaps, y, seed, missing)
        apart = fit.params.to_numpy() - truth
        errors.append(np.sqrt(apart @ moments @ apart))
        ends = fit.conf_int().to_numpy()
        if np.isfinite(ends).all():
            shown += 1
            covered.append((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
    error, se = np.mean(errors), np.std(errors, ddof=1) / reps**0.5
    share = f"{np.mean(covered):.1%} ({np.size(covered)})" if covered else "-"
    seconds = (time.time() - start) / reps
    return (
        f"| {law} | {p} | {n:,} | {missing} | {error:.4f} ({se:.4f}) | {shown} of {reps} | {share} "
        f"| {seconds:.1f} |"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reps", type=int, default=12)
    parser.add_argument("--first", type=int, default=5_000, help="number of the first table")
    parser.add_argument("--only", type=int, nargs="*")
    parser.add_argument("--rows", type=int, nargs="*")
    parser.add_argument("--law", choices=LAWS, default="normal")
    parser.add_argument("--missing", choices=("em", NORMAL, "complete"), nargs="*", default=["em"])
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    for p, n in CELLS:
        if (args.only and p not in args.only) or (args.rows and n not in args.rows):
            continue
        for missing in args.missing:
            print(row(p, n, args.reps, missing, args.law, args.first), flush=True)


if __name__ == "__main__":
    main()
