"""An audit from inside: the privacy loss of what a fit released, computed and not guessed.

Counting an adversary's guesses, or watching one coefficient, tells little about a fit of twenty
mechanisms: half of the noise of one of them moves the odds by less than a thousand runs can show.
Here each release is looked at by itself, at the noise that it really has (`tests.contracts.losses`
measures it) and on the neighbouring tables that this very question tells apart best.

*One release.* Let a question move by the share s of its sensitivity between two neighbours, and let
its noise be r times the planned. Its privacy loss is then that of the planned event with noise
multiplier z r / s in place of z (a Gaussian loss has mean mu^2 / 2 and variance mu^2 with
mu = s / (r z); a Laplace loss reaches s / (r z), that of a choice has the range s epsilon / r).
So s / r <= 1 is what the plan charges for, in closed form, without any simulation of rare events.
The audit holds this and r >= 1 for every slot of every plan, with the upper confidence limit of r:
a correct package fails with probability 1e-9 a slot. The largest s is searched for over rows at
the corners of the schema, malformed ones, and transcripts from wild to nearly exact ones.

*Power.* With half of the noise of any one slot the limit of r is 0.54 to 0.60. That is below 1, and
below the s of 93 % of slots, so that both assertions fail. In the others no row was found that
moves the question by much more than half of its sensitivity, and for some there is none: a
median under add-remove neighbours, the gradient of a logit at zero coefficients. There the second
assertion alone fails.

*The whole transcript.* Adaptive composition bounds the loss even of an adversary who chooses anew
for every question, in view of all earlier answers, on which of two neighbouring tables it is asked
(Dwork, Rothblum & Vadhan 2010, Section III). So the audit asks every question of its own worst
pair, and adds up the log-likelihood ratios of what came out. Their sum L is a draw of the privacy
loss under the first table, and delta(epsilon) >= E (1 - exp(epsilon - L))_+ for every epsilon. The
means over `RUNS` runs, less a Chernoff bound, must be below the claimed curve wherever it is large
enough to be seen, each pair in both directions. All pairs differ in the row (unit) at one place: it
is in one of disjoint parts, which together cost what the dearest costs. The claimed curve itself is
held below what was asked by other accountants (`tests.contracts.test_cost`). *Power:* with half of
all noise the means are above the curve, where a plan chooses nothing (no choice between the columns
of a small table attains what its epsilon allows) and honest losses are 0.4 of what is allowed on
average, or more. A correct package fails with probability 1e-6 for each point of a curve.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pytest
from scipy.optimize import brentq

from dpstats.accounting import delta_of, epsilon_of
from dpstats.accounting.events import Gaussian, Laplace, Peeling, Selection
from dpstats.holders import Curator, Labels, curator
from dpstats.mechanisms.noise import SeededNoise
from dpstats.privacy import Neighbors
from dpstats.protocol import Plan
from tests.contracts.cases import CASES, Case, Table, one_of_each_kind, out_of_turn, with_rows
from tests.contracts.losses import (
    Quieter,
    halved,
    largest_by_noise,
    loss,
    move,
    noise_ratio,
)
from tests.contracts.messages import SUMS, MessageCase
from tests.contracts.spies import Asked, Released, ask_again, releases
from tests.contracts.test_sensitivity import CORNERS, ODD, persons, random_rows
from tests.grids import grid

N = 24
DELTA = 1e-5
INSIDE = random_rows(1, 12)  # of which some have a short score, whatever the last coefficients are
TRANSCRIPTS = (0.3, 8.0, 200.0)  # budgets: from wild answers to nearly exact ones
LADDER = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
HEARD = 0.7  # share of its sensitivity from which half of the noise is seen to cost too much
ROUNDING = 1 + 1e-9
RUNS = 200
ATTAINED = 0.4  # mean loss over the planned rho from which half of the noise shows in `RUNS` runs
LEVELS = (0.3, 0.1, 0.03, 0.01)  # claimed deltas at which the whole transcript is looked at
RARE = 1e-6  # probability with which a mean exceeds its Chernoff bound

AnyCase: TypeAlias = Case | MessageCase
USUAL = {f"{model}-label-curator-label-curator" for model in ("ols", "mean")}


def _by_default(case: AnyCase) -> bool:
    return one_of_each_kind(case) if isinstance(case, Case) else str(case) in USUAL


def _rare(case: AnyCase) -> bool:
    return isinstance(case, Case) and out_of_turn(case)


each_curator = pytest.mark.parametrize("case", grid([*CASES, *SUMS], _by_default, _rare), ids=str)


# Curators and tables ------------------------------------------------------------------------------


def plan_of(case: AnyCase, epsilon: float) -> Plan:
    if isinstance(case, Case):
        return case.plan(case.table(N), case.privacy(epsilon, DELTA, rows=N))
    return case.plan(case.table(N), case.privacy(epsilon, DELTA))


@functools.cache
def design_of(case: AnyCase) -> Any:
    """The design of all tables of a case: what it knows is public, and the same for neighbours."""
    data = case.table(N)
    return case.model(data).design if isinstance(case, Case) else case.design(data)


def opened(case: AnyCase, plan: Plan, data: Table, noise: Any) -> Any:
    """A curator of rows or of responses, as the front door opens it."""
    design = design_of(case)
    holder = Curator if isinstance(case, Case) else Labels
    return holder(design.source(data), design, plan, noise)


def places(case: AnyCase, plan: Plan) -> list[list[Table]]:
    """For some places in the table, what may be there: a set of tables for each.

    Any two of a set are neighbours; under add-remove the first, where nobody is, and any other.
    """
    data = case.table(N)
    if isinstance(case, MessageCase):
        ends = np.linspace(-10.0, 10.0, 9)
        return [[changed(data, np.arange(N) == i, {"y": [y]}) for y in ends] for i in range(N)]
    cut = any(m.parts > 1 or m.branch for m in plan.mechanisms)
    sets = []
    for at in range(5) if cut else (N // 2,):  # whose parts are not known
        who = data["person"][at]
        where = data["person"] == who if case.setting.person else np.arange(N) == at
        rows = [*(persons() if case.setting.person else [*CORNERS, *ODD]), *INSIDE]
        tables = [with_rows(data, where, {**r, "person": [who] * len(r["y"])}) for r in rows]
        if case.setting.neighbors is Neighbors.ADD_REMOVE:
            tables.insert(0, with_rows(data, where, {name: [] for name in data}))
        sets.append(tables)
    return sets


def changed(data: Table, where: np.ndarray, values: Table) -> Table:
    """The table with other values of some columns in some rows."""
    return data | {k: np.where(where, v[0], data[k]) for k, v in values.items()}


class Stream:
    """One stream of noise for several holders, who all draw the same lots for their rows."""

    reproducible = True

    def __init__(self, seed: int) -> None:
        self.shared = SeededNoise(seed).start()

    def start(self) -> Any:
        stream: Any = SeededNoise(0).start()
        for name in ("gaussian", "laplace", "top_k"):
            setattr(stream, name, getattr(self.shared, name))
        return stream


class Noting:
    """A holder that notes what it is asked."""

    def __init__(self, holder: Any) -> None:
        self.holder, self.plan = holder, holder.plan
        self.asked: list[Asked] = []
        self.units: Any = None

    def rescale(self, design: Any, found: Any) -> None:
        self.units = design
        self.holder.rescale(design, found)

    def ask(self, query: Any, slot: str, part: int = 0) -> Any:
        self.asked.append(Asked(query, slot, part, self.units))
        return self.holder.ask(query, slot, part)

    def half(self, branch: int) -> Any:
        return self.holder.half(branch)


def questions(case: AnyCase, plan: Plan) -> list[Asked]:
    data = case.table(N)
    holder = Noting(opened(case, plan, data, Stream(1)))
    case.estimator.fit(holder, design_of(case), plan)
    return holder.asked


def answers(case: AnyCase, plan: Plan, data: Table, asked: list[Asked]) -> list[Released]:
    holder = opened(case, plan, data, Stream(1))
    with releases() as released:
        ask_again(holder, asked)
    return released


# Worst neighbours ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Worst:
    """A question, two neighbouring tables that it tells apart well, and by what share."""

    plan: Plan
    asked: Asked
    first: Table
    second: Table
    released: Released
    share: float


def worst_pairs(case: AnyCase, plan: Plan, asked: list[Asked], tables: list[Table]) -> list[Worst]:
    """For each question the two tables of a set of neighbours that it tells apart best."""
    found = [answers(case, plan, table, asked) for table in tables]
    add_remove = getattr(plan.privacy, "neighbors", None) is Neighbors.ADD_REMOVE
    first = range(1) if add_remove else range(len(tables))
    worst = []
    for k, question in enumerate(asked):
        moves = np.array([[move(found[i][k], other[k]) for other in found] for i in first])
        i, j = np.unravel_index(moves.argmax(), moves.shape)
        one = found[i][k]
        worst.append(Worst(plan, question, tables[i], tables[j], one, float(moves[i, j])))
    return worst


def worst_questions(case: AnyCase) -> dict[str, Worst]:
    """For each slot the question that some neighbours are told apart by best."""
    best: dict[str, Worst] = {}
    for epsilon in TRANSCRIPTS:
        plan = plan_of(case, epsilon)
        asked = questions(case, plan)
        for tables in places(case, plan):
            for one in worst_pairs(case, plan, asked, tables):
                slot = one.asked.slot
                if slot not in best or best[slot].share < one.share:
                    best[slot] = one
        assert {m.slot for m in plan.mechanisms} <= best.keys()
    return best


def measured(case: AnyCase, worst: Worst, seed: int = 1) -> float:
    """Upper confidence limit of the noise of a question over what was planned for it."""
    holder = opened(case, worst.plan, worst.first, Stream(seed))
    one, asked = worst.released, worst.asked
    return noise_ratio(one, lambda: holder.ask(asked.query, asked.slot, asked.part))


# One release --------------------------------------------------------------------------------------


@each_curator
def test_every_release_costs_at_most_its_event_and_is_caught_with_half_of_its_noise(
    case: AnyCase,
) -> None:
    for slot, worst in worst_questions(case).items():
        ratio = measured(case, worst)
        assert worst.share <= ratio * ROUNDING, slot
        assert ratio >= 1, slot
        if math.isinf(ratio):
            continue  # a choice of the only candidate
        # Some place in the table is in every part of it; at coefficients and coordinates that are
        # all noise, no row need be within the clip of a slope, or beyond the radius of rows far
        # out, and no score of a level beyond a clip, nor, of persons' few rows, within it:
        # `tests.queries` attains their sensitivities.
        levels = getattr(case.estimator, "model", "") == "mnlogit"
        within = slot == "bread" and case.setting.person
        bounded = levels and (slot.startswith("beyond") or within)
        unseen = slot.removeprefix("half 2: ") in ("slope", "far rows") or bounded
        assert worst.share > 0 or unseen, slot
        with halved(slot):
            broken = measured(case, worst, seed=2)
        assert broken < 1, slot
        if worst.share > HEARD:
            assert worst.share > broken, (slot, worst.share, broken)


# The whole transcript -----------------------------------------------------------------------------


class Adversary:
    """Asks every question of the first of its two tables, and adds up the losses.

    Parameters
    ----------
    pairs : dict
        For each slot and part the two tables, and the measured noise over the planned.
    open_on : callable
        A holder on a table.
    """

    def __init__(
        self,
        pairs: dict[tuple[str, int], tuple[Table, Table, float]],
        open_on: Callable[[Table], Any],
    ) -> None:
        self.pairs = pairs
        self.open_on = open_on
        self.holders: dict[int, Any] = {}
        self.loss = 0.0

    def ask(self, query: Any, slot: str, part: int = 0) -> Any:
        first, second, ratio = self.pairs[slot, part]
        with releases() as released:
            if second is not first:
                self._on(second).ask(query, slot, part)
            answer = self._on(first).ask(query, slot, part)
        if math.isfinite(ratio):
            self.loss += loss(released[-1], released[0], ratio)
        return answer

    @property
    def plan(self) -> Plan:
        table, *_ = next(iter(self.pairs.values()))
        return self._on(table).plan

    def half(self, branch: int) -> Any:
        table, *_ = next(iter(self.pairs.values()))
        return self._on(table).half(branch)

    def _on(self, table: Table) -> Any:
        if id(table) not in self.holders:
            self.holders[id(table)] = self.open_on(table)
        return self.holders[id(table)]


def audible_plan(case: AnyCase) -> Plan:
    """The smallest budget at which two hundred runs can hear a difference."""
    plans = (plan_of(case, epsilon) for epsilon in LADDER)
    return next(plan for plan in plans if delta_of(plan.events, 0.0) > 0.5)


def worst_place(case: AnyCase, plan: Plan) -> list[Worst]:
    """Of the places in the table the one at which a change is told best."""
    asked = questions(case, plan)
    found = [worst_pairs(case, plan, asked, tables) for tables in places(case, plan)]
    return max(found, key=lambda pairs: sum(w.released.event.rho * w.share**2 for w in pairs))


def losses(case: AnyCase, pairs: list[Worst], runs: int = RUNS) -> np.ndarray:
    """Privacy losses of whole transcripts, at noise that is measured first."""
    plan, ratios = pairs[0].plan, {}
    for w in pairs:
        if w.asked.slot not in ratios:
            ratios[w.asked.slot] = measured(case, w)
    known = {(w.asked.slot, w.asked.part): (w.first, w.second, ratios[w.asked.slot]) for w in pairs}
    found = []
    swapped = {key: (second, first, ratio) for key, (first, second, ratio) in known.items()}
    for seed in range(runs):
        open_on = functools.partial(opened, case, plan, noise=Stream(seed))
        adversary = Adversary(swapped if seed % 2 else known, open_on)
        case.estimator.fit(adversary, design_of(case), plan)
        found.append(adversary.loss)
    return np.array(found)


def at_least(mean: float, runs: int) -> float:
    """Lower confidence limit of the mean of numbers in [0, 1], by Chernoff's bound."""

    def surprise(p: float) -> float:
        terms = [(mean, p), (1 - mean, 1 - p)]
        return runs * sum(a * math.log(a / b) for a, b in terms if a > 0) + math.log(RARE)

    return float(brentq(surprise, 1e-12, mean)) if mean > 0 and surprise(1e-12) > 0 else 0.0


