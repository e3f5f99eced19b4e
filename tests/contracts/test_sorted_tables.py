"""Sorted tables: what is released does not depend on where a row stands.

Neighbouring tables differ in one unit, *in any order of rows*: in a table sorted by a private
column, one person's change moves every row between the old place and the new one. Where positions
matter at all (parts, halves, pairs, a person's rows beyond ``max_rows``) lots decide, and lots are
independent and alike. So it is enough that an answer depends on rows and lots through the set of
pairs (row, lot); here lots go along with their rows when these are put in another order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from dpstats.estimators.local import base as local
from dpstats.holders import Labels
from dpstats.mechanisms.lots import Lots
from dpstats.mechanisms.noise import SeededNoise
from dpstats.privacy import Neighbors
from dpstats.queries import PairScales
from tests.contracts.cases import MAX_ROWS, METHODS, Case, Table, each_case
from tests.contracts.messages import MESSAGES, MessageCase, rows_of_rounds
from tests.contracts.spies import Recording, Released, record, replay

N = 60
ROUNDING = 1 + 1e-9
pytestmark = pytest.mark.filterwarnings("ignore::dpstats.errors.FeasibilityWarning")

each_with_lots = pytest.mark.parametrize(
    "case", [c for c in MESSAGES if c.split or c.guarantee == "local-rounds"], ids=str
)


@contextmanager
def lots(drawn: np.ndarray) -> Iterator[None]:
    """Row i draws the i-th of these lots."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lots, "_lots", lambda self, start: drawn)
        yield


def draw(n: int = N) -> np.ndarray:
    return np.random.default_rng(8).integers(0, 2**63, (n, 2)).astype(np.uint64)


def in_order(data: Table, order: Any) -> Table:
    return {name: np.asarray(column)[order] for name, column in data.items()}


def crowded(case: Case) -> Table:
    """A table; in those of persons one has more rows than may contribute."""
    data = case.table(N)
    if case.setting.person:
        data["person"] = np.where(np.arange(N) % 7 == 0, data["person"][0], data["person"])
        assert (data["person"] == data["person"][0]).sum() > MAX_ROWS
    return data


def recorded(case: Case, data: Table, drawn: np.ndarray) -> Recording:
    with lots(drawn):
        return record(case, case.plan(data, case.privacy(8.0, 1e-5, rows=N)), data)


def answers(case: Case, one: Recording, data: Table, drawn: np.ndarray) -> list[Released]:
    with lots(drawn):
        return replay(case, one.plan, data, one.asked)


def rests_on_lots(case: Case, one: Recording) -> bool:
    """Whether a question is put to a part, to pairs, or to some of a person's rows."""
    mechanisms = [one.plan.mechanism(a.slot) for a in one.asked]
    parts = any(m.parts > 1 or m.branch for m in mechanisms)
    return case.setting.person or parts or any(isinstance(a.query, PairScales) for a in one.asked)


def same(one: list[Released], other: list[Released]) -> bool:
    return all(np.array_equal(a.exact, b.exact) for a, b in zip(one, other, strict=True))


@each_case
def test_answers_have_the_same_bits_in_any_order_of_rows_with_their_lots(case: Case) -> None:
    data, drawn = crowded(case), draw()
    one = recorded(case, data, drawn)
    for order in (np.argsort(data["y"]), np.random.default_rng(3).permutation(N)):
        again = answers(case, one, in_order(data, order), drawn[order])
        assert same(one.released, again)
        # Power: with lots that stay where they were, some answer changes.
        # (Of shares as declared none does: whichever rows are kept, they are as declared.)
        if rests_on_lots(case, one) and case.estimator.model != "check":
            assert not same(one.released, answers(case, one, in_order(data, order), drawn))


def moved_to_the_end(data: Table) -> tuple[Table, np.ndarray]:
    """A neighbour of a table sorted by its response: the first row is now the last one."""
    order = np.r_[1:N, 0]
    changed = in_order(data, order)
    changed["y"] = np.array([*changed["y"][:-1], 8.0])
    return changed, order


def moves(one: Recording, again: list[Released]) -> dict[str, float]:
    """How far each slot moves, all its parts together, in units of the sensitivity of one."""
    gaps: dict[str, list[float]] = {}
    norms: dict[str, float] = {}
    for asked, a, b in zip(one.asked, one.released, again, strict=True):
        gap = np.linalg.norm(np.ravel(a.exact - b.exact), ord=a.norm) / a.sensitivity
        gaps.setdefault(asked.slot, []).append(float(gap))
        norms[asked.slot] = a.norm
    return {slot: float(np.linalg.norm(g, ord=norms[slot])) for slot, g in gaps.items()}


@each_case
def test_a_change_in_a_sorted_table_moves_one_part_by_its_sensitivity(case: Case) -> None:
    data = in_order(case.table(N), np.argsort(case.table(N)["y"], kind="stable"))
    if case.setting.person:
        data["person"] = np.arange(N)
    drawn = draw()
    one = recorded(case, data, drawn)
    changed, order = moved_to_the_end(data)
    again = answers(case, one, changed, drawn[order])
    # Where rows are added or removed, a replaced one is one of each.
    allowed = 1.0 if case.setting.neighbors is Neighbors.REPLACE_ONE else 2.0
    assert max(moves(one, again).values()) <= allowed * ROUNDING
    halves = {
        branch
        for branch, a, b in zip(branches(one), one.released, again, strict=True)
        if branch and not np.array_equal(a.exact, b.exact)
    }
    assert len(halves) <= 1


def branches(one: Recording) -> list[int]:
    return [one.plan.mechanism(asked.slot).branch for asked in one.asked]


@pytest.mark.parametrize("name", ["adaptive-clipping-gd", "adaptive-clipping-iht"])
def test_dealing_by_position_would_be_seen(name: str) -> None:
    """Power of the test above: with lots of places, not of rows, all parts move."""
    (case,) = [c for c in METHODS if c.estimator.name == name]
    data = in_order(case.table(N), np.argsort(case.table(N)["y"], kind="stable"))
    one = recorded(case, data, draw())
    changed, _ = moved_to_the_end(data)
    assert max(moves(one, answers(case, one, changed, draw())).values()) > 2


@each_with_lots
def test_rounds_and_halves_of_responses_follow_lots(
    case: MessageCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, drawn = case.table(N), draw()
    order = np.random.default_rng(3).permutation(N)
    # Coins of devices that count are thrown one by one, and go with no row.
    monkeypatch.setattr(local, "counters_of", lambda *args: 0)

    def dealt(table: Table, drawn: np.ndarray) -> list[list[float]]:
        """The responses of each round or half."""
        seen: list[list[float]] = []
        half = Labels.half

        def noting(self: Labels, branch: int) -> Any:
            rows = half(self, branch)
            seen.append(sorted(self._labels[rows].tolist()))
            return rows

        with lots(drawn), rows_of_rounds() as rounds, monkeypatch.context() as patch:
            patch.setattr(Labels, "half", noting)
            case.fit(table, case.privacy(4.0), noise=SeededNoise(1))
        return seen or [sorted(r.tolist()) for r in rounds]

    found = dealt(data, drawn)
    if len(found) == 1:
        pytest.skip("asks all devices at once")
    assert dealt(in_order(data, order), drawn[order]) == found
    assert dealt(in_order(data, order), drawn) != found
