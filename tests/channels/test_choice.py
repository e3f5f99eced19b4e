"""Variances in closed form against known numbers, and the channel that has the smallest."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dpstats.channels import CHANNELS, Piecewise, channel, smallest
from dpstats.channels.coordinate import _variance
from dpstats.channels.piecewise import CELLS, _law
from dpstats.channels.sphere import cap_at, widest_mean
from dpstats.errors import OptionError
from tests.channels.cases import DELTA, typical

# Second moment of a coordinate of decoded messages, E|z|^2 / p, at p = 55 and |v| = 1.
KNOWN = {
    "hemisphere": {0.5: 25.9, 1: 7.29, 2: 2.68, 4: 1.68, 8: 1.56},
    "privunit": {0.5: 25.0, 1: 6.28, 2: 1.61, 4: 0.441, 8: 0.141},
    "gaussian": {0.5: 198, 1: 55.7, 2: 15.9, 4: 4.68, 8: 1.44},
}


@pytest.mark.parametrize(
    ("name", "epsilon", "known"), [(n, e, k) for n, row in KNOWN.items() for e, k in row.items()]
)
def test_variances_are_those_computed_elsewhere(name, epsilon, known) -> None:
    made = channel(name, 55, epsilon, 1e-5)
    second = made.variance(1.0) + (1.0 if name != "gaussian" else 0.0)
    assert second / 55 == pytest.approx(known, rel=0.005)


def test_scalar_variances_are_those_of_the_papers() -> None:
    for epsilon in (0.5, 1.0, 2.0, 4.0):
        odds, half = math.exp(epsilon), math.exp(epsilon / 2)
        duchi = ((odds + 1) / (odds - 1)) ** 2
        assert channel("binary", 1, epsilon).variance(0.3) == pytest.approx(duchi - 0.3)
        assert channel("laplace", 1, epsilon).variance(0.3) == pytest.approx(8 / epsilon**2)
        # Wang et al. (2019), Lemma 1: our cells with their window.
        law = _law(epsilon, round(CELLS / (half + 1)))
        for square in (0.0, 0.25, 1.0):
            theirs = square / (half - 1) + (half + 3) / (3 * (half - 1) ** 2)
            on_cells = law.constant + law.slope * square - square
            assert on_cells == pytest.approx(theirs, rel=1e-3)
            assert Piecewise(1, epsilon).variance(square) <= 1.0001 * theirs


def test_the_hemisphere_has_the_constant_of_duchi_jordan_and_wainwright() -> None:
    for p in (2, 3, 55):
        odds = math.exp(0.7)
        gamma = math.exp(math.lgamma((p + 1) / 2) - math.lgamma(p / 2))
        constant = (odds + 1) / (odds - 1) * math.sqrt(math.pi) * gamma
        assert channel("hemisphere", p, 0.7).size == pytest.approx(constant, rel=1e-8)


@pytest.mark.parametrize("coordinates", [2, 3, 56, 2000])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 8.0])
def test_the_cap_has_the_largest_mean(coordinates, epsilon) -> None:
    best = cap_at(coordinates, epsilon, widest_mean(coordinates, epsilon))
    assert best.mean == pytest.approx(best.threshold, rel=1e-4)
    for factor in (0.5, 0.9, 1.1, 1.5):
        if best.threshold * factor < 1:
            assert cap_at(coordinates, epsilon, best.threshold * factor).mean < best.mean


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_the_window_has_the_smallest_variance(epsilon) -> None:
    made = Piecewise(1, epsilon)
    best = made.variance(0.25)
    for width in range(100, CELLS // 2, 997):
        law = _law(epsilon, width)
        assert law.constant + 0.25 * law.slope - 0.25 >= best * (1 - 1e-8)


def test_the_number_of_sampled_coordinates_has_the_smallest_variance() -> None:
    for epsilon in (0.5, 2.0, 6.0, 20.0):
        made = channel("coordinate", 30, epsilon)
        least = made.variance(0.25 * 30)
        assert least == pytest.approx(_variance(30, made.sampled, made.scalar, 7.5))
        for k in range(1, 31):
            for name in ("binary", "piecewise"):
                other = _variance(30, k, channel(name, 1, epsilon / k), 7.5)
                assert other >= least * (1 - 1e-9)
        assert made.sampled * made.scalar.epsilon <= epsilon


def variance_of_sets(cells: int, size: int, epsilon: float) -> float:
    """Least variance of an unbiased estimate from sets of one size, by their whole law."""
    sets = np.array([np.isin(range(cells), s) for s in itertools.combinations(range(cells), size)])
    law = np.where(sets, math.exp(epsilon), 1.0)
    law /= law.sum(axis=0)  # of each set, under each cell
    own = law[:, 0] @ sets  # how often a set holds each cell, under the first
    decoded = (sets - own[1]) / (own[0] - own[1])
    return float(law[:, 0] @ ((decoded - np.eye(cells)[0]) ** 2).sum(axis=1))


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("cells", [2, 3, 9])
def test_sets_have_the_size_with_the_smallest_variance(cells, epsilon) -> None:
    made = channel("subset", cells, epsilon)
    every = [variance_of_sets(cells, size, epsilon) for size in range(1, cells)]
    assert made.variance(1.0) == pytest.approx(min(every), rel=1e-9)
    assert made.variance(1.0) == pytest.approx(every[made.size - 1], rel=1e-9)


def test_two_cells_are_randomised_response() -> None:
    for epsilon in (0.5, 1.0, 4.0):
        sign = channel("binary", 1, epsilon)
        cells = channel("subset", 2, epsilon)
        # z_1 - z_2 is Duchi's bit about a sign, and each of the two moves by half of it.
        assert cells.variance(1.0) == pytest.approx(sign.variance(1.0) / 2)


def brute_force(dim, epsilon, delta, l2, widths) -> str:
    """Smallest E||z - v||^2 at a value of half the largest norm."""
    radius = min(l2, float(np.linalg.norm(widths)))
    found = {}
    for name in CHANNELS:
        if (dim == 1) == (name in ("coordinate", "privunit", "hemisphere")) and name != "gaussian":
            continue
        if (name == "gaussian" and delta == 0) or name == "subset":  # of cells, not of vectors
            continue
        made = channel(name, dim, epsilon, delta)
        unit = radius**2 if made.domain == "l2" else float((np.minimum(widths, radius) ** 2).mean())
        found[name] = unit * made.variance(0.25 * radius**2 / unit)
    return min(found, key=lambda name: found[name])


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0, 12.0])
@pytest.mark.parametrize("dim", [1, 2, 50])
def test_the_smallest_variance_wins(dim, epsilon) -> None:
    for l2, widths in ((1.0, np.ones(dim)), (3.0, np.linspace(0.1, 1, dim))):
        for delta in (0.0, DELTA):
            chosen = smallest(dim, epsilon, delta, l2=l2, linf=widths)
            assert chosen.name == brute_force(dim, epsilon, delta, l2, widths)
            assert chosen.epsilon == epsilon


def test_known_choices() -> None:
    assert [smallest(1, e).name for e in (0.5, 1.0)] == ["binary", "piecewise"]
    # A vector of norm 1 wants a direction; one that fills its box, coordinates.
    assert smallest(50, 1.0).name == "privunit"
    assert smallest(50, 1.0, l2=1.0).name == "privunit"
    assert smallest(50, 1.0, linf=1.0).name == "coordinate"
    assert smallest(50, 1.0, l2=7.0, linf=1.0).name == "coordinate"
    assert smallest(50, 1.0, l2=2.0, linf=1.0).name == "privunit"


def test_channels_are_rebuilt_from_their_name_and_parameters() -> None:
    for name in CHANNELS:
        made = channel(name, 1 if name in ("binary", "piecewise", "laplace") else 6, 1.5, DELTA)
        assert channel(made.name, made.dim, made.epsilon, made.delta) == made
        assert made.variance(float(typical(made) @ typical(made))) > 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("gauss", 2, 1.0, 0.0), "allowed are"),
        (("gaussian", 2, 1.0, 0.0), "needs delta in"),
        (("gaussian", 2, 1.0, 1.0), "number in"),
        (("privunit", 2, 1.0, -0.1), "number in"),
        (("privunit", 2, math.nan, 0.0), "is allowed"),
        (("privunit", 2, math.inf, 0.0), "is allowed"),
        (("privunit", 2, -1.0, 0.0), "is allowed"),
        (("binary", 1, 1e-4, 0.0), "is allowed"),
        (("coordinate", 2, 1e4, 0.0), "is allowed"),
        (("privunit", 0, 1.0, 0.0), "1 to"),
        (("privunit", 2**21, 1.0, 0.0), "1 to"),
        (("binary", 2, 1.0, 0.0), 'ask for "privunit"'),
        (("hemisphere", 1, 1.0, 0.0), 'is "binary"'),
        (("subset", 1, 1.0, 0.0), "1 cells"),
        (("subset", 2000, 1.0, 0.0), "from 2 to"),
    ],
)
def test_what_a_channel_cannot_honour_is_refused(arguments, says) -> None:
    with pytest.raises(OptionError, match=says):
        channel(*arguments)


@pytest.mark.parametrize("epsilon", [1e-3, 1e3])
@pytest.mark.parametrize("name", sorted(CHANNELS))
def test_channels_work_at_the_ends_of_what_is_allowed(name, epsilon) -> None:
    for dim in [1] if name in ("binary", "piecewise", "laplace") else [2, 300]:
        made = channel(name, dim, epsilon, DELTA)
        variances = [made.variance(s) for s in (0.0, 0.25, 1.0)]
        assert np.isfinite(variances).all()
        assert min(variances) >= 0
