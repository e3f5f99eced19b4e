"""The wire: what ships to a device, what it sends, and what a server does with anything it gets."""

import json
import math
import struct
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2

import dpstats as dp
from dpstats.errors import DataError, OptionError, TrustError
from dpstats.holders.clients import Clients
from dpstats.holders.collector import MessageCollector
from dpstats.holders.wire import HEADER_BYTES
from dpstats.mechanisms.noise import SeededNoise

SCHEMA = dp.Schema(
    {
        "x1": dp.Numeric(-1, 1),
        "x2": dp.Numeric(-3, 3, scale=1.0),
        "g": dp.Categorical(["a", "b"]),
        "y": dp.Numeric(-6, 6, scale=1.2),
    }
)
FORMULA = "y ~ x1 + x2 + g"
RECORD = {"x1": 0.3, "x2": -1.0, "g": "b", "y": 1.2}
PRIVACY = dp.Local(epsilon=2.0)
EXPECTED = 2000  # users


def table(n: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x1, x2, g = rng.uniform(-1, 1, n), rng.normal(size=n), rng.choice(["a", "b"], n)
    y = 0.5 + x1 - 0.4 * x2 + 0.6 * (g == "b") + 0.5 * rng.normal(size=n)
    return pd.DataFrame({"x1": x1, "x2": x2, "g": g, "y": y})


def model(n: int = EXPECTED, schema: dp.Schema = SCHEMA) -> dp.models.model.Model:
    return dp.ols(FORMULA, schema=schema, n=n)


@pytest.fixture(scope="module")
def messages() -> list[bytes]:
    return model().randomizer(PRIVACY, noise=SeededNoise(3)).send_all(table(40))


# -- the device ------------------------------------------------------------------------------------


def test_a_message_has_the_promised_length_and_no_two_are_alike():
    randomizer = model().randomizer(PRIVACY)
    sent = [randomizer(RECORD) for _ in range(300)]
    assert all(isinstance(message, bytes) for message in sent)
    assert {len(m) for m in sent} == {randomizer.message_bytes, randomizer.count_bytes}
    assert len(set(sent)) == 300


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"x1": 0.3},
        {"x1": math.nan, "x2": math.inf, "g": "unheard", "y": -1e300},
        {"x1": None, "x2": "text", "g": 3, "y": [1.0]},
        {"x1": 10**400, "x2": {}, "g": None, "y": object()},
        {**RECORD, "extra": 1},
    ],
    ids=["empty", "keys", "values", "types", "absurd", "more"],
)
def test_a_message_is_sent_whatever_the_record_holds(record):
    randomizer = model().randomizer(PRIVACY)
    collector = model().collector(PRIVACY)
    assert collector.add(randomizer(record))


def test_a_record_that_is_no_mapping_is_refused_without_being_quoted():
    with pytest.raises(DataError, match="mapping") as caught:
        model().randomizer(PRIVACY)(["CANARY", 1.0])
    assert "CANARY" not in str(caught.value)


def test_values_outside_the_declaration_are_mapped_on_the_device():
    """The same noise, and records that the schema maps to one another: the same message."""

    def send(record):
        return model().randomizer(PRIVACY, noise=SeededNoise(5))(record)

    assert send({**RECORD, "x1": 7.0}) == send({**RECORD, "x1": 1.0})
    assert send({**RECORD, "y": math.inf}) == send({**RECORD, "y": 6.0})
    assert send({**RECORD, "x1": 0.3}) != send({**RECORD, "x1": -0.9})


def test_a_randomizer_travels_as_json():
    shipped = model().randomizer(PRIVACY).to_json()
    assert json.loads(shipped)["format"] == "dpstats.randomizer"
    device = dp.Randomizer.from_json(shipped)
    assert (device.epsilon, device.delta) == (2.0, 0.0)
    assert model().collector(PRIVACY).add(device(RECORD))
    again = dp.Randomizer.from_json(shipped, noise=SeededNoise(1))(RECORD)
    assert again == model().randomizer(PRIVACY, noise=SeededNoise(1))(RECORD)


def test_a_device_need_not_spend_what_it_is_asked_to():
    shipped = model().randomizer(PRIVACY).to_json()
    assert dp.Randomizer.from_json(shipped, epsilon=2.0, delta=0.0).epsilon == 2.0
    with pytest.raises(OptionError, match="at most"):
        dp.Randomizer.from_json(shipped, epsilon=1.9)
    gaussian = model().randomizer(dp.Local(1.0, 1e-7), channel="gaussian").to_json()
    with pytest.raises(OptionError, match="at most"):
        dp.Randomizer.from_json(gaussian, delta=0.0)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "dpstats.randomizer", "version": 9}'])
