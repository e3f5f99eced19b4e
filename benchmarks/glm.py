"""Error and coverage of private logistic and Poisson regression, cell by cell.

    uv run python -m benchmarks.glm                    # both tables
    uv run python -m benchmarks.glm --table accuracy --quick --diffprivlib PYTHON

*Accuracy.* x ~ U(-1, 1)^d without an intercept, ||beta|| = 2.6, delta = 1e-6: relative error
||b - beta|| / ||beta|| of logistic regression. "best known" is the smallest mean error measured
earlier for any private method in that cell. "obj. pert." is objective perturbation (Chaudhuri,
Monteleoni & Sarwate 2011) as diffprivlib calibrates it, pure epsilon-DP, rows clipped at
sqrt(d/3) + 0.4, minimised without regard for what an inexact minimiser does to its guarantee; with
`--diffprivlib` (see `benchmarks.accuracy`) there is a column of diffprivlib itself, told that norm.

*Coverage.* Of 95 % intervals, with an intercept, and their length against non-private ones: for
logistic regression ||beta|| = sqrt(3) and an intercept of -0.5, for Poisson counts
||beta|| = 0.8 and an intercept of 0.7, counts declared in [0, 40].
"""

from __future__ import annotations

import argparse
import math
import sys
import warnings
from typing import Any

import numpy as np
from scipy import optimize

import dpstats as dp
from benchmarks.accuracy import Peer, diffprivlib
from benchmarks.common import (
    DELTA,
    FITS,
    Array,
    coefficients,
    progress,
    ratio_of_means,
    relative,
    show,
    summarise,
)
from dpstats.errors import FeasibilityWarning

NORM = 2.6
# d, n, epsilon: best mean relative error known before.
CELLS: dict[tuple[int, int, float], float | None] = {
    (2, 10_000, 0.1): 0.048,
    (2, 10_000, 0.5): None,
    (2, 10_000, 1.0): None,
    (5, 10_000, 0.1): None,
    (5, 10_000, 0.5): None,
    (5, 10_000, 1.0): 0.037,
    (5, 10_000, 5.0): None,
    (20, 10_000, 0.5): 0.174,
    (20, 10_000, 1.0): 0.113,
    (20, 10_000, 5.0): None,
    (2, 100_000, 0.1): None,
    (5, 100_000, 0.1): None,
    (5, 100_000, 1.0): None,
    (20, 100_000, 0.1): 0.083,
    (20, 100_000, 1.0): 0.024,
}
SIZES = (1_000, 3_000, 10_000, 100_000)
COLUMNS = (5, 20)
EPSILONS = (0.5, 1.0, 5.0)


def logistic(eta: Array) -> Array:
    """Success probability."""
    probability: Array = 1 / (1 + np.exp(-eta))
    return probability


def maximum_likelihood(x: Array, y: Array, family: str) -> tuple[Array, Array]:
    """Non-private coefficients and standard errors, by Newton's method."""
    beta = np.zeros(x.shape[1])
    if family == "poisson":
        beta[0] = math.log(y.mean())
    for _ in range(50):
        mu = logistic(x @ beta) if family == "binomial" else np.exp(x @ beta)
        weight = mu * (1 - mu) if family == "binomial" else mu
        inverse = np.linalg.inv((x * weight[:, None]).T @ x)
        step = inverse @ (x.T @ (y - mu))
        beta = beta + step
        if np.abs(step).max() < 1e-10:
            break
    return beta, np.sqrt(np.diag(inverse))


def objective_perturbation(x: Array, y: Array, epsilon: float, rng: np.random.Generator) -> Array:
    """As diffprivlib 0.6 calibrates it, with regularisation 1."""
    d = x.shape[1]
    radius = math.sqrt(d / 3) + 0.4
    x = x * np.minimum(1, radius / np.linalg.norm(x, axis=1))[:, None]
    left, ridge = epsilon - 2 * math.log(1 + 0.25 * radius), 1.0
    if left <= 0:
        ridge, left = 0.25 * radius / math.expm1(epsilon / 4), epsilon / 2
    noise = rng.normal(size=d)
    noise *= rng.gamma(d, 2 * radius / left) / np.linalg.norm(noise)

    def loss(beta: Array) -> tuple[float, Array]:
        eta = x @ beta
        value = np.logaddexp(0, eta).sum() - y @ eta + ridge / 2 * beta @ beta + noise @ beta
        return float(value), x.T @ (logistic(eta) - y) + ridge * beta + noise

    found: Array = optimize.minimize(loss, np.zeros(d), jac=True, method="L-BFGS-B").x
    return found


def accuracy(
    d: int, n: int, epsilon: float, reps: int, seed: int, peer: Peer | None
) -> dict[str, list[float]]:
    """Relative errors of every method on the same data sets."""
    names = ("MLE", "default", "robust", "dp-gd", "obj. pert.", *(["diffprivlib"] if peer else []))
    errors: dict[str, list[float]] = {k: [] for k in names}
    for r in range(reps):
        rng = np.random.default_rng([seed, d, n, int(1000 * epsilon), r])
        x, beta = rng.uniform(-1, 1, (n, d)), coefficients(d, rng, NORM)
        y = (rng.random(n) < logistic(x @ beta)).astype(float)
        model = dp.Logit(y, x, bounds={"endog": (0, 1), "exog": (-1.0, 1.0)})
        errors["MLE"].append(relative(maximum_likelihood(x, y, "binomial")[0], beta))
        for name in ("default", "robust", "dp-gd"):
            noise = dp.SeededNoise(seed + r)
            fit = model.fit(dp.Central(epsilon, DELTA), noise=noise, **FITS[name])
            errors[name].append(relative(fit.params.to_numpy(), beta))
        found = objective_perturbation(x, y, epsilon, rng)
        errors["obj. pert."].append(relative(found, beta))
        if peer:
            errors["diffprivlib"].append(relative(peer(x, y, epsilon, seed + r), beta))
    return errors


