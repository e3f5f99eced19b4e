"""Any carrier of bytes will do: late sites, strangers and the choice of rounds."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dpstats as dp
from dpstats.cli import main
from dpstats.errors import DataError
from dpstats.federated import Site, ask, by_public_facts_over, carriers, fit
from dpstats.federated.question import Reply, call
from dpstats.federated.rounds import in_process
from dpstats.mechanisms.noise import SeededNoise
from tests.federated.cases import FORMULA, PRIVACY, SCHEMA, question, sites, table


def at_sites(**ledgers: dp.Ledger) -> list[Site]:
    return [
        Site(name, rows, SCHEMA, ledgers.get(name), noise=SeededNoise(k))
        for k, (name, rows) in enumerate(sites().items())
    ]


class Carrier:
    """Carries messages to sites of this process, but for some that are late or write nonsense."""

    def __init__(self, at: list[Site], late: str = "", garbled: str = "") -> None:
        self.send_on, self.late, self.garbled = in_process(at), late, garbled
        self.there = {site.name for site in at}
        self.sent: list[list[str]] = []

    def __call__(self, messages: Mapping[str, bytes]) -> dict[str, bytes | None]:
        self.sent.append(list(messages))
        there = {name: m for name, m in messages.items() if name in self.there}
        replies = dict(self.send_on(there))
        if self.late in replies:
            replies[self.late] = None
        if self.garbled in replies:
            replies[self.garbled] = b"\xff{}"
        return replies


def test_over_a_carrier_a_fit_is_that_of_one_process_and_the_target_is_asked_first() -> None:
    asked, names = question(), list(sites())
    carrier = Carrier(at_sites())
    over, here = ask(asked, names, carrier), fit(asked, at_sites(), False)
    assert over.params.equals(here.params)
    assert carrier.sent == [["home"], ["north", "south", "far"]]


@pytest.mark.parametrize("method", [None, "rounds"])
def test_who_is_late_or_writes_nonsense_is_named_and_the_others_go_on(method: Any) -> None:
    carrier = Carrier(at_sites(), late="north", garbled="far")
    found = ask(question(method=method), [*sites(), "never"], carrier)
    status = {"home": "answered", "north": "late", "south": "answered", "far": "invalid"}
    told = found.sources["status"].to_dict()
    assert {k: told[k] for k in status} == status
    assert told["never"] == "late"


def test_where_the_target_is_late_nobody_else_is_asked() -> None:
    led = dp.Ledger.memory(1.0, 1e-6)
    carrier = Carrier(at_sites(north=led), late="home")
    with pytest.raises(DataError, match=r"'home' did not answer \(late\): no reply in time"):
        ask(question(), list(sites()), carrier)
    assert carrier.sent == [["home"]]
    assert not led.entries


def test_rounds_are_chosen_over_a_carrier_as_they_are_in_one_process() -> None:
    small = {f"s{k}": table(200, k) for k in range(30)}
    at = [Site(name, rows, SCHEMA) for name, rows in small.items()]
    asked = question(privacy=dp.Federated(0.5, 1e-6, target="s0"))
    chosen = by_public_facts_over(asked, list(small), in_process(at))
    assert (chosen.method, chosen.combine) == ("rounds", "")
    model = dp.ols(FORMULA, small, SCHEMA)
    assert model.plan(asked.privacy).method == "rounds"
    large = question()
    assert by_public_facts_over(large, list(sites()), in_process(at_sites())) is large


def test_who_is_there_is_asked_for_free() -> None:
    led = dp.Ledger.memory(1.0, 1e-6)
    site, message = Site("home", sites()["home"], SCHEMA, led), call()
    reply = Reply.from_bytes(site.answer(message))
    assert (reply.site, reply.status) == ("home", "present")
    assert not led.entries
    assert site.answer(call()) != site.answer(message)


def test_a_question_that_is_kept_is_asked_again_and_another_is_not(tmp_path: Path) -> None:
    path, first = tmp_path / "q.json", question()
    assert carriers._kept(first, path, True) == (first, True)
    path.write_bytes(first.to_bytes() + b"\n")
    again, fresh = carriers._kept(question(), path, True)
    assert (again.nonce, fresh) == (first.nonce, False)
    for other in (
        question(options={"combine": "pool"}),
        question(privacy=replace(PRIVACY, epsilon=0.9)),
        question(method="rounds"),
    ):
        with pytest.raises(DataError, match="another question"):
            carriers._kept(other, path, False)
    path.write_bytes(replace(first, method="rounds", combine="").to_bytes())  # chosen then
    assert carriers._kept(question(), path, True)[0].method == "rounds"
    with pytest.raises(DataError, match="another question"):
        carriers._kept(question(), path, False)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["federated", "fit", FORMULA, "--sites", "3"], "--root-certificates says how"),
        (["site", "run", "--root-certificates", "ca.crt"], "--key and --askers are needed"),
        (["site", "run", "--insecure"], "--name: under which name"),
        (["site", "run", "--insecure", "--name", "a"], "no such ledger"),
    ],
)
def test_a_link_without_keys_is_asked_for(
    capsys: Any, tmp_path: Path, command: list[str], words: str
) -> None:
    SCHEMA.save(tmp_path / "schema.json")
    common = ["--link", "127.0.0.1:1", "--schema", str(tmp_path / "schema.json")]
    asks = ["--target", "home", "--epsilon", "1", "--delta", "1e-6"]
    keeps = ["--data", "x.parquet", "--ledger", "x.ledger", "--max-epsilon", "1", "--max-delta"]
    more = asks if command[0] == "federated" else [*keeps, "1e-6"]
    assert main([*command, *common, *more]) == 2
    assert words in " ".join(capsys.readouterr().err.split())


def test_sites_are_a_number_or_names() -> None:
    assert carriers._wanted("3") == 3
    assert carriers._wanted("home,north") == ("home", "north")
    with pytest.raises(DataError, match="'home' is not there; 'north' is"):
        carriers._joined(("north",), question())


def test_without_flower_a_link_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flwr.app", None)
    for name in [name for name in sys.modules if name.startswith("dpstats.federated.network")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(DataError, match=r"pip install 'dpstats\[flower\]'"):
        importlib.import_module("dpstats.federated.network")
