"""Decoded messages are unbiased, with the variance in closed form, however they were made.

z-scores are refused above 5 and p-values below 1e-6, so each assertion fails by chance less than
once in a million; scales that are wrong by a tenth, or a value off by a fifth, are seen.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dpstats.channels import CHANNELS, channel
from dpstats.channels.base import WORD
from dpstats.errors import OptionError
from dpstats.mechanisms import draws
from dpstats.mechanisms import randomize as samplers
from dpstats.mechanisms.noise import SafeNoise, SeededNoise
from dpstats.mechanisms.randomize import MessageSums, inside, randomize, simulate
from tests.channels.cases import CASES, DELTA, as_payloads, build, typical, values
from tests.grids import grid

Z, ALPHA = 5.0, 1e-6
SENT, SIMULATED = 1000, 100_000
QUICK = [c for c in CASES if c[2] == 1.0]
SIMULATED_TOO = [c for c in CASES if c[0] in samplers._SIMULATORS]


def quick_by_default(cases):
    return [c if c in QUICK else pytest.param(c, marks=pytest.mark.full) for c in cases]


def sent(made, v, stream, count=SENT) -> np.ndarray:
    payloads = as_payloads([randomize(made, v, stream) for _ in range(count)])
    assert payloads.shape == (count, made.payload_bytes)
    assert made.accepts(payloads).all()
    decoded = made.decode(payloads)
    assert decoded.shape == (count, made.dim)
    assert decoded.dtype == np.float64
    return decoded


def z_scores(decoded, v, variance) -> np.ndarray:
    """Of the mean in each coordinate, by the spread that is seen and at least that of `variance`.

    Rare coordinates of sampled messages have a spread that few messages do not show.
    """
    spread = np.maximum(decoded.var(axis=0), variance / decoded.shape[1] / 10)
    return (decoded.mean(axis=0) - v) / np.sqrt(spread / len(decoded))


def z_variance(decoded, v, variance) -> float:
    square = ((decoded - v) ** 2).sum(axis=1)
    # A binary message of 0 has one square: no spread beyond rounding.
    spread = max(float(square.std()) / math.sqrt(len(square)), 1e-9 * variance)
    return (float(square.mean()) - variance) / spread


@pytest.mark.parametrize("noise", grid([SafeNoise(), SeededNoise(5)], 1))
@pytest.mark.parametrize("case", QUICK, ids=str)
def test_a_device_is_unbiased_with_the_stated_variance(case, noise) -> None:
    made = build(case)
    v = typical(made)
    decoded = sent(made, v, noise.start())
    variance = made.variance(float(v @ v))
    assert np.abs(z_scores(decoded, v, variance)).max() < Z
    assert abs(z_variance(decoded, v, variance)) < Z


@pytest.mark.parametrize("case", quick_by_default(CASES), ids=str)
def test_a_simulation_is_unbiased_with_the_stated_variance(case) -> None:
    made = build(case)
    for i, v in enumerate([typical(made), values(made)[0]]):
        decoded = simulate(made, np.tile(v, (SIMULATED, 1)), SeededNoise(11 + i).start())
        variance = made.variance(float(v @ v))
        assert np.abs(z_scores(decoded, v, variance)).max() < Z
        assert abs(z_variance(decoded, v, variance)) < Z
        # Power: a variance off by a tenth; and, where noise is not overwhelming, a value off by
        # a fifth of its norm.
        assert abs(z_variance(decoded, v, 1.1 * variance)) > Z
        if made.epsilon >= 1 and i == 0:
            assert np.abs(z_scores(decoded, 1.2 * v, variance)).max() > Z


@pytest.mark.parametrize("case", quick_by_default(SIMULATED_TOO), ids=str)
def test_devices_and_simulation_have_one_law(case) -> None:
    made = build(case)
    v = typical(made)
    device = sent(made, v, SeededNoise(21).start())
    vectorised = simulate(made, np.tile(v, (20_000, 1)), SeededNoise(22).start())
    rng = np.random.default_rng(3)
    for direction in (v, rng.normal(size=made.dim), np.eye(made.dim)[-1]):
        one, other = device @ direction, vectorised @ direction
        assert stats.ks_2samp(one, other).pvalue > ALPHA
        assert stats.ks_2samp(one, 1.5 * other).pvalue < ALPHA  # power
    # Whole vectors: a linear statistic of their products too.
    products = [np.prod(d[:, :2], axis=1) for d in (device, vectorised)]
    assert stats.ks_2samp(*products).pvalue > ALPHA


@pytest.mark.parametrize(
    "case", [("binary", 1, 1.0), ("coordinate", 3, 0.5), ("subset", 7, 0.5)], ids=str
)
def test_messages_have_the_stated_law_on_their_whole_support(case) -> None:
    made = build(case)
    v = typical(made)
    rows = inside(made, np.tile(v, (30_000, 1)))
    payloads = samplers._SENDERS[made.name](made, rows, SeededNoise(4).start())
    support, counts = np.unique(payloads, axis=0, return_counts=True)
    law = np.exp(made.log_density(support, v))
    assert law.sum() == pytest.approx(1)
    assert stats.chisquare(counts, len(rows) * law).pvalue > ALPHA
    other = v[::-1] if made.domain == "simplex" else -v
    wrong = np.exp(made.log_density(support, other))
    assert stats.chisquare(counts, len(rows) * wrong / wrong.sum()).pvalue < ALPHA


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 16.0])
def test_piecewise_messages_have_the_stated_law(epsilon) -> None:
    made = channel("piecewise", 1, epsilon)
    v = np.array([0.3])
    rows = np.tile(v, (60_000, 1))
    payloads = samplers._SENDERS["piecewise"](made, rows, SeededNoise(4).start())
    everything = np.arange(2**16, dtype="<u2").view(np.uint8).reshape(-1, 2)
    law = np.exp(made.log_density(everything, v))
    counts = np.bincount(payloads.view("<u2")[:, 0], minlength=2**16)
    bins = np.unique(np.searchsorted(np.cumsum(law), np.linspace(0, 1, 41)[1:-1]))
    expected = np.add.reduceat(law, np.concatenate([[0], bins]))
    observed = np.add.reduceat(counts, np.concatenate([[0], bins]))
    keep = expected * len(rows) > 5
    total = observed[keep].sum()
    expected = expected[keep] / expected[keep].sum()
    assert stats.chisquare(observed[keep], total * expected).pvalue > ALPHA


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 5.0])
def test_laplace_messages_have_the_stated_law(epsilon) -> None:
    made = channel("laplace", 1, epsilon)
    everything = np.arange(1 - 2**15, 2**15, dtype="<i2").view(np.uint8).reshape(-1, 2)
    for v in (0.0, 0.7, -1.0):
        law = np.exp(made.log_density(everything, np.array([v])))
        places = made.decode(everything)[:, 0]
        assert law.sum() == pytest.approx(1)
        assert law @ places == pytest.approx(v, abs=1e-6 * made.scale)
        assert law @ (places - v) ** 2 == pytest.approx(made.variance(), rel=1e-4)


# -- values ------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", QUICK, ids=str)
def test_any_value_is_taken_into_the_domain(case) -> None:
    made, stream = build(case), SeededNoise(1).start()
    huge = np.finfo(float).max
    for number in (np.nan, np.inf, -np.inf, huge, -huge, 5e-324, 0.0):
        value = np.full(made.dim, 0.1)
        value[0] = number
        message = randomize(made, value, stream)
        assert made.accepts(as_payloads([message])).all()
        assert np.isfinite(simulate(made, value[None], stream)).all()
        taken = inside(made, value[None])[0]
        size = np.abs(taken).max() if made.domain == "linf" else np.linalg.norm(taken)
        assert size <= 1 + 1e-15
        if made.domain == "simplex":
            assert taken.sum() == pytest.approx(1.0)
            assert taken.min() >= 0.0
            assert taken[0] == pytest.approx(float(number == huge), abs=1e-15)
            continue
        if abs(number) == huge:
            assert taken[0] == pytest.approx(np.sign(number))
        if not np.isfinite(number):
            assert taken[0] == 0
            assert np.array_equal(taken[1:], value[1:])


def test_a_row_is_taken_into_the_domain_by_itself() -> None:
    made = channel("privunit", 3, 1.0)
    rows = np.random.default_rng(0).normal(size=(50, 3)) * np.logspace(-3, 3, 50)[:, None]
    spoilt = np.vstack([rows, [np.nan, 1e300, np.inf], [1e308, 1e308, 0]])
    assert np.allclose(inside(made, spoilt)[:50], inside(made, rows), rtol=1e-14)
    norms = np.linalg.norm(rows, axis=1)
    assert np.allclose(inside(made, rows), rows / np.maximum(norms, 1)[:, None])


@pytest.mark.parametrize("value", [0.3, [0.1, 0.2], np.zeros((2, 3)), ["secret", 1, 2], [{}, 1, 2]])
def test_what_is_no_value_is_refused_without_quoting_it(value) -> None:
    with pytest.raises(OptionError) as refused:
        randomize(channel("privunit", 3, 1.0), value, SeededNoise(1).start())
    assert "secret" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


def test_simulation_needs_rows_of_the_right_length() -> None:
    made, stream = channel("privunit", 3, 1.0), SeededNoise(1).start()
    with pytest.raises(OptionError, match="3 coordinates"):
        simulate(made, np.zeros(3), stream)
    assert simulate(made, np.zeros((0, 3)), stream).shape == (0, 3)


# -- exact draws -------------------------------------------------------------------------------


class Words:
    """A stream of given 64-bit words."""

    def __init__(self, *words: int) -> None:
        self.left = list(words)

    def bits(self, count: int) -> bytes:
        taken, self.left = self.left[: count // 8], self.left[count // 8 :]
        return np.array(taken, dtype="<u8").tobytes()


def test_coins_compare_whole_words() -> None:
    assert draws.coins(Words(0, 6, 7, WORD - 1), 7, 4).tolist() == [True, True, False, False]


class Counting:
    """A stream that counts the bytes it gave."""

    def __init__(self, stream) -> None:
        self.stream, self.given = stream, 0

    def bits(self, count: int) -> bytes:
        self.given += count
        return self.stream.bits(count)


@pytest.mark.parametrize(("name", "dim"), [("privunit", 30), ("hemisphere", 30)])
def test_the_time_of_a_message_says_nothing_about_its_side_of_the_cap(name, dim) -> None:
    """Bytes drawn are the same on average whether the seed sent is inside the cap or outside.

    A device that stops at the first seed of the right side fails: at epsilon 6 seeds inside cost
    it ten times as much, and the side together with the message gives the value away.
    """
    made, v = channel(name, dim, 6.0), np.eye(dim)[0]
    stream = Counting(SeededNoise(4).start())
    drawn, near = [], []
    for _ in range(1500):
        before = stream.given
        payload = as_payloads([randomize(made, v, stream)])
        drawn.append(stream.given - before)
        near.append(float(made.decode(payload)[0, 0]) * made.cap.mean >= made.cap.threshold)
    sides = [np.array(drawn)[np.array(near) == side] for side in (True, False)]
    assert min(side.size for side in sides) >= 3
    assert stats.mannwhitneyu(*sides).pvalue > 1e-4


def test_integers_below_a_bound_are_uniform() -> None:
    # 2^64 = 3 * 6148914691236517205 + 1: the last word is redrawn.
    assert draws.below(Words(WORD - 1, WORD - 2, 5), 3, 2).tolist() == [2, 2]
    counts = np.bincount(draws.below(SeededNoise(1).start(), 7, 70_000), minlength=7)
    assert stats.chisquare(counts).pvalue > ALPHA


def test_masks_are_uniform_subsets() -> None:
    masks = draws.masks(SeededNoise(2).start(), 5, 3, 20_000)
    assert (masks.sum(axis=1) == 3).all()
    found, counts = np.unique(masks, axis=0, return_counts=True)
    assert len(found) == 10
    assert stats.chisquare(counts).pvalue > ALPHA


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_sets_about_cells_have_the_stated_covariance(epsilon) -> None:
    made, shares = channel("subset", 6, epsilon), np.array([0.5, 0.3, 0.2, 0.0, 0.0, 0.0])
    cell = np.repeat(np.eye(6)[:3], [50_000, 30_000, 20_000], axis=0)
    apart = simulate(made, cell, SeededNoise(5).start()) - cell
    products = apart[:, :, None] * apart[:, None, :]
    spread = products.std(axis=0) / math.sqrt(len(apart))
    assert np.abs((products.mean(axis=0) - made.noise(shares)) / spread).max() < Z
    assert np.abs((products.mean(axis=0) - 1.1 * made.noise(shares)) / spread).max() > Z
    assert np.abs(made.noise(shares).sum(axis=1)).max() < 1e-12  # messages add up to 1
    assert np.trace(made.noise(shares)) == pytest.approx(made.variance(1.0))


def test_subsets_are_uniform_and_ascending() -> None:
    subsets = draws.subsets(SeededNoise(2).start(), 5, 3, 20_000)
    assert (np.diff(subsets, axis=1) > 0).all()
    found, counts = np.unique(subsets, axis=0, return_counts=True)
    assert len(found) == 10
    assert stats.chisquare(counts).pvalue > ALPHA


# -- malformed messages ------------------------------------------------------------------------


def test_messages_that_no_device_sends_are_not_accepted() -> None:
    def accepted(made, *numbers, kind="u1") -> bool:
        payload = np.array([numbers], dtype=kind).view(np.uint8)
        return bool(made.accepts(payload)[0])

    binary = channel("binary", 1, 1.0)
    assert [accepted(binary, b) for b in (0, 1, 2, 255)] == [True, True, False, False]
    for name, dim in (("laplace", 1), ("gaussian", 2)):
        made = channel(name, dim, 1.0, DELTA)
        assert accepted(made, *[2**15 - 1] * dim, kind="<i2")
        assert not accepted(made, *[-(2**15)] * dim, kind="<i2")
    made = channel("subset", 10, 1.0)
    assert (made.size, made.payload_bytes) == (3, 2)
    sets = [[0b111, 0], [0b11, 0b10], [0b1111, 0], [0b11, 0], [0b11, 0b100]]
    assert made.accepts(np.array(sets, np.uint8)).tolist() == [True, True, False, False, False]
    made = channel("coordinate", 300, 8.0)
    assert (made.sampled, made.scalar.name, made.payload_bytes) == (2, "piecewise", 8)
    assert accepted(made, 3, 299, 0, 9, kind="<u2")
    for wrong in ((3, 3), (5, 3), (3, 300), (300, 301)):
        assert not accepted(made, *wrong, 0, 9, kind="<u2")
    small = channel("coordinate", 300, 0.5)
    assert small.accepts(np.array([[7, 0, 1], [7, 0, 2], [7, 7, 1]], np.uint8)).tolist() == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("case", QUICK, ids=str)
def test_accepted_noise_decodes_to_finite_numbers(case) -> None:
    made = build(case)
    garbage = np.random.default_rng(0).integers(0, 256, (500, made.payload_bytes), dtype=np.uint8)
    kept = garbage[made.accepts(garbage)]
    assert np.isfinite(made.decode(kept)).all()


# -- sums of messages --------------------------------------------------------------------------


@pytest.mark.parametrize("n", [3, 40], ids=["one by one", "exact"])
def test_sums_of_gaussian_messages_have_the_law_of_messages(n) -> None:
    p, repeats = 2, 4000
    made = channel("gaussian", p, 2.0, DELTA)
    rng = np.random.default_rng(5)
    rows = 0.5 * rng.normal(size=(n, p))
    rows[:, 1] = 0.2  # with the constant the rows have a rank below p + 1
    rows = inside(made, rows)
    stream = SeededNoise(6).start()
    upper = np.triu_indices(p)

    def summed() -> np.ndarray:
        sums = MessageSums(made, stream)
        sums.add(rows[:2])
        sums.add(rows[2:])
        mean, second = sums.averages()
        assert np.array_equal(second, second.T)
        return np.concatenate([mean, second[upper]])

    def direct() -> np.ndarray:
        z = simulate(made, rows, stream)
        return np.concatenate([z.mean(axis=0), (z.T @ z / n)[upper]])

    ours = np.array([summed() for _ in range(repeats)])
    theirs = np.array([direct() for _ in range(repeats)])
    for a, b in zip(ours.T, theirs.T, strict=True):
        assert stats.ks_2samp(a, b).pvalue > ALPHA
        assert stats.ks_2samp(1.3 * a, b).pvalue < ALPHA  # power
    assert np.allclose(np.corrcoef(ours.T), np.corrcoef(theirs.T), atol=7 / math.sqrt(repeats))


@pytest.mark.parametrize("name", sorted(CHANNELS))
def test_sums_of_messages_agree_with_messages(name) -> None:
    made = channel(name, 1 if name in ("binary", "piecewise", "laplace") else 4, 3.0, DELTA)
    rows = np.tile(typical(made), (30_000, 1))
    sums = MessageSums(made, SeededNoise(8).start())
    for block in np.array_split(rows, 3):
        sums.add(block)
    mean, second = sums.averages()
    assert np.array_equal(sums.averages()[0], mean)
    z = simulate(made, rows, SeededNoise(9).start())
    se = np.sqrt(2 * z.var(axis=0) / len(z))
    assert (np.abs(mean - z.mean(axis=0)) < Z * se).all()
    products = z[:, :, None] * z[:, None, :]
    spread = np.sqrt(2 * products.var(axis=0) / len(z)) + 1e-9
    assert (np.abs(second - products.mean(axis=0)) < Z * spread).all()


def test_averages_of_no_messages_are_refused() -> None:
    with pytest.raises(OptionError, match="no messages"):
        MessageSums(channel("privunit", 2, 1.0), SeededNoise(1).start()).averages()


def test_a_seed_repeats_messages_and_a_safe_source_does_not() -> None:
    made, v = channel("privunit", 4, 1.0), np.full(4, 0.2)
    assert len({randomize(made, v, SeededNoise(3).start()) for _ in range(3)}) == 1
    assert len({randomize(made, v, SafeNoise().start()) for _ in range(3)}) == 3
