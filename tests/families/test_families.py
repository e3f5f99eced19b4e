"""Families agree with statsmodels and with numeric derivatives, overflow nowhere, and give each
element its own bits."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr

from dpstats.errors import OptionError
from dpstats.families import BINOMIAL, GAUSSIAN, POISSON, Family, family

PROBIT, CLOGLOG = Family("binomial", "probit"), Family("binomial", "cloglog")
GAMMA, COUNTS = Family("gamma", "log"), Family("negativebinomial", "log", alpha=0.7)
SUPPORTED = [
    GAUSSIAN,
    Family("gaussian", "log"),
    BINOMIAL,
    POISSON,
    Family("poisson", "identity"),
    PROBIT,
    CLOGLOG,
    GAMMA,
    COUNTS,
]
METHODS = ["mean", "slope", "factor", "curvature", "information"]
# Linear predictors at which statsmodels has not yet lost the digits of a mean near 0 or 1.
RANGES = {"identity": (0.2, 9.0), "probit": (-4.0, 4.0), "cloglog": (-9.0, 2.0)}


def inside(f: Family, size: int = 101) -> np.ndarray:
    return np.linspace(*RANGES.get(f.link, (-9.0, 9.0)), size)


def witness(f: Family):
    from statsmodels.genmod import families

    names = {n.lower(): n for n in ("Identity", "Log", "Logit", "Probit", "CLogLog")}
    link = getattr(families.links, names[f.link])()
    if f == COUNTS:
        return families.NegativeBinomial(link=link, alpha=f.alpha)
    return getattr(families, f.name.capitalize())(link=link)


def at(f: Family, method: str, eta: np.ndarray) -> np.ndarray:
    """A method at linear predictors; of the response, where it needs one, at 1."""
    return (
        f.information(np.ones_like(eta), eta)
        if method == "information"
        else (getattr(f, method)(eta))
    )


@pytest.mark.parametrize("f", SUPPORTED, ids=str)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_families_agree_with_statsmodels(f: Family) -> None:
    eta, sm = inside(f), witness(f)
    mu = f.mean(eta)
    assert mu == pytest.approx(sm.link.inverse(eta), rel=1e-12)
    assert f.slope(eta) == pytest.approx(sm.link.inverse_deriv(eta), rel=1e-9)
    assert f.variance(mu) == pytest.approx(sm.variance(mu), rel=1e-9)
    assert f.curvature(eta) == pytest.approx(sm.weights(mu), rel=1e-7)
    assert family(sm) == f


@pytest.mark.parametrize("f", SUPPORTED, ids=str)
def test_information_that_depends_on_the_response_is_called_observed(f: Family) -> None:
    eta = inside(f)
    at = [f.information(np.full_like(eta, y), eta) for y in (0.0, 1.0)]
    assert f.observed == (not np.allclose(*at))


@pytest.mark.parametrize("f", SUPPORTED, ids=str)
def test_slopes_are_derivatives_of_means(f: Family) -> None:
    eta, h = inside(f), 1e-5
    numeric = (f.mean(eta + h) - f.mean(eta - h)) / (2 * h)
    assert f.slope(eta) == pytest.approx(numeric, rel=1e-6, abs=1e-11)


@pytest.mark.parametrize(
    ("f", "loglik"),
    [
        (GAUSSIAN, lambda y, eta: -((y - eta) ** 2) / 2),
        (Family("gaussian", "log"), lambda y, eta: -((y - np.exp(eta)) ** 2) / 2),
        (BINOMIAL, lambda y, eta: y * eta - np.logaddexp(0, eta)),
        (POISSON, lambda y, eta: y * eta - np.exp(eta)),
        (Family("poisson", "identity"), lambda y, eta: y * np.log(eta) - eta),
        (PROBIT, lambda y, eta: y * log_ndtr(eta) + (1 - y) * log_ndtr(-eta)),
        (CLOGLOG, lambda y, eta: y * np.log(-np.expm1(-np.exp(eta))) - (1 - y) * np.exp(eta)),
        (GAMMA, lambda y, eta: -y * np.exp(-eta) - eta),
        (COUNTS, lambda y, eta: y * eta - (y + 1 / 0.7) * np.log1p(0.7 * np.exp(eta))),
    ],
    ids=lambda value: str(value) if isinstance(value, Family) else "",
)
def test_residuals_are_derivatives_of_log_likelihoods(f: Family, loglik) -> None:
    eta, h = inside(f), 1e-5
    for y in (0.0, 1.0, 0.4 if f.name == "binomial" else 2.5):
        numeric = (loglik(y, eta + h) - loglik(y, eta - h)) / (2 * h)
        found = f.residual(np.full_like(eta, y), eta)
        assert found == pytest.approx(numeric, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("f", [BINOMIAL, POISSON, PROBIT, CLOGLOG, GAMMA, COUNTS], ids=str)
def test_information_is_minus_the_derivative_of_residuals(f: Family) -> None:
    eta, h = inside(f), 1e-5
    for y in (0.0, 1.0, 0.4 if f.name == "binomial" else 2.5):
        full = np.full_like(eta, y)
        numeric = (f.residual(full, eta - h) - f.residual(full, eta + h)) / (2 * h)
        assert f.information(full, eta) == pytest.approx(numeric, rel=1e-5, abs=1e-6)
        assert (f.information(full, eta) >= 0).all()


@pytest.mark.parametrize("f", SUPPORTED, ids=str)
def test_expected_information_is_fishers(f: Family) -> None:
    """It is linear in the response, so that its mean is its value at the mean."""
    eta = inside(f)
    found = f.information(f.mean(eta), eta)
    assert found == pytest.approx(f.curvature(eta), rel=1e-7)


@pytest.mark.parametrize("f", SUPPORTED, ids=str)
def test_canonical_links_have_factor_one(f: Family) -> None:
    eta = inside(f)
    ones = np.allclose(f.slope(eta) / f.variance(f.mean(eta)), 1.0)
    assert ones is f.canonical
    assert f.canonical == bool(np.all(f.factor(eta) == 1.0))


@pytest.mark.parametrize("f", SUPPORTED, ids=str)
def test_extreme_predictors_give_finite_numbers_and_no_warning(f: Family) -> None:
    eta = np.array([-1e308, -1e9, -745.0, -31.0, 0.0, 31.0, 745.0, 1e9, 1e100])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values = [at(f, method, eta) for method in METHODS]
        residual = f.residual(np.ones_like(eta), eta)
    assert all(np.isfinite(v).all() for v in [*values, residual])
    assert (f.curvature(eta) >= 0).all()
    low, high = f.domain
    assert ((f.mean(eta) >= low) & (f.mean(eta) <= high)).all()


@pytest.mark.parametrize("f", SUPPORTED, ids=str)
def test_curvature_stays_below_its_bound(f: Family) -> None:
    eta = np.r_[np.linspace(-3, 3, 20001), 0.0, 1e-9, -1e-9]
    assert f.curvature(eta).max() <= f.largest_curvature
    if np.isfinite(f.largest_curvature):
        assert f.curvature(eta).max() == f.largest_curvature


@pytest.mark.parametrize("f", SUPPORTED, ids=str)
@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.floats(-40, 40), min_size=1, max_size=70),
    shift=st.integers(0, 9),
    stride=st.integers(1, 3),
)
def test_an_element_has_the_same_bits_wherever_it_stands(f: Family, values, shift, stride) -> None:
    """Array length, offset, alignment, stride and neighbours do not matter."""
    holder = np.full((shift + len(values)) * stride, 0.3)
    holder[shift * stride :: stride] = values
    moved = holder[shift * stride :: stride]
    for method in METHODS:
        alone = [at(f, method, np.array([v]))[0] for v in values]
        assert np.array_equal(at(f, method, moved), alone)
        assert np.array_equal(at(f, method, moved[::-1])[::-1], alone)


@pytest.mark.parametrize("f", SUPPORTED, ids=str)
def test_elements_of_a_long_array_have_the_bits_they_have_in_others(f: Family) -> None:
    rng = np.random.default_rng(3)
    eta = rng.normal(size=2**17 + 13) * 8
    some = rng.choice(eta.size, 4000, replace=False)
    for method in METHODS:
        whole = at(f, method, eta)
        assert np.array_equal(whole[some], at(f, method, eta[some]))
        assert np.array_equal(whole[5:], at(f, method, eta[5:]))


@pytest.mark.parametrize(
    ("spec", "link", "expected"),
    [
        ("gaussian", None, GAUSSIAN),
        ("Gaussian", "log", Family("gaussian", "log")),
        ("logistic", None, BINOMIAL),
        ("bernoulli", "logit", BINOMIAL),
        ("poisson", None, POISSON),
        ("poisson", "identity", Family("poisson", "identity")),
        (POISSON, None, POISSON),
        (POISSON, "log", POISSON),
        ("gamma", None, GAMMA),
        ("binomial", "probit", PROBIT),
        ("Binomial", "CLogLog", CLOGLOG),
    ],
)
def test_a_family_is_found_by_name(spec, link, expected) -> None:
    assert family(spec, link) == expected


@pytest.mark.parametrize(
    ("spec", "link"),
    [
        ("gamma", "inverse"),
        ("tweedie", None),
        ("binomial", "log"),
        ("poisson", "sqrt"),
        (3, None),
        (None, None),
    ],
)
def test_an_unknown_family_is_refused_with_the_choices(spec, link) -> None:
    with pytest.raises(OptionError, match=r"not in this release.*binomial \(logit\)"):
        family(spec, link)


def test_a_statsmodels_class_means_its_usual_link() -> None:
    from statsmodels.genmod import families

    assert family(families.Poisson) == POISSON
    assert family(families.Binomial) == BINOMIAL


def test_other_statsmodels_families_and_links_are_refused() -> None:
    from statsmodels.genmod import families

    for other in (families.Gamma(), families.Gamma, families.Binomial(families.links.Cauchy())):
        with pytest.raises(OptionError, match="not in this release"):
            family(other)


def test_a_negative_binomial_law_needs_a_public_dispersion() -> None:
    assert family("negativebinomial", alpha=0.7) == COUNTS
    for none in (None, 0.0, -1.0, float("nan"), float("inf"), True, "0.5"):
        with pytest.raises(OptionError, match="alpha="):
            family("negativebinomial", alpha=none)
    with pytest.raises(OptionError, match=r"alpha=0\.5"):
        family("poisson", alpha=0.5)


def test_a_contradicting_link_is_refused() -> None:
    with pytest.raises(OptionError, match="contradicts"):
        family(POISSON, "identity")


def test_an_unsupported_pair_cannot_be_built() -> None:
    with pytest.raises(OptionError, match="not in this release"):
        Family("binomial", "log")
