"""No message is more than e^epsilon times as likely under one value as under another.

Ratios are of exact laws, over all messages where they can be listed; each test is repeated at an
understated epsilon, where it has to fail.
"""

from __future__ import annotations

import itertools
import math
from decimal import Context, Decimal

import numpy as np
import pytest
from scipy import stats

from dpstats.accounting import delta_of
from dpstats.accounting.events import Gaussian
from dpstats.accounting.prices import pure_price
from dpstats.channels import CHANNELS, Channel, CoordinateSampling, Subset, channel, sphere
from dpstats.channels.base import WORD, outside_words
from dpstats.mechanisms import randomize as samplers
from dpstats.mechanisms.noise import SeededNoise
from dpstats.mechanisms.randomize import randomize
from tests.channels.cases import DELTA, EPSILONS, SEEDED, as_payloads, values
from tests.grids import grid

DIGITS = Context(prec=80)
LARGE = [0.01, 0.1, 0.5, 1.0, 2.0, 3.0, 8.0]


def messages(made: Channel) -> np.ndarray:
    """Every message of a channel with few of them, or 2000 random seeds."""
    if made.name == "binary":
        return np.array([[0], [1]], dtype=np.uint8)
    if made.name in ("piecewise", "laplace"):
        everything = np.arange(2**16, dtype="<u2").view(np.uint8).reshape(-1, 2)
        return everything[made.accepts(everything)]
    if isinstance(made, CoordinateSampling):
        subsets = list(itertools.combinations(range(made.dim), made.sampled))
        inner = messages(made.scalar)[:: 1 if made.scalar.name == "binary" else 991]
        combined = list(itertools.product(inner, repeat=made.sampled))
        return np.array(
            [
                np.concatenate([np.array(subset, dtype=made.index).view(np.uint8), *parts])
                for subset in subsets
                for parts in combined[:400]
            ]
        )
    if isinstance(made, Subset):
        every = np.array(list(itertools.product([False, True], repeat=made.dim)))
        return np.packbits(every[every.sum(axis=1) == made.size], axis=1, bitorder="little")
    return np.random.default_rng(1).integers(0, 256, (2000, 16), dtype=np.uint8)


def largest_log_ratio(made: Channel) -> float:
    """Over messages and pairs of values."""
    laws = np.array([made.log_density(messages(made), v) for v in values(made, count=12)])
    return float((laws.max(axis=0) - laws.min(axis=0)).max())


@pytest.mark.parametrize("epsilon", grid(LARGE, lambda epsilon: epsilon in (0.1, 2.0)))
@pytest.mark.parametrize(
    ("name", "dim"),
    [
        ("binary", 1),
        ("piecewise", 1),
        ("laplace", 1),
        ("coordinate", 2),
        ("coordinate", 3),
        ("hemisphere", 2),
        ("hemisphere", 9),
        ("privunit", 1),
        ("privunit", 9),
        ("subset", 2),
        ("subset", 3),
        ("subset", 10),
    ],
)
def test_a_message_is_at_most_exp_epsilon_times_as_likely(name, dim, epsilon) -> None:
    ratio = largest_log_ratio(channel(name, dim, epsilon))
    assert ratio <= epsilon * (1 + 1e-12) + 1e-13  # rounding of logs of small differences
    # Tight: a channel for a little more than what is claimed would be noticed.
    assert largest_log_ratio(channel(name, dim, 1.02 * epsilon)) > epsilon


@pytest.mark.parametrize(
    ("name", "epsilon"),
    [
        *itertools.product(["binary", "piecewise", "laplace", "subset"], EPSILONS),
        ("coordinate", 0.5),
    ],
)
def test_the_law_of_all_messages_adds_up_to_one(name, epsilon) -> None:
    made = channel(name, {"coordinate": 3, "subset": 9}.get(name, 1), epsilon)
    for v in values(made):
        assert np.exp(made.log_density(messages(made), v)).sum() == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("epsilon", [0.001, 0.3, 1.0, 10.0, 40.0])
