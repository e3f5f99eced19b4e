"""Error of private OLS on Gaussian designs with generous declared bounds.

    uv run python -m benchmarks.gaussian

x ~ N(0, Sigma), columns declared within 4 standard deviations, ||beta|| = 1 (10 in one row),
sigma = 1, delta = 1e-5; median l2 error. "known" is the error measured earlier for noisy Gram
matrix plus refinements with adaptive clips; AdaSSP had oracle data bounds there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.common import FITS, arguments, coefficients, fit, ols, progress, show

# n, d, epsilon, condition number of Sigma, ||beta||, known OLS, known AdaSSP, known best.
ROWS = [
    (1_000, 5, 1.0, 1.0, 1.0, 0.067, 0.586, 0.142),
    (5_000, 10, 1.0, 1.0, 1.0, 0.043, 0.348, 0.068),
    (10_000, 20, 1.0, 1.0, 1.0, 0.044, 0.340, 0.077),
    (50_000, 20, 1.0, 1.0, 1.0, 0.020, 0.073, 0.024),
    (10_000, 20, 1.0, 10.0, 1.0, 0.0215, 0.400, 0.034),
    (10_000, 10, 1.0, 1.0, 10.0, 0.032, 1.39, 0.047),
    (10_000, 10, 4.0, 1.0, 1.0, 0.032, 0.049, 0.033),
]


def main() -> None:
    """Run the table."""
    a = arguments(__doc__ or "", reps=20, fits="default,robust,adassp or some of these")
    fits = (a.fits or "default,robust,adassp").split(",")
    rows: list[dict[str, Any]] = []
    for n, d, epsilon, kappa, size, *known in progress(ROWS, len(ROWS), a.quiet):
        scales = kappa ** (0.5 * np.arange(d) / (d - 1))
        errors: dict[str, list[float]] = {name: [] for name in ("OLS", *fits)}
        for r in range(a.reps):
            rng = np.random.default_rng([a.seed, n, d, int(kappa), int(size), r])
            x = rng.normal(size=(n, d)) * scales
            beta = coefficients(d, rng, size)
            y = x @ beta + rng.normal(size=n)
            reach = 4 * float(np.sqrt(np.sum((scales * beta) ** 2) + 1))
            bounds = {"endog": (-reach, reach), "exog": [(-4 * s, 4 * s) for s in scales]}
            errors["OLS"].append(float(np.linalg.norm(ols(x, y) - beta)))
            for name in fits:
                found = fit(x, y, epsilon, r, delta=1e-5, bounds=bounds, **FITS[name])
                errors[name].append(float(np.linalg.norm(found.params.to_numpy() - beta)))
        rows.append(
            {"n": n, "d": d, "eps": epsilon, "kappa": kappa, "|beta|": size}
            | {
                k: f"{np.median(v):.3f} ({np.std(v) / np.sqrt(len(v)):.3f})"
                for k, v in errors.items()
            }
            | dict(zip(("known OLS", "known AdaSSP", "known best"), known, strict=True))
        )
    show(
        "Gaussian designs: median error (standard error)",
        rows,
        f"{a.reps} data sets, seed {a.seed}.",
    )


if __name__ == "__main__":
    main()
