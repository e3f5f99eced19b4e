"""Designs of public covariates: any formula, fitted state for new rows, no private value used."""

from __future__ import annotations

import functools
import json
import re
import types

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from formulaic import model_matrix

from dpstats.design import PublicDesign, design_from_dict
from dpstats.errors import DataError, FormulaError, SchemaError
from dpstats.families import BINOMIAL, POISSON
from dpstats.schema import Numeric, Schema

N = 200
SCHEMA = Schema(y=Numeric(-3, 3, center=0, scale=1))
k, two = 2.5, 2


def square(values):
    return values**2


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "y": rng.normal(size=N),
            "x": rng.normal(size=N) + 3,
            "z": rng.uniform(1, 2, N),
            "g": rng.choice(list("abc"), N),
            "years": rng.uniform(1, 5, N),
        }
    )


def made(formula: str, data, **options) -> PublicDesign:
    return PublicDesign.of_table(formula, SCHEMA, data, context=globals(), **options)


def user_rows(design: PublicDesign) -> np.ndarray:
    standard = design.standardization
    return design.rows.x * standard.x_scale + standard.x_center


ROW_WISE = [
    "x + z",
    "poly(x, 2) * C(g)",
    "bs(x, df=5) + np.log(z)",
    "scale(x):g + center(z)",
    "C(g, contr.sum) + I(x > 3)",
    "{x * k} + z - 1",
    "poly(x, degree=two) + I(g == 'a')",
    "`x` ** 2 + np.where(z > 1.5, x, -x) + C(g, Treatment('b'))",
]


@pytest.mark.parametrize(
    "right", [*ROW_WISE, "x + lag(z)", "x - x.mean()", "x.rank() + g", "square(x) + z"]
)
def test_columns_are_formulaics(right, rows):
    design = made(f"y ~ {right}", rows)
    reference = model_matrix(right, rows, context=globals())
    assert list(design.names) == list(reference.columns)
    np.testing.assert_allclose(user_rows(design), reference.to_numpy(float), atol=1e-9)


@pytest.mark.parametrize("right", ROW_WISE)
def test_new_rows_use_what_was_learned_also_after_loading(right, rows):
    design = made(f"y ~ {right}", rows)
    loaded = design_from_dict(json.loads(json.dumps(design.to_dict())))
    assert loaded == design
    assert loaded.covariates is None
    part = rows.iloc[10:30]
    own = design.exog(part)
    np.testing.assert_array_equal(own, loaded.exog(part))
    complete = ~np.isnan(own).any(axis=1)
    assert complete.sum() >= len(part) - 1  # a lag has none in its first row
    where = np.searchsorted(design.rows.kept, np.arange(10, 30))
    np.testing.assert_allclose(own[complete], user_rows(design)[where][complete], atol=1e-9)


@pytest.mark.parametrize("right", ["x + lag(z)", "x.clip(0, 3)", "{x[x.index] * 2}"])
def test_python_that_a_user_wrote_predicts_and_the_same_from_a_file_does_not(right, rows):
    design = made(f"y ~ {right}", rows)
    assert np.isfinite(design.exog(rows.iloc[5:9])[1:]).all()
    with pytest.raises(FormulaError, match=r"Term .* was read from a file"):
        design_from_dict(design.to_dict()).exog(rows.iloc[5:9])


@pytest.mark.parametrize(
    ("right", "reason"),
    [
        ("I(x - x.mean())", "all rows at once"),
        ("x.rank()", "all rows at once"),
        ("square(x)", "'square'"),
    ],
)
def test_terms_that_new_rows_would_change_refuse_them(right, reason, rows):
    design = made(f"y ~ {right}", rows)
    for each in (design, design_from_dict(design.to_dict())):
        with pytest.raises(FormulaError, match=reason):
            each.exog(rows.iloc[:5])


def test_unseen_levels_and_missing_values_predict_nothing(rows):
    design = made("y ~ x + C(g)", rows)
    new = rows.iloc[:3].copy()
    new.loc[0, "g"], new.loc[1, "x"] = "unseen", np.nan
    assert np.isnan(design.exog(new)).all(axis=1).tolist() == [True, True, False]


