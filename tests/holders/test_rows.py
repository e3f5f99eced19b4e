"""Views of chosen columns, disjoint halves and sparse matrices answer as the plain table does."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from scipy import sparse
from threadpoolctl import threadpool_info

import dpstats as dp
from dpstats.accounting.events import Gaussian, Peeling
from dpstats.design import DeclaredDesign
from dpstats.errors import PlanError
from dpstats.holders import Curator, ResidentRows, rows
from dpstats.holders.threads import one_blas_thread
from dpstats.mechanisms.lots import Lots
from dpstats.mechanisms.noise import SeededNoise
from dpstats.privacy import Central
from dpstats.protocol import Mechanism, Plan
from dpstats.queries import (
    Count,
    Geometry,
    Gradient,
    Gram,
    PeeledScores,
    Score,
    Selected,
    WhitenedScore,
)
from dpstats.schema import Numeric, Schema

D = 6
TINY = Gaussian(1e-9)  # noise far below what the assertions look at
BETA = np.array([0.5, 0.0, -0.3, 0.0, 0.0, 0.1])


def held(x: Any, y: Any, branches: tuple[int, ...] = (0,), bounds: Any = (-1.0, 1.0)) -> Curator:
    """A curator that answers once under each slot ``"0"``, ``"1"``, ...."""
    design = DeclaredDesign.from_arrays(x.shape[1], {"exog": bounds, "endog": (-1.0, 1.0)})
    mechanisms = tuple(
        Mechanism(str(slot), TINY, "", branch=branch) for slot, branch in enumerate(branches)
    )
    names = tuple(design.names)
    plan = Plan("ols", "test", Central(1.0, 1e-6), x.shape[0], names, mechanisms, (1.0, 1e-6))
    return Curator(design.source((y, x)), design, plan, SeededNoise(1))


def table(n: int, density: float = 1.0, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, D)) * (rng.uniform(size=(n, D)) < density)
    return x, rng.uniform(-1, 1, n)


@pytest.mark.parametrize("columns", [(0, 2, 5), (5, 0), (3,)])
def test_a_selection_answers_as_a_table_with_only_these_columns(columns: tuple[int, ...]) -> None:
    x, y = table(20_000)
    beta = BETA[list(columns)]
    for query in (Score(Geometry(0.8), beta, 0.4), Gram(Geometry(0.8))):
        chosen = held(x, y).ask(Selected(query, columns), "0").value
        alone = held(x[:, list(columns)], y).ask(query, "0").value
        assert np.array_equal(chosen, alone)


def test_many_selections_do_not_pile_up() -> None:
    x, y = table(50)
    holder = held(x, y, (0,) * D)
    for j in range(D):
        holder.ask(Selected(Gram(Geometry(1.0)), (j,)), str(j))
    assert len(holder._rows._views) < D


def test_a_sparse_matrix_answers_as_the_dense_one_bit_for_bit() -> None:
    x, y = table(20_000, density=0.2)
    queries = [
        Score(Geometry(0.8), BETA, 0.4),
        Gradient(BETA, 0.6),
        Selected(Gram(Geometry(0.7)), (0, 2)),
        Count(),
    ]
    for query in queries:
        dense = held(x, y).ask(query, "0").value
        assert np.array_equal(dense, held(sparse.csr_array(x), y).ask(query, "0").value)
        assert np.array_equal(dense, held(sparse.csc_array(x), y).ask(query, "0").value)


def test_values_stored_in_pieces_are_clipped_together() -> None:
    """A COO-like CSR may store one entry several times; each piece is within the bound."""
    pieces = sparse.csr_array(
        (np.full(3, 0.9), np.zeros(3, dtype=int), np.array([0, 3, 3])), shape=(2, D)
    )
    y = np.array([1.0, 0.0])
    answer = held(pieces, y).ask(Score(Geometry(10.0), np.zeros(D), 1.0), "0").value
    assert answer[0] == pytest.approx(1.0, abs=1e-4)


def test_a_missing_value_of_a_sparse_row_silences_the_row() -> None:
    x, y = table(100, density=0.5)
    x[7, 3] = np.nan
    without = x.copy()
    without[7] = 0.0
    y_without = y.copy()
    y_without[7] = 0.0
    query = Score(Geometry(0.8), BETA, 0.4)
    answer = held(sparse.csr_array(x), y).ask(query, "0").value
    assert np.array_equal(answer, held(sparse.csr_array(without), y_without).ask(query, "0").value)


def test_the_halves_are_disjoint_and_together_everything() -> None:
    x, y = table(1001)
    holder = held(x, y, (0, 1, 2, 1, 2))
    query = Score(Geometry(0.8), BETA, 0.4)
    everything, one, two = (holder.ask(query, str(i)).value for i in range(3))
    assert one + two == pytest.approx(everything, abs=1e-5)
    counts = [holder.ask(Count(), str(i)).value[0] for i in (3, 4)]
    assert counts == pytest.approx([500, 501], abs=1e-3)


def test_the_halves_of_a_sorted_table_are_alike() -> None:
    x, y = table(4000)
    order = np.argsort(y)
    holder = held(x[order], y[order], (1, 2))
    query = Score(Geometry(3.0), np.zeros(D), 1.0)
    ones = np.ones((4000, D))
    holder = held(ones, y[order], (1, 2), bounds=(-1.0, 1.0))
    sums = [holder.ask(query, slot).value[0] / 2000 for slot in ("0", "1")]
    assert abs(sums[0] - sums[1]) < 0.02  # contiguous halves would differ by 1


def test_halves_need_a_public_number_of_rows() -> None:
    x, y = table(10)
    design = DeclaredDesign.from_arrays(D, {"exog": (-1.0, 1.0), "endog": (-1.0, 1.0)})
    privacy = Central(1.0, 1e-6, neighbors="add-remove", rows=10)
    plan = Plan(
        "ols",
        "test",
        privacy,
        10,
        tuple(design.names),
        (Mechanism("0", TINY, "", branch=1),),
        (1.0, 1e-6),
    )
    holder = Curator(design.source((y, x)), design, plan, SeededNoise(1))
    with pytest.raises(PlanError, match="replace-one"):
        holder.ask(Count(), "0")


@pytest.mark.parametrize("bound", [1e19, 1e40, 1e150])  # beyond 3e38, float32 has no number
def test_absurd_declarations_cost_no_privacy(bound: float) -> None:
    wide = Numeric(-bound, bound, center=0.0, scale=1.0)
    design = DeclaredDesign.from_formula("y ~ x", Schema({"x": wide, "y": wide}))
    queries = [
        Score(Geometry(1e-6), np.zeros(2), 1.0),
        Gradient(np.zeros(2), 1.0),
        Gram(Geometry(1e-6)),
        PeeledScores(np.zeros(2), 1.0, 1.0),
    ]
    events = (TINY, TINY, TINY, Peeling(1e-9, k=1))
    mechanisms = tuple(Mechanism(str(slot), event, "") for slot, event in enumerate(events))
    plan = Plan("ols", "test", Central(1.0, 1e-6), 2, design.names, mechanisms, (1.0, 1e-6))

    def answers(x: float, y: float) -> list[Any]:
        rows = {"x": np.array([x, 0.0]), "y": np.array([y, 1.0])}
        holder = Curator(design.source(rows), design, plan, SeededNoise(1))
        return [holder.ask(query, str(slot)).value[-1] for slot, query in enumerate(queries)]

    several = [answers(s * bound, t * bound) for s in (0, 1, -1) for t in (0, 1, -1)]
    for here in several:
        for query, one, other in zip(queries, several[0], here, strict=True):
            limit = query.sensitivity(plan.privacy.neighbors, 1)
            assert np.abs(one - other).max() <= limit * (1 + 1e-6)


def test_fits_side_by_side_leave_the_threads_of_blas_as_they_were() -> None:
    def threads() -> list[int]:
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    before, inside = threads(), one_blas_thread
    inside.__enter__()
    inside.__enter__()  # of another fit, which begins later and ends later
    inside.__exit__()
    assert set(threads()) <= {1}
    inside.__exit__()
    assert threads() == before


def test_rows_are_prepared_once_in_units_of_the_scales_that_were_found(monkeypatch) -> None:
    rng = np.random.default_rng(4)
    frame = {name: rng.normal(size=20_000) for name in "xy"}
    schema = Schema(x=Numeric(-100, 100), y=Numeric(-100, 100))
    prepared, load = [], rows.ResidentRows._load
    monkeypatch.setattr(
        rows.ResidentRows, "_load", lambda *a: (prepared.append(a[2].bound), load(*a))[1]
    )
    fit = dp.ols("y ~ x", frame, schema).fit(Central(1.0, 1e-6), noise=SeededNoise(1))
    assert fit.estimate.released["scales"]["x"]["scale"] < 5
    assert len(prepared) == 1
    assert prepared[0][1] > 20  # in found units, in which the range is wide


class Watched(np.ndarray):
    """Rows of a block that know whether anything of them was read."""

    read: ClassVar[bool] = False

    def __getitem__(self, at: Any) -> Any:
        Watched.read = True
        return np.asarray(self)[at]

    def astype(self, *args: Any, **kwargs: Any) -> Any:
        Watched.read = True
        return np.asarray(self).astype(*args, **kwargs)


@pytest.mark.parametrize(
    ("kind", "most", "joined", "saved"),
    [("ols", 12, 3, 4), ("logit", 13, 3, 5), ("quantreg", 14, 4, 8)],
)
def test_a_default_fit_reads_the_covariates_twelve_times(
    kind: str, most: int, joined: int, saved: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    data = {"x": rng.uniform(-1, 1, 3000), "z": rng.uniform(-1, 1, 3000)}
    data["y"] = (data["x"] + rng.normal(size=3000) > 0).astype(float)
    known = {name: dp.Numeric(-1, 1, center=0, scale=0.6) for name in "xz"}
    y = dp.Boolean() if kind == "logit" else dp.Numeric(0, 1, center=0.5, scale=0.5)
    model = getattr(dp, kind)("y ~ x + z", data=data, schema=dp.Schema(known | {"y": y}))
    plain, totals, passes = ResidentRows._chosen, ResidentRows._totals, []

    def counted(self: Any, queries: Any, *others: Any) -> Any:
        self.everything  # noqa: B018 - rows are prepared, which is no pass over them
        Watched.read = False
        answers = totals(self, queries, *others)
        passes.append((Watched.read, len(queries)))
        return answers

    monkeypatch.setattr(ResidentRows, "_chosen", lambda *a: plain(*a).view(Watched))
    monkeypatch.setattr(ResidentRows, "_totals", counted)
    fit = model.fit(dp.Central(1.0, 1e-6), noise=dp.SeededNoise(1))
    together = fit.params.to_numpy()
    assert sum(read for read, _ in passes) <= most
    assert max(asked for _, asked in passes) == joined

    # One after the other the answers are the same, in more passes.
    monkeypatch.setattr(Curator, "foresee", lambda *_: None)
    alone = len(passes)
    again = model.fit(dp.Central(1.0, 1e-6), noise=dp.SeededNoise(1)).params.to_numpy()
    np.testing.assert_array_equal(again, together)
    assert len(passes) - alone == alone + saved


def test_a_weight_beyond_float32_is_no_infinite_one() -> None:
    """Its root times a residual of 0 would be no number, whose whole steps no clip bounds."""
    numbers = Numeric(-1, 1, center=0, scale=1)
    schema = Schema(y=numbers, x=numbers, w=Numeric(0, 1e80, center=1))
    design = dp.ols("y ~ x", schema=schema, weights="w", n=2).design
    query = WhitenedScore(1e-18 * np.eye(2), np.zeros(2), 1.0)
    answers = []
    for weight in (1e80, 1e75, 0.0):
        rows = design.source({"y": [0.0, 0.5], "x": [0.5, 1.0], "w": [weight, 1.0]})
        store = ResidentRows(rows, design, 1, Lots(SeededNoise(1), 2))
        answers.append(store.answer(query))
    np.testing.assert_array_equal(answers[:2], answers[1:])  # a residual of 0 adds nothing
