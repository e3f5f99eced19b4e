"""Peeling iterative hard thresholding: columns by one-shot Gumbel noise, values by Gaussian."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting import zcdp_rho
from dpstats.estimators.base import Ask, check_options, make_plan, need_delta
from dpstats.estimators.bounds import (
    LOGISTIC,
    SMALL_DELTA,
    SPARSE_GLM_LOWER,
    SPARSE_GLM_UPPER,
    SPARSE_LOWER,
    SPARSE_UPPER,
)
from dpstats.estimators.central.published.sparse import (
    Facts,
    concluded,
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
from dpstats.estimators.sources import CAI, DURFEE, SCORE_ATTACK
from dpstats.privacy import Privacy
from dpstats.protocol import Estimate, Holder, Plan
from dpstats.queries import CoordinateScores, Geometry, Query, Score, Selected
from dpstats.theory import Assumption, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["PeelIHT"]

Array = NDArray[np.float64]

_MOST_STEPS = 50
_PLANNED_STEPS = {"ols": 3, "logit": 2}
_SHRINKS = {"ols": 0.5, "logit": 1.0}  # what later clips leave of the noise, as residuals shrink
_CHOICE = 0.65  # share of a step's budget that chooses columns; the rest pays for their values
_RADIUS = 1.15  # clipping radius of rows on the support, over their guessed typical norm

_CONDITIONS = (
    Assumption("sparsity >= C L^4 s*, s* the true number of columns"),
    Assumption(formula="n eps > 2 s log(d) sqrt(log(1/delta))"),
    SMALL_DELTA,
)

_THEORY = Theory(
    estimand=(
        "the sparse coefficients of the model: of the linear predictor where errors are symmetric "
        "(residuals are clipped at their upper quartile), of the log-odds for a logit"
    ),
    guarantee=(
        "(epsilon, delta)-DP for every data set: each step chooses s columns by exponential "
        "mechanisms on |n h beta + sum x clip(r, -c, c)|, of L-infinity sensitivity 2 reach c "
        "under replace-one (reach c under add-remove), and releases the sums on them, of rows "
        "weighted down to norm R there, as a Gaussian mechanism of L2 sensitivity 2 R c (R c); "
        "count, quantiles, second moments of the first columns (sqrt(2) R^2; R^2) and the two "
        "numbers of the rescaling are Gaussian mechanisms, and all are composed by their privacy "
        "loss."
    ),
    assumptions=(
        Assumption("Rows are sub-Gaussian with eigenvalues of the covariance in [1/L, L]"),
        Assumption("y = x'beta + noise with sub-Gaussian noise, independent of x"),
        *_CONDITIONS,
    ),
    upper=SPARSE_UPPER,
    lower=SPARSE_LOWER,
    citations=(
        CAI.at("Theorems 4.3 and 4.4"),
        DURFEE.at("Lemma 4.2"),
    ),
    corrections=(
        "Columns are chosen at once by Gumbel noise and valued by Gaussian noise, instead of "
        "peeled one by one with Laplace noise; both are calibrated to the composed loss.",
        "All rows are used in every step, with budgets that grow, instead of disjoint batches.",
        "Residuals are clipped at a released quantile instead of a rate with unknown constants.",
        "Iterates stay in a public ball, and the last one is rescaled by two released numbers.",
    ),
)

_LOGIT = replace(
    _THEORY,
    assumptions=(
        Assumption("Rows are sub-Gaussian with eigenvalues of the covariance in [1/L, L]"),
        LOGISTIC,
        *_CONDITIONS,
    ),
    upper=SPARSE_GLM_UPPER,
    lower=SPARSE_GLM_LOWER,
    citations=(*_THEORY.citations, SCORE_ATTACK),
)


@dataclass(frozen=True)
class PeelIHT:
    """Iterative hard thresholding that pays for s coordinates of each step, not for d.

    T times, from 0, with h the guessed second derivative of the mean loss over the step size:

        c      <- released upper quartile of |y - x'beta|, at most the last one    (1 for a logit),
        v      =  n h beta + sum x clip(r, -c, c),
        S      <- the s columns with the largest |v_j| + Gumbel noise,
        beta_S <- beta_S + (sum w^2 x_S clip(r, -c, c) + N(0, s_t^2 I)) / (n h_S), and 0 elsewhere,

    with row weights ``w = min(1, R / ||x_S||)``. The intercept is always in. Then
    `sparse.rescaled`.

    Parameters
    ----------
    model : {"ols", "logit"}
        Linear or logistic regression.

    Notes
    -----
    *Guarantee.* (1) Choice. Replacing a row changes one term of v_j, |x_ij clip(r)| <= reach c, so
    each |v_j| moves by at most 2 reach c, whatever the row; ``n h beta`` is public by then. The s
    largest after Gumbel noise of scale 2 (2 reach c) / eps have the law of s exponential mechanisms
    in a row, each eps-DP of bounded range eps (Durfee & Rogers 2019, Lemma 4.2): `CoordinateScores`
    clips what this needs. (2) Values. S and the old support are public; r reads x on both, but is
    clipped afterwards, and the sum is of w^2 x_S clip(r) with ||w x_S|| <= R: it moves by at most
    2 R c in L2 norm (`Score`, whose geometry is that of the coordinates S of `Selected` columns),
    and Gaussian noise is a Gaussian mechanism. (3) `Count`, `Search` of `ResidualQuantile`, after
    the first of three or more steps `Gram` of its columns (sqrt(2) R^2, for the step size), and the
    two numbers of the rescaling are Gaussian mechanisms. Each question depends on the data only
    through earlier answers; all are composed by their privacy loss.

    *Clips.* A clip never grows: noise that made residuals longer would otherwise make the next
    noise larger, and so on.

    *Where it stands.* The values pay ``sqrt(s) |x|_inf`` in each of s coordinates, where noise on
    the whole gradient pays ``||x||_2`` in each of d. For one budget its noise is about half of that
    of peeling by Laplace noise (``noisy-ht``). The default chooses columns by scores of nearly
    signs, never chooses a column twice, and takes Newton steps: it is as good or better in all
    settings measured in docs/sparse.md, most of all for small budgets and correlated columns.
    """

    model: str
    name: ClassVar[str] = "peel-iht"
    sparse: ClassVar[bool] = True
    options: ClassVar[Mapping[str, str]] = {
        "sparsity": "number of columns to select, beside the intercept; needed",
        "steps": "number of steps, 1 to 50; planned from public facts by default",
        "step_size": "step as a multiple > 0 of the inverse guessed curvature; 1 by default",
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
            ``sparsity``, ``steps``, ``step_size``.

        Raises
        ------
        OptionError
            If an option is missing, unknown or out of range, or delta is 0.
        """
        check_options(self.name, self.options, options)
        need_delta(self.name, privacy)
        sparsity = need_sparsity(self.name, design, options.get("sparsity"))
        facts = public_facts(design, sparsity)
        rate = need_positive("step_size", options.get("step_size"), 1.0)
        steps_at, last_noise = paced(
            lambda privacy, n, steps: _noise(facts, privacy, n, max_rows(design), steps),
            lambda noise: length(
                _SHRINKS[self.model] * noise / facts.signal, _PLANNED_STEPS[self.model]
            ),
            options.get("steps"),
            _MOST_STEPS,
        )
        steps = steps_at(privacy, n)
        plan = make_plan(
            self,
            design,
            privacy,
            n,
            _asks(facts, steps),
            {"sparsity": sparsity, "steps": steps, "step_size": rate},
        )
        return warned(plan, design, facts, last_noise)

    def fit(self, holder: Holder[Query], design: Design, plan: Plan) -> Estimate:
        """Choose, step on what was chosen, and repeat; rescale at the end."""
        rate = float(plan.options["step_size"])
        facts = public_facts(design, int(plan.options["sparsity"]))
        n = noisy_count(holder, 0)
        steps = int(plan.options["steps"])
        beta, clips = np.zeros(len(plan.names)), [math.inf]
        for t in range(steps):
            clips.append(min(clips[-1], spread(holder, facts, f"spread-{t + 1}", beta)))
            bend = n * facts.denominator(rate)
            chosen = _chosen(holder, facts, f"choice-{t + 1}", beta, clips[-1], bend)
            score = _values(holder, facts, f"step-{t + 1}", beta, clips[-1], chosen)
            moved = np.zeros_like(beta)
            moved[chosen] = beta[chosen] + score / bend[chosen]
            beta = within(moved, facts)
            if t == 0:
                facts = measured(holder, facts, beta, n, steps)
        final, factor = rescaled(holder, facts, beta, n, clips[1:])
        return concluded(final, beta, n, {"clips": clips[1:], "last factor": factor})


