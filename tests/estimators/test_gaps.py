"""Rows that miss covariates: completed, and stepped by augmented scores."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm

import dpstats as dp
from dpstats.datasets import randhie
from dpstats.errors import DPStatsError, FormulaError, OptionError, TrustError
from dpstats.estimators.central.gaps.moments import SecondMoments, completion
from dpstats.estimators.central.gaps.patterns import made_up_gaps
from dpstats.estimators.central.newton.whitening import Metric
from dpstats.queries.completed import completed_rows
from tests.grids import grid

pytestmark = pytest.mark.filterwarnings("ignore::dpstats.errors.FeasibilityWarning")

P = 3
RATES = np.array([0.1, 0.2, 0.3])
COV = 0.6 ** np.abs(np.subtract.outer(np.arange(P), np.arange(P)))
SLOPES = np.array([0.3, 1.0, -0.5, 0.7])
SCHEMA = dp.Schema(
    {f"x{j}": dp.Numeric(-9, 9, scale=1) for j in range(P)}
    | {"y": dp.Numeric(-9, 9, scale=1), "g": dp.Categorical(["a", "b"])}
)
FORMULA = "y ~ x0 + x1 + x2"
PRIVACY = dp.Central(1.0, 1e-6)


def rows(n, seed, shape="normal", rates=RATES):
    """Covariates, responses and gaps (True where missing)."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, P))
    if shape == "skewed":
        z = rng.exponential(size=(n, P)) - 1
    x = z @ np.linalg.cholesky(COV).T
    y = SLOPES[0] + x @ SLOPES[1:] + 0.5 * rng.normal(size=n)
    return x, y, rng.uniform(size=(n, P)) < rates


def table(x, y, gaps):
    return {f"x{j}": np.where(gaps[:, j], np.nan, x[:, j]) for j in range(P)} | {"y": y}


def fitted(data, privacy=PRIVACY, seed=1, schema=SCHEMA, formula=FORMULA, **options):
    model = dp.ols(formula, data, schema, missing="em")
    return model.fit(privacy, noise=dp.SeededNoise(seed), **options)


def test_completed_rows_are_conditional_means_of_normal_rows():
    """The witness is the block formula, pattern by pattern."""
    rng = np.random.default_rng(0)
    second = np.eye(P + 1)
    second[1:, 1:] = COV
    x, missing = rng.normal(size=(40, P + 1)), rng.uniform(size=(40, P + 1)) < 0.4
    hidden = np.where(missing, np.nan, x)
    made = completed_rows(hidden, missing, np.linalg.inv(second))
    for row, whole, u in zip(hidden, made, missing, strict=True):
        wanted = second[np.ix_(u, ~u)] @ np.linalg.solve(second[np.ix_(~u, ~u)], row[~u])
        assert np.allclose(whole[u], wanted)
        assert np.array_equal(whole[~u], row[~u])
        assert np.allclose(completion(u, np.linalg.inv(second)) @ np.where(u, 0.0, row), whole)


@pytest.mark.parametrize("how", ["apart", "nested", "never together"])
def test_made_up_gaps_have_the_shares_of_columns_and_of_pairs(how):
    """Shares against those of rows that miss one column with the other, or never both."""
    u = np.random.default_rng(3).uniform(size=(200_000, 2))
    missing = {
        "apart": np.column_stack([u[:, 0] < 0.3, u[:, 1] < 0.2]),
        "nested": np.column_stack([u[:, 0] < 0.3, u[:, 0] < 0.2]),
        "never together": np.column_stack([u[:, 0] < 0.3, u[:, 0] > 0.8]),
    }[how]
    seen = np.column_stack([np.ones(len(u)), ~missing])
    both = seen.T @ seen / len(u)
    made = 1.0 - made_up_gaps(both, 2**13)
    np.testing.assert_allclose(made.T @ made / len(made), both, atol=0.01)
    independent = float(np.prod(both[0, 1:]))
    assert (how == "apart") == (abs(both[1, 2] - independent) < 0.01)  # power


@pytest.mark.full
def test_with_a_large_budget_the_answer_is_right_where_filling_a_mean_is_not():
    x, y, gaps = rows(30_000, 2)
    found = fitted(table(x, y, gaps), dp.Central(50.0, 1e-6))
    apart = (found.params.to_numpy() - SLOPES) / found.bse.to_numpy()
    assert np.abs(apart).max() < 4.0  # false alarm 3e-4
    full = sm.OLS(y, sm.add_constant(x)).fit()
    assert (found.bse.to_numpy() > full.bse).all()  # gaps cost something
    filled = sm.OLS(y, sm.add_constant(np.where(gaps, 0.0, x))).fit()
    assert np.abs((filled.params - SLOPES) / filled.bse).max() > 10  # power


