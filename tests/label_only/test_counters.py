"""Where no curator counts, a few devices say whether their response is within what is declared."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpstats as dp
from dpstats.channels import Subset
from dpstats.errors import PlanError
from dpstats.estimators.counters import MANY, counters_of, error_of_count
from dpstats.estimators.labels.ols import LabelOLS
from dpstats.estimators.responses import marks_channel
from dpstats.holders import Labels
from dpstats.mechanisms.noise import SeededNoise
from dpstats.privacy import LabelOnly
from dpstats.queries.label_cells import RandomizedMarks
from dpstats.queries.labels import Interval, RandomizedLabels
from tests.label_only.cases import design, table

N = 40_000
LOCAL = LabelOnly(1.0)
WIDE, NARROW = (dp.Numeric(-8, 8), dp.Numeric(-1, 1))


def rows(n: int = N, missing: float = 0.0) -> pd.DataFrame:
    """A line and a yes or no; three responses in ten lie beyond -1 and 1."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=n)
    made = pd.DataFrame({"x": x, "y": 0.3 * x + rng.normal(0, 0.92, n)})
    made["c"] = rng.poisson(np.exp(0.5 + 0.2 * x)).astype(float)
    made.loc[rng.uniform(size=n) < missing, ["y", "c"]] = np.nan
    return made


def fitted(model: str, data: Any, endog: dp.Numeric, seed: int = 1, **options: Any) -> Any:
    if model == "glm":
        schema = dp.Schema(c=endog, x=dp.Numeric(-5, 5))
        made = dp.glm("c ~ x", data, schema, family="poisson")
    else:
        make = dp.mean if model == "mean" else dp.ols
        made = make("y" if model == "mean" else "y ~ x", data, dp.Schema(y=endog))
    return made.fit(LOCAL, noise=SeededNoise(seed), **options)


CASES = [
    ("ols", NARROW, {}),
    ("mean", NARROW, {}),
    ("glm", dp.Numeric(0, 1), {}),
    ("ols", NARROW, {"method": "label-lasso"}),
    ("ols", NARROW, {"method": "label-lasso", "inference": "split"}),
    ("ols", NARROW, {"method": "thresholded-ols"}),
]


@pytest.mark.parametrize(("model", "endog", "options"), CASES)
def test_a_careless_range_is_said_where_nobody_holds_the_responses(
    model: str, endog: dp.Numeric, options: dict[str, Any]
) -> None:
    data = rows()
    found = fitted(model, data, endog, **options)
    name = "c" if model == "glm" else "y"
    true = float(((data[name] < endog.lower) | (data[name] > endog.upper)).mean())
    error = np.sqrt(error_of_count(marks_channel(LOCAL)) / found.released["counters"])
    assert found.released["share outside"][name] == pytest.approx(true, abs=4 * error)
    assert found.warnings[0].startswith(f"About {found.released['share outside'][name]:.0%} of")
    wide = fitted(model, data, dp.Numeric(0, 30) if model == "glm" else WIDE, **options)
    assert not [text for text in wide.warnings if "outside" in text]
    assert found.privacy.cost == (1.0, 0.0)  # a device answers one of both


def test_missing_responses_are_counted_likewise() -> None:
    found = fitted("ols", rows(missing=0.4), WIDE)
    assert found.released["share missing"]["y"] == pytest.approx(0.4, abs=0.1)
    (text,) = found.warnings
    assert "of 'y' were missing" in text


def test_shares_are_unbiased_and_as_far_off_as_planned_and_sound_ranges_raise_no_alarm() -> None:
    """2,000 draws; the spread would be missed had half of the devices been counted twice."""
    counters, channel = counters_of(marks_channel(LOCAL), N), Subset(3, 1.0)
    rng, shares = np.random.default_rng(0), np.array([1 - MANY, MANY, 0.0])
    p, q = channel.odds
    drawn = []
    for _ in range(2_000):
        cells = rng.multinomial(1, shares, counters).argmax(axis=1)
        held = rng.uniform(size=counters) < np.where(cells == 1, p, q)
        drawn.append(((held - q) / (p - q)).mean())
    error = np.sqrt(error_of_count(marks_channel(LOCAL)) / counters)
    assert np.mean(drawn) == pytest.approx(MANY, abs=4 * error / np.sqrt(2_000))
    assert np.std(drawn) == pytest.approx(error, rel=0.06)
    warned = [bool(fitted("ols", rows(4_000), WIDE, seed).warnings) for seed in range(40)]
    assert sum(warned) <= 2  # .003 expected


