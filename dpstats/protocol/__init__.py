"""What an estimator and a holder must offer, and the frozen records that pass between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dpstats.privacy import Privacy
from dpstats.protocol.comparing import (
    CorrelationEstimate,
    DifferenceEstimate,
    GroupMeansEstimate,
    VarianceEstimate,
)
from dpstats.protocol.data_check import CheckEstimate
from dpstats.protocol.descriptive import (
    CountsEstimate,
    CrosstabEstimate,
    DescribeEstimate,
    Distribution,
    HistogramEstimate,
    ProportionEstimate,
    QuantileEstimate,
)
from dpstats.protocol.estimate import (
    WEIGHTED_DOWN,
    CoefficientEstimate,
    Estimate,
    RangeEstimate,
    ScalesEstimate,
)
from dpstats.protocol.evaluation import ClassificationEstimate, PredictionErrorEstimate
from dpstats.protocol.mixtures import MixtureEstimate, RegressionMixtureEstimate
from dpstats.protocol.symmetric import SymmetricLinesEstimate, SymmetricMixtureEstimate

if TYPE_CHECKING:
    from dpstats.channels import Channel, Subset
    from dpstats.design import Design
    from dpstats.queries import AstrayMessage, CellMessage, MomentMessage, Query, Search
    from dpstats.queries.labels import LabelQuery
    from dpstats.theory import Theory
from dpstats.protocol.plan import Answer, Mechanism, NoiseLaw, Options, Plan, Release

__all__ = [
    "WEIGHTED_DOWN",
    "Answer",
    "CheckEstimate",
    "ClassificationEstimate",
    "CoefficientEstimate",
    "CorrelationEstimate",
    "CountQuestion",
    "CountsEstimate",
    "CrosstabEstimate",
    "DescribeEstimate",
    "DeviceQuestion",
    "DifferenceEstimate",
    "Distribution",
    "Estimate",
    "Estimator",
    "GroupMeansEstimate",
    "HistogramEstimate",
    "Holder",
    "LabelHolder",
    "LocalHolder",
    "LocalMethod",
    "Mechanism",
    "Messages",
    "MixtureEstimate",
    "NoiseLaw",
    "Options",
    "Plan",
    "PredictionErrorEstimate",
    "ProportionEstimate",
    "QuantileEstimate",
    "RangeEstimate",
    "RegressionMixtureEstimate",
    "Release",
    "RowHolder",
    "ScalesEstimate",
    "SearchHolder",
    "SymmetricLinesEstimate",
    "SymmetricMixtureEstimate",
    "VarianceEstimate",
    "foresee",
]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class DeviceQuestion:
    """What the devices of one round are asked: a message, and the channel that randomises it.

    Attributes
    ----------
    message : MomentMessage or CellMessage
    channel : Channel
    counting : float, default 0
        Share of the devices that say in its place what of their record is outside of what is
        declared (`CountQuestion`), by a coin of their own that depends on nothing.
    """

    message: MomentMessage | CellMessage
    channel: Channel
    counting: float = 0.0

    @property
    def moments(self) -> MomentMessage:
        """The message, of a method that asks for moments."""
        return cast("MomentMessage", self.message)


@dataclass(frozen=True, eq=False)
class CountQuestion:
    """What a device that counts is asked in place of a question, under the same epsilon."""

    message: AstrayMessage
    channel: Subset


@dataclass(frozen=True, eq=False)
class Messages:
    """All that is kept of the messages of one round; they were private when they were sent.

    Attributes
    ----------
    count : int
        Messages received.
    mean : ndarray of shape (p,)
        Average of the decoded messages, unbiased for that of what the devices held.
    second : ndarray of shape (p, p)
        Average of the outer products of decoded messages (of the first of them, where there are
        very many): what standard errors need.
    astray : Messages, optional
        The messages of those devices that count, where any do; see `DeviceQuestion`.
    """

    count: int
    mean: Array
    second: Array
    astray: Messages | None = None

    @property
    def devices(self) -> int:
        """Messages received, those of devices that count included."""
        return self.count + (0 if self.astray is None else self.astray.count)

    @property
    def covariance(self) -> Array:
        """Covariance of `mean`, of shape (p, p): sampling and randomisation together."""
        centred: Array = self.second - np.outer(self.mean, self.mean)
        return centred / self.count


class LocalHolder(Protocol):
    """Devices that answer a question each, once, in rounds of different devices."""

    @property
    def public(self) -> Array | None:
        """Second moments of public rows, if the fit was given any; see `LocalMethod`."""
        ...

    def collect(self, question: DeviceQuestion, part: int) -> Messages:
        """Ask the devices of round `part`."""
        ...


AnyQuery = TypeVar("AnyQuery", bound="Query | LabelQuery", contravariant=True)


class Holder(Protocol[AnyQuery]):
    """Who holds the rows (or the responses) and answers queries with noise."""

    @property
    def plan(self) -> Plan:
        """What may be asked, and with which noise; public."""
        ...

    def ask(self, query: AnyQuery, slot: str, part: int = 0) -> Answer:
        """Answer `query` once with the noise planned under `slot`.

        Raises
        ------
        PlanError
            If the plan has no such slot, or it (or its part) was already answered.
        """
        ...


def foresee(holder: Holder[Query], queries: Sequence[Query]) -> None:
    """Say that these are asked next, of all rows and in this order.

    None depends on the answer to another, so that who holds the rows may read them once for all.
    """
    reads_ahead = getattr(holder, "foresee", None)
    if reads_ahead is not None:
        reads_ahead(queries)


@runtime_checkable
class RowHolder(Holder["Query"], Protocol):
    """Who holds rows, and can hold them in other units."""

    def rescale(self, design: Design, found: Mapping[int, tuple[float, float]]) -> None:
        """Hold the same rows in the coordinates of a design with other centres and scales.

        `found` are those that it was made of by `Design.scaled`, for who has to tell others.
        """
        ...


class SearchHolder(RowHolder, Protocol):
    """Who holds rows, and lets somebody else steer a search over them and those of others."""

    def compare(self, search: Search, slot: str, at: int) -> Answer:
        """The noisy balance of the candidate at a position: one comparison of a search."""
        ...


class LabelHolder(Holder["LabelQuery"], Protocol):
    """Who holds private responses beside public covariates."""

    def half(self, branch: int) -> NDArray[np.intp]:
        """Positions, ascending, of the rows of a half (1, 2) or of all (0)."""
        ...

    def sending(self, counters: int) -> NDArray[np.intp]:
        """Positions, ascending, of the devices that send their response: all but those that count.

        They belong in no result.
        """
        ...


class Estimator(Protocol):
    """One method: plans from public facts, fits from noisy answers."""

    @property
    def name(self) -> str:
        """Name users pass as ``method=``."""
        ...

    @property
    def model(self) -> str:
        """Model it fits, such as ``"ols"``, ``"logit"``, ``"glm"`` or ``"mean"``."""
        ...

    @property
    def sparse(self) -> bool:
        """Whether it selects columns, and takes ``sparsity=``."""
        ...

    @property
    def otherwise(self) -> str:
        """Name of the method that is the default in its place where its plan warns; or empty."""
        ...

    @property
    def theory(self) -> Mapping[str, Theory]:
        """What is proved, for each trust model it supports. No entry, no support."""
        ...

    @property
    def options(self) -> Mapping[str, str]:
        """Options it takes beyond privacy: name to a one-line description."""
        ...

    def plan(self, design: Design, privacy: Privacy, n: int, **options: Any) -> Plan:
        """Mechanisms, cost and expected error from public facts only."""
        ...

    def fit(self, holder: Any, design: Design, plan: Plan) -> Estimate:
        """Ask the holder, which is one of the plan's trust model, what was planned."""
        ...


class LocalMethod(Estimator, Protocol):
    """A method for devices that randomise their own records.

    It is a function from the messages received so far to the next question, so a server may stop
    between rounds and go on in another process.
    """

    def public_moments(self, design: Design, plan: Plan, rows: Array) -> Array:
        """The (d, d) second moments, weighted as in the messages, of public rows (m, d)."""
        ...

    def question(
        self, design: Design, plan: Plan, answers: Sequence[Messages], public: Array | None
    ) -> DeviceQuestion | None:
        """What the next round is asked; None when there are no more rounds."""
        ...

    def finish(
        self, design: Design, plan: Plan, answers: Sequence[Messages], public: Array | None
    ) -> Estimate:
        """The estimate from the messages of all rounds."""
        ...
