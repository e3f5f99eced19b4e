"""Sparse matrices reach the design as the dense ones they stand for, and never become dense."""

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from dpstats.design import DeclaredDesign, SparseSource, design_from_dict
from dpstats.errors import DataError, SchemaError
from dpstats.families import POISSON

N, D = 60, 12
VALUES = [np.nan, np.inf, -np.inf, 1e308, -1e-300, -0.0, 0.5, 3.0, -3.0]


def wild(seed: int = 0, zeros: float = 0.7) -> np.ndarray:
    rng = np.random.default_rng(seed)
    dense = rng.choice(VALUES, size=(N, D))
    dense[rng.uniform(size=(N, D)) < zeros] = 0.0
    dense[:, 4] = 0.0  # an all-zero column
    dense[:, 6] = dense[:, 5]  # a duplicated one
    dense[7] = 0.0  # and an empty row
    return dense


def pairs(intercept: int | None) -> np.ndarray:
    rng = np.random.default_rng(1)
    ends = np.column_stack([-rng.uniform(0, 2, D), rng.uniform(0.1, 2, D)])
    ends[2] = (0, 0)  # dropped: zero for every row
    if intercept is not None:
        ends[intercept] = (1, 1)
    return ends


def both(intercept: int | None, seed: int = 0) -> tuple:
    """The same rows of one sparse design, from a sparse matrix and from a dense array."""
    design = DeclaredDesign.from_arrays(D, {"exog": pairs(intercept), "endog": (0, 4)}, sparse=True)
    dense, y = wild(seed), np.random.default_rng(seed).uniform(-1, 5, N)
    return design, design.source((y, sp.csr_array(dense))), design.source((y, dense))


@pytest.mark.parametrize("intercept", [None, 0, 5, 11])
@pytest.mark.parametrize("method", ["block", "raw"])
def test_a_sparse_matrix_gives_the_rows_of_the_dense_one(intercept, method):
    design, sparse, dense = both(intercept)
    assert isinstance(sparse, SparseSource)
    assert (sparse.is_sparse, dense.is_sparse) == (True, False)
    a, b = getattr(sparse, method)(0, N), getattr(dense, method)(0, N)
    assert sp.issparse(a.x)
    assert (a.x.format, a.x.dtype, a.x.shape) == ("csr", np.float64, (N, len(design.names)))
    assert a.x.has_canonical_format
    np.testing.assert_array_equal(a.keep, b.keep)
    np.testing.assert_array_equal(a.x.toarray()[a.keep], b.x[a.keep])
    np.testing.assert_array_equal(a.y, b.y)
    assert np.isfinite(a.x.data).all()
    low, high = design.internal_bounds.T if method == "block" else design.bounds.T
    assert ((a.x.toarray() >= low) & (a.x.toarray() <= high)).all()


@pytest.mark.parametrize("intercept", [None, 3])
def test_blocks_of_a_sparse_matrix_are_rows_of_the_whole(intercept):
    _, source, _ = both(intercept)
    whole = source.block(0, N)
    for size in (1, 7, N + 5):
        parts = [source.block(a, a + size) for a in range(0, N, size)]
        np.testing.assert_array_equal(
            sp.vstack([part.x for part in parts]).toarray(), whole.x.toarray()
        )
        np.testing.assert_array_equal(np.concatenate([part.keep for part in parts]), whole.keep)
    assert source.block(N, 2 * N).x.shape == (0, whole.x.shape[1])


def test_zeros_stay_zeros_beside_an_intercept():
    design, source, _ = both(0)
    assert design.has_intercept
    assert not design.standardization.x_center.any()
    assert (design.standardization.y_center, design.standardization.y_scale) == (2, 2)
    block = source.block(0, N)
    assert block.x.nnz <= N + np.count_nonzero(wild())
    np.testing.assert_array_equal(block.x[:, [0]].toarray(), np.ones((N, 1)))
    assert abs(design.internal_bounds).max() == 1


@pytest.mark.parametrize("form", ["coo", "csc", "csr", "bsr", "lil", "int", "bool", "matrix"])
def test_every_kind_of_sparse_matrix_is_read(form):
    dense = (np.abs(wild()) == 3).astype(float)
    design = DeclaredDesign.from_arrays(D, {"exog": (-2, 2)}, sparse=True)
    made = {
        "int": lambda: sp.csr_array(dense.astype(np.int8)),
        "bool": lambda: sp.csr_array(dense.astype(bool)),
        "matrix": lambda: sp.csr_matrix(dense),
    }.get(form, lambda: getattr(sp, f"{form}_array")(dense))()
    np.testing.assert_array_equal(design.source(made).raw(0, N).x.toarray(), dense)


