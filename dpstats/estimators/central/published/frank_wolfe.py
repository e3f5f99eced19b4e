"""Private Frank-Wolfe over an l1 ball (Talwar, Thakurta & Zhang)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting import zcdp_rho
from dpstats.estimators.base import Ask, check_options, make_plan, need_delta
from dpstats.estimators.bounds import SMALL_DELTA, SPARSE_GLM_LOWER, SPARSE_LOWER
from dpstats.estimators.central.published.sparse import (
    Facts,
    concluded,
    hard_threshold,
    need_positive,
    need_sparsity,
    need_steps,
    public_facts,
    rescaled,
    rescaling,
    spread,
    warned,
)
from dpstats.estimators.central.sandwich import noisy_count
from dpstats.estimators.guesses import max_rows
from dpstats.estimators.sources import CAI, SCORE_ATTACK, TALWAR
from dpstats.privacy import Privacy
from dpstats.protocol import Estimate, Holder, Plan
from dpstats.queries import CoordinateScores, Query, ResponseQuantile, Search
from dpstats.theory import Assumption, Rate, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["FrankWolfe"]

Array = NDArray[np.float64]

_COUNT, _MEDIAN, _SPREADS = 0.01, 0.02, 0.10
_MOST_STEPS, _STEPS = 200, (5, 60)
_RENEWALS = 3  # of the clip

_TALWAR = TALWAR.at("noisy Frank-Wolfe over a polytope, a bound on the excess risk")

_THEORY = Theory(
    estimand=(
        "the minimiser of the mean loss over the l1 ball of the radius in use; the sparsest part "
        "of it, rescaled"
    ),
    guarantee=(
        "(epsilon, delta)-DP for every data set: each step chooses one of the 2d vertices by an "
        "exponential mechanism whose utilities, sums of x clip(r), have sensitivity 2 reach c "
        "under replace-one and reach c under add-remove; count, quantiles and the two numbers of "
        "the rescaling are Gaussian mechanisms, and all are composed by their privacy loss."
    ),
    assumptions=(
        Assumption("|x_ij| <= 1 and |y_i| <= 1: columns are bounded one by one, rows are not"),
        Assumption("The target lies within the l1 ball"),
        SMALL_DELTA,
    ),
    upper=(
        Rate("statistical", "(s^2 log(d)/n)^(1/4)", _TALWAR, conjectured=True),
        Rate(
            "privacy",
            "sqrt(s log(d)) log(1/delta)^(1/6)/(n eps)^(1/3)",
            _TALWAR,
            conjectured=True,
        ),
    ),
    lower=SPARSE_LOWER,
    citations=(_TALWAR, CAI.at("Theorem 4.3")),
    corrections=(
        "|y| <= 1 and a fixed radius are not assumed: residuals are clipped at a released "
        "quantile, and the radius follows from it, so that the guarantee needs no assumption.",
        "Vertices are chosen by the exponential mechanism, eps^2/8-zCDP a step, instead of Laplace "
        "noise at eps/sqrt(8 T log(1/delta)) a step by the strong composition theorem.",
        "T follows from public bounds instead of (n eps)^(2/3) times unknown constants.",
        "The last iterate, of up to T columns, is cut to the sparsity asked for and rescaled by "
        "two released numbers.",
    ),
)

_LOGIT = replace(_THEORY, lower=SPARSE_GLM_LOWER, citations=(_TALWAR, SCORE_ATTACK))


@dataclass(frozen=True)
class FrankWolfe:
    """Frank-Wolfe steps towards vertices of an l1 ball, chosen privately (Talwar et al. 2015).

    From the private median of the response as intercept (linear model), T times with v_j the sum of
    x_ij clip(r_i, -c, c):

        choose (j, sign) with probability proportional to exp(eps_t (+-v_j) / (2 sensitivity)),
        beta <- (1 - mu) beta + mu (start + sign radius e_j),        mu = 2 / (t + 2).

    The s largest coefficients are kept and rescaled (`sparse.rescaled`). Unless given, the radius
    is sqrt(s) c_0, c_0 the released upper quartile of |y - median|, in standardised units; for a
    logit 2 sqrt(s).

    Parameters
    ----------
    model : {"ols", "logit"}
        Linear or logistic regression.

    Notes
    -----
    *Guarantee.* `CoordinateScores` bounds every utility's sensitivity by 2 reach c for a replaced
    row; a choice among 2d vertices by the exponential mechanism is eps_t-DP and eps_t^2/8-zCDP
    (bounded range). `Count`, `Search` and the two numbers of the rescaling are Gaussian mechanisms.
    Each depends on the data only through earlier answers, and all are composed by their privacy
    loss. The vertices and the radius are public or post-processing.

    *Corrections.* The paper's noise is scaled to |y| <= 1, ||beta||_1 <= 1, |x_ij| <= 1, so that
    residuals are within 2. Where these are not enforced the printed scale is no bound; here r is
    clipped, whatever the rows.

    *Where it stands.* Converges as 1/T while each step costs budget, so that it stops short of the
    optimum: at about .3 of relative error where the default reaches .1. Its noise grows with
    sqrt(T) log(d) but with no norm of rows.
    """

    model: str
    name: ClassVar[str] = "frank-wolfe"
    sparse: ClassVar[bool] = True
    options: ClassVar[Mapping[str, str]] = {
        "sparsity": "number of columns to keep, beside the intercept; needed",
        "radius": "radius > 0 of the l1 ball, in standardised units; from a released quantile",
        "steps": "number of steps, 1 to 200; planned from public facts by default",
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
            ``sparsity``, ``radius``, ``steps``.

        Raises
        ------
        OptionError
            If an option is missing, unknown or out of range, or delta is 0.
        """
        check_options(self.name, self.options, options)
        need_delta(self.name, privacy)
        sparsity = need_sparsity(self.name, design, options.get("sparsity"))
        facts = public_facts(design, sparsity)
        asked = options.get("radius")
        radius = None if asked is None else need_positive("radius", asked, 1.0)

        def steps_at(privacy: Privacy, n: int) -> int:
            unit = _noise(facts, privacy, n, max_rows(design))
            return need_steps(options.get("steps"), _length(facts, unit), _MOST_STEPS)

        def last_noise(privacy: Privacy, n: int) -> float:
            return _noise(facts, privacy, n, max_rows(design)) * math.sqrt(steps_at(privacy, n))

        steps = steps_at(privacy, n)
        plan = make_plan(
            self,
            design,
            privacy,
            n,
            _asks(facts, steps),
            {"sparsity": sparsity, "steps": steps, "radius": radius},
        )
        return warned(plan, design, facts, last_noise, vertices=2)

    def fit(self, holder: Holder[Query], design: Design, plan: Plan) -> Estimate:
        """Walk from vertex to vertex; cut and rescale at the end."""
        steps = int(plan.options["steps"])
        facts = public_facts(design, int(plan.options["sparsity"]))
        n, d = noisy_count(holder, 0), len(plan.names)
        start = np.zeros(d)
        if _median(facts):
            grid = np.linspace(*design.internal_endog_bounds, 129)
            (middle,), _ = holder.ask(Search(ResponseQuantile(grid, 0.5)), "median")
            start[facts.always[0]] = middle
        beta, clips, radius = start, [facts.clip], plan.options["radius"]
        for t in range(steps):
            if facts.released_clip and t in _renewals(steps):
                slot = f"spread-{_renewals(steps).index(t) + 1}"
                clips.append(spread(holder, facts, slot, beta))
            if radius is None:
                radius = math.sqrt(facts.sparsity) * (clips[-1] if facts.released_clip else 2.0)
            query = CoordinateScores(beta, clips[-1], facts.reach, signed=True, family=facts.family)
            (chosen,), _ = holder.ask(query, f"step-{t + 1}")
            column, sign = int(chosen) % d, 1.0 if chosen < d else -1.0
            vertex = start.copy()
            vertex[column] += sign * float(radius) / math.sqrt(facts.moments[column])
            mu = 2 / (t + 2)
            beta = (1 - mu) * beta + mu * vertex
        beta = hard_threshold(beta, facts)
        released = clips[1:] or clips
        final, factor = rescaled(holder, facts, beta, n, released)
        return concluded(
            final, beta, n, {"clips": released, "radius": float(radius), "last factor": factor}
        )


