"""Error and coverage of private means.

    uv run python -m benchmarks.mean

delta = 1e-6. Accuracy: y ~ N(0.3, 1), declared range [-50, 50], scale 1 declared unless stated;
root mean squared error times 1000. "known" is the noisy truncated mean measured earlier with
known sigma. "naive" is Laplace noise on the mean of the declared range. Coverage: 95 % intervals
of the default method, scales declared; (w) where the plan warns.
"""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import DELTA, arguments, progress, show
from dpstats.design import DeclaredDesign
from dpstats.estimators.central.descriptive.mean import ClippedMean
from dpstats.estimators.central.published.karwa_vadhan import KarwaVadhan
from dpstats.holders import Curator
from dpstats.mechanisms.noise import SeededNoise
from dpstats.privacy import Central
from dpstats.protocol import Plan
from dpstats.schema import Numeric, Schema

Array = NDArray[np.float64]

WIDE = Numeric(-50, 50, scale=1)
# n, epsilon: error times 1000 known before, for sigma known.
ACCURACY: list[tuple[int, float, float]] = [
    (200, 1.0, 700.0),
    (1_000, 0.1, math.nan),
    (1_000, 1.0, 34.0),
    (1_000, 5.0, math.nan),
    (5_000, 0.1, math.nan),
    (5_000, 1.0, 15.6),
    (100_000, 0.1, math.nan),
    (100_000, 1.0, math.nan),
]
# Law, declaration, mean.
SHAPES: dict[str, tuple[Any, Numeric, float]] = {
    "N(.3, 1)": (lambda g, n: g.normal(0.3, 1, n), WIDE, 0.3),
    "N(17.3, 1), range 1000": (
        lambda g, n: g.normal(17.3, 1, n),
        Numeric(-500, 500, scale=1),
        17.3,
    ),
    "N(.3, 1), no scale": (lambda g, n: g.normal(0.3, 1, n), Numeric(-50, 50), 0.3),
    "exponential": (lambda g, n: g.exponential(1, n), Numeric(0, 20, scale=1), 1.0),
    "exponential, no scale": (lambda g, n: g.exponential(1, n), Numeric(0, 20), 1.0),
    "log-normal(.5)": (
        lambda g, n: np.exp(0.5 * g.normal(size=n)),
        Numeric(0, 50, scale=0.6),
        math.exp(0.125),
    ),
    "log-normal(1)": (
        lambda g, n: np.exp(g.normal(size=n)),
        Numeric(0, 200, scale=2),
        math.exp(0.5),
    ),
    "t(4)": (lambda g, n: g.standard_t(4, n), Numeric(-100, 100, scale=1.4), 0.0),
    "0/1, p = .3": (lambda g, n: (g.uniform(size=n) < 0.3) * 1.0, Numeric(0, 1), 0.3),
    "0/1, p = .05": (lambda g, n: (g.uniform(size=n) < 0.05) * 1.0, Numeric(0, 1), 0.05),
    "constant": (lambda g, n: np.full(n, 3.3), Numeric(0, 10), 3.3),
    "|N(0, 1)|": (
        lambda g, n: np.abs(g.normal(size=n)),
        Numeric(0, 100, scale=0.6),
        math.sqrt(2 / math.pi),
    ),
    "two groups, no scale": (
        lambda g, n: np.where(g.uniform(size=n) < 0.2, 30.0, 0.0) + g.normal(size=n),
        Numeric(-50, 50),
        6.0,
    ),
}
COVERAGE = [(200, 1.0), (200, 5.0), (1_000, 0.5), (1_000, 1.0), (1_000, 5.0), (5_000, 0.1)]
COVERAGE += [(5_000, 1.0), (20_000, 0.1), (20_000, 1.0), (100_000, 0.1), (100_000, 1.0)]


