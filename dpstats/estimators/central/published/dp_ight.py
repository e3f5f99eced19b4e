"""Iterative gradient hard thresholding with noise on every coordinate (Wang & Gu)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.base import Request
from dpstats.estimators.bounds import (
    LINEAR,
    LOGISTIC,
    SMALL_DELTA,
    SPARSE_GLM_LOWER,
    SPARSE_LOWER,
    rates,
)
from dpstats.estimators.central.published.sparse import (
    Descent,
    Stepwise,
    Trial,
    options,
    step_asks,
)
from dpstats.estimators.central.published.theory import ALL_GAUSSIAN, ESTIMAND, IN_A_BALL
from dpstats.estimators.sources import CAI, SCORE_ATTACK, WANG_GU
from dpstats.estimators.wide import hard_threshold
from dpstats.queries import Geometry, Score
from dpstats.theory import Assumption, Rate, Theory

__all__ = ["DPIGHT"]

Array = NDArray[np.float64]

_CONDITIONS = (
    Assumption("The loss has sparse eigenvalues in [mu, beta]: condition number kappa"),
    Assumption("sparsity >= C kappa^2 s*, s* the true number of columns"),
    Assumption("Rows have ||x|| <= K, with K = sqrt(d) for columns of unit scale"),
    Assumption(formula="n >~ s log(d)"),
    SMALL_DELTA,
)


def _upper(corollary: str, privacy: str) -> tuple[Rate, ...]:
    source = WANG_GU.at(f"Corollary {corollary}")
    return rates("K sqrt(s log(d)/n), K = sqrt(d)", f"{privacy}, K = sqrt(d)", source)


_THEORY = Theory(
    estimand=ESTIMAND,
    guarantee=(
        "(epsilon, delta)-DP for every data set: each step is a Gaussian mechanism on all "
        "coordinates of a sum of w x clip(r), of L2 sensitivity 2 R c under replace-one and R c "
        "under add-remove; "
        f"{ALL_GAUSSIAN} Thresholding is post-processing."
    ),
    assumptions=(LINEAR, *_CONDITIONS),
    upper=_upper("5.6", "K s sqrt(log(d) log(1/delta))/(n eps)"),
    lower=SPARSE_LOWER,
    citations=(
        WANG_GU.at("Algorithm 1, Theorems 5.2 and 5.4, Corollary 5.6"),
        CAI.at("Theorem 4.3"),
    ),
    corrections=(
        "Neighbours replace a row, so the sensitivity of the mean gradient is 2 G/n, not G/n: the "
        "printed variance T G^2/(n^2 rho) gives 2 rho-zCDP.",
        "Corollary 5.8 drops the factor (1 + sqrt 2)^2 of the paper's own Remark 5.3.",
        "For the linear model G depends on the unknown coefficients and holds with high "
        "probability only; here rows are weighted and residuals clipped, at a released quantile.",
        "Noise is calibrated to the exact composition, and decreases from step to step.",
        "Step size and number of steps follow from public bounds, not from cross-validation, which "
        "would not be private.",
        IN_A_BALL,
        "The rates are printed for K of order 1; K^2 grows like d for columns of unit scale, to "
        "which lower bounds refer, and is d here.",
    ),
)

_LOGIT = replace(
    _THEORY,
    assumptions=(LOGISTIC, *_CONDITIONS),
    upper=_upper("5.8", "K sqrt(s log(d) log(1/delta))/(n eps)"),
    lower=SPARSE_GLM_LOWER,
    citations=(WANG_GU.at("Algorithm 1, Theorems 5.2 and 5.4, Corollary 5.8"), SCORE_ATTACK),
)


@dataclass(frozen=True)
class DPIGHT(Stepwise):
    """Gradient descent with hard thresholding, noise on the whole gradient (Wang & Gu 2019).

    T times, from 0, with weights w = min(1, R / ||x||) and H_s keeping the s largest coefficients:

        c    <- released upper quartile of |y - x'beta|         (linear model; 1 for a logit),
        beta <- H_s(beta + (rate / n) (sum w^2 x clip(r, -c, c) + s_t N(0, I_d))),

    with r = y - x'beta, or y - 1/(1 + exp(-x'beta)) for a logit. Then `rescaling.rescaled`.

    Notes
    -----
    *Guarantee.* That of `SparseDescent`, where a step is a `Score`, whose L2 sensitivity is 2 R c
    for a replaced row: a Gaussian mechanism.

    *Corrections.* (1) Both data sets have n rows (replace-one), so two mean gradients differ by up
    to 2 G/n; with the printed sigma^2 = T G^2/(n^2 rho) a step costs (2G/n)^2/(2 sigma^2), that
    is 2 rho/T, in all 2 rho. (2) Corollary 5.8 needs the 6 of Remark 5.3 and prints 1. (3)
    Corollary 5.6 takes G = K (sqrt(2s) ||theta*|| + nu log n), which is not known and no bound for
    every data set. docs/corrections.md has the numbers.

    *Where it stands.* Noise of norm R falls on each of d coordinates, where selecting columns first
    pays for sqrt(s) of them. Use it to reproduce the paper; the default is better for d > 50 or so.
    """

    model: str
    name: ClassVar[str] = "dp-ight"
    options: ClassVar[Mapping[str, str]] = options(
        "number of gradient steps, 1 to 200",
        radius="norm > 0 at which rows are weighted down, in standardised units; public",
    )
    theories: ClassVar[Mapping[str, Theory]] = {"ols": _THEORY, "logit": _LOGIT}
    most_steps: ClassVar[int] = 200
    planned_steps: ClassVar[int] = 30

    def _noise(self, trial: Trial, steps: int) -> float:
        geometry = Geometry(trial.options["radius"])
        query = Score(geometry, np.zeros(1), trial.facts.usual_clip)
        return trial.on_a_coefficient(trial.gaussian(query, steps))

    def _asks(self, trial: Trial, steps: int) -> Sequence[Request]:
        return step_asks(trial.facts, steps, "clipped gradient, noise on every coordinate")

    def _step(self, at: Descent, t: int, beta: Array, clip: float) -> Array:
        geometry = Geometry(float(at.plan.options["radius"]))
        score, _ = at.holder.ask(Score(geometry, beta, clip, at.facts.family), f"step-{t}")
        return hard_threshold(beta + at.facts.move(score / at.n, at.rate), at.facts)