def _median(facts: Facts) -> bool:
    return bool(facts.always) and facts.released_clip


def _renewals(steps: int) -> list[int]:
    """Steps before which the clip is released anew."""
    return sorted({i * steps // _RENEWALS for i in range(_RENEWALS)})


def _asks(facts: Facts, steps: int) -> list[Ask]:
    last = rescaling()
    renewals = len(_renewals(steps)) if facts.released_clip else 0
    fixed = _COUNT + _MEDIAN * _median(facts) + _SPREADS * bool(renewals)
    left = 1 - fixed - sum(a.weight for a in last)
    asks = [Ask("count", _COUNT, "number of rows that contribute")]
    if _median(facts):
        asks.append(Ask("median", _MEDIAN, "median of the response, for the intercept"))
    asks += [
        Ask(f"spread-{i + 1}", _SPREADS / renewals, "upper quartile of residuals, for the clip")
        for i in range(renewals)
    ]
    asks += [
        Ask(f"step-{t + 1}", left / steps, "vertex of the l1 ball", "selection")
        for t in range(steps)
    ]
    return [*asks, *last]


def _length(facts: Facts, unit: float) -> int:
    """Steps at which what is left of the way, 1/T, is as large as the noise of a step's choice."""
    relative = unit * math.sqrt(2 * math.log(2 * facts.moments.size)) / facts.signal
    return int(np.clip(round((7 / max(relative, 1e-9)) ** (2 / 3)), *_STEPS))


def _noise(facts: Facts, privacy: Privacy, n: int, rows: int) -> float:
    """Gumbel noise of one step that had all the budget, on a coefficient in standardised units."""
    clip = 1.15 * facts.sd if facts.released_clip else 1.0
    query = CoordinateScores(np.zeros(1), clip, facts.reach)
    scale = 2 / math.sqrt(8 * 0.8 * zcdp_rho(privacy.epsilon, privacy.delta))
    noise = scale * query.sensitivity(privacy.neighbors, rows) / n
    typical = float(np.median(facts.moments))
    return noise / (facts.curvature * facts.active * math.sqrt(typical))