def test_rows_with_missing_covariates_are_dropped_and_said_so(rows):
    data = rows.copy()
    data.loc[3, "x"], data.loc[5, "g"], data.loc[7, "x"] = np.nan, None, np.inf
    design = made("y ~ x + g", data)
    assert len(design.rows) == N - 3
    assert f"3 of {N} rows" in design.notes[0]
    labels = design.source(data).block(0, N).y
    np.testing.assert_allclose(labels, data["y"].drop([3, 5, 7]))


def test_a_scale_with_a_missing_value_uses_the_complete_rows(rows):
    data = rows.copy()
    data.loc[3, "x"] = np.nan
    design = made("y ~ scale(x)", data)
    assert len(design.rows) == N - 1
    assert abs(user_rows(design)[:, 1].mean()) < 1e-12


def test_missing_responses_change_nothing_public(rows):
    data = rows.copy()
    data.loc[:20, "y"] = np.nan
    assert made("y ~ x + g", data) == made("y ~ x + g", rows)


@pytest.mark.parametrize("formula", ["y ~ x + y", "y ~ lag(y)", "np.exp(y) ~ x + I(y > 0)"])
def test_the_response_may_not_be_a_covariate_even_as_a_variable(formula, rows):
    with pytest.raises(FormulaError, match="both sides"):
        PublicDesign.of_table(formula, SCHEMA, rows, context={"y": rows["y"].to_numpy()})


def test_the_dot_leaves_the_response_out(rows):
    assert made("y ~ .", rows).names == ("Intercept", "x", "z", "g[T.b]", "g[T.c]", "years")


def test_collinear_and_constant_columns_are_dropped_with_a_note(rows):
    data = rows.assign(twice=2 * rows["x"], one=4.0)
    design = made("y ~ x + twice + one + z", data)
    assert design.names == ("Intercept", "x", "z")
    assert any("twice" in note for note in design.notes)
    assert any("one" in note for note in design.notes)


@pytest.mark.parametrize("convert", [pl.from_pandas, lambda d: d.to_dict("list")])
def test_other_tables_give_the_same_design(convert, rows):
    assert made("y ~ x * g", convert(rows)).names == made("y ~ x * g", rows).names
    np.testing.assert_allclose(
        made("y ~ x * g", convert(rows)).rows.x, made("y ~ x * g", rows).rows.x
    )


def test_offset_and_exposure_may_be_terms(rows):
    schema = Schema(y=Numeric(0, 10))
    design = PublicDesign.of_table(
        "y ~ x", schema, rows, POISSON, offset="np.log(z)", exposure="years"
    )
    expected = np.log(rows["z"]) + np.log(rows["years"])
    np.testing.assert_allclose(design.rows.offset, expected)
    loaded = design_from_dict(json.loads(json.dumps(design.to_dict())))
    np.testing.assert_allclose(loaded.known_term(rows.iloc[:5]), expected[:5])


def test_arrays_and_sparse_matrices():
    rng = np.random.default_rng(1)
    x = np.column_stack([np.ones(50), rng.normal(size=(50, 2))])
    design = PublicDesign.of_arrays(x, (-1, 1))
    assert design.names == ("const", "x1", "x2")
    np.testing.assert_allclose(user_rows(design), x)
    np.testing.assert_array_equal(design_from_dict(design.to_dict()).exog(x[:3]), x[:3])
    matrix = sp.random(60, 5, 0.3, format="csr", random_state=0)
    sparse = PublicDesign.of_arrays(matrix, (-1, 1))
    assert hasattr(sparse.rows.x, "tocsr")
    np.testing.assert_allclose(np.diag(sparse.rows.gram), 60.0)
    np.testing.assert_allclose(sparse.exog(matrix[:4]), matrix[:4].toarray())


