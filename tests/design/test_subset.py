"""A subset is an expression of declared columns, evaluated row by row and never run."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpstats as dp
from dpstats.design.subsets import read_subset
from dpstats.design.terms import Terms
from dpstats.errors import DPStatsError, FormulaError

SCHEMA = dp.Schema(
    {
        "urban": dp.Boolean(share=0.3),
        "age": dp.Numeric(0, 100),
        "pay": dp.Numeric(-10, 10),
        "region": dp.Categorical(["north", "east", "south"], other="other"),
        "code": dp.Categorical([1, 2, 10]),
        "a b": dp.Numeric(0, 1),
        "y": dp.Numeric(0, 1),
    }
)
ROWS = pd.DataFrame(
    {
        "urban": [True, False, True, True, False, None],
        "age": [18.0, 40.0, 17.9, np.nan, 70.0, 33.0],
        "pay": [-3.0, 2.0, 0.0, 1.0, 5.0, 7.0],
        "region": ["north", "east", "west", "south", "north", "east"],
        "code": [1, 2, 10, 1, 2, 10],
        "a b": [0.0, 1.0, 0.5, 0.2, 0.9, 0.4],
        "y": np.zeros(6),
    }
)


def inside(text: str, table: pd.DataFrame = ROWS) -> list[bool]:
    design = dp.ols("y ~ pay", schema=SCHEMA, n=6, subset=text).design
    return [bool(v) for v in design.source(table).block(0, len(table)).keep]


# Each with the same in pandas, where a missing value of a column that is read is outside.
EXPRESSIONS = {
    "urban": ("urban == True", "urban"),
    "urban & age >= 18": ("urban == True & age >= 18", "urban age"),
    "urban and not age >= 18": ("urban == True & ~(age >= 18)", "urban age"),
    "~urban | age < 18": ("urban == False | age < 18", "urban age"),
    "~(urban | pay > 3)": ("~(urban == True | pay > 3)", "urban"),
    "18 <= age < 70": ("18 <= age < 70", "age"),
    "region == 'north'": ("region == 'north'", "region"),
    "'north' != region": ("region != 'north'", "region"),
    "region in ['north', 'east']": ("region in ['north', 'east']", "region"),
    "region not in ('north', 'east') & urban": (
        "region not in ['north', 'east'] & urban == True",
        "region urban",
    ),
    "region == 'other'": ("region == 'west'", "region"),
    "code == 2 | code == '10'": ("code == 2 | code == 10", "code"),
    "pay ** 2 > 2 * age / 10 - 3": ("pay ** 2 > 2 * age / 10 - 3", "age"),
    "np.abs(pay) >= 3": ("abs(pay) >= 3", "pay"),
    "urban == 1 and age in [18, 33]": ("urban == True & age in [18, 33]", "urban age"),
    "`a b` > 0.3 & Q('a b') < 1": ("`a b` > 0.3 & `a b` < 1", "pay"),
}


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_a_subset_is_what_pandas_finds(text: str) -> None:
    query, reads = EXPRESSIONS[text]
    found = set(ROWS.dropna(subset=reads.split()).query(query, engine="python").index)
    assert inside(text) == [i in found for i in range(len(ROWS))]
    assert 0 < len(found) < len(ROWS)


def test_text_holds_no_operators() -> None:
    schema = dp.Schema(g=dp.Categorical(["a & b", "~c", 'd"|"']), y=dp.Numeric(0, 1))
    table = pd.DataFrame({"g": ["a & b", "~c", 'd"|"', "a & b"], "y": np.zeros(4)})
    for level in ("a & b", "~c", 'd"|"'):
        model = dp.ols("y ~ 1", schema=schema, n=4, subset=f"g == {level!r}")
        kept = model.design.source(table).block(0, 4).keep
        assert kept.tolist() == (table["g"] == level).tolist()


REFUSED: dict[str, tuple[Any, str]] = {
    "no text": (3, "a text is needed"),
    "a mask": (np.ones(3, bool), "a text is needed"),
    "empty": ("  ", "1 to 2,000"),
    "a line feed": ("urban\n", "printable"),
    "no expression": ("urban &", "cannot be parsed"),
    "a statement": ("urban = 1", "cannot be parsed"),
    "undeclared": ("rural & urban", "does not declare"),
    "meant": ("regoin == 'north'", "Did you mean 'region'"),
    "undeclared level": ("region == 'west'", "one of 'north', 'east', 'south', 'other'"),
    "undeclared level of several": ("code in [1, 3]", "no level of 'code'"),
    "order of levels": ("region > 'north'", "no order"),
    "number as truth": ("age & urban", "age == 1"),
    "factor as truth": ("region | urban", "region == 'north'"),
    "no column": ("1 < 2 & urban", "reads no column"),
    "a constant": ("True", "no comparison of columns"),
    "text as a number": ("age == 'old'", "no number"),
    "other rows": ("age > age.mean()", "other rows"),
    "a function": ("__import__('os').system('x') == 0", "other rows"),
    "a call": ("eval('1') == age", "not a known row-wise one"),
    "an index": ("age[0] > 1", "picks rows"),
    "a lambda": ("(lambda: urban)()", "no comparison"),
    "a name": ("age > limit", "does not declare"),
    "a captured name": ("region == df", "no constant"),
    "no finite number": ("1 / pay > 0", "no finite bounds"),
    "too large": (f"age > {10**400}", "too large"),
    "too long": ("urban | " * 300 + "urban", "1 to 2,000"),
    "too many": ("|".join(["age>1"] * 330), "too many parts"),
    "too deep": ("(" * 900 + "urban" + ")" * 900, "cannot be parsed"),
    "too deep, negated": ("~" * 900 + "urban", "inside of each other"),
    "is": ("age is 3", "not known"),
    "a list that is none": ("region in urban", "no list"),
    "an expression in a list": ("age + 1 in [2]", "no column"),
    "walrus": ("(z := urban)", "no comparison"),
    "star": ("age in [*region]", "no constant"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_such_expression_is_refused_in_no_time(case: str) -> None:
    text, said = REFUSED[case]
    if (
        case == "too deep"
    ):  # parentheses leave no trace in a syntax tree; Python's parser may refuse
        return
    start = time.perf_counter()
    with pytest.raises(FormulaError, match=r"(?s).*" + said.replace("(", r"\(")) as refusal:
        dp.ols("y ~ pay", schema=SCHEMA, n=100, subset=text)
    assert time.perf_counter() - start < 1.0
    assert len(str(refusal.value)) < 3_000


def test_a_response_in_a_subset_and_a_column_of_a_wrong_type() -> None:
    assert dp.ols("y ~ pay", schema=SCHEMA, n=9, subset="y > 0").design.subset == "y > 0"
    table = ROWS.assign(age=["old"] * 6)
    with pytest.raises(DPStatsError, match="age"):
        dp.ols("y ~ pay", table, SCHEMA, subset="age > 3").fit(dp.Central(1.0, 1e-6))
    with pytest.raises(DPStatsError, match="age"):
        dp.ols("y ~ pay", ROWS.drop(columns="age"), SCHEMA, subset="age > 3").fit(
            dp.Central(1.0, 1e-6)
        )


def test_the_share_is_guessed_from_the_schema() -> None:
    def share(text: str) -> float:
        return read_subset(text, Terms(SCHEMA)).guessed_share()

    assert share("urban") == pytest.approx(0.3, abs=0.01)
    assert share("urban & age >= 80") == pytest.approx(0.06, abs=0.02)
    assert share("code in [1, 2]") == pytest.approx(2 / 3, abs=0.01)
    assert share("age < 0") == pytest.approx(1 / 4096)


def test_a_design_of_a_subset_is_read_again_from_its_file() -> None:
    design = dp.ols("y ~ pay", schema=SCHEMA, n=9, subset=" urban & age >= 18 ").design
    again = type(design).from_dict(design.to_dict())
    assert again == design
    assert again.subset == "urban & age >= 18"
    assert design.columns == ("y", "pay", "age", "urban")
    assert design.inputs == ("y", "pay")
    assert design.predictors == ("pay",)
    assert design != dp.ols("y ~ pay", schema=SCHEMA, n=9).design


def test_a_row_outside_takes_no_place_of_its_unit() -> None:
    schema = SCHEMA.replaced({})
    schema = dp.Schema(dict(SCHEMA), unit="who", max_rows=1)
    table = pd.DataFrame(
        {"who": [1, 1, 1, 2], "urban": [False, False, True, False], "pay": 1.0, "y": 1.0}
    )
    design = dp.ols("y ~ pay", schema=schema, n=9, subset="urban").design
    block = design.source(table).block(0, 4)
    assert block.keep.tolist() == [False, False, True, False]
    assert len(set(block.unit.tolist())) == 4
