"""Selection by a curator of responses: what a choice is charged, and what it finds."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import dpstats as dp
from dpstats.accounting import Gaussian, Laplace, Selection
from dpstats.design import PublicDesign
from dpstats.errors import OptionError
from dpstats.estimators.labels.curator_sparse import LabelCuratorOMP
from dpstats.estimators.labels.pursuit import FAR, Pursuit
from dpstats.holders import Labels, labels
from dpstats.holders.labels import held
from dpstats.mechanisms.noise import SafeNoise
from dpstats.privacy import LabelOnly
from dpstats.queries.column_scores import ColumnScores
from dpstats.queries.label_held import HeldSums
from dpstats.queries.labels import Interval
from dpstats.schema import Numeric, Schema
from tests.grids import grid
from tests.label_only.cases import exact_sums, fit, rademacher, user

METHOD = LabelCuratorOMP()
INTERVAL = Interval(-1.0, 3.0)
N, D = 80, 7
EXTREME = np.array([-1.0, 3.0, 0.4, math.inf, -math.inf, math.nan, 1e308, -1e9])
CHOICE, SUM = Selection(1.0, 2), Gaussian(1.0)


def curator(epsilon: float = 1.0, delta: float = 1e-6) -> LabelOnly:
    return LabelOnly(epsilon, delta, curator=True)


# The question -------------------------------------------------------------------------------------


def scores(sparse: bool, clip: float = 0.7) -> ColumnScores:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, D)) * [1, 10, 0.01, 1, 1, 1, 1] + 0.3
    x[0] *= 50
    x[:, 3] = rng.uniform(size=N) < 0.1
    if sparse:
        x[rng.uniform(size=(N, D)) < 0.6] = 0.0
    return ColumnScores(
        INTERVAL,
        sp.csr_array(x) if sparse else x,
        0.2 * rng.normal(size=N) + 0.5,
        clip,
        x.mean(axis=0),
        x.std(axis=0),
        np.array([0, 1, 3, 4, 6]),
    )


def entries(query: ColumnScores) -> np.ndarray:
    dense = query.rows.toarray() if sp.issparse(query.rows) else query.rows
    return np.clip((dense - query.center) / query.scale, -1, 1)[:, query.columns]


@pytest.mark.parametrize("sparse", [False, True])
def test_one_response_moves_no_score_by_more_than_its_sensitivity(sparse):
    query = scores(sparse)
    labels_ = np.random.default_rng(1).uniform(-1, 3, N)
    largest = 0.0
    for i in (0, 1, 17, N - 1, int(np.abs(entries(query)).max(axis=1).argmax())):
        found = []
        for value in EXTREME:
            labels_[i] = value
            exact, sensitivity = exact_sums(query, held(labels_, INTERVAL), CHOICE)
            found.append(exact)
        moved = max(float(np.abs(a - b).max()) for a in found for b in found)
        assert moved <= sensitivity
        largest = max(largest, moved / sensitivity)
    assert sensitivity == pytest.approx(2 * 0.7, rel=1e-5)
    assert largest > 0.98, "the bound is attained: it cannot be halved"


@pytest.mark.parametrize("event", [SUM, Laplace(1.0)], ids=lambda e: e.kind)
def test_one_response_moves_sums_of_held_responses_by_the_width_times_its_row(event):
    rows = np.random.default_rng(0).normal(size=(N, 3))
    middle = np.linspace(-0.5, 2.5, N)
    query = HeldSums(INTERVAL, rows, middle - 0.4, middle + 0.4)
    order = 1 if event.kind == "laplace" else 2
    at = int(np.linalg.norm(rows, order, axis=1).argmax())
    low = np.random.default_rng(1).uniform(-1, 3, N)
    low[at], high = -1.0, low.copy()
    high[at] = 3.0
    (a, sensitivity), (b, _) = (exact_sums(query, held(v, INTERVAL), event) for v in (low, high))
    moved = float(np.linalg.norm(a - b, order))
    assert 0.99 * sensitivity < moved <= sensitivity


@pytest.mark.parametrize("sparse", [False, True])
def test_scores_are_exact_in_any_order_and_what_they_are_called(sparse):
    query = scores(sparse)
    y = np.random.default_rng(2).uniform(-2, 4, N)
    exact, _ = exact_sums(query, held(y, INTERVAL), CHOICE)
    residual = np.clip(np.clip(y, -1, 3) - query.fitted, -0.7, 0.7)
    np.testing.assert_allclose(exact, np.abs(entries(query).T @ residual), atol=1e-3)
    order = np.random.default_rng(3).permutation(N)
    moved = replace(query, rows=query.rows[order], fitted=query.fitted[order])
    again, _ = exact_sums(moved, held(y[order], INTERVAL), CHOICE)
    np.testing.assert_array_equal(exact, again)
    if sparse:
        dense = exact_sums(replace(query, rows=query.rows.toarray()), held(y, INTERVAL), CHOICE)
        np.testing.assert_array_equal(exact, dense[0])


class Again(Labels):
    """A curator that answers a question again and again."""

    def ask(self, query, slot, part=0):
        self._answered.clear()
        return super().ask(query, slot, part)


def chosen_first(draws: int, seed: int = 0) -> tuple[float, float]:
    """How often the better of two columns is chosen, and how often it should be."""
    rng = np.random.default_rng(seed)
    x = np.where(rng.uniform(size=(60, 2)) < 0.5, -1.0, 1.0)
    made = PublicDesign.of_arrays(x, (-1, 1))
    y = np.where(np.arange(60) < 10, x[:, 0], 0.0)
    plan = METHOD.plan(made, curator(3.0), 60, sparsity=1)
    holder = Again(made.source((y, x)), made, plan, SafeNoise())
    interval = Interval(-1.0, 1.0)
    query = ColumnScores(interval, x, np.zeros(60), 1.0, np.zeros(2), np.ones(2), np.arange(2))
    exact, sensitivity = exact_sums(query, held(y, interval), CHOICE)
    event = plan.mechanism("choice 1").event
    assert isinstance(event, Selection)
    assert event.k == 1
    assert exact[0] > exact[1]
    odds = event.epsilon / 2 * (exact[0] - exact[1]) / sensitivity
    taken = np.array([holder.ask(query, "choice 1").value[0] for _ in range(draws)])
    return float(np.mean(taken == 0)), 1 / (1 + math.exp(-odds))


def test_a_choice_is_as_noisy_as_it_is_charged(monkeypatch):
    """With probability 1e-6 a correct sampler fails; half of the noise is caught."""
    draws = 1000
    found, expected = chosen_first(draws)
    error = 5 * math.sqrt(expected * (1 - expected) / draws)
    assert 0.6 < expected < 0.97
    assert abs(found - expected) < error
    original = labels.release

    def quiet(answer, sensitivity, *args, **more):
        return original(answer, sensitivity / 2, *args, **more)

    monkeypatch.setattr(labels, "release", quiet)
    assert abs(chosen_first(draws)[0] - expected) > error


# What is found ------------------------------------------------------------------------------------


def error(n, p, s, seed, privacy, scale=1.0, **options):
    x, y, truth, made = rademacher(n, p, s, seed)
    made = replace(made, endog=replace(made.endog, scale=scale))
    _, estimate = fit(METHOD, made, (y, x), privacy, seed, **options)
    params = estimate.params * made.standardization.y_scale / made.standardization.x_scale
    return float(np.linalg.norm(params - truth)), len(estimate.support)


@pytest.mark.parametrize("options", [{}, {"sparsity": 4}, {"sparsity": (2, 4, 20)}])
def test_columns_are_found(options):
    found = [error(2000, 60, 4, k, curator(1.0), **options)[0] for k in range(3)]
    assert np.mean(found) < 0.02, "devices reach .2 here, and a fixed interval .05"


def test_pure_privacy_finds_columns():
    assert error(4000, 40, 3, 0, curator(4.0, 0.0), sparsity=3)[0] < 0.03


@pytest.mark.parametrize("scale", [0.3, 3.0])
def test_a_scale_that_was_declared_wrong_costs_little(scale):
    assert error(2000, 40, 4, 1, curator(2.0), scale, sparsity=4)[0] < 0.02


@pytest.mark.parametrize("sparsity", grid([30, 1, 4, None], 1))
@pytest.mark.parametrize("epsilon", [0.2, 2.0])
def test_a_wrong_number_of_columns_is_never_much_worse_than_none(sparsity, epsilon):
    options = {} if sparsity is None else {"sparsity": sparsity}
    found = [error(800, 80, 8, k, curator(epsilon), **options) for k in range(4)]
    assert np.mean([e for e, _ in found]) < 1.1
    assert all(size <= (sparsity or 80) for _, size in found)


def test_a_correlated_design_is_sorted_out():
    rng = np.random.default_rng(0)
    n, p = 4000, 60
    x = rng.normal(size=(n, p))
    for j in range(1, p):
        x[:, j] = 0.8 * x[:, j - 1] + 0.6 * x[:, j]
    truth = np.zeros(p)
    truth[[5, 7, 30]] = 0.6, -0.5, 0.4
    y = x @ truth + 0.3 * rng.normal(size=n)
    made = PublicDesign.of_arrays(x, (-5, 5))
    _, estimate = fit(METHOD, made, (y, x), curator(2.0), 0, sparsity=3)
    assert set(estimate.support) == {5, 7, 30}


def test_a_huge_epsilon_is_least_squares_of_the_right_columns():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(1500, 40)) + 2.0
    y = 1.0 + x[:, 3] - 0.5 * x[:, 30] + 0.4 * rng.normal(size=1500)
    data = pd.DataFrame(x, columns=[f"x{j}" for j in range(40)]).assign(y=y)
    model = dp.ols("y ~ .", data, Schema(y=Numeric(-20, 20, center=2, scale=2)))
    result = model.fit(curator(500.0), sparsity=2, noise=dp.SeededNoise(1))
    assert result.plan.method == "label-curator-omp"
    assert list(result.selected) == ["x3", "x30"]
    chosen = np.column_stack([np.ones(1500), x[:, [3, 30]]])
    reference = np.linalg.lstsq(chosen, y, rcond=None)[0]
    np.testing.assert_allclose(result.params[["Intercept", "x3", "x30"]], reference, atol=0.04)


def test_sparse_matrices_give_the_fit_of_dense_ones():
    rng = np.random.default_rng(0)
    x = (rng.uniform(size=(1500, 50)) < 0.1) * rng.uniform(1, 2, (1500, 50))
    y = np.clip(x[:, 3] - x[:, 40] + 0.3 * rng.normal(size=1500), -4, 4)
    estimates = []
    for matrix in (x, sp.csr_matrix(x)):
        made = PublicDesign.of_arrays(matrix, (-4, 4))
        estimates.append(fit(METHOD, made, (y, matrix), curator(4.0), 0)[1])
    np.testing.assert_allclose(estimates[0].params, estimates[1].params, atol=1e-6)
    assert {3, 40} <= set(estimates[0].support)


def test_more_columns_than_rows_are_the_default_methods_case():
    x, y, truth, _ = rademacher(300, 600, 2, 0)
    model = dp.OLS(y, x, bounds={"endog": (-5, 5), "exog": (-1, 1)})
    result = model.fit(curator(20.0), noise=dp.SeededNoise(0))
    assert result.plan.method == "label-curator-omp"
    assert {f"x{j + 1}" for j in np.flatnonzero(truth)} <= set(result.selected)


# Halves -------------------------------------------------------------------------------------------


def split_rows(seed: int, n: int = 1200, p: int = 16):
    rng = np.random.default_rng([3, seed])
    x = rng.normal(size=(n, p))
    x[:, 1:] += 0.5 * x[:, :-1]
    truth = np.zeros(p)
    truth[[3, 4, 12]] = 0.6, -0.6, 0.6
    data = pd.DataFrame(x, columns=[f"x{j}" for j in range(p)])
    return data.assign(y=2 + x @ truth + 0.8 * rng.standard_t(4, n)), truth


SPLIT = Schema(y=Numeric(-30, 30, center=2, scale=1.5))


def split_hits(reps: int, epsilon: float) -> np.ndarray:
    found = []
    for seed in range(reps):
        data, truth = split_rows(seed)
        made = PublicDesign.of_table("y ~ .", SPLIT, data)
        options = {"sparsity": 4, "inference": "split"}
        _, estimate = fit(METHOD, made, data, curator(epsilon), seed, **options)
        assert estimate.inference == "conditional on selection"
        assert len(estimate.support) == 5
        units = user(made, estimate)
        x = made.exog(data)[:, units.inner]
        mean = 2 + data.drop(columns="y").to_numpy() @ truth
        target = np.linalg.lstsq(x, mean, rcond=None)[0]
        found.append((units.values[units.inner] - target) / np.sqrt(np.diag(units.cov)))
    return np.concatenate(found)


@pytest.mark.full
def test_half_of_the_rows_gives_valid_intervals():
    z = split_hits(30, 2.0)
    assert 0.9 < np.mean(np.abs(z) < 1.96) < 0.99
    assert np.mean(np.abs(z) < 1.96 * 0.6) < 0.9  # with what the clip might have cut off


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_half_of_the_rows_covers(epsilon):
    assert 0.93 < np.mean(np.abs(split_hits(200, epsilon)) < 1.96) < 0.97


def test_the_half_that_estimates_does_not_select(monkeypatch):
    data, _ = split_rows(0)
    other = data.copy()
    dealt = []
    half = Labels.half
    monkeypatch.setattr(Labels, "half", lambda *a: dealt.append((a[1], half(*a))) or dealt[-1][1])
    made = PublicDesign.of_table("y ~ .", SPLIT, data)
    fit(METHOD, made, data, curator(1.0), 0, inference="split")
    second = next(rows for branch, rows in dealt if branch == 2)
    assert all(np.array_equal(rows, second) for branch, rows in dealt if branch == 2)
    other.loc[second, "y"] = -other.loc[second, "y"]
    found = []
    for table in (data, other):
        made = PublicDesign.of_table("y ~ .", SPLIT, table)
        plan, estimate = fit(METHOD, made, table, curator(1.0), 0, inference="split")
        found.append(estimate)
    assert found[0].support == found[1].support
    assert not np.allclose(found[0].params, found[1].params)
    branches = {m.branch for m in plan.mechanisms}
    assert branches == {1, 2}


# Plans --------------------------------------------------------------------------------------------


def test_hopeless_searches_warn_and_what_they_say_would_do_does():
    _, _, _, made = rademacher(300, 300, 3, 0)
    (text,) = METHOD.plan(made, curator(0.3), 300, sparsity=10).warnings
    assert "n=" in text
    assert "epsilon=" in text
    _, _, _, made = rademacher(4000, 100, 3, 0)
    assert not METHOD.plan(made, curator(1.0), 4000, sparsity=5).warnings


@pytest.mark.parametrize(
    ("privacy", "options", "words"),
    [
        (LabelOnly(1.0), {}, "curator=True"),
        (curator(), {"inference": "all"}, "inference"),
        (curator(), {"channel": "binary"}, "no option"),
        (curator(), {"clip": -1.0}, "clip"),
        (curator(), {"inference": "split"}, "6 rows are too few"),
    ],
)
def test_wrong_options_are_refused(privacy, options, words):
    _, _, _, made = rademacher(12, 70, 3, 0)
    with pytest.raises(OptionError, match=words):
        METHOD.plan(made, privacy, 12, **options)


# errors of label-lasso without a curator at epsilon .5, 1 and 2, s = 10
DEVICES = [(5000, 500, (0.515, 0.199, 0.072)), (20_000, 2000, (0.197, 0.089, 0.039))]


@pytest.mark.slow
@pytest.mark.parametrize(("n", "p", "devices"), DEVICES)
def test_a_curator_is_far_more_precise_than_devices(n, p, devices):
    for epsilon, bar in zip((0.5, 1.0, 2.0), devices, strict=True):
        found = [error(n, p, 10, k, curator(epsilon), sparsity=10)[0] for k in range(3)]
        assert np.mean(found) < bar / 5


# -- responses that are mostly equal, or have few values -----------------------------------------


def of_ones(seed: int, share: float, n: int = 10_000, d: int = 60) -> tuple[np.ndarray, ...]:
    """Normal columns, and a 0/1 that is 1 as a linear function of three of them says."""
    rng = np.random.default_rng([seed, 11])
    x = rng.normal(size=(n, d))
    chance = np.clip(share * (1 + 0.6 * (x[:, 0] + 0.7 * x[:, 3] - 0.5 * x[:, 8])), 0, 1)
    return x, (rng.random(n) < chance).astype(float)


def of_columns(x: np.ndarray, y: np.ndarray, high: float = 1.0, low: float = 0.0) -> dp.Model:
    names = [f"x{j}" for j in range(x.shape[1])]
    columns = dict.fromkeys(names, Numeric(-5.0, 5.0))
    data = pd.DataFrame(x, columns=names).assign(y=y)
    return dp.ols(f"y ~ {' + '.join(names)}", data, Schema(**columns, y=Numeric(low, high)))


RIGHT = [0, 3, 8]


@pytest.mark.parametrize("share", [0.5, 0.2])
def test_effects_on_a_yes_or_no_are_those_of_least_squares(share: float) -> None:
    """Undone for normal errors, clips made them a half of that, and the mean of .2 one of .1."""
    for seed in range(2):
        x, y = of_ones(seed, share)
        privacy = LabelOnly(4.0, 1e-6, curator=True)
        made = of_columns(x, y).fit(privacy, sparsity=3, noise=dp.SeededNoise(seed))
        assert made.plan.method == "label-curator-omp"
        whole = np.column_stack([np.ones(len(y)), x[:, RIGHT]])
        exact = np.linalg.lstsq(whole, y, rcond=None)[0]
        params = made.params.to_numpy()
        assert set(np.flatnonzero(params[1:])) == set(RIGHT)
        np.testing.assert_allclose(params[[0, 1, 4, 9]], exact, atol=0.03)
        assert not made.estimate.remarks


def test_that_most_responses_are_equal_is_said_and_their_mean_is_not_lost() -> None:
    """The intercept was .03 of what it is."""
    x, y = of_ones(3, 0.05)
    privacy = LabelOnly(4.0, 1e-6, curator=True)
    made = of_columns(x, y).fit(privacy, sparsity=3, noise=dp.SeededNoise(1))
    assert any("Most responses are nearly equal" in r for r in made.estimate.remarks)
    assert made.params.iloc[0] == pytest.approx(y.mean(), rel=0.5)


def test_where_few_errors_are_left_nothing_is_said() -> None:
    """Residuals fall from round to round because columns explain responses, not by clips."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(10_000, 60))
    y = x[:, 0] + 0.7 * x[:, 3] - 0.5 * x[:, 8]
    privacy = LabelOnly(4.0, 1e-6, curator=True)
    for size, high in ((0.03, 8.0), (1.0, 12.0), (1.0, 12_000.0)):
        noisy = y + size * rng.standard_t(4, size=y.size)
        made = of_columns(x, np.clip(noisy, -high, high), high, -high)
        assert not made.fit(privacy, sparsity=3, noise=dp.SeededNoise(2)).estimate.remarks


def test_where_the_size_of_residuals_is_not_known_clips_are_still_clips() -> None:
    """Responses that were taken to be equal in one round, of which a later one sees nothing."""
    pursuit = object.__new__(Pursuit)
    vars(pursuit).update(equal=True, _least=0.0, sd=0.1, spread=1.0, _half=50.0, _seen=False)
    assert pursuit._bound(1.5) == pytest.approx(FAR * 0.1)
    vars(pursuit).update(_least=0.5)
    assert pursuit._bound(1.5) == pytest.approx(FAR * 0.5)
    vars(pursuit).update(equal=False)
    assert pursuit._bound(1.5) == pytest.approx(0.15)
