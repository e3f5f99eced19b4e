"""Whole fits of sites or rounds: which errs less, where sites are alike and where they are not.

    uv run python -m benchmarks.ways_to_ask [--reps 60] [--cells 5:1000:0.5,2:300:1] [--quick]

OLS with x ~ N(0, I), |beta| = 1, sigma = 1, declared as in `benchmarks.federated`; K sites of n
rows each, one of them the target, delta 1e-6. *h*: the coefficients of each site, the target's too,
are off by h in a random direction of their own. *far*: every other source is off by 1.5, the rest
are like the target. A cell has the geometric mean, over data sets, of the l2 error of
`combine="blend"` over that of rounds; *balance* is that of the five cases. *own*: the geometric
mean of the error of the target's own fit; *expected*: what `dpstats.federated.choice` expects.

Answers of sites are drawn from a stock of whole fits: errors and covariances of real ones, moved to
the coefficients of a site. Rounds are fits of all rows by one curator at mu / sqrt(K), which they
equal, of sites that are alike; how far the target is from the mean of all sites is added to them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import dpstats as dp
from benchmarks.common import DELTA, arguments, progress, show
from benchmarks.federated import directions, schema, site
from dpstats import estimators
from dpstats.combining import estimate_for
from dpstats.federated import question_for
from dpstats.federated.choice import expected_error
from dpstats.federated.shares import Shares
from dpstats.protocol import Plan
from dpstats.protocol.sites import SiteRecord

Array = NDArray[np.float64]

SITES = (5, 20, 40)
COLUMNS, ROWS, EPSILONS = (1, 2, 5, 20), (200, 300, 500, 1000, 2000), (0.5, 1.0, 2.0)
OFF: dict[str, float] = {"0": 0.0, ".1": 0.1, ".3": 0.3, ".5": 0.5}
FAR = 1.5
BETWEEN = (0.15, 1.2)  # expected errors of the target's own fit, of cells that are looked at
CURATORS = 40  # fits of all rows, at most


class Cell(NamedTuple):
    """Columns, rows a site, and epsilon."""

    d: int
    n: int
    epsilon: float

    def model(self, data: Any) -> Any:
        """Of rows, with all columns."""
        right = " + ".join(f"x{j}" for j in range(1, self.d + 1))
        return dp.ols(f"y ~ {right}", data, schema(self.d))

    def drawn(self, rng: np.random.Generator, rows: int) -> tuple[Any, Array]:
        """Rows, and the coefficients behind them."""
        beta = directions(rng, self.d, 1)[0] / np.sqrt(self.d)
        return self.model(site(rng, rows, beta)), np.r_[0.0, beta]


@functools.cache
def plans(cell: Cell) -> tuple[Plan, dict[int, Plan]]:
    """A site's own, and those of rounds of so many sites."""
    design = cell.model(site(np.random.default_rng(0), 9, np.zeros(cell.d))).design
    alone, privacy = dp.Central(cell.epsilon, DELTA), dp.Federated(cell.epsilon, DELTA, target="s0")
    own = estimators.find("ols", alone).plan(design, alone, cell.n)
    asked = question_for("ols", design, privacy, "rounds", {})
    each = {k: {f"s{i}": cell.n for i in range(k)} for k in SITES}
    return own, {k: Shares.of(replace(asked, rows=r), design).whole for k, r in each.items()}


def stock(cell: Cell, count: int, seed: int) -> tuple[Array, Array]:
    """Errors and covariances of whole fits, shapes (count, d + 1), (count, d + 1, d + 1)."""
    errors, covs = [], []
    for r in range(count):
        rng = np.random.default_rng([seed, *cell[:2], int(10 * cell.epsilon), r])
        model, truth = cell.drawn(rng, cell.n)
        fit = model.fit(dp.Central(cell.epsilon, DELTA), noise=dp.SeededNoise(seed + r))
        errors.append(fit.params.to_numpy() - truth)
        covs.append(fit.cov_params().to_numpy())
    return np.array(errors), np.array(covs)


