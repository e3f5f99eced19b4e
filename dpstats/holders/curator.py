"""One curator holds the rows, answers planned queries with noise, and keeps a transcript."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import DataError, DPStatsError, PlanError
from dpstats.mechanisms.noise import Noise
from dpstats.mechanisms.release import release
from dpstats.privacy import Central, Neighbors
from dpstats.protocol import Plan, Release
from dpstats.queries.base import BLOCK_BITS, MAX_ROWS, X_BITS, Y_BITS, Block, Geometry, bound_grid

if TYPE_CHECKING:
    from dpstats.design import Design, Endog, Source
    from dpstats.queries import Query

__all__ = ["Curator"]

Array = NDArray[np.float64]
P = ParamSpec("P")
T = TypeVar("T")

_NEAREST = 1.5 * 2.0**52
_BLOCK_VALUES = 2**19  # 4 MB of float64 a block: in a shared cache, and few Python calls a row


def _sealed(method: Callable[P, T]) -> Callable[P, T]:
    """Let no frame that holds rows, and no message made from values, leave with an exception."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except DPStatsError as error:  # made from names, dtypes and planned facts only
            sealed: DPStatsError = error.with_traceback(None)
        except Exception as error:
            sealed = DataError(
                f"The private side stopped with {type(error).__name__}; its message is withheld "
                "because it may quote rows. Check column types against the schema."
            )
        sealed.__context__ = None
        del args, kwargs  # this frame is part of the traceback
        raise sealed from None

    return call


