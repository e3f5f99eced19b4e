"""Error of private regressions of which nobody holds the rows: one round, rounds, figures.

    uv run python -m benchmarks.local            # --quick: a few cells; --figures DIR: trends
    uv run python -m benchmarks.local --table coverage

*One round* (the setting of Zhu et al. 2024): standard normal columns, declared in [-4, 4] with
scale 1, three coefficients of both signs that sum to 1 in size, errors of sd 0.5 (or 0.5 t_2.5,
scaled to sd 0.5), responses declared in [-6, 6] with scale 0.8. *Rounds* (Wang & Xu 2019): 50
columns of +-1, declared in [-1.01, 1.01] with scale 1, 5 coefficients of norm 1, errors
U(-0.05, 0.05), responses declared in [-4.5, 4.5] with scale 1. Methods know the number of nonzero
coefficients ("no k": they do not) and what is declared; "in rounds" asks the devices of the first
setting in rounds, without public rows. Relative error ||t - theta|| / ||theta||; zero coefficients
have error 1. Public rows: 10,000. From 100,000 users on, averages of messages are drawn from their
normal limit. "known" is the smallest mean error measured earlier for any private method in that
cell.

*Coverage* of 95 % intervals by `local-moments` and `local-rounds`, all coefficients together: d
columns of mean 0 and variance 1 and an intercept, coefficients of norm 1, errors N(0, 1), all
declared with their scales, columns in [-6, 6].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import dpstats as dp
from benchmarks.common import Array, arguments, progress, relative, show, summarise
from dpstats import estimators
from dpstats.estimators.local.moments import LocalMoments
from dpstats.estimators.local.rounds import LocalRounds
from tests.local import cases
from tests.local.fast import FastDevices, fit

EPSILONS = (1.0, 2.0, 4.0)
PUBLIC = 10_000
MANY = 1_000_000
LIMIT = 100_000  # users from which averages are drawn directly
CELLS = ((10, 10_000), (10, 100_000), (10, MANY), (20, 10_000), (20, 100_000), (20, MANY),
         (50, 100_000), (50, MANY))  # fmt: skip
KNOWN_ONCE = {
    (10, 10_000): (1.0, 0.77, 0.59),
    (10, 100_000): (0.67, 0.33, 0.15),
    (10, MANY): (0.14, 0.08, 0.04),
    (20, 10_000): (1.0, 0.91, 0.55),
    (20, 100_000): (0.60, 0.20, 0.22),
    (20, MANY): (0.21, 0.09, 0.06),
    (50, 100_000): (0.92, 0.74, 0.43),
    (50, MANY): (0.42, 0.19, 0.20),
}
KNOWN_PUBLIC = {
    (10, 10_000): (1.09, 0.50, 0.23),
    (10, 100_000): (0.27, 0.16, 0.07),
    (10, MANY): (0.08, 0.03, 0.02),
    (20, 10_000): (2.1, 1.2, 0.37),
    (20, 100_000): (0.55, 0.16, 0.08),
    (20, MANY): (0.10, 0.06, 0.02),
    (50, 100_000): (0.93, 0.41, 0.14),
    (50, MANY): (0.04, 0.04, 0.05),
}
COVERED = [
    (kind, *setting)
    for setting in ((2, 30_000, 1.0), (3, 20_000, 2.0), (5, 100_000, 2.0), (5, 100_000, 4.0),
                    (8, 200_000, 4.0), (10, 200_000, 2.0), (10, 200_000, 4.0))
    for kind in ("normal", "autoregressive", "uniform", "signs")
]  # fmt: skip
KNOWN_ROUNDS = {10_000: 0.86, 30_000: 0.37, 40_000: 0.30, 100_000: 0.14, 300_000: 0.07, MANY: 0.04}


def coefficients(d: int, s: int, norm: float, rng: np.random.Generator) -> Array:
    """s of d, of both signs and of sizes that differ by a factor of two at most."""
    theta = np.zeros(d)
    sizes = rng.uniform(0.5, 1, s) * rng.choice([-1.0, 1.0], s)
    theta[rng.choice(d, s, replace=False)] = sizes / np.linalg.norm(sizes, norm)
    return theta


def once_data(n: int, d: int, tails: bool, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    theta = coefficients(d, 3, 1, rng)
    x = np.clip(rng.standard_normal((n, d)), -4, 4)
    errors = rng.standard_t(2.5, n) / np.sqrt(5) if tails else rng.standard_normal(n)
    return x, np.clip(x @ theta + 0.5 * errors, -6, 6), theta


def rounds_data(n: int, d: int, s: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    theta = coefficients(d, s, 2, rng)
    x = rng.choice([-1.0, 1.0], (n, d))
    return x, np.clip(x @ theta + rng.uniform(-0.05, 0.05, n), -4.5, 4.5), theta


def model(x: Array, y: Array, reach: float, bound: float, scale: float) -> dp.models.model.Model:
    names = [f"x{j + 1}" for j in range(x.shape[1])]
    table = dict(zip(names, x.T, strict=True)) | {"y": y}
    declared = {name: dp.Numeric(-reach, reach, center=0, scale=1) for name in names}
    schema = dp.Schema({**declared, "y": dp.Numeric(-bound, bound, center=0, scale=scale)})
    return dp.ols(f"y ~ {' + '.join(names)} - 1", table, schema)


def fitted(
    made: dp.models.model.Model, privacy: dp.Local, seed: int, n: int, **options: Any
) -> Array:
    """Coefficients; with very many users from the normal limit of their averages."""
    if n < LIMIT:
        return made.fit(privacy, noise=dp.SeededNoise(seed), **options).params.to_numpy()
    estimator, plan = made._planned(
        privacy,
        options.pop("method", None),
        options.pop("sparsity", None),
        made._with(options.get("public"), privacy, {k: v for k, v in options.items()
                                                     if k != "public"}),
    )  # fmt: skip
    public = options.get("public")
    moments = None if public is None else made._moments(estimator, plan, public)
    block = made.design.source(made._data).block(0, n)
    rng = np.random.default_rng(seed)
    devices = FastDevices(block.x, block.y, plan, rng, moments)
    estimate = estimator.fit(devices, made.design, plan)
    standard = made.design.standardization
    return np.asarray(estimate.params * standard.y_scale / standard.x_scale)


def repeated(
    cells: list[Any], reps: int, seed: int, quiet: bool, run: Callable[[Any, int], dict[str, float]]
) -> dict[Any, dict[str, list[float]]]:
    """Errors by cell and column of the table."""
    found: dict[Any, dict[str, list[float]]] = {}
    tasks = [(cell, r) for cell in cells for r in range(reps)]
    for cell, r in progress(tasks, len(tasks), quiet):
        for name, error in run(cell, seed + r).items():
            found.setdefault(cell, {}).setdefault(name, []).append(error)
    return found


def one_round(cell: tuple[int, int, float], seed: int) -> dict[str, float]:
    d, n, epsilon = cell
    rng = np.random.default_rng([seed, d, n])
    privacy, errors = dp.Local(epsilon), {}
    for tails in (False, True):
        x, y, theta = once_data(n, d, tails, rng)
        made = model(x, y, 4.0, 6.0, 0.8)
        public = {f"x{j + 1}": c for j, c in enumerate(rng.standard_normal((PUBLIC, d)).T)}
        runs: dict[str, dict[str, Any]] = {"default": {"sparsity": 3}}
        if not tails:
            runs["no k"] = {"method": "local-sparse"}
            runs["public x"] = {"sparsity": 3, "public": public}
            runs["in rounds"] = {"sparsity": 3}
            runs["nldp, corrected"] = {"method": "nldp"}
        for name, options in runs.items():
            at = dp.Local(epsilon, 1e-7) if name.startswith("nldp") else privacy
            at = dp.Local(epsilon, interactive=True) if name == "in rounds" else at
            found = fitted(made, at, seed, n, **options)
            errors["heavy tails" if tails else name] = relative(found, theta)
    return errors


def in_rounds(cell: tuple[int, float], seed: int) -> dict[str, float]:
    n, epsilon = cell
    rng = np.random.default_rng([seed, n])
    x, y, theta = rounds_data(n, 50, 5, rng)
    made = model(x, y, 1.01, 4.5, 1.0)
    privacy = dp.Local(epsilon, interactive=True)
    return {
        "default": relative(fitted(made, privacy, seed, n, sparsity=5), theta),
        "one round": relative(fitted(made, dp.Local(epsilon), seed, n, sparsity=5), theta),
        "ldp-iht, corrected": relative(
            fitted(made, privacy, seed, n, method="ldp-iht", sparsity=5), theta
        ),
    }


def covered(cell: tuple[str, int, int, float], seed: int) -> dict[str, float]:
    """Share of the coefficients inside their interval, where there is one."""
    kind, d, n, epsilon = cell
    made, found = cases.design(d, math.sqrt(2)), {}
    rng = np.random.default_rng([seed, d, n])
    truth = cases.coefficients(d, d, rng, order=2) / math.sqrt(2)
    x = cases.columns(kind, n, d, rng)
    y = x @ truth + rng.standard_normal(n) / math.sqrt(2)
    for name, method in (("one round", LocalMoments()), ("rounds", LocalRounds())):
        plan = method.plan(made, dp.Local(epsilon, interactive=name == "rounds"), n)
        estimate = fit(method, made, plan, x, y, rng)[0]
        inside = np.abs(estimate.params - truth) < 1.96 * np.sqrt(np.diag(estimate.cov))
        found[name] = 100 * float(inside.mean())
    return found


def table(
    found: dict[Any, dict[str, list[float]]],
    heads: tuple[str, ...],
    known: Callable[[Any], Any] | None = None,
    digits: int = 2,
) -> list[dict[str, Any]]:
    return [
        {
            **dict(zip(heads, cell, strict=True)),
            **{name: summarise(values, digits) for name, values in columns.items()},
            **({} if known is None else {"known": known(cell)}),
        }
        for cell, columns in found.items()
    ]


def figures(folder: Path, seed: int, reps: int, quiet: bool) -> None:
    """Error against n, p, s and epsilon: default and published method, as the papers plot them."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    usual = {"n": 100_000, "p": 50, "s": 5, "epsilon": 1.0}
    sweeps: dict[str, list[Any]] = {
        "n": [10_000, 30_000, 100_000, 300_000],
        "p": [20, 50, 100, 200],
        "s": [2, 5, 10, 15],
        "epsilon": [0.5, 1.0, 2.0, 4.0],
    }
    methods = {"default (rounds)": {}, "ldp-iht, corrected": {"method": "ldp-iht"}}
    cells = [(sweep, value) for sweep, values in sweeps.items() for value in values]

    def run(cell: tuple[str, Any], task: int) -> dict[str, float]:
        at = {**usual, cell[0]: cell[1]}
        rng = np.random.default_rng([task, at["n"], at["p"], at["s"]])
        x, y, theta = rounds_data(at["n"], at["p"], at["s"], rng)
        made = model(x, y, 1.01, 4.5, 1.0)
        privacy = dp.Local(at["epsilon"], interactive=True)
        return {
            name: relative(fitted(made, privacy, task, at["n"], sparsity=at["s"], **o), theta)
            for name, o in methods.items()
        }

    found = repeated(cells, reps, seed, quiet, run)
    figure, axes = plt.subplots(1, 4, figsize=(14, 3.4), sharey=True, layout="constrained")
    for axis, (sweep, values) in zip(axes, sweeps.items(), strict=True):
        for name in methods:
            errors = np.array([found[sweep, v][name] for v in values])
            bars = errors.std(axis=1, ddof=1) / np.sqrt(reps) if reps > 1 else None
            axis.errorbar(values, errors.mean(axis=1), bars, marker="o", capsize=3, label=name)
        fixed = ", ".join(f"{k} = {v:,g}" for k, v in usual.items() if k != sweep)
        axis.set(xlabel=sweep, title=fixed, xscale="log" if sweep in ("n", "epsilon") else "linear")
        axis.set_xticks(values, [f"{v:,g}" for v in values])
        axis.minorticks_off()
        axis.title.set_fontsize(9)
        axis.axhline(1.0, color="0.7", lw=1, zorder=0)
        axis.set_ylim(0, None)
    axes[0].set_ylabel("relative error")
    axes[-1].legend(frameon=False)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "local_trends.png", dpi=144)
    plt.close(figure)
    show("Error against n, p, s and epsilon", table(found, ("sweep", "value")), "")


