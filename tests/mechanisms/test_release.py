"""Released noise has the planned law, and the tests would notice another one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dpstats.accounting import delta_of
from dpstats.accounting.events import Gaussian, Laplace, Peeling, Selection
from dpstats.errors import OptionError, PlanError
from dpstats.mechanisms.noise import SafeNoise, SeededNoise
from dpstats.mechanisms.release import ROUNDING, release
from tests.grids import grid

N = 20_000
ALPHA = 1e-6  # false-alarm rate of each distribution test
SENSITIVITY = 0.37
SOURCES = [SafeNoise(), SeededNoise(3)]
# A source, the part of the draws that is made, and a wrong scale that these notice: safe noise is
# slow, and a quarter of the draws sees it halved.
DRAWS = grid([(SafeNoise(), 0.25, 0.5), (SafeNoise(), 1, 0.8), (SeededNoise(3), 1, 0.8)], 1)
each_draw = pytest.mark.parametrize(("source", "part", "wrong"), DRAWS)


def noise_of(event, source) -> tuple[np.ndarray, float]:
    answer = np.linspace(-5, 5, N)
    noisy, scale = release(answer, SENSITIVITY, event, source.start(), norm="l1")
    return noisy - answer, scale


@pytest.mark.parametrize("source", grid(SOURCES, 1), ids=lambda s: type(s).__name__)
@pytest.mark.parametrize(
    ("event", "law"), [(Gaussian(2.5), stats.norm), (Laplace(2.5), stats.laplace)]
)
def test_noise_has_the_planned_scale_and_no_other(source, event, law) -> None:
    noise, scale = noise_of(event, source)
    assert scale == pytest.approx(2.5 * SENSITIVITY * ROUNDING)
    assert stats.kstest(noise, law(scale=scale).cdf).pvalue > ALPHA
    for wrong in (0.8, 1.2):  # power: half as much error in the scale is noticed
        assert stats.kstest(noise, law(scale=wrong * scale).cdf).pvalue < ALPHA


@each_draw
def test_selection_has_the_law_of_the_exponential_mechanism(source, part, wrong) -> None:
    utilities = np.array([0.0, -1.0, -2.5, -7.0])
    event, rounds = Selection(1.3), round(6000 * part)
    stream = source.start()
    chosen = [int(release(utilities, 1.0, event, stream, "choice")[0][0]) for _ in range(rounds)]
    observed = np.bincount(chosen, minlength=4)

    def expected(epsilon: float) -> np.ndarray:
        p = np.exp(epsilon * utilities / 2)
        return rounds * p / p.sum()

    assert stats.chisquare(observed, expected(1.3)).pvalue > ALPHA
    assert stats.chisquare(observed, expected(1.3 / wrong)).pvalue < ALPHA


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
    ("kind", "event"),
    [
        ("sum", Selection(1.0)),
        ("choice", Gaussian(1.0)),
        ("search", Laplace(1)),
        ("sum", Peeling(1.0)),
        ("peel", Selection(1.0)),
    ],
)
def test_an_event_fits_one_kind_of_answer(kind: str, event) -> None:
    with pytest.raises(PlanError, match=f"on a {kind}"):
        release(np.zeros(3), 1.0, event, SafeNoise().start(), kind)


@pytest.mark.parametrize(
    ("kind", "event", "norm"),
    [("sum", Laplace(1.0), "l2"), ("sum", Laplace(1.0), "linf"), ("sum", Gaussian(1.0), "linf")],
)
def test_noise_is_made_for_the_norm_of_the_sensitivity(kind: str, event, norm: str) -> None:
    with pytest.raises(PlanError, match=f"and this one is in {norm}"):
        release(np.zeros(3), 1.0, event, SafeNoise().start(), kind, norm)
    # One number has one norm.
    release(np.zeros(1), 1.0, event, SafeNoise().start(), kind, norm)


@pytest.mark.parametrize("event", [Laplace(1.0), Gaussian(1.0)])
def test_a_bound_in_a_larger_norm_will_do(event) -> None:
    noisy, scale = release(np.zeros(3), 1.0, event, SafeNoise().start(), "sum", "l1")
    assert 1.0 <= scale < 1.0001
    assert noisy.all()


@each_draw
def test_one_shot_top_k_has_the_law_of_peeling(source, part, wrong) -> None:
    """Ordered pairs out of three: k rounds of the exponential mechanism without replacement."""
    utilities, epsilon, rounds = np.array([0.0, -1.0, -3.0]), 1.1, round(5000 * part)
    stream = source.start()
    event = Selection(epsilon, k=2)
    pairs = [tuple(release(utilities, 1.0, event, stream, "choice")[0]) for _ in range(rounds)]
    observed: dict[tuple[int, int], int] = {
        (i, j): pairs.count((i, j)) for i in range(3) for j in range(3) if i != j
    }

    def pvalue(epsilon: float) -> float:
        weight = np.exp(epsilon * utilities / 2)
        law = [
            rounds * weight[i] / weight.sum() * weight[j] / (weight.sum() - weight[i])
            for i, j in observed
        ]
        return float(stats.chisquare(list(observed.values()), law).pvalue)

    assert pvalue(epsilon) > ALPHA
    assert pvalue(epsilon / wrong) < ALPHA
    assert all(observed.values())


def test_more_choices_than_candidates_are_refused() -> None:
    with pytest.raises(PlanError, match="too large"):
        release(np.zeros(2), 1.0, Selection(1.0, k=3), SafeNoise().start(), "choice")


# -- peeling -----------------------------------------------------------------------------------

VALUES = np.array([1.0, -1.6, 0.0, 2.5])


def peeled(source, event, rounds, values=VALUES, sensitivity=1.0) -> np.ndarray:
    """Answers of shape (rounds, 2, k)."""
    stream = source.start()
    return np.array([release(values, sensitivity, event, stream, "peel")[0] for _ in range(rounds)])


def law_of_the_first_two(values: np.ndarray, scale: float) -> dict[tuple[int, int], float]:
    """Ordered pairs by quadrature: the winner's density times the chance that all others lose."""
    x = np.linspace(-60, 60, 120_001) * scale
    density = {j: stats.laplace.pdf(x, abs(v), scale) for j, v in enumerate(values)}
    below = {j: stats.laplace.cdf(x, abs(v), scale) for j, v in enumerate(values)}

    def wins(j: int, left: list[int]) -> float:
        others = np.prod([below[i] for i in left if i != j], axis=0)
        return float(np.sum(density[j] * others) * (x[1] - x[0]))

    everyone = list(range(len(values)))
    return {
        (i, j): wins(i, everyone) * wins(j, [c for c in everyone if c != i])
        for i in everyone
        for j in everyone
        if i != j
    }


