"""The default private mean: a private clipping interval, then a noisy clipped sum."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpstats.errors import OptionError, among, given
from dpstats.estimators.base import Request, need_delta
from dpstats.estimators.bounds import MEAN_LOWER, rates
from dpstats.estimators.central.counted import CountingMethod, counted_plan
from dpstats.estimators.central.descriptive import passes
from dpstats.estimators.central.descriptive.quantile import OWN as DISTRIBUTIONS
from dpstats.estimators.central.descriptive.window import mean_window, unseen
from dpstats.estimators.central.location import (
    MOST_CELLS,
    Clip,
    ResponseGuess,
    moments_request,
    predict,
    relative_noise,
    release_mean,
    response_guess,
    two_stage,
)
from dpstats.estimators.guesses import round_up
from dpstats.estimators.sources import FICHTENBERGER, KARWA_VADHAN, LI_FEDERATED, MCSHERRY
from dpstats.privacy import Privacy
from dpstats.protocol import CoefficientEstimate, Holder, Options, Plan
from dpstats.queries import Query, ResponseInterval
from dpstats.theory import Assumption, Citation, Rate, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["ClippedMean"]

# Chosen on simulated normal, exponential, log-normal, t(4), 0/1 and two-group data, epsilon 0.1 to
# 5; benchmarks/mean.py shows what they reach. All enter through public facts only.
_SHARE = 0.2  # share: of epsilon for the interval at n epsilon = 1000; more where noise is coarser
_CONFIDENCE = 3.0  # log: odds that one doubling of the width must be worth to be preferred
_CELLS = 4  # number: cells in the narrowest interval
_NORMAL_WIDTH = 6.0  # sds: that the narrowest interval spans under a declared scale
_DEEPEST = 7.0  # number: halvings of the declared range without a declared scale
_WIDEN = 1.1  # ratio: least widening of the chosen interval
_SPENDABLE = 0.25  # ses: noise that widening may cost
_TAIL = 0.15  # ratio: clipping bias allowed for, per resolution and width of the interval
_UNEVEN = 1.02  # numerical: the resolution is rounded, and falls with n in small steps
_SLOT = "distribution"
_COARSE = 0.035  # wording: share of the rows that one doubling is worth, above which the plan warns
_DISTRIBUTION = 0.1  # budget: the distribution function that a window is read of
_BLURRED = 0.06  # share: of the rows, noise of a count above which no window is looked for
_HIDDEN = 3.0  # wording: ratio of the rows of a group to that noise, below which it may be hidden
_REACH = 4.0  # wording: half the width of a window that the plan presumes, in standard deviations
_CLIPS = ("auto", "window", "private", "declared")

_OWN = Citation(
    "dpstats-clipped-mean",
    "The dpstats developers",
    "A clipped mean over a private interval",
    2026,
    "dpstats",
    "proof in the docstring of ClippedMean",
)

_THEORY = Theory(
    estimand="population mean of the response, held to its declared bounds",
    guarantee=(
        "epsilon-DP for every data set: one exponential mechanism on row counts (sensitivity 1) "
        "and one Laplace mechanism on the clipped sum with its squares and count (L1 sensitivity "
        "the width of the clipping interval, under both relations); delta is not needed."
    ),
    assumptions=(
        Assumption("Rows (units) are independent and the response is sub-Gaussian"),
        Assumption(
            "The interval is found, for a range of up to 1000 standard deviations",
            "n eps > 120 log(n)/log(1000)",
        ),
        Assumption(
            "No small group of rows lies far from the rest: a group below the resolution of the "
            "interval, a few times 1/eps rows, may be clipped away"
        ),
    ),
    upper=rates("1/sqrt(n)", "log(n)^(3/2)/(n eps)", _OWN),
    lower=MEAN_LOWER,
    citations=(
        _OWN,
        KARWA_VADHAN.at("Algorithm 1, Theorem 4.1"),
        LI_FEDERATED.at("equations (8) and (9), Theorem 2"),
        MCSHERRY.at("Theorem 6"),
    ),
    corrections=(
        "The range is one choice among intervals of all positions and widths, so no standard "
        "deviation need be known; a histogram of cells of known width finds a position only.",
        "Squares and row count ride on the noise of the sum, at no cost in sensitivity.",
        "Where n is large the interval is widened until its noise is a quarter of the sampling "
        "error: bias by clipping is worse than noise, which the standard error shows.",
    ),
)

_WINDOW = replace(
    _THEORY,
    guarantee=(
        "(epsilon, delta)-DP for every data set: Gaussian noise on a root of summation applied to "
        "counts of values in cells, and Laplace noise on the clipped sum with its squares and "
        "count (L1 sensitivity the width of the window, under both relations)."
    ),
    assumptions=(
        Assumption("Rows (units) are independent"),
        Assumption("Tails are not much heavier than log-normal with a shape of 1"),
        Assumption(
            "No group of rows that noise hides in the distribution function lies far from the rest"
        ),
    ),
    upper=(
        Rate("statistical", "1/sqrt(n)", _OWN),
        Rate("privacy", "sqrt(log(1/delta))/(n eps)", _OWN, conjectured=True),
    ),
    citations=(_OWN, DISTRIBUTIONS, FICHTENBERGER, LI_FEDERATED.at("Theorem 2")),
    corrections=(),
)


@dataclass(frozen=True)
class ClippedMean(CountingMethod[CoefficientEstimate]):
    """Mean of the response clipped to an interval that is itself chosen privately.

    1. *Interval* (about a fifth of epsilon). Candidates are intervals of width w, 2w, 4w, ... up to
       the declared range, a quarter of their width apart. The exponential mechanism chooses one by
       minus the rows outside, minus a public penalty for each doubling, large enough that too wide
       an interval is seldom chosen. The narrowest width is 6 declared scales; without a declared
       scale it is at most 2^7 times narrower than the range, and no narrower than the penalties
       for it allow for at this n and epsilon.
    2. *Widening*, from public facts: by a tenth, or until the noise is a quarter of the sampling
       error that is to be expected for an interval of this width.
    3. *Mean*: one Laplace release of sum, squares and count of the clipped rows.

    The first step is left out, and all of epsilon spent on the last, where bounds are tight as
    far as public facts tell: within 7 declared scales; 0 and 1 with no declared scale; or n epsilon
    too small to find an interval.

    Where delta is above 0 and no scale is declared, the range may be far too wide: the first two
    steps are then one distribution function, whose noise hardly depends on the range, and the
    window that it says (`descriptive.window.window_of`), unless noise would blur it by more than
    6 % of the rows. Where too few rows have another value than the others for a tail to be seen,
    the window is the declared range. ``clip="window"``, ``"private"`` or ``"declared"`` decides
    otherwise.

    Notes
    -----
    *Guarantee.* Step 1 is an exponential mechanism with utilities of sensitivity 1 per row
    (`ResponseInterval`), step 3 a Laplace mechanism (`ResponseMoments`, `UnitMoments`) whose
    interval depends on the data only through step 1, or through Gaussian noise on
    `ColumnPrefixes`; adaptive composition gives the cost in the plan. Everything else is
    post-processing. The sum needs no delta: for one number Laplace noise has sqrt(2)/epsilon per
    unit of sensitivity, Gaussian noise 4.2 at epsilon 1, delta 1e-6.

    *Rate.* Let the response be sub-Gaussian with standard deviation s, K candidates, and J an
    interval of width O(s sqrt(log n)) with all rows (up to alignment with the candidates). The
    exponential mechanism loses at most k = (2/eps_1) log(K/eta) rows of utility against J, with
    probability 1 - eta; so at most k + O(1/eps_1) rows are outside the chosen interval, it is at
    most O(log(K/eta)) doublings of rare events wider, and as it holds rows, each row outside is
    moved by at most the range of the data, O(s sqrt(log n)). Bias and noise together are
    O(s log(K n) sqrt(log n) / (n eps)).

    *Covariance.* `location.release_mean`, plus the square of an allowance for clipping: the rows
    that one doubling is worth, times 15 % of the width of the chosen interval, over n; less
    where the interval was widened, or the mean lies in its middle (tails that are alike cancel).
    One-sided tails that are much heavier than exponential may exceed it.
    """

    name: ClassVar[str] = "clipped"
    model: ClassVar[str] = "mean"
    theory: ClassVar[Mapping[str, Theory]] = {
        "central": replace(_THEORY, variants={("clip=window",): _WINDOW})
    }
    options: ClassVar[Mapping[str, str]] = {
        "clip": "'window' of a distribution function, 'private' interval, the 'declared' bounds, "
        "or 'auto' from public facts (default)",
    }

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        asked = options.get("clip", "auto")
        if not among(asked, _CLIPS):
            raise OptionError(f"clip={given(asked)}: allowed are {', '.join(map(repr, _CLIPS))}.")
        facts = response_guess(design, privacy)
        wide = privacy.delta > 0 and not (facts.declared or facts.natural)
        if asked == "window" or (asked == "auto" and wide):
            need_delta(f"{self.name}, clip='window'", privacy)
            plan = self._by_window(design, privacy, n, facts)
            if asked == "window" or _blur(plan) <= _BLURRED:
                return plan
        share = _share(n, privacy.epsilon / facts.rows)
        depth = _depth(facts, n, _resolution(share * privacy.epsilon, facts.rows), asked)
        interval = Request("interval", 0.0, "interval that holds most rows", kind="selection")
        asks = two_stage(interval, share, privacy) if depth > 0 else (moments_request(),)
        plan = counted_plan(
            self,
            design,
            privacy,
            n,
            asks,
            {"clip": "private" if depth > 0 else "declared", "depth": depth},
        )
        if depth == 0:
            return predict(plan, design, facts, Clip(facts.lower, facts.upper))
        plan = predict(plan, design, facts, _expected(plan, facts))
        return _with_resolution(plan, facts)

    def _by_window(self, design: Design, privacy: Privacy, n: int, facts: ResponseGuess) -> Plan:
        """The plan of a mean in a window, in standard deviations where none is declared."""
        purpose = "distribution function of the response"
        asks = (Request(_SLOT, _DISTRIBUTION, purpose), moments_request(1 - _DISTRIBUTION))
        plan = counted_plan(self, design, privacy, n, asks, {"clip": "window"})
        noise, sampling = _REACH * relative_noise(plan, facts.rows) / n, facts.rows / n
        assert design.endog is not None
        unit = "" if facts.declared else f"sd({design.endog.name})"
        error = math.sqrt(noise**2 + sampling) * (1 if unit else design.standardization.y_scale)
        hidden = round_up(_HIDDEN * _blur(plan) * n)
        statements = (
            "For the prediction the response is normal.",
            f"Fewer than about {hidden:,} rows that lie far from all others may be clipped away, "
            "clip='declared' keeps them.",
        )
        plan = replace(
            plan,
            predicted_se=(error,),
            predicted_range=((error, error),),
            predicted_units=(unit,),
            privacy_share=noise**2 / (noise**2 + sampling),
            assumptions=(*plan.assumptions, *statements),
        )
        return _coarse(plan, _blur(plan), 1.0) if _blur(plan) > _COARSE else plan

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> CoefficientEstimate:
        """Ask for the interval or the window that was planned, and for the moments in it."""
        facts = response_guess(design, plan.privacy)
        clip = Clip(facts.lower, facts.upper)
        remarks: tuple[str, ...] = ()
        if plan.options["clip"] == "window":
            clip, remarks = _window(holder, design, plan, facts)
        if plan.options["clip"] == "private":
            (lower, upper), _ = holder.ask(_candidates(plan, facts), "interval")
            clip = _widened(plan, facts, float(lower), float(upper))
        return replace(release_mean(holder, design, plan, clip), remarks=remarks)


def _blur(plan: Plan) -> float:
    """Noise that is expected in the distribution function, to the rows."""
    return passes.expected_noise(plan, _SLOT, 1, 512) / plan.n


def _window(
    holder: Holder[Query], design: Design, plan: Plan, facts: ResponseGuess
) -> tuple[Clip, tuple[str, ...]]:
    """Where noise and the effect of holding values to it are least, and what it may leave out."""
    response = np.array([len(design.names)])
    (found,) = passes.ask_distributions(holder, design, [_SLOT], response)
    window = mean_window(found, relative_noise(plan, facts.rows))
    if not window.tails:
        return Clip(facts.lower, facts.upper), ()
    assert design.endog is not None
    remarks = unseen(design.endog.name, found, window.lower, window.upper)
    centre, scale = design.standardization.y_center, design.standardization.y_scale
    lower, upper = ((end - centre) / scale for end in (window.lower, window.upper))
    return Clip(lower, upper, bias=window.mean / scale), remarks


def _share(n: int, epsilon: float) -> float:
    """Share of epsilon for the interval; more where noise is coarse against rows or spread."""
    coarse = max(1000 / (n * epsilon), 30 / (math.sqrt(n) * epsilon))
    return float(np.clip(_SHARE * coarse ** (1 / 3), 0.15, 0.4))


def _resolution(epsilon: float, rows: int) -> float:
    """Rows that one doubling of the width must gain: log odds of `_CONFIDENCE`."""
    return _CONFIDENCE * 2 * rows / epsilon


def _depth(facts: ResponseGuess, n: int, resolution: float, asked: str) -> float:
    """Halvings from the declared range to the narrowest interval; 0 for the declared range."""
    if asked == "declared" or (asked == "auto" and facts.natural):
        return 0.0
    if facts.declared:
        wanted, allowed = math.log2(facts.width / _NORMAL_WIDTH), 0.5 * n / resolution
    else:
        # The penalty for the whole range stays below 6 % of the rows, and where that leaves fewer
        # than 4 halvings, below 30 %: a group of rows larger than that is never clipped away.
        wanted = _DEEPEST
        allowed = max(0.06 * n / resolution, min(4.0, 0.3 * n / resolution))
    depth = min(wanted, allowed, math.log2(MOST_CELLS / _CELLS))
    least = 0.3 if asked == "auto" else 0.0
    if depth <= least and asked == "private":
        return 1.0
    return depth if depth > least else 0.0


def _candidates(plan: Plan, facts: ResponseGuess) -> ResponseInterval:
    """Intervals of doubling widths over the declared range, penalised per doubling."""
    cells = math.ceil(_CELLS * 2 ** float(plan.options["depth"]))
    first, last, doublings = [np.array([0])], [np.array([cells])], [0.0]
    widths = _CELLS * 2 ** np.arange(math.ceil(math.log2(cells / _CELLS)) + 1)
    for width in widths[widths < cells]:
        start = np.arange(0, cells - width + 1, width // _CELLS)
        start = np.union1d(start, [cells - width])
        first.append(start)
        last.append(start + width)
        doublings.append(math.log2(width / _CELLS))
    doublings[0] = math.log2(cells / _CELLS)
    repeats = [starts.size for starts in first]
    resolution = _resolution(_event_epsilon(plan), facts.rows)
    return ResponseInterval(
        edges=np.linspace(facts.lower, facts.upper, cells + 1),
        first=np.concatenate(first).astype(np.int64),
        last=np.concatenate(last).astype(np.int64),
        penalty=resolution * np.repeat(doublings, repeats),
    )


def _event_epsilon(plan: Plan) -> float:
    event = plan.mechanism("interval").event
    return float(getattr(event, "epsilon"))  # noqa: B009 - a Selection, as planned


def _widened(plan: Plan, facts: ResponseGuess, lower: float, upper: float) -> Clip:
    """The chosen interval, widened as far as its noise is cheap; within the declared range.

    A width of 8 standard deviations is presumed: the noise g w/2 relative_noise / n of the interval
    widened by g is then `_SPENDABLE` times the sampling error (w/8) / sqrt(n).
    """
    n, width = plan.n, upper - lower
    cheap = _SPENDABLE * math.sqrt(n) / (4 * relative_noise(plan, facts.rows))
    factor = max(_WIDEN, cheap)
    centre, half = (lower + upper) / 2, factor * width / 2
    clip = Clip(max(facts.lower, centre - half), min(facts.upper, centre + half))
    if (clip.lower, clip.upper) == (facts.lower, facts.upper):
        return clip
    outside = _resolution(_event_epsilon(plan), facts.rows) / n
    return replace(clip, bias=_TAIL * outside * width * (_WIDEN / factor) ** 2)


def _expected(plan: Plan, facts: ResponseGuess) -> Clip:
    """The interval to be expected for a normal response with the guessed standard deviation."""
    narrowest = facts.width / 2 ** float(plan.options["depth"])
    doublings = max(0, math.ceil(math.log2(5.5 * facts.sd / narrowest)))
    half = min(facts.width, narrowest * 2**doublings) / 2
    centre = (facts.lower + facts.upper) / 2
    return _widened(plan, facts, centre - half, centre + half)


def _with_resolution(plan: Plan, facts: ResponseGuess) -> Plan:
    """The plan saying how small a group of rows may be and still count."""
    resolution = _resolution(_event_epsilon(plan), facts.rows)
    group = round_up(resolution * float(plan.options["depth"]))
    statement = (
        f"At most about {group:,} rows lie far from all others; a smaller group may be clipped "
        "away, clip='declared' keeps it."
    )
    plan = replace(plan, assumptions=(*plan.assumptions, statement))
    if facts.declared or resolution <= _COARSE * plan.n:
        return plan
    # The share of epsilon falls as n^(-1/3), so the resolution grows as n^(1/3).
    return _coarse(plan, resolution / plan.n, 1.5)


def _coarse(plan: Plan, resolution: float, power: float) -> Plan:
    """The plan with a warning that the interval is coarse, and how many rows suffice."""
    enough = round_up(_UNEVEN * plan.n * (resolution / _COARSE) ** power)
    warning = (
        f"n={plan.n:,} is small for epsilon={plan.privacy.epsilon:g} and a range without a "
        "declared scale: the clipping interval is coarse, and the interval may not cover for "
        f"skewed data. About n={enough:,} rows, a public guess Numeric(..., scale=...) or "
        "clip='declared' suffice."
    )
    return replace(plan, warnings=(*plan.warnings, warning))
