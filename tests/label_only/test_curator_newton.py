"""Least squares and counts by scores of clipped length, where a curator holds the responses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf

import dpstats as dp
from dpstats import LabelOnly, SeededNoise
from dpstats.errors import OptionError
from dpstats.estimators.labels.public_scores import PublicScores, far_share
from dpstats.estimators.labels.sums import inverse_root
from dpstats.families import GAUSSIAN
from dpstats.queries.labels import Interval

DELTA = 1e-6
SLOPES = np.array([0.5, -0.5, 0.3, 0.0])


def rows(seed: int, n: int) -> dict[str, Any]:
    """Four normal columns, and a response with normal errors."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4))
    y = 1 + x @ SLOPES + 0.8 * rng.normal(size=n)
    return {f"x{j}": x[:, j] for j in range(4)} | {"y": y}


def bent(seed: int, n: int = 20_000) -> dict[str, Any]:
    """A mean that bends along a long-tailed column."""
    rng = np.random.default_rng([seed, 5])
    x, z = np.minimum(rng.lognormal(0, 0.7, n), 12), rng.uniform(-1, 1, n)
    return {"x": x, "z": z, "y": 0.3 + 0.5 * x - 0.06 * x**2 + 0.3 * z + 0.5 * rng.normal(size=n)}


BENT = dp.Schema(y=dp.Numeric(-10, 10), x=dp.Numeric(0, 12), z=dp.Numeric(-1, 1))


SCHEMA = dp.Schema(
    y=dp.Numeric(-10, 12, center=1, scale=1.2), **{f"x{j}": dp.Numeric(-6, 6) for j in range(4)}
)
WIDE = dp.Schema(y=dp.Numeric(-1e6, 1e6), **{f"x{j}": dp.Numeric(-1e6, 1e6) for j in range(4)})
SCHEMA_T = dp.Schema(y=dp.Numeric(-60, 60), a=dp.Numeric(-60, 60), b=dp.Numeric(-6, 6))
FORMULA = "y ~ x0 + x1 + x2 + x3"


def fits(
    privacy: LabelOnly, n: int, reps: int, schema: dp.Schema = SCHEMA, **how: Any
) -> list[Any]:
    return [
        dp.ols(FORMULA, rows(seed, n), schema).fit(privacy, noise=SeededNoise(seed), **how)
        for seed in range(reps)
    ]


def errors(made: list[Any]) -> Any:
    return np.array([f.params.to_numpy() - [1, *SLOPES] for f in made])


@pytest.mark.full
@pytest.mark.parametrize("epsilon", [0.5, pytest.param(2.0, marks=pytest.mark.full)])
def test_it_errs_less_than_sums_of_responses_do_and_covers(epsilon: float) -> None:
    """Errors are .58 and .7 of theirs; 24 fits of five coefficients (standard error 2 %)."""
    privacy = LabelOnly(epsilon, DELTA, curator=True)
    made = fits(privacy, 5_000, 24, method="label-curator-newton")
    other = fits(privacy, 5_000, 24, method="label-curator")
    off, se = errors(made), np.array([f.bse.to_numpy() for f in made])
    assert np.sqrt(np.mean(off**2)) < 0.85 * np.sqrt(np.mean(errors(other) ** 2))
    covered = float(np.mean(np.abs(off) < 1.96 * se))
    assert covered > 0.89
    assert float(np.mean(np.abs(off) < 1.96 * se / 2)) < 0.85  # the test can fail
    planned = dp.ols(FORMULA, rows(0, 5_000), SCHEMA).plan(privacy, method="label-curator-newton")
    assert np.mean(se[:, 1:]) == pytest.approx(np.mean(planned.predicted_se[1:]), rel=0.2)


def test_without_noise_it_is_least_squares() -> None:
    data = bent(0, 3_000)
    privacy = LabelOnly(1e5, DELTA, curator=True, large_delta=True)
    model = dp.ols("y ~ x + z", data, BENT)
    fit = model.fit(privacy, noise=SeededNoise(1))
    assert fit.plan.method == "label-curator-newton"
    exog = sm.add_constant(np.column_stack([data["x"], data["z"]]))
    exact = sm.OLS(data["y"], exog).fit(cov_type="HC1")
    np.testing.assert_allclose(fit.params, exact.params, rtol=2e-3)
    np.testing.assert_allclose(fit.bse, exact.bse, rtol=0.2)  # squares are of clipped scores


