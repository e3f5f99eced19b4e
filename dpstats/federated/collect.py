"""Ask sites, read what they reply, and combine it: all of it after the noise, so at no cost."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpstats import estimators
from dpstats.combining import PRINTED, RULES, average_for, estimate_for
from dpstats.design import Design
from dpstats.errors import DataError, DPStatsError, FeasibilityWarning, OptionError, TrustError
from dpstats.estimators.base import check_options
from dpstats.estimators.federated import IN_ROUNDS
from dpstats.estimators.federated.averaged import AveragedSparse
from dpstats.estimators.federated.one_shot import OneShot
from dpstats.estimators.federated.two_rounds import TwoRounds
from dpstats.federated.question import Question, Reply
from dpstats.federated.rounds import (
    fit_in_rounds,
    in_process,
    plan_in_rounds,
)
from dpstats.federated.site import TOO_SMALL, Site, counted_at, is_too_small, plan_at
from dpstats.federated.summed import Send
from dpstats.federated.two_rounds import (
    check_two_rounds,
    first_of,
    fit_in_two_rounds,
    guess_of,
    second_plan,
    whole_plan,
)
from dpstats.models.checks import checked_sparsity
from dpstats.privacy import Federated
from dpstats.protocol import Plan
from dpstats.protocol.sites import SiteRecord, SiteShare, SparseAnswer
from dpstats.results import Released
from dpstats.results.parameters import ParameterResults
from dpstats.results.privacy_report import PrivacyReport
from dpstats.results.warned import warned_of
from dpstats.text import plain

__all__ = [
    "ask",
    "combine",
    "fit",
    "plan_over",
    "question_for",
]

Array = NDArray[np.float64]
T = TypeVar("T")
_MOST_ROWS = 2.0**53  # number: of a site's rows, above which counts are no whole numbers
SiteAnswer = tuple[SiteRecord, ParameterResults | None]  # of one site


def question_for(
    model: str, design: Design, privacy: Federated, method: str | None, options: Mapping[str, Any]
) -> Question:
    """What all sites are asked.

    Raises
    ------
    OptionError, TrustError
        If no federated method answers this, or the rule is unknown.
    """
    if design.schema is None:
        raise OptionError("Sites are asked by formula: use the lower-case names, dp.ols(...).")
    if design.family.released:
        raise OptionError(
            "alpha='released': dispersions of sites are not combined in this release; Central(...) "
            "releases one. Give alpha, a public number, or family='poisson'."
        )
    options = dict(options)
    sparse = "sparsity" in options
    if sparse and method is None and options.keys() - AveragedSparse.options.keys():
        method = TwoRounds.name  # only these have more options than the number of columns
    if method in IN_ROUNDS:
        estimator = estimators.find(model, privacy, method)
        check_options(estimator.name, estimator.options, options)
        return Question(model, design.to_dict(), privacy, method, options)
    if method == TwoRounds.name:
        estimator = estimators.find(model, privacy, method)
        check_options(estimator.name, estimator.options, options)
        size = _one_size(checked_sparsity(options.get("sparsity"), design))
        made = Question(model, design.to_dict(), privacy, method, {**options, "sparsity": size})
        check_two_rounds(made)
        return made
    if method in PRINTED or sparse:
        method = None if method == AveragedSparse.name else method
        named = method if method in PRINTED else None
        estimator = estimators.find(model, privacy, named, sparse=sparse)
        assert isinstance(estimator, OneShot)
        check_options(estimator.name, estimator.options, options)
        if sparse:
            options["sparsity"] = _one_size(checked_sparsity(options["sparsity"], design))
        of_sites = estimator.of_sites if method in (named, None) else method
        return Question(model, design.to_dict(), privacy, of_sites, options, estimator.name)
    estimator = estimators.find(model, privacy)
    assert isinstance(estimator, OneShot)
    rule = estimator.rule(options.pop("combine", None))
    own = estimators.find(model, privacy.at(privacy.target), method)
    check_options(own.name, own.options, options)
    return Question(model, design.to_dict(), privacy, method, options, rule)


def plan_over(question: Question, sites: Sequence[Site]) -> Plan:
    """What all sites will do, and how well. No row is read, nothing is charged.

    Sources that would refuse, or are too small, are left out and named, as in a fit.

    Raises
    ------
    TrustError
        If the target refuses; it says why.
    """
    names, refused = [site.name for site in sites], dict[str, str]()
    question.check_sites(names)
    asked = sorted(sites, key=lambda site: site.name != question.privacy.target)
    if question.method == TwoRounds.name:
        found = _or_refused(asked, guess_of(question), counted_at, refused)
        made = whole_plan(
            question, plan_over(first_of(question), sites), second_plan(question, found)
        )
        return _without(made, [], refused)
    if question.method in IN_ROUNDS:
        found = _or_refused(asked, question, counted_at, refused)
        rows = {name: found[name] for name in names if name in found}
        return _without(plan_in_rounds(replace(question, rows=rows)), [], refused)
    every = _or_refused(asked, question, plan_at, refused)
    small = [name for name, p in every.items() if is_too_small(name, p, question)]
    plans = {name: every[name] for name in names if name in every and name not in small}
    made = _estimator(question).over(question.privacy, plans, question.combine)
    return _without(made, small, refused)


def _or_refused(
    sites: Sequence[Site],
    question: Question,
    ask_one: Callable[[Site, Question], T],
    refused: dict[str, str],
) -> dict[str, T]:
    """What each site says, the target first; why a source refuses is noted."""
    found = {}
    for site in sites:
        try:
            found[site.name] = ask_one(site, question)
        except TrustError as error:
            if site.name == question.privacy.target:
                raise
            refused[site.name] = str(error)
    return found


def _without(plan: Plan, small: Sequence[str], refused: Mapping[str, str]) -> Plan:
    """The plan, with the sources that are not in it, and why."""
    said = [f"Left out as too small, at no cost: {', '.join(small)}."] if small else []
    said += [f"Left out, at no cost: {reason}" for reason in refused.values()]
    return replace(plan, assumptions=(*plan.assumptions, *said))


def fit(question: Question, sites: Sequence[Site], progress: bool | None) -> Released:
    """Ask sites of this process, the target first, and combine their replies.

    Raises
    ------
    DataError
        If the target does not answer; no other site was asked, and none was charged.
    TrustError
        If the target refuses.

    Warns
    -----
    FeasibilityWarning
        What the target's own plan warns of, before it is charged.
    """
    names = [site.name for site in sites]
    question.check_sites(names)
    if question.method not in {*IN_ROUNDS, TwoRounds.name}:
        (target,) = (site for site in sites if site.name == question.privacy.target)
        for message in plan_at(target, question).warnings:
            warnings.warn(plain(message), FeasibilityWarning, stacklevel=3)
    return _asked(question, names, in_process(sites, bool(progress)), progress)


def ask(
    question: Question, names: Sequence[str], send: Send, progress: bool | None = None
) -> Released:
    """Ask sites wherever they are, the target first, and combine their replies.

    Parameters
    ----------
    question : Question
        What all of them are asked.
    names : sequence of str
        Sites, the target among them.
    send : callable
        Takes a message to each of some sites, and brings their replies; None of a late one.
    progress : bool, optional
        Of rounds: print a line for each sum to standard error.

    Raises
    ------
    DataError
        If the target does not answer; no other site was asked, and none was charged.
    TrustError
        If the target refuses.

    Warns
    -----
    EstimationWarning
        What replies tell of the fit. It carries the results.
    """
    return warned_of(_asked(question, names, send, progress), stacklevel=3)


def _asked(
    question: Question, names: Sequence[str], send: Send, progress: bool | None = None
) -> Released:
    """See `ask`."""
    question.check_sites(names)
    if question.method in IN_ROUNDS:
        return fit_in_rounds(question, names, send, progress)
    if question.method == TwoRounds.name:
        return fit_in_two_rounds(question, names, send, partial(_asked, progress=progress))
    asked, design, target = question.to_bytes(), question.read_design(), question.privacy.target
    found = [_read(question, design, target, send({target: asked}).get(target))]
    _need_target(question, found)
    others = [name for name in names if name != target]
    replies = send(dict.fromkeys(others, asked)) if others else {}
    found += [_read(question, design, name, replies.get(name)) for name in others]
    return _combined(question, design, sorted(found, key=lambda f: names.index(f[0].site)))


def combine(question: Question, replies: Mapping[str, bytes | None]) -> Released:
    """What the replies of sites say of the target.

    Parameters
    ----------
    question : Question
        What was asked.
    replies : mapping of str to bytes or None
        By the name of each site; None of one that did not reply in time.

    Raises
    ------
    DataError
        If the target's reply is missing or holds no answer.

    Warns
    -----
    EstimationWarning
        What replies tell of the fit. It carries the results.
    """
    design = question.read_design()
    found = [_read(question, design, name, message) for name, message in replies.items()]
    _need_target(question, found)
    return warned_of(_combined(question, design, found), stacklevel=3)


def _combined(question: Question, design: Design, found: Sequence[SiteAnswer]) -> Released:
    """The results of what was read of the sites' replies."""
    results = {site.site: result for site, result in found if result is not None}
    estimator, privacy = _estimator(question), question.privacy
    plan = estimator.over(privacy, {k: r.plan for k, r in results.items()}, question.combine)
    theory = estimator.theory["federated"]
    if estimator.sparse:
        s, always = question.options["sparsity"], design.standardization.intercept
        told = _sparse_answers(found)
        estimate: Any = average_for(privacy.target, *told, len(design.names), s, always)
    else:
        estimate = estimate_for(privacy.target, [site for site, _ in found], question.combine)
    return Released.from_estimate(
        estimate,
        design=design.without_rows(),
        plan=replace(plan, warnings=()),  # each site's are among the remarks on it
        theory=theory,
        privacy=PrivacyReport.of_sites(
            plan, {k: r.privacy for k, r in results.items()}, guarantee=theory.guarantee
        ),
    )


