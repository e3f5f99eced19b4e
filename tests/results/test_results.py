"""`Results` gives genuine statsmodels' numbers when handed a genuine OLS estimate."""

import numpy as np
import pandas as pd
import pytest

from dpstats.errors import OptionError, PrivateQuantityError
from dpstats.privacy import Central
from tests.results.cases import N, frame, make

CLOSE = {"rtol": 1e-7, "atol": 1e-10}  # units are changed there and back

HYPOTHESES = [
    "age = 0",
    "age = 0, income = 0",
    "age = 2 * income, Intercept = 1",
    "C(plan, Treatment('free'))[T.25] = C(plan, Treatment('free'))[T.95]",
    np.eye(5)[1:3],
]


@pytest.fixture(scope="module")
def pair():
    return make()


@pytest.mark.parametrize("name", ["params", "bse", "tvalues", "pvalues"])
def test_columns_of_the_table_equal_statsmodels(pair, name):
    ours, theirs = pair
    pd.testing.assert_series_equal(getattr(ours, name), getattr(theirs, name), check_names=False)


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_intervals_equal_statsmodels(pair, alpha):
    ours, theirs = pair
    pd.testing.assert_frame_equal(ours.conf_int(alpha), theirs.conf_int(alpha))


def test_covariance_and_degrees_of_freedom_equal_statsmodels(pair):
    ours, theirs = pair
    pd.testing.assert_frame_equal(ours.cov_params(), theirs.cov_params())
    for name in ("nobs", "df_model", "df_resid", "use_t"):
        assert getattr(ours, name) == getattr(theirs, name)


@pytest.mark.parametrize("hypothesis", HYPOTHESES, ids=str)
def test_t_test_equals_statsmodels(pair, hypothesis):
    ours, theirs = (fit.t_test(hypothesis) for fit in pair)
    for name in ("effect", "sd", "statistic", "pvalue"):
        np.testing.assert_allclose(
            np.squeeze(getattr(ours, name)), np.squeeze(getattr(theirs, name)), **CLOSE
        )
    np.testing.assert_allclose(ours.conf_int(), theirs.conf_int(), **CLOSE)
    assert "Test for Constraints" in str(ours)


@pytest.mark.parametrize("hypothesis", HYPOTHESES, ids=str)
@pytest.mark.parametrize("use_f", [False, True])
def test_wald_test_equals_statsmodels(pair, hypothesis, use_f):
    ours = pair[0].wald_test(hypothesis, use_f=use_f)
    theirs = pair[1].wald_test(hypothesis, use_f=use_f, scalar=True)
    np.testing.assert_allclose(ours.statistic, theirs.statistic, rtol=1e-6)
    np.testing.assert_allclose(ours.pvalue, theirs.pvalue, **CLOSE)
    assert str(ours).partition(":")[0] == str(theirs).partition(":")[0]


def test_tests_of_a_simulated_fit_say_so():
    private, simulated = make()[0], make(reproducible=True)[0]
    first = f"{private.params.index[1]} = 0"
    for fit, marked in ((private, False), (simulated, True)):
        printed = [
            fit.t_test(first),
            fit.t_test(first).summary(title="Mine"),
            fit.wald_test(first),
            fit.wald_test(first, use_f=True),
        ]
        assert [("NOT private" in str(text)) for text in printed] == [marked] * 4
    assert "Mine" in str(simulated.t_test(first).summary(title="Mine"))


def test_f_test_is_the_wald_test_by_f(pair):
    ours, theirs = (fit.f_test("age = 0, income = 0") for fit in pair)
    np.testing.assert_allclose(ours.fvalue, theirs.fvalue, rtol=1e-6)
    assert (ours.df_num, ours.df_denom) == (theirs.df_num, theirs.df_denom)


def test_predictions_equal_statsmodels():
    ours, theirs = make(released={"scale": 0.0})
    new = frame(seed=9, n=6)
    sigma = float(np.sqrt(theirs.scale))
    ours, _ = make(released={"scale": sigma / ours.design.standardization.y_scale})
    expected = theirs.get_prediction(new).summary_frame(alpha=0.1)
    found = ours.get_prediction(new).summary_frame(alpha=0.1)
    pd.testing.assert_frame_equal(found, expected[list(found)], rtol=1e-7)
    assert list(found) == list(expected)
    pd.testing.assert_series_equal(ours.predict(new), theirs.predict(new), check_names=False)


def test_without_a_released_scale_no_new_observation_is_predicted(pair):
    prediction = pair[0].get_prediction(frame(seed=9, n=3))
    expected = ["mean", "mean_se", "mean_ci_lower", "mean_ci_upper"]
    assert list(prediction.summary_frame()) == expected
    with pytest.raises(PrivateQuantityError, match="released no residual scale"):
        prediction.conf_int(obs=True)


def test_predictions_keep_the_index_and_take_dicts(pair):
    new = frame(seed=9, n=3).set_axis(["a", "b", "c"])
    assert list(pair[0].predict(new).index) == ["a", "b", "c"]
    columns = {name: new[name].to_numpy() for name in ("age", "income", "plan")}
    np.testing.assert_allclose(pair[0].predict(columns), pair[0].predict(new))


def test_privacy_share_is_the_share_of_the_variance():
    fit, _ = make(share=0.25)
    np.testing.assert_allclose(fit.privacy_share, 0.25)
    np.testing.assert_allclose(fit.cov_privacy(), 0.25 * fit.cov_params(), rtol=1e-9)


def test_the_row_count_is_public_only_where_the_neighbours_say_so():
    assert make()[0].nobs_public
    assert not make(privacy=Central(1.0, 1e-7, neighbors="add-remove"))[0].nobs_public
    assert not make(unit="person")[0].nobs_public
    assert make()[0].nobs == N
    assert make(nobs=N + 0.7)[0].nobs == N
    assert make(nobs=N + 0.7)[0].nobs_contributing == N + 0.7


def test_returned_tables_are_copies(pair):
    fit = pair[0]
    params, cov = fit.params, fit.cov_params()
    kept = params.copy(), cov.copy()
    params.iloc[0], cov.iloc[0, 0] = 99.0, 99.0
    pd.testing.assert_series_equal(fit.params, kept[0])
    pd.testing.assert_frame_equal(fit.cov_params(), kept[1])


def test_cite_names_theory_and_software(pair):
    text, bibtex = pair[0].cite(), pair[0].cite("bibtex")
    for word in ("Lemma 3", "The cost of privacy", "dpstats"):
        assert word in text
        assert word in bibtex
    assert bibtex.count("@") == 3
    with pytest.raises(OptionError, match="'text', 'bibtex'"):
        pair[0].cite("apa")


def test_maketables_hooks_give_the_table(pair):
    table = pair[0].__maketables_coef_table__
    assert list(table) == ["b", "se", "t", "p", "ci95l", "ci95u"]
    assert table.index.name == "Coefficient"
    assert pair[0].__maketables_stat__("epsilon") == 1.0
    assert pair[0].__maketables_stat__("nothing") is None
    assert pair[0].__maketables_depvar__ == "visits"
    assert "noise" in make(reproducible=True)[0].__maketables_default_stat_keys__
