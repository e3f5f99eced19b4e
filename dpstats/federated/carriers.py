"""The commands ``site run`` and ``federated fit``, at a Flower link or in a folder."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dpstats.errors import DataError
from dpstats.estimators.federated.rounds import Rounds
from dpstats.estimators.federated.two_rounds import TwoRounds
from dpstats.federated.choice import by_public_facts_over
from dpstats.federated.collect import ask
from dpstats.federated.folder import Folder, serve_in
from dpstats.federated.question import QUESTION_FILE, Question
from dpstats.federated.signatures import answering, keys_in, private_key, public_key
from dpstats.outputs import check_output, write_output

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dpstats.federated.network import Link
    from dpstats.federated.site import Site
    from dpstats.results.released import Released

__all__ = ["fit_over", "run_site"]


def run_site(site: Site, arguments: argparse.Namespace) -> None:
    """Answer at a link or in a folder until it is stopped."""
    key = None if arguments.key is None else private_key(arguments.key)
    askers = None if arguments.askers is None else [public_key(p) for p in arguments.askers]
    answer, told = answering(site, key, askers), _teller(f"dpstats: {site.name}: ")
    try:
        if arguments.folder is not None:
            serve_in(arguments.folder, site.name, answer, told)
            return
        from dpstats.federated.network import Address, serve

        address = Address(arguments.address, arguments.root_certificates)
        serve(answer, address, key, patience=arguments.patience, told=told)
    except KeyboardInterrupt:
        told("stopped")


def fit_over(question: Question, arguments: argparse.Namespace) -> None:
    """Ask the sites at a link or in a folder, combine what they answer, write and print it."""
    from dpstats.results.delivery import deliver

    free = arguments.method is None and arguments.combine is None
    first, fresh = _kept(question, arguments.question, free)
    named = ("schema", "key", "secret", "root_certificates", "question")
    files = [path for name in named if (path := getattr(arguments, name)) is not None]
    if arguments.question is not None:
        check_output(arguments.question, QUESTION_FILE, files[:-1])

    def answers() -> Released:
        with _carrier(arguments) as carrier:
            wanted, asked = _wanted(arguments.sites), first
            names = _joined(carrier.gather(wanted, arguments.join_timeout), asked)
            send = carrier.within(arguments.timeout).send
            if fresh and free:
                asked = by_public_facts_over(asked, names, send)
            if arguments.question is not None and fresh:
                write_output(arguments.question, QUESTION_FILE, asked.to_bytes() + b"\n")
            return ask(asked, names, send, False if arguments.quiet else None)

    deliver(answers, arguments.out, summary=not arguments.quiet, inputs=files)


@contextmanager
def _carrier(arguments: argparse.Namespace) -> Iterator[Link | Folder]:
    """What takes messages to sites."""
    key = None if arguments.key is None else private_key(arguments.key)
    keys = None if arguments.site_keys is None else keys_in(arguments.site_keys)
    heard = _teller("dpstats: heard of ") if not arguments.quiet else lambda _: None
    if arguments.folder is not None:
        yield Folder(arguments.folder, key=key, site_keys=keys, heard=heard)
        return
    from dpstats.federated.network import Address, Link

    address = Address(arguments.address, arguments.root_certificates)
    secret = None if arguments.secret is None else _bytes_of(arguments.secret)
    with Link(address, secret=secret, key=key, site_keys=keys, heard=heard) as link:
        yield link


def _wanted(sites: str) -> int | Sequence[str]:
    """A number of sites, or their names."""
    return int(sites) if sites.isdigit() else tuple(sites.split(","))


def _joined(names: tuple[str, ...], question: Question) -> tuple[str, ...]:
    if question.privacy.target not in names:
        there = ", ".join(map(repr, names)) or "nobody"
        raise DataError(
            f"The target {question.privacy.target!r} is not there; {there} is. Nobody was "
            "asked. Wait longer for it with --join-timeout."
        )
    return names


def _kept(question: Question, path: Path | None, free: bool) -> tuple[Question, bool]:
    """The question that a file keeps, if it asks the same; whether it is a new one.

    Where public facts were `free` to choose the way to ask, it is the one that was chosen then.

    Raises
    ------
    DataError
        If the file keeps another question.
    """
    if path is None or not path.exists():
        return question, True
    kept = Question.from_bytes(path.read_bytes().rstrip(b"\n"))
    same = replace(question, nonce=kept.nonce)
    if free and kept.method in {Rounds.name, TwoRounds.name}:
        same = replace(same, method=kept.method, combine=kept.combine)
    if same.to_bytes() != kept.to_bytes():
        raise DataError(f"{path} keeps another question. Give the new one a file of its own.")
    return kept, False


def _bytes_of(path: Path) -> bytes:
    if not path.is_file():
        raise DataError(f"{path}: no such file.")
    return path.read_bytes()


def _teller(before: str) -> Callable[[str], None]:
    return lambda line: print(before + line, file=sys.stderr, flush=True)
