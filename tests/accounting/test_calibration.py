"""Costs and noise against closed forms, quadrature, brute force and a second accountant."""

import json
import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import binom, norm

from dpstats.accounting import (
    Gaussian,
    Laplace,
    Parallel,
    Peeling,
    Pure,
    Selection,
    Share,
    calibrate,
    delta_of,
    epsilon_of,
    event_from_dict,
    event_to_dict,
    gdp_mu,
    zcdp_rho,
)
from dpstats.accounting.composition import (
    _bounded_loss,
    _coarse,
    _costs,
    _loss_delta,
    cost_of,
    discrete_slack,
    gaussian_delta,
    gaussian_epsilon,
    scaled,
    zcdp_delta,
    zcdp_epsilon,
)
from dpstats.errors import PlanError

GUARANTEES = [(0.1, 1e-8), (1.0, 1e-6), (5.0, 1e-5)]
MIXES = {
    "one of each": ["gaussian", "laplace", "selection"],
    "a regression": ["selection", "selection", "gaussian", "gaussian", "gaussian"],
    "no Gaussian": ["laplace", "selection"],
    "many": ["gaussian", "laplace", "selection"] * 10,
    "peeling": ["selection", "gaussian", "peeling", "peeling"],
}

# Our loss grid adds less than 1e-4 to the variance of a loss, so at most 1e-4 to epsilon.
GRID_TOLERANCE = 3e-4


def shares(kinds):
    return {f"{kind} {i}": Share(kind, 1.0 + i % 3) for i, kind in enumerate(kinds)}


# -- the Gaussian closed form ------------------------------------------------------------------


@pytest.mark.parametrize("mu", [1e-3, 0.1, 1.0, 7.0])
@pytest.mark.parametrize("epsilon", [-0.5, 0.0, 0.3, 2.0])
def test_gaussian_delta_is_the_hockey_stick_divergence(mu, epsilon):
    def excess(x):
        return max(norm.pdf(x, mu) - math.exp(epsilon) * norm.pdf(x), 0.0)

    crossing = mu / 2 + epsilon / mu  # the integrand is 0 below
    expected, error = quad(excess, crossing, max(crossing, mu) + 40, points=[mu], limit=500)
    assert gaussian_delta(mu, epsilon) == pytest.approx(expected, abs=10 * error + 1e-12)


@pytest.mark.parametrize(
    ("mu", "epsilon"),
    [(0.05, 1.0), (0.2, 1.0), (1e-3, 2e-3), (3.0, 40.0), (60.0, 100.0), (1e-5, 0)],
)
def test_gaussian_delta_is_rounded_up_even_in_the_far_tail(mu, epsilon):
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(120):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        cdf = [mpmath.erfc(-x / mpmath.sqrt(2)) / 2 for x in (m / 2 - e / m, -m / 2 - e / m)]
        exact = cdf[0] - mpmath.exp(e) * cdf[1]
        ratio = float(mpmath.mpf(gaussian_delta(mu, epsilon)) / exact)
    assert 1 <= ratio < 1 + 1e-6


def test_delta_too_small_for_a_float_is_not_zero():
    assert gaussian_delta(0.01, 5.0) > 0
    assert delta_of([Gaussian(100.0)], 5.0) > 0


@given(st.floats(0.01, 20), st.floats(1e-12, 0.3))
def test_gaussian_epsilon_and_mu_invert_delta_on_the_safe_side(epsilon, delta):
    mu = gdp_mu(epsilon, delta)
    assert gaussian_delta(mu, epsilon) <= delta
    assert gaussian_epsilon(mu, delta) <= epsilon * (1 + 1e-9) + 1e-12
    assert delta_of([Gaussian(1 / mu)], epsilon) <= delta * (1 + 1e-9)


def test_gaussian_events_compose_to_one():
    parts = [Gaussian(3.0), Gaussian(4.0), Gaussian(12.0)]
    whole = Gaussian((1 / 9 + 1 / 16 + 1 / 144) ** -0.5)
    assert epsilon_of(parts, 1e-6) == pytest.approx(epsilon_of([whole], 1e-6), rel=1e-9)


