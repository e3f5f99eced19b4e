"""Where every device holds its own record, a few say which value of theirs is astray.

Shares are unbiased and as far off as said, a careless range is named, a sound one raises no alarm,
a device that counts sends one epsilon-DP message as all others do, and the wire has the same law.
"""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpstats as dp
from dpstats.errors import DPStatsError, PlanError
from dpstats.estimators.counters import MANY, counters_of, error_of_count
from dpstats.holders.clients import Clients
from dpstats.holders.device import Device
from dpstats.holders.wire import HEADER_BYTES
from dpstats.mechanisms.draws import drawn
from dpstats.mechanisms.noise import SafeNoise, SeededNoise
from dpstats.queries import AstrayMessage
from tests.contracts.hostile import HOSTILE

pytestmark = pytest.mark.filterwarnings("ignore::dpstats.errors.FeasibilityWarning")

ONCE, ROUNDS = dp.Local(2.0), dp.Local(2.0, interactive=True)
NEARLY = dp.Local(2.0, 1e-7)
ALWAYS = 1 - 2.0**-53  # the largest chance of counting that there is
N = 40_000
SOUND = {
    "x": dp.Numeric(-5, 5, center=0, scale=1),
    "z": dp.Numeric(0, 10, center=5, scale=1.5),
    "g": dp.Categorical(["a", "b", "c"]),
    "y": dp.Numeric(-12, 12, center=0, scale=2),
    "b": dp.Boolean(),
}
FIELDS = {"x": 0.3, "z": 4.0, "g": "b", "y": 1.0}


def table(n: int = N, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x, z = rng.normal(size=n), np.clip(rng.normal(5, 1.5, n), 0, 10)
    g = rng.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2])
    y = np.clip(x + 0.3 * (z - 5) + rng.normal(size=n), -12, 12)
    return pd.DataFrame({"x": x, "z": z, "g": g, "y": y, "b": rng.uniform(size=n) < 0.5})


def schema(**other: Any) -> dp.Schema:
    return dp.Schema({**SOUND, **other})


