"""Error of private OLS on uniform designs, cell by cell.

    uv run python -m benchmarks.accuracy
    uv run python -m benchmarks.accuracy --diffprivlib PYTHON

x ~ U(-1, 1)^d, ||beta|| = sqrt(3), sigma = 0.5, delta = 1e-6, y declared in [-3.5, 3.5]. Relative
error ||b - beta|| / ||beta||; for condition numbers above 1 in the prediction norm
||b - beta||_Sigma / ||beta||_Sigma. "default/OLS" is the ratio of mean errors on the same data
sets, with its standard error. "best known" is the smallest mean error measured earlier for any
private method in that cell (noisy gradient descent or noisy Newton steps), rounded, from other
data sets; "best other" is the best of the other private columns here. "dp-newton" is a prototype
of noisy Newton steps, on the same data sets as the rest.

diffprivlib's pure-DP linear regression does not import beside current versions of scikit-learn.
Its column is filled by a second interpreter that has it: for example
`uv venv peer && uv pip install --python peer diffprivlib "scikit-learn<1.4" "numpy<2"`, and
`--diffprivlib peer/bin/python`.
"""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.common import (
    DELTA,
    FITS,
    SIGMA,
    Array,
    arguments,
    coefficients,
    fit,
    ols,
    progress,
    ratio_of_means,
    relative,
    show,
    summarise,
    uniform_design,
)
from dpstats.accounting.calibration import gdp_mu

# Data sets per cell, in units of --reps: more where they cost little.
REPS = {1_000: 3, 10_000: 2, 100_000: 1}
Peer = Callable[[Array, Array, float, int], Array]

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
    place: tuple[int, int, float, float],
    fits: Sequence[str],
    reps: int,
    seed: int,
    peer: Peer | None,
) -> dict[str, list[float]]:
    """Errors of these fits and others on the same data sets; `place` is d, n, epsilon, kappa."""
    d, n, epsilon, kappa = place
    names = ("OLS", *fits, "dp-newton", *(["diffprivlib"] if peer else []))
    errors: dict[str, list[float]] = {k: [] for k in names}
    scales = kappa ** (-0.5 * np.arange(d) / max(d - 1, 1))
    metric = np.diag(scales**2) / 3 if kappa > 1 else None
    for r in range(reps):
        rng = np.random.default_rng([seed, d, n, int(1000 * epsilon), int(kappa), r])
        x, beta = uniform_design(n, d, kappa, rng), coefficients(d, rng)
        y = x @ beta + rng.normal(0, SIGMA, n)
        errors["OLS"].append(relative(ols(x, y), beta, metric))
        for name in fits:
            found = fit(x, y, epsilon, seed + r, **FITS[name]).params.to_numpy()
            errors[name].append(relative(found, beta, metric))
        longest = math.sqrt((scales**2).sum() / 3) + 0.4
        found = dp_newton(x, y, epsilon, longest, seed + r)
        errors["dp-newton"].append(relative(found, beta, metric))
        if peer:
            errors["diffprivlib"].append(relative(peer(x, y, epsilon, seed + r), beta, metric))
    return errors


def dp_newton(x: Array, y: Array, epsilon: float, longest: float, seed: int) -> Array:
    """Noisy Newton steps as a short script has them: three steps, fixed clips, no intervals.

    Rows are clipped to the L2 norm `longest`. Of the budget mu^2, 15 % buy the Gram matrix, whose
    ridge is the size of its noise, and the rest three scores at equal shares, with residuals
    clipped to 3.5, 1.4 and 1.25. Numpy's noise: for comparison only.
    """
    d, rng, mu = x.shape[1], np.random.default_rng(seed), gdp_mu(epsilon, DELTA)
    x = x * np.minimum(1, longest / np.linalg.norm(x, axis=1))[:, None]
    sd = math.sqrt(2) * longest**2 / (math.sqrt(0.15) * mu)
    noise = rng.normal(0, sd / 2, (d, d))
    values, vectors = np.linalg.eigh(x.T @ x + noise + noise.T)
    step = (vectors / (np.maximum(values, 0) + math.sqrt(2 * d) * sd)) @ vectors.T
    beta = np.zeros(d)
    for clip in (3.5, 1.4, 1.25):
        spread = 2 * longest * clip / (math.sqrt(0.85 / 3) * mu)
        score = x.T @ np.clip(y - x @ beta, -clip, clip)
        beta = beta + step @ (score + rng.normal(0, spread, d))
    return beta


def diffprivlib(python: str, model: str) -> Peer:
    """Coefficients of diffprivlib's linear or logistic model, from an interpreter that has it."""
    server = subprocess.Popen(
        [python, str(Path(__file__).with_name("diffprivlib_server.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    to, back = server.stdin, server.stdout

    def peer(x: Array, y: Array, epsilon: float, seed: int) -> Array:
        rows = np.column_stack([y, x])
        to.write(json.dumps([model, rows.shape, epsilon, seed]).encode() + b"\n" + rows.tobytes())
        to.flush()
        return np.array(json.loads(back.readline()))

    return peer


def row(errors: dict[str, list[float]], n: int, known: float | None) -> dict[str, str]:
    """One line of a table."""
    digits = 4 if n >= 10_000 else 3
    ratio, error = ratio_of_means(errors["default"], errors["OLS"])
    ours = np.mean(errors["default"])
    others = min(float(np.mean(v)) for k, v in errors.items() if k not in ("OLS", "default"))
    return {
        **{k: summarise(v, digits) if np.mean(v) <= 99 else ">99" for k, v in errors.items()},
        "default/OLS": f"{ratio:.2f} ({error:.2f})",
        "best known": f"{known:g}" if known else "",
        "default/known": f"{ours / known:.2f}" if known else "",
        "default/best other": f"{ours / others:.2f}",
    }


def main() -> None:
    """Run both tables."""
    a = arguments(
        __doc__ or "",
        reps=100,
        diffprivlib="interpreter that can import diffprivlib; see above",
        fits=f"some of {','.join(FITS)}, the default among them",
    )
    fits = a.fits.split(",") if a.fits else list(FITS)
    peer = diffprivlib(a.diffprivlib, "linear") if a.diffprivlib else None
    isotropic = [(1, d, n, e, known) for (d, n, e), known in CELLS.items()]
    conditioned = [(k, d, n, 1.0, known) for (k, d, n), known in CONDITIONED.items()]
    for title, cells in (
        ("Isotropic designs: relative error", isotropic),
        ("Condition numbers, epsilon = 1: prediction-norm error", conditioned),
    ):
        small = [c for c in cells if not a.quick or c[2] <= 10_000]
        rows = []
        for kappa, d, n, epsilon, known in progress(small, len(small), a.quiet):
            reps = REPS[n] * a.reps
            errors = cell((d, n, epsilon, float(kappa)), fits, reps, a.seed, peer)
            place = {"kappa": kappa, "d": d, "n": n, "eps": epsilon, "sets": reps}
            rows.append(place | row(errors, n, known))
        show(title, rows, f"Seeds from {a.seed}; mean (standard error).")


if __name__ == "__main__":
    main()