# -- zero-concentrated privacy -----------------------------------------------------------------


def test_noise_for_thirty_steps_is_that_of_the_published_comparison():
    """Noise for T=30, epsilon=1, delta=1e-6: exact 23.140, tight zCDP 24.82."""
    assert math.sqrt(30) / gdp_mu(1.0, 1e-6) == pytest.approx(23.140, abs=1e-3)
    assert math.sqrt(30 / (2 * zcdp_rho(1.0, 1e-6))) == pytest.approx(24.82, abs=5e-3)
    assert zcdp_rho(1.0, 1e-5) == pytest.approx(0.03056, abs=1e-5)
    events = calibrate({f"{t}": Share("gaussian", 1.0) for t in range(30)}, 1.0, 1e-6)
    assert {round(e.noise_multiplier, 3) for e in events.values()} == {23.14}


@pytest.mark.parametrize(("rho", "epsilon"), [(1e-4, 0.05), (0.03, 1.0), (0.5, 4.0), (3.0, 1.0)])
def test_zcdp_delta_is_the_best_order(rho, epsilon):
    alpha = 1 + np.exp(np.linspace(-12, 12, 200_001))
    exponent = (alpha - 1) * (alpha * rho - epsilon) + alpha * np.log1p(-1 / alpha)
    brute = min(1.0, float(np.exp(np.min(exponent - np.log(alpha - 1)))))
    assert brute * (1 - 1e-6) <= zcdp_delta(rho, epsilon) <= brute * (1 + 1e-6)
    assert zcdp_delta(rho, zcdp_epsilon(rho, 1e-7)) <= 1e-7


# -- the loss of bounded events ----------------------------------------------------------------


@pytest.mark.parametrize("reach", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.9])
def test_one_laplace_release_has_its_known_delta(reach, fraction):
    epsilon = fraction * reach
    expected = 1 - math.exp((epsilon - reach) / 2)
    found = _loss_delta(cost_of([Laplace(1 / reach)]), epsilon)
    assert expected * (1 - 1e-12) <= found <= expected + 1e-3 * reach


@pytest.mark.parametrize("reach", [0.2, 1.0, 3.0])
def test_a_selection_is_as_bad_as_its_worst_bounded_range_pair_and_no_worse(reach):
    """Every two-point loss {t, t - reach} with E[exp(-loss)] = 1, by brute force over t."""
    t = np.linspace(0, reach, 100_001)[1:-1]
    top = (math.exp(reach) - np.exp(t)) / math.expm1(reach)
    for epsilon in np.array([-0.4, 0.0, 0.3, 0.8]) * reach:
        gain = top * np.maximum(-np.expm1(epsilon - t), 0)
        gain += (1 - top) * np.maximum(-np.expm1(epsilon - t + reach), 0)
        found = _loss_delta(cost_of([Selection(reach)]), float(epsilon))
        assert gain.max() - 1e-9 <= found <= gain.max() + 1e-3 * reach


@pytest.mark.parametrize(("reach", "k", "epsilon"), [(0.1, 30, 1.0), (0.2, 5, 0.8), (0.5, 10, 2.0)])
def test_composed_selections_cost_at_least_any_fixed_attack(reach, k, epsilon):
    t = np.linspace(0, reach, 401)[1:-1, None]
    top = (math.exp(reach) - np.exp(t)) / math.expm1(reach)
    j = np.arange(k + 1)
    gain = np.maximum(-np.expm1(epsilon - (j * t + (k - j) * (t - reach))), 0)
    attack = float((binom.pmf(j, k, top) * gain).sum(axis=1).max())
    assert (
        attack <= delta_of([Selection(reach, k)], epsilon) <= zcdp_delta(k * reach**2 / 8, epsilon)
    )


