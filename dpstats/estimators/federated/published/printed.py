"""What the methods of Li et al. (2024) that ask sites in rounds share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.base import need_positive
from dpstats.estimators.federated.rounds import RoundsMethod
from dpstats.estimators.private_variance import adapted_clip, log_factor, pair_scales
from dpstats.privacy import Privacy
from dpstats.protocol import Answer, CoefficientEstimate, Options, Plan
from dpstats.queries import Query

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["DISTANCE", "PrintedMethod", "SiteAnswers", "SitesDescent", "clips", "how_far"]

Array = NDArray[np.float64]

DISTANCE = (
    "public guess h >= 0 of how far sources that are like the target may be from it, in "
    "standardised units; read by the error bound alone, 0 by default"
)


@runtime_checkable
class SiteAnswers(Protocol):
    """Who asks each site its own question, and brings its own answer."""

    @property
    def plans(self) -> Mapping[str, Plan]:
        """What each site planned that is still there, the target first."""

    def each(self, queries: Mapping[str, Query], slot: str, part: int = 0) -> dict[str, Answer]:
        """The answers of the sites that are still there."""


@dataclass(frozen=True)
class PrintedMethod(RoundsMethod):
    """A method of which each site carries out its own plan, on disjoint parts of its rows."""

    @abstractmethod
    def site_plan(self, design: Design, privacy: Privacy, n: int, **options: object) -> Plan:
        """What one site charges."""

    @abstractmethod
    def asked(self, sites: SiteAnswers, design: Design, plan: Plan) -> CoefficientEstimate:
        """The estimate, of what sites answer."""

    def assumed(self, whole: Plan, count: int) -> tuple[str, ...]:
        """That the printed method says nothing of its errors but their order."""
        return ("The paper gives the order of the error and no number.",)

    def fit(self, holder: object, design: Design, plan: Plan) -> CoefficientEstimate:
        """Ask the sites what was planned."""
        if not isinstance(holder, SiteAnswers):
            return super().fit(holder, design, plan)
        return self.asked(holder, design, plan)


@dataclass(frozen=True, eq=False)
class SitesDescent:
    """Steps on parts of the sites' rows."""

    sites: SiteAnswers
    plan: Plan

    @property
    def steps(self) -> int:
        """T, of each half."""
        return int(self.plan.options["steps"])

    def batch(self, site: str) -> float:
        """Rows of one part."""
        return self.sites.plans[site].n / (2 * self.steps)


def how_far(options: Options) -> float:
    """h of the error bound.

    Raises
    ------
    OptionError
        If it is no number from 0 on.
    """
    return need_positive("h", options.get("h"), 0.0, zero=True)


def clips(
    sites: SiteAnswers,
    beta: Mapping[str, Array],
    slot: str,
    part: int,
    of: tuple[int, float, float],
) -> dict[str, float]:
    """R_t of each site at its own coefficients, by PrivateVariance on one of its batches.

    `of` has the number of batches, the multiple of ``sqrt(log(n / eta))``, and the public bound.
    """
    steps, multiple, bound = of
    pairs = {site: pair_scales(b, bound) for site, b in beta.items()}
    return {
        site: adapted_clip(
            counts,
            pairs[site],
            law.scale,
            steps,
            multiple * log_factor(sites.plans[site].n),
            bound,
        )
        for site, (counts, law) in sites.each(pairs, slot, part).items()
    }
