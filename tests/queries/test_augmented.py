"""Augmented scores: what they are, that their mean is 0 whatever the moments, and clipped last."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpstats.errors import PlanError
from dpstats.estimators.central.gaps.moments import SecondMoments, completion
from dpstats.estimators.central.gaps.questions import AugmentedQuestions
from dpstats.queries import AugmentedScore, AugmentedSquares
from dpstats.queries.blocks import Block, Incomplete
from tests.queries.cases import AUGMENTED, BETA, PRECISION, WHITEN, D, answer, block

SCORE = AugmentedScore(*AUGMENTED, 1e3)


def with_gaps(x: np.ndarray, y: np.ndarray, missing: np.ndarray) -> Block:
    """Rows that are incomplete where `missing` says so, as a store hands them over."""
    gone = missing.any(axis=1)
    made = block(x, y, SCORE, keep=~gone)
    at = np.flatnonzero(gone)
    none = np.zeros((len(at), 1), dtype=bool)
    shown = np.where(missing[at], np.nan, x[at]).astype(np.float32)
    held = Incomplete(at, shown, y[at], np.hstack([missing[at], none]))
    return replace(made, incomplete=lambda: held)


def by_hand(x: Any, y: Any, missing: Any) -> np.ndarray:
    """The whitened score of one row, from its formula."""
    _, _, _, second, correction = AUGMENTED
    seen = (~missing).astype(float)
    completed = completion(missing, PRECISION) @ np.where(missing, 0.0, x)
    i, j = np.triu_indices(D)
    pairs = np.where(missing, 0.0, x)[i] * np.where(missing, 0.0, x)[j] - second * seen[i] * seen[j]
    return WHITEN @ completed * (y - completed @ BETA) - correction @ pairs


def test_a_score_is_what_its_formula_says():
    rng = np.random.default_rng(1)
    x = rng.integers(-64, 65, (30, D)) / 64.0
    y, missing = rng.integers(-64, 65, 30) / 64.0, rng.uniform(size=(30, D)) < 0.4
    missing[missing.all(axis=1)] = False
    wanted = np.array([by_hand(*row) for row in zip(x, y, missing, strict=True)])
    found = np.array(
        [answer(SCORE, with_gaps(x[[r]], y[[r]], missing[[r]])) for r in range(len(x))]
    )
    np.testing.assert_allclose(found, wanted, atol=1e3 * 2.0**-18)
    clip = float(np.median(np.linalg.norm(wanted, axis=1)))
    rows = with_gaps(x, y, missing)
    lengths = np.maximum(np.linalg.norm(wanted, axis=1), clip) / clip
    short = wanted / lengths[:, None]
    np.testing.assert_allclose(
        answer(AugmentedScore(*AUGMENTED, clip), rows), short.sum(axis=0), atol=30 * clip * 2.0**-17
    )
    squares = AugmentedSquares(*AUGMENTED, clip)
    np.testing.assert_allclose(
        squares.decode(answer(squares, rows)), short.T @ short, atol=60 * clip**2 * 2.0**-16
    )


def test_a_row_has_the_same_bits_beside_any_others():
    rng = np.random.default_rng(2)
    x, y = rng.uniform(-1, 1, (4_000, D)), rng.uniform(-1, 1, 4_000)
    missing = rng.uniform(size=x.shape) < 0.3
    missing[missing.all(axis=1)] = False
    whole, _, _ = SCORE._scores(with_gaps(x, y, missing))
    for part in (slice(7, 8), slice(100, 1_033), slice(3_998, None)):
        some, _, _ = SCORE._scores(with_gaps(x[part], y[part], missing[part]))
        np.testing.assert_array_equal(some, whole[part])


def test_a_score_that_is_no_number_contributes_nothing():
    """Public matrices of any size: a row may overflow, and must not turn into any integer."""
    huge = (1e200 * WHITEN, 1e200 * BETA, *AUGMENTED[2:])
    for query in (AugmentedScore(*huge, 1.0), AugmentedSquares(*huge, 1.0)):
        total = answer(query, block(np.eye(D), np.ones(D), query))
        assert np.linalg.norm(total) <= query.clip * D
    scores, _, _ = AugmentedScore(*huge, 1.0)._scores(block(np.eye(D), np.ones(D), SCORE))
    assert not scores[-1].any()  # power: this row did overflow


@pytest.mark.parametrize(
    ("part", "wrong"),
    [(2, np.eye(D + 1)), (2, -np.eye(D)), (3, np.zeros(2)), (4, np.full((D, 6), np.nan))],
)
def test_what_does_not_go_together_is_refused(part, wrong):
    parts = list(AUGMENTED)
    parts[part] = wrong
    with pytest.raises(PlanError):
        AugmentedScore(*parts, 1.0)


@pytest.mark.parametrize("off", [0.0, 0.7])
def test_the_mean_is_zero_whatever_second_moments_rows_are_completed_by(off):
    """Skewed rows, a bent mean, moments that are off by most of themselves; gaps are random.

    Without the correction the mean of scores is many standard errors off (power).
    """
    rng = np.random.default_rng(3)
    m = 200_000
    z = rng.exponential(size=(m, D - 1)) @ np.array([[1.0, 0.6], [0.0, 0.8]]) / 8
    x = np.clip(np.column_stack([np.ones(m), z]), -1, 1)
    y = np.clip(0.1 + 0.5 * x[:, 1] ** 2 - 0.3 * x[:, 2] + 0.05 * rng.normal(size=m), -1, 1)
    true, rates = x.T @ x / m, np.array([0.0, 0.3, 0.2])
    beta = np.linalg.solve(true, x.T @ y / m)
    second = true + off * np.diag([0, 1, 1]) * np.diag(true)
    seen = np.outer(1 - rates, 1 - rates)
    np.fill_diagonal(seen, 1 - rates)
    asks = AugmentedQuestions(np.eye(D), SecondMoments(m, seen, second, None))
    missing = rng.uniform(size=x.shape) < rates

    def mean(query: AugmentedScore) -> np.ndarray:
        scores, _, keep = query._scores(with_gaps(x, y, missing))
        scores = scores * keep[:, None]
        return np.asarray(scores.mean(axis=0) / (scores.std(axis=0) / m**0.5))

    query = asks.score(beta, 1.0, 0.0)
    assert np.abs(mean(query)).max() < 4.0
    if off:
        plain = replace(query, correction=np.zeros_like(query.correction))
        assert np.abs(mean(plain)).max() > 8.0
