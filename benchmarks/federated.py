"""Sites that keep their rows: errors and coverage of the rules, whole fits, and what they cost.

    uv run python -m benchmarks.federated

*Rules*: K = 10 sources of 2,000 to 20,000 rows and a target of 2,000, or like them, estimates drawn
with the covariance (1/n + 30 d / n^2) I of a private fit; sources differ from the target by so many
of its
standard errors a coordinate. *Fits*: OLS with x ~ N(0, I), |beta| = 1, sigma = 1, a target and ten
sources of n rows each, epsilon 1, delta 1e-6: five are off by h, five by 1.5, in random directions.
*Rounds*: OLS as in the fits, sites that are all alike. *Sparse*: 5 of 500 columns matter, sources
off by h in these. *Printed*: the methods of Li et al. beside the defaults, in the setting of the
fits at h = .1, and of 3 of 30 columns with four sources that are alike and one off by 1.5.
*Mean*: KV's setting of Li et al., 20 sources, ten off by +-h and ten by +-1.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dpstats as dp
from benchmarks.common import DELTA, arguments, progress, show
from dpstats import federated
from dpstats.combining import RULES, combined
from dpstats.protocol.assisted import bounds

Array = NDArray[np.float64]

K = 10
SIZES = (2e3, 2e4)
FAR = 20.0


def directions(rng: np.random.Generator, d: int, count: int) -> Array:
    """Random directions of length sqrt(d)."""
    u = rng.standard_normal((count, d))
    made: Array = np.sqrt(d) * u / np.linalg.norm(u, axis=1, keepdims=True)
    return made


PATTERNS: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "none": lambda _, d: np.zeros((K, d)),
    "half far": lambda g, d: np.repeat([0.0, FAR], K // 2)[:, None] * directions(g, d, K),
    "half far, rest at 2": lambda g, d: (
        np.repeat([2.0, FAR], K // 2)[:, None] * directions(g, d, K)
    ),
    "all at 1": lambda g, d: directions(g, d, K),
    "all at 2": lambda g, d: 2.0 * directions(g, d, K),
    "one shift of 2": lambda _, d: np.full((K, d), 2.0),
    "one coefficient, 2": lambda _, d: np.tile(2.0 * np.eye(d)[0], (K, 1)),
    "one coefficient, 4": lambda _, d: np.tile(4.0 * np.eye(d)[0], (K, 1)),
}


def rules(d: int, pattern: str, own_rows: float | None, reps: int, seed: int) -> dict[str, Any]:
    """Error of each rule over the target's own, and intervals of the default."""
    squares: dict[str, list[float]] = {name: [] for name in ("own", *RULES)}
    held: dict[str, Array] = {name: np.zeros(d) for name in ("blend", "exchangeable")}
    width = 0.0
    for r in range(reps):
        rng = np.random.default_rng([seed, d, list(PATTERNS).index(pattern), r])
        rows = np.exp(rng.uniform(*np.log(SIZES), K + 1))
        rows[0] = own_rows or rows[0]
        variance = 1 / rows + 30 * d / rows**2
        truth = np.vstack([np.zeros(d), PATTERNS[pattern](rng, d) * np.sqrt(variance[0])])
        theta = truth + np.sqrt(variance)[:, None] * rng.standard_normal(truth.shape)
        cov = variance[:, None, None] * np.eye(d)
        squares["own"].append(float((theta[0] ** 2).sum() / variance[0]))
        for name in RULES:
            made = combined(name, theta, cov)
            squares[name].append(float((made.value**2).sum() / variance[0]))
            if name == "blend":
                assert made.prior is not None
                own_errors, short = np.sqrt(np.diag(cov[0])), np.sqrt(np.diag(made.assumed))
                low, high = bounds(theta[0], own_errors, *made.prior, 0.05).T
                held["blend"] += ((low < 0) & (high > 0)) / reps
                held["exchangeable"] += (np.abs(made.value) < 1.96 * short) / reps
                width += float(np.mean((high - low) / (2 * 1.96 * own_errors))) / reps
    own = np.mean(squares.pop("own"))
    ratios = {name: f"{np.sqrt(np.mean(v) / own):.2f}" for name, v in squares.items()}
    return {
        "d": d,
        "target": "2,000" if own_rows else "like sources",
        "sources": pattern,
        **ratios,
        "blend holds, %": f"{100 * held['blend'].mean():.1f}",
        "first, %": f"{100 * held['blend'][0]:.1f}",
        "least, %": f"{100 * held['blend'].min():.1f}",
        "exchangeable, %": f"{100 * held['exchangeable'].mean():.1f}",
        "width": f"{width:.2f}",
    }


