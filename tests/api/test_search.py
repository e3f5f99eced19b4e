"""A private search over settings: one charge for all of it, noisy scores, nothing of the rows."""

from __future__ import annotations

import pickle
import warnings
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dpstats as dp
from dpstats.accounting import Gaussian, Laplace, Ledger, Pure, Selection, epsilon_of
from dpstats.errors import BudgetError, DPStatsError, OptionError, PrivateQuantityError
from dpstats.sklearn import PrivateGridSearch, PrivateLinearRegression, PrivateLogisticRegression
from dpstats.sklearn import search as module
from dpstats.sklearn.base import PrivateRegression
from tests.contracts.reach import Secrets, in_frames

N, DELTA = 4000, 1e-6
RNG = np.random.default_rng(11)
X = RNG.uniform(-1, 1, size=(N, 3))
Y = 5 + X @ [1.0, -0.5, 0.0] + RNG.normal(size=N)
BOUNDS = {"X": (-1, 1), "y": (-5, 15)}
LINEAR = PrivateLinearRegression(bounds=BOUNDS)
GRID = {"fit_intercept": [True, False]}


def search(grid: Any = GRID, **changed: Any) -> PrivateGridSearch:
    asked = {"epsilon": 2.0, "delta": DELTA, "noise": dp.SeededNoise(1), **changed}
    return PrivateGridSearch(LINEAR, grid, **asked)


def test_the_entry_of_the_ledger_is_the_composition_of_all_that_ran(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    charged: list[tuple[Any, Any]] = []
    charge = Ledger.charge
    monkeypatch.setattr(
        Ledger,
        "charge",
        lambda self, plan, *a, **k: charged.append((self, plan)) or charge(self, plan, *a, **k),
    )
    ledger = Ledger.memory(3.0, 1e-5)
    made = search(ledger=ledger).fit(X, Y)
    (entry,) = ledger.entries
    assert tuple(entry.events) == made.plan_.events
    assert (entry.epsilon, entry.delta) == (2.0, DELTA)
    assert 1.9 < epsilon_of(entry.events, DELTA) <= 2.0
    (whole, *fits) = charged
    assert whole[0] is ledger
    assert all(other is not ledger for other, _ in fits)
    parallel, *last = entry.events
    train, held_out = parallel.branches
    ran = [Counter(plan.events) for _, plan in fits]
    assert len(ran) == 2 * 2 + 1, "a fit and a loss of each setting, and the last fit"
    assert ran[0] + ran[2] == Counter(train)
    assert ran[1] + ran[3] == Counter(held_out)
    assert ran[4] <= Counter(last)
    assert [plan.n for _, plan in fits] == [2800, 1200] * 2 + [N]


def test_whichever_setting_is_chosen_its_mechanisms_are_charged() -> None:
    one = (Gaussian(2.0), Gaussian(3.0), Selection(0.1, 2), Laplace(4.0))
    two = (Gaussian(1.5), Laplace(4.0), Laplace(4.0), Pure(0.2))
    for plans in ((one, two), (two, one)):
        whole = module._whichever([SimpleNamespace(events=events) for events in plans])  # type: ignore[misc]
        expected = [Gaussian(1.5), Selection(0.1, 2), Laplace(4.0), Laplace(4.0), Pure(0.2)]
        assert Counter(whole) == Counter(expected), "of Gaussian events those with the larger mu"
    grid = [{"method": ["omp", "frank-wolfe"], "sparsity": [1]}, {"fit_intercept": [True]}]
    plan = search(grid, noise=None).plan(X, Y)
    assert tuple(plan.events[1:]) == module._whichever(plan.refits)
    assert 1.8 < epsilon_of(plan.events, DELTA) <= 2.0


def test_no_row_is_read_before_the_charge(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*given: Any) -> None:
        raise AssertionError("rows were read")

    monkeypatch.setattr(module, "_safe_indexing", read)
    ledger = Ledger.memory(1.0, 1e-5)
    with pytest.raises(BudgetError, match=r"remaining: epsilon=1"):
        search(ledger=ledger).fit(X, Y)
    assert not ledger.entries
    ledger = Ledger.memory(3.0, 1e-5)
    plan = search(ledger=ledger).plan(np.full_like(X, np.nan), np.full_like(Y, np.nan))
    assert plan.events == search().plan(X, Y).events
    assert not ledger.entries


def test_with_little_noise_the_choice_is_that_of_exact_losses() -> None:
    made = search(epsilon=200.0).fit(X, Y)
    assert made.best_params_ == {"fit_intercept": True}
    losses = -made.cv_results_["mean_test_score"]
    design = np.column_stack([np.ones(N), X])
    exact = np.mean((Y - design @ np.linalg.lstsq(design, Y)[0]) ** 2)
    assert losses[0] == pytest.approx(exact, abs=0.12)
    assert made.best_score_ == -losses[0]
    assert list(made.cv_results_["rank_test_score"]) == [1, 2]
    assert made.best_estimator_.coef_ == pytest.approx([1.0, -0.5, 0.0], abs=0.1)


def test_noise_changes_the_choice() -> None:
    """Of settings that are nearly alike each is chosen: an exact choice would be one, always."""
    grid = {"method": ["newton", "adassp"]}
    chosen = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(12):
            made = search(grid, epsilon=0.5, noise=dp.SeededNoise(seed)).fit(X[:1500], Y[:1500])
            chosen.add(made.best_params_["method"])
    assert chosen == {"newton", "adassp"}


def test_nothing_that_is_kept_is_of_the_rows() -> None:
    x, y = X.copy(), Y.copy()
    x[7], y[7] = 0.123456789012, 6.98765432101
    made = search().fit(x, y)
    secrets = Secrets((0.123456789012, 6.98765432101), (), N)
    assert not secrets.in_object(made)
    assert secrets.in_object({"planted": x}), "the search sees"
    assert len(pickle.dumps(made)) < 100_000
    assert all("NOT private" in mark for mark in made.cv_results_["noise"])
    for name, kept in made.cv_results_.items():
        assert len(kept) == 2, name


def test_an_error_after_the_charge_holds_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Any, rows: Any, responses: Any) -> None:
        raise RuntimeError("stopped")

    monkeypatch.setattr(PrivateRegression, "_losses", fails)
    with pytest.raises(RuntimeError) as caught:
        search().fit(X, Y)
    kept = [t for t in in_frames(caught.value, {id(X), id(Y)}) if isinstance(t, np.ndarray)]
    assert not [a for a in kept if a.size >= 100 and not np.shares_memory(a, X)]


