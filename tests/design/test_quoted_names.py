"""A quoted column name is that column, whatever it looks like."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpstats as dp
from dpstats.design import DeclaredDesign, PublicDesign
from dpstats.design.fitted_formula import FittedFormula
from dpstats.design.written import Written, sides, term
from dpstats.errors import FormulaError, SchemaError

NAMES = [
    *("1", "0", "2", "-1", "2.5", "1e3", ".", "~", "|", "+", "a b", "a-b", "a:b", "x.y"),
    *("np.log(x)", "C(g)", "I(x)", "it's so's", "'s'", 'say "hi"', "n\u00a0b", "t\tb", "a)b"),
    *("a(b", "{a}", "b%c", "back\\", "lambda", "None", "\u00b5", "\u03bc", "e\u0301", " x "),
    *("a=b", "a,b", "Q", "np", "C"),
]
N = 200
ANY = dp.Numeric(0.5, 1)


def table(name: str) -> dict[str, Any]:
    x = np.random.default_rng(0).uniform(0.5, 1, (N, 3))
    return {name: x[:, 0], "zz": x[:, 1], "y": x.sum(axis=1)}


def tame(name: str) -> tuple[str, dict[str, Any]]:
    """The same columns, with a name that is one."""
    data = table(name)
    return "tame", {"tame" if n == name else n: v for n, v in data.items()}


def forms(name: str) -> list[str]:
    """Right sides that read the column in every way."""
    ticked = term(name)
    return [
        f"{ticked} + zz",
        f"{ticked}*zz",
        f". - {ticked}",
        f"zz*np.exp({ticked})",
        f"zz + I({ticked}*{ticked})",
        f"zz + np.log(Q({name!r}))",
        f"0 + {ticked}:zz + zz",
        f"scale({ticked}) + poly({ticked}, 2)",
    ]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("public", [False, True])
def test_a_column_of_any_name_makes_the_columns_that_one_of_a_tame_name_makes(name, public):
    other, renamed = tame(name)
    for hostile, plain in zip(forms(name), forms(other), strict=True):
        made = []
        for right, data in ((hostile, table(name)), (plain, renamed)):
            schema = dp.Schema({n: ANY if n != "y" else dp.Numeric(0, 3) for n in data})
            if public:
                fitted, matrix = FittedFormula.fit(right, data, [n for n in data if n != "y"])
                again = FittedFormula.from_dict(fitted.to_dict())
                np.testing.assert_array_equal(again.apply(data), matrix)
                made.append(matrix)
            else:
                design = DeclaredDesign.from_formula(f"y ~ {right}", schema)
                assert DeclaredDesign.from_dict(design.to_dict()).names == design.names
                made.append(design.exog(data))
        np.testing.assert_array_equal(*made, err_msg=hostile)


@pytest.mark.parametrize("name", NAMES)
def test_a_factor_and_a_response_of_any_name(name):
    schema = dp.Schema({name: dp.Categorical(["a", "b'"]), "y": ANY})
    for right in (f"C({term(name)})", term(name), f'C({term(name)}, Treatment("b\'"))'):
        assert len(DeclaredDesign.from_formula(f"y ~ {right}", schema).names) == 2
    response = DeclaredDesign.from_formula(f"{term(name)} ~ zz", dp.Schema({name: ANY, "zz": ANY}))
    assert response.endog is not None
    assert response.endog.name == name


def test_a_number_is_no_name_and_a_name_no_number():
    schema = dp.Schema({"1": ANY, "2": ANY, "0": ANY, "y": dp.Numeric(0, 3)})
    for right, names in {
        "`1` + `2`": ("Intercept", "1", "2"),
        ". - `1`": ("Intercept", "2", "0"),
        "`1` - 1": ("1",),
        "0 + `1`": ("1",),
        "`0`": ("Intercept", "0"),
        "`1`:`2` + 1": ("Intercept", "1:2"),
        ".": ("Intercept", "1", "2", "0"),
        "(.)**2 - `1`:`2`": ("Intercept", "1", "2", "0", "1:0", "2:0"),
    }.items():
        assert DeclaredDesign.from_formula(f"y ~ {right}", schema).names == names, right


def test_a_term_and_a_column_of_its_text_are_two():
    schema = dp.Schema({"I(x)": ANY, "x": ANY, "y": ANY})
    with pytest.raises(FormulaError, match="two columns named"):
        DeclaredDesign.from_formula("y ~ `I(x)` + I(x)", schema)
    assert DeclaredDesign.from_formula("y ~ I(x) - `I(x)`", schema).names == ("Intercept", "I(x)")


def test_a_name_in_backticks_without_need_is_the_name():
    schema = dp.Schema(x=ANY, y=ANY)
    for right in ("x + `x`", "np.log(x) + np.log(`x`)", "np.exp(`x`)"):
        assert len(DeclaredDesign.from_formula(f"y ~ {right}", schema).names) == 2


def test_learned_state_of_an_earlier_release_is_read():
    """What was written under the names that formulaic gave is found under ours."""
    data = {"a b": np.arange(8.0), "c d": list("abababab")}
    fitted, _ = FittedFormula.fit("scale(`a b`) + `c d`", data, list(data))
    kept = fitted.to_dict()
    before = str(kept["state"]).replace("scale(`a b`)', {'m", "scale(a_b)', {'m")
    before = before.replace("'`c d`'", "'c d'")
    assert before != str(kept["state"])
    again = FittedFormula.from_dict({**kept, "state": eval(before)})
    few = {"a b": np.array([3.0]), "c d": ["b"]}
    np.testing.assert_array_equal(again.apply(few), fitted.apply(few))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("y ~ x", ("y", "x")),
        ("`~` ~ `a~b` + x", ("`~`", "`a~b` + x")),
        ("~ x", ("", "x")),
        ("x", ("", "x")),
        ("y ~ C(g, Treatment('~'))", ("y", "C(g, Treatment('~'))")),
    ],
)
def test_the_sides_of_a_formula_are_apart_at_the_tilde_that_is_no_name(text, found):
    assert sides(text) == found


def test_what_formulaic_gets_has_no_backtick():
    written = Written.of("`a` + np.log(`b c`) + Q('d') + C(g, Treatment('`'))", ["1", "x"])
    assert "`" not in written.text
    assert written.visible(" ".join(written.text.split())).count("`") == 3


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ("income", "other upper and lower case"),
        ("age", "a space at its end"),
        ("`age  `", "a space at its end"),
        ("`\u03bc`", "U+00B5 and not U+03BC"),
        ("np.exp(\u00b5)", "write it in backticks"),
        ("`cafe\u0301`", "U+00E9 and not U+0301"),
        ("`n b`", "U+00A0"),
        ("Q('age')", "a space at its end"),
        ("`two  words`", "other spaces"),
    ],
)
def test_an_unknown_name_is_told_which_looks_alike_and_why_it_differs(asked, why):
    names = ["Income", "age ", "\u00b5", "caf\u00e9", "n\u00a0b", "y", "two words"]
    with pytest.raises((FormulaError, SchemaError)) as caught:
        DeclaredDesign.from_formula(f"y ~ {asked}", dp.Schema(dict.fromkeys(names, ANY)))
    assert why in str(caught.value)
    assert "Did you mean" in str(caught.value)


CONTRASTS = ["Treatment", "Sum", "Helmert", "Poly", "Diff"]
CONTRASTS += [f"contr.{n}" for n in ("treatment", "sum", "helmert", "poly", "diff", "SAS")]
LEVELS = dp.Schema(g=dp.Categorical(["a", "b", "it's", "d)"]), y=ANY)
WRONG = ['"zz"', "1", "None", "x", "[1, 2]", "ref='a'", "0, 1, 2", "scores='ab'", "base=b'a'"]
WRONG += [
    "reference='A'",
    "omit='a'",
    "reverse=2",
    "scale='x'",
    "backward=None",
    "scores=[1, 1, 2, 3]",
]


@pytest.mark.parametrize("contrast", CONTRASTS)
def test_every_contrast_is_taken_by_its_name_and_called(contrast):
    named, called = (
        DeclaredDesign.from_formula(f"y ~ C(g, {text})", LEVELS)
        for text in (contrast, f"{contrast}()")
    )
    assert len(named.names) == 4
    data = {"g": ["a", "b", "it's", "d)"]}
    np.testing.assert_array_equal(named.exog(data), called.exog(data))


@pytest.mark.parametrize("contrast", CONTRASTS)
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_argument_of_a_contrast_is_told_what_is_right(contrast, wrong):
    with pytest.raises(FormulaError) as caught:
        DeclaredDesign.from_formula(f"y ~ C(g, {contrast}({wrong}))", LEVELS)
    said = str(caught.value)
    assert "Write" in said
    assert contrast in said or "constant" in said
    if wrong == '"zz"' and contrast.endswith(("reatment", "SAS")):
        assert "'a', 'b', \"it's\", 'd)'" in said


@pytest.mark.parametrize(
    ("right", "noted"),
    [("b - 1", True), ("b", False), ("b:x", True), ("b*x", False), ("g + b - 1", False)],
)
def test_a_boolean_that_spans_less_than_in_statsmodels_is_noted(right, noted):
    smf = pytest.importorskip("statsmodels.formula.api")
    schema = dp.Schema(b=dp.Boolean(), x=ANY, g=dp.Categorical(["u", "v"]), y=ANY)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"b": rng.uniform(size=40) < 0.5, "g": rng.choice(["u", "v"], 40)})
    frame[["x", "y"]] = rng.uniform(0.5, 1, (40, 2))
    design = DeclaredDesign.from_formula(f"y ~ {right}", schema)
    ours = np.linalg.matrix_rank(design.exog(frame))
    theirs = np.linalg.matrix_rank(smf.ols(f"y ~ {right}", frame).exog)
    assert (ours < theirs) == noted == any("Boolean" in note for note in design.notes)
    whole = DeclaredDesign.from_formula(f"y ~ {right.replace('b', 'C(b)')}", schema)
    assert np.linalg.matrix_rank(whole.exog(frame)) == theirs


def test_public_covariates_name_the_same():
    data = pd.DataFrame(table("1"))
    schema = dp.Schema(y=dp.Numeric(0, 3))
    design = PublicDesign.of_table("y ~ . - `1`", schema, data)
    assert design.names == ("Intercept", "zz")
    assert PublicDesign.of_table("y ~ `1` + zz", schema, data).names == ("Intercept", "1", "zz")
