"""An audit from outside: how well can an adversary tell two neighbouring tables apart?

The adversary is as strong as the guarantee allows. He knows both tables, every query and every
noise scale, and sees every release; his statistic is the log-likelihood ratio of all of them,
summed along the transcript. Tables are as far apart as the search finds. He guesses "first table"
where the statistic is positive; his advantage, true minus false positives, is at most delta(0) of
the planned events.

The audit counts guesses over many runs on both tables, bounds the advantage from below by exact
binomial limits, and turns it into the epsilon of the plan whose noise would allow it. That must
stay under the claim, and exceed it when noise is missing. The fast audits repeat one mechanism at
a time; the slow ones run whole fits. Seeds are fixed; a correct package fails with
probability 1e-6, over the choice of seeds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpstats.accounting import delta_of, epsilon_of
from dpstats.accounting.composition import scaled
from dpstats.accounting.events import Event, Gaussian
from dpstats.holders import Curator, curator
from dpstats.mechanisms.lots import Lots
from dpstats.mechanisms.noise import SeededNoise
from dpstats.privacy import Neighbors
from dpstats.protocol import Plan
from tests.contracts.cases import Case, Table, each_case_audited, each_method, with_rows
from tests.contracts.spies import (
    Asked,
    Released,
    Repeater,
    ask_again,
    opened,
    record,
    releases,
    replay,
)
from tests.contracts.test_sensitivity import CORNERS, persons

N = 24
DELTA = 1e-5
LADDER = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # budgets
CONFIDENCE = 1 - 1e-6
RUNS = 1000  # of one mechanism, on each of the two tables
FITS = 300  # whole fits on each of the two tables


@pytest.fixture(autouse=True)
def the_same_lots(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is promised is promised given the lots, so holders that are compared draw the same."""
    monkeypatch.setattr(Lots, "key", bytes(32))


# The adversary ------------------------------------------------------------------------------------


def log_ratio(one: Released, other: Released) -> float:
    """log P(released | table of `one`) / P(released | table of `other`), at the declared noise."""
    if one.kind == "search":
        return 0.0  # ignored, which can only weaken the adversary
    unit = one.noise_per_sensitivity * one.sensitivity
    if one.kind == "choice":
        logits = [np.asarray(r.exact) * (1.0 / unit) for r in (one, other)]
        laws = [x - np.logaddexp.reduce(x) for x in logits]
        return float(laws[0][int(one.noisy[0])] - laws[1][int(one.noisy[0])])
    if one.kind == "peel":  # of the values alone, given the columns: a weaker adversary
        chosen = one.noisy[0].astype(int)
        gaps = [np.abs(one.noisy[1] - r.exact[chosen]) / unit for r in (one, other)]
        return float(np.sum(gaps[1] - gaps[0]))
    gaps = [np.ravel(one.noisy - r.exact) / unit for r in (one, other)]
    power = 2 if isinstance(one.event, Gaussian) else 1
    return float(np.sum(np.abs(gaps[1]) ** power - np.abs(gaps[0]) ** power) / power)


class Shadowed:
    """A holder on one table that also asks another table every question."""

    def __init__(self, holder: Any, shadow: Any, released: list[Released]) -> None:
        self.holder, self.shadow, self.released = holder, shadow, released
        self.plan = holder.plan
        self.ratio = 0.0

    def ask(self, query: Any, slot: str, part: int = 0) -> Any:
        answer = self.holder.ask(query, slot, part)
        mine = self.released[-1]
        self.shadow.ask(query, slot, part)
        self.ratio += log_ratio(mine, self.released[-1])
        self.released.clear()
        return answer

    def rescale(self, design: Any, found: Any) -> None:
        """The same units for both."""
        self.holder.rescale(design, found)
        self.shadow.rescale(design, found)


def statistics(case: Case, plan: Plan, data: Table, other: Table, seeds: range) -> list[float]:
    """Log-likelihood ratio of `data` to `other` after fits on `data`."""
    design = case.model(data).design
    sources = [design.source(t) for t in (data, other)]
    found = []
    with releases() as released:
        for seed in seeds:
            holders = [Curator(s, design, plan, SeededNoise(seed)) for s in sources]
            both = Shadowed(*holders, released)
            case.estimator.fit(both, design, plan)
            found.append(both.ratio)
    return found


