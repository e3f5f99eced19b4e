"""Sparse fits: all coefficients are there, uncertainty only for the selected columns."""

import dataclasses
import re
import time
import tracemalloc

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import dpstats as dp
from dpstats.accounting.events import Peeling
from dpstats.errors import OptionError
from dpstats.protocol import Mechanism, Release
from dpstats.results import Released as Results
from dpstats.results import plot
from dpstats.results.compare import compare
from dpstats.results.privacy_report import PrivacyReport
from dpstats.results.report import html_report
from dpstats.theory import Setting
from tests.results.cases import (
    CHOSEN,
    SAME_ROWS,
    SELECTED,
    SPLIT,
    THEORY,
    N,
    make_sparse,
    released_from,
    wide,
)
from tests.results.test_private import long_arrays, reachable

IN_MODEL = ["const", *SELECTED]


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def pair():
    return make_sparse()


@pytest.fixture(scope="module")
def untested():
    return make_sparse(SAME_ROWS)[0]


def page(fit, **asked):
    return re.sub(r"\s+", " ", str(fit.summary(**asked)))


# Numbers ------------------------------------------------------------------------------------------


def test_coefficients_are_all_there_and_zero_where_not_selected(pair):
    fit, ols = pair
    assert len(fit.params) == 20
    assert fit.selected == SELECTED
    pd.testing.assert_series_equal(fit.params[IN_MODEL], ols.params, check_names=False)
    assert not fit.params.drop(IN_MODEL).any()


@pytest.mark.parametrize("name", ["bse", "tvalues", "pvalues"])
def test_uncertainty_of_the_selected_columns_is_that_of_their_regression(pair, name):
    ours, theirs = (getattr(fit, name) for fit in pair)
    pd.testing.assert_series_equal(ours, theirs, check_names=False, rtol=1e-7)


def test_tables_of_the_selected_columns_are_those_of_their_regression(pair):
    ours, theirs = pair
    pd.testing.assert_frame_equal(ours.conf_int(0.1), theirs.conf_int(0.1))
    pd.testing.assert_frame_equal(ours.cov_params(), theirs.cov_params())
    np.testing.assert_allclose(ours.privacy_share, 0.3)
    for name in ("nobs", "df_model", "df_resid"):
        assert getattr(ours, name) == getattr(theirs, name)


@pytest.mark.parametrize("support", [(11, 0, 7, 3), (7, 3, 11)], ids=["order", "no-intercept"])
def test_the_order_of_the_support_and_a_fixed_intercept_are_understood(pair, support):
    # Without it in the support the intercept is known in centred units only: the variances of the
    # slopes stay, and that of the intercept is what the slopes put there.
    fit, ols = make_sparse(support=support)
    assert list(fit.bse.index) == IN_MODEL
    np.testing.assert_allclose(fit.params[IN_MODEL], ols.params)
    np.testing.assert_allclose(fit.bse[SELECTED], ols.bse[SELECTED])
    slopes = ols.cov_params().loc[SELECTED, SELECTED].to_numpy()
    known = {4: ols.bse["const"], 3: np.sqrt(2.5**2 * slopes.sum())}  # every centre is 2.5
    assert fit.bse["const"] == pytest.approx(known[len(support)])


def test_nothing_selected_is_a_result_too():
    fit, _ = make_sparse(support=())
    assert fit.selected == []
    assert "Selected: 0 of 19" in page(fit)
    assert Results.from_json(fit.to_json()) == fit


def test_predictions_are_those_of_the_selected_columns(pair):
    fit, ols = pair
    new = wide(seed=5, n=6).drop(columns="y")
    expected = ols.get_prediction(new[IN_MODEL]).summary_frame()
    found = fit.get_prediction(new).summary_frame()
    pd.testing.assert_frame_equal(found, expected[list(found)], rtol=1e-7)


# Tests --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", ["x3 = 1, x7 = -2", "x3 + x11", np.eye(4)[1:]], ids=str)
def test_hypotheses_about_selected_columns_are_tested(pair, spec):
    ours, theirs = (fit.wald_test(spec) for fit in pair)
    np.testing.assert_allclose(ours.statistic, np.squeeze(theirs.statistic), rtol=1e-6)
    assert ours.df_denom == theirs.df_denom


@pytest.mark.parametrize("spec", ["x1 = 0", "x3 = x12", ["x3", "2 * x1"]], ids=str)
def test_a_column_that_was_not_selected_is_not_tested(pair, spec):
    with pytest.raises(OptionError, match=r"'x12?' was not selected.*const, x3, x7, x11"):
        pair[0].t_test(spec)