@pytest.mark.parametrize("how", ["skewed", "together"])
def test_no_law_of_rows_or_of_gaps_is_needed_for_an_interval(how):
    """Skewed columns; and gaps of which one comes with the others."""
    x, y, gaps = rows(20_000, 4, shape=how)
    if how == "together":
        gaps = np.repeat(gaps[:, 2:], P, axis=1)
    found = fitted(table(x, y, gaps), dp.Central(20.0, 1e-6))
    apart = (found.params.to_numpy() - SLOPES) / found.bse.to_numpy()
    assert np.abs(apart).max() < 4.0  # false alarm 3e-4
    assert found.bse.max() < 0.02


def test_the_distance_to_a_fit_without_privacy_counts_what_gaps_cost():
    """There is no table without gaps to compare with: the bound is half the interval."""
    found = fitted(table(*rows(5_000, 51)))
    said = found.error_bound.sentence()
    half = float((found.conf_int()[1] - found.conf_int()[0])["x0"]) / 2
    assert "where the model holds" in said.lower()
    assert f"that of x0 is within {half:.3g}" in said or f"of x0 is within {half:.3g}" in said


def refined(true, noise=0.0):
    """Second moments that are far off, given the Gram matrix that completing by them leads to."""
    d, n = len(true), 10_000.0
    rates = np.linspace(0.0, 0.4, d)
    both = np.outer(1 - rates, 1 - rates)
    np.fill_diagonal(both, 1 - rates)
    first = SecondMoments(n, both, np.diag(np.diag(true)) + 0.3, None)
    gram = sum(share * k @ true @ k.T for k, share in zip(*first.completions, strict=True))
    values, vectors = np.linalg.eigh(gram)
    w = vectors / np.sqrt(values)
    error = np.random.default_rng(0).normal(size=(d, d))
    curvature = np.eye(d) + noise / n * (error + error.T)
    variances = np.full((d, d), max(noise, 1e-6) ** 2 * 2)
    metric = Metric(w, curvature, curvature, variances, np.zeros((d, 0)), 3.0)
    schema = dp.Schema({c: dp.Numeric(-9, 9, scale=1) for c in "xzvy"})
    rows = {c: np.arange(10.0) for c in "xzvy"}
    design = dp.ols("y ~ x + z + v", rows, schema).design
    return first.refined(design, metric)


def test_moments_follow_from_those_of_rows_that_were_completed_by_wrong_ones():
    """Columns of which one is nearly the sum of the others; nothing but the Gram matrix tells."""
    half = np.array([[1, 0, 0, 0], [0.5, 1, 0, 0], [-0.5, 0.3, 1, 0], [0, 1.3, 1, 0.1]])
    true = half @ half.T
    found = refined(true)
    np.testing.assert_allclose(found.second, true, atol=1e-8)
    assert found.clear > 1e3


def test_how_far_noise_leaves_moments_open_is_known():
    """Noise a twentieth of what was released leaves directions known to some noises."""
    half = np.tril(np.ones((4, 4)))
    found = refined(half @ half.T, 500.0)
    assert 2 < found.clear < 20
    assert np.linalg.eigvalsh(found.second)[0] > 0
    assert refined(half @ half.T, 10_000.0).clear < 2


@pytest.mark.parametrize(
    ("offset", "half", "epsilon", "rate", "shown"),
    grid([(90, 9e3, 4.0, 0.15, 4), (0, 9e3, 4.0, 0.15, 6), (90, 9e4, 0.5, 0.4, 0)], 1),
)
def test_columns_that_are_nearly_alike_in_ranges_far_too_wide(offset, half, epsilon, rate, shown):
    """Intervals hold, or none is given where noise hides how the columns vary together.

    With an offset found scales are many times those of the column. Completed by moments from what
    was observed alone, fits were up to nine standard errors off.
    """
    rng = np.random.default_rng(21)
    n = 12_000
    x = rng.normal(size=n)
    z = -0.97 * x + 0.24 * rng.normal(size=n)
    y = 1 + x + z + 0.5 * rng.normal(size=n)
    schema = dp.Schema({c: dp.Numeric(-half, half) for c in "xzy"})
    apart = []
    for seed in range(6):
        gone = np.random.default_rng(seed).uniform(size=(n, 2)) < rate
        holed = {
            "x": np.where(gone[:, 0], np.nan, x + offset),
            "z": np.where(gone[:, 1], np.nan, z),
        }
        found = fitted(holed | {"y": y}, dp.Central(epsilon, 1e-6), seed, schema, "y ~ x + z")
        if found.has_inference:
            apart.append((found.params[["x", "z"]] - 1).abs() / found.bse[["x", "z"]])
        else:
            assert "Noise hides how columns vary together" in " ".join(found.estimate.remarks)
    assert len(apart) >= shown if shown else not apart
    assert not apart or np.max(apart) < 3.5  # false alarm of 24: 1 %


