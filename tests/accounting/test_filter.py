"""A ledger's rule holds for whoever chooses the next fit in view of the last answer."""

import math
from functools import reduce
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import laplace, logistic, norm

from dpstats.accounting import (
    Gaussian,
    Laplace,
    Parallel,
    Peeling,
    Pure,
    Selection,
    delta_of,
    epsilon_of,
    gdp_mu,
)
from dpstats.accounting.closed_forms import zcdp_rho
from dpstats.accounting.composition import gaussian_delta, largest
from dpstats.accounting.filter import (
    _BEST_FOR,
    _ORDER_SHARE,
    Composition,
    _orders,
    costs,
)
from dpstats.accounting.prices import gaussian_price, pure_price

SINGLE = st.one_of(
    st.floats(2, 50).map(Gaussian),
    st.floats(1, 50).map(Laplace),
    st.builds(Selection, st.floats(0.01, 0.5), st.integers(1, 3)),
    st.builds(Peeling, st.floats(5, 50), st.integers(1, 3)),
    st.floats(0.01, 0.5).map(Pure),
)
BRANCH = st.lists(SINGLE, min_size=1, max_size=2).map(tuple)
EVENTS = st.one_of(SINGLE, st.lists(BRANCH, min_size=1, max_size=2).map(tuple).map(Parallel))
FITS = st.lists(st.lists(EVENTS, min_size=1, max_size=3).map(tuple), min_size=1, max_size=4)


def composed(fits, epsilon, delta):
    """All fits, one after another, under a ceiling."""
    return reduce(Composition.then, fits, Composition(epsilon, delta))


# -- prices ------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [1e-5, 0.05, 0.5, 1.0, 3.0, 10.0])
@pytest.mark.parametrize(
    ("law", "make"), [(laplace, lambda e: Laplace(1 / e)), (logistic, Selection)]
)
def test_the_price_is_the_least_mu_that_covers_every_test(epsilon, law, make):
    """Any test of a shift by epsilon has type II error at least that of a shifted Gaussian."""
    price = gaussian_price(make(epsilon))
    place = np.linspace(-20 - epsilon, 20 + epsilon, 20_001)
    # Thresholds at `place`: type I error law.sf(place), type II law.cdf(place - epsilon).
    needed = -norm.ppf(law.sf(place)) - norm.ppf(law.cdf(place - epsilon))
    assert np.nanmax(needed[np.isfinite(needed)]) <= price * (1 + 1e-6) + 1e-9
    middle = -norm.ppf(law.sf(epsilon / 2)) - norm.ppf(law.cdf(-epsilon / 2))
    assert price == pytest.approx(middle, rel=1e-5)


@given(EVENTS, st.floats(0, 3))
def test_an_event_never_costs_more_than_its_price(event, epsilon):
    mu = gaussian_price(event)
    # The loss of a bounded event is spread over a grid, which is worth up to 1e-3 at its kinks.
    assert delta_of([event], epsilon) <= gaussian_delta(mu, epsilon) * (1 + 1e-6) + 1e-3


def test_prices_stay_finite_at_the_extremes():
    for event in (Laplace(1e-9), Selection(1e9), Laplace(1e12), Selection(1e-12), Peeling(1e-9)):
        assert 0 < gaussian_price(event) < 200


def test_a_peeled_choice_is_priced_as_the_least_gaussian_above_its_worst_pair():
    """Randomised response is the worst 2/z-DP choice; its trade-off curve has one corner."""
    z = 3.0
    corner = 1 / (1 + math.exp(2 / z))
    choice = -2 * norm.ppf(corner)
    value = gaussian_price(Laplace(z))
    assert gaussian_price(Peeling(z, 4)) == pytest.approx(2 * math.hypot(choice, value))
    assert pure_price(Peeling(z, 4)) == pytest.approx(4)


def test_a_pure_mechanism_is_priced_as_randomised_response():
    assert gaussian_price(Pure(0.7)) == pytest.approx(-2 * norm.ppf(1 / (1 + math.exp(0.7))))
    assert pure_price(Pure(0.7)) == 0.7


def test_branches_are_priced_as_the_dearest():
    dear, cheap = (Gaussian(3.0), Laplace(5.0)), (Gaussian(4.0),)
    assert gaussian_price(Parallel((cheap, dear))) == pytest.approx(
        math.hypot(*map(gaussian_price, dear))
    )
    assert pure_price(Parallel(((Laplace(2.0),), (Laplace(4.0), Laplace(8.0))))) == 0.5


# -- the rule ----------------------------------------------------------------------------------


@given(FITS, st.floats(0.3, 5), st.sampled_from([0.0, 1e-9, 1e-6, 1e-3]))
def test_what_is_admitted_is_within_the_ceiling_as_fixed_events_too(fits, epsilon, delta):
    events = [event for fit in fits for event in fit]
    cost = composed(fits, epsilon, delta).cost
    if composed(fits, epsilon, delta).admitted:
        assert delta_of(events, epsilon) <= delta * (1 + 1e-9)
        assert cost <= epsilon
    else:
        assert cost > epsilon * (1 - 1e-9)
    assert cost >= min(epsilon, epsilon_of(events, delta)) * (1 - 1e-3)


