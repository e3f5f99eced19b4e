"""Ask sites, read what they reply, and combine it: all of it after the noise, so at no cost."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
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
from dpstats.estimators.federated import (
    IN_ROUNDS,
    AveragedSparse,
    OneShot,
    Rounds,
    TwoRounds,
)
from dpstats.federated.question import Question, Reply
from dpstats.federated.rounds import (
    USELESS,
    count_replies,
    fit_in_rounds,
    in_process,
    plan_in_rounds,
)
from dpstats.federated.shares import Shares
from dpstats.federated.site import TOO_SMALL, Site, counted_at, is_too_small, plan_at
from dpstats.federated.summed import Send
from dpstats.federated.two_rounds import (
    check_two_rounds,
    first_of,
    fit_in_two_rounds,
    guess_of,
    joined,
    planned,
)
from dpstats.models.checks import checked_sparsity
from dpstats.privacy import Central, Federated
from dpstats.protocol import Plan
from dpstats.protocol.sites import SiteRecord
from dpstats.results import Released
from dpstats.results.parameters import ParameterResults
from dpstats.results.privacy_report import PrivacyReport
from dpstats.text import plain

__all__ = [
    "ask",
    "by_public_facts",
    "by_public_facts_over",
    "combine",
    "fit",
    "plan_over",
    "question_for",
]

Array = NDArray[np.float64]
T = TypeVar("T")
Found = tuple[SiteRecord, ParameterResults | None]  # of one site


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
    if method in IN_ROUNDS:
        estimator = estimators.find(model, privacy, method)
        check_options(estimator.name, estimator.options, options)
        return Question(model, design.to_dict(), privacy, method, options)
    sparse = "sparsity" in options
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


def by_public_facts(question: Question, sites: Sequence[Site]) -> Question:
    """The question in the way that public facts speak for, where nobody said how to ask.

    In rounds, where whole fits of the target and of most sites would be useless: fitted values are
    expected to be off by `USELESS` of their standard deviation or more, and in rounds by half of
    what the target's are or less. A sparse one in two rounds, where these can be asked and expect a
    smaller error than the target's own fit.
    """
    _check_target(question, [site.name for site in sites])
    rows = {}
    for site in sites:
        with suppress(TrustError):  # one that refuses is heard when it is asked
            rows[site.name] = counted_at(site, question)
    return _better(question, rows) if len(rows) == len(sites) else question


def by_public_facts_over(question: Question, names: Sequence[str], send: Send) -> Question:
    """As `by_public_facts`, of sites wherever they are: they say, for free, how many rows."""
    _check_target(question, names)
    asked = replace(question, method=Rounds.name, combine="")
    found = count_replies(asked, send, names, {})
    return _better(question, {name: reply.rows for name, reply in found.items()})


def _better(question: Question, rows: Mapping[str, int]) -> Question:
    """The question for sites of so many rows; as it is where the target has not said."""
    design, privacy = question.read_design(), question.privacy
    if design.schema is not None and design.schema.unit is not None:
        return question  # the number of rows is private
    if question.combine == AveragedSparse.name:
        return _better_sparse(question, rows) if len(rows) > 1 else question
    planned: dict[tuple[int, Central], float] = {}  # of sites that are alike one plan is made
    errors: dict[str, float] = {}
    for site, n in rows.items():
        public = n, privacy.at(site)
        if public not in planned:
            try:
                found = estimators.find(question.model, public[1], question.method)
                public[1].check_delta(n)
                plan = found.plan(design, public[1], n, **question.options)
            except DPStatsError:
                continue
            planned[public] = plan.predicted_error
        errors[site] = planned[public]
    own = errors.get(privacy.target, 0.0)
    if not min(own, float(np.median(list(errors.values() or [0.0])))) >= USELESS:
        return question
    asked = replace(question, method=Rounds.name, combine="")
    try:
        expected = Shares.of(replace(asked, rows=rows), design).whole.predicted_error
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
        alone = own.plan(design, public, rows[target], **question.options).predicted_error
        expected = planned(asked, rows).predicted_error
    except (DPStatsError, KeyError):  # they cannot be asked, or the target has not said its rows
        return question
    return asked if expected < alone else question


def plan_over(question: Question, sites: Sequence[Site]) -> Plan:
    """What all sites will do, and how well. No row is read, nothing is charged.

    Sources that would refuse, or are too small, are left out and named, as in a fit.

    Raises
    ------
    TrustError
        If the target refuses; it says why.
    """
    names, refused = [site.name for site in sites], dict[str, str]()
    _check_target(question, names)
    asked = sorted(sites, key=lambda site: site.name != question.privacy.target)
    if question.method == TwoRounds.name:
        found = _or_refused(asked, guess_of(question), counted_at, refused)
        made = joined(question, plan_over(first_of(question), sites), planned(question, found))
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
    _check_target(question, names)
    if question.method not in {*IN_ROUNDS, TwoRounds.name}:
        (target,) = (site for site in sites if site.name == question.privacy.target)
        for message in plan_at(target, question).warnings:
            warnings.warn(plain(message), FeasibilityWarning, stacklevel=3)
    return ask(question, names, in_process(sites, bool(progress)), progress)


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
    """
    _check_target(question, names)
    if question.method in IN_ROUNDS:
        return fit_in_rounds(question, names, send, progress)
    if question.method == TwoRounds.name:
        return fit_in_two_rounds(question, names, send, partial(ask, progress=progress))
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
    """
    design = question.read_design()
    found = [_read(question, design, name, message) for name, message in replies.items()]
    _need_target(question, found)
    return _combined(question, design, found)


def _combined(question: Question, design: Design, found: Sequence[Found]) -> Released:
    """The results of what was read of the sites' replies."""
    results = {site.site: result for site, result in found if result is not None}
    estimator, privacy = _estimator(question), question.privacy
    plan = estimator.over(privacy, {k: r.plan for k, r in results.items()}, question.combine)
    theory = estimator.theory["federated"]
    if estimator.sparse:
        s, always = question.options["sparsity"], design.standardization.intercept
        estimate: Any = average_for(privacy.target, found, s, always)
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


