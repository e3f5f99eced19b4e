"""What the released numbers of a normal mixture can say at best, and what other questions could.

    uv run python -m benchmarks.mixture_information [--reps 6]

The covariance of means in the generalised least squares of all answers, with all questions asked
at the truth: no table is drawn, and there is no error of simulation to speak of. Settings, mixtures
and the unit are those of `benchmarks.mixtures`. "former" are questions with a = R/2, R = sqrt(d) +
1.5 and then + .5, and .15 of the budget for the histogram.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from numpy.typing import NDArray

import dpstats as dp
from benchmarks.mixtures import ACCURACY, drawn
from dpstats.estimators.central.mixtures import gaussian
from dpstats.estimators.central.mixtures.local import LocalMixture
from dpstats.estimators.numerics.released import AnsweredQuery, fit_released
from dpstats.families.mixtures import NormalMixture
from dpstats.protocol import Answer, Plan
from dpstats.queries import ProjectedCells
from dpstats.queries.mixtures import MixtureMoments

SETTINGS = ("d2 k3 5k", "d5 k4 5k", "d10 k2 5k", "d10 k5 20k")


class Former(MixtureMoments):
    """The same question with a = R/2."""

    @property
    def constant(self) -> float:
        """What stands before the residual."""
        return self.radius / 2 if self.blocks else super().constant


def cells(truth: NormalMixture, plan: Plan, factor: float) -> AnsweredQuery:
    """The histogram in the directions of largest variance of all rows."""
    mean = truth.weights @ truth.means
    apart = truth.means - mean
    total = np.tensordot(truth.weights, truth.covariances, axes=1)
    total += (apart.T * truth.weights) @ apart
    q = gaussian._directions(truth.k, truth.d)
    values, vectors = np.linalg.eigh(total)
    directions = (vectors[:, ::-1][:, :q] / np.sqrt(values[::-1][:q])).T
    edges = np.linspace(-gaussian._REACH, gaussian._REACH, gaussian._AXIS[q] + 1)
    query = ProjectedCells(np.insert(directions, 0, -directions @ mean, axis=1), edges)
    noise = plan.noise(query, "cells")
    asked = gaussian._merged(query, Answer(np.zeros((query.cells,) * q), noise))
    return AnsweredQuery(asked.contributions, asked.answer, factor * asked.sd)


def bound(truth: NormalMixture, shape: str, n: int, former: bool) -> float:
    """Root mean square of the standard errors of means."""
    d = truth.d
    schema = dp.Schema({f"x{j}": dp.Numeric(-10, 10) for j in range(d)})
    model = dp.gaussian_mixture("~ .", None, schema, components=truth.k, covariance=shape, n=n)
    plan = model.plan(dp.Central(1.0, 1e-6))
    law = LocalMixture(truth, shape, 0, np.ones(d))  # type: ignore[arg-type]
    asked = []
    for t, beyond in enumerate((1.5, 1.5, 0.5, 0.5) if former else (0.5, 0.5, 0.0, 0.0)):
        query = law.question(math.sqrt(d) + beyond)
        if former:
            query = Former(query.offsets, query.whiten, query.radius, query.shape)
        sd = plan.noise(query, f"step {t + 1}").sd * (math.sqrt(0.8 / 0.75) if former else 1.0)
        size = query.rows(np.insert(truth.means, 0, 1.0, axis=1)).shape[1]
        asked.append(AnsweredQuery(query.rows, np.zeros(size), sd))
    last = max(gaussian._MOST_ANSWERS // size, 1)
    histogram = cells(truth, plan, math.sqrt(0.1 / 0.15) if former else 1.0)
    cov = fit_released(law, [histogram, *asked[-last:]], float(n), near=True).cov
    slopes: NDArray[np.float64] = law.jacobian()[:, 1 : 1 + d].reshape(-1, law.size)
    return math.sqrt(float(np.mean(np.einsum("ap,pq,aq->a", slopes, cov, slopes))))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reps", type=int, default=6)
    parser.add_argument("--only")
    given = parser.parse_args()
    print("| setting | bound | of the former questions | ratio |")
    print("|---|---|---|---|")
    for name in SETTINGS:
        if given.only not in (None, name):
            continue
        d, k, apart, shape, n = ACCURACY[name]
        found = []
        for seed in range(given.reps):
            rng = np.random.default_rng([d, k, n, 70_000 + seed])
            truth = drawn(d, k, apart, shape, rng)
            found.append([bound(truth, shape, n, former) for former in (False, True)])
        now, then = np.sqrt(np.mean(np.square(found), axis=0))
        print(f"| {name} | {now:.4f} | {then:.4f} | {now / then:.2f} |", flush=True)


if __name__ == "__main__":
    main()
