"""Responses inside their family's domain, and known terms of the linear predictor."""

import numpy as np
import pytest

from dpstats.design import DeclaredDesign, Design, design_from_dict
from dpstats.errors import DataError, FormulaError, SchemaError
from dpstats.families import BINOMIAL, GAUSSIAN, POISSON, Family
from dpstats.schema import Boolean, Categorical, Numeric, Schema

SCHEMA = Schema(
    n=Numeric(0, 20, center=3, scale=2),
    x=Numeric(-1, 3),
    years=Numeric(0.5, 4),
    o=Numeric(-1, 2),
    yes=Categorical(["no", "yes"]),
    one=Categorical([1, 0]),
    two=Categorical([1, 2]),
    b=Boolean(),
    share=Numeric(0.1, 1),
    g=Categorical(["a", "b", "c"]),
    wide=Numeric(-1, 2),
    unit="person",
    max_rows=1,
    person=Numeric(0, 9),
)
TABLE = {
    "n": [1.0, np.nan, 99.0, -3.0, 4.0],
    "x": [0.0, 0.5, 1.0, 2.0, -9.0],
    "years": [1.0, 2.0, 9.0, 0.0, np.nan],
    "o": [0.0, 0.0, 5.0, -1.0, 1.0],
    "yes": ["no", "yes", "maybe", None, "yes"],
    "one": [1, 0, 1, 0, 7],
    "two": [1, 2, 1, 2, 7],
    "b": [True, False, True, False, True],
    "share": [0.1, 0.5, 7.0, -7.0, np.nan],
    "person": [1, 2, 3, 4, 5],
}
LOG_LINEAR = [POISSON, Family("poisson", "identity"), Family("gaussian", "log"), BINOMIAL]


def rows(design: Design):
    return design.source(TABLE).block(0, 5)


CODED = {  # response -> values of the rows, NaN where the row is not kept
    "yes": [0, 1, np.nan, np.nan, 1],
    "one": [1, 0, 1, 0, np.nan],  # 0 and 1 mean themselves, in any order
    "two": [0, 1, 0, 1, np.nan],
    "b": [1, 0, 1, 0, 1],
    "share": [0.1, 0.5, 1, 0.1, np.nan],
    "I(n > 2)": [0, np.nan, 1, 0, 1],
}


@pytest.mark.parametrize(("name", "values"), CODED.items(), ids=CODED.keys())
def test_a_binomial_response_is_coded_0_and_1_and_never_raises(name, values):
    block = rows(DeclaredDesign.from_formula(f"{name} ~ x", SCHEMA, family=BINOMIAL))
    np.testing.assert_array_equal(np.where(block.keep, block.y, np.nan), values)
    assert ((block.y >= 0) & (block.y <= 1)).all()


BAD = [
    ("g", BINOMIAL, "3 levels"),
    ("n", BINOMIAL, r"0 and 20.*Numeric\(0, 1\)"),
    ("wide", BINOMIAL, "-1 and 2"),
    ("wide", POISSON, r"-1 and 2.*Numeric\(0, upper\)"),
    ("I(n - 1)", POISSON, "never negative"),
]


@pytest.mark.parametrize(("name", "family", "says"), BAD)
def test_a_response_that_may_leave_its_domain_is_refused_by_its_declaration(name, family, says):
    with pytest.raises(SchemaError, match=says):
        DeclaredDesign.from_formula(f"{name} ~ x", SCHEMA, family=family)


@pytest.mark.parametrize("family", LOG_LINEAR, ids=str)
def test_only_a_gaussian_response_changes_units(family):
    response = "share" if family == BINOMIAL else "n"
    design = DeclaredDesign.from_formula(f"{response} ~ x", SCHEMA, family=family)
    standard = design.standardization
    assert (standard.y_center, standard.y_scale) == (0, 1)
    assert (standard.x_center[1], standard.x_scale[1]) == (1, 2)
    assert design.internal_endog_bounds == (design.endog.lower, design.endog.upper)
    if response == "n":
        assert (design.endog.center, design.endog.scale) == (3, 2)  # the guesses stay
    plain = DeclaredDesign.from_formula("n ~ x", SCHEMA).standardization
    assert (plain.y_center, plain.y_scale) == (3, 2)


