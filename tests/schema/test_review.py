"""The page a reviewer signs has all that is declared; other schemas give their bounds."""

import pandas as pd
import pytest

import dpstats as dp
from dpstats.cli import main
from dpstats.errors import SchemaError

SCHEMA = dp.Schema(
    age=dp.Numeric(0, 70, center=35, scale=20),
    pay=dp.Numeric(-1.5, 8191.37),
    plan=dp.Categorical(["free", "25"], other="other"),
    sick=dp.Boolean(),
)


def test_the_page_has_every_declaration_and_fits_a_terminal() -> None:
    page = str(SCHEMA.review())
    assert max(map(len, page.splitlines())) <= 80
    for line in (
        "[ ] age: 0 to 70 (guess: about 35, give or take 20)",
        "[ ] pay: -1.5 to 8191.37",
        "[ ] plan: free, 25, other; any other answer counts as 'other'",
        "[ ] sick: anything else counts as missing",
        "[ ] The unit of privacy is one row.",
        "Read and agreed: ",
    ):
        assert line in page
    of_persons = str(dp.Schema(SCHEMA, unit="person", max_rows=5).review())
    assert "all rows with one 'person'; at most 5 of them count" in of_persons


def test_what_looks_learned_from_rows_is_asked_about() -> None:
    assert SCHEMA.review().questions == ("pay: 8191.37 looks computed. A round number tells less.",)
    many = dp.Schema(name=dp.Categorical([f"p{i}" for i in range(100)]))
    assert many.review().questions == ("name: 100 levels look like values of rows.",)
    few = dp.Schema(year=dp.Numeric(1990, 2025), income=dp.Numeric(0, 30_000))
    assert few.review().questions == ()
    blank = dp.Schema.template(pd.DataFrame({"x": [1.0, 2.0]}))
    assert blank.review().questions == ("x: fill in lower and upper.",)


def test_another_schema_has_another_digest() -> None:
    other = SCHEMA.replaced({"age": dp.Numeric(0, 71, center=35, scale=20)})
    digests = {str(s.review()).partition("\nSchema ")[2][:16] for s in (SCHEMA, other)}
    assert len(digests) == 2
    assert str(SCHEMA.review()) == str(dp.Schema.from_dict(SCHEMA.to_dict()).review())


def test_names_do_nothing_to_a_terminal() -> None:
    page = str(dp.Schema({"a\x1b[2Jb\nc": dp.Numeric(0, 1.23456)}).review())
    assert "\x1b" not in page
    assert "\nc" not in page


def test_the_page_is_printed_in_a_shell(tmp_path, capsys) -> None:
    SCHEMA.save(tmp_path / "schema.json")
    assert main(["schema", "review", str(tmp_path / "schema.json")]) == 0
    assert capsys.readouterr().out == f"{SCHEMA.review()}\n"


def test_bounds_of_pandera_are_taken() -> None:
    pa = pytest.importorskip("pandera.pandas")
    frame = pa.DataFrameSchema(
        {
            "age": pa.Column(int, pa.Check.in_range(18, 90)),
            "y": pa.Column(float, [pa.Check.ge(0), pa.Check.ge(-1), pa.Check.lt(5)]),
            "g": pa.Column(str, pa.Check.isin(["a", "b"])),
            "c": pa.Column(pd.CategoricalDtype(["u", "v"])),
            "b": pa.Column(bool),
            "half": pa.Column(float, pa.Check.ge(0)),
            "name": pa.Column(str),
            "day": pa.Column("datetime64[ns]"),
        }
    )
    schema = dp.Schema.template(frame)
    assert repr(schema) == repr(
        dp.Schema(
            age=dp.Numeric(18, 90),
            y=dp.Numeric(0, 5),
            g=dp.Categorical(["a", "b"]),
            c=dp.Categorical(["u", "v"]),
            b=dp.Boolean(),
        )
    ).replace("\n)", "\n    half=Numeric(?, ?),\n    name=Categorical([?]),\n)")

    class Person(pa.DataFrameModel):
        age: int = pa.Field(ge=18, le=90)

    assert dp.Schema.template(Person) == dp.Schema(age=dp.Numeric(18, 90))
    with pytest.raises(SchemaError, match=r"'age'.*lower must be below upper"):
        dp.Schema.template(pa.DataFrameSchema({"age": pa.Column(int, pa.Check.in_range(9, 9))}))


def test_bounds_in_the_metadata_of_arrow_fields_are_taken() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    fields = [
        pyarrow.field("age", pyarrow.int64(), metadata={"lower": "0", "upper": "70", "scale": "9"}),
        pyarrow.field("g", pyarrow.string(), metadata={"levels": '["a", "b"]', "other": '"z"'}),
        pyarrow.field("x", pyarrow.float64(), metadata={"note": "in metres"}),
        pyarrow.field("b", pyarrow.bool_()),
        pyarrow.field("day", pyarrow.date32()),
    ]
    schema = dp.Schema.template(pyarrow.schema(fields), boolean=["x"])
    assert schema == dp.Schema(
        age=dp.Numeric(0, 70, scale=9),
        g=dp.Categorical(["a", "b"], other="z"),
        x=dp.Boolean(),
        b=dp.Boolean(),
    )
    wrong = pyarrow.schema([pyarrow.field("x", pyarrow.int8(), metadata={"lower": "low"})])
    with pytest.raises(SchemaError, match="'x': its lower in the metadata is no JSON"):
        dp.Schema.template(wrong)
