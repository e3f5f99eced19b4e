"""An audit of one device from outside: how well do its messages tell two records apart?

The adversary knows both records, the question and the sampler, and sees messages: bytes of the
wire, decoded messages of a simulation, randomised responses. His statistic is the log-likelihood
ratio, or the projection on the difference. A quarter of the messages chooses where he guesses
"first record"; of the others exact binomial limits bound his odds, or his advantage, from below.
The epsilon that these prove must stay under the claim, and exceed it where the sampler runs at
twice the epsilon it claims.

Seeds are fixed; a correct package fails with probability 1e-6, over the choice of seeds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpstats.accounting import delta_of, epsilon_of
from dpstats.accounting.events import Gaussian, Pure
from dpstats.channels import Channel
from dpstats.estimators.local import base as local
from dpstats.holders.device import Device
from dpstats.holders.wire import HEADER_BYTES
from dpstats.mechanisms import randomize
from dpstats.mechanisms.noise import SeededNoise
from tests.contracts.cases import LEVELS, Y_BOUND, Table
from tests.contracts.messages import (
    MessageCase,
    each_local_drawn,
    each_response_drawn,
    opened,
    questions,
    simulated,
)
from tests.contracts.test_audit import CONFIDENCE, DELTA, LADDER, Audit
from tests.contracts.test_sensitivity import one_row

N = 60
RUNS = 3000  # messages about each record, of a simulation
SENT = {True: 600, False: 1600}  # messages of the wire, with Gaussian noise and without
LOUDER = 2.0  # times the epsilon that is claimed
HEARD: set[type] = set()  # channels of which a louder sampler was heard
RECORDS = [  # far out, where rows are weighted down, and further in
    one_row(*values)
    for values in itertools.product(
        (-Y_BOUND, Y_BOUND), np.linspace(-1, 1, 5), np.linspace(0, 10, 9), LEVELS
    )
]


@contextmanager
def louder(factor: float = LOUDER) -> Iterator[None]:
    """Every sampler draws from the channel of `factor` times its epsilon."""

    def wrapped(sampler: Any) -> Any:
        return lambda channel, rows, noise: sampler(_louder(channel, factor), rows, noise)

    with pytest.MonkeyPatch.context() as patch:
        for name in ("_SENDERS", "_SIMULATORS"):
            samplers = {k: wrapped(sampler) for k, sampler in getattr(randomize, name).items()}
            patch.setattr(randomize, name, samplers)
        yield


def _louder(channel: Any, factor: float) -> Any:
    return replace(channel, epsilon=factor * channel.epsilon)


# What the adversary proves ------------------------------------------------------------------------


def proved(first: np.ndarray, second: np.ndarray, event: Any) -> float:
    """Epsilon that the statistics of messages about two records prove; larger under the first."""
    pilot = len(first) // 4
    seen = np.unique(np.r_[first[:pilot], second[:pilot]])
    cuts = (seen[1:] + seen[:-1]) / 2
    if cuts.size > 50:
        cuts = np.quantile(seen, np.arange(1, 50) / 50)

    def counts(cut: float, part: slice) -> tuple[int, int]:
        return int((first[part] > cut).sum()), int((second[part] > cut).sum())

    def epsilon(right: int, wrong: int, runs: int) -> float:
        if isinstance(event, Gaussian):
            return Audit(right, wrong, runs).epsilon((event,), DELTA)
        error = (1 - CONFIDENCE) / 2
        low = stats.beta.ppf(error, right, runs - right + 1) if right else 0.0
        high = stats.beta.isf(error, wrong + 1, runs - wrong) if wrong < runs else 1.0
        return math.log(low / high) if low > high else 0.0

    def promise(cut: float) -> float:
        right, wrong = counts(cut, slice(0, pilot))
        return (right - wrong) if isinstance(event, Gaussian) else epsilon(right, wrong, pilot)

    best = max(cuts, key=promise, default=0.0)
    return epsilon(*counts(best, slice(pilot, None)), len(first) - pilot)


def audible(case: MessageCase) -> Any:
    """The smallest budget at which a few thousand messages can hear a difference."""
    data = case.table(N)
    for epsilon in LADDER:
        plan = case.plan(data, case.privacy(epsilon, DELTA))
        if delta_of(plan.events, 0.0) > 0.4:
            return plan
    raise AssertionError("no budget is large enough")


def claim(event: Any) -> float:
    return epsilon_of((event,), DELTA) if isinstance(event, Gaussian) else event.epsilon


@pytest.fixture(autouse=True)
def everyone_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that count are of another question: test_local_counters lists all there are."""
    monkeypatch.setattr(local, "counters_of", lambda *args: 0)


# A record -----------------------------------------------------------------------------------------


def repeated(record: Table, runs: int = RUNS) -> Table:
    return {name: np.repeat(np.asarray(value), runs) for name, value in record.items()}


def held(case: MessageCase, question: Any, records: list[Table]) -> np.ndarray:
    """What a device is about to randomise, for each record."""
    table = {name: np.concatenate([r[name] for r in records]) for name in records[0]}
    source = case.design(table).source(table)
    block = source.block(0, len(records))
    return randomize.inside(question.channel, question.message.rows(block.x, block.y, block.keep))


