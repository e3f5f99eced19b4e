"""Least squares, GLMs and the curator: the truth is covered, and a large epsilon is no noise."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf

import dpstats as dp
from dpstats.accounting import epsilon_of
from dpstats.channels import channel
from dpstats.errors import OptionError
from dpstats.estimators.labels import LABEL_ONLY
from dpstats.estimators.labels.base import at_least
from dpstats.estimators.labels.clipped import ClippedRegression
from dpstats.estimators.labels.curator import LabelCurator
from dpstats.estimators.labels.glm import LabelGLM
from dpstats.estimators.labels.ols import LabelOLS, least_squares
from dpstats.estimators.responses import Responses
from dpstats.holders import Labels
from dpstats.mechanisms.noise import SeededNoise
from dpstats.privacy import LabelOnly
from dpstats.queries.labels import Interval
from dpstats.schema import Numeric, Schema
from tests.grids import grid
from tests.label_only.cases import SCALED, TRUTH, design, errors, fit, table, user

CURATOR = LabelOnly(1.0, 1e-6, curator=True)
LOCAL = LabelOnly(1.0)


def covers(z: np.ndarray) -> float:
    return float(np.mean(np.abs(z) < 1.96))


QUICK = [
    (LabelOLS(), "ols", LOCAL, None),
    (LabelOLS(), "ols", LOCAL, SCALED),
    (LabelCurator(), "ols", CURATOR, SCALED),
    (LabelCurator(), "ols", LabelOnly(1.0, curator=True), None),
    (LabelGLM("logit"), "logit", LabelOnly(2.0), None),
    (LabelGLM("glm"), "glm", LabelOnly(4.0), None),
]


@pytest.mark.parametrize(("method", "model", "privacy", "schema"), grid(QUICK, 1))
def test_intervals_cover_and_would_not_if_they_were_shorter(method, model, privacy, schema):
    z, error, se, plan = errors(method, model, 1500, privacy, 100, schema)
    assert 0.92 < covers(z) < 0.985
    # Where a clip cuts nothing off a curator's intervals allow for it all the same.
    assert covers(z / 0.65) < 0.92, "the test sees intervals that are a third too short"
    # Plans clip responses where that takes a quarter of a standard error; 4.5 Monte Carlo errors.
    assert np.all(np.abs(error.mean(axis=0)) < (0.25 + 4.5 / 10) * se.mean(axis=0))
    ratio = np.array(plan.predicted_se) / np.median(se, axis=0)
    assert np.all((ratio > 0.4) & (ratio < 2.5)), "plans predict standard errors"


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
@pytest.mark.parametrize(("n", "reps"), [(2000, 500), (20_000, 200)])
@pytest.mark.parametrize("schema", [None, SCALED], ids=["range", "scale"])
@pytest.mark.parametrize("curator", [False, True])
def test_least_squares_covers(epsilon, n, reps, schema, curator):
    method = LabelCurator() if curator else LabelOLS()
    privacy = LabelOnly(epsilon, 1e-6 if curator else 0.0, curator=curator)
    z, *_ = errors(method, "ols", n, privacy, reps, schema)
    margin = 3 * math.sqrt(0.05 * 0.95 / reps) / math.sqrt(2)  # coefficients are correlated
    # A curator who clips allows for what that may leave out, also where it leaves nothing.
    most = 1.0 if curator and schema is not None else 0.96 + margin
    assert 0.94 - margin < covers(z) <= most


@pytest.mark.slow
@pytest.mark.parametrize(("model", "epsilon"), [("logit", 1.0), ("logit", 4.0), ("glm", 4.0)])
@pytest.mark.parametrize(("n", "reps"), [(2000, 400), (20_000, 100)])
def test_glms_cover(model, epsilon, n, reps):
    z, *_ = errors(LabelGLM(model), model, n, LabelOnly(epsilon), reps)
    assert 0.93 < covers(z) < 0.975


@pytest.mark.parametrize(
    ("method", "model", "privacy"),
    [
        (LabelOLS(), "ols", LabelOnly(300.0)),
        (LabelCurator(), "ols", LabelOnly(300.0, 1e-6, curator=True)),
        (LabelGLM("logit"), "logit", LabelOnly(300.0)),
        (LabelGLM("glm"), "glm", LabelOnly(300.0)),
    ],
)
def test_a_huge_epsilon_is_statsmodels(method, model, privacy):
    data = table(1000, 3, model)
    made = design(data, model)
    plan = method.plan(made, privacy, len(data))
    holder = Labels(made.source(data), made, plan, SeededNoise(0))
    units = user(made, method.fit(holder, made, plan))
    if isinstance(method, LabelCurator):  # it may weigh rows; then it is weighted least squares
        reference = sm.OLS(data["y"], made.exog(data)).fit()
        np.testing.assert_allclose(units.values, reference.params, atol=0.1)
        return
    sent = holder.sending(plan.options["counters"])  # others say where their response lies
    assert 0.95 * len(data) < len(sent) < len(data)
    x, y = made.exog(data)[sent], data["y"].to_numpy()[sent]
    if model == "ols":
        reference = sm.OLS(y, x).fit(cov_type="HC3")
    else:
        family = sm.families.Binomial() if model == "logit" else sm.families.Poisson()
        reference = sm.GLM(y, x, family=family).fit(cov_type="HC3")
    np.testing.assert_allclose(units.values, reference.params, atol=2e-3)
    np.testing.assert_allclose(np.sqrt(np.diag(units.cov)), reference.bse, rtol=0.05)


def test_the_curator_without_leverages_to_cut_is_least_squares():
    data = table(1000, 3)
    data["x1"] = np.sign(data["x1"])  # no row stands out
    data["x2"] = np.where(np.arange(1000) % 2, 1.0, -1.0)
    made = design(data, schema=Schema(y=Numeric(-12, 12, center=0, scale=11)))  # none is looked for
    _, estimate = fit(LabelCurator(), made, data, LabelOnly(300.0, 1e-6, curator=True), 0)
    reference = sm.OLS(data["y"], made.exog(data)).fit(cov_type="HC1")
    units = user(made, estimate)
    np.testing.assert_allclose(units.values, reference.params, atol=1.2e-2)  # 3.5 noises
    np.testing.assert_allclose(np.sqrt(np.diag(units.cov)), reference.bse, rtol=0.1)


def test_an_offset_has_coefficient_one():
    from dpstats.design import PublicDesign
    from tests.label_only.cases import SCHEMAS

    data = table(1500, 5).assign(known=lambda d: 0.8 * d["x1"])
    data["y"] += data["known"]
    made = PublicDesign.of_table("y ~ x1 + x2 + g", SCHEMAS["ols"], data, offset="known")
    for method, privacy in (
        (LabelOLS(), LabelOnly(200.0)),
        (LabelCurator(), LabelOnly(200.0, 1e-6, curator=True)),
    ):
        _, estimate = fit(method, made, data, privacy, 0)
        assert abs(user(made, estimate).values[1] - TRUTH["ols"][1]) < 0.15


def test_a_curator_is_more_precise_than_devices():
    data = table(2000, 0)
    made = design(data)
    local = LabelOLS().plan(made, LOCAL, 2000)
    central = LabelCurator().plan(made, CURATOR, 2000)
    assert np.all(np.array(central.predicted_se) < 0.5 * np.array(local.predicted_se))


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0, 8.0])
def test_the_channel_has_the_smallest_variance(epsilon):
    data = table(200, 0)
    made = design(data)
    plan = LabelOLS().plan(made, LabelOnly(epsilon), 200)
    how = Responses.of(plan, made)
    others = [channel(name, 1, epsilon) for name in ("binary", "piecewise", "laplace")]
    square = how.second_moment
    best = min(c.variance(0.0) + (c.variance(1.0) - c.variance(0.0)) * square for c in others)
    assert how.noise() == pytest.approx(best * how.interval.half**2)


def test_the_clip_widens_with_n_and_epsilon_and_stays_in_the_range():
    halves = {}
    for n, epsilon in ((500, 0.5), (500, 4.0), (8000, 0.5)):
        made = design(table(n, 0), schema=SCALED)
        low, high = LabelOLS().plan(made, LabelOnly(epsilon), n).options["interval"]
        halves[n, epsilon] = (high - low) / 2
    assert halves[500, 0.5] < halves[500, 4.0] <= 20
    assert halves[500, 0.5] < halves[8000, 0.5] <= 20
    made = design(table(500, 0))
    assert LabelOLS().plan(made, LOCAL, 500).options["interval"] == made.internal_endog_bounds


@pytest.mark.parametrize(
    "method", [row.method for row in LABEL_ONLY], ids=lambda m: f"{m.model}-{m.name}"
)
def test_a_plan_costs_what_was_asked(method):
    model = "ols" if method.model == "mean" else method.model
    data = table(300, 0, model)
    made = design(data, model)
    options = {"sparsity": 2} if method.sparse else {}
    gaussian = method.name == "label-ldp-iht"
    privacy = LabelOnly(1.0, 1e-6 if gaussian else 0.0, curator="curator" in method.name)
    plan = method.plan(made, privacy, 300, **options)
    assert plan.cost[0] <= 1.0 * (1 + 1e-9)
    assert epsilon_of([m.event for m in plan.mechanisms], plan.cost[1]) == plan.cost[0]
    assert method.serves(privacy)


def test_hopeless_plans_warn_with_what_would_do():
    data = table(60, 0)
    (text,) = LabelOLS().plan(design(data), LabelOnly(0.1), 60).warnings
    assert "n=" in text
    assert "epsilon=" in text
    assert not LabelOLS().plan(design(table(5000, 0)), LabelOnly(2.0), 5000).warnings


def test_no_finite_solution_is_said_and_has_no_intervals():
    for seed in range(30):
        data = table(60, seed, "logit")
        made = design(data, "logit")
        _, estimate = fit(LabelGLM("logit"), made, data, LabelOnly(0.1), seed)
        if estimate.inference:
            assert estimate.inference.startswith("none")
            assert np.isnan(estimate.cov).all()
            assert "No finite solution" in estimate.remarks[0]
            return
    raise AssertionError("none of thirty hopeless fits was found to be one")


@pytest.mark.full
def test_the_likelihood_beats_the_unbiased_score():
    """Two estimating equations for randomised response; the second one is efficient."""
    from dpstats.estimators.labels import glm as label_glm

    rng = np.random.default_rng(0)
    n, reps, found = 1500, 120, {True: [], False: []}
    from dpstats.queries.labels import Interval

    how = Responses(Interval(0.0, 1.0), channel("binary", 1, 2.0), 0.5, 0.5)
    assert how.channel is not None
    for _ in range(reps):
        x = np.column_stack([np.ones(n), 2.5 * rng.normal(size=n)])
        p = 1 / (1 + np.exp(-x[:, 1]))
        y = rng.uniform(size=n) < p
        sign = np.where(rng.uniform(size=n) < 1 / (1 + math.exp(2.0)), ~y, y)
        z = 0.5 + 0.5 * np.where(sign, 1, -1) * how.channel.size
        model = label_glm._EstimatingEquations(x, z, np.zeros(n), label_glm.BINOMIAL, how)
        start, _ = model.solve(model.start())
        found[True].append(start[1] - 1)
        found[False].append(replace(model, sent=True).solve(start)[0][1] - 1)
    rough, fine = (np.sqrt(np.mean(np.square(found[plain]))) for plain in (True, False))
    assert fine < 0.97 * rough


def _not_log_linear() -> dict[str, Any]:
    rng = np.random.default_rng(4)
    x = rng.uniform(-1, 1, 20_000)
    return {"x": x, "y": np.minimum(rng.poisson(0.3 + 2 * np.maximum(x, 0.0)), 8)}


@pytest.mark.full
def test_a_mean_that_is_not_right_has_the_intervals_of_maximum_likelihood():
    """z over 40 fits: about N(0, 1) at the score's root; the weights of messages move it by 3."""
    table = _not_log_linear()
    schema = dp.Schema(x=dp.Numeric(-1, 1), y=dp.Numeric(0, 8))
    plain = smf.poisson("y ~ x", pd.DataFrame(table)).fit(disp=0).params
    off = {}
    for target in ("mle", "robust"):
        model = dp.glm("y ~ x", table, schema, family="poisson")
        fits = [
            model.fit(dp.LabelOnly(4.0), noise=dp.SeededNoise(k), target=target) for k in range(20)
        ]
        off[target] = np.array([(f.params - plain) / f.bse for f in fits])
    assert np.abs(off["mle"].mean(axis=0)).max() < 0.6
    assert np.mean(np.abs(off["mle"]) < 1.96) > 0.9
    assert np.abs(off["robust"].mean(axis=0)).max() > 1.5


