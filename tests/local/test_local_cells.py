"""Shares and quantiles of devices: unbiased, with planned errors, and intervals that cover.

Coverage is of fits with fixed seeds; an honest interval fails a bound once in 10^4, and one whose
noise is taken to be half as large fails each.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

import dpstats as dp
from dpstats.errors import FeasibilityWarning, OptionError, TrustError
from dpstats.estimators.local import base
from dpstats.mechanisms.noise import SeededNoise
from dpstats.protocol.descriptive import ProportionEstimate

pytestmark = pytest.mark.filterwarnings("ignore::dpstats.errors.FeasibilityWarning")

LEVELS = ["a", "b", "c"]
SHARES = np.array([0.7, 0.25, 0.05])
SCHEMA = dp.Schema(g=dp.Categorical(LEVELS), b=dp.Boolean(), y=dp.Numeric(-6, 6))
WIDE = dp.Schema(y=dp.Numeric(-6000, 6000))
ONCE, ROUNDS = dp.Local(1.0), dp.Local(1.0, interactive=True)


def levels(n: int, seed: int, missing: float = 0.0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    g = rng.choice(np.array(LEVELS, object), n, p=SHARES)
    g[rng.random(n) < missing] = None
    return {"g": g}


def normal(n: int, seed: int) -> dict[str, Any]:
    return {"y": np.random.default_rng(seed).normal(size=n)}


def fits(count: int, make: Any, privacy: Any) -> list[Any]:
    return [make(seed).fit(privacy, noise=SeededNoise(seed)) for seed in range(count)]


def last(case: tuple[dp.Schema, dp.Local]) -> bool:
    return case == (WIDE, ROUNDS)


def covers(made: list[Any], truth: Any) -> Any:
    """Share of the fits whose interval holds each number."""
    found = np.array([fit.conf_int().to_numpy() for fit in made])
    return ((found[:, :, 0] <= truth + 1e-9) & (truth <= found[:, :, 1] + 1e-9)).mean(axis=0)


def test_without_noise_shares_are_those_of_the_records_and_intervals_are_wilsons() -> None:
    data = levels(500, 1, missing=0.1)
    made = dp.proportion("g", data, SCHEMA).fit(dp.Local(60.0), noise=SeededNoise(1))
    counts = np.array([(data["g"] == level).sum() for level in LEVELS])
    assert made.params.to_numpy() == pytest.approx(counts / counts.sum(), abs=1e-9)
    assert made.missing == pytest.approx(500 - counts.sum())
    wilson = np.column_stack(proportion_confint(counts, counts.sum(), method="wilson"))
    assert made.conf_int().to_numpy() == pytest.approx(wilson, abs=1e-6)


def test_without_noise_quantiles_and_bins_are_those_of_the_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(base, "counters_of", lambda *args: 0)
    data = normal(2000, 2)
    made = dp.quantile("y", data, SCHEMA).fit(dp.Local(60.0), noise=SeededNoise(1))
    assert made.params.to_numpy() == pytest.approx(
        np.quantile(data["y"], [0.25, 0.5, 0.75]), abs=0.1
    )
    bars = dp.histogram("y", data, SCHEMA, bins=[-1, 0, 1]).fit(dp.Local(60.0))
    exact = np.histogram(data["y"], [-6, -1, 0, 1, 6])[0]
    assert bars.counts == pytest.approx(exact, abs=1e-6)


def test_devices_that_count_are_in_bins_like_the_others() -> None:
    """Of a hundred fits without noise: counts are of all devices, and as far off as they say."""
    data = normal(2000, 2)
    exact = np.histogram(data["y"], [-6, -1, 0, 1, 6])[0]
    model = dp.histogram("y", data, SCHEMA, bins=[-1, 0, 1])
    made = [model.fit(dp.Local(60.0), noise=SeededNoise(k)) for k in range(100)]
    off = np.array([fit.counts - exact for fit in made])
    said = made[0].estimate.noise.diagonal() ** 0.5
    assert np.abs(off.mean(axis=0) / said).max() < 0.4
    assert off.std(axis=0) / said == pytest.approx(1.0, abs=0.3)


def test_a_value_at_an_edge_is_in_the_bin_below_it_as_under_a_curator() -> None:
    data = {"y": np.repeat([-3.0, 1.0, 2.0], [10, 20, 30])}
    for privacy in (dp.Local(60.0), dp.Central(1e6, 1e-6)):
        made = dp.histogram("y", data, SCHEMA, bins=[-3, 1, 2]).fit(privacy, noise=SeededNoise(1))
        assert made.counts == pytest.approx([10, 20, 30, 0], abs=0.1)


def test_intervals_of_shares_cover_also_where_some_are_missing() -> None:
    """80 fits; with half of the noise in the intervals too few cover."""
    made = fits(80, lambda s: dp.proportion("g", levels(1000, s, 0.2), SCHEMA), ONCE)
    assert (covers(made, SHARES) > 0.86).all()
    errors = np.array([fit.estimate.counts / fit.estimate.rows - SHARES for fit in made])
    spread = errors.std(axis=0, ddof=1)
    assert np.abs(errors.mean(axis=0) / spread * math.sqrt(len(made))).max() < 4.0
    expected = np.sqrt(np.mean([fit.bse.to_numpy() ** 2 for fit in made], axis=0))
    assert spread == pytest.approx(expected, rel=0.3)
    understated = [
        replace(fit, estimate=replace(fit.estimate, noise=fit.estimate.noise / 4)) for fit in made
    ]
    assert (covers(understated, SHARES) < 0.86).all()


@pytest.mark.full
@pytest.mark.parametrize(("schema", "privacy"), [(SCHEMA, ONCE), (SCHEMA, ROUNDS), (WIDE, ROUNDS)])
def test_intervals_of_quantiles_cover(schema: dp.Schema, privacy: dp.Local) -> None:
    truth = stats.norm.ppf([0.25, 0.5, 0.75])
    made = fits(30, lambda s: dp.quantile("y", normal(20_000, s), schema), privacy)
    assert (covers(made, truth) > 0.85).all()
    errors = np.array([fit.params.to_numpy() for fit in made]) - truth
    assert np.sqrt((errors**2).mean()) < 0.15
    assert (covers(made, truth + 1.0) < 0.5).all()  # power


def test_rounds_find_quantiles_where_a_range_is_far_too_wide() -> None:
    model = dp.quantile("y", normal(20_000, 3), WIDE)
    found = [model.fit(p, noise=SeededNoise(1)).conf_int().to_numpy() for p in (ONCE, ROUNDS)]
    widths = [float(np.ptp(ends, axis=1).max()) for ends in found]
    assert 3.0 * widths[1] < widths[0]


def test_bins_follow_the_values_where_devices_are_asked_in_rounds() -> None:
    model = dp.histogram("y", normal(50_000, 4), WIDE)
    assert model.plan(ONCE).mechanisms[0].parts == 1
    assert model.plan(ROUNDS).mechanisms[0].parts == 2
    made = model.fit(ROUNDS, noise=SeededNoise(1))
    assert -60 < made.edges[1] < made.edges[-2] < 60
    assert len(made.plan.parameters) == len(made.params)


def test_the_plan_expects_the_error_of_equal_shares() -> None:
    rng = np.random.default_rng(1)
    tables = [{"g": rng.choice(np.array(LEVELS, object), 5000)} for _ in range(60)]
    made = [
        dp.proportion("g", table, SCHEMA).fit(ONCE, noise=SeededNoise(s))
        for s, table in enumerate(tables)
    ]
    errors = np.array([fit.params.to_numpy() for fit in made]) - 1 / 3
    assert np.sqrt((errors**2).mean()) == pytest.approx(made[0].plan.predicted_se[0], rel=0.2)


def test_a_real_device_sends_what_is_collected_to_the_same_law() -> None:
    data = levels(3000, 5)
    model = dp.proportion("g", data, SCHEMA)
    collector = model.collector(ONCE)
    device = dp.Randomizer.from_json(collector.randomizer().to_json(), noise=SeededNoise(2))
    assert collector.extend(device.send_all(data)) == 3000
    made = collector.fit()
    assert isinstance(made.estimate, ProportionEstimate)
    assert np.abs((made.params - SHARES) / made.bse).max() < 4.5
    assert device.message_bytes == 64  # one byte for four cells


def test_what_devices_cannot_answer_is_refused_before_anything_is_charged() -> None:
    ledger = dp.Ledger.memory(2.0, 0.0)
    many = dp.Schema(g=dp.Categorical([f"level {i}" for i in range(1100)]))
    with pytest.raises(OptionError, match="at most"):
        dp.proportion("g", levels(50, 1), many).fit(dp.Local(1.0), ledger)
    with pytest.raises(TrustError, match="none is a covariate"):
        dp.proportion("g", levels(50, 1), SCHEMA).fit(dp.LabelOnly(1.0), ledger)
    assert not ledger.entries
    with pytest.warns(FeasibilityWarning, match="fewer cells"):
        dp.histogram("y", normal(500, 1), SCHEMA, bins=100).fit(ONCE, noise=SeededNoise(1))
