"""Logistic and Poisson results give statsmodels' numbers when handed its estimates."""

import re

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from statsmodels.iolib.summary2 import summary_col

from dpstats.design import DeclaredDesign
from dpstats.errors import DataError, OptionError, PrivateQuantityError
from dpstats.families import POISSON, Family
from dpstats.protocol import CoefficientEstimate, Plan
from dpstats.results import Released as Results
from dpstats.results import plot
from dpstats.results.compare import compare
from dpstats.results.prediction import Prediction
from dpstats.results.private_names import PRIVATE
from dpstats.results.report import html_report
from tests.results.cases import THEORY, N, glm_frame, make, make_glm, released_from
from tests.results.test_private import long_arrays, reachable

KINDS = ["logit", "glm"]


@pytest.fixture(params=KINDS)
def pair(request):
    return make_glm(request.param)


def page(fit, **asked):
    return re.sub(r"\s+", " ", str(fit.summary(**asked)))


# Predictions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.05, 0.3])
def test_means_and_their_intervals_equal_statsmodels(pair, alpha):
    ours, theirs = pair
    new = glm_frame(seed=9, n=8)
    expected = theirs.get_prediction(new).summary_frame(alpha=alpha)
    found = ours.get_prediction(new).summary_frame(alpha=alpha)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert list(found) == ["mean", "mean_se", "mean_ci_lower", "mean_ci_upper"]
    np.testing.assert_allclose(ours.predict(new), theirs.predict(new), rtol=1e-6)


def test_linear_predictors_equal_statsmodels(pair):
    ours, theirs = pair
    new = glm_frame(seed=9, n=8)
    expected = theirs.get_prediction(new, which="linear").summary_frame()
    found = ours.get_prediction(new, which="linear").summary_frame()
    pd.testing.assert_frame_equal(found, expected, rtol=1e-6, check_names=False)
    expected = theirs.predict(new, which="linear")
    np.testing.assert_allclose(ours.predict(new, which="linear"), expected, rtol=1e-6)
    with pytest.raises(OptionError, match="'mean' and 'linear'"):
        ours.predict(new, which="var")


def test_an_exposure_is_read_from_the_new_rows():
    ours, theirs = make_glm("glm", exposure="years")
    new = glm_frame(seed=9, n=8)
    expected = theirs.get_prediction(new, exposure=new["years"]).summary_frame()
    np.testing.assert_allclose(ours.get_prediction(new).summary_frame(), expected, rtol=1e-6)
    with pytest.raises(OptionError, match="it reads them from the new rows"):
        ours.predict(new, exposure=1.0)
    with pytest.raises(DataError, match="'years'"):
        ours.predict(new.drop(columns="years"))
    assert Results.from_json(ours.to_json()) == ours


def test_a_model_of_arrays_takes_the_exposure_of_new_rows():
    design = DeclaredDesign.from_arrays(
        2, {"exog": [(1, 1), (-1, 1)], "endog": (0, 9), "exposure": (0.5, 4)}, family=POISSON
    )
    estimate = CoefficientEstimate(np.array([0.3, 0.5]), np.eye(2) / 100, np.eye(2) / 200, float(N))
    plan = Plan("glm", "newton", make()[0].plan.privacy, N, design.names, (), (0.9, 1e-7))
    fit = released_from(estimate, design=design, plan=plan, theory=THEORY, releases=[])
    X = np.array([[1.0, 0.2], [1.0, -0.4]])
    once = np.exp(0.3 + 0.5 * X[:, 1])
    np.testing.assert_allclose(fit.predict(X, exposure=2.0), 2 * once)
    np.testing.assert_allclose(fit.predict(X, exposure=[1.0, 2.0]), [1, 2] * once)
    with pytest.raises(DataError, match="exposure"):
        fit.predict(X)
    with pytest.raises(OptionError, match="takes no exposure for predictions: it has none"):
        make_glm("logit")[0].predict(glm_frame(n=2), exposure=1.0)


def test_intervals_of_means_stay_where_means_can_be():
    wide = Prediction(np.array([0.0, 4.0]), np.array([9.0, 9.0]), Family("binomial", "logit"))
    assert (wide.conf_int() > 0).all()
    assert (wide.conf_int() < 1).all()


