"""What the default fit should come to: expected standard errors and warnings, from public facts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.central.newton.budget import all_noise, blur, last_noise, peels
from dpstats.estimators.central.newton.remarks import blur_warnings, covering
from dpstats.estimators.central.newton.typical import Case, expect_typical
from dpstats.estimators.numerics.tail_law import allowed, best_clip
from dpstats.families import GAUSSIAN
from dpstats.protocol import Plan

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["least_variance", "likelihood_variances", "predicted"]

Array = NDArray[np.float64]
Variances = Callable[[Plan, "Design", Case], tuple[float, float]]

_CHANCES = (np.arange(33) + 0.5) / 33  # numerical: at which laws are represented by their quantiles
# wording: noise on the Gram matrix that warnings begin at
_BLURRED, _HIDDEN, _SHARP = 2.4, 1.2, 0.28


def predicted(plan: Plan, design: Design, variances: Variances | None = None) -> Plan:
    """The plan with its expected standard errors, what they rest on, and its warnings.

    `variances` are those of a whitened coefficient times n, of the noise and of sampling; by
    default those of a fit of largest likelihood.
    """
    noisy = blur(design, plan.privacy, plan.n)
    unit = (1 + 0.4 * max(0.0, noisy - 0.7)) ** 2
    plan = replace(plan, assumptions=(*plan.assumptions, covering(noisy)))

    def widened(case: Case) -> tuple[float, float]:
        private, sampled = (variances or likelihood_variances)(plan, design, case)
        return unit * private, unit * sampled

    return expect_typical(
        plan,
        design,
        widened,
        blur_warnings(plan, noisy / _BLURRED, noisy / _HIDDEN, noisy / _SHARP),
    )


def likelihood_variances(
    plan: Plan, design: Design, case: Case, peeled: bool | None = None
) -> tuple[float, float]:
    """Of a whitened coefficient times n, of the noise and of sampling, by quadrature.

    From rows of the guessed model; the clip is the best for the lengths of their scores. `peeled`
    is `peels` of the design, unless the fit says otherwise.
    """
    eta, y, chances = _rows(design, case)
    family, z = design.family, case.lengths
    r = family.residual(y + 0 * eta, eta + 0 * y)
    lengths = (np.abs(r)[..., None] * z).ravel()
    shares = np.repeat(chances.ravel(), z.size) / _CHANCES.size / z.size
    peeled = peels(design) if peeled is None else peeled
    noise = last_noise(plan, design, peeled), all_noise(plan, design, peeled)
    private = least_variance(lengths, shares * plan.n, noise, len(design.names))
    slope = float(np.mean(family.curvature(eta)))
    square = float(np.sum(chances * r**2)) / _CHANCES.size
    copies = design.weights.scale if design.weights and design.weights.kind == "frequency" else 1.0
    return float(private) / plan.n / slope**2, square / slope**2 / copies


def least_variance(lengths: Array, numbers: Array, noise: tuple[float, float], d: int) -> float:
    """Of a clipped score, in each of d directions, of so many rows with scores of these lengths.

    `noise` is at clip 1, of the scores that the clip is the best for, and of all that count.
    """
    clips = np.quantile(lengths, np.linspace(0.3, 1.0, 71))
    cells = np.searchsorted(clips, lengths, side="right")
    beyond, rows = (
        np.cumsum(np.bincount(cells, values, clips.size + 1)[::-1])[::-1][1:]
        for values in (numbers * lengths, numbers)
    )
    excess = beyond - clips * rows
    best = best_clip(clips, excess, noise[0], d)
    return float((noise[1] * clips[best]) ** 2 + allowed(excess[best], d))


def _rows(design: Design, case: Case) -> tuple[Array, Array, Array]:
    """Linear predictors (k, 1), responses (k, m), and the chance of each given the first."""
    from scipy.special import ndtri

    family = design.family
    eta = case.mean + case.spread * ndtri(_CHANCES)[:, None]
    mu = family.mean(eta)
    if family.name == "gaussian":
        spread = case.spread if family == GAUSSIAN else float(np.mean(mu))
        y = mu + spread * ndtri(_CHANCES)
        return eta, y, np.full(y.shape, 1 / _CHANCES.size)
    if family.name == "binomial" and design.weights is None:
        return eta, np.array([[0.0, 1.0]]), np.concatenate([1 - mu, mu], axis=1)
    from scipy.stats import binom, gamma, nbinom, poisson  # slow to load: only where it is needed

    if family.name == "binomial":
        assert design.weights is not None
        trials = max(round(design.weights.scale), 1)
        y = binom.ppf(_CHANCES, trials, mu) / trials
    elif family.name == "gamma":
        y = gamma.ppf(_CHANCES, 1 / case.dispersion, scale=mu * case.dispersion)
    elif family.name == "negativebinomial":
        y = nbinom.ppf(_CHANCES, 1 / family.alpha, 1 / (1 + family.alpha * mu))
    elif case.dispersion <= 1:
        y = poisson.ppf(_CHANCES, mu)
    else:  # a mixture of Poisson laws
        rate = 1 / case.dispersion
        y = nbinom.ppf(_CHANCES, mu * rate / (1 - rate), rate)
    return eta, y, np.full(y.shape, 1 / _CHANCES.size)