def _asks(facts: Facts, steps: int) -> list[Ask]:
    """Those of `step_asks`, each step in two: a choice of columns, and their values."""
    asks: list[Ask] = []
    for ask in step_asks(facts, steps, "clipped score of the chosen columns"):
        if ask.slot.startswith("step-"):
            slot = ask.slot.replace("step", "choice")
            weight = _CHOICE * ask.weight
            asks.append(
                Ask(slot, weight, "choice of columns by score", "selection", facts.sparsity)
            )
            ask = replace(ask, weight=ask.weight - weight)
        asks.append(ask)
    return asks


def _chosen(
    holder: Holder[Query], facts: Facts, slot: str, beta: Array, clip: float, bend: Array
) -> NDArray[np.intp]:
    """Columns with the largest ``|bend beta + score|``, and the intercept; ascending."""
    query = CoordinateScores(
        beta, clip, facts.reach, bend * beta, exclude=facts.always, family=facts.family
    )
    found = holder.ask(query, slot).value.astype(np.intp)
    chosen: NDArray[np.intp] = np.sort(np.append(found, np.array(facts.always, dtype=np.intp)))
    return chosen


def _values(
    holder: Holder[Query],
    facts: Facts,
    slot: str,
    beta: Array,
    clip: float,
    chosen: NDArray[np.intp],
) -> Array:
    """The noisy clipped score of the chosen columns at `beta`, which may have others."""
    union = np.union1d(np.flatnonzero(beta), chosen)
    whiten = (union == chosen[:, None]).astype(np.float64)
    geometry = Geometry(_radius(facts.moments[chosen]), whiten)
    query = Score(geometry, beta[union], clip, facts.family)
    score, _ = holder.ask(Selected(query, tuple(int(j) for j in union)), slot)
    return score


def _radius(moments: Array) -> float:
    """A norm that most rows do not exceed on columns with these guessed second moments."""
    return _RADIUS * math.sqrt(float(np.sum(moments)))


def _noise(facts: Facts, privacy: Privacy, n: int, rows: int, steps: int = 1) -> float:
    """Noise of the last choice on one coefficient, in standardised units, by public guesses.

    The largest of d Gumbel variables is about log(d); it is stated as the standard deviation of a
    normal one whose largest is that.
    """
    clip = 1.15 * facts.sd if facts.released_clip else 1.0
    query = CoordinateScores(np.zeros(1), clip, facts.reach)
    rho = zcdp_rho(privacy.epsilon, privacy.delta) * _CHOICE * last_share(facts, steps)
    gumbel = 2 * query.sensitivity(privacy.neighbors, rows) / math.sqrt(8 * rho / facts.sparsity)
    normal = gumbel * math.sqrt(math.log(max(facts.moments.size, 2)) / 2) / n
    typical = float(np.median(facts.moments))
    return normal / (facts.curvature * facts.active * math.sqrt(typical))
