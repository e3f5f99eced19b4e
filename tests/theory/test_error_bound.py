"""Error bounds: rates evaluated as data, conditions judged, tiers kept apart."""

import math
from dataclasses import replace

import numpy as np
import pytest

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
from tests.results.cases import THEORY, make

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
    assert "[FAILS HERE] eps <= 1/2" in repr(bound)


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
    assert set(frame["tier"]) == {"exact", "plug-in", "rate"}
    assert set(frame["term"]) == {"statistical", "privacy", "total"}
    assert set(frame["side"]) == {"equal", "upper", "lower"}


def test_the_exact_tier_is_the_known_law_of_the_noise():
    fit, _ = make(share=0.4)
    bound, cov = fit.error_bound, fit.estimate.cov_privacy
    draws = np.random.default_rng(0).multivariate_normal(np.zeros(5), cov, 100_000)
    norms = np.linalg.norm(draws, axis=1)
    mean = bound.value("exact", "equal", "privacy", "E||error||")
    radius = bound.value("exact", "upper", "privacy", "95% radius")
    assert abs(norms.mean() - mean) < 5 * norms.std() / np.sqrt(1e5)
    assert abs((norms < radius).mean() - 0.95) < 5 * np.sqrt(0.95 * 0.05 / 1e5)
    sd = bound.value("exact", "equal", "privacy", "sd(age)")
    assert sd == pytest.approx(np.sqrt(0.4) * fit.bse["age"])


def test_the_plug_in_tier_adds_up_in_squares():
    bound = make(share=0.4)[0].error_bound
    parts = [bound.value("plug-in", "equal", term) for term in ("statistical", "privacy")]
    assert math.hypot(*parts) == pytest.approx(bound.value("plug-in", "equal", "total"))


def test_repr_is_readable_within_a_page():
    text = repr(make()[0].error_bound)
    for word in ("1 exact", "2 plug-in", "3 rate, constants = 1", "is not a bound", "95% radius"):
        assert word in text
    assert max(map(len, text.splitlines())) <= 100


def test_a_rate_that_says_nothing_at_a_setting_is_not_applicable():
    """log(1/delta) at delta = 0, log(d/s) at s = d, and a sparsity that nobody named."""
    for formula in ("sqrt(log(1/delta)/n)", "sqrt(s log(d/s)/n)", "p/n"):
        theory = replace(THEORY, upper=(Rate("privacy", formula, SOURCE),))
        bound = error_bound(theory, Setting(n=100, d=4, epsilon=1.0, delta=0.0, s=4))
        assert math.isnan(bound.value("rate", "upper", "total"))
        assert "not applicable" in repr(bound)
        assert "nan" not in repr(bound)


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