def _sparse_answers(found: Sequence[SiteAnswer]) -> tuple[list[SiteShare], list[SparseAnswer]]:
    """What averages are made of."""
    shares, answers = [], []
    for site, result in found:
        why, unknown = site.reason or " ".join(site.warnings), (math.nan, math.nan)
        budget = site.epsilon, site.delta
        shares.append(SiteShare(site.site, round(site.n), *budget, *unknown, site.status, why))
        if result is not None:
            made: Any = result.estimate
            error = result.plan.predicted_error
            answers.append(SparseAnswer.of(site.site, made.params, error, site.warnings))
    return shares, answers


def _estimator(question: Question) -> OneShot:
    named = question.combine if question.combine not in RULES else None
    found = estimators.find(question.model, question.privacy, named)
    assert isinstance(found, OneShot)
    return found


def _one_size(sparsity: int | tuple[int, ...]) -> int:
    if not isinstance(sparsity, int):
        raise OptionError(f"sparsity={sparsity!r}: sites select one number of columns.")
    return sparsity


def _need_target(question: Question, found: Sequence[SiteAnswer]) -> None:
    """Refuse to go on without the target's answer."""
    target = question.privacy.target
    own = next((site for site, _ in found if site.site == target), None)
    if own is None:
        raise DataError(f"The target {target!r} did not reply.")
    if not own.answered:
        raise DataError(f"The target {target!r} did not answer ({own.status}): {own.reason}.")