@pytest.mark.parametrize("scale", [100.0, 1e4])
def test_scales_far_too_wide_stop_no_fit(scale):
    """Second moments of 1e-8 squared scales were beyond what a question takes, after the charge."""
    x, y, gaps = rows(5_000, 3)
    declared = {f"x{j}": dp.Numeric(-1e5, 1e5, center=0, scale=scale) for j in range(P)}
    schema = dp.Schema(declared | {"y": dp.Numeric(-9, 9, scale=1)})
    found = fitted(table(x, y, gaps), dp.Central(50.0, 1e-6), schema=schema)
    said = " ".join(found.estimate.remarks)
    assert found.has_inference or "Noise hides how columns vary together" in said
    assert scale < 1_000 or not found.has_inference


@pytest.mark.full
def test_columns_that_are_all_but_alike_have_intervals():
    """A correlation of .995, a fifth of each missing: second moments of what was observed are
    far too rough, and before those of completed rows were used no fit had an interval."""
    rng = np.random.default_rng(5)
    n = 20_000
    x = rng.normal(size=(n, 3))
    x[:, 1] = x[:, 0] + 0.1 * x[:, 1]
    y = SLOPES[0] + x.sum(axis=1) + rng.normal(size=n)
    apart = []
    for seed in range(6):
        found = fitted(table(x, y, rng.uniform(size=(n, P)) < 0.2), PRIVACY, seed)
        assert found.has_inference
        apart.append((found.params - np.r_[SLOPES[0], np.ones(3)]).abs() / found.bse)
    assert np.mean(np.array(apart) < 1.96) >= 0.8  # of 24, whose share has a standard error of .045


@pytest.mark.full
@pytest.mark.parametrize("shape", ["normal", "skewed"])
def test_intervals_hold_the_coefficients_as_often_as_they_say(shape):
    """Over 60 tables: 240 coefficients, whose share has a standard error of .014."""
    held, narrow = [], []
    for seed in range(60):
        found = fitted(table(*rows(10_000, 1_000 + seed, shape=shape)), seed=seed)
        apart = np.abs(found.params.to_numpy() - SLOPES) / found.bse.to_numpy()
        held.append(apart < 1.96)
        narrow.append(apart < 0.98)
    assert 0.90 < np.mean(held) < 0.99
    assert np.mean(narrow) < 0.80  # power: intervals of half the length do not hold it


def test_levels_powers_and_products_go_missing_together():
    """A factor whose dummies miss jointly, a square and a product, against rows without gaps."""
    rng = np.random.default_rng(8)
    n = 12_000
    x, g = rng.exponential(size=n) - 1, rng.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2])
    z = 0.5 * x + rng.normal(size=n)
    y = 0.5 + x + 0.2 * x**2 - (g == "b") + 0.6 * (g == "c") * z + rng.normal(size=n)
    holed = {
        "x": np.where(rng.uniform(size=n) < 0.2, np.nan, x),
        "g": np.where(rng.uniform(size=n) < 0.2, None, g),
        "z": np.where(rng.uniform(size=n) < 0.2, np.nan, z),
    }
    schema = dp.Schema(
        y=dp.Numeric(-20, 20, scale=2),
        x=dp.Numeric(-2, 10, scale=1),
        z=dp.Numeric(-9, 9, scale=1),
        g=dp.Categorical(["a", "b", "c"]),
    )
    formula = "y ~ x + I(x ** 2) + C(g) * z"
    found = fitted(holed | {"y": y}, dp.Central(20.0, 1e-6), schema=schema, formula=formula)
    whole = sm.OLS.from_formula(formula, {"x": x, "g": g, "z": z, "y": y}).fit()
    assert set(found.params.index) == set(whole.params.index)
    apart = (found.params - whole.params) / found.bse
    assert np.abs(apart).max() < 4.0
    ratio = (found.bse / whole.bse).to_numpy()
    assert (ratio > 1).all()
    assert ratio.max() < 10