@pytest.mark.parametrize(
    ("method", "privacy", "options", "words"),
    [
        (LabelOLS(), CURATOR, {}, "curator"),
        (LabelCurator(), LOCAL, {}, "curator=True"),
        (LabelOLS(), LOCAL, {"clip": -1}, "clip"),
        (LabelOLS(), LOCAL, {"channel": "privunit"}, "channel"),
        (LabelOLS(), LOCAL, {"radius": 1}, "no option"),
        (LabelGLM("logit"), LabelOnly(1.0, curator=True), {}, "curator"),
        (LabelOLS(), LOCAL, {"channel": "gaussian"}, "delta"),
    ],
)
def test_wrong_options_are_refused(method, privacy, options, words):
    data = table(100, 0)
    with pytest.raises(OptionError, match=words):
        method.plan(design(data), privacy, 100, **options)


def test_as_many_columns_as_rows_are_refused():
    from dpstats.design import PublicDesign

    x = np.random.default_rng(0).normal(size=(20, 30))
    made = PublicDesign.of_arrays(x, (-1, 1))
    with pytest.raises(OptionError, match="sparsity"):
        LabelOLS().plan(made, LOCAL, 20)


def holds_least_squares(seeds: range) -> float:
    """How often intervals hold the fit of all rows: a curved mean, large leverages."""
    rng = np.random.default_rng(0)
    x = np.exp(rng.normal(size=(3000, 2)))
    y = np.clip(np.log(x).sum(axis=1) + 0.3 * rng.normal(size=3000), -8, 8)
    all_rows = np.linalg.lstsq(np.column_stack([np.ones(3000), x]), y, rcond=None)[0]
    data = pd.DataFrame({"y": y, "a": x[:, 0], "b": x[:, 1]})
    model = dp.ols("y ~ a + b", data, schema=Schema(y=Numeric(-8, 8)))
    privacy = LabelOnly(4.0, 1e-6, curator=True)
    fits = [model.fit(privacy, noise=SeededNoise(s), method="label-curator") for s in seeds]
    return float(np.mean([np.abs(f.params - all_rows) < 1.96 * f.bse for f in fits]))