def test_no_interval_is_promised_for_a_new_observation(pair):
    prediction = pair[0].get_prediction(glm_frame(seed=9, n=3))
    assert "scale" in pair[0].released
    assert prediction.var_resid is None
    with pytest.raises(PrivateQuantityError, match="No interval for a new observation"):
        prediction.conf_int(obs=True)


def test_a_missing_value_is_predicted_nan(pair):
    new = glm_frame(seed=9, n=3)
    new.loc[1, "age"] = np.nan
    frame = pair[0].get_prediction(new).summary_frame()
    assert frame.isna().all(axis=1).tolist() == [False, True, False]


# Ratios -------------------------------------------------------------------------------------------


def test_ratios_are_exponentials_of_the_intervals(pair):
    ours, theirs = pair
    table = ours.exp_conf_int(0.1)
    assert list(table) == ["exp(coef)", "lower", "upper"]
    assert list(table.index) == list(theirs.params.index)
    np.testing.assert_allclose(table["exp(coef)"], np.exp(theirs.params))
    np.testing.assert_allclose(table[["lower", "upper"]], np.exp(theirs.conf_int(0.1)))


EXPONENTIALS = {
    "exp_conf_int": lambda fit: fit.exp_conf_int(),
    "summary": lambda fit: fit.summary(exp=True),
    "to_html": lambda fit: fit.to_html(exp=True),
    "to_latex": lambda fit: fit.to_latex(exp=True),
    "to_markdown": lambda fit: fit.to_markdown(exp=True),
    "tidy": lambda fit: fit.tidy(exponentiate=True),
    "compare": lambda fit: compare(fit, exp=True),
    "coefficients": lambda fit: plot.coefficients(fit, exp=True),
    "forest": lambda fit: plot.forest(fit, fit.params.index[0], exp=True),
}


@pytest.mark.parametrize("asked", EXPONENTIALS)
def test_a_linear_model_has_no_ratios(asked, pair):
    EXPONENTIALS[asked](pair[0])
    with pytest.raises(OptionError, match=r"'identity', are no logarithms of ratios"):
        EXPONENTIALS[asked](make()[0])


def test_ratios_have_the_delta_methods_errors_wherever_they_are_shown(pair):
    ours, theirs = pair
    table, ratios = ours.tidy(0.1, exponentiate=True), np.exp(theirs.params)
    np.testing.assert_allclose(table["estimate"], ratios)
    np.testing.assert_allclose(table["std.error"], ratios * theirs.bse)
    np.testing.assert_allclose(table[["conf.low", "conf.high"]], np.exp(theirs.conf_int(0.1)))
    np.testing.assert_array_equal(table["statistic"], ours.tidy()["statistic"])
    ratio = {"logit": "odds ratio", "glm": "rate ratio"}[ours.plan.model]
    text, plain = str(ours.summary(0.1, exp=True)), str(ours.summary(0.1))
    assert f"{ratio} std err" in text
    assert ratio not in plain.split("[1]")[0]
    for name in ("Intercept", "age"):
        (line,) = (line.split() for line in text.splitlines() if line.startswith(f"{name} "))
        expected = (ratios[name], ratios[name] * theirs.bse[name])
        assert (float(line[1]), float(line[2])) == pytest.approx(expected, abs=6e-4)
    assert "priv. +/-" not in text, "that is a distance between coefficients"
    both = compare(ours, theirs, exp=True, names=["a", "b"])
    assert f"a, b: {ratio}s" in str(both)
    first, second = both.tables[0].loc[ratios.index[1]]
    assert first == second == f"{ratios.iloc[1]:.4f}"


# The page -----------------------------------------------------------------------------------------

WORDS = {
    "logit": [
        "Differentially Private Logit Regression Results",
        "Dep. Variable: smoker",
        "Model: Logit",
        "Coefficients are logarithms of odds ratios; summary(exp=True) gives the ratios.",
    ],
    "glm": [
        "Differentially Private Generalized Linear Model Regression Results",
        "Dep. Variable: visits",
        "Model: GLM",
        "Model Family: Poisson",
        "Link Function: Log",
        "Coefficients are logarithms of rate ratios; summary(exp=True) gives the ratios.",
    ],
}
ALWAYS = [
    "Method: newton",
    "HC1 + privacy",
    "priv. share",
    "P>|z|",
    "30.0%",
    "priv. +/-",
    "Privacy: (1, 1e-07)-differential privacy of one row; cost (0.99, 1e-07)",
    "95 % bound on the distance to the fit without privacy on the same 400 rows",
]


