"""Two questions, one after the other: which columns matter, and what their coefficients are."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from dpstats import estimators
from dpstats.combining import RULES
from dpstats.design import Design
from dpstats.design.written import sides, term
from dpstats.errors import DataError, FeasibilityWarning, OptionError, is_number
from dpstats.estimators.federated.averaged import AveragedSparse
from dpstats.estimators.federated.rounds import Rounds
from dpstats.estimators.federated.two_rounds import TwoRounds
from dpstats.federated.question import Question
from dpstats.federated.rounds import USELESS, count_replies, plan_in_rounds
from dpstats.federated.summed import Absent, Send
from dpstats.privacy import Federated
from dpstats.protocol import Plan
from dpstats.protocol.sites import FederatedEstimate, SiteRecord, SiteShare, SummedEstimate
from dpstats.results import Released
from dpstats.results.privacy_report import PrivacyReport
from dpstats.text import plain

__all__ = [
    "check_two_rounds",
    "first_of",
    "fit_in_two_rounds",
    "guess_of",
    "second_plan",
    "whole_plan",
]

_VOTE = 0.4  # share: of each site's budget for choosing columns
_ASKED_AGAIN = ("answered", "too small")
_AS_GIVEN = (
    "Standard errors take them as given: that of a column which chance or noise chose is too small."
)
_APART = (
    "Sites differ by more than their errors: each was asked for a whole fit of these columns, "
    f"combined by {next(iter(RULES))!r}."
)

Estimate = SummedEstimate | FederatedEstimate
Ask = Callable[[Question, Sequence[str], Send], Released]


def check_two_rounds(question: Question) -> None:
    """Refuse what two questions cannot be made of, before anybody is asked.

    Raises
    ------
    OptionError
        If the share is none, or a term makes several columns: one is chosen with all of them.
    """
    share = question.options.get("share", _VOTE)
    if not (is_number(share) and 0 < share < 1):
        raise OptionError(f"share={share!r}: a number above 0 and below 1 is needed.")
    design = question.read_design()
    several = [a for a, b in zip(design.terms, design.names, strict=True) if a != b]
    if several or "|" in str(question.design.get("formula", "")):
        what = ", ".join(map(repr, dict.fromkeys(several))) or "absorbed effects"
        raise OptionError(
            f"method={TwoRounds.name!r} chooses terms that are one column each, and {what} makes "
            "several. sparsity= without method= chooses columns of any terms."
        )
    guess_of(question)


def first_of(question: Question) -> Question:
    """Which columns matter."""
    return Question(
        question.model,
        question.design,
        _part(question.privacy, _share(question)),
        AveragedSparse.of_sites,
        {"sparsity": question.options["sparsity"]},
        AveragedSparse.name,
        nonce=_nonce(question, "which"),
    )


def second_of(question: Question, chosen: Sequence[str]) -> Question:
    """What the coefficients of the chosen columns are.

    Raises
    ------
    OptionError
        If their names do not make a formula of them.
    """
    design = question.read_design()
    response, _ = sides(str(question.design["formula"]))
    columns = [name for name in design.schema or () if not name.isidentifier()]
    kept = [name for name in _places(design) if name in set(chosen)]
    terms = [term(name) if name in columns else name for name in kept]
    formula = f"{response} ~ {' + '.join(['1' if design.has_intercept else '0', *terms])}"
    names = [*(["Intercept"] if design.has_intercept else []), *kept]
    target = question.options.get("target")
    made = Question(
        question.model,
        {**question.design, "formula": formula, "design_names": names},
        _part(question.privacy, 1 - _share(question)),
        Rounds.name,
        {} if target is None else {"target": target},
        nonce=_nonce(question, "what"),
    )
    made.read_design()  # it says so if the formula makes other columns
    return made


def _whole(question: Question) -> Question:
    """The second question as one whole fit a site, where sites are not alike."""
    return replace(question, method=None, combine=next(iter(RULES)))


def _are_alike(first: Released) -> bool:
    """Whether sums of all sites may stand for the target, by what the first question released.

    Sites whose own fits say nothing are taken to be: what they differ by cannot be seen.
    """
    apart = float(first.estimate.released["apart"])
    return first.plan.predicted_error >= USELESS or apart <= 1


def _of_sites(question: Question, names: Sequence[str]) -> Question:
    """A question that speaks of these sites alone."""
    privacy = question.privacy
    budgets = {name: given for name, given in privacy.budgets.items() if name in names}
    rows = {name: given for name, given in privacy.rows.items() if name in names}
    return replace(question, privacy=replace(privacy, budgets=budgets, rows=rows))


def guess_of(question: Question) -> Question:
    """The second question at the first s columns: nobody knows yet which it will be."""
    return second_of(question, _places(question.read_design())[: question.options["sparsity"]])


def _share(question: Question) -> float:
    return float(question.options.get("share", _VOTE))


def _places(design: Design) -> list[str]:
    """Columns that may be chosen."""
    return [name for name in design.names if not (design.has_intercept and name == "Intercept")]


def _nonce(question: Question, which: str) -> str:
    """Asked again, the same question makes the same two."""
    return hashlib.sha256(f"{question.nonce} {which}".encode()).hexdigest()[: len(question.nonce)]


def _part(privacy: Federated, share: float) -> Federated:
    budgets = {site: (share * e, share * d) for site, (e, d) in privacy.budgets.items()}
    return replace(
        privacy, epsilon=share * privacy.epsilon, delta=share * privacy.delta, budgets=budgets
    )


def whole_plan(question: Question, first: Plan, second: Plan) -> Plan:
    """Both plans as one."""
    method = estimators.find(question.model, question.privacy, TwoRounds.name)
    assert isinstance(method, TwoRounds)
    options = {**question.options, "share": _share(question)}
    return method.over(replace(second, privacy=question.privacy, options=options), first, second)


def second_plan(question: Question, rows: Mapping[str, int]) -> Plan:
    """The second plan, at columns of which nobody knows yet which they are."""
    made = plan_in_rounds(replace(guess_of(question), rows=rows))
    return replace(made, predicted_se=(), predicted_range=(), predicted_units=())


def fit_in_two_rounds(question: Question, names: Sequence[str], send: Send, ask: Ask) -> Released:
    """Ask which columns matter, and then what their coefficients are.

    Parameters
    ----------
    question : Question
        By this method.
    names : sequence of str
        Sites, the target among them.
    send : callable
        Takes a message to each of some sites, and brings their replies; None of a late one.
    ask : callable
        Asks sites one question: `dpstats.federated.ask`.

    Raises
    ------
    DataError
        If the target does not answer, at first before anything is charged.

    Warns
    -----
    FeasibilityWarning
        What the second plan warns of, before anything is charged.
    """
    check_two_rounds(question)
    target, absent = question.privacy.target, Absent()
    counted = count_replies(guess_of(question), send, names, absent)
    if target not in counted:
        status, reason = absent[target]
        raise DataError(f"The target {target!r} did not answer ({status}): {reason}.")
    for message in second_plan(question, {k: v.rows for k, v in counted.items()}).warnings:
        warnings.warn(plain(message), FeasibilityWarning, stacklevel=4)
    first = ask(first_of(question), names, send)
    assert isinstance(first.estimate, SummedEstimate)
    near = [share.site for share in first.estimate.sites if share.status in _ASKED_AGAIN]
    chosen = [first.design.names[int(j)] for j in first.estimate.released["voted"]]
    chosen = [name for name in _places(first.design) if name in set(chosen)]
    what = _of_sites(second_of(question, chosen), near)
    second = _asked_quietly(ask, what if _are_alike(first) else _whole(what), near, send)
    return _together(question, names, first, second)


def _asked_quietly(ask: Ask, question: Question, names: Sequence[str], send: Send) -> Released:
    """The second answer; what its plan warns of was said before the charge."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FeasibilityWarning)
        return ask(question, names, send)


