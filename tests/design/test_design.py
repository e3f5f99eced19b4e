"""Designs: formulaic's matrix on public terms, bounds that hold, and public facts only."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from formulaic import model_matrix
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstats.design import DeclaredDesign, design_from_dict
from dpstats.design.public import typical_table
from dpstats.errors import FormulaError, SchemaError
from dpstats.schema import Boolean, Categorical, Numeric, Schema
from tests.design.cases import FORMULAS, ROW_WISE, SCHEMA, STATEFUL, as_declared, inside, wild

ROUNDING = 1e-12  # relative; the terms are computed by the same numpy functions
N = 60


@pytest.mark.parametrize("formula", ROW_WISE)
def test_names_and_values_are_formulaics(formula):
    frame = inside(N)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = model_matrix(formula, as_declared(frame), na_action="raise")
    design = DeclaredDesign.from_formula(formula, SCHEMA)
    assert list(design.names) == list(expected.rhs.columns)
    np.testing.assert_allclose(design.exog(frame), expected.rhs.to_numpy(float), rtol=ROUNDING)
    y = design.source(frame).raw(0, N).y
    factor = formula[0] == "h"  # formulaic codes a factor on the left; here its levels are numbers
    lhs = frame.h if factor else expected.lhs.to_numpy(float)[:, 0]
    np.testing.assert_allclose(y, lhs, rtol=ROUNDING)
    assert not design.notes


def evenly(n: int) -> pd.DataFrame:
    """The public rows on which smooth terms are fixed: even over the declared ranges."""
    return pd.DataFrame({"y": 1.0, "x": np.linspace(-1, 2, n), "p": np.linspace(1, 5, n)})


@pytest.mark.parametrize(
    "term", ["poly(x, 3)", "bs(x, df=5)", "bs(p, knots=[2, 3])", "cr(x, df=4)", "cc(p, df=3)"]
)
def test_smooth_terms_are_formulaics_on_evenly_spread_rows(term):
    grid = evenly(1001)
    spec = model_matrix(f"{term} - 1", grid).model_spec
    frame = inside(N)
    expected = spec.get_model_matrix(frame).to_numpy(float)
    design = DeclaredDesign.from_formula(f"y ~ {term} - 1", SCHEMA)
    np.testing.assert_allclose(design.exog(frame), expected, rtol=1e-9, atol=1e-12)


def test_centring_terms_use_the_schema():
    frame = inside(N)
    made = DeclaredDesign.from_formula("y ~ scale(p) + center(x) + standardize(p)", SCHEMA).exog(
        frame
    )
    by_hand = [np.ones(N), (frame.p - 2) / 0.5, frame.x - 0.5]
    np.testing.assert_allclose(made, np.column_stack(by_hand), rtol=ROUNDING)


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_matrix_learns_nothing_from_the_rows(formula):
    """The same row gives the same numbers beside any others, in any chunk, bit for bit."""
    frame = pd.concat([inside(N).astype({"b": float}), wild(N)], ignore_index=True)
    design = DeclaredDesign.from_formula(formula, SCHEMA)
    whole = design.source(frame).block(0, 2 * N)
    for size in (1, 7, N):
        source = design.source(frame)
        parts = [source.block(a, a + size) for a in range(0, 2 * N, size)]
        np.testing.assert_array_equal(np.vstack([part.x for part in parts]), whole.x)
        np.testing.assert_array_equal(np.concatenate([part.y for part in parts]), whole.y)
        np.testing.assert_array_equal(np.concatenate([part.keep for part in parts]), whole.keep)
    one = design.source(frame.iloc[[3]]).block(0, 1)
    np.testing.assert_array_equal(one.x, whole.x[3:4])


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(FORMULAS), st.integers(0, 2**32 - 1), st.booleans())
def test_every_row_is_inside_its_bounds(formula, seed, in_domain):
    design = DeclaredDesign.from_formula(formula, SCHEMA)
    frame = inside(40, seed) if in_domain else wild(40, seed)
    block = design.source(frame).block(0, 40)
    lower, upper = design.internal_bounds.T
    assert ((block.x >= lower) & (block.x <= upper)).all()
    assert (np.linalg.norm(block.x, axis=1) <= design.norm_bound * (1 + 1e-14)).all()
    low, high = design.internal_endog_bounds
    assert ((block.y >= low) & (block.y <= high)).all()
    if in_domain:
        assert block.keep.all()


EXACT_NORMS = {  # formula -> squared norm reached by some row
    "y ~ x": 2,  # internal x reaches 1
    "y ~ g": 2,  # one dummy at a time
    "y ~ 0 + g": 1,
    "y ~ 0 + g:h": 1,  # one cell at a time
    "y ~ g*h": 4,
    "y ~ C(g, Sum)": 3,  # the last level is (-1, -1)
    "y ~ g*x": 4,
    "y ~ x + p": 1 + 1 + 36,  # p reaches (5 - 2) / 0.5
}


@pytest.mark.parametrize(("formula", "squared"), EXACT_NORMS.items(), ids=EXACT_NORMS.keys())
def test_the_norm_bound_is_reached(formula, squared):
    design = DeclaredDesign.from_formula(formula, SCHEMA)
    assert design.norm_bound == pytest.approx(squared**0.5, rel=1e-15)
    corners = pd.DataFrame(
        [(x, p, g, h) for x in (-1, 2) for p in (1, 5) for g in "abc" for h in (1, 2, 3)],
        columns=["x", "p", "g", "h"],
    ).assign(y=1.0)
    block = design.source(corners).block(0, len(corners))
    assert np.linalg.norm(block.x, axis=1).max() == pytest.approx(design.norm_bound, rel=1e-14)


def test_many_levels_do_not_lengthen_a_row():
    schema = Schema(y=Numeric(0, 1), g=Categorical(list(range(300))))
    assert DeclaredDesign.from_formula("y ~ g", schema).norm_bound == pytest.approx(2**0.5)


# -- units ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("formula", ["y ~ x + p + g", "y ~ 0 + x + p", "y ~ p*b + poly(x, 2)"])
def test_to_user_gives_the_least_squares_of_the_users_units(formula):
    frame = inside(200)
    design = DeclaredDesign.from_formula(formula, SCHEMA)
    source = design.source(frame)
    inner, raw = source.block(0, 200), source.raw(0, 200)
    params = np.linalg.lstsq(inner.x, inner.y, rcond=None)[0]
    cov = np.linalg.inv(inner.x.T @ inner.x)
    user, user_cov = design.standardization.to_user(params, cov)
    expected = np.linalg.lstsq(raw.x, raw.y, rcond=None)[0]
    np.testing.assert_allclose(user, expected, rtol=1e-8)
    scale = design.standardization.y_scale
    np.testing.assert_allclose(
        user_cov, scale**2 * np.linalg.inv(raw.x.T @ raw.x), rtol=1e-6, atol=1e-9
    )


def test_centres_and_scales_are_declared_or_derived():
    design = DeclaredDesign.from_formula("y ~ x + p + g + g:x + I(x**2)", SCHEMA)
    change = design.standardization
    units = dict(zip(design.names, zip(change.x_center, change.x_scale, strict=True), strict=True))
    assert units["Intercept"] == (0, 1)
    assert units["x"] == (0.5, 1.5)  # midpoint and half-width
    assert units["p"] == (2, 0.5)  # declared
    assert units["g[T.b]"] == (0, 1)  # a dummy stays as it is
    assert units["g[T.b]:x"] == (0, 2)  # zeros stay zeros
    assert units["I(x ** 2)"] == (2, 2)
    assert (change.y_center, change.y_scale, change.intercept) == (25, 25, 0)


def test_without_an_intercept_nothing_is_centred():
    change = DeclaredDesign.from_formula("y ~ 0 + x + p", SCHEMA).standardization
    assert change.x_center.tolist() == [0, 0]
    assert change.x_scale.tolist() == [2, 5]
    assert (change.y_center, change.y_scale, change.intercept) == (0, 50, None)
    around_zero = Numeric(-8, 8, center=0, scale=1.5)
    change = DeclaredDesign.from_formula(
        "y ~ 0 + x", Schema(y=around_zero, x=around_zero)
    ).standardization
    assert (change.x_scale.tolist(), change.y_scale) == ([1.5], 1.5)


# -- dropped columns -----------------------------------------------------------------------------

DROPPED = {
    "y ~ x + I(2 * x)": "dropped I(2 * x): collinear with x",
    "y ~ x + I(x + 1)": "dropped I(x + 1): collinear with x for",
    "y ~ x + center(x)": "dropped center(x): collinear with",
    "y ~ g + C(g)": "dropped C(g)[T.b]: collinear with g[T.b]",
    "y ~ cr(x, df=4)": "dropped cr(x, df=4)[4]: collinear with columns before it",
    "y ~ 0 + g + cr(x, df=4)": "dropped cr(x, df=4)[4]",
    "y ~ x + I(x * 0)": "dropped I(x * 0): equal to 0",
    "y ~ x + I(x ** 0)": "dropped I(x ** 0): equal to 1",
    "y ~ x + p + I(3*x - 2*p)": "dropped I(3 * x - 2 * p): collinear with x, p for",
}


@pytest.mark.parametrize(("formula", "note"), DROPPED.items(), ids=DROPPED.keys())
def test_collinear_columns_are_dropped_with_a_note(formula, note):
    design = DeclaredDesign.from_formula(formula, SCHEMA)
    assert any(line.startswith(note) for line in design.notes)
    x = design.exog(inside(300))
    assert np.linalg.matrix_rank(x) == x.shape[1] == len(design.names)


INDEPENDENT = [
    "y ~ x + I(x**2) + I(x**3) + I(x**4)",
    "y ~ I(x > 1.9999) + I(x > -0.99999)",
    "y ~ np.maximum(x, 1.99) + x",
    "y ~ x*p*g*h",
    "y ~ x + np.exp(x) + np.log(p) + p + I(1/p)",
]


@pytest.mark.parametrize("formula", INDEPENDENT)
def test_columns_that_only_look_alike_are_kept(formula):
    assert not DeclaredDesign.from_formula(formula, SCHEMA).notes


def test_nothing_is_dropped_by_what_the_rows_hold():
    frame = inside(N).assign(x=1.0, g="a", p=lambda f: 2 * f.x)
    design = DeclaredDesign.from_formula("y ~ x + p + g", SCHEMA)
    assert design.source(frame).block(0, N).x.shape == (N, 5)


def test_a_formula_with_nothing_left_is_refused():
    with pytest.raises(FormulaError, match="No column is left"):
        DeclaredDesign.from_formula("y ~ 0 + I(x * 0)", SCHEMA)


# -- the dot and the response --------------------------------------------------------------------


def test_the_dot_is_every_declared_column_but_response_and_unit():
    schema = Schema(
        y=Numeric(0, 1), a=Numeric(0, 1), who=Numeric(0, 9), b=Boolean(), unit="who", max_rows=2
    )
    assert DeclaredDesign.from_formula("y ~ .", schema).names == ("Intercept", "a", "b")
    assert DeclaredDesign.from_formula("np.log1p(y) ~ .", schema).names == ("Intercept", "a", "b")
    assert DeclaredDesign.from_formula("y ~ . - a", schema).names == ("Intercept", "b")
    assert DeclaredDesign.from_formula("y ~ .:a", schema).names == ("Intercept", "a", "b:a")
    assert DeclaredDesign.from_formula("y ~ .", schema).columns == ("y", "a", "b", "who")


RESPONSES = {
    "y": (0, 50, 25, 25),
    "p": (1, 5, 2, 0.5),
    "h": (1, 3, 2, 1),
    "b": (0, 1, 0.5, 0.5),
    "np.log1p(y)": (0, np.log(51), np.log(51) / 2, np.log(51) / 2),
    "`a b`": (0, 1, 0.5, 0.5),
}


@pytest.mark.parametrize(("name", "facts"), RESPONSES.items(), ids=RESPONSES.keys())
def test_the_response_has_public_bounds(name, facts):
    endog = DeclaredDesign.from_formula(f"{name} ~ x", SCHEMA).endog
    assert endog.name == name.strip("`")
    np.testing.assert_allclose((endog.lower, endog.upper, endog.center, endog.scale), facts)


# -- integer columns for factors -----------------------------------------------------------------


def test_an_integer_column_is_coded_as_the_factor_it_was_declared():
    """Formulaic's own matrix for such a chunk has the integers in the dummy columns."""
    frame = inside(N)
    texts = frame.h.astype(str).astype(object)  # of no type, as in CSV
    chunks = [frame, frame.assign(h=frame.h.astype(float)), frame.assign(h=texts)]
    design = DeclaredDesign.from_formula("y ~ h + x:C(h)", SCHEMA)
    made = [design.source(chunk).block(0, N).x for chunk in chunks]
    np.testing.assert_array_equal(made[0], made[1])
    np.testing.assert_array_equal(made[0], made[2])
    np.testing.assert_array_equal(made[0][:, 1], frame.h == 2)