# What he may find ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Audit:
    """Counts of the guess "first table" on the first (right) and on the second table (wrong)."""

    right: int
    wrong: int
    runs: int

    @property
    def advantage(self) -> float:
        """Lower confidence bound of true minus false positives (Clopper and Pearson)."""
        error = (1 - CONFIDENCE) / 2
        low = stats.beta.ppf(error, self.right, self.runs - self.right + 1) if self.right else 0.0
        full = self.wrong == self.runs
        high = 1.0 if full else stats.beta.isf(error, self.wrong + 1, self.runs - self.wrong)
        return float(low - high)

    def epsilon(self, events: tuple[Event, ...], delta: float) -> float:
        """Epsilon of the events whose noise is scaled so that they allow just this advantage."""
        if self.advantage <= 0:
            return 0.0
        low, high = 0.1, 16.0  # a wider search would only refine what is far above or below
        for _ in range(18):
            factor = math.sqrt(low * high)
            enough = delta_of(scaled(events, factor), 0.0) <= self.advantage
            low, high = (low, factor) if enough else (factor, high)
        return epsilon_of(scaled(events, high), delta)


# Worst tables -------------------------------------------------------------------------------------


def distance(one: list[Released], other: list[Released]) -> float:
    """Squared signal-to-noise ratio of the whole transcript, in units of what is allowed."""
    allowed = found = 0.0
    for a, b in zip(one, other, strict=True):
        cost = 2 * a.event.rho
        norm = 2 if a.kind == "sum" and isinstance(a.event, Gaussian) else a.norm
        move = float(np.linalg.norm(np.ravel(a.exact - b.exact), norm)) / a.sensitivity
        allowed += cost
        found += 0.0 if a.kind == "search" else cost * move**2
    return found / allowed