@pytest.mark.parametrize("split", [(0.5, 0.5), (0.9, 0.1), (1.5, 0.2)])
def test_vector_laplace_noise_costs_no_more_than_one_coordinate(split):
    whole = cost_of([Laplace(1 / sum(split))])
    parts = cost_of([Laplace(1 / s) for s in split])
    for epsilon in np.linspace(0, sum(split), 9):
        assert _loss_delta(parts, float(epsilon)) <= _loss_delta(whole, float(epsilon)) + 5e-4


def test_the_loss_is_a_law_under_both_neighbours():
    cost = cost_of([Laplace(3.0), Laplace(3.0), Selection(0.4, 3)])
    loss = _bounded_loss(cost)
    values = (loss.first + np.arange(loss.mass.size)) * loss.step
    assert loss.mass.sum() + loss.infinite == pytest.approx(1, abs=1e-12)
    assert loss.mass @ np.exp(-values) == pytest.approx(1, abs=1e-9)


def test_rounding_many_different_events_up_never_lowers_the_cost():
    rng = np.random.default_rng(3)
    events = [Selection(float(e)) for e in rng.uniform(0.01, 0.05, 300)] + [Gaussian(4.0)]
    cost = cost_of(events)
    coarse = _coarse(cost.bounded)
    assert len(coarse) <= 16
    assert sum(n for _, _, n in coarse) == 300
    total = math.fsum(n * e for _, e, n in cost.bounded)
    assert total <= math.fsum(n * e for _, e, n in coarse) <= 1.3 * total


# -- a second accountant -----------------------------------------------------------------------


def second_opinion(events, delta):
    """Epsilon by dp_accounting's PLD; a selection as a pure mechanism, which it may exceed."""
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    step = {"value_discretization_interval": 1e-4}
    total = pld.identity(**step)
    for event in events:
        if isinstance(event, Gaussian):
            part = pld.from_gaussian_mechanism(event.noise_multiplier, **step)
        elif isinstance(event, Laplace):
            part = pld.from_laplace_mechanism(event.noise_multiplier, **step)
        elif isinstance(event, Peeling):
            pure = common.DifferentialPrivacyParameters(2 / event.noise_multiplier, 0.0)
            part = pld.from_privacy_parameters(pure, **step)
            part = part.compose(pld.from_laplace_mechanism(event.noise_multiplier, **step))
            part = part.self_compose(event.k)
        else:
            pure = common.DifferentialPrivacyParameters(event.epsilon, 0.0)
            times = getattr(event, "k", 1)
            part = pld.from_privacy_parameters(pure, **step).self_compose(times)
        total = total.compose(part)
    return total.get_epsilon_for_delta(delta)


