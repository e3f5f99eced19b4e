"""Noise of messages and of sums of responses: no less than was charged for, and no more.

Sums: neighbouring responses move the exact answer by at most the sensitivity, and what is added has
the declared law. Messages: what is decoded is unbiased for what was held, with the variance of the
channel. The same tests must fail for a scale of 0.8 or 1.2 times the declared one.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpstats.accounting.events import Laplace, Selection
from dpstats.errors import PlanError
from dpstats.holders import Labels
from dpstats.mechanisms.noise import SafeNoise, SeededNoise
from dpstats.mechanisms.randomize import inside
from dpstats.protocol import Plan
from tests.contracts.cases import Table
from tests.contracts.messages import (
    MessageCase,
    Question,
    Repeater,
    each_local,
    each_response,
    each_response_counted,
    each_sum,
    each_sum_drawn,
    handed_over,
    opened,
    questions,
    simulated,
)
from tests.contracts.spies import Released, releases
from tests.contracts.test_noise import FACTORS, FALSE_ALARM, LAWS, check_law
from tests.grids import grid

N = 48
DRAWS = 4000
ENOUGH = 50
ROUNDING = 1 + 1e-9
ODD = [np.nan, np.inf, -np.inf, 1e308, -1e308, 0.0, -0.0, 5e-324]
NORMS = {Laplace: 1, Selection: np.inf}  # of what an event is charged for; others in L2
PURE_TOO = pytest.mark.parametrize("delta", grid([0.0, 1e-6], 1))


# Sums of responses --------------------------------------------------------------------------------


def asked_of(case: MessageCase, data: Table, privacy: Any) -> list[Question]:
    """The questions of one fit; later ones name fitted values of earlier answers."""
    with questions() as asked:
        case.fit(data, privacy, noise=SeededNoise(1))
    return asked


def answers(case: MessageCase, plan: Any, data: Table, asked: list[Question]) -> list[Released]:
    """The same questions put to other responses."""
    holder = opened(case, plan, data)
    with releases() as released:
        for one in asked:
            holder.ask(one.query, one.slot)
    return released


def neighbourhood(data: Table, at: int) -> list[Table]:
    """Tables of which any two differ in one response."""
    rng = np.random.default_rng(at)
    values = [*ODD, -8.0, 8.0, 12.0, *rng.uniform(-8, 8, 6)]
    return [data | {"y": np.where(np.arange(N) == at, v, data["y"])} for v in values]


def farthest_rows(holder: Labels, plan: Plan, asked: list[Question]) -> set[int]:
    """The rows that can move the sums of a question farthest."""
    found = set()
    for one in asked:
        rows = getattr(one.query, "rows", None)
        if rows is not None:
            positions = holder.half(plan.mechanism(one.slot).branch)
            room = getattr(one.query, "half", getattr(one.query, "clip", 1.0))
            every = slice(0, len(rows))  # of rows that are made as they are read
            room = room[every] if hasattr(room, "__getitem__") else room
            found.add(int(positions[(np.linalg.norm(rows[every], axis=1) * room).argmax()]))
    return found


def moves(case: MessageCase, delta: float) -> dict[str, float]:
    """Largest moves of the exact answers over their sensitivities, by slot."""
    data, privacy = case.table(N), case.privacy(8.0, delta)
    plan = case.plan(data, privacy)
    asked = asked_of(case, data, privacy)
    worst: dict[str, float] = {}
    for at in {0, N // 2, N - 1, *farthest_rows(opened(case, plan, data), plan, asked)}:
        found = [answers(case, plan, t, asked) for t in neighbourhood(data, at)]
        for i, question in enumerate(asked):
            release = found[0][i]
            exact = np.array([one[i].exact for one in found])
            gaps = np.abs(exact[:, None] - exact[None])
            order = NORMS.get(type(release.event), 2)
            moved = np.linalg.norm(gaps, order, axis=2).max() / release.sensitivity
            worst[question.slot] = max(worst.get(question.slot, 0.0), float(moved))
    return worst


@PURE_TOO
@each_sum_drawn
def test_neighbours_move_no_sum_by_more_than_its_sensitivity(
    case: MessageCase, delta: float
) -> None:
    found = moves(case, delta)
    assert max(found.values()) <= ROUNDING, found
    assert min(found.values()) > 0.6, found  # power: half of a sensitivity would be too small


@PURE_TOO
@each_sum_drawn
def test_noise_on_sums_has_the_declared_law(case: MessageCase, delta: float) -> None:
    data, privacy = case.table(N), case.privacy(1.0, delta)
    plan = case.plan(data, privacy)
    asked = asked_of(case, data, privacy)
    question, one = asked[0], answers(case, plan, data, asked[:1])[0]
    holder = opened(case, plan, data, SafeNoise(), Repeater)
    with releases() as released:
        for _ in range(math.ceil(3000 / one.exact.size)):
            holder.ask(question.query, question.slot)
    noise = np.concatenate([r.noisy - r.exact for r in released])
    multiplier = plan.mechanism(question.slot).event.noise_multiplier  # type: ignore[union-attr]
    check_law(noise, multiplier * one.sensitivity, LAWS[type(one.event)])


@each_sum
def test_answers_are_decoded_to_what_was_released(case: MessageCase) -> None:
    data, privacy = case.table(N), case.privacy(1.0)
    plan = case.plan(data, privacy)
    for question in asked_of(case, data, privacy):
        with releases() as released:
            answer = opened(case, plan, data).ask(question.query, question.slot).value
        assert np.array_equal(question.query.decode(released[0].noisy), answer)


@each_sum
def test_every_release_has_the_noise_that_was_planned(case: MessageCase) -> None:
    data = case.table(N)
    plan = case.plan(data)
    with releases() as released:
        results = case.fit(data, noise=SeededNoise(1))
    assert [r.event for r in released] == [m.event for m in plan.mechanisms]
    for one, shown in zip(released, results.privacy.mechanisms, strict=True):
        choice = isinstance(one.event, Selection)
        planned = 2 / one.event.epsilon if choice else one.event.noise_multiplier
        planned *= one.sensitivity
        assert planned * (1 - 1e-12) <= one.scale <= planned * (1 + 1e-4)
        assert (shown.sensitivity, shown.scale) == (one.sensitivity, one.scale)


# Messages -----------------------------------------------------------------------------------------


def check_variance(squares: np.ndarray, declared: float) -> None:
    """Mean of squared deviations against their declared mean, by its normal limit."""

    def verdict(factor: float) -> float:
        z = (squares.mean() - factor**2 * declared) / (squares.std() / math.sqrt(squares.size))
        return float(2 * stats.norm.sf(abs(z)))

    assert verdict(1.0) > FALSE_ALARM
    for factor in FACTORS:
        assert verdict(factor) < FALSE_ALARM


@each_local
def test_decoded_messages_have_the_declared_variance_about_what_devices_hold(
    case: MessageCase,
) -> None:
    data = case.table(DRAWS)
    with simulated() as seen, handed_over() as held_over:
        case.fit(data, noise=SafeNoise())
    squares = []
    for channel, values, decoded in seen:
        held = inside(channel, values)
        declared = [channel.variance(v) for v in (held**2).sum(axis=1)]
        squares.append(((decoded - held) ** 2).sum(axis=1) / declared)
        if len(held) >= ENOUGH:  # of fewer, such as those that count in a round, all may be alike
            apart = (decoded - held).mean(axis=0) / (decoded.std(axis=0) / math.sqrt(len(held)))
            assert np.abs(apart).max() < 7.0  # unbiased
    if squares:
        check_variance(np.concatenate(squares), 1.0)
    else:
        check_sums(case, held_over[0].channel.dim)


def check_sums(case: MessageCase, dim: int) -> None:
    """Gaussian noise is drawn on sums of many devices: the law of their average."""
    n = 2 * dim + 2
    data = case.table(n)
    plan, noise = case.plan(data), []
    (question, *_) = asked_of(case, data, None)
    channel = question.query.channel
    for _ in range(math.ceil(DRAWS / dim)):
        with handed_over() as seen:
            answer = opened(case, plan, data, SafeNoise()).collect(question.query, 0)
        count = sum(len(one.rows) for one in seen)
        exact = sum(one.rows.sum(axis=0) for one in seen) / count
        noise.append((answer.mean - exact) * math.sqrt(count))
    assert answer.count == count
    check_law(np.concatenate(noise), math.sqrt(channel.variance() / dim), stats.norm)
    spread = np.trace(answer.second) - sum((one.rows**2).sum() for one in seen) / count
    assert spread == pytest.approx(channel.variance(), rel=0.5)


@each_response
def test_randomised_responses_have_the_declared_variance_about_the_responses(
    case: MessageCase,
) -> None:
    """At the ends of the interval and in its middle; beyond an end it is that of the end."""
    data = case.table(DRAWS)
    plan = case.plan(data)
    (question,) = (q for q in asked_of(case, data, None) if q.slot == "responses")
    interval, channel = question.query.interval, question.query.channel
    standard = case.design(data).standardization
    for v in (-1.0, 0.0, 1.0):
        held = interval.middle + v * interval.half
        same = data | {"y": np.full(DRAWS, held * standard.y_scale + standard.y_center)}
        z = opened(case, plan, same, SafeNoise()).ask(question.query, question.slot).value
        squares = ((z - held) / interval.half) ** 2
        if squares.std() > 1e-6:
            check_variance(squares, channel.variance(v**2))
        else:  # one bit about its middle
            assert squares[0] == pytest.approx(channel.variance(v**2))
        assert abs(z.mean() - held) < 7.0 * z.std() / math.sqrt(len(z))


@each_response_counted
def test_shares_of_devices_that_count_have_the_declared_variance(case: MessageCase) -> None:
    """About none, where no response is outside or missing; 80 answers."""
    data = case.table(DRAWS)
    data |= {"y": np.zeros(DRAWS)}
    plan = case.plan(data)
    (question,) = (q for q in asked_of(case, data, None) if q.slot == "astray")
    query, drawn = question.query, []
    for seed in range(80):
        holder = opened(case, plan, data, SeededNoise(seed))
        drawn.append(holder.ask(query, question.slot).value)
    within = np.array([1.0, 0.0, 0.0])
    declared = np.diag(query.channel.noise(within)) / query.counters
    # A variance of 80 draws is within 1 +- .71 but for a chance of 1e-5; half of the sd is .25.
    assert np.all(np.abs(np.var(drawn, axis=0) / declared - 1) < 0.71)
    assert np.all(np.abs(np.mean(drawn, axis=0) - within) < 5 * np.sqrt(declared / 80))


@each_response_counted
def test_each_device_answers_one_question(case: MessageCase) -> None:
    """Those that count and those that answer are apart, whatever an estimator asks."""
    data = case.table(DRAWS)
    plan = case.plan(data)
    holder = opened(case, plan, data, SeededNoise(1))
    for one in asked_of(case, data, None):
        other = replace(one.query, counters=one.query.counters - 1)
        with pytest.raises(PlanError, match="one question"):
            holder.ask(other, one.slot)
    assert holder.transcript == ()
