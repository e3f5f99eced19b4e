"""Rates over sites: slopes of errors in K, n, epsilon and h, and four trust models at one total n.

    uv run python -m benchmarks.rates [--reps 8]

*Slopes*: a target and K sources of n rows that are like it. The slope of the logarithm of the root
mean squared error, between two settings that differ by a factor of about 4 in one of them, beside
those of the two terms of Table 1 of Li et al. (2024) at h = 0: ``sqrt(d/(K n))``, sampling, and
``d/(n eps sqrt(K))``, noise; that of their sum is between. Errors are those of all sites pooled,
whose weights are known, and of the default, which has to find out that sources are alike.
*Heterogeneity*: all sources are off by h in random directions, which the default may use or not.
*Trust models*: Tables 2 to 4, the mean, d = 5 columns, and 3 of 60 columns that matter; the default
method of each trust model on the same rows, cut into ten sites, or one device a row. Without
privacy: the mean, least squares, and least squares on the columns that matter.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dpstats as dp
from benchmarks.common import DELTA, arguments, ols, progress, show, summarise
from benchmarks.federated import directions, schema, site
from dpstats.combining import combined

Array = NDArray[np.float64]

D, SITES, FEW = 5, 16, 4  # columns, and the sources of both settings of K
BASE = (2_000, 1.0)
SETTINGS = (BASE, (4 * BASE[0], BASE[1]), (BASE[0], 4 * BASE[1]))
DISTANCES = (0.0, 0.03, 0.1, 0.3, 1.0)
LOOSE = dp.Schema(y=dp.Numeric(-50, 50, scale=1))


def answers(model: str, n: int, epsilon: float, h: float, rng: Any, seed: int) -> tuple[Array, ...]:
    """Estimates (K + 1, d) and covariances of a target and its sources, and the target's truth."""
    privacy, noise = dp.Federated(epsilon, DELTA, target="s0"), dp.SeededNoise(seed)
    names = [f"s{k}" for k in range(SITES + 1)]
    if model == "mean":
        off = np.r_[0.0, h * rng.choice([-1.0, 1.0], SITES)]
        rows = {name: {"y": rng.normal(o, 1, n)} for name, o in zip(names, off, strict=True)}
        found: Any = dp.mean("y", rows, LOOSE).fit(privacy, noise=noise)
        truth = np.zeros(1)
    else:
        beta = directions(rng, D, 1)[0] / np.sqrt(D)
        off = np.vstack([np.zeros(D), h * directions(rng, D, SITES) / np.sqrt(D)])
        rows = {name: site(rng, n, beta + o) for name, o in zip(names, off, strict=True)}
        formula = "y ~ " + " + ".join(f"x{j}" for j in range(1, D + 1))
        found = dp.ols(formula, rows, schema(D)).fit(privacy, combine="blend", noise=noise)
        truth = np.r_[0.0, beta]
    theta = np.array([s.params for s in found.estimate.answers])
    return theta, np.array([s.cov for s in found.estimate.answers]), truth


def squares(
    model: str, setting: tuple[int, float], h: float, reps: int, seed: int
) -> dict[tuple[str, int], Array]:
    """Squared errors by rule and number of sources, one for each data set."""
    made: dict[tuple[str, int], list[float]] = {}
    for r in range(reps):
        rng = np.random.default_rng([seed, setting[0], int(10 * setting[1]), int(100 * h), r])
        theta, cov, truth = answers(model, *setting, h, rng, seed + r)
        made.setdefault(("target", 0), []).append(float(((theta[0] - truth) ** 2).sum()))
        for rule in ("pool", "blend"):
            for count in (FEW, SITES):
                value = combined(rule, theta[: count + 1], cov[: count + 1]).value
                made.setdefault((rule, count), []).append(float(((value - truth) ** 2).sum()))
    return {key: np.array(values) for key, values in made.items()}


def slopes(model: str, reps: int, seed: int) -> list[dict[str, Any]]:
    """Measured slopes of each rule, and the printed ones."""
    found = {at: squares(model, at, 0.0, reps, seed) for at in SETTINGS}
    pairs = {
        "K": ((BASE, FEW), (BASE, SITES), (SITES + 1) / (FEW + 1)),
        "n": ((BASE, SITES), (SETTINGS[1], SITES), 4.0),
        "epsilon": ((BASE, SITES), (SETTINGS[2], SITES), 4.0),
    }
    printed = {"K": ("-0.5", "-0.5"), "n": ("-0.5", "-1"), "epsilon": ("0", "-1")}
    rows = []
    for name, ((first, a), (second, b), factor) in pairs.items():
        shown: dict[str, Any] = {"problem": model, "in": name}
        for rule in ("pool", "blend"):
            shown[rule] = _slope(found[first][rule, a], found[second][rule, b], factor)
        sampling, noise = printed[name]
        rows.append({**shown, "Table 1, sampling": sampling, "noise": noise})
    return rows


