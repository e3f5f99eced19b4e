"""Selection on public covariates: the paper's numbers are beaten, and half of the rows infers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import dpstats as dp
from dpstats.design import PublicDesign
from dpstats.errors import OptionError
from dpstats.estimators.labels import LABEL_ONLY
from dpstats.estimators.labels.clipped import ClippedRegression, Refit, clipped_mean
from dpstats.estimators.labels.published.label_ldp_iht import LabelLDPIHT
from dpstats.estimators.labels.sparse import LabelLasso, LabelThreshold
from dpstats.estimators.numerics.lasso import PublicMoments, lasso
from dpstats.privacy import LabelOnly
from dpstats.schema import Numeric, Schema
from tests.label_only.cases import fit, rademacher, user

SPARSE = [row.method for row in LABEL_ONLY if row.sparse]


def error(method, privacy, n, p, s, seed, bound=5.0, **options) -> tuple[float, int]:
    x, y, truth, made = rademacher(n, p, s, seed, bound)
    _, estimate = fit(method, made, (y, x), privacy, seed, **options)
    standard = made.standardization
    params = estimate.params * standard.y_scale / standard.x_scale
    return float(np.linalg.norm(params - truth)), len(estimate.support)


def mean_error(method, privacy, n, p, s, reps, **options) -> float:
    return float(np.mean([error(method, privacy, n, p, s, k, **options)[0] for k in range(reps)]))


@pytest.mark.parametrize(
    ("method", "options"),
    [(LabelLasso(), {}), (LabelLasso(), {"sparsity": 4}), (LabelThreshold(), {})],
)
def test_columns_are_found(method, options):
    assert mean_error(method, LabelOnly(2.0), 4000, 60, 4, 3, **options) < 0.12


@pytest.mark.full
def test_the_refit_through_the_clip_beats_a_wider_clip():
    narrow = mean_error(LabelLasso(), LabelOnly(1.0), 4000, 60, 10, 5, sparsity=10)
    wide = mean_error(LabelLasso(), LabelOnly(1.0), 4000, 60, 10, 5, sparsity=10, clip=2.5)
    assert narrow < 0.8 * wide


def test_a_narrow_clip_without_the_refit_is_biased(monkeypatch):
    def line(self, x):
        every = slice(0, len(x))
        return Refit(np.linalg.lstsq(x, self.z[every] - self.known[every], rcond=None)[0], 1e-9)

    monkeypatch.setattr(ClippedRegression, "fit", line)
    assert mean_error(LabelLasso(), LabelOnly(4.0), 4000, 60, 10, 3, sparsity=10) > 0.2


def test_sparsity_is_obeyed():
    for sparsity, allowed in ((3, {3}), ((2, 6, 20), {5, 6}), (20, {20})):
        _, size = error(LabelLasso(), LabelOnly(4.0), 4000, 40, 5, 1, sparsity=sparsity)
        assert size in allowed


def test_sparse_matrices_give_the_fit_of_dense_ones():
    rng = np.random.default_rng(0)
    x = (rng.uniform(size=(3000, 80)) < 0.1) * rng.uniform(1, 2, (3000, 80))
    y = np.clip(x[:, 3] - x[:, 50] + 0.3 * rng.normal(size=3000), -4, 4)
    estimates = []
    for matrix in (x, sp.csr_matrix(x)):
        made = PublicDesign.of_arrays(matrix, (-4, 4))
        estimates.append(fit(LabelLasso(), made, (y, matrix), LabelOnly(4.0), 0)[1])
    np.testing.assert_allclose(estimates[0].params, estimates[1].params, atol=1e-8)
    assert {3, 50} <= set(estimates[0].support)


def test_the_lasso_satisfies_its_optimality_conditions():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(300, 60)) @ (np.eye(60) + 0.03)
    x /= np.sqrt((x**2).mean(axis=0))
    score, gram = x.T @ rng.normal(size=300) / 300 + 0.3 * (np.arange(60) < 5), x.T @ x / 300
    params = lasso(score, 0.7, PublicMoments(x), 0.1, np.zeros(60), 2)
    slack = score - 0.7 * gram @ params
    on = params != 0
    assert 5 < on.sum() < 60
    assert abs(slack[2]) < 1e-4
    on[2] = False
    np.testing.assert_allclose(slack[on], 0.1 * np.sign(params[on]), atol=1e-4)
    assert np.abs(np.delete(slack, 2)).max() < 0.1 + 1e-4


def test_moments_of_clipped_normals():
    e = np.random.default_rng(0).normal(size=400_000)
    for eta, sd in ((0.3, 0.7), (-1.5, 0.2), (0.0, 2.0)):
        clipped = np.clip(eta + sd * e, -1, 1)
        mean, slope, square = clipped_mean(eta, sd, 1.0)
        assert abs(mean - clipped.mean()) < 0.005
        assert abs(square - (clipped**2).mean()) < 0.005
        assert abs(slope - (np.abs(eta + sd * e) < 1).mean()) < 0.005


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_a_scale_that_was_declared_wrong_costs_little(scale):
    x, y, truth, made = rademacher(4000, 30, 4, 0)
    made = replace(made, endog=replace(made.endog, scale=scale))
    _, estimate = fit(LabelLasso(), made, (y, x), LabelOnly(4.0), 0, sparsity=4)
    params = estimate.params * made.standardization.y_scale / made.standardization.x_scale
    assert np.linalg.norm(params - truth) < 0.1


def split_rows(seed: int, n: int = 2000, p: int = 24) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng([3, seed])
    x = rng.normal(size=(n, p))
    x[:, 1:] += 0.5 * x[:, :-1]
    truth = np.zeros(p)
    truth[[3, 4, 20]] = 0.6, -0.6, 0.6
    data = pd.DataFrame(x, columns=[f"x{j}" for j in range(p)])
    return data.assign(y=2 + x @ truth + 0.8 * rng.standard_t(4, n)), truth


def split_hits(reps: int, epsilon: float) -> np.ndarray:
    schema = Schema(y=Numeric(-30, 30, center=2, scale=1.5))
    found = []
    for seed in range(reps):
        data, truth = split_rows(seed)
        made = PublicDesign.of_table("y ~ .", schema, data)
        _, estimate = fit(LabelLasso(), made, data, LabelOnly(epsilon), seed, inference="split")
        assert estimate.inference == "conditional on selection"
        units = user(made, estimate)
        x = made.exog(data)[:, units.inner]
        mean = 2 + data.drop(columns="y").to_numpy() @ truth
        target = np.linalg.lstsq(x, mean, rcond=None)[0]
        found.append((units.values[units.inner] - target) / np.sqrt(np.diag(units.cov)))
    return np.concatenate(found)


@pytest.mark.full
def test_half_of_the_rows_gives_valid_intervals():
    z = split_hits(30, 4.0)
    assert 0.9 < np.mean(np.abs(z) < 1.96) < 0.99
    assert np.mean(np.abs(z) < 1.96 * 0.7) < 0.9


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_half_of_the_rows_covers(epsilon):
    assert 0.93 < np.mean(np.abs(split_hits(300, epsilon)) < 1.96) < 0.97


def test_the_same_rows_give_no_intervals():
    x, y, _, made = rademacher(2000, 40, 3, 0)
    for method in SPARSE:
        gaussian = isinstance(method, LabelLDPIHT)
        curator = method.serves(LabelOnly(2.0, curator=True))
        privacy = LabelOnly(20.0 if curator else 2.0, 1e-5 if gaussian else 0.0, curator=curator)
        _, estimate = fit(method, made, (y, x), privacy, 0, sparsity=3)
        assert estimate.inference.startswith("none")
        assert np.isnan(estimate.cov).all()
        assert estimate.cov.shape == (3, 3)


def test_iterative_hard_thresholding_climbs_down():
    found = mean_error(LabelLDPIHT(), LabelOnly(8.0, 1e-5), 4000, 60, 4, 2, sparsity=4)
    lasso_ = mean_error(LabelLasso(), LabelOnly(8.0), 4000, 60, 4, 2, sparsity=4)
    assert found < 0.3
    assert lasso_ < found


@pytest.mark.parametrize(
    ("method", "privacy", "options", "words"),
    [
        (LabelLDPIHT(), LabelOnly(1.0), {"sparsity": 3}, "delta"),
        (LabelLDPIHT(), LabelOnly(1.0, 1e-6), {}, "sparsity"),
        (LabelLDPIHT(), LabelOnly(1.0, 1e-6), {"sparsity": 3, "steps": 0}, "steps"),
        (LabelLDPIHT(), LabelOnly(1.0, 1e-6), {"sparsity": 3, "radius": -1.0}, "radius"),
        (LabelLasso(), LabelOnly(1.0), {"inference": "all"}, "inference"),
        (LabelLasso(), LabelOnly(1.0, curator=True), {}, "curator"),
    ],
)
def test_wrong_options_are_refused(method, privacy, options, words):
    _, _, _, made = rademacher(100, 10, 3, 0)
    with pytest.raises(OptionError, match=words):
        method.plan(made, privacy, 100, **options)


def test_hopeless_searches_warn():
    _, _, _, made = rademacher(200, 300, 3, 0)
    (text,) = LabelLasso().plan(made, LabelOnly(0.3), 200).warnings
    assert "n=" in text
    assert "epsilon=" in text


# numbers to beat: n, p, and errors at epsilon .5, 1 and 2, s = 10
BARS = [
    (5000, 500, (0.75, 0.29, 0.12), 10),
    (20_000, 500, (0.31, 0.12, 0.07), 10),
    (20_000, 2000, (0.36, 0.12, 0.07), 5),
    (50_000, 2000, (0.14, 0.08, 0.04), 4),
]


@pytest.mark.slow
@pytest.mark.parametrize(("n", "p", "bars", "reps"), BARS)
def test_the_bars_are_beaten(n, p, bars, reps):
    for epsilon, bar in zip((0.5, 1.0, 2.0), bars, strict=True):
        found = [error(LabelLasso(), LabelOnly(epsilon), n, p, 10, k)[0] for k in range(reps)]
        margin = 2 * np.std(found) / np.sqrt(reps - 1)
        assert np.mean(found) < bar + margin


@pytest.mark.parametrize("method", ["label-lasso", "thresholded-ols"])
def test_columns_that_noise_alone_may_select_are_said(method: str) -> None:
    rng = np.random.default_rng(6)
    x = rng.normal(size=(10_000, 60))
    y = np.clip(x[:, 0] + 0.7 * x[:, 3] - 0.5 * x[:, 8] + rng.normal(size=10_000), -8, 8)

    def remarks(high: float, sparsity: int | None) -> tuple[str, ...]:
        model = dp.OLS(y, x, bounds={"endog": (-high, high), "exog": (-5.0, 5.0)})
        how = {} if sparsity is None else {"sparsity": sparsity}
        made = model.fit(LabelOnly(4.0), method=method, noise=dp.SeededNoise(1), **how)
        return made.estimate.remarks

    assert remarks(8.0, 3) == ()
    (text,) = remarks(8.0, 6)
    assert text.startswith("3 of the 6 columns that were selected are within what noise alone")
    (text,) = remarks(8_000.0, 3)
    assert text.startswith("3 of the 3")
    (text,) = remarks(8_000.0, None)
    assert text.startswith("No column stands out of the noise")
