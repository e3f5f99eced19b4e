"""Questions and answers as files: ``federated ask``, ``site answer``, ``federated combine``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpstats.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["add_commands"]


def add_commands(
    commands: Any, add_model: Callable[[argparse.ArgumentParser], None], model: Callable[..., Any]
) -> None:
    """Add the commands; `add_model` and `model` are those of other fits."""
    federated = commands.add_parser("federated", help="ask sites that keep their rows")
    actions = federated.add_subparsers(required=True, metavar="ACTION")

    ask = actions.add_parser("ask", help="write the question for all sites to standard output")
    add_model(ask)
    ask.add_argument("--schema", type=Path, required=True, help="schema file (JSON)")
    ask.add_argument("--target", required=True, help="site that is asked about")
    ask.add_argument("--epsilon", type=float, required=True, help="of each site")
    ask.add_argument("--delta", type=float, required=True, help="of each site")
    ask.add_argument("--method", help="the sites' method; their default otherwise")
    ask.add_argument(
        "--rows",
        type=_guess,
        action="append",
        default=[],
        metavar="SITE=N",
        help="public guess of a site's rows, for each site where a person may have several",
    )
    ask.add_argument("--combine", help="blend (the default), minimax, select or pool")
    ask.set_defaults(command=lambda arguments: _ask(arguments, model))

    combine = actions.add_parser("combine", help="combine the answers of sites")
    combine.add_argument("answers", type=Path, nargs="+", help="files that sites wrote")
    combine.add_argument("--out", type=Path, help="numbers (.json) or report (.html)")
    combine.add_argument("--quiet", action="store_true", help="no summary")
    combine.set_defaults(command=_combine)

    site = commands.add_parser("site", help="answer for a site that keeps its rows")
    actions = site.add_subparsers(required=True, metavar="ACTION")
    answer = actions.add_parser("answer", help="write the answer to standard output")
    answer.add_argument("question", type=Path, help="file that `federated ask` wrote")
    answer.add_argument("--name", required=True, help="under which the others know this site")
    answer.add_argument("--data", type=Path, required=True, help="CSV or Parquet file of rows")
    answer.add_argument("--schema", type=Path, required=True, help="the site's own schema file")
    answer.add_argument("--ledger", type=Path, required=True, help="the site's own ledger file")
    answer.add_argument("--max-epsilon", type=float, required=True, help="of one question")
    answer.add_argument("--max-delta", type=float, required=True, help="of one question")
    answer.add_argument(
        "--allow", default="ols,logit,glm,mean", help="models that may be asked for"
    )
    answer.add_argument(
        "--replies", type=Path, help="file of past replies; default: LEDGER.replies"
    )
    answer.set_defaults(command=_answer)


def _guess(text: str) -> tuple[str, int]:
    site, _, rows = text.partition("=")
    return site, int(rows)


def _ask(arguments: argparse.Namespace, model: Callable[..., Any]) -> None:
    import dpstats as dp
    from dpstats.estimators.federated import IN_ROUNDS
    from dpstats.federated import question_for
    from dpstats.tables.files import read_schema

    if arguments.method in IN_ROUNDS:
        raise DataError(
            f"--method {arguments.method}: it asks one question after the other, and files carry "
            "one. Ask for whole fits, or use Python (docs/federated.md)."
        )
    made = model(arguments, read_schema(arguments.schema))
    rows, target = dict(arguments.rows), arguments.target
    privacy = dp.Federated(arguments.epsilon, arguments.delta, target=target, rows=rows)
    given = {"combine": arguments.combine, "sparsity": arguments.sparsity}
    options = {name: value for name, value in given.items() if value is not None}
    question = question_for(made.kind, made.design, privacy, arguments.method, options)
    sys.stdout.write(question.to_bytes().decode() + "\n")


def _answer(arguments: argparse.Namespace) -> None:
    import dpstats as dp
    from dpstats.federated import Site
    from dpstats.tables.files import read_schema

    if not arguments.ledger.exists():
        raise DataError(
            f"{arguments.ledger}: no such ledger; dp.Ledger.open(path, epsilon, delta) makes one."
        )
    site = Site(
        arguments.name,
        arguments.data,
        read_schema(arguments.schema),
        dp.Ledger.open(arguments.ledger),
        max_epsilon=arguments.max_epsilon,
        max_delta=arguments.max_delta,
        allow=tuple(arguments.allow.split(",")),
        replies=arguments.replies or arguments.ledger.with_name(f"{arguments.ledger.name}.replies"),
    )
    sys.stdout.write(site.answer(_read(arguments.question)).decode() + "\n")


def _combine(arguments: argparse.Namespace) -> None:
    from dpstats.federated import Question, combine
    from dpstats.federated.question import Reply
    from dpstats.results.delivery import deliver, numbers_file

    messages = [_read(path) for path in arguments.answers]
    replies = [Reply.from_bytes(message) for message in messages]
    names = [reply.site for reply in replies]
    if len(set(names)) < len(names):
        raise DataError(f"A site answered twice: {', '.join(sorted(names))}.")
    asked = [reply.question for reply in replies if reply.question]
    if len(set(asked)) != 1:
        raise DataError("The answers are not all to one question.")
    found = combine(Question.from_bytes(asked[0]), dict(zip(names, messages, strict=True)))
    with numbers_file(arguments.out) as numbers:
        deliver(found, numbers, arguments.out, summary=not arguments.quiet)


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise DataError(f"{path}: no such file.")
    return path.read_bytes()