def _slope(first: Array, second: Array, factor: float) -> str:
    """Of root mean squared errors, with its standard error (delta method; same data sets apart)."""
    slope = 0.5 * math.log(second.mean() / first.mean()) / math.log(factor)
    spread = [float(x.std(ddof=1) / x.mean()) / math.sqrt(x.size) for x in (first, second)]
    return f"{slope:.2f} ({0.5 * math.hypot(*spread) / math.log(factor):.2f})"


def heterogeneity(model: str, reps: int, seed: int) -> list[dict[str, Any]]:
    """Root mean squared errors as sources move away from the target."""
    rows = []
    for h in DISTANCES:
        found = squares(model, BASE, h, reps, seed)
        kinds = {"target": ("target", 0), "pool": ("pool", SITES), "blend": ("blend", SITES)}
        errors = {name: f"{math.sqrt(found[key].mean()):.3f}" for name, key in kinds.items()}
        rows.append({"problem": model, "h": h, **errors})
    return rows


def trust(problem: str, total: int, reps: int, seed: int) -> dict[str, Any]:
    """l2 errors of four trust models on the same rows."""
    models: dict[str, Any] = {
        "central": dp.Central(1.0, DELTA),
        "ten sites": dp.Federated(1.0, DELTA, target="s0"),
        "local": dp.Local(1.0),
    }
    d, s = {"mean": (0, None), "5 columns": (5, None), "3 of 60 columns": (60, 3)}[problem]
    errors: dict[str, list[float]] = {name: [] for name in ("none", *models)}
    for r in range(reps):
        rng = np.random.default_rng([seed, total, d, r])
        beta = np.zeros(d)
        beta[: s or d] = 1 / math.sqrt(s or max(d, 1))
        rows = site(rng, total, beta) if d else {"y": rng.normal(0.3, 1, total)}
        truth = np.r_[0.0, beta] if d else np.array([0.3])
        names = ["Intercept", *(f"x{j + 1}" for j in range(d))]
        x = np.column_stack([np.ones(total), *(rows[f"x{j + 1}"] for j in range(s or d))])
        own = np.zeros(truth.size)
        own[: x.shape[1]] = ols(x, rows["y"])
        errors["none"].append(float(np.linalg.norm(own - truth)))
        parts = {f"s{k}": {name: column[k::10] for name, column in rows.items()} for k in range(10)}
        formula = "y ~ " + " + ".join(f"x{j + 1}" for j in range(d))
        for name, privacy in models.items():
            data = parts if name == "ten sites" else rows
            model = dp.ols(formula, data, schema(d)) if d else dp.mean("y", data, LOOSE)
            asked = {"sparsity": s} if s else {}
            fit: Any = model.fit(privacy, noise=dp.SeededNoise(seed + r), **asked)
            found = fit.params.reindex(names, fill_value=0.0) if d else fit.params  # some choose
            errors[name].append(float(np.linalg.norm(found.to_numpy() - truth)))
    shown = {name: summarise(values) for name, values in errors.items()}
    return {"problem": problem, "rows in all": f"{total:,}", **shown}


def main() -> None:
    """Run the tables."""
    a = arguments(__doc__ or "", reps=8)
    note = f"{a.reps} data sets, seed {a.seed}; {SITES} sources but where K is {FEW}"
    problems = ["mean", "ols"][: 1 if a.quick else None]
    rows = [
        r for p in progress(problems, len(problems), a.quiet) for r in slopes(p, a.reps, a.seed)
    ]
    show("Slopes", rows, f"{note}; n = {BASE[0]:,}, epsilon = {BASE[1]:g} and four times that")
    rows = [r for p in problems for r in heterogeneity(p, a.reps, a.seed)]
    show("Root mean squared error against h", rows, note)
    cells = [("mean", 20_000), ("5 columns", 40_000), ("3 of 60 columns", 40_000)]
    cells = cells[: 1 if a.quick else None]
    made = [trust(*c, a.reps, a.seed) for c in progress(cells, len(cells), a.quiet)]
    show("Four trust models", made, f"{a.reps} data sets, epsilon 1; all rows of the same law")


if __name__ == "__main__":
    main()