@pytest.mark.full
def test_where_the_mean_is_wrong_intervals_hold_the_fit_of_all_rows(monkeypatch):
    assert holds_least_squares(range(25)) > 0.8  # though it misses far more than allowed for
    monkeypatch.setattr("dpstats.estimators.labels.sums._MISFIT", 0.0)
    assert holds_least_squares(range(25)) < 0.2, "cuts that trust the mean ask another question"


def test_a_row_that_alone_tells_a_coefficient_has_the_noise_of_the_others():
    rng, n = np.random.default_rng(0), 300
    rows = pd.DataFrame({"x": rng.normal(size=n), "g": ["a"] * 150 + ["b"] * 149 + ["c"]})
    mean = 0.5 * rows.x + 0.3 * (rows.g == "b") + 0.5 * (rows.g == "c")
    held = []
    for seed in range(60):
        data = rows.assign(y=mean + np.random.default_rng(seed).normal(size=n))
        model = dp.ols("y ~ x + g", data, schema=dp.Schema(y=dp.Numeric(-4, 4)))
        low, high = model.fit(LOCAL, noise=SeededNoise(seed)).conf_int().loc["g[T.c]"]
        held.append(low < 0.5 < high)
    assert np.mean(held) > 0.85  # .1 where its residual, which is zero, is believed


