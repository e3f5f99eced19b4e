"""Who asks and who answers: a message under a signature, and everything that is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dpstats as dp
from dpstats.errors import DataError
from dpstats.federated import Site
from dpstats.federated.question import Reply, call
from dpstats.federated.signatures import (
    UNKNOWN,
    answering,
    bare,
    keys_in,
    private_key,
    public_key,
    signed,
    verified,
)
from tests.federated.cases import FORMULA, SCHEMA, question, sites
from tests.federated.test_files import ask, folder, run

__all__ = ["folder"]  # a fixture
LIMITS = ("--schema", "schema.json", "--max-epsilon", 1, "--max-delta", 1e-6)
ASKED = (FORMULA, "--schema", "schema.json", "--target", "home", "--epsilon", 1, "--delta", 1e-6)
OF_NORTH = ("--data", "north.parquet", "--ledger", "north.ledger", *LIMITS)
MESSAGE = b'{"format":"dpstats.question"}'


def made(folder: Path, name: str) -> Any:
    """A pair of keys, as ssh-keygen writes them."""
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP384R1())
    kind = form.PrivateFormat.OpenSSH
    private = key.private_bytes(form.Encoding.PEM, kind, form.NoEncryption())
    (folder / name).write_bytes(private)
    public = key.public_key()
    (folder / f"{name}.pub").write_bytes(
        public.public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    )
    return key


def test_only_the_key_the_role_and_the_message_that_were_signed_are_let_pass(
    tmp_path: Path,
) -> None:
    made(tmp_path, "analyst")
    made(tmp_path, "other")
    key, known = private_key(tmp_path / "analyst"), public_key(tmp_path / "analyst.pub")
    other = public_key(tmp_path / "other.pub")
    message = signed(MESSAGE, key, "asker")
    assert verified(message, [other, known], "asker") == MESSAGE
    assert bare(message) == MESSAGE
    assert verified(message, [other], "asker") is None
    assert verified(message, [], "asker") is None
    assert verified(message, [known], "site") is None
    assert verified(message + b" ", [known], "asker") is None
    assert verified(MESSAGE, [known], "asker") is None
    head = message.index(b"\n")
    for at in (5, 20, 60, head - 1, head + 3):
        forged = message[:at] + bytes([message[at] ^ 1]) + message[at + 1 :]
        assert verified(forged, [known], "asker") is None
    assert (
        verified(b"dpstats.signed 1 " + b"ab" * 5_000 + b"\n" + MESSAGE, [known], "asker") is None
    )
    assert signed(MESSAGE, None, "asker") == bare(MESSAGE) == MESSAGE


def test_a_stranger_is_refused_before_the_question_is_read(tmp_path: Path) -> None:
    made(tmp_path, "analyst")
    made(tmp_path, "north")
    ledger = dp.Ledger.memory(1.0, 1e-6)
    site = Site("north", sites()["north"], SCHEMA, ledger)
    analyst, north = private_key(tmp_path / "analyst"), private_key(tmp_path / "north")
    answer = answering(site, north, [public_key(tmp_path / "analyst.pub")])
    asked = question().to_bytes()
    for stranger in (
        asked,
        signed(asked, north, "asker"),
        signed(asked, analyst, "site"),
        b"",
        b"\n",
    ):
        reply = Reply.from_bytes(verified(answer(stranger), [north.public_key()], "site") or b"")
        assert (reply.site, reply.status) == ("north", "refused")
        assert reply.reason == UNKNOWN
    assert not ledger.entries
    reply = Reply.from_bytes(bare(answer(signed(asked, analyst, "asker"))))
    assert reply.status == "answered"
    assert len(ledger.entries) == 1
    there = answer(signed(call(), analyst, "asker"))
    assert (
        Reply.from_bytes(verified(there, [north.public_key()], "site") or b"").status == "present"
    )


def test_keys_are_what_ssh_keygen_writes(tmp_path: Path) -> None:
    command = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", "north"]
    try:
        subprocess.run(command, cwd=tmp_path, check=True)
    except FileNotFoundError:
        made(tmp_path, "north")
    assert verified(
        signed(MESSAGE, private_key(tmp_path / "north"), "site"),
        [keys_in(tmp_path)["north"]],
        "site",
    )
    (tmp_path / "bad").write_text("secret words")
    for read in (private_key, public_key):
        for path in (tmp_path / "bad", tmp_path / "none"):
            with pytest.raises(DataError, match="ssh-keygen -t ecdsa") as caught:
                read(path)
            assert "secret words" not in str(caught.value)
    with pytest.raises(DataError, match=r"no file NAME\.pub"):
        keys_in(tmp_path / "none")


@pytest.mark.parametrize(
    "command",
    [
        ("federated", "ask", *ASKED, "--key", "analyst"),
        ("federated", "fit", *ASKED, "--folder", "f", "--sites", 1, "--key", "analyst"),
        ("federated", "fit", *ASKED, "--folder", "f", "--sites", 1, "--site-keys", "."),
        ("federated", "combine", "q.json", "--site-keys", "."),
        ("site", "answer", "q.json", *OF_NORTH, "--key", "north"),
        ("site", "answer", "q.json", *OF_NORTH, "--name", "north", "--askers", "analyst.pub"),
        ("site", "run", "--folder", "f", *OF_NORTH, "--key", "north", "--askers", "analyst.pub"),
    ],
    ids=lambda command: " ".join(map(str, (*command[:2], command[-2]))),
)
def test_without_cryptography_a_key_is_refused_in_words_before_anything_is_charged(
    command: Any, capsys: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    ask(capsys, folder)
    for name in ("analyst", "north"):
        made(folder, name)
    hidden = [name for name in sys.modules if name.partition(".")[0] == "cryptography"]
    for name in (*hidden, "cryptography"):
        monkeypatch.setitem(sys.modules, name, None)
    if command[1] == "combine":
        rows = ("--data", "north.parquet", "--ledger", "other.ledger", "--ledger-epsilon", 2)
        rows += ("--ledger-delta", 1e-5)
        answered = run(capsys, "site", "answer", "q.json", "--name", "north", *rows, *LIMITS)
        Path("q.json").write_text(answered[1])
    status, out, err = run(capsys, *command)
    assert (status, out) == (2, "")
    assert "pip install 'dpstats[signed]'" in " ".join(err.split())
    assert not dp.Ledger.open("north.ledger").entries


def test_files_are_signed_by_who_asks_and_who_answers(capsys: Any, folder: Path) -> None:
    for name in ("analyst", "home", "north"):
        made(folder, name)
    known = folder / "known"
    known.mkdir()
    for name in ("home", "north"):
        (known / f"{name}.pub").write_bytes((folder / f"{name}.pub").read_bytes())
    ask(capsys, folder, "--key", folder / "analyst")

    def answer(name: str, key: str = "") -> Path:
        files = ("--data", folder / f"{name}.parquet", "--ledger", folder / f"{name}.ledger")
        limits = ("--schema", folder / "schema.json", "--max-epsilon", 1, "--max-delta", 1e-6)
        keys = ("--key", folder / (key or name), "--askers", folder / "analyst.pub")
        command = ("site", "answer", folder / "q.json", "--name", name)
        status, out, err = run(capsys, *command, *files, *limits, *keys)
        assert (status, err) == (0, "")
        (folder / f"a-{name}.json").write_text(out)
        return folder / f"a-{name}.json"

    answers = [answer("home"), answer("north")]
    combine = ("federated", "combine", *answers, "--site-keys", known)
    status, out, err = run(capsys, *combine)
    assert (status, err) == (0, "")
    assert "2 of 2" in out
    answers[1].write_text(answers[1].read_text().replace("answered", "refused"))
    assert "not signed by 'north'" in " ".join(run(capsys, *combine)[2].split())
    ask(capsys, folder)  # by nobody
    assert "nobody who may ask here" in answer("home").read_text()
