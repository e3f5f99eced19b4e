"""Sparse regression on tables of words in the svmlight format, from the file to the test error.

    uv run python -m benchmarks.texts                        # generated files of both shapes
    uv run python -m benchmarks.texts --train E2006.train --test E2006.test --bound -8 0

Wang & Gu (2019, Tables 2 and 3) use E2006-TFIDF (16,087 training and 3,308 test rows, 50,000
columns chosen at random of 150,360, s = 2,000, linear) and RCV1 (20,242 training and 20,000 test
rows, 47,236 columns, s = 500, logistic), with delta = 0.01 (above 1/n, and meant) and epsilon from
2 to 10. The files themselves could not be had; whoever has them runs the same fits on them by
``--train`` and ``--test``.

Generated files have their shape: documents draw words whose frequencies follow Zipf's law, lengths
are lognormal, entries are (1 + log count) log(n / rows with the word), which is heavy-tailed over
columns, and rows have length 1. Of the commoner words `S_TRUE` matter: the response is linear
(signal and noise of standard deviation 1/2 each), or logistic with a linear predictor of standard
deviation 4. A file is written, read by `load_svmlight` with the published number of columns, and
fitted; entries are declared in [0, 0.3]. Error: half the mean square error on the test rows, as in
the paper, or the share of wrong labels.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

import dpstats as dp
from benchmarks.common import Array, show, summarise
from dpstats.datasets import load_svmlight
from dpstats.errors import FeasibilityWarning

DELTA, S_TRUE, REACH, SEED = 0.01, 50, 0.3, 20_000
EPSILONS = (2.0, 10.0)
Table = tuple[sparse.csr_array, Array]


class Shape(NamedTuple):
    """A published table: rows to fit and to test on, columns, words of a document, and its s."""

    train: int
    test: int
    columns: int
    words: int
    model: str
    sparsities: tuple[int, ...]
    bound: tuple[float, float]


SHAPES = {
    "E2006-TFIDF": Shape(16_087, 3_308, 50_000, 480, "ols", (50,), (-2.0, 2.0)),
    "RCV1": Shape(20_242, 20_000, 47_236, 80, "logit", (50, 500), (0.0, 1.0)),
}


def documents(shape: Shape, rng: np.random.Generator) -> tuple[sparse.csr_array, Array, Array]:
    """Rows of length 1, the training rows first, their responses, and what is to be predicted."""
    n = shape.train + shape.test
    lengths = np.maximum(1, shape.words * rng.lognormal(-0.125, 0.5, n)).astype(int)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    shares = np.cumsum(1 / (np.arange(shape.columns) + 10.0))
    words = np.searchsorted(shares, rng.uniform(0, shares[-1], ends[-1])).astype(np.int32)
    x = sparse.csr_array((np.ones(ends[-1]), words, ends), shape=(n, shape.columns))
    x.sum_duplicates()
    held = np.bincount(x.indices, minlength=shape.columns)
    x.data = (1 + np.log(x.data)) * np.log(n / held[x.indices])
    row = np.repeat(np.arange(n), np.diff(x.indptr))
    x.data /= np.sqrt(np.bincount(row, x.data**2, minlength=n))[row]
    theta = np.zeros(shape.columns)
    theta[rng.choice(10 * S_TRUE, S_TRUE, replace=False)] = rng.normal(size=S_TRUE)
    eta = x @ theta
    eta = (eta - eta.mean()) / eta.std()
    if shape.model == "ols":
        return x, 0.5 * eta + 0.5 * rng.normal(size=n), 0.5 * eta
    return x, (rng.uniform(size=n) < 1 / (1 + np.exp(-4 * eta))).astype(float), eta


def write(path: Path, x: sparse.csr_array, y: Array) -> None:
    """The svmlight format; indices start at 1."""
    with path.open("w", encoding="ascii") as file:
        for i, target in enumerate(y.tolist()):
            here = slice(x.indptr[i], x.indptr[i + 1])
            entries = zip(x.indices[here].tolist(), x.data[here].tolist(), strict=True)
            file.write(f"{target:.6g} " + " ".join(f"{j + 1}:{v:.6g}" for j, v in entries) + "\n")


def with_constant(x: sparse.csr_array) -> sparse.csr_array:
    """A column of ones before the others."""
    return sparse.csr_array(sparse.hstack([np.ones((x.shape[0], 1)), x], format="csr"))


def error(eta: Array, y: Array, model: str) -> float:
    """Half the mean square error of predictors, or the share of wrong labels."""
    return float(np.mean((eta - y) ** 2) / 2 if model == "ols" else np.mean((eta > 0) != (y > 0)))


def fits(train: Table, test: Table, shape: Shape, reps: int) -> list[dict[str, Any]]:
    """Test errors by sparsity, method and epsilon."""
    x, y = train
    x_test = with_constant(test[0])
    bounds = {"endog": shape.bound, "exog": [(1.0, 1.0)] + [(0.0, REACH)] * x.shape[1]}
    model = {"ols": dp.OLS, "logit": dp.Logit}[shape.model](y, with_constant(x), bounds)
    least = error(
        np.full(len(test[1]), y.mean() - 0.5 * (shape.model == "logit")), test[1], shape.model
    )
    found = []
    for s in shape.sparsities:
        for method in (None, "dp-ight"):
            for epsilon in EPSILONS:
                privacy = dp.Central(epsilon, DELTA, large_delta=True)
                start, errors = time.process_time(), []
                for r in range(reps):
                    fit = model.fit(
                        privacy, method=method, sparsity=s, noise=dp.SeededNoise(SEED + r)
                    )
                    eta = x_test @ fit.params.to_numpy()
                    errors.append(error(eta, test[1], shape.model))
                found.append(
                    {
                        "s": s,
                        "method": method or "default",
                        "epsilon": epsilon,
                        "test error": summarise(errors),
                        "constant only": f"{least:.3f}",
                        "processor s a fit": f"{(time.process_time() - start) / reps:.0f}",
                    }
                )
    return found


def generated(name: str, shape: Shape, reps: int) -> None:
    """Write, read and fit one generated table."""
    x, y, eta = documents(shape, np.random.default_rng(SEED))
    tables, spent = [], 0.0
    with tempfile.TemporaryDirectory() as folder:
        for part in (slice(None, shape.train), slice(shape.train, None)):
            path = Path(folder) / "rows.svmlight"
            write(path, x[part], y[part])
            start = time.process_time()
            tables.append(load_svmlight(path, shape.columns))
            spent += time.process_time() - start
    truth = error(eta[shape.train :], y[shape.train :], shape.model)
    show(
        f"Generated, of the shape of {name}: {shape.train:,} x {shape.columns:,}, "
        f"{x.nnz / x.shape[0]:.0f} entries a row",
        fits(tables[0], tables[1], shape, reps),
        f"delta = {DELTA:g}, seeds from {SEED}, {reps} fits. Error of the truth: {truth:.3f}. "
        f"Both files read in {spent:.0f} s.",
    )


def given(train: Path, test: Path, shape: Shape, columns: int, reps: int) -> None:
    """Fit the table of a file, test on another."""
    tables = []
    for path in (train, test):
        x, y = load_svmlight(path, columns)
        tables.append((x, (y > 0).astype(float) if shape.model == "logit" else y))
    show(train.name, fits(tables[0], tables[1], shape, reps), f"delta = {DELTA:g}, {reps} fits.")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", type=Path, help="svmlight file to fit")
    parser.add_argument("--test", type=Path, help="svmlight file to test on")
    parser.add_argument("--model", choices=("ols", "logit"), default="ols")
    parser.add_argument("--columns", type=int, help="number of columns, as published")
    parser.add_argument("--bound", type=float, nargs=2, help="bounds of the response")
    parser.add_argument("--sparsity", type=int, nargs="+", help="columns to select")
    parser.add_argument("--reps", type=int, default=3)
    asked = parser.parse_args()
    warnings.simplefilter("ignore", FeasibilityWarning)
    for name, shape in SHAPES.items():
        if asked.sparsity:
            shape = shape._replace(sparsities=tuple(asked.sparsity))
        if asked.train is None:
            generated(name, shape, asked.reps)
        elif shape.model == asked.model:
            shape = shape._replace(bound=tuple(asked.bound or shape.bound))
            columns = asked.columns or (150_360 if asked.model == "ols" else shape.columns)
            given(asked.train, asked.test, shape, columns, asked.reps)


if __name__ == "__main__":
    main()
