"""Progress of a fit on standard error, from public facts only."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from dpstats.protocol.plan import Plan

__all__ = ["Progress", "reading", "reporter"]

_DELAY = 2.0  # seconds that pass before a bar is shown that nobody asked for


class Progress:
    """A bar of the statistics that a fit releases, and one of the rows that it reads before.

    On a terminal or in a notebook; elsewhere one line a statistic.

    Parameters
    ----------
    total : int
        How many statistics are planned.
    delay : float
        Seconds that pass before a bar is shown.
    """

    def __init__(self, total: int, delay: float = 0.0) -> None:
        self._total, self._done, self._delay = total, 0, delay
        self._live = _is_watched()
        self._bar: Any = None

    def __call__(self, slot: str) -> None:
        """One statistic was released."""
        self._done += 1
        if not self._live:
            print(f"[{self._done}/{self._total}] released {slot}", file=sys.stderr, flush=True)
            return
        if self._bar is None:
            self._bar = _bar(self._total, "released", " statistics", self._delay)
        self._bar.set_postfix_str(slot, refresh=False)
        self._bar.update()
        if self._done == self._total:
            self._bar.close()

    def reading(self, rows: int) -> Callable[[int], None] | None:
        """What is to be called with a number of rows after each batch of so many."""
        if not self._live:
            return None
        bar = _bar(rows, "read", " rows", self._delay)

        def read(more: int) -> None:
            bar.update(more)
            if bar.n >= rows:
                bar.close()

        return read


def _bar(total: int, what: str, unit: str, delay: float) -> Any:
    from tqdm.auto import tqdm

    return tqdm(total=total, desc=what, unit=unit, unit_scale=total > 10_000, delay=delay)


def _is_watched() -> bool:
    """Whether somebody looks on: standard error is a terminal, or a notebook shows it."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


def reading(rows: int, progress: bool | None) -> Callable[[int], None] | None:
    """What is to be called with a number of rows after each batch that is read before a plan."""
    if progress is False:
        return None
    return Progress(0, _DELAY if progress is None else 0.0).reading(rows)


def reporter(plan: Plan, progress: bool | None) -> Progress | None:
    """Progress on standard error; nothing in it but public facts, and how long a fit takes."""
    if progress is None and not _is_watched():
        return None
    delay = _DELAY if progress is None else 0.0
    return None if progress is False else Progress(sum(m.parts for m in plan.mechanisms), delay)
