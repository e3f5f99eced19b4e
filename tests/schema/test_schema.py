"""Declarations: what is refused, what is kept, and what a template knows."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dpstats.errors import SchemaError
from dpstats.schema import Boolean, Categorical, Numeric, Schema

WRONG = {
    "reversed": lambda: Numeric(2, 1),
    "empty range": lambda: Numeric(1, 1),
    "infinite": lambda: Numeric(0, np.inf),
    "nan": lambda: Numeric(np.nan, 1),
    "text bound": lambda: Numeric("0", 1),
    "missing bound": lambda: Numeric(None, 1),
    "overflowing width": lambda: Numeric(-1.7e308, 1.7e308),
    "vanishing width": lambda: Numeric(0, 5e-324),
    "centre outside": lambda: Numeric(0, 1, center=2),
    "centre nan": lambda: Numeric(0, 1, center=np.nan),
    "scale zero": lambda: Numeric(0, 1, scale=0),
    "scale negative": lambda: Numeric(0, 1, scale=-1),
    "no levels": lambda: Categorical([]),
    "one level": lambda: Categorical(["a"]),
    "levels as text": lambda: Categorical("abc"),
    "level twice": lambda: Categorical(["a", "b", "a"]),
    "level twice by value": lambda: Categorical([1, 2, 1.0]),
    "level twice as text": lambda: Categorical([1, "1"]),
    "level nan": lambda: Categorical(["a", np.nan]),
    "level none": lambda: Categorical(["a", None]),
    "level a list": lambda: Categorical(["a", ["b"]]),
    "no columns": lambda: Schema(),
    "no declaration": lambda: Schema(x=(0, 1)),
    "name not text": lambda: Schema({1: Numeric(0, 1)}),
    "name empty": lambda: Schema({"": Numeric(0, 1)}),
    "name twice": lambda: Schema({"x": Numeric(0, 1)}, x=Numeric(0, 2)),
    "not a mapping": lambda: Schema([("x", Numeric(0, 1))]),
    "unit without rows": lambda: Schema(x=Numeric(0, 1), unit="person"),
    "rows without unit": lambda: Schema(x=Numeric(0, 1), max_rows=2),
    "no rows per unit": lambda: Schema(x=Numeric(0, 1), unit="person", max_rows=0),
    "part of a row": lambda: Schema(x=Numeric(0, 1), unit="person", max_rows=1.5),
    "unit not text": lambda: Schema(x=Numeric(0, 1), unit=3, max_rows=1),
}


@pytest.mark.parametrize("make", WRONG.values(), ids=WRONG.keys())
def test_wrong_declarations_are_refused(make):
    with pytest.raises(SchemaError):
        make()


@pytest.fixture
def schema():
    return Schema(
        {"a b": Numeric(-1, 1, center=0.5, scale=0.25)},
        visits=Numeric(0, 80),
        plan=Categorical(["free", "25", 50, 1.5, True], other="other"),
        smoker=Boolean(),
        ill=Boolean(share=0.02),
        region=Categorical(["n", "s"], other="o", shares=[0.6, 0.3, 0.1]),
        unit="person",
        max_rows=5,
    )


def test_other_becomes_a_level_only_if_it_is_not_listed():
    assert Categorical(["a", "b"], other="z").levels == ("a", "b", "z")
    assert Categorical(["a", "z", "b"], other="z").levels == ("a", "z", "b")
    assert Categorical([1, 2], other=2.0).levels == (1, 2)


def test_guesses_default_to_midpoint_and_half_width():
    assert (Numeric(2, 6).center_guess, Numeric(2, 6).scale_guess) == (4, 2)
    declared = Numeric(2, 6, center=3, scale=0.5)
    assert (declared.center_guess, declared.scale_guess) == (3, 0.5)


def test_it_is_a_mapping_with_equality(schema):
    assert list(schema) == ["a b", "visits", "plan", "smoker", "ill", "region"]
    assert len(schema) == 6
    assert "visits" in schema
    assert "person" not in schema
    assert schema.get("nothing") is None
    assert schema["visits"] == Numeric(0, 80)
    assert schema == Schema.from_dict(schema.to_dict())
    assert hash(schema) == hash(Schema.from_dict(schema.to_dict()))
    assert schema != Schema(dict(schema.items()))


def test_an_undeclared_column_is_named_with_the_remedy(schema):
    with pytest.raises(SchemaError, match=r"'age' is not declared.*Numeric\(lower, upper\)"):
        schema["age"]


def test_it_is_the_same_after_a_file(schema, tmp_path):
    schema.save(tmp_path / "schema.json")
    assert Schema.load(tmp_path / "schema.json") == schema
    stored = json.loads((tmp_path / "schema.json").read_text())
    assert (stored["format"], stored["version"]) == ("dpstats-schema", 1)


def test_its_text_is_code_that_makes_it(schema):
    names = {"Schema": Schema, "Numeric": Numeric, "Categorical": Categorical, "Boolean": Boolean}
    assert eval(repr(schema), names) == schema
    plain = Schema(x=Numeric(0, 1), unit="u", max_rows=2)
    assert eval(repr(plain), names) == plain
    assert len(repr(Schema({f"x{i}": Numeric(0, 1) for i in range(5000)}))) < 3000


def test_shares_are_guesses_that_do_not_change_what_a_value_means(schema):
    assert schema["ill"].shares == pytest.approx((0.98, 0.02))
    assert schema["region"].shares == (0.6, 0.3, 0.1)
    assert Boolean().shares is Categorical(["a", "b"]).shares is None
    assert schema["ill"] != Boolean()
    for with_shares, without in (
        (schema["ill"], Boolean()),
        (schema["region"], Categorical(["n", "s"], other="o")),
    ):
        values = ["n", "s", "elsewhere", True, 0, None]
        for one, other in zip(with_shares.coerce(values), without.coerce(values), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Boolean(share=0),
        lambda: Boolean(share=1),
        lambda: Boolean(share="0.2"),
        lambda: Boolean(share=float("nan")),
        lambda: Categorical(["a", "b"], shares=[1.0]),
        lambda: Categorical(["a", "b"], shares=[0.5, 0.3]),
        lambda: Categorical(["a", "b"], shares=[1.0, 0.0]),
        lambda: Categorical(["a", "b"], shares="ab"),
        lambda: Categorical(["a", "b"], other="c", shares=[0.5, 0.5]),
        lambda: Categorical(["a", "b"], shares=[0.5, True]),
    ],
)
def test_shares_that_are_none_are_refused(make):
    with pytest.raises(SchemaError, match="share"):
        make()


BAD_FILES = {
    "shares no list": '{"format": "dpstats-schema", "version": 1, "columns": '
    '{"x": {"type": "categorical", "levels": ["a", "b"], "shares": 0.5}}}',
    "not json": "{",
    "another object": "{}",
    "a list": "[]",
    "newer": '{"format": "dpstats-schema", "version": 99, "columns": {}}',
    "no columns": '{"format": "dpstats-schema", "version": 1, "columns": {}}',
    "unknown key": '{"format": "dpstats-schema", "version": 1, "rows": [], "columns": {}}',
    "twice": '{"format": "dpstats-schema", "version": 1, "columns": '
    '{"x": {"type": "boolean"}, "x": {"type": "boolean"}}}',
    "unknown type": '{"format": "dpstats-schema", "version": 1, "columns": {"x": {"type": "n"}}}',
    "unknown field": '{"format": "dpstats-schema", "version": 1, "columns": '
    '{"x": {"type": "boolean", "lower": 1}}}',
    "half filled": '{"format": "dpstats-schema", "version": 1, "columns": '
    '{"x": {"type": "numeric", "lower": 1, "upper": null}}}',
    "infinite": '{"format": "dpstats-schema", "version": 1, "columns": '
    '{"x": {"type": "numeric", "lower": 1, "upper": Infinity}}}',
}


@pytest.mark.parametrize("text", BAD_FILES.values(), ids=BAD_FILES.keys())
def test_a_wrong_file_is_refused(text, tmp_path):
    (tmp_path / "schema.json").write_text(text)
    with pytest.raises(SchemaError):
        Schema.load(tmp_path / "schema.json")


CANARY = "canary-7391"
FRAME = pd.DataFrame(
    {
        "number": [7391.25, 2.0],
        "count": [7391, 2],
        "text": [CANARY, "b"],
        "level": pd.Categorical([CANARY, "b"]),
        "flag": [True, False],
        "when": pd.to_datetime(["2020-01-01", "2020-01-02"]),
    }
)


@pytest.mark.parametrize(
    "table",
    [FRAME, pl.from_pandas(FRAME), pa.Table.from_pandas(FRAME), dict(FRAME.items())],
    ids=["pandas", "polars", "pyarrow", "dict"],
)
def test_a_template_knows_names_and_types_alone(table):
    template = Schema.template(table)
    kinds = {name: entry["type"] for name, entry in template.to_dict()["columns"].items()}
    assert kinds == {
        "number": "numeric",
        "count": "numeric",
        "text": "categorical",
        "level": "categorical",
        "flag": "boolean",
    }
    assert "7391" not in repr(template) + json.dumps(template.to_dict())


def test_a_template_is_the_same_for_other_rows():
    other = FRAME.iloc[:1].assign(text=None, number=np.nan).astype(FRAME.dtypes)
    assert Schema.template(other) == Schema.template(FRAME)


def test_a_template_is_used_only_after_it_was_filled(tmp_path):
    template = Schema.template(FRAME)
    with pytest.raises(SchemaError, match=r"'number' .*lower and upper"):
        template["number"]
    with pytest.raises(SchemaError, match=r"'number' \(lower and upper\).*'text' \(levels\)"):
        template.check_filled()

    template.save(tmp_path / "schema.json")
    stored = json.loads((tmp_path / "schema.json").read_text())
    for entry in stored["columns"].values():
        if entry["type"] == "numeric":
            entry |= {"lower": 0, "upper": 9}
        if entry["type"] == "categorical":
            entry["levels"] = ["a", "b"]
    (tmp_path / "schema.json").write_text(json.dumps(stored))
    filled = Schema.load(tmp_path / "schema.json")
    filled.check_filled()
    assert filled["number"] == Numeric(0, 9)
    assert filled["level"] == Categorical(["a", "b"])


def test_a_column_of_rows_is_no_list_of_levels() -> None:
    """Whether two of its rows are alike is not to be read off the error."""

    said = set()
    for rows in (["a", "b", "c"], ["a", "a", "b"], ["a", None, "b"]):
        for column in (pd.Series(rows), pl.Series(rows)):
            with pytest.raises(SchemaError, match="a column of rows; list the levels") as error:
                Categorical(column)
            said.add(str(error.value))
    assert len(said) == 1
    assert Categorical(pd.Categorical(["b", "a"]).categories).levels == ("a", "b")
