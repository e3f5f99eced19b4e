"""A curator answers what was planned, once, exactly, and lets nothing else out."""

from __future__ import annotations

import gc
import traceback
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dpstats.accounting.events import Gaussian, Laplace
from dpstats.design import RawBlock
from dpstats.errors import DataError, PlanError
from dpstats.holders import Curator
from dpstats.mechanisms.noise import SeededNoise
from dpstats.privacy import Central, Neighbors
from dpstats.protocol import Mechanism, Plan
from dpstats.queries import (
    Count,
    Geometry,
    Gram,
    PairScales,
    ResponseQuantile,
    Score,
    ScoreOuter,
)

D = 4
TINY = Gaussian(1e-9)  # noise far below what the assertions look at


class FakeSource:
    """Rows behind a design, served in blocks."""

    is_sparse = False
    has_offset = has_weights = False

    def __init__(self, x: Any, y: Any, keep: Any = None, unit: Any = None) -> None:
        self.x, self.y, self.unit = x, y, unit
        self.keep = np.ones(len(y), dtype=bool) if keep is None else keep

    def __len__(self) -> int:
        return len(self.y)

    def block(self, start: int, stop: int) -> Any:
        rows = slice(start, stop)
        unit = None if self.unit is None else self.unit[rows]
        return RawBlock(self.x[rows], self.y[rows], self.keep[rows], unit)


def curator(
    source: Any,
    slots: tuple[str, ...],
    *,
    parts: int = 1,
    max_rows: int | None = None,
    privacy: Central = Central(1.0, 1e-6),  # noqa: B008 - a frozen record
    event: Any = TINY,
):
    design: Any = SimpleNamespace(
        schema=SimpleNamespace(max_rows=max_rows, unit=source.unit is not None or None),
        internal_bounds=np.array([[-1.0, 1.0]] * D),
        endog=SimpleNamespace(name="y"),
        internal_endog_bounds=(-1.0, 1.0),
        largest_root=1.0,
    )
    mechanisms = tuple(Mechanism(s, event, "", parts) for s in slots)
    names, cost = ("x",) * D, (1.0, 1e-6)
    plan = Plan(
        "ols", "test", privacy, len(source), names, mechanisms, cost, max_rows=max_rows or 1
    )
    return Curator(source, design, plan, SeededNoise(1))


def rows(n: int, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, (n, D)), rng.uniform(-1, 1, n)


def test_noise_for_another_norm_is_refused() -> None:
    # A score is bounded in L2; Laplace noise at that scale would not protect it.
    score = Score(Geometry(1.0), np.zeros(D), 1.0)
    with pytest.raises(PlanError, match="needs a sensitivity in l1, and this one is in l2"):
        curator(FakeSource(*rows(50)), ("a",), event=Laplace(1.0)).ask(score, "a")


def test_an_answer_does_not_depend_on_the_order_of_rows() -> None:
    x, y = rows(30_000)
    order = np.random.default_rng(2).permutation(len(y))
    beta = np.full(D, 0.3)
    for query in (Gram(Geometry(1.2)), Score(Geometry(1.2), beta, 0.4)):
        one = curator(FakeSource(x, y), ("a",)).ask(query, "a").value
        two = curator(FakeSource(x[order], y[order]), ("a",)).ask(query, "a").value
        assert np.array_equal(one, two)


def test_each_planned_mechanism_answers_once() -> None:
    holder = curator(FakeSource(*rows(50)), ("a", "b"))
    holder.ask(Count(), "a")
    with pytest.raises(PlanError, match="already answered"):
        holder.ask(Count(), "a")
    with pytest.raises(PlanError, match="No mechanism 'c'"):
        holder.ask(Count(), "c")
    assert [r.slot for r in holder.transcript] == ["a"]


SEARCH = ResponseQuantile(np.linspace(-1, 1, 9), 0.25)


def test_a_comparison_is_one_balance_of_a_search() -> None:
    x, y = rows(400)
    holder = curator(FakeSource(x, y), ("a",))
    for at in (4, 2, 1):
        (balance,), _ = holder.compare(SEARCH, "a", at)
        below = (y <= SEARCH.candidates[at]).sum()
        assert balance == pytest.approx(0.75 * below - 0.25 * (400 - below), abs=1e-3)