def schema(d: int) -> dp.Schema:
    """Declared as a sane user would."""
    x = {f"x{j}": dp.Numeric(-5, 5, center=0, scale=1) for j in range(1, d + 1)}
    return dp.Schema({"y": dp.Numeric(-10, 10, center=0, scale=1.4), **x})


def site(rng: np.random.Generator, n: int, beta: Array) -> dict[str, Array]:
    """Rows of a linear model."""
    x = rng.standard_normal((n, beta.size))
    columns = {f"x{j + 1}": x[:, j] for j in range(beta.size)}
    return {"y": x @ beta + rng.standard_normal(n), **columns}


def fits(d: int, n: int, h: float, reps: int, seed: int) -> dict[str, Any]:
    """l2 errors of whole fits, and the share of intervals of the default that hold."""
    errors: dict[str, list[float]] = {name: [] for name in ("target alone", *RULES)}
    held, formula = [], "y ~ " + " + ".join(f"x{j}" for j in range(1, d + 1))
    for r in range(reps):
        rng = np.random.default_rng([seed, d, n, r])
        beta = directions(rng, d, 1)[0] / np.sqrt(d)
        off = directions(rng, d, K) / np.sqrt(d) * np.repeat([h, 1.5], K // 2)[:, None]
        data = {"target": site(rng, n, beta)}
        data |= {f"s{k}": site(rng, n, beta + off[k]) for k in range(K)}
        privacy = dp.Federated(1.0, DELTA, target="target")
        fit = dp.ols(formula, data, schema(d)).fit(privacy, noise=dp.SeededNoise(seed + r))
        found: Any = fit
        truth = np.r_[0.0, beta]
        own = found.site("target")["coef"].to_numpy()
        errors["target alone"].append(float(np.linalg.norm(own - truth)))
        theta = np.array([s.params for s in found.estimate.answers])
        cov = np.array([s.cov for s in found.estimate.answers])
        for name in RULES:
            made = combined(name, theta, cov)
            errors[name].append(float(np.linalg.norm(made.value - truth)))
        ends = found.conf_int().to_numpy()
        held.append((ends[:, 0] < truth) & (truth < ends[:, 1]))
    shown = {name: mean(values) for name, values in errors.items()}
    return {"d": d, "n": f"{n:,}", "h": h} | shown | {"holds, %": f"{100 * np.mean(held):.1f}"}


def mean(values: list[float]) -> str:
    """Mean with its standard error."""
    return f"{np.mean(values):.3f} ({np.std(values, ddof=1) / np.sqrt(len(values)):.2g})"


def means(n: int, h: float, reps: int, seed: int) -> dict[str, Any]:
    """Root mean squared errors of private means times 1000."""
    squares: dict[str, list[float]] = {name: [] for name in ("target alone", *RULES)}
    declared = dp.Schema(y=dp.Numeric(-50, 50, scale=1))
    for r in range(reps):
        rng = np.random.default_rng([seed, n, r])
        off = np.r_[0.0, rng.choice([-h, h], 10), rng.choice([-1.0, 1.0], 10)]
        data = {f"s{k}": {"y": rng.normal(0.3 + b, 1, n)} for k, b in enumerate(off)}
        privacy = dp.Federated(1.0, DELTA, target="s0")
        found: Any = dp.mean("y", data, declared).fit(privacy, noise=dp.SeededNoise(seed + r))
        theta = np.array([s.params for s in found.estimate.answers])
        cov = np.array([s.cov for s in found.estimate.answers])
        squares["target alone"].append(float((theta[0, 0] - 0.3) ** 2))
        for name in RULES:
            value = combined(name, theta, cov).value[0]
            squares[name].append(float((value - 0.3) ** 2))
    shown = {name: f"{1e3 * np.sqrt(np.mean(v)):.3g}" for name, v in squares.items()}
    return {"n": n, "h": h} | shown


SMALL = ((5, 5_000, 10, 1.0), (5, 1_000, 20, 1.0), (5, 300, 40, 1.0), (20, 5_000, 10, 1.0))
SMALL += ((20, 2_000, 20, 0.5),)


def rounds(d: int, n: int, sites: int, epsilon: float, reps: int, seed: int) -> dict[str, Any]:
    """l2 errors of sites that are alike: whole fits combined, and one fit of all sites' sums."""
    ways: dict[str, dict[str, str]] = {
        "blend": {"combine": "blend"},
        "rounds": {"method": "rounds"},
        "rounds, robust": {"method": "rounds", "target": "robust"},
    }
    errors: dict[str, list[float]] = {name: [] for name in ways}
    held, formula = [], "y ~ " + " + ".join(f"x{j}" for j in range(1, d + 1))
    model, privacy = None, dp.Federated(epsilon, DELTA, target="s0")
    for r in range(reps):
        rng = np.random.default_rng([seed, d, n, sites, r])
        beta = directions(rng, d, 1)[0] / np.sqrt(d)
        data = {f"s{k}": site(rng, n, beta) for k in range(sites)}
        model, truth = dp.ols(formula, data, schema(d)), np.r_[0.0, beta]
        for name, asked in ways.items():
            fit: Any = model.fit(privacy, noise=dp.SeededNoise(seed + r), **asked)  # type: ignore[arg-type]
            errors[name].append(float(np.linalg.norm(fit.params.to_numpy() - truth)))
            if name == "rounds":
                ends = fit.conf_int().to_numpy()
                held.append((ends[:, 0] < truth) & (truth < ends[:, 1]))
    assert model is not None
    return {
        "d": d,
        "rows a site": f"{n:,}",
        "sites": sites,
        "epsilon": epsilon,
        **{name: mean(values) for name, values in errors.items()},
        "rounds hold, %": f"{100 * np.mean(held):.1f}",
        "default": model.plan(privacy).method,
    }


def sparse(n: int, sites: int, h: float, reps: int, seed: int) -> dict[str, Any]:
    """l2 errors of sparse fits of 500 columns, 5 of which matter: the target's, and averages."""
    d, s = 500, 5
    names = ("target alone", "averaged", "two rounds", "two rounds, robust")
    errors: dict[str, list[float]] = {name: [] for name in names}
    formula = "y ~ " + " + ".join(f"x{j}" for j in range(1, d + 1))
    for r in range(reps):
        rng = np.random.default_rng([seed, n, sites, r])
        beta, off = np.zeros(d), np.zeros((sites, d))
        beta[:s] = 1 / np.sqrt(s)
        off[:, :s] = h * directions(rng, s, sites) / np.sqrt(s)
        data = {"target": site(rng, n, beta)}
        data |= {f"s{k}": site(rng, n, beta + off[k]) for k in range(sites)}
        privacy, noise = dp.Federated(1.0, DELTA, target="target"), dp.SeededNoise(seed + r)
        model = dp.ols(formula, data, schema(d))
        fit = model.fit(privacy, method="averaged-sparse", sparsity=s, noise=noise)
        for name, asked in (("two rounds", {}), ("two rounds, robust", {"target": "robust"})):
            two = model.fit(privacy, method="two-rounds", sparsity=s, noise=noise, **asked)  # type: ignore[arg-type]
            found, place = np.zeros(d), [int(x[1:]) - 1 for x in two.params.index[1:]]
            found[place] = two.params.to_numpy()[1:]
            errors[name].append(float(np.linalg.norm(found - beta)))
        own = dp.ols(formula, data["target"], schema(d)).fit(
            dp.Central(1.0, DELTA), sparsity=s, noise=noise.apart(0)
        )
        for name, one in (("averaged", fit), ("target alone", own)):
            errors[name].append(float(np.linalg.norm(one.params.to_numpy()[1:] - beta)))
    shown = {name: mean(values) for name, values in errors.items()}
    return {"n": f"{n:,}", "sources": sites, "h": h} | shown


def printed(n: int, epsilon: float, reps: int, seed: int) -> dict[str, Any]:
    """l2 errors of the printed method for few columns, and of the default."""
    d, h = 5, 0.1
    ways: dict[str, dict[str, Any]] = {
        "ftl-low-dim": {"method": "ftl-low-dim"},
        "ftl-low-dim, threshold 1": {"method": "ftl-low-dim", "threshold": 1.0},
        "blend": {"combine": "blend"},
    }
    errors: dict[str, list[float]] = {name: [] for name in ways}
    formula = "y ~ " + " + ".join(f"x{j}" for j in range(1, d + 1))
    for r in range(reps):
        rng = np.random.default_rng([seed, d, n, int(epsilon), r])
        beta = directions(rng, d, 1)[0] / np.sqrt(d)
        off = directions(rng, d, K) / np.sqrt(d) * np.repeat([h, 1.5], K // 2)[:, None]
        data = {"target": site(rng, n, beta)}
        data |= {f"s{k}": site(rng, n, beta + off[k]) for k in range(K)}
        privacy, truth = dp.Federated(epsilon, DELTA, target="target"), np.r_[0.0, beta]
        for name, asked in ways.items():
            fit = dp.ols(formula, data, schema(d)).fit(
                privacy, noise=dp.SeededNoise(seed + r), **asked
            )
            errors[name].append(float(np.linalg.norm(fit.params.to_numpy() - truth)))
    return {"n": f"{n:,}", "epsilon": epsilon} | {k: mean(v) for k, v in errors.items()}


def printed_sparse(n: int, reps: int, seed: int) -> dict[str, Any]:
    """l2 errors of the printed method for many columns, and of the default; what was set aside."""
    d, s, sources = 30, 3, 5
    ways: dict[str, dict[str, Any]] = {"ftl-high-dim": {"method": "ftl-high-dim"}, "default": {}}
    errors: dict[str, list[float]] = {name: [] for name in ways}
    formula, aside = "y ~ " + " + ".join(f"x{j}" for j in range(1, d + 1)), 0
    for r in range(reps):
        rng = np.random.default_rng([seed, d, n, r])
        beta, off = np.zeros(d), np.zeros((sources, d))
        beta[:s] = 1 / np.sqrt(s)
        off[-1, :s] = 1.5 * directions(rng, s, 1)[0] / np.sqrt(s)
        data = {"target": site(rng, n, beta)}
        data |= {f"s{k}": site(rng, n, beta + off[k]) for k in range(sources)}
        model, privacy = dp.ols(formula, data, schema(d)), dp.Federated(2.0, DELTA, target="target")
        for name, asked in ways.items():
            fit: Any = model.fit(privacy, sparsity=s, noise=dp.SeededNoise(seed + r), **asked)
            found, kept = np.zeros(d), fit.params.drop("Intercept")
            found[[int(x[1:]) - 1 for x in kept.index]] = kept.to_numpy()
            errors[name].append(float(np.linalg.norm(found - beta)))
            if name == "ftl-high-dim":
                aside += int(fit.sources["status"].iloc[-1] == "set aside")
    shown = {name: mean(values) for name, values in errors.items()}
    return {"n": f"{n:,}"} | shown | {"far one set aside": f"{aside} of {reps}"}


def cost(seed: int) -> list[dict[str, Any]]:
    """Bytes and seconds of one site's answer, against the fit that it is."""
    rows = []
    for d, n in ((5, 3_000), (20, 10_000)):
        rng = np.random.default_rng(seed)
        data = site(rng, n, np.zeros(d))
        formula = "y ~ " + " + ".join(f"x{j}" for j in range(1, d + 1))
        model = dp.ols(formula, data, schema(d))
        asked = federated.question_for(
            "ols", model.design, dp.Federated(1.0, DELTA, target="a"), None, {}
        ).to_bytes()
        model.fit(dp.Central(1.0, DELTA))  # what is imported and cached once
        start = time.perf_counter()
        answer = federated.Site("a", data, schema(d)).answer(asked)
        middle = time.perf_counter()
        model.fit(dp.Central(1.0, DELTA))
        alone = time.perf_counter() - middle
        rows.append(
            {
                "d": d,
                "n": f"{n:,}",
                "question, kB": f"{len(asked) / 1e3:.1f}",
                "answer, kB": f"{len(answer) / 1e3:.1f}",
                "seconds over those of a central fit": f"{(middle - start) / alone:.2f}",
            }
        )
    return rows


def main() -> None:
    """Run the tables."""
    a = arguments(__doc__ or "", reps=200)
    note = f"{a.reps} draws, seed {a.seed}"
    grid = list(itertools.product((5, 20), PATTERNS, (SIZES[0], None)))[: 2 if a.quick else None]
    shown = progress(grid, len(grid), a.quiet)
    show("Rules: error over the target's own", [rules(*g, a.reps, a.seed) for g in shown], note)
    cells = [(5, 3_000), (5, 10_000), (20, 10_000)][: 1 if a.quick else None]
    whole = list(itertools.product(cells, (0.0, 0.1, 0.5)))[: 1 if a.quick else None]
    shown = progress(whole, len(whole), a.quiet)
    count = max(2, a.reps // 12)
    show(
        "Whole fits: l2 error",
        [fits(d, n, h, count, a.seed) for (d, n), h in shown],
        f"{count} data sets, seed {a.seed}",
    )
    grid_of_means = [(1_000, 0.0), (1_000, 0.02), (1_000, 0.1)][: 1 if a.quick else None]
    shown = progress(grid_of_means, len(grid_of_means), a.quiet)
    show(
        "Means: error times 1000",
        [means(n, h, count, a.seed) for n, h in shown],
        f"{count} data sets",
    )
    few = SMALL[: 1 if a.quick else None]
    shown = progress(few, len(few), a.quiet)
    show("Rounds: l2 error", [rounds(*c, count, a.seed) for c in shown], f"{count} data sets")
    wide = ((5_000, 6, 0.0), (5_000, 6, 0.2), (2_000, 21, 0.0))[: 1 if a.quick else None]
    shown = progress(wide, len(wide), a.quiet)
    show("Sparse: l2 error", [sparse(*c, count, a.seed) for c in shown], f"{count} data sets")
    low = ((10_000, 1.0), (100_000, 1.0), (40_000, 3.0))[: 1 if a.quick else None]
    few_sets = max(2, a.reps // 50)
    shown = progress(low, len(low), a.quiet)
    made = [printed(*c, few_sets, a.seed) for c in shown]
    show("The printed method: l2 error", made, f"{few_sets} data sets")
    high = (20_000, 100_000)[: 1 if a.quick else None]
    shown = progress(high, len(high), a.quiet)
    made = [printed_sparse(n, few_sets, a.seed) for n in shown]
    show("The printed method, sparse: l2 error", made, f"{few_sets} data sets")
    show("One site's answer", cost(a.seed), "one fit each")


if __name__ == "__main__":
    main()
