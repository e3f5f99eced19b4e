"""L0-constrained risk minimisation with noisy, clipped gradients (Wang & Xu)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.base import Request, need_positive
from dpstats.estimators.bounds import SMALL_DELTA, SPARSE_GLM_LOWER, SPARSE_LOWER
from dpstats.estimators.central.published.sparse import (
    Descent,
    Settings,
    Stepwise,
    Trial,
    options,
    step_asks,
)
from dpstats.estimators.central.published.theory import ALL_GAUSSIAN
from dpstats.estimators.sources import CAI, SCORE_ATTACK, WANG_XU
from dpstats.estimators.wide import SparseGuess, hard_threshold
from dpstats.protocol import Options
from dpstats.queries import Gradient
from dpstats.theory import Assumption, Rate, Theory

__all__ = ["DPIHT"]

Array = NDArray[np.float64]

_LITTLE = 0.5  # share: of the fitted values explained by the response, below which they are noise

_THEORY = Theory(
    estimand=(
        "the sparse minimiser of the mean loss plus (lam/2) ||beta||^2 in standardised units; "
        "clipped gradients move it towards the bulk of the rows"
    ),
    guarantee=(
        "(epsilon, delta)-DP for every data set: each step is a Gaussian mechanism on a sum of "
        "per-row gradients clipped to norm G, of L2 sensitivity 2 G under replace-one and G under "
        "add-remove; "
        f"{ALL_GAUSSIAN} The ridge term and the truncation depend on released coefficients only."
    ),
    assumptions=(
        Assumption("The loss is rho_s-restricted strongly convex and l_s-restricted smooth"),
        Assumption("sparsity >= (1 + 64 (l_s/rho_s)^2) k*, k* that of the minimiser"),
        Assumption(
            "Per-row gradients are within G at all sparse coefficients, with G = sqrt(d) for "
            "columns of unit scale: none is clipped"
        ),
        Assumption(formula="eps <= 1"),
        SMALL_DELTA,
    ),
    upper=(
        Rate("statistical", "sqrt(s log(d)/n)", CAI.at("Theorem 4.4"), conjectured=True),
        Rate(
            "privacy",
            "G sqrt(s log(n) log(d) log(1/delta))/(n eps), G = sqrt(d)",
            WANG_XU.at("Theorem 7, the square root of its excess empirical risk"),
            conjectured=True,
        ),
    ),
    lower=SPARSE_LOWER,
    citations=(WANG_XU.at("Algorithm 3, Theorem 7"), CAI.at("Theorems 4.3 and 4.4")),
    corrections=(
        "The printed variance c T log(1/delta) G^2/(n eps)^2 leaves c open; here noise is "
        "calibrated to the exact composition of T Gaussian mechanisms with sensitivity 2 G/n.",
        "Rows are not assumed to have gradients within G: each gradient is clipped.",
        "The data are not normalised by their own maxima, which would not be private; columns are "
        "standardised by public bounds.",
        "Noise decreases from step to step, and T follows from public bounds instead of being 400.",
        "Iterates stay in a public ball; without lam, the last one is rescaled by two released "
        "numbers.",
    ),
)

_LOGIT = replace(
    _THEORY,
    lower=SPARSE_GLM_LOWER,
    citations=(*_THEORY.citations, SCORE_ATTACK),
)


@dataclass(frozen=True)
class DPIHT(Stepwise):
    """Noisy gradient descent with truncation for l0-constrained risk (Wang & Xu 2019, Algorithm 3).

    Minimises ``(1/n) sum loss_i(beta) + (lam/2) ||beta||^2`` over coefficients with s non-zero
    columns, in standardised units. T times, from 0, with g_i the gradient of row i:

        beta <- H_s(beta - (rate / n) (sum g_i min(1, G/||g_i||) + s_t N(0, I_d)) - rate lam beta).

    G is the radius R of rows times a clip of residuals: their released upper quartile in the
    linear model, 1 for a logit, where gradients within the radius are then never clipped.

    Notes
    -----
    *Guarantee.* That of `SparseDescent`, where a step is a `Gradient`, whose L2 sensitivity is 2 G
    for a replaced row, whatever the row: a Gaussian mechanism. The gradient of the ridge is a
    function of released coefficients.

    *Corrections.* The printed constant c is not specified, so that Algorithm 3 cannot be run as
    printed. Two mean gradients differ by up to 2 G/n, so that T steps with the printed variance
    c T log(1/delta) G^2/(n eps)^2 cost rho = 2 eps^2/(c log(1/delta)). At eps = 1, delta = 1e-3
    this is (eps, delta)-DP for c = 8.6 by rho + 2 sqrt(rho log(1/delta)), for c = 3.9 by exact
    composition, which is what is used.

    *Rescaling.* With ``lam > 0`` the penalised minimiser is the target: the last iterate is not
    rescaled, only drawn back where it explains nothing.

    *Where it stands.* With rows of norm 1 and few columns (n = 100,000, d = 54) privacy is nearly
    free and nothing beats it; with hundreds of columns the noise on every coordinate does.
    """

    model: str
    name: ClassVar[str] = "dp-iht"
    options: ClassVar[Mapping[str, str]] = options(
        "number of gradient steps, 1 to 1000",
        lam="ridge penalty >= 0 per row, in standardised units; 0 by default",
        radius="norm > 0 of rows beyond which gradients are clipped, in standardised units",
    )
    theories: ClassVar[Mapping[str, Theory]] = {"ols": _THEORY, "logit": _LOGIT}
    most_steps: ClassVar[int] = 1000
    planned_steps: ClassVar[int] = 40

    def _settings(self, facts: SparseGuess, options: Options) -> Settings:
        lam = need_positive("lam", options.get("lam"), 0.0, zero=True)
        return {"lam": lam, **super()._settings(facts, options)}

    def _noise(self, trial: Trial, steps: int) -> float:
        largest = trial.options["radius"] * trial.facts.usual_clip
        query = Gradient(np.zeros(1), largest, trial.facts.family)
        return trial.on_a_coefficient(trial.gaussian(query, steps))

    def _asks(self, trial: Trial, steps: int) -> Sequence[Request]:
        return step_asks(trial.facts, steps, "per-row clipped gradient, noise on every coordinate")

    def _step(self, at: Descent, t: int, beta: Array, clip: float) -> Array:
        options, facts = at.plan.options, at.facts
        lam = float(options["lam"])
        penalised = np.ones(beta.size)
        penalised[list(facts.always)] = 0.0
        query = Gradient(beta, float(options["radius"]) * clip, facts.family)
        gradient, _ = at.holder.ask(query, f"step-{t}")
        change = gradient / at.n - lam * penalised * beta
        return hard_threshold(beta + facts.move(change, at.rate, lam), facts)

    def _rescaled(self, at: Descent, beta: Array, clips: Sequence[float]) -> tuple[Array, float]:
        final, factor = super()._rescaled(at, beta, clips)
        if at.plan.options["lam"] > 0:
            final = beta * min(1.0, factor) if factor < _LITTLE else beta
        return final, factor
