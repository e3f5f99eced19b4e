"""Least squares as most libraries publish it: noise on the sums, in declared units, then algebra.

For comparison only. The rows are clipped to their declared ranges, so that the largest row these
allow sets the noise; X'X, X'y and y'y are released by the curator, whose queries compute the
sensitivity; nothing else is known of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpstats.design import Design
from dpstats.estimators.base import Method, Request, make_plan, need_delta
from dpstats.estimators.central.sandwich import symmetric_noise_square
from dpstats.estimators.guesses import response_bound
from dpstats.privacy import Privacy
from dpstats.protocol import CoefficientEstimate, Holder, Plan
from dpstats.queries import Geometry, Gram, Query, ResidualMoment, Score
from dpstats.theory import Theory

__all__ = ["NoisySums"]


@dataclass(frozen=True)
class NoisySums(Method):
    """b = A^-1 c from A = X'X + N, c = X'y + e, and s = y'y + u, with analytic standard errors.

    Their square is sigma^2 A^-1 + A^-1 (s_e^2 I + E[N b b' N]) A^-1 with sigma^2 = (s - 2 b'c +
    b'Ab) / (n - d), not below 0: the textbook's for these sums, and the delta method's for the
    noise on them. A is inverted as it is, even where noise has made it indefinite.
    """

    name: ClassVar[str] = "noisy sums"
    model: ClassVar[str] = "ols"
    theory: ClassVar[Mapping[str, Theory]] = {}
    options: ClassVar[Mapping[str, str]] = {}

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Mapping[str, Any]) -> Plan:
        need_delta(self.name, privacy)
        asks = (
            Request("gram", 0.45, "X'X"),
            Request("cross", 0.45, "X'y"),
            Request("square", 0.1, "y'y"),
        )
        return make_plan(self, design, privacy, n, asks, options)

    def fit(self, holder: Holder[Query], design: Design, plan: Plan) -> CoefficientEstimate:
        """Ask for the sums, and solve."""
        d, bound = len(plan.names), response_bound(design)
        everyone, zero = Geometry(float(design.norm_bound)), np.zeros(len(plan.names))
        gram, (_, s_gram) = holder.ask(Gram(everyone), "gram")
        cross, (_, s_cross) = holder.ask(Score(everyone, zero, bound), "cross")
        (square,), _ = holder.ask(ResidualMoment(everyone, zero, bound), "square")
        inverse = np.linalg.inv(gram)
        params = inverse @ cross
        left = float(square) - 2 * params @ cross + params @ gram @ params
        sampling = max(left, 0.0) / (plan.n - d) * inverse
        noise = s_cross**2 * np.eye(d) + symmetric_noise_square(s_gram, np.outer(params, params))
        privacy = inverse @ noise @ inverse
        return CoefficientEstimate(
            params=params,
            cov=privacy + sampling,
            cov_privacy=privacy,
            cov_sampling=sampling,
            nobs=float(plan.n),
            released={},
        )
