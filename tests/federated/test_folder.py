"""The folder that sites and who asks both see: every mode of asking, and what may lie in it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpstats as dp
from dpstats.cli import main
from dpstats.errors import DataError
from dpstats.federated import Question, Site, ask, folder, question_for
from dpstats.federated.folder import Folder, answer_in, serve_in
from dpstats.federated.question import Reply
from dpstats.federated.rounds import in_process
from dpstats.federated.signatures import UNKNOWN, answering
from dpstats.mechanisms.noise import SeededNoise
from tests.federated import test_sparse
from tests.federated.cases import FORMULA, SCHEMA, question, table

SHORT = {"home": table(2000, 0), "north": table(3000, 1), "south": table(2500, 2)}


@pytest.fixture(autouse=True)
def stop(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Who waits looks again soon, and a site that waits ends when this is set."""
    ended = threading.Event()

    class Soon:
        def wait(self) -> None:
            if ended.wait(0.002) and threading.current_thread() is not threading.main_thread():
                raise KeyboardInterrupt

    monkeypatch.setattr(folder, "Pace", Soon)
    return ended


def at_sites(
    data: Mapping[str, Any] = SHORT, schema: dp.Schema = SCHEMA, **ledgers: dp.Ledger
) -> list[Site]:
    return [
        Site(name, rows, schema, ledgers.get(name), noise=SeededNoise(k))
        for k, (name, rows) in enumerate(data.items())
    ]


@contextmanager
def running(stop: threading.Event, *parties: Callable[[], object]) -> Iterator[None]:
    """Parties in threads, until the block ends."""

    def run(party: Callable[[], object]) -> None:
        try:
            party()
        except KeyboardInterrupt:
            return

    threads = [threading.Thread(target=run, args=(party,)) for party in parties]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(20)
        stop.clear()
    assert not any(thread.is_alive() for thread in threads)


def through(path: Path, stop: threading.Event, asked: Question, at: list[Site]) -> Any:
    names = [site.name for site in at]
    with running(stop, *(partial(serve_in, path, s.name, s.answer) for s in at)):
        carrier = Folder(path)
        assert set(carrier.gather(names, 20)) == set(names)
        return ask(asked, names, carrier.within(20).send)


def sparse() -> tuple[Question, Mapping[str, Any]]:
    """Two rounds, and the rows of their sites."""
    made = dp.ols(test_sparse.FORMULA, schema=test_sparse.SCHEMA).design
    options = {"sparsity": test_sparse.S, "target": "robust"}
    asked = question_for("ols", made, test_sparse.PRIVACY, "two-rounds", options)
    tables = test_sparse.tables(1500)
    return asked, {name: tables[name] for name in ("home", "north", "west")}


@pytest.mark.parametrize(
    "method",
    [
        "rounds",
        pytest.param(None, marks=pytest.mark.full),
        pytest.param("two-rounds", marks=pytest.mark.full),
    ],
)
def test_a_fit_through_a_folder_is_that_of_one_process(
    tmp_path: Path, stop: threading.Event, method: str | None
) -> None:
    asked, data = sparse() if method == "two-rounds" else (question(method=method), SHORT)
    schema = test_sparse.SCHEMA if method == "two-rounds" else SCHEMA
    paid = dp.Ledger.memory(1.0, 1e-6)
    over = through(tmp_path, stop, asked, at_sites(data, schema, north=paid))
    here = ask(asked, list(data), in_process(at_sites(data, schema)))
    assert over.params.equals(here.params)
    assert over.sources["status"].eq("answered").all()
    entries = len(paid.entries)
    assert entries == (2 if method == "two-rounds" else 1)
    # Who asks was ended and asks the same again: all answers are there, nobody need be.
    carrier = Folder(tmp_path)
    carrier.gather(tuple(data), 0)
    again = ask(asked, list(data), carrier.within(0).send)
    assert again.params.equals(here.params)
    assert len(paid.entries) == entries


def test_who_is_late_is_asked_no_more_and_does_not_pay_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    carrier = Folder(tmp_path)
    assert carrier.gather(("home", "never"), 0) == ("home", "never")
    message = question().to_bytes()
    once = carrier.within(0).send({"home": message, "never": message})
    assert once == {"home": None, "never": None}
    assert answer_in(tmp_path / "home", at_sites()[0].answer) == 0
    assert carrier.send({"home": message}) == {"home": None}
    assert not list((tmp_path / "home").iterdir())


