"""The noise that is released has the law that was planned: neither less nor more.

One planned mechanism of each kind is repeated through a curator with the default noise; what is
added to the exact answer is compared with the declared scale. The same tests must fail for a
scale of 0.7 or 1.4 times the declared one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpstats.accounting.events import Gaussian, Laplace, Peeling, Selection
from dpstats.mechanisms.lots import Lots
from dpstats.mechanisms.noise import Noise, SafeNoise
from dpstats.mechanisms.release import _steps
from dpstats.protocol import Plan
from tests.contracts.cases import Case, each_case, each_case_audited, each_case_drawn
from tests.contracts.spies import Asked, Recording, Released, Repeater, opened, record, releases

N = 40
# A correct sampler fails with this probability; the noise is not seeded.
FALSE_ALARM = 1e-9
DRAWS = 1500
FACTORS = (0.7, 1.4)
HEARD = 2.4  # epsilon times the spread of utilities from which on `FACTORS` show in `DRAWS` draws
MANY = 10_000  # candidates, of which `DRAWS` choices take minutes
LAWS = {Gaussian: stats.norm, Laplace: stats.laplace}
MEAN_SIZE = {stats.norm: math.sqrt(2 / math.pi), stats.laplace: 1.0}  # E|u| at scale 1


@pytest.fixture(autouse=True)
def the_same_lots(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is promised is promised given the lots, so holders that are compared draw the same."""
    monkeypatch.setattr(Lots, "key", bytes(32))


def verdict(standardised: np.ndarray, law: Any) -> float:
    """Smallest p-value of a test of the scale and one of the shape, Bonferroni-corrected.

    The scale test compares the mean of |u| (by its normal limit) with that of `law`; the shape
    test is Kolmogorov and Smirnov's.
    """
    size = np.abs(standardised)
    mean, variance = MEAN_SIZE[law], law.var()
    z = (size.mean() - mean) / math.sqrt((variance - mean**2) / size.size)
    shape = stats.kstest(standardised, law.cdf).pvalue
    return min(1.0, 2 * min(2 * stats.norm.sf(abs(z)), shape))


def first_of_each_kind(recording: Recording) -> dict[tuple[str, type], tuple[Asked, Released]]:
    found: dict[tuple[str, type], tuple[Asked, Released]] = {}
    for asked, one in zip(recording.asked, recording.released, strict=True):
        found.setdefault((one.kind, type(one.event)), (asked, one))
    return found


def repeated(
    case: Case, plan: Plan, data: Any, asked: Asked, times: int, noise: Noise | None = None
) -> np.ndarray:
    """Noisy answers as an estimator gets them, shape (times, ...)."""
    holder = opened(case, plan, data, noise or SafeNoise(), Repeater)
    return np.array([holder.ask(asked.query, asked.slot, asked.part).value for _ in range(times)])


def declared_scale(case: Case, asked: Asked, one: Released) -> float:
    """Scale of each draw, from the planned event and the sensitivity that the query claims."""
    claim = asked.query.sensitivity(case.setting.neighbors, case.setting.max_rows)
    return float(one.noise_per_sensitivity * claim)