# -- stored --------------------------------------------------------------------------------------


@pytest.mark.parametrize("formula", FORMULAS)
def test_it_is_the_same_after_json_and_pickle(formula):
    design = DeclaredDesign.from_formula(formula, SCHEMA)
    for copy in (design_from_dict(design.to_dict()), pickle.loads(pickle.dumps(design))):
        assert copy == design
        np.testing.assert_array_equal(copy.exog(inside(5)), design.exog(inside(5)))


def test_a_stored_design_that_would_mean_other_columns_is_refused():
    stored = DeclaredDesign.from_formula("y ~ g", SCHEMA).to_dict()
    with pytest.raises(SchemaError, match="other versions"):
        design_from_dict(stored | {"design_names": ["Intercept", "g[b]", "g[c]"]})
    with pytest.raises(SchemaError, match="version"):
        design_from_dict(stored | {"version": 99})


# -- arrays --------------------------------------------------------------------------------------


def test_arrays_add_no_intercept_and_recognise_one():
    plain = DeclaredDesign.from_arrays(2, {"exog": (-1, 3), "endog": (0, 4)})
    assert plain.names == ("x1", "x2")
    assert not plain.has_intercept
    assert plain.standardization.x_center.tolist() == [0, 0]
    const = DeclaredDesign.from_arrays(3, {"exog": [(-1, 3), (1, 1), (0, 1)], "endog": (0, 4)})
    assert const.names == ("x1", "const", "x2")
    assert const.standardization.intercept == 1
    assert const.standardization.x_center.tolist() == [1, 0, 0.5]