def together(cell: Cell, sites: int, count: int, seed: int) -> Array:
    """Errors of rounds where sites are alike, shape (count, d + 1)."""
    found = []
    for r in range(count):
        rng = np.random.default_rng([seed, *cell[:2], int(10 * cell.epsilon), sites, r])
        model, truth = cell.drawn(rng, sites * cell.n)
        fit = model.fit(plans(cell)[1][sites].privacy, noise=dp.SeededNoise(seed + r))
        found.append(fit.params.to_numpy() - truth)
    return np.array(found)


def blended(answers: tuple[Array, Array], off: Array, rng: np.random.Generator) -> Array:
    """The default rule's error for the first of sites that are off by `off`, shape (K, d)."""
    errors, covs = answers
    take = rng.integers(len(errors), size=len(off))
    theta = np.c_[np.zeros(len(off)), off] + errors[take]
    sites = [
        SiteRecord(f"s{k}", "answered", "", 1.0, 1.0, DELTA, theta[k], covs[i], covs[i])
        for k, i in enumerate(take)
    ]
    error: Array = estimate_for("s0", sites, "blend").params - np.r_[0.0, off[0]]
    return error


def cases(d: int, sites: int, rng: np.random.Generator) -> Iterator[tuple[str, Array]]:
    """How far the coefficients of sites are off."""
    way = directions(rng, d, sites) / np.sqrt(d)
    yield from ((name, h * way) for name, h in OFF.items())
    yield "far", FAR * way * (np.arange(sites) % 2 == 1)[:, None]


def row(cell: Cell, sites: int, answers: tuple[Array, Array], reps: int, seed: int) -> Any:
    """The errors of one cell."""
    rng, ratios = np.random.default_rng([seed, *cell[:2], sites]), dict[str, list[float]]()
    all_rows = together(cell, sites, min(reps, CURATORS), seed)
    for r in range(reps):
        for name, off in cases(cell.d, sites, rng):
            sums = all_rows[r % len(all_rows)] + np.r_[0.0, off.mean(axis=0) - off[0]]
            one = np.linalg.norm(blended(answers, off, rng)) / np.linalg.norm(sums)
            ratios.setdefault(name, []).append(float(np.log(one)))
    logs = np.array(list(ratios.values())).mean(axis=0)
    own, whole = plans(cell)[0], plans(cell)[1][sites]
    return {
        "d": cell.d,
        "n": cell.n,
        "epsilon": cell.epsilon,
        "sites": sites,
        "expected": f"{expected_error(own):.2f}",
        "own": f"{np.exp(np.log(np.linalg.norm(answers[0], axis=1)).mean()):.2f}",
        "rounds expected": f"{expected_error(whole):.3f}",
        "rounds": f"{np.exp(np.log(np.linalg.norm(all_rows, axis=1)).mean()):.3f}",
        **{name: f"{np.exp(np.mean(v)):.2f}" for name, v in ratios.items()},
        "balance": f"{np.exp(logs.mean()):.2f} ({np.std(logs) / np.sqrt(min(reps, CURATORS)):.2f})",
    }


def asked(text: str | None) -> list[Cell]:
    """Cells that are named, or those of the grid that are near the threshold."""
    if text:
        named = (part.split(":") for part in text.split(","))
        return [Cell(int(d), int(n), float(epsilon)) for d, n, epsilon in named]
    grid = [Cell(*c) for c in itertools.product(COLUMNS, ROWS, EPSILONS)]
    near = {cell: expected_error(plans(cell)[0]) for cell in grid}
    return sorted((c for c in grid if BETWEEN[0] < near[c] < BETWEEN[1]), key=lambda c: near[c])


def main() -> None:
    """Run the table."""
    a = arguments(__doc__ or "", reps=60, cells="d:n:epsilon of some cells")
    cells = asked(a.cells)[: 1 if a.quick else None]
    rows = []
    for cell in progress(cells, len(cells), a.quiet):
        answers = stock(cell, 2 * a.reps, a.seed)
        rows += [row(cell, k, answers, a.reps, a.seed) for k in SITES]
    show(
        "Errors of whole fits, combined, over those of rounds",
        rows,
        f"{a.reps} draws of {2 * a.reps} fits of sites and {min(a.reps, CURATORS)} of all rows, "
        f"seed {a.seed}",
    )


if __name__ == "__main__":
    main()
