"""With ``clip="found"`` a few devices tell where their response lies.

The interval that the others hold theirs to follows from it: noise is that of the spread of
responses, whatever range was declared. Tails that nobody sees are left room for, and what is
presumed of them is said.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpstats as dp
from dpstats.channels import Piecewise, Subset
from dpstats.errors import OptionError, PlanError
from dpstats.estimators.labels.found import FoundInterval, found_interval, inner_edges
from dpstats.estimators.labels.ols import LabelOLS
from dpstats.estimators.responses import Responses
from dpstats.holders import Labels
from dpstats.mechanisms.noise import SeededNoise
from dpstats.privacy import LabelOnly
from dpstats.queries.label_cells import RandomizedMarks
from dpstats.queries.labels import Interval
from tests.contracts.messages import silenced

N, EPSILON = 20_000, 1.0
ONCE = LabelOnly(EPSILON)
ERRORS = {
    "normal": lambda rng, n: rng.normal(size=n),
    "log-normal": lambda rng, n: np.exp(rng.normal(size=n)),
    "t3": lambda rng, n: rng.standard_t(3, n),
    "far from 0": lambda rng, n: 40 + rng.normal(size=n),
}
BENT = {"bent": lambda rng, n, x: np.exp(0.6 * x + 0.8 * rng.normal(size=n))}


def table(law: str = "normal", n: int = N, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    y = BENT[law](rng, n, x) if law in BENT else 0.5 * x + ERRORS[law](rng, n)
    return pd.DataFrame({"x": x, "y": y})


def fitted(data: Any, bound: float, seed: int = 0, privacy: Any = ONCE, **options: Any) -> Any:
    schema = dp.Schema(y=dp.Numeric(-bound, bound))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = dp.ols("y ~ x", data, schema)
        return model.fit(privacy, noise=SeededNoise(seed), **{"clip": "found", **options})


def slope(data: pd.DataFrame) -> float:
    return float(np.polyfit(data["x"], data["y"], 1)[0])


def errors(law: str, bound: float, tables: int, n: int = N, privacy: Any = ONCE) -> Any:
    """Errors in standard errors of fits of so many tables, and the standard errors."""
    z, se = [], []
    for seed in range(tables):
        data = table(law, n, seed)
        found = fitted(data, bound, seed, privacy)
        z.append((found.params["x"] - slope(data)) / found.bse["x"])
        se.append(found.bse["x"])
    return np.array(z), np.array(se)


def held(z: Any, times: float = 1.0) -> float:
    """How often intervals so many times as long hold."""
    return float(np.mean(np.abs(z) < 1.96 * times))


@pytest.mark.parametrize(
    ("bound", "least"),
    [(300.0, 0.6), (1e4, 0.04), pytest.param(1e6, 0.006, marks=pytest.mark.full)],
)
@pytest.mark.parametrize("law", ERRORS)
def test_a_range_far_too_wide_costs_little_and_intervals_hold(
    law: str, bound: float, least: float
) -> None:
    """Twelve tables; standard errors beside those of noise that hides the whole range."""
    z, se = errors(law, bound, 12)
    whole = fitted(table(law), bound, clip=None).bse["x"]
    assert np.median(se) < (2.5 if law == "far from 0" else 1.0) * least * whole
    assert held(z) >= 10 / 12


def test_a_third_of_its_standard_errors_would_be_seen() -> None:
    """Tails lighter than those that are allowed for leave intervals that hold more than 95 %."""
    z, _ = errors("normal", 1e4, 40)
    assert held(z) >= 0.9
    assert held(z, 1 / 3) < 0.8


@pytest.mark.full
@pytest.mark.parametrize("law", [*ERRORS, "bent"])
@pytest.mark.parametrize(
    ("n", "epsilon"), [(20_000, 1.0), (4_000, 2.0), (100_000, 1.0), (100_000, 4.0)]
)
def test_intervals_hold_whatever_the_tails(law: str, n: int, epsilon: float) -> None:
    """60 tables; *bent*: the rows that are clipped are those with the largest column."""
    z, _ = errors(law, 3e3, 60, n, LabelOnly(epsilon))
    assert held(z) >= 0.9


def test_a_range_that_is_right_stays_as_it_is_and_costs_a_tenth_of_the_devices() -> None:
    data = table()
    found, all_ = fitted(data, 4.5), fitted(data, 4.5, clip=None)
    assert found.released["interval"] == all_.released["interval"]
    assert found.bse["x"] / all_.bse["x"] == pytest.approx(math.sqrt(0.97 / 0.9), abs=0.02)


def test_a_mean_is_found_likewise() -> None:
    data, z = table("far from 0"), []
    schema = dp.Schema(y=dp.Numeric(0, 1e5))
    for seed in range(20):
        found = dp.mean("y", data, schema).fit(ONCE, noise=SeededNoise(seed), clip="found")
        z.append((found.params.iloc[0] - data["y"].mean()) / found.bse.iloc[0])
    assert found.bse.iloc[0] < 5.0
    assert np.mean(np.square(z)) < 2.2


def test_nothing_is_looked_for_unless_it_is_asked_for_and_can_be_found() -> None:
    data, wide = table(), dp.Numeric(-100, 100)

    def plan(endog: Any, privacy: Any = ONCE, rows: Any = data, clip: Any = "found") -> Any:
        return dp.ols("y ~ x", rows, dp.Schema(y=endog)).plan(privacy, clip=clip)

    assert plan(wide).options["cells"] == 24
    assert plan(dp.Numeric(-100, 100, center=0, scale=1)).options["cells"] == 24
    assert "cells" not in plan(wide, clip=None).options
    assert plan(wide, LabelOnly(2.0), data.head(5_000)).options["cells"] == 24
    with pytest.raises(OptionError, match="about n=9,520 rows"):
        plan(wide, rows=data.head(5_000))
    with pytest.raises(OptionError, match="levels"):
        plan(dp.Boolean())
    with pytest.raises(OptionError, match="finite number"):
        plan(wide, clip="find")
    with pytest.raises(OptionError, match="finite number"):
        dp.ols("y ~ x", data, dp.Schema(y=wide)).plan(ONCE, method="label-lasso", clip="found")


def test_what_is_presumed_is_said_and_shares_that_stand_out_widen_the_interval() -> None:
    """A tenth of the responses far from the others, which noise does not hide at epsilon 4."""
    data = table()
    data.loc[::10, "y"] += 3_000.0
    found = fitted(data, 1e4, privacy=LabelOnly(4.0))
    assert found.released["interval"][1] * 1e4 > 3_000
    assert abs(found.params["Intercept"] - data["y"].mean()) < 4 * found.bse["Intercept"]
    (text,) = fitted(table(), 1e4).warnings
    assert text.startswith("Responses were held to the interval from -")
    assert "Noise hides 20.7% of them and less" in text
    assert fitted(table(), 4.5).warnings == ()  # where the interval is the range


def test_a_plan_says_what_is_known_of_errors_and_holds() -> None:
    data = table()
    schema = [dp.Schema(y=dp.Numeric(-bound, bound)) for bound in (100, 1e5)]
    plans = [dp.ols("y ~ x", data, s).plan(ONCE, clip="found") for s in schema]
    assert plans[0].predicted_units == ("sd(y)", "sd(y)")
    low, high = plans[0].predicted_range[1]
    assert plans[1].predicted_range[1] == pytest.approx((low, high))  # whatever the range is
    assert "devices tell where 'y' lies" in " ".join(str(plans[0]).split())
    assert "in which part of its range one is" in " ".join(str(plans[0]).split())
    for bound in (4.5, 1e4):
        found = np.median([fitted(data, bound, s).bse["x"] for s in range(5)]) / data["y"].std()
        assert low / 1.5 < found < 1.5 * high
    assert 2 < high / low < 12


# The interval -------------------------------------------------------------------------------------


def how_of(bound: float = 1e3, n: int = N, counters: int = 2_000) -> tuple[Any, Any]:
    data = table(n=n)
    model = dp.ols("y ~ x", data, dp.Schema(y=dp.Numeric(-bound, bound)))
    plan = model.plan(ONCE, clip="found")
    design = model._design(ONCE)
    return Responses.of(plan, design), design


@pytest.mark.parametrize("n", [20_000, 2_000_000])
def test_noise_and_what_is_allowed_for_are_alike_and_hold_the_heaviest_tail(n: int) -> None:
    """A tail of index 2, on both sides, beyond what a twentieth of the responses are."""
    how, design = how_of()
    how = replace(how, counters=n // 10, sent=0.9)
    low, high = design.internal_endog_bounds
    ends = np.array([low, *inner_edges(design, how.cells), high])
    start = 0.004  # of the half-range
    law = stats.pareto(2.0, scale=start)
    below = (1 + np.sign(ends) * np.where(np.abs(ends) < start, 0.0, law.cdf(np.abs(ends)))) / 2
    shares = np.append(np.diff(below) / np.diff(below).sum(), [0.0, 0.0])
    found = found_interval(how, design, shares, 0.002)
    clip = found.how.interval.half
    assert start < clip < high
    lost = law.expect(lambda y: y - clip, lb=clip, ub=np.inf)
    assert 0.3 * found.loss < lost < found.loss
    assert law.sf(clip) < found.beyond < 6 * law.sf(clip)
    noise = clip * math.sqrt(Piecewise(1, 1.0).variance(1 / 16) / (0.9 * n))
    assert 2.5 * found.loss == pytest.approx(noise, rel=1e-6)


def test_an_allowance_is_that_of_the_rows_that_move_a_coefficient_most() -> None:
    rng = np.random.default_rng(0)
    x = np.column_stack([np.ones(1_000), rng.normal(size=1_000), rng.uniform(size=1_000) < 0.02])
    inverse = np.linalg.inv(x.T @ x)
    how, _ = how_of()
    found = FoundInterval(how, loss=0.3, beyond=0.01)
    worst = [np.sort(np.abs(x @ inverse)[:, j])[-10:].sum() * 0.3 * 100 for j in range(3)]
    assert found.allowance(x, inverse) == pytest.approx(np.square(worst))
    assert not FoundInterval(how).allowance(x, inverse).any()


def test_standard_errors_count_what_may_be_clipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """As much as the noise, which is what the interval makes alike, and more in the worst rows."""
    data = table()
    whole = fitted(data, 1e4)
    share = whole.estimate.cov_privacy[1, 1] / whole.estimate.cov[1, 1]
    monkeypatch.setattr(FoundInterval, "allowance", lambda self, x, inverse: np.zeros(len(inverse)))
    without = fitted(data, 1e4)
    assert whole.params["x"] == without.params["x"]
    assert 1.3 < whole.bse["x"] / without.bse["x"] < 2.0
    assert 0.9 < share <= 1.0


def test_an_interval_holds_what_devices_tell_and_no_more_than_the_range() -> None:
    how, design = how_of()
    low, high = design.internal_endog_bounds
    ends = np.array([low, *inner_edges(design, how.cells), high])
    assert np.all(np.diff(ends) > 0)
    for cell in range(how.cells):
        shares = np.zeros(how.cells + 2)
        shares[cell] = 1.0
        found = found_interval(how, design, shares, 0.03).how.interval
        assert found.low <= max(low, ends[cell])
        assert found.high >= min(high, ends[cell + 1])
        assert low <= found.low < found.high <= high
    nothing = np.append(np.zeros(how.cells), [0.0, 1.0])
    assert found_interval(how, design, nothing, 0.03).how is how


# Privacy ------------------------------------------------------------------------------------------


def test_devices_tell_the_cell_that_their_response_is_in() -> None:
    """At a huge epsilon shares are those of the devices that count."""
    n = 4_000
    data = table(n=n)
    data.loc[::10, "y"] = np.nan
    data.loc[1::10, "y"] = 500.0
    model = dp.ols("y ~ x", data, dp.Schema(y=dp.Numeric(-100, 100)))
    privacy = LabelOnly(60.0)
    plan, design = model.plan(privacy, clip="found"), model._design(privacy)
    counters, cells = plan.options["counters"], plan.options["cells"]
    holder = Labels(design.source(data), design, plan, SeededNoise(1))
    edges = inner_edges(design, cells)
    query = RandomizedMarks(
        Interval(*design.internal_endog_bounds), Subset(cells + 2, 60.0), counters, edges
    )
    shares, _ = holder.ask(query, "astray")
    mine = data["y"].to_numpy()[np.setdiff1d(np.arange(n), holder.sending(counters))]
    units = design.standardization
    inner = np.array(edges) * units.y_scale + units.y_center
    sound = mine[np.abs(mine) <= 100]
    exact = np.bincount(np.searchsorted(inner, sound, side="left"), minlength=cells)
    exact = np.append(exact, [(mine == 500).sum(), np.isnan(mine).sum()]) / counters
    assert shares == pytest.approx(exact, abs=1e-6)
    with pytest.raises(PlanError, match="cells was asked about"):
        replace(query, edges=edges[:-1])


def test_without_messages_the_interval_knows_nothing_of_the_data() -> None:
    one, other = table(), table("far from 0", seed=5)
    other["x"] = one["x"]
    assert fitted(one, 100.0).to_json() != fitted(other, 100.0).to_json()
    with silenced():
        assert fitted(one, 100.0).to_json() == fitted(other, 100.0).to_json()


def test_each_device_is_asked_one_thing_once() -> None:
    data = table()
    model = dp.ols("y ~ x", data, dp.Schema(y=dp.Numeric(-100, 100)))
    plan = model.plan(ONCE, clip="found")
    assert plan.cost == (EPSILON, 0.0)
    assert [m.branch for m in plan.mechanisms] == [1, 2]
    found = model.fit(ONCE, noise=SeededNoise(0), clip="found")
    assert [m.slot for m in found.privacy.mechanisms] == ["astray", "responses"]
    assert found.released["counters"] == plan.options["counters"] == N // 10
    assert LabelOLS().name == plan.method
