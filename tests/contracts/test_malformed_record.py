"""Class "malformed record": whatever bytes one line of a file holds, it is one row, and its own.

(By quotes, where no cell closes a quote that it leaves open; see `test_csv_records.py`.)

Files go through the command line; the exact totals are those that reach the mechanisms.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpstats as dp
from dpstats.cli import main
from dpstats.tables.records import read_csv
from tests.contracts.cases import COLUMNS, MODELS, table
from tests.contracts.hostile import LINES, first_fit, same_questions
from tests.contracts.test_sensitivity import ROUNDING, largest_move
from tests.grids import grid

N = 40
NAMES = ("y", "x1", "x2", "g")
SCHEMA = dp.Schema({"y": MODELS["ols"].endog, **COLUMNS})


def lines_of(n: int = N) -> list[bytes]:
    data = table(n)
    return [
        ",".join(str(v) for v in row).encode()
        for row in zip(*(data[c] for c in NAMES), strict=True)
    ]


def write(folder: Path, lines: list[bytes], end: bytes = b"\n") -> Path:
    path = folder / "data.csv"
    path.write_bytes(end.join([",".join(NAMES).encode(), *lines, b""]))
    return path


def fit(folder: Path, lines: list[bytes], method: str = "newton") -> int:
    """Through the command line; the published number of rows."""
    SCHEMA.save(folder / "schema.json")
    command = ["fit", "y ~ x1 + x2 + C(g)", str(write(folder, lines)), "--quiet"]
    options = {"schema": folder / "schema.json", "epsilon": 8, "delta": 1e-5, "method": method}
    for name, value in {**options, "out": folder / "fit.json"}.items():
        command += [f"--{name}", str(value)]
    assert main(command) == 0
    found = json.loads((folder / "fit.json").read_text())
    return int(found["plan"]["n"])


@pytest.mark.parametrize("at", grid([0, N // 2, N - 1], 1), ids=["first", "middle", "last"])
@pytest.mark.parametrize("method", grid(["adassp", "newton"], 1))
def test_a_malformed_record_moves_no_answer_beyond_its_sensitivity(
    tmp_path: Path, method: str, at: int
) -> None:
    lines = lines_of()
    with first_fit() as (script, released):
        assert fit(tmp_path, lines, method) == N
    answers = [[one.exact for one in released]]
    for odd in LINES.values():
        with same_questions(script) as again:
            assert fit(tmp_path, [*lines[:at], odd, *lines[at + 1 :]], method) == N
        answers.append([one.exact for one in again])
    for j, one in enumerate(released):
        stack = np.array([np.ravel(a[j]) for a in answers])
        assert largest_move(stack, one.norm, add_remove=False) <= one.sensitivity * ROUNDING
    # Power: extreme records are among them.
    moved = [
        np.ptp([np.ravel(a[j]) for a in answers]) / r.sensitivity for j, r in enumerate(released)
    ]
    assert max(moved) > 0.4


def cells(folder: Path, lines: list[bytes], end: bytes = b"\n") -> list[tuple]:
    return list(zip(*read_csv(write(folder, lines, end), SCHEMA).values(), strict=True))


@pytest.mark.parametrize("odd", LINES.values(), ids=list(LINES))
def test_every_other_record_is_read_as_before(tmp_path: Path, odd: bytes) -> None:
    lines = lines_of(6)
    usual = cells(tmp_path, lines)
    for at in range(6):
        found = cells(tmp_path, [*lines[:at], odd, *lines[at + 1 :]])
        assert found[:at] + found[at + 1 :] == usual[:at] + usual[at + 1 :]


BAD = [n for n in LINES if "quote" in n and "quoted" not in n] + [
    "too few fields", "too many fields", "many too many", "empty", "blank", "commas", "bad UTF-8",
    "half a character", "missing", "long quoted field",
]  # fmt: skip


@pytest.mark.parametrize("odd", BAD)
def test_what_is_no_record_is_a_row_of_missing_values(tmp_path: Path, odd: str) -> None:
    lines = lines_of(4)
    (row,) = cells(tmp_path, [*lines[:2], LINES[odd], *lines[2:]])[2:3]
    assert all(np.isnan(v) for v in row[:3])
    assert row[3] is None


ANY_LINE = st.one_of(
    st.sampled_from(list(LINES.values())),
    st.binary(max_size=20),
    st.text('01.,"\r\x00 aé\u2028', max_size=14).map(lambda t: t.encode()),
).filter(lambda line: b"\n" not in line)


@settings(max_examples=50, deadline=None)
@given(st.lists(ANY_LINE, max_size=6))
def test_a_file_is_read_as_its_lines_are_alone(tmp_path_factory, lines: list[bytes]) -> None:
    folder = tmp_path_factory.mktemp("lines")
    whole, *alone = (
        read_csv(path := write(folder, some), SCHEMA, dp.CSV(path, records="lines"))
        for some in (lines, *([line] for line in lines))
    )
    for name, column in whole.items():
        assert len(column) == len(lines)
        parts = [part[name][0] for part in alone]
        if column.dtype == object:
            assert column.tolist() == parts
        else:
            np.testing.assert_array_equal(column, np.array(parts, dtype=float))


@pytest.mark.parametrize("odd", [b"", b"\xff", b'"', b"1,2,3"])
def test_chunks_are_read_alike(tmp_path: Path, odd: bytes, monkeypatch) -> None:
    lines = [*lines_of(7), odd, *lines_of(3)]
    usual = cells(tmp_path, lines)
    for size in (1, 4, 11):
        monkeypatch.setattr("dpstats.tables.records._CHUNK", size)
        found = cells(tmp_path, lines)
        np.testing.assert_equal(found, usual)


def test_line_feeds_end_records_and_the_last_may_lack_one(tmp_path: Path) -> None:
    lines = lines_of(3)
    usual = cells(tmp_path, lines)
    assert cells(tmp_path, lines, b"\r\n") == usual
    path = write(tmp_path, lines)
    path.write_bytes(path.read_bytes()[:-1])
    assert list(zip(*read_csv(path, SCHEMA).values(), strict=True)) == usual
    path.write_bytes(path.read_bytes() + b"\n\n\n")
    assert len(read_csv(path, SCHEMA)["y"]) == 5
    packed = tmp_path / "data.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    np.testing.assert_equal(read_csv(packed, SCHEMA), read_csv(path, SCHEMA))


def test_a_plain_file_is_read_as_pandas_reads_it(tmp_path: Path) -> None:
    import pandas as pd

    path = write(tmp_path, [*lines_of(200), b'"1.5", 2e-1 ,3,"b"', b"1,,3,", b'1,0,3,"a""b"'])
    theirs, ours = pd.read_csv(path), read_csv(path, SCHEMA)
    for name in NAMES[:3]:
        np.testing.assert_array_equal(ours[name], theirs[name].astype(float))
    assert [v or "" for v in ours["g"]] == theirs["g"].fillna("").tolist()


HEADERS = {
    "none": (b"", "names no declared column"),
    "a record": (b"7391,0.5,3,canary\n1,2,3,a\n", "names no declared column"),
    "open quote": (b'y,x1,x2,"g\n', "names no declared column"),
    "not UTF-8": (b"y,x1,x2,g,\xff\n", "names no declared column"),
    "twice": (b"y,x1,x1,canary\n", "twice"),
    "one is missing": (b"y,x1,g,canary\n1,1,a,1\n", "no column 'x2'"),
}


@pytest.mark.parametrize(("text", "says"), HEADERS.values(), ids=list(HEADERS))
def test_a_wrong_header_spends_nothing_and_is_not_shown(
    tmp_path: Path, text: bytes, says: str, capsys
) -> None:
    SCHEMA.save(tmp_path / "schema.json")
    ledger = tmp_path / "a.ledger"
    dp.Ledger.open(ledger, 3.0, 1e-4)
    (tmp_path / "data.csv").write_bytes(text)
    command = ["fit", "y ~ x1 + x2", str(tmp_path / "data.csv"), "--ledger", str(ledger)]
    options = ["--schema", str(tmp_path / "schema.json"), "--epsilon", "1", "--delta", "1e-5"]
    assert main([*command, *options]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert "canary" not in error
    assert "7391" not in error
    assert dp.Ledger.open(ledger).entries == ()


def test_other_columns_and_a_byte_order_mark_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(b'\xef\xbb\xbf,"y",id,id,x1\n0,1,a,b,0.5\n')
    found = read_csv(path, SCHEMA)
    assert {n: v.tolist() for n, v in found.items()} == {"y": [1.0], "x1": [0.5]}


def test_a_missing_word_that_is_a_level_is_one(tmp_path: Path) -> None:
    schema = dp.Schema(
        land=dp.Categorical(["NA", "DE"], other="else"), k=dp.Categorical([1, 2], other=9)
    )
    path = tmp_path / "data.csv"
    path.write_bytes(b"land,k\nNA,1.0\nnull,NA\nfr,x\n")
    found = read_csv(path, schema)
    assert found["land"].tolist() == ["NA", None, "fr"]
    codes, missing = schema["k"].coerce(found["k"])
    assert codes.tolist() == [0, 0, 2]
    assert missing.tolist() == [False, True, False]