@pytest.mark.parametrize(
    ("kind", "words"), [(kind, words) for kind in KINDS for words in WORDS[kind] + ALWAYS]
)
def test_the_summary_says(kind, words):
    assert words in page(make_glm(kind)[0])


def test_the_rows_of_the_table_are_those_of_statsmodels(pair):
    ours, theirs = (str(fit.summary()).splitlines() for fit in pair)
    rows = [line.split()[-8:] for line in ours if re.search(r"%\s+\S+$", line)]
    for name, row in zip(pair[1].params.index, rows, strict=True):
        expected = "\n".join(theirs).partition(f"\n{name}")[2].split()[:6]
        *numbers, share, distance = row
        assert share == "30.0%"
        assert float(distance) == pytest.approx(pair[0].error_bound.nonprivate[name], abs=5.1e-4)
        # statsmodels rounds to three digits what we print with three significant ones
        gap = np.array(numbers, dtype=float) - np.array(expected, dtype=float)
        assert np.abs(gap).max() <= 5.1e-4


def test_the_known_term_is_named_and_the_page_is_of_one_width():
    fit, _ = make_glm("glm", exposure="years")
    assert "Known term of the linear predictor, with coefficient 1: log(years)." in page(fit)
    lines = str(fit.summary()).splitlines()
    assert len({len(line) for line in lines if set(line) == {"="}}) == 1
    assert max(map(len, lines)) <= 80


def test_the_level_whose_probability_is_modelled_is_named():
    words = "The probability that is modelled is that of smoker = 'yes'."
    assert words in page(make_glm("logit", levels=("no", "yes"))[0])
    assert "that is modelled" not in page(make_glm("logit")[0])


def test_summary_col_prints_ours_beside_genuine_fits(pair):
    ours, theirs = pair
    text = str(summary_col([ours, theirs], model_names=["private", "public"]))
    for name in ("Intercept", "age"):
        row = next(line for line in text.splitlines() if line.startswith(name))
        assert row.split()[1] == row.split()[2]
    assert "NOT private" in str(compare([ours, theirs]))


def test_every_format_is_made(pair):
    fit = pair[0]
    for text in (fit.to_html(), fit.to_latex(), fit.to_markdown(), html_report(fit)):
        assert "Regression Results" in text or "<svg" in text


def test_the_plot_names_the_scale_of_the_coefficients():
    for kind, words in (("logit", "log odds of smoker per"), ("glm", "log mean of visits per")):
        ours, theirs = make_glm(kind)
        assert words in plot.coefficients([ours, theirs]).get_xlabel()
    plt.close("all")


# What is private, and what is stored --------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "pearson_chi2",
        "null_deviance",
        "resid_pearson",
        "resid_dev",
        "pred_table",
        "prsquared",
        "llr",
        "llr_pvalue",
        "score_test",
        "converged",
    ],
)
def test_what_statsmodels_computes_from_rows_explains_itself(pair, name):
    assert name in PRIVATE
    with pytest.raises(PrivateQuantityError, match=f"`{name}` is not available: it "):
        getattr(pair[0], name)


def test_every_public_name_of_statsmodels_results_is_there_or_explained():
    # What is left does nothing that `t_test` and `wald_test` would not, or is of no use to a user.
    left = {"cov_kwds", "initialize", "k_constant", "method", "set_null_options"}
    left |= {"t_test_pairwise", "wald_test_terms", "family"}
    for kind in KINDS:
        ours, theirs = make_glm(kind)
        names = {name for name in dir(theirs) if not name.startswith("_")}
        assert names - set(dir(ours)) - set(PRIVATE) <= left


def test_a_saved_result_is_read_back_equal(pair):
    fit = pair[0]
    again = Results.from_json(fit.to_json())
    assert again == fit
    new = glm_frame(seed=3, n=4)
    np.testing.assert_array_equal(again.predict(new), fit.predict(new))


def test_no_row_is_reachable_from_a_result(pair):
    ours, theirs = pair
    ours.summary(), ours.predict(glm_frame(n=3))
    assert long_arrays(reachable(theirs), N), "the walk must find rows where there are some"
    assert not long_arrays(reachable(ours), N)
