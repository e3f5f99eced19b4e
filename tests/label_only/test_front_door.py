"""From a formula to a saved result, with the ledger charged first."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import dpstats as dp
from dpstats.errors import BudgetError, OptionError, TrustError
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
