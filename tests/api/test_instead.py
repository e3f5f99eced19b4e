"""What errors say to do instead does what they say."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import dpstats as dp
from dpstats.errors import OptionError, SchemaError


def test_logits_of_pairs_of_levels_are_a_multinomial_one() -> None:
    """Begg & Gray: both are consistent for the same coefficients."""
    rng = np.random.default_rng(3)
    x = rng.uniform(-2, 2, 30_000)
    odds = np.exp(np.column_stack([0 * x, 0.3 + 0.8 * x, -0.2 - 0.5 * x]))
    chances = np.cumsum(odds / odds.sum(axis=1, keepdims=True), axis=1)
    level = np.argmax(rng.random(x.size)[:, None] < chances, axis=1)
    table = pd.DataFrame({"x": x, "way": np.array(["bus", "car", "train"])[level]})
    whole = sm.MNLogit(level, sm.add_constant(x)).fit(disp=0)
    for k, other in enumerate(("car", "train")):
        schema = dp.Schema(x=dp.Numeric(-2, 2), way=dp.Categorical(["bus", other]))
        fit = dp.logit("way ~ x", table, schema).fit(dp.Central(1, 1e-6), noise=dp.SeededNoise(k))
        assert np.abs((fit.params.to_numpy() - whole.params[:, k]) / fit.bse.to_numpy()).max() < 3
        assert (fit.bse.to_numpy() < 2 * whole.bse[:, k]).all()
        assert fit.nobs_contributing == pytest.approx(np.isin(level, [0, k + 1]).sum(), abs=500)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("MNLogit", r"dp\.mnlogit"),
        ("QuantReg", "quantreg"),
        ("feols", "x | g"),
        ("ordinal", "two levels"),
        ("median", r"dp\.quantile"),
        ("ttest_ind", r"dp\.ttest"),
        ("value_counts", r"dp\.proportion"),
    ],
)
def test_a_model_that_is_not_there_says_what_is(name: str, words: str) -> None:
    with pytest.raises(AttributeError, match=words):
        getattr(dp, name)


def test_options_that_are_not_there_say_what_is() -> None:
    schema = dp.Schema(y=dp.Categorical(["a", "b", "c"]), n=dp.Numeric(0, 9), x=dp.Numeric(0, 1))
    with pytest.raises(SchemaError, match=r"Categorical\(\['a', 'c'\]\)"):
        dp.logit("y ~ x", schema=schema, n=1000)
    with pytest.raises(OptionError, match="alpha='released'"):
        dp.glm("n ~ x", schema=schema, family="negativebinomial", n=1000)