def test_a_text_that_is_no_randomizer_is_refused(text):
    with pytest.raises(OptionError):
        dp.Randomizer.from_json(text)


def test_arrays_need_no_formula():
    rng = np.random.default_rng(1)
    exog, bounds = rng.uniform(-1, 1, (50, 2)), {"endog": (-4, 4), "exog": (-1, 1)}
    made = dp.OLS(exog @ [1.0, 2.0], exog, bounds)
    message = made.randomizer(PRIVACY)({"x1": 0.2, "x2": -0.4, "y": 1.0})
    assert made.collector(PRIVACY).add(message)


def test_nothing_but_the_payload_depends_on_the_record():
    """Headers of two records agree but for the id, which is drawn on the device."""
    heads = []
    for y in (-6.0, 6.0):
        randomizer = model().randomizer(PRIVACY, noise=SeededNoise(2))
        heads.append(bytearray(randomizer({**RECORD, "y": y})[:HEADER_BYTES]))
    for head in heads:
        del head[-24:]  # id, length, checksum
    assert heads[0] == heads[1]


# -- the server ------------------------------------------------------------------------------------


def altered(message: bytes, at: int, value: int) -> bytes:
    changed = bytearray(message)
    changed[at] = value
    return bytes(changed)


def foreign(**changes) -> bytes:
    """A message of a model that differs in one respect."""
    privacy = changes.pop("privacy", PRIVACY)
    schema = SCHEMA
    if changes:
        schema = dp.Schema({**{name: SCHEMA[name] for name in RECORD}, **changes})
    return model(schema=schema).randomizer(privacy)(RECORD)


def bad_messages(good: bytes) -> list[tuple[object, str]]:
    return [
        (None, "not a message"),
        ("text", "not a message"),
        (12, "not a message"),
        (b"", "not a message"),
        (b"GET / HTTP/1.1", "not a message"),
        (b"DPM", "not a message"),
        (altered(good, 3, 9), "version"),
        (good[:20], "corrupt"),
        (good[:-1], "corrupt"),
        (good + b"\0", "corrupt"),
        (altered(good, len(good) - 1, good[-1] ^ 1), "corrupt"),
        (foreign(x1=dp.Numeric(-2, 2)), "schema"),
        (foreign(privacy=dp.Local(epsilon=1.0)), "epsilon"),
        (good, "duplicate"),
    ]


def test_bad_messages_are_counted_and_stop_nothing(messages):
    collector = model().collector(PRIVACY)
    assert collector.extend(messages) == len(messages)
    expected: dict[str, int] = {}
    for bad, reason in bad_messages(messages[0]):
        assert not collector.add(bad), reason
        expected[reason] = expected.get(reason, 0) + 1
        assert collector.rejected == expected
    assert collector.accepted == len(messages)


def test_random_bytes_never_stop_the_collector(messages):
    rng = np.random.default_rng(0)
    collector = model().collector(PRIVACY)
    for _ in range(300):
        good = bytearray(messages[0])
        for place in rng.integers(0, len(good), 3):
            good[place] = rng.integers(256)
        collector.add(bytes(good))
        collector.add(rng.bytes(int(rng.integers(0, 200))))
        collector.add(b"DPM\x01" + rng.bytes(int(rng.integers(0, 200))))
    assert collector.accepted <= 1


def test_the_order_of_messages_does_not_matter(messages):
    forth, back = model().collector(PRIVACY), model().collector(PRIVACY)
    forth.extend(messages)
    back.extend(messages[::-1])
    assert np.allclose(forth.fit().params, back.fit().params, rtol=1e-9)


def test_seeded_messages_make_a_result_that_is_not_private(messages):
    seeded, honest = model().collector(PRIVACY), model().collector(PRIVACY)
    seeded.extend(messages)
    honest.extend(model().randomizer(PRIVACY).send_all(table(40)))
    assert seeded.fit().reproducible
    assert "NOT private" in str(seeded.fit().summary())
    assert not honest.fit().reproducible