@pytest.mark.full
def test_a_range_a_hundred_thousand_times_too_wide_costs_little() -> None:
    privacy = LabelOnly(1.0, DELTA, curator=True)
    near, far = (fits(privacy, 10_000, 16, schema) for schema in (SCHEMA, WIDE))
    sizes = [np.sqrt(np.mean(errors(made) ** 2)) for made in (near, far)]
    assert sizes[1] < 1.4 * sizes[0]
    held = [np.abs(errors([f])) < 1.96 * f.bse.to_numpy() for f in far]
    assert np.mean(held) > 0.88


@pytest.mark.full
def test_a_mean_that_bends_is_held_and_said() -> None:
    """`label-curator`, which weighs rows down and holds responses, holds a third of them."""
    privacy, held = LabelOnly(2.0, DELTA, curator=True), {"label-curator": [], None: []}
    for seed in range(10):
        data = bent(seed)
        exog = sm.add_constant(np.column_stack([data["x"], data["z"]]))
        exact, model = sm.OLS(data["y"], exog).fit().params, dp.ols("y ~ x + z", data, BENT)
        for method, hits in held.items():
            how = {} if method is None else {"method": method}
            fit = model.fit(privacy, noise=SeededNoise(seed), **how)
            hits.extend(np.abs(fit.params - exact) < 1.96 * fit.bse)
            if method is None:
                assert any("lean one way" in remark for remark in fit.estimate.remarks)
    assert np.mean(held[None]) > 0.93
    assert np.mean(held["label-curator"]) < 0.6


def test_rows_that_noise_may_hide_are_said_where_they_carry_the_answer() -> None:
    data = rows(1, 5_000)
    data["x0"][:20] *= 40
    schema = dp.Schema(y=SCHEMA["y"], **{f"x{j}": dp.Numeric(-200, 200) for j in range(4)})
    privacy = LabelOnly(2.0, DELTA, curator=True)
    fit = dp.ols(FORMULA, data, schema).fit(privacy, noise=SeededNoise(1))
    text = " ".join(str(fit.summary()).split())
    assert "A few rows lie far out" in text
    assert text.index("lie far out") < text.index("coef")
    (plain,) = fits(privacy, 5_000, 1)
    assert not plain.estimate.remarks


def test_where_noise_hides_lengths_the_plan_says_so_and_sums_are_the_default() -> None:
    model, privacy = dp.ols(FORMULA, rows(0, 500), SCHEMA), LabelOnly(0.5, DELTA, curator=True)
    assert model.plan(privacy).method == "label-curator"
    (text,) = model.plan(privacy, method="label-curator-newton").warnings
    assert "how long scores are" in text
    assert model.fit(privacy, noise=SeededNoise(0)).plan.method == "label-curator"
    fit = model.fit(privacy, noise=SeededNoise(0), method="label-curator-newton")
    assert np.isfinite(fit.bse).all()


@pytest.mark.full
def test_laplace_noise_gives_pure_privacy_and_covers() -> None:
    made = fits(LabelOnly(1.0, curator=True), 10_000, 12, method="label-curator-newton")
    assert all(f.plan.cost == pytest.approx((1.0, 0.0)) for f in made)
    held = [np.abs(errors([f])) < 1.96 * f.bse.to_numpy() for f in made]
    assert np.mean(held) > 0.85


# -- counts ------------------------------------------------------------------------------------

COUNTS = dp.Schema(y=dp.Numeric(0, 100), x=dp.Numeric(-4, 4), z=dp.Numeric(-4, 4))
TRUE = np.array([0.4, 0.4, -0.3])


