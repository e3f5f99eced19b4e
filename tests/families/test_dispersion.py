"""The score of a dispersion: scipy's log-likelihood, differentiated, and the law's own means."""

import numpy as np
import pytest
from scipy.stats import nbinom

from dpstats.errors import OptionError
from dpstats.families.dispersion import Dispersion

Y = np.array([0.0, 1.0, 2.0, 7.0, 40.0])


def log_likelihood(alpha: float, eta: np.ndarray) -> np.ndarray:
    return nbinom.logpmf(Y, 1 / alpha, 1 / (1 + alpha * np.exp(eta)))


@pytest.mark.parametrize("alpha", [0.01, 0.5, 8.0])
@pytest.mark.parametrize("mean", [0.2, 3.0, 30.0])
def test_it_is_the_derivative_of_the_log_likelihood(alpha: float, mean: float) -> None:
    eta, h = np.full(Y.size, np.log(mean)), 1e-3 * alpha
    slope = (log_likelihood(alpha + h, eta) - log_likelihood(alpha - h, eta)) / (2 * h)
    found = Dispersion.at(alpha).residual(Y, eta)
    assert found == pytest.approx(slope, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("alpha", [0.05, 0.5, 2.0])
def test_its_mean_is_zero_and_an_error_of_the_mean_enters_by_its_square(alpha: float) -> None:
    y, mu = np.arange(4000.0), 3.0
    chances = nbinom.pmf(y, 1 / alpha, 1 / (1 + alpha * mu))

    def mean(error: float) -> float:
        at = np.full(y.size, np.log(mu) + error)
        return float(chances @ Dispersion.at(alpha).residual(y, at))

    assert mean(0.0) == pytest.approx(0.0, abs=1e-9)
    square = (mu / (1 + alpha * mu)) ** 2 / 2
    for error in (-0.02, 0.02):
        assert mean(error) == pytest.approx(square * error**2, rel=0.1)


def test_each_element_has_its_own_bits_and_nothing_overflows() -> None:
    rng = np.random.default_rng(0)
    y, eta = rng.poisson(3.0, 1000).astype(float), rng.normal(size=1000)
    whole = Dispersion.at(0.5).residual(y, eta)
    assert all(
        whole[i] == Dispersion.at(0.5).residual(y[i : i + 1], eta[i : i + 1])
        for i in Y[:4].astype(int)
    )
    wild = Dispersion.at(0.0).residual(np.array([-1.0, 0.0, 1e15]), np.array([1e9, -1e9, 40.0]))
    assert np.isfinite(wild).all()


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan"), 1e9])
def test_no_other_dispersion_is_taken(alpha: float) -> None:
    with pytest.raises(OptionError, match=r"0\.001"):
        Dispersion("dispersion", "log", alpha=alpha)
