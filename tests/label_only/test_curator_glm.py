"""A curator's GLMs: the truth is covered, with less noise than under any other trust model."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from scipy import stats

import dpstats as dp
from dpstats.errors import OptionError
from dpstats.estimators import find
from dpstats.estimators.labels.curator_glm import LabelCuratorGLM
from dpstats.estimators.labels.glm import LabelGLM
from dpstats.estimators.labels.rounds import Equations, ResponseVariance, unclipped_square
from dpstats.families import BINOMIAL, GAUSSIAN, POISSON
from dpstats.privacy import LabelOnly
from dpstats.queries.labels import Interval
from dpstats.schema import Categorical, Numeric, Schema
from tests.label_only.cases import TRUTH, design, errors, fit, table, user

WIDE = Schema(y=Numeric(0, 60))


def curator(epsilon: float, delta: float = 1e-6) -> LabelOnly:
    return LabelOnly(epsilon, delta, curator=True)


def covers(z: np.ndarray) -> float:
    return float(np.mean(np.abs(z) < 1.96))


def overdispersed(n: int, seed: int, shape: float = 2.0) -> pd.DataFrame:
    """Counts with variance mu + mu^2/shape."""
    data, b = table(n, seed, "glm"), TRUTH["glm"]
    eta = b[0] + b[1] * data["x1"] + b[2] * data["x2"] + b[3] * (data["g"] == "b")
    rng = np.random.default_rng([9, seed])
    y = rng.poisson(np.exp(eta) * rng.gamma(shape, 1 / shape, n)).astype(float)
    return data.assign(y=y)


def deviations(made: str, n: int, privacy: LabelOnly, reps: int) -> np.ndarray:
    """Errors over standard errors, (reps, d)."""
    if made != "overdispersed":
        return errors(LabelCuratorGLM(made), made, n, privacy, reps)[0]
    found = []
    for seed in range(reps):
        data = overdispersed(n, seed)
        public = design(data, "glm", WIDE)
        units = user(public, fit(LabelCuratorGLM("glm"), public, data, privacy, seed)[1])
        found.append((units.values - TRUTH["glm"]) / np.sqrt(np.diag(units.cov)))
    return np.array(found)


@pytest.mark.full
@pytest.mark.parametrize(
    ("model", "privacy"), [("logit", curator(1.0)), ("logit", curator(1.0, 0.0))], ids=str
)
def test_logits_are_covered_and_would_not_be_if_intervals_were_shorter(model, privacy):
    z, error, se, plan = errors(LabelCuratorGLM(model), model, 1500, privacy, 60)
    assert 0.915 < covers(z) < 0.985  # 300 intervals: 2.8 standard errors of .0126
    assert covers(z / 0.75) < 0.915, "the test sees intervals that are a quarter too short"
    assert covers(2 * z) < 0.8, "and half-length ones all the more"
    assert np.all(np.abs(error.mean(axis=0)) < 4.5 * se.mean(axis=0) / math.sqrt(60))
    ratio = np.array(plan.predicted_se) / np.median(se, axis=0)
    assert np.all((ratio > 0.7) & (ratio < 1.4)), "plans predict standard errors"


@pytest.mark.full
@pytest.mark.parametrize("made", ["glm", "overdispersed"])
def test_counts_are_covered_and_would_not_be_if_intervals_were_shorter(made):
    reps = 25
    z = deviations(made, 800, curator(2.0), reps)
    assert 0.88 < covers(z) < 0.995  # 125 intervals: 3.5 standard errors of .02
    assert covers(2 * z) < 0.85, "the test sees intervals of half the length"
    assert np.all(np.abs(z.mean(axis=0)) < 4.5 / math.sqrt(reps))


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize(("n", "reps"), [(2000, 250), (20_000, 80)])
@pytest.mark.parametrize("made", ["logit", "glm", "overdispersed"])
def test_glms_of_a_curator_cover(made, epsilon, delta, n, reps):
    margin = 3 * math.sqrt(0.05 * 0.95 / reps) / math.sqrt(2)  # coefficients are correlated
    z = deviations(made, n, curator(epsilon, delta), reps)
    assert 0.935 - margin < covers(z) < 0.97 + margin


@pytest.mark.parametrize("model", ["logit", "glm"])
def test_a_huge_epsilon_is_statsmodels(model):
    data = table(1000, 3, model)
    made = design(data, model)
    _, estimate = fit(LabelCuratorGLM(model), made, data, curator(400.0), 0)
    units = user(made, estimate)
    family = sm.families.Binomial() if model == "logit" else sm.families.Poisson()
    theirs = sm.GLM(data["y"], made.exog(data), family=family).fit(cov_type="HC1")
    assert np.all(np.abs(units.values - theirs.params) < 0.25 * theirs.bse)
    np.testing.assert_allclose(np.sqrt(np.diag(units.cov)), theirs.bse, rtol=0.15)


@pytest.mark.parametrize(
    ("family", "link", "low", "high"),
    [("gaussian", "log", -6, 12), ("poisson", "identity", 0, 20), ("poisson", "log", 0, 40)],
)
def test_other_links_and_exposures_are_fitted(family, link, low, high):
    rng = np.random.default_rng(5)
    n, years = 4000, rng.uniform(0.5, 2.0, 4000)
    x = rng.normal(size=n)
    mu = np.exp(0.5 + 0.4 * x) if link == "log" else 3 + 0.4 * x
    truth = (0.5 if link == "log" else 3.0, 0.4)
    known = {}
    if (family, link) == ("poisson", "log"):
        mu, known = mu * years, {"exposure": "years"}
    y = rng.poisson(mu).astype(float) if family == "poisson" else mu + rng.normal(size=n)
    data = pd.DataFrame({"y": y, "x": x, "years": years})
    model = dp.glm("y ~ x", data, Schema(y=Numeric(low, high)), family=family, link=link, **known)
    found = model.fit(curator(4.0), noise=dp.SeededNoise(1))
    counts = family == "poisson" and link == "log"
    assert found.plan.method == f"label-curator-{'newton' if counts else 'glm'}"
    assert np.all(np.abs(found.params - truth) < 4 * found.bse)
    assert np.all(found.bse < 0.08), "and the test would see another mean"


def test_a_logit_with_an_offset():
    rng = np.random.default_rng(6)
    x, known = rng.normal(size=(2, 6000))
    y = (rng.uniform(size=6000) < 1 / (1 + np.exp(-(0.5 * x + known)))).astype(float)
    data = pd.DataFrame({"y": y, "x": x, "known": known})
    model = dp.logit("y ~ x", data, Schema(y=Categorical([0, 1])), offset="known")
    found = model.fit(curator(4.0), noise=dp.SeededNoise(1))
    assert np.all(np.abs(found.params - (0.0, 0.5)) < 4 * found.bse)
    assert found.bse["x"] < 0.06


def loss(error: np.ndarray) -> float:
    """Median length of the errors of slopes, in units of their columns."""
    return float(np.median(np.linalg.norm((error * [0, 1, 1.7, 0.5, 0.5]), axis=1)))


@pytest.mark.full
@pytest.mark.parametrize("model", ["logit", "glm"])
def test_a_curator_of_responses_beats_devices_and_is_near_a_curator_of_rows(model):
    reps, n, epsilon = 12, 2000, 1.0
    ours = errors(LabelCuratorGLM(model), model, n, curator(epsilon), reps)[1]
    devices = errors(LabelGLM(model), model, n, LabelOnly(epsilon), reps)[1]
    endog = Categorical([0, 1]) if model == "logit" else Numeric(0, 15)
    schema = Schema(
        y=endog,
        x1=Numeric(-4, 4, center=0, scale=1),
        x2=Numeric(-3, 3),
        g=Categorical(["a", "b", "c"]),
    )
    make = {
        "logit": lambda data: dp.logit("y ~ x1 + x2 + g", data, schema),
        "glm": lambda data: dp.glm("y ~ x1 + x2 + g", data, schema, family="poisson"),
    }[model]
    central = []
    for seed in range(reps):
        found = make(table(n, seed, model)).fit(
            dp.Central(epsilon, 1e-6), noise=dp.SeededNoise(seed)
        )
        central.append(np.asarray(found.params) - TRUTH[model])
    assert loss(ours) < 0.6 * loss(devices)
    # A tenth is paid for means that may be wrong: cuts of leverages then move what is estimated.
    assert loss(ours) < 1.1 * loss(np.array(central))


@pytest.mark.full
def test_a_wide_declared_range_costs_little():
    near = errors(LabelCuratorGLM("glm"), "glm", 2000, curator(1.0), 12)[1]
    wide = errors(LabelCuratorGLM("glm"), "glm", 2000, curator(1.0), 12, Schema(y=Numeric(0, 150)))
    assert loss(wide[1]) < 1.5 * loss(near)


def test_no_finite_solution_is_said_and_has_no_intervals():
    for seed in range(30):
        data = table(60, seed, "logit")
        made = design(data, "logit")
        _, estimate = fit(LabelCuratorGLM("logit"), made, data, curator(0.05), seed)
        if estimate.inference:
            assert estimate.inference.startswith("none")
            assert np.isnan(estimate.cov).all()
            assert "No finite solution" in estimate.remarks[0]
            return
    raise AssertionError("none of thirty hopeless fits was found to be one")


@pytest.mark.parametrize("model", ["logit", "glm"])
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_hopeless_fits_of_wild_responses_are_numbers(model, delta):
    data = table(40, 0, model)
    data.loc[:4, "y"] = [np.nan, np.inf, -np.inf, 1e308, -5.0]
    made = design(data, model)
    _, estimate = fit(LabelCuratorGLM(model), made, data, curator(0.02, delta), 1)
    assert np.isfinite(estimate.params).all()


@pytest.mark.parametrize("size", [0.0, 0.7])
def test_what_an_interval_takes_of_a_gamma_law(size):
    mu = np.array([0.4, 2.0, 9.0])
    low, high, within = 0.6 * mu, 1.8 * mu, Interval(0.0, 100.0)
    spread = ResponseVariance(POISSON, size)
    lost = spread.lost(mu, low, high, within)
    for i, m in enumerate(mu):
        scale = spread.variance(mu)[i] / m
        held = stats.gamma(m / scale, scale=scale).expect(
            lambda y, i=i: min(max(y, low[i]), high[i]), limit=200
        )
        assert lost[i] == pytest.approx(m - held, abs=1e-5)
    assert np.all(spread.lost(mu, np.zeros(3), np.full(3, 100.0), within) == 0)


def test_what_an_interval_takes_of_a_logistic_law():
    law = stats.logistic(1.0, 2.0 * math.sqrt(3) / math.pi)
    held = law.expect(lambda y: min(max(y, 0.0), 5.0))
    one = np.ones(1)
    lost = ResponseVariance(GAUSSIAN, 4.0).lost(one, 0 * one, 5 * one, Interval(-50.0, 50.0))
    assert lost[0] == pytest.approx(1.0 - held, abs=1e-5)


@pytest.mark.parametrize("link", [BINOMIAL, POISSON, GAUSSIAN], ids=str)
def test_equations_have_the_solution_of_statsmodels(link):
    rng = np.random.default_rng(1)
    x = np.column_stack([np.ones(300), rng.normal(size=(300, 2))])
    mean = link.mean(x @ [0.3, 1.0, -0.5])
    y = (rng.uniform(size=300) < mean).astype(float) if link == BINOMIAL else rng.poisson(1.0, 300)
    weights, known = rng.uniform(0.2, 1, 300), 0.3 * rng.normal(size=300)
    equations = Equations(x, known, link, weights, x.T @ (weights * y), Interval(0.0, 15.0))
    params, found = equations.solve(np.zeros(3))
    family = {BINOMIAL: sm.families.Binomial, POISSON: sm.families.Poisson}
    theirs = sm.GLM(
        y, x, family=family.get(link, sm.families.Gaussian)(), offset=known, freq_weights=weights
    ).fit()
    assert found
    np.testing.assert_allclose(params, theirs.params, atol=1e-6)
    if link == BINOMIAL:  # a sum that no means have
        everything = Equations(x, known, link, weights, 2 * x.T @ weights, Interval(0.0, 1.0))
        assert not everything.solve(np.zeros(3))[1]


def test_the_default_with_a_curator_and_what_is_refused():
    for model, default in (("logit", "label-curator-glm"), ("glm", "label-curator-newton")):
        assert find(model, curator(1.0)).name == default
        assert find(model, LabelOnly(1.0)).name == "label-glm"
        made = design(table(100, 0, model), model)
        with pytest.raises(OptionError, match="label-curator-glm"):
            LabelGLM(model).plan(made, curator(1.0), 100)
        with pytest.raises(OptionError, match="curator=True"):
            LabelCuratorGLM(model).plan(made, LabelOnly(1.0), 100)
    made = design(table(100, 0, "logit"), "logit")
    with pytest.raises(OptionError, match="not clipped"):
        LabelCuratorGLM("logit").plan(made, curator(1.0), 100, clip=0.3)


def test_a_clip_for_counts_is_taken():
    made = design(table(100, 0, "glm"), "glm")
    plan = LabelCuratorGLM("glm").plan(made, curator(1.0), 100, clip=4)
    low, high = plan.options["interval"]
    assert high - low == pytest.approx(8)


@pytest.mark.parametrize("spread", [0.03, 0.3, 1.0, 3.0])
def test_a_variance_is_found_again_from_squares_that_were_clipped(spread):
    z = stats.norm.ppf((np.arange(200_000) + 0.5) / 200_000)
    clipped = np.mean(np.minimum((spread * z) ** 2, 1.0))
    assert unclipped_square(clipped) == pytest.approx(spread**2, rel=0.02)


def test_counts_that_vary_far_more_than_poisson_ones_have_intervals_that_hold():
    """22 Poisson standard deviations: clips of 8 took the residuals for what they hold."""
    rng, n = np.random.default_rng(3), 5_000
    x = rng.uniform(-1, 1, n)
    y = np.minimum(rng.negative_binomial(1, 1 / (1 + np.exp(6 + 0.5 * x))), 10_000)
    rows = pd.DataFrame({"x": x, "y": y.astype(float)})
    schema = dp.Schema(x=dp.Numeric(-1, 1), y=dp.Numeric(0, 10_000))
    plain = smf.poisson("y ~ x", rows).fit(disp=0).params
    model, privacy = dp.glm("y ~ x", rows, schema, family="poisson"), LabelOnly(1.0, 1e-6, True)
    fits = [model.fit(privacy, noise=dp.SeededNoise(k)) for k in range(5)]
    off = np.array([(fit.params - plain) / fit.bse for fit in fits])
    assert np.abs(off).max() < 3.5
    assert np.abs(off.mean(axis=0)).max() < 1.2
