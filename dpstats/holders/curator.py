"""One curator holds the rows, answers planned queries with noise, and keeps a transcript."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting import Gaussian
from dpstats.design import Nobody
from dpstats.errors import PlanError, scrubbed
from dpstats.holders.rows import ResidentRows
from dpstats.holders.transcript import RecordingHolder
from dpstats.mechanisms.lots import Lots
from dpstats.mechanisms.noise import Noise
from dpstats.mechanisms.release import release
from dpstats.privacy import Central, Neighbors
from dpstats.protocol import Answer, Plan, Release

if TYPE_CHECKING:
    from dpstats.design import Design, Source
    from dpstats.holders.store import OpenStore
    from dpstats.queries import Query, Search

__all__ = ["Curator"]

Array = NDArray[np.float64]


class Curator(RecordingHolder):
    """Holder of one table for one fit.

    Rows are mapped into the declared domain and put on a public grid by a store, which keeps them
    until the fit ends. Every answer is exact until its noise is added, whatever the order of rows,
    the number of threads or the store. Where the number of rows is private no table is too
    small or too large to be answered: nothing is then answered as one incomplete row, which
    contributes zero to every sum; a sum has no largest size, and noise is added to one that is too
    long for its steps at the largest number of steps (`dpstats.mechanisms.release`).

    Parameters
    ----------
    source : Source
        Private rows behind the design, from ``design.source(table)``.
    design : Design
        Public design.
    plan : Plan
        The mechanisms that may be used, each once; already charged.
    noise : Noise
        Source of noise.
    on_answer : callable, optional
        Called with the slot after each answer; for progress.
    store : callable, default ResidentRows
        Makes the store of the rows: see `dpstats.holders.store`.

    Raises
    ------
    DataError
        On names, types or shape; never on values.
    """

    @scrubbed
    def __init__(
        self,
        source: Source,
        design: Design,
        plan: Plan,
        noise: Noise,
        on_answer: Callable[[str], None] | None = None,
        store: OpenStore = ResidentRows,
    ) -> None:
        if not isinstance(plan.privacy, Central):
            raise PlanError(f"A curator answers Central plans, not {plan.privacy.trust!r} ones.")
        super().__init__(plan, noise, on_answer)
        self._neighbors = plan.privacy.neighbors
        self._max_rows = 1 if design.schema is None else design.schema.max_rows or 1
        if plan.max_rows != self._max_rows:
            raise PlanError(
                f"The plan is for {plan.max_rows} rows a unit, and the schema declares "
                f"{self._max_rows}: plan again with this schema."
            )
        self._answered: set[tuple[str, int]] = set()
        self._searched: dict[str, list[int]] = {}  # comparisons, and those left
        self._source = source if len(source) else Nobody(source, design)
        self._lots = Lots(self._noise, len(self._source))
        self._open = store
        self._rows = store(self._source, design, self._max_rows, self._lots)
        self._of_units = design.schema is not None and design.schema.unit is not None

    @scrubbed
    def rescale(self, design: Design, found: Mapping[int, tuple[float, float]]) -> None:
        """Hold the same rows in the coordinates of a design with released scales."""
        source = design.reread(self._source)
        del self._rows  # before the others are there
        self._rows = self._open(source, design, self._max_rows, self._lots)

    def foresee(self, queries: Sequence[Query]) -> None:
        """These are asked next, of all rows: they may be read once for all of them."""
        self._rows.foresee(queries)

    @scrubbed
    def ask(self, query: Query, slot: str, part: int = 0) -> Answer:
        """Answer `query` once with the noise planned under `slot`; see `Holder.ask`."""
        mechanism = self._plan.mechanism(slot)
        cut = mechanism.cut(part)
        if (slot, part) in self._answered or part not in range(mechanism.parts):
            raise PlanError(
                f"{slot!r} (part {part}) was already answered or never planned; each planned "
                "mechanism may be used once."
            )
        # Lots, not positions, decide which rows make a part, and which of them make a pair.
        dealt = cut[1] > 1 or query.by_lots
        if dealt and (
            self._max_rows > 1 or self._of_units or self._neighbors is not Neighbors.REPLACE_ONE
        ):
            raise PlanError(
                "Disjoint parts and pairs need replace-one neighbours and one row per unit: a "
                "unit's rows may straddle them, and one row more would move every cut."
            )
        self._answered.add((slot, part))
        sensitivity = query.sensitivity(self._neighbors, self._max_rows)
        answer = self._rows.answer(query, cut if dealt else None)
        noisy, scale = release(
            answer, sensitivity, mechanism.event, self._noise, query.kind, query.norm
        )
        self._note(
            Release(slot, query.name, query.parameters(), sensitivity, scale, mechanism.event, part)
        )
        return Answer(query.decode(noisy), self._plan.noise(query, slot))

    @scrubbed
    def compare(self, search: Search, slot: str, at: int) -> Answer:
        """One comparison of a search: the noisy balance of its candidate at a position.

        For who steers a search over several curators, and so adds up their balances. The first
        comparison uses up `slot`: it may be asked as often as its search has comparisons, and
        nothing else.

        *Guarantee.* A balance has the sensitivity that `search` computes. With R comparisons each
        has noise of sqrt(R) times the planned multiplier z, and at most R are answered, whichever
        they are: an adaptive composition of R Gaussian mechanisms of multiplier sqrt(R) z, which
        is one of multiplier z (Dong, Roth & Su 2022, Corollary 3.3).

        Raises
        ------
        PlanError
            If the slot is not one Gaussian mechanism on all rows, or is used up; or there is no
            such candidate.
        """
        mechanism, rounds = self._plan.mechanism(slot), search.comparisons
        left = self._searched.get(slot)
        new = left is None and (slot, 0) not in self._answered
        whole = mechanism.branch == 0 and mechanism.parts == 1
        if not (new or (left is not None and left[0] == rounds and left[1] > 0)) or not whole:
            raise PlanError(
                f"{slot!r} was answered, or is of another search: ask what was planned."
            )
        if at not in range(1, 2**rounds) or not isinstance(mechanism.event, Gaussian):
            raise PlanError(f"{slot!r}: a Gaussian search compares candidates between its ends.")
        self._answered.add((slot, 0))
        left = self._searched.setdefault(slot, [rounds, rounds])
        left[1] -= 1
        sensitivity = search.sensitivity(self._neighbors, self._max_rows)
        event = Gaussian(mechanism.event.noise_multiplier * math.sqrt(rounds))
        balance = self._rows.answer(search, None)[at : at + 1]
        noisy, scale = release(balance, sensitivity, event, self._noise)
        self._note(Release(slot, search.name, search.parameters(), sensitivity, scale, event))
        return Answer(noisy, self._plan.noise(search, slot))
