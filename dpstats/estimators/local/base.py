"""What methods for devices share: rounds of messages, and a plan that charges each device once.

A method here is a function from the messages received so far to the next question
(`LocalMethod`), so it runs alike on simulated devices, on messages from the wire, and on a server
that stops between rounds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting import Event, epsilon_of
from dpstats.errors import OptionError
from dpstats.privacy import Local
from dpstats.protocol import Estimate, LocalHolder, LocalMethod, Mechanism, Messages, Plan, Question

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["Rounds", "local_plan", "round_sizes"]

Array = NDArray[np.float64]

SLOT = "messages"


def round_sizes(n: int, shares: Sequence[float]) -> list[int]:
    """Numbers of users in rounds that take these shares of n; they add up to n.

    Raises
    ------
    OptionError
        If a round would be empty.
    """
    ends = np.rint(np.cumsum(shares) / sum(shares) * n).astype(int)
    sizes = [int(size) for size in np.diff(ends, prepend=0)]
    if min(sizes) < 1:
        raise OptionError(
            f"{n} users for {len(sizes)} rounds: every round needs at least one user. Ask for "
            "fewer rounds, or for more users."
        )
    return sizes


def local_plan(
    method: LocalMethod,
    design: Design,
    privacy: Local,
    n: int,
    event: Event,
    *,
    shares: Sequence[float] = (1.0,),
    options: Mapping[str, Any],
    predicted_se: tuple[float, ...] = (),
    privacy_share: float = float("nan"),
    assumptions: tuple[str, ...] = (),
    warnings: tuple[str, ...] = (),
) -> Plan:
    """The plan of a method whose users send one message each, in rounds of these shares of them.

    Parameters
    ----------
    event : Event
        Cost of one message; that of the channel in every `Question` of the method.
    shares : sequence of float
        Shares of the users in each round. They are in ``plan.options["shares"]``.
    """
    round_sizes(n, shares)
    mechanism = Mechanism(SLOT, event, "one randomised message from each device", parts=len(shares))
    return Plan(
        model=method.model,
        method=method.name,
        privacy=privacy,
        n=n,
        names=tuple(design.names),
        mechanisms=(mechanism,),
        cost=(epsilon_of([event], privacy.delta), privacy.delta),
        options={**options, "shares": tuple(float(share) for share in shares)},
        predicted_se=predicted_se,
        privacy_share=privacy_share,
        assumptions=assumptions,
        warnings=warnings,
    )


class Rounds(ABC):
    """Fit of a `LocalMethod`: ask, collect, ask again, finish."""

    def public_moments(self, design: Design, plan: Plan, rows: Array) -> Array:
        """Weighted second moments of public rows; a method that has no use for them refuses."""
        name = getattr(self, "name", "this method")
        raise OptionError(f"method={name!r} takes no public rows: leave public=... out.")

    @abstractmethod
    def question(
        self, design: Design, plan: Plan, answers: Sequence[Messages], public: Array | None
    ) -> Question | None:
        """See `LocalMethod.question`."""

    @abstractmethod
    def finish(
        self, design: Design, plan: Plan, answers: Sequence[Messages], public: Array | None
    ) -> Estimate:
        """See `LocalMethod.finish`."""

    def fit(self, holder: LocalHolder, design: Design, plan: Plan) -> Estimate:
        """Ask every round of devices, then finish."""
        answers: list[Messages] = []
        while (question := self.question(design, plan, answers, holder.public)) is not None:
            answers.append(holder.collect(question, len(answers)))
        return self.finish(design, plan, answers, holder.public)
