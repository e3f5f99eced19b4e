"""Released noise has the planned law, and the tests would notice another one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dpstats.accounting.events import Gaussian, Laplace, Selection
from dpstats.errors import OptionError, PlanError
from dpstats.mechanisms.noise import SafeNoise, SeededNoise
from dpstats.mechanisms.release import ROUNDING, release

N = 20_000
ALPHA = 1e-6  # false-alarm rate of each distribution test
SENSITIVITY = 0.37
SOURCES = [SafeNoise(), SeededNoise(3)]


def noise_of(event, source) -> tuple[np.ndarray, float]:
    answer = np.linspace(-5, 5, N)
    noisy, scale = release(answer, SENSITIVITY, event, source.start())
    return noisy - answer, scale


@pytest.mark.parametrize("source", SOURCES, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize(
    ("event", "law"), [(Gaussian(2.5), stats.norm), (Laplace(2.5), stats.laplace)]
)
def test_noise_has_the_planned_scale_and_no_other(source, event, law) -> None:
    noise, scale = noise_of(event, source)
    assert scale == pytest.approx(2.5 * SENSITIVITY * ROUNDING)
    assert stats.kstest(noise, law(scale=scale).cdf).pvalue > ALPHA
    for wrong in (0.8, 1.2):  # power: half as much error in the scale is noticed
        assert stats.kstest(noise, law(scale=wrong * scale).cdf).pvalue < ALPHA


@pytest.mark.parametrize("source", SOURCES, ids=lambda s: type(s).__name__)
def test_selection_has_the_law_of_the_exponential_mechanism(source) -> None:
    utilities = np.array([0.0, -1.0, -2.5, -7.0])
    event, rounds = Selection(1.3), 6000
    stream = source.start()
    chosen = [int(release(utilities, 1.0, event, stream, "choice")[0][0]) for _ in range(rounds)]
    observed = np.bincount(chosen, minlength=4)

    def expected(epsilon: float) -> np.ndarray:
        p = np.exp(epsilon * utilities / 2)
        return rounds * p / p.sum()

    assert stats.chisquare(observed, expected(1.3)).pvalue > ALPHA
    assert stats.chisquare(observed, expected(1.3 * 1.25)).pvalue < ALPHA


def test_noise_lives_on_the_public_grid() -> None:
    noisy, _ = release(np.array([1 / 3, math.pi]), SENSITIVITY, Gaussian(1.0), SafeNoise().start())
    grid = math.ldexp(1.0, math.floor(math.log2(SENSITIVITY)) - 30)
    assert np.array_equal(np.rint(noisy / grid) * grid, noisy)


def test_a_seed_repeats_and_a_safe_source_does_not() -> None:
    seeded = [release(np.zeros(5), 1.0, Gaussian(1.0), SeededNoise(7).start())[0] for _ in "ab"]
    safe = [release(np.zeros(5), 1.0, Gaussian(1.0), SafeNoise().start())[0] for _ in "ab"]
    assert np.array_equal(*seeded)
    assert not np.array_equal(*safe)
    assert SeededNoise(7).reproducible
    assert not SafeNoise().reproducible


@pytest.mark.parametrize("seed", [-1, 1.5, "7", True, None])
def test_a_bad_seed_is_refused(seed) -> None:
    with pytest.raises(OptionError, match="integer >= 0"):
        SeededNoise(seed)


def test_an_unknown_event_is_refused() -> None:
    with pytest.raises(PlanError, match="No mechanism realises"):
        release(np.zeros(1), 1.0, object(), SafeNoise().start())  # type: ignore[arg-type]


def test_a_search_finds_the_crossing_when_noise_is_small() -> None:
    balance = np.linspace(-700.0, 300.0, 33)
    (position,), _ = release(balance, 1.0, Gaussian(0.5), SafeNoise().start(), "search")
    assert np.interp(position, np.arange(33), balance) == pytest.approx(0.0, abs=10.0)


def test_comparisons_of_a_search_share_one_event() -> None:
    """Five comparisons, each with sqrt(5) times the noise of the event."""
    balance = np.linspace(-1.0, 1.0, 33)
    _, scale = release(balance, 1.0, Gaussian(2.0), SafeNoise().start(), "search")
    assert scale == pytest.approx(2.0 * math.sqrt(5), rel=1e-4)


def test_a_search_without_signal_wanders() -> None:
    """Power: with no balance at all every cell is possible, none dominates."""
    stream = SeededNoise(2).start()
    found = [release(np.zeros(9), 1.0, Gaussian(1.0), stream, "search")[0][0] for _ in range(800)]
    counts = np.bincount(np.floor(found).astype(int), minlength=8)
    assert stats.chisquare(counts).pvalue > ALPHA


@pytest.mark.parametrize(
    ("kind", "event"), [("sum", Selection(1.0)), ("choice", Gaussian(1.0)), ("search", Laplace(1))]
)
def test_an_event_fits_one_kind_of_answer(kind: str, event) -> None:
    with pytest.raises(PlanError, match=f"on a {kind}"):
        release(np.zeros(3), 1.0, event, SafeNoise().start(), kind)


@pytest.mark.parametrize("source", SOURCES, ids=lambda s: type(s).__name__)
def test_one_shot_top_k_has_the_law_of_peeling(source) -> None:
    """Ordered pairs out of three: k rounds of the exponential mechanism without replacement."""
    utilities, epsilon, rounds = np.array([0.0, -1.0, -3.0]), 1.1, 5000
    stream = source.start()
    event = Selection(epsilon, k=2)
    pairs = [tuple(release(utilities, 1.0, event, stream, "choice")[0]) for _ in range(rounds)]
    weight = np.exp(epsilon * utilities / 2)
    expected = {
        (i, j): rounds * weight[i] / weight.sum() * weight[j] / (weight.sum() - weight[i])
        for i in range(3)
        for j in range(3)
        if i != j
    }
    observed = [pairs.count(pair) for pair in expected]
    assert stats.chisquare(observed, list(expected.values())).pvalue > ALPHA
    assert len(set(pairs)) == len(expected)


def test_more_choices_than_candidates_are_refused() -> None:
    with pytest.raises(PlanError, match="too large"):
        release(np.zeros(2), 1.0, Selection(1.0, k=3), SafeNoise().start(), "choice")
