"""Sparse regression on public covariates where one curator holds the responses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting import Selection, Share, calibrate, gdp_mu
from dpstats.errors import OptionError, among, given
from dpstats.estimators.base import Request
from dpstats.estimators.bounds import LINEAR, SMALL_DELTA, SPARSE_LOWER, rates
from dpstats.estimators.guesses import round_up
from dpstats.estimators.labels.base import LabelMethod, covariates_of, label_plan
from dpstats.estimators.labels.curator import LabelCurator
from dpstats.estimators.labels.pursuit import FAR, SCORE_CLIP, Pursuit
from dpstats.estimators.labels.scale import ASTRAY, PURPOSES, counted, counting
from dpstats.estimators.numerics.lasso import sizes_of, universal
from dpstats.estimators.responses import CHANNEL_OPTIONS, Responses, responses
from dpstats.estimators.selection import (
    CONDITIONAL,
    INFERENCE,
    USUAL,
    error_with,
    per_round,
    restricted,
)
from dpstats.estimators.sources import CAI, DURFEE, TROPP
from dpstats.privacy import LabelOnly
from dpstats.protocol import Answer, CoefficientEstimate, LabelHolder, Mechanism, Options, Plan
from dpstats.theory import Assumption, Theory

if TYPE_CHECKING:
    from dpstats.design import Design
    from dpstats.queries.labels import LabelQuery

__all__ = ["LabelCuratorOMP"]

Array = NDArray[np.float64]
Positions = NDArray[np.intp]

_FIRST_SCALE = 0.03  # budget: size of the residuals in the first round
_SCALE = 0.01  # budget: a start for the intercept, and the size of the residuals in later rounds
_CHOICES = 0.45  # budget: all choices of columns; sums take the rest
_GROWTH = 1.6  # ratio: of the budgets of sums from round to round
_ROUNDS = 5  # number: rounds that choose columns
_MORE_STEPS = 1  # number: steps on the chosen columns when all are chosen
_SPARE = 1.0  # ratio: columns chosen beyond those asked for, to those, as far as noise allows it
_AFFORDABLE = 6.0  # ratio: noise on a choice over log(d) / (n mu), for columns worth finding
_MOST = 100  # numerical: columns chosen at most where no number is asked for
_WEAK = 1.2  # wording: noise over a typical score, from which on the plan warns
_FINE = 0.9  # wording: the same for a plan that is offered instead
_TYPICAL_ENTRY = 0.8  # printed: E|x| of a standard normal column, left of a slope by clipping
_UNCLIPPED = 0.68  # printed: likewise of residuals clipped at their deviation
_SLOT = "half 2: {}"

_ELSEWHERE = CAI.at("Theorem 4.4, for hard thresholding")

_THEORY = Theory(
    estimand=(
        "coefficients of a model in which at most s columns matter; where more do, those of the "
        "best fit on the columns that were selected"
    ),
    guarantee=(
        "Label differential privacy for every data set and any public covariates: one response may "
        "be replaced by another. Choices of k columns are exponential mechanisms on scores of "
        "L-infinity sensitivity 2 C (residuals clipped at C, entries of columns at 1); sums over "
        "whitened rows b of residuals clipped at C have L2 (Laplace: L1) sensitivity "
        "2 C max ||b||, squares C^2, and counts of responses outside of what is declared sqrt(2) "
        "(L1: 2). The accountant composes both kinds."
    ),
    assumptions=(
        LINEAR,
        Assumption("At most s columns matter, and none is nearly a combination of others"),
        Assumption("Errors are symmetric, or small beside the interval of the responses"),
        Assumption("Noise lets columns be found", "n eps > s log(d) sqrt(log(1/delta))"),
        SMALL_DELTA,
    ),
    upper=rates(
        "sqrt(s log(d)/n)", "s log(d) sqrt(log(1/delta))/(n eps)", _ELSEWHERE, conjectured=True
    ),
    lower=SPARSE_LOWER[:1],
    citations=(
        TROPP.at("Algorithm 3, without privacy"),
        DURFEE.at("Lemma 4.2"),
        CAI.at("Theorems 4.3 and 4.4"),
    ),
)


@dataclass(frozen=True)
class LabelCuratorOMP(LabelMethod):
    """Matching pursuit by a curator of responses: columns and rows are public, residuals are not.

    1. Release a start for the intercept and the size of the residuals.
    2. In each of a few rounds: choose the next few columns by noisy scores ``|sum a_j psi(r)|``,
       with psi the residual clipped at its standard deviation and a_j the part of column j that
       chosen columns leave, clipped at one deviation; release whitened sums of clipped residuals
       over all columns so far, and take the Newton step that they give; release the size of the
       residuals again.
    3. Take a last step with the largest budget, drop what noise explains, and refit what stays.

    Fitted values are made of noisy answers and public rows, so that they are public, and only the
    *residual* has to be hidden: noise shrinks with it from round to round, down to the errors of
    the model. Rows being public, scores, projections and standard errors of any columns are exact
    but for the response.

    Notes
    -----
    *Guarantee.* Let one response be replaced. Fitted values, columns and clips C depend on the data
    through earlier answers only, so the clipped residual of its row moves by at most 2 C, and the
    others stay. Each score has entries of size at most 1: it moves by at most 2 C, and so does its
    absolute value; choosing the k largest after Gumbel noise has the law of k exponential
    mechanisms, each of bounded range (Durfee & Rogers 2019, Lemma 4.2). Whitened sums move by at
    most ``2 C max ||b_i||`` in L2 (Laplace noise, where delta is 0: L1) and squared residuals,
    which are between 0 and C^2, by C^2. The holder computes the norms from the whole numbers that
    it adds. The privacy-loss accountant composes all of them adaptively; the plan states the
    result.

    *Halves.* With ``inference="split"`` half of the rows selects, and `label-curator` fits the
    selected columns on the other half: one response is in one half, so each half may spend the
    whole budget. Intervals are conditional on the selection.

    *Limits.* Clipped residuals give a Huber fit: under skewed errors the intercept is drawn towards
    their bulk. Where columns are strongly correlated and the budget is small, neighbours of the
    right columns are chosen.
    """

    model: str = "ols"
    name: ClassVar[str] = "label-curator-omp"
    curator: ClassVar[bool] = True
    sparse: ClassVar[bool] = True
    theory: ClassVar[Mapping[str, Theory]] = {"label-only": _THEORY}
    options: ClassVar[Mapping[str, str]] = {
        "sparsity": "most columns to select, besides the intercept; several: at most the largest, "
        "and the smallest that holds all that stand out; by default what stands out",
        "inference": "'none' (default), or 'split': half of the rows selects columns, the other "
        "half estimates their coefficients with valid standard errors",
        "clip": CHANNEL_OPTIONS["clip"],
    }

    def _label_plan(self, design: Design, privacy: LabelOnly, n: int, options: Options) -> Plan:
        """Mechanisms, cost and warnings from public facts only."""
        asked, inference = options.get("sparsity"), options.get("inference", "none")
        if not among(inference, ("none", "split")):
            raise OptionError(f"inference={given(inference)}: allowed are 'none' and 'split'.")
        split, n = inference == "split", len(covariates_of(design))
        how = responses(design, privacy, options)
        picks = _picks(design, privacy, n // 2 if split else n, sizes_of(asked))
        aside = 0.0 if split else counting(privacy, n)  # the second half counts its own
        mechanisms = _mechanisms(_asks(design, picks, aside), privacy, int(split))
        if split:
            mechanisms += _second_half(design, privacy, n, options)
        kept = {
            "sparsity": asked,
            "inference": inference,
            "clip": options.get("clip"),
            "picks": picks,
        }
        plan = label_plan(self, design, privacy, how, mechanisms, kept)
        return _predicted(plan, how, sizes_of(asked))

    def fit(self, holder: LabelHolder, design: Design, plan: Plan) -> CoefficientEstimate:
        """Choose and fit in rounds, drop what noise explains, and fit the rest."""
        split = plan.options["inference"] == "split"
        moved, warned = ({}, ()) if split else counted(holder, design)
        rows, how = covariates_of(design), Responses.of(plan, design)
        picks = tuple(plan.options["picks"])
        asked = rows.part(holder.half(1)) if split else rows
        pursuit = Pursuit(holder, plan, asked, how, design.standardization.intercept)
        pursuit.run(picks, len(picks) + _MORE_STEPS)
        found = pursuit.kept(sizes_of(plan.options["sparsity"]), clear=not split)
        if split:
            return _on_second_half(holder, design, plan, found.columns)
        params = np.zeros(len(plan.names))
        params[found.columns] = found.params
        nothing = np.full(2 * (found.columns.size,), np.nan)
        return CoefficientEstimate(
            params=params,
            cov=nothing,
            cov_privacy=nothing.copy(),
            nobs=float(len(rows)),
            released={
                **how.options(),
                **moved,
                "residual sd": pursuit.sd,
                "response sd": pursuit.spread,
            },
            support=tuple(int(j) for j in found.columns),
            inference=INFERENCE,
            remarks=(*warned, *(_NEARLY_EQUAL if pursuit.equal else ())),
        )


_NEARLY_EQUAL = (
    "Most responses are nearly equal. What the others add is taken up to "
    f"{FAR:g} standard deviations of all residuals, at the price of noise: columns that matter may "
    "be missed. Whether a response differs from most is for a logit of a 0/1.",
)


# -- what is asked -----------------------------------------------------------------------------


def _picks(
    design: Design, privacy: LabelOnly, n: int, sizes: tuple[int, ...] | None
) -> tuple[int, ...]:
    """Columns chosen in each round: somewhat more than asked for, more where the budget allows.

    Raises
    ------
    OptionError
        If there is no column to select, or there are too few rows for two coefficients.
    """
    free = len(design.names) - (design.standardization.intercept is not None)
    if free == 0:
        raise OptionError("There is no column to select: the design has an intercept only.")
    if n < 8:
        raise OptionError(f"{n} rows are too few to select columns by: at least 8 are needed.")
    unit = n / (_AFFORDABLE * math.log(len(design.names) + 1.0))
    # K choices cost noise sqrt(K) / mu where delta > 0, and K / epsilon where it is 0.
    pure = (unit * privacy.epsilon) ** (2 / 3)
    affordable = unit * gdp_mu(privacy.epsilon, privacy.delta) if privacy.delta > 0 else pure
    total = min(affordable, float(_MOST))
    if sizes is not None:
        total = max(sizes[-1], min(affordable, (1 + _SPARE) * sizes[-1]))
    total = int(np.clip(total, 1, min(free, n // 4)))
    return per_round(total, _ROUNDS, 1 / _ROUNDS)


def _asks(design: Design, picks: Sequence[int], aside: float) -> list[Request]:
    start = _SCALE * (design.standardization.intercept is not None)
    steps = len(picks) + _MORE_STEPS
    left = 1 - aside - start - _FIRST_SCALE - _SCALE * (steps - 1) - _CHOICES
    growth = _GROWTH ** np.arange(steps)
    asks = [Request(ASTRAY, aside, PURPOSES[ASTRAY])] if aside else []
    if start:
        asks.append(Request("start", start, "a start for the intercept"))
    for t in range(steps):
        share = _SCALE if t else _FIRST_SCALE
        asks.append(Request(f"scale {t + 1}", share, "size of the residuals, for the clip"))
        if t < len(picks):
            purpose = f"choice of {picks[t]} column{'s' * (picks[t] > 1)} by score"
            weight = _CHOICES * picks[t] / sum(picks)
            asks.append(Request(f"choice {t + 1}", weight, purpose, "selection", picks[t]))
        weight = float(left * growth[t] / growth.sum())
        asks.append(
            Request(f"sums {t + 1}", weight, "whitened sums of residuals, for coefficients")
        )
    return asks


def _mechanisms(asks: Sequence[Request], privacy: LabelOnly, branch: int) -> tuple[Mechanism, ...]:
    additive = "laplace" if privacy.delta == 0 else "gaussian"
    kinds = {a.slot: additive if a.kind == "gaussian" else a.kind for a in asks}
    shares = {a.slot: Share(kinds[a.slot], a.weight, a.k) for a in asks}
    events = calibrate(shares, privacy.epsilon, privacy.delta)
    return tuple(Mechanism(a.slot, events[a.slot], a.purpose, branch=branch) for a in asks)


# -- the second half ---------------------------------------------------------------------------


def _part(design: Design, columns: Positions, rows: Positions) -> Design:
    """The design of some of the rows, with some of its columns."""
    part = covariates_of(design).part(rows)
    made = restricted(design, [int(j) for j in columns])
    covariates = replace(part, x=part.columns(columns))
    return replace(made, covariates=covariates)  # type: ignore[call-arg]  # a PublicDesign


def _second_half(
    design: Design, privacy: LabelOnly, n: int, options: Options
) -> tuple[Mechanism, ...]:
    """What `label-curator` asks on the second half; the same whatever is selected or dealt."""
    part = _part(design, _first(design), np.arange(n // 2, n))
    plan = LabelCurator().plan(part, privacy, n, **_clip(options))
    return tuple(replace(m, slot=_SLOT.format(m.slot), branch=2) for m in plan.mechanisms)


def _on_second_half(
    holder: LabelHolder, design: Design, plan: Plan, columns: Positions
) -> CoefficientEstimate:
    """`label-curator` on the selected columns."""
    none = columns.size == 0
    columns = _first(design) if none else columns
    part = _part(design, columns, holder.half(2))
    own = LabelCurator().plan(part, plan.privacy, len(covariates_of(part)), **_clip(plan.options))
    found = LabelCurator().fit(_LaterSlots(holder, own), part, own)
    return found.as_sparse(columns.tolist(), len(plan.names), CONDITIONAL)


def _first(design: Design) -> Positions:
    """The intercept, or else the first column."""
    intercept = design.standardization.intercept
    return np.array([0 if intercept is None else intercept], dtype=np.intp)


def _clip(options: Options) -> dict[str, object]:
    return {} if options.get("clip") is None else {"clip": options["clip"]}


@dataclass(frozen=True)
class _LaterSlots:
    """The holder, asked in the slots of the second half."""

    holder: LabelHolder
    plan: Plan

    def ask(self, query: LabelQuery, slot: str, part: int = 0) -> Answer:
        """The noisy answer and its law."""
        return self.holder.ask(query, _SLOT.format(slot), part)

    def half(self, branch: int) -> Positions:
        """Positions of the rows of a half."""
        return self.holder.half(branch)

    def sending(self, counters: int) -> NDArray[np.intp]:
        """Devices that send; there are none."""
        return self.holder.sending(counters)


# -- what is expected --------------------------------------------------------------------------


def _predicted(plan: Plan, how: Responses, sizes: tuple[int, ...] | None) -> Plan:
    """What can be found if s coefficients are alike, and a warning if little will be."""
    s = sizes[-1] if sizes else min(USUAL, sum(plan.options["picks"]))
    n = plan.n // 2 if plan.options["inference"] == "split" else plan.n
    sd, d = math.sqrt(how.residual_variance), len(plan.names)
    typical = how.coefficients / math.sqrt(s)
    choice = plan.mechanism(f"choice {len(plan.options['picks'])}").event
    assert isinstance(choice, Selection)
    noise = 2.0 / choice.epsilon * 2 * SCORE_CLIP * sd * math.log(d + 1.0)
    private = noise / (_TYPICAL_ENTRY * _UNCLIPPED * n)
    sampling = universal(sd, d, n)
    found = (
        f"Of {s} columns that matter alike, most are found if a coefficient is above "
        f"{(private + sampling) / how.sd:.2g} standard deviations of the response; a typical one "
        f"is {typical / how.sd:.2g}."
    )
    made = replace(
        plan,
        predicted_error=error_with(sd / math.sqrt(n) / typical, (private + sampling) / typical),
        assumptions=(*plan.assumptions, found),
    )
    if private + sampling <= _WEAK * typical:
        return made
    # Noise falls with n and epsilon, sampling errors with the root of n.
    aim = _FINE * typical
    root = (sampling + math.sqrt(sampling**2 + 4 * aim * private)) / (2 * aim)
    other = ""
    if sampling < aim:
        other = f", or epsilon={private / (aim - sampling) * plan.privacy.epsilon:.2g} at this n,"
    text = (
        f"{d:,} columns are many for n={plan.n:,} and epsilon={plan.privacy.epsilon:g}: columns "
        f"that matter will be missed. About n={round_up(root**2 * plan.n):,} rows{other} suffice; "
        "or fewer candidates, or a smaller sparsity."
    )
    return replace(made, warnings=(*made.warnings, text))
