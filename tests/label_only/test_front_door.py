"""From a formula to a saved result, with the ledger charged first."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import dpstats as dp
from dpstats.errors import BudgetError, LedgerError, OptionError, TrustError
from dpstats.results import Released as Results
from tests.label_only.cases import SCALED, SCHEMAS, TRUTH, table

CUT = 0.5


@pytest.fixture
def data():
    return table(3000, 0)


def test_any_formula_is_fitted_and_kept(data, tmp_path):
    model = dp.ols("y ~ x1 + I(x2 > CUT) + C(g)", data=data, schema=SCALED)
    ledger = dp.Ledger.memory(1.0, 0.0)
    fit = model.fit(dp.LabelOnly(1.0), ledger, noise=dp.SeededNoise(1))
    assert ledger.spent[0] == pytest.approx(1.0)
    assert fit.plan.method == "label-ols"
    assert fit.design.covariates is None
    assert list(fit.params.index) == [
        "Intercept",
        "x1",
        "I(x2 > CUT)",
        "C(g)[T.b]",
        "C(g)[T.c]",
    ]
    fit.save(tmp_path / "fit.json")
    loaded = Results.load(tmp_path / "fit.json")
    assert loaded == fit
    new = data.drop(columns="y").iloc[:5]
    np.testing.assert_allclose(loaded.predict(new), fit.predict(new))
    assert "the response is private" in str(fit.summary())


def test_data_dependent_terms_fit_but_do_not_predict(data):
    fit = dp.ols("y ~ I(x1 - x1.mean()) + x2", data=data, schema=SCALED).fit(dp.LabelOnly(2.0))
    assert len(fit.params) == 3
    with pytest.raises(dp.errors.FormulaError, match="all rows at once"):
        fit.predict(data)


def test_the_ledger_refuses_before_a_response_is_read(data):
    ledger = dp.Ledger.memory(0.5, 0.0)
    with pytest.raises(BudgetError):
        dp.ols("y ~ x1", data=data, schema=SCALED).fit(dp.LabelOnly(1.0), ledger)
    assert ledger.spent[0] == 0


LABELS = dp.LabelOnly(0.5)
CENTRAL = dp.Central(0.5, 1e-6)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (("y ~ x1", CENTRAL), ("x1 ~ y", LABELS)),
        (("y ~ x1", LABELS), ("x1 ~ y", LABELS)),
        (("y ~ x1", LABELS), ("y ~ x1", CENTRAL)),
        (("y ~ x1", LABELS), ("y ~ x1", dp.Local(0.5))),
    ],
    ids=["central", "response", "label-only", "local"],
)
def test_a_ledger_takes_no_promise_that_another_fit_broke(data, first, then):
    """Covariates are published as they are, and with them what the other fit protects."""
    schema = dp.Schema({**SCALED, "x1": dp.Numeric(-5, 5)})
    ledger = dp.Ledger.memory(5.0, 1e-5)
    dp.ols(first[0], data, schema).fit(first[1], ledger)
    again = dp.ols(then[0], data, schema)
    assert not isinstance(then[1], dp.LabelOnly) or again.plan(then[1]).unit != "record"
    with pytest.raises(LedgerError, match=r"unit of privacy.*second ledger"):
        again.fit(then[1], ledger)
    with pytest.raises(LedgerError, match="unit of privacy"):
        ledger.can_afford(again.plan(then[1]))
    assert len(ledger.entries) == 1


def test_a_ledger_adds_up_fits_to_one_response_in_any_form(data):
    ledger = dp.Ledger.memory(5.0, 1e-5)
    schema = dp.Schema(y=dp.Numeric(-20, 20))
    for formula in ("y ~ x1", "np.exp(y / 10) ~ x1 + x2"):
        plan = dp.ols(formula, data, schema).plan(LABELS)
        assert plan.unit == "response 'y'"
        assert ledger.can_afford(plan)
        dp.ols(formula, data, schema).fit(LABELS, ledger)
    assert ledger.spent[0] == pytest.approx(1.0)


@pytest.mark.parametrize("curator", [False, True])
def test_a_share_of_private_trials_is_refused(curator):
    """Trials weigh rows where all columns are private; without them the answer is another one."""
    rng = np.random.default_rng(0)
    trials = np.where(rng.random(400) < 0.5, 1, 50)
    wins = rng.binomial(trials, 0.1)
    data = pd.DataFrame({"s": wins, "f": trials - wins})
    schema = dp.Schema(s=dp.Numeric(0, 50), f=dp.Numeric(0, 50))
    model = dp.glm("s + f ~ 1", data, schema, family="binomial")
    with pytest.raises(TrustError, match=r"'s \+ f' is a share of trials.*Central"):
        model.plan(dp.LabelOnly(2.0, 1e-6 * curator, curator=curator))


def test_responses_are_read_only_after_the_charge(data):
    class Watched(dict):
        def __getitem__(self, name):
            read.append(name)
            return super().__getitem__(name)

    read: list[str] = []
    watched = Watched({name: data[name].to_numpy() for name in data})
    model = dp.ols("y ~ x1 + x2", data=watched, schema=SCALED)
    model.plan(dp.LabelOnly(1.0))
    assert {"x1", "x2"} <= set(read)


def test_the_default_follows_who_holds_the_responses(data):
    model = dp.ols("y ~ x1 + x2 + g", data=data, schema=SCALED)
    assert model.plan(dp.LabelOnly(1.0)).method == "label-ols"
    assert model.plan(dp.LabelOnly(8.0, 1e-6, curator=True)).method == "label-curator-newton"
    # Where noise would hide how long scores are.
    assert model.plan(dp.LabelOnly(0.1, 1e-6, curator=True)).method == "label-curator"
    assert model.plan(dp.LabelOnly(1.0), sparsity=2).method == "label-lasso"
    curator = dp.LabelOnly(1.0, 1e-6, curator=True)
    assert model.plan(curator, sparsity=2).method == "label-curator-omp"
    assert model.plan(dp.LabelOnly(1.0), method="thresholded-ols").method == "thresholded-ols"
    with pytest.raises(OptionError, match="curator"):
        model.plan(dp.LabelOnly(1.0, curator=True), method="label-ols")
    with pytest.raises(TrustError):
        model.plan(dp.LabelOnly(1.0), method="adassp")


def test_glms_by_formula_and_the_mean(data):
    binary = table(3000, 1, "logit")
    logit = dp.logit("y ~ x1 + x2", data=binary, schema=SCHEMAS["logit"]).fit(dp.LabelOnly(4.0))
    assert logit.plan.options["channel"] == "binary"
    assert abs(logit.params["x1"] - TRUTH["logit"][1]) < 5 * logit.bse["x1"]
    assert (logit.exp_conf_int()["lower"] > 0).all()
    counts = table(3000, 1, "glm").assign(years=2.0)
    poisson = dp.glm("y ~ x1 + x2", counts, SCHEMAS["glm"], family="poisson", exposure="years").fit(
        dp.LabelOnly(8.0)
    )
    assert poisson.predict(counts.iloc[:3]).notna().all()
    mean = dp.mean("y", data, SCALED).fit(dp.LabelOnly(4.0))
    assert abs(mean.params["y"] - data["y"].mean()) < 5 * mean.bse["y"]


def test_a_linear_probability_model_sends_one_bit():
    data = table(500, 1, "logit").assign(y=lambda d: d["y"] > 0)
    plan = dp.ols("y ~ x1 + x2", data, dp.Schema(y=dp.Boolean())).plan(dp.LabelOnly(4.0))
    assert plan.options["channel"] == "binary"


def test_arrays_and_sparse_matrices_by_the_front_door():
    rng = np.random.default_rng(0)
    x = sp.random(4000, 600, 0.02, format="csr", random_state=0)
    y = np.clip(np.asarray(4 * x[:, [5]].todense()).ravel() + 0.2 * rng.normal(size=4000), -4, 4)
    model = dp.OLS(y, x, bounds={"endog": (-4, 4), "exog": (0, 1)})
    fit = model.fit(dp.LabelOnly(8.0))
    assert fit.plan.method == "label-lasso"
    assert "x6" in fit.selected


def test_results_hold_no_array_of_rows(data):
    n = len(data)
    fit = dp.ols("y ~ x1 + x2", data=data, schema=SCALED).fit(dp.LabelOnly(1.0))
    text = fit.to_json()
    assert len(text) < 20_000
    assert str(data["x1"][17]) not in text
    assert all(np.size(v) < n for v in vars(fit.estimate).values() if isinstance(v, np.ndarray))


def test_missing_covariates_are_public_and_said(data):
    data.loc[:9, "x1"] = np.nan
    fit = dp.ols("y ~ x1 + x2", data=data, schema=SCALED).fit(dp.LabelOnly(2.0))
    assert fit.nobs == len(data) - 10
    assert "10 of 3,000 rows were left out" in " ".join(str(fit.summary()).split())