def test_a_mark_is_counted_and_marks_no_other_message(tmp_path):
    """One sender's word is not everybody's: a fit says how many, and is private to the others."""
    collector = model().collector(PRIVACY)
    collector.extend(model().randomizer(PRIVACY).send_all(table(40)))
    collector.extend(model().randomizer(PRIVACY, noise=SeededNoise(3)).send_all(table(3)))
    collector.save(tmp_path / "round.npz")
    for each in (collector, dp.Collector.load(tmp_path / "round.npz")):
        assert each.marked == 3
        fit = each.fit()
        assert not fit.reproducible
        fit.save(tmp_path / "fit.json")
        for shown in (fit, dp.load(tmp_path / "fit.json")):
            words = " ".join(str(shown.summary()).split())
            assert "3 of 43 messages were marked by their senders" in words
            assert "3 of 43" in shown.to_html()
            assert "NOT private" not in words
    honest = model().collector(PRIVACY)
    honest.extend(model().randomizer(PRIVACY).send_all(table(40)))
    assert "marked by" not in str(honest.fit().summary())


def test_a_long_message_is_refused_before_any_of_it_is_copied(messages):
    collector = model().collector(PRIVACY)
    whole = np.zeros(10**8, dtype=np.uint8)
    whole[: len(messages[0])] = np.frombuffer(messages[0], dtype=np.uint8)
    length = struct.pack(">I", whole.size - HEADER_BYTES)
    for claim in (bytes(4), length):  # what the header says of the payload: wrong, and right
        whole[HEADER_BYTES - 8 : HEADER_BYTES - 4] = np.frombuffer(claim, dtype=np.uint8)
        tracemalloc.start()
        assert not collector.add(memoryview(whole))
        assert tracemalloc.get_traced_memory()[1] < 50_000
        tracemalloc.stop()
    assert collector.rejected == {"corrupt": 1, "payload": 1}


def test_any_buffer_is_a_message_or_none(messages):
    collector = model().collector(PRIVACY)
    released = memoryview(bytearray(messages[0]))
    released.release()
    holes = memoryview(np.frombuffer(b"".join(messages), dtype=np.uint8))[::2]
    empty = memoryview(np.zeros((0, 4)))
    for bad in (released, holes, empty, memoryview(np.zeros((3, 3)))):
        assert not collector.add(bad)
    assert collector.rejected == {"not a message": 4}
    assert collector.add(memoryview(bytearray(messages[0])))


@pytest.mark.parametrize("limit", [math.nan, 0.0, -1.0])
def test_a_limit_that_is_no_number_allows_nothing(limit):
    shipped = model().randomizer(PRIVACY).to_json()
    with pytest.raises(OptionError, match="at most"):
        dp.Randomizer.from_json(shipped, epsilon=limit)


def test_a_randomizer_that_asks_for_other_columns_than_it_has_is_refused():
    fields = json.loads(model().randomizer(PRIVACY).to_json())
    for change in (
        {"message": fields["message"] | {"width": 50_000}},
        {"message": fields["message"] | {"theta": [1e308]}},
        {"message": fields["message"] | {"columns": [-1]}},
        {"channel": fields["channel"] | {"dim": 3}},
        {"round": 2**20},
        {"round": "first"},
        {"more": 1},
    ):
        with pytest.raises(dp.errors.DPStatsError):
            dp.Randomizer.from_json(json.dumps(fields | change))


def test_a_collector_without_messages_says_so():
    with pytest.raises(OptionError, match="no accepted message"):
        model().collector(PRIVACY).fit()


def test_only_local_models_have_collectors():
    with pytest.raises(TrustError, match="Local"):
        model().collector(dp.Central(1.0, 1e-7))


def test_a_saved_collector_goes_on_in_another_process(messages, tmp_path):
    whole, first = model().collector(PRIVACY), model().collector(PRIVACY)
    whole.extend(messages)
    first.extend(messages[:15])
    first.add(b"junk")
    first.save(tmp_path / "round.npz")
    second = dp.Collector.load(tmp_path / "round.npz")
    assert second.accepted == 15
    assert second.rejected == {"not a message": 1}
    assert not second.add(messages[3])  # it remembers whom it has heard
    second.extend(messages[15:])
    assert np.allclose(whole.fit().params, second.fit().params, rtol=1e-9)


@pytest.mark.parametrize("content", [b"", b"junk", b"PK\x03\x04"])
def test_a_file_that_is_no_collector_is_refused(content, tmp_path):
    (tmp_path / "file.npz").write_bytes(content)
    with pytest.raises(DataError, match="saved collector"):
        dp.Collector.load(tmp_path / "file.npz")


