"""Results of symmetric mixtures: what they say of new rows, the file, the summary."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal

import dpstats as dp
from dpstats.errors import OptionError
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
    with pytest.raises(OptionError, match="sample"):
        fit.sample(0, seed=1)


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


def test_a_file_holds_what_was_released(of_clusters, of_regressions, tmp_path) -> None:
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