def test_messages_that_are_all_alike_are_no_sharp_answer():
    """One bit of twelve rows may come out the same for each of them."""
    how = Responses(Interval(-1.0, 1.0), channel("binary", 1, 0.3), sd=0.5, center=0.0)
    size = 1 / math.tanh(0.15)  # of a bit that is decoded
    x, z = np.ones((12, 1)), np.full(12, size)
    _, cov, privacy, _ = least_squares(x, z, how)
    assert cov[0, 0] == pytest.approx((size**2 - 1) / 12)  # at the ends noise is least
    assert 0 < privacy[0, 0] <= cov[0, 0]
    found = ClippedRegression(z - 0.0, np.zeros(12), 1.0, 0.5, 0.25, 0.0, math.inf).fit(x)
    assert np.isfinite(found.params).all()


@pytest.mark.parametrize("model", ["ols", "poisson"])
def test_rows_that_are_weighted_down_are_told_and_doubted(model):
    """Where a few public rows carry a bent mean, weights answer another question."""
    rng, n = np.random.default_rng(4), 2000
    x = rng.lognormal(0, 0.8, n)
    y = rng.poisson(np.exp(np.minimum(0.2 * x, 3)))
    data = pd.DataFrame({"x": x, "y": y})
    made = getattr(dp, model)("y ~ x", data, schema=dp.Schema(y=dp.Numeric(0, 100)))
    how = {"method": "label-curator"} if model == "ols" else {}
    fit = made.fit(CURATOR, noise=SeededNoise(1), **how)
    lost = fit.released["leverage weighted down"]
    assert 0.01 < lost < 1
    assert f"weights take {lost:.0%} of the leverage" in " ".join(str(fit.summary()).split())
    parts = fit.cov_params() - fit.cov_privacy() - fit.cov_sampling()
    assert np.all(np.diag(parts) > -1e-12)