def main() -> None:
    assert any("local" in e.theory for e in estimators.ESTIMATORS)
    options = arguments(
        __doc__ or "", reps=8, figures="folder for the figures of trends", table="'coverage'"
    )
    seeds = f"{options.reps} repetitions, seeds from {options.seed}; standard errors in brackets."
    if options.table == "coverage":
        chosen = COVERED[:2] if options.quick else COVERED
        found = repeated(chosen, options.reps, options.seed, options.quiet, covered)
        cells = ("columns", "d", "n", "epsilon")
        show("Coverage, percent", table(found, cells, digits=1), seeds)
        return
    if options.figures:
        figures(Path(options.figures), options.seed, options.reps, options.quiet)
        return
    cells = [(d, n, e) for d, n in (CELLS[:2] if options.quick else CELLS) for e in EPSILONS]
    found = repeated(cells, options.reps, options.seed, options.quiet, one_round)

    def known(cell: tuple[int, int, float]) -> str:
        at = EPSILONS.index(cell[2])
        return f"{KNOWN_ONCE[cell[:2]][at]:.2f}; public {KNOWN_PUBLIC[cell[:2]][at]:.2f}"

    show("One round of messages", table(found, ("d", "n", "epsilon"), known), seeds)
    users = [(n, 1.0) for n in KNOWN_ROUNDS] + [(10_000, 4.0)]
    users = users[:2] if options.quick else users
    found = repeated(users, options.reps, options.seed, options.quiet, in_rounds)
    show(
        "Rounds of messages, p = 50, s = 5",
        table(found, ("n", "epsilon"), lambda c: KNOWN_ROUNDS[c[0]] if c[1] == 1 else 0.09),
        seeds,
    )


if __name__ == "__main__":
    main()