def worst_pair(case: Case, plan: Plan, asked: list[Asked]) -> tuple[Table, Table, float]:
    """The two neighbouring tables that the questions tell apart best, and how well."""
    data = case.table(N)
    who = data["person"][N // 2]
    where = data["person"] == who if case.setting.person else np.arange(N) == N // 2
    pool = persons()[: len(CORNERS)] if case.setting.person else CORNERS
    tables = [with_rows(data, where, {**r, "person": [who] * len(r["y"])}) for r in pool]
    anchors = tables
    if case.setting.neighbors is Neighbors.ADD_REMOVE:
        anchors = [with_rows(data, where, {name: [] for name in data})]
    answers = {id(t): replay(case, plan, t, asked) for t in (*tables, *anchors)}
    found, i, j = max(
        (distance(answers[id(a)], answers[id(t)]), i, j)
        for i, a in enumerate(anchors)
        for j, t in enumerate(tables)
    )
    return anchors[i], tables[j], found


def weaken(patch: pytest.MonkeyPatch, factor: float) -> None:
    """Release `factor` times the noise, while everything declared stays as it was."""
    original = curator.release

    def release(
        answer: Any, sensitivity: float, event: Any, noise: Any, kind: str, norm: str
    ) -> Any:
        (weaker,) = scaled((event,), factor)
        noisy, scale = original(answer, sensitivity, weaker, noise, kind, norm)
        return noisy, scale / factor

    patch.setattr(curator, "release", release)


# One mechanism at a time --------------------------------------------------------------------------


def one_mechanism(
    case: Case, plan: Plan, asked: Asked, pair: tuple[Table, Table], runs: int
) -> Audit:
    """Audit of one planned mechanism by repetition."""
    ones, others = (
        repeated_releases(case, plan, data, asked, runs, seed) for seed, data in enumerate(pair)
    )
    first, second = ones[0].exact, others[0].exact
    right = sum(log_ratio(r, replace(r, exact=second)) > 0 for r in ones)
    wrong = sum(log_ratio(replace(r, exact=first), r) > 0 for r in others)
    return Audit(right, wrong, runs)


def repeated_releases(
    case: Case, plan: Plan, data: Table, asked: Asked, runs: int, seed: int
) -> list[Released]:
    holder = opened(case, plan, data, SeededNoise(seed), Repeater)
    with releases() as released:
        ask_again(holder, [asked] * runs)
    return released


def audible(case: Case) -> dict[Any, list[tuple[Plan, list[Asked]]]]:
    """For each kind of mechanism, the questions that a few hundred runs can hear, by budget."""
    found: dict[Any, list[tuple[Plan, list[Asked]]]] = {}
    for epsilon in LADDER:
        plan = case.plan(case.table(N), case.privacy(epsilon, DELTA, rows=N))
        recording = record(case, plan, case.table(N))
        loud: dict[Any, list[Asked]] = {}
        for asked, one in zip(recording.asked, recording.released, strict=True):
            if one.kind != "search" and delta_of((one.event,), 0.0) > 0.4:
                loud.setdefault((one.kind, type(one.event)), []).append(asked)
        for kind, questions in loud.items():
            found.setdefault(kind, []).append((plan, questions))
    return found


def clearest(
    case: Case, budgets: list[tuple[Plan, list[Asked]]]
) -> tuple[Plan, Asked, tuple[Table, Table], float]:
    """At the smallest budget at which some tables attain a fifth of what is allowed: the worst.

    A fit of a few dozen rows may ask about coefficients that no row has much to say on.
    """
    for plan, questions in budgets:
        pairs = ((*worst_pair(case, plan, [asked]), asked) for asked in questions[:8])
        first, second, attained, asked = max(pairs, key=lambda pair: pair[2])
        if attained > 0.2:
            break
    return plan, asked, (first, second), attained


@each_case_audited
def test_an_audit_of_each_mechanism_stays_under_its_claim_and_sees_missing_noise(
    case: Case,
) -> None:
    """Half of the noise missing is seen where a pair of tables attains most of what the Gaussian
    mechanism allows; three quarters of it always. Choices between a few dozen rows never come near
    what their epsilon allows, nor do all questions of a fit of few rows; the law of their noise is
    tested directly.
    """
    found = audible(case)
    assert found
    for (kind, event), budgets in found.items():
        plan, asked, (first, second), attained = clearest(case, budgets)
        events = (plan.mechanism(asked.slot).event,)
        claim = epsilon_of(events, DELTA)
        honest = one_mechanism(case, plan, asked, (first, second), RUNS)
        assert honest.epsilon(events, DELTA) <= claim
        if kind in ("choice", "peel") or attained < 0.1:
            continue
        factor = 0.5 if event is Gaussian and attained > 0.8 else 0.25
        with pytest.MonkeyPatch.context() as patch:
            weaken(patch, factor)
            broken = one_mechanism(case, plan, asked, (first, second), RUNS)
        assert broken.epsilon(events, DELTA) > claim, (asked.slot, attained, honest, broken)


# The whole fit ------------------------------------------------------------------------------------


def whole_fit(case: Case, plan: Plan, pair: tuple[Table, Table], fits: int) -> Audit:
    first, second = pair
    on_first = statistics(case, plan, first, second, range(1, fits + 1))
    on_second = statistics(case, plan, second, first, range(fits + 1, 2 * fits + 1))
    return Audit(sum(s > 0 for s in on_first), sum(s < 0 for s in on_second), fits)


def audible_plan(case: Case) -> Plan:
    """The smallest budget at which a few hundred fits can hear a difference."""
    data = case.table(N)
    plans = (case.plan(data, case.privacy(e, DELTA, rows=N)) for e in LADDER)
    return next(plan for plan in plans if delta_of(plan.events, 0.0) > 0.4)


def plan_rho(plan: Plan) -> float:
    return sum(e.rho for e in plan.events)


@pytest.mark.slow
@each_method
def test_an_audit_of_whole_fits_stays_under_the_claim_and_sees_missing_noise(case: Case) -> None:
    """No pair of tables is the worst for every question of a fit, so that half of the noise may go
    unnoticed here (see above); three quarters of it must not, where most of it is on sums.
    """
    plan = audible_plan(case)
    claim = epsilon_of(plan.events, DELTA)
    asked = record(case, plan, case.table(N)).asked
    first, second, attained = worst_pair(case, plan, asked)
    honest = whole_fit(case, plan, (first, second), FITS)
    assert honest.epsilon(plan.events, DELTA) <= claim
    if sum(e.rho for e in plan.events if isinstance(e, Gaussian)) < 0.7 * plan_rho(plan):
        return
    with pytest.MonkeyPatch.context() as patch:
        weaken(patch, 0.25)
        broken = whole_fit(case, plan, (first, second), FITS)
    assert broken.epsilon(plan.events, DELTA) > claim, (attained, honest, broken)


# The audit itself ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mu", [0.5, 1.0, 2.5])
def test_the_audit_recovers_the_epsilon_of_gaussian_noise(mu: float) -> None:
    """With all the runs of the world: one N(0, 1) against one N(mu, 1), threshold mu / 2."""
    runs = 10**9
    share = stats.norm.cdf(mu / 2)
    found = Audit(int(share * runs), int((1 - share) * runs), runs)
    claim = epsilon_of((Gaussian(1 / mu),), DELTA)
    assert found.epsilon((Gaussian(1 / mu),), DELTA) == pytest.approx(claim, rel=1e-2)
    assert found.epsilon((Gaussian(3.0),), DELTA) == pytest.approx(claim, rel=1e-2)


def test_guessing_gives_no_epsilon() -> None:
    assert Audit(500, 500, 1000).epsilon((Gaussian(1.0),), DELTA) == 0.0


def test_the_bound_on_the_advantage_holds_at_its_confidence() -> None:
    rng = np.random.default_rng(1)
    audits = [Audit(*rng.binomial(400, (0.8, 0.3)), 400) for _ in range(200)]
    assert all(a.advantage < 0.5 for a in audits)
    assert np.mean([a.advantage for a in audits]) > 0.2