def undone(asked: Asked, noisy: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Noise before ``decode``, which is linear for every sum."""
    basis = np.array([np.ravel(asked.query.decode(e)) for e in np.eye(exact.size)]).T
    centred = noisy.reshape(len(noisy), -1) - basis @ exact
    return np.ravel(centred @ np.linalg.pinv(basis).T)


def check_law(noise: np.ndarray, scale: float, law: Any) -> None:
    """The declared scale passes; the power of the test is shown by other scales, which fail."""
    assert verdict(noise / scale, law) > FALSE_ALARM
    for factor in FACTORS:
        assert verdict(noise / (scale * factor), law) < FALSE_ALARM


@each_case_drawn
def test_noise_on_sums_has_the_declared_law(case: Case) -> None:
    data = case.table(N)
    plan = case.plan(data)
    found = first_of_each_kind(record(case, plan, data))
    for (kind, event), (asked, one) in found.items():
        if kind == "sum":
            times = math.ceil(DRAWS / one.exact.size)
            noise = undone(asked, repeated(case, plan, data, asked, times), one.exact)
            check_law(noise, declared_scale(case, asked, one), LAWS[event])


def choice_verdict(utilities: np.ndarray, chosen: np.ndarray, epsilon: float) -> float:
    """p-value of the mean utility of the choices under P(g) proportional to exp(epsilon u / 2)."""
    weights = np.exp(epsilon * (utilities - utilities.max()) / 2)
    weights /= weights.sum()
    mean = float(weights @ utilities)
    sd = math.sqrt(float(weights @ (utilities - mean) ** 2))
    z = (utilities[chosen].mean() - mean) / (sd / math.sqrt(chosen.size))
    return float(2 * stats.norm.sf(abs(z)))


@each_case_audited
def test_choices_have_the_law_of_the_exponential_mechanism(case: Case) -> None:
    data = case.table(N)
    plan = case.plan(data, case.privacy(8.0, 1e-5, rows=N))
    found = first_of_each_kind(record(case, plan, data)).get(("choice", Selection))
    if found is None:
        pytest.skip("chooses nothing")
    asked, one = found
    if np.ptp(one.exact) == 0:
        pytest.skip("no candidate is better than another here")
    if one.exact.size > MANY:
        pytest.skip("too many candidates to choose among so often; others use the same mechanism")
    with releases() as released:
        repeated(case, plan, data, asked, DRAWS)
    chosen = np.array([r.noisy[0] for r in released]).astype(int)
    utilities = one.exact / asked.query.sensitivity(case.setting.neighbors, case.setting.max_rows)
    epsilon: float = plan.mechanism(asked.slot).event.epsilon  # type: ignore[union-attr]
    assert choice_verdict(utilities, chosen, epsilon) > FALSE_ALARM
    if epsilon * np.std(utilities[chosen]) < HEARD:
        return  # nearly a fair draw: only much more or much less noise would show
    for factor in FACTORS:
        assert choice_verdict(utilities, chosen, epsilon / factor) < FALSE_ALARM


@each_case_drawn
def test_values_of_a_peeling_have_the_declared_law(case: Case) -> None:
    """Fresh noise on the chosen columns; the law of the choice is tested with the mechanism."""
    data = case.table(N)
    plan = case.plan(data, case.privacy(8.0, 1e-5, rows=N))
    found = first_of_each_kind(record(case, plan, data)).get(("peel", Peeling))
    if found is None:
        pytest.skip("peels nothing")
    asked, one = found
    answers = repeated(case, plan, data, asked, math.ceil(DRAWS / one.event.k))
    noise = answers[:, 1] - one.exact[answers[:, 0].astype(int)]
    check_law(np.ravel(noise), declared_scale(case, asked, one), LAWS[Laplace])


class Watched:
    """The default noise, with what it adds and at which scale, in grid steps."""

    reproducible = False

    def __init__(self) -> None:
        self.added: list[np.ndarray] = []

    def start(self) -> Any:
        stream: Any = SafeNoise().start()
        original = stream.gaussian

        def gaussian(values: Any, scale: float) -> Any:
            noisy = original(values, scale)
            self.added.append(np.ravel(noisy - values))
            return noisy

        stream.gaussian = gaussian
        return stream


@each_case_drawn
def test_every_comparison_of_a_search_has_its_share_of_the_noise(case: Case) -> None:
    data = case.table(N)
    plan = case.plan(data)
    found = first_of_each_kind(record(case, plan, data)).get(("search", Gaussian))
    if found is None:
        pytest.skip("searches nothing")
    asked, one = found
    noise = Watched()
    comparisons = round(math.log2(one.exact.size - 1))
    times = math.ceil(DRAWS / comparisons)
    repeated(case, plan, data, asked, times, noise)
    assert sum(map(len, noise.added)) == times * comparisons
    grid = _steps(one.exact, one.sensitivity)[1]
    check_law(np.concatenate(noise.added) * grid, declared_scale(case, asked, one), LAWS[Gaussian])


@each_case
def test_repeated_noise_is_not_the_same_noise(case: Case) -> None:
    data = case.table(N)
    plan = case.plan(data)
    recording = record(case, plan, data)
    times = 8 if recording.released[0].kind == "sum" else 40  # of few candidates one may win often
    answers = repeated(case, plan, data, recording.asked[0], times).reshape(times, -1)
    assert len(np.unique(answers[:, 0])) > 2


@pytest.mark.parametrize("law", [stats.norm, stats.laplace])
def test_the_verdict_is_level_and_sees_other_shapes(law: Any) -> None:
    rng = np.random.default_rng(3)
    own = [verdict(law.rvs(size=500, random_state=rng), law) for _ in range(200)]
    assert np.mean(np.array(own) < 0.05) < 0.12
    clipped = np.maximum(law.rvs(size=DRAWS, random_state=rng), 0)
    assert verdict(clipped, law) < FALSE_ALARM
    other = stats.laplace if law is stats.norm else stats.norm
    same_scale = other.rvs(size=32_000, random_state=rng) * MEAN_SIZE[law] / MEAN_SIZE[other]
    assert verdict(same_scale, law) < FALSE_ALARM
