"""What sites of a federation answered, and what is made of it for one of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError
from dpstats.privacy import Federated
from dpstats.protocol import assisted
from dpstats.protocol.estimate import COEFFICIENTS, CoefficientEstimate, ParameterTable

if TYPE_CHECKING:
    from dpstats.design import Design
    from dpstats.protocol.plan import Plan

__all__ = ["FederatedEstimate", "SiteRecord", "SiteShare", "SparseAnswer", "SummedEstimate"]

Array = NDArray[np.float64]

LEVEL = 0.05  # probability: of telling any source from the target that is like it


@dataclass(frozen=True, eq=False)
class SiteRecord:
    """What one site of a federation answered.

    Attributes
    ----------
    site : str
        Its name.
    status : str
        ``"answered"``, or why there is no answer: ``"refused"``, ``"too small"``, ``"late"``,
        ``"invalid"``.
    reason : str
        Of what it refused; public names only.
    n : float
        Its rows: public, or a noisy count where their number is private; 0 where it did not answer.
    epsilon, delta : float
        What it was asked to spend.
    params, cov, cov_sampling : ndarray of shape (d,), (d, d), (d, d)
        Its own estimates in the user's units and their covariance, with the part of it that is due
        to sampling; empty where it did not answer.
    warnings : tuple of str
        What its own fit warned of.
    """

    site: str
    status: str
    reason: str
    n: float
    epsilon: float
    delta: float
    params: Array
    cov: Array
    cov_sampling: Array
    warnings: tuple[str, ...] = ()

    @property
    def answered(self) -> bool:
        """Whether there are estimates."""
        return self.status == "answered"


@dataclass(frozen=True, eq=False)
class FederatedEstimate:
    """Estimates of several sites, and what was made of them for one of them, the target.

    Attributes
    ----------
    sites : tuple of SiteRecord
        All that were asked.
    target : str
        The site that `params` are of.
    combine : str
        The rule.
    params, cov : ndarray of shape (d,), (d, d)
        What the rule makes of the released estimates for the target, in the user's units.
    assumed : ndarray of shape (d, d)
        The covariance where the target is one more site like those it is near.
    weights : ndarray of shape (m,)
        How much of `params` each of the m sites is that answered, in their order.
    clusters : ndarray of shape (m,)
        Sites of a number agree with each other; 0 for the target.
    distances : ndarray of shape (m,)
        Chi-squared distance of each from the target, with d degrees of freedom.
    prior_mean, prior_var : ndarray of shape (d,)
        Of each coefficient, by all but the target's own estimate of it; empty where intervals are
        normal ones of `cov`.
    """

    sites: tuple[SiteRecord, ...]
    target: str
    combine: str
    params: Array
    cov: Array
    assumed: Array
    weights: Array
    clusters: Array
    distances: Array
    released: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    prior_mean: Array = field(default_factory=lambda: np.empty(0))
    prior_var: Array = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:  # it may come from a file
        d, m = self.params.size, len(self.answers)
        prior = self.prior_mean.shape, self.prior_var.shape
        square = [
            self.cov,
            self.assumed,
            *(c for s in self.answers for c in (s.cov, s.cov_sampling)),
        ]
        sound = (
            self.target in {s.site for s in self.answers}
            and len({s.site for s in self.sites}) == len(self.sites)
            and all(c.shape == (d, d) for c in square)
            and all(s.params.shape == (d,) for s in self.answers)
            and all(x.shape == (m,) for x in (self.weights, self.clusters, self.distances))
            and prior in (((0,), (0,)), ((d,), (d,)))
            and (self.prior_var > 0).all()
        )
        if not sound:
            raise OptionError("estimate: its sites and its parts do not fit together.")

    @property
    def answers(self) -> tuple[SiteRecord, ...]:
        """Of the sites that answered, in order."""
        return tuple(s for s in self.sites if s.answered)

    @property
    def own(self) -> SiteRecord:
        """The target's answer."""
        return next(site for site in self.answers if site.site == self.target)

    @property
    def nobs(self) -> float:
        """Rows of the sites that answered."""
        return sum(s.n for s in self.answers)

    @property
    def near(self) -> NDArray[np.bool_]:
        """Of the sites that answered, the target and those that no test at 5 % / K tells from it.

        The test is chi-squared, of `distances`.
        """
        from scipy.stats import chi2

        count = max(len(self.answers) - 1, 1)
        found: NDArray[np.bool_] = self.distances <= chi2.ppf(1 - LEVEL / count, self.params.size)
        return found

    def several(self, design: Design, plan: Plan) -> dict[str, float]:
        """What rates over sites are evaluated at: those that are `near`, and how far they are.

        h is the root mean square of the distances of their parameters from the target's, in
        standardised units, as far as it exceeds what their covariances explain.
        """
        kept = [site for site, near in zip(self.answers, self.near, strict=True) if near]
        own, units, excess = self.own, design.standardization, []
        for site in kept:
            if site is not own:
                there, spread = units.to_internal(site.params, site.cov)
                here, own_spread = units.to_internal(own.params, own.cov)
                off = there - here
                excess.append(float(off @ off - np.trace(spread) - np.trace(own_spread)))
        h = math.sqrt(max(float(np.mean(excess)), 0.0)) if excess else 0.0
        return {"n": sum(site.n for site in kept), "K": len(kept), "n0": own.n, "h": h}

    @property
    def support(self) -> None:
        """Every column is in the model."""
        return

    @property
    def robust(self) -> bool:
        """The sites' covariances hold whatever the variances of responses are."""
        return True

    @property
    def _believed(self) -> tuple[Array, Array, Array, Array]:
        """What `assisted` takes: the target's estimates and standard errors, and the prior."""
        return self.own.params, np.sqrt(np.diag(self.own.cov)), self.prior_mean, self.prior_var

    def bounds(self, alpha: float) -> Array:
        """Intervals of each coefficient that hold whatever the sites have in common."""
        return assisted.bounds(*self._believed, alpha)

    def table(self, design: Design) -> ParameterTable:
        """Of the target. Of each variance the part due to sampling is that of its sites' own."""
        own = np.array([np.diag(s.cov_sampling) / np.diag(s.cov) for s in self.answers])
        root = np.sqrt(np.clip(self.weights @ own, 0.0, 1.0))
        sampling = self.cov * np.outer(root, root)
        tested = self.prior_mean.size > 0
        return ParameterTable(
            names=design.names,
            groups=(COEFFICIENTS,) * len(design.names),
            values=self.params,
            inner=np.arange(len(design.names)),
            cov=self.cov,
            cov_privacy=self.cov - sampling,
            cov_sampling=sampling,
            testable=np.ones(len(design.names), dtype=np.bool_),
            bounds=self.bounds if tested else None,
            deviates=assisted.deviates(*self._believed) if tested else None,
        )


