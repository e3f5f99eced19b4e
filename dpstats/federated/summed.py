"""Who answers a central method for all sites at once: their noisy sums, added."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import DataError, DPStatsError, PlanError
from dpstats.federated.shares import Shares
from dpstats.federated.steps import Step, Sum
from dpstats.mechanisms.release import bisected
from dpstats.protocol import Answer, CoefficientEstimate, NoiseLaw, Plan, Release
from dpstats.protocol.sites import SiteShare, SummedEstimate
from dpstats.queries import Search, WhitenedScore
from dpstats.queries.as_json import query_to_dict
from dpstats.queries.row_norms import Squares

if TYPE_CHECKING:
    from dpstats.design import Design
    from dpstats.queries import Query

__all__ = ["Absent", "Send", "SummingHolder"]

Array = NDArray[np.float64]
Send = Callable[[Mapping[str, bytes]], Mapping[str, bytes | None]]  # messages, by site; replies
Absent = dict[str, tuple[str, str]]  # status and reason of sites that were never there

_ASKED = ("answered", "set aside")
_APART = 0.05  # probability: of saying of any site that it differs where all are alike


@dataclass(eq=False)
class SummingHolder:
    """A holder of all sites' rows: what it is asked, it asks of every site, and adds the answers.

    Parameters
    ----------
    shares : Shares
        What is planned, and by whom.
    send : callable
        Takes a message to each of some sites, and brings their replies; None of a late one.
    sites : sequence of str
        Those that opened the fit, the target first.
    report : callable, optional
        Called with the slot after each answer; for progress.

    Notes
    -----
    A site that stops answering is left out from then on, and sums of the others stand for all rows:
    they are multiplied by N over the rows that answered, as is their noise. Where sites are alike,
    which is assumed anyway, that is what the sum would have been but for sampling, whose variance
    (squares of scores) is multiplied by the square of it.
    """

    shares: Shares
    send: Send
    sites: Sequence[str]
    report: Callable[[str], None] | None = None
    lost: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._plans = {site: self.shares.at(site) for site in self.sites}
        self._transcript: dict[str, list[Release]] = {site: [] for site in self.sites}
        self._number = 0
        self._late: set[str] = set()
        self._score: tuple[WhitenedScore, str, dict[str, Array]] | None = None

    @property
    def plan(self) -> Plan:
        """That of one curator of all rows."""
        return self.shares.whole

    @property
    def transcript(self) -> Mapping[str, Sequence[Release]]:
        """Every answer of every site."""
        return self._transcript

    def ask(self, query: Query, slot: str, part: int = 0) -> Answer:
        """The sum of all sites' answers, with the law of their noise together."""
        if isinstance(query, Search):
            return self._searched(query, slot)
        if query.kind != "sum" or part:
            raise PlanError(f"{query.name!r} is no sum of all rows: sites cannot add it up.")
        found = self._each(query, slot)
        self._released(query, slot, tuple(found))
        if isinstance(query, WhitenedScore) and not query.inner:
            self._score = query, slot, found
        factor, law = self._law(query, slot, found)
        return Answer(np.asarray(factor * sum(found.values())), law)

    def _searched(self, search: Search, slot: str) -> Answer:
        """A bisection by the signs of all sites' balances together."""
        answered = tuple(self.sites)

        def compare(at: int) -> float:
            found = self._each(search, slot, at)
            factor, _ = self._law(search, slot, found)
            return factor * float(sum(float(v[0]) for v in found.values()))

        _, law = self._law(search, slot, {site: np.zeros(1) for site in answered})
        place = bisected(search.candidates.size, compare, law.scale)
        self._released(search, slot, answered)
        return Answer(search.decode(np.array([place])), law)

    def _law(self, query: Query, slot: str, found: Mapping[str, Array]) -> tuple[float, NoiseLaw]:
        """What sums of these sites are multiplied by, and the law of the noise after that."""
        rows = self.shares.rows
        factor = sum(rows.values()) / sum(rows[site] for site in found)
        if isinstance(query, Squares):  # the variance of a sum that is multiplied, too
            factor **= 2
        scales = [self._plans[site].noise(query, slot).scale for site in found]
        return factor, NoiseLaw("gaussian", factor * math.hypot(*scales))

    def rescale(self, design: Design, found: Mapping[int, tuple[float, float]]) -> None:
        """Let every site hold its rows in other units."""
        pairs = {str(place): (float(c), float(s)) for place, (c, s) in found.items()}
        if pairs:
            self._replied(dict.fromkeys(self.plans, Step(self._nonce, 0, found=pairs)))

    @property
    def plans(self) -> Mapping[str, Plan]:
        """What each site planned that is still there, the target first."""
        return {site: self._plans[site] for site in self.sites if site not in self.lost}

    def each(self, queries: Mapping[str, Query], slot: str, part: int = 0) -> dict[str, Answer]:
        """Each site's own answer to its own question."""
        found = self._replied(
            {
                site: Step(self._nonce, 0, slot, query_to_dict(q), part)
                for site, q in queries.items()
            }
        )
        for site in found:
            self._released(queries[site], slot, [site], part)
        return {
            site: Answer(value, self._plans[site].noise(queries[site], slot))
            for site, value in found.items()
        }

    def _each(self, query: Query, slot: str, at: int | None = None) -> dict[str, Array]:
        """Every site's answer to one question; those of another shape than the target's are none.

        Raises
        ------
        DataError
            If the target does not answer any more.
        """
        step = Step(self._nonce, 0, slot, query_to_dict(query), at=at)
        found = self._replied(dict.fromkeys(self.plans, step))
        target = self.shares.question.privacy.target
        for site in [s for s in found if found[s].shape != found[target].shape]:
            self.lost[site] = f"at step {self._number}: a sum of another shape."
            del found[site]
        return found

    def _replied(self, steps: Mapping[str, Step]) -> dict[str, Array]:
        """What sites reply that are still there; who does not is lost."""
        self._number += 1
        messages = {
            site: replace(step, number=self._number).to_bytes()
            for site, step in steps.items()
            if site not in self.lost
        }
        replies, found = self.send(messages), dict[str, Array]()
        for site in messages:
            try:
                found[site] = self._checked(site, replies.get(site))
            except DPStatsError as error:
                self.lost[site] = f"at step {self._number}: {error}"
                self._late |= {site} if replies.get(site) is None else set()
        target = self.shares.question.privacy.target
        if target in self.lost:
            raise DataError(f"The target {target!r} stopped answering {self.lost[target]}")
        return found

    @property
    def _nonce(self) -> str:
        return self.shares.question.nonce

    def _checked(self, site: str, message: bytes | None) -> Array:
        if message is None:
            raise DataError("no reply in time.")
        reply = Sum.from_bytes(message)
        if reply.status != "answered":
            raise DataError(f"refused: {reply.reason}.")
        if (reply.site, reply.nonce, reply.number) != (site, self._nonce, self._number):
            raise DataError("an answer to another step.")
        return reply.value

    def _released(self, query: Query, slot: str, sites: Sequence[str], part: int = 0) -> None:
        for site in sites:
            plan = self._plans[site]
            sensitivity = query.sensitivity(plan.neighbors, plan.max_rows)
            scale, event = plan.noise(query, slot).scale, plan.mechanism(slot).event
            self._transcript[site].append(
                Release(slot, query.name, query.parameters(), sensitivity, scale, event, part)
            )
        if self.report is not None:
            self.report(slot)

    def close(self) -> None:
        """Tell the sites that nothing more is asked, but those that are late: no second wait."""
        self._number += 1
        last = Step(self._nonce, self._number).to_bytes()
        self.send({site: last for site in self.sites if site not in self._late})

    # -- are they alike? --------------------------------------------------------------------

    def estimate(self, made: CoefficientEstimate, absent: Absent) -> SummedEstimate:
        """The estimate, with what each site gave and whether it differs from the others."""
        from scipy.stats import chi2

        privacy, rows = self.shares.question.privacy, self.shares.rows
        d = made.params.size
        apart = {k: (v, float(chi2.sf(v, d))) for k, v in self._distances().items()}
        apart |= made.released.get("distances", {})
        shares = []
        for site in dict.fromkeys([*rows, *absent]):
            budget = privacy.at(site)
            aside = site in made.released.get("set aside", ())
            status, why = absent.get(site, ("set aside" if aside else "answered", ""))
            if site in self.lost:
                status, why = "lost", self.lost[site]
            (distance, p), n = apart.get(site, (math.nan, math.nan)), rows.get(site, 0)
            shares.append(
                SiteShare(site, n, budget.epsilon, budget.delta, distance, p, status, why)
            )
        given = {f.name: getattr(made, f.name) for f in fields(CoefficientEstimate)}
        given["remarks"] = (*_remarks(shares, self._score is not None), *made.remarks)
        return SummedEstimate(**given, sites=tuple(shares))

    def _distances(self) -> dict[str, float]:
        """How far each site's last whole score is from its share of all sites', squared.

        In units of its variance where sites are alike, so that it is about chi-squared with d
        degrees of freedom: scores are at most `clip` long, and noise is known.
        """
        if self._score is None:
            return {}
        query, slot, found = self._score
        d, n = next(iter(found.values())).size, sum(self.shares.rows[s] for s in found)
        noise = {s: self._plans[s].noise(query, slot).sd ** 2 for s in found}
        total, every = sum(found.values()), sum(noise.values())
        distances = {}
        for site, score in found.items():
            share = self.shares.rows[site] / n
            sampling = self.shares.rows[site] * (1 - share) * query.clip**2 / d
            private = (1 - 2 * share) * noise[site] + share**2 * every
            off = score - share * total
            distances[site] = float(off @ off) / max(sampling + private, 1e-300)
        return distances


def _remarks(shares: Sequence[SiteShare], summed: bool) -> list[str]:
    """That nobody helps, that sites differ, and who is missing."""
    found = [s for s in shares if s.status == "answered"]
    tested = summed and len(found) > 1
    apart = [s.site for s in found if tested and s.p < _APART / len(found)]
    lines = []
    if sum(s.status in _ASKED for s in shares) == 1:
        lines.append(f"No other site answered: this is the fit of {found[0].site} alone.")
    if apart:
        lines.append(
            f"Sites differ: {', '.join(apart)} from all sites together, by a test at "
            f"{_APART:.0%}. The estimate is of all of them and of none: leave them out, or ask "
            "for whole fits, combine='blend'."
        )
    if gone := [f"{s.site} ({s.status})" for s in shares if s.status not in _ASKED]:
        lines.append(f"Without {', '.join(gone)}: the sums of the other sites stand for all rows.")
    return lines
