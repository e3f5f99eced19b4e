"""The noisy truncated mean of Karwa & Vadhan, as federated transfer learning uses it, corrected."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError
from dpstats.estimators.base import Request, need_positive
from dpstats.estimators.bounds import MEAN_LOWER, rates
from dpstats.estimators.central.counted import CountingMethod, counted_plan
from dpstats.estimators.central.location import (
    MOST_CELLS,
    Clip,
    ResponseGuess,
    predict,
    release_mean,
    response_guess,
    two_stage,
)
from dpstats.estimators.guesses import round_up
from dpstats.estimators.private_variance import FAILURE
from dpstats.estimators.sources import KARWA_VADHAN, LI_FEDERATED
from dpstats.privacy import Privacy
from dpstats.protocol import CoefficientEstimate, Holder, Options, Plan
from dpstats.queries import Query, ResponseHistogram
from dpstats.theory import Assumption, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["KarwaVadhan"]

Array = NDArray[np.float64]

_SHARE = 0.2  # share: of epsilon for the range
_NEAR = 2  # printed: cells on either side of the fullest one that refine the centre
_GAP = 0.2  # printed: share by which a cell within one sigma of the mean beats all others

_LI = LI_FEDERATED.at("equation (9)")

_THEORY = Theory(
    estimand="population mean of a normal response with known standard deviation sigma",
    guarantee=(
        "epsilon-DP for every data set: Laplace noise on the counts of public cells (L1 "
        "sensitivity 2 under replace-one, 1 under add-remove) and on the truncated sum (the width "
        "of the private range); delta is not needed."
    ),
    assumptions=(
        Assumption("The response is normal, rows are independent, and sigma is at least its sd"),
        Assumption("The range is found", "n eps > 50 log(100/eta), eta = 0.05"),
    ),
    upper=rates(
        "sqrt(log(1/eta)/n), eta = 0.05",
        "log(1/eta) sqrt(log(n/eta))/(n eps), eta = 0.05",
        _LI,
    ),
    lower=MEAN_LOWER,
    citations=(
        KARWA_VADHAN.at("Algorithm 1, Theorem 4.1"),
        LI_FEDERATED.at("equations (8) and (9), Theorem 2"),
    ),
    corrections=(
        "Xmin and Xmax of equation (8) are the private range, not the smallest and largest "
        "observation, whose difference has no bounded sensitivity.",
        "Cells cover the declared bounds, so their number is finite and public: Laplace noise on "
        "every count gives pure epsilon-DP where the paper's stability threshold needs delta.",
        "A fifth of epsilon goes to the range and the rest to the mean, not half to each; the "
        "range reaches 1 + sqrt(2 log n) sigma from a centre that the same noisy counts refine.",
        "The printed noise 2 (Xmax - Xmin)/(n eps) is the exact one for eps/2: sensitivity "
        "(Xmax - Xmin)/n under replace-one neighbours.",
    ),
)


@dataclass(frozen=True)
class KarwaVadhan(CountingMethod[CoefficientEstimate]):
    """Noisy truncated mean with a private range (Karwa & Vadhan 2018, Algorithm 1; known sigma).

    1. *Range* (a fifth of epsilon): Laplace noise on the counts of public cells of width sigma
       over the declared bounds; the fullest noisy cell is found, and the centre is the mean of
       the cells within two of it, weighted by their noisy counts, where positive.
    2. *Mean*: the response truncated to centre +- sigma (1 + sqrt(2 log n)), with Laplace noise.

    This is the variant with finitely many cells, which is pure: no stability threshold. Beyond
    2^14 cells they are made wider, and so is the range, by their width instead of sigma.

    Notes
    -----
    *Guarantee.* `ResponseHistogram` has L1 sensitivity 2 per row under replace-one; the truncated
    sum, with squares and count at no extra cost, `ResponseMoments`, that of the width of a range
    which depends on the data only through step 1.

    *Range.* For a normal response and a cell width of sigma, the cell of the mean holds a share of
    at least .34 and any cell that begins one sigma or more from it at most .14. Unless noise moves
    counts by a tenth of n, the fullest cell begins within one sigma of the mean, and four
    neighbours on both sides of it bring the centre within sigma of the mean. Then the range holds
    mean +- t sigma, t = sqrt(2 log n), and truncation moves the mean by at most
    sigma E(|Z| - t)_+ <= sigma 2 phi(t)/t^2 < sigma 0.8/(n t^2) for standard normal Z: nothing
    beside the noise.

    *Covariance.* `location.release_mean`, from released squares: sigma only sets cells and range.
    """

    name: ClassVar[str] = "karwa-vadhan"
    model: ClassVar[str] = "mean"
    theory: ClassVar[Mapping[str, Theory]] = {"central": _THEORY}
    options: ClassVar[Mapping[str, str]] = {
        "sigma": "public standard deviation > 0 in the user's units (default: the declared scale)",
    }

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        facts = response_guess(design, privacy)
        sigma = _sigma(options.get("sigma"), design, facts)
        facts = replace(facts, sd=sigma)
        ask = Request("histogram", 0.0, "cells of the response, for its range", kind="laplace")
        public = {"sigma": sigma * design.standardization.y_scale}
        plan = counted_plan(self, design, privacy, n, two_stage(ask, _SHARE, privacy), public)
        middle = (facts.lower + facts.upper) / 2
        plan = predict(plan, design, facts, _range(facts, plan, middle))
        known = "Sigma is known and the response normal; the interval covers only where it is."
        return _with_feasibility(replace(plan, assumptions=(known, *plan.assumptions[1:])), facts)

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> CoefficientEstimate:
        """Ask for the histogram, find the range, ask for the moments of the truncated response."""
        sigma = float(plan.options["sigma"]) / design.standardization.y_scale
        facts = replace(response_guess(design, plan.privacy), sd=sigma)
        edges = _edges(facts)
        counts, _ = holder.ask(ResponseHistogram(edges[1:-1]), "histogram")
        return release_mean(holder, design, plan, _range(facts, plan, _centre(edges, counts)))


def _sigma(asked: object, design: Design, facts: ResponseGuess) -> float:
    """Public standard deviation in internal units."""
    if asked is not None:
        return need_positive("sigma", asked, math.nan) / design.standardization.y_scale
    if facts.declared:
        return facts.sd
    raise OptionError(
        "method='karwa-vadhan' needs a public standard deviation: declare it in the schema, "
        "Numeric(lower, upper, scale=...), or pass sigma=..., in the units of the response. "
        "method='clipped' needs none."
    )


def _edges(facts: ResponseGuess) -> Array:
    """Edges of public cells of width at most sigma, unless there would be too many."""
    cells = min(max(math.ceil(facts.width / facts.sd), 3), MOST_CELLS)
    edges: Array = np.linspace(facts.lower, facts.upper, cells + 1)
    return edges


def _centre(edges: Array, counts: Array) -> float:
    """Mean of the cells around the fullest one, weighted by noisy counts where positive."""
    fullest = int(np.argmax(counts))
    near = slice(max(fullest - _NEAR, 0), fullest + _NEAR + 1)
    middles = ((edges[:-1] + edges[1:]) / 2)[near]
    weights = np.maximum(counts[near], 0.0)
    total = float(weights.sum())
    return float(weights @ middles / total) if total > 0 else float(middles.mean())


def _range(facts: ResponseGuess, plan: Plan, centre: float) -> Clip:
    """The private range around a noisy centre, within the declared bounds."""
    edges = _edges(facts)
    slack = max(facts.sd, float(edges[1] - edges[0]))
    half = slack + facts.sd * math.sqrt(2 * math.log(max(plan.n, 2)))
    return Clip(max(facts.lower, centre - half), min(facts.upper, centre + half))


def _with_feasibility(plan: Plan, facts: ResponseGuess) -> Plan:
    """The plan with a warning where noise may hide the fullest cell."""
    edges = _edges(facts)
    scale = plan.noise(ResponseHistogram(edges[1:-1]), "histogram").scale
    # Laplace noise of all cells stays below scale log(cells / eta) with probability 1 - eta.
    enough = 2 * scale * math.log((edges.size - 1) / FAILURE) / _GAP
    if plan.n >= enough:
        return plan
    warning = (
        f"n={plan.n:,} is small for epsilon={plan.privacy.epsilon:g} and {edges.size - 1:,} cells: "
        "noise may hide the fullest one, and the interval then does not cover. About "
        f"n={round_up(enough):,} rows, or method='clipped', suffice."
    )
    return replace(plan, warnings=(*plan.warnings, warning))
