"""Compiled products have the bits of those without numba, and are used only where they pay."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

import dpstats as dp
from dpstats.holders import rows as holder
from dpstats.queries import CoordinateScores, blocks
from dpstats.queries.blocks import exact_product
from tests.grids import grid
from tests.queries.cases import CASES, Case, D, sharpest

N = 1001  # not a multiple of the rows that are added at a time


def fast(block):
    """The same rows as a holder keeps them, with compiled products."""
    return replace(block, x=np.ascontiguousarray(block.x, np.float32), memory={}, fast=True)


@pytest.fixture
def counted(monkeypatch):
    """How often each compiled function was called."""
    pytest.importorskip("numba")
    code, calls = blocks.kernels(), []
    for name in code.__all__:
        made = getattr(code, name)
        monkeypatch.setattr(code, name, lambda *a, _f=made, _n=name: (calls.append(_n), _f(*a))[1])
    return calls


@pytest.mark.parametrize("case", grid(CASES, sharpest), ids=str)
def test_totals_have_the_same_bits(case: Case, counted) -> None:
    rng = np.random.default_rng(5)
    x, y = rng.uniform(-1, 1, (N, D)), rng.uniform(-1, 1, N)
    block = case.block(x, y, rng.uniform(size=N) > 0.05)
    if not isinstance(block.x, np.ndarray):
        pytest.skip("stored by rows")
    plain = replace(block, x=block.x.astype(np.float32), memory={})
    assert np.array_equal(case.query.total(fast(block)), case.query.total(plain))


@pytest.mark.parametrize("used", [0, 1, 7, 40])
def test_products_have_the_same_bits_however_many_columns_are_used(used, counted) -> None:
    rng = np.random.default_rng(6)
    case = CASES[0]
    x = rng.uniform(-1, 1, (N, D))
    block = case.block(x, x[:, 0], np.ones(N))
    wide = replace(
        block,
        x=np.tile(block.x, (1, 40))[:, :40].astype(np.float32),
        bound=np.tile(block.bound, 40)[:40],
        grid=np.tile(block.grid, 40)[:40],
        memory={},
    )
    coef = np.zeros(40)
    coef[rng.choice(40, used, replace=False)] = rng.normal(size=used)
    assert np.array_equal(exact_product(fast(wide), coef), exact_product(wide, coef))
    assert counted == ["row_products" if used > 8 else "row_products_of"]


def test_columns_beyond_their_reach_are_clipped_as_ever(counted) -> None:
    rng = np.random.default_rng(7)
    case = CASES[0]
    x = rng.uniform(-1, 1, (N, D))
    block = case.block(x, x[:, 0] + 0.1 * rng.normal(size=N), np.ones(N))
    plain = replace(block, x=block.x.astype(np.float32), memory={})
    query = CoordinateScores(np.zeros(D), 0.5, 0.25)
    assert np.array_equal(query.total(fast(block)), query.total(plain))
    assert "column_sums" in counted


def fit(monkeypatch, values: int) -> str:
    monkeypatch.setattr(holder, "_MANY_VALUES", values)
    rng = np.random.default_rng(8)
    x = rng.uniform(-1, 1, (3000, 5))
    y = np.clip(x @ np.linspace(-0.3, 0.3, 5) + 0.1 * rng.normal(size=3000), -2, 2)
    model = dp.OLS(y, x, bounds={"endog": (-2, 2), "exog": (-1, 1)})
    return model.fit(dp.Central(1.0, 1e-6), noise=dp.SeededNoise(3)).to_json()


def test_a_fit_is_the_same_with_compiled_products_and_without(monkeypatch, counted) -> None:
    without = fit(monkeypatch, 10**9)
    assert not counted
    assert fit(monkeypatch, 1) == without
    assert {"row_products", "column_sums"} <= set(counted)


class Unable:
    """A numba that finds no folder to keep compiled code in."""

    def __getattr__(self, name: str) -> None:
        raise RuntimeError(name)


@pytest.mark.parametrize("numba", [None, Unable()], ids=["missing", "unable"])
def test_a_fit_does_without_numba(numba, monkeypatch) -> None:
    before = fit(monkeypatch, 10**9)
    blocks.kernels.cache_clear()
    monkeypatch.setitem(sys.modules, "numba", numba)
    monkeypatch.delitem(sys.modules, "dpstats.queries.kernels", raising=False)
    monkeypatch.delattr("dpstats.queries.kernels", raising=False)
    try:
        assert blocks.kernels() is None
        assert fit(monkeypatch, 1) == before
    finally:
        blocks.kernels.cache_clear()


@pytest.mark.full
def test_a_small_table_does_not_import_numba() -> None:
    import subprocess

    script = (
        "import sys, numpy as np, dpstats as dp; x = np.zeros((100, 2)); "
        "dp.OLS(x[:, 0], x, bounds={'endog': (-1, 1), 'exog': (-1, 1)})"
        ".fit(dp.Central(1.0, 1e-4), noise=dp.SeededNoise(1)); sys.exit('numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=False)
    assert done.returncode == 0
