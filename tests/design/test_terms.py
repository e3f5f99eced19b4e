"""What a term may be, what it is refused for, and the bounds it gets."""

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstats.design import DeclaredDesign
from dpstats.design.operations import Expression, check_row_local
from dpstats.design.terms import Terms
from dpstats.errors import DPStatsError, FormulaError, SchemaError
from dpstats.schema import Categorical, Numeric, Schema
from tests.design.cases import SCHEMA

k = 3  # a Python variable that no formula may see

# term -> words the message must have: why, and what to write instead
REFUSED = {
    "I(x - x.mean())": "center(x)",
    "x.mean()": "center(x)",
    "I(x - np.mean(x))": "center(x)",
    "I((x - x.mean()) / x.std())": "center(x)",
    "np.std(x)": "scale(x)",
    "{x / np.max(x)}": "upper bound",
    "np.cumsum(x)": "before the fit",
    "np.sort(x)": "before the fit",
    "np.random.normal(x)": "before the fit",
    "np.linalg.norm(x)": "before the fit",
    "x.rank()": "before the fit",
    "x.shift(1)": "before the fit",
    "x.abs()": "before the fit",
    "lag(x)": "before the fit",
    "hashed(x)": "before the fit",
    "myfunction(x)": "before the fit",
    "__import__('os')": "before the fit",
    "I(x[0])": "before the fit",
    "I(x[::-1])": "before the fit",
    "I(k * x)": "value into the formula",
    "I(x ** k)": "value into the formula",
    "bs(x, df=k)": "value into the formula",
    "C(g, Treatment(k))": "value into the formula",
    "nothing": "add 'nothing' to the schema",
    "np.log1p(nothing)": "add 'nothing' to the schema",
    "Q('nothing')": "add 'nothing' to the schema",
    "C(nothing)": "add 'nothing' to the schema",
    "np.log(x)": "np.log1p",
    "np.sqrt(x)": "Numeric(lower, upper)",
    "I(1 / x)": "denominator",
    "poly(np.log(x), 2)": "np.log1p",
    "I(g + 1)": "C(g)",
    "np.log(h)": "Numeric(lower, upper)",
    "C(x)": "x=Categorical",
    "C(g, levels=['a'])": "C(g)",
    "C(g, spans_intercept=False)": "C(g)",
    "C(g, np.eye(3))": "Treatment",
    "C(g, Treatment('nothing'))": "nothing",
    "I(C(g))": "C(g) as a term",
    "C()": "C(g)",
    "sqrt(p)": "np.sqrt",
    "I(x ** p)": "exponent",
    "I(x % 2)": "+ - * /",
    "I(0 < x < 1)": "between numbers",
    "I(poly(x, 2))": "term of its own",
    "bs(x, df=5, lower_bound=0)": "declared range",
    "bs(x, df=5, extrapolation='clip')": "declared range",
    "bs(x, 5, [0.5])": "by name",
    "cr(x, df=4, constraints='center')": "declared range",
    "bs(x, df=2)": "df",
    "cr(x)": "df",
    "bs()": "bs(x",
    "scale()": "scale(x)",
    "scale(x, center='a')": "True, False or a number",
    "np.log(p, where=True)": "positional",
    "np.log(p, p)": "positional",
    "Q(3)": "Q('name')",
    "I(3)": "constant",
    "I(10 ** 400 * x)": "",
    "I('a')": "",
    "{lambda: x}": "",
    "{[x for x in x]}": "",
    "{x if x > 0 else p}": "",
    "I(x": "",
    "x +* p": "",
    "x | p": "one right side",
    "y": "left side only",
    "np.log1p(y)": "left side only",
}


@pytest.mark.parametrize(("term", "words"), REFUSED.items(), ids=REFUSED.keys())
def test_a_term_is_refused_with_what_to_write_instead(term, words):
    with pytest.raises(FormulaError) as caught:
        DeclaredDesign.from_formula(f"y ~ {term}", SCHEMA)
    assert words in str(caught.value)


FORMULAS = {
    "x": "response",
    "~ x": "response",
    "": "response",
    "y ~ 0": "y ~ 1",
    "y ~ x ~ p": "parsed",
    "y + p ~ x": "I(a + b)",
    "g ~ x": "Categorical([0, 1])",
    "nothing ~ x": "schema",
    "np.log(y) ~ x": "np.log1p",
    "poly(y, 2) ~ x": "one number",
    "1 ~ x": "",
    "y ~ [x ~ p]": "parsed",
    "y ~ 'a'": "parsed",
}


