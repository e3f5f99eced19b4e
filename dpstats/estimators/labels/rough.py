"""A first rough fit of numbers whose variance is that of their mean, from a curator's sums."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.labels.base import covariates_of, known_term
from dpstats.estimators.labels.rounds import RoundFacts
from dpstats.estimators.labels.sums import BalancedRows, label_norm
from dpstats.estimators.responses import Responses, slopes
from dpstats.families import GAUSSIAN
from dpstats.protocol import Answer, LabelHolder, Plan
from dpstats.queries.label_held import HeldSums
from dpstats.queries.labels import LabelSums
from dpstats.tall import LazyRows, Tall, cross

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["LEVEL", "PILOT", "RoughFit", "held_sums", "level_row", "rough_fit", "round_facts"]

Array = NDArray[np.float64]

LEVEL, PILOT = "level", "pilot"


class RoughFit(NamedTuple):
    """Coefficients, and their covariance by what was asked and a guess of their size."""

    params: Array
    cov: Array


def round_facts(plan: Plan, design: Design, how: Responses) -> RoundFacts:
    """Public facts that rounds of questions are made from."""
    rows = covariates_of(design)
    identity = design.family == GAUSSIAN
    return RoundFacts(
        x=rows.columns(np.arange(len(plan.names))),
        known=known_term(rows),
        law=design.family,
        interval=how.interval,
        sd=math.sqrt(how.residual_variance) if identity else how.sd,
        multipliers={m.slot: plan.noise_multiplier(m.slot) for m in plan.mechanisms},
        pure=plan.privacy.delta == 0,
        at=slopes(design),
    )


def level_row(rounds: RoundFacts) -> tuple[Tall, float]:
    """The row whose sum is the mean of responses times its norm, and the error of that mean."""
    n = len(rounds.x)
    each = 1 / math.sqrt(n)
    row = LazyRows((n, 1), lambda part: np.full((part.stop - part.start, 1), each))
    return row, rounds.noise(LEVEL, 2 * rounds.interval.half * each) / math.sqrt(n)


def rough_fit(holder: LabelHolder, rounds: RoundFacts) -> RoughFit:
    """From the mean of all responses, and whitened sums of responses held near that mean."""
    interval, (row, error) = rounds.interval, level_row(rounds)
    (total,), _ = holder.ask(LabelSums(interval, row, label_norm(rounds.pure)), LEVEL)
    level = float(total) / math.sqrt(len(row))
    level = min(max(level + interval.middle, interval.low), interval.high)
    if rounds.guess.counts or rounds.law.link == "log":
        level = max(level, error / 2, 1e-3 * interval.half)
    low, high, made = rounds.first(level, error)
    sums, _ = held_sums(holder, rounds, PILOT, low, high, made)
    return RoughFit(*rounds.posterior(made, sums, level))


def held_sums(
    holder: LabelHolder, rounds: RoundFacts, slot: str, low: Tall, high: Tall, made: BalancedRows
) -> Answer:
    """Noisy sums of responses that are held to intervals of their own."""
    query = HeldSums(rounds.interval, made.rows, low, high, label_norm(rounds.pure))
    answer = holder.ask(query, slot)
    return Answer(answer.value + cross(made.rows, query.middle), answer.noise)
