"""Second moments are improved by what is known about their noise, and never made worse by much."""

import numpy as np
import pytest

from dpstats.estimators.local.pool import _given_others
from dpstats.estimators.numerics.second_moments import invertible, posterior_means, shrunk

D = 30


def autoregressive(d: int, rho: float) -> np.ndarray:
    places = np.arange(d)
    return rho ** np.abs(places[:, None] - places)


TRUTHS = {
    "uncorrelated": np.eye(D),
    "autoregressive": autoregressive(D, 0.5),
    "equicorrelated": 0.7 * np.eye(D) + 0.3,
    "blocks": np.kron(np.eye(6), 0.4 * np.eye(5) + 0.6),
}


def noisy(truth: np.ndarray, sd: float, rng) -> tuple[np.ndarray, np.ndarray]:
    """The matrix with symmetric noise of sd `sd` off the diagonal, and its variances."""
    d = len(truth)
    noise = np.triu(rng.normal(size=(d, d)) * sd, 1)
    diagonal = np.diag(rng.normal(size=d) * sd * np.sqrt(2))
    return truth + noise + noise.T + diagonal, sd**2 * (np.ones((d, d)) + np.eye(d))


def errors(truth: np.ndarray, sd: float, repeats: int = 20) -> tuple[float, float]:
    """Root mean square errors before and after."""
    rng = np.random.default_rng(1)
    before, after = [], []
    for _ in range(repeats):
        gram, variances = noisy(truth, sd, rng)
        before.append(np.mean((gram - truth) ** 2))
        after.append(np.mean((shrunk(gram, variances, np.eye(len(truth)))[0] - truth) ** 2))
    return float(np.sqrt(np.mean(before))), float(np.sqrt(np.mean(after)))


# Largest error left, as a part of that before: hardly any where entries are alike.
LEFT = {"uncorrelated": 0.25, "autoregressive": 0.75, "equicorrelated": 0.35, "blocks": 0.75}


@pytest.mark.parametrize("name", TRUTHS)
def test_entries_with_a_common_law_lose_most_of_their_noise(name):
    before, after = errors(TRUTHS[name], 0.2)
    assert after < LEFT[name] * before


@pytest.mark.parametrize("name", TRUTHS)
def test_little_noise_is_left_alone(name):
    before, after = errors(TRUTHS[name], 0.002, repeats=3)
    assert after < 1.1 * before


def test_without_noise_nothing_is_changed():
    gram = autoregressive(6, 0.5)
    improved, _, _ = shrunk(gram, np.zeros((6, 6)), np.eye(6))
    assert np.allclose(improved, gram)


def test_pure_noise_leaves_the_target_and_says_so():
    gram, variances = noisy(np.eye(D), 0.3, np.random.default_rng(2))
    improved, part, _ = shrunk(gram, variances, np.eye(D))
    off = improved[~np.eye(D, dtype=bool)]
    assert part == 0
    assert np.all(off == 0)
    correlated, variances = noisy(TRUTHS["blocks"], 0.1, np.random.default_rng(2))
    assert 0 < shrunk(correlated, variances, np.eye(D))[1] < 1


def test_few_numbers_that_are_not_noise_are_left_as_they_are():
    """Intervals count all of their noise: too few say how much of it shrinking would take away."""
    truth = autoregressive(6, 0.5)
    gram, variances = noisy(truth, 0.1, np.random.default_rng(2))
    for fewest, kept in ((15, False), (16, True)):
        improved, part, counted = shrunk(gram, variances, np.eye(6), fewest)
        off = ~np.eye(6, dtype=bool)
        assert np.allclose(improved[off], gram[off]) == kept
        assert (part == 1) == kept
        assert part <= counted <= 1


@pytest.mark.parametrize("d", [4, 8, 40])
def test_what_is_not_seen_is_counted(d):
    """Noise of entries that stay at the target: more where there are few, or nearly enough."""
    counted, excess = [], []
    for seed in range(40):
        gram, variances = noisy(np.eye(d), 0.2, np.random.default_rng(seed))
        _, part, seen = shrunk(gram, variances, np.eye(d))
        values = gram[np.triu_indices(d, 1)]
        if part == 0:
            counted.append(seen)
            excess.append(np.mean(values**2))
    least = (2 / (d * (d - 1) / 2)) ** 0.25
    assert min(counted) == pytest.approx(least)
    assert np.corrcoef(counted, excess)[0, 1] > 0.5


def test_a_wrong_scale_of_the_target_is_found():
    gram, variances = noisy(0.3 * np.eye(D), 0.05, np.random.default_rng(3))
    improved, _, _ = shrunk(gram, variances, np.eye(D))
    assert np.abs(np.diag(improved) - 0.3).max() < 0.05


def test_the_posterior_of_two_groups_is_near_their_means():
    rng = np.random.default_rng(4)
    truth = np.repeat([0.0, 1.0], 500)
    means, part = posterior_means(truth + 0.2 * rng.normal(size=1000), 0.2)
    error = np.sqrt(np.mean((means - truth) ** 2)) / 0.2
    assert error < 0.5
    assert abs(part - error) < 0.2  # it says what is left of the noise


def test_the_posterior_of_values_far_apart_leaves_them():
    rng = np.random.default_rng(4)
    spread = rng.normal(size=1000)
    means, _ = posterior_means(spread + 0.2 * rng.normal(size=1000), 0.2)
    assert np.sqrt(np.mean((means - spread) ** 2)) < 0.21


def test_raised_eigenvalues_are_counted_as_hidden():
    gram = np.diag([2.0, 1.0, -0.5])
    repaired, hidden = invertible(gram, 0.1, 1.0)
    floor = 2 * np.sqrt(3) * 0.1
    assert np.allclose(np.diag(repaired), [2.0, 1.0, floor])
    assert np.allclose(np.diag(hidden), [0.0, 0.0, 1.0])
    assert not invertible(np.diag([2.0, 1.0]), 0.1, 1.0)[1].any()


def test_the_noise_of_a_second_moment_given_the_others_is_that_of_the_inverse():
    """Of columns that are nearly collinear their own second moments say little of it."""
    truth = np.array([[0.8, -0.63, 0.1], [-0.63, 0.53, 0.0], [0.1, 0.0, 0.4]])
    rng, sd = np.random.default_rng(2), 2e-4
    variances = noisy(truth, sd, rng)[1]
    given = [1 / np.diag(np.linalg.inv(noisy(truth, sd, rng)[0])) for _ in range(4_000)]
    relative = np.std(given, axis=0) / np.mean(given, axis=0)
    found, moments = _given_others(truth, variances)
    np.testing.assert_allclose(moments, 1 / np.diag(np.linalg.inv(truth)))
    np.testing.assert_allclose(found, relative, rtol=0.1)
    assert found[1] > 10 * sd * np.sqrt(2) / truth[1, 1]  # its own
