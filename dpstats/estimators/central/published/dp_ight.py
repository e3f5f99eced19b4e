"""Iterative gradient hard thresholding with noise on every coordinate (Wang & Gu)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpstats.accounting import gdp_mu
from dpstats.estimators.base import check_options, make_plan, need_delta
from dpstats.estimators.bounds import LINEAR, LOGISTIC, SMALL_DELTA, SPARSE_GLM_LOWER, SPARSE_LOWER
from dpstats.estimators.central.published.sparse import (
    Facts,
    concluded,
    hard_threshold,
    last_share,
    length,
    measured,
    need_positive,
    need_sparsity,
    paced,
    public_facts,
    rescaled,
    spread,
    step_asks,
    warned,
    within,
)
from dpstats.estimators.central.sandwich import noisy_count
from dpstats.estimators.guesses import max_rows
from dpstats.estimators.sources import CAI, SCORE_ATTACK, WANG_GU
from dpstats.privacy import Privacy
from dpstats.protocol import Estimate, Holder, Plan
from dpstats.queries import Geometry, Query, Score
from dpstats.theory import Assumption, Rate, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["DPIGHT"]

_MOST_STEPS, _PLANNED_STEPS = 200, 30

_CONDITIONS = (
    Assumption("The loss has sparse eigenvalues in [mu, beta]: condition number kappa"),
    Assumption("sparsity >= C kappa^2 s*, s* the true number of columns"),
    Assumption("Rows have ||x|| <= K, with K = sqrt(d) for columns of unit scale"),
    Assumption(formula="n >~ s log(d)"),
    SMALL_DELTA,
)


def _upper(corollary: str, privacy: str) -> tuple[Rate, ...]:
    source = WANG_GU.at(f"Corollary {corollary}")
    return (
        Rate("statistical", "K sqrt(s log(d)/n), K = sqrt(d)", source),
        Rate("privacy", f"{privacy}, K = sqrt(d)", source),
    )


_THEORY = Theory(
    estimand=(
        "the sparse coefficients of the model: of the linear predictor where errors are symmetric "
        "(residuals are clipped at their upper quartile), of the log-odds for a logit"
    ),
    guarantee=(
        "(epsilon, delta)-DP for every data set: each step is a Gaussian mechanism on all "
        "coordinates of a sum of w x clip(r), of L2 sensitivity 2 R c under replace-one and R c "
        "under add-remove; count, quantiles, second moments of the first columns (sqrt(2) R^2; "
        "R^2) and the two numbers of the rescaling are Gaussian too, and all compose exactly as "
        "one Gaussian mechanism. Thresholding is post-processing."
    ),
    assumptions=(
        LINEAR,
        *_CONDITIONS,
    ),
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
        "Iterates stay in a public ball, and the last one is rescaled by two released numbers.",
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
class DPIGHT:
    """Gradient descent with hard thresholding, noise on the whole gradient (Wang & Gu 2019).

    T times, from 0, with weights w = min(1, R / ||x||) and H_s keeping the s largest coefficients:

        c    <- released upper quartile of |y - x'beta|         (linear model; 1 for a logit),
        beta <- H_s(beta + (rate / n) (sum w^2 x clip(r, -c, c) + s_t N(0, I_d))),

    with r = y - x'beta, or y - 1/(1 + exp(-x'beta)) for a logit. Then `sparse.rescaled`.

    Parameters
    ----------
    model : {"ols", "logit"}
        Linear or logistic regression.

    Notes
    -----
    *Guarantee.* Every question is a Gaussian mechanism whose sensitivity its query enforces by
    clipping: `Count`, `Search` of `ResidualQuantile`, `Score` (L2 sensitivity 2 R c for a replaced
    row), after the first of three or more steps `Gram` of its columns (sqrt(2) R^2, for the step
    size), and at the end `Score` and `Gram` of one number each. Each depends on the data only
    through earlier answers; adaptive composition of Gaussian mechanisms gives the cost in the plan
    exactly (Dong, Roth & Su 2022, Corollary 3.3).

    *Corrections.* (1) Both data sets have n rows (replace-one), so two mean gradients differ by up
    to 2 G/n; with the printed sigma^2 = T G^2/(n^2 rho) a step costs (2G/n)^2/(2 sigma^2), that
    is 2 rho/T, in all 2 rho. (2) Corollary 5.8 needs the 6 of Remark 5.3 and prints 1. (3)
    Corollary 5.6 takes G = K (sqrt(2s) ||theta*|| + nu log n), which is not known and no bound for
    every data set. docs/corrections.md has the numbers.

    *Budget.* Steps get 1.3 times the budget of the one before: what an early step adds is
    contracted by later ones.

    *Where it stands.* Noise of norm R falls on each of d coordinates, where selecting columns first
    pays for sqrt(s) of them. Use it to reproduce the paper; the default is better for d > 50 or so.
    """

    model: str
    name: ClassVar[str] = "dp-ight"
    sparse: ClassVar[bool] = True
    options: ClassVar[Mapping[str, str]] = {
        "sparsity": "number of columns to select, beside the intercept; needed",
        "steps": "number of gradient steps, 1 to 200; planned from public facts by default",
        "step_size": "step as a multiple > 0 of the inverse guessed curvature; 1 by default",
        "radius": "norm > 0 at which rows are weighted down, in standardised units; public",
    }

    @property
    def theory(self) -> Mapping[str, Theory]:
        """What is known under each trust model."""
        return {"central": _LOGIT if self.model == "logit" else _THEORY}

    def plan(self, design: Design, privacy: Privacy, n: int, **options: Any) -> Plan:
        """Mechanisms, cost and warnings from public facts only.

        Parameters
        ----------
        design : Design
            Public design.
        privacy : Privacy
            The guarantee, delta > 0.
        n : int
            Public number of rows, or a public guess of it.
        **options
            ``sparsity``, ``steps``, ``step_size``, ``radius``.

        Raises
        ------
        OptionError
            If an option is missing, unknown or out of range, or delta is 0.
        """
        check_options(self.name, self.options, options)
        need_delta(self.name, privacy)
        sparsity = need_sparsity(self.name, design, options.get("sparsity"))
        facts = public_facts(design, sparsity)
        radius = need_positive("radius", options.get("radius"), facts.radius)
        radius = min(radius, float(design.norm_bound))
        rate = need_positive("step_size", options.get("step_size"), 1.0)
        steps_at, last_noise = paced(
            lambda privacy, n, steps: _noise(facts, radius, privacy, n, max_rows(design), steps),
            lambda noise: length(noise / facts.signal, _PLANNED_STEPS),
            options.get("steps"),
            _MOST_STEPS,
        )
        steps = steps_at(privacy, n)
        asks = step_asks(facts, steps, "clipped gradient, noise on every coordinate")
        plan = make_plan(
            self,
            design,
            privacy,
            n,
            asks,
            {
                "sparsity": sparsity,
                "steps": steps,
                "step_size": rate,
                "radius": radius,
            },
        )
        return warned(plan, design, facts, last_noise)

    def fit(self, holder: Holder[Query], design: Design, plan: Plan) -> Estimate:
        """Step and threshold; rescale at the end."""
        rate = float(plan.options["step_size"])
        facts = public_facts(design, int(plan.options["sparsity"]))
        geometry = Geometry(float(plan.options["radius"]))
        n = noisy_count(holder, 0)
        steps = int(plan.options["steps"])
        beta, clips = np.zeros(len(plan.names)), []
        for t in range(steps):
            clips.append(spread(holder, facts, f"spread-{t + 1}", beta))
            score, _ = holder.ask(Score(geometry, beta, clips[-1], facts.family), f"step-{t + 1}")
            moved = beta + facts.move(score / n, rate)
            beta = within(hard_threshold(moved, facts), facts)
            if t == 0:
                facts = measured(holder, facts, beta, n, steps)
        final, factor = rescaled(holder, facts, beta, n, clips)
        return concluded(final, beta, n, {"clips": clips, "last factor": factor})


def _noise(
    facts: Facts, radius: float, privacy: Privacy, n: int, rows: int, steps: int = 1
) -> float:
    """Noise of the last step on one coefficient, in standardised units, by public guesses."""
    clip = 1.15 * facts.sd if facts.released_clip else 1.0
    query = Score(Geometry(radius), np.zeros(1), clip)
    z = 1 / (gdp_mu(privacy.epsilon, privacy.delta) * math.sqrt(last_share(facts, steps)))
    noise = z * query.sensitivity(privacy.neighbors, rows) / n
    typical = float(np.median(facts.moments))
    return noise / (facts.curvature * facts.active * math.sqrt(typical))
