"""The default GLM: statsmodels without noise, honest with it, never wild."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm

import dpstats as dp
from dpstats.accounting import delta_of
from dpstats.design import DeclaredDesign, Design
from dpstats.errors import OptionError
from dpstats.estimators.central.newton.newton import Newton
from dpstats.estimators.central.published.dp_gd import DPGD
from dpstats.families import BINOMIAL, POISSON, Family
from dpstats.holders import Curator
from dpstats.mechanisms.noise import SeededNoise
from dpstats.privacy import Central
from tests.estimators.newton_cases import robust_plan
from tests.estimators.ols_cases import DELTA, ran_as_planned

WITHOUT_NOISE = 1e7
GAUSSIAN_LOG, POISSON_IDENTITY = Family("gaussian", "log"), Family("poisson", "identity")


@dataclass(frozen=True)
class Setting:
    """A family, the coefficients of an intercept and columns in [-1, 1], and the response."""

    family: Family
    beta: Any
    top: float
    draw: Callable[[Any, Any], Any]
    reference: Any
    intercept: bool = True

    @property
    def design(self) -> Design:
        d = len(self.beta)
        bounds = [(1, 1)] * self.intercept + [(-1, 1)] * (d - self.intercept)
        low = -self.top if self.family.name == "gaussian" else 0.0
        return DeclaredDesign.from_arrays(
            d, {"exog": bounds, "endog": (low, self.top)}, family=self.family
        )

    def rows(self, rng: Any, n: int) -> tuple[Any, Any]:
        x = rng.uniform(-1, 1, (n, len(self.beta)))
        if self.intercept:
            x[:, 0] = 1.0
        return x, np.minimum(self.draw(rng, x @ self.beta), self.top).astype(float)

    def fit(self, x: Any, y: Any, epsilon: float, seed: int) -> tuple[Any, Any, Any]:
        """Coefficients, standard errors, and the holder."""
        shape, method = self.design, Newton("glm")
        plan = robust_plan(shape, Central(epsilon, DELTA), len(y), "glm")
        holder = Curator(shape.source((y, x)), shape, plan, SeededNoise(seed))
        estimate = method.fit(holder, shape, plan)
        params, cov = shape.standardization.to_user(estimate.params, estimate.cov)
        return params, np.sqrt(np.diag(cov)), (holder, plan, estimate)


def bernoulli(rng: Any, eta: Any) -> Any:
    return rng.random(len(eta)) < 1 / (1 + np.exp(-eta))


def negative_binomial(alpha: float) -> Callable[[Any, Any], Any]:
    """Overdispersed: variance mu + alpha mu^2."""
    return lambda rng, eta: rng.poisson(np.exp(eta) * rng.gamma(1 / alpha, alpha, len(eta)))


def wide_counts(rng: Any, eta: Any) -> Any:
    """Overdispersed alike at all means: variance 3 mu."""
    return rng.poisson(rng.gamma(np.exp(eta) / 2, 2.0))


SETTINGS = {
    "logit": Setting(
        BINOMIAL, np.array([-0.5, 1.0, -0.8, 0.6]), 1.0, bernoulli, sm.families.Binomial()
    ),
    "rare": Setting(
        BINOMIAL, np.array([-3.0, 1.0, -0.8, 0.6]), 1.0, bernoulli, sm.families.Binomial()
    ),
    "no intercept": Setting(
        BINOMIAL, np.array([1.5, -1.0, 0.8]), 1.0, bernoulli, sm.families.Binomial(), False
    ),
    "poisson": Setting(
        POISSON,
        np.array([0.7, 0.5, -0.4, 0.3]),
        40.0,
        lambda rng, eta: rng.poisson(np.exp(eta)),
        sm.families.Poisson(),
    ),
    "overdispersed": Setting(
        POISSON,
        np.array([0.7, 0.5, -0.4, 0.3]),
        60.0,
        negative_binomial(0.5),
        sm.families.Poisson(),
    ),
    "identity": Setting(
        POISSON_IDENTITY,
        np.array([4.0, 0.8, -0.6, 0.5]),
        25.0,
        lambda rng, eta: rng.poisson(eta),
        sm.families.Poisson(sm.families.links.Identity()),
    ),
    "normal, log link": Setting(
        GAUSSIAN_LOG,
        np.array([0.7, 0.4, -0.3, 0.2]),
        12.0,
        lambda rng, eta: np.exp(eta) + 0.5 * rng.normal(size=len(eta)),
        sm.families.Gaussian(sm.families.links.Log()),
    ),
}
each_setting = pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
QUICK = ("rare",)  # of which intervals are simulated by default


@each_setting
@pytest.mark.filterwarnings("ignore:The Identity link function")
def test_a_large_epsilon_gives_statsmodels(setting: Setting) -> None:
    # What remains: few rows are weighted down, counts damped where their mean is far above others.
    x, y = setting.rows(np.random.default_rng(1), 8_000)
    params, se, _ = setting.fit(x, y, WITHOUT_NOISE, 0)
    exact = sm.GLM(y, x, setting.reference).fit(cov_type="HC0", start_params=setting.beta)
    assert np.abs((params - exact.params) / exact.bse).max() < 0.25
    assert se == pytest.approx(exact.bse, rel=0.05)


@pytest.mark.full
@pytest.mark.parametrize(
    "setting",
    [
        pytest.param(setting, id=name, marks=() if name in QUICK else pytest.mark.full)
        for name, setting in SETTINGS.items()
    ],
)
def test_intervals_cover(setting: Setting) -> None:
    # 30 fits with 3 or 4 coefficients: a standard deviation of about 2 points around 95 %.
    rng, z = np.random.default_rng(2), []
    for seed in range(30):
        params, se, _ = setting.fit(*setting.rows(rng, 4_000), 2.0, seed)
        z.append((params - setting.beta) / se)
    assert np.mean(np.abs(z) < 1.96) > 0.9
    # Power: standard errors half as large are noticed. They would cover 67 %.
    assert np.mean(np.abs(z) < 1.96 / 2) < 0.85


def counts(draw: Callable[[Any, Any], Any]) -> Setting:
    return replace(SETTINGS["poisson"], draw=draw, top=60.0)


def standardised(setting: Setting, n: int, epsilon: float, fits: int, seed: int) -> Any:
    """Errors over standard errors; shape (fits, d)."""
    rng, z = np.random.default_rng(seed), []
    for s in range(fits):
        params, se, _ = setting.fit(*setting.rows(rng, n), epsilon, s)
        z.append((params - setting.beta) / se)
    return np.array(z)


@pytest.mark.slow
def test_strong_overdispersion_does_not_bias_the_intercept() -> None:
    # Clips cut off long tails. Taken for those of a widened Poisson law they left -1 here.
    z = standardised(counts(negative_binomial(1.0)), 10_000, 1.0, 40, 11)
    assert abs(z[:, 0].mean()) < 0.55
    assert np.mean(np.abs(z) < 1.96) > 0.9


def test_counts_say_how_dispersed_they_are() -> None:
    for alpha, said in ((1.0, True), (0.01, False)):
        setting = counts(negative_binomial(alpha))
        x, y = setting.rows(np.random.default_rng(12), 20_000)
        estimate = setting.fit(x, y, 3.0, 0)[2][2]
        assert estimate.released["spread"] == pytest.approx(alpha, rel=0.25, abs=0.03)
        assert bool(estimate.remarks) == said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draw", "least"),
    [
        (lambda rng, eta: rng.poisson(np.exp(eta)), 0.93),
        (negative_binomial(1.0), 0.93),
        (wide_counts, 0.91),  # a law that centres do not know: slopes are .6 standard errors off
    ],
    ids=["poisson", "mu + mu^2", "3 mu"],
)
def test_intervals_for_counts_cover(draw: Callable[[Any, Any], Any], least: float) -> None:
    # 300 fits: a standard deviation of 1.3 points for one coefficient, 0.6 for all together.
    z = standardised(counts(draw), 10_000, 1.0, 300, 13)
    hits = np.abs(z) < 1.96
    assert least < hits.mean() < 0.97
    assert hits.mean(axis=0).min() > least - 0.03
    # Power: variances smaller by a third are noticed.
    assert np.mean(np.abs(z) < 1.96 * np.sqrt(2 / 3)) < 0.93


@pytest.mark.full
def test_intervals_without_the_privacy_noise_would_not_cover() -> None:
    setting, rng = SETTINGS["logit"], np.random.default_rng(3)
    hits = []
    for seed in range(40):
        params, _, (_, _, estimate) = setting.fit(*setting.rows(rng, 10_000), 0.2, seed)
        rest = estimate.cov - estimate.cov_privacy
        variances = np.diag(setting.design.standardization.to_user(estimate.params, rest)[1])
        hits.append(np.abs(params - setting.beta) < 1.96 * np.sqrt(variances))
    assert np.mean(hits) < 0.85


@pytest.mark.full
@pytest.mark.parametrize(
    ("d", "n", "epsilon", "best"), [(5, 10_000, 1.0, 0.054), (20, 10_000, 1.0, 0.123)]
)
def test_error_is_below_that_of_gradient_descent(
    d: int, n: int, epsilon: float, best: float
) -> None:
    # `best` is what full-batch DP-GD was measured to have on this design.
    errors = []
    for seed in range(20):
        rng = np.random.default_rng([4, seed])
        beta = rng.normal(size=d)
        beta *= 2.6 / np.linalg.norm(beta)
        setting = Setting(BINOMIAL, beta, 1.0, bernoulli, None, intercept=False)
        params, _, _ = setting.fit(*setting.rows(rng, n), epsilon, seed)
        errors.append(np.linalg.norm(params - beta) / 2.6)
    assert np.mean(errors) < best


# ---- offsets ------------------------------------------------------------------------------------


def exposed(rng: Any, n: int) -> dict[str, Any]:
    """Counts whose rate is log-linear, over exposures from a month to ten years."""
    x, years = rng.uniform(-1, 1, n), np.exp(rng.uniform(np.log(1 / 12), np.log(10), n))
    return {"y": rng.poisson(years * np.exp(0.5 + 0.6 * x)).clip(0, 80), "x": x, "years": years}


EXPOSED = dp.Schema(y=dp.Numeric(0, 80), x=dp.Numeric(-1, 1), years=dp.Numeric(1 / 12, 10))


def rate_model(data: Any) -> Any:
    return dp.glm("y ~ x", data, EXPOSED, family="poisson", exposure="years")


def test_exposure_is_that_of_statsmodels() -> None:
    data = exposed(np.random.default_rng(5), 8_000)
    fit = rate_model(data).fit(Central(WITHOUT_NOISE, DELTA), noise=SeededNoise(0))
    x = sm.add_constant(data["x"])
    exact = sm.GLM(data["y"], x, sm.families.Poisson(), exposure=data["years"]).fit()
    assert np.abs((fit.params.to_numpy() - exact.params) / exact.bse).max() < 0.5


@pytest.mark.slow
def test_intervals_for_rates_cover() -> None:
    rng, truth, z = np.random.default_rng(6), np.array([0.5, 0.6]), []
    for seed in range(40):
        model = rate_model(exposed(rng, 5_000))
        fit = model.fit(Central(1.0, DELTA), noise=SeededNoise(seed))
        z.append((fit.params.to_numpy() - truth) / fit.bse.to_numpy())
    assert np.mean(np.abs(z) < 1.96) > 0.87


def test_a_logistic_offset_is_known() -> None:
    rng = np.random.default_rng(7)
    n, shape = (
        8_000,
        DeclaredDesign.from_arrays(
            2, {"exog": [(1, 1), (-1, 1)], "endog": (0, 1), "offset": (-2, 2)}, family=BINOMIAL
        ),
    )
    x, offset = np.column_stack([np.ones(n), rng.uniform(-1, 1, n)]), rng.uniform(-2, 2, n)
    y = bernoulli(rng, 0.3 + 0.8 * x[:, 1] + offset).astype(float)
    method = Newton("logit")
    plan = robust_plan(shape, Central(WITHOUT_NOISE, DELTA), n, "logit")
    holder = Curator(shape.source((y, x, {"offset": offset})), shape, plan, SeededNoise(0))
    params = method.fit(holder, shape, plan).params
    exact = sm.GLM(y, x, sm.families.Binomial(), offset=offset).fit()
    assert np.abs((params - exact.params) / exact.bse).max() < 0.25


# ---- budget and bad input -----------------------------------------------------------------------


@each_setting
def test_the_fit_asks_what_was_planned_and_costs_what_was_asked(setting: Setting) -> None:
    x, y = setting.rows(np.random.default_rng(8), 2_000)
    _, _, (holder, plan, _) = setting.fit(x, y, 0.7, 0)
    assert ran_as_planned(holder, plan)
    assert 0.99 * DELTA < delta_of(plan.events, 0.7) <= DELTA


@pytest.mark.parametrize("method", [Newton("logit"), DPGD("logit")], ids=lambda m: m.name)
def test_wrong_options_are_refused(method: Any) -> None:
    shape = SETTINGS["logit"].design
    with pytest.raises(OptionError, match="has no option"):
        method.plan(shape, Central(1.0, DELTA), 1000, momentum=0.9)
    with pytest.raises(OptionError, match="delta > 0"):
        method.plan(shape, Central(1.0, 0.0), 1000)


@pytest.mark.parametrize("steps", [2, 1001, 2.5, True])
def test_gradient_descent_takes_a_number_of_steps(steps: Any) -> None:
    with pytest.raises(OptionError, match="an integer from 3 to 1000"):
        DPGD("logit").plan(SETTINGS["logit"].design, Central(1.0, DELTA), 1000, steps=steps)


@pytest.mark.full
def test_the_plan_says_what_rarer_answers_would_cost() -> None:
    setting = SETTINGS["logit"]
    plan = robust_plan(setting.design, Central(1.0, DELTA), 10_000, "logit")
    assert "5% at the upper" in plan.assumptions[0]
    low, high = np.array(plan.predicted_range).T
    said = np.median(high / low) * 0.65 / 7.5  # of columns that are uncorrelated
    se = []
    for level in (0.0, -3.4):
        rare, rng = (
            replace(setting, beta=np.array([level, 1.0, -1.0, 0.5])),
            np.random.default_rng(3),
        )
        se.append(np.median([rare.fit(*rare.rows(rng, 10_000), 1.0, s)[1][1:] for s in range(6)]))
    assert se[1] / se[0] == pytest.approx(said, rel=0.25)


def test_the_plan_says_which_n_would_do() -> None:
    shape = DeclaredDesign.from_arrays(20, {"exog": (-1, 1), "endog": (0, 1)}, family=BINOMIAL)
    small = robust_plan(shape, Central(0.5, DELTA), 1_000, "logit")
    assert any("About n=" in w and "would" in w for w in small.warnings)
    assert not robust_plan(shape, Central(1.0, DELTA), 100_000, "logit").warnings


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 20.0])
def test_separated_responses_leave_finite_coefficients(epsilon: float) -> None:
    setting, rng = SETTINGS["logit"], np.random.default_rng(9)
    x, _ = setting.rows(rng, 1_000)
    params, se, _ = setting.fit(x, (x[:, 1] > 0).astype(float), epsilon, 0)
    assert np.all(np.isfinite(params))
    assert np.all(np.isfinite(se))
    assert np.abs(params).max() < 30


@pytest.mark.parametrize("name", ["logit", "poisson"])
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_constant_response_is_fitted(name: str, value: float) -> None:
    setting = SETTINGS[name]
    x, y = setting.rows(np.random.default_rng(10), 1_000)
    params, se, _ = setting.fit(x, np.full_like(y, value), 1.0, 0)
    assert np.all(np.isfinite(params))
    assert np.all(se > 0)


def strong_effects(strength: float, seed: int) -> Any:
    """Linear predictors that vary by 0.75 times their strength; one answer in ten is yes."""
    rng, n = np.random.default_rng(seed), 20_000
    x, z = np.clip(rng.normal(size=n), -5, 5), (rng.random(n) < 0.3) * 1.0
    eta = strength * (0.7 * x + 0.5 * z)
    y = (rng.random(n) < 1 / (1 + np.exp(np.quantile(eta, 0.9) - eta))) * 1.0
    schema = dp.Schema(x=dp.Numeric(-5, 5), z=dp.Numeric(0, 1), y=dp.Numeric(0, 1))
    return dp.logit("y ~ x + z", {"x": x, "z": z, "y": y}, schema)


def test_a_robust_logit_says_where_it_does_not_come_to_rest() -> None:
    """Effects that nearly separate answers were up to 20 standard errors too small in silence."""

    def words(strength: float, epsilon: float, seed: int) -> str:
        model, privacy = strong_effects(strength, seed), Central(epsilon, DELTA)
        return str(model.fit(privacy, noise=SeededNoise(seed), target="robust").summary())

    assert "nearly separate" in words(10.0, 4.0, 0)
    assert "did not come to rest" in words(10.0, 0.3, 0)
    assert not any("separate" in words(2.0, epsilon, 1) for epsilon in (0.5, 4.0))