def test_stored_twice_is_added_before_it_is_clipped_and_the_matrix_is_left_alone():
    matrix = sp.csr_array(
        (np.array([0.8, 0.8, -5.0, 4.5]), np.array([1, 1, 0, 0]), np.array([0, 2, 4])), shape=(2, 2)
    )
    before = [part.copy() for part in (matrix.data, matrix.indices, matrix.indptr)]
    source = DeclaredDesign.from_arrays(2, {"exog": (-1, 1)}, sparse=True).source(matrix)
    np.testing.assert_array_equal(source.raw(0, 2).x.toarray(), [[0, 1], [-0.5, 0]])
    for old, new in zip(before, (matrix.data, matrix.indices, matrix.indptr), strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_known_term_and_a_count_stand_beside_a_sparse_design():
    design = DeclaredDesign.from_arrays(
        2, {"exog": (-1, 1), "endog": (0, 9), "exposure": (1, 4)}, family=POISSON, sparse=True
    )
    table = (np.array([3.0, np.nan]), sp.eye_array(2, format="csr"), {"exposure": [2.0, 2.0]})
    block = design.source(table).block(0, 2)
    assert block.y[0] == 3
    np.testing.assert_allclose(block.offset, np.log(2))
    assert block.keep.tolist() == [True, False]


@pytest.mark.parametrize("bounds", [(1, 4), (-4, -1), [(0, 1), (0.5, 0.5)], [(0, 1), (-2, -1)]])
def test_bounds_of_a_sparse_column_contain_zero(bounds):
    with pytest.raises(SchemaError, match=r"sparse.*do not contain 0.*\(1, 1\)"):
        DeclaredDesign.from_arrays(2, {"exog": bounds, "endog": (0, 1)}, sparse=True)


def test_wrong_matrices_are_refused_by_type_and_shape():
    design = DeclaredDesign.from_arrays(2, {"exog": (-1, 1)}, sparse=True)
    with pytest.raises(DataError, match="2 columns were declared"):
        design.source(sp.eye_array(3, format="csr"))
    with pytest.raises(DataError, match="complex"):
        design.source(sp.eye_array(2, format="csr", dtype=complex))


def test_a_sparse_design_is_stored_as_one():
    design = DeclaredDesign.from_arrays(
        3, {"exog": [(1, 1), (0, 2), (-3, 1)], "endog": (0, 1)}, sparse=True
    )
    copy = design_from_dict(design.to_dict())
    assert copy == design
    assert copy != DeclaredDesign.from_arrays(
        3, {"exog": [(1, 1), (0, 2), (-3, 1)], "endog": (0, 1)}
    )
    np.testing.assert_array_equal(copy.standardization.x_center, 0)
    many = DeclaredDesign.from_arrays(10_000, {"exog": (0, 1), "endog": (0, 1)}, sparse=True)
    assert many.to_dict()["bounds"] == [0, 1]


@pytest.mark.parametrize("sparse", [True, False])
def test_new_rows_may_be_asked_for_some_columns_only(sparse):
    design = DeclaredDesign.from_arrays(D, {"exog": pairs(0), "endog": (0, 4)}, sparse=sparse)
    dense = wild()
    table = sp.csr_array(dense) if sparse else dense
    whole = design.exog(table)
    assert whole.shape == (N, len(design.names))
    np.testing.assert_array_equal(
        np.isnan(whole).all(axis=1), ~design.source((N * [1], table)).block(0, N).keep
    )
    np.testing.assert_array_equal(design.exog(table, [0, 8, 3]), whole[:, [0, 8, 3]])


LARGE = """
import pathlib, re, time
import numpy as np, scipy.sparse as sp
from dpstats.design import DeclaredDesign
n, d, each = 16_087, 50_000, 500
rng = np.random.default_rng(0)
indices = (np.arange(n)[:, None] * 7 + np.arange(each) * 100) % d
matrix = sp.csr_array(
    (rng.uniform(-1, 1, n * each), indices.astype(np.int32).ravel(), np.arange(n + 1) * each),
    shape=(n, d),
)
start = time.process_time()
bounds = {"exog": (-0.5, 1), "endog": (0, 1)}
source = DeclaredDesign.from_arrays(d, bounds, sparse=True).source((np.ones(n), matrix))
entries = sum(source.block(a, a + 8192).x.nnz for a in range(0, n, 8192))
# The peak of this process alone: what getrusage says includes that of the one it was forked from.
peak = re.search(r"VmHWM:\\s+(\\d+) kB", pathlib.Path("/proc/self/status").read_text())[1]
print(entries, time.process_time() - start, peak)
"""


@pytest.mark.full
def test_a_matrix_of_text_counts_passes_in_little_memory():
    """16,087 x 50,000 at 1 %: dense it would take 6.4 GB."""
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True, check=True)
    entries, seconds, kilobytes = map(float, done.stdout.split())
    assert entries == 16_087 * 500
    assert seconds < 5  # measured: 0.5
    assert kilobytes < 2**20  # 1 GiB; measured: 0.5
