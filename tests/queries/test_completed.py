"""What a completed row is: within the bounds and on the grid, and of rows that show something."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpstats.queries import Completed, Geometry, Gram, ObservedPairs
from dpstats.queries.blocks import Block, Incomplete
from tests.queries.cases import answer, block

STEEP = np.array([[1.0, -0.9, 0.0], [-0.9, 0.3, 0.0], [0.0, 0.0, 1.0]]) + np.eye(3)
GRAM = Gram(Geometry(2.0))


def rows_with_gaps(x: np.ndarray, missing: np.ndarray) -> Block:
    """Rows that are all incomplete, as read."""
    made = block(x, np.full(len(x), 0.25), GRAM, keep=np.zeros(len(x)))
    held = Incomplete(np.arange(len(x)), x.astype(np.float32), np.full(len(x), 0.25), missing)
    return replace(made, incomplete=lambda: held)


def test_a_completed_row_is_within_the_bounds_and_on_the_grid():
    x = np.array([[1.0, 0.0, 0.5], [-1.0, 0.0, 0.5], [0.25, 0.0, 0.5]])
    missing = np.tile([False, True, False, False], (3, 1))
    steep = STEEP.copy()
    steep[1, 1] = 0.5  # predicts 1.8 times the first column
    made = Completed(GRAM, steep)._completed(rows_with_gaps(x, missing))
    np.testing.assert_array_equal(made.x[:2, 1], [1.0, -1.0])
    assert made.x[2, 1] == np.float32(np.rint(0.45 / made.grid[1]) * made.grid[1])
    np.testing.assert_array_equal(made.x[:, [0, 2]], x[:, [0, 2]].astype(np.float32))


def test_a_row_that_shows_no_covariate_or_no_response_contributes_nothing():
    x = np.full((3, 3), 0.5)
    missing = np.array([[1, 1, 1, 0], [1, 0, 0, 1], [1, 1, 1, 1]], dtype=bool)
    dark = rows_with_gaps(x, missing)
    for query in (Completed(GRAM, np.eye(3)), ObservedPairs(3)):
        assert not np.any(answer(query, dark))
    seen = rows_with_gaps(x, missing & [[True, True, False, False]])
    for query in (Completed(GRAM, np.eye(3)), ObservedPairs(3)):
        assert np.any(answer(query, seen))  # power


def test_a_row_without_a_solution_stops_no_question():
    """Nearly symmetric, so that it is allowed; the upper block is singular in float64."""
    p, q, r = (float.fromhex(f"0x1.4bce60c{h}p+18") for h in ("ba6cfe", "be5847", "b681b5"))
    precision = np.array([[p, q, 0.0], [r, p, 0.0], [0.0, 0.0, 1.0]])
    query, x = Completed(GRAM, precision), np.array([[0.5, 0.5, 0.5], [0.25, 0.5, 0.5]])
    both = np.array([[True, True, False, False], [False, True, False, False]])
    answers = [answer(query, rows_with_gaps(x, missing)) for missing in (both, both[1:][[0, 0]])]
    assert np.isfinite(answers).all()
    alone = answer(query, rows_with_gaps(x[1:], both[1:]))  # the other row is what it was
    expected = alone + answer(Completed(GRAM, np.eye(3)), rows_with_gaps(x[:1], both[:1]))
    np.testing.assert_array_equal(answers[0], expected)