@given(FITS, EVENTS, st.floats(0.3, 5))
def test_more_fits_are_never_admitted_where_fewer_are_not(fits, event, epsilon):
    if composed([*fits, (event,)], epsilon, 1e-6).admitted:
        assert composed(fits, epsilon, 1e-6).admitted


@given(FITS, st.floats(0.3, 5), st.sampled_from([0.0, 1e-9, 1e-3]))
def test_composing_one_more_is_composing_all_anew(fits, epsilon, delta):
    """Whoever has the first ones composed already, and in whatever order the later ones came."""
    running = Composition(epsilon, delta)
    for known, fit in enumerate(fits):
        running = running.then(fit)
        anew = [fits[0], *reversed(fits[1 : known + 1])]
        assert running.admitted == composed(anew, epsilon, delta).admitted
        assert running.cost == composed(anew, epsilon, delta).cost


@given(FITS, st.floats(0.3, 5))
def test_the_running_totals_are_those_of_all_events_and_never_less(fits, epsilon):
    """The witness prices every event by itself and adds in one go."""
    running = composed(fits, epsilon, 1e-6)
    events = [event for fit in fits for event in fit]
    mu2 = math.fsum(gaussian_price(e) ** 2 for fit in fits[1:] for e in fit)
    renyi = [
        math.fsum(min(pure_price(e), order.alpha * e.rho) for e in events)
        for order in _orders(epsilon, 1e-6)
    ]
    found = [float(x) for x in (running.mu2, running.plain, *running.renyi)]
    assert found == pytest.approx([mu2, math.fsum(map(pure_price, events)), *renyi], rel=1e-15)
    assert (running.first, running.count) == (fits[0], len(fits))


def renyi_divergence(event, alpha):
    """By quadrature of the worst pair's density, or its two atoms."""
    match event:
        case Gaussian(noise_multiplier=z):
            p, q = norm(0, z), norm(1, z)
        case Laplace(noise_multiplier=z):
            p, q = laplace(0, z), laplace(1, z)
        case Pure(epsilon=e):
            top, bottom = 1 / (1 + math.exp(-e)), 1 / (1 + math.exp(e))
            pair = np.array([top, bottom])
            return math.log(np.sum(pair**alpha * pair[::-1] ** (1 - alpha))) / (alpha - 1)
    # Where p^alpha q^(1 - alpha) has its mass: around 1 - alpha for Gaussian noise.
    x = np.linspace(-alpha - 60 * z, 1 + 60 * z, 400_001)
    density = alpha * p.logpdf(x) - (alpha - 1) * q.logpdf(x)
    return (logsumexp(density) + math.log(x[1] - x[0])) / (alpha - 1)


@pytest.mark.parametrize("alpha", [1.5, 4.8, 26.4, 156.0])
@pytest.mark.parametrize("size", [0.05, 0.3, 2.0])
@pytest.mark.parametrize("make", [Gaussian, Laplace, Pure])
def test_what_an_order_counts_is_no_less_than_the_divergence(make, size, alpha):
    event = make(size) if make is Pure else make(1 / size)
    counted = min(pure_price(event), alpha * event.rho)
    assert renyi_divergence(event, alpha) <= counted * (1 + 1e-6)
    if make is Gaussian:
        assert renyi_divergence(event, alpha) == pytest.approx(counted, rel=1e-5)


@given(st.floats(0.01, 20), st.floats(0.02, 20))
def test_a_divergence_is_turned_into_delta_by_the_largest_ratio(reach, ceiling):
    """The conversion holds since (1 - exp(-x))_+ is at most c exp((alpha - 1) x) for all x."""
    x = np.geomspace(1e-6, 1, 1001) * reach
    for order, of in zip(_orders(ceiling, 1e-6), _BEST_FOR, strict=True):
        log_c = order.conversion * (order.alpha - 1) + math.log(1e-6 * _ORDER_SHARE)
        assert np.all(np.log(-np.expm1(-x)) <= log_c + (order.alpha - 1) * x + 1e-9)
        # The order is the best one for Gaussian noise of that share of the ceiling.
        rho = zcdp_rho(of * ceiling, 1e-6 * _ORDER_SHARE)
        assert order.alpha * rho + order.conversion == pytest.approx(of * ceiling, rel=1e-6)


@pytest.mark.parametrize(
    "first", [(Gaussian(30.0),), (Gaussian(40.0), Selection(0.05), Laplace(30.0))]
)
@pytest.mark.parametrize(
    "later", [(Gaussian(60.0),), (Laplace(2000.0),), (Pure(1e-4), Gaussian(90.0))]
)
def test_the_cost_after_each_of_many_charges_is_that_of_the_charges_up_to_it(first, later):
    states = list(
        accumulate([first, *[later] * 150], Composition.then, initial=Composition(3.0, 1e-6))
    )
    table = costs(states[1:])
    assert table == sorted(table)
    assert table[-1] == states[-1].cost
    exact = [state.cost for state in states[1::7]]
    assert table[::7] == pytest.approx(exact, abs=3e-4)
    assert costs(states[1:30]) == [state.cost for state in states[1:30]]