def renyi_opinion(events, delta):
    """Epsilon by dp_accounting's RDP; a selection by its zero-concentrated cost."""
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    orders = 1 + np.exp(np.linspace(-3, 8, 300))
    accountant = RdpAccountant(orders, dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    for event in events:
        accountant.compose(
            dp_accounting.GaussianDpEvent(event.noise_multiplier)
            if isinstance(event, Gaussian)
            else dp_accounting.LaplaceDpEvent(event.noise_multiplier)
            if isinstance(event, Laplace)
            else dp_accounting.ZCDpEvent(event.rho)
        )
    return accountant.get_epsilon(delta)


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize(
    "events",
    [
        [Gaussian(5.0)],
        [Laplace(3.0)] * 4,
        [Gaussian(8.0), Laplace(7.0), Laplace(9.0)],
        [Gaussian(8.0)] * 3 + [Laplace(7.0)] * 5 + [Laplace(20.0)],
        [Peeling(50.0, 10)] * 3,  # 2 / z is on the grid of the other accountant
        [Peeling(20.0, 3), Gaussian(8.0)],
        [Pure(1.0)],
        [Pure(0.2)] * 3 + [Gaussian(8.0)],
    ],
    ids=[
        "Gaussian",
        "Laplace",
        "three",
        "nine",
        "peeling",
        "peeling and Gaussian",
        "pure",
        "pure and Gaussian",
    ],
)
def test_a_second_accountant_agrees(events, delta):
    expected = second_opinion(events, delta)
    assert epsilon_of(events, delta) == pytest.approx(expected, rel=GRID_TOLERANCE)


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize(("epsilon", "delta"), GUARANTEES)
def test_other_accountants_bound_the_cost_of_a_calibrated_plan(mix, epsilon, delta):
    """Both of their bounds are valid, ours is never above the smaller one beyond the grid."""
    events = list(calibrate(shares(MIXES[mix]), epsilon, delta).values())
    cost = epsilon_of(events, delta)
    theirs = min(second_opinion(events, delta), renyi_opinion(events, delta))
    assert cost <= min(epsilon, theirs * (1 + GRID_TOLERANCE))
    assert cost >= 0.99 * epsilon, "budget was left unused"


# -- calibration -------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["gaussian", "laplace", "selection", "peeling"]),
            st.floats(0.01, 1),
            st.integers(1, 5),
        ),
        min_size=1,
        max_size=6,
    ),
    st.floats(0.02, 10),
    st.sampled_from([0.0, 1e-12, 1e-9, 1e-6, 1e-3, 0.1]),
)
def test_calibration_never_overspends(parts, epsilon, delta):
    asked = {
        f"{i}": Share(kind, w, k if kind in ("selection", "peeling") else 1)
        for i, (kind, w, k) in enumerate(parts)
        if delta > 0 or kind != "gaussian"
    }
    if not asked:
        return
    events = calibrate(asked, epsilon, delta)
    assert list(events) == list(asked)
    assert delta_of(events.values(), epsilon) <= delta
    assert epsilon_of(events.values(), delta) <= epsilon
    if delta > 0:
        # Shares are shares of rho, and the zero-concentrated answer is never beaten by ours.
        rho = sum(e.rho for e in events.values())
        weights = sum(s.weight for s in asked.values())
        for slot, event in events.items():
            assert event.rho / rho == pytest.approx(asked[slot].weight / weights, rel=1e-9)
        assert rho >= zcdp_rho(epsilon, delta) * (1 - 1e-5)


def test_calibration_gains_over_the_zero_concentrated_bound():
    events = calibrate(shares(MIXES["a regression"][1:]), 1.0, 1e-6).values()
    assert sum(e.rho for e in events) > 1.03 * zcdp_rho(1.0, 1e-6)
    laplace = calibrate({"a": Share("laplace", 1.0)}, 1.0, 1e-6)["a"]
    assert laplace.epsilon == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("mix", MIXES)
def test_calibration_is_quick(mix):
    """Far below the half second that a plan may take, also on a busy machine."""
    asked = shares(MIXES[mix])
    start = time.process_time()
    calibrate(asked, 0.731, 1e-7)
    assert time.process_time() - start < 0.5


def test_without_delta_epsilon_is_split_by_weight():
    asked = {"a": Share("laplace", 3.0), "b": Share("selection", 1.0, 2)}
    events = calibrate(asked, 2.0, 0.0)
    assert events["a"].epsilon == pytest.approx(1.5)
    assert events["b"].epsilon == pytest.approx(0.25)
    assert delta_of(events.values(), 2.0) == 0
    assert epsilon_of(events.values(), 0.0) <= 2.0


def test_gaussian_noise_without_delta_is_refused_with_the_remedy():
    with pytest.raises(PlanError, match="needs delta > 0"):
        calibrate({"a": Share("gaussian", 1.0)}, 1.0, 0.0)
    assert epsilon_of([Gaussian(1.0)], 0.0) == math.inf


@pytest.mark.parametrize("function", [delta_of, epsilon_of])
def test_an_unknown_event_is_refused(function):
    with pytest.raises(PlanError, match="cannot be computed"):
        function([Gaussian(1.0), object()], 0.5)


