"""The default sparse method: finds what matters, keeps its budget, never runs away."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import dpstats as dp
from dpstats.accounting import delta_of, epsilon_of
from dpstats.accounting.events import Parallel
from dpstats.design import DeclaredDesign
from dpstats.errors import OptionError
from dpstats.estimators.central.sparse import omp
from dpstats.estimators.central.sparse.omp import OMP
from dpstats.privacy import Central, Neighbors
from tests.estimators.sparse_cases import SD, design, fit, relative, respond, rows
from tests.grids import grid

MODELS = ["ols", "logit"]
each_model = pytest.mark.parametrize("model", grid(MODELS, 1))
WITHOUT_NOISE = Central(1e6, 1e-6)


# ---- without noise ------------------------------------------------------------------------------


def test_a_large_epsilon_gives_least_squares_on_the_support() -> None:
    # but for the garrote, which takes (1.5 se)^2 / b off a coefficient b.
    x, y, beta = rows(4000, 60, 4)
    found = fit(OMP("ols"), x, y, WITHOUT_NOISE, sparsity=4)
    support = np.flatnonzero(beta)
    assert set(found.estimate.support or ()) == set(support)
    on = x[:, support]
    ols = np.linalg.lstsq(on, y, rcond=None)[0]
    se = SD * np.sqrt(np.diag(np.linalg.inv(on.T @ on)))
    expected = ols - 1.5**2 * se**2 / ols
    assert np.abs((found.params[support] - expected) / se).max() < 0.3


def test_a_large_epsilon_gives_maximum_likelihood_on_the_support() -> None:
    import statsmodels.api as sm

    x, y, beta = rows(6000, 60, 4, model="logit")
    found = fit(OMP("logit"), x, y, WITHOUT_NOISE, sparsity=4)
    support = np.flatnonzero(beta)
    assert set(found.estimate.support or ()) == set(support)
    mle = sm.Logit(y, x[:, support]).fit(disp=0)
    expected = mle.params - 1.5**2 * mle.bse**2 / mle.params
    assert np.abs((found.params[support] - expected) / mle.bse).max() < 1.0


# ---- with noise ---------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize(("model", "limit"), [("ols", 0.06), ("logit", 0.3)])
def test_what_matters_is_found_among_many_columns(model: str, limit: float) -> None:
    # Means over six data sets; the limits are twice what was measured (0.028, 0.15).
    errors = []
    for seed in range(6):
        x, y, beta = rows(5000, 400, 5, seed, model)
        errors.append(relative(fit(OMP(model), x, y, Central(2.0, 1e-6), seed, sparsity=5), beta))
    assert np.mean(errors) < limit


@each_model
def test_the_intercept_is_always_in_and_not_counted(model: str) -> None:
    import dpstats as dp

    x, y, _ = rows(3000, 12, 2, model=model)
    x = np.column_stack([np.ones(len(y)), x])
    y = y if model == "logit" else np.clip(y + 2.0, -8, 8)
    make = {"ols": dp.OLS, "logit": dp.Logit}[model]
    exog = [(1.0, 1.0)] + [(-1.0, 1.0)] * 12
    bounds = {"exog": exog} if model == "logit" else {"exog": exog, "endog": (-8.0, 8.0)}
    found = make(y, x, bounds=bounds).fit(
        Central(20.0, 1e-6), method="omp", sparsity=2, noise=dp.SeededNoise(1)
    )
    assert found.estimate.support is not None
    assert found.estimate.support[0] == 0
    assert len(found.estimate.support) == 3
    if model == "ols":
        assert found.params.iloc[0] == pytest.approx(2.0, abs=0.1)


@each_model
def test_all_columns_may_be_asked_for(model: str) -> None:
    x, y, beta = rows(4000, 3, 3, model=model)
    assert relative(fit(OMP(model), x, y, Central(10.0, 1e-6), sparsity=3), beta) < 0.2


# ---- budget and neighbours ----------------------------------------------------------------------


@each_model
@pytest.mark.parametrize("options", [{"sparsity": 3}, {"sparsity": (2, 4)}, {}, {"sparsity": 1}])
def test_what_was_planned_is_asked_and_costs_no_more(model: str, options: Any) -> None:
    x, y, _ = rows(800, 30, 3, model=model)
    privacy = Central(1.0, 1e-5)
    found = fit(OMP(model), x, y, privacy, **options)
    asked = [r.slot for r in found.holder.transcript]
    assert asked == [m.slot for m in found.plan.mechanisms]
    assert delta_of(found.plan.events, 1.0) <= 1e-5
    assert found.plan.cost[0] > 0.99


@each_model
@pytest.mark.parametrize("neighbors", list(Neighbors))
def test_it_works_under_both_relations(model: str, neighbors: Neighbors) -> None:
    x, y, beta = rows(4000, 100, 3, model=model)
    guess = None if neighbors is Neighbors.REPLACE_ONE else 3900
    privacy = Central(4.0, 1e-6, neighbors=neighbors, rows=guess)
    assert relative(fit(OMP(model), x, y, privacy, sparsity=3), beta) < 0.25


@each_model
def test_sparse_rows_give_the_bits_of_dense_ones(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for values out of range, which are counted in dense rows alone."""
    monkeypatch.setattr(DeclaredDesign, "by_value", False)
    x, y, _ = rows(600, 50, 3, model=model)
    x = np.where(np.abs(x) > 0.8, x, 0.0)
    a = fit(OMP(model), x, y, Central(2.0, 1e-5), sparsity=3)
    b = fit(OMP(model), sparse.csr_array(x), y, Central(2.0, 1e-5), sparsity=3)
    assert np.array_equal(a.params, b.params)