def test_it_predicts_and_refuses_an_exact_score() -> None:
    event = RNG.uniform(size=N) < 1 / (1 + np.exp(-3 * X[:, 0]))
    asked = {"epsilon": 2.0, "delta": DELTA}
    made = PrivateGridSearch(PrivateLogisticRegression(bounds={"X": (-1, 1)}), GRID, **asked)
    made.fit(X, event)
    assert made.predict_proba(X[:3]).shape == (3, 2)
    assert set(made.predict(X[:50])) <= {0, 1}
    assert 0.1 < -made.best_score_ < 0.3, "a Brier score"
    assert made.results_.params.index[-1] == "x2"
    with pytest.raises(PrivateQuantityError, match=r"dpstats\.evaluate"):
        made.score(X, event)
    assert not hasattr(search(), "predict_proba")
    assert "noise" not in made.cv_results_


def test_a_table_and_its_schema_are_searched_too() -> None:
    schema = dp.Schema(a=dp.Numeric(-1, 1), g=dp.Categorical(["u", "v"]), y=dp.Numeric(-5, 15))
    rows = pd.DataFrame({"a": X[:, 0], "g": RNG.choice(["u", "v"], N)})
    estimator = PrivateLinearRegression(schema=schema)
    made = PrivateGridSearch(estimator, GRID, epsilon=2.0, delta=DELTA).fit(rows, pd.Series(Y))
    assert list(made.best_estimator_.coef_names_)
    assert clone(made).get_params()["epsilon"] == 2.0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"estimator": make_pipeline(StandardScaler(), PrivateLinearRegression())},
            "without noise",
        ),
        ({"estimator": None}, "PrivateLogisticRegression is needed"),
        ({"param_grid": {"epsilon": [1.0, 2.0]}}, "names epsilon"),
        ({"param_grid": {"bounds": [BOUNDS]}}, "names bounds"),
        ({"param_grid": {"sparsitty": [1]}}, "fit_intercept, method, sparsity"),
        ({"param_grid": {}}, "nothing that is a setting"),
        ({"param_grid": 3}, "nothing that is a setting"),
        ({"epsilon": None}, "never a default"),
        ({"refit_share": 1.0}, "refit_share=1.0: a share"),
        ({"test_share": 1e-9}, "too few"),
        ({"noise": 3}, "noise"),
    ],
)
def test_what_is_wrong_is_refused_before_the_charge(changed: Any, message: str) -> None:
    ledger = Ledger.memory(3.0, 1e-5)
    with pytest.raises(DPStatsError, match=message):
        search(ledger=ledger).set_params(**changed).fit(X, Y)
    assert not ledger.entries


