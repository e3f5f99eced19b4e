"""Progress of a fit on standard error, from public facts only."""

from __future__ import annotations

import sys
from collections.abc import Callable

from dpstats.protocol.plan import Plan

__all__ = ["reporter"]


def reporter(plan: Plan, progress: bool | None) -> Callable[[str], None] | None:
    """Progress on standard error; it depends on public facts only."""
    if progress is None:
        progress = sys.stderr.isatty() and plan.n * len(plan.names) > 20_000_000
    if not progress:
        return None
    total = sum(m.parts for m in plan.mechanisms)
    done = 0

    def report(slot: str) -> None:
        nonlocal done
        done += 1
        print(f"[{done}/{total}] released {slot}", file=sys.stderr, flush=True)

    return report
