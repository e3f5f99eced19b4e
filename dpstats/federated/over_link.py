"""Sites and who asks them at a Flower link, as the commands ``site run`` and ``federated fit``."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dpstats.errors import DataError
from dpstats.estimators.federated import IN_ROUNDS
from dpstats.federated.collect import ask, rounds_if_better_over
from dpstats.federated.question import Question
from dpstats.federated.signatures import answering, keys_in, private_key, public_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dpstats.federated.site import Site

__all__ = ["fit_over_link", "run_site"]


def run_site(site: Site, arguments: argparse.Namespace) -> None:
    """Answer at a link until it is stopped."""
    from dpstats.federated.network import Address, serve

    key = None if arguments.key is None else private_key(arguments.key)
    askers = None if arguments.askers is None else [public_key(p) for p in arguments.askers]
    address = Address(arguments.address, arguments.root_certificates)
    told = _teller(f"dpstats: {site.name}: ")
    try:
        serve(answering(site, key, askers), address, key, patience=arguments.patience, told=told)
    except KeyboardInterrupt:
        told("stopped")


def fit_over_link(question: Question, arguments: argparse.Namespace) -> None:
    """Ask the sites at a link, combine what they answer, write and print it."""
    from dpstats.federated.network import Address, Link
    from dpstats.results.delivery import deliver, numbers_file

    asked, fresh = _kept(question, arguments.question)
    link = Link(
        Address(arguments.address, arguments.root_certificates),
        secret=None if arguments.secret is None else _bytes_of(arguments.secret),
        key=None if arguments.key is None else private_key(arguments.key),
        site_keys=None if arguments.site_keys is None else keys_in(arguments.site_keys),
        heard=_teller("dpstats: heard of ") if not arguments.quiet else lambda _: None,
    )
    with numbers_file(arguments.out) as numbers:
        with link:
            names = _joined(link.gather(_wanted(arguments.sites), arguments.join_timeout), asked)
            send = link.within(arguments.timeout).send
            chosen = arguments.method or arguments.combine or arguments.sparsity
            if fresh and chosen is None:
                asked = rounds_if_better_over(asked, names, send)
            if arguments.question is not None and fresh:
                arguments.question.write_bytes(asked.to_bytes() + b"\n")
            found = ask(asked, names, send, False if arguments.quiet else None)
        deliver(found, numbers, arguments.out, summary=not arguments.quiet)


def _wanted(sites: str) -> int | Sequence[str]:
    """A number of sites, or their names."""
    return int(sites) if sites.isdigit() else tuple(sites.split(","))


def _joined(names: tuple[str, ...], question: Question) -> tuple[str, ...]:
    if question.privacy.target not in names:
        there = ", ".join(map(repr, names)) or "nobody"
        raise DataError(
            f"The target {question.privacy.target!r} is not at the link; {there} is. Nobody was "
            "asked. Wait longer for it with --join-timeout."
        )
    return names


def _kept(question: Question, path: Path | None) -> tuple[Question, bool]:
    """The question that a file keeps, if it asks the same; whether it is a new one.

    Raises
    ------
    DataError
        If the file keeps another question.
    """
    if path is None or not path.exists():
        return question, True
    kept = Question.from_bytes(path.read_bytes().rstrip(b"\n"))
    same = replace(question, nonce=kept.nonce)
    if question.method is None and kept.method in IN_ROUNDS:  # as it was chosen then
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
