"""An estimator runs unchanged on whoever answers its questions: two curators who add their sums."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from dpstats.errors import PlanError
from dpstats.estimators.central.newton.newton import Newton
from dpstats.estimators.central.published.dp_gd import DPGD
from dpstats.holders import Curator
from dpstats.mechanisms.noise import SeededNoise
from dpstats.privacy import Central
from dpstats.protocol import Answer, CoefficientEstimate, Holder, NoiseLaw, Plan
from dpstats.queries import Query
from tests.estimators.ols_cases import design, rows

N, D = 4000, 3


@dataclass(frozen=True)
class Both:
    """Two curators, each of its own rows and with noise of its own; their noisy sums are added."""

    one: Holder[Query]
    two: Holder[Query]
    plan: Plan

    def ask(self, query: Query, slot: str, part: int = 0) -> Answer:
        if query.kind != "sum":
            raise PlanError(f"{query.name!r} is no sum: two holders cannot add it up.")
        (a, first), (b, second) = (h.ask(query, slot, part) for h in (self.one, self.two))
        return Answer(a + b, NoiseLaw(first.shape, math.hypot(first.scale, second.scale)))


def fits(method: Any, epsilon: float, seed: int = 0) -> tuple[CoefficientEstimate, ...]:
    """The same rows held by one curator, and by two."""
    x, y, _ = rows(np.random.default_rng(seed), N, D)
    shape = design(D)
    plan = method.plan(shape, Central(epsilon, 1e-6), N)

    def curator(part: slice, stream: int) -> Curator:
        return Curator(shape.source((y[part], x[part])), shape, plan, SeededNoise(stream))

    half = slice(0, N // 2), slice(N // 2, N)
    both = Both(curator(half[0], 2), curator(half[1], 3), plan)
    return method.fit(curator(slice(0, N), 1), shape, plan), method.fit(both, shape, plan)


def test_with_little_noise_two_curators_answer_as_one() -> None:
    alone, together = fits(DPGD(), 1e5)
    np.testing.assert_allclose(together.params, alone.params, atol=1e-3)
    np.testing.assert_allclose(together.cov, alone.cov, rtol=1e-2, atol=1e-8)


def test_errors_count_the_noise_of_both() -> None:
    # The last step's noise enters squared: with one curator's law in place of both the ratio is 1.
    alone, together = fits(DPGD(), 4.0)
    ratio = np.trace(together.cov_privacy) / np.trace(alone.cov_privacy)
    assert ratio == pytest.approx(2.0, rel=0.2)


def test_what_cannot_be_added_is_refused_before_it_is_answered() -> None:
    with pytest.raises(PlanError, match=r"no sum|other units"):
        fits(Newton(), 1.0)
