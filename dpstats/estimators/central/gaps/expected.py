"""What a fit of completed rows can do, and is expected to find, from public facts alone."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dpstats.errors import FormulaError
from dpstats.estimators.central.newton.expectation import likelihood_variances, predicted
from dpstats.estimators.central.newton.typical import Case
from dpstats.estimators.central.newton.typical import expect_typical as ranged
from dpstats.estimators.guesses import enough
from dpstats.estimators.numerics.huber import score_variance, unclipped
from dpstats.protocol import Plan
from dpstats.queries import Geometry, Gram, Score

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["check_completable", "expect_augmented", "expect_completed"]

_MOST_COLUMNS = 30  # numerical: beyond, released numbers are too many to be fitted together
_BLUR = 0.15  # wording: noise on a second moment, in variances, from which the plan warns


def check_completable(design: Design, normal: bool) -> None:
    """Refuse a design whose rows cannot be completed, or, where they are normal, by one law.

    Raises
    ------
    FormulaError
        If rows are sparse or of arrays, there is no intercept, a column is made of levels or goes
        missing with another, there is no covariate, or there are too many.
    """
    instead = "missing='complete' takes any formula."
    if not design.by_value or design.schema is None or design.standardization.intercept != 0:
        raise FormulaError(
            f"missing='em' completes the rows of a formula with an intercept; {instead}"
        )
    if normal and design.factors:
        raise FormulaError(
            f"missing='em' completes numeric columns, and {', '.join(map(repr, design.factors))} "
            f"{'has' if len(design.factors) == 1 else 'have'} levels: their dummies miss "
            f"jointly, and no average of levels is one. {instead}"
        )
    count = len(design.names) - 1
    if not 1 <= count <= _MOST_COLUMNS:
        raise FormulaError(
            f"missing='em' takes 1 to {_MOST_COLUMNS} covariates, and the formula has {count}; "
            f"{instead}"
        )
    if normal and design.joint:
        raise FormulaError(
            f"missing='em' completes columns one by one, and {', '.join(map(repr, design.joint))} "
            f"miss jointly with others: powers, splines and products of a column that is missing "
            f"are not what its average says. Write additive terms such as 'y ~ x + z'; {instead}"
        )


def expect_completed(
    plan: Plan, design: Design, complete: float, radius: float, clip: float
) -> Plan:
    """The plan with expected errors and warnings.

    Parameters
    ----------
    complete : float
        Public guess of the share of complete rows: each covariate is taken to be missing alike.
    radius, clip : float
        Of scores, in standard deviations.
    """
    d = len(plan.names)
    seen = complete ** (1 / (d - 1))
    score = Score(Geometry(radius * math.sqrt(d)), np.zeros(d), clip)
    slots = [m.slot for m in plan.mechanisms if m.slot.startswith("score ")]
    noise = sum(plan.noise(score, slot).sd ** -2 for slot in slots) ** -0.5
    # Completed columns vary less by what is missing, and errors vary by that more.
    kept = float(unclipped(clip)) * seen
    noisy = noise**2 / plan.n / kept**2
    sampled = float(score_variance(clip, 0.0)) * (1 + (1 - seen)) / seen

    def variances(case: Case) -> tuple[float, float]:
        unit = case.spread**2
        return unit * noisy, unit * sampled

    blur = plan.noise(Gram(Geometry(math.sqrt(d))), "observed gram").sd / math.sqrt(2) / plan.n / seen**2
    warnings: tuple[str, ...] = ()
    if blur > _BLUR:
        warnings = (
            f"At n={plan.n:,} and epsilon={plan.privacy.epsilon:g} noise may hide the second "
            "moments by which rows are completed; there is then no interval. "
            f"{enough(plan, blur / _BLUR)}",
        )
    statement = (
        "Covariates are missing completely at random, each in about "
        f"{1 - seen:.0%} of rows (complete={complete:g}); intervals are for normal rows, which a "
        "test from released numbers decides."
    )
    plan = replace(plan, assumptions=(*plan.assumptions, statement))
    return ranged(plan, design, variances, warnings)


def expect_augmented(plan: Plan, design: Design, complete: float) -> Plan:
    """The same where no law of rows is asserted: as of whole rows, more by what gaps cost.

    Completed columns vary less by what is missing, so that a coefficient moves by 1 / seen of what
    its score does; and squares of scores are larger by what errors of completing add.
    """
    seen = complete ** (1 / (len(plan.names) - 1))

    def variances(plan: Plan, design: Design, case: Case) -> tuple[float, float]:
        private, sampled = likelihood_variances(plan, design, case)
        longer = (1 + (1 - seen)) / seen
        return private * longer / seen**2, sampled * longer

    statement = (
        "Covariates are missing completely at random, each in about "
        f"{1 - seen:.0%} of rows (complete={complete:g})."
    )
    return predicted(replace(plan, assumptions=(*plan.assumptions, statement)), design, variances)
