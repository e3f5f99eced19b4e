"""A fit in rounds: sites are counted, opened, asked for sums one after the other, and closed."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dpstats import estimators
from dpstats.errors import DataError, DPStatsError, FeasibilityWarning
from dpstats.estimators.federated.rounds import RoundsMethod
from dpstats.federated.question import Question, Reply
from dpstats.federated.shares import Shares
from dpstats.federated.site import Site
from dpstats.federated.summed import Absent, Send, SummingHolder
from dpstats.protocol import Plan
from dpstats.protocol.progress import reporter, watched
from dpstats.results import Released
from dpstats.results.privacy_report import PrivacyReport
from dpstats.text import plain

__all__ = ["USELESS", "count_replies", "fit_in_rounds", "in_process", "plan_in_rounds"]

USELESS = 0.3  # ratio: expected error of the target's fitted values to their standard deviation


def in_process(sites: Sequence[Site], told: bool = False) -> Send:
    """What carries messages to sites of this process; it prints who replied if it is told to."""
    answers: dict[str, Callable[[bytes], bytes]] = {site.name: site.answer for site in sites}
    heard: dict[str, None] = {}

    def send(messages: Mapping[str, bytes]) -> dict[str, bytes | None]:
        replies: dict[str, bytes | None] = {}
        for name, message in messages.items():
            replies[name] = answers[name](message)
            if told and name not in heard:
                heard[name] = None
                print(f"[{len(heard)}/{len(answers)}] {name}", file=sys.stderr, flush=True)
        return replies

    return send


def plan_in_rounds(question: Question) -> Plan:
    """What all sites will do, and how well.

    Raises
    ------
    DPStatsError
        If there is no such plan.
    """
    return _over(Shares.of(question, question.read_design()))


def _over(shares: Shares) -> Plan:
    question = shares.question
    estimator = estimators.find(question.model, question.privacy, question.method)
    assert isinstance(estimator, RoundsMethod)
    sites = {site: shares.at(site) for site in shares.rows}
    return estimator.over(question.privacy, shares.whole, sites)


def fit_in_rounds(
    question: Question, names: Sequence[str], send: Send, progress: bool | None
) -> Released:
    """Count the rows of all sites, open them, and let the central method ask their sums.

    Parameters
    ----------
    question : Question
        Of a method that asks in rounds, without rows.
    names : sequence of str
        Sites, the target among them.
    send : callable
        Takes a message to each of some sites, and brings their replies; None of a late one.
    progress : bool, optional
        Print a line for each sum to standard error.

    Raises
    ------
    DataError
        If the target does not answer.

    Warns
    -----
    FeasibilityWarning
        What the plan warns of, before anything is charged.
    """
    target, design, absent = question.privacy.target, question.read_design(), Absent()
    found = count_replies(question, send, names, absent)
    _need(target, found, absent)
    question = replace(question, rows={k: found[k].rows for k in names if k in found})
    shares = Shares.of(question, design)
    plan = _over(shares)
    for message in plan.warnings:
        warnings.warn(plain(message), FeasibilityWarning, stacklevel=4)

    opened = _replies(question, send, [target], "opened", absent)
    _need(target, opened, absent)
    others = [name for name in question.rows if name != target]
    opened |= _replies(question, send, others, "opened", absent)
    report = reporter(shares.whole, progress)
    holder = SummingHolder(shares, send, list(opened), report)
    try:
        with watched(report):
            estimate = shares.estimator.fit(holder, design, holder.plan)
    finally:
        holder.close()  # sites hold their rows until then
    theory = estimators.find(question.model, question.privacy, question.method).theory["federated"]
    reports = {
        name: _told(shares.at(name), holder, name, reply.report) for name, reply in opened.items()
    }
    return Released.from_estimate(
        holder.estimate(estimate, absent),  # type: ignore[arg-type]
        design=design.without_rows(),
        plan=plan,
        theory=theory,
        privacy=PrivacyReport.of_sites(plan, reports, guarantee=theory.guarantee),
    )


def _told(
    plan: Plan, holder: SummingHolder, name: str, report: PrivacyReport | None
) -> PrivacyReport:
    """What a site charged, and every sum that it was asked for."""
    asked = PrivacyReport.of(plan, holder.transcript[name], guarantee="")
    if report is None:
        return asked
    return replace(report, mechanisms=asked.mechanisms)


def count_replies(
    question: Question, send: Send, names: Sequence[str], absent: Absent
) -> dict[str, Reply]:
    """How many rows sites have, of a question without rows; who does not say is noted as absent."""
    return _replies(question, send, names, "counted", absent)


def _replies(
    question: Question, send: Send, names: Sequence[str], wanted: str, absent: Absent
) -> dict[str, Reply]:
    """The replies of sites that do what is wanted; the others are noted, with their reason."""
    asked, found = question.to_bytes(), dict[str, Reply]()
    replies: Mapping[str, bytes | None] = send(dict.fromkeys(names, asked)) if names else {}
    for name in names:
        message = replies.get(name)
        if message is None:
            absent[name] = "late", "no reply in time"
            continue
        try:
            reply = Reply.from_bytes(message)
        except DPStatsError as error:
            absent[name] = "invalid", type(error).__name__
            continue
        if reply.status == "refused":
            absent[name] = "refused", reply.reason
        elif reply.status == wanted and reply.rows >= 1 and reply.answers(question, name):
            found[name] = reply
        else:
            absent[name] = "invalid", "an answer to another question"
    return found


def _need(target: str, found: Mapping[str, Reply], absent: Absent) -> None:
    if target not in found:
        status, reason = absent[target]
        raise DataError(f"The target {target!r} did not answer ({status}): {reason}.")