def _estimator(question: Question) -> OneShot:
    named = question.combine if question.combine not in RULES else None
    found = estimators.find(question.model, question.privacy, named)
    assert isinstance(found, OneShot)
    return found


def _one_size(sparsity: int | tuple[int, ...]) -> int:
    if not isinstance(sparsity, int):
        raise OptionError(f"sparsity={sparsity!r}: sites select one number of columns.")
    return sparsity


def _check_target(question: Question, names: Sequence[str]) -> None:
    target = question.privacy.target
    if len(set(names)) < len(names):
        raise OptionError(f"A name stands for two sites: {', '.join(sorted(names))}.")
    if target not in names:
        raise OptionError(f"target={target!r}: there are sites {', '.join(map(repr, names))}.")
    for what, given in (("budgets", question.privacy.budgets), ("rows", question.privacy.rows)):
        if unknown := sorted(set(given) - set(names)):
            there = ", ".join(map(repr, names))
            raise OptionError(f"{what} of {unknown}: there are sites {there}.")
    schema = question.read_design().schema
    several = schema is not None and schema.unit is not None
    if several and (lacking := sorted(set(names) - set(question.privacy.rows))):
        raise OptionError(
            f"With several rows a unit the number of rows is private: Federated(..., rows=...) "
            f"needs a public guess for {', '.join(map(repr, lacking))}."
        )


def _need_target(question: Question, found: Sequence[Found]) -> None:
    """Refuse to go on without the target's answer."""
    target = question.privacy.target
    own = next((site for site, _ in found if site.site == target), None)
    if own is None:
        raise DataError(f"The target {target!r} did not reply.")
    if not own.answered:
        raise DataError(f"The target {target!r} did not answer ({own.status}): {own.reason}.")


def _read(question: Question, design: Design, name: str, message: bytes | None) -> Found:
    """What a message says, after every check that the numbers allow."""
    nothing: Array = np.zeros(0)
    promise = question.privacy.at(name)

    def without(status: str, reason: str) -> Found:
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
    table = result.table
    if _estimator(question).sparse:  # there is no covariance
        return replace(without("answered", "")[0], n=float(result.nobs)), result
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
            (*result.plan.warnings, *result.estimate.remarks),
        ),
        result,
    )


def _sound(result: ParameterResults, question: Question, design: Design, name: str) -> bool:
    """Whether a result is of the fit that was asked for, with numbers that can be combined."""
    table, plan = result.table, result.plan
    if not (
        plan.model == question.model
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
    spread = np.sqrt(np.abs(np.diag(table.cov)))
    scaled = table.cov / np.maximum(np.outer(spread, spread), sys.float_info.min)
    return bool(np.linalg.eigvalsh(scaled).min() > _SINGULAR)


_SINGULAR = (
    1e-12  # ratio: of a correlation matrix's least eigenvalue, below which it has no inverse
)
