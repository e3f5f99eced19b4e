"""One curator holds the rows, answers planned queries with noise, and keeps a transcript."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.design import Nobody
from dpstats.errors import PlanError
from dpstats.holders.rows import ResidentRows
from dpstats.holders.sealed import sealed
from dpstats.holders.transcript import Transcribed
from dpstats.mechanisms.lots import Lots
from dpstats.mechanisms.noise import Noise
from dpstats.mechanisms.release import release
from dpstats.privacy import Central, Neighbors
from dpstats.protocol import Answer, Plan, Release

if TYPE_CHECKING:
    from dpstats.design import Design, Source
    from dpstats.holders.store import OpenStore
    from dpstats.queries import Query

__all__ = ["Curator"]

Array = NDArray[np.float64]


class Curator(Transcribed):
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

    @sealed
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
        rows = source if len(source) else Nobody(source, design)
        self._rows = store(rows, design, self._max_rows, Lots(self._noise, len(rows)))
        self._of_units = design.schema is not None and design.schema.unit is not None

    @sealed
    def ask(self, query: Query, slot: str, part: int = 0) -> Answer:
        """Answer `query` once with the noise planned under `slot`; see `Holder.ask`."""
        mechanism = self._plan.mechanism(slot)
        cut = (mechanism.branch - 1, 2) if mechanism.branch else (part, mechanism.parts)
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