# -- offsets -------------------------------------------------------------------------------------

KNOWN = {
    "column": ({"offset": "o"}, "o", (-1, 2)),
    "term": ({"offset": "np.log(years)"}, "np.log(years)", np.log([0.5, 4])),
    "exposure": ({"exposure": "years"}, "log(years)", np.log([0.5, 4])),
    "both": (
        {"offset": "o", "exposure": "years"},
        "o + log(years)",
        (np.log(0.5) - 1, np.log(4) + 2),
    ),
}


def by_hand(options) -> np.ndarray:
    years = np.clip(TABLE["years"], 0.5, 4)
    known = np.clip(TABLE["o"], -1, 2) if options.get("offset") == "o" else 0.0
    return known + (np.log(years) if options != {"offset": "o"} else 0.0)


@pytest.mark.parametrize(("options", "name", "ends"), KNOWN.values(), ids=KNOWN.keys())
def test_a_known_term_has_public_bounds_and_one_value_per_row(options, name, ends):
    design = DeclaredDesign.from_formula("n ~ x", SCHEMA, family=POISSON, **options)
    assert design.offset.name == name
    np.testing.assert_allclose((design.offset.lower, design.offset.upper), ends)
    block, expected = rows(design), by_hand(options)
    keep = ~np.isnan(expected) & ~np.isnan(TABLE["n"])
    np.testing.assert_array_equal(block.keep, keep)
    np.testing.assert_allclose(block.offset[keep], expected[keep])
    assert (design.offset.lower <= block.offset).all()
    assert (block.offset <= design.offset.upper).all()
    np.testing.assert_allclose(design.known_term(TABLE), expected)
    assert design.exog(TABLE).shape == (5, 2)  # a prediction's rows need no known term


OFFSETS = {key: case for key, case in KNOWN.items() if "exposure" not in case[0]}


@pytest.mark.parametrize(("options", "name", "ends"), OFFSETS.values(), ids=OFFSETS.keys())
def test_a_known_term_is_taken_off_a_gaussian_response(options, name, ends):
    design = DeclaredDesign.from_formula("n ~ x", SCHEMA, **options)
    assert design.offset.name == name
    block, raw = rows(design), design.source(TABLE).raw(0, 5)
    assert block.offset is None
    expected = np.clip(TABLE["n"], 0, 20) - by_hand(options)
    np.testing.assert_array_equal(raw.keep, ~np.isnan(expected))
    np.testing.assert_allclose(raw.y[raw.keep], expected[raw.keep])
    low, high = design.internal_endog_bounds
    assert (low <= block.y).all()
    assert (block.y <= high).all()
    np.testing.assert_allclose((design.endog.lower, design.endog.upper), (-ends[1], 20 - ends[0]))


def test_a_declared_term_bounds_the_offset():
    schema = Schema({"np.log(t)": Numeric(-2, 1)}, t=Numeric(0, 5), y=Numeric(0, 9))
    design = DeclaredDesign.from_formula("y ~ 1", schema, family=POISSON, offset="np.log(t)")
    assert (design.offset.lower, design.offset.upper) == (-2, 1)
    np.testing.assert_allclose(design.known_term({"t": [0, 1, 5, np.nan]}), [-2, 0, 1, np.nan])


BAD_KNOWN = [
    ({"exposure": "o"}, SchemaError, "above 0"),
    ({"exposure": "b"}, SchemaError, "above 0"),
    ({"offset": "np.log(o)"}, FormulaError, "finite bounds"),
    ({"offset": "g"}, FormulaError, "categorical"),
    ({"offset": "poly(x, 2)"}, FormulaError, "several columns"),
    ({"offset": "weeks"}, FormulaError, "does not declare"),
    ({"offset": "x - x.mean()"}, FormulaError, "mean"),
    ({"offset": np.zeros(5)}, FormulaError, "ndarray"),
]