# ---- bad data -----------------------------------------------------------------------------------


@each_model
def test_zero_and_duplicated_columns_do_no_harm(model: str) -> None:
    x, y, beta = rows(5000, 40, 2, model=model)
    one, two = np.flatnonzero(beta)
    spare = [j for j in range(40) if beta[j] == 0]
    x[:, spare[:10]] = 0.0
    x[:, spare[10:13]] = x[:, [one]]
    x[:, spare[13]] = -x[:, two]
    found = fit(OMP(model), x, y, Central(8.0, 1e-6), sparsity=4)
    missed = x @ (found.params - beta)
    assert np.std(missed) < 0.25 * np.std(x @ beta)


def constant(rng: Any, n: int, d: int) -> tuple[Any, Any]:
    return rng.uniform(-1, 1, (n, d)), np.full(n, 8.0)


def at_the_corners(rng: Any, n: int, d: int) -> tuple[Any, Any]:
    return rng.choice([-1.0, 1.0], (n, d)), rng.choice([-8.0, 8.0], n)


def all_alike(rng: Any, n: int, d: int) -> tuple[Any, Any]:
    return np.repeat(rng.uniform(-1, 1, (n, 1)), d, axis=1), rng.uniform(-8, 8, n)


def one_outlier(rng: Any, n: int, d: int) -> tuple[Any, Any]:
    x, y = np.full((n, d), 1e-4), np.zeros(n)
    x[0], y[0] = 1.0, 8.0
    return x, y


def nothing(rng: Any, n: int, d: int) -> tuple[Any, Any]:
    return np.zeros((n, d)), np.zeros(n)


ODDITIES = grid([one_outlier, at_the_corners, constant, all_alike, nothing], 2)


@each_model
@pytest.mark.parametrize("epsilon", grid([100.0, 0.1], 1))
@pytest.mark.parametrize("rows_of", ODDITIES)
def test_no_data_make_it_run_away(rows_of: Any, epsilon: float, model: str) -> None:
    x, y = rows_of(np.random.default_rng(3), 500, 30)
    y = (y > 0).astype(float) if model == "logit" else y
    for seed in range(3):
        found = fit(OMP(model), x, y, Central(epsilon, 1e-4), seed, sparsity=5)
        fitted = rows_of(np.random.default_rng(4), 500, 30)[0] @ found.params
        assert np.isfinite(found.params).all()
        assert np.median(np.abs(fitted)) < 4 * 8.0  # four times the largest response