@pytest.mark.full
def test_on_real_rows_intervals_hold_what_rows_without_gaps_give():
    df, schema = randhie.load()
    formula = "mdvis ~ lncoins + disea + lpi + hlthg"
    whole = sm.OLS.from_formula(formula, df).fit()
    apart = []
    for seed in range(12):
        gone = np.random.default_rng(seed).uniform(size=(len(df), 3)) < 0.2
        holed = df.assign(
            disea=df.disea.mask(gone[:, 0]),
            lpi=df.lpi.mask(gone[:, 1]),
            hlthg=df.hlthg.mask(gone[:, 2]),
        )
        found = fitted(holed, seed=seed, schema=schema, formula=formula)
        apart.append((found.params - whole.params).to_numpy() / found.bse.to_numpy())
    assert np.mean(np.abs(apart) < 1.96) >= 0.9
    assert np.mean(np.abs(apart) < 0.3) < 0.6  # power


def test_a_column_that_nobody_answered_is_said_and_has_no_interval():
    x, y, gaps = rows(4_000, 5)
    gaps[:, 1] = True
    found = fitted(table(x, y, gaps))
    assert "'x1' were missing" in " ".join(found.estimate.remarks)
    assert not np.isfinite(found.conf_int().to_numpy()).any()


def test_covariates_that_no_row_has_both_of_are_named_and_have_no_interval():
    """Second moments of two halves of a questionnaire are unknown: slopes are .4 and more off."""
    x, y, gaps = rows(4_000, 5)
    gaps[:, 0], gaps[:, 1] = np.arange(4_000) % 2 == 0, np.arange(4_000) % 2 == 1
    found = fitted(table(x, y, gaps))
    said = " ".join(found.estimate.remarks)
    assert "Hardly any row has both 'x0' and 'x1'" in said
    assert not np.isfinite(found.conf_int().to_numpy()).any()
    gaps[:800, :2] = False  # a fifth of the rows has both
    assert "Hardly any row" not in " ".join(fitted(table(x, y, gaps)).estimate.remarks)


def test_rows_without_a_response_are_not_said_to_be_completed():
    x, y, gaps = rows(4_000, 5)
    y[:2_000] = np.nan
    said = " ".join(fitted(table(x, y, gaps)).estimate.remarks)
    assert "'y' were missing or of no declared level, and their rows count as nothing" in said
    assert "'x2' were missing or of no declared level, and were completed" in said


@pytest.mark.parametrize(
    ("formula", "what"),
    [
        ("y ~ 0 + x0", "with an intercept"),
        ("y ~ 1", "1 to 30 covariates"),
    ],
)
def test_what_cannot_be_completed_is_refused_before_the_charge(formula, what):
    data = table(*rows(50, 6)) | {"g": np.array(["a", "b"] * 25, dtype=object)}
    ledger = dp.Ledger.memory(1.0, 1e-6)
    with pytest.raises(FormulaError, match=what):
        dp.ols(formula, data, SCHEMA, missing="em").fit(PRIVACY, ledger=ledger)
    assert ledger.spent == (0.0, 0.0)


@pytest.mark.parametrize(
    ("asked", "error", "what"),
    [
        ({"sparsity": 1}, OptionError, "noise grows with their number"),
        ({"method": "newton"}, OptionError, "a method of its own"),
        ({"target": "robust"}, OptionError, "no option 'target'"),
        ({"complete": 0}, OptionError, "public guess"),
        ({"complete": "most"}, OptionError, "public guess"),
        ({"privacy": dp.Local(1.0)}, TrustError, "one curator"),
        ({"privacy": dp.LabelOnly(1.0)}, TrustError, "one curator"),
    ],
)
def test_what_does_not_go_with_completing_is_refused(asked, error, what):
    model = dp.ols(FORMULA, table(*rows(50, 6)), SCHEMA, missing="em")
    with pytest.raises(error, match=what):
        model.plan(asked.pop("privacy", PRIVACY), **asked)


@pytest.mark.parametrize(
    "make",
    [
        lambda: dp.logit("g ~ x0", schema=SCHEMA, n=100, missing="em"),
        lambda: dp.glm("x0 ~ x1", schema=COUNTS, family="poisson", n=100, missing="em"),
        lambda: dp.mean("y", schema=SCHEMA, n=100, missing="em"),
        lambda: dp.mean("y", schema=SCHEMA, by="g", n=100, missing="em"),
    ],
)
def test_other_models_take_complete_rows(make):
    with pytest.raises(OptionError, match="Use missing='complete'"):
        make()


COUNTS = dp.Schema(x0=dp.Numeric(0, 20), x1=dp.Numeric(-1, 1), g=dp.Categorical(["a", "b"]))


@pytest.mark.parametrize("missing", ["drop", None, 1])
def test_an_unknown_way_is_refused(missing):
    with pytest.raises(OptionError, match="'complete' and 'em'"):
        dp.ols(FORMULA, schema=SCHEMA, n=100, missing=missing)


