"""The federated mean as printed by Li et al. (2024), section 2.2: one noisy mean at each site."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from dpstats.estimators.bounds import rates
from dpstats.estimators.federated.one_shot import OneShot
from dpstats.estimators.federated.theory import (
    ALIKE,
    MEAN_LOWER,
    MEAN_UPPER,
    TARGET_MEAN_LOWER,
)
from dpstats.estimators.sources import KARWA_VADHAN, LI_FEDERATED
from dpstats.theory import Assumption, Theory

__all__ = ["FTLMean"]

_I = LI_FEDERATED.at("equation (9); Theorem 1, (I)")
_TARGET = rates(
    "sqrt(log(1/eta)/n0), eta = 0.05", "log(1/eta) sqrt(log(n0/eta))/(n0 eps), eta = 0.05", _I
)

_THEORY = Theory(
    estimand="population mean of a normal response with known standard deviation, at the target",
    guarantee=(
        "each site's answer is the release of method 'karwa-vadhan', epsilon-differentially "
        "private in the rows of that site; combining answers reads no row"
    ),
    assumptions=(
        Assumption("Responses are normal, rows are independent, and sigma is at least their sd"),
        Assumption("Sources that are not alike are off by more than the target's own rate"),
        Assumption("No site has fewer rows than the target, and logs of all are alike"),
        ALIKE,
        Assumption("Theorem 1, (12)", "n0 >~ log(1/(delta eta))/eps, eta = 0.05"),
        Assumption("The range is found at the target", "n0 eps > 50 log(100/eta), eta = 0.05"),
    ),
    upper=MEAN_UPPER,
    lower=MEAN_LOWER,
    alone={"upper": _TARGET, "lower": TARGET_MEAN_LOWER},
    citations=(
        LI_FEDERATED.at("equations (8) to (11), Theorems 1 and 2"),
        KARWA_VADHAN.at("Algorithm 1, Theorem 4.1"),
    ),
    corrections=(
        "Each site's mean is corrected as method 'karwa-vadhan' is: a private range in the place "
        "of that of the data.",
        "A source is kept by a chi-squared test at 5 % / K under the released variances, in the "
        "place of a threshold whose constant is not given.",
        "The logarithm in (II) is of the rows of all sites, the target's among them.",
    ),
)


@dataclass(frozen=True)
class FTLMean(OneShot):
    """Noisy truncated means of all sites; those near the target's, weighed by their rows.

    Every site answers by method ``"karwa-vadhan"`` with all its rows and its whole budget. The mean
    over the target and the sources that are not told from it, with weights n_k, is equation (10);
    weights by precision (``combine="select"``) are better where noise is most of the error.

    *Guarantee.* That of ``"karwa-vadhan"`` at each site, by Laplace noise at sensitivities that
    `ResponseHistogram` and `ResponseMoments` compute; all else is computed of the answers.
    """

    model: str = "mean"
    name: ClassVar[str] = "ftl-mean"
    of_sites: ClassVar[str | None] = "karwa-vadhan"
    theory: ClassVar[Mapping[str, Theory]] = {"federated": _THEORY}
    options: ClassVar[Mapping[str, str]] = {
        "sigma": "public standard deviation > 0 in the user's units (default: the declared scale)",
    }
