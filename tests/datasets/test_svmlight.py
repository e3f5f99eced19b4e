"""The svmlight reader gives back what was written, and names the line that is wrong."""

import bz2
import gzip
import time

import numpy as np
import pytest
import scipy.sparse as sp

from dpstats.datasets import load_svmlight, svmlight
from dpstats.errors import DataError


def text_of(X: sp.csr_array, y: np.ndarray, base: int = 1) -> str:
    """The format, written the plain way."""
    rows = []
    for i, target in enumerate(y):
        here = slice(X.indptr[i], X.indptr[i + 1])
        entries = zip(X.indices[here].tolist(), X.data[here].tolist(), strict=True)
        rows.append(" ".join([repr(float(target)), *(f"{j + base}:{v!r}" for j, v in entries)]))
    return "\n".join(rows) + "\n"


def example(n: int = 50, d: int = 30, seed: int = 0) -> tuple[sp.csr_array, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = sp.random_array((n, d), density=0.2, format="csr", rng=rng)
    X.data *= 10.0 ** rng.integers(-300, 300, X.nnz)
    X.sort_indices()
    return X, rng.normal(size=n)


def assert_same(got, X, y) -> None:
    read, targets = got
    assert read.format == "csr"
    assert read.dtype == np.float64
    assert read.has_canonical_format
    assert read.shape == X.shape
    np.testing.assert_array_equal(read.toarray(), X.toarray())
    np.testing.assert_array_equal(targets, y)


@pytest.mark.parametrize("base", [0, 1])
@pytest.mark.parametrize("chunk", [1, 100, 2**22])
@pytest.mark.parametrize("suffix", [".txt", ".gz", ".bz2"])
def test_what_was_written_is_read(tmp_path, monkeypatch, base, chunk, suffix):
    monkeypatch.setattr(svmlight, "_CHUNK", chunk)
    X, y = example()
    path = tmp_path / f"data{suffix}"
    opener = {".gz": gzip.open, ".bz2": bz2.open}.get(suffix, open)
    with opener(path, "wt") as file:
        file.write(text_of(X, y, base))
    assert_same(load_svmlight(path, 30, zero_based=base == 0), X, y)


VARIANTS = {
    "plain": "1 1:2 3:4.5\n-1\n",
    "no last newline": "1 1:2 3:4.5\n-1",
    "windows": "1 1:2 3:4.5\r\n-1\r\n",
    "comments": "# a header: 3\n1 1:2 3:4.5 # qid:3 x:y\n\n   \n-1 # none\n#",
    "query ids": "1 qid:7 1:2 3:4.5\n-1 qid:8\n",
    "any order": "1 3:4.5 1:2\n-1\n",
    "forms of numbers": "+1.0 1:2e0 3:.45E1\n-1.\n",
    "tabs": "1\t1:2\t 3:4.5 \n -1\n",
}


@pytest.mark.parametrize("text", VARIANTS.values(), ids=VARIANTS.keys())
def test_variants_of_the_format_are_read(tmp_path, text):
    path = tmp_path / "a.svm"
    path.write_bytes(text.encode())
    assert_same(load_svmlight(path), sp.csr_array([[2, 0, 4.5], [0, 0, 0]]), [1, -1])


def test_the_width_is_the_largest_index_or_given(tmp_path):
    path = tmp_path / "a.svm"
    path.write_text("1 7:1\n2 3:0\n")
    assert load_svmlight(str(path))[0].shape == (2, 7)
    assert load_svmlight(path, 9)[0].shape == (2, 9)
    assert load_svmlight(path, zero_based=True)[0].shape == (2, 8)
    path.write_text("# nothing\n")
    assert load_svmlight(path)[0].shape == (0, 0)


def test_missing_and_infinite_values_are_kept_for_the_schema(tmp_path):
    path = tmp_path / "a.svm"
    path.write_text("nan 1:inf 2:nan\n")
    X, y = load_svmlight(path)
    np.testing.assert_array_equal(X.toarray(), [[np.inf, np.nan]])
    assert np.isnan(y[0])


BAD = {  # third line -> reason
    "1 2:canary": "no number",
    "canary 2:1": "no number",
    "1 canary:1": "no number",
    "1,2 3:1": "no number",
    "1 2:1_0": "no number",
    "1 2:1 3": "a line reads",
    "1 2:": "a line reads",
    "1 :2": "a line reads",
    ":2": "a line reads",
    "1 2:3:4 5": "a line reads",
    "1 2 3:4:5": "a line reads",
    "2:1 3:4": "a line reads",
    "1 2 : 3": "a line reads",
    "1 2.5:3": "no whole number",
    "1 nan:3": "no whole number",
    "1 1e300:3": "no whole number",
    "1 0:3": "below 1",
    "1 -4:3": "below 1",
    "1 21:3": "beyond n_features=20",
    "1 4:3 5:1 4:2": "stands twice",
}


@pytest.mark.parametrize("chunk", [1, 2**22])
@pytest.mark.parametrize(("line", "why"), BAD.items(), ids=BAD.keys())
def test_a_wrong_line_is_named_by_its_number_only(tmp_path, monkeypatch, chunk, line, why):
    monkeypatch.setattr(svmlight, "_CHUNK", chunk)
    path = tmp_path / "a.svm"
    path.write_text(f"1 4:1\n# comment\n{line}\n1 4:1\n")
    with pytest.raises(DataError, match=rf"^a\.svm, line 3: .*{why}") as caught:
        load_svmlight(path, 20)
    assert "canary" not in str(caught.value)


def test_two_wrong_lines_do_not_make_up_for_each_other(tmp_path):
    path = tmp_path / "a.svm"
    path.write_text("1 2:3 4\n1 2:\n")
    with pytest.raises(DataError, match="line 1"):
        load_svmlight(path)


@pytest.mark.full
def test_a_long_file_is_read_quickly(tmp_path):
    rng = np.random.default_rng(1)
    n, each = 2_000, 200
    indices = np.sort(rng.permuted(np.tile(np.arange(5_000), (n, 1)), axis=1)[:, :each], axis=1)
    X = sp.csr_array(
        (rng.uniform(size=n * each), indices.ravel(), np.arange(n + 1) * each), shape=(n, 5_000)
    )
    path = tmp_path / "long.svm"
    path.write_text(text_of(X, np.arange(n)))
    start = time.process_time()
    assert_same(load_svmlight(path, 5_000), X, np.arange(n))
    assert time.process_time() - start < 3  # measured: 0.3