@dataclass(frozen=True, slots=True)
class SiteShare:
    """What one site gave to one fit of several.

    Attributes
    ----------
    site : str
        Its name.
    n : int
        Its rows, public.
    epsilon, delta : float
        What it was asked to spend.
    distance : float
        In rounds how far its last score is from its share of all sites', about chi-squared with d
        degrees of freedom where sites are alike; of the methods of Li et al. (2024) and of sparse
        fits how far its own estimate is from the target's, about chi-squared with d of them, or s
        where fits are sparse; nan where it gave none.
    p : float
        Chance of such a distance or a larger one; nan where it has no law.
    status : str
        ``"answered"``, ``"set aside"`` as unlike the target, ``"lost"`` on the way, or why there is
        no answer.
    reason : str
        Why it did not answer, or what its own fit warned of.
    """

    site: str
    n: int
    epsilon: float
    delta: float
    distance: float
    p: float
    status: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SparseAnswer:
    """A site's own sparse estimate, without its zeros.

    Attributes
    ----------
    site : str
        Its name.
    at, values : tuple of int, tuple of float
        Places of its coefficients that are not 0, and these, in internal units.
    error : float
        That its plan expects of them, over their length.
    warnings : tuple of str
        What its own fit warned of.
    """

    site: str
    at: tuple[int, ...]
    values: tuple[float, ...]
    error: float
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, site: str, params: Array, error: float, warnings: tuple[str, ...]) -> SparseAnswer:
        """From all coefficients."""
        at = np.flatnonzero(params)
        return cls(site, tuple(map(int, at)), tuple(map(float, params[at])), error, warnings)

    def params(self, size: int) -> Array:
        """All `size` coefficients."""
        made = np.zeros(size)
        made[list(self.at)] = self.values
        return made


@dataclass(frozen=True)
class SummedEstimate(CoefficientEstimate):
    """Coefficients of several sites together, and what each of them gave.

    Attributes
    ----------
    sites : tuple of SiteShare
        All that were asked.
    target : str
        The site that they are for; that of the plan where it is empty.
    answers : tuple of SparseAnswer
        Of averages, what was averaged.
    """

    sites: tuple[SiteShare, ...] = ()
    target: str = ""
    answers: tuple[SparseAnswer, ...] = ()

    def __post_init__(self) -> None:  # it may come from a file
        known, size = {site.site for site in self.sites}, self.params.size
        named = [answer.site for answer in self.answers]
        inside = all(
            len(a.at) == len(a.values) and all(0 <= j < size for j in a.at) for a in self.answers
        )
        if not (inside and len(set(named)) == len(named) and known >= {*named}):
            raise OptionError("estimate: its sites and its parts do not fit together.")

    def several(self, design: Design, plan: Plan) -> dict[str, float]:
        """What rates over sites are evaluated at: those that were kept, at the h that is guessed.

        No covariance of a site's own parameters is released from which it could be known.
        """
        assert isinstance(plan.privacy, Federated)
        kept = {site.site: site.n for site in self.sites if site.status == "answered"}
        h = float(plan.options.get("h") or 0.0)
        own = float(kept[self.target or plan.privacy.target])
        return {"n": float(sum(kept.values())), "K": len(kept), "n0": own, "h": h}