NARROW = {
    "y": dp.Numeric(-1, 1),
    "x": dp.Numeric(-1, 1),
}
CASES = {
    "moments": (lambda s, d: dp.ols("y ~ x + z", d, s), ONCE, {}, "y"),
    "rounds": (lambda s, d: dp.ols("y ~ x + z", d, s), ROUNDS, {}, "y"),
    "sparse": (lambda s, d: dp.ols("y ~ x + z", d, s), ONCE, {"sparsity": 1}, "y"),
    "screening": (lambda s, d: dp.ols("y ~ x + z", d, s), ROUNDS, {"sparsity": 1}, "y"),
    "ldp-iht": (
        lambda s, d: dp.ols("y ~ x + z", d, s),
        ROUNDS,
        {"method": "ldp-iht", "sparsity": 1},
        "y",
    ),
    "nldp": (lambda s, d: dp.ols("y ~ x + z", d, s), NEARLY, {"method": "nldp"}, "y"),
    "logit": (lambda s, d: dp.logit("b ~ x + z", d, s), ROUNDS, {}, "x"),
    "mean": (lambda s, d: dp.mean("y", d, s), ONCE, {}, "y"),
    "quantile": (lambda s, d: dp.quantile("y", d, s), ROUNDS, {}, "y"),
    "histogram": (lambda s, d: dp.histogram("y", d, s), ONCE, {}, "y"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_careless_range_is_said_where_nobody_holds_the_rows(name: str) -> None:
    make, privacy, options, column = CASES[name]
    data = table()
    found = make(schema(**{column: NARROW[column]}), data).fit(
        privacy, noise=SeededNoise(1), **options
    )
    share = float((data[column].abs() > 1).mean())
    told = found.released["share outside"][column]
    assert told == pytest.approx(share, abs=4 * error_of(found))
    assert found.released["share of records astray"] == pytest.approx(share, abs=0.2)
    said = [text for text in found.warnings if text.startswith(f"About {told:.0%} of {column!r}")]
    assert len(said) == 1
    assert "outside the declared range" in said[0]
    sound = make(schema(), data).fit(privacy, noise=SeededNoise(1), **options)
    assert not [text for text in sound.warnings if text.startswith("About")]
    assert found.privacy.cost == (pytest.approx(2.0), privacy.delta)  # answers or counts
    assert "Nobody counted" not in str(found.summary())


def error_of(fit: Any) -> float:
    """Of a share that the devices of a fit count."""
    counters = fit.plan.options["counting"] * fit.plan.n
    channel = AstrayMessage(len(fit.design.inputs)).channel(fit.plan.privacy.epsilon)
    return math.sqrt(error_of_count(channel) / counters)


def test_missing_values_and_unknown_levels_are_counted_likewise() -> None:
    data = table()
    data.loc[np.random.default_rng(1).uniform(size=N) < 0.3, "z"] = np.nan
    found = dp.ols("y ~ x + z + g", data, schema(g=dp.Categorical(["a", "b"]))).fit(
        ONCE, noise=SeededNoise(2)
    )
    # Of both a device names one: .3 (1 - .2 / 2) and .2 (1 - .3 / 2).
    told, error = found.released["share missing"], error_of(found)
    assert told["z"] == pytest.approx(0.27, abs=4 * error)
    assert told["g"] == pytest.approx(0.17, abs=4 * error)
    said = [text for text in found.warnings if "missing, and their rows count as nothing" in text]
    assert [text.split("'")[1] for text in said] == ["z", "g"]


def test_many_columns_of_which_none_stands_out_are_said_together() -> None:
    """Each of 40 columns is named by a fortieth of the devices."""
    rng = np.random.default_rng(0)
    names = [f"x{j}" for j in range(40)]
    data = pd.DataFrame(rng.uniform(2, 3, (8_000, 40)), columns=names)
    data["y"] = rng.normal(size=8_000)
    declared = dp.Schema(
        {**dict.fromkeys(names, dp.Numeric(-1, 1)), "y": dp.Numeric(-6, 6, scale=1)}
    )
    model = dp.ols("y ~ " + " + ".join(names), data, declared)
    found = model.fit(dp.Local(4.0), noise=SeededNoise(0), sparsity=2)
    assert found.released["share of records astray"] == pytest.approx(1.0, abs=0.1)
    assert any(text.startswith("About ") and "too few to tell" in text for text in found.warnings)
    wide = dp.Schema({**dict.fromkeys(names, dp.Numeric(-1, 4)), "y": declared["y"]})
    model = dp.ols("y ~ " + " + ".join(names), data, wide)
    found = model.fit(dp.Local(4.0), noise=SeededNoise(0), sparsity=2)
    assert not any(text.startswith("About") for text in found.warnings)


def test_shares_are_unbiased_and_as_far_off_as_said_and_sound_ranges_raise_no_alarm() -> None:
    """200 fits of a mean whose range leaves out a twentieth; half of the noise would be seen."""
    n = 20_000
    data = pd.DataFrame({"y": np.random.default_rng(0).permutation(np.arange(n) / n)})
    model = dp.mean("y", data, dp.Schema(y=dp.Numeric(0, 1 - MANY)))
    fits = (model.fit(dp.Local(1.0), noise=SeededNoise(seed)) for seed in range(200))
    told = [fit.released["share of records astray"] for fit in fits]
    channel = AstrayMessage(1).channel(1.0)
    error = math.sqrt(error_of_count(channel) / counters_of(channel, n))
    # A share below 0 is said to be 0.
    law = stats.norm(MANY, error)
    expected = law.expect(lambda v: v, lb=0, ub=1)
    spread = math.sqrt(law.expect(lambda v: v**2, lb=0, ub=1) - expected**2)
    assert np.mean(told) == pytest.approx(expected, abs=4 * spread / math.sqrt(200))
    assert np.std(told) == pytest.approx(spread, rel=0.21)


def test_a_record_is_in_parts_in_the_cells_of_what_is_astray() -> None:
    message = AstrayMessage(3)
    for marks in itertools.product([False, True], repeat=6):
        outside, missing = np.array(marks[:3]), np.array(marks[3:])
        (row,) = message.rows(np.array([[outside, missing]]))
        several = sum(marks)
        assert row.sum() == pytest.approx(1.0)
        assert row[0] == (several == 0)
        assert np.array_equal(row[1:] > 0, np.array(marks))
        assert several == 0 or row.max() == pytest.approx(1 / several)
    assert message.rows(np.zeros((0, 2, 3), dtype=bool)).shape == (0, 7)


# Privacy ------------------------------------------------------------------------------------------


def test_the_message_of_a_device_that_counts_is_epsilon_dp() -> None:
    """Every message there is, under every two records of two columns."""
    message = AstrayMessage(2)
    for epsilon in (0.5, 1.0, 3.0):
        channel = message.channel(epsilon)
        payloads = np.arange(2**5, dtype=np.uint8)[:, None]
        payloads = payloads[channel.accepts(payloads)]
        marks = np.array(list(itertools.product([False, True], repeat=4))).reshape(-1, 2, 2)
        laws = np.array([channel.log_density(payloads, row) for row in message.rows(marks)])
        assert np.exp(laws).sum(axis=1) == pytest.approx(1.0)
        assert np.ptp(laws, axis=0).max() <= epsilon + 1e-12
        assert np.ptp(laws, axis=0).max() > 0.99 * epsilon  # and uses all of it


def test_whether_a_device_counts_depends_on_no_record() -> None:
    """The same coins whatever the record, and as often as is said."""
    randomizer = dp.ols("y ~ x + z", schema=schema(), n=N).randomizer(ONCE, noise=SeededNoise(1))
    assert randomizer.counting == pytest.approx(counters_of(AstrayMessage(3).channel(2.0), N) / N)
    good, bad = table(2_000), pd.DataFrame({"x": [1e9, np.nan] * 1000, "y": 9e9, "z": -1.0})
    counts = []
    for data in (good, bad):
        sender = dp.Randomizer.from_json(randomizer.to_json(), noise=SeededNoise(5))
        counts.append([len(m) != randomizer.message_bytes for m in sender.send_all(data)])
    assert counts[0] == counts[1]
    assert 30 <= sum(counts[0]) <= 95  # 60 are expected
    coins = drawn(SafeNoise().start(), 0.25, 40_000)
    assert coins.mean() == pytest.approx(0.25, abs=0.01)


def test_a_device_counts_whatever_its_record_holds() -> None:
    """At a huge epsilon a message says in which cell the record is."""
    model = dp.ols("y ~ x + z", schema=schema(), n=N)
    question = model.collector(dp.Local(60.0))._collectors[0].question
    design = model.collector(dp.Local(60.0)).design
    device = Device(design, replace(question, counting=ALWAYS), 0, SeededNoise(0))
    channel = AstrayMessage(3).channel(60.0)

    def cell(record: dict[str, Any]) -> int:
        payload = np.frombuffer(device.send(record)[HEADER_BYTES:], dtype=np.uint8)
        return int(np.argmax(channel.decode(payload[None])[0]))

    # y, x, z are outside in cells 1 to 3, and missing in cells 4 to 6.
    assert cell(FIELDS) == 0
    assert [cell({**FIELDS, name: 1e6}) for name in "yxz"] == [1, 2, 3]
    assert [cell({**FIELDS, name: None}) for name in "yxz"] == [4, 5, 6]
    assert [cell({k: v for k, v in FIELDS.items() if k != name}) for name in "yxz"] == [4, 5, 6]
    assert {cell({**FIELDS, "x": -np.inf, "y": math.nan}) for _ in range(40)} == {2, 4}
    for held in HOSTILE.values():
        assert 0 <= cell(dict.fromkeys("yxz", held)) < 7


def test_holders_count_as_planned_and_no_more() -> None:
    data = table(2_000)
    model = dp.ols("y ~ x + z", data, schema())
    plan = model.plan(ONCE)
    question = model.collector(ONCE)._collectors[0].question
    design = model.collector(ONCE).design
    for counting in (0.0, 2 * question.counting):
        holder = Clients(design.source(data), design, plan, SeededNoise(0))
        with pytest.raises(PlanError, match="not as planned"):
            holder.collect(replace(question, counting=counting), 0)
        assert holder.transcript == ()
    holder = Clients(design.source(data), design, plan, SeededNoise(0))
    made = holder.collect(question, 0)
    assert made.devices == 2_000
    assert made.astray is not None
    answers, counts = holder.transcript
    assert (answers.slot, counts.slot) == ("messages", "astray")
    assert answers.event.epsilon == counts.event.epsilon == 2.0
    assert f"{made.astray.count} users" in counts.law


def test_few_devices_are_not_asked_and_the_summary_says_that_nobody_counted() -> None:
    data = table(200)
    model = dp.ols("y ~ x", data, schema())
    assert [m.slot for m in model.plan(dp.Local(1.0)).mechanisms] == ["messages"]
    found = model.fit(dp.Local(1.0), noise=SeededNoise(0))
    assert "share outside" not in found.released
    assert "Nobody counted" in str(found.summary())
    for privacy in (ONCE, dp.LabelOnly(2.0)):
        found = dp.ols("y ~ x", table(4_000), schema()).fit(privacy, noise=SeededNoise(0))
        page = " ".join(str(found.summary(full=True)).split())
        assert "Devices: each sends one message, with all of the budget" in page
        assert "Halves" not in page
        assert "half 1" not in page
    plan = dp.ols("y ~ x", table(), schema()).plan(ONCE)
    assert [m.slot for m in plan.mechanisms] == ["messages", "astray"]
    assert "in place of it: by a coin" in " ".join(str(plan).split())
    assert plan.cost == (2.0, 0.0)


# The wire -----------------------------------------------------------------------------------------


def narrow_model(n: int = N) -> Any:
    return dp.ols("y ~ x + z", schema=schema(y=dp.Numeric(-1, 1)), n=n)


@pytest.mark.parametrize("privacy", [ONCE, ROUNDS], ids=["once", "rounds"])
def test_messages_that_count_are_taken_and_kept(privacy: Any, tmp_path: Path) -> None:
    n, data = 4_000, table(4_000)
    server = narrow_model(n).collector(privacy)
    for turn in range(server.rounds):
        if turn:
            server.next_round()
        sender = dp.Randomizer.from_json(server.randomizer().to_json(), noise=SeededNoise(turn))
        sent = sender.send_all(data.iloc[turn :: server.rounds])
        assert server.extend(sent[::2]) == len(sent[::2])
        server.save(tmp_path / "round.npz")
        server = dp.Collector.load(tmp_path / "round.npz")
        assert server.extend(sent) == len(sent[1::2])  # those that were heard are known
    assert server.accepted == n
    found = server.fit()
    assert found.plan.n == n
    assert found.nobs == n > found.nobs_contributing
    assert [m.slot for m in found.privacy.mechanisms] == ["messages", "astray"] * server.rounds
    share = float((data["y"].abs() > 1).mean())
    assert found.released["share outside"]["y"] == pytest.approx(share, abs=4 * error_of(found))
    assert found.warnings[-1].startswith("About")
    found.save(tmp_path / "fit.json")
    again = dp.load(tmp_path / "fit.json").released
    assert again["share outside"] == found.released["share outside"]


def test_a_round_of_messages_that_only_count_is_no_fit() -> None:
    server = narrow_model().collector(ONCE)
    sent = server.randomizer(noise=SeededNoise(1)).send_all(table(300))
    counts = [m for m in sent if len(m) != server.randomizer().message_bytes]
    assert server.extend(counts) == len(counts) > 0
    with pytest.raises(DPStatsError, match="no accepted message"):
        server.fit()


def test_a_message_that_counts_is_none_where_nobody_was_asked_to_or_of_other_columns() -> None:
    sent = narrow_model().randomizer(ONCE, noise=SeededNoise(1)).send_all(table(300))
    counts = [m for m in sent if len(m) == HEADER_BYTES + 1]
    assert narrow_model().randomizer(ONCE).count_bytes == HEADER_BYTES + 1
    few = dp.ols("y ~ x + z", schema=schema(y=dp.Numeric(-1, 1)), n=20).collector(ONCE)
    assert few.randomizer().count_bytes == 0
    assert few.randomizer().counting == 0.0
    assert few.extend(counts) == 0
    assert few.rejected == {"question": len(counts)}
    broken = [m[:-1] + bytes([m[-1] ^ 1]) for m in counts]
    server = narrow_model().collector(ONCE)
    assert server.extend(broken) == 0
    assert server.rejected == {"corrupt": len(counts)}
    assert server.extend(counts) == len(counts)
    assert server.extend(counts) == 0
    assert server.rejected["duplicate"] == len(counts)


@pytest.mark.parametrize("chance", [1.0, 2, -0.1, True, "0.03", None, [0.03], 1e400])
def test_a_file_with_another_chance_than_there_is_is_refused(chance: Any) -> None:
    fields = json.loads(narrow_model().randomizer(ONCE).to_json())
    assert 0 < fields["counting"] < 0.05
    with pytest.raises(DPStatsError):
        dp.Randomizer.from_json(json.dumps(fields | {"counting": chance}))
    del fields["counting"]
    with pytest.raises(DPStatsError):
        dp.Randomizer.from_json(json.dumps(fields))


def test_a_device_that_is_asked_to_count_always_spends_no_more_than_it_allows() -> None:
    fields = json.loads(narrow_model().randomizer(ONCE).to_json())
    text = json.dumps(fields | {"counting": ALWAYS})
    with pytest.raises(DPStatsError, match="at most"):
        dp.Randomizer.from_json(text, epsilon=1.9)
    device = dp.Randomizer.from_json(text, epsilon=2.0)
    assert device.epsilon == 2.0
    assert AstrayMessage(3).channel(2.0).event == device._question.channel.event
    assert {len(device(FIELDS)) for _ in range(20)} == {HEADER_BYTES + 1}
