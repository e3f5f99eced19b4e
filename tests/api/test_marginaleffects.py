"""The package marginaleffects takes our fits, and finds what `get_margeff` finds."""

import importlib
import sys

import numpy as np
import pytest

import dpstats as dp
from dpstats.errors import OptionError

marginaleffects = pytest.importorskip("marginaleffects")
polars = pytest.importorskip("polars")
pytestmark = pytest.mark.full
ROWS = {"age": [10.0, 30.0, 60.0], "plan": ["free", "25", "95"], "years": [0.5, 1.0, 2.0]}


@pytest.fixture(scope="module")
def fits():
    rng = np.random.default_rng(0)
    n = 5000
    data = {"age": rng.uniform(0, 70, n), "plan": rng.choice(["free", "25", "95"], n)}
    data |= {"years": rng.uniform(0.5, 2, n), "sick": rng.random(n) < 0.2 + data["age"] / 200}
    data["visits"] = rng.poisson((1 + data["age"] / 30) * data["years"])
    schema = dp.Schema(
        age=dp.Numeric(0, 70),
        plan=dp.Categorical(["free", "25", "95"]),
        years=dp.Numeric(0.5, 2),
        sick=dp.Boolean(),
        visits=dp.Numeric(0, 80),
    )
    models = [
        dp.ols("visits ~ age + C(plan)", data, schema),
        dp.logit("sick ~ age + C(plan)", data, schema),
        dp.glm("visits ~ age + C(plan)", data, schema, family="poisson", exposure="years"),
    ]
    return [model.fit(dp.Central(1.0, 1e-6)) for model in models]


def test_predictions_and_slopes_are_ours(fits):
    from dpstats.marginaleffects import adapted

    for fit in fits:
        model = adapted(fit, ROWS)
        ours, theirs = fit.get_prediction(ROWS), marginaleffects.predictions(model)
        np.testing.assert_allclose(theirs["estimate"], ours.predicted, rtol=1e-9)
        np.testing.assert_allclose(theirs["std_error"], ours.se_mean, rtol=1e-3)
        slope = marginaleffects.avg_slopes(model, variables="age", eps=0.1)
        effect = fit.get_margeff(new=ROWS).summary_frame().loc["age"]
        np.testing.assert_allclose(slope["estimate"], effect["dy/dx"], rtol=1e-4)
        np.testing.assert_allclose(slope["std_error"], effect["Std. Err."], rtol=1e-3)
        np.testing.assert_allclose(slope["conf_high"], effect["Conf. Int. Hi."], rtol=1e-3)


@pytest.mark.skipif(
    int(polars.__version__.split(".")[0]) >= 2,
    reason="marginaleffects 0.6 fails on factors with polars 2, whoever made the fit",
)
def test_factors_are_compared_level_by_level(fits):
    from dpstats.marginaleffects import adapted

    found = marginaleffects.avg_comparisons(adapted(fits[0], ROWS), variables="plan")
    coefficients = fits[0].params[["C(plan)[T.25]", "C(plan)[T.95]"]]
    np.testing.assert_allclose(found["estimate"], coefficients, rtol=1e-9)


def test_what_has_no_columns_or_no_standard_errors_is_refused(fits):
    from dpstats.marginaleffects import adapted

    data = {"age": np.linspace(0, 70, 500)}
    other = dp.quantile("age", data, dp.Schema(age=dp.Numeric(0, 70))).fit(dp.Central(1.0, 1e-6))
    with pytest.raises(OptionError, match="a regression by formula"):
        adapted(other, ROWS)


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "marginaleffects.classes", None)
    monkeypatch.delitem(sys.modules, "dpstats.marginaleffects", raising=False)
    with pytest.raises(ImportError, match="needs the package marginaleffects: install it"):
        importlib.import_module("dpstats.marginaleffects")
