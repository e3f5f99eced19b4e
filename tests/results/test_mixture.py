"""Results of a mixture: what they say of components and of new rows, written, drawn and refused."""

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
from dpstats.protocol.mixtures import mixture_names
from dpstats.results.mixture import MixtureResults
from tests.estimators.mixture_cases import PLANE, fitted, rows


@pytest.fixture(scope="module")
def fit():
    made = fitted(rows(PLANE, 4_000, 1), 1)
    yield made
    plt.close("all")


def laws(fit):
    return [
        stats.multivariate_normal(fit.means.loc[j], fit.covariances[j]) for j in fit.weights.index
    ]


def test_components_come_heaviest_first_under_their_names(fit):
    assert type(fit) is MixtureResults
    assert fit.weights.is_monotonic_decreasing
    assert fit.weights.sum() == pytest.approx(1)
    assert list(fit.means.columns) == ["a", "b"]
    assert fit.params["mean of b [3]"] == fit.means.loc[3, "b"]
    assert fit.params["sd of a [1]"] == pytest.approx(np.sqrt(fit.covariances[1].loc["a", "a"]))


def test_densities_and_probabilities_are_those_of_scipy(fit):
    new = rows(PLANE, 30, 7)
    parts = np.array([w * law.pdf(new) for w, law in zip(fit.weights, laws(fit), strict=True)])
    np.testing.assert_allclose(fit.score_samples(new), np.log(parts.sum(axis=0)))
    shares = fit.predict_proba(new)
    np.testing.assert_allclose(shares.to_numpy().T, parts / parts.sum(axis=0), atol=1e-12)
    np.testing.assert_array_equal(fit.predict(new), parts.argmax(axis=0) + 1)
    new.loc[3, "a"] = np.nan
    assert fit.predict(new)[3] == 0
    assert fit.predict_proba(new).loc[3].isna().all()


def test_rows_that_are_drawn_follow_the_mixture(fit):
    made = fit.sample(20_000, seed=3)
    pd.testing.assert_frame_equal(made, fit.sample(20_000, seed=3))
    mean = fit.weights @ fit.means
    se = made.std() / np.sqrt(20_000)
    assert (((made.mean() - mean) / se).abs() < 4.5).all()
    shares = fit.predict(made).value_counts(normalize=True).sort_index()
    np.testing.assert_allclose(shares, fit.weights, atol=0.03)
    for n in (0, 2.5):
        with pytest.raises(OptionError, match="whole number"):
            fit.sample(n, seed=1)


def test_intervals_are_by_component_and_parameter_and_nothing_is_tested(fit):
    table = fit.conf_int(0.1)
    assert table.index.names == ["component", "parameter"]
    z = stats.norm.ppf(0.95)
    low, high = table.loc[2, "weight"]
    assert high - low == pytest.approx(2 * z * fit.bse["weight [2]"])
    assert fit.pvalues.isna().all()
    with pytest.raises(OptionError, match="conf_int"):
        fit.t_test("weight [1] = 0")
    tidy = fit.tidy(0.1)
    np.testing.assert_array_equal(tidy[["conf.low", "conf.high"]], table)
    np.testing.assert_array_equal(tidy["estimate"], fit.params)
    assert "The model ~ " in fit.describe()


def test_the_summary_has_a_group_for_each_component(fit):
    page = str(fit.summary())
    for text in ("component 1:", "component 3:", "Goodness of fit, p:", "Components:"):
        assert text in page
    assert "coef" not in fit.to_html().lower()


def test_components_that_were_not_chosen_are_no_columns(fit):
    """They were once counted as fourteen columns that were not selected."""
    data = json.loads(fit.to_json())
    data["estimate"]["asked"] = 5
    data["plan"]["parameters"] = mixture_names(5, fit.estimate.columns)
    data["plan"] |= {key: [] for key in ("predicted_se", "predicted_range", "predicted_units")}
    page = str(dp.Results.from_dict(data).summary())
    assert "3 (of at most 5)" in page
    assert "not selected" not in page
    assert "of at most" not in str(fit.summary())


def test_what_has_no_interval_has_no_covariance_either(fit):
    data = json.loads(fit.to_json())
    data["estimate"]["inference"] = "none: noise hides components"
    assert dp.Results.from_dict(data).cov_type == "none"
    assert fit.cov_type == "sampling + privacy"


def test_a_result_is_written_and_read_again(fit, tmp_path):
    fit.save(tmp_path / "fit.json")
    for again in (dp.load(tmp_path / "fit.json"), copy.copy(fit), pickle.loads(pickle.dumps(fit))):
        assert again == fit
        pd.testing.assert_frame_equal(again.means, fit.means)
        np.testing.assert_array_equal(again.covariances[2], fit.covariances[2])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("weights", [0.5, 0.5]),
        ("weights", [1.5, -0.3, -0.2]),
        ("means", [[0.0, 0.0]]),
        ("covariances", [[[1.0, 0.0], [0.0, -1.0]]] * 3),
        ("cov", [[1.0]]),
        ("columns", ["a", "c"]),
        ("asked", 2),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(fit, name, value):
    data = json.loads(fit.to_json())
    data["estimate"][name] = value
    with pytest.raises(OptionError):
        dp.Results.from_dict(data)


def test_components_are_drawn_as_ellipses_and_as_densities(fit):
    ax = dp.plot.mixture(fit)
    rings = [line for line in ax.lines if len(line.get_xdata()) > 1]
    assert len(rings) == 6
    law = laws(fit)[0]
    inside = np.linalg.solve(law.cov, (rings[1].get_xydata() - law.mean).T).T
    squares = np.einsum("ij,ij->i", inside, rings[1].get_xydata() - law.mean)
    np.testing.assert_allclose(squares, stats.chi2.ppf(0.95, 2))
    ax = dp.plot.mixture(fit, ["b"])
    x, y = ax.lines[0].get_xydata().T
    assert np.trapezoid(y, x) == pytest.approx(1, abs=1e-3)
    assert "NOT private" in ax.get_title(loc="left")
    for wrong in (["c"], ["a", "a"], []):
        with pytest.raises(OptionError, match="columns="):
            dp.plot.mixture(fit, wrong)


def test_it_is_compared_with_others(fit):
    table = dp.compare([fit, fit], ["one", "two"]).tables[0]
    assert table.loc["weight [1]", "one"] == table.loc["weight [1]", "two"]
