"""Where a ledger stands: what was asked, what it composes to, and what one more fit could have."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from dpstats.accounting.chain import Budget, Chain, pair
from dpstats.accounting.composition import epsilon_of, largest, scaled
from dpstats.accounting.events import Event, Gaussian, Laplace
from dpstats.accounting.filter import Composition
from dpstats.errors import PlanError
from dpstats.privacy import NOT_PRIVATE

__all__ = ["LedgerState", "remaining", "room", "spent", "state_of", "statement"]

# Share of the ceiling below which what remains is reported as 0. Costs add up like squares, so a
# calibration that is short of the ceiling by its rounding, 1e-6, seems to leave 1e-3 of it.
_NOTHING = 2e-3
_FAINT = 1e4  # times the noise of a fit: where not even this is admitted, nothing is left


@dataclass(frozen=True, slots=True)
class LedgerState:
    """A ledger at one moment, for a summary.

    Attributes
    ----------
    path : str or None
        Where it is kept, None in memory.
    ceiling, spent, remaining : tuple of float
        (epsilon, delta); see `Ledger`.
    asked : tuple of float
        The epsilons and the deltas of all charges, just added up.
    another : tuple of float
        What one more fit of the last one's kind could have, up to the ceiling's epsilon: the same
        mechanisms, all with more or all with less noise, at the same delta. Before the first
        charge, `remaining`.
    persistent : bool
        Whether it outlives the process.
    entries, reproducible : int
        Number of charges, and of those whose noise was seeded.
    witness : str
        Count and hash that identify this moment; see `Ledger.witness`.
    """

    path: str | None
    ceiling: Budget
    spent: Budget
    remaining: Budget
    asked: Budget
    another: Budget
    persistent: bool
    entries: int
    reproducible: int
    witness: str

    def sentence(self) -> str:
        """What was asked, what it composes to, and what another fit could have."""
        budgets = self.ceiling, self.spent, self.asked, self.another
        return statement(self.entries, self.reproducible, *budgets)


def statement(
    entries: int,
    reproducible: int,
    ceiling: Budget,
    spent: Budget,
    asked: Budget | None,
    another: Budget | None,
) -> str:
    """Where a ledger stands, for a reader who adds up.

    Parameters
    ----------
    entries, reproducible, ceiling, spent, asked, another
        As in `LedgerState`; None where it was not recorded.
    """
    text = f"ceiling {pair(ceiling, 4)}."
    if entries:
        added = "" if asked is None else f"asked for {pair(asked, 4)} in all, "
        charges = f"{entries:,} charge{'s' * (entries > 1)}"
        text += f" {charges} so far: {added}composed {pair(spent, 4)}."
    if another is not None:
        plainest = "Gaussian" if ceiling[1] > 0 else "Laplace"
        fit = "One more fit of this kind" if entries else f"A fit with {plainest} noise"
        if another[0] == 0:
            text += f" {fit} would pass the ceiling."
        else:
            reason = ": costs compose, they do not just add up." if entries else "."
            text += f" {fit} could have {pair(another, 4)}{reason}"
    if reproducible:
        text += f" Charges with seeded noise ({NOT_PRIVATE}): {reproducible:,}."
    return text


def state_of(chain: Chain, path: Path | None) -> LedgerState:
    """The state of a verified ledger that is kept at `path`, or in memory."""
    return LedgerState(
        path=None if path is None else str(path),
        ceiling=chain.header.ceiling,
        spent=spent(chain),
        remaining=remaining(chain),
        asked=_asked(chain),
        another=_another(chain),
        persistent=path is not None,
        entries=len(chain.entries),
        reproducible=sum(entry.reproducible is True for entry in chain.entries),
        witness=chain.witness,
    )


def spent(chain: Chain) -> Budget:
    """Cost of all entries together; (0, 0) where there are none."""
    return (chain.composed.cost, chain.header.delta) if chain.entries else (0.0, 0.0)


def _asked(chain: Chain) -> Budget:
    entries = chain.entries
    return math.fsum(e.epsilon for e in entries), math.fsum(e.delta for e in entries)


def remaining(chain: Chain) -> Budget:
    """Largest further fit of the plainest kind: Gaussian noise, or Laplace where delta is 0."""
    delta = chain.header.delta
    return room(chain, (Gaussian(1.0) if delta > 0 else Laplace(1.0),), delta)


def _another(chain: Chain) -> Budget:
    if not chain.entries:
        return remaining(chain)
    return room(chain, chain.entries[-1].events, chain.entries[-1].delta)


def room(chain: Chain, shape: tuple[Event, ...], delta: float) -> Budget:
    """The largest further fit of this `shape`, at its delta; (0, 0) where nothing is left."""
    left = _largest_fit(chain.composed, shape, delta)
    return (left, delta) if left > 0 else (0.0, 0.0)


@lru_cache(maxsize=256)
def _largest_fit(spent: Composition, shape: tuple[Event, ...], delta: float) -> float:
    """Epsilon at `delta` of the least noisy multiple of `shape` that still is admitted."""

    def excess(strength: float) -> float:
        return -1.0 if spent.then(scaled(shape, 1 / strength)).admitted else 1.0

    try:
        faint = epsilon_of(scaled(shape, _FAINT), delta)
        if faint <= _NOTHING * spent.epsilon and excess(1 / _FAINT) > 0:
            return 0.0  # as the search would find, hundreds of steps later
        strength = largest(excess, start=1.0, tolerance=1e-7)
    except PlanError:  # however noisy, nothing fits
        return 0.0
    left = min(epsilon_of(scaled(shape, 1 / strength), delta), spent.epsilon)
    return left if left > _NOTHING * spent.epsilon else 0.0
