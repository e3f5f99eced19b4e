"""Shares, bins and quantiles with Laplace noise: epsilon alone, and intervals that still cover."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import dpstats as dp
from dpstats.accounting.events import Gaussian, Laplace
from dpstats.errors import OptionError
from dpstats.mechanisms.noise import SeededNoise
from dpstats.queries import Axis, TableCounts

pytestmark = pytest.mark.filterwarnings("ignore::dpstats.errors.FeasibilityWarning")

SHARES = np.array([0.9, 0.08, 0.02])
SCHEMA = dp.Schema(g=dp.Categorical(["a", "b", "c"]), y=dp.Numeric(-4, 4))
WIDE = dp.Schema(y=dp.Numeric(-4000, 4000))
PURE = dp.Central(0.2)


def model(seed: int, n: int = 500) -> Any:
    rng = np.random.default_rng(seed)
    return dp.proportion(
        "g", {"g": rng.choice(np.array(["a", "b", "c"], object), n, p=SHARES)}, SCHEMA
    )


def covers(made: list[Any], truth: Any, alpha: float = 0.05) -> Any:
    found = np.array([fit.conf_int(alpha).to_numpy() for fit in made])
    return ((found[:, :, 0] <= truth) & (truth <= found[:, :, 1])).mean(axis=0)


def test_without_delta_noise_is_laplace_noise_of_twice_the_scale_over_epsilon() -> None:
    plan = model(1).plan(dp.Central(1.0))
    assert all(isinstance(event, Laplace) for event in plan.events)
    assert plan.cost == (pytest.approx(1.0), 0.0)
    query = TableCounts((Axis.of_levels([0], 3),), norm="l1")
    assert plan.noise(query, "counts").scale == pytest.approx(2.0, rel=0.04)  # 3 % counts strays
    assert any(isinstance(e, Gaussian) for e in model(1).plan(dp.Central(1.0, 1e-6)).events)


def test_laplace_noise_may_be_asked_for_and_halves_the_noise_of_one_table() -> None:
    privacy = dp.Central(1.0, 1e-6)
    made = [model(1).fit(privacy, mechanism=m) for m in ("laplace", "gaussian")]
    assert made[0].count_sd < 0.55 * made[1].count_sd
    with pytest.raises(OptionError, match="needs delta"):
        model(1).plan(PURE, mechanism="gaussian")
    with pytest.raises(OptionError, match="'laplace'"):
        model(1).plan(PURE, mechanism="staircase")


@pytest.mark.full
def test_intervals_of_shares_cover_where_laplace_noise_dominates() -> None:
    """120 fits, each fails once in 10^4; at half of the noise too few cover."""
    made = [model(s).fit(PURE, noise=SeededNoise(s)) for s in range(120)]
    assert made[0].count_sd > 2 * math.sqrt(500 * 0.08 * 0.92)  # noise dominates
    for alpha in (0.05, 0.01):
        low = stats.binom.ppf(1e-4, len(made), 1 - alpha) / len(made)
        assert (covers(made, SHARES, alpha) >= low).all()
    halved = [
        replace(f, estimate=replace(f.estimate, noise_sd=f.estimate.noise_sd / 2)) for f in made
    ]
    assert covers(halved, SHARES).max() < 0.93


@pytest.mark.parametrize("schema", [SCHEMA, WIDE], ids=["sane", "wide"])
def test_quantiles_and_bins_are_found_without_delta(schema: dp.Schema) -> None:
    truth = stats.norm.ppf([0.25, 0.5, 0.75])
    tables = [{"y": np.random.default_rng(s).normal(size=2000)} for s in range(25)]
    made = [
        dp.quantile("y", data, schema).fit(dp.Central(1.0), noise=SeededNoise(s))
        for s, data in enumerate(tables)
    ]
    errors = np.array([fit.params.to_numpy() for fit in made]) - truth
    assert np.sqrt((errors**2).mean()) == pytest.approx(made[0].plan.predicted_se[1], rel=0.6)
    assert covers(made, truth).min() > 0.75
    assert covers(made, truth + 0.3).max() < 0.5  # power
    bars = dp.histogram("y", tables[0], schema).fit(dp.Central(1.0), noise=SeededNoise(1))
    assert -60 < bars.edges[1] < bars.edges[-2] < 60
    assert bars.plan.cost == (pytest.approx(1.0), 0.0)
