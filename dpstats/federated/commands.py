"""What is asked of sites and what they answer, in files and over a network, as commands."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpstats.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpstats.federated.question import Question
    from dpstats.federated.site import Site

__all__ = ["add_commands"]


def add_commands(
    commands: Any,
    add_model: Callable[..., None],
    model: Callable[..., Any],
    add_format: Callable[..., None],
) -> None:
    """Add the commands; `add_model`, `model` and `add_format` are those of other fits."""
    federated = commands.add_parser("federated", help="ask sites that keep their rows")
    actions = federated.add_subparsers(required=True, metavar="ACTION")

    ask = actions.add_parser("ask", help="write the question for all sites to standard output")
    add_model(ask)
    _add_question(ask)
    ask.set_defaults(command=lambda arguments: _ask(arguments, model))

    fit = actions.add_parser("fit", help="ask sites at a link or in a folder, and combine")
    add_model(fit, link="--link-function")  # of this command --link is where the sites are
    _add_question(fit)
    _add_link(fit)
    _add_asked(fit)
    fit.set_defaults(command=lambda arguments: _fit(arguments, model))

    combine = actions.add_parser("combine", help="combine the answers of sites")
    combine.add_argument("answers", type=Path, nargs="+", help="files that sites wrote")
    combine.add_argument("--site-keys", type=Path, help="folder with NAME.pub of each site")
    combine.add_argument("--out", type=Path, help="numbers (.json) or report (.html)")
    combine.add_argument("--quiet", action="store_true", help="no summary")
    combine.set_defaults(command=_combine)

    site = commands.add_parser("site", help="answer for a site that keeps its rows")
    actions = site.add_subparsers(required=True, metavar="ACTION")
    answer = actions.add_parser("answer", help="write the answer to standard output")
    answer.add_argument("question", type=Path, help="file that `federated ask` wrote")
    _add_site(answer)
    add_format(answer)
    answer.set_defaults(command=_answer)

    run = actions.add_parser("run", help="answer at a Flower link or in a folder until stopped")
    _add_link(run)
    _add_site(run)
    add_format(run)
    run.add_argument(
        "--patience", type=float, default=600.0, help="seconds to dial a lost link; default: 600"
    )
    run.set_defaults(command=_run)


def _add_question(parser: argparse.ArgumentParser) -> None:
    """What sites are asked, beside the model."""
    parser.add_argument("--schema", type=Path, required=True, help="schema file (JSON)")
    parser.add_argument("--target", required=True, help="site that is asked about")
    parser.add_argument("--epsilon", type=float, required=True, help="of each site")
    parser.add_argument("--delta", type=float, required=True, help="of each site")
    parser.add_argument("--method", help="the sites' method; their default otherwise")
    parser.add_argument(
        "--subset", help='rows that are meant at every site, such as "urban & age >= 18"'
    )
    parser.add_argument(
        "--rows",
        type=_guess,
        action="append",
        default=[],
        metavar="SITE=N",
        help="public guess of a site's rows, for each site where a person may have several",
    )
    parser.add_argument(
        "--robust",
        action="store_true",
        help="bounded scores: less noise, if the model is right",
    )
    parser.add_argument("--combine", help="blend (the default), minimax, select or pool")
    parser.add_argument("--key", type=Path, help="private key that signs what is asked")


def _add_site(parser: argparse.ArgumentParser) -> None:
    """Whose rows are asked, and for how much."""
    parser.add_argument("--name", help="under which the others know it; default: that of --key")
    parser.add_argument("--data", type=Path, required=True, help="CSV or Parquet file of rows")
    parser.add_argument("--schema", type=Path, required=True, help="the site's own schema file")
    parser.add_argument("--ledger", type=Path, required=True, help="the site's own ledger file")
    parser.add_argument("--ledger-epsilon", type=float, help="ceiling of a new ledger")
    parser.add_argument("--ledger-delta", type=float, help="ceiling of a new ledger")
    parser.add_argument("--max-epsilon", type=float, required=True, help="of one question")
    parser.add_argument("--max-delta", type=float, required=True, help="of one question")
    parser.add_argument(
        "--max-seconds",
        type=float,
        default=3600.0,
        help="that a fit may be expected to take, by its rows, columns and questions (3600)",
    )
    parser.add_argument(
        "--allow", default="ols,logit,glm,mean", help="models that may be asked for"
    )
    parser.add_argument(
        "--methods", help="methods that may be asked for by name, such as newton,omp; default: any"
    )
    parser.add_argument(
        "--replies", type=Path, help="file of past replies; default: LEDGER.replies"
    )
    parser.add_argument("--key", type=Path, help="the site's private key, which signs its replies")
    parser.add_argument(
        "--askers",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="public keys of those who may ask; everybody may otherwise",
    )


def _add_link(parser: argparse.ArgumentParser) -> None:
    """Where a link or a folder is, and how it is known."""
    carrier = parser.add_mutually_exclusive_group(required=True)
    carrier.add_argument(
        "--link", dest="address", metavar="HOST:PORT", help="of flower-superlink, or:"
    )
    carrier.add_argument("--folder", type=Path, help="that all parties see, in place of a link")
    parser.add_argument(
        "--root-certificates", type=Path, help="the certificate that signed the link's own"
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="no TLS, no keys: on one machine, or in a folder of friends",
    )


def _add_asked(parser: argparse.ArgumentParser) -> None:
    """How sites are waited for, and what becomes of their answers."""
    parser.add_argument(
        "--secret", type=Path, help="the file of the link's --superexec-auth-secret-file"
    )
    parser.add_argument("--site-keys", type=Path, help="folder with NAME.pub of each site")
    parser.add_argument(
        "--sites", required=True, help="how many there are, or their names: 3, or home,north,south"
    )
    parser.add_argument(
        "--join-timeout", type=float, default=60.0, help="seconds to wait for sites; default: 60"
    )
    parser.add_argument(
        "--timeout", type=float, default=600.0, help="seconds a site has to reply; default: 600"
    )
    parser.add_argument(
        "--question",
        type=Path,
        help="file that keeps the question: the same one asked again is not charged again",
    )
    parser.add_argument("--out", type=Path, help="numbers (.json) or report (.html)")
    parser.add_argument("--quiet", action="store_true", help="no progress, no summary")


def _guess(text: str) -> tuple[str, int]:
    site, _, rows = text.partition("=")
    return site, int(rows)


def _question(arguments: argparse.Namespace, model: Callable[..., Any]) -> Question:
    import dpstats as dp
    from dpstats.federated import question_for
    from dpstats.tables.files import read_schema

    made = model(arguments, read_schema(arguments.schema))
    rows, target = dict(arguments.rows), arguments.target
    privacy = dp.Federated(arguments.epsilon, arguments.delta, target=target, rows=rows)
    given = {"combine": arguments.combine, "sparsity": arguments.sparsity}
    options = {name: value for name, value in given.items() if value is not None}
    options |= {"target": "robust"} if arguments.robust else {}
    return question_for(made.kind, made.design, privacy, arguments.method, options)


def _ask(arguments: argparse.Namespace, model: Callable[..., Any]) -> None:
    from dpstats.estimators.federated import IN_ROUNDS
    from dpstats.estimators.federated.two_rounds import TwoRounds
    from dpstats.federated.signatures import private_key, signed

    if arguments.method in {*IN_ROUNDS, TwoRounds.name}:
        raise DataError(
            f"--method {arguments.method}: it asks one question after the other, and this command "
            "writes one. `dpstats federated fit --folder FOLDER` writes them as answers come in, "
            "and `dpstats site run --folder FOLDER` answers them."
        )
    key = None if arguments.key is None else private_key(arguments.key)
    message = signed(_question(arguments, model).to_bytes(), key, "asker")
    sys.stdout.write(message.decode() + "\n")


def _fit(arguments: argparse.Namespace, model: Callable[..., Any]) -> None:
    from dpstats.federated.carriers import fit_over

    _check_link(arguments)
    fit_over(_question(arguments, model), arguments)


def _run(arguments: argparse.Namespace) -> None:
    from dpstats.federated.carriers import run_site

    _check_link(arguments)
    if not arguments.insecure and (arguments.key is None or arguments.askers is None):
        raise DataError(
            "--key and --askers are needed: the site's own key, and the public keys of those who "
            "may ask. On one machine, or where only friends write to the folder: --insecure."
        )
    run_site(_site(arguments), arguments)


def _check_link(arguments: argparse.Namespace) -> None:
    if arguments.folder is not None:
        if arguments.root_certificates is not None:
            raise DataError("--root-certificates: a folder has none. Leave it out.")
        return
    if arguments.insecure == (arguments.root_certificates is not None):
        raise DataError(
            "--root-certificates says how the link is known; on one machine --insecure does "
            "without. Give one of them."
        )


def _site(arguments: argparse.Namespace) -> Site:
    import dpstats as dp
    from dpstats.federated import Site
    from dpstats.tables.files import read_schema

    name = arguments.name or (arguments.key.stem if arguments.key else None)
    if name is None:
        raise DataError("--name: under which name do the others know this site?")
    ceiling = (arguments.ledger_epsilon, arguments.ledger_delta)
    if not arguments.ledger.exists() and None in ceiling:
        raise DataError(
            f"{arguments.ledger}: no such ledger. To make one, give its ceiling: "
            "--ledger-epsilon 3 --ledger-delta 1e-6."
        )
    if not arguments.data.is_file():
        raise DataError(f"{arguments.data}: no such file.")
    return Site(
        name,
        arguments.files(arguments),
        read_schema(arguments.schema),
        dp.Ledger.open(arguments.ledger, *ceiling),
        max_epsilon=arguments.max_epsilon,
        max_delta=arguments.max_delta,
        max_seconds=arguments.max_seconds,
        allow=tuple(arguments.allow.split(",")),
        methods=None if arguments.methods is None else tuple(arguments.methods.split(",")),
        replies=arguments.replies or arguments.ledger.with_name(f"{arguments.ledger.name}.replies"),
    )


def _answer(arguments: argparse.Namespace) -> None:
    from dpstats.federated.signatures import answering, private_key, public_key

    key = None if arguments.key is None else private_key(arguments.key)
    askers = None if arguments.askers is None else [public_key(p) for p in arguments.askers]
    answer = answering(_site(arguments), key, askers)
    sys.stdout.write(answer(_read(arguments.question)).decode() + "\n")


def _combine(arguments: argparse.Namespace) -> None:
    from dpstats.federated import Question, combine
    from dpstats.federated.question import Reply
    from dpstats.results.delivery import deliver

    messages = [_checked(path, arguments.site_keys) for path in arguments.answers]
    replies = [Reply.from_bytes(message) for message in messages]
    names = [reply.site for reply in replies]
    if len(set(names)) < len(names):
        raise DataError(f"A site answered twice: {', '.join(sorted(names))}.")
    asked = [reply.question for reply in replies if reply.question]
    if len(set(asked)) != 1:
        raise DataError("The answers are not all to one question.")
    question, answers = Question.from_bytes(asked[0]), dict(zip(names, messages, strict=True))
    deliver(
        lambda: combine(question, answers),
        arguments.out,
        summary=not arguments.quiet,
        inputs=arguments.answers,
    )


def _checked(path: Path, folder: Path | None) -> bytes:
    """A reply, of the site that it names if the keys of sites are known."""
    from dpstats.federated.question import Reply
    from dpstats.federated.signatures import bare, keys_in, verified

    message = _read(path)
    reply = bare(message)
    if folder is not None:
        site = Reply.from_bytes(reply).site
        key = keys_in(folder).get(site)
        if key is None or verified(message, [key], "site") is None:
            raise DataError(f"{path}: it is not signed by {site!r}, as {folder} knows it.")
    return reply


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise DataError(f"{path}: no such file.")
    return path.read_bytes().rstrip(b"\n")
