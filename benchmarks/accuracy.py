"""Error of private OLS on uniform designs, cell by cell.

    uv run python -m benchmarks.accuracy

x ~ U(-1, 1)^d, ||beta|| = sqrt(3), sigma = 0.5, delta = 1e-6, y declared in [-3.5, 3.5]. Relative
error ||b - beta|| / ||beta||; for condition numbers above 1 in the prediction norm
||b - beta||_Sigma / ||beta||_Sigma. "best known" is the smallest mean error measured earlier for
any private method in that cell (noisy gradient descent or noisy Newton steps). diffprivlib's
pure-DP linear regression is run where it is installed.
"""

from __future__ import annotations

import numpy as np

from benchmarks.common import (
    SIGMA,
    arguments,
    attempt,
    coefficients,
    fit,
    ols,
    progress,
    relative,
    show,
    summarise,
    uniform_design,
)

# d, n, epsilon: best mean relative error known before, at condition number 1.
CELLS = {
    (2, 1_000, 0.5): 0.07,
    (2, 1_000, 1.0): 0.04,
    (5, 1_000, 1.0): 0.10,
    (5, 1_000, 5.0): 0.04,
    (5, 10_000, 0.1): 0.08,
    (5, 10_000, 0.5): 0.022,
    (5, 10_000, 1.0): 0.015,
    (5, 10_000, 5.0): 0.011,
    (10, 10_000, 0.5): 0.037,
    (10, 10_000, 1.0): 0.025,
    (20, 10_000, 0.5): 0.060,
    (20, 10_000, 1.0): 0.035,
    (20, 10_000, 5.0): 0.022,
    (5, 100_000, 0.1): 0.007,
    (5, 100_000, 1.0): 0.003,
    (20, 100_000, 0.1): 0.027,
    (20, 100_000, 0.5): 0.009,
    (20, 100_000, 1.0): 0.007,
    (20, 1_000, 0.5): 0.90,
    (20, 1_000, 1.0): 0.34,
    (20, 1_000, 5.0): 0.095,
}
# kappa, d, n: best mean prediction-norm error known before, epsilon = 1.
CONDITIONED = {
    (1, 5, 1_000): 0.091,
    (1, 5, 10_000): 0.014,
    (1, 5, 100_000): 0.003,
    (1, 20, 1_000): 0.37,
    (1, 20, 10_000): 0.039,
    (1, 20, 100_000): 0.008,
    (10, 5, 1_000): None,
    (10, 5, 10_000): None,
    (10, 5, 100_000): None,
    (10, 20, 1_000): None,
    (10, 20, 10_000): None,
    (10, 20, 100_000): None,
    (100, 5, 1_000): 0.52,
    (100, 5, 10_000): 0.098,
    (100, 5, 100_000): 0.004,
    (100, 20, 1_000): 0.65,
    (100, 20, 10_000): 0.325,
    (100, 20, 100_000): 0.030,
}


def cell(
    d: int, n: int, epsilon: float, kappa: float, reps: int, seed: int
) -> dict[str, list[float]]:
    """Errors of every method on the same data sets."""
    errors: dict[str, list[float]] = {
        k: [] for k in ("OLS", "default", "adassp", "dp-gd", "diffprivlib")
    }
    scales = kappa ** (-0.5 * np.arange(d) / max(d - 1, 1))
    metric = np.diag(scales**2) / 3 if kappa > 1 else None
    for r in range(reps):
        rng = np.random.default_rng([seed, d, n, int(1000 * epsilon), int(kappa), r])
        x, beta = uniform_design(n, d, kappa, rng), coefficients(d, rng)
        y = x @ beta + rng.normal(0, SIGMA, n)
        errors["OLS"].append(relative(ols(x, y), beta, metric))
        for name in ("default", "adassp", "dp-gd"):
            method = None if name == "default" else name
            found = fit(x, y, epsilon, seed + r, method=method).params.to_numpy()
            errors[name].append(relative(found, beta, metric))
        errors["diffprivlib"].append(
            attempt(lambda x=x, y=y, b=beta: relative(_diffprivlib(x, y, epsilon), b, metric))
        )
    return errors


def _diffprivlib(x: np.ndarray, y: np.ndarray, epsilon: float) -> np.ndarray:
    from diffprivlib.models import LinearRegression

    model = LinearRegression(
        epsilon=epsilon, bounds_X=(-1, 1), bounds_y=(-3.5, 3.5), fit_intercept=False
    )
    return np.asarray(model.fit(x, y).coef_).ravel()


def main() -> None:
    """Run both tables."""
    a = arguments(__doc__ or "", reps=20)
    isotropic = [
        (1.0, d, n, e, known) for (d, n, e), known in CELLS.items() if not a.quick or n <= 10_000
    ]
    conditioned = [
        (float(k), d, n, 1.0, known)
        for (k, d, n), known in CONDITIONED.items()
        if not a.quick or n <= 10_000
    ]
    for title, cells in (
        ("Isotropic designs: relative error", isotropic),
        ("Condition numbers, epsilon = 1: prediction-norm error", conditioned),
    ):
        rows = []
        for kappa, d, n, epsilon, known in progress(cells, len(cells), a.quiet):
            errors = cell(d, n, epsilon, kappa, a.reps, a.seed)
            default, adassp = np.mean(errors["default"]), np.mean(errors["adassp"])
            rows.append(
                {"kappa": kappa, "d": d, "n": n, "eps": epsilon}
                | {name: summarise(v) for name, v in errors.items()}
                | {
                    "best known": known or "",
                    "default/known": f"{default / known:.2f}" if known else "",
                    "default/adassp": f"{default / adassp:.2f}",
                }
            )
        show(
            title, rows, f"{a.reps} data sets per cell, seeds from {a.seed}; mean (standard error)."
        )


if __name__ == "__main__":
    main()
