"""Losses of candidate fits: what they are, and how far one row can move a choice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpstats.errors import PlanError
from dpstats.families import BINOMIAL, GAUSSIAN
from dpstats.privacy import Neighbors
from dpstats.queries import CandidateLosses
from tests.queries.cases import answer, block

BETAS = np.array([[0.0, 0.0, 0.0], [0.4, -0.25, 0.7], [30.0, -20.0, 5.0]])


def query(clip: float = 0.5, family: Any = GAUSSIAN) -> CandidateLosses:
    return CandidateLosses(BETAS, clip, np.array([0.0, 1.0, 2.5]), family)


@pytest.mark.parametrize("family", [GAUSSIAN, BINOMIAL], ids=str)
def test_utilities_are_clipped_losses_and_penalties(family: Any) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.uniform(-1, 1, (50, 3)), rng.uniform(0, 1, 50)
    asked = query(family=family)
    rows = block(x, y, asked)
    r = np.array([family.residual(rows.y, rows.x @ beta) for beta in BETAS])
    expected = -np.minimum((r / 0.5) ** 2, 1.0).sum(axis=1) - asked.penalty
    assert answer(asked, rows) == pytest.approx(expected, abs=1e-6)


def test_one_row_moves_each_utility_by_at_most_one_and_can() -> None:
    asked, rng = query(), np.random.default_rng(2)
    moved = []
    for _ in range(300):
        x, y = rng.uniform(-1, 1, (2, 3)), rng.choice([-1.0, 0.0, 1.0], 2)
        a, b = (answer(asked, block(x[[i]], y[[i]], asked)) for i in range(2))
        moved.append(np.abs(a - b).max())
    for neighbors in Neighbors:
        assert max(moved) <= asked.sensitivity(neighbors, 1)
    assert max(moved) > 0.99
    assert asked.sensitivity(Neighbors.REPLACE_ONE, 3) == 3.0


def test_candidates_without_a_clip_or_a_penalty_are_refused() -> None:
    with pytest.raises(PlanError):
        query(clip=0.0)
    with pytest.raises(PlanError):
        CandidateLosses(BETAS, 1.0, np.zeros(2))