class Curator:
    """Holder of one table for one fit.

    Rows are mapped into the declared domain, put on a public grid and kept as float32 (exact on
    that grid) until the fit ends. Every answer is exact until its noise is added, whatever the
    order of rows or the number of threads.

    Parameters
    ----------
    source : Source
        Private rows behind the design, from ``design.source(table)``.
    design : Design
        Public design.
    plan : Plan
        The mechanisms that may be used, each once; already charged.
    noise : Noise
        Source of noise.
    on_answer : callable, optional
        Called with the slot after each answer; for progress.

    Raises
    ------
    DataError
        On names, types or shape; never on values.
    """

    @_sealed
    def __init__(
        self,
        source: Source,
        design: Design,
        plan: Plan,
        noise: Noise,
        on_answer: Callable[[str], None] | None = None,
    ) -> None:
        if not isinstance(plan.privacy, Central):
            raise PlanError(f"A curator answers Central plans, not {plan.privacy.trust!r} ones.")
        if len(source) > MAX_ROWS:
            raise DataError(f"Exact sums hold at most {MAX_ROWS} rows, and the table has more.")
        self._plan = plan
        self._neighbors = plan.privacy.neighbors
        self._max_rows = 1 if design.schema is None else design.schema.max_rows or 1
        self._noise = noise.start()
        self._pool = ThreadPoolExecutor(max(os.cpu_count() or 1, 1))  # threads start when needed
        self._on_answer = on_answer
        self._answered: set[tuple[str, int]] = set()
        self._transcript: list[Release] = []
        self._bound = np.maximum(np.abs(design.internal_bounds).max(axis=1), 2.0**-20)
        self._grid = np.array([bound_grid(b, X_BITS) for b in self._bound])
        self._rows_per_block = int(
            np.clip(2 ** int(np.log2(_BLOCK_VALUES / max(self._bound.size, 1))), 256, 2**BLOCK_BITS)
        )
        self._y_bound = 1.0 if design.endog is None else _response_bound(design.endog)
        self._load(source)
        self._weights: dict[tuple[float, bytes], NDArray[np.float32]] = {}

    @property
    def transcript(self) -> tuple[Release, ...]:
        """Every answer given: query, sensitivity, noise. Public."""
        return tuple(self._transcript)

    @_sealed
    def ask(self, query: Query, slot: str, part: int = 0) -> Array:
        """Answer `query` once with the noise planned under `slot`; see `Holder.ask`."""
        mechanism = self._plan.mechanism(slot)
        if (slot, part) in self._answered or not 0 <= part < mechanism.parts:
            raise PlanError(
                f"{slot!r} (part {part}) was already answered or never planned; each planned "
                "mechanism may be used once."
            )
        several = self._max_rows > 1 or self._starts is not None
        if mechanism.parts > 1 and (several or self._neighbors is not Neighbors.REPLACE_ONE):
            raise PlanError(
                "Disjoint parts need replace-one neighbours and one row per unit: a unit's rows "
                "may straddle them, and one row more would move every cut."
            )
        self._answered.add((slot, part))
        sensitivity = query.sensitivity(self._neighbors, self._max_rows)
        answer = query.finish(self._total(query, part, mechanism.parts), self._grid)
        noisy, scale = release(answer, sensitivity, mechanism.event, self._noise, query.kind)
        self._transcript.append(
            Release(slot, query.name, query.parameters(), sensitivity, scale, mechanism.event, part)
        )
        if self._on_answer is not None:
            self._on_answer(slot)
        return query.decode(noisy)

    def _load(self, source: Source) -> None:
        """Prepare every row once: clamp, put on the grid, blank the incomplete ones."""
        n = len(source)
        self._x = np.empty((n, self._bound.size), dtype=np.float32)
        self._y = np.zeros(n, dtype=np.float32)
        self._keep: NDArray[np.bool_] = np.ones(n, dtype=np.bool_)
        self._starts: NDArray[np.intp] | None = None
        y_bound = np.array(self._y_bound)
        y_grid = np.array(bound_grid(self._y_bound, Y_BITS))
        units: dict[int, NDArray[np.intp]] = {}

        def prepare(rows: slice) -> NDArray[np.int64]:
            raw = source.block(rows.start, rows.stop)
            self._x[rows] = _on_grid(raw.x, self._bound, self._grid)
            if raw.y is not None:
                self._y[rows] = _on_grid(raw.y, y_bound, y_grid)
            if not raw.keep.all():
                self._keep[rows] = raw.keep
                self._x[rows][~raw.keep] = 0.0
                self._y[rows][~raw.keep] = 0.0
            if raw.unit is not None:
                units[rows.start] = raw.unit
            return np.zeros(0, dtype=np.int64)

        self._reduce(prepare, list(self._slices(0, 1)))
        if units:
            self._group(np.concatenate([units[start] for start in sorted(units)]))

    def _group(self, codes: NDArray[np.intp]) -> None:
        """Bring each unit's rows together, in table order, and drop those beyond `max_rows`."""
        order = np.argsort(codes, kind="stable")
        sorted_codes = codes[order]
        first = np.flatnonzero(np.r_[True, sorted_codes[1:] != sorted_codes[:-1]])
        rank = np.arange(codes.size) - np.repeat(first, np.diff(np.r_[first, codes.size]))
        inside = rank < self._max_rows
        self._starts = np.flatnonzero(rank[inside] == 0)
        order = order[inside]
        self._x, self._y, self._keep = self._x[order], self._y[order], self._keep[order]

    def _slices(self, part: int, parts: int) -> Iterator[slice]:
        """Blocks of one part of the rows; units are never split."""
        n = self._y.size
        begin, end = n * part // parts, n * (part + 1) // parts
        if self._starts is None:
            # With more parts than rows some are empty; they answer like any other.
            cuts = np.arange(begin, max(end, begin + 1), self._rows_per_block)
        else:
            step = max(self._rows_per_block - self._max_rows, 1)
            wanted = np.searchsorted(self._starts, np.arange(0, n, step))
            cuts = np.unique(self._starts[np.minimum(wanted, self._starts.size - 1)])
        for start, stop in zip(cuts, [*cuts[1:], end], strict=True):
            yield slice(int(start), int(stop))

    def _block(self, rows: slice, weight: NDArray[np.float32] | None) -> Block:
        keep = self._keep[rows].astype(np.float64)
        starts = None
        if self._starts is not None:
            low, high = np.searchsorted(self._starts, [rows.start, rows.stop])
            starts = self._starts[low:high] - rows.start
        return Block(
            x=self._x[rows].astype(np.float64),
            y=self._y[rows].astype(np.float64),
            keep=keep,
            weight=keep if weight is None else weight[rows].astype(np.float64),
            bound=self._bound,
            grid=self._grid,
            starts=starts,
        )

    def _total(self, query: Query, part: int, parts: int) -> NDArray[np.int64]:
        weight = self._weight(query.geometry)
        return self._reduce(
            lambda rows: query.total(self._block(rows, weight)), list(self._slices(part, parts))
        )

    def _weight(self, geometry: Geometry | None) -> NDArray[np.float32] | None:
        """Row weights of a geometry, computed once; only the latest geometry is kept."""
        if geometry is None:
            return None
        if geometry.key not in self._weights:
            weight = np.empty(self._y.size, dtype=np.float32)

            def fill(rows: slice) -> NDArray[np.int64]:
                weight[rows] = geometry.weights(self._block(rows, None))
                return np.zeros(0, dtype=np.int64)

            self._reduce(fill, list(self._slices(0, 1)))
            self._weights = {geometry.key: weight}
        return self._weights[geometry.key]

    def _reduce(
        self, task: Callable[[slice], NDArray[np.int64]], blocks: list[slice]
    ) -> NDArray[np.int64]:
        """Sum of integer arrays over blocks: threads over blocks, BLAS on one thread in each."""
        workers = min(len(blocks), os.cpu_count() or 1)
        if workers <= 1:
            return _sum(task(b) for b in blocks)
        with _one_blas_thread():
            own, *rest = (blocks[i::workers] for i in range(workers))
            others = [self._pool.submit(_sum, map(task, share)) for share in rest]
            return _sum([_sum(map(task, own)), *(other.result() for other in others)])


def _response_bound(endog: Endog) -> float:
    """Largest size of the response in internal units."""
    extremes = (endog.lower - endog.center, endog.upper - endog.center)
    return max(abs(e) for e in extremes) / endog.scale


def _on_grid(values: Array, bound: Array, grid: Array) -> Array:
    """Values within their bound, rounded to the nearest multiple of the grid."""
    steps = np.clip(values, -bound, bound)
    steps *= 1.0 / grid
    steps += _NEAREST  # adding 1.5 * 2^52 leaves no bit for a fraction: round to nearest, fast
    steps -= _NEAREST
    steps *= grid
    return steps


def _sum(arrays: Any) -> NDArray[np.int64]:
    total: NDArray[np.int64] | None = None
    for array in arrays:
        total = array if total is None else total + array
    if total is None:
        raise DataError("The table has no rows.")
    return total


@functools.lru_cache(maxsize=1)
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _one_blas_thread() -> AbstractContextManager[Any]:
    controller = _controller()
    limited: AbstractContextManager[Any] = (
        controller.limit(limits=1, user_api="blas") if controller else nullcontext()
    )
    return limited
