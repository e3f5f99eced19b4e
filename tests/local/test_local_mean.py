"""The mean of numbers that stay on devices."""

import numpy as np
import pytest

import dpstats as dp
from dpstats.errors import OptionError, TrustError
from dpstats.mechanisms.noise import SeededNoise
from tests.grids import grid

SCHEMA = dp.Schema(y=dp.Numeric(-2, 10, center=1, scale=2))


def data(n: int, seed: int) -> np.ndarray:
    return 1.5 + 2 * np.random.default_rng(seed).standard_normal(n)


def fit(y: np.ndarray, epsilon: float, seed: int, **options):
    delta = 1e-6 if options.get("channel") == "gaussian" else 0.0
    made = dp.mean("y", {"y": y}, SCHEMA)
    return made.fit(dp.Local(epsilon, delta), noise=SeededNoise(seed), **options)


def test_with_hardly_any_noise_it_is_the_mean_of_the_held_responses():
    y = data(5000, 1)
    found = fit(y, 40.0, 2, clip=3.0)
    held = np.clip(y, -2, 4)
    assert found.params.iloc[0] == pytest.approx(held.mean(), abs=0.01)
    assert found.bse.iloc[0] == pytest.approx(held.std() / np.sqrt(5000), rel=0.05)
    assert found.nobs == 5000


@pytest.mark.parametrize("channel", grid(["piecewise", "binary", "laplace", "gaussian"], 1))
def test_intervals_cover_and_half_as_long_ones_do_not(channel):
    truth, standard = np.clip(data(200_000, 9), -2, 9).mean(), []
    for seed in range(120):
        found = fit(data(400, seed), 2.0, 1000 + seed, channel=channel, clip=8.0)
        standard.append((found.params.iloc[0] - truth) / found.bse.iloc[0])
    size = np.abs(standard)
    assert 0.9 <= np.mean(size < 1.96) <= 0.99  # +- 0.04 is two standard errors
    assert np.mean(size < 0.98) < 0.8
    assert abs(np.mean(standard)) < 0.25


@pytest.mark.full
def test_the_plan_expects_the_error_that_follows_and_chooses_the_better_channel():
    made = dp.mean("y", {"y": data(2000, 0)}, SCHEMA)
    for epsilon, name in ((0.5, "binary"), (3.0, "piecewise")):
        plan = made.plan(dp.Local(epsilon))
        assert plan.options["channel"] == name
        found = [fit(data(2000, seed), epsilon, seed).params.iloc[0] for seed in range(80)]
        assert np.std(found) == pytest.approx(plan.predicted_se[0], rel=0.22)
        other = "piecewise" if name == "binary" else "binary"
        assert made.plan(dp.Local(epsilon), channel=other).predicted_se[0] > plan.predicted_se[0]


def test_devices_and_collector_give_the_mean():
    made = dp.mean("y", {"y": data(10, 0)}, SCHEMA)
    collector = made.collector(dp.Local(4.0))
    randomizer = collector.randomizer()
    for value in (*data(1500, 3), np.nan, 1e9):
        collector.add(randomizer({"y": value}))
    found = collector.fit()
    assert abs(found.params.iloc[0] - 1.5) < 4 * found.bse.iloc[0] < 0.6
    assert found.nobs == 1502


def test_few_devices_are_warned_of_with_a_number_that_would_do():
    made = dp.mean("y", {"y": data(50, 0)}, SCHEMA)
    (text,) = made.plan(dp.Local(0.2)).warnings
    assert "epsilon=" in text
    assert "rows" in text


def test_what_it_cannot_do_is_refused():
    made = dp.mean("y", {"y": data(50, 0)}, SCHEMA)
    refused = {"delta": {"channel": "gaussian"}, "channel": {"channel": "x"}, "clip": {"clip": 0.0}}
    for why, wrong in refused.items():
        with pytest.raises(OptionError, match=why):
            made.plan(dp.Local(1.0), **wrong)
    with pytest.raises(TrustError, match="central"):
        made.plan(dp.Central(1.0, 1e-6), method="local-mean")
