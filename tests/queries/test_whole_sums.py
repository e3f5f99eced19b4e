"""Sums over public rows that are read in blocks: exact for any number of rows, and never longer."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from dpstats import tall
from dpstats.holders.labels import MAX_ROWS
from dpstats.mechanisms.release import ROUNDING
from dpstats.queries.label_held import HeldSums
from dpstats.queries.labels import Interval, LabelSums, WeightedResiduals
from dpstats.queries.whole_sums import whole_sum

UNIT = Interval(-1.0, 1.0)


def test_blocks_are_added_exactly_beyond_int64() -> None:
    rng = np.random.default_rng(0)
    parts = [rng.integers(-(2**52), 2**52, 2) for _ in range(5)]
    blocks = (parts[i % 5].astype(np.float64) for i in range(2**16))  # as of 2^30 rows
    exact = [sum(int(parts[i % 5][j]) for i in range(2**16)) for j in range(2)]
    assert whole_sum(blocks).tolist() == [float(total) for total in exact]
    most = (np.array([2.0**52]) for _ in range(2**16))
    assert whole_sum(most).tolist() == [2.0**68]


def test_neighbours_of_so_many_rows_are_as_near_as_noise_allows() -> None:
    """Of sums of the largest products of 2^30 rows, one of which changes sign."""
    step, others = 2**38, [2**38 * (MAX_ROWS - 1), 2**38 * (MAX_ROWS // 3) + 12_345]
    for total in others:
        ends = [np.asarray(total + mine, dtype=object).astype(np.float64) for mine in (-step, step)]
        assert abs(float(ends[1] - ends[0])) <= ROUNDING * 2 * step


def test_blocks_of_any_size_have_the_same_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    rows, v = rng.normal(size=(1000, 3)), rng.uniform(-1, 1, 1000)
    fitted, half = rng.uniform(-1, 1, 1000), rng.uniform(0.1, 0.5, 1000)
    for query in (
        LabelSums(UNIT, rows),
        HeldSums(UNIT, rows, fitted - half, fitted + half),
        WeightedResiduals(UNIT, rows, fitted, half),
    ):
        whole = query.total(v), query.sensitivity()
        monkeypatch.setattr(tall, "ROWS", 77)
        made = {
            each.name: tall.LazyRows(value.shape, lambda part, value=value: value[part])
            for each in fields(query)
            if isinstance(value := getattr(query, each.name), np.ndarray)
        }
        parts = replace(query, **made)
        assert parts.total(v).tolist() == whole[0].tolist()
        assert parts.sensitivity() == whole[1]
        monkeypatch.undo()


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("kind", [LabelSums, WeightedResiduals])
def test_rows_that_grow_after_their_sensitivity_was_computed_move_a_sum_no_farther(
    kind: type, norm: str
) -> None:
    """Rows are public: what makes them may be wrong, and what one response moves is bounded."""
    rows = np.random.default_rng(2).normal(size=(50, 3))
    made = tall.LazyRows(rows.shape, lambda part: rows[part])
    fitted, v, order = np.zeros(50), np.full(50, 0.5), 1 if norm == "l1" else 2
    sums = kind is LabelSums
    query = (
        LabelSums(UNIT, made, norm) if sums else WeightedResiduals(UNIT, made, fitted, 1.0, norm)
    )
    change, grown = query.sensitivity(), 0.0
    rows *= 1.5
    for at in range(50):
        ends = [query.total(np.where(np.arange(50) == at, end, v)) for end in (-1.0 * sums, 1.0)]
        grown = max(grown, float(np.linalg.norm(ends[1] - ends[0], order)))
    assert 0.99 * change <= grown <= change