def test_comparisons_of_a_search_are_answered_as_often_as_it_has_them() -> None:
    holder = curator(FakeSource(*rows(50)), ("a", "b"))
    holder.ask(SEARCH, "b")
    wider = ResponseQuantile(np.linspace(-1, 1, 17), 0.25)
    for _ in range(3):
        holder.compare(SEARCH, "a", 4)
        for query, slot in ((SEARCH, "b"), (wider, "a")):
            with pytest.raises(PlanError, match="was answered, or is of another search"):
                holder.compare(query, slot, 4)
        with pytest.raises(PlanError, match="already answered"):
            holder.ask(Count(), "a")
    with pytest.raises(PlanError, match="was answered"):
        holder.compare(SEARCH, "a", 2)
    spent = sum(r.event.rho for r in holder.transcript if r.slot == "a")
    assert spent == pytest.approx(TINY.rho)


@pytest.mark.parametrize("at", [-1, 0, 8, 9, 1.5])
def test_a_comparison_is_of_a_candidate_between_the_ends(at: Any) -> None:
    holder = curator(FakeSource(*rows(50)), ("a",))
    with pytest.raises(PlanError, match="between its ends"):
        holder.compare(SEARCH, "a", at)


def test_noise_of_comparisons_is_that_of_the_search() -> None:
    # 200 draws: the standard deviation is within 15 % of the stated one but for 1 in 400.
    event, found = Gaussian(3.0), []
    for _ in range(100):
        holder = curator(FakeSource(*rows(50)), ("a",), event=event)
        holder._noise = SeededNoise(len(found)).start()
        pair = [holder.compare(SEARCH, "a", 4) for _ in range(2)]
        found += [float(a.value[0]) for a in pair]
    stated = pair[0].noise.sd
    assert stated == pytest.approx(3.0 * np.sqrt(3), rel=1e-3)
    assert np.std(found) == pytest.approx(stated, rel=0.15)


def test_the_transcript_states_sensitivity_and_scale() -> None:
    holder = curator(FakeSource(*rows(50)), ("a",))
    holder.ask(Gram(Geometry(1.2)), "a")
    (release,) = holder.transcript
    assert release.sensitivity == pytest.approx(np.sqrt(2) * 1.2**2)
    assert release.scale == pytest.approx(release.sensitivity * TINY.noise_multiplier, rel=1e-4)
    assert release.parameters == {"radius": 1.2, "whitened": False}


def test_incomplete_rows_contribute_nothing() -> None:
    x, y = rows(500)
    keep = np.arange(500) % 3 > 0
    holder = curator(FakeSource(x, y, keep), ("count", "gram"))
    assert holder.ask(Count(), "count").value[0] == pytest.approx(keep.sum())
    gram = holder.ask(Gram(Geometry(2.0)), "gram").value
    assert gram == pytest.approx(x[keep].T @ x[keep], abs=0.01)


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e300, -1e300])
def test_a_wild_value_is_clamped(value: float) -> None:
    x, y = rows(100)
    x[3, 1] = y[4] = value
    gram = curator(FakeSource(x, y), ("g",)).ask(Gram(Geometry(2.0)), "g").value
    assert np.all(np.abs(gram) <= 100 + 1e-6)


@pytest.mark.parametrize("part", [0.5, 1.5, -1, 2])
def test_a_part_between_two_parts_is_not_answered(part: Any) -> None:
    holder = curator(FakeSource(*rows(100)), ("a",), parts=2)
    with pytest.raises(PlanError, match="never planned"):
        holder.ask(Count(), "a", part)


def test_parts_cover_every_row_once() -> None:
    holder = curator(FakeSource(*rows(1001)), ("count",), parts=4)
    counts = [holder.ask(Count(), "count", part=p).value[0] for p in range(4)]
    assert sum(counts) == pytest.approx(1001)
    with pytest.raises(PlanError):
        holder.ask(Count(), "count", part=4)


