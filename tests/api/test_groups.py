"""Fits of all levels of a factor are charged once, for what one changed row can change of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

import dpstats as dp
from dpstats.accounting import Ledger, epsilon_of
from dpstats.accounting.calibration import gdp_mu
from dpstats.errors import BudgetError, OptionError, TrustError
from dpstats.holders import curator
from tests.api.test_subset import SCHEMA, table

CENTRAL = dp.Central(1.0, 1e-6)
ADDED = dp.Central(1.0, 1e-6, neighbors="add-remove", rows=6_000)


def model(data: Any, schema: dp.Schema = SCHEMA) -> Any:
    return dp.by("g", dp.ols("y ~ age", data, schema))


def released(data: pd.DataFrame, privacy: Any, answers: list[Any] | None = None) -> list[Any]:
    """Exact answers, sensitivities and events of all fits; noisy answers are these, if given."""
    seen: list[Any] = []
    original = curator.release

    def release(answer: Any, sensitivity: float, event: Any, *rest: Any) -> Any:
        made = original(answer, sensitivity, event, *rest)
        if answers is not None:
            made = answers[len(seen)][3]
        seen.append((np.array(answer), sensitivity, event, made))
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curator, "release", release)
        model(data).fit(privacy, noise=dp.SeededNoise(1))
    return seen


def lost(one: list[Any], other: list[Any]) -> np.ndarray:
    """Squared Gaussian parameter that the change of one row spends in each fit, at most."""
    spent = [
        (np.linalg.norm(np.ravel(a[0] - b[0])) / (a[1] * a[2].noise_multiplier)) ** 2
        if a[0].size < 60
        else (np.abs(a[0] - b[0]).max() / (a[1] * a[2].noise_multiplier)) ** 2
        for a, b in zip(one, other, strict=True)
    ]
    return np.reshape(spent, (3, -1)).sum(axis=1)


@pytest.mark.parametrize("to", ["a", "b", "c", None])
def test_a_row_that_changes_its_level_spends_no_more_than_is_charged(to: Any) -> None:
    """The answers of the third level are the same to the last bit."""
    data = table(600, 2)
    data.loc[7, ["g", "y", "age"]] = ["a", 20.0, 90.0]
    other = data.copy()
    other.loc[7, ["g", "y", "age"]] = [to, -10.0, 0.0]
    first = released(data, CENTRAL)
    spent = lost(first, released(other, CENTRAL, first))
    assert spent.sum() <= gdp_mu(1.0, 1e-6) ** 2
    assert ((spent > 0) == [True, to == "b", to == "c"]).all()
    assert spent.max() <= gdp_mu(1.0, 1e-6) ** 2 / 2 * (1 + 1e-6)  # of one fit


def test_an_added_row_changes_one_level_alone() -> None:
    data = table(600, 2)
    more = pd.concat([data, data.iloc[:1].assign(g="b", y=20.0)], ignore_index=True)
    first = released(data, ADDED)
    spent = lost(first, released(more, ADDED, first))
    assert (spent > 0).tolist() == [False, True, False]
    assert spent.sum() <= gdp_mu(1.0, 1e-6) ** 2


def test_levels_cost_their_maximum_under_add_remove_and_two_of_them_under_replace_one() -> None:
    data = table(3_000, 1)
    single = dp.ols("y ~ age", data, SCHEMA)
    added, replaced = model(data).plan(ADDED), model(data).plan(CENTRAL)
    assert added.cost[0] == pytest.approx(single.plan(ADDED).cost[0], rel=1e-6)
    assert replaced.cost[0] <= 1.0
    assert replaced.cost[0] == pytest.approx(1.0, rel=1e-3)
    one = dp.ols("y ~ age", data, SCHEMA, subset="g == 'a'").plan(CENTRAL)
    ratio = model(data)._prepared(CENTRAL, None, {})[0][0].plan.noise_multiplier("count")
    assert ratio / one.noise_multiplier("count") == pytest.approx(np.sqrt(2), rel=0.01)
    # Three fits by themselves, each at (1, 1e-6), would cost as much as this.
    assert epsilon_of(one.events * 3, 1e-6) > 1.7


def test_rows_of_one_person_may_be_at_all_levels() -> None:
    data = table(3_000, 1).assign(who=np.arange(3_000) // 2)
    schema = dp.Schema(dict(SCHEMA), unit="who", max_rows=2)
    privacy = dp.Central(1.0, 1e-6, rows=3_000)
    plan = model(data, schema).plan(privacy)
    assert len(plan.mechanisms) == 3
    assert plan.cost[0] <= 1.0


def test_each_level_is_fitted_and_the_ledger_is_charged_once() -> None:
    data, ledger, exact = table(6_000, 4), Ledger.memory(500.0, 1e-5), dp.Central(300.0, 1e-6)
    fits = dp.by("g", dp.ols("y ~ age", data, SCHEMA, subset="urban")).fit(
        exact, ledger, noise=dp.SeededNoise(3)
    )
    assert list(fits) == ["a", "b", "c"]
    for level, fit in fits.items():
        rows = data[data.urban & (data.g == level)]
        assert fit.params.to_numpy() == pytest.approx(
            smf.ols("y ~ age", rows).fit().params.to_numpy(), abs=0.05
        )
        assert fit.design.subset == f"(urban) & g == {level!r}"
    (entry,) = ledger.entries
    assert entry.label == "y ~ age of urban by g"
    assert ledger.spent[0] <= 300.0
    assert fits.frame().index.names[0] == "g"
    assert len(fits.frame()) == 6
    assert len({tuple(fit.params) for fit in fits.values()}) == 3


def test_what_cannot_be_paid_or_proved_is_refused_before_anything_is_read() -> None:
    data, poor = table(300, 4), Ledger.memory(0.5, 1e-7)
    with pytest.raises(BudgetError):
        model(data).fit(CENTRAL, poor)
    with pytest.raises(TrustError, match="one curator"):
        model(data).fit(dp.Local(1.0), poor)
    with pytest.raises(OptionError, match="Categorical or Boolean"):
        dp.by("age", dp.ols("y ~ age", data, SCHEMA))
    with pytest.raises(OptionError, match="a model is needed"):
        dp.by("g", data)  # type: ignore[arg-type]
    assert not poor.entries


@pytest.mark.parametrize("make", [dp.mean, dp.quantile, dp.histogram])
def test_other_models_have_levels_too(make: Any) -> None:
    fits = dp.by("urban", make("y", table(3_000, 1), SCHEMA)).fit(
        dp.Central(100.0, 1e-6), noise=dp.SeededNoise(1)
    )
    assert list(fits) == [False, True]
    assert fits[True].nobs == pytest.approx(900, rel=0.1)


def test_pure_privacy_is_divided() -> None:
    plan = dp.by("g", dp.mean("y", table(3_000, 1), SCHEMA)).plan(dp.Central(1.0))
    assert plan.cost[0] <= 1.0 + 1e-9
