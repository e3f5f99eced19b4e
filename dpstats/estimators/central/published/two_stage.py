"""Private selection of columns, then a private fit on them (Kifer, Smith & Thakurta)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting import zcdp_rho
from dpstats.estimators.base import Ask, check_options, floor_eigenvalues, make_plan, need_delta
from dpstats.estimators.bounds import SMALL_DELTA, SUPPORT_GLM_LOWER, SUPPORT_LOWER
from dpstats.estimators.central.published.sparse import (
    Facts,
    concluded,
    need_positive,
    need_sparsity,
    public_facts,
    rescaled,
    rescaling,
    spread,
    warned,
    within,
)
from dpstats.estimators.central.sandwich import noisy_count
from dpstats.estimators.guesses import max_rows
from dpstats.estimators.sources import CAI, DURFEE, KIFER, SCORE_ATTACK
from dpstats.privacy import Privacy
from dpstats.protocol import Estimate, Holder, Plan
from dpstats.queries import CoordinateScores, Geometry, Gram, Query, Score, Selected
from dpstats.theory import Assumption, Rate, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["TwoStage"]

Array = NDArray[np.float64]

_COUNT, _SPREAD, _CHOICE, _GRAM = 0.01, 0.015, 0.4, 0.12
_STEPS = 3  # on the chosen columns; each twice the budget of the one before

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
    upper=(
        Rate("statistical", "sqrt(s log(d)/n)", _KIFER, conjectured=True),
        Rate("privacy", "s sqrt(log(1/delta))/(n eps)", _KIFER, conjectured=True),
    ),
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
class TwoStage:
    """Choose columns by their clipped correlations, then fit privately on them (Kifer et al. 2012).

    1. Release the upper quartile c of |y|, and choose s columns at once, those with the largest
       |sum x_ij clip(y_i, -c, c)| after Gumbel noise (for a logit, y - 1/2 takes the place of y).
    2. On them (and the intercept), release a Gram matrix and take three Newton steps with clipped
       scores, the clip being the upper quartile of residuals each time.

    The coefficients are rescaled in the end (`sparse.rescaled`).

    Parameters
    ----------
    model : {"ols", "logit"}
        Linear or logistic regression.

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
    sparse: ClassVar[bool] = True
    options: ClassVar[Mapping[str, str]] = {
        "sparsity": "number of columns to select, beside the intercept; needed",
        "selection_share": "share of the budget for the choice, between 0 and 0.7; 0.4 by default",
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
            ``sparsity``, ``selection_share``.

        Raises
        ------
        OptionError
            If an option is missing, unknown or out of range, or delta is 0.
        """
        check_options(self.name, self.options, options)
        need_delta(self.name, privacy)
        sparsity = need_sparsity(self.name, design, options.get("sparsity"))
        facts = public_facts(design, sparsity)
        share = need_positive("selection_share", options.get("selection_share"), _CHOICE, most=0.7)
        plan = make_plan(
            self,
            design,
            privacy,
            n,
            _asks(facts, share),
            {"sparsity": sparsity, "selection_share": share},
        )

        def noise(privacy: Privacy, n: int) -> float:
            return _noise(facts, share, privacy, n, max_rows(design))

        return warned(plan, design, facts, noise)

    def fit(self, holder: Holder[Query], design: Design, plan: Plan) -> Estimate:
        """Choose, then step on what was chosen."""
        facts = public_facts(design, int(plan.options["sparsity"]))
        n, beta = noisy_count(holder, 0), np.zeros(len(plan.names))
        clips = [spread(holder, facts, "spread-0", beta)]
        query = CoordinateScores(
            beta, clips[0], facts.reach, exclude=facts.always, family=facts.family
        )
        found = holder.ask(query, "columns").value.astype(int)
        columns = (*facts.always, *(int(j) for j in np.sort(found)))
        inverse, geometry = _inverse(holder, facts, columns, n)
        for t in range(1, _STEPS + 1):
            clips.append(spread(holder, facts, f"spread-{t}", beta))
            part = beta[list(columns)]
            score, _ = holder.ask(
                Selected(Score(geometry, part, clips[-1], facts.family), columns), f"step-{t}"
            )
            beta = beta.copy()
            beta[list(columns)] += inverse @ score / (n * facts.active)
            beta = within(beta, facts)
        final, factor = rescaled(holder, facts, beta, n, clips)
        return concluded(final, beta, n, {"clips": clips, "last factor": factor})


def _inverse(
    holder: Holder[Query], facts: Facts, columns: tuple[int, ...], n: float
) -> tuple[Array, Geometry]:
    """Inverse of the mean curvature on the chosen columns, and the geometry of their rows."""
    moments = facts.moments[list(columns)]
    radius = math.sqrt(float(np.sum(moments)) + 2 * math.sqrt(float(np.sum(moments**2))))
    geometry = Geometry(radius)
    gram, (_, scale) = holder.ask(Selected(Gram(geometry), columns), "gram")
    floor = max(scale * math.sqrt(2 * len(columns)), 0.02 * n * float(np.mean(moments)))
    curvature: Array = facts.curvature * floor_eigenvalues(gram, floor) / n
    inverse: Array = np.asarray(np.linalg.inv(curvature), dtype=np.float64)
    return inverse, geometry


def _asks(facts: Facts, share: float) -> list[Ask]:
    last = rescaling()
    spreads = _SPREAD * (_STEPS + 1) * facts.released_clip
    left = 1 - _COUNT - spreads - share - _GRAM - sum(a.weight for a in last)
    weights = [left * 2.0**t / (2.0**_STEPS - 1) for t in range(_STEPS)]
    asks = [Ask("count", _COUNT, "number of rows that contribute")]
    if facts.released_clip:
        asks += [
            Ask(f"spread-{t}", _SPREAD, "upper quartile of residuals, for the clip")
            for t in range(_STEPS + 1)
        ]
    return [
        *asks,
        Ask("columns", share, "columns most correlated with y", "selection", facts.sparsity),
        Ask("gram", _GRAM, "second moments of the chosen columns"),
        *(
            Ask(f"step-{t + 1}", weight, "clipped score of the chosen columns")
            for t, weight in enumerate(weights)
        ),
        *last,
    ]


def _noise(facts: Facts, share: float, privacy: Privacy, n: int, rows: int) -> float:
    """Noise of the choice on one correlation, in coefficients and standardised units."""
    clip = 1.5 * facts.sd if facts.released_clip else 1.0
    query = CoordinateScores(np.zeros(1), clip, facts.reach)
    rho = share * zcdp_rho(privacy.epsilon, privacy.delta)
    scale = 2 / math.sqrt(8 * rho / facts.sparsity)
    noise = scale * query.sensitivity(privacy.neighbors, rows) / n
    typical = float(np.median(facts.moments))
    return noise / (facts.curvature * facts.active * math.sqrt(typical))
