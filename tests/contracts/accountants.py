"""Accountants that share no code with the calibrator.

`upper` uses Google's dp_accounting, which knows Gaussian and Laplace noise exactly and treats a
selection as the worst pure mechanism of its epsilon, or as its zero-concentrated bound. `attack` is
a brute-force lower bound on the true cost: the worst bounded-range pair of every selection, by a
grid over its one free parameter.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.stats import laplace, norm

from dpstats.accounting.events import Event, Gaussian, Laplace, Parallel, Peeling, Pure, Selection


def upper(events: Sequence[Event], delta: float) -> float:
    """Epsilon at `delta`, never below the true one."""
    return max(min(_privacy_loss(one, delta), _renyi(one, delta)) for one in worlds(events))


def worlds(events: Sequence[Event]) -> Iterator[list[Event]]:
    """The events that a row takes part in: for each `Parallel` those of the branch it is in."""
    parts = [e.branches if isinstance(e, Parallel) else ((e,),) for e in events]
    for chosen in itertools.product(*parts):
        yield [event for branch in chosen for event in branch]


def _privacy_loss(events: Sequence[Event], delta: float) -> float:
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    step = {"value_discretization_interval": 2e-4}
    # Adaptive Gaussian releases are one whose squared multiplier is the harmonic sum.
    inverse = sum(e.noise_multiplier**-2 for e in events if isinstance(e, Gaussian))
    parts = [pld.from_gaussian_mechanism(inverse**-0.5, **step)] if inverse else []
    for e in events:
        if isinstance(e, Laplace):
            parts.append(pld.from_laplace_mechanism(e.noise_multiplier, **step))
        if isinstance(e, Selection):
            pure = common.DifferentialPrivacyParameters(e.epsilon, 0.0)
            parts += [pld.from_privacy_parameters(pure, **step)] * e.k
        if isinstance(e, Pure):
            pure = common.DifferentialPrivacyParameters(e.epsilon, 0.0)
            parts.append(pld.from_privacy_parameters(pure, **step))
        if isinstance(e, Peeling):
            choice = common.DifferentialPrivacyParameters(2 / e.noise_multiplier, 0.0)
            value = pld.from_laplace_mechanism(e.noise_multiplier, **step)
            parts += [pld.from_privacy_parameters(choice, **step), value] * e.k
    total = parts[0]
    for part in parts[1:]:
        total = total.compose(part)
    return float(total.get_epsilon_for_delta(delta))


def _renyi(events: Sequence[Event], delta: float) -> float:
    import dp_accounting as dpa
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(orders=1 + np.geomspace(0.01, 3000, 400))
    for e in events:
        if isinstance(e, Gaussian):
            accountant.compose(dpa.GaussianDpEvent(e.noise_multiplier))
        elif isinstance(e, Laplace):
            accountant.compose(dpa.LaplaceDpEvent(e.noise_multiplier))
        else:
            accountant.compose(dpa.ZCDpEvent(e.rho))
    return float(accountant.get_epsilon(delta))


def attack(events: Sequence[Event], epsilon: float) -> float:
    """Delta at `epsilon` that fixed neighbouring tables attain; never above the true one.

    A selection of cost b is played on two candidates whose losses are t and t - b, for t on a
    grid; Laplace noise by which of a few intervals the output falls in; Gaussian noise exactly. Of
    a peeling only the values are played.
    """
    return max(_attack(one, epsilon) for one in worlds(events))


_MOST_OUTCOMES = 2**17


def _attack(events: Sequence[Event], epsilon: float) -> float:
    mu = sum(e.noise_multiplier**-2 for e in events if isinstance(e, Gaussian)) ** 0.5
    releases = [_binned_laplace(e.epsilon) for e in events if isinstance(e, Laplace)]
    releases += [_two_candidates(2 * e.epsilon, e.epsilon) for e in events if isinstance(e, Pure)]
    for e in events:
        if isinstance(e, Peeling):
            releases += [_binned_laplace(1 / e.noise_multiplier)] * min(e.k, 3)
    reach = [e.epsilon for e in events if isinstance(e, Selection) for _ in range(e.k)]
    worst = 0.0
    for share in np.linspace(0.25, 0.75, 11) if reach else [0.5]:
        losses, weights = np.zeros(1), np.ones(1)
        parts = [*releases, *(_two_candidates(b, share * b) for b in reach)]
        for loss, weight in sorted(parts, key=lambda part: -float(np.ptp(part[0]))):
            if losses.size * loss.size > _MOST_OUTCOMES:
                break  # the quietest mechanisms are left out, which only weakens the attack
            losses = np.add.outer(losses, loss).ravel()
            weights = np.multiply.outer(weights, weight).ravel()
        worst = max(worst, float(weights @ _gaussian_delta(mu, epsilon - losses)))
    return worst


def _two_candidates(b: float, t: float) -> tuple[np.ndarray, np.ndarray]:
    """Losses t and t - b, and their probabilities under the first table."""
    p = np.expm1(b - t) / (np.expm1(b - t) - np.expm1(-t))  # p e^-t + (1 - p) e^(b - t) = 1
    return np.array([t, t - b]), np.array([p, 1 - p])


def _binned_laplace(epsilon: float, bins: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Losses and probabilities of the interval an output around 0, rather than 1, falls in."""
    edges = np.r_[-np.inf, np.linspace(0, 1, bins + 1), np.inf]
    first, second = (np.diff(laplace.cdf(edges, loc, 1 / epsilon)) for loc in (0, 1))
    return np.log(first / second), first


def _gaussian_delta(mu: float, epsilon: np.ndarray) -> np.ndarray:
    if not mu:
        return np.maximum(-np.expm1(epsilon), 0)
    tail: np.ndarray = norm.cdf(mu / 2 - epsilon / mu)
    return tail - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