# Bounds -------------------------------------------------------------------------------------------

TWO = X[:, :2]
AMBIGUOUS = [
    ([18, 20], [90, 100]),
    [[18, 20], [90, 100]],
    np.array([[0, 5], [1, 9]]),
    ((0, 0), (1, 1)),
]


@pytest.mark.parametrize("ends", AMBIGUOUS, ids=str)
def test_bounds_that_can_be_read_both_ways_are_refused_before_the_charge(ends: Any) -> None:
    ledger = Ledger.memory(3.0, 1e-5)
    bounds = {"X": ends, "y": (-5, 15)}
    made = PrivateLinearRegression(1.0, DELTA, bounds=bounds, ledger=ledger)
    (a, b), (c, d) = np.asarray(ends).tolist()
    both = rf"pairs, from {a} to {b} and from {c} to {d}, and as lowers and uppers, from {a} to {c}"
    with pytest.raises(OptionError, match=both):
        made.fit(TWO, Y)
    assert not ledger.entries
    with pytest.raises(OptionError, match=both):
        dp.OLS(Y, TWO, {"endog": (-5, 15), "exog": ends})


@pytest.mark.parametrize(
    "ends",
    [
        [(-1, 2), (0, 3)],
        {"lower": [-1, 0], "upper": [2, 3]},
        {"lower": np.array([-1, 0]), "upper": (2, 3)},
    ],
    ids=str,
)
def test_pairs_and_named_ends_are_one_declaration(ends: Any) -> None:
    design = dp.OLS(Y, TWO, {"endog": (-5, 15), "exog": ends}).design
    assert design.bounds.tolist() == [[-1, 2], [0, 3]]
    made = PrivateLinearRegression(1.0, DELTA, bounds={"X": ends, "y": (-5, 15)})
    assert made._model(TWO, Y).design.bounds[1:].tolist() == [[-1, 2], [0, 3]]


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ([[-1, 1], [-1, 1]], [[-1, 1], [-1, 1]]),  # lowers above uppers the other way
        (np.array([[0, 1], [1, 3]]), [[0, 1], [1, 3]]),  # the same both ways
        ({"lower": 0, "upper": 1}, [[0, 1], [0, 1]]),
        ((0, 1), [[0, 1], [0, 1]]),
    ],
    ids=str,
)
def test_bounds_with_one_reading_are_taken(ends: Any, expected: Any) -> None:
    assert dp.OLS(Y, TWO, {"endog": (-5, 15), "exog": ends}).design.bounds.tolist() == expected


@pytest.mark.parametrize(
    "ends", [{"low": 0, "high": 1}, {"lower": [0, 1, 2], "upper": 3}, {"lower": "a", "upper": 1}]
)
def test_named_ends_are_two_and_as_many_as_columns(ends: Any) -> None:
    with pytest.raises(OptionError, match="'lower'"):
        dp.OLS(Y, TWO, {"endog": (-5, 15), "exog": ends})


def test_lowers_and_uppers_of_three_columns_say_how_to_write_them() -> None:
    made = PrivateLinearRegression(1.0, DELTA, bounds={"X": ([0] * 3, [1] * 3), "y": (-5, 15)})
    with pytest.raises(OptionError, match=r"'lower': \[...\]"):
        made.fit(X, Y)
