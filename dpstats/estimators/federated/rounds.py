"""One fit over the rows of all sites, whose noisy sums are added."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from dpstats.accounting import Parallel
from dpstats.estimators.bounds import rates
from dpstats.estimators.federated.base import SiteMethod
from dpstats.estimators.sources import AVELLA, DONG, LI_FEDERATED
from dpstats.privacy import Federated
from dpstats.protocol import Mechanism, Plan
from dpstats.theory import Assumption, Rate, Theory

__all__ = ["Rounds", "RoundsMethod"]

_AVELLA = AVELLA.at("noisy Newton's method, with sqrt(K) times the noise")
_THEORY = Theory(
    estimand="what the same fit estimates in the population of all sites together",
    guarantee=(
        "every answer of a site is a Gaussian mechanism on a sum over its rows, whose sensitivity "
        "its query enforces by clipping; all answers that were planned, each given once and all "
        "charged before the first, compose as one Gaussian mechanism that is (epsilon, delta)-"
        "differentially private in the rows of that site (Dong, Roth & Su 2022, Corollary 3.3)"
    ),
    assumptions=(
        Assumption("Sites are alike: the same coefficients hold at all of them"),
        Assumption("Sites are independent: nobody's rows are at two of them"),
        Assumption(
            "The noise of all sites resolves the whitened Gram matrix",
            "n eps > 2 d^(3/2) sqrt(K log(1/delta))",
            resolution=True,
        ),
    ),
    upper=rates("sqrt(d/n)", "d sqrt(K log(1/delta))/(n eps)", _AVELLA, conjectured=True),
    lower=(
        Rate("statistical", "sqrt(d/n)", LI_FEDERATED.at("Theorem 5, at sites that are alike")),
        Rate(
            "privacy",
            "d sqrt(K)/(n eps sqrt(log(1/(K delta))))",
            LI_FEDERATED.at("Theorem 5, at sites that are alike"),
            conjectured=True,
        ),
    ),
    citations=(_AVELLA, DONG.at("Corollary 3.3"), LI_FEDERATED.at("Section 2")),
    corrections=(
        "Every question is asked of all rows of every site, and a site's answers are composed: the "
        "rounds of Algorithm 2 of Li et al. need disjoint parts of the rows, one for each.",
    ),
)


@dataclass(frozen=True)
class RoundsMethod(SiteMethod):
    """A method that asks sites one question after the other; `dpstats.federated` carries them."""

    def over(self, privacy: Federated, whole: Plan, sites: Mapping[str, Plan]) -> Plan:
        """The plan of a federation, from that of all rows and those of its sites."""
        mechanisms = tuple(
            Mechanism(
                site, Parallel((plan.events,)), f"{len(plan.mechanisms)} sums of {plan.n:,} rows"
            )
            for site, plan in sites.items()
        )
        return replace(
            whole,
            method=self.name,
            privacy=privacy,
            mechanisms=mechanisms,
            cost=(max(p.cost[0] for p in sites.values()), max(p.cost[1] for p in sites.values())),
            assumptions=(*self.assumed(whole, len(sites)), *whole.assumptions),
        )

    def assumed(self, whole: Plan, count: int) -> tuple[str, ...]:
        """What the plan rests on beside the central method's."""
        return ()


@dataclass(frozen=True)
class Rounds(RoundsMethod):
    """The default central fit, asked of all sites at once: their noisy sums are added.

    A curator of all n rows would add noise once. K sites that each add noise of their own to their
    part of a sum have, together, the sum with noise sqrt(K) as large: what one curator answers at
    ``mu / sqrt(K)`` in place of mu, the parameter of (epsilon, delta) as a Gaussian mechanism. So
    a central method runs unchanged on a plan for that curator. Sites with other budgets add their
    variances: ``mu^-2 = sum mu_k^-2``.

    The estimate is of **all sites together**: of the target as far as the others are like it. How
    far the last score of each site is from its share of all sites' tells whether they are.

    *Guarantee.* A site charges the whole plan before it answers the first question, and answers
    each planned question once: see `dpstats.federated.steps`. A bisection is steered by the sums
    of all sites' comparisons; a site pays for all of them what it pays for one search.

    *When.* By default where sites' own fits are expected to be too far off to show what sites
    differ by, which is public.
    """

    model: str
    name: ClassVar[str] = "rounds"
    theory: ClassVar[Mapping[str, Theory]] = {"federated": _THEORY}
    options: ClassVar[Mapping[str, str]] = {
        "target": "as for the central method of the model",
    }

    def assumed(self, whole: Plan, count: int) -> tuple[str, ...]:
        """That sites are alike, and what they are together."""
        return (
            f"All {count} sites are alike: the estimate is of all of them together.",
            "With noise of their own they answer as one curator of all rows would at epsilon = "
            f"{whole.privacy.epsilon:.2g}.",
        )
