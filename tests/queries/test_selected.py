"""Queries of chosen columns answer as if the design had no others; sparse rows as dense ones."""

from __future__ import annotations

import numpy as np
import pytest

from dpstats.errors import PlanError
from dpstats.queries import Geometry, Gram, NormQuantile, Score, Selected
from dpstats.queries.blocks import Block, exact_product
from tests.queries.cases import (
    BETA,
    BY_VALUE,
    CASES,
    PAIR,
    SEARCHED,
    WHITEN,
    Case,
    D,
    answer,
    block,
)

N = 2000
COLUMNS = (2, 0)


def data(share: float = 1.0):
    """Rows of which a share of the values is not zero."""
    rng = np.random.default_rng(31)
    x = rng.uniform(-1, 1, (N, D)) * (rng.uniform(size=(N, D)) < share)
    return x, rng.choice([-1.0, 0.0, 1.0, 0.3, -0.7], N), rng.uniform(size=N) > 0.05


@pytest.mark.parametrize(
    "query",
    [
        Score(PAIR, BETA[:2], 0.3),
        Gram(PAIR, BETA[:2], 0.5),
        NormQuantile(SEARCHED, 0.5, WHITEN[:2, :2]),
    ],
)
@pytest.mark.parametrize("sparse", [False, True])
def test_chosen_columns_answer_as_if_there_were_no_others(query, sparse):
    x, y, keep = data()
    selected = Selected(query, COLUMNS)
    bounds = np.array([1.0, 0.25, 0.5])
    full = block(x, y, selected, keep, bound=bounds, sparse=sparse)
    alone = block(x[:, COLUMNS], y, query, keep, bound=bounds[list(COLUMNS)])
    assert np.array_equal(selected.total(full), query.total(alone))
    assert np.array_equal(answer(selected, full), answer(query, alone))


@pytest.mark.parametrize("columns", [(), (1, 1), (-1, 0)])
def test_columns_that_cannot_be_chosen_are_refused(columns):
    with pytest.raises(PlanError, match="distinct positions"):
        Selected(Score(PAIR, BETA[:2], 0.3), columns)


def test_the_report_names_the_columns():
    query = Selected(Score(PAIR, BETA[:2], 0.3), (np.int64(2), 0))
    assert query.parameters() == {**query.query.parameters(), "columns": [2, 0]}
    assert (query.name, query.kind) == ("score", "sum")


@pytest.mark.parametrize("case", [c for c in CASES if not isinstance(c.query, BY_VALUE)], ids=str)
def test_sparse_rows_have_the_bits_of_dense_rows(case: Case):
    x, y, keep = data(0.3)
    bounds = np.array([1.0, 0.7, 0.25])
    dense, sparse = (case.block(x, y, keep, bound=bounds, sparse=s) for s in (False, True))
    assert np.array_equal(case.query.total(dense), case.query.total(sparse))


def test_sparse_products_and_norms_are_exact():
    x, y, keep = data(0.3)
    query = Score(Geometry(0.8), BETA, 0.3)
    dense, sparse = (block(x, y, query, keep, sparse=s) for s in (False, True))
    for coef in np.random.default_rng(3).normal(size=(4, D)):
        assert np.array_equal(exact_product(dense, coef), exact_product(sparse, coef))
    assert np.array_equal(query.geometry.norms(dense), query.geometry.norms(sparse))
    assert np.array_equal(dense.weight, sparse.weight)


@pytest.mark.parametrize("query", [Score(Geometry(1.0), np.zeros(D), 0.3)], ids=["score"])
def test_older_sparse_matrices_serve_too(query):
    from dataclasses import replace

    from scipy.sparse import csr_matrix

    x, y, _ = data(0.3)
    rows: Block = block(x, y, query)
    old = replace(rows, x=csr_matrix(rows.x))
    assert np.array_equal(query.total(rows), query.total(old))
    assert np.array_equal(query.geometry.norms(rows), query.geometry.norms(old))


def test_a_search_of_chosen_columns_has_the_noise_of_all_its_comparisons() -> None:
    search = NormQuantile(SEARCHED, 0.5, WHITEN[:2, :2])
    assert Selected(search, (0, 2)).comparisons == search.comparisons == 3
    assert Selected(Gram(Geometry(1.0)), (0, 2)).comparisons == 1