def test_a_file_whose_plan_asks_for_more_rounds_than_were_asked_is_refused(tmp_path):
    collector = model().collector(dp.Local(epsilon=2.0, interactive=True))
    for turn in range(collector.rounds):
        if turn:
            collector.next_round()
        collector.extend(collector.randomizer(noise=SeededNoise(turn)).send_all(table(40, turn)))
    collector.save(path := tmp_path / "rounds.npz")
    with np.load(path) as archive:
        written = dict(archive)
    header = json.loads(str(written["header"]))
    header["plan"]["options"]["shares"].append(0.5)
    np.savez(path, **written | {"header": np.array(json.dumps(header))})
    with pytest.raises(DataError, match="2 rounds, and its options ask for more"):
        dp.Collector.load(path).fit()


def test_a_fit_from_the_wire_is_a_result_like_any_other(messages, tmp_path):
    collector = model().collector(PRIVACY)
    collector.extend(messages)
    fit = collector.fit()
    assert fit.nobs == len(messages)
    page = str(fit.summary())
    assert "each device randomises" in page
    assert fit.privacy.cost == (2.0, 0.0)
    path = tmp_path / "fit.json"
    fit.save(path)
    assert np.allclose(dp.load(path).params, fit.params)


# -- the wire and the simulation have one law ------------------------------------------------------


def test_messages_of_the_wire_have_the_law_of_the_simulation():
    """Means and second moments of decoded messages, and a chi-square of one projection."""
    n, chosen = 6000, dp.Local(epsilon=2.0)
    rows = table(n, seed=4)
    made = dp.ols(FORMULA, rows, SCHEMA)
    collector = made.collector(chosen)
    question = collector._collectors[0].question
    received = MessageCollector(made.design, question, 0)
    for message in made.randomizer(chosen, noise=SeededNoise(7)).send_all(rows):
        received.add(message)
    assert made.randomizer(chosen).counting == pytest.approx(0.03)
    wire = received.messages()
    clients = Clients(made.design.source(rows), made.design, collector.plan, SeededNoise(8))
    simulated = clients.collect(question, 0)
    assert wire.devices == simulated.devices == n
    assert wire.count == pytest.approx(0.97 * n, abs=60)  # 4.5 standard deviations
    assert simulated.count == pytest.approx(0.97 * n, abs=60)
    for one, other in ((wire, simulated), (wire.astray, simulated.astray)):
        gap = one.mean - other.mean
        inverse = np.linalg.pinv(one.covariance + other.covariance, rcond=1e-9)
        assert chi2.cdf(float(gap @ inverse @ gap), gap.size) < 0.9999
    # Fourth moments of bounded messages are small: the average of z^2 is good to a few per cent.
    assert np.allclose(np.diag(wire.second), np.diag(simulated.second), rtol=0.08)
    assert not np.allclose(np.diag(wire.second), 1.3 * np.diag(simulated.second), rtol=0.08)


def test_the_header_says_what_was_asked(messages):
    magic, version, flags, turn, epsilon, delta = struct.unpack_from(">3sBBHdd", messages[0])
    assert (magic, version, flags, turn, epsilon, delta) == (b"DPM", 1, 1, 0, 2.0, 0.0)


def test_devices_of_every_round_are_asked_once_in_order_and_none_is_listed():
    """Positions come some at a time: nothing of the length of the table is kept."""
    chosen = dp.Local(epsilon=2.0, interactive=True)
    n = 150_000
    rows = {"x": np.zeros(n), "y": np.zeros(n)}
    schema = dp.Schema({name: dp.Numeric(-1, 1, center=0, scale=1) for name in rows})
    made = dp.ols("y ~ x", rows, schema)
    clients = Clients(made.design.source(rows), made.design, made.plan(chosen), SeededNoise(8))
    seen = []
    for begin, end in clients._rounds:
        parts = list(clients._places(begin, end, 777))
        assert [part.size for part in parts[:-1]] == [777] * (len(parts) - 1)
        here = np.concatenate(parts)
        assert here.tolist() == sorted(clients._lots.ranked(begin, end))
        seen.append(here)
    assert len(seen) > 1
    assert sorted(np.concatenate(seen)) == list(range(n))
    held = [v.nbytes for v in vars(clients).values() if isinstance(v, np.ndarray)]
    assert sum(held) < n