@pytest.mark.parametrize(
    "call",
    [
        lambda: calibrate({}, 1.0, 1e-6),
        lambda: calibrate({"a": Share("gaussian", 1.0)}, 0.0, 1e-6),
        lambda: calibrate({"a": Share("gaussian", 1.0)}, math.inf, 1e-6),
        lambda: calibrate({"a": Share("gaussian", 1.0)}, 1.0, 1.0),
        lambda: Share("uniform", 1.0),
        lambda: Share("gaussian", 0.0),
        lambda: Share("gaussian", math.nan),
        lambda: Share("laplace", 1.0, k=2),
        lambda: Share("parallel", 1.0),
        lambda: Peeling(1.0, 0),
        lambda: Peeling(-1.0),
        lambda: Pure(0.0),
        lambda: Parallel(()),
        lambda: Parallel(((),)),
        lambda: Gaussian(math.inf),
    ],
)
def test_what_has_no_cost_is_refused(call):
    with pytest.raises(PlanError):
        call()


@pytest.mark.parametrize("epsilon", [20.0, 30.0])
def test_a_huge_epsilon_is_used_although_the_slack_of_the_grid_grows_with_it(epsilon):
    asked = {"a": Share("gaussian", 1.0), "b": Share("peeling", 9.0, 2)}
    events = calibrate(asked, epsilon, 1e-3).values()
    assert 0.98 * epsilon < epsilon_of(events, 1e-3) <= epsilon


def test_more_budget_never_means_more_noise():
    asked = shares(MIXES["one of each"])
    noise = [calibrate(asked, e, 1e-6)["gaussian 0"].noise_multiplier for e in (0.1, 0.5, 1, 3, 9)]
    assert noise == sorted(noise, reverse=True)
    assert [gdp_mu(1.0, 10.0**-p) for p in (3, 6, 9)] == sorted(
        (gdp_mu(1.0, 10.0**-p) for p in (3, 6, 9)), reverse=True
    )


@given(st.floats(0.5, 50), st.floats(0.5, 50), st.floats(0, 5), st.floats(1e-9, 0.1))
def test_more_events_never_cost_less(z, b, epsilon, delta):
    alone, both = [Gaussian(z)], [Gaussian(z), Laplace(b)]
    assert delta_of(alone, epsilon) <= delta_of(both, epsilon) * (1 + 1e-6)
    assert epsilon_of(alone, delta) <= epsilon_of(both, delta) * (1 + 1e-6)


def test_nothing_costs_nothing():
    assert delta_of([], 0.0) == 0
    assert epsilon_of([], 0.0) == 0


# -- peeling -----------------------------------------------------------------------------------


def test_peeling_costs_what_its_choices_and_values_cost():
    """rho = k (2 (1/b)^2 + (1/b)^2 / 2) = 2.5 k / b^2, epsilon = k (2/b + 1/b)."""
    event = Peeling(20.0, 7)
    assert event.rho == pytest.approx(2.5 * 7 / 20**2)
    assert epsilon_of([event], 0.0) == pytest.approx(21 / 20)
    assert delta_of([event], 21 / 20 + 1e-9) == 0
    # The law of the loss of a round, by its two independent parts.
    assert cost_of([event]).rho == pytest.approx(event.rho)


@pytest.mark.parametrize("epsilon", [0.0, 0.02, 0.1])
def test_one_peeled_choice_is_as_bad_as_randomised_response_and_no_worse(epsilon):
    """A choice between two columns that is 2/z-DP with equality, with a Laplace value, exactly."""
    z = 15.0
    top = 1 / (1 + math.exp(-2 / z))
    value = [1 - math.exp((e - 1 / z) / 2) if abs(e) < 1 / z else max(0.0, -math.expm1(e))
             for e in (epsilon - 2 / z, epsilon + 2 / z)]  # fmt: skip
    expected = top * value[0] + (1 - top) * value[1]
    found = delta_of([Peeling(z)], epsilon)
    assert expected <= found <= expected + 2e-3