def test_noise_on_shares_is_that_of_the_channel() -> None:
    """400 answers of a holder about rows of which none is outside; half of the noise is seen."""
    data = table(2_000, 0)
    made = design(data)
    plan = LabelOLS().plan(made, LOCAL, len(data))
    counters, channel = plan.options["counters"], Subset(3, 1.0)
    query = RandomizedMarks(Interval(*made.internal_endog_bounds), channel, counters)
    drawn = np.array(
        [
            Labels(made.source(data), made, plan, SeededNoise(seed)).ask(query, "astray").value
            for seed in range(400)
        ]
    )
    within = np.array([1.0, 0.0, 0.0])
    noise = np.sqrt(np.diag(channel.noise(within)) / counters)
    np.testing.assert_allclose(drawn.std(axis=0), noise, rtol=0.15)
    assert np.all(np.abs(drawn.mean(axis=0) - within) < 4 * noise / 20)


def test_devices_are_as_many_as_tell_something_and_no_more() -> None:
    for epsilon in (0.5, 1.0, 4.0):
        privacy = LabelOnly(epsilon)
        few, usual, many = (counters_of(marks_channel(privacy), n) for n in (100, 20_000, 10**8))
        assert few == 0 or epsilon > 1
        assert 0 < usual <= 600
        assert error_of_count(marks_channel(privacy)) / many == pytest.approx(0.02**2, rel=0.01)
    loud = marks_channel(LabelOnly(4.0))
    assert counters_of(loud, 10**6) < counters_of(marks_channel(LOCAL), 10**6)


def test_a_device_answers_one_of_both_whatever_its_place() -> None:
    data = table(3_000, 0)
    made = design(data)
    plan = LabelOLS().plan(made, LOCAL, len(data))
    counters = plan.options["counters"]
    holder = Labels(made.source(data), made, plan, SeededNoise(0))
    sending = holder.sending(counters)
    assert len(sending) == len(data) - counters
    np.testing.assert_array_equal(sending, np.unique(sending))
    other = Labels(made.source(data), made, plan, SeededNoise(1)).sending(counters)
    assert not np.array_equal(sending, other)
    # Lots of both questions are the same, and not those that deal rows into halves.
    query = RandomizedMarks(Interval(-12.0, 12.0), Subset(3, 1.0), counters)
    z, _ = holder.ask(RandomizedLabels(Interval(-12.0, 12.0), channel_of(plan), counters), SLOT)
    assert len(z) == len(sending)
    shares, law = holder.ask(query, "astray")
    assert shares.shape == (3,)
    assert law.scale > 0
    halves = np.isin(np.setdiff1d(np.arange(len(data)), sending), holder.half(1)).mean()
    assert 0.2 < halves < 0.8
    with pytest.raises(PlanError, match="already answered"):
        holder.ask(query, "astray")


SLOT = "responses"


def channel_of(plan: Any) -> Any:
    from dpstats.estimators.responses import _channel

    return _channel(plan.options["channel"], plan.privacy)


def test_the_message_of_a_device_that_counts_is_epsilon_dp() -> None:
    """Every message, under every two cells that its response may be in."""
    channel = Subset(3, 1.0)
    payloads = np.arange(1, 7, dtype=np.uint8)[:, None]
    payloads = payloads[channel.accepts(payloads)]
    laws = np.array([channel.log_density(payloads, cell) for cell in np.eye(3)])
    assert np.ptp(laws, axis=0).max() <= 1.0 + 1e-12
    assert np.ptp(laws, axis=0).max() > 0.99  # and uses all of it


def test_a_question_to_devices_is_none_to_a_curator() -> None:
    data = table(3_000, 0)
    made = design(data)
    plan = replace(LabelOLS().plan(made, LOCAL, len(data)), privacy=LabelOnly(1.0, curator=True))
    holder = Labels(made.source(data), made, plan, SeededNoise(0))
    with pytest.raises(PlanError, match="a curator releases sums"):
        holder.ask(RandomizedMarks(Interval(-12.0, 12.0), Subset(3, 1.0), 90), "astray")


def test_few_rows_have_no_counters_and_plans_say_what_is_asked() -> None:
    few = dp.ols("y ~ x", rows(200), dp.Schema(y=WIDE))
    assert [m.slot for m in few.plan(LOCAL).mechanisms] == ["responses"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert "share outside" not in few.fit(LOCAL, noise=SeededNoise(0)).released
    plan = dp.ols("y ~ x", rows(), dp.Schema(y=WIDE)).plan(LOCAL)
    assert [m.slot for m in plan.mechanisms] == ["responses", "astray"]
    assert "in place of it: by lot" in " ".join(str(plan).split())
    assert plan.cost == (1.0, 0.0)