def excess(plan: Plan, found: np.ndarray) -> float:
    """By how much what the losses prove is above the claimed curve, at most; negative if below."""
    epsilons = [0.0] + [epsilon_of(plan.events, delta) for delta in LEVELS]
    return max(
        at_least(float(np.mean(np.maximum(-np.expm1(e - found), 0.0))), found.size)
        - delta_of(plan.events, e)
        for e in epsilons
    )


@pytest.mark.slow
@each_curator
def test_the_losses_of_transcripts_stay_under_the_claim_and_pass_over_it_with_half_of_the_noise(
    case: AnyCase,
) -> None:
    plan = audible_plan(case)
    pairs = worst_place(case, plan)
    honest = losses(case, pairs)
    assert excess(plan, honest) <= 0
    chooses = any(w.released.kind in ("choice", "peel") for w in pairs)
    if chooses or honest.mean() < ATTAINED * sum(event.rho for event in plan.events):
        return
    with halved():
        assert excess(plan, losses(case, pairs)) > 0


# The audit itself ---------------------------------------------------------------------------------


STREAM = SeededNoise(11).start()
KINDS: dict[str, tuple[str, Any, np.ndarray, np.ndarray]] = {
    "Gaussian sum": ("sum", Gaussian(1.0), np.zeros(2), np.array([0.6, -0.8])),
    "Laplace sum": ("sum", Laplace(1.0), np.zeros(2), np.array([0.3, -0.7])),
    "search": ("search", Gaussian(1.0), np.arange(9) - 3.0, np.arange(9) - 4.0),
    "choice": ("choice", Selection(2.0, 2), np.arange(4.0), np.array([1.0, 0.0, 2.5, 2.0])),
    "peel": ("peel", Peeling(2.0, 2), np.array([1.0, -2.0, 0.5]), np.array([2.0, -1.5, -0.5])),
}