def test_the_cost_of_charges_without_delta_is_the_sum_of_their_epsilons():
    fits = [(Laplace(50.0),)] * 100
    states = list(accumulate(fits, Composition.then, initial=Composition(5.0, 0.0)))
    assert costs(states[1:]) == pytest.approx(np.arange(1, 101) / 50)
    assert costs([]) == []


def test_one_fit_may_use_the_whole_ceiling():
    mu = gdp_mu(1.0, 1e-6)
    assert composed([(Gaussian(1 / mu),)], 1.0, 1e-6).admitted
    assert not composed([(Gaussian(1 / mu),), (Gaussian(1e3),)], 1.0, 1e-6).admitted
    assert composed([(Laplace(1.0),)], 1.0, 0.0).admitted


def test_gaussian_fits_compose_almost_exactly():
    """Nine tenths of delta is 0.7 % of the noise at most."""
    fits = [(Gaussian(40.0),)] * 50
    exact = epsilon_of([Gaussian(40.0 / math.sqrt(50))], 1e-6)
    assert exact <= composed(fits, 3.0, 1e-6).cost <= 1.01 * exact


@pytest.mark.parametrize("ceiling", [1.5, 3.0, 10.0])
@pytest.mark.parametrize("before", [1, 4])
@pytest.mark.parametrize(
    ("pure", "most"),
    [((Laplace(1.0),), 1.3), ((Laplace(101.0), Selection(0.1488), Laplace(1.1886)), 1.2)],
)
def test_a_pure_fit_after_gaussian_ones_adds_little_more_than_its_epsilon(
    ceiling, before, pure, most
):
    """What cannot be helped is a share of delta; the basic composition of fixed fits has none."""
    fits = [(Gaussian(math.sqrt(before) / gdp_mu(1.0, 1e-6)),)] * before
    alone = composed(fits, ceiling, 1e-6).cost
    added = composed([*fits, pure], ceiling, 1e-6).cost - alone
    fixed = epsilon_of([e for fit in [*fits, pure] for e in fit], 1e-6) - alone
    assert fixed <= sum(map(pure_price, pure)) + 1e-9
    assert fixed <= added <= most


def test_pure_fits_alone_never_cost_more_than_their_epsilons():
    fits = [(Laplace(5.0),)] * 4 + [(Selection(0.3, 2),)]
    assert composed(fits, 3.0, 1e-6).cost <= 4 / 5 + 0.6 + 1e-12


# -- an asker who chooses ----------------------------------------------------------------------


def worst_delta(first_mu, second_mu, reach, epsilon):
    """Delta of an asker who sees a Gaussian answer, then takes the worse of two mechanisms.

    H = E over the first loss L of the larger of the two second deltas at epsilon - L, which is
    exact: nothing about the data is learned from which branch is taken.
    """
    loss = np.linspace(-9, 9, 4001) * first_mu + first_mu**2 / 2
    weight = norm.pdf(loss, first_mu**2 / 2, first_mu) * (loss[1] - loss[0])
    rest = epsilon - loss
    gaussian = np.array([gaussian_delta(second_mu, float(r)) for r in rest])
    pure = np.where(rest < -reach, -np.expm1(rest), np.maximum(-np.expm1((rest - reach) / 2), 0.0))
    return float(weight @ np.maximum(gaussian, pure))


@pytest.mark.parametrize("first", [0.1, 0.15, 0.2])
def test_an_asker_who_picks_the_worse_continuation_stays_within_the_ceiling(first):
    """The rule holds; composing whatever was asked as if it had been fixed would not."""
    epsilon, delta = 1.0, 1e-5
    fit = (Gaussian(1 / first),)

    def limits(rule):
        def most(law):
            return largest(
                lambda size: -1.0 if rule([fit, (law(1 / size),)]) else 1.0, 0.01, tolerance=1e-6
            )

        return worst_delta(first, most(Gaussian), most(Laplace), epsilon)

    def as_if_fixed(fits):
        return delta_of([event for f in fits for event in f], epsilon) <= delta

    def with_all_of_delta(fits):
        """One Gaussian, or the first fit's epsilon plus epsilons, each with the whole of delta."""
        later = sum(pure_price(e) for f in fits[1:] for e in f)
        as_gaussian = all(isinstance(e, Gaussian) for f in fits for e in f) and as_if_fixed(fits)
        return as_gaussian or epsilon_of(fits[0], delta) + later <= epsilon

    assert limits(lambda fits: composed(fits, epsilon, delta).admitted) <= delta
    assert limits(as_if_fixed) > 1.05 * delta
    assert limits(with_all_of_delta) > 1.05 * delta
