"""Marginal effects are statsmodels', at rows that are given; and those of a whole formula."""

import numpy as np
import pandas as pd
import pytest
from statsmodels.discrete.discrete_margins import margeff_cov_with_se
from statsmodels.discrete.discrete_model import Logit, Poisson

import dpstats as dp
from dpstats.errors import DataError, ExtrapolationWarning, OptionError, PrivateQuantityError

N = 3000
RNG = np.random.default_rng(11)
TABLE = pd.DataFrame(
    {
        "x": RNG.uniform(0, 4, N),
        "k": RNG.integers(0, 6, N).astype(float),
        "b": RNG.uniform(size=N) < 0.4,
        "g": RNG.choice(np.array(["u", "v", "w"], dtype=object), N),
    }
)
ETA = 0.3 * TABLE["x"] - 0.2 * TABLE["k"] + 0.8 * TABLE["b"] - 0.5 * (TABLE["g"] == "v")
TABLE["y"] = (RNG.uniform(size=N) < 1 / (1 + np.exp(-ETA))).astype(float)
TABLE["c"] = RNG.poisson(np.exp(0.5 * ETA)).astype(float)
SCHEMA = dp.Schema(
    x=dp.Numeric(0, 4),
    k=dp.Numeric(0, 5),
    b=dp.Boolean(),
    g=dp.Categorical(["u", "v", "w"]),
    y=dp.Numeric(0, 1),
    c=dp.Numeric(0, 20),
)
NEW = TABLE.head(200)
RIGHT = "x + k + b + C(g)"
NOISE = dp.SeededNoise(2)
PRIVATE = dp.Central(2.0, 1e-6)


@pytest.fixture(scope="module")
def fits():
    return {
        "logit": dp.logit(f"y ~ {RIGHT}", TABLE, SCHEMA).fit(PRIVATE, noise=NOISE),
        "poisson": dp.glm(f"c ~ {RIGHT}", TABLE, SCHEMA, family="poisson").fit(
            PRIVATE, noise=NOISE
        ),
    }


def witness(fit, kind, at, method, dummy, count):
    """statsmodels' formulas at our coefficients and their covariance."""
    X = fit.design.exog(NEW)
    model = kind(np.zeros(len(X)), X)
    params, keep = fit.params.to_numpy(), np.arange(X.shape[1]) != 0
    names = list(fit.params.index)
    at_rows = {"mean": X.mean(axis=0)[None], "median": np.median(X, axis=0)[None]}.get(at, X)
    zero_one = np.array([j for j, n in enumerate(names) if n[0] in "bC"]) if dummy else None
    counts = np.array([names.index("k")]) if count else None
    derivative = model._derivative_exog(
        params, at_rows, method, dummy_idx=zero_one, count_idx=counts
    )
    found = margeff_cov_with_se(
        model,
        params,
        at_rows,
        fit.cov_params().to_numpy(),
        at,
        model._derivative_exog,
        zero_one,
        counts,
        method,
        1,
    )
    effects = derivative if at == "all" else derivative.mean(axis=0)
    return effects[..., keep], np.atleast_1d(found[1])[keep]


@pytest.mark.parametrize(
    ("name", "kind", "at", "method", "dummy", "count"),
    [
        ("logit", Logit, "overall", "dydx", False, False),
        ("logit", Logit, "overall", "eyex", False, False),
        ("logit", Logit, "overall", "eydx", False, False),
        ("logit", Logit, "mean", "dydx", False, False),
        ("logit", Logit, "median", "dydx", False, False),
        ("poisson", Poisson, "median", "eyex", False, False),
        ("logit", Logit, "overall", "dydx", True, True),
        ("logit", Logit, "overall", "eydx", True, True),
        ("poisson", Poisson, "overall", "dydx", False, False),
        ("poisson", Poisson, "mean", "dyex", False, False),
        ("poisson", Poisson, "overall", "dydx", True, True),
    ],
)
def test_effects_and_their_errors_are_those_of_statsmodels(
    fits, name, kind, at, method, dummy, count
):
    found = fits[name].get_margeff(at, method, new=NEW, dummy=dummy, count=count)
    assert found.names == ("x", "k", "b", "g[T.v]", "g[T.w]")
    effects, se = witness(fits[name], kind, at, method, dummy, count)
    order = [*list(fits[name].params.index)[1:]]
    place = [order.index(n) for n in ("x", "k", "b", "C(g)[T.v]", "C(g)[T.w]")]
    if method[2:] == "ex":  # ours is at 1 for levels, theirs at the dummy's own value
        place = place[:2]
    if dummy:  # theirs compares a level with rows of which some are of the third one, too
        place = place[:3]
    np.testing.assert_allclose(found.margeff[: len(place)], effects[place], rtol=1e-6)
    np.testing.assert_allclose(found.margeff_se[: len(place)], se[place], rtol=1e-5)


