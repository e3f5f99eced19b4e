"""Rows as queries meet them: blocks on a public grid, their exact products, norms and sums.

Exactness. Rows reach a query on a public grid (`Block`), coefficients are rounded to a grid before
they meet rows, and contributions are truncated towards zero to a grid before they are added. Every
sum is then a sum of integers that float64 represents without rounding, so a total has the same bits
in any order, blocking or partition of the rows, and truncation cannot lengthen a contribution: the
bound that `Query.sensitivity` states is true in floating point as it is on paper.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import PlanError
from dpstats.families import GAUSSIAN, Family
from dpstats.queries.steps import (
    X_BITS,
    bound_grid,
    exact_sum,
    on_grid,
    to_grid,
    truncate,
)

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = [
    "BLOCK_BITS",
    "MAX_ROWS",
    "X_BITS",
    "Block",
    "Geometry",
    "Incomplete",
    "bound_grid",
    "dense",
    "exact_product",
    "exact_sum",
    "kernels",
    "on_grid",
    "outer_steps",
    "predictor",
    "residual",
    "to_grid",
    "truncate",
    "wide",
]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
Kind = TypeVar("Kind", bound=np.generic)
Memory = dict[str, tuple[bytes, NDArray[np.generic]]]  # what a block recalls, and of what
Y_BITS = 22  # a response value is at most 2^22 grid steps: exact in float32
V_BITS = 19  # a row weight (clipped residual) is at most 2^19 steps
Z_BITS = 18  # a whitened, weighted row is at most 2^18 steps per coordinate
BLOCK_BITS = 13  # at most 2^13 rows are added in float64: 17 + 19 + 13 and 18 + 18 + 13 < 53
MAX_ROWS = 2**26  # rows added in int64: 36 bits per product + 26 < 63
SAFETY = 1.0 - 2.0**-20  # shrinks rows by more than a few roundings to float32 can add
_PIECE_VALUES = 2**15  # a quarter of a megabyte of float64
_LARGEST = 2.0**60  # radii, their inverses and whitened rows: no float32 overflows or loses bits


def outer_steps(
    rows: Floats, factor: Array, grid: float, starts: NDArray[np.intp] | None = None
) -> Array:
    """Sum of ``z z'``, z being ``factor * row`` in whole steps of `grid`; exact, shape (k, k).

    With `starts`, z is the sum over the rows of a unit, the first of which are these.
    """

    def outer(piece: slice) -> Array:
        z = _row_steps(rows[piece], factor[piece], grid)
        if starts is not None:
            z = np.add.reduceat(z, starts, axis=0)
        return np.asarray(z.T @ z)

    if starts is not None:
        return outer(slice(None))
    total = np.zeros((rows.shape[1],) * 2)
    for piece in _pieces(rows):
        total += outer(piece)
    return total


def _pieces(rows: Any) -> Iterator[slice]:
    """Few enough rows of a dense matrix at a time that what is made of them stays in a cache."""
    size = max(_PIECE_VALUES // max(rows.shape[1], 1), 64)
    return (slice(start, start + size) for start in range(0, rows.shape[0], size))


def _row_steps(rows: Floats, factor: Array, grid: float) -> Array:
    """``factor * row`` of each row, in whole steps of `grid`, truncated towards zero; shape (m, k).

    In float32, twice as fast: the factor and the product may each grow by 2^-24 of their size,
    which `SAFETY` allows for, and 2^18 steps are exact.
    """
    scale = (factor * (1.0 / grid)).astype(np.float32)
    scaled = rows * scale[:, None]
    steps: Array = np.trunc(scaled, out=scaled).astype(np.float64)
    return steps


@dataclass(frozen=True, eq=False)
class Incomplete:
    """Rows of a block in which a value was missing, as they were read.

    Attributes
    ----------
    rows : ndarray of int of shape (k,)
        Where they stand in the block; there they are 0.
    x : ndarray of shape (k, d)
        Their covariates on the grid; where one was missing, any value within its bound.
    y : ndarray of shape (k,)
        Their responses, likewise.
    missing : ndarray of bool of shape (k, d + 1)
        Which covariates were missing, and last whether the response was. A row of which all are may
        belong to nobody: it must not contribute.
    """

    rows: NDArray[np.intp]
    x: Floats
    y: Array
    missing: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Block:
    """Up to 2^13 prepared rows, in the design's internal coordinates and on its public grid.

    Attributes
    ----------
    x : ndarray or CSR array of shape (m, d)
        Covariates; column j is a multiple of ``grid[j]`` and at most ``bound[j]`` in size, up to
        its rounding to the grid, hence exact as float32. A CSR array has no duplicates; what it
        does not store is zero.
    y : ndarray of shape (m,)
        Response within its public bound, on a grid of 2^-22 of it.
    keep : ndarray of shape (m,)
        1.0 where the row contributes, 0.0 where a value of it was missing.
    weight : ndarray of shape (m,)
        ``min(1, radius / ||share whiten @ x||)`` of the query's geometry (`weighted`); zero where
        ``keep`` is.
    bound, grid : ndarray of shape (d,)
        Public bound and grid step of each column.
    starts : ndarray of int or None
        First row of each unit where one unit may have several rows; units are never split.
    offset : ndarray of shape (m,) or None
        Part of the linear predictor with known coefficient 1.
    root : ndarray of shape (m,) or None
        Square root of the weight of each row; 0 where ``keep`` is. Its residual is multiplied by it
        (`residual`), and so is what its x counts for (`share`), so that its score carries the
        weight; x itself is not, whose grid would then be coarse beside rows of usual weights.
    stretch : float
        Power of two, at least each root, that x was multiplied by.
    memory : dict
        What `recall` keeps of these rows from one query to the next. Private.
    fast : bool
        Whether products with `x`, dense and in row order, and counts of cells run compiled:
        `kernels` are there.
    incomplete : callable
        The rows whose ``keep`` is 0 as they were read: a store looks them up when it is called.
    observed : callable
        All rows as they were read, of shape (m, d + 1), the response last: in the user's units, on
        no grid, NaN where missing; a store looks them up, too.
    astray : callable
        Which values of all rows were moved, missing, of no declared level, or as declared:
        (m, 4, t); see `Source.astray`.
    """

    x: Array | Floats | csr_array
    y: Array
    keep: Array
    weight: Array
    bound: Array
    grid: Array
    starts: NDArray[np.intp] | None = None
    offset: Array | None = None
    root: Array | None = None
    stretch: float = 1.0
    memory: Memory = field(default_factory=dict)
    fast: bool = False
    incomplete: Callable[[], Incomplete] | None = None
    observed: Callable[[], Array] | None = None
    astray: Callable[[], NDArray[np.bool_]] | None = None

    @classmethod
    def of_table(
        cls, observed: Callable[[], Array], astray: Callable[[], NDArray[np.bool_]], fast: bool
    ) -> Block:
        """Rows of which only what was read is asked: see `AsRead`."""
        none = np.zeros(0)
        return cls(
            none[None], none, none, none, none, none, observed=observed, astray=astray, fast=fast
        )

    @property
    def share(self) -> Array | float:
        """Numbers up to 1 that each x counts times: roots of weights; 1 where there are none."""
        return 1.0 if self.root is None else np.minimum(self.root / self.stretch, 1.0)

    def sums(self, v: Array) -> Array:
        """``v @ x`` without rounding error, for v (m,) in at most 2^19 steps of a grid."""
        if self.fast:
            fast: Array = kernels().column_sums(v, self.x)
            return fast
        if not isinstance(self.x, np.ndarray):
            sparse: Array = v @ wide(self.x)
            return sparse
        plain = np.zeros(self.x.shape[1])
        for piece in _pieces(self.x):
            plain += v[piece] @ wide(self.x[piece])
        return plain

    def recall(self, what: str, key: bytes, make: Callable[[], NDArray[Kind]]) -> NDArray[Kind]:
        """``make()``, or what it returned when last called for `what` of these rows and `key`."""
        if self.memory.get(what, (None,))[0] != key:
            self.memory.pop(what, None)  # the old array goes before the new one comes
            made = make()
            made.setflags(write=False)
            self.memory[what] = key, made
        return cast("NDArray[Kind]", self.memory[what][1])

    def weighted(self, geometry: Geometry | None) -> Block:
        """The same rows with the weights of a geometry; without one they are not shortened."""
        return self if geometry is None else replace(self, weight=geometry.weights(self))


def dense(x: Any) -> NDArray[Any]:
    """Rows as an ndarray."""
    full: NDArray[Any] = x if isinstance(x, np.ndarray) else x.toarray()
    return full


def wide(x: Any) -> Any:
    """Rows as float64, in which sums and products of them are exact."""
    return x.astype(np.float64, copy=False)


def exact_product(block: Block, coef: Array) -> Array:
    """``block.x @ coef`` without rounding error, hence the same bits for every blocking.

    `coef` (d,) is first rounded (`on_grid`), so that every partial sum is an integer that float64
    holds. Columns where it is zero are not read where they are most of them, and the latest product
    is kept, since several queries in a row ask for it.
    """
    coef = np.asarray(coef, dtype=np.float64)
    return block.recall("product", coef.tobytes(), lambda: _exact_product(block, coef))


def _exact_product(block: Block, coef: Array) -> Array:
    rounded, used = _rounded(coef.tobytes(), coef.shape, block.grid.tobytes())
    if isinstance(block.x, np.ndarray):
        if used.size < _FEW * rounded.size:
            few: Array = (
                kernels().row_products_of(block.x, used, rounded[used])
                if block.fast
                else wide(np.take(block.x, used, axis=1)) @ rounded[used]
            )
            return few
        if block.fast:
            fast: Array = kernels().row_products(block.x, rounded)
            return fast
        product = np.empty(len(block.x))
        for piece in _pieces(block.x):
            np.matmul(wide(block.x[piece]), rounded, out=product[piece])
        return product
    sparse: Array = wide(block.x) @ rounded
    return sparse


@functools.lru_cache(maxsize=16)
def _rounded(coef: bytes, shape: tuple[int, ...], grid: bytes) -> tuple[Array, NDArray[np.intp]]:
    """`on_grid` of public numbers, once for all blocks of the rows, and where they are not zero."""
    made = on_grid(np.frombuffer(coef).reshape(shape), np.frombuffer(grid))[0]
    made.setflags(write=False)
    return made, np.flatnonzero(made)


@functools.cache
def kernels() -> Any:
    """The module of compiled products; None without numba, or a place for it to keep code."""
    try:
        from dpstats.queries import kernels as code
    except (ImportError, RuntimeError):
        return None
    return code


_FEW = 0.2  # share of columns below which gathering them is cheaper than reading all


def predictor(block: Block, beta: Array) -> Array:
    """Linear predictor ``x @ beta + offset`` of each row, the same bits in any blocking."""
    eta = exact_product(block, beta)
    if block.stretch != 1:
        eta = eta / block.stretch
    return eta if block.offset is None else eta + block.offset


def residual(block: Block, beta: Array, family: Family = GAUSSIAN) -> Array:
    """``factor (y - mean)`` of each row at ``x @ beta + offset``, the same bits in any blocking.

    It is elementwise in numbers that are exact or the row's own, and the derivative of the row's
    log-likelihood in its linear predictor; for a linear model, ``y - x @ beta - offset``. Of a
    weighted row it is multiplied by the root of the weight.
    """
    plain = family.residual(block.y, predictor(block, beta))
    return plain if block.root is None else plain * block.root


@dataclass(frozen=True, eq=False)
class Geometry:
    """The public norm in which rows are clipped: ``||whiten @ x|| <= radius``.

    Rows are weighted, ``w = min(1, radius / ||whiten @ x||)``, and both x and y of a row carry the
    weight, so that a linear model stays unbiased (clipping x alone would bias it). Of a row with a
    weight of its own x is its `Block.share`.

    Parameters
    ----------
    radius : float
        Clipping radius, > 0.
    whiten : ndarray of shape (k, d), optional
        Public matrix, made from earlier releases; the identity by default. Its rows are the
        directions that count: with k < d only those are clipped and answered.
    """

    radius: float
    whiten: Array | None = None

    def __post_init__(self) -> None:
        if not 1 / _LARGEST <= self.radius <= _LARGEST:
            raise PlanError(
                f"radius={self.radius!r}: a clipping radius between 2^-60 and 2^60 is needed."
            )

    @cached_property
    def key(self) -> bytes:
        """Identity of the geometry, for keeping row weights."""
        return np.float64(self.radius).tobytes() + self._matrix

    @cached_property
    def _matrix(self) -> bytes:
        return b"" if self.whiten is None else self.whiten.tobytes()

    def rows(self, block: Block) -> Floats | csr_array:
        """``whiten @ x`` for every row, exact but for one rounding to float32; shape (m, k).

        That rounding moves a row by 2^-24 of its length, which `SAFETY` allows for. The rows of the
        latest matrix are kept, since several queries in a row ask for them. Not whitened, sparse
        rows stay so.
        """
        if self.whiten is None:
            return block.x.astype(np.float32, copy=False)
        whiten = self.whiten.T
        if not np.all(block.bound @ np.abs(whiten) <= _LARGEST):
            raise PlanError("The whitening matrix makes numbers beyond 2^60.")
        return block.recall("rows", self._matrix, lambda: self._whitened(block))

    def _whitened(self, block: Block) -> Floats:
        assert self.whiten is not None
        coef = self.whiten.T
        rounded, _ = _rounded(coef.tobytes(), coef.shape, block.grid.tobytes())
        x = block.x
        if not isinstance(x, np.ndarray):
            return np.asarray(wide(x) @ rounded, dtype=np.float32)
        made = np.empty((len(x), coef.shape[1]), dtype=np.float32)
        for piece in _pieces(x):
            made[piece] = wide(x[piece]) @ rounded
        return made

    def image(self, total: Ints, grid: Array) -> Array:
        """``whiten @ (total * grid)`` by the very matrix that `rows` applies, rounded once.

        The sum runs over Python integers: terms that cancel would cost float64 more digits than a
        sensitivity leaves.
        """
        if self.whiten is None:
            plain: Array = total * grid
            return plain
        matrix, step = on_grid(self.whiten.T, grid)
        least = float(grid.min())
        steps = [int(t) * int(g) for t, g in zip(total, grid / least, strict=True)]
        columns = (matrix / step).T
        sums = [sum(int(w) * t for w, t in zip(c, steps, strict=True)) for c in columns]
        exact: Array = np.array([float(s) for s in sums]) * (step * least)
        return exact

    def norms(self, block: Block) -> Array:
        """``||whiten @ x||`` for every row, rounded to float32; the same bits in any blocking.

        Each row adds its own terms. Where the column grids are alike their squares are whole
        numbers below 2^53 of one step, so that sparse rows have the bits of dense ones.
        """
        kept = block.recall("norms", self._matrix, lambda: self._norms(block).astype(np.float32))
        norms: Array = kept.astype(np.float64)
        return norms

    def lengths(self, block: Block) -> Array:
        """Norms of the shares of rows that count: of all there is without weights of rows."""
        lengths: Array = self.norms(block) * block.share
        return lengths

    def _norms(self, block: Block) -> Array:
        z = self.rows(block)
        if isinstance(z, np.ndarray):
            squares = np.empty(len(z))
            for piece in _pieces(z):
                part = wide(z[piece])
                np.einsum("ij,ij->i", part, part, out=squares[piece])
        else:
            squares = wide(z).power(2) @ np.ones(block.grid.size)
        return np.sqrt(squares, out=squares)

    def weights(self, block: Block) -> Array:
        """``min(1, radius / length)``, shrunk by 2^-20 so that rounding cannot break the bound."""
        lengths, radius = self.lengths(block), SAFETY * self.radius
        w: Array = block.keep * (radius / np.maximum(lengths, radius))
        return w

    def parameters(self) -> dict[str, Any]:
        """Public description for the privacy report."""
        return {"radius": self.radius, "whitened": self.whiten is not None}
