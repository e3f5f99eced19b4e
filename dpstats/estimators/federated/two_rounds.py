"""Sites vote for columns, and a fit over the sums of all of them has the chosen ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from dpstats.estimators.federated.base import SiteMethod
from dpstats.estimators.federated.rounds import Rounds
from dpstats.protocol import Plan
from dpstats.theory import Assumption, Theory

__all__ = ["TwoRounds"]

_SUMS = Rounds.theory["federated"]
_THEORY = replace(
    _SUMS,
    estimand=(
        "what a fit of the chosen columns estimates in the population of all sites together, where "
        "they are alike; in that of the target, where they differ by more than their errors"
    ),
    guarantee=(
        "each site answers two questions whose budgets add up to its (epsilon, delta) by basic "
        "composition: a central sparse fit, and the sums of one fit in rounds or a whole fit; each "
        "is differentially private in the rows of that site by the sensitivities of its method, "
        "whatever the other was"
    ),
    assumptions=(
        Assumption("At most s columns matter, and the first answers find them"),
        *_SUMS.assumptions,
    ),
    corrections=(),
)


@dataclass(frozen=True)
class TwoRounds(SiteMethod):
    """Two questions: which columns matter, and what the coefficients of these are.

    1. *Which* (the share `share` of each site's budget): one sparse fit at each site, as for
       ``"averaged-sparse"``. A source that is unlike the target is set aside and asked no more; the
       largest s entries of the average of the others, weighed by rows, are chosen.
    2. *What* (the rest): `Rounds` over the sites that are left, of the chosen columns alone; or,
       where the first answers differ by more than the errors that their plans expect, one whole fit
       at each of them, combined for the target by the default rule of `OneShot`.

    The noise of s + 1 sums in place of d, added over sites, is why the second question is worth its
    part of the budget, and why its coefficients have standard errors, which do not count the
    choice. Sites whose first answers are expected to say little are taken to be alike.

    *When.* By default where terms are one column each, a person has one row, and all sites' sums of
    s columns are expected to err less than the target's own sparse fit, which is public.

    *Guarantee.* Each question is charged by the site before it reads a row, by the plan of its
    method, whose queries enforce their sensitivities; their costs add up to (epsilon, delta). The
    second names columns that the first has released.
    """

    model: str
    name: ClassVar[str] = "two-rounds"
    sparse: ClassVar[bool] = True
    theory: ClassVar[Mapping[str, Theory]] = {"federated": _THEORY}
    options: ClassVar[Mapping[str, str]] = {
        "sparsity": "columns to choose, beside the intercept",
        "share": "of each site's budget for the choice, above 0 and below 1; .4 by default",
        "target": "of the second question, as for the central method of the model",
    }

    def over(self, asked: Plan, first: Plan, second: Plan) -> Plan:
        """Both questions as one plan; `asked` has the budget and the options."""
        (e1, d1), (e2, d2) = first.cost, second.cost
        votes = [replace(m, slot=f"{m.slot}, columns") for m in first.mechanisms]
        sums = [replace(m, slot=f"{m.slot}, sums") for m in second.mechanisms]
        return replace(
            second,
            method=self.name,
            privacy=asked.privacy,
            mechanisms=(*votes, *sums),
            cost=(e1 + e2, d1 + d2),
            options={**second.options, **asked.options},
            assumptions=(
                "Columns are found by the first question; standard errors do not count the choice.",
                *second.assumptions,
            ),
            warnings=tuple(dict.fromkeys((*first.warnings, *second.warnings))),
        )
