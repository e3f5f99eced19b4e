"""What a charge would write, and why it is refused: checked before anything is written or read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

from dpstats.accounting.chain import Chain, Entry, now, pair
from dpstats.accounting.composition import epsilon_of, is_within
from dpstats.accounting.events import Event
from dpstats.accounting.standing import room
from dpstats.errors import BudgetError, LedgerError, PlanError, given, need_text

__all__ = ["Chargeable", "check_same_promise", "entry_of", "refusal"]


class Chargeable(Protocol):
    """What a charge reads of a `Plan`: public facts only."""

    @property
    def model(self) -> str:
        """Model, such as ``"ols"``."""
        ...

    @property
    def method(self) -> str:
        """Method, such as ``"dp-newton"``."""
        ...

    @property
    def privacy(self) -> Any:
        """The guarantee asked for: epsilon, delta, neighbors."""
        ...

    @property
    def events(self) -> Sequence[Event]:
        """Every use of noise."""
        ...

    @property
    def unit(self) -> str:
        """What is protected: ``"record"``, a unit that owns several, or a response."""
        ...


def refusal(chain: Chain, entry: Entry) -> BudgetError:
    """Requested, remaining and difference: remaining is what this very plan could ask for."""
    requested = (entry.epsilon, entry.delta)
    ceiling = chain.header.ceiling
    possible = room(chain, entry.events, entry.delta)
    left, total = possible[0], (chain.composed.then(entry.events).cost, ceiling[1])
    advice = (
        "A ledger with delta=0 pays for fits with delta=0 only."
        if math.isinf(total[0])
        else "Ask for at most what remains."
    )
    return BudgetError(
        f"The ledger cannot pay for this {entry.model} fit. requested: epsilon={entry.epsilon:.6g} "
        f"(delta={entry.delta:g}); remaining: epsilon={left:.6g}; difference: "
        f"{entry.epsilon - left:.6g}. All {len(chain.entries)} entries and this one would cost "
        f"{pair(total)}, and the ceiling is {pair(ceiling)}. "
        f"Nothing was charged and no row was read. {advice}",
        requested=requested,
        remaining=possible,
    )


def entry_of(plan: Chargeable, label: str, unit: str | None) -> Entry:
    """The entry that `plan` would be, not yet numbered; refused unless its cost is as stated."""
    if not (hasattr(plan, "privacy") and hasattr(plan, "events")):
        raise PlanError(f"{given(plan)} is no plan: model.plan(...) makes one.")
    need_text(label=label, **({} if unit is None else {"unit": unit}))
    privacy, events = plan.privacy, tuple(plan.events)
    if not events:
        raise PlanError("The plan lists no mechanism: there is nothing to charge.")
    epsilon, delta = float(privacy.epsilon), float(privacy.delta)
    if not is_within(events, epsilon, delta):
        raise PlanError(
            f"The plan states {pair((epsilon, delta))}, but its mechanisms cost "
            f"{pair((epsilon_of(events, delta), delta))}. Nothing was charged."
        )
    relation = getattr(privacy, "neighbors", None) or privacy.trust
    return Entry(
        id=0,
        time=now(),
        label=label,
        model=plan.model,
        method=plan.method,
        epsilon=epsilon,
        delta=delta,
        neighbors=str(getattr(relation, "value", relation)),
        unit=unit or getattr(plan, "unit", None) or "record",
        events=events,
    )


def check_same_promise(chain: Chain, entry: Entry) -> None:
    """One ledger, one promise: costs under different neighbours or units are not one number."""
    if not chain.entries:
        return
    first = chain.entries[0]
    for what, kept, asked in [
        ("neighbours", first.neighbors, entry.neighbors),
        ("the unit of privacy", first.unit, entry.unit),
    ]:
        if kept != asked:
            raise LedgerError(
                f"This ledger counts {what} {kept!r}, and the fit asks for {asked!r}. Costs under "
                "the two do not add up to one guarantee. Nothing was charged. Ask for "
                f"{kept!r}, or keep a second ledger and report both."
            )