def fit(method: Any, declared: Numeric, y: Array, epsilon: float, seed: int) -> Any:
    """Mean, its standard error, and the plan."""
    design = DeclaredDesign.from_formula("y ~ 1", Schema(y=declared))
    plan: Plan = method.plan(design, Central(epsilon, DELTA), y.size)
    holder = Curator(design.source({"y": y}), design, plan, SeededNoise(seed))
    estimate = method.fit(holder, design, plan)
    mean, variance = design.standardization.to_user(estimate.params, estimate.cov)
    return float(mean[0]), math.sqrt(variance[0, 0]), plan


def rmse(errors: list[float]) -> str:
    """Root mean squared error times 1000, with its standard error."""
    squares = np.square(errors)
    root = math.sqrt(squares.mean())
    deviation = squares.std(ddof=1) / math.sqrt(squares.size) / (2 * root)
    return f"{1e3 * root:.3g} ({1e3 * deviation:.1g})"


def accuracy(n: int, epsilon: float, known: float, reps: int, seed: int) -> dict[str, Any]:
    """One row: errors of each method on the same data sets."""
    tasks = {
        "clipped": (ClippedMean(), WIDE),
        "clipped, no scale": (ClippedMean(), Numeric(-50, 50)),
        "karwa-vadhan": (KarwaVadhan(), WIDE),
    }
    errors: dict[str, list[float]] = {name: [] for name in ("non-private", *tasks, "naive")}
    for r in range(reps):
        rng = np.random.default_rng([seed, n, r])
        y = rng.normal(0.3, 1, n)
        errors["non-private"].append(float(y.mean()) - 0.3)
        errors["naive"].append(float(y.mean() + rng.laplace(0, 100 / (n * epsilon))) - 0.3)
        for name, (method, declared) in tasks.items():
            errors[name].append(fit(method, declared, y, epsilon, r)[0] - 0.3)
    shown = {name: rmse(values) for name, values in errors.items()}
    return {"n": n, "eps": epsilon} | shown | {"known": known}


def coverage(shape: str, reps: int, seed: int, cells: list[tuple[int, float]]) -> dict[str, Any]:
    """One row: share of intervals that cover, in percent."""
    draw, declared, mean = SHAPES[shape]
    row: dict[str, Any] = {"law": shape}
    for n, epsilon in cells:
        count = reps if n <= 5_000 else max(reps // 3, 2)
        hits, warned = 0, False
        for r in range(count):
            rng = np.random.default_rng([seed, zlib.crc32(shape.encode()), n, r])
            estimate, se, plan = fit(ClippedMean(), declared, draw(rng, n), epsilon, r)
            hits += abs(estimate - mean) <= 1.96 * se
            warned = bool(plan.warnings)
        row[f"{n:,} eps {epsilon:g}"] = f"{100 * hits / count:.1f}{' (w)' if warned else ''}"
    return row


def main() -> None:
    """Run the tables."""
    a = arguments(__doc__ or "", reps=1000)
    grid = ACCURACY[2:3] if a.quick else ACCURACY
    cells = COVERAGE[3:4] if a.quick else COVERAGE
    rows = [
        accuracy(n, epsilon, known, a.reps, a.seed)
        for n, epsilon, known in progress(grid, len(grid), a.quiet)
    ]
    title = "Root mean squared error x 1000 (standard error) of a normal mean"
    show(title, rows, f"{a.reps} data sets per row, seed {a.seed}, delta {DELTA:g}.")
    rows = [
        coverage(shape, a.reps, a.seed, cells) for shape in progress(SHAPES, len(SHAPES), a.quiet)
    ]
    show(
        "Coverage of 95 % intervals, percent",
        rows,
        f"{a.reps} data sets per cell (a third above n = 5,000), seed {a.seed}, delta {DELTA:g}; "
        f"standard error {100 * math.sqrt(0.95 * 0.05 / a.reps):.1f}, (w): the plan warns.",
    )


if __name__ == "__main__":
    main()