def coverage(
    place: tuple[str, int, int, float], target: str, reps: int, seed: int
) -> dict[str, Any]:
    """Coverage of all coefficients pooled, and the length of intervals."""
    family, d, n, epsilon = place
    hits, length, warned = [], [], False
    top = 1.0 if family == "binomial" else 40.0
    bounds = {"endog": (0.0, top), "exog": [(1.0, 1.0)] + [(-1.0, 1.0)] * (d - 1)}
    for r in range(reps):
        rng = np.random.default_rng([seed, d, n, int(10 * epsilon), len(family), r])
        x = np.column_stack([np.ones(n), rng.uniform(-1, 1, (n, d - 1))])
        if family == "binomial":
            beta = np.r_[-0.5, coefficients(d - 1, rng)]
            y = (rng.random(n) < logistic(x @ beta)).astype(float)
        else:
            beta = np.r_[0.7, coefficients(d - 1, rng, 0.8)]
            y = np.minimum(rng.poisson(np.exp(x @ beta)), top).astype(float)
        model = dp.GLM(y, x, bounds=bounds, family=family)
        noise = dp.SeededNoise(seed + r)
        fit = model.fit(dp.Central(epsilon, DELTA), target=target, noise=noise)
        warned = bool(fit.plan.warnings)
        interval = fit.conf_int().to_numpy()
        hits.append(((interval[:, 0] <= beta) & (beta <= interval[:, 1])).mean())
        length.append(np.median(fit.bse.to_numpy() / maximum_likelihood(x, y, family)[1]))
    se = float(np.std(hits, ddof=1) / math.sqrt(reps))
    rate = float(np.mean(hits))
    inside = 0.93 - 2 * se <= rate <= 0.97 + 2 * se
    return {
        "coverage": f"{rate:.3f} ({se:.3f})",
        "length / MLE": f"{np.median(length):.2f}",
        "plan warned": warned,
        "verdict": "ok" if inside else "warned" if warned else "MISS",
    }


def arguments() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", choices=("accuracy", "coverage", "both"), default="both")
    parser.add_argument("--target", default="mle", help="whose coverage: mle or robust")
    parser.add_argument("--reps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=20_000)
    parser.add_argument("--quick", action="store_true", help="n up to 10,000 only")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument("--diffprivlib", help="interpreter that can import diffprivlib")
    warnings.simplefilter("ignore", FeasibilityWarning)
    return parser.parse_args()


def show_accuracy(a: argparse.Namespace) -> None:
    """The first table."""
    peer = diffprivlib(a.diffprivlib, "logistic") if a.diffprivlib else None
    cells = [(c, known) for c, known in CELLS.items() if not a.quick or c[1] <= 10_000]
    rows = []
    for (d, n, epsilon), known in progress(cells, len(cells), a.quiet):
        reps = a.reps if n <= 10_000 else max(a.reps // 3, 4)
        errors = accuracy(d, n, epsilon, reps, a.seed, peer)
        peers = {k: v for k, v in errors.items() if k not in ("MLE", "default", "robust")}
        best = min(peers.values(), key=np.mean)
        ratio, error = ratio_of_means(errors["default"], best)
        rows.append(
            {"d": d, "n": n, "eps": epsilon}
            | {name: summarise(v, 4) for name, v in errors.items()}
            | {"default/best peer": f"{ratio:.2f} ({error:.2f})"}
            | {"best known": known or "", "data sets": reps}
        )
    note = f"Seeds from {a.seed}; mean relative error (standard error)."
    show("Logistic regression: relative error", rows, note)


def show_coverage(a: argparse.Namespace) -> None:
    """The second table."""
    grid = [
        (family, d, n, epsilon)
        for family in ("binomial", "poisson")
        for d in COLUMNS
        for n in SIZES
        for epsilon in EPSILONS
        if not a.quick or n <= 10_000
    ]
    rows = []
    for family, d, n, epsilon in progress(grid, len(grid), a.quiet):
        reps = a.reps if n <= 10_000 else max(a.reps // 3, 4)
        found = coverage((family, d, n, epsilon), a.target, reps, a.seed)
        rows.append({"family": family, "d": d, "n": n, "eps": epsilon} | found | {"sets": reps})
    note = (
        f"All coefficients pooled, seeds from {a.seed}. ok: within 93-97 % up to two standard "
        "errors; warned: outside, and the plan said so before the fit."
    )
    show("Coverage of 95 % intervals", rows, note)


def main() -> None:
    """Run the tables asked for."""
    a = arguments()
    tables = {"accuracy": show_accuracy, "coverage": show_coverage}
    for name, table in tables.items():
        if a.table in (name, "both"):
            table(a)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
