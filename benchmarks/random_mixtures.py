"""How often intervals of mixtures are wrong by far, on random mixtures that nobody chose.

    uv run python -m benchmarks.random_mixtures [gaussian|regressions|dummies|symmetric]
        [--reps 200] [--first 0] [--quiet]

Numbers of rows, columns and components, weights, distances, shapes and declared ranges are drawn;
components may be close, and light. epsilon = 1, delta = 1e-6. Printed of fits that give intervals:
how many of the parameters 95 % intervals hold, and of how many fits a parameter is more than four
of its standard errors from the truth, with the seeds of these. "dummies" are regressions whose
columns are 0 or 1; "symmetric" are regressions with coefficients b and -b.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dpstats as dp
from benchmarks import mixture_ols, mixtures, symmetric
from benchmarks.common import progress
from dpstats.errors import OptionError
from dpstats.families.mixtures import NormalMixture, RegressionMixture

Array = NDArray[np.float64]
FAR = 4.0  # standard errors
_SHAPES = ("full", "tied", "diagonal", "spherical")
_LAWS = ("uniform", "normal", "exponential")
_ENDS = {"uniform": 1.75, "normal": 2.5, "exponential": 4.0, "binary": 1.0}


def gaussian(seed: int, rng: np.random.Generator) -> tuple[Any, Callable[[], Array]]:
    """A fit, and errors over standard errors where it has intervals."""
    d, k = int(rng.integers(1, 6)), int(rng.integers(1, 5))
    n, shape = int(rng.choice([2_000, 5_000, 10_000, 30_000])), str(rng.choice(_SHAPES))
    means = rng.normal(size=(k, d)) * rng.uniform(1, 4)
    covariances = np.array([_covariance(d, shape, rng) for _ in range(k)])
    if shape == "tied":
        covariances[:] = covariances[0]
    truth = NormalMixture(rng.dirichlet(np.full(k, 3.0)), means, covariances)
    x = mixtures.rows(truth, n, rng)
    fit = mixtures.fitted(x, k, shape, seed, float(np.abs(x).max() * rng.choice([1.0, 3, 30])))

    def errors() -> Array:
        e, order = fit.estimate, mixtures.paired(fit.estimate.means, truth)
        found = _numbers(e.weights, e.means, e.covariances)
        ses = np.sqrt(np.diag(e.cov)).reshape(found.shape)[order]
        gaps = found[order] - _numbers(truth.weights, means, covariances)
        return np.divide(gaps, ses, out=np.zeros_like(gaps), where=ses > 0)

    return fit, errors


def _covariance(d: int, shape: str, rng: np.random.Generator) -> Array:
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    values = np.exp(rng.uniform(-1, 1, 1 if shape == "spherical" else d)) * np.ones(d)
    made: Array = (turn * values) @ turn.T if shape in ("full", "tied") else np.diag(values)
    return made


def _numbers(weights: Array, means: Array, covariances: Any) -> Array:
    return np.column_stack([weights, means, [np.sqrt(np.diag(c)) for c in covariances]])


def regressions(
    seed: int,
    rng: np.random.Generator,
    laws: tuple[str, ...] = ("uniform", "normal", "exponential"),
) -> tuple[Any, Callable[[], Array]]:
    """The same of regressions."""
    law, p, k = str(rng.choice(laws)), int(rng.integers(1, 6)), int(rng.integers(2, 4))
    n = int(rng.choice([3_000, 10_000, 30_000]))
    coef = rng.normal(size=(k, p + 1)) * rng.uniform(0.5, 1.5)
    coef *= min(1.0, 6 / (np.abs(coef) @ np.r_[1.0, np.full(p, _ENDS[law])]).max())
    weights, sigma = rng.dirichlet(np.full(k, 3.0)), float(np.exp(rng.uniform(-1.5, 0)))
    truth = RegressionMixture(weights, coef, sigma)
    fit = mixture_ols.fitted(mixture_ols.rows(truth, n, rng, law), k, seed, law)
    return fit, lambda: mixture_ols.distances(fit, truth)


def dummies(seed: int, rng: np.random.Generator) -> tuple[Any, Callable[[], Array]]:
    """The same on columns of 0 and 1."""
    return regressions(seed, rng, ("binary",))


def symmetric_lines(seed: int, rng: np.random.Generator) -> tuple[Any, Callable[[], Array]]:
    """The same with coefficients b and -b."""
    d, n = int(rng.choice([1, 2, 3, 5, 8])), int(rng.choice([2_000, 5_000, 15_000]))
    b = rng.normal(size=d)
    b *= rng.uniform(0.6, 2.5) * symmetric.SIGMA / np.linalg.norm(b)
    model = symmetric.of_lines(symmetric.lines(n, b, rng))
    fit = model.fit(dp.Central(1.0, 1e-6), noise=dp.SeededNoise(seed), normal=True)

    def errors() -> Array:
        found = fit.beta.to_numpy()
        sign = 1.0 if np.linalg.norm(found - b) < np.linalg.norm(found + b) else -1.0
        gaps = np.append(found - sign * b, fit.sigma - symmetric.SIGMA)
        return np.asarray(gaps / fit.bse.to_numpy())

    return fit, errors


KINDS = {
    "gaussian": gaussian,
    "regressions": regressions,
    "dummies": dummies,
    "symmetric": symmetric_lines,
}


def row(kind: str, reps: int, first: int, quiet: bool) -> str:
    """A line of the table."""
    held, far, refused = [], [], 0
    for seed in progress(range(first, first + reps), reps, quiet):
        rng = np.random.default_rng([list(KINDS).index(kind), seed])
        try:
            fit, errors = KINDS[kind](seed, rng)
        except OptionError:  # noise hides components whatever the rows are
            refused += 1
            continue
        if fit.has_inference:
            apart = np.abs(errors())
            held.append(float((apart < 1.96).mean()))
            far += [seed] * bool(apart.max() > FAR)
    which = f" ({', '.join(map(str, far))})" if far else ""
    made = reps - refused
    return f"| {kind} | {len(held)} of {made} | {np.mean(held):.1%} | {len(far)}{which} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", nargs="?", choices=list(KINDS))
    parser.add_argument("--reps", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first table")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| mixture | fits with intervals | held | beyond 4 standard errors |")
    print("|---|---|---|---|")
    for kind in [given.kind] if given.kind else KINDS:
        print(row(kind, given.reps, given.first, given.quiet), flush=True)


if __name__ == "__main__":
    main()