@pytest.mark.full
@each_model
@pytest.mark.parametrize(("n", "epsilon"), [(300, 1.0), (500, 0.3), (2000, 0.1)])
def test_where_nothing_can_be_learned_zero_is_about_what_comes_out(
    n: int, epsilon: float, model: str
) -> None:
    # The mean over ten data sets; 1 is the error of zero coefficients.
    errors = []
    for seed in range(10):
        x, y, beta = rows(n, 300, 10, seed, model, scale=1.0)
        errors.append(
            relative(fit(OMP(model), x, y, Central(epsilon, 1e-6), seed, sparsity=10), beta)
        )
    assert np.mean(errors) < 1.1


@pytest.mark.full
@pytest.mark.parametrize("rho", [0.5, 0.8])
def test_correlated_columns_degrade_and_do_not_diverge(rho: float) -> None:
    errors = {1.0: [], 8.0: []}  # type: dict[float, list[float]]
    for seed in range(4):
        rng = np.random.default_rng([seed, int(10 * rho)])
        z = rng.normal(size=(4000, 200))
        for j in range(1, 200):
            z[:, j] = rho * z[:, j - 1] + np.sqrt(1 - rho**2) * z[:, j]
        x, beta = np.clip(z / 3, -1, 1), np.zeros(200)
        beta[50 + rng.choice(20, 5, replace=False)] = 2.0
        y = np.clip(x @ beta + SD * rng.normal(size=4000), -8, 8)
        for epsilon, found in errors.items():
            shown = fit(OMP("ols"), x, y, Central(epsilon, 1e-6), seed, sparsity=5)
            found.append(relative(shown, beta))
    assert np.mean(errors[1.0]) < 1.0
    assert np.mean(errors[8.0]) < {0.5: 0.15, 0.8: 0.45}[rho]


# ---- unknown sparsity ---------------------------------------------------------------------------


@pytest.mark.full
def test_without_a_sparsity_noise_decides_how_many_columns_stay() -> None:
    kept, errors = [], []
    for seed in range(5):
        x, y, beta = rows(5000, 300, 4, seed)
        found = fit(OMP("ols"), x, y, Central(4.0, 1e-6), seed)
        kept.append(len(found.estimate.support or ()))
        errors.append(relative(found, beta))
    assert found.plan.options["sparsity"] > 15
    assert np.mean(kept) < 6
    assert np.mean(errors) < 0.1


@pytest.mark.full
def test_several_sparsities_are_compared_at_a_cost() -> None:
    kept, errors = [], []
    for seed in range(5):
        x, y, beta = rows(4000, 200, 6, seed)
        found = fit(OMP("ols"), x, y, Central(4.0, 1e-6), seed, sparsity=(2, 6, 18))
        kept.append(len(found.estimate.support or ()))
        errors.append(relative(found, beta))
    assert "size" in {m.slot for m in found.plan.mechanisms}
    assert sorted(kept)[2] in (6, 7, 8)
    assert np.mean(errors) < 0.15


# ---- inference ----------------------------------------------------------------------------------


@each_model
def test_halves_together_cost_what_one_costs(model: str) -> None:
    x, y, _ = rows(2000, 50, 3, model=model)
    privacy = Central(2.0, 1e-6)
    found = fit(OMP(model), x, y, privacy, sparsity=3, inference="split")
    (event,) = found.plan.events
    assert isinstance(event, Parallel)
    assert found.plan.cost[0] <= 2.0
    for half in event.branches:
        assert delta_of(half, 2.0) == pytest.approx(1e-6, rel=0.01)
    assert {m.branch for m in found.plan.mechanisms} == {1, 2}
    assert found.estimate.inference == "conditional on selection"
    assert found.estimate.cov.shape == (3, 3)


@pytest.mark.full
@pytest.mark.parametrize("model", ["ols", pytest.param("logit", marks=pytest.mark.slow)])
def test_split_intervals_cover_the_selected_model(model: str) -> None:
    # Independent columns: the coefficients of the selected model are the true ones. 25 fits of 3
    # columns; under a coverage of 95 % fewer than 64 of 75 hits have probability < 1e-3.
    z: list[float] = []
    for seed in range(25):
        x, y, beta = rows(3000, 40, 3, seed, model, scale=1.5)
        found = fit(OMP(model), x, y, Central(4.0, 1e-6), seed, sparsity=3, inference="split")
        on = list(found.estimate.support or ())
        shape = design(40, model).standardization
        se = np.sqrt(np.diag(found.estimate.cov)) * shape.y_scale / shape.x_scale[on]
        z += [*(np.abs(found.params[on] - beta[on]) / se)]
    assert np.sum(np.array(z) < 1.96) >= 64
    # Power: intervals half as long are noticed. They would cover 67 %.
    assert np.sum(np.array(z) < 1.96 / 2) < 64


