"""Private Frank-Wolfe over an l1 ball (Talwar, Thakurta & Zhang)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.base import Request, need_positive
from dpstats.estimators.bounds import SMALL_DELTA, SPARSE_GLM_LOWER, SPARSE_LOWER, rates
from dpstats.estimators.central.published.rescaling import rescaling
from dpstats.estimators.central.published.sparse import (
    SPREADS,
    Descent,
    Path,
    Settings,
    SparseDescent,
    Trial,
    spread_request,
)
from dpstats.estimators.central.sandwich import COUNT
from dpstats.estimators.sources import CAI, SCORE_ATTACK, TALWAR
from dpstats.estimators.wide import SparseGuess, hard_threshold
from dpstats.protocol import Options
from dpstats.queries import CoordinateScores, ResponseQuantile
from dpstats.theory import Assumption, Theory

__all__ = ["FrankWolfe"]

Array = NDArray[np.float64]

_MEDIAN = 0.02  # budget: median of the response
_STEPS = (5, 60)  # numerical: fewest and most steps
_RENEWALS = 3  # number: clips that are released

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
    upper=rates(
        "(s^2 log(d)/n)^(1/4)",
        "sqrt(s log(d)) log(1/delta)^(1/6)/(n eps)^(1/3)",
        _TALWAR,
        conjectured=True,
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
class FrankWolfe(SparseDescent):
    """Frank-Wolfe steps towards vertices of an l1 ball, chosen privately (Talwar et al. 2015).

    From the private median of the response as intercept (linear model), T times with v_j the sum of
    x_ij clip(r_i, -c, c):

        choose (j, sign) with probability proportional to exp(eps_t (+-v_j) / (2 sensitivity)),
        beta <- (1 - mu) beta + mu (start + sign radius e_j),        mu = 2 / (t + 2).

    The s largest coefficients are kept and rescaled (`rescaling.rescaled`). Unless given, the
    radius is sqrt(s) c_0, c_0 the released upper quartile of |y - median|, in standardised units;
    for a logit 2 sqrt(s).

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
    options: ClassVar[Mapping[str, str]] = {
        "sparsity": "number of columns to keep, beside the intercept; needed",
        "radius": "radius > 0 of the l1 ball, in standardised units; from a released quantile",
        "steps": "number of steps, 1 to 200; planned from public facts by default",
    }
    theories: ClassVar[Mapping[str, Theory]] = {"ols": _THEORY, "logit": _LOGIT}
    most_steps: ClassVar[int] = 200
    vertices: ClassVar[int] = 2

    def _settings(self, facts: SparseGuess, options: Options) -> Settings:
        asked = options.get("radius")
        return {"radius": None if asked is None else need_positive("radius", asked, 1.0)}

    def _length(self, trial: Trial) -> int:
        """Steps at which what is left of the way, 1/T, is as large as the noise of a choice."""
        facts = trial.facts
        largest = math.sqrt(2 * math.log(2 * facts.moments.size))
        relative = self._noise(trial, 1) * largest / facts.signal
        return int(np.clip(round((7 / max(relative, 1e-9)) ** (2 / 3)), *_STEPS))

    def _noise(self, trial: Trial, steps: int) -> float:
        """Gumbel noise of one of so many choices."""
        query = CoordinateScores(np.zeros(1), trial.facts.usual_clip, trial.facts.reach)
        scale = 2 / math.sqrt(8 * 0.8 * trial.rho)
        noise = scale * trial.sensitivity(query) / trial.n
        return trial.on_a_coefficient(noise) * math.sqrt(steps)

    def _asks(self, trial: Trial, steps: int) -> list[Request]:
        facts, last = trial.facts, rescaling()
        renewals = len(_renewals(steps)) if facts.released_clip else 0
        fixed = COUNT.weight + _MEDIAN * _median(facts) + SPREADS * bool(renewals)
        left = 1 - fixed - sum(a.weight for a in last)
        asks = [COUNT]
        if _median(facts):
            asks.append(Request("median", _MEDIAN, "median of the response, for the intercept"))
        asks += [spread_request(i + 1, SPREADS / renewals) for i in range(renewals)]
        asks += [
            Request(f"step-{t + 1}", left / steps, "vertex of the l1 ball", "selection")
            for t in range(steps)
        ]
        return [*asks, *last]

    def _descend(self, at: Descent) -> Path:
        """Walk from vertex to vertex; cut what is left to the sparsity."""
        facts, d, steps = at.facts, len(at.plan.names), int(at.plan.options["steps"])
        start = _start(at)
        beta, clips, radius = start, [facts.clip], at.plan.options["radius"]
        for t in range(steps):
            if facts.released_clip and t in _renewals(steps):
                clips.append(at.spread(f"spread-{_renewals(steps).index(t) + 1}", beta))
            if radius is None:
                radius = math.sqrt(facts.sparsity) * (clips[-1] if facts.released_clip else 2.0)
            query = CoordinateScores(beta, clips[-1], facts.reach, signed=True, family=facts.family)
            (chosen,), _ = at.holder.ask(query, f"step-{t + 1}")
            column, sign = int(chosen) % d, 1.0 if chosen < d else -1.0
            vertex = start.copy()
            vertex[column] += sign * float(radius) / math.sqrt(facts.moments[column])
            mu = 2 / (t + 2)
            beta = (1 - mu) * beta + mu * vertex
        released = clips[1:] or clips
        return hard_threshold(beta, facts), released, {"clips": released, "radius": float(radius)}


def _median(facts: SparseGuess) -> bool:
    return bool(facts.always) and facts.released_clip


def _start(at: Descent) -> Array:
    """Zero slopes, and the private median of the response where there is an intercept."""
    start = np.zeros(len(at.plan.names))
    if _median(at.facts):
        grid = np.linspace(*at.facts.ends, 129)
        (middle,), _ = at.holder.ask(ResponseQuantile(grid, 0.5), "median")
        start[at.facts.always[0]] = middle
    return start


def _renewals(steps: int) -> list[int]:
    """Steps before which the clip is released anew."""
    return sorted({i * steps // _RENEWALS for i in range(_RENEWALS)})