@pytest.mark.parametrize(("inside", "outside"), [(1, 1), (7, 65529), (0.037, 0.963)])
def test_coins_keep_the_ratio_in_whole_words(epsilon, inside, outside) -> None:
    k = outside_words(epsilon, inside, outside)
    bound = DIGITS.exp(Decimal(epsilon))

    def ratio(words: int) -> Decimal:
        kept = DIGITS.divide(Decimal(WORD - words), Decimal(inside))
        return DIGITS.divide(DIGITS.multiply(kept, Decimal(outside)), Decimal(words))

    assert ratio(k) <= bound
    assert k == 1 or ratio(k - 1) > bound


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", sorted(CHANNELS))
def test_the_event_costs_what_the_channel_promises(name, epsilon) -> None:
    made = channel(name, 1 if name in ("binary", "piecewise", "laplace") else 5, epsilon, DELTA)
    if isinstance(made.event, Gaussian):
        assert delta_of([made.event], epsilon) <= DELTA
        assert delta_of([made.event], 0.99 * epsilon) > DELTA
    else:
        assert made.delta == 0
        assert 0.999 * epsilon < pure_price(made.event) <= epsilon


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_gaussian_noise_keeps_delta(epsilon) -> None:
    made = channel("gaussian", 1, epsilon, DELTA)
    cells = np.arange(-(2**15) + 1, 2**15) * made.step

    def hockey_stick(sigma: float) -> float:
        edges = np.concatenate([cells - made.step / 2, [np.inf]])
        edges[0] = -np.inf
        far, near = (np.diff(stats.norm.cdf(edges, loc=v, scale=sigma)) for v in (1.0, -1.0))
        return float(np.maximum(near - math.exp(epsilon) * far, 0).sum())

    assert hockey_stick(made.sigma) <= DELTA
    assert hockey_stick(0.97 * made.sigma) > DELTA
    densities = made.log_density(cells_of(cells, made.step), np.array([0.3]))
    assert np.exp(densities).sum() == pytest.approx(1, abs=1e-6)


def cells_of(places: np.ndarray, step: float) -> np.ndarray:
    return np.rint(places / step).astype("<i2").view(np.uint8).reshape(-1, 2)


# Seeds --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [*LARGE, 16.0, 1000.0])
@pytest.mark.parametrize("dim", [2, 55, 231, 20_000])
@pytest.mark.parametrize("name", SEEDED)
def test_a_seed_of_the_cap_is_at_most_exp_epsilon_times_as_likely(name, dim, epsilon) -> None:
    cap = channel(name, dim, epsilon).cap
    near, far = cap.log_density(np.array([True, False]))
    assert near - far <= epsilon - 0.9e-9
    assert near - far >= min(epsilon, 40) * 0.999 - 1e-8
    q, c = cap.inside_probability, cap.share
    assert c * math.exp(near) + (1 - c) * math.exp(far) == pytest.approx(2.0**-128)
    assert q / c + (1 - q) / (1 - c) < 2**14 + 3  # seeds that a device draws


@pytest.mark.parametrize("name", SEEDED)
def test_seeds_name_uniform_directions(name) -> None:
    made = channel(name, 3, 2.0)
    seeds = np.random.default_rng(2).integers(0, 256, (40_000, 16), dtype=np.uint8)
    named = sphere.directions(seeds, made.cap.coordinates)
    assert np.allclose(np.linalg.norm(named, axis=1), 1)
    c = made.cap.share
    se = math.sqrt(c * (1 - c) / len(seeds))
    for w in made.poles(values(made), np.full(len(values(made)), True)):
        assert abs((named @ w >= made.cap.threshold).mean() - c) < 5 * se
        a = (made.cap.coordinates - 1) / 2
        assert stats.kstest(named @ w, stats.beta(a, a, loc=-1, scale=2).cdf).pvalue > 1e-6


