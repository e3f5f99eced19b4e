"""The noise that is released has the law that was planned: neither less nor more.

One planned mechanism of each kind is repeated through a curator with the default noise; what is
added to the exact answer is compared with the declared scale. The same tests must fail for a
scale of 0.8 or 1.2 times the declared one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpstats.accounting.events import Gaussian, Laplace, Selection
from dpstats.mechanisms.noise import SafeNoise
from tests.contracts.cases import Case, each_case
from tests.contracts.spies import Asked, Recording, Repeater, opened, record, replay

N = 40
# A correct sampler fails with this probability; the noise is not seeded.
FALSE_ALARM = 1e-9
DRAWS = 4000
FACTORS = (0.8, 1.2)
LAWS = {Gaussian: stats.norm, Laplace: stats.laplace}


def verdict(standardised: np.ndarray, law: Any) -> float:
    """Smallest p-value of a test of the scale and one of the shape, Bonferroni-corrected.

    The scale test compares the mean of |u| (by its normal limit) with that of `law`; the shape
    test is Kolmogorov and Smirnov's.
    """
    size = np.abs(standardised)
    mean = law.expect(np.abs)
    z = (size.mean() - mean) / (math.sqrt(law.var() - mean**2) / math.sqrt(size.size))
    shape = stats.kstest(standardised, law.cdf).pvalue
    return min(1.0, 2 * min(2 * stats.norm.sf(abs(z)), shape))


def first_of_each_kind(recording: Recording) -> dict[type, Asked]:
    found: dict[type, Asked] = {}
    for asked, one in zip(recording.asked, recording.released, strict=True):
        found.setdefault(type(one.event), asked)
    return found


def repeated(case: Case, recording: Recording, data: Any, asked: Asked, times: int) -> np.ndarray:
    """Noisy answers as an estimator gets them, shape (times, ...)."""
    holder = opened(case, recording.plan, data, SafeNoise(), Repeater)
    return np.array([holder.ask(asked.query, asked.slot, asked.part) for _ in range(times)])


def declared_scale(case: Case, recording: Recording, asked: Asked) -> float:
    event: Any = recording.plan.mechanism(asked.slot).event
    sensitivity = asked.query.sensitivity(case.setting.neighbors, case.setting.max_rows)
    return float(event.noise_multiplier * sensitivity)


def undone(asked: Asked, noisy: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Noise before ``decode``, which is linear for every additive mechanism."""
    basis = np.array([np.ravel(asked.query.decode(e)) for e in np.eye(exact.size)]).T
    centred = noisy.reshape(len(noisy), -1) - basis @ exact
    return np.ravel(centred @ np.linalg.pinv(basis).T)


@each_case
def test_additive_noise_has_the_declared_law(case: Case) -> None:
    data = case.table(N)
    recording = record(case, case.plan(data), data)
    exact = {
        id(a): r.exact
        for a, r in zip(
            recording.asked, replay(case, recording.plan, data, recording.asked), strict=True
        )
    }
    for kind, asked in first_of_each_kind(recording).items():
        if kind not in LAWS:
            continue
        answer = exact[id(asked)]
        times = math.ceil(DRAWS / answer.size)
        noise = undone(asked, repeated(case, recording, data, asked, times), answer)
        scale = declared_scale(case, recording, asked)
        assert verdict(noise / scale, LAWS[kind]) > FALSE_ALARM
        for factor in FACTORS:  # power: noise of another scale is not mistaken for it
            assert verdict(noise / (scale * factor), LAWS[kind]) < FALSE_ALARM


def choice_verdict(utilities: np.ndarray, chosen: np.ndarray, epsilon: float) -> float:
    """p-value of the mean utility of the choices under P(g) proportional to exp(epsilon u / 2)."""
    weights = np.exp(epsilon * (utilities - utilities.max()) / 2)
    weights /= weights.sum()
    mean = float(weights @ utilities)
    sd = math.sqrt(float(weights @ (utilities - mean) ** 2))
    z = (utilities[chosen].mean() - mean) / (sd / math.sqrt(chosen.size))
    return float(2 * stats.norm.sf(abs(z)))


@each_case
def test_selections_have_the_law_of_the_exponential_mechanism(case: Case) -> None:
    data = case.table(N)
    recording = record(case, case.plan(data, case.privacy(8.0, 1e-5, rows=N)), data)
    asked = first_of_each_kind(recording).get(Selection)
    if asked is None:
        pytest.skip("selects nothing")
    (j,) = [i for i, a in enumerate(recording.asked) if a is asked]
    answers = replay(case, recording.plan, data, recording.asked)[j]
    event: Any = answers.event
    candidates = np.asarray(asked.query.decode(np.arange(answers.exact.size, dtype=float)))
    values = repeated(case, recording, data, asked, DRAWS)[:, 0]
    chosen = np.searchsorted(candidates, values)
    assert np.array_equal(candidates[chosen], values)
    utilities = answers.exact / answers.sensitivity
    assert choice_verdict(utilities, chosen, event.epsilon) > FALSE_ALARM
    for factor in FACTORS:
        assert choice_verdict(utilities, chosen, event.epsilon / factor) < FALSE_ALARM


@each_case
def test_repeated_noise_is_not_the_same_noise(case: Case) -> None:
    data = case.table(N)
    recording = record(case, case.plan(data), data)
    asked = recording.asked[0]
    answers = repeated(case, recording, data, asked, 40).reshape(40, -1)
    assert len(np.unique(answers[:, 0])) > (1 if answers.dtype == int else 2)


@pytest.mark.parametrize("law", [stats.norm, stats.laplace])
def test_the_verdict_is_level_and_sees_other_shapes(law: Any) -> None:
    rng = np.random.default_rng(3)
    own = [verdict(law.rvs(size=500, random_state=rng), law) for _ in range(200)]
    assert np.mean(np.array(own) < 0.05) < 0.12
    clipped = np.maximum(law.rvs(size=DRAWS, random_state=rng), 0)
    assert verdict(clipped, law) < FALSE_ALARM
    other = stats.laplace if law is stats.norm else stats.norm
    same_scale = other.rvs(size=DRAWS, random_state=rng) * law.expect(np.abs) / other.expect(np.abs)
    assert verdict(same_scale, law) < FALSE_ALARM