@pytest.mark.parametrize(("formula", "words"), FORMULAS.items(), ids=FORMULAS.keys())
def test_a_formula_is_refused_with_what_to_write_instead(formula, words):
    with pytest.raises(FormulaError) as caught:
        DeclaredDesign.from_formula(formula, SCHEMA)
    assert words in str(caught.value)


def test_a_one_sided_formula_is_for_models_without_response():
    assert DeclaredDesign.from_formula("~ x + g", SCHEMA, response=False).endog is None
    with pytest.raises(FormulaError, match="has a response"):
        DeclaredDesign.from_formula("y ~ x", SCHEMA, response=False)


def test_a_formula_is_text_and_a_schema_a_filled_schema():
    with pytest.raises(FormulaError, match="text"):
        DeclaredDesign.from_formula(3, SCHEMA)
    with pytest.raises(SchemaError, match=r"dp\.Schema"):
        DeclaredDesign.from_formula("y ~ x", {"x": (0, 1)})
    with pytest.raises(SchemaError, match="not filled"):
        DeclaredDesign.from_formula("y ~ x", Schema.template({"x": np.zeros(1), "y": np.zeros(1)}))


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="xypgb10.,:+-*/~()[]{}|'`=<> np.logC", max_size=25))
def test_any_text_is_a_design_or_a_clear_error(text):
    with contextlib.suppress(DPStatsError):
        assert DeclaredDesign.from_formula(f"y ~ {text}", SCHEMA).names


# ---------------------------------------------------------------------------------------------

EXACT = {
    "x": (-1, 2),
    "x + 1": (0, 3),
    "I(2 - x)": (0, 3),
    "I(x**2)": (0, 4),
    "I(x**3)": (-1, 8),
    "I(p**-1)": (0.2, 1),
    "I(p**0.5)": (1, 5**0.5),
    "I(2**x)": (0.5, 4),
    "I(0.5**x)": (0.25, 2),
    "I(x * p)": (-5, 10),
    "I(x / p)": (-1, 2),
    "np.abs(x)": (0, 2),
    "np.square(x)": (0, 4),
    "np.log(p)": (0, np.log(5)),
    "np.log1p(`a b`)": (0, np.log(2)),
    "np.exp(x)": (0.367, 7.39),  # exp(-1) and exp(2), rounded outward
    "np.minimum(x, 1)": (-1, 1),
    "np.maximum(x, p)": (1, 5),
    "np.clip(p, 2, 3)": (2, 3),
    "np.where(x > 0, p, -1)": (-1, 5),
    "I(x >= 0)": (0, 1),
    "center(p)": (-1, 3),
    "scale(p)": (-2, 6),
    "standardize(x)": (-1, 1),
    "scale(x, center=False)": (-1 / 1.5, 2 / 1.5),
    "scale(x, scale=False)": (-1.5, 1.5),
    "b": (0, 1),
}


@pytest.mark.parametrize(("term", "bounds"), EXACT.items(), ids=EXACT.keys())
def test_bounds_are_the_extremes_over_the_declared_domain(term, bounds):
    found = Terms(SCHEMA).expression(term)
    np.testing.assert_allclose(found.bounds[0], bounds, rtol=1e-15)
    rng = np.random.default_rng(1)
    rows = {"x": rng.uniform(-1, 2, 4000), "p": rng.uniform(1, 5, 4000)}
    rows |= {"b": rng.integers(0, 2, 4000), "a b": rng.uniform(0, 1, 4000)}
    values = found.evaluate(rows)
    assert values.min() >= bounds[0]
    assert values.max() <= bounds[1]
    assert np.ptp(values) > 0.9 * (bounds[1] - bounds[0])  # they are not loose either


@pytest.mark.parametrize(
    "term", ["poly(x, 3)", "poly(p, 6)", "bs(x, df=6)", "bs(x, df=4, degree=2)", "cr(x, df=5)",
             "cc(x, df=4)", "bs(x, knots=[0, 1.5], include_intercept=True)"]
)  # fmt: skip
def test_bounds_of_smooth_terms_hold_everywhere_and_are_tight(term):
    found = Terms(SCHEMA).expression(term)
    values = found.evaluate({"x": np.linspace(-1, 2, 100_001), "p": np.linspace(1, 5, 100_001)})
    assert (values.min(axis=0) >= found.bounds[:, 0]).all()
    assert (values.max(axis=0) <= found.bounds[:, 1]).all()
    width = np.diff(found.bounds, axis=1)[:, 0]
    np.testing.assert_allclose(np.ptp(values, axis=0), width, rtol=0.02)