def counts(
    seed: int, n: int, level: float = 0.4, bend: float = 0.0, shape: float = math.inf
) -> pd.DataFrame:
    """Counts whose log mean is linear, or bends along a column; with a gamma law's variance."""
    rng = np.random.default_rng([seed, 3])
    x, z = np.clip(rng.normal(size=(2, n)), -4, 4)
    mean = np.exp(level + 0.4 * x - 0.3 * z + bend * x**2)
    if math.isfinite(shape):
        mean = mean * rng.gamma(shape, 1 / shape, n)
    return pd.DataFrame({"x": x, "z": z, "y": np.minimum(rng.poisson(mean), 100.0)})


def exact(data: pd.DataFrame) -> Any:
    return smf.glm("y ~ x + z", data, family=sm.families.Poisson()).fit(cov_type="HC1")


def test_without_noise_counts_have_the_largest_likelihood() -> None:
    data = counts(0, 4_000, bend=0.1, shape=1.0)
    privacy = LabelOnly(1e5, DELTA, curator=True, large_delta=True)
    fit = dp.poisson("y ~ x + z", data, COUNTS).fit(privacy, noise=SeededNoise(1))
    assert fit.plan.method == "label-curator-newton"
    np.testing.assert_allclose(fit.params, exact(data).params, rtol=2e-3, atol=1e-4)
    np.testing.assert_allclose(fit.bse, exact(data).bse, rtol=0.2)  # squares are of clipped scores


@pytest.mark.full
@pytest.mark.parametrize(
    ("level", "shape"),
    [
        pytest.param(0.4, math.inf, id="Poisson"),
        pytest.param(0.4, 1.0, id="overdispersed", marks=pytest.mark.full),
        pytest.param(-3.0, math.inf, id="mostly 0", marks=pytest.mark.full),
    ],
)
def test_counts_are_covered_and_would_not_be_if_intervals_were_shorter(
    level: float, shape: float
) -> None:
    """24 fits of three coefficients: a standard error of 2.5 % at 95 %."""
    privacy, z = LabelOnly(2.0, DELTA, curator=True), []
    for seed in range(24):
        model = dp.poisson("y ~ x + z", counts(seed, 6_000, level, shape=shape), COUNTS)
        fit = model.fit(privacy, noise=SeededNoise(seed))
        assert fit.plan.method == "label-curator-newton"
        z.append((fit.params - [level, *TRUE[1:]]) / fit.bse)
    assert np.mean(np.abs(z) < 1.96) > 0.87
    assert np.mean(np.abs(z) < 1.96 / 2.5) < 0.85, "the test sees intervals that are too short"


@pytest.mark.full
def test_counts_whose_log_mean_bends_are_those_of_all_rows() -> None:
    """`label-curator-glm` never holds the slope that the bend moves."""
    privacy, hits = LabelOnly(4.0, DELTA, curator=True), {"label-curator-glm": [], None: []}
    for seed in range(10):
        data = counts(seed, 20_000, 0.2, bend=0.2)
        model, params = dp.poisson("y ~ x + z", data, COUNTS), exact(data).params
        for method, held in hits.items():
            fit = model.fit(privacy, noise=SeededNoise(seed), method=method)
            held.append(np.abs(fit.params - params) < 1.96 * fit.bse)
    assert np.mean(hits[None]) > 0.93
    assert np.mean(hits["label-curator-glm"], axis=0)[1] < 0.2


def test_counts_with_an_exposure() -> None:
    data = counts(1, 10_000)
    years = np.random.default_rng(5).uniform(0.5, 3, len(data))
    data["years"] = years
    data["y"] = np.random.default_rng(6).poisson(years * np.exp(0.4 * data["x"])).clip(0, 100)
    schema = dp.Schema({**COUNTS, "years": dp.Numeric(0.5, 3)})
    model = dp.glm("y ~ x + z", data, schema, family="poisson", exposure="years")
    fit = model.fit(LabelOnly(4.0, DELTA, curator=True), noise=SeededNoise(1))
    assert fit.plan.method == "label-curator-newton"
    assert np.all(np.abs(fit.params - [0.0, 0.4, 0.0]) < 4 * fit.bse)
    assert np.all(fit.bse < 0.05)