def test_no_standard_errors_without_a_split() -> None:
    x, y, _ = rows(1000, 50, 3)
    found = fit(OMP("ols"), x, y, Central(4.0, 1e-5), sparsity=3)
    assert found.estimate.inference == "none: selected on the same rows"
    assert np.isnan(found.estimate.cov).all()


def test_a_split_needs_one_number_of_columns_and_rows_that_stay_put() -> None:
    shape = design(50)
    with pytest.raises(OptionError, match="one number of columns"):
        OMP("ols").plan(shape, Central(1.0, 1e-6), 1000, inference="split")
    outside = Central(1.0, 1e-6, neighbors=Neighbors.ADD_REMOVE, rows=1000)
    with pytest.raises(OptionError, match="replace-one"):
        OMP("ols").plan(shape, outside, 1000, sparsity=3, inference="split")


# ---- planning -----------------------------------------------------------------------------------


@each_model
def test_a_hopeless_plan_names_an_n_that_would_do(model: str) -> None:
    import re

    method, shape, privacy = OMP(model), design(2000, model), Central(0.5, 1e-7)

    def hopeless(privacy: Central, n: int) -> list[str]:
        """Warnings but that of ranges whose scales noise hides."""
        said = method.plan(shape, privacy, n, sparsity=10).warnings
        return [text for text in said if "scales of columns" not in text]

    (warning,) = hopeless(privacy, 1000)
    n = int(re.search(r"About n=([\d,]+)", warning)[1].replace(",", ""))  # type: ignore[index]
    assert n > 2000
    assert not hopeless(replace(privacy, delta=1e-9), 2 * n)
    assert not hopeless(privacy, n)


def test_bad_options_are_refused() -> None:
    shape = design(20)
    with pytest.raises(OptionError, match="no column"):
        OMP("ols").plan(
            DeclaredDesign.from_arrays(1, {"exog": (1.0, 1.0), "endog": (-1.0, 1.0)}),
            Central(1.0, 1e-6),
            1000,
        )
    for bad in ({"sparsity": 0}, {"sparsity": 21}, {"sparsity": (3, 40)}, {"inference": "naive"}):
        with pytest.raises(OptionError):
            OMP("ols").plan(shape, Central(1.0, 1e-6), 1000, **bad)
    with pytest.raises(OptionError):
        OMP("ols").plan(shape, Central(1.0, 0.0), 1000, sparsity=3)


# ---- ridge --------------------------------------------------------------------------------------


@each_model
def test_with_a_large_epsilon_a_ridge_gives_the_penalised_minimiser(model: str) -> None:
    x, y, _ = rows(20_000, 6, 6, model=model)
    lam = 0.05
    found = fit(OMP(model), x, y, WITHOUT_NOISE, sparsity=6, lam=lam)
    beta = np.zeros(6)
    for _ in range(30):
        mean = 8 * x @ beta if model == "ols" else 1 / (1 + np.exp(-x @ beta))
        slope = np.ones(len(y)) if model == "ols" else mean * (1 - mean)
        unit = 8.0 if model == "ols" else 1.0  # responses are in units of their bound
        gradient = x.T @ (y - mean) / unit / len(y) - lam * beta
        beta += np.linalg.solve((x.T * slope) @ x / len(y) + lam * np.eye(6), gradient)
    assert found.estimate.params == pytest.approx(beta, rel=0.05)
    without = fit(OMP(model), x, y, WITHOUT_NOISE, sparsity=6).estimate.params
    assert np.linalg.norm(beta) < 0.92 * np.linalg.norm(without)


