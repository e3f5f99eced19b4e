"""Error of sparse regressions in which only the response is private: the settings of Wang & Xu.

    uv run python -m benchmarks.label_only            # --quick: the smallest setting only
    uv run python -m benchmarks.label_only --figures DIR      # their Figure 1, with ours beside it

Covariates are public signs, 10 coefficients are U(0, 1) and scaled to norm 1, errors U(-.05, .05);
the response is declared Numeric(-5, 5, center=0, scale=1). Relative error ||t - theta||; zero
coefficients have error 1. `label-curator-omp` has a curator of the responses (delta = 1e-6), the
others have none. "known" is the smallest mean error measured earlier for any method without a
curator in that cell; "equal" are coefficients that are all alike. Least squares without privacy has
errors below .01 on the true columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import dpstats as dp
from benchmarks.common import Array, arguments, progress, show, summarise
from dpstats.design import PublicDesign
from dpstats.estimators import find
from dpstats.holders import Labels
from dpstats.protocol import Estimator

EPSILONS = (0.5, 1.0, 2.0)
KNOWN = {
    (5_000, 500): (0.75, 0.29, 0.12),
    (20_000, 500): (0.31, 0.12, 0.07),
    (20_000, 2000): (0.36, 0.12, 0.07),
    (50_000, 2000): (0.14, 0.08, 0.04),
}
METHODS: dict[str, dict[str, Any]] = {
    "label-lasso": {},
    "label-lasso, s = 10": {"sparsity": 10},
    "thresholded-ols": {},
    "label-ldp-iht, s = 10": {"sparsity": 10},
    "label-curator-omp": {},
    "label-curator-omp, s = 10": {"sparsity": 10},
}
BOUND = 5.0
# The paper's delta, for Gaussian responses; and that of a curator. Other methods are pure.
DELTAS = {"label-ldp-iht": 1e-3, "label-curator-omp": 1e-6}


class Data:
    """Rows, the truth, and the public design, made once for all methods."""

    def __init__(self, n: int, p: int, s: int, seed: Iterable[int], equal: bool = False) -> None:
        rng = np.random.default_rng(list(seed))
        self.x = 2.0 * rng.integers(0, 2, (n, p), dtype=np.int8) - 1.0
        self.truth = np.zeros(p)
        drawn = np.ones(s) if equal else rng.uniform(0, 1, s)
        self.truth[rng.choice(p, s, replace=False)] = drawn / np.linalg.norm(drawn)
        self.y = self.x @ self.truth + rng.uniform(-0.05, 0.05, n)
        made = PublicDesign.of_arrays(self.x, (-BOUND, BOUND))
        assert made.endog is not None
        self.design = replace(made, endog=replace(made.endog, center=0.0, scale=1.0))

    def error(self, method: str, epsilon: float, seed: int, **options: Any) -> float:
        """Relative error of one private fit."""
        name = method.partition(",")[0]
        curator, delta = name.startswith("label-curator"), DELTAS.get(name, 0.0)
        privacy = dp.LabelOnly(epsilon, delta, curator=curator, large_delta=True)
        estimator: Estimator = find("ols", privacy, name)
        plan = estimator.plan(self.design, privacy, len(self.y), **options)
        holder = Labels(
            self.design.source((self.y, self.x)), self.design, plan, dp.SeededNoise(seed)
        )
        estimate = estimator.fit(holder, self.design, plan)
        standard = self.design.standardization
        params: Array = estimate.params * standard.y_scale / standard.x_scale
        return float(np.linalg.norm(params - self.truth))


def table(n: int, p: int, reps: int, seed: int, equal: bool = False) -> list[dict[str, Any]]:
    """One row for each method, with means and standard errors over data sets."""
    errors: dict[tuple[str, float], list[float]] = {}
    for r in range(reps):
        data = Data(n, p, 10, (seed, n, p, r), equal)
        for method, options in METHODS.items():
            for epsilon in EPSILONS:
                found = data.error(method, epsilon, seed + r, **options)
                errors.setdefault((method, epsilon), []).append(found)
    rows: list[dict[str, Any]] = [
        {"method": m, **{f"eps {e:g}": summarise(errors[m, e]) for e in EPSILONS}} for m in METHODS
    ]
    if not equal:
        known = dict(zip((f"eps {e:g}" for e in EPSILONS), KNOWN[n, p], strict=True))
        rows.append({"method": "known", **known})
    return rows


# What Figure 1 of the paper varies beside n: p at s = 10, eps = 1; s at p = 500; eps at p = 500.
PANELS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "dimension": ("p", (200, 500, 1000)),
    "sparsity": ("s", (5, 10, 20)),
    "privacy": ("epsilon", (0.5, 1.0, 2.0)),
}
SIZES = (2_000, 5_000, 10_000, 20_000)


def figures(folder: Path, reps: int, seed: int, quiet: bool) -> None:
    """Error against n while p, s or epsilon vary: the default, and the paper's method corrected."""
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    cells = [(panel, value, n) for panel, (_, v) in PANELS.items() for value in v for n in SIZES]
    found: dict[tuple[str, Any, int, str], float] = {}
    lines = {"label-lasso": {}, "label-ldp-iht": {"sparsity": 0}}
    for panel, value, n in progress(cells, len(cells), quiet):
        p = value if panel == "dimension" else 500
        s = value if panel == "sparsity" else 10
        epsilon = value if panel == "privacy" else 1.0
        errors: dict[str, list[float]] = {method: [] for method in lines}
        for r in range(reps):
            data = Data(n, p, s, (seed, n, p, s, r))
            for method, options in lines.items():
                sized = {name: s for name in options}
                errors[method].append(data.error(method, epsilon, seed + r, **sized))
        for method, values in errors.items():
            found[panel, value, n, method] = float(np.mean(values))
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), sharey=True)
    for axis, (panel, (symbol, values)) in zip(axes, PANELS.items(), strict=True):
        for color, value in enumerate(values):
            for method, style in (("label-lasso", "o-"), ("label-ldp-iht", "x--")):
                line = [found[panel, value, n, method] for n in SIZES]
                label = f"{method}, {symbol} = {value:g}"
                axis.plot(SIZES, line, style, color=f"C{color}", label=label)
        axis.set(xscale="log", yscale="log", xlabel="n", title=f"{panel} ({symbol})")
        axis.minorticks_off()
        axis.set_xticks(SIZES, [f"{n:,}" for n in SIZES])
        axis.legend(fontsize=6)
    axes[0].set_ylabel("relative error")
    figure.tight_layout()
    figure.savefig(folder / "label_only.svg")
    figure.savefig(folder / "label_only.png", dpi=120)
    rows = [
        {"panel": panel, "value": value, "n": n}
        | {m: f"{found[panel, value, n, m]:.3f}" for m in lines}
        for panel, value, n in cells
    ]
    show("Figure 1", rows, f"Mean relative error over {reps} data sets, seed {seed}.")


def main() -> None:
    """Print the tables, or draw the figure."""
    a = arguments(__doc__ or "", reps=10, figures="folder for the figure, instead of tables")
    if a.figures:
        figures(Path(a.figures), min(a.reps, 5), a.seed, a.quiet)
        return
    cells = [(n, p, False) for n, p in list(KNOWN)[: 1 if a.quick else 4]]
    cells += [] if a.quick else [(20_000, 500, True)]
    for n, p, equal in progress(cells, len(cells), a.quiet):
        title = f"n = {n:,}, p = {p}, s = 10{', equal coefficients' if equal else ''}"
        note = f"Mean relative error (standard error) over {a.reps} data sets; seed {a.seed}."
        show(title, table(n, p, a.reps, a.seed, equal), note)


if __name__ == "__main__":
    main()
