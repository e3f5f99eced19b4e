"""Private selection of columns, then a private fit on them (Kifer, Smith & Thakurta)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.base import Request, floor_eigenvalues, need_positive
from dpstats.estimators.bounds import SMALL_DELTA, SUPPORT_GLM_LOWER, SUPPORT_LOWER, rates
from dpstats.estimators.central.published.rescaling import rescaling
from dpstats.estimators.central.published.sparse import (
    SPARSITY,
    SPREADS,
    Descent,
    Path,
    Settings,
    SparseDescent,
    Trial,
    spread_request,
)
from dpstats.estimators.central.sandwich import COUNT
from dpstats.estimators.sources import CAI, DURFEE, KIFER, SCORE_ATTACK
from dpstats.estimators.wide import SparseGuess, project
from dpstats.protocol import Options
from dpstats.queries import CoordinateScores, Geometry, Gram, Score, Selected
from dpstats.theory import Assumption, Theory

__all__ = ["TwoStage"]

Array = NDArray[np.float64]

_CHOICE = 0.4  # budget: the choice of columns
_GRAM = 0.12  # budget: second moments of the chosen columns
_STEPS = 3  # number: steps on the chosen columns; each twice the budget of the one before

_KIFER = KIFER.at("two stages: private support selection, then objective perturbation")

_THEORY = Theory(
    estimand=(
        "the coefficients of the model with only the selected columns, which are those most "
        "correlated with the response"
    ),
    guarantee=(
        "(epsilon, delta)-DP for every data set: s columns are chosen at once by Gumbel noise on "
        "utilities |sum x clip(y)| of sensitivity 2 reach c under replace-one (reach c under "
        "add-remove), which is s exponential mechanisms; on them a Gram matrix (sqrt(2) R^2; R^2) "
        "and three clipped scores (2 R c; R c) are Gaussian mechanisms of these L2 sensitivities, "
        "as are count, quantiles and the two numbers of the rescaling. All are composed by their "
        "privacy loss."
    ),
    assumptions=(
        Assumption("Restricted strong convexity on sparse vectors"),
        Assumption(
            "Each column that matters is more correlated with the response than any that does not "
            "(weak correlation between columns): the support is found"
        ),
        Assumption(formula="n >~ s log(d)"),
        SMALL_DELTA,
    ),
    upper=rates("sqrt(s log(d)/n)", "s sqrt(log(1/delta))/(n eps)", _KIFER, conjectured=True),
    lower=SUPPORT_LOWER,
    citations=(_KIFER, DURFEE.at("Lemma 4.2"), CAI.at("Theorem 4.1")),
    corrections=(
        "Objective perturbation is private only for an exact minimiser, which no solver returns; "
        "the second stage here is noisy Newton steps, private at any accuracy.",
        "Selection by votes of lasso fits on sqrt(n) blocks (or by an exponential mechanism over "
        "all supports, which cannot be computed) is replaced by one-shot choice of the largest "
        "clipped correlations: same guarantee, all rows.",
        "Budgets compose exactly instead of (eps/2, delta/2) for each stage.",
        "The last coefficients are rescaled by two released numbers.",
    ),
)

_LOGIT = replace(
    _THEORY,
    lower=SUPPORT_GLM_LOWER,
    citations=(_KIFER, DURFEE.at("Lemma 4.2"), SCORE_ATTACK),
)


@dataclass(frozen=True)
class TwoStage(SparseDescent):
    """Choose columns by their clipped correlations, then fit privately on them (Kifer et al. 2012).

    1. Release the upper quartile c of |y|, and choose s columns at once, those with the largest
       |sum x_ij clip(y_i, -c, c)| after Gumbel noise (for a logit, y - 1/2 takes the place of y).
    2. On them (and the intercept), release a Gram matrix and take three Newton steps with clipped
       scores, the clip being the upper quartile of residuals each time.

    The coefficients are rescaled in the end (`rescaling.rescaled`).

    Notes
    -----
    *Guarantee.* `CoordinateScores` bounds every utility's sensitivity by 2 reach c for a replaced
    row; one-shot Gumbel choice of s is s rounds of the exponential mechanism, s eps_0^2/8-zCDP
    (Durfee & Rogers 2019). `Count`, `Search`, and on the chosen columns `Gram` (L2 sensitivity
    sqrt(2) R^2) and `Score` (2 R c) are Gaussian mechanisms. Each depends on the data only through
    earlier answers, and all are composed by their privacy loss.

    *Corrections.* The paper's second stage perturbs the objective; its proof takes the exact
    minimiser, and fails for what a solver returns. The paper's selection counts votes of lasso fits
    on blocks of sqrt(n) rows, for which n must be about s^2 log(d)^2 at least; correlations use all
    rows, but need columns that are weakly correlated with each other.

    *Where it stands.* The noise on the Gram matrix does not shrink with the residuals. For a
    logistic model, whose labels are bounded anyway, choosing first is the right order.
    """

    model: str
    name: ClassVar[str] = "two-stage"
    options: ClassVar[Mapping[str, str]] = {
        "sparsity": SPARSITY,
        "selection_share": "share of the budget for the choice, between 0 and 0.7; 0.4 by default",
    }
    theories: ClassVar[Mapping[str, Theory]] = {"ols": _THEORY, "logit": _LOGIT}

    def _settings(self, facts: SparseGuess, options: Options) -> Settings:
        asked = options.get("selection_share")
        return {"selection_share": need_positive("selection_share", asked, _CHOICE, most=0.7)}

    def _length(self, trial: Trial) -> int:
        return 1

    def _noise(self, trial: Trial, steps: int) -> float:
        """That of the choice, on one correlation."""
        facts = trial.facts
        clip = 1.5 * facts.sd if facts.released_clip else 1.0
        query = CoordinateScores(np.zeros(1), clip, facts.reach)
        rho = trial.options["selection_share"] * trial.rho
        scale = 2 / math.sqrt(8 * rho / facts.sparsity)
        return trial.on_a_coefficient(scale * trial.sensitivity(query) / trial.n)

    def _asks(self, trial: Trial, steps: int) -> list[Request]:
        facts, share, last = trial.facts, trial.options["selection_share"], rescaling()
        spreads = SPREADS * facts.released_clip
        left = 1 - COUNT.weight - spreads - share - _GRAM - sum(a.weight for a in last)
        weights = [left * 2.0**t / (2.0**_STEPS - 1) for t in range(_STEPS)]
        asks = [COUNT]
        if facts.released_clip:
            asks += [spread_request(t, SPREADS / (_STEPS + 1)) for t in range(_STEPS + 1)]
        return [
            *asks,
            Request(
                "columns", share, "columns most correlated with y", "selection", facts.sparsity
            ),
            Request("gram", _GRAM, "second moments of the chosen columns"),
            *(
                Request(f"step-{t + 1}", weight, "clipped score of the chosen columns")
                for t, weight in enumerate(weights)
            ),
            *last,
        ]

    def _descend(self, at: Descent) -> Path:
        """Choose, then step on what was chosen."""
        facts, beta = at.facts, np.zeros(len(at.plan.names))
        clips = [at.spread("spread-0", beta)]
        query = CoordinateScores(
            beta, clips[0], facts.reach, exclude=facts.always, family=facts.family
        )
        found = at.holder.ask(query, "columns").value.astype(int)
        columns = (*facts.always, *(int(j) for j in np.sort(found)))
        inverse, geometry = _inverse(at, columns)
        for t in range(1, _STEPS + 1):
            clips.append(at.spread(f"spread-{t}", beta))
            score = Score(geometry, beta[list(columns)], clips[-1], facts.family)
            answer, _ = at.holder.ask(Selected(score, columns), f"step-{t}")
            beta = beta.copy()
            beta[list(columns)] += inverse @ answer / (at.n * facts.active)
            beta = project(beta, facts)
        return beta, clips, {"clips": clips}


def _inverse(at: Descent, columns: tuple[int, ...]) -> tuple[Array, Geometry]:
    """Inverse of the mean curvature on the chosen columns, and the geometry of their rows."""
    moments = at.facts.moments[list(columns)]
    radius = math.sqrt(float(np.sum(moments)) + 2 * math.sqrt(float(np.sum(moments**2))))
    geometry = Geometry(radius)
    gram, (_, scale) = at.holder.ask(Selected(Gram(geometry), columns), "gram")
    floor = max(scale * math.sqrt(2 * len(columns)), 0.02 * at.n * float(np.mean(moments)))
    curvature: Array = at.facts.curvature * floor_eigenvalues(gram, floor) / at.n
    inverse: Array = np.asarray(np.linalg.inv(curvature), dtype=np.float64)
    return inverse, geometry
