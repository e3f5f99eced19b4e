"""The front door leads each model to its family, its method, and its known terms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import statsmodels.api as sm

import dpstats as dp
from dpstats.design import DeclaredDesign
from dpstats.errors import DataError, DPStatsError, OptionError, SchemaError
from dpstats.estimators import ESTIMATORS, registry
from dpstats.estimators.entries import MethodEntry
from dpstats.families import BINOMIAL, GAUSSIAN, POISSON, Family

SCHEMA = dp.Schema(
    y=dp.Numeric(-5, 5),
    visits=dp.Numeric(0, 30),
    yes=dp.Categorical(["no", "yes"]),
    x=dp.Numeric(0, 10),
    years=dp.Numeric(0.5, 4),
)
PRIVACY = dp.Central(1.0, 1e-7)


def wide(d: int, n: int = 10_000, **options: Any) -> dp.models.model.Model:
    """A planned-only model of d columns."""
    schema = dp.Schema({f"x{j}": dp.Numeric(-1, 1) for j in range(d)}, y=dp.Numeric(-1, 1))
    return dp.ols("y ~ . - 1", schema=schema, n=n, **options)


# -- families ------------------------------------------------------------------------------------

FAMILIES = {
    "gaussian": (dict(family="gaussian"), "y", "ols", GAUSSIAN),
    "default": ({}, "y", "ols", GAUSSIAN),
    "binomial": (dict(family="binomial"), "yes", "logit", BINOMIAL),
    "poisson": (dict(family="poisson"), "visits", "glm", POISSON),
    "link": (dict(family="poisson", link="identity"), "visits", "glm", ("poisson", "identity")),
    "log": (dict(family="gaussian", link="log"), "y", "glm", ("gaussian", "log")),
    "statsmodels": (dict(family=sm.families.Poisson()), "visits", "glm", POISSON),
    "statsmodels binomial": (dict(family=sm.families.Binomial()), "yes", "logit", BINOMIAL),
}


@pytest.mark.parametrize(("options", "y", "kind", "family"), FAMILIES.values(), ids=FAMILIES)
def test_a_family_leads_to_its_model(options, y, kind, family) -> None:
    model = dp.glm(f"{y} ~ x", schema=SCHEMA, n=100, **options)
    assert model.kind == kind
    assert model.design.family == (Family(*family) if isinstance(family, tuple) else family)
    bounds = {"endog": (0, 1), "exog": (-1, 1)}
    arrays = dp.GLM(np.zeros(9), np.zeros((9, 2)), bounds, **options)
    assert (arrays.kind, arrays.design.family) == (kind, model.design.family)


def test_logit_is_the_binomial_model() -> None:
    by_formula = dp.logit("yes ~ x", schema=SCHEMA, n=100, offset="np.log(years)")
    same = dp.glm("yes ~ x", schema=SCHEMA, n=100, family="binomial", offset="np.log(years)")
    assert (by_formula.kind, by_formula.design) == ("logit", same.design)
    by_arrays = dp.Logit(np.zeros(9), np.zeros((9, 2)), bounds={"exog": (-1, 1)})
    assert (by_arrays.kind, by_arrays.design.family) == ("logit", BINOMIAL)
    assert (by_arrays.design.endog.lower, by_arrays.design.endog.upper) == (0, 1)


def test_named_models_are_those_of_their_families() -> None:
    counts = dp.poisson("visits ~ x", schema=SCHEMA, n=100, exposure="years")
    same = dp.glm("visits ~ x", schema=SCHEMA, n=100, family="poisson", exposure="years")
    assert (counts.kind, counts.design) == ("glm", same.design)
    probit = dp.probit("yes ~ x", schema=SCHEMA, n=100)
    same = dp.glm("yes ~ x", schema=SCHEMA, n=100, family="binomial", link="probit")
    assert (probit.kind, probit.design) == ("glm", same.design)
    bounds = {"exog": (-1, 1)}
    probit = dp.Probit(np.zeros(9), np.zeros((9, 2)), bounds)
    assert probit.design.family == Family("binomial", "probit")
    counts = dp.Poisson(np.zeros(9), np.zeros((9, 2)), bounds | {"endog": (0, 9)})
    assert counts.design.family == POISSON


@pytest.mark.parametrize(
    "options",
    [
        {"family": "binomial", "link": "probit"},
        {"family": "binomial", "link": "cloglog"},
        {"family": "negativebinomial", "alpha": 0.5},
        {"family": "gamma"},
    ],
    ids=lambda options: options.get("link", options["family"]),
)
def test_families_of_the_default_method_alone_are_refused_elsewhere(options) -> None:
    rng = np.random.default_rng(0)
    response = "yes" if options["family"] == "binomial" else "visits"
    df = pd.DataFrame({"x": rng.uniform(0, 1, 500), "visits": 1.0, "yes": "no"})
    model = dp.glm(f"{response} ~ x", df, SCHEMA, **options)
    assert model.plan(dp.Central(1.0, 1e-6)).method == "newton"
    ledger = dp.Ledger.memory(9.0, 1e-3)
    for privacy in (dp.LabelOnly(1.0), dp.LabelOnly(1.0, 1e-6, curator=True)):
        with pytest.raises(OptionError, match=r"Central\(...\) fits it"):
            model.fit(privacy, ledger)
    assert not ledger.entries


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: dp.glm("y ~ x", schema=SCHEMA, family="tweedie"), OptionError, "poisson"),
        (lambda: dp.glm("y ~ x", schema=SCHEMA, family="gamma"), SchemaError, "0 <= lower"),
        (
            lambda: dp.glm("visits ~ x", schema=SCHEMA, family="negativebinomial"),
            OptionError,
            "alpha=0.5",
        ),
        (lambda: dp.poisson("y ~ x", schema=SCHEMA), SchemaError, r"Numeric\(0,"),
        (lambda: dp.probit("visits ~ x", schema=SCHEMA), SchemaError, "two levels"),
        (lambda: dp.glm("y ~ x", schema=SCHEMA, family=sm.families.Gamma()), OptionError, "gamma"),
        (lambda: dp.glm("y ~ x", schema=SCHEMA, family="poisson"), SchemaError, r"Numeric\(0,"),
        (lambda: dp.logit("visits ~ x", schema=SCHEMA), SchemaError, "two levels"),
        (
            lambda: dp.glm("visits ~ x", schema=SCHEMA, family="poisson", exposure="x"),
            SchemaError,
            "above 0",
        ),
        (
            lambda: dp.Logit(np.zeros(9), np.zeros((9, 1)), {"endog": (0, 2), "exog": (0, 1)}),
            SchemaError,
            "0 and 2",
        ),
        (
            lambda: dp.GLM(
                np.zeros(9),
                np.zeros((9, 1)),
                {"endog": (0, 2), "exog": (0, 1)},
                family="poisson",
                exposure=np.ones(9),
            ),
            OptionError,
            "'exposure' are needed",
        ),
        (lambda: dp.OLS(np.zeros(9), np.zeros((9, 1)), bounds=(0, 1)), OptionError, "'exog'"),
    ],
)
def test_a_model_that_cannot_be_is_refused_by_what_to_declare(make, error, says) -> None:
    with pytest.raises(error, match=says):
        make()


def test_known_terms_of_arrays_reach_the_rows() -> None:
    bounds = {"endog": (0, 9), "exog": (0, 1), "offset": (-1, 1), "exposure": (1, 4)}
    model = dp.GLM(
        np.ones(9),
        np.ones((9, 1)),
        bounds,
        family="poisson",
        offset=np.full(9, 0.5),
        exposure=np.full(9, 2.0),
    )
    block = model.design.source(model._data).block(0, 9)
    np.testing.assert_allclose(block.offset, 0.5 + np.log(2))


def test_a_gaussian_offset_is_fitted_by_the_default_method() -> None:
    rng = np.random.default_rng(0)
    df = pd.DataFrame({"x": rng.uniform(0, 10, 5000), "years": rng.uniform(0.5, 4, 5000)})
    df["y"] = df.years + 0.2 * df.x - 1 + rng.normal(scale=0.5, size=5000)
    model = dp.glm("y ~ x", data=df, schema=SCHEMA, offset="years")
    fit = model.fit(dp.Central(50.0, 1e-7), noise=dp.SeededNoise(1))
    np.testing.assert_allclose(fit.params, [-1, 0.2], atol=0.1)


@pytest.mark.parametrize(
    "privacy",
    [
        dp.Central(5.0, 1e-6),
        dp.LabelOnly(5.0),
        dp.LabelOnly(5.0, 1e-6, curator=True),
        dp.Local(5.0),
    ],
    ids=["central", "label-only", "label-only curator", "local"],
)
def test_a_ledger_records_whether_the_noise_of_a_fit_was_seeded(privacy) -> None:
    rng, ledger = np.random.default_rng(0), dp.Ledger.memory(50.0, 1e-4)
    df = pd.DataFrame(rng.uniform(0, 1, (2000, 2)), columns=["x", "y"])
    model = dp.ols("y ~ x", df, dp.Schema(x=dp.Numeric(0, 1), y=dp.Numeric(0, 1)))
    for noise in (None, dp.SeededNoise(1)):
        model.fit(privacy, ledger, noise=noise)
    assert [entry.reproducible for entry in ledger.entries] == [False, True]


# -- sparsity ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recorder:
    """A method that plans an error and says what it was asked."""

    name: str
    model: str = "ols"
    sparse: bool = False
    error: float = 0.5
    theory: ClassVar[dict[str, Any]] = {"central": None}
    options: ClassVar[dict[str, str]] = {}
    otherwise: ClassVar[str] = ""

    def plan(self, design: Any, privacy: Any, n: int, **options: Any) -> Any:
        return Asked(self.name, options, self.error)


class Asked(tuple):
    """The name of a method and its options, with the error that it plans."""

    predicted_error: float

    def __new__(cls, name: str, options: Any, error: float) -> Any:
        made = super().__new__(cls, (name, options))
        made.predicted_error = error
        return made


@pytest.fixture
def made_up(monkeypatch) -> None:
    rows = (Recorder("dense"), Recorder("other"), Recorder("select", sparse=True))
    monkeypatch.setattr(
        registry, "ENTRIES", tuple(map(MethodEntry.of, (*rows, Recorder("logit", "logit"))))
    )


@pytest.mark.parametrize(
    ("sparsity", "passed"),
    [(3, 3), (np.int64(1), 1), (20, 20), ((5, 10), (5, 10)), ([2], (2,)), (range(1, 3), (1, 2))],
)
@pytest.mark.usefixtures("made_up")
def test_sparsity_asks_for_a_method_that_selects(sparsity, passed) -> None:
    assert wide(20).plan(PRIVACY, sparsity=sparsity) == ("select", {"sparsity": passed})


BAD = [0, -1, 21, True, 2.0, "3", (), (1, 0), (3, True), [[3]], np.array([1, 2]), (1, 21)]


@pytest.mark.parametrize("sparsity", BAD, ids=str)
def test_an_impossible_sparsity_spends_nothing(sparsity) -> None:
    frame = pd.DataFrame(np.zeros((50, 21)), columns=[*(f"x{j}" for j in range(20)), "y"])
    ledger = dp.Ledger.memory(3.0, 1e-6)
    with pytest.raises(OptionError, match=r"sparsity.* from 1 to 20"):
        wide(20, data=frame).fit(PRIVACY, ledger=ledger, sparsity=sparsity)
    assert ledger.entries == ()


CHOSEN = {  # columns, planned errors of all and of a selection -> default
    (50, 9.0, 0.2): "dense",  # few columns are all fitted
    (51, 9.0, 0.2): "select",
    (51, 0.2, 0.3): "dense",
    (51, 0.3, 0.2): "select",
    (51, 0.09, 0.01): "dense",  # with standard errors, and good enough
    (51, 9.0, 7.0): "select",  # both find nothing: 1 is the error of nothing
    (51, np.inf, np.inf): "select",
    (1001, 0.01, 0.02): "select",  # many columns are never all fitted
}


@pytest.mark.parametrize(("case", "method"), CHOSEN.items(), ids=str)
def test_the_default_is_what_plans_the_smaller_error(case, method, monkeypatch) -> None:
    columns, dense, select = case
    rows = (
        Recorder("dense", error=dense),
        Recorder("other", error=0.0),
        Recorder("select", sparse=True, error=select),
    )
    monkeypatch.setattr(registry, "ENTRIES", tuple(map(MethodEntry.of, rows)))
    assert wide(columns, n=5_000).plan(PRIVACY) == (method, {})
    assert wide(columns, n=5_000).plan(PRIVACY, method="other") == ("other", {})


def test_a_wide_design_is_fitted_densely_where_nothing_selects(monkeypatch) -> None:
    monkeypatch.setattr(registry, "ENTRIES", (MethodEntry.of(Recorder("dense")),))
    assert wide(51, n=100).plan(PRIVACY) == ("dense", {})


@pytest.mark.usefixtures("made_up")
def test_a_method_that_selects_nothing_refuses_a_sparsity() -> None:
    with pytest.raises(OptionError, match=r"'other'.*'select'"):
        wide(20).plan(PRIVACY, method="other", sparsity=3)


def test_every_method_says_whether_it_selects() -> None:
    assert all(isinstance(method.sparse, bool) for method in ESTIMATORS)


def test_bad_arrays_are_refused_for_every_family() -> None:
    for make in (dp.Logit, dp.GLM):
        with pytest.raises(DataError, match="shape"):
            make(np.zeros(50), np.zeros(50), bounds={"endog": (0, 1), "exog": (-1, 1)})
        with pytest.raises(DPStatsError):
            make(np.zeros(50), np.zeros((50, 2)), bounds={"endog": (0, 1)})


# -- sparse matrices -----------------------------------------------------------------------------


def counts(n: int = 3000, d: int = 60) -> tuple[np.ndarray, sp.csr_array]:
    """Rows with a strong signal in two columns, an all-zero column and a duplicated one."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, (n, d)) * (rng.uniform(size=(n, d)) < 0.3)
    X[:, 5], X[:, 7] = 0.0, X[:, 8]
    y = 4 * X[:, 2] - 3 * X[:, 30] + rng.normal(scale=0.2, size=n)
    return y, sp.csr_array(X)