@pytest.mark.parametrize("delta", [1e-2, 1e-6])
def test_the_printed_scale_of_peeling_is_valid_but_wasteful(delta):
    """Laplace scale 2 sqrt(3 k log(1/delta)) / epsilon per sensitivity, at usual budgets."""
    for epsilon in (0.5, 1.0, 0.4 * math.log(1 / delta)):
        for k in (1, 10, 30):
            printed = Peeling(2 * math.sqrt(3 * k * math.log(1 / delta)) / epsilon, k)
            assert printed.rho == pytest.approx(0.2083 * epsilon**2 / math.log(1 / delta), rel=1e-3)
            needed = calibrate({"p": Share("peeling", 1.0, k)}, epsilon, delta)["p"]
            assert epsilon_of([printed], delta) < epsilon
            assert needed.noise_multiplier < printed.noise_multiplier


# -- mechanisms on disjoint rows ---------------------------------------------------------------


HALVES = Parallel(((Gaussian(5.0), Selection(0.1, 20)), (Gaussian(4.0),)))


@pytest.mark.parametrize("epsilon", [0.0, 0.2, 1.0])
def test_disjoint_rows_cost_what_the_dearest_branch_costs(epsilon):
    everywhere = [Laplace(20.0), Gaussian(9.0)]
    expected = max(delta_of([*everywhere, *branch], epsilon) for branch in HALVES.branches)
    assert delta_of([*everywhere, HALVES], epsilon) == expected
    assert delta_of([HALVES, *everywhere], epsilon) == expected
    whole = [e for branch in HALVES.branches for e in branch]
    assert expected < delta_of([*everywhere, *whole], epsilon)


def test_the_dearest_branch_may_differ_with_epsilon():
    """Atoms cost more at small epsilon, tails at a large one: no single branch is the worst."""
    pair = (Laplace(2.0),), (Gaussian(4.5),)
    worst = [np.argmax([delta_of(branch, e) for branch in pair]) for e in (0.1, 0.8)]
    assert worst == [0, 1]
    for e in (0.1, 0.8):
        assert delta_of([Parallel(pair)], e) == max(delta_of(branch, e) for branch in pair)
    assert epsilon_of([Parallel(pair)], 1e-3) == max(epsilon_of(b, 1e-3) for b in pair)


def test_several_disjoint_fits_are_composed_in_every_way():
    first, second = HALVES, Parallel(((Laplace(6.0),), (Gaussian(6.0),)))
    expected = max(delta_of([*a, *b], 0.7) for a in first.branches for b in second.branches)
    assert delta_of([first, second], 0.7) == expected


def test_branches_within_branches():
    inner = Parallel(((Laplace(3.0),), (Gaussian(3.0),)))
    outer = Parallel(((inner, Gaussian(9.0)), (Selection(0.2),)))
    flat = Parallel(((Laplace(3.0), Gaussian(9.0)), (Gaussian(3.0), Gaussian(9.0)),
                     (Selection(0.2),)))  # fmt: skip
    assert delta_of([outer], 0.1) == delta_of([flat], 0.1)
    assert outer.rho == max(inner.rho + Gaussian(9.0).rho, Selection(0.2).rho)


def test_equal_halves_cost_one_half_however_many_there_are():
    alone = [Gaussian(30.0), Selection(0.01)]
    many = [Parallel((tuple(alone), tuple(alone)))] * 40
    assert len(_costs(many)) == 1
    assert delta_of(many, 1.0) == pytest.approx(delta_of(alone * 40, 1.0), rel=1e-9)


def test_too_many_ways_are_bounded_by_gaussian_events():
    many = [Parallel(((Laplace(40.0 + i),), (Selection(0.04 + i / 500),))) for i in range(9)]
    worst = max(delta_of([p.branches[b][0] for p in many], 0.1) for b in (0, 1))
    assert len(_costs(many)) == 1
    assert worst <= delta_of(many, 0.1) <= 3 * worst


def test_an_unknown_event_in_a_branch_is_refused():
    with pytest.raises(PlanError, match="cannot be computed"):
        delta_of([Parallel(((object(),),))], 0.5)


