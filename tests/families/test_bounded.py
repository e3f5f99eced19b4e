"""Scores of bounded length: mean zero whatever the clip, and the moments that sums have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpstats.errors import OptionError, PlanError
from dpstats.families import SUPPORTED
from dpstats.families.bounded import BoundedFamily
from dpstats.queries import WhitenedScore
from tests.grids import grid

ETA = np.array([-2.5, -1.0, 0.3, 2.0])
MANY = np.arange(4_000.0)


def bounded(name: str, link: str, spread: float = 0.0) -> BoundedFamily:
    alpha = {"alpha": 0.7} if name == "negativebinomial" else {}
    return BoundedFamily(name, link, spread=spread, **alpha)


FAMILIES = [
    bounded("gaussian", "identity", 0.5),
    bounded("gaussian", "log", 2.0),
    bounded("binomial", "logit"),
    bounded("binomial", "probit"),
    bounded("binomial", "cloglog"),
    bounded("poisson", "log"),
    bounded("poisson", "log", 0.7),
    bounded("poisson", "identity"),
    bounded("negativebinomial", "log", 2.5),
    bounded("gamma", "log", 0.3),
    bounded("gamma", "log", 2.0),
]


def law(family: BoundedFamily, mu: float) -> tuple[Any, Any]:
    """Responses of a mean, and their chances: all of them, or a fine grid of quantiles."""
    if family.name == "binomial":
        return np.array([0.0, 1.0]), np.array([1 - mu, mu])
    if family.name in ("poisson", "negativebinomial"):
        size = family.spread
        exact = stats.nbinom(1 / size, 1 / (1 + size * mu)) if size else stats.poisson(mu)
        return MANY, exact.pmf(MANY)
    chances = (np.arange(400_000) + 0.5) / 400_000
    if family.name == "gaussian":
        y = stats.norm.ppf(chances, mu, family.spread)
    else:
        y = stats.gamma.ppf(chances, 1 / family.spread, scale=mu * family.spread)
    return y, np.full(y.size, 1 / y.size)


def psi(family: BoundedFamily, y: Any, eta: float, limit: float) -> Any:
    e, k = np.full(y.shape, eta), np.full(y.shape, limit)
    return np.clip(family.residual(y, e) - family.centre(e, k), -k, k)


def etas(family: BoundedFamily) -> Any:
    return np.exp(ETA) if family.link == "identity" and family.name == "poisson" else ETA


@pytest.mark.parametrize("of_sd", grid([0.5, 0.05, 1.5, 6.0], 1))
@pytest.mark.parametrize("family", grid(FAMILIES, lambda f: f.name != "gamma"), ids=str)
def test_a_bounded_score_has_mean_zero_and_these_moments(
    family: BoundedFamily, of_sd: float
) -> None:
    for eta in etas(family):
        at = np.array([eta])
        mu, factor = float(family.mean(at)[0]), float(family.factor(at)[0])
        sd = float(np.sqrt(family.score_variance(at)[0]))
        limit, (y, p) = of_sd * sd, law(family, mu)
        value = psi(family, y, eta, limit)
        assert np.abs(value).max() <= limit
        assert abs(p @ value) < 2e-3 * limit
        square, kept = (float(v[0]) for v in family.moments(at, np.array([limit])))
        assert square == pytest.approx(p @ value**2, rel=5e-3)
        distance = factor * (y - mu)
        assert kept == pytest.approx(p @ (value * distance) / sd**2, rel=5e-3)
        within = float(family.within(at, np.array([limit]))[0])
        assert within == pytest.approx(p[np.abs(distance) <= limit].sum(), abs=1e-5)


@pytest.mark.full
def test_the_share_kept_is_the_slope_of_the_mean_over_the_information() -> None:
    """By a numerical derivative, with the score held where it is."""
    for family in FAMILIES:
        eta, step = float(etas(family)[2]), 1e-4
        mu = float(family.mean(np.array([eta]))[0])
        limit = float(np.sqrt(family.score_variance(np.array([eta]))[0]))
        means = []
        for sign in (-1, 1):
            there = float(family.mean(np.array([eta + sign * step]))[0])
            y, p = law(family, there)
            means.append(p @ psi(family, y, eta, limit))
        kept = float(family.moments(np.array([eta]), np.array([limit]))[1][0])
        information = float(family.curvature(np.array([eta]))[0])
        if family.name in ("gaussian", "gamma"):
            information /= family.spread**2 if family.name == "gaussian" else family.spread
            information *= limit**2 / float(family.curvature(np.array([eta]))[0])
        elif family.spread:  # a Poisson score of other counts
            information *= 1.0
        assert (means[1] - means[0]) / (2 * step) == pytest.approx(kept * information, rel=0.02), (
            family,
            mu,
        )


def test_without_a_centre_the_mean_is_not_zero() -> None:
    """Power: a clip of skewed residuals alone moves the root by a tenth of a deviation."""
    family = bounded("gamma", "log", 1.0)
    y, p = law(family, 1.0)
    assert abs(p @ np.clip(y - 1, -1, 1)) > 0.1
    assert abs(p @ psi(family, y, 0.0, 1.0)) < 1e-3


@pytest.mark.parametrize("link", ["logit", "probit", "cloglog"])
def test_a_yes_or_no_is_weighted_by_its_larger_residual(link: str) -> None:
    family, limit = bounded("binomial", link), np.full(4, 0.3)
    both = [family.residual(np.full(4, y), ETA) for y in (0.0, 1.0)]
    weight = np.minimum(1, limit / np.maximum(*np.abs(both)))
    for r in both:
        found = np.clip(r - family.centre(ETA, limit), -limit, limit)
        assert found == pytest.approx(weight * r)


def test_of_all_scores_with_this_bound_and_mean_zero_it_has_the_least_variance() -> None:
    """Against damped and against shifted ones, scaled to one slope."""
    family, mu = bounded("poisson", "log"), 2.0
    y, p = law(family, mu)
    eta = float(np.log(mu))

    def variance(score: Any) -> float:
        score = score - p @ score
        return float(p @ score**2 / (p @ (score * (y - mu))) ** 2)

    best = psi(family, y, eta, 1.2)
    bound = np.abs(best).max() / abs(p @ (best * (y - mu)))
    rng = np.random.default_rng(0)
    for _ in range(2_000):
        other = np.clip(best + rng.normal(0, 0.3, y.size), None, None)
        other = other - p @ other
        if np.abs(other[p > 1e-12]).max() / abs(p @ (other * (y - mu))) <= bound:
            assert variance(other) >= variance(best) * (1 - 1e-9)


@pytest.mark.parametrize("link", ["logit", "probit", "cloglog"])
def test_a_clip_that_does_not_bind_leaves_the_rarest_answer_alone(link: str) -> None:
    family, eta = bounded("binomial", link), np.array([-6.0, -4.0])
    limit = np.full(2, 1e9)
    assert family.centre(eta, limit) == pytest.approx(np.zeros(2), abs=1e-12)
    for rarest in (bounded("binomial", "logit"), bounded("poisson", "log")):
        far = np.full(1, -25.0)  # one in 7e10
        assert rarest.centre(far, np.full(1, 5.0)) == pytest.approx([0.0], abs=1e-12)
        assert rarest.kept(np.ones(1), far, np.full(1, 5.0)) == pytest.approx([1.0])


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_nothing_is_not_a_number(family: BoundedFamily) -> None:
    """A number that is none would escape the clip, whatever a predictor and a clip are."""
    eta = np.array([-1e300, -700.0, -30.0, 0.0, 30.0, 700.0, 1e300])
    with np.errstate(all="ignore"):
        for limit in (1e-300, 1e-12, 1.0, 1e12, 1e300):
            k = np.full(eta.shape, limit)
            assert np.isfinite(family.centre(eta, k)).all()
            kept = family.kept(np.ones_like(eta), eta, k)
            assert np.all((kept >= 0) & (kept <= 1))


def test_every_family_has_one() -> None:
    assert {(f.name, f.link) for f in FAMILIES} == SUPPORTED
    for wrong in (-1.0, np.inf, np.nan):
        with pytest.raises(OptionError, match="no such bounded score"):
            bounded("poisson", "log", wrong)
    with pytest.raises(OptionError, match="no such bounded score"):
        bounded("gamma", "log", 0.0)
    with pytest.raises(OptionError, match="no such bounded score"):
        BoundedFamily("multinomial", "logit")
    with pytest.raises(PlanError, match="depends on its clip"):
        WhitenedScore(np.eye(2), np.zeros(2), 1.0, 0.3, FAMILIES[0])
