"""Wide tables: the quick way through a formula changes nothing but the time it takes."""

import time

import numpy as np
import pandas as pd
import polars as pl
import pytest

from dpstats.design import DeclaredDesign, Design, Standardization, formulas
from dpstats.errors import FormulaError
from dpstats.schema import Boolean, Categorical, Numeric, Schema
from tests.design.cases import SCHEMA, inside, wild

PLAIN = [
    "y ~ .",
    "y ~ . - 1",
    "y ~ .-1",
    "y ~ -1 + .",
    "y ~ 0 + .",
    "y ~ . + 0",
    "y ~ 1 + x",
    "y ~ 1",
    "y ~ x",
    "y~x+p",
    "y ~ + p + x",
    "y ~ p + x + p",
    "y ~ x + .",
    "y ~ . - p",
    "y ~ . - p + p - x",
    "y ~ x - x + p",
    "y ~ g + x + h + p",
    "y ~ 0 + x + h + g + p",
    "y ~ b + x",
    "np.log1p(y) ~ .",
    "`a b` ~ . - y",
    "I(y / 2 + p) ~ . - 1",
    "h ~ .",
    "~ x + p",
]
WORDS = ("formula", "names", "endog", "norm_bound", "has_intercept", "columns", "notes")
ARRAYS = ("bounds", "internal_bounds")


def both_ways(formula: str, schema: Schema, monkeypatch) -> tuple[Design, Design]:
    response = formula[0] != "~"
    quick = DeclaredDesign.from_formula(formula, schema, response)
    monkeypatch.setattr(formulas, "_plain_formula", lambda *_: None)
    return quick, DeclaredDesign.from_formula(formula, schema, response)


def used_quickly(formula: str, monkeypatch) -> bool:
    """Whether formulaic is not asked about the right side."""
    monkeypatch.setattr(formulas, "_general_formula", lambda *_: 1 / 0)
    try:
        DeclaredDesign.from_formula(formula, SCHEMA, formula[0] != "~")
    except ZeroDivisionError:
        return False
    return True


@pytest.mark.parametrize("formula", PLAIN)
def test_the_quick_way_gives_the_design_of_the_general_one(formula, monkeypatch):
    quick, general = both_ways(formula, SCHEMA, monkeypatch)
    assert quick == general
    for name in WORDS:
        assert getattr(quick, name) == getattr(general, name), name
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(quick, name), getattr(general, name))
    for name, value in vars(quick.standardization).items():
        np.testing.assert_array_equal(value, getattr(general.standardization, name))
    frame = pd.concat([inside(40).astype({"b": float}), wild(40)], ignore_index=True)
    for internal in ("block", "raw"):
        a, b = (getattr(design.source(frame), internal)(0, 80) for design in (quick, general))
        np.testing.assert_array_equal(a.x, b.x)
        np.testing.assert_array_equal(a.keep, b.keep)
        np.testing.assert_array_equal(a.y, b.y)


@pytest.mark.parametrize("formula", PLAIN)
def test_a_sum_of_names_takes_the_quick_way(formula, monkeypatch):
    assert used_quickly(formula, monkeypatch)


@pytest.mark.parametrize("formula", ["y ~ x*p", "y ~ I(x**2)", "y ~ . - .", "y ~ 0 + 1", "y ~ 2:x"])
def test_other_formulas_do_not(formula, monkeypatch):
    assert not used_quickly(formula, monkeypatch)


REFUSED = ["y ~ x + q", "q ~ x", "y ~ x + y", "y ~ x +", "y + x ~ p", "g ~ x"]


@pytest.mark.parametrize("formula", REFUSED)
def test_what_is_refused_is_refused_in_both_ways(formula, monkeypatch):
    messages = []
    for _ in range(2):
        with pytest.raises(FormulaError) as caught:
            DeclaredDesign.from_formula(formula, SCHEMA)
        messages.append(str(caught.value))
        monkeypatch.setattr(formulas, "_plain_formula", lambda *_: None)
    assert messages[0] == messages[1]