def test_an_unknown_column_is_told_from_one_that_was_not_selected(pair):
    with pytest.raises(OptionError, match="cannot be read"):
        pair[0].t_test("x33 = 0")
    with pytest.raises(OptionError, match="4 columns, one per coefficient in the model"):
        pair[0].t_test(np.eye(20))


@pytest.mark.parametrize("test", ["t_test", "wald_test", "f_test"])
def test_without_valid_inference_nothing_is_tested(untested, test):
    with pytest.raises(OptionError, match=r'selected on the same rows.*inference="split"'):
        getattr(untested, test)("x3 = 0")


def test_without_valid_inference_errors_are_nan_and_predictions_are_not(untested):
    assert not untested.has_inference
    for values in (untested.bse, untested.pvalues, untested.privacy_share, untested.conf_int()):
        assert list(values.index) == IN_MODEL
        assert values.isna().all(axis=None)
    new = untested.get_prediction(wide(n=3).drop(columns="y")).summary_frame()
    assert new["mean"].notna().all()
    assert new["mean_ci_lower"].isna().all()


# The page -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        "Selected: 3 of 19",
        "Inference: conditional on selection",
        "std err",
        "16 columns were not selected",
        "exponential mechanism, eps",
        "half 1: choice",
        "half 2: gram",
        "Halves: a row is in one half only",
        "Upper rate (privacy): s^1.5 log(d)/n.",
        "] Inference: conditional on selection. Standard errors",
    ],
)
def test_the_summary_says(pair, words):
    assert words in page(pair[0], full=True)


def test_only_selected_columns_have_a_row(pair, untested):
    for fit in (pair[0], untested):
        lines = str(fit.summary()).splitlines()
        assert [line.split()[0] for line in lines if re.match(r"(x\d+|const) ", line)] == IN_MODEL


def test_a_summary_without_inference_shows_estimates_and_says_why(untested):
    text = page(untested)
    for words in ("std err", "P>|z|", "[0.025", "nan", "priv. share", "priv. +/-", "95 %"):
        assert words not in text
    for words in (
        "Covariance Type: none",
        "Inference: none: selected on the same",
        "are valid here: selected on the same rows.",
        'With inference="split", where the method has it',
        "x7 -1.9930",
        "Error bound: none in numbers.",
    ):
        assert words in text


def test_a_naive_covariance_is_not_shown_even_if_an_estimate_has_one(pair):
    estimate = dataclasses.replace(pair[0].estimate, inference=SAME_ROWS)
    fit = dataclasses.replace(pair[0], estimate=estimate)
    assert fit.bse.isna().all()
    assert fit.conf_int().isna().all(axis=None)
    assert "std err" not in page(fit)


def test_a_dense_fit_without_inference_is_not_told_to_split(untested):
    estimate = dataclasses.replace(untested.estimate, support=None, inference="none: no limit law")
    nan = np.full((20, 20), np.nan)
    estimate = dataclasses.replace(estimate, cov=nan, cov_privacy=nan)
    fit = dataclasses.replace(untested, estimate=estimate)
    assert "valid here: no limit law. " in page(fit)
    assert "split" not in page(fit).partition("Error bound:")[2]


def test_the_rate_uses_the_sparsity_that_was_asked_or_found():
    rate = dataclasses.replace(THEORY.upper[0], formula="s")
    for options, s in (({"sparsity": 5}, 5), ({"sparsity": None}, 3), ({"sparsity": (5, 10)}, 3)):
        bound = make_sparse(**options)[0].error_bound.value("rate", "upper", "privacy")
        assert rate.value(Setting(N, 20, 1.0, 1e-7, s)) == s
        assert bound == pytest.approx(s**1.5 * np.log(20) / N)


def test_halves_cost_what_the_dearer_half_costs(pair):
    shares = pair[0].privacy.to_frame()["share"]
    assert shares["choice"] == pytest.approx(1.0)
    assert shares["gram"] == pytest.approx((0.5 / 20**2) / (3 * 0.1**2 / 8))


def test_peeling_is_described_by_its_rounds():
    event = Peeling(20.0, k=4)
    plan = dataclasses.replace(
        make_sparse()[0].plan, mechanisms=(Mechanism("peel", event, "columns and values"),)
    )
    release = Release("peel", "peeled scores", {}, 2.0, 40.0, event)
    report = PrivacyReport.of(plan, [release], guarantee="")
    assert report.mechanisms[0].noise == "noisy max and its value, Laplace, scale 40 (4 times)"
    assert report.mechanisms[0].share == 1.0


