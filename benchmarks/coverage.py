"""Coverage of 95 % intervals for the population coefficients.

    uv run python -m benchmarks.coverage

Uniform designs of condition number 1 and 100, d = 5 and 20, n from 1,000 to 100,000, epsilon 0.5 to
5; normal, heteroskedastic (sd 0.5 (0.5 + |x_1| sqrt(3))) and t(4) errors. The last columns say how
long the intervals are against non-private ones, and whether the plan warned before the fit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import dpstats as dp
from benchmarks.common import DELTA, SIGMA, arguments, coefficients, progress, show, uniform_design

SIZES = (1_000, 3_000, 10_000, 100_000)
COLUMNS = (5, 20)
EPSILONS = (0.5, 1.0, 5.0)
KAPPAS = (1.0, 100.0)
ERRORS = ("normal", "heteroskedastic", "t(4)")


def errors(kind: str, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Errors of standard deviation about SIGMA."""
    n = x.shape[0]
    if kind == "t(4)":
        return np.asarray(SIGMA / math.sqrt(2) * rng.standard_t(4, n))
    scale = SIGMA * (0.5 + np.abs(x[:, 0]) * math.sqrt(3)) / 1.4 if kind != "normal" else SIGMA
    return np.asarray(scale * rng.normal(size=n))


def cell(
    place: tuple[int, int, float, float, str], target: str, reps: int, seed: int
) -> dict[str, Any]:
    """Coverage and length over `reps` data sets; `place` is n, d, epsilon, kappa and the errors."""
    n, d, epsilon, kappa, kind = place
    hits, ratio, warned = [], [], False
    privacy = dp.Central(epsilon, DELTA)
    for r in range(reps):
        rng = np.random.default_rng([seed, n, d, int(10 * epsilon), int(kappa), len(kind), r])
        x, beta = uniform_design(n, d, kappa, rng), coefficients(d, rng)
        y = x @ beta + errors(kind, x, rng)
        model = dp.OLS(y, x, bounds={"endog": (-7.0, 7.0), "exog": (-1.0, 1.0)})
        result = model.fit(privacy, target=target, noise=dp.SeededNoise(seed + r))
        warned = bool(result.plan.warnings)
        interval = result.conf_int().to_numpy()
        hits.append(((interval[:, 0] <= beta) & (beta <= interval[:, 1])).mean())
        plain = SIGMA * np.sqrt(np.diag(np.linalg.inv(x.T @ x)))
        ratio.append(np.median(result.bse.to_numpy() / plain))
    return {
        "coverage": float(np.mean(hits)),
        "se": float(np.std(hits, ddof=1) / math.sqrt(reps)),
        "length": float(np.mean(ratio)),
        "warned": warned,
    }


def main() -> None:
    """Run the grid."""
    a = arguments(__doc__ or "", reps=100, target="mle (default) or robust")
    sizes = SIZES[:3] if a.quick else SIZES
    grid = [
        (n, d, e, k, kind)
        for kind in ERRORS
        for k in KAPPAS
        for d in COLUMNS
        for n in sizes
        for e in EPSILONS
    ]
    rows = []
    for place in progress(grid, len(grid), a.quiet):
        found = cell(place, a.target or "mle", a.reps, a.seed)
        n, d, epsilon, kappa, kind = place
        inside = 0.93 - 2 * found["se"] <= found["coverage"] <= 0.97 + 2 * found["se"]
        verdict = "ok" if inside else "warned" if found["warned"] else "MISS"
        rows.append(
            {
                "errors": kind,
                "kappa": kappa,
                "d": d,
                "n": n,
                "eps": epsilon,
                "coverage": f"{found['coverage']:.3f} ({found['se']:.3f})",
                "length / OLS": f"{found['length']:.2f}",
                "plan warned": found["warned"],
                "verdict": verdict,
            }
        )
    note = (
        f"{a.reps} data sets per cell, all coefficients pooled, seed {a.seed}. ok: within 93-97 % "
        "up to two standard errors; warned: outside, and the plan said so before the fit."
    )
    show("Coverage of 95 % intervals", rows, note)


if __name__ == "__main__":
    main()
