"""Error bounds: rates evaluated as data, conditions judged, tiers kept apart."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dpstats as dp
from dpstats.errors import OptionError
from dpstats.theory import (
    Assumption,
    Citation,
    ErrorBound,
    Rate,
    Setting,
    Theory,
    error_bound,
    rate_terms,
)
from tests.results.cases import SAME_ROWS, THEORY, make, make_sparse

SOURCE = Citation("k", "A, B.", "T", 2023, "V", "Theorem 1")
SETTING = Setting(n=10_000, d=4, epsilon=0.5, delta=1e-6)


def test_rates_are_what_their_formulas_say():
    privacy = THEORY.upper[1].value(SETTING)
    by_hand = 4 * math.log(10_000) ** 2 * math.sqrt(math.log(1e6)) / (10_000 * 0.5)
    assert privacy == pytest.approx(by_hand)


def test_totals_are_sums():
    bound = error_bound(THEORY, SETTING)
    upper = sum(rate.value(SETTING) for rate in THEORY.upper)
    lower = sum(rate.value(SETTING) for rate in THEORY.lower)
    assert bound.value("rate", "upper", "total") == pytest.approx(upper)
    assert bound.value("rate", "lower", "total") == pytest.approx(lower)


def test_each_side_cites_its_own_source():
    terms = {(t.side, t.term): t.source for t in rate_terms(THEORY, SETTING)}
    assert "Lemma 3" in terms["upper", "privacy"]
    assert "Theorem 4.1" in terms["lower", "total"]


def test_conditions_hold_fail_or_are_unknown():
    bound = error_bound(THEORY, Setting(n=10_000, d=4, epsilon=2.0, delta=1e-6))
    assert [c.holds for c in bound.assumptions] == [True, False, None]
    assert bound.failing() == ("eps <= 1/2",)
    assert bound.assumptions_frame()["holds"].tolist() == [True, False, None]
    assert "[FAILS] eps <= 1/2" in repr(bound)


def test_rates_with_constants_1_are_not_divided_by_each_other():
    """Their quotient is no evidence of optimality: constants and normalisations differ."""
    text = repr(make()[0].error_bound) + str(make()[0].summary())
    assert "Lower rate" in text
    assert "over lower" not in text


def test_without_a_lower_bound_there_is_none():
    theory = Theory("a mean", "", (), (Rate("statistical", "1/sqrt(n)", SOURCE),), (), ())
    bound = error_bound(theory, SETTING)
    assert "lower" not in set(bound.to_frame()["side"])
    assert "1/sqrt(n)" in repr(bound)


def test_the_frame_has_one_row_per_number():
    frame = make()[0].error_bound.to_frame()
    columns = ["tier", "side", "term", "quantity", "value", "formula", "source"]
    assert list(frame) == columns
    assert set(frame["tier"]) == {"bound", "rate"}
    assert set(frame["term"]) == {"statistical", "privacy", "total"}
    assert set(frame["side"]) == {"upper", "lower"}


def test_the_bound_to_the_population_is_half_of_the_interval():
    fit = make()[0]
    np.testing.assert_allclose(
        fit.error_bound.population, np.diff(fit.conf_int(), axis=1)[:, 0] / 2, rtol=1e-12
    )
    assert list(fit.error_bound.population.index) == list(fit.params.index)


@pytest.mark.parametrize("third", [0.0, 0.1, 0.2])
def test_the_bound_to_the_non_private_answer_is_a_quantile_of_noise_and_allowance(third):
    """Of draws: noise, and an allowance whose sd is doubled; never beyond the interval."""
    fit, _ = make(share=0.2)
    cov = fit.estimate.cov
    estimate = replace(fit.estimate, cov_sampling=(0.8 - third) * cov, of_these_rows=True)
    bound = replace(fit, estimate=estimate)._bounded().error_bound
    sd = np.sqrt(min(1.0, 0.2 + 4 * third)) * fit.bse
    draws = np.random.default_rng(0).normal(size=(100_000, 5)) * sd.to_numpy()
    held = (np.abs(draws) <= bound.nonprivate.to_numpy()).mean(axis=0)
    assert np.abs(held - 0.95).max() < 5 * np.sqrt(0.95 * 0.05 / 1e5)
    assert (bound.nonprivate <= bound.population * (1 + 1e-12)).all()


def test_an_answer_to_another_question_or_parts_beyond_the_whole_have_the_interval_s_bound():
    fit, _ = make(share=0.2)
    beyond = replace(fit.estimate, cov_sampling=1.5 * fit.estimate.cov, of_these_rows=True)
    for estimate in (fit.estimate, beyond):
        bound = replace(fit, estimate=estimate)._bounded().error_bound
        np.testing.assert_allclose(bound.nonprivate, bound.population)


def test_what_was_presumed_of_a_parameter_is_no_bound_and_is_not_quoted():
    fit, _ = make()
    hidden = replace(fit.estimate, not_identified=(fit.design.names.index("age"),))
    told = replace(fit, estimate=hidden)._bounded()
    assert "age" not in told.error_bound.nonprivate
    assert "age" not in told.error_bound.population
    assert "coefficient of age" not in told.error_bound.sentence()
    assert "that of income within" in told.error_bound.sentence()
    row = next(line for line in str(told.summary()).splitlines() if line.startswith("age"))
    assert row.split()[-1].endswith("%")  # no number below "priv. +/-"


def test_a_paragraph_of_methods_has_the_warnings_of_the_fit():
    fit, _ = make()
    warned = replace(fit, estimate=replace(fit.estimate, remarks=("Some rows lie far out.",)))
    assert warned._bounded().describe().endswith(" Warning: Some rows lie far out.")


def test_a_bound_of_a_fit_that_warns_is_not_quoted_without_its_warnings():
    fit, _ = make()
    same = replace(fit.estimate, of_these_rows=True)
    silent = replace(fit, estimate=same, plan=replace(fit.plan, warnings=()))._bounded()
    assert silent.warnings == ()
    assert silent.error_bound.sentence("age").startswith("With probability 95 %")
    assert "no warning" not in str(silent.summary())
    planned = replace(silent, plan=replace(fit.plan, warnings=("Rows are few.",)))
    seen = replace(planned, estimate=replace(same, remarks=("Values of age were moved.",)))
    warned = seen._bounded()
    assert warned.warnings == ("Rows are few.", "Values of age were moved.")
    for to in ("rows", "population"):
        said = warned.error_bound.sentence("age", to=to)
        assert said.startswith("If no warning matters, with probability 95 %")
        assert said.endswith(". Warning: Rows are few. Warning: Values of age were moved.")
    assert " if no warning matters, 95 % bound" in " ".join(str(warned.summary()).split())
    assert warned.describe().count("Warning: Rows are few.") == 1
    other = replace(warned, estimate=replace(warned.estimate, of_these_rows=False))._bounded()
    assert other.error_bound.sentence("age").startswith(
        "Where the model holds and no warning matters, with probability 95 %"
    )


def test_laplace_noise_has_its_own_quantile():
    """Draws of Laplace noise of variance 1 stay within the factor, and 1.96 is too short."""
    laplace = dp.mean("y", pd.DataFrame({"y": np.arange(400) / 400}), dp.Schema(y=dp.Numeric(0, 1)))
    fit = laplace.fit(dp.Central(1.0), noise=dp.SeededNoise(1))
    factor = float(fit.error_bound.population.iloc[0] / fit.bse.iloc[0])
    assert factor == pytest.approx(1.96, abs=1e-3)
    longer = float(fit.error_bound.nonprivate.iloc[0]) / np.sqrt(
        min(fit.cov_params().iloc[0, 0], 4 * (fit.cov_params() - fit.cov_sampling()).iloc[0, 0]
            - 3 * fit.cov_privacy().iloc[0, 0])
    )  # fmt: skip
    draws = np.abs(np.random.default_rng(0).laplace(scale=np.sqrt(0.5), size=1_000_000))
    assert abs((draws <= longer).mean() - 0.95) < 5 * np.sqrt(0.95 * 0.05 / 1e6)
    assert (draws <= factor).mean() < 0.945


def test_the_sentence_says_the_bound_of_one_or_of_all():
    fit, _ = make()
    fit = replace(fit, plan=replace(fit.plan, warnings=()))._bounded()
    weighted = fit.error_bound.sentence("age")  # rows are, as far as the estimate says
    assert weighted.startswith("Where the model holds, with probability 95 % the private")
    same = replace(fit.estimate, of_these_rows=True)
    bound = replace(fit, estimate=same)._bounded().error_bound
    one = bound.sentence("age")
    assert one == (
        f"With probability 95 % the private coefficient of age is within "
        f"{bound.nonprivate['age']:.3g} of the one computed without privacy on the same 400 rows."
    )
    every = bound.sentence()
    assert every.startswith("With probability 95 % each the private coefficient of C(plan,")
    assert f"that of income within {bound.nonprivate['income']:.3g}." in every
    assert "Intercept" not in every
    assert "Intercept" in bound.sentence("Intercept")
    with pytest.raises(OptionError, match="there is a bound for 'Intercept', "):
        bound.sentence("bmi")
    with pytest.raises(OptionError, match="no parameter"):
        make_sparse(SAME_ROWS)[0].error_bound.sentence()


def test_rows_whose_number_is_private_are_not_counted_in_the_sentence():
    assert "on the same rows." in make(unit="person")[0].error_bound.sentence("age")


def test_repr_is_readable_within_a_page():
    text = repr(make()[0].error_bound)
    for word in ("95 % bound on the distance to", "non-private fit", "population", "is no bound"):
        assert word in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_rate_that_says_nothing_at_a_setting_is_nan_and_its_formula_is_printed():
    """log(1/delta) at delta = 0, log(d/s) at s = d, and a sparsity that nobody named."""
    for formula in ("sqrt(log(1/delta)/n)", "sqrt(s log(d/s)/n)", "p/n"):
        theory = replace(THEORY, upper=(Rate("privacy", formula, SOURCE),))
        bound = error_bound(theory, Setting(n=100, d=4, epsilon=1.0, delta=0.0, s=4))
        assert math.isnan(bound.value("rate", "upper", "total"))
        assert formula in repr(bound)
        assert "nan" not in repr(bound)


def test_a_condition_that_noise_hides_nothing_fails_where_noise_hides():
    seen = Assumption("The noise resolves the columns", "n > 1", resolution=True)
    theory = replace(THEORY, assumptions=(seen, Assumption(formula="n > 2")))
    assert error_bound(theory, SETTING).failing() == ()
    assert error_bound(theory, SETTING, hidden=True).failing() == (seen.statement,)


@pytest.mark.parametrize("n", [150, 300, 1000])
def test_no_plan_that_says_noise_hides_the_columns_has_a_fit_that_says_it_does_not(n):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.uniform(-1, 1, (n, 6)), columns=[*"abcdey"])
    schema = dp.Schema({name: dp.Numeric(-1, 1, center=0, scale=0.5) for name in table})
    model = dp.ols("y ~ a + b + c + d + e", table, schema)
    fit = model.fit(dp.Central(1.0, 1e-6), noise=dp.SeededNoise(1))
    assert any("second moments" in text for text in fit.plan.warnings)
    assert any("resolves the whitened Gram" in text for text in fit.error_bound.failing())


def test_conditions_of_a_term_are_conditions_of_the_bound_once():
    given = (Assumption("Lower bound", "eps < 1"),)
    rate = Rate("privacy", "1/n", SOURCE, given=given)
    theory = replace(THEORY, assumptions=(), lower=(rate, rate))
    bound = error_bound(theory, replace(SETTING, epsilon=1.0))
    assert bound.failing() == ("Lower bound: eps < 1",)
    assert len(bound.assumptions) == 1


def test_a_conjectured_order_says_so():
    conjectured = Rate("privacy", "1/n", SOURCE, conjectured=True)
    text = repr(error_bound(replace(THEORY, upper=(conjectured,)), SETTING))
    assert "Order conjectured from" in text
    assert "Order conjectured" not in repr(error_bound(THEORY, SETTING))


def test_the_variant_that_names_most_options_is_what_is_known():
    one, two = replace(THEORY, estimand="one"), replace(THEORY, estimand="two")
    theory = replace(THEORY, variants={("public_rows",): one, ("public_rows", "channel=g"): two})
    assert theory.under({}) is theory.under({"public_rows": None, "channel": "g"}) is theory
    assert theory.under({"public_rows": 5, "channel": "p"}) is one
    assert theory.under({"public_rows": 5, "channel": "g"}) is two
    assert [given for given, _ in theory.rows()] == ["", "public=", "public= and channel=g"]


def test_an_assumption_without_a_formula_is_unknown():
    assert Assumption("errors are light-tailed").holds(SETTING) is None
    assert math.isnan(ErrorBound(()).value("exact", "upper", "privacy"))