@pytest.mark.parametrize("kind", ["OLS", "Logit"])
def test_a_sparse_matrix_is_fitted_as_the_array_it_stands_for(kind, monkeypatch) -> None:
    """Every sum is exact, so the same noise gives the same bits.

    But for what is asked of values by themselves, which are read of dense rows alone.
    """
    monkeypatch.setattr(DeclaredDesign, "by_value", False)
    y, X = counts()
    bounds = {"endog": (-8, 8), "exog": (-1, 1)}
    if kind == "Logit":
        y, bounds = (y > 0).astype(float), {"exog": (-1, 1)}
    fits = []
    for exog in (X, X.toarray()):
        model = getattr(dp, kind)(y, exog, bounds=bounds)
        fit = model.fit(dp.Central(8.0, 1e-6), sparsity=2, noise=dp.SeededNoise(5))
        fits.append(fit)
    np.testing.assert_array_equal(fits[0].params, fits[1].params)
    assert set(np.flatnonzero(fits[0].params)) == {2, 30}
    np.testing.assert_array_equal(fits[0].predict(X), fits[1].predict(X.toarray()))


def test_a_sparse_matrix_with_an_intercept_predicts_like_an_array() -> None:
    y, X = counts()
    ones = sp.csr_array(np.ones((len(y), 1)))
    exog = sp.hstack([ones, X], format="csr")
    bounds = {"endog": (-8, 12), "exog": [(1, 1)] + [(-1, 1)] * X.shape[1]}
    model = dp.OLS(y + 5, exog, bounds=bounds)
    fit = model.fit(dp.Central(8.0, 1e-6), sparsity=3, noise=dp.SeededNoise(5))
    assert abs(fit.params["const"] - 5) < 0.5
    with pytest.raises(SchemaError, match="contain 0"):
        dp.OLS(y, exog, bounds={"endog": (-8, 8), "exog": (0.5, 1)})
