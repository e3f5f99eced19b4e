"""Progress of a fit on standard error, from public facts only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from dpstats.protocol.plan import Plan

__all__ = ["Progress", "computed", "reading_reporter", "reporter", "watched"]

_DELAY = 2.0  # seconds that pass before a bar is shown that nobody asked for
_AGAIN = 0.1  # seconds between two looks of a bar
_COMPUTING = "fitting what was released"
_CURRENT: ContextVar[Progress | None] = ContextVar("progress", default=None)


class Progress:
    """A bar of the statistics that a fit releases, and one of the rows that it reads before.

    On a terminal or in a notebook; elsewhere one line a statistic. The bar stands until the fit is
    done (`watched`), and says so where the numbers that were released take long to be fitted.

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
        self._next = 0.0  # when a step of a computation is shown again

    def __call__(self, slot: str) -> None:
        """One statistic was released."""
        self._done += 1
        if not self._live:
            print(f"[{self._done}/{self._total}] released {slot}", file=sys.stderr, flush=True)
            return
        if self._bar is None:
            self._bar = _bar(self._total, "released", " statistics", self._delay)
            self._next = time.monotonic() + self._delay
        self._bar.set_postfix_str(slot, refresh=False)
        self._bar.update()

    def computed(self) -> None:
        """A step of a computation on released numbers was made."""
        now = time.monotonic()
        if self._bar is not None and now >= self._next:
            self._bar.set_postfix_str(_COMPUTING)
            self._next = now + _AGAIN

    def close(self) -> None:
        """The fit is done, or failed."""
        if self._bar is not None:
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


def reading_reporter(rows: int, progress: bool | None) -> Callable[[int], None] | None:
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


@contextmanager
def watched(progress: Progress | None) -> Iterator[None]:
    """While a fit runs: `computed` reaches its bar, which is closed in the end."""
    token = _CURRENT.set(progress)
    try:
        yield
    finally:
        _CURRENT.reset(token)
        if progress is not None:
            progress.close()


def computed() -> None:
    """Say that a step of a computation on released numbers was made, if a bar is there."""
    progress = _CURRENT.get()
    if progress is not None:
        progress.computed()
