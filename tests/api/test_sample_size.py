"""How many rows a target needs: the plan at that number reaches it, and at fewer does not."""

import numpy as np
import pandas as pd
import pytest

import dpstats as dp
from dpstats.errors import OptionError
from tests.grids import grid

SCHEMA = dp.Schema(
    x=dp.Numeric(-3, 3, center=0, scale=1),
    z=dp.Numeric(0, 1, center=0.5, scale=0.29),
    y=dp.Numeric(-6, 6, center=0, scale=1.5),
)
TARGET = {"x": 0.02, "z": 0.1}
GUARANTEES = [
    dp.Central(1.0, 1e-7),
    dp.Central(0.2, 1e-7, neighbors="add-remove", rows=77),
    dp.Local(2.0),
    dp.Local(2.0, interactive=True),
    dp.LabelOnly(1.0),
    dp.LabelOnly(0.2, 1e-7, curator=True),
]


def table(n: int) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    x, z = rng.normal(size=n).clip(-3, 3), rng.uniform(size=n)
    return pd.DataFrame({"x": x, "z": z, "y": x - z + rng.normal(size=n)})


def planned(privacy, n: int) -> np.ndarray:
    """Planned errors over their targets at n rows."""
    data = None
    if privacy.trust == "label-only":
        data = pd.concat([table(1000)] * max(n // 1000, 1), ignore_index=True)
    if getattr(privacy, "rows", None):
        privacy = dp.Central(privacy.epsilon, privacy.delta, neighbors="add-remove", rows=n)
    plan = dp.ols("y ~ x + z", data, SCHEMA, n=None if data is not None else n).plan(privacy)
    found = dict(zip(plan.names, plan.predicted_se, strict=True))
    return np.array([found[name] / target for name, target in TARGET.items()])


@pytest.mark.parametrize("privacy", grid(GUARANTEES, 3), ids=lambda p: f"{p.trust}-{p.epsilon:g}")
def test_that_many_rows_reach_the_target_and_fewer_do_not(privacy):
    model = dp.ols("y ~ x + z", table(1000), SCHEMA)
    n = dp.sample_size(model, privacy, TARGET)
    assert planned(privacy, n).max() < 1.03
    assert planned(privacy, round(0.8 * n)).max() > 1.0
    assert n == float(f"{n:.2g}")


def test_a_fit_of_that_many_rows_has_such_errors():
    privacy = dp.LabelOnly(2.0)
    n = dp.sample_size(dp.ols("y ~ x + z", table(1000), SCHEMA), privacy, {"x": 0.05})
    fit = dp.ols("y ~ x + z", table(n), SCHEMA).fit(privacy, noise=dp.SeededNoise(1))
    assert fit.bse["x"] == pytest.approx(0.05, rel=0.25)


def test_one_number_is_for_every_slope():
    model = dp.ols("y ~ x + z", schema=SCHEMA, n=10)
    privacy = dp.Central(1.0, 1e-7)
    each = [dp.sample_size(model, privacy, {name: 0.05}) for name in ("x", "z")]
    assert dp.sample_size(model, privacy, 0.05) == max(each)
    mean = dp.mean("y", schema=SCHEMA, n=10)
    wide, narrow = (dp.sample_size(mean, dp.Local(1.0), target) for target in (0.1, 0.05))
    assert 3.9 < narrow / wide < 6.0  # more users, a wider interval


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({"w": 0.1}, "'w'; the coefficients are Intercept, x, z"),
        ({"x": 0.0}, "finite number > 0"),
        ({"x": float("nan")}, "finite number > 0"),
        ({"x": "small"}, "finite number > 0"),
        ({"x": 1e-9}, "not even"),
    ],
)
def test_targets_that_make_no_sense_are_refused(target, words):
    model = dp.ols("y ~ x + z", schema=SCHEMA, n=10)
    with pytest.raises(OptionError, match=words):
        dp.sample_size(model, dp.Local(1.0), target)


def test_a_method_without_planned_errors_says_so():
    wide = dp.Schema({f"x{j}": dp.Numeric(-1, 1) for j in range(60)}, y=dp.Numeric(-1, 1))
    model = dp.ols("y ~ .", schema=wide, n=1000)
    with pytest.raises(OptionError, match="plans no standard error"):
        dp.sample_size(model, dp.Central(1.0, 1e-7), 0.1, sparsity=5)


@pytest.mark.parametrize("asked", ["power", "sample_size"])
def test_mixtures_are_planned_between_two_ends(asked):
    """They were once refused for too few of a hundred rows, which nobody had asked about."""
    models = [dp.mixture_ols("y ~ x", schema=SCHEMA, n=20_000)]
    models += [dp.gaussian_mixture("~ x + z", schema=SCHEMA, n=20_000)]
    for model in models:
        with pytest.raises(OptionError, match=f"{asked}: errors of a mixture.*model.plan"):
            getattr(dp, asked)(model, dp.Central(1.0, 1e-7), effect=0.1)


def test_a_model_that_expects_rows_is_not_fitted():
    made = dp.ols("y ~ x + z", table(1000), SCHEMA).expecting(50)
    assert made.plan(dp.Central(1.0, 1e-7)).n == made.plan(dp.LabelOnly(1.0)).n == 50
    with pytest.raises(dp.errors.DataError, match="to plan with"):
        made.fit(dp.LabelOnly(1.0))


def test_a_target_needs_a_scale_that_errors_can_be_planned_in():
    wide = dp.Schema({**SCHEMA, "x": dp.Numeric(-300, 300)})
    model, privacy = dp.ols("y ~ x + z", schema=wide, n=10), dp.Central(1.0, 1e-7)
    with pytest.raises(OptionError, match=r"units of /sd\(x\)"):
        dp.sample_size(model, privacy, {"x": 0.1})
    assert dp.sample_size(model, privacy, {"z": 0.1}) > 100
