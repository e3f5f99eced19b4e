"""Results of symmetric mixtures: what they say of new rows, the file, the summary."""

from __future__ import annotations

import json
import time

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal

import dpstats as dp
from dpstats.errors import OptionError
from dpstats.results.report import html_report
from dpstats.results.symmetric import SymmetricMixtureResults, SymmetricRegressionResults
from tests.estimators.symmetric_cases import fitted, lines, names, of_lines, of_rows, rows, unit


@pytest.fixture(scope="module")
def of_clusters():
    return fitted(of_rows(rows(3_000, unit(3), 1), 3), 1.0, 1)


@pytest.fixture(scope="module")
def of_regressions():
    return fitted(of_lines(lines(3_000, unit(3), 2), 3), 1.0, 2, normal=True)


def test_clusters_are_those_of_two_normal_laws(of_clusters) -> None:
    fit, new = of_clusters, rows(40, unit(3), 3)
    assert type(fit) is SymmetricMixtureResults
    laws = [multivariate_normal(m, fit.sigma**2 * np.eye(3)) for m in fit.means.to_numpy()]
    densities = np.column_stack([law.pdf(new) / 2 for law in laws])
    shares = densities / densities.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(fit.predict_proba(new), shares, atol=1e-9)
    np.testing.assert_allclose(fit.score_samples(new), np.log(densities.sum(axis=1)), rtol=1e-9)
    np.testing.assert_array_equal(fit.predict(new), densities.argmax(axis=1) + 1)
    gap = new.assign(x1=np.nan)
    assert fit.predict(gap).eq(0).all()
    assert fit.predict_proba(gap).isna().all(axis=None)
    assert fit.weights.tolist() == [0.5, 0.5]
    assert fit.beta.iloc[np.argmax(np.abs(fit.beta))] > 0


def test_samples_follow_the_mixture(of_clusters) -> None:
    """Mean of x'b / |b|^2 squared is 1 + sigma^2 / |b|^2; 20,000 rows, within 4 errors."""
    fit = of_clusters
    made = fit.sample(20_000, seed=4)
    along = (made @ fit.beta / (fit.beta @ fit.beta)) ** 2
    wanted = 1 + fit.sigma**2 / (fit.beta @ fit.beta)
    assert abs(along.mean() - wanted) < 4 * along.std() / np.sqrt(20_000)
    assert abs(made.mean().max()) < 0.05
    with pytest.raises(OptionError, match="whole number"):
        fit.sample(0, seed=1)


def test_a_description_names_few_columns_and_counts_many(of_clusters) -> None:
    assert "The model ~ `x0` + `x1` + `x2` (" in of_clusters.describe()
    d = 40
    made = fitted(of_rows(rows(2_000, unit(d, 3), 6), d), 4.0, 6, sparsity=3)
    assert "The model of 40 columns, x0 to x39 (" in made.describe()
    assert "`x7`" not in html_report(made)


def test_regressions_say_which_line_a_row_is_of(of_regressions) -> None:
    fit, new = of_regressions, lines(30, unit(3), 5)
    assert type(fit) is SymmetricRegressionResults
    means = fit.predict_components(new)
    np.testing.assert_allclose(means[1], new[names(3)] @ fit.components.loc[1])
    np.testing.assert_allclose(fit.predict(new), 0.0, atol=1e-12)
    logs = -((new[["y"]].to_numpy() - means.to_numpy()) ** 2) / (2 * fit.sigma**2)
    shares = np.exp(logs - np.logaddexp(*logs.T)[:, None])
    np.testing.assert_allclose(fit.predict_proba(new), shares, atol=1e-9)
    assert fit.t_test("x0 = x1") is not None
    assert np.isnan(fit.pvalues["sigma"])


def test_a_file_holds_what_was_released(
    of_clusters, of_regressions, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "localtime", lambda *_: time.gmtime(0))  # the page has the hour
    for fit in (of_clusters, of_regressions):
        fit.save(tmp_path / "fit.json")
        again = dp.load(tmp_path / "fit.json")
        pd.testing.assert_series_equal(again.beta, fit.beta)
        pd.testing.assert_frame_equal(again.conf_int(), fit.conf_int())
        assert str(again.summary()) == str(fit.summary())
        data = json.loads((tmp_path / "fit.json").read_text())
        data["estimate"]["sigma"] = -1.0
        (tmp_path / "wrong.json").write_text(json.dumps(data))
        with pytest.raises(OptionError, match=r"sigma|changed|contradict"):
            dp.load(tmp_path / "wrong.json")


def test_the_summary_says_what_was_estimated(of_clusters) -> None:
    text = str(of_clusters.summary())
    assert "b and -b" in text
    assert "Goodness of fit, p:" in text
    assert of_clusters.conf_int().loc["sigma"].notna().all()
    assert of_clusters.path.empty
    known = fitted(of_rows(rows(3_000, unit(3), 1), 3), 1.0, 1, sigma=0.5)
    assert "(given)" in str(known.summary())


def test_components_are_drawn_and_have_covariances(of_clusters, of_regressions) -> None:
    """Half of a round component is within sigma times the root of 2 log 2."""
    fit = of_clusters
    np.testing.assert_allclose(fit.covariances[2], fit.sigma**2 * np.eye(3))
    ax = dp.plot.mixture(fit, ["x0", "x2"])
    ring = ax.lines[1].get_xydata() - fit.means.loc[1, ["x0", "x2"]].to_numpy()
    radius = fit.sigma * np.sqrt(2 * np.log(2))
    np.testing.assert_allclose(np.linalg.norm(ring, axis=1), radius)
    x, y = dp.plot.mixture(of_regressions, ["x1"]).lines[1].get_xydata().T
    assert (y[1] - y[0]) / (x[1] - x[0]) == pytest.approx(of_regressions.components.loc[2, "x1"])
    plt.close("all")


def test_they_are_reported_compared_and_drawn_like_other_results(
    of_clusters, of_regressions
) -> None:
    for fit in (of_clusters, of_regressions):
        assert "<svg" in html_report(fit)
        table = dp.compare([fit, fit], ["one", "two"]).tables[0]
        assert table.loc["x0", "one"] == table.loc["x0", "two"]
        dp.plot.coefficients([fit, fit], ["one", "two"])
        assert len(fit.tidy()) == 4
        assert fit.__maketables_coef_table__.loc["x0", "ci95l"] < fit.params["x0"]
    plt.close("all")


@pytest.mark.parametrize("method", ["screened-em", "dp-em-ht"])
def test_a_sparse_fit_is_written_reported_and_drawn_in_its_columns(method, tmp_path) -> None:
    truth, known = np.roll(unit(40, 2), 5), {}
    if method == "dp-em-ht":
        known = {"sigma": 0.5, "start": {"x5": 0.6, "x6": 0.6}}
    fit = fitted(of_rows(rows(4_000, truth, 6), 40), 2.0, 6, sparsity=2, method=method, **known)
    assert fit.selected == ["x5", "x6"]
    ax = dp.plot.mixture(fit)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x5", "x6")
    assert "<svg" in html_report(fit)
    fit.save(tmp_path / "fit.json")
    again = dp.load(tmp_path / "fit.json")
    assert again == fit
    pd.testing.assert_frame_equal(again.path, fit.path)
    assert fit.path.empty == (method == "screened-em")
    plt.close("all")
