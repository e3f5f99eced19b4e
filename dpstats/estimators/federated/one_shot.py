"""One private fit at every site, and a rule that combines what was released for the target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dpstats.accounting import Parallel
from dpstats.combining import RULES
from dpstats.errors import OptionError, among, given
from dpstats.estimators.bounds import rates
from dpstats.estimators.federated.base import SiteMethod
from dpstats.estimators.federated.theory import (
    ALIKE,
    LINEAR_LOWER,
    MEAN_LOWER,
    MEAN_UPPER,
    TARGET_LINEAR_LOWER,
    TARGET_MEAN_LOWER,
)
from dpstats.estimators.sources import GEORGE, LI_FEDERATED, YU_HOFF
from dpstats.privacy import Federated
from dpstats.protocol import Mechanism, Plan
from dpstats.theory import Assumption, Citation, Rate, Theory

__all__ = ["OneShot", "OneShotMean"]

_OWN = Citation(
    "dpstats-sites",
    "The dpstats developers",
    "Multiple shrinkage of one private fit towards those of other sites",
    2026,
    "dpstats",
    "docs/federated.md",
)
_POOLED = LI_FEDERATED.at("Theorem 4, (II), without its logarithms")

_THEORY = Theory(
    estimand="what the same fit estimates in the population of the target site",
    guarantee=(
        "each site's answer is the release of a central fit, (epsilon, delta)-differentially "
        "private in the rows of that site by the proof of its method; combining answers reads no "
        "row; of a person at several sites the guarantees add up"
    ),
    assumptions=(
        ALIKE,
        Assumption(
            "Every site's estimate is normal about its own parameters, with the covariance released"
        ),
        Assumption("Sites are independent: nobody's rows are at two of them"),
    ),
    upper=(
        Rate("heterogeneity", "h", _POOLED, conjectured=True),
        Rate("statistical", "sqrt(d/n)", _POOLED, conjectured=True),
        Rate("privacy", "d sqrt(K)/(n eps)", _POOLED, conjectured=True),
    ),
    lower=LINEAR_LOWER,
    alone={
        "upper": rates("sqrt(d/n0)", "d/(n0 eps)", _OWN),
        "lower": TARGET_LINEAR_LOWER,
    },
    citations=(_OWN, GEORGE, YU_HOFF, LI_FEDERATED.at("Section 2")),
    corrections=(
        "Every site spends its whole budget on one fit of all its rows: detecting useful sources "
        "costs nothing, and needs no half of the rows (Algorithm 2 of Li et al.).",
        "Sources are told apart by chi-squared distances under released covariances, not by a "
        "rate whose constant is not given.",
    ),
)
_THEORY_OF_A_MEAN = replace(
    _THEORY,
    upper=tuple(replace(rate, conjectured=True) for rate in MEAN_UPPER),
    lower=MEAN_LOWER,
    alone={"upper": rates("1/sqrt(n0)", "1/(n0 eps)", _OWN), "lower": TARGET_MEAN_LOWER},
)


@dataclass(frozen=True)
class OneShot(SiteMethod):
    """One private fit at each site, combined for the target by ``combine``.

    ``"blend"`` (the default) shrinks the target's estimate towards clusters of sources that agree
    with each other, as far as it is near one of them; ``"minimax"`` shrinks less and is never worse
    than the target alone in three parameters or more; ``"select"`` pools the sources that a
    chi-squared test does not tell from the target; ``"pool"`` pools all. See `dpstats.combining`
    and docs/federated.md.

    *Guarantee.* Each site's answer is (epsilon, delta)-differentially private in its rows by the
    proof of the central method that it ran, at sensitivities that the queries of that method
    compute. All else is computed of the answers. By parallel composition a person whose rows are
    at one site has that site's guarantee, whatever others do.
    """

    model: str
    name: ClassVar[str] = "one-shot"
    of_sites: ClassVar[str | None] = None  # the sites' method, where there is but one
    theory: ClassVar[Mapping[str, Theory]] = {"federated": _THEORY}
    options: ClassVar[Mapping[str, str]] = {
        "combine": f"how sites are combined: {', '.join(RULES)}; the rest are of the sites' method",
    }

    def rule(self, asked: object) -> str:
        """The name of a rule, by default the first.

        Raises
        ------
        OptionError
            If there is none of this name.
        """
        if asked is None:
            return next(iter(RULES))
        if not among(asked, RULES):
            raise OptionError(f"combine={given(asked)}: allowed are {', '.join(map(repr, RULES))}.")
        return asked

    def over(self, privacy: Federated, plans: Mapping[str, Plan], combine: str) -> Plan:
        """The plan of a federation, from those of its sites; the target's is among them."""
        own = plans[privacy.target]
        mechanisms = tuple(
            Mechanism(site, Parallel((plan.events,)), f"{plan.method} on {plan.n:,} rows")
            for site, plan in plans.items()
        )
        return Plan(
            model=self.model,
            method=self.name,
            privacy=privacy,
            n=sum(plan.n for plan in plans.values()),
            names=own.names,
            mechanisms=mechanisms,
            cost=(max(p.cost[0] for p in plans.values()), max(p.cost[1] for p in plans.values())),
            options={"combine": combine},
            predicted_se=own.predicted_se,
            predicted_range=own.predicted_range,
            predicted_units=own.predicted_units,
            predicted_error=own.predicted_error,
            privacy_share=own.privacy_share,
            assumptions=(
                "Expected errors are those of the target alone.",
                *_together(privacy.target, plans),
                *own.assumptions,
            ),
            warnings=own.warnings,
            subset=own.subset,
        )


@dataclass(frozen=True)
class OneShotMean(OneShot):
    """A private mean at each site, combined as `OneShot` combines fits, with the rates of means.

    *Guarantee.* That of `OneShot`: each site's answer is (epsilon, delta)-differentially private in
    its rows by the proof of the central mean that it ran, at sensitivities that the queries of that
    method compute. By parallel composition a person at one site has that guarantee.
    """

    theory: ClassVar[Mapping[str, Theory]] = {"federated": _THEORY_OF_A_MEAN}


def _together(target: str, plans: Mapping[str, Plan]) -> tuple[str, ...]:
    """What sites that agree would make of the target's errors."""
    errors = np.array([plan.predicted_se for plan in plans.values() if plan.predicted_se])
    if len(plans) < 2 or len(errors) < len(plans) or not np.isfinite(errors).all():
        return ()
    own = np.array(plans[target].predicted_se)
    ratio = float(np.median((errors**-2.0).sum(axis=0) ** -0.5 / own))
    return (f"Were all sites alike, they would be about {ratio:.2f} of these.",)
