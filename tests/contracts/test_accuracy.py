"""With a large budget the answer is the non-private one; intervals cover the population value."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpstats.mechanisms.noise import SeededNoise
from tests.contracts.cases import (
    METHODS,
    Case,
    Table,
    each_case,
    each_case_counted,
    each_method,
    each_method_drawn,
    each_method_sparse,
    frame,
)

pytestmark = pytest.mark.filterwarnings("ignore::dpstats.errors.FeasibilityWarning")

N = 20_000
# How far private and non-private estimates may be apart, in non-private standard errors. Clipping
# residuals, or tails, makes a method another M-estimator, which at Gaussian errors differs from
# least squares by about a third of a standard error.
CLOSE = 1.0
EXACT = {"adassp": 0.05, "clipped": 0.05}  # without clips at work, nothing excuses a difference
# Methods that see every row in one of several disjoint batches: another, noisier estimator even
# without privacy noise. Compared in its own standard errors.
BATCHED = {"adaptive-clipping-gd"}


def reference(case: Case, data: Table) -> Any:
    """The same model by statsmodels, with heteroskedasticity-robust standard errors."""
    model = case.kind.reference
    if model is None:
        pytest.skip("statsmodels has no such model; its own tests have another witness")
    return model(frame(data)).fit(cov_type="HC1", disp=0)


def needs_inference(case: Case) -> None:
    if not case.infers:
        pytest.skip("gives no standard errors by default: its columns were chosen on the same rows")


@each_case_counted
def test_a_large_budget_gives_the_answer_of_statsmodels(case: Case) -> None:
    needs_inference(case)
    data = case.table(N)
    # A wrong guess of a private row count must not matter, only the noisy count may.
    # Where nothing excuses a difference, noise is a hundredth of a standard error.
    budget = 1e5 if case.estimator.name in EXACT else 1e4
    results = case.fit(data, case.privacy(budget, 1e-6, rows=3 * N), noise=SeededNoise(1))
    theirs = reference(case, data)
    assert set(results.params.index) == set(theirs.params.index)
    batched = case.split or case.estimator.name in BATCHED
    apart = (results.params - theirs.params) / (results.bse if batched else theirs.bse)
    limit = 3.0 if batched else EXACT.get(case.estimator.name, CLOSE)
    assert apart.abs().max() < limit
    assert results.nobs == pytest.approx(N, rel=1e-3)


@each_method
def test_a_large_budget_gives_the_standard_errors_of_statsmodels(case: Case) -> None:
    needs_inference(case)
    data = case.table(N)
    results = case.fit(data, case.privacy(1e4, 1e-6), noise=SeededNoise(1))
    ratio = results.bse / reference(case, data).bse
    assert (ratio > 0.9).all()
    if not case.split and case.estimator.name not in BATCHED:
        assert (ratio < 1.3).all()


@each_method_sparse
def test_a_sparse_method_with_a_large_budget_finds_what_matters(case: Case) -> None:
    """All columns may be kept: predictions are close to statsmodels', one column or two to most."""
    if not case.estimator.sparse:
        pytest.skip("keeps every column")
    data = case.table(N)
    design = case.model(data).design
    if len(design.names) < 4:
        pytest.skip("has few columns")
    theirs = reference(case, data).params[list(design.names)]
    x = design.exog(frame(data)) - design.exog(frame(data)).mean(axis=0)

    def missed(sparsity: int) -> float:
        privacy = case.privacy(1e4, 1e-6)
        ours = case.fit(data, privacy, sparsity=sparsity, noise=SeededNoise(1)).params
        assert (ours != 0).sum() <= sparsity + 1
        return float(np.std(x @ (ours - theirs)) / np.std(x @ theirs))

    assert missed(4) < 0.25
    assert missed(2) < 0.5  # x1 and x2 carry nearly all


@each_method_drawn
def test_more_budget_means_less_error(case: Case) -> None:
    data = case.table(N)
    truth = reference(case, data).params

    def error(epsilon: float) -> float:
        fits = [case.fit(data, case.privacy(epsilon, 1e-6), noise=SeededNoise(s)) for s in range(5)]
        return float(np.mean([np.linalg.norm(f.params - truth) for f in fits]))

    assert error(0.05) > error(1.0)


def coverage(case: Case, n: int, epsilon: float, replicates: int) -> pd.Series:
    """Share of data sets whose 95 % interval holds the population coefficient."""
    truth = pd.Series(dict(case.truth))
    hits = []
    for seed in range(replicates):
        data = case.table(n, seed=1000 + seed)
        privacy = case.privacy(epsilon, 1e-6, rows=n)
        results = case.fit(data, privacy, noise=SeededNoise(seed))
        interval = results.conf_int()
        hits.append((interval[0] <= truth) & (truth <= interval[1]))
    return pd.DataFrame(hits).mean()


@pytest.mark.full
@each_method_drawn
def test_intervals_cover_in_a_small_simulation(case: Case) -> None:
    """40 data sets: at 95 % coverage fewer than 31 hits have probability 2e-5, at 70 % 0.80."""
    needs_inference(case)
    assert (coverage(case, 4000, 2.0, 40) >= 31 / 40).all()


@pytest.mark.slow
@each_case
def test_intervals_cover_the_population_parameter(case: Case) -> None:
    """The limit is three standard errors of the simulation below 94 %, which a coefficient misses
    falsely with probability below 3e-5 at full coverage. A method may do worse only where its plan
    warns, and may be wider than needed.
    """
    needs_inference(case)
    fits, rows, epsilon = (800 if case in METHODS else 300), 5000, 2.0
    plan = case.plan(case.table(rows), case.privacy(epsilon, 1e-6, rows=rows))
    nominal = 0.94 if not plan.warnings else 0.92
    limit = nominal - 3 * math.sqrt(nominal * (1 - nominal) / fits)
    found = coverage(case, rows, epsilon, fits)
    assert (found >= limit).all(), found.to_dict()
    assert found.mean() <= 0.995, found.to_dict()
