"""What a plan costs is at most what was asked, by accountants that did not calibrate it."""

from __future__ import annotations

import pytest

from dpstats.accounting.events import Gaussian, Laplace, Parallel, Peeling, Pure, Selection
from dpstats.errors import OptionError, PlanError
from tests.contracts.accountants import attack, upper
from tests.contracts.cases import Case, each_case, each_case_drawn, each_method

N = 2000
BUDGETS = [(0.1, 1e-8), (1.0, 1e-6), (4.0, 1e-5)]
# dp_accounting discretises upwards; 1e-3 is its own tolerance for a plan of Gaussian releases.
GAUSSIAN_SLACK = 1e-3
# It knows a selection as pure DP or as zCDP only, both looser than its bounded range; most so for
# a plan of forty selections.
SELECTION_SLACK = 0.18


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
@each_case_drawn
def test_another_accountant_agrees_that_the_plan_costs_what_was_asked(
    case: Case, epsilon: float, delta: float
) -> None:
    plan = case.plan(case.table(N), case.privacy(epsilon, delta, rows=N))
    gaussian = all(isinstance(e, Gaussian) for e in plan.events)
    assert upper(plan.events, delta) <= epsilon * (
        1 + (GAUSSIAN_SLACK if gaussian else SELECTION_SLACK)
    )
    assert attack(plan.events, epsilon) <= delta * (1 + 1e-9)
    assert plan.cost[0] <= epsilon
    assert plan.cost[1] == delta


@each_method
def test_the_budget_is_used(case: Case) -> None:
    """Power: the bounds above are tight enough to see a plan that costs more."""
    plan = case.plan(case.table(N), case.privacy(1.0, 1e-6, rows=N))
    assert plan.cost[0] > 0.97
    weaker = [with_noise(e, 0.8) for e in plan.events]
    assert upper(weaker, 1e-6) > 1.13
    # The attack plays too few of a selection's candidates to attain what it costs.
    if all(isinstance(e, Gaussian | Laplace) for e in plan.events):
        assert attack(weaker, 1.0) > 1e-6


@each_method
def test_pure_privacy_is_kept_or_refused(case: Case) -> None:
    try:
        plan = case.plan(case.table(N), case.privacy(1.0, 0.0, rows=N))
    except (OptionError, PlanError) as error:
        refusal = str(error)
        plan = None
    if plan is None:
        assert "delta" in refusal
        return
    assert not any(isinstance(e, Gaussian) for e in plan.events)
    assert sum(e.epsilon * getattr(e, "k", 1) for e in plan.events) <= 1.0 + 1e-12


@each_case
def test_a_smaller_budget_never_means_less_noise(case: Case) -> None:
    data = case.table(N)
    small, large = (case.plan(data, case.privacy(e, 1e-6, rows=N)) for e in (0.5, 2.0))
    total = [sum(e.rho for e in plan.events) for plan in (small, large)]
    assert total[0] < total[1]


def with_noise(event, factor):
    if isinstance(event, Parallel):
        return Parallel(tuple(tuple(with_noise(e, factor) for e in b) for b in event.branches))
    if isinstance(event, Peeling):
        return Peeling(event.noise_multiplier * factor, event.k)
    if isinstance(event, Selection):
        return Selection(event.epsilon / factor, event.k)
    if isinstance(event, Pure):
        return Pure(event.epsilon / factor)
    return type(event)(event.noise_multiplier * factor)


def test_the_accountants_know_the_closed_forms() -> None:
    from scipy.stats import norm

    mu, epsilon = 0.3, 1.0
    delta = norm.cdf(mu / 2 - epsilon / mu) - 2.718281828459045 * norm.cdf(-mu / 2 - epsilon / mu)
    assert attack([Gaussian(1 / mu)], epsilon) == pytest.approx(delta, rel=1e-9)
    assert upper([Gaussian(1 / mu)], delta) == pytest.approx(epsilon, rel=1e-3)
    assert upper([Laplace(2.0)], 1e-12) == pytest.approx(0.5, rel=1e-2)
    assert attack([Laplace(2.0)], 0.49) > 0
    assert attack([Selection(0.5)], 0.5) == 0
