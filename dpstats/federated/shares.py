"""Who plans what in a fit over rounds: all rows as one curator's, and each site's share of that."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dpstats import estimators
from dpstats.accounting import Gaussian, epsilon_of, gdp_mu
from dpstats.accounting.closed_forms import gaussian_epsilon
from dpstats.errors import OptionError
from dpstats.estimators.federated.published.printed import PrintedMethod
from dpstats.privacy import Central
from dpstats.protocol import Estimator, Plan

if TYPE_CHECKING:
    from dpstats.design import Design
    from dpstats.federated.question import Question

__all__ = ["Shares"]

_MOST_SITES = 10_000
_SAFE = 1e-9  # ratio: noise beyond what is needed, so that rounding never exceeds a budget


@dataclass(frozen=True, eq=False)
class Shares:
    """A central fit of all sites' rows, and what each site answers of it.

    Attributes
    ----------
    design : Design
        Public design.
    estimator : Estimator
        The central method, or the printed one.
    whole : Plan
        As one curator of all rows would plan it, with the noise that all sites together add.
    rows : mapping of str to int
        Rows of each site.

    Notes
    -----
    Site k answers every question with the noise of a plan of its own (epsilon_k, delta_k), whose
    Gaussian mechanisms have the shares of the whole plan's: multipliers ``z_j mu_0 / mu_k``, with
    ``mu_0^-2 = sum_j z_j^-2`` and ``mu_k = gdp_mu(epsilon_k, delta_k)``. They compose to the
    parameter mu_k. Added up, the noise of all sites has the multipliers ``z_j`` where ``mu_0^-2 =
    sum mu_k^-2``, at which the whole is planned.
    """

    question: Question
    design: Design
    estimator: Estimator
    whole: Plan
    rows: Mapping[str, int]

    @classmethod
    def of(cls, question: Question, design: Design) -> Shares:
        """From public facts alone, so that every site finds the same.

        Raises
        ------
        DPStatsError
            If there is no such plan: no Gaussian noise, too few or many sites.
        """
        privacy, rows, target = question.privacy, question.rows, question.privacy.target
        if privacy.target not in rows or len(rows) > _MOST_SITES or min(rows.values()) < 1:
            raise OptionError("rounds: the rows of every site are needed, the target's too.")
        own = estimators.find(question.model, privacy, question.method)
        if isinstance(own, PrintedMethod):
            whole = own.site_plan(design, privacy.at(target), rows[target], **question.options)
            return cls(question, design, own, replace(whole, n=sum(rows.values())), rows)
        mu = sum(_mu(privacy.at(site)) ** -2 for site in rows) ** -0.5
        delta = privacy.at(target).delta
        together = Central(gaussian_epsilon(mu, delta), delta)
        estimator = estimators.find(question.model, together)
        n = design.expected_rows(sum(rows.values()))
        whole = estimator.plan(design, together, n, **question.options)
        _check(whole)
        return cls(question, design, estimator, _with_noise(whole, mu), rows)

    def at(self, site: str) -> Plan:
        """What one site charges, and answers with noise of its own."""
        privacy, n = self.question.privacy.at(site), self.rows[site]
        privacy.check_delta(n)
        if isinstance(self.estimator, PrintedMethod):
            return self._printed(site, privacy, n)
        made = _with_noise(self.whole, _mu(privacy) / (1 + _SAFE))
        cost = epsilon_of([m.event for m in made.mechanisms], privacy.delta), privacy.delta
        rows = self.design.expected_rows(n)
        return replace(made, privacy=privacy, n=rows, cost=cost, warnings=())

    def _printed(self, site: str, privacy: Central, n: int) -> Plan:
        """Of the printed method: its own budget, and as many batches as the target has."""
        assert isinstance(self.estimator, PrintedMethod)
        asked = {**self.question.options, "steps": self.whole.options["steps"]}
        try:
            return self.estimator.site_plan(self.design, privacy, n, **asked)
        except OptionError as error:
            raise OptionError(f"Site {site!r}: {error}") from None


def _mu(privacy: Central) -> float:
    mu = gdp_mu(privacy.epsilon, privacy.delta)
    if mu == 0:
        raise OptionError("rounds: every site adds Gaussian noise, which needs delta > 0.")
    return mu


def _check(plan: Plan) -> None:
    """Refuse what sites cannot add up."""
    if any(not isinstance(m.event, Gaussian) or m.branch or m.parts > 1 for m in plan.mechanisms):
        raise OptionError("rounds: sites add up sums of all their rows with Gaussian noise only.")


def _with_noise(plan: Plan, mu: float) -> Plan:
    """The same shares at another noise: all mechanisms together have the parameter mu."""
    multipliers = [plan.noise_multiplier(m.slot) for m in plan.mechanisms]
    factor = math.sqrt(sum(z**-2 for z in multipliers)) / mu
    mechanisms = tuple(
        replace(m, event=Gaussian(z * factor))
        for m, z in zip(plan.mechanisms, multipliers, strict=True)
    )
    return replace(plan, mechanisms=mechanisms)
