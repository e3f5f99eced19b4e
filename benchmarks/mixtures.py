"""Error and coverage of private normal mixtures.

    uv run python -m benchmarks.mixtures [--coverage] [--reps 12] [--first 0] [--only NAME]

epsilon = 1, delta = 1e-6, every column declared Numeric(-10, 10) without a scale, or five times as
wide where the name of a setting says so, on the same tables. Error: root mean
square over components and columns of the means, in units of which covariances have eigenvalues
between 0.25 and 2.2, components paired by their means; a fit fails if it is above 0.5. Means are
drawn so that the smallest distance of two is as stated. "non-private" is EM on the rows from the
truth. Coverage: of 95 % intervals, over all parameters, of fits that give intervals.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import dpstats as dp
from dpstats.families.mixtures import NormalMixture

Array = NDArray[np.float64]

WIDE = ", range of 50"
# name: columns, components, least distance of means, shape, rows
ACCURACY: dict[str, tuple[int, int, float, str, int]] = {
    "d2 k3 5k": (2, 3, 4.0, "full", 5_000),
    "d2 k3 20k": (2, 3, 4.0, "full", 20_000),
    "d2 k5 20k": (2, 5, 4.5, "full", 20_000),
    "d5 k4 5k": (5, 4, 4.0, "full", 5_000),
    "d5 k4 20k": (5, 4, 4.0, "full", 20_000),
    "d10 k2 5k": (10, 2, 3.0, "spherical", 5_000),
    "d10 k5 20k": (10, 5, 5.0, "full", 20_000),
}
_PLANE = np.array([[[1, 0.4], [0.4, 0.8]], [[0.6, -0.2], [-0.2, 1]], [[1, 0], [0, 0.5]]])
# name: mixture, shape, law of errors, rows
COVERAGE: dict[str, tuple[NormalMixture, str, str, int]] = {
    "plane, an overlapping pair": (
        NormalMixture(
            np.array([0.5, 0.3, 0.2]), np.array([[0, 0], [3.2, 1], [-1, 4]]) * 1.0, _PLANE
        ),
        "full",
        "normal",
        5_000,
    ),
    "weights .7 .2 .1, distance 3": (
        NormalMixture(
            np.array([0.7, 0.2, 0.1]),
            np.array([[0, 0], [3, 0], [0, 3]]) * 1.0,
            np.stack([np.eye(2)] * 3),
        ),
        "full",
        "normal",
        20_000,
    ),
    "weights .4 .35 .25, distance 3": (
        NormalMixture(
            np.array([0.4, 0.35, 0.25]),
            np.array([[0, 0], [3, 0], [0, 3]]) * 1.0,
            np.stack([np.eye(2)] * 3),
        ),
        "full",
        "normal",
        20_000,
    ),
    "d5 spherical, distance 3": (
        NormalMixture(np.array([0.6, 0.4]), 3.0 * np.eye(5)[[1, 0]], np.stack([np.eye(5)] * 2)),
        "spherical",
        "normal",
        5_000,
    ),
    "plane, errors of t(4)": (
        NormalMixture(
            np.array([0.5, 0.3, 0.2]),
            np.array([[0, 0], [5, 1], [0, 5]]) * 1.0,
            np.stack([np.eye(2)] * 3),
        ),
        "full",
        "t",
        10_000,
    ),
    "plane, uniform errors": (
        NormalMixture(
            np.array([0.5, 0.3, 0.2]),
            np.array([[0, 0], [5, 1], [0, 5]]) * 1.0,
            np.stack([np.eye(2)] * 3),
        ),
        "full",
        "uniform",
        10_000,
    ),
}


def drawn(d: int, k: int, apart: float, shape: str, rng: np.random.Generator) -> NormalMixture:
    """A mixture in the box whose means are at least so far apart."""
    while True:
        means = rng.normal(size=(k, d)) * apart * (0.8 if d > 3 else 1.1)
        distances = np.linalg.norm(means[:, None] - means, axis=2) + 1e9 * np.eye(k)
        if distances.min() > apart and np.abs(means).max() < 7.5:
            break
    weights = np.maximum(rng.dirichlet(np.full(k, 8.0)), 0.5 / k)
    covariances = np.stack([np.eye(d)] * k)
    if shape == "full":
        for j in range(k):
            turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
            covariances[j] = (turn * np.exp(rng.uniform(-0.7, 0.4, d))) @ turn.T
    return NormalMixture(weights / weights.sum(), means, covariances)


def rows(mixture: NormalMixture, n: int, rng: np.random.Generator, errors: str = "normal") -> Array:
    """Rows of a mixture whose errors have that law, of variance 1 where they are normal."""
    chosen = rng.choice(mixture.k, n, p=mixture.weights)
    e = rng.normal(size=(n, mixture.d))
    if errors == "t":
        e /= np.sqrt(rng.chisquare(4, n) / 4)[:, None]
    if errors == "uniform":
        e = rng.uniform(-np.sqrt(3), np.sqrt(3), e.shape)
    return mixture.means[chosen] + np.einsum("nij,nj->ni", mixture.roots[chosen], e)


def fitted(x: Array, k: int, shape: str, seed: int, end: float = 10.0) -> Any:
    """The private fit."""
    table = pd.DataFrame(x, columns=[f"x{j}" for j in range(x.shape[1])])
    schema = dp.Schema({name: dp.Numeric(-end, end) for name in table})
    model = dp.gaussian_mixture("~ .", table, schema, components=k, covariance=shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(dp.Central(1.0, 1e-6), noise=dp.SeededNoise(seed))


def likeliest(x: Array, mixture: NormalMixture, shape: str) -> NormalMixture:
    """EM on the rows, without privacy, from the truth."""
    for _ in range(40):
        r = mixture.responsibilities(x)
        sizes = r.sum(axis=0)
        means = r.T @ x / sizes[:, None]
        covs = np.array(
            [((x - m).T * w) @ (x - m) / w.sum() for m, w in zip(means, r.T, strict=True)]
        )
        if shape == "spherical":
            covs = np.trace(covs, axis1=1, axis2=2)[:, None, None] / len(x[0]) * np.eye(len(x[0]))
        mixture = NormalMixture(sizes / len(x), means, covs)
    return mixture


def paired(means: Array, truth: NormalMixture) -> NDArray[np.intp]:
    """For each true component the one that was found for it."""
    from scipy.optimize import linear_sum_assignment

    squares = ((truth.means[:, None] - means) ** 2).sum(axis=2)
    return np.asarray(linear_sum_assignment(squares)[1])


def error(means: Array, truth: NormalMixture) -> float:
    """Root mean square of the errors of means."""
    return float(np.sqrt(np.mean((means[paired(means, truth)] - truth.means) ** 2)))


def accuracy(name: str, reps: int, first: int) -> str:
    """A line of the table."""
    d, k, apart, shape, n = ACCURACY[name.removesuffix(WIDE)]
    end = 50.0 if name.endswith(WIDE) else 10.0
    found, without, seconds = [], [], []
    for seed in range(first, first + reps):
        rng = np.random.default_rng([d, k, n, 70_000 + seed])
        truth = drawn(d, k, apart, shape, rng)
        x = rows(truth, n, rng)
        start = time.process_time()
        found.append(error(fitted(x, k, shape, seed, end).estimate.means, truth))
        seconds.append(time.process_time() - start)
        without.append(error(likeliest(x, truth, shape).means, truth))
    se = np.std(found) / np.sqrt(reps)
    failed = int(np.sum(np.array(found) > 0.5))
    return (
        f"| {name} | {np.median(found):.4f} | {np.mean(found):.4f} ({se:.4f}) | "
        f"{np.median(without):.4f} | {failed} of {reps} | {np.median(seconds):.1f} s |"
    )


def coverage(name: str, reps: int, first: int) -> str:
    """A line of the table."""
    truth, shape, errors, n = COVERAGE[name]
    inside, given = [], 0
    for seed in range(first, first + reps):
        x = rows(truth, n, np.random.default_rng([n, 80_000 + seed]), errors)
        e = (fit := fitted(x, truth.k, shape, seed)).estimate
        if not fit.has_inference:
            continue
        given, order = given + 1, paired(e.means, truth)
        values = np.column_stack([e.weights, e.means, [np.sqrt(np.diag(c)) for c in e.covariances]])
        true = np.column_stack(
            [truth.weights, truth.means, [np.sqrt(np.diag(c)) for c in truth.covariances]]
        )
        ses = np.sqrt(np.diag(e.cov)).reshape(values.shape)
        inside.append(np.abs(values[order] - true) < 1.96 * ses[order])
    if not given:
        return f"| {name} | {n:,} | 0 of {reps} | | |"
    each = np.mean(inside, axis=0)
    return f"| {name} | {n:,} | {given} of {reps} | {each.mean():.1%} | {each.min():.1%} |"


def printed(
    description: str | None,
    accuracy: tuple[Iterable[str], Callable[[str, int, int], str]],
    coverage: tuple[Iterable[str], Callable[[str, int, int], str]],
) -> None:
    """Print one of two tables, each of settings and what makes a row of one."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--coverage", action="store_true")
    parser.add_argument("--reps", type=int, default=12)
    parser.add_argument("--first", type=int, default=0, help="number of the first table")
    parser.add_argument("--only")
    given = parser.parse_args()
    if given.coverage:
        print("| mixture | n | fits with intervals | coverage | of the least covered |")
        print("|---|---|---|---|---|")
    else:
        print("| setting | median | mean (se) | without privacy | failed | CPU |")
        print("|---|---|---|---|---|---|")
    names, row = coverage if given.coverage else accuracy
    for name in names:
        if given.only in (None, name):
            print(row(name, given.reps, given.first), flush=True)


if __name__ == "__main__":
    printed(__doc__, ((*ACCURACY, f"d2 k3 5k{WIDE}"), accuracy), (COVERAGE, coverage))