@each_draw
def test_peeled_columns_have_the_law_of_report_noisy_max(source, part, wrong) -> None:
    rounds = round(5000 * part)
    pairs = [tuple(answer[0]) for answer in peeled(source, Peeling(1.2, 2), rounds)]

    def pvalue(scale: float) -> float:
        law = law_of_the_first_two(VALUES, scale)
        observed = np.array([pairs.count(pair) for pair in law])
        expected = rounds * np.array(list(law.values()))
        return float(stats.chisquare(observed, expected * rounds / expected.sum()).pvalue)

    assert pvalue(1.2) > ALPHA
    assert pvalue(1.2 * wrong) < ALPHA


@each_draw
def test_a_peeled_value_is_signed_and_has_noise_of_its_own(source, part, wrong) -> None:
    """Fresh noise: it does not know that the choice was won by large noise."""
    answers = peeled(source, Peeling(2.0, 3), round(4000 * part), sensitivity=0.37)
    columns, values = answers[:, 0].astype(int).ravel(), answers[:, 1].ravel()
    noise = values - VALUES[columns]
    scale = 2.0 * 0.37
    assert stats.kstest(noise, stats.laplace(scale=scale).cdf).pvalue > ALPHA
    assert stats.kstest(noise, stats.laplace(scale=wrong * scale).cdf).pvalue < ALPHA


def test_ties_go_to_the_first_column_and_every_column_is_chosen_once() -> None:
    equal = np.full(6, -3.0)
    columns, values = peeled(SafeNoise(), Peeling(1e-9, 6), 1, equal)[0]
    assert np.array_equal(np.sort(columns), np.arange(6))
    assert np.allclose(values, -3.0, atol=1e-6)


@pytest.mark.parametrize("factor", [1.0, 0.25])
def test_an_audit_of_peeling_stays_under_its_delta_and_sees_missing_noise(factor: float) -> None:
    """Neighbours whose every column moves by the sensitivity; guess by the likelihood of a round.

    The advantage of a guesser is at most delta(0). With a quarter of the noise he has more.
    """
    claimed, rounds, tables = Peeling(2.0), 4000, (np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    used = Peeling(factor * claimed.noise_multiplier)

    b = used.noise_multiplier

    def ratios(columns: np.ndarray, values: np.ndarray) -> np.ndarray:
        chance = [
            one_wins(t, b)[columns] * stats.laplace.pdf(values, t[columns], b) for t in tables
        ]
        return np.log(chance[0] / chance[1])

    guesses = []
    for seed, table in enumerate(tables):
        columns, values = peeled(SeededNoise(seed), used, rounds, table)[:, :, 0].T
        guesses.append(np.mean(ratios(columns.astype(int), values) > 0))
    advantage, error = guesses[0] - guesses[1], 5 * math.sqrt(0.5 / rounds)
    allowed = delta_of([claimed], 0.0)
    assert (advantage - error <= allowed) if factor == 1.0 else (advantage - error > allowed)


def one_wins(values: np.ndarray, scale: float) -> np.ndarray:
    """Chances of two columns by the closed form of a difference of Laplace variables."""
    gap = abs(abs(values[0]) - abs(values[1])) / scale
    loser = 0.5 * (1 + gap / 2) * math.exp(-gap)
    larger = int(abs(values[1]) > abs(values[0]))
    return np.array([1 - loser, loser]) if larger == 0 else np.array([loser, 1 - loser])


def test_more_peeled_columns_than_there_are_is_refused() -> None:
    with pytest.raises(PlanError, match="too large"):
        release(np.zeros(2), 1.0, Peeling(1.0, k=3), SafeNoise().start(), "peel")


def test_noise_beyond_every_integer_hides_the_balances_of_a_search() -> None:
    """A sum that wraps around would say of every balance on which side of 0 it is."""
    stream, cells = SafeNoise().start(), 256
    early = np.where(np.arange(cells + 1) < 40, -3.0, 3.0)
    places = [
        [float(release(b, 1.0, Gaussian(1e15), stream, "search", "linf")[0][0]) for _ in range(40)]
        for b in (early, -early[::-1])
    ]
    for found in places:  # the first comparison is a fair coin: all of 40 alike in 2 of 2^40 tries
        assert 0 < np.count_nonzero(np.array(found) < cells / 2) < len(found)


@pytest.mark.parametrize("sensitivity", [0.0, 5e-324, 1e-305, 1e300, math.inf, math.nan])
def test_a_sensitivity_without_a_grid_is_refused(sensitivity: float) -> None:
    with pytest.raises(PlanError, match="grid"):
        release(np.zeros(2), sensitivity, Gaussian(1.0), SafeNoise().start())
