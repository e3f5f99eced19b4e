"""Roots between two points are SciPy's, to the bit."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq

from dpstats.accounting.closed_forms import gaussian_delta
from dpstats.accounting.roots import root

KINDS = {
    "exponential": lambda r: lambda x: math.expm1(3 * (x - r)),
    "steep": lambda r: lambda x: math.atan(50 * (x - r)),
    "log": lambda r: lambda x: math.log(x / r),
    "a step": lambda r: lambda x: -1.0 if x < r else 1.0,
    "delta": lambda r: lambda x: gaussian_delta(x, 1.0) - gaussian_delta(r, 1.0),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rtol", [1e-15, 1e-14, 1e-6])
def test_a_root_has_the_bits_of_scipy(kind, rtol):
    rng = np.random.default_rng(5)
    for _ in range(100):
        target = rng.uniform(0.1, 3.0)
        f = KINDS[kind](target)
        low, high = target * rng.uniform(0.3, 0.99), target * rng.uniform(1.01, 3.0)
        for start, end in ((low, high), (high, low)):
            found = root(f, start, end, rtol)
            assert found == brentq(f, start, end, xtol=1e-300, rtol=rtol)
            assert found == pytest.approx(target, rel=max(4 * rtol, 1e-13))


def test_ends_are_roots_and_equal_signs_none():
    assert root(lambda x: x, 0.0, 1.0, 1e-14) == 0.0
    assert root(lambda x: x, -1.0, 0.0, 1e-14) == 0.0
    with pytest.raises(ValueError, match="sign"):
        root(lambda x: x, 1.0, 2.0, 1e-14)


def test_what_is_too_flat_is_an_error_as_in_scipy():
    with pytest.raises(RuntimeError):
        brentq(lambda x: (x - 1.3) ** 3, 0.2, 2.9, xtol=1e-300, rtol=1e-15)
    with pytest.raises(ArithmeticError):
        root(lambda x: (x - 1.3) ** 3, 0.2, 2.9, 1e-15)