def test_numbers_in_a_formula_are_no_names():
    schema = Schema({str(j): Numeric(0, 1) for j in range(3)}, y=Numeric(0, 1))
    assert DeclaredDesign.from_formula("y ~ 1", schema).names == ("Intercept",)
    assert DeclaredDesign.from_formula("y ~ . - 1", schema).names == ("0", "1", "2")


# -- time and space ------------------------------------------------------------------------------

D, N = 5_000, 400
OVERHEAD = 0.5  # seconds over plain conversion; measured: 0.2 on an idle core


@pytest.fixture(scope="module")
def wide():
    names = [f"x{j}" for j in range(D)]
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(N, D)), columns=names)
    frame["y"] = 1.0
    return frame, Schema({name: Numeric(-3, 3) for name in names}, y=Numeric(-5, 5))


def best(task) -> float:
    """Least time of three: the others may be another process's."""
    times = []
    for _ in range(3):
        start = time.process_time()
        task()
        times.append(time.process_time() - start)
    return min(times)


def read(formula: str, schema: Schema, table) -> None:
    source = DeclaredDesign.from_formula(formula, schema).source(table)
    for start in range(0, N, 256):
        source.block(start, start + 256)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pandas", "polars"])
@pytest.mark.parametrize("form", ["y ~ .", "np.log1p(y + 6) ~ .", "sum"])
def test_five_thousand_columns_are_read_about_as_quickly_as_converted(wide, kind, form):
    frame, schema = wide
    formula = "y ~ " + " + ".join(frame.columns[:-1]) if form == "sum" else form
    table = pl.from_pandas(frame) if kind == "polars" else frame
    assert best(lambda: read(formula, schema, table)) < OVERHEAD + best(table.to_numpy)


def test_arrays_of_many_columns_bind_quickly():
    pairs = np.tile([-1.0, 2.0], (50_000, 1))
    pairs[7] = (1, 1)
    assert (
        best(lambda: DeclaredDesign.from_arrays(50_000, {"exog": pairs, "endog": (0, 1)}))
        < OVERHEAD
    )


def test_many_factors_are_still_recognised_among_numbers():
    columns = {f"x{j}": Numeric(-1, j + 1) for j in range(30)}
    schema = Schema(columns | {"x7": Boolean(), "x9": Categorical(["a", "b"])}, y=Numeric(0, 1))
    design = DeclaredDesign.from_formula("y ~ .", schema)
    assert design.names[:11] == ("Intercept", *(f"x{j}" for j in range(9)), "x9[T.b]")
    assert design.bounds[[8, 10, 11]].tolist() == [[0, 1], [0, 1], [-1, 11]]
    assert design.standardization.x_center[[7, 8, 10, 11]].tolist() == [3, 0, 0, 5]


@pytest.mark.parametrize("intercept", [None, 0, 3, 5])
def test_to_user_is_the_matrix_of_its_transform(intercept):
    rng = np.random.default_rng(2)
    center, scale = rng.normal(size=6), rng.uniform(0.5, 2, 6)
    if intercept is None:
        center[:] = 0
    else:
        center[intercept], scale[intercept] = 0, 1
    change = Standardization(center, scale, 0.7, 3.0, intercept)
    params, root = rng.normal(size=6), rng.normal(size=(6, 6))
    jacobian, offset = change.transform()
    user, cov = change.to_user(params, root @ root.T)
    np.testing.assert_allclose(user, jacobian @ params + offset, rtol=1e-12)
    np.testing.assert_allclose(cov, jacobian @ root @ root.T @ jacobian.T, rtol=1e-10)
    np.testing.assert_array_equal(cov, cov.T)


def test_a_variance_whose_terms_cancel_is_no_less_than_their_rounding():
    """A column whose values are all but alike: rounding makes a variance of less than nothing."""
    rng = np.random.default_rng(0)
    least = []
    for _ in range(50):
        change = Standardization(np.array([0.0, 5.0]), np.array([1.0, 5.0]), 0.0, 1.0, 0)
        root = 1e7 * np.outer([1.0, 1.0], rng.normal(size=2)) + 0.1 * rng.normal(size=(2, 2))
        least.append(change.to_user(np.zeros(2), root @ root.T)[1][0, 0])
        least.append(change.to_internal(np.zeros(2), root @ root.T)[1][0, 0])
    assert min(least) > 0
