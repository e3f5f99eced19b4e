"""One sparse private fit at every site, averaged and cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from dpstats.estimators.bounds import rates
from dpstats.estimators.federated.one_shot import OneShot
from dpstats.estimators.federated.theory import ALIKE
from dpstats.estimators.sources import CAI, LI_FEDERATED
from dpstats.privacy import Federated
from dpstats.protocol import Plan
from dpstats.theory import Assumption, Rate, Theory

__all__ = ["AveragedSparse"]

_OWN, _II = CAI.at("Theorem 4.4"), LI_FEDERATED.at("Theorem 7, (ii)")
_CAI = CAI.at("Theorem 4.4, at sqrt(K) times the noise")

_THEORY = Theory(
    estimand="what the same sparse fit estimates in the population of the target site",
    guarantee=(
        "each site's answer is the release of a central sparse fit, (epsilon, delta)-"
        "differentially private in the rows of that site by the composition and the sensitivities "
        "of its method; averaging answers reads no row"
    ),
    assumptions=(
        ALIKE,
        Assumption("Most sites are alike, and at most s columns matter at each"),
        Assumption("Sites are independent: nobody's rows are at two of them"),
        Assumption("A site's rows suffice to find most of these columns by itself"),
    ),
    upper=(
        Rate("heterogeneity", "h", _II, conjectured=True),
        Rate("statistical", "sqrt(s log(d)/n)", _CAI, conjectured=True),
        Rate("privacy", "s log(d) sqrt(K log(1/delta))/(n eps)", _CAI, conjectured=True),
    ),
    lower=(),
    alone={
        "upper": rates(
            "sqrt(s log(d)/n0)", "s log(d) sqrt(log(1/delta))/(n0 eps)", _OWN, conjectured=True
        )
    },
    citations=(_CAI, LI_FEDERATED.at("Section 4")),
)


@dataclass(frozen=True)
class AveragedSparse(OneShot):
    """One sparse fit at each site; the target's is drawn to those near it, and cut to s columns.

    Each site selects and fits with its whole budget by the central sparse method. The average over
    K sites divides its noise by sqrt(K), and columns that few sites chose by mistake by K, so that
    cutting after averaging finds columns that single sites miss. A site whose estimate is farther
    from the target's than sites that are alike is set aside, and the target moves to the average of
    the others as far as its expected error explains their distance: `dpstats.combining.sparse`.

    There are no standard errors: the sites' own fits have none.

    *Guarantee.* Each site's answer is (epsilon, delta)-differentially private in its rows by the
    proof of the central method, whose queries compute their sensitivities and whose plan states the
    composition. All else is computed of the answers.
    """

    model: str
    name: ClassVar[str] = "averaged-sparse"
    sparse: ClassVar[bool] = True
    of_sites: ClassVar[str | None] = "omp"
    theory: ClassVar[Mapping[str, Theory]] = {"federated": _THEORY}
    options: ClassVar[Mapping[str, str]] = {
        "sparsity": "columns to select at every site and of the average, beside the intercept",
    }

    def over(self, privacy: Federated, plans: Mapping[str, Plan], combine: str) -> Plan:
        """The plan of a federation, with the number of columns that its sites select."""
        made, own = super().over(privacy, plans, combine), plans[privacy.target]
        asked: dict[str, object] = {"sparsity": own.options["sparsity"]}
        return replace(made, options={**made.options, **asked})
