"""Entry variances of symmetric noise, against brute-force simulation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpstats.estimators.numerics.entrywise import average, carried, operator_norm, symmetric_pattern

DRAWS = 100_000  # a variance is then known to 0.45 %; the largest of ten to about 1.5 %


def symmetric(rng: Any, variances: Any, draws: int) -> Any:
    """Symmetric matrices with independent entries of these variances on and above the diagonal."""
    raw = np.triu(rng.normal(size=(draws, *variances.shape)) * np.sqrt(variances))
    return raw + np.triu(raw, 1).transpose(0, 2, 1)


def random_variances(rng: Any, d: int) -> Any:
    half = rng.uniform(0.2, 2.0, (d, d))
    return half + half.T


def test_the_pattern_is_that_of_noise_on_isometric_coordinates() -> None:
    # Packed with sqrt(2) on off-diagonal entries, unit noise on every coordinate.
    noise = symmetric(np.random.default_rng(0), symmetric_pattern(3), DRAWS)
    packed = noise[:, *np.triu_indices(3)] * np.where(np.eye(3), 1, np.sqrt(2))[np.triu_indices(3)]
    assert packed.var(axis=0) == pytest.approx(1.0, rel=0.03)


def test_carried_variances_are_exact_on_the_diagonal() -> None:
    rng = np.random.default_rng(1)
    variances, change = random_variances(rng, 4), rng.normal(size=(4, 4))
    moved = change.T @ symmetric(rng, variances, DRAWS) @ change
    assert np.diag(carried(variances, change)) == pytest.approx(
        np.diagonal(moved, axis1=1, axis2=2).var(axis=0), rel=0.03
    )


def test_carried_variances_are_right_off_the_diagonal_on_average() -> None:
    # The covariance left out has mean zero over random signs of the change of coordinates.
    rng = np.random.default_rng(2)
    variances, size = random_variances(rng, 4), rng.uniform(0.3, 1.5, (4, 4))
    noise = symmetric(rng, variances, DRAWS)
    change = size * rng.choice([-1.0, 1.0], (DRAWS, 4, 4))
    moved = change.transpose(0, 2, 1) @ noise @ change
    off = ~np.eye(4, dtype=bool)
    assert carried(variances, size)[off] == pytest.approx(moved.var(axis=0)[off], rel=0.03)


@pytest.mark.parametrize("change", [np.diag([0.1, 2.0, 30.0]), np.eye(3)[[2, 0, 1]]])
def test_carried_variances_are_exact_where_coordinates_are_scaled_or_renamed(change: Any) -> None:
    rng = np.random.default_rng(3)
    variances = random_variances(rng, 3)
    moved = change.T @ symmetric(rng, variances, DRAWS) @ change
    assert carried(variances, change) == pytest.approx(moved.var(axis=0), rel=0.03)


@pytest.mark.parametrize("d", [5, 20, 60])
def test_operator_norm_lies_between_typical_and_largest_eigenvalue(d: int) -> None:
    rng = np.random.default_rng(4)
    variances = 9.0 * symmetric_pattern(d)
    values = np.linalg.eigvalsh(symmetric(rng, variances, 200))
    typical = float(np.sqrt(np.mean(values**2)))
    largest = float(np.mean(np.abs(values).max(axis=1)))
    assert typical < operator_norm(variances) < largest
    assert operator_norm(variances) == pytest.approx(3.0 * np.sqrt(d + 1))


def test_average_has_the_least_variance_and_states_it() -> None:
    rng = np.random.default_rng(5)
    truth = np.array([[2.0, -1.0], [-1.0, 0.5]])
    var_a, var_b = random_variances(rng, 2), random_variances(rng, 2)
    a, b = (truth + symmetric(rng, v, DRAWS) for v in (var_a, var_b))
    mean, variances = average(a, var_a, b, var_b)
    assert np.mean(mean, axis=0) == pytest.approx(truth, abs=0.02)
    assert variances == pytest.approx(np.var(mean, axis=0), rel=0.03)
    assert np.all(variances < np.minimum(var_a, var_b))


def test_an_estimate_that_knows_nothing_is_ignored() -> None:
    known, blind = np.eye(2), np.full((2, 2), 1e12)
    mean, variances = average(known, np.full((2, 2), 0.1), 1e3 * np.ones((2, 2)), blind)
    assert mean == pytest.approx(known, abs=1e-6)
    assert variances == pytest.approx(0.1)