def test_a_covariance_is_raised_to_what_is_known_and_nothing_else_is_changed():
    rng = np.random.default_rng(0)
    root, known_root = rng.normal(size=(2, 4, 4))
    cov, known = root @ root.T, known_root @ known_root.T
    raised = at_least(cov, known)
    assert np.linalg.eigvalsh(raised - known).min() > -1e-9
    assert np.linalg.eigvalsh(raised - cov).min() > -1e-9
    np.testing.assert_allclose(at_least(known + cov, known), known + cov)
    wide = np.diag([1.0, 1e14])  # a column that is known well beside one that is hardly known
    np.testing.assert_allclose(np.diag(at_least(2 * wide, wide)), [2.0, 2e14])
    none = np.full((2, 2), np.nan)
    for given in ((none, wide), (wide, none), (np.diag([np.inf, 1.0]), wide)):
        np.testing.assert_array_equal(at_least(*given), given[0])
    np.testing.assert_array_equal(at_least(wide, np.zeros((2, 2))), wide)


@pytest.mark.parametrize(("chance", "said"), [(0.0, True), (1.0, True), (0.3, False)])
def test_a_level_whose_responses_noise_hides_is_named(chance, said):
    """Three fits each of a level with no, all and some responses 1: its coefficient has no end."""
    rng, n = np.random.default_rng(5), 6_000
    g = rng.choice(["a", "b"], n, p=[0.9, 0.1])
    y = (rng.random(n) < np.where(g == "b", chance, 0.5)).astype(float)
    rows = pd.DataFrame({"y": y, "g": g, "x": rng.normal(size=n)})
    schema = Schema(y=Numeric(0, 1), g=dp.Categorical(["a", "b"]), x=Numeric(-5, 5))
    model = dp.logit("y ~ x + C(g)", rows, schema)
    for seed in range(3):
        found = model.fit(LabelOnly(2.0), noise=SeededNoise(seed))
        named = [t for t in found.estimate.remarks if "rarer response where C(g)[T.b] is 1" in t]
        assert bool(named) is said or not found.has_inference