def farthest(case: MessageCase, question: Any) -> tuple[tuple[Table, Table], np.ndarray]:
    """The two records whose messages are farthest apart, and what they are."""
    values = held(case, question, RECORDS)
    gaps = np.linalg.norm(values[:, None] - values[None], axis=2)
    i, j = np.unravel_index(gaps.argmax(), gaps.shape)
    return (RECORDS[i], RECORDS[j]), values[[i, j]]


def clearest(case: MessageCase, plan: Any) -> tuple[Any, tuple[Table, Table], np.ndarray]:
    """Of the rounds' questions the one whose messages can be farthest apart, and two records."""
    with questions() as asked:
        case.fit(case.table(N), plan.privacy, noise=SeededNoise(1))
    found = [(one, *farthest(case, one.query)) for one in asked]
    return max(found, key=lambda each: float(np.linalg.norm(each[2][0] - each[2][1])))


def of_the_wire(
    case: MessageCase, asked: Any, records: tuple[Table, Table], values: Any, law: Channel
) -> list[np.ndarray]:
    """Log-likelihood ratios of messages about each record."""
    runs = SENT[isinstance(law.event, Gaussian)]
    design, found = case.design(repeated(records[0])), []
    for seed, record in enumerate(records):
        device = Device(design, asked.query, asked.part, SeededNoise(seed))
        sent = device.send_all(repeated(record, runs))
        payloads = np.frombuffer(b"".join(m[HEADER_BYTES:] for m in sent), np.uint8)
        payloads = payloads.reshape(runs, -1)
        found.append(law.log_density(payloads, values[0]) - law.log_density(payloads, values[1]))
    return found


@each_local_drawn
def test_messages_of_the_wire_stay_under_their_claim_and_a_louder_sampler_is_heard(
    case: MessageCase,
) -> None:
    plan = audible(case)
    event = plan.mechanisms[0].event
    asked, records, values = clearest(case, plan)
    channel = asked.query.channel
    honest = of_the_wire(case, asked, records, values, channel)
    assert proved(*honest, event) <= claim(event)
    if type(channel) in HEARD:
        return  # the power of the audit is that of its channel, and devices are slow
    # No two records are the diameter of the ball apart, which takes Gaussian noise its edge.
    factor = LOUDER * (2 if isinstance(event, Gaussian) else 1)
    with louder(factor):
        broken = of_the_wire(case, asked, records, values, _louder(channel, factor))
    assert proved(*broken, event) > claim(event), (proved(*honest, event), values)
    HEARD.add(type(channel))


def of_the_simulation(
    case: MessageCase, plan: Any, asked: Any, records: tuple[Table, Table], step: np.ndarray
) -> list[np.ndarray]:
    """Projections of decoded messages on the difference of what two devices hold."""
    found = []
    mechanism = replace(plan.mechanisms[0], parts=1)
    whole = replace(plan, mechanisms=(mechanism,), options={**plan.options, "shares": (1.0,)})
    for seed, record in enumerate(records):
        with simulated() as seen:
            opened(case, whole, repeated(record), SeededNoise(seed)).collect(asked.query, 0)
        found.append(np.concatenate([decoded for _, _, decoded in seen] or [np.empty((0, 1))]))
    return [decoded @ step if decoded.size else decoded for decoded in found]


@each_local_drawn
def test_simulated_messages_stay_under_their_claim_and_a_louder_sampler_is_heard(
    case: MessageCase,
) -> None:
    plan = audible(case)
    event = plan.mechanisms[0].event
    if isinstance(event, Gaussian):
        pytest.skip("Gaussian noise is drawn on sums; its law is tested")
    asked, records, values = clearest(case, plan)
    step = values[0] - values[1]
    honest = of_the_simulation(case, plan, asked, records, step)
    assert proved(*honest, event) <= claim(event)
    with louder(2 * LOUDER):  # a projection is not the best statistic
        broken = of_the_simulation(case, plan, asked, records, step)
    assert proved(*broken, event) > claim(event), proved(*honest, event)


# A response ---------------------------------------------------------------------------------------


@each_response_drawn
def test_randomised_responses_stay_under_their_claim_and_a_louder_sampler_is_heard(
    case: MessageCase,
) -> None:
    plan = audible(case)
    event = plan.mechanisms[0].event
    data = case.table(RUNS)
    whole = case.plan(data, plan.privacy)
    with questions() as asked:
        case.fit(data, plan.privacy, noise=SeededNoise(1))
    (responses,) = (one.query for one in asked if one.slot == "responses")

    def sent(y: float, seed: int) -> np.ndarray:
        holder = opened(case, whole, data | {"y": np.full(RUNS, y)}, SeededNoise(seed))
        return np.asarray(holder.ask(responses, "responses").value)

    assert proved(sent(1e3, 1), sent(-1e3, 2), event) <= claim(event)
    with louder():
        assert proved(sent(1e3, 1), sent(-1e3, 2), event) > claim(event)


# The audit itself ---------------------------------------------------------------------------------


def test_the_audit_recovers_the_epsilon_of_randomised_response() -> None:
    rng, runs = np.random.default_rng(1), 10**6
    flip = 1 / (1 + math.e)
    first, second = rng.uniform(size=(2, runs)) < np.array([[1 - flip], [flip]])
    assert 0.97 < proved(first.astype(float), second.astype(float), Pure(1.0)) < 1.0
    assert proved(first.astype(float), first[::-1].astype(float), Pure(1.0)) == 0.0