@pytest.mark.parametrize("max_rows", [1, 2])
def test_rows_of_several_units_are_not_cut_into_parts(max_rows: int) -> None:
    source = FakeSource(*rows(100), unit=np.arange(100) // 2)
    with pytest.raises(PlanError, match="Disjoint"):
        curator(source, ("n",), parts=2, max_rows=max_rows).ask(Count(), "n")


def test_a_private_number_of_rows_is_not_cut_into_parts() -> None:
    private = Central(1.0, 1e-6, neighbors=Neighbors.ADD_REMOVE)
    with pytest.raises(PlanError, match="Disjoint"):
        curator(FakeSource(*rows(100)), ("n",), parts=2, privacy=private).ask(Count(), "n")


def test_pairs_do_not_depend_on_the_number_of_threads(monkeypatch) -> None:
    x, y = rows(20_001)
    answers = []
    for cores in (1, 2):
        monkeypatch.setattr("os.cpu_count", lambda c=cores: c)
        holder = curator(FakeSource(x, y), ("p",))
        answers.append(holder.ask(PairScales(np.zeros(D), -6, 2), "p").value)
    assert np.array_equal(*answers)


def test_a_unit_keeps_the_rows_with_its_smallest_lots_only() -> None:
    x, y = rows(9000)
    unit = np.random.default_rng(4).integers(0, 1500, 9000)
    holder = curator(FakeSource(x, y, unit=unit), ("n", "m"), max_rows=2)
    drawn = holder._rows._lots.ranked(0, 9000)
    first_two = [drawn[unit[drawn] == u][:2] for u in np.unique(unit)]
    assert holder.ask(Count(), "n").value[0] == pytest.approx(sum(map(len, first_two)))
    query = ScoreOuter(Geometry(1.2), np.zeros(D), 0.4, max_rows=2)
    w = np.minimum(1, 1.2 / np.linalg.norm(x, axis=1))
    s = x * (w**2 * np.clip(y, -0.4, 0.4))[:, None]
    sums = np.array([s[i].sum(axis=0) for i in first_two])
    assert holder.ask(query, "m").value == pytest.approx(sums.T @ sums, abs=0.05)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_carries_no_frame_with_rows(stop: type[BaseException]) -> None:
    class Stopped(FakeSource):
        def block(self, start: int, stop_at: int) -> Any:
            raise stop

    with pytest.raises(stop) as caught:
        curator(Stopped(*rows(10)), ("a",)).ask(Count(), "a")
    frames = [f for f, _ in traceback.walk_tb(caught.value.__traceback__)]
    assert not [f for f in frames if "self" in f.f_locals]


def test_an_exception_carries_no_row(monkeypatch) -> None:
    secret = 0.123456789
    x, y = rows(10)
    y[5] = secret

    class Broken(FakeSource):
        def block(self, start: int, stop: int) -> Any:
            private = self.y
            raise ValueError(f"cannot read {private[5]}")

    with pytest.raises(DataError, match="withheld") as caught:
        curator(Broken(x, y), ("a",)).ask(Count(), "a")
    error = caught.value
    assert error.__cause__ is None
    assert error.__context__ is None
    assert str(secret) not in "".join(traceback.format_exception(error))
    private_frames = [
        f.f_code.co_name for f, _ in traceback.walk_tb(error.__traceback__) if "self" in f.f_locals
    ]
    assert "block" not in private_frames


def test_rows_go_when_the_holder_goes() -> None:
    holder = curator(FakeSource(*rows(64)), ("a",))
    kept = holder._rows.everything.x
    assert kept.dtype == np.float32
    del holder
    gc.collect()
    assert len([r for r in gc.get_referrers(kept) if isinstance(r, dict)]) <= 1


def test_other_trust_models_are_not_a_curators() -> None:
    design: Any = None
    from dpstats.privacy import Local

    plan = Plan("ols", "test", Local(1.0), 5, ("x",), (), (1.0, 0.0))
    with pytest.raises(PlanError, match="local"):
        Curator(FakeSource(*rows(5)), design, plan, SeededNoise(1))


def test_what_a_block_remembers_changes_no_answer() -> None:
    x, y = rows(20_000)
    beta, other = np.full(D, 0.3), np.full(D, -0.1)
    whiten = np.linalg.qr(np.random.default_rng(3).normal(size=(D, D)))[0] * [1.0, 2.0, 3.0, 4.0]
    asked = [
        Score(Geometry(1.2, whiten), beta, 0.4),
        Gram(Geometry(1.2, whiten), beta, 0.4),
        Gram(Geometry(0.9, whiten)),
        ScoreOuter(Geometry(1.2, 2 * whiten), other, 0.4),
        Score(Geometry(1.2), other, 0.3),
        Score(Geometry(1.2, whiten), beta, 0.4),
    ]
    slots = tuple("abcdef")
    together = curator(FakeSource(x, y), slots)
    for slot, query in zip(slots, asked, strict=True):
        before = together.ask(query, slot).value
        alone = curator(FakeSource(x, y), (slot,)).ask(query, slot).value
        assert before == pytest.approx(alone, rel=1e-12, abs=1e-6)
