"""Error of private sparse regressions: the settings of Wang & Gu, one site, and harder ones.

    uv run python -m benchmarks.sparse            # --quick: the small setting only

Wang & Gu's designs: x_ij ~ U(-2, 2), rows scaled to norm at most 2 s, coefficients U(-1, 1) on s
columns; (i) n = d = 1000, s = 10, (ii) n = d = 5000, s = 30. Linear: noise variance 0.1, y declared
in [-10, 10] and [-20, 20]. Logistic: P(y = 1) = 1 / (1 + exp(-x'theta)). |x_ij| is declared within
1.15 and 1.5. One site: d = 500, s = 5, standard normal columns declared in [-4, 4], ||theta|| =
sigma = 1. Relative error ||t - theta|| / ||theta||; zero coefficients have error 1. All methods but
iterative hard thresholding (IHT, with its own refit) are private; they know s and the declared
ranges. "known" is the smallest mean error measured earlier for any private method in that cell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import dpstats as dp
from benchmarks.common import Array, arguments, attempt, progress, relative, show, summarise

METHODS = ("omp", "peel-iht", "two-stage", "noisy-ht", "frank-wolfe", "dp-ight", "dp-iht")
EPSILONS = (2.0, 4.0, 6.0, 8.0, 10.0)
KNOWN = {
    ("ols", "i"): (0.123, 0.057, 0.044, 0.039, 0.040),
    ("ols", "ii"): (0.030, 0.018, 0.016, 0.014, 0.014),
    ("logit", "i"): (0.58, 0.50, 0.48, 0.46, 0.46),
    ("logit", "ii"): (0.29, 0.27, 0.26, 0.26, 0.25),
}
SITES = {5_000: 0.12, 10_000: 0.05, 30_000: 0.02}


class Data(NamedTuple):
    """Rows, what is declared about them, and the truth."""

    x: Array
    y: Array
    truth: Array
    reach: float
    bound: float


def respond(eta: Array, sd: float, model: str, bound: float, rng: np.random.Generator) -> Array:
    """Responses of a linear or a logistic model."""
    if model == "ols":
        return np.clip(eta + sd * rng.standard_normal(eta.size), -bound, bound)
    return (rng.uniform(size=eta.size) < 1 / (1 + np.exp(-eta))).astype(float)


def wang_gu(setting: str, model: str, rng: np.random.Generator) -> Data:
    """Settings (i) and (ii) of Wang & Gu."""
    n, s, reach, bound = (1000, 10, 1.15, 10.0) if setting == "i" else (5000, 30, 1.5, 20.0)
    x = rng.uniform(-2, 2, (n, n))
    x *= np.minimum(1, 2 * s / np.linalg.norm(x, axis=1))[:, None]
    truth = np.zeros(n)
    truth[rng.choice(n, s, replace=False)] = rng.uniform(-1, 1, s)
    y = respond(x @ truth, 0.1**0.5, model, bound, rng)
    return Data(x, y, truth, reach, bound)


def site(n: int, model: str, rng: np.random.Generator) -> Data:
    """Standard normal columns, 5 of 500 matter."""
    x = np.clip(rng.standard_normal((n, 500)), -4, 4)
    truth = np.zeros(500)
    truth[rng.choice(500, 5, replace=False)] = rng.standard_normal(5)
    truth /= np.linalg.norm(truth)
    return Data(x, respond(x @ truth, 1.0, model, 8.0, rng), truth, 4.0, 8.0)


def neighbours(rho: float, tails: bool, rng: np.random.Generator) -> Data:
    """AR(rho) columns; 10 of 1000 matter, among 20 neighbours where rho > 0."""
    n, d, s = 4000, 1000, 10
    x = rng.standard_normal((n, d))
    for j in range(1, d):
        x[:, j] = rho * x[:, j - 1] + np.sqrt(1 - rho**2) * x[:, j]
    x = np.clip(x, -4, 4)
    columns = 200 + rng.choice(20, s, replace=False) if rho else rng.choice(d, s, replace=False)
    truth = np.zeros(d)
    truth[columns] = rng.choice([-1, 1], s) * rng.uniform(0.3, 1, s)
    truth /= np.linalg.norm(truth)
    error = 0.5 * (rng.standard_t(2.5, n) if tails else rng.standard_normal(n))
    return Data(x, np.clip(x @ truth + error, -8, 8), truth, 4.0, 8.0)


def private(
    data: Data,
    model: str,
    epsilon: float,
    delta: float,
    seed: int,
    method: str,
    sparsity: int | tuple[int, ...],
    wider: float = 1.0,
) -> float:
    """Relative error of one private fit."""
    exog = (-data.reach * wider, data.reach * wider)
    bounds = {"exog": exog} | (
        {"endog": (-data.bound * wider, data.bound * wider)} if model == "ols" else {}
    )
    make = dp.OLS if model == "ols" else dp.Logit
    found = make(data.y, data.x, bounds=bounds).fit(
        dp.Central(epsilon, delta, large_delta=True),
        method=method,
        sparsity=sparsity,
        noise=dp.SeededNoise(seed),
    )
    return relative(found.params.to_numpy(), data.truth)


def iht(data: Data, model: str, s: int, steps: int = 30) -> float:
    """Iterative hard thresholding without noise, with a refit; error relative to the truth."""
    x, y = data.x, data.y
    scale = float(np.mean(x[:, :50] ** 2)) * (1.0 if model == "ols" else 0.25)
    b = np.zeros(x.shape[1])

    def residual(coef: Array) -> Array:
        eta = x @ coef
        return y - (eta if model == "ols" else 1 / (1 + np.exp(-eta)))

    for _ in range(steps):
        b = b + 0.7 * x.T @ residual(b) / len(y) / scale
        b[np.argsort(-np.abs(b))[s:]] = 0.0
    on = np.flatnonzero(b)
    for _ in range(50):
        b[on] += 0.7 * x[:, on].T @ residual(b) / len(y) / scale
    return relative(b, data.truth)


def errors_of(
    draw: Callable[[np.random.Generator], Data],
    model: str,
    guarantees: list[tuple[float, float]],
    s: int,
    reps: int,
    seed: int,
) -> dict[tuple[float, float], dict[str, str]]:
    """Errors of every method at every guarantee, all on the same data sets."""
    errors: dict[tuple[float, float], dict[str, list[float]]] = {
        g: {name: [] for name in (*METHODS, "IHT")} for g in guarantees
    }
    for r in range(reps):
        data = draw(np.random.default_rng([seed, r]))
        best = iht(data, model, s)
        for g in guarantees:
            for name in METHODS:
                error = attempt(
                    lambda d=data, g=g, m=name, r=r: private(d, model, *g, seed + r, m, s)
                )
                errors[g][name].append(error)
            errors[g]["IHT"].append(best)
    return {
        g: {name: summarise(values) for name, values in found.items()}
        for g, found in errors.items()
    }


def harder(reps: int, seed: int) -> list[dict[str, Any]]:
    """The default where something is wrong or unknown, at epsilon = 1 and 4, delta = 1e-6."""
    cases: dict[str, tuple[float, bool, int | tuple[int, ...] | None, float]] = {
        "independent": (0.0, False, 10, 1.0),
        "s unknown": (0.0, False, None, 1.0),
        "s one of 5, 10, 20": (0.0, False, (5, 10, 20), 1.0),
        "s = 5 asked for": (0.0, False, 5, 1.0),
        "s = 20 asked for": (0.0, False, 20, 1.0),
        "ranges declared twice as wide": (0.0, False, 10, 2.0),
        "ranges declared half as wide": (0.0, False, 10, 0.5),
        "errors t(2.5)": (0.0, True, 10, 1.0),
        "AR(0.5)": (0.5, False, 10, 1.0),
        "AR(0.8)": (0.8, False, 10, 1.0),
    }
    rows = []
    for title, (rho, tails, sparsity, wider) in cases.items():
        row: dict[str, Any] = {"n = 4000, d = 1000, s = 10": title}
        for epsilon in (1.0, 4.0):
            errors = [
                private(
                    neighbours(rho, tails, np.random.default_rng([seed, r])),
                    "ols",
                    epsilon,
                    1e-6,
                    seed + r,
                    "omp",
                    sparsity,
                    wider,
                )
                for r in range(reps)
            ]
            row[f"eps {epsilon:g}"] = summarise(errors)
            row[f"worst, eps {epsilon:g}"] = f"{max(errors):.2f}"
        rows.append(row)
    return rows


def main() -> None:
    """Run all tables."""
    a = arguments(__doc__ or "", reps=20)
    settings = [("i", 10, a.reps)] + ([] if a.quick else [("ii", 30, max(2, a.reps // 4))])
    guarantees = [(e, delta) for delta in (0.01, 1e-6) for e in EPSILONS]
    runs = [(model, *setting) for model in ("ols", "logit") for setting in settings]
    for model, name, s, reps in progress(runs, len(runs), a.quiet):
        found = errors_of(
            lambda rng, k=name, m=model: wang_gu(k, m, rng), model, guarantees, s, reps, a.seed
        )
        known = dict(zip(guarantees, KNOWN[model, name], strict=False))
        rows = [
            {"delta": g[1], "eps": g[0], **errors, "known": known.get(g, "-")}
            for g, errors in found.items()
        ]
        note = f"Relative error, mean (standard error) over {reps} data sets."
        show(f"Wang & Gu ({name}), {model}", rows, note)
    rows = []
    for n, known_here in list(SITES.items())[: 2 if a.quick else 3]:
        found = errors_of(
            lambda rng, n=n: site(n, "ols", rng), "ols", [(1.0, 1e-6)], 5, a.reps, a.seed
        )
        rows.append({"n": n, **found[1.0, 1e-6], "known": known_here})
    show("One site: d = 500, s = 5, epsilon = 1, delta = 1e-6", rows, "Relative error.")
    show(
        "The default where it is hard: delta = 1e-6",
        harder(a.reps, a.seed),
        "Relative error; zero coefficients have 1.",
    )


if __name__ == "__main__":
    main()
