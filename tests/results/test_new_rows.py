"""Predictions for rows outside of what was declared say so, and extrapolate only when asked to."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

import dpstats as dp
from dpstats.errors import ExtrapolationWarning
from tests.results.cases import frame, make

N = 2_000
PRIVACY = dp.Central(4.0, 1e-6)
SCHEMA = dp.Schema(
    y=dp.Numeric(-50, 50),
    x=dp.Numeric(0, 10),
    t=dp.Numeric(1, 4),
    g=dp.Categorical(["a", "b"]),
    h=dp.Categorical(["a", "b"], other="b"),
    k=dp.Boolean(),
)
RNG = np.random.default_rng(0)
DATA = {
    "x": RNG.uniform(0, 10, N),
    "t": RNG.uniform(1, 4, N),
    "g": RNG.choice(["a", "b"], N),
    "h": RNG.choice(["a", "b"], N),
    "k": RNG.uniform(size=N) < 0.5,
}
DATA["y"] = 1 + DATA["x"] + 2 * (DATA["g"] == "b") + RNG.normal(size=N)
NEW = {
    "x": [-5.0, 0.0, 10.0, 30.0, np.inf, np.nan],
    "t": [1.0, 2.0, 3.0, 4.0, 8.0, 1.0],
    "g": ["a", "b", "a", "b", "a", "b"],
    "h": ["a", "z", "a", "b", "a", "b"],
    "k": [True, False, True, False, True, False],
}


def fitted(formula: str, **options: Any) -> Any:
    kind = dp.glm if options else dp.ols
    return kind(formula, DATA, SCHEMA, **options).fit(PRIVACY, noise=dp.SeededNoise(1))


def said(fit: Any, new: Any, **options: Any) -> tuple[Any, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        values = fit.predict(new, **options)
    assert all(issubclass(w.category, ExtrapolationWarning) for w in caught)
    assert all(w.filename == __file__ for w in caught)  # it points to who predicts
    return values.to_numpy(), [str(w.message) for w in caught]


def test_values_outside_are_counted_by_column_and_moved_to_the_ends() -> None:
    fit = fitted("y ~ x + t")
    values, (text,) = said(fit, NEW)
    assert "3 values of 'x', 1 value of 't'" in text
    assert "clip=False" in text
    held = {"x": np.clip(NEW["x"], 0, 10), "t": np.clip(NEW["t"], 1, 4)}
    np.testing.assert_array_equal(values, fit.predict(held))


def test_without_clipping_predictions_are_linear_beyond_the_range() -> None:
    fit = fitted("y ~ x + np.log(t) + I(x ** 2):g")
    new = {name: np.array(column)[[0, 3]] for name, column in NEW.items()} | {"t": [0.2, 9.0]}
    values, texts = said(fit, new, clip=False)
    assert texts == []
    x, t = new["x"], np.array(new["t"])
    exog = {"Intercept": 1, "x": x, "np.log(t)": np.log(t)}
    exog |= {f"I(x ** 2):g[{g}]": x**2 * (new["g"] == g) for g in ("a", "b")}
    np.testing.assert_allclose(
        values, sum(exog[name] * fit.params[name] for name in fit.params.index)
    )
    assert np.isnan(fit.predict({**new, "t": [-1.0, 1.0]}, clip=False)[0])  # log(-1)


def test_inside_of_the_range_nothing_is_said_and_nothing_differs() -> None:
    fit = fitted("y ~ x + g + k + bs(t, df=4)")
    inside = {name: column[:50] for name, column in DATA.items()}
    (values, texts), (others, none) = said(fit, inside), said(fit, inside, clip=False)
    assert texts == none == []
    np.testing.assert_array_equal(values, others)


@pytest.mark.parametrize("clip", [True, False])
def test_levels_that_are_not_declared_are_counted_and_predicted_nan(clip: bool) -> None:
    fit = fitted("y ~ g + h + k")
    new = NEW | {
        "g": ["a", "zz", None, "b", "", "b"],
        "k": [True, False, "maybe", None, 2, False],
    }
    new = {name: np.array(column, dtype=object) for name, column in new.items()}
    values, (text,) = said(fit, new, clip=clip)
    assert "2 values of 'g', 2 values of 'k'" in text  # missing ones, and those of "other", are not
    np.testing.assert_array_equal(np.isnan(values), [False, True, True, True, True, False])


@pytest.mark.parametrize("basis", ["bs(x, df=5)", "cr(x, df=4)", "poly(x, 2)"])
def test_bases_keep_their_value_at_the_end_and_say_so(basis: str) -> None:
    fit = fitted(f"y ~ {basis} + t")
    new = {"x": [10.0, 30.0, -4.0], "t": [4.0, 4.0, 9.0]}
    values, (text,) = said(fit, new, clip=False)
    assert "2 values of 'x'" in text
    assert "'t'" not in text
    assert values[0] == pytest.approx(values[1])
    at_end = fit.predict({"x": [0.0], "t": [4.0]})[0]
    assert values[2] == pytest.approx(at_end + 5 * fit.params["t"])


def test_offsets_are_held_or_extrapolated_with_the_rest() -> None:
    data = DATA | {"y": np.random.default_rng(1).poisson(DATA["t"])}
    model = dp.glm(
        "y ~ x", data, SCHEMA.replaced({"y": dp.Numeric(0, 50)}), family="poisson", exposure="t"
    )
    fit = model.fit(PRIVACY, noise=dp.SeededNoise(1))
    new = {"x": [5.0, 5.0], "t": [4.0, 8.0]}
    values, (text,) = said(fit, new)
    assert "1 value of 't'" in text
    assert values[0] == values[1]
    beyond, none = said(fit, new, clip=False)
    assert none == []
    assert beyond[1] == pytest.approx(2 * beyond[0])


@pytest.mark.parametrize("wrap", [np.asarray, csr_array])
def test_matrices_are_counted_by_the_names_of_their_columns(wrap: Any) -> None:
    rng = np.random.default_rng(2)
    x = np.column_stack([np.ones(N), rng.uniform(0, 1, (N, 2))])
    bounds = {"endog": (-9, 9), "exog": [(1, 1), (0, 1), (0, 1)]}
    fit = dp.OLS(x @ [1, 2, 3], wrap(x), bounds).fit(PRIVACY, noise=dp.SeededNoise(1))
    new = np.array([[1.0, 0.5, 0.5], [1.0, 4.0, -2.0], [1.0, 0.0, 3.0]])
    values, (text,) = said(fit, wrap(new))
    assert "1 value of 'x1', 2 values of 'x2'" in text
    np.testing.assert_allclose(values, np.clip(new, 0, 1) @ fit.params)
    values, texts = said(fit, wrap(new), clip=False)
    assert texts == []
    np.testing.assert_allclose(values, new @ fit.params)


def test_the_known_term_of_arrays_is_extrapolated_too() -> None:
    rng = np.random.default_rng(3)
    x, offset = np.ones((N, 1)), rng.uniform(0, 1, N)
    bounds = {"endog": (0, 50), "exog": [(1, 1)], "offset": (0, 1)}
    model = dp.GLM(rng.poisson(np.exp(offset)), x, bounds, family="poisson", offset=offset)
    fit = model.fit(PRIVACY, noise=dp.SeededNoise(1))
    (held,), (text,) = said(fit, np.ones((1, 1)), offset=3.0)
    (beyond,), none = said(fit, np.ones((1, 1)), offset=3.0, clip=False)
    assert "1 value of 'offset'" in text
    assert none == []
    assert beyond == pytest.approx(held * np.exp(2))


def test_summary_frames_are_those_of_statsmodels_beyond_the_range() -> None:
    ours, theirs = make()
    new = frame(seed=9, n=4).assign(age=[10.0, 30.0, 90.0, 50.0])
    with pytest.warns(ExtrapolationWarning, match="2 values of 'age'"):
        held = ours.get_prediction(new).summary_frame()
    beyond = ours.get_prediction(new, clip=False).summary_frame()
    expected = theirs.get_prediction(new).summary_frame()[list(beyond)]
    pd.testing.assert_frame_equal(beyond, expected, rtol=1e-7)
    expected = theirs.get_prediction(new.assign(age=new["age"].clip(20, 70))).summary_frame()
    pd.testing.assert_frame_equal(held, expected[list(held)], rtol=1e-7)


def test_results_that_were_saved_say_the_same() -> None:
    fit = fitted("y ~ bs(x, df=4) + g")
    loaded = dp.Results.from_json(fit.to_json())
    for clip in (True, False):
        np.testing.assert_array_equal(*(said(f, NEW, clip=clip)[0] for f in (fit, loaded)))
        assert said(fit, NEW, clip=clip)[1] == said(loaded, NEW, clip=clip)[1] != []


def test_public_covariates_have_no_declared_range() -> None:
    schema = dp.Schema(y=SCHEMA["y"])
    fit = dp.ols("y ~ x", DATA, schema).fit(dp.LabelOnly(2.0), noise=dp.SeededNoise(1))
    values, texts = said(fit, {"x": [-5.0, 30.0]})
    assert texts == []
    np.testing.assert_allclose(values, fit.params.to_numpy() @ [[1, 1], [-5, 30]])


def test_a_column_far_from_a_declared_centre_is_said_to_be_cut() -> None:
    schema = SCHEMA.replaced({"x": dp.Numeric(-1e9, 1e9, center=5, scale=3)})
    fit = dp.ols("y ~ x", DATA, schema).fit(PRIVACY, noise=dp.SeededNoise(1))
    values, (text,) = said(fit, {"x": [5.0, 1e6]})
    assert "1 value of 'x'" in text
    beyond, _ = said(fit, {"x": [5.0, 1e6]}, clip=False)
    slope = replace(fit).params["x"]
    assert values[1] - values[0] == pytest.approx(3_000 * slope)
    assert beyond[1] - beyond[0] == pytest.approx((1e6 - 5) * slope)