def _together(
    question: Question, names: Sequence[str], first: Released, second: Released
) -> Released:
    """The second answer, with what both of them cost."""
    one, two = first.estimate, second.estimate
    assert isinstance(one, SummedEstimate)
    voted = [s.site for s in one.sites if s.status == "answered"]
    aside = [s.site for s in one.sites if s.status == "set aside"]
    chosen = ", ".join(_places(second.design)) or "no column"
    said = [f"Chosen by {len(voted)} sites: {chosen}. {_AS_GIVEN}"]
    said += [f"Set aside, as far from {question.privacy.target}: {', '.join(aside)}."] * bool(aside)
    if isinstance(two, FederatedEstimate):
        said.append(_APART)
    plan = whole_plan(question, first.plan, second.plan)
    theory = estimators.find(question.model, question.privacy, TwoRounds.name).theory["federated"]
    return Released.from_estimate(
        _with_all(question, names, one, two, said),  # type: ignore[arg-type]
        design=second.design,
        plan=replace(plan, warnings=tuple(dict.fromkeys(plan.warnings))),
        theory=theory,
        privacy=_report(plan, first.privacy, second.privacy, theory.guarantee),
    )


def _with_all(
    question: Question, names: Sequence[str], one: SummedEstimate, two: Estimate, said: list[str]
) -> Estimate:
    """The second estimate, with what sites gave to both questions."""
    votes = {vote.site: vote for vote in one.sites}
    there, remarks = [name for name in names if name in votes], (*said, *two.remarks)
    both = {n: question.privacy.at(n) for n in there if votes[n].status == "answered"}
    if isinstance(two, FederatedEstimate):
        records = {**{n: _unheard(votes[n]) for n in there}, **{s.site: s for s in two.sites}}
        for name in both.keys() & {s.site for s in two.sites}:
            spent = both[name].epsilon, both[name].delta
            records[name] = replace(records[name], epsilon=spent[0], delta=spent[1])
        return replace(two, sites=tuple(records[name] for name in there), remarks=remarks)
    shares = {**votes, **{s.site: s for s in two.sites}}
    for name in both.keys() & {s.site for s in two.sites}:
        vote, spent = votes[name], (both[name].epsilon, both[name].delta)
        share = replace(shares[name], epsilon=spent[0], delta=spent[1])
        shares[name] = replace(share, distance=vote.distance, p=vote.p)  # a sum says less of it
    return replace(two, sites=tuple(shares[name] for name in there), remarks=remarks)


def _unheard(vote: SiteShare) -> SiteRecord:
    """A site that was asked for its vote alone."""
    nothing = np.zeros(0)
    budget = vote.epsilon, vote.delta
    return SiteRecord(
        vote.site, vote.status, vote.reason, vote.n, *budget, nothing, nothing, nothing
    )


def _report(plan: Plan, one: PrivacyReport, two: PrivacyReport, guarantee: str) -> PrivacyReport:
    """What was done for both questions."""
    sites = {
        site: "; then ".join(r.sites[site] for r in (one, two) if site in r.sites)
        for site in one.sites
    }
    cost = tuple(math.fsum(pair) for pair in zip(one.cost, two.cost, strict=True))
    return replace(
        two,
        epsilon=float(plan.privacy.epsilon),
        delta=float(plan.privacy.delta),
        cost=(cost[0], cost[1]),
        mechanisms=(*one.mechanisms, *two.mechanisms),
        guarantee=guarantee,
        reproducible=one.reproducible or two.reproducible,
        sites=sites,
    )
