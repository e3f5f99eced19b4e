"""How sites are asked where nobody said: by public facts, at no cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from dpstats import estimators
from dpstats.errors import DPStatsError, TrustError
from dpstats.estimators.central.newton.typical import shortage
from dpstats.estimators.federated.averaged import AveragedSparse
from dpstats.estimators.federated.rounds import Rounds
from dpstats.estimators.federated.two_rounds import TwoRounds
from dpstats.federated.question import Question
from dpstats.federated.rounds import count_replies
from dpstats.federated.shares import Shares
from dpstats.federated.site import Site, counted_at
from dpstats.federated.summed import Send
from dpstats.federated.two_rounds import check_two_rounds, second_plan
from dpstats.privacy import Central
from dpstats.protocol import Plan

__all__ = ["by_public_facts", "by_public_facts_over", "expected_error"]

_BLIND = 0.4  # ratio: expected error of a site's fitted values to their sd, beyond which its own
# fit would not show by how much sites differ unless they differ by as much
_SHORT = 0.75  # ratio: growth of errors to what rows are short of, for clips to be found


def by_public_facts(question: Question, sites: Sequence[Site]) -> Question:
    """The question in the way that public facts speak for, where nobody said how to ask.

    In rounds, where whole fits of the target and of most sites would not show what sites differ by:
    fitted values are expected to be off by `_BLIND` of their standard deviation or more, and in
    rounds by half of what the target's are or less. A sparse one in two rounds, where these can be
    asked and expect a smaller error than the target's own fit.

    Notes
    -----
    Let e be the error of one site's fit, r that of rounds, h the distance of the target from the
    mean of all sites. Rounds err by ``sqrt(r^2 + h^2)``. Whole fits tell h as far as it exceeds
    their errors: combined they err by ``e / sqrt(K)`` where sites are alike at best, and by up to e
    where they are not. So rounds are better where h is below some share of e, and lose the more the
    smaller e is. docs/federated.md has what either loses; at `_BLIND` it is as much.
    """
    question.check_sites([site.name for site in sites])
    rows = {}
    for site in sites:
        with suppress(TrustError):  # one that refuses is heard when it is asked
            rows[site.name] = counted_at(site, question)
    return _better(question, rows) if len(rows) == len(sites) else question


def by_public_facts_over(question: Question, names: Sequence[str], send: Send) -> Question:
    """As `by_public_facts`, of sites wherever they are: they say, for free, how many rows."""
    question.check_sites(names)
    asked = replace(question, method=Rounds.name, combine="")
    found = count_replies(asked, send, names, {})
    return _better(question, {name: reply.rows for name, reply in found.items()})


def expected_error(plan: Plan) -> float:
    """Expected error of fitted values over their standard deviation.

    That of the plan, which takes clips to be found as where rows are many; with fewer, errors grow
    with what rows are short of.
    """
    if plan.method != "newton":
        return plan.predicted_error
    return plan.predicted_error * math.hypot(1.0, _SHORT * shortage(plan.privacy, plan.n))


def _better(question: Question, rows: Mapping[str, int]) -> Question:
    """The question for sites of so many rows; as it is where the target has not said."""
    design, privacy = question.read_design(), question.privacy
    if design.schema is not None and design.schema.unit is not None:
        return question  # the number of rows is private
    if question.combine == AveragedSparse.name:
        return _better_sparse(question, rows) if len(rows) > 1 else question
    each: dict[tuple[int, Central], float] = {}  # of sites that are alike one plan is made
    errors: dict[str, float] = {}
    for site, n in rows.items():
        public = n, privacy.at(site)
        if public not in each:
            try:
                found = estimators.find(question.model, public[1], question.method)
                public[1].check_delta(n)
                plan = found.plan(design, public[1], design.expected_rows(n), **question.options)
            except DPStatsError:
                continue
            each[public] = expected_error(plan)
        errors[site] = each[public]
    own = errors.get(privacy.target, 0.0)
    blind = sum(error >= _BLIND for error in errors.values())
    if own < _BLIND or blind <= len(errors) / 2:
        return question
    asked = replace(question, method=Rounds.name, combine="")
    try:
        expected = expected_error(Shares.of(replace(asked, rows=rows), design).whole)
    except DPStatsError:
        return question
    return asked if expected <= own / 2 else question


def _better_sparse(question: Question, rows: Mapping[str, int]) -> Question:
    """As `_better`, of a question for sparse fits."""
    design, target = question.read_design(), question.privacy.target
    asked, public = (
        replace(question, method=TwoRounds.name, combine=""),
        question.privacy.at(target),
    )
    try:
        check_two_rounds(asked)
        own = estimators.find(question.model, public, question.method)
        alone = own.plan(
            design, public, design.expected_rows(rows[target]), **question.options
        ).predicted_error
        expected = second_plan(asked, rows).predicted_error
    except (DPStatsError, KeyError):  # they cannot be asked, or the target has not said its rows
        return question
    return asked if expected < alone else question