@pytest.mark.parametrize(("options", "error", "says"), BAD_KNOWN)
def test_a_known_term_without_public_bounds_is_refused(options, error, says):
    with pytest.raises(error, match=says):
        DeclaredDesign.from_formula("n ~ x", SCHEMA, family=POISSON, **options)


def test_a_design_without_one_has_no_known_term():
    design = DeclaredDesign.from_formula("n ~ x", SCHEMA, family=POISSON)
    assert design.offset is None
    assert rows(design).offset is None
    assert not design.source(TABLE).has_offset
    with pytest.raises(FormulaError, match="no offset"):
        design.known_term(TABLE)


@pytest.mark.parametrize("family", [GAUSSIAN, *LOG_LINEAR], ids=str)
def test_family_and_offset_are_stored_with_the_design(family):
    name = "share" if family == BINOMIAL else "n"
    term = {"exposure": "years"} if family.link == "log" else {"offset": "np.log(years)"}
    design = DeclaredDesign.from_formula(f"{name} ~ x", SCHEMA, family=family, **term)
    copy = design_from_dict(design.to_dict())
    assert copy == design
    assert (copy.family, copy.offset) == (family, design.offset)
    assert copy != DeclaredDesign.from_formula(f"{name} ~ x", SCHEMA, family=family)
    bounds = {"exog": (0, 1), "endog": (0, 1), "offset": (-1, 1)}
    bounds |= {"exposure": (1, 2)} if family.link == "log" else {}
    arrays = DeclaredDesign.from_arrays(2, bounds, family=family)
    copy = design_from_dict(arrays.to_dict())
    assert copy == arrays
    assert (copy.family, copy.offset) == (family, arrays.offset)


# -- arrays --------------------------------------------------------------------------------------

ENDOG, EXOG = np.array([0.0, 1.0, np.nan, 5.0, -1.0]), np.ones((5, 1))


def test_arrays_take_known_terms_with_their_bounds():
    design = DeclaredDesign.from_arrays(
        1, {"exog": (1, 1), "endog": (0, 4), "offset": (-1, 1), "exposure": (1, 8)}, family=POISSON
    )
    known = {"offset": [0.0, 3.0, 0.0, 0.0, np.nan], "exposure": [1.0, 2.0, 3.0, 0.0, 1.0]}
    block = design.source((ENDOG, EXOG, known)).block(0, 5)
    np.testing.assert_array_equal(block.keep, [True, True, False, True, False])
    np.testing.assert_allclose(block.offset[[0, 1, 3]], [0, 1 + np.log(2), 0])
    np.testing.assert_allclose(block.y[[0, 1, 3]], [0, 1, 4])
    np.testing.assert_allclose(design.known_term(known)[:2], [0, 1 + np.log(2)])


def test_known_terms_of_arrays_are_checked():
    design = DeclaredDesign.from_arrays(
        1, {"exog": (1, 1), "endog": (0, 4), "exposure": (1, 8)}, family=POISSON
    )
    with pytest.raises(DataError, match="exposure"):
        design.source((ENDOG, EXOG))
    with pytest.raises(DataError, match="exposure has 3 rows and exog 5"):
        design.source((ENDOG, EXOG, {"exposure": np.ones(3)}))
    with pytest.raises(DataError, match="'exposure' has type text"):
        design.source((ENDOG, EXOG, {"exposure": np.array(list("abcde"))}))
    with pytest.raises(SchemaError, match="above 0"):
        DeclaredDesign.from_arrays(
            1, {"exog": (1, 1), "endog": (0, 4), "exposure": (0, 8)}, family=POISSON
        )
    with pytest.raises(SchemaError, match="binomial"):
        DeclaredDesign.from_arrays(1, {"exog": (1, 1), "endog": (0, 4)}, family=BINOMIAL)
    with pytest.raises(SchemaError, match="endog_name"):
        DeclaredDesign.from_arrays(
            1, {"exog": (1, 1), "endog": (0, 4), "offset": (0, 1)}, endog_name="offset"
        )