def test_every_format_is_made(pair, untested):
    for fit in (pair[0], untested):
        assert "16 columns were not selected" in fit.to_markdown()
        assert "16 columns were not selected" in fit.to_latex()
        assert "16 columns were not selected" in fit.to_html()
        assert "16 columns were not selected" in fit.summary().as_csv()
        assert "<svg" in html_report(fit)


def test_sparse_fits_stand_beside_others(pair, untested):
    fit, ols = pair
    text = str(compare([fit, untested, ols], names=["split", "same rows", "OLS"], stars=True))
    row = next(line for line in text.splitlines() if line.startswith("x7"))
    assert row.split()[1:] == ["-1.9930***", "-1.9930", "-1.9930***"]
    assert "nan" not in text
    assert "x12" not in text
    assert "split: inference conditional on" in text
    assert "same rows: no standard errors: " in text


def test_maketables_shows_the_selected_columns(pair):
    assert list(pair[0].__maketables_coef_table__.index) == IN_MODEL


# Plots --------------------------------------------------------------------------------------------


def test_the_plot_has_the_selected_columns_only(pair):
    ax = plot.coefficients(list(pair))
    assert [label.get_text() for label in ax.get_yticklabels()] == SELECTED


def test_the_plot_promises_no_interval_where_there_is_none(pair, untested):
    legend = [t.get_text() for t in plot.coefficients(untested).get_legend().get_texts()]
    assert len(legend) == 1
    both = plot.coefficients([pair[0], untested], names=["split", "same rows"])
    assert len(both.get_legend().get_texts()) == 4


# Storage and size ---------------------------------------------------------------------------------


@pytest.mark.parametrize("label", [SPLIT, SAME_ROWS])
def test_a_saved_sparse_result_is_read_back_equal_without_its_zeros(label):
    fit, _ = make_sparse(label)
    again = Results.from_json(fit.to_json())
    assert again == fit
    assert again.estimate.support == CHOSEN
    assert [m.branch for m in again.privacy.mechanisms] == [1, 2]
    pd.testing.assert_series_equal(again.bse, fit.bse)
    written = fit.to_dict()["estimate"]["params"]
    assert written["size"] == 20
    assert written["at"] == list(CHOSEN)


def test_no_row_is_reachable_from_a_sparse_result():
    ours, theirs = make_sparse()
    ours.summary(), ours.pvalues
    assert long_arrays(reachable(theirs), N), "the walk must find rows where there are some"
    assert not long_arrays(reachable(ours), N)


def test_nothing_is_as_large_as_a_matrix_of_all_columns():
    d = 3_000  # a d x d matrix has 72 MB
    fit, _ = make_sparse(d=d)
    tracemalloc.start()
    try:
        clean = dataclasses.replace(fit)
        str(clean.summary()), clean.to_markdown(), clean.to_latex(), html_report(clean)
        compare([clean]), clean.t_test("x3 = 0"), plot.coefficients(clean)
        clean.to_json(), repr(clean), clean.cov_params(), clean.privacy_share
        released_from(fit.estimate, design=fit.design, plan=fit.plan, theory=THEORY, releases=[])
        assert tracemalloc.get_traced_memory()[1] < 30e6
    finally:
        tracemalloc.stop()


def test_predictions_for_sparse_rows_do_not_make_them_dense():
    d, m = 3_000, 2_500  # a dense matrix of them has 60 MB
    fit, _ = make_sparse(d=d)
    X = scipy.sparse.random(m, d, density=0.01, format="csr", random_state=0)
    tracemalloc.start()
    try:
        found = fit.predict(X)
        assert tracemalloc.get_traced_memory()[1] < 35e6
    finally:
        tracemalloc.stop()
    few = fit.predict(X[:7].toarray())
    np.testing.assert_allclose(found[:7], few)
    assert found.std() > 0


def test_writing_and_printing_a_wide_result_takes_no_time():
    fit, _ = make_sparse(d=4_000)
    start = time.process_time()
    text = fit.to_json()
    str(fit.summary()), fit.t_test("x3 = 0")
    assert time.process_time() - start < 1.0
    assert len(text) < 100 * 4_000


def test_a_fit_that_selected_nothing_has_a_summary():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (400, 5)), rng.integers(0, 2, 400)
    model = dp.Logit(y, X, {"exog": (-1, 1)})
    fit = model.fit(dp.Central(0.3, 1e-6), method="omp", sparsity=3, noise=dp.SeededNoise(0))
    assert not fit.selected
    assert "5 columns were not selected" in str(fit.summary())
    assert fit.summary().as_html()