def test_constant_columns_of_arrays_are_dropped_by_their_bounds():
    design = DeclaredDesign.from_arrays(
        4, {"exog": [(1, 1), (0, 0), (5, 5), (0, 1)], "endog": (0, 1)}, names=list("abcd")
    )
    assert design.names == ("a", "d")
    assert [note.split(":")[0] for note in design.notes] == ["dropped b", "dropped c"]
    exog = np.column_stack([np.ones(9), np.zeros(9), np.full(9, 5.0), np.linspace(0, 1, 9)])
    block = design.source((np.zeros(9), exog)).raw(0, 9)
    np.testing.assert_array_equal(block.x, exog[:, [0, 3]])


BAD_BOUNDS = {
    "three pairs for two": [(0, 1)] * 3,
    "infinite": (0, np.inf),
    "nan": [(0, 1), (np.nan, 1)],
    "reversed": [(0, 1), (2, 1)],
    "no pair": 3,
    "none": None,
    "ragged": [(0, 1), (1,)],
}


@pytest.mark.parametrize("bounds", BAD_BOUNDS.values(), ids=BAD_BOUNDS.keys())
def test_bounds_of_arrays_are_checked(bounds):
    with pytest.raises(SchemaError, match="bounds"):
        DeclaredDesign.from_arrays(2, {"exog": bounds, "endog": (0, 1)})