def test_one_effect_goes_through_all_terms_of_a_column():
    """Witness: the derivative of averaged predictions, and of these in the coefficients."""
    model = dp.logit("y ~ x * C(g) + I(x**2) + np.log(k + 1)", TABLE, SCHEMA)
    fit = model.fit(PRIVATE, noise=NOISE)
    found = fit.get_margeff(new=NEW, dummy=True)
    assert found.names == ("x", "g[T.v]", "g[T.w]", "k")
    h = 1e-4
    inner = NEW.assign(x=NEW["x"].clip(h, 4 - h), k=NEW["k"].clip(h, 5 - h))

    def means(beta, table):
        return 1 / (1 + np.exp(-fit.design.exog(table) @ beta))

    def slope(beta, name):
        ends = [means(beta, inner.assign(**{name: inner[name] + s * h})) for s in (1, -1)]
        return (ends[0] - ends[1]).mean() / (2 * h)

    def jump(beta, level):
        return (means(beta, NEW.assign(g=level)) - means(beta, NEW.assign(g="u"))).mean()

    beta = fit.params.to_numpy()
    for at, what in ((0, lambda b: slope(b, "x")), (1, lambda b: jump(b, "v"))):
        assert found.margeff[at] == pytest.approx(what(beta), rel=1e-3)
        eye = 1e-5 * np.eye(beta.size)
        gradient = np.array([(what(beta + e) - what(beta - e)) / 2e-5 for e in eye])
        variance = gradient @ fit.cov_params().to_numpy() @ gradient
        assert found.margeff_se[at] == pytest.approx(np.sqrt(variance), rel=1e-3)


def test_of_a_linear_model_they_are_the_coefficients():
    fit = dp.ols(f"y ~ {RIGHT}", TABLE, SCHEMA).fit(PRIVATE, noise=NOISE)
    found = fit.get_margeff(new=NEW)
    columns = ["x", "k", "b[T.True]" if "b[T.True]" in fit.params else "b"]
    columns += ["C(g)[T.v]", "C(g)[T.w]"]
    np.testing.assert_allclose(found.margeff, fit.params[columns], rtol=1e-7)
    np.testing.assert_allclose(found.margeff_se, fit.bse[columns], rtol=1e-6)


def test_columns_of_a_matrix_are_taken_one_by_one():
    X = np.column_stack([np.ones(N), TABLE["x"], TABLE["k"]])
    model = dp.Logit(TABLE["y"], X, {"exog": [(1, 1), (0, 4), (0, 5)]})
    fit = model.fit(PRIVATE, noise=NOISE)
    found = fit.get_margeff(new=X[:50])
    p = fit.predict(X[:50])
    np.testing.assert_allclose(found.margeff, (p * (1 - p)).mean() * fit.params[1:], rtol=1e-8)


def test_the_page_and_the_frame(fits):
    found = fits["logit"].get_margeff(new=NEW)
    frame = found.summary_frame(0.1)
    assert list(frame.columns[:2]) == ["dy/dx", "Std. Err."]
    z = frame["dy/dx"] / frame["Std. Err."]
    np.testing.assert_allclose(frame["z"], z)
    np.testing.assert_allclose(
        frame["Conf. Int. Hi."] - frame["dy/dx"], 1.6448536 * frame["Std. Err."], rtol=1e-6
    )
    assert "NOT private" in found.summary()
    every = fits["logit"].get_margeff("all", new=NEW)
    assert every.margeff.shape == every.margeff_se.shape == (200, 5)
    np.testing.assert_allclose(every.margeff.mean(axis=0), found.margeff)


def test_what_is_refused(fits):
    fit = fits["logit"]
    with pytest.raises(PrivateQuantityError, match="Give rows that are public"):
        fit.get_margeff()
    with pytest.raises(OptionError, match="at is one of"):
        fit.get_margeff("zero", new=NEW)
    with pytest.raises(OptionError, match="has no logarithm"):
        fit.get_margeff(method="eyex", new=NEW, dummy=True)
    with pytest.raises(DataError, match="miss a value"):
        fit.get_margeff(new=NEW.assign(x=np.nan))
    with pytest.warns(ExtrapolationWarning, match="200 values of 'x'"):
        fit.get_margeff(new=NEW.assign(x=9.0))
