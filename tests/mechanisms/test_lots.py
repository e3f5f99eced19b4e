"""Lots rank the rows of a table at random, whatever the rows are, and deal them into parts."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from dpstats.mechanisms import lots as module
from dpstats.mechanisms.lots import BLOCK, GivenKey, Lots, LotsWindow
from dpstats.mechanisms.noise import SafeNoise, SeededNoise


def drawn(count: int, seed: int = 0) -> Lots:
    return Lots(SeededNoise(seed).start(), count)


def by_hand(key: bytes, count: int) -> list[tuple[int, int]]:
    """Lots as their definition says, one by one."""
    found = []
    for i in range(count):
        block, at = divmod(i, 2**16)
        size = 16 * min(2**16, count - 2**16 * block)
        digest = hashlib.shake_256(key + block.to_bytes(8, "big")).digest(size)
        word = digest[16 * at : 16 * at + 16]
        found.append((int.from_bytes(word[:8], "little"), int.from_bytes(word[8:], "little")))
    return found


@pytest.mark.parametrize("parts", [1, 2, 7])
@pytest.mark.parametrize("n", [0, 1, 2, 9, 1000, 2**16, 2**16 + 1])
def test_parts_are_disjoint_complete_and_of_public_size(n: int, parts: int) -> None:
    lots = drawn(n)
    dealt = [lots.dealt(part, parts) for part in range(parts)]
    assert [p.size for p in dealt] == [n * (k + 1) // parts - n * k // parts for k in range(parts)]
    np.testing.assert_array_equal(np.sort(np.concatenate(dealt)), np.arange(n))


def test_ranks_are_those_of_sorted_lots() -> None:
    lots = drawn(500)
    words = by_hand(lots.key, 500)
    order = sorted(range(500), key=words.__getitem__)
    assert lots.ranked(0, 500).tolist() == order
    assert lots.ranked(120, 333).tolist() == order[120:333]


def test_lots_of_every_block_are_their_own() -> None:
    lots = drawn(2**17)
    words = np.concatenate([lots._lots(start) for start in range(0, len(lots), 2**16)])
    assert len(np.unique(words[:, 0])) == len(words)


@pytest.mark.parametrize("n", [5, 2**16 + 3])
def test_rows_of_a_part_are_found_where_they_stand(n: int) -> None:
    lots = drawn(n)
    for part in range(3):
        found = [lots.among(start, part, 3) for start in range(0, n, module.BLOCK)]
        np.testing.assert_array_equal(np.concatenate(found), np.sort(lots.dealt(part, 3)))


@pytest.mark.parametrize("cuts", [(0, 1), (0, 5), (3, 70_000), (69_999, 70_000), (9, 9)])
def test_rows_between_two_ranks_are_found_where_they_stand(cuts: tuple[int, int]) -> None:
    lots = drawn(70_000)
    found = [lots.between(start, *cuts) for start in range(0, 70_000, module.BLOCK)]
    assert np.concatenate(found).tolist() == sorted(lots.ranked(*cuts))


def test_equal_lots_are_found_in_the_parts_they_are_dealt_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = np.array([[1, 5], [0, 2], [1, 5], [1, 4], [0, 2], [1, 5]], dtype=np.uint64)
    monkeypatch.setattr(Lots, "_lots", lambda self, start: words)
    lots = drawn(6)
    for part in range(4):
        assert lots.among(0, part, 4).tolist() == sorted(lots.dealt(part, 4))


def test_equal_lots_do_not_make_parts_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lots, "_lots", lambda self, start: np.zeros((10, 2), dtype=np.uint64))
    dealt = [drawn(10).dealt(part, 3).tolist() for part in range(3)]
    assert dealt == [[0, 1, 2], [3, 4, 5], [6, 7, 8, 9]]


def halves(make: Callable[[int], list[int]], draws: int = 1000) -> float:
    """p-value of a chi-squared test that each choice of 3 of 6 rows is equally likely."""
    places = {chosen: i for i, chosen in enumerate(combinations(range(6), 3))}
    counts = np.zeros(len(places))
    for seed in range(draws):
        counts[places[tuple(sorted(make(seed)))]] += 1
    return float(stats.chisquare(counts).pvalue)


def test_every_half_is_equally_likely() -> None:
    """False alarm 1e-4; a choice that prefers some halves by a tenth is seen."""
    assert halves(lambda seed: drawn(6, seed).dealt(0, 2).tolist()) > 1e-4
    rng = np.random.default_rng(1)

    def alternating(seed: int) -> list[int]:
        return [0, 2, 4] if rng.uniform() < 0.1 else drawn(6, seed).dealt(0, 2).tolist()

    assert halves(alternating) < 1e-4


def test_order_within_a_part_is_random_too() -> None:
    """Pairs are made of it. A rank correlation of n = 10,000 is within 5 of its sd 1/100."""
    assert abs(stats.spearmanr(drawn(10_000).dealt(0, 1), np.arange(10_000)).statistic) < 0.05


def test_keys_are_fresh_unless_they_are_seeded() -> None:
    one, two = (Lots(SafeNoise().start(), 100).ranked(0, 100) for _ in range(2))
    assert not np.array_equal(one, two)
    np.testing.assert_array_equal(drawn(100).ranked(0, 100), drawn(100).ranked(0, 100))
    assert not np.array_equal(drawn(100, 1).ranked(0, 100), drawn(100, 2).ranked(0, 100))


def test_a_key_is_drawn_when_it_is_needed_and_once() -> None:
    class Bits:
        asked = 0

        def bits(self, count: int) -> bytes:
            self.asked += 1
            return bytes(count)

    bits = Bits()
    lots = Lots(bits, 10)
    assert bits.asked == 0
    lots.dealt(0, 2)
    lots.dealt(1, 2)
    assert bits.asked == 1


def test_bins_hold_all_lots() -> None:
    bins = Lots._bins(np.array([[0, 0], [2**64 - 1, 0]], dtype=np.uint64))
    assert bins.tolist() == [0, 2**module._BIN_BITS - 1]


@pytest.mark.parametrize("cuts", [(0, 400, 1000), (0, 0, 1, 1000), (0, 65_533, 65_545, 70_000)])
@pytest.mark.parametrize("parts", [2, 7])
def test_windows_deal_the_parts_of_the_whole_table(cuts: tuple[int, ...], parts: int) -> None:
    whole = drawn(cuts[-1])
    for part in range(parts):
        tiles = [(LotsWindow(whole, a, b - a), a) for a, b in itertools.pairwise(cuts)]
        dealt = np.concatenate([window.dealt(part, parts) + start for window, start in tiles])
        assert dealt.tolist() == sorted(whole.dealt(part, parts).tolist())
        for window, _ in tiles:
            blocks = [window.among(a, part, parts) for a in range(0, len(window), BLOCK)]
            found = np.concatenate([*blocks, np.zeros(0, dtype=np.intp)])
            assert found.tolist() == window.dealt(part, parts).tolist()


def test_lots_are_the_same_where_the_key_was_sent() -> None:
    here, sent = drawn(500), GivenKey()
    there = Lots(sent, 500)
    with pytest.raises(ValueError, match="32 bytes"):
        there.dealt(0, 2)
    sent.key = here.key
    assert there.dealt(0, 2).tolist() == here.dealt(0, 2).tolist()
