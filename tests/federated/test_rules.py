"""Rules that combine sites, against closed forms, brute force and simulations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2, multivariate_normal

from dpstats.combining import RULES, combined, distances
from dpstats.combining.homes import (
    LEVELS,
    Home,
    agreeing,
    heterogeneity,
    homes_of,
    pool_estimates,
    posterior,
)
from dpstats.protocol.assisted import bounds
from tests.grids import grid

K = 10
SIZES = (2e3, 2e4)
# The prior of the heterogeneity: half at 0, a tail of density (.1 + lambda)^-1.3.
TAIL = np.where(LEVELS > 0, np.gradient(LEVELS) / (0.1 + LEVELS) ** 1.3, 0.0)
HEAVY = np.where(LEVELS > 0, 0.5 * TAIL / TAIL.sum(), 0.5)


def drawn(rng: np.random.Generator, d: int, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Estimates of a target at 0 and of sources off by so many of the target's standard errors."""
    rows = np.exp(rng.uniform(*np.log(SIZES), len(offsets) + 1))
    variances = 1 / rows + 30 * d / rows**2
    cov = variances[:, None, None] * np.eye(d)
    centre = np.vstack([np.zeros(d), offsets * np.sqrt(variances[0])])
    return centre + np.sqrt(variances)[:, None] * rng.standard_normal(centre.shape), cov


def directions(rng: np.random.Generator, d: int, count: int) -> np.ndarray:
    u = rng.standard_normal((count, d))
    return np.sqrt(d) * u / np.linalg.norm(u, axis=1, keepdims=True)


