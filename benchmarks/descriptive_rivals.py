"""Descriptions of one column by dpstats, diffprivlib and OpenDP: errors and coverage.

uv run python -m benchmarks.descriptive_rivals [--reps 40] [--seed S] [--diffprivlib PYTHON]

Normal columns of standard deviation 1, in a range of 8 standard deviations and one 1,000 times as
wide; epsilon 1. dpstats at delta 0 and at 1e-6; diffprivlib and OpenDP have delta 0. Of OpenDP:
quantiles by noisy scores of 1,024 candidates over the range, a third of epsilon each; sums and
counts of values held to the range, with Laplace noise. Neighbours replace one row; diffprivlib's
histogram is for one that is added or removed, as is the column of dpstats beside it. Errors are
root mean squared (of a histogram, of the counts of 20 bins), with Monte Carlo standard errors.
`benchmarks.accuracy` says how to make an interpreter for diffprivlib.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

import dpstats as dp
from benchmarks.common import Array
from dpstats.mechanisms.noise import SeededNoise

__all__ = ["main"]

LEVELS = np.array([0.25, 0.5, 0.75])
TRUTH = {
    "quartiles": stats.norm.ppf(LEVELS),
    "mean": np.zeros(1),
    "std": np.ones(1),
}
BINS = 20
Answer = tuple[Array, Array | None]  # estimates, and intervals
Rival = Callable[[str, Array, tuple[float, float], int], Answer | None]


def ours(privacy: Any) -> Rival:
    """dpstats under a guarantee; nothing where it has no method."""

    def fitted(task: str, y: Array, ends: tuple[float, float], seed: int) -> Answer | None:
        schema, data = dp.Schema(y=dp.Numeric(*ends)), {"y": y}
        model = {
            "quartiles": lambda: dp.quantile("y", data, schema),
            "mean": lambda: dp.mean("y", data, schema),
            "std": lambda: dp.variance("y", data, schema),
            "histogram": lambda: dp.histogram("y", data, schema, bins=BINS),
        }[task]()
        if task == "std" and privacy.delta == 0:
            return None
        found = model.fit(privacy, noise=SeededNoise(seed))
        if task == "histogram":
            return found.counts, None
        chosen = [2] if task == "std" else slice(None)
        return found.params.to_numpy()[chosen], found.conf_int().to_numpy()[chosen]

    return fitted


def opendp(task: str, y: Array, ends: tuple[float, float], seed: int) -> Answer | None:
    """OpenDP's measurements of the same; noise is its own."""
    import opendp.prelude as od

    od.enable_features("contrib")
    n, rows = y.size, y.tolist()
    space = (
        od.vector_domain(od.atom_domain(T=float, nan=False), size=n),
        od.symmetric_distance(),
    )
    if task == "quartiles":
        candidates = np.linspace(*ends, 1024).tolist()
        found = []
        for q in LEVELS:
            scores = space >> od.t.then_quantile_score_candidates(candidates, float(q))
            noisy = od.binary_search_chain(
                lambda s, scores=scores: (
                    scores >> od.m.then_noisy_max(od.max_divergence(), s, negate=True)
                ),
                2,
                1 / 3,
            )
            found.append(candidates[noisy(rows)])
        return np.array(found), None
    if task == "mean":
        held = space >> od.t.then_clamp(ends) >> od.t.then_mean()
        return np.array(
            [od.binary_search_chain(lambda s: held >> od.m.then_laplace(s), 2, 1.0)(rows)]
        ), None
    if task == "histogram":
        edges = np.linspace(*ends, BINS + 1)
        cells = np.clip(np.searchsorted(edges[1:-1], y), 0, BINS - 1).tolist()
        whole = (od.vector_domain(od.atom_domain(T=int), size=n), od.symmetric_distance())
        counts = whole >> od.t.then_count_by_categories(list(range(BINS)), null_category=False)
        noisy = od.binary_search_chain(lambda s: counts >> od.m.then_laplace(s), 2, 1.0)
        return np.array(noisy(cells), dtype=np.float64), None
    return None


def diffprivlib(python: str) -> Rival:
    """diffprivlib's tools, from an interpreter that has it."""
    server = subprocess.Popen(
        [python, str(Path(__file__).with_name("diffprivlib_server.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    to, back = server.stdin, server.stdout
    assert to is not None
    assert back is not None

    def answered(task: str, y: Array, ends: tuple[float, float], seed: int) -> Answer:
        to.write(json.dumps([task, [y.size, 1], 1.0, seed, *ends]).encode() + b"\n" + y.tobytes())
        to.flush()
        return np.array(json.loads(back.readline())), None

    return answered


def cell(rival: Rival, task: str, n: int, wide: float, reps: int, seed: int) -> tuple[str, str]:
    """Error with its Monte Carlo error, and coverage."""
    ends, squares, held = (-4.0 * wide, 4.0 * wide), [], []
    for r in range(reps):
        y = np.random.default_rng([seed, n, r]).normal(size=n)
        answer = rival(task, y, ends, 1000 * seed + r)
        if answer is None:
            return "-", "-"
        found, intervals = answer
        edges = np.linspace(*ends, BINS + 1)
        truth = np.histogram(y, edges)[0] if task == "histogram" else TRUTH[task]
        squares.append(float(np.mean((found - truth) ** 2)))
        if intervals is not None:
            held.append(np.mean((intervals[:, 0] <= truth) & (truth <= intervals[:, 1])))
    error = np.sqrt(np.mean(squares))
    se = np.std(squares) / np.sqrt(reps) / (2 * error)
    return f"{error:.3g} ({se:.1g})", f"{np.mean(held):.3f}" if held else "-"


def main() -> None:
    """One line for each task, number of rows and range."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--diffprivlib", help="interpreter that can import diffprivlib")
    a = parser.parse_args()
    seed = np.random.SeedSequence(a.seed).generate_state(1)[0] if a.seed is None else a.seed
    warnings.simplefilter("ignore")
    lines = []
    for task in ("quartiles", "mean", "std", "histogram"):
        for n in (500, 2_000, 20_000):
            added = dp.Central(1.0, neighbors="add-remove", rows=n)
            rivals: dict[str, Rival] = {
                "dpstats": ours(dp.Central(1.0)),
                "dpstats, delta": ours(dp.Central(1.0, 1e-6)),
                "OpenDP": opendp,
            }
            if task == "histogram":
                rivals["dpstats, add-remove"] = ours(added)
            if a.diffprivlib:
                rivals["diffprivlib"] = diffprivlib(a.diffprivlib)
            for wide in (1, 1000):
                line = {"task": task, "n": n, "range": f"{8 * wide:,} sd"}
                for name, rival in rivals.items():
                    error, coverage = cell(rival, task, n, wide, a.reps, int(seed) % 2**20)
                    line[name] = error
                    if coverage != "-":
                        line[f"{name}: cover"] = coverage
                lines.append(line)
                print(line, flush=True)
    print(f"seed {seed}, {a.reps} columns each\n")
    print(pd.DataFrame(lines).fillna("-").to_markdown(index=False))


if __name__ == "__main__":
    main()