def test_endog_bounds_are_checked():
    for wrong in ((1, 0), (0, np.inf), (1, 1), 3):
        with pytest.raises(SchemaError):
            DeclaredDesign.from_arrays(2, {"exog": (0, 1), "endog": wrong})
    with pytest.raises(SchemaError, match="names"):
        DeclaredDesign.from_arrays(2, {"exog": (0, 1), "endog": (0, 1)}, names=["a"])
    with pytest.raises(FormulaError, match="two columns"):
        DeclaredDesign.from_arrays(2, {"exog": (0, 1), "endog": (0, 1)}, names=["a", "a"])


def test_an_array_design_is_the_same_after_json():
    design = DeclaredDesign.from_arrays(
        2, {"exog": [(1, 1), (0, 2)], "endog": (0, 4)}, names=["one", "two"]
    )
    assert design_from_dict(design.to_dict()) == design
    assert DeclaredDesign.from_arrays(2, {"exog": (0, 1)}).endog is None


def test_stateful_terms_are_listed():
    assert len(STATEFUL) + len(ROW_WISE) == len(FORMULAS)


def test_a_typical_table_is_the_same_when_it_is_asked_for_again() -> None:
    schema = Schema(x=Numeric(0, 1, center=0.3, scale=0.1), g=Categorical(["a", "b"]))
    first, again = (typical_table(["x", "g"], schema, 500) for _ in range(2))
    assert first is not again  # whoever takes one out changes no other
    assert again["x"] is first["x"]
    other = typical_table(["x", "g"], schema, 2**18)  # too large to be kept
    assert typical_table(["x", "g"], schema, 2**18)["x"] is not other["x"]
    np.testing.assert_array_equal(typical_table(["x", "g"], schema, 500)["g"], first["g"])