@pytest.mark.parametrize("event", [Peeling(3.0, 4), Pure(0.7), HALVES, Parallel(((HALVES,),))])
def test_an_event_survives_json_and_scales(event):
    assert event_from_dict(json.loads(json.dumps(event_to_dict(event)))) == event
    (noisier,) = scaled([event], 2.0)
    assert noisier.rho == pytest.approx(event.rho / 4)
    assert type(noisier) is type(event)


# -- the grid of the released noise ------------------------------------------------------------


def discrete_gaussian(scale, reach):
    k = np.arange(-reach, reach + 1)
    mass = np.exp(-0.5 * (k / scale) ** 2)
    return mass / mass.sum()


@pytest.mark.parametrize("scale", [4.0, 10.0, 33.3])
@pytest.mark.parametrize("shift", [1, 5])
def test_discrete_gaussian_noise_exceeds_the_continuous_by_no_more_than_the_slack(scale, shift):
    """One coordinate, exactly, at scales so coarse that the excess can be seen."""
    mass = discrete_gaussian(scale, int(40 * scale))
    moved = np.roll(mass, shift)
    for epsilon in (0.0, 0.1, 0.5, 1.0, 2.0):
        exact = float(np.maximum(mass - math.exp(epsilon) * moved, 0).sum())
        slack = discrete_slack(epsilon, grid=1 / scale**2)
        assert exact <= gaussian_delta(shift / scale, epsilon) + slack


@pytest.mark.parametrize("scale", [2.0, 8.0, 50.0])
def test_a_rounded_gaussian_is_near_the_discrete_one(scale):
    """The proof's step: the chi-square between the two laws is at most 1/(33 s^4)."""
    reach = int(30 * scale)
    k = np.arange(-reach, reach + 1)
    mass = discrete_gaussian(scale, reach)
    # sinh(a)/a without cancellation: the ratio of the two laws, integrated over one cell.
    u = (np.arange(2000) + 0.5) / 2000 - 0.5
    cell = [np.mean(np.exp(-(2 * i * u + u**2) / (2 * scale**2))) for i in k[mass > 1e-40]]
    ratio = np.asarray(cell)
    p = mass[mass > 1e-40]
    chi_square = float(p @ (ratio / (p @ ratio) - 1) ** 2)
    assert chi_square <= 1 / (33 * scale**4)
    assert chi_square == pytest.approx(1 / (288 * scale**4), rel=0.2)


@pytest.mark.parametrize("scale", [3.0, 20.0])
@pytest.mark.parametrize("shift", [2, 30])
def test_discrete_laplace_noise_costs_a_slightly_longer_reach(scale, shift):
    k = np.arange(-int(60 * scale), int(60 * scale) + shift + 1)
    mass = math.tanh(0.5 / scale) * np.exp(-np.abs(k) / scale)
    moved = math.tanh(0.5 / scale) * np.exp(-np.abs(k - shift) / scale)
    reach = shift / scale + 1 / (4 * scale**2)
    for epsilon in np.linspace(0, 1.1 * reach, 12):
        exact = float(np.maximum(mass - math.exp(epsilon) * moved, 0).sum())
        assert exact <= max(-math.expm1((epsilon - reach) / 2), 0) + 1e-12


def test_the_slack_is_negligible_for_the_grid_in_use():
    assert discrete_slack(1.0) < 2e-12
    plain = gaussian_epsilon(0.25, 1e-8)
    assert epsilon_of([Gaussian(4.0)], 1e-8) == pytest.approx(plain, rel=1e-5)


@pytest.mark.parametrize("epsilon", [1e-9, 1e-16, 1e-40, 1e-100])
def test_the_loss_of_next_to_no_epsilon_is_on_few_places(epsilon):
    """Losses of Laplace noise reach as far as the slack of its grid, whatever epsilon is."""
    assert _bounded_loss(cost_of([Laplace(1 / epsilon)])).mass.size < 10_000
    assert 0.0 <= epsilon_of([Laplace(1 / epsilon)], 1e-12) <= epsilon * (1 + 1e-9) + 2.0**-20
