"""Power and sample size of private tests: the normal formula at planned errors, and simulation."""

import warnings

import numpy as np
import pytest
from statsmodels.stats.power import NormalIndPower

import dpstats as dp
from dpstats.errors import FeasibilityWarning, OptionError

SCHEMA = dp.Schema(
    y=dp.Numeric(-6, 6, center=0.0, scale=1.0),
    x=dp.Numeric(-1, 1, center=0.0, scale=0.577),
    g=dp.Categorical(["a", "b"], shares=[0.5, 0.5]),
)
PRIVATE = dp.Central(1.0, 1e-6)


def test_power_is_that_of_the_normal_test_at_the_planned_error():
    """statsmodels' formula, of one row whose effect is in standard errors."""
    model = dp.ols("y ~ x + C(g)", schema=SCHEMA, n=2000)
    plan = model.plan(PRIVATE)
    found = dp.power(model, PRIVATE, {"x": -0.2, "C(g)[T.b]": 0.1}, alpha=0.1)
    for name, effect in (("x", -0.2), ("C(g)[T.b]", 0.1)):
        se = plan.predicted_se[plan.parameters.index(name)]
        witness = NormalIndPower(ddof=0).power(effect / se, 1, 0.1, ratio=0)
        assert found[name] == pytest.approx(witness, rel=1e-6)
    assert set(dp.power(model, PRIVATE, 0.1).index) == {"C(g)[T.b]", "x"}
    assert (dp.power(model, PRIVATE, 0.1, n=20_000) > dp.power(model, PRIVATE, 0.1)).all()
    stronger = dp.power(model, dp.Central(0.1, 1e-6), 0.1)
    assert (stronger < dp.power(model, PRIVATE, 0.1)).all()


def test_both_ends_of_a_planned_range_are_said_and_may_be_asked_for():
    """Of two columns the errors are 7.5 or more times apart; the share of a level adds to it."""
    schema = dp.Schema(dict(SCHEMA), z=dp.Numeric(-1, 1, scale=0.5), h=dp.Categorical(["u", "v"]))
    model = dp.ols("y ~ x + z + C(h)", schema=schema, n=2000)
    plan, powers, rows = model.plan(PRIVATE), {}, {}
    with pytest.warns(
        FeasibilityWarning, match=r"from 0\.\d\d to 1\.00.*planned='least' and 'most'"
    ):
        powers["middle"] = dp.power(model, PRIVATE, 0.2)
    with pytest.warns(FeasibilityWarning, match="rows are the middle, and .* the fewest"):
        rows["middle"] = dp.sample_size(model, PRIVATE, effect={"z": 0.2})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for k, which in enumerate(("least", "most")):
            powers[which] = dp.power(model, PRIVATE, 0.2, planned=which)
            rows[which] = dp.sample_size(model, PRIVATE, effect={"z": 0.2}, planned=which)
            se = plan.predicted_range[plan.parameters.index("z")][k]
            witness = NormalIndPower(ddof=0).power(0.2 / se, 1, 0.05, ratio=0)
            assert powers[which]["z"] == pytest.approx(witness, rel=1e-6)
    assert (powers["least"] > powers["middle"]).all()
    assert (powers["middle"] > powers["most"]).all()
    assert rows["least"] < rows["middle"] / 3 < rows["most"] / 9
    with pytest.raises(OptionError, match="'middle', 'least' or 'most'"):
        dp.power(model, PRIVATE, 0.2, planned="worst")


def test_where_one_error_is_planned_nothing_is_warned_of():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        dp.power(dp.ttest("y ~ g", schema=SCHEMA, n=2000), PRIVATE, 0.2)
        dp.sample_size(dp.mean("y", schema=SCHEMA), PRIVATE, effect=0.2)
    assert not said


@pytest.mark.parametrize("power", [0.5, 0.8, 0.95])
def test_the_sample_size_has_the_power_it_was_asked_for(power):
    model = dp.ols("y ~ x", schema=SCHEMA)
    n = dp.sample_size(model, PRIVATE, effect={"x": -0.2}, power=power)
    assert dp.power(model, PRIVATE, {"x": 0.2}, n=n)["x"] >= power
    fewer = int(0.9 * n)  # n has two digits
    assert dp.power(model, PRIVATE, {"x": 0.2}, n=fewer)["x"] < power


def test_two_groups_and_a_mean():
    groups = dp.ttest("y ~ g", schema=SCHEMA, n=2000)
    assert dp.power(groups, PRIVATE, 0.2).index.tolist() == ["b - a"]
    mean = dp.mean("y", schema=SCHEMA, n=2000)
    se = mean.plan(PRIVATE).predicted_se[0]
    witness = NormalIndPower(ddof=0).power(0.1 / se, 1, 0.05, ratio=0)
    assert dp.power(mean, PRIVATE, 0.1).iloc[0] == pytest.approx(witness, rel=1e-6)
    share = dp.proportion("g", schema=SCHEMA, n=2000)
    assert 0 < dp.power(share, PRIVATE, {"b": 0.05})["b"] < 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"effect": 0}, "other than 0"),
        ({"effect": {"z": 1}}, "effect names 'z'"),
        ({"effect": float("nan")}, "finite number"),
        ({"effect": 0.1, "alpha": 1.5}, "a level in"),
        ({"effect": 0.1, "power": 0.01}, "above alpha"),
        ({}, "one of them"),
        ({"effect": 0.1, "target_se": 0.1}, "one of them"),
    ],
)
def test_what_is_refused(arguments, message):
    model = dp.ols("y ~ x", schema=SCHEMA, n=2000)
    with pytest.raises(OptionError, match=message):
        dp.sample_size(model, PRIVATE, **arguments)
    if "power" not in arguments and "effect" in arguments and len(arguments) == 1:
        with pytest.raises(OptionError, match=message):
            dp.power(model, PRIVATE, **arguments)


def test_units_that_nobody_declared_are_refused():
    open_schema = dp.Schema(y=dp.Numeric(-100, 100), x=dp.Numeric(-10, 10))
    model = dp.ols("y ~ x", schema=open_schema, n=5000)
    with pytest.raises(OptionError, match="Declare scale="):
        dp.power(model, PRIVATE, 0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("effect", "least", "most"), [(0.0, 0.01, 0.1), (0.16, 0.0, 1.0)])
def test_tests_reject_as_often_as_the_power_says(effect, least, most):
    """Of 300 fits, seeded: within 3.3 standard errors of the power, and of the plan's errors."""
    n, fits, slope = 2000, 300, effect
    model = dp.ols("y ~ x", schema=SCHEMA, n=n)
    rejected = []
    for seed in range(fits):
        rng = np.random.default_rng(seed)
        x = rng.uniform(-1, 1, n)
        rows = {"x": x, "y": slope * x + rng.normal(size=n)}
        fit = dp.ols("y ~ x", rows, SCHEMA).fit(PRIVATE, noise=dp.SeededNoise(seed))
        rejected.append(fit.pvalues["x"] < 0.05)
    share = np.mean(rejected)
    assert least <= share <= most
    if effect:
        planned = dp.power(model, PRIVATE, effect)["x"]
        assert share == pytest.approx(planned, abs=3.3 * 0.029 + 0.05)
        assert share - dp.power(model, PRIVATE, effect / 2)["x"] > 0.2