def test_few_rows_that_tell_a_coefficient_of_counts_are_said() -> None:
    """Of a mean that grows as a long-tailed column does, exponentials see its last rows alone."""
    rng = np.random.default_rng(2)
    x, z = np.minimum(rng.lognormal(0, 1, 10_000), 50), rng.uniform(-1, 1, 10_000)
    data = pd.DataFrame({"x": x, "z": z, "y": np.minimum(rng.poisson(1 + x), 300.0)})
    schema = dp.Schema(y=dp.Numeric(0, 300), x=dp.Numeric(0, 50), z=dp.Numeric(-1, 1))
    privacy = LabelOnly(2.0, DELTA, curator=True)
    fit = dp.poisson("y ~ x + z", data, schema).fit(privacy, noise=SeededNoise(0))
    assert any("A few rows lie far out" in remark for remark in fit.estimate.remarks)
    plain = dp.poisson("y ~ x + z", counts(0, 10_000), COUNTS).fit(privacy, noise=SeededNoise(0))
    assert not plain.estimate.remarks


@pytest.mark.parametrize(("few", "said"), [(5_000, 0), (40, 1)])
def test_rows_of_a_level_are_as_many_as_they_are(few: int, said: int) -> None:
    """All are equally long: no few of them carry what a level differs by, unless few have it."""
    rng = np.random.default_rng(3)
    g = np.repeat(["a", "b"], [10_000 - few, few])
    data = pd.DataFrame({"g": g, "y": np.clip(rng.normal(size=10_000), -4, 4)})
    fit = dp.ols("y ~ g", data, dp.Schema(y=dp.Numeric(-4, 4))).fit(
        LabelOnly(2.0, DELTA, curator=True), noise=SeededNoise(0), method="label-curator-newton"
    )
    assert sum("A few rows lie far out" in remark for remark in fit.estimate.remarks) == said


@pytest.mark.full
def test_what_carries_a_coefficient_is_what_brute_force_says() -> None:
    """Of the longest rows, the most that they have of what tells any combination."""
    rng = np.random.default_rng(8)
    x = np.column_stack([np.ones(500), rng.standard_t(3, 500), rng.normal(size=500)])
    holder_plan = dp.ols("y ~ a + b", {"a": x[:, 1], "b": x[:, 2], "y": x[:, 1]}, SCHEMA_T).plan(
        LabelOnly(4.0, DELTA, curator=True), method="label-curator-newton"
    )
    one, interval = np.ones(500), Interval(-1.0, 1.0)
    root = inverse_root(x.T @ x)
    scores = PublicScores(x, root, 0 * one, interval, GAUSSIAN, 1.0, one, False)
    found = far_share(scores, np.zeros(3), holder_plan)
    noise = holder_plan.noise(scores.by_length(np.ones(1)), "beyond 1").sd
    hidden = math.ceil(3 * noise)
    leverage = np.einsum("ij,jk,ik->i", x, np.linalg.inv(x.T @ x), x)
    far = x[np.argsort(-leverage)[:hidden]]
    directions = rng.normal(size=(200_000, 3))
    shares = np.square(directions @ far.T).sum(axis=1) / np.square(directions @ x.T).sum(axis=1)
    assert shares.max() <= found * (1 + 1e-9)
    assert shares.max() > 0.98 * found


def test_counts_of_few_rows_and_other_families_have_another_method() -> None:
    model = dp.poisson("y ~ x + z", counts(0, 1_000), COUNTS)
    privacy = LabelOnly(0.5, DELTA, curator=True)
    assert model.plan(privacy).method == "label-curator-glm"
    (text,) = model.plan(privacy, method="label-curator-newton").warnings
    assert "how long scores are" in text
    assert "'label-curator-glm' errs less" in text
    other = dp.glm("y ~ x + z", counts(0, 1_000), COUNTS, family="poisson", link="identity")
    with pytest.raises(OptionError, match="counts with a log link"):
        other.plan(privacy, method="label-curator-newton")
    assert other.plan(privacy).method == "label-curator-glm"