@pytest.mark.parametrize(
    "make",
    [
        lambda n: dp.ols(FORMULA, schema=SCHEMA, n=n, missing="complete"),
        lambda n: dp.logit("g ~ x1", schema=COUNTS, n=n, missing="complete"),
        lambda n: dp.glm("x0 ~ x1", schema=COUNTS, family="poisson", n=n, missing="complete"),
        lambda n: dp.mean("y", schema=SCHEMA, n=n, missing="complete"),
    ],
)
def test_a_plan_expects_what_complete_rows_alone_give_at_the_same_cost(make):
    plan, whole = make(20_000).plan(PRIVACY, complete=0.6), make(20_000).plan(PRIVACY)
    fewer = make(12_000).plan(PRIVACY)
    assert (plan.mechanisms, plan.cost, plan.n) == (whole.mechanisms, whole.cost, whole.n)
    assert plan.predicted_se == fewer.predicted_se
    assert "60% of the rows" in " ".join(plan.assumptions)
    assert "times those of a table without gaps" in " ".join(plan.assumptions)
    assert (np.array(plan.predicted_se) > np.array(whole.predicted_se)).all()


def test_a_fit_does_not_depend_on_the_guess():
    data = table(*rows(500, 7))
    model = dp.ols(FORMULA, data, SCHEMA)
    one, other = (
        model.fit(PRIVACY, noise=dp.SeededNoise(3), **guess) for guess in ({}, {"complete": 0.5})
    )
    assert one.params.equals(other.params)


def test_a_plan_of_completed_rows_expects_less_error_than_one_of_complete_rows():
    ways = ("em", "complete")
    ours, theirs = (
        dp.ols(FORMULA, schema=SCHEMA, n=20_000, missing=way).plan(PRIVACY, complete=0.4)
        for way in ways
    )
    assert ours.predicted_se[1] < theirs.predicted_se[1]


def test_sites_do_not_complete_rows():
    data = {"north": table(*rows(50, 8)), "south": table(*rows(50, 9))}
    model = dp.ols(FORMULA, data, SCHEMA, missing="em")
    with pytest.raises(DPStatsError, match="one curator"):
        model.plan(dp.Federated(1.0, 1e-6, target="north"))


@pytest.mark.full
def test_whatever_the_noise_is_a_fit_ends_and_says_that_it_knows_nothing():
    x, y, gaps = rows(10, 10)
    wide = SCHEMA.replaced({f"x{j}": dp.Numeric(-1e6, 1e6, scale=1) for j in range(P)})
    model = dp.ols(FORMULA, table(x, y, gaps), wide, missing="em")
    found = model.fit(dp.Central(0.01, 1e-6), noise=dp.SeededNoise(1))
    assert np.isfinite(found.params).all()
    said = " ".join([*found.plan.warnings, *found.estimate.remarks])
    assert "Not identified" in said or "Too few rows" in said


@pytest.mark.full
def test_intervals_allow_for_persons_whose_rows_are_alike():
    """Each person is there four times: standard errors are twice those of as many persons."""
    x, y, gaps = rows(5_000, 11)
    several = {k: np.repeat(v, 4) for k, v in table(x, y, gaps).items()}
    several["person"] = np.repeat(np.arange(5_000), 4)
    schema = dp.Schema(dict(SCHEMA), unit="person", max_rows=4)
    found = fitted(several, dp.Central(50.0, 1e-6, rows=20_000), schema=schema)
    apart = (found.params.to_numpy() - SLOPES) / found.bse.to_numpy()
    assert np.abs(apart).max() < 4.0
    alone = fitted(table(*rows(20_000, 12)), dp.Central(50.0, 1e-6))
    assert 1.6 < float(np.median(found.bse / alone.bse)) < 2.8


def test_few_complete_rows_are_said_above_the_coefficients():
    x, y, gaps = rows(6_000, 12)
    gaps[:, 0] = np.arange(6_000) % 10 > 2
    found = dp.ols(FORMULA, table(x, y, gaps), SCHEMA).fit(PRIVACY, noise=dp.SeededNoise(1))
    (said,) = (r for r in found.estimate.remarks if r.startswith("Only about"))
    assert "of 6,000 rows contribute" in said
    assert "Only about" in str(found.summary()).partition("coef")[0]
    whole = table(x, y, np.zeros_like(gaps, dtype=bool))
    found = dp.ols(FORMULA, whole, SCHEMA).fit(PRIVACY, noise=dp.SeededNoise(1))
    assert not any(r.startswith("Only about") for r in found.estimate.remarks)
