"""What would need exact rows is not there, and nothing of the rows is."""

import gc
import re
import types

import numpy as np
import pandas as pd
import pytest

from dpstats.errors import PrivateQuantityError
from dpstats.results.private_names import PRIVATE
from tests.results.cases import CANARY, N, frame, make


@pytest.fixture(scope="module")
def fit():
    return make()[0]


@pytest.mark.parametrize("name", sorted(PRIVATE))
def test_private_attribute_explains_itself(fit, name):
    with pytest.raises(PrivateQuantityError, match=f"`{name}` is not available: it "):
        getattr(fit, name)
    assert not hasattr(fit, name)
    assert name not in dir(fit)


@pytest.mark.parametrize(
    "name",
    [
        "resid",
        "fittedvalues",
        "rsquared",
        "rsquared_adj",
        "aic",
        "bic",
        "llf",
        "fvalue",
        "scale",
        "HC0_se",
    ],
)
def test_names_that_statsmodels_users_type_are_in_the_table(name):
    assert name in PRIVATE


@pytest.mark.parametrize("name", ["resid", "rsquared", "aic"])
def test_what_is_not_there_says_how_a_noisy_one_is_bought(fit, name):
    import dpstats as dp

    with pytest.raises(PrivateQuantityError, match=r"dp\.mean") as told:
        getattr(fit, name)
    formula = re.search(r'dp\.mean\("(.*?)", data, schema\)', str(told.value))[1]
    rng = np.random.default_rng(3)
    x = rng.uniform(0, 1, 20_000)
    table = {"x": x, "y": 1.2 + 0.3 * x + rng.uniform(-1, 1, 20_000)}
    schema = dp.Schema(x=dp.Numeric(0, 1), y=dp.Numeric(0, 3))
    square = dp.mean(formula, table, schema).fit(dp.Central(1.0, 1e-7), noise=dp.SeededNoise(1))
    assert square.params.iloc[0] == pytest.approx(1 / 3, abs=0.02)


def test_the_scale_points_to_the_released_one(fit):
    with pytest.raises(PrivateQuantityError, match=r"noisy residual scale is in `released`"):
        fit.scale  # noqa: B018


@pytest.mark.parametrize("name", ["data", "endog", "exog"])
def test_the_model_has_names_but_no_data(fit, name):
    assert fit.model.exog_names == list(fit.params.index)
    assert not hasattr(fit.model, name)
    with pytest.raises(PrivateQuantityError, match="never had any"):
        getattr(fit.model, name)


def test_a_misspelt_attribute_is_an_ordinary_error(fit):
    with pytest.raises(AttributeError, match="has no attribute 'parms'") as caught:
        fit.parms  # noqa: B018
    assert not isinstance(caught.value, PrivateQuantityError)


def referents(item):
    """What `item` keeps alive; of a function its closure and defaults, not its module."""
    if isinstance(item, (type, types.ModuleType, types.BuiltinFunctionType)):
        return []
    if isinstance(item, types.FunctionType):
        return [item.__closure__, item.__defaults__, item.__kwdefaults__]
    return gc.get_referents(item)


def reachable(root):
    """Every object reachable from `root`."""
    seen, queue = {}, [root]
    while queue:
        item = queue.pop()
        if id(item) not in seen:
            seen[id(item)] = item
            queue += referents(item)
    return list(seen.values())


def long_arrays(items, n):
    return [
        item
        for item in items
        if isinstance(item, (np.ndarray, pd.Series, pd.DataFrame)) and n in np.shape(item)
    ]


def test_the_walk_looks_into_closures():
    rows = np.zeros(N)
    assert long_arrays(reachable([lambda: rows]), N)


def test_no_row_is_reachable_from_a_result():
    df = frame()
    df.loc[7, "visits"] = CANARY
    fit, witness = make(df)
    fit.summary(), fit.privacy_share, fit.pvalues
    assert long_arrays(reachable(witness), N), "the walk must find rows where there are some"
    found = reachable(fit)
    assert not long_arrays(found, N)
    assert not [item for item in found if isinstance(item, float) and item == CANARY]
    assert str(CANARY) not in fit.to_json()


def test_no_table_of_rows_is_reachable(fit):
    assert not [i for i in reachable(fit) if isinstance(i, pd.DataFrame) and len(i) >= N]