def of_kind(name: str, runs: int) -> tuple[list[Released], Released]:
    """Releases of one answer, and one of its neighbour, at a sensitivity of one."""
    kind, event, *both = KINDS[name]
    with releases() as released:
        for answer in (*(both[:1] * runs), both[1]):
            curator.release(answer, 1.0, event, STREAM, kind, "l1")
    return released[:-1], released[-1]


@pytest.mark.parametrize("name", KINDS)
def test_likelihood_ratios_average_to_one_under_the_other_table(name: str) -> None:
    """E exp(-L) = 1 for whatever is a likelihood ratio; 6 standard errors."""
    ones, other = of_kind(name, 4000)
    ratios = np.exp([-loss(one, other, 1.0) for one in ones])
    error = 6 * ratios.std() / math.sqrt(ratios.size)
    assert abs(ratios.mean() - 1) < error < 0.15
    wrong = np.exp([-loss(one, other, 2.0) for one in ones])
    assert abs(wrong.mean() - 1) > 6 * wrong.std() / math.sqrt(wrong.size)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_noise_is_measured_where_it_is_drawn(name: str, factor: float) -> None:
    (one,), _ = of_kind(name, 1)
    kind, event, answer, _ = KINDS[name]

    stream = STREAM if factor == 1 else Quieter(STREAM, factor)

    def ask() -> None:
        curator.release(answer, 1.0, event, stream, kind, "l1")

    assert factor <= noise_ratio(one, ask) < 1.4 * factor


@pytest.mark.parametrize("ahead", [0.0, 0.7, 5.0])
def test_two_columns_are_peeled_with_the_probability_of_the_closed_form(ahead: float) -> None:
    """The difference of two Laplace numbers exceeds d >= 0 with probability e^-d (1 + d/2) / 2."""
    found = largest_by_noise(ahead, (0.0,))
    assert found == pytest.approx(1 - math.exp(-ahead) * (1 + ahead / 2) / 2, rel=1e-4)


def test_gaussian_losses_on_the_claim_are_not_above_it_and_of_half_the_noise_are() -> None:
    rng, plan = np.random.default_rng(5), audible_plan(CASES[0])
    mu = math.sqrt(2 * sum(event.rho for event in plan.events))
    assert -0.02 < excess(plan, rng.normal(mu**2 / 2, mu, 10**6)) <= 0
    assert all(excess(plan, rng.normal(mu**2 / 2, mu, RUNS)) <= 0 for _ in range(100))
    assert excess(plan, rng.normal(2 * mu**2, 2 * mu, RUNS)) > 0.2