def test_a_ridge_is_checked_and_does_not_go_with_intervals() -> None:
    shape = design(20)
    for lam in (-1, "1", float("nan")):
        with pytest.raises(OptionError, match="lam="):
            OMP("ols").plan(shape, Central(1.0, 1e-6), 1000, sparsity=2, lam=lam)
    with pytest.raises(OptionError, match="without a penalty"):
        OMP("ols").plan(shape, Central(1.0, 1e-6), 1000, sparsity=2, lam=0.1, inference="split")


# ---- few columns, many rows ---------------------------------------------------------------------


def neighbours(n: int, model: str, seed: int) -> tuple[Any, Any, Any]:
    """AR(0.8) columns, scattered ones of which matter."""
    rng = np.random.default_rng([77, seed])
    x = rng.standard_normal((n, 30))
    for j in range(1, 30):
        x[:, j] = 0.8 * x[:, j - 1] + 0.6 * x[:, j]
    x = np.clip(x / 4, -1, 1)
    beta = np.zeros(30)
    beta[rng.choice(30, 8, replace=False)] = 4 * rng.choice([-1, 1], 8) * rng.uniform(0.3, 1, 8)
    return x, respond(x @ beta, rng, model), beta


@each_model
def test_where_noise_is_small_every_column_is_fitted_and_none_chosen(model: str) -> None:
    x, y, _ = neighbours(20_000, model, 0)
    for epsilon, choices in ((4.0, 0), (0.05, 3 if model == "logit" else 5)):
        found = fit(OMP(model), x, y, Central(epsilon, 1e-6), sparsity=8)
        assert sum(m.slot.startswith("choice") for m in found.plan.mechanisms) == choices
        assert epsilon_of(found.plan.events, 1e-6) == pytest.approx(epsilon, rel=0.02)
        planned = {m.slot for m in found.plan.mechanisms}
        assert {r.slot for r in found.holder.transcript} == planned
        assert np.count_nonzero(found.params) <= 8


@pytest.mark.full
@each_model
def test_fitting_every_column_finds_what_choosing_among_neighbours_misses(
    model: str, monkeypatch: Any
) -> None:
    def error() -> float:
        errors = []
        for seed in range(3):
            x, y, beta = neighbours(20_000, model, seed)
            found = fit(OMP(model), x, y, Central(4.0, 1e-6), seed, sparsity=8)
            errors.append(np.std(x @ (found.params - beta)) / np.std(x @ beta))
        return float(np.mean(errors))

    all_columns = error()
    monkeypatch.setattr(omp, "_cheap", lambda *_: False)
    assert all_columns < 0.1
    assert all_columns < 0.8 * error()


def test_a_curvature_that_noise_hides_makes_no_step_longer() -> None:
    """Where slopes seem to vanish, Newton steps overshoot, and the next ones by more."""
    for n, d, epsilon, scale, seed in ((1000, 40, 1.0, 4.0, 9), (2000, 20, 0.5, 6.0, 1)):
        x, y, beta = rows(n, d, 5, seed=seed, model="logit", scale=scale)
        found = fit(OMP("logit"), x, y, Central(epsilon, 1e-6), seed, sparsity=5)
        assert relative(found, beta) < 1.2


@pytest.mark.full
def test_steps_that_were_too_long_where_columns_vary_together_are_halved() -> None:
    """Second moments drown in noise; without halving two of these fits are .47 off."""
    for seed in range(4):
        rng, n, d = np.random.default_rng(seed), 12_000, 200
        z = rng.normal(size=(n, d))
        x = z.copy()
        for j in range(1, d):
            x[:, j] = 0.5 * x[:, j - 1] + np.sqrt(0.75) * z[:, j]
        data = {f"x{j}": x[:, j] for j in range(d)}
        data["y"] = x[:, :5].sum(axis=1) + rng.normal(size=n)
        schema = dp.Schema(
            {name: dp.Numeric(-5, 5, center=0, scale=1) for name in data}
            | {"y": dp.Numeric(-20, 20, center=0, scale=4)}
        )
        model = dp.ols("y ~ .", data, schema)
        fit = model.fit(dp.Central(1.0, 1e-6), method="omp", noise=dp.SeededNoise(seed))
        found = fit.params.reindex([f"x{j}" for j in range(d)]).fillna(0).to_numpy()
        assert np.linalg.norm(found - (np.arange(d) < 5)) / np.sqrt(5) < 0.2
