"""Symmetric mixtures: laws of made-up rows, errors, intervals, the test of the model, refusals."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

import dpstats as dp
from dpstats.errors import OptionError
from dpstats.estimators.central.mixtures import symmetric_expected
from dpstats.estimators.central.mixtures.symmetric import questioned
from dpstats.estimators.central.mixtures.symmetric_law import LinesLaw, RowsLaw, asked_score
from dpstats.estimators.numerics.released import even_points
from dpstats.families.signs import SignedFamily
from dpstats.queries import Geometry, LongEntries, Score, SignedRows
from tests.estimators.symmetric_cases import (
    SIGMA,
    error,
    fitted,
    formula,
    lines,
    names,
    of_lines,
    of_rows,
    rows,
    schema_of_lines,
    unit,
)
from tests.queries.cases import answer, block

BETA = np.array([0.8, -0.5, 0.3])


def log_density(law, made):
    """Of rows, or of responses given their covariates."""
    x, apart = (made, ()) if isinstance(law, RowsLaw) else (made[:, -1:], (made[:, :-1],))
    centre = law.beta if isinstance(law, RowsLaw) else (apart[0] @ law.beta)[:, None]
    logs = [-np.sum((x - s * centre) ** 2, axis=1) / (2 * law.sigma**2) for s in (1, -1)]
    return np.logaddexp(*logs) - x.shape[1] * math.log(law.sigma)


@pytest.mark.parametrize("law", [RowsLaw(BETA, 0.7, False), LinesLaw(BETA, 0.7, False)])
def test_scores_are_derivatives_of_the_log_density(law) -> None:
    made, step = law.rows(even_points(law.uniforms, 64)), 1e-5
    for p, e in enumerate(np.eye(law.size) * step):
        slope = (log_density(law.moved(e), made) - log_density(law.moved(-e), made)) / (2 * step)
        np.testing.assert_allclose(law.scores(made)[:, p], slope, atol=1e-5)


@pytest.mark.parametrize("kind", [RowsLaw, LinesLaw])
def test_made_up_rows_contribute_what_rows_do(kind) -> None:
    law = kind(BETA / 3, 0.2, False)
    made = np.clip(law.rows(even_points(law.uniforms, 128)), -1, 1)
    if kind is RowsLaw:
        query = SignedRows(law.beta / 0.3, 0.3, 1.1)
        expected, x, y = query.rows(made).sum(axis=0), made, np.zeros(len(made))
    else:
        signs = SignedFamily("symmetric mixture", "lines", law.sigma**-2)
        query = Score(Geometry(1.0), law.beta, 0.2, signs)
        expected = asked_score(query, np.zeros(3), 1.0).contributions(made).sum(axis=0)
        x, y = made[:, :-1], made[:, -1]
    np.testing.assert_allclose(answer(query, block(x, y, query)), expected, atol=5e-3)


def test_long_entries_are_counted_by_column() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-1, 1, (60, 3)), rng.uniform(-1, 1, 60)
    plain, products = LongEntries(0.4), LongEntries(0.4, products=True)
    np.testing.assert_array_equal(answer(plain, block(x, y, plain)), (np.abs(x) > 0.4).sum(axis=0))
    wanted = (np.abs(x * y[:, None]) > 0.4).sum(axis=0)
    np.testing.assert_allclose(answer(products, block(x, y, products)), wanted, atol=1)


def test_both_models_are_found_with_intervals() -> None:
    """Seeds 1 and 2; largest of eight standardised errors, which exceeds 4 once in 2,000 times."""
    truth = unit(3)
    of = fitted(of_rows(rows(4_000, truth, 1), 3), 1.0, 1)
    other = fitted(of_lines(lines(8_000, truth, 2), 3), 1.0, 2, normal=True)
    for fit in (of, other):
        assert fit.has_inference
        assert fit.goodness_of_fit["p"] > 0.05
        distance = np.append(fit.beta - truth, fit.sigma - SIGMA) / fit.bse
        assert np.abs(distance).max() < 4
        assert list(fit.bse.index) == [*names(3), "sigma"]
    unasserted = fitted(of_lines(lines(4_000, truth, 2), 3), 1.0, 2)
    assert "normal=True" in unasserted.no_inference


@pytest.mark.full
@pytest.mark.parametrize("seed", [7, 8])
def test_a_sigma_that_noise_hides_does_not_make_questions_of_no_use(seed) -> None:
    """Where second moments make sigma look like 0, clips at multiples of it kept nothing.

    Errors of these tables were 235 and 53 standard errors.
    """
    beta = 0.95 * unit(8)
    fit = fitted(of_lines(lines(2_000, beta, seed), 8), 1.0, seed, normal=True)
    assert fit.has_inference
    gaps = np.abs(fit.beta.to_numpy()) - beta
    assert np.abs(gaps / fit.bse.to_numpy()[:-1]).max() < 3.5
    assert 0.4 < fit.sigma < 0.6


def test_the_law_of_questions_has_a_sigma_where_it_is_not_known() -> None:
    law = LinesLaw(np.array([3.0, 4.0]), 0.01, known=False)
    unsure = SimpleNamespace(law=law, cov=np.diag([0.1, 0.1, 4.0]))
    assert questioned(unsure).sigma == pytest.approx(5 * math.sqrt(0.2))
    assert questioned(SimpleNamespace(law=law, cov=np.diag([0.1, 0.1, 0.01]))) is law
    known = LinesLaw(law.beta, 0.01, known=True)
    assert questioned(SimpleNamespace(law=known, cov=np.eye(2))) is known


def test_a_public_sigma_is_no_parameter() -> None:
    fit = fitted(of_rows(rows(3_000, unit(2), 3), 2), 1.0, 3, sigma=SIGMA)
    assert fit.sigma == pytest.approx(SIGMA)
    assert list(fit.bse.index) == names(2)
    assert error(fit, unit(2)) < 0.1


def test_few_of_many_columns_are_found() -> None:
    """Seed 4: d = 150, s = 4."""
    truth = unit(150, 4)
    fit = fitted(of_rows(rows(4_000, truth, 4), 150), 1.0, 4, sparsity=4)
    assert fit.selected == names(4)
    assert error(fit, truth) < 0.1
    assert fit.sigma == pytest.approx(SIGMA, abs=0.01)
    assert not fit.has_inference


@pytest.mark.full
def test_few_columns_of_regressions_are_found() -> None:
    """Seed 5: d = 60, s = 4."""
    truth = unit(60, 4)
    fit = fitted(of_lines(lines(20_000, truth, 5), 60), 1.0, 5, sparsity=4)
    assert fit.selected == names(4)
    assert error(fit, truth) < 0.1


@pytest.mark.full
@pytest.mark.parametrize("errors", ["uniform", "unequal"])
def test_rows_that_are_no_such_mixture_get_no_interval(errors: str) -> None:
    fit = fitted(of_rows(rows(30_000, unit(4), 6, errors), 4), 4.0, 6)
    assert fit.goodness_of_fit["p"] < 0.05
    assert not fit.has_inference


@pytest.mark.full
@pytest.mark.parametrize("kind", ["rows", "lines"])
def test_one_population_is_not_taken_for_two(kind: str) -> None:
    """What errors make of b = 0 is about 2 sqrt(2 d) = 6 standard errors long, and no b."""
    for seed in range(6):
        if kind == "rows":
            fit = fitted(of_rows(rows(5_000, np.zeros(5), 200 + seed), 5), 1.0, seed)
        else:
            fit = fitted(of_lines(lines(5_000, np.zeros(5), 200 + seed), 5), 1.0, seed, normal=True)
        assert "Noise hides b" in " ".join(fit.estimate.remarks)
        assert not fit.has_inference


@pytest.mark.full
def test_correlated_covariates_are_noticed() -> None:
    rng, data = np.random.default_rng(7), lines(30_000, unit(3), 7)
    data["x1"] = 0.8 * data["x0"] + 0.6 * data["x1"]
    signs = rng.choice([-1.0, 1.0], len(data))
    data["y"] = signs * (data[names(3)] @ unit(3)) + SIGMA * rng.normal(size=len(data))
    fit = fitted(of_lines(data, 3), 2.0, 7, normal=True)
    assert not fit.has_inference


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rows", "lines"])
def test_intervals_cover_and_shorter_ones_would_not(kind: str) -> None:
    """100 fits, 400 intervals of 95 %: a share below .90 has a chance of about 1e-4.

    Intervals of .7 of the length cover 83 %, which is below .90 with a chance of .999.
    """
    truth, z = unit(3), []
    for seed in range(100):
        if kind == "rows":
            fit = fitted(of_rows(rows(4_000, truth, 100 + seed), 3), 1.0, seed)
        else:
            data = lines(6_000, truth, 100 + seed)
            fit = fitted(of_lines(data, 3), 1.0, seed, normal=True)
        if fit.has_inference:
            z.append(np.append(fit.beta - truth, fit.sigma - SIGMA) / fit.bse)
    z = np.abs(np.array(z))
    assert len(z) > 80
    assert np.mean(z < 1.96) > 0.90
    assert np.mean(z < 0.7 * 1.96) < 0.90


@pytest.mark.slow
def test_the_papers_settings_are_met_with_sigma_unknown() -> None:
    """n = 4,000, d = 1,000, s = 10, epsilon .5, delta 1/(2n): mean of ten within .044 + .012."""
    truth = unit(1000, 10)
    errors = [
        error(fitted(of_rows(rows(4_000, truth, s), 1000), 0.5, s, 1 / 8000, sparsity=10), truth)
        for s in range(10)
    ]
    assert np.mean(errors) < 0.056


@pytest.mark.full
def test_what_is_out_of_reach_is_refused_with_the_n_that_would_do_and_before_the_charge() -> None:
    wide = dp.Schema({name: dp.Numeric(-5, 5) for name in names(1000)})
    model = dp.gaussian_mixture("~ .", None, wide, symmetric=True, n=4_000)
    assert not model.plan(dp.Central(0.5, 1 / 8000), sparsity=10).warnings
    for s, eps in ((15, 0.5), (10, 0.3)):
        with pytest.raises(OptionError, match="Out of reach") as told:
            model.plan(dp.Central(eps, 1e-6), sparsity=s)
        n = int(str(told.value).split("About n=")[1].split(" ")[0].replace(",", ""))
        more = dp.gaussian_mixture("~ .", None, wide, symmetric=True, n=n)
        assert not more.plan(dp.Central(eps, 1e-6), sparsity=s).warnings
    regressions = dp.mixture_ols(formula(300), None, schema_of_lines(300), symmetric=True, n=5_000)
    with pytest.raises(OptionError, match=r"Out of reach.*About n="):
        regressions.plan(dp.Central(0.6, 1e-4), sparsity=10)
    ledger, truth = dp.Ledger.memory(5.0, 1e-2), unit(30, 8)
    with pytest.raises(OptionError, match="signal="):
        of_rows(rows(300, truth, 1), 30).fit(dp.Central(0.5, 1e-4), ledger, sparsity=8)
    assert ledger.spent == (0.0, 0.0)
    few = of_lines(lines(300, unit(3), 1), 3).plan(dp.Central(0.1, 1e-5))
    assert "hide the direction of b" in " ".join(few.warnings)


def test_a_longer_b_is_thought_of_where_it_is_publicly_known_to_be() -> None:
    """It moves what the plan says, and nothing that is asked."""
    wide = dp.Schema({name: dp.Numeric(-5, 5) for name in names(1000)})
    model = dp.gaussian_mixture("~ .", None, wide, symmetric=True, n=4_000)
    longer = model.plan(dp.Central(0.3, 1e-6), sparsity=10, signal=3.0)
    assert not longer.warnings
    assert "3 sigma long" in " ".join(longer.assumptions)
    usual, much = (model.plan(dp.Central(0.5, 1e-4), sparsity=10, **o) for o in ({}, {"signal": 3}))
    assert usual.mechanisms == much.mechanisms
    assert usual.predicted_error > much.predicted_error
    for wrong in (0.0, -1.0, "much"):
        with pytest.raises(OptionError, match="signal"):
            model.plan(dp.Central(0.5, 1e-4), sparsity=10, signal=wrong)


def test_the_signal_that_is_refused_is_the_one_at_which_half_of_a_choice_is_noise() -> None:
    d, s, rng = 1000, 10, np.random.default_rng(8)
    for chosen in (7, 10):
        values = rng.gumbel(size=(4_000, d))
        values[:, :s] += symmetric_expected._clear(d, s, chosen)
        found = np.argsort(-values, axis=1)[:, :chosen] < s
        assert found.mean() == pytest.approx(0.5, abs=0.03)
    assert symmetric_expected._clear(10, 8, 8) == 0.0


@pytest.mark.parametrize(("make", "draw"), [(of_rows, rows), (of_lines, lines)])
def test_b_that_noise_hides_wherever_it_is_is_refused_before_the_charge(make, draw) -> None:
    ledger, privacy = dp.Ledger.memory(5.0, 1e-2), dp.Central(0.6, 1e-6)
    few = make(draw(40, unit(5), 1), 5)
    with pytest.raises(OptionError, match="noise hides b whatever the rows are") as told:
        few.fit(privacy, ledger)
    assert ledger.spent == (0.0, 0.0)
    n = int(str(told.value).split("About n=")[1].split(" ")[0].replace(",", ""))
    more = make(draw(int(1.2 * n), unit(5), 1), 5).plan(privacy)
    assert not [w for w in more.warnings if "noise may hide" in w]


def test_columns_are_selected_of_a_symmetric_mixture_without_a_word_of_it() -> None:
    privacy = dp.Central(0.5, 1e-4)
    schema = dp.Schema({name: dp.Numeric(-5, 5) for name in names(50)})
    for covariance in ("full", "spherical"):
        plans = [
            dp.gaussian_mixture("~ .", None, schema, n=4_000, **options).plan(privacy, sparsity=5)
            for options in ({"covariance": covariance}, {"symmetric": True})
        ]
        assert plans[0] == plans[1]
    for options in ({"components": 3}, {"covariance": "tied"}):
        with pytest.raises(OptionError, match="symmetric=True"):
            dp.gaussian_mixture("~ .", None, schema, n=4_000, **options).plan(privacy, sparsity=5)
    truth = np.zeros(50)
    truth[:3] = 1.0
    free = dp.gaussian_mixture("~ .", rows(4_000, truth, 1), schema)
    found = free.fit(dp.Central(1.0, 1e-4), sparsity=3, noise=dp.SeededNoise(0))
    assert set(found.means.columns[found.means.loc[1] != 0]) == {"x0", "x1", "x2"}
    with pytest.raises(OptionError, match="y ~ 0"):
        dp.mixture_ols("y ~ x0", None, schema_of_lines(1), n=99).plan(privacy, sparsity=1)


def test_bad_input_gets_a_clear_error() -> None:
    schema, privacy = dp.Schema(x0=dp.Numeric(-5, 5), x1=dp.Numeric(-5, 5)), dp.Central(1.0, 1e-5)
    for options, word in (
        ({"components": 3}, "two components"),
        ({"covariance": "tied"}, "sigma\\^2 I"),
        ({"symmetric": "yes"}, "True or False"),
    ):
        with pytest.raises(OptionError, match=word):
            dp.gaussian_mixture("~ .", None, schema, n=10, **{"symmetric": True, **options})
    with pytest.raises(OptionError, match="two components"):
        dp.mixture_ols("y ~ 0 + x0", None, schema_of_lines(1), n=9, symmetric=True, components=3)
    constant = dp.mixture_ols("y ~ x0", None, schema_of_lines(1), n=99, symmetric=True)
    with pytest.raises(OptionError, match="y ~ 0"):
        constant.plan(privacy)
    model = dp.gaussian_mixture("~ .", None, schema, n=1_000, symmetric=True)
    for options, word in (
        ({"sigma": -1.0}, "sigma"),
        ({"sparsity": (1, 2)}, "one whole number"),
        ({"sparsity": 3}, "sparsity"),
        ({"covariance": "full"}, "no option"),
    ):
        with pytest.raises(OptionError, match=word):
            model.plan(privacy, **options)
    with pytest.raises(OptionError, match="one column"):
        dp.gaussian_mixture("~ x0", None, schema, n=99, symmetric=True).plan(privacy)
    many = dp.Schema({name: dp.Numeric(-5, 5) for name in names(45)})
    with pytest.raises(OptionError, match="sparsity="):
        dp.gaussian_mixture("~ .", None, many, n=99, symmetric=True).plan(privacy, method="em")