# How sources may differ from the target, in its standard errors per coordinate.
PATTERNS = {
    "none": lambda rng, d: np.zeros((K, d)),
    "half far": lambda rng, d: np.vstack([np.zeros((K // 2, d)), 20 * directions(rng, d, K // 2)]),
    "half far, rest at 2": lambda rng, d: (
        np.repeat([2, 20], K // 2)[:, None] * directions(rng, d, K)
    ),
    "all at 1": lambda rng, d: directions(rng, d, K),
    "all at 2": lambda rng, d: 2 * directions(rng, d, K),
    "one shift of 2": lambda rng, d: np.full((K, d), 2.0),
}
# Error over that of the target alone; what was measured with 300 draws is below each.
MOST = {
    "blend": (0.47, 0.57, 0.87, 0.62, 0.77, 1.14),
    "minimax": (0.79, 0.83, 0.96, 0.84, 0.91, 1.02),
}


def errors(rule: str, pattern: str, d: int, draws: int) -> tuple[float, float, float]:
    """Error over the target's own; how often intervals hold the truth, and ones 2/3 as long."""
    rng, own, made, held, shrunk = np.random.default_rng(5), 0.0, 0.0, 0.0, 0.0
    for _ in range(draws):
        theta, cov = drawn(rng, d, PATTERNS[pattern](rng, d))
        found = RULES[rule](theta, cov)
        own += (theta[0] ** 2).sum() / cov[0, 0, 0]
        made += (found.value**2).sum() / cov[0, 0, 0]
        assert found.prior is not None
        low, high = bounds(theta[0], np.sqrt(np.diag(cov[0])), *found.prior, 0.05).T
        off = np.abs(low + high) / (high - low)  # from the middle, over half of the length
        held += (off < 1).mean() / draws
        shrunk += (off < 2 / 3).mean() / draws
    return float(np.sqrt(made / own)), held, shrunk


@pytest.mark.full
@pytest.mark.parametrize(
    ("rule", "pattern"),
    grid([(r, p) for r in MOST for p in PATTERNS], lambda case: case[1] in ("none", "half far")),
)
def test_error_is_at_most_what_was_measured(rule: str, pattern: str) -> None:
    error, held, _ = errors(rule, pattern, 5, 60)
    assert error < MOST[rule][list(PATTERNS).index(pattern)]
    assert abs(held - 0.95) < 4 * np.sqrt(0.05 * 0.95 / 300)  # of 60 draws of five coefficients


def test_intervals_of_the_blend_cover_a_shift_that_all_sources_share_and_shorter_ones_do_not() -> (
    None
):
    _, held, shrunk = errors("blend", "one shift of 2", 5, 60)
    assert abs(held - 0.95) < 4 * np.sqrt(0.05 * 0.95 / 300)
    assert shrunk < 0.88


def test_a_pool_is_generalised_least_squares() -> None:
    rng = np.random.default_rng(1)
    theta = rng.standard_normal((4, 3))
    roots = rng.standard_normal((4, 3, 6))
    cov = roots @ roots.swapaxes(1, 2)
    design = np.tile(np.eye(3), (4, 1))
    weight = np.zeros((12, 12))
    for k in range(4):
        weight[3 * k : 3 * k + 3, 3 * k : 3 * k + 3] = np.linalg.inv(cov[k])
    normal = design.T @ weight @ design
    mean, total = pool_estimates(theta, cov)
    assert np.allclose(mean, np.linalg.solve(normal, design.T @ weight @ theta.ravel()))
    assert np.allclose(total, np.linalg.inv(normal))
    assert np.allclose(RULES["pool"](theta, cov).value, mean)


def test_the_posterior_is_that_of_brute_force_integration() -> None:
    """Two parameters, two homes, three heterogeneities, by quadrature over the plane."""
    own, cov = np.array([0.3, -0.2]), np.array([[1.0, 0.3], [0.3, 0.5]])
    homes = [
        Home(np.array([1.0, 0.4]), np.array([[0.2, 0.05], [0.05, 0.1]]), frozenset([0])),
        Home(np.array([-1.5, 0.0]), np.array([[0.3, 0.0], [0.0, 0.6]]), frozenset([1, 2]), 2.0),
    ]
    prior = np.zeros(LEVELS.size)
    prior[[0, 8, 12]] = 0.5, 0.3, 0.2

    # A regular grid is exact to many digits for a smooth density that is 0 at its ends.
    axis = np.linspace(-9, 9, 241)
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    mass = sum(
        home.weight * g * multivariate_normal.pdf(points, home.mean, home.cov + level * cov)
        for home in homes
        for level, g in zip(LEVELS, prior, strict=True)
        if g > 0
    )
    mass = mass * multivariate_normal.pdf(points, own, cov)
    mass /= mass.sum()
    mean = mass @ points
    found = posterior(own, cov, homes, prior)
    assert np.allclose(found.mean, mean, atol=1e-4)
    assert np.allclose(found.cov, np.cov(points.T, aweights=mass, ddof=0), atol=1e-3)
    assert found.homes.sum() == pytest.approx(1)


def test_heterogeneity_is_where_q_is_its_expectation_and_0_where_sites_agree() -> None:
    rng, d = np.random.default_rng(3), 4
    theta, cov = drawn(rng, d, 5 * directions(rng, d, K))
    tau2 = heterogeneity(theta[1:], cov[1:], cov[0])
    wider = cov[1:] + tau2 * cov[0]
    off = theta[1:] - pool_estimates(theta[1:], wider)[0]
    q = sum(r @ np.linalg.inv(c) @ r for r, c in zip(off, wider, strict=True))
    assert q == pytest.approx((K - 1) * d, rel=1e-4)
    assert heterogeneity(np.ones((3, d)), cov[:3], cov[0]) == 0
    assert heterogeneity(theta[:1], cov[:1], cov[0]) == 0


def test_two_clear_clusters_are_found_without_the_target() -> None:
    rng, d = np.random.default_rng(4), 5
    apart = np.repeat([0.0, 30.0], [6, 4])[:, None] * np.ones((10, d))
    theta, cov = drawn(rng, d, apart)
    found = agreeing(homes_of(theta[1:], cov[1:], cov[0], HEAVY), theta[1:], cov[1:], 1e-6)
    assert {home.members for home in found} == {frozenset(range(6)), frozenset(range(6, 10))}
    moved = np.vstack([theta[:1] + 100.0, theta[1:]])
    again = RULES["blend"](moved, cov)
    assert np.array_equal(again.clusters, RULES["blend"](theta, cov).clusters)
    assert again.weights[0] > 0.99  # far from all sources it is alone


@pytest.mark.parametrize("rule", RULES)
def test_no_rule_depends_on_the_units_of_columns(rule: str) -> None:
    rng, d = np.random.default_rng(6), 4
    theta, cov = drawn(rng, d, 2 * directions(rng, d, K))
    change = rng.standard_normal((d, d)) + 3 * np.eye(d)
    one = RULES[rule](theta, cov)
    other = RULES[rule](theta @ change.T, change @ cov @ change.T)
    assert np.allclose(other.value, change @ one.value, rtol=1e-5, atol=1e-8)
    assert np.allclose(other.cov, change @ one.cov @ change.T, rtol=1e-5)
    assert np.allclose(other.weights, one.weights, atol=1e-6)
    assert (one.prior is None) == (rule in ("select", "pool"))


@pytest.mark.parametrize("rule", ["blend", "minimax"])
def test_a_prior_has_the_units_of_its_column(rule: str) -> None:
    rng, d = np.random.default_rng(6), 4
    theta, cov = drawn(rng, d, 2 * directions(rng, d, K))
    unit = np.array([1.0, 1e-3, 50.0, 2.0])
    one = RULES[rule](theta, cov).prior
    other = RULES[rule](theta * unit, cov * np.outer(unit, unit)).prior
    assert one is not None
    assert other is not None
    assert np.allclose(other[0], one[0] * unit, rtol=1e-5)
    assert np.allclose(other[1], one[1] * unit**2, rtol=1e-5)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("d", [1, 2, 3])
def test_a_target_alone_is_itself(rule: str, d: int) -> None:
    theta, cov = np.arange(1.0, d + 1)[None], np.eye(d)[None]
    found = combined(rule, theta, cov)
    assert np.allclose(found.value, theta[0])
    assert np.allclose(found.cov, cov[0])
    assert found.weights.tolist() == [1.0]


@pytest.mark.parametrize("rule", RULES)
def test_weights_are_shares(rule: str) -> None:
    rng = np.random.default_rng(7)
    theta, cov = drawn(rng, 5, PATTERNS["half far"](rng, 5))
    found = RULES[rule](theta, cov)
    assert found.weights.sum() == pytest.approx(1)
    assert (found.weights >= -1e-12).all()
    if rule != "pool":
        assert found.weights[K // 2 + 1 :].sum() < 0.01


@pytest.mark.full
def test_distances_are_chi_squared_where_sites_agree_and_selection_keeps_its_level() -> None:
    rng, d, draws = np.random.default_rng(8), 3, 300
    found, all_kept = [], 0
    for _ in range(draws):
        theta, cov = drawn(rng, d, np.zeros((K, d)))
        found.append(distances(theta, cov)[1])
        all_kept += (RULES["select"](theta, cov).weights > 0).all()
    below = np.mean(np.array(found) < chi2.ppf(0.5, d))
    assert abs(below - 0.5) < 4 * 0.5 / np.sqrt(draws)
    assert all_kept / draws > 0.95 - 4 * np.sqrt(0.05 * 0.95 / draws)


def means(rng: np.random.Generator, h: float) -> tuple[np.ndarray, np.ndarray]:
    """A mean of 1,000 rows and those of twenty sources: ten off by h either way, ten by 1."""
    off = np.r_[0.0, rng.choice([-h, h], 10), rng.choice([-1.0, 1.0], 10)]
    cov = np.full((21, 1, 1), 1.05e-3)
    return (off + np.sqrt(cov[:, 0, 0]) * rng.standard_normal(21))[:, None], cov


@pytest.mark.parametrize("d", [1, 5])
def test_every_pool_is_a_home_and_those_that_agree_are_pooled_as_equal(d: int) -> None:
    rng = np.random.default_rng(1)
    theta, cov = drawn(rng, d, PATTERNS["half far, rest at 2"](rng, d))
    every = homes_of(theta[1:], cov[1:], cov[0], HEAVY)
    agreed = agreeing(every, theta[1:], cov[1:], 0.05)
    names = {home.members for home in agreed}
    homes = [*agreed, *(home for home in every if home.members not in names)]
    by_hand = posterior(theta[0], cov[0], homes, HEAVY).mean
    assert RULES["blend"](theta, cov).value == pytest.approx(by_hand)


def test_a_part_of_a_pool_is_a_home_as_far_as_the_pool_is_none() -> None:
    """Weights of three sources against normal densities, and their limits."""
    rng, d = np.random.default_rng(2), 2
    theta, cov = drawn(rng, d, np.array([[0.0, 0.0], [0.5, 0.2], [2.0, 1.0]]))
    homes = {home.members: home for home in homes_of(theta[1:], cov[1:], cov[0], HEAVY)}
    pair, whole = frozenset([0, 1]), frozenset([0, 1, 2])
    assert set(homes) == {frozenset([0]), frozenset([1]), frozenset([2]), pair, whole}

    def one(a: Home, b: Home) -> float:
        laws = [
            multivariate_normal.pdf(a.mean - b.mean, np.zeros(d), a.cov + b.cov + level * cov[0])
            for level in LEVELS
        ]
        return laws[0] * HEAVY[0] / (laws @ HEAVY)

    both = 1 - one(homes[pair], homes[frozenset([2])])
    inner = both * (1 - one(homes[frozenset([0])], homes[frozenset([1])]))
    expected = {whole: 3.0, pair: 2 * both, frozenset([2]): both}
    expected |= {frozenset([k]): inner for k in (0, 1)}
    assert {m: home.weight for m, home in homes.items()} == pytest.approx(expected)

    far = homes_of(np.array([[0.0], [0.0], [50.0]]), np.full((3, 1, 1), 0.1), np.eye(1), HEAVY)
    assert far[2].weight == pytest.approx(1)  # alone: no larger pool takes it in
    assert far[3].weight == pytest.approx(2)  # two that agree are one home
    assert far[0].weight == far[1].weight < 0.5  # not to be counted once more


@pytest.mark.slow
@pytest.mark.parametrize(("h", "most"), [(0.0, 0.7), (0.1, 1.15)])
def test_a_mean_gains_from_sources_and_loses_little_near_them(h: float, most: float) -> None:
    """400 draws: .66 and 1.05 times the target's own error; standard errors .03 and .02."""
    rng, own, made, wide = np.random.default_rng(3), 0.0, 0.0, 0.0
    for _ in range(400):
        theta, cov = means(rng, h)
        own += theta[0, 0] ** 2
        made += RULES["blend"](theta, cov).value[0] ** 2
        wide += RULES["select"](theta, cov).value[0] ** 2
    assert np.sqrt(made / own) < most
    if h:
        assert np.sqrt(wide / own) > most  # as pools of sources that pass a test do
