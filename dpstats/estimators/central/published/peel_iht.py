"""Peeling iterative hard thresholding: columns by one-shot Gumbel noise, values by Gaussian."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.base import Request
from dpstats.estimators.bounds import SMALL_DELTA
from dpstats.estimators.central.published.sparse import (
    Descent,
    Stepwise,
    Trial,
    halvings,
    last_share,
    options,
    step_asks,
)
from dpstats.estimators.central.published.theory import by_thresholding
from dpstats.estimators.sources import CAI, DURFEE
from dpstats.queries import CoordinateScores, Geometry, Score, Selected
from dpstats.theory import Assumption, Theory

__all__ = ["PeelIHT"]

Array = NDArray[np.float64]

_PLANNED_STEPS = {"ols": 3, "logit": 2}  # number: steps, where none is asked for
_SHRINKS = 0.5  # ratio: noise that later clips leave, as residuals shrink
_CHOICE = 0.65  # share: of a step's budget that chooses columns; their values take the rest
_RADIUS = 1.15  # ratio: clipping radius of rows on the support, over their guessed typical norm

_THEORIES = by_thresholding(
    step=(
        "chooses s columns by exponential "
        "mechanisms on |n h beta + sum x clip(r, -c, c)|, of L-infinity sensitivity 2 reach c "
        "under replace-one (reach c under add-remove), and releases the sums on them, of rows "
        "weighted down to norm R there, as a Gaussian mechanism of L2 sensitivity 2 R c (R c)"
    ),
    conditions=(
        Assumption("sparsity >= C L^4 s*, s* the true number of columns"),
        Assumption(formula="n eps > 2 s log(d) sqrt(log(1/delta))"),
        SMALL_DELTA,
    ),
    citations=(CAI.at("Theorems 4.3 and 4.4"), DURFEE.at("Lemma 4.2")),
    correction=(
        "Columns are chosen at once by Gumbel noise and valued by Gaussian noise, instead of "
        "peeled one by one with Laplace noise; both are calibrated to the composed loss."
    ),
)


@dataclass(frozen=True)
class PeelIHT(Stepwise):
    """Iterative hard thresholding that pays for s coordinates of each step, not for d.

    T times, from 0, with h the guessed second derivative of the mean loss over the step size:

        c      <- released upper quartile of |y - x'beta|, at most the last one    (1 for a logit),
        v      =  n h beta + sum x clip(r, -c, c),
        S      <- the s columns with the largest |v_j| + Gumbel noise,
        beta_S <- beta_S + (sum w^2 x_S clip(r, -c, c) + N(0, s_t^2 I)) / (n h_S), and 0 elsewhere,

    with row weights ``w = min(1, R / ||x_S||)``. The intercept is always in. Then
    `rescaling.rescaled`.

    Notes
    -----
    *Guarantee.* (1) Choice. Replacing a row changes one term of v_j, |x_ij clip(r)| <= reach c, so
    each |v_j| moves by at most 2 reach c, whatever the row; ``n h beta`` is public by then. The s
    largest after Gumbel noise of scale 2 (2 reach c) / eps have the law of s exponential mechanisms
    in a row, each eps-DP of bounded range eps (Durfee & Rogers 2019, Lemma 4.2): `CoordinateScores`
    clips what this needs. (2) Values. S and the old support are public; r reads x on both, but is
    clipped afterwards, and the sum is of w^2 x_S clip(r) with ||w x_S|| <= R: it moves by at most 2
    R c in L2 norm (`Score`, whose geometry is that of the coordinates S of `Selected` columns), and
    Gaussian noise is a Gaussian mechanism. (3) All else as for `SparseDescent`.

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
    options: ClassVar[Mapping[str, str]] = options("number of steps, 1 to 50")
    theories: ClassVar[Mapping[str, Theory]] = _THEORIES
    most_steps: ClassVar[int] = 50

    def _length(self, trial: Trial) -> int:
        noise = _SHRINKS * self._noise(trial, 1) / trial.facts.signal
        return halvings(noise, _PLANNED_STEPS[self.model])

    def _noise(self, trial: Trial, steps: int) -> float:
        """That of the last choice.

        The largest of d Gumbel variables is about log(d); it is stated as the standard deviation of
        a normal one whose largest is that.
        """
        facts = trial.facts
        query = CoordinateScores(np.zeros(1), facts.usual_clip, facts.reach)
        rho = trial.rho * _CHOICE * last_share(facts, steps)
        gumbel = 2 * trial.sensitivity(query) / math.sqrt(8 * rho / facts.sparsity)
        largest = math.sqrt(math.log(max(facts.moments.size, 2)) / 2)
        return trial.on_a_coefficient(gumbel * largest / trial.n)

    def _asks(self, trial: Trial, steps: int) -> list[Request]:
        """Those of `step_asks`, each step in two: a choice of columns, and their values."""
        asks: list[Request] = []
        for ask in step_asks(trial.facts, steps, "clipped score of the chosen columns"):
            if ask.slot.startswith("step-"):
                slot, weight = ask.slot.replace("step", "choice"), _CHOICE * ask.weight
                sparsity = trial.facts.sparsity
                asks.append(
                    Request(slot, weight, "choice of columns by score", "selection", sparsity)
                )
                ask = replace(ask, weight=ask.weight - weight)
            asks.append(ask)
        return asks

    def _clip(self, released: float, earlier: Sequence[float]) -> float:
        """At most the last one."""
        return min(released, *earlier[-1:], math.inf)

    def _step(self, at: Descent, t: int, beta: Array, clip: float) -> Array:
        bend = at.bend
        chosen = _chosen(at, f"choice-{t}", beta, clip, bend)
        score = _values(at, f"step-{t}", beta, clip, chosen)
        moved = np.zeros_like(beta)
        moved[chosen] = beta[chosen] + score / bend[chosen]
        return moved


def _chosen(at: Descent, slot: str, beta: Array, clip: float, bend: Array) -> NDArray[np.intp]:
    """Columns with the largest ``|bend beta + score|``, and the intercept; ascending."""
    facts, prior = at.facts, bend * beta
    query = CoordinateScores(
        beta, clip, facts.reach, prior, exclude=facts.always, family=facts.family
    )
    found = at.holder.ask(query, slot).value.astype(np.intp)
    chosen: NDArray[np.intp] = np.sort(np.append(found, np.array(facts.always, dtype=np.intp)))
    return chosen


def _values(at: Descent, slot: str, beta: Array, clip: float, chosen: NDArray[np.intp]) -> Array:
    """The noisy clipped score of the chosen columns at `beta`, which may have others."""
    union = np.union1d(np.flatnonzero(beta), chosen)
    whiten = (union == chosen[:, None]).astype(np.float64)
    # A norm that most rows do not exceed on columns with these guessed second moments.
    radius = _RADIUS * math.sqrt(float(np.sum(at.facts.moments[chosen])))
    query = Score(Geometry(radius, whiten), beta[union], clip, at.facts.family)
    return at.holder.ask(Selected(query, tuple(int(j) for j in union)), slot).value