def test_units_of_several_rows_are_refused(rows):
    schema = Schema(y=Numeric(-3, 3), person=Numeric(0, 9), unit="person", max_rows=3)
    with pytest.raises(SchemaError, match="one response each"):
        PublicDesign.of_table("y ~ x", schema, rows)


@pytest.mark.parametrize(
    ("formula", "error"),
    [
        ("x + z", FormulaError),
        ("y ~ nothing", FormulaError),
        ("y ~ x | z", FormulaError),
        ("w ~ x", FormulaError),
    ],
)
def test_wrong_formulas_are_refused(formula, error, rows):
    with pytest.raises(error):
        made(formula, rows)


def test_a_binomial_response_must_be_declared_as_such(rows):
    with pytest.raises(SchemaError, match="binomial"):
        PublicDesign.of_table("y ~ x", SCHEMA, rows, BINOMIAL)


def test_a_result_without_rows_cannot_be_fitted_again(rows):
    with pytest.raises(DataError, match="make the model again"):
        made("y ~ x", rows).without_rows().source(rows)


def test_facts_hold_no_rows(rows):
    text = json.dumps(made("y ~ x + bs(z, df=4) + C(g)", rows).to_dict())
    assert len(text) < 6_000
    assert repr(float(rows["x"][11])) not in text


# -- variables that may be the response ------------------------------------------------------------


def holders(y) -> dict:
    """A response under another name, in whatever a formula may get at it through."""

    class Holder:
        pass

    holder = Holder()
    holder.inner = {"deep": [y]}
    module = types.ModuleType("mine")
    module.y = y
    frame = pd.DataFrame({"a": y, "b": y})

    def closure(x):
        return x * y

    def default(x, by=y):
        return x * by

    def looks_up(x):
        return x * CANARY["y"]

    return {
        "np.asarray(v)": y,
        "v * 2": pd.Series(y),
        "[*v]": y.tolist(),
        "v[::-1]": tuple(y),
        "v.iloc[:, 0]": frame,
        "v['a']": pl.from_pandas(frame),
        "np.asarray(v['a'])": {"a": y},
        "v[0][:, 0]": [y[:, None]],
        "v.head(200)['a']": pd.concat([frame, frame]),
        "v.inner['deep'][0]": holder,
        "v.y": module,
        "v(x)": closure,
        "default(x)": default,
        "looks_up(x)": looks_up,
        "partial(x)": functools.partial(np.multiply, y),
        "v(0)": y.__getitem__,
        "v(None)": pd.Series(y).to_numpy,
    }


CANARY = {"y": np.zeros(N)}


@pytest.mark.parametrize("where", range(17))
def test_a_variable_with_a_value_for_every_row_is_refused_by_its_shape(where, rows):
    text, value = list(holders(rows["y"].to_numpy()).items())[where]
    name = re.search(r"\b(v|default|looks_up|partial)\b", text)[0]
    with pytest.raises(FormulaError, match="column of the table"):
        PublicDesign.of_table(f"y ~ z + I({text})", SCHEMA, rows, context={name: value})
    with pytest.raises(FormulaError, match="column of the table"):
        PublicDesign.of_table("y ~ z", SCHEMA, rows, context={name: value}, offset=f"I({text})")


def test_the_refusal_looks_at_no_value(rows):
    """Whether the variable is the response, or has nothing to do with it: the same words."""
    said = []
    for value in (rows["y"].to_numpy(), np.zeros(N), np.full(N, "text")):
        with pytest.raises(FormulaError) as caught:
            PublicDesign.of_table("y ~ x + {v}", SCHEMA, rows, context={"v": value})
        said.append(str(caught.value))
    assert len(set(said)) == 1


def test_short_variables_and_functions_of_columns_are_used(rows):
    knots, rates = [2.5, 3.5], {"a": 1.0, "b": 2.0, "c": 4.0}

    def rated(g):
        return g.map(rates).astype(float)

    design = PublicDesign.of_table(
        "y ~ bs(x, knots=knots) + rated(g) + square(z)",
        SCHEMA,
        rows,
        context={"knots": knots, "rated": rated, "square": square},
    )
    assert len(design.names) == 8
