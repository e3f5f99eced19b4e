"""Bad input gets a clear error before any budget is spent; merely wrong values are mapped."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpstats as dp
from dpstats.errors import (
    BudgetError,
    DataError,
    DPStatsError,
    FormulaError,
    LedgerError,
    OptionError,
    SchemaError,
    TrustError,
)

SCHEMA = dp.Schema(
    y=dp.Numeric(-5, 5), x=dp.Numeric(0, 10), g=dp.Categorical(["a", "b", "c"]), k=dp.Numeric(0, 1)
)
PRIVACY = dp.Central(1.0, 1e-7)


def frame(n: int = 2000) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "y": rng.normal(size=n),
            "x": rng.uniform(0, 10, n),
            "g": rng.choice(list("abc"), n),
            "k": rng.integers(0, 2, n),
        }
    )


def spoiled(**columns: Any) -> pd.DataFrame:
    return frame().assign(**columns)


def duplicated() -> pd.DataFrame:
    df = frame()
    return pd.concat([df, df[["x"]]], axis=1)


@pytest.mark.parametrize("name", ["income tax", "a+b", "~", "class", "größe", "1st"])
def test_a_column_of_any_name_is_described_as_it_is_and_in_backticks(name: str) -> None:
    df = frame().rename(columns={"x": name, "g": "my group"})
    schema = dp.Schema({name: dp.Numeric(0, 10), "my group": dp.Categorical(["a", "b"])})
    exact, truth = dp.Central(1e6, 1e-6), df[name].mean()
    for model, place in [
        (dp.mean(name, df, schema), 0),
        (dp.mean(f"`{name}`" if name != "~" else name, df, schema), 0),
        (dp.quantile(name, df, schema, q=0.5), 0),
        (dp.variance(name, df, schema), 0),
        (dp.histogram(name, df, schema), None),
    ]:
        found = model.fit(exact, noise=dp.SeededNoise(1)).params
        assert place is None or found.iloc[place] == pytest.approx(truth, rel=0.1)
    groups = df[df["my group"] != "c"].groupby("my group")[name].mean()
    found = dp.mean(name, df, schema, by="my group").fit(exact, noise=dp.SeededNoise(1)).params
    np.testing.assert_allclose(found, groups, rtol=0.01)
    if name != "~":
        for formula in (f"`{name}` ~ `my group`", f"Q('{name}') ~ Q(\"my group\")"):
            found = dp.ttest(formula, df, schema).fit(exact, noise=dp.SeededNoise(1))
            assert found.params.iloc[0] == pytest.approx(groups["b"] - groups["a"], abs=0.01)


def test_one_column_is_no_table() -> None:
    import polars as pl

    y = frame()["y"]
    for column in (y, pl.Series("y", y.to_numpy()), pd.Index(y), y.to_numpy()):
        with pytest.raises(DataError, match="is no table: pass a pandas"):
            dp.mean("y", column, SCHEMA).fit(PRIVACY)


@pytest.mark.parametrize("name", ["C", "log", "I", "np"])
def test_a_column_that_hides_a_function_of_formulas_is_named(name: str) -> None:
    df = frame().assign(**{name: frame()["g"]})
    schema = dp.Schema(SCHEMA, **{name: SCHEMA["g"]})
    assert len(dp.ols(f"y ~ x + {name}", df, schema).fit(PRIVACY).params) == 4
    ledger = dp.Ledger.memory(9.0, 1e-3)
    call = {"C": "C(g)", "log": "log(x + 1)", "I": "I(x**2)", "np": "np.sqrt(x)"}
    with pytest.raises(FormulaError, match=f"column '{name}' has the name of a function"):
        dp.ols(f"y ~ {name} + {call[name]}", df, schema).fit(dp.LabelOnly(1.0), ledger)
    with pytest.raises(FormulaError, match=f"column '{name}' has the name of a function"):
        dp.ols(f"y ~ {name} + {call[name]}", df, schema).fit(PRIVACY, ledger)
    assert ledger.spent == (0.0, 0.0)


FORMULAS = [  # that may be used on public covariates
    ("y ~ I(x - x.mean())", FormulaError, "x"),
    ("y ~ np.cumsum(x)", FormulaError, "cumsum"),
    ("y ~ x.rank()", FormulaError, "rank"),
    ("y ~ lag(x)", FormulaError, "lag"),
    ("y ~ x - x.mean()", FormulaError, "mean"),
    ("y ~ poly(x, 0)", FormulaError, r"makes no column.*Write poly\(x, degree\)"),
    ("y ~ poly(x, 1.5)", FormulaError, r"Write poly\(x, degree\), with a whole number"),
    ("y ~ bs(x, knots=5)", FormulaError, r"Write bs\(x, df=6\)"),
    ("y ~ cr(x, df=2)", FormulaError, r"Write cr\(x, df=4\), with a whole number from 3 on"),
]
MISTAKEN = [  # that may not be used on anything
    ("y ~ x + age", FormulaError, "age"),
    ("~ x", FormulaError, "response"),
    ("y ~ x - age", FormulaError, "age"),
    ("y ~ . - x:age", FormulaError, "age"),
    ("y ~ x +", FormulaError, "cannot be parsed"),
    ("g ~ x", DPStatsError, "g"),
    ("y ~ x + np.exq(x)", FormulaError, "exq"),
    ("y ~ x + logg(x)", FormulaError, "logg"),
    ("y ~ x + i(g)", FormulaError, r"i\(\) for terms. Write C\(g\), or C\(g\):x"),
    ("yy ~ x", FormulaError, "yy.*schema does not declare"),
    ("y ~ C(grup)", FormulaError, "grup"),
]
TABLES = [
    (frame(0), DataError, "no rows"),
    (frame().drop(columns="x"), DataError, "x"),
    (duplicated(), DataError, "x"),
    (spoiled(x=pd.Timestamp("2020-01-01")), DataError, "x"),
    (spoiled(y=["a", "b"] * 1000), DataError, "y"),
]
PRIVACIES = [
    (lambda: dp.Central(0.0, 1e-7), "epsilon"),
    (lambda: dp.Central(-1.0, 1e-7), "epsilon"),
    (lambda: dp.Central(math.inf, 1e-7), "epsilon"),
    (lambda: dp.Central(math.nan, 1e-7), "epsilon"),
    (lambda: dp.Central(5e-324, 1e-7), "1e-100"),
    (lambda: dp.Central(1.0, -1e-9), "delta"),
    (lambda: dp.Central(1.0, 1.0), "delta"),
    (lambda: dp.Central(1.0, math.nan), "delta"),
    (lambda: dp.Central(1.0, 1e-7, neighbors="edge"), "neighbors"),
    (lambda: dp.Central(1.0, 1e-7, rows=0), "rows"),
]


@pytest.mark.parametrize(("formula", "error", "says"), MISTAKEN)
def test_a_mistake_in_a_formula_is_refused_when_the_model_is_made(formula, error, says) -> None:
    with pytest.raises(error, match=says):
        dp.ols(formula, schema=SCHEMA)
    with pytest.raises(error, match=says):
        dp.ols(formula, data=frame(), schema=SCHEMA)


def test_an_error_that_quotes_a_long_text_shows_what_is_wrong_and_what_to_do() -> None:
    with pytest.raises(FormulaError) as raised:
        dp.ols(f"y ~ {'x' * 15_000}", schema=SCHEMA)
    said = str(raised.value)
    assert len(said) < 2_100
    assert said.startswith("Term 'xxx")
    assert said.endswith("write its value into the formula.")
    assert str(pickle.loads(pickle.dumps(raised.value))) == said


def test_what_statsmodels_has_and_this_release_has_not_says_so() -> None:
    with pytest.raises(AttributeError, match=r"mixedlm is not in this release: .*unit="):
        dp.mixedlm  # noqa: B018
    for name in ("OrderedModel", "ivreg", "kruskal", "anova", "chi2", "sum"):
        with pytest.raises(AttributeError, match=f"{name} is not in this release: "):
            getattr(dp, name)
    with pytest.raises(AttributeError, match="has no attribute 'olz'"):
        dp.olz  # noqa: B018
    with pytest.raises(OptionError, match="'tweedie' is not in this release"):
        dp.glm("y ~ x", schema=SCHEMA, family="tweedie")


@pytest.mark.parametrize(("formula", "error", "says"), FORMULAS)
def test_a_formula_that_cannot_be_private_is_refused(formula, error, says) -> None:
    ledger = dp.Ledger.memory(3.0, 1e-6)
    with pytest.raises(error, match=says):
        dp.ols(formula, schema=SCHEMA)
    model = dp.ols(formula, data=frame(), schema=SCHEMA)  # may be meant for public covariates
    with pytest.raises(error, match=says):
        model.plan(PRIVACY)
    with pytest.raises(error, match=says):
        model.fit(PRIVACY, ledger=ledger)
    assert ledger.entries == ()


@pytest.mark.parametrize(("table", "error", "says"), TABLES)
def test_a_table_that_cannot_be_fitted_spends_nothing(table, error, says) -> None:
    ledger = dp.Ledger.memory(3.0, 1e-6)
    with pytest.raises(error, match=says):
        dp.ols("y ~ x + g", data=table, schema=SCHEMA).fit(PRIVACY, ledger=ledger)
    assert ledger.entries == ()


@pytest.mark.parametrize(("make", "says"), PRIVACIES)
def test_an_impossible_guarantee_is_refused(make, says) -> None:
    with pytest.raises(OptionError, match=says):
        make()


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64, int])
def test_numbers_of_numpy_are_numbers(kind: Any) -> None:
    for made in (dp.Central(kind(2), 1e-6), dp.Local(kind(2)), dp.LabelOnly(kind(2), kind(0))):
        assert made.epsilon == 2
        assert isinstance(made.epsilon, (int, float))
        assert pickle.loads(pickle.dumps(made)) == made
    federated = dp.Federated(kind(2), 1e-6, target="north")
    assert isinstance(federated.epsilon, (int, float))


def test_a_ledger_is_opened_by_name() -> None:
    with pytest.raises(LedgerError, match=r"Ledger\.open\(path.*Ledger\.memory\("):
        dp.Ledger(1.0, 1e-6)  # type: ignore[arg-type]


def test_a_factor_whose_name_is_no_word_is_quoted() -> None:
    schema = dp.Schema({"my group": dp.Categorical(["a", "b"])}, y=dp.Numeric(0, 9))
    for term in ("Q('my group')", "`my group`", "C(Q('my group'))", "C(`my group`)"):
        assert len(dp.ols(f"y ~ {term}", schema=schema, n=1_000).plan(PRIVACY).names) == 2


def test_results_are_not_saved_where_no_folder_is(tmp_path: Any) -> None:
    fit = dp.mean("y", frame(), SCHEMA).fit(PRIVACY)
    with pytest.raises(OptionError, match=r"there is no folder .*nowhere; make it first"):
        fit.save(tmp_path / "nowhere" / "fit.json")


def test_a_large_delta_must_be_meant() -> None:
    ledger = dp.Ledger.memory(3.0, 0.1)
    model = dp.ols("y ~ x", data=frame(), schema=SCHEMA)
    with pytest.raises(OptionError, match="large_delta=True"):
        model.fit(dp.Central(1.0, 0.01), ledger=ledger)
    assert ledger.entries == ()
    fit = model.fit(dp.Central(1.0, 0.01, large_delta=True), ledger=ledger)
    assert "whole record" in " ".join(str(fit.summary()).split())


@pytest.mark.parametrize(("model", "formula"), [(dp.mean, "y"), (dp.ols, "y ~ x")])
def test_one_table_is_no_federation(model, formula) -> None:
    with pytest.raises(TrustError, match="of several sites"):
        model(formula, data=frame(), schema=SCHEMA).plan(dp.Federated(1.0, 1e-7, target="a"))


def test_counts_on_devices_are_refused() -> None:
    schema = dp.Schema(x=dp.Numeric(-1, 1), y=dp.Numeric(0, 9))
    with pytest.raises(TrustError, match="local"):
        dp.glm("y ~ x", schema=schema, family="poisson", n=100).plan(dp.Local(1.0))


def test_unknown_methods_and_options_are_listed() -> None:
    model = dp.ols("y ~ x", data=frame(), schema=SCHEMA)
    with pytest.raises(OptionError, match="adassp"):
        model.plan(PRIVACY, method="lasso")
    with pytest.raises(OptionError, match="sparsity"):
        model.plan(PRIVACY, sparsity=3)


def test_a_refused_charge_names_what_is_missing() -> None:
    ledger = dp.Ledger.memory(0.5, 1e-6)
    with pytest.raises(BudgetError, match=r"[Rr]emaining") as caught:
        dp.ols("y ~ x", data=frame(), schema=SCHEMA).fit(PRIVACY, ledger=ledger)
    assert caught.value.requested[0] == pytest.approx(1.0, rel=1e-2)
    assert ledger.entries == ()


def test_another_ceiling_is_refused(tmp_path) -> None:
    dp.Ledger.open(tmp_path / "a.ledger", epsilon=3.0, delta=1e-6)
    with pytest.raises(LedgerError, match="3"):
        dp.Ledger.open(tmp_path / "a.ledger", epsilon=4.0, delta=1e-6)


def test_gaussian_methods_say_that_they_need_delta() -> None:
    with pytest.raises(DPStatsError, match="delta"):
        dp.ols("y ~ x", data=frame(), schema=SCHEMA).plan(dp.Central(1.0))


def test_a_hopeless_size_is_warned_with_the_n_that_would_do() -> None:
    plan = dp.ols("y ~ x + g", schema=SCHEMA, n=60).plan(dp.Central(0.1, 1e-7))
    assert any("60" in w and "n" in w for w in plan.warnings)
    assert dp.ols("y ~ x + g", schema=SCHEMA, n=200_000).plan(PRIVACY).warnings == ()


def test_a_private_row_count_needs_a_public_guess() -> None:
    model = dp.ols("y ~ x", data=frame(), schema=SCHEMA)
    with pytest.raises(OptionError, match="rows=20_000"):
        model.plan(dp.Central(1.0, 1e-7, neighbors="add-remove"))
    assert model.plan(dp.Central(1.0, 1e-7, neighbors="add-remove", rows=1500)).n == 1500


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e308, -1e308])
@pytest.mark.parametrize("column", ["x", "y"])
def test_wrong_values_are_mapped_not_raised(column: str, bad: float) -> None:
    df = frame()
    df.loc[:40, column] = bad
    fit = dp.ols("y ~ x + g", data=df, schema=SCHEMA).fit(PRIVACY, noise=dp.SeededNoise(1))
    assert np.isfinite(fit.params).all()
    assert np.isfinite(fit.bse).all()


def test_unseen_levels_are_mapped_not_raised() -> None:
    df = frame()
    df.loc[::7, "g"] = "zebra"
    fit = dp.ols("y ~ x + g", data=df, schema=SCHEMA).fit(PRIVACY, noise=dp.SeededNoise(1))
    assert "zebra" not in str(fit.summary())


@pytest.mark.parametrize(
    ("bounds", "says"),
    [
        ({"endog": (-1, 1)}, "exog"),
        ({"endog": (-1, 1), "exog": (-np.inf, 1)}, "finite|infinite|bound"),
        ({"endog": (1, -1), "exog": (-1, 1)}, "lower|bound"),
        ({"endog": (-1, 1), "exog": [(-1, 1)] * 3}, "2|3"),
    ],
)
def test_array_bounds_are_checked(bounds, says) -> None:
    with pytest.raises(DPStatsError, match=says):
        dp.OLS(np.zeros(50), np.zeros((50, 2)), bounds=bounds).plan(PRIVACY)


def test_arrays_of_the_wrong_shape_are_refused() -> None:
    with pytest.raises(DataError, match="shape"):
        dp.OLS(np.zeros(50), np.zeros(50), bounds={"endog": (-1, 1), "exog": (-1, 1)})


def test_lists_of_unequal_lengths_are_no_array() -> None:
    with pytest.raises(DataError, match="no array"):
        dp.OLS(np.zeros(2), [[1.0, 2.0], [3.0]], bounds={"endog": (-1, 1), "exog": (-1, 1)})


@pytest.mark.parametrize("place", [77, -1])
def test_a_sparse_matrix_with_broken_indices_spends_nothing(place: int) -> None:
    from scipy.sparse import csr_array

    x, ledger = csr_array(np.ones((500, 4))), dp.Ledger.memory(3.0, 1e-4)
    x.indices[3] = place
    model = dp.OLS(np.zeros(500), x, bounds={"endog": (-1, 1), "exog": (-1, 1)})
    with pytest.raises(DataError, match="index arrays that do not fit"):
        model.fit(PRIVACY, ledger=ledger)
    assert ledger.entries == ()


@pytest.mark.parametrize("method", [None, "omp", "peel-iht"])
def test_more_columns_than_there_are_cannot_be_asked_for(method: str | None) -> None:
    ledger = dp.Ledger.memory(3.0, 1e-6)
    model = dp.ols("y ~ x + k", data=frame(), schema=SCHEMA)
    with pytest.raises(OptionError, match="from 1 to 2"):
        model.fit(PRIVACY, ledger=ledger, sparsity=3, method=method)
    assert ledger.entries == ()


@pytest.mark.parametrize("family", ["gaussian", "binomial"])
def test_an_exposure_needs_a_log_link(family: str) -> None:
    schema = dp.Schema(y=dp.Numeric(0, 1), x=dp.Numeric(1, 10), k=dp.Numeric(0, 1))
    with pytest.raises(OptionError, match=r"log link only.*offset='np.log\(x\)'"):
        dp.glm("y ~ k", data=frame(), schema=schema, family=family, exposure="x")


@pytest.mark.parametrize("n", [100, 10**6])
def test_n_cannot_contradict_the_table(n: int) -> None:
    ledger = dp.Ledger.memory(3.0, 1e-2)
    model = dp.ols("y ~ x", data=frame(), schema=SCHEMA, n=n)
    with pytest.raises(OptionError, match=f"n={n:,} and a table of 2,000 rows"):
        model.fit(dp.Central(1.0, 0.005), ledger=ledger)
    assert ledger.entries == ()
    assert dp.ols("y ~ x", data=frame(), schema=SCHEMA, n=2000).plan(PRIVACY).n == 2000


@pytest.mark.parametrize("n", [0, -5, 2.5, "9", True])
def test_a_row_count_is_a_whole_number(n: Any) -> None:
    with pytest.raises(OptionError, match="whole number of rows"):
        dp.ols("y ~ x", schema=SCHEMA, n=n)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"privacy": 1.0}, "guarantee is needed, and this is a float"),
        ({"privacy": None}, r"guarantee is needed, and none was given.*dp.Central\("),
        ({"noise": 7}, "SeededNoise"),
        ({"ledger": "data.ledger"}, "Ledger.open"),
    ],
)
def test_what_is_no_guarantee_noise_or_ledger_spends_nothing(asked: dict, says: str) -> None:
    ledger = dp.Ledger.memory(3.0, 1e-6)
    with pytest.raises(OptionError, match=says):
        dp.ols("y ~ x", data=frame(), schema=SCHEMA).fit(
            **{"privacy": PRIVACY, "ledger": ledger} | asked
        )
    assert ledger.entries == ()
    with pytest.raises(OptionError, match=r"dp.Central"):
        dp.private_range("y", frame(), 1.0, ledger)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["privacy", "ledger", "noise"])
def test_a_table_in_the_wrong_place_is_not_quoted(name: str) -> None:
    canary = spoiled(x=4.321987)
    model = dp.ols("y ~ x", data=canary, schema=SCHEMA)
    with pytest.raises(OptionError, match="DataFrame") as told:
        model.fit(**{"privacy": PRIVACY, name: canary})
    assert "4.321987" not in str(told.value)
    with pytest.raises(OptionError, match="DataFrame") as told:
        model.plan(canary if name == "privacy" else PRIVACY, sparsity=canary)
    assert "4.321987" not in str(told.value)
    with pytest.raises(OptionError, match="DataFrame") as told:
        dp.ols("y ~ x", data=canary, schema=SCHEMA, n=canary)  # type: ignore[arg-type]
    assert "4.321987" not in str(told.value)
    with pytest.raises(OptionError) as told:
        dp.private_range("y", canary, canary)  # type: ignore[arg-type]
    assert "4.321987" not in str(told.value)


def test_infinite_declarations_are_named() -> None:
    with pytest.raises(SchemaError, match="finite"):
        dp.Categorical([math.inf, 1])
    with pytest.raises(SchemaError, match="finite"):
        dp.Numeric(0, 10**400)
    with pytest.raises(SchemaError, match="'y'"):
        dp.OLS(np.zeros(9), np.zeros((9, 1)), bounds={"endog": (-5, math.inf), "exog": (0, 1)})


def test_a_model_without_a_table_plans_but_does_not_fit() -> None:
    model = dp.ols("y ~ x", schema=SCHEMA, n=5000)
    assert model.plan(PRIVACY).n == 5000
    with pytest.raises(DataError, match="data="):
        model.fit(PRIVACY)


def test_no_schema_is_an_error_that_says_how_to_start() -> None:
    with pytest.raises(SchemaError, match="template"):
        dp.ols("y ~ x", data=frame())
