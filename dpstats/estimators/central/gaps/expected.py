"""What a fit of completed rows can do, and is expected to find, from public facts alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dpstats.errors import FormulaError
from dpstats.estimators.central.newton.expectation import likelihood_variances, predicted
from dpstats.protocol import Plan

if TYPE_CHECKING:
    from dpstats.design import Design
    from dpstats.estimators.central.newton.typical import Case

__all__ = ["check_completable", "expect_completed"]

_MOST_COLUMNS = 30  # numerical: beyond, products of all pairs of columns take long


def check_completable(design: Design) -> None:
    """Refuse a design whose rows cannot be completed.

    Raises
    ------
    FormulaError
        If rows are sparse or of arrays, there is no intercept, or there are no covariates or too
        many.
    """
    instead = "missing='complete' takes any formula."
    if not design.by_value or design.schema is None or design.standardization.intercept != 0:
        raise FormulaError(
            f"missing='em' completes the rows of a formula with an intercept; {instead}"
        )
    count = len(design.names) - 1
    if not 1 <= count <= _MOST_COLUMNS:
        raise FormulaError(
            f"missing='em' takes 1 to {_MOST_COLUMNS} covariates, and the formula has {count}; "
            f"{instead}"
        )


def expect_completed(plan: Plan, design: Design, complete: float) -> Plan:
    """The plan with expected errors and warnings: as of whole rows, more by what gaps cost.

    Completed columns vary less by what is missing, so that a coefficient moves by 1 / seen of what
    its score does; and scores are longer by what errors of completing add.

    Parameters
    ----------
    complete : float
        Public guess of the share of complete rows: each input is taken to be missing alike.
    """
    seen = complete ** (1 / (len(design.inputs) - 1))
    longer = (1 + (1 - seen)) / seen

    def variances(plan: Plan, design: Design, case: Case) -> tuple[float, float]:
        private, sampled = likelihood_variances(plan, design, case, peeled=False)
        return private * longer / seen**2, sampled * longer

    statement = (
        "Covariates are missing completely at random, each in about "
        f"{1 - seen:.0%} of rows (complete={complete:g})."
    )
    return predicted(replace(plan, assumptions=(*plan.assumptions, statement)), design, variances)
