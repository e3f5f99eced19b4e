"""How long to wait before looking again."""

from __future__ import annotations

import time

__all__ = ["Pace"]


class Pace:
    """Longer and longer, so that who is asked has nothing to do.

    From 0.05 seconds, half as long again each time, up to one.
    """

    def __init__(self) -> None:
        self._seconds = 0.05

    def wait(self) -> None:
        """Until it is time to look again."""
        time.sleep(self._seconds)
        self._seconds = min(1.5 * self._seconds, 1.0)
