"""Class "end of a record": one record is one row, whatever its cells hold, and n counts records.

The claims are those of `dpstats.tables.records`; records and their ends are found here by an
automaton of single bytes.
"""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpstats as dp
from dpstats.tables import records
from dpstats.tables.formats import SEPARATORS
from dpstats.tables.records import csv_batches, csv_rows, read_csv

NAMES = ("a", "b", "c")
TEXT = dp.Categorical(["x"], other="else")
SCHEMA = dp.Schema({name: TEXT for name in NAMES})


def write(folder: Path, content: bytes, separator: str = ",", name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(separator.join(NAMES).encode() + b"\n" + content)
    return path


def rows(path: Path, **declared: str) -> list[tuple[Any, ...]]:
    how = dp.CSV(path, **declared)  # type: ignore[arg-type]
    found = list(zip(*read_csv(path, SCHEMA, how).values(), strict=True))
    assert csv_rows(path, how) == len(found)
    return found


def written(cells: list[Any], separator: str = ",", end: str = "\r\n", all_: bool = False) -> bytes:
    out = io.StringIO()
    quoting = csv.QUOTE_ALL if all_ else csv.QUOTE_MINIMAL
    csv.writer(out, delimiter=separator, lineterminator=end, quoting=quoting).writerow(cells)
    return out.getvalue().encode()


def is_open(line: bytes) -> bool:
    """Whether one line ends within a quoted field: byte by byte."""
    state = "start"
    for byte in line.decode("latin-1"):
        if state == "start":
            state = "inside" if byte == '"' else "start" if byte == "," else "plain"
        elif state == "plain":
            state = "start" if byte == "," else "plain"
        elif state == "inside":
            state = "closing" if byte == '"' else "inside"
        else:
            state = {'"': "inside", ",": "start"}.get(byte, "broken")
        if state == "broken":
            return False
    return state == "inside"


CELL = st.one_of(
    st.text('",\n\r;\t|ab ', max_size=8),
    st.sampled_from(["x", "NA", "", "1,5", '"', '",', ',"', '\n"', '",\n,\n', "a,b,c\nd,e,f\n"]),
    st.text(max_size=4).filter(lambda t: t.isprintable()),
)
RECORD = st.lists(CELL, min_size=3, max_size=3)
LINE = st.one_of(
    st.binary(max_size=12),
    st.text('ab,"\r ', max_size=10).map(str.encode),
    st.sampled_from([b"", b"x", b"a,b,c", b"a,b,c,d", b'"a"b,c,d', b'a"b,c,d', b'"a,b\r', b"\xff"]),
).filter(lambda line: b"\n" not in line)
CLOSED = st.one_of(
    st.lists(CELL, min_size=1, max_size=5).map(written),  # of any number of fields
    st.builds(lambda record: record[:-2] + b"\n", RECORD.map(written)),
    LINE.filter(lambda line: not is_open(line)).map(lambda line: line + b"\n"),
)


def as_read(cells: list[str]) -> tuple[Any, ...]:
    return tuple(None if cell in records._MISSING else cell for cell in cells)


@settings(max_examples=150, deadline=None)
@given(
    table=st.lists(RECORD, max_size=6),
    separator=st.sampled_from(SEPARATORS),
    end=st.sampled_from(["\n", "\r\n"]),
    all_=st.booleans(),
)
def test_what_a_writer_that_quotes_wrote_is_read_exactly(
    tmp_path_factory, table: list[list[str]], separator: str, end: str, all_: bool
) -> None:
    if end == "\n" and not all_:  # some versions of csv.writer do not quote a carriage return then
        table = [[cell.replace("\r", "") for cell in record] for record in table]
    content = b"".join(written(record, separator, end, all_) for record in table)
    path = write(tmp_path_factory.mktemp("round"), content, separator)
    assert rows(path, separator=separator) == [as_read(record) for record in table]


@settings(max_examples=150, deadline=None)
@given(
    before=st.lists(CLOSED, max_size=4),
    one=CLOSED,
    other=CLOSED,
    after=st.lists(CLOSED, max_size=4),
)
def test_one_closed_record_for_another_moves_one_row(
    tmp_path_factory, before: list[bytes], one: bytes, other: bytes, after: list[bytes]
) -> None:
    folder, at = tmp_path_factory.mktemp("neighbours"), len(before)
    first, second = (
        rows(write(folder, b"".join([*before, record, *after]))) for record in (one, other)
    )
    assert len(first) == len(second) == at + 1 + len(after)
    assert first[:at] + first[at + 1 :] == second[:at] + second[at + 1 :]


@settings(max_examples=100, deadline=None)
@given(st.lists(LINE, max_size=5), LINE, LINE, st.lists(LINE, max_size=5))
def test_by_lines_any_line_for_another_moves_one_row(
    tmp_path_factory, before: list[bytes], one: bytes, other: bytes, after: list[bytes]
) -> None:
    folder, at = tmp_path_factory.mktemp("lines"), len(before)
    first, second = (
        rows(
            write(folder, b"".join(each + b"\n" for each in [*before, line, *after])),
            records="lines",
        )
        for line in (one, other)
    )
    assert len(first) == len(second) == at + 1 + len(after)
    assert first[:at] + first[at + 1 :] == second[:at] + second[at + 1 :]


PLAIN = CELL.filter(lambda cell: not cell.lstrip('"').startswith((",", "\n", "\r")))


@settings(max_examples=150, deadline=None)
@given(
    before=st.lists(RECORD, max_size=4),
    line=st.text('ab," ', max_size=8).map(lambda t: b'"' + t.encode()).filter(is_open),
    after=st.lists(st.lists(PLAIN, min_size=3, max_size=3), max_size=4),
)
def test_a_quote_left_open_moves_its_own_row_alone_where_no_cell_closes_it(
    tmp_path_factory, before: list[list[str]], line: bytes, after: list[list[str]]
) -> None:
    table = [*before, ["x", "x", "x"], *after]
    content = [written(record) for record in table]
    content[len(before)] = line + b"\n"
    found = rows(write(tmp_path_factory.mktemp("open"), b"".join(content)))
    expected = [as_read(record) for record in table]
    expected[len(before)] = (None, None, None)
    assert found == expected


@pytest.mark.parametrize("k", [3, 20])
def test_no_reader_bounds_what_an_open_quote_does(tmp_path: Path, k: int) -> None:
    """Two files that are written by the rules, and a third that is one bad line from either."""
    schema = dp.Schema({"a": TEXT, "b": TEXT})
    unit = written([",\n,\n", "x"], end="\n")
    assert unit == b'",\n,\n",x\n'

    def count(content: bytes) -> int:
        (tmp_path / "t.csv").write_bytes(b"a,b\n" + content)
        return len(read_csv(tmp_path / "t.csv", schema)["a"])

    one, other, between = b"a,b\n" + unit * k, b'"a\n' + unit * k, b'"a\n' + unit * k
    other = other.removesuffix(b'",x\n') + b"y,z\n"
    pairs = [["a\n", ""], *([["", ""], [",x\n", ""]] * k)[:-1], ["y", "z"]]
    as_written = b"".join(written(pair, end="\n") for pair in pairs)
    assert list(csv.reader(io.StringIO(other.decode()))) == pairs
    assert list(csv.reader(io.StringIO(as_written.decode()))) == pairs
    assert (count(one), count(other)) == (k + 1, 2 * k + 1)
    assert max(abs(count(between) - n) for n in (k + 1, 2 * k + 1)) >= k / 2


@settings(max_examples=25, deadline=None)
@given(st.lists(st.one_of(CLOSED, LINE.map(lambda line: line + b"\n")), max_size=5), st.booleans())
def test_pieces_of_any_size_give_the_same_rows(
    tmp_path_factory, content: list[bytes], last: bool
) -> None:
    folder, whole = tmp_path_factory.mktemp("pieces"), b"".join(content)
    path = write(folder, whole if last else whole.removesuffix(b"\n"))
    for declared in ("quoted", "lines"):
        usual = rows(path, records=declared)
        with pytest.MonkeyPatch.context() as patch:
            for size in range(1, len(path.read_bytes()) + 2):
                patch.setattr(records, "_CHUNK", size)
                patch.setattr(records, "_PIECE", size)
                assert rows(path, records=declared) == usual
        packed = folder / "t.csv.gz"
        packed.write_bytes(gzip.compress(path.read_bytes()))
        assert rows(packed, records=declared) == usual


def test_a_quote_ends_at_the_longest_record(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(records, "LONGEST", 60)
    path = write(tmp_path, b'"a,b,c\n' + b"x,x,x\n" * 20 + b'"y",x,x\n')
    assert rows(path) == [(None,) * 3, *[("x",) * 3] * 20, ("y", "x", "x")]
    long = "x\n" * 20
    assert rows(write(tmp_path, written([long, "x", "x"]))) == [(long, "x", "x")]


def test_a_note_of_many_lines_is_one_row_and_its_lines_are_no_rows(tmp_path: Path) -> None:
    note = "Dear all,\nplease, do, it\n" * 200
    df = pd.DataFrame({"a": ["x", note, "x"], "b": ["x", "x", note], "c": ["x"] * 3})
    path = tmp_path / "t.csv"
    df.to_csv(path, index=False)
    assert rows(path) == list(df.itertuples(index=False, name=None))
    theirs = pd.read_csv(path)
    assert len(rows(path)) == len(theirs)
    assert len(rows(path, records="lines")) == 3 + 2 * 400


def test_the_first_line_is_a_line(tmp_path: Path) -> None:
    """An open quote in it does not make names of what follows, which is somebody's."""
    path = tmp_path / "t.csv"
    path.write_bytes(b'a,b,"c\nsecret,",x\n')
    with pytest.raises(dp.errors.DataError) as error:
        read_csv(path, SCHEMA)
    assert "secret" not in str(error.value)


def test_batches_are_of_records(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(records, "_CHUNK", 2)
    path = write(tmp_path, written(["x\n\n", "x", "x"]) * 5)
    assert [len(batch["a"]) for batch in csv_batches(path, SCHEMA)] == [2, 2, 1, 0]


# -- separators and decimal marks ------------------------------------------------------------------

NUMBERS = dp.Schema(u=dp.Numeric(0, 9), k=dp.Categorical([1.5, 2], other=9))


@pytest.mark.parametrize("separator", SEPARATORS)
@pytest.mark.parametrize("decimal", [".", ","])
def test_numbers_are_read_with_their_decimal_mark(
    tmp_path: Path, separator: str, decimal: str
) -> None:
    df = pd.DataFrame({"u": [1.5, -2.25, np.nan, 1e-7, 12345.678], "k": [1.5, 2, np.nan, 7, 1.5]})
    path = tmp_path / "t.csv"
    df.to_csv(path, sep=separator, decimal=decimal, index=False)
    how = dp.CSV(path, separator=separator, decimal=decimal)
    found = read_csv(path, NUMBERS, how)
    np.testing.assert_array_equal(found["u"], df["u"])
    codes, missing = NUMBERS["k"].coerce(found["k"])
    assert codes[~missing].tolist() == [0, 1, 2, 0]
    assert missing.tolist() == [False, False, True, False, False]


def test_with_decimal_commas_a_point_is_no_decimal_mark(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("u;k\n1.500;1.5\n1,500;2,0\n3;2\n")
    found = read_csv(path, NUMBERS, dp.CSV(path, separator=";", decimal=","))
    np.testing.assert_array_equal(found["u"], [np.nan, 1.5, 3])
    assert found["k"].tolist() == ["1.5", 2.0, 2.0]


@pytest.mark.parametrize("separator", SEPARATORS)
@pytest.mark.parametrize("declared", SEPARATORS)
def test_a_first_line_with_another_separator_is_refused_in_words(
    tmp_path: Path, separator: str, declared: str
) -> None:
    path = write(tmp_path, b"", separator)
    if separator == declared:
        assert rows(path, separator=declared) == []
        return
    with pytest.raises(dp.errors.DataError, match="seem to separate") as error:
        rows(path, separator=declared)
    assert f"separator={separator!r}" in str(error.value)


@pytest.mark.parametrize("name", ["t.tsv", "T.TSV", "t.tsv.gz", "T.TSV.GZ"])
def test_tsv_implies_tabs(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, b"x\tx,y\tx\n", "\t", name)
    if name.lower().endswith(".gz"):
        path.write_bytes(gzip.compress(path.read_bytes()))
    assert rows(path) == [("x", "x,y", "x")]