def test_a_file_that_is_half_there_is_no_message_and_a_link_is_not_followed(tmp_path: Path) -> None:
    home, kept, site = tmp_path / "home", tmp_path / "kept", at_sites()[0]
    home.mkdir()
    kept.write_bytes(b"of the site")
    carrier = Folder(tmp_path)
    carrier.gather(1, 0)
    message = question().to_bytes()
    carrier.within(0).send({"home": message})  # it is taken away again
    name = f"0001.{folder._digest(message)}.question.json"
    (home / name).write_bytes(message[:-10])
    assert answer_in(home, site.answer) == 0
    (home / name).write_bytes(message)
    answer = f"0001.{folder._digest(message)}.{'0' * 16}.answer.json"
    (home / answer).symlink_to(kept)  # no answer: its digest is another
    made = Site("home", SHORT["home"], SCHEMA, noise=SeededNoise(0)).answer(message)
    planted = home / f"0001.{folder._digest(message)}.{folder._digest(made)}.answer.json"
    planted.symlink_to(kept)
    assert answer_in(home, site.answer) == 1
    assert answer_in(home, site.answer) == 0
    assert kept.read_bytes() == b"of the site"
    assert not planted.is_symlink()
    assert planted.read_bytes() == made


@pytest.mark.parametrize("name", ["../home", "a/b", "", ".", "..", ".hidden"])
def test_a_name_that_leaves_the_folder_is_none(tmp_path: Path, name: str) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    with pytest.raises(DataError, match="a name that a folder can have"):
        serve_in(inner, name, lambda message: message)
    assert Folder(inner).gather((name,), 0) == (name,)
    assert [path.name for path in tmp_path.iterdir()] == ["inner"]
    with pytest.raises(DataError, match="no such folder"):
        Folder(tmp_path / "none")


def test_a_reply_that_its_site_did_not_sign_is_invalid(
    tmp_path: Path, stop: threading.Event
) -> None:
    ec = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ec")
    home, north, asker = (ec.generate_private_key(ec.SECP384R1()) for _ in range(3))
    keys = {"home": home.public_key(), "north": north.public_key()}
    at = at_sites()[:2]
    answers = [answering(site, home, [asker.public_key()]) for site in at]  # north's key is not his
    parties = [partial(serve_in, tmp_path, s.name, a) for s, a in zip(at, answers, strict=True)]
    with running(stop, *parties):
        carrier = Folder(tmp_path, key=asker, site_keys=keys)
        names = carrier.gather(("home", "north"), 20)
        found = ask(question(), names, carrier.within(20).send)
        stranger = Folder(tmp_path)
        stranger.gather(names, 20)
        reply = stranger.within(20).send({"home": question().to_bytes()})["home"]
    assert found.sources["status"].tolist() == ["answered", "invalid"]
    assert reply is not None
    assert Reply.from_bytes(reply).reason == UNKNOWN


def test_commands_fit_in_rounds_through_a_folder(
    tmp_path: Path, stop: threading.Event, capsys: Any
) -> None:
    SCHEMA.save(tmp_path / "schema.json")
    shared = tmp_path / "shared"
    shared.mkdir()
    common = ["--folder", shared, "--schema", tmp_path / "schema.json", "--insecure"]
    limits = ["--max-epsilon", 1, "--max-delta", 1e-6]
    parties = []
    for name, rows in SHORT.items():
        pd.DataFrame(rows).to_parquet(tmp_path / f"{name}.parquet")
        dp.Ledger.open(tmp_path / f"{name}.ledger", 2.0, 1e-5)
        files = ["--data", tmp_path / f"{name}.parquet", "--ledger", tmp_path / f"{name}.ledger"]
        command = ["site", "run", *common, "--name", name, *files, *limits]
        parties.append(partial(main, [str(word) for word in command]))
    asks = ["--target", "home", "--epsilon", 1, "--delta", 1e-6, "--method", "rounds"]
    out = ["--sites", "home,north,south", "--out", tmp_path / "fit.json", "--quiet"]
    with running(stop, *parties):
        status = main([str(w) for w in ["federated", "fit", FORMULA, *common, *asks, *out]])
    assert status == 0, capsys.readouterr().err
    fit = dp.load(tmp_path / "fit.json")
    assert fit.sources["status"].eq("answered").all()
    assert fit.plan.method == "rounds"
    assert np.abs(fit.params - [0.5, 1.0, -1.0]).max() < 0.3
    for name in SHORT:
        assert len(dp.Ledger.open(tmp_path / f"{name}.ledger").entries) == 1
    refused = [*common[:-1], "--root-certificates", "ca.crt", *asks, "--sites", "3"]
    assert main([str(w) for w in ["federated", "fit", FORMULA, *refused]]) == 2
    assert "a folder has none" in capsys.readouterr().err
