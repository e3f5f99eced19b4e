"""What holders share: the plan that they answer, and the record of what they said."""

from __future__ import annotations

from collections.abc import Callable

from dpstats.mechanisms.noise import Noise
from dpstats.protocol import Plan, Release

__all__ = ["RecordingHolder"]


class RecordingHolder:
    """A holder with a plan, a source of noise and a transcript.

    Parameters
    ----------
    plan : Plan
        The mechanisms that may be used, each once; already charged.
    noise : Noise
        Source of noise.
    on_answer : callable, optional
        Called with the slot after each answer; for progress.

    Attributes
    ----------
    reproducible : bool
        Whether the noise is seeded, so that nothing here is private.
    """

    remarks: tuple[str, ...] = ()  # what results must say of the holder
    marked = 0  # messages whose senders say that they are drawn from a seed

    def __init__(
        self, plan: Plan, noise: Noise, on_answer: Callable[[str], None] | None = None
    ) -> None:
        self._plan = plan
        self._noise = noise.start()
        self.reproducible = noise.reproducible
        self._on_answer = on_answer
        self._transcript: list[Release] = []

    @property
    def plan(self) -> Plan:
        """What may be asked. Public."""
        return self._plan

    @property
    def transcript(self) -> tuple[Release, ...]:
        """Every answer given: question, sensitivity, noise. Public."""
        return tuple(self._transcript)

    def _note(self, release: Release) -> None:
        self._transcript.append(release)
        if self._on_answer is not None:
            self._on_answer(release.slot)
