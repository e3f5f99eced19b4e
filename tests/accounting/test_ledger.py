"""A ledger never overspends, never forgets, and shows that it was tampered with."""

import contextlib
import copy
import gc
import json
import math
import multiprocessing
import os
import pickle
import random
import shutil
import signal
import sqlite3
import threading
import time
from collections import Counter
from dataclasses import FrozenInstanceError, replace

import pytest

from dpstats.accounting import (
    Entry,
    Gaussian,
    Laplace,
    Ledger,
    Selection,
    Share,
    calibrate,
    chain,
    delta_of,
    epsilon_of,
    gdp_mu,
    standing,
)
from dpstats.accounting.filter import Composition
from dpstats.errors import BudgetError, LedgerError, OptionError, PlanError
from dpstats.federated.replies import Replies
from dpstats.privacy import NOT_PRIVATE, Central

from .workers import Charge, charge_many, die_inside_charge, gaussian_charge

CEILING = (3.0, 1e-6)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data.ledger"


@pytest.fixture
def ledger(path):
    made = Ledger.open(path, *CEILING)
    for i in range(3):
        made.charge(gaussian_charge(0.5), label=f"y ~ x{i}")
    return made


@contextlib.contextmanager
def raw(path):
    """The file as a tool other than dpstats would open it."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        yield connection
        connection.commit()


def mixed_charge(epsilon, delta=1e-7):
    asked = {
        "clip": Share("selection", 1.0),
        "count": Share("laplace", 1.0),
        "gram": Share("gaussian", 8.0),
    }
    return Charge(Central(epsilon, delta), tuple(calibrate(asked, epsilon, delta).values()))


# -- charging ----------------------------------------------------------------------------------


def test_a_new_ledger_is_empty(path):
    ledger = Ledger.open(path, *CEILING)
    assert (ledger.entries, ledger.spent, ledger.ceiling) == ((), (0.0, 0.0), CEILING)
    assert ledger.remaining == pytest.approx(CEILING, rel=1e-5)
    assert ledger.persistent
    assert ledger.path == path


def test_an_entry_records_what_was_asked(ledger, path):
    entry = ledger.charge(gaussian_charge(0.3), label="y ~ x + z")
    assert Ledger.open(path).entries[-1] == entry
    assert (entry.id, entry.label, entry.model, entry.method) == (4, "y ~ x + z", "ols", "test")
    assert (entry.epsilon, entry.delta, entry.neighbors) == (0.3, 1e-7, "replace-one")
    assert entry.unit == "record"
    assert entry.time.endswith("Z")
    with pytest.raises(FrozenInstanceError):
        entry.epsilon = 0.0


def test_events_survive_the_file_to_the_last_bit(path):
    plan = mixed_charge(0.7)
    Ledger.open(path, *CEILING).charge(plan)
    assert Ledger.open(path).entries[0].events == plan.events


def test_entries_compose_instead_of_adding_up(ledger):
    mu = math.sqrt(3) * gdp_mu(0.5, 1e-7)
    tight = epsilon_of([Gaussian(1 / mu)], 1e-6)
    epsilon, delta = ledger.spent
    assert tight <= epsilon <= 1.01 * tight
    assert epsilon < 0.6 * 3 * 0.5
    assert delta == 1e-6


@pytest.mark.parametrize("make", [gaussian_charge, mixed_charge])
def test_a_ledger_is_charged_up_to_its_ceiling_and_never_above(path, make):
    ledger, plan = Ledger.open(path, 2.0, 1e-6), make(0.4)
    while ledger.can_afford(plan):
        ledger.charge(plan)
    with pytest.raises(BudgetError):
        ledger.charge(plan)
    events = [e for entry in ledger.entries for e in entry.events]
    assert delta_of(events, 2.0) <= 1e-6
    # Close to what fits that are fixed in advance could have, far from adding epsilons up.
    fixed = next(n for n in range(1, 99) if delta_of(list(plan.events) * n, 2.0) > 1e-6) - 1
    assert 0.85 * fixed <= len(ledger.entries) <= fixed
    assert len(ledger.entries) > 2 * (2.0 / 0.4)


def test_what_remains_can_be_charged_and_more_cannot(ledger):
    epsilon, delta = ledger.remaining
    assert not ledger.can_afford(gaussian_charge(epsilon * 1.001, delta))
    assert ledger.can_afford(gaussian_charge(epsilon * 0.999, delta))
    ledger.charge(gaussian_charge(epsilon * 0.9999999, delta))
    assert ledger.remaining == (0.0, 0.0)


def test_where_nothing_is_left_no_room_is_searched_for(monkeypatch):
    """The search would take hundreds of steps, in every fit that spends its whole ledger."""
    plan = gaussian_charge(3.0, 1e-6)
    ledger = Ledger.memory(3.0, 1e-6)
    ledger.charge(plan)
    standing._largest_fit.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(standing, "largest", None)
        state = ledger.state()
    assert state.remaining == state.another == (0.0, 0.0)


def test_a_refusal_says_requested_remaining_and_difference(ledger):
    before = ledger.entries
    with pytest.raises(BudgetError, match="Nothing was charged and no row was read") as caught:
        ledger.charge(gaussian_charge(5.0))
    message, error = str(caught.value), caught.value
    requested, remaining = error.requested[0], error.remaining[0]
    assert error.requested == (5.0, 1e-7)
    assert f"requested: epsilon={requested:.6g}" in message
    assert f"remaining: epsilon={remaining:.6g}" in message
    assert f"difference: {requested - remaining:.6g}" in message
    assert "(3, 1e-06)" in message
    assert ledger.entries == before
    # What remains is said at the delta of the request: that much is granted.
    ledger.charge(gaussian_charge(remaining * 0.999999))


@pytest.mark.parametrize("make", [gaussian_charge, mixed_charge])
def test_remaining_in_a_refusal_is_less_than_requested(path, make):
    ledger = Ledger.open(path, 1.0, 1e-7)
    ledger.charge(make(1.0))
    with pytest.raises(BudgetError) as caught:
        ledger.charge(make(0.01))
    assert caught.value.remaining[0] < 0.01


def test_looking_charges_nothing(ledger):
    before = ledger.witness
    ledger.can_afford(gaussian_charge(0.1))
    ledger.to_frame()
    repr(ledger)
    assert ledger.witness == before


def test_a_plan_that_costs_more_than_it_states_is_refused(ledger):
    lie = replace(gaussian_charge(1.0), privacy=Central(0.5, 1e-7))
    with pytest.raises(PlanError, match="Nothing was charged"):
        ledger.charge(lie)
    with pytest.raises(PlanError, match="no mechanism"):
        ledger.charge(replace(lie, events=()))
    with pytest.raises(PlanError, match="cannot be computed"):
        ledger.charge(replace(lie, events=(object(),)))
    assert len(ledger.entries) == 3


# -- one promise per ledger --------------------------------------------------------------------


def test_a_ledger_keeps_to_one_neighbour_relation(ledger):
    other = gaussian_charge(0.1, neighbors="add-remove")
    for use in (ledger.charge, ledger.can_afford):
        with pytest.raises(LedgerError, match=r"'replace-one'.*'add-remove'.*second ledger"):
            use(other)
    assert len(ledger.entries) == 3


def test_a_ledger_keeps_to_one_unit_of_privacy(ledger):
    with pytest.raises(LedgerError, match=r"unit of privacy 'record'.*'person'"):
        ledger.charge(gaussian_charge(0.1), unit="person")


def test_a_pure_ledger_pays_for_pure_fits_only():
    ledger = Ledger.memory(1.0, 0.0)
    ledger.charge(Charge(Central(0.5), (Laplace(4.0), Selection(0.25))))
    assert ledger.spent == (pytest.approx(0.5), 0.0)
    assert ledger.remaining == (pytest.approx(0.5, rel=1e-5), 0.0)
    with pytest.raises(BudgetError, match="delta=0 only"):
        ledger.charge(gaussian_charge(0.1))


# -- opening -----------------------------------------------------------------------------------


def test_a_ledger_outlives_the_object(ledger, path):
    again = Ledger.open(path)
    assert again.entries == ledger.entries
    assert again.spent == ledger.spent
    assert Ledger.open(str(path), *CEILING).ceiling == CEILING
    assert os.listdir(path.parent) == [path.name]


def test_another_ceiling_is_refused_and_both_are_named(ledger, path):
    with pytest.raises(LedgerError, match=r"\(3, 1e-06\), but \(5, 1e-06\)"):
        Ledger.open(path, epsilon=5.0, delta=1e-6)
    with pytest.raises(LedgerError, match=r"\(3, 1e-06\), but \(any, 1e-05\)"):
        Ledger.open(path, delta=1e-5)


def test_making_a_ledger_needs_a_ceiling_and_a_folder(path):
    with pytest.raises(LedgerError, match="give its ceiling"):
        Ledger.open(path)
    with pytest.raises(LedgerError, match="no folder"):
        Ledger.open(path / "deeper", *CEILING)
    with pytest.raises(OptionError, match="epsilon"):
        Ledger.open(path, epsilon=-1.0, delta=1e-6)
    with pytest.raises(OptionError, match="delta"):
        Ledger.memory(1.0, 1.5)
    assert not os.listdir(path.parent)


@pytest.mark.parametrize("content", [b"", b"id,epsilon\n1,0.5\n", os.urandom(5000)])
def test_another_file_is_not_overwritten(path, content):
    path.write_bytes(content)
    with pytest.raises(LedgerError):
        Ledger.open(path, *CEILING)
    assert path.read_bytes() == content


def test_another_database_is_refused(path):
    with raw(path) as connection:
        connection.execute("CREATE TABLE entry (id INTEGER)")
    with pytest.raises(LedgerError, match="not made by dpstats"):
        Ledger.open(path, *CEILING)


def test_a_ledger_deleted_in_use_is_not_replaced_by_a_new_one(ledger, path):
    path.with_name("data.ledger-journal").touch()
    path.unlink()
    with pytest.raises(LedgerError, match="journal"):
        Ledger.open(path, *CEILING)


# -- tampering ---------------------------------------------------------------------------------

TRIGGERS = ["no_update_entry", "no_delete_entry", "no_delete_head", "head_counts_up"]
CHEAPER = "replace(payload, '\"noise_multiplier\":', '\"noise_multiplier\":9')"
EDITS = {
    "edited": [f"UPDATE entry SET payload = {CHEAPER} WHERE id = 2"],
    "last edited": [f"UPDATE entry SET payload = {CHEAPER} WHERE id = 3"],
    "relabelled": ["UPDATE entry SET payload = replace(payload, 'x1', 'x9') WHERE id = 2"],
    "last entry cut off": ["DELETE FROM entry WHERE id = 3"],
    "middle entry cut out": ["DELETE FROM entry WHERE id = 2"],
    "closed up": ["DELETE FROM entry WHERE id = 2", "UPDATE entry SET id = 2 WHERE id = 3"],
    "emptied": ["DELETE FROM entry"],
    "reordered": [
        "UPDATE entry SET id = 9 WHERE id = 1",
        "UPDATE entry SET id = 1 WHERE id = 2",
        "UPDATE entry SET id = 2 WHERE id = 9",
    ],
    "head set back": ["UPDATE head SET count = 2"],
    "head removed": ["DELETE FROM head"],
    "ceiling raised": ["UPDATE header SET payload = replace(payload, '3.0', '9.0')"],
    "garbage": ["UPDATE entry SET payload = 'not json' WHERE id = 1"],
    "extra table": ["CREATE TABLE notes (text TEXT)"],
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_is_found_on_open_and_on_charge(ledger, path, edit):
    schema = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
    with raw(path) as connection:
        triggers = dict(connection.execute(schema))
        for name in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        for statement in EDITS[edit]:
            connection.execute(statement)
        for sql in triggers.values():  # a careful forger puts them back
            connection.execute(sql)
    content = path.read_bytes()
    with pytest.raises(LedgerError):
        Ledger.open(path)
    with pytest.raises(LedgerError):
        ledger.charge(gaussian_charge(0.1))
    with pytest.raises(LedgerError):
        _ = ledger.remaining
    assert path.read_bytes() == content


def test_missing_triggers_are_found(ledger, path):
    with raw(path) as connection:
        connection.execute("DROP TRIGGER no_update_entry")
    with pytest.raises(LedgerError, match="triggers were changed"):
        Ledger.open(path)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entry SET hash = ''",
        "DELETE FROM entry WHERE id = 3",
        "UPDATE header SET payload = ''",
        "DELETE FROM header",
        "UPDATE head SET count = 2",
        "DELETE FROM head",
    ],
)
def test_the_file_itself_refuses_changes(ledger, path, statement):
    with raw(path) as connection, pytest.raises(sqlite3.DatabaseError, match="only ever appended"):
        connection.execute(statement)
    assert len(Ledger.open(path).entries) == 3


@pytest.mark.parametrize("keep", [0, 1, 100, 4096, 0.5, -1, -4096])
def test_a_truncated_file_is_found(ledger, path, keep):
    size = path.stat().st_size
    os.truncate(path, int(keep * size) if isinstance(keep, float) else keep + size * (keep < 0))
    assert path.stat().st_size < size
    with pytest.raises(LedgerError):
        Ledger.open(path, *CEILING)
    with pytest.raises(LedgerError):
        ledger.charge(gaussian_charge(0.1))


def test_flipped_bytes_are_found_or_harmless(ledger, path):
    """Wherever a byte flips, the ledger is refused or says exactly what it said before."""
    content, entries, rng = path.read_bytes(), ledger.entries, random.Random(5)
    found = 0
    for _ in range(60):
        position = rng.randrange(len(content))
        flipped = bytes([content[position] ^ (1 << rng.randrange(8))])
        path.write_bytes(content[:position] + flipped + content[position + 1 :])
        try:
            assert Ledger.open(path).entries == entries
        except LedgerError:
            found += 1
    assert found > 0


def test_a_deleted_file_is_not_silently_made_again(ledger, path):
    path.unlink()
    with pytest.raises(LedgerError, match=r"data\.ledger"):
        ledger.charge(gaussian_charge(0.1))
    assert not path.exists()


def test_an_older_copy_is_found_while_open_and_by_its_witness(ledger, path, tmp_path):
    copy = tmp_path / "copy"
    shutil.copy(path, copy)
    ledger.charge(gaussian_charge(0.1))
    witness = ledger.witness
    shutil.copy(copy, path)
    with pytest.raises(LedgerError, match="replaced while it was open"):
        ledger.charge(gaussian_charge(0.1))
    # Nothing in the older copy tells that it is older; only the note does.
    assert len(Ledger.open(path).entries) == 3
    with pytest.raises(LedgerError, match="older copy"):
        Ledger.open(path, witness=witness)
    with pytest.raises(LedgerError, match="count:hash"):
        Ledger.open(path, witness="4")


def test_equal_charges_of_one_second_have_different_hashes(path, tmp_path, monkeypatch):
    """So an older copy that was charged alike again is not taken for the newer one."""
    monkeypatch.setattr("dpstats.accounting.charge.now", lambda: "2026-01-01T00:00:00Z")
    ledger, copy = Ledger.open(path, *CEILING), tmp_path / "copy"
    shutil.copy(path, copy)
    first = ledger.charge(gaussian_charge(0.1))
    shutil.copy(copy, path)
    second = Ledger.open(path).charge(gaussian_charge(0.1))
    assert len({first.nonce, second.nonce}) == 2
    assert replace(first, nonce="", hash="") == replace(second, nonce="", hash="")
    with pytest.raises(LedgerError, match="replaced while it was open"):
        ledger.charge(gaussian_charge(0.1))
    assert len(first.nonce) == 32


def test_cutting_off_the_end_takes_no_hash_and_is_found_by_a_witness_alone(ledger, path):
    """The documentation promises no more: the hash of the new last entry is in the file."""
    witness = ledger.witness
    with raw(path) as connection:
        for name in ("no_delete_entry", "head_counts_up"):
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("DELETE FROM entry WHERE id = 3")
        connection.execute(
            "UPDATE head SET count = 2, hash = (SELECT hash FROM entry WHERE id = 2)"
        )
        for name in ("no_delete_entry", "head_counts_up"):
            connection.execute(chain._TRIGGERS[name])
    assert len(Ledger.open(path).entries) == 2
    with pytest.raises(LedgerError, match="older copy"):
        Ledger.open(path, witness=witness)
    with pytest.raises(LedgerError, match="replaced while it was open"):
        ledger.charge(gaussian_charge(0.1))


def test_entries_of_earlier_versions_are_read_verified_and_charged_upon(path, monkeypatch):
    """They have no nonce, and nobody recorded what noise they had."""
    payload = Entry.payload

    def earlier(entry):
        fields = json.loads(payload(entry))
        del fields["nonce"], fields["reproducible"]
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))

    with monkeypatch.context() as patch:
        patch.setattr(Entry, "payload", earlier)
        old = Ledger.open(path, *CEILING).charge(gaussian_charge(0.1), reproducible=True)
    ledger = Ledger.open(path)
    assert ledger.entries == (old,)
    assert (old.nonce, old.reproducible) == ("", None)
    ledger.charge(gaussian_charge(0.1), reproducible=False)
    assert list(Ledger.open(path).to_frame()["noise"]) == ["not recorded", "private"]


def test_a_witness_stays_true_as_the_ledger_grows(ledger, path):
    witness = ledger.witness
    ledger.charge(gaussian_charge(0.1))
    assert len(Ledger.open(path, witness=witness).entries) == 4


# -- processes and threads ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def processes():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["dpstats.accounting", "tests.accounting.workers"])
    return context


@pytest.mark.parametrize("kills", [8, pytest.param(0, marks=pytest.mark.full)])
def test_processes_at_once_neither_overspend_nor_lose_a_charge(path, tmp_path, processes, kills):
    """Room for about half of the charges; killed workers are replaced and carry on."""
    Ledger.open(path, 0.4, 1e-6)
    notes = [tmp_path / f"{w}.notes" for w in range(4)]
    for note in notes:
        note.touch()

    def launch(w):
        process = processes.Process(target=charge_many, args=(path, notes[w], f"w{w}", 12))
        process.start()
        return process

    running, rng, killed = [launch(w) for w in range(4)], random.Random(1), 0
    while any(process.is_alive() for process in running):
        time.sleep(rng.expovariate(40.0))
        victim = rng.choice(running)
        if killed < kills and victim.is_alive():
            os.kill(victim.pid, signal.SIGKILL)
            killed += 1
        for w, process in enumerate(running):
            process.join(0)
            if process.exitcode not in (None, 0):
                running[w] = launch(w)
    entries = Ledger.open(path).entries
    noted = Counter(line for note in notes for line in note.read_text().splitlines())
    refused = noted.pop("refused", 0)
    labels = Counter(entry.label for entry in entries)
    assert not noted - labels, "a confirmed charge was lost"
    assert (labels - noted).total() <= killed, "only a kill may hide a charge from its asker"
    assert refused + noted.total() == 48
    assert refused > 0
    assert delta_of([e for entry in entries for e in entry.events], 0.4) <= 1e-6
    assert max(labels.values()) == 1


@pytest.mark.parametrize(
    ("statement", "charged"),
    [
        ("BEGIN IMMEDIATE", False),
        ("INSERT INTO entry", False),
        ("UPDATE head", False),
        ("COMMIT", False),
    ],
)
def test_a_process_killed_inside_a_charge_leaves_an_intact_ledger(
    ledger, path, processes, statement, charged
):
    process = processes.Process(target=die_inside_charge, args=(path, statement))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert [e.label == "killed" for e in Ledger.open(path).entries] == [False] * 3 + [
        True
    ] * charged
    ledger.charge(gaussian_charge(0.1))


def test_opening_while_another_charges_is_no_false_alarm(path):
    Ledger.open(path, 50.0, 1e-6)
    done = threading.Event()

    def charge() -> None:
        ledger = Ledger.open(path)
        while not done.is_set() and len(ledger.entries) < 200:
            ledger.charge(gaussian_charge(0.01))

    writer = threading.Thread(target=charge)
    writer.start()
    try:
        counts = [len(Ledger.open(path).entries) for _ in range(20)]
        while counts[-1] == 0 and writer.is_alive():  # it may be slow to begin
            counts.append(len(Ledger.open(path).entries))
    finally:
        done.set()
        writer.join()
    assert counts == sorted(counts)
    assert counts[-1] > 0


def test_threads_share_one_ledger(path):
    for ledger in (Ledger.open(path, *CEILING), Ledger.memory(*CEILING)):
        threads = [
            threading.Thread(target=ledger.charge, args=(gaussian_charge(0.1),)) for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [entry.id for entry in ledger.entries] == [1, 2, 3, 4, 5, 6]


def test_two_makers_at_once_make_one_ledger(path):
    made = []
    threads = [
        threading.Thread(target=lambda: made.append(Ledger.open(path, *CEILING))) for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({ledger.witness for ledger in made}) == 1
    assert os.listdir(path.parent) == [path.name]


# -- showing -----------------------------------------------------------------------------------


def test_a_memory_ledger_says_that_it_will_be_forgotten():
    ledger = Ledger.memory(1.0, 1e-6)
    ledger.charge(gaussian_charge(0.5))
    assert (ledger.persistent, ledger.path, len(ledger.entries)) == (False, None, 1)
    assert "does not outlive the process" in repr(ledger)
    assert ledger.state().path is None


def test_the_state_is_a_frozen_copy(ledger, path):
    state = ledger.state()
    ledger.charge(gaussian_charge(0.1))
    assert (state.entries, state.ceiling, state.persistent) == (3, CEILING, True)
    assert state.spent[0] < ledger.spent[0]
    assert state.path == str(path)
    assert pickle.loads(pickle.dumps(state)) == state


def test_a_ledger_shows_itself(ledger):
    assert repr(ledger).startswith("<Ledger data.ledger; ceiling (3, 1e-06). 3 charges so far: ")
    spent, another = ledger.spent[0], ledger.state().another[0]
    assert f"asked for (1.5, 3e-07) in all, composed ({spent:.4g}, 1e-06)." in repr(ledger)
    assert f"One more fit of this kind could have ({another:.4g}, 1e-07)" in repr(ledger)
    assert "seeded" not in repr(ledger)
    ledger.charge(gaussian_charge(0.1), label="<script>")
    page = ledger._repr_html_()
    assert "&lt;script&gt;" in page
    assert "<script>" not in page


def test_the_table_has_one_row_per_entry_and_what_was_spent_up_to_it(ledger):
    frame = ledger.to_frame()
    assert list(frame["label"]) == ["y ~ x0", "y ~ x1", "y ~ x2"]
    assert frame["spent"].is_monotonic_increasing
    assert frame["spent"].iloc[-1] == pytest.approx(ledger.spent[0])
    assert Ledger.memory(1.0, 0.0).to_frame().empty


@pytest.mark.parametrize("make", [gaussian_charge, mixed_charge])
def test_one_more_fit_of_the_last_kind_could_have_what_is_said_and_no_more(path, make):
    ledger = Ledger.open(path, 1.0, 1e-6)
    for _ in range(4):
        ledger.charge(make(0.35))
    epsilon, delta = ledger.state().another
    assert delta == 1e-7
    assert 0.35 < epsilon < 1.0
    assert not ledger.can_afford(make(epsilon * 1.001, delta))
    ledger.charge(make(epsilon * 0.999999, delta))


def test_a_full_ledger_says_so(path):
    ledger = Ledger.open(path, 1.0, 1e-6)
    ledger.charge(gaussian_charge(1.0, 1e-6))
    assert ledger.state().sentence() == (
        "ceiling (1, 1e-06). 1 charge so far: asked for (1, 1e-06) in all, composed (1, 1e-06). "
        "One more fit of this kind would pass the ceiling."
    )


def test_an_empty_ledger_says_what_a_first_fit_could_have():
    for ledger, kind in [(Ledger.memory(*CEILING), "Gaussian"), (Ledger.memory(1, 0), "Laplace")]:
        assert f"A fit with {kind} noise could have ({ledger.ceiling[0]:g}, " in repr(ledger)


# -- seeded noise --------------------------------------------------------------------------------


def test_a_charge_for_seeded_noise_is_marked_in_the_entry_and_its_hash(ledger, path):
    ledger.charge(gaussian_charge(0.1), reproducible=True)
    ledger.charge(gaussian_charge(0.1), reproducible=False)
    again = Ledger.open(path)
    assert [entry.reproducible for entry in again.entries] == [None] * 3 + [True, False]
    assert list(again.to_frame()["noise"][2:]) == ["not recorded", NOT_PRIVATE, "private"]
    assert again.state().reproducible == 1
    assert f"Charges with seeded noise ({NOT_PRIVATE}): 1." in again.state().sentence()
    with raw(path) as connection:
        connection.execute("DROP TRIGGER no_update_entry")
        unmark = "replace(payload, '\"reproducible\":true', '\"reproducible\":null')"
        connection.execute(f"UPDATE entry SET payload = {unmark} WHERE id = 4")
        connection.execute(chain._TRIGGERS["no_update_entry"])
    with pytest.raises(LedgerError, match="entry 4 was edited"):
        Ledger.open(path)


# -- long ledgers --------------------------------------------------------------------------------


@pytest.fixture
def work(monkeypatch):
    """Counts of entries composed, read and hashed."""
    counts = Counter()

    def counted(module, name):
        original = getattr(module, name)

        def call(*args):
            counts[name] += 1
            return original(*args)

        monkeypatch.setattr(module, name, call)

    counted(Composition, "then")
    counted(chain, "link")
    counted(chain, "event_from_dict")
    return counts


@pytest.mark.parametrize("use", ["charge", "can_afford"])
@pytest.mark.parametrize("kept", ["file", "memory"])
def test_the_work_of_a_charge_does_not_grow_with_the_ledger(path, work, use, kept):
    ledger = Ledger.open(path, *CEILING) if kept == "file" else Ledger.memory(*CEILING)
    done = []
    for size in (3, 30):
        while len(ledger.entries) < size:
            ledger.charge(mixed_charge(0.02))
        work.clear()
        getattr(ledger, use)(mixed_charge(0.02))
        done.append(dict(work))
    assert done[0] == done[1]
    assert done[0]["then"] == 1


def test_what_others_appended_is_read_and_nothing_else(ledger, path, work):
    other = Ledger.open(path)
    for _ in range(5):
        ledger.charge(gaussian_charge(0.1))
    work.clear()
    assert other.entries == ledger.entries
    assert work["then"] == work["event_from_dict"] == 5
    assert other.spent == ledger.spent == Ledger.open(path).spent


def test_an_edit_around_the_database_is_found_by_an_open_ledger(ledger, path):
    content = path.read_bytes()
    assert content.count(b"y ~ x1") == 1
    path.write_bytes(content.replace(b"y ~ x1", b"y ~ x9"))
    with pytest.raises(LedgerError, match="entry 2 was edited"):
        ledger.charge(gaussian_charge(0.1))


def test_an_edit_is_found_by_an_open_ledger_also_below_new_entries(ledger, path):
    """SQLite counts that the trigger was taken away and put back."""
    older = ledger._seen
    with raw(path) as connection:
        connection.execute("DROP TRIGGER no_update_entry")
        connection.execute(f"UPDATE entry SET payload = {CHEAPER} WHERE id = 1")
        connection.execute(chain._TRIGGERS["no_update_entry"])
        chain.append(connection, older, older.entries[-1], older.composed)
    with pytest.raises(LedgerError, match="entry 1 was edited"):
        ledger.charge(gaussian_charge(0.1))


def test_an_edit_that_the_triggers_do_not_see_is_found_by_an_open_ledger(ledger, path):
    """REPLACE deletes without asking the trigger against deletions."""
    with raw(path) as connection:
        cheaper = f"SELECT id, {CHEAPER}, hash FROM entry WHERE id = 2"
        connection.execute(f"INSERT OR REPLACE INTO entry {cheaper}")
    with pytest.raises(LedgerError, match="entry 2 was edited"):
        ledger.charge(gaussian_charge(0.1))


def test_a_copy_of_a_ledger_is_the_ledger(tmp_path):
    """A second one with the same entries could spend what is left once more."""
    kept = Ledger.open(tmp_path / "a.ledger", 1.0, 1e-6)
    for ledger in (Ledger.memory(1.0, 1e-6), kept):
        assert copy.copy(ledger) is ledger
        assert copy.deepcopy([ledger])[0] is ledger
    assert pickle.loads(pickle.dumps(kept)).path == kept.path
    with pytest.raises(LedgerError, match="another process"):
        pickle.dumps(Ledger.memory(1.0, 1e-6))


@pytest.mark.parametrize("wrong", ["1", [1.0], {"epsilon": 1.0}, float("nan"), 10**400])
def test_a_ceiling_that_is_no_number_is_refused_and_makes_no_file(tmp_path, wrong) -> None:
    path = tmp_path / "some.ledger"
    for ceiling in ((wrong, 1e-6), (1.0, wrong)):
        with pytest.raises(OptionError, match="the ceiling"):
            Ledger.open(path, *ceiling)
    assert not path.exists()
    Ledger.open(path, 1.0, 1e-6)
    with pytest.raises(OptionError, match="the ceiling"):
        Ledger.open(path, wrong, 1e-6)


@pytest.mark.parametrize("owner", [lambda: Ledger.memory(1.0, 1e-6), Replies])
def test_what_is_kept_in_memory_is_closed_with_its_owner(owner):
    kept = owner()
    connection = kept._memory
    connection.execute("SELECT 1")
    del kept
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")
