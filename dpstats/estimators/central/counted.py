"""Values that were moved or missing are counted by every method that fits a declared table."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

import numpy as np

from dpstats.accounting import gdp_mu
from dpstats.estimators.base import Method, Request, make_plan
from dpstats.estimators.guesses import max_rows, rows_known
from dpstats.privacy import Privacy
from dpstats.protocol import Estimate, Estimator, Holder, NoiseLaw, Options, Plan
from dpstats.queries import AstrayCounts, Query
from dpstats.queries.base import Norm

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["ASTRAY", "CountingMethod", "counted_plan"]

AnyEstimate = TypeVar("AnyEstimate", bound=Estimate)

ASTRAY = "astray"
_LEAST, _MOST = 0.004, 0.03  # budget: counting values outside of what is declared, least and most
_PURE_LEAST, _PURE_MOST = 0.01, 0.03  # budget: the same, of epsilon, where noise is Laplace noise
_APART = 30  # wording: inputs that are counted one by one
_MANY = 0.05  # wording: share of values astray that is said
_UNTOLD = 0.07  # wording: share of values astray, from which on it is said that noise hides it
_CHANCE = 0.003  # wording: chance that noise alone makes a fit say so of any column
_ROUGH = 0.01  # wording: error of such a share, from which it is said
_FEWER = 0.5  # wording: share of the rows that contribute, below which it is said
_OTHERS = "all other columns"
_NOTHING = "and their rows count as nothing"
_PURPOSE = "values that are outside of what is declared, or missing"


class CountingMethod(Method, Generic[AnyEstimate]):
    """A method of a curator; how many values lay outside of what is declared is asked first.

    A method adds `_plan`, which makes its plan by `counted_plan`, and `_fit`.

    Notes
    -----
    *Guarantee.* One more Gaussian (or Laplace) mechanism, on `AstrayCounts`, at the cost in the
    plan. Rows of a sparse matrix are not counted: their values by themselves are not read.
    """

    @property
    def effect_of_gaps(self) -> str:
        """What becomes of rows that miss a covariate, in words; without a response none counts."""
        return _NOTHING

    def fit(self, holder: Holder[Query], design: Design, plan: Plan) -> AnyEstimate:
        """Ask what was moved, and then what the estimate is made of."""
        moved, warned = _asked(holder, design, self.effect_of_gaps)
        estimate = self._fit(holder, design, plan)
        released = {**estimate.released, **moved}
        few = _few(estimate.nobs, plan) if rows_known(design, plan.privacy) else ()
        remarks = (*few, *warned, *estimate.remarks)
        return replace(estimate, released=released, remarks=remarks)

    @abstractmethod
    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> AnyEstimate:
        """Ask the rest of what was planned, and nothing else."""


def counted_plan(
    method: Estimator,
    design: Design,
    privacy: Privacy,
    n: int,
    asks: Sequence[Request],
    options: Options,
) -> Plan:
    """The plan of a method that will ask `asks`, after the question what was moved."""
    if not design.by_value:  # where values by themselves are not read
        return make_plan(method, design, privacy, n, asks, options)
    total = sum(ask.weight for ask in asks)
    if any(ask.kind == "gaussian" for ask in asks):
        share = float(np.clip(_needed(design, privacy, n, "gaussian"), _LEAST, _MOST))
        first = Request(ASTRAY, total * share / (1 - share), _PURPOSE)
    else:  # delta may be 0
        share = float(np.clip(_needed(design, privacy, n, "laplace"), _PURE_LEAST, _PURE_MOST))
        weight = total * (share if privacy.delta == 0 else share**2)
        first = Request(ASTRAY, weight, _PURPOSE, kind="laplace")
    plan = make_plan(method, design, privacy, n, [first, *asks], options)
    return replace(plan, assumptions=(*plan.assumptions, *_untold(plan, design)))


def _needed(
    design: Design, privacy: Privacy, n: int, kind: Literal["gaussian", "laplace"]
) -> float:
    """Share of the budget (of epsilon for Laplace noise) at which what is to be said is told."""
    _, sizes = _groups(design)
    query = AstrayCounts(sizes, "l1" if kind == "laplace" else "l2")
    law = NoiseLaw(kind, query.sensitivity(privacy.neighbors, max_rows(design)))
    hides = law.upper(_CHANCE / (2 * len(sizes))) / (_MANY * max(n, 1))  # at a unit of noise
    if kind == "laplace":
        return hides / privacy.epsilon
    return float((hides / gdp_mu(privacy.epsilon, privacy.delta)) ** 2)


def _untold(plan: Plan, design: Design) -> tuple[str, ...]:
    """That noise hides shares of values astray which a fit is to speak of."""
    _, sizes = _groups(design)
    halves = 2 if plan.mechanism(ASTRAY).branch else 1
    norm: Norm = "l1" if plan.mechanism(ASTRAY).event.kind == "laplace" else "l2"
    noise = plan.noise(AstrayCounts(sizes, norm), ASTRAY)
    hidden = noise.upper(_CHANCE / (2 * len(sizes))) * halves / max(plan.n, 1)
    if hidden < _UNTOLD:
        return ()
    less = f"less than {hidden:.0%} of a column" if hidden < 1 else "any number"
    return (f"Hardly a value is outside of its declared range or missing: noise hides {less}.",)


def _asked(
    holder: Holder[Query], design: Design, effect_of_gaps: str
) -> tuple[dict[str, dict[str, float]], tuple[str, ...]]:
    """Noisy shares of values outside of what is declared, and of missing ones; and remarks."""
    slots = {m.slot: m for m in holder.plan.mechanisms}
    if ASTRAY not in slots:
        return {}, ()
    names, sizes = _groups(design)
    event, halves = slots[ASTRAY].event, 2 if slots[ASTRAY].branch else 1
    query = AstrayCounts(sizes, "l1" if event.kind == "laplace" else "l2")
    answer, n = holder.ask(query, ASTRAY), holder.plan.n / halves
    shares = np.clip(answer.value / n, 0.0, 1.0)
    clear = max(_MANY, answer.noise.upper(_CHANCE / shares.size) / n)
    covariates = {*design.predictors, _OTHERS}
    gaps = [effect_of_gaps if name in covariates else _NOTHING for name in names]
    moved = ["and were moved to its ends: declare a wider one"] * len(names)
    words = (("outside the declared range", moved), ("missing or of no declared level", gaps))
    near, known = answer.noise.upper(0.025) / n, rows_known(design, holder.plan.privacy)
    rough = f" (a share that is known to within {near:.0%})" if near >= _ROUGH else ""

    def said(share: float) -> str:
        """How many of the values; of a private number of rows the share is not known."""
        return f"{share:.0%}" if known else f"{share * n:,.0f}"

    rough *= known
    named = [name if name == _OTHERS else repr(name) for name in names]
    remarks = [
        f"About {said(share)} of the values of {name} were {what}, {effect}{rough}."
        for row, (what, effects) in zip(shares, words, strict=True)
        for name, share, effect in zip(named, row, effects, strict=True)
        if share > clear
    ]
    keys = ("share outside", "share missing")
    released = {
        key: {name: float(share) for name, share in zip(names, row, strict=True)}
        for key, row in zip(keys, shares, strict=True)
    }
    return released, tuple(remarks)


def _few(rows: float, plan: Plan) -> tuple[str, ...]:
    """That far fewer rows contribute than errors were planned for."""
    whole = plan.n / (2 if any(m.branch for m in plan.mechanisms) else 1)
    if rows >= _FEWER * whole:
        return ()
    share = max(rows / whole, 0.001)
    return (
        f"Only about {max(rows, 1):,.0f} of {whole:,.0f} rows contribute; the others miss a value. "
        "Errors were planned for all, and with so few rows intervals may not hold: "
        f"plan(privacy, complete={share:.2g}) says what can be expected of them.",
    )


def _groups(design: Design) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Names and sizes of what is counted: of many inputs, the first and the others."""
    inputs = design.inputs
    if len(inputs) <= _APART:
        return inputs, (1,) * len(inputs)
    return (inputs[0], _OTHERS), (1, len(inputs) - 1)
