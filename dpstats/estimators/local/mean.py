"""The mean of a number that nobody but its device holds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.bounds import SMALL_EPS, rates
from dpstats.estimators.counters import TO_THE_MIDDLE
from dpstats.estimators.local.base import DeviceRounds
from dpstats.estimators.local.requests import counting_of, senders
from dpstats.estimators.local.theory import AT_ONCE
from dpstats.estimators.responses import (
    CHANNEL_OPTIONS,
    Responses,
    expect_labels,
    linear_shrinkage,
    responses,
)
from dpstats.estimators.sources import DUCHI, WANG_PIECEWISE
from dpstats.privacy import LabelOnly, Local, Privacy
from dpstats.protocol import CoefficientEstimate, DeviceQuestion, Messages, Options, Plan
from dpstats.queries import MomentMessage
from dpstats.theory import Assumption, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["LocalMean"]

Array = NDArray[np.float64]

_ONE = np.ones(1)  # numerical: the design of a mean is one column of ones
_DUCHI = DUCHI.at("private mean estimation")
_ORDERS = ("1/sqrt(n)", "B/(eps sqrt(n)), B = 1")

_THEORY = Theory(
    estimand="mean of the response, held to the interval of the plan",
    guarantee=AT_ONCE,
    assumptions=(
        Assumption("Responses lie in the declared range, or have the declared centre and scale"),
    ),
    upper=rates(*_ORDERS, _DUCHI, given=(SMALL_EPS,)),
    lower=rates(*_ORDERS, _DUCHI),
    citations=(_DUCHI, WANG_PIECEWISE.at("Algorithm 2 (piecewise mechanism)")),
)


@dataclass(frozen=True)
class LocalMean(DeviceRounds):
    """The average of one randomised number of each device.

    A device holds its response y to an interval with middle m and half-width B, and sends
    ``(y - m)/B`` through a channel for numbers. Decoded messages z are unbiased, so

        params = m + B mean(z),    V = B^2 var(z) / n,

    whatever the law of y; the variance is that of the messages themselves.

    Notes
    -----
    *Guarantee.* One message of each device, epsilon-DP for any two records: the device maps its
    response into [-1, 1], and the channel is epsilon-DP between any two values there. There is
    nothing to compose.

    *Channel.* That with the smallest variance at the mean square that public facts suggest: one bit
    (Duchi et al.) at small epsilon, the piecewise mechanism above.

    *Interval.* The declared range. Where the schema declares a smaller scale, the narrowest
    interval of so many scales around the centre that a logistic tail beyond it matters little.
    """

    model: ClassVar[str] = "mean"
    name: ClassVar[str] = "local-mean"
    interactive: ClassVar[bool] = False
    theory: ClassVar[Mapping[str, Theory]] = {"local": _THEORY}
    options: ClassVar[Mapping[str, str]] = CHANNEL_OPTIONS
    effect_of_gaps: ClassVar[str] = TO_THE_MIDDLE

    def serves(self, privacy: Privacy) -> bool:
        """Whatever devices may be asked, one question is enough."""
        return isinstance(privacy, Local)

    def _local_plan(self, design: Design, privacy: Local, n: int, options: Options) -> Plan:

        def se(how: Responses) -> float:
            return math.sqrt((how.residual_variance + how.noise()) / n)

        # A response that nobody else knows is sent in the same way beside public covariates.
        alike = LabelOnly(privacy.epsilon, privacy.delta)
        how = responses(design, alike, options, linear_shrinkage(se))
        assert how.channel is not None
        plan = self._charged(design, privacy, n, how.channel.event, how.options())
        plan = replace(plan, assumptions=how.assumptions[1:])
        users = senders(plan)

        def errors(epsilon: float) -> float:
            return math.sqrt((how.sd**2 + how.at(epsilon).noise()) / users)

        unit = np.ones((1, 1)) / users
        return expect_labels(plan, design, how.noise() * unit, how.sd**2 * unit, how, errors)

    def _question(self, design: Design, plan: Plan, answers: Sequence[Messages]) -> DeviceQuestion:
        how = Responses.of(plan, design)
        i = how.interval
        assert how.channel is not None
        bound = _ONE if how.channel.domain == "linf" else None  # one ball in one dimension
        message = MomentMessage(1, 1.0, i.half, share=0.0, theta=i.middle * _ONE, bound=bound)
        return DeviceQuestion(message, how.channel, counting_of(plan))

    def finish(
        self, design: Design, plan: Plan, answers: Sequence[Messages], public: Array | None
    ) -> CoefficientEstimate:
        """The mean of the messages, and their own variance."""
        how, (sent,) = Responses.of(plan, design), answers
        i, z = how.interval, float(sent.mean[0])
        cov = i.half**2 * np.maximum(sent.covariance, 0.0) * sent.count / max(sent.count - 1, 1)
        # E z^2 is linear in E v^2; one bit says nothing of it, and v is at most 1 there.
        square = how.square(float(sent.second[0, 0]), z**2)
        noise = np.minimum(how.noise(square) / sent.count, cov)
        return CoefficientEstimate(
            params=np.array([i.middle + i.half * z]),
            cov=cov,
            cov_privacy=noise,
            nobs=float(sent.count),
            released=how.options(),
        )
