"""Results of a mixture of regressions: components, new rows, written, drawn and refused."""

from __future__ import annotations

import copy
import json
import pickle

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpstats as dp
from dpstats.errors import OptionError
from dpstats.results.regression_mixture import RegressionMixtureResults
from dpstats.results.report import html_report
from tests.estimators.regression_mixture_cases import fitted, rows


@pytest.fixture(scope="module")
def fit():
    made = fitted(rows(4_000, 1), 1)
    yield made
    plt.close("all")


def test_components_come_heaviest_first_under_their_names(fit):
    assert type(fit) is RegressionMixtureResults
    assert fit.weights.is_monotonic_decreasing
    assert fit.weights.sum() == pytest.approx(1)
    assert list(fit.components.columns) == ["Intercept", "a", "b"]
    assert fit.params["b [2]"] == fit.components.loc[2, "b"]
    assert fit.params["sigma"] == fit.sigma


def test_predictions_are_means_in_components_and_over_them(fit):
    new = rows(20, 7)
    x = np.column_stack([np.ones(20), new[["a", "b"]]])
    means = x @ fit.components.to_numpy().T
    np.testing.assert_allclose(fit.predict_components(new), means)
    np.testing.assert_allclose(fit.predict(new), means @ fit.weights.to_numpy())
    new.loc[3, "a"] = np.nan
    assert fit.predict(new.drop(columns="y")).isna().to_numpy().nonzero()[0].tolist() == [3]


def test_probabilities_are_those_of_the_densities_of_scipy(fit):
    new = rows(20, 8)
    means = fit.predict_components(new).to_numpy()
    dense = fit.weights.to_numpy() * stats.norm(means, fit.sigma).pdf(new["y"].to_numpy()[:, None])
    expected = dense / dense.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(fit.predict_proba(new), expected, atol=1e-10)
    new.loc[2, "y"] = np.nan
    assert fit.predict_proba(new).isna().all(axis=1).to_numpy().nonzero()[0].tolist() == [2]
    with pytest.raises(dp.errors.DataError, match="y"):
        fit.predict_proba(new.drop(columns="y"))


def test_log_densities_are_those_of_scipy(fit):
    new = rows(20, 8)
    means = fit.predict_components(new).to_numpy()
    dense = fit.weights.to_numpy() * stats.norm(means, fit.sigma).pdf(new["y"].to_numpy()[:, None])
    np.testing.assert_allclose(fit.score_samples(new), np.log(dense.sum(axis=1)))
    new.loc[2, "y"] = np.nan
    assert fit.score_samples(new).isna().to_numpy().nonzero()[0].tolist() == [2]


def test_drawn_responses_follow_the_released_mixture(fit):
    """By the distribution function that the mixture has for each row (Kolmogorov-Smirnov)."""
    new = rows(4_000, 9).drop(columns="y")
    drawn = fit.sample(new, seed=3)
    pd.testing.assert_series_equal(drawn, fit.sample(new, seed=3))
    assert drawn.name == "y"
    z = (drawn.to_numpy()[:, None] - fit.predict_components(new).to_numpy()) / fit.sigma
    below = stats.norm.cdf(z) @ fit.weights.to_numpy()
    assert stats.kstest(below, "uniform").pvalue > 1e-3
    assert stats.kstest(stats.norm.cdf(0.8 * z) @ fit.weights.to_numpy(), "uniform").pvalue < 1e-3
    with pytest.raises(OptionError, match="seed"):
        fit.sample(new, seed=-1)


def test_a_response_that_is_a_term_is_read_as_in_the_fit():
    data = rows(4_000, 2)
    data["y"] = np.exp(data["y"])
    known = dp.Schema(a=dp.Numeric(-2, 2), b=dp.Numeric(-2, 2), y=dp.Numeric(0.001, 900))
    fit = fitted(data, 2, formula="np.log(y) ~ a + b", schema=known)
    means = fit.predict_components(data).to_numpy()
    dense = fit.weights.to_numpy() * stats.norm(means, fit.sigma).pdf(np.log(data[["y"]]))
    np.testing.assert_allclose(
        fit.predict_proba(data), dense / dense.sum(axis=1, keepdims=True), atol=1e-10
    )


def test_intervals_are_by_component_and_parameter_and_coefficients_are_tested(fit):
    table = fit.conf_int(0.1)
    assert table.index.names == ["component", "parameter"]
    low, high = table.loc[(2, "a")]
    assert high - low == pytest.approx(2 * stats.norm.ppf(0.95) * fit.bse["a [2]"])
    assert table.loc[("all", "sigma"), 0] < fit.sigma < table.loc[("all", "sigma"), 1]
    assert fit.pvalues["a [1]"] < 1e-6
    assert fit.pvalues[["weight [1]", "weight [2]", "sigma"]].isna().all()
    difference = fit.t_test("a [1] = a [2]")
    assert difference.effect[0] == pytest.approx(fit.params["a [1]"] - fit.params["a [2]"])
    with pytest.raises(OptionError, match="conf_int"):
        fit.t_test("weight [1] = 0")


def test_the_summary_and_the_report_have_a_group_for_each_component(fit):
    page = str(fit.summary())
    for text in ("component 1:", "component 2:", "errors:", "Goodness of fit, p:", "Components:"):
        assert text in page
    assert "<svg" in html_report(fit)


def test_a_result_is_written_and_read_again(fit, tmp_path):
    fit.save(tmp_path / "fit.json")
    for again in (dp.load(tmp_path / "fit.json"), copy.copy(fit), pickle.loads(pickle.dumps(fit))):
        assert again == fit
        pd.testing.assert_frame_equal(again.components, fit.components)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("weights", [1.0]),
        ("weights", [1.5, -0.5]),
        ("coef", [[0.0, 0.0]]),
        ("sigma", 0.0),
        ("cov", [[1.0]]),
        ("columns", ["Intercept", "a", "c"]),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(fit, name, value):
    data = json.loads(fit.to_json())
    data["estimate"][name] = value
    with pytest.raises(OptionError):
        dp.Results.from_dict(data)


def test_components_are_drawn_as_lines(fit):
    ax = dp.plot.mixture(fit)
    x, y = ax.lines[0].get_xydata().T
    slope = (y[1] - y[0]) / (x[1] - x[0])
    assert slope == pytest.approx(fit.components.loc[1, "a"])
    assert "NOT private" in ax.get_title(loc="left")
    assert dp.plot.mixture(fit, ["b"]).get_xlabel() == "b"
    for wrong in (["c"], ["a", "b"], []):
        with pytest.raises(OptionError, match="columns="):
            dp.plot.mixture(fit, wrong)


def test_it_is_compared_and_drawn_with_others(fit):
    table = dp.compare([fit, fit], ["one", "two"]).tables[0]
    assert table.loc["a [1]", "one"] == table.loc["a [1]", "two"]
    dp.plot.coefficients([fit, fit], ["one", "two"])
    assert fit.__maketables_coef_table__.loc["a [1]", "ci95l"] < fit.params["a [1]"]
