"""What methods for devices share: rounds of messages, and a plan that charges each device once.

A method here is a function from the messages received so far to the next question
(`LocalMethod`), so it runs alike on simulated devices, on messages from the wire, and on a server
that stops between rounds.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting import Event, epsilon_of
from dpstats.errors import OptionError, TrustError
from dpstats.estimators.base import Method
from dpstats.estimators.counters import ASTRAY, CHANCE, counters_of, error_of_count, shares_astray
from dpstats.estimators.local.pool import AnsweredQuestion
from dpstats.estimators.local.requests import device_question
from dpstats.privacy import Local, Privacy
from dpstats.protocol import (
    CoefficientEstimate,
    DeviceQuestion,
    Estimate,
    LocalHolder,
    Mechanism,
    Messages,
    NoiseLaw,
    Options,
    Plan,
)
from dpstats.queries import AstrayMessage, MomentMessage

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["DeviceRounds", "Once", "PooledRounds", "round_sizes", "without_law"]

Array = NDArray[np.float64]

SLOT = "messages"
_INSTEAD = "which value is outside of what is declared, or missing, in place of it: by a coin"
_WHICH = (
    "About {:.0%} of the records have a value that is outside of its declared range, and was moved "
    "to its ends, or missing; which ones the devices that count are too few to tell."
)
_SOMEWHERE = 0.5  # wording: share of records with a value astray that is said, whichever it is


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


class DeviceRounds(Method):
    """A method for devices: plans what a message costs, asks, collects, asks again, finishes."""

    model: ClassVar[str] = "ols"
    interactive: ClassVar[bool] = True  # whether devices are asked in rounds, or all at once
    counting: ClassVar[bool] = True  # whether some devices say what is astray, in place of it
    effect_of_gaps: ClassVar[str] = "and their rows count as nothing"
    subsets: ClassVar[bool] = False  # whether devices outside of a subset weigh nothing in it

    def serves(self, privacy: Privacy) -> bool:
        """Whether it is made for this guarantee: devices are asked once, or in rounds."""
        return isinstance(privacy, Local) and privacy.interactive == self.interactive

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        if not isinstance(privacy, Local):
            raise TrustError(
                f"method={self.name!r} is for Local(...), not {privacy.trust!r} trust."
            )
        if design.subset is not None and not self.subsets:
            raise OptionError(
                f"subset={design.subset!r}: method={self.name!r} takes a device outside for one in "
                "the middle. Under Local(...) proportion, histogram, quantile, and ols and logit "
                "of all columns, take a subset; the mean is that of ols('y ~ 1')."
            )
        if self.interactive and not privacy.interactive:
            raise TrustError(
                f"method={self.name!r} asks devices in rounds: say "
                f"Local(epsilon={privacy.epsilon:g}, interactive=True). "
                "dpstats.methods(trust='local') lists what asks them once."
            )
        return self._local_plan(design, privacy, n, options)

    @abstractmethod
    def _local_plan(self, design: Design, privacy: Local, n: int, options: Options) -> Plan:
        """The plan under a guarantee that the method is made for."""

    def _charged(
        self,
        design: Design,
        privacy: Local,
        n: int,
        event: Event,
        options: Options,
        shares: Sequence[float] = (1.0,),
    ) -> Plan:
        """The plan of one message from each user, in rounds of these shares of them.

        `event` is the cost of one message: that of the channel in every question of the method.
        The shares are in ``plan.options["shares"]``.
        """
        round_sizes(n, shares)
        purpose, parts = "one randomised message from each device", len(shares)
        plan = Plan(
            model=self.model,
            method=self.name,
            privacy=privacy,
            n=n,
            names=tuple(design.names),
            mechanisms=(Mechanism(SLOT, event, purpose, parts),),
            cost=(epsilon_of([event], privacy.delta), privacy.delta),
            options={**options, "shares": tuple(float(share) for share in shares)},
        )
        count = AstrayMessage(len(design.inputs))
        counters = 0
        if self.counting and count.possible and design.by_value:
            counters = counters_of(count.channel(privacy.epsilon), n)
        if not counters:
            return plan
        instead = Mechanism(ASTRAY, count.channel(privacy.epsilon).event, _INSTEAD, parts, branch=2)
        return replace(
            plan,
            mechanisms=(replace(plan.mechanisms[0], branch=1), instead),
            options={**plan.options, "counting": counters / n},
        )

    def public_moments(self, design: Design, plan: Plan, rows: Array) -> Array:
        """Weighted second moments of public rows; a method that has no use for them refuses."""
        raise OptionError(f"method={self.name!r} takes no public rows: leave public=... out.")

    def question(
        self, design: Design, plan: Plan, answers: Sequence[Messages], public: Array | None
    ) -> DeviceQuestion | None:
        """What the next round is asked; None after the last."""
        if len(answers) == len(plan.options["shares"]):
            return None
        return self._question(design, plan, answers)

    @abstractmethod
    def _question(self, design: Design, plan: Plan, answers: Sequence[Messages]) -> DeviceQuestion:
        """What the round after these is asked."""

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
        estimate = self.finish(design, plan, answers, holder.public)
        released, remarks = self._counted(design, plan, [a.astray for a in answers if a.astray])
        return replace(
            estimate,
            released={**estimate.released, **released},
            remarks=(*remarks, *estimate.remarks),
        )

    def _counted(
        self, design: Design, plan: Plan, counted: Sequence[Messages]
    ) -> tuple[dict[str, object], tuple[str, ...]]:
        """Shares of values astray, by the devices of all rounds that counted; and remarks.

        Of several values that are astray a device names one, so that a share is at most what it is
        said to be of; the share of records with any is that of all.
        """
        devices, inputs = sum(each.count for each in counted), design.inputs
        if not devices:
            return {}, ()
        shares = np.sum([each.count * each.mean for each in counted], axis=0) / devices
        channel = AstrayMessage(len(inputs)).channel(plan.privacy.epsilon)
        law = NoiseLaw("gaussian", math.sqrt(error_of_count(channel) / devices))
        by_input = np.reshape(shares[1:], (2, -1))
        released, remarks = shares_astray(inputs, by_input, law, self.effect_of_gaps)
        somewhere = float(np.clip(1 - shares[0], 0.0, 1.0))
        if not remarks and somewhere > _SOMEWHERE + law.upper(CHANCE):
            remarks = (_WHICH.format(somewhere),)
        return {**released, "share of records astray": somewhere}, remarks


class Once(DeviceRounds):
    """Devices are asked once, for products of the columns and of the response."""

    interactive: ClassVar[bool] = False

    @abstractmethod
    def _message(self, design: Design, options: Options) -> MomentMessage:
        """What a device sends, by the public options of the plan."""

    def public_moments(self, design: Design, plan: Plan, rows: Array) -> Array:
        """Weighted second moments (d, d) of public rows (m, d) in internal coordinates."""
        weighted = rows * self._message(design, plan.options).weight(rows)[:, None]
        moments: Array = weighted.T @ weighted / len(rows)
        return moments

    def _question(self, design: Design, plan: Plan, answers: Sequence[Messages]) -> DeviceQuestion:
        return device_question(self._message(design, plan.options), plan)


class PooledRounds(DeviceRounds):
    """Questions that follow from the messages received so far, all of which are pooled."""

    def _question(self, design: Design, plan: Plan, answers: Sequence[Messages]) -> DeviceQuestion:
        return self._next(design, plan, self._answered(design, plan, answers))[0]

    def _answered(
        self, design: Design, plan: Plan, answers: Sequence[Messages]
    ) -> list[AnsweredQuestion]:
        """The rounds that were answered."""
        made: list[AnsweredQuestion] = []
        for answer in answers:
            question, doubt = self._next(design, plan, made)
            made.append(AnsweredQuestion(question, answer, doubt))
        return made

    @abstractmethod
    def _next(
        self, design: Design, plan: Plan, made: list[AnsweredQuestion]
    ) -> tuple[DeviceQuestion, float]:
        """The question after these rounds, and the relative bias that its score may have."""


def without_law(
    params: Array, nobs: float, why: str, released: Mapping[str, float]
) -> CoefficientEstimate:
    """An estimate of the columns that are not zero, whose errors have no proved law."""
    support = tuple(int(j) for j in np.flatnonzero(params))
    nothing = np.full((len(support),) * 2, np.nan)
    return CoefficientEstimate(
        params=params,
        cov=nothing,
        cov_privacy=nothing,
        nobs=nobs,
        released=released,
        support=support,
        inference=f"none: {why}",
    )
