"""L0-constrained risk minimisation with noisy, clipped gradients (Wang & Xu)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpstats.accounting import gdp_mu
from dpstats.estimators.base import check_options, make_plan, need_delta
from dpstats.estimators.bounds import SMALL_DELTA, SPARSE_GLM_LOWER, SPARSE_LOWER
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
from dpstats.estimators.sources import CAI, SCORE_ATTACK, WANG_XU
from dpstats.privacy import Privacy
from dpstats.protocol import Estimate, Holder, Plan
from dpstats.queries import Gradient, Query
from dpstats.theory import Assumption, Rate, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["DPIHT"]

_MOST_STEPS, _PLANNED_STEPS = 1000, 40
_LITTLE = 0.5  # of the fitted values explained by the response: mostly noise

_THEORY = Theory(
    estimand=(
        "the sparse minimiser of the mean loss plus (lam/2) ||beta||^2 in standardised units; "
        "clipped gradients move it towards the bulk of the rows"
    ),
    guarantee=(
        "(epsilon, delta)-DP for every data set: each step is a Gaussian mechanism on a sum of "
        "per-row gradients clipped to norm G, of L2 sensitivity 2 G under replace-one and G under "
        "add-remove; count, quantiles, second moments of the first columns (sqrt(2) R^2; R^2) and "
        "the two numbers of the rescaling are Gaussian too, and all compose exactly as one "
        "Gaussian mechanism. The ridge term and the truncation depend "
        "on released coefficients only."
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
class DPIHT:
    """Noisy gradient descent with truncation for l0-constrained risk (Wang & Xu 2019, Algorithm 3).

    Minimises ``(1/n) sum loss_i(beta) + (lam/2) ||beta||^2`` over coefficients with s non-zero
    columns, in standardised units. T times, from 0, with g_i the gradient of row i:

        beta <- H_s(beta - (rate / n) (sum g_i min(1, G/||g_i||) + s_t N(0, I_d)) - rate lam beta).

    G is the radius R of rows times a clip of residuals: their released upper quartile in the
    linear model, 1 for a logit, where gradients within the radius are then never clipped.

    Parameters
    ----------
    model : {"ols", "logit"}
        Linear or logistic regression.

    Notes
    -----
    *Guarantee.* Every question is a Gaussian mechanism whose sensitivity its query enforces by
    clipping: `Count`, `Search` of `ResidualQuantile`, `Gradient` (L2 sensitivity 2 G for a replaced
    row, whatever the row), after the first of three or more steps `Gram` of its columns (sqrt(2)
    R^2, for the step size), and at the end `Score` and `Gram` of one number each. Each depends on
    the data only through earlier answers; adaptive composition of Gaussian mechanisms gives the
    cost in the plan exactly (Dong, Roth & Su 2022, Corollary 3.3). The gradient of the ridge is a
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
    sparse: ClassVar[bool] = True
    options: ClassVar[Mapping[str, str]] = {
        "sparsity": "number of columns to select, beside the intercept; needed",
        "lam": "ridge penalty >= 0 per row, in standardised units; 0 by default",
        "steps": "number of gradient steps, 1 to 1000; planned from public facts by default",
        "step_size": "step as a multiple > 0 of the inverse guessed curvature; 1 by default",
        "radius": "norm > 0 of rows beyond which gradients are clipped, in standardised units",
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
            ``sparsity``, ``lam``, ``steps``, ``step_size``, ``radius``.

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
        lam = need_positive("lam", options.get("lam"), 0.0, zero=True)
        rate = need_positive("step_size", options.get("step_size"), 1.0)
        steps_at, last_noise = paced(
            lambda privacy, n, steps: _noise(facts, radius, privacy, n, max_rows(design), steps),
            lambda noise: length(noise / facts.signal, _PLANNED_STEPS),
            options.get("steps"),
            _MOST_STEPS,
        )
        steps = steps_at(privacy, n)
        asks = step_asks(facts, steps, "per-row clipped gradient, noise on every coordinate")
        plan = make_plan(
            self,
            design,
            privacy,
            n,
            asks,
            {
                "sparsity": sparsity,
                "lam": lam,
                "steps": steps,
                "step_size": rate,
                "radius": radius,
            },
        )
        return warned(plan, design, facts, last_noise)

    def fit(self, holder: Holder[Query], design: Design, plan: Plan) -> Estimate:
        """Step and truncate; rescale at the end."""
        rate, lam = float(plan.options["step_size"]), float(plan.options["lam"])
        radius = float(plan.options["radius"])
        facts = public_facts(design, int(plan.options["sparsity"]))
        n = noisy_count(holder, 0)
        steps = int(plan.options["steps"])
        beta, clips = np.zeros(len(plan.names)), []
        penalised = np.ones(beta.size)
        penalised[list(facts.always)] = 0.0
        for t in range(steps):
            clips.append(spread(holder, facts, f"spread-{t + 1}", beta))
            query = Gradient(beta, radius * clips[-1], facts.family)
            gradient, _ = holder.ask(query, f"step-{t + 1}")
            change = gradient / n - lam * penalised * beta
            beta = within(hard_threshold(beta + facts.move(change, rate, lam), facts), facts)
            if t == 0:
                facts = measured(holder, facts, beta, n, steps)
        final, factor = rescaled(holder, facts, beta, n, clips)
        if lam > 0:
            final = beta * min(1.0, factor) if factor < _LITTLE else beta
        return concluded(final, beta, n, {"clips": clips, "last factor": factor})


def _noise(
    facts: Facts, radius: float, privacy: Privacy, n: int, rows: int, steps: int = 1
) -> float:
    """Noise of the last step on one coefficient, in standardised units, by public guesses."""
    clip = 1.15 * facts.sd if facts.released_clip else 1.0
    query = Gradient(np.zeros(1), radius * clip, facts.family)
    z = 1 / (gdp_mu(privacy.epsilon, privacy.delta) * math.sqrt(last_share(facts, steps)))
    noise = z * query.sensitivity(privacy.neighbors, rows) / n
    typical = float(np.median(facts.moments))
    return noise / (facts.curvature * facts.active * math.sqrt(typical))