DECLARED = Schema(
    {"np.log( x )": Numeric(-4, 1, center=0, scale=0.5), "I(x - x**2)": Numeric(-2, 0.25)},
    x=Numeric(-1, 2),
    y=Numeric(0, 1),
)


def test_a_declared_term_has_its_declared_bounds_and_guesses():
    design = DeclaredDesign.from_formula("y ~ np.log(x) + I(x - x**2)", DECLARED)
    np.testing.assert_array_equal(design.bounds[1:], [[-4, 1], [-2, 0.25]])
    assert design.standardization.x_center.tolist() == [0, 0, -0.875]
    assert design.standardization.x_scale.tolist() == [1, 0.5, 1.125]


def test_values_of_a_declared_term_are_held_to_its_bounds():
    source = DeclaredDesign.from_formula("y ~ np.log(x)", DECLARED).source(
        {"x": [-1.0, 0.0, 1e-9, 1.0, 2.0], "y": [0.5] * 5}
    )
    block = source.raw(0, 5)
    np.testing.assert_allclose(block.x[:, 1], [0, -4, -4, 0, np.log(2)])
    assert block.keep.tolist() == [False, True, True, True, True]  # log of -1 is missing


def test_a_declared_term_is_no_column_of_the_dot():
    assert DeclaredDesign.from_formula("y ~ .", DECLARED).names == ("Intercept", "x")


def test_bounds_that_cannot_be_represented_are_refused():
    schema = Schema(x=Numeric(0, 1e200), p=Numeric(1, 1e200), y=Numeric(0, 1))
    for term in ("x:p", "I(x * p)", "x + p + x:p"):
        with pytest.raises(FormulaError, match="bounds"):
            DeclaredDesign.from_formula(f"y ~ {term}", schema)


def test_a_declared_term_is_a_number():
    schema = Schema({"np.log(x)": Categorical([0, 1])}, x=Numeric(1, 2), y=Numeric(0, 1))
    with pytest.raises(FormulaError, match="use Numeric"):
        DeclaredDesign.from_formula("y ~ np.log(x)", schema)


def test_the_second_lock_finds_a_function_that_mixes_rows():
    rows = {"x": np.arange(6.0)}
    bounds = np.array([[0.0, 1.0]])
    for rule in (lambda r: r["x"] - r["x"].mean(), lambda r: np.cumsum(r["x"])):
        with pytest.raises(FormulaError, match="mixes rows"):
            check_row_local(Expression(frozenset("x"), bounds, rule), rows, "term")
    check_row_local(Expression(frozenset("x"), bounds, lambda r: r["x"] * 2), rows, "term")


@pytest.mark.parametrize(
    ("term", "meant"),
    [
        ("np.exq(x)", "np.exp"),
        ("np.lgo(x)", "np.log"),
        ("ploy(x, 2)", "poly"),
        ("exq(x)", "np.exp"),
    ],
)
def test_a_misspelt_function_is_named_with_the_one_near_it(term, meant):
    schema = Schema(x=Numeric(1, 2), y=Numeric(0, 1))
    with pytest.raises(FormulaError, match=rf"no function .*Write {meant}\("):
        DeclaredDesign.from_formula(f"y ~ {term}", schema)


@pytest.mark.parametrize("term", ["np.sort(x)", "np.cumsum(x)"])
def test_a_function_of_other_rows_is_no_slip_of_the_pen(term):
    schema = Schema(x=Numeric(1, 2), y=Numeric(0, 1))
    with pytest.raises(FormulaError, match="other rows"):
        DeclaredDesign.from_formula(f"y ~ {term}", schema)


def test_a_term_that_no_sum_can_hold_is_refused_unless_its_bounds_are_declared():
    wide = Schema(x=Numeric(-600, 600), y=Numeric(0, 1))
    with pytest.raises(FormulaError, match=r"3\.8e\+260"):
        DeclaredDesign.from_formula("y ~ np.exp(x)", wide)
    held = Schema({"np.exp(x)": Numeric(0, 9)}, x=Numeric(-600, 600), y=Numeric(0, 1))
    assert DeclaredDesign.from_formula("y ~ np.exp(x)", held).bounds[1].tolist() == [0, 9]