def test_hashed_uniforms_are_never_0_or_1() -> None:
    ends = sphere.uniform(np.array([0, WORD - 1, WORD // 2, WORD // 2 - 1], dtype=np.uint64))
    assert ends[0] == 2.0**-53
    assert ends[1] == 1 - 2.0**-53
    assert ends[2] + ends[3] == 1


class FewSeeds:
    """A stream whose 16-byte seeds are numbers below `size`; its coins are as usual."""

    def __init__(self, seed: int, size: int) -> None:
        self._stream = SeededNoise(seed).start()
        self._size = size

    def bits(self, count: int) -> bytes:
        if count % 16:
            return self._stream.bits(count)
        numbers = np.frombuffer(self._stream.bits(count // 2), dtype="<u8") % self._size
        return np.stack([numbers, np.zeros_like(numbers)], axis=1).astype("<u8").tobytes()


@pytest.mark.full
@pytest.mark.parametrize("name", SEEDED)
def test_the_device_draws_seeds_by_the_law_that_is_claimed(name) -> None:
    # All of a code of 64 directions, so that the law of a message can be listed and counted.
    size, draws, epsilon = 64, 3000, 1.5
    made = channel(name, 2, epsilon)
    codebook = np.zeros((size, 2), dtype="<u8")
    codebook[:, 0] = np.arange(size)
    named = sphere.directions(codebook.view(np.uint8), made.cap.coordinates)
    q = made.cap.inside_probability
    laws = []
    for v in np.array([[0.6, -0.7], [0.0, 0.0]]):
        law = np.zeros(size)
        chance = float(made.chance(v[None])[0])
        for up, weight in ((True, chance), (False, 1 - chance)):
            w = made.poles(v[None], np.array([up]))[0]
            inside = named @ w >= made.cap.threshold
            law += weight * np.where(inside, q / inside.sum(), (1 - q) / (~inside).sum())
        stream = FewSeeds(7, size)
        sent = as_payloads([randomize(made, v, stream) for _ in range(draws)])
        counts = np.bincount(sent.view("<u8")[:, 0].astype(int), minlength=size)
        assert stats.chisquare(counts, draws * law).pvalue > 1e-6
        laws.append(law)
        if np.any(v):  # power: the same law over other seeds
            assert stats.chisquare(counts, draws * np.roll(law, 1)).pvalue < 1e-6
    # The ratio is that of the cap, up to how uneven so small a code is.
    shares = [
        (named @ w >= made.cap.threshold).mean()
        for up in (True, False)
        for w in made.poles(np.random.default_rng(0).normal(size=(200, 2)) / 9, np.full(200, up))
    ]
    c = made.cap.share
    uneven = max(max(shares) / c, c / min(shares)) * max(
        (1 - c) / (1 - max(shares)), (1 - min(shares)) / (1 - c)
    )
    logs = np.log(laws)
    assert (logs.max(axis=0) - logs.min(axis=0)).max() <= epsilon + 2 * math.log(uneven)


def test_the_time_of_a_message_does_not_depend_on_the_value(monkeypatch) -> None:
    made = channel("privunit", 5, 4.0)
    drawn: list[int] = []
    plain = samplers.directions

    def counted(seeds, coordinates):
        drawn.append(len(seeds))
        return plain(seeds, coordinates)

    monkeypatch.setattr(samplers, "directions", counted)
    totals = []
    for v in (np.zeros(5), np.eye(5)[0], np.full(5, -1e9)):
        stream, spent = SeededNoise(3).start(), []
        for _ in range(600):
            drawn.clear()
            randomize(made, v, stream)
            spent.append(sum(drawn))
        totals.append(spent)
    for one, other in itertools.combinations(totals, 2):
        assert stats.ks_2samp(one, other).pvalue > 1e-6