def _read(question: Question, design: Design, name: str, message: bytes | None) -> SiteAnswer:
    """What a message says, after every check that the numbers allow."""
    nothing: Array = np.zeros(0)
    promise = question.privacy.at(name)

    def without(status: str, reason: str) -> SiteAnswer:
        empty = (nothing, nothing, nothing)
        budget = (promise.epsilon, promise.delta)
        return SiteRecord(name, status, reason, 0.0, *budget, *empty), None

    if message is None:
        return without("late", "no reply in time")
    try:
        reply = Reply.from_bytes(message)
    except DPStatsError as error:
        return without("invalid", type(error).__name__)
    if reply.status == "refused":
        small = reply.reason == TOO_SMALL
        return without("too small" if small else "refused", reply.reason)
    result = reply.result
    if reply.status != "answered" or reply.site != name or reply.digest != question.digest:
        return without("invalid", "it answers another question, or is of another site")
    if not isinstance(result, ParameterResults) or not _sound(result, question, design, name):
        return without("invalid", "its result is not what was asked for")
    table, warned = result.table, (*result.plan.warnings, *result.estimate.remarks)
    if _estimator(question).sparse:  # there is no covariance
        made = replace(without("answered", "")[0], n=float(result.nobs), warnings=warned)
        return made, result
    return (
        SiteRecord(
            name,
            "answered",
            "",
            float(result.nobs),
            promise.epsilon,
            promise.delta,
            table.values,
            table.cov,
            table.cov_sampling,
            warned,
        ),
        result,
    )


def _sound(result: ParameterResults, question: Question, design: Design, name: str) -> bool:
    """Whether a result is of the fit that was asked for, with numbers that can be combined."""
    table, plan = result.table, result.plan
    if not (
        1 <= result.nobs < _MOST_ROWS
        and plan.model == question.model
        and plan.privacy == question.privacy.at(name)
        and plan.names == design.names
        and result.design.to_dict() == design.to_dict()
    ):
        return False
    if _estimator(question).sparse:
        return bool(np.isfinite(table.values).all())
    if not (table.has_inference and len(table.inner) == len(table.names)):
        return False
    numbers = np.concatenate([table.values, table.cov.ravel(), table.cov_sampling.ravel()])
    if not np.isfinite(numbers).all():
        return False
    return bool((np.diag(table.cov) > 0).all())
